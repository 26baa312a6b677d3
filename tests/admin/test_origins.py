"""Origins that are no folders: git's servers over HTTPS and ssh, and archives from everywhere.

The server is git's own (`git http-backend`), behind HTTPS on loopback, and a real sshd. Where it isn't one, a
script runs what ssh would run on the server.
"""

from __future__ import annotations

import base64
import io
import json
import os
import pwd
import shutil
import socket
import ssl
import subprocess
import tarfile
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.origins.test_git import commit, git
from tests.ingest.origins.test_s3 import Bucket
from tests.ingest.shelf import mail, zipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.admin.conftest import Desk, Run
    from tests.endpoint import Site

pytestmark = pytest.mark.slow


NO_KEY = "the host accepts none of your keys"
SECRET = "s3cret-of-the-reader"  # noqa: S105 a test's
BACKEND = Path(
    subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip()
)


@dataclass(slots=True)
class Server:
    """A server of the repositories in a folder, and the `command_lines` of all processes meanwhile."""

    root: Path
    certificate: Path
    port: int = 0
    command_lines: set[str] = field(default_factory=set)
    allowed: int = 0

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Ask git, if the password is right."""
        credentials = base64.b64encode(f"reader:{SECRET}".encode()).decode()
        if request.headers.get("Authorization") != f"Basic {credentials}":
            request.send_response(401)
            request.send_header("WWW-Authenticate", 'Basic realm="git"')
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        self.allowed += 1
        self.command_lines |= command_lines()
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        path, _, query = request.path.partition("?")
        environment = dict(os.environ) | {
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": request.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": request.headers.get("Content-Type") or "",
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding") or "",
            "GIT_PROTOCOL": request.headers.get("Git-Protocol") or "",
            "CONTENT_LENGTH": str(len(body)),
        }
        program = [BACKEND / "git-http-backend"]
        run = subprocess.run(program, input=body, env=environment, capture_output=True, check=False)
        head, _, content = run.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        request.send_response(int(lines.pop("Status", "200").split()[0]))
        for name, value in (lines | {"Content-Length": str(len(content))}).items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(content)


def command_lines() -> set[str]:
    """What anybody on this machine sees of the processes that run."""
    lines = set()
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.add(process.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return lines


@pytest.fixture(scope="module")
def repositories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repositories")
    folder = root / "manual"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "clock.md").write_text("# Clock\n\nThe pendulum swings.\n")
    commit(folder, "2026-01-01T00:00:00Z")
    return root


@pytest.fixture
def server(repositories: Path, tmp_path: Path) -> Iterator[Server]:
    if not (BACKEND / "git-http-backend").exists() or not (openssl := shutil.which("openssl")):
        pytest.skip("git http-backend or openssl is not installed")
    files = [tmp_path / "key.pem", tmp_path / "certificate.pem"]
    request = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost")
    where = ("-addext", "subjectAltName=DNS:localhost", "-keyout", files[0], "-out", files[1])
    subprocess.run([openssl, *request, *where], check=True, capture_output=True)
    served = Server(repositories, files[1])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self)

        do_POST = do_GET  # noqa: N815 the library's name

        def log_message(self, *_: object) -> None:
            """Nothing."""

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[0])
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    served.port = listening.server_port
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    yield served
    listening.shutdown()
    thread.join()
    listening.server_close()


def synced(desk: Desk, folder: Path, url: str, code: int = 0, **more: object) -> Run:
    config = folder / "config.toml"
    origin = {"type": "git", "repository": url, "ref": "main", **more}
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in origin.items())
    config.write_text("[origins.manual]\n" + "".join(lines))
    return desk.run("sync", "--verbose", "--config", config, code=code)


def with_password(folder: Path, port: int, password: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let git's own helper know the credentials, as an administrator does."""
    stored, settings = folder / "credentials", folder / "gitconfig"
    stored.write_text(f"https://reader:{password}@localhost:{port}\n")
    settings.write_text(f'[credential]\n\thelper = store --file="{stored}"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))


def test_a_repository_is_cloned_over_https_and_its_password_is_nowhere(
    inside: Desk, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://localhost:{server.port}/manual"
    monkeypatch.setenv("GIT_SSL_CAINFO", str(server.certificate))
    with_password(tmp_path, server.port, SECRET, monkeypatch)
    for dates, outcome in ((True, "added"), (True, "unchanged"), (False, "unchanged")):
        run = synced(inside, tmp_path, url, dates=dates)
        assert outcome in run.stdout
        assert SECRET not in run.stdout + run.stderr
    assert inside.titles("pendulum") == ["Clock"]
    assert server.allowed
    assert any("git" in line and "fetch" in line for line in server.command_lines)
    assert not [line for line in server.command_lines if SECRET in line]
    assert not inside.files_with(SECRET.encode())


def test_a_wrong_password_and_an_unknown_certificate_are_told_without_it(
    inside: Desk, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://localhost:{server.port}/manual"
    with_password(tmp_path, server.port, SECRET, monkeypatch)
    unknown = synced(inside, tmp_path, url, code=1)
    assert not server.allowed
    monkeypatch.setenv("GIT_SSL_CAINFO", str(server.certificate))
    with_password(tmp_path, server.port, f"not-{SECRET}", monkeypatch)
    wrong = synced(inside, tmp_path, url, code=1)
    for run in (unknown, wrong):
        assert "check its URL, the network and the credentials of git" in run.stderr
        assert len(run.stderr.splitlines()) == 2
        assert SECRET not in run.stdout + run.stderr
    assert not inside.files_with(SECRET.encode())


def test_a_repository_is_cloned_with_the_command_of_ssh(
    inside: Desk, repositories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, log = tmp_path / "ssh", tmp_path / "log"
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\nfor last; do :; done\nexec sh -c "$last"\n')
    script.chmod(0o700)
    monkeypatch.setenv("GIT_SSH_COMMAND", str(script))
    run = synced(inside, tmp_path, f"ssh://git@example.org{repositories}/manual")
    assert "added" in run.stdout
    assert "git@example.org git-upload-pack" in log.read_text()
    script.write_text("#!/bin/sh\necho 'Permission denied (publickey).' >&2\nexit 255\n")
    refused = synced(inside, tmp_path, f"ssh://git@example.org{repositories}/manual", 1)
    assert f"{NO_KEY}; ssh -T git@example.org must work" in refused.stderr


WHERE = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
SECONDS = 60  # in which a daemon starts on a slow machine


@dataclass(frozen=True, slots=True)
class SshServer:
    """An sshd for this user, who is let in with `key`. Its host is known if that is in the file `known`."""

    port: int
    folder: Path
    repository: Path
    user: str

    @property
    def key(self) -> Path:
        return self.folder / "key"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known"

    @property
    def url(self) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}{self.repository}"

    def know(self, key: str = "host") -> None:
        """Note a key as that of the host."""
        public = (self.folder / f"{key}.pub").read_text()
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {public}")

    def settle(self, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
        """What a user of ssh has in ~/.ssh/config, which is found by the account and not by HOME."""
        lines = (
            f"UserKnownHostsFile {self.known_hosts}",
            "GlobalKnownHostsFile none",
            "IdentitiesOnly no",
            *more,
        )
        (self.folder / "config").write_text("\n".join(lines) + "\n")
        monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F {self.folder / 'config'}")


@pytest.fixture
def ssh_server(tmp_path: Path) -> Iterator[SshServer]:
    """Skips, with the reason, where no sshd runs."""
    sshd, keygen = shutil.which("sshd", path=WHERE), shutil.which("ssh-keygen")
    if not (sshd and keygen and shutil.which("ssh")):
        pytest.skip("OpenSSH's client and server aren't both installed (apt-get install openssh-server)")
    for name in ("host", "other", "key"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    shutil.copy(tmp_path / "key.pub", tmp_path / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    lines: tuple[str, ...] = (
        "ListenAddress 127.0.0.1",
        f"Port {port}",
        f"HostKey {tmp_path / 'host'}",
        "PidFile none",
    )
    lines += (f"AuthorizedKeysFile {tmp_path / 'authorized'}", "StrictModes no", "UsePAM no")
    (tmp_path / "sshd").write_text("\n".join((*lines, "PasswordAuthentication no")) + "\n")
    log = tmp_path / "log"
    with log.open("w") as errors:
        daemon = subprocess.Popen([sshd, "-D", "-e", "-f", tmp_path / "sshd"], stderr=errors)
    try:
        until = time.monotonic() + SECONDS
        while "Server listening" not in log.read_text():
            if daemon.poll() is not None or time.monotonic() > until:
                pytest.skip(f"sshd doesn't start here: {log.read_text().strip()}")
            time.sleep(0.05)
        yield SshServer(port, tmp_path, _repository(tmp_path), pwd.getpwuid(os.getuid()).pw_name)
    finally:
        daemon.kill()
        daemon.wait()


def _repository(folder: Path) -> Path:
    repository = folder / "manual"
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")
    (repository / "clock.md").write_text("# Clock\n\nThe pendulum swings.\n")
    commit(repository, "2026-01-01T00:00:00Z")
    return repository


def test_a_key_of_the_user_is_used_in_both_ways_of_writing(
    inside: Desk, ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_server.know()
    ssh_server.settle(monkeypatch, f"IdentityFile {ssh_server.key}", f"Port {ssh_server.port}")
    assert "added" in synced(inside, ssh_server.folder, ssh_server.url).stdout
    short = f"{ssh_server.user}@127.0.0.1:{ssh_server.repository}"
    assert "unchanged" in synced(inside, ssh_server.folder, short).stdout
    assert inside.titles("pendulum") == ["Clock"]


def test_a_key_of_the_agent_is_used_and_without_it_the_user_is_told(
    inside: Desk, ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_server.know()
    ssh_server.settle(monkeypatch, "IdentityFile none")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    refusal = synced(inside, ssh_server.folder, ssh_server.url, 1).stderr
    assert NO_KEY in refusal
    assert f"ssh -T -p {ssh_server.port} {ssh_server.user}@127.0.0.1" in refusal
    told_by_agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    agent = dict(line.split(";")[0].split("=") for line in told_by_agent.splitlines() if "=" in line)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", agent["SSH_AUTH_SOCK"])
        subprocess.run(["ssh-add", "-q", ssh_server.key], check=True)
        assert "added" in synced(inside, ssh_server.folder, ssh_server.url).stdout
    finally:
        os.kill(int(agent["SSH_AGENT_PID"]), 15)


@pytest.mark.parametrize("asking", ["ask", "accept-new"])
def test_a_host_whose_key_is_another_one_is_refused(
    inside: Desk, ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch, asking: str
) -> None:
    ssh_server.know("other")
    ssh_server.settle(monkeypatch, f"IdentityFile {ssh_server.key}", f"StrictHostKeyChecking {asking}")
    refusal = synced(inside, ssh_server.folder, ssh_server.url, 1).stderr
    assert "the key of 127.0.0.1 is another one than the one that is known" in refusal
    assert f"ssh-keygen -R '[127.0.0.1]:{ssh_server.port}'" in refusal
    ssh_server.know()
    assert "added" in synced(inside, ssh_server.folder, ssh_server.url).stdout  # the control


@pytest.mark.parametrize("command", ["", "ssh"])
def test_a_host_that_is_not_known_is_refused_and_nobody_is_asked(
    inside: Desk, ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """With the usual command of ssh and with one of the user's, which could ask."""
    if command:
        ssh_server.settle(monkeypatch, f"IdentityFile {ssh_server.key}", "StrictHostKeyChecking ask")
    else:
        monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    marker = ssh_server.folder / "asked"
    helper = ssh_server.folder / "askpass"
    helper.write_text(f"#!/bin/sh\ntouch {marker}\necho yes\n")
    helper.chmod(0o700)
    for name, value in (("SSH_ASKPASS", str(helper)), ("DISPLAY", ":0"), ("SSH_ASKPASS_REQUIRE", "force")):
        monkeypatch.setenv(name, value)
    refusal = synced(inside, ssh_server.folder, ssh_server.url, 1).stderr
    assert "the key of 127.0.0.1 is not known to ssh" in refusal
    assert f"run ssh -T -p {ssh_server.port} {ssh_server.user}@127.0.0.1 once" in refusal
    assert not marker.exists()
    assert not ssh_server.known_hosts.exists()


FILES = {
    "papers.zip": zipped({"in/a.md": b"# A\n\nThe pendulum.", "b.png": b"\x89PNG"}),
    "page": b"<!doctype html><html><title>Clock</title><body><p>The escapement.</p></body></html>",
    "noise": bytes(range(256)),
    "plan.eml": mail(plan_md=b"# The plan\n\nThe plan."),
}
STORED = {"papers.zip/in/a.md", "page", "plan.eml", "plan.eml/plan.md"}


def test_from_a_bucket(inside: Desk, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = Bucket(site, {f"r/{name}": data for name, data in FILES.items()})
    bucket.is_open = True
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    origin = {"type": "s3", "bucket": "archive", "endpoint": site.url, "prefix": "r", "region": "eu-x"}
    _as_from_a_folder(inside, tmp_path, origin)
    site.paths.clear()
    assert _sync(inside, tmp_path, origin)["counts"]["unchanged"] == len(STORED)
    assert not [path for path in site.paths if "list-type" not in path]  # what is no document neither
    bucket.objects["r/papers.zip"] = zipped({"in/a.md": b"# A\n\nThe pendulum of 1656."})
    site.paths.clear()
    assert _sync(inside, tmp_path, origin)["counts"]["replaced"] == 1
    assert [path for path in site.paths if "list-type" not in path] == ["/archive/r/papers.zip"]
    inside.run("access", "set", "origin:in/plan.eml", "--visibility", "restricted", "--allow", "group:hr")
    bucket.objects["r/plan.eml"] = mail(plan_md=b"# The plan\n\nThe plan.", more_md=b"# More\n\nA plan, too.")
    _sync(inside, tmp_path, origin)
    assert inside.hits("plan", "--user", "bob", "--mode", "sparse") == []
    assert len(inside.hits("plan", "--group", "hr", "--mode", "sparse")) == 3
    del bucket.objects["r/papers.zip"]
    assert _sync(inside, tmp_path, origin)["counts"]["removed"] == 1


def test_from_a_repository(inside: Desk, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    commit(folder, "2026-01-01T00:00:00Z")
    _as_from_a_folder(inside, tmp_path, {"type": "git", "repository": str(folder), "ref": "main"})


@pytest.mark.parametrize("kind", ["application/octet-stream", ""])
def test_from_a_site(inside: Desk, site: Site, tmp_path: Path, kind: str) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("c.md")
        entry.size = 3
        archive.addfile(entry, io.BytesIO(b"# C"))
    links = "".join(f'<a href="/{name}">x</a>' for name in (*FILES, "more.tgz"))
    site.pages["/"] = f"<html><title>Start</title><body><p>All.</p>{links}</body></html>".encode()
    for name, data in FILES.items() | {("more.tgz", packed.getvalue())}:
        site.pages[f"/{name}"] = _reply(data, kind)
    origin = {"type": "web", "urls": [f"{site.url}/"], "depth": 1, "delay_seconds": 0}
    origin |= {"private_networks": ["127.0.0.0/8"]}
    host = site.url.removeprefix("http://")
    stored = {f"{host}/{name}" for name in (*STORED, "more.tgz/c.md", "index")}
    _as_from_a_folder(inside, tmp_path, origin, stored)
    assert _sync(inside, tmp_path, origin)["counts"]["unchanged"] == len(stored)


def test_from_records_with_files(inside: Desk, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name, data in FILES.items():
        (tmp_path / "files" / name).write_bytes(data)
    lines: list[dict[str, object]] = [{"refdesk": "records", "version": 1, "sync": "full"}]
    lines += [{"id": name, "path": name, "access": {"visibility": "tenant"}} for name in FILES]
    lines += [{"end": True, "count": len(FILES)}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    origin = {"type": "records", "file": str(tmp_path / "r.jsonl"), "folder": str(tmp_path / "files")}
    _as_from_a_folder(inside, tmp_path, origin, complete=False)


def test_an_attachment_is_as_narrow_as_its_mail_was_made_by_hand_whatever_the_origin_says(
    inside: Desk, tmp_path: Path
) -> None:
    mails = tmp_path / "files"
    mails.mkdir()
    line = {"id": "plan.eml", "path": "plan.eml", "access": {"visibility": "tenant"}}
    stream = [{"refdesk": "records", "version": 1, "sync": "full"}, line, {"end": True, "count": 1}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, stream)))
    origin = {"type": "records", "file": str(tmp_path / "r.jsonl"), "folder": str(mails)}

    def hit_count(*asker: str) -> int:
        return len(inside.hits("plan", *asker, "--mode", "sparse"))

    (mails / "plan.eml").write_bytes(mail(plan_md=b"# The plan\n\nThe plan."))
    _sync(inside, tmp_path, origin)
    assert hit_count("--user", "bob") == 2
    inside.run("access", "set", "origin:in/plan.eml", "--visibility", "restricted", "--allow", "group:hr")
    (mails / "plan.eml").write_bytes(
        mail(plan_md=b"# The plan\n\nThe plan.", more_md=b"# More\n\nA plan, too.")
    )
    _sync(inside, tmp_path, origin)
    assert (hit_count("--user", "bob"), hit_count("--group", "hr")) == (0, 3)
    _sync(inside, tmp_path, origin)  # when nothing of it is new any more
    assert (hit_count("--user", "bob"), hit_count("--group", "hr")) == (0, 3)


def _reply(data: bytes, kind: str) -> Callable[[Any], tuple[int, dict[str, str], bytes]]:
    """A reply with an ETag, and with this type unless it is empty."""
    etag = {"ETag": f'"{len(data)}"'} | ({"Content-Type": kind} if kind else {})

    def answer(headers: Any) -> tuple[int, dict[str, str], bytes]:  # noqa: ANN401 what a request has
        return (304, etag, b"") if headers["If-None-Match"] == etag["ETag"] else (200, etag, data)

    return answer


def _sync(
    desk: Desk, folder: Path, origin: Mapping[str, object], *, archives: bool = True, code: int = 0
) -> Any:  # noqa: ANN401 any JSON
    config = folder / "config.toml"
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in origin.items())
    config.write_text(f"[ingest]\narchives = {json.dumps(archives)}\n[origins.in]\n{lines}")
    return desk.json("sync", "--config", config, code=code)["origins"]["in"]


def _as_from_a_folder(
    desk: Desk,
    folder: Path,
    origin: Mapping[str, object],
    stored: set[str] = STORED,
    *,
    complete: bool = True,
) -> None:
    """Archives are read only if that is set; switched off later, what is stored of them stays."""
    code = 0 if complete else 3
    _sync(desk, folder, origin, archives=False, code=code)
    outside = {name for name in stored if ".zip/" not in name and ".tgz/" not in name}
    assert {*desk.paths()} == outside
    report = _sync(desk, folder, origin, code=code)
    assert ({*desk.paths()}, report["counts"]["unchanged"]) == (stored, len(outside))
    report = _sync(desk, folder, origin, code=code)
    assert (report["counts"]["unchanged"], [*report["notes"]]) == (len(stored), [])
    report = _sync(desk, folder, origin, archives=False, code=code)
    assert {*desk.paths()} == stored
    assert any("Add --archives" in note for note in report["notes"])
    assert _sync(desk, folder, origin, code=code)["counts"]["unchanged"] == len(stored)
