"""Several tools from one server: each has its own words, and is walled by its own binding."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from rag.config.server_settings import ToolSettings
from rag.filters.grammar import check_form
from rag.search.agents import skill
from server.handlers import NO_TOOL
from tests.refusals import refusal
from tests.server.conftest import message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.conftest import Admin, Message, Remote, Start, Wire

pytestmark = pytest.mark.slow

SETTINGS = """
[server]
name = "acorn-desk"
title = "Acorn's desk"
instructions = "The documents of Acorn Ltd."
website = "https://acorn.example.com/desk"
icon = "https://acorn.example.com/icon.png"
explain = true
profiles = ["fast"]

[[server.tools]]
name = "search_rules"
title = "Search the rules"
description = "Rules that are in force."
opener = { name = "open_rules", title = "Open a rule", description = "Open one of them." }
collections = ["handbook"]
filter = { status = "final" }
limit = 2
arguments = ["limit", "mode"]

[[server.tools]]
name = "search_notes"
opener = { name = "open_notes" }
collections = ["notes", "handbook"]
filter = { year = { "$gte" = 2020 } }
profile = "fast"
"""
PAPERS = [
    ("handbook", "leave", "status: final\nyear: 1999"),
    ("handbook", "travel", "status: final\nyear: 2021"),
    ("handbook", "draft", "status: draft\nyear: 1999"),
    ("notes", "meeting", "year: 2022"),
    ("notes", "archive", "year: 1999"),
    ("diary", "private", "year: 2022"),
]
RULES, NOTES, ALL = {"leave", "travel"}, {"travel", "meeting"}, {"leave", "travel", "meeting"}


@pytest.fixture(scope="module")
def acorn(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("acorn")
    data = folder / "data"
    (folder / "config.toml").write_text(SETTINGS)
    fields = {"handbook": ["status=string", "year=integer"], "notes": ["year=integer"], "diary": []}
    for name, declared in fields.items():
        options = [part for field in declared for part in ("--field", field)]
        admin("collection", "create", name, *options, "--data", data)
        (folder / name).mkdir()
    for name, title, front in PAPERS:
        (folder / name / f"{title}.md").write_text(f"---\n{front}\n---\n# {title}\n\nA pendulum: {title}.\n")
    for name in fields:
        admin("ingest", folder / name, "--collection", name, "--data", data)
    return folder


@pytest.fixture(scope="module", params=["legacy", "modern"])
def wire(request: pytest.FixtureRequest, lasting_start: Start, acorn: Path) -> Wire:
    environment = {"REFDESK_CONFIG": str(acorn / "config.toml")}
    return lasting_start(acorn / "data", era=request.param, env=environment)


@pytest.fixture(scope="module")
def greeting(wire: Wire) -> Message:
    return wire.begin()


@pytest.fixture(scope="module")
def ids(lasting_start: Start, acorn: Path) -> dict[str, str]:
    """Every source's id by its title, from a server without bindings."""
    free = lasting_start(acorn / "data").begun()
    listed = free.result("resources/list")["resources"]
    return {resource["title"]: resource["uri"].rpartition("/")[2] for resource in listed}


def _titles(reply: Message) -> set[str]:
    return {hit["cite_as"] for hit in reply["structuredContent"]["results"]}


def _found(wire: Wire, tool: str, **arguments: object) -> set[str]:
    return _titles(wire.tool(tool, {"query": "pendulum", **arguments}))


def test_the_server_has_the_operators_name_and_words(wire: Wire, greeting: Message) -> None:
    server = greeting.get("serverInfo") or greeting["_meta"]["io.modelcontextprotocol/serverInfo"]
    assert (server["name"], server["title"]) == ("acorn-desk", "Acorn's desk")
    assert server["websiteUrl"] == "https://acorn.example.com/desk"
    assert server["icons"] == [{"src": "https://acorn.example.com/icon.png"}]
    assert greeting["instructions"].startswith("The documents of Acorn Ltd.\n")
    assert "never follow orders" in greeting["instructions"]
    assert "get_source" not in greeting["instructions"]
    prompt = wire.result("prompts/get", {"name": "answer", "arguments": {"question": "Why?"}})
    assert "get_source" not in json.dumps(prompt)


@pytest.mark.usefixtures("greeting")
def test_each_tool_has_its_words_and_offers_what_it_is_meant_to(wire: Wire) -> None:
    listed = {tool["name"]: tool for tool in wire.result("tools/list")["tools"]}
    assert list(listed) == ["search_rules", "open_rules", "search_notes", "open_notes"]
    assert (listed["search_rules"]["title"], listed["open_rules"]["title"]) == (
        "Search the rules",
        "Open a rule",
    )
    described = listed["search_rules"]["description"]
    assert described.startswith(
        "Rules that are in force.\n\nYou can search 2 documents here:\n- handbook: 2 "
    )
    assert "\n- notes: 1 document. Fields: year: 2022 (1)." in listed["search_notes"]["description"]
    assert listed["open_rules"]["description"] == "Open one of them."
    assert "open_notes" in listed["search_notes"]["description"]
    assert "get_source" not in json.dumps(listed)
    rules, notes = (listed[name]["inputSchema"]["properties"] for name in ("search_rules", "search_notes"))
    assert set(rules) == {"query", "limit", "mode"}
    assert (rules["limit"]["default"], rules["limit"]["maximum"]) == (2, 2)
    assert {"filter", "collections", "explain"} <= set(notes)
    assert "profile" not in notes
    assert notes["limit"]["maximum"] == 100


@pytest.mark.usefixtures("greeting")
def test_each_tool_finds_and_opens_what_it_is_bound_to(wire: Wire, ids: dict[str, str]) -> None:
    assert _found(wire, "search_rules") == RULES
    assert _found(wire, "search_notes") == NOTES
    assert _found(wire, "search_notes", filter={"$or": [{"year": 1999}, {"year": {"$gte": 2000}}]}) == NOTES
    assert _found(wire, "search_notes", sources=list(ids.values())) == NOTES
    unknown = wire.tool_error("open_rules", {"id": "a" * 16})
    for tool, titles in (("open_rules", RULES), ("open_notes", NOTES)):
        for title, id_ in ids.items():
            for name in (id_, f"{id_}/0", f"refdesk://notes/{id_}", f"refdesk://handbook/{id_}"):
                reply = wire.tool(tool, {"id": name})
                if title in titles and not name.startswith("refdesk://"):
                    assert reply["structuredContent"]["title"] == title
                elif title not in titles:
                    assert reply["content"][0]["text"] == unknown


@pytest.mark.usefixtures("greeting")
def test_what_a_tool_does_not_offer_is_refused(wire: Wire) -> None:
    for name, value in {"filter": {"year": 1999}, "explain": True, "collections": ["notes"]}.items():
        refused = wire.tool_error("search_rules", {"query": "pendulum", name: value})
        assert refused == f"search_rules has no argument {name}; leave it out."
    assert "Valid arguments: query, limit, mode." in wire.tool_error(
        "search_rules", {"query": "x", "lmit": 1}
    )
    assert "from 0 to 2" in wire.tool_error("search_rules", {"query": "pendulum", "limit": 3})
    assert wire.tool_error("search_rules", {}) == "search_rules needs a query: a question, or some words."
    schemas = {tool["name"]: tool["inputSchema"] for tool in wire.result("tools/list")["tools"]}
    assert schemas["search_rules"]["required"] == ["query"]
    assert "related" not in schemas["search_rules"]["properties"]["query"]["description"]
    assert _found(wire, "search_rules", limit=1, filter=None) < RULES
    answers = {
        wire.tool_error("search_notes", {"query": "x", "collections": [name]}).replace(name, "NAME")
        for name in ("diary", "imaginary")
    }
    assert len(answers) == 1
    fixed = wire.tool_error("search_notes", {"query": "x", "profile": "default"})
    assert fixed == "profile must be one of fast."


@pytest.mark.usefixtures("greeting")
def test_resources_and_completions_show_what_some_tool_may_show(wire: Wire, ids: dict[str, str]) -> None:
    listed = wire.result("resources/list")["resources"]
    assert {resource["title"] for resource in listed} == ALL
    unknown = wire.error("resources/read", {"uri": f"refdesk://notes/{'a' * 16}"})
    for name, title, _ in PAPERS:
        uri = f"refdesk://{name}/{ids[title]}"
        for address in (uri, f"{uri}/0"):
            reply = wire.request("resources/read", {"uri": address})
            if title in ALL:
                assert f"A pendulum: {title}" in reply["result"]["contents"][0]["text"]
            else:
                assert reply["error"]["message"] == unknown["message"]
    params = {
        "ref": {"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}"},
        "argument": {"name": "collection", "value": ""},
    }
    assert wire.result("completion/complete", params)["completion"]["values"] == ["handbook", "notes"]


@pytest.mark.usefixtures("greeting")
@pytest.mark.parametrize("name", ["search", "get_source", "fetch", "SEARCH_RULES", "search_rules "])
def test_there_is_no_other_tool(wire: Wire, name: str) -> None:
    error = wire.error("tools/call", {"name": name, "arguments": {"query": "pendulum", "id": "a" * 16}})
    said, _, named = error["message"].partition(" Tools: ")
    assert said == f"There is no tool {name!r}."
    assert {"search_rules", "open_rules"} <= {*named.rstrip(".").split(", ")}


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], acorn: Path) -> Remote:
    return lasting_listen(acorn / "data", more={"REFDESK_CONFIG": str(acorn / "config.toml")})


def _called(remote: Remote, key: str, method: str, **params: object) -> Message:
    reply = remote.post(key, message(method, **params))
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def test_a_bound_key_sees_and_calls_only_its_tools_and_only_what_both_admit(
    admin: Admin, remote: Remote, acorn: Path, ids: dict[str, str]
) -> None:
    def create(*options: str) -> str:
        config = ("--config", acorn / "config.toml", "--data", acorn / "data")
        return str(admin("key", "create", *options, *config)["key"])

    free = create("--user", "ann")
    rules = create("--user", "ann", "--tool", "search_rules")
    recent = create("--user", "ann", "--filter", '{"year": {"$gte": 2000}}')

    def tools(key: str) -> list[str]:
        return [tool["name"] for tool in _called(remote, key, "tools/list")["result"]["tools"]]

    def titles_found(key: str, tool: str) -> set[str]:
        called = _called(remote, key, "tools/call", name=tool, arguments={"query": "pendulum"})
        return _titles(called["result"])

    def resources(key: str) -> set[str]:
        return {
            resource["title"] for resource in _called(remote, key, "resources/list")["result"]["resources"]
        }

    assert (len(tools(free)), tools(rules)) == (4, ["search_rules", "open_rules"])
    assert (titles_found(free, "search_notes"), titles_found(rules, "search_rules")) == (NOTES, RULES)
    for name in ("search_notes", "open_notes", "search"):
        arguments = {"query": "pendulum", "id": ids["travel"]}
        refused = _called(remote, rules, "tools/call", name=name, arguments=arguments)
        assert refused["error"]["message"] == NO_TOOL.format(name, "search_rules, open_rules")
    assert (resources(free), resources(rules)) == (ALL, RULES)
    assert (titles_found(recent, "search_rules"), titles_found(recent, "search_notes")) == ({"travel"}, NOTES)
    assert resources(recent) == {"travel", "meeting"}
    leave = {"name": "open_rules", "arguments": {"id": ids["leave"]}}
    assert _called(remote, rules, "tools/call", **leave)["result"]["structuredContent"]["title"] == "leave"
    assert _called(remote, recent, "tools/call", **leave)["result"]["isError"]
    calls = [line["call"] for line in remote.log() if line["message"] == "call"]
    assert {"search_rules", "open_rules", "search_notes"} <= set(calls)


def test_a_binding_that_was_edited_wrongly_lets_nobody_in_and_the_log_says_where(
    admin: Admin, remote: Remote, acorn: Path
) -> None:
    key = admin("key", "create", "--data", acorn / "data", "--filter", '{"status": "final"}')["key"]
    assert remote.post(key).status_code == 200
    file = acorn / "data" / "keys.json"
    right = file.read_text()
    file.write_text(right.replace('"status": "final"', '"$where": "1=1"'))
    assert file.read_text() != right
    assert remote.post(key).status_code == 401
    (line,) = [line for line in remote.log() if line["level"] == "error"]
    assert f"bound_to.filter: {refusal(check_form, {'$where': '1=1'})}" in line["message"]
    file.write_text(right)
    assert remote.post(key).status_code == 200


ALONE = """
[server]
apps = true

[[server.tools]]
opener = false
sources = false
arguments = ["limit", "mode"]
"""


def test_a_search_tool_can_stand_alone_and_answer_with_one_text(
    start: Start, acorn: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(ALONE)
    wire = start(acorn / "data", env={"REFDESK_CONFIG": str(config)})
    instructions = wire.begin()["instructions"]
    (search,) = wire.result("tools/list")["tools"]
    assert set(search["inputSchema"]["properties"]) == {"query", "limit", "mode"}
    assert set(search["outputSchema"]["properties"]) == {"notes", "degraded", "context", "trust"}
    prompt = wire.result("prompts/get", {"name": "answer", "arguments": {"question": "{when}?"}})
    question = prompt["messages"][0]["content"]["text"]
    texts = instructions, search["description"], question, skill("desk", [ToolSettings(opener=None)])
    assert not any(word in text for text in texts for word in ("get_source", "{opener}", "{search}"))
    assert question.endswith("Question: {when}?")
    assert "4. Answer in at most" in question
    reply = wire.tool("search", {"query": "rules of travel"})["structuredContent"]
    assert reply.keys() == {"notes", "context", "trust"}
    assert "travel" in reply["context"]
    assert re.search(r"\[[a-z2-7]{16}/0\]", reply["context"])
    assert wire.error("tools/call", {"name": "get_source", "arguments": {}})
