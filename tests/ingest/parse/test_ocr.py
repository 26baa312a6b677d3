"""Scans and pictures, with OCR and without."""

from __future__ import annotations

import io
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rag.config.settings import IngestSettings
from rag.errors import ConfigurationError, ParseError
from rag.ingest.discover import discover
from rag.ingest.parse import ocr
from rag.ingest.parse.parsers import family_of, is_supported
from rag.ingest.parse.pdf.pdf_document import parse
from rag.ingest.parse.pdf.pdf_words import Line
from rag.ingest.parse.pdf.readable_pages import NO_TEXT, NOT_READ, RUN_OCR
from rag.ingest.parse.pdf.text_page import Box
from rag.ingest.report import check_extras
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import Budget
from rag.runtime import install_command
from tests.pdfs import pdf

installed = pytest.mark.skipif(not find_spec("rapidocr"), reason="refdesk[ocr] is not installed")
ON = IngestSettings(ocr="auto")
SECONDS = 300.0
LINES = ("Harrison built a clock", "that kept time at sea", "in the year 1735")


@pytest.mark.parametrize("name", ["a.png", "A.JPG", "a.tiff"])
def test_pictures_are_documents_only_where_ocr_is_on(name: str) -> None:
    assert not is_supported(name)
    assert is_supported(name, with_ocr=True)
    assert family_of(b"", name, with_ocr=True) == ocr.__name__


def test_only_what_may_be_a_scan_gets_the_process_with_the_models() -> None:
    assert family_of(b"%PDF-1.7 1 0 obj", "a.pdf", with_ocr=True) == ocr.__name__
    assert family_of(b"%PDF-1.7 1 0 obj", "a.pdf") != ocr.__name__
    assert family_of(b"text", "a.md", with_ocr=True) != ocr.__name__


def test_a_run_finds_pictures_only_where_ocr_is_on(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    assert [file.name for file in discover([tmp_path], ON).files.values()] == ["a.png"]
    assert not discover([tmp_path], IngestSettings()).files


def test_ocr_without_its_extra_is_an_error_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    check_extras(IngestSettings())
    monkeypatch.setitem(sys.modules, "rapidocr", None)  # as if it were not installed
    with pytest.raises(ConfigurationError, match=re.escape(install_command("ocr"))):
        check_extras(ON)


@pytest.mark.anyio
async def test_a_run_that_needs_a_missing_extra_stores_nothing(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.md").write_text("# Title")
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    with pytest.raises(ConfigurationError, match="the extra ocr, which is not installed"):
        await small_desk.ingested(tmp_path / "data", tmp_path / "a.md", settings=ON)


def picture(*lines: str) -> Any:  # noqa: ANN401 a picture of Pillow, which has no types
    from PIL import Image, ImageDraw, ImageFont  # noqa: PLC0415 of the extra

    drawn = Image.new("RGB", (900, 400), "white")
    font = ImageFont.load_default(size=36)
    for number, line in enumerate(lines):
        ImageDraw.Draw(drawn).text((60, 60 + 70 * number), line, "black", font)
    return drawn


def saved(drawn: Any, form: str, **options: object) -> bytes:  # noqa: ANN401 see above
    out = io.BytesIO()
    drawn.save(out, form, **options)
    return out.getvalue()


def test_letters_of_one_size_stay_so_whether_they_hang_below_the_line_or_not() -> None:
    heights = {"a line": 10.0, "on high": 12.0, "ace": 9.0, "Title": 20.0}
    lines = [Line(text, Box(0, 30.0 * n, 99, 30.0 * n + heights[text]), 9) for n, text in enumerate(heights)]
    evened = {line.text: line.size for line in ocr._with_usual_heights(lines)}  # noqa: SLF001 the models have no page that is so
    assert evened["a line"] == evened["on high"] == evened["ace"]
    assert evened["Title"] == 9


@installed
@pytest.mark.slow
@pytest.mark.anyio
async def test_scans_and_pictures_are_read_in_the_confined_process() -> None:
    pages = [picture(*LINES), picture("The second page").rotate(90, expand=True)]
    scan = saved(pages[0], "PDF", save_all=True, append_images=pages[1:], resolution=100)
    document = await parse_safely(scan, "a.pdf", budget=Budget(60), ocr_seconds=SECONDS)
    assert document.text.split() == " ".join([*LINES, "The second page"]).split()
    assert document.remarks == ("pages 1, 2 read by OCR",)
    assert len(document.pages) == 2
    for form in ("PNG", "TIFF"):
        data = saved(pages[0], form)
        read_picture = await parse_safely(data, f"a.{form.lower()}", budget=Budget(60), ocr_seconds=SECONDS)
        assert read_picture.text.split() == " ".join(LINES).split()
    with pytest.raises(ParseError, match="the picture is damaged"):
        await parse_safely(b"\x89PNG no", "a.png", budget=Budget(60), ocr_seconds=SECONDS)
    with pytest.raises(ParseError, match="no words that OCR finds"):
        await parse_safely(saved(picture(), "PNG"), "a.png", budget=Budget(60), ocr_seconds=SECONDS)
    large = saved(picture().resize((5000, 5000)), "PNG")
    with pytest.raises(ParseError, match="5,000 × 5,000 pixels; at most"):
        await parse_safely(large, "a.png", budget=Budget(60), ocr_seconds=SECONDS)
    with pytest.raises(ParseError, match=re.escape(f"{NO_TEXT}; {RUN_OCR}")):
        await parse_safely(scan, "a.pdf", budget=Budget(60))


def test_when_its_time_is_over_ocr_reads_no_further_page() -> None:
    reader = ocr.OcrReader(-1.0)
    assert reader.page(None) is None
    assert reader.picture(None) is None


def test_a_scan_that_ocr_has_not_read_does_not_ask_for_ocr() -> None:
    scan = pdf("", drawing=b"0 0 m 300 300 l S")
    with pytest.raises(ParseError, match=f"{NO_TEXT}; {NOT_READ}"):
        parse(scan, "a.pdf", ocr.OcrReader(-1.0))
    with pytest.raises(ParseError, match=re.escape(f"{NO_TEXT}; {RUN_OCR}")):
        parse(scan, "a.pdf")


@installed
@pytest.mark.slow
@pytest.mark.anyio
async def test_turning_ocr_on_reads_the_scans_again_and_nothing_else(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    folder = tmp_path / "d"
    folder.mkdir()
    (folder / "a.md").write_text("# Title")
    (folder / "a.pdf").write_bytes(saved(picture(*LINES), "PDF", resolution=100))
    before = await small_desk.ingested(tmp_path / "data", folder)
    assert {outcome.path.rpartition(".")[2]: outcome.outcome for outcome in before.outcomes} == {
        "md": "added",
        "pdf": "skipped",
    }
    after = await small_desk.ingested(tmp_path / "data", folder, settings=ON)
    assert {outcome.path.rpartition(".")[2]: outcome.outcome for outcome in after.outcomes} == {
        "md": "unchanged",
        "pdf": "added",
    }
