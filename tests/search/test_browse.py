"""Looking around as in a file system: all of it is shown and opened, and nothing but what one may read."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Extract, Part, SearchRequest
from rag.corpus import Access, Binding, Principal, Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.search.agents import NO_FOLDER, open_or_list
from rag.search.browse import (
    OTHER_CASE,
    WITHOUT_DATE,
    Entry,
    Folder,
    Page,
    Sort,
    children,
    display_parts,
    documents_or_folder_at,
    placed_documents,
)
from rag.search.desk import Desk
from rag.search.reply.source_reply import folder_reply
from rag.search.reply.untrusted import MAX_LABEL_CHARS, label
from rag.search.tool_arguments import Listing
from rag.search.view import NO_PATTERNS, SOME_UNDATED, WITH_COLLECTION
from rag.store.read.schema import SourcePlace
from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

PIECES = [
    *"ab/ .\\%<![]",
    "..",
    "é",
    "e\u0301",
    "\u202e",
    "\x00",
    "\n",
    "A",
    "10",
    "9",
    "x" * 250,
    "閏",
    "mfzq/3",
]
PATHS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


def _places(*paths: str) -> list[SourcePlace]:
    return [SourcePlace(f"id{n}", path, f"Title {n}", None, {}) for n, path in enumerate(paths)]


def _names(paths: list[str], folder: str = "") -> list[str]:
    page = _page(children(placed_documents(_places(*paths)), folder), None, 99)
    return [entry.name if entry.id else f"{entry.name}/ {entry.documents}" for entry in page.entries]


def _page(entries: list[Entry], after: str | None, limit: int) -> Folder:
    page = Page(after, limit)
    page.add(entries)
    return page.folder("", len(entries))


def test_folders_come_first_and_numbers_by_their_value() -> None:
    paths = [
        "b.md",
        "a/x.md",
        "B.md",
        "chapter 10.md",
        "chapter 9.md",
        "a/y/z.md",
        "Z/1.md",
        "ä.md",
        "10/1.md",
    ]
    assert _names(paths) == [
        *("10/ 1", "a/ 2", "Z/ 1"),
        *("ä.md", "B.md", "b.md", "chapter 9.md", "chapter 10.md"),
    ]
    assert _names(paths, "a") == ["y/ 1", "x.md"]
    assert _names(paths, "a/y") == ["z.md"]
    assert _names(paths, "nothing") == []


def test_a_document_without_a_path_stands_at_the_top_by_its_title() -> None:
    places = [SourcePlace("one", "", "A/B testing", None, {}), SourcePlace("two", "", "\u202e", None, {})]
    assert [(place.path, place.id) for place in placed_documents(places)] == [
        ("A/B testing", "one"),
        ("two", "two"),
    ]
    assert documents_or_folder_at(placed_documents(places), "A/B testing") == placed_documents(places)[:1]


@given(st.lists(PATHS, min_size=1, max_size=12))
def test_every_document_is_listed_once_and_opened_by_the_names_that_are_shown(paths: list[str]) -> None:
    all_ = placed_documents(_places(*paths))
    path_by_id: dict[str, str] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        page = _page(children(all_, folder), None, 99)
        assert page.remaining == 0
        assert folder == "" or documents_or_folder_at(all_, f"{folder}/") == folder
        for child in page.entries:
            path = f"{folder}/{child.name}" if folder else child.name
            assert child.name == label(child.name) != ""
            assert len(child.name) <= MAX_LABEL_CHARS
            if child.id:
                path_by_id[child.id] = path
                assert child.documents == 1
            else:
                folders.append(path)
                assert child.documents == sum(place.path.startswith(f"{path}/") for place in all_)
    assert path_by_id == {place.id: place.path for place in all_}
    for place in all_:
        same = documents_or_folder_at(all_, place.path)
        assert isinstance(same, list)
        assert place in same
        assert {namesake.path for namesake in same} == {place.path}


@given(st.lists(PATHS, max_size=20), st.lists(PATHS, max_size=5), st.integers(1, 4), st.randoms())
def test_pages_show_all_that_stays_once_whatever_comes_and_goes(
    paths: list[str], more: list[str], size: int, chance: random.Random
) -> None:
    stays = [Entry(display_parts(path)[0], f"id{n}") for n, path in enumerate(paths) if display_parts(path)]
    comes = [Entry(display_parts(path)[0], f"new{n}") for n, path in enumerate(more) if display_parts(path)]
    listed: list[Entry] = []
    after: str | None = None
    for _ in range(len(stays) + len(comes) + 1):  # a page shows at least one
        now = [*stays, *(child for child in comes if chance.random() < 0.5)]
        page = _page(now, after, size)
        assert len(page.entries) <= size
        listed += page.entries
        if not page.remaining:
            break
        after = page.after
    assert sorted(child.id for child in listed if child in stays) == sorted(child.id for child in stays)
    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize("after", ["", "x", "9" * 5000, "9" * 5000 + "/x"], ids=len)
def test_what_is_no_end_of_a_page_is_refused(after: str) -> None:
    with pytest.raises(InvalidRequestError, match="next_after of an earlier reply"):
        Page(after, 9)


ALL = placed_documents(
    _places("Leave/Sick.md", "leave/sick.md", "Travel/Trains.md", "a", "a/b.md", "Cafe\u0301.md")
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("leave/sick.md", ["id1"]),
        ("/leave//sick.md", ["id1"]),
        ("travel/trains.MD", ["id2"]),
        ("TRAVEL", "Travel"),
        ("Travel/", "Travel"),
        ("a", ["id3"]),
        ("a/", "a"),
        ("caf\u00c9.md", ["id5"]),
        ("a/../a", None),
        ("a/c.md", None),
        ("Trav", None),
        ("travel/trains.md/", None),
        ("leave", "leave"),
        ("", ""),
    ],
)
def test_a_path_is_exact_or_the_only_one_without_letter_case(
    path: str, expected: list[str] | str | None
) -> None:
    held = documents_or_folder_at(ALL, path)
    assert ([document.id for document in held] if isinstance(held, list) else held) == expected


@pytest.mark.parametrize("path", ["LEAVE", "LEAVE/SICK.MD"])
def test_two_paths_that_differ_in_letter_case_are_not_guessed_from(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="letter case"):
        documents_or_folder_at(ALL, path)


def test_an_empty_tree_has_no_top() -> None:
    assert documents_or_folder_at([], "") is None


ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
FOR_ANN = Access("restricted", frozenset({"user:ann"}))


async def _put(shelf: Shelf, path: str, collection: str = "documents", **details: object) -> Source:
    metadata = {"path": path} if path else {}
    name = f"file:///{collection}/{path}"
    return await shelf.put(
        name, f"About {path}", "and more", collection=collection, metadata=metadata, **details
    )


async def _shown(desk: Desk, who: Principal, path: str = "", **page: Any) -> list[str]:  # noqa: ANN401
    folder = await desk.listing(who, path, **page)
    assert folder.documents >= sum(entry.documents or 0 for entry in folder.entries)
    return [entry.name if entry.source else f"{entry.name}/ {entry.documents}" for entry in folder.entries]


@pytest.fixture
async def desk(shelf: Shelf) -> Desk:
    await _put(shelf, "leave/parental.md")
    await _put(shelf, "leave/sick.md", access=FOR_ANN)
    await _put(shelf, "salaries/2026/ann.md", access=FOR_ANN)
    await _put(shelf, "", title="A note")
    await _put(shelf, "travel.md", "policies", access=FOR_ANN)
    return shelf.desk()


@pytest.mark.slow
async def test_each_sees_the_folders_that_hold_something_for_them(desk: Desk) -> None:
    assert await _shown(desk, ANN) == ["documents/ 4", "policies/ 1"]
    assert await _shown(desk, ANN, "documents") == ["leave/ 2", "salaries/ 1", "A note"]
    assert await _shown(desk, ANN, "documents/leave/") == ["parental.md", "sick.md"]
    assert await _shown(desk, ANN, "documents/salaries") == ["2026/ 1"]
    assert await _shown(desk, BOB) == ["documents/ 2"]
    assert await _shown(desk, BOB, "documents") == ["leave/ 1", "A note"]
    assert await _shown(desk, BOB, "documents/leave") == ["parental.md"]


@pytest.mark.slow
async def test_what_is_not_for_one_is_refused_in_the_words_for_what_is_not_there(desk: Desk) -> None:
    hidden = [
        "documents/leave/sick.md",
        "documents/salaries",
        "documents/salaries/",
        "policies",
        "salaries/2026",
    ]
    hidden += ["policies/travel.md", "documents/SALARIES/2026/ann.md", "travel.md", "leave/sick.md"]
    for path in hidden:
        assert await desk.at(ANN, path)
        words = []
        for name in (path, path.replace("a", "zz")):
            with pytest.raises(NotFoundError) as caught:
                await desk.at(BOB, name)
            words.append(str(caught.value))
        assert len(set(words)) == 1


async def test_the_gate_alone_keeps_back_as_much(desk: Desk, blind: Callable[[], None]) -> None:
    blind()
    assert await _shown(desk, BOB, "documents") == ["leave/ 1", "A note"]
    with pytest.raises(NotFoundError):
        await desk.at(BOB, "documents/leave/sick.md")
    assert await desk.at(ANN, "documents/leave/sick.md")


async def test_a_right_that_is_taken_away_counts_at_once(shelf: Shelf, desk: Desk) -> None:
    sick = await desk.at(ANN, "documents/leave/sick.md")
    assert isinstance(sick, str)
    await shelf.small.recorded(shelf.data, sick, Access("restricted"))
    assert await _shown(desk, ANN, "documents/leave") == ["parental.md"]
    with pytest.raises(NotFoundError):
        await desk.at(ANN, "documents/leave/sick.md")


@pytest.mark.slow
async def test_bindings_are_walls_of_the_tree_too(shelf: Shelf) -> None:
    await shelf.declare("handbook", year="integer")
    await shelf.declare("notes")
    await _put(shelf, "old/a.md", "handbook", fields={"year": 2019})
    await _put(shelf, "new/b.md", "handbook", fields={"year": 2026})
    await _put(shelf, "c.md", "notes")
    desk = shelf.desk()
    assert await _shown(desk, ANN, "handbook") == ["new/ 1", "old/ 1"]
    recent = replace(ANN, bindings=(Binding(filter={"year": {"$gte": 2026}}),))
    assert await _shown(desk, recent) == ["handbook/ 1"]
    assert await _shown(desk, recent, "handbook") == ["new/ 1"]
    notes = replace(ANN, bindings=(Binding(collections=("notes",)),))
    assert await _shown(desk, notes) == ["notes/ 1"]
    for who, path in ((recent, "handbook/old"), (recent, "notes"), (notes, "handbook"), (notes, "new/b.md")):
        with pytest.raises(NotFoundError):
            await desk.at(who, path)


async def test_a_path_is_opened_with_its_collection_or_without_where_only_one_has_it(
    shelf: Shelf, desk: Desk
) -> None:
    for path in ("documents/leave/parental.md", "leave/parental.md", "refdesk://documents/leave/parental.md"):
        extract = await open_or_list(desk, BOB, path, 5_000, part=Part(lines=(3, 3)))
        assert not isinstance(extract, Folder)
        assert extract.text == "and more"
    await _put(shelf, "leave/parental.md", "policies")
    with pytest.raises(InvalidRequestError, match="Several collections have this path"):
        await desk.at(BOB, "leave/parental.md")
    assert await desk.at(BOB, "policies/leave/parental.md")


async def test_a_name_that_shows_nothing_is_no_folder(desk: Desk) -> None:
    for name in (" ", "\u202e", "\x00/", "nothing/ "):
        with pytest.raises(NotFoundError):
            await desk.at(ANN, name)
    assert await _shown(desk, ANN, "//") == await _shown(desk, ANN)
    assert await _shown(desk, ANN, "DOCUMENTS") == await _shown(desk, ANN, "documents")


async def test_documents_of_one_path_are_told_apart_by_id(shelf: Shelf, desk: Desk) -> None:
    path = "leave/parental.md"
    second = await shelf.put("file:///elsewhere", "Another", metadata={"path": path}, access=FOR_ANN)
    first = await desk.at(BOB, path)
    assert first != second.id
    with pytest.raises(
        InvalidRequestError, match=f"(?=.*{first})(?=.*{second.id})Several documents"
    ) as caught:
        await desk.at(ANN, path)
    assert "open one by its id" in str(caught.value)
    assert await _shown(desk, ANN, "documents/leave") == ["parental.md", "parental.md", "sick.md"]


@pytest.mark.slow
async def test_an_id_is_an_id_even_if_a_collection_or_a_path_is_called_so(shelf: Shelf) -> None:
    source = await _put(shelf, "abc/3", "notes", id_="documents")
    await _put(shelf, "readme", "documents")
    await _put(shelf, "3", "abc")
    desk = shelf.desk()
    by_id = await open_or_list(desk, ANN, "documents", 5_000)
    assert not isinstance(by_id, Folder)
    assert by_id.source == source
    folder = await open_or_list(desk, ANN, "documents/", 5_000)
    assert isinstance(folder, Folder)
    assert [entry.name for entry in folder.entries] == ["readme"]
    for path in ("documents/readme", "abc/3"):
        assert not isinstance(await open_or_list(desk, ANN, path, 5_000), Folder)


async def test_the_line_that_an_exact_search_names_is_the_line_that_is_opened(shelf: Shelf) -> None:
    odd = "one\x0cstill one\r\n\u2028two\n\n\n"
    await shelf.put("log", "# Log", odd, f"{odd}a needle here", "and a needle there")
    desk = shelf.desk()
    hits = (await desk.search(ANN, SearchRequest("needle", mode="exact"))).hits
    hit_lines = [(hit.source.id, occurrence.line) for hit in hits for occurrence in hit.occurrences]
    assert len(hit_lines) == 2
    for id_, line in hit_lines:
        extract = await desk.extract(ANN, id_, max_chars=1_000, part=Part(lines=(line, line)))
        assert "a needle" in extract.text
        assert "\n" not in extract.text


async def test_parts_go_with_documents_and_after_with_folders(desk: Desk) -> None:
    with pytest.raises(InvalidRequestError, match="This is a list"):
        await open_or_list(desk, ANN, "documents/leave", 5_000, part=Part(outline=True))
    sick = await desk.resolve_name(ANN, "leave/sick.md")
    for name in ("documents/leave/sick.md", "leave/sick.md", sick, f"[{sick}/0]"):
        with pytest.raises(InvalidRequestError, match="this is a document"):
            await open_or_list(desk, ANN, name, 5_000, listing=Listing(after="a/"))
    with pytest.raises(NotFoundError):
        await open_or_list(desk, ANN, "leave/none.md", 5_000, listing=Listing(after="a/"))


@pytest.mark.slow
async def test_pages_go_on_behind_what_has_gone_meanwhile(shelf: Shelf) -> None:
    for n in range(7):
        await _put(shelf, f"{n}.md")
    desk = shelf.desk()
    first = await desk.listing(ANN, "documents", limit=3)
    assert ([entry.name for entry in first.entries], first.remaining) == (["0.md", "1.md", "2.md"], 4)
    gone = first.entries[-1].source
    assert gone
    async with await shelf.small.writing(shelf.data) as writer:
        await writer.remove([gone.id])
    await _put(shelf, "2a.md")
    await _put(shelf, "1a.md")
    page = await desk.listing(ANN, "documents", limit=9, after=first.after)
    assert [entry.name for entry in page.entries] == ["2a.md", "3.md", "4.md", "5.md", "6.md"]
    assert (page.remaining, page.after) == (0, None)


@pytest.mark.slow
async def test_collections_are_paged_and_say_what_they_hold(shelf: Shelf) -> None:
    for name in ("alpha", "beta", "gamma"):
        await _put(shelf, "x.md", name)
    first = await shelf.desk().listing(ANN, limit=2)
    assert [entry.name for entry in first.entries] == ["alpha", "beta"]
    assert await _shown(shelf.desk(), ANN, after=first.after) == ["gamma/ 1"]


@pytest.mark.parametrize("max_chars", [2_000, 3_333, 20_000])
async def test_a_folder_stays_in_its_budget_and_together_the_pages_are_all_of_it(
    shelf: Shelf, max_chars: int
) -> None:
    names = [f"{n} " + '🕰"' * (n % 80) for n in range(60)]
    source = await _put(shelf, "x.md")
    entries = tuple(
        Entry(name, f"id{n}", replace(source, id=f"id{n}", title=name[::-1])) for n, name in enumerate(names)
    )
    titles: list[str] = []
    while len(titles) < len(names):
        reply = folder_reply(Folder("notes", 99, entries[len(titles) :], remaining=5, after="z/z"), max_chars)
        assert len(reply.compact()) <= max_chars
        titles += [entry.name for entry in reply.entries]
        remaining = 5 + len(names) - len(titles)
        assert reply.notes == [f"{remaining} more entries; continue with after=next_after."]
        assert reply.next_after == (entries[len(titles) - 1].after if remaining > 5 else "z/z")
    assert titles == names


# All documents that match a filter, whatever their folders: counted, in an order, in pages.

DAYS = {"a.md": 3, "hr/b.md": 1, "hr/c.md": 2, "hr/leave/d10.md": None, "hr/leave/d9.md": 5}


FINAL = {"status": "final"}


def _may(day: int) -> datetime:
    return datetime(2024, 5, day, tzinfo=UTC)


@pytest.fixture
async def library(shelf: Shelf) -> Desk:
    """Five documents for everybody, of which one has no date, and two for Ann."""
    await shelf.declare("documents", status="string")
    for path, day in DAYS.items():
        fields = {"status": "final" if path.startswith("hr/") else "draft"}
        title = f"Title {len(path)} {path[-4]}"
        await _put(shelf, path, title=title, fields=fields, date=_may(day) if day else None)
    await _put(shelf, "hr/pay.md", access=FOR_ANN, fields=FINAL, date=_may(9))
    await _put(shelf, "travel.md", "policies", access=FOR_ANN)
    return shelf.desk()


async def _listed(desk: Desk, who: Principal, path: str = "", **options: Any) -> tuple[int, list[str]]:  # noqa: ANN401
    page = await desk.documents(who, path, **options)
    return page.documents, [entry.name.removeprefix("documents/") for entry in page.entries]


@pytest.mark.slow
async def test_all_documents_are_listed_with_their_number_for_each_who_may_read_them(library: Desk) -> None:
    in_order = ["a.md", "hr/b.md", "hr/c.md", "hr/leave/d9.md", "hr/leave/d10.md"]
    assert await _listed(library, BOB) == (5, in_order)
    for_ann = sorted([*in_order[:3], "hr/pay.md"]) + in_order[3:]
    assert (await _listed(library, ANN, "documents"))[0] == 6
    assert set((await _listed(library, ANN))[1]) == {*for_ann, "policies/travel.md"}
    assert await _listed(library, BOB, "documents/hr/leave/") == (2, in_order[3:])
    assert await _listed(library, BOB, "documents/nowhere") == (0, [])
    for hidden in ("policies", "policies/travel.md", "nothing"):
        with pytest.raises(NotFoundError):
            await library.documents(BOB, hidden)


async def test_a_list_is_in_the_order_of_dates_titles_or_paths(library: Desk) -> None:
    newest = ["hr/leave/d9.md", "a.md", "hr/c.md", "hr/b.md", "hr/leave/d10.md"]
    assert (await _listed(library, BOB, sort="date"))[1] == newest
    titles = [
        entry.source.title for entry in (await library.documents(BOB, sort="title")).entries if entry.source
    ]
    assert titles == ["Title 4 a", "Title 7 b", "Title 7 c", "Title 14 9", "Title 15 0"]


async def test_a_list_has_what_matches_and_says_what_has_no_date(library: Desk) -> None:
    assert (await _listed(library, BOB, filter=FINAL))[0] == 4
    assert (await _listed(library, ANN, filter=FINAL))[0] == 5
    since = await library.documents(BOB, filter={"date": {"$gte": "2024-05-02"}}, sort="date")
    assert [entry.name for entry in since.entries] == [
        f"documents/{name}" for name in ("hr/leave/d9.md", "a.md", "hr/c.md")
    ]
    assert since.notes == (WITHOUT_DATE.format(1),)
    before = await library.documents(BOB, filter={"$not": {"date": {"$gte": "2024-05-02"}}})
    assert (before.documents, before.notes) == (2, ())  # with what has no date
    with pytest.raises(InvalidRequestError, match="section"):
        await library.documents(BOB, filter={"section": "Leave"})


async def test_a_search_says_that_documents_state_no_date_to_who_may_read_one(library: Desk) -> None:
    async def notes(principal: Principal, collection: str, **filter_: object) -> tuple[str, ...]:
        request = SearchRequest("text", filter=filter_, collections=(collection,))
        return (await library.search(principal, request)).notes

    since = {"date": {"$gte": "2024-05-02"}}
    for principal, collection in ((BOB, "documents"), (ANN, "policies")):
        assert SOME_UNDATED in await notes(principal, collection, **since)
        for filter_ in ({"title": "Title 4 a"}, {"$not": since}, {"date": {"$exists": False}}):
            assert SOME_UNDATED not in await notes(principal, collection, **filter_)
    with pytest.raises(NotFoundError):
        await notes(BOB, "policies", **since)


@pytest.mark.slow
async def test_a_hidden_document_without_a_date_is_not_told(shelf: Shelf) -> None:
    await _put(shelf, "a.md", date=_may(1))
    await _put(shelf, "b.md", access=FOR_ANN)
    request = SearchRequest("text", filter={"date": {"$gte": "2024-05-01"}})
    assert SOME_UNDATED in (await shelf.desk().search(ANN, request)).notes
    assert SOME_UNDATED not in (await shelf.desk().search(BOB, request)).notes


async def test_a_path_with_its_collection_in_a_filter_is_told(library: Desk) -> None:
    message = WITH_COLLECTION.format("a.md", "documents/a.md")
    assert (await library.documents(BOB, filter={"path": "documents/a.md"})).notes == (message,)
    assert (await library.documents(BOB, filter={"path": "a.md"})).notes == ()
    assert (
        message in (await library.search(BOB, SearchRequest("text", filter={"path": "documents/a.md"}))).notes
    )


@pytest.mark.parametrize(
    "path", ["*.md", "hr/*", {"$in": ["hr/"]}, {"$prefix": "*"}, {"$contains": "hr/*.md"}]
)
async def test_that_a_filter_has_no_wildcards_is_told(library: Desk, path: object) -> None:
    assert (await library.documents(BOB, filter={"path": path})).notes == (NO_PATTERNS,)
    assert NO_PATTERNS in (await library.search(BOB, SearchRequest("text", filter={"path": path}))).notes
    assert (await library.documents(BOB, filter={"path": "hr"})).notes == ()


@pytest.mark.slow
async def test_a_value_in_another_letter_case_is_told(shelf: Shelf, library: Desk) -> None:
    await _put(shelf, "hr/plan.md", access=FOR_ANN, fields={"status": "Secret"})
    cases: list[tuple[dict[str, object], tuple[str, ...]]] = [
        ({"status": "Final"}, (OTHER_CASE.format("status", "final"),)),
        ({"status": {"$in": ["DRAFT", "FINAL"]}}, (OTHER_CASE.format("status", "draft, final"),)),
        ({"path": "HR/B.md"}, (OTHER_CASE.format("path", "hr/b.md"),)),
        ({"path": "ｈｒ／b.md"}, (OTHER_CASE.format("path", "hr/b.md"),)),
        ({"status": "Final", "path": "a.md"}, (OTHER_CASE.format("status", "final"),)),
        ({"status": "final"}, ()),
        ({"status": "final", "path": "a.md"}, ()),
        ({"status": "open"}, ()),
        ({"status": "secret"}, ()),
    ]
    for filter_, notes in cases:
        assert (await library.documents(BOB, filter=filter_)).notes == notes, filter_
    notes = (await library.documents(ANN, filter={"status": "secret"})).notes
    assert notes == (OTHER_CASE.format("status", "Secret"),)


@pytest.mark.slow
async def test_a_filter_goes_with_a_folder_however_it_is_named_and_with_no_document(library: Desk) -> None:
    by_date = Listing(sort="date")
    for name in ("documents/hr", "hr", "refdesk://documents/hr/", "documents/HR"):
        folder = await open_or_list(library, BOB, name, 5_000, listing=by_date)
        assert isinstance(folder, Folder)
        assert (folder.path, folder.documents) == ("documents/hr", 4)
    source_id = await library.resolve_name(BOB, "a.md")
    filtered = Listing({"path": {"$prefix": "a"}}, sort="date")
    for name in ("a.md", "documents/a.md", source_id, f"[{source_id}/0]"):
        with pytest.raises(InvalidRequestError, match=re.escape(NO_FOLDER.format("filter goes", "it"))):
            await open_or_list(library, BOB, name, 5_000, listing=filtered)
        opened = await open_or_list(library, BOB, name, 5_000, listing=by_date, part=Part(around=0))
        assert isinstance(opened, Extract), "a document has no order, and hosts fill in every argument"
    for name in ("nothing", "documents/nothing", "documents/nothing/"):
        with pytest.raises(NotFoundError):
            await open_or_list(library, BOB, name, 5_000, listing=by_date)
    without = await open_or_list(library, BOB, "documents/hr", 5_000, listing=Listing({"path": "x"}))
    assert isinstance(without, Folder)
    assert (without.path, without.documents) == ("documents/hr", 0)


@pytest.mark.parametrize("sort", ["path", "title", "date"])
async def test_the_pages_of_a_list_are_together_all_of_it(library: Desk, sort: Sort) -> None:
    whole = [entry.name for entry in (await library.documents(ANN, sort=sort)).entries]
    pages, after = [], None
    while True:
        page = await library.documents(ANN, sort=sort, after=after, limit=2)
        assert page.documents == 7
        pages += [entry.name for entry in page.entries]
        if (after := page.after) is None:
            break
    assert pages == whole
    assert len(whole) == 7
    for wrong in ("nothing", "9" * 5000 + "/x"):
        with pytest.raises(InvalidRequestError, match="after"):
            await library.documents(ANN, sort=sort, after=wrong)


@pytest.mark.slow
async def test_a_list_tells_nothing_of_what_is_hidden(
    shelf: Shelf, library: Desk, blind: Callable[[], None]
) -> None:
    async def replies(desk: Desk, who: Principal) -> list[str]:
        pages = [
            await desk.documents(who, path, filter=filter_, sort=sort, limit=3)
            for path in ("", "documents", "documents/hr")
            for filter_ in (None, FINAL, {"date": {"$gte": "2024-05-02"}})
            for sort in ("path", "title", "date")
        ]
        return [folder_reply(page, 5_000).compact() for page in pages]

    before, for_ann = await replies(library, BOB), await replies(library, ANN)
    await _put(
        shelf,
        "hr/secret.md",
        access=FOR_ANN,
        fields={"status": "final"},
        date=datetime(2024, 5, 30, tzinfo=UTC),
    )
    assert await replies(shelf.desk(), BOB) == before
    assert await replies(shelf.desk(), ANN) != for_ann
    blind()
    assert await replies(shelf.desk(), BOB) == before
    bound = replace(ANN, bindings=(Binding(collections=("policies",)),))
    assert await _listed(library, bound) == (1, ["policies/travel.md"])
