# ruff: noqa: ASYNC240 nothing else runs
"""A page of a PDF as a picture: for those who may read the passage, and only as it was ingested."""

from __future__ import annotations

import os
import zipfile
from typing import TYPE_CHECKING

import pytest

from rag.config.settings import IngestSettings
from rag.corpus import Access, Principal
from rag.errors import InvalidRequestError, NotFoundError
from rag.originals import ELSEWHERE, GONE, LARGE, OTHER
from rag.search.page_picture import NO_PAGES, may_have_pages
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from pathlib import Path

    from rag.answers import Hit
    from rag.search.page_picture import Page
    from tests.search.conftest import Shelf

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ME = Principal("default", "ann")
TEXT = "The pendulum clock was invented by Huygens"
ADDRESS = "ann@pendulum-works.nl"


def pdf(*lines: str) -> bytes:
    """A PDF with a line on each of its pages; pdfium finds its objects without a table."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(lines)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Kids[{kids}]/Count {len(lines)}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for at, line in enumerate(lines):
        content = f"BT /F 20 Tf 50 700 Td ({line}) Tj ET"
        fonts = "/Resources<</Font<</F 3 0 R>>>>"
        objects += [
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents {5 + 2 * at} 0 R{fonts}>>",
            f"<</Length {len(content)}>>stream\n{content}\nendstream",
        ]
    written = "".join(f"{at} 0 obj\n{one}\nendobj\n" for at, one in enumerate(objects, 1))
    return f"%PDF-1.7\n{written}trailer\n<</Size {len(objects) + 1}/Root 1 0 R>>\n%%EOF\n".encode()


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    (tmp_path / "papers").mkdir()
    path = tmp_path / "papers" / "clocks & more.pdf"
    path.write_bytes(pdf(TEXT, "The second page is about leap seconds and the moon"))
    return path


async def found(shelf: Shelf, query: str = "pendulum") -> Hit:
    answer = await shelf.search(query)
    return answer.hits[0]


async def seen(shelf: Shelf, hit: Hit, number: int | None = None, principal: Principal = ME) -> Page:
    return await shelf.desk().page(principal, hit.chunk.id, number)


async def why_not(shelf: Shelf, hit: Hit, number: int | None = None) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        await seen(shelf, hit, number)
    assert str(caught.value).startswith("There is no picture of this page: ")
    return str(caught.value).partition(": ")[2]


async def test_the_page_of_a_passage_is_shown_with_the_passage_marked(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await found(shelf)
    page = await seen(shelf, hit)
    assert may_have_pages(hit.source)
    assert (page.number, page.picture.pages, len(page.picture.marks)) == (1, 2, 1)
    other = await seen(shelf, hit, 2)
    assert other.number == 2
    assert other.picture.png != page.picture.png
    assert "can't be drawn" in await why_not(shelf, hit, 3)


async def test_only_who_may_read_the_passage_sees_its_page(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await found(shelf)
    bob = Principal("default", "bob")
    assert await seen(shelf, hit, principal=bob)
    await shelf.small.recorded(shelf.data, hit.source.id, Access("restricted", frozenset({"user:ann"})))
    for stranger in (bob, Principal("default"), Principal("other", "ann")):
        with pytest.raises(Exception, match=r"Nothing|tenant") as caught:
            await seen(shelf, hit, principal=stranger)
        assert not isinstance(caught.value, InvalidRequestError)
    with pytest.raises(NotFoundError) as unknown:
        await shelf.desk().page(bob, f"{'a' * 16}/0")
    with pytest.raises(NotFoundError) as hidden:
        await seen(shelf, hit, principal=bob)
    assert str(hidden.value) == str(unknown.value)
    assert await seen(shelf, hit, principal=ME)


async def test_a_file_that_changed_is_not_shown(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await found(shelf)
    kept, state = paper.read_bytes(), paper.stat()
    paper.write_bytes(pdf("The pendulum clock was a secret of Huygens", "The second page is about the moon"))
    os.utime(paper, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert await why_not(shelf, hit) == OTHER
    paper.write_bytes(kept)
    assert await seen(shelf, hit)


async def test_a_file_that_went_is_not_shown(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await found(shelf)
    kept = paper.rename(paper.with_name("kept"))
    assert await why_not(shelf, hit) == GONE
    paper.mkdir()
    assert await why_not(shelf, hit) == GONE
    paper.rmdir()
    kept.rename(paper)
    assert await seen(shelf, hit)


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
async def test_a_link_or_a_pipe_in_its_place_is_not_followed(
    shelf: Shelf, paper: Path, tmp_path: Path
) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await found(shelf)
    kept = paper.rename(tmp_path / "kept")
    paper.symlink_to(kept)
    assert await why_not(shelf, hit) == GONE
    paper.unlink()
    os.mkfifo(paper)
    assert await why_not(shelf, hit) == GONE
    paper.unlink()
    kept.rename(paper)
    assert await seen(shelf, hit)


async def test_a_file_with_a_sidecar_is_shown_until_that_changes(shelf: Shelf, paper: Path) -> None:
    sidecar = paper.with_name(f"{paper.name}.meta.toml")
    sidecar.write_text('title = "Clocks"\n')
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await found(shelf)
    assert hit.source.title == "Clocks"
    assert await seen(shelf, hit)
    sidecar.write_text('title = "Clocks"\nallow = "user:bob"\n')
    assert await why_not(shelf, hit) == OTHER
    sidecar.unlink()
    assert await why_not(shelf, hit) == OTHER


async def test_where_values_are_masked_no_page_shows_them(shelf: Shelf, tmp_path: Path) -> None:
    """The picture would show the address that the text has lost. Without the policy, it is shown."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.pdf").write_bytes(pdf(f"Write to {ADDRESS} on the pendulum"))
    identity = shelf.small.BagOfWords().identity
    await ensure_collection(shelf.data, "default", "masked", identity, personal_data={"email": "redact"})
    for name in ("masked", "open"):
        await shelf.small.ingested(shelf.data, tmp_path / "letters", collection=name)
    hits = {hit.source.collection: hit for hit in (await shelf.search("pendulum")).hits}
    assert ADDRESS not in hits["masked"].text
    assert await why_not(shelf, hits["masked"]) == OTHER
    assert ADDRESS in hits["open"].text
    assert await seen(shelf, hits["open"])


async def test_a_member_of_an_archive_is_not_shown(shelf: Shelf, paper: Path) -> None:
    with zipfile.ZipFile(paper.parent / "all.zip", "w") as archive:
        archive.write(paper, "inside.pdf")
    paper.unlink()
    await shelf.small.ingested(shelf.data, paper.parent, settings=IngestSettings(archives=True))
    hit = await found(shelf)
    assert not may_have_pages(hit.source)
    assert await why_not(shelf, hit) == ELSEWHERE


async def test_a_document_without_pages_is_not_shown(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text(f"# Clocks\n\n{TEXT}\n")
    await shelf.small.ingested(shelf.data, tmp_path / "note.md")
    hit = await found(shelf)
    assert not may_have_pages(hit.source)
    assert await why_not(shelf, hit) == NO_PAGES
    await shelf.put("odd", TEXT, collection="odd", mime_type="application/pdf")
    odd = next(one for one in (await shelf.search("pendulum")).hits if one.source.collection == "odd")
    assert await why_not(shelf, odd, 1) == ELSEWHERE


async def test_a_large_file_is_not_shown(shelf: Shelf, paper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await found(shelf)
    size = paper.stat().st_size
    monkeypatch.setattr("rag.originals.FILE_BYTES", size - 1)
    assert await why_not(shelf, hit) == LARGE
    monkeypatch.setattr("rag.originals.FILE_BYTES", size)
    assert await seen(shelf, hit)


async def test_of_a_source_its_first_page_is_shown(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await found(shelf, "leap seconds")
    assert (await seen(shelf, hit)).number == 2
    assert (await shelf.desk().page(ME, hit.source.id)).number == 1
