"""Replies that no client refuses for their size: some end the connection over which too much comes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp import types

REPLY_BYTES = 255 * 1024  # leaves 1 KiB for the protocol's envelope
WORST_CHARACTER = 24  # bytes: two escapes of six outside the basic plane, and a tool says it twice

Result = TypeVar("Result", "types.CallToolResult", "types.ReadResourceResult")


def within_bytes(render: Callable[[int], Result], max_chars: int) -> Result:
    """What is rendered within `max_chars`, or within as many of them as make a reply of `REPLY_BYTES`."""
    result = render(max_chars)
    while max_chars * WORST_CHARACTER > REPLY_BYTES and (size := _size(result)) > REPLY_BYTES:
        max_chars = max_chars * REPLY_BYTES // size
        result = render(max_chars)
    return result


def _size(result: Result) -> int:
    """As the less compact of the transports writes it."""
    return len(json.dumps(result.model_dump(mode="json", by_alias=True, exclude_none=True)))
