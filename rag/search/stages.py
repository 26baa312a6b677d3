"""What the stages of a search take: told with the answer, and as spans to whoever traces."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.trace import get_tracer

from rag.records import Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

_tracer = get_tracer("refdesk")


class Stages:
    """The stages of one search, in the order in which they ended."""

    def __init__(self) -> None:
        self._ended: list[Stage] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A stage, which ends with the block. Its span bears its name and nothing that is searched."""
        began = time.perf_counter()
        with _tracer.start_as_current_span(
            f"refdesk.{name}", record_exception=False, set_status_on_exception=False
        ):
            yield
        self._ended.append(Stage(name, time.perf_counter() - began))

    def ended(self) -> tuple[Stage, ...]:
        """Those that ended so far."""
        return tuple(self._ended)
