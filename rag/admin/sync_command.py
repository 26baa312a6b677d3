"""`refdesk-admin sync`: ingests the origins of the settings, one after the other; made for a scheduler.

`records` checks a stream of records, for those who write connectors, which are origins, too.
"""

from __future__ import annotations

import os
import select
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias

import click
from anyio import to_thread

from rag.access.rule import in_words
from rag.access.tenants import at_tenant
from rag.admin.command_line import command, flag
from rag.admin.dry_run import dry_run_json, make_dry_run, print_dry_run
from rag.admin.ingest_command import exit_code, known_ok_option, report_json, watch
from rag.admin.ingestion import RunOptions, access_of_origin, origin_run, rights_of, run_ingest, stated_access
from rag.admin.orphaned_documents import orphaned_documents
from rag.admin.runs_command import forget_ended_collections
from rag.admin.terminal import BUSY, FAILED, PARTLY_FAILED, Group, echo, print_json, print_note, wants_json
from rag.config.origin_settings import FolderOrigin, OriginSettings, RecordsOrigin
from rag.config.settings import Settings
from rag.errors import BusyError, ConfigurationError, RefdeskError
from rag.ingest.origins.piped_records import Problem, Stream, StreamError, longest_line
from rag.ingest.report import InterruptedRunError, Report, unmatched_notes
from rag.ingest.requested_access import Rights
from rag.report import counted


@command("sync", of_tenant=False, changes=True)
@click.argument("origins", nargs=-1, metavar="[ORIGIN]...")
@flag("--set-access", help="Also apply the origin's access to existing sources.")
@flag("--yes", help="Remove sources even if most of an origin is missing.")
@known_ok_option
@flag("--dry-run", help="Write nothing; show what would change, and who could see it.")
@flag("--watch", "watches", help="Sync folders whenever they change, until Ctrl-C.")
@flag("--quiet", help="Print nothing unless something changed or failed.")
@flag("--verbose", help="List every document, also unchanged ones.")
@flag("--log", "as_log", help="Write the progress to standard error as JSON lines.")
async def sync_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    origins: tuple[str, ...],
    set_access: bool,
    yes: bool,
    dry_run: bool,
    watches: bool,
    quiet: bool,
    **of_run: Any,  # noqa: ANN401 click's
) -> int:
    """Bring collections to the state of their origins.

    Origins are tables [origins.NAME] in the settings. Without ORIGIN, all of them are brought in. If one
    fails, the others go on. Run it from a scheduler (cron, a systemd timer) as often as you like: what is
    unchanged is not fetched, and a second run on the same collection says so and ends.

    Exits with 0 on success, 1 if every origin failed, 2 for usage errors, 3 if some documents or origins
    failed, or too many documents are missing, and 4 if the only trouble is that a collection is busy.
    """
    if watches and (dry_run or yes):
        raise click.UsageError("--watch can't be combined with --dry-run or --yes.")
    options = RunOptions(removes=yes, quiet=wants_json() or quiet, only_news=quiet, **of_run)
    sync = partial(run_origin, settings, options, set_access=set_access)
    names = selected_origins(settings, origins, quiet=quiet)
    if watches:
        await _warn_of_orphans(settings, options)
        await watch_origins(settings, names, sync, are_named=bool(origins))
        return 0
    attempt = partial(_dry_run_result, settings, set_access=set_access, yes=yes)
    synced = partial(_sync_result, sync, known_ok=options.known_ok)
    codes: list[int] = []
    results: dict[str, Any] = {}
    for name in names:
        code, results[name] = await _attempt(name, attempt if dry_run else synced)
        codes.append(code)
    if not (origins or dry_run):
        with suppress(RefdeskError):  # the sync itself reports a desk that can't be read
            await forget_ended_collections(settings)
    if not (origins or quiet):
        await _warn_of_orphans(settings, options)
    if not quiet:
        _note_unmatched_rules(settings, results, options)
    print_json({"origins": results})
    if set(codes) <= {0, BUSY}:
        return max(codes, default=0)
    return FAILED if set(codes) == {FAILED} else PARTLY_FAILED


async def _warn_of_orphans(settings: Settings, options: RunOptions) -> None:
    with suppress(RefdeskError):  # the sync itself reports a desk that can't be read
        for orphans in await orphaned_documents(settings):
            print_note(str(orphans), as_log=options.as_log)


def _note_unmatched_rules(
    settings: Settings, results: Mapping[str, Mapping[str, Any]], options: RunOptions
) -> None:
    """Note the access rules that match no document. Only a run of all origins can tell."""
    if results.keys() != settings.origins.keys():
        return
    unmatched = set.intersection(*(set(result.get("unmatched_rules", ())) for result in results.values()))
    patterns = (rule.path for rule in settings.access.rules if rule.path in unmatched)
    for note in unmatched_notes(patterns, settings.access.rules):
        print_note(note, as_log=options.as_log)


Result: TypeAlias = "tuple[int, dict[str, Any]]"
"""The exit code of an origin, and its report as JSON."""


async def _attempt(name: str, attempt: Callable[[str], Awaitable[Result]]) -> Result:
    """The result of one origin. A failure is printed, and doesn't stop the other origins."""
    try:
        return await attempt(name)
    except InterruptedRunError as error:
        echo(f"refdesk-admin: {name}: {error}", err=True)
        return PARTLY_FAILED, report_json(error.report) | {"error": str(error)}
    except RefdeskError as error:
        echo(f"refdesk-admin: {name}: {error}", err=True)
        return BUSY if isinstance(error, BusyError) else FAILED, {"error": str(error)}


async def _sync_result(sync: Callable[[str], Awaitable[Report]], name: str, *, known_ok: bool) -> Result:
    report = await sync(name)
    return exit_code(report, known_ok=known_ok), report_json(report)


async def _dry_run_result(settings: Settings, name: str, *, set_access: bool, yes: bool) -> Result:
    of_origin, paths, collection, rights = _target(settings, name, set_access=set_access)
    run = None if paths else partial(origin_run, of_origin, name)
    rehearsed = await make_dry_run(of_origin, paths, collection, rights, removes=yes, origin=run)
    echo(f"{name}:")
    print_dry_run(rehearsed)
    return exit_code(rehearsed.report), dry_run_json(rehearsed, report_json(rehearsed.report))


async def watch_origins(
    settings: Settings, names: Iterable[str], sync: Callable[[str], Awaitable[Report]], *, are_named: bool
) -> None:
    """Sync the folders among these origins, and again whenever something changes in them.

    Raises:
        ConfigurationError: no origin is a folder, or (if they `are_named`) one of them isn't.
    """
    folders: dict[Path, str] = {}
    for name in names:
        origin = settings.origins[name]
        if isinstance(origin, FolderOrigin):
            folders[origin.path] = name
        elif are_named:
            raise ConfigurationError(
                f"{name} is not a folder, so it can't be watched. Sync it from a scheduler."
            )
    if not folders:
        raise ConfigurationError("No origin is a folder, so there is nothing to watch. Use a scheduler.")

    async def run(changed: list[str]) -> None:
        for name in changed:
            try:
                report = await sync(name)
            except RefdeskError as error:
                echo(f"refdesk-admin: {name}: {error}", err=True)
            else:
                print_json({"origins": {name: report_json(report)}})

    await watch(folders, run, without=settings.data)


def selected_origins(settings: Settings, names: Iterable[str], *, quiet: bool) -> list[str]:
    """The origins to sync, each once: the named ones, or all that don't read standard input.

    Raises:
        ConfigurationError: the settings have no origins or not this one, two read standard input, or data is
            piped in for an origin that isn't named.
    """
    if not settings.origins:
        raise ConfigurationError(
            "The settings have no origins. Add a table [origins.NAME] as in config.example.toml."
        )
    selected = list(dict.fromkeys(names))
    for name in selected:
        if name not in settings.origins:
            raise ConfigurationError(f"There is no origin {name!r}. Origins: {', '.join(settings.origins)}.")
    piped = [name for name in selected or settings.origins if takes_stdin(settings.origins[name])]
    if selected:
        if len(piped) > 1:
            raise ConfigurationError(f"Only one origin can read standard input, not {', '.join(piped)}.")
        return selected
    unpiped = [name for name in settings.origins if name not in piped]
    if piped and (not unpiped or _is_piped_in()):
        raise ConfigurationError(
            f"Nothing was synced: {', '.join(piped)} must be named to take records from standard input. Run "
            f"refdesk-admin sync {piped[0]} < FILE."
        )
    for name in () if quiet else piped:
        echo(f"{name} takes records from standard input: run refdesk-admin sync {name} < FILE.", err=True)
    return unpiped


def _is_piped_in() -> bool:
    """Whether standard input has data, without waiting: cron opens a pipe that never has any."""
    if sys.platform == "win32" or sys.stdin is None or sys.stdin.isatty():
        return False  # Windows can't tell without waiting
    with suppress(OSError, ValueError):  # closed
        ready, _, _ = select.select([sys.stdin], [], [], 0)
        return bool(ready and os.read(sys.stdin.fileno(), 1))
    return False


def takes_stdin(origin: OriginSettings) -> bool:
    """Whether an origin reads standard input."""
    return isinstance(origin, RecordsOrigin) and not origin.command and origin.file is None


async def run_origin(settings: Settings, options: RunOptions, name: str, *, set_access: bool) -> Report:
    """Sync one origin; raises RefdeskError if that fails as a whole."""
    if not options.only_news:  # then each line names it, if there is one
        echo(f"{name}:", err=wants_json())
    of_origin, paths, collection, rights = _target(settings, name, set_access=set_access)
    return await run_ingest(of_origin, paths, collection, replace(options, rights=rights, origin=name))


def _target(
    settings: Settings, name: str, *, set_access: bool
) -> tuple[Settings, tuple[Path, ...], str, Rights]:
    """An origin's settings, its folder if it is one, its collection, and who may see its documents.

    The settings have the tenant and the file patterns of the origin, for where its documents are.
    """
    origin = settings.origins[name]
    stated = stated_access(settings, origin.tenant or settings.principal.tenant)
    rights = rights_of(settings, access_of_origin(origin))
    rights = replace(rights, set_access=set_access, stated=stated)  # set, but not in the folders of others
    files = {"include": origin.include or settings.ingest.include}
    files["exclude"] = settings.ingest.exclude + origin.exclude
    update: dict[str, object] = {"ingest": settings.ingest.model_copy(update=files)}
    if origin.tenant is not None:
        update["principal"] = settings.principal.model_copy(update={"tenant": origin.tenant})
    paths = (origin.path,) if isinstance(origin, FolderOrigin) else ()
    return at_tenant(settings.model_copy(update=update)), paths, origin.collection, rights


SHOWN = 50  # problems


@click.group("records", cls=Group)
def records_command() -> None:
    """Check the records of a connector.

    A connector writes documents with their rights as JSON Lines: see rag/ingest/origins/records.md.
    """


@command("check", records_command, of_tenant=False)
@click.argument("file", type=click.File("rb"))
async def _check(settings: Settings, *, file: IO[bytes]) -> int:
    """Check a stream of records.

    FILE is a file, or - for standard input. Nothing is ingested.

    Exits with 0 if every line is right, 1 if not.
    """
    summary = await to_thread.run_sync(_summarise, file, settings.ingest.max_file_bytes)
    print_json(asdict(summary))
    for problem in summary.problems[:SHOWN]:
        echo(f"line {problem.line}: {problem.text}")
    if len(summary.problems) > SHOWN:
        echo(f"and {len(summary.problems) - SHOWN} more")
    for words, number in sorted(summary.access.items()):
        echo(f"{counted(number, 'record')} {words}")
    if summary.problems:
        echo(f"{counted(len(summary.problems), 'problem')}: this is not a valid stream of records.")
        return 1
    deleted = f" and {counted(summary.deleted, 'deletion')}" if summary.deleted else ""
    echo(f"Valid: {counted(summary.records, 'record')}{deleted}, sync {summary.sync}.")
    return 0


@dataclass(frozen=True, slots=True)
class _StreamSummary:
    """A stream's kind, its numbers of records and deletions, records by access, and problems."""

    sync: str
    records: int
    deleted: int
    access: dict[str, int]
    problems: list[Problem]


def _summarise(file: IO[bytes], max_bytes: int) -> _StreamSummary:
    """Read a stream. `max_bytes` is the longest text of a record."""
    access = Counter[str]()
    deleted = 0
    stream = Stream(file, longest_line(max_bytes))
    try:
        stream.begin()
    except StreamError as error:
        return _StreamSummary("", 0, 0, {}, [Problem(1, str(error))])
    for record in stream.records():
        if record.deleted:
            deleted += 1
        else:
            access[in_words(record.access) if record.access else "without access"] += 1
    return _StreamSummary(stream.sync, access.total(), deleted, dict(access), stream.problems)
