"""Who may see a source: the rule, once, as a predicate for the engine and as a function for the gate.

A principal sees a source of its tenant that has a record, if nothing of it is denied, and if everybody
in the tenant may see the source or something of it is allowed. Without a record nobody sees a source;
an empty list matches nobody; deny wins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.filters.predicate import literal

if TYPE_CHECKING:
    from rag.records import Access, Principal


def entries_of(principal: Principal) -> frozenset[str]:
    """What of a principal lists can name: Principal("t", "ann", {"hr"}) -> {"user:ann", "group:hr"}."""
    groups = {f"group:{group}" for group in principal.groups}
    return frozenset(groups | {f"user:{principal.user}"} if principal.user else groups)


def visible(principal: Principal, access: Access | None) -> bool:
    """Whether the principal sees a source of its own tenant with this record."""
    if access is None:
        return False
    mine = entries_of(principal)
    allowed = access.visibility == "tenant" or not mine.isdisjoint(access.allow)
    return allowed and mine.isdisjoint(access.deny)


def predicate(principal: Principal) -> str:
    """The rule in the engine's SQL, whole in parentheses, for the copy of the record that tables hold."""
    mine = ", ".join(map(literal, sorted(entries_of(principal))))
    everybody = "coalesce(visibility = 'tenant', false)"
    if not mine:
        return f"({everybody})"
    allowed = f"coalesce((visibility = 'restricted') AND array_has_any(allow, [{mine}]), false)"
    return f"(({everybody} OR {allowed}) AND NOT coalesce(array_has_any(deny, [{mine}]), false))"
