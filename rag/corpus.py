"""The stored data: sources, chunks, collections and access records, as frozen dataclasses.

All positions are in characters of a source's text. `FileState` tells whether a file has changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from rag.errors import ConfigurationError
from rag.text.segments import with_indent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rag.text.flags import Flag

DEFAULT_EMBEDDER = "default"
"""The name of the embedder in [embedder]; those in [embedders.NAME] have names of their own."""
Vectors: TypeAlias = "npt.NDArray[np.float32]"
"""Embeddings: shape (texts, dimension), float32, every row of unit length."""

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
    "Vietnamese",
    "none",
]
"""A language by whose rules words are analysed for the full-text index; `none` disables stemming."""
LanguageChoice: TypeAlias = Language | Literal["auto"]
"""What a collection says of it: `auto` means each document's own."""
USUAL_LANGUAGE: Language = "English"
"""That of documents whose language nobody knows, in a collection that has no others."""
FieldType = Literal["string", "integer", "number", "boolean", "datetime", "string list"]
Value: TypeAlias = "str | int | float | bool | datetime | tuple[str, ...]"
"""A value of a declared metadata field, by the field's type; never an empty list."""
Distance = Literal["cosine", "dot", "euclidean"]
Visibility = Literal["tenant", "restricted"]
Policy = Literal["allow", "redact", "skip"]
"""What happens to a document with personal data: nothing, its values are masked, or it isn't stored."""
LetterCase = Literal["allow", "always", "never"]
"""Where the letter case of users and groups matters: in allow lists, in both lists, or nowhere."""
BlockKind = Literal["heading", "paragraph", "list", "code", "table"]
Strategy = Literal["structure", "sentence", "tokens", "page", "row", "code", "document"]
"""Where documents are cut; `rag.ingest.chunk` says how."""


Pooling = Literal["graph", "cls", "mean", "max", "last", "weighted"]
"""How the vectors of the tokens become one: in the graph, or by the first, mean, largest or last values.

`weighted` is a mean in which a token weighs as much as its position, from 1.
"""


@dataclass(frozen=True, slots=True)
class Binding:
    """What a request reaches at most, set by the operator for a tool, an API key or an OAuth scope.

    None leaves a part open. `collections` are the only ones there are; none of them means nothing. `filter`
    is a condition on declared fields, as in a request; a collection that doesn't declare them shows nothing.
    `profile` is the only one, and `limit` the highest. `tools` are the only ones of a server. `any_of` adds
    that at least one of these bindings must admit a source too. `rag.access.bindings` applies it.

    Raises:
        ConfigurationError: the collections or tools are one string instead of several names.
    """

    collections: tuple[str, ...] | None = None
    filter: Mapping[str, object] | None = field(default=None, compare=False)
    profile: str | None = None
    limit: int | None = None
    tools: tuple[str, ...] | None = None
    any_of: tuple[Binding, ...] | None = None
    filter_json: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep the filter as text, too, to compare bindings by: Python takes 1, 1.0 and True for equal."""
        if isinstance(self.collections, str) or isinstance(self.tools, str):  # each part would be a name
            raise ConfigurationError(
                'The collections and tools of a binding are tuples of names, like ("handbook",).'
            )
        object.__setattr__(self, "filter_json", json.dumps(self.filter, sort_keys=True, default=str))


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf a search runs.

    For requests, the settings (`rag.access.tenants`), an API key (`rag.access.keys`) or a verified OAuth
    token (`server.http.oauth`) determine it, never a request's arguments. Commands and the library's callers,
    which have the operator's rights, may name any principal. Each of the `bindings` narrows what it may do.

    Without a tenant it is nobody: a desk refuses it.

    Raises:
        ConfigurationError: the groups are one string instead of several names.
    """

    tenant: str
    user: str | None = None
    groups: frozenset[str] = frozenset()
    bindings: tuple[Binding, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.groups, str):  # each of its letters would be a group
            raise ConfigurationError('The groups of a principal are a set of names, like frozenset({"hr"}).')


@dataclass(frozen=True, slots=True)
class Access:
    """Who may see a source: everybody in its tenant, or those in `allow`; never those in `deny`.

    Entries have the form user:NAME or group:NAME. `revision` counts the changes. `rag.access.rule` applies
    it.
    """

    visibility: Visibility
    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()
    revision: int = 0


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """The stored access of a document, or of future documents in a folder. It outlives the source.

    So a document that is removed and ingested again has its former access. `content` is a digest of the
    document's bytes. `requested` is the access that the document last requested in its own metadata, as JSON;
    empty if its metadata was never consulted. Where the origin of a document decides, it is a note of that
    (`rag.store.write.access_claim`). `present` tells whether the source exists now. `copied` tells whether
    the chunks already have the labels of this revision; until then, searches use this record. `former` are
    earlier digests and URIs of the document, latest first. A folder has neither content nor a collection.
    """

    id: str
    collection: str
    uri: str
    access: Access | None
    content: str = ""
    requested: str = ""
    present: bool = True
    copied: bool = True
    former: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Whether this is the access record of a folder."""
        return not self.collection

    @property
    def is_tombstone(self) -> bool:
        """Whether the source was removed while its rows are still stored: nobody can read these."""
        return not self.present and not self.copied


@dataclass(frozen=True, slots=True)
class Block:
    """A structural part of a document's text: `text[start:end]`.

    A document's blocks are in order, don't overlap, and leave out nothing but white space. `level` is set for
    headings only; 1 is the outermost. `title` is that of a heading, or the cells of a sheet, as "A2:F2". A
    heading without a title ends the section above it, and may be empty.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    title: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file.

    `pages` holds the start of every page in `text`; it is empty if the format has no pages. `date` is the
    document's own date, if it states one. `url` is where a person can open it. `remarks` say what of the file
    could not be read, for the report.
    """

    text: str
    title: str
    mime_type: str
    blocks: tuple[Block, ...]
    pages: tuple[int, ...] = ()
    date: datetime | None = None
    url: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def outline(self) -> tuple[Heading, ...]:
        """The headings that have a title, each from the beginning of its line."""
        return tuple(
            Heading(block.title, block.level, with_indent(self.text, block.start))
            for block in self.blocks
            if block.kind == "heading" and block.title
        )


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk before it is stored: `document.text[start:end]` and its position.

    `context` precedes the text when it is embedded and indexed, but not when it is shown: a line with the
    title, other names of the document and the headings, and another one with the header row, if the text
    continues a table, or with the first line of a record. `tokens` counts the text without it, in tokens of
    the embedder. `page` is the 1-based page of the first character.
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
    """What a collection stores about its embedder; `may_compare` tells whether its vectors are comparable.

    The `dimension` of a model behind an endpoint is 0 before its first vector. `document_body` is what the
    settings add to the requests that embed documents, as JSON with sorted keys; empty if they add nothing.
    The identity `NO_VECTORS` is that of a collection without any.
    """

    provider: str
    model: str
    dimension: int
    query_prefix: str = ""
    document_prefix: str = ""
    document_body: str = ""

    def may_compare(self, identity: EmbedderIdentity) -> bool:
        """Whether vectors of both are comparable, as far as it is known: an unknown dimension may be any.

        Prefixes of queries may differ, because no stored vector depends on them.
        """
        dimensions = {self.dimension, identity.dimension} - {0}
        ours, theirs = (replace(each, dimension=0, query_prefix="") for each in (self, identity))
        return ours == theirs and len(dimensions) <= 1


NO_VECTORS = EmbedderIdentity("none", "", 1)
"""Its chunks are read with a vector of one dimension, which is 0."""


@dataclass(frozen=True, slots=True)
class Heading:
    """An entry of a source's outline; `start` is the heading's position in the text."""

    title: str
    level: int
    start: int


@dataclass(frozen=True, slots=True)
class Source:
    """One document of a collection, without its text.

    `uri` is where it was ingested from, for operators; `url` is where a reader can open it. `date` is the
    document's own date, `ingested_at` the time of ingestion. `without_vector` counts the chunks for which the
    embedder had no valid vector: they are found by their words only. `file` is the state that its file was
    ingested in, None if that was not recorded.
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
    without_vector: int = 0
    file: FileState | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The path of its file below the folder that was ingested."""
        return self.metadata.get("path", "")


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stored passage of a source: `text` is `source.text[start:end]`.

    `header` is the header row of the table that the text continues, or the first line of the record; it is
    empty if the text begins elsewhere.
    `tokens` counts the text in tokens of the embedder; None if that isn't known.
    """

    id: str
    source_id: str
    seq: int
    start: int
    end: int
    text: str
    section: tuple[str, ...] = ()
    page: int | None = None
    tokens: int | None = field(default=None, compare=False)
    header: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A LanceDB table that others write, and which of its columns hold what.

    `table` is its absolute path or URI. Columns are named as the table's owner names them; "metadata.title"
    is a part of a column. `allow` has lists of entries (user:NAME, group:NAME), which decide who may see a
    row; without it, everybody in the tenant may. `fields` are columns by declared field.
    """

    table: str
    id: str
    text: str
    vector: str | None = None
    title: str | None = None
    url: str | None = None
    date: str | None = None
    allow: str | None = None
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Chunking:
    """How the documents that a glob pattern matches are cut.

    Sizes are in tokens of the embedder. `max_tokens` counts what is embedded of a passage; None: as the
    settings say. A passage under `min_tokens` is joined to a neighbor in its section if both fit. A passage
    begins with up to `overlap` tokens of the one before it. With `headers`, title and headings are embedded
    and indexed with each passage. `match` is compared with a file's name and with its path for readers.
    """

    strategy: Strategy = "structure"
    max_tokens: int | None = None
    min_tokens: int = 32
    overlap: int = 0
    headers: bool = True
    match: str = "*"


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A passage that a retriever of the operator's found.

    `id` is the retriever's own. `score` is from 0 to 1: 1 is as good as a passage that has every word of the
    query. `allow` names who may see it (user:NAME, group:NAME); nobody, if it is empty. With the visibility
    `tenant`, everybody in the tenant may, and `allow` is empty. `fields` are values of declared fields.
    """

    id: str
    text: str
    score: float
    allow: tuple[str, ...] = ()
    visibility: Visibility = "restricted"
    title: str = ""
    url: str | None = None
    date: datetime | None = None
    fields: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the cosines of a collection's embedder mean.

    `unrelated` is the cosine of texts that have nothing in common, `related` that of a question and a passage
    that answers it, if it was measured. They are the model's own, or if there are `passages`, an estimate
    from so many chunks of the collection.
    """

    unrelated: float
    related: float | None = None
    passages: int = 0


@dataclass(frozen=True, slots=True)
class Build:
    """What the tables of a collection were made with. The `number` is part of their names; the first is 0."""

    number: int
    embedder: EmbedderIdentity
    embedder_name: str
    chunking: tuple[Chunking, ...] = ()
    calibration: Calibration | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of sources of one tenant, and how they are indexed.

    `fields` are the declared metadata fields, which searches can filter by. `visibility` is the default for
    new sources; somebody chose it if `visibility_is_set`, else it is what the desk's was when it was made.
    `description` says what the collection holds; `link` is where a person finds more about it.
    `embedder_name` is the name in the settings of the embedder that searches and ingestions use; it has to
    have the identity `embedder`.
    If it is `attached`, its sources are the rows of a table that refdesk only reads. The first of `chunking`
    that matches a document says how it is cut; if none does, the settings say it.
    `build` is the number of the tables that readers open. The tables of `former` are kept for an undo, and
    those of `coming` are being made by a rebuild (`rag.store.write.collection_tables`).
    `calibration` is None if nothing was measured: cosines count as they are. With the language `auto`,
    `languages` are those by whose rules its documents were analysed, most frequent first.
    A collection that is a `tag_of` another one is a copy of that one (`rag.store.write.make_collection`).
    `personal_data` has the policy for each kind that isn't just allowed. Sources expire `keep_days` after
    their date, unless that is 0; it is `expiring` if any of them stated by itself when it expires.
    """

    tenant: str
    name: str
    embedder: EmbedderIdentity
    language: LanguageChoice
    distance: Distance
    created_at: datetime
    fields: Mapping[str, FieldType] = field(default_factory=dict)
    visibility: Visibility = "tenant"
    description: str = ""
    link: str = ""
    embedder_name: str = DEFAULT_EMBEDDER
    attached: Attachment | None = None
    chunking: tuple[Chunking, ...] = ()
    personal_data: Mapping[Flag, Policy] = field(default_factory=dict)
    keep_days: int = 0
    expiring: bool = False
    build: int = 0
    former: Build | None = None
    coming: Build | None = None
    calibration: Calibration | None = None
    languages: tuple[Language, ...] = ()
    tag_of: str = ""
    visibility_is_set: bool = False

    @property
    def usual_language(self) -> Language:
        """That of a document whose own is unknown."""
        if self.language == "auto":
            return self.languages[0] if self.languages else USUAL_LANGUAGE
        return self.language


COARSE_NS = 2_000_000_000  # FAT and some archives keep times to two seconds


@dataclass(frozen=True, slots=True)
class FileState:
    """The time of a file's last modification, in nanoseconds since 1970 by its file system, and its bytes."""

    modified: int
    size: int

    def same_as(self, state: FileState) -> bool:
        """Whether both can be of one content: of one size, and of one time as far as file systems keep it.

        Times are compared with each other, never with a clock of ours: a file server's may be behind.
        """
        return self.size == state.size and abs(self.modified - state.modified) < COARSE_NS
