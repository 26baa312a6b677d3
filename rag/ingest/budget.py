"""What a file may cost: CPU seconds, which its steps spend together, whatever process they run in.

Opening it, parsing it and cutting its text all draw on the same seconds. Time in which others compute doesn't
count, or a busy machine would refuse good files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from anyio import to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE = 10 if os.name == "posix" else 1
"""How much longer than its CPU seconds a step may take by the clock: what only waits uses none, and on a busy
machine a file gets a share of a processor. Windows limits no CPU time, so there the clock counts."""


@dataclass(slots=True)
class Budget:
    """The CPU seconds that a file may take, and those that are spent."""

    seconds: float
    spent: float = 0.0

    @property
    def left(self) -> float:
        """What its next step may take."""
        return max(0.0, self.seconds - self.spent)

    @property
    def patience(self) -> float:
        """The seconds by the clock after which its next step is ended."""
        return PATIENCE * self.left

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread, at the expense of the file. It is not ended when that is too much."""
        return await to_thread.run_sync(self._charged, function, args, kwargs)

    def _charged(self, function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> T:
        began = thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            self.spent += thread_time() - began
