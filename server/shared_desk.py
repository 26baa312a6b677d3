"""The process of the desk that all hosts of a person share; each host is connected by a bridge.

`server.bridge` starts it with a socket as standard input; its docstring describes their protocol. Each
connection is a session with its own server, admission and principal. All share the desk, which opens once. So
their settings are the same, except for the principal. A session with other settings, as after a change of the
file, isn't begun: this desk stops listening, and the bridge starts another one.

The process ends when all hosts were silent for some minutes, even if bridges are connected.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import re
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import chdir, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
from anyio.abc import SocketAttribute, SocketListener, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from rag.access.tenants import LocalAsker, storages_of
from rag.config.server_settings import LimitSettings
from rag.config.settings import Settings, variables_in_use
from rag.corpus import Principal
from rag.errors import ConfigurationError, RefdeskError
from rag.runtime import allocate_sparingly
from rag.text.plain_text import for_people
from server import call_audit
from server.admission import Admission
from server.handlers import create_server
from server.http.passage_pages import LocalPages, PassagePages
from server.lazy_desk import LazyDesk
from server.main import read_flags
from server.start import EXIT_USAGE, create_misconfigured_server, local_settings, warn
from server.stdio import MAX_MESSAGE_BYTES, TOO_LONG, converse, exit_at_once, json_line

if TYPE_CHECKING:
    from mcp import types
    from mcp.server.lowlevel import Server


IDLE_SECONDS = 900.0  # without a host's word: then its memory is free, and the next word waits about a second
RETRY_SECONDS = 1.0  # after a connection that could not be accepted
CALL_SECONDS = 10.0  # for a connection to send its first line, the `Call`
MAX_SESSIONS = 64
MAX_FRAME_BYTES = MAX_MESSAGE_BYTES + 32  # a line with its number
MAX_CALL_BYTES = 1 << 22  # more than systems let an environment have
NO_CALL = (OSError, ValueError, TypeError, anyio.EndOfStream, anyio.IncompleteRead, anyio.DelimiterNotFound)
CREDENTIALS = struct.Struct("3i")  # of a peer, on Linux: process, user, group

Asker: TypeAlias = "dict[str, object]"
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """How a host started `refdesk`. `asker` is its principal, if the session began with another desk."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    asker: Asker | None = None


class Session:
    """A connection to a bridge: reads the host's lines, writes frames."""

    def __init__(self, stream: SocketStream, touch: Callable[[], None]) -> None:
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)
        self._touch = touch
        self._one_at_a_time = anyio.Lock()
        self._logged: list[bytes] = []
        self.is_open = True
        self.unanswered: set[int] = set()

    async def call(self) -> Call:
        """The first line."""
        line = await self._received.receive_until(b"\n", MAX_CALL_BYTES)
        return Call(**json.loads(line))

    async def lines(self) -> AsyncIterator[tuple[int, str]]:
        """The lines of the host, until it or its bridge is gone."""
        with suppress(anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            while True:
                frame = await self._received.receive_until(b"\n", MAX_FRAME_BYTES)
                self._touch()
                head, _, line = frame.partition(b" ")
                self.unanswered.add(int(head))
                too_long = len(line) >= MAX_MESSAGE_BYTES  # the line end counts
                yield int(head), TOO_LONG if too_long else line.decode("utf-8-sig", errors="replace")

    async def begin(self, exit_code: int, asker: Asker | None) -> None:
        """Tell the bridge that the session has begun."""
        await self._say(b"=%d %s\n" % (exit_code, json.dumps(asker).encode()))

    async def write(self, message: types.JSONRPCMessage, number: int | None) -> None:
        """Write a message, as `stdio.Output` has it.

        Raises:
            OSError: the bridge is gone.
        """
        head = b"-" if number is None else b"%d " % number
        await self._say(head + json_line(message))
        self._settled(number)

    async def settle(self, number: int) -> None:
        """Tell the bridge that a line gets no answer."""
        await self._say(b"%d\n" % number)
        self._settled(number)

    async def keep(self, number: int, method: str) -> None:
        """Tell the bridge to send a line again to the next desk."""
        await self._say(b"+%d %s\n" % (number, method.encode()))

    def log(self, line: str) -> None:
        """Have the bridge write a line to standard error, before the next frame. Thread-safe."""
        self._logged.append(b"!%s\n" % line.encode(errors="backslashreplace"))

    async def end(self) -> None:
        """Send the last log lines."""
        self.is_open = False
        with suppress(OSError):
            await self._say(b"")

    def _settled(self, number: int | None) -> None:
        self._touch()
        if number is not None:
            self.unanswered.discard(number)

    async def _say(self, frame: bytes) -> None:
        async with self._one_at_a_time:
            logged, self._logged = self._logged, []
            try:
                await self._stream.send(b"".join((*logged, frame)))
            except anyio.BrokenResourceError as error:
                raise BrokenPipeError from error


current_session: ContextVar[Session | None] = ContextVar("session", default=None)


class SessionLog(logging.StreamHandler[Any]):
    """Sends the log of a session to its host, as if the host had its own server."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log to the session of this task or thread, otherwise to the log of this process."""
        session = current_session.get()
        if session and session.is_open:
            session.log(self.format(record))
        else:
            super().emit(record)


class SharedDesk:
    """The desk and its sessions. The first session with valid settings sets them."""

    def __init__(self, listener: SocketListener | None, environment: Mapping[str, str]) -> None:
        """Sessions of this listener share the desk if the variables that count are as in `environment`."""
        self._listener = listener
        self._environment = environment
        self._settings: Settings | None = None
        self._lazy_desk: LazyDesk | None = None
        self._pages: LocalPages | None = None
        self._askers: dict[str, LocalAsker] = {}  # of all sessions, ended ones included
        self._sessions: set[Session] = set()
        self._touched = time.monotonic()
        self._tasks = anyio.create_task_group()

    async def serve(self) -> None:
        """Serve all connections until the desk is idle."""
        assert self._listener  # noqa: S101 only `serve_alone` has none
        async with self._tasks:
            self._tasks.start_soon(self._end_when_idle)
            with suppress(anyio.ClosedResourceError):
                await self._accept(self._listener)
            await anyio.sleep_forever()

    async def _accept(self, listener: SocketListener) -> None:
        """Accept connections. If file descriptors run out, present connections go on."""
        while True:
            try:
                await listener.serve(self.attend, self._tasks)
            except (OSError, anyio.BrokenResourceError) as error:
                log.warning("No host can connect just now: %s", type(error).__name__)
                await anyio.sleep(RETRY_SECONDS)

    async def serve_alone(self, stream: SocketStream) -> None:
        """Serve one host, and end with it."""
        async with self._tasks:
            await self.attend(stream)

    def _touch(self) -> None:
        self._touched = time.monotonic()

    async def _end_when_idle(self) -> None:
        while True:
            seconds_left = self._touched + IDLE_SECONDS - time.monotonic()
            # A slow call isn't idleness: its line would be sent to another desk, and be as slow there.
            if seconds_left <= 0 and not any(session.unanswered for session in self._sessions):
                exit_at_once(0)
            await anyio.sleep(min(max(seconds_left, 0.1), CALL_SECONDS))

    async def attend(self, stream: SocketStream) -> None:
        """Hold a session with a connection; a failure ends only this one."""
        session = Session(stream, self._touch)
        async with stream:
            if len(self._sessions) == MAX_SESSIONS or not _is_own(stream):
                return  # the bridge tries again, and in the end serves its host alone
            self._sessions.add(session)
            try:
                await self._converse(session)
            except NO_CALL as error:
                log.warning("A connection ended before its session: %s", type(error).__name__)
            except Exception:
                session.is_open = False
                log.exception("a session crashed")
            finally:
                session.is_open = False
                self._sessions.discard(session)
        if self._listener is None and not self._sessions:
            exit_at_once(0)

    async def _converse(self, session: Session) -> None:
        with anyio.fail_after(CALL_SECONDS):
            call = await session.call()
        current_session.set(session)
        admission, exit_code, asker = Admission(LimitSettings()), 0, None
        try:
            settings = self._settings_of(call)
            if not self._shares(settings, call.environment):
                await self._retire()
                return
            server, admission, asker = self._server(settings)
        except ConfigurationError as error:
            message = for_people(str(error))
            session.log(message)
            server, exit_code = create_misconfigured_server(message), EXIT_USAGE
        await session.begin(exit_code, asker)
        with anyio.CancelScope() as scope:
            await converse(server, admission, session.lines(), session, end=scope.cancel)
        await session.end()

    def _settings_of(self, call: Call) -> Settings:
        """The settings as the host's own process would have them."""
        # Relative paths start there. The folder is that of the whole process, so nothing may await in here.
        with chdir(call.folder):
            flags = read_flags(call.arguments)
            settings, config = local_settings(flags, call.environment, call.asker)
            warn(settings, config)
        return settings

    def _shares(self, settings: Settings, environment: Mapping[str, str]) -> bool:
        """Whether a session with these settings can share the desk, which opens with the first."""
        if self._settings is None:
            logging.getLogger().setLevel(settings.server.log_level.upper())
            if settings.server.traces:
                call_audit.export_spans()
            self._settings, self._lazy_desk = settings, LazyDesk(settings)
            self._tasks.start_soon(self._lazy_desk.warm_up)
            if self._listener:
                self._show_pages(settings, self._lazy_desk, self._listener)
        # All sessions use one desk, so a tool's wall, for example, must be the same for all of them.
        if settings.model_copy(update={"principal": self._settings.principal}) != self._settings:
            return False
        names = variables_that_count(settings, environment.keys() | self._environment.keys())
        return all(environment.get(name) == self._environment.get(name) for name in names)

    def _show_pages(self, settings: Settings, lazy_desk: LazyDesk, listener: SocketListener) -> None:
        """Begin to serve pages of passages, for the person's browser."""
        admission = Admission(settings.limits, wait_forever=True)
        pages = PassagePages(lazy_desk, settings, admission, remote=False)
        path = Path(str(listener.extra(SocketAttribute.local_address)))  # noqa: S610 not Django's
        of_desk = hashlib.sha256(str(settings.home).encode()).hexdigest()[:16]
        port_file = path.with_name(f"{of_desk}.port")
        try:
            self._pages = LocalPages(pages, settings, self._askers_principals, port_file)
        except OSError as error:
            log.warning("Citations have no pages: %s", error)
            return
        self._tasks.start_soon(self._serve_pages, self._pages)

    async def _serve_pages(self, pages: LocalPages) -> None:
        current_session.set(None)  # otherwise the first host would get the log of the pages
        await pages.serve()

    def _askers_principals(self) -> list[Principal]:
        """The principals of all sessions so far, for a person who opens a page."""
        self._touch()
        principals = []
        for asker in self._askers.values():
            with suppress(ConfigurationError):  # the tenant is gone
                principals.append(asker.principal())
        return principals

    def _server(self, settings: Settings) -> tuple[Server[Any], Admission, Asker]:
        assert self._lazy_desk  # noqa: S101 the settings are those of the desk
        asker = LocalAsker(settings)
        asker.principal()  # fails for a wrong tenant
        admission = Admission(settings.limits, wait_forever=True)
        pages = self._pages.address if self._pages else ""
        server = create_server(
            self._lazy_desk, settings, admission, lambda _context: asker.principal(), pages=pages
        )
        if len(self._askers) < MAX_SESSIONS:
            self._askers[settings.principal.model_dump_json()] = asker
        user, groups = settings.principal.user, [*settings.principal.groups]
        fixed = {"tenant": asker.fixed_tenant, "user": user, "groups": groups}
        return server, admission, {f"principal.{name}": value for name, value in fixed.items()}

    async def _retire(self) -> None:
        """Stop listening: the next bridge starts another desk, which also serves the pages."""
        if self._pages:
            self._pages.close()
        listener, self._listener = self._listener, None
        if listener:
            await listener.aclose()


def variables_that_count(settings: Settings, names: Iterable[str]) -> set[str]:
    """The variables that a desk with these settings uses; the operator's own code may read any."""
    if re.search(r'"call":"[^"]', settings.model_dump_json()):
        return {*names}
    return variables_in_use(settings, names, in_bucket=bool(settings.storage.uri) or _has_bucket(settings))


def _has_bucket(settings: Settings) -> bool:
    with suppress(RefdeskError):
        return any("://" in address for address in storages_of(settings.home).values())
    return False


def _is_own(stream: SocketStream) -> bool:
    """Whether the peer process is this user's, as far as the system tells."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # nobody else can enter the folder of the socket
    raw = stream.extra(SocketAttribute.raw_socket)  # noqa: S610 not Django's
    _, user, _ = CREDENTIALS.unpack(raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
    return bool(user == os.geteuid())


async def _serve(channel: socket.socket, environment: Mapping[str, str]) -> None:
    if channel.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        await SharedDesk(await SocketListener.from_socket(channel), environment).serve()
    else:
        await SharedDesk(None, environment).serve_alone(await SocketStream.from_socket(channel))


def main() -> None:
    """Serve over the socket at standard input."""
    channel = socket.socket(fileno=os.dup(0))
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)  # child processes must not inherit the socket
    os.close(empty)
    gc.freeze()  # objects made by imports stay
    environment = dict(os.environ)  # a copy, because we and libraries add variables
    allocate_sparingly()
    call_audit.set_up_log("warning", audit=False, handler=SessionLog(sys.stderr))
    anyio.run(_serve, channel, environment)
