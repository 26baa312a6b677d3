"""A binding is a wall: whatever is asked, the answer is that of a desk that holds nothing else."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from rag.answers import Mode, SearchRequest
from rag.corpus import Access, Binding, Principal
from rag.errors import InvalidRequestError, NotFoundError
from rag.search.desk import Desk
from rag.search.view import LACKING_FIELDS
from rag.store.read.schema import StoredSource
from tests.search.conftest import Shelf, title_set

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
DRAFTS = 6
FINAL = Binding(filter={"status": "final"})
FREE = Principal("default", "ann")
BOUND = Principal("default", "ann", bindings=(FINAL,))
ONLY_BOB = Access("restricted", frozenset({"user:bob"}))
WIDENING = """
from rag.answers import SubQuery

async def ask(query, options):
    drafts = SubQuery("draft pendulum", filter={"status": "draft"})
    return [drafts, SubQuery("note", collections=(options["name"],), planned=True), SubQuery("pendulum")]
"""
AROUND_THE_WALL: list[dict[str, object]] = [
    {"status": "draft"},
    {"status": {"$ne": "final"}},
    {"$not": {"status": "final"}},
    {"$or": [{"status": "draft"}, {"status": "final"}]},
    {"$or": [{"$not": {"status": "final"}}, {"status": {"$exists": False}}, {"year": {"$exists": True}}]},
    {"$not": {"$and": [{"status": "final"}, {"status": "draft"}]}},
    {"status": {"$nin": ["other"]}},
]


@pytest.fixture
async def shelf(shelf: Shelf) -> Shelf:
    """Collections with a status of their own (handbook), of another type (tickets) and without (notes)."""
    await _fill(shelf)
    await shelf.declare("handbook", status="string", year="integer")
    drafts = {f"draft{number}": (f"pendulum draft {number}", "pendulum pendulum") for number in range(DRAFTS)}
    await shelf.put_all(drafts, "handbook", fields={"status": "draft"})
    await shelf.put("unmarked", "pendulum unmarked", collection="handbook")
    await shelf.declare("tickets", status="integer")
    await shelf.put("ticket", "pendulum ticket", collection="tickets", fields={"status": 1})
    await shelf.put("note", "pendulum note", collection="notes")
    return shelf


async def _fill(shelf: Shelf) -> None:
    """What the binding lets through, and what the access rule forbids even then."""
    await shelf.declare("handbook", status="string", year="integer")
    final = {"status": "final"}
    await shelf.put("rules", "pendulum rules", "more rules", collection="handbook", fields=final)
    await shelf.put("old", "old rules", collection="handbook", fields=final | {"year": 1999})
    await shelf.put("secret", "pendulum", collection="handbook", fields=final, access=ONLY_BOB)


async def _listed(desk: Desk, who: Principal, limit: int = 3) -> list[str]:
    """All sources, page by page."""
    titles: list[str] = []
    after = "", ""
    while page := await desk.sources(who, after=after, limit=limit):
        titles += [source.title for source in page]
        after = page[-1].collection, page[-1].id
    return titles


async def _ids(desk: Desk, who: Principal = FREE) -> dict[str, str]:
    return {source.title: source.id for source in await desk.sources(who, after=("", ""), limit=50)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", ["collection", "strict"])
async def test_a_bound_search_finds_only_what_the_binding_and_the_access_rule_admit(
    shelf: Shelf, mode: Mode, statistics: str
) -> None:
    desk = shelf.desk(statistics=statistics)
    everything = {"rules", "old", "unmarked", "ticket", "note", *(f"draft{n}" for n in range(DRAFTS))}
    titles = title_set(await desk.search(FREE, SearchRequest("pendulum rules", mode=mode, limit=50)))
    assert titles == everything
    bound = title_set(await desk.search(BOUND, SearchRequest("pendulum rules", mode=mode, limit=50)))
    assert bound == {"rules", "old"}
    assert desk.alarms == 0


async def test_no_filter_of_a_request_undoes_a_binding(shelf: Shelf) -> None:
    for desk in (shelf.desk(), shelf.desk(relax=True)):
        for filter_ in AROUND_THE_WALL:
            request = SearchRequest("pendulum", limit=50, filter=filter_, collections=("handbook",))
            assert title_set(await desk.search(FREE, request)) - {"rules", "old"}
            answer = await desk.search(BOUND, request)
            assert title_set(answer) <= {"rules", "old"}
            assert "final" not in str(answer.notes)


async def test_what_lies_behind_the_wall_is_an_unknown_id_in_every_form(shelf: Shelf) -> None:
    desk = shelf.desk()
    ids = await _ids(desk)
    with pytest.raises(NotFoundError) as unknown:
        await desk.extract(BOUND, "a" * 16, max_chars=99)
    for title in ("draft0", "unmarked", "note", "ticket"):
        for form in (ids[title], f"{ids[title]}/0", f"{ids[title]}/0-1", f"{ids[title]}/9"):
            with pytest.raises(NotFoundError) as error:
                await desk.extract(BOUND, form, max_chars=99)
            assert str(error.value) == str(unknown.value)
            with pytest.raises(NotFoundError):
                await desk.why_not(BOUND, SearchRequest("pendulum"), form)
    assert (await desk.extract(BOUND, f"{ids['rules']}/0-1", max_chars=99)).source.title == "rules"
    assert (await desk.extract(FREE, ids["draft0"], max_chars=99)).source.title == "draft0"


async def test_naming_sources_or_excluding_them_helps_nobody(shelf: Shelf) -> None:
    desk = shelf.desk()
    ids = await _ids(desk)
    only_draft = SearchRequest("pendulum", sources=(ids["draft0"],))
    assert title_set(await desk.search(FREE, only_draft)) == {"draft0"}
    hidden = await desk.search(BOUND, only_draft)
    unknown = await desk.search(BOUND, SearchRequest("pendulum", sources=("a" * 16,)))
    assert not hidden.hits
    assert not unknown.hits
    assert hidden.notes == tuple(note.replace("a" * 16, ids["draft0"]) for note in unknown.notes) != ()
    without = SearchRequest("pendulum", exclude_sources=(ids["rules"], ids["old"]))
    assert title_set(await desk.search(BOUND, without)) == set()


async def test_a_collection_in_which_a_binding_admits_nothing_does_not_exist(shelf: Shelf) -> None:
    """Not by its name, in no list, and not in the text of an error."""
    desk = shelf.desk()
    assert [collection.name for collection in await desk.collections(FREE)] == [
        "handbook",
        "notes",
        "tickets",
    ]
    assert [collection.name for collection in await desk.collections(BOUND)] == ["handbook"]
    messages = set()
    for name in ("notes", "tickets", "imaginary"):
        with pytest.raises(NotFoundError) as error:
            await desk.search(BOUND, SearchRequest("pendulum", collections=(name,)))
        messages.add(str(error.value))
        answer = await desk.search(BOUND, SearchRequest("pendulum", collections=("handbook", name)))
        assert {hit.source.collection for hit in answer.hits} == {"handbook"}
        assert answer.notes[0].replace(name, "NAME").endswith("NAME. Readable collections: handbook.")
    assert messages == {"The request names a collection that you can't read. Readable collections: handbook."}


async def test_a_collection_whose_only_matching_sources_are_not_readable_does_not_exist(shelf: Shelf) -> None:
    await shelf.declare("secrets", status="string")
    await shelf.put("s", "pendulum", collection="secrets", fields={"status": "final"}, access=ONLY_BOB)
    await shelf.put("d", "pendulum", collection="secrets", fields={"status": "draft"})
    desk = shelf.desk()
    assert "secrets" in {collection.name for collection in await desk.collections(FREE)}
    assert [collection.name for collection in await desk.collections(BOUND)] == ["handbook"]


async def test_lists_have_full_pages_of_what_is_left(shelf: Shelf) -> None:
    desk = shelf.desk()
    assert len(await _listed(desk, FREE)) == DRAFTS + 5
    assert sorted(await _listed(desk, BOUND, limit=1)) == ["old", "rules"]
    assert sorted(await _listed(desk, BOUND, limit=2)) == ["old", "rules"]
    assert desk.alarms == 0


@pytest.mark.parametrize("mode", MODES)
async def test_with_strict_statistics_reply_and_trace_are_those_of_a_desk_with_nothing_else(
    shelf: Shelf, small_desk: ModuleType, mode: Mode, tmp_path: Path
) -> None:
    alone = type(shelf)(small_desk, tmp_path / "alone", shelf.snapshots)
    await _fill(alone)
    requests = [
        SearchRequest("pendulum rules", mode=mode, limit=1),
        SearchRequest("pendulum rules", mode=mode, filter={"year": {"$exists": True}}),
        SearchRequest("pendulum rules", mode=mode, filter={"status": "draft"}),
        SearchRequest("draft", mode=mode),
    ]
    for request in requests:
        bound = await shelf.desk(statistics="strict").search(BOUND, request, trace=True)
        free = await alone.desk(statistics="strict").search(FREE, request, trace=True)
        assert bound.notes == free.notes
        assert [(hit.chunk, hit.score) for hit in bound.hits] == [(hit.chunk, hit.score) for hit in free.hits]
        assert bound.trace == free.trace
        assert [(s.name, s.before, s.after, s.preview, s.hit_ids) for s in bound.steps] == [
            (s.name, s.before, s.after, s.preview, s.hit_ids) for s in free.steps
        ]


async def test_a_stage_that_asks_for_more_gets_only_what_is_left(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shelf.data.parent / "widening.py").write_text(WIDENING)
    monkeypatch.syspath_prepend(shelf.data.parent)
    stage = {"stage": "custom", "call": "widening:ask", "takes": "query"}
    messages = set()
    for name in ("notes", "imaginary"):
        desk = shelf.desk(stages=[stage | {"options": {"name": name}}])
        answer = await desk.search(BOUND, SearchRequest("draft"))
        assert title_set(answer) <= {"rules", "old"}
        messages.add(str(answer.notes).replace(name, "NAME"))
    assert len(messages) == 1
    desk = shelf.desk(stages=[stage | {"options": {"name": "notes"}}])
    assert title_set(await desk.search(FREE, SearchRequest("draft"))) == {"note"}


async def test_the_filter_of_a_profile_holds_whatever_the_request_filters_by_or_relaxes(shelf: Shelf) -> None:
    desk = shelf.desk(relax=True, profiles={"final": {"filter": {"status": "final"}}})
    free = await desk.search(FREE, "pendulum", limit=50, collections=["handbook"])
    assert {"draft0", "unmarked", "rules"} <= title_set(free)
    answer = await desk.search(FREE, "pendulum", limit=50, profile="final", trace=True)
    assert (title_set(answer), answer.searched) == ({"rules", "old"}, ("handbook",))
    assert LACKING_FIELDS.format("notes, tickets") in answer.notes
    for around in AROUND_THE_WALL:
        narrowed = await desk.search(FREE, "pendulum", limit=50, profile="final", filter=around)
        assert title_set(narrowed) <= {"rules", "old"}, around


async def test_if_the_engine_let_everything_through_the_gate_would_still_hold_it_back(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await _ids(shelf.desk())
    monkeypatch.setattr("rag.search.view.predicate", lambda *_arguments, **_named: "(true)")
    desk = shelf.desk(stages=[{"stage": "neighbors", "count": 1}])
    assert title_set(await desk.search(BOUND, SearchRequest("pendulum", limit=50))) <= {"rules", "old"}
    assert desk.alarms > 0
    assert sorted(await _listed(desk, BOUND)) == ["old", "rules"]
    with pytest.raises(NotFoundError):
        await desk.extract(BOUND, ids["draft0"], max_chars=99)


async def test_if_the_gate_let_everything_through_the_engine_would_still_hold_it_back(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.search.view.matches", lambda *_arguments, **_named: True)
    desk = shelf.desk()
    assert title_set(await desk.search(BOUND, SearchRequest("pendulum", limit=50))) == {"rules", "old"}
    assert sorted(await _listed(desk, BOUND)) == ["old", "rules"]


async def test_a_change_of_a_source_counts_with_the_next_call(shelf: Shelf) -> None:
    desk = shelf.desk()
    id_ = (await _ids(desk))["rules"]
    assert title_set(await desk.search(BOUND, SearchRequest("pendulum rules"))) == {"rules", "old"}
    await shelf.put("rules", "pendulum rules", collection="handbook", fields={"status": "draft"})
    assert title_set(await desk.search(BOUND, SearchRequest("pendulum rules"))) == {"old"}
    with pytest.raises(NotFoundError):
        await desk.extract(BOUND, id_, max_chars=99)
    await shelf.put("draft0", "pendulum rules", collection="handbook", fields={"status": "final"})
    assert title_set(await desk.search(BOUND, SearchRequest("pendulum rules"))) == {"old", "draft0"}


async def test_a_page_of_stale_copies_does_not_hide_what_is_readable_behind_it(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's first rows may all be of sources that the gate withholds."""
    desk = shelf.desk()
    monkeypatch.setattr("rag.search.view.FIRST_ROWS", 1)
    monkeypatch.setattr("rag.search.view.predicate", lambda *_arguments, **_named: "(true)")
    assert [collection.name for collection in await desk.collections(BOUND)] == ["handbook"]
    unreadable: list[StoredSource] = []
    monkeypatch.setattr("rag.search.view.View.admits", lambda _view, stored: unreadable.append(stored))
    assert await desk.collections(BOUND) == ()
    assert len(unreadable) > DRAFTS


async def test_a_bound_limit_caps_the_usual_one_and_refuses_a_higher_one(shelf: Shelf) -> None:
    desk = shelf.desk()
    three = Principal("default", bindings=(Binding(limit=3), Binding(limit=5)))
    assert len((await desk.search(three, SearchRequest("pendulum"))).hits) == 3
    assert len((await desk.search(three, SearchRequest("pendulum", limit=2))).hits) == 2
    with pytest.raises(InvalidRequestError, match="from 0 to 3"):
        await desk.search(three, SearchRequest("pendulum", limit=4))
