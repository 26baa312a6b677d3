"""`refdesk --http` in a child process, and a minimal HTTP client that keeps its connections open."""

from __future__ import annotations

import json
import secrets
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from rag.access.keys import SEARCH_SCOPE, ApiKey, Keys, keys_file, new_secret, token_of
from rag.errors import RefdeskError
from rag.store.write.desk_folder import write_whole
from tests.bench.engine import TENANT
from tests.bench.process import INITIALIZE, running, script

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from anyio.abc import Process, SocketStream

Era: TypeAlias = Literal["legacy", "modern"]
ERAS: tuple[Era, ...] = get_args(Era)
LEGACY, MODERN = "2025-11-25", "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": INITIALIZE["clientInfo"],
    "io.modelcontextprotocol/clientCapabilities": {},
}
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
HOST = "127.0.0.1"
UNLIMITED = {  # here one tenant makes all requests
    "REFDESK_LIMITS_CONCURRENT": "1024",
    "REFDESK_LIMITS_CONCURRENT_PER_TENANT": "1024",
    "REFDESK_LIMITS_REQUESTS_PER_MINUTE": "1000000",
}
OPEN_SECONDS, POLL_SECONDS = 60, 0.05
LONGEST_HEAD = 10_000  # bytes
LOG_CHARS = 1_000  # shown of the log of a server that did not start
GONE = (OSError, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Connection:
    """A keep-alive connection for one request after the other."""

    stream: SocketStream
    _incoming: BufferedByteReceiveStream

    async def ask(self, request: bytes) -> Answer:
        """The answer to a request.

        Raises:
            RefdeskError: the server closed the connection, or the answer is a stream.
        """
        try:
            await self.stream.send(request)
            head = (await self._incoming.receive_until(b"\r\n\r\n", LONGEST_HEAD)).lower()
            length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            return Answer(int(head[9:12]), await self._incoming.receive_exactly(int(length)))
        except (*GONE, ValueError) as error:
            raise RefdeskError("The HTTP server sent no complete answer.") from error


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """A connection, closed with the context."""
    async with await anyio.connect_tcp(HOST, port) as stream:
        yield Connection(stream, BufferedByteReceiveStream(stream))


@dataclass(frozen=True, slots=True)
class Remote:
    """A listening server."""

    pid: int
    port: int

    def request(self, era: Era, key: str, method: str, params: Mapping[str, object]) -> bytes:
        """An HTTP request in the form of this protocol era."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"MCP-Protocol-Version": LEGACY}
        if era == "modern":
            message["params"] = {"_meta": ENVELOPE, **params}
            headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            headers |= {"Mcp-Name": str(params[NAMED_BY[method]])} if method in NAMED_BY else {}
        body = json.dumps(message).encode()
        headers |= {
            "Host": f"{HOST}:{self.port}",
            "Authorization": f"Bearer {key}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Content-Length": str(len(body)),
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body


@asynccontextmanager
async def listening(data: Path) -> AsyncIterator[Remote]:
    """A ready server with practically no rate limits. Its log goes to a file beside its data.

    Raises:
        RefdeskError: it doesn't start.
    """
    async with AsyncExitStack() as stack:
        log = data.with_name(f"{data.name}.log")
        stderr = stack.enter_context(log.open("wb"))
        port, metrics_port = _free_ports()
        command = script("refdesk", data, "--http", "--port", str(port))
        settings = UNLIMITED | {"REFDESK_HTTP_METRICS_PORT": str(metrics_port)}
        process = await stack.enter_async_context(running(command, stderr=stderr, settings=settings))
        if not await _opened(process, port):
            raise RefdeskError(f"The HTTP server did not start. {log.read_text()[-LOG_CHARS:]}")
        yield Remote(process.pid, port)


async def _opened(process: Process, port: int) -> bool:
    """Whether it becomes ready before it exits or the time is up."""
    with anyio.move_on_after(OPEN_SECONDS):
        while process.returncode is None:
            if await _ready(port):
                return True
            await anyio.sleep(POLL_SECONDS)
    return False


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind((HOST, 0))
        second.bind((HOST, 0))
        return first.getsockname()[1], second.getsockname()[1]


async def _ready(port: int) -> bool:
    try:
        async with connected(port) as connection:
            answer = await connection.ask(f"GET /readyz HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            return answer.status == 200
    except OSError:
        return False


def tool_call(name: str, **arguments: object) -> tuple[str, dict[str, object]]:
    """The method and the parameters of a tool call."""
    return "tools/call", {"name": name, "arguments": arguments}


def make_keys(data: Path, holders: Mapping[str, frozenset[str]]) -> dict[str, str]:
    """API keys by user, given each user's groups. They replace all others."""
    now = datetime.now(UTC)
    keys, tokens = [], {}
    for user, groups in holders.items():
        secret, digest = new_secret()
        key = ApiKey(
            id=secrets.token_hex(4),
            digest=digest,
            tenant=TENANT,
            user=user,
            groups=tuple(groups),
            scopes=(SEARCH_SCOPE,),
            created_at=now,
            expires_at=now + timedelta(days=7),
        )
        keys.append(key)
        tokens[user] = token_of(key, secret)
    write_whole(keys_file(data), Keys(keys=tuple(keys)).model_dump_json().encode())
    return tokens
