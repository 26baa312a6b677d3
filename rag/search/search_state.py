"""The state of one search, and its trace: for each step the time, the model usage and the remaining hits.

Each step is also an OpenTelemetry span with its name, status and counts, but no text of queries or documents.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from math import inf
from typing import TYPE_CHECKING, ParamSpec, TypeAlias

from opentelemetry.trace import get_tracer

from rag.answers import (
    Answer,
    Context,
    Excerpt,
    Hit,
    Listing,
    Preview,
    SearchRequest,
    Step,
    SubQuery,
    Trace,
    Usage,
)
from rag.corpus import Chunk, Principal
from rag.models.chat import Chat
from rag.models.embed import Embedders
from rag.models.rerank import Reranker
from rag.rank.fusion import copies_as_one, neighbours
from rag.report import counted
from rag.runtime import grouped
from rag.search.recall import Alarm
from rag.search.search_plan import JOIN_OVERSAMPLING, JUDGED, SearchPlan
from rag.search.view import View
from rag.store.read.spelling import Spelling

if TYPE_CHECKING:
    from opentelemetry.trace import Span as TelemetrySpan

PREVIEWS = 5  # hits shown of each step
PREVIEW_CHARS = 200

UNREAD = (
    "Some documents could not be searched, because a table or a retriever that the operator attached is "
    "failing. Try again later."
)

_tracer = get_tracer("refdesk")
log = logging.getLogger(__name__)

OnStepStart: TypeAlias = "Callable[[str], None]"
"""A program's own function that is called with the name of each step before it runs, in the event loop."""
OnSearchStart: TypeAlias = "Callable[[Principal, SearchRequest], None]"
"""A program's own function that is called before each search, in the event loop."""
OnStep: TypeAlias = "Callable[[Step], None]"
"""A program's own function that is called after each step of a search, in the event loop."""
OnSearch: TypeAlias = "Callable[[Principal, SearchRequest, Answer], None]"
"""A program's own function that is called after each search that has an answer, in the event loop."""
Hooked = ParamSpec("Hooked")


def call_hook(hook: Callable[Hooked, None], *arguments: Hooked.args, **named: Hooked.kwargs) -> None:
    """Call a program's hook. Exceptions are logged and don't end the search."""
    try:
        hook(*arguments, **named)
    except Exception:
        log.exception("The hook %s failed.", getattr(hook, "__qualname__", type(hook).__name__))


@dataclass(frozen=True, slots=True)
class Models:
    """The models that a search may call. A stage that needs a missing one is a configuration error."""

    embedders: Embedders
    chat: Chat | None = None
    reranker: Reranker | None = None


@dataclass(frozen=True, slots=True)
class SearchState:
    """One search: what is searched, how, and what its answer will report.

    A step that changes the `plan`, the `views` or the `queries` returns a new state. `broken` says that an
    attached table could not be opened. Text scans end at `scan_until`, by the monotonic clock.

    The report is mutable and shared by all states of a search: `steps`; `notes` for the reader of the answer;
    `left_out` counts passages that were dropped although they ranked within the limit, by reason; `listings`
    are for the trace and hold only chunks that passed the gate; `degraded` as in the answer, without failed
    stages; `spellings` has the other spellings that were searched for, by word of the question.
    """

    plan: SearchPlan
    views: tuple[View, ...]
    models: Models
    alarm: Alarm
    steps: StepRecorder
    broken: bool = False
    queries: tuple[SubQuery, ...] = ()
    scan_until: float = inf
    notes: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    listings: dict[str, tuple[Listing, ...]] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)
    spellings: dict[str, tuple[Spelling, ...]] = field(default_factory=dict)

    @property
    def foreign(self) -> frozenset[str]:
        """The collections whose documents aren't the desk's own: attached tables and retrievers."""
        return frozenset(view.name for view in self.views if view.collection.attached or view.table.retrieves)

    def for_side_search(self, plan: SearchPlan) -> SearchState:
        """The state for a side search by another plan, whose steps and notes are not reported."""
        return replace(
            self,
            plan=plan,
            steps=StepRecorder(),
            notes=[],
            left_out=Counter(),
            listings={},
            degraded=[],
            spellings={},
        )

    @property
    def is_late(self) -> bool:
        """Whether scans ran out of time, so that there may be matches that were not found."""
        return time.monotonic() > self.scan_until

    def note(self, notes: Iterable[str]) -> None:
        """Add notes for the reader of the answer."""
        self.notes.extend(notes)

    def count_left_out(self, reason: str, hits: Sequence[Hit], remaining: Sequence[Hit]) -> None:
        """Count the `hits` within the limit that don't remain. `reason` follows "5 passages"."""
        remaining_ids = {hit.chunk.id for hit in remaining}
        self.left_out[reason] += sum(hit.chunk.id not in remaining_ids for hit in hits[: self.plan.limit])

    def note_left_out(self) -> None:
        """Add one note on all passages that were left out, if any were."""
        parts = [
            f"{counted(number, 'passage')} {reason}" for reason, number in self.left_out.items() if number
        ]
        self.note([f"Left out: {'; '.join(parts)}."] if parts else [])

    @property
    def hits_to_check(self) -> int:
        """How many hits are usually enough to fill the plan's limit once adjacent ones are joined.

        At least as many as are judged (`JUDGED`): that must not depend on the limit.
        """
        return max(self.plan.limit, JUDGED) * (JOIN_OVERSAMPLING if self.plan.joins else 1)

    def takes_more_than(self, hits: Sequence[Hit]) -> bool:
        """Whether these hits, once copies and adjacent ones are one hit, are fewer than the limit."""
        plan = self.plan
        distinct = copies_as_one(hits) if plan.unites else hits
        if not plan.joins:
            return len(distinct) < min(plan.limit, len(hits))
        return neighbours(distinct, plan.limit, selective=plan.selects).looked_at == len(distinct)

    def with_copies_as_one(self, hits: list[Hit]) -> list[Hit]:
        """The hits with passages that several documents share as one, if the plan wants it."""
        distinct = copies_as_one(hits) if self.plan.unites else hits
        if len(distinct) < len(hits):
            with self.steps.step("copies") as step:
                step.record_hits(distinct, of=len(hits))
        return distinct

    def judged(self, hits: Sequence[Hit]) -> list[Hit]:
        """The first `JUDGED` hits, whatever the limit, with adjacent chunks as one."""
        if not self.plan.joins:
            return list(hits[:JUDGED])
        return [joined_hit(group) for group in neighbours(hits, JUDGED, selective=self.plan.selects).groups]

    def joined(self, hits: Sequence[Hit]) -> list[Hit]:
        """The hits up to the plan's limit, with adjacent chunks as one hit (`rag.rank.fusion.neighbours`).

        If joining changes anything, the trace gets a step `join`.
        """
        if not self.plan.joins or self.plan.mode == "exact":  # `rag.search.exact` joins what it finds
            return self.limited(hits)
        groups, looked_at = neighbours(hits, self.plan.limit, selective=self.plan.selects)
        joined = [joined_hit(group) for group in groups]
        if len(joined) < looked_at:  # otherwise nothing was joined
            looked_at_ids = {hit.chunk.id for hit in hits[:looked_at]}
            beyond = [id_ for id_ in self.steps.last_ids if id_ not in looked_at_ids]
            with self.steps.step("join") as step:
                step.record_hits(joined, of=len(self.steps.last_ids) or len(hits), beyond=beyond)
        return self.limited(joined)

    def limited(self, hits: Sequence[Hit]) -> list[Hit]:
        """The hits up to the plan's limit. If that drops any, the trace gets a step `limit`."""
        limit, before = self.plan.limit, len(self.steps.last_ids)
        if before > limit:
            with self.steps.step("limit") as step:
                step.record_hits(hits[:limit], of=before)
        return list(hits[:limit])

    def answer(self, hits: Sequence[Hit], context: Context | None) -> Answer:
        """The answer with these hits."""
        if self.broken or any(view.table.failed for view in self.views):
            self.note([UNREAD])  # without its name: the caller may not know of that collection
            self.degraded.append("collections")
        trace = Trace(self.queries, dict(self.listings)) if self.steps.detailed else None
        steps = self.steps.ended()
        # A failed embedding has noted already what is missing: the dense ranking, or similarities.
        failed = [step.name for step in steps if step.status == "failed" and step.name != "embed"]
        degraded = tuple(dict.fromkeys([*self.degraded, *failed]))
        spans = self.models.embedders.default.token_spans
        counted_hits = (
            replace(hit, tokens=len(spans(hit.text))) if hit.excerpts and hit.tokens is None else hit
            for hit in hits
        )
        notes, question = tuple(self.notes), self.plan.query
        return Answer(tuple(counted_hits), notes, context, steps, trace, degraded, question=question)


@dataclass(slots=True)
class OpenStep:
    """A step while it runs. `record` is its entry in the trace, `span` the one in telemetry."""

    record: Step
    detailed: bool
    span: TelemetrySpan

    def add_warnings(self, *warnings: str, failed: bool = False) -> None:
        """Add warnings for the reader. A step that `failed` changed nothing."""
        status = "failed" if failed else self.record.status
        self.record = replace(self.record, status=status, warnings=(*self.record.warnings, *warnings))

    def add_usage(self, usage: Usage) -> None:
        """Add the usage of a model."""
        self.record = replace(self.record, usage=(self.record.usage or Usage()) + usage)

    def record_count(self, count: int, *, of: int | None = None) -> None:
        """Record the number of queries or candidates after the step, and `of` how many before."""
        self._counts(count, of)
        if self.detailed:
            self.record = replace(self.record, before=of, after=count)

    def record_hits(self, hits: Sequence[Hit], *, of: int | None = None, beyond: Sequence[str] = ()) -> None:
        """Record the hits after the step, and `of` how many before. `beyond` are ids ranked below `hits`."""
        self._counts(len(hits), of)
        if self.detailed:
            ids = (*(hit.chunk.id for hit in hits), *beyond)
            preview = tuple(
                Preview(hit.chunk.id, hit.score, hit.text[:PREVIEW_CHARS]) for hit in hits[:PREVIEWS]
            )
            self.record = replace(self.record, before=of, after=len(ids), preview=preview, hit_ids=ids)

    def _counts(self, after: int, before: int | None) -> None:
        self.span.set_attribute("refdesk.after", after)
        if before is not None:
            self.span.set_attribute("refdesk.before", before)


class StepRecorder:
    """Records the steps of one search in the order in which they end; if `detailed`, with their hits."""

    def __init__(
        self,
        *,
        detailed: bool = False,
        on_start: OnStepStart | None = None,
        on_step: OnStep | None = None,
    ) -> None:
        self.detailed = detailed
        self._on_start = on_start
        self._on_step = on_step
        self._steps: list[OpenStep] = []

    @contextmanager
    def step(self, name: str) -> Iterator[OpenStep]:
        """A step that lasts as long as the block."""
        if self._on_start:
            call_hook(self._on_start, name)
        began = time.perf_counter()
        with _tracer.start_as_current_span(
            # Messages of exceptions can quote a query or a document, and telemetry leaves the machine.
            f"refdesk.{name}",
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            step = OpenStep(Step(name, 0.0), self.detailed, span)
            yield step  # without `finally`: a search that raises has no answer, and so no trace
            span.set_attribute("refdesk.status", step.record.status)
            span.set_attribute("refdesk.warnings", len(step.record.warnings))
        step.record = replace(step.record, seconds=time.perf_counter() - began)
        self._steps.append(step)
        if self._on_step:
            call_hook(self._on_step, step.record)

    @property
    def last_ids(self) -> tuple[str, ...]:
        """The hit ids after the last step that recorded any; empty without details."""
        recorded = (step.record for step in reversed(self._steps) if step.record.after is not None)
        return next((step.hit_ids for step in recorded), ())

    def ended(self) -> tuple[Step, ...]:
        """The records of the steps that have ended."""
        return tuple(step.record for step in self._steps)


def joined_hit(group: Sequence[Hit]) -> Hit:
    """Hits of adjacent chunks as one: the best, which comes first, with the text of all, without overlaps.

    Chunks with something else than white space in between stay separate excerpts.
    """
    best = group[0]
    if len(group) == 1:
        return best
    chunks = sorted((hit.chunk for hit in group), key=lambda chunk: chunk.seq)
    excerpts: list[Excerpt] = []
    for chunk in chunks:
        if excerpts and (text := _continued(excerpts[-1], chunk)) is not None:
            start = excerpts[-1].start
            excerpts[-1] = Excerpt(start, start + len(text), text)
        else:
            excerpts.append(Excerpt(chunk.start, chunk.end, chunk.text))
    counts = [chunk.tokens for chunk in chunks if chunk.tokens is not None]
    are_apart = all(before.end < after.start for before, after in pairwise(chunks))
    # Chunks that overlap share tokens. The white space between others adds none.
    is_sum = len(counts) == len(chunks) and are_apart
    joined = replace(
        best,
        similarity=max((hit.similarity for hit in group if hit.similarity is not None), default=None),
        excerpts=tuple(excerpts),
        around=tuple(chunks),
        tokens=sum(counts) if is_sum else None,
    )
    # Another edition has some of these passages, and others of its own in between.
    rows = map(joined_hit, rows_in_documents(copy for hit in group for copy in hit.copies))
    return replace(joined, copies=tuple(row for row in rows if row.text.split() == joined.text.split()))


def _continued(excerpt: Excerpt, chunk: Chunk) -> str | None:
    """The text of an excerpt and the chunk after it; None if the text between them is unknown."""
    if chunk.start <= excerpt.end:
        return excerpt.text + chunk.text[excerpt.end - chunk.start :]
    if chunk.gap is None or excerpt.end + len(chunk.gap) != chunk.start:
        return None
    return excerpt.text + chunk.gap + chunk.text


def rows_in_documents(hits: Iterable[Hit]) -> list[list[Hit]]:
    """The hits in rows of chunks that follow one another, in the order of their documents."""
    of_documents = grouped(((hit.source.collection, hit.source.id), hit) for hit in hits)
    rows: list[list[Hit]] = []
    for of_document in of_documents.values():
        in_order = enumerate(sorted(of_document, key=lambda hit: hit.chunk.seq))
        by_row = groupby(in_order, key=lambda place: place[1].chunk.seq - place[0])
        rows += [[hit for _, hit in row] for _, row in by_row]
    return rows
