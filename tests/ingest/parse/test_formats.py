"""Formats of the extra `refdesk[formats]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.errors import ParseError
from rag.ingest.parse import xberg_formats
from rag.ingest.parse.parsers import OF_EXTRA, SUFFIXES, is_supported
from rag.ingest.report import Outcome
from rag.ingest.run_outcomes import extra_notes
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.work_limits import Budget
from rag.runtime import install_command

if TYPE_CHECKING:
    from pathlib import Path

installed = pytest.mark.skipif(not xberg_formats.is_installed(), reason="refdesk[formats] is not installed")


def test_the_extra_takes_no_format_from_a_parser_of_ours() -> None:
    assert {".pages", ".key", ".wpd"} <= OF_EXTRA
    assert not {".pdf", ".docx", ".md", ".csv", ".eml", ".tex"} & OF_EXTRA
    assert is_supported("a.key") == xberg_formats.is_installed()
    assert ".pdf" in SUFFIXES


def test_a_run_says_what_the_extra_would_read(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [
        Outcome("/d/a.KEY", "ignored", "unsupported"),
        Outcome("/d/b.pages", "skipped", "unsupported"),
        Outcome("/d/c.exe", "ignored", "unsupported"),
        Outcome("/d/d.key", "added"),
    ]
    monkeypatch.setattr(xberg_formats, "is_installed", lambda: False)
    assert extra_notes(outcomes) == [
        f"2 files (.key, .pages) can be read after: {install_command('formats')}"
    ]
    assert extra_notes(outcomes[2:]) == []
    monkeypatch.setattr(xberg_formats, "is_installed", lambda: True)
    assert extra_notes(outcomes) == []


@installed
@pytest.mark.slow
@pytest.mark.anyio
async def test_a_legacy_document_is_read_in_the_confined_process(judged: Path) -> None:
    bib = b"@book{a, title = {Longitude}, author = {Dava Sobel}, year = {1995}}"
    document = await parse_safely(bib, "a.bib", budget=Budget(60))
    assert "Longitude" in document.text
    assert document.blocks
    path = judged / "office" / "unstructured" / "fake-power-point.ppt"
    if ".ppt" in OF_EXTRA and path.exists():
        slides = await parse_safely(path.read_bytes(), "a.ppt", budget=Budget(60))
        assert "Adding a Bullet Slide" in slides.text
    with pytest.raises(ParseError, match="damaged"):
        await parse_safely(b"no such thing", "a.key", budget=Budget(60))
