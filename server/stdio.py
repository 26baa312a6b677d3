"""Serve one host over standard input and output, and exit when it is gone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeAlias

import anyio
from anyio import to_thread
from mcp import types
from mcp.shared.message import ServerMessageMetadata, SessionMessage

from server import EXIT_FORCED, PARENT
from server.admission import SETTLING_SECONDS, Admission
from server.jsonrpc import MAX_MESSAGE_BYTES, TOO_LONG, InvalidMessageError, read_message
from server.telemetry import call_audit

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server.lowlevel import Server

STDERR = 2
PARENT_CHECK_SECONDS = 0.5
DRAIN_SECONDS = 10
WRITE_SECONDS = 1  # for what is written at the end, if nobody reads it

WarmUp: TypeAlias = "Callable[[], Coroutine[Any, Any, None]]"
Drain: TypeAlias = "Callable[[], Awaitable[None]]"
log = logging.getLogger(__name__)


class StdinLines:
    """Standard input, line by line. Other readers in this process find it empty.

    `TOO_LONG` stands in for a line that is too long, whose rest is skipped. A byte order mark before a line
    is left out: PowerShell and editors on Windows put one before what they write.
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
        return line.decode("utf-8-sig", errors="replace")

    def _read(self) -> bytes:
        line = chunk = self._input.readline(MAX_MESSAGE_BYTES + 1)
        while chunk and not chunk.endswith(b"\n") and len(line) > MAX_MESSAGE_BYTES:
            chunk = self._input.readline(MAX_MESSAGE_BYTES)
        return line if len(line) <= MAX_MESSAGE_BYTES else TOO_LONG.encode()


class StdoutLines:
    """Standard output, line by line. Whatever else this process prints goes to standard error."""

    def __init__(self) -> None:
        self._output = os.dup(1)
        self._one_at_a_time = anyio.Lock()
        os.dup2(STDERR, 1)

    async def write(self, message: types.JSONRPCMessage) -> None:
        """Write a message in a thread, because the host may be slow to read.

        Raises:
            OSError: the host has closed it.
        """
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        async with self._one_at_a_time:
            await to_thread.run_sync(self._write, line)

    def _write(self, line: bytes) -> None:
        sent = 0
        while sent < len(line):
            sent += os.write(self._output, line[sent:])


class Unanswered:
    """Counts the requests that are neither answered nor cancelled yet."""

    def __init__(self) -> None:
        self.count = 0
        self._settled = anyio.Event()

    def noted(self, message: types.JSONRPCMessage) -> SessionMessage:
        """A message for the SDK; a request counts from now on."""
        if not isinstance(message, types.JSONRPCRequest):
            return SessionMessage(message)
        self.count += 1
        return SessionMessage(message, ServerMessageMetadata(on_request_unanswered=self.settle))

    async def settle(self) -> None:
        """Stop counting a request that was answered."""
        self.count -= 1
        self._settled.set()
        self._settled = anyio.Event()

    async def none(self) -> None:
        """Wait until no request counts."""
        while self.count:
            await self._settled.wait()


async def serve(
    server: Server[Any], admission: Admission, *, warm_up: WarmUp = anyio.sleep_forever, exit_code: int = 0
) -> None:
    """Serve until standard input ends, a signal arrives or the parent dies; then end the process.

    At the end of input and on a signal, requests that have been read are answered within ten seconds. A
    second signal ends the process at once. Otherwise it ends with `exit_code`. `warm_up` runs meanwhile.
    """
    _watch_signals(admission)
    threading.Thread(target=_watch_parent, daemon=True).start()
    messages, readable = anyio.create_memory_object_stream[SessionMessage | Exception]()
    replies, to_write = anyio.create_memory_object_stream[SessionMessage]()
    unanswered = Unanswered()
    lines, output = StdinLines(), StdoutLines()
    drain = partial(_drain, messages, unanswered, exit_code)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(warm_up)
        tasks.start_soon(_drain_at_signal, admission, drain)
        # We read and write ourselves: the SDK drops invalid lines unanswered, and writes with two threads.
        tasks.start_soon(_relay, lines, messages, output, unanswered, drain)
        try:
            async with anyio.create_task_group() as writing:
                writing.start_soon(_write_replies, to_write, output, unanswered)
                try:
                    await server.run(readable, replies, server.create_initialization_options())
                except anyio.get_cancelled_exc_class():  # the host has closed our standard output
                    _exit(exit_code)
        except* OSError:  # it has done so while the last replies were written
            pass
        _exit(exit_code)


def fill_closed() -> None:
    """Give closed standard streams the null device, before a file that is opened takes their place."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(opened)


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


async def _drain_at_signal(admission: Admission, drain: Drain) -> None:
    """After a signal, answer what has been read and end the process.

    Nothing stops reading: the reader blocks in a thread, and a request that arrives while draining is still
    answered if it is quick. The pause leaves time to read what was written before the signal.
    """
    await admission.shutting_down.wait()
    await anyio.sleep(SETTLING_SECONDS)
    await drain()


async def _drain(
    messages: MemoryObjectSendStream[SessionMessage | Exception], unanswered: Unanswered, exit_code: int
) -> None:
    """Wait until every request is answered, for at most ten seconds, and end the process.

    Then the SDK's input ends: it refuses what is still running, and `serve` exits when all is written. If
    nobody reads what is written, this ends the process a second later.
    """
    with anyio.move_on_after(DRAIN_SECONDS):
        await unanswered.none()
    if unanswered.count:
        log.warning("Requests not answered within %d s: %d.", DRAIN_SECONDS, unanswered.count)
    await messages.aclose()
    await anyio.sleep(WRITE_SECONDS)
    _exit(exit_code)


async def _relay(
    lines: AsyncIterable[str],
    messages: MemoryObjectSendStream[SessionMessage | Exception],
    output: StdoutLines,
    unanswered: Unanswered,
    drain: Drain,
) -> None:
    """Pass messages on to the SDK, and answer invalid lines: the host may be waiting."""
    # A line may come too late, and the host may have closed what an answer goes to.
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        async for line in lines:
            if not line.strip():
                continue
            try:
                message = read_message(line)
            except InvalidMessageError as invalid:
                await output.write(invalid.answer)
            else:
                await messages.send(unanswered.noted(message))
    await drain()


async def _write_replies(
    replies: MemoryObjectReceiveStream[SessionMessage], output: StdoutLines, unanswered: Unanswered
) -> None:
    """Write what the SDK says, until it has nothing more to say."""
    async for reply in replies:
        await output.write(reply.message)
        if isinstance(reply.message, types.JSONRPCResponse | types.JSONRPCError):
            await unanswered.settle()


def _watch_parent() -> None:
    """Exit when the parent has died. Standard input may not end then: other children can hold it open."""
    while os.getppid() == PARENT:
        time.sleep(PARENT_CHECK_SECONDS)
    _exit(0)


def _exit(code: int) -> NoReturn:
    """End at once: the thread that reads standard input can't be cancelled. Only spans need flushing."""
    call_audit.flush_spans()
    os._exit(code)
