"""A real HTTP server on loopback that does as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Reply = tuple[int, dict[str, str], bytes]
Behaviour = Callable[[dict[str, Any]], Reply]


class RerankServer(ThreadingHTTPServer):
    """Answers by `script`, the last of it for ever, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Behaviour] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        self.accounts: list[tuple[str | None, str | None]] = []
        self.requests: list[dict[str, Any]] = []
        self.asked = threading.Event()
        self.test_is_over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v2"

    def silent(self, _request: dict[str, Any]) -> Reply:
        self.test_is_over.wait(10)
        return 200, {}, b""


class _Handler(BaseHTTPRequestHandler):
    server: RerankServer

    def do_POST(self) -> None:
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers["Authorization"])
        self.server.accounts.append((self.headers["OpenAI-Organization"], self.headers["OpenAI-Project"]))
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.asked.set()
        behaviour = self.server.script[min(len(self.server.requests), len(self.server.script)) - 1]
        status, headers, body = behaviour(self.server.requests[-1])
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
def serving() -> Iterator[RerankServer]:
    with RerankServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.test_is_over.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def provider() -> Iterator[RerankServer]:
    with serving() as server:
        yield server


@pytest.fixture
def stranger() -> Iterator[RerankServer]:
    with serving() as server:
        yield server
