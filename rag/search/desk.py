"""The desk: what servers and programs ask. Reads only.

desk = await open_desk(settings, os.environ)
answer = await desk.search(Principal("default"), SearchRequest("who invented the pendulum clock?"))
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rag.embed.open import open_embedder
from rag.errors import BusyError, NotFoundError
from rag.records import Answer
from rag.search.context import assemble
from rag.search.extract import extract
from rag.search.gate import READS, admit
from rag.search.hit_stages import through_stages
from rag.search.plan import make_plan
from rag.search.recall import Query, concurrently, recall
from rag.search.relax import explained, impact, relaxed, said
from rag.search.stages import Stages
from rag.search.thresholds import UNGROUNDED, is_weak, near_enough
from rag.search.uris import NOT_FOUND
from rag.search.view import View, narrowed
from rag.settings import ThresholdSettings
from rag.store.catalog import check_embedder
from rag.store.reader import Reader
from rag.store.terms import MAX_TERMS, query_terms

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from rag.embed import Embedder
    from rag.records import Collection, Extract, Hit, Principal, SearchRequest, Source
    from rag.search.plan import Plan
    from rag.settings import SearchSettings, Settings
    from rag.store.reader import StoredSource

log = logging.getLogger(__name__)

NONE_ASKED = "No passages were asked for: the limit is 0."
REPEATING = "{} more passages repeat these or come from the same documents."
NOTHING_YET = "The desk holds no documents yet; an operator ingests them."


@asynccontextmanager
async def open_desk(settings: Settings, environment: Mapping[str, str]) -> AsyncIterator[Desk]:
    """A desk over the data folder and the embedder that the settings name.

    Raises:
        ConfigurationError: the embedder can't be opened.
    """
    reader = Reader(settings.data, timeout_seconds=settings.search.timeout_seconds)
    async with open_embedder(settings.embedder, environment) as embedder:
        yield Desk(reader, embedder, settings.search)


class Desk:
    """Answers questions from the documents that a principal may read. Safe to share between tasks.

    `alarms` counts how often the gate kept back a source that the engine had let through.
    """

    def __init__(self, reader: Reader, embedder: Embedder, settings: SearchSettings) -> None:
        self._reader = reader
        self._embedder = embedder
        self._settings = settings
        self.alarms = 0

    async def collections(self, principal: Principal) -> tuple[Collection, ...]:
        """The collections in which the principal may read anything, by name."""
        return tuple(view.table.collection for view in await self._views(principal))

    async def search(self, principal: Principal, request: SearchRequest) -> Answer:
        """The best hits, and notes on what a reader of them must know.

        Raises:
            InvalidRequestError: a value of the request is out of its range, or its filter is none.
            NotFoundError: a collection named in the request can't be read.
            NotReadyError: a collection lacks the index that the mode needs.
            ConfigurationError: a collection was made with another embedder.
            ProviderError, StoreError: the embedder or the storage failed.
        """
        plan, stages = make_plan(request, self._settings), Stages()
        with stages.stage("plan"):
            views = narrowed(await self._chosen(principal, plan), plan)
        if not views:
            return Answer((), (NOTHING_YET,), stages=stages.ended())
        if not plan.limit:
            return Answer((), (NONE_ASKED,), stages=stages.ended())
        for view in views:
            check_embedder(view.table.collection, self._embedder.identity)
        with stages.stage("embed"):
            (vector,) = await self._embedder.embed([plan.query], "query")
        query = Query(plan.query, vector, self._embedder.known(plan.query))
        notes = self._notes(views, plan)
        hits = await self._hits(views, plan, query, stages, notes)
        if not hits:
            with stages.stage("explain"):
                hits, why = await self._after_nothing(views, plan, query)
            notes.append(why)
        if is_weak(hits, plan.thresholds):
            hits = hits if plan.thresholds.weak_evidence == "note" else []
            notes.append(UNGROUNDED)
        context = None
        if plan.context_tokens and hits:
            with stages.stage("context"):
                spans = self._embedder.token_spans
                context = assemble(hits, budget=plan.context_tokens, token_spans=spans)
        return Answer(tuple(hits), tuple(notes), context, stages.ended())

    async def extract(
        self,
        principal: Principal,
        id_: str,
        *,
        start: int | None = None,
        max_chars: int,
        around: int | None = None,
    ) -> Extract:
        """A window on a source, up to `max_chars` long.

        `id_` names a source or one of its chunks. The window begins at `start`; without one,
        at the beginning of the source, or for a chunk so that the chunk is in its middle.
        `around` takes, for a chunk, just so many chunks before and after it.

        Raises:
            NotFoundError: nothing readable has this id.
            InvalidRequestError: `start` lies behind the end, or `around` comes without a chunk.
            BusyError: the source was replaced as often as it was read.
        """
        source_id, _, seq = id_.partition("/")
        view = await self._home(principal, source_id)
        for _ in range(READS - 1):
            with suppress(BusyError):
                return await extract(view, source_id, seq, start=start, max_chars=max_chars, around=around)
        return await extract(view, source_id, seq, start=start, max_chars=max_chars, around=around)

    async def sources(self, principal: Principal, *, after: tuple[str, str], limit: int) -> list[Source]:
        """Up to `limit` readable sources that follow (collection, source id), in that order."""
        page: list[Source] = []
        for view in await self._all_views(principal):
            name = view.table.collection.name
            if name >= after[0]:
                page += await self._page(view, after[1] if name == after[0] else "", limit - len(page))
            if len(page) == limit:
                break
        return page

    async def _page(self, view: View, after: str, limit: int) -> list[Source]:
        """Up to `limit` readable sources of a collection; fewer only if there are no more."""
        page: list[Source] = []
        while wanted := limit - len(page):
            found = await view.table.page(after, wanted, view.where)
            page += [stored.source for stored in found if self._passes(view, stored)]
            if len(found) < wanted:
                break
            after = found[-1].source.id  # the gate kept some back: go on behind them
        return page

    async def _hits(
        self, views: Sequence[View], plan: Plan, query: Query, stages: Stages, notes: list[str]
    ) -> list[Hit]:
        """The first hits in their order; what else a reader must know of them goes to `notes`."""
        with stages.stage("recall"):
            candidates = await recall(views, plan, query)
        pool = len(candidates) if plan.thresholds.of_hits or plan.stages else plan.limit
        with stages.stage("gate"):
            hits = await admit(candidates, query.vector, pool, self._alarm)
        metrics = {view.table.collection.name: view.table.collection.distance for view in views}
        near = near_enough(hits, plan.thresholds, metrics)
        kept = through_stages(near, plan.stages, stages)
        if len(kept) < min(plan.limit, len(near)):
            notes.append(REPEATING.format(len(near) - len(kept)))
        return kept[: plan.limit]

    async def _after_nothing(self, views: Sequence[View], plan: Plan, query: Query) -> tuple[list[Hit], str]:
        """What is found without a part of the filter, where that is allowed, and why nothing was found."""
        stages = Stages()  # together they are the one in which this runs
        one_hit = replace(plan, limit=1, candidates=1, mode="sparse" if plan.mode == "sparse" else "dense")

        async def finds(others: Sequence[View]) -> bool:
            return bool(await self._hits(others, one_hit, query, stages, []))

        any_likeness = replace(one_hit, thresholds=ThresholdSettings())
        if plan.thresholds.of_hits and await self._hits(views, any_likeness, query, stages, []):
            return [], f"{UNGROUNDED} What there is, is less like the query than the thresholds ask for."
        found = await impact(views, finds) if plan.filter is not None else None
        if found is None:
            return [], _why_nothing(views, plan)
        if not plan.relax:
            return [], explained(views, found)
        notes = [said(views, found.dropped)]
        hits = await self._hits(relaxed(views, found.dropped), plan, query, stages, notes)
        return hits, " ".join(notes)

    def _alarm(self, sources: int) -> None:
        self.alarms += sources
        log.warning("The gate kept back %d sources that the engine had let through.", sources)

    def _passes(self, view: View, stored: StoredSource) -> bool:
        admitted = view.admits(stored)
        if not admitted:
            self._alarm(1)
        return admitted

    async def _all_views(self, principal: Principal) -> list[View]:
        """The collections of the principal's tenant, by name, whether it may read anything there or not."""
        collections = await self._reader.collections(principal.tenant)
        return [View(await self._reader.open(one), principal) for one in collections]

    async def _views(self, principal: Principal) -> list[View]:
        """Those in which the principal may read anything."""
        views = await self._all_views(principal)
        some = await concurrently([partial(view.table.has_any, view.where) for view in views])
        return [view for view, any_ in zip(views, some, strict=True) if any_]

    async def _chosen(self, principal: Principal, plan: Plan) -> list[View]:
        """The readable collections that the plan names, or all that are readable."""
        readable = {view.table.collection.name: view for view in await self._views(principal)}
        if not readable.keys() >= set(plan.collections):
            raise NotFoundError(
                "A collection that the request names can't be read. "
                f"Readable are: {', '.join(sorted(readable)) or 'none'}."
            )
        return [readable[name] for name in dict.fromkeys(plan.collections or sorted(readable))]

    async def _home(self, principal: Principal, source_id: str) -> View:
        """The collection that holds a source, if the principal may read the source."""
        for view in await self._all_views(principal):
            stored = (await view.table.sources([source_id])).get(source_id)
            if stored and view.admits(stored):
                return view
        raise NotFoundError(NOT_FOUND)

    def _notes(self, views: Sequence[View], plan: Plan) -> list[str]:
        notes = []
        terms = max(len(query_terms(plan.query, view.table.collection.language)) for view in views)
        if plan.mode != "dense" and terms > MAX_TERMS:
            notes.append(f"Only the first {MAX_TERMS} words of the query were searched for as words.")
        if plan.mode != "sparse" and len(self._embedder.token_spans(plan.query)) > self._embedder.window:
            notes.append(f"Only the first {self._embedder.window} tokens of the query count for its meaning.")
        return notes


def _why_nothing(views: Sequence[View], plan: Plan) -> str:
    if plan.sources is not None or plan.exclude_sources:
        return "Nothing was found among the sources that the request allows; search without that restriction."
    if plan.mode == "sparse":
        return "No passage holds a word of the query; use other words, or mode hybrid to search by meaning."
    return f"Nothing was found in {', '.join(view.table.collection.name for view in views)}."
