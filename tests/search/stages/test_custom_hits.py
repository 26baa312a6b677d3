"""Functions of the operator's own between search and answer, good ones and bad ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import pytest

from rag.answers import Answer, SearchRequest
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.errors import ConfigurationError
from rag.search.desk import Desk

if TYPE_CHECKING:
    from pathlib import Path

    from rag.answers import Step
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ME = Principal("default")
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


async def _asked(shelf: Shelf, *stages: dict[str, object], **request: Any) -> Answer:  # noqa: ANN401 a request's
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
    answer = await _asked(stocked, written(body, options={"word": "words"}))
    assert answer.hits == tuple(before[place] for place in places)
    assert (_stage(answer).status, answer.notes) == ("ok", ())
    assert (_stage(answer).before, _stage(answer).after) == (4, len(places))
    assert answer.steps[-1] == _stage(answer)


@pytest.mark.parametrize("number", ["0.5", "1", "0", "-3", "np.float32(0.5)"])
async def test_a_function_gives_other_scores(stocked: Shelf, written: Written, number: str) -> None:
    before = (await stocked.search("pendulum")).hits
    answer = await _asked(stocked, written(f"return [replace(hits[1], score={number})]"))
    (hit,) = answer.hits
    assert (hit.chunk, hit.source, hit.similarity) == (
        before[1].chunk,
        before[1].source,
        before[1].similarity,
    )
    assert hit.score == float(number.removeprefix("np.float32(").removesuffix(")"))
    assert not answer.notes


async def test_a_function_sees_the_query_and_all_that_was_found_and_the_limit_cuts_after_it(
    stocked: Shelf, written: Written
) -> None:
    before = (await stocked.search("pendulum")).hits
    body = "return hits[::-1] if query == 'pendulum' and type(hits) is tuple else []"
    answer = await _asked(stocked, written(body), limit=2)
    assert answer.hits == (before[3], before[2])
    assert answer.steps[-1].name == "limit"


async def test_what_a_function_does_to_fields_and_vectors_stays_with_it(
    stocked: Shelf, written: Written
) -> None:
    changed = "replace(hits[0], fields={'year': 1}, vector=None)"
    (hit,) = (await _asked(stocked, written(f"return [{changed}]"))).hits
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
    "await anyio.sleep_forever()": "no answer within 0.05 seconds",
}


@pytest.mark.parametrize(("body", "cause"), BAD.items(), ids=BAD.keys())
async def test_what_a_bad_function_does_changes_nothing_and_is_said(
    stocked: Shelf, written: Written, body: str, cause: str
) -> None:
    stage = written(body, timeout_seconds=0.05 if "sleep" in body else 10)
    answer = await _asked(stocked, stage)
    assert answer.hits == (await stocked.search("pendulum")).hits
    assert answer.notes == (f"The stage {stage['call']} failed ({cause}); it left the passages unchanged.",)
    assert (_stage(answer).status, _stage(answer).warnings) == ("failed", answer.notes)


async def test_the_stages_after_a_bad_function_do_their_work(stocked: Shelf, written: Written) -> None:
    await stocked.put("again", "pendulum ", collection="clocks")
    answer = await _asked(stocked, written("return None"), {"stage": "dedupe"})
    assert len(answer.hits) == 4
    assert [stage.status for stage in answer.steps][-2:] == ["failed", "ok"]


async def test_a_desk_is_not_opened_with_a_function_that_is_not_there(shelf: Shelf, written: Written) -> None:
    stage = written("return hits")
    stage["call"] = str(stage["call"]).replace("arrange", "arrive")
    for search in ({"stages": [stage]}, {"profiles": {"own": {"stages": [stage]}}}):
        settings = Settings.model_validate({"data": shelf.data, "search": search})
        with pytest.raises(ConfigurationError, match="that module has no arrive"):
            async with Desk.open(settings):
                pass
