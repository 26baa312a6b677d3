"""The data of a search: requests, hits, answers and traces. Positions are characters of a source's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict

from rag.corpus import Chunk, Distance, Heading, Source, Value
from rag.originals import Dating, Staleness
from rag.text.flags import Flag
from rag.text.plain_text import Span
from rag.text.table_heads import head_of_record, head_of_row, is_record
from rag.uris import range_id

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rag.text.revisions import Standing

Mode = Literal["dense", "sparse", "hybrid", "exact"]
Match = Literal["text", "words", "regex"]
"""How mode exact matches the query: as a part of the text, as whole words, or as a regular expression."""
Detail = Literal["snippet", "passage", "section"]
"""What is shown of a hit: the sentence that answers, the passage itself, or the section around it."""
MAX_LIMIT = 100  # hits of one search; 0 shows none
MAX_QUERY_CHARS = 4096
NOTHING_ASKED = "Give a query (a question, or some words), or related (the id of a passage to start from)."
LONGEST_ORDER = 128  # characters that a pattern of `rag.text.flags` matches if it spans lines
LISTED_OCCURRENCES = 5  # of a hit, with their lines
BETWEEN_EXCERPTS = " … "
MIN_REPLY_CHARS, MAX_REPLY_CHARS = 2_000, 100_000


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A verbatim part of a source: `text` is `source.text[start:end]`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A match of mode exact: `source.text[start:end]`, beginning on this 1-based line."""

    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk as an answer. Hits are ordered by `score`, which is at most 1; higher is better.

    `similarity` is the cosine to the query on a scale whose 0 is the baseline of the embedding model, so it
    is comparable between collections and modes. It is None if the model failed, or another one made the
    collection. `vector` is the chunk's embedding; the text can be guessed from it. `fields` are the declared
    fields of the source.

    `excerpts` are shown instead of the chunk, in the order of the source: more text around it, or only parts
    of it. If they extend beyond the chunk, `around` has all chunks that they may touch, in order. Adjacent
    chunks can be joined to one hit: the best of them, with the text of all and the best similarity. `tokens`
    counts the excerpts, in tokens of the embedder; None without excerpts. In mode exact, `occurrences` are
    the first matches that begin in these chunks, and `occurrence_count` is their total number. `dating` is
    the date of its document, if the search was about time. `copies` are hits of other documents with the same
    text, word for word, which are not hits of the answer.
    """

    chunk: Chunk
    source: Source
    score: float
    similarity: float | None
    vector: npt.NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    fields: Mapping[str, Value] = field(default_factory=dict, compare=False, repr=False)
    excerpts: tuple[Excerpt, ...] = ()
    around: tuple[Chunk, ...] = field(default=(), compare=False, repr=False)
    tokens: int | None = field(default=None, compare=False)
    occurrences: tuple[Occurrence, ...] = ()
    occurrence_count: int = 0
    dating: Dating | None = None
    copies: tuple[Hit, ...] = field(default=(), compare=False, repr=False)

    @property
    def shown_tokens(self) -> int | None:
        """The number of tokens of the shown text; None if they were not counted."""
        return self.tokens if self.excerpts else self.chunk.tokens

    @property
    def shown_chunks(self) -> tuple[Chunk, ...]:
        """The chunks that the excerpts touch, in order; at least the hit's own."""
        if not self.around:
            return (self.chunk,)
        touched = tuple(
            chunk
            for chunk in self.around
            if any(chunk.start < excerpt.end and excerpt.start < chunk.end for excerpt in self.excerpts)
        )
        return touched or (self.chunk,)

    @property
    def cited(self) -> str:
        """The id that covers the shown text: a chunk's, or a range of chunks, as "mfzq/5-8"."""
        first, last = self.shown_chunks[0], self.shown_chunks[-1]
        return first.id if first is last else range_id(first.source_id, first.seq, last.seq)

    @property
    def span(self) -> Span:
        """The span of the source from the first shown character to the last."""
        if not self.excerpts:
            return Span(self.chunk.start, self.chunk.end)
        return Span(self.excerpts[0].start, self.excerpts[-1].end)

    @property
    def header(self) -> str:
        """The header of the shown text: the caption and header row of its table, or a record's first line."""
        first = self.shown_chunks[0]
        passed = first.text[: max(0, self.span.start - first.start)]
        if not (passed or first.header):
            return ""
        line = self.text.partition("\n")[0]
        if line.startswith("|"):
            return head_of_row(passed, line, first.header, first.section)
        if is_record(self.text) and not passed.rpartition("\n\n")[2]:
            return head_of_record(passed, line, first.header, first.section)
        is_continued = first.header and "\n\n" not in passed
        return first.header if is_continued and ("|" in line or "|" not in first.header) else ""

    @property
    def text_with_headings(self) -> str:
        """The texts to scan for flags: the title, the headings, the header and the shown text."""
        return "\n".join((self.source.title, *self.chunk.section, self.header, self.text))

    @property
    def flags(self) -> tuple[Flag, ...] | None:
        """The flags of `text_with_headings` as ingestion found them; None if the text must be scanned.

        They are known for a passage as stored, and for consecutive whole passages without flags.
        """
        stored = self.source.flags
        if stored is None:
            return None
        if not self.excerpts:
            return stored.by_seq.get(self.chunk.seq, ())
        chunks = self.shown_chunks
        seqs = range(chunks[0].seq, chunks[-1].seq + 1)
        is_whole = len(chunks) == len(seqs) and len(self.excerpts) == 1
        is_whole &= self.span == Span(chunks[0].start, chunks[-1].end)
        # The lines above the first passage were scanned with it, and no flag spans from them over all of it.
        is_headed = self.chunk.section == chunks[0].section and len(chunks[0].text) > LONGEST_ORDER
        flagged = not stored.by_seq.keys().isdisjoint(seqs) or not stored.crossed.isdisjoint(seqs[:-1])
        return () if is_whole and is_headed and not flagged else None

    @property
    def text(self) -> str:
        """The shown text, with an ellipsis between excerpts."""
        if not self.excerpts:
            return self.chunk.text
        return BETWEEN_EXCERPTS.join(excerpt.text for excerpt in self.excerpts)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One search. None means the value of the profile, or else of the settings.

    `search.overrides` of the settings lists the values that a request may set. `thresholds` has keys of
    [search.thresholds], `stages` may have the keys "of" (a profile) and "without" (names of stages), and
    `distance` is the metric of the thresholds instead of each collection's own. `detail` replaces the display
    stages of the profile. If `joined`, adjacent chunks are one hit, as assistants read them; and without a
    `limit`, hits that add little about a document give way to other documents.

    `match` and `case` are for mode exact: how the query matches, and whether letter case counts. Every hit
    contains all texts of `must_contain`, in any letter case, and those of the profile.

    With a `vector`, no embedding model is called. It is compared with collections whose vectors have the same
    length; it must come from their model, and needn't have unit length. Without a `query` the mode is dense;
    a query is searched for by its words.

    With `related`, the id of a passage or a source, the hits are documents that it names or links to,
    documents that name it, and similar passages of other documents. A query narrows these by its words.
    """

    query: str = ""
    profile: str | None = None
    limit: int | None = None
    mode: Mode | None = None
    collections: tuple[str, ...] | None = None
    exclude_collections: tuple[str, ...] = ()
    sources: tuple[str, ...] | None = None
    exclude_sources: tuple[str, ...] = ()
    filter: Mapping[str, object] | None = None
    context: bool = False
    fusion: str | None = None
    alpha: float | None = None
    candidates: int | None = None
    thresholds: Mapping[str, float] | None = None
    stages: Mapping[str, object] | None = None
    distance: Distance | None = None
    detail: Detail | None = None
    vector: Sequence[float] | None = field(default=None, compare=False, repr=False)
    match: Match | None = None
    case: bool | None = None
    must_contain: tuple[str, ...] = ()
    related: str | None = None
    joined: bool = False


class RequestValues(TypedDict, total=False):
    """The keyword arguments of `Desk.search`: the fields of a `SearchRequest`, with lists for tuples."""

    profile: str | None
    limit: int | None
    mode: Mode | None
    collections: Sequence[str] | None
    exclude_collections: Sequence[str]
    sources: Sequence[str] | None
    exclude_sources: Sequence[str]
    filter: Mapping[str, object] | None
    context: bool
    fusion: str | None
    alpha: float | None
    candidates: int | None
    thresholds: Mapping[str, float] | None
    stages: Mapping[str, object] | None
    distance: Distance | None
    detail: Detail | None
    vector: Sequence[float] | None
    match: Match | None
    case: bool | None
    must_contain: Sequence[str]
    related: str | None
    joined: bool


@dataclass(frozen=True, slots=True)
class SubQuery:
    """One of the queries of a search. The scores of its hits are multiplied by `weight`, from 0 to 1.

    `collections` and `filter` narrow the request further. `reason` says what the query is for. If a `planned`
    query is narrowed, queries that aren't planned are searched for only if the planned ones find nothing.
    """

    text: str
    weight: float = 1.0
    reason: str = ""
    collections: tuple[str, ...] = ()
    filter: Mapping[str, object] | None = None
    planned: bool = False

    @property
    def is_narrowed(self) -> bool:
        """Whether the query covers less than the request does."""
        return bool(self.collections) or self.filter is not None


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a model that counts tokens: requests, tokens, and their cost at the prices in the settings."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __add__(self, added: Usage) -> Usage:
        return Usage(
            self.requests + added.requests,
            self.input_tokens + added.input_tokens,
            self.output_tokens + added.output_tokens,
            self.cost + added.cost,
        )


@dataclass(frozen=True, slots=True)
class Preview:
    """The beginning of a hit, as it was after a step."""

    id: str
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a search: its duration and model usage.

    A `failed` step changed nothing; `warnings` say why, or what else the reader must know. The other fields
    are set only in a trace: the number of queries or hits before and after, and the first hits after it.
    """

    name: str
    seconds: float
    status: Literal["ok", "failed"] = "ok"
    warnings: tuple[str, ...] = ()
    usage: Usage | None = None
    before: int | None = None
    after: int | None = None
    preview: tuple[Preview, ...] = ()
    hit_ids: tuple[str, ...] = field(default=(), repr=False)
    """The ids of all chunks after the step, best first."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A chunk's rank in a ranking, from 1, and its score there, for the trace's query of this index.

    The score is a similarity (dense), a share of the best score (sparse), or the score of matches (exact).
    """

    query: int
    list: Literal["dense", "sparse", "exact"]
    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class Trace:
    """How a search went: its queries, and the ranks of each chunk in their rankings, by chunk id."""

    queries: tuple[SubQuery, ...]
    listings: Mapping[str, tuple[Listing, ...]]


@dataclass(frozen=True, slots=True)
class Context:
    """Passages as one text, each under its citation.

    `chunk_ids` are its hits, in order. If `cut`, the last one is truncated. `left_out` hits didn't fit.
    """

    text: str
    chunk_ids: tuple[str, ...]
    tokens: int
    cut: bool
    left_out: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits of a search, best first, notes that their reader must know, and the steps of the search.

    With a trace, `searched` names the collections that were searched. `question` is what was searched for.

    `context` has the hits as one text for a prompt, if the request asks for it. `degraded` names what is
    missing because something failed: the "dense" or "sparse" ranking of some or all collections, the
    "similarity" of hits, attached "collections", or a stage. The notes say why. `Desk.with_warnings` fills
    `stale`, changed and missing files by source id, and `flags`, warnings about texts by chunk id.
    """

    hits: tuple[Hit, ...]
    notes: tuple[str, ...] = ()
    context: Context | None = None
    steps: tuple[Step, ...] = field(default=(), compare=False)
    trace: Trace | None = field(default=None, compare=False)
    degraded: tuple[str, ...] = ()
    searched: tuple[str, ...] = field(default=(), compare=False)
    stale: Mapping[str, Staleness] = field(default_factory=dict)
    flags: Mapping[str, tuple[Flag, ...]] = field(default_factory=dict)
    question: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Part:
    """The requested part of a source: its first character `start`, and at most one of the others.

    `around` is a number of chunks before and after the named ones. `section` is a heading, `lines` are the
    first and last line, from 1, and `outline` means the headings alone.
    """

    start: int | None = None
    around: int | None = None
    section: str | None = None
    lines: tuple[int, int] | None = None
    outline: bool = False


WHOLE = Part()


@dataclass(frozen=True, slots=True)
class Extract:
    """A window on a source: `text` is `source.text[start:end]`, and `chunks` are those that overlap it.

    `until` is the end of the requested part: of the source, the section, or the last chunk or line. Reading
    on ends at `more_until`, the end of the section or of the source without its white space. `fields`
    are the declared fields of the source. The text begins on line `first_line` of `line_count`. The `outline`
    covers the source, or the requested section or lines. An extract of the outline alone has no text;
    its outline begins at `start`. `passage` is the text of the named chunks, or else the beginning of the
    part, and `page` the one on which the chunk begins that it begins in. `standing` is what became of the
    passages if they were named as cited in a former revision, and `cited_text` is the id of their text as it
    was cited, in a tag, if one keeps it.
    """

    source: Source
    outline: tuple[Heading, ...]
    start: int
    end: int
    text: str
    chunks: tuple[Chunk, ...]
    until: int
    more_until: int
    fields: Mapping[str, Value] = field(default_factory=dict, compare=False, repr=False)
    stale: Staleness | None = None
    flags: tuple[Flag, ...] = ()
    part: Part = WHOLE
    first_line: int = 1
    line_count: int = 1
    notes: tuple[str, ...] = ()
    passage: str = ""
    page: int | None = None
    standing: Standing | None = None
    cited_text: str | None = None
