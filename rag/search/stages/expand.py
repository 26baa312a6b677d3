"""More of the source around each hit: the chunks beside it, or the section that it stands in.

What is added passes the gate like the hit itself: it is cut from the text that was read together with the
source's own record, in one version. Each excerpt is `source.text[start:end]`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from rag.answers import Excerpt
from rag.concurrency import concurrently
from rag.errors import BusyError, ConfigurationError
from rag.search.source import Span, between_words, centred

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.answers import Hit
    from rag.config.profiles import NeighborsStage, ParentStage
    from rag.corpus import Chunk, Heading
    from rag.search.recall import Query
    from rag.search.run import OpenStep, Run
    from rag.search.view import View
    from rag.store.reader import StoredSource

LACKING = "{} passages have no heading above them and are shown without their section."


@dataclass(frozen=True, slots=True)
class _Opened:
    """A source that may be read, all of it in one version."""

    view: View
    stored: StoredSource
    outline: tuple[Heading, ...]
    text: str


_Around: TypeAlias = Callable[[_Opened, "Sequence[Chunk]"], Awaitable["Mapping[Chunk, Span]"]]
"""What is to be shown around chunks of a source; chunks that share it have the same. Not all need one."""


async def with_neighbors(hits: Sequence[Hit], count: int, views: Mapping[str, View]) -> list[Hit]:
    """Each hit with `count` chunks before and after its own as one excerpt, which replaces earlier ones.

    Hits of a source between whose stretches no chunk lies become one: the best of them, with all the text.
    A hit whose source may not be read any more is dropped; where the source was replaced since it was
    found, the hit stays as it is. `views` are by the names of the collections.
    """

    async def stretches(source: _Opened, chunks: Sequence[Chunk]) -> Mapping[Chunk, Span]:
        wanted = united(Span(chunk.seq - count, chunk.seq + count + 1) for chunk in chunks)
        between = partial(source.view.table.between, source.stored, where=source.view.where)
        read = await concurrently([partial(between, seqs.start, seqs.end - 1) for seqs in wanted])
        return {chunk: Span(there[0].start, there[-1].end) for there in read for chunk in there}

    return await _expanded(hits, views, stretches)


async def in_sections(
    hits: Sequence[Hit], stage: ParentStage, views: Mapping[str, View]
) -> tuple[list[Hit], list[str]]:
    """Each hit with the section around its chunk as one excerpt, which replaces earlier ones; and warnings.

    Of a section longer than `max_chars`, so much is shown, with the chunk in its middle. Hits of a source
    whose excerpts overlap become one: the best of them, with all the text. A hit whose source may not be
    read any more is dropped; a hit stays as it is where there is no heading before its chunk, or where the
    source was replaced since it was found. `views` are by the names of the collections.

    Raises:
        ConfigurationError: a chunk has no heading before it, and `missing` is "error".
    """
    lacking: set[str] = set()

    async def sections(source: _Opened, chunks: Sequence[Chunk]) -> Mapping[Chunk, Span]:
        windows = {
            chunk: _window(source.text, chunk, whole, stage.max_chars)
            for chunk in chunks
            if (whole := section_around(chunk, source.outline, len(source.text)))
        }
        lacking.update(chunk.id for chunk in chunks if chunk not in windows)
        shown = united(windows.values())
        return {
            chunk: next(one for one in shown if one.start <= window.start < one.end)
            for chunk, window in windows.items()
        }

    expanded = await _expanded(hits, views, sections)
    if lacking and stage.missing == "error":
        first = next(hit.chunk.id for hit in hits if hit.chunk.id in lacking)
        raise ConfigurationError(
            f"{first} has no heading above it, so it has no section to show. Add headings to its "
            'source, or set missing = "warn" or "ignore" in the stage parent.'
        )
    return expanded, [LACKING.format(len(lacking))] if lacking and stage.missing == "warn" else []


def united(spans: Iterable[Span]) -> list[Span]:
    """The spans in their order, those that touch or overlap as one.

    Example: (8, 9), (0, 3), (2, 5), (5, 6) -> (0, 6), (8, 9).
    """
    whole: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if whole and span.start <= whole[-1].end:
            whole[-1] = Span(whole[-1].start, max(whole[-1].end, span.end))
        else:
            whole.append(span)
    return whole


def section_around(chunk: Chunk, outline: Sequence[Heading], length: int) -> Span | None:
    """From the last heading up to the chunk's start, to the next of its level or a higher behind the chunk.

    None where no heading stands before the chunk. `length` is the text's.
    Example: chunk (25, 30); headings of level 1 at 0, 2 at 20, 3 at 40, 2 at 60 -> (20, 60).
    """
    above = [heading for heading in outline if heading.start <= chunk.start]
    if not above:
        return None
    ends = (one.start for one in outline if one.start >= chunk.end and one.level <= above[-1].level)
    return Span(above[-1].start, next(ends, length))


def _window(text: str, chunk: Chunk, section: Span, max_chars: int) -> Span:
    """What is shown of a section: without the blanks at its end, and with the chunk in its middle."""
    whole = Span(section.start, chunk.end + len(text[chunk.end : section.end].rstrip()))
    return between_words(text, centred(whole, Span(chunk.start, chunk.end), max_chars), whole)


async def _expanded(hits: Sequence[Hit], views: Mapping[str, View], around: _Around) -> list[Hit]:
    """The hits with what is around them, in their order; each source is read once."""
    by_source: dict[tuple[str, str], list[Hit]] = {}
    for hit in hits:
        by_source.setdefault((hit.source.collection, hit.source.id), []).append(hit)
    calls = [
        partial(_expanded_of, views[collection], id_, theirs, around)
        for (collection, id_), theirs in by_source.items()
    ]
    kept = {hit.chunk.id: hit for group in await concurrently(calls) for hit in group}
    return [kept[hit.chunk.id] for hit in hits if hit.chunk.id in kept]


async def _expanded_of(view: View, source_id: str, hits: Sequence[Hit], around: _Around) -> list[Hit]:
    """The hits of one source; none if it may not be read now."""
    found = await view.table.text(source_id)
    if found is None or not view.admits(found[0]):
        return []
    source = _Opened(view, *found)
    chunks = [hit.chunk for hit in hits if source.text[hit.chunk.start : hit.chunk.end] == hit.chunk.text]
    try:
        return _joined(hits, await around(source, chunks), source.text)
    except BusyError:  # it was replaced meanwhile
        return list(hits)


def _joined(hits: Sequence[Hit], spans: Mapping[Chunk, Span], text: str) -> list[Hit]:
    """Each hit with the span of its chunk as its excerpt; of those with the same span, the first."""
    kept: list[Hit] = []
    shown: set[Span] = set()
    for hit in hits:
        span = spans.get(hit.chunk)
        if span is None:
            kept.append(hit)
        elif span not in shown:
            shown.add(span)
            excerpt = Excerpt(span.start, span.end, text[span.start : span.end])
            kept.append(replace(hit, excerpts=(excerpt,)))
    return kept


async def neighbors(
    hits: Sequence[Hit], stage: NeighborsStage, query: Query, _run: Run, _step: OpenStep
) -> list[Hit]:
    """The stage `neighbors`; see `with_neighbors`."""
    return await with_neighbors(hits, stage.count, query.views_by_collection)


async def parent(
    hits: Sequence[Hit], stage: ParentStage, query: Query, _run: Run, step: OpenStep
) -> list[Hit]:
    """The stage `parent`; see `in_sections`."""
    expanded, warnings = await in_sections(hits, stage, query.views_by_collection)
    step.warns(*warnings)
    return expanded
