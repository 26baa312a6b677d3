"""The facts that documents state of themselves."""

from __future__ import annotations

from rag.ingest.parse.document_parts import FACT_LENGTH, facts, with_facts
from rag.ingest.parse.parsers import parse


def test_facts_are_one_line_each_without_repetition_and_without_empty_ones() -> None:
    stated = facts(author=["A\nB", "C", "A B", None], keywords=" ", description="d" * 5000, subject=None)
    assert stated == {"author": "A B, C", "description": "d" * FACT_LENGTH}


def test_a_language_is_a_tag_or_left_out() -> None:
    assert facts(language="en_GB") == {"language": "en-GB"}
    assert facts(language="English, mostly") == {}


def test_an_entry_under_the_shared_name_stays_as_its_author_wrote_it() -> None:
    assert with_facts({"author": "A", "authors": "B"}) == {"author": "A", "authors": "B"}


def test_a_web_page_states_facts_in_its_head() -> None:
    page = (
        "<html lang=de><meta name=author content='Ann'><meta name=keywords content='x, y'>"
        "<meta property='og:description' content='D'><meta property='og:title' content='T'><p>text"
    )
    document = parse(page.encode(), "a.html")
    assert document.title == "T"
    assert document.metadata == {
        "author": "Ann",
        "keywords": "x, y",
        "language": "de",
        "description": "D",
    }
