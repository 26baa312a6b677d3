"""Rows of the catalog: the collections, and the embedder and language that each was made with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from rag.corpus import DEFAULT_EMBEDDER, Collection, EmbedderIdentity, LanguageChoice
from rag.errors import ConfigurationError
from rag.store.read import schema

PLAIN_COLUMNS = ("tenant", "name", "created_at")
"""The columns that are fields of a `Collection`; its other fields are in `definition`, as JSON."""


def collection_row(collection: Collection) -> pa.Table:
    """The row of a collection."""
    row = asdict(collection)
    columns = {name: row.pop(name) for name in PLAIN_COLUMNS}
    definition = json.dumps({"format": schema.FORMAT} | row)
    return pa.Table.from_pylist([columns | {"definition": definition}], schema=schema.COLLECTIONS_SCHEMA)


def collection_record(row: Mapping[str, Any]) -> Collection:
    """The collection of a row.

    Raises:
        ConfigurationError: another version of refdesk wrote it.
    """
    definition = json.loads(row.get("definition", "{}"))
    # Before the definition is read, which may have other fields in another format.
    if (written := definition.pop("format", None)) != schema.FORMAT:
        raise ConfigurationError(
            f"The data folder has format {written or 'unknown'}, and this refdesk reads format "
            f"{schema.FORMAT}. Use the version of refdesk that wrote it, or ingest into another data folder "
            "(--data DIR): there, tenants, API keys and rights that were set by command must be made again."
        )
    return _collections().validate_python(definition | {name: row[name] for name in PLAIN_COLUMNS})


@cache
def _collections() -> TypeAdapter[Collection]:
    return TypeAdapter(Collection)


def check_embedder(collection: Collection, embedder: EmbedderIdentity | None) -> None:
    """Check that the collection's vectors were made with this embedder; None fails, too.

    Raises:
        ConfigurationError: another embedder made them; the message says what to do.
    """
    if embedder is not None and collection.embedder.may_compare(embedder):
        return
    name, table = collection.embedder_name, "[embedder]"
    if name != DEFAULT_EMBEDDER:
        table = f"[embedders.{name}]"
    now = "can't be used"
    if embedder is not None:
        now = f"is {_in_words(embedder)}, whose vectors are not comparable with it"
    raise ConfigurationError(
        f"The collection {collection.name!r} was made with the embedder {_in_words(collection.embedder)}; "
        f"{table} in the settings {now}. Set {table} back. Or, if that model has another table, name it "
        f"(refdesk-admin collection set {collection.name} --embedder NAME). Or make its vectors again "
        "with the model in [embedder]: refdesk-admin collection rebuild "
        f"{collection.name} --embedder default.",
        for_caller=f"The collection {collection.name!r} can't be searched by meaning, because another "
        "embedding model made its vectors. Use mode sparse, or leave the collection out.",
    )


def check_ingestible(collection: Collection) -> None:
    """Check that documents can be ingested into the collection.

    Raises:
        ConfigurationError: it is a tag or an attached table.
    """
    check_writable(collection)
    if collection.tag_of:
        raise ConfigurationError(
            f"The collection {collection.name!r} is a tag: {collection.tag_of} as it was on "
            f"{collection.created_at:%Y-%m-%d}. It stays so. Change {collection.tag_of}, and tag it again "
            f"under another name if need be: refdesk-admin collection tag {collection.tag_of} NAME."
        )


def check_writable(collection: Collection) -> None:
    """Check that the collection is not an attached table, which refdesk only reads.

    Raises:
        ConfigurationError: it is an attached table.
    """
    if collection.attached:
        raise ConfigurationError(
            f"The collection {collection.name!r} is the attached table {collection.attached.table}, which "
            "refdesk only reads. Change it where it is written: each change counts from the next request on. "
            f"To detach it, run refdesk-admin collection remove {collection.name} --yes. That leaves the "
            "table as it is."
        )


def check_language(collection: Collection, language: LanguageChoice) -> None:
    """Check that the collection has this language.

    Raises:
        ConfigurationError: it has another language; the message says what to do.
    """
    if collection.language != language:
        raise ConfigurationError(
            f"The collection {collection.name!r} has the language {collection.language}, not {language}. "
            "Omit the language, or ingest into another collection (--collection NAME), or change this one: "
            f"refdesk-admin collection set {collection.name} --language {language}."
        )


def _in_words(embedder: EmbedderIdentity) -> str:
    prefixes = [prefix for prefix in (embedder.query_prefix, embedder.document_prefix) if prefix]
    with_prefixes = f", prefixes {prefixes}" if prefixes else ""
    with_body = f", with {embedder.document_body}" if embedder.document_body else ""
    size = embedder.dimension or "unknown"
    return f"{embedder.provider} {embedder.model} ({size} dimensions{with_prefixes}{with_body})"
