"""How much is shown of each hit: the sentences that answer, the passage, or the section around it.

A request that sets `detail` replaces the display stages of its profile (`neighbors`, `parent`, `compress`).

Text around a hit passes the same access check as the hit: it is read together with the source's own access
record, in one version. Each excerpt is `source.text[start:end]`, and a hit keeps the chunks that it touches,
so that its citation covers what is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise, takewhile
from typing import NamedTuple, TypeAlias

import anyio
from anyio import to_thread

from rag.answers import LISTED_OCCURRENCES, Excerpt, Hit
from rag.config.profiles import CompressStage, NeighborsStage, ParentStage
from rag.corpus import Chunk, Heading, Language
from rag.errors import BusyError, ProviderError
from rag.models.breaker import note_failure
from rag.models.embed import Embedders
from rag.rank.excerpts import excerpts, shared_rarity, statements
from rag.runtime import concurrently, grouped
from rag.search import source_window
from rag.search.query_vectors import is_remote
from rag.search.recall import Query
from rag.search.search_state import OpenStep, SearchState
from rag.search.view import View
from rag.store.read.word_analysis import MAX_TERMS, query_terms, stop_languages, with_name_forms
from rag.text.plain_text import TABLE_RULE, Span, sentences, with_indent

NO_HEADING = "{} passages have no heading above them and are shown without their section."


class _Surroundings(NamedTuple):
    """The span to show around a chunk, and the chunks that it touches, in order."""

    span: Span
    chunks: tuple[Chunk, ...]


_Around: TypeAlias = Callable[
    [source_window.OpenSource, "Sequence[Chunk]"], Awaitable["Mapping[Chunk, _Surroundings]"]
]
"""Returns the surroundings of chunks of a source. Joined ones are shared; a chunk may have none."""


async def with_neighbors(hits: Sequence[Hit], count: int, views: Mapping[str, View]) -> list[Hit]:
    """Each hit with `count` chunks before and after its own as one excerpt, which replaces earlier ones.

    Hits of a source whose neighborhoods touch become one: the best of them, with all the text. A hit whose
    source is no longer readable is dropped. A hit whose source was replaced since it was found stays as it
    is. `views` are by collection name.
    """

    async def neighborhoods(
        source: source_window.OpenSource, chunks: Sequence[Chunk]
    ) -> Mapping[Chunk, _Surroundings]:
        ranges = source_window.merge_spans(Span(chunk.seq - count, chunk.seq + count + 1) for chunk in chunks)
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

    As `with_neighbors`, but a section longer than `max_chars` is trimmed to a window centred on the chunk,
    and a hit without a heading before its chunk stays as it is.
    """
    without_heading: set[str] = set()

    async def sections(
        source: source_window.OpenSource, chunks: Sequence[Chunk]
    ) -> Mapping[Chunk, _Surroundings]:
        # Windows of one section may overlap: what touches becomes one span, and one hit.
        windows = {
            chunk: _window(source.text, chunk, section, stage.max_chars)
            for chunk in chunks
            if (section := section_around(chunk, source.outline, len(source.text)))
        }
        without_heading.update(chunk.id for chunk in chunks if chunk not in windows)
        spans = source_window.merge_spans(windows.values())
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


def section_around(chunk: Chunk, outline: Sequence[Heading], length: int) -> Span | None:
    """The section that a chunk begins in. It ends at the next heading of its level or higher after the chunk.

    None if no heading precedes the chunk. `length` is the length of the text.
    Example: chunk (25, 30); headings of level 1 at 0, 2 at 20, 3 at 40, 2 at 60 -> (20, 60).
    """
    above: list[Heading] = []
    for heading in takewhile(lambda entry: entry.start <= chunk.start, outline):
        while above and not heading.title and above[-1].level >= heading.level:
            above.pop()
        above += [heading] if heading.title else []
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
    window = source_window.between_words(
        text, source_window.centered_window(whole, Span(chunk.start, chunk.end), max_chars), whole
    )
    return Span(max(whole.start, with_indent(text, window.start)), window.end)


async def _with_surroundings(hits: Sequence[Hit], views: Mapping[str, View], around: _Around) -> list[Hit]:
    """The hits with their surroundings, in their order. Each source is read once."""
    by_source = grouped(((hit.source.collection, hit.source.id), hit) for hit in hits)
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
    source = await source_window.open_source(view, source_id)
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


REMOTE_SECONDS = 10.0  # for a remote model: somebody waits for the answer
UNLIKE = -1.0  # a similarity at which no sentence stays
FAILED = "The passages were not compressed ({})."
SOME_FAILED = "Some passages were not compressed ({})."

log = logging.getLogger(__name__)


async def compress_hits(
    hits: Sequence[Hit], query: Query, embedders: Embedders
) -> tuple[list[Hit], list[str]]:
    """The hits with the answering sentences as excerpts, without hits that have none; and why models failed.

    Sentences come from the shown parts of a hit. A sentence answers if it contains a word of the query other
    than a stop word, or if it is similar to the query by the model of its collection (`excerpts.ALIKE`).
    Hits of a model that fails stay whole.
    """
    models = {view.name: comparing_model(query, view) for view in query.views}
    by_model = grouped((models[hit.source.collection], hit) for hit in hits)
    calls = [
        partial(similarities_by, name, _all_sentences(theirs), query, embedders)
        for name, theirs in by_model.items()
    ]
    similarities = dict(zip(by_model, await concurrently(calls), strict=True))
    languages = {view.name: stop_languages(view.collection) for view in query.views}
    answering_hits: list[Hit] = []
    for hit in hits:
        theirs = similarities[models[hit.source.collection]]
        if isinstance(theirs, str):
            answering_hits.append(hit)
            continue
        terms = query_terms(query.text, languages[hit.source.collection])
        answering = [excerpt for part in shown_parts(hit) for excerpt in _answering(part, terms, theirs)]
        if answering:
            answering_hits.append(replace(hit, excerpts=tuple(answering), tokens=None))
    return answering_hits, [cause for cause in similarities.values() if isinstance(cause, str)]


def comparing_model(query: Query, view: View) -> str | None:
    """The embedder that can compare sentences of a view with the query; None if none can."""
    meaning = query.meaning_in(view)
    return view.collection.embedder_name if meaning and not meaning.is_from_request else None


def shown_parts(hit: Hit) -> tuple[Excerpt, ...]:
    """The excerpts of a hit, or its chunk as one."""
    return hit.excerpts or (Excerpt(hit.chunk.start, hit.chunk.end, hit.chunk.text),)


async def similarities_by(
    model: str | None, texts: Iterable[str], query: Query, embedders: Embedders
) -> Mapping[str, float] | str:
    """The similarity of each text to the query, or why the model failed; `UNLIKE` for all without a model."""
    unique = list(dict.fromkeys(texts))
    if model is None or not unique:
        return dict.fromkeys(unique, UNLIKE)
    embedder = embedders.opened[model]
    try:
        with anyio.fail_after(REMOTE_SECONDS if is_remote(embedder) else None):
            vectors = await embedder.embed(unique, "document")
    except TimeoutError:
        return f"no answer within {REMOTE_SECONDS:g} seconds"
    except ProviderError as error:
        note_failure(log, error)
        return error.for_caller.rstrip(".")
    return dict(zip(unique, query.meanings[model].similarities(vectors).tolist(), strict=True))


def _all_sentences(hits: Iterable[Hit]) -> list[str]:
    return [sentence for hit in hits for part in shown_parts(hit) for sentence in _sentences(part.text)]


def _sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def _answering(part: Excerpt, terms: Sequence[str], similarities: Mapping[str, float]) -> list[Excerpt]:
    spans = excerpts(part.text, terms, [similarities[sentence] for sentence in _sentences(part.text)])
    return [part_of(part, start, end) for start, end in spans]


def part_of(excerpt: Excerpt, start: int, end: int) -> Excerpt:
    """`excerpt.text[start:end]` as an excerpt, with the indentation of its first line."""
    start = with_indent(excerpt.text, start)
    return Excerpt(excerpt.start + start, excerpt.start + end, excerpt.text[start:end])


async def compress(
    hits: Sequence[Hit], stage: CompressStage, query: Query, state: SearchState, step: OpenStep
) -> list[Hit]:
    """The stage `compress`; see `compress_hits`. A warning says which model failed."""
    answering, causes = await compress_hits(hits, query, state.models.embedders)
    unchanged = answering == list(hits)  # hits of other models may be compressed although one failed
    for cause in dict.fromkeys(causes):
        step.add_warnings((FAILED if unchanged else SOME_FAILED).format(cause), failed=unchanged)
    if causes:
        state.degraded.append(stage.stage)
    return answering


MAX_SNIPPET_CHARS = 400  # longer sentences are code, tables and lists
NO_MEANING = (
    "Some snippets are only the first sentences of their passages: they share no word with the query, and "
    "the embedding model failed ({})."
)


async def with_detail(hits: Sequence[Hit], query: Query, state: SearchState) -> list[Hit]:
    """The hits with the excerpts of the plan's `detail`. Hits whose sections overlap become one.

    Raises:
        BusyError, StoreError: a section couldn't be read.
    """
    if not hits:
        return []
    with state.steps.step(state.plan.detail) as step:
        if state.plan.detail == "section":
            detailed, warnings = await in_sections(
                hits, ParentStage(stage="parent"), query.views_by_collection
            )
        else:
            detailed, warnings = await with_snippets(hits, query, state.models.embedders)
        step.add_warnings(*warnings, failed=state.plan.detail == "snippet" and bool(warnings))
        step.record_hits(detailed, of=len(hits))
    state.note(warnings)
    return detailed


async def with_snippets(
    hits: Sequence[Hit], query: Query, embedders: Embedders
) -> tuple[list[Hit], list[str]]:
    """Each hit with its best answering sentence as the excerpt; and warnings.

    That is the sentence with the rarest words of the query; a row of a table has the words of its header,
    too. For hits without a word of the query, the embedder of their collection compares sentences. If none
    can, it is the first sentence.
    """
    views = query.views_by_collection
    # The model is asked only for the others.
    parts, best = await to_thread.run_sync(_all_by_words, hits, query)
    wordless = grouped(
        (comparing_model(query, views[hit.source.collection]), hit.chunk.id)
        for hit in hits
        if hit.chunk.id not in best and len(parts[hit.chunk.id]) > 1
    )
    calls = [
        partial(_by_meaning, model, {id_: parts[id_] for id_ in ids}, query, embedders)
        for model, ids in wordless.items()
    ]
    warnings = []
    for by_meaning in await concurrently(calls):
        if isinstance(by_meaning, str):
            warnings.append(NO_MEANING.format(by_meaning))
        else:
            best |= by_meaning
    snippets = {hit.chunk.id: best.get(hit.chunk.id) or _first(parts[hit.chunk.id], hit) for hit in hits}
    return [replace(hit, excerpts=(snippets[hit.chunk.id],)) for hit in hits], warnings


class Statement(NamedTuple):
    """A sentence; or a row of a table with its header (see `Hit.header`)."""

    part: Excerpt
    header: str = ""

    @property
    def text(self) -> str:
        """The text to compare with the query."""
        return f"{self.header}\n{self.part.text}" if self.header else self.part.text


def _all_by_words(hits: Sequence[Hit], query: Query) -> tuple[dict[str, list[Statement]], dict[str, Excerpt]]:
    """The parts of each hit, by its id; and the best part of each hit that shares words with the query."""
    views = query.views_by_collection
    parts = {hit.chunk.id: _statements(hit) for hit in hits}
    by_words = {
        hit.chunk.id: _by_words(
            parts[hit.chunk.id], query.text, stop_languages(views[hit.source.collection].collection)
        )
        for hit in hits
    }
    return parts, {id_: part for id_, part in by_words.items() if part}


def _statements(hit: Hit) -> list[Statement]:
    parts = [part_of(part, start, end) for part in shown_parts(hit) for start, end in statements(part.text)]
    by_table = groupby(parts, key=lambda part: part.text.rpartition("\n")[2].startswith("|"))
    statements_: list[Statement] = []
    for is_table, group in by_table:
        statements_ += _of_table([*group], hit) if is_table else map(Statement, group)
    return statements_


def _of_table(rows: Sequence[Excerpt], hit: Hit) -> list[Statement]:
    """The rows of tables, each with the introduction and the header of its table."""
    of_rows: list[Statement] = []
    introduction: list[str] = []
    for row, following in pairwise([*rows, None]):
        is_header = following is not None and TABLE_RULE.fullmatch(following.text)
        if row and is_header:
            introduction = row.text.split("\n")[:-1]
        elif row and not TABLE_RULE.fullmatch(row.text):
            head = replace(hit, excerpts=(row,)).header
            lines = [line for line in introduction if line and line not in head]
            of_rows.append(Statement(row, "\n".join([*lines, head] if head else lines)))
    return of_rows or [Statement(row) for row in rows[:1]]


def _first(parts: Sequence[Statement], hit: Hit) -> Excerpt:
    """The first of the parts; for a hit of white space only, its shown part."""
    return _short_excerpt(parts[0].part if parts else shown_parts(hit)[0], [])


def _by_words(parts: Sequence[Statement], query: str, languages: Sequence[Language]) -> Excerpt | None:
    """The part with the rarest words of the query; None if no part has any.

    Ties go to the part with most words of its own: rows of a table share the words of their header.
    """
    terms = with_name_forms(" ".join(query_terms(query, languages)[:MAX_TERMS])).split()
    scores = shared_rarity([with_name_forms(part.text) for part in parts], terms)
    if not any(scores):
        return None
    highest = max(scores)
    best = [part.part for part, score in zip(parts, scores, strict=True) if score == highest]
    own = shared_rarity([with_name_forms(part.text) for part in best], terms)
    return _short_excerpt(best[own.index(max(own))], terms)


async def _by_meaning(
    model: str | None, parts: Mapping[str, Sequence[Statement]], query: Query, embedders: Embedders
) -> dict[str, Excerpt] | str:
    """The part of each hit that is most similar to the query, by hit id; or why the model failed.

    Empty without a model, on which the reply has another note.
    """
    if model is None:
        return {}
    texts = [part.text for of_hit in parts.values() for part in of_hit]
    similarities = await similarities_by(model, texts, query, embedders)
    if isinstance(similarities, str):
        return similarities
    return {
        id_: _short_excerpt(max(of_hit, key=lambda part: similarities[part.text]).part, [])
        for id_, of_hit in parts.items()
    }


def _short_excerpt(part: Excerpt, terms: Sequence[str]) -> Excerpt:
    """A part that is too long, cut to a window around the line with most words of the query."""
    if len(part.text) <= MAX_SNIPPET_CHARS:
        return part
    lines = part.text.splitlines(keepends=True)
    scores = shared_rarity(lines, terms)
    at = scores.index(max(scores))  # the first line if none has a word of the query
    start = sum(map(len, lines[:at]))
    whole = Span(0, len(part.text))
    line = Span(start, min(start + len(lines[at].rstrip()), start + MAX_SNIPPET_CHARS))
    start, end = source_window.between_words(
        part.text, source_window.centered_window(whole, line, MAX_SNIPPET_CHARS), whole
    )
    return part_of(part, start, end)
