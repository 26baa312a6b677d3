"""Runs our scripts again and again without importing everything each time, which takes a second of CPU.

A process of its own imports what the scripts import. For each command it forks a child that runs the
installed script with the command's arguments, environment, working folder and streams. Only on Linux.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import IO


SEARCHING = (
    *("rag.models.embed.local_embedder", "onnxruntime", "rag.search.desk"),
    *("anyio._backends._asyncio", "numpy.ma", "encodings.idna"),  # libraries import them late
)
ADMIN = (
    *(
        "rag.ingest.ingest_run",
        "rag.ingest.sandbox.parser_pool",
        "rag.store.write.collection_writer",
        "rag.search.why",
        "rag.admin.web.console_state",
    ),
    *("anyio._core._subprocesses", "pyarrow.acero"),
    *SEARCHING,
    *("lancedb.embeddings", "rag.admin.main", "encodings.utf_32_le"),
)
PARSER = ("rag.ingest.sandbox.parser_child", "rag.ingest.parse.parsers")
PARSED = ("pdf.pdf_document", "source_code", "mail.outlook", "office.xls")
"""The modules of `rag.ingest.parse` whose libraries a parser process imports before it confines itself."""
SERVER = (
    *("server.handlers", "server.lazy_desk", "server.http.application", "server.http.auth"),
    "server.shared_desk",
    *("server.metrics", "rag.config.load", "rag.run_history", "uvicorn", "platformdirs.unix"),
    *SEARCHING,
)
"""What is imported before the forks: what the commands of refdesk-admin import, and what refdesk does."""
READ_LATE = re.compile(
    r"REFDESK_|AWS_|GIT_|OTEL_EXPORTER_|SSH_|XDG_(CONFIG_HOME|DATA_HOME|RUNTIME_DIR)$"
    r"|(HOME|PATH|TERM|TMPDIR|PYTHONIOENCODING|SSL_CERT_DIR|LANCEDB_HOST_OVERRIDE)$"
    r"|\w+_(KEY|TOKEN)$|ARROW_DEFAULT_MEMORY_POOL$"
)
"""The variables that a process reads when it needs them: of settings, stores, keys and other programs.

Two of them Python reads once; a fork reads them anew (`_become`).

Arrow's says only where its memory comes from. A server that a test starts in its own process sets it.
"""
DESK = """#!{python} -P
from refdesk_scripts import shared_desk
shared_desk()"""
HOST = """#!{python}
import os, sys
from server.bridge import serve_by_shared_desk
sys.executable = {desk!r}  # what starts a desk
serve_by_shared_desk()
os.execv({alone!r}, [{alone!r}, *sys.argv[1:]])"""
PARSE = "from rag.ingest.sandbox.parser_child import main; main()"
STAND_IN = """#!{python} -IS
import _socket, array, json, os, re, signal, sys
script, early, late = {script!r}, {early!r}, re.compile({late!r})
given = {{name: value for name, value in os.environ.items() if not late.match(name)}}
given.pop("LC_CTYPE", None)  # Python sets it where there is no locale
command = [script, *sys.argv[1:]]
if script.endswith("/refdesk") and "--http" not in command:
    command.append("--alone")  # a desk that it started would be no fork
if not given.items() <= early.items():
    os.execv(script, command)
caller = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
if caller.connect_ex({address!r}):
    os.execv(script, command)
request = {{"command": command, "environment": dict(os.environ), "cwd": os.getcwd()}}
streams = array.array("i", (0, 1, 2))
caller.sendmsg([json.dumps(request).encode()], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
for stream in streams:
    os.close(stream)
process = int(caller.recv(99))
def pass_on(number, _frame):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, pass_on)
os._exit(int(caller.recv(99)) & 255)
"""
"""A program that runs an installed script in a fork where that does the same, else in its own process.

Interruptions and terminations go to the fork, which is killed with the program.
"""
MAX_REQUEST = 1 << 17
BEGIN_SECONDS = 60.0  # the first has to wait for the imports
PARENT_MILLISECONDS = 5_000  # between two looks whether the parent is still there


class Forked:
    """A process that was forked: as much of `subprocess.Popen` as tests use."""

    def __init__(
        self,
        command: Sequence[str],
        caller: socket.socket,
        stdin: IO[bytes] | None = None,
        stdout: IO[bytes] | None = None,
        stderr: IO[bytes] | None = None,
    ) -> None:
        self.args, self.stdin, self.stdout, self.stderr = command, stdin, stdout, stderr
        self.returncode: int | None = None
        self._caller = caller
        caller.settimeout(BEGIN_SECONDS)
        self.pid = int(caller.recv(MAX_REQUEST))

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended.

        Raises:
            subprocess.TimeoutExpired: it hasn't by then.
        """
        if self.returncode is None:
            self._caller.settimeout(timeout)
            try:
                self.returncode = int(self._caller.recv(MAX_REQUEST))
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._caller.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit code if it has ended, else None."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(timeout=0)
        return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ParserStream:
    """The socket to a forked parser, as a stream of bytes.

    With that of anyio, a callback of the event loop fails if the reader is cancelled just when bytes come.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)  # noqa: FBT003 socket's signature
        self._connected = connected

    async def send(self, item: bytes) -> None:
        view = memoryview(item)
        while view:
            await anyio().wait_writable(self._connected)
            try:
                view = view[self._connected.send(view) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise anyio().BrokenResourceError from error

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        while True:
            await anyio().wait_readable(self._connected)
            try:
                received = self._connected.recv(max_bytes)
            except BlockingIOError:
                continue
            except OSError as error:
                raise anyio().BrokenResourceError from error
            if not received:
                raise anyio().EndOfStream
            return received

    async def aclose(self) -> None:
        anyio().notify_closing(self._connected)
        self._connected.close()


class ForkedParser:
    """A parser process that was forked: as much of `anyio.abc.Process` as `rag.ingest.sandbox` uses."""

    def __init__(self, pid: int, caller: socket.socket, stream: ParserStream) -> None:
        self.pid, self.stdin, self.stdout = pid, stream, stream
        self._caller = caller
        self._code: int | None = None

    @property
    def returncode(self) -> int | None:
        if self._code is None:
            with suppress(BlockingIOError):
                self._code = int(self._caller.recv(MAX_REQUEST) or -signal.SIGKILL)
        return self._code

    async def wait(self) -> int:
        while (code := self.returncode) is None:
            await anyio().wait_readable(self._caller)
        return code

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def aclose(self) -> None:
        await self.stdin.aclose()
        await self.wait()
        self._caller.close()


async def open_parser(command: Sequence[str], **options: Any) -> Any:  # noqa: ANN401 anyio's
    """As `anyio.open_process` for a parser, but that one whose program is `Forks.parser` is forked."""
    _, _, _, program, memory, family, *_ = command
    if not program.startswith("{"):
        return await anyio().open_process(command, **options)
    arguments = json.loads(program)
    arguments["request"]["command"] += [memory, family]
    stream, end = socket.socketpair()
    caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with end:
            _ask_for_parser(caller, end, **arguments)
        await anyio().wait_readable(caller)
        pid = int(caller.recv(MAX_REQUEST))
        return ForkedParser(pid, caller, ParserStream(stream))
    except BaseException:
        caller.close()
        stream.close()
        raise


def _ask_for_parser(
    caller: socket.socket, end: socket.socket, address: str, request: Mapping[str, object]
) -> None:
    caller.connect(address)
    caller.setblocking(False)  # noqa: FBT003 socket's signature
    with Path(os.devnull).open("wb") as nothing:
        streams = [end.fileno(), end.fileno(), nothing.fileno()]
        socket.send_fds(caller, [json.dumps(request).encode()], streams)


def anyio() -> Any:  # noqa: ANN401 a module
    """The package, which the process that forks parsers doesn't have."""
    return importlib.import_module("anyio")


class Anyio:
    """The package where parsers are forked."""

    open_process = staticmethod(open_parser)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 whatever it has
        return getattr(anyio(), name)


def forking_parsers(program: str) -> dict[str, Any]:
    """What the names in `rag.ingest.sandbox.parser_pool` mean where parsers are forked."""
    return {"PROGRAM": program, "anyio": Anyio()}


class Forks:
    """The parent's end. The process starts with the first command, and imports `modules`.

    `parser` is the program that its commands start for parsing, and `server` the installed server with the
    program that they start in its place to try it. A console ingests by the stand-in of refdesk-admin, and
    a server by the one in `readers`, if that is set before it starts.
    """

    readers = ""

    def __init__(
        self,
        environment: Mapping[str, str],
        modules: Sequence[str],
        parser: str = "",
        server: tuple[str, str] | None = None,
    ) -> None:
        self._environment = dict(environment)
        self._modules, self._parser, self._server = modules, parser, server
        self._user = os.geteuid()
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory()
        self._lock = threading.Lock()  # tests run commands at once

    def can_run(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork does the same as a process of its own: libraries read variables at import."""
        same = _read_early(environment).items() <= _read_early(self._environment).items()
        small = len(json.dumps(dict(environment))) < MAX_REQUEST // 2
        return sys.platform == "linux" and same and small and os.geteuid() == self._user

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], timeout_seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` with captured text, and nothing on standard input."""
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as output,
            tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
            Path(os.devnull).open(encoding="utf-8") as nothing,
        ):
            process = Forked(command, self._begun(command, environment, (nothing, output, errors)))
            try:
                code = process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess([*command], code, output.read(), errors.read())

    def listening(self, command: Sequence[str], environment: Mapping[str, str], errors: IO[bytes]) -> Forked:
        """Begin a command that reads nothing and writes only to standard error."""
        with Path(os.devnull).open("r+b") as nothing:
            return Forked(command, self._begun(command, environment, (nothing, nothing, errors)))

    def piped(self, command: Sequence[str], environment: Mapping[str, str]) -> Forked:
        """Begin a command with a pipe at each of its streams."""
        (begin, stdin), (stdout, write), (stderr, tell) = os.pipe(), os.pipe(), os.pipe()
        with os.fdopen(begin, "rb") as in_, os.fdopen(write, "wb") as out, os.fdopen(tell, "wb") as errors:
            caller = self._begun(command, environment, (in_, out, errors))
        return Forked(
            command, caller, os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb"), os.fdopen(stderr, "rb")
        )

    def parser(self) -> str:
        """What stands in place of a parser's program, so that `open_parser` has it forked here."""
        script = Path(self._folder.name, "parse.py")
        script.write_text(PARSE, encoding="utf-8")
        request = {"command": [str(script)], "environment": self._environment, "cwd": "/"}
        return json.dumps({"address": self._listening(), "request": request})

    def stand_in(self, script: str) -> str:
        """The path of a program that can be started in place of an installed script, and lasts as long."""
        fields = {"early": _read_early(self._environment), "late": READ_LATE.pattern}
        return self._program(Path(script).name, STAND_IN, script=script, address=self._address, **fields)

    def host(self, server: str) -> str:
        """The path of a program that does as the installed server for a host, with forks as its desks."""
        desk = self.stand_in(self._program("own/desk", DESK))
        return self._program("own/refdesk", HOST, desk=desk, alone=self.stand_in(server))

    def _program(self, name: str, text: str, **fields: object) -> str:
        path = Path(self._folder.name, name)
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.format(python=sys.executable, **fields), encoding="utf-8")
            path.chmod(0o700)
        return str(path)

    def _begun(
        self, command: Sequence[str], environment: Mapping[str, str], streams: Sequence[IO[Any]]
    ) -> socket.socket:
        """Begin a command; the socket on which its process id comes, and its exit code at the end."""
        request = {"command": command, "environment": dict(environment), "cwd": str(Path.cwd())}
        with self._lock:
            address = self._listening()
        caller = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        caller.connect(address)
        socket.send_fds(caller, [json.dumps(request).encode()], [stream.fileno() for stream in streams])
        return caller

    @property
    def _address(self) -> str:
        return str(Path(self._folder.name, "commands"))

    def _listening(self) -> str:
        if not self._process:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(self._address)
                listener.listen()
                programs = json.dumps([self._parser, self._server, self.readers])
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(listener.fileno()), programs, *self._modules],
                    pass_fds=[listener.fileno()],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
        return self._address

    def begin(self) -> None:
        """Start the process, if that hasn't happened yet."""
        with self._lock:
            self._listening()

    def close(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


def _read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not READ_LATE.match(name)}


def with_stand_in(
    stdio_client: Callable[..., Any], script: str, program: Callable[[], str]
) -> Callable[..., Any]:
    """The SDK's `stdio_client`, but that it starts this program in place of the installed `script`."""

    def client(server: Any, errlog: IO[str] = sys.stderr) -> Any:  # noqa: ANN401 the SDK's types
        command = program() if server.command == script else server.command
        return stdio_client(server.model_copy(update={"command": command}), errlog)

    return client


def load_once() -> Callable[[], None]:
    """Let this process and its forks load once what costs 80 ms of CPU each time; returns what loads it now.

    That is the built-in model, and the certificates of HTTPS, wherever variables say they lie.
    """
    encoder = vars(importlib.import_module("rag.models.text_encoder"))
    http = vars(importlib.import_module("httpcore2"))
    graph, tokenizer = (encoder["BUILTIN_MODEL"] / name for name in ("model.onnx", "tokenizer.json"))
    encoder["opened_model"] = _once(encoder["opened_model"], graph)
    encoder["opened_tokenizer"] = _once(encoder["opened_tokenizer"], tokenizer)
    read_certificates = http["default_ssl_context"]
    trusted = cache(lambda trust_env, *_variables: read_certificates(_trust_env=trust_env))

    def certificates(*, _trust_env: bool = True) -> Any:  # noqa: ANN401 an SSLContext
        return trusted(_trust_env, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))

    http["default_ssl_context"] = certificates

    def load() -> None:
        encoder["opened_model"](graph)
        encoder["opened_tokenizer"](tokenizer)
        certificates()

    return load


def _once(opened: Callable[[Path], Any], path: Path) -> Callable[[Path], Any]:
    """A function that opens this file once, and others each time."""
    once = cache(opened)
    return lambda wanted_path: (once if wanted_path == path else opened)(wanted_path)


def _serve(listener: socket.socket) -> None:
    """Fork for each request; the child that is to run the command returns."""
    for name in sys.argv[3:]:
        importlib.import_module(name)
    parser, server, readers = json.loads(sys.argv[2])
    if parser:
        vars(importlib.import_module("rag.ingest.sandbox.parser_pool")).update(forking_parsers(parser))
    if server:
        check = vars(importlib.import_module("rag.admin.connect.connect_check"))
        check["stdio_client"] = with_stand_in(check["stdio_client"], server[0], lambda: server[1])
        console = vars(importlib.import_module("rag.admin.web.console_state"))
        stand_ins = str(Path(listener.getsockname()).parent)
        console["sysconfig"] = SimpleNamespace(get_path=lambda _: stand_ins)
    if readers:
        vars(importlib.import_module("server.intake"))["sysconfig"] = SimpleNamespace(
            get_path=lambda _: readers
        )
    warnings.filterwarnings("ignore", "lancedb fork support")  # nothing of it runs at the fork
    os.fsync = lambda fd: None  # noqa: ARG005 no test cuts the power; most of the time of small runs
    if set(SEARCHING) <= set(sys.argv[3:]):
        load_once()()
        importlib.import_module("rag.ingest.document_languages").language_identifier()
    if set(PARSER) <= set(sys.argv[3:]):
        _prepare_parsing()
    _compute_once()
    gc.freeze()  # else each child copies what its collector looks at
    _fork_on_request(listener)


def _compute_once() -> None:
    """Call our functions whose only result each process computes once, for up to 120 ms of CPU."""
    for name, module in [*sys.modules.items()]:
        if name.startswith(("rag.", "server.")):
            for function in [*vars(module).values()]:
                if hasattr(function, "cache_info") and not inspect.signature(function).parameters:
                    function()


def _fork_on_request(listener: socket.socket) -> None:
    """Return in each child, as the command that was asked for. Kill the commands whose callers are gone."""
    parent = os.getppid()
    running: dict[int, tuple[int, socket.socket]] = {}  # commands and their callers, by a descriptor
    while os.getppid() == parent:
        ready = _ready(listener, running)
        for process in ready & running.keys():
            _tell_end(process, *running.pop(process))
        for pid, caller in running.values():
            if caller.fileno() in ready:
                os.kill(pid, signal.SIGKILL)
        if listener.fileno() in ready:
            caller, _ = listener.accept()
            message, streams, _, _ = socket.recv_fds(caller, MAX_REQUEST, 3)
            if not (pid := os.fork()):
                for end in (listener, caller, *(its_caller for _, its_caller in running.values())):
                    end.close()
                return _become(json.loads(message), streams)
            for descriptor in streams:
                os.close(descriptor)
            with suppress(ConnectionError):
                caller.sendall(str(pid).encode())
            running[os.pidfd_open(pid)] = pid, caller
    os._exit(0)


def _prepare_parsing() -> None:
    """Do what each parser process does first, for 80 ms of CPU or more, except to confine itself."""
    for module in PARSED:
        sys.modules["rag.ingest.sandbox.parser_child"].import_lazy_modules(f"rag.ingest.parse.{module}")
    sys.modules["rag.ingest.parse.parsers"].prepare("")


def _ready(listener: socket.socket, running: Mapping[int, tuple[int, socket.socket]]) -> set[int]:
    """The descriptors of commands that ended and of callers that are gone, and the listener's for a call."""
    events = select.poll()
    for descriptor in (listener.fileno(), *running):
        events.register(descriptor, select.POLLIN)
    for _, caller in running.values():
        events.register(caller, 0)  # its end alone
    return {descriptor for descriptor, _ in events.poll(PARENT_MILLISECONDS)}


def _tell_end(process: int, pid: int, caller: socket.socket) -> None:
    with caller, suppress(ConnectionError):
        caller.sendall(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
    os.close(process)


def _become(request: dict[str, Any], streams: Sequence[int]) -> None:
    """Take over the arguments, the environment, the folder and the streams of a command."""
    _show(request["command"])
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
        os.close(stream)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for module in sys.modules.keys() & {"server", "server.stdio"}:
        vars(sys.modules[module])["PARENT"] = os.getppid()  # noted at their import, in another process
    tempfile.tempdir = None  # as TMPDIR says now
    encoding, _, handling = os.environ.get("PYTHONIOENCODING", "").partition(":")
    stdout = os.fdopen(1, "w", 1 if os.isatty(1) else -1, encoding or None, handling or None, closefd=False)
    stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    vars(sys).update(stdout=stdout, __stdout__=stdout, stderr=stderr)  # the former streams began on files
    sys.argv = request["command"]
    if Path(sys.argv[0]).name == "refdesk" and not {"--http", "--alone"} & {*sys.argv}:
        sys.argv.append("--alone")


def _show(command: Sequence[str]) -> None:
    """Have the system list this process with its command, which takes the place of its parent's."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    begin, end = map(int, fields[45:47])
    title = "\0".join(command).encode(errors="surrogateescape")
    ctypes.memset(begin, 0, end - begin)
    ctypes.memmove(begin, title, min(len(title), end - begin - 1))


def _run_script() -> int:
    """Run the script that argv names, to the end of its process but for freeing all memory."""
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    else:
        code = 0
    atexit._run_exitfuncs()  # noqa: SLF001 there is no other way to them
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else bool(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        _serve(listening)
    os._exit(_run_script())
