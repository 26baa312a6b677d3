"""What a principal may find in a collection with one request, as SQL and as a check in Python."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from anyio import to_thread

from rag.access import rule as access
from rag.access.bindings import walls
from rag.errors import InvalidRequestError
from rag.filters.evaluators import leaf_predicate, matches, predicate
from rag.filters.grammar import ATTRIBUTES, OF_CHUNKS, Filter, Leaf, Present, filterable, leaves, parse_filter
from rag.store.read.schema import contains, field_column, one_of
from rag.store.read.stored_rows import ListedSource, SourcePlace, StoredChunk, StoredSource
from rag.store.read.strict_reader import StrictReader, readable_only

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from rag.corpus import Access, AccessRecord, FieldType, LetterCase, Principal, Value
    from rag.needles.needle import Needle
    from rag.search.search_plan import SearchPlan
    from rag.store.read.collection_reader import CollectionReader

NOTHING = "(false)"  # in SQL
FIRST_ROWS = 16  # of which one is readable, unless copies are stale: reading them all takes longer


@dataclass(frozen=True, slots=True)
class View:
    """A collection as one request sees it.

    Every read of chunks is filtered by `where`, and every row that leaves has passed `admits`, which checks
    the source's own record. `walls` are the conditions of the principal's bindings, None if these admit
    nothing of the collection; no request, stage or retry can drop them. `changed` are access records whose
    copies on the chunks are not updated yet; for these sources the record counts, not the copies. If its
    vectors are not `comparable` with those of the queries, because another model made them or theirs fails,
    the view has no dense list and no similarities. Each chunk that is found has all texts of
    `contains`. `resolved` are the conditions of the filter on what isn't declared, in the engine's SQL
    (`resolved`). The sources in `expired` are as absent as those that don't exist.
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
    walls: tuple[Filter, ...] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Derive the walls from the principal, so that there is no view without them."""
        bindings = self.principal.bindings
        object.__setattr__(self, "walls", walls(bindings, self.table.collection) if bindings else ())

    @property
    def where(self) -> str:
        """All conditions in the engine's SQL: access AND bindings AND filter AND sources AND texts."""
        return " AND ".join([self.of_sources, *map(contains, self.contains)])

    @property
    def of_sources(self) -> str:
        """The conditions that hold for a source as a whole: all but those on the text of a chunk."""
        if self.walls is None:
            return NOTHING
        filters = self.walls if self.filter is None else (*self.walls, self.filter)
        declared = self.table.collection.fields
        conditions = [
            self._readable,
            *(predicate(one, declared, field_column, resolved=self.resolved) for one in filters),
        ]
        if self.sources is not None:
            conditions.append(one_of("source_id", self.sources))
        if self.expired:
            conditions.append(f"(NOT {one_of('source_id', sorted(self.expired))})")
        if self.exclude_sources:
            conditions.append(f"(NOT {one_of('source_id', self.exclude_sources)})")
        return " AND ".join(conditions)

    @property
    def by_labels(self) -> str:
        """The access rule alone in the engine's SQL, for rows whose copy of the access record is current."""
        return access.predicate(self.principal, self.letter_case)

    @property
    def _readable(self) -> str:
        """The access rule for chunks. The sources in `changed` are judged here, by their records."""
        if not self.changed:
            return self.by_labels
        seen = [one.id for one in self.changed if self._sees(one.access)]
        others = f"(NOT {one_of('source_id', [one.id for one in self.changed])})"
        return f"(({self.by_labels} AND {others}) OR {one_of('source_id', seen)})"

    def _sees(self, record: Access | None) -> bool:
        return access.visible(self.principal, record, self.letter_case)

    async def strict(self) -> StrictReader:
        """A reader for which the collection holds only what the principal may read, whatever the request."""
        readable = self._unnarrowed
        return await readable_only(self.table, readable.where, readable.admits)

    @property
    def _unnarrowed(self) -> View:
        """The view without the conditions of a request; those of the principal stay."""
        return replace(self, filter=None, sources=None, exclude_sources=(), contains=())

    async def has_any(self) -> bool:
        """Whether the principal may read anything of the collection, whatever the request."""
        if self.table.retrieves:
            return self.walls is not None  # what a retriever has is not known before it is asked
        if self.walls is None:
            return False
        if not self.walls and not self.expired and not self.table.collection.tag_of:
            return await self.table.has_any(self.by_labels)
        readable = self._unnarrowed
        some = await self.table.matching_sources(readable.where, rows=FIRST_ROWS)
        if any(readable.admits(listed.stored) for listed in some):
            return True
        # The gate may have withheld stale copies.
        return len(some) == FIRST_ROWS and any(
            readable.admits(listed.stored) for listed in await self.table.matching_sources(readable.where)
        )

    async def page(self, after: str, limit: int) -> list[ListedSource]:
        """Up to `limit` sources whose ids follow `after`, in order, before the gate has checked them.

        Those that the principal may read, whatever the request. There are fewer only if no more follow.
        """
        if not self.walls and not self.expired:
            return [] if self.walls is None else await self.table.page(after, limit, self.by_labels)
        return await self.table.matching_sources(self._unnarrowed.where, after=after, first=limit)

    async def walk(self, beginning: str | None = None) -> AsyncGenerator[list[StoredSource]]:
        """All sources that the principal may read, whatever the request, some at a time, in no order.

        With a `beginning`, in lower case, only those whose id, title or path has it, whatever its case.
        """
        readable = self._unnarrowed
        if self.walls is not None:
            async for some in self.table.walk(self.by_labels, beginning):
                yield [source for source in some if readable.admits(source)]

    async def places(self) -> list[SourcePlace]:
        """Where all sources stand that the principal may read, whatever the request, in no order."""
        if self.walls is None:
            return []
        readable, places = self._unnarrowed, await self.table.places(self.by_labels)
        return await to_thread.run_sync(lambda: [place for place in places if readable.admits(place)])

    def admits(self, source: StoredSource | SourcePlace) -> bool:
        """Whether chunks of this source may leave: the same conditions as `where`, checked in Python."""
        id_ = source.id
        return (
            self.walls is not None
            and id_ not in self.expired
            and self._sees(source.access)
            and all(matches(wall, source.fields) for wall in self.walls)
            and self._matches(source)
            and (self.sources is None or id_ in self.sources)
            and id_ not in self.exclude_sources
        )

    def _matches(self, source: StoredSource | SourcePlace) -> bool:
        """Whether a source satisfies the filter, as far as it decides. A place says too little for that."""
        if self.filter is None or self.is_by_section:
            return True
        return isinstance(source, StoredSource) and matches(self.filter, self._values(source))

    def _values(self, source: StoredSource) -> Mapping[str, Value]:
        return source.values(self.table.collection.fields)

    @property
    def is_by_section(self) -> bool:
        """Whether the filter decides anew for each chunk of a source."""
        return self.filter is not None and any(
            leaf.field == OF_CHUNKS and leaf in self.resolved for leaf in leaves(self.filter)
        )

    def admits_chunk(self, source: StoredSource, chunk: StoredChunk) -> bool:
        """Whether a chunk of a source that is admitted may leave: not all may if the filter is by section."""
        if self.filter is None or not self.is_by_section:
            return True
        section = {OF_CHUNKS: chunk.section} if chunk.section else {}
        return matches(self.filter, {**self._values(source), **section})

    def overtaken(self, source: StoredSource) -> bool:
        """Whether only the filter keeps a source back that may have changed since the filter was resolved."""
        return bool(self.resolved) and replace(self, filter=None).admits(source)

    @property
    def whole(self) -> View:
        """The view of the sources that have hits, for what is shown around these: not only their sections."""
        return replace(self, filter=None) if self.is_by_section else self


async def narrow_views(views: Sequence[View], plan: SearchPlan) -> list[View]:
    """The views, restricted to the plan's sources and filter.

    If only some of the collections declare a field of the filter, the sources of the others count as having
    no value for it.

    Raises:
        InvalidRequestError: the filter is malformed, or doesn't suit the fields of these collections.
    """
    narrower = [
        replace(view, sources=plan.sources, exclude_sources=plan.exclude_sources, contains=plan.contains)
        for view in views
    ]
    if plan.filter is None:
        return narrower
    declared = [view.table.collection.fields for view in views]
    everywhere = {name: kind for fields in declared for name, kind in fields.items()}
    kinds = [everywhere | filterable(fields) for fields in declared]
    try:
        filters = await to_thread.run_sync(_parsed, plan.filter, kinds)
    except InvalidRequestError as error:
        differing = {name for one in kinds for name in one if one[name] != kinds[0][name]}
        if not differing:
            raise
        names = ", ".join(sorted(differing))
        raise InvalidRequestError(
            f"{error} The collections searched declare these fields with different types: {names}; "
            "name one collection to filter by them."
        ) from error
    return [
        replace(view, filter=filter_, resolved=await resolve_attributes(view.table, filter_))
        for view, filter_ in zip(narrower, filters, strict=True)
    ]


def _parsed(written: Mapping[str, object], kinds: Sequence[Mapping[str, FieldType]]) -> list[Filter]:
    """The filter for the fields of each collection, parsed once for all that have the same."""
    filters: dict[frozenset[tuple[str, FieldType]], Filter] = {}
    for fields in kinds:
        if (key := frozenset(fields.items())) not in filters:
            filters[key] = parse_filter(written, fields)
    return [filters[frozenset(fields.items())] for fields in kinds]


# Filters by what every document has: title, path and date of a source, and the section of a chunk.
#
# The chunk table has no columns of a source's title, path and date. A condition on them is resolved before
# the search: it is evaluated for each source, and becomes a list of source ids in the engine's SQL. So it is
# right at once in every collection, also after a document has moved.
#
# Measured with 3,000 sources of 20 chunks: 8 ms to read them, once after each change of the collection, 1 ms
# for a condition, and up to 9 ms for its ids, most where half of the sources match. Columns with indexes
# would save only the last of these.

HAS_SECTION = f"(coalesce(array_length({OF_CHUNKS}), 0) > 0)"  # the column is never null, but can be empty


async def resolve_attributes(table: CollectionReader, filter_: Filter) -> dict[Leaf, str | None]:
    """The conditions of a filter on what the collection doesn't declare, as SQL that is never null.

    None for one that can't be decided before the search, because the sources are not known then.
    """
    ours = [
        leaf
        for leaf in dict.fromkeys(leaves(filter_))
        if leaf.field in ATTRIBUTES and leaf.field not in table.collection.fields
    ]
    has_sections = table.collection.attached is None
    conditions: dict[Leaf, str | None] = {
        leaf: _of_section(leaf) if has_sections else "(false)" for leaf in ours if leaf.field == OF_CHUNKS
    }
    others = [leaf for leaf in ours if leaf not in conditions]
    sources = await table.attributes() if others else None
    for leaf in others:
        conditions[leaf] = None if sources is None else _among(leaf, sources)
    return conditions


def _of_section(leaf: Leaf) -> str:
    return HAS_SECTION if isinstance(leaf, Present) else leaf_predicate(leaf, OF_CHUNKS)


def _among(leaf: Leaf, sources: Mapping[str, Mapping[str, Value]]) -> str:
    """The sources that match, by the shorter of two lists: theirs, or that of the others."""
    matching = [id_ for id_, values in sources.items() if matches(leaf, values)]
    if len(matching) <= len(sources) / 2:
        return one_of("source_id", matching)
    return f"(NOT {one_of('source_id', sorted({*sources} - {*matching}))})"
