"""How people read where a passage stands: short, on one line, never another document's citation."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rag.answers import Excerpt, Hit
from rag.corpus import Chunk, Source
from rag.search.cite.parse import parse_answer
from rag.search.reply.cited import MAX_PART_CHARS, cite_as

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
