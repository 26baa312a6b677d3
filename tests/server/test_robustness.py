"""What no proper host sends, how much of it, and what libraries print: the connection stays whole."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types

from rag.search.reply.search_reply import SearchReply
from server import handlers
from tests.server.conftest import HANDSHAKE, UNSHARED, call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.server.conftest import Admin, Message, Remote, Start, Wire

pytestmark = pytest.mark.slow


PARSE_ERROR, INVALID_REQUEST = -32700, -32600
MARK = "zebrafish"
MOST_VALUES = 10_000


def ping(**changes: Any) -> str:  # noqa: ANN401 any JSON
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/list", "params": {}} | changes)


def nested(depth: int) -> str:
    return ping(params={"x": "HERE"}).replace('"HERE"', "[" * depth + "]" * depth)


def expect_alive(wire: Wire) -> None:
    assert wire.result("tools/list")["tools"]


NO_MESSAGES: list[tuple[str | bytes, int]] = [
    ("{", PARSE_ERROR),
    ("hello", PARSE_ERROR),
    ("Content-Length: 5", PARSE_ERROR),
    (b"\xff\xfe\x00", PARSE_ERROR),
    ("[" * 100_000, PARSE_ERROR),
    (nested(100_000), PARSE_ERROR),
    (ping(params={"x": "HERE"}).replace('"HERE"', "9" * 5_000), PARSE_ERROR),
    ("null", INVALID_REQUEST),
    ("5", INVALID_REQUEST),
    ("[]", INVALID_REQUEST),
    (f"[{ping()}]", INVALID_REQUEST),
    (f"[{ping()},{ping(id=8)}]", INVALID_REQUEST),
    ("{}", INVALID_REQUEST),
    (ping(jsonrpc="1.0"), INVALID_REQUEST),
    (ping(method=5), INVALID_REQUEST),
    (ping(params=[1]), INVALID_REQUEST),
    *((ping(id=id_), INVALID_REQUEST) for id_ in (None, 1.5, 1.0, {}, [], True, False, [1], {"a": 1})),
    (ping(id="HERE").replace('"HERE"', "1e400"), INVALID_REQUEST),
    (ping(id=None, method="notifications/initialized"), INVALID_REQUEST),
]


@pytest.mark.parametrize(("line", "code"), NO_MESSAGES, ids=lambda value: str(value)[:40])
def test_a_line_that_is_no_message_is_answered_as_such(wire: Wire, line: str | bytes, code: int) -> None:
    wire.write(line)
    answer = wire.read()
    assert answer["id"] is None
    assert answer["error"]["code"] == code
    assert is_plain(answer["error"]["message"])
    expect_alive(wire)


def is_plain(message: str) -> bool:
    """Whether it is a sentence or two of ours, and not what a library found."""
    return message.endswith(".") and "\n" not in message and "pydantic" not in message


def test_a_batch_is_told_that_there_are_none(wire: Wire) -> None:
    for line in ("[]", "[1]", f"[{ping()}]", f"[{ping()},{ping(id=8)}]"):
        wire.write(line)
        assert "takes no batches; MCP has dropped them in 2025-06-18" in wire.read()["error"]["message"]
    expect_alive(wire)


@UNSHARED  # a bridge reads each line on its own
def test_over_http_what_is_no_message_is_answered_in_the_same_words(
    lasting_listen: Callable[..., Remote], wire: Wire, clock_room: Path
) -> None:
    remote = lasting_listen(clock_room, http_authentication="[]", http_sse="true")
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "ping"} if wire.era == "modern" else {}
    with httpx2.stream("GET", f"{remote.base}/sse") as stream:
        events = (line.removeprefix("data: ") for line in stream.iter_lines() if line.startswith("data: "))
        doors = remote.url, remote.base + next(events)
        for line, _ in [*NO_MESSAGES, (f'{{"x": "{MARK}"}}', 0), (ping(params=MARK), 0)]:
            if len(line) < MOST_VALUES:  # otherwise refused for its length, before it is read
                wire.write(line)
                expected = wire.read()
                for door in doors:
                    body = (line.encode() if isinstance(line, str) else line) + b"\n"
                    answer = httpx2.post(door, content=body, headers=headers)
                    assert (answer.status_code, answer.json()) == (400, expected), line
        assert httpx2.post(doors[1], content=ping(), headers=headers).status_code == 202
        assert json.loads(next(events))["id"] == 7  # and nothing before it
    assert remote.post(body=ping().encode()).json()["result"]["tools"]
    assert MARK not in remote.noise.read_text()


@pytest.mark.parametrize(
    "line",
    [
        "",
        " \t\r",
        '{"jsonrpc":"2.0","id":99,"result":{}}',
        '{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
        '{"jsonrpc":"2.0","method":"notifications/nonsense"}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
        '{"jsonrpc":"2.0","method":"notifications/initialized"}',
        '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"search","arguments":{"query":"x"}}}',
    ],
)
def test_what_asks_for_nothing_is_not_answered(wire: Wire, line: str) -> None:
    wire.write(line)
    expect_alive(wire)


@pytest.mark.parametrize("line", ["\ufeff", "\ufeff \r"])
def test_a_byte_order_mark_alone_is_a_blank_line(wire: Wire, line: str) -> None:
    wire.write(line)
    expect_alive(wire)


def test_a_message_behind_a_byte_order_mark_is_answered_under_its_id(start: Start, clock_room: Path) -> None:
    with start(clock_room) as wire:
        greeting = {"jsonrpc": "2.0", "id": 41, "method": "initialize", "params": HANDSHAKE}
        wire.write("\ufeff" + json.dumps(greeting))  # PowerShell writes one before what it pipes
        answer = wire.read()
        assert (answer["id"], answer["result"]["protocolVersion"]) == (41, HANDSHAKE["protocolVersion"])
        wire.write("\ufeff" + ping(id=42))
        assert wire.read()["id"] == 42
        wire.write("\ufeff\ufeff" + ping(id=43))  # two are no sign of an editor
        assert wire.read()["error"]["code"] == PARSE_ERROR


@pytest.mark.parametrize(
    "method",
    ["nonsense", "", "tools/nonsense", "resources/subscribe", "logging/setLevel", "sampling/createMessage"],
)
def test_an_unknown_method_is_refused(wire: Wire, method: str) -> None:
    assert wire.error(method, {"uri": "x", "level": "debug"})["code"] in {-32601, -32602}
    expect_alive(wire)


def test_a_long_method_is_not_told_again(wire: Wire) -> None:
    assert wire.error("quokka" * 10)["data"] == "quokka" * 10
    for times in (11, 20_000):
        wire.write(ping(id=f"{times}", method="quokka" * times))
        answer = wire.read()
        assert (answer["id"], answer["error"]["code"]) == (f"{times}", -32601)
        assert "quokka" not in str(answer)
    expect_alive(wire)


@pytest.mark.parametrize("id_", [0, -1, 2**70, "", "a", "é"], ids=str)
def test_any_string_or_integer_is_an_id(wire: Wire, id_: int | str) -> None:
    assert wire.request("tools/list", id_=id_)["result"]["tools"]


def test_deep_arguments_are_only_wrong(wire: Wire) -> None:
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    assert wire.tool_error("search", {"query": "x", "sources": deep}).startswith("sources must be a list")


def test_an_id_may_be_used_again_even_at_once(wire: Wire) -> None:
    for _ in range(3):
        wire.send("again", "tools/call", {"name": "search", "arguments": {"query": "clock"}})
    for _ in range(3):
        answer = wire.read()
        assert answer["id"] == "again"
        assert answer["result"]["structuredContent"]["results"]


def test_two_hundred_calls_at_once_are_each_answered_under_their_own_id(wire: Wire) -> None:
    words = ["pendulum", "caesium", "longitude", "calendar"]
    for number in range(200):
        arguments = {"query": words[number % 4], "mode": "sparse", "limit": 1}
        wire.send(number, "tools/call", {"name": "search", "arguments": arguments})
    answers = {answer["id"]: answer for answer in (wire.read() for _ in range(200))}
    assert sorted(answers) == list(range(200))
    for number, answer in answers.items():
        (hit,) = answer["result"]["structuredContent"]["results"]
        assert words[number % 4] in hit["text"].lower()


def test_a_cancelled_call_leaves_the_others_alone(wire: Wire) -> None:
    for id_ in (1, 2):
        wire.send(id_, "tools/call", {"name": "search", "arguments": {"query": "clock"}})
    wire.send(None, "notifications/cancelled", {"requestId": 1})
    answer = wire.read()
    if answer["id"] == 1:  # it was answered before the cancellation came
        answer = wire.read()
    assert answer["id"] == 2
    assert answer["result"]["structuredContent"]["results"]


def test_the_other_era_is_refused_on_an_open_connection(wire: Wire) -> None:
    other_era = "modern" if wire.era == "legacy" else "legacy"
    request = {"modern": ("tools/list", {}), "legacy": ("initialize", {"protocolVersion": "2025-11-25"})}
    envelope = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
    method, params = request[other_era]
    message = {"id": 5, "jsonrpc": "2.0", "method": method, "params": params | envelope}
    wire.write(json.dumps(message))
    answer = wire.read()
    assert answer["id"] == 5
    assert answer["error"]["code"] < 0
    expect_alive(wire)


NOISY = """
import os, subprocess, sys

print("noise: a library that greets")

class Noisy:
    def find_spec(self, name, path=None, target=None):
        if name == "lancedb":
            print("noise: printed", flush=True)
            sys.__stdout__.write("noise: written\\n")
            os.write(1, b"noise: from C\\n")
            subprocess.run(["echo", "noise: from a child"])
            print("noise: read", repr(sys.stdin.read()))
        return None

sys.meta_path.insert(0, Noisy())
"""


def test_what_libraries_print_goes_to_standard_error(start: Start, clock_room: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NOISY)
    wire = start(
        clock_room, flags=["--alone"], env={"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": ""}
    ).begun()
    assert wire.tool("search", {"query": "clock"})["structuredContent"]["results"]
    assert wire.leave() == 0
    noise = wire.stderr()
    assert "noise: printed" in noise
    assert "noise: from C" in noise
    assert "noise: from a child" in noise


def test_a_host_without_standard_error_gets_nothing_but_messages(
    start: Start, clock_room: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"{NOISY}\nos.close(2)\n")
    wire = start(clock_room, env={"PYTHONPATH": str(tmp_path), "PYTHONUNBUFFERED": ""}).begun()
    assert wire.tool("search", {"query": "clock"})["structuredContent"]["results"]
    assert wire.leave() == 0
    assert wire.stderr() == ""


def test_normal_use_leaves_standard_error_empty(start: Start, clock_room: Path) -> None:
    wire = start(clock_room).begun()
    id_ = wire.tool("search", {"query": MARK})["structuredContent"]["results"][0]["id"]
    wire.tool_error("search", {"query": MARK, "limit": -1})
    wire.tool_error("get_source", {"id": MARK})
    wire.result("resources/read", {"uri": f"refdesk://documents/{id_}"})
    wire.error("resources/read", {"uri": MARK})
    wire.result("resources/list")
    wire.error("prompts/get", {"name": "answer"})
    assert wire.leave() == 0
    assert wire.stderr() == ""


def test_a_broken_store_is_told_without_its_words_or_those_of_the_query(
    start: Start, clock_room: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(clock_room, data)
    for part in data.glob("tables/*documents.lance/data/*"):
        part.write_bytes(b"\0" * part.stat().st_size)
    wire = start(data).begun()
    replies = [wire.tool_error("search", {"query": MARK, "mode": mode}) for mode in ("dense", "hybrid")]
    replies.append(wire.tool_error("get_source", {"id": "a" * 16}))
    replies.append(wire.error("resources/list")["message"])
    for reply in replies:
        assert "storage engine failed" in reply
        assert len(reply) < 200
    assert wire.leave() == 0
    assert MARK not in wire.stderr()
    assert str(data) not in wire.stderr()


MOST = 256 * 1024  # bytes of a reply
LINE = 1 << 20  # bytes of a line


@pytest.fixture(scope="module")
def wide_room(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long documents, of characters that take up to twelve bytes each in JSON, twice in a reply."""
    folder = tmp_path_factory.mktemp("wide")
    for name, text, length in [
        ("plain", "pendulum clock ", 280_000),
        ("chinese", "钟摆的等时性。", 50_000),
        ("emoji", "pendulum 🕰🕰🕰🕰 ", 70_000),
        ("quotes", 'pendulum "\\" ', 230_000),
    ]:
        (folder / f"{name}.txt").write_text(text * (length // len(text)))
    admin("ingest", folder, "--data", folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def wide(lasting_start: Start, wide_room: Path) -> Wire:
    """A server of the modern era that can add vectors and traces to its replies."""
    env = {"REFDESK_SERVER_INCLUDE_VECTORS": "true", "REFDESK_SERVER_EXPLAIN": "true"}
    env["REFDESK_SEARCH_THRESHOLDS_MIN_EVIDENCE"] = "0"  # the model reads no Chinese
    return lasting_start(wide_room, era="modern", env=env).begun()


def sources(wide: Wire) -> dict[str, Message]:
    return {resource["name"]: resource for resource in wide.result("resources/list")["resources"]}


def sized(wide: Wire, method: str, params: Message) -> tuple[Message, int]:
    """A result, and how long the whole answer is where characters beyond ASCII are escaped, as over HTTP."""
    answer = wide.request(method, params)
    return answer["result"], len(json.dumps(answer))


def test_no_reply_is_longer_than_clients_take_however_much_is_asked_for(wide: Wire) -> None:
    for name, source in sources(wide).items():
        id_ = source["uri"].rpartition("/")[2]
        arguments = {"id": id_, "max_chars": 100_000}
        result, size = sized(wide, "tools/call", {"name": "get_source", "arguments": arguments})
        reply = result["structuredContent"]
        assert MOST / 4 < size <= MOST, name
        assert reply["next_start"] == reply["end"]
        assert f"continue with start={reply['end']}" in reply["notes"][0]
        result, size = sized(wide, "resources/read", {"uri": source["uri"]})
        assert MOST / 3 < size <= MOST, name
        assert "more characters: open the document with start=" in result["contents"][0]["text"]
        arguments = {"query": "pendulum 钟摆", "limit": 100, "sources": [id_], "max_chars": 100_000}
        result, size = sized(wide, "tools/call", {"name": "search", "arguments": arguments})
        assert MOST / 4 < size <= MOST, name
        assert "more hits" in result["structuredContent"]["notes"][-1]


def test_a_trace_makes_no_reply_longer_than_clients_take(wide: Wire) -> None:
    arguments = {"query": "pendulum 钟摆", "explain": True, "max_chars": 100_000}
    for limit, explained in [(100, False), (1, True)]:
        params = {"name": "search", "arguments": arguments | {"limit": limit}}
        result, size = sized(wide, "tools/call", params)
        assert size <= MOST
        assert ("trace" in result["structuredContent"]) is explained
        assert ("The trace did not fit" in str(result["structuredContent"]["notes"])) is not explained


def test_a_cut_reply_continues_without_a_gap(wide: Wire) -> None:
    uri = sources(wide)["emoji.txt"]["uri"]
    text = wide.result("resources/read", {"uri": uri})["contents"][0]["text"]
    text, _, hint = text.rpartition("\n\n[")
    start = int(hint.rpartition("=")[2].rstrip("]"))
    arguments = {"id": uri, "start": start - 10, "max_chars": 2_000}
    reply = wide.tool("get_source", arguments)["structuredContent"]
    assert reply["start"] == start - 10
    assert text[-10:] + reply["text"][10:20] == reply["text"][:20]


def test_a_line_of_a_mebibyte_is_read_and_a_longer_one_is_refused(start: Start, clock_room: Path) -> None:
    wide = start(clock_room).begun()
    for length, served in [(LINE - 1, True), (LINE, False), (3 * LINE, False), (3 * LINE + 1, False)]:
        wide.write(ping().ljust(length))
        answer = wide.read()
        assert ("result" in answer) is served, length
        if not served:
            assert answer["id"] is None
            assert "at most 1048576 bytes" in answer["error"]["message"]
        assert wide.result("tools/list")["tools"]
    assert wide.leave() == 0
    assert wide.stderr() == ""


def test_replies_over_http_are_no_longer_than_clients_take(
    listen: Callable[..., Remote], wide_room: Path
) -> None:
    remote = listen(wide_room, http_authentication="[]")
    reply = remote.post(body=call("search", query="pendulum", limit=100, max_chars=100_000))
    assert reply.json()["result"]["structuredContent"]["results"]
    assert MOST / 4 < len(reply.content) <= MOST


@given(
    st.lists(
        st.sampled_from(["a", '"', "\\", "\n", "\x01", "é", "€", "😀", "\ud800", ",", ":1"]), max_size=50
    )
)
def test_no_reply_is_larger_than_its_text_lets_one_expect(pieces: list[str]) -> None:
    text = "".join(pieces) * 100
    contents = types.TextResourceContents(uri="refdesk://a/b", text=text)
    result = types.ReadResourceResult(contents=[contents])
    assert handlers.size_on_the_wire(result) <= handlers.most_bytes(result)
    if "\ud800" not in text:  # no stored text has one
        called = handlers.tool_result(SearchReply(notes=[text, *pieces], results=[], context=text))
        assert (
            handlers.size_on_the_wire(called)
            <= handlers.most_bytes(called)
            < 7 * len(called.model_dump_json().encode()) + 2_000
        )
