"""Which paragraphs of an answer need a citation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.search.answer_citations import parse_answer, uncited_paragraphs

CITED = "It swings [ab/1]."


@pytest.mark.parametrize(
    "answer",
    [
        CITED,
        f"# Clocks\n\n{CITED}",
        f"Clocks\n------\n\n{CITED}",
        f"**Clocks**\n\n{CITED}",
        f"Here is what the documents say:\n\n- {CITED}\n- It stops, too [ab/2].",
        f"What swings?\n\n{CITED}",
        "It swings.\n\n[ab/1]",
        "As [ab/1] says:\n\n1. It swings.\n2. It stops.",
        "**As the handbook says** [ab/1]:\n- It swings.",
        f"| what | where |\n|---|---|\n| swings | [ab/1] |\n\n{CITED}",
        f"{CITED}\n\n```python\nswing()\n\nstop()\n```",
        f"{CITED}\n\n---\n\n{CITED}",
        "> It swings.\n\nSo it is [ab/1].",
        f"它是什么?\n\n{CITED}",
        f"{CITED}\n\n***\n",
        "",
    ],
)
def test_what_states_nothing_or_is_covered_needs_no_citation(answer: str) -> None:
    assert uncited_paragraphs(answer) == ()


@pytest.mark.parametrize(
    ("answer", "lacking"),
    [
        ("It swings.", ("It swings.",)),
        (f"{CITED}\n\nIt stops.", ("It stops.",)),
        (f"It stops.\n\n{CITED}", ("It stops.",)),
        (f"- {CITED}\n- It stops.\n- It ticks.", ("It stops.", "It ticks.")),
        (f"Look:\n\n- {CITED}\n2. It stops.", ("It stops.",)),
        ("As [ab/1] says:\n\n- It swings.\n\nIt stops.\n\n- It ticks.", ("It stops.", "It ticks.")),
        (f"| what | where |\n|---|---|\n| swings | here |\n\n{CITED}", ("| swings | here |",)),
        ("It stops [3/4], see [notes].", ("It stops [3/4], see [notes].",)),
        ("**Note** that it stops.", ("**Note** that it stops.",)),
        (f"```\nswing()\n```\n\nIt stops.\n\n{CITED}", ("It stops.",)),
        ("It\nstops.", ("It\nstops.",)),
    ],
)
def test_what_states_something_without_a_citation_is_found(answer: str, lacking: tuple[str, ...]) -> None:
    assert uncited_paragraphs(answer) == lacking


@given(st.text(alphabet="a [/1]\n-#|:?>`*", max_size=60))
def test_no_answer_breaks_it_and_a_paragraph_is_found_or_holds_a_citation(answer: str) -> None:
    found = uncited_paragraphs(answer)
    assert all(text.strip() for text in found)
    assert not any(parse_answer(text).citations for text in found)
