"""What a principal may read: as numbers, as a few lines for tool descriptions, and as a file.

Only sources that have passed the gate are counted, so nothing here depends on one that the principal can't
read by its rights or bindings.

Hosts present the lines as the operator's own words, and some put them before the user's. But documents are
untrusted. So no title or text of a document is shown, and of its fields only values that can hardly be an
order: numbers, dates, and labels of at most two words.

The file is for servers that haven't opened the engine yet: hosts list the tools at once, and the engine takes
half a second to import. So the commands that change a desk write the counts of its documents to the file,
apart for each access record (`overview_content`), and a server adds up what its caller may read
(`kept_overview`). The file is valid only for exactly the table versions that it was made from, which a server
compares each time: after any later commit, above all a revocation, the server asks the engine. It also does
where counts don't suffice: for attached tables, documents that expire, and bindings with a filter.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rag.access.rule import visible, walls
from rag.corpus import NO_VECTORS, Access, Collection, FieldType, LetterCase, Principal, Value
from rag.home import newest_version, overview_file
from rag.search.reply.untrusted import label
from rag.text.languages import LANGUAGE, is_known, name_of, primary

if TYPE_CHECKING:
    from rag.search.view import View
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.desk_reader import DeskReader


Single: TypeAlias = "str | int | float | bool | datetime"

MAX_COUNTED = 50_000  # sources of a collection, in 1.5 s of CPU
MAX_LANGUAGES = 3
RARE = 0.05  # share of the documents below which a language isn't listed
MAX_VALUES = 1_000  # values of a field that are kept
MAX_FOLDERS = 100  # at the top of a collection; if there are more, the largest few say little
SHOWN_FOLDERS = 5


@dataclass(frozen=True, slots=True)
class FieldValues:
    """The values of a declared field. Each element of a list counts as a value.

    `frequent` has up to `MAX_VALUES` of the `distinct` values with their numbers of sources, most frequent
    first. `least` and `greatest` are None for strings and booleans.
    """

    frequent: tuple[tuple[Single, int], ...] = ()
    distinct: int = 0
    least: Single | None = None
    greatest: Single | None = None


@dataclass(frozen=True, slots=True)
class CollectionOverview:
    """What a principal may read of a collection. `first` and `last` are dates of its documents.

    `languages` are the tags of the most frequent languages of these documents, and `folders` the largest
    folders at the top with their numbers of documents. The `collection` is `without_notes`.

    A collection that `is_retrieved` is kept in another system, which doesn't list its documents. If it
    `has_more` than `MAX_COUNTED` sources, `sources` is that limit, and dates and values are left out.
    """

    collection: Collection
    sources: int
    first: datetime | None
    last: datetime | None
    fields: Mapping[str, FieldValues]
    has_more: bool = False
    languages: tuple[str, ...] = ()
    folders: tuple[tuple[str, int], ...] = ()
    is_retrieved: bool = False


def without_notes(collection: Collection) -> Collection:
    """A collection without statistics of all its documents, which would also reveal unreadable ones.

    These are the languages, whether any document expires, and the calibration of similarities.
    """
    return replace(collection, languages=(), expiring=False, calibration=None)


async def collection_overview(view: View) -> CollectionOverview:
    """The overview of a view's collection, for its principal."""
    collection = without_notes(view.collection)
    if view.table.retrieves:
        fields = dict.fromkeys(collection.fields, FieldValues())
        return CollectionOverview(collection, 0, None, None, fields, is_retrieved=True)
    tally = Tally()
    async with aclosing(view.walk()) as walk:
        async for batch in walk:
            for stored in batch:
                source = stored.source
                tally.count(source.name, source.date, source.metadata.get(LANGUAGE, ""), stored.fields)
            if tally.sources > MAX_COUNTED:  # values of a part would pass for all values
                break
    return tally.overview(collection)


@dataclass(slots=True)
class Tally:
    """Running totals of documents: their number, first and last date, languages, top folders, and values."""

    sources: int = 0
    dates: set[datetime] = field(default_factory=set)
    languages: Counter[str] = field(default_factory=Counter)
    folders: Counter[str] = field(default_factory=Counter)
    values: defaultdict[str, Counter[Single]] = field(default_factory=lambda: defaultdict(Counter))

    def count(self, path: str, date: datetime | None, language: str, fields: Mapping[str, Value]) -> None:
        """Count a document. `language` is a tag."""
        self.sources += 1
        if date:
            self.dates = {min(date, *self.dates), max(date, *self.dates)} if self.dates else {date}
        self.languages[primary(language)] += 1
        path = path.strip("/")
        self.folders[path.partition("/")[0] if "/" in path else ""] += 1
        for name, value in fields.items():
            self.values[name].update(set(value) if isinstance(value, tuple) else [value])

    def overview(
        self, collection: Collection, fields: Mapping[str, FieldValues] | None = None
    ) -> CollectionOverview:
        """The overview of a collection of these documents, with the counted values, or those of `fields`."""
        if self.sources > MAX_COUNTED:
            nothing = dict.fromkeys(collection.fields, FieldValues())
            return CollectionOverview(collection, MAX_COUNTED, None, None, nothing, has_more=True)
        if fields is None:
            fields = {name: values_of_field(self.values[name]) for name in collection.fields}
        first, last = min(self.dates, default=None), max(self.dates, default=None)
        languages, folders = _frequent_languages(self.languages), _largest_folders(self.folders)
        return CollectionOverview(
            collection, self.sources, first, last, fields, languages=languages, folders=folders
        )


def _largest_folders(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    """The largest folders whose names are safe where orders are read; none if there is one, or too many."""
    if not 1 < len(counts) <= MAX_FOLDERS:
        return ()
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple((name, count) for name, count in ranked if name and is_plain(name))[:SHOWN_FOLDERS]


def _frequent_languages(tags: Counter[str]) -> tuple[str, ...]:
    """The most frequent languages, without languages of few documents."""
    least = RARE * tags.total()
    del tags[""]
    ranked = sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(tag for tag, count in ranked[:MAX_LANGUAGES] if count >= least)


def values_of_field(counted: Counter[Single]) -> FieldValues:
    """The values of a field; `counted` has each once for each of its sources."""
    ranked = sorted(counted.items(), key=lambda pair: (-pair[1], str(pair[0])))
    ordered = [value for value in counted if not isinstance(value, str | bool)]
    least, greatest = (min(ordered), max(ordered)) if ordered else (None, None)
    return FieldValues(tuple(ranked[:MAX_VALUES]), len(counted), least, greatest)


RETRIEVED = "kept in another system, which is searched by words and lists no documents"
FEW = 12  # values of a field that are worth listing
MAX_VALUE_CHARS = 24
_LABEL = re.compile(r"[\w.+#/&-]+( [\w.+#/&-]+)?")
FULL, NO_VALUES, NO_FIELDS, NAMES = range(4)
"""Levels of detail, from the most to the least."""


def overview_text(
    overview: Sequence[CollectionOverview], max_chars: int, *, fields: bool = True, values: bool = True
) -> str:
    """The collections with their contents, largest first, in at most `max_chars`; empty without collections.

    If the text doesn't fit, the values of fields are left out first, then the fields, the descriptions, and
    finally the smallest collections, whose number is stated. Without `values`, no value of a field is shown;
    without `fields`, no field.
    """
    if not overview:
        return ""
    ranked = sorted(overview, key=lambda summary: (-summary.sources, summary.collection.name))
    total = sum(collection.sources for collection in ranked)
    documents = _documents(total, is_more=any(collection.has_more for collection in ranked))
    head = f"You can search {documents} here:" if total else "You can search here:"
    fullest = NO_FIELDS if not fields else NO_VALUES if not values else FULL
    for detail in range(fullest, NAMES + 1):
        lines = [head, *(_line(collection, detail) for collection in ranked)]
        if len(text := "\n".join(lines)) <= max_chars:
            return text
    while len(lines) > 1:  # the first line stays, and the last collections are the smallest
        lines.pop()
        omitted = f"- and {len(ranked) + 1 - len(lines)} more collections"
        if len(text := "\n".join([*lines, omitted])) <= max_chars:
            return text
    return ""


def _line(summary: CollectionOverview, detail: int) -> str:
    """A collection on a line: "- wiki: How we work (https://…). 12 documents, 2019-05-01 to 2024-01-31."."""
    collection = summary.collection
    link = f" ({collection.link})" if collection.link else ""
    described = (
        f"{label(collection.description).rstrip('.')}{link}. " if collection.description or link else ""
    )
    facts = [RETRIEVED if summary.is_retrieved else _documents(summary.sources, is_more=summary.has_more)]
    if summary.folders and detail < NAMES:
        facts[0] += f" ({', '.join(f'{name} {count:,}' for name, count in summary.folders)})"
    if summary.first and summary.last:
        facts.append(_range(summary.first, summary.last))
    if not summary.is_retrieved and (languages := _languages(summary)):
        facts.append(languages)
    line = f"- {collection.name}: {described.lstrip() if detail < NAMES else ''}{', '.join(facts)}."
    fields = (
        [_field(name, field_values, detail) for name, field_values in summary.fields.items()]
        if detail < NO_FIELDS
        else []
    )
    return f"{line} Fields: {'; '.join(fields)}." if fields else line


def _languages(summary: CollectionOverview) -> str:
    """The languages of the documents, or else the configured one of the collection."""
    if languages := [name_of(tag) for tag in summary.languages if is_known(tag)]:
        *former, last = languages
        return f"{', '.join(former)} and {last}" if former else last
    chosen = summary.collection.language
    return "" if chosen in {"auto", "none"} else chosen


def _field(name: str, values: FieldValues, detail: int) -> str:
    if detail == NO_VALUES:
        return name
    if listed := plain_values(values):
        return f"{name}: {', '.join(f'{_as_text(value)} ({count})' for value, count in listed)}"
    if values.least is not None and values.greatest is not None:
        return f"{name}: {_range(values.least, values.greatest)}"
    return name


def plain_values(values: FieldValues) -> list[tuple[Single, int]]:
    """The plain values with their counts, most frequent first; empty if there are more than `FEW`."""
    if values.distinct > FEW:
        return []
    return [(value, count) for value, count in values.frequent if is_plain(value)]


def is_plain(value: Single) -> bool:
    """Whether a value is safe where orders are read: a number, a date, or a label of one or two words."""
    if isinstance(value, str):
        return len(value) <= MAX_VALUE_CHARS and bool(_LABEL.fullmatch(value)) and label(value) == value
    return len(str(value)) <= 2 * MAX_VALUE_CHARS


def _as_text(value: Single) -> str:
    match value:
        case bool():
            return str(value).lower()
        case datetime():
            return value.date().isoformat()
    return str(value)


def _range(least: Single, greatest: Single) -> str:
    first, last = _as_text(least), _as_text(greatest)
    return first if first == last else f"{first} to {last}"


def _documents(count: int, *, is_more: bool) -> str:
    return f"{'over ' if is_more else ''}{count:,} document{'s' if count != 1 else ''}"


FORMAT = 2
MAX_BYTES = 256 << 10  # read within a few ms; a desk with more different access records has no file


def kept_overview(
    data: Path, principal: Principal, letter_case: LetterCase
) -> tuple[CollectionOverview, ...] | None:
    """The result of `Desk.overview` from the file; None if the file isn't valid or doesn't suffice.

    Fields have only the values that an overview shows, up to `FEW`.
    """
    by_collection = _current(data, principal.tenant)
    if by_collection is None:
        return None
    overview = []
    for collection, counted in by_collection:
        conditions = walls(principal.bindings, collection)
        if conditions:  # counts by access record don't tell how many satisfy a binding's filter
            return None
        readable = [part for part in counted if visible(principal, part.access, letter_case)]
        if readable and conditions is not None:
            overview.append(_summary(collection, readable))
    return tuple(overview)


def is_current(data: Path, tenant: str) -> bool:
    """Whether the file was made from the newest versions of the tables."""
    return _current(data, tenant) is not None


def _current(data: Path, tenant: str) -> list[tuple[Collection, list[_CountedDocuments]]] | None:
    """The collections of the file with their documents, if the tables still have the versions in it."""
    try:
        saved = json.loads(overview_file(data, tenant).read_bytes())
        if saved["format"] != FORMAT or saved["versions"] != _versions(data, saved["versions"]):
            return None
        collections = [_collection(tenant, entry["definition"]) for entry in saved["collections"]]
        return [
            (collection, [_counts_from_json(stored, collection.fields) for stored in entry["counted"]])
            for collection, entry in zip(collections, saved["collections"], strict=True)
        ]
    except (OSError, ValueError, KeyError, TypeError):  # missing or incomplete
        return None


def _versions(data: Path, tables: Iterable[str]) -> dict[str, list[object]]:
    """The newest version of each table.

    Raises:
        OSError: a table has no version.
    """
    return {name: newest_version(data / "tables" / f"{name}.lance") for name in tables}


@dataclass(slots=True)
class _CountedDocuments:
    """The documents of a collection with the same access. Fields with more than `FEW` values list none."""

    access: Access
    tally: Tally
    fields: dict[str, FieldValues]


def _summary(collection: Collection, parts: Sequence[_CountedDocuments]) -> CollectionOverview:
    """The documents of all parts, as `collection_overview` has them."""
    total = Tally()
    for part in parts:
        total.sources += part.tally.sources
        total.dates |= part.tally.dates
        total.languages.update(part.tally.languages)
        total.folders.update(part.tally.folders)
    fields = {name: _merged_values([part.fields[name] for part in parts]) for name in collection.fields}
    return total.overview(collection, fields)


def _merged_values(parts: Sequence[FieldValues]) -> FieldValues:
    """The values of a field in all parts; none of them if there are more than `FEW`."""
    counts: Counter[Single] = Counter()
    for part in parts:
        counts.update(dict(part.frequent))
    distinct = max(len(counts), *(part.distinct for part in parts))
    ends: list[Any] = [end for part in parts for end in (part.least, part.greatest) if end is not None]
    return FieldValues(
        values_of_field(counts).frequent if distinct <= FEW else (),  # of a part, they would be some only
        distinct,
        min(ends, default=None),
        max(ends, default=None),
    )


async def overview_content(reader: DeskReader, data: Path, tenant: str) -> bytes | None:
    """The content of a tenant's file; None if there can be none, or the desk was changed meanwhile.

    Raises:
        RefdeskError: the desk can't be read.
    """
    collections = await reader.collections(tenant)
    if any(collection.attached or collection.keep_days or collection.expiring for collection in collections):
        return None
    tables = [await reader.open(collection) for collection in collections]
    names = sorted({name for table in tables for name in table.table_names} | {reader.catalog_table})
    # The versions are read before and after the counts. A commit in between would make the file say something
    # that was never true, with a version that servers believe.
    versions = _versions(data, names)
    if await reader.collections(tenant) != collections:  # changed before the versions were read
        return None
    entries = [
        {"definition": _definition(table.collection), "counted": await _counted_entries(table)}
        for table in tables
    ]
    saved = {"format": FORMAT, "versions": versions, "collections": entries}
    content = json.dumps(saved, default=datetime.isoformat).encode()
    return content if len(content) <= MAX_BYTES and versions == _versions(data, names) else None


async def _counted_entries(table: CollectionReader) -> list[dict[str, Any]]:
    """The sources of a table, counted by their access, as JSON has it."""
    tallies: defaultdict[Access, Tally] = defaultdict(Tally)
    for place in await table.places("(true)", "date"):
        if place.access:
            tally = tallies[replace(place.access, revision=0)]  # who may see it is the same in any revision
            tally.count(place.path, place.date, place.language, place.fields)
    return [_counts_as_json(access, tally, table.collection.fields) for access, tally in tallies.items()]


def _counts_as_json(access: Access, tally: Tally, declared: Iterable[str]) -> dict[str, Any]:
    fields = {name: values_of_field(tally.values[name]) for name in declared}
    return {
        "visibility": access.visibility,
        "allow": sorted(access.allow),
        "deny": sorted(access.deny),
        "sources": tally.sources,
        "dates": sorted(tally.dates),
        "languages": dict(tally.languages),
        "folders": dict(tally.folders.most_common(MAX_FOLDERS + 1)),  # that there are too many
        "fields": {
            name: {
                "values": values.frequent if values.distinct <= FEW else (),
                "distinct": values.distinct,
                "ends": [end for end in (values.least, values.greatest) if end is not None],
            }
            for name, values in fields.items()
        },
    }


def _counts_from_json(stored: Mapping[str, Any], declared: Mapping[str, FieldType]) -> _CountedDocuments:
    access = Access(stored["visibility"], frozenset(stored["allow"]), frozenset(stored["deny"]))
    fields = {}
    for name, of_field in stored["fields"].items():
        is_date = declared[name] == "datetime"
        least, greatest = [_value(end, is_date=is_date) for end in of_field["ends"]] or (None, None)
        frequent = tuple((_value(value, is_date=is_date), count) for value, count in of_field["values"])
        fields[name] = FieldValues(frequent, of_field["distinct"], least, greatest)
    dates = {datetime.fromisoformat(date) for date in stored["dates"]}
    languages, folders = Counter(stored["languages"]), Counter(stored["folders"])
    return _CountedDocuments(access, Tally(stored["sources"], dates, languages, folders), fields)


def _value(stored: Any, *, is_date: bool) -> Any:  # noqa: ANN401 what JSON holds
    return datetime.fromisoformat(stored) if is_date else stored


NEVER = datetime.min.replace(tzinfo=UTC)
SHOWN = ("name", "language", "description", "link")


def _definition(collection: Collection) -> dict[str, Any]:
    """What an overview shows of a collection's definition."""
    return {name: getattr(collection, name) for name in SHOWN} | {"fields": dict(collection.fields)}


def _collection(tenant: str, definition: Mapping[str, Any]) -> Collection:
    """A collection with what an overview shows of it, and nothing else."""
    return Collection(tenant=tenant, embedder=NO_VECTORS, distance="cosine", created_at=NEVER, **definition)
