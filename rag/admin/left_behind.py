"""Documents of origins that the settings don't have any more: no sync changes or removes them."""

from __future__ import annotations

from collections import Counter
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.access.tenants import tenants
from rag.admin.sources import open_reader
from rag.config.origin_settings import FolderOrigin
from rag.report.tables import counted

if TYPE_CHECKING:
    from rag.config.settings import Settings
    from rag.store.read.collection_reader import CollectionReader

ORIGIN = "origin:"  # begins the URIs of what isn't a local file
ROWS = 4_096


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Documents in a collection whose origin brings nothing into it any more.

    `tenant` is empty if it need not be named. `is_elsewhere`: the settings have an origin of this name.
    """

    tenant: str
    collection: str
    origin: str
    documents: int
    is_elsewhere: bool

    def __str__(self) -> str:
        why = "brings nothing into it any more" if self.is_elsewhere else "isn't in the settings any more"
        tenant = f" --tenant {self.tenant}" if self.tenant else ""
        verb = "comes" if self.documents == 1 else "come"
        return (
            f"{counted(self.documents, 'document')} in {self.collection} {verb} from the origin "
            f"{self.origin}, which {why}, so no sync changes or removes them. To remove them, "
            f"run refdesk-admin remove {ORIGIN}{self.origin} --collection {self.collection}{tenant}."
        )


async def left_behind(settings: Settings) -> list[LeftBehind]:
    """What origins left behind that were removed, renamed, or sent to another collection.

    A folder's documents don't say that it was an origin.

    Raises:
        ConfigurationError, StoreError: the desk can't be read.
    """
    reader, known = open_reader(settings), tenants(settings.data)
    found = []
    for tenant in known:
        for made in await reader.collections(tenant):
            if made.attached or made.tag_of:
                continue
            counts = await _by_origin(await reader.open(made))
            found += [
                LeftBehind(tenant if len(known) > 1 else "", made.name, name, count, name in settings.origins)
                for name, count in sorted(counts.items())
                if not _brings(settings, name, tenant, made.name)
            ]
    return found


def _brings(settings: Settings, name: str, tenant: str, collection: str) -> bool:
    """Whether an origin of the settings brings documents with its name into this collection."""
    origin = settings.origins.get(name)
    if origin is None or isinstance(origin, FolderOrigin) or origin.collection != collection:
        return False
    return (origin.tenant or settings.principal.tenant) in {None, tenant}


async def _by_origin(table: CollectionReader) -> Counter[str]:
    """The number of documents that came from each origin."""
    counts = Counter[str]()
    where = f"(starts_with(uri, '{ORIGIN}'))"
    async with aclosing(table.source_batches(where, ["uri"], ROWS)) as batches:
        async for batch in batches:
            uris = filter(None, batch.column("uri").to_pylist())
            counts.update(uri.removeprefix(ORIGIN).partition("/")[0] for uri in uris)
    return counts
