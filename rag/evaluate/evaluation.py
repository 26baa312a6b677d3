"""An evaluation, whole: the set's documents where they are wanted, then a run for each contender."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, get_args

from rag.access.names import DEFAULT_TENANT
from rag.access.tenants import tenant_of
from rag.answers import SearchRequest
from rag.config.profiles import Overridable
from rag.corpus import Principal
from rag.errors import ConfigurationError
from rag.evaluate.ask import Contender, ask_all
from rag.evaluate.expected import expected, shelves_of
from rag.evaluate.fresh import shelve
from rag.evaluate.runs import Run, Summary, in_force, latency, means, versions
from rag.search.desk import Desk
from rag.search.plan import make_plan
from rag.store.reader import Reader

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from rag.answers import Mode
    from rag.config.settings import Settings
    from rag.corpus import Language
    from rag.evaluate.expected import Expected
    from rag.evaluate.sets.judged import JudgedSet
    from rag.ingest.run import Progress as Ingesting


class Progress(Protocol):
    """Somebody who watches an evaluation."""

    @property
    def ingesting(self) -> Ingesting:
        """Who watches the set's documents being ingested."""

    def began(self, contender: Contender, questions: int) -> None:
        """A run of so many questions begins."""

    def asked(self) -> None:
        """One more question has its answers."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where the questions are asked: a data folder, and the judgements tied to what is in it.

    `absent` are documents of the set that couldn't be ingested: nothing finds them.
    """

    settings: Settings
    questions: tuple[Expected, ...]
    absent: frozenset[str] = frozenset()


@asynccontextmanager
async def existing_room(judged: JudgedSet, settings: Settings, collection: str | None) -> AsyncIterator[Room]:
    """The data folder of the settings, and in it one collection or all.

    Raises:
        ConfigurationError: there are no documents, or a judgement names what isn't there.
    """
    if collection:
        _check_no_collections(judged)
        settings = _updated(settings, collections=(collection,))
    yield await _room(judged, _of_tenant(settings), {}, collection, frozenset())


@asynccontextmanager
async def fresh_room(
    judged: JudgedSet,
    settings: Settings,
    environment: Mapping[str, str],
    *,
    language: Language | None,
    progress: Ingesting,
) -> AsyncIterator[Room]:
    """A data folder of its own with the set's documents in it, gone afterwards.

    Raises:
        ConfigurationError: the set has no documents, or a judgement names what isn't there.
        ProviderError, StoreError: the embedder or the storage failed.
    """
    if not judged.documents:
        raise ConfigurationError(
            f"{judged.name} has questions only. Leave --fresh out, and they are asked of the collections "
            "that exist."
        )
    with tempfile.TemporaryDirectory(prefix="refdesk-eval-") as scratch:
        settings = _updated(_of_tenant(settings), collections=())
        settings = settings.model_copy(update={"data": Path(scratch, "data")})
        files = Path(scratch, "documents")
        absent = await shelve(
            judged.documents, files, settings, environment, language=language, progress=progress
        )
        if len(absent) == len(judged.documents):
            raise ConfigurationError(f"None of the documents of {judged.name} could be ingested.")
        names = {document.filename: document.name for document in judged.documents}
        yield await _room(judged, settings, names, None, absent)


def _check_no_collections(judged: JudgedSet) -> None:
    for question in judged.questions:
        if question.asking.collections:
            raise ConfigurationError(
                f"Question {question.id} says which collections it asks. Leave --collection out."
            )


def _of_tenant(settings: Settings) -> Settings:
    """The settings with the tenant whose runs these are."""
    principal = settings.principal.model_copy(update={"tenant": tenant_of(settings)})
    return settings.model_copy(update={"principal": principal})


def _updated(settings: Settings, *, collections: tuple[str, ...]) -> Settings:
    search = settings.search.model_copy(update={"collections": collections})
    return settings.model_copy(update={"search": search})


async def _room(
    judged: JudgedSet,
    settings: Settings,
    names: Mapping[str, str],
    collection: str | None,
    absent: frozenset[str],
) -> Room:
    reader = Reader(settings.data, timeout_seconds=settings.search.timeout_seconds)
    who = settings.principal
    usual = Principal(who.tenant or DEFAULT_TENANT, who.user or None, frozenset(who.groups))
    askers = [question.asking.principal or usual for question in judged.questions]
    shelves = {
        tenant: await shelves_of(reader, tenant, names=names, only=collection)
        for tenant in dict.fromkeys(asker.tenant for asker in askers)
    }
    if not any(one.tables for one in shelves.values()):
        place = f"the collection {collection!r} of {settings.data}" if collection else settings.data
        raise ConfigurationError(
            f"There are no documents to ask about in {place}. Bring some in with refdesk-admin ingest, "
            "or let the set bring its own with --fresh, if it has any."
        )
    pairs = zip(judged.questions, askers, strict=True)
    questions = [await expected(question, asker, shelves[asker.tenant], absent) for question, asker in pairs]
    return Room(settings, tuple(questions), absent)


def unfixed(settings: Settings) -> Settings:
    """The settings as evaluations need them, which ask in any mode and as deep as they like."""
    search = settings.search.model_copy(update={"overrides": get_args(Overridable)})
    return settings.model_copy(update={"search": search})


def contenders(
    settings: Settings, profiles: Sequence[str], modes: Sequence[Mode | None]
) -> dict[Contender, int]:
    """Every profile in every mode (None: its own), each once, with how many candidates its lists bring.

    Raises:
        InvalidRequestError: there is no such profile.
    """
    tenant = settings.principal.tenant or DEFAULT_TENANT
    plans = [
        (profile, make_plan(SearchRequest("?", profile=profile, mode=mode), settings.search, tenant))
        for profile in profiles
        for mode in modes
    ]
    return {Contender(profile, plan.mode): plan.candidates for profile, plan in plans}


async def evaluate(
    judged: JudgedSet,
    room: Room,
    environment: Mapping[str, str],
    chosen: Mapping[Contender, int],
    progress: Progress,
) -> list[Run]:
    """A run for each contender, on the same questions.

    Raises:
        InvalidRequestError: a question is no query.
        NotFoundError: a question names a collection that can't be read.
        ProviderError, StoreError: the embedder or the storage failed.
    """
    runs = []
    async with Desk.open(room.settings, environment) as desk:
        for contender, candidates in chosen.items():
            started_at = datetime.now(UTC).isoformat(timespec="seconds")
            progress.began(contender, len(room.questions))
            results = await ask_all(
                desk, room.questions, contender, candidates=candidates, progress=progress.asked
            )
            summary = Summary(
                set=judged.name,
                profile=contender.profile,
                mode=contender.mode,
                started_at=started_at,
                queries=len(results),
                left_out=judged.left_out,
                leaks=sum(len(one.leaks) for one in results),
                metrics=means(results),
                latency_ms=latency(results),
                settings=in_force(room.settings),
                versions=versions(),
            )
            runs.append(Run(summary=summary, questions=results))
    return runs
