"""Retrievers of the operator's: another search engine or database, searched as a collection.

A retriever is asked what it finds for a query, and on whose behalf. It can ignore the latter: each passage
says who may see it, and what it says is held against the principal like the rights of any chunk. Whatever it
does wrong, the search goes on without it.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import traceback
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from collections.abc import Collection as Names
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Protocol, get_args, runtime_checkable

import anyio

from rag.corpus import NO_VECTORS, Collection, FieldType, Principal, Retrieved, Visibility
from rag.errors import ConfigurationError, StoreError
from rag.rank.fusion import WORD, WORDS
from rag.store.read.attached.attached_table import TableMemory
from rag.store.read.attached.retrieved_passages import HeldReader, attachment_of, hold_for
from rag.store.read.stored_rows import Ranking, ScoredChunk, StoredSource
from rag.store.read.word_analysis import query_terms, stop_languages

if TYPE_CHECKING:
    from rag.config.settings import RetrieverSettings

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
    """A retriever that can also give a passage by its id, as it is now, so that citations can be opened."""

    async def passage(self, id_: str, *, principal: Principal) -> Retrieved | None:
        """The passage of an id that `retrieve` gave, None if it is no more."""
        ...


@dataclass(frozen=True, slots=True)
class RetrieverCollection:
    """A retriever and the collection that it is searched as. `seconds` is how long a call may take."""

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
    """A retriever as a collection of a tenant. `fields` are what its passages can be filtered by."""
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
    """A retriever as one request of a principal reads it. What it finds is forgotten with the request."""

    made: RetrieverCollection
    principal: Principal

    async def sparse(self, text: str, limit: int, where: str, *, every: bool = False) -> Ranking:  # noqa: ARG002 it goes by words in its own way
        """What the retriever finds, as far as it satisfies the predicate; scores as those for words."""
        return await self.attempt(self._retrieved(text, limit, where), [])

    async def _retrieved(self, text: str, limit: int, where: str) -> Ranking:
        found = await self._asked(text, limit)
        await self.hold(found)
        chunks = await self.chunks_by_their_id(where)
        words = len(query_terms(text, stop_languages(self.collection)))
        highest = WORD * min(WORDS, max(words, 1))  # as `calibrated_fusion` counts
        ranking = [ScoredChunk(chunks[one.id], one.score * highest) for one in found if one.id in chunks]
        return sorted(ranking, key=lambda one: -one.score)

    async def _asked(self, query: str, limit: int) -> list[Retrieved]:
        call = self.made.retriever.retrieve(query, limit=limit, principal=self.principal)
        answer = await self._answer(call)
        if not isinstance(answer, Sequence) or isinstance(answer, str | bytes):
            raise StoreError("The retriever returned something other than a list of passages.")
        return [self._checked(one) for one in list(answer)[:limit]]

    async def sources(self, ids: Iterable[str]) -> dict[str, StoredSource]:
        """The sources of this request; a retriever that can is asked for others that it once found."""
        wanted = set(ids)
        found = await super().sources(wanted)
        retriever = self.made.retriever
        known = [theirs for id_ in wanted - found.keys() if (theirs := self.theirs(id_))]
        if not known or not isinstance(retriever, Opener):
            return found
        for id_ in known:
            await self.attempt(self._opened(retriever, id_), None)
        return await super().sources(wanted)

    async def _opened(self, retriever: Opener, id_: str) -> None:
        answer = await self._answer(retriever.passage(id_, principal=self.principal))
        if answer is not None:
            passage = self._checked(answer)
            if passage.id != id_:
                raise StoreError("The retriever gave another passage than the one that it was asked for.")
            await self.hold([passage])

    async def has_any(self, where: str) -> bool:  # noqa: ARG002 as of the class above
        """That is not known before it is asked."""
        return True

    async def _answer(self, call: Awaitable[object]) -> object:
        """What the retriever answers in time.

        Raises:
            StoreError: it raised something, or didn't answer.
        """
        try:
            with anyio.fail_after(self.made.seconds):
                return await call
        except TimeoutError as error:
            raise StoreError(f"The retriever gave no answer within {self.made.seconds:g} seconds.") from error
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__))
            log.debug("the retriever raised %s:\n%s", type(error).__name__, where)
            raise StoreError(f"The retriever raised {type(error).__name__}.") from error

    def _checked(self, one: object) -> Retrieved:
        """One of the retriever's passages, if it is one.

        Raises:
            StoreError: it is not, or a value is of another type, or out of range.
        """
        if (
            isinstance(one, Retrieved)
            and all(isinstance(value, str) for value in (one.id, one.text, one.title, one.url or ""))
            and 0 < len(one.id) <= MAX_ID_CHARS
            and len(one.text) <= MAX_TEXT_CHARS
            and isinstance(one.score, int | float)
            and isfinite(one.score)
            and 0 <= one.score <= 1
            and isinstance(one.allow, tuple | list | frozenset | set)
            and all(isinstance(entry, str) for entry in one.allow)
            and one.visibility in get_args(Visibility)
            and (one.date is None or (isinstance(one.date, datetime) and one.date.tzinfo is not None))
            and isinstance(one.fields, Mapping)
            and one.fields.keys() <= self.collection.fields.keys()
        ):
            return one
        raise StoreError("The retriever returned something that is no passage, or has invalid values.")


class Retrievers:
    """The retrievers of a desk."""

    def __init__(self, retrievers: Iterable[RetrieverCollection]) -> None:
        self._retrievers = tuple(retrievers)
        self._scans = anyio.CapacityLimiter(1)

    def serve(self, tenant: str) -> bool:
        """Whether the tenant has any."""
        return any(one.collection.tenant == tenant for one in self._retrievers)

    async def open(self, principal: Principal, *, besides: Names[str]) -> list[RetrieverReader]:
        """The retrievers of the principal's tenant, for one request. A stored collection keeps its name."""
        readers = []
        for one in self._retrievers:
            if one.collection.tenant != principal.tenant:
                continue
            if one.collection.name in besides:
                log.warning(
                    "The retriever %r is not searched: a collection has its name.", one.collection.name
                )
                continue
            reader = await hold_for(RetrieverReader, one.collection, one.memory, self._scans, one.seconds)
            reader.made, reader.principal = one, principal
            readers.append(reader)
        return readers


def load_retrievers(settings: Mapping[str, RetrieverSettings]) -> list[RetrieverCollection]:
    """The retrievers in the settings.

    Raises:
        ConfigurationError: one can't be loaded, or has no `async def retrieve`.
    """
    return [
        retriever_collection(
            _loaded(name, one),
            one.tenant,
            name,
            description=one.description,
            fields=one.fields,
            seconds=one.timeout_seconds,
        )
        for name, one in settings.items()
    ]


def _loaded(name: str, settings: RetrieverSettings) -> Retriever:
    module, _, made_by = settings.call.partition(":")
    where = f"[retrievers.{name}] calls {settings.call}"
    try:
        retriever: Retriever = getattr(importlib.import_module(module), made_by)(**settings.options)
    except Exception as error:
        raise ConfigurationError(f"{where}, but that raised {type(error).__name__}.") from error
    if not inspect.iscoroutinefunction(getattr(retriever, "retrieve", None)):
        raise ConfigurationError(f"{where}, but what that returns has no async def retrieve.")
    return retriever
