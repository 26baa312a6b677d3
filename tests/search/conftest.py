"""A shelf to put sources on, and desks that answer from it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from rag.answers import Answer, Mode, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import FieldType, Principal, Source
from rag.models.chat import Chat, open_chat
from rag.models.rerank import Reranker
from rag.search.desk import Desk
from rag.store.read.desk_reader import DeskReader
from rag.store.write.make_collection import ensure_collection
from tests.endpoint import Endpoint
from tests.snapshots import Snapshots

ME = Principal("default")


def titles(answer: Answer) -> list[str]:
    """The titles of the documents of an answer's hits, the best first."""
    return [hit.source.title for hit in answer.hits]


def title_set(answer: Answer) -> set[str]:
    return {*titles(answer)}


@dataclass(frozen=True, slots=True)
class Shelf:
    """A data folder. `small` is the small desk's module; `snapshots` has what other tests put before."""

    small: ModuleType
    data: Path
    snapshots: Snapshots

    async def put(
        self, name: str, *paragraphs: str, collection: str = "documents", **details: object
    ) -> Source:
        """Store a source with these paragraphs as its chunks; an earlier one of that name is replaced."""

        async def store() -> Source:
            async with await self.small.writing(self.data, "default", collection) as writer:
                item = self.small.new_source(writer, name, *paragraphs, **details)
                await writer.replace([item])
                source: Source = item.source
                return source

        change = f"put {(name, paragraphs, collection, details)}"
        return await self.snapshots.changed(self.data, change, store)

    async def put_all(
        self,
        texts: Mapping[str, str | Sequence[str]],
        collection: str = "documents",
        *,
        details_of: Mapping[str, Mapping[str, object]] | None = None,
        **details: object,
    ) -> list[Source]:
        """Store sources of one passage or of several in a single write; `details` are of all."""

        async def store() -> list[Source]:
            async with await self.small.writing(self.data, "default", collection) as writer:
                items = [
                    self.small.new_source(
                        writer,
                        name,
                        *([text] if isinstance(text, str) else text),
                        **details | dict((details_of or {}).get(name, {})),
                    )
                    for name, text in texts.items()
                ]
                await writer.replace(items)
                return [item.source for item in items]

        change = f"put all {(texts, collection, details_of, details)}"
        return await self.snapshots.changed(self.data, change, store)

    async def declare(self, collection: str, **fields: FieldType) -> None:
        """Make a collection with these fields."""
        identity = self.small.BagOfWords().identity
        make = partial(ensure_collection, self.data, "default", collection, identity, fields=fields)
        await self.snapshots.changed(self.data, f"declare {(collection, fields)}", make)

    def desk(self, *, chat: Chat | None = None, reranker: Reranker | None = None, **settings: object) -> Desk:
        """A desk of its own over this shelf."""
        reader = DeskReader(self.data, timeout_seconds=15)
        search = SearchSettings.model_validate(settings)
        return Desk(reader, self.small.BagOfWords(), search, chat=chat, reranker=reranker)

    async def search(self, query: str, *, mode: Mode | None = None, **request: object) -> Answer:
        """What a new desk answers."""
        request_ = SearchRequest(query, mode=mode, **request)  # type: ignore[arg-type]
        return await self.desk().search(ME, request_)


@pytest.fixture
def shelf(
    small_desk: ModuleType, snapshots: Snapshots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Shelf:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # most of the time of small runs
    return Shelf(small_desk, tmp_path / "data", snapshots)


@pytest.fixture
async def chat(chat_server: Endpoint, chats: ModuleType) -> AsyncIterator[Chat]:
    """A chat model behind the chat server, whose failures are tried again at once."""
    async with open_chat(chats.settings(chat_server, output_price=1.0), {}) as opened:
        assert opened
        yield opened


@pytest.fixture
def blind(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes the engine let everything through, so that only the gate keeps anything back."""
    return lambda: monkeypatch.setattr("rag.access.rule.predicate", lambda _principal, _case: "(true)")
