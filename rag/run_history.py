"""The history of ingestion runs: a small JSON file for each in the data folder's `runs/TENANT`.

A run writes its file when it begins, and replaces it when it ends. A run that was killed leaves a file
without an end; the next run of the collection, which holds the same lock, marks it as interrupted. Commands
and the server's metrics read the files without opening the storage engine.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from rag.home import names, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rag.home import Home

KEPT = 100  # runs of a tenant
NAMED_FAILURES = 100  # files of a run that are listed with their reasons

Result = Literal["running", "complete", "partial", "failed", "interrupted"]
"""`partial`: some files failed, or were kept although they are missing. `failed`: all did, or the run did."""
_FILE = re.compile(r"(?P<id>[0-9]{6,})\.(?P<collection>[^/]+)\.json")


class Failure(BaseModel):
    """A file that a run could not read, with the reason for people and its cause for statistics."""

    model_config = ConfigDict(frozen=True)

    path: str
    reason: str
    cause: str


class IngestionRun(BaseModel):
    """A run. `counts` are its files by outcome, `causes` the failed ones, `failed` the first of these.

    Later versions may add fields.
    """

    model_config = ConfigDict(frozen=True)

    collection: str
    command: str
    inputs: tuple[str, ...] = ()
    began: AwareDatetime
    ended: AwareDatetime | None = None
    result: Result = "running"
    counts: dict[str, int] = {}
    chunks: int = 0
    causes: dict[str, int] = {}
    failed: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""


def begin_run(data: Path, tenant: str, run: IngestionRun) -> int:
    """Write the file of a run that begins now. Returns its id, which counts up over the tenant's runs.

    Call it under the collection's lock: earlier runs of the collection without an end are marked as
    interrupted. The oldest runs beyond `KEPT` are removed.

    Raises:
        OSError: the folder can't be written.
    """
    folder = _folder(data, tenant)
    for one in (folder.parent, folder):
        one.mkdir(mode=0o700, exist_ok=True)
    numbered = _numbered(data, tenant)
    for id_, collection in numbered.items():
        former = _read(data, tenant, id_, collection) if collection == run.collection else None
        if former and former.result == "running":
            end_run(data, tenant, id_, former.model_copy(update={"result": "interrupted"}))
    for id_ in sorted(numbered)[: -KEPT + 1 or None] if len(numbered) >= KEPT else ():
        _file(folder, id_, numbered[id_]).unlink(missing_ok=True)
    id_ = max(numbered, default=0) + 1
    _replace(_file(folder, id_, run.collection), run)
    return id_


def end_run(data: Path, tenant: str, id_: int, run: IngestionRun) -> None:
    """Replace the file of a run, in one step.

    Raises:
        OSError: the folder can't be written.
    """
    _replace(_file(_folder(data, tenant), id_, run.collection), run)


def runs_of(data: Home, tenant: str) -> dict[int, IngestionRun]:
    """The tenant's runs by id, oldest first. Unreadable files are left out.

    Raises:
        StoreError: the bucket can't be read.
    """
    found = {id_: _read(data, tenant, id_, name) for id_, name in sorted(_numbered(data, tenant).items())}
    return {id_: run for id_, run in found.items() if run}


def last_runs(data: Home, tenant: str) -> Iterator[IngestionRun]:
    """The last run of each collection of the tenant that has ended.

    Raises:
        StoreError: the bucket can't be read.
    """
    seen: set[str] = set()
    for id_, collection in sorted(_numbered(data, tenant).items(), reverse=True):
        run = None if collection in seen else _read(data, tenant, id_, collection)
        if run and run.ended:
            seen.add(collection)
            yield run


def forget_names(data: Path, tenant: str, collection: str) -> None:
    """Remove all names of files and all notes from the runs of a collection: they may name purged documents.

    Raises:
        OSError: the folder can't be written.
    """
    for id_, run in runs_of(data, tenant).items():
        if run.collection == collection:
            bare = run.model_copy(update={"failed": (), "notes": (), "inputs": (), "error": ""})
            end_run(data, tenant, id_, bare)


def forget_runs(data: Path, tenant: str) -> None:
    """Remove all runs of a tenant.

    Raises:
        OSError: the folder can't be written.
    """
    folder = _folder(data, tenant)
    for id_, collection in _numbered(data, tenant).items():
        _file(folder, id_, collection).unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        folder.rmdir()


def now() -> datetime:
    """The time as runs record it."""
    return datetime.now(UTC).replace(microsecond=0)


def _folder(data: Path, tenant: str) -> Path:
    return data / "runs" / tenant


def _file(folder: Path, id_: int, collection: str) -> Path:
    return folder / _name(id_, collection)


def _name(id_: int, collection: str) -> str:
    return f"{id_:06d}.{collection}.json"


def _numbered(data: Home, tenant: str) -> dict[int, str]:
    """The collections of a tenant's runs by id."""
    matches = map(_FILE.fullmatch, names(data, f"runs/{tenant}"))
    return {int(match["id"]): match["collection"] for match in matches if match}


def _read(data: Home, tenant: str, id_: int, collection: str) -> IngestionRun | None:
    try:
        return IngestionRun.model_validate_json(read(data, f"runs/{tenant}/{_name(id_, collection)}") or b"")
    except (OSError, ValidationError):
        return None


def _replace(file: Path, run: IngestionRun) -> None:
    draft = file.with_suffix(".draft")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        opened.write(run.model_dump_json().encode("utf-8", "replace"))
    draft.replace(file)
