"""A shelf to put sources on, and desks that answer from it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from rag.records import Answer, Mode, Principal, SearchRequest
from rag.search.desk import Desk
from rag.settings import SearchSettings
from rag.store.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from rag.records import Source

ME = Principal("default")


@dataclass(frozen=True, slots=True)
class Shelf:
    """A data folder. `small` is the small desk's module."""

    small: ModuleType
    data: Path

    async def put(
        self, name: str, *paragraphs: str, collection: str = "documents", **details: object
    ) -> Source:
        """Store a source with these paragraphs as its chunks; an earlier one of that name is replaced."""
        async with await self.small.writing(self.data, "default", collection) as writer:
            item = self.small.new_source(writer, name, *paragraphs, **details)
            await writer.replace([item])
            source: Source = item.source
            return source

    def desk(self, **settings: object) -> Desk:
        """A desk of its own over this shelf."""
        reader = Reader(self.data, timeout_seconds=15)
        return Desk(reader, self.small.BagOfWords(), SearchSettings.model_validate(settings))

    async def search(self, query: str, *, mode: Mode | None = None, **request: object) -> Answer:
        """What a new desk answers."""
        wanted = SearchRequest(query, mode=mode, **request)  # type: ignore[arg-type]
        return await self.desk().search(ME, wanted)


@pytest.fixture
def shelf(small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # most of the time of small runs
    return Shelf(small_desk, tmp_path / "data")
