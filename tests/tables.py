"""Opens tables of a desk as its readers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rag.store.read.desk_reader import DeskReader

if TYPE_CHECKING:
    from rag.home import Home
    from rag.store.read.collection_reader import CollectionReader


async def table_of(
    data: Home,
    name: str = "",
    *,
    tenant: str = "default",
    **options: Any,  # noqa: ANN401 of the reader
) -> CollectionReader:
    """A collection of a tenant, opened anew: the only one, or that of this name."""
    reader = DeskReader(data, **{"timeout_seconds": 30} | options)
    (collection,) = [stored for stored in await reader.collections(tenant) if name in {"", stored.name}]
    return await reader.open(collection)
