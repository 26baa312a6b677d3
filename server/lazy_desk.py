"""The desk, opened in the background: importing the engine and the model takes about a second.

Hosts drop a server whose first answer takes that long, so the desk opens only after the first reply. Next
they list the tools; the file of `rag.search.overview` answers that, if it is valid.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from rag.access.tenants import has_tenant, home_of
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.errors import RefdeskError
from rag.home import Bucket, data_folder_problem
from rag.models.breaker import Breaker
from rag.run_history import first_run_began
from rag.runtime import return_memory
from rag.search.overview import CollectionOverview, kept_overview

if TYPE_CHECKING:
    from rag.search.desk import Desk

WARM_SECONDS = 30  # of reading ahead; after that, searches wait for their own reads
REPLY_FIRST_SECONDS = 0.02  # lets a reply leave before the imports hold the interpreter lock
LIST_SECONDS = 0.5  # for a host to list the tools after its greeting; a search opens the desk at once

log = logging.getLogger(__name__)
_importing = threading.Lock()


class LazyDesk:
    """A desk that opens once, in the background after a reply, or when a request needs it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = anyio.Lock()
        self._open = AsyncExitStack()
        self._desk: Desk | None = None
        self._warm = False
        self.first_reply = anyio.Event()
        self.listed = anyio.Event()

    async def warm_up(self) -> None:
        """Open the desk once the tools are listed, or soon after the first reply; read ahead in a bucket.

        If that fails, the next request tries again.
        """
        await self.first_reply.wait()
        with anyio.move_on_after(LIST_SECONDS):
            await self.listed.wait()
        await anyio.sleep(REPLY_FIRST_SECONDS)
        try:
            desk = await self.desk()
            if isinstance(self._settings.home, Bucket):
                with anyio.move_on_after(WARM_SECONDS):
                    await desk.warm()
        except RefdeskError as error:
            log.warning("Cannot open the desk: %s", error)
        except Exception:
            log.exception("opening the desk crashed")
        self._warm = True

    @property
    def ready(self) -> bool:
        """Whether the desk is open and warm, and its folder or bucket exists. Checking that may block."""
        return self._desk is not None and self._warm and data_folder_problem(self._settings.home) is None

    @property
    def alarms(self) -> int:
        """The number of gate alarms; 0 while the desk is closed."""
        return self._desk.alarms if self._desk else 0

    @property
    def breakers(self) -> Mapping[str, Breaker]:
        """The state of the endpoints of remote models, by their kind; none while the desk is closed."""
        return self._desk.breakers if self._desk else {}

    async def overview(self, principal: Principal) -> tuple[CollectionOverview, ...]:
        """What the principal may read; empty if the desk fails, because each call then says why.

        It doesn't open the desk for a tenant without documents, or while the file of overviews is valid.
        """
        try:
            if not await to_thread.run_sync(has_tenant, self._settings.home, principal.tenant):
                return ()
            stored = await self._kept_overview(principal) if self._desk is None else None
            return await (await self.desk()).overview(principal) if stored is None else stored
        except RefdeskError as error:
            log.warning("The tools are listed without what the desk holds: %s", error)
            return ()

    async def first_ingestion(
        self, principal: Principal, overview: Iterable[CollectionOverview]
    ) -> datetime | None:
        """When an unfinished first ingestion of a collection in the overview began, or None.

        With an empty overview, any collection of the tenant counts. Only for a data folder on this machine:
        other callers could learn of documents that they can't read.
        """
        home = await self._folder(principal.tenant)
        if home is None:
            return None
        collections = {summary.collection.name for summary in overview}
        return await to_thread.run_sync(first_run_began, home, principal.tenant, collections)

    async def _kept_overview(self, principal: Principal) -> tuple[CollectionOverview, ...] | None:
        """The overview from the file, without the engine; None if the file isn't valid."""
        home = None if self._settings.retrievers else await self._folder(principal.tenant)
        if home is None:
            return None
        return await to_thread.run_sync(kept_overview, home, principal, self._settings.access.letter_case)

    async def _folder(self, tenant: str) -> Path | None:
        """The folder of the tenant's documents; None for a bucket, or if that can't be read just now."""
        if isinstance(self._settings.home, Bucket):
            return None
        with suppress(RefdeskError):
            home = await to_thread.run_sync(home_of, self._settings, tenant)
            return None if isinstance(home, Bucket) else home
        return None

    async def close(self) -> None:
        """Close the desk. Only needed if the process outlives it."""
        await self._open.aclose()

    async def desk(self) -> Desk:
        """The desk, opened if it is not open yet.

        Raises:
            RefdeskError: it can't be opened; the next call tries again.
        """
        async with self._lock:
            if self._desk is None:
                # The import can't be interrupted. A cancelled request needn't wait for it: it ends by itself.
                await to_thread.run_sync(_import_desk, abandon_on_cancel=True)
                from rag.search.desk import Desk  # noqa: PLC0415 not before the first reply

                desk = Desk.open(self._settings, os.environ)
                self._desk = await self._open.enter_async_context(desk)
                return_memory()  # about 10 MB, used for opening only
            return self._desk


def _import_desk() -> None:
    with _importing:  # two threads that import the engine can deadlock
        gc.disable()  # as in `server.main`
        try:
            import rag.search.desk  # noqa: F401, PLC0415 not before the first reply
        finally:
            gc.freeze()
            gc.enable()
