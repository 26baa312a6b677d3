"""Who may see a source: the rule, once, as a predicate for the engine and as a function for the gate.

A principal sees a source of its tenant that has a record, if nothing of it is denied, and if everybody
in the tenant may see the source or something of it is allowed. Without a record nobody sees a source;
an empty list matches nobody; deny wins.

Tables hold a record as one list of labels, which one index serves: `*` for everybody, `+user:ann` for an
entry that is allowed, `-user:ann` for one that is denied; `-` alone where there are none of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.filters.predicate import literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.records import Access, Principal

EVERYBODY, NOBODY = "*", "-"


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


def labels_of(access: Access | None) -> list[str]:
    """A record as tables hold it for the predicate: allow group:hr, deny user:bob -> +group:hr, -user:bob."""
    if access is None:
        return [NOBODY]
    allowed = [EVERYBODY] if access.visibility == "tenant" else _signed("+", access.allow)
    return allowed + _signed("-", access.deny) or [NOBODY]


def predicate(principal: Principal) -> str:
    """The rule in the engine's SQL, whole in parentheses, for the labels that tables hold."""
    mine = entries_of(principal)
    allowed = _hold([EVERYBODY, *_signed("+", mine)])
    return f"({allowed} AND (NOT {_hold(_signed('-', mine))}))" if mine else allowed


def _signed(sign: str, entries: Iterable[str]) -> list[str]:
    return [f"{sign}{entry}" for entry in sorted(entries)]


def _hold(labels: Iterable[str]) -> str:
    return f"(array_has_any(labels, [{', '.join(map(literal, labels))}]))"
