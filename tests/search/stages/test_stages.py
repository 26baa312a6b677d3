"""What profiles do with the passages that were found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from rag.answers import Answer, SearchRequest
from rag.corpus import Principal
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ME = Principal("default")
NOW = datetime.now(UTC)


async def _asked(shelf: Shelf, query: str, *stages: dict[str, Any], limit: int = 8) -> Answer:
    desk = shelf.desk(profiles={"staged": {"stages": stages}}, limit=limit)
    answer = await desk.search(ME, SearchRequest(query, profile="staged"))
    assert [stage.name for stage in answer.steps][-len(stages) :] == [one["stage"] for one in stages]
    return answer


def _texts(answer: Answer) -> list[str]:
    return [hit.chunk.text for hit in answer.hits]


def _titles(answer: Answer) -> list[str]:
    return [hit.source.title for hit in answer.hits]


@pytest.mark.slow
async def test_with_recency_a_newer_passage_comes_before_a_better_one(shelf: Shelf) -> None:
    await shelf.put("old", "pendulum clock", date=NOW - timedelta(days=4000))
    await shelf.put("new", "pendulum clock of wood", date=NOW - timedelta(days=1))
    await shelf.put("undated", "pendulum clock with a bell")
    assert _titles(await shelf.search("pendulum clock"))[0] == "old"
    for missing, expected in [("ignore", ["undated", "new", "old"]), ("penalize", ["new", "old", "undated"])]:
        stage = {"stage": "recency", "half_life_days": 30, "weight": 0.9, "missing": missing}
        answer = await _asked(shelf, "pendulum clock", stage)
        assert sorted(_titles(answer)) == sorted(expected)
        assert _titles(answer).index("new") < _titles(answer).index("old")
        assert (_titles(answer).index("undated") == 2) == (missing == "penalize")
        assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    with pytest.raises(ConfigurationError, match="The stage recency found no date"):
        await _asked(shelf, "pendulum clock", {"stage": "recency", "missing": "error"})


@pytest.mark.slow
async def test_a_passage_that_repeats_a_better_one_makes_room_for_another(shelf: Shelf) -> None:
    said = "the pendulum clock swings"
    for name in ("a", "b", "c"):
        await shelf.put(name, said)
    await shelf.put("d", "the pendulum of Foucault")
    assert _texts(await shelf.search("pendulum clock", limit=2)) == [said, said]
    answer = await _asked(shelf, "pendulum clock", {"stage": "dedupe"}, limit=2)
    assert _texts(answer) == [said, "the pendulum of Foucault"]
    assert answer.notes == ("Left out: 1 passage repeating a better one.",)
    answer = await _asked(shelf, "pendulum clock", {"stage": "dedupe"}, limit=3)
    assert _texts(answer) == [said, "the pendulum of Foucault"]
    assert answer.notes == ("Left out: 2 passages repeating a better one.",)
    assert not (await _asked(shelf, "pendulum clock", {"stage": "recency"}, limit=3)).notes


@pytest.mark.slow
async def test_precise_keeps_no_copies_that_differ_in_a_digit_but_what_says_something_else(
    shelf: Shelf,
) -> None:
    rule = (
        "The annual fee of the clock club is {} pounds and due on the first of May by all who keep a pendulum"
    )
    for name, pounds in (("a", 40), ("b", 41), ("c", 45)):
        await shelf.put(name, rule.format(pounds))
    await shelf.put("d", "The pendulum of the clock club is due for repair, and the annual fee pays for it")
    answer = await shelf.search("annual fee of the clock club", profile="precise")
    assert len(answer.hits) == 2
    assert "d" in _titles(answer)
    assert answer.notes == ("Left out: 2 passages repeating a better one.",)
    assert len((await shelf.search("annual fee of the clock club")).hits) == 4


async def test_one_note_counts_what_stages_and_thresholds_left_out_of_what_the_limit_had_shown(
    shelf: Shelf,
) -> None:
    for name in ("a", "b", "c"):
        await shelf.put(name, "the pendulum clock swings")
    for name in ("d", "e"):
        await shelf.put(name, f"pendulum of {'quite other words and ' * 9}{name}")
    stages = [{"stage": "dedupe"}, {"stage": "diversify", "lambda": 1, "per_source": 2}]
    desk = shelf.desk(thresholds={"min_similarity": 0.5}, stages=stages)
    answer = await desk.search(ME, SearchRequest("pendulum clock"))
    assert _texts(answer) == ["the pendulum clock swings"]
    distant = "2 passages less similar to the query than the thresholds require"
    assert answer.notes == (f"Left out: {distant}; 2 passages repeating a better one.",)
    assert not (await desk.search(ME, SearchRequest("pendulum clock", limit=1))).notes


@pytest.mark.parametrize("by", ["vectors", "words"])
async def test_what_says_something_else_comes_before_what_says_the_same(shelf: Shelf, by: str) -> None:
    await shelf.put("a", "pendulum clock tower bell", "pendulum clock tower bells", "pendulum sand")
    assert _texts(await shelf.search("pendulum clock tower"))[2] == "pendulum sand"
    stage = {"stage": "diversify", "lambda": 0.3, "by": by}
    assert _texts(await _asked(shelf, "pendulum clock tower", stage))[1] == "pendulum sand"
    stage = {"stage": "diversify", "lambda": 1, "by": by}
    assert (await _asked(shelf, "pendulum clock tower", stage)).hits == (
        await shelf.search("pendulum clock tower")
    ).hits


async def test_a_source_takes_no_more_places_than_it_may(shelf: Shelf) -> None:
    await shelf.put("a", *(f"pendulum clock number{number}" for number in range(9)))
    await shelf.put("b", "a clock of water", "a dial for the sun")
    assert _titles(await shelf.search("pendulum clock", limit=4)) == ["a"] * 4
    stage = {"stage": "diversify", "lambda": 1, "per_source": 2}
    answer = await _asked(shelf, "pendulum clock", stage, limit=4)
    assert _titles(answer) == ["a", "a", "b", "b"]


async def test_stages_run_in_their_order_and_the_limit_comes_last(shelf: Shelf) -> None:
    said = "the pendulum clock swings to and fro in the tall tower of the old town"
    await shelf.put("old", said, date=NOW - timedelta(days=900))
    await shelf.put("new", f"{said} by the river and the sea", date=NOW)
    recency = {"stage": "recency", "half_life_days": 30, "weight": 1}
    dedupe = {"stage": "dedupe", "threshold": 0.6}
    assert _titles(await shelf.search(said)) == ["old", "new"]
    assert _titles(await _asked(shelf, said, recency, limit=1)) == ["new"]
    assert _titles(await _asked(shelf, said, recency, dedupe)) == ["new"]
    assert _titles(await _asked(shelf, said, dedupe, recency)) == ["old"]


async def test_stages_have_nothing_to_do_where_nothing_is_found(shelf: Shelf) -> None:
    await shelf.put("a", "pendulum clock")
    every = [{"stage": name} for name in ("recency", "dedupe", "diversify")]
    desk = shelf.desk(stages=every)
    answer = await desk.search(ME, SearchRequest("sand", mode="sparse"))
    assert not answer.hits
    assert "Use other words" in answer.notes[0]
