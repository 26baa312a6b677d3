"""I: what a caller's text costs. No text that a request may have holds up the others of the server.

The server answers in one thread, its event loop. So the work that a text makes there is measured, call by
call, in seconds of that thread's processor: another's `ping` waits for that and for nothing else of it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import httpx2
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag.answers import MAX_QUERY_CHARS
from rag.config.load import load_settings
from rag.filters.needles import MAX_NEEDLE_CHARS
from rag.search.tool_arguments import MAX_PATH_CHARS
from server.admission import Admission
from server.call_audit import RefusalLog
from server.handlers import create_server
from server.http.application import http_app
from server.http.auth import auth_backend, groups_matter_check
from server.http.clients import bearer_principal, is_ambiguous
from server.lazy_desk import LazyDesk
from server.stdio import MAX_MESSAGE_BYTES, MAX_VALUES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.server.conftest import Message

pytestmark = pytest.mark.slow

MOST_SECONDS = 0.1  # of the loop's processor at once
HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "Mcp-Protocol-Version": "2025-06-18",
}
Body: TypeAlias = "Message | str"


@contextmanager
def watched() -> Iterator[list[float]]:
    """What each call of the event loop takes of its thread's processor meanwhile, in seconds."""
    seconds: list[float] = []
    run = asyncio.Handle._run  # noqa: SLF001 there is no other way to see each call

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        seconds.append(time.thread_time() - began)

    asyncio.Handle._run = timed  # type: ignore[method-assign,assignment]  # noqa: SLF001 the same
    gc.collect()
    gc.disable()  # the garbage of all tests before is no work of this server
    try:
        yield seconds
    finally:
        gc.enable()
        asyncio.Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001 the same


@asynccontextmanager
async def served(data: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a server over HTTP that runs in this thread."""
    environment = {"REFDESK_DATA": str(data), "REFDESK_LIMITS_REQUESTS_PER_MINUTE": "1000000"}
    configured = load_settings(None, environment, {"http.authentication": []})
    desk, admission = LazyDesk(configured), Admission(configured.limits)
    backend = auth_backend(configured, groups_matter_check(configured, desk))
    server = create_server(desk, configured, admission, bearer_principal, remote=True)
    app = http_app(server, desk, configured, backend, admission, RefusalLog(lambda *_told: None))
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        address = f"http://127.0.0.1:{configured.http.port}"
        async with httpx2.AsyncClient(transport=transport, base_url=address, headers=HEADERS) as client:
            yield client


def message(method: str, **params: Any) -> Message:  # noqa: ANN401 any JSON
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def search(query: str, **arguments: Any) -> Message:  # noqa: ANN401 any JSON
    return message("tools/call", name="search", arguments={"query": query, **arguments})


def opened(**arguments: Any) -> Message:  # noqa: ANN401 any JSON
    return message("tools/call", name="get_source", arguments=arguments)


async def worst(client: httpx2.AsyncClient, body: Body) -> float:
    """The most that the loop does at once for a message and a bystander's ping; both get an answer."""
    content = (body if isinstance(body, str) else json.dumps(body)).encode()
    with watched() as seconds:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_ping, client)
            answer = await client.post("/mcp", content=content, timeout=60)
    assert answer.status_code in {200, 400, 413}, answer.text[:200]
    return max(seconds)


async def _ping(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/mcp", json=message("ping"))).json()["result"] == {}


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs in the loop of a portal, and a client of it there."""

    portal: BlockingPortal
    client: httpx2.AsyncClient

    def worst(self, body: Body) -> float:
        return self.portal.call(worst, self.client, body)


@pytest.fixture(scope="module")
def server(clock_room: Path) -> Iterator[Server]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(served(clock_room)) as client:
        running = Server(portal, client)
        for mode in ("hybrid", "exact"):
            running.worst(search('"leap second" of', mode=mode))  # imports, and makes tables
        yield running


HOSTILE = (
    *("ß", "ﬃ", "ΐ", "ᾷ", "İ", "ŉ", "sst", "s ", "a\u0301\u0323", "한", "漢", "ก", "👩‍🔬", "\u200b"),
    *('"', '"a" ', "«a» ", "「", "(", "[", "{", "a-b_c.d1E2fG ", "aB1", "a-", "1,000", "C++ ", "* ", "?/"),
    *("../", "%C3%9F", "\\", "$", "'", "A.", "https://a/", "a > ", "[x](y) ", "#", ":", "=", "i\u0307", "Ａ"),
)
TEXTS = st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3).map("".join)


def repeated(most: int) -> st.SearchStrategy[str]:
    """A short hostile text as often as there is room."""
    return TEXTS.map(lambda text: (text * most)[:most])


def nested(depth: int, operator: str) -> dict[str, Any]:
    inner: dict[str, Any] = {"title": "x"}
    for _ in range(depth):
        inner = {operator: [inner, inner] if depth < 6 else [inner]}
    return inner


QUERIES = repeated(MAX_QUERY_CHARS)
NEEDLES = repeated(MAX_NEEDLE_CHARS)
VALUES = repeated(512)
FILTERS = st.one_of(
    st.builds(nested, st.integers(1, 120), st.sampled_from(["$and", "$or"])),
    st.builds(
        lambda field, text: {"$or": [{field: {"$contains": text}}] * 32},
        st.sampled_from(["title", "path", "section"]),
        VALUES,
    ),
    VALUES.map(lambda text: {"$and": [{"title": {"$in": [text] * 100}}, {"path": {"$nin": [text] * 100}}]}),
    st.integers(1, 9_000).map(lambda count: {f"k{number}": 1 for number in range(count)}),
)
MESSAGES: st.SearchStrategy[Body] = st.one_of(
    st.builds(search, QUERIES, detail=st.sampled_from(["snippet", "passage"]), limit=st.just(100)),
    st.builds(lambda phrase: search(" ".join([f'"{phrase}"'] * 4)[:MAX_QUERY_CHARS]), repeated(990)),
    st.builds(search, NEEDLES, mode=st.just("exact"), match=st.sampled_from(["text", "words", "regex"])),
    st.builds(search, st.just("clock"), filter=FILTERS),
    st.builds(search, st.just("clock"), sources=VALUES.map(lambda text: [text] * 100)),
    st.builds(search, st.just("clock"), related=QUERIES),
    st.builds(opened, id=QUERIES),
    st.builds(opened, after=QUERIES),
    st.builds(opened, id=st.just("glossary.txt"), section=repeated(500)),
    st.builds(lambda uri: message("resources/read", uri=f"refdesk://default/{uri}"), repeated(50_000)),
    st.builds(lambda cursor: message("resources/list", cursor=cursor), repeated(50_000)),
    st.builds(
        lambda text: message("prompts/get", name="answer", arguments={"question": text}), repeated(50_000)
    ),
    st.builds(
        lambda value: message(
            "completion/complete",
            ref={"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}"},
            argument={"name": "source_id", "value": value},
        ),
        repeated(200),
    ),
    st.sampled_from(["[", '{"a":', "[[],", '"', '"\\', "1,", "9"]).map(
        lambda part: (part * MAX_MESSAGE_BYTES)[: MAX_MESSAGE_BYTES - 1]
    ),
    st.builds(
        lambda part: json.dumps(message("ping")).replace("{}", f'{{"x": [{part}[]]}}'),
        st.sampled_from(["[],", "1,", '"a",', "{},"]).map(lambda part: part * 200_000),
    ),
)


@given(MESSAGES)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_i1_no_text_of_a_caller_holds_up_the_others(server: Server, body: Body) -> None:
    assert server.worst(body) < MOST_SECONDS, str(body)[:300]


@pytest.mark.parametrize("text", ["한", "ab.", "aB1."])
def test_i1_a_word_as_long_as_a_question_may_be_costs_little(server: Server, text: str) -> None:
    """What was asked before would be remembered, so each text is asked for once, and first of all."""
    assert server.worst(search((text * MAX_QUERY_CHARS)[:MAX_QUERY_CHARS])) < MOST_SECONDS


@pytest.mark.parametrize("begun", ["[", "https://a/passages/", "https://a/passages/" * 100])
def test_i1_names_that_begin_as_ids_are_shown_cost_little(server: Server, begun: str) -> None:
    name = (begun + "2" * MAX_PATH_CHARS)[:MAX_PATH_CHARS]
    for body in (search("clock", sources=[name] * 100), search("clock", related=name), opened(id=name)):
        assert server.worst(body) < MOST_SECONDS


def test_i1_a_name_is_no_longer_than_a_path(server: Server) -> None:
    for argument in ("sources", "exclude_sources", "collections", "exclude_collections"):
        arguments = {"query": "clock", argument: ["2" * (MAX_PATH_CHARS + 1)]}
        body = message("tools/call", name="search", arguments=arguments)
        answer = server.portal.call(partial(server.client.post, "/mcp", content=json.dumps(body).encode()))
        assert isinstance(answer, httpx2.Response)
        assert str(MAX_PATH_CHARS) in answer.text


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("field", [b"Content-Length", b"Transfer-Encoding"])
@pytest.mark.parametrize("filler", [b" ", b"\t", b" \r"])
def test_i1_the_head_of_a_request_is_read_in_linear_time(field: bytes, filler: bytes) -> None:
    assert is_ambiguous(b"POST / HTTP/1.1\r\n" + field + b": a" + filler * 60_000 + b"b\r\n\r\n")
    assert not is_ambiguous(b"POST / HTTP/1.1\r\nX-Other: a" + filler * 60_000 + b"b\r\n\r\n")


@pytest.mark.parametrize("letter", ["ß", "ﬃ", "ᾷ"])
def test_i1_four_phrases_of_letters_that_become_several_cost_little(server: Server, letter: str) -> None:
    assert server.worst(search(f'"{letter * 990}" ' * 4)) < MOST_SECONDS


def test_i1_the_watch_sees_what_holds_up_the_event_loop(server: Server) -> None:
    async def burn() -> float:
        def spin() -> None:
            until = time.thread_time() + 1.2 * MOST_SECONDS
            while time.thread_time() < until:
                pass

        with watched() as seconds:
            asyncio.get_running_loop().call_soon(spin)
            await anyio.sleep(0.01)
        return max(seconds)

    assert server.portal.call(burn) >= MOST_SECONDS


def test_i2_a_message_with_too_many_values_is_refused_and_a_long_text_in_one_is_not(server: Server) -> None:
    def status(body: Body) -> int:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        answer = server.portal.call(partial(server.client.post, "/mcp", content=content))
        assert isinstance(answer, httpx2.Response)
        return answer.status_code

    many = json.dumps(message("ping", x=[[]] * MAX_VALUES))
    text = message("prompts/get", name="answer", arguments={"question": ',[{"\\' * 2 * MAX_VALUES})
    assert (status(many), status(text)) == (400, 200)
