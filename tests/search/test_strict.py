"""With strict statistics, an answer doesn't tell whether there are documents that one may not read."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

import anyio
import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from rag.access.rule import visible
from rag.answers import Mode, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, Principal
from rag.errors import RefdeskError
from rag.search.desk import Desk
from rag.search.reply.search_reply import search_reply, with_trace
from rag.store.read import rows_in_memory, schema
from rag.store.read.connection import connect
from rag.store.read.desk_reader import DeskReader
from rag.store.read.word_analysis import MAX_TERMS
from rag.store.write import table_maintenance
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from tests.search.conftest import Shelf

pytestmark = pytest.mark.slow

Counted = Literal["auto", "collection", "strict"]
ROOM = 10**9  # bytes, enough for all rows in memory
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
ANN = Principal("default", "ann", frozenset({"hr"}))
BOB = Principal("default", "bob", frozenset({"it"}))
GUEST = Principal("default")
RECORDS = (
    Access("tenant"),
    Access("tenant", deny=frozenset({"user:ann", "group:it"})),
    Access("restricted", frozenset({"group:hr"})),
    Access("restricted", frozenset({"user:bob"})),
    Access("restricted", frozenset({"group:board"})),
    Access("restricted"),
    None,
)
WORDS = "pendulum pendulums clock clocks watch drift of the Uhr café 1761 user_id 时钟 机器学习".split()  # noqa: SIM905 as they stand in a text
MISSPELT = ("pendullum", "clcoks", "user_ids", "machnie", "pednuulms")
LARGE = 24  # chunks from which on tables have all their indexes here


@dataclass(frozen=True, slots=True)
class Paper:
    """A document: its paragraphs, all of them so many times."""

    collection: str
    name: str
    paragraphs: tuple[str, ...]
    times: int
    year: int
    access: Access | None


@dataclass(frozen=True, slots=True)
class Case:
    """What is there, what the asker may not read besides, and what is asked of which desk."""

    present: tuple[Paper, ...]
    besides: tuple[Paper, ...]
    indexed: bool
    asker: Principal
    request: SearchRequest
    plan: dict[str, Any]


def _papers(
    prefix: str, collections: Sequence[str], records: Sequence[Access | None], times: st.SearchStrategy[int]
) -> st.SearchStrategy[tuple[Paper, ...]]:
    text = st.lists(st.sampled_from([*WORDS, *MISSPELT[:2]]), min_size=1, max_size=9).map(" ".join)
    paper = st.builds(
        Paper,
        st.sampled_from(collections),
        st.sampled_from([f"{prefix}{number}" for number in range(6)]),
        st.lists(text, min_size=1, max_size=6).map(tuple),
        times,
        st.sampled_from([2001, 2002]),
        st.sampled_from(records),
    )
    key = lambda paper: (paper.collection, paper.name)  # noqa: E731
    return st.lists(paper, min_size=1, max_size=5, unique_by=key).map(tuple)


@st.composite
def cases(draw: st.DrawFn, modes: Sequence[Mode] = MODES, *, indexed: bool | None = None) -> Case:
    asker = draw(st.sampled_from([ANN, BOB, GUEST]))
    foreign = [record for record in RECORDS if not visible(asker, record, "allow")]
    request = SearchRequest(
        draw(st.lists(st.sampled_from([*WORDS, *MISSPELT]), min_size=1, max_size=4).map(" ".join)),
        mode=draw(st.sampled_from(modes)),
        limit=draw(st.sampled_from([1, 3, 10])),
        filter=draw(st.sampled_from([None, None, {"year": 2001}, {"year": 1999}])),
        context=draw(st.booleans()),
    )
    plan = {
        "candidates": 10,
        "fusion": {"method": draw(st.sampled_from(["calibrated", "rrf", "dbsf", "convex"]))},
        "thresholds": draw(st.sampled_from([{}, {"min_similarity": 0.5}, {"min_evidence": 0.9}])),
        "relax": draw(st.booleans()),
        "stages": draw(st.sampled_from([[], [{"stage": "diversify"}], [{"stage": "neighbors"}]])),
    }
    return Case(
        draw(_papers("paper", ["documents", "handbook"], RECORDS, st.sampled_from([1, 5]))),
        draw(_papers("secret", ["documents", "handbook", "vault"], foreign, st.sampled_from([1, 1, 20]))),
        draw(st.booleans()) if indexed is None else indexed,
        asker,
        request,
        plan,
    )


async def _store(small: ModuleType, data: Path, papers: Sequence[Paper], *, indexed: bool) -> None:
    for name in sorted({paper.collection for paper in papers}):
        identity = small.BagOfWords().identity
        collection = await ensure_collection(data, "default", name, identity, fields={"year": "integer"})
        async with open_writer(data, collection) as writer:
            sources = [
                small.new_source(
                    writer,
                    paper.name,
                    *paper.paragraphs * paper.times,
                    access=paper.access,
                    fields={"year": paper.year},
                )
                for paper in papers
                if paper.collection == name
            ]
            await writer.replace(sources)
            if indexed:
                await writer.finish()


async def _reply(small: ModuleType, data: Path, case: Case, counted: Counted, memory_bytes: int) -> str:
    """All that there is to read of two answers, before and after the rows are in memory, but for times."""
    plan = SearchSettings.model_validate({**case.plan, "statistics": counted})
    reader = DeskReader(data, timeout_seconds=15, memory_bytes=memory_bytes)
    desk = Desk(reader, small.BagOfWords(), plan)
    replies = [await _answer(desk, case)]
    if memory_bytes:
        await small.rows_in_memory(desk)
        replies.append(await _answer(desk, case))
    await reader.close()
    return "".join(replies)


async def _answer(desk: Desk, case: Case) -> str:
    try:
        answer = await desk.search(case.asker, case.request, trace=True)
    except RefdeskError as error:
        return f"{type(error).__name__}: {error}"
    reply = json.loads(with_trace(search_reply(answer, None, vectors=True), answer, None).compact())
    for stage in reply["trace"]["steps"]:
        stage.pop("ms")
    return json.dumps(reply) + repr([hit.score for hit in answer.hits])


async def _replies(
    small: ModuleType, case: Case, *ways: tuple[Counted, int]
) -> list[tuple[tuple[Counted, int], str, str]]:
    """What a desk answers each way, and what a copy of it that has more in it answers.

    A way is how words are counted, and how many bytes of rows may be in memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        alone, crowded = Path(folder, "alone"), Path(folder, "crowded")
        await _store(small, alone, case.present, indexed=case.indexed)
        shutil.copytree(alone, crowded)
        await _store(small, crowded, case.besides, indexed=case.indexed)
        return [
            (way, await _reply(small, alone, case, *way), await _reply(small, crowded, case, *way))
            for way in ways
        ]


@pytest.fixture(scope="module")
def small(small_desk: ModuleType) -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        patch.setattr(table_maintenance, "LARGE_ROWS", LARGE)
        patch.setattr(rows_in_memory, "PAUSE_SECONDS", 0.0)
        yield small_desk


@settings(deadline=None)
@given(case=cases())
def test_an_answer_is_the_same_whether_or_not_there_is_what_the_asker_may_not_read(
    small: ModuleType, case: Case
) -> None:
    for way, alone, crowded in anyio.run(
        _replies, small, case, ("strict", 0), ("strict", ROOM), ("auto", ROOM)
    ):
        assert alone == crowded, way


@pytest.mark.nightly
def test_counted_over_the_collection_some_answers_do_tell(small: ModuleType) -> None:
    def tells(case: Case) -> bool:
        ((_, alone, crowded),) = anyio.run(_replies, small, case, ("collection", 0))
        return bool(alone != crowded)

    fixed = settings(max_examples=100, deadline=None, derandomize=True, phases=[Phase.generate])
    find(cases(["sparse"], indexed=True), tells, settings=fixed)


async def _best(shelf: Shelf, query: str, mode: Mode, **plan: Any) -> list[tuple[str, float]]:  # noqa: ANN401 as settings are
    """The texts that a search finds, with their scores."""
    answer = await shelf.desk(**plan).search(GUEST, SearchRequest(query, mode=mode))
    return [(hit.chunk.text, hit.score) for hit in answer.hits]


@pytest.mark.anyio
async def test_a_hidden_document_moves_visible_scores_unless_statistics_are_strict(shelf: Shelf) -> None:
    await shelf.put("one", "pendulum swings")
    await shelf.put("two", "escapement clicks")
    query = "pendulum escapement"

    async def scores_of(statistics: Counted) -> list[list[tuple[str, float]]]:
        return [await _best(shelf, query, mode, statistics=statistics) for mode in MODES]

    before = {statistics: await scores_of(statistics) for statistics in get_args(Counted)}
    await shelf.put("three", *["pendulum"] * 9, access=Access("restricted"))
    async with await shelf.small.writing(shelf.data) as writer:
        await writer.finish()
    assert await scores_of("strict") == before["strict"]
    assert await scores_of("collection") != before["collection"]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("counted", "memory_bytes"), [("strict", 0), ("auto", ROOM)])
async def test_what_its_own_record_hides_counts_for_nothing_though_the_engine_still_lets_it_through(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, mode: Mode, counted: Counted, memory_bytes: int
) -> None:
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 0.0)
    for name in ("one", "two"):
        await shelf.put(name, f"pendulum {name}", "clock and watch")

    async def best(statistics: Counted) -> list[tuple[str, float]]:
        reader = DeskReader(shelf.data, timeout_seconds=15, memory_bytes=memory_bytes)
        plan = SearchSettings(statistics=statistics, candidates=10)
        desk, request = Desk(reader, shelf.small.BagOfWords(), plan), SearchRequest("pendulum two", mode=mode)
        await desk.search(GUEST, request)
        await shelf.small.rows_in_memory(desk)
        answer = await desk.search(GUEST, request)
        await reader.close()
        return [(hit.chunk.text, hit.score) for hit in answer.hits]

    alone = await best(counted)
    hidden = await shelf.put("three", *["pendulum two"] * 30, access=Access("restricted"))
    chunks = await (await connect(shelf.data)).open_table(schema.chunks_table("default", "documents"))
    await chunks.update({"labels": ["*"]}, where=schema.one_of("source_id", [hidden.id]))
    assert await best(counted) == alone
    assert await best("collection") != alone


@pytest.mark.anyio
async def test_an_index_of_vectors_that_others_have_shaped_changes_no_bit(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", LARGE)
    await shelf.put("seen", *(f"pendulum {number}" for number in range(20)))
    alone = await _best(shelf, "pendulum watch", "dense", statistics="strict", limit=20)
    assert len(alone) == 20
    texts = (f"watch {number} of {number % 7}" for number in range(400))
    await shelf.put("hidden", *texts, access=Access("restricted"))
    async with await shelf.small.writing(shelf.data) as writer:
        await writer.finish()
    chunks = await (await connect(shelf.data)).open_table(schema.chunks_table("default", "documents"))
    assert "vector" in {column for index in await chunks.list_indices() for column in index.columns}
    assert await _best(shelf, "pendulum watch", "dense", statistics="strict", limit=20) == alone


@pytest.mark.anyio
@pytest.mark.parametrize("mode", MODES)
async def test_of_equals_those_with_the_first_ids_are_listed(shelf: Shelf, mode: Mode) -> None:
    clocks = {f"other {number}": "clock" for number in range(30)}
    papers = await shelf.put_all({f"paper {number}": "pendulum" for number in range(30)} | clocks)
    desk = shelf.desk(statistics="strict", candidates=10)
    answer = await desk.search(GUEST, SearchRequest("pendulum", mode=mode, limit=10))
    first = sorted(f"{paper.id}/0" for paper in papers if paper.title not in clocks)[:10]
    assert [hit.chunk.id for hit in answer.hits] == first


@pytest.mark.anyio
async def test_strict_statistics_find_words_as_the_index_has_them(shelf: Shelf) -> None:
    texts = ["two pendulums swing", "机器学习改变世界", "the user_id of café guests", "nothing of it"]
    await shelf.put("words", *texts)
    place_by_query = {"pendulum": 0, "swinging": 0, "机器学习": 1, "user": 2, "cafe": 2, "guest": 2}
    for query, place in place_by_query.items():
        assert [text for text, _ in await _best(shelf, query, "sparse", statistics="strict")] == [
            texts[place]
        ]
    assert await _best(shelf, "quartz", "sparse", statistics="strict") == []


@pytest.mark.anyio
async def test_a_word_counts_the_more_the_rarer_it_is_and_the_more_often_it_stands_there(
    shelf: Shelf,
) -> None:
    await shelf.put("clocks", *["clock and watch"] * 5, "clock and pendulum", "pendulum pendulum clock")
    best = await _best(shelf, "pendulum clock", "sparse", statistics="strict", limit=3)
    assert [text for text, _ in best] == ["pendulum pendulum clock", "clock and pendulum", "clock and watch"]


@pytest.mark.anyio
@pytest.mark.parametrize(("counted", "memory_bytes"), [("strict", 0), ("auto", ROOM)])
async def test_words_are_counted_over_all_collections_as_if_they_were_one(
    shelf: Shelf, counted: Counted, memory_bytes: int
) -> None:
    """What a collection is about is rare in the others, whose passages have it by accident."""
    tickets = {f"ticket {number}": f"ECONNREFUSED 10.3.0.7 of the pendulum {number}" for number in range(9)}
    handbook = {"leave": "at most 3 of 7 months", "travel": "up to 10 nights", "watch": "a pendulum, a watch"}
    await shelf.put_all(tickets, "tickets")
    await shelf.put_all(handbook, "handbook")
    await shelf.put_all(tickets | handbook, "together")
    await shelf.put("secret", *["10.3.0.7 pendulum"] * 20, collection="hidden", access=Access("restricted"))
    reader = DeskReader(shelf.data, timeout_seconds=15, memory_bytes=memory_bytes)
    desk = Desk(reader, shelf.small.BagOfWords(), SearchSettings(statistics=counted))

    async def scores_of(query: str, *collections: str) -> list[tuple[str, float]]:
        request = SearchRequest(query, mode="sparse", limit=20, collections=collections)
        return [(hit.chunk.text, hit.score) for hit in (await desk.search(GUEST, request)).hits]

    for query in ("10.3.0.7", "ECONNREFUSED pendulum", "pendulum watch", "3 months"):
        apart = await scores_of(query, "tickets", "handbook", "hidden")
        assert sorted(apart) == sorted(await scores_of(query, "together")), query
    by_name = [text for text, _ in await scores_of("10.3.0.7", "tickets", "handbook")]
    assert all(text.startswith("ECONNREFUSED") for text in by_name[:9])
    await reader.close()


@pytest.mark.anyio
@pytest.mark.parametrize("statistics", get_args(Counted))
async def test_words_of_a_query_beyond_those_that_count_are_told(shelf: Shelf, statistics: Counted) -> None:
    await shelf.put("words", "word0 word70")
    desk = shelf.desk(statistics=statistics)
    for count, is_noted in ((MAX_TERMS, False), (MAX_TERMS + 1, True)):
        query = " ".join(f"word{number}" for number in range(count))
        answer = await desk.search(GUEST, SearchRequest(query, mode="sparse"))
        assert any(f"first {MAX_TERMS} words" in note for note in answer.notes) is is_noted


@pytest.mark.anyio
@pytest.mark.parametrize("statistics", ["collection", "strict"])
async def test_with_the_operator_and_a_passage_has_all_words(shelf: Shelf, statistics: str) -> None:
    await shelf.put_all({"both": "a pendulum clock", "one": "a pendulum", "other": "the clocks"})
    engine = {"operator": "and"}
    every = shelf.desk(statistics=statistics, engine=engine, mode="sparse")
    any_ = shelf.desk(statistics=statistics, mode="sparse")

    async def ids(desk: Desk, query: str) -> set[str]:
        return {hit.source.title for hit in (await desk.search(Principal("default"), query)).hits}

    assert await ids(any_, "the pendulum clock") == {"both", "one", "other"}
    assert await ids(every, "the pendulum clock") == {"both"}
    assert await ids(every, "clock") == {"both", "other"}
    answer = await every.search(Principal("default"), "pendulum zebra")
    assert answer.notes[0].startswith("No passage contains all words of the query. Use fewer words")
