"""Who gains and who loses documents by changes of access records, for a person to look at beforehand."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.corpus import Access

EVERYBODY = "everybody in the tenant"


@dataclass(frozen=True, slots=True)
class Change:
    """The documents that somebody can see from now on, and those that they can't see any more."""

    gains: list[str] = field(default_factory=list)
    loses: list[str] = field(default_factory=list)


def access_changes(documents: Iterable[tuple[str, Access | None, Access | None]]) -> dict[str, Change]:
    """Who gains or loses which documents, given as names with their access before and after; None is nobody.

    An entry of an access list counts by itself, as if its user or group were in no other. Where everybody in
    the tenant gains or loses a document, those who share that fate are not named as well, and those who don't
    are excepted. Example: ("a", everybody, only group:hr) -> everybody in the tenant but group:hr loses a.
    """
    changes: dict[str, Change] = defaultdict(Change)
    for name, before, after in documents:
        all_before, all_after = (one is not None and one.visibility == "tenant" for one in (before, after))
        entries = sorted({entry for one in (before, after) if one for entry in one.allow | one.deny})
        if all_before != all_after:
            others = [entry for entry in entries if _lets_in(after, entry) != all_after]
            who = f"{EVERYBODY} but {', '.join(others)}" if others else EVERYBODY
            _note(changes[who], name, gains=all_after)
        for entry in entries:
            could, can = _lets_in(before, entry), _lets_in(after, entry)
            if could != can and (could, can) != (all_before, all_after):
                _note(changes[entry], name, gains=can)
    return dict(changes)


def _note(change: Change, name: str, *, gains: bool) -> None:
    (change.gains if gains else change.loses).append(name)


def _lets_in(access: Access | None, entry: str) -> bool:
    if access is None or entry in access.deny:
        return False
    return access.visibility == "tenant" or entry in access.allow
