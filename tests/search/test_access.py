"""What a principal may not see is found on no path, and what it may see is found on the same one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, get_args

import pytest

from rag.answers import Mode, Part, SearchRequest
from rag.corpus import Access, EmbedderIdentity, FieldType, Principal, Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.search.desk import Desk
from rag.search.view import COLLECTIONS_NAMED, joined_names
from rag.store.read import schema
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.connection import connect
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import StoredSource
from rag.store.write.change_collection import drop_tenant, open_writer
from rag.store.write.desk_folder import note_tenant, prepare
from rag.store.write.make_collection import ensure_collection
from tests.search.conftest import Shelf
from tests.small_desk import set_access

pytestmark = pytest.mark.anyio

MODES: tuple[Mode, ...] = get_args(Mode)
ANN = Principal("default", "ann", frozenset({"hr"}))
BOB = Principal("default", "bob", frozenset({"it"}))
NOBODY = Principal("default")
ASKED = SearchRequest("pendulum")
STRANGER = Principal("elsewhere", "ann", frozenset({"hr"}))

ONLY_ANN = Access("restricted", frozenset({"user:ann"}))
ONLY_HR = Access("restricted", frozenset({"group:hr"}))
NOT_BOB = Access("tenant", frozenset(), frozenset({"user:bob"}))
NOT_IT = Access("restricted", frozenset({"user:ann", "user:bob"}), frozenset({"group:it"}))

HIDDEN: list[tuple[Access | None, Principal]] = [
    (Access("tenant"), STRANGER),
    (ONLY_ANN, STRANGER),
    (ONLY_ANN, BOB),
    (ONLY_ANN, NOBODY),
    (ONLY_HR, BOB),
    (NOT_BOB, BOB),
    (NOT_IT, BOB),
]
hidden = pytest.mark.parametrize(("access", "asker"), HIDDEN)


@pytest.fixture(autouse=True)
def _another_tenant(shelf: Shelf) -> None:
    """There is a tenant with nothing in it: one that doesn't exist is an error, whatever it asks."""
    prepare(shelf.data)
    note_tenant(shelf.data, STRANGER.tenant)


async def _found(desk: Desk, principal: Principal, mode: Mode | None = None, **details: object) -> set[str]:
    """The titles of what a search finds."""
    request = SearchRequest("pendulum", mode=mode, limit=50, **details)  # type: ignore[arg-type]  # a test's own
    return {hit.source.title for hit in (await desk.search(principal, request)).hits}


async def _titles(desk: Desk, principal: Principal) -> list[str]:
    return [source.title for source in await desk.sources(principal, after=("", ""), limit=50)]


async def _names(desk: Desk, principal: Principal) -> list[str]:
    return [collection.name for collection in await desk.collections(principal)]


async def _refusal(desk: Desk, principal: Principal, id_: str) -> str:
    with pytest.raises(NotFoundError) as error:
        await desk.extract(principal, id_, max_chars=1000)
    return str(error.value)


async def _set(shelf: Shelf, source: Source, access: Access) -> None:
    async with await shelf.small.writing(shelf.data) as writer:
        await set_access(writer, {source.id: access})


async def _put_declared(
    shelf: Shelf, collection: str, declared: Mapping[str, FieldType], fields: Mapping[str, object]
) -> None:
    """A source, called like its collection, with declared fields that everybody may read."""
    await shelf.declare(collection, **declared)
    await shelf.put(collection, f"pendulum {collection}", collection=collection, fields=fields)


async def test_tenants_with_the_same_names_and_words_see_each_only_its_own(shelf: Shelf) -> None:
    ours = await shelf.put("a", "pendulum ours")
    async with await shelf.small.writing(shelf.data, "elsewhere") as writer:
        theirs = shelf.small.new_source(writer, "a", "pendulum theirs", title="theirs")
        await writer.replace([theirs])
    for principal, title, present, absent in [
        (ANN, "a", ours.id, theirs.source.id),
        (STRANGER, "theirs", theirs.source.id, ours.id),
    ]:
        for mode in MODES:
            desk = shelf.desk()
            assert await _found(desk, principal, mode) == {title}
            assert await _found(desk, principal, mode, sources=(present, absent)) == {title}
            assert await _found(desk, principal, mode, sources=(absent,)) == set()
        assert await _titles(desk, principal) == [title]
        assert (await desk.extract(principal, present, max_chars=99)).source.title == title
        await _refusal(desk, principal, absent)


@hidden
async def test_a_search_does_not_find_what_is_not_for_the_principal(
    shelf: Shelf, access: Access, asker: Principal
) -> None:
    await shelf.put("secret", "pendulum one", "pendulum two", access=access)
    for mode in MODES:
        desk = shelf.desk()
        assert await _found(desk, ANN, mode) == {"secret"}
        assert await _found(desk, asker, mode) == set()
        assert desk.alarms == 0


async def test_what_is_for_the_principal_is_found_beside_any_number_of_better_hits_that_are_not(
    shelf: Shelf,
) -> None:
    await shelf.put("secret", *["pendulum"] * 200, access=ONLY_ANN)
    await shelf.put("open", "pendulum among a lot of other words")
    for mode in MODES:
        desk = shelf.desk()
        assert await _found(desk, ANN, mode) >= {"secret"}
        assert await _found(desk, BOB, mode) == {"open"}


async def test_a_source_without_a_record_is_for_nobody(shelf: Shelf) -> None:
    source = await shelf.put("new", "pendulum", access=None)
    desks = {mode: shelf.desk() for mode in MODES}
    for mode, desk in desks.items():
        assert await _found(desk, ANN, mode) == set()
        assert (await _titles(desk, ANN), await _names(desk, ANN)) == ([], [])
        await _refusal(desk, ANN, source.id)
    await _set(shelf, source, Access("tenant"))
    for mode, desk in desks.items():
        assert await _found(desk, ANN, mode) == {"new"}


@hidden
async def test_naming_a_hidden_source_or_its_collection_helps_nobody(
    shelf: Shelf, access: Access, asker: Principal
) -> None:
    source = await shelf.put("secret", "pendulum", access=access)
    desk = shelf.desk()
    assert await _found(desk, ANN, sources=(source.id,), collections=("documents",)) == {"secret"}
    assert await _found(desk, asker, sources=(source.id,)) == set()
    with pytest.raises(NotFoundError) as error:
        await _found(desk, asker, collections=("documents",))
    assert "documents" not in str(error.value)


@hidden
async def test_a_hidden_source_is_refused_in_the_words_for_an_unknown_id(
    shelf: Shelf, access: Access, asker: Principal
) -> None:
    source = await shelf.put("secret", "pendulum one", "pendulum two", access=access)
    desk = shelf.desk()
    unknown = await _refusal(desk, asker, "a" * 16)
    for id_ in (source.id, f"{source.id}/0", f"{source.id}/1", f"{source.id}/9"):
        assert await _refusal(desk, asker, id_) == unknown
    assert (await desk.extract(ANN, source.id, max_chars=1000)).text == "pendulum one\n\npendulum two"
    assert (
        await desk.extract(ANN, f"{source.id}/1", max_chars=1000, part=Part(around=0))
    ).text == "pendulum two"


@hidden
async def test_a_hidden_source_stands_in_no_list(shelf: Shelf, access: Access, asker: Principal) -> None:
    await shelf.put("secret", "pendulum", access=access)
    desk = shelf.desk()
    assert (await _titles(desk, ANN), await _names(desk, ANN)) == (["secret"], ["documents"])
    assert (await _titles(desk, asker), await _names(desk, asker)) == ([], [])


@hidden
async def test_a_collection_with_something_else_in_it_shows_only_that(
    shelf: Shelf, access: Access, asker: Principal
) -> None:
    await shelf.put("secret", "pendulum", access=access)
    await shelf.put("open", "pendulum")
    desk = shelf.desk()
    listed = [] if asker is STRANGER else ["open"]
    assert sorted(await _titles(desk, ANN)) == ["open", "secret"]
    assert await _titles(desk, asker) == listed
    assert await _found(desk, asker) == set(listed)
    assert await _names(desk, asker) == (["documents"] if listed else [])


async def test_what_is_hidden_does_not_show_in_what_a_search_says(shelf: Shelf) -> None:
    await shelf.put("open", "sundial")
    desk = shelf.desk()
    before = await desk.search(BOB, SearchRequest("pendulum", mode="sparse"))
    await shelf.put("secret", "pendulum", access=ONLY_ANN)
    assert await desk.search(BOB, SearchRequest("pendulum", mode="sparse")) == before
    assert await _found(desk, ANN, "sparse") == {"secret"}


@pytest.mark.slow
async def test_a_change_of_access_counts_from_the_next_search_of_the_same_desk(shelf: Shelf) -> None:
    source = await shelf.put("a", "pendulum one")
    await shelf.put("control", "pendulum too")
    desks = {mode: shelf.desk() for mode in MODES}
    for mode, desk in desks.items():
        assert await _found(desk, BOB, mode) == {"a", "control"}
    for access, is_seen in [(NOT_BOB, False), (Access("tenant"), True), (ONLY_ANN, False), (NOT_IT, False)]:
        await _set(shelf, source, access)
        for mode, desk in desks.items():
            assert await _found(desk, BOB, mode) == ({"a", "control"} if is_seen else {"control"})
            assert await _found(desk, ANN, mode) == {"a", "control"}
            assert ("a" in await _titles(desk, BOB)) is is_seen
            assert desk.alarms == 0


@pytest.mark.slow
async def test_a_desk_knows_at_once_whether_a_record_of_the_tenant_names_a_group(shelf: Shelf) -> None:
    desk = shelf.desk()
    assert not await desk.names_groups("default")
    source = await shelf.put("a", "pendulum", access=Access("tenant"))
    await shelf.put("b", "pendulum", collection="more", access=None)
    for allow, deny, named in [
        (frozenset[str](), frozenset({"group:hr"}), True),
        (frozenset({"user:group:hr", "user:x group:hr"}), frozenset({"user:ann"}), False),
        (frozenset({"user:ann", "group:hr"}), frozenset[str](), True),
        (frozenset[str](), frozenset[str](), False),
    ]:
        await _set(shelf, source, Access("restricted", allow, deny))
        assert await desk.names_groups("default") is named
        assert not await desk.names_groups("elsewhere")
    await shelf.put("c", "pendulum", collection="more", access=NOT_IT)
    assert await desk.names_groups("default")


async def test_a_source_that_is_ingested_again_keeps_its_access(shelf: Shelf) -> None:
    await shelf.put("a", "pendulum one", access=ONLY_ANN)
    await shelf.put("a", "pendulum two", access=Access("tenant"))
    desk = shelf.desk()
    assert (await _found(desk, ANN), await _found(desk, BOB)) == ({"a"}, set())


async def test_the_gate_keeps_back_what_a_stale_copy_lets_through_and_counts_it(shelf: Shelf) -> None:
    source = await shelf.put("a", "pendulum one", "pendulum two")
    await shelf.put("control", "pendulum too")
    desks = {mode: shelf.desk() for mode in MODES}
    for mode, desk in desks.items():
        assert await _found(desk, BOB, mode) == {"a", "control"}
    await shelf.small.recorded(shelf.data, source.id, ONLY_ANN)
    for mode, desk in desks.items():
        assert desk.alarms == 0
        assert await _found(desk, BOB, mode) == {"control"}
        assert desk.alarms == 1
        assert await _found(desk, ANN, mode) == {"a", "control"}
        await _refusal(desk, BOB, source.id)
        assert await _titles(desk, BOB) == ["control"]
        assert desk.alarms == 1


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
async def test_what_a_change_of_rights_or_of_the_document_explains_is_no_alarm(
    shelf: Shelf, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await shelf.put("a", "pendulum one", "pendulum two")
    await shelf.put("control", "pendulum too")
    desk, sources = shelf.desk(), CollectionReader.sources
    pending: list[Callable[[], Awaitable[object]]] = []

    async def overtaken(table: CollectionReader, ids: Iterable[str]) -> dict[str, StoredSource]:
        if pending:
            await pending.pop()()
        return await sources(table, ids)

    monkeypatch.setattr(CollectionReader, "sources", overtaken)
    for change in (
        lambda: shelf.put("a", "pendulum anew", access=Access("restricted"), set_access=True),
        lambda: _set(shelf, source, NOT_BOB),
    ):
        pending.append(change)  # between the lists and the gate
        assert (await _found(desk, BOB, mode), desk.alarms, pending) == ({"control"}, 0, [])
        await _set(shelf, source, Access("tenant"))
        assert await _found(desk, BOB, mode) == {"a", "control"}
    pending.append(lambda: _set(shelf, source, NOT_BOB))
    assert (await _titles(desk, BOB), desk.alarms, pending) == (["control"], 0, [])


@pytest.mark.slow
async def test_a_list_goes_on_behind_what_the_gate_keeps_back(shelf: Shelf) -> None:
    names = {source.id: source.title for source in await shelf.put_all(dict.fromkeys("abcdef", "pendulum"))}
    first = min(names)
    records = await (await connect(shelf.data)).open_table(schema.access_table("default"))
    desk = shelf.desk()
    assert {source.id for source in await desk.sources(BOB, after=("", ""), limit=3)} == set(
        sorted(names)[:3]
    )
    await records.update({"visibility": "restricted"}, where=schema.one_of("id", [first]))
    listed = [source.id for source in await desk.sources(BOB, after=("", ""), limit=3)]
    assert listed == sorted(names)[1:4]
    page = await desk.sources(BOB, after=("documents", listed[-1]), limit=3)
    assert [source.id for source in page] == sorted(names)[4:]


async def test_the_gate_holds_a_source_to_the_filter_by_its_own_fields(shelf: Shelf) -> None:
    await _put_declared(shelf, "dated", {"year": "integer"}, {"year": 2001})
    desk = shelf.desk()
    assert await _found(desk, NOBODY, filter={"year": 2001}) == {"dated"}
    sources = await (await connect(shelf.data)).open_table(schema.sources_table("default", "dated"))
    await sources.update({"fields": '{"year": 1999}'})
    assert (await _found(desk, NOBODY, filter={"year": 2001}), desk.alarms) == (set(), 1)
    assert await _found(desk, NOBODY) == {"dated"}


async def test_a_source_whose_copies_are_stale_the_other_way_is_missing_but_safe(shelf: Shelf) -> None:
    source = await shelf.put("a", "pendulum one", access=ONLY_ANN)
    desk = shelf.desk()
    await shelf.small.recorded(shelf.data, source.id, Access("tenant"))
    assert (await _found(desk, BOB), desk.alarms) == (set(), 0)
    assert await _titles(desk, BOB) == ["a"]


@pytest.mark.slow
async def test_a_tenant_that_is_made_again_has_no_rights_of_before(shelf: Shelf) -> None:
    before = await shelf.put("a", "pendulum one")
    desk = shelf.desk()
    assert await _found(desk, BOB) == {"a"}
    reader = DeskReader(shelf.data, timeout_seconds=15)
    await drop_tenant(shelf.data, "default", await reader.collections("default"))
    after = await shelf.put("a", "pendulum one", access=ONLY_ANN)  # in as many versions as before
    assert after.id == before.id
    await _refusal(desk, BOB, after.id)
    assert await _found(desk, BOB) == set()
    assert await _found(desk, ANN) == {"a"}


@pytest.mark.slow
async def test_a_field_that_one_collection_declares_is_one_that_the_other_lacks(shelf: Shelf) -> None:
    await _put_declared(shelf, "dated", {"year": "integer"}, {"year": 2001})
    await _put_declared(shelf, "plain", {}, {})
    expected: list[tuple[dict[str, object], set[str]]] = [
        ({"year": 2001}, {"dated"}),
        ({"year": 1999}, set()),
        ({"year": {"$ne": 2001}}, {"plain"}),
        ({"year": {"$nin": [1999]}}, {"dated", "plain"}),
        ({"year": {"$exists": False}}, {"plain"}),
        ({"$not": {"year": 2001}}, {"plain"}),
        ({"$not": {"year": {"$gt": 3000}}}, {"dated", "plain"}),
        ({"$or": [{"year": 2001}, {"year": {"$exists": False}}]}, {"dated", "plain"}),
    ]
    for mode in MODES:
        desk = shelf.desk()
        for filter_, titles in expected:
            assert await _found(desk, NOBODY, mode, filter=filter_) == titles
        assert await _found(desk, NOBODY, mode) == {"dated", "plain"}
        assert desk.alarms == 0


async def test_where_the_named_collections_declare_nothing_the_field_is_unknown(shelf: Shelf) -> None:
    await _put_declared(shelf, "dated", {"year": "integer"}, {"year": 2001})
    await _put_declared(shelf, "plain", {}, {})
    with pytest.raises(
        InvalidRequestError, match=r"no field 'year' .* there are: date, path, section, title\.$"
    ):
        await _found(shelf.desk(), NOBODY, collections=("plain",), filter={"year": 2001})


async def test_an_unknown_field_names_only_those_of_collections_that_the_principal_reads(
    shelf: Shelf,
) -> None:
    await _put_declared(shelf, "dated", {"year": "integer"}, {"year": 2001})
    await shelf.declare("kept", clearance="string")
    await shelf.put("kept", "pendulum", collection="kept", access=ONLY_ANN)
    fields = "date, path, section, title, year"
    for principal, names in [(ANN, f"clearance, {fields}"), (BOB, fields), (NOBODY, fields)]:
        with pytest.raises(InvalidRequestError) as error:
            await _found(shelf.desk(), principal, filter={"colour": "red"})
        assert str(error.value).endswith(f": {names}.")
    with pytest.raises(InvalidRequestError) as error:
        await _found(shelf.desk(), BOB, filter={"clearance": "top"})
    assert str(error.value).endswith(f": {fields}.")
    assert await _found(shelf.desk(), ANN, filter={"clearance": {"$exists": False}}) == {"dated", "kept"}


async def test_a_filter_never_widens(shelf: Shelf) -> None:
    await _put_declared(shelf, "dated", {"year": "integer"}, {"year": 2001})
    desk = shelf.desk()
    empty: list[dict[str, object]] = [{}, {"$and": []}, {"$or": []}, {"year": {"$in": []}}, {"year": None}]
    for filter_ in empty:
        with pytest.raises(InvalidRequestError):
            await _found(desk, NOBODY, filter=filter_)
    assert await _found(desk, NOBODY, filter={"year": 2001}) == {"dated"}


async def test_a_filter_of_a_principal_who_reads_nothing_is_not_even_looked_at(shelf: Shelf) -> None:
    await _put_declared(shelf, "dated", {"year": "integer"}, {"year": 2001})
    desk = shelf.desk()
    assert await _found(desk, STRANGER, filter={"year": 2001}) == set()
    assert await _found(desk, STRANGER, filter={"unknown": 2001}) == set()


async def test_a_collection_of_another_embedder_that_one_cannot_read_is_not_named(shelf: Shelf) -> None:
    await shelf.put("open", "pendulum")
    collection = await ensure_collection(
        shelf.data, "default", "kept", EmbedderIdentity("tests", "other", 32)
    )
    async with open_writer(shelf.data, collection) as writer:
        await writer.replace([shelf.small.new_source(writer, "x", "pendulum", access=ONLY_ANN)])
    assert len((await shelf.desk().search(BOB, ASKED)).hits) == 1


async def test_a_collection_without_an_index_that_one_cannot_read_is_not_named(shelf: Shelf) -> None:
    await shelf.put("open", "pendulum")
    await shelf.put("x", "pendulum", collection="kept", access=ONLY_ANN)
    table = await (await connect(shelf.data)).open_table(schema.chunks_table("default", "kept"))
    for index in await table.list_indices():
        if index.columns == ["body"]:
            await table.drop_index(index.name)
    assert len((await shelf.desk().search(BOB, ASKED)).hits) == 1


async def test_access_that_is_taken_away_during_an_extract_is_not_found(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = await shelf.put("a", "pendulum one", "pendulum two")
    between = CollectionReader.chunks_between
    calls: list[int] = []

    async def overtaken(*arguments: Any) -> object:  # noqa: ANN401 whatever the method takes
        calls.append(1)
        if len(calls) == 2:
            async with await shelf.small.writing(shelf.data) as writer:
                await set_access(writer, {source.id: ONLY_ANN})
        return await between(*arguments)

    monkeypatch.setattr(CollectionReader, "chunks_between", overtaken)
    with pytest.raises(NotFoundError):
        await shelf.desk().extract(BOB, f"{source.id}/0", max_chars=999, part=Part(around=1))


async def test_half_a_character_in_a_source_id_is_a_wrong_request(shelf: Shelf) -> None:
    await shelf.put("a", "pendulum")
    with pytest.raises(InvalidRequestError):
        await shelf.desk().search(BOB, SearchRequest("pendulum", sources=("a\ud800",)))


async def test_a_message_names_the_first_collections_of_hundreds() -> None:
    names = [f"c{number:03}" for number in range(200)]
    assert joined_names(reversed(names)) == f"{', '.join(names[:COLLECTIONS_NAMED])} and 180 more"
    assert joined_names([]) == "none"
