from __future__ import annotations

import pytest

from rag.bench.index import recall


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
