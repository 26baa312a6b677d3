"""Ties a command to the process that started it, so that no ingestion outlives the server that needs it."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def end_with_starter(_context: click.Context, _option: click.Parameter, given: bool) -> None:  # noqa: FBT001 click's
    """A click callback: end this process when its standard input ends, on every platform and for any reason.

    Completed work is kept, as when a command is killed.
    """
    if not given:
        return
    starter, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)  # processes that parse files don't wait for it, too
    os.close(empty)
    threading.Thread(target=_end_after, args=[starter], daemon=True).start()


def _end_after(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os._exit(1)
