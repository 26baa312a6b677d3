"""HTTP in bytes, as no library would send it, and the answers as they come."""

from __future__ import annotations

import base64
import json
import socket
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.server.conftest import Era, Message

ANSWER_SECONDS = 60  # far more than any answer takes; a test fails instead of hanging
MODERN = "2026-07-28"
NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
ENVELOPE: Message = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
GREETING: Message = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "0"},
}

Headers = tuple[tuple[str, str], ...]
USUAL: Headers = (("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back for a request."""

    status: int
    head: bytes
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 any JSON
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Request:
    """A request before it is written down; with `framed` False nothing says where its body ends."""

    headers: Headers = USUAL
    body: bytes = b""
    method: str = "POST"
    path: str = "/mcp"
    framed: bool = True

    def raw(self, port: int) -> bytes:
        headers = [*self.headers, ("Content-Length", str(len(self.body)))] if self.framed else self.headers
        named = {name.lower() for name, _ in headers}
        host = [] if "host" in named else [("Host", f"127.0.0.1:{port}")]
        lines = "".join(f"{name}: {value}\r\n" for name, value in [*host, *headers])
        return f"{self.method} {self.path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + self.body


class Connection:
    """A connection to a server, one request after the other or many at once."""

    def __init__(self, port: int, *, of: str = "127.0.0.1") -> None:
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), ANSWER_SECONDS, (of, 0))
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, request: Request) -> None:
        self.socket.sendall(request.raw(self.port))

    def ask(self, request: Request) -> Answer:
        """The answer, which must come."""
        self.send(request)
        answer = self.answer()
        assert answer, "the server closed the connection"
        return answer

    def answer(self) -> Answer | None:
        """The next answer; None where the connection is closed instead."""
        try:
            status = self._file.readline()
            while status.startswith(b"HTTP/1.1 1"):  # Continue
                self._file.readline()
                status = self._file.readline()
            head = b"".join(iter(self._file.readline, b"\r\n")) if status else b""
        except ConnectionError:
            return None
        if not status:
            return None
        length = next(
            (line[15:] for line in head.lower().splitlines() if line.startswith(b"content-length:")), b"0"
        )
        return Answer(int(status.split()[1]), head, self._file.read(int(length)))

    def event(self) -> str:
        """The data of the next event of a stream; empty where it has ended."""
        for line in self._file:
            if line.startswith(b"data: "):
                return line[6:].decode().strip()
        return ""


class Channel:
    """Connections to a server, one after the other: a new one wherever the last was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._open: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self._open.close()

    def ask(self, request: Request) -> Answer | None:
        """The answer; None where the connection was closed instead."""
        connection = self._open = self._open or Connection(self._port)
        with suppress(ConnectionError):  # refused before it was whole: there may be an answer to read
            connection.send(request)
        answer = connection.answer()
        if answer is None or b"connection: close" in answer.head.lower():
            connection.close()
            self._open = None
        return answer


def answer_to(port: int, request: Request) -> Answer:
    """The answer to the only request of a connection."""
    with Connection(port) as connection:
        return connection.ask(request)


def bearer(key: str) -> Headers:
    return (("Authorization", f"Bearer {key}"),)


def message(method: str, params: Message | None = None, id_: object = 1) -> Message:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params or {}}


def posted(era: Era, key: str, message: Message, *, path: str = "/mcp") -> Request:
    """A message as a client of this era posts it."""
    headers, body = USUAL + bearer(key), message
    if era == "modern":
        params = message.get("params", {})
        body = message | {"params": {"_meta": ENVELOPE, **params}}
        headers += routing(message["method"], params)
    return Request(headers, json.dumps(body).encode(), path=path)


def routing(method: str, params: Message) -> Headers:
    """The headers of the modern era, which say what stands in the body."""
    name = params.get(NAMED_BY.get(method, ""))
    named = (("Mcp-Name", _header_value(str(name))),) if name is not None else ()
    return (("MCP-Protocol-Version", MODERN), ("Mcp-Method", method), *named)


def _header_value(value: str) -> str:
    """What a header can't hold as it is, in the protocol's own writing."""
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


@contextmanager
def stream(port: int, key: str) -> Iterator[tuple[Connection, str]]:
    """An open stream of HTTP+SSE after its first exchange, and the path to post to."""
    with Connection(port) as connection:
        connection.send(Request(bearer(key), method="GET", path="/sse"))
        path = connection.event()
        with Connection(port) as posting:
            greeting = json.dumps(message("initialize", GREETING, "hello")).encode()
            assert posting.ask(Request(USUAL + bearer(key), greeting, path=path)).status == 202
            assert json.loads(connection.event())["result"]["serverInfo"]
        yield connection, path
