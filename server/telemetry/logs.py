"""The log: one JSON object a line on standard error, each with the request that caused it.

Below level debug no line holds what callers or documents wrote: long messages are cut, and of an exception
only its type and the places that it passed are told.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGE_CHARS = 512
MAX_PLACES = 12  # of an exception's way, the last ones


@dataclass(slots=True)
class Trail:
    """A request's name in the log, and what the audit tells of it beside the call.

    `recorded` is whether a call has left its line, `who` whose request it is, `why` the reason why it was
    refused, in words of ours.
    """

    id: str
    recorded: bool = False
    who: Mapping[str, object] = field(default_factory=dict)
    why: str | None = None


trail: ContextVar[Trail | None] = ContextVar("trail", default=None)


def note_caller(who: Mapping[str, object]) -> None:
    """Have the audit tell whose request this is."""
    if followed := trail.get():
        followed.who = who


def note_refusal(why: str) -> None:
    """Have the audit tell why this request is refused; of several reasons the first, which is the nearest."""
    if (followed := trail.get()) and not followed.why:
        followed.why = why


def refusal_told() -> dict[str, object]:
    """What the audit tells of a request that came to no call: whose it is, as far as known, and why."""
    followed = trail.get()
    return {**followed.who, "why": followed.why} if followed else {}


class JsonLines(logging.Formatter):
    """Records as JSON objects. What a record has in `fields` stands beside its message."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, whatever is in the record."""
        followed = trail.get()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request": followed.id if followed else None,
            "message": record.getMessage()[:MAX_MESSAGE_CHARS],
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1]:
            line |= _told(record.exc_info[1])
        return json.dumps({key: value for key, value in line.items() if value is not None})


def _told(error: BaseException) -> dict[str, Any]:
    """An exception without its words, which may be a query's or a document's, but at level debug."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return {"error": "".join(traceback.format_exception(error))}
    places = traceback.extract_tb(error.__traceback__)[-MAX_PLACES:]
    return {
        "error": type(error).__name__,
        "at": [f"{Path(place.filename).name}:{place.lineno} {place.name}" for place in places],
    }


def set_up(level: str, *, audit: bool) -> None:
    """Log from `level` on; with `audit`, in any case the line of each call and what is said at the start."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in ("refdesk.audit", "refdesk.start") if audit else ():
        logging.getLogger(name).setLevel(logging.INFO)
