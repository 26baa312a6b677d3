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
def stocked(shelf: Shelf) -> Shelf:
    """A shelf with an archive and two mails."""
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


async def test_an_unchanged_container_is_read_and_not_opened(stocked: Shelf, opened: list[str]) -> None:
    first = await stocked.ingest()
    assert sorted(opened) == ["a.eml", "e.eml", "f.eml", "x.zip"]
    opened.clear()
    records = dict(stocked.records)
    second = await stocked.ingest()
    assert not opened
    assert (second.counts["unchanged"], stocked.records) == (6, records)
    told = lines(first, "ignored")
    assert lines(second, "ignored") == told
    assert {path.rpartition("/")[2] for path, *_ in told} == {"x.zip", "c.bin", "d.txt"}
    (stocked.folder / "f.eml").touch()
    stocked.write("e.eml", mail("Another.", more_md=b"# More\n\nmuch more"))
    third = await stocked.ingest()
    assert opened == ["e.eml"]
    assert (third.counts["replaced"], third.counts["unchanged"]) == (2, 4)
    stocked.write("x.zip", zipped({"b.md": b"# B\n\nb"}))
    assert (await stocked.ingest()).counts["removed"] == 2
    opened.clear()
    assert (await stocked.ingest()).counts["unchanged"] == 4
    assert not opened
    (stocked.folder / "x.zip").unlink()
    assert (await stocked.ingest()).counts["removed"] == 1


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
    stocked: Shelf, opened: list[str], settings: dict[str, object], gone: set[str]
) -> None:
    await stocked.ingest()
    opened.clear()
    before = {*stocked.records}
    await stocked.ingest(None, None, **settings)
    assert "x.zip" in opened
    assert before - stocked.records.keys() == gone


async def test_archives_that_are_not_opened_any_more_keep_what_is_stored(stocked: Shelf) -> None:
    await stocked.ingest()
    before = dict(stocked.records)
    report = await stocked.ingest(archives=False)
    assert stocked.records == before
    assert any("1 archive with stored documents not opened" in note for note in report.notes)
    assert not (await stocked.ingest()).notes  # the control


async def test_rights_reach_the_parts_of_what_is_not_opened(stocked: Shelf, opened: list[str]) -> None:
    await stocked.ingest()
    opened.clear()
    await stocked.set_access("e.eml", ONLY_HR)
    await stocked.ingest()
    assert not opened
    assert (stocked.records["e.eml/more.md"], stocked.records["x.zip/b.md"]) == (HR, OPEN)
    await stocked.set_access("x.zip/june/a.eml", ONLY_HR)
    await stocked.ingest()
    assert not opened
    assert (stocked.records["x.zip/june/a.eml/plan.md"], stocked.records["x.zip/b.md"]) == (HR, OPEN)
    await stocked.ingest(Rights("tenant", RequestedAccess("restricted", allow=("group:it",)), set_access=True))
    assert set(stocked.records.values()) == {"restricted to group:it"}


async def test_documents_that_may_request_access_now_are_asked(stocked: Shelf) -> None:
    asking = b"---\nallow: [group:hr]\n---\n# Wages\n\nwages"
    stocked.write("w.zip", zipped({"w.md": asking, "o.md": b"# Open\n\nopen"}))
    await stocked.ingest()
    assert stocked.records["w.zip/w.md"] == OPEN
    await stocked.ingest(Rights("tenant", of_documents=True))
    assert (stocked.records["w.zip/w.md"], stocked.records["w.zip/o.md"]) == (HR, OPEN)


async def test_a_sidecar_beside_a_container_counts_at_once(stocked: Shelf) -> None:
    rights = Rights("tenant", of_documents=True)
    await stocked.ingest(rights)
    stocked.write("x.zip.meta.toml", b'allow = ["group:hr"]\n')
    await stocked.ingest(rights)
    assert {stocked.records["x.zip/b.md"], stocked.records["x.zip/june/a.eml/plan.md"]} == {HR}
    assert stocked.records["e.eml"] == OPEN


async def test_what_is_not_stored_any_more_is_taken_out_again(stocked: Shelf, opened: list[str]) -> None:
    await stocked.ingest()
    opened.clear()
    async with await stocked.desk.writing(stocked.data) as writer:
        await writer.remove([stocked.ids["x.zip/b.md"]])
    await stocked.ingest()
    assert ("x.zip" in opened, "e.eml" in opened) == (True, False)
    assert "x.zip/b.md" in stocked.records


async def test_a_part_that_fails_is_tried_again(stocked: Shelf, opened: list[str]) -> None:
    stocked.write("g.zip", zipped({"a.md": b"# A\n\na", "b.docx": b"PK no document"}))
    for _ in range(2):
        opened.clear()
        assert not (await stocked.ingest()).complete
        assert opened.count("g.zip") == 1


@pytest.mark.parametrize("noted", [b"", b"[]", b'{"version": 1}', b'{"version": 1, "containers": {"x": 3}}'])
async def test_without_readable_notes_everything_is_opened(
    stocked: Shelf, opened: list[str], noted: bytes
) -> None:
    await stocked.ingest()
    (file,) = stocked.data.rglob(FILE)
    file.write_bytes(noted)
    opened.clear()
    assert (await stocked.ingest()).counts["unchanged"] == 6
    assert sorted(opened) == ["a.eml", "e.eml", "f.eml", "x.zip"]
