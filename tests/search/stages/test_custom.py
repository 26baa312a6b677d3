"""What profiles do with the passages that were found, by our stages and the operator's functions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from rag.answers import Answer, SearchRequest, Step
from rag.config.profiles import CustomStage
from rag.config.settings import Settings
from rag.errors import ConfigurationError
from rag.report import counted
from rag.search.desk import Desk
from rag.search.stages.custom import load_function
from tests.search.conftest import ME, Shelf, titles

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)


async def _asked(shelf: Shelf, query: str, *stages: dict[str, Any], limit: int = 8) -> Answer:
    desk = shelf.desk(profiles={"staged": {"stages": stages}}, limit=limit)
    answer = await desk.search(ME, SearchRequest(query, profile="staged"))
    assert [stage.name for stage in answer.steps][-len(stages) :] == [
        stage_settings["stage"] for stage_settings in stages
    ]
    return answer


def _texts(answer: Answer) -> list[str]:
    return [hit.chunk.text for hit in answer.hits]


@pytest.mark.slow
async def test_with_recency_a_newer_passage_comes_before_a_better_one(shelf: Shelf) -> None:
    texts = {
        "old": "pendulum clock",
        "new": "pendulum clock of wood",
        "undated": "pendulum clock with a bell",
    }
    days = {"old": 4000, "new": 1}
    await shelf.put_all(
        texts, details_of={name: {"date": NOW - timedelta(days=age)} for name, age in days.items()}
    )
    assert titles(await shelf.search("pendulum clock"))[0] == "old"
    for missing, expected in [("ignore", ["undated", "new", "old"]), ("penalize", ["new", "old", "undated"])]:
        stage = {"stage": "recency", "half_life_days": 30, "missing": missing}
        answer = await _asked(shelf, "pendulum clock", stage)
        assert sorted(titles(answer)) == sorted(expected)
        assert titles(answer).index("new") < titles(answer).index("old")
        assert (titles(answer).index("undated") == 2) == (missing == "penalize")
        assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
    with pytest.raises(ConfigurationError, match="The stage recency found no date"):
        await _asked(shelf, "pendulum clock", {"stage": "recency", "missing": "error"})


@pytest.mark.slow
async def test_a_passage_that_repeats_a_better_one_makes_room_for_another(shelf: Shelf) -> None:
    text = "the pendulum clock swings"
    await shelf.put_all({**dict.fromkeys("abc", text), "d": "the pendulum of Foucault"})
    assert _texts(await shelf.search("pendulum clock", limit=2)) == [text, text]
    answer = await _asked(shelf, "pendulum clock", {"stage": "dedupe"}, limit=2)
    assert _texts(answer) == [text, "the pendulum of Foucault"]
    assert answer.notes == ("Left out: 1 passage repeating a better one.",)
    answer = await _asked(shelf, "pendulum clock", {"stage": "dedupe"}, limit=3)
    assert _texts(answer) == [text, "the pendulum of Foucault"]
    assert answer.notes == ("Left out: 2 passages repeating a better one.",)


@pytest.mark.slow
async def test_of_copies_that_differ_in_a_number_precise_keeps_the_newest_or_all_that_have_no_date(
    shelf: Shelf,
) -> None:
    rule = (
        "The annual fee of the clock club is {} pounds and due on the first of May by all who keep a pendulum"
    )
    fees = {"a": 40, "b": 41, "c": 45}
    await shelf.put_all(
        {name: rule.format(pounds) for name, pounds in fees.items()},
        details_of={name: {"date": NOW - timedelta(days=pounds)} for name, pounds in fees.items()},
    )
    await shelf.put("d", "The pendulum of the clock club is due for repair, and the annual fee pays for it")
    question = "annual fee of the clock club"
    answer = await shelf.search(question, profile="precise")
    assert sorted(titles(answer)) == ["a", "d"]
    assert answer.notes == ("Left out: 2 passages repeating a better one.",)
    assert len((await shelf.search(question)).hits) == 4
    assert "b" in titles(await shelf.search(f"{question} of 41 pounds", profile="precise"))
    await shelf.put_all({"a": rule.format(40), "b": rule.format(41), "c": rule.format(41)})
    answer = await shelf.search(question, profile="precise")
    assert sum("pounds" in text for text in _texts(answer)) == 2


@pytest.mark.slow
async def test_one_note_counts_what_stages_and_thresholds_left_out_of_what_the_limit_had_shown(
    shelf: Shelf,
) -> None:
    poor = {name: f"pendulum of {'quite other words and ' * 9}{name}" for name in "de"}
    await shelf.put_all(dict.fromkeys("abc", "the pendulum clock swings") | poor)
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


@pytest.mark.slow
async def test_a_source_takes_no_more_places_than_it_may(shelf: Shelf) -> None:
    await shelf.put("a", *(f"pendulum clock number{number}" for number in range(9)))
    await shelf.put("b", "a clock of water", "a dial for the sun")
    assert titles(await shelf.search("pendulum clock", limit=4)) == ["a"] * 4
    stage = {"stage": "diversify", "lambda": 1, "per_source": 2}
    answer = await _asked(shelf, "pendulum clock", stage, limit=4)
    assert titles(answer) == ["a", "a", "b", "b"]


@pytest.mark.slow
async def test_stages_run_in_their_order_and_the_limit_comes_last(shelf: Shelf) -> None:
    text = "the pendulum clock swings to and fro in the tall tower of the old town"
    await shelf.put("old", text, date=NOW - timedelta(days=900))
    await shelf.put("new", f"{text} by the river and the sea", date=NOW)
    recency = {"stage": "recency", "half_life_days": 30}
    dedupe = {"stage": "dedupe"}
    assert titles(await shelf.search(text)) == ["old", "new"]
    assert titles(await _asked(shelf, text, recency, limit=1)) == ["new"]
    assert titles(await _asked(shelf, text, recency, dedupe)) == ["new"]
    assert titles(await _asked(shelf, text, dedupe, recency)) == ["new"]


async def test_stages_have_nothing_to_do_where_nothing_is_found(shelf: Shelf) -> None:
    await shelf.put("a", "pendulum clock")
    every = [{"stage": name} for name in ("recency", "dedupe", "diversify")]
    desk = shelf.desk(stages=every)
    answer = await desk.search(ME, SearchRequest("sand", mode="sparse"))
    assert not answer.hits
    assert "Use other words" in answer.notes[0]


@pytest.fixture
def _own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of an operator's own."""
    (tmp_path / "own_package").mkdir()
    (tmp_path / "own_package" / "__init__.py").touch()
    (tmp_path / "own_package" / "good.py").write_text(
        "async def ask(query, options): return []\ndef plain(query, options): return []\nN = 3\n"
    )
    (tmp_path / "own_package" / "needy.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "own_package" / "broken.py").write_text("raise ValueError('confidential')\n")
    (tmp_path / "own_package" / "wrong.py").write_text("def ask(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_package"]:
        del sys.modules[name]


def custom_stage(call: str) -> CustomStage:
    return CustomStage(stage="custom", call=call, takes="query")


@pytest.mark.usefixtures("_own_package")
def test_a_dotted_path_leads_to_its_function() -> None:
    assert (
        load_function(custom_stage("own_package.good:ask")) is importlib.import_module("own_package.good").ask
    )


@pytest.mark.usefixtures("_own_package")
@pytest.mark.parametrize(
    ("call", "why"),
    [
        ("nowhere_at_all:ask", "there is no module nowhere_at_all in refdesk's environment"),
        ("own_package.bad:ask", "there is no module own_package.bad in refdesk's environment"),
        ("own_package.needy:ask", "importing its module raised ModuleNotFoundError"),
        ("own_package.broken:ask", "importing its module raised ValueError"),
        ("own_package.wrong:ask", "importing its module raised SyntaxError"),
        ("own_package.good:other", "that module has no other"),
        ("own_package.good:plain", "which isn't an async def function"),
        ("own_package.good:N", "which isn't an async def function"),
    ],
)
def test_a_path_that_leads_nowhere_is_a_wrong_setting(call: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load_function(custom_stage(call))
    assert str(error.value).startswith(f"The stage custom calls {call}, ")
    assert why in str(error.value)
    assert "confidential" not in str(error.value)


HEAD = """\
from dataclasses import replace
import anyio
import numpy as np
from rag.answers import Excerpt, Hit

async def arrange(query, hits, options):
"""


class Written(Protocol):
    """A custom stage that calls a function with this body."""

    def __call__(self, body: str, **settings: object) -> dict[str, object]: ...


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    name = f"own_{tmp_path.name}"

    def write(body: str, **settings: object) -> dict[str, object]:
        (tmp_path / f"{name}.py").write_text(f"{HEAD}    {body}\n")
        monkeypatch.syspath_prepend(tmp_path)
        return {"stage": "custom", "call": f"{name}:arrange", "takes": "hits"} | settings

    return write


@pytest.fixture
async def stocked(shelf: Shelf) -> Shelf:
    """Four passages of different likeness to the pendulum."""
    await shelf.declare("clocks", year="integer")
    paragraphs = [f"pendulum {'and other words ' * n}" for n in range(4)]
    await shelf.put("clocks", *paragraphs, collection="clocks", fields={"year": 2001})
    return shelf


async def _answer(shelf: Shelf, *stages: dict[str, object], **request: Any) -> Answer:  # noqa: ANN401 a request's
    return await shelf.desk(stages=stages).search(ME, SearchRequest("pendulum", **request), trace=True)


def _stage(answer: Answer) -> Step:
    (stage,) = [stage for stage in answer.steps if stage.name == "custom"]
    return stage


GOOD = {
    "return hits": [0, 1, 2, 3],
    "return hits[::-1]": [3, 2, 1, 0],
    "return [hits[2], hits[0]]": [2, 0],
    "return [hit for hit in hits if options['word'] not in hit.text]": [0],
    "return []": [],
}


@pytest.mark.parametrize(("body", "places"), GOOD.items(), ids=GOOD.keys())
async def test_a_function_orders_and_leaves_out(
    stocked: Shelf, written: Written, body: str, places: list[int]
) -> None:
    before = (await stocked.search("pendulum")).hits
    answer = await _answer(stocked, written(body, options={"word": "words"}))
    assert answer.hits == tuple(before[place] for place in places)
    dropped = counted(len(before) - len(places), "passage")
    is_complete = len(places) == len(before)
    note = () if is_complete else (f"Left out: {dropped} that a stage of the operator dropped.",)
    assert (_stage(answer).status, answer.notes) == ("ok", note)
    assert (_stage(answer).before, _stage(answer).after) == (4, len(places))
    assert answer.steps[-1] == _stage(answer)


@pytest.mark.parametrize("number", ["0.5", "1", "0", "-3", "np.float32(0.5)"])
async def test_a_function_gives_other_scores(stocked: Shelf, written: Written, number: str) -> None:
    before = (await stocked.search("pendulum")).hits
    answer = await _answer(stocked, written(f"return [replace(hits[1], score={number})]"))
    (hit,) = answer.hits
    assert (hit.chunk, hit.source, hit.similarity) == (
        before[1].chunk,
        before[1].source,
        before[1].similarity,
    )
    assert hit.score == float(number.removeprefix("np.float32(").removesuffix(")"))


async def test_a_function_sees_the_query_and_all_that_was_found_and_the_limit_cuts_after_it(
    stocked: Shelf, written: Written
) -> None:
    before = (await stocked.search("pendulum")).hits
    body = "return hits[::-1] if query == 'pendulum' and type(hits) is tuple else []"
    answer = await _answer(stocked, written(body), limit=2)
    assert answer.hits == (before[3], before[2])
    assert answer.steps[-1].name == "limit"


async def test_what_a_function_does_to_fields_and_vectors_stays_with_it(
    stocked: Shelf, written: Written
) -> None:
    changed = "replace(hits[0], fields={'year': 1}, vector=None)"
    (hit,) = (await _answer(stocked, written(f"return [{changed}]"))).hits
    assert hit.fields == {"year": 2001}
    assert hit.vector is not None


SOMETHING_ELSE = "it returned something other than hits that it was given"
BAD = {
    "return [replace(hits[0], chunk=replace(hits[0].chunk, id='else/0'))]": SOMETHING_ELSE,
    "return [*hits, replace(hits[0], chunk=replace(hits[0].chunk, id='else/0'))]": SOMETHING_ELSE,
    "return [replace(hits[0], chunk=replace(hits[0].chunk, text='pendulum!'))]": SOMETHING_ELSE,
    "return [replace(hits[0], chunk=hits[1].chunk)]": SOMETHING_ELSE,
    "return [replace(hits[0], excerpts=(Excerpt(0, 8, 'Pendulum'),))]": SOMETHING_ELSE,
    "return [replace(hits[0], source=replace(hits[0].source, title='other'))]": SOMETHING_ELSE,
    "return [replace(hits[0], similarity=1.0)] + [replace(hits[1], similarity=1.0)]": SOMETHING_ELSE,
    "return [hits[0], hits[1], hits[0]]": SOMETHING_ELSE,
    "return [replace(hits[0], score=float('nan'))]": SOMETHING_ELSE,
    "return [replace(hits[0], score=float('inf'))]": SOMETHING_ELSE,
    "return [replace(hits[0], score=float('-inf'))]": SOMETHING_ELSE,
    "return [replace(hits[0], score=1.0001)]": SOMETHING_ELSE,
    "return [replace(hits[0], score=None)]": SOMETHING_ELSE,
    "return [replace(hits[0], score='high')]": SOMETHING_ELSE,
    "return [replace(hits[0], score=10**400)]": SOMETHING_ELSE,
    "return [hit.chunk for hit in hits]": SOMETHING_ELSE,
    "return None": SOMETHING_ELSE,
    "return (hit for hit in hits)": SOMETHING_ELSE,
    "return {hit.chunk.id: hit for hit in hits}": SOMETHING_ELSE,
    "return 'hits'": SOMETHING_ELSE,
    "raise ValueError(hits[0].chunk.text)": "it raised ValueError",
    "raise TimeoutError('pendulum')": "it raised TimeoutError",
    "raise SystemExit('pendulum')": "it raised SystemExit",
    "await anyio.sleep_forever()": "no answer within 0.05 seconds",
}


@pytest.mark.parametrize(("body", "cause"), BAD.items(), ids=BAD.keys())
async def test_what_a_bad_function_does_changes_nothing_and_is_said(
    stocked: Shelf, written: Written, body: str, cause: str
) -> None:
    stage = written(body, timeout_seconds=0.05 if "sleep" in body else 10)
    answer = await _answer(stocked, stage)
    assert answer.hits == (await stocked.search("pendulum")).hits
    assert answer.notes == (f"The stage {stage['call']} failed ({cause}); it left the passages unchanged.",)
    assert (_stage(answer).status, _stage(answer).warnings) == ("failed", answer.notes)


async def test_the_stages_after_a_bad_function_do_their_work(stocked: Shelf, written: Written) -> None:
    await stocked.put("again", "pendulum ", collection="clocks")
    answer = await _answer(stocked, written("return None"), {"stage": "dedupe"})
    assert len(answer.hits) == 3  # of five: one is there twice, and one nearly repeats a longer one
    assert [stage.status for stage in answer.steps][-2:] == ["failed", "ok"]


async def test_a_desk_is_not_opened_with_a_function_that_is_not_there(shelf: Shelf, written: Written) -> None:
    stage = written("return hits")
    stage["call"] = str(stage["call"]).replace("arrange", "arrive")
    for search in ({"stages": [stage]}, {"profiles": {"own": {"stages": [stage]}}}):
        settings = Settings.model_validate({"data": shelf.data, "search": search})
        with pytest.raises(ConfigurationError, match="that module has no arrive"):
            async with Desk.open(settings):
                pass
