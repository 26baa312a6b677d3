"""A host that speaks raw JSON-RPC to the installed server, and the SDK's own client, in both eras."""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

import anyio
import httpx2
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from rag.corpus import Access
from rag.text.languages import LANGUAGE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from tests.conftest import FilledOnce, Scripts
    from tests.forks import Forked, Forks

Era: TypeAlias = Literal["legacy", "modern"]
UNSHARED = pytest.mark.skipif("BRIDGED" in os.environ, reason="about a server that no other host shares")
Message: TypeAlias = "dict[str, Any]"
Admin: TypeAlias = "Callable[..., Any]"
"""Runs refdesk-admin, which must not fail, and returns what it prints."""

ANSWER_SECONDS = 60  # far more than any answer takes; a test fails instead of hanging
LEAVE_SECONDS = 2  # what hosts allow before they kill
IMPLEMENTATION = {"name": "test", "version": "0"}
HANDSHAKE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": IMPLEMENTATION}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": IMPLEMENTATION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Wire:
    """A server process and the raw ends of its pipes. Every line that it writes must be JSON-RPC.

    It is forked where `forks` is given and can do it, which spares a second of imports.
    """

    def __init__(
        self,
        command: list[str | Path],
        env: Mapping[str, str],
        *,
        era: Era,
        pass_fds: tuple[int, ...] = (),
        forks: Forks | None = None,
    ) -> None:
        self.era = era
        pipe = subprocess.PIPE
        self.process: subprocess.Popen[bytes] | Forked = (
            forks.piped([*map(str, command)], env)
            if forks and not pass_fds and forks.can_run(env)
            else subprocess.Popen(
                command, env=dict(env), pass_fds=pass_fds, stdin=pipe, stdout=pipe, stderr=pipe
            )
        )
        self.noise = b""
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=target) for target in (self._read_lines, self._read_noise)]
        for thread in self._threads:
            thread.start()

    def _read_lines(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_noise(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.noise += line

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.process.stdin.close()  # ends a server whose parent this process is not
        self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join(timeout=ANSWER_SECONDS)
        self.process.stdout.close()
        self.process.stderr.close()

    def write(self, line: str | bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write((line.encode() if isinstance(line, str) else line) + b"\n")
        self.process.stdin.flush()

    def send(self, id_: int | str | None, method: str, params: Message | None = None) -> None:
        """A request; without an id, a notification."""
        envelope = {"_meta": ENVELOPE} if self.era == "modern" and id_ is not None else {}
        message = {"jsonrpc": "2.0", "method": method, "params": envelope | (params or {})}
        self.write(json.dumps(message if id_ is None else message | {"id": id_}))

    def line(self) -> bytes:
        line = self._lines.get(timeout=ANSWER_SECONDS)
        assert line is not None, "the server is gone"
        return line

    def read(self) -> Message:
        message = json.loads(self.line())
        assert message["jsonrpc"] == "2.0"
        return dict(message)

    def request(self, method: str, params: Message | None = None, *, id_: int | str = 1) -> Message:
        """The whole answer, which must be the next thing that the server says."""
        self.send(id_, method, params)
        answer = self.read()
        assert answer["id"] == id_
        return answer

    def result(self, method: str, params: Message | None = None) -> Message:
        return dict(self.request(method, params)["result"])

    def error(self, method: str, params: Message | None = None) -> Message:
        return dict(self.request(method, params)["error"])

    def tool(self, name: str, arguments: Message) -> Message:
        return self.result("tools/call", {"name": name, "arguments": arguments})

    def tool_error(self, name: str, arguments: Message) -> str:
        """The words of a failed call, as the model reads them."""
        result = self.tool(name, arguments)
        assert result["isError"] is True
        assert "structuredContent" not in result
        (block,) = result["content"]
        return str(block["text"])

    def begin(self) -> Message:
        """What a host says first, and the answer."""
        if self.era == "modern":
            return self.result("server/discover")
        greeting = self.result("initialize", HANDSHAKE)
        self.send(None, "notifications/initialized")
        return greeting

    def begun(self) -> Self:
        """The same, after the first exchange."""
        self.begin()
        return self

    def gone(self, *, within: float = LEAVE_SECONDS) -> bool:
        """Whether standard output is closed, without another word on it."""
        return self._lines.get(timeout=within) is None

    def is_gone(self, *, within: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=within)
        return self.process.poll() is not None

    def leave(self, *, within: float = LEAVE_SECONDS) -> int:
        """Close standard input, as hosts do; the exit code."""
        assert self.process.stdin
        self.process.stdin.close()
        return self.exit_code(within=within)

    def exit_code(self, *, within: float = LEAVE_SECONDS) -> int:
        return self.process.wait(timeout=within)

    def stderr(self) -> str:
        """Everything that it wrote there, once it is gone."""
        for thread in self._threads:
            thread.join(timeout=ANSWER_SECONDS)
        return self.noise.decode()


Start: TypeAlias = "Callable[..., Wire]"


@pytest.fixture(scope="session")
def lasting_start(scripts: Scripts) -> Iterator[Start]:
    """Start servers that many tests share: each costs a second or two."""
    with ExitStack() as stack:
        yield _start(scripts, stack)


@pytest.fixture
def start(scripts: Scripts) -> Iterator[Start]:
    """Start servers on a data folder; they end with the test."""
    with ExitStack() as stack:
        yield _start(scripts, stack)


@pytest.fixture
def cold_start(scripts: Scripts) -> Iterator[Start]:
    """As `start`, but each server imports all that it needs itself, as hosts start it."""
    with ExitStack() as stack:
        yield _start(scripts, stack, forked=False)


@pytest.fixture
def socket_folder(scripts: Scripts) -> Iterator[Path]:
    """A folder for sockets, in which no other test has a desk."""
    folder = Path(tempfile.mkdtemp(prefix="refdesk", dir="/tmp"))
    yield folder
    for desk in scripts.desks({"XDG_RUNTIME_DIR": str(folder)}):
        with suppress(psutil.NoSuchProcess):
            desk.kill()
    shutil.rmtree(folder)


@pytest.fixture
def desks(scripts: Scripts, socket_folder: Path) -> Callable[[], list[psutil.Process]]:
    """The shared desks that hosts of this test have started."""
    return lambda: scripts.desks({"XDG_RUNTIME_DIR": str(socket_folder)})


@pytest.fixture
def bridged(scripts: Scripts, socket_folder: Path) -> Iterator[Start]:
    """Start a host with a bridge to a shared desk, or with the flag for it alone."""
    with ExitStack() as stack:

        def begin(data: Path, *flags: str, env: Mapping[str, str] | None = None) -> Wire:
            environment = scripts.environment | {"XDG_RUNTIME_DIR": str(socket_folder)} | dict(env or {})
            program = scripts.forked_server if "--alone" in flags else scripts.sharing_server
            return stack.enter_context(Wire([program, "--data", data, *flags], environment, era="legacy"))

        yield begin


def _start(scripts: Scripts, stack: ExitStack, *, forked: bool = True) -> Start:
    def begin(
        data: Path | None,
        *,
        era: Era = "legacy",
        env: Mapping[str, str] | None = None,
        pass_fds: tuple[int, ...] = (),
        before: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> Wire:
        named: list[str | Path] = ["--data", data] if data else []
        command: list[str | Path] = [*before, scripts.server, *named, *flags]
        serving = scripts.serving(data) if data else {}
        environment = scripts.environment | serving | dict(env or {})
        forks = scripts.server_forks if forked and not before and "BRIDGED" not in os.environ else None
        return stack.enter_context(Wire(command, environment, era=era, pass_fds=pass_fds, forks=forks))

    return begin


@pytest.fixture(scope="session")
def office(small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A handbook with a draft and a secret plan, which only ann may read, and 120 notes of as many statuses.

    The draft is in German, the plan in French, the rest of the handbook in English. No note has a language.
    No model has made its vectors, so nobody can search it by meaning.
    """
    data = tmp_path_factory.mktemp("office") / "data"
    anyio.run(_fill_office, small_desk, data)
    return data


async def _fill_office(small: ModuleType, data: Path) -> None:
    embedder = small.BagOfWords().identity
    await small.ensure_collection(
        data,
        "default",
        "handbook",
        embedder,
        fields={"status": "string", "year": "integer"},
        description="Rules for employees",
        link="https://intranet.example/handbook",
    )
    await small.ensure_collection(data, "default", "many", embedder, fields={"status": "string"})
    only_ann = Access("restricted", frozenset({"user:ann"}))
    rights = {"pay": only_ann, "plan": only_ann}
    secret = {"pay": {"status": "draft", "year": 1999}}
    languages = {"leave": {LANGUAGE: "en"}, "travel": {LANGUAGE: "en-GB"}}
    languages |= {"pay": {LANGUAGE: "de"}, "plan": {LANGUAGE: "fr"}}
    titles_of = {
        "handbook": [("leave", "Leave"), ("travel", "Über trips"), ("pay", "Pay")],
        "many": [(f"m{number:03}", f"Note {number}") for number in range(120)],
        "secret": [("plan", "Plan")],
    }
    for collection, named in titles_of.items():
        async with await small.writing(data, collection=collection) as writer:
            sources = []
            for name, title in named:
                metadata = {"path": f"{name}.md"} | languages.get(name, {})
                details: Message = {"fields": {}}
                if collection == "handbook":
                    metadata["description"] = f"About {name}"
                    details["date"] = datetime(1999 if name == "pay" else 2024, 5, 1, tzinfo=UTC)
                    details["fields"] = secret.get(name, {"status": "final", "year": 2024})
                if collection == "many":
                    details["fields"] = {"status": f"s{name[1:]}"}
                access = rights.get(name, Access("tenant"))
                texts = [title, f"The pendulum of {name}.", "It swings – always."]
                details |= {"title": title, "metadata": metadata, "access": access}
                sources.append(small.new_source(writer, name, *texts, **details))
            await writer.replace(sources)


_ACCEPT = {"Accept": "application/json, text/event-stream"}
START_SECONDS = 120  # a bound for a server that hangs


def message(method: str, **params: object) -> Message:
    """A request of an older client."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def call(tool: str, **arguments: object) -> Message:
    """A call of a tool by an older client."""
    return message("tools/call", name=tool, arguments=arguments)


@dataclass(frozen=True, slots=True)
class Remote:
    """A server that listens, and what it said on standard error."""

    process: subprocess.Popen[bytes] | Forked
    port: int
    metrics_port: int
    noise: Path

    def log(self) -> list[Message]:
        """What it has said on standard error since it listens: one JSON object a line."""
        lines = [json.loads(line) for line in self.noise.read_text().splitlines()]
        return [line for line in lines if line["logger"] != "refdesk.start"]

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def post(self, key: str | None = None, body: object = None, **headers: str) -> httpx2.Response:
        """A request of an older client, with a key as bearer token."""
        bearer = {"Authorization": f"Bearer {key}"} if key else {}
        body = message("tools/list") if body is None else body
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json"} | _ACCEPT | bearer | headers
        return httpx2.post(self.url, content=content, headers=sent, timeout=30)

    def titles(self, key: str, query: str = "pendulum") -> set[str]:
        """The titles of what a key's holder finds."""
        result = self.tool(key, "search", query=query, limit=50, max_chars=100_000)
        return {hit["cite_as"] for hit in result["structuredContent"]["results"]}

    def tool(self, key: str, name: str, **arguments: object) -> Message:
        """The result of a call."""
        reply = self.post(key, call(name, **arguments))
        assert reply.status_code == 200, reply.text
        return dict(reply.json()["result"])

    def metrics(self) -> dict[str, float]:
        """The value of each sample by its name."""
        text = httpx2.get(f"http://127.0.0.1:{self.metrics_port}/metrics").text
        samples = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def leave(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(timeout=15)


def free_port() -> int:
    """A free port that no connection gets before the server has it: systems give those only higher ones."""
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311 not a secret
        with socket.socket() as probe_socket, suppress(OSError):
            probe_socket.bind(("127.0.0.1", port))
            return port


def _listen(scripts: Scripts, stack: ExitStack, folder: Path) -> Callable[..., Remote]:
    def begin(
        data: Path,
        *,
        more: Mapping[str, str] | None = None,
        before: Sequence[str] = (),
        probe: str = "/readyz",
        port: int = 0,
        **settings: str,
    ) -> Remote:
        port, metrics_port = port or free_port(), free_port()
        ports = {"http_metrics_port": str(metrics_port)}
        env = {f"REFDESK_{name.upper()}": value for name, value in (ports | settings).items()}
        noise = folder / f"noise-{port}"
        command = [*before, scripts.server, "--http", "--port", str(port), "--data", str(data)]
        environment = scripts.environment | scripts.serving(data) | env | dict(more or {})
        errors = stack.enter_context(noise.open("ab"))
        process: subprocess.Popen[bytes] | Forked
        if not before and scripts.server_forks.can_run(environment):
            process = scripts.server_forks.listening(command, environment, errors)
        else:
            process = subprocess.Popen(command, env=environment, stderr=errors)
        stack.callback(process.wait)
        stack.callback(process.kill)
        ends = time.monotonic() + START_SECONDS
        while time.monotonic() < ends:
            try:
                if httpx2.get(f"http://127.0.0.1:{port}{probe}").status_code == 200:
                    return Remote(process, port, metrics_port, noise)
            except httpx2.TransportError:
                assert process.poll() is None, noise.read_text()
            time.sleep(0.05)
        raise TimeoutError

    return begin


@pytest.fixture(scope="session")
def lasting_listen(
    scripts: Scripts, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Remote]]:
    """Start servers that listen and that many tests share."""
    with ExitStack() as stack:
        yield _listen(scripts, stack, tmp_path_factory.mktemp("noise"))


@pytest.fixture
def listen(scripts: Scripts, tmp_path: Path) -> Iterator[Callable[..., Remote]]:
    """Start servers that listen on a port of their own; they end with the test."""
    with ExitStack() as stack:
        yield _listen(scripts, stack, tmp_path)


@dataclass(frozen=True, slots=True)
class World:
    """A data folder of two tenants with a key for each of three people."""

    data: Path
    ann: str
    bob: str
    eve: str


@pytest.fixture(scope="session")
def admin(scripts: Scripts) -> Admin:
    def run(*arguments: str | Path, env: dict[str, str] | None = None) -> Any:  # noqa: ANN401 any JSON
        run = scripts.admin(*arguments, "--json", env=env)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)

    return run


@pytest.fixture(scope="module")
def world(admin: Admin, filled_once: FilledOnce, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A copy for the tests of a file, which may change it."""
    filled, keys = filled_once("http", partial(_fill_world, admin))
    folder = tmp_path_factory.mktemp("http")
    return World(shutil.copytree(filled / "data", folder / "data"), *keys)


def _fill_world(admin: Admin, folder: Path) -> list[str]:
    """The keys of ann, bob and eve."""
    folder.mkdir()
    data = folder / "data"
    admin("tenant", "create", "acorn", "--data", data)
    admin("tenant", "create", "birch", "--data", data)
    papers = [("acorn", "open", ()), ("acorn", "secret", ("--allow", "group:hr")), ("birch", "theirs", ())]
    for tenant, title, allow in papers:
        file = folder / f"{title}.md"
        file.write_text(f"# {title}\n\nA pendulum, {title}.\n")
        admin("ingest", file, "--tenant", tenant, "--data", data, *allow)
    people = [
        ("--tenant", "acorn", "--user", "ann", "--group", "hr"),
        ("--tenant", "acorn", "--user", "bob"),
        ("--tenant", "birch", "--user", "ann", "--group", "hr"),
    ]
    return [admin("key", "create", *person, "--data", data)["key"] for person in people]


@pytest.fixture(scope="session", params=["legacy", "modern"])
def wire(request: pytest.FixtureRequest, lasting_start: Start, clock_room: Path) -> Wire:
    """A server on the demo corpus, shared by many tests, after the first exchange."""
    return lasting_start(clock_room, era=request.param).begun()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """As in the folder above, but wide enough for a client that the tests of a file share."""
    return "asyncio"


@pytest.fixture(scope="module")  # longer, and other folders had its event loop
async def client(
    scripts: Scripts, clock_room: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    """The SDK's client to a server on the demo corpus. What a reply says is the same in both eras."""
    async with _client("auto", scripts, clock_room, tmp_path_factory.mktemp("stderr")) as opened:
        yield opened


@pytest.fixture(scope="module", params=["legacy", "auto"])
async def each_client(
    request: pytest.FixtureRequest,
    scripts: Scripts,
    clock_room: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Client]:
    """One for each era, for how a reply is framed."""
    async with _client(request.param, scripts, clock_room, tmp_path_factory.mktemp("stderr")) as opened:
        yield opened


@asynccontextmanager
async def _client(mode: str, scripts: Scripts, clock_room: Path, folder: Path) -> AsyncIterator[Client]:
    """A client whose server at the end has said nothing on stderr."""
    server = StdioServerParameters(
        command=scripts.forked_server, args=["--data", str(clock_room)], env=scripts.environment
    )
    noise = folder / "noise"
    with noise.open("w") as errlog:
        transport = stdio_client(server, errlog)
        async with Client(transport, mode=mode, read_timeout_seconds=ANSWER_SECONDS) as client:
            yield client
    assert noise.read_text() == ""
