"""An imitation of LanceDB Enterprise on loopback: the REST calls that its client makes, over real tables.

It answers what reading a table needs, and nothing else. Nobody has tried whether the service answers so.
Tests get this module as a fixture.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import TYPE_CHECKING, Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.query import BooleanQuery, FullTextOperator, MatchQuery, Occur

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

KEY = "sk_very-secret-words"
ALL = 2**31 - 1
VERSION = "0.6.0"  # of the service; to earlier ones the client writes queries otherwise


@dataclass(slots=True)
class Service:
    """What a test may break: `status` is what it answers in place of everything. `calls` are its requests."""

    folder: Path
    address: str = ""
    status: int = 0
    calls: list[tuple[str, Mapping[str, str], Any]] = field(default_factory=list, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        return {"LANCEDB_API_KEY": KEY, "LANCEDB_HOST_OVERRIDE": self.address}

    async def answer(self, table: str, call: str, body: dict[str, Any]) -> tuple[str, bytes]:
        """The type and content of an answer.

        Raises:
            FileNotFoundError: there is no such table.
        """
        if not (self.folder / f"{table}.lance").is_dir():
            raise FileNotFoundError(table)
        opened = await (await lancedb.connect_async(str(self.folder))).open_table(table)
        match call.split("/"):
            case ["describe"]:
                fields = [_field(column) for column in await opened.schema()]
                return _json({"version": await opened.version(), "schema": {"fields": fields}})
            case ["count_rows"]:
                return _json(await opened.count_rows(body.get("predicate")))
            case ["index", "list"]:
                return _json({"indexes": [_index(index) for index in await opened.list_indices()]})
            case ["index", name, "stats"]:
                (index,) = [index for index in await opened.list_indices() if index.name == name]
                rows = {"num_indexed_rows": await opened.count_rows(), "num_unindexed_rows": 0}
                return _json(rows | {"index_type": _type_name(index.index_type), "distance_type": "cosine"})
            case ["query"]:
                return await _rows(opened, body)
        raise FileNotFoundError(call)


def _json(value: object) -> tuple[str, bytes]:
    return "application/json", json.dumps(value).encode()


def _index(index: Any) -> dict[str, Any]:  # noqa: ANN401 the engine's
    named = {"index_name": index.name, "index_uuid": "0", "columns": index.columns}
    return named | {"index_type": _type_name(index.index_type), "status": "done"}


def _type_name(kind: str) -> str:
    return {"FTS": "FTS", "IvfPq": "IVF_PQ", "IvfSq": "IVF_SQ", "BTree": "BTREE"}[kind]


def _field(column: pa.Field[Any]) -> dict[str, Any]:
    return {"name": column.name, "nullable": column.nullable, "type": _type(column.type)}


def _type(kind: pa.DataType) -> dict[str, Any]:
    """A type as the client reads it."""
    if isinstance(kind, pa.FixedSizeListType):
        inner = [_field(kind.value_field)]
        return {"type": "fixed_size_list", "fields": inner, "length": kind.list_size}
    if isinstance(kind, pa.ListType):
        return {"type": "list", "fields": [_field(kind.value_field)]}
    if isinstance(kind, pa.StructType):
        return {"type": "struct", "fields": [_field(part) for part in kind]}
    return {"type": str(kind)}


async def _rows(table: lancedb.AsyncTable, body: dict[str, Any]) -> tuple[str, bytes]:
    query: Any = table.query()
    if body["vector"]:
        query = query.nearest_to(np.array(body["vector"], np.float32)).column(body["vector_column"])
        query = query.distance_type(body["distance_type"])
    if words := body.get("full_text_query"):
        query = query.nearest_to_text(_words(words["query"]))
    if body.get("filter"):
        assert body["prefilter"]
        query = query.where(body["filter"])
    if body.get("columns"):
        query = query.select(body["columns"])
    rows = await query.limit(min(body["k"], ALL)).to_arrow()
    written = BytesIO()
    with pa.ipc.new_file(written, rows.schema) as file:
        file.write_table(rows)
    return "application/vnd.apache.arrow.file", written.getvalue()


def _words(query: Mapping[str, Any]) -> Any:  # noqa: ANN401 the engine's
    ((kind, of),) = query.items()
    if kind == "match":
        operator = FullTextOperator(of["operator"].upper())
        return MatchQuery(of["terms"], of["column"], boost=of["boost"], operator=operator)  # type: ignore[call-arg]  # the rest defaults
    assert kind == "boolean", kind
    parts = [(Occur(occur.upper()), _words(part)) for occur in of for part in of[occur]]
    return BooleanQuery(parts)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def log_message(self, *_arguments: object) -> None:
        pass

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body, path = json.loads(content or b"{}"), self.path.partition("?")[0].strip("/")
        self.service.calls.append((path, dict(self.headers), body))
        version, kind, name, call = path.split("/", 3)
        table = name.rpartition("$")[2]  # behind its namespaces
        assert (version, kind) == ("v1", "table")
        status, answer = 200, ("text/plain", b"")
        if self.service.status or self.headers["x-api-key"] != KEY:
            status = self.service.status or 401
        else:
            try:
                answer = asyncio.run(self.service.answer(table, call, body))
            except FileNotFoundError:
                status = 404
        self.send_response(status)
        self.send_header("Content-Type", answer[0])
        self.send_header("Content-Length", str(len(answer[1])))
        self.send_header("phalanx-version", VERSION)
        self.end_headers()
        self.wfile.write(answer[1])


@contextmanager
def lancedb_service(folder: Path) -> Iterator[Service]:
    """A service that has the tables in a folder in each of its databases."""
    service = Service(folder)
    handler = type("Handler", (_Handler,), {"service": service})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    service.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
