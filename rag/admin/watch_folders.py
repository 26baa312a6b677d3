"""`--watch`: runs again whenever something changes in folders, until SIGINT or SIGTERM."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

import anyio

from rag.admin.terminal import echo
from rag.errors import RefdeskError
from rag.originals import LOOK_MS, changes_in, identity, is_below


async def watch(
    folders: Mapping[Path, str], run: Callable[[list[str]], Awaitable[object]], *, without: Path
) -> None:
    """Call `run` with all names, then with the names of the folders in which something changed.

    Changes in the folder `without` don't count. A failed run is reported; the next change begins another. A
    folder that disappears is awaited, and a link that leads elsewhere is followed. SIGINT and SIGTERM end the
    watch and a run in it; committed work stays.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_asked_to_end, tasks.cancel_scope)
        due = list(dict.fromkeys(folders.values()))
        while True:
            due = await _watch_once(folders, run, due, _real(without))
    echo("Watching has ended.", err=True)


async def _until_asked_to_end(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def _watch_once(
    folders: Mapping[Path, str], run: Callable[[list[str]], Awaitable[object]], due: list[str], without: str
) -> list[str]:
    """Watch until a folder appears or disappears, or a link leads elsewhere.

    Returns all names: changes in between were not seen.
    """
    watched = _names_by_real_path(folders)
    there = _existing(watched)
    if not there:
        await _run(run, due)
        while not _existing(_names_by_real_path(folders)):  # noqa: ASYNC110 no event comes of what isn't there
            await anyio.sleep(LOOK_MS / 1000)
        return list(dict.fromkeys(folders.values()))
    async for paths in changes_in(there, without=without):
        # The first turn comes once the watch is active, so no change between it and the run is missed.
        changed = [name for folder, name in watched.items() if any(is_below(path, folder) for path in paths)]
        await _run(run, list(dict.fromkeys([*due, *changed])))
        due = []
        now = _existing(watched)
        if now != there or paths & there.keys() or watched != _names_by_real_path(folders):
            for path in there.keys() - now.keys():
                echo(f"{path} is gone. Waiting for it.", err=True)
            break
    return list(dict.fromkeys(folders.values()))


def _names_by_real_path(folders: Mapping[Path, str]) -> dict[str, str]:
    """The names of folders by where they are now: a link may lead elsewhere than before."""
    return {_real(path): name for path, name in folders.items()}


async def _run(run: Callable[[list[str]], Awaitable[object]], names: list[str]) -> None:
    """Run once; report a failure and go on."""
    if not names:
        return
    try:
        await run(names)
    except (RefdeskError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        echo(f"refdesk-admin: {reason} The next change begins another run.", err=True)


def _existing(folders: Iterable[str]) -> dict[str, tuple[int, int]]:
    """The existing folders with what tells each from its successor."""
    identities = {path: identity(path) for path in folders}
    return {path: stat for path, stat in identities.items() if stat}


def _real(path: Path) -> str:
    return os.path.realpath(path)
