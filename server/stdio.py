"""Serve one host over standard input and output, and exit when it is gone."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn, Self

import anyio
from anyio import to_thread
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from server import EXIT_FORCED, PARENT
from server.jsonrpc import MAX_MESSAGE_BYTES, TOO_LONG, InvalidMessageError, read_message
from server.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from anyio.streams.memory import MemoryObjectSendStream
    from mcp.server.lowlevel import Server

    from server.admission import Admission
    from server.lazy_desk import LazyDesk

PARENT_CHECK_SECONDS = 0.5
DRAIN_SECONDS = 10


class StdinLines:
    """Standard input, line by line. Other readers in this process find it empty.

    `TOO_LONG` stands in for a line that is too long, whose rest is skipped.
    """

    def __init__(self) -> None:
        # A library or child process that reads standard input would swallow protocol messages.
        self._input = os.fdopen(os.dup(0), "rb", closefd=False)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """The next line, until the input ends."""
        line = await to_thread.run_sync(self._read)
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", errors="replace")

    def _read(self) -> bytes:
        line = rest = self._input.readline(MAX_MESSAGE_BYTES + 1)
        while rest and not rest.endswith(b"\n") and len(line) > MAX_MESSAGE_BYTES:
            rest = self._input.readline(MAX_MESSAGE_BYTES)
        return line if len(line) <= MAX_MESSAGE_BYTES else TOO_LONG.encode()


async def serve(server: Server[Any], lazy_desk: LazyDesk, admission: Admission) -> None:
    """Serve until standard input ends, a signal arrives or the parent dies; then end the process.

    On a signal, requests that have been read are answered within ten seconds. A second signal ends the
    process at once.
    """
    _watch_signals(admission)
    threading.Thread(target=_watch_parent, daemon=True).start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lazy_desk.warm_up)
        tasks.start_soon(_drain, admission)
        # We read ourselves and give the SDK an empty input: its own reader drops invalid lines unanswered.
        no_input = anyio.wrap_file(io.StringIO())
        async with stdio_server(stdin=no_input) as (_, write):
            readable, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
            tasks.start_soon(_relay, StdinLines(), readable, write.send)
            try:
                await server.run(messages, write, server.create_initialization_options())
            except anyio.get_cancelled_exc_class():  # the host has closed our standard output
                _exit()
        _exit()


def _watch_signals(admission: Admission) -> None:
    loop = asyncio.get_running_loop()

    def shut_down() -> None:
        if admission.shutting_down.is_set():
            os._exit(EXIT_FORCED)
        admission.shutting_down.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, shut_down)
        except NotImplementedError:  # Windows, where any signal wakes the loop
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(shut_down))


async def _drain(admission: Admission) -> None:
    """After a signal, end the process once every request is answered, or after ten seconds.

    Nothing stops reading: the reader blocks in a thread, and a request that arrives while draining is still
    answered if it is quick. The process ends as soon as none is left.
    """
    await admission.shutting_down.wait()
    with anyio.move_on_after(DRAIN_SECONDS):
        await admission.drained()
    _exit()


async def _relay(
    lines: AsyncIterable[str],
    readable: MemoryObjectSendStream[SessionMessage | Exception],
    answer: Callable[[SessionMessage], Awaitable[None]],
) -> None:
    """Pass messages on to the SDK, and answer invalid lines: the host may be waiting."""
    async with readable:
        async for line in lines:
            if not line.strip():
                continue
            try:
                message = read_message(line)
            except InvalidMessageError as invalid:
                await answer(SessionMessage(invalid.answer))
            else:
                await readable.send(SessionMessage(message))


def _watch_parent() -> None:
    """Exit when the parent has died. Standard input may not end then: other children can hold it open."""
    while os.getppid() == PARENT:
        time.sleep(PARENT_CHECK_SECONDS)
    _exit()


def _exit() -> NoReturn:
    """End at once: the thread that reads standard input can't be cancelled. Only spans need flushing."""
    spans.flush()
    os._exit(0)
