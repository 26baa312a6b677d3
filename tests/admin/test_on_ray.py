"""Ingestion on a Ray cluster: the same rows as on one machine, whatever dies. Needs refdesk[ray]."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from zipfile import ZipFile

import anyio.to_thread
import lancedb
import numpy as np
import psutil
import pytest

import rag.ingest.ray_cluster
from rag.config.model_settings import EmbedderOptions, EmbedderSettings
from rag.corpus import EmbedderIdentity
from rag.errors import ConfigurationError
from rag.ingest.ray_cluster import Model, _place, _preparation, _start_error, _vectors
from rag.models.embed import open_embedder
from rag.runtime import install_command
from rag.store.write.table_rows import Derived, NewSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rag.corpus import Collection, Language
    from rag.models.embed import Embedder
    from tests.admin.conftest import Inside
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="needs pip install 'refdesk[ray]'")
NO_CONNECTION = "Ray gets no connection to ray://{}. Name the head's port"
OTHER_VERSION = "has another version of Ray or Python than this machine"
NO_ADDRESS = "takes local or an address like ray://head.example:10001, not {}"
ALONE = "--on can't be combined with --estimate, --dry-run, --watch or --gentle"
TOKEN = "c" * 64
SECONDS = 240
DIFFERS = {"generation", "ingested_at"}  # in any two runs
NO_PORT = 9
COPIED = ("glossary.txt", "gps-time.md", "leap-seconds.csv", "railway-time.html", "the-longitude-problem.pdf")
SETTINGS = {"REFDESK_ACCESS_OF_DOCUMENTS": "true"}


def _without_sample(row: dict[str, Any]) -> dict[str, Any]:
    """A row without what a sample of the passages says, which goes by the order of the rows."""
    if "definition" not in row:
        return row
    definition = json.loads(row["definition"])
    definition.pop("calibration", None)
    return row | {"definition": definition}


def rows_after_another_run(scripts: Scripts, shelf: Path, data: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables, once a run on this machine has gone on where another one ended."""
    again = subprocess.run(
        command(scripts, shelf, "--archives", "--data", data),
        env=scripts.environment | SETTINGS,
        check=False,
        capture_output=True,
    )
    assert again.returncode == 3
    return rows(data)


def rows(data: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of all tables, by id, without what differs in any two runs."""
    database = lancedb.connect(data / "tables")
    return {
        name: sorted(
            (
                {key: value for key, value in _without_sample(row).items() if key not in DIFFERS}
                for row in database.open_table(name).to_arrow().to_pylist()
            ),
            key=lambda row: str(row.get("id")),
        )
        for name in database.list_tables().tables
    }


@dataclass(frozen=True, slots=True)
class Ray:
    """A cluster of this machine, as others see it."""

    address: str
    environment: dict[str, str]
    add_node: Callable[[], subprocess.Popen[bytes]]


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with all that it started, which is in its group or below it."""
    with suppress(psutil.NoSuchProcess):
        below = psutil.Process(process.pid).children(recursive=True)
        for child in below:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.kill()
    process.wait()


@contextmanager
def cluster(home: Path) -> Iterator[Ray]:
    """A head with two processors; further nodes have one each."""
    port, for_clients, *_ = free_ports(2)
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # the names of sockets must be short
    environment = os.environ | {"HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN}
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        log = Path(folder, f"{len(started)}.log")
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        with log.open("wb") as opened:
            started.append(
                subprocess.Popen([*command, *arguments], stdout=opened, stderr=opened, env=environment)
            )
        give_up = time.monotonic() + SECONDS
        while b"Ray runtime started" not in log.read_bytes():
            assert time.monotonic() < give_up, log.read_text()
            assert started[-1].poll() is None, log.read_text()
            time.sleep(0.2)
        return started[-1]

    ports = (f"--port={port}", f"--ray-client-server-port={for_clients}", "--min-worker-port=0")
    head = ("--head", "--num-cpus=2", "--include-dashboard=false", f"--temp-dir={folder}")
    try:
        start(*head, *ports, "--max-worker-port=0")
        yield Ray(
            f"ray://127.0.0.1:{for_clients}",
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN},
            lambda: start(f"--address=127.0.0.1:{port}", "--num-cpus=1"),
        )
    finally:
        for process in reversed(started):
            end(process)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    with cluster(tmp_path_factory.mktemp("home")) as ray:
        yield ray


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory, corpus: Path) -> Path:
    """Documents of many kinds: with attachments, with rights, without text, damaged, twice."""
    folder = tmp_path_factory.mktemp("shelf") / "docs"
    folder.mkdir()
    for name in COPIED:
        shutil.copy(corpus / name, folder)
    (folder / "empty.md").write_text("\n")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing")
    (folder / "again.txt").write_bytes((folder / "glossary.txt").read_bytes())
    (folder / "secret.md").write_text("# Secret\n\nThe key is under the mat.\n")
    (folder / "secret.md.meta.toml").write_text('visibility = "restricted"\nallow = ["group:smiths"]\n')
    with ZipFile(folder / "june.zip", "w") as archive:
        archive.writestr("inside.md", "# Inside\n\nA clock in an archive.\n")
        archive.writestr("deeper/table.csv", "name,year\nHarrison,1761\n")
    for number in range(12):
        text = f"Clock {number} strikes {number} times, and then it rests.\n\n" * 60
        (folder / f"{number}.md").write_text(f"# Clock {number}\n\n{text}")
    return folder


@pytest.fixture(scope="module")
def alone(scripts: Scripts, shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in which the shelf was ingested on one machine, and beside it one before that."""
    data = tmp_path_factory.mktemp("alone") / "data"
    created = scripts.admin("collection", "create", "documents", "--data", data, env=SETTINGS)
    assert created.returncode == 0, created.stderr
    shutil.copytree(data, data.with_name("before"))  # its key makes the ids
    run = scripts.admin("ingest", shelf, "--archives", "--data", data, env=SETTINGS)
    assert run.returncode == 3, run.stderr  # the broken one
    return data


@pytest.fixture
def begun(alone: Path, tmp_path: Path) -> Path:
    """A data folder of the same desk, with nothing in it."""
    return Path(shutil.copytree(alone.with_name("before"), tmp_path / "data"))


@pytest.mark.nightly
@needs_ray
def test_rows_ids_and_rights_are_those_of_a_run_on_one_machine(
    scripts: Scripts, ray: Ray, shelf: Path, alone: Path, begun: Path
) -> None:
    assert rows(begun) != rows(alone)

    def run() -> Any:  # noqa: ANN401 JSON
        on = ("--archives", "--data", begun, "--on", ray.address, "--json")
        environment = scripts.environment | ray.environment | SETTINGS
        process = subprocess.run(
            command(scripts, shelf, *on), env=environment, check=False, capture_output=True, text=True
        )
        assert process.returncode == 3, process.stderr
        return json.loads(process.stdout)

    report = run()
    assert report["counts"]["added"] == 21
    assert report["counts"]["skipped"] == 1
    assert rows(begun) == rows(alone)
    assert run()["counts"]["unchanged"] == 21


def command(scripts: Scripts, *arguments: str | Path) -> list[str]:
    return [str(scripts.folder / "refdesk-admin"), "ingest", *map(str, arguments)]


@contextmanager
def busy(
    scripts: Scripts, *arguments: str | Path, env: dict[str, str]
) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    """A run, and a worker that is working for it."""
    run = subprocess.Popen(
        command(scripts, *arguments, "--archives"),
        env=scripts.environment | SETTINGS | env,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield run, a_worker()
    finally:
        with suppress(psutil.NoSuchProcess):
            run.kill()
        run.communicate()


def a_worker(*, but: frozenset[int] = frozenset()) -> psutil.Process:
    """A worker of Ray that is working now."""
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess, IndexError):
                if (
                    process.cmdline()[0].startswith(("ray::_chunk", "ray::_vectors"))
                    and process.pid not in but
                ):
                    return process
        time.sleep(0.01)
    raise AssertionError("no worker of Ray works")


@pytest.mark.nightly
@needs_ray
def test_a_killed_worker_costs_only_what_it_was_doing(
    scripts: Scripts, ray: Ray, shelf: Path, alone: Path, begun: Path
) -> None:
    with busy(scripts, shelf, "--data", begun, "--on", ray.address, env=ray.environment) as (run, worker):
        worker.kill()
        with suppress(psutil.NoSuchProcess):
            a_worker(but=frozenset({worker.pid})).kill()
        _, errors = run.communicate(timeout=SECONDS)
        assert run.returncode == 3, errors
    assert rows(begun) == rows(alone)


@pytest.mark.nightly
@needs_ray
def test_a_lost_node_costs_only_what_it_was_doing(
    scripts: Scripts, ray: Ray, shelf: Path, alone: Path, begun: Path
) -> None:
    node = ray.add_node()
    with busy(scripts, shelf, "--data", begun, "--on", ray.address, env=ray.environment) as (run, _):
        end(node)
        _, errors = run.communicate(timeout=SECONDS)
        assert run.returncode == 3, errors
    assert rows(begun) == rows(alone)


@pytest.mark.nightly
@needs_ray
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_leaves_no_process_and_the_next_one_finishes_its_work(
    scripts: Scripts, shelf: Path, alone: Path, begun: Path, by: signal.Signals
) -> None:
    with busy(scripts, shelf, "--data", begun, "--on", "local", env={}) as (run, _):
        started = psutil.Process(run.pid).children(recursive=True)
        assert len(started) > 3
        run.send_signal(by)
        _, errors = run.communicate(timeout=SECONDS)
        assert run.returncode == (130 if by == signal.SIGINT else -by), errors
        assert not psutil.wait_procs(started, timeout=SECONDS)[1]
    assert rows_after_another_run(scripts, shelf, begun) == rows(alone)


@pytest.mark.nightly
@needs_ray
@pytest.mark.parametrize("part", ["gcs_server", "raylet", "python"])
def test_a_cluster_that_dies_ends_the_run_in_our_words_and_the_next_one_finishes_its_work(
    scripts: Scripts, shelf: Path, alone: Path, begun: Path, part: str
) -> None:
    with busy(scripts, shelf, "--data", begun, "--on", "local", env={}) as (run, _):
        parts = psutil.Process(run.pid).children(recursive=True)
        next(process for process in parts if process.name().startswith(part)).kill()
        _, errors = run.communicate(timeout=SECONDS)
        assert run.returncode == 1, errors
        assert "refdesk-admin: The Ray cluster failed (" in errors.splitlines()[-1]
        assert not psutil.wait_procs(parts, timeout=SECONDS)[1]
    assert rows_after_another_run(scripts, shelf, begun) == rows(alone)


@pytest.mark.nightly
@needs_ray
def test_a_cluster_that_is_not_there_is_said_and_nothing_is_made(scripts: Scripts, tmp_path: Path) -> None:
    (tmp_path / "n.md").write_text("# Note\n")
    on = ("--data", tmp_path / "data", "--on", f"ray://127.0.0.1:{NO_PORT}")
    run = subprocess.run(
        command(scripts, tmp_path / "n.md", *on),
        env=scripts.environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 2
    assert NO_CONNECTION.format(f"127.0.0.1:{NO_PORT}") in run.stderr
    assert "RAY_AUTH_MODE=token" in run.stderr
    assert not (tmp_path / "data").exists()


class FakeRay:
    """Ray without processes: tasks run here, one after another, and everything is pickled as it would be."""

    __version__ = "2.60.0"

    class Error(Exception):
        pass

    class DiedError(Error):
        pass

    exceptions = SimpleNamespace(RayError=Error, WorkerCrashedError=DiedError, OutOfMemoryError=DiedError)

    def __init__(self) -> None:
        self.given: list[bytes] = []
        self.inits: list[tuple[object, ...]] = []
        self.fails: Callable[[str, tuple[Any, ...]], Exception | None] = lambda _name, _arguments: None
        self.resources: Callable[[], object] = lambda: {"CPU": 3.0, "memory": 1.0}
        self._lock = Lock()
        self._pool = ThreadPoolExecutor()

    def init(self, address: str, **options: object) -> None:
        self.inits.append((address, options))
        if address.startswith("ray://old"):
            raise RuntimeError("Version mismatch: the cluster was started with other ones.")
        if address.startswith("ray://"):
            raise ConnectionError("ray client connection timeout")

    def shutdown(self) -> None:
        self.inits.append(("down",))

    def cluster_resources(self) -> object:
        return self.resources()

    def remote(self, **options: object) -> Callable[[Callable[..., object]], SimpleNamespace]:
        assert options == {"num_cpus": 1, "max_retries": 3}
        return lambda work: SimpleNamespace(
            remote=lambda *arguments: SimpleNamespace(
                future=lambda: self._pool.submit(self.get, (work, arguments))
            )
        )

    def get(self, task: tuple[Callable[..., object], tuple[object, ...]]) -> object:
        work, arguments = task
        sent = pickle.dumps((work, arguments))
        with self._lock:
            self.given.append(sent)
            if error := self.fails(work.__name__, arguments):
                raise error
            work_there, received = pickle.loads(sent)  # noqa: S301 our own
            return pickle.loads(pickle.dumps(work_there(*received)))  # noqa: S301 the same


@pytest.fixture
def fake_ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(rag.ingest.ray_cluster, "_own_cluster", partial(nullcontext, "local"))
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with closed_places():
        yield ray
    for name in ("RAY_USAGE_STATS_ENABLED", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        os.environ.pop(name, None)


@contextmanager
def closed_places() -> Iterator[None]:
    """Close what workers keep open, as their end does."""
    opened: list[ExitStack] = []
    original = vars(rag.ingest.ray_cluster)["_Place"]

    def noted(embedder: object, portal: object, stack: ExitStack) -> object:
        opened.append(stack)
        return original(embedder, portal, stack)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rag.ingest.ray_cluster, "_Place", noted)
        yield
    for cache in (_place, _preparation):
        cache.cache_clear()
    for stack in opened:
        stack.close()


def test_what_goes_to_a_cluster_and_back_makes_the_same_rows(
    inside: Inside, fake_ray: FakeRay, shelf: Path, alone: Path, begun: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFDESK_ACCESS_OF_DOCUMENTS", "true")
    here = replace(inside, data=begun)
    run = here.run("ingest", shelf, "--archives", "--on", "local", code=3)
    assert "21 added" in run.stdout
    assert rows(begun) == rows(alone)
    works = {pickle.loads(call)[0].__name__ for call in fake_ray.given}  # noqa: S301 our own
    assert works == {"_start_error", "_chunk", "_vectors"}
    assert fake_ray.inits[0][0] == "local"
    assert fake_ray.inits[-1] == ("down",)


@pytest.mark.usefixtures("fake_ray")
def test_workers_also_look_for_words_flags_and_marks(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positive control: words by the rules of another language are looked for again where rows are stored."""
    (tmp_path / "n.md").write_text("# Note\n\nIt ticks.\n")
    of, languages = Derived.of, ["English", "German"]

    def by_a_worker(new: NewSource, collection: Collection) -> Derived:
        return replace(of(new, collection), terms=["marked"], language=cast("Language", languages[0]))

    monkeypatch.setattr(Derived, "of", by_a_worker)
    run = partial(inside.run, "ingest", tmp_path / "n.md", "--on", "local")
    terms = []
    for _ in (1, 2):
        run("--collection", languages[0].lower())
        tables = rows(inside.data)
        (name,) = (name for name in tables if languages[0].lower() in name and "chunks" in name)
        terms.append(tables[name][0]["terms"])
        languages.reverse()
    assert terms == ["marked", "note note it tick n"]


@pytest.mark.parametrize("seconds", ["SILENT_SECONDS", "IDLE_SECONDS"])
def test_a_cluster_that_is_silent_or_has_no_processor_any_more_ends_the_run(
    inside: Inside, fake_ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: str
) -> None:
    (tmp_path / "n.md").write_text("# Note\n\nIt ticks.\n")
    never = Event()

    def fails(work: str, _arguments: tuple[Any, ...]) -> None:
        if work == "_chunk":
            fake_ray.resources = never.wait if seconds == "SILENT_SECONDS" else dict
            never.wait(SECONDS)

    fake_ray.fails = fails
    monkeypatch.setattr(rag.ingest.ray_cluster, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(rag.ingest.ray_cluster, seconds, 0.1)
    try:
        run = inside.run("ingest", tmp_path / "n.md", "--on", "local", code=1)
    finally:
        never.set()
    assert "The Ray cluster failed (" in run.stderr
    assert not inside.json("status")["collections"]


def test_a_document_over_which_workers_die_is_skipped_and_the_others_come_in(
    inside: Inside, fake_ray: FakeRay, tmp_path: Path
) -> None:
    for name in ("good", "deadly", "fine"):
        (tmp_path / f"{name}.md").write_text(f"# A {name} clock\n\nIt ticks.\n")

    def deadly(work: str, arguments: tuple[Any, ...]) -> Exception | None:
        dies = work == "_chunk" and b"deadly" in arguments[2].data
        return FakeRay.DiedError() if dies else None

    fake_ray.fails = deadly
    paths = [tmp_path / f"{name}.md" for name in ("good", "deadly", "fine")]
    run = inside.run("ingest", *paths, "--on", "local", code=3)
    assert "4 workers of the cluster died over it" in run.stderr
    assert sorted(inside.paths()) == ["fine.md", "good.md"]


@pytest.mark.parametrize("error", [FakeRay.Error("no module"), FakeRay.DiedError()])
def test_nodes_without_refdesk_are_told_what_they_lack_and_nothing_is_made(
    inside: Inside, fake_ray: FakeRay, tmp_path: Path, error: Exception
) -> None:
    (tmp_path / "n.md").write_text("# Note\n\nIt ticks.\n")
    fake_ray.fails = lambda _name, _arguments: error
    run = inside.run("ingest", tmp_path / "n.md", "--on", "local", code=2)
    assert "Install the same refdesk[ray] on every node" in run.stderr
    assert not inside.json("status")["collections"]


@pytest.mark.parametrize("work", ["_chunk", "_vectors"])
def test_a_cluster_that_fails_ends_the_run_in_words_and_the_next_one_finishes_it(
    inside: Inside, fake_ray: FakeRay, tmp_path: Path, work: str
) -> None:
    (tmp_path / "n.md").write_text("# Note\n\nIt ticks.\n")
    fake_ray.fails = lambda name, _arguments: FakeRay.Error("text of a document") if name == work else None
    run = inside.run("ingest", tmp_path / "n.md", "--on", "local", code=1)
    assert "The Ray cluster failed (Error). What was stored stays; run the command again" in run.stderr
    assert "text of a document" not in run.stderr + run.stdout
    fake_ray.fails = lambda _name, _arguments: None
    inside.run("ingest", tmp_path / "n.md", "--on", "local")
    assert inside.paths() == ["n.md"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--on", "ray://old.example:10001"), OTHER_VERSION),
        (("--on", "ray://new.example:10001"), NO_CONNECTION.format("new.example:10001")),
        (("--on", "ray://new.example"), NO_ADDRESS.format("ray://new.example")),
        (("--on", "auto"), NO_ADDRESS.format("auto")),
        (("--on", "ray://user:pass@host:1"), NO_ADDRESS.partition(",")[0]),
        (("--on", "local", "--estimate"), ALONE),
        (("--on", "local", "--dry-run"), ALONE),
        (("--on", "local", "--watch"), ALONE),
        (("--on", "local", "--gentle"), ALONE),
    ],
)
def test_what_can_t_be_on_a_cluster_is_said_before_anything_is_made(
    inside: Inside, fake_ray: FakeRay, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    (tmp_path / "n.md").write_text("# Note\n")
    assert words in inside.misuse("ingest", tmp_path / "n.md", *options)
    assert not inside.data.exists()
    assert not fake_ray.given


def test_documents_that_somebody_decides_about_stay_on_this_machine(
    inside: Inside, fake_ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "n.md").write_text("# Note\n")
    monkeypatch.setenv("REFDESK_MODERATION_CALL", "rules:decide")
    run = inside.run("ingest", tmp_path / "n.md", "--on", "local", code=2)
    assert "--on" in run.stderr
    assert "[moderation]" in run.stderr
    assert not fake_ray.inits


def test_without_ray_it_says_how_to_get_it(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "n.md").write_text("# Note\n")
    run = inside.run("ingest", tmp_path / "n.md", "--on", "ray://host:10001", code=2)
    assert f"--on needs Ray. Run {install_command('ray')}" in run.stderr
    assert not inside.data.exists()


def test_nothing_of_ray_is_imported_unless_it_is_asked_for(tmp_path: Path) -> None:
    """Positive control: with --on, the module for it is."""
    (tmp_path / "n.md").write_text("# Note\n")
    program = (
        "import sys, rag.admin.main as m, contextlib\n"
        "for options in ([], ['--on', 'local']):\n"
        "    sys.argv[3:] = options\n"
        "    if options: sys.modules['ray'] = None\n"
        "    with contextlib.suppress(SystemExit): m.main()\n"
        "    print(sorted({'ray', 'rag.ingest.ray_cluster'} & sys.modules.keys()))"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "REFDESK_DATA": str(tmp_path / "data")}
    run = subprocess.run(
        [sys.executable, "-c", program, "ingest", tmp_path / "n.md"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    imported = [line for line in run.stdout.splitlines() if line.startswith("[")]
    assert imported == ["[]", "['rag.ingest.ray_cluster', 'ray']"], run.stderr


REMOTE = EmbedderSettings(
    provider="openai",
    model="m",
    base_url="https://gateway.example/v1",
    api_key_env="GATEWAY_KEY",
    options=EmbedderOptions(headers={"X-Team": "birch"}, headers_env={"X-Api-Key": "TEAM_KEY"}),
)


class Remote:
    identity = EmbedderIdentity("openai", "m", 8)
    window = 512


def test_workers_learn_nothing_of_an_endpoint_and_need_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_KEY", "sk-secret")
    monkeypatch.setenv("TEAM_KEY", "team-secret")
    model = pickle.dumps(Model.of(REMOTE, cast("Embedder", Remote)))
    for word in (b"secret", b"gateway.example", b"birch", b"TEAM_KEY"):
        assert word not in model
    monkeypatch.delenv("GATEWAY_KEY")
    monkeypatch.delenv("TEAM_KEY")
    with closed_places():
        assert _place(model).embedder.token_spans("two words")


@pytest.mark.anyio
async def test_a_worker_with_another_refdesk_or_model_refuses_to_work() -> None:
    async with open_embedder(EmbedderSettings(), {}) as embedder:
        right = Model.of(EmbedderSettings(), embedder)
    wrong = [
        replace(right, refdesk="0.0.1, recipe 1"),
        replace(right, window=3),
        replace(right, identity=replace(right.identity, model="another")),
    ]
    with closed_places():
        for model in wrong:
            error = await anyio.to_thread.run_sync(_start_error, pickle.dumps(model))
            assert isinstance(error, ConfigurationError)
            assert "Install the same ones" in str(error)
        assert await anyio.to_thread.run_sync(_start_error, pickle.dumps(right)) is True
        texts = ["a clock", "a longer text about clocks", "x"]
        vectors = await anyio.to_thread.run_sync(_vectors, pickle.dumps(right), texts)
        assert np.array_equal(vectors, await embedder.embed(texts, "document"))  # type: ignore[arg-type]
