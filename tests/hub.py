"""A model hub on loopback, with a second host for large files, that does as a test tells it to."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = "c0ffee" + "0" * 34
LARGE = 1 << 10  # bytes; as on the hub, larger files lie on another host


@dataclass
class Trouble:
    """What goes wrong, in the order of the requests for bytes of one file; then all goes well."""

    status: int = 200
    cut: int | None = None  # bytes after which the connection breaks
    headers: dict[str, str] = field(default_factory=dict)
    hang: bool = False  # after the cut, keep the line open instead of closing it


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: Hub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub


class Hub:
    """Repositories by name, each its files by path. `troubles` are by path; `asked` are the requests."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.licences: dict[str, str] = {}
        self.gated: set[str] = set()
        self.wants_token = ""
        self.troubles: dict[str, list[Trouble]] = {}
        self.asked: list[tuple[str, str, str, str]] = []  # host, path, Range, Authorization
        self.agents: list[str] = []
        self.sent = threading.Event()  # a part of a file that then hangs
        self.over = threading.Event()
        self.ranges = True
        self.stated: dict[str, str] = {}  # SHA-256 that the hub states, where it isn't the file's own
        self._home, self._cdn = _Server(self), _Server(self)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._home.server_port}"

    @property
    def cdn(self) -> str:
        """The other host: another name of this machine, so that origins differ."""
        return f"http://localhost:{self._cdn.server_port}"

    def environment(self, **more: str) -> dict[str, str]:
        """What a command needs to find it, and to find no other."""
        return {"HF_ENDPOINT": self.url, "NO_PROXY": "*", "HF_TOKEN": "", "HF_HUB_OFFLINE": "", **more}

    def paths(self, host: str = "cdn") -> list[str]:
        return [path for asked_host, path, _, _ in self.asked if asked_host == host]

    def start(self) -> None:
        for server in (self._home, self._cdn):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        self.over.set()
        for server in (self._home, self._cdn):
            server.shutdown()
            server.server_close()

    def is_home(self, server: object) -> bool:
        return server is self._home


def running() -> Iterator[Hub]:
    """A hub for as long as a fixture lasts."""
    hub = Hub()
    hub.start()
    yield hub
    hub.stop()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        hub, path = self.server.hub, unquote(urlsplit(self.path).path)
        home = hub.is_home(self.server)
        token = self.headers["Authorization"] or ""
        hub.agents.append(self.headers["User-Agent"] or "")
        hub.asked.append(("home" if home else "cdn", path, self.headers["Range"] or "", token))
        if path.startswith("/api/models/"):
            self._describe(hub, path.removeprefix("/api/models/").split("/revision/")[0], token)
            return
        name, _, revision_and_file = path.removeprefix("/").partition("/resolve/")
        commit, _, file = revision_and_file.partition("/")
        if not self._may(hub, name, token, home=home):
            return
        content = hub.files[name].get(file)
        if content is None or commit != COMMIT:
            self._reply(404, b"", {"X-Error-Code": "EntryNotFound"})
        elif home and len(content) > LARGE:
            stated = hub.stated.get(file, hashlib.sha256(content).hexdigest())
            linked = {"X-Linked-Etag": f'"{stated}"', "X-Linked-Size": str(len(content))}
            self._reply(302, b"", {"Location": f"{hub.cdn}{self.path}", "X-Repo-Commit": COMMIT, **linked})
        else:
            self._bytes(hub, file, content)

    def _may(self, hub: Hub, name: str, token: str, *, home: bool) -> bool:
        if name not in hub.files:
            self._reply(401, b"", {"X-Error-Code": "RepoNotFound"})
            return False
        if home and name in hub.gated and token != f"Bearer {hub.wants_token}":
            self._reply(401, b"", {"X-Error-Code": "GatedRepo"})
            return False
        return True

    def _describe(self, hub: Hub, name: str, token: str) -> None:
        if not self._may(hub, name, token, home=True):
            return
        siblings = []
        for path, content in hub.files[name].items():
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
            sibling: dict[str, object] = {"rfilename": path, "size": len(content), "blobId": blob}
            if len(content) > LARGE:
                sha256 = hub.stated.get(path, hashlib.sha256(content).hexdigest())
                sibling["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
            siblings.append(sibling)
        licence = hub.licences.get(name)
        body = {
            "id": name,
            "sha": COMMIT,
            "siblings": siblings,
            "cardData": {"license": licence} if licence else None,
        }
        self._reply(200, json.dumps(body).encode(), {})

    def _bytes(self, hub: Hub, file: str, content: bytes) -> None:
        troubles = hub.troubles.get(file, [])
        trouble = troubles.pop(0) if troubles else Trouble()
        if trouble.status != 200:
            self._reply(trouble.status, b"", trouble.headers)
            return
        start = (
            int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) if self._ranged(hub) else 0
        )
        if start and start >= len(content):
            self._reply(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        self.send_response(206 if start else 200)
        if start:
            usual = f"bytes {start}-{len(content) - 1}/{len(content)}"
            self.send_header("Content-Range", trouble.headers.get("Content-Range", usual))
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = len(content) if trouble.cut is None else min(start + trouble.cut, len(content))
        self.wfile.write(content[start:end])
        self.wfile.flush()
        if end < len(content):
            if trouble.hang:
                hub.sent.set()
                hub.over.wait(120)
            self.close_connection = True

    def _ranged(self, hub: Hub) -> bool:
        return hub.ranges and self.headers["Range"] is not None

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Nothing: tests are quiet."""
