"""A tree of untrusted paths: what is shown can be opened, and pages lose nothing that stays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.errors import InvalidRequestError
from rag.search.browse import (
    Child,
    children,
    display_parts,
    documents_or_folder_at,
    page_of_children,
    placed_documents,
)
from rag.search.reply.untrusted import MAX_LABEL_CHARS, label
from rag.store.read.stored_rows import SourcePlace

if TYPE_CHECKING:
    import random

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
    shown, _ = page_of_children(children(placed_documents(_places(*paths)), folder), None, 99)
    return [child.name if child.id else f"{child.name}/ {child.documents}" for child in shown]


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
        *("B.md", "b.md", "chapter 9.md", "chapter 10.md", "ä.md"),
    ]
    assert _names(paths, "a") == ["y/ 1", "x.md"]
    assert _names(paths, "a/y") == ["z.md"]
    assert _names(paths, "nothing") == []


def test_a_document_without_a_path_stands_at_the_top_by_its_title() -> None:
    places = [SourcePlace("one", "", "A/B testing", None, {}), SourcePlace("two", "", "\u202e", None, {})]
    assert [(one.path, one.id) for one in placed_documents(places)] == [
        ("A/B testing", "one"),
        ("two", "two"),
    ]
    assert documents_or_folder_at(placed_documents(places), "A/B testing") == placed_documents(places)[:1]


@given(st.lists(PATHS, min_size=1, max_size=12))
def test_every_document_is_listed_once_and_opened_by_the_names_that_are_shown(paths: list[str]) -> None:
    all_ = placed_documents(_places(*paths))
    seen: dict[str, str] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        shown, left = page_of_children(children(all_, folder), None, 99)
        assert left == 0
        assert folder == "" or documents_or_folder_at(all_, f"{folder}/") == folder
        for child in shown:
            path = f"{folder}/{child.name}" if folder else child.name
            assert child.name == label(child.name) != ""
            assert len(child.name) <= MAX_LABEL_CHARS
            if child.id:
                seen[child.id] = path
                assert child.documents == 1
            else:
                folders.append(path)
                assert child.documents == sum(one.path.startswith(f"{path}/") for one in all_)
    assert seen == {one.id: one.path for one in all_}
    for one in all_:
        same = documents_or_folder_at(all_, one.path)
        assert isinstance(same, list)
        assert one in same
        assert {other.path for other in same} == {one.path}


@given(st.lists(PATHS, max_size=20), st.lists(PATHS, max_size=5), st.integers(1, 4), st.randoms())
def test_pages_show_all_that_stays_once_whatever_comes_and_goes(
    paths: list[str], more: list[str], size: int, chance: random.Random
) -> None:
    stays = [Child(display_parts(path)[0], f"id{n}") for n, path in enumerate(paths) if display_parts(path)]
    comes = [Child(display_parts(path)[0], f"new{n}") for n, path in enumerate(more) if display_parts(path)]
    seen: list[Child] = []
    after: str | None = None
    for _ in range(len(stays) + len(comes) + 1):  # a page shows at least one
        now = [*stays, *(child for child in comes if chance.random() < 0.5)]
        shown, left = page_of_children(now, after, size)
        assert len(shown) <= size
        seen += shown
        if not left:
            break
        after = shown[-1].after
    assert sorted(child.id for child in seen if child in stays) == sorted(child.id for child in stays)
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize("after", ["", "x", "9" * 5000, "9" * 5000 + "/x"], ids=len)
def test_what_is_no_end_of_a_page_is_refused(after: str) -> None:
    with pytest.raises(InvalidRequestError, match="next_after of an earlier reply"):
        page_of_children([Child("a", "id")], after, 9)


ALL = placed_documents(
    _places("Leave/Sick.md", "leave/sick.md", "Travel/Trains.md", "a", "a/b.md", "Cafe\u0301.md")
)


@pytest.mark.parametrize(
    ("path", "found"),
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
    path: str, found: list[str] | str | None
) -> None:
    held = documents_or_folder_at(ALL, path)
    assert ([one.id for one in held] if isinstance(held, list) else held) == found


@pytest.mark.parametrize("path", ["LEAVE", "LEAVE/SICK.MD"])
def test_two_paths_that_differ_in_letter_case_are_not_guessed_from(path: str) -> None:
    with pytest.raises(InvalidRequestError, match="letter case"):
        documents_or_folder_at(ALL, path)


def test_an_empty_tree_has_no_top() -> None:
    assert documents_or_folder_at([], "") is None
