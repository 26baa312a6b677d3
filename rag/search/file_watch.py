"""Looks whether the files of sources are still as they were ingested, for no longer than a moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Thread

from anyio import to_thread

from rag.corpus import Source
from rag.originals import Staleness, staleness

LOOK_SECONDS = 0.3  # a local file takes some 5 µs
MAX_HANGING = 4  # looks that don't come back, as on a dead network mount; then nobody waits for more


class FileWatch:
    """Compares files with the states that were recorded when they were ingested. Reads no content.

    Each look has a thread of its own, which the process doesn't wait for: no call can be cancelled that waits
    for a file server.
    """

    def __init__(self, seconds: float = LOOK_SECONDS) -> None:
        self._seconds = min(seconds, LOOK_SECONDS)
        self._hanging: list[Thread] = []

    async def stale(self, sources: Iterable[Source]) -> Mapping[str, Staleness]:
        """What became of the files of these sources since, by source id.

        A source is missing if its file is as it was, if its folder is not mounted here, or if it can't be
        told in time.
        """
        recorded = (one for one in sources if one.file and one.name and one.uri.startswith("file:"))
        files = {one.id: one for one in recorded}
        self._hanging = [thread for thread in self._hanging if thread.is_alive()]
        if not files or len(self._hanging) >= MAX_HANGING:
            return {}
        return await to_thread.run_sync(self._looked, files.values())

    def _looked(self, sources: Iterable[Source]) -> Mapping[str, Staleness]:
        found: dict[str, Staleness] = {}

        def look() -> None:
            for one in sources:
                if one.file and (state := staleness(one.uri, one.name, one.file)):
                    found[one.id] = state

        thread = Thread(target=look, name="refdesk files", daemon=True)
        thread.start()
        thread.join(self._seconds)
        if thread.is_alive():
            self._hanging.append(thread)
        return found.copy()
