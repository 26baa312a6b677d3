"""Scans the texts of sources for a needle, with RE2, so that every pattern takes linear time.

It uses no index: an index of parts of words gets slower the more often they occur. Only texts with a readable
chunk are scanned, so the time of a scan doesn't depend on documents that the caller can't read.

A caller's regular expression sees a limited window of a text at once (`WINDOW`), so each step is short,
whatever the pattern, and the deadline can be kept.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from anyio import to_thread

from rag.corpus import Chunk
from rag.errors import InvalidRequestError
from rag.filters.needles import EMPTY, INVALID, Needle
from rag.runtime import grouped
from rag.store.read.schema import one_of, section_of_row
from rag.text.plain_text import Span

if TYPE_CHECKING:
    import numpy.typing as npt

    from rag.store.read.collection_reader import CollectionReader

NAMED = 2_000  # ids in a predicate; the engine compares more of them slowly
ROWS, AT_ONCE = 512, 2  # texts in a batch; batches that one search scans at once
WINDOW = 16_384  # bytes or characters that a regular expression sees at once
OVERLAP = 4_096  # of them in the next window, too: longer matches may be missed
LITERAL_BYTES = 8 << 20  # scanned between two looks at the clock: 20 ms
SCANNED = ["id", "title", "date", "text"]
GRACE_SECONDS = 0.5  # after the deadline
STEP_SECONDS = 0.01  # of a regular expression: the next step has twice as many windows, or half as many
MARKS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Noncharacters, which texts should not have. Two that a text lacks mark its matches."""


@dataclass(frozen=True, slots=True)
class MatchedSource:
    """A source whose text has a match. `titled` says whether its title matches, too.

    `generation` and `revision` are those of its first chunk, which the engine found.
    """

    id: str
    generation: str
    revision: int
    titled: bool
    date: datetime | None


@dataclass(slots=True)
class _Pace:
    """The number of windows to match in one step."""

    windows: int = 1

    def took(self, seconds: float) -> None:
        self.windows = self.windows * 2 if seconds < STEP_SECONDS else max(1, self.windows // 2)


def check_syntax(needle: Needle) -> None:
    """Check a regular expression as RE2 does.

    Raises:
        InvalidRequestError: its syntax is not valid, or it matches an empty text.
    """
    try:
        matches_nothing = pc.match_substring_regex(pa.array([""]), needle.pattern)[0].as_py()
    except pa.ArrowInvalid as error:
        raise InvalidRequestError(INVALID) from error
    if matches_nothing:
        raise InvalidRequestError(EMPTY)


async def matched_sources(
    reader: CollectionReader, readable: str, needle: Needle, until: float, *, of_chunks: bool = False
) -> list[MatchedSource]:
    """The sources with a match; at `until`, on the monotonic clock, those that were found so far.

    Only texts of sources with a `readable` chunk are read. Unless `of_chunks`, that predicate holds for all
    chunks of a source or for none.
    """
    columns = ["source_id", "generation", "revision"]
    rows = await reader.chunk_rows(
        lambda query: query.where(readable if of_chunks else f"(seq = 0) AND {readable}").select(columns)
    )
    firsts = {row["source_id"]: row for row in rows.to_pylist()}
    scan = _Scan(firsts, needle, until, reader.scans)
    predicates = _predicates(sorted(firsts), await reader.source_count())
    try:
        # A scan keeps the deadline itself; this bounds the wait for a slow disk.
        with anyio.move_on_after(max(0.0, until - time.monotonic()) + GRACE_SECONDS):
            for where in predicates:
                await _scan_sources(reader, where, scan)
                if scan.stopped:
                    break
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
    return list(scan.matches.values())


async def _scan_sources(reader: CollectionReader, where: str, scan: _Scan) -> None:
    """Scan the sources that satisfy a predicate. The engine reads the next ones meanwhile."""
    async with (
        aclosing(reader.source_batches(where, SCANNED, ROWS)) as batches,
        anyio.create_task_group() as tasks,
    ):
        async for batch in batches:
            await scan.room.acquire()
            if scan.stopped:
                break
            tasks.start_soon(scan.examine, batch)


def _predicates(ids: Sequence[str], sources: int) -> list[str]:
    """Predicates that select these ids, `NAMED` at a time; a single one for all if these are most sources."""
    if len(ids) * 2 > sources:
        return ["true"]
    return [one_of("id", ids[first : first + NAMED]) for first in range(0, len(ids), NAMED)]


@dataclass(slots=True)
class _Scan:
    """The state of a scan. `firsts` has the first chunk of each source that may be scanned, by source id."""

    firsts: Mapping[str, Mapping[str, Any]]
    needle: Needle
    until: float
    limiter: anyio.CapacityLimiter
    room: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(AT_ONCE))
    pace: _Pace = field(default_factory=_Pace)
    matches: dict[str, MatchedSource] = field(default_factory=dict)
    stopped: bool = False

    async def examine(self, batch: pa.RecordBatch) -> None:
        """Scan a batch in a thread."""
        scan = partial(_matched_sources, batch, self.firsts, self.needle, self.until, self.pace)
        matches, whole = await to_thread.run_sync(scan, limiter=self.limiter)
        self.matches |= {source.id: source for source in matches}
        self.stopped = self.stopped or not whole
        self.room.release()


def _matched_sources(
    batch: pa.RecordBatch, firsts: Mapping[str, Mapping[str, Any]], needle: Needle, until: float, pace: _Pace
) -> tuple[list[MatchedSource], bool]:
    may = [id_ in firsts for id_ in batch["id"].to_pylist()]
    if not all(may):  # filtering copies the texts
        batch = batch.filter(pa.array(may, pa.bool_()))
    texts = batch["text"]
    steps = _literal_steps(texts, needle) if needle.words else _regex_steps(texts, needle, pace)
    has_match = np.zeros(len(texts), dtype=np.bool_)
    whole = True
    for rows, matched in steps:
        np.logical_or.at(has_match, rows, matched)
        if time.monotonic() > until:
            whole = False
            break
    chosen = batch.drop_columns(["text"]).filter(pa.array(has_match))
    titled = _matched(chosen["title"], needle).tolist()
    ids = cast("list[str]", chosen["id"].to_pylist())
    values = zip(ids, titled, chosen["date"].to_pylist(), strict=True)
    return [
        MatchedSource(id_, firsts[id_]["generation"], firsts[id_]["revision"], has_title, date)
        for id_, has_title, date in values
    ], whole


def match_any(texts: Sequence[str], needle: Needle) -> list[bool]:
    """Whether each of some short texts has a match."""
    return cast("list[bool]", _matched(pa.array(texts, pa.string()), needle).tolist())


def _literal_steps(texts: Any, needle: Needle) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 Arrow's arrays
    """Yields positions of texts, and whether each has a match."""
    rows = max(1, len(texts) * LITERAL_BYTES // max(1, texts.nbytes))
    for first in range(0, len(texts), rows):
        part = texts.slice(first, rows)
        yield np.arange(first, first + len(part)), _matched(part, needle)


def _regex_steps(texts: Any, needle: Needle, pace: _Pace) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 the same
    """The same, window by window."""
    sizes = pc.binary_length(texts).to_numpy()
    binary = texts.cast(pa.large_binary())
    for start in range(0, max(1, int(sizes.max(initial=0))), WINDOW):
        rows = np.flatnonzero(sizes > start)
        while len(rows):
            now, rows = rows[: pace.windows], rows[pace.windows :]
            cut = pc.binary_slice(binary.take(pa.array(now)), start, start + WINDOW + OVERLAP)
            # Windows may begin inside a character: the bytes of a cut one match nothing.
            windows = pa.Array.from_buffers(pa.large_string(), len(cut), cut.buffers())
            began = time.monotonic()
            yield now, _matched(windows, needle)
            pace.took(time.monotonic() - began)


def _matched(texts: Any, needle: Needle) -> npt.NDArray[np.bool_]:  # noqa: ANN401 Arrow's arrays
    mask = cast("Any", pc.match_substring_regex(texts, needle.core)).to_numpy(zero_copy_only=False)
    if needle.core != needle.pattern and mask.any():
        candidates = texts.filter(pa.array(mask))
        mask[mask] = pc.match_substring_regex(candidates, needle.pattern).to_numpy(zero_copy_only=False)
    return cast("npt.NDArray[np.bool_]", mask)


def spans(text: str, needle: Needle, limit: int, until: float) -> list[Span]:
    """The first `limit` non-empty matches in a text, in order; fewer if the deadline passes."""
    find = needle.spans if needle.words else partial(_regex_spans, needle)
    matches: list[Span] = []
    at = 0
    while at < len(text) and len(matches) < limit and time.monotonic() < until:
        # A window begins with a line, so that ^ and word boundaries match there as in the whole text.
        begin = max(text.rfind("\n", 0, at) + 1, at - OVERLAP)
        end = min(len(text), at + WINDOW + OVERLAP)
        last = len(text) if end == len(text) else at + WINDOW
        in_window = (Span(begin + span.start, begin + span.end) for span in find(text[begin:end]))
        inside = [span for span in in_window if at <= span.start < last]
        matches += inside
        at = max(last, inside[-1].end if inside else 0)
    return matches[:limit]


def _regex_spans(needle: Needle, text: str) -> Iterator[Span]:
    """The matches in a window, found by one RE2 call that puts marks around all of them."""
    first, last = [mark for mark in MARKS if mark not in text][:2]
    marked = pc.replace_substring_regex(
        pa.array([text], pa.large_string()), needle.pattern, f"{first}\\0{last}"
    )[0].as_py()
    before, *pieces = marked.split(first)
    at = len(before)
    for part in pieces:
        match, _, after = part.partition(last)
        if match:
            yield Span(at, at + len(match))
        at += len(match) + len(after)


TEXTS = 8  # in memory at once
_PLACE = ["id", "source_id", "generation", "seq", "start", "end", "tokens", "page", "section", "depth"]

Places: TypeAlias = "Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]"
"""The rows of chunks without their texts, in order, by the id and the generation of their sources."""


async def source_texts(reader: CollectionReader, ids: Iterable[str]) -> AsyncIterator[tuple[str, str, str]]:
    """The id, generation and text of each of these sources, in no order. It checks no rights."""
    columns = ["id", "generation", "text"]
    async with aclosing(reader.source_batches(one_of("id", ids), columns, TEXTS)) as batches:
        async for batch in batches:
            for row in batch.to_pylist():
                yield row["id"], row["generation"], row["text"]


async def chunk_places(reader: CollectionReader, ids: Iterable[str], where: str) -> Places:
    """The places of the chunks of these sources that satisfy the predicate."""
    among = f"{one_of('source_id', ids)} AND {where}"
    rows = await reader.chunk_rows(lambda query: query.where(among).select(_PLACE))
    ordered = sorted(rows.to_pylist(), key=lambda row: row["seq"])
    return grouped(((row["source_id"], row["generation"]), row) for row in ordered)


def chunks_of_texts(rows: Iterable[Mapping[str, Any]], text: str) -> list[Chunk]:
    """The chunks of rows, with their texts from the text of their source."""
    plain = ("id", "source_id", "seq", "start", "end", "tokens", "page")
    return [
        Chunk(
            **{name: row[name] for name in plain},
            text=text[row["start"] : row["end"]],
            section=section_of_row(row),
        )
        for row in rows
    ]
