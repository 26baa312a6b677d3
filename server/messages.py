"""What of a request is answered before the protocol sees it, over every transport.

The protocol takes a request whose id is none for a notification, and leaves it without an answer; and it
tells a method that there is not again, however long its name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp import types
from mcp.server.transport_security import RequestBodyLimitMiddleware
from pydantic_core import from_json
from starlette.responses import Response

from server.telemetry.logs import note_refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_METHOD_CHARS = 64  # twice the longest that there is
BAD_ID = "The id of a request must be a string or an integer. Leave it out for a notification."


def refusal(message: object) -> types.JSONRPCError | None:
    """The answer to a request with an id that is none, or with an endless method; None to anything else.

    Example: {"jsonrpc": "2.0", "id": null, "method": "ping"} -> error -32600 under the id null.
    """
    if not isinstance(message, dict) or not {"id", "method"} <= message.keys():
        return None
    id_, method = message["id"], message["method"]
    if type(id_) is not int and not isinstance(id_, str):
        return error(None, types.INVALID_REQUEST, BAD_ID)
    if isinstance(method, str) and len(method) > MAX_METHOD_CHARS:
        return error(id_, types.METHOD_NOT_FOUND, "Method not found")
    return None


def error(id_: str | int | None, code: int, message: str) -> types.JSONRPCError:
    """An error as the protocol writes it."""
    return types.JSONRPCError(jsonrpc="2.0", id=id_, error=types.ErrorData(code=code, message=message))


class Answerable:
    """Lets a posted message through to the protocol, unless it is refused here."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._whole = RequestBodyLimitMiddleware(self._checked, max_body_bytes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        await self._whole(scope, receive, send)

    async def _checked(self, scope: Scope, receive: Receive, send: Send) -> None:
        first: Message | None = await receive()  # which has the whole body
        refused = _refusal_of(first.get("body", b"")) if first else None
        if refused:
            note_refusal(refused.error.message)
            body = refused.model_dump_json(by_alias=True, exclude_unset=True)
            await Response(body, 400, media_type="application/json")(scope, receive, send)
            return

        async def again() -> Message:
            nonlocal first
            message, first = first, None
            return message or await receive()

        await self._app(scope, again, send)


def _refusal_of(body: bytes) -> types.JSONRPCError | None:
    try:
        return refusal(from_json(body))
    except ValueError:
        return None  # the protocol says what is wrong with it
