"""Metrics: worked examples, agreement with trec_eval, and how much of what is wanted a reply shows."""

from __future__ import annotations

from datetime import UTC, datetime
from math import log2

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Answer, Excerpt, Hit
from rag.config.server_settings import ServerSettings
from rag.corpus import Chunk, Principal, Source
from rag.evaluate import ranking_metrics
from rag.evaluate.ask_questions import RANKED, default_reply, shown_metrics
from rag.evaluate.judged_sets import Question
from rag.evaluate.judgements import ResolvedQuestion, Target
from rag.evaluate.ranking_metrics import Stretch, TokenScores, token_scores

ITEMS = [f"d{number}" for number in range(120)]
TREC_EVAL = {
    "nDCG@10": "ndcg_cut_10",
    "MRR@10": "recip_rank",  # of a ranking cut at 10
    "MAP@100": "map_cut_100",
    "recall@5": "recall_5",
    "recall@10": "recall_10",
    "recall@20": "recall_20",
    "recall@100": "recall_100",
    "precision@5": "P_5",
    "precision@10": "P_10",
    "hit_rate@5": "success_5",
    "hit_rate@10": "success_10",
}


def ranked(judgements: str) -> tuple[list[str], dict[str, int]]:
    """A ranking in which R stands for a relevant item and N for another, and the grades of the former."""
    places = enumerate(judgements.replace(" ", ""))
    named = [f"{judged}{at}" for at, judged in places]
    return named, {name: 1 for name in named if name[0] == "R"}


def test_ndcg_discounts_by_the_logarithm_of_the_rank() -> None:
    assert ranking_metrics.ndcg(["x", "a"], {"a": 1}, 10) == pytest.approx(1 / log2(3))
    assert ranking_metrics.ndcg(["x", "a"], {"a": 1}, 10) == pytest.approx(0.631, abs=5e-4)


def test_ndcg_has_the_value_that_wikipedia_works_out() -> None:
    """Wikipedia, "Discounted cumulative gain": grades 3, 2, 3, 0, 1, 2; two more of 3 and 2 not found."""
    grades = {"D1": 3, "D2": 2, "D3": 3, "D5": 1, "D6": 2, "D7": 3, "D8": 2}
    ranking = ["D1", "D2", "D3", "D4", "D5", "D6"]
    assert ranking_metrics.ndcg(ranking, grades, 6) == pytest.approx(6.861 / 8.740, abs=5e-4)


def test_ndcg_is_1_for_the_best_order_and_less_for_any_other_order_of_grades() -> None:
    grades = {"a": 3, "b": 2, "c": 1}
    assert ranking_metrics.ndcg(["a", "b", "c"], grades, 10) == 1
    assert ranking_metrics.ndcg(["a", "c", "b"], grades, 10) == pytest.approx(
        (3 + 1 / log2(3) + 2 / 2) / (3 + 2 / log2(3) + 1 / 2)
    )


def test_ndcg_within_k_asks_no_more_than_k_places_can_hold() -> None:
    grades = {"a": 1, "b": 1, "c": 1}
    assert ranking_metrics.ndcg(["a", "b"], grades, 2) == 1
    assert ranking_metrics.ndcg(["a", "x", "b"], grades, 2) == pytest.approx(1 / (1 + 1 / log2(3)))


def test_the_reciprocal_rank_is_that_of_the_first_relevant_item_within_k() -> None:
    assert ranking_metrics.reciprocal_rank(["x", "a"], {"a": 1}, 10) == 0.5
    assert ranking_metrics.reciprocal_rank(["x", "a", "b"], {"a": 1, "b": 3}, 10) == 0.5
    assert ranking_metrics.reciprocal_rank(["x", "a"], {"a": 1}, 1) == 0


def test_average_precision_counts_what_is_missing() -> None:
    ranking, grades = ["a", "x", "b"], {"a": 1, "b": 1, "c": 1}
    assert ranking_metrics.average_precision(ranking, grades, 100) == pytest.approx((1 / 1 + 2 / 3 + 0) / 3)
    assert ranking_metrics.average_precision(ranking, grades, 100) == pytest.approx(0.556, abs=5e-4)
    assert ranking_metrics.average_precision(ranking, grades, 2) == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("judgements", "missing", "expected"),
    [
        ("RNRNN NNNRR", 0, 0.6),
        ("NRNNR RRNNN", 0, 0.493),
        ("RRNNN NNNRN RNNNR NNNNR", 2, 0.416),
    ],
)
def test_average_precision_has_the_values_of_the_textbook_s_exercises(
    judgements: str, missing: int, expected: float
) -> None:
    """Manning, Raghavan & Schütze 2008, exercises of section 8.4; `missing` relevant ones aren't found."""
    ranking, grades = ranked(judgements)
    grades |= {f"missing{number}": 1 for number in range(missing)}
    assert ranking_metrics.average_precision(ranking, grades, 100) == pytest.approx(expected, abs=5e-4)


def test_recall_precision_and_hit_rate_of_the_textbook_s_list_of_twenty() -> None:
    ranking, grades = ranked("RRNNN NNNRN RNNNR NNNNR")
    grades |= {"missing0": 1, "missing1": 1}
    assert ranking_metrics.precision(ranking, grades, 20) == 6 / 20
    assert ranking_metrics.recall(ranking, grades, 20) == 6 / 8
    assert ranking_metrics.hit_rate(ranking, grades, 20) == 1


def test_an_empty_place_counts_as_a_miss() -> None:
    assert ranking_metrics.precision(["a"], {"a": 1}, 5) == 1 / 5
    assert ranking_metrics.recall(["a"], {"a": 1}, 5) == 1


def test_a_grade_counts_for_ndcg_alone() -> None:
    for name, metric in RANKED.items():
        low, high = (metric(["x", "a", "b"], {"a": 1, "b": grade}, 10) for grade in (1, 5))
        assert (low != high) == name.startswith("nDCG")


@pytest.mark.parametrize("ranking", [[], ["x", "y"]])
def test_what_finds_nothing_scores_0(ranking: list[str]) -> None:
    assert {metric(ranking, {"a": 1, "b": 2}, 10) for metric in RANKED.values()} == {0}


@given(
    ranking=st.lists(st.sampled_from(ITEMS), unique=True),
    grades=st.dictionaries(st.sampled_from(ITEMS), st.integers(1, 4), min_size=1),
    more=st.integers(0, 110),
)
def test_every_metric_of_rankings_is_trec_eval_s(
    ranking: list[str], grades: dict[str, int], more: int
) -> None:
    ranking += [item for item in ITEMS[:more] if item not in ranking]
    measures = {"ndcg_cut.10", "map_cut.100", "recall.5,10,20,100", "P.5,10", "success.5,10"}
    theirs = trec_eval(ranking, grades, measures) | trec_eval(ranking[:10], grades, {"recip_rank"})
    assert TREC_EVAL.keys() == RANKED.keys()
    for name, metric in RANKED.items():
        ours = metric(ranking, grades, int(name.partition("@")[2]))
        assert ours == pytest.approx(theirs.get(TREC_EVAL[name], 0.0)), name


def trec_eval(ranking: list[str], grades: dict[str, int], measures: set[str]) -> dict[str, float]:
    """What trec_eval makes of a ranking; an empty one it leaves out."""
    scores = {item: float(len(ranking) - at) for at, item in enumerate(ranking)}
    evaluator = pytrec_eval.RelevanceEvaluator({"q": grades}, measures)
    scored: dict[str, float] = evaluator.evaluate({"q": scores}).get("q", {})
    return scored


def stretch(start: int, end: int, source: str = "s") -> Stretch:
    return Stretch(source, start, end)


def test_token_scores_have_the_values_of_the_worked_example() -> None:
    assert token_scores([stretch(0, 10)], [stretch(5, 15)]) == TokenScores(0.5, 0.5, 1 / 3)


def test_text_that_is_found_twice_costs_precision_but_adds_nothing() -> None:
    once = token_scores([stretch(0, 10)], [stretch(0, 10)])
    twice = token_scores([stretch(0, 10), stretch(0, 10)], [stretch(0, 10)])
    assert once == TokenScores(1, 1, 1)
    assert twice == TokenScores(1, 0.5, 0.5)


def test_wanted_stretches_that_overlap_count_each_character_once() -> None:
    assert token_scores([stretch(0, 15)], [stretch(0, 10), stretch(5, 15)]) == TokenScores(1, 1, 1)


def test_the_same_positions_in_another_source_are_another_text() -> None:
    passages = [stretch(0, 10), stretch(0, 10, "t")]
    assert token_scores([stretch(0, 10, "u")], passages) == TokenScores(0, 0, 0)
    assert token_scores([stretch(0, 10, "t")], passages) == TokenScores(0.5, 1, 0.5)


def test_nothing_found_scores_0() -> None:
    assert token_scores([], [stretch(0, 10)]) == TokenScores(0, 0, 0)


STRETCHES = st.lists(
    st.builds(
        lambda source, start, length: Stretch(source, start, start + length),
        st.sampled_from("ab"),
        st.integers(0, 60),
        st.integers(1, 30),
    ),
    max_size=6,
)


@given(retrieved=STRETCHES, passages=STRETCHES.filter(bool))
def test_token_scores_are_shares_and_whoever_finds_all_has_all_recall(
    retrieved: list[Stretch], passages: list[Stretch]
) -> None:
    scores = token_scores(retrieved, passages)
    for score in (scores.recall, scores.precision, scores.iou):
        assert 0 <= score <= 1
    assert scores.iou <= min(scores.recall, scores.precision)
    assert token_scores([*retrieved, *passages], passages).recall == 1
    assert token_scores([stretch(0, 100, "a"), stretch(0, 100, "b")], passages).recall == 1


ID, OTHER = "a" * 16, "b" * 16
ROOMY = ServerSettings()
NARROW = ServerSettings(max_chars=2_000)


def _hit(source_id: str, seq: int, chars: int = 1_000, excerpts: tuple[Excerpt, ...] = ()) -> Hit:
    start = seq * 1_000
    chunk = Chunk(f"{source_id}/{seq}", source_id, seq, start, start + chars, "x" * chars)
    file = f"file:///{source_id}.txt"
    source = Source(source_id, "notes", file, source_id[0], "text/plain", "", 9, 9_000, datetime.now(UTC))
    return Hit(chunk, source, 0.5, 0.5, excerpts=excerpts)


def _expected(*targets: Target) -> ResolvedQuestion:
    return ResolvedQuestion(
        Question("1", "?"), Principal("default"), targets, None, (), frozenset({ID, OTHER})
    )


WHOLE = Target("first", 1, frozenset({ID}))
SECOND = Target("second", 1, frozenset({OTHER}))
PASSAGE = Target("passage 1", 1, frozenset(), (Stretch(ID, 1_000, 2_000),))


def test_all_documents_of_a_reply_count_and_no_other() -> None:
    answer = Answer((_hit(ID, 0), _hit(OTHER, 4)))
    metrics = shown_metrics(_expected(WHOLE, SECOND), default_reply(answer, ROOMY))
    assert (metrics["shown_nDCG@10"], metrics["shown_recall"]) == (1, 1)
    assert "shown_token_recall" not in metrics  # no passage is wanted


def test_what_does_not_fit_into_the_reply_is_not_shown() -> None:
    answer = Answer((_hit(ID, 0), _hit(OTHER, 4)))
    narrow = shown_metrics(_expected(WHOLE, SECOND), default_reply(answer, NARROW))
    assert narrow["shown_recall"] == 0.5
    assert 1_000 < narrow["shown_chars"] <= 2_000 < roomy_chars(answer)


def roomy_chars(answer: Answer) -> float:
    """How long the reply is if there is room."""
    return shown_metrics(_expected(WHOLE), default_reply(answer, ROOMY))["shown_chars"]


@pytest.mark.parametrize(
    ("hit", "recall"),
    [
        (_hit(ID, 1), 1),
        (_hit(OTHER, 1), 0),  # the same positions, of another document
        (_hit(ID, 1, excerpts=(Excerpt(1_200, 1_300, "x" * 100), Excerpt(1_500, 1_650, "x" * 150))), 0.25),
        (_hit(ID, 1, excerpts=(Excerpt(0, 2_000, "x" * 2_000),)), 1),  # with the passage before it
    ],
)
def test_a_passage_counts_by_the_characters_that_are_shown_of_it(hit: Hit, recall: float) -> None:
    scores = shown_metrics(_expected(PASSAGE), default_reply(Answer((hit,)), ROOMY))
    assert scores["shown_token_recall"] == recall


def test_of_a_truncated_passage_only_the_beginning_is_shown() -> None:
    answer = Answer((_hit(ID, 1, chars=8_000),))
    scores = shown_metrics(
        _expected(Target("end", 1, frozenset(), (Stretch(ID, 8_000, 9_000),))), default_reply(answer, NARROW)
    )
    assert scores["shown_token_recall"] == scores["shown_recall"] == 0
