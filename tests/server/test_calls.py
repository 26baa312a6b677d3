"""What a server tells its operator of each call: audit, metrics, spans, and never a caller's words."""

from __future__ import annotations

import json
import logging
import shutil
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx2
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rag.access.keys import Keys, keys_file, read_keys
from rag.runtime import install_command
from server import call_audit
from tests.server.conftest import call, free_port, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from opentelemetry.proto.trace.v1.trace_pb2 import Span

    from tests.conftest import Scripts
    from tests.server.conftest import Message, Remote, Start, World

pytestmark = pytest.mark.slow

CANARY = "quokka4711"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture(scope="module")
def remote(lasting_listen: Callable[..., Remote], world: World) -> Remote:
    return lasting_listen(world.data, http_sse="true", server_log_level="info")


def key_id(key: str) -> str:
    return key.split("_")[1]


def audited(remote: Remote) -> list[Message]:
    """The lines of the audit so far."""
    return [line for line in remote.log() if line["logger"] == "refdesk.audit"]


def test_a_call_leaves_one_line_that_says_who_what_and_which_ids_and_bears_its_name(
    remote: Remote, world: World
) -> None:
    reply = remote.post(world.ann, call("search", query="pendulum"), **{"X-Request-ID": "from-the-proxy.1"})
    assert reply.headers["X-Request-ID"] == "from-the-proxy.1"
    ids = [hit["id"] for hit in reply.json()["result"]["structuredContent"]["results"]]
    (line,) = [line for line in audited(remote) if line["request"] == "from-the-proxy.1"]
    assert line["milliseconds"] > 0
    assert ids
    fields = {key: value for key, value in line.items() if key not in {"time", "milliseconds"}}
    assert fields == {
        "level": "info",
        "logger": "refdesk.audit",
        "request": "from-the-proxy.1",
        "message": "call",
        "call": "search",
        "outcome": "answered",
        "client": "127.0.0.1",
        "key": key_id(world.ann),
        "tenant": "acorn",
        "user": "ann",
        "groups": ["hr"],
        "ids": ids,
    }


@pytest.mark.parametrize("header", ["", "x" * 65, "a b", "a/b", 'a"b'])
def test_a_name_that_could_mislead_a_reader_of_the_log_is_replaced(
    remote: Remote, world: World, header: str
) -> None:
    name = remote.post(world.ann, **{"X-Request-ID": header}).headers["X-Request-ID"]
    assert len(name) == 32
    assert audited(remote)[-1]["request"] == name


def test_every_outcome_is_told(remote: Remote, world: World) -> None:
    reply = remote.post(world.ann, call("search", query="pendulum")).json()["result"]["structuredContent"]
    hit = reply["results"][0]
    tries: list[tuple[Message, str, str, list[str]]] = [
        (call("search", query="x", limit=CANARY), "search", "invalid", []),
        (message("tools/list"), "tools/list", "answered", []),
        (call("search", query=""), "search", "invalid", []),
        (call("search", query="x", collections=["nowhere"]), "search", "not found", []),
        (call("get_source", id=hit["id"]), "get_source", "answered", [hit["id"].partition("/")[0]]),
        (call("get_source", id="a" * 16), "get_source", "not found", []),
        (
            message("resources/read", uri=f"refdesk://documents/{hit['id']}"),
            "resources/read",
            "answered",
            [f"refdesk://documents/{hit['id']}"],
        ),
        (message("resources/read", uri="refdesk://documents/aaaa"), "resources/read", "not found", []),
        (call(CANARY), "other", "invalid", []),
        (message(f"{CANARY}/x"), "other", "invalid", []),
    ]
    for body, name, outcome, ids in tries:
        remote.post(world.ann, body)
        line = audited(remote)[-1]
        assert (line["call"], line["outcome"], line["ids"]) == (name, outcome, ids), body
    listed = remote.post(world.bob, message("resources/list")).json()["result"]["resources"]
    assert audited(remote)[-1]["ids"] == [resource["uri"] for resource in listed]
    assert len(listed) == 1
    for arguments, ids in ({}, []), ({"id": "documents/"}, [listed[0]["uri"].rpartition("/")[2]]):
        remote.post(world.bob, call("get_source", **arguments))
        line = audited(remote)[-1]
        assert (line["call"], line["outcome"], line["ids"]) == ("get_source", "answered", ids)
    remote.post(world.bob, call("get_source", id=f"documents/{CANARY}"))
    line = audited(remote)[-1]
    assert (line["outcome"], line.get("asked"), line["ids"]) == ("not found", None, [])


def test_what_was_asked_for_and_not_found_is_told_by_its_id(remote: Remote, world: World) -> None:
    reply = remote.post(world.ann, call("search", query="secret")).json()["result"]["structuredContent"]
    hit = next(hit for hit in reply["results"] if hit["cite_as"] == "secret")
    source, chunk, unknown = hit["id"].partition("/")[0], hit["id"], "a" * 16
    for id_, asked_for in [
        (source, source),
        (chunk, chunk),
        (f"refdesk://documents/{hit['id']}", chunk),
        (unknown, unknown),
        (f"{source}@password/0", f"{source}/0"),  # not the word that could be a revision
    ]:
        for body in (call("get_source", id=id_), message("resources/read", uri=id_)):
            remote.post(world.bob, body)
            line = audited(remote)[-1]
            assert (line["outcome"], line["asked"], line["ids"]) == ("not found", asked_for, []), body
    for id_ in ("b" * 15, CANARY, "é" * 16, f"refdesk://{CANARY}/x", f"{unknown}/x", "a b"):
        for body in (call("get_source", id=id_), message("resources/read", uri=id_)):
            remote.post(world.bob, body)
            line = audited(remote)[-1]
            assert (line["outcome"], "asked" in line) == ("not found", False), body
    remote.post(world.ann, call("get_source", id=source))
    assert "asked" not in audited(remote)[-1]


def test_a_trace_that_is_no_text_ends_no_call(remote: Remote, world: World) -> None:
    for meta in ({"traceparent": 5}, {"traceparent": TRACEPARENT, "tracestate": 5}):
        body = message("tools/call", name="get_source", arguments={}, _meta=meta)
        assert not remote.post(world.bob, body).json()["result"].get("isError")
        assert audited(remote)[-1]["outcome"] == "answered"


def test_an_id_in_arguments_that_are_one_json_text_is_not_found_like_any(
    remote: Remote, world: World
) -> None:
    unknown = "a" * 16
    body = message("tools/call", name="get_source", arguments=json.dumps({"id": unknown}))
    assert remote.post(world.bob, body).json()["result"]["isError"]
    line = audited(remote)[-1]
    assert (line["call"], line["outcome"], line["asked"]) == ("get_source", "not found", unknown)


@pytest.mark.parametrize(
    ("key", "headers", "status", "why"),
    [
        ("x", {}, 401, "credentials of this kind are not accepted"),
        ("rdk_00000000_x", {}, 401, "invalid key: 00000000 is unknown or revoked"),
        (f"rdk_{CANARY}_x", {}, 401, "invalid key"),
        ("", {"X-API-Key": "x"}, 401, "several credentials that differ"),
        (None, {"Authorization": "Basic x"}, 401, "no valid credentials"),
        ("", {"Host": "evil.example:81"}, 421, "host not allowed: evil.example:81"),
        ("", {"Host": f"evil {CANARY}"}, 421, "host not allowed: not a name"),
        ("", {"Origin": "http://evil.example"}, 403, "origin not allowed: http://evil.example"),
    ],
)
def test_what_is_refused_before_it_is_a_call_leaves_a_line_too(
    remote: Remote, world: World, key: str | None, headers: dict[str, str], status: int, why: str
) -> None:
    reply = remote.post(world.ann if key == "" else key, **headers)
    assert reply.status_code == status
    line = audited(remote)[-1]
    assert (line["message"], line["status"], line["client"]) == ("refused", status, "127.0.0.1")
    assert line["why"] == why
    assert not {"key", "user"} & line.keys()
    assert line["request"] == reply.headers["X-Request-ID"]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("", "no header Authorization"),
        ("Basic YTpi", "has the scheme Basic"),
        (f"{CANARY} x", "has another scheme"),
        (CANARY, "has another scheme"),
        ("Bearer", "Bearer without a key"),
        ("Bearer ${MCP_REFDESK_KEY}", "a variable that isn't set"),
        ("Bearer rdk_00000000_x", "key or token of the request is not valid"),
    ],
)
def test_a_refused_client_learns_what_was_read_and_not_why_its_key_is_wrong(
    remote: Remote, header: str, words: str
) -> None:
    reply = remote.post(None, **({"Authorization": header} if header else {}))
    assert reply.status_code == 401
    description = reply.json()["error_description"]
    assert words in description
    assert "Authentication required" in description
    for secret in (CANARY, "00000000", "unknown", "revoked"):
        assert secret not in reply.text + reply.headers["WWW-Authenticate"]


def test_a_key_that_has_expired_and_one_for_something_else_are_told_by_their_ids_and_no_probe_is(
    listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    shutil.copytree(world.data, tmp_path / "data")
    file = keys_file(tmp_path / "data")
    keys = {key.id: key for key in read_keys(file).keys}
    ann, bob = key_id(world.ann), key_id(world.bob)
    keys[ann] = keys[ann].model_copy(update={"expires_at": keys[ann].created_at})
    keys[bob] = keys[bob].model_copy(update={"scopes": ("other",)})
    file.write_text(Keys(keys=tuple(keys.values())).model_dump_json())
    remote = listen(tmp_path / "data")
    assert audited(remote) == []  # though it was asked whether it is ready, until it was
    assert remote.post(world.ann).status_code == 401
    assert len(audited(remote)) == 1
    assert audited(remote)[-1]["why"] == f"the key {ann} has expired"
    assert remote.post(world.bob).status_code == 403
    line = audited(remote)[-1]
    assert (line["why"], line["key"], line["user"]) == ("Required scope: refdesk:search", bob, "bob")
    assert remote.post(world.eve).status_code == 200


def test_why_there_is_no_answer_is_told_in_no_words_but_ours(
    listen: Callable[..., Remote], world: World
) -> None:
    remote = listen(world.data, limits_requests_per_minute="12")
    remote.post(world.ann, call("search", query="x", limit=CANARY))
    line = audited(remote)[-1]
    assert (line["outcome"], line["why"]) == ("invalid", "InvalidRequestError")
    no_id = {"jsonrpc": "2.0", "id": None, "method": CANARY}
    assert remote.post(world.ann, no_id).status_code == 400
    assert audited(remote)[-1]["why"].startswith("The id of a request must be")
    replies = [remote.post(world.ann) for _ in range(4)]
    assert replies[-1].status_code == 429
    line = audited(remote)[-1]
    assert (line["message"], line["status"], line["key"]) == ("refused", 429, key_id(world.ann))
    assert line["why"].startswith("Too many requests. Try again in ")
    assert CANARY not in remote.noise.read_text()


@pytest.mark.anyio
async def test_calls_over_sse_are_told_each_with_its_own_name(remote: Remote, world: World) -> None:
    before = len(audited(remote))
    headers = {"X-API-Key": world.bob}
    async with Client(sse_client(f"{remote.base}/sse", headers=headers)) as client:
        for _ in range(3):
            await client.call_tool("search", {"query": "pendulum"})
    lines = [line for line in audited(remote)[before:] if line.get("call") == "search"]
    assert [line["user"] for line in lines] == ["bob"] * 3
    assert {(line["key"], line["client"]) for line in lines} == {(key_id(world.bob), "127.0.0.1")}
    assert len({line["request"] for line in lines}) == 3


@pytest.mark.parametrize(
    ("text", "values"), [("%d", ("x",)), ("%s %s", ("x",)), ("%(a)s", ({},)), ("%", ("x",))]
)
def test_a_line_whose_values_dont_fit_is_logged_without_them_and_ends_no_call(
    capfd: pytest.CaptureFixture[str], text: str, values: tuple[object, ...]
) -> None:
    handler = call_audit.HostHandler()
    handler.setFormatter(call_audit.JsonLines())
    handler.handle(logging.LogRecord("library", logging.WARNING, "a.py", 1, text, values, None))
    (line,) = capfd.readouterr().err.splitlines()
    assert json.loads(line)["message"] == text


def test_on_standard_input_calls_are_told_at_level_info(start: Start, clock_room: Path) -> None:
    wire = start(clock_room, env={"REFDESK_SERVER_LOG_LEVEL": "info"}).begun()
    for _ in range(2):
        wire.tool("search", {"query": CANARY})
    assert wire.leave() == 0
    lines = [json.loads(line) for line in wire.stderr().splitlines()]
    calls = [line for line in lines if line.get("call") == "search"]
    assert [line["outcome"] for line in calls] == ["answered"] * 2
    assert len({line["request"] for line in calls}) == 2
    assert CANARY not in wire.stderr()


def test_no_line_holds_a_callers_or_a_documents_words_or_a_key(remote: Remote, world: World) -> None:
    hostile = f"{CANARY}\r\nINFO forged \x1b[31m{'x' * 100_000}"
    for body in (
        call("search", query=CANARY),
        call("search", query=f"pendulum {CANARY}", filter={CANARY: 1}),
        call("search", query=hostile),
        call("search", query="x", sources=[CANARY]),
        call(CANARY, query=CANARY),
        call("get_source", id=CANARY),
        message("resources/read", uri=f"refdesk://documents/{CANARY}"),
        message("resources/read", uri=hostile),
        message("resources/list", cursor=CANARY),
        message("prompts/get", name="answer", arguments={"question": CANARY}),
        message("completion/complete", ref={"type": "ref/prompt", "name": CANARY}, argument={"name": CANARY}),
        message(hostile),
        [CANARY],
        f'{{"jsonrpc": "2.0", "{CANARY}'.encode(),
    ):
        remote.post(world.ann, body)
    remote.post(f"rdk_{CANARY}_{CANARY}")
    remote.post(world.ann, **{"Mcp-Protocol-Version": CANARY, "X-Request-ID": f"{CANARY}/"})
    remote.post(world.ann, Origin=f"http://{CANARY}?")  # no origin; one is told (see above)
    remote.post(world.ann, Host=CANARY * 100)
    assert remote.titles(world.ann) == {"open", "secret"}
    bad_hosts = "mcp.server.transport_security"  # names them, within bounds
    log = "".join(json.dumps(line) for line in remote.log() if line["logger"] != bad_hosts)
    for secret in (CANARY, "pendulum", world.ann, world.ann.split("_", 2)[2], "Traceback"):
        assert secret not in log
    assert max(map(len, remote.noise.read_text().splitlines())) < 1_000
    assert '"ids": ["' in log


def test_metrics_count_calls_stages_and_refusals_and_are_on_a_port_of_their_own(
    listen: Callable[..., Remote], world: World
) -> None:
    remote = listen(world.data)
    for query in ("pendulum", "pendulum", "clock"):
        remote.post(world.ann, call("search", query=query))
    remote.post(world.ann, call("search", query="pendulum", sources=["a" * 16]))
    remote.post(world.ann, call("search", query=""))
    remote.post(world.ann, call(CANARY))
    remote.post("nobody")
    values = remote.metrics()
    assert values['refdesk_call_seconds_count{call="search",outcome="answered"}'] == 4
    assert values['refdesk_call_seconds_count{call="search",outcome="invalid"}'] == 1
    assert values['refdesk_call_seconds_count{call="other",outcome="invalid"}'] == 1
    for stage in ("plan", "embed", "recall", "gate"):
        assert values[f'refdesk_step_seconds_count{{step="{stage}"}}'] >= 3
        assert 0 < values[f'refdesk_step_seconds_sum{{step="{stage}"}}'] < 60
    assert values['refdesk_searches_total{found="something"}'] == 3
    assert values['refdesk_searches_total{found="nothing"}'] == 1
    assert values['refdesk_refused_requests_total{status="401"}'] == 1
    assert values["refdesk_ready"] == 1
    assert values["refdesk_gate_alarms_total"] == 0
    collection = 'collection="documents",origin=""'
    assert values[f'refdesk_ingestion_complete{{{collection},tenant="acorn"}}'] == 1
    assert values[f'refdesk_ingestion_files{{{collection},outcome="skipped",tenant="acorn"}}'] == 0
    assert CANARY not in str(values)
    assert httpx2.get(f"{remote.base}/metrics").status_code == 404


def test_a_metrics_port_that_is_taken_is_refused_in_a_line(scripts: Scripts, world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = refused(
            scripts, world, REFDESK_HTTP_PORT=str(free_port()), REFDESK_HTTP_METRICS_PORT=str(port)
        )
    assert f"127.0.0.1:{port} (http.metrics_port)" in words
    assert "0 for no metrics" in words


def test_an_address_that_cant_be_listened_on_is_refused_in_a_line(scripts: Scripts, world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = refused(scripts, world, REFDESK_HTTP_PORT=str(port))
    assert f"Cannot bind 127.0.0.1:{port} (http.host, http.port): Address already in use" in words
    words = refused(scripts, world, REFDESK_HTTP_HOST="nowhere.invalid")
    assert "Cannot bind nowhere.invalid:" in words


def refused(scripts: Scripts, world: World, **env: str) -> str:
    """What a server says on standard error that doesn't start."""
    run = scripts.serve("--http", "--data", world.data, env=env)
    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 1
    return run.stderr


class Collector(ThreadingHTTPServer):
    """Takes spans as an OpenTelemetry collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taker)
        self.bodies: list[bytes] = []

    def spans(self) -> Sequence[Span]:
        requests = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        return [
            span
            for request in requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Taker(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collecting() -> Iterator[Collector]:
    with Collector() as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        yield collector
        collector.shutdown()
        thread.join()


def tracing_to(collector: Collector) -> dict[str, str]:
    return {
        "REFDESK_SERVER_TRACES": "true",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector.server_port}",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
    }


def test_spans_belong_to_the_callers_trace_and_hold_no_words(
    listen: Callable[..., Remote], world: World
) -> None:
    with collecting() as collector:
        remote = listen(world.data, more=tracing_to(collector))
        remote.post(world.ann, call("search", query=f"pendulum {CANARY}"), Traceparent=TRACEPARENT)
        in_body = call("search", query=CANARY)
        in_body["params"]["_meta"] = {"traceparent": TRACEPARENT.replace("4bf9", "4bfa")}
        remote.post(world.ann, in_body)
        remote.post(world.ann, call(CANARY, query=CANARY))
        remote.post(world.ann, message(CANARY))
        assert remote.leave() == 0
        spans = collector.spans()
        assert CANARY.encode() not in b"".join(collector.bodies)
    searches = [span for span in spans if span.name == "search"]
    assert {span.trace_id.hex() for span in searches} == {TRACE, TRACE.replace("4bf9", "4bfa")}
    assert {span.parent_span_id.hex() for span in searches} == {PARENT}
    for search in searches:
        stages = [span.name for span in spans if span.parent_span_id == search.span_id]
        assert stages == ["refdesk.plan", "refdesk.embed", "refdesk.recall", "refdesk.fuse", "refdesk.gate"]
    assert {span.name for span in spans if not span.parent_span_id} == {"other"}


def test_spans_of_a_server_on_standard_input_are_sent_before_it_leaves(
    start: Start, clock_room: Path
) -> None:
    with collecting() as collector:
        wire = start(clock_room, flags=["--alone"], env=tracing_to(collector)).begun()
        wire.tool("search", {"query": CANARY})
        assert wire.leave() == 0
        names = [span.name for span in collector.spans()]
    assert {"initialize", "search", "refdesk.recall"} <= set(names)
    assert wire.stderr() == ""


def test_traces_without_the_packages_are_refused_in_a_line(
    scripts: Scripts, world: World, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['opentelemetry.sdk'] = None\n")
    words = refused(scripts, world, REFDESK_SERVER_TRACES="true", PYTHONPATH=str(tmp_path))
    assert install_command("otel") in words
