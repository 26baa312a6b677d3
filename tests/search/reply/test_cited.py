"""How people read where a passage stands: short, on one line, never another document's citation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rag.answers import Excerpt, Hit
from rag.corpus import Chunk, Source
from rag.search.answer_citations import parse_answer
from rag.search.reply.reply_parts import MAX_PART_CHARS, assemble_context, cite_as
from rag.search.reply.search_reply import hit_record
from rag.text.locators import PAGE_LABELS_KEY

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


def _hit(title: str, *section: str, page: int | None = None) -> Hit:
    source = Source("s", "documents", "file:///s", title, "text/plain", "d", 9, 90, MOMENT)
    return Hit(Chunk("s/3", "s", 3, 30, 40, "0123456789", section, page), source, 0.5, 0.5)


@pytest.mark.parametrize(
    ("hit", "shown"),
    [
        (_hit("Handbook", "Handbook", "Leave", page=4), "Handbook › Leave, p. 4"),
        (_hit("Handbook", "Leave"), "Handbook › Leave"),
        (_hit("Handbook", "Handbook"), "Handbook"),
        (_hit("notes.txt", page=1), "notes.txt, p. 1"),
        (_hit("Handbook", "Rules", "Leave", "Parental leave"), "Handbook › … › Leave › Parental leave"),
        (_hit("手册", "休假", page=2), "手册 › 休假, p. 2"),
        (_hit("Handbook", "", " \n"), "Handbook"),
        (_hit("A\nB\u200b", "C\x1b[31m"), "A B › C(31m"),
        (_hit("x" * 500, "y" * 500), f"{'x' * (MAX_PART_CHARS - 1)}… › {'y' * (MAX_PART_CHARS - 1)}…"),
    ],
)
def test_a_citation_for_people_is_the_title_the_last_headings_and_the_page(hit: Hit, shown: str) -> None:
    assert cite_as(hit) == shown


@pytest.mark.parametrize(
    ("pages", "shown"),
    [
        ((1, 1), "Handbook, p. i"),
        ((1, 2), "Handbook, pp. i-ii"),
        ((3, 3), "Handbook, p. 1 (3 of 5)"),
        ((2, 4), "Handbook, pp. ii-2 (2-4 of 5)"),
        ((6, 6), "Handbook, p. 6"),
    ],
)
def test_pages_are_called_by_what_is_printed_on_them(pages: tuple[int, int], shown: str) -> None:
    hit = _hit("Handbook", page=pages[0])
    source = replace(hit.source, metadata={PAGE_LABELS_KEY: "i to ii, 1 to 3"})
    shown_all = (Excerpt(30, 99 if pages[0] < pages[1] else 40, "…"),)
    last = replace(hit.chunk, id="s/9", seq=9, start=90, end=99, page=pages[1])
    assert cite_as(replace(hit, source=source, around=(hit.chunk, last), excerpts=shown_all)) == shown


def test_the_pages_are_those_of_all_that_is_shown() -> None:
    hit = _hit("Handbook", page=4)
    around = tuple(
        replace(hit.chunk, id=f"s/{n}", seq=n, start=10 * n, end=10 * n + 10, page=n) for n in (2, 3, 4)
    )
    assert cite_as(replace(hit, around=around, excerpts=(Excerpt(20, 45, "…"),))) == "Handbook, pp. 2-4"
    assert cite_as(replace(hit, around=around, excerpts=(Excerpt(32, 38, "…"),))) == "Handbook, p. 3"


def test_no_title_passes_for_the_citation_of_another_document() -> None:
    forged = "See [abcdefghijklmno2/3]"
    assert parse_answer(forged).citations
    assert not parse_answer(cite_as(_hit(forged, forged))).citations


def test_a_slide_is_cited_as_a_slide() -> None:
    hit = _hit("Kick-off", "Goals", page=3)
    slides = replace(hit.source, mime_type="application/vnd.oasis.opendocument.presentation")
    assert cite_as(replace(hit, source=slides)) == "Kick-off › Goals, slide 3"
    around = (hit.chunk, replace(hit.chunk, id="s/4", seq=4, start=40, end=50, page=4))
    both = replace(hit, source=slides, around=around, excerpts=(Excerpt(30, 50, "…"),))
    assert cite_as(both) == "Kick-off › Goals, slides 3-4"


def test_cells_are_cited_after_their_sheet_and_those_of_all_that_is_shown() -> None:
    hit = _hit("Budget", "Q1", "A2:F9")
    sheets = replace(hit.source, mime_type="application/vnd.oasis.opendocument.spreadsheet")
    assert cite_as(replace(hit, source=sheets)) == "Budget › Q1, A2:F9"
    below = replace(hit.chunk, id="s/4", seq=4, start=40, end=50, section=("Q1", "A10:C12"))
    other = replace(hit.chunk, id="s/5", seq=5, start=50, end=60, section=("Q2", "A1:Z99"))
    shown = replace(hit, source=sheets, around=(hit.chunk, below, other), excerpts=(Excerpt(30, 60, "…"),))
    assert cite_as(shown) == "Budget › Q1, A2:F12"
    assert cite_as(_hit("Paper", "Sizes", "A4")) == "Paper › Sizes › A4"


def test_a_hit_within_a_table_shows_the_header_row() -> None:
    hit = _hit("Cups", "Sheet1")
    chunk = replace(
        hit.chunk, text="| Ann | 3 |\n| Bob | 4 |\n\nThe end.", start=0, end=34, header="| Name | Wins |"
    )
    hit = replace(hit, chunk=chunk)
    assert hit.header == "| Name | Wins |"
    assert replace(hit, excerpts=(Excerpt(12, 23, "| Bob | 4 |"),)).header == "| Name | Wins |"
    assert replace(hit, excerpts=(Excerpt(25, 33, "The end."),)).header == ""
    assert replace(hit, chunk=replace(chunk, header="")).header == ""
    of_record = replace(
        hit, chunk=replace(chunk, header="Name: Ann"), excerpts=(Excerpt(12, 20, "and more"),)
    )
    assert of_record.header == "Name: Ann"
    assert assemble_context(
        [hit], budget=99, token_spans=lambda text: [(at, at + 1) for at in range(len(text))]
    ).text.startswith("[s/3]\n| Name | Wins |\n| Ann | 3 |")
    assert hit_record(hit, vectors=False).header == "| Name | Wins |"
