"""The history of ingestion runs: a small JSON file for each in the data folder's `runs/TENANT`.

Commands and the server's metrics read the files without opening the storage engine. `rag.admin.runs_command`
writes them. A run that was killed leaves a file without an end. It counts as interrupted when the next run of
its collection has begun, under the same lock. If a bucket can't be read, the functions raise a `StoreError`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from rag.home import Home, names, read

RunResult = Literal["running", "complete", "partial", "failed", "interrupted"]
"""`partial`: some files failed, or sources of missing files were kept. `failed`: all, or the run, failed."""
_FILE = re.compile(r"(?P<id>[0-9]{6,})\.(?P<collection>[^/.]+)(\.(?P<origin>[^/.]+))?\.json")


FIRST = 1  # the id of a tenant's first run


class RunTarget(NamedTuple):
    """What a run is about, as its file's name says: a collection, and the origin that it syncs, if any."""

    collection: str
    origin: str = ""


class FeedsCollection(Protocol):
    """An origin of the settings, which this package doesn't import."""

    @property
    def collection(self) -> str:
        """Its name."""


class FailedFile(BaseModel):
    """A file that a run could not read, with the reason for people and its cause for statistics."""

    model_config = ConfigDict(frozen=True)

    path: str
    reason: str
    cause: str


class IngestionRun(BaseModel):
    """A run: `counts` of files by outcome, `causes` of failures with counts, and the first `failed` files.

    `held` stands for the sources of missing files that it kept, as a digest, and `held_since` is when the
    first of the runs in a row began that kept the same ones. `reached` is when the last run ended, this or an
    earlier one of the same target, to which nothing was unreachable or missing.

    Later versions may add fields.
    """

    model_config = ConfigDict(frozen=True)

    collection: str
    command: str
    inputs: tuple[str, ...] = ()
    began: AwareDatetime
    ended: AwareDatetime | None = None
    result: RunResult = "running"
    counts: dict[str, int] = {}
    chunks: int = 0
    causes: dict[str, int] = {}
    failed: tuple[FailedFile, ...] = ()
    notes: tuple[str, ...] = ()
    error: str = ""
    held: str = ""
    held_since: AwareDatetime | None = None
    reached: AwareDatetime | None = None

    @property
    def origin(self) -> str:
        """The name of the origin that was synced; empty for an ingestion of files."""
        return self.inputs[0] if self.command == "sync" and self.inputs else ""

    @property
    def target(self) -> RunTarget:
        """What the run is about."""
        return RunTarget(self.collection, self.origin)


def runs_of(data: Home, tenant: str) -> dict[int, IngestionRun]:
    """The tenant's runs by id, oldest first. Unreadable files are left out."""
    by_id = targets_by_run(data, tenant)
    latest = {by_id[id_].collection: id_ for id_ in sorted(by_id)}
    runs = {id_: run for id_ in sorted(by_id) if (run := read_run(data, tenant, id_, by_id[id_]))}
    return {
        id_: run
        if run.result != "running" or latest[run.collection] == id_
        else run.model_copy(update={"result": "interrupted"})
        for id_, run in runs.items()
    }


def last_runs(
    data: Home, tenant: str, origins: Mapping[str, FeedsCollection] | None = None
) -> Iterator[IngestionRun]:
    """The tenant's last finished runs, newest first: of each origin in a collection, and of its `ingest`.

    With the `origins` of the settings, those of other origins don't count: no later run mends them.
    """
    fed = {RunTarget(origin.collection, name) for name, origin in (origins or {}).items()}
    done: set[RunTarget] = set()
    for id_, target in sorted(targets_by_run(data, tenant).items(), reverse=True):
        if target in done or (target.origin and origins is not None and target not in fed):
            continue
        run = read_run(data, tenant, id_, target)
        if run and run.ended and run.target == target:
            done.add(target)
            yield run


def first_run_began(data: Home, tenant: str, collections: Collection[str]) -> datetime | None:
    """When an unfinished first ingestion of one of these collections began; None if all have finished.

    Without collections, the first ingestion of the tenant counts. A killed run counts as unfinished. Also
    None for a history that has lost its oldest runs.
    """
    by_id = sorted(targets_by_run(data, tenant).items())
    began: dict[str, datetime] = {}
    ended: set[str] = set()
    for id_, target in by_id if by_id and by_id[0][0] == FIRST else ():
        collection = target.collection
        if collection in ended or (collections and collection not in collections):
            continue
        run = read_run(data, tenant, id_, target)
        if run and run.ended is None:
            began[collection] = run.began
        elif not collections:
            return None
        else:
            began.pop(collection, None)
            ended.add(collection)
    return max(began.values(), default=None)


def run_file_name(id_: int, target: RunTarget) -> str:
    """The file of a run within its tenant's folder."""
    return f"{id_:06d}.{'.'.join(filter(None, target))}.json"


def targets_by_run(data: Home, tenant: str) -> dict[int, RunTarget]:
    """What a tenant's runs are about, by id."""
    matches = map(_FILE.fullmatch, names(data, f"runs/{tenant}"))
    return {
        int(match["id"]): RunTarget(match["collection"], match["origin"] or "") for match in matches if match
    }


def read_run(data: Home, tenant: str, id_: int, target: RunTarget) -> IngestionRun | None:
    """A run by its id; None if its file is missing or can't be read."""
    try:
        return IngestionRun.model_validate_json(
            read(data, f"runs/{tenant}/{run_file_name(id_, target)}") or b""
        )
    except (OSError, ValidationError):
        return None
