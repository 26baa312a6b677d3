"""What tests in several folders share: the installed scripts, a desk with the demo corpus, and servers."""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import psutil
import pytest
from filelock import FileLock
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

import rag.admin.main
from rag.ingest.sandbox import parser_pool as sandbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from tests.bucket import ObjectStore
    from tests.endpoint import Endpoint, Site
    from tests.forks import Forked, Forks
    from tests.snapshots import Snapshots


FilledOnce: TypeAlias = "Callable[[str, Callable[[Path], object]], tuple[Path, Any]]"

sys.dont_write_bytecode = False  # else each worker rewrites the assertions of all files anew, for 5 s of CPU
# More: pytest tests/filters --hypothesis-profile=nightly (100 examples each), =thorough or =million.
settings.register_profile("quick", max_examples=10, deadline=None)  # no test fails by the clock
settings.register_profile("nightly", max_examples=100, deadline=None, print_blob=True)
settings.register_profile("thorough", max_examples=5_000, deadline=None, print_blob=True)
settings.register_profile("million", max_examples=100_000, deadline=None, print_blob=True)
settings.load_profile("quick")  # --hypothesis-profile is read later, and wins
NIGHTLY_EXAMPLES = 100

MEMORY_DISK = Path("/dev/shm")  # noqa: S108 pytest makes a folder of this user's own in it
MEMORY_BYTES = 8 << 30  # several times what lies there at once

CHECKING = {"connect", "demo", "doctor"}
"""The commands that start a server and ask it."""

WHOLLY_SLOW = re.compile(r"^pytestmark = (?:.*\n )*.*\bpytest\.mark\.slow\b", re.MULTILINE)


@cache
def _is_slow(path: Path) -> bool:
    """Whether all tests of a file, or of a folder, are marked as slow, by what the files say."""
    if path.is_dir():
        files = [*path.rglob("test_*.py")]
        return bool(files) and all(map(_is_slow, files))
    return path.name.startswith("test_") and WHOLLY_SLOW.search(path.read_text(encoding="utf-8")) is not None


def pytest_configure() -> None:
    """Let programs that a test starts be interrupted, and tests write to memory where there is plenty.

    What runs in a shell's background ignores Ctrl-C, and so does what it starts.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _has_room(MEMORY_DISK):
        tempfile.tempdir = str(MEMORY_DISK)  # pytest's folders lie there, too


def _has_room(disk: Path) -> bool:
    """Whether all data folders of a run fit on a disk in memory, and programs in them can be run."""
    if not os.access(disk, os.W_OK) or psutil.virtual_memory().available < MEMORY_BYTES:
        return False
    status = os.statvfs(disk)
    return not status.f_flag & os.ST_NOEXEC and status.f_bavail * status.f_frsize >= MEMORY_BYTES


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Don't even import what is slow where it isn't wanted: that takes as long as a folder's tests."""
    return (config.option.markexpr == "not slow" and _is_slow(collection_path)) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage among ten thousand tests: they stay, and each look at them takes 0.2 s."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)  # before those are left out that -m doesn't want
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    by_day = settings.default.max_examples < NIGHTLY_EXAMPLES  # type: ignore[union-attr]  # there always is one
    nightly = pytest.mark.skip(reason="runs each night, with --hypothesis-profile=nightly")
    for item in items:
        if by_day and item.get_closest_marker("nightly"):
            item.add_marker(nightly)
        if "in_linear_time" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: not _is_slow(item.path))  # at the end, short files keep all workers busy


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:  # noqa: ANN401 the plugin's own
    """Each file runs in one process, in the order above: module fixtures are made once."""
    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


HANGS_SECONDS = 300  # for what takes ten on an idle machine


@dataclass(frozen=True, slots=True)
class Scripts:
    """The installed console scripts, run in an environment without settings of the machine's owner.

    `forks` runs refdesk-admin and `server_forks` the server, each from a process that has its imports. With a
    `store`, servers read copies in it: `copied` has their addresses by data folder.
    """

    folder: Path
    home: Path
    sockets: Path
    forks: Forks
    server_forks: Forks
    store: ObjectStore | None = field(default=None, compare=False)
    copied: dict[Path, str] = field(default_factory=dict, compare=False)
    copying: threading.Lock = field(default_factory=threading.Lock, compare=False)

    @property
    def server(self) -> str:
        return str(self.folder / "refdesk")

    @property
    def forked_server(self) -> str:
        """A program that runs the server in a fork, for clients that must start it themselves.

        With the variable BRIDGED it is the server itself, which the clients of a data folder share.
        """
        if "BRIDGED" in os.environ:
            return self.server
        self.server_forks.begin()
        return self.server_forks.stand_in(self.server)

    @property
    def sharing_server(self) -> str:
        """A program that does as the server does for a host. The desks that it starts are forked."""
        self.server_forks.begin()
        return self.server_forks.host(self.server)

    @property
    def forked_admin(self) -> str:
        """A program that runs refdesk-admin in a fork, for tests that need its process or its end."""
        self.forks.begin()
        return self.forks.stand_in(str(self.folder / "refdesk-admin"))

    @property
    def environment(self) -> dict[str, str]:
        return _environment(self.home, self.sockets)

    @contextmanager
    def process(self, *command: str | Path, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
        """A program whose output is read. One that hangs is killed, and its test fails."""
        with subprocess.Popen(
            command, cwd=cwd, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            killer = threading.Timer(HANGS_SECONDS, process.kill)
            killer.start()
            try:
                yield process
            finally:
                killer.cancel()
                process.kill()

    def desks(self, environment: Mapping[str, str] | None = None) -> list[psutil.Process]:
        """The desks that hosts in this environment share."""
        folder = (environment or self.environment)["XDG_RUNTIME_DIR"]
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if any(f"desk of {folder}/" in word for word in process.info["cmdline"] or ())
            and "-IS" not in process.info["cmdline"]  # which waits for a fork
            and process.status() != psutil.STATUS_ZOMBIE
        ]

    def admin(
        self, *arguments: str | Path, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run refdesk-admin to its end, forked from a process with its imports where that is the same.

        What it does to a data folder that servers read in a bucket is done in the bucket.
        """
        return self._admin(arguments, self._there(arguments) | (env or {}))

    def _there(self, arguments: Sequence[str | Path]) -> dict[str, str]:
        """What a command needs beside its data folder, if the desk has moved to a bucket."""
        moved = self.copied.keys() & {argument for argument in arguments if isinstance(argument, Path)}
        return self.serving(next(iter(moved))) if moved and "storage" not in arguments else {}

    def serving(self, data: Path) -> dict[str, str]:
        """What a server on this data folder needs beside it: with a store, the bucket it has moved to."""
        if not self.store or not (data / "tables").exists():
            return {}
        with self.copying:
            if data not in self.copied:
                self.copied[data] = f"s3://{self.store.bucket}/{len(self.copied)}"
                self._copy(data)
        uri = self.copied[data]
        at_once = {"REFDESK_STORAGE_URI": uri, "REFDESK_STORAGE_CONSISTENCY_SECONDS": "0"}
        return self.store.environment | at_once

    def _copy(self, data: Path) -> None:
        assert self.store
        to = ("storage", "copy", "--to", self.copied[data], "--data", data)
        copied = self._admin(to, self.store.environment)
        assert copied.returncode == 0, copied.stderr

    def _admin(
        self, arguments: Sequence[str | Path], env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        if CHECKING & {*arguments}:
            self.server_forks.begin()  # else the command starts a server with imports of its own
        return self._run(self.forks, [self.folder / "refdesk-admin", *arguments], env)

    def serve(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the server, with nothing on its standard input, to its end. It is forked as commands are."""
        return self._run(self.server_forks, [self.server, *arguments], env or {})

    def begin(self, *arguments: str | Path) -> subprocess.Popen[bytes] | Forked:
        """Begin a refdesk-admin of which nothing is read. It is forked as others are."""
        command, quiet = [str(self.folder / "refdesk-admin"), *map(str, arguments)], subprocess.DEVNULL
        environment = self.environment | self._there(arguments)
        if not self.forks.can_run(environment):
            return subprocess.Popen(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet)
        with Path(os.devnull).open("wb") as nothing:
            return self.forks.listening(command, environment, nothing)

    def _run(
        self, forks: Forks, command_line: Sequence[str | Path], env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        command, environment = [*map(str, command_line)], self.environment | {**env}
        if forks.can_run(environment):
            return forks.run(command, environment, timeout_seconds=300)
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture(scope="session", autouse=True)
def parser() -> Iterator[str]:
    """Let parser processes be forked from one with their imports, which is ten times cheaper.

    What is imported for a family of parsers, and all that confines the process, comes after the fork.
    """
    if sys.platform != "linux":
        yield sandbox.PROGRAM
        return
    forks = _beside("forks")
    forks.load_once()
    environment = {name: os.environ[name] for name in sandbox.KEPT if name in os.environ}
    with (
        closing(forks.Forks(environment | sandbox.ONE_THREAD, forks.PARSER)) as parsers,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in forks.forking_parsers(parsers.parser()).items():
            patch.setattr(sandbox, name, value)
        yield sandbox.PROGRAM


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory, parser: str) -> Iterator[Scripts]:
    home = tmp_path_factory.mktemp("home")
    sockets = Path(tempfile.mkdtemp(prefix="refdesk", dir="/tmp"))
    forks, environment = _beside("forks"), _environment(home, sockets)
    folder = Path(sysconfig.get_path("scripts"))
    script = str(folder / "refdesk")
    commands = {f"rag.admin.{module}" for module, _ in rag.admin.main.COMMANDS.values()}
    with (
        closing(forks.Forks(environment, forks.SERVER)) as server,
        closing(
            forks.Forks(environment, [*forks.ADMIN, *commands], parser, (script, server.stand_in(script)))
        ) as admin,
        ExitStack() as stack,
    ):
        store = stack.enter_context(_beside("bucket").object_store()) if "IN_BUCKET" in os.environ else None
        server.readers = str(Path(admin.stand_in(str(folder / "refdesk-admin"))).parent)  # and for consoles
        scripts = Scripts(folder, home, sockets, admin, server, store)
        yield scripts
        for desk in scripts.desks():
            with suppress(psutil.NoSuchProcess):
                desk.kill()
        shutil.rmtree(sockets)


def _environment(home: Path, sockets: Path) -> dict[str, str]:
    # pytest sets another PYTEST_CURRENT_TEST for each test, and our code variables of the libraries that it
    # imports: a command that was started with those could not be forked (Forks.can_run).
    ours = ("REFDESK_", "PYTEST_", "ORT_DISABLE_TELEMETRY", "RAY_USAGE_STATS_ENABLED")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    folders = {"XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home), "XDG_RUNTIME_DIR": str(sockets)}
    return environment | folders


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The demo corpus: seventeen documents about the measuring of time."""
    return Path(rag.admin.__file__).parent / "demo_corpus"


@pytest.fixture(scope="session")
def filled_once(tmp_path_factory: pytest.TempPathFactory) -> FilledOnce:
    """A folder by its name, which one process fills for all to read, and in JSON what filling it gave."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent  # of all processes

    def folder(name: str, fill: Callable[[Path], object]) -> tuple[Path, Any]:
        result = shared / f"{name}.filled"
        with FileLock(shared / f"{name}.lock"):
            if not result.exists():
                result.write_text(json.dumps(fill(shared / name)))
        return shared / name, json.loads(result.read_text())

    return folder


@pytest.fixture(scope="session")
def clock_room(scripts: Scripts, corpus: Path, filled_once: FilledOnce) -> Path:
    """A data folder with the demo corpus in it. Only for reading."""

    def fill(data: Path) -> None:
        run = scripts.admin("ingest", corpus, "--data", data)
        assert run.returncode == 0, run.stderr

    data, _ = filled_once("clock-room", fill)
    return data


@pytest.fixture(scope="session")
def judged() -> Path:
    """Judged sets and real documents that lie beside the checkout on the project's own machines."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the judged sets are not on this machine (../shared/data)")
    return folder


@pytest.fixture(scope="session")
def small_desk() -> ModuleType:
    """tests/small_desk.py as a module: an embedder that only counts words, and writers that use it."""
    return _beside("small_desk")


@pytest.fixture(scope="session")
def services() -> ModuleType:
    """tests/lancedb_service.py as a module."""
    return _beside("lancedb_service")


@pytest.fixture(scope="session")
def foreign() -> ModuleType:
    """tests/foreign.py as a module: LanceDB tables that others write."""
    return _beside("foreign")


@pytest.fixture(scope="session")
def chats() -> ModuleType:
    """tests/chats.py as a module: what a chat model can answer, and what it was asked."""
    return _beside("chats")


@pytest.fixture(scope="session")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Snapshots:
    """What tests of this process put into data folders, to be copied where others put the same."""
    shared: Snapshots = _beside("snapshots").Snapshots(tmp_path_factory.mktemp("snapshots"))
    return shared


@pytest.fixture(scope="session")
def hubs() -> ModuleType:
    """tests/hub.py as a module: a model hub on loopback."""
    return _beside("hub")


@pytest.fixture(scope="session")
def endpoints() -> ModuleType:
    """tests/endpoint.py as a module: models' endpoints, on a port that the test chooses."""
    return _beside("endpoint")


@pytest.fixture(scope="session")
def buckets() -> ModuleType:
    """tests/bucket.py as a module: object stores on loopback."""
    return _beside("bucket")


@pytest.fixture
def object_store(buckets: ModuleType) -> Iterator[ObjectStore]:
    """An object store that the test can break."""
    with buckets.object_store() as served:
        yield served


def _endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    """An endpoint that runs and is told by the test what to answer; it is asked again at once."""
    monkeypatch.setattr("rag.models.endpoint.FIRST_DELAY", 0.001)
    with _beside("endpoint").running() as server:
        yield server


@pytest.fixture
def site() -> Iterator[Site]:
    """A web site that the test fills."""
    endpoints = _beside("endpoint")
    with endpoints.serving(endpoints.Site()) as server:
        yield server


provider = pytest.fixture(_endpoint)
stranger = pytest.fixture(_endpoint)
chat_server = pytest.fixture(_endpoint)
rerank_server = pytest.fixture(_endpoint)


@cache
def _beside(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def plain_folder(small_desk: ModuleType, tmp_path: Path) -> Iterator[Path]:
    """A folder in which permissions count."""
    with small_desk.without_rights(tmp_path) as folder:
        yield folder


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A disk of its own, which a test can fill to the last byte."""

    folder: Path

    def fill(self) -> None:
        """Take all room that is left."""
        with (self.folder / "filling").open("ab", buffering=0) as filling:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while True:
                        filling.write(bytes(size))

    def empty(self) -> None:
        """Give it back."""
        (self.folder / "filling").unlink()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 16 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not (mount := shutil.which("mount")):
        pytest.skip("there is no command mount: a full disk needs one")
    mounted = subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"a full disk needs a mount, for which one must be root: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def in_linear_time() -> Iterator[None]:
    """Interrupt a test after five seconds of CPU: what it does takes at most one, or by mistake minutes."""

    def interrupt(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, interrupt)
    signal.setitimer(signal.ITIMER_PROF, 5)  # however busy the machine is
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.fixture(scope="session")
def lines_run() -> Callable[[Callable[[], object]], int]:
    """Counts the lines of Python that a function runs, which is the same on each machine."""

    def count(function: Callable[[], object]) -> int:
        lines, before = 0, sys.gettrace()

        def trace(*_: object) -> Any:  # noqa: ANN401 itself
            nonlocal lines
            lines += 1
            return trace

        sys.settrace(trace)
        try:
            function()
        finally:
            sys.settrace(before)
        return lines

    return count


@pytest.fixture
def anyio_backend() -> str:
    """Asynchronous tests run on asyncio, which LanceDB needs."""
    return "asyncio"
