"""The overview of a tenant's documents in a file, for servers that haven't opened the engine yet.

Hosts list the tools at once, and the engine takes half a second to import. So the commands that change a desk
keep what its documents come to (`overview_content`), apart for each list of who may see them. A server puts
together what its caller may read (`kept_overview`).

The file counts only for exactly the versions of the tables that it was made of, which a server compares each
time. After any later commit, a revocation above all, it says nothing, and the server asks the engine. It also
says nothing where counts don't suffice: of attached tables, documents that expire, bindings with a filter.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag.access.rule import visible, walls
from rag.corpus import NO_VECTORS, Access, Collection, FieldType, LetterCase, Principal
from rag.home import newest_version, overview_file
from rag.search.readable_overview import (
    FEW,
    MAX_FOLDERS,
    CollectionOverview,
    FieldValues,
    Single,
    Tally,
    values_of_field,
)

if TYPE_CHECKING:
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.desk_reader import DeskReader

FORMAT = 2
MAX_BYTES = 256 << 10  # read within a few ms; a desk with so many different access records has no file


def kept_overview(
    data: Path, principal: Principal, letter_case: LetterCase
) -> tuple[CollectionOverview, ...] | None:
    """What the principal may read of each collection, as `Desk.overview` has it; None if the file can't say.

    Of the fields, only what an overview shows is the same: up to `FEW` values.
    """
    by_collection = _current(data, principal.tenant)
    if by_collection is None:
        return None
    overview = []
    for collection, counted in by_collection:
        conditions = walls(principal.bindings, collection)
        if conditions:
            return None
        readable = [part for part in counted if visible(principal, part.access, letter_case)]
        if readable and conditions is not None:
            overview.append(_summary(collection, readable))
    return tuple(overview)


def is_current(data: Path, tenant: str) -> bool:
    """Whether the file is that of the present versions of the tables."""
    return _current(data, tenant) is not None


def _current(data: Path, tenant: str) -> list[tuple[Collection, list[_Counted]]] | None:
    """The collections of the file with their documents, if the tables still have the versions in it."""
    try:
        saved = json.loads(overview_file(data, tenant).read_bytes())
        if saved["format"] != FORMAT or saved["versions"] != _versions(data, saved["versions"]):
            return None
        collections = [_collection(tenant, entry["definition"]) for entry in saved["collections"]]
        return [
            (collection, [_counted(stored, collection.fields) for stored in entry["counted"]])
            for collection, entry in zip(collections, saved["collections"], strict=True)
        ]
    except (OSError, ValueError, KeyError, TypeError):  # there is none, or it is not whole
        return None


def _versions(data: Path, tables: Iterable[str]) -> dict[str, list[object]]:
    """The newest version of each table.

    Raises:
        OSError: a table has none.
    """
    return {name: newest_version(data / "tables" / f"{name}.lance") for name in tables}


@dataclass(slots=True)
class _Counted:
    """The documents of a collection with the same access. A field with more than `FEW` values has none."""

    access: Access
    tally: Tally
    fields: dict[str, FieldValues]


def _summary(collection: Collection, parts: Sequence[_Counted]) -> CollectionOverview:
    """The documents of all parts, as `readable_overview.collection_overview` has them."""
    total = Tally()
    for part in parts:
        total.sources += part.tally.sources
        total.dates |= part.tally.dates
        total.languages.update(part.tally.languages)
        total.folders.update(part.tally.folders)
    fields = {name: _joined([part.fields[name] for part in parts]) for name in collection.fields}
    return total.overview(collection, fields)


def _joined(parts: Sequence[FieldValues]) -> FieldValues:
    """The values of a field in all parts; none of them if there are more than `FEW`."""
    counts: Counter[Single] = Counter()
    for part in parts:
        counts.update(dict(part.frequent))
    distinct = max(len(counts), *(part.distinct for part in parts))
    ends: list[Any] = [end for part in parts for end in (part.least, part.greatest) if end is not None]
    return FieldValues(
        values_of_field(counts).frequent if distinct <= FEW else (),
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
    versions = _versions(data, names)
    if await reader.collections(tenant) != collections:  # changed before the versions were read
        return None
    entries = [
        {"definition": _definition(table.collection), "counted": await _counted_entries(table)}
        for table in tables
    ]
    content = json.dumps({"format": FORMAT, "versions": versions, "collections": entries}).encode()
    return content if len(content) <= MAX_BYTES and versions == _versions(data, names) else None


async def _counted_entries(table: CollectionReader) -> list[dict[str, Any]]:
    """The sources of a table, counted by their access, as JSON has it."""
    tallies: defaultdict[Access, Tally] = defaultdict(Tally)
    for stored in await table.stated():
        path = stored.metadata.get("path", "")
        tally = tallies[replace(stored.access, revision=0)]
        tally.count(path, stored.date, stored.metadata, stored.fields)
    return [_stored(access, tally, table.collection.fields) for access, tally in tallies.items()]


def _stored(access: Access, tally: Tally, declared: Iterable[str]) -> dict[str, Any]:
    fields = {name: values_of_field(tally.values[name]) for name in declared}
    return {
        "visibility": access.visibility,
        "allow": sorted(access.allow),
        "deny": sorted(access.deny),
        "sources": tally.sources,
        "dates": [date.isoformat() for date in sorted(tally.dates)],
        "languages": dict(tally.languages),
        "folders": dict(tally.folders.most_common(MAX_FOLDERS + 1)),  # that there are too many
        "fields": {
            name: {
                "values": [[_plain(value), count] for value, count in values.frequent]
                if values.distinct <= FEW
                else [],
                "distinct": values.distinct,
                "ends": [_plain(end) for end in (values.least, values.greatest) if end is not None],
            }
            for name, values in fields.items()
        },
    }


def _counted(stored: Mapping[str, Any], declared: Mapping[str, FieldType]) -> _Counted:
    access = Access(stored["visibility"], frozenset(stored["allow"]), frozenset(stored["deny"]))
    fields = {}
    for name, of_field in stored["fields"].items():
        is_date = declared[name] == "datetime"
        least, greatest = [_value(end, is_date=is_date) for end in of_field["ends"]] or (None, None)
        frequent = tuple((_value(value, is_date=is_date), count) for value, count in of_field["values"])
        fields[name] = FieldValues(frequent, of_field["distinct"], least, greatest)
    dates = {datetime.fromisoformat(date) for date in stored["dates"]}
    languages, folders = Counter(stored["languages"]), Counter(stored["folders"])
    return _Counted(access, Tally(stored["sources"], dates, languages, folders), fields)


def _plain(value: Single) -> str | float | bool:
    return value.isoformat() if isinstance(value, datetime) else value


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
