"""JSON-RPC messages that must be answered before the SDK sees them, over every transport.

Left to itself, the SDK drops what is not a message or answers it with pydantic's words and what was sent,
takes a request with an invalid id for a notification (and never answers it), and echoes the name of an
unknown method whatever its length.
"""

from __future__ import annotations

import json
import re

from mcp import types
from pydantic import ValidationError
from pydantic_core import from_json

MAX_MESSAGE_BYTES = 1 << 20
MAX_VALUES = 10_000  # in a message: three times what the largest filter has; parsing 200,000 takes 0.3 s
MAX_METHOD_CHARS = 64  # twice the longest method name of the protocol
TOO_LONG = f"A message may have at most {MAX_MESSAGE_BYTES} bytes; this one is longer."
TOO_MANY = f"A message may have at most {MAX_VALUES:,} values; this one has more."
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
INVALID_ID = "The id of a request must be a string or an integer. Leave it out for a notification."
BATCH = "MCP has no batches since its version 2025-06-18. Send each message by itself, not in an array."


class InvalidMessageError(Exception):
    """A line or body that is not a message, with the error to answer."""

    def __init__(self, answer: types.JSONRPCError) -> None:
        super().__init__()
        self.answer = answer


def read_message(line: str | bytes) -> types.JSONRPCMessage:
    """The JSON-RPC message of a line or body; `TOO_LONG` stands for a line that was too long to keep.

    Raises:
        InvalidMessageError: it is not a message. The answer has the request's id if it can be recovered, as
            from a line with a lone surrogate: JavaScript hosts write these, and strict parsers refuse them.
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
    """Whether JSON has more values than `MAX_VALUES`. That is counted before anybody makes values of it.

    It is for servers with several clients: one over standard input and output holds up nobody else.
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
