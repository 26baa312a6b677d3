"""Serve one host over standard input and output, and exit when it is gone.

`read_message` refuses invalid input before the SDK sees it, over every transport. The SDK alone would drop
what is not a message, or answer it with pydantic's words and a quote of it; it would take a request with an
invalid id for a notification (and never answer it), and echo an unknown method's name of any length.

`converse` serves one host; `server.shared_desk` calls it for several hosts over sockets.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, TypeAlias

import anyio
from anyio import to_thread
from mcp import types
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from pydantic import ValidationError
from pydantic_core import from_json

from server import ENDING, EXIT_FORCED, PARENT, call_audit
from server.admission import SETTLING_SECONDS, Admission

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.server.lowlevel import Server


MAX_MESSAGE_BYTES = 1 << 20
MAX_VALUES = 10_000  # in a message: three times what the largest filter has; parsing 200,000 takes 0.3 s
MAX_METHOD_CHARS = 64  # twice the longest method name of the protocol
TOO_LONG = f"A message may have at most {MAX_MESSAGE_BYTES} bytes; this one is longer."
TOO_MANY = f"A message may have at most {MAX_VALUES:,} values; this one has more."
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    r"\\(?:(?P<whole>u[dD][89abAB]..\\u[dD][c-fC-F])|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
INVALID_ID = "The id of a request must be a string or an integer. Leave it out for a notification."
BATCH = "This server takes no batches; MCP has dropped them in 2025-06-18. Send each message by itself."


class InvalidMessageError(Exception):
    """A line or body is not a message. `answer` is the error to send."""

    def __init__(self, answer: types.JSONRPCError) -> None:
        super().__init__()
        self.answer = answer


def read_message(line: str | bytes) -> types.JSONRPCMessage:
    """The JSON-RPC message of a line or body; `TOO_LONG` stands for a line that was too long to keep.

    Raises:
        InvalidMessageError: it is not a message. The answer has the request's id if it can be recovered, as
            from a line that is nested too deeply.
    """
    if line == TOO_LONG:
        raise InvalidMessageError(error(None, types.INVALID_REQUEST, TOO_LONG))
    try:
        message = from_json(line)
    except ValueError as fault:
        raise InvalidMessageError(
            error(_id(line), types.PARSE_ERROR, f"Unreadable as JSON: {fault}.")
        ) from None
    if refused := _refusal(message):
        raise InvalidMessageError(refused)
    try:
        return types.jsonrpc_message_adapter.validate_python(message, by_name=False)
    except ValidationError:
        answer = error(None, types.INVALID_REQUEST, "This is JSON, but not a JSON-RPC message.")
        raise InvalidMessageError(answer) from None


def with_whole_characters(json: str) -> str:
    """JSON with U+FFFD for each escaped half of a character, which JSON allows and strict parsers refuse.

    Programs that cut a text within an emoji write these, such as JSON.stringify("😀".slice(0, 1)).
    """
    if not _HALF.search(json):
        return json
    return _ESCAPE.sub(lambda escape: r"\ufffd" if escape["half"] else escape[0], json)


def _refusal(message: object) -> types.JSONRPCError | None:
    """The error for a batch, or a request with an invalid id or an overlong method; None for anything else.

    Example: {"jsonrpc": "2.0", "id": null, "method": "ping"} -> error -32600 under the id null.
    """
    if isinstance(message, list):
        return error(None, types.INVALID_REQUEST, BATCH)
    if not isinstance(message, dict) or not {"id", "method"} <= message.keys():
        return None
    id_, method = message["id"], message["method"]
    if type(id_) is not int and not isinstance(id_, str):  # type(): a bool is an int to isinstance
        return error(None, types.INVALID_REQUEST, INVALID_ID)
    if isinstance(method, str) and len(method) > MAX_METHOD_CHARS:
        return error(id_, types.METHOD_NOT_FOUND, "Method not found")
    return None


def is_vast(json: str) -> bool:
    """Whether JSON has more values than `MAX_VALUES`, counted without parsing it.

    For servers with several clients: over stdio, a slow message delays nobody else.
    Example: '{"a": [1, 2]}' has two containers and a comma.
    """
    if _marks(json) <= MAX_VALUES:
        return False
    return _marks(_STRING.sub("", json)) > MAX_VALUES


def _marks(json: str) -> int:
    return sum(map(json.count, "[{,"))


def error(id_: str | int | None, code: int, message: str) -> types.JSONRPCError:
    """A JSON-RPC error response."""
    return types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=code, message=message))


def _id(line: str | bytes) -> str | int | None:
    """The id of a message that only Python's lenient parser can read."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    id_ = message.get("id") if isinstance(message, dict) else None
    return id_ if type(id_) is int or (isinstance(id_, str) and id_.isascii()) else None


STDERR = 2
PARENT_CHECK_SECONDS = 0.5
DRAIN_SECONDS = 10
WRITE_SECONDS = 1  # for the last writes, if the host doesn't read them

GREETING = frozenset({"initialize", "notifications/initialized"})

WarmUp: TypeAlias = "Callable[[], Coroutine[Any, Any, None]]"
Drain: TypeAlias = "Callable[[], Awaitable[None]]"
NumberedLines: TypeAlias = AsyncIterable[tuple[int, str]]
"""The lines of a host, each with a number by which `Output` refers to it."""
log = logging.getLogger(__name__)


class Output(Protocol):
    """Where answers to a host are written."""

    async def write(self, message: types.JSONRPCMessage, number: int | None) -> None:
        """Write a message; `number` is the line that it answers, if it answers one."""

    async def settle(self, number: int) -> None:
        """Note that a line gets no answer."""

    async def keep(self, number: int, method: str) -> None:
        """Note that later lines of the host depend on this one."""


class StdinLines:
    """Standard input, line by line. Other readers in this process find it empty.

    `TOO_LONG` replaces a line that is too long; the rest of it is skipped. A byte order mark before a line is
    dropped: PowerShell and editors on Windows write one.
    """

    def __init__(self) -> None:
        # A library or child process that reads standard input would swallow protocol messages.
        self._input = os.fdopen(os.dup(0), "rb", closefd=False)
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[int, str]:
        """The next line, until the input ends. All have the same number, because nothing refers to it."""
        line = await to_thread.run_sync(self._read)
        if not line:
            raise StopAsyncIteration
        return 0, line.decode("utf-8-sig", errors="replace")

    def _read(self) -> bytes:
        line = chunk = self._input.readline(MAX_MESSAGE_BYTES + 1)
        while chunk and not chunk.endswith(b"\n") and len(line) > MAX_MESSAGE_BYTES:
            chunk = self._input.readline(MAX_MESSAGE_BYTES)
        return line if len(line) <= MAX_MESSAGE_BYTES else TOO_LONG.encode()


class StdoutLines:
    """Standard output, line by line. Other output of this process goes to standard error."""

    def __init__(self) -> None:
        self._output = os.dup(1)
        self._one_at_a_time = anyio.Lock()
        os.dup2(STDERR, 1)

    async def settle(self, number: int) -> None:
        """Do nothing: only a bridge needs to know."""

    async def keep(self, number: int, method: str) -> None:
        """Do nothing, as `settle`."""

    async def write(self, message: types.JSONRPCMessage, number: int | None) -> None:  # noqa: ARG002 a host knows by the id
        """Write a message in a thread, because the host may be slow to read.

        Raises:
            OSError: the host has closed it.
        """
        line = json_line(message)
        async with self._one_at_a_time:
            await to_thread.run_sync(self._write, line)

    def _write(self, line: bytes) -> None:
        sent = 0
        while sent < len(line):
            sent += os.write(self._output, line[sent:])


def json_line(message: types.JSONRPCMessage) -> bytes:
    """A message as a line, with its end."""
    return message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


class Unanswered:
    """The requests that are neither answered nor cancelled, and the numbers of their lines."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._numbers: defaultdict[str | int | None, deque[int]] = defaultdict(deque)  # a host may repeat ids
        self._settled = anyio.Event()

    @property
    def count(self) -> int:
        """The number of these requests."""
        return sum(map(len, self._numbers.values()))

    def noted(self, message: types.JSONRPCMessage, number: int) -> SessionMessage:
        """The message for the SDK; a request counts from now on."""
        if not isinstance(message, types.JSONRPCRequest):
            return SessionMessage(message)
        self._numbers[message.id].append(number)
        return SessionMessage(
            message, ServerMessageMetadata(on_request_unanswered=partial(self._settle_unanswered, message.id))
        )

    async def write(self, message: types.JSONRPCMessage) -> None:
        """Write a message of the SDK; a request that it answers no longer counts."""
        if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            await self._output.write(message, None)
            return
        numbers = self._numbers.get(message.id)
        # It counts until it is written: the process ends as soon as none counts.
        await self._output.write(message, numbers[0] if numbers else None)
        self._pop(message.id)

    async def _settle_unanswered(self, id_: str | int) -> None:
        if (number := self._pop(id_)) is not None:
            await self._output.settle(number)

    def _pop(self, id_: str | int | None) -> int | None:
        numbers = self._numbers.get(id_)
        number = numbers.popleft() if numbers else None
        if not numbers:
            self._numbers.pop(id_, None)
        self._settled.set()
        self._settled = anyio.Event()
        return number

    async def none(self) -> None:
        """Wait until no request counts."""
        while self._numbers:
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
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(warm_up)
        await converse(server, admission, StdinLines(), StdoutLines(), end=partial(exit_at_once, exit_code))


async def converse(
    server: Server[Any],
    admission: Admission,
    lines: NumberedLines,
    output: Output,
    *,
    end: Callable[[], None],
) -> None:
    """Serve a host until its lines end or `admission` shuts down, and answer what has been read.

    `end` is called when all is answered or the host is gone. It ends everything, even work in threads.
    """
    messages, readable = anyio.create_memory_object_stream[SessionMessage | Exception]()
    replies, to_write = anyio.create_memory_object_stream[SessionMessage]()
    unanswered = Unanswered(output)
    drain = partial(_drain, messages, unanswered, end)
    async with messages, readable, replies, to_write, anyio.create_task_group() as tasks:
        tasks.start_soon(_drain_at_signal, admission, drain)
        # We read and write ourselves: the SDK drops invalid lines unanswered, and writes with two threads.
        tasks.start_soon(_relay, lines, messages, output, unanswered, drain)
        try:
            async with anyio.create_task_group() as writing:
                writing.start_soon(_write_replies, to_write, unanswered)
                try:
                    await server.run(readable, replies, server.create_initialization_options())
                except anyio.get_cancelled_exc_class():  # the host has closed its end
                    end()
                    raise
        except* OSError:  # it closed its end during the last replies
            pass
        end()


def fill_closed() -> None:
    """Open the null device for closed standard streams, before another file gets their descriptor."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(opened)


def _watch_signals(admission: Admission) -> None:
    loop = asyncio.get_running_loop()

    def shut_down() -> None:
        if admission.shutting_down.is_set():
            os._exit(EXIT_FORCED)
        admission.shutting_down.set()

    for number in ENDING:
        try:
            loop.add_signal_handler(number, shut_down)
        except NotImplementedError:  # Windows, where any signal wakes the loop
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(shut_down))


async def _drain_at_signal(admission: Admission, drain: Drain) -> None:
    """After a signal, answer what has been read and end the process.

    Reading goes on, because the reader blocks in a thread: a quick request that arrives while draining is
    still answered. The pause leaves time to read what was written before the signal.
    """
    await admission.shutting_down.wait()
    await anyio.sleep(SETTLING_SECONDS)
    await drain()


async def _drain(
    messages: MemoryObjectSendStream[SessionMessage | Exception],
    unanswered: Unanswered,
    end: Callable[[], None],
) -> None:
    """Wait until every request is answered, for at most ten seconds, and end the conversation.

    Then the SDK's input ends: it refuses running requests, and `converse` ends when all is written. If the
    host doesn't read, this ends the conversation a second later.
    """
    with anyio.move_on_after(DRAIN_SECONDS):
        await unanswered.none()
    if unanswered.count:
        log.warning("Requests not answered within %d s: %d.", DRAIN_SECONDS, unanswered.count)
    await messages.aclose()
    await anyio.sleep(WRITE_SECONDS)
    end()


async def _relay(
    lines: NumberedLines,
    messages: MemoryObjectSendStream[SessionMessage | Exception],
    output: Output,
    unanswered: Unanswered,
    drain: Drain,
) -> None:
    """Pass messages to the SDK, and answer invalid lines, for which the host may be waiting."""
    # A line may come too late, or the host may have closed its end.
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        async for number, line in lines:
            if not line.strip():
                await output.settle(number)
                continue
            try:
                message = read_message(with_whole_characters(line))
            except InvalidMessageError as invalid:
                await output.write(invalid.answer, number)
                continue
            if (
                isinstance(message, types.JSONRPCRequest | types.JSONRPCNotification)
                and message.method in GREETING
            ):
                await output.keep(number, message.method)
            if not isinstance(message, types.JSONRPCRequest):
                await output.settle(number)
            await messages.send(unanswered.noted(message, number))
    await drain()


async def _write_replies(replies: MemoryObjectReceiveStream[SessionMessage], unanswered: Unanswered) -> None:
    async for reply in replies:
        await unanswered.write(reply.message)


def _watch_parent() -> None:
    """Exit when the parent has died. Standard input may stay open then: other children can hold it."""
    while os.getppid() == PARENT:
        time.sleep(PARENT_CHECK_SECONDS)
    exit_at_once(0)


def exit_at_once(code: int) -> NoReturn:
    """End at once: the thread that reads standard input can't be cancelled. Only spans need flushing."""
    call_audit.flush_spans()
    os._exit(code)
