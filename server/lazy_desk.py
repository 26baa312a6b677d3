"""The desk, opened in the background: importing the engine and the model takes a second.

A host that waits that long for its first answer drops the server, so the desk is opened only
when the first message has been answered.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from rag.errors import RefdeskError

if TYPE_CHECKING:
    from rag.config.settings import Settings
    from rag.search.desk import Desk

REPLY_FIRST_SECONDS = 0.02  # lets the first answer leave before the imports hold the interpreter

log = logging.getLogger(__name__)
_importing = threading.Lock()


class OpeningDesk:
    """A desk that opens once, when told to or when first asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = anyio.Lock()
        self._open = AsyncExitStack()
        self._desk: Desk | None = None
        self.answered = anyio.Event()

    async def warm_up(self) -> None:
        """Open the desk as soon as the first message has been answered; if that fails, a call tries again."""
        await self.answered.wait()
        await anyio.sleep(REPLY_FIRST_SECONDS)
        try:
            await self.desk()
        except RefdeskError as error:
            log.warning("The desk can't be opened: %s", error)
        except Exception:
            log.exception("opening the desk crashed")

    @property
    def ready(self) -> bool:
        """Whether the desk is open."""
        return self._desk is not None

    @property
    def alarms(self) -> int:
        """The open desk's alarms."""
        return self._desk.alarms if self._desk else 0

    async def close(self) -> None:
        """Let go of what the desk holds; where the process ends with it, its end does that."""
        await self._open.aclose()

    async def desk(self) -> Desk:
        """The opened desk.

        Raises:
            RefdeskError: it can't be opened; asking again tries again.
        """
        async with self._lock:
            if self._desk is None:
                await to_thread.run_sync(_import_desk, abandon_on_cancel=True)
                from rag.search.desk import Desk  # noqa: PLC0415 not before the first answer

                desk = Desk.open(self._settings, os.environ)
                self._desk = await self._open.enter_async_context(desk)
                _give_back_memory()
            return self._desk


def _import_desk() -> None:
    with _importing:  # two threads importing the engine can deadlock
        import rag.search.desk  # noqa: F401, PLC0415 not before the first answer


def _give_back_memory() -> None:
    """Return to the system what only the opening needed: some 10 MB, which glibc would keep."""
    with suppress(AttributeError, OSError):  # other C libraries have no such function
        ctypes.CDLL(None).malloc_trim(0)
