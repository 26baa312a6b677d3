"""Connects a host to the desk that all hosts of a person share, and starts that desk if it isn't running.

Each host starts `refdesk`, which is only this module, without slow imports. It relays lines between the host
and a socket. At the other end, one process holds the model and the rows (`server.shared_desk`).

That process may end at any time: by a fault, or when idle. Then the next line starts another one. The bridge
numbers the host's lines, and the desk refers to them in its frames:

    =CODE ASKER     the session has begun; CODE is the exit code for its end, ASKER the host's principal
    +NUMBER METHOD  send this line again to another desk, before all others
    NUMBER ANSWER   the answer to this line; without ANSWER, the line gets none
    -MESSAGE        a message that answers no line
    !WORDS          for standard error

So no line is lost: unanswered ones are sent again, which is safe because all calls are reads. And no line is
answered twice: an answer to an answered line is dropped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import select
import signal
import socket
import stat
import sys
import time
from contextlib import suppress

from server import ENDING, EXIT_FORCED, PARENT
from server.host_log import HostLog

OF_THE_ASKER, PATHS = ("--tenant", "--user", "--group"), ("--data", "--config")
"""The flags of hosts that share a desk. The askers may differ, the paths may not."""
ASKER_VARIABLES = "REFDESK_PRINCIPAL_"
COUNTED = (
    "HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "PYTHONHOME",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
)
"""The variables that select the desk, besides refdesk's own. The desk itself compares other variables that
its settings use: hosts differ in those that they pass on, for example for certificates."""
MAX_LINE = 1 << 20  # with its line end one byte more than a message may have, so that the desk refuses it
MAX_BEHIND = 1 << 20  # unread bytes of one side, beyond which the other side is not read (back-pressure)
BLOCK = 1 << 16
ATTEMPTS = 5  # to get an answer; a dying desk costs two if its socket outlives the connection
CONNECT_SECONDS, WELCOME_SECONDS = 5, 30
WAIT_SECONDS = 0.5  # between two checks whether the host still runs
SETTLING_SECONDS = 0.1  # after a signal, to read what was written before it
DRAIN_SECONDS, WRITE_SECONDS = 10, 1  # as in `server.stdio`, which runs behind the socket
MAX_LOG_BYTES = 1 << 20
HOST_LOG = HostLog()
NO_DESK = (FileNotFoundError, ConnectionRefusedError)  # the socket of a dead desk may be left
DESK = "from refdesk_scripts import shared_desk; shared_desk()"


def serve_by_shared_desk() -> None:
    """Serve the host at standard input and end the process; or return, if this process must serve alone.

    It must serve alone anything but a host over stdio, and if there is no shared desk; stderr says why.
    """
    arguments = _arguments(sys.argv[1:])
    if arguments is None or not _has_host():
        return
    try:
        bridge = Bridge(arguments)
        bridge.begin()
    except OSError as error:
        # Nothing has been read from the host yet, so this process can still serve it.
        _say(f"refdesk serves this host alone, because there is no shared desk: {error}.")
        return
    sys.exit(bridge.run())


def _has_host() -> bool:
    """Whether all standard streams are open, and no person sits at a terminal."""
    try:
        return not os.isatty(0) and all(os.fstat(stream) for stream in (0, 1, 2))
    except OSError:
        return False


def _arguments(arguments: list[str]) -> list[str] | None:
    """The arguments in pairs; None if any is invalid, or not for a shared desk.

    Example: --user ann --data=x -> --user ann --data x
    """
    pairs, remaining = list[str](), iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        value = value if equals else next(remaining, "-")
        if name not in OF_THE_ASKER + PATHS or value.startswith("-"):
            return None
        pairs += (name, value)
    return pairs


class Bridge:
    """A host's connection to its desk. A desk that ends is replaced by another."""

    def __init__(self, arguments: list[str]) -> None:
        """For a host that started `refdesk` with these arguments.

        Raises:
            OSError: other users could enter the folder for sockets, or it can't be made.
        """
        self._address = f"{_folder()}/{_key(arguments)}"
        self._call = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
        self._asker: object = None
        self._exit_code: int | None = None
        self._desk: socket.socket | None = None
        self._is_alone = False
        self._failures = 0  # since the last answer
        self._number = 0
        self._unanswered: dict[int, bytes] = {}
        self._greeting: dict[bytes, tuple[int, bytes]] = {}
        self._from_host = self._from_desk = b""  # incomplete lines
        self._to_desk, self._to_host = bytearray(), bytearray()
        self._ends_at: float | None = None  # when the host's input ends, or ended
        self._desk_knows_end = False

    def begin(self) -> None:
        """Begin the session, before reading from the host.

        Raises:
            OSError: no desk can be reached or started.
        """
        ends = time.monotonic() + WELCOME_SECONDS
        while self._exit_code is None:
            if self._failures == ATTEMPTS or time.monotonic() > ends:
                raise OSError(f"it doesn't answer; {self._address}.log may say why")
            if not self._desk:
                self._connect()
            self._exchange()

    def run(self) -> int:
        """Relay lines until the host is gone or a signal arrives. Returns the exit code."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake)  # a signal ends the wait in `select`
        for number in ENDING:
            signal.signal(number, self._end_soon)
        try:
            while not self._is_over():
                if self._unanswered and not self._desk:
                    self._replace_desk()
                self._exchange(0, woken)
        except BrokenPipeError:  # the host has closed our standard output
            return self._exit_code or 0
        except OSError as error:
            _say(f"refdesk ends: {error}.")
            return 1
        return self._exit_code or 0

    def _end_soon(self, *_: object) -> None:
        """After a signal, answer the lines that were read. A second signal ends the process at once."""
        for number in ENDING:
            signal.signal(number, lambda *_: os._exit(EXIT_FORCED))
        self._ends_at = self._ends_at or time.monotonic() + SETTLING_SECONDS

    @property
    def _late(self) -> float:
        """The seconds since the end of the host's input; negative before."""
        return time.monotonic() - self._ends_at if self._ends_at else -1

    def _is_over(self) -> bool:
        """Whether the host is gone, or its input has ended and all is answered or the time is up."""
        # Our input can outlive the host: another child of it may hold the other end.
        if os.getppid() != PARENT or self._late > DRAIN_SECONDS + WRITE_SECONDS:
            return True
        gives_up = self._late > DRAIN_SECONDS - WRITE_SECONDS  # on answers of a desk that is gone
        return self._late >= 0 and not (self._desk or self._to_host or (self._unanswered and not gives_up))

    def _connect(self) -> None:
        """Begin a session with a desk, and send unanswered lines again.

        Raises:
            OSError: no desk can be reached or started.
        """
        self._desk = _own_desk() if self._is_alone else _shared_desk(self._address)
        self._desk.setblocking(False)  # noqa: FBT003 the method's own
        self._desk_knows_end = False
        # By their numbers the greeting comes first: a desk refuses calls before it.
        lines = dict(self._greeting.values()) | self._unanswered
        self._to_desk[:] = json.dumps(self._call | {"asker": self._asker}).encode() + b"\n"
        self._to_desk += b"".join(b"%d %s\n" % line for line in sorted(lines.items()))

    def _replace_desk(self) -> None:
        """Connect to another desk; after several failures, to one for this host alone.

        Raises:
            OSError: the desk for this host alone failed, too.
        """
        try:
            if self._failures >= ATTEMPTS:
                raise OSError(f"it ended {ATTEMPTS} times without an answer")  # noqa: TRY301 as if it couldn't be started
            self._connect()
        except OSError as error:
            if self._is_alone:
                raise
            _say(f"refdesk serves this host alone, because the shared desk is lost: {error}.")
            self._is_alone, self._failures = True, 0

    def _exchange(self, *inputs: int) -> None:
        """Read and write as far as possible; otherwise wait up to `WAIT_SECONDS`.

        Raises:
            OSError: standard output is closed.
        """
        listens = max(len(self._to_desk), len(self._to_host)) <= MAX_BEHIND and self._late < 0
        readers: list[int | socket.socket] = [source for source in inputs if source or listens]
        writers: list[int | socket.socket] = [1] if self._to_host else []
        if self._desk:
            readers += [self._desk] if len(self._to_host) <= MAX_BEHIND else []
            writers += [self._desk] if self._to_desk else []
        seconds = SETTLING_SECONDS if self._ends_at else WAIT_SECONDS
        ready, open_, _ = select.select(readers, writers, [], seconds)
        for source in inputs:
            if source in ready:
                os.read(source, BLOCK) if source else self._hear_host()
        if 1 in open_:
            with suppress(BlockingIOError):
                del self._to_host[: os.write(1, self._to_host[: select.PIPE_BUF])]  # never blocks
        if self._desk:
            self._exchange_with(self._desk, heard=self._desk in ready)

    def _exchange_with(self, desk: socket.socket, *, heard: bool) -> None:
        try:
            if heard:
                self._hear_desk(desk.recv(BLOCK))
            if self._to_desk:
                del self._to_desk[: desk.send(self._to_desk[:BLOCK])]
            elif self._late >= 0 and not self._desk_knows_end:
                desk.shutdown(socket.SHUT_WR)
                self._desk_knows_end = True
        except BlockingIOError:
            pass
        except OSError:
            desk.close()
            self._desk, self._from_desk = None, b""
            self._to_desk.clear()  # the next desk gets all unanswered lines
            # A desk that owes no answer may end: it was idle.
            self._failures = self._failures + 1 if self._unanswered or self._exit_code is None else 0

    def _hear_host(self) -> None:
        try:
            block = os.read(0, BLOCK)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        # At the end of input, a last line without its end counts, too.
        *lines, incomplete = (self._from_host + (block or b"\n")).split(b"\n")
        self._from_host = incomplete[:MAX_LINE]
        for line in filter(bytes.strip, lines):
            self._number += 1
            self._unanswered[self._number] = line[:MAX_LINE]
            if self._desk:
                self._to_desk += b"%d %s\n" % (self._number, line[:MAX_LINE])
        if not block:
            self._ends_at = self._ends_at or time.monotonic()

    def _hear_desk(self, block: bytes) -> None:
        """Handle the desk's frames (see the module's docstring)."""
        if not block:
            raise ConnectionResetError
        *frames, self._from_desk = (self._from_desk + block).split(b"\n")
        for frame in frames:
            head, _, tail = frame.partition(b" ")
            match frame[:1]:
                case b"=":
                    # A later session isn't a success yet: the same line may end that desk, too.
                    self._failures = 0 if self._exit_code is None else self._failures
                    self._exit_code = int(head[1:])
                    self._asker = self._asker or json.loads(tail)  # the first counts for the whole session
                case b"+":
                    if line := self._unanswered.get(int(head[1:])):
                        self._greeting[tail] = (int(head[1:]), line)
                case b"-":
                    self._to_host += frame[1:] + b"\n"
                case b"!":
                    _say(frame[1:].decode(errors="replace"))
                case _:
                    if self._unanswered.pop(int(head), None) is not None:
                        self._to_host += tail + b"\n" if tail else b""
                        self._failures = 0


def _say(words: str) -> None:
    with suppress(OSError):
        HOST_LOG.write(words)


def _folder() -> str:
    """The folder of the sockets, which only this user can enter.

    Raises:
        OSError: it can't be made, belongs to another user, or is open to others.
    """
    user = os.geteuid()
    above = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    if not os.path.isdir(above):
        above = os.path.expanduser("~/Library/Caches" if sys.platform == "darwin" else "~/.cache")
    folder = f"{above}/refdesk"
    os.makedirs(folder, 0o700, exist_ok=True)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder that you alone can open")
    return folder


def _key(arguments: list[str]) -> str:
    """A digest of everything that selects the desk: the installation, the user, the sources of settings."""
    agreed = [pair for pair in zip(arguments[::2], arguments[1::2], strict=True) if pair[0] in PATHS]
    folder = "" if all(os.path.isabs(path) for _, path in agreed) else os.getcwd()
    variables = [
        (name, value)
        for name, value in sorted(os.environ.items())
        if name in COUNTED or (name.startswith("REFDESK_") and not name.startswith(ASKER_VARIABLES))
    ]
    parts = (os.geteuid(), sys.executable, _installation(), agreed, folder, variables)
    return hashlib.sha256(repr(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def _installation() -> list[tuple[str, int]]:
    """A value that changes with refdesk or its dependencies: its files, and the folders of packages."""
    paths = [folder for folder in sys.path if folder.endswith("-packages")]
    root = os.path.dirname(os.path.dirname(__file__))
    for package in ("server", "rag"):
        for folder, _, names in os.walk(f"{root}/{package}"):
            paths += [f"{folder}/{name}" for name in names if name.endswith(".py")]
    return [(path, os.stat(path).st_mtime_ns) for path in sorted(paths) if os.path.exists(path)]


def _shared_desk(address: str) -> socket.socket:
    """A connection to the desk at this address, which is started if nobody listens there.

    Raises:
        OSError: something else is at the address, or no desk can be started.
    """
    with suppress(*NO_DESK):
        return _connected(address)
    # Hosts start together, and each would start a desk. The one without the lock finds the other's.
    lock = os.open(f"{address}.lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with suppress(*NO_DESK):  # another bridge may have started it
            return _connected(address)
        with suppress(FileNotFoundError):
            os.unlink(f"{address}.sock")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{address}.sock")
            os.chmod(f"{address}.sock", 0o600)
            listener.listen()  # connections wait for the desk from now on, and aren't refused
            log = os.open(f"{address}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            if os.fstat(log).st_size > MAX_LOG_BYTES:
                os.truncate(log, 0)
            _start(listener, log, address)
        return _connected(address)
    finally:
        os.close(lock)  # the end of the process would release it, too


def _connected(address: str) -> socket.socket:
    status = os.lstat(f"{address}.sock")
    if not stat.S_ISSOCK(status.st_mode) or status.st_uid != os.geteuid():
        raise PermissionError(f"{address}.sock is not a socket of yours")
    desk = socket.socket(socket.AF_UNIX)
    desk.settimeout(CONNECT_SECONDS)
    try:
        desk.connect(f"{address}.sock")
    except OSError:
        desk.close()
        raise
    return desk


def _own_desk() -> socket.socket:
    """A connection to a desk for this host alone, which ends with the host."""
    ours, theirs = socket.socketpair()
    with theirs:
        _start(theirs, os.dup(2), "one host")
    return ours


def _start(channel: socket.socket, log: int, name: str) -> None:
    """Start a desk that listens on this socket, or serves one host over it. Its process shows `name`."""
    import subprocess  # noqa: PLC0415 takes 8 ms

    command = [sys.executable, "-P", "-c", DESK, f"desk of {name}"]
    input_ = channel.fileno()
    subprocess.Popen(command, stdin=input_, stdout=log, stderr=log, cwd="/", start_new_session=True)  # noqa: S603 ours
    os.close(log)
