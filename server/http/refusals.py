"""The audit and metrics of requests that were refused before they became calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import anyio

from server.telemetry.audit import audit_log

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

FLUSH_SECONDS = 1.0
MAX_KINDS = 20  # in this time; more kinds are counted together
OTHERS = "others"
Kind: TypeAlias = "tuple[int, str, str]"
"""Status, client address, and the caller and reason as JSON."""


class RefusalLog:
    """Logs the first refusal of a kind at once, and then once a second how many more there were.

    Otherwise a flood of requests would become a flood of log lines.
    """

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count
        self._unlogged: dict[Kind, int] = {}

    def record(self, status: int, address: str, fields: Mapping[str, object]) -> None:
        """Log or count a refusal; `fields` are the caller, as far as known, and the reason."""
        self._count(status)
        kind: Kind = (status, address, json.dumps(fields))
        if kind not in self._unlogged and len(self._unlogged) >= MAX_KINDS:
            kind = (status, OTHERS, "{}")
        if kind in self._unlogged:
            self._unlogged[kind] += 1
        else:
            self._unlogged[kind] = 0
            _log(*kind, 1)

    async def flush_every_second(self) -> None:
        """Log what has been counted, once a second until cancelled, and then once more."""
        try:
            while True:
                await anyio.sleep(FLUSH_SECONDS)
                self._flush()
        finally:
            self._flush()

    def _flush(self) -> None:
        counted = {kind: count for kind, count in self._unlogged.items() if count}
        self._unlogged = dict.fromkeys(counted, 0)
        for kind, count in counted.items():
            _log(*kind, count)


def _log(status: int, address: str, fields: str, count: int) -> None:
    line = {"status": status, "client": address, **json.loads(fields), "count": count}
    audit_log.info("refused", extra={"fields": line})
