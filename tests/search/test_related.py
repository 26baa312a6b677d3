"""What is related to a passage."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rag.answers import Answer, SearchRequest
from rag.corpus import Access, Principal
from rag.errors import InvalidRequestError, NotFoundError
from rag.search.reply.search_reply import search_reply
from rag.uris import NOT_FOUND

if TYPE_CHECKING:
    from rag.corpus import Source
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ANN = Principal("default", "ann")
BOB = Principal("default", "bob")
BOBS = Access("restricted", frozenset({"user:bob"}))


async def _shelved(shelf: Shelf) -> Source:
    """A document that names one and is named by another, and one that is similar to it."""
    tower = await shelf.put("The Tower", "The tower clock was designed by Jane Miller.", "A second part.")
    await shelf.put("Jane Miller", "Born in Leeds, she learnt the trade from an uncle.")
    await shelf.put("Sights", "Visitors go to the market, to the river and up the tower.")
    await shelf.put("Similar", "A tower clock was designed by someone else.")
    await shelf.put_all({f"other {number}": f"A garden of roses, number {number}" for number in range(4)})
    return tower


async def _related(shelf: Shelf, id_: str, principal: Principal = ANN, **request: Any) -> Answer:  # noqa: ANN401
    desk = shelf.desk(statistics="strict", overrides=["mode", "limit"], limit=4)
    return await desk.search(principal, SearchRequest(related=id_, **request))


def _titles(answer: Answer) -> list[str]:
    return [hit.source.title for hit in answer.hits]


async def test_what_a_passage_names_and_what_names_its_document_come_before_similar_ones(
    shelf: Shelf,
) -> None:
    tower = await _shelved(shelf)
    answer = await _related(shelf, f"{tower.id}/0")
    assert {*_titles(answer)[:2]} == {"Jane Miller", "Sights"}
    assert _titles(answer)[2] == "Similar"
    assert [step.name for step in answer.steps][-1] == "related"
    assert (await _related(shelf, tower.id)).hits == answer.hits
    assert (await _related(shelf, f"refdesk://documents/{tower.id}/0-1")).hits == answer.hits
    assert "Jane Miller" not in _titles(await _related(shelf, f"{tower.id}/1"))


async def test_a_query_says_what_of_it_is_wanted(shelf: Shelf) -> None:
    tower = await _shelved(shelf)
    assert "other 3" in _titles(await _related(shelf, tower.id, query="roses number 3"))
    assert "other 3" not in _titles(await _related(shelf, tower.id))


@pytest.mark.slow
async def test_private_documents_are_neither_found_nor_noticed(shelf: Shelf) -> None:
    tower = await _shelved(shelf)
    public = replace(shelf, data=shelf.data.with_name("public"))
    shutil.copytree(shelf.data, public.data)
    await shelf.put("Jane Miller (private)", "Her salary is high.", access=BOBS)
    mine = await shelf.put("Diary", "Up the tower again. Jane Miller was there.", access=BOBS)
    with_private = await _related(shelf, tower.id)
    assert _reply(with_private) == _reply(await _related(public, tower.id))
    assert "Diary" in _titles(await _related(shelf, tower.id, BOB))
    with pytest.raises(NotFoundError, match=NOT_FOUND):
        await _related(shelf, mine.id)
    assert "Jane Miller (private)" in _titles(await _related(shelf, mine.id, BOB))


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
