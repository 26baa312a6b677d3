"""What ChatGPT's connectors demand: search and fetch in their form, with the same rights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Message, Remote, World

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], world: World) -> Remote:
    return lasting_listen(world.data, server_openai_compat="true")


def called(remote: Remote, key: str, tool: str, **arguments: str) -> Message:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    reply = remote.post(key, body | {"params": {"name": tool, "arguments": arguments}})
    result: Message = reply.json()["result"]
    (block,) = result["content"]
    assert block["type"] == "text"
    if not result.get("isError"):
        assert json.loads(block["text"]) == result["structuredContent"]
    return result


def test_every_result_has_an_id_a_title_and_an_address(remote: Remote, world: World) -> None:
    results = called(remote, world.ann, "search", query="pendulum")["structuredContent"]["results"]
    assert {hit["title"] for hit in results} == {"open", "secret"}
    assert all(hit["url"] == f"refdesk://documents/{hit['id']}" for hit in results)


def test_a_document_with_an_address_of_its_own_bears_it(
    scripts: Scripts, listen: Callable[..., Remote], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    page.write_text("<head><link rel=canonical href='https://example.com/clocks'></head><p>A pendulum.</p>")
    assert scripts.admin("ingest", page, "--data", tmp_path / "data").returncode == 0
    remote = listen(tmp_path / "data", server_openai_compat="true", http_authentication="")
    (hit,) = called(remote, "", "search", query="pendulum")["structuredContent"]["results"]
    document = called(remote, "", "fetch", id=hit["id"])["structuredContent"]
    assert hit["url"] == document["url"] == "https://example.com/clocks"


def test_a_document_without_an_address_has_one_by_the_template_of_its_collection(
    scripts: Scripts, listen: Callable[..., Remote], tmp_path: Path
) -> None:
    pages = tmp_path / "pages"
    (pages / "hr").mkdir(parents=True)
    (pages / "hr" / "new hires?.md").write_text("# Clocks\n\nA pendulum.\n")
    (pages / "own.md").write_text("---\nurl: https://example.com/own\n---\n# Own\n\nA pendulum of its own.\n")
    for collection in ("handbook", "notes"):
        done = scripts.admin("ingest", pages, "--collection", collection, "--data", tmp_path / "data")
        assert done.returncode == 0
    config = tmp_path / "config.toml"
    config.write_text('[search.urls]\nhandbook = "https://wiki.example.com/{path}"\n')
    remote = listen(
        tmp_path / "data",
        server_openai_compat="true",
        http_authentication="",
        more={"REFDESK_CONFIG": str(config)},
    )
    hits = called(remote, "", "search", query="pendulum")["structuredContent"]["results"]
    (clocks,) = (hit for hit in hits if (hit["collection"], hit["title"]) == ("notes", "Clocks"))
    assert {(hit["collection"], hit["title"]): hit["url"] for hit in hits} == {
        ("handbook", "Clocks"): "https://wiki.example.com/hr/new%20hires%3F.md",
        ("handbook", "Own"): "https://example.com/own",
        ("notes", "Clocks"): f"refdesk://notes/{clocks['id']}",
        ("notes", "Own"): "https://example.com/own",
    }
    for hit in hits:
        assert called(remote, "", "fetch", id=hit["id"])["structuredContent"]["url"] == hit["url"]


def test_fetch_opens_what_search_found(remote: Remote, world: World) -> None:
    for hit in called(remote, world.ann, "search", query="pendulum")["structuredContent"]["results"]:
        source = hit["id"].partition("/")[0]
        for id_ in (hit["id"], source, f"refdesk://documents/{hit['id']}"):
            document = called(remote, world.ann, "fetch", id=id_)["structuredContent"]
            assert document.keys() == {"id", "title", "text", "url", "metadata"}
            assert document["id"] == id_
            assert document["title"] == hit["title"]
            assert f"A pendulum, {hit['title']}." in document["text"]
            assert document["url"].startswith("refdesk://documents/")
            assert all(isinstance(value, str) for value in document["metadata"].values())


def test_fetch_keeps_back_what_the_caller_may_not_see(remote: Remote, world: World) -> None:
    results = called(remote, world.ann, "search", query="pendulum")["structuredContent"]["results"]
    (secret,) = [hit for hit in results if hit["title"] == "secret"]
    absent = called(remote, world.bob, "fetch", id="a" * 16)
    assert absent["isError"]
    for key in (world.bob, world.eve):
        assert called(remote, key, "fetch", id=secret["id"].partition("/")[0]) == absent
    assert "structuredContent" in called(remote, world.ann, "fetch", id=secret["id"].partition("/")[0])


def test_the_tool_is_listed_and_served_only_where_the_operator_says_so(
    remote: Remote, world: World, listen: Callable[..., Remote]
) -> None:
    names = [tool["name"] for tool in remote.post(world.ann).json()["result"]["tools"]]
    assert names == ["search", "get_source", "fetch"]
    other = listen(world.data)
    names = [tool["name"] for tool in other.post(world.ann).json()["result"]["tools"]]
    assert names == ["search", "get_source"]
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    reply = other.post(world.ann, body | {"params": {"name": "fetch", "arguments": {"id": "a" * 16}}})
    assert reply.json()["error"]["message"] == "There is no tool 'fetch'."
    found = other.post(world.ann, body | {"params": {"name": "search", "arguments": {"query": "pendulum"}}})
    assert all("url" not in hit for hit in found.json()["result"]["structuredContent"]["results"])
