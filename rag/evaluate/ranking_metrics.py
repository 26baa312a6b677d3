"""Metrics of a ranking. All scores lie in [0, 1]; higher is better.

A ranking holds items, best first, each once; `grades` gives the relevant items their grade,
1 or more, and at least one item. An item that is not graded is not relevant.

Definitions and names follow trec_eval (github.com/usnistgov/trec_eval), with which the tests compare them,
and Manning, Raghavan & Schütze, Introduction to Information Retrieval, 2008, chapter 8; for passages they
follow the chunking evaluation (see `token_scores`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import log2
from typing import TypeAlias

Grades: TypeAlias = Mapping[str, int]


def ndcg(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """Discounted gain of the first `k`, as a share of the best possible one.

    The gain is the grade itself, the discount log2(rank + 1).
    Example: ["x", "a"] with {"a": 1} and k=10 -> (1 / log2(3)) / 1 = 0.631.

    Source: Järvelin & Kekäläinen, TOIS 20(4), 2002, doi:10.1145/582415.582418.
    """
    best = _discounted_sum(sorted(grades.values(), reverse=True)[:k])
    return _discounted_sum([grades.get(item, 0) for item in ranking[:k]]) / best


def _discounted_sum(gains: Iterable[int]) -> float:
    return sum(gain / log2(rank + 1) for rank, gain in enumerate(gains, 1))


def reciprocal_rank(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """1 / rank of the first relevant item, 0 if none is among the first `k`; its mean is MRR@k.

    Example: ["x", "a"] with {"a": 1} -> 0.5.
    """
    return next((1 / rank for rank, item in enumerate(ranking[:k], 1) if item in grades), 0.0)


def average_precision(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """The mean over all relevant items of the precision at their rank; 0 beyond `k`. Its mean is MAP@k.

    Example: ["a", "x", "b"] with {"a": 1, "b": 1, "c": 1} -> (1/1 + 2/3 + 0) / 3 = 0.556.
    """
    relevant = [item in grades for item in ranking[:k]]
    hits_so_far = accumulate(relevant)
    return sum(
        n / rank for rank, (n, hit) in enumerate(zip(hits_so_far, relevant, strict=True), 1) if hit
    ) / len(grades)


def recall(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """The share of the relevant items that is among the first `k`."""
    return len(grades.keys() & set(ranking[:k])) / len(grades)


def precision(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """The share of the first `k` places that relevant items hold; an empty place counts as a miss."""
    return len(grades.keys() & set(ranking[:k])) / k


def hit_rate(ranking: Sequence[str], grades: Grades, k: int) -> float:
    """1 if any relevant item is among the first `k`, else 0."""
    return float(not grades.keys().isdisjoint(ranking[:k]))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of a source's text: `text[start:end]`."""

    source_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TokenScores:
    """How much of the expected text was found, and how much other text came with it."""

    recall: float
    precision: float
    iou: float


def token_scores(shown_parts: Sequence[Stretch], expected: Sequence[Stretch]) -> TokenScores:
    """How well the shown parts cover the expected stretches, in characters.

    With E the expected text, each character once, and F the shown text, where a character that is shown twice
    counts twice: recall |E ∩ F| / |E|, precision |E ∩ F| / |F|, and IoU |E ∩ F| / (|F| + |E| - |E ∩ F|).
    Tokens are counted by their characters, as in the published code, so that scores don't depend on a
    tokenizer.
    Example: shown 0-10, expected 5-15 -> recall 0.5, precision 0.5, IoU 1/3.

    Source: Smith & Troynikov, Evaluating Chunking Strategies for Retrieval, Chroma, 2024.
    """
    expected_at = _characters(expected)
    overlap = len(_characters(shown_parts) & expected_at)
    length = sum(part.end - part.start for part in shown_parts)
    return TokenScores(
        recall=overlap / len(expected_at),
        precision=overlap / length if length else 0.0,
        iou=overlap / (length + len(expected_at) - overlap),
    )


def _characters(stretches: Iterable[Stretch]) -> set[tuple[str, int]]:
    return {(stretch.source_id, at) for stretch in stretches for at in range(stretch.start, stretch.end)}
