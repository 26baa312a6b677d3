"""`refdesk-admin ingest`, and how it and `sync` watch folders (`--watch`)."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import anyio
import click

from rag.admin.access_command import access_json, access_options, requested_access
from rag.admin.command_line import (
    NamedPath,
    collection_option,
    command,
    flag,
    language_option,
    repeatable,
    write_page,
)
from rag.admin.connect.connect_command import how_to_connect
from rag.admin.dry_run import DryRun, dry_run_json, make_dry_run, print_dry_run, run_estimate
from rag.admin.ingest_output import ingestion_report
from rag.admin.ingestion import RunOptions, rights_of, run_ingest
from rag.admin.terminal import PARTLY_FAILED, echo, log_line, print_json, wants_json
from rag.config.settings import DEFAULT_COLLECTION, Settings
from rag.corpus import Visibility
from rag.errors import ConfigurationError, RefdeskError, if_system_refuses
from rag.ingest.document_admission import unasked
from rag.ingest.ingest_run import gentle_executor
from rag.ingest.report import InterruptedRunError, Report, unmatched_notes
from rag.originals import LOOK_MS, changes_in, identity, is_below
from rag.runtime import be_gentle


def end_with_starter(_context: click.Context, _option: click.Parameter, is_tied: bool) -> bool:  # noqa: FBT001 click's
    """A click callback: end this process when its standard input ends, on every platform and for any reason.

    Completed work is kept, as when a command is killed.
    """
    if not is_tied:
        return False
    starter, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)  # processes that parse files don't wait for it, too
    os.close(empty)
    threading.Thread(target=_end_after, args=[starter], daemon=True).start()
    return True


def _end_after(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os._exit(1)


def _tell_battery(event: Literal["paused", "resumed"], *, as_log: bool) -> None:
    if as_log:
        log_line(event, reason="battery")
    else:
        echo("Paused: this machine runs on battery." if event == "paused" else "Going on.", err=True)


known_ok_option = flag(
    "--known-ok",
    help="Exit with 0 if the only failures are those of an earlier run, of files that haven't changed.",
)


@command("ingest", changes=True)
@click.argument("paths", nargs=-1, required=True, type=NamedPath())
@repeatable("--include", metavar="GLOB", help="Only files that match. Repeatable.")
@repeatable("--exclude", metavar="GLOB", help="Skip files and folders that match. Repeatable.")
@flag("--archives", help="Also ingest the documents in ZIP and tar archives.")
@collection_option(DEFAULT_COLLECTION)
@language_option("a new collection")
@click.option(
    "--embedder",
    "embedder_name",
    default="",
    metavar="NAME",
    help="Embedding model of a new collection: all-minilm-l6-v2 (English), multilingual-e5-small, an "
    "installed model, or the NAME of a table [embedders.NAME]. Default: [embedder] in the settings, or else "
    "the built-in model that fits the documents.",
)
@access_options
@flag("--set-access", help="Also apply the access options to existing sources.")
@flag("--yes", help="Remove sources even if most files of a folder are missing.")
@known_ok_option
@flag(
    "--estimate",
    help="Only print how much there is to embed, at what cost and in what time. Nothing is stored or sent.",
)
@flag("--dry-run", help="Write nothing; show what would change, and who could see it.")
@flag("--watch", "watches", help="Run again whenever something changes, until Ctrl-C.")
@flag(
    "--gentle",
    help="Use one processor at the lowest priority, and begin no file while the machine runs on battery.",
)
@click.option(
    "--on",
    default="",
    metavar="ADDRESS",
    help="Parse, cut and embed on a Ray cluster: ray://HOST:PORT, or local for one of this machine.",
)
@flag("--verbose", help="List every file, also unchanged ones and those not read.")
@flag("--log", "as_log", help="Write the progress to standard error as JSON lines.")
@flag(
    "--tied",
    "is_tied",
    hidden=True,  # for server.intake
    callback=end_with_starter,
    help="End when standard input does.",
)
@click.option(
    "--report",
    "page",
    type=NamedPath(dir_okay=False),
    metavar="FILE",
    help="Write the result of every file to an HTML page.",
)
async def ingest_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    paths: tuple[Path, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    archives: bool,
    collection: str,
    visibility: Visibility | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    set_access: bool,
    yes: bool,
    estimate: bool,
    dry_run: bool,
    watches: bool,
    gentle: bool,
    page: Path | None,
    **of_run: Any,  # noqa: ANN401 click's
) -> int:
    """Ingest files and folders into a collection.

    Run it again at any time: unchanged files are skipped, changed files replaced, moved files keep their
    ids and access, and sources whose files are missing from a folder are removed. GLOB patterns like "*.md"
    or "drafts/*" match a file's name or its path below the folder.

    --visibility, --allow and --deny set who may see new sources, now and in later runs on these folders.
    Existing sources keep their access unless you add --set-access.

    Empty files and files of other formats are not failures: a summary counts them. Exits with 0 on success, 1
    if all files failed, 2 for usage errors, and 3 if some files failed or too many are missing. In a
    scheduler, add --known-ok, so that the same failure isn't reported each time.
    """
    settings = _with_files(settings, include, exclude, archives=archives)
    rights = rights_of(settings, requested_access(visibility, allow, deny), set_access=set_access)
    options = RunOptions(rights=rights, removes=yes, quiet=wants_json(), **of_run)
    if estimate and (page or options.verbose or options.as_log):
        raise click.UsageError("--estimate can't be combined with --report, --verbose or --log.")
    if sum((estimate, dry_run, watches, bool(page))) > 1:
        raise click.UsageError("Give only one of --estimate, --dry-run, --watch and --report.")
    _check_cluster(settings, options.on, alone=not (estimate or dry_run or watches or gentle))
    if gentle:
        be_gentle()
        tell = partial(_tell_battery, as_log=options.as_log)
        options = replace(options, executor=gentle_executor(tell))
    target = settings, paths, collection, rights
    if estimate:
        report = await run_estimate(*target, embedder_name=options.embedder_name)
        return exit_code(report)
    if dry_run:
        rehearsed = await make_dry_run(*target, removes=yes, embedder_name=options.embedder_name)
        unmatched = unmatched_notes(rehearsed.report.unmatched_rules, settings.access.rules)
        notes = rehearsed.report.notes + unmatched
        rehearsed = replace(rehearsed, report=replace(rehearsed.report, notes=notes))
        return show_dry_run(rehearsed)
    if page:
        _check_page(page, paths)
    once = partial(run_ingest, settings, paths, collection, options)
    if watches:
        await watch_paths(paths, once, without=settings.data)
        return 0
    return exit_code(await _ingest_once(once, collection, page), known_ok=options.known_ok)


def _with_files(
    settings: Settings, include: tuple[str, ...], exclude: tuple[str, ...], *, archives: bool
) -> Settings:
    """The settings with the files that the options choose. An option that isn't given changes nothing."""
    chosen: dict[str, object] = {"include": include, "exclude": settings.ingest.exclude + exclude}
    chosen["archives"] = archives
    options = settings.ingest.model_copy(update={key: value for key, value in chosen.items() if value})
    return settings.model_copy(update={"ingest": options})


async def _ingest_once(once: Callable[[], Awaitable[Report]], collection: str, page: Path | None) -> Report:
    """Ingest, and print or write the report, even if the run ends early."""
    failure = None
    try:
        report = await once()
    except InterruptedRunError as error:
        failure, report = error, error.report
    if page:
        await write_page(page, ingestion_report(report, collection))
    print_json(report_json(report))
    if failure:
        raise failure
    is_interactive = sys.stderr.isatty() and not wants_json() and not report.fruitless
    if is_interactive and (connecting := how_to_connect()):  # no host has an entry yet
        echo(f"Connect an assistant: {connecting}", err=True)
    return report


def _check_cluster(settings: Settings, address: str, *, alone: bool) -> None:
    """Check that a run can use the cluster at this address; an empty one means no cluster."""
    if not address:
        return
    if not alone:
        raise click.UsageError("--on can't be combined with --estimate, --dry-run, --watch or --gentle.")
    if not re.fullmatch(r"local|ray://[A-Za-z0-9.-]+:[0-9]{1,5}", address):
        raise click.UsageError(
            f"--on takes local or an address like ray://head.example:10001, not {address}."
        )
    if unasked(settings.moderation):
        raise ConfigurationError(
            "--on can't be combined with [moderation]: the moderator runs on this machine. Leave out --on."
        )


async def watch_paths(paths: Iterable[Path], once: Callable[[], Awaitable[Report]], *, without: Path) -> None:
    """Ingest once, and again whenever something changes at these paths."""

    async def run(_names: list[str]) -> None:
        report = await once()
        print_json(report_json(report))

    # A file is watched through its folder: editors replace it.
    folders = {path if path.is_dir() or not path.exists() else path.parent: "" for path in paths}
    await watch(folders, run, without=without)


def show_dry_run(rehearsed: DryRun) -> int:
    """Print what a run would do. Returns its exit code."""
    print_json(dry_run_json(rehearsed, report_json(rehearsed.report)))
    print_dry_run(rehearsed)
    return exit_code(rehearsed.report)


def report_json(report: Report) -> dict[str, Any]:
    """A report as JSON."""
    files = [
        asdict(replace(outcome, access=None)) | {"access": access_json(outcome.access)}
        for outcome in report.outcomes
    ]
    result = {
        "counts": report.counts,
        "languages": report.languages,
        "files": files,
        "notes": report.notes,
        "unmatched_rules": report.unmatched_rules,
        "known_failures": report.known_failures,
        "embedder": report.embedder,
    }
    return result | ({"embedding": asdict(report.bill) | {"cost": report.bill.cost}} if report.bill else {})


def _check_page(page: Path, paths: Iterable[Path]) -> None:
    """Check before the run, which can take hours, that its report can be written."""
    for path in paths:
        if page.resolve().is_relative_to(path.resolve()):
            raise ConfigurationError(
                f"The report {page} lies in {path}, so the next run would ingest it. Name a file elsewhere."
            )
    with if_system_refuses(ConfigurationError, f"Cannot write the report {page}"):
        page.open("a").close()  # an earlier report stays until this run has ended


def exit_code(report: Report, *, known_ok: bool = False) -> int:
    """0 on success, 1 if all files failed, 3 if some failed or too many are missing.

    With `known_ok`, failures of an earlier run don't count.
    """
    if known_ok and report.is_as_before:
        return 0
    if report.fruitless:
        return 1
    return 0 if report.complete else PARTLY_FAILED


# Watching.


async def watch(
    folders: Mapping[Path, str], run: Callable[[list[str]], Awaitable[object]], *, without: Path
) -> None:
    """Call `run` with all names, then with the names of the folders in which something changed.

    Changes in the folder `without` don't count. A failed run is reported; the next change begins another. A
    folder that disappears is awaited, and a link that leads elsewhere is followed. SIGINT and SIGTERM end the
    watch and a run in it; committed work stays.
    """

    async def attempt(names: Iterable[str]) -> None:
        try:
            if due := list(dict.fromkeys(names)):
                await run(due)
        except (RefdeskError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            echo(f"refdesk-admin: {reason} The next change begins another run.", err=True)

    real = os.path.realpath(without)  # noqa: ASYNC240 once
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_asked_to_end, tasks.cancel_scope)
        while True:
            await _watch_once(folders, attempt, real)
    echo("Watching has ended.", err=True)


async def _until_asked_to_end(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return


async def _watch_once(
    folders: Mapping[Path, str], run: Callable[[Iterable[str]], Awaitable[None]], without: str
) -> None:
    """Run with all names, then watch until a folder appears or disappears, or a link leads elsewhere."""
    places = _places(folders)
    existing = {real for real, identity in places.values() if identity}
    if not existing:
        await run(folders.values())
        while not any(identity for _, identity in _places(folders).values()):  # noqa: ASYNC110 no event comes
            await anyio.sleep(LOOK_MS / 1000)
        return
    due = list(folders.values())  # changes from before the watch were not seen
    async for paths in changes_in(existing, without=without):
        # The first turn comes once the watch is active, so no change between it and the run is missed.
        changed = [
            folder for folder, (real, _) in places.items() if any(is_below(path, real) for path in paths)
        ]
        await run([*due, *(folders[folder] for folder in changed)])
        due = []
        if (now := _places(folders)) != places or paths & existing:
            for path in existing - {real for real, identity in now.values() if identity}:
                echo(f"{path} is gone. Waiting for it.", err=True)
            return


def _places(folders: Iterable[Path]) -> dict[Path, tuple[str, tuple[int, int] | None]]:
    """Where each folder is now, for a link may lead elsewhere than before, and its identity; None if gone."""
    real = {folder: os.path.realpath(folder) for folder in folders}
    return {folder: (path, identity(path)) for folder, path in real.items()}
