"""Replicas that read one bucket behind nginx, and the files that start them elsewhere.

nginx is configured as server/running.md shows it. A replica is killed every ten seconds, and started again,
while clients of both protocol eras and one of HTTP+SSE ask: every answer is the right one, and none is
missing that another replica could give.
"""

from __future__ import annotations

import json
import random
import shutil
import ssl
import subprocess
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
import yaml
from anyio import to_thread
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests import nginx
from tests.server.conftest import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tests.bucket import ObjectStore
    from tests.server.conftest import Admin, Remote, World

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

KILLS, EVERY_SECONDS = 6, 10
BEFORE_KILL = 20  # answers at least, so that there is load
ANSWER_SECONDS = 60  # far more than any answer takes
PAUSE_SECONDS = 0.07  # a client's between two calls: nginx lets 20 a second through
BOUND_SECONDS = 2
NOWHERE = Path("no-such-folder")
PAGE = Path(__file__).parents[2] / "server/running.md"
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("search", {"query": "pendulum"}),
    ("search", {"query": "pendulum", "mode": "sparse"}),
    ("search", {"query": "no such word", "mode": "exact"}),
    ("get_source", {}),
)


@dataclass(slots=True)
class Replicas:
    """The replicas, and the address of the balancer with its certificate."""

    start: Callable[..., Remote]
    running: list[Remote]
    base: str
    certificate: Path

    def restart(self, at: int) -> None:
        """Kill one, and wait until it serves again."""
        self.running[at].process.kill()
        self.running[at].process.wait()
        self.running[at] = self.start(port=self.running[at].port)

    def http(self, key: str, address: str) -> httpx2.AsyncClient:
        """A client on an address of its own, since nginx limits each."""
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        transport = httpx2.AsyncHTTPTransport(verify=trusted, local_address=address)
        headers = {"Authorization": f"Bearer {key}"}
        return httpx2.AsyncClient(transport=transport, headers=headers, timeout=ANSWER_SECONDS)


@dataclass(slots=True)
class Load:
    """What came of the calls. `lost` are streams that ended, each with its replica."""

    answers: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)
    over: bool = False

    def judge(self, call: str, answer: object, expected: object) -> None:
        """Note an answer."""
        self.answers += 1
        if answer != expected:
            self.faults.append(f"{call}: {answer} is not {expected}")


@pytest.fixture
def replicas(
    listen: Callable[..., Remote], object_store: ObjectStore, admin: Admin, world: World, tmp_path: Path
) -> Iterator[Replicas]:
    to = ("storage", "copy", "--to", object_store.uri, "--data", world.data)
    admin(*to, env=object_store.environment)
    object_store.read_only = True
    port = free_port()
    more = object_store.serving | {
        "REFDESK_STORAGE_CONSISTENCY_SECONDS": str(BOUND_SECONDS),
        "REFDESK_HTTP_PUBLIC_URL": f"https://127.0.0.1:{port}",
        "REFDESK_HTTP_TRUSTED_PROXIES": "127.0.0.1",
        "REFDESK_HTTP_SSE": "true",
        "REFDESK_LIMITS_REQUESTS_PER_MINUTE": "100000",
    }
    separately = [shutil.which("env") or "env"]  # not forked: each is a process of its own from the start
    start = partial(listen, NOWHERE, more=more, before=separately)
    running = [start() for _ in range(3)]
    certificate = certified(tmp_path)
    servers = "".join(f"    server 127.0.0.1:{replica.port} max_fails=0;\n" for replica in running)
    changes = {
        "    server 127.0.0.1:8300 max_fails=0;\n    server 127.0.0.1:8310 max_fails=0;\n": servers,
        "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
        "    listen [::]:443 ssl;\n": "",
        "/etc/ssl/desk.example.com.pem": str(certificate),
        "/etc/ssl/desk.example.com.key": str(certificate),
        "desk.example.com": "127.0.0.1",
    }
    configuration = nginx.replaced(nginx.shown(PAGE, word="upstream refdesk"), changes)
    with nginx.running(configuration, tmp_path, port):
        yield Replicas(start, running, f"https://127.0.0.1:{port}", certificate)


def certified(folder: Path) -> Path:
    """A certificate for 127.0.0.1, signed by itself, and its key in one file."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("openssl is not installed: apt-get install openssl")
    key, certificate = folder / "key.pem", folder / "made.pem"
    request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    names = ("-subj", "/CN=desk", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    subprocess.run(
        [openssl, *request, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True
    )
    certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
    return certificate


def without_id(call: str, arguments: Mapping[str, Any], id_: str) -> dict[str, Any]:
    return {"id": id_} if call == "get_source" else {**arguments}


async def asks(replicas: Replicas, load: Load, key: str, mode: str, address: str) -> None:
    """A client that calls until the load is over; its first answers are what all others must be."""
    url = f"{replicas.base}/mcp"
    chance = random.Random(address)  # noqa: S311 repeatable, not secret
    expected: dict[int, Any] = {}
    id_ = ""
    async with (
        replicas.http(key, address) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        while not load.over:
            at = len(expected) if len(expected) < len(CALLS) else chance.randrange(len(CALLS))
            call, arguments = CALLS[at]
            try:
                result = await client.call_tool(call, without_id(call, arguments, id_))
                answer: Any = result.structured_content or result.model_dump(mode="json")
            except Exception as error:  # noqa: BLE001 whatever it is, no answer came
                answer = repr(error)
            if not expected:
                id_ = answer["results"][0]["id"]
            load.judge(call, answer, expected.setdefault(at, answer))
            await anyio.sleep(PAUSE_SECONDS)


async def streams(replicas: Replicas, load: Load, key: str, address: str) -> None:
    """A client of HTTP+SSE, which connects anew when its stream ends, and loses no other call."""
    async with replicas.http(key, address) as http:
        while not load.over:
            try:
                async with http.stream("GET", f"{replicas.base}/sse") as stream:
                    assert stream.status_code == 200
                    await _through(http, stream, replicas, load)
            except (httpx2.TransportError, StopAsyncIteration):
                load.lost += 1


async def _through(http: httpx2.AsyncClient, stream: httpx2.Response, replicas: Replicas, load: Load) -> None:
    events = (line.removeprefix("data: ") async for line in stream.aiter_lines() if line.startswith("data:"))
    address = replicas.base + await anext(events)

    async def answer_of(method: str, params: object, id_: int | None = 1) -> Any:  # noqa: ANN401 JSON
        body = {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": id_} if id_ else {})
        posted = await http.post(address, json=body)
        if posted.status_code != 202:  # right only if the stream is over
            with anyio.fail_after(ANSWER_SECONDS):
                await anext(events)
            load.faults.append(f"{posted.status_code} {posted.text} while the stream goes on")
        return json.loads(await anext(events))["result"] if id_ else None

    client = {"clientInfo": {"name": "test", "version": "0"}, "capabilities": {}}
    await answer_of("initialize", {"protocolVersion": "2024-11-05"} | client)
    await answer_of("notifications/initialized", {}, None)
    while not load.over:
        reply = await answer_of("tools/call", {"name": "search", "arguments": {"query": "pendulum"}})
        load.judge("stream", {hit["cite_as"] for hit in reply["structuredContent"]["results"]}, {"open"})
        await anyio.sleep(PAUSE_SECONDS)


async def _until(load: Load, answers: int) -> None:
    with anyio.fail_after(ANSWER_SECONDS):
        while load.answers < answers and not load.faults:  # noqa: ASYNC110 clients count by themselves
            await anyio.sleep(PAUSE_SECONDS)


@pytest.mark.nightly
async def test_while_replicas_are_killed_no_answer_is_wrong_or_missing(
    replicas: Replicas, world: World
) -> None:
    load = Load()
    async with anyio.create_task_group() as tasks:
        people = [(world.ann, "auto"), (world.ann, "legacy"), (world.bob, "auto"), (world.eve, "legacy")]
        for number, (key, mode) in enumerate(people):
            tasks.start_soon(asks, replicas, load, key, mode, f"127.0.1.{number}")
        tasks.start_soon(streams, replicas, load, world.bob, "127.0.2.1")
        await _until(load, BEFORE_KILL)
        for number in range(KILLS):
            await _until(load, load.answers + BEFORE_KILL)
            async with anyio.create_task_group() as together:
                together.start_soon(anyio.sleep, EVERY_SECONDS)
                together.start_soon(to_thread.run_sync, replicas.restart, number % 3)
        await _until(load, load.answers + BEFORE_KILL)
        load.over = True
    assert load.faults == []
    assert load.answers > (KILLS + 2) * BEFORE_KILL
    assert load.lost <= KILLS


@pytest.mark.nightly
async def test_what_is_revoked_counts_in_all_replicas_after_the_bound(
    replicas: Replicas, world: World, object_store: ObjectStore, admin: Admin, tmp_path: Path
) -> None:
    object_store.read_only = False
    elsewhere = partial(admin, env=object_store.serving | {"REFDESK_DATA": str(tmp_path / "machine")})
    of_acorn = ("--tenant", "acorn")
    key = elsewhere("key", "create", *of_acorn, "--user", "cat", "--group", "hr")
    await anyio.sleep(BOUND_SECONDS)
    sources = elsewhere("sources", *of_acorn)["sources"]
    (secret,) = [source["id"] for source in sources if source["title"] == "secret"]

    def titles_at_each() -> list[set[str]]:
        return [replica.titles(key["key"]) for replica in replicas.running]

    assert await to_thread.run_sync(titles_at_each) == [{"open", "secret"}] * 3
    elsewhere("access", "revoke", secret, "--from", "group:hr", *of_acorn)
    await anyio.sleep(BOUND_SECONDS)
    assert await to_thread.run_sync(titles_at_each) == [{"open"}] * 3
    elsewhere("access", "grant", secret, "--to", "group:hr", *of_acorn)
    elsewhere("key", "revoke", key["id"])
    await anyio.sleep(BOUND_SECONDS)
    assert [replica.post(key["key"]).status_code for replica in replicas.running] == [401] * 3
    assert [replica.titles(world.ann) for replica in replicas.running] == [{"open", "secret"}] * 3


ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / ".packaging" / "replicas"


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """By kind."""
    manifests = yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text())
    return {manifest["kind"]: manifest for manifest in manifests}


@pytest.fixture(scope="module")
def composed() -> dict[str, Any]:
    return dict(yaml.safe_load((PACKAGING / "compose.yaml").read_text()))


def test_the_manifests_satisfy_their_schemas(manifests: dict[str, Any]) -> None:
    missing = "the schemas of Kubernetes, 120 MB, are not installed: pip install kubernetes-validate"
    schemas = pytest.importorskip("kubernetes_validate", reason=missing)
    for manifest in manifests.values():
        schemas.validate(manifest, "1.30", strict=True)
    misspelt = manifests["Service"] | {"specs": {}}
    with pytest.raises(schemas.ValidationError):
        schemas.validate(misspelt, "1.30", strict=True)


def test_the_service_and_the_budget_select_the_pods(manifests: dict[str, Any]) -> None:
    labels = manifests["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert manifests["Service"]["spec"]["selector"] == labels
    assert manifests["PodDisruptionBudget"]["spec"]["selector"] == {"matchLabels": labels}
    assert manifests["Deployment"]["spec"]["selector"] == {"matchLabels": labels}


def test_a_server_starts_with_what_they_set_and_answers_their_probes(
    manifests: dict[str, Any],
    composed: dict[str, Any],
    listen: Callable[..., Remote],
    admin: Admin,
    world: World,
    object_store: ObjectStore,
) -> None:
    (container,) = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    command = [*container["command"], *container["args"]]
    assert command == composed["x-replica"]["command"] == ["refdesk", "--http", "--port", "8300"]
    to = ("storage", "copy", "--to", object_store.uri, "--data", world.data)
    admin(*to, env=object_store.environment)
    object_store.read_only = True
    here = object_store.serving | {"REFDESK_HTTP_HOST": "127.0.0.1"}
    for settings in (manifests["ConfigMap"]["data"], composed["x-replica"]["environment"]):
        remote = listen(NOWHERE, more=settings | here)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert httpx2.get(remote.base + container[probe]["httpGet"]["path"]).status_code == 200
        host = settings["REFDESK_HTTP_PUBLIC_URL"].removeprefix("https://")
        assert remote.post(world.ann, Host=host).status_code == 200
        assert remote.post(world.ann, Host="evil.example").status_code == 421


@contextmanager
def answering(port: int) -> Iterator[ThreadingHTTPServer]:
    """A server that says its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = str(port).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield listening
        listening.shutdown()


def test_nginx_sends_one_key_to_one_replica_and_to_another_while_that_is_away(tmp_path: Path) -> None:
    port, ports = free_port(), [free_port() for _ in range(3)]
    servers = "".join(f"    server 127.0.0.1:{replica} max_fails=0;\n" for replica in ports)
    pair = "    server 127.0.0.1:8300 max_fails=0;\n    server 127.0.0.1:8310 max_fails=0;\n"
    configuration = nginx.replaced(
        nginx.shown(PAGE, word="upstream refdesk"),
        _without_tls(port) | {pair: servers, "burst=100": "burst=999"},
    )
    headers = [{"Authorization": f"Bearer rd_{number}"} for number in range(50)]
    headers += [{"X-API-Key": f"rd_{number}"} for number in range(50)]

    def answer_of(client: httpx2.Client) -> list[int]:
        return [int(client.get("/mcp", headers=header).text) for header in headers]

    with ExitStack() as running:
        replicas = {replica: running.enter_context(answering(replica)) for replica in ports}
        running.enter_context(nginx.running(configuration, tmp_path, port))
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=ANSWER_SECONDS) as client:
            before = answer_of(client)
            assert answer_of(client) == before
            assert {*before} == {*ports}
            away = ports[0]
            replicas[away].shutdown()
            replicas[away].server_close()
            for was, now in zip(before, answer_of(client), strict=True):
                assert now != away if was == away else now == was


def test_what_the_documentation_shows_for_nginx_is_valid(tmp_path: Path) -> None:
    example = nginx.shown(PAGE, word="upstream refdesk")
    port = free_port()
    with nginx.running(nginx.replaced(example, _without_tls(port)), tmp_path, port):
        assert httpx2.get(f"http://127.0.0.1:{port}/mcp").status_code == 502  # nobody is behind it


def _without_tls(port: int) -> dict[str, str]:
    """The changes by which the configuration listens on a port of the test's own."""
    return {
        "listen 443 ssl;": f"listen 127.0.0.1:{port};",
        "    listen [::]:443 ssl;\n": "",
        "    ssl_certificate /etc/ssl/desk.example.com.pem;\n": "",
        "    ssl_certificate_key /etc/ssl/desk.example.com.key;\n": "",
    }
