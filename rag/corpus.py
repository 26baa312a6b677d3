"""What is stored: documents, chunks, collections, and who may see them. All frozen.

All positions are characters of a source's text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import numpy as np
    import numpy.typing as npt

Vectors: TypeAlias = "npt.NDArray[np.float32]"
"""Embeddings, shape (texts, dimension), float32, every row of unit length."""

Language = Literal[
    "Arabic",
    "Danish",
    "Dutch",
    "English",
    "Finnish",
    "French",
    "German",
    "Greek",
    "Hungarian",
    "Italian",
    "Norwegian",
    "Portuguese",
    "Romanian",
    "Russian",
    "Spanish",
    "Swedish",
    "Tamil",
    "Turkish",
    "none",
]
"""Whose rules cut words to their stems in the full-text index; `none` leaves words as they are."""
FieldType = Literal["string", "integer", "number", "boolean", "datetime", "string list"]
Value: TypeAlias = "str | int | float | bool | datetime | tuple[str, ...]"
"""What a declared metadata field of a source can hold, by its type; never an empty list."""
Distance = Literal["cosine", "dot", "euclidean"]
Visibility = Literal["tenant", "restricted"]
LetterCase = Literal["allow", "always", "never"]
"""Where the letter case of users and groups counts: in allow lists, also in deny lists, or nowhere."""
BlockKind = Literal["heading", "paragraph", "list", "code", "table"]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking. Made in one place per transport, never from a request's arguments."""

    tenant: str
    user: str | None = None
    groups: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Access:
    """Who may see a source of their tenant: everybody, or those in `allow`; never those in `deny`.

    Entries read user:NAME or group:NAME. `revision` counts the changes. `rag.access.rule` has the rule.
    """

    visibility: Visibility
    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()
    revision: int = 0


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """What a tenant keeps of who may see a document, or what comes into a folder. It outlives the source.

    `content` is a digest of the document's bytes, `word` what it last asked for itself, as JSON; empty if it
    was never heard. `present` is whether there is a source now. `copied` is whether the chunks hold labels of
    this revision; until they do, searches go by the record. A folder has neither content nor a collection.
    `former` are contents and URIs that the document had before, the latest first.
    """

    id: str
    collection: str
    uri: str
    access: Access | None
    content: str = ""
    word: str = ""
    present: bool = True
    copied: bool = True
    former: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Whether this is what a folder was ingested with."""
        return not self.collection


@dataclass(frozen=True, slots=True)
class Block:
    """A structural piece of a document's text: `text[start:end]`.

    A document's blocks are in order, don't overlap, and leave out nothing but whitespace.
    `level` counts for headings only: 1 is the outermost; the heading's words are in `title`.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """What a parser makes of one file.

    `pages` holds the start of every page in `text`, empty where the format has no pages.
    `date` is the document's own date, if it states one. `url` is where a person can open it.
    """

    text: str
    title: str
    mime_type: str
    blocks: tuple[Block, ...]
    pages: tuple[int, ...] = ()
    date: datetime | None = None
    url: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk before it is stored: `document.text[start:end]`, with where it stands.

    `context` is the line that is put before the text when it is embedded and indexed, never
    when it is shown. `tokens` counts the text alone, in the embedder's own tokens. `page` is
    that of the first character, 1-based.
    """

    seq: int
    start: int
    end: int
    section: tuple[str, ...]
    context: str
    page: int | None
    tokens: int


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What a collection remembers of its embedder: vectors of two identities don't compare."""

    provider: str
    model: str
    dimension: int
    query_prefix: str = ""
    document_prefix: str = ""


@dataclass(frozen=True, slots=True)
class Heading:
    """An entry of a source's outline; `start` is where the heading stands in the text."""

    title: str
    level: int
    start: int


@dataclass(frozen=True, slots=True)
class Source:
    """One document of a collection, without its text.

    `uri` is where it came from, for operators; `url` is where a reader can open it. `date` is
    what the document says of itself, `ingested_at` when refdesk read it.
    """

    id: str
    collection: str
    uri: str
    title: str
    mime_type: str
    digest: str
    chunk_count: int
    length: int
    ingested_at: datetime
    url: str | None = None
    date: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stored passage of a source: `text` is `source.text[start:end]`."""

    id: str
    source_id: str
    seq: int
    start: int
    end: int
    text: str
    section: tuple[str, ...] = ()
    page: int | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A tenant's named body of sources, with what its indexes were made by.

    `fields` are the declared metadata fields, by which searches can be filtered; `visibility` is
    that of new sources for which nothing else is said.
    """

    tenant: str
    name: str
    embedder: EmbedderIdentity
    language: Language
    distance: Distance
    created_at: datetime
    fields: Mapping[str, FieldType] = field(default_factory=dict)
    visibility: Visibility = "tenant"
