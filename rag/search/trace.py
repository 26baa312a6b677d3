"""The trace of a search: what each step took, used and left. Each step is an OpenTelemetry span as well."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opentelemetry.trace import get_tracer

from rag.answers import Listing, Preview, Stage, Usage
from rag.search.recall import shares_of_best

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rag.answers import Hit
    from rag.search.recall import Lists

PREVIEWS = 5  # hits shown of each step
PREVIEW_CHARS = 200

_tracer = get_tracer("refdesk")


@dataclass(slots=True)
class OpenStep:
    """A step while it runs. `record` is what the trace will hold of it."""

    record: Stage
    detailed: bool

    def warns(self, *warnings: str, failed: bool = False) -> None:
        """Add warnings for the reader. A step that `failed` changed nothing."""
        status = "failed" if failed else self.record.status
        self.record = replace(self.record, status=status, warnings=(*self.record.warnings, *warnings))

    def uses(self, usage: Usage) -> None:
        """Add what a model was asked."""
        self.record = replace(self.record, usage=(self.record.usage or Usage()) + usage)

    def made(self, count: int, *, of: int | None = None) -> None:
        """Record how many queries or candidates there are now, and from how many queries."""
        if self.detailed:
            self.record = replace(self.record, before=of, after=count)

    def left(self, hits: Sequence[Hit], *, of: int | None = None, beyond: Sequence[str] = ()) -> None:
        """Record which of how many hits are left. `beyond` are the ids of those ranked below them."""
        if self.detailed:
            ids = (*(hit.chunk.id for hit in hits), *beyond)
            preview = tuple(
                Preview(hit.chunk.id, hit.score, hit.text[:PREVIEW_CHARS]) for hit in hits[:PREVIEWS]
            )
            self.record = replace(self.record, before=of, after=len(ids), preview=preview, left=ids)


class Steps:
    """The steps of one search, in the order in which they ended; `detailed` for a trace."""

    def __init__(self, *, detailed: bool = False) -> None:
        self.detailed = detailed
        self._steps: list[OpenStep] = []

    @contextmanager
    def step(self, name: str) -> Iterator[OpenStep]:
        """A step that ends with the block. Its span holds its name, and nothing of query or documents."""
        step, began = OpenStep(Stage(name, 0.0), self.detailed), time.perf_counter()
        with _tracer.start_as_current_span(
            f"refdesk.{name}", record_exception=False, set_status_on_exception=False
        ):
            yield step
        step.record = replace(step.record, seconds=time.perf_counter() - began)
        self._steps.append(step)

    @property
    def last_left(self) -> int:
        """How many hits the last step left that recorded it; 0 without details."""
        recorded = (step.record for step in reversed(self._steps) if step.record.after is not None)
        return next((len(stage.left) for stage in recorded), 0)

    def ended(self) -> tuple[Stage, ...]:
        """The steps that have ended."""
        return tuple(step.record for step in self._steps)


def listings(found: Sequence[Lists], ids: Iterable[str]) -> Mapping[str, tuple[Listing, ...]]:
    """The rank and score of these chunks in each query's lists, as if the lists held no others."""
    had: dict[str, tuple[Listing, ...]] = dict.fromkeys(ids, ())
    for query, lists in enumerate(found):
        dense = {id_: score for id_, score in lists.dense_scores.items() if id_ in had}
        sparse = {id_: score for id_, score in lists.sparse_scores.items() if id_ in had}
        for rank, (id_, score) in enumerate(dense.items(), 1):
            had[id_] = (*had[id_], Listing(query, "dense", rank, score))
        for rank, (id_, score) in enumerate(shares_of_best(sparse).items(), 1):
            had[id_] = (*had[id_], Listing(query, "sparse", rank, score))
    return had
