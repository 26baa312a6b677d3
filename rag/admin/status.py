"""`refdesk-admin status`."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag.access.tenants import tenant_of
from rag.admin.console import command, echo, print_json, print_table, same_desk
from rag.admin.sharing import exposures
from rag.admin.sources import open_collections, readable
from rag.corpus import DEFAULT_EMBEDDER
from rag.home import Bucket
from rag.report.tables import counted
from rag.store.bucket.bucket_objects import listed

if TYPE_CHECKING:
    from rag.config.settings import Settings
    from rag.store.read.collection_reader import CollectionReader


@command("status", on_bucket=True)
async def status_command(settings: Settings, *, as_json: bool) -> None:
    """Show the data folder and the size of each collection."""
    tables = await open_collections(settings, None)
    collections = [await size_of(table) for table in readable(tables)]
    home = settings.home
    disk = sum(size for size, _ in listed(home).values()) if isinstance(home, Bucket) else folder_bytes(home)
    exposed = await exposures(settings, tenant_of(settings), intended=True)
    if as_json:
        opened = {exposure.collection.name: exposure.documents for exposure in exposed}
        shared = {"open_to_others": opened} if opened else {}
        print_json({"data": str(home), "bytes": disk, "collections": collections} | shared)
        return
    echo(f"{'Bucket' if settings.storage.uri else 'Data folder':12} {home} ({disk / 1e6:.1f} MB)")
    echo(f"Tenant       {tenant_of(settings)}")
    for name, embedder in settings.embedders_by_name.items():
        label = "" if name == DEFAULT_EMBEDDER else f"{name}: "
        echo(f"Embedder     {label}{embedder.provider} {embedder.model}".rstrip())
    if not collections:
        echo(f"There are no collections yet. Add documents with refdesk-admin ingest PATH{same_desk()}")
        return
    echo()
    columns = ("name", "sources", "chunks", "unindexed", "language")
    rows = [
        (*(one[column] for column in columns), one["embedder"]["model"], ", ".join(one["indexes"]))
        for one in collections
    ]
    print_table([("COLLECTION", "SOURCES", "CHUNKS", "UNINDEXED", "LANGUAGE", "EMBEDDER", "INDEXES"), *rows])
    attached = {table.collection.name: table.collection.attached for table in tables}
    for one in collections:
        if table := attached[one["name"]]:
            echo(f"{one['name']} is the attached table {table.table}.")
        if not settings.has_embedder(one["embedder_name"]):
            echo(
                f"{one['name']} is searched by words only: the settings have no table "
                f"[embedders.{one['embedder_name']}], and no model of that name is installed. "
                "See refdesk-admin config check."
            )
        if (lacking := one["without_vector"]) and not table:
            echo(
                f"{counted(lacking, 'chunk')} of {one['name']} found by words only: the embedding model "
                "had no valid vector. The next ingest asks again."
            )
    for exposure in exposed:
        echo(exposure)


async def size_of(table: CollectionReader) -> dict[str, Any]:
    """A collection's size, as `--json` prints it."""
    named = {
        "name": table.collection.name,
        "language": table.collection.language,
        "embedder": asdict(table.collection.embedder),
        "embedder_name": table.collection.embedder_name,
    }
    return named | asdict(await table.statistics())


def folder_bytes(folder: Path) -> int:
    """The total size of the files below a folder."""
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sum(path.stat().st_size for path in files if path.exists())
