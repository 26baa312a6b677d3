"""Serving one host over standard input and output, and leaving when it is gone."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
from mcp import types
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from server import PARENT

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Awaitable, Callable

    from anyio.streams.memory import MemoryObjectSendStream
    from mcp.server.lowlevel import Server

    from server.opening import OpeningDesk

WATCH_SECONDS = 0.5


async def serve(server: Server[Any], opening: OpeningDesk) -> None:
    """Serve until standard input ends, a signal comes, or the parent dies; then end the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)  # the event loop's own handlers don't exist on Windows
    threading.Thread(target=_watch_parent, daemon=True).start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(opening.warm_up)
        async with stdio_server() as (read, write):
            readable, messages = anyio.create_memory_object_stream[SessionMessage | Exception]()
            tasks.start_soon(_relay, read, readable, write.send)
            try:
                await server.run(messages, write, server.create_initialization_options())
            except anyio.get_cancelled_exc_class():  # nobody reads standard output any more
                _leave()
        _leave()


async def _relay(
    read: AsyncIterable[SessionMessage | Exception],
    readable: MemoryObjectSendStream[SessionMessage | Exception],
    answer: Callable[[SessionMessage], Awaitable[None]],
) -> None:
    """Hand on what is a message, and answer what is none: the SDK drops it, and the host would wait."""
    async with readable:
        async for item in read:
            if not isinstance(item, ValidationError):
                await readable.send(item)
            elif refused := refusal(item):
                await answer(SessionMessage(refused))


def refusal(error: ValidationError) -> types.JSONRPCError | None:
    """The answer to a line that is no JSON-RPC message; None to a blank one.

    It bears the id of the request where that can be made out, as in a line whose only fault is
    half a character: JavaScript hosts write lone surrogates, which strict parsers refuse.
    """
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] != "json_invalid":
        return _error(None, types.INVALID_REQUEST, "This is JSON, but no JSON-RPC message.")
    if not first["input"].strip():
        return None
    return _error(_id(first["input"]), types.PARSE_ERROR, first["msg"])


def _error(id_: str | int | None, code: int, message: str) -> types.JSONRPCError:
    return types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=code, message=message))


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
    """End at once: nothing here needs saving, and the thread that reads input can't be cancelled."""
    os._exit(0)
