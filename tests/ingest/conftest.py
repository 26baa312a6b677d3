"""What the tests of ingestion share: small runs that cost little."""

from __future__ import annotations

import os

import pytest

from rag.corpus import Document
from rag.ingest import prepare
from rag.ingest.parse.parsers import parse
from rag.store.write import table_maintenance
from rag.store.write.access_writer import AccessTable


@pytest.fixture(autouse=True)
def _without_flushing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commits last no longer than the power: to flush is most of the time of small runs."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def without_compaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave tables as they are written: to compact them is a quarter of the CPU time of small runs."""

    async def nothing(*_: object, **_named: object) -> None:
        pass

    monkeypatch.setattr(table_maintenance, "compact", nothing)
    monkeypatch.setattr(AccessTable, "compact", nothing)


@pytest.fixture
def parsing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parse in this process: what a test wrote itself needs no confined one, which each run would start."""
    monkeypatch.setattr(prepare, "parse_safely", parse_here)


async def parse_here(data: bytes, name: str, **_limits: object) -> Document:
    return parse(data, name)
