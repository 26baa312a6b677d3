"""The scatter plot: nothing that was counted gets lost on the way into it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from rag.evaluate.compare_runs import compare
from rag.evaluate.report_page import scatter, signed
from tests.evaluate.made_up import run
from tests.evaluate.report.pages import parse_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.evaluate.report.pages import Element


def dots(before: dict[str, float], after: dict[str, float]) -> list[Element]:
    """The dots of a scatter of two runs, by their questions' scores."""
    comparison = compare(run(1, before), run(2, after), "nDCG@10")
    return parse_page(scatter(comparison, across="Run 1", up="Run 2", label="scores")).all("g")


def _questions(shapes: Sequence[Element]) -> int:
    """How many questions the titles of dots or bars speak of."""
    counts = re.findall(r"(\d+) questions?\b", "\n".join(shape.all("title")[0].text for shape in shapes))
    assert len(counts) == len(shapes)
    return sum(map(int, counts))


def _percent(element: Element, name: str) -> float:
    return float(element.attributes[name].rstrip("%"))


def test_a_scatter_has_a_dot_for_each_pair_of_scores_and_all_questions() -> None:
    drawn = dots({"a": 0.5, "b": 0.5, "c": 1.0, "d": 0.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.25})
    assert len(drawn) == 3
    assert _questions(drawn) == 4


def test_scores_that_differ_by_rounding_share_a_dot() -> None:
    (dot,) = dots({"a": 0.3, "b": 0.1 + 0.2}, {"a": 0.3, "b": 0.3})
    assert dot.attributes["class"] == "alike"


def test_what_was_won_is_above_the_line_and_what_was_lost_below() -> None:
    by_kind = {
        dot.attributes["class"]: dot for dot in dots({"a": 0, "b": 1, "c": 0.5}, {"a": 1, "b": 0, "c": 0.5})
    }
    above = {
        kind: 100 - _percent(dot.all("circle")[0], "cy") - _percent(dot.all("circle")[0], "cx")
        for kind, dot in by_kind.items()
    }
    assert above["won"] > 0
    assert above["lost"] < 0
    assert above["alike"] == pytest.approx(0)


def test_a_dot_names_its_question_and_both_scores() -> None:
    (dot,) = dots({"a": 0.5}, {"a": 0.75})
    assert dot.all("title")[0].text == "1 question: 0.500 → 0.750\na  What of a?"


def test_a_dot_of_many_questions_is_larger_says_how_many_and_names_some() -> None:
    many = {str(at): 1.0 for at in range(20)}
    large, small = dots(many | {"odd": 0.0}, many | {"odd": 1.0})
    assert large.all("text")[0].text == "20"
    named = large.all("title")[0].text.splitlines()
    assert named == [
        "20 questions: 1.000 → 1.000",
        *(f"{at}  What of {at}?" for at in range(8)),
        "… and 12 more",
    ]
    assert not small.all("text")
    assert float(large.all("circle")[0].attributes["r"]) > float(small.all("circle")[0].attributes["r"])


def test_small_dots_lie_above_large_ones() -> None:
    drawn = dots({"alone": 0.0, "a": 1.0, "b": 1.0}, {"alone": 0.0, "a": 1.0, "b": 1.0})
    assert [_questions([dot]) for dot in drawn] == [2, 1]


@pytest.mark.parametrize(
    ("value", "text"), [(0.05, "+0.0500"), (-0.05, "−0.0500"), (0.0, "0.0000"), (-0.00001, "0.0000")]
)
def test_a_difference_has_its_sign_unless_it_is_too_small_to_see(value: float, text: str) -> None:
    assert signed(value) == text
