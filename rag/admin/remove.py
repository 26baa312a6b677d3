"""`refdesk-admin remove`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.admin.console import collection_option, command, counted, print_json
from rag.admin.sources import open_collections
from rag.errors import InvalidRequestError, NotFoundError
from rag.settings import DEFAULT_COLLECTION
from rag.store.writer import drop_collection, open_writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.settings import Settings
    from rag.store.writer import KnownSource


@command("remove")
@click.argument("sources", nargs=-1, metavar="[ID|PATH]...")
@click.option("--all", "everything", is_flag=True, help="The whole collection.")
@collection_option(DEFAULT_COLLECTION)
async def remove_command(
    settings: Settings, *, sources: tuple[str, ...], everything: bool, collection: str, as_json: bool
) -> None:
    """Remove sources by id, by file, or by folder.

    Nobody finds them from then on; refdesk-admin purge takes their text off the disk as well.
    """
    if everything == bool(sources):
        raise InvalidRequestError("Name the sources to remove, or give --all.")
    (table,) = await open_collections(settings, collection)
    if everything:
        removed = [source.id for source in await table.listing()]
        await drop_collection(settings.data, table.collection)
    else:
        async with open_writer(settings.data, table.collection) as writer:
            known = (await writer.known()).values()
            removed = list(dict.fromkeys(id_ for name in sources for id_ in _named(name, known, collection)))
            await writer.remove(removed)
            await writer.finish()
    if as_json:
        print_json({"removed": removed})
    else:
        click.echo(f"{counted(len(removed), 'source')} removed from {collection}.")


def _named(name: str, known: Iterable[KnownSource], collection: str) -> list[str]:
    uri = Path(os.path.realpath(name)).as_uri()  # as ingestion names them
    below = uri.rstrip("/") + "/"
    found = [one.id for one in known if name == one.id or one.uri == uri or one.uri.startswith(below)]
    if not found:
        raise NotFoundError(
            f"No source in {collection} has the id or path {name!r}; refdesk-admin sources lists them all."
        )
    return found
