from __future__ import annotations

import json

import pytest

from rag.errors import InvalidRequestError
from rag.filters.evaluators import matches
from rag.filters.grammar import parse_filter
from tests.bench.index import GUEST, SHARES, keeping, recall, worst
from tests.bench.stock import DENIED_GROUP, FIELDS, SOURCE_CHUNKS

pytestmark = pytest.mark.slow


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
    sources = 10_000
    for share, kept in zip(SHARES.values(), (5_000, 100, 1), strict=True):
        tree = parse_filter(keeping(share, sources * SOURCE_CHUNKS), FIELDS)
        assert sum(matches(tree, {"number": number, "tags": ("old",)}) for number in range(sources)) == kept
    assert DENIED_GROUP in GUEST.groups


def test_the_worst_filter_is_allowed_and_one_more_condition_is_not() -> None:
    assert len(json.dumps(worst())) > 60_000
    parse_filter(worst(), FIELDS)
    with pytest.raises(InvalidRequestError):
        parse_filter({"$and": [worst(), {"number": 1}]}, FIELDS)
