"""Who gains and who loses by a change of access."""

from __future__ import annotations

import pytest

from rag.access.rule import EVERYBODY_IN_TENANT, access_changes
from rag.corpus import Access

TENANT = Access("tenant")
HR = Access("restricted", frozenset({"group:hr"}))
NOT_BOB = Access("tenant", deny=frozenset({"user:bob"}))


@pytest.mark.parametrize(
    ("before", "after", "gains", "loses"),
    [
        (None, TENANT, {EVERYBODY_IN_TENANT}, set()),
        (TENANT, None, set(), {EVERYBODY_IN_TENANT}),
        (TENANT, TENANT, set(), set()),
        (None, HR, {"group:hr"}, set()),
        (TENANT, HR, set(), {f"{EVERYBODY_IN_TENANT} but group:hr"}),
        (NOT_BOB, HR, set(), {f"{EVERYBODY_IN_TENANT} but group:hr"}),
        (
            NOT_BOB,
            Access("restricted", frozenset({"user:bob"})),
            {"user:bob"},
            {f"{EVERYBODY_IN_TENANT} but user:bob"},
        ),
        (HR, TENANT, {EVERYBODY_IN_TENANT}, set()),
        (TENANT, NOT_BOB, set(), {"user:bob"}),
        (NOT_BOB, TENANT, {"user:bob"}, set()),
        (HR, NOT_BOB, {f"{EVERYBODY_IN_TENANT} but user:bob"}, set()),
        (HR, Access("restricted", frozenset({"group:it"})), {"group:it"}, {"group:hr"}),
        (HR, Access("restricted", HR.allow, HR.allow), set(), {"group:hr"}),
    ],
)
def test_each_is_named_once(
    before: Access | None, after: Access | None, gains: set[str], loses: set[str]
) -> None:
    changes = access_changes([("a", before, after)])
    assert {who for who, change in changes.items() if change.gains} == gains
    assert {who for who, change in changes.items() if change.loses} == loses
