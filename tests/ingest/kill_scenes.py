"""The commands that `tests.ingest.kills` kills, and what lies in the data folder when they begin."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rag.store.read import schema
from rag.store.read.connection import connect, table_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

CHUNKS, SOURCES = schema.chunks_table("default", "documents"), schema.sources_table("default", "documents")
ACCESS = schema.access_table("default")


@dataclass(frozen=True, slots=True)
class Scene:
    """What lies in the folder when a command begins: `before` are commands, `change` changes the documents.

    `damage` changes the data folder itself. A command that takes something away fails if it is `gone`
    already. One that `turns` to the former tables and back is not run again where it has done so. `anew` are
    the parts of the state that each run makes anew.
    """

    name: str
    command: Sequence[str]
    before: Sequence[Sequence[str]] = ()
    change: bool = False
    gone: bool = False
    damage: Callable[[Path], Awaitable[None]] | None = None
    turns: bool = False
    anew: Sequence[str] = ("builds",)


async def leftovers(data: Path) -> None:
    """What several accidents leave, all of which can be mended without loss."""
    (data / "reserve").unlink()
    (data / "tenants" / "default").unlink()
    (data / "spool" / "default.documents").mkdir(parents=True)
    (data / "spool" / "default.documents" / "x").touch()
    await orphans(data)
    records = await (await connect(data)).open_table(ACCESS)
    await records.delete("uri LIKE '%/5.md'")
    shutil.rmtree(table_folder(data, CHUNKS) / "_indices")


async def orphans(data: Path) -> None:
    """Chunks that no source names."""
    chunks = await (await connect(data)).open_table(CHUNKS)
    rows = await chunks.query().limit(5).to_arrow()
    rows = pa.Table.from_pylist([row | {"generation": "?"} for row in rows.to_pylist()], rows.schema)
    await chunks.add(rows)


async def damaged(data: Path) -> None:
    """A table whose newest rows can't be read, and one that belongs to no collection."""
    folder = table_folder(data, SOURCES)
    newest = max((folder / "data").glob("*.lance"), key=lambda file: file.stat().st_mtime_ns)
    os.truncate(newest, newest.stat().st_size // 2)
    shutil.copytree(table_folder(data, CHUNKS), table_folder(data, schema.chunks_table("default", "ghost")))


INGEST = ("ingest", "docs")
FIRST = ((*INGEST, "--visibility", "tenant"), ("access", "set", "*/1.md", "--visibility", "restricted"))
RIGHTS = (*FIRST, ("access", "revoke", "*/2.md", "--from", "user:bob"), ("key", "create", "--user", "ann"))
REBUILD = ("collection", "rebuild", "documents")
REBUILT = (*REBUILD, "--chunking", "sentence,max=64")
SYNC = ("sync", "--config", "config.toml")
SCENES = (
    Scene("first ingest", (*INGEST, "--visibility", "restricted", "--allow", "group:hr")),
    Scene("ingest", INGEST, RIGHTS, change=True),
    Scene(
        "ingest --set-access",
        (*INGEST, "--set-access", "--visibility", "restricted", "--allow", "group:hr"),
        RIGHTS,
        change=True,
    ),
    Scene(
        "access set", ("access", "set", "*.md", "--visibility", "restricted", "--allow", "group:hr"), RIGHTS
    ),
    Scene("access grant", ("access", "grant", "*/1.md", "--to", "user:bob"), RIGHTS),
    Scene("remove", ("remove", "docs/3.md", "docs/4.md"), RIGHTS, gone=True),
    Scene("purge", ("purge",), (*RIGHTS, ("remove", "docs/3.md", "docs/4.md"))),
    Scene("collection remove", ("collection", "remove", "documents", "--yes"), RIGHTS, gone=True),
    Scene(
        "restore", ("restore", "desk.tar", "--yes"), (*RIGHTS, ("backup", "desk.tar"), INGEST), change=True
    ),
    Scene("restore into a new folder", ("restore", "desk.tar", "--yes")),
    Scene("collection rebuild", REBUILD, RIGHTS),
    Scene("backup", ("backup", "new.tar", "--yes"), RIGHTS),
    Scene("key revoke", ("key", "revoke", "KEY"), RIGHTS, gone=True),
    Scene("key rotate", ("key", "rotate", "KEY", "--keep-days", "0"), RIGHTS, anew=("builds", "keys")),
    Scene("undo", (*REBUILD, "--undo"), (*RIGHTS, REBUILT, INGEST), change=True, turns=True, anew=()),
    Scene("sync", SYNC, (*RIGHTS, SYNC, INGEST), change=True),
    Scene("first sync", SYNC),
    Scene("doctor --fix", ("doctor", "--fix"), RIGHTS, damage=leftovers),
    Scene("doctor --fix --yes", ("doctor", "--fix", "--yes"), RIGHTS, damage=damaged),
)
