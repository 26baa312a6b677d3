"""What is asked and answered: a request, its hits, what made them. All frozen.

All positions are characters of a source's text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    from rag.corpus import Chunk, Heading, Source, Value

Mode = Literal["dense", "sparse", "hybrid"]
MAX_LIMIT = 100  # hits of one search; 0 shows none
MAX_QUERY_CHARS = 4096
BETWEEN_EXCERPTS = " … "
MIN_REPLY_CHARS, MAX_REPLY_CHARS = 2_000, 100_000


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a source, word for word: `text` is `source.text[start:end]`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk as an answer. `score` is what the order is by, at most 1; higher is better.

    `similarity` is the cosine to the query, comparable between collections and modes. `vector` is the
    chunk's embedding, from which its text can be guessed. `fields` are the source's declared ones.
    `excerpts` are what is shown in the chunk's place, in their order in the source: more of the source
    around it, or less of it.
    """

    chunk: Chunk
    source: Source
    score: float
    similarity: float
    vector: npt.NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    fields: Mapping[str, Value] = field(default_factory=dict, compare=False, repr=False)
    excerpts: tuple[Excerpt, ...] = ()

    @property
    def text(self) -> str:
        """What is shown of the hit; what lies between excerpts is three dots."""
        return BETWEEN_EXCERPTS.join(one.text for one in self.excerpts) if self.excerpts else self.chunk.text


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """One question to the desk. None means: as the profile, or else the settings say."""

    query: str
    profile: str | None = None
    limit: int | None = None
    mode: Mode | None = None
    collections: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    exclude_sources: tuple[str, ...] = ()
    filter: Mapping[str, object] | None = None
    context: bool = False


@dataclass(frozen=True, slots=True)
class SubQuery:
    """One of the queries that a search asks. Its hits' scores are multiplied by `weight`, from 0 to 1.

    `collections` and `filter` narrow what the request allows; none of them means: all of that. `reason`
    says what the query is for.
    """

    text: str
    weight: float = 1.0
    reason: str = ""
    collections: tuple[str, ...] = ()
    filter: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """What was asked of a model that counts: requests, tokens, and their cost by the settings' prices."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cost + other.cost,
        )


@dataclass(frozen=True, slots=True)
class Preview:
    """The beginning of a hit, as it was after a stage."""

    id: str
    score: float
    text: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A step of a search, the seconds that it took, and what it used of models that count.

    A `failed` one changed nothing; `warnings` say why, or what else a reader must know. The rest is there
    only in a trace: how many queries or hits came in and went out, and the first hits that did.
    """

    name: str
    seconds: float
    status: Literal["ok", "failed"] = "ok"
    warnings: tuple[str, ...] = ()
    usage: Usage | None = None
    before: int | None = None
    after: int | None = None
    preview: tuple[Preview, ...] = ()
    left: tuple[str, ...] = field(default=(), repr=False)
    """The ids of all chunks that were left, best first."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Where a list had a chunk: `rank` from 1, `score` as a cosine (dense) or a share of the best (sparse).

    `query` is the place of the query among the trace's.
    """

    query: int
    list: Literal["dense", "sparse"]
    rank: int
    score: float


@dataclass(frozen=True, slots=True)
class Trace:
    """What happened to a search: its queries, and for each chunk of its lists, by id, where they had it."""

    queries: tuple[SubQuery, ...]
    listings: Mapping[str, tuple[Listing, ...]]


@dataclass(frozen=True, slots=True)
class Context:
    """Passages as one text, each under its citation, and what is missing.

    `chunk_ids` are the hits that are in it, in order; of the last one the end is missing if `cut`.
    `left_out` counts the hits of which nothing is in it.
    """

    text: str
    chunk_ids: tuple[str, ...]
    tokens: int
    cut: bool
    left_out: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Hits, best first, what a reader must know to judge them, and what the search took.

    `context` has them as one text for a prompt, if that was asked for.
    """

    hits: tuple[Hit, ...]
    notes: tuple[str, ...] = ()
    context: Context | None = None
    stages: tuple[Stage, ...] = field(default=(), compare=False)
    trace: Trace | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Extract:
    """A window on a source: `text` is `source.text[start:end]`, `chunks` those that touch it."""

    source: Source
    outline: tuple[Heading, ...]
    start: int
    end: int
    text: str
    chunks: tuple[Chunk, ...]
