"""The stages `neighbors` and `parent`: show the chunks around a hit, or the section that contains it.

Added text passes the same access check as the hit: it is read together with the source's own access record,
in one version. Each excerpt is `source.text[start:end]`. A hit keeps the chunks that its excerpt touches, so
that its citation covers what is shown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rag.answers import LISTED_OCCURRENCES, Excerpt, Hit
from rag.config.profiles import NeighborsStage, ParentStage
from rag.corpus import Chunk, Heading
from rag.errors import BusyError
from rag.runtime import concurrently
from rag.search.recall import Query
from rag.search.source_window import OpenSource, between_words, centered_window, open_source
from rag.search.view import View
from rag.text.plain_text import Span, with_indent

if TYPE_CHECKING:
    from rag.search.search_state import OpenStep, SearchState

NO_HEADING = "{} passages have no heading above them and are shown without their section."


class _Surroundings(NamedTuple):
    """The span to show around a chunk, and the chunks that it touches, in order."""

    span: Span
    chunks: tuple[Chunk, ...]


_Around: TypeAlias = Callable[[OpenSource, "Sequence[Chunk]"], Awaitable["Mapping[Chunk, _Surroundings]"]]
"""Returns the surroundings of chunks of a source. Joined ones are shared; a chunk may have none."""


async def with_neighbors(hits: Sequence[Hit], count: int, views: Mapping[str, View]) -> list[Hit]:
    """Each hit with `count` chunks before and after its own as one excerpt, which replaces earlier ones.

    Hits of a source whose neighborhoods touch become one: the best of them, with all the text. A hit whose
    source is no longer readable is dropped. A hit whose source was replaced since it was found stays as it
    is. `views` are by collection name.
    """

    async def neighborhoods(source: OpenSource, chunks: Sequence[Chunk]) -> Mapping[Chunk, _Surroundings]:
        ranges = merge_spans(Span(chunk.seq - count, chunk.seq + count + 1) for chunk in chunks)
        groups = await concurrently([partial(source.between, seqs.start, seqs.end - 1) for seqs in ranges])
        return {
            chunk: _Surroundings(Span(group[0].start, group[-1].end), group)
            for group in groups
            for chunk in group
        }

    return await _with_surroundings(hits, views, neighborhoods)


async def in_sections(
    hits: Sequence[Hit], stage: ParentStage, views: Mapping[str, View]
) -> tuple[list[Hit], list[str]]:
    """Each hit with the section around its chunk as one excerpt, which replaces earlier ones; and warnings.

    A section longer than `max_chars` is trimmed to a window centred on the chunk. Hits of a source whose
    excerpts overlap become one: the best of them, with all the text. A hit whose source is no longer readable
    is dropped. A hit without a heading before its chunk, or whose source was replaced since it was found,
    stays as it is. `views` are by collection name.
    """
    without_heading: set[str] = set()

    async def sections(source: OpenSource, chunks: Sequence[Chunk]) -> Mapping[Chunk, _Surroundings]:
        windows = {
            chunk: _window(source.text, chunk, section, stage.max_chars)
            for chunk in chunks
            if (section := section_around(chunk, source.outline, len(source.text)))
        }
        without_heading.update(chunk.id for chunk in chunks if chunk not in windows)
        spans = merge_spans(windows.values())
        touched = await concurrently([partial(source.touching, *span) for span in spans])
        surroundings = [_Surroundings(*pair) for pair in zip(spans, touched, strict=True)]
        around = {
            chunk: next(
                shared for shared in surroundings if shared.span.start <= window.start < shared.span.end
            )
            for chunk, window in windows.items()
        }
        # No chunk is visible if the source was denied since its text was read.
        return {chunk: surroundings for chunk, surroundings in around.items() if surroundings.chunks}

    expanded = await _with_surroundings(hits, views, sections)
    return expanded, [NO_HEADING.format(len(without_heading))] if without_heading else []


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, with those that touch or overlap joined.

    Example: (8, 9), (0, 3), (2, 5), (5, 6) -> (0, 6), (8, 9).
    """
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def section_around(chunk: Chunk, outline: Sequence[Heading], length: int) -> Span | None:
    """The section that a chunk begins in. It ends at the next heading of its level or higher after the chunk.

    None if no heading precedes the chunk. `length` is the length of the text.
    Example: chunk (25, 30); headings of level 1 at 0, 2 at 20, 3 at 40, 2 at 60 -> (20, 60).
    """
    above = [heading for heading in outline if heading.start <= chunk.start]
    if not above:
        return None
    ends = (
        heading.start
        for heading in outline
        if heading.start >= chunk.end and heading.level <= above[-1].level
    )
    return Span(above[-1].start, next(ends, length))


def _window(text: str, chunk: Chunk, section: Span, max_chars: int) -> Span:
    """The window on a section centred on the chunk, without white space at the section's end."""
    whole = Span(section.start, chunk.end + len(text[chunk.end : section.end].rstrip()))
    window = between_words(text, centered_window(whole, Span(chunk.start, chunk.end), max_chars), whole)
    return Span(max(whole.start, with_indent(text, window.start)), window.end)


async def _with_surroundings(hits: Sequence[Hit], views: Mapping[str, View], around: _Around) -> list[Hit]:
    """The hits with their surroundings, in their order. Each source is read once."""
    by_source: dict[tuple[str, str], list[Hit]] = {}
    for hit in hits:
        by_source.setdefault((hit.source.collection, hit.source.id), []).append(hit)
    calls = [
        partial(_source_with_surroundings, views[collection], id_, of_source, around)
        for (collection, id_), of_source in by_source.items()
    ]
    expanded = {hit.chunk.id: hit for group in await concurrently(calls) for hit in group}
    return [expanded[hit.chunk.id] for hit in hits if hit.chunk.id in expanded]


async def _source_with_surroundings(
    view: View, source_id: str, hits: Sequence[Hit], around: _Around
) -> list[Hit]:
    """The hits of one source with their surroundings; none if it is not readable now."""
    source = await open_source(view, source_id)
    if source is None:
        return []
    # The source may have been replaced since the search. A chunk whose text is no longer at its position
    # belongs to the former version, and gets no surroundings from this one.
    chunks = [hit.chunk for hit in hits if source.text[hit.chunk.start : hit.chunk.end] == hit.chunk.text]
    try:
        return _join(hits, await around(source, chunks), source.text)
    except BusyError:  # it was replaced since its text was read
        return list(hits)


def _join(hits: Sequence[Hit], around: Mapping[Chunk, _Surroundings], text: str) -> list[Hit]:
    """Each hit with its surroundings as the excerpt; hits that share these become the first of them."""
    expanded: list[Hit] = []
    places: dict[Span, int] = {}
    for hit in hits:
        surroundings = around.get(hit.chunk)
        if surroundings is None:
            expanded.append(hit)
        elif (index := places.get(surroundings.span)) is not None:
            expanded[index] = _with_matches(expanded[index], hit)
        else:
            span, chunks = surroundings
            places[span] = len(expanded)
            excerpt = Excerpt(span.start, span.end, text[span.start : span.end])
            expanded.append(replace(hit, excerpts=(excerpt,), around=chunks))
    return expanded


def _with_matches(first: Hit, second: Hit) -> Hit:
    """The first hit with the matches of mode exact in both."""
    occurrences = sorted((*first.occurrences, *second.occurrences), key=lambda match: match.start)
    return replace(
        first,
        occurrences=tuple(occurrences[:LISTED_OCCURRENCES]),
        occurrence_count=first.occurrence_count + second.occurrence_count,
    )


async def neighbors(
    hits: Sequence[Hit], stage: NeighborsStage, query: Query, _run: SearchState, _step: OpenStep
) -> list[Hit]:
    """The stage `neighbors`; see `with_neighbors`."""
    return await with_neighbors(hits, stage.count, query.views_by_collection)


async def parent(
    hits: Sequence[Hit], stage: ParentStage, query: Query, _run: SearchState, step: OpenStep
) -> list[Hit]:
    """The stage `parent`; see `in_sections`."""
    expanded, warnings = await in_sections(hits, stage, query.views_by_collection)
    step.add_warnings(*warnings)
    return expanded
