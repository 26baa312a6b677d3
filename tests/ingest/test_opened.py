"""Containers that did not change aren't opened again, and yet all that changed around them counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.corpus import Access
from rag.ingest import containers
from rag.ingest.container_cache import FILE
from rag.ingest.rights.requested_rights import RequestedAccess, Rights
from rag.ingest.sandbox import parser_pool
from tests.ingest.shelf import Shelf, mail, zipped

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from rag.ingest.report import Report

pytestmark = pytest.mark.anyio
OPEN, HR = "open to the tenant", "restricted to group:hr"
ONLY_HR = Access("restricted", frozenset({"group:hr"}), revision=1)


@pytest.fixture
def shelf(small_desk: ModuleType, tmp_path: Path) -> Shelf:
    (tmp_path / "docs").mkdir()
    shelf = Shelf(small_desk, tmp_path / "docs", tmp_path / "data")
    plan = mail(plan_md=b"# The plan\n\nThe pendulum.\n")
    shelf.write("x.zip", zipped({"june/a.eml": plan, "b.md": b"# B\n\nb", "c.bin": b"\0", "d.txt": b""}))
    shelf.write("e.eml", mail("Another.", more_md=b"# More\n\nmore"))
    shelf.write("f.eml", mail("Alone."))
    return shelf


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the containers that were opened."""
    names: list[str] = []
    real = parser_pool.members_safely

    async def noted(data: bytes, name: str, *rest: object, **more: object) -> None:
        names.append(name)
        await real(data, name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(containers, "members_safely", noted)
    return names


def lines(report: Report, *kinds: str) -> list[tuple[str, str, str, str]]:
    return sorted(
        (one.path, one.outcome, one.reason, one.kind) for one in report.outcomes if one.outcome in kinds
    )


async def test_an_unchanged_container_is_read_and_not_opened(shelf: Shelf, opened: list[str]) -> None:
    first = await shelf.ingest()
    assert sorted(opened) == ["a.eml", "e.eml", "f.eml", "x.zip"]
    opened.clear()
    records = dict(shelf.records)
    second = await shelf.ingest()
    assert not opened
    assert (second.counts["unchanged"], shelf.records) == (6, records)
    told = lines(first, "ignored")
    assert lines(second, "ignored") == told
    assert {path.rpartition("/")[2] for path, *_ in told} == {"x.zip", "c.bin", "d.txt"}
    (shelf.folder / "f.eml").touch()
    shelf.write("e.eml", mail("Another.", more_md=b"# More\n\nmuch more"))
    third = await shelf.ingest()
    assert opened == ["e.eml"]
    assert (third.counts["replaced"], third.counts["unchanged"]) == (2, 4)
    shelf.write("x.zip", zipped({"b.md": b"# B\n\nb"}))
    assert (await shelf.ingest()).counts["removed"] == 2
    opened.clear()
    assert (await shelf.ingest()).counts["unchanged"] == 4
    assert not opened
    (shelf.folder / "x.zip").unlink()
    assert (await shelf.ingest()).counts["removed"] == 1


@pytest.mark.parametrize(
    ("settings", "gone"),
    [
        ({"exclude": ("b.md",)}, {"x.zip/b.md"}),
        ({"exclude": ("*.eml",)}, {"x.zip/june/a.eml", "x.zip/june/a.eml/plan.md"}),
        ({"hidden": True}, set()),
        ({"max_file_bytes": 10_000}, set()),
    ],
)
async def test_other_settings_open_it_anew(
    shelf: Shelf, opened: list[str], settings: dict[str, object], gone: set[str]
) -> None:
    await shelf.ingest()
    opened.clear()
    before = {*shelf.records}
    await shelf.ingest(None, None, **settings)
    assert "x.zip" in opened
    assert before - shelf.records.keys() == gone


async def test_archives_that_are_not_opened_any_more_keep_what_is_stored(shelf: Shelf) -> None:
    await shelf.ingest()
    before = dict(shelf.records)
    report = await shelf.ingest(archives=False)
    assert shelf.records == before
    assert any("1 archive with stored documents not opened" in note for note in report.notes)
    assert not (await shelf.ingest()).notes  # the control


async def test_rights_reach_the_parts_of_what_is_not_opened(shelf: Shelf, opened: list[str]) -> None:
    await shelf.ingest()
    opened.clear()
    await shelf.set_access("e.eml", ONLY_HR)
    await shelf.ingest()
    assert not opened
    assert (shelf.records["e.eml/more.md"], shelf.records["x.zip/b.md"]) == (HR, OPEN)
    await shelf.set_access("x.zip/june/a.eml", ONLY_HR)
    await shelf.ingest()
    assert not opened
    assert (shelf.records["x.zip/june/a.eml/plan.md"], shelf.records["x.zip/b.md"]) == (HR, OPEN)
    await shelf.ingest(Rights("tenant", RequestedAccess("restricted", allow=("group:it",)), set_access=True))
    assert set(shelf.records.values()) == {"restricted to group:it"}


async def test_documents_that_may_request_access_now_are_asked(shelf: Shelf) -> None:
    asking = b"---\nallow: [group:hr]\n---\n# Wages\n\nwages"
    shelf.write("w.zip", zipped({"w.md": asking, "o.md": b"# Open\n\nopen"}))
    await shelf.ingest()
    assert shelf.records["w.zip/w.md"] == OPEN
    await shelf.ingest(Rights("tenant", of_documents=True))
    assert (shelf.records["w.zip/w.md"], shelf.records["w.zip/o.md"]) == (HR, OPEN)


async def test_a_sidecar_beside_a_container_counts_at_once(shelf: Shelf) -> None:
    rights = Rights("tenant", of_documents=True)
    await shelf.ingest(rights)
    shelf.write("x.zip.meta.toml", b'allow = ["group:hr"]\n')
    await shelf.ingest(rights)
    assert {shelf.records["x.zip/b.md"], shelf.records["x.zip/june/a.eml/plan.md"]} == {HR}
    assert shelf.records["e.eml"] == OPEN


async def test_what_is_not_stored_any_more_is_taken_out_again(shelf: Shelf, opened: list[str]) -> None:
    await shelf.ingest()
    opened.clear()
    async with await shelf.desk.writing(shelf.data) as writer:
        await writer.remove([shelf.ids["x.zip/b.md"]])
    await shelf.ingest()
    assert ("x.zip" in opened, "e.eml" in opened) == (True, False)
    assert "x.zip/b.md" in shelf.records


async def test_a_part_that_fails_is_tried_again(shelf: Shelf, opened: list[str]) -> None:
    shelf.write("g.zip", zipped({"a.md": b"# A\n\na", "b.docx": b"PK no document"}))
    for _ in range(2):
        opened.clear()
        assert not (await shelf.ingest()).complete
        assert opened.count("g.zip") == 1


@pytest.mark.parametrize("noted", [b"", b"[]", b'{"version": 1}', b'{"version": 1, "containers": {"x": 3}}'])
async def test_without_readable_notes_everything_is_opened(
    shelf: Shelf, opened: list[str], noted: bytes
) -> None:
    await shelf.ingest()
    (file,) = shelf.data.rglob(FILE)
    file.write_bytes(noted)
    opened.clear()
    assert (await shelf.ingest()).counts["unchanged"] == 6
    assert sorted(opened) == ["a.eml", "e.eml", "f.eml", "x.zip"]
