"""Collections beside the usual: tables that others write, retrievers, and tags."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import TextResourceContents

from rag.config.model_settings import EmbedderSettings
from rag.models.embed import open_embedder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from types import ModuleType

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Start

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


TEXTS = {
    "docs/leave.md#1": "Parents may take ten months of paid leave.",
    "docs/pay.md#1": "Salaries are paid on the last working day of a month.",
    "docs/board.md#1": "The board decides on the salary of a director.",
}
RIGHTS = [["group:staff"], ["user:ann", "user:bob"], ["user:bob"]]


@asynccontextmanager
async def served(scripts: Scripts, data: Path, user: str) -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=scripts.forked_server,
        args=["--data", str(data), "--user", user, "--group", "staff"],
        env=scripts.environment,
    )
    async with Client(stdio_client(server), read_timeout_seconds=30) as client:
        yield client


async def searched(client: Client, query: str, **arguments: object) -> dict[str, Any]:
    result = await client.call_tool("search", {"query": query, **arguments})
    assert not result.is_error
    reply: dict[str, Any] = result.structured_content
    return reply


async def test_a_table_of_others_is_searched_cited_and_opened_by_the_rights_in_its_rows(
    admin: Admin, scripts: Scripts, foreign: ModuleType, tmp_path: Path
) -> None:
    async with open_embedder(EmbedderSettings(), {}) as embedder:
        vectors = await embedder.embed(list(TEXTS.values()), "document")
    columns = {
        "id": list(TEXTS),
        "text": list(TEXTS.values()),
        "vector": foreign.column_of(vectors),
        "readers": pa.array(RIGHTS, pa.list_(pa.string())),
        "title": ["Leave", "Pay", "Directors"],
        "year": [2024, 2025, 2026],
    }
    table = await foreign.written(tmp_path / "others", "handbook", columns)
    data = tmp_path / "data"
    attach = ["collection", "attach", "handbook", "--table", table, "--field", "year=integer", "--data", data]
    mapped = ["--id", "id", "--text", "text", "--vector", "vector", "--title", "title", "--allow", "readers"]
    admin(*attach, *mapped)
    before = foreign.contents(table.parent)
    async with served(scripts, data, "ann") as ann, served(scripts, data, "bob") as bob:
        for client, titles in ((ann, {"Leave", "Pay"}), (bob, {"Leave", "Pay", "Directors"})):
            for mode in ("hybrid", "dense", "sparse"):
                reply = await searched(client, "when is the salary of parents paid", mode=mode)
                assert {hit["cite_as"] for hit in reply["results"]} <= titles
            reply = await searched(client, "salary of a director on leave", mode="dense")
            assert {hit["cite_as"] for hit in reply["results"]} == titles
            listed = (await client.list_resources()).resources
            assert {resource.title for resource in listed} == titles
            tree = await client.call_tool("get_source", {"id": "handbook"})
            assert {title for title in ("Leave", "Pay", "Directors") if title in str(tree.content)} == titles
            properties = {
                tool.name: tool.input_schema["properties"] for tool in (await client.list_tools()).tools
            }
            assert "year" in str(properties["search"]["filter"])
        (hit,) = (await searched(bob, "director", filter={"year": 2026}))["results"]
        assert hit["text"] == TEXTS["docs/board.md#1"]
        opened = await bob.call_tool("get_source", {"id": hit["id"]})
        assert opened.structured_content
        assert opened.structured_content["text"] == hit["text"]
        assert (await ann.call_tool("get_source", {"id": hit["id"]})).is_error
        (contents,) = (await bob.read_resource(f"refdesk://handbook/{hit['id']}")).contents
        assert isinstance(contents, TextResourceContents)
        assert hit["text"] in contents.text
        assert foreign.contents(table.parent) == before
        rows = await foreign.opened(table)
        await rows.update({"readers": ["user:ann"]}, where="title = 'Directors'")
        assert (await bob.call_tool("get_source", {"id": hit["id"]})).is_error
        assert not (await searched(bob, "director", filter={"year": 2026}))["results"]
        assert (await searched(ann, "director", filter={"year": 2026}))["results"][0]["id"] == hit["id"]
        await rows.delete("title = 'Directors'")
        assert (await ann.call_tool("get_source", {"id": hit["id"]})).is_error


RETRIEVER = """
from rag.corpus import Retrieved


class Tickets:
    def __init__(self, texts):
        self.texts = texts

    async def retrieve(self, query, *, limit, principal):
        return [
            Retrieved(f"ticket/{at}", text, 1 / (1 + at), allow=(reader,), title=f"Ticket {at}")
            for at, (reader, text) in enumerate(self.texts.items())
        ][:limit]

    async def passage(self, id_, *, principal):
        found = await self.retrieve("", limit=99, principal=principal)
        return next((one for one in found if one.id == id_), None)
"""
SETTINGS = """
[retrievers.tickets]
call = "tickets_of_the_test:Tickets"
options = { texts = { "user:ann" = "The printer jams.", "user:bob" = "The printer prints salaries." } }
"""


async def test_a_retriever_of_the_settings_is_searched_and_opened_by_a_client(
    admin: Admin, scripts: Scripts, tmp_path: Path
) -> None:
    (tmp_path / "tickets_of_the_test.py").write_text(RETRIEVER)
    (tmp_path / "config.toml").write_text(SETTINGS)
    data = tmp_path / "data"
    admin("tenant", "create", "default", "--data", data)
    flags = ["--data", str(data), "--config", str(tmp_path / "config.toml"), "--user", "ann"]
    environment = scripts.environment | {"PYTHONPATH": str(tmp_path)}
    server = StdioServerParameters(command=scripts.forked_server, args=flags, env=environment)
    async with Client(stdio_client(server), read_timeout_seconds=30) as client:
        reply = await searched(client, "printer")
        (hit,) = reply["results"]
        assert (hit["cite_as"], hit["text"]) == ("Ticket 0", "The printer jams.")
        opened = await client.call_tool("get_source", {"id": hit["id"]})
        assert opened.structured_content
        assert opened.structured_content["text"] == hit["text"]
        assert not (await client.list_resources()).resources


def test_a_tag_is_listed_searched_by_name_and_read(admin: Admin, start: Start, tmp_path: Path) -> None:
    here = ("--data", tmp_path / "data")
    text = tmp_path / "leave.md"
    text.write_text("# Leave\n\nThe pendulum swings for twenty days.\n")
    admin("ingest", text, "--collection", "handbook", *here)
    admin("collection", "tag", "handbook", "then", *here)
    text.write_text("# Leave\n\nThe pendulum swings for thirty days.\n")
    admin("ingest", text, "--collection", "handbook", *here)

    wire = start(tmp_path / "data").begun()

    def best_hit(**more: Any) -> dict[str, Any]:  # noqa: ANN401 any arguments
        (hit,) = wire.tool("search", {"query": "pendulum", **more})["structuredContent"]["results"]
        return dict(hit)

    assert "thirty" in best_hit()["text"]
    tagged = best_hit(collections=["then"])
    assert "twenty" in tagged["text"]
    reply = wire.tool("get_source", {"id": tagged["id"]})["structuredContent"]
    assert "twenty" in reply["text"]
    (content,) = wire.result("resources/read", {"uri": f"refdesk://then/{tagged['id']}"})["contents"]
    assert "twenty" in content["text"]
    tools = str(wire.result("tools/list"))
    assert "handbook as it was on 20" in tools
    assert wire.leave() == 0
