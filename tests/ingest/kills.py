"""Kills refdesk-admin at random moments and at named points, and looks at what is left.

    python -m tests.ingest.kills --trials 300
    python -m tests.ingest.kills --trials 300 --fault full     # the disk is full from then on; needs root
    python -m tests.ingest.kills --trials 300 --fault files    # no file can be opened from then on

A trial copies a data folder, runs a command on it and kills it with SIGKILL: after a random time, or right
before or after one of its changes of the folder (a commit of the engine, a table made or dropped, a file
renamed or deleted). Then fresh processes look whether a document is torn or lost, whether somebody sees a
text that they saw neither before nor would after, and whether a lock is held or a process left behind. The
same command is run again, and the folder must be as after an undisturbed run: sources, ids, texts, rights,
keys, tables, and no row that no source names. A command that meets another fault must end by itself, without
a traceback.

Every run is a fork of this process, which has imported everything and touched nothing.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import anyio

from rag.access.keys import keys_file, read_keys
from rag.access.rule import visible
from rag.corpus import Principal
from rag.errors import ConfigurationError, StoreError
from rag.filters.grammar import literal
from rag.store.care.tenant_backup import checked_archive
from rag.store.read import schema
from rag.store.read.connection import connect, open_if_there
from rag.store.read.desk_reader import DeskReader
from rag.store.write.collection_tables import table_names
from rag.store.write.locks import held_locks
from tests.ingest.kill_scenes import INGEST, SCENES, Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rag.corpus import Collection
    from rag.store.read.collection_reader import CollectionReader

MODULES = (
    "rag.admin.main",
    "rag.ingest.ingest_run",
    "rag.ingest.sandbox.parser_pool",
    "rag.models.embed.local_embedder",
    "onnxruntime",
    "rag.search.desk",
)
PEOPLE = (Principal("default"), Principal("default", "bob"), Principal("default", None, frozenset({"hr"})))
FILES = 12
CONFIG = """
[origins.docs]
type = "folder"
path = "{folder}/docs"

[origins.records]
type = "records"
file = "{folder}/records.jsonl"
"""
Fault = Literal["kill", "full", "files"]
DISK = "size=64m"
STRAY_SECONDS = 60.0  # until the children of a killed process have ended


@dataclass(slots=True)
class Findings:
    """What the trials found."""

    trials: int = 0
    killed: int = 0
    points: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


def kill() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def open_no_more() -> None:
    """Let this process have no more files than it has."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]) - 1, most))


class Killer:
    """Strikes at this process's nth change of the data folder, and counts these changes."""

    def __init__(self, at: int | None, note: Path, strike: Callable[[], None]) -> None:
        self._at, self._note, self._strike, self.count = at, note, strike, 0

    def install(self) -> None:
        """Go between the program and the engine, and the program and its files."""
        from lancedb.db import AsyncConnection  # noqa: PLC0415 not in the parent
        from lancedb.table import AsyncTable  # noqa: PLC0415

        for name in ("add", "delete", "update", "optimize", "create_index", "_do_merge"):
            self._around_async(AsyncTable, name)
        for name in ("create_table", "drop_table"):
            self._around_async(AsyncConnection, name)
        for name in ("replace", "rename", "unlink"):
            self._around(Path, name)

    def _point(self, name: str) -> None:
        self.count += 1
        if self.count == self._at:
            self._note.write_text(name)
            self._strike()

    def _around_async(self, owner: type, name: str) -> None:
        real = getattr(owner, name)

        async def hooked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 whatever it takes
            self._point(f"before {name}")
            result = await real(*args, **kwargs)
            self._point(f"after {name}")
            return result

        setattr(owner, name, hooked)

    def _around(self, owner: type, name: str) -> None:
        real = getattr(owner, name)

        def hooked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 whatever it takes
            self._point(f"before {name}")
            result = real(*args, **kwargs)
            self._point(f"after {name}")
            return result

        setattr(owner, name, hooked)


class Stage:
    """The folder in which the trials take place: the documents, a data folder, and copies of it."""

    def __init__(self, folder: Path, fault: Fault = "kill") -> None:
        self.folder, self.fault, self.docs = folder, fault, folder / "docs"
        self.disk = folder / "disk"
        self.data = self.disk / "data"
        self._bases = folder / "bases"
        self.disk.mkdir()
        if fault == "full":
            subprocess.run(["mount", "-t", "tmpfs", "-o", DISK, "tmpfs", self.disk], check=True)

    def close(self) -> None:
        """Give the disk back."""
        if self.fault == "full":
            subprocess.run(["umount", self.disk], check=True)

    def strike(self) -> None:
        """The fault, in the process that meets it."""
        match self.fault:
            case "kill":
                kill()
            case "files":
                open_no_more()
            case "full":
                with (self.disk / "filling").open("ab", buffering=0) as filling, suppress(OSError):
                    while True:
                        filling.write(bytes(1 << 16))

    def free(self) -> None:
        """End the fault."""
        (self.disk / "filling").unlink(missing_ok=True)

    def command(
        self, arguments: Sequence[str], *, kill_at: int | None = None, after: float | None = None
    ) -> int:
        """Run a command to its end, or kill it. Its exit code, negative if it was killed."""
        arguments = [self._key() if argument == "KEY" else argument for argument in arguments]
        pid = os.fork()
        if not pid:
            self._run(arguments, kill_at)
        if after is not None:
            time.sleep(after)
            with suppress(ProcessLookupError):
                self._strike_at(pid)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        (self.folder / "session").write_text(str(pid))
        return code

    def _strike_at(self, pid: int) -> None:
        match self.fault:
            case "kill":
                os.kill(pid, signal.SIGKILL)
            case "full":
                self.strike()
            case "files":
                pass  # at named points only: a copy of a process that may open nothing can't even begin

    def _run(self, arguments: Sequence[str], kill_at: int | None) -> None:
        code = 1
        try:
            code = self._exit_code(arguments, kill_at)
        finally:
            os._exit(code)  # whatever happened: this is a copy of the process that makes the trials

    def _exit_code(self, arguments: Sequence[str], kill_at: int | None) -> int:
        os.setsid()
        os.chdir(self.folder)
        output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.argv = ["refdesk-admin", *arguments, "--data", str(self.data)]
        killer = Killer(kill_at, self.folder / "point", self.strike)
        killer.install()
        code: object = 1
        try:
            importlib.import_module("rag.admin.main").main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            traceback.print_exc()
            raise
        sys.stdout.flush()
        if kill_at is None:
            (self.folder / "points").write_text(str(killer.count))
        return code if isinstance(code, int) else 1

    def _key(self) -> str:
        key_file = self._bases / "key"
        if keys := read_keys(keys_file(self.data)).keys:
            key_file.write_text(keys[0].id)
        return key_file.read_text()

    def begin(self, scene: Scene) -> Path:
        """Make the state in which the command of a scene begins; the folder that holds it."""
        base = self._bases / scene.name
        if base.exists():
            return base
        self._bases.mkdir(exist_ok=True)
        shutil.rmtree(self.data, ignore_errors=True)
        self.write_documents(changed=False)
        for arguments in scene.before:
            if arguments == INGEST:
                self.write_documents(changed=scene.change)
            assert self.command(arguments) == 0, (self.folder / "output").read_text()
        if not scene.before:
            self.data.mkdir()
            (self.data / "key").write_bytes(bytes(32))  # so that all runs give the same ids
        if scene.damage:
            self._aside(partial(anyio.run, scene.damage, self.data))
        shutil.copytree(self.data, base)
        return base

    def set(self, scene: Scene) -> None:
        """Put the state of a scene in place."""
        base = self.begin(scene)
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(base, self.data)
        self.write_documents(changed=scene.change)

    def write_documents(self, *, changed: bool) -> None:
        """Twelve documents; if `changed`, some are changed, moved, gone or new."""
        shutil.rmtree(self.docs, ignore_errors=True)
        self.docs.mkdir()
        words = "\n\n".join(f"Paragraph {part} of a long text. " + "word " * 120 for part in range(4))
        for number in range(FILES):
            name, text = f"{number}.md", f"# Title {number}\n\nA pendulum, {number}.\n\n{words}\n"
            if changed and number % 4 == 1:
                text = text.replace("A pendulum", "A new pendulum")
            if changed and number % 4 == 2:
                name = f"moved-{name}"
            if not (changed and number % 4 == 3):
                (self.docs / name).write_text(text)
        if changed:
            (self.docs / "added.md").write_text(f"# Added\n\nAn added pendulum.\n\n{words}\n")
        (self.folder / "config.toml").write_text(CONFIG.format(folder=self.folder))
        (self.folder / "records.jsonl").write_text("\n".join(map(json.dumps, records(changed=changed))))

    def state(self) -> dict[str, Any]:
        """What a fresh process finds in the data folder."""
        file = self.folder / "state.json"
        file.unlink(missing_ok=True)
        self._aside(lambda: file.write_text(json.dumps(anyio.run(_state, self.data))))
        state: dict[str, Any] = json.loads(file.read_text())
        return state

    def _aside(self, task: Callable[[], object]) -> None:
        """Do something in a process of its own, so that this one touches no engine."""
        pid = os.fork()
        if not pid:
            try:
                task()
                os._exit(0)
            finally:
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0

    def stray(self) -> list[int]:
        """Processes that the last command has left behind."""
        session = int((self.folder / "session").read_text())
        until = time.monotonic() + STRAY_SECONDS
        while (pids := _of_session(session)) and time.monotonic() < until:
            time.sleep(0.05)
        return pids


def records(*, changed: bool) -> Iterator[dict[str, Any]]:
    """A stream of records; if `changed`, some are changed, gone, new, wider or narrower."""
    hr, everybody = {"visibility": "restricted", "allow": ["group:hr"]}, {"visibility": "tenant"}
    yield {"refdesk": "records", "version": 1, "sync": "full"}
    names = "bcdef" if changed else "abcde"
    for name in names:
        text = f"The {'new ' if changed and name == 'b' else ''}pendulum of {name}."
        closed = (name == "c") == changed
        yield {"id": name, "title": name, "text": text, "access": hr if closed else everybody}
    yield {"end": True, "count": len(names)}


def _of_session(session: int) -> list[int]:
    pids = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            after_name = (process / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[3]) == session and after_name[0] != "Z":
                pids.append(int(process.name))
    return pids


async def _state(data: Path) -> dict[str, Any]:
    """Sources with digests of their texts and vectors, torn documents, rights, rows, keys, locks."""
    state: dict[str, Any] = {
        "sources": {},
        "records": {},
        "torn": [],
        "rows": {},
        "collections": [],
        "builds": [],
        "unreadable": [],
    }
    reader = DeskReader(data, timeout_seconds=60)
    for collection in await _collections(reader):
        state["collections"].append(collection.name)
        state["builds"].append(collection.build)
        try:
            await _note_sources(state, await reader.open(collection))
            database = await connect(data)
            for name in table_names(collection):
                rows = await (await database.open_table(name)).count_rows()
                state["rows"][name.partition("__build_")[0]] = rows
        except StoreError:
            state["unreadable"].append(collection.name)
    if records := await open_if_there(await connect(data), schema.access_table("default")):
        columns = ["id", "collection", "uri", "present", "copied", "visibility", "allow", "deny", "word"]
        query = records.query().where(f"id <> {literal('')}").select(columns)
        state["records"] = {row.pop("id"): row for row in (await query.to_arrow()).to_pylist()}
    tables = data / "tables"
    names = [folder.name.removesuffix(".lance") for folder in tables.iterdir()] if tables.exists() else []
    state["tables"] = sorted({name.partition("__build_")[0] for name in names})
    state["keys"] = [key.id for key in read_keys(keys_file(data)).keys]
    state["holders"] = [key.user for key in read_keys(keys_file(data)).keys]
    state["locks"] = sorted(held_locks(data)) if (data / "locks").exists() else []
    return state


async def _note_sources(state: dict[str, Any], table: CollectionReader) -> None:
    for source in await table.listing():
        stored_text = await table.text(source.id)
        if stored_text is None:
            state["torn"].append(source.uri)
            continue
        stored, _, text = stored_text
        chunks = await table.chunks_between(stored, 0, 10_000, "(true)")
        whole = [chunk.seq for chunk in chunks] == list(range(source.chunk_count))
        if not whole or any(text[chunk.start : chunk.end] != chunk.text for chunk in chunks):
            state["torn"].append(source.uri)
        state["sources"][source.uri] = {
            "id": source.id,
            "title": source.title,
            "digest": source.digest,
            "text": hashlib.sha256(text.encode()).hexdigest()[:16],
            "seen": [visible(person, stored.access, "allow") for person in PEOPLE],
        }


async def _collections(reader: DeskReader) -> Sequence[Collection]:
    """The collections; none if they are to be mended first, which shows nothing to anybody."""
    try:
        return await reader.collections("default")
    except (ConfigurationError, StoreError):
        return ()


def torn_or_wider(now: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What is wrong with a state that a kill left between two others."""
    wrong = [f"torn: {uri}" for uri in now["torn"]]
    wrong += [f"locked: {name}" for name in now["locks"]]
    wrong += [f"unreadable: {name}" for name in now["unreadable"] if name not in old["unreadable"]]
    texts = {uri: source["text"] for uri, source in now["sources"].items()}
    known_texts = {source["text"] for source in (*old["sources"].values(), *new["sources"].values())}
    wrong += [f"neither old nor new: {uri}" for uri, text in texts.items() if text not in known_texts]
    if now["collections"] == old["collections"] == new["collections"] and not now["unreadable"]:
        stay = {source["id"] for source in old["sources"].values()} & {
            source["id"] for source in new["sources"].values()
        }
        wrong += [f"lost: {id_}" for id_ in stay - {source["id"] for source in now["sources"].values()}]
    may = Counter[tuple[str, int]]()
    for state in (old, new):
        for source in state["sources"].values():
            may.update((source["text"], person) for person, sees in enumerate(source["seen"]) if sees)
    for uri, source in now["sources"].items():
        for person, sees in enumerate(source["seen"]):
            if sees and not may[source["text"], person]:
                wrong.append(f"wider: {uri} for {PEOPLE[person]}")
    return wrong + [f"key: {key}" for key in now["keys"] if key not in old["keys"] + new["keys"]]


def differences(now: dict[str, Any], expected: dict[str, Any], *but: str) -> list[str]:
    """Where a state differs from that after an undisturbed run."""
    return [
        f"{name}: {now[name]} instead of {expected[name]}"[:400]
        for name in expected
        if name not in but and now[name] != expected[name]
    ]


class Trials:
    """Kills the commands of all scenes in turn."""

    def __init__(self, stage: Stage, seed: int = 7) -> None:
        self.stage, self.findings = stage, Findings()
        self._chance = random.Random(seed)  # noqa: S311 repeatable, not secret
        self._undisturbed: dict[str, tuple[dict[str, Any], dict[str, Any], float, int]] = {}

    def undisturbed(self, scene: Scene) -> tuple[dict[str, Any], dict[str, Any], float, int]:
        """The states before and after, the seconds that the command takes, and its number of points."""
        if scene.name not in self._undisturbed:
            self.stage.set(scene)
            old = self.stage.state()
            began = time.perf_counter()
            code = self.stage.command(scene.command)
            assert code == 0, (self.stage.folder / "output").read_text()
            seconds, points = time.perf_counter() - began, int((self.stage.folder / "points").read_text())
            self._undisturbed[scene.name] = old, self.stage.state(), seconds, points
        return self._undisturbed[scene.name]

    def trial(self, scene: Scene, *, point: int | None = None) -> None:
        """Kill the command at its nth point, or else after a random time; check; run it again; compare."""
        old, new, seconds, _ = self.undisturbed(scene)
        self.stage.set(scene)
        note = self.stage.folder / "point"
        note.unlink(missing_ok=True)
        after = None if point else self._chance.uniform(0, seconds * 1.05)
        code = self.stage.command(scene.command, kill_at=point, after=after)
        where = note.read_text() if note.exists() else f"after {after or 0:.3f} s"
        output = (self.stage.folder / "output").read_text()
        self.stage.free()
        wrong = [f"left behind: {pid}" for pid in self.stage.stray()]
        if "Traceback" in output:
            wrong.append(output[-600:])
        now = self.stage.state()
        wrong += torn_or_wider(now, old, new | ({"keys": now["keys"]} if "keys" in scene.anew else {}))
        if now["holders"] not in (old["holders"], new["holders"]):
            wrong.append(f"holders of keys: {now['holders']}")
        if not (scene.turns and now["builds"] == new["builds"]):
            again = self.stage.command(scene.command)
            output = (self.stage.folder / "output").read_text()
            if again and not scene.gone:
                wrong.append(f"run again: exit code {again}: {output[-300:]}")
        wrong += differences(self.stage.state(), new, *scene.anew)
        if scene.name == "backup":
            checked_archive(self.stage.folder / "new.tar")
        self.findings.trials += 1
        self.findings.killed += code != 0
        self.findings.points[f"{scene.name}: {where if point else 'random'}"] += 1
        self.findings.wrong += [f"{scene.name}, killed {where} ({point}): {problem}" for problem in wrong]

    def run(self, trials: int, say: Callable[[str], None], scenes: Sequence[Scene] = SCENES) -> None:
        """So many trials: every second one at the next named point, the others at random moments."""
        next_point = Counter[str]()
        for number in range(trials):
            scene = scenes[number // 2 % len(scenes)]
            point = None
            if number % 2 or self.stage.fault == "files":
                _, _, _, points = self.undisturbed(scene)
                point = next_point[scene.name] % points + 1
                next_point[scene.name] += max(1, points * len(scenes) * 2 // trials)
            before = len(self.findings.wrong)
            self.trial(scene, point=point)
            for problem in self.findings.wrong[before:]:
                say(problem)
            if number % 20 == 19:
                say(f"{number + 1} trials, {self.findings.killed} killed, {len(self.findings.wrong)} wrong")


def prepared() -> None:
    """Import what the commands need, so that they can be forked."""
    importlib.import_module("rag.store")  # which imports LanceDB
    for name, _ in importlib.import_module("rag.admin.main").COMMANDS.values():
        importlib.import_module(f"rag.admin.{name}")
    for name in MODULES:
        importlib.import_module(name)
    warnings.filterwarnings("ignore", "lancedb fork support")  # nothing of it has run in this process
    gc.freeze()


def main() -> None:
    """Run the trials; exit with 1 if anything is wrong."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--trials", type=int, default=300)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--scene", action="append", help="Only scenes whose name begins so; repeat it.")
    options.add_argument("--fault", choices=get_args(Fault), default="kill")
    arguments = options.parse_args()
    prepared()
    memory = Path("/dev/shm")  # noqa: S108 the trials are many
    with tempfile.TemporaryDirectory(prefix="kills-", dir=memory if memory.is_dir() else None) as name:
        stage = Stage(Path(name), arguments.fault)
        trials = Trials(stage, arguments.seed)
        scenes = [scene for scene in SCENES if scene.name.startswith(tuple(arguments.scene or [""]))]
        try:
            trials.run(arguments.trials, lambda text: print(text, flush=True), scenes)  # noqa: T201 a command
        finally:
            stage.close()
    findings = trials.findings
    print(f"{findings.trials} trials, {findings.killed} killed, {len(findings.points)} kinds of moments")  # noqa: T201
    print(f"{len(findings.wrong)} wrong")  # noqa: T201
    sys.exit(bool(findings.wrong))


if __name__ == "__main__":
    main()
