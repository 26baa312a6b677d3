"""Serving one host over standard input and output, and leaving when it is gone."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn, Self

import anyio
from anyio import to_thread
from mcp import types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from pydantic_core import from_json

from server import FORCED, PARENT
from server.messages import error, refusal
from server.telemetry import spans as tracing

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from anyio.streams.memory import MemoryObjectSendStream
    from mcp.server.lowlevel import Server

    from server.admission import Admission
    from server.lazy_desk import OpeningDesk

WATCH_SECONDS = 0.5
DRAIN_SECONDS = 10
MAX_LINE_BYTES = 1 << 20
OVERLONG = f"A message may have {MAX_LINE_BYTES} bytes at most; this line is longer."


class Lines:
    """Standard input, line by line, and for nobody else: other readers in this process find it empty.

    In place of a line that is too long comes the word `OVERLONG`; the line itself is read over.
    """

    def __init__(self) -> None:
        self._input = os.fdopen(os.dup(0), "rb", closefd=False)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        """The next line; there is none any more when input has ended."""
        line = await to_thread.run_sync(self._read)
        if not line:
            raise StopAsyncIteration
        return line.decode("utf-8", errors="replace")

    def _read(self) -> bytes:
        line = rest = self._input.readline(MAX_LINE_BYTES + 1)
        while rest and not rest.endswith(b"\n") and len(line) > MAX_LINE_BYTES:
            rest = self._input.readline(MAX_LINE_BYTES)
        return line if len(line) <= MAX_LINE_BYTES else OVERLONG.encode()


async def serve(server: Server[Any], opening: OpeningDesk, admission: Admission) -> None:
    """Serve until standard input ends, a signal comes, or the parent dies; then end the process.

    At a signal, what has been asked is answered within ten seconds; a second one ends it at once.
    """
    _watch_signals(admission)
    threading.Thread(target=_watch_parent, daemon=True).start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opening.warm_up)
        tasks.start_soon(_drain, admission)
        nothing = anyio.wrap_file(io.StringIO())  # we read ourselves: the SDK drops what is no message
        async with stdio_server(stdin=nothing) as (_, write):
            readable, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
            tasks.start_soon(_relay, Lines(), readable, write.send)
            try:
                await server.run(messages, write, server.create_initialization_options())
            except anyio.get_cancelled_exc_class():  # nobody reads standard output any more
                _leave()
        _leave()


def _watch_signals(admission: Admission) -> None:
    loop = asyncio.get_running_loop()

    def leave_in_order() -> None:
        if admission.leaving.is_set():
            os._exit(FORCED)
        admission.leaving.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, leave_in_order)
        except NotImplementedError:  # on Windows, where any signal wakes the loop
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(leave_in_order))


async def _drain(admission: Admission) -> None:
    """End the process when it is to leave and everything is answered, or takes too long."""
    await admission.leaving.wait()
    with anyio.move_on_after(DRAIN_SECONDS):
        await admission.drained()
    _leave()


class NoMessageError(Exception):
    """A line that is no message, with what its writer is told."""

    def __init__(self, answer: types.JSONRPCError) -> None:
        super().__init__()
        self.answer = answer


async def _relay(
    lines: AsyncIterable[str],
    readable: MemoryObjectSendStream[SessionMessage | Exception],
    answer: Callable[[SessionMessage], Awaitable[None]],
) -> None:
    """Hand on what is a message, and answer what is none: the host would wait."""
    async with readable:
        async for line in lines:
            if not line.strip():
                continue
            try:
                message = read_message(line)
            except NoMessageError as no_message:
                await answer(SessionMessage(no_message.answer))
            else:
                await readable.send(SessionMessage(message))


def read_message(line: str) -> types.JSONRPCMessage:
    """The JSON-RPC message of a line.

    Raises:
        NoMessageError: it is none. The answer bears the id of the request where that can be made out, as in
            a line whose only fault is half a character: JavaScript hosts write lone surrogates, which strict
            parsers refuse.
    """
    if line == OVERLONG:
        raise NoMessageError(error(None, types.INVALID_REQUEST, OVERLONG))
    try:
        given = from_json(line)
    except ValueError as fault:
        raise NoMessageError(error(_id(line), types.PARSE_ERROR, f"Invalid JSON: {fault}")) from None
    if refused := refusal(given):
        raise NoMessageError(refused)
    try:
        return types.jsonrpc_message_adapter.validate_python(given, by_name=False)
    except ValidationError:
        told = error(None, types.INVALID_REQUEST, "This is JSON, but no JSON-RPC message.")
        raise NoMessageError(told) from None


def _id(line: str) -> str | int | None:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    id_ = message.get("id") if isinstance(message, dict) else None
    return id_ if type(id_) is int or (isinstance(id_, str) and id_.isascii()) else None


def _watch_parent() -> None:
    """Leave when the parent has died: some hosts' pipes stay open in other children."""
    while os.getppid() == PARENT:
        time.sleep(WATCH_SECONDS)
    _leave()


def _leave(*_: object) -> NoReturn:
    """End at once: the thread that reads input can't be cancelled, and nothing but spans needs saving."""
    tracing.flush()
    os._exit(0)
