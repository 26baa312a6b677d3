"""What is too large, either way: lines of a host, and replies that a client would refuse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.server.conftest import ENVELOPE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Era, Message, Remote, Start, Wire

pytestmark = pytest.mark.slow

MOST = 256 * 1024  # bytes of a reply
LINE = 1 << 20  # bytes of a line


@pytest.fixture(scope="module")
def wide_room(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long documents, of characters that take up to twelve bytes each in JSON, twice in a reply."""
    folder = tmp_path_factory.mktemp("wide")
    for name, text, length in [
        ("plain", "pendulum clock ", 280_000),
        ("chinese", "钟摆的等时性。", 50_000),
        ("emoji", "pendulum 🕰🕰🕰🕰 ", 70_000),
        ("quotes", 'pendulum "\\" ', 230_000),
    ]:
        (folder / f"{name}.txt").write_text(text * (length // len(text)))
    assert scripts.admin("ingest", folder, "--data", folder / "data").returncode == 0
    return folder / "data"


@pytest.fixture(scope="module", params=["legacy", "modern"])
def wire(request: pytest.FixtureRequest, lasting_start: Start, wide_room: Path) -> Wire:
    env = {"REFDESK_SERVER_INCLUDE_VECTORS": "true", "REFDESK_SERVER_EXPLAIN": "true"}
    env["REFDESK_SEARCH_THRESHOLDS_MIN_EVIDENCE"] = "0"  # the model reads no Chinese
    opened = lasting_start(wide_room, era=request.param, env=env)
    opened.begin()
    return opened


def sources(wire: Wire) -> dict[str, Message]:
    return {one["name"]: one for one in wire.result("resources/list")["resources"]}


def sized(wire: Wire, method: str, params: Message) -> tuple[Message, int]:
    """A result, and how long the whole answer is where characters beyond ASCII are escaped, as over HTTP."""
    answer = wire.request(method, params)
    return answer["result"], len(json.dumps(answer))


def test_no_reply_is_longer_than_clients_take_however_much_is_asked_for(wire: Wire) -> None:
    for name, source in sources(wire).items():
        id_ = source["uri"].rpartition("/")[2]
        arguments = {"id": id_, "max_chars": 100_000}
        result, size = sized(wire, "tools/call", {"name": "get_source", "arguments": arguments})
        reply = result["structuredContent"]
        assert MOST / 4 < size <= MOST, name
        assert reply["next_start"] == reply["end"]
        assert f"continue with start={reply['end']}" in reply["notes"][0]
        result, size = sized(wire, "resources/read", {"uri": source["uri"]})
        assert MOST / 3 < size <= MOST, name
        assert "more characters: open the document with start=" in result["contents"][0]["text"]
        arguments = {"query": "pendulum 钟摆", "limit": 100, "sources": [id_], "max_chars": 100_000}
        result, size = sized(wire, "tools/call", {"name": "search", "arguments": arguments})
        assert MOST / 4 < size <= MOST, name
        assert "more hits" in result["structuredContent"]["notes"][-1]


def test_a_trace_makes_no_reply_longer_than_clients_take(wire: Wire) -> None:
    arguments = {"query": "pendulum 钟摆", "explain": True, "max_chars": 100_000}
    for limit, explained in [(100, False), (1, True)]:
        params = {"name": "search", "arguments": arguments | {"limit": limit}}
        result, size = sized(wire, "tools/call", params)
        assert size <= MOST
        assert ("trace" in result["structuredContent"]) is explained
        assert ("The trace did not fit" in str(result["structuredContent"]["notes"])) is not explained


def test_what_a_reply_left_out_follows_without_a_gap(wire: Wire) -> None:
    uri = sources(wire)["emoji.txt"]["uri"]
    text = wire.result("resources/read", {"uri": uri})["contents"][0]["text"]
    text, _, rest = text.rpartition("\n\n[")
    start = int(rest.rpartition("=")[2].rstrip("]"))
    arguments = {"id": uri, "start": start - 10, "max_chars": 2_000}
    reply = wire.tool("get_source", arguments)["structuredContent"]
    assert reply["start"] == start - 10
    assert text[-10:] + reply["text"][10:20] == reply["text"][:20]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_line_of_a_mebibyte_is_read_and_a_longer_one_is_refused(
    start: Start, clock_room: Path, era: Era
) -> None:
    wire = start(clock_room, era=era)
    wire.begin()
    for length, served in [(LINE - 1, True), (LINE, False), (3 * LINE, False), (3 * LINE + 1, False)]:
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}}
        if era == "modern":
            message["params"] = {"_meta": ENVELOPE}
        line = json.dumps(message)
        wire.write(line + " " * (length - len(line)))
        answer = wire.read()
        assert ("result" in answer) is served, length
        if not served:
            assert answer["id"] is None
            assert "at most 1048576 bytes" in answer["error"]["message"]
        assert wire.result("tools/list")["tools"]
    assert wire.leave() == 0
    assert wire.stderr() == ""


def test_over_http_replies_are_as_short(listen: Callable[..., Remote], wide_room: Path) -> None:
    remote = listen(wide_room, http_authentication="")
    arguments = {"query": "pendulum", "limit": 100, "max_chars": 100_000}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    reply = remote.post(body=body | {"params": {"name": "search", "arguments": arguments}})
    assert reply.json()["result"]["structuredContent"]["results"]
    assert MOST / 4 < len(reply.content) <= MOST
