"""A data folder of a test's own, worked on with the installed command, on a pipe or a terminal, or inside."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pty
import select
import signal
import struct
import sys
import termios
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from mcp import stdio_client

import rag.admin.main
from rag.admin import doctor_command
from rag.admin.connect import connect_check
from rag.admin.main import main
from rag.answers import Answer, Hit, Listing, Preview, Step, SubQuery, Trace, Usage
from rag.corpus import Chunk, Source
from rag.ingest import document_languages, prepare
from rag.search.why import SourceTrace
from tests.forks import with_stand_in
from tests.ingest.conftest import parse_here

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from rag.store.care.folder_checks import Finding
    from tests.conftest import Scripts

Run: TypeAlias = CompletedProcess[str]

AT_MOST_SECONDS = 60  # a run that hangs is killed, and its test fails
AGAIN_SECONDS = 5  # after which somebody presses the keys again


@dataclass(frozen=True, slots=True)
class Desk:
    """refdesk-admin on one data folder."""

    scripts: Scripts
    data: Path

    def run(self, *arguments: str | Path, code: int = 0) -> Run:
        """A command's end, which must be this one."""
        run = self.scripts.admin(*arguments, "--data", self.data)
        assert run.returncode == code, run.stderr
        return run

    def json(self, *arguments: str | Path, code: int = 0) -> Any:  # noqa: ANN401 any JSON
        """What a command prints with --json, which must be all that it prints to standard output."""
        (line,) = self.run(*arguments, "--json", code=code).stdout.splitlines()
        return json.loads(line)

    def misuse(self, *arguments: str | Path) -> str:
        """What is said of a command that is called in a wrong way."""
        return self.run(*arguments, code=2).stderr

    def failure(self, *arguments: str | Path) -> str:
        """What a command says that fails."""
        return self.run(*arguments, code=1).stderr

    def interrupt(self, *arguments: str | Path, at: str) -> list[str]:
        """Press Ctrl-C at a line of a command that begins so. Returns what standard error says after it."""
        with self.scripts.process(self.scripts.forked_admin, *arguments, "--data", self.data) as process:
            assert process.stderr
            for line in process.stderr:
                if line.startswith(at):
                    process.send_signal(signal.SIGINT)
                    break
            out, after = process.communicate()
        assert process.returncode == 130
        assert "Traceback" not in after
        assert out == ""
        return after.splitlines()

    def findings(self, check: str, *options: str | Path, code: int = 0) -> list[Any]:
        """What one of doctor's checks finds."""
        findings = self.json("doctor", *options, code=code)["findings"]
        return [finding for finding in findings if finding["check"] == check]

    def hits(self, query: str, *options: str | Path) -> list[dict[str, Any]]:
        """What a search finds."""
        hits: list[dict[str, Any]] = self.json("search", query, *options)["results"]
        return hits

    def sources(self, *options: str | Path) -> list[dict[str, Any]]:
        """The documents that there are."""
        sources: list[dict[str, Any]] = self.json("sources", *options)["sources"]
        return sources

    def titles(self, query: str, *options: str | Path) -> list[str]:
        """The documents that somebody finds, each as often as it has hits."""
        return sorted(hit["title"] for hit in self.hits(query, *options))

    def files_with(self, text: bytes, folder: str = "") -> list[Path]:
        """The files of the data folder, or of one in it, that hold a text."""
        files = [path for path in (self.data / folder).rglob("*") if path.is_file()]
        return [file for file in files if text in file.read_bytes()]

    def paths(self) -> list[str]:
        """What is there, by the path below the folder that was ingested."""
        return [source["metadata"]["path"] for source in self.sources()]


@dataclass(frozen=True, slots=True)
class Inside(Desk):
    """The same commands without a process of their own, which takes nearly a second to start, or a parser's.

    For what a test begins with, what it looks at in the end, and tables of refusals. What it is about
    comes from outside.
    """

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, *arguments: str | Path, code: int = 0) -> Run:
        command_line = ["refdesk-admin", *map(str, arguments), "--data", str(self.data)]
        self.monkeypatch.setattr(sys, "argv", command_line)
        with pytest.raises(SystemExit) as end:
            main()
        printed = self.capsys.readouterr()
        assert end.value.code == code, printed.out + printed.err
        return CompletedProcess(command_line, code, printed.out, printed.err)


@pytest.fixture(scope="session")
def desk_at(scripts: Scripts) -> Callable[[Path], Desk]:
    return partial(Desk, scripts)


@pytest.fixture
def desk(desk_at: Callable[[Path], Desk], tmp_path: Path) -> Desk:
    return desk_at(tmp_path / "data")


@pytest.fixture
def inside(desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    """The data folder of `desk`, worked on in this process. Not for asynchronous tests."""
    for module in ("grp", "pwd", *(f"rag.admin.{name}" for name, _ in rag.admin.main.COMMANDS.values())):
        importlib.import_module(module)  # somebody without rights may not read them later
    clean = desk.scripts.environment
    for name in os.environ.keys() - clean.keys():
        monkeypatch.delenv(name)
    for name, value in clean.items():
        monkeypatch.setenv(name, value)
    client = with_stand_in(stdio_client, desk.scripts.server, lambda: desk.scripts.forked_server)
    monkeypatch.setattr(connect_check, "stdio_client", client)
    for caller in (prepare, document_languages):  # each run has an event loop, and so a parser of its own
        monkeypatch.setattr(caller, "parse_safely", parse_here)
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)  # most of the time of small runs
    return Inside(desk.scripts, desk.data, monkeypatch, capsys)


@pytest.fixture
def unconnected(inside: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """`inside`, whose doctor starts no server as hosts do, which takes most of its time."""

    async def no_findings(*_arguments: object) -> AsyncIterator[Finding]:
        findings: tuple[Finding, ...] = ()
        for finding in findings:
            yield finding

    monkeypatch.setattr(doctor_command, "check_clients", no_findings)
    return inside


@pytest.fixture(scope="session")
def clock_desk(desk_at: Callable[[Path], Desk], clock_room: Path) -> Desk:
    """The demo corpus. Only for reading."""
    return desk_at(clock_room)


Screen: TypeAlias = "Callable[..., tuple[int, str]]"


@pytest.fixture(scope="session")
def screen(scripts: Scripts) -> Screen:
    """Run refdesk-admin on a terminal: its exit code and all that came to the screen, codes included.

    When `interrupt_at` has come, the keys of an interruption are pressed; when a text of `typed` has come,
    what belongs to it is typed, with Enter. `env` is added to the environment. Who is `impatient` presses the
    keys again where nothing happens: Python loses an interruption between a question and the wait for Enter.
    """

    def run(
        *arguments: str | Path,
        interrupt_at: bytes | None = None,
        typed: dict[str, str] | None = None,
        env: dict[str, str] | None = None,
        impatient: bool = False,
    ) -> tuple[int, str]:
        questions, pressed = dict(typed or {}), False
        command: list[str | os.PathLike[str]] = [scripts.forked_admin, *arguments]
        child, terminal = pty.fork()
        if child == 0:
            os.execve(command[0], command, scripts.environment | {"TERM": "xterm"} | (env or {}))  # noqa: S606 our own script
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        with os.fdopen(terminal, "r+b", buffering=0) as keyboard:
            output = b""
            while True:
                while impatient and pressed and not select.select([keyboard], [], [], AGAIN_SECONDS)[0]:
                    keyboard.write(b"\x03")
                if not (part := _read(keyboard.fileno())):
                    break
                output += part
                if interrupt_at and interrupt_at in output:
                    keyboard.write(b"\x03")
                    interrupt_at, pressed = None, True
                for question in [text for text in questions if text.encode() in output]:
                    keyboard.write(f"{questions.pop(question)}\n".encode())
            _, status = os.waitpid(child, 0)  # which a terminal that is closed before would hang up
        return os.waitstatus_to_exitcode(status), output.decode()

    return run


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other end is closed
        return b""


HOSTILE = """<script>x</script>"'&amp;$title\x1b[31m\u202e\u200b\x00"""


@pytest.fixture
def hostile() -> str:
    """What a document may say of itself to break out of where it is shown."""
    return HOSTILE


@dataclass(frozen=True, slots=True)
class Search:
    """A search written down by hand, in which passage b comes from behind and c falls out."""

    answer: Answer
    fate: SourceTrace


@pytest.fixture
def make_search() -> Callable[..., Search]:
    """Make a search of two queries and ten stages, in which documents and models say the given thing."""

    def make(saying: str = "Clocks") -> Search:
        hits = {name: _hit(name, saying) for name in "abc"}
        ids = {name: hit.chunk.id for name, hit in hits.items()}

        def stage(name: str, before: int | None, remaining: str, **more: Any) -> Step:  # noqa: ANN401 of a record
            preview = tuple(Preview(ids[letter], 0.5, f"{saying} {letter}") for letter in remaining)
            after, ids_left = len(remaining), tuple(ids[letter] for letter in remaining)
            return Step(name, 0.001, before=before, after=after, preview=preview, hit_ids=ids_left, **more)

        stages = (
            Step("plan", 0.0004),
            Step("multi_query", 0.5, usage=Usage(1, 412, 96, 0.0012), before=1, after=2),
            Step("embed", 0.0091),
            Step("recall", 0.0124, after=3, hit_ids=(ids["c"], ids["b"], ids["a"])),
            stage("fuse", None, "acb"),
            stage("gate", 3, "acb"),
            stage("thresholds", 3, "ab"),
            stage("rerank", 2, "ba", usage=Usage(1, 1000, 4)),
            stage("recency", 2, "ba", status="failed", warnings=(f"recency failed: {saying}",)),
            stage("limit", 2, "ba"),
        )
        listings = {
            ids["a"]: (
                Listing(0, "dense", 1, 0.61),
                Listing(0, "sparse", 2, 0.5),
                Listing(1, "dense", 3, 0.4),
            ),
            ids["b"]: (Listing(0, "sparse", 1, 1.0),),
            ids["c"]: (Listing(0, "dense", 2, 0.3),),
        }
        queries = (
            SubQuery("who built it?"),
            SubQuery(saying, 0.7, f"as {saying}", ("documents",), {"year": {"$gte": 1650}}),
        )
        answer = Answer(
            (hits["b"], hits["a"]), (f"A note: {saying}",), None, stages, Trace(queries, listings)
        )
        ranks = (("fuse", 2), ("gate", 2), ("thresholds", None), ("rerank", None))
        fate = SourceTrace(hits["c"].source, "thresholds", f"Too far: {saying}", ids["c"], ranks)
        return Search(answer, fate)

    return make


def _hit(name: str, saying: str) -> Hit:
    source = Source(
        id=f"mfzq{name}",
        collection="documents",
        uri=f"file:///{name}",
        title=f"{saying} {name}",
        mime_type="text/plain",
        digest="d",
        chunk_count=9,
        length=1000,
        ingested_at=datetime(2026, 1, 2, tzinfo=UTC),
    )
    text = f"What {saying} says of {name}."
    chunk = Chunk(f"{source.id}/3", source.id, 3, 0, len(text), text, (source.title, "Part", saying), 7)
    return Hit(chunk, source, 0.98765, 0.43219)
