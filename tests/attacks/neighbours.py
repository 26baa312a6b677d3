"""Servers on loopback that ours talks to: an issuer of tokens, and an endpoint that embeds."""

from __future__ import annotations

import base64
import json
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import jwt
import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from rag.access.keys import SEARCH_SCOPE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.server.conftest import Message

ISSUER = "https://issuer.example.com/"
OURS, FOREIGN = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
DIMENSION = 8


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that came."""

    path: str
    headers: dict[str, str]
    body: bytes


class Neighbour(ThreadingHTTPServer):
    """Answers every request as it is told to, and remembers what it was asked."""

    daemon_threads = True

    def __init__(self, answer: Callable[[Handler], None]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.asked: list[Asked] = []
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """Takes requests for a neighbour."""

    server: Neighbour

    def take(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append(
            Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
        )
        with suppress(ConnectionError):  # the client had given up
            self.server.answer(self)

    do_GET = do_POST = take  # noqa: N815 names that http.server looks for

    def say(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def neighbour(answer: Callable[[Handler], None]) -> Iterator[Neighbour]:
    """A neighbour that listens."""
    with Neighbour(answer) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield listening
        listening.over.set()
        listening.shutdown()
        thread.join()


def keys_of(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The issuer's keys, as its address tells them."""
    return json.dumps(
        {"keys": [ECAlgorithm.to_jwk(key.public_key(), as_dict=True) | {"kid": "one"}]}
    ).encode()


def token(key: ec.EllipticCurvePrivateKey = OURS, **claims: object) -> str:
    """A token of a user of the first tenant of the crowd, or with other claims."""
    now = int(time.time())
    usual: Message = {
        "iss": ISSUER,
        "aud": "https://desk.example.com/mcp",
        "sub": "user0",
        "iat": now,
        "exp": now + 600,
        "scope": SEARCH_SCOPE,
        "tenant": "Acorn Ltd",
    }
    return jwt.encode(usual | claims, key, algorithm="ES256", headers={"kid": "one"})


def honest_keys(handler: Handler) -> None:
    handler.say(keys_of(OURS))


def embedding(handler: Handler) -> None:
    """What an endpoint answers that speaks OpenAI's protocol."""
    request: dict[str, Any] = json.loads(handler.server.asked[-1].body)
    vectors: list[Any] = [[float(len(text) % 7), *[1.0] * (DIMENSION - 1)] for text in request["input"]]
    if request.get("encoding_format") == "base64":
        vectors = [base64.b64encode(np.array(vector, "<f4").tobytes()).decode() for vector in vectors]
    data = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    handler.say(json.dumps({"data": data}).encode())
