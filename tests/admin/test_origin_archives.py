"""Archives and files without suffix from origins that are no folders: as from folders."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.origins.test_git import commit, git
from tests.ingest.origins.test_s3 import Bucket
from tests.ingest.shelf import mail, zipped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.endpoint import Site

pytestmark = pytest.mark.slow

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
    given = {"type": "s3", "bucket": "archive", "endpoint": site.url, "prefix": "r", "region": "eu-x"}
    _as_from_a_folder(inside, tmp_path, given)
    site.paths.clear()
    assert _sync(inside, tmp_path, given)["counts"]["unchanged"] == len(STORED)
    assert not [path for path in site.paths if "list-type" not in path]  # what is no document neither
    bucket.objects["r/papers.zip"] = zipped({"in/a.md": b"# A\n\nThe pendulum of 1656."})
    site.paths.clear()
    assert _sync(inside, tmp_path, given)["counts"]["replaced"] == 1
    assert [path for path in site.paths if "list-type" not in path] == ["/archive/r/papers.zip"]
    inside.run("access", "set", "origin:in/plan.eml", "--visibility", "restricted", "--allow", "group:hr")
    bucket.objects["r/plan.eml"] = mail(plan_md=b"# The plan\n\nThe plan.", more_md=b"# More\n\nA plan, too.")
    _sync(inside, tmp_path, given)
    assert inside.json("search", "plan", "--user", "bob", "--mode", "sparse")["results"] == []
    assert len(inside.json("search", "plan", "--group", "hr", "--mode", "sparse")["results"]) == 3
    del bucket.objects["r/papers.zip"]
    assert _sync(inside, tmp_path, given)["counts"]["removed"] == 1


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
    given = {"type": "web", "urls": [f"{site.url}/"], "depth": 1, "delay_seconds": 0}
    given |= {"private_networks": ["127.0.0.0/8"]}
    host = site.url.removeprefix("http://")
    stored = {f"{host}/{name}" for name in (*STORED, "more.tgz/c.md", "index")}
    _as_from_a_folder(inside, tmp_path, given, stored)
    assert _sync(inside, tmp_path, given)["counts"]["unchanged"] == len(stored)


def test_from_records_with_files(inside: Desk, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    for name, data in FILES.items():
        (tmp_path / "files" / name).write_bytes(data)
    lines: list[dict[str, object]] = [{"refdesk": "records", "version": 1, "sync": "full"}]
    lines += [{"id": name, "path": name, "access": {"visibility": "tenant"}} for name in FILES]
    lines += [{"end": True, "count": len(FILES)}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    given = {"type": "records", "file": str(tmp_path / "r.jsonl"), "folder": str(tmp_path / "files")}
    _as_from_a_folder(inside, tmp_path, given, complete=False)


def test_an_attachment_is_as_narrow_as_its_mail_was_made_by_hand_whatever_the_origin_says(
    inside: Desk, tmp_path: Path
) -> None:
    mails = tmp_path / "files"
    mails.mkdir()
    line = {"id": "plan.eml", "path": "plan.eml", "access": {"visibility": "tenant"}}
    stream = [{"refdesk": "records", "version": 1, "sync": "full"}, line, {"end": True, "count": 1}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, stream)))
    origin = {"type": "records", "file": str(tmp_path / "r.jsonl"), "folder": str(mails)}

    def seen(*asker: str) -> int:
        return len(inside.json("search", "plan", *asker, "--mode", "sparse")["results"])

    (mails / "plan.eml").write_bytes(mail(plan_md=b"# The plan\n\nThe plan."))
    _sync(inside, tmp_path, origin)
    assert seen("--user", "bob") == 2
    inside.run("access", "set", "origin:in/plan.eml", "--visibility", "restricted", "--allow", "group:hr")
    (mails / "plan.eml").write_bytes(
        mail(plan_md=b"# The plan\n\nThe plan.", more_md=b"# More\n\nA plan, too.")
    )
    _sync(inside, tmp_path, origin)
    assert (seen("--user", "bob"), seen("--group", "hr")) == (0, 3)
    _sync(inside, tmp_path, origin)  # when nothing of it is new any more
    assert (seen("--user", "bob"), seen("--group", "hr")) == (0, 3)


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
    assert any("with stored documents not opened" in note for note in report["notes"])
    assert _sync(desk, folder, origin, code=code)["counts"]["unchanged"] == len(stored)
