"""A small desk, processes that write to it, and a folder where this process has no special rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
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
def bucket(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bucket:
    """A part of an empty bucket."""
    return _bucket_of(object_store, monkeypatch, tmp_path / "local")


def _bucket_of(store: ObjectStore, patch: pytest.MonkeyPatch, local: Path) -> Bucket:
    patch.setenv("REFDESK_DATA", str(local))  # for processes that work on it
    for name, value in store.environment.items():
        patch.setenv(name, value)
    options = {"endpoint": store.endpoint, "region": "us-east-1", "allow_http": "true"}
    return Bucket(store.uri, options, local=local)


@pytest.fixture(scope="module")
def note(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A document, of which a test may write another version and ingest it."""
    return tmp_path_factory.mktemp("documents") / "note.md"


@pytest.fixture(scope="module")
def ingested_note(small_desk: ModuleType, note: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the first version of the note. Only for reading."""
    folder: Path = tmp_path_factory.mktemp("ingested") / "data"
    note.write_text("# Note\n\nThe pendulum swings.\n")
    anyio.run(small_desk.ingested, folder, note)
    return folder


@pytest.fixture
def data(ingested_note: Path, tmp_path: Path) -> Path:
    """A data folder with one document, which everybody may see."""
    return shutil.copytree(ingested_note, tmp_path / "data")


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
