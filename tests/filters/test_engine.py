"""Filters and access through the real engine: it finds exactly what the rules in Python say, on every path.

Two tenants have sources with every nasty string and every kind of access record, in four states of their
tables: as written and rewritten, compacted, with all indexes, and changed since these were made.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_args

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st

from rag.access.rule import visible
from rag.answers import MAX_LIMIT, Mode, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, FieldType, Principal, Value
from rag.filters.grammar import ATTRIBUTES, MAX_DEPTH, OF_CHUNKS, OPERATORS, Filter, matches, parse_filter
from rag.runtime import concurrently
from rag.search.desk import Desk
from rag.search.view import View, resolve_attributes
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import Statistics
from rag.store.write import table_maintenance
from rag.store.write.change_collection import open_writer
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.make_collection import ensure_collection
from rag.store.write.table_rows import NewSource
from tests.filters.test_grammar_and_evaluators import FIELDS
from tests.small_desk import set_access

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

pytestmark = pytest.mark.slow

ALL = FIELDS | ATTRIBUTES
AS_WRITTEN, COMPACTED = "as written", "compacted"
INDEXED, CHANGED = "with all indexes", "changed since they were made"
TENANTS = ("north", "south")
SOURCES = 60  # of each tenant, with no more chunks in all than one search can show
BATCH = 10  # scans per example: they cost little beside the example itself
USUAL: int = settings.default.max_examples  # type: ignore[union-attr]  # there always is one
EXAMPLES = USUAL if USUAL >= 100 else USUAL // 2  # in each of four states of the tables

NASTY = [
    "",
    "' OR 1=1 --",
    "') OR ('1'='1",
    "1=1);",
    "1=1) -- ",
    "1=1)/*",
    "\\' OR 1=1 --",
    "'",
    "''",
    '"',
    "`",
    ";",
    "\\",
    "\\\\",
    "E'x'",
    "U&'x'",
    "$$x$$",
    "\u2019",
    "\u02bc",
    "\uff07",
    "\r\n",
    "\u202e",
    "%",
    "_",
    "{}",
    "?",
    "null",
    "true",
    "1",
    "é",
    "É",
    "e",
    "a b",
    "a b ",
    "a  B",
    "Iş İ",
    "第２章 ﾊﾟ",
    "ſtraße",
    "ב״מ־ה",
    "😀",
    "x" * 512,
]
NASTY_PARTS = (
    *(
        "a",
        "A",
        "x",
        "'",
        "%",
        "\\",
        "É",
        "e\u0301",
        " ",
        "😀",
        "' OR 1=1",
        "a b",
        "b ",
        '"',
        "-",
        "1=1);",
        "*",
    ),
    *("İ", "ı", "2", "s", "ss", "ﾊﾟ", "ハ"),
)
INTEGERS = [-(2**53), -1, 0, 1, 2, 2001, 2**53 - 1, 2**53]
NUMBERS = [-1.7e308, -1.5, -1e-300, 0.0, 5e-324, 0.1 + 0.2, 0.3, 1.0, 2001.0, 2.0**53, 1e22, 1.7e308]
MOMENTS = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1677, 9, 21, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 5, 1, 12, 30, 0, 1, tzinfo=UTC),
    datetime(2262, 4, 12, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]
USERS = ["ann", "hr", "O'Neill", "' OR 1=1 --", "x') OR (true"]
GROUPS = ["hr", "ann", "it's", "all", "*"]
ENTRIES = [f"user:{name}" for name in USERS] + [f"group:{name}" for name in GROUPS]
ALLOW_DENY = ([0, 1, 3], [0, 0, 1, 2])  # how many entries they hold


@dataclass(frozen=True, slots=True)
class Held:
    """A source as it was made: all that a filter goes by, and the section of each chunk by its id."""

    values: Mapping[str, Value]
    access: Access | None
    chunks: Mapping[str, tuple[str, ...]]

    def matching(self, condition: Filter | None) -> set[str]:
        """The chunks that satisfy a filter."""
        return {
            id_
            for id_, section in self.chunks.items()
            if condition is None
            or matches(condition, {**self.values, **({OF_CHUNKS: section} if section else {})})
        }


@dataclass(frozen=True, slots=True)
class Library:
    """The data folder in one state, and what is in it by tenant and source id."""

    state: str
    portal: BlockingPortal
    reader: DeskReader
    desk: Desk
    sources: Mapping[str, Mapping[str, Held]]

    def scanned(self, questions: Sequence[Asked]) -> list[set[str]]:
        """The chunks that the engine lets through, one by one, without the gate."""
        return self.portal.call(self._scanned, questions)

    async def _scanned(self, questions: Sequence[Asked]) -> list[set[str]]:
        return await concurrently([partial(self._scan, question) for question in questions])

    async def _scan(self, question: Asked) -> set[str]:
        (collection,) = await self.reader.collections(question.principal.tenant)
        parsed, table = question.parsed, await self.reader.open(collection)
        conditions = await resolve_attributes(table, parsed) if parsed else {}
        view = View(table, question.principal, parsed, resolved=conditions)
        ids = [id_ for held in self.sources[question.principal.tenant].values() for id_ in held.chunks]
        return {stored.id for stored in await table.chunks(ids, view.where)}

    async def statistics(self, tenant: str) -> Statistics:
        (collection,) = await self.reader.collections(tenant)
        return await (await self.reader.open(collection)).statistics()

    def searched(self, question: Asked, mode: Mode) -> list[str]:
        """The chunks that a search finds for a word that stands in all."""
        request = SearchRequest("pendulum", mode=mode, limit=MAX_LIMIT, filter=question.filter)
        answer = self.portal.call(self.desk.search, question.principal, request)
        return [hit.chunk.id for hit in answer.hits]

    def expected(self, question: Asked) -> set[str]:
        """The reference: the two rules in Python."""
        return {
            id_
            for held in self.sources[question.principal.tenant].values()
            if visible(question.principal, held.access, "allow")
            for id_ in held.matching(question.parsed)
        }

    def readable(self, principal: Principal) -> set[str]:
        """The sources that the principal may see; the rule anew, should the reference be wrong."""
        mine = {f"group:{group}" for group in principal.groups} | {f"user:{principal.user}"}
        return {
            id_
            for id_, held in self.sources[principal.tenant].items()
            if held.access and not mine & held.access.deny
            if held.access.visibility == "tenant" or mine & held.access.allow
        }


@dataclass(frozen=True, slots=True)
class Asked:
    """Who asks, and with which filter."""

    principal: Principal
    filter: Mapping[str, object] | None

    @property
    def parsed(self) -> Filter | None:
        return None if self.filter is None else parse_filter(self.filter, ALL)


def _some_fields(chance: random.Random) -> dict[str, Value]:
    values: dict[str, Value] = {
        "status": chance.choice([*NASTY, "a\x00b"]),
        "year": chance.choice(INTEGERS),
        "price": chance.choice(NUMBERS),
        "final": chance.random() < 0.5,
        "due": chance.choice(MOMENTS),
        "tags": tuple(chance.sample(NASTY, chance.randint(1, 3))),
    }
    return {name: value for name, value in values.items() if chance.random() < 0.7}


def _described(chance: random.Random) -> dict[str, Any]:
    """The title, the date and the path of a source, two of which it may lack."""
    path = {"path": chance.choice(NASTY)} if chance.random() < 0.7 else {}
    date = chance.choice(MOMENTS) if chance.random() < 0.7 else None
    return {"title": chance.choice(NASTY), "date": date, "metadata": path}


def _with_sections(item: NewSource, chance: random.Random) -> NewSource:
    passages = [
        replace(piece, section=tuple(chance.sample(NASTY, chance.randint(0, 2)))) for piece in item.passages
    ]
    return replace(item, passages=passages)


def _held(item: NewSource, access: Access | None) -> Held:
    source = item.source
    values: dict[str, Any] = {"title": source.title, "date": source.date} | dict(source.metadata)
    fields = {name: value for name, value in values.items() if value is not None} | dict(item.fields)
    return Held(fields, access, {f"{source.id}/{passage.seq}": passage.section for passage in item.passages})


def _some_access(chance: random.Random) -> Access | None:
    if chance.random() < 0.1:
        return None
    allow, deny = (frozenset(chance.sample(ENTRIES, chance.choice(counts))) for counts in ALLOW_DENY)
    return Access("tenant" if chance.random() < 0.5 else "restricted", allow, deny)


async def _fill(
    small: ModuleType, writer: CollectionWriter, chance: random.Random, state: str
) -> dict[str, Held]:
    """Sources written twice, a third of them with other fields, and another third given other access."""
    final: dict[str, Held] = {}
    items, again = [], []
    changed: dict[str, Access] = {}
    for number in range(SOURCES):
        words = [f"pendulum {number} part{part}" for part in range(chance.choice([1, 1, 2]))]
        make = partial(small.new_source, writer, f"{writer.collection.tenant} {number}", *words)
        access = _some_access(chance)
        item = _with_sections(make(fields=_some_fields(chance), access=access, **_described(chance)), chance)
        items.append(item)
        match number % 3:
            case 0:
                newer = make(fields=_some_fields(chance), access=_some_access(chance), **_described(chance))
                item = _with_sections(newer, chance)
                again.append(item)
            case 1:
                access = _some_access(chance) or access
                changed |= {item.source.id: access} if access else {}
        final[item.source.id] = _held(item, access)
    for start in range(0, SOURCES, 20):
        await writer.replace(items[start : start + 20])
    if state == CHANGED:
        await writer.finish()
    await writer.replace(again)
    await set_access(writer, changed)
    return final


async def _filled(small: ModuleType, data: Path, state: str) -> dict[str, dict[str, Held]]:
    sources = {}
    for tenant in TENANTS:
        identity = small.BagOfWords().identity
        collection = await ensure_collection(data, tenant, "documents", identity, fields=FIELDS)
        async with open_writer(data, collection) as writer:
            sources[tenant] = await _fill(small, writer, random.Random(tenant), state)  # noqa: S311 the same in every run
            if state in {COMPACTED, INDEXED}:
                await writer.finish()
    return sources


@contextmanager
def _library(small: ModuleType, data: Path, state: str) -> Iterator[Library]:
    with start_blocking_portal("asyncio") as portal:
        with pytest.MonkeyPatch.context() as patch:  # not longer: a session's fixture ends with the session
            patch.setattr(os, "fsync", lambda _descriptor: None)  # most of the time of small runs
            if state in {INDEXED, CHANGED}:
                patch.setattr(table_maintenance, "LARGE_ROWS", 10)
            sources = portal.call(_filled, small, data, state)
        reader = DeskReader(data, timeout_seconds=15)
        yield Library(state, portal, reader, Desk(reader, small.BagOfWords(), SearchSettings()), sources)


@pytest.fixture(scope="session", params=[AS_WRITTEN, COMPACTED, INDEXED, CHANGED])
def library(
    request: pytest.FixtureRequest, small_desk: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Library]:
    with _library(small_desk, tmp_path_factory.mktemp("library"), request.param) as filled:
        yield filled


def _written(moment: datetime) -> list[str]:
    return [moment.isoformat(), moment.isoformat().replace("+00:00", "Z")]


_STRINGS = st.sampled_from([*NASTY, "e\u0301", "E\u0301", "absent", "A B"])
_VALUES: dict[FieldType, st.SearchStrategy[Any]] = {
    "string": _STRINGS,
    "integer": st.sampled_from(INTEGERS),
    "number": st.sampled_from([*NUMBERS, *INTEGERS, -0.0]),
    "boolean": st.booleans(),
    "datetime": st.sampled_from([text for moment in MOMENTS for text in _written(moment)] + ["2024-05-01"]),
    "string list": _STRINGS,
}


def _condition(field: str, operator: str) -> st.SearchStrategy[dict[str, Any]]:
    values = _VALUES[ALL[field]]
    if operator in {"$prefix", "$suffix", "$contains"}:
        values = st.sampled_from([*NASTY_PARTS])
    elif operator in {"$in", "$nin"}:
        values = st.lists(values, min_size=1, max_size=4)
    elif operator == "$exists":
        values = st.booleans()
    return values.map(lambda value: {field: {operator: value}})


_CONDITIONS = st.one_of(
    [_condition(field, operator) for field, type_ in ALL.items() for operator in OPERATORS[type_]]
)


@st.composite
def _filters(draw: st.DrawFn, depth: int) -> dict[str, Any]:
    """A filter of up to that many levels; all kinds are equally likely, which a union of them is not."""
    kinds = ["one", "two", "$and", "$or", "$not"]
    match draw(st.sampled_from(kinds if depth > 1 else kinds[:2])):
        case "one":
            return draw(_CONDITIONS)
        case "two":
            return draw(_CONDITIONS) | draw(_CONDITIONS)
        case "$not":
            return {"$not": draw(_filters(depth - 1))}
        case key:
            return {key: draw(st.lists(_filters(depth - 1), min_size=1, max_size=2))}


_PRINCIPALS = st.builds(
    Principal,
    st.sampled_from(TENANTS),
    st.none() | st.sampled_from(USERS),
    st.frozensets(st.sampled_from(GROUPS), max_size=3),
)
_ASKED = st.sampled_from([st.none(), *[_filters(MAX_DEPTH)] * 9]).flatmap(
    lambda filters: st.builds(Asked, _PRINCIPALS, filters)
)


@settings(deadline=None, max_examples=EXAMPLES)
@given(batch=st.lists(_ASKED, min_size=BATCH, max_size=BATCH))
def test_a_scan_lets_through_what_the_rules_do(library: Library, batch: list[Asked]) -> None:
    chunks = library.scanned(batch)
    for ids, question in zip(chunks, batch, strict=True):
        assert {id_.partition("/")[0] for id_ in ids} <= library.readable(question.principal)
    assert chunks == [library.expected(question) for question in batch]


@settings(deadline=None, max_examples=EXAMPLES)
@given(question=_ASKED)
def test_every_mode_finds_what_the_rules_let_through(library: Library, question: Asked) -> None:
    expected = library.expected(question)
    for mode in get_args(Mode):
        chunks = library.searched(question, mode)
        assert {id_.partition("/")[0] for id_ in chunks} <= library.readable(question.principal)
        assert sorted(chunks) == sorted(expected)
    assert library.desk.alarms == 0


def test_the_library_is_as_various_as_the_properties_need(library: Library) -> None:
    for sources in library.sources.values():
        records = [held.access for held in sources.values()]
        assert {record and record.visibility for record in records} == {None, "tenant", "restricted"}
        assert any(record and record.visibility == "tenant" and record.deny for record in records)
        assert SOURCES < sum(len(held.chunks) for held in sources.values()) <= MAX_LIMIT
        for field in [*FIELDS, "date", "path"]:
            assert 0 < sum(field in held.values for held in sources.values()) < SOURCES
        sections = {bool(section) for held in sources.values() for section in held.chunks.values()}
        assert sections == {True, False}


def test_the_tables_are_in_the_state_that_is_meant(library: Library) -> None:
    for tenant in TENANTS:
        statistics = library.portal.call(library.statistics, tenant)
        assert bool(statistics.unindexed) == (library.state == CHANGED)
        large = {
            "vector (IvfSq)",
            "labels (LabelList)",
            "section (LabelList)",
            "field_year (BTree)",
            "field_tags (LabelList)",
        }
        assert (large & set(statistics.indexes)) == (large if library.state in {INDEXED, CHANGED} else set())
