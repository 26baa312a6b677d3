"""Judgements: what each question should find, resolved to the sources of a data folder."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag.access.rule import visible
from rag.answers import Hit
from rag.corpus import LetterCase, Principal
from rag.errors import ConfigurationError
from rag.evaluate.judged_sets import Excerpt, Question
from rag.evaluate.ranking_metrics import Stretch
from rag.filters.grammar import ATTRIBUTES, OF_CHUNKS, matches, parse_filter
from rag.uris import resource_uri

if TYPE_CHECKING:
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.desk_reader import DeskReader
    from rag.store.read.schema import StoredSource

HALF = 0.5


@dataclass(frozen=True, slots=True)
class Target:
    """Something to find: any of `sources` or, if there are `stretches`, any of these."""

    name: str
    grade: int
    sources: frozenset[str]
    stretches: tuple[Stretch, ...] = ()

    def is_found_by(self, hit: Hit) -> bool:
        """Whether the hit's chunk contains it; see `is_found_in`."""
        return self.is_found_in([_chunk_stretch(hit)])

    def is_found_in(self, parts: Sequence[Stretch]) -> bool:
        """Whether a part is from a source, or overlaps a stretch by half of the shorter of the two."""
        if not self.stretches:
            return any(part.source_id in self.sources for part in parts)
        return any(_overlaps(part, stretch) for part in parts for stretch in self.stretches)


@dataclass(frozen=True, slots=True)
class ResolvedQuestion:
    """A question with its targets, and the sources from which its hits may come."""

    question: Question
    principal: Principal
    targets: tuple[Target, ...]
    sources: tuple[str, ...] | None
    exclude_sources: tuple[str, ...]
    readable: frozenset[str]

    @property
    def grades(self) -> dict[str, int]:
        """The targets' grades by name."""
        return {target.name: target.grade for target in self.targets}

    @property
    def of_passages(self) -> bool:
        """Whether the targets are passages, not sources."""
        return any(target.stretches for target in self.targets)

    def expected_stretches(self, shown_parts: Sequence[Stretch]) -> list[Stretch]:
        """The stretch of each target to score; of several, the one that the parts cover most."""

        def covered(stretch: Stretch) -> int:
            return sum(
                max(0, _common(part, stretch)) for part in shown_parts if part.source_id == stretch.source_id
            )

        return [max(target.stretches, key=covered) for target in self.targets if target.stretches]

    def ranking(self, hits: Iterable[Hit]) -> list[str]:
        """The ranking for the metrics, best first: names of found targets, and ids of other hits.

        A target counts at the first hit that finds it. Other hits count once per passage if passages are
        expected, else once per source.
        """
        return self.ranked((hit.chunk.id, [_chunk_stretch(hit)]) for hit in hits)

    def ranked(self, results: Iterable[tuple[str, Sequence[Stretch]]]) -> list[str]:
        """The same for results, each given as its id and the parts of a source that it shows."""
        ranking: dict[str, None] = {}
        for id_, parts in results:
            names = [target.name for target in self.targets if target.is_found_in(parts)]
            ranking |= dict.fromkeys(names or [id_ if self.of_passages else id_.partition("/")[0]])
        return list(ranking)

    def leaks(self, hits: Iterable[Hit]) -> list[str]:
        """The ids of hits that the principal may not see or the question excludes."""
        return [hit.chunk.id for hit in hits if not self._allows(hit)]

    def _allows(self, hit: Hit) -> bool:
        collections = self.question.asking.collections
        return (
            hit.source.id in self.readable
            and (collections is None or hit.source.collection in collections)
            and (self.sources is None or hit.source.id in self.sources)
            and hit.source.id not in self.exclude_sources
        )


def _chunk_stretch(hit: Hit) -> Stretch:
    return Stretch(hit.source.id, hit.chunk.start, hit.chunk.end)


def _overlaps(part: Stretch, stretch: Stretch) -> bool:
    shorter = min(part.end - part.start, stretch.end - stretch.start)
    return part.source_id == stretch.source_id and _common(part, stretch) >= HALF * shorter


def _common(first: Stretch, second: Stretch) -> int:
    return min(first.end, second.end) - max(first.start, second.start)


@dataclass(slots=True)
class SourceCatalog:
    """The sources of a tenant, by all names that judgements may use, and where letter case matters."""

    letter_case: LetterCase
    tables: dict[str, CollectionReader] = field(default_factory=dict)
    stored: dict[str, StoredSource] = field(default_factory=dict)
    by_name: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    texts: dict[str, str] = field(default_factory=dict)

    def add(self, stored: StoredSource, table: CollectionReader, name: str | None) -> None:
        """Add a source; `name` is its name in the judged set."""
        source = stored.source
        self.tables[source.id] = table
        self.stored[source.id] = stored
        uri = resource_uri(source.collection, source.id)
        names = {source.id, uri, source.uri, source.url, source.metadata.get("path"), name}
        for source_name in names - {None}:
            self.by_name[str(source_name)].add(source.id)

    def readable(self, principal: Principal, filter_: Mapping[str, object] | None) -> frozenset[str]:
        """The sources that the principal may see and that match the filter, without the engine's predicates.

        Raises:
            InvalidRequestError: the filter is invalid.
        """
        visible_sources = {
            id_: source
            for id_, source in self.stored.items()
            if visible(principal, source.access, self.letter_case)
        }
        if filter_ is None:
            return frozenset(visible_sources)
        fields = {name: kind for name, kind in ATTRIBUTES.items() if name != OF_CHUNKS}
        for table in self.tables.values():
            fields.update(table.collection.fields)
        tree = parse_filter(filter_, fields)
        return frozenset(
            id_
            for id_, source in visible_sources.items()
            if matches(tree, source.values(self.tables[id_].collection.fields))
        )

    async def text(self, source_id: str) -> str:
        """The source's text."""
        if source_id not in self.texts:
            stored_text = await self.tables[source_id].text(source_id)
            self.texts[source_id] = stored_text[2] if stored_text else ""
        return self.texts[source_id]


async def load_catalog(
    reader: DeskReader, tenant: str, *, names: Mapping[str, str], only: str | None = None
) -> SourceCatalog:
    """The tenant's sources, in one collection or all; `names` are a set's names of files by path."""
    catalog = SourceCatalog(reader.letter_case)
    for collection in await reader.collections(tenant):
        if only in {None, collection.name}:
            table = await reader.open(collection)
            for stored in await table.all_sources():
                catalog.add(stored, table, names.get(stored.source.metadata.get("path", "")))
    return catalog


async def resolve_question(
    question: Question, principal: Principal, catalog: SourceCatalog, absent: frozenset[str]
) -> ResolvedQuestion:
    """Resolve a question's judgements to sources. Documents in `absent` count as never found.

    Raises:
        ConfigurationError: the question names an unknown source or quote.
        InvalidRequestError: its filter is invalid.
    """
    asking = question.asking
    return ResolvedQuestion(
        question,
        principal,
        tuple([target async for target in _targets(question, catalog, absent)]),
        None if asking.sources is None else tuple(_ids(question, set(asking.sources) - absent, catalog)),
        tuple(_ids(question, set(asking.exclude_sources) - absent, catalog)),
        catalog.readable(principal, asking.filter),
    )


async def _targets(
    question: Question, catalog: SourceCatalog, absent: frozenset[str]
) -> AsyncIterator[Target]:
    if not question.excerpts:
        for name, grade in question.documents.items():
            yield Target(name, grade, frozenset(_ids(question, {name} - absent, catalog)))
    for number, excerpt in enumerate(question.excerpts, 1):
        stretches = await _stretches(question, excerpt, catalog, absent)
        yield Target(f"passage {number}", 1, frozenset(), tuple(stretches))


def _ids(question: Question, names: Iterable[str], catalog: SourceCatalog) -> Iterator[str]:
    for name in names:
        if name not in catalog.by_name:
            close = difflib.get_close_matches(name, catalog.by_name, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise ConfigurationError(
                f"Question {question.id} names the source {name!r}, but no source has this id, URI, URL or "
                f"path.{hint}"
            )
        yield from catalog.by_name[name]


async def _stretches(
    question: Question, excerpt: Excerpt, catalog: SourceCatalog, absent: frozenset[str]
) -> list[Stretch]:
    """The positions of the quote, ignoring white space; if its start is known, only the nearest one."""
    ids = _ids(question, set(excerpt.documents) - absent, catalog)
    within = set(ids) if excerpt.documents else catalog.tables.keys()
    words = re.compile(r"\s+".join(map(re.escape, excerpt.quote.split())))
    places = [
        Stretch(id_, match.start(), match.end())
        for id_ in sorted(within)
        for match in words.finditer(await catalog.text(id_))
    ]
    if not places and not absent.intersection(excerpt.documents):
        raise ConfigurationError(
            f"Question {question.id} quotes {excerpt.quote[:60]!r}, but none of its expected sources "
            "contains this text. Copy the words exactly; line breaks and spaces don't matter."
        )
    if (start := excerpt.start) is None:
        return places
    return sorted(places, key=lambda span: abs(span.start - start))[:1]
