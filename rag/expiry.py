"""When documents expire: at the moment that they state, or so many days after their date.

Moments are in UTC. A date without a time is its first moment, and a time without a zone is in UTC.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rag.file_state import FileState

EXPIRES = "expires"
"""The key of the metadata by which a document states when it expires, in any letter case."""
NEVER = datetime.max.replace(tzinfo=UTC)


def expiry(
    metadata: Mapping[str, str],
    keep_days: int,
    *,
    date: datetime | None,
    file: FileState | None,
    ingested_at: datetime,
) -> datetime | None:
    """From when on a stored document isn't found any more; None if it stays.

    With `keep_days`, that is so many days after its own date, else after the last change of its file, else
    after its ingestion; a date in the future doesn't count. What it states itself counts if it is earlier.
    """
    stated = _stated(metadata)
    if not keep_days:
        return stated
    changed = _moment(file) if file else None
    since = min(date or changed or ingested_at, ingested_at)
    kept = NEVER if keep_days > (NEVER - since).days else since + timedelta(days=keep_days)
    return kept if stated is None else min(stated, kept)


def _stated(metadata: Mapping[str, str]) -> datetime | None:
    """What ingestion has checked and written as a date in UTC."""
    try:
        moment = datetime.fromisoformat(metadata[EXPIRES]) if EXPIRES in metadata else None
    except ValueError:
        return None  # of an ingestion that knew nothing of this key
    return moment.replace(tzinfo=moment.tzinfo or UTC) if moment else None


def _moment(file: FileState) -> datetime | None:
    """When a file was changed last; None for times that no calendar has."""
    try:
        return datetime.fromtimestamp(file.modified / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return None


@dataclass(slots=True)
class Clock:
    """The time of a process, which never goes back: what has expired stays so if the clock is set back.

    `wall` is the system's time and `steady` a monotonic one, both in seconds.
    """

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    _anchor: tuple[float, float] | None = field(default=None, init=False)

    def now(self) -> datetime:
        """The system's time, or what it would be now if it had not been set back since the first call."""
        wall, steady = self.wall(), self.steady()
        if self._anchor is not None:
            wall = max(wall, self._anchor[0] + steady - self._anchor[1])
        self._anchor = wall, steady
        return datetime.fromtimestamp(wall, UTC)
