"""How far one must read to follow a request or a file: the modules that it enters, printed in their order.

A search and a `get_source` are counted from the line that a host writes to the line that it reads, for a
question that was not asked before. A module counts if any of its functions runs, in any thread.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

import rag
import server
from rag.access.tenants import LocalAsker
from rag.config.settings import Settings
from server import stdio
from server.admission import Admission
from server.handlers import create_server
from server.lazy_desk import LazyDesk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from types import FrameType, ModuleType

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import types

MOST_OF_A_SEARCH = 47  # with the editions, sections and accounts that a question may ask for
MOST_OF_GET_SOURCE = 30
MOST_OF_A_MARKDOWN_FILE = 46  # with `flags`, `revisions` and `dates` of `rag.text`
"""How many modules each of them enters: lower these when one leaves, and raise none without a reason."""
PACKAGES = {Path(package.__path__[0]): package.__name__ for package in (rag, server)}

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Way:
    """The modules that are entered while `recording`, by all threads that have started since `watching`."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        self._is_recording = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Profile this thread and those that start from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record until the block ends."""
        self.entered.clear()
        self._is_recording = True
        yield
        self._is_recording = False

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        if self._is_recording and event == "call":
            name = _module_name(frame.f_code.co_filename)
            if name and self.entered[-1:] != [name]:
                self.entered.append(name)

    @property
    def modules(self) -> list[str]:
        """Each module once, in the order in which they are first entered."""
        return list(dict.fromkeys(self.entered))


@cache
def _module_name(path: str) -> str:
    file = Path(path)
    for root, package in PACKAGES.items():
        if file.is_relative_to(root):
            return ".".join((package, *file.relative_to(root).with_suffix("").parts))
    return ""


@pytest.fixture
def way() -> Iterator[Way]:
    way = Way()
    with way.watching():
        yield way


@pytest.fixture
def check(way: Way, capsys: pytest.CaptureFixture[str]) -> Callable[[str, int], None]:
    """Prints the way that was recorded, and holds it to a number of modules."""

    def printed(name: str, most: int) -> None:
        with capsys.disabled():
            moves = f"{len(way.modules)} modules, {len(way.entered)} moves"
            print(f"\n{name}: {moves}: {' -> '.join(way.modules)}")  # noqa: T201
        assert most // 2 < len(way.modules) <= most

    return printed


class Host:
    """The other end of a server's standard input and output, line by line."""

    def __init__(self, lines: MemoryObjectSendStream[str], replies: MemoryObjectReceiveStream[str]) -> None:
        self._lines = lines
        self._replies = replies

    async def request(self, method: str, **params: object) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        await self._lines.send(json.dumps(message))
        result: dict[str, Any] = json.loads(await self._replies.receive())["result"]
        return result

    async def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        result = await self.request("tools/call", name=tool, arguments=arguments)
        assert not result.get("isError"), result
        content: dict[str, Any] = result["structuredContent"]
        return content


class Output:
    """In place of standard output."""

    def __init__(self, replies: MemoryObjectSendStream[str]) -> None:
        self._replies = replies

    async def write(self, message: types.JSONRPCMessage, number: int | None) -> None:  # noqa: ARG002 as it is called
        await self._replies.send(message.model_dump_json(by_alias=True, exclude_unset=True))

    async def settle(self, number: int) -> None:
        pass

    async def keep(self, number: int, method: str) -> None:
        pass


async def _numbered(lines: MemoryObjectReceiveStream[str]) -> AsyncIterator[tuple[int, str]]:
    async for line in lines:
        yield 0, line


@pytest.fixture
async def host(way: Way, clock_room: Path, small_desk: ModuleType) -> AsyncIterator[Host]:  # noqa: ARG001 watches the threads
    """A host with a local server, as `refdesk` runs it, that has answered two searches."""
    settings = Settings(data=clock_room)
    asker, admission, lazy_desk = LocalAsker(settings), Admission(settings.limits), LazyDesk(settings)
    served = create_server(lazy_desk, settings, admission, lambda _context: asker.principal())
    to_server, lines = anyio.create_memory_object_stream[str](1)
    to_host, replies = anyio.create_memory_object_stream[str](1)
    output = cast("stdio.StdoutLines", Output(to_host))
    with to_server, lines, to_host, replies:
        async with anyio.create_task_group() as tasks:
            end = tasks.cancel_scope.cancel
            tasks.start_soon(partial(stdio.converse, served, admission, _numbered(lines), output, end=end))
            host = Host(to_server, replies)
            client = {"name": "test", "version": "1"}
            await host.request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client)
            await to_server.send('{"jsonrpc": "2.0", "method": "notifications/initialized"}')
            await host.call("search", query="What is a leap second?")  # opens the desk
            await small_desk.rows_in_memory(await lazy_desk.desk())
            await host.call("search", query="Why do sundials disagree with clocks?")
            yield host
            tasks.cancel_scope.cancel()
    await lazy_desk.close()


async def test_a_default_search_enters_few_modules(
    host: Host, way: Way, check: Callable[[str, int], None]
) -> None:
    with way.recording():
        reply = await host.call("search", query="Who invented the pendulum clock?")
    assert reply["results"]
    check("search", MOST_OF_A_SEARCH)


async def test_get_source_enters_few_modules(host: Host, way: Way, check: Callable[[str, int], None]) -> None:
    results = (await host.call("search", query="Who invented the pendulum clock?"))["results"]
    with way.recording():
        reply = await host.call("get_source", id=results[0]["id"])
    assert reply["text"]
    check("get_source", MOST_OF_GET_SOURCE)


async def test_a_markdown_file_enters_few_modules(
    way: Way, small_desk: ModuleType, tmp_path: Path, check: Callable[[str, int], None]
) -> None:
    data, folder = tmp_path / "data", tmp_path / "documents"
    folder.mkdir()
    (folder / "leave.md").write_text("# Leave\n\nAsk your manager.\n")
    await small_desk.ingested(data, folder)
    (folder / "travel.md").write_text("# Travel\n\nBook trains by phone.\n")
    with way.recording():
        report = await small_desk.ingested(data, folder)
    assert report.counts["added"] == 1
    check("a Markdown file", MOST_OF_A_MARKDOWN_FILE)
