"""What the operator fixes is no argument, and what holds for a tenant or a collection shows in its tools."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from rag.config.server_settings import ToolSettings
from rag.config.settings import Settings
from rag.corpus import Binding, Principal
from server.handlers import NO_TOOL
from server.tool_listing import tool_pair
from tests.server.conftest import call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.conftest import Admin, Message, Remote, Start, Wire, World

pytestmark = pytest.mark.slow


FIXED = "{} is fixed{} by the operator; leave it out."


def arguments_of(wire: Wire) -> Message:
    """The arguments of search, as hosts list them."""
    (search, _) = wire.result("tools/list")["tools"]
    properties: Message = search["inputSchema"]["properties"]
    return properties


def test_a_tool_that_can_t_search_is_warned_of_once_and_still_listed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asker = Principal("default", bindings=(Binding(profile="gone"),))
    search, _ = tool_pair(Settings(), ToolSettings(), asker, ())
    assert "limit" in search.input_schema["properties"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def ids(wire: Wire, **arguments: object) -> list[str]:
    reply = wire.tool("search", {"query": "pendulum"} | arguments)["structuredContent"]
    return [hit["id"] for hit in reply["results"]]


def test_what_is_fixed_is_no_argument_and_another_value_is_refused(start: Start, clock_room: Path) -> None:
    wire = start(clock_room, env={"REFDESK_SEARCH_OVERRIDES": "[]", "REFDESK_SEARCH_LIMIT": "3"}).begun()
    assert not arguments_of(wire).keys() & {"limit", "mode"}
    assert "query" in arguments_of(wire)
    refusals: list[tuple[Message, str]] = [
        ({"limit": 4}, FIXED.format("limit", " to 3")),
        ({"limit": 0}, FIXED.format("limit", " to 3")),
        ({"mode": "sparse"}, FIXED.format("mode", " to hybrid")),
    ]
    for wrong, words in refusals:
        assert wire.tool_error("search", {"query": "pendulum"} | wrong) == words
    all_ids = ids(wire)
    assert len(all_ids) == 3
    assert ids(wire, limit=3, mode="hybrid") == ids(wire, limit=None, mode=None) == all_ids


@pytest.mark.parametrize(
    ("override", "right", "wrong"),
    [("limit", {"limit": 2}, {"mode": "sparse"}), ("mode", {"mode": "sparse"}, {"limit": 2})],
)
def test_what_is_left_to_the_assistant_stays_an_argument(
    start: Start, clock_room: Path, override: str, right: Message, wrong: Message
) -> None:
    wire = start(clock_room, env={"REFDESK_SEARCH_OVERRIDES": override}).begun()
    assert arguments_of(wire).keys() & {"limit", "mode"} == {override}
    some_ids = ids(wire, **right)
    assert 0 < len(some_ids) <= right.get("limit", 8)  # passages in a row are one result
    assert some_ids != ids(wire)
    (fixed,) = wrong
    assert wire.tool_error("search", {"query": "pendulum"} | wrong).startswith(f"{fixed} is fixed to ")


def test_what_is_fixed_is_what_the_chosen_profile_says(
    start: Start, clock_room: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        "search.overrides = []\nserver.profiles = ['short', 'default']\n[search.profiles.short]\nlimit = 2\n"
    )
    wire = start(clock_room, env={"REFDESK_CONFIG": str(config)}).begun()
    assert len(ids(wire, profile="short")) == len(ids(wire, profile="short", limit=2)) == 2
    assert len(ids(wire, profile="default")) == 8
    refused = wire.tool_error("search", {"query": "pendulum", "profile": "short", "limit": 8})
    assert refused.startswith("limit is fixed to 2 ")
    assert wire.tool_error("search", {"query": "pendulum", "profile": 2}) == "profile must be a string."


OVERRIDES = {"fusion", "alpha", "candidates", "thresholds", "stages", "distance", "vectors"}


def test_no_override_is_an_argument_or_suggested_unless_the_operator_allows_it(wire: Wire) -> None:
    assert not arguments_of(wire).keys() & OVERRIDES
    refused = wire.tool_error("search", {"query": "pendulum", "rerank": True, "candidates": "many"})
    assert "Valid arguments: query, limit, mode" in refused
    assert not any(f"{name}," in refused.partition("Valid")[2] for name in OVERRIDES)
    refusals: list[tuple[Message, str]] = [
        ({"fusion": "rrf"}, FIXED.format("fusion", " to calibrated")),
        ({"candidates": 100}, FIXED.format("candidates", " to 50")),
        ({"thresholds": {"min_similarity": 0.5}}, FIXED.format("thresholds", "")),
        ({"thresholds": {"nearest": 0.5}}, FIXED.format("thresholds", "")),
        ({"stages": {"without": ["dedupe"]}}, FIXED.format("stages", "")),
        ({"vectors": True}, FIXED.format("vectors", "")),
        ({"stages": {"of": "fresh"}}, "The operator offers no profiles; leave stages.of out."),
    ]
    for wrong, words in refusals:
        assert wire.tool_error("search", {"query": "pendulum"} | wrong).startswith(words)


def test_what_may_be_overridden_is_an_argument_and_counts(
    start: Start, clock_room: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        f"[search]\noverrides = {['limit', 'mode', *sorted(OVERRIDES)]}\n"
        "stages = [{ stage = 'diversify', per_source = 1 }]\n[server]\nprofiles = ['fast', 'default']\n"
    )
    wire = start(clock_room, era="modern", env={"REFDESK_CONFIG": str(config)}).begun()
    assert arguments_of(wire).keys() >= OVERRIDES

    def hits(**arguments: object) -> list[Message]:
        reply = wire.tool("search", {"query": "pendulum clock"} | arguments)["structuredContent"]
        hits: list[Message] = reply["results"]
        return hits

    assert "vector" not in hits()[0]
    assert len(hits(vectors=True, limit=1)[0]["vector"]) == 384
    assert all(hit["similarity"] >= 0.4 for hit in hits(thresholds={"min_similarity": 0.4}))
    assert hits(fusion="rrf")[0]["score"] != hits()[0]["score"]
    assert hits(fusion="convex", alpha=1)[0]["id"] == hits(mode="dense")[0]["id"]
    sources = [hit["id"].partition("/")[0] for hit in hits()]
    assert len(sources) == len({*sources})
    sources = [hit["id"].partition("/")[0] for hit in hits(stages={"without": ["diversify"]})]
    assert len(sources) > len({*sources})
    refused = wire.tool_error("search", {"query": "pendulum", "stages": {"of": "precise"}})
    assert refused == "stages.of must be one of fast, default."
    refused = wire.tool_error("search", {"query": "pendulum", "alpha": 5})
    assert refused == "alpha must be a number from 0 to 1."


def test_excluded_collections_are_left_out(start: Start, shelves: Path) -> None:
    wire = start(shelves).begun()
    assert len(ids(wire)) == 6
    reply = wire.tool("search", {"query": "pendulum", "exclude_collections": ["notes"]})["structuredContent"]
    assert [hit["collection"] for hit in reply["results"]] == 3 * ["tickets"]
    refused = wire.tool_error("search", {"query": "pendulum", "exclude_collections": ["none"]})
    assert refused.endswith("Readable collections: notes, tickets.")


@pytest.fixture(scope="module")
def of_tenants(
    lasting_listen: Callable[..., Remote], world: World, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Remote]:
    """Servers of two tenants, of which acorn has its own defaults; overrides as given."""

    def listening(overrides: str) -> Remote:
        config = tmp_path_factory.mktemp("tenants") / "config.toml"
        config.write_text(
            f"[search]\noverrides = {overrides}\nmode = 'dense'\n"
            "[search.of_tenants.acorn]\nlimit = 1\nmode = 'sparse'\n"
        )
        return lasting_listen(world.data, more={"REFDESK_CONFIG": str(config)})

    return listening


def listed(remote: Remote, key: str) -> Message:
    (search, _) = remote.post(key).json()["result"]["tools"]
    properties: Message = search["inputSchema"]["properties"]
    return properties


def searched(remote: Remote, key: str, query: str, **arguments: object) -> Any:  # noqa: ANN401 any JSON
    result = remote.tool(key, "search", query=query, **arguments)
    if result.get("isError"):
        return result["content"][0]["text"]
    return [hit["cite_as"] for hit in result["structuredContent"]["results"]]


def test_each_tenant_is_listed_its_own_defaults_and_searches_by_them(
    of_tenants: Callable[[str], Remote], world: World
) -> None:
    remote = of_tenants("['mode', 'limit']")
    acorn, birch = listed(remote, world.ann), listed(remote, world.eve)
    assert (acorn["limit"]["default"], acorn["mode"]["default"]) == (1, "sparse")
    assert (birch["limit"]["default"], birch["mode"]["default"]) == (8, "dense")
    assert len(searched(remote, world.ann, "pendulum")) == 1
    assert {*searched(remote, world.ann, "pendulum", limit=8)} == {"open", "secret"}
    assert searched(remote, world.ann, "timekeeping") == []
    assert {*searched(remote, world.ann, "timekeeping", mode="dense", limit=2)} == {"open", "secret"}
    assert searched(remote, world.eve, "timekeeping") == ["theirs"]


def test_what_is_fixed_is_what_the_tenant_s_own_settings_say(
    of_tenants: Callable[[str], Remote], world: World
) -> None:
    remote = of_tenants("[]")
    for key, limit, mode in [(world.ann, 1, "sparse"), (world.eve, 8, "dense")]:
        assert not listed(remote, key).keys() & {"limit", "mode"}
        refused = searched(remote, key, "pendulum", limit=5)
        assert refused.startswith(f"limit is fixed to {limit} ")
        refused = searched(remote, key, "pendulum", mode="hybrid")
        assert refused.startswith(f"mode is fixed to {mode} ")
        assert len(searched(remote, key, "pendulum", limit=limit, mode=mode)) == 1


@pytest.fixture(scope="module")
def shelves(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two collections of three small documents each."""
    folder = tmp_path_factory.mktemp("shelves")
    for collection in ("notes", "tickets"):
        (folder / collection).mkdir()
        for number in range(3):
            (folder / collection / f"{number}.md").write_text(f"# {collection} {number}\n\nA pendulum.\n")
        admin("ingest", folder / collection, "--collection", collection, "--data", folder / "data")
    return folder / "data"


SHORT = "[search.of_collections]\ntickets = 'short'\n[search.profiles.short]\nlimit = 1\n"
"""Settings by which tickets are searched by a profile of their own."""


def test_a_collection_s_profile_counts_where_it_alone_is_searched(
    start: Start, shelves: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"{SHORT}[server]\nprofiles = ['default']\n")
    wire = start(shelves, env={"REFDESK_CONFIG": str(config)}).begun()
    assert arguments_of(wire)["limit"]["default"] == 8
    assert len(ids(wire, collections=["tickets"])) == 1
    assert len(ids(wire, collections=["notes"])) == 3
    assert len(ids(wire, collections=["notes", "tickets"])) == len(ids(wire)) == 6
    assert len(ids(wire, collections=["tickets"], profile="default")) == 3
    assert len(ids(wire, collections=["tickets"], limit=2)) == 2


def test_the_profile_of_a_tool_s_only_collection_is_in_the_list_of_tools(
    start: Start, shelves: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"{SHORT}[[server.tools]]\nname = 'search'\ncollections = ['tickets']\n")
    wire = start(shelves, env={"REFDESK_CONFIG": str(config)}).begun()
    assert arguments_of(wire)["limit"]["default"] == 1
    assert len(ids(wire)) == 1


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], world: World) -> Remote:
    return lasting_listen(world.data, server_openai_compat="true")


def called(remote: Remote, key: str, tool: str, **arguments: str) -> Message:
    result = remote.tool(key, tool, **arguments)
    (block,) = result["content"]
    assert block["type"] == "text"
    if not result.get("isError"):
        assert json.loads(block["text"]) == result["structuredContent"]
    return result


def test_every_result_has_an_id_a_title_and_an_address(remote: Remote, world: World) -> None:
    results = called(remote, world.ann, "search", query="pendulum")["structuredContent"]["results"]
    assert {hit["cite_as"] for hit in results} == {"open", "secret"}
    assert all(hit["url"] == f"refdesk://documents/{hit['id']}" for hit in results)


def test_a_document_bears_its_own_address_or_one_by_the_template_of_its_collection(
    admin: Admin, listen: Callable[..., Remote], tmp_path: Path
) -> None:
    pages = tmp_path / "pages"
    (pages / "hr").mkdir(parents=True)
    (pages / "hr" / "new hires?.md").write_text("# Clocks\n\nA pendulum.\n")
    (pages / "own.md").write_text("---\nurl: https://example.com/own\n---\n# Own\n\nA pendulum of its own.\n")
    for collection in ("handbook", "notes"):
        for page in pages.rglob("*.md"):
            page.write_text(f"{page.read_text()}\nIn {collection}.\n")  # equal passages would be one result
        admin("ingest", pages, "--collection", collection, "--data", tmp_path / "data")
    config = tmp_path / "config.toml"
    config.write_text('[search.urls]\nhandbook = "https://wiki.example.com/{path}"\n')
    remote = listen(
        tmp_path / "data",
        server_openai_compat="true",
        http_authentication="[]",
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
    (secret,) = [hit for hit in results if hit["cite_as"] == "secret"]
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
    unknown = remote.post(world.ann, call("fetsch", id="a" * 16)).json()["error"]["message"]
    assert unknown == NO_TOOL.format("fetsch", ", ".join(names))
    plain = listen(world.data)
    names = [tool["name"] for tool in plain.post(world.ann).json()["result"]["tools"]]
    assert names == ["search", "get_source"]
    reply = plain.post(world.ann, call("fetch", id="a" * 16))
    assert reply.json()["error"]["message"] == NO_TOOL.format("fetch", "search, get_source")
    results = plain.tool(world.ann, "search", query="pendulum")["structuredContent"]["results"]
    assert all("url" not in hit for hit in results)
