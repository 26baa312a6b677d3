"""The stored data: sources, chunks, collections and access records. Positions are characters of a text."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

from rag.errors import ConfigurationError
from rag.text.flags import Flag
from rag.text.plain_text import with_indent

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


DEFAULT_EMBEDDER = "default"
"""The name of the embedder in [embedder]; embedders in [embedders.NAME] have other names."""
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
"""A language whose rules analyse words for the full-text index; `none` disables stemming."""
LanguageChoice: TypeAlias = Language | Literal["auto"]
"""The language setting of a collection; `auto` means each document's own."""
USUAL_LANGUAGE: Language = "English"
"""The fallback if no document's language was detected."""
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
"""How the vectors of tokens become one: in the graph, or by the first, mean, largest or last values.

`weighted` is a mean in which a token's weight is its position, from 1.
"""


@dataclass(frozen=True, slots=True)
class Binding:
    """A limit on what a request can reach, set by the operator for a tool, an API key or an OAuth scope.

    None sets no limit. Only `collections` exist for the request; an empty tuple means no collection. `filter`
    is a condition on declared fields, as in a request; collections that don't declare them show nothing.
    `profile` is fixed, `limit` is the maximum, and only `tools` can be called. With `any_of`, at least one of
    these bindings must admit a source, too. `rag.access.rule` applies it.

    Raises:
        ConfigurationError: the collections or tools are a single string.
    """

    collections: tuple[str, ...] | None = None
    filter: Mapping[str, object] | None = field(default=None, compare=False)
    profile: str | None = None
    limit: int | None = None
    tools: tuple[str, ...] | None = None
    any_of: tuple[Binding, ...] | None = None
    filter_json: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep the filter as JSON to compare bindings: in Python, 1, 1.0 and True are equal."""
        if isinstance(self.collections, str) or isinstance(self.tools, str):  # substrings would match names
            raise ConfigurationError(
                'The collections and tools of a binding are tuples of names, like ("handbook",).'
            )
        object.__setattr__(self, "filter_json", json.dumps(self.filter, sort_keys=True, default=str))


@dataclass(frozen=True, slots=True)
class Principal:
    """The tenant, user and groups that a request runs for.

    In a server, the settings (`rag.access.tenants`), an API key (`rag.access.keys`) or a verified OAuth token
    (`server.http.oauth`) determine it, never a request's arguments. Commands and callers of the library have
    the operator's rights and may name any principal. Each of the `bindings` narrows it. A desk refuses a
    principal without a tenant.

    Raises:
        ConfigurationError: the groups are a single string.
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

    Entries are user:NAME or group:NAME. `revision` counts changes. `rag.access.rule` applies it.
    """

    visibility: Visibility
    allow: frozenset[str] = frozenset()
    deny: frozenset[str] = frozenset()
    revision: int = 0


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """The stored access of a document, or of future documents in a folder. It outlives the source.

    So a document that is removed and ingested again keeps its access. `content` is a digest of the document's
    bytes. `requested` is the access that its metadata last requested, as JSON; empty if its metadata was
    never read; if its origin decides, a note on that (`rag.store.write.access_claim`). `present` is whether
    the source exists. `copied` is whether the chunks have this revision; until then, searches use this
    record. `former` are earlier digests and URIs, latest first. A folder has neither content nor a
    collection.
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
        """Whether the source was removed but its rows are still stored. Nobody can read these."""
        return not self.present and not self.copied


@dataclass(frozen=True, slots=True)
class Block:
    """A structural part of a document's text: `text[start:end]`.

    Blocks are in order, don't overlap, and cover all but white space. `level` is set for headings only; 1 is
    the outermost. `title` is a heading's title, or the cells of a sheet, as "A2:F2". A heading without a
    title ends the section above it, and may be empty.
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
    document's own date, if it states one. `url` is where a person can open it. `remarks` tell
    the report which parts could not be read. `has_lines` says that the lines of `text` are those of the file,
    as of source code.
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
    has_lines: bool = False

    @property
    def outline(self) -> tuple[Heading, ...]:
        """The headings that have a title."""
        return tuple(heading for heading in self.headings if heading.title)

    @property
    def headings(self) -> tuple[Heading, ...]:
        """All headings, each from the beginning of its line."""
        return tuple(
            Heading(block.title, block.level, with_indent(self.text, block.start))
            for block in self.blocks
            if block.kind == "heading"
        )


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk before it is stored: `document.text[start:end]` and its position.

    `context` is put before the text for embedding and indexing, but not shown: a line with the title, other
    names of the document and the headings; and the caption and header row of a table, or the first line of a
    record, that the text continues. `tokens` counts the text without it, in tokens of the embedder. `page` is
    the 1-based page of the first character. `section` are the headings that the text begins under, the
    outermost first, and `inner` others that are in it.
    """

    seq: int
    start: int
    end: int
    section: tuple[str, ...]
    context: str
    page: int | None
    tokens: int
    inner: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """A collection's record of its embedder; `may_compare` tells whether its vectors are comparable.

    The `dimension` of a model behind an endpoint is 0 before its first vector. `document_body` is what the
    settings add to requests that embed documents, as sorted JSON, or empty. A collection without vectors has
    the identity `NO_VECTORS`.
    """

    provider: str
    model: str
    dimension: int
    query_prefix: str = ""
    document_prefix: str = ""
    document_body: str = ""

    def may_compare(self, identity: EmbedderIdentity) -> bool:
        """Whether vectors of both can be comparable; an unknown dimension matches any.

        Query prefixes may differ, because no stored vector depends on them.
        """
        dimensions = {self.dimension, identity.dimension} - {0}
        ours, theirs = (replace(each, dimension=0, query_prefix="") for each in (self, identity))
        return ours == theirs and len(dimensions) <= 1


NO_VECTORS = EmbedderIdentity("none", "", 1)
"""The identity of a collection without vectors. Its chunks have a zero vector of one dimension."""


@dataclass(frozen=True, slots=True)
class Heading:
    """An entry of a source's outline; `start` is the heading's position in the text.

    One without a title only ends the section above, as code behind a function does.
    """

    title: str
    level: int
    start: int


@dataclass(frozen=True, slots=True)
class PassageFlags:
    """The flags of a source's passages, by number; passages without flags are left out.

    `crossed` are the numbers of passages that may have further flags together with the next one.
    """

    by_seq: Mapping[int, tuple[Flag, ...]]
    crossed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Source:
    """One document of a collection, without its text.

    `uri` is where it was ingested from, for operators; `url` is where a reader can open it. `date` is the
    document's own date, `ingested_at` the time of ingestion. `without_vector` counts the chunks for which the
    embedder had no valid vector: they are found by their words only. `file` is the state of its file at
    ingestion, `flags` are those of its passages by the present rules, and `revision` is a digest of its
    passages, which citations can name; None if it wasn't recorded. `lines` are the lines of its file that its
    passages begin on, counted from 1; empty unless it is a plain text.
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
    flags: PassageFlags | None = field(default=None, compare=False, repr=False)
    revision: str | None = field(default=None, compare=False)
    lines: tuple[int, ...] = field(default=(), compare=False, repr=False)

    @property
    def name(self) -> str:
        """The path of its file below the folder that was ingested."""
        return self.metadata.get("path", "")

    @property
    def names(self) -> str:
        """The names of the document, as words to search for: title, file name, aliases and tags.

        A meaningless file name (README) is left out.
        Example: "Containers", "it/k3s-notes.md", aliases "k8s", tags "infra" -> lines with Containers,
        k3s-notes, k8s, infra.
        """
        names = (self.title, _file_name(self.name), self.aliases, self._stated({"tag", "tags"}))
        return "\n".join(filter(None, names))

    @property
    def aliases(self) -> str:
        """Its other names, as notes state them: "k8s, Steuermann"; empty if it has none."""
        return self._stated(ALIAS_KEYS)

    def _stated(self, keys: Container[str]) -> str:
        return "\n".join(naming_entries(self.metadata, keys))


def naming_entries(metadata: Mapping[str, str], keys: Container[str]) -> Iterator[str]:
    """The beginnings of these entries of a source's metadata, whose keys are in any letter case."""
    return (text[:MAX_NAMING_CHARS] for key, text in metadata.items() if key.casefold() in keys)


MAX_NAMING_CHARS = 200  # of an entry or a file name: every passage gets their words
FILE_SUFFIX = re.compile(r"(?<=.)\.[A-Za-z]\w{0,7}\Z")
ALIAS_KEYS = frozenset({"alias", "aliases"})
LEFT_OUT = "left_out"
"""The metadata that names what is missing from a document's text."""
_NO_LETTER = re.compile(r"[\W\d_]+")
_SAYING_NOTHING = frozenset({"default", "document", "index", "readme", "untitled"})


def _file_name(path: str) -> str:
    """The name of a file without its suffix; empty if it is meaningless: "a/plan.md" -> "plan".

    For a web page, it is the last part of the address: "example.org/setup?b=c" -> "setup".
    """
    address, _, query = path.partition("?")
    is_query = "=" in query and " " not in query
    stem = FILE_SUFFIX.sub("", (address if is_query else path).rpartition("/")[2])[:MAX_NAMING_CHARS]
    return "" if _NO_LETTER.sub("", stem).casefold() in _SAYING_NOTHING else stem


@dataclass(frozen=True, slots=True)
class Chunk:
    """A stored passage of a source: `text` is `source.text[start:end]`.

    `header` is the caption and header row of the table that the text continues, or the first line of the
    record; it is empty if the text begins elsewhere. `tokens` counts the text in tokens of the embedder; None
    if that isn't known. `gap` is the white space between the chunk before and this one; None if they overlap
    or touch, or something else is between them.
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
    gap: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A LanceDB table that others write, and the columns that refdesk reads.

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
    """How documents are chunked whose file name or path matches the glob pattern `match`.

    Sizes are in tokens of the embedder. `max_tokens` counts the embedded text; None means the usual. A
    passage begins with up to `overlap` tokens of the one before it. With `headers`, title and headings are
    embedded and indexed with each passage.
    """

    strategy: Strategy = "structure"
    max_tokens: int | None = None
    overlap: int = 0
    headers: bool = True
    match: str = "*"


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A passage from an operator's retriever.

    `id` is the retriever's own. A `score` of 1 counts like a passage with every word of the query; 0 is the
    lowest. `allow` lists who may see it (user:NAME, group:NAME): empty means nobody, unless the visibility is
    `tenant`, which means everybody in the tenant. `fields` are values of declared fields.
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
    """The cosines that an embedder gives: to `unrelated` texts, and to a question and its answer (`related`).

    `related` is None if it was not measured. `elsewhere` is the collection's: the cosine of a sentence and
    the nearest passage of another document, by `sampled` chunks that everybody may read.
    """

    unrelated: float
    related: float | None = None
    elsewhere: float | None = None
    sampled: int = 0


AS_IT_IS = Calibration(0.0)
"""The scale of all-MiniLM-L6-v2, on which similarities are cosines. It isn't stored."""


@dataclass(frozen=True, slots=True)
class Build:
    """A generation of a collection's tables. The `number` is part of their names; the first is 0."""

    number: int
    embedder: EmbedderIdentity
    embedder_name: str
    chunking: tuple[Chunking, ...] = ()
    calibration: Calibration | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A named set of sources of one tenant, and how they are indexed.

    Searches can filter by the declared `fields`. `visibility` is the default for new sources; without
    `visibility_is_set` it is the desk's default at the time of creation. `description` says what the
    collection holds; people find more at `link`. `embedder_name` names the embedder in the settings, which
    must have the identity `embedder`.

    The sources of an `attached` collection are the rows of a table that refdesk only reads. The first match
    of `chunking` decides how a document is chunked, or else the settings. `build` is the number of the tables
    that readers open. The tables of `former` are kept for an undo; a rebuild is writing those of `coming`
    (`rag.store.write.collection_tables`).

    Without `calibration`, similarities are cosines. With the language `auto`, `languages` are those that its
    documents were analysed in, most frequent first. A `tag_of` another collection is a copy of it
    (`rag.store.write.make_collection`). `personal_data` has the policy for each kind that isn't allowed.
    Sources expire `keep_days` after their date, unless that is 0; `expiring` is whether a source states an
    expiry of its own.
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
        """The language of documents whose own is unknown."""
        if self.language == "auto":
            return self.languages[0] if self.languages else USUAL_LANGUAGE
        return self.language


COARSE_NS = 2_000_000_000  # FAT and some archives keep times to two seconds


@dataclass(frozen=True, slots=True)
class FileState:
    """A file's last modification, in nanoseconds since 1970 by its file system, and its size in bytes."""

    modified: int
    size: int

    def same_as(self, state: FileState) -> bool:
        """Whether both can have the same content: the same size, and the same time within `COARSE_NS`.

        Times are never compared with the local clock: a file server's may differ.
        """
        return self.size == state.size and abs(self.modified - state.modified) < COARSE_NS
