"""The log: one JSON object per line on standard error, each with the id of the request that caused it.

Above level debug, no line holds what callers or documents wrote: long messages are cut, and of an exception
only its type and its stack frames are logged, never its message.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MAX_MESSAGE_CHARS = 512
MAX_FRAMES = 12  # of an exception, the innermost ones


@dataclass(slots=True)
class RequestInfo:
    """The id of a request in the log, and what the audit adds to its line.

    `audited` is whether a call has written its line. `caller` identifies who sent the request, and `reason`
    says why it was refused, in our own words.
    """

    id: str
    audited: bool = False
    caller: Mapping[str, object] = field(default_factory=dict)
    reason: str | None = None


current_request: ContextVar[RequestInfo | None] = ContextVar("request", default=None)


def note_caller(caller: Mapping[str, object]) -> None:
    """Have the audit name who sent this request."""
    if request := current_request.get():
        request.caller = caller


def note_refusal(reason: str) -> None:
    """Have the audit say why this request was refused. The first of several reasons is kept."""
    if (request := current_request.get()) and not request.reason:
        request.reason = reason


def refusal_fields() -> dict[str, object]:
    """What is known of the caller, and the reason, of a request that was refused before it became a call."""
    request = current_request.get()
    return {**request.caller, "why": request.reason} if request else {}


class JsonLines(logging.Formatter):
    """Formats log records as JSON objects. A record's `fields` become further keys."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever the record holds."""
        request = current_request.get()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request": request.id if request else None,
            "message": record.getMessage()[:MAX_MESSAGE_CHARS],
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1]:
            line |= _error_fields(record.exc_info[1])
        return json.dumps({key: value for key, value in line.items() if value is not None})


def _error_fields(error: BaseException) -> dict[str, Any]:
    """An exception without its message, which may quote a query or a document; with it at level debug."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return {"error": "".join(traceback.format_exception(error))}
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return {
        "error": type(error).__name__,
        "at": [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
    }


def set_up(level: str, *, audit: bool, handler: logging.Handler | None = None) -> None:
    """Log from `level` on. With `audit`, always log the audit and the startup messages."""
    handler = handler or logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in ("refdesk.audit", "refdesk.start") if audit else ():
        logging.getLogger(name).setLevel(logging.INFO)
