"""Words in memory: the engine's list of the same rows, also after changes, and counts over part of them."""

from __future__ import annotations

import random
from math import log
from pathlib import Path
from types import ModuleType

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.store.read import collection_reader, rows_in_memory, words_in_memory
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import Ranking
from rag.store.read.strict_reader import Asker, StrictReader, StrictReaderInMemory, strict_reader
from rag.store.read.word_analysis import Word
from rag.store.read.words_in_memory import (
    K1,
    MOST_TIMES,
    B,
    WordsInMemory,
    best_first,
    counted_rows,
    highest,
    merged_words,
    rows_with,
    score_rows,
    words_of,
)
from tests.tables import table_of

WORDS = ("pendulum", "pendulums", "clock", "PD-1", "PD1", "parseJsonFile", "json", "1,000", "时钟", "C++")
TERMS = st.lists(st.sampled_from("abcdefg"), max_size=12).map(" ".join)


def _words(*rows: str) -> WordsInMemory:
    return words_of(pa.array(rows, pa.string()))


def _content(words: WordsInMemory) -> tuple[dict[str, list[tuple[int, int]]], list[int]]:
    postings = {word: words.postings(word) for word in words.words.to_pylist() if word}
    by_word = {
        word: [(int(row), int(times)) for row, times in zip(rows, often, strict=True)]
        for word, (rows, often) in postings.items()
    }
    return {word: pairs for word, pairs in by_word.items() if pairs}, words.lengths.tolist()


def _plain(*terms: str) -> list[Word]:
    return [Word(term, ((term,),)) for term in terms]


def test_each_word_knows_its_rows_and_how_often_they_have_it() -> None:
    words = _words("b a b", "", "c a")
    assert _content(words) == ({"a": [(0, 1), (2, 1)], "b": [(0, 2)], "c": [(2, 1)]}, [3, 0, 2])
    for missing in ("", "aa", "0", "z"):
        assert not len(words.postings(missing)[0]) or missing == ""
    assert words.nbytes > 0


def test_a_word_that_a_row_repeats_without_end_is_counted_to_a_limit() -> None:
    words = _words(" ".join(["a"] * (MOST_TIMES + 9)))
    assert words.postings("a")[1].tolist() == [MOST_TIMES]


def test_words_merged_part_by_part_are_those_of_all() -> None:
    rows = ["a b", "b b c", "", "c a", "d"]
    places = [4, 0, 3, 2, 1]
    merged = merged_words([(_words(row), np.array([at])) for row, at in zip(rows, places, strict=True)], 5)
    assert _content(merged) == _content(_words(*(rows[places.index(at)] for at in range(5))))


def test_words_of_few_rows_follow_those_of_most() -> None:
    most = _words("a b", "x", "b b c", "", "c a"), np.array([0, -1, 1, 2, 3])
    merged = merged_words([(_words("d a", "b"), np.array([4, 5])), most], 6)
    assert _content(merged) == _content(_words("a b", "b b c", "", "c a", "d a", "b"))


@given(rows=st.lists(TERMS, max_size=9), keep=st.lists(st.booleans(), min_size=9, max_size=9), data=st.data())
def test_merged_words_are_those_of_the_rows_that_are_there(
    rows: list[str], keep: list[bool], data: st.DataObject
) -> None:
    parts = [rows[:4], rows[4:]]
    places = [place for place, remains in zip(range(len(rows)), keep, strict=False) if remains]
    first = frozenset(data.draw(st.permutations(range(len(places))))[: sum(keep[:4][: len(rows)])])
    # The rows of each part stay in order, among those of the other.
    begin, end = iter(places[: len(first)]), iter(places[len(first) :])
    order = [next(begin) if place in first else next(end) for place in range(len(places))]
    new_place = {old: new for new, old in enumerate(order)}
    moved = np.array([new_place.get(old, -1) for old in range(len(rows))], np.int64)
    merged = merged_words(
        [(_words(*part), moved[start : start + len(part)]) for start, part in ((0, parts[0]), (4, parts[1]))],
        len(order),
    )
    assert _content(merged) == _content(_words(*(rows[old] for old in order)))


@given(rows=st.lists(TERMS, min_size=1, max_size=9), mask=st.lists(st.booleans(), min_size=9, max_size=9))
def test_rows_that_are_not_counted_change_no_score_of_the_others(rows: list[str], mask: list[bool]) -> None:
    visible = np.array(mask[: len(rows)])
    query = _plain("a", "b", "b", "g")
    words, alone = (
        _words(*rows),
        _words(*(row for row, is_shown in zip(rows, mask, strict=False) if is_shown)),
    )
    for every in (False, True):
        among_others = score_rows(words, query, counted_rows(words, visible), every=every)[visible]
        assert among_others.tolist() == score_rows(alone, query, counted_rows(alone), every=every).tolist()


def test_scores_of_many_rows_are_those_of_one_part_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    words = _words("a b", "a", "b b", "a c", "a a b")
    query = _plain("a", "b")
    over = counted_rows(words)
    at_once = [score_rows(words, query, over, every=every).tolist() for every in (False, True)]
    monkeypatch.setattr(words_in_memory, "SCORED_AT_ONCE", 2)
    assert [score_rows(words, query, over, every=every).tolist() for every in (False, True)] == at_once


@given(
    rows=st.lists(TERMS.filter(bool), min_size=1, max_size=9),
    query=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True),
)
def test_scores_are_those_of_the_formula_whether_or_not_other_words_are_read(
    rows: list[str], query: list[str]
) -> None:
    texts = [row.split() for row in rows]
    mean = sum(map(len, texts)) / len(texts)
    for words in (_words(*rows), words_of(pa.array(rows), only=query)):
        scores = score_rows(words, _plain(*query), counted_rows(words))
        assert scores.tolist() == pytest.approx([_bm25(texts, query, text, mean) for text in texts], rel=1e-5)


def _bm25(texts: list[list[str]], query: list[str], text: list[str], mean: float) -> float:
    score = 0.0
    for word in query:
        times, having = text.count(word), sum(word in words for words in texts)
        idf = log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        score += idf * times * (K1 + 1) / (times + K1 * (1 - B + B * len(text) / mean))
    return score


def test_the_highest_scores_come_first_and_equals_in_the_order_of_ids() -> None:
    scores = np.array([1, 3, 2, 2, 2], np.float32)
    ids = pa.chunked_array([["e", "d", "c", "a", "b"]])
    for limit, places in ((1, [1]), (2, [1, 3]), (3, [1, 3, 4]), (9, [1, 3, 4, 2, 0]), (0, [])):
        assert best_first(scores, limit, ids).tolist() == places


@pytest.mark.parametrize("distinct", [3, 5_000])
@pytest.mark.parametrize("count", [1, 7, 4_999, 5_000])
def test_the_highest_of_many_scores_are_found_with_all_ties(count: int, distinct: int) -> None:
    scores = np.random.default_rng(count).integers(0, distinct, 5_000).astype(np.float32)
    least = np.sort(scores)[-count]
    assert highest(scores, count).tolist() == np.flatnonzero(scores >= least).tolist()


def test_rows_with_all_terms_of_a_form_are_those_that_have_each() -> None:
    words = _words("a b c", "b a", "c", "c b a", "")
    for form, rows in ((["a"], [0, 1, 3]), (["a", "c"], [0, 3]), (["c", "b", "a"], [0, 3]), (["a", "z"], [])):
        assert rows_with(form, words).tolist() == rows


async def _opened(data: Path, memory_bytes: int) -> CollectionReader:
    table = await table_of(data, memory_bytes=memory_bytes)
    if table.memory:
        await table.memory.wait_until_filled()
    return table


def _scores(ranking: Ranking) -> dict[str, float]:
    return {scored.stored.id: scored.score for scored in ranking}


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("every", [False, True])
async def test_a_list_from_memory_is_that_of_the_engine_before_and_after_changes(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, every: bool
) -> None:
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 0.0)
    drawn = random.Random(7)  # noqa: S311 not for a secret

    def paragraphs() -> list[str]:
        return [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 12))) for _ in range(12)]

    async with await small_desk.writing(tmp_path) as writer:
        sources = [small_desk.new_source(writer, name, *paragraphs()) for name in ("a", "b", "c")]
        await writer.replace(sources)
        await writer.finish()  # of rows beyond the index, the engine counts only those that a filter admits
    in_memory, through_engine = await _opened(tmp_path, 10**9), await _opened(tmp_path, 0)
    for where in ("(true)", "(seq < 5)"):
        await _compare(in_memory, through_engine, where, every=every)
    async with await small_desk.writing(tmp_path) as writer:
        await writer.replace([small_desk.new_source(writer, "b", *paragraphs())])
        await writer.replace([small_desk.new_source(writer, "d", *paragraphs())])
        await writer.remove([sources[2].source.id])
        await writer.finish()
    await in_memory.rows_in_memory("(true)")  # begins the next copy
    assert in_memory.memory
    assert in_memory.memory.copying
    await in_memory.memory.copying
    await _compare(in_memory, through_engine, "(true)", every=every)


async def _compare(
    in_memory: CollectionReader, through_engine: CollectionReader, where: str, *, every: bool
) -> None:
    copy = await in_memory.rows_in_memory(where)
    assert copy
    assert copy[0].words
    drawn = random.Random(8)  # noqa: S311 not for a secret
    for _ in range(25):
        query = " ".join(drawn.choices([*WORDS, "unheard"], k=drawn.randint(1, 4)))
        ranking = await in_memory.sparse(query, 99, where, every=every)
        by_engine = await through_engine.sparse(query, 99, where, every=every)
        assert _scores(ranking) == pytest.approx(_scores(by_engine), rel=1e-5), query
        words = {scored.stored.id: scored.words for scored in ranking}
        assert words == {scored.stored.id: scored.words for scored in by_engine}, query
        assert any(words.values()) or query.startswith("unheard")
        assert "unheard" not in frozenset[str]().union(*filter(None, words.values()))
        assert ranking == sorted(ranking, key=lambda scored: (-scored.score, scored.stored.id))


@pytest.mark.slow
@pytest.mark.anyio
async def test_before_and_after_the_copy_strict_lists_have_the_same_bits(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(collection_reader, "WORDS_ROWS", 7)
    drawn = random.Random(9)  # noqa: S311 not for a secret
    async with await small_desk.writing(tmp_path) as writer:
        for name in "abcde":
            texts = [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 12))) for _ in range(9)]
            await writer.replace([small_desk.new_source(writer, name, *texts)])
        await writer.finish()
    copied = await _opened(tmp_path, 10**9)
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(collection_reader, "SMALL_TABLE", 0)  # else a small table is copied at once
    desk = DeskReader(tmp_path, timeout_seconds=30, memory_bytes=10**9)
    (collection,) = await desk.collections("default")
    not_copied = await desk.open(collection)
    refused = (await copied.listing())[2].id
    vector = np.asarray(drawn.choices([-1.0, 0.5, 1.0], k=small_desk.DIMENSION), np.float32)
    vector /= np.linalg.norm(vector)
    queries = [" ".join(drawn.choices(WORDS, k=drawn.randint(1, 4))) for _ in range(8)]

    async def lists(
        reader: StrictReader | StrictReaderInMemory,
    ) -> list[list[tuple[str, float, frozenset[str] | None]]]:
        rankings = [
            await reader.sparse(query, 5, where, every=every)
            for query in queries
            for where in ("(seq < 7)", "(seq < 7) AND (seq > 2)")
            for every in (False, True)
        ]
        rankings += [await reader.dense(vector, limit, "(seq < 7)") for limit in (3, 99)]
        return [
            [(scored.stored.id, scored.score, scored.words) for scored in ranking] for ranking in rankings
        ]

    asker = Asker("(seq < 7)", lambda source: source.id != refused, "", "anybody")
    before, after = await strict_reader(not_copied, asker), await strict_reader(copied, asker)
    assert isinstance(before, StrictReader)
    assert isinstance(after, StrictReaderInMemory)
    listed = await lists(before)
    assert await lists(after) == listed
    assert sum(map(len, listed)) > 100
    assert refused not in {id_.rsplit("/")[0] for ranking in listed for id_, *_ in ranking}
    await desk.close()


@pytest.mark.slow
@pytest.mark.anyio
async def test_after_a_commit_a_strict_search_renews_the_copy_at_once(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 0.0)
    await small_desk.put(tmp_path, "a", "a pendulum")
    table = await _opened(tmp_path, 10**9)
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 3600.0)
    await small_desk.put(tmp_path, "b", "another pendulum")
    reader = await strict_reader(table, Asker("(true)", lambda _: True, "", "anybody"))
    assert isinstance(reader, StrictReaderInMemory)
    assert len(await reader.sparse("pendulum", 9, "(true)")) == 2
