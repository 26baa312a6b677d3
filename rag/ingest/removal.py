"""Sources whose files are gone, and the guard against an unmounted folder.

An unmounted share looks like a folder from which somebody deleted everything. If too much of a folder is gone
at once, nothing of it is removed until an operator confirms that with --yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from rag.file_state import local_path
from rag.ingest.paths import is_gone, name_of, path_of, prefix_of, printable
from rag.ingest.report import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from rag.config.settings import IngestSettings
    from rag.ingest.discover import Discovery
    from rag.store.writer import CollectionWriter, KnownSource


class Removed(NamedTuple):
    """The outcomes of the sources whose files are gone, and a note for each folder that may be unmounted."""

    outcomes: list[Outcome]
    notes: list[str]


async def remove_vanished(
    writer: CollectionWriter,
    known: Mapping[str, KnownSource],
    discovery: Discovery,
    settings: IngestSettings,
    *,
    confirmed: bool,
) -> Removed:
    """Remove the sources whose files are gone; unless `confirmed`, not from folders that may be unmounted."""
    missing = await to_thread.run_sync(vanished, known, discovery)
    unmounted = {} if confirmed else perhaps_unmounted(missing, known, discovery.folders, settings)
    kept = {id_ for ids in unmounted.values() for id_ in ids}
    if gone := [one for one in missing if one.id not in kept]:
        await writer.remove([one.id for one in gone])
    reason = "the file is gone, and so are many others: nothing was removed"
    return Removed(
        [
            *(Outcome(path_of(one.uri), "removed", "the file is gone", one.id) for one in gone),
            *(Outcome(path_of(one.uri), "missing", reason, one.id) for one in missing if one.id in kept),
        ],
        [
            f"{len(ids)} files of {printable(folder)} are gone. Nothing was removed, because the folder may "
            "be unmounted. If you deleted them, run the command again with --yes."
            for folder, ids in unmounted.items()
        ],
    )


def vanished(known: Mapping[str, KnownSource], discovery: Discovery) -> list[KnownSource]:
    """The stored sources below the walked folders whose files don't exist any more."""
    prefixes = tuple(map(prefix_of, discovery.folders))
    absent = [
        one for one in known.values() if one.uri.startswith(prefixes) and one.uri not in discovery.found
    ]
    return [one for one in absent if is_gone(local_path(one.uri))]


def lost(known: Mapping[str, KnownSource], discovery: Discovery, new: Iterable[str]) -> set[str]:
    """The ids of the sources that a new file, given by URI, could be an edited version of.

    That are those that vanished from the walked folders, and those of the same file name that vanished
    anywhere else.
    """
    names = {*map(name_of, new)}
    alike = [one for uri, one in known.items() if uri not in discovery.found and name_of(uri) in names]
    elsewhere = {one.id for one in alike if is_gone(local_path(one.uri))} if names else set[str]()
    return elsewhere | {one.id for one in vanished(known, discovery)}


def perhaps_unmounted(
    missing: Sequence[KnownSource],
    known: Mapping[str, KnownSource],
    folders: Iterable[Path],
    settings: IngestSettings,
) -> dict[Path, set[str]]:
    """The folders from which too much is missing at once, each with the ids of these sources."""
    suspicious = {}
    for folder in folders:
        prefix = prefix_of(folder)
        ids = {one.id for one in missing if one.uri.startswith(prefix)}
        stored = sum(1 for uri in known if uri.startswith(prefix))
        if len(ids) > settings.max_removed and len(ids) > settings.max_removed_share * stored:
            suspicious[folder] = ids
    return suspicious
