"""The desk as programs use it: three lines, hooks, own stages, and functions for an agent's tools."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rag
import rag.search
import rag.search.search_state
from rag import Desk, Principal, SearchRequest, Settings, SyncDesk
from rag.answers import Answer, Hit, Mode, RequestValues, Step
from rag.config.load import load_settings
from rag.corpus import Access
from rag.errors import ConfigurationError, InvalidRequestError, NotFoundError
from rag.search import tool_functions
from rag.search.recall import Query
from rag.search.reply.search_reply import FULL_ONLY
from rag.search.tool_arguments import SearchArguments, SourceArguments
from tests.conftest import Scripts
from tests.search.conftest import ME, Shelf

QUESTION = "who invented the pendulum clock?"
ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
FOR_ANN = Access("restricted", frozenset({"user:ann"}))


def imported(*steps: str) -> list[set[str]]:
    """Which of the slow packages a fresh interpreter has loaded after each of these steps."""
    report = "print(*{'lancedb', 'pyarrow', 'onnxruntime'} & sys.modules.keys())"
    code = "\n".join(["import sys", *(f"{step}\n{report}" for step in steps)])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [{*line.split()} for line in run.stdout.splitlines()]


@pytest.mark.slow
def test_the_engine_is_loaded_when_the_desk_is_asked_for_and_not_before() -> None:
    records = "import rag.search.reply.source_reply, rag.search.reply.search_reply, rag.search.search_plan"
    without, with_desk = imported(
        f"import rag.search\n{records}\nfrom rag.search import tool_functions", "from rag.search import Desk"
    )
    assert without == set()
    assert "lancedb" in with_desk


def test_there_is_what_is_offered_and_nothing_else() -> None:
    assert rag.search.__all__ == ["Desk", "tool_functions"]
    assert rag.search.Desk.__module__ == "rag.search.desk"
    with pytest.raises(AttributeError, match=r"module 'rag\.search' has no attribute 'Shelf'"):
        rag.search.Shelf  # noqa: B018 asking is what is tested
    assert not hasattr(rag.search, "__wrapped__")


@pytest.mark.slow
@pytest.mark.anyio
async def test_three_lines_ask_a_question(clock_room: Path) -> None:
    async with Desk.open(Settings(data=clock_room)) as desk:
        answer = await desk.search(Principal("default"), QUESTION)
        for tokens in (1, 20, 150, 600):
            context = desk.as_context(answer, tokens=tokens)
            assert context.tokens <= tokens
            assert context.left_out + len(context.chunk_ids) == len(answer.hits)
        usual = desk.as_context(answer)
    assert "Huygens" in answer.hits[0].text
    assert answer.trace is None
    assert usual.text.startswith(f"[{answer.hits[0].chunk.id}]\n")
    assert 600 < usual.tokens <= Settings().search.context_tokens


@pytest.mark.anyio
async def test_the_settings_say_how_long_a_context_is_where_nobody_else_does(shelf: Shelf) -> None:
    await shelf.put("clock", *(f"Pendulum sentence number {number}. " * 20 for number in range(9)))
    desk = shelf.desk(context_tokens=100)
    answer = await desk.search(BOB, "pendulum")
    assert 50 < desk.as_context(answer).tokens <= 100
    assert desk.as_context(answer, tokens=0).text == ""
    assert 300 < desk.as_context(answer, tokens=400).tokens <= 400


def test_the_functions_say_what_they_take_and_do(shelf: Shelf) -> None:
    search, get_source = tool_functions(shelf.desk(), BOB)
    signatures = [inspect.signature(function, eval_str=True) for function in (search, get_source)]
    assert [function.__name__ for function in (search, get_source)] == ["search", "get_source"]
    assert [[*signature.parameters] for signature in signatures] == [
        [*SearchArguments.model_fields],
        [*SourceArguments.model_fields],
    ]
    assert signatures[0].parameters["mode"].annotation == (Mode | None)
    for function, signature in zip((search, get_source), signatures, strict=True):
        description = inspect.getdoc(function) or ""
        assert re.match(r"[A-Z][^\n]+\.\n\n", description)
        arguments = re.findall(r"^    (\w+): \S.*\.$", description.partition("Args:\n")[2], re.MULTILINE)
        assert arguments == list(signature.parameters)
        assert inspect.iscoroutinefunction(function)


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_functions_answer_with_the_records_of_the_tools(scripts: Scripts, clock_room: Path) -> None:
    process = scripts.admin("search", QUESTION, "--limit", "3", "--json", "--data", clock_room)
    async with Desk.open(Settings(data=clock_room)) as desk:
        search, get_source = tool_functions(desk, Principal("default"))
        reply = json.loads(await search(QUESTION, limit=3))
        first = reply["results"][0]
        opened = json.loads(await get_source(first["id"]))
        whole = json.loads(await get_source(first["id"].partition("/")[0], start=10))
    command_reply = json.loads(process.stdout)
    for hit, whole_hit in zip(reply["results"], command_reply["results"], strict=True):
        assert hit.items() <= whole_hit.items()
        assert whole_hit.keys() - hit.keys() == {*FULL_ONLY, "title", "metadata"}
    assert command_reply.pop("searched") == ["documents"]
    assert (reply | {"results": []}) == (command_reply | {"results": []})
    assert opened["id"] == whole["id"] == first["id"].partition("/")[0]
    assert first["text"] in opened["text"]
    assert whole["start"] == 10
    assert opened["trust"] == reply["trust"] == "untrusted"


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize("max_chars", [4_000, 8_000])
async def test_an_answer_keeps_to_its_characters_and_shows_the_passage_that_it_opens(
    clock_room: Path, max_chars: int
) -> None:
    async with Desk.open(Settings(data=clock_room)) as desk:
        search, get_source = tool_functions(desk, Principal("default"), max_chars=max_chars)
        text = await search(QUESTION, 50)
        reply = json.loads(text)
        assert len(text) <= max_chars
        assert "more hits" in reply["notes"][0]
        for hit in reply["results"]:
            opened = await get_source(hit["id"])
            assert len(opened) <= max_chars
            assert hit["text"] in json.loads(opened)["text"]
        assert max_chars < 8_000 or json.loads(opened)["outline"]


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_functions_answer_as_the_principal_may_know(shelf: Shelf) -> None:
    secret = await shelf.put("canary", "A pendulum in a secret place.", access=FOR_ANN)
    await shelf.put("open", "A pendulum that all can see.")

    async def titles(principal: Principal) -> set[str]:
        search, _ = tool_functions(shelf.desk(), principal)
        results = json.loads(await search("pendulum"))["results"]
        return {hit["cite_as"].partition(" › ")[0] for hit in results}

    async def opened(principal: Principal, id_: str) -> str:
        _, get_source = tool_functions(shelf.desk(), principal)
        return await get_source(id_)

    assert await titles(ANN) == {"canary", "open"}
    assert "secret place" in await opened(ANN, secret.id)
    for principal in (BOB, Principal("default")):
        assert await titles(principal) == {"open"}
        replies = []
        for id_ in (secret.id, f"{secret.id}/0", "a" * 16):
            with pytest.raises(NotFoundError) as refused:
                await opened(principal, id_)
            replies.append(str(refused.value))
        assert len({*replies}) == 1


@pytest.mark.anyio
async def test_the_search_function_finds_what_is_related_without_a_query(shelf: Shelf) -> None:
    source = await shelf.put("clock", "pendulum")
    await shelf.put("other", "another pendulum")
    search, _ = tool_functions(shelf.desk(), BOB)
    (record,) = json.loads(await search(related=source.id))["results"]
    assert record["cite_as"].startswith("other › ")


@pytest.mark.anyio
async def test_the_functions_look_around_and_open_a_part(shelf: Shelf) -> None:
    source = await shelf.put("clock", "Pendulums", "They swing.")
    _, get_source = tool_functions(shelf.desk(), BOB)
    assert [entry["name"] for entry in json.loads(await get_source())["entries"]] == ["documents/"]
    (entry,) = json.loads(await get_source("documents"))["entries"]
    assert (entry["id"], entry["name"], entry["length"]) == (source.id, "clock", source.length)
    assert json.loads(await get_source(source.id, lines="3"))["text"] == "3\tThey swing."
    assert json.loads(await get_source(source.id, section="pendulums"))["text"] == "Pendulums\n\nThey swing."
    assert "text" not in json.loads(await get_source(source.id, outline=True))
    assert json.loads(await get_source("documents", after=f"clock/{source.id}"))["entries"] == []


@pytest.mark.anyio
async def test_the_functions_raise_what_the_desk_raises(shelf: Shelf) -> None:
    await shelf.put("clock", "pendulum")
    search, get_source = tool_functions(shelf.desk(), BOB)
    for nothing in ({}, {"query": " "}):
        with pytest.raises(InvalidRequestError, match="Give a query"):
            await search(**nothing)
    with pytest.raises(InvalidRequestError, match="limit must be an integer from 0 to 100"):
        await search("pendulum", limit=101)
    for name in ("a" * 16, "no id", "documents/no such path"):
        with pytest.raises(NotFoundError, match="Nothing readable has this id"):
            await get_source(name)
    with pytest.raises(InvalidRequestError, match="counted from 1, such as 120-180"):
        await get_source("documents", lines="many")
    (hit,) = json.loads(await search("pendulum"))["results"]
    with pytest.raises(InvalidRequestError, match="start must be from 0 to"):
        await get_source(hit["id"].partition("/")[0], start=10**6)


@pytest.mark.anyio
async def test_they_take_what_a_model_sends_as_the_tools_do(shelf: Shelf) -> None:
    source = await shelf.put("clock", "pendulum")
    search, get_source = tool_functions(shelf.desk(), BOB)
    usual, whole = await search("pendulum"), await get_source(source.id)
    sent: dict[str, Any]
    for sent in (
        {"limit": "8"},
        {"limit": 8.0, "detail": ""},
        {"collections": "documents"},
        {"collections": ("documents",)},
        {"collections": '["documents"]', "filter": "{}"},
        {"mode": "Hybrid", "case": "false", "profile": None},
    ):
        assert json.loads(await search(query="pendulum", **sent))["results"] == json.loads(usual)["results"]
    assert await get_source(source.id, start="0", outline="false", sort="null") == whole
    for function in (search, get_source):
        with pytest.raises(InvalidRequestError, match=r"Unknown argument 'foo'\. Valid arguments: "):
            await function(foo=1)
    with pytest.raises(InvalidRequestError, match=r"^limit must be an integer from 0 to 100\.$"):
        await search("pendulum", limit="many")
    with pytest.raises(InvalidRequestError, match=r"^around must be an integer from 0 to 50\.$"):
        await get_source(source.id, around=[1])
    assert inspect.signature(search).parameters["limit"].default is None


@pytest.mark.slow
@pytest.mark.anyio
async def test_how_many_hits_there_are_is_as_the_operator_says_unless_it_is_said(shelf: Shelf) -> None:
    await shelf.put_all({f"clock {number}": f"pendulum {number}" for number in range(9)})

    async def count(settings: dict[str, Any], **arguments: int) -> int:
        search, _ = tool_functions(shelf.desk(**settings), BOB)
        return len(json.loads(await search("pendulum", **arguments))["results"])

    assert await count({}) == 8
    assert await count({"limit": 2}) == 2
    assert await count({"limit": 2}, limit=5) == 5
    assert await count({"limit": 2, "overrides": ()}) == 2
    with pytest.raises(InvalidRequestError, match="limit is fixed to 2"):
        await count({"limit": 2, "overrides": ()}, limit=5)


SEARCHES = ("plan", "embed", "recall", "fuse", "gate")


def test_search_takes_every_field_of_a_request_as_a_keyword() -> None:
    assert {"query", *RequestValues.__annotations__} == {field.name for field in fields(SearchRequest)}


@pytest.mark.slow
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
    for call in (desk.search(Principal("dfault"), "pendulum"), desk.collections(Principal("dfault"))):
        with pytest.raises(ConfigurationError, match=r"There is no tenant 'dfault' in .*: default\. "):
            await call
    assert (await desk.search(ME, "pendulum")).hits


@pytest.mark.slow
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
        assert [collection.name for collection in desk.collections(ME)] == ["documents"]
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
        mine, theirs = (inspect.signature(getattr(class_, name)).parameters for class_ in (SyncDesk, Desk))
        assert {*mine} == {*theirs}, name


@pytest.mark.anyio
async def test_hooks_are_told_of_each_step_and_each_search(shelf: Shelf) -> None:
    await shelf.put("clock", "pendulum")
    desk = shelf.desk()
    steps: list[Step] = []
    searches: list[tuple[Principal, SearchRequest, Answer]] = []
    started: list[object] = []
    desk.on_search_start = lambda *arguments: started.append(arguments)
    desk.on_step_start = started.append
    desk.on_step = steps.append
    desk.on_search = lambda *arguments: searches.append(arguments)
    answer = await desk.search(ME, "pendulum", limit=2)
    assert [step.name for step in steps] == [step.name for step in answer.steps]
    assert {*SEARCHES} <= {step.name for step in steps}
    assert searches == [(ME, SearchRequest("pendulum", limit=2), answer)]
    assert started[0] == searches[0][:2]
    assert {*started[1:]} == {step.name for step in steps}
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

    desk.on_step = desk.on_search = desk.on_step_start = desk.on_search_start = failing
    assert await desk.search(ME, "pendulum") == before
    assert len(caplog.records) == 2 * len(before.steps) + 2
    assert "failing" in caplog.records[0].message


@pytest.mark.anyio
async def test_a_span_has_the_status_and_the_counts_of_its_step_and_no_text(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(rag.search.search_state, "_tracer", provider.get_tracer("refdesk"))
    await shelf.put("confidential", "pendulum confidential", "pendulum confidential again")
    stages = [{"stage": "dedupe"}, {"stage": "custom", "takes": "hits", "call": breaking}]
    answer = await shelf.desk(stages=stages).search(ME, "pendulum")
    spans = {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}
    assert {f"refdesk.{step.name}" for step in answer.steps} == {*spans}
    assert spans["refdesk.plan"] == {"refdesk.status": "ok", "refdesk.warnings": 0}
    assert spans["refdesk.gate"]["refdesk.after"] == 2
    assert spans["refdesk.custom"]["refdesk.status"] == "failed"
    assert spans["refdesk.custom"]["refdesk.warnings"] == 1
    assert {type(value) for attributes in spans.values() for value in attributes.values()} <= {int, str}
    assert not re.search("confidential|pendulum", str(spans))


async def breaking(_query: Query, _hits: Sequence[Hit], _options: dict[str, Any]) -> Sequence[Hit]:
    raise RuntimeError


async def upside_down(_query: Query, hits: Sequence[Hit], _options: dict[str, Any]) -> Sequence[Hit]:
    return [*reversed(hits)]


@pytest.mark.anyio
async def test_a_custom_stage_takes_the_function_itself(shelf: Shelf) -> None:
    await shelf.put("clock", "pendulum pendulum", "a pendulum and much else", "nothing of it")

    async def chunk_ids(*stages: object) -> list[str]:
        return [hit.chunk.id for hit in (await shelf.desk(stages=stages).search(ME, "pendulum")).hits]

    stage = {"stage": "custom", "takes": "hits"}
    assert await chunk_ids({**stage, "call": upside_down}) == [*reversed(await chunk_ids())]
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


@pytest.mark.slow
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
    assert [function_.__name__ for function_ in functions] == ["handbook_search", "handbook_get_source"]
    search, get_source = functions
    (hit,) = json.loads(await search("pendulum", mode="sparse", collections=["documents"]))["results"]
    assert (
        json.loads(await search("pendulum", mode="sparse", exclude_sources=[hit["id"][:16]]))["results"] == []
    )
    assert json.loads(await get_source(hit["id"], lines="1"))["text"] == "1\tpendulum"
    with pytest.raises(InvalidRequestError, match="lines"):
        await get_source(hit["id"], lines="first")
