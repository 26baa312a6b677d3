"""The stage `graph`: documents that the best passages name, or link to."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from rag.answers import Answer, SearchRequest
from rag.corpus import Access, Binding, Principal
from rag.search.reply.search_reply import search_reply
from rag.search.stages.related import HUB
from tests.search.conftest import Shelf, titles

pytestmark = pytest.mark.anyio

ANN = Principal("default", "ann")
BOB = Principal("default", "bob")
BOBS = Access("restricted", frozenset({"user:bob"}))
QUESTION = "Who designed the tower clock?"
TOWER = "The tower clock was designed by Jane Miller."
MILLER = "Born in Leeds, she learnt the trade from an uncle."


async def _shelve(shelf: Shelf, *, unrelated: int = 6, **details: Any) -> None:  # noqa: ANN401 of a source
    """A document that answers, one that it names, and others that share more words with the question."""
    texts = {f"other {number}": f"Who designed clock {number} of a tower" for number in range(unrelated)}
    await shelf.put_all({"Tower": TOWER, "Jane Miller": MILLER} | texts, details_of={"Jane Miller": details})


async def _asked(
    shelf: Shelf,
    principal: Principal = ANN,
    query: str = QUESTION,
    **request: Any,  # noqa: ANN401 of a request
) -> Answer:
    profiles = {"walk": {"stages": [{"stage": "graph"}]}}
    desk = shelf.desk(profiles=profiles, limit=5, statistics="strict", overrides=["mode", "limit"])
    return await desk.search(principal, SearchRequest(query, **({"profile": "walk"} | request)))


async def test_a_document_that_the_best_passage_names_stands_behind_the_first_ones(shelf: Shelf) -> None:
    await _shelve(shelf)
    without = await _asked(shelf, profile="default")
    assert "Tower" in titles(without)[:2]
    assert "Jane Miller" not in titles(without)
    answer = await _asked(shelf)
    assert titles(answer) == [*titles(without)[:3], "Jane Miller", titles(without)[3]]
    assert answer.hits[3].score < answer.hits[2].score
    assert [step.name for step in answer.steps][-1] == "graph"


@pytest.mark.slow
async def test_a_link_leads_to_its_document_whatever_its_title(shelf: Shelf) -> None:
    await shelf.put(
        "Tower", "Tower clock, by [her](../people/jane.md#life).", metadata={"path": "clocks/t.md"}
    )
    await shelf.put("Biography", MILLER, metadata={"path": "people/jane.md"})
    await shelf.put_all({f"other {number}": f"A clock of sand, number {number}" for number in range(6)})
    assert "Biography" in titles(await _asked(shelf, query="tower clock"))
    assert "Biography" not in titles(await _asked(shelf, query="tower clock", profile="default"))


@pytest.mark.slow
async def test_a_name_that_many_passages_have_leads_nowhere(shelf: Shelf) -> None:
    await _shelve(shelf)
    await shelf.put_all({f"page {number}": f"Jane Miller on page {number}" for number in range(HUB - 2)})
    assert "Jane Miller" in titles(await _asked(shelf))
    await shelf.put("one more", "Jane Miller, once more")
    assert "Jane Miller" not in titles(await _asked(shelf))


@pytest.mark.slow
async def test_only_readable_documents_are_followed_and_others_change_nothing(shelf: Shelf) -> None:
    """Whoever may not read it gets the same bytes as if there were no private document."""
    await _shelve(shelf)
    public = replace(shelf, data=shelf.data.with_name("public"))
    shutil.copytree(shelf.data, public.data)
    await shelf.put("Jane Miller (private)", "Her salary is high.", access=BOBS)
    # For whoever may read them, these make the name a common one.
    await shelf.put("files", *(f"Jane Miller, file {number}" for number in range(HUB)), access=BOBS)
    assert _reply(await _asked(shelf)) == _reply(await _asked(public))
    assert "Jane Miller" in titles(await _asked(shelf))
    assert not {"Jane Miller", "Jane Miller (private)"} & {*titles(await _asked(shelf, BOB))}


@pytest.mark.slow
async def test_a_private_document_is_followed_by_whoever_may_read_it(shelf: Shelf) -> None:
    await _shelve(shelf, access=BOBS)
    assert "Jane Miller" in titles(await _asked(shelf, BOB))
    assert "Jane Miller" not in titles(await _asked(shelf, ANN))


async def test_a_request_leaves_out_the_same_documents_on_the_way(shelf: Shelf) -> None:
    await _shelve(shelf)
    assert "Jane Miller" in titles(await _asked(shelf, filter={"title": {"$ne": "other 1"}}))
    assert "Jane Miller" not in titles(await _asked(shelf, filter={"title": {"$ne": "Jane Miller"}}))
    assert "Jane Miller" not in titles(await _asked(shelf, query=f'{QUESTION} "clock"'))


@pytest.mark.slow
async def test_a_walk_goes_to_other_collections_and_not_beyond_a_binding(shelf: Shelf) -> None:
    await shelf.put("Tower", TOWER)
    await shelf.put("Jane Miller", MILLER, collection="people")
    await shelf.put_all({f"other {number}": f"Who designed clock {number} of a tower" for number in range(6)})
    assert "Jane Miller" in titles(await _asked(shelf))
    assert "Jane Miller" not in titles(await _asked(shelf, collections=("documents",)))
    bound = replace(ANN, bindings=(Binding(collections=("documents",)),))
    assert "Tower" in titles(await _asked(shelf, bound))
    assert "Jane Miller" not in titles(await _asked(shelf, bound))


async def test_mode_exact_finds_what_is_written_and_nothing_else(shelf: Shelf) -> None:
    await _shelve(shelf)
    answer = await _asked(shelf, query="tower clock", mode="exact")
    assert titles(answer) == ["Tower"]
    assert "graph" not in [step.name for step in answer.steps]


def _reply(answer: Answer) -> str:
    return search_reply(answer, None).model_dump_json()
