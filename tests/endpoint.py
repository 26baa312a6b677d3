"""A model's endpoint on loopback, a real HTTP server that does as a test tells it to."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

E = TypeVar("E", bound="Endpoint")

DIMENSION = 16  # of the vectors of `Endpoint.embedding`

Reply: TypeAlias = tuple[int, dict[str, str], bytes]
Behaviour: TypeAlias = Callable[[dict[str, Any]], Reply]


class Endpoint(ThreadingHTTPServer):
    """Answers by `script`, one entry for each request, the last of it for ever; keeps what it was asked."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.script: list[Behaviour] = []
        self.paths: list[str] = []
        self.headers: list[Message] = []
        self.requests: list[dict[str, Any]] = []
        self.asked = threading.Event()
        self.test_is_over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def keys(self) -> list[str | None]:
        return [headers["Authorization"] for headers in self.headers]

    def answer(self, path: str, headers: Message, request: dict[str, Any]) -> Reply:
        self.paths.append(path)
        self.headers.append(headers)
        self.requests.append(request)
        self.asked.set()
        return self.script[min(len(self.requests), len(self.script)) - 1](request)

    def silent(self, _request: dict[str, Any]) -> Reply:
        """No answer before the test is over."""
        self.test_is_over.wait(120)
        return 200, {}, b""

    def slow(self, seconds: float) -> Behaviour:
        """Honest vectors, but only after this time."""

        def behaviour(request: dict[str, Any]) -> Reply:
            self.test_is_over.wait(seconds)
            return self.embedding(request)

        return behaviour

    @staticmethod
    def embedding(request: dict[str, Any]) -> Reply:
        """What an honest embedding model answers: texts that share words are near each other."""
        return embedded([_bag(text) for text in request["input"]])

    @staticmethod
    def failing(status: int, **headers: str) -> Behaviour:
        """An error with a body that quotes the request."""
        return lambda request: (status, headers, json.dumps({"error": {"message": request}}).encode())

    @staticmethod
    def sending(body: bytes) -> Behaviour:
        """A reply of these bytes."""
        return lambda _request: (200, {}, body)


class Site(Endpoint):
    """A web site: `pages` by path, each a body, a reply, or what makes one of the request's headers.

    A body is HTML unless its path says otherwise, has an ETag, and is not sent again to whom has it.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__(port)
        self.pages: dict[str, bytes | Reply | Callable[[Message], Reply]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, headers: Message, request: dict[str, Any]) -> Reply:
        self.paths.append(path)
        self.headers.append(headers)
        self.requests.append(request)
        page = self.pages.get(path, (404, {}, b"nothing here"))
        if callable(page):
            return page(headers)
        if isinstance(page, tuple):
            return page
        etag = f'"{zlib.crc32(page)}"'
        if headers["If-None-Match"] == etag:
            return 304, {"ETag": etag}, b""
        kind = "application/xml" if path.endswith((".xml", ".gz")) else "text/html; charset=utf-8"
        return 200, {"ETag": etag, "Content-Type": kind}, page


def embedded(vectors: list[list[float]]) -> Reply:
    """The reply that holds these vectors."""
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return 200, {}, json.dumps({"data": data}).encode()


def _bag(text: str) -> list[float]:
    bag = [0.01] * DIMENSION
    for word in re.findall(r"\w+", text.casefold()):
        bag[zlib.crc32(word.encode()) % DIMENSION] += 1.0
    return bag


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_GET(self) -> None:
        self.do_POST()

    def do_PUT(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = json.loads(body) if body.startswith(b"{") else {}
        status, headers, body = self.server.answer(self.path, self.headers, request)
        try:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except ConnectionError:
            self.close_connection = True  # the client had given up

    def log_message(self, *_args: object) -> None:
        pass


@contextmanager
def running(port: int = 0) -> Iterator[Endpoint]:
    """An endpoint that answers as long as the context lasts."""
    with serving(Endpoint(port)) as server:
        yield server


def certificate(folder: Path) -> Path:
    """A certificate for localhost, signed by itself, and its key in one file."""
    key, certificate_file = folder / "key.pem", folder / "made.pem"
    request = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2")
    subprocess.run(
        ["openssl", *request, *names, "-keyout", key, "-out", certificate_file],
        check=True,
        capture_output=True,
    )
    certificate_file.write_bytes(certificate_file.read_bytes() + key.read_bytes())
    return certificate_file


@contextmanager
def serving(endpoint: E) -> Iterator[E]:
    """The endpoint, which answers as long as the context lasts."""
    with endpoint as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.test_is_over.set()
            server.shutdown()
            thread.join()
