"""What a principal may find in a collection with one request, as SQL and as a check in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.access import rule as access
from rag.errors import InvalidRequestError
from rag.filters.matches import matches
from rag.filters.parse import parse
from rag.filters.predicate import predicate
from rag.store.schema import field_column, one_of
from rag.store.strict import readable_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.corpus import Access, AccessRecord, LetterCase, Principal
    from rag.filters.tree import Filter
    from rag.search.plan import Plan
    from rag.store.reader import CollectionReader, StoredSource
    from rag.store.strict import StrictReader


@dataclass(frozen=True, slots=True)
class View:
    """A collection as one request sees it.

    Every read of chunks is filtered by `where`, and every row that leaves has passed `admits`, which checks
    the source's own record. `changed` are access records whose copies on the chunks are not updated yet; for
    these sources the record counts, not the copies. If its vectors are not `comparable` with those of the
    queries, because another model made them, the view has no dense list and no similarities.
    """

    table: CollectionReader
    principal: Principal
    filter: Filter | None = None
    sources: tuple[str, ...] | None = None
    exclude_sources: tuple[str, ...] = ()
    letter_case: LetterCase = "allow"
    changed: tuple[AccessRecord, ...] = ()
    comparable: bool = True

    @property
    def where(self) -> str:
        """All conditions in the engine's SQL: access AND filter AND sources."""
        conditions = [self._readable]
        if self.filter is not None:
            conditions.append(predicate(self.filter, self.table.collection.fields, field_column))
        if self.sources is not None:
            conditions.append(one_of("source_id", self.sources))
        if self.exclude_sources:
            conditions.append(f"(NOT {one_of('source_id', self.exclude_sources)})")
        return " AND ".join(conditions)

    @property
    def by_labels(self) -> str:
        """The access rule in the engine's SQL, for rows whose copy of the access record is current."""
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
        readable = replace(self, filter=None, sources=None, exclude_sources=())
        return await readable_only(self.table, readable.where, readable.admits)

    def admits(self, source: StoredSource) -> bool:
        """Whether chunks of this source may leave: the same conditions as `where`, checked in Python."""
        id_ = source.source.id
        return (
            self._sees(source.access)
            and (self.filter is None or matches(self.filter, source.fields))
            and (self.sources is None or id_ in self.sources)
            and id_ not in self.exclude_sources
        )


def narrowed(views: Sequence[View], plan: Plan) -> list[View]:
    """The views, restricted to the plan's sources and filter.

    If only some of the collections declare a field of the filter, the sources of the others count as having
    no value for it.

    Raises:
        InvalidRequestError: the filter is malformed, or doesn't suit the fields of these collections.
    """
    narrower = [replace(view, sources=plan.sources, exclude_sources=plan.exclude_sources) for view in views]
    if plan.filter is None:
        return narrower
    declared = [view.table.collection.fields for view in views]
    everywhere = {name: kind for fields in declared for name, kind in fields.items()}
    try:
        filters = [parse(plan.filter, {**everywhere, **fields}) for fields in declared]
    except InvalidRequestError as error:
        differing = {name for fields in declared for name in fields if fields[name] != everywhere[name]}
        if not differing:
            raise
        names = ", ".join(sorted(differing))
        raise InvalidRequestError(
            f"{error} The collections searched declare these fields with different types: {names}; "
            "name one collection to filter by them."
        ) from error
    return [replace(view, filter=filter_) for view, filter_ in zip(narrower, filters, strict=True)]
