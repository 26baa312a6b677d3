"""The collections that a request covers, and what its principal may find in each, as SQL and in Python."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as AbstractCollection
from dataclasses import dataclass, field, replace
from itertools import islice

from anyio import to_thread

from rag.access import rule as access
from rag.access.rule import bounds, walls
from rag.answers import SearchRequest
from rag.corpus import (
    Access,
    AccessRecord,
    Binding,
    Chunk,
    Collection,
    FieldType,
    LetterCase,
    Principal,
    Value,
)
from rag.errors import InvalidRequestError, NotFoundError, StoreError
from rag.filters.folded_text import folded
from rag.filters.grammar import (
    ATTRIBUTES,
    OF_CHUNKS,
    AllOf,
    AnyOf,
    Filter,
    Leaf,
    Like,
    OneOf,
    Ordered,
    Present,
    filterable,
    leaf_predicate,
    leaves,
    matches,
    parse_filter,
    predicate,
)
from rag.filters.needles import Needle
from rag.report import names_briefly
from rag.search.reply.untrusted import label
from rag.search.search_plan import SearchPlan
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.schema import (
    ListedSource,
    SourcePlace,
    StoredChunk,
    StoredSource,
    contains,
    field_column,
    one_of,
)
from rag.store.read.strict_reader import Asker, StrictReader, StrictReaderInMemory, strict_reader

FIRST_ROWS = 16  # one of them is readable unless copies are stale; reading all takes longer
SEVERAL = 2  # documents with one name make it ambiguous
LOOKED_AT = 64  # documents checked at once for one that the asker may read, at 20 µs each


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A collection as one request sees it. Views are compared by identity, so they can be keys.

    Every read of chunks is filtered by `where`, and every row that leaves has passed `admits`, which checks
    the source's own access record. `walls` are the conditions of the principal's bindings; no request, stage
    or retry can drop them, and there is no view of a collection that the bindings exclude. `changed` are
    access records whose copies on the chunks are stale; for their sources the record counts. A view that is
    not `comparable`, because another model made its vectors or its model fails, has no dense ranking and no
    similarities. Every hit contains all texts of `contains`. `resolved` has the filter's conditions on
    undeclared attributes as SQL (see `resolve_attributes`). Sources in `expired` are treated as deleted.
    """

    table: CollectionReader
    principal: Principal
    filter: Filter | None = None
    sources: tuple[str, ...] | None = None
    exclude_sources: tuple[str, ...] = ()
    letter_case: LetterCase = "allow"
    changed: tuple[AccessRecord, ...] = ()
    comparable: bool = True
    contains: tuple[Needle, ...] = ()
    resolved: Mapping[Leaf, str | None] = field(default_factory=dict)
    expired: frozenset[str] = frozenset()
    walls: tuple[Filter, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Derive the walls from the principal, so that there is no view without them."""
        conditions = walls(self.principal.bindings, self.collection)
        if conditions is None:
            raise ValueError("The principal's bindings exclude this collection.")
        object.__setattr__(self, "walls", conditions)

    @property
    def collection(self) -> Collection:
        """The definition of the collection."""
        return self.table.collection

    @property
    def name(self) -> str:
        """The name of the collection."""
        return self.table.collection.name

    @property
    def where(self) -> str:
        """All conditions in the engine's SQL: access AND bindings AND filter AND sources AND texts."""
        return " AND ".join([self.source_condition, *map(contains, self.contains)])

    @property
    def source_condition(self) -> str:
        """The conditions on a source as a whole: all but `contains`, which is on the text of a chunk."""
        filters = self.walls if self.filter is None else (*self.walls, self.filter)
        declared = self.collection.fields
        conditions = [
            self._readable,
            *(predicate(condition, declared, field_column, resolved=self.resolved) for condition in filters),
        ]
        if self.sources is not None:
            conditions.append(one_of("source_id", self.sources))
        if self.expired:
            conditions.append(f"(NOT {one_of('source_id', sorted(self.expired))})")
        if self.exclude_sources:
            conditions.append(f"(NOT {one_of('source_id', self.exclude_sources)})")
        return " AND ".join(conditions)

    @property
    def access_condition(self) -> str:
        """The access rule alone as SQL, for rows whose copy of the access record is current."""
        return access.predicate(self.principal, self.letter_case)

    @property
    def _readable(self) -> str:
        """The access rule for chunks; sources in `changed` are judged here by their records."""
        if not self.changed:
            return self.access_condition
        visible_ids = [record.id for record in self.changed if self._sees(record.access)]
        unchanged = f"(NOT {one_of('source_id', [record.id for record in self.changed])})"
        return f"(({self.access_condition} AND {unchanged}) OR {one_of('source_id', visible_ids)})"

    def _sees(self, record: Access | None) -> bool:
        return access.visible(self.principal, record, self.letter_case)

    async def strict(self) -> StrictReader | StrictReaderInMemory:
        """A reader of only those rows that the principal may read, whatever the request."""
        readable, collection = self._unnarrowed, self.collection
        # Elsewhere the labels of records don't say all: walls are on fields, a tag's source has two records,
        # and rows of attached tables have none.
        by_labels = self.walls == () and not (collection.tag_of or collection.attached)
        asker = Asker(
            readable.where,
            readable.admits,
            self.access_condition if by_labels else "",
            (self.principal, self.letter_case),
        )
        return await strict_reader(self.table, asker)

    @property
    def _unnarrowed(self) -> View:
        """The view without the request's conditions. Those of the principal stay."""
        return replace(self, filter=None, sources=None, exclude_sources=(), contains=())

    async def has_any(self) -> bool:
        """Whether the principal may read anything of the collection, whatever the request."""
        if self.table.retrieves:
            return True  # a retriever's passages are unknown until it is called
        # Without these, one access record decides for each source, and no chunk need be read.
        if not self.walls and not self.expired and not self.collection.tag_of:
            return await self.table.has_any(self.access_condition)
        readable = self._unnarrowed
        first_rows = await self.table.matching_sources(readable.where, rows=FIRST_ROWS)
        if any(readable.admits(listed.stored) for listed in first_rows):
            return True
        # All of the first rows were stale copies: read the rest.
        return len(first_rows) == FIRST_ROWS and any(
            readable.admits(listed.stored) for listed in await self.table.matching_sources(readable.where)
        )

    async def page(self, after: str, limit: int) -> list[ListedSource]:
        """Up to `limit` sources with ids behind `after`, in order, that the principal may read.

        Whatever the request, and before the gate. Fewer than `limit` only at the end.
        """
        if not self.walls and not self.expired:
            return await self.table.page(after, limit, self.access_condition)
        return await self.table.matching_sources(self._unnarrowed.where, after=after, first=limit)

    async def walk(self, beginning: str | None = None) -> AsyncGenerator[list[StoredSource]]:
        """All sources that the principal may read, whatever the request, in unordered batches.

        With a `beginning` in lower case, only those whose id, title or path begins with it in any case.
        """
        readable = self._unnarrowed
        async for batch in self.table.walk(self.access_condition, beginning):
            yield [source for source in batch if readable.admits(source)]

    async def places(self) -> list[SourcePlace]:
        """The places of all sources that the principal may read, whatever the request; unordered."""
        readable, places = self._unnarrowed, await self.table.places(self.access_condition)
        return await to_thread.run_sync(
            lambda: [stored_place for stored_place in places if readable.admits(stored_place)]
        )

    async def readable(self, ids: AbstractCollection[str]) -> list[str]:
        """The ids of the sources that the principal may read, whatever the request."""
        stored = await self.table.sources(ids) if ids else {}
        return [id_ for id_, source in stored.items() if self._unnarrowed.admits(source)]

    async def at_path(self, path: str) -> list[str]:
        """The ids of the readable sources with this path, with or without its collection, in any form.

        Without one, the sources whose path ends with it, like the name of a file; rarely more than `SEVERAL`.
        """
        path = folded(path)
        paths = {path, path.removeprefix(f"{self.name}/")}
        # Rows of attached tables have no paths, and each look would read all of them.
        attributes = {} if self.collection.attached else await self.table.attributes() or {}
        with_path, ending = await to_thread.run_sync(_ids_at_path, attributes, paths)
        readable = await self.readable(with_path)
        others = iter(() if readable else ending)
        while len(readable) < SEVERAL and (batch := [*islice(others, LOOKED_AT)]):
            readable += await self.readable(batch)
        return readable

    def admits(self, source: StoredSource | SourcePlace) -> bool:
        """Whether chunks of this source may leave: the same conditions as `where`, checked in Python."""
        id_ = source.id
        return (
            id_ not in self.expired
            and self._sees(source.access)
            and all(matches(wall, source.fields) for wall in self.walls)
            and self._matches(source)
            and (self.sources is None or id_ in self.sources)
            and id_ not in self.exclude_sources
        )

    def _matches(self, source: StoredSource | SourcePlace) -> bool:
        """Whether a source satisfies the filter, unless it is decided by chunk."""
        if self.filter is None or self.is_by_section:
            return True
        return isinstance(source, StoredSource) and matches(self.filter, self.values(source))

    def values(self, source: StoredSource) -> Mapping[str, Value]:
        """What a filter can be on: the attributes of a source and its declared fields."""
        return source.values(self.collection.fields)

    @property
    def is_by_section(self) -> bool:
        """Whether the filter is on sections, so that it is decided for each chunk."""
        return self.filter is not None and any(
            leaf.field == OF_CHUNKS and leaf in self.resolved for leaf in leaves(self.filter)
        )

    def admits_chunk(self, source: StoredSource, chunk: StoredChunk) -> bool:
        """Whether a chunk of an admitted source may leave: the filter may be on sections."""
        if self.filter is None or not self.is_by_section:
            return True
        section = {OF_CHUNKS: chunk.section} if chunk.section else {}
        return matches(self.filter, {**self.values(source), **section})

    def has_texts(self, chunk: Chunk) -> bool:
        """Whether a chunk has all texts that a hit must contain, which the engine's SQL only sifts."""
        return all(text.occurs_in(chunk.text) for text in self.contains)

    def may_match_now(self, source: StoredSource) -> bool:
        """Whether only the resolved filter withholds the source, which may have changed since."""
        return bool(self.resolved) and replace(self, filter=None).admits(source)

    @property
    def of_all_sections(self) -> View:
        """The view for showing text around hits: a filter on sections doesn't apply to that."""
        return replace(self, filter=None) if self.is_by_section else self


async def narrow_views(views: Sequence[View], plan: SearchPlan) -> list[View]:
    """The views, restricted to the plan's sources and filter; see `filtered_views`."""
    narrower = [
        replace(view, sources=plan.sources, exclude_sources=plan.exclude_sources, contains=plan.contains)
        for view in views
    ]
    return narrower if plan.filter is None else await filtered_views(narrower, plan.filter)


async def filtered_views(views: Sequence[View], filter_: Mapping[str, object]) -> list[View]:
    """The views, restricted to what satisfies a filter.

    If only some of the collections declare a field of the filter, the sources of the others count as having
    no value for it.

    Raises:
        InvalidRequestError: the filter is malformed, or doesn't suit the fields of these collections.
    """
    declared = [view.collection.fields for view in views]
    everywhere = {name: kind for fields in declared for name, kind in fields.items()}
    kinds = [everywhere | filterable(fields) for fields in declared]
    try:
        filters = await to_thread.run_sync(_parse_filters, filter_, kinds)
    except InvalidRequestError as error:
        differing = {name for fields in kinds for name in fields if fields[name] != kinds[0][name]}
        if not differing:
            raise
        names = ", ".join(sorted(differing))
        raise InvalidRequestError(
            f"{error} The collections searched declare these fields with different types: {names}; "
            "name one collection to filter by them."
        ) from error
    return [
        replace(view, filter=parsed, resolved=await resolve_attributes(view.table, parsed))
        for view, parsed in zip(views, filters, strict=True)
    ]


def _ids_at_path(
    attributes: Mapping[str, Mapping[str, Value]], paths: AbstractCollection[str]
) -> tuple[list[str], list[str]]:
    """The ids of the sources with one of these paths, and of sources whose longer path ends with one."""
    ends = tuple(f"/{path}" for path in paths)
    with_path, ending = [], []
    for id_, values in attributes.items():
        path = folded(str(values.get("path", "")))
        if path in paths:
            with_path.append(id_)
        elif path.endswith(ends):
            ending.append(id_)
    return with_path, ending


WITH_COLLECTION = "A path in a filter begins below the collection: {} instead of {}."
NO_PATTERNS = (
    "A filter takes texts as they are, without wildcards. Use $prefix for the beginning of a value, such as "
    "a folder, $suffix for its end, such as .md, and $contains for a part of it."
)


def path_notes(views: Sequence[View]) -> list[str]:
    """A note for a filter without results that has a path with its collection, a wildcard, or a folder."""
    filter_ = views[0].filter if views else None
    if filter_ is None:
        return []
    names = {view.name for view in views}
    for path in _paths(filter_):
        collection, _, inner = path.partition("/")
        if inner and collection.lower() in names:
            return [WITH_COLLECTION.format(label(inner), label(path))]
    return [NO_PATTERNS] if any(map(_seems_pattern, leaves(filter_))) else []


def _seems_pattern(leaf: Leaf) -> bool:
    match leaf:
        case OneOf(field, _, values):
            texts = [value for value in values if isinstance(value, str)]
            return any("*" in text or (field == "path" and text.endswith("/")) for text in texts)
        case Like(_, _, _, text):
            return "*" in text
        case _:
            return False


def _paths(filter_: Filter) -> Iterator[str]:
    for leaf in leaves(filter_):
        match leaf:
            case OneOf("path", _, values):
                yield from map(str, values)
            case Like("path", _, "$prefix", text):
                yield text


SOME_UNDATED = (
    "A filter on dates finds only documents with a date in their metadata, and some have none. A list with "
    "sort=date goes by the dates of texts, paths and files, too."
)


async def undated_notes(views: Sequence[View]) -> list[str]:
    """A note if a filter on dates leaves out readable documents because their metadata has none.

    Attached tables aren't looked at: all their rows would be read once more.
    """
    for view in views:
        if view.filter is None or view.collection.attached or not _asks_for_date(view.filter):
            continue
        if "date" in view.collection.fields:  # then the filter is on this field
            continue
        attributes = await view.table.attributes() or {}
        undated = (id_ for id_, values in attributes.items() if "date" not in values)
        if await view.readable([*islice(undated, LOOKED_AT)]):
            return [SOME_UNDATED]
    return []


def _asks_for_date(filter_: Filter) -> bool:
    """Whether no document without a date matches one of the conditions."""
    match filter_:
        case AllOf(parts) | AnyOf(parts):
            return any(map(_asks_for_date, parts))
        case OneOf("date") | Ordered("date"):
            return True
        case _:
            return False


def _parse_filters(filter_: Mapping[str, object], kinds: Sequence[Mapping[str, FieldType]]) -> list[Filter]:
    """The filter for each collection, parsed once for all with the same fields."""
    filters: dict[frozenset[tuple[str, FieldType]], Filter] = {}
    for fields in kinds:
        if (key := frozenset(fields.items())) not in filters:
            filters[key] = parse_filter(filter_, fields)
    return [filters[frozenset(fields.items())] for fields in kinds]


# Filters on what every document has: title, path and date of a source, and the section of a chunk.  The chunk
# table has no columns for a source's title, path and date. So a condition on them is resolved before the
# search: it is evaluated for each source and becomes a list of source ids in SQL. It is right at once, also
# after a document has moved.  Measured with 3,000 sources of 20 chunks: 8 ms to read them, once after each
# change of the collection, 1 ms for a condition, and up to 9 ms for its ids, most where half of the sources
# match. Indexed columns would save only the last part.

HAS_SECTION = f"(coalesce(array_length({OF_CHUNKS}), 0) > 0)"  # the column is never null, but can be empty


async def resolve_attributes(table: CollectionReader, filter_: Filter) -> dict[Leaf, str | None]:
    """The filter's conditions on undeclared attributes, as SQL that is never null.

    None for a condition that can't be decided before the search: a retriever's sources are unknown then.
    """
    ours = [
        leaf
        for leaf in dict.fromkeys(leaves(filter_))
        if leaf.field in ATTRIBUTES and leaf.field not in table.collection.fields
    ]
    has_sections = table.collection.attached is None
    conditions: dict[Leaf, str | None] = {
        leaf: _section_condition(leaf) if has_sections else "(false)"
        for leaf in ours
        if leaf.field == OF_CHUNKS
    }
    unresolved = [leaf for leaf in ours if leaf not in conditions]
    sources = await table.attributes() if unresolved else None
    for leaf in unresolved:
        conditions[leaf] = None if sources is None else _matching_ids_condition(leaf, sources)
    return conditions


def _section_condition(leaf: Leaf) -> str:
    return HAS_SECTION if isinstance(leaf, Present) else leaf_predicate(leaf, OF_CHUNKS)


def _matching_ids_condition(leaf: Leaf, sources: Mapping[str, Mapping[str, Value]]) -> str:
    """The matching sources as SQL: their ids, or NOT the others' ids, whichever list is shorter."""
    matching = [id_ for id_, values in sources.items() if matches(leaf, values)]
    if len(matching) <= len(sources) / 2:  # each id of a predicate costs the engine time
        return one_of("source_id", matching)
    return f"(NOT {one_of('source_id', sorted({*sources} - {*matching}))})"


TABLE_FAILING = (
    "A table or a retriever that the operator attached is failing, perhaps the one with what you asked "
    "for. Try again later."
)
UNREADABLE = "The request names a collection that you can't read. Readable collections: {}."
NOT_READABLE = "Not searched, because you can't read them: {}. Readable collections: {}."
NAMED = 5  # unreadable collections in a note; the request may name any number
COLLECTIONS_NAMED = 20  # others: a model chooses among them


def readable_request(
    request: SearchRequest, views: Mapping[str, View], failing: Sequence[str]
) -> tuple[SearchRequest, list[str]]:
    """The request without unreadable collections, and a note that names them.

    Unchanged if all are unreadable: then `chosen_views` raises. Missing collections count as unreadable.
    """
    names = request.collections or ()
    unreadable = [name for name in dict.fromkeys(names) if name not in views and name not in failing]
    readable = tuple(name for name in names if name not in unreadable)
    if not unreadable or not readable:
        return request, []
    note = NOT_READABLE.format(", ".join(map(label, unreadable[:NAMED])), joined_names(views))
    return replace(request, collections=readable), [note]


def chosen_views(
    principal: Principal, plan: SearchPlan, views: Mapping[str, View], failing: Sequence[str]
) -> list[View]:
    """The views of the collections to search: those that the plan names, or all, except the excluded ones.

    Tags are searched only if the plan or the principal's bindings name them.

    Raises:
        NotFoundError: a named or excluded collection is unreadable (a misspelt name would exclude nothing).
            The error doesn't reveal whether it exists.
        StoreError: a named collection is failing.
    """
    names = plan.collections
    if not {*names}.isdisjoint(failing):
        raise StoreError(TABLE_FAILING, for_caller=TABLE_FAILING)
    if not views.keys() >= {*names, *plan.exclude_collections}:
        raise NotFoundError(UNREADABLE.format(joined_names(views)))
    bound_names = (principal.bindings and bounds(principal.bindings).collections) or ()
    usual = (name for name, view in views.items() if not view.collection.tag_of or name in bound_names)
    chosen = dict.fromkeys(names or sorted(usual))
    views_left = [views[name] for name in chosen if name not in plan.exclude_collections]
    if chosen and not views_left:
        raise InvalidRequestError("exclude_collections leaves no collection to search.")
    return views_left


LACKING_FIELDS = "Not searched, because they lack a field of the profile's filter: {}."
PATH = re.compile(r"[^\s:]{1,300}\.\w{1,8}")
IS_PATH = "{} names a document; to open it, use its id: {}."


def within_profile(
    views: dict[str, View], plan: SearchPlan, principal: Principal
) -> tuple[dict[str, View], list[str]]:
    """The views with the profile's filter as a wall, and a note on collections without its fields."""
    if plan.profile_filter is None:
        return views, []
    # As a wall it holds for every read of the view, whatever is relaxed, listed or retried.
    bound = replace(principal, bindings=(*principal.bindings, Binding(filter=plan.profile_filter)))
    searched = {
        name: replace(view, principal=bound)
        for name, view in views.items()
        if walls(bound.bindings, view.collection) is not None
    }
    lacking = views.keys() - searched.keys()
    return searched, [LACKING_FIELDS.format(joined_names(lacking))] if lacking else []


async def file_notes(plan: SearchPlan, views: Sequence[View]) -> list[str]:
    """A note if the query is the path of a document, or its end: passages of others may come first."""
    if not PATH.fullmatch(plan.query):
        return []
    ids = [id_ for view in views for id_ in await view.at_path(plan.query)]
    return [IS_PATH.format(label(plan.query), ids[0])] if len(ids) == 1 else []


def joined_names(collections: Iterable[str]) -> str:
    """The first names of collections, sorted; "none" without any. A tenant may have hundreds."""
    return names_briefly(sorted(collections), COLLECTIONS_NAMED) or "none"
