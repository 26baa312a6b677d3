"""A small desk, processes that write to it, and a folder where this process has no special rights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SMALL_DESK = Path(__file__).parents[1] / "small_desk.py"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing to disk is most of the time of small runs, and no test lasts longer than the power."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def writing_process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start small_desk.py with arguments, as far as its imports; a line sent to it sets it off."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        command = [sys.executable, str(SMALL_DESK), *map(str, arguments)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
