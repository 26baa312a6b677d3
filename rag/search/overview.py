"""What a principal may read, in numbers: documents, dates, and the most frequent values of declared fields.

Everything is counted over the sources that have passed the gate, one by one. So nothing here depends on a
source that the principal can't read, by its rights or by its bindings.
"""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from rag.languages import LANGUAGE, primary

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.corpus import Collection, Principal
    from rag.search.view import View

Single: TypeAlias = "str | int | float | bool | datetime"
Versions: TypeAlias = "tuple[object, ...]"

MAX_COUNTED = 50_000  # sources of a collection, in 1.5 s of CPU
MAX_LANGUAGES = 3
RARE = 0.05  # share of the documents below which a language isn't worth telling
MAX_VALUES = 1_000  # values of a field that are kept
KEPT = 1_000  # overviews; one takes some KB


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of a declared field. An element of a list is a value of its own.

    `frequent` are the values with the number of sources that have them, most frequent first: all of them if
    they are `distinct` at most `MAX_VALUES`. `least` and `greatest` are None for strings and booleans.
    """

    frequent: tuple[tuple[Single, int], ...] = ()
    distinct: int = 0
    least: Single | None = None
    greatest: Single | None = None


@dataclass(frozen=True, slots=True)
class Holding:
    """What a principal may read of a collection. `first` and `last` are dates of its documents.

    `languages` are the tags of the most frequent languages of these documents, as far as they are known. The
    `collection` is `without_notes`.

    If there are `more` than `MAX_COUNTED` sources, so many were counted, and nothing is said of their dates
    and values.
    """

    collection: Collection
    sources: int
    first: datetime | None
    last: datetime | None
    fields: Mapping[str, FieldValues]
    more: bool = False
    languages: tuple[str, ...] = ()


def without_notes(collection: Collection) -> Collection:
    """A collection without what ingestion notes of all of its documents, which also tells of unreadable ones.

    These are the languages, whether any of them expires, and the scale of their similarities.
    """
    return replace(collection, languages=(), expiring=False, calibration=None)


async def counted(view: View) -> Holding:
    """What the view's principal may read of its collection."""
    collection = without_notes(view.table.collection)
    sources, dates = 0, set[datetime]()
    tags: Counter[str] = Counter()
    values: dict[str, Counter[Single]] = {name: Counter() for name in collection.fields}
    async with aclosing(view.walk()) as walk:
        async for some in walk:
            for stored in some:
                sources += 1
                dates |= {stored.source.date} if stored.source.date else set()
                tags[primary(stored.source.metadata.get(LANGUAGE, ""))] += 1
                for name, value in stored.fields.items():
                    values[name].update(set(value) if isinstance(value, tuple) else [value])
            dates = {min(dates), max(dates)} if dates else dates
            if sources > MAX_COUNTED:
                nothing = dict.fromkeys(values, FieldValues())
                return Holding(collection, MAX_COUNTED, None, None, nothing, more=True)
    fields = {name: _field_values(counter) for name, counter in values.items()}
    first, last = min(dates, default=None), max(dates, default=None)
    return Holding(collection, sources, first, last, fields, languages=_frequent(tags))


def _frequent(tags: Counter[str]) -> tuple[str, ...]:
    """The most frequent languages, those of a few documents left out."""
    least = RARE * tags.total()
    del tags[""]
    ranked = sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(tag for tag, count in ranked[:MAX_LANGUAGES] if count >= least)


def _field_values(counted: Counter[Single]) -> FieldValues:
    ranked = sorted(counted.items(), key=lambda pair: (-pair[1], str(pair[0])))
    ordered = [value for value in counted if not isinstance(value, str | bool)]
    least, greatest = (min(ordered), max(ordered)) if ordered else (None, None)
    return FieldValues(tuple(ranked[:MAX_VALUES]), len(counted), least, greatest)


class Overviews:
    """The latest overviews, by all that decides what a principal may read.

    Counting costs 35 us a source, and hosts list the tools in each session.
    """

    def __init__(self) -> None:
        self._kept: dict[Principal, tuple[Versions, tuple[Holding, ...]]] = {}

    def known(self, principal: Principal, versions: Versions) -> tuple[Holding, ...] | None:
        """The overview that was made of exactly these versions of the tables."""
        made, overview = self._kept.get(principal, ((), ()))
        return overview if made == versions and versions else None

    def keep(self, principal: Principal, versions: Versions, overview: tuple[Holding, ...]) -> None:
        """Keep an overview, in place of the oldest one if there are too many."""
        self._kept.pop(principal, None)
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[principal] = versions, overview
