"""One search, from the request to the answer."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import anyio
import numpy as np
import pytest

from rag.answers import MAX_LIMIT, MAX_QUERY_CHARS, Answer, Mode, SearchRequest
from rag.config.model_settings import EmbedderSettings
from rag.config.settings import SearchSettings, Settings
from rag.corpus import Access, EmbedderIdentity, Principal, Source
from rag.errors import ConfigurationError, InvalidRequestError, NotFoundError
from rag.models.embed import open_embedder
from rag.search.desk import Desk
from rag.search.pipeline import ASKED, NO_DOCUMENTS
from rag.search.reply.search_reply import search_reply
from rag.store.read import schema
from rag.store.read.connection import connect
from rag.store.read.desk_reader import DeskReader
from rag.store.read.word_analysis import MAX_TERMS
from rag.store.write import table_maintenance
from rag.store.write.desk_folder import note_tenant, prepare
from rag.store.write.make_collection import ensure_collection
from rag.uris import NOT_FOUND
from tests.search.conftest import ME, Shelf, title_set, titles

pytestmark = pytest.mark.anyio
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")


async def test_the_passage_that_says_it_comes_first_with_where_it_stands(shelf: Shelf) -> None:
    await shelf.put("clocks", "Who made them", "the pendulum clock was invented in The Hague")
    await shelf.put("dials", "Who made those", "shadows tell the hour on a dial")
    for mode in MODES:
        best = (await shelf.search("pendulum invented", mode=mode)).hits[0]
        assert best.chunk.text == "the pendulum clock was invented in The Hague"
        assert (best.source.title, best.chunk.seq, best.chunk.page) == ("clocks", 1, 2)
        assert best.chunk.section == ("Who made them",)


async def test_similarity_is_the_cosine_in_every_mode(shelf: Shelf) -> None:
    await shelf.put("a", *(f"pendulum number{n} of {n % 3}" for n in range(12)))
    (query,) = shelf.small.vectors(["pendulum number7"])
    for mode in MODES:
        answer = await shelf.search("pendulum number7", mode=mode, limit=12)
        assert len(answer.hits) == 12
        for hit in answer.hits:
            (vector,) = shelf.small.vectors([hit.chunk.text])
            assert hit.similarity == pytest.approx(float(np.dot(vector, query)), abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("indexed", [False, True], ids=["exact", "indexed"])
async def test_scores_fall_and_the_best_is_at_most_one(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, mode: Mode, *, indexed: bool
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 300 if indexed else 9999)

    async def fill() -> None:
        async with await shelf.small.writing(shelf.data) as writer:
            texts = [f"pendulum word{n} word{n % 7}" for n in range(400)]
            await writer.replace([shelf.small.new_source(writer, "a", *texts)])
            await writer.finish()

    await shelf.snapshots.changed(shelf.data, f"400 chunks, {indexed=}", fill)
    hits = (await shelf.search("pendulum word5 word5", mode=mode, limit=30)).hits
    scores = [hit.score for hit in hits]
    assert len(hits) == 30
    assert scores == sorted(scores, reverse=True)
    assert scores[0] <= 1 + 1e-6
    if mode == "dense":
        assert scores == pytest.approx([hit.similarity for hit in hits], abs=1e-5)


@pytest.mark.slow
async def test_hybrid_finds_what_either_of_its_lists_finds(shelf: Shelf) -> None:
    words = {"words": "the code xk42 stands here among many other things that are said about nothing"}
    await shelf.put_all(words | {f"near {number}": f"xk42x xk42y{number} reason" for number in range(30)})
    request = {"limit": 5}
    assert "words" in titles(await shelf.search("xk42", mode="sparse", **request))
    assert "words" in titles(await shelf.search("xk42", mode="hybrid", **request))


@pytest.mark.slow
async def test_a_passage_with_all_words_but_those_that_ask_has_all_words_of_a_question(
    shelf: Shelf,
) -> None:
    identity = shelf.small.BagOfWords().identity
    await ensure_collection(shelf.data, "default", "documents", identity, language="French")
    forecast = "what may come, and how much of it, nobody can say"
    rooms = ["salle", "bureau", "cave", "grenier", "cuisine", "cour", "garage", "jardin"]
    await shelf.put_all({room: f"le plombier vient {room}" for room in rooms} | {"forecast": forecast})
    vectors = shelf.small.vectors([forecast, "quartz"])
    vector = [float(part) for part in 0.8 * vectors[0] + 0.6 * vectors[1]]

    async def first(query: str) -> str:
        return titles(await shelf.search(query, vector=vector, mode="hybrid"))[0]

    assert await first("vient le plombier cave") == "cave"
    assert await first("quand vient le plombier cave") == "cave"
    assert await first("caesium vient le plombier cave") == "forecast"


@pytest.mark.slow
async def test_a_passage_with_all_words_of_a_question_comes_first_however_common_they_are(
    shelf: Shelf,
) -> None:
    rows = {f"{year}": f"total net revenue {year - 1} {year}" for year in range(2001, 2021)}
    await shelf.put_all(rows | {"forecast": "what may come, and how much of it, nobody can say"})
    forecast = shelf.small.vectors(["what may come, and how much of it, nobody can say"])[0]
    vector = [float(part) for part in 0.8 * forecast + 0.6 * shelf.small.vectors(["quartz"])[0]]
    complete = await shelf.search("total net revenue 2009 2010", vector=vector, mode="hybrid")
    assert titles(complete)[0] == "2010"
    incomplete = await shelf.search("total net revenue 2009 2012 caesium", vector=vector, mode="hybrid")
    assert titles(incomplete)[0] == "forecast"
    with_years = await shelf.search(
        "total net revenue of quartz caesium 2009 2010", vector=vector, mode="hybrid"
    )
    assert titles(with_years)[0] == "2010"


async def test_sparse_finds_only_passages_with_a_word_of_the_query(shelf: Shelf) -> None:
    await shelf.put("a", "the pendulum", "the quartz")
    assert [hit.chunk.text for hit in (await shelf.search("pendulum", mode="sparse")).hits] == [
        "the pendulum"
    ]
    answer = await shelf.search("caesium", mode="sparse")
    assert not answer.hits
    assert "Use other words" in answer.notes[0]


async def test_a_chunk_is_no_hit_twice_while_its_source_is_half_replaced(shelf: Shelf) -> None:
    await shelf.put("a", "pendulum one", "pendulum two")
    chunks = await (await connect(shelf.data)).open_table(schema.chunks_table("default", "documents"))
    rows = await chunks.query().to_arrow()
    place = rows.schema.get_field_index("generation")
    await chunks.add(rows.set_column(place, rows.schema.field(place), [["not yet counted"] * rows.num_rows]))
    for mode in MODES:
        hits = (await shelf.search("pendulum", mode=mode)).hits
        assert sorted(hit.chunk.text for hit in hits) == ["pendulum one", "pendulum two"]


async def test_of_identical_passages_the_newer_comes_first_and_undated_ones_keep_their_place(
    shelf: Shelf,
) -> None:
    years = {"old": 1990, "new": 2020, "middle": 2005}
    dates = {name: {"date": datetime(year, 1, 1, tzinfo=UTC)} for name, year in years.items()}
    await shelf.put_all(dict.fromkeys((*years, "none"), "pendulum clock"), details_of=dates)
    for mode in MODES:
        answer = await shelf.search("pendulum", mode=mode)
        names = titles(answer)
        assert [name for name in names if name != "none"] == ["new", "middle", "old"]
        by_id = {hit.source.id: hit.source.title for hit in answer.hits}
        assert [by_id[id_] for id_ in sorted(by_id)].index("none") == names.index("none")


@pytest.mark.slow
async def test_the_newest_of_many_equals_come_first_whatever_the_limit(shelf: Shelf) -> None:
    years = [1990 + 9 * n % 37 for n in range(21)]  # in no order
    dates = {f"of {year}": {"date": datetime(year, 1, 1, tzinfo=UTC)} for year in years}
    await shelf.put_all(dict.fromkeys(dates, "pendulum clock"), details_of=dates, title="bylaws")
    for mode, limit in product(MODES, (1, 2, 3, 8, 21)):
        hits = (await shelf.search("pendulum", mode=mode, limit=limit)).hits
        assert [hit.source.uri for hit in hits] == [f"of {year}" for year in sorted(years)[::-1][:limit]]


async def test_limit_is_how_many_hits_there_are(shelf: Shelf) -> None:
    await shelf.put("a", *(f"pendulum {n}" for n in range(MAX_LIMIT + 5)))
    desk = shelf.desk()
    for mode, limit in product(MODES, (1, 3, MAX_LIMIT)):
        assert len((await desk.search(ME, SearchRequest("pendulum", mode=mode, limit=limit))).hits) == limit


@pytest.mark.slow
async def test_the_settings_say_what_a_request_leaves_open(shelf: Shelf) -> None:
    await shelf.put("a", *(f"pendulum {n}" for n in range(5)))
    await shelf.put("b", "pendulum", collection="more")
    desk = shelf.desk(limit=3, mode="sparse")
    answer = await desk.search(ME, SearchRequest("pendulum clock", collections=("more",)))
    assert [(hit.source.collection, hit.score) for hit in answer.hits] == [("more", 1.0)]
    assert len((await desk.search(ME, SearchRequest("pendulum"))).hits) == 3


async def test_a_profile_stands_between_the_request_and_the_settings(shelf: Shelf) -> None:
    await shelf.put("a", "pendulum clock", "spring balance")
    desk = shelf.desk(mode="sparse", limit=1, profiles={"meaning": {"mode": "dense"}})

    async def rank_and_score(**request: object) -> tuple[int, float]:
        hits = (await desk.search(ME, SearchRequest("pendulum", **request))).hits  # type: ignore[arg-type]
        return len(hits), round(hits[0].score, 2)

    best_of_words, cosine = 1.0, 0.67  # a passage is embedded with its title
    assert await rank_and_score() == await rank_and_score(profile="default") == (1, best_of_words)
    assert await rank_and_score(profile="meaning") == (1, cosine)
    assert await rank_and_score(profile="meaning", mode="sparse", limit=2) == (1, best_of_words)
    assert await rank_and_score(profile="meaning", limit=2) == (2, cosine)


METHODS = ("calibrated", "rrf", "dbsf", "convex")


async def test_every_fusion_finds_what_both_lists_find_and_puts_first_what_both_put_first(
    shelf: Shelf,
) -> None:
    await shelf.put("a", "the pendulum clock", "a spring balance", "pendulum and many other things besides")
    await shelf.put("b", "clock towers of the north", "sand in a glass", collection="more")
    for method in METHODS:
        desk = shelf.desk(fusion={"method": method})
        hits = (await desk.search(ME, SearchRequest("pendulum clock"))).hits
        assert [hit.chunk.text for hit in hits[:1]] == ["the pendulum clock"]
        assert len({hit.chunk.id for hit in hits}) == len(hits) == 5
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert 0 <= scores[-1] < scores[0] <= 1


@pytest.mark.parametrize(("alpha", "mode"), [(0.0, "sparse"), (1.0, "dense")])
async def test_at_its_ends_a_convex_combination_is_one_list(shelf: Shelf, alpha: float, mode: Mode) -> None:
    await shelf.put("a", "the pendulum clock", "spring balance", "pendulum pendulum", "clock of sand")
    fusion = {"method": "convex", "alpha": alpha}
    fused = (await shelf.desk(fusion=fusion).search(ME, SearchRequest("pendulum clock"))).hits
    alone = (await shelf.search("pendulum clock", mode=mode)).hits
    assert [hit.chunk.id for hit in fused] == [hit.chunk.id for hit in alone]


@pytest.mark.slow
async def test_a_word_s_rarity_is_its_own_collection_s(shelf: Shelf) -> None:
    """A word that is rare among few documents counts as much as one that is rare among many."""
    gears = {f"large {number}": f"gear{number} wheel" for number in range(40)}
    await shelf.put_all(gears | {"large": "quartz in a thing"}, "large")
    await shelf.put_all({"small 1": "sand in a thing", "small 2": "wheel of nothing"}, "small")
    hits = (await shelf.search("quartz sand", mode="sparse")).hits
    assert {hit.chunk.text for hit in hits} == {"quartz in a thing", "sand in a thing"}
    assert hits[1].score > 0.5


async def test_a_context_has_the_hits_in_their_order_within_its_budget(shelf: Shelf) -> None:
    await shelf.put_all({f"{n}": f"pendulum {'and more ' * n}" + "to be said here." for n in range(9)})
    desk = shelf.desk(limit=9, profiles={"large": {"context_tokens": 1000}}, context_tokens=100)
    for profile, most in [("default", 100), ("large", 1000)]:
        answer = await desk.search(ME, SearchRequest("pendulum", profile=profile, context=True))
        context = answer.context
        assert context is not None
        assert context.chunk_ids == tuple(hit.chunk.id for hit in answer.hits)[: len(context.chunk_ids)]
        assert context.tokens <= most
        assert (context.left_out > 0) == (profile == "default")
        for hit in answer.hits[: len(context.chunk_ids) - 1]:
            assert f"[{hit.chunk.id}]\n{hit.chunk.text}\n" in context.text
    plain = await desk.search(ME, SearchRequest("pendulum"))
    assert plain.context is None
    assert plain.hits == answer.hits
    nothing = await desk.search(ME, SearchRequest("sand", mode="sparse", context=True))
    assert nothing.context is None


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (SearchRequest(""), "Give a query"),
        (SearchRequest(" \n\t "), "Give a query"),
        (SearchRequest("x" * (MAX_QUERY_CHARS + 1)), f"at most {MAX_QUERY_CHARS} characters, not 4097"),
        (SearchRequest("a \ud800 b"), "lone surrogate"),
        (SearchRequest("x", limit=-1), f"from 0 to {MAX_LIMIT}, not -1"),
        (SearchRequest("x", limit=10**9), f"from 0 to {MAX_LIMIT}, not 1000000000"),
        (SearchRequest("x", mode="fuzzy"), "one of dense, sparse, hybrid, exact, not 'fuzzy'"),  # type: ignore[arg-type]
    ],
)
async def test_a_request_out_of_range_is_told_the_range(
    shelf: Shelf, request_: SearchRequest, message: str
) -> None:
    await shelf.put("a", "pendulum")
    with pytest.raises(InvalidRequestError, match=message):
        await shelf.desk().search(ME, request_)


@pytest.mark.slow
async def test_a_query_of_the_greatest_length_is_answered_with_a_note_on_what_did_not_count(
    shelf: Shelf,
) -> None:
    await shelf.put("a", "pendulum clock")
    answer = await shelf.search(("pendulum " * MAX_QUERY_CHARS)[:MAX_QUERY_CHARS], mode="hybrid")
    assert len(answer.hits) == 1
    assert answer.notes == (
        f"Keyword search used only the first {MAX_TERMS} words of the query.",
        "Semantic search used only the first 256 tokens of the query.",
    )
    short = " ".join(["pendulum"] * MAX_TERMS)
    assert (await shelf.search(short, mode="hybrid")).notes == ()


LOG = "\n".join(
    f"2026-11-28 10:{line:02} worker[{line}] WARN retry of job {line} at http://a.b/c?d" for line in range(40)
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
async def test_the_question_behind_a_pasted_log_is_searched_for(shelf: Shelf, mode: Mode) -> None:
    await shelf.put(
        "log", "A worker tells of jobs: it can retry each of them, and then there is a WARN at a URL."
    )
    await shelf.put("clock", "A pendulum clock loses time in summer.")
    for query in (
        f"{LOG}\nWhich pendulum clock loses time in summer?",
        f"Which pendulum clock loses time in summer?\n{LOG}",
        f"{LOG[:1000]}\nWhich pendulum clock loses time in summer？\n{LOG[:1000]}",
        f"{LOG}. Tell me why. Which pendulum clock loses time in summer? It is old.".replace("\n", " "),
    ):
        answer = await shelf.search(query, mode=mode)
        assert answer.hits[0].source.title == "clock", query
        assert "clock" in answer.notes[0], query
        assert "WARN" not in answer.notes[0], query
    stated = await shelf.search(f"{LOG}\n\nA pendulum clock loses time in summer.", mode=mode)
    assert "clock" in [hit.source.title for hit in stated.hits if hit.score > 0.5]
    assert "clock" in stated.notes[0]
    answer = await shelf.search(LOG, mode=mode)
    assert answer.hits[0].source.title == "log"
    assert (
        await shelf.search("Which pendulum clock loses time in summer? It is old.", mode=mode)
    ).notes == ()


FRAMES = "\n".join(
    f'  File "/usr/lib/python3.11/site-packages/celery/part{line}.py", line {line}, in start'
    for line in range(20)
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_behind_a_pasted_traceback_a_question_and_its_phrases_count(shelf: Shelf, mode: Mode) -> None:
    await shelf.put("paths", "Each file of the library celery, in a line, is below /usr/lib/python3.11.")
    await shelf.put("clock", "A pendulum clock loses time in summer.")
    await shelf.put("other", "Time to take a clock of another kind, a pendulum of summer.")
    question = "Which pendulum clock loses time in summer?"
    answer = await shelf.search(f"{FRAMES}\nOSError: [Errno 5]\n\n{question}", mode=mode)
    assert answer.hits[0].source.title == "clock"
    assert ASKED.format(question) in answer.notes
    assert not any("contain" in note for note in answer.notes)
    for phrase, first in (("pendulum clock", "clock"), ("clock of another", "other")):
        answer = await shelf.search(f'{FRAMES}\nWhich "{phrase}" loses time in summer?', mode=mode)
        assert next(title for title in titles(answer) if title != "paths") == first
        assert any(note.endswith(f'contain "{phrase}".') for note in answer.notes)
        assert {hit.source.title for hit in answer.hits} >= {"clock", "other"}


async def test_collections_that_can_not_be_read_are_named_with_those_that_can(shelf: Shelf) -> None:
    prepare(shelf.data)
    with pytest.raises(NotFoundError, match=r"can't read. Readable collections: none"):
        await shelf.search("x", collections=("papers",))
    await shelf.put("a", "pendulum")
    await shelf.put("b", "pendulum", collection="more")
    with pytest.raises(NotFoundError, match=r"can't read. Readable collections: documents, more"):
        await shelf.search("x", collections=("papers", "it's"))


@pytest.mark.slow
async def test_a_collection_that_can_not_be_read_is_named_and_the_others_are_searched(shelf: Shelf) -> None:
    """Whether it exists makes no difference, also not by a profile that the settings give it."""
    await shelf.put("a", "pendulum", collection="notes")
    await shelf.put("b", "pendulum", collection="more")
    await shelf.put(
        "c", "pendulum", collection="secret", access=Access("restricted", frozenset({"user:ann"}))
    )
    desk = shelf.desk(
        profiles={"none": {"limit": 0}}, of_collections={"notes": "none", "secret": "none", "more": "default"}
    )
    answers = {}
    for name in ("secret", "missing"):
        answers[name] = await desk.search(ME, SearchRequest("pendulum", collections=("more", name)))
        assert [hit.source.title for hit in answers[name].hits] == ["b"]
        (note,) = answers[name].notes
        assert name in note
        assert "Readable collections: more, notes." in note
    hidden = await desk.search(ME, SearchRequest("pendulum", collections=("notes", "secret")))
    unknown = await desk.search(ME, SearchRequest("pendulum", collections=("notes", "missing")))
    assert (hidden.hits, len(hidden.notes)) == (unknown.hits, len(unknown.notes)) == ((), 2)
    ann = await desk.search(
        Principal("default", "ann"), SearchRequest("pendulum", collections=("more", "secret"))
    )
    assert title_set(ann) == {"b", "c"}
    assert not ann.notes


@pytest.mark.slow
async def test_a_search_without_collections_goes_over_all_of_the_tenant_and_no_others(shelf: Shelf) -> None:
    await shelf.put("a", "pendulum of documents")
    await shelf.put("b", "pendulum of more", collection="more")
    await shelf.small.put(shelf.data, "c", "pendulum of another tenant", tenant="acme")
    note_tenant(shelf.data, "empty")
    for mode in MODES:
        answer = await shelf.search("pendulum", mode=mode)
        assert {hit.source.collection for hit in answer.hits} == {"documents", "more"}
        assert len(answer.hits) == 2
        assert titles(await shelf.desk().search(Principal("acme"), SearchRequest("pendulum", mode=mode))) == [
            "c"
        ]
        assert not (await shelf.desk().search(Principal("empty"), SearchRequest("pendulum"))).hits


@pytest.mark.parametrize("mode", MODES)
async def test_a_collection_named_twice_is_searched_once(shelf: Shelf, mode: Mode) -> None:
    await shelf.put("a", "pendulum one", "pendulum two")
    answer = await shelf.search("pendulum", mode=mode, collections=("documents", "documents"))
    assert len(answer.hits) == 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_sources_narrow_a_search_and_exclude_sources_take_out(shelf: Shelf, mode: Mode) -> None:
    first, second, third = await shelf.put_all({name: f"pendulum {name}" for name in ("one", "two", "three")})

    async def ids(**request: object) -> set[str]:
        return set(titles(await shelf.search("pendulum", mode=mode, **request)))

    assert await ids(sources=(first.id, second.id, "unknown")) == {"one", "two"}
    assert await ids(exclude_sources=(first.id, "it's")) == {"two", "three"}
    assert await ids(sources=(first.id, second.id), exclude_sources=(second.id,)) == {"one"}
    assert await ids() == {"one", "two", "three"}
    answer = await shelf.search("pendulum", mode=mode, sources=("x') OR (true",))
    assert not answer.hits
    assert "x') OR (true" in answer.notes[0]
    answer = await shelf.search("pendulum", mode=mode, exclude_sources=(first.id, second.id, third.id))
    assert not answer.hits
    assert "without sources and exclude_sources" in answer.notes[0]


async def test_an_empty_list_is_refused_rather_than_taken_for_all(shelf: Shelf) -> None:
    await shelf.put("a", "pendulum")
    assert (await shelf.search("pendulum", collections=None, sources=None)).hits
    with pytest.raises(InvalidRequestError, match="each name at least one"):
        await shelf.search("pendulum", collections=())
    with pytest.raises(InvalidRequestError, match="each name at least one"):
        await shelf.search("pendulum", sources=())


async def test_an_empty_answer_tells_why(shelf: Shelf) -> None:
    with pytest.raises(ConfigurationError, match="There is no data folder"):
        await shelf.search("pendulum")
    await ensure_collection(shelf.data, "default", "documents", shelf.small.BagOfWords().identity)
    empty = await shelf.search("pendulum")
    assert empty.notes == (NO_DOCUMENTS,)


async def test_a_collection_that_lost_its_full_text_index_is_searched_by_its_words_all_the_same(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 2)
    await shelf.put("a", "pendulum", "clock")
    chunks = await (await connect(shelf.data)).open_table(schema.chunks_table("default", "documents"))
    await chunks.drop_index("terms_idx")
    for mode in ("dense", "sparse", "hybrid"):
        assert (await shelf.search("pendulum", mode=mode)).hits[0].chunk.text == "pendulum"


async def test_a_collection_of_another_embedder_that_is_named_for_mode_dense_is_an_error_that_names_both(
    shelf: Shelf,
) -> None:
    await shelf.put("a", "pendulum")
    embedder = shelf.small.BagOfWords(EmbedderIdentity("tests", "other", 32))
    desk = Desk(DeskReader(shelf.data, timeout_seconds=15), embedder, SearchSettings())
    with pytest.raises(ConfigurationError, match=r"tests bag-of-words .* tests other .*collection rebuild"):
        await desk.search(ME, SearchRequest("pendulum", mode="dense", collections=("documents",)))


@pytest.mark.slow
async def test_listing_pages_over_all_collections_brings_every_source_once(shelf: Shelf) -> None:
    expected = []
    for name, count in (("a", 4), ("b", 1), ("c", 5)):
        sources = await shelf.put_all({f"{n}": "text" for n in range(count)}, name)
        expected += sorted((name, source.id) for source in sources)
    desk = shelf.desk()
    for size in (1, 3, 4, 50):
        after, listed = ("", ""), []
        while page := await desk.sources(ME, after=after, limit=size):
            assert len(page) <= size
            listed += [(source.collection, source.id) for source in page]
            after = listed[-1]
        assert listed == expected
    assert await desk.sources(ME, after=("b'; --", "' OR true"), limit=9) == await desk.sources(
        ME, after=("b", "zzz"), limit=9
    )


@pytest.mark.slow
async def test_a_desk_that_is_asked_many_things_at_once_answers_each(shelf: Shelf) -> None:
    await shelf.put("a", *(f"pendulum number{n}" for n in range(20)))
    desk, best = shelf.desk(), {}

    async def ask(number: int) -> None:
        answer = await desk.search(ME, SearchRequest(f"number{number}", mode="sparse"))
        best[number] = answer.hits[0].chunk.seq

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(ask, number)
    assert best == {number: number for number in range(20)}


@pytest.mark.slow
async def test_the_built_in_model_finds_what_is_meant_in_other_words(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "a.md").write_text("# Timekeeping\n\nHuygens built the first pendulum clock in 1656.\n")
    (documents / "b.md").write_text("# Cooking\n\nBoil the pasta in salted water for nine minutes.\n")
    settings = Settings(data=tmp_path / "data")
    async with open_embedder(EmbedderSettings(), {}) as embedder:
        await small_desk.ingested(settings.data, documents, embedder=embedder)
    async with Desk.open(settings, {}) as desk:
        answer = await desk.search(
            ME, SearchRequest("Who invented a device that tells the time?", mode="dense")
        )
    first, second = answer.hits
    assert first.source.title == "Timekeeping"
    assert first.similarity
    assert second.similarity
    assert first.similarity > second.similarity + 0.1


ANN = Principal("default", "ann")
BOB = Principal("default", "bob")
BOBS = Access("restricted", frozenset({"user:bob"}))


async def _shelved(shelf: Shelf) -> Source:
    """A document that names one and is named by another, and one that is similar to it."""
    texts = {
        "The Tower": ("The tower clock was designed by Jane Miller.", "A second part."),
        "Jane Miller": "Born in Leeds, she learnt the trade from an uncle.",
        "Sights": "Visitors go to the market, to the river and up the tower.",
        "Similar": "A tower clock was designed by someone else.",
    }
    unrelated = {f"other {number}": f"A garden of roses, number {number}" for number in range(4)}
    tower, *_ = await shelf.put_all(texts | unrelated)
    return tower


async def _related(shelf: Shelf, id_: str, principal: Principal = ANN, **request: Any) -> Answer:  # noqa: ANN401
    desk = shelf.desk(statistics="strict", overrides=["mode", "limit"], limit=4)
    return await desk.search(principal, SearchRequest(related=id_, **request))


@pytest.mark.slow
async def test_what_a_passage_names_and_what_names_its_document_come_before_similar_ones(
    shelf: Shelf,
) -> None:
    tower = await _shelved(shelf)
    answer = await _related(shelf, f"{tower.id}/0")
    assert {*titles(answer)[:2]} == {"Jane Miller", "Sights"}
    assert titles(answer)[2] == "Similar"
    assert [step.name for step in answer.steps][-1] == "related"
    assert (await _related(shelf, tower.id)).hits == answer.hits
    assert (await _related(shelf, f"refdesk://documents/{tower.id}/0-1")).hits == answer.hits
    assert "Jane Miller" not in titles(await _related(shelf, f"{tower.id}/1"))


@pytest.mark.slow
async def test_a_query_says_what_of_it_is_wanted(shelf: Shelf) -> None:
    tower = await _shelved(shelf)
    assert "other 3" in titles(await _related(shelf, tower.id, query="roses number 3"))
    assert "other 3" not in titles(await _related(shelf, tower.id))


@pytest.mark.slow
async def test_private_documents_are_neither_found_nor_noticed(shelf: Shelf) -> None:
    tower = await _shelved(shelf)
    public = replace(shelf, data=shelf.data.with_name("public"))
    shutil.copytree(shelf.data, public.data)
    await shelf.put("Jane Miller (private)", "Her salary is high.", access=BOBS)
    mine = await shelf.put("Diary", "Up the tower again. Jane Miller was there.", access=BOBS)
    with_private = await _related(shelf, tower.id)
    assert _reply(with_private) == _reply(await _related(public, tower.id))
    assert "Diary" in titles(await _related(shelf, tower.id, BOB))
    with pytest.raises(NotFoundError, match=NOT_FOUND):
        await _related(shelf, mine.id)
    assert "Jane Miller (private)" in titles(await _related(shelf, mine.id, BOB))


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"vector": (1.0,)}, "related or vector"),
        ({"mode": "exact", "query": "tower"}, "mode exact finds what is written"),
    ],
)
async def test_what_contradicts_it_is_an_error(shelf: Shelf, request_: dict[str, Any], words: str) -> None:
    source = await shelf.put("The Tower", "A tower.")
    with pytest.raises(InvalidRequestError, match=words):
        await _related(shelf, source.id, **request_)
    with pytest.raises(NotFoundError, match=NOT_FOUND):
        await _related(shelf, "no id at all", **request_)


def _reply(answer: Answer) -> str:
    return search_reply(answer, None).model_dump_json()
