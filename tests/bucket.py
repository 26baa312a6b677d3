"""An S3 server on loopback for tests: moto's, with a count of requests, and faults on demand.

Tests get this module as a fixture.
"""

from __future__ import annotations

import math
import re
import secrets
import threading
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

import httpx2
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.wrappers import Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

SKEW_SECONDS = 15 * 60  # as S3's
SHUTDOWN_SECONDS = 0.02  # between two looks whether it is to end
READING, MIME_TYPE = frozenset({"GET", "HEAD"}), "binary/octet-stream"
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=AKIATESTER/20260101/us-east-1/s3/aws4_request"}


class _Silent(WSGIRequestHandler):
    store: ObjectStore

    def handle(self) -> None:
        if not self.store.gone:
            super().handle()

    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002, ANN401 werkzeug's
        pass


@dataclass(slots=True)
class ObjectStore:
    """What a test may break: `read_only` refuses to write, `down` answers with an error,
    `forgets_conditions` overwrites what exists, `expired` knows the credentials no more, `cuts` breaks off in
    the middle of what is read, and `gone` closes each connection at once. `damages` is a part of paths to
    which something else of the same length is written. `slow` is how many seconds each answer waits,
    `bytes_per_second` what a connection carries, `ahead` how many seconds the clock of the store is, and
    `left` how many requests are served before it is down. `requests` counts them by method, `paths` says for
    what, and `puts` what was written.
    """

    bucket: str
    endpoint: str = ""
    read_only: bool = False
    down: bool = False
    forgets_conditions: bool = False
    damages: str = ""
    expired: bool = False
    cuts: bool = False
    gone: bool = False
    slow: float = 0
    bytes_per_second: float = math.inf
    ahead: float = 0
    left: int | None = None
    requests: Counter[str] = field(default_factory=Counter)
    paths: list[str] = field(default_factory=list, repr=False)
    puts: list[str] = field(default_factory=list, repr=False)
    creating: threading.Lock = field(default_factory=threading.Lock, repr=False)
    signed_by: set[str] = field(default_factory=set)

    @property
    def uri(self) -> str:
        """Where a test puts a desk."""
        return f"s3://{self.bucket}/desks/one"

    @property
    def serving(self) -> dict[str, str]:
        """What a process needs to read the desk there."""
        return self.environment | {"REFDESK_STORAGE_URI": self.uri}

    def held(self) -> list[str]:
        """The names of all objects."""
        listed = httpx2.get(f"{self.endpoint}/{self.bucket}")
        return re.findall(r"<Key>(.+?)</Key>", listed.raise_for_status().text)

    def objects(self) -> dict[str, bytes]:
        """All that it holds, without a request."""
        keys = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[self.bucket].keys
        return {name: key.value for name, key in keys.items()}

    def fill(self, objects: Mapping[str, bytes]) -> None:
        """Put objects into it without a request."""
        for name, content in objects.items():
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(self.bucket, name, content)

    def open_to_all(self) -> None:
        """Let everybody list and read it, without credentials."""
        policy = {
            "Effect": "Allow",
            "Principal": "*",
            "Action": ["s3:GetObject", "s3:ListBucket"],
            "Resource": "*",
        }
        address = f"{self.endpoint}/{self.bucket}?policy"
        httpx2.put(address, json={"Statement": [policy]}, headers=SIGNED).raise_for_status()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach the store."""
        return {
            "AWS_ACCESS_KEY_ID": "AKIATESTER",
            "AWS_SECRET_ACCESS_KEY": "very-secret-words",
            "REFDESK_STORAGE_OPTIONS_ENDPOINT": self.endpoint,
            "REFDESK_STORAGE_OPTIONS_REGION": "us-east-1",
            "REFDESK_STORAGE_OPTIONS_ALLOW_HTTP": "true",
        }

    def _refused(self, request: Request) -> Response | None:
        """The error that the store returns instead of an answer."""
        if self.down or (self.left is not None and self.left < 0):
            return _error("SlowDown", 503)
        if abs(time.time() + self.ahead - _signed_at(request)) > SKEW_SECONDS:
            return _error("RequestTimeTooSkewed", 403)
        if self.expired:
            return _error("ExpiredToken", 400)
        if self.read_only and request.method not in READING:
            return _error("AccessDenied", 403)
        return None

    def _object(self, request: Request) -> Response | None:
        """An object, or a part of it, for half of what moto takes; None if it must answer itself."""
        bucket, _, name = request.path[1:].partition("/")
        if request.method not in READING or bucket != self.bucket or request.query_string:
            return None
        headers = {field.lower() for field, _ in request.headers}
        key = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[bucket].keys.get(name)
        if key is None or "authorization" not in headers or any(field.startswith("if-") for field in headers):
            return None
        content, fields = key.value, {"ETag": key.etag, "Last-Modified": key.last_modified_RFC1123}
        fields |= {"Accept-Ranges": "bytes", "Content-Length": str(len(content))}
        if "range" not in headers:
            return Response(content, headers=fields, content_type=MIME_TYPE)
        if not (part := re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers["Range"])):
            return None
        first, last = int(part[1]), min(int(part[2]), len(content) - 1)
        if first > last:
            return None
        fields |= {
            "Content-Range": f"bytes {first}-{last}/{len(content)}",
            "Content-Length": str(last + 1 - first),
        }
        return Response(content[first : last + 1], 206, fields, content_type=MIME_TYPE)

    def app(self, store: WSGIApplication) -> WSGIApplication:
        """The store with the faults."""

        def serve(environ: WSGIEnvironment, start: StartResponse) -> Any:  # noqa: ANN401 WSGI's
            request = Request(environ)
            self.requests[request.method] += 1
            self.paths.append(request.path)
            self.signed_by.add(request.headers.get("Authorization", "")[:40])
            time.sleep(self.slow)
            if self.left is not None:
                self.left -= 1
            if refused := self._refused(request):
                return refused(environ, start)
            if request.method == "PUT":
                self.puts.append(request.path)
            if self.cuts and request.method == "GET":
                whole = Response.from_app(store, environ)
                body = whole.get_data()
                return Response([body[: len(body) // 2]], whole.status, whole.headers)(environ, start)
            if self.bytes_per_second < math.inf:
                answer = Response.from_app(store, environ)
                size = max(request.content_length or 0, len(answer.get_data()))
                time.sleep(size / self.bytes_per_second)
                return answer(environ, start)
            if self.forgets_conditions:
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if self.damages and self.damages in request.path and request.method == "PUT":
                environ["wsgi.input"] = BytesIO(bytes(request.content_length or 0))
            if "HTTP_IF_NONE_MATCH" not in environ:
                return (self._object(request) or store)(environ, start)
            with self.creating:  # moto looks and writes in two steps
                return store(environ, start)

        return serve


def _error(code: str, status: int) -> Response:
    return Response(f"<Error><Code>{code}</Code></Error>", status, content_type="application/xml")


def _signed_at(request: Request) -> float:
    """When a request was signed; now, if it isn't."""
    if not (signed := request.headers.get("X-Amz-Date")):
        return time.time()
    return datetime.strptime(f"{signed}+0000", "%Y%m%dT%H%M%SZ%z").timestamp()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A store with an empty bucket of its own."""
    served = ObjectStore(f"bucket-{secrets.token_hex(4)}")
    app = served.app(create_backend_app("s3"))
    handler = type("Handler", (_Silent,), {"store": served})
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=handler)
    thread = threading.Thread(target=server.serve_forever, args=(SHUTDOWN_SECONDS,))
    thread.start()
    served.endpoint = f"http://127.0.0.1:{server.server_port}"
    httpx2.put(f"{served.endpoint}/{served.bucket}").raise_for_status()
    served.requests.clear()
    served.signed_by.clear()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
