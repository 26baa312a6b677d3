"""Each strategy of cutting, its sizes, and which one applies."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from rag.config.settings import ChunkingSettings
from rag.corpus import Block, Chunking, Document
from rag.ingest.chunk import passages
from rag.ingest.file_digests import chunking_of, cut_key
from rag.ingest.parse.parsers import parse

PROSE = """# Handbook

Introduction of the handbook here.

## Leave

One two three. Four five six. Seven eight nine.

## Travel

Ten eleven twelve. Thirteen fourteen fifteen.
"""
TABLE = "# Prices\n\n| item | price |\n|---|---|\n| pen | 1 |\n| ink | 2 |\n| pad | 3 |\n"


def words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def cut(text: str, chunking: Chunking, limit: int = 100, name: str = "a.md") -> list[str]:
    document = parse(text.encode(), name)
    found = passages(document, token_spans=words, limit=limit, chunking=chunking)
    assert [one.seq for one in found] == list(range(len(found)))
    for one in found:
        text_of = document.text[one.start : one.end]
        assert len(words(one.context)) + len(words(text_of)) <= limit
        assert one.tokens == len(words(text_of))
    return [document.text[one.start : one.end] for one in found]


def test_structure_keeps_sections_apart_that_are_large_enough() -> None:
    found = cut(PROSE, Chunking(min_tokens=0))
    assert [one.splitlines()[0] for one in found] == ["# Handbook", "## Leave", "## Travel"]


def test_a_passage_under_the_minimum_is_joined_to_its_section() -> None:
    assert len(cut(PROSE, Chunking(min_tokens=9))) == 2  # the introduction belongs to the first subsection


def test_sentences_stay_whole_and_headings_do_not_matter() -> None:
    found = cut(PROSE, Chunking("sentence"), limit=16)
    assert " ".join(" ".join(found).split()) == " ".join(PROSE.split())
    assert any("## Travel" in one and "Seven eight nine." in one for one in found)
    assert all(one.endswith((".", "Handbook", "Leave", "Travel")) for one in found)


def test_windows_have_one_size() -> None:
    found = cut("word " * 95, Chunking("tokens"), limit=21, name="a.txt")
    assert len({len(words(one)) for one in found[:-1]}) == 1
    assert sum(len(words(one)) for one in found) == 95


def test_overlap_repeats_the_end_of_the_passage_before() -> None:
    numbers = " ".join(map(str, range(60)))
    found = [words_of.split() for words_of in cut(numbers, Chunking("tokens", overlap=5), 25, "a.txt")]
    assert len(found) > 2
    for before, after in pairwise(found):
        assert after[:5] == before[-5:]


def test_overlap_begins_with_a_whole_sentence_where_there_is_one() -> None:
    text = " ".join(f"Sentence {number} ends." for number in range(20))
    found = cut(text, Chunking("sentence", overlap=4), 20, "a.txt")
    assert len(found) > 2
    assert all(one.startswith("Sentence") for one in found)
    assert found[1].split(".")[0] == found[0].split(".")[-2].strip()


def test_sections_do_not_overlap_in_structure() -> None:
    assert cut(PROSE, Chunking(min_tokens=0, overlap=20)) == cut(PROSE, Chunking(min_tokens=0))


def test_each_page_is_a_passage_and_a_large_one_several() -> None:
    text = "First page.\fSecond page here.\f" + "word " * 50
    starts = (0, text.index("Second"), text.index("word"))
    blocks = (Block("paragraph", 0, 11), Block("paragraph", 12, len(text.rstrip())))
    document = Document(text, "T", "application/pdf", blocks, pages=starts)
    found = passages(document, token_spans=words, limit=30, chunking=Chunking("page"))
    assert [one.page for one in found] == [1, 2, 3, 3]
    assert text[found[1].start : found[1].end] == "Second page here."


def test_a_document_without_pages_is_cut_as_few_times_as_possible() -> None:
    assert cut(PROSE, Chunking("page")) == cut(PROSE, Chunking("document")) == [PROSE.strip()]


def test_each_row_is_a_passage_with_its_header() -> None:
    document = parse(TABLE.encode(), "a.md")
    found = passages(document, token_spans=words, limit=100, chunking=Chunking("row"))
    rows = [one for one in found if "| item | price |" in one.context]
    assert [document.text[one.start : one.end] for one in rows] == [
        "| pen | 1 |",
        "| ink | 2 |",
        "| pad | 3 |",
    ]
    assert len(passages(document, token_spans=words, limit=100)) == 1


def test_code_in_a_document_is_cut_at_its_lines() -> None:
    text = "\n".join(f"step {number}. then more. and more" for number in range(12))
    found = cut(text, Chunking("code", headers=False), 30, "a.txt")
    assert all(one.startswith("step") and one.endswith("more") for one in found)


def test_without_headers_only_the_text_is_embedded() -> None:
    document = parse(PROSE.encode(), "a.md")
    for strategy in ("structure", "sentence"):
        chunking = Chunking(strategy, min_tokens=0, headers=False)
        found = passages(document, token_spans=words, limit=20, chunking=chunking)
        assert {one.context for one in found} == {""}
        assert any(one.section for one in found)  # citations name it all the same


def test_the_first_pattern_that_matches_applies() -> None:
    chunkings = (Chunking("row", match="*.csv"), Chunking("page", match="slides/*"), Chunking("sentence"))
    chosen = [chunking_of(name, chunkings, 254).strategy for name in ("slides/a.csv", "slides/a.pdf", "a.md")]
    assert chosen == ["row", "page", "sentence"]
    assert chunking_of("a.md", (), 99) == Chunking(max_tokens=99)


def test_the_settings_complete_their_rules() -> None:
    settings = ChunkingSettings.model_validate(
        {
            "max_tokens": 99,
            "headers": False,
            "rules": [{"match": "*.log", "strategy": "tokens", "overlap": 9}],
        }
    )
    assert settings.chunkings() == (
        Chunking("tokens", 99, overlap=9, headers=False, match="*.log"),
        Chunking(max_tokens=99, headers=False),
    )


@pytest.mark.parametrize(
    "other",
    [
        Chunking("sentence"),
        Chunking(max_tokens=99),
        Chunking(min_tokens=9),
        Chunking(overlap=9),
        Chunking(headers=False),
    ],
)
def test_every_part_of_a_chunking_is_part_of_the_digest(other: Chunking) -> None:
    assert cut_key(Chunking(max_tokens=254), 512) == "254"
    assert cut_key(other, 254) not in {"254", cut_key(Chunking("code"), 254)}


def test_a_match_is_no_part_of_the_digest() -> None:
    assert cut_key(Chunking("row", match="*.csv"), 254) == cut_key(Chunking("row"), 254)
