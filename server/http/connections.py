"""Connections, before there is a request: how many there may be, from where, and how long they may dawdle.

When there is no more room, whoever has waited longest without asking anything makes place, so that
connections that only stay open keep nobody out.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

    from server.http.refusals import Refusals
    from server.http.senders import Sender, Senders

MAX_CONNECTIONS = 1000
OWN_FILES = 400  # that the engine and the rest of the process may have open
LATE, TOO_MANY, FULL = 408, 429, 503
RAW = (
    "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n"
    "Cache-Control: no-store\r\nConnection: close\r\n\r\n{reason}"
)
REASONS = {400: "Bad Request", TOO_MANY: "Too Many Requests", FULL: "Service Unavailable"}


def places() -> int:
    """How many connections there is room for: a thousand, if this process may open enough files."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource  # noqa: PLC0415 there is none on Windows

    wanted = MAX_CONNECTIONS + OWN_FILES
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY or files >= wanted:
        return MAX_CONNECTIONS
    files = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    return min(MAX_CONNECTIONS, max(files - OWN_FILES, files // 2))


class Room:
    """Who is connected: altogether, and from each address that is not shared, only so many."""

    def __init__(self, most: int, most_of_one: int, senders: Senders, refusals: Refusals) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._senders = senders
        self._refusals = refusals
        self._connected: dict[Patient, Sender] = {}
        self._of_one: Counter[str] = Counter()
        self._waiting: dict[Patient, None] = {}  # longest first
        self._waiting_of: dict[str, dict[Patient, None]] = {}

    def enter(self, one: Patient) -> int:
        """Let somebody in, if need be in place of another; otherwise the status that says why not."""
        client, server = one.client or ("", 0), one.server or ("", 0)
        sender = self._senders.of_connection(client[0], server[0])
        alone = not sender.shared and self._of_one[sender.block] >= self._most_of_one
        if alone and not self._make_place(self._waiting_of.get(sender.block, {})):
            return self._refuse(TOO_MANY, sender)
        if len(self._connected) >= self._most and not self._make_place(self._waiting):
            return self._refuse(FULL, sender)
        self._connected[one] = sender
        self._of_one[sender.block] += 1
        self.waits(one)
        return 0

    def leave(self, one: Patient) -> None:
        """Nobody is there any more."""
        self.asks(one)
        sender = self._connected.pop(one, None)
        if sender:
            self._of_one[sender.block] -= 1
            if not self._of_one[sender.block]:
                del self._of_one[sender.block]

    def waits(self, one: Patient) -> None:
        """Somebody has asked nothing, or has been answered."""
        if one in self._connected and one not in self._waiting:
            self._waiting[one] = None
            self._waiting_of.setdefault(self._connected[one].block, {})[one] = None

    def asks(self, one: Patient) -> None:
        """Somebody's request is being answered."""
        if one in self._waiting:
            del self._waiting[one]
            block = self._connected[one].block
            del self._waiting_of[block][one]
            if not self._waiting_of[block]:
                del self._waiting_of[block]

    def note(self, one: Patient, status: int) -> None:
        """Tell of a connection that came to no request."""
        sender = self._connected.get(one)
        if sender:
            self._refusals.note(status, sender.address, {})

    def _make_place(self, waiting: dict[Patient, None]) -> bool:
        longest = next(iter(waiting), None)
        if longest is None:
            return False
        self.note(longest, LATE)
        self.leave(longest)
        longest.transport.close()
        return True

    def _refuse(self, status: int, sender: Sender) -> int:
        self._refusals.note(status, sender.address, {})
        return status


class Patient(H11Protocol):
    """A connection is closed whose request line and headers don't come in time, or whose answer waits."""

    seconds: float
    room: Room
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request, if there is room."""
        super().connection_made(transport)
        refused = self.room.enter(self)
        if refused:
            self._say(refused)
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request, or no longer."""
        if self._late is None and not self._asked():
            self._watch()
        super().data_received(data)
        if self._late and self._asked():
            self._late.cancel()
            self._late = None
        self._settle()

    def on_response_complete(self) -> None:
        """Wait for the next request, which may be there already."""
        super().on_response_complete()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more to wait for."""
        for timer in (self._late, self._unread):
            if timer:
                timer.cancel()
        self.room.leave(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client reads less than there is to send: wait no longer than for a request."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It has caught up."""
        if self._unread:
            self._unread.cancel()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 uvicorn's signature
        """What was sent is no HTTP."""
        self.room.note(self, 400)
        self._say(400)

    def _say(self, status: int) -> None:
        reason = REASONS[status]
        self.transport.write(RAW.format(status=status, reason=reason, length=len(reason)).encode())
        self.transport.close()

    def _asked(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def _settle(self) -> None:
        if self._asked():
            self.room.asks(self)
        else:
            self.room.waits(self)

    def _watch(self) -> None:
        self._late = self.loop.call_later(self.seconds, self._give_up)

    def _give_up(self) -> None:
        self.room.note(self, LATE)
        self.transport.close()
