"""What programs do with the desk: search with keywords and without await, set hooks, bring own stages."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rag
import rag.search.search_state
from rag import Desk, Principal, SearchRequest, Settings, SyncDesk
from rag.answers import RequestValues
from rag.config.load import load_settings
from rag.errors import ConfigurationError, InvalidRequestError
from rag.search import tool_functions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Answer, Hit, Step
    from rag.search.recall import Query
    from tests.search.conftest import Shelf

ME = Principal("default")
SEARCHES = ("plan", "embed", "recall", "fuse", "gate")


def test_search_takes_every_field_of_a_request_as_a_keyword() -> None:
    assert {"query", *RequestValues.__annotations__} == {field.name for field in fields(SearchRequest)}


@pytest.mark.anyio
async def test_keywords_say_what_a_request_says(shelf: Shelf) -> None:
    await shelf.put("clock", "The pendulum clock of Huygens.")
    await shelf.put("watch", "A watch has no pendulum.", collection="watches")
    desk = shelf.desk()
    request = SearchRequest("pendulum", limit=1, mode="sparse", collections=("watches",))
    by_request = await desk.search(ME, request)
    by_keywords = await desk.search(ME, "pendulum", limit=1, mode="sparse", collections=["watches"])
    assert by_request == by_keywords
    assert [hit.source.title for hit in by_keywords.hits] == ["watch"]
    elsewhere = await desk.search(ME, request, collections=["documents"])
    assert [hit.source.title for hit in elsewhere.hits] == ["clock"]
    with pytest.raises(InvalidRequestError, match=r"^collections must be a list, like \['watches'\]\.$"):
        await desk.search(ME, "pendulum", collections="watches")
    with pytest.raises(TypeError, match="lmit"):
        await desk.search(ME, "pendulum", lmit=1)  # type: ignore[call-arg]  # what is tested


@pytest.mark.anyio
@pytest.mark.parametrize("tenant", ["", None])
async def test_nobody_asks_without_a_tenant(shelf: Shelf, tenant: str) -> None:
    await shelf.put("clock", "pendulum")
    with pytest.raises(ConfigurationError, match=r'needs a tenant.*Principal\("default"\)'):
        await shelf.desk().search(Principal(tenant), "pendulum")
    assert (await shelf.desk().search(ME, "pendulum")).hits


def test_a_string_is_no_set_of_groups() -> None:
    with pytest.raises(ConfigurationError, match="set of names"):
        Principal("default", "ann", "hr")  # type: ignore[arg-type]  # what is tested
    assert Principal("default", "ann", frozenset({"hr"})).groups == {"hr"}


@pytest.mark.anyio
async def test_a_tenant_that_does_not_exist_is_named_with_those_that_do(shelf: Shelf) -> None:
    await shelf.put("clock", "pendulum")
    desk = shelf.desk()
    for asked in (desk.search(Principal("dfault"), "pendulum"), desk.collections(Principal("dfault"))):
        with pytest.raises(ConfigurationError, match=r"There is no tenant 'dfault' in .*: default\. "):
            await asked
    assert (await desk.search(ME, "pendulum")).hits


def test_scripts_search_without_await_also_inside_a_running_loop(clock_room: Path) -> None:
    async def notebook() -> list[str]:
        with SyncDesk.open(Settings(data=clock_room)) as desk:
            return [hit.chunk.id for hit in desk.search(ME, "pendulum", limit=3).hits]

    with SyncDesk.open(Settings(data=clock_room)) as desk:
        answer = desk.search(ME, "pendulum", limit=3)
        ids = [hit.chunk.id for hit in answer.hits]
        assert len(ids) == 3
        assert desk.as_context(answer, tokens=400).chunk_ids
        assert desk.with_warnings(answer).stale == {}
        assert desk.extract(ME, ids[0], max_chars=500).text
        assert [one.name for one in desk.collections(ME)] == ["documents"]
        assert len(desk.sources(ME, limit=5)) == 5
        assert len(desk.listing(ME, "documents").entries) == 17
        _, traced = desk.why_not(ME, SearchRequest("pendulum"), ids[0])
        assert traced
        with pytest.raises(InvalidRequestError, match="limit must be from 0 to 100"):
            desk.search(ME, "pendulum", limit=101)
    assert asyncio.run(notebook()) == ids


def test_a_method_without_await_takes_what_the_async_one_takes() -> None:
    methods = [name for name in vars(SyncDesk) if not name.startswith("_") and name != "open"]
    assert "search" in methods
    for name in methods:
        mine, theirs = (inspect.signature(getattr(one, name)).parameters for one in (SyncDesk, Desk))
        assert {*mine} == {*theirs}, name


@pytest.mark.anyio
async def test_hooks_are_told_of_each_step_and_each_search(shelf: Shelf) -> None:
    await shelf.put("clock", "pendulum")
    desk = shelf.desk()
    steps: list[Step] = []
    searches: list[tuple[Principal, SearchRequest, Answer]] = []
    desk.on_step = steps.append
    desk.on_search = lambda *found: searches.append(found)
    answer = await desk.search(ME, "pendulum", limit=2)
    assert [step.name for step in steps] == [step.name for step in answer.steps]
    assert {*SEARCHES} <= {step.name for step in steps}
    assert searches == [(ME, SearchRequest("pendulum", limit=2), answer)]
    with pytest.raises(InvalidRequestError):
        await desk.search(ME, "pendulum", limit=101)
    assert len(searches) == 1


@pytest.mark.anyio
async def test_a_hook_that_fails_is_logged_and_changes_nothing(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    await shelf.put("clock", "pendulum")
    desk = shelf.desk()
    before = await desk.search(ME, "pendulum")

    def failing(*_: object) -> None:
        raise RuntimeError

    desk.on_step = desk.on_search = failing
    assert await desk.search(ME, "pendulum") == before
    assert len(caplog.records) == len(before.steps) + 1
    assert "failing" in caplog.records[0].message


@pytest.mark.anyio
async def test_a_span_has_the_status_and_the_counts_of_its_step_and_no_text(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(rag.search.search_state, "_tracer", provider.get_tracer("refdesk"))
    await shelf.put("confidential", "pendulum confidential", "pendulum confidential again")
    stages = [{"stage": "dedupe", "threshold": 0.5}, {"stage": "custom", "takes": "hits", "call": breaking}]
    answer = await shelf.desk(stages=stages).search(ME, "pendulum")
    spans = {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}
    assert {f"refdesk.{step.name}" for step in answer.steps} == {*spans}
    assert spans["refdesk.plan"] == {"refdesk.status": "ok", "refdesk.warnings": 0}
    assert spans["refdesk.gate"]["refdesk.after"] == 2
    assert spans["refdesk.custom"]["refdesk.status"] == "failed"
    assert spans["refdesk.custom"]["refdesk.warnings"] == 1
    assert {type(value) for one in spans.values() for value in one.values()} <= {int, str}
    assert not re.search("confidential|pendulum", str(spans))


async def breaking(_query: Query, _hits: Sequence[Hit], _options: dict[str, Any]) -> Sequence[Hit]:
    raise RuntimeError


async def upside_down(_query: Query, hits: Sequence[Hit], _options: dict[str, Any]) -> Sequence[Hit]:
    return [*reversed(hits)]


@pytest.mark.anyio
async def test_a_custom_stage_takes_the_function_itself(shelf: Shelf) -> None:
    await shelf.put("clock", "pendulum pendulum", "a pendulum and much else", "nothing of it")

    async def found(*stages: object) -> list[str]:
        return [hit.chunk.id for hit in (await shelf.desk(stages=stages).search(ME, "pendulum")).hits]

    stage = {"stage": "custom", "takes": "hits"}
    assert await found({**stage, "call": upside_down}) == [*reversed(await found())]
    with pytest.raises(ConfigurationError, match=r"custom calls .*<lambda>, which isn't an async def"):
        async with Desk.open(Settings.model_validate({"search": {"stages": [{**stage, "call": lambda: 0}]}})):
            pass


def test_settings_are_loaded_as_the_commands_load_them(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[search]\nlimit = 3\n")
    environment = {"REFDESK_CONFIG": str(file), "REFDESK_SEARCH_MODE": "sparse"}
    loaded = Settings.load(environment=environment)
    assert loaded == load_settings(None, environment)
    assert (loaded.search.limit, loaded.search.mode) == (3, "sparse")
    assert Settings.load(file, {}).search.limit == 3
    with pytest.raises(ConfigurationError, match=r"There is no settings file .*none\.toml"):
        Settings.load(tmp_path / "none.toml", {})


def test_our_own_code_hands_settings_on_and_does_not_load_them() -> None:
    packages = Path(rag.__file__).parents[1]
    code = [*packages.glob("rag/**/*.py"), *packages.glob("server/**/*.py")]
    loads = re.compile(r"^[^`]*Settings\.load\(", re.MULTILINE)
    assert not [file for file in code if loads.search(_statements(file))]


def _statements(file: Path) -> str:
    """A module without its docstring, which may show how to use it."""
    return re.sub(r'\A""".*?"""', "", file.read_text(), flags=re.DOTALL)


@pytest.mark.anyio
async def test_a_prefix_tells_the_functions_of_two_desks_apart(shelf: Shelf) -> None:
    await shelf.put("clock", "pendulum", "weight")
    functions = tool_functions(shelf.desk(), ME, prefix="handbook_")
    assert [one.__name__ for one in functions] == ["handbook_search", "handbook_get_source"]
    search, get_source = functions
    (hit,) = json.loads(await search("pendulum", mode="sparse", collections=["documents"]))["results"]
    assert (
        json.loads(await search("pendulum", mode="sparse", exclude_sources=[hit["id"][:16]]))["results"] == []
    )
    assert json.loads(await get_source(hit["id"], lines="1"))["text"] == "1\tpendulum"
    with pytest.raises(InvalidRequestError, match="lines"):
        await get_source(hit["id"], lines="first")
