"""The tests of who may see what, and of what is said of failures, can fail: broken builds, and their checks.

`BROKEN`, below, is the table of them. Every broken build differs from the real one in one place. A check is
red by an assertion on what it defends; where its positive control fails, that somebody who may see a thing
finds it by the same call, the run is void and proves nothing. Access is kept by two layers, the engine's
predicate and the gate, of which one hides the faults of the other. So checks on the predicate demand that
the gate has nothing to keep back (no alarms), and those on the gate give it what the engine can't know.
"""

from __future__ import annotations

import inspect
import json
import os
import pkgutil
import re
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import anyio
import anyio.lowlevel
import lancedb
import pytest
from anyio.from_thread import start_blocking_portal
from lancedb.query import AsyncFTSQuery, AsyncVectorQuery
from mcp import Client

from rag.access.keys import Keys
from rag.access.rule import NOBODY
from rag.admin import key_command
from rag.admin.command_line import keep_overview
from rag.admin.ingestion import RunOptions, run_ingest
from rag.answers import MAX_LIMIT, Mode, SearchRequest
from rag.config.model_settings import EmbedderSettings
from rag.config.server_settings import PrincipalSettings
from rag.config.settings import SearchSettings, Settings
from rag.corpus import Access, Binding, EmbedderIdentity, FieldType, Principal
from rag.errors import InvalidRequestError, NotFoundError, ProviderError
from rag.filters.grammar import OneOf
from rag.models.breaker import Breaker, Call
from rag.models.embed.remote_embedder import remote_embedder
from rag.search.desk import Desk
from rag.search.overview import kept_overview
from rag.search.view import View
from rag.store.read import schema
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.connection import connect, database_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write import table_maintenance
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from server.admission import Admission
from server.handlers import create_server
from server.lazy_desk import LazyDesk
from tests.small_desk import set_access

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from rag.corpus import Value, Vectors
    from rag.models.embed import TextKind

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

EVERYBODY = Access("tenant")
ONLY_ANN = Access("restricted", frozenset({"user:ann"}))
FIELDS: dict[str, FieldType] = {"status": "string", "year": "integer"}


@dataclass(frozen=True, slots=True)
class Item:
    """A source of the stock; its title is its key there."""

    access: Access | None = EVERYBODY
    fields: Mapping[str, Value] = field(default_factory=dict)
    chunks: int = 1


STOCK: dict[tuple[str, str], dict[str, Item]] = {
    ("default", "documents"): {
        "open": Item(fields={"status": "final", "year": 2001}),
        "without fields": Item(),
        "with quotes": Item(fields={"status": "x', 'final"}),
        "in capitals": Item(fields={"status": "FINAL"}),
        "for ann": Item(ONLY_ANN, {"status": "final", "year": 2001}, chunks=40),
        "for hr": Item(Access("restricted", frozenset({"group:hr"}))),
        "not for bob": Item(Access("tenant", frozenset(), frozenset({"user:bob"}))),
        "not for it": Item(
            Access("restricted", frozenset({"user:ann", "user:bob"}), frozenset({"group:it"}))
        ),
        "for nobody": Item(Access("restricted")),
        "without a record": Item(None),
    },
    ("default", "private"): {"diary": Item(ONLY_ANN)},
    ("elsewhere", "archive"): {"theirs": Item()},
}
"""By tenant and collection."""

ANN = Principal("default", "ann", frozenset({"hr"}))
BOB = Principal("default", "bob", frozenset({"it"}))
FOR_ALL = {"open", "without fields", "with quotes", "in capitals"}
READABLE: dict[Principal, set[str]] = {
    ANN: {*FOR_ALL, "for ann", "for hr", "not for bob", "not for it", "diary"},
    BOB: FOR_ALL,
    Principal("default"): {*FOR_ALL, "not for bob"},
    Principal("default", "ANN", frozenset({"HR"})): {*FOR_ALL, "not for bob"},
    Principal("default", "x']))) OR (true) --"): {*FOR_ALL, "not for bob"},
    Principal("elsewhere", "ann", frozenset({"hr"})): {"theirs"},
}


@dataclass(frozen=True, slots=True)
class Shelf:
    """A data folder with the stock in it. `ids` are those of the sources, by title."""

    small: ModuleType
    data: Path
    ids: Mapping[str, str]

    def desk(self, **settings: object) -> Desk:
        reader = DeskReader(self.data, timeout_seconds=15)
        return Desk(reader, self.small.BagOfWords(), SearchSettings.model_validate(settings))

    async def view(self, principal: Principal) -> View:
        """The collection `documents` as a request without restrictions sees it."""
        reader = DeskReader(self.data, timeout_seconds=15)
        collection, _ = await reader.collections("default")
        return View(await reader.open(collection), principal)

    async def give(self, title: str, access: Access) -> None:
        """Change who may see a source, as another process does."""
        async with await self.small.writing(self.data) as writer:
            await set_access(writer, {self.ids[title]: access})

    async def mistake(self, title: str, access: Access) -> None:
        """Change a source's record alone: what its chunks copied of it is wrong, and nothing says so."""
        await self.small.recorded(self.data, self.ids[title], access)

    async def overtake(self, title: str, values: Mapping[str, object]) -> None:
        """Change a source's own row alone: what its chunks copied of it is stale."""
        table = await (await connect(self.data)).open_table(schema.sources_table("default", "documents"))
        await table.update(dict(values), where=schema.one_of("id", [self.ids[title]]))


class VoidError(Exception):
    """The positive control failed, so the check says nothing."""


def control(holds: object) -> None:
    """Hold that who may see a thing finds it."""
    if not holds:
        raise VoidError


async def _found(desk: Desk, principal: Principal, mode: Mode | None = None, **options: Any) -> set[str]:  # noqa: ANN401 a request's
    """The titles of what a search finds: for a word that stands in all, if for no other."""
    request = SearchRequest(**{"query": "pendulum", "mode": mode, "limit": MAX_LIMIT, **options})
    return {hit.source.title for hit in (await desk.search(principal, request)).hits}


SECOND_QUERY = """\
from rag.answers import SubQuery

async def ask(query, options):
    return [SubQuery("pendulum", filter={"year": {"$exists": False}}, collections=("documents",))]
"""


async def _refusal(call: Awaitable[object]) -> str:
    """What a refused call is told; nothing if it isn't."""
    try:
        await call
    except (InvalidRequestError, NotFoundError) as error:
        return str(error)
    return ""


async def _reads(desk: Desk, principal: Principal, id_: str) -> bool:
    return not await _refusal(desk.extract(principal, id_, max_chars=99))


# The checks. First, what the engine itself must leave out.


async def a_search_leaves_out_what_is_hidden(shelf: Shelf) -> None:
    desk = shelf.desk()
    for mode in get_args(Mode):
        control(await _found(desk, ANN, mode) >= READABLE[ANN])
        for principal, titles in READABLE.items():
            assert (await _found(desk, principal, mode), desk.alarms) == (titles, 0)


async def better_hits_that_are_hidden_crowd_out_nothing(shelf: Shelf) -> None:
    desk, here = shelf.desk(candidates=10), ("documents",)
    ranked: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
    for mode in ranked:
        control(await _found(desk, ANN, mode, limit=10, collections=here) == {"for ann"})
        assert await _found(desk, BOB, mode, limit=10, collections=here) == FOR_ALL


async def a_list_leaves_out_what_is_hidden(shelf: Shelf) -> None:
    desk = shelf.desk()
    control(len(await desk.sources(ANN, after=("", ""), limit=99)) == len(READABLE[ANN]))
    for principal, titles in READABLE.items():
        listed = await desk.sources(principal, after=("", ""), limit=99)
        assert ({source.title for source in listed}, desk.alarms) == (titles, 0)


async def a_collection_is_known_to_those_who_read_something_there(shelf: Shelf) -> None:
    desk = shelf.desk()
    control([collection.name for collection in await desk.collections(ANN)] == ["documents", "private"])
    control(await _found(desk, ANN, collections=("private",)) == {"diary"})
    assert [collection.name for collection in await desk.collections(BOB)] == ["documents"]
    refused = await _refusal(_found(desk, BOB, collections=("private",)))
    assert refused == await _refusal(_found(desk, BOB, collections=("unknown",))) != ""


async def a_filter_only_narrows(shelf: Shelf) -> None:
    desk = shelf.desk()
    either = {"$or": [{"status": "final"}, {"year": 2001}]}
    control(await _found(desk, ANN, filter=either) >= {"open", "for ann"})
    for filter_, titles in [
        (either, {"open", "for ann"}),
        ({"status": "x', 'final"}, {"with quotes"}),
        ({"status": "Final"}, set()),
    ]:
        for principal in (ANN, BOB):
            expected = titles & READABLE[principal]
            assert (await _found(desk, principal, filter=filter_), desk.alarms) == (expected, 0)


async def relaxation_drops_nothing_but_conditions(shelf: Shelf) -> None:
    desk = shelf.desk(relax=True)
    control(await _found(desk, ANN, filter={"status": "lost"}) >= READABLE[ANN])
    for principal, titles in READABLE.items():
        if principal.tenant == "default":
            assert (await _found(desk, principal, filter={"status": "lost"}), desk.alarms) == (titles, 0)


async def a_missing_field_is_like_no_value(shelf: Shelf) -> None:
    desk = shelf.desk()
    control(await _found(desk, BOB, filter={"year": {"$exists": False}}) == FOR_ALL - {"open"})
    for filter_ in ({"year": {"$ne": 2001}}, {"$not": {"year": {"$gt": 2000}}}):
        assert await _found(desk, BOB, filter=filter_) == FOR_ALL - {"open"}


async def a_field_has_one_name(shelf: Shelf) -> None:
    desk = shelf.desk()
    control(await _found(desk, BOB, filter={"status": "final"}) == {"open"})
    for name in ("STATUS", "Status", "visibility", "field_status", "source_id"):
        assert await _refusal(_found(desk, BOB, filter={name: "final"}))


async def only_the_sources_asked_for_are_searched(shelf: Shelf) -> None:
    desk, id_ = shelf.desk(), shelf.ids["open"]
    control(await _found(desk, BOB, sources=(id_,)) == {"open"})
    assert (await _found(desk, BOB, sources=(f"x', '{id_}",)), desk.alarms) == (set(), 0)
    assert (await _found(desk, BOB, exclude_sources=(id_,)), desk.alarms) == (FOR_ALL - {"open"}, 0)
    assert (await _found(desk, BOB, sources=(id_,), exclude_sources=(id_,)), desk.alarms) == (set(), 0)
    view, chunks = await shelf.view(BOB), [f"{id_}/0"]
    control(await view.table.chunks(chunks, replace(view, sources=(id_,)).where))
    assert await view.table.chunks(chunks, replace(view, sources=(f"x', '{id_}",)).where) == []


async def an_empty_list_is_not_everything(shelf: Shelf) -> None:
    view, desk = await shelf.view(ANN), shelf.desk()
    ids = [f"{shelf.ids['open']}/0"]
    control(await view.table.chunks(ids, view.where))
    assert await view.table.chunks(ids, replace(view, sources=()).where) == []
    control(await _found(desk, ANN) == READABLE[ANN])
    assert await _refusal(_found(desk, ANN, collections=()))
    assert await _refusal(_found(desk, ANN, sources=()))
    assert await _refusal(_found(desk, ANN, filter={}))
    assert await _refusal(_found(desk, ANN, filter={"status": {"$in": []}}))


async def a_change_of_access_counts_at_once_for_a_desk_that_is_open(shelf: Shelf) -> None:
    desk = shelf.desk()
    control(await _found(desk, BOB) == FOR_ALL)
    await shelf.give("open", ONLY_ANN)
    assert await _found(desk, BOB) == FOR_ALL - {"open"}
    assert not await _reads(desk, BOB, shelf.ids["open"])
    control(await _found(desk, ANN) == READABLE[ANN])


async def a_file_tells_nobody_of_what_is_hidden(shelf: Shelf) -> None:
    def count_for(principal: Principal) -> int | None:
        overview = kept_overview(shelf.data, principal, "allow")
        return None if overview is None else sum(summary.sources for summary in overview)

    for tenant in ("default", "elsewhere"):
        await keep_overview(shelf.data, tenant)
    control(count_for(ANN))
    assert {principal: count_for(principal) for principal in READABLE} == {
        principal: len(titles) for principal, titles in READABLE.items()
    }
    diaries = Binding(collections=("private",))
    assert [count_for(replace(principal, bindings=(diaries,))) for principal in (ANN, BOB)] == [1, 0]
    await shelf.give("open", ONLY_ANN)
    assert count_for(BOB) is None


# Now the gate: what it must keep back though the engine lets it through, or isn't asked.


async def what_is_hidden_cannot_be_read(shelf: Shelf) -> None:
    desk = shelf.desk()
    control(await _reads(desk, ANN, shelf.ids["for ann"]))
    for principal, titles in READABLE.items():
        assert {title for title, id_ in shelf.ids.items() if await _reads(desk, principal, id_)} == titles


async def a_stale_copy_of_an_access_record_shows_nothing(shelf: Shelf) -> None:
    desk = shelf.desk()
    control(await _found(desk, BOB) == FOR_ALL)
    await shelf.mistake("open", ONLY_ANN)
    assert (await _found(desk, BOB), desk.alarms) == (FOR_ALL - {"open"}, 1)
    control(await _found(desk, ANN) == READABLE[ANN])


async def a_stale_copy_of_fields_shows_nothing(shelf: Shelf) -> None:
    desk = shelf.desk()
    control(await _found(desk, ANN, filter={"year": 2001}) == {"open", "for ann"})
    await shelf.overtake("open", {"fields": json.dumps({"year": 1999})})
    assert (await _found(desk, ANN, filter={"year": 2001}), desk.alarms) == ({"for ann"}, 1)


async def the_gate_itself_knows_the_sources_asked_for(shelf: Shelf) -> None:
    view, id_ = await shelf.view(BOB), shelf.ids["open"]
    source = (await view.table.sources([id_]))[id_]
    control(replace(view, sources=("x", id_), exclude_sources=("x",)).admits(source))
    assert not replace(view, sources=()).admits(source)
    assert not replace(view, sources=("x",)).admits(source)
    assert not replace(view, exclude_sources=("x", id_)).admits(source)


async def what_is_taken_away_while_it_is_read_is_not_shown(shelf: Shelf) -> None:
    text = CollectionReader.text

    async def overtaken_before(table: CollectionReader, id_: str) -> object:
        await shelf.give("open", ONLY_ANN)
        return await text(table, id_)

    async def overtaken_after(table: CollectionReader, id_: str) -> object:
        content = await text(table, id_)
        await shelf.give("open", ONLY_ANN)
        return content

    source = shelf.ids["open"]
    for overtaken, id_ in [(overtaken_before, source), (overtaken_after, f"{source}/0")]:
        await shelf.give("open", EVERYBODY)
        control(await _reads(shelf.desk(), BOB, id_))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CollectionReader, "text", overtaken)
            assert not await _reads(shelf.desk(), BOB, id_)


async def what_is_taken_away_after_it_was_found_is_shown_with_nothing_around_it(shelf: Shelf) -> None:
    text = CollectionReader.text

    async def overtaken(table: CollectionReader, id_: str) -> object:
        if id_ == shelf.ids["open"]:
            await shelf.give("open", ONLY_ANN)
        return await text(table, id_)

    for stage in ("neighbors", "parent"):
        await shelf.give("open", EVERYBODY)
        control(await _found(shelf.desk(stages=[{"stage": stage}]), BOB) == FOR_ALL)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(CollectionReader, "text", overtaken)
            assert await _found(shelf.desk(stages=[{"stage": stage}]), BOB) == FOR_ALL - {"open"}


async def a_second_query_only_narrows(shelf: Shelf) -> None:
    (shelf.data.parent / "second_query.py").write_text(SECOND_QUERY)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(shelf.data.parent)
        call = {"stage": "custom", "call": "second_query:ask", "takes": "query"}
        desk = shelf.desk(stages=[call], mode="sparse")
        control("for hr" in await _found(desk, ANN, query="sundial"))
        for principal, titles in READABLE.items():
            if principal.tenant == "default":
                expected = titles - {"open", "for ann", "diary"}  # which have a year, or lie elsewhere
                assert (await _found(desk, principal, query="sundial"), desk.alarms) == (expected, 0)
                final = await _found(desk, principal, query="sundial", filter={"status": "final"})
                assert (final, desk.alarms) == (set(), 0)


async def a_trace_tells_nothing_of_what_the_gate_keeps_back(shelf: Shelf) -> None:
    desk = shelf.desk()
    control(shelf.ids["open"] in await _traced(desk, BOB))
    before = await _counts(desk, BOB)
    await shelf.mistake("open", ONLY_ANN)
    assert shelf.ids["open"] not in await _traced(desk, BOB)
    after = await _counts(desk, BOB)
    assert after == {name: count - 1 for name, count in before.items()}
    control(shelf.ids["open"] in await _traced(desk, ANN))


async def _traced(desk: Desk, principal: Principal) -> str:
    """All that a trace says."""
    return str(asdict(await desk.search(principal, "pendulum", trace=True)))


async def _counts(desk: Desk, principal: Principal) -> dict[str, int]:
    """How many hits a trace says each stage left."""
    stages = (await desk.search(principal, "pendulum", trace=True)).steps
    return {stage.name: stage.after for stage in stages if stage.after is not None}


# Then the failures of others: what is missing is said, and no more than the caller can use.


ADDRESS = "http://10.9.8.7:8080/v1"


@dataclass(slots=True)
class Failing:
    """An embedder that fails."""

    identity: EmbedderIdentity
    window: int = 256

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return [(0, len(text))]

    def vocabulary_share(self, text: str) -> float:  # noqa: ARG002 the protocol's
        return 1.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002 the protocol's
        raise ProviderError(f"The embedding endpoint {ADDRESS} failed.", for_caller="The model is away.")


def _failing(shelf: Shelf, **settings: object) -> Desk:
    """A desk whose embedder fails."""
    reader = DeskReader(shelf.data, timeout_seconds=15)
    embedder = Failing(shelf.small.BagOfWords().identity)
    return Desk(reader, embedder, SearchSettings.model_validate(settings))


async def a_search_without_its_model_says_what_it_lacks(shelf: Shelf) -> None:
    whole = await shelf.desk().search(BOB, "pendulum")
    control((whole.degraded, whole.notes) == ((), ()))
    answer = await _failing(shelf).search(BOB, "pendulum")
    control(answer.hits)
    assert answer.degraded == ("dense",)
    assert any("by words alone" in note for note in answer.notes)


async def vectors_of_another_model_are_not_compared(shelf: Shelf) -> None:
    control(all(hit.similarity is not None for hit in (await shelf.desk().search(BOB, "pendulum")).hits))
    identity = replace(shelf.small.BagOfWords().identity, model="another")
    desk = Desk(
        DeskReader(shelf.data, timeout_seconds=15), shelf.small.BagOfWords(identity), SearchSettings()
    )
    answer = await desk.search(BOB, "pendulum")
    control({hit.source.title for hit in answer.hits} == FOR_ALL)
    assert [hit.similarity for hit in answer.hits if hit.similarity is not None] == []
    assert answer.degraded == ("dense",)


class OpenedDesk(LazyDesk):
    """A desk that is open, with whatever embedder."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(Settings())
        self._opened = desk

    async def desk(self) -> Desk:
        return self._opened


async def _told(desk: Desk, *, remote: bool) -> str:
    """All that a client reads of searches in every mode."""
    settings = Settings()
    lazy_desk, admission = OpenedDesk(desk), Admission(settings.limits)
    server = create_server(lazy_desk, settings, admission, lambda _context: BOB, remote=remote)
    async with Client(server, cache=None) as client:
        replies = [
            await client.call_tool("search", {"query": "pendulum", "mode": mode}) for mode in get_args(Mode)
        ]
    return "".join(reply.model_dump_json() for reply in replies)


async def a_remote_caller_reads_no_address_of_an_endpoint(shelf: Shelf) -> None:
    control(ADDRESS in await _told(_failing(shelf), remote=False))
    reply = await _told(_failing(shelf), remote=True)
    control("The model is away." in reply)
    assert ADDRESS not in reply


async def an_endpoint_that_failed_is_not_asked_by_the_next_call(_shelf: Shelf) -> None:
    settings = EmbedderSettings(provider="openai", model="tiny", base_url="http://127.0.0.1:1/v1")
    breaker = Breaker(clock=lambda: 0.0)  # the pause after a failure never ends
    async with remote_embedder(settings, {}, probe=False, breaker=breaker) as embedder:
        for _ in range(2):
            with pytest.raises(ProviderError), anyio.fail_after(60):
                await embedder.embed(["pendulum"], "query")
    control(breaker.failures)
    assert (breaker.failures, breaker.held_back) == (1, 1)


Check: TypeAlias = Callable[[Shelf], Awaitable[None]]
Replacement: TypeAlias = Callable[[Any], Any]
"""What stands in the place of the real thing, made from that."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A build with one thing wrong: what, where, how, and the check that must be red then."""

    name: str
    target: str
    replacement: Replacement
    check: Check


# How it is broken, where that takes more than a line.


class Trusting(View):
    """A view whose check is always content."""

    def admits(self, _source: object) -> bool:
        return True


def _trusting(view: View) -> View:
    return Trusting(view.table, view.principal, view.filter, view.sources, view.exclude_sources)


def _all_trusting(views: Mapping[str, View]) -> dict[str, View]:
    return {name: _trusting(view) for name, view in views.items()}


class Open(Trusting):
    """A view of everything that there is."""

    @property
    def where(self) -> str:
        return "(true)"


def _opened(view: View) -> View:
    return Open(view.table, view.principal)


class Anybodys(View):
    """A view in which the access rule is true for every source; the request's conditions hold."""

    @property
    def access_condition(self) -> str:
        return "(true)"

    def _sees(self, _record: object) -> bool:
        return True


def _anybodys(real: Callable[..., Awaitable[Sequence[View]]]) -> Callable[..., Awaitable[Sequence[View]]]:
    async def views_of(*arguments: object) -> Sequence[View]:
        return [
            Anybodys(**{field.name: getattr(view, field.name) for field in fields(view) if field.init})
            for view in await real(*arguments)
        ]

    return views_of


def _unfiltered(real: Callable[..., Any]) -> Callable[..., object]:
    """A read whose predicate leaves nothing out, whatever else it is told."""

    def unfiltered(*values: object, **options: object) -> object:
        bound = inspect.signature(real).bind(*values, **options)
        bound.arguments["where"] = "(true)"
        return real(*bound.args, **bound.kwargs)

    return unfiltered


def _without(part: str, value: object) -> Replacement:
    """The predicate of a view, as if the request hadn't said that part."""
    return lambda real: property(lambda view: real.fget(replace(view, **{part: value})))


def _not_asked(part: str, value: object) -> Replacement:
    """The check of a view, as if the request hadn't said that part."""
    return lambda real: lambda view, source: real(replace(view, **{part: value}), source)


async def what_comes_in_when_others_can_ask_is_hidden(shelf: Shelf) -> None:
    """The collection is from before the first key, and so is open."""
    settings = Settings(data=shelf.data, principal=PrincipalSettings(tenant="default"))
    folder = shelf.data.with_name("papers")
    folder.mkdir()
    reader = shelf.desk()
    (folder / "before.md").write_text("# before\n\na pendulum\n")
    await run_ingest(settings, (folder,), "papers", RunOptions(quiet=True))
    key_command.create_key(settings, user="ann", groups=("hr",), days=1)
    (folder / "after.md").write_text("# after\n\nanother pendulum\n")
    await run_ingest(settings, (folder,), "papers", RunOptions(quiet=True))
    options: dict[str, Any] = {"mode": "sparse", "collections": ("papers",)}
    control(await _found(reader, ANN, **options) >= {"before"})
    assert await _found(reader, ANN, **options) == {"before"}
    assert await _found(reader, Principal("default"), **options) == {"before"}


def _unescaped(real: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: f"'{value}'" if isinstance(value, str) else real(value)


def _denials_unread(real: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments: re.sub(r" AND \(NOT .*", ")", real(*arguments))


def _no_labels_are_everybody(real: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments: f"({real(*arguments)} OR (array_has(labels, '{NOBODY}')))"


def _ignoring_case(real: Callable[[Any, str], str]) -> Callable[[Any, str], str]:
    def leaf(condition: Any, column: str) -> str:  # noqa: ANN401 any leaf
        if not isinstance(condition, OneOf) or condition.type != "string":
            return real(condition, column)
        lowered = tuple(str(value).lower() for value in condition.values)
        return real(replace(condition, values=lowered), f"lower({column})")

    return leaf


def _null_untested(real: Callable[..., str]) -> Callable[..., str]:
    return lambda *arguments, **options: real(*arguments, **options).replace(
        "IS NULL", "IS NOT NULL AND false"
    )


def _filtered_last(kind: type[AsyncVectorQuery | AsyncFTSQuery]) -> Replacement:
    return lambda real: (
        lambda table, query: real(table, query.postfilter() if isinstance(query, kind) else query)
    )


def _of_all_tenants(real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[object]]:
    async def collections(reader: DeskReader, _tenant: str) -> list[object]:
        return [
            collection for tenant in ("default", "elsewhere") for collection in await real(reader, tenant)
        ]

    return collections


def _as_the_first_was_told(real: Callable[..., Awaitable[bool]]) -> Callable[..., Awaitable[bool]]:
    conditions: list[str] = []

    def has_any(table: CollectionReader, where: str) -> Awaitable[bool]:
        conditions.append(where)
        return real(table, conditions[0])

    return has_any


BROKEN = [
    # What a server says of a desk before it opens the engine.
    Broken(
        "the file of an overview is for everybody",
        "rag.search.overview.visible",
        lambda _real: lambda *_: True,
        a_file_tells_nobody_of_what_is_hidden,
    ),
    Broken(
        "the file of an overview is outside the walls",
        "rag.search.overview.walls",
        lambda _real: lambda *_: (),
        a_file_tells_nobody_of_what_is_hidden,
    ),
    Broken(
        "the file of an overview counts after a revocation",
        "rag.search.overview.newest_version",
        lambda _real: lambda _table: [],
        a_file_tells_nobody_of_what_is_hidden,
    ),
    # The engine's predicate: who may see a source.
    Broken(
        "the engine is not told who asks",
        "rag.access.rule.predicate",
        lambda _real: lambda *_: "(true)",
        a_search_leaves_out_what_is_hidden,
    ),
    Broken(
        "a quote in a user's name ends the literal",
        "rag.access.rule.literal",
        _unescaped,
        a_search_leaves_out_what_is_hidden,
    ),
    Broken(
        "names of users and groups ignore case",
        "rag.access.rule.entries_of",
        lambda real: lambda principal: frozenset(map(str.lower, real(principal))),
        a_search_leaves_out_what_is_hidden,
    ),
    Broken(
        "to the engine a denial is nothing",
        "rag.access.rule.predicate",
        _denials_unread,
        a_search_leaves_out_what_is_hidden,
    ),
    Broken(
        "to the engine an empty list, or no record, is everybody",
        "rag.access.rule.predicate",
        _no_labels_are_everybody,
        a_search_leaves_out_what_is_hidden,
    ),
    Broken(
        "the tenant is another than the principal's",
        "rag.store.read.desk_reader.DeskReader.collections",
        lambda real: lambda reader, _tenant: real(reader, "default"),
        a_search_leaves_out_what_is_hidden,
    ),
    Broken(
        "all tenants' collections are one list",
        "rag.store.read.desk_reader.DeskReader.collections",
        _of_all_tenants,
        a_search_leaves_out_what_is_hidden,
    ),
    # On every path.
    Broken(
        "the dense list has no predicate",
        "rag.store.read.collection_reader.CollectionReader.dense",
        _unfiltered,
        a_search_leaves_out_what_is_hidden,
    ),
    Broken(
        "the sparse list has no predicate",
        "rag.store.read.collection_reader.CollectionReader.sparse",
        _unfiltered,
        a_search_leaves_out_what_is_hidden,
    ),
    Broken(
        "the list of sources has no predicate",
        "rag.store.read.collection_reader.CollectionReader.page",
        _unfiltered,
        a_list_leaves_out_what_is_hidden,
    ),
    Broken(
        "the dense list is filtered after the best were taken",
        "rag.store.read.collection_reader.CollectionReader._table",
        _filtered_last(AsyncVectorQuery),
        better_hits_that_are_hidden_crowd_out_nothing,
    ),
    Broken(
        "the sparse list is filtered after the best were taken",
        "rag.store.read.collection_reader.CollectionReader._table",
        _filtered_last(AsyncFTSQuery),
        better_hits_that_are_hidden_crowd_out_nothing,
    ),
    Broken(
        "collections show though nothing in them does",
        "rag.search.desk.Desk._views",
        lambda _real: lambda desk, principal, _broken=None: desk._all_views(principal),  # noqa: SLF001
        a_collection_is_known_to_those_who_read_something_there,
    ),
    Broken(
        "whether there is anything to read is remembered without the principal",
        "rag.store.read.collection_reader.CollectionReader.has_any",
        _as_the_first_was_told,
        a_collection_is_known_to_those_who_read_something_there,
    ),
    Broken(
        "an open table never looks for newer versions",
        "rag.store.read.desk_reader.connect",
        lambda _real: lambda data, **_options: lancedb.connect_async(str(database_folder(data))),
        a_change_of_access_counts_at_once_for_a_desk_that_is_open,
    ),
    # The engine's predicate: filters and named sources.
    Broken(
        "a quote in a filter's value ends the literal",
        "rag.filters.grammar.literal",
        _unescaped,
        a_filter_only_narrows,
    ),
    Broken(
        "a compiled filter has no parentheses",
        "rag.search.view.predicate",
        lambda real: lambda *arguments, **options: real(*arguments, **options)[1:-1],
        a_filter_only_narrows,
    ),
    Broken("values ignore case", "rag.filters.grammar.leaf_predicate", _ignoring_case, a_filter_only_narrows),
    Broken(
        "a comparison with a missing field is neither true nor false",
        "rag.search.view.predicate",
        _null_untested,
        a_missing_field_is_like_no_value,
    ),
    Broken(
        "names of fields ignore case",
        "rag.search.view.parse_filter",
        lambda real: lambda filter_, fields: real({k.lower(): v for k, v in filter_.items()}, fields),
        a_field_has_one_name,
    ),
    Broken(
        "a quote in a source's id ends the literal",
        "rag.store.read.schema.literal",
        _unescaped,
        only_the_sources_asked_for_are_searched,
    ),
    Broken(
        "the engine is not told which sources to leave out",
        "rag.search.view.View.where",
        _without("exclude_sources", ()),
        only_the_sources_asked_for_are_searched,
    ),
    Broken(
        "exclude_sources is ignored",
        "rag.search.desk.narrow_views",
        lambda real: lambda views, plan: real(views, replace(plan, exclude_sources=())),
        only_the_sources_asked_for_are_searched,
    ),
    Broken(
        "one of no values is true",
        "rag.search.view.one_of",
        lambda real: lambda column, values: real(column, values) if values else "(true)",
        an_empty_list_is_not_everything,
    ),
    Broken(
        "no collections are all of them",
        "rag.search.desk.make_plan",
        lambda real: (
            lambda request, settings, tenant: real(
                replace(request, collections=request.collections or None), settings, tenant
            )
        ),
        an_empty_list_is_not_everything,
    ),
    Broken(
        "an empty filter is none",
        "rag.search.desk.narrow_views",
        lambda real: lambda views, plan: real(views, replace(plan, filter=plan.filter or None)),
        an_empty_list_is_not_everything,
    ),
    # The gate.
    Broken(
        "the gate is always content",
        "rag.search.view.View.admits",
        lambda _real: Trusting.admits,
        what_is_hidden_cannot_be_read,
    ),
    Broken(
        "to the gate deny does not win",
        "rag.access.rule.visible",
        lambda real: lambda who, access, case: real(who, access and replace(access, deny=frozenset()), case),
        what_is_hidden_cannot_be_read,
    ),
    Broken(
        "the gate shows what has no record",
        "rag.access.rule.visible",
        lambda real: lambda who, access, case: access is None or real(who, access, case),
        what_is_hidden_cannot_be_read,
    ),
    Broken(
        "to the gate an empty allow list is everybody",
        "rag.access.rule.visible",
        lambda real: (
            lambda who, access, case: (
                real(who, access, case)
                or access == Access("restricted", revision=access.revision if access else 0)
            )
        ),
        what_is_hidden_cannot_be_read,
    ),
    Broken(
        "a search skips the gate",
        "rag.search.recall._visible",
        lambda real: lambda view, *arguments: real(_trusting(view), *arguments),
        a_stale_copy_of_an_access_record_shows_nothing,
    ),
    Broken(
        "the gate goes by what it remembers of sources",
        "rag.store.read.collection_reader.CollectionReader._forget_if_changed",
        lambda _real: lambda _table: anyio.lowlevel.checkpoint(),
        a_stale_copy_of_an_access_record_shows_nothing,
    ),
    Broken(
        "nobody hears of what the gate keeps back",
        "rag.search.desk.Desk._alarm",
        lambda _real: lambda _desk, _sources: None,
        a_stale_copy_of_an_access_record_shows_nothing,
    ),
    Broken(
        "the gate does not ask the filter",
        "rag.search.view.View.admits",
        _not_asked("filter", None),
        a_stale_copy_of_fields_shows_nothing,
    ),
    Broken(
        "the gate does not ask which sources are named",
        "rag.search.view.View.admits",
        _not_asked("sources", None),
        the_gate_itself_knows_the_sources_asked_for,
    ),
    Broken(
        "the gate does not ask which sources to leave out",
        "rag.search.view.View.admits",
        _not_asked("exclude_sources", ()),
        the_gate_itself_knows_the_sources_asked_for,
    ),
    Broken(
        "a text is read without another look at its record",
        "rag.search.desk.extract",
        lambda real: lambda view, *id_, **window: real(_trusting(view), *id_, **window),
        what_is_taken_away_while_it_is_read_is_not_shown,
    ),
    Broken(
        "neighbours are read without a predicate",
        "rag.store.read.collection_reader.CollectionReader.chunks_between",
        _unfiltered,
        what_is_taken_away_while_it_is_read_is_not_shown,
    ),
    Broken(
        "a filter that is relaxed takes the access with it",
        "rag.search.why._relaxed",
        lambda real: (
            lambda query, dropped: replace(
                query, views=tuple(_opened(view) for view in real(query, dropped).views)
            )
        ),
        relaxation_drops_nothing_but_conditions,
    ),
    Broken(
        "what is beside a hit is shown without another look at its record",
        "rag.search.stages.detail.with_neighbors",
        lambda real: lambda hits, count, views: real(hits, count, _all_trusting(views)),
        what_is_taken_away_after_it_was_found_is_shown_with_nothing_around_it,
    ),
    Broken(
        "a section is shown without another look at its source's record",
        "rag.search.stages.detail.in_sections",
        lambda real: lambda hits, stage, views: real(hits, stage, _all_trusting(views)),
        what_is_taken_away_after_it_was_found_is_shown_with_nothing_around_it,
    ),
    # The queries beside the question.
    Broken(
        "a second query is asked without the principal",
        "rag.search.pipeline._views_of",
        _anybodys,
        a_second_query_only_narrows,
    ),
    Broken(
        "a second query's filter stands in the place of the request's",
        "rag.search.pipeline._views_of",
        lambda real: (
            lambda query, run, step: real(query, replace(run, plan=replace(run.plan, filter=None)), step)
        ),
        a_second_query_only_narrows,
    ),
    Broken(
        "a second query's filter is lost",
        "rag.search.pipeline._views_of",
        lambda real: lambda query, *arguments: real(replace(query, filter=None), *arguments),
        a_second_query_only_narrows,
    ),
    # The trace.
    Broken(
        "a trace lists what the gate kept back",
        "rag.search.why._listings",
        lambda real: lambda lists, _: real(lists, {chunk.id for ranked in lists for chunk in ranked.chunks}),
        a_trace_tells_nothing_of_what_the_gate_keeps_back,
    ),
    # The failures of others.
    Broken(
        "a search that drops its dense list does not say so",
        "rag.search.query_vectors._by_words_alone",
        lambda _real: lambda run, _step: replace(run, plan=replace(run.plan, mode="sparse")),
        a_search_without_its_model_says_what_it_lacks,
    ),
    Broken(
        "vectors of any two models are compared",
        "rag.corpus.EmbedderIdentity.may_compare",
        lambda _real: lambda _ours, _theirs: True,
        vectors_of_another_model_are_not_compared,
    ),
    Broken(
        "a remote caller reads the operator's message",
        "server.handlers.message_for",
        lambda _real: lambda error, remote: f"{error.for_caller} {error} {remote}",
        a_remote_caller_reads_no_address_of_an_endpoint,
    ),
    Broken(
        "the advice to a caller quotes the operator's message",
        "rag.search.query_vectors._advice",
        lambda real: lambda error, plan: f"{real(error, plan)} {error}",
        a_remote_caller_reads_no_address_of_an_endpoint,
    ),
    Broken(
        "a breaker takes no notice of failures",
        "rag.models.breaker.Breaker.begin",
        lambda _real: lambda breaker, patience: Call(breaker.clock(), patience, trial=False),
        an_endpoint_that_failed_is_not_asked_by_the_next_call,
    ),
    # What comes in.
    Broken(
        "a collection from before the first key stays open for what comes in later",
        "rag.admin.ingestion.usual_visibility",
        lambda _real: lambda _settings, collection: collection.visibility,
        what_comes_in_when_others_can_ask_is_hidden,
    ),
    Broken(
        "keys don't make a desk a shared one",
        "rag.admin.sharing.keys_in",
        lambda _real: lambda _home: Keys(),
        what_comes_in_when_others_can_ask_is_hidden,
    ),
]
CHECKS = list(dict.fromkeys(build.check for build in BROKEN))


async def _stocked(small: ModuleType, data: Path) -> dict[str, str]:
    """The stock in a new data folder: the ids of its sources by title."""
    ids: dict[str, str] = {}
    for (tenant, name), items in STOCK.items():
        fields = FIELDS if name == "documents" else {}
        collection = await ensure_collection(data, tenant, name, small.BagOfWords().identity, fields=fields)
        async with open_writer(data, collection) as writer:
            new = partial(small.new_source, writer)
            sources = [
                new(title, *_paragraphs(title, item.chunks), access=item.access, fields=item.fields)
                for title, item in items.items()
            ]
            await writer.replace(sources)
            ids |= {title: writer.ids.of(title) for title in items}
    return ids


def _paragraphs(title: str, chunks: int) -> list[str]:
    return ["pendulum"] * chunks if chunks > 1 else [f"a pendulum among other words: {title}"]


@pytest.fixture(scope="session")
def stocked(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    data = tmp_path_factory.mktemp("stock") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)  # most of the time of small runs
        patch.setattr(table_maintenance, "LARGE_ROWS", 1)  # the engine's indexes are among what can break
        with start_blocking_portal("asyncio") as portal:  # other tests' loop may run in this thread
            return Shelf(small_desk, data, portal.call(_stocked, small_desk, data))


@pytest.fixture
def shelf(stocked: Shelf, tmp_path: Path) -> Shelf:
    """A shelf of its own for each test."""
    return replace(stocked, data=shutil.copytree(stocked.data, tmp_path / "data"))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_the_checks_pass_on_the_real_build(check: Check, shelf: Shelf) -> None:
    await check(shelf)


@pytest.mark.parametrize("build", BROKEN, ids=lambda build: build.name)
async def test_each_broken_build_is_caught(
    build: Broken, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build.target, build.replacement(pkgutil.resolve_name(build.target)))
    with pytest.raises(AssertionError):
        await build.check(shelf)
