"""A filter that leaves nothing is explained, or relaxed where the operator allows it; access never is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, get_args

import pytest

from rag.answers import Mode, SearchRequest
from rag.corpus import Access, Principal

if TYPE_CHECKING:
    from rag.answers import Answer
    from rag.corpus import FieldType
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ANN = Principal("default", "ann")
BOB = Principal("default", "bob")
FIELDS: dict[str, FieldType] = {
    "year": "integer",
    "status": "string",
    "due": "datetime",
    "tags": "string list",
}
MODES: tuple[Mode, ...] = get_args(Mode)
DRAFT_2001: dict[str, object] = {"year": 2001, "status": "draft", "due": datetime(2024, 5, 1, tzinfo=UTC)}
FINAL_1999: dict[str, object] = {"year": 1999, "status": "final", "tags": ("old",)}


@pytest.fixture
async def filed(shelf: Shelf) -> Shelf:
    """A draft and a final paper that everybody reads, and a secret one of Ann's."""
    await shelf.declare("papers", **FIELDS)
    for name, fields, access in [
        ("draft", DRAFT_2001, Access("tenant")),
        ("final", FINAL_1999, Access("tenant")),
        ("secret", {"status": "secret", "year": 2050}, Access("restricted", frozenset({"user:ann"}))),
    ]:
        await shelf.put(name, "pendulum", collection="papers", fields=fields, access=access)
    return shelf


async def _asked(
    shelf: Shelf,
    filter_: dict[str, object],
    *,
    relax: bool = False,
    mode: Mode = "hybrid",
    principal: Principal = BOB,
    query: str = "pendulum",
) -> Answer:
    desk = shelf.desk(profiles={"easy": {"relax": True}})
    request = SearchRequest(query, filter=filter_, mode=mode, profile="easy" if relax else None)
    answer = await desk.search(principal, request)
    assert desk.alarms == 0
    return answer


def _titles(answer: Answer) -> set[str]:
    return {hit.source.title for hit in answer.hits}


async def test_a_filter_whose_results_are_too_unlike_is_not_said_to_leave_nothing(filed: Shelf) -> None:
    strict = {"thresholds": {"min_similarity": 0.99}}
    desk = filed.desk(relax=True, profiles={"strict": strict})
    for query, found in [("sand", set()), ("pendulum", {"draft"})]:
        request = SearchRequest(query, filter={"year": 2001}, profile="strict")
        answer = await desk.search(BOB, request)
        assert _titles(answer) == found
        assert not any("filter" in note for note in answer.notes)


EMPTY: list[tuple[dict[str, object], str, str, list[str]]] = [
    ({"year": 1980}, "year $eq", "", ["draft", "final"]),
    (
        {"status": "final", "year": 2001},
        "year $eq",
        " Each of these conditions alone leaves results: status $eq, year $eq.",
        ["final"],
    ),
    (
        {"status": "lost", "year": {"$gte": 2000}},
        "status $eq",
        " Each of these conditions alone leaves results: year $gte.",
        ["draft"],
    ),
    (
        {"status": "lost", "year": {"$lt": 1000}},
        "status $eq, year $lt",
        " Each of these conditions alone leaves results: none.",
        ["draft", "final"],
    ),
    (
        {"due": {"$gt": "2024-01-01"}, "status": "final"},
        "status $eq",
        " Each of these conditions alone leaves results: due $gt, status $eq.",
        ["draft"],
    ),
    (
        {"due": {"$gt": "2030-01-01"}, "status": "final"},
        "due $gt",
        " Each of these conditions alone leaves results: status $eq.",
        ["final"],
    ),
    ({"tags": {"$in": ["a", "b"]}}, "tags $in", "", ["draft", "final"]),
    ({"$or": [{"year": 1}, {"year": 2}]}, "$or (year $eq, year $eq)", "", ["draft", "final"]),
    ({"$not": {"year": {"$gt": 0}}}, "$not (year $gt)", "", ["draft", "final"]),
    ({"year": {"$nin": [1999, 2001]}}, "year $nin", "", ["draft", "final"]),
    ({"status": {"$exists": False}}, "status $exists", "", ["draft", "final"]),
]
empty = pytest.mark.parametrize(
    ("filter_", "dropped", "alone", "left"), EMPTY, ids=lambda value: str(value)[:60]
)


@empty
@pytest.mark.parametrize("mode", MODES)
async def test_the_note_says_which_conditions_are_to_be_left_out_and_which_alone_leave_results(
    filed: Shelf, mode: Mode, filter_: dict[str, object], dropped: str, alone: str, left: list[str]
) -> None:
    assert left
    answer = await _asked(filed, filter_, mode=mode)
    assert answer.hits == ()
    assert answer.notes == (f"The filter excludes all results; without {dropped} there are results.{alone}",)


@empty
@pytest.mark.parametrize("mode", MODES)
async def test_a_profile_that_relaxes_drops_them_and_says_which(
    filed: Shelf, mode: Mode, filter_: dict[str, object], dropped: str, alone: str, left: list[str]
) -> None:
    answer = await _asked(filed, filter_, mode=mode, relax=True)
    assert _titles(answer) == set(left)
    assert answer.notes == (f"The filter excludes all results. Conditions dropped: {dropped}.",)
    assert alone not in answer.notes


@pytest.mark.parametrize("relax", [False, True])
async def test_a_filter_that_leaves_something_is_kept_and_needs_no_word(filed: Shelf, *, relax: bool) -> None:
    answer = await _asked(filed, {"year": 2001, "status": "draft"}, relax=relax)
    assert (_titles(answer), answer.notes) == ({"draft"}, ())


@pytest.mark.parametrize("relax", [False, True])
async def test_neither_words_nor_relaxation_reach_what_the_principal_may_not_see(
    filed: Shelf, *, relax: bool
) -> None:
    only_secret: dict[str, object] = {"status": "secret", "year": 2050}
    assert _titles(await _asked(filed, only_secret, relax=relax, principal=ANN)) == {"secret"}
    answer = await _asked(filed, only_secret, relax=relax)
    assert "secret" not in _titles(answer)
    (note,) = answer.notes
    assert "status $eq, year $eq" in note
    if not relax:
        assert note.endswith("alone leaves results: none.")


async def test_where_the_words_are_nowhere_the_filter_is_not_blamed(filed: Shelf) -> None:
    answer = await _asked(filed, {"year": 1980}, mode="sparse", relax=True, query="zebra")
    assert answer.hits == ()
    assert answer.notes == (
        "No passage contains a word of the query. Use other words, or mode hybrid to search by meaning, too.",
    )


@pytest.mark.slow
async def test_by_words_too_the_filter_is_blamed_if_without_it_any_passage_is_near_enough(
    shelf: Shelf,
) -> None:
    await shelf.declare("documents", year="integer")
    await shelf.put("rare", "a zebra in the high grass of the far plain", fields={"year": 2001})
    for name in "abcdef":
        await shelf.put(name, "pendulum clock tower bell", fields={"year": 2001})
    query = "zebra pendulum clock tower bell"
    assert _titles(await shelf.search(query, mode="sparse", limit=1)) == {"rare"}
    desk = shelf.desk(mode="sparse", thresholds={"min_similarity": 0.7})
    answer = await desk.search(BOB, SearchRequest(query, filter={"year": 1980}))
    assert answer.notes == ("The filter excludes all results; without year $eq there are results.",)
    unlike = await desk.search(BOB, SearchRequest("zebra", filter={"year": 1980}))
    assert unlike.notes[0].startswith("No passage that meets the thresholds contains a word of the query.")


async def test_a_list_of_sources_is_not_relaxed(filed: Shelf) -> None:
    desk = filed.desk(relax=True)
    request = SearchRequest("pendulum", filter={"year": 2001}, sources=("none",))
    assert (await desk.search(BOB, request)).hits == ()
    assert _titles(await desk.search(BOB, SearchRequest("pendulum", filter={"year": 1980}))) == {
        "draft",
        "final",
    }


async def test_types_that_differ_between_collections_are_said_where_a_value_fits_only_one(
    filed: Shelf,
) -> None:
    await filed.declare("songs", year="string")
    await filed.put("song", "pendulum", collection="songs", fields={"year": "MMI"})
    desk = filed.desk()
    hint = r"different types: year; name one collection"
    for value in (2001, "MMI"):
        with pytest.raises(Exception, match=hint):
            await desk.search(BOB, SearchRequest("pendulum", filter={"year": value}))
    for collection, year, found in [("papers", 2001, {"draft"}), ("songs", "MMI", {"song"})]:
        request = SearchRequest("pendulum", filter={"year": year}, collections=(collection,))
        assert _titles(await desk.search(BOB, request)) == found
    both = SearchRequest("pendulum", filter={"year": {"$exists": True}})
    assert _titles(await desk.search(BOB, both)) == {"draft", "final", "song"}
