"""A small desk, processes that write to it, and a folder where this process has no special rights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag.home import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.bucket import ObjectStore

SMALL_DESK = Path(__file__).parents[1] / "small_desk.py"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushing to disk is most of the time of small runs, and no test lasts longer than the power."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)


@pytest.fixture
def bucket(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A part of an empty bucket."""
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    options = {"endpoint": object_store.endpoint, "region": "us-east-1", "allow_http": "true"}
    return Bucket(object_store.uri, options)


@pytest.fixture
async def data(small_desk: ModuleType, tmp_path: Path) -> Path:
    """A data folder with one document, which everybody may see."""
    file = tmp_path / "note.md"
    file.write_text("# Note\n\nThe pendulum swings.\n")
    await small_desk.ingested(tmp_path / "data", file)
    return tmp_path / "data"


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
