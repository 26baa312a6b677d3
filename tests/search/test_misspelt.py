"""Words that no readable document has are searched for in other spellings, too, and a note says so."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rag.answers import Answer, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, Principal
from rag.search.desk import Desk
from rag.search.pipeline import LACKING, NOT_SHOWN
from rag.search.stages.thresholds import UNGROUNDED
from rag.store.read import collection_reader, rows_in_memory, strict_reader
from rag.store.read.desk_reader import DeskReader
from rag.store.read.word_analysis import MAX_TERMS
from rag.store.write.make_collection import ensure_collection
from tests.search.conftest import Shelf, titles

pytestmark = pytest.mark.anyio
ROOM = 10**9  # bytes, enough for all rows in memory
GUEST, ANN = Principal("default"), Principal("default", "ann")
LEAVE = {
    "bereavement": "Bereavement leave is five days.",
    "parental": "Parental leave is a year.",
    "elections": "The works council and its elections.",
    "sections": "Handbook sections and their numbers.",
    "annual": "Annual leave is thirty days for each employee.",
}


@asynccontextmanager
async def opened(shelf: Shelf, memory_bytes: int = ROOM, **settings: Any) -> AsyncIterator[Desk]:  # noqa: ANN401 as settings are
    """A desk whose rows are in memory, if there is room for them, for it has been asked something."""
    reader = DeskReader(shelf.data, timeout_seconds=15, memory_bytes=memory_bytes)
    desk = Desk(reader, shelf.small.BagOfWords(), SearchSettings.model_validate(settings))
    await desk.search(GUEST, SearchRequest("leave"))
    await shelf.small.rows_in_memory(desk)
    yield desk
    await reader.close()


@pytest.fixture(autouse=True)
def _copies_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 0.0)


async def ask(desk: Desk, query: str, asker: Principal = GUEST, **request: Any) -> Answer:  # noqa: ANN401 as requests are
    return await desk.search(asker, SearchRequest(query, **{"mode": "sparse", **request}))


def note(word: str, *spellings: str) -> str:
    quoted = ", ".join(f'"{spelling}"' for spelling in spellings)
    return f'No document has "{word}"; searched for {quoted}, too.'


MISSPELT = [
    ("berevement leave", "bereavement", "berevement", "bereavement"),
    ("berevement", "bereavement", "berevement", "bereavement"),
    ("how long is zereavement leave?", "bereavement", "zereavement", "bereavement"),
    ("parrental leave", "parental", "parrental", "parental"),
    ("Can you tell me who may get berevement leave?", "bereavement", "berevement", "bereavement"),
    ("PARENTLA LEAVE", "parental", "parentla", "parental"),
    ("leave of empoyees", "annual", "empoyees", "employee"),
    ("annualleave", "annual", "annualleave", "annual leave"),
    ("handbok sections", "sections", "handbok", "handbook"),
]
"""What somebody types, the document that comes first, the misspelt word and what it is taken for."""


@pytest.mark.parametrize("mode", ["sparse", "hybrid"])
async def test_a_misspelt_word_finds_what_the_right_one_would(shelf: Shelf, mode: str) -> None:
    await shelf.put_all(LEAVE)
    async with opened(shelf) as desk:
        for typed, first, word, meant in MISSPELT:
            answer = await ask(desk, typed, mode=mode)
            assert titles(answer)[0] == first, typed
            assert answer.notes == (note(word, meant),), typed


@pytest.mark.parametrize(
    "query",
    [
        "bereavement leave",
        "bereavements",  # in another form
        "leve",  # too short
        "kubernetes leave",  # near to nothing
        "Krankschreibung",
        "отпуск",
        "TPL-0042",
        "",
    ],
)
async def test_words_that_are_known_or_near_to_nothing_have_no_note(shelf: Shelf, query: str) -> None:
    await shelf.put_all(LEAVE)
    async with opened(shelf) as desk:
        assert not [note for note in (await ask(desk, query or "leave")).notes if "searched for" in note]
        assert (await ask(desk, "berevement")).notes


async def test_a_right_word_keeps_its_place_however_rare_it_is(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put_all(LEAVE | {f"{number}": "more sections of the handbook" for number in range(9)})
    async with opened(shelf) as desk:
        for query, place in (("elections handbook", "elections"), ("elections", "elections")):
            answer = await ask(desk, query)
            assert titles(answer)[0] == place
            assert answer.notes == ()
    # It costs nothing either: nobody looks for spellings.
    monkeypatch.setattr(strict_reader, "nearest_spellings", None)
    async with opened(shelf) as desk:
        assert titles(await ask(desk, "elections"))
        with pytest.raises(TypeError):
            await ask(desk, "berevement")


async def test_what_has_the_word_itself_comes_before_what_has_another_spelling(shelf: Shelf) -> None:
    await shelf.put_all({"clock": "clock", "pendulum": "pendulum"})
    async with opened(shelf) as desk:
        answer = await ask(desk, "clock pendullum")
    assert titles(answer) == ["clock", "pendulum"]


async def test_words_are_respelt_only_if_at_most_two_are_unknown(shelf: Shelf) -> None:
    await shelf.put_all(LEAVE)
    async with opened(shelf) as desk:
        answer = await ask(desk, "parrental empoyees leave")
        assert answer.notes == (note("parrental", "parental"), note("empoyees", "employee"))
        assert set(titles(answer)[:2]) == {"parental", "annual"}
        assert (await ask(desk, "parrental empoyees leave kubernetes")).notes == ()


@pytest.mark.parametrize(
    ("settings", "request_", "query"),
    [
        ({"engine": {"operator": "and"}}, {}, "berevement leave"),
        ({"statistics": "strict"}, {}, "berevement leave"),
        ({"statistics": "collection"}, {}, "berevement leave"),
        ({"must_contain": ["leave"]}, {"mode": "exact"}, "berevement leave"),
        ({}, {"mode": "exact"}, "berevement leave"),
        ({}, {"mode": "dense"}, "berevement leave"),
        ({}, {}, '"five days" berevement'),
    ],
)
async def test_no_word_is_respelt_where_each_is_needed_or_none_is_compared(
    shelf: Shelf, settings: dict[str, Any], request_: dict[str, Any], query: str
) -> None:
    await shelf.put_all(LEAVE)
    async with opened(shelf, **settings) as desk:
        notes = (await ask(desk, query, **request_)).notes
    assert not [note for note in notes if "searched for" in note]
    async with opened(shelf) as desk:
        assert (await ask(desk, "five days berevement")).notes == (note("berevement", "bereavement"),)


async def test_nor_is_any_where_rows_are_never_in_memory(shelf: Shelf) -> None:
    await shelf.put_all(LEAVE)
    for memory_bytes, notes in ((0, ()), (1, ()), (ROOM, (note("berevement", "bereavement"),))):
        async with opened(shelf, memory_bytes=memory_bytes) as desk:
            assert (await ask(desk, "berevement leave")).notes == notes


async def test_misspelt_words_are_found_before_rows_are_in_memory_too(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put_all({**LEAVE, "releases": "Release v2.14.0 has 9 parts and 0 of 23."})
    queries = "berevement annualleave", "9999 parts"
    async with opened(shelf) as desk:
        in_memory = [await ask(desk, query) for query in queries]
    monkeypatch.setattr(rows_in_memory, "PAUSE_SECONDS", 1e9)
    monkeypatch.setattr(collection_reader, "SMALL_TABLE", 0)  # nor is it small enough to be copied at once
    reader = DeskReader(shelf.data, timeout_seconds=15, memory_bytes=ROOM)
    desk = Desk(reader, shelf.small.BagOfWords(), SearchSettings())
    through_engine = [await ask(desk, query) for query in queries]
    (table,) = reader._open.values()  # noqa: SLF001 whether it is in memory
    assert table.memory
    assert not table.memory.size
    await reader.close()
    of_words, of_numbers = in_memory
    assert of_words.notes == (note("berevement", "bereavement"), note("annualleave", "annual leave"))
    assert titles(of_words)[:2] == ["bereavement", "annual"]
    assert of_numbers.notes == (LACKING.format("9999"),)
    for before, after in zip(through_engine, in_memory, strict=True):
        assert before.notes == after.notes
        assert [(hit.chunk.id, hit.score) for hit in before.hits] == [
            (hit.chunk.id, hit.score) for hit in after.hits
        ]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("what changed in widgets 2.99", ["2.99"]),
        ("widgets 0.200 or 2.17 or 2.20", ['0.200" or "2.20']),
        ("what changed in 23.9.0 and 2.17.0", ["23.9.0"]),  # other passages have 23, 9 and 0
        ("widgets 2.99 against widgets 2.99", ["2.99"]),
        ("what changed in widgets 2.19", []),
        ("what changed in widgets v2.18", []),  # in the name of the file alone
        ("what changed on 12.03.2024", []),  # the date of a document may answer this
        ("what changed at 10.37", []),
    ],
)
async def test_a_version_that_no_passage_found_has_is_told(shelf: Shelf, query: str, told: list[str]) -> None:
    changes = "What changed in widgets: no notable changes"
    await shelf.put_all({"a": f"{changes} in 2.17.0", "b": f"{changes}. 23 pieces of 9, 0 left, at 10:37"})
    await shelf.put("c", f"{changes} in v2.19.1")
    await shelf.put("d", changes, metadata={"path": "guides/widgets_2.18.md"})
    async with opened(shelf) as desk:
        notes = (await ask(desk, query)).notes
    assert notes == tuple(map(NOT_SHOWN.format, told))


async def test_of_a_query_of_many_versions_the_first_words_alone_are_looked_for(shelf: Shelf) -> None:
    versions = [f"7.{number}" for number in range(10, 10 + 2 * MAX_TERMS)]
    await shelf.put("a", "What changed in widgets")
    async with opened(shelf) as desk:
        notes = (await ask(desk, " ".join(["widgets", *versions]))).notes
    assert NOT_SHOWN.format('" or "'.join(versions[: MAX_TERMS - 1])) in notes


async def test_what_the_asker_may_not_read_neither_offers_a_spelling_nor_makes_a_word_known(
    shelf: Shelf,
) -> None:
    await shelf.put_all(LEAVE)
    restricted = Access("restricted", frozenset({"user:ann"}))
    await shelf.put("secret", "Projekt Quarzuhr, berevement", access=restricted)
    async with opened(shelf) as desk:
        for query, to_guest, to_ann in (
            ("handbook quartzuhr", (), (note("quartzuhr", "quarzuhr"),)),
            ("handbook berevement", (note("berevement", "bereavement"),), ()),
            ("handbook quarzuhr", (), ()),
        ):
            guest, ann = await ask(desk, query), await ask(desk, query, ANN)
            assert (guest.notes, ann.notes) == (to_guest, to_ann)
            assert "secret" not in titles(guest)
            assert "secret" in titles(ann)


async def test_a_word_that_another_collection_has_is_known(shelf: Shelf) -> None:
    await shelf.put_all(LEAVE)
    await shelf.put("other", "berevement, parrentall", collection="notes")
    async with opened(shelf) as desk:
        assert (await ask(desk, "berevement")).notes == ()
        assert titles(await ask(desk, "berevement")) == ["other"]
        alone = await ask(desk, "berevement", collections=("documents",))
        assert alone.notes == (note("berevement", "bereavement"),)
        # Of both collections, what is nearest is searched for in each.
        assert (await ask(desk, "parrental")).notes == (note("parrental", "parental", "parrentall"),)


async def test_a_note_is_said_once_though_the_filter_is_relaxed(shelf: Shelf) -> None:
    await shelf.put_all(LEAVE)
    async with opened(shelf, relax=True) as desk:
        answer = await ask(desk, "berevement", filter={"date": {"$gte": "2030-01-01"}})
    assert titles(answer) == ["bereavement"]
    assert answer.notes.count(note("berevement", "bereavement")) == 1


async def test_what_has_another_spelling_is_evidence_as_if_it_were_the_word(shelf: Shelf) -> None:
    await shelf.put_all(LEAVE)
    thresholds = {"min_evidence": 0.4}
    for statistics, is_weak in (("auto", False), ("strict", True)):
        async with opened(shelf, thresholds=thresholds, statistics=statistics) as desk:
            notes = (await ask(desk, "leave berevement", mode="hybrid")).notes
            assert (UNGROUNDED in notes) is is_weak
            assert (note("berevement", "bereavement") in notes) is not is_weak
            assert UNGROUNDED in (await ask(desk, "leave kubernetes", mode="hybrid")).notes


async def test_a_commit_while_the_search_runs_loses_no_spelling(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def newer_rows(_reader: object, _where: str) -> None:
        return None

    await shelf.put_all(LEAVE)
    async with opened(shelf) as desk:
        assert titles(await ask(desk, "berevement")) == ["bereavement"]
        monkeypatch.setattr(strict_reader.StrictReaderInMemory, "_among", newer_rows)
        assert titles(await ask(desk, "berevement")) == ["bereavement"]


async def test_a_german_compound_finds_its_parts_and_a_part_its_compounds(shelf: Shelf) -> None:
    identity = shelf.small.BagOfWords().identity
    await ensure_collection(shelf.data, "default", "documents", identity, language="German")
    await shelf.put_all({"kasse": "Die Krankenversicherung zahlt den Arzt.", "haus": "Das Haus am See."})
    async with opened(shelf) as desk:
        part = await ask(desk, "Wer ist die Versicherung?")
        whole = await ask(desk, "Krankenversicherungsbeitrag")
    assert titles(part) == titles(whole) == ["kasse"]
    assert note("versicherung", "krankenversicherung") in part.notes
    assert note("krankenversicherungsbeitrag", "krankenversicherung") in whole.notes
