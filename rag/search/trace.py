"""What the stages of a search did: told with the answer, and as spans to whoever traces."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opentelemetry.trace import get_tracer

from rag.answers import Preview, Stage, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rag.answers import Hit

PREVIEWS = 5  # hits shown of each stage
PREVIEW_CHARS = 200

_tracer = get_tracer("refdesk")


@dataclass(slots=True)
class Step:
    """A stage while it runs; who runs it adds what only they know."""

    stage: Stage
    detailed: bool

    def warns(self, *warnings: str, failed: bool = False) -> None:
        """Tell what a reader must know; a stage that failed changed nothing."""
        status = "failed" if failed else self.stage.status
        self.stage = replace(self.stage, status=status, warnings=(*self.stage.warnings, *warnings))

    def uses(self, usage: Usage) -> None:
        """Count what was asked of a model."""
        self.stage = replace(self.stage, usage=(self.stage.usage or Usage()) + usage)

    def made(self, count: int, *, of: int | None = None) -> None:
        """Tell how many queries or candidates there are now, and of how many queries they were made."""
        if self.detailed:
            self.stage = replace(self.stage, before=of, after=count)

    def left(self, hits: Sequence[Hit], *, of: int | None = None, beyond: Sequence[str] = ()) -> None:
        """Tell which hits were left of how many; `beyond` are ids of further ones, which follow them."""
        if self.detailed:
            ids = (*(hit.chunk.id for hit in hits), *beyond)
            preview = tuple(
                Preview(hit.chunk.id, hit.score, hit.text[:PREVIEW_CHARS]) for hit in hits[:PREVIEWS]
            )
            self.stage = replace(self.stage, before=of, after=len(ids), preview=preview, left=ids)


class Stages:
    """The stages of one search, in the order in which they ended; `detailed` for a trace."""

    def __init__(self, *, detailed: bool = False) -> None:
        self.detailed = detailed
        self._steps: list[Step] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[Step]:
        """A stage, which ends with the block. Its span bears its name and nothing that is searched."""
        step, began = Step(Stage(name, 0.0), self.detailed), time.perf_counter()
        with _tracer.start_as_current_span(
            f"refdesk.{name}", record_exception=False, set_status_on_exception=False
        ):
            yield step
        step.stage = replace(step.stage, seconds=time.perf_counter() - began)
        self._steps.append(step)

    @property
    def last_left(self) -> int:
        """How many hits the last stage left that told; 0 without details."""
        told = (step.stage for step in reversed(self._steps) if step.stage.after is not None)
        return next((len(stage.left) for stage in told), 0)

    def ended(self) -> tuple[Stage, ...]:
        """Those that ended so far."""
        return tuple(step.stage for step in self._steps)
