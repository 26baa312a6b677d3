"""Records ingestion runs: a run writes its file when it begins, and replaces it when it ends.

A run that was killed leaves a file without an end; the next run of the collection, which holds the same lock,
marks it as interrupted. `rag.run_history` reads the files.
"""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime

from rag.home import Bucket, Home
from rag.run_history import IngestionRun, collections_by_run, read_run, run_file_name, runs_of
from rag.store.write.bucket_objects import delete, put

MOST_RUNS = 100  # runs of a tenant
NAMED_FAILURES = 100  # files of a run that are listed with their reasons


def begin_run(data: Home, tenant: str, run: IngestionRun) -> int:
    """Write the file of a run that begins now. Returns its id, which counts up over the tenant's runs.

    Call it under the collection's lock: the last runs of the collection are marked as interrupted if they
    have no end. The oldest runs beyond `MOST_RUNS` are removed.

    Raises:
        OSError: the folder can't be written.
        StoreError: the bucket can't be.
    """
    numbered = collections_by_run(data, tenant)
    for id_ in sorted((id_ for id_, name in numbered.items() if name == run.collection), reverse=True):
        former = read_run(data, tenant, id_, run.collection)
        if former and former.result != "running":
            break  # when it began, it marked those before it
        if former:
            end_run(data, tenant, id_, former.model_copy(update={"result": "interrupted"}))
    for id_ in sorted(numbered)[: -MOST_RUNS + 1 or None] if len(numbered) >= MOST_RUNS else ():
        _delete(data, _name(tenant, id_, numbered[id_]))
    id_ = max(numbered, default=0) + 1
    _write(data, _name(tenant, id_, run.collection), run)
    return id_


def end_run(data: Home, tenant: str, id_: int, run: IngestionRun) -> None:
    """Replace the file of a run, in one step.

    Raises:
        OSError: the folder can't be written.
        StoreError: the bucket can't be.
    """
    _write(data, _name(tenant, id_, run.collection), run)


def forget_names(data: Home, tenant: str, collection: str) -> None:
    """Remove names of files and notes from the runs of a collection: they may name purged documents.

    Raises:
        OSError: the folder can't be written.
        StoreError: the bucket can't be.
    """
    for id_, run in runs_of(data, tenant).items():
        if run.collection == collection:
            bare = run.model_copy(update={"failed": (), "notes": (), "inputs": (), "error": ""})
            end_run(data, tenant, id_, bare)


def forget_runs(data: Home, tenant: str) -> None:
    """Remove all runs of a tenant.

    Raises:
        OSError: the folder can't be written.
        StoreError: the bucket can't be.
    """
    for id_, collection in collections_by_run(data, tenant).items():
        _delete(data, _name(tenant, id_, collection))
    if not isinstance(data, Bucket):
        with suppress(FileNotFoundError):
            (data / "runs" / tenant).rmdir()


def now() -> datetime:
    """The time as runs record it."""
    return datetime.now(UTC).replace(microsecond=0)


def _name(tenant: str, id_: int, collection: str) -> str:
    return f"runs/{tenant}/{run_file_name(id_, collection)}"


def _delete(data: Home, name: str) -> None:
    if isinstance(data, Bucket):
        delete(data, [name])
    else:
        (data / name).unlink(missing_ok=True)


def _write(data: Home, name: str, run: IngestionRun) -> None:
    content = run.model_dump_json().encode("utf-8", "replace")
    if isinstance(data, Bucket):
        put(data, name, content)
        return
    file = data / name
    for folder in (file.parent.parent, file.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    draft = file.with_suffix(".draft")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
        opened.write(content)
    draft.replace(file)
