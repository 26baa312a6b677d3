"""What a principal may read, in numbers, and in a few lines for the descriptions of tools.

Everything is counted over the sources that have passed the gate, one by one. So nothing here depends on a
source that the principal can't read, by its rights or by its bindings.

Hosts read the lines as the operator's own words, and some put them before the user's. But what documents
state is untrusted. So no title and no text of a document stands here, and of its fields only values that can
hardly be an order: numbers, dates, and labels of at most two words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from rag.search.reply.untrusted import label
from rag.text.languages import LANGUAGE, is_known, name_of, primary

if TYPE_CHECKING:
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
class CollectionOverview:
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


async def collection_overview(view: View) -> CollectionOverview:
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
                return CollectionOverview(collection, MAX_COUNTED, None, None, nothing, more=True)
    fields = {name: _field_values(counter) for name, counter in values.items()}
    first, last = min(dates, default=None), max(dates, default=None)
    return CollectionOverview(collection, sources, first, last, fields, languages=_frequent(tags))


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


class OverviewCache:
    """The latest overviews, by all that decides what a principal may read.

    Counting costs 35 us a source, and hosts list the tools in each session.
    """

    def __init__(self) -> None:
        self._kept: dict[Principal, tuple[Versions, tuple[CollectionOverview, ...]]] = {}

    def known(self, principal: Principal, versions: Versions) -> tuple[CollectionOverview, ...] | None:
        """The overview that was made of exactly these versions of the tables."""
        made, overview = self._kept.get(principal, ((), ()))
        return overview if made == versions and versions else None

    def keep(
        self, principal: Principal, versions: Versions, overview: tuple[CollectionOverview, ...]
    ) -> None:
        """Keep an overview, in place of the oldest one if there are too many."""
        self._kept.pop(principal, None)
        if len(self._kept) >= KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[principal] = versions, overview


FEW = 12  # values of a field that are worth listing
MAX_VALUE_CHARS = 24
_LABEL = re.compile(r"[\w.+#/&-]+( [\w.+#/&-]+)?")
FULL, NO_VALUES, NO_FIELDS, NAMES = range(4)
"""How much is said of each collection: less where it would not fit."""


def overview_text(
    overview: Sequence[CollectionOverview], max_chars: int, *, fields: bool = True, values: bool = True
) -> str:
    """The collections with what they hold, largest first, in at most `max_chars`; empty if there are none.

    If not all fits, the values of fields are left out first, then the fields, then the descriptions; at last
    the smallest collections, and the text says how many. Without `values`, no value of a field is
    shown; without `fields`, no field.
    """
    if not overview:
        return ""
    ranked = sorted(overview, key=lambda one: (-one.sources, one.collection.name))
    total = sum(one.sources for one in ranked)
    head = f"You can search {_documents(total, more=any(one.more for one in ranked))} here:"
    most = NO_FIELDS if not fields else NO_VALUES if not values else FULL
    for detail in range(most, NAMES + 1):
        lines = [head, *(_line(one, detail) for one in ranked)]
        if len(text := "\n".join(lines)) <= max_chars:
            return text
    while len(lines) > 1:
        lines.pop()
        more = f"- and {len(ranked) + 1 - len(lines)} more collections"
        if len(text := "\n".join([*lines, more])) <= max_chars:
            return text
    return ""


def _line(holding: CollectionOverview, detail: int) -> str:
    """A collection on a line: "- wiki: How we work (https://…). 12 documents, 2019-05-01 to 2024-01-31."."""
    collection = holding.collection
    link = f" ({collection.link})" if collection.link else ""
    described = (
        f"{label(collection.description).rstrip('.')}{link}. " if collection.description or link else ""
    )
    facts = [_documents(holding.sources, more=holding.more)]
    if holding.first and holding.last:
        facts.append(_range(holding.first, holding.last))
    if languages := _languages(holding):
        facts.append(languages)
    line = f"- {collection.name}: {described.lstrip() if detail < NAMES else ''}{', '.join(facts)}."
    fields = [_field(name, one, detail) for name, one in holding.fields.items()] if detail < NO_FIELDS else []
    return f"{line} Fields: {'; '.join(fields)}." if fields else line


def _languages(holding: CollectionOverview) -> str:
    """The languages of the documents; where none is known, the one that the collection is said to have."""
    if told := [name_of(tag) for tag in holding.languages if is_known(tag)]:
        *others, last = told
        return f"{', '.join(others)} and {last}" if others else last
    chosen = holding.collection.language
    return "" if chosen in {"auto", "none"} else chosen


def _field(name: str, values: FieldValues, detail: int) -> str:
    if detail == NO_VALUES:
        return name
    if shown := shown_values(values):
        return f"{name}: {', '.join(f'{_shown(value)} ({count})' for value, count in shown)}"
    if values.least is not None and values.greatest is not None:
        return f"{name}: {_range(values.least, values.greatest)}"
    return name


def shown_values(values: FieldValues) -> list[tuple[Single, int]]:
    """The values with their counts, most frequent first, if they are few; only those that are plain."""
    if values.distinct > FEW:
        return []
    return [(value, count) for value, count in values.frequent if is_plain(value)]


def is_plain(value: Single) -> bool:
    """Whether a value can stand where orders are read: a number, a date, or a label of one or two words."""
    if isinstance(value, str):
        return len(value) <= MAX_VALUE_CHARS and bool(_LABEL.fullmatch(value)) and label(value) == value
    return len(str(value)) <= 2 * MAX_VALUE_CHARS


def _shown(value: Single) -> str:
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return value.date().isoformat()
    return str(value)


def _range(least: Single, greatest: Single) -> str:
    first, last = _shown(least), _shown(greatest)
    return first if first == last else f"{first} to {last}"


def _documents(count: int, *, more: bool) -> str:
    return f"{'over ' if more else ''}{count:,} document{'s' if count != 1 else ''}"
