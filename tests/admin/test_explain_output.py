"""How a trace is printed: what happened, in which order, to whom."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from rag.admin.search_output import WIDTH, changes, explanation, rank_steps
from rag.answers import Answer, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.admin.conftest import Search

    MakeSearch = Callable[..., Search]

pytestmark = pytest.mark.slow

EXPLAINED = """\
Query 1: who built it?
Query 2: Clocks
   weight 0.70, in documents, where {"year": {"$gte": 1650}}
   as Clocks

STAGE        STATUS     MS  BEFORE → AFTER  TOKENS           COST
plan         ok        0.4
multi_query  ok      500.0  1 → 2           412 in, 96 out   0.0012
embed        ok        9.1
recall       ok       12.4  3
fuse         ok        1.0  3
gate         ok        1.0  3 → 3
thresholds   ok        1.0  3 → 2
rerank       ok        1.0  2 → 2           1000 in, 4 out
recency      failed    1.0  2 → 2
 ! recency failed: Clocks
limit        ok        1.0  2 → 2
total                527.9                  1412 in, 100 out  0.0012

1. Clocks b, Part > Clocks, p. 7
   [mfzqb/3]  score 0.99  similarity 0.432
   query 1: sparse 1 (1.00)
   fuse 3 → thresholds 2 → rerank 1

2. Clocks a, Part > Clocks, p. 7
   [mfzqa/3]  score 0.99  similarity 0.432
   query 1: dense 1 (0.61), sparse 2 (0.50); query 2: dense 3 (0.40)
   fuse 1 → rerank 2

Expected Clocks c [mfzqc]:
   Out at thresholds. Too far: Clocks
   fuse 2 → thresholds out"""


def _aligned(text: str) -> list[str]:
    """Lines whose columns may stand elsewhere."""
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_trace_is_told_from_its_queries_to_its_hits_and_what_became_of_others(
    make_search: MakeSearch,
) -> None:
    search = make_search()
    assert _aligned("\n".join(explanation(search.answer, [search.fate]))) == _aligned(EXPLAINED)


def test_the_columns_of_the_table_of_stages_stand_under_each_other(make_search: MakeSearch) -> None:
    lines = explanation(make_search().answer)
    head = next(line for line in lines if line.startswith("STAGE"))
    rows = {line.split()[0]: line for line in lines if line.split() and "." in line}
    assert rows["multi_query"].index("1 → 2") == rows["rerank"].index("2 → 2") == head.index("BEFORE")
    ends = {rows[name].index(ms) + len(ms) for name, ms in (("plan", "0.4"), ("multi_query", "500.0"))}
    assert ends == {head.index("MS") + 2}


def test_columns_of_what_was_not_used_are_left_out() -> None:
    lines = explanation(Answer((), steps=(Step("plan", 0.001), Step("embed", 0.002))))
    assert lines == ["STAGE  STATUS   MS", "plan   ok      1.0", "embed  ok      2.0", "total          3.0"]


def test_the_only_query_is_not_numbered(make_search: MakeSearch) -> None:
    answer = make_search().answer
    assert answer.trace
    trace = replace(answer.trace, queries=answer.trace.queries[:1])
    lines = explanation(replace(answer, trace=trace))
    assert lines[0] == "Query: who built it?"
    assert "   sparse 1 (1.00)" in lines


def test_an_answer_without_a_trace_has_its_stages_and_hits(make_search: MakeSearch) -> None:
    stages = (Step("plan", 0.001),)
    lines = explanation(replace(make_search().answer, trace=None, steps=stages))
    assert lines[0].startswith("STAGE")
    assert "1. Clocks b, Part > Clocks, p. 7" in lines
    assert not [line for line in lines if "fuse" in line or "Query" in line]


def test_an_empty_answer_without_stages_says_nothing() -> None:
    assert explanation(Answer(())) == []


def test_a_source_that_is_among_the_hits_is_said_to_be(make_search: MakeSearch) -> None:
    search = make_search()
    fate = replace(search.fate, step=None, reason="It is among the hits.", ranks=(("fuse", 2), ("rerank", 1)))
    lines = explanation(search.answer, [fate])
    assert lines[-3:] == ["Expected Clocks c [mfzqc]:", "   It is among the hits.", "   fuse 2 → rerank 1"]


def test_long_lines_are_broken(make_search: MakeSearch) -> None:
    search = make_search("a long story " * 30)
    lines = explanation(search.answer, [search.fate])
    assert WIDTH - 10 < max(map(len, lines)) <= WIDTH


def test_warnings_and_reasons_are_whole(make_search: MakeSearch) -> None:
    search = make_search("a long story " * 30)
    shown = " ".join(" ".join(explanation(search.answer, [search.fate])).split())
    for whole in ("! recency failed:", "Too far:"):
        assert f"{whole} {'a long story ' * 30}" in shown


def test_a_terminal_takes_nothing_for_a_command(make_search: MakeSearch, hostile: str) -> None:
    search = make_search(hostile)
    lines = explanation(search.answer, [search.fate])
    assert all(line.isprintable() for line in lines)
    assert any("[31m" in line for line in lines)


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([("fuse", 3), ("gate", 3), ("rerank", 1), ("limit", 1)], [("fuse", 3), ("rerank", 1)]),
        ([("fuse", 3), ("dedupe", None), ("limit", None)], [("fuse", 3), ("dedupe", None)]),
        ([("fuse", None), ("gate", 2)], [("gate", 2)]),
        ([], []),
    ],
)
def test_of_a_passage_s_ranks_only_the_changes_are_shown(
    ranks: list[tuple[str, int | None]], expected: list[tuple[str, int | None]]
) -> None:
    assert changes(ranks) == expected


def test_lists_have_the_best_rank_of_all_queries(make_search: MakeSearch) -> None:
    steps = {step.name: step for step in rank_steps(make_search().answer)}
    assert list(steps)[:3] == ["dense list", "sparse list", "fuse"]
    assert steps["dense list"].ranks == {"mfzqa/3": 1, "mfzqc/3": 2}


def test_stages_that_make_queries_or_count_nothing_rank_nothing(make_search: MakeSearch) -> None:
    stages = (*make_search().answer.steps, Step("custom", 0.1, before=1, after=2), Step("context", 0.1))
    names = [step.name for step in rank_steps(Answer((), steps=stages))]
    assert names == ["fuse", "gate", "thresholds", "rerank", "recency", "limit"]


def test_a_stage_that_left_nothing_is_a_step() -> None:
    stages = (Step("fuse", 0.1, after=1, hit_ids=("a",)), Step("thresholds", 0.1, before=1, after=0))
    assert [step.ranks for step in rank_steps(Answer((), steps=stages))] == [{"a": 1}, {}]
