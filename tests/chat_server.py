"""An OpenAI-compatible chat server on loopback that answers as a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias

from rag.settings import ChatSettings

if TYPE_CHECKING:
    from email.message import Message

Reply: TypeAlias = tuple[int, dict[str, str], bytes]
Behaviour: TypeAlias = Callable[[dict[str, Any]], Reply]


class ChatServer(ThreadingHTTPServer):
    """Answers by `script`, one entry for each request, the last of it for ever."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[Behaviour] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Message] = []
        self.asked = threading.Event()
        self.test_is_over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    @property
    def contents(self) -> list[Any]:
        """What the user's messages held, read as JSON."""
        return [json.loads(request["messages"][-1]["content"]) for request in self.requests]

    def settings(self, **others: object) -> ChatSettings:
        """Settings by which this server is asked."""
        return ChatSettings.model_validate({"model": "tiny", "base_url": self.url} | others)

    def answer(self, request: dict[str, Any], headers: Message) -> Reply:
        self.requests.append(request)
        self.headers.append(headers)
        self.asked.set()
        return self.script[min(len(self.requests), len(self.script)) - 1](request)

    def silent(self, _request: dict[str, Any]) -> Reply:
        self.test_is_over.wait(10)
        return 200, {}, b""


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, headers, body = self.server.answer(request, self.headers)
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


def saying(value: object, *, tokens: tuple[int, int] | None = (100, 10)) -> Behaviour:
    """A good reply, whose content is `value` as JSON, with the numbers of tokens sent and got."""
    return replying({"message": {"content": json.dumps(value)}, "finish_reason": "stop"}, tokens=tokens)


def replying(choice: object, *, tokens: tuple[int, int] | None = (100, 10)) -> Behaviour:
    """A reply with one choice, as the wire has it."""
    body: dict[str, object] = {"choices": [choice]}
    if tokens:
        body["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return sending(json.dumps(body).encode())


def sending(body: bytes) -> Behaviour:
    """A reply of these bytes."""
    return lambda _request: (200, {}, body)


def failing(status: int, **headers: str) -> Behaviour:
    """An error with a body that quotes the request."""
    return lambda request: (status, headers, json.dumps({"error": {"message": request}}).encode())


@contextmanager
def running() -> Iterator[ChatServer]:
    """A server that answers as long as the context lasts."""
    with ChatServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.test_is_over.set()
            server.shutdown()
            thread.join()
