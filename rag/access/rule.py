"""Who may see a source: the rule, once, as a predicate for the engine and as a function for the gate.

A principal sees a source of its tenant that has a record, if nothing of it is denied, and if everybody
in the tenant may see the source or something of it is allowed. Without a record nobody sees a source;
an empty list matches nobody; deny wins.

Names are compared in Unicode's normal form NFC. Letter case counts for what is allowed and doesn't for what
is denied, so that `deny group:HR` stops `hr`, unless `LetterCase` says otherwise.

Tables hold a record as one list of labels, which one index serves: `*` for everybody, `+user:ann` for an
entry that is allowed, `-user:ann` for one that is denied; each once more without letter case (`~+`, `~-`);
`-` alone where there are none of these.
"""

from __future__ import annotations

import unicodedata
from functools import reduce
from typing import TYPE_CHECKING

from rag.corpus import Access
from rag.filters.predicate import literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.corpus import LetterCase, Principal, Visibility

EVERYBODY, NOBODY = "*", "-"


def normal(entry: str) -> str:
    """An entry in the one form in which entries are kept and compared."""
    return unicodedata.normalize("NFC", entry)


def folded(entry: str) -> str:
    """An entry without letter case: "group:HR" and "group:hr" -> "group:hr"."""
    return normal(normal(entry).casefold())


def entries_of(principal: Principal) -> frozenset[str]:
    """What of a principal lists can name: Principal("t", "ann", {"hr"}) -> {"user:ann", "group:hr"}."""
    groups = {normal(f"group:{group}") for group in principal.groups}
    return frozenset(groups | {normal(f"user:{principal.user}")} if principal.user else groups)


def visible(principal: Principal, access: Access | None, case: LetterCase = "allow") -> bool:
    """Whether the principal sees a source of its own tenant with this record."""
    if access is None:
        return False
    mine = entries_of(principal)
    allowed = access.visibility == "tenant" or bool(named(mine, access.allow, exact=case != "never"))
    return allowed and not named(mine, access.deny, exact=case == "always")


def named(mine: frozenset[str], entries: frozenset[str], *, exact: bool) -> set[str]:
    """Those of a list's entries that name somebody of `mine`, which are a principal's."""
    if not entries:
        return set()
    if exact:
        return {entry for entry in entries if normal(entry) in mine}
    alike = {*map(folded, mine)}
    return {entry for entry in entries if folded(entry) in alike}


def narrower(*records: Access | None) -> Access | None:
    """A record by which nobody sees what any of these keeps from them; its revision is that of the first.

    Lists of several restricted records have only the entries in common, so it can be narrower than need be.
    Example: everybody but user:bob, and only group:hr -> only group:hr, but not user:bob.
    """
    return reduce(_narrower, records)


def _narrower(first: Access | None, second: Access | None) -> Access | None:
    if first is None or second is None:
        return None
    restricted = [one.allow for one in (first, second) if one.visibility == "restricted"]
    allow = frozenset.intersection(*restricted) if restricted else frozenset[str]()
    visibility: Visibility = "restricted" if restricted else "tenant"
    return Access(visibility, allow, first.deny | second.deny, first.revision)


def same(first: Access | None, second: Access | None) -> bool:
    """Whether two records let the same people see, whatever their revisions."""
    if first is None or second is None:
        return first is second
    return (first.visibility, first.allow, first.deny) == (second.visibility, second.allow, second.deny)


def is_narrowed(access: Access | None, other: Access | None) -> bool:
    """Whether a record keeps out anybody whom `other` lets in."""
    return not same(other, narrower(other, access))


def visible_to_nobody(access: Access | None) -> bool:
    """Whether no principal at all sees a source with this record."""
    return access is None or (access.visibility == "restricted" and not access.allow)


def in_words(access: Access | None) -> str:
    """Who sees a source, for people: "restricted to group:hr", "open to the tenant but never to user:bob"."""
    if access is None:
        return "visible to nobody: it has no access record"
    denied = f" but never to {', '.join(sorted(access.deny))}" if access.deny else ""
    if access.visibility == "tenant":
        return f"open to the tenant{denied}"
    return f"restricted to {', '.join(sorted(access.allow)) or 'nobody'}{denied}"


def labels_of(access: Access | None) -> list[str]:
    """A record as tables hold it for the predicate: allow group:hr -> ["+group:hr", "~+group:hr"]."""
    if access is None:
        return [NOBODY]
    allowed = [EVERYBODY] if access.visibility == "tenant" else _both("+", access.allow)
    return allowed + _both("-", access.deny) or [NOBODY]


def predicate(principal: Principal, case: LetterCase = "allow") -> str:
    """The rule in the engine's SQL, whole in parentheses, for the labels that tables hold."""
    mine = entries_of(principal)
    allowed = _hold([EVERYBODY, *_signed("+", mine, exact=case != "never")])
    denied = _signed("-", mine, exact=case == "always")
    return f"({allowed} AND (NOT {_hold(denied)}))" if mine else allowed


def _both(sign: str, entries: Iterable[str]) -> list[str]:
    entries = list(entries)
    return [*_signed(sign, entries, exact=True), *_signed(sign, entries, exact=False)]


def _signed(sign: str, entries: Iterable[str], *, exact: bool) -> list[str]:
    if exact:
        return [f"{sign}{entry}" for entry in sorted({*map(normal, entries)})]
    return [f"~{sign}{entry}" for entry in sorted({*map(folded, entries)})]


def _hold(labels: Iterable[str]) -> str:
    return f"(array_has_any(labels, [{', '.join(map(literal, labels))}]))"
