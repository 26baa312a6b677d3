"""What hosts see before anything is asked: names, instructions, capabilities, and the golden lists of tools.

Each diff of such a list is a change of our public API. With REGENERATE=1 in the environment, the lists
are written instead of compared.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema  # type: ignore[import-untyped]  # its types are a package of their own
import pytest

from rag.config.server_settings import ARGUMENTS
from rag.store.write.desk_folder import prepare
from server.resources import SKILLS
from server.tool_listing import RARE
from server.tools import SearchArguments
from tests.server.conftest import HANDSHAKE

if TYPE_CHECKING:
    from mcp import Client

    from tests.server.conftest import Admin, Start, Wire

pytestmark = pytest.mark.slow


MAX_TOOLS_BYTES = 4_500  # part of every conversation
MAX_EVERYTHING_BYTES = 7_000  # with all that an operator can offer
MAX_TEXT_CHARS = 1_500  # hosts cut at 2,048 without a word


@pytest.mark.anyio
async def test_each_era_is_spoken_with_the_host_that_asks_for_it(
    each_client: Client, request: pytest.FixtureRequest
) -> None:
    expected = {"legacy": "2025-11-25", "auto": "2026-07-28"}
    assert each_client.protocol_version == expected[request.node.callspec.params["each_client"]]


@pytest.mark.anyio
async def test_the_server_says_who_it_is_and_how_it_is_used(each_client: Client) -> None:
    assert each_client.server_info is not None
    assert (each_client.server_info.name, each_client.server_info.version) == ("refdesk", version("refdesk"))
    assert each_client.server_info.title == "Reference desk"
    assert each_client.instructions is not None
    assert "search" in each_client.instructions
    assert "get_source" in each_client.instructions
    assert len(each_client.instructions) < MAX_TEXT_CHARS


@pytest.mark.anyio
async def test_exactly_the_capabilities_that_it_has_are_announced(each_client: Client) -> None:
    assert each_client.server_capabilities.model_dump(by_alias=True, exclude_none=True) == {
        "tools": {"listChanged": False},
        "resources": {"listChanged": False, "subscribe": False},
        "prompts": {"listChanged": False},
        "completions": {},
    } | ({"extensions": {SKILLS: {}}} if each_client.protocol_version == "2026-07-28" else {})


def test_a_tool_can_offer_or_withhold_every_argument() -> None:
    assert set(SearchArguments.model_fields) - {"query"} == ARGUMENTS


def test_an_older_host_gets_the_protocol_version_it_asks_for(start: Start, tmp_path: Path) -> None:
    wire = start(tmp_path)
    greeting = wire.result("initialize", HANDSHAKE | {"protocolVersion": "2024-11-05"})
    assert greeting["protocolVersion"] == "2024-11-05"


def test_the_list_of_tools_is_small_on_the_wire(wire: Wire) -> None:
    search, get_source = wire.result("tools/list")["tools"]
    search["description"], _, held = search["description"].rpartition("\n\n")
    assert held.startswith("You can search 17 documents here:")  # this varies, and is as long as it has to be
    compact = json.dumps([search, get_source], separators=(",", ":"), ensure_ascii=False)
    assert len(compact.encode()) < MAX_TOOLS_BYTES


def test_the_tools_are_described_within_what_hosts_keep_and_read_only(wire: Wire) -> None:
    tools = wire.result("tools/list")["tools"]
    assert [tool["name"] for tool in tools] == ["search", "get_source"]
    for tool in tools:
        assert 0 < len(tool["description"]) < MAX_TEXT_CHARS
        assert tool["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
        assert "additionalProperties" not in tool["inputSchema"]


def test_the_tools_tell_the_operators_own_defaults_and_the_profiles_that_one_can_choose(
    start: Start, tmp_path: Path
) -> None:
    prepare(tmp_path)
    env = {"REFDESK_SEARCH_LIMIT": "3", "REFDESK_SEARCH_MODE": "dense", "REFDESK_SERVER_MAX_CHARS": "5000"}
    wire = start(tmp_path, env=env | {"REFDESK_SERVER_PROFILES": "fresh, default"}).begun()
    search, get_source = (tool["inputSchema"]["properties"] for tool in wire.result("tools/list")["tools"])
    assert search["limit"]["default"] == 3
    assert search["mode"]["default"] == "dense"
    assert not RARE & {*search, *get_source}
    assert search["profile"]["enum"] == ["fresh", "default"]
    assert wire.tool("search", {"query": "x", "profile": "fresh"})["structuredContent"]["results"] == []
    refused = wire.tool_error("search", {"query": "x", "profile": "fast"})
    assert refused == "profile must be one of fresh, default."


def test_arguments_that_models_hardly_use_are_accepted_and_described_where_the_operator_lists_them(
    start: Start, tmp_path: Path, wire: Wire
) -> None:
    first = wire.tool("search", {"query": "pendulum"})["structuredContent"]["results"][0]["id"]
    rare = {"exclude_sources": [first.partition("/")[0]], "max_chars": 2_000, "context": False}
    hits = wire.tool("search", {"query": "pendulum", **rare})["structuredContent"]["results"]
    assert first not in {hit["id"] for hit in hits}
    exact = {"query": "pENDULUM", "mode": "exact", "match": "words", "case": True, "exclude_sources": []}
    assert wire.tool("search", exact)["structuredContent"]["results"] == []
    config = tmp_path / "config.toml"
    config.write_text(f"[[server.tools]]\narguments = {json.dumps(sorted(RARE))}\n")
    listing = start(tmp_path / "data", env={"REFDESK_CONFIG": str(config)}).begun()
    search, get_source = (tool["inputSchema"]["properties"] for tool in listing.result("tools/list")["tools"])
    assert {"query", *RARE} == {*search}
    assert search["max_chars"]["default"] == get_source["max_chars"]["default"] == 16_000


def test_where_none_is_offered_there_is_no_profile_to_choose(wire: Wire) -> None:
    (search, _) = (tool["inputSchema"]["properties"] for tool in wire.result("tools/list")["tools"])
    assert "profile" not in search
    refused = wire.tool_error("search", {"query": "x", "profile": "fresh"})
    assert refused.endswith("leave profile out.")


def test_the_prompt_puts_the_question_into_instructions_to_search_and_cite(wire: Wire) -> None:
    (listed,) = wire.result("prompts/list")["prompts"]
    assert listed["name"] == "answer"
    arguments = [(argument["name"], argument["required"]) for argument in listed["arguments"]]
    assert arguments == [("question", True), ("collection", False), ("filter", False)]
    question = "Why {braces} and {question}?"
    prompt = wire.result("prompts/get", {"name": "answer", "arguments": {"question": question}})
    (message,) = prompt["messages"]
    assert message["role"] == "user"
    assert message["content"]["text"].endswith(f"Question: {question}")
    assert "search" in message["content"]["text"]
    assert "[source_id/seq]" in message["content"]["text"]


def test_the_prompt_can_ask_some_documents_only(wire: Wire) -> None:
    arguments = {"question": "Why?", "collection": "handbook", "filter": "status=final\n4. Obey"}
    prompt = wire.result("prompts/get", {"name": "answer", "arguments": arguments})
    assert prompt["messages"][0]["content"]["text"].endswith(
        "Question: Why?\nSearch only the collection handbook.\n"
        "Search only documents with this filter: status=final 4. Obey."
    )
    plain = wire.result("prompts/get", {"name": "answer", "arguments": {"question": "Why?", "filter": " "}})
    assert plain["messages"][0]["content"]["text"].endswith("Question: Why?")


def test_the_prompt_cant_be_had_without_its_question_or_under_another_name(wire: Wire) -> None:
    for arguments in ({}, {"question": ""}, {"question": " \n"}):
        error = wire.error("prompts/get", {"name": "answer", "arguments": arguments})
        assert error["code"] == -32602
        assert "question" in error["message"]
    assert wire.error("prompts/get", {"name": "answer"})["code"] == -32602
    assert wire.error("prompts/get", {"name": "nope", "arguments": {"question": "x"}})["code"] == -32602
    assert wire.error("prompts/get", {"name": "answer", "arguments": {"question": 5}})["code"] == -32602


def test_no_vector_leaves_unless_the_operator_says_so(wire: Wire) -> None:
    (search, _) = wire.result("tools/list")["tools"]
    assert "vector" not in search["outputSchema"]["properties"]["results"]["items"]["properties"]
    hits = wire.tool("search", {"query": "pendulum", "limit": 2})["structuredContent"]["results"]
    assert ["vector" in hit for hit in hits] == [False, False]


def test_with_all_that_an_operator_can_offer_the_list_of_tools_is_still_small_and_its_schemas_are_valid(
    start: Start, clock_room: Path
) -> None:
    everything = {"EXPLAIN": "true", "INCLUDE_VECTORS": "true", "OPENAI_COMPAT": "true"}
    everything |= {"PROFILES": "default, fast, fresh, precise"}
    wire = start(clock_room, env={f"REFDESK_SERVER_{name}": on for name, on in everything.items()}).begun()
    wire.send(1, "tools/list")
    line = wire.line()
    assert len(line) < MAX_EVERYTHING_BYTES
    tools = {tool["name"]: tool for tool in json.loads(line)["result"]["tools"]}
    assert list(tools) == ["search", "get_source", "fetch"]
    for tool in tools.values():
        for schema in (tool["inputSchema"], tool["outputSchema"]):
            jsonschema.Draft202012Validator.check_schema(schema)
            assert schema["type"] == "object"
    arguments = {"query": "pendulum", "limit": 3, "profile": "fresh", "explain": True}
    jsonschema.validate(arguments, tools["search"]["inputSchema"])
    arguments["max_chars"] = 100_000  # accepted, too
    reply = wire.tool("search", arguments)["structuredContent"]
    assert {"trace", "results"} <= reply.keys()
    assert [len(hit["vector"]) for hit in reply["results"]] == [384] * 3
    assert "vector" in tools["search"]["outputSchema"]["properties"]["results"]["items"]["properties"]
    id_ = {"id": reply["results"][0]["id"]}
    for name, call in [("search", arguments), ("get_source", id_), ("fetch", id_)]:
        jsonschema.validate(wire.tool(name, call)["structuredContent"], tools[name]["outputSchema"])


DATA = Path(__file__).parent / "data"
TWO_TOOLS = """
[[server.tools]]
name = "search_handbook"
title = "Search the handbook"
description = "Search the rules for employees that are in force."
opener = { name = "open_handbook", title = "Open the handbook", description = "Open a page of the handbook." }
collections = ["handbook"]
filter = { status = "final" }
profile = "precise"
limit = 5
arguments = ["limit", "mode"]

[[server.tools]]
name = "search_letters"
opener = { name = "open_letter" }
collections = ["letters"]
"""
EVERYTHING = """
[search]
overrides = [
  "mode", "limit", "fusion", "alpha", "candidates", "thresholds", "stages", "vectors", "distance"
]

[server]
profiles = ["default", "fast", "precise"]
explain = true
include_vectors = true
full_results = true
openai_compat = true
"""
CONFIGURATIONS: dict[str, tuple[str, bool]] = {
    "tools_list": ("", False),
    "tools_list_openai_compat": ("[server]\nopenai_compat = true\n", False),
    "tools_list_fields": ("", True),
    "tools_list_two_tools": (TWO_TOOLS, True),
    "tools_list_everything": (EVERYTHING, True),
}
"""By the name of the golden list: the settings, and whether there are collections with fields."""


@pytest.fixture(scope="module")
def library(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two collections that declare a field of each type between them."""
    folder = tmp_path_factory.mktemp("library")
    declared = {
        "handbook": ["status=string", "year=integer", "tags=string list"],
        "letters": ["sent=datetime", "price=number", "final=boolean"],
    }
    for name, fields in declared.items():
        options = [part for field in fields for part in ("--field", field)]
        admin("collection", "create", name, *options, "--data", folder / "data")
        paper = folder / f"{name}.md"
        paper.write_text(f"---\nstatus: final\nyear: 2024\nsent: 2024-05-01\n---\n# {name}\n\npendulum\n")
        admin("ingest", paper, "--collection", name, "--data", folder / "data")
    return folder / "data"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_list_of_tools_is_the_golden_one(start: Start, library: Path, tmp_path: Path, name: str) -> None:
    settings, with_fields = CONFIGURATIONS[name]
    config = tmp_path / "config.toml"
    config.write_text(settings)
    wire = start(library if with_fields else tmp_path / "data", env={"REFDESK_CONFIG": str(config)}).begun()
    listed = wire.result("tools/list")["tools"]
    golden = DATA / f"{name}.json"
    if os.environ.get("REGENERATE"):
        golden.write_text(json.dumps(listed, indent=2) + "\n")
    assert listed == json.loads(golden.read_text())
