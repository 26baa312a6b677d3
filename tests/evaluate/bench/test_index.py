from __future__ import annotations

import pytest

from rag.evaluate.bench.index import filters, recall


@pytest.mark.parametrize(
    ("found", "exact", "share"),
    [
        (["a", "b"], ["b", "a"], 1),
        (["a", "x"], ["a", "b"], 0.5),
        (["a"], ["a", "b", "c", "d"], 0.25),
        ([], ["a"], 0),
        (["x"], [], 1),
    ],
)
def test_recall_is_the_share_of_the_exact_answer_that_was_found(
    found: list[str], exact: list[str], share: float
) -> None:
    assert recall(found, exact) == share


def test_filters_keep_the_shares_that_they_are_named_for() -> None:
    made = filters([f"source-{number}" for number in range(10_000)])
    assert made.pop("") == "(true)"
    assert made.pop("/filter 50 %") == "seq < 5"
    assert {name: str(where).count("'source-") for name, where in made.items()} == {
        "/filter 1 %": 100,
        "/filter 0.01 %": 1,
    }
