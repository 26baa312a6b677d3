"""Declares metadata fields of a collection that has documents, or no longer declares some.

The values come from the metadata that is stored with each source, converted as an ingestion does it.
"""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from rag.corpus import Collection, FieldType, Source, Value
from rag.errors import ConfigurationError
from rag.ingest.metadata import declared_fields
from rag.store.write.change_collection import change_collection, open_writer

MAX_FIELDS = 32  # of a collection


@dataclass(frozen=True, slots=True)
class Declared:
    """A collection with other fields. `filled` counts the sources that have a value for each new field.

    `complaints` say which values don't have the declared type, by the source's path.
    """

    collection: Collection
    filled: Mapping[str, int]
    complaints: tuple[tuple[str, str], ...]


async def declare(
    data: Path, collection: Collection, fields: Mapping[str, FieldType], removed: Names[str] = ()
) -> Declared:
    """Declare new fields of a collection, and no longer declare the `removed` ones.

    Raises:
        BusyError: another process is writing to the collection.
        ConfigurationError: it declares one of the fields already, or doesn't declare a removed one.
        StoreError: the storage failed. What was declared before still is.
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
        check_fields(writer.collection, fields, removed)  # somebody else may have declared one meanwhile
        remaining_fields = {
            name: kind for name, kind in writer.collection.fields.items() if name not in removed
        }
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


async def _changed(data: Path, collection: Collection, fields: Mapping[str, FieldType]) -> Collection:
    def changed(current: Collection) -> Collection:
        return replace(current, fields=dict(fields))

    return await change_collection(data, collection.tenant, collection.name, changed)


def _metadata(source: Source) -> dict[str, str]:
    """The metadata as an ingestion has it: the path is ours, not the document's."""
    stored = {key: value for key, value in source.metadata.items() if key != "path"}
    stated = {"url": source.url, "date": source.date and source.date.isoformat()}
    return {"title": source.title, **stored, **{key: value for key, value in stated.items() if value}}
