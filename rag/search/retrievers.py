"""The operator's retrievers: other search engines or databases, each searched as a collection.

A retriever gets the query and the principal, and may ignore the latter: each passage states who may see it,
and that is checked like the access of any chunk. If a retriever fails, the search continues without it.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Collection as Names
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import Protocol, get_args, runtime_checkable

import anyio

from rag.config.settings import RetrieverSettings
from rag.corpus import NO_VECTORS, Collection, FieldType, Principal, Retrieved, Visibility
from rag.errors import ConfigurationError, StoreError
from rag.rank.fusion import WORD, WORDS
from rag.runtime import FOREIGN_ERRORS, named_object, raise_own_cancellation
from rag.store.read.attached.attached_reader import HeldReader, attachment_of, hold_for
from rag.store.read.attached.attached_table import TableMemory
from rag.store.read.schema import Ranking, ScoredChunk, StoredSource
from rag.store.read.word_analysis import query_terms, stop_languages

MAX_ID_CHARS = 1_000
MAX_TEXT_CHARS = 200_000

log = logging.getLogger(__name__)


class Retriever(Protocol):
    """Finds passages. Called from several tasks at once."""

    async def retrieve(self, query: str, *, limit: int, principal: Principal) -> Sequence[Retrieved]:
        """Up to `limit` passages for a query, best first. More are ignored."""
        ...


@runtime_checkable
class Opener(Protocol):
    """A retriever that can also return a passage by its id, so that citations can be opened."""

    async def passage(self, id_: str, *, principal: Principal) -> Retrieved | None:
        """The current passage with an id that `retrieve` returned; None if it no longer exists."""
        ...


@dataclass(frozen=True, slots=True)
class RetrieverCollection:
    """A retriever and the collection that it is searched as. A call may take up to `seconds`."""

    collection: Collection
    retriever: Retriever
    memory: TableMemory
    seconds: float


def retriever_collection(
    retriever: Retriever,
    tenant: str,
    name: str,
    *,
    description: str = "",
    fields: Mapping[str, FieldType] | None = None,
    seconds: float = 5.0,
) -> RetrieverCollection:
    """A retriever as a collection of a tenant. Its passages can be filtered by `fields`."""
    declared = dict(fields or {})
    collection = Collection(
        tenant=tenant,
        name=name,
        embedder=NO_VECTORS,
        language="English",
        distance="cosine",
        created_at=datetime.now(UTC),
        fields=declared,
        visibility="restricted",
        description=description,
        attached=attachment_of(list(declared)),
    )
    return RetrieverCollection(collection, retriever, TableMemory(), seconds)


class RetrieverReader(HeldReader):
    """A retriever as one request of a principal reads it. Its passages live as long as the request."""

    served_as: RetrieverCollection
    principal: Principal

    async def sparse(self, text: str, limit: int, where: str, *, every: bool = False) -> Ranking:  # noqa: ARG002 it goes by words in its own way
        """The retriever's passages that satisfy the predicate, with scores on the scale of BM25."""
        return await self.attempt(self._retrieve(text, limit, where), [])

    async def _retrieve(self, text: str, limit: int, where: str) -> Ranking:
        passages = await self._ask(text, limit)
        # Held as a table, so that the request's predicate chooses among them as among any rows.
        await self.hold(passages)
        chunks = await self.chunks_by_their_id(where)
        words = len(query_terms(text, stop_languages(self.collection)))
        highest = WORD * min(WORDS, max(words, 1))  # as `calibrated_fusion` counts
        ranking = [
            ScoredChunk(chunks[passage.id], passage.score * highest)
            for passage in passages
            if passage.id in chunks
        ]
        return sorted(ranking, key=lambda scored: -scored.score)

    async def _ask(self, query: str, limit: int) -> list[Retrieved]:
        call = self.served_as.retriever.retrieve(query, limit=limit, principal=self.principal)
        answer = await self._answer(call)
        if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
            raise StoreError("The retriever returned something other than a list of passages.")
        return [self._check_passage(passage) for passage in list(answer)[:limit]]

    async def sources(self, ids: Iterable[str]) -> dict[str, StoredSource]:
        """The sources of this request; other passages of the retriever are fetched if it is an `Opener`."""
        requested_ids = set(ids)
        stored = await super().sources(requested_ids)
        retriever = self.served_as.retriever
        retrieved_ids = [theirs for id_ in requested_ids - stored.keys() if (theirs := self.theirs(id_))]
        if not retrieved_ids or not isinstance(retriever, Opener):
            return stored
        for id_ in retrieved_ids:
            await self.attempt(self._fetch_passage(retriever, id_), None)
        return await super().sources(requested_ids)

    async def _fetch_passage(self, retriever: Opener, id_: str) -> None:
        answer = await self._answer(retriever.passage(id_, principal=self.principal))
        if answer is not None:
            passage = self._check_passage(answer)
            if passage.id != id_:
                raise StoreError("The retriever returned another passage than the one requested.")
            await self.hold([passage])

    async def _answer(self, awaitable: Awaitable[object]) -> object:
        """The result of a call to the retriever.

        Raises:
            StoreError: it raised an exception, or didn't answer in time.
        """
        try:
            with anyio.fail_after(self.served_as.seconds):
                return await awaitable
        except TimeoutError as error:
            raise StoreError(
                f"The retriever gave no answer within {self.served_as.seconds:g} seconds."
            ) from error
        except FOREIGN_ERRORS as error:
            raise_own_cancellation(error)
            # Without the message, which may quote the query or a document.
            calls = traceback.extract_tb(error.__traceback__)[1:]
            places = ", ".join(f"{call.filename}:{call.lineno} in {call.name}" for call in calls)
            name = type(error).__name__
            log.warning("The retriever %s raised %s at %s.", self.collection.name, name, places)
            raise StoreError(f"The retriever raised {name}.") from error

    def _check_passage(self, passage: object) -> Retrieved:
        """The passage, after a check.

        Raises:
            StoreError: it is not a `Retrieved`, or a value has the wrong type or is out of range.
        """
        if (
            isinstance(passage, Retrieved)
            and all(
                isinstance(value, str)
                for value in (passage.id, passage.text, passage.title, passage.url or "")
            )
            and 0 < len(passage.id) <= MAX_ID_CHARS
            and len(passage.text) <= MAX_TEXT_CHARS
            and isinstance(passage.score, int | float)
            and isfinite(passage.score)
            and 0 <= passage.score <= 1
            and isinstance(passage.allow, tuple | list | frozenset | set)
            and all(isinstance(entry, str) for entry in passage.allow)
            and passage.visibility in get_args(Visibility)
            and (
                passage.date is None
                or (isinstance(passage.date, datetime) and passage.date.tzinfo is not None)
            )
            and isinstance(passage.fields, Mapping)
            and passage.fields.keys() <= self.collection.fields.keys()
        ):
            return passage
        raise StoreError("The retriever returned something that isn't a passage, or has invalid values.")


class Retrievers:
    """The retrievers of a desk."""

    def __init__(self, retrievers: Iterable[RetrieverCollection]) -> None:
        self._retrievers = tuple(retrievers)
        self._scans = anyio.CapacityLimiter(1)

    def serve(self, tenant: str) -> bool:
        """Whether the tenant has a retriever."""
        return any(retriever.collection.tenant == tenant for retriever in self._retrievers)

    async def open(self, principal: Principal, *, besides: Names[str]) -> list[RetrieverReader]:
        """A reader for each retriever of the principal's tenant, except the names in `besides`."""
        readers = []
        for retriever in self._retrievers:
            if retriever.collection.tenant != principal.tenant:
                continue
            if retriever.collection.name in besides:
                log.warning(
                    "The retriever %r is not searched: a collection has its name.", retriever.collection.name
                )
                continue
            reader = await hold_for(
                RetrieverReader, retriever.collection, retriever.memory, self._scans, retriever.seconds
            )
            reader.served_as, reader.principal = retriever, principal
            readers.append(reader)
        return readers


def import_retrievers(settings: Mapping[str, RetrieverSettings]) -> None:
    """Import the modules of the retrievers in the settings, which can take long.

    Raises:
        ConfigurationError: a module can't be imported.
    """
    for name, retriever in settings.items():
        _factory(name, retriever)


def load_retrievers(settings: Mapping[str, RetrieverSettings]) -> list[RetrieverCollection]:
    """The retrievers in the settings.

    Raises:
        ConfigurationError: a retriever can't be loaded, or has no `async def retrieve`.
    """
    return [
        retriever_collection(
            _load(name, retriever),
            retriever.tenant,
            name,
            description=retriever.description,
            fields=retriever.fields,
            seconds=retriever.timeout_seconds,
        )
        for name, retriever in settings.items()
    ]


def _factory(name: str, settings: RetrieverSettings) -> Callable[..., Retriever]:
    factory: Callable[..., Retriever] = named_object(settings.call, f"[retrievers.{name}] calls")
    return factory


def _load(name: str, settings: RetrieverSettings) -> Retriever:
    factory, where = _factory(name, settings), f"[retrievers.{name}] calls {settings.call}"
    try:
        retriever = factory(**settings.options)
    except Exception as error:
        raise ConfigurationError(f"{where}, but that raised {type(error).__name__}.") from error
    if not inspect.iscoroutinefunction(getattr(retriever, "retrieve", None)):
        raise ConfigurationError(f"{where}, but what that returns has no async def retrieve.")
    return retriever
