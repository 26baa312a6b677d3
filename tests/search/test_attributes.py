"""Filters by what every document has: the same in every mode, with rights, races, relaxing and reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, get_args

import pytest

from rag.answers import Mode, SearchRequest
from rag.corpus import Access, Principal
from rag.errors import InvalidRequestError
from rag.search.desk import Desk
from rag.search.view import SOME_UNDATED
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.schema import StoredSource
from rag.store.write.access_claim import Claim
from rag.store.write.table_rows import SourceMove
from tests.search.conftest import ME, Shelf

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OLD, NEW = datetime(2019, 5, 1, tzinfo=UTC), datetime(2024, 5, 1, tzinfo=UTC)


async def _fill(shelf: Shelf) -> None:
    await shelf.put(
        "leave", "Leave", "pendulum", date=OLD, title="Parental Leave", metadata={"path": "hr/a.md"}
    )
    await shelf.put("pay", "Pay", "pendulum", date=NEW, title="Pay", metadata={"path": "hr/b/c.md"})
    await shelf.put("desk", "Desk", "pendulum", title="Desk", metadata={"path": "it/a.md"})


async def _found(desk: Desk, filter_: dict[str, Any], **details: Any) -> set[str]:  # noqa: ANN401 a request's
    request = SearchRequest("pendulum", limit=50, filter=filter_, **details)
    return {hit.source.uri for hit in (await desk.search(ME, request)).hits}


@pytest.mark.parametrize("mode", get_args(Mode))
async def test_title_path_date_and_section_can_be_filtered_by_in_every_mode(shelf: Shelf, mode: Mode) -> None:
    await _fill(shelf)
    desk = shelf.desk()
    expected: list[tuple[dict[str, Any], set[str]]] = [
        ({"date": {"$gte": "2024-01-01"}}, {"pay"}),
        ({"date": {"$lt": "2024-01-01"}}, {"leave"}),
        ({"date": "2024-05-01T02:00:00+02:00"}, {"pay"}),
        ({"date": {"$ne": "2024-05-01"}}, {"leave", "desk"}),
        ({"date": {"$exists": False}}, {"desk"}),
        ({"path": {"$prefix": "hr/"}}, {"leave", "pay"}),
        ({"path": {"$prefix": "HR/"}}, set()),
        ({"path": {"$in": ["hr/a.md", "it/a.md"]}}, {"leave", "desk"}),
        ({"path": {"$contains": "/B/"}}, {"pay"}),
        ({"path": {"$suffix": "/A.md"}}, {"leave", "desk"}),
        ({"title": {"$contains": "parental"}}, {"leave"}),
        ({"title": {"$suffix": "ｌeave"}}, {"leave"}),
        ({"title": "Pay"}, {"pay"}),
        ({"section": "Leave"}, {"leave"}),
        ({"section": {"$contains": "EA"}}, {"leave"}),
        ({"section": {"$contains": "Ｌｅａｖ"}}, {"leave"}),
        ({"section": {"$suffix": "AVE"}}, {"leave"}),
        ({"section": {"$suffix": "ea"}}, set()),
        ({"section": {"$prefix": "D"}, "path": {"$prefix": "hr/"}}, set()),
        ({"$or": [{"section": "Desk"}, {"date": {"$lt": "2020-01-01"}}]}, {"leave", "desk"}),
        ({"$not": {"section": {"$in": ["Leave", "Pay"]}}}, {"desk"}),
        ({"$not": {"$and": [{"path": {"$prefix": "hr/"}}, {"title": "Pay"}]}}, {"leave", "desk"}),
    ]
    for filter_, names in expected:
        assert await _found(desk, filter_, mode=mode) == names, filter_
    assert desk.alarms == 0


@pytest.mark.parametrize("mode", get_args(Mode))
async def test_a_section_within_a_passage_is_found_too_and_not_what_it_is_cited_by(
    shelf: Shelf, mode: Mode
) -> None:
    """A short introduction has the first section below it."""
    async with await shelf.small.writing(shelf.data) as writer:
        new = shelf.small.new_source(writer, "leave", "Leave", "pendulum")
        first, second = new.passages
        await writer.replace([replace(new, passages=(first, replace(second, inner=("Sick leave",))))])
    desk = shelf.desk()
    for section in ("Leave", "Sick leave", {"$contains": "sick"}):
        request = SearchRequest("pendulum", mode=mode, filter={"section": section})
        hits = (await desk.search(ME, request)).hits
        assert [hit.chunk.section for hit in hits if hit.chunk.seq == 1] == [("Leave",)], section
    assert await _found(desk, {"$not": {"section": "Sick leave"}}, mode="dense") == {"leave"}  # the first one
    assert not await _found(desk, {"section": "Parental leave"}, mode=mode)


async def test_strict_statistics_keep_to_them_too(shelf: Shelf) -> None:
    await _fill(shelf)
    desk = shelf.desk(statistics="strict")
    assert await _found(desk, {"section": "Pay"}) == {"pay"}
    assert await _found(desk, {"path": {"$prefix": "hr/"}}) == {"leave", "pay"}


async def test_the_text_itself_is_searched_for_in_what_they_leave(shelf: Shelf) -> None:
    await _fill(shelf)
    text = ("Top", "no clock", "Later", "pendulum")
    item = await shelf.put("late", *text, title="Late", metadata={"path": "hr/late.md"})
    desk = shelf.desk()
    expected: list[tuple[dict[str, Any], set[str]]] = [
        ({"section": "Pay"}, {"pay"}),
        ({"path": {"$prefix": "hr/"}, "section": {"$contains": "top"}}, {"late"}),
        ({"date": {"$lt": "2024-01-01"}}, {"leave"}),
    ]
    for filter_, names in expected:
        assert await _found(desk, filter_, mode="exact") == names
    assert item.uri == "late"
    assert desk.alarms == 0


async def test_a_declared_field_of_the_same_name_goes_first_in_its_collection(shelf: Shelf) -> None:
    await shelf.declare("own", title="string", section="integer")
    await shelf.put(
        "own", "Own", "pendulum", collection="own", title="Own", fields={"title": "x", "section": 3}
    )
    await shelf.put("bare", "Bare", "pendulum", collection="own", title="Bare")
    await _fill(shelf)
    desk = shelf.desk()
    assert await _found(desk, {"title": "x"}) == {"own"}
    assert await _found(desk, {"title": "Bare"}) == set()
    assert await _found(desk, {"title": {"$exists": False}}) == {"bare"}
    assert await _found(desk, {"title": "Own"}) == set()
    assert await _found(desk, {"title": {"$in": ["Pay", "x"]}}) == {"own", "pay"}
    assert await _found(desk, {"section": 3}, collections=("own",)) == {"own"}
    with pytest.raises(InvalidRequestError, match="different types: section;"):
        await _found(desk, {"section": "Pay"})


async def test_only_what_the_principal_may_read_is_found_by_them(shelf: Shelf) -> None:
    await _fill(shelf)
    access = Access("restricted", frozenset({"user:ann"}))
    await shelf.put("kept", "Pay", "pendulum", title="Pay", metadata={"path": "hr/kept.md"}, access=access)
    desk = shelf.desk()
    assert await _found(desk, {"path": {"$prefix": "hr/"}}) == {"leave", "pay"}
    assert await _found(desk, {"section": "Pay"}) == {"pay"}
    request = SearchRequest("pendulum", filter={"path": "hr/kept.md"})
    answer = await desk.search(ME, request)
    nothing = await desk.search(ME, SearchRequest("pendulum", filter={"path": "hr/none.md"}))
    assert (answer.hits, answer.notes) == (nothing.hits, nothing.notes)
    ann = await desk.search(
        Principal("default", "ann"), SearchRequest("pendulum", filter={"path": "hr/kept.md"})
    )
    assert [hit.source.uri for hit in ann.hits] == ["kept"] * len(ann.hits) != []


async def test_a_document_that_moves_is_at_once_where_it_is_now(shelf: Shelf) -> None:
    await _fill(shelf)
    desk = shelf.desk()
    assert await _found(desk, {"path": {"$prefix": "it/"}}) == {"desk"}
    async with await shelf.small.writing(shelf.data) as writer:
        state = (await writer.known_sources())["desk"]
        await writer.move({state.id: SourceMove("desk", {"path": "hr/desk.md"}, Claim(Access("tenant")))})
    assert await _found(desk, {"path": {"$prefix": "it/"}}) == set()
    assert await _found(desk, {"path": {"$prefix": "hr/"}}) == {"leave", "pay", "desk"}


async def test_what_moved_during_the_search_is_withheld_without_an_alarm(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(shelf)
    desk, real = shelf.desk(), CollectionReader.sources

    async def moved(table: CollectionReader, ids: Iterable[str]) -> dict[str, StoredSource]:
        sources = await real(table, ids)
        return {
            id_: replace(stored, source=replace(stored.source, metadata={"path": "elsewhere.md"}))
            for id_, stored in sources.items()
        }

    monkeypatch.setattr(CollectionReader, "sources", moved)
    assert await _found(desk, {"path": {"$prefix": "hr/"}}) == set()
    assert desk.alarms == 0


async def test_the_gate_decides_by_the_chunk_s_own_section(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _fill(shelf)
    monkeypatch.setattr("rag.search.view.leaf_predicate", lambda _leaf, _column: "(true)")
    assert await _found(shelf.desk(), {"section": "Pay"}) == {"pay"}


async def test_an_empty_answer_names_them_and_relaxing_drops_dates_last(shelf: Shelf) -> None:
    await _fill(shelf)
    filter_ = {"date": {"$gte": "2024-01-01"}, "path": {"$prefix": "it/"}, "section": {"$contains": "zebra"}}
    answer = await shelf.desk().search(ME, SearchRequest("pendulum", filter=filter_))
    undated, note = answer.notes
    assert undated == SOME_UNDATED
    assert "without path $prefix, section $contains there are results." in note
    assert note.endswith("alone leaves results: date $gte, path $prefix.")
    relaxed = await shelf.desk(relax=True).search(ME, SearchRequest("pendulum", filter=filter_))
    assert {hit.source.uri for hit in relaxed.hits} == {"pay"}
    assert relaxed.notes == (
        SOME_UNDATED,
        "The filter excludes all results. Conditions dropped: path $prefix, section $contains.",
    )


async def test_what_is_shown_around_a_hit_is_not_cut_to_the_section_of_the_filter(shelf: Shelf) -> None:
    await _fill(shelf)
    desk = shelf.desk(stages=[{"stage": "neighbors", "count": 1}])
    (hit,) = (await desk.search(ME, SearchRequest("pendulum", mode="sparse", filter={"section": "Pay"}))).hits
    assert hit.text == "Pay\n\npendulum"
    assert hit.cited.endswith("/0-1")


async def test_why_not_says_that_no_section_matches(shelf: Shelf) -> None:
    await _fill(shelf)
    desk = shelf.desk()
    source = next(
        candidate for candidate in await desk.sources(ME, after=("", ""), limit=9) if candidate.uri == "leave"
    )
    _, fate = await desk.why_not(ME, SearchRequest("pendulum", filter={"section": "Pay"}), source.id)
    assert fate.reason == "None of its passages stands in a section that matches the filter."
    _, fate = await desk.why_not(ME, SearchRequest("pendulum", filter={"title": "Pay"}), source.id)
    assert (fate.step, fate.reason) == ("filter", "Its fields don't match the filter.")
