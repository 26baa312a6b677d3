"""MCP Apps: the page of passages and the pictures that it shows, for clients that declare the extension."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.extension import advertise
from mcp.client.stdio import stdio_client

import server
from rag.confined.page_process import MOST_BYTES, MOST_MARKS
from server.handlers import MAX_REPLY_BYTES, NO_TOOL
from server.mcp_apps import EXTENSION, MIME_TYPE, SESSION, URI
from server.tool_listing import LOADED
from tests.pdfs import pdf
from tests.server.conftest import ENVELOPE, HANDSHAKE, UNSHARED, call, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Era, Message, Remote, Start, Wire

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"
HTML = (Path(server.__file__).parent / "passages.html").read_text(encoding="utf-8")
MOST_HTML = 60_000
APPS = {"extensions": {EXTENSION: {"mimeTypes": [MIME_TYPE]}}}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
PNG = b"\x89PNG\r\n\x1a\n"
MODES = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


class Room:
    """A data folder with a PDF for everybody, one for ann, and a note; and keys."""

    def __init__(self, admin: Admin, folder: Path) -> None:
        self.data, self.papers = folder / "data", folder / "papers"
        self.papers.mkdir()
        for name in ("open", "secret"):
            (self.papers / f"{name}.pdf").write_bytes(pdf(f"The pendulum clock of the {name} paper"))
            allow = ("--allow", "user:ann") if name == "secret" else ()
            admin("ingest", self.papers / f"{name}.pdf", "--collection", name, "--data", self.data, *allow)
        (self.papers / "note.md").write_text("# Note\n\nA pendulum without pages.\n")
        admin("ingest", self.papers / "note.md", "--collection", "notes", "--data", self.data)
        self.ann, self.bob = (self.key(admin, user) for user in ("ann", "bob"))
        self.bound = self.key(admin, "ann", "--collection", "notes")

    def key(self, admin: Admin, user: str, *options: str) -> str:
        return str(admin("key", "create", "--user", user, *options, "--data", self.data)["key"])


@pytest.fixture(scope="module")
def room(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Room:
    return Room(admin, tmp_path_factory.mktemp("room"))


class Host:
    """A host that speaks raw JSON-RPC over stdio, and declares the extension or not."""

    def __init__(self, wire: Wire, *, declares: bool) -> None:
        self.wire = wire
        self.declared: Message = APPS if declares else {}
        if wire.era == "legacy":
            wire.result("initialize", HANDSHAKE | {"capabilities": self.declared})
            wire.send(None, "notifications/initialized")

    def ask(self, method: str, **params: object) -> Message:
        """The result, or the error."""
        meta: Message = {}
        if self.wire.era == "modern":
            meta = {"_meta": ENVELOPE | {CAPABILITIES: self.declared}}
        answer = self.wire.request(method, meta | params)
        return dict(answer.get("result") or answer["error"])

    def tool(self, name: str, **arguments: object) -> Message:
        return self.ask("tools/call", name=name, arguments=arguments)


@pytest.fixture(scope="module", params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> Era:
    return request.param  # type: ignore[no-any-return]  # one of the two


@pytest.fixture(scope="module")
def host(lasting_start: Start, room: Room, era: Era) -> Callable[..., Host]:
    """Hosts of a server that publishes the page, or of one that doesn't."""

    def connected(*, publishes: bool, declares: bool, user: str = "ann") -> Host:
        env = {"REFDESK_SERVER_APPS": "true"} if publishes else {}
        return Host(lasting_start(room.data, era=era, env=env, flags=("--user", user)), declares=declares)

    return connected


@pytest.fixture(scope="module")
def apps_host(host: Callable[..., Host]) -> Host:
    return host(publishes=True, declares=True)


def found_of(host: Host) -> dict[str, str]:
    """The ids of the passages that it finds, by collection."""
    reply = host.tool("search", query="pendulum clock")["structuredContent"]
    return {hit["collection"]: hit["id"] for hit in reply["results"]}


def test_a_search_tool_names_the_page_and_a_tool_for_it_is_hidden_from_models(apps_host: Host) -> None:
    listed = apps_host.ask("tools/list")["tools"]
    golden = DATA / "tools_list_apps.json"
    without_holdings = [
        tool | {"description": tool["description"].partition("\n\nYou can search")[0]} for tool in listed
    ]
    hint = without_holdings[0]["_meta"].pop("anthropic/searchHint")
    assert {"notes", "secret"} <= {*hint.split(", ")}
    if os.environ.get("REGENERATE"):
        golden.write_text(json.dumps(without_holdings, indent=2) + "\n")
    assert without_holdings == json.loads(golden.read_text())
    search, opener, picture = listed
    assert search["_meta"] == {"ui": {"resourceUri": URI}, **LOADED}
    assert opener["_meta"] == LOADED
    assert picture["_meta"] == {"ui": {"visibility": ["app"]}}


@UNSHARED  # whose results have no addresses of pages
def test_hosts_without_the_extension_get_what_a_server_without_the_page_says(
    host: Callable[..., Host], apps_host: Host
) -> None:
    plain = host(publishes=False, declares=True)
    (id_,) = [id_ for collection, id_ in found_of(plain).items() if collection == "open"]
    requests: list[tuple[str, Message]] = [
        ("tools/list", {}),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("tools/call", {"name": "search", "arguments": {"query": "pendulum clock"}}),
        ("tools/call", {"name": "get_source", "arguments": {"id": id_}}),
        ("tools/call", {"name": "page_picture", "arguments": {"id": id_}}),
        ("resources/read", {"uri": URI}),
    ]
    hosts = [host(publishes=True, declares=False), host(publishes=False, declares=False)]
    differing = set()
    for method, params in requests:
        expected = json.dumps(plain.ask(method, **params))
        for other_host in hosts:
            assert json.dumps(other_host.ask(method, **params)) == expected, method
        if json.dumps(apps_host.ask(method, **params)) != expected:
            differing.add((method, params.get("name")))
    assert differing == {  # the control: where it is declared and published, these do differ
        ("tools/list", None),
        ("tools/call", "search"),
        ("tools/call", "page_picture"),
        ("resources/read", None),
    }
    assert plain.tool("page_picture", id=id_)["message"] == NO_TOOL.format(
        "page_picture", "search, get_source"
    )


@pytest.mark.parametrize(
    "declared",
    [{}, {"mimeTypes": []}, {"mimeTypes": ["text/html"]}, {"mimeTypes": MIME_TYPE}, {"mimeTypes": {"a": 1}}],
)
def test_a_declaration_without_the_kind_of_page_is_none(
    lasting_start: Start, room: Room, era: Era, declared: Message
) -> None:
    wire = lasting_start(room.data, era=era, env={"REFDESK_SERVER_APPS": "true"})
    host = Host.__new__(Host)
    host.wire, host.declared = wire, {"extensions": {EXTENSION: declared}}
    if era == "legacy":
        wire.result("initialize", HANDSHAKE | {"capabilities": host.declared})
        wire.send(None, "notifications/initialized")
    assert len(host.ask("tools/list")["tools"]) == 2


def test_the_page_comes_with_a_policy_that_lets_nothing_in(apps_host: Host) -> None:
    (content,) = apps_host.ask("resources/read", uri=URI)["contents"]
    assert (content["uri"], content["mimeType"], content["text"]) == (URI, MIME_TYPE, HTML)
    csp = content["_meta"]["ui"]["csp"]
    assert csp == {"connectDomains": [], "resourceDomains": [], "frameDomains": [], "baseUriDomains": []}
    assert URI not in json.dumps(apps_host.ask("resources/list"))


def test_a_result_says_which_passages_may_have_pictures(apps_host: Host) -> None:
    result = apps_host.tool("search", query="pendulum clock")
    results = result["structuredContent"]["results"]
    meta = result["_meta"]["refdesk/app"]
    assert meta["opener"] == "get_source"
    collections = {results[at]["collection"] for at in meta["pages"]}
    assert collections == {"open", "secret"}
    assert len(results) == 3


def test_a_picture_is_a_png_with_the_places_of_the_passage(apps_host: Host) -> None:
    id_ = found_of(apps_host)["open"]
    result = apps_host.tool("page_picture", id=id_)
    (image,) = result["content"]
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(image["data"], validate=True).startswith(PNG)
    facts = result["structuredContent"]
    assert {name: facts[name] for name in ("id", "page", "pages")} == {"id": id_, "page": 1, "pages": 1}
    assert len(facts["marks"]) == 1


def test_what_has_no_picture_says_why(apps_host: Host, room: Room) -> None:
    ids = found_of(apps_host)
    assert "only PDFs" in apps_host.tool("page_picture", id=ids["notes"])["content"][0]["text"]
    assert "can't be drawn" in apps_host.tool("page_picture", id=ids["open"], page=2)["content"][0]["text"]
    moved = (room.papers / "open.pdf").rename(room.papers / "kept")
    try:
        gone = apps_host.tool("page_picture", id=ids["open"])
    finally:
        moved.rename(room.papers / "open.pdf")
    assert gone["isError"]
    assert gone["content"][0]["text"].startswith("There is no picture of this page: its file")
    assert str(room.papers) not in json.dumps(gone)
    assert not apps_host.tool("page_picture", id=ids["open"]).get("isError")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "missing"),
        ({"id": "x/0", "page": 0}, "page must be"),
        ({"id": "x/0", "page": "first"}, "page must be"),
        ({"id": "x/0", "more": 1}, "Unknown argument"),
        ({"id": 5}, "id must be"),
        ({"id": "../../etc/passwd"}, "Nothing readable"),
        ({"id": "refdesk://open/aaaa/0"}, "Nothing readable"),
        ({"id": "aaaa"}, "Nothing readable|around needs"),
    ],
)
def test_wrong_arguments_of_page_picture_are_refused_in_words(
    apps_host: Host, arguments: Message, words: str
) -> None:
    result = apps_host.tool("page_picture", **arguments)
    assert result["isError"]
    assert re.search(words, result["content"][0]["text"])


def test_who_may_not_read_a_passage_gets_neither_it_nor_its_picture(host: Callable[..., Host]) -> None:
    ann, bob = (host(publishes=True, declares=True, user=user) for user in ("ann", "bob"))
    ids = found_of(ann)
    assert ids.keys() == {"open", "secret", "notes"}
    assert found_of(bob).keys() == {"open", "notes"}
    assert not ann.tool("page_picture", id=ids["secret"]).get("isError")
    assert not bob.tool("page_picture", id=ids["open"]).get("isError")
    hidden = bob.tool("page_picture", id=ids["secret"])
    assert hidden["isError"]
    assert hidden == bob.tool("page_picture", id=f"{'a' * 16}/0")


@UNSHARED
def test_the_server_itself_never_loads_what_draws(apps_host: Host) -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux tells what a process has loaded")
    assert not apps_host.tool("page_picture", id=found_of(apps_host)["open"]).get("isError")
    maps = Path(f"/proc/{apps_host.wire.process.pid}/maps").read_text()
    assert "lance" in maps  # the control: libraries are named there
    assert "pdfium" not in maps


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], room: Room) -> Remote:
    return lasting_listen(room.data, server_apps="true")


def greeting(capabilities: Message) -> Message:
    return message("initialize", **HANDSHAKE | {"capabilities": capabilities})


def called(remote: Remote, key: str, name: str, arguments: Message, session: str = SESSION) -> Message:
    headers = {"Mcp-Session-Id": session} if session else {}
    answer = remote.post(key, call(name, **arguments), **headers).json()
    return dict(answer.get("result") or answer["error"])


def test_an_older_client_repeats_over_http_that_it_shows_the_page(remote: Remote, room: Room) -> None:
    declared = remote.post(room.ann, greeting(APPS))
    assert declared.headers["mcp-session-id"] == SESSION
    assert "mcp-session-id" not in remote.post(room.ann, greeting({})).headers
    assert "mcp-session-id" not in remote.post(room.ann).headers
    counts = {
        session: len(remote.post(room.ann, **{"Mcp-Session-Id": session}).json()["result"]["tools"])
        for session in (SESSION, "another", "")
    }
    assert counts == {SESSION: 3, "another": 2, "": 2}


def test_a_server_that_publishes_no_page_has_neither_its_tool_nor_its_resource(
    lasting_listen: Callable[..., Remote], room: Room
) -> None:
    plain = lasting_listen(room.data)
    assert "mcp-session-id" not in plain.post(room.ann, greeting(APPS)).headers
    answer = plain.post(room.ann, **{"Mcp-Session-Id": SESSION}).json()
    assert len(answer["result"]["tools"]) == 2


def test_each_key_sees_the_pages_that_it_may_read(remote: Remote, room: Room) -> None:
    hits = called(remote, room.ann, "search", {"query": "pendulum clock"})["structuredContent"]["results"]
    ids = {hit["collection"]: hit["id"] for hit in hits}
    allowed = {
        user: {
            name for name in ids if not called(remote, key, "page_picture", {"id": ids[name]}).get("isError")
        }
        for user, key in (("ann", room.ann), ("bob", room.bob), ("bound", room.bound))
    }
    assert allowed == {"ann": {"open", "secret"}, "bob": {"open"}, "bound": set()}
    bound = called(remote, room.bound, "page_picture", {"id": ids["notes"]})  # it may read this one
    assert "only PDFs" in bound["content"][0]["text"]
    outside = called(remote, room.bound, "page_picture", {"id": ids["open"]})
    assert "Nothing readable" in outside["content"][0]["text"]


def test_a_tool_that_is_bound_binds_the_pictures(
    lasting_listen: Callable[..., Remote], room: Room, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    tool = (
        '[[server.tools]]\nname = "search_notes"\nopener = { name = "open_note" }\ncollections = ["notes"]\n'
    )
    config.write_text(f"[server]\napps = true\n{tool}")
    remote = lasting_listen(room.data, more={"REFDESK_CONFIG": str(config)})
    everything = lasting_listen(room.data, server_apps="true")
    hits = called(everything, room.ann, "search", {"query": "pendulum clock"})["structuredContent"]["results"]
    (id_,) = [hit["id"] for hit in hits if hit["collection"] == "open"]
    assert not called(everything, room.ann, "page_picture", {"id": id_}).get("isError")
    assert called(remote, room.ann, "page_picture", {"id": id_})["isError"]
    result = called(remote, room.ann, "search_notes", {"query": "pendulum"})
    assert result["_meta"]["refdesk/app"]["opener"] == "open_note"


def test_the_audit_names_the_picture_and_the_passage(remote: Remote, room: Room) -> None:
    (hit,) = called(remote, room.bob, "search", {"query": "pendulum clock", "collections": ["open"]})[
        "structuredContent"
    ]["results"]
    called(remote, room.bob, "page_picture", {"id": hit["id"]})
    line = [line for line in remote.log() if line.get("call") == "page_picture"][-1]
    assert (line["user"], line["ids"], line["outcome"]) == ("bob", [hit["id"]], "answered")


@MODES
@pytest.mark.anyio
async def test_the_sdks_client_gets_page_and_pictures_over_stdio(
    scripts: Scripts, room: Room, mode: str
) -> None:
    arguments = ["--data", str(room.data), "--user", "ann"]
    environment = scripts.environment | {"REFDESK_SERVER_APPS": "true"}
    parameters = StdioServerParameters(command=scripts.server, args=arguments, env=environment)
    extension = advertise(EXTENSION, {"mimeTypes": [MIME_TYPE]})
    async with Client(stdio_client(parameters), mode=mode, extensions=[extension]) as client:
        await follows(client)


@MODES
@pytest.mark.anyio
async def test_the_sdks_client_gets_page_and_pictures_over_http(
    listen: Callable[..., Remote], room: Room, mode: str
) -> None:
    remote = listen(room.data, server_apps="true", http_authentication="[]")
    extension = advertise(EXTENSION, {"mimeTypes": [MIME_TYPE]})
    async with Client(remote.url, mode=mode, extensions=[extension]) as client:
        await follows(client)


async def follows(client: Client) -> None:
    """What a host does: list the tools, fetch the page, search, and call the tool for the page."""
    listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert listed["search"].meta
    (content,) = (await client.read_resource(listed["search"].meta["ui"]["resourceUri"])).contents
    assert (content.mime_type, getattr(content, "text", "")) == (MIME_TYPE, HTML)
    result = await client.call_tool("search", {"query": "the pendulum clock of the open paper", "limit": 1})
    assert result.structured_content
    assert result.meta
    assert result.meta["refdesk/app"]["pages"] == [0]
    drawn = await client.call_tool("page_picture", {"id": result.structured_content["results"][0]["id"]})
    assert not drawn.is_error
    assert base64.b64decode(drawn.content[0].data).startswith(PNG)  # type: ignore[union-attr]  # an image


def test_the_page_is_small_and_needs_nothing() -> None:
    assert len(HTML.encode()) <= MOST_HTML
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacent",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
    ):
        assert word not in HTML
    assert not re.search(r"\b(src|href|srcset|action|on\w+)=", HTML)
    assert not re.search(r"https?://|@import|url\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", HTML)


def test_the_policy_in_the_page_names_its_script_and_its_styles() -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', HTML)
    digests = {
        kind: base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()
        for kind, inner in re.findall(r"<(script|style)>(.*?)</\1>", HTML, re.DOTALL)
    }
    assert policy.split("; ") == [
        "default-src 'none'",
        f"script-src 'sha256-{digests['script']}'",
        f"style-src 'sha256-{digests['style']}'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
    assert HTML.index(policy) < HTML.index("<style>")


def test_the_largest_picture_fits_into_a_reply() -> None:
    mark = len("[0.1234, 0.1234, 0.1234, 0.1234], ")
    assert (MOST_BYTES + 100) * 4 / 3 + MOST_MARKS * mark + 1_000 < MAX_REPLY_BYTES
