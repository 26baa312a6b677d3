"""A small desk, processes that write to it, and a folder where this process has no special rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TypeAlias

import anyio
import pytest

from rag.home import Bucket
from tests.bucket import ObjectStore
from tests.conftest import Scripts
from tests.forks import Forked

Running: TypeAlias = "subprocess.Popen[bytes] | Forked"

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
def started(scripts: Scripts) -> Iterator[Callable[..., Running]]:
    """Start a Python script with a pipe at each of its streams and with the settings of this process.

    It is forked from a process that has the imports of refdesk-admin.
    """
    with ExitStack() as ended:

        def start(script: Path, *arguments: str | Path) -> Running:
            settings = {
                name: value for name, value in os.environ.items() if name.startswith(("AWS_", "REFDESK_"))
            }
            command, environment = [str(script), *map(str, arguments)], scripts.environment | settings
            process: Running
            if scripts.forks.can_run(environment):
                process = scripts.forks.piped(command, environment)
            else:
                command, pipe = [sys.executable, *command], subprocess.PIPE
                process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
            ended.callback(end, process)
            return process

        yield start


@pytest.fixture
def writing_process(started: Callable[..., Running]) -> Callable[..., Running]:
    """Start small_desk.py with arguments, as far as its imports; a line sent to it sets it off."""
    return partial(started, SMALL_DESK)


def end(process: Running) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            stream.close()
