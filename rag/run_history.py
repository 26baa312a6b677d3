"""The history of ingestion runs: a small JSON file for each in the data folder's `runs/TENANT`.

Commands and the server's metrics read the files without opening the storage engine. `rag.admin.runs_command`
writes them. A run that was killed leaves a file without an end. It counts as interrupted when the next run of
its collection has begun, under the same lock. If a bucket can't be read, the functions raise a `StoreError`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from rag.home import Home, names, read

RunResult = Literal["running", "complete", "partial", "failed", "interrupted"]
"""`partial`: some files failed, or sources of missing files were kept. `failed`: all, or the run, failed."""
_FILE = re.compile(r"(?P<id>[0-9]{6,})\.(?P<collection>[^/]+)\.json")


FIRST = 1  # the id of a tenant's first run


class FailedFile(BaseModel):
    """A file that a run could not read, with the reason for people and its cause for statistics."""

    model_config = ConfigDict(frozen=True)

    path: str
    reason: str
    cause: str


class IngestionRun(BaseModel):
    """A run: `counts` of files by outcome, `causes` of failures with counts, and the first `failed` files.

    `held` stands for the sources of missing files that it kept, as a digest, and `held_since` is when the
    first of the runs in a row began that kept the same ones.

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

    @property
    def origin(self) -> str:
        """The name of the origin that was synced; empty for an ingestion of files."""
        return self.inputs[0] if self.command == "sync" and self.inputs else ""


def runs_of(data: Home, tenant: str) -> dict[int, IngestionRun]:
    """The tenant's runs by id, oldest first. Unreadable files are left out."""
    by_id = collections_by_run(data, tenant)
    latest = {by_id[id_]: id_ for id_ in sorted(by_id)}
    runs = {id_: run for id_ in sorted(by_id) if (run := read_run(data, tenant, id_, by_id[id_]))}
    return {
        id_: run
        if run.result != "running" or latest[by_id[id_]] == id_
        else run.model_copy(update={"result": "interrupted"})
        for id_, run in runs.items()
    }


def last_runs(data: Home, tenant: str) -> Iterator[IngestionRun]:
    """The last finished run of each collection of the tenant."""
    done: set[str] = set()
    for id_, collection in sorted(collections_by_run(data, tenant).items(), reverse=True):
        run = None if collection in done else read_run(data, tenant, id_, collection)
        if run and run.ended:
            done.add(collection)
            yield run


def first_run_began(data: Home, tenant: str, collections: Collection[str]) -> datetime | None:
    """When an unfinished first ingestion of one of these collections began; None if all have finished.

    Without collections, the first ingestion of the tenant counts. A killed run counts as unfinished. Also
    None for a history that has lost its oldest runs.
    """
    by_id = sorted(collections_by_run(data, tenant).items())
    began: dict[str, datetime] = {}
    ended: set[str] = set()
    for id_, collection in by_id if by_id and by_id[0][0] == FIRST else ():
        if collection in ended or (collections and collection not in collections):
            continue
        run = read_run(data, tenant, id_, collection)
        if run and run.ended is None:
            began[collection] = run.began
        elif not collections:
            return None
        else:
            began.pop(collection, None)
            ended.add(collection)
    return max(began.values(), default=None)


def run_file_name(id_: int, collection: str) -> str:
    """The file of a run within its tenant's folder."""
    return f"{id_:06d}.{collection}.json"


def collections_by_run(data: Home, tenant: str) -> dict[int, str]:
    """The collections of a tenant's runs by id."""
    matches = map(_FILE.fullmatch, names(data, f"runs/{tenant}"))
    return {int(match["id"]): match["collection"] for match in matches if match}


def read_run(data: Home, tenant: str, id_: int, collection: str) -> IngestionRun | None:
    """A run by its id; None if its file is missing or can't be read."""
    try:
        return IngestionRun.model_validate_json(
            read(data, f"runs/{tenant}/{run_file_name(id_, collection)}") or b""
        )
    except (OSError, ValidationError):
        return None
