"""What is behind a wall doesn't exist: a bound caller's replies are those of a desk that holds nothing else.

Two servers answer the same requests. One has everything, and its caller is bound; the other has only what the
binding and the access rule let through. With strict statistics, every reply must be the same, byte for byte.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, MCPError
from mcp.types import (
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    PromptReference,
    ResourceTemplateReference,
)

from rag.config.server_settings import OpenerSettings, ServerSettings, ToolSettings
from rag.config.settings import SearchSettings, Settings
from rag.corpus import Access, Binding, Principal
from rag.search.desk import Desk
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from rag.uris import CHUNK_TEMPLATE, SOURCE_TEMPLATE
from server.admission import Admission
from server.handlers import create_server
from server.lazy_desk import LazyDesk
from tests.server.duel_draw import random_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

FIELDS: dict[str, dict[str, Any]] = {
    "handbook": {"status": "string", "year": "integer"},
    "tickets": {"status": "integer"},
    "archive": {"status": "string"},
    "notes": {},
}
FINAL: dict[str, Any] = {"status": "final"}
NOT_ANN = Access("tenant", deny=frozenset({"user:ann"}))
VISIBLE: dict[str, dict[str, Any]] = {
    "handbook/rules.md": FINAL | {"year": 2001},
    "handbook/leave/sick.md": FINAL | {"year": 2020},
    "handbook/leave/plain.md": FINAL,
}
HIDDEN: dict[str, dict[str, Any]] = {
    "handbook/drafts/secret.md": {"status": "draft", "year": 1666},
    "handbook/leave/secret.md": {"status": "FINAL", "year": 2020},
    "handbook/secret.md": {"year": 1777},
    "tickets/secret.md": {"status": 1},
    "archive/secret.md": {"status": "old"},
    "notes/secret.md": {},
}
DENIED: dict[str, dict[str, Any]] = {"handbook/denied/secret.md": FINAL | {"year": 1888}}
BOUND = Principal("default", "ann", bindings=(Binding(filter=FINAL, limit=9),))
ALONE = Principal("default", "ann", bindings=(Binding(limit=9),))


class OpenedDesk(LazyDesk):
    """One that has opened."""

    def __init__(self, settings: Settings, desk: Desk) -> None:
        super().__init__(settings)
        self._opened = desk

    async def desk(self) -> Desk:
        return self._opened


@dataclass(frozen=True, slots=True)
class Side:
    """A client of one of the two servers, and the ids of all sources by their paths."""

    client: Client
    ids: Mapping[str, str]

    async def reply(self, method: str, params: dict[str, Any]) -> str:
        """A reply as one text, whether it answers or refuses."""
        try:
            return await self._answer(method, params)
        except MCPError as error:
            return f"{error.code} {error.message} {error.data}"

    async def _answer(self, method: str, params: dict[str, Any]) -> str:
        match method:
            case "tools/list":
                return (await self.client.list_tools()).model_dump_json()
            case "resources/list":
                return (await self.client.list_resources()).model_dump_json()
            case "resources/read":
                return (await self.client.read_resource(params["uri"])).model_dump_json()
            case "instructions":
                return str(self.client.instructions)
            case "completion":
                completion = await self.client.complete(params["ref"], params["argument"], params["context"])
                return completion.model_dump_json()
        call = CallToolRequestParams(name=method, arguments=params)
        result = await self.client.session.send_request(CallToolRequest(params=call), CallToolResult)
        return result.model_dump_json()


async def _fill(small: ModuleType, data: Path, papers: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    ids = {}
    for name, fields in FIELDS.items():
        of_collection = {path: values for path, values in papers.items() if path.startswith(f"{name}/")}
        if not of_collection:
            continue
        collection = await ensure_collection(
            data, "default", name, small.BagOfWords().identity, fields=fields
        )
        async with open_writer(data, collection) as writer:
            for path, values in of_collection.items():
                text = f"pendulum {path.replace('/', ' ').removesuffix('.md')}"
                access = NOT_ANN if path in DENIED else Access("tenant")
                metadata = {"path": path.partition("/")[2]}
                details = {"fields": values, "access": access, "metadata": metadata}
                ids[path] = random_id(Random(path))  # noqa: S311 the same on both sides
                words = [text, f"clock 4711 {values}"]
                await writer.replace([small.new_source(writer, path, *words, id_=ids[path], **details)])
            await writer.finish()
    return ids


@pytest.fixture(scope="module", params=["key", "tool"])
async def sides(
    request: pytest.FixtureRequest, small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Side, Side]]:
    """Everything and a bound caller, by its key or by its tool; and what is left of it, to anybody."""
    folder = tmp_path_factory.mktemp("walls")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)  # most of the time of small runs
        ids = await _fill(small_desk, folder / "all", VISIBLE | HIDDEN | DENIED)
        await _fill(small_desk, folder / "left", VISIBLE)
    by_tool = request.param == "tool"
    opener = OpenerSettings(name="open")
    free = ToolSettings(name="find", opener=opener)
    bound = ToolSettings(name="find", opener=opener, filter=FINAL) if by_tool else free
    asker = ALONE if by_tool else BOUND
    everything = await _server(small_desk, folder / "all", bound, asker)
    walled = await _server(small_desk, folder / "left", free, ALONE)
    async with Client(everything, cache=None) as client_of_all, Client(walled, cache=None) as client_of_rest:
        yield Side(client_of_all, ids), Side(client_of_rest, ids)


async def _server(small: ModuleType, data: Path, tool: ToolSettings, asker: Principal) -> Any:  # noqa: ANN401 the SDK's
    overrides = ["mode", "limit", "candidates", "vectors", "thresholds"]
    search = SearchSettings.model_validate({"statistics": "strict", "overrides": overrides, "relax": True})
    published = ServerSettings(tools=(tool,), explain=True, include_vectors=True, full_results=True)
    settings = Settings(data=data, search=search, server=published)
    desk = Desk(DeskReader(data, timeout_seconds=15), small.BagOfWords(), search)
    return create_server(
        OpenedDesk(settings, desk), settings, Admission(settings.limits), lambda _context: asker, remote=True
    )


def _requests(ids: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What somebody tries who knows of everything."""
    for mode in ("dense", "sparse", "hybrid", "exact"):
        yield "find", {"query": "pendulum", "mode": mode, "limit": 9}
        yield "find", {"query": "secret", "mode": mode}
        yield "find", {"query": "pendulum", "mode": mode, "sources": list(ids.values())}
        yield "find", {"query": "pendulum", "mode": mode, "exclude_sources": [ids["handbook/rules.md"]]}
    for id_ in ids.values():
        yield "find", {"query": "pendulum", "related": id_, "limit": 9}
    yield "find", {"query": "se?cret.*", "mode": "exact", "match": "regex"}
    yield "find", {"query": "1666", "mode": "exact"}
    for filter_ in (
        {"status": "draft"},
        {"status": {"$ne": "final"}},
        {"$not": {"status": "final"}},
        {"$or": [{"status": {"$exists": False}}, {"status": {"$ne": "x"}}]},
        {"year": {"$lt": 2000}},
        {"year": {"$in": [1666, 1777, 1888, 2001]}},
        {"year": {"$gte": 2020}, "status": "draft"},
        {"path": {"$exists": True}},
        {"title": "handbook/secret.md"},
        {"status": 1},
        {"nothing": 1},
        {},
    ):
        yield "find", {"query": "pendulum", "filter": filter_, "limit": 9}
    for name in ("tickets", "archive", "notes", "handbook", "Handbook"):
        yield "find", {"query": "pendulum", "collections": [name]}
        yield "find", {"query": "pendulum", "exclude_collections": [name]}
        yield "open", {"id": name}
        yield "open", {"id": f"{name}/"}
    yield (
        "find",
        {"query": "pendulum", "candidates": 1000, "limit": 1, "thresholds": {"min_similarity": 0.01}},
    )
    yield "find", {"query": "pendulum", "limit": 10}
    yield "find", {"query": "pendulum", "context": True, "max_chars": 2000}
    yield "find", {"query": "pendulum", "wrong": 1}
    for folder in ("", "handbook/drafts", "handbook/leave", "handbook/denied/", "leave", "drafts"):
        yield "open", {"id": folder or "/"}
    for path, id_ in ids.items():
        for form in (id_, f"{id_}/0", f"{id_}/0-1", f"{id_}/1-0", f"{id_}/9", path, path.partition("/")[2]):
            yield "open", {"id": form}
        yield "open", {"id": id_, "outline": True}
        yield "open", {"id": id_, "lines": "1-2"}
        yield "open", {"id": f"{id_}/0", "around": 1}
        for collection in FIELDS:
            yield "open", {"id": f"refdesk://{collection}/{id_}"}
            yield "resources/read", {"uri": f"refdesk://{collection}/{id_}"}
            yield "resources/read", {"uri": f"refdesk://{collection}/{id_}/0"}
    yield "tools/list", {}
    yield "resources/list", {}
    yield "instructions", {}
    source = ResourceTemplateReference(uri=SOURCE_TEMPLATE)
    chunk, prompt = ResourceTemplateReference(uri=CHUNK_TEMPLATE), PromptReference(name="answer")
    for ref, name, value, context in (
        (source, "collection", "", {}),
        (source, "source_id", "", {}),
        (source, "source_id", "hand", {"collection": "handbook"}),
        (source, "source_id", "", {"collection": "notes"}),
        (chunk, "seq", "", {"source_id": ids["handbook/secret.md"]}),
        (chunk, "seq", "", {"source_id": ids["handbook/rules.md"]}),
        (prompt, "collection", "", {}),
        (prompt, "filter", "status", {}),
        (prompt, "filter", '{"year": ', {}),
    ):
        yield "completion", {"ref": ref, "argument": {"name": name, "value": value}, "context": context}


async def test_a_bound_callers_replies_are_those_of_a_desk_that_holds_nothing_else(
    sides: tuple[Side, Side],
) -> None:
    bound, alone = sides
    answered = 0
    for method, params in _requests(bound.ids):
        ours, theirs = await bound.reply(method, params), await alone.reply(method, params)
        assert ours == theirs, (method, params)
        request = json.dumps(params, default=str)
        assert "secret" not in ours or "secret" in request, (method, params)
        answered += "pendulum handbook" in ours
    assert answered > 30


async def test_a_trace_counts_and_ranks_only_what_the_binding_lets_through(sides: tuple[Side, Side]) -> None:
    for mode in ("dense", "sparse", "hybrid", "exact"):
        arguments = {"query": "pendulum", "mode": mode, "explain": True, "limit": 2}
        ours, theirs = [json.loads(await side.reply("find", arguments)) for side in sides]
        traces = [reply["structured_content"]["trace"] for reply in (ours, theirs)]
        for step in (step for trace in traces for step in trace["steps"]):
            del step["ms"]
        assert traces[0] == traces[1]
