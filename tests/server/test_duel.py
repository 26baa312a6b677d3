"""Whatever anybody asks, they get exactly what plain rules in Python say, and not a word of anything else.

A thousand random questions from seventeen people of two tenants, four of them bound to a part of theirs,
through MCP clients of both eras: to servers in this process, one of which has only tools that are bound, and
some of them to each of three that are started. There are 500, and 20,000 with --hypothesis-profile=nightly.
With DUELS=1000000 in the environment there are as many; with DUEL=1234 that one is asked alone, just as it
was among the others. With IN_BUCKET=1 all servers read a copy of the data folder in a bucket.
"""

from __future__ import annotations

import json
import logging
import os
import random
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from functools import partial
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING, Any

import anyio
import hypothesis
import numpy as np
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    CompleteRequest,
    CompleteRequestParams,
    CompleteResult,
    CompletionArgument,
    CompletionContext,
    ResourceTemplateReference,
)

from rag.config.load import load_settings
from rag.config.model_settings import EmbedderSettings
from rag.config.profiles import ThresholdSettings
from rag.config.server_settings import LimitSettings, OpenerSettings, ServerSettings, ToolSettings
from rag.config.settings import SearchSettings, Settings
from rag.corpus import Access, Binding, Principal
from rag.models.embed import open_embedder
from rag.search.desk import Desk
from rag.search.source_window import TOO_FEW
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from rag.uris import SOURCE_TEMPLATE
from server.admission import Admission
from server.handlers import create_server
from server.lazy_desk import LazyDesk
from tests.server import duel_draw as draw
from tests.server.duel_faults import DEFAULT_LIMIT, Reply, faults
from tests.server.duel_rules import COLLECTIONS, OPERATORS, VAULT
from tests.small_desk import set_access

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from mcp.client import Transport
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from rag.corpus import EmbedderIdentity, Vectors, Visibility
    from rag.home import Home
    from rag.models.embed import Embedder, TextKind
    from rag.store.write.collection_writer import CollectionWriter
    from rag.store.write.table_rows import NewSource
    from tests.conftest import Scripts
    from tests.server.duel_rules import Bound, Duel, Json, Library, Paper, Person

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
several = pytest.mark.skipif("DUEL" in os.environ, reason="one duel says nothing of all")

PROFILE = hypothesis.settings.default  # says how many are drawn
USUAL = 500 if PROFILE.max_examples < 100 else 20_000  # type: ignore[union-attr]  # there always is one
DUELS = int(os.environ.get("DUELS", USUAL))
FIRST = 1_000  # the first thousand lack some refusals
NUMBERS = [int(os.environ["DUEL"])] if "DUEL" in os.environ else range(FIRST, FIRST + DUELS)
STARTED_SHARE = 25  # one of so many is asked each server that is started, too
ONE_OTHER = 20  # one of so many is asked a server that relaxes filters, two the one with bound tools
KINDS = {0: "relaxed", 7: "tools", 14: "tools"}
AT_ONCE = 16
ANSWER_SECONDS = 60  # far more than any answer takes; the test fails instead of hanging
HELD_TO_SCHEMA = 7  # the client holds one reply of so many to the tool's schema: it takes it some 4 ms
HELD = re.compile(r"^- (\w+): .*?(\d+) documents?", re.MULTILINE)
ENOUGH_FAULTS = 10
WHO = "tests/who"  # in a request's _meta: the place in PEOPLE of who asks
OPEN = Access("tenant")
UNINDEXED = "tickets"  # a collection whose last writes are not yet in its indexes

EVERYTHING_IS_EVIDENCE = ThresholdSettings(min_evidence=0)  # made-up words would be none


@dataclass(frozen=True, slots=True)
class BagOfWords:
    """The small desk's bag of words, in vectors as long as the built-in model's and under its name."""

    small: ModuleType
    identity: EmbedderIdentity
    window: int = 256

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in re.finditer(r"\S+", text)]

    def vocabulary_share(self, text: str) -> float:  # noqa: ARG002 the protocol's
        return 1.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:  # noqa: ARG002 the protocol's
        return self.padded(self.small.vectors(texts))

    def padded(self, vectors: Vectors) -> Vectors:
        return np.pad(vectors, ((0, 0), (0, self.identity.dimension - vectors.shape[1])))


class OpenedDesk(LazyDesk):
    """One that has opened, with whatever embedder."""

    def __init__(self, settings: Settings, desk: Desk) -> None:
        super().__init__(settings)
        self._opened = desk

    async def desk(self) -> Desk:
        return self._opened


@dataclass(slots=True)
class Record:
    """What came of the duels. `counts` are of searches that found something, by what was in them."""

    faults: list[str] = field(default_factory=list)
    fought: int = 0
    counts: Counter[object] = field(default_factory=Counter)
    refusals: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))
    alarms: int = 0
    warnings: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def library() -> Library:
    return draw.all_papers()


@pytest.fixture(scope="module")
async def builtin() -> AsyncIterator[Embedder]:
    async with open_embedder(EmbedderSettings(), {}) as opened:
        yield opened


@pytest.fixture(scope="module")
def embedder(small_desk: ModuleType, builtin: Embedder) -> BagOfWords:
    return BagOfWords(small_desk, builtin.identity)


@pytest.fixture(scope="module")
async def data(library: Library, embedder: BagOfWords, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("duel") / "data"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)  # most of the time of small runs
        for tenant, collections in COLLECTIONS.items():
            for name, fields in collections.items():
                papers = [paper for paper in library.papers[tenant].values() if paper.collection == name]
                await _fill(data, embedder, papers, fields)
    return data


@pytest.fixture(scope="module")
def home(data: Path, scripts: Scripts) -> Iterator[Home]:
    """Where servers in this process read the desk."""
    with pytest.MonkeyPatch.context() as patch:
        serving = scripts.serving(data)
        for name, value in serving.items():
            patch.setenv(name, value)  # the engine reads credentials there
        yield load_settings(None, serving | {"REFDESK_DATA": str(data)}).home


async def _fill(data: Path, embedder: BagOfWords, papers: Sequence[Paper], fields: Mapping[str, Any]) -> None:
    """Write a collection: a quarter of it twice, with other words first; a quarter open to all at first."""
    tenant, name = papers[0].tenant, papers[0].collection
    visibility: Visibility = "restricted" if name == VAULT else "tenant"
    collection = await ensure_collection(
        data, tenant, name, embedder.identity, fields=fields, visibility=visibility
    )
    twice, closed = papers[::4], [paper for paper in papers[1::4] if paper.access]
    once = [paper for paper in papers if paper not in twice and paper not in closed]
    async with open_writer(data, collection) as writer:
        item = partial(_item, writer, embedder)
        await writer.replace([item(paper, former=True) for paper in twice])
        await writer.replace([item(paper, access=OPEN) for paper in [*twice, *closed]])
        await set_access(writer, {paper.id: record for paper in closed if (record := _access(paper))})
        await writer.replace([item(paper) for paper in once[5:]])
        await writer.finish()
        await writer.replace([item(paper) for paper in once[:5]])
        if name != UNINDEXED:
            await writer.finish()


def _item(
    writer: CollectionWriter,
    embedder: BagOfWords,
    paper: Paper,
    *,
    former: bool = False,
    access: Access | None = None,
) -> NewSource:
    chance = random.Random(paper.id)  # noqa: S311 the same in every run
    paragraphs = [f"{paper.canary}former", *draw.WORDS[:2]] if former else paper.paragraphs
    item: NewSource = embedder.small.new_source(
        writer,
        paper.title,
        *paragraphs,
        id_=paper.id,
        metadata=paper.metadata,
        fields=draw.some_fields(chance, writer.collection.fields) if former else paper.fields,
        access=access or _access(paper),
    )
    return replace(item, vectors=embedder.padded(item.vectors))


def _access(paper: Paper) -> Access | None:
    if paper.access is None:
        return None
    allow, deny = (frozenset(paper.access[name]) for name in ("allow", "deny"))
    return Access(paper.access["visibility"], allow, deny)


def principal_of(context: ServerRequestContext[Any, Any]) -> Principal:
    """Who asks, as this request's `_meta` says; the stranger where it doesn't."""
    meta: Mapping[str, Any] = context.meta or {}
    person = draw.PEOPLE[meta.get(WHO, -1)]
    bindings = tuple(Binding(**_binding(wall[0])) for wall in person.walls)
    return Principal(person.tenant, person.user, person.groups, bindings)


def _binding(bound: Bound) -> dict[str, Any]:
    filter_ = json.loads(bound.filter or "null")
    return {"collections": bound.collections, "filter": filter_, "limit": bound.limit}


def _tools() -> tuple[ToolSettings, ...]:
    """The pairs of tools of the server that has no others."""
    return tuple(
        ToolSettings(name=f"search_{name}", opener=OpenerSettings(name=f"open_{name}"), **_binding(bound))
        for name, bound in draw.TOOLS.items()
    )


@pytest.fixture(scope="module")
async def record(library: Library, embedder: BagOfWords, data: Path, home: Home) -> Record:
    """Of all duels, with three servers in this process that clients of both eras share.

    One relaxes filters, and one has only tools that are bound to something.
    """
    limits = LimitSettings(
        requests_per_minute=1_000_000, concurrent_per_tenant=AT_ONCE, request_seconds=ANSWER_SECONDS
    )
    record, log = Record(), BufferingHandler(capacity=10**6)
    logging.getLogger().addHandler(log)
    for kind in ("usual", "relaxed", "tools"):
        relaxed, tools = kind == "relaxed", kind == "tools"
        of_server = ServerSettings(full_results=True, tools=_tools() if tools else (ToolSettings(),))
        settings = Settings(data=data, limits=limits, server=of_server)
        reader = DeskReader(home, timeout_seconds=ANSWER_SECONDS)
        desk = Desk(reader, embedder, SearchSettings(relax=relaxed, thresholds=EVERYTHING_IS_EVIDENCE))
        admission = Admission(settings.limits)
        server = create_server(OpenedDesk(settings, desk), settings, admission, principal_of, remote=True)
        numbers = (number for number in NUMBERS if KINDS.get(number % ONE_OTHER, "usual") == kind)
        duels = (draw.duel(number, library, picky=not relaxed, through_tools=tools) for number in numbers)
        async with _client(server, "legacy") as legacy, _client(server, "auto") as modern:
            await _fight(record, library, [legacy, modern], duels, relaxed=relaxed)
        record.alarms += desk.alarms
    logging.getLogger().removeHandler(log)
    messages = [entry.getMessage() for entry in log.buffer if entry.levelno >= logging.WARNING]
    expected = f"no tenant {draw.STRANGER.tenant!r}"
    record.warnings = [message for message in messages if expected not in message]
    return record


def _client(server: Server[Any] | Transport, mode: str) -> Client:
    return Client(server, mode=mode, cache=None, read_timeout_seconds=ANSWER_SECONDS)


async def _fight(
    record: Record,
    library: Library,
    clients: Sequence[Client],
    duels: Iterator[Duel],
    *,
    relaxed: bool = False,
) -> None:
    """Many at once, until there are none left or something is quite wrong."""

    async def some() -> None:
        for duel in duels:
            reply = await _ask(clients[duel.number // 2 % len(clients)], duel)
            faults_found = [*faults(library, duel, reply, relaxed=relaxed)]
            record.faults += [f"DUEL={duel.number}: {fault}\n  {duel}" for fault in faults_found]
            _count(record, library, duel, reply)
            if len(record.faults) >= ENOUGH_FAULTS:
                break

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(some)


async def _ask(client: Client, duel: Duel) -> Reply:
    meta: Any = {WHO: draw.PEOPLE.index(duel.asker)}
    if duel.call in ASKED_ELSEWHERE:
        return await ASKED_ELSEWHERE[duel.call](client, duel, meta)
    match duel.call:
        case "resources/list":
            try:
                uris = await _listed(client, meta)
            except MCPError as error:
                if duel.asker != draw.STRANGER:
                    raise
                return Reply(f"{error.code} {error.message}")
            return Reply(" ".join(uris), {"uris": uris})
        case "resources/read":
            try:
                result = await client.read_resource(duel.arguments["uri"], meta=meta)
            except MCPError as error:
                return Reply(f"{error.code} {error.message}")
            (contents,) = result.model_dump(exclude_none=True)["contents"]
            return Reply(contents["text"], contents)
    reply = await _called(client, duel, duel.arguments, meta)
    pages = reply
    while duel.call == "listing" and pages.content and "next_after" in pages.content:
        after = {"after": pages.content["next_after"]}
        pages = await _called(client, duel, duel.arguments | after, meta)
        assert reply.content
        assert pages.content
        entries = reply.content["entries"] + pages.content["entries"]
        reply = Reply(f"{reply.text} {pages.text}", reply.content | {"entries": entries})
    return reply


async def _counted(client: Client, duel: Duel, meta: Any) -> Reply:  # noqa: ANN401 as below
    """The list of tools, and the documents that the description of each one counts in each collection."""
    listed = await client.list_tools(meta=meta)
    held = {
        tool.name: {name: int(count) for name, count in HELD.findall(tool.description or "")}
        for tool in listed.tools
        if tool.name.startswith("search")
    }
    return Reply(listed.model_dump_json(), {} if duel.asker == draw.STRANGER else held)


async def _completed(client: Client, duel: Duel, meta: Any) -> Reply:  # noqa: ANN401 as below
    params = CompleteRequestParams(
        ref=ResourceTemplateReference(uri=SOURCE_TEMPLATE),
        argument=CompletionArgument(name="source_id", value=duel.arguments["value"]),
        context=CompletionContext(arguments={**duel.arguments}),
        _meta=meta,
    )
    try:
        result = await client.session.send_request(CompleteRequest(params=params), CompleteResult)
    except MCPError as error:
        return Reply(f"{error.code} {error.message}")
    completion = result.completion
    return Reply(" ".join(completion.values), {"values": completion.values, "total": completion.total})


ASKED_ELSEWHERE = {"tools/list": _counted, "completion/complete": _completed}


async def _called(client: Client, duel: Duel, arguments: Json, meta: Any) -> Reply:  # noqa: ANN401 as above
    if duel.number % HELD_TO_SCHEMA == 0:
        result = await client.call_tool(duel.tool, arguments, meta=meta)
    else:
        params = CallToolRequestParams(name=duel.tool, arguments=arguments, _meta=meta)
        result = await client.session.send_request(CallToolRequest(params=params), CallToolResult)
    (block,) = result.content
    assert block.type == "text"
    return Reply(block.text, None if result.is_error else result.structured_content)


async def _listed(client: Client, meta: Any) -> list[str]:  # noqa: ANN401 as the client has it
    page = await client.list_resources(meta=meta)
    resources = page.resources
    while page.next_cursor:
        page = await client.list_resources(cursor=page.next_cursor, meta=meta)
        resources += page.resources
    return [resource.uri for resource in resources]


def _count(record: Record, library: Library, duel: Duel, reply: Reply) -> None:
    record.fought += 1
    arguments = duel.arguments
    if duel.asker == draw.STRANGER:
        return
    if duel.call != "search":
        record.counts[duel.call] += reply.content is not None
        if reply.content is None and duel.call != "listing":
            kind = library.kind(duel)
            is_part = kind == "own" and {"lines", "section"} & arguments.keys()
            record.refusals["part" if is_part else duel.call, kind].add(reply.text)
        elif reply.content is None:
            record.refusals["get_source", "folder"].add(reply.text)
    elif reply.content and (hits := reply.content["results"]):
        is_all = len(hits) < arguments.get("limit", DEFAULT_LIMIT)
        operators = re.findall(r'"(\$[a-z]+)": ', json.dumps(arguments.get("filter")))
        record.counts.update(
            ["found", duel.asker, duel.tool, (arguments.get("mode"), is_all), *arguments, *operators]
        )


async def test_everybody_gets_exactly_what_the_rules_say(record: Record) -> None:
    assert not record.faults, "\n".join(record.faults)
    assert record.fought == len(NUMBERS)


async def test_the_gate_has_nothing_to_keep_back_and_nothing_fails(record: Record) -> None:
    assert record.alarms == 0
    assert record.warnings == []


@several
async def test_what_is_not_there_and_what_is_not_for_one_are_refused_in_the_same_words(
    record: Record,
) -> None:
    for call in ("get_source", "resources/read"):
        refusals = {kind: words for (of, kind), words in record.refusals.items() if of == call}
        folder = {"folder"} if call == "get_source" else set()
        assert refusals.keys() == {"own", "denied", "foreign", "unknown", "misspelt"} | folder
        fewer = TOO_FEW.split("{0}")[1]  # only who may read a document is told how many passages it has
        assert len({words for words in set.union(*refusals.values()) if fewer not in words}) == 1
        assert all(fewer not in words for kind in refusals.keys() - {"own"} for words in refusals[kind])


@several
async def test_the_duels_are_as_various_as_they_must_be(record: Record) -> None:
    arguments = {"collections", "sources", "exclude_sources", "filter", "limit", "mode", "match", "case"}
    operators = {"$and", "$or", "$not"}.union(*OPERATORS.values())
    calls = {"get_source", "listing", "resources/read"}
    modes = {
        (mode, is_all) for mode in ("dense", "sparse", "hybrid", "exact", None) for is_all in (True, False)
    }
    people = {person for person in draw.PEOPLE if person != draw.STRANGER}
    shares: dict[object, float] = {"found": 0.5}
    shares |= dict.fromkeys([*arguments, *operators, *modes, *people, *calls], 0.01)
    rare = ["resources/list", "tools/list", "completion/complete", "search_old", "search_new"]
    shares |= dict.fromkeys(rare, 0.001)
    counts = {kind: record.counts[kind] for kind in shares}
    rarer = {kind: count for kind, count in counts.items() if count < shares[kind] * record.fought}
    assert not rarer


@pytest.mark.parametrize(
    ("mode", "person", "relaxed"),
    [("legacy", draw.PEOPLE[4], False), ("auto", draw.PEOPLE[6], False), ("auto", draw.PEOPLE[9], True)],
)
async def test_servers_that_are_started_for_somebody_say_the_same(  # noqa: PLR0913 fixtures
    library: Library,
    builtin: Embedder,
    data: Path,
    scripts: Scripts,
    tmp_path: Path,
    *,
    mode: str,
    person: Person,
    relaxed: bool,
) -> None:
    of_person = {
        "REFDESK_PRINCIPAL_TENANT": person.tenant,
        "REFDESK_PRINCIPAL_USER": person.user or "",
        "REFDESK_PRINCIPAL_GROUPS": ",".join(person.groups),
        "REFDESK_SEARCH_RELAX": str(relaxed).lower(),
        "REFDESK_SERVER_FULL_RESULTS": "true",
        "REFDESK_SEARCH_THRESHOLDS_MIN_EVIDENCE": "0",  # made-up words are none
        "REFDESK_LIMITS_REQUEST_SECONDS": str(ANSWER_SECONDS),
    }
    server = StdioServerParameters(
        command=scripts.forked_server,
        args=["--data", str(data)],
        env=scripts.environment | scripts.serving(data) | of_person,
    )
    judging = replace(library, knows=lambda query: builtin.vocabulary_share(query) > 0)
    record, duels = (
        Record(),
        (draw.duel(number, library, person, picky=not relaxed) for number in NUMBERS[::STARTED_SHARE]),
    )
    with (tmp_path / "noise").open("w") as noise:
        async with _client(stdio_client(server, noise), mode) as client:
            await _fight(record, judging, [client], duels, relaxed=relaxed)
    assert not record.faults, "\n".join(record.faults)
    assert (tmp_path / "noise").read_text() == ""
    assert "DUEL" in os.environ or record.counts["found"] > record.fought / 2
