"""Adds declared metadata fields to a collection with documents, or drops some.

The values of new fields come from each source's stored metadata, converted as in an ingestion.
"""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rag.corpus import Collection, FieldType, Source, Value
from rag.errors import ConfigurationError
from rag.home import Home
from rag.ingest.metadata import declared_fields
from rag.store.write.change_collection import change_collection, open_writer

MAX_FIELDS = 32  # of a collection


@dataclass(frozen=True, slots=True)
class Declared:
    """The changed collection. `filled` counts the sources with a value, for each new field.

    `complaints` are pairs of a source's path and a value that doesn't have the declared type.
    """

    collection: Collection
    filled: Mapping[str, int]
    complaints: tuple[tuple[str, str], ...]


async def declare(
    data: Home, collection: Collection, fields: Mapping[str, FieldType], removed: Names[str] = ()
) -> Declared:
    """Declare new fields of a collection, and drop the `removed` ones.

    Raises:
        BusyError: another process is writing to the collection.
        ConfigurationError: a new field is already declared, or a removed one is not.
        StoreError: the storage failed. The fields declared before are still declared.
    """
    filled = dict.fromkeys(fields, 0)
    complaints: list[tuple[str, str]] = []

    def values(source: Source) -> Mapping[str, Value]:
        values, wrong = declared_fields(_metadata(source), fields)
        for name in values:
            filled[name] += 1
        path = source.metadata.get("path", source.uri)
        complaints.extend((path, complaint) for complaint in wrong)
        return values

    async with open_writer(data, collection) as writer:
        check_fields(writer.collection, fields, removed)  # again: another command may have declared one
        remaining_fields = {
            name: kind for name, kind in writer.collection.fields.items() if name not in removed
        }
        # Filters use declared fields alone, so a field is dropped before its column and declared after it.
        changed_collection = await _changed(data, collection, remaining_fields)
        await writer.drop_fields(removed)
        if fields:
            await writer.add_fields(fields, values)
        await writer.finish()
        if fields:
            changed_collection = await _changed(data, collection, remaining_fields | dict(fields))
    return Declared(changed_collection, filled, tuple(sorted(complaints)))


def check_fields(collection: Collection, fields: Mapping[str, FieldType], removed: Names[str]) -> None:
    """Check a change of declared fields.

    Raises:
        ConfigurationError: the collection declares a new field, lacks a removed one, or has too many.
    """
    unknown = next((name for name in removed if name not in collection.fields), None)
    if unknown is not None:
        declared = ", ".join(collection.fields) or "none"
        raise ConfigurationError(
            f"The collection {collection.name!r} declares no field {unknown!r}; it declares: {declared}."
        )
    for name in fields:
        if name in collection.fields and name not in removed:
            raise ConfigurationError(
                f"The collection {collection.name!r} declares {name} already, as {collection.fields[name]}. "
                f"To change its type, add --no-field {name}."
            )
    if len(collection.fields) - len({*removed}) + len(fields) > MAX_FIELDS:
        raise ConfigurationError(f"A collection has at most {MAX_FIELDS} fields.")


async def _changed(data: Home, collection: Collection, fields: Mapping[str, FieldType]) -> Collection:
    def changed(current: Collection) -> Collection:
        return replace(current, fields=dict(fields))

    return await change_collection(data, collection.tenant, collection.name, changed)


def _metadata(source: Source) -> dict[str, str]:
    """The metadata as an ingestion sees it, without the path that refdesk adds."""
    stored = {key: value for key, value in source.metadata.items() if key != "path"}
    stated = {"url": source.url, "date": source.date and source.date.isoformat()}
    return {"title": source.title, **stored, **{key: value for key, value in stated.items() if value}}
