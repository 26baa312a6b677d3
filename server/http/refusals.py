"""What became of requests that came to no call: counted for the metrics, summed up for the audit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

import anyio

from server.telemetry.audit import audit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EVERY_SECONDS = 1.0
MAX_LINES = 20  # in this time, of kinds; what more there are, stand together
OTHERS = "others"
Kind: TypeAlias = "tuple[int, str, str]"
"""Status, address, and what is told of whose it was and why, as JSON."""


class Refusals:
    """One line for the first of its kind, and then one a second with how many more came.

    Of one kind are those of the same status, from the same address, refused to the same for the same reason.
    """

    def __init__(self, measure: Callable[[int], None]) -> None:
        self._measure = measure
        self._untold: dict[Kind, int] = {}

    def note(self, status: int, address: str, told: Mapping[str, object]) -> None:
        """Tell or count a refusal; `told` is whose request it was, as far as that is known, and why."""
        self._measure(status)
        one: Kind = (status, address, json.dumps(told))
        if one not in self._untold and len(self._untold) >= MAX_LINES:
            one = (status, OTHERS, "{}")
        if one in self._untold:
            self._untold[one] += 1
        else:
            self._untold[one] = 0
            _line(*one, 1)

    async def summed_up(self) -> None:
        """Tell each second what was counted, for as long as nobody cancels it."""
        try:
            while True:
                await anyio.sleep(EVERY_SECONDS)
                self._tell()
        finally:
            self._tell()

    def _tell(self) -> None:
        counted = {one: count for one, count in self._untold.items() if count}
        self._untold = dict.fromkeys(counted, 0)
        for one, count in counted.items():
            _line(*one, count)


def _line(status: int, address: str, told: str, count: int) -> None:
    fields = {"status": status, "client": address, **json.loads(told), "count": count}
    audit.info("refused", extra={"fields": fields})
