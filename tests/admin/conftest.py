"""A data folder of a test's own, worked on with the installed command, on a pipe or a terminal, or inside."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import sys
import termios
from dataclasses import dataclass
from functools import partial
from subprocess import CompletedProcess
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from rag.admin.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts

Run: TypeAlias = CompletedProcess[str]


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

    def paths(self) -> list[str]:
        """What is there, by the path below the folder that was ingested."""
        return [source["metadata"]["path"] for source in self.json("sources")["sources"]]


@dataclass(frozen=True, slots=True)
class Inside(Desk):
    """The same commands without a process of their own, which takes nearly a second to start.

    For what a test begins with, what it looks at in the end, and tables of refusals. What it is about
    comes from outside.
    """

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def run(self, *arguments: str | Path, code: int = 0) -> Run:
        given = ["refdesk-admin", *map(str, arguments), "--data", str(self.data)]
        self.monkeypatch.setattr(sys, "argv", given)
        with pytest.raises(SystemExit) as end:
            main()
        printed = self.capsys.readouterr()
        assert end.value.code == code, printed.err
        return CompletedProcess(given, code, printed.out, printed.err)


@pytest.fixture(scope="session")
def desk_at(scripts: Scripts) -> Callable[[Path], Desk]:
    return partial(Desk, scripts)


@pytest.fixture
def desk(desk_at: Callable[[Path], Desk], tmp_path: Path) -> Desk:
    return desk_at(tmp_path / "data")


@pytest.fixture
def inside(desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    """The data folder of `desk`, worked on in this process. Not for asynchronous tests."""
    clean = desk.scripts.environment
    for name in os.environ.keys() - clean.keys():
        monkeypatch.delenv(name)
    for name, value in clean.items():
        monkeypatch.setenv(name, value)
    return Inside(desk.scripts, desk.data, monkeypatch, capsys)


@pytest.fixture(scope="session")
def clock_desk(desk_at: Callable[[Path], Desk], clock_room: Path) -> Desk:
    """The demo corpus. Only for reading."""
    return desk_at(clock_room)


Screen: TypeAlias = "Callable[..., tuple[int, str]]"


@pytest.fixture(scope="session")
def screen(scripts: Scripts) -> Screen:
    """Run refdesk-admin on a terminal: its exit code and all that came to the screen, codes included.

    When `interrupt_at` has come, the keys of an interruption are pressed.
    """

    def run(*arguments: str | Path, interrupt_at: bytes | None = None) -> tuple[int, str]:
        command: list[str | os.PathLike[str]] = [scripts.folder / "refdesk-admin", *arguments]
        child, terminal = pty.fork()
        if child == 0:
            os.execve(command[0], command, scripts.environment | {"TERM": "xterm"})  # noqa: S606 our own script
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
        with os.fdopen(terminal, "r+b", buffering=0) as keyboard:
            shown = b""
            while part := _read(keyboard.fileno()):
                shown += part
                if interrupt_at and interrupt_at in shown:
                    keyboard.write(b"\x03")
                    interrupt_at = None
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), shown.decode()

    return run


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other end is closed
        return b""
