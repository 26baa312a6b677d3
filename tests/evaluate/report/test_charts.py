"""Charts: nothing that was counted gets lost on the way into them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.evaluate.compare_runs import Latency, compare
from rag.evaluate.report_charts import (
    BINS,
    binned,
    latency_edges,
    latency_histogram,
    scatter,
    score_histogram,
    ticks_between,
)
from rag.evaluate.report_page import signed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rag.evaluate.compare_runs import EvaluationRun

    Chart = Any  # what the fixture `read` makes
    Read = Callable[[str], Chart]
    MakeRun = Callable[..., EvaluationRun]


@pytest.fixture
def dots(read: Read, run: MakeRun) -> Callable[..., list[Chart]]:
    """The dots of a scatter of two runs, by their questions' scores."""

    def draw(before: dict[str, float], after: dict[str, float]) -> list[Chart]:
        comparison = compare(run(1, before), run(2, after), "nDCG@10")
        chart = read(scatter(comparison, across="Run 1", up="Run 2", label="scores"))
        found: list[Chart] = chart.all("g")
        return found

    return draw


def _questions(shapes: Sequence[Chart]) -> int:
    """How many questions the titles of dots or bars speak of."""
    said = re.findall(r"(\d+) questions?\b", "\n".join(one.all("title")[0].text for one in shapes))
    assert len(said) == len(shapes)
    return sum(map(int, said))


def _percent(element: Chart, name: str) -> float:
    return float(element.attributes[name].rstrip("%"))


def test_a_scatter_has_a_dot_for_each_pair_of_scores_and_all_questions(
    dots: Callable[..., list[Chart]],
) -> None:
    found = dots({"a": 0.5, "b": 0.5, "c": 1.0, "d": 0.0}, {"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.25})
    assert len(found) == 3
    assert _questions(found) == 4


def test_scores_that_differ_by_rounding_share_a_dot(dots: Callable[..., list[Chart]]) -> None:
    (found,) = dots({"a": 0.3, "b": 0.1 + 0.2}, {"a": 0.3, "b": 0.3})
    assert found.attributes["class"] == "alike"


def test_what_was_won_is_above_the_line_and_what_was_lost_below(dots: Callable[..., list[Chart]]) -> None:
    found = {
        one.attributes["class"]: one for one in dots({"a": 0, "b": 1, "c": 0.5}, {"a": 1, "b": 0, "c": 0.5})
    }
    above = {
        kind: 100 - _percent(one.all("circle")[0], "cy") - _percent(one.all("circle")[0], "cx")
        for kind, one in found.items()
    }
    assert above["won"] > 0
    assert above["lost"] < 0
    assert above["alike"] == pytest.approx(0)


def test_a_dot_names_its_question_and_both_scores(dots: Callable[..., list[Chart]]) -> None:
    (found,) = dots({"a": 0.5}, {"a": 0.75})
    assert found.all("title")[0].text == "1 question: 0.500 → 0.750\na  What of a?"


def test_a_dot_of_many_questions_is_larger_says_how_many_and_names_some(
    dots: Callable[..., list[Chart]],
) -> None:
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


def test_small_dots_lie_above_large_ones(dots: Callable[..., list[Chart]]) -> None:
    found = dots({"alone": 0.0, "a": 1.0, "b": 1.0}, {"alone": 0.0, "a": 1.0, "b": 1.0})
    assert [_questions([one]) for one in found] == [2, 1]


@given(scores=st.lists(st.floats(0, 1), min_size=1))
def test_the_spread_of_scores_counts_every_question(scores: list[float]) -> None:
    bars = re.findall(r"<title>.*?: (\d+) questions?</title>", score_histogram(scores, label="scores"))
    assert sum(map(int, bars)) == len(scores)


def test_a_score_of_exactly_0_or_1_has_a_bar_of_its_own(read: Read) -> None:
    chart = read(score_histogram([0, 0, 0.001, 0.999, 1, 1 + 1e-12], label="scores"))
    assert [one.text for one in chart.all("title")] == [
        "0: 2 questions",
        "0 to 0.1: 1 question",
        "0.9 to 1: 1 question",
        "1: 2 questions",
    ]


LATENCIES = st.lists(st.floats(0, 60_000), min_size=1)


@given(one=LATENCIES, other=LATENCIES)
def test_bins_hold_every_latency_of_every_run(one: list[float], other: list[float]) -> None:
    edges = latency_edges([*one, *other])
    assert len(edges) == BINS + 1
    assert sorted(set(edges)) == edges
    assert [sum(binned(values, edges)) for values in (one, other)] == [len(one), len(other)]


def _latency_histogram(read: Read, values: Sequence[float], latency: Latency) -> Chart:
    edges = latency_edges(values)
    tallest = max(binned(values, edges))
    return read(latency_histogram(values, edges, tallest=tallest, latency=latency, label="latency"))


@pytest.mark.parametrize("values", [[3.0], [7.5] * 9, [0.0, 0.0, 5.0], [1.0, 2.0, 4.0, 4.1, 900.0]])
def test_a_histogram_counts_every_search(values: list[float], read: Read) -> None:
    chart = _latency_histogram(read, values, Latency(p50=values[0], p95=values[-1]))
    assert _questions(chart.all("rect")) == len(values)
    assert max(_percent(bar, "height") for bar in chart.all("rect")) == 100
    assert all(0 <= _percent(bar, "x") < 100 - _percent(bar, "width") for bar in chart.all("rect"))


def test_the_percentiles_are_marked_where_their_bars_are(read: Read) -> None:
    chart = _latency_histogram(read, [10.0] * 8 + [20.0] * 2 + [80.0], Latency(p50=10, p95=20))
    marks = [_percent(line, "x1") for line in chart.all("line", class_="mark")]
    assert [one.text for one in chart.all("text", class_="mark")] == ["p50", "p95"]
    for mark, bar in zip(marks, chart.all("rect")[:2], strict=True):
        assert _percent(bar, "x") <= mark <= _percent(bar, "x") + 100 / BINS


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (2, 60, [2, 5, 10, 20, 50]),
        (1.5, 2000, [3, 10, 30, 100, 300, 1000]),
        (11, 24, [12, 14, 16, 18, 20, 22, 24]),
        (10.1, 14.5, [11, 12, 13, 14]),
    ],
)
def test_ticks_are_round_numbers_between_the_ends(low: float, high: float, ticks: list[float]) -> None:
    assert ticks_between(low, high) == pytest.approx(ticks)


@given(values=LATENCIES)
def test_an_axis_has_ticks_but_not_too_many_for_a_phone(values: list[float]) -> None:
    edges = latency_edges(values)
    ticks = ticks_between(edges[0], edges[-1])
    assert 1 <= len(ticks) <= 8
    assert all(edges[0] <= tick <= edges[-1] for tick in ticks)


@pytest.mark.parametrize(
    ("value", "shown"), [(0.05, "+0.0500"), (-0.05, "−0.0500"), (0.0, "0.0000"), (-0.00001, "0.0000")]
)
def test_a_difference_has_its_sign_unless_it_is_too_small_to_see(value: float, shown: str) -> None:
    assert signed(value) == shown
