# ruff: noqa: ASYNC240 nothing else runs
"""A page of a PDF as a picture: for those who may read the passage, and only as it was ingested."""

from __future__ import annotations

import os
import zipfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from rag.answers import Hit, Part
from rag.config.settings import IngestSettings
from rag.corpus import Access, Principal
from rag.errors import InvalidRequestError, NotFoundError
from rag.originals import ELSEWHERE, GONE, LARGE, OTHER, SCANNED, digest_of
from rag.search.page_picture import NO_DECODER, NO_PAGES, Page, may_have_pages
from rag.store.write.change_collection import change_collection
from rag.store.write.make_collection import ensure_collection
from tests.pdfs import pdf
from tests.search.conftest import Shelf

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

ME = Principal("default", "ann")
TEXT = "The pendulum clock was invented by Huygens, who had the drawings made at The Hague"
ADDRESS = "ann@pendulum-works.nl"


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    (tmp_path / "papers").mkdir()
    path = tmp_path / "papers" / "clocks & more.pdf"
    path.write_bytes(pdf(TEXT, "The second page is about leap seconds and the moon"))
    return path


async def hit_of(shelf: Shelf, query: str = "pendulum") -> Hit:
    answer = await shelf.search(query)
    return answer.hits[0]


async def page_of(shelf: Shelf, hit: Hit, number: int | None = None, principal: Principal = ME) -> Page:
    return await shelf.desk().page(principal, hit.chunk.id, number)


async def why_not(shelf: Shelf, hit: Hit, number: int | None = None) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        await page_of(shelf, hit, number)
    assert str(caught.value).startswith("There is no picture of this page: ")
    return str(caught.value).partition(": ")[2]


async def test_the_page_of_a_passage_is_shown_with_the_passage_marked(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await hit_of(shelf)
    page = await page_of(shelf, hit)
    assert may_have_pages(hit.source)
    assert (page.number, page.picture.pages, len(page.picture.marks)) == (1, 2, 1)
    second = await page_of(shelf, hit, 2)
    assert second.number == 2
    assert second.picture.png != page.picture.png
    assert "can't be drawn" in await why_not(shelf, hit, 3)


async def test_only_who_may_read_the_passage_sees_its_page(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await hit_of(shelf)
    bob = Principal("default", "bob")
    assert await page_of(shelf, hit, principal=bob)
    await shelf.small.recorded(shelf.data, hit.source.id, Access("restricted", frozenset({"user:ann"})))
    for stranger in (bob, Principal("default"), Principal("other", "ann")):
        with pytest.raises(Exception, match=r"Nothing|tenant") as caught:
            await page_of(shelf, hit, principal=stranger)
        assert not isinstance(caught.value, InvalidRequestError)
    with pytest.raises(NotFoundError) as unknown:
        await shelf.desk().page(bob, f"{'a' * 16}/0")
    with pytest.raises(NotFoundError) as hidden:
        await page_of(shelf, hit, principal=bob)
    assert str(hidden.value) == str(unknown.value)
    assert await page_of(shelf, hit, principal=ME)


async def test_a_file_that_changed_is_not_shown(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await hit_of(shelf)
    content, state = paper.read_bytes(), paper.stat()
    paper.write_bytes(pdf("The pendulum clock was a secret of Huygens", "The second page is about the moon"))
    os.utime(paper, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert await why_not(shelf, hit) == OTHER
    paper.write_bytes(content)
    assert await page_of(shelf, hit)


async def test_a_file_that_went_is_not_shown(shelf: Shelf, paper: Path) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await hit_of(shelf)
    moved = paper.rename(paper.with_name("kept"))
    assert await why_not(shelf, hit) == GONE
    paper.mkdir()
    assert await why_not(shelf, hit) == GONE
    paper.rmdir()
    moved.rename(paper)
    assert await page_of(shelf, hit)


@pytest.mark.skipif(os.name == "nt", reason="links and pipes of POSIX")
async def test_a_link_or_a_pipe_in_its_place_is_not_followed(
    shelf: Shelf, paper: Path, tmp_path: Path
) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await hit_of(shelf)
    moved = paper.rename(tmp_path / "kept")
    paper.symlink_to(moved)
    assert await why_not(shelf, hit) == GONE
    paper.unlink()
    os.mkfifo(paper)
    assert await why_not(shelf, hit) == GONE
    paper.unlink()
    moved.rename(paper)
    assert await page_of(shelf, hit)


async def test_a_file_with_a_sidecar_is_shown_until_that_changes(shelf: Shelf, paper: Path) -> None:
    sidecar = paper.with_name(f"{paper.name}.meta.toml")
    sidecar.write_text('title = "Clocks"\n')
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await hit_of(shelf)
    assert hit.source.title == "Clocks"
    assert await page_of(shelf, hit)
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
    assert await page_of(shelf, hits["open"])


async def test_a_member_of_an_archive_is_not_shown(shelf: Shelf, paper: Path) -> None:
    with zipfile.ZipFile(paper.parent / "all.zip", "w") as archive:
        archive.write(paper, "inside.pdf")
    paper.unlink()
    await shelf.small.ingested(shelf.data, paper.parent, settings=IngestSettings(archives=True))
    hit = await hit_of(shelf)
    assert not may_have_pages(hit.source)
    assert await why_not(shelf, hit) == ELSEWHERE


async def test_a_document_without_pages_is_not_shown(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text(f"# Clocks\n\n{TEXT}\n")
    await shelf.small.ingested(shelf.data, tmp_path / "note.md")
    hit = await hit_of(shelf)
    assert not may_have_pages(hit.source)
    assert await why_not(shelf, hit) == NO_PAGES
    await shelf.put("odd", TEXT, collection="odd", mime_type="application/pdf")
    odd = next(hit for hit in (await shelf.search("pendulum")).hits if hit.source.collection == "odd")
    assert await why_not(shelf, odd, 1) == ELSEWHERE


async def test_a_large_file_is_not_shown(shelf: Shelf, paper: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await hit_of(shelf)
    size = paper.stat().st_size
    monkeypatch.setattr("rag.originals.FILE_BYTES", size - 1)
    assert await why_not(shelf, hit) == LARGE
    monkeypatch.setattr("rag.originals.FILE_BYTES", size)
    assert await page_of(shelf, hit)


def long_page(subject: str) -> str:
    """A page's worth of words about something, which is several passages."""
    return "\n".join(f"Line {at} of what is known about {subject} and its keepers" for at in range(45))


async def test_the_page_is_that_of_the_passage_and_of_a_source_the_first(shelf: Shelf, paper: Path) -> None:
    paper.write_bytes(pdf(*(long_page(subject) for subject in ("sundials", "pendulums", "astrolabes"))))
    await shelf.small.ingested(shelf.data, paper.parent)
    numbers = {}
    for subject in ("sundials", "astrolabes"):
        hit = await hit_of(shelf, subject)
        page = await page_of(shelf, hit)
        numbers[subject] = page.number
        assert page.picture.marks
    assert numbers == {"sundials": 1, "astrolabes": 3}
    assert (await shelf.desk().page(ME, hit.source.id)).number == 1


async def test_a_window_that_begins_before_the_passage_has_the_page_of_the_passage(
    shelf: Shelf, paper: Path
) -> None:
    paper.write_bytes(pdf(*(long_page(subject) for subject in ("sundials", "pendulums", "astrolabes"))))
    await shelf.small.ingested(shelf.data, paper.parent)
    desk, hit = shelf.desk(), await hit_of(shelf, "astrolabes")
    around = await desk.extract(ME, hit.chunk.id, max_chars=100_000)
    assert (around.chunks[0].page, around.page) == (1, 3)
    text = await desk.extract(ME, hit.source.id, max_chars=500, part=Part(start=hit.chunk.start + 100))
    assert text.page == 3
    assert (await desk.extract(ME, hit.source.id, max_chars=500)).page == 1
    assert (await desk.extract(ME, hit.source.id, max_chars=500, part=Part(outline=True))).page is None


@pytest.mark.skipif(not find_spec("PIL"), reason="refdesk[ocr] is not installed")
async def test_a_picture_file_is_its_own_page(shelf: Shelf, tmp_path: Path) -> None:
    from PIL import Image  # noqa: PLC0415 of the extra

    scan = tmp_path / "scan.png"
    Image.new("L", (600, 400), 255).save(scan)
    digest = digest_of(scan.read_bytes())
    await shelf.put("scan", TEXT, mime_type="image/png", uri=scan.as_uri(), digest=digest)
    hit = await hit_of(shelf)
    assert may_have_pages(hit.source)
    page = await page_of(shelf, hit)
    assert (page.picture.width, page.picture.height, page.picture.pages) == (600, 400, 1)
    Image.new("L", (600, 400), 0).save(scan)
    assert await why_not(shelf, hit) == OTHER


async def test_a_pdf_that_ocr_may_have_read_has_its_page(shelf: Shelf, paper: Path) -> None:
    digest = digest_of(paper.read_bytes() + SCANNED.encode())
    await shelf.put("paper", TEXT, mime_type="application/pdf", uri=paper.as_uri(), digest=digest)
    hit = await hit_of(shelf)
    assert await page_of(shelf, hit)
    paper.write_bytes(pdf("Another page"))
    assert await why_not(shelf, hit) == OTHER


@pytest.mark.skipif(not find_spec("rapidocr"), reason="refdesk[ocr] is not installed")
@pytest.mark.parametrize("name", ["scan.png", "text.pdf"])
async def test_a_file_that_was_read_with_ocr_has_its_page(shelf: Shelf, tmp_path: Path, name: str) -> None:
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 of the extra

    file = tmp_path / name
    file.write_bytes(pdf(TEXT))
    if name == "scan.png":
        scan = Image.new("L", (900, 200), 255)
        ImageDraw.Draw(scan).text((30, 60), "The pendulum clock", 0, ImageFont.load_default(60))
        scan.save(file)
    await shelf.small.ingested(shelf.data, file, settings=IngestSettings(ocr="auto"))
    hit = await hit_of(shelf)
    assert await page_of(shelf, hit)
    file.write_bytes(file.read_bytes() + b"\n")
    assert await why_not(shelf, hit) == OTHER


async def test_a_picture_file_is_not_drawn_where_nothing_decodes_it(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put("scan", TEXT, mime_type="image/png")
    monkeypatch.setattr("rag.search.page_picture.find_spec", lambda _name: None)
    assert await why_not(shelf, await hit_of(shelf)) == NO_DECODER


@pytest.mark.parametrize("ends", ["removed", "expired"])
async def test_a_document_that_is_no_more_has_no_page(shelf: Shelf, paper: Path, ends: str) -> None:
    """Its file is still there, and the same."""
    os.utime(paper, (1_600_000_000, 1_600_000_000))
    await shelf.small.ingested(shelf.data, paper.parent)
    hit = await hit_of(shelf)
    assert await page_of(shelf, hit)
    if ends == "removed":
        async with await shelf.small.writing(shelf.data) as writer:
            await writer.remove([hit.source.id])
    else:
        await change_collection(shelf.data, "default", "documents", lambda of: replace(of, keep_days=1))
    with pytest.raises(NotFoundError) as caught:
        await page_of(shelf, hit)
    with pytest.raises(NotFoundError) as unknown:
        await shelf.desk().page(ME, f"{'a' * 16}/0")
    assert str(caught.value) == str(unknown.value)
