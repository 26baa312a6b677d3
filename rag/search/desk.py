"""The object that servers and programs search with. It only reads.

async with Desk.open(settings) as desk:
    answer = await desk.search(Principal("default"), "who invented the pendulum clock?")
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Unpack

from anyio import to_thread

from rag.access.rule import walls
from rag.access.tenants import check_tenant
from rag.answers import WHOLE, Answer, Context, Extract, Hit, Part, RequestValues, SearchRequest
from rag.config.mistakes import check_consistent, stages_of
from rag.config.profiles import CustomStage
from rag.config.settings import SearchSettings, Settings
from rag.corpus import DEFAULT_EMBEDDER, Collection, Principal, Source
from rag.errors import BusyError, NotFoundError, StoreError
from rag.home import check_data_folder
from rag.models.breaker import Breaker
from rag.models.chat import Chat, open_chat
from rag.models.embed import Embedder, Embedders, open_embedders
from rag.models.rerank import Reranker, open_reranker
from rag.originals import FileWatch, Staleness
from rag.runtime import concurrently, grouped, keep_latest
from rag.search import browse, search_state
from rag.search.names import not_found, resolve_ids, resolve_names, unknown_names_note
from rag.search.overview import CollectionOverview, collection_overview, without_notes
from rag.search.pipeline import embed, search
from rag.search.recall import READS, is_fault
from rag.search.reply.reply_parts import assemble_context
from rag.search.search_plan import SearchPlan, make_plan, request_with
from rag.search.source_window import extract
from rag.search.stages.custom import load_function
from rag.search.view import (
    TABLE_FAILING,
    View,
    chosen_views,
    file_notes,
    joined_names,
    narrow_views,
    readable_request,
    undated_notes,
    within_profile,
)
from rag.search.why import SourceTrace, trace_source
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import ListedSource, StoredSource
from rag.text.flags import APART, Flag, flags_in
from rag.uris import ID_CHARS, NOT_FOUND, range_id, split_citation, split_id

if TYPE_CHECKING:
    from rag.search.page_picture import Page
    from rag.search.retrievers import RetrieverCollection, Retrievers

log = logging.getLogger(__name__)


NO_KEYS: Mapping[str, str] = MappingProxyType({})
CITED_TEXT = "Its text as it was cited is kept: open [{}]."
PASSAGE_CHARS = 20_000  # of a passage, marked on its page
MAX_OVERVIEWS = 1_000  # in the cache; one takes some KB
ENDPOINTS = ("embedding", "chat", "reranking")  # the kinds of endpoints
NO_BREAKERS: Mapping[str, Breaker] = MappingProxyType({})


class Desk:
    """Searches and opens the documents that a principal may read. Safe to share between tasks.

    `alarms` counts the sources that the gate withheld although the engine should have excluded them.
    `breakers` hold the state of the endpoints of remote models, by their kind, and the embedder's name. A
    program may set the hooks before and after searches and their steps. They run in the event loop, so they
    must be quick; what they raise is logged, and the search goes on.
    """

    def __init__(  # noqa: PLR0913 what a desk consists of
        self,
        reader: DeskReader,
        embedder: Embedder | Embedders,
        settings: SearchSettings,
        *,
        chat: Chat | None = None,
        reranker: Reranker | None = None,
        breakers: Mapping[str, Breaker] = NO_BREAKERS,
        retrievers: Retrievers | None = None,
    ) -> None:
        self._reader = reader
        self._retrievers = retrievers
        embedders = embedder if isinstance(embedder, Embedders) else Embedders({DEFAULT_EMBEDDER: embedder})
        self._models = search_state.Models(embedders, chat, reranker)
        self._settings = settings
        self.breakers = breakers
        self.on_search_start: search_state.OnSearchStart | None = None
        self.on_step_start: search_state.OnStepStart | None = None
        self.on_step: search_state.OnStep | None = None
        self.on_search: search_state.OnSearch | None = None
        # By principal, with the versions of the tables: counting costs 35 us a source, and hosts ask often.
        self._overviews: dict[Principal, tuple[tuple[object, ...], tuple[CollectionOverview, ...]]] = {}
        self._files = FileWatch(settings.timeout_seconds)
        self.alarms = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings,
        environment: Mapping[str, str] = NO_KEYS,
        *,
        retrievers: Sequence[RetrieverCollection] = (),
        seen_as: Callable[[Collection], Collection] | None = None,
    ) -> AsyncIterator[Desk]:
        """Open the data folder or the bucket, and the models that the settings name; that sends no request.

        `environment` holds the keys of remote models, under the names that the settings give. `retrievers`
        are searched besides those of the settings. `seen_as` is for evaluations, as in `DeskReader`.

        Raises:
            ConfigurationError: a model, a retriever or the function of a custom stage can't be loaded, or the
                settings contradict each other.
        """
        check_consistent(settings)
        served: Retrievers | None = None
        for stage in chain.from_iterable(stages_of(settings.search).values()):
            if isinstance(stage, CustomStage):
                await to_thread.run_sync(load_function, stage)  # its import may block
        if settings.retrievers or retrievers:
            # Imported here, because few desks have one.
            from rag.search.retrievers import Retrievers, import_retrievers, load_retrievers  # noqa: PLC0415

            await to_thread.run_sync(import_retrievers, settings.retrievers)
            # In the thread that will call them: a database may be used only where it was opened.
            configured = load_retrievers(settings.retrievers)
            served = Retrievers([*configured, *retrievers])
        reader = DeskReader.of(
            settings,
            seen_as=seen_as,
            index_cache_bytes=settings.search.most_cached,
            memory_bytes=settings.search.bytes_in_memory,
        )
        breakers = {kind: Breaker() for kind in ENDPOINTS}
        breakers |= {f"embedding {name}": Breaker() for name in settings.embedders}
        of_embedders = {name: breakers[f"embedding {name}"] for name in settings.embedders}
        of_embedders[DEFAULT_EMBEDDER] = breakers["embedding"]
        async with (
            open_embedders(
                settings.embedders_by_name, environment, of_embedders, settings.installed_model
            ) as embedders,
            open_chat(settings.chat, environment, breaker=breakers["chat"]) as chat,
            open_reranker(settings.reranker, environment, breaker=breakers["reranking"]) as reranker,
        ):
            try:
                yield cls(
                    reader,
                    embedders,
                    settings.search,
                    chat=chat,
                    reranker=reranker,
                    breakers=breakers,
                    retrievers=served,
                )
            finally:
                await reader.close()

    async def collections(self, principal: Principal) -> tuple[Collection, ...]:
        """The collections in which the principal may read anything, ordered by name.

        Without statistics from ingestion, which also cover unreadable documents.
        """
        return tuple(without_notes(view.collection) for view in await self._views(principal))

    async def warm(self) -> None:
        """Read ahead what the first searches of a desk in a bucket would wait for.

        Raises:
            StoreError: the bucket can't be read.
        """
        await self._reader.warm()

    async def overview(self, principal: Principal) -> tuple[CollectionOverview, ...]:
        """What the principal may read of each collection, ordered by name. Cached by the tables' versions.

        Raises:
            StoreError, ConfigurationError: as `search`.
        """
        views = await self._views(principal)
        versions = tuple([(view.collection, await view.table.version(), view.expired) for view in views])
        cached_versions, cached = self._overviews.get(principal, ((), ()))
        if cached_versions == versions:
            return cached
        summaries = [await collection_overview(view) for view in views]
        overview = tuple(summary for summary in summaries if summary.sources or summary.is_retrieved)
        if not any(view.table.failed for view in views):  # it may be readable again, in the same version
            keep_latest(self._overviews, principal, (versions, overview), MAX_OVERVIEWS)
        return overview

    async def sources_beginning_with(
        self, principal: Principal, text: str, collection: str | None = None
    ) -> list[Source]:
        """The readable sources whose id, title or path begins with `text`, in any letter case, by title."""
        views = [view for view in await self._views(principal) if collection in {None, view.name}]
        sources = [
            stored.source for view in views async for batch in view.walk(text.lower()) for stored in batch
        ]
        return sorted(sources, key=lambda source: (source.title, source.id))

    async def sizes(self, principal: Principal, sources: Iterable[Source]) -> dict[str, int]:
        """The lengths of the texts of sources that the principal may read, in bytes of UTF-8, by id."""
        ids = grouped((source.collection, source.id) for source in sources)
        sizes: dict[str, int] = {}
        for collection in await self._reader.collections(principal.tenant):
            if collection.name in ids:
                table = await self._reader.open(collection)
                sizes |= await table.sizes(ids[collection.name])
        return sizes

    async def names_groups(self, tenant: str) -> bool:
        """Whether any access record of the tenant names a group, or a retriever could.

        Raises:
            StoreError: the access records can't be read.
        """
        has_retriever = self._retrievers is not None and self._retrievers.serve(tenant)
        return has_retriever or await self._reader.names_groups(tenant)

    async def search(
        self,
        principal: Principal,
        query: SearchRequest | str,
        *,
        trace: bool = False,
        **values: Unpack[RequestValues],
    ) -> Answer:
        """The best hits, and notes that their reader must know; with `trace`, how the search went.

        `values` are the other fields of a `SearchRequest`: `desk.search(principal, "leave", limit=3)`.

        Raises:
            InvalidRequestError: a value of the request is out of range, or its filter is malformed.
            NotFoundError: the principal can read none of the collections that the request names, or not one
                that it excludes.
            NotReadyError: a collection lacks the index that the mode needs.
            ConfigurationError: a collection that the request names for mode dense was made with another
                embedder, a stage lacks what it needs, or the data folder is missing.
            ProviderError: the embedder failed, and the search can't do without it.
            StoreError: the storage failed.
        """
        request = request_with(query, values)
        if self.on_search_start:
            search_state.call_hook(self.on_search_start, principal, request)
        answer, state = await self._search(principal, request, trace=trace)
        if trace:  # name only collections of the overview: its counts passed the gate
            readable = {summary.collection.name for summary in await self.overview(principal)}
            names = (view.name for view in state.views)
            answer = replace(answer, searched=tuple(name for name in names if name in readable))
        if self.on_search:
            search_state.call_hook(self.on_search, principal, request, answer)
        return answer

    async def stale(self, sources: Iterable[Source]) -> Mapping[str, Staleness]:
        """Which files of these sources have changed or gone since they were ingested (`FileWatch.stale`)."""
        return await self._files.stale(sources)

    async def with_warnings(self, answer: Answer) -> Answer:
        """The answer with the changed and missing files of its hits (see `stale`), and with their flags."""
        stale = await self.stale(hit.source for hit in answer.hits)
        return replace(answer, stale=stale, flags=_flags(answer.hits))

    async def why_not(
        self, principal: Principal, request: SearchRequest, id_: str
    ) -> tuple[Answer, SourceTrace]:
        """A search with its trace, and what happened in it to a source. `id_` is any name of it.

        Raises:
            NotFoundError: nothing readable has this name.
            RefdeskError: as `search`.
        """
        source_id, _ = split_id(await self.resolve_name(principal, id_))
        stored, _ = await self._locate(principal, source_id)
        answer, state = await self._search(principal, request, trace=True)
        return answer, await trace_source(stored, answer, state, embed)

    def as_context(self, answer: Answer, *, tokens: int | None = None) -> Context:
        """The hits as one text for a prompt, each passage under its citation, within a token budget.

        `tokens` are counted by the embedder's tokenizer. None means `search.context_tokens` of the settings.
        """
        spans = self._models.embedders.default.token_spans
        budget = self._settings.context_tokens if tokens is None else tokens
        return assemble_context(answer.hits, budget=budget, token_spans=spans)

    async def _search(
        self, principal: Principal, request: SearchRequest, *, trace: bool
    ) -> tuple[Answer, search_state.SearchState]:
        """The answer to a request, and the state of the search that found it."""
        steps = search_state.StepRecorder(detailed=trace, on_start=self.on_step_start, on_step=self.on_step)
        broken: list[Collection] = []
        with steps.step("plan"):
            views = {view.name: view for view in await self._views(principal, broken)}
            # A failing table is named only if the whole tenant may read it: the asker may not know of others.
            failing = [table.name for table in broken if table.visibility == "tenant"]
            request, notes = readable_request(request, views, failing)
            plan = await self._plan(principal, request)
            views, not_declaring = within_profile(views, plan, principal)
            plan, unknown_sources = await self._with_sources(principal, plan)
            chosen = await narrow_views(chosen_views(principal, plan, views, failing), plan)
        state = search_state.SearchState(
            plan, tuple(chosen), self._models, self._alarm, steps, broken=bool(broken)
        )
        state.note([*notes, *not_declaring, *unknown_sources])
        state.note([*await undated_notes(chosen), *await file_notes(plan, chosen)])
        return await search(state)

    async def _with_sources(self, principal: Principal, plan: SearchPlan) -> tuple[SearchPlan, list[str]]:
        """The plan with the names of sources resolved to ids, and notes on names that resolve to nothing."""
        asked = {"sources": plan.sources or (), "exclude_sources": plan.exclude_sources}
        if not any(asked.values()):
            return plan, []
        ids = await self.resolve_names(principal, [*chain(*asked.values())])
        sources, excluded = (
            tuple(dict.fromkeys(split_id(ids[name])[0] for name in names if name in ids))
            for names in asked.values()
        )
        plan = replace(plan, sources=None if plan.sources is None else sources, exclude_sources=excluded)
        unknown = {argument: [name for name in names if name not in ids] for argument, names in asked.items()}
        return plan, [unknown_names_note(argument, names) for argument, names in unknown.items() if names]

    async def _plan(self, principal: Principal, request: SearchRequest) -> SearchPlan:
        """The plan of a request, with its seed if it searches for what is related to a passage."""
        if request.related is None:
            return await to_thread.run_sync(make_plan, request, self._settings, principal)
        # Imported here, because few searches begin at a passage.
        from rag.search.stages.related import request_from_seed, seed_hit  # noqa: PLC0415

        source_id, seqs = split_id(await self.resolve_name(principal, request.related))
        stored, view = await self._locate(principal, source_id)
        seed = await seed_hit(stored, seqs[0] if seqs else 0, view)
        plan = await to_thread.run_sync(
            make_plan, request_from_seed(request, seed), self._settings, principal
        )
        vector, model = plan.request_vector, view.collection.embedder
        return replace(plan, seed=seed, request_vector=vector and replace(vector, model=model))

    async def extract(self, principal: Principal, id_: str, *, max_chars: int, part: Part = WHOLE) -> Extract:
        """A window on a source, up to `max_chars` long. `id_` names a source, a chunk, or a range of them.

        The window shows the requested `part`, or a source from its beginning, or is centred on the chunks. A
        section, lines and the outline are of the source, even if the id names a chunk. Chunks of a
        revision (source_id@revision/seq) are those that stand in their place now; a note and
        `Extract.standing` say what became of them.

        Raises:
            NotFoundError: nothing readable has this id.
            InvalidRequestError: the source lacks the part, or its fields can't be combined, or the revision
                is not known.
            BusyError: the source was replaced during each of `READS` attempts to read it.
        """
        _, view = await self._locate(principal, split_citation(id_)[0])
        for _ in range(READS - 1):
            with suppress(BusyError):
                return await self._extract(principal, view, id_, part, max_chars)
        # The last attempt raises.
        return await self._extract(principal, view, id_, part, max_chars)

    async def _extract(
        self, principal: Principal, view: View, id_: str, part: Part, max_chars: int
    ) -> Extract:
        window = await extract(view, id_, part, max_chars)
        if window.standing is None or window.standing.verdict == "stands":
            return window
        tagged_id = await self.tagged_id(principal, id_, view.name)
        notes = (*window.notes, CITED_TEXT.format(tagged_id)) if tagged_id else window.notes
        return replace(window, notes=notes, cited_text=tagged_id)

    async def tagged_id(self, principal: Principal, id_: str, collection: str = "") -> str | None:
        """The id of cited passages in a tag that has the revision, if they are readable; None without one.

        Looks in the tags of `collection`, or in all: a removed document is left in tags only.

        Raises:
            NotFoundError: `id_` is not an id.
        """
        source_id, revision, seqs = split_citation(id_)
        for view in await self._all_views(principal) if seqs else ():
            tagged = view.collection.tag_of
            if not tagged or tagged != (collection or tagged):
                continue
            for first in await view.page("", 1):  # all ids of a tag end in the same letters
                tagged_id = source_id + first.stored.id[ID_CHARS:]
                stored = (await view.table.sources([tagged_id])).get(tagged_id)
                if stored and stored.source.revision == revision and view.admits(stored):
                    return range_id(tagged_id, seqs[0], seqs[-1])
        return None

    async def resolve_name(self, principal: Principal, name: str, *, by_id_alone: bool = False) -> str:
        """The id of the source, chunk or range that a name means (see `rag.search.names`).

        Raises:
            NotFoundError: nothing readable has this name.
            InvalidRequestError: several readable documents have it.
        """
        ids = await self.resolve_names(principal, [name], by_id_alone=by_id_alone)
        if name in ids:
            return ids[name]
        raise NotFoundError(
            NOT_FOUND if by_id_alone else await not_found(await self._all_views(principal), name)
        )

    async def resolve_names(
        self, principal: Principal, names: Sequence[str], *, by_id_alone: bool = False
    ) -> dict[str, str]:
        """As `resolve_name` for several names; unknown ones are absent."""
        views = await self._all_views(principal)
        ids = await (resolve_ids if by_id_alone else resolve_names)(views, names)
        if ids.keys() != {*names} and any(view.table.failed for view in views):
            raise StoreError(TABLE_FAILING, for_caller=TABLE_FAILING)
        return ids

    async def page(self, principal: Principal, id_: str, number: int | None = None) -> Page:
        """A page of a document as a picture, with the passage marked that `id_` names: a chunk, or a range.

        By default it is the first page of the passage, or of the source that `id_` names. It is drawn from
        the file that was ingested, a PDF or a file of pictures, which must still be there.

        Raises:
            NotFoundError: nothing readable has this id.
            InvalidRequestError: the page can't be drawn; the message says why.
            BusyError: as `extract`.
        """
        # Imported here, because most desks are never asked for one.
        from rag.search.page_picture import page_of  # noqa: PLC0415

        id_ = await self.resolve_name(principal, id_)
        _, seqs = split_id(id_)  # refuses a revision: a picture can't say what became of a passage
        part = Part(around=0) if seqs else WHOLE
        passage = await self.extract(principal, id_, max_chars=PASSAGE_CHARS, part=part)
        return await page_of(passage, number)

    async def at(
        self,
        principal: Principal,
        path: str = "",
        *,
        after: str | None = None,
        limit: int = browse.MAX_ENTRIES,
    ) -> str | browse.Folder:
        """What is at a path: the id of a document, or a page of a folder with up to `limit` entries.

        A path is a collection's name, with a path in the collection if need be: "handbook/leave/sick.md".
        Without the collection it must be unambiguous. An empty path is the list of collections. Paths are
        those that replies show (`rag.search.browse`). A page begins behind `after`, an `Entry.after`.

        Raises:
            NotFoundError: nothing readable has this path.
            InvalidRequestError: several documents or collections have it, or `after` is not valid.
        """
        if not path.strip("/"):
            return browse.collections_page(await self.overview(principal), after, limit)
        return await browse.document_or_folder(await self._views(principal), path, after, limit)

    async def listing(
        self,
        principal: Principal,
        path: str = "",
        *,
        after: str | None = None,
        limit: int = browse.MAX_ENTRIES,
    ) -> browse.Folder:
        """A page of a folder, as `at` has it.

        Raises:
            NotFoundError, InvalidRequestError: as `at`; nor is a document a folder.
        """
        target = await self.at(principal, path, after=after, limit=limit)
        if isinstance(target, str):
            raise NotFoundError(NOT_FOUND)
        return target

    async def documents(
        self,
        principal: Principal,
        path: str = "",
        *,
        filter: Mapping[str, object] | None = None,  # noqa: A002 as in `search`
        sort: browse.Sort = "path",
        after: str | None = None,
        limit: int = browse.MAX_ENTRIES,
    ) -> browse.Folder:
        """A page of the readable documents that match a filter, with the number of all of them.

        `path` is a collection, or a folder in one; without it, all collections count. `after` is as in `at`.

        Raises:
            NotFoundError: no readable collection has this name.
            InvalidRequestError: the filter or `after` is not valid.
        """
        broken: list[Collection] = []
        views = await self._views(principal, broken)
        page = await browse.document_list(views, path, filter_=filter, sort=sort, after=after, limit=limit)
        names = joined_names(collection.name for collection in broken)
        return replace(page, notes=(*page.notes, browse.UNLISTED.format(names))) if broken else page

    async def sources(
        self, principal: Principal, *, after: tuple[str, str] = ("", ""), limit: int
    ) -> list[Source]:
        """Up to `limit` readable sources after (collection, source id), ordered by the two."""
        page: list[Source] = []
        for view in await self._all_views(principal):
            name = view.name
            if name >= after[0]:
                page += await self._page(view, after[1] if name == after[0] else "", limit - len(page))
            if len(page) == limit:
                break
        return page

    async def _page(self, view: View, after: str, limit: int) -> list[Source]:
        """Up to `limit` readable sources of a collection; fewer only if there are no more."""
        page: list[Source] = []
        while room := limit - len(page):
            rows = await view.page(after, room)
            page += [listed.stored.source for listed in rows if self._passes(view, listed)]
            if len(rows) < room:
                break
            after = rows[-1].stored.source.id  # the gate may have withheld some: continue after them
        return page

    def _alarm(self, sources: int) -> None:
        self.alarms += sources
        log.warning(
            "The access check withheld %d sources that the engine's filter should have excluded.", sources
        )

    def _passes(self, view: View, listed: ListedSource) -> bool:
        """Whether a listed source passes the gate, as `rag.search.recall` has it for chunks."""
        admitted = view.admits(listed.stored)
        if not admitted and is_fault(view, listed.stored, listed.generation, listed.revision):
            self._alarm(1)
        return admitted

    async def _all_views(self, principal: Principal) -> list[View]:
        """The collections of the principal's tenant, ordered by name, even if it can read nothing there.

        Collections from which its bindings admit nothing are left out, as if they didn't exist.

        Raises:
            ConfigurationError: the tenant doesn't exist, or the data folder is missing or not refdesk's.
        """
        collections = await self._reader.collections(principal.tenant)
        if not collections:  # a wrong path or tenant must not look like a desk without documents
            await to_thread.run_sync(check_data_folder, self._reader.data)
            await to_thread.run_sync(check_tenant, self._reader.data, principal.tenant)
        tables: list[CollectionReader] = [await self._reader.open(collection) for collection in collections]
        if self._retrievers:
            names = {collection.name for collection in collections}
            tables += await self._retrievers.open(principal, besides=names)
            tables.sort(key=lambda table: table.collection.name)
        # First of all, because the records are asked for from the cache; once, because the tables share it.
        await self._reader.refresh(tables)
        case = self._reader.letter_case
        return [
            View(
                table,
                principal,
                letter_case=case,
                changed=await table.uncopied_records(),
                expired=await self._expired_ids(table),
            )
            for table in tables
            if walls(principal.bindings, table.collection) is not None
        ]

    async def _expired_ids(self, table: CollectionReader) -> frozenset[str]:
        if not (table.collection.keep_days or table.collection.expiring):
            return frozenset()
        expiries, now = await table.expiries(), self._reader.clock.now()
        return frozenset(id_ for id_, at in expiries.items() if at <= now)

    async def _views(self, principal: Principal, broken: list[Collection] | None = None) -> list[View]:
        """The collections in which the principal may read anything; those that failed go to `broken`."""
        views = await self._all_views(principal)
        readable = await concurrently([view.has_any for view in views])
        if broken is not None:
            broken += [view.collection for view in views if view.table.failed]
        return [view for view, is_readable in zip(views, readable, strict=True) if is_readable]

    async def _locate(self, principal: Principal, source_id: str) -> tuple[StoredSource, View]:
        views = await self._all_views(principal)
        for view in views:
            stored = (await view.table.sources([source_id])).get(source_id)
            if stored and view.admits(stored):
                return stored, view
        if any(view.table.failed for view in views):  # which may have it: "not found" would be a guess
            raise StoreError(TABLE_FAILING, for_caller=TABLE_FAILING)
        raise NotFoundError(NOT_FOUND)  # the same for unknown, denied and removed


def _flags(hits: Sequence[Hit]) -> Mapping[str, tuple[Flag, ...]]:
    """The flags of each hit's shown text, title and headings, by chunk id; looked for if none are stored."""
    stored = {hit.chunk.id: hit.flags for hit in hits}
    texts = {hit.chunk.id: hit.text_with_headings for hit in hits if stored[hit.chunk.id] is None}
    if texts and flags_in(APART.join(texts.values())):  # one scan is faster than many, and most have none
        stored |= {id_: flags_in(text) for id_, text in texts.items()}
    return {id_: flags for id_, flags in stored.items() if flags}
