"""Documents that expire: nobody finds them from that moment on, and the next run removes them."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import pytest

import rag
from rag.answers import Answer
from rag.errors import RefdeskError
from rag.originals import Clock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

LATER = datetime.now(UTC) + timedelta(days=100)


@dataclass(frozen=True, slots=True)
class Archive:
    """A data folder, and a folder of letters."""

    desk: Desk
    folder: Path
    monkeypatch: pytest.MonkeyPatch

    def write(self, name: str, expires: str = "", **metadata: str) -> None:
        entries = metadata | ({"expires": expires} if expires else {})
        front = "".join(f"{key}: {value}\n" for key, value in entries.items())
        (self.folder / name).write_text(f"---\n{front}---\n# {name}\n\nThe pendulum of {name}.\n")

    def ingest(self, code: int = 0) -> dict[str, str]:
        printed = self.desk.json("ingest", self.folder, code=code)
        return {one["path"].rpartition("/")[2]: one["outcome"] for one in printed["files"]}

    def at(self, moment: datetime) -> None:
        """Let searches think that it is this time."""
        self.monkeypatch.setattr(Clock, "now", lambda _clock: moment)

    def found(self, *options: str) -> list[str]:
        hits: list[dict[str, Any]] = self.desk.json("search", "pendulum", *options)["results"]
        return sorted(f"{hit['title']}.md" for hit in hits)


@pytest.fixture
def archive(inside: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    folder = tmp_path / "letters"
    folder.mkdir()
    return Archive(inside, folder, monkeypatch)


@pytest.mark.parametrize("options", [()])
def test_a_document_is_found_until_the_moment_that_it_states_and_not_from_then_on(
    archive: Archive, options: tuple[str, ...]
) -> None:
    archive.write("a.md", LATER.isoformat())
    archive.write("b.md")
    archive.ingest()
    archive.at(LATER - timedelta(microseconds=1))
    assert archive.found(*options) == ["a.md", "b.md"]
    archive.at(LATER)
    assert archive.found(*options) == ["b.md"]


def test_an_expiry_that_is_no_date_is_told_with_its_value_and_what_became_of_the_document(
    archive: Archive,
) -> None:
    archive.write("a.md", "next summer")
    archive.write("b.md", LATER.isoformat())
    archive.ingest(code=3)
    archive.write("b.md", "2027-13-45")
    run = archive.desk.run("ingest", archive.folder, code=1)
    assert "Failed: 2 unclear expiry (1 as before" in run.stdout
    for name, value in (("a.md", "next summer"), ("b.md", "2027-13-45")):
        said = f"its metadata has expires: {value!r}, which is no date like 2027-03-31 or"
        assert f"skipped   {archive.folder / name}: {said}" in run.stderr
    assert run.stderr.count("it isn't stored") == 2
    assert run.stderr.count("; the earlier version stays\n") == 1
    assert archive.found() == ["b.md"]


def test_days_apply_at_once_to_what_is_stored_and_can_be_taken_back(archive: Archive) -> None:
    archive.write("old.md", date="2020-01-01")
    archive.write("new.md", date=f"{datetime.now(UTC):%Y-%m-%d}")
    archive.ingest()
    archive.desk.run("collection", "set", "documents", "--keep-days", "365")
    assert archive.found() == ["new.md"]
    archive.desk.run("collection", "set", "documents", "--keep-days", "0")
    assert archive.found() == ["new.md", "old.md"]


def test_the_next_run_removes_what_has_expired_wherever_it_is_from(archive: Archive, tmp_path: Path) -> None:
    archive.write("old.md", date="2020-01-01")
    archive.write("new.md")
    archive.ingest()
    archive.desk.run("collection", "set", "documents", "--keep-days", "365")
    other = tmp_path / "other"
    other.mkdir()
    printed = archive.desk.json("ingest", other)
    assert [(one["outcome"], one["kind"]) for one in printed["files"]] == [("removed", "expired")]
    assert "1 document expired: 1 removed, the others not stored." in printed["notes"]
    assert archive.desk.paths() == ["new.md"]
    assert archive.ingest() == {"old.md": "ignored", "new.md": "unchanged"}
    archive.write("old.md", date=f"{datetime.now(UTC):%Y-%m-%d}")
    assert archive.ingest()["old.md"] == "added"


def test_an_unchanged_and_a_renewed_file_of_an_expired_source(archive: Archive) -> None:
    for name in ("kept.md", "renewed.md"):
        archive.write(name, date="2020-01-01")
    archive.ingest()
    archive.desk.run("collection", "set", "documents", "--keep-days", "365")
    archive.write("renewed.md", date=f"{datetime.now(UTC):%Y-%m-%d}")
    assert archive.ingest() == {"kept.md": "removed", "renewed.md": "replaced"}
    assert archive.found() == ["renewed.md"]


def test_a_date_that_nobody_understands_keeps_the_document_out_and_fails_the_run(archive: Archive) -> None:
    archive.write("a.md", "in three weeks")
    archive.write("b.md")
    assert archive.ingest(code=3) == {"a.md": "skipped", "b.md": "added"}


def test_the_parts_of_a_file_expire_with_it(archive: Archive, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[ingest]\narchives = true\n")
    with zipfile.ZipFile(archive.folder / "letters.zip", "w") as packed:
        packed.writestr("soon.md", f"---\nexpires: {LATER:%Y-%m-%d}\n---\n# soon\n\nA pendulum.\n")
        packed.writestr("later.md", "# later\n\nA pendulum.\n")
    (archive.folder / "letters.zip.meta.toml").write_text(f"expires = {LATER + timedelta(days=9):%Y-%m-%d}\n")
    archive.desk.run("ingest", archive.folder, "--config", config)
    archive.at(LATER + timedelta(days=1))
    assert archive.found() == ["later.md"]
    archive.at(LATER + timedelta(days=10))
    assert archive.found() == []


async def _seen(data: Path, id_: str) -> list[object]:
    """What a caller gets at every door, for a document of this id."""
    me, got = rag.Principal("default"), list[object]()
    async with rag.Desk.open(rag.Settings(data=data)) as desk:
        asking: list[Callable[[], Awaitable[object]]] = [
            partial(desk.collections, me),
            partial(desk.overview, me),
            partial(desk.sources_beginning_with, me, "a.md"),
            partial(desk.sources, me, after=("", ""), limit=9),
            partial(desk.extract, me, id_, max_chars=100),
            partial(desk.extract, me, f"{id_}/0", max_chars=100),
            partial(desk.at, me, "documents/a.md"),
            partial(desk.listing, me, "documents"),
            partial(desk.search, me, rag.SearchRequest("pendulum", mode="sparse")),
        ]
        for ask in asking:
            try:
                answer = await ask()
            except RefdeskError as error:
                got.append((type(error), str(error)))
            else:
                got.append([one.source.id for one in answer.hits] if isinstance(answer, Answer) else answer)
    return got


@pytest.mark.parametrize("others", [(), ("b.md",)])
def test_who_asks_cannot_tell_an_expired_document_from_one_that_was_removed(
    archive: Archive, others: tuple[str, ...]
) -> None:
    for name in ("a.md", *others):
        archive.write(name, LATER.isoformat() if name == "a.md" else "")
    archive.ingest()
    id_ = next(one["id"] for one in archive.desk.json("sources")["sources"] if one["title"] == "a")
    before = anyio.run(_seen, archive.desk.data, id_)
    archive.at(LATER)
    expired = anyio.run(_seen, archive.desk.data, id_)
    (archive.folder / "a.md").unlink()
    archive.ingest()
    removed = anyio.run(_seen, archive.desk.data, id_)
    assert expired == removed
    assert all(one != other for one, other in zip(before, removed, strict=True) if others == ())
