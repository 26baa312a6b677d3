"""The read path as programs use it: three lines, a context, and functions for an agent's tools."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

import rag.search
from rag.answers import Mode
from rag.config.settings import Settings
from rag.corpus import Access, Principal
from rag.errors import InvalidRequestError, NotFoundError
from rag.search import Desk, tool_functions
from rag.search.agents import SEARCH, SOURCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.search.conftest import Shelf

QUESTION = "who invented the pendulum clock?"
ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
FOR_ANN = Access("restricted", frozenset({"user:ann"}))


def imported(statements: str) -> set[str]:
    """Which of the slow packages a fresh interpreter has loaded after these statements."""
    code = f"import sys\n{statements}\nprint(*{{'lancedb', 'pyarrow', 'onnxruntime'}} & sys.modules.keys())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {*run.stdout.split()}


@pytest.mark.slow
def test_the_engine_is_loaded_when_the_desk_is_asked_for_and_not_before() -> None:
    records = (
        "import rag.search.reply.source_reply, rag.search.reply.search_reply, rag.uris, rag.search.planning"
    )
    assert imported(f"import rag.search\n{records}") == set()
    assert imported("from rag.search import tool_functions") == set()
    assert "lancedb" in imported("from rag.search import Desk")


def test_there_is_what_is_offered_and_nothing_else() -> None:
    assert rag.search.__all__ == ["Desk", "tool_functions"]
    assert rag.search.Desk.__module__ == "rag.search.desk"
    with pytest.raises(AttributeError, match=r"module 'rag\.search' has no attribute 'Shelf'"):
        rag.search.Shelf  # noqa: B018 asking is what is tested
    assert not hasattr(rag.search, "__wrapped__")


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
    signatures = [inspect.signature(one, eval_str=True) for one in (search, get_source)]
    assert [one.__name__ for one in (search, get_source)] == ["search", "get_source"]
    assert [[*one.parameters] for one in signatures] == [[*SEARCH], [*SOURCE]]
    assert signatures[0].parameters["mode"].annotation == (Mode | None)
    for function, signature in zip((search, get_source), signatures, strict=True):
        said = inspect.getdoc(function) or ""
        assert re.match(r"[A-Z][^\n]+\.\n\n", said)
        arguments = re.findall(r"^    (\w+): \S.*\.$", said.partition("Args:\n")[2], re.MULTILINE)
        assert arguments == list(signature.parameters)
        assert inspect.iscoroutinefunction(function)


@pytest.mark.anyio
async def test_they_answer_with_the_records_that_the_tools_answer_with(
    scripts: Scripts, clock_room: Path
) -> None:
    asked = scripts.admin("search", QUESTION, "--limit", "3", "--json", "--data", clock_room)
    async with Desk.open(Settings(data=clock_room)) as desk:
        search, get_source = tool_functions(desk, Principal("default"))
        found = json.loads(await search(QUESTION, limit=3))
        first = found["results"][0]
        opened = json.loads(await get_source(first["id"]))
        whole = json.loads(await get_source(first["id"].partition("/")[0], start=10))
    assert found == json.loads(asked.stdout)
    assert opened["id"] == whole["id"] == first["id"].partition("/")[0]
    assert first["text"] in opened["text"]
    assert whole["start"] == 10
    assert opened["trust"] == found["trust"] == "untrusted"


@pytest.mark.anyio
@pytest.mark.parametrize("max_chars", [4_000, 8_000])
async def test_an_answer_keeps_to_its_characters_and_shows_the_passage_that_it_opens(
    clock_room: Path, max_chars: int
) -> None:
    async with Desk.open(Settings(data=clock_room)) as desk:
        search, get_source = tool_functions(desk, Principal("default"), max_chars=max_chars)
        said = await search(QUESTION, 50)
        found = json.loads(said)
        assert len(said) <= max_chars
        assert "more hits" in found["notes"][0]
        for hit in found["results"]:
            opened = await get_source(hit["id"])
            assert len(opened) <= max_chars
            assert hit["text"] in json.loads(opened)["text"]
        assert max_chars < 8_000 or json.loads(opened)["outline"]


@pytest.mark.anyio
async def test_they_answer_as_the_principal_may_know(shelf: Shelf) -> None:
    secret = await shelf.put("canary", "A pendulum in a secret place.", access=FOR_ANN)
    await shelf.put("open", "A pendulum that all can see.")

    async def found(principal: Principal) -> set[str]:
        search, _ = tool_functions(shelf.desk(), principal)
        return {hit["title"] for hit in json.loads(await search("pendulum"))["results"]}

    async def opened(principal: Principal, id_: str) -> str:
        _, get_source = tool_functions(shelf.desk(), principal)
        return await get_source(id_)

    assert await found(ANN) == {"canary", "open"}
    assert "secret place" in await opened(ANN, secret.id)
    for principal in (BOB, Principal("default")):
        assert await found(principal) == {"open"}
        said = []
        for id_ in (secret.id, f"{secret.id}/0", "a" * 16):
            with pytest.raises(NotFoundError) as refused:
                await opened(principal, id_)
            said.append(str(refused.value))
        assert len({*said}) == 1


@pytest.mark.anyio
async def test_they_find_what_is_related_without_a_query(shelf: Shelf) -> None:
    source = await shelf.put("clock", "pendulum")
    await shelf.put("other", "another pendulum")
    search, _ = tool_functions(shelf.desk(), BOB)
    (record,) = json.loads(await search(related=source.id))["results"]
    assert record["title"] == "other"


@pytest.mark.anyio
async def test_they_look_around_and_open_a_part(shelf: Shelf) -> None:
    source = await shelf.put("clock", "Pendulums", "They swing.")
    _, get_source = tool_functions(shelf.desk(), BOB)
    assert [one["name"] for one in json.loads(await get_source())["entries"]] == ["documents/"]
    (entry,) = json.loads(await get_source("documents"))["entries"]
    assert (entry["id"], entry["name"], entry["length"]) == (source.id, "clock", source.length)
    assert json.loads(await get_source(source.id, lines="3"))["text"] == "3\tThey swing."
    assert json.loads(await get_source(source.id, section="pendulums"))["text"] == "Pendulums\n\nThey swing."
    assert "text" not in json.loads(await get_source(source.id, outline=True))
    assert json.loads(await get_source("documents", after=f"clock/{source.id}"))["entries"] == []


@pytest.mark.anyio
async def test_they_raise_what_the_desk_raises(shelf: Shelf) -> None:
    await shelf.put("clock", "pendulum")
    search, get_source = tool_functions(shelf.desk(), BOB)
    for nothing in ({}, {"query": " "}):
        with pytest.raises(InvalidRequestError, match="Give a query"):
            await search(**nothing)
    with pytest.raises(InvalidRequestError, match="limit must be from 0 to 100"):
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
async def test_how_many_hits_there_are_is_as_the_operator_says_unless_it_is_said(shelf: Shelf) -> None:
    for number in range(9):
        await shelf.put(f"clock {number}", f"pendulum {number}")

    async def count(settings: dict[str, Any], **arguments: int) -> int:
        search, _ = tool_functions(shelf.desk(**settings), BOB)
        return len(json.loads(await search("pendulum", **arguments))["results"])

    assert await count({}) == 8
    assert await count({"limit": 2}) == 2
    assert await count({"limit": 2}, limit=5) == 5
    assert await count({"limit": 2, "overrides": ()}) == 2
    with pytest.raises(InvalidRequestError, match="limit is fixed to 2"):
        await count({"limit": 2, "overrides": ()}, limit=5)
