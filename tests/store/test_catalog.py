"""A collection comes back from its row as it was; a row of another version is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rag.corpus import Collection, EmbedderIdentity
from rag.errors import ConfigurationError
from rag.store.read import schema
from rag.store.read.catalog import collection_record, collection_row

COLLECTION = Collection(
    "acme",
    "papers",
    EmbedderIdentity("tests", "words", 3, query_prefix="query: "),
    "German",
    "cosine",
    datetime(2026, 1, 2, tzinfo=UTC),
    {"year": "integer"},
    "restricted",
)


def test_a_collection_comes_back_from_its_row() -> None:
    (row,) = collection_row(COLLECTION).to_pylist()
    assert collection_record(row) == COLLECTION


def test_a_name_and_a_body_of_the_embedder_come_back_too() -> None:
    identity = replace(COLLECTION.embedder, document_body='{"a": 1}')
    named = replace(COLLECTION, embedder=identity, embedder_name="german")
    (row,) = collection_row(named).to_pylist()
    assert collection_record(row) == named


def test_the_row_of_another_version_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "FORMAT", schema.FORMAT + 1)
    (row,) = collection_row(COLLECTION).to_pylist()
    monkeypatch.undo()
    former = {"tenant": "acme", "name": "papers", "created_at": COLLECTION.created_at}
    for other in (row, former):
        with pytest.raises(ConfigurationError, match="another version of refdesk"):
            collection_record(dict(other))
