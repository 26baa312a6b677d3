from __future__ import annotations

import json

import pytest

from rag.bench.access import GUEST, SHARES, keeping, worst
from rag.bench.stock import DENIED_GROUP, FIELDS, SOURCE_CHUNKS
from rag.errors import InvalidRequestError
from rag.filters.matches import matches
from rag.filters.parse import parse


def test_filters_keep_the_shares_that_they_are_named_for() -> None:
    sources = 10_000
    for share, kept in zip(SHARES.values(), (5_000, 100, 1), strict=True):
        tree = parse(keeping(share, sources * SOURCE_CHUNKS), FIELDS)
        assert sum(matches(tree, {"number": number, "tags": ("old",)}) for number in range(sources)) == kept
    assert DENIED_GROUP in GUEST.groups


def test_the_worst_filter_is_allowed_and_one_more_condition_is_not() -> None:
    assert len(json.dumps(worst())) > 1_000_000
    parse(worst(), FIELDS)
    with pytest.raises(InvalidRequestError):
        parse({"$and": [worst(), {"number": 1}]}, FIELDS)
