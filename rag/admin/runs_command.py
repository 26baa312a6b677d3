"""`refdesk-admin runs`: the history of ingestion runs, and how a run is recorded.

A run writes its file when it begins, and replaces it when it ends. A run that was killed leaves a file
without an end. `rag.run_history` reads the files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from rag.access.tenants import home_of, tenant_of
from rag.admin.command_line import collection_option, command, nothing_yet
from rag.admin.ingest_output import causes_text
from rag.admin.sources_command import collections_by_tenant
from rag.admin.terminal import echo, print_json, print_result, print_table
from rag.config.settings import Settings
from rag.corpus import Collection
from rag.errors import NotFoundError, RefdeskError
from rag.home import Bucket, Home, names
from rag.ingest.report import Report
from rag.report import counted, one_line
from rag.run_history import (
    FIRST,
    FailedFile,
    IngestionRun,
    RunResult,
    RunTarget,
    last_runs,
    run_file_name,
    runs_of,
    targets_by_run,
)
from rag.store.write.bucket_objects import put_new
from rag.store.write.desk_folder import make_private, remove, write
from rag.store.write.locks import locked

WAIT_SECONDS = 15
DONE = ("added", "replaced", "moved", "removed", "unchanged", "skipped", "missing")
"""The outcomes that the list counts."""
TROUBLED: dict[RunResult, str] = {
    "failed": "failed",
    "partial": "failed for some files",
    "interrupted": "was interrupted",
}
"""The results of runs that somebody should look at."""


@dataclass(frozen=True, slots=True)
class TroubledRun:
    """The last run of an origin or of `ingest`, if somebody should look at it; `text` has the command.

    `is_wrong` is true if the next run alone mends nothing: files are missing, perhaps because a share is.
    """

    collection: str
    text: str
    is_wrong: bool


def troubled_runs(runs: Iterable[IngestionRun], tenant: str) -> Iterator[TroubledRun]:
    """Those of a tenant's last runs that didn't end well."""
    for run in runs:
        if end := TROUBLED.get(run.result):
            missing = run.counts.get("missing", 0)
            if missing:
                end = f"kept the documents of {counted(missing, 'missing file')}"
            see = f"See refdesk-admin runs --collection {run.collection} --tenant {tenant}"
            since = f", and what is stored dates from {run.reached:%Y-%m-%d %H:%M}" if _is_stale(run) else ""
            text = f"the last {_act(run)} {end} on {run.began:%Y-%m-%d}{since}. {see}"
            yield TroubledRun(run.collection, text, is_wrong=missing > 0)


def _is_stale(run: IngestionRun) -> bool:
    return bool(run.origin and run.reached and run.reached != run.ended)


def _act(run: IngestionRun) -> str:
    """Example: "sync of wiki"."""
    return f"{run.command} of {run.origin}" if run.origin else run.command


class HistoryEntry:
    """A run's entry in the history. The run sets `report` when it ends by itself."""

    def __init__(self) -> None:
        self.report: Report | None = None


@contextmanager
def keep_in_history(
    data: Home, collection: Collection, name: str, inputs: Iterable[object]
) -> Iterator[HistoryEntry]:
    """Keep the enclosed run of a collection in the history. Call it under the collection's lock.

    `name` is the command, and `inputs` what it ingests. A history that can't be written doesn't stop the run;
    standard error says so.
    """
    run = IngestionRun(
        collection=collection.name,
        command=name,
        inputs=tuple(one_line(str(path)) for path in inputs),
        began=now(),
    )
    id_: int | None = None
    tenant, entry = collection.tenant, HistoryEntry()
    with _kept_if_possible():
        if before := last_run(data, collection, run.origin):
            update = {"held": before.held, "held_since": before.held_since, "reached": before.reached}
            run = run.model_copy(update=update)
        id_ = _begin(data, tenant, run)
    try:
        yield entry
        run = _ended_run(run, entry.report)
    except BaseException as error:
        run = _failed_run(run, error)
        raise
    finally:
        if id_ is not None:
            with _kept_if_possible():
                end_run(data, tenant, id_, run)


def last_run(data: Home, collection: Collection, origin: str) -> IngestionRun | None:
    """The last finished run of the collection: the origin's, or of `ingest`.

    Raises:
        StoreError: the bucket can't be read.
    """
    target = RunTarget(collection.name, origin)
    return next((run for run in last_runs(data, collection.tenant) if run.target == target), None)


def _begin(data: Home, tenant: str, run: IngestionRun) -> int:
    if isinstance(data, Bucket):
        return begin_run(data, tenant, run)
    with locked(data, f"{tenant}.runs", seconds=WAIT_SECONDS):  # two runs must not get one id
        return begin_run(data, tenant, run)


@contextmanager
def _kept_if_possible() -> Iterator[None]:
    try:
        yield
    except (OSError, RefdeskError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        echo(f"Note: this run is not kept in the history (refdesk-admin runs): {reason}", err=True)


def _failed_run(run: IngestionRun, error: BaseException) -> IngestionRun:
    """The run after an error: one of ours, an interruption by the operator, or a fault."""
    is_ours = isinstance(error, RefdeskError | OSError)
    result = "failed" if isinstance(error, Exception) else "interrupted"
    message = one_line(str(error)) if is_ours else type(error).__name__
    return run.model_copy(update={"ended": now(), "result": result, "error": message})


def _ended_run(run: IngestionRun, report: Report | None) -> IngestionRun:
    if report is None:
        return run.model_copy(update={"ended": now(), "result": "failed"})
    stored = [outcome for outcome in report.outcomes if outcome.outcome in {"added", "replaced"}]
    failures = [
        FailedFile(path=outcome.path, reason=one_line(outcome.reason), cause=outcome.cause or "damaged")
        for outcome in report.outcomes
        if outcome.outcome == "skipped"
    ]
    is_reached = not (report.held or any(failure.cause == "unreachable" for failure in failures))
    held, ended = report.held, now()
    since = (run.held == held and run.held_since) or run.began
    return run.model_copy(
        update={
            "ended": ended,
            "result": "complete" if report.complete else "failed" if report.fruitless else "partial",
            "counts": dict(report.counts),
            "chunks": sum(outcome.chunks for outcome in stored),
            "causes": dict(Counter(failure.cause for failure in failures)),
            "failed": tuple(failures[:NAMED_FAILURES]),
            "notes": report.notes,
            "reached": ended if is_reached else run.reached,
            "held": held,
            "held_since": since if held else None,
        }
    )


def count_known_failures(data: Home, collection: Collection, origin: str, report: Report) -> int:
    """How many failures of a run are known: same file, same reason, and the file hasn't changed since.

    A document of an origin that isn't a folder is known if the origin's last run reported the same. An
    unreachable origin or path is never known.
    """
    failed = [outcome for outcome in report.outcomes if outcome.outcome == "skipped"]
    of_files: dict[str, tuple[str, datetime]] = {}
    of_origin: dict[str, tuple[str, datetime]] = {}
    for run in runs_of(data, collection.tenant).values() if failed else ():
        if run.collection == collection.name and run.counts:  # without counts, it ended early
            reported = {failure.path: (failure.reason, run.began) for failure in run.failed}
            of_files |= reported
            of_origin = reported if run.origin == origin else of_origin
    return sum(
        1
        for outcome in failed
        if (before := (of_files if Path(outcome.path).is_absolute() else of_origin).get(outcome.path))
        and outcome.cause != "unreachable"
        and before[0] == one_line(outcome.reason)
        and _is_unchanged(Path(outcome.path), before[1])
    )


def _is_unchanged(path: Path, since: datetime) -> bool:
    """Whether a file or folder, or the archive that contains it, is unchanged since then."""
    if not path.is_absolute():  # from an origin: the same failure is all there is to compare
        return True
    try:
        file = next(ancestor for ancestor in (path, *path.parents) if ancestor.exists())
        status = file.stat()
    except OSError:
        return False
    latest = datetime.fromtimestamp(max(status.st_mtime, status.st_ctime), UTC)
    is_it = file == path or file.is_file()  # not a folder that the path has left
    return is_it and latest <= since + timedelta(seconds=1)  # runs have no fractions of seconds


@command("runs")
@click.argument("run", type=click.IntRange(1), metavar="[ID]", required=False)
@collection_option(None)
async def runs_command(settings: Settings, *, run: int | None, collection: str | None) -> None:
    """List the last ingestions, or show one with its failures.

    A run that was killed shows as running until the next run of its collection begins; from then on it is
    interrupted. Times are UTC.
    """
    runs = runs_of(settings.home, tenant_of(settings))
    chosen = {id_: entry for id_, entry in runs.items() if collection in {None, entry.collection}}
    if run is not None:
        if run not in chosen:
            raise NotFoundError(f"There is no run {run}. refdesk-admin runs lists those that are kept.")
        print_result(_json(run, chosen[run]), *_lines(run, chosen[run]))
        return
    titles = ("ID", "BEGAN", "TOOK", "COLLECTION", "COMMAND", "RESULT", "FILES")
    rows = [_row(id_, entry) for id_, entry in chosen.items()]
    print_json({"runs": [_json(id_, entry) for id_, entry in chosen.items()]})
    print_table([titles, *rows], empty=nothing_yet("runs"))


def _row(id_: int, run: IngestionRun) -> tuple[str, ...]:
    files = ", ".join(f"{run.counts[name]} {name}" for name in DONE if run.counts.get(name))
    began = run.began.strftime("%Y-%m-%d %H:%M:%S")
    return str(id_), began, duration(run), run.collection, _act(run), run.result, files or run.error or "-"


def duration(run: IngestionRun) -> str:
    """Example: 75 seconds -> "1:15"."""
    if run.ended is None:
        return "-"
    minutes, seconds = divmod(max(0, round((run.ended - run.began).total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _lines(id_: int, run: IngestionRun) -> Iterator[str]:
    yield f"Run {id_}: {_act(run)} into {run.collection}, {run.result}"
    yield f"  Began  {run.began:%Y-%m-%d %H:%M:%S}, took {duration(run)}"
    yield from (f"  Input  {path}" for path in run.inputs)
    if run.counts:
        counts = ", ".join(f"{count} {name}" for name, count in run.counts.items() if count)
        yield f"  Files  {counts or 'none'}; {counted(run.chunks, 'chunk')} stored"
    if run.causes:
        yield f"  Failed {causes_text(run.causes)}"
    yield from (f"    {failure.path}: {failure.reason}" for failure in run.failed)
    if unnamed := sum(run.causes.values()) - len(run.failed):
        yield f"    and {counted(unnamed, 'file')} more"
    yield from (f"  Note   {text}" for text in filter(None, (*run.notes, run.error)))


def _json(id_: int, run: IngestionRun) -> dict[str, Any]:
    return {"id": id_} | run.model_dump(mode="json")


MOST_RUNS = 100  # runs of a tenant
NAMED_FAILURES = 100  # files of a run that are listed with their reasons


def begin_run(data: Home, tenant: str, run: IngestionRun) -> int:
    """Write the file of a run that begins now. Returns its id, which counts up over the tenant's runs.

    Call it under the collection's lock, in a folder also under that of the history. The oldest runs beyond
    `MOST_RUNS` are removed, but not the last one of an origin.

    Raises:
        OSError, ConfigurationError, StoreError: the folder or the bucket can't be written.
    """
    numbered = targets_by_run(data, tenant)
    last = {target: id_ for id_, target in sorted(numbered.items()) if target.origin}.values()
    for id_ in sorted(numbered)[: -MOST_RUNS + 1 or None] if len(numbered) >= MOST_RUNS else ():
        if id_ in last and id_ != FIRST:  # without the first, a history is known to be cut
            continue
        remove(data, _name(tenant, id_, numbered[id_]), _claim(tenant, id_))
    id_ = max(numbered, default=0) + 1
    while isinstance(data, Bucket) and not put_new(data, _claim(tenant, id_), b""):
        id_ += 1  # of another collection's run that begins now
    _write(data, _name(tenant, id_, run.target), run)
    return id_


def end_run(data: Home, tenant: str, id_: int, run: IngestionRun) -> None:
    """Replace the file of a run, in one step. Raises as `begin_run`."""
    _write(data, _name(tenant, id_, run.target), run)


def forget_names(data: Home, tenant: str, collection: str) -> None:
    """Remove names of files and notes from the runs of a collection: they may name purged documents."""
    for id_, run in runs_of(data, tenant).items():
        if run.collection == collection:
            inputs = run.inputs if run.origin else ()
            bare = run.model_copy(update={"failed": (), "notes": (), "inputs": inputs, "error": ""})
            end_run(data, tenant, id_, bare)


def forget_runs(data: Home, tenant: str, collection: str = "") -> bool:
    """Remove all runs of a tenant, or of one of its collections. Returns whether there were any."""
    folder = f"runs/{tenant}"
    gone = names(data, folder)
    if collection:
        runs = targets_by_run(data, tenant).items()
        gone = tuple(run_file_name(id_, target) for id_, target in runs if target.collection == collection)
    remove(data, *(f"{folder}/{name}" for name in gone))
    if not isinstance(data, Bucket):
        with suppress(OSError):  # others are left, or there were none
            (data / folder).rmdir()
    return bool(gone)


async def forget_ended_collections(settings: Settings) -> None:
    """Remove the runs into collections that neither exist nor are named by an origin: no other mends them."""
    fed = {origin.collection for origin in settings.origins.values()}
    for tenant, collections in (await collections_by_tenant(settings)).items():
        home = home_of(settings, tenant)
        ran = {run.collection for run in last_runs(home, tenant)}
        for name in ran - fed - {collection.name for collection in collections}:
            forget_runs(home, tenant, name)


def now() -> datetime:
    """The time as runs record it."""
    return datetime.now(UTC).replace(microsecond=0)


def _name(tenant: str, id_: int, target: RunTarget) -> str:
    return f"runs/{tenant}/{run_file_name(id_, target)}"


def _claim(tenant: str, id_: int) -> str:
    """The object that gives a run in a bucket its id: only one can create it. It takes no lease for that."""
    return f"runs/{tenant}/{id_:06d}"


def _write(data: Home, name: str, run: IngestionRun) -> None:
    if not isinstance(data, Bucket):
        make_private((data / name).parent)
    write(data, name, run.model_dump_json().encode("utf-8", "replace"))
