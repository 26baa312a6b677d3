"""Repositories over ssh, from a real sshd on loopback: with a key, with an agent, and with neither."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.admin.test_git_servers import synced
from tests.ingest.origins.test_git import commit, git

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

WHERE = os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin"
SECONDS = 60  # in which a daemon starts on a slow machine


@dataclass(frozen=True, slots=True)
class Server:
    """An sshd for this user, who is let in with `key`. Its host is known if that is in the file `known`."""

    port: int
    folder: Path
    repository: Path
    user: str

    @property
    def key(self) -> Path:
        return self.folder / "key"

    @property
    def known(self) -> Path:
        return self.folder / "known"

    @property
    def url(self) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}{self.repository}"

    def know(self, key: str = "host") -> None:
        """Note a key as that of the host."""
        public = (self.folder / f"{key}.pub").read_text()
        self.known.write_text(f"[127.0.0.1]:{self.port} {public}")

    def settle(self, monkeypatch: pytest.MonkeyPatch, *more: str) -> None:
        """What a user of ssh has in ~/.ssh/config, which is found by the account and not by HOME."""
        lines = (f"UserKnownHostsFile {self.known}", "GlobalKnownHostsFile none", "IdentitiesOnly no", *more)
        (self.folder / "config").write_text("\n".join(lines) + "\n")
        monkeypatch.setenv("GIT_SSH_COMMAND", f"ssh -F {self.folder / 'config'}")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Skips, with the reason, where no sshd runs."""
    sshd, keygen = shutil.which("sshd", path=WHERE), shutil.which("ssh-keygen")
    if not (sshd and keygen and shutil.which("ssh")):
        pytest.skip("OpenSSH's client and server aren't both installed (apt-get install openssh-server)")
    for name in ("host", "other", "key"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    shutil.copy(tmp_path / "key.pub", tmp_path / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
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
        yield Server(port, tmp_path, _repository(tmp_path), pwd.getpwuid(os.getuid()).pw_name)
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
    inside: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.know()
    server.settle(monkeypatch, f"IdentityFile {server.key}", f"Port {server.port}")
    assert "added" in synced(inside, server.folder, server.url).stdout
    short = f"{server.user}@127.0.0.1:{server.repository}"
    assert "unchanged" in synced(inside, server.folder, short).stdout
    assert [one["title"] for one in inside.json("search", "pendulum")["results"]] == ["Clock"]


def test_a_key_of_the_agent_is_used_and_without_it_the_user_is_told(
    inside: Desk, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.know()
    server.settle(monkeypatch, "IdentityFile none")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    told = synced(inside, server.folder, server.url, 1).stderr
    assert "the host accepts none of your keys" in told
    assert f"ssh -T -p {server.port} {server.user}@127.0.0.1" in told
    told_by_agent = subprocess.run(["ssh-agent", "-s"], capture_output=True, text=True, check=True).stdout
    given = dict(one.split(";")[0].split("=") for one in told_by_agent.splitlines() if "=" in one)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", given["SSH_AUTH_SOCK"])
        subprocess.run(["ssh-add", "-q", server.key], check=True)
        assert "added" in synced(inside, server.folder, server.url).stdout
    finally:
        os.kill(int(given["SSH_AGENT_PID"]), 15)


@pytest.mark.parametrize("asking", ["ask", "accept-new"])
def test_a_host_whose_key_is_another_one_is_refused(
    inside: Desk, server: Server, monkeypatch: pytest.MonkeyPatch, asking: str
) -> None:
    server.know("other")
    server.settle(monkeypatch, f"IdentityFile {server.key}", f"StrictHostKeyChecking {asking}")
    told = synced(inside, server.folder, server.url, 1).stderr
    assert "the key of 127.0.0.1 is another one than the one that is known" in told
    assert f"ssh-keygen -R '[127.0.0.1]:{server.port}'" in told
    server.know()
    assert "added" in synced(inside, server.folder, server.url).stdout  # the control


@pytest.mark.parametrize("given", ["", "ssh"])
def test_a_host_that_is_not_known_is_refused_and_nobody_is_asked(
    inside: Desk, server: Server, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """With the usual command of ssh and with one of the user's, which could ask."""
    if given:
        server.settle(monkeypatch, f"IdentityFile {server.key}", "StrictHostKeyChecking ask")
    else:
        monkeypatch.delenv("GIT_SSH_COMMAND", raising=False)
    asked = server.folder / "asked"
    helper = server.folder / "askpass"
    helper.write_text(f"#!/bin/sh\ntouch {asked}\necho yes\n")
    helper.chmod(0o700)
    for name, value in (("SSH_ASKPASS", str(helper)), ("DISPLAY", ":0"), ("SSH_ASKPASS_REQUIRE", "force")):
        monkeypatch.setenv(name, value)
    told = synced(inside, server.folder, server.url, 1).stderr
    assert "the key of 127.0.0.1 is not known to ssh" in told
    assert f"run ssh -T -p {server.port} {server.user}@127.0.0.1 once" in told
    assert not asked.exists()
    assert not server.known.exists()
