"""`refdesk-admin ingest`."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import anyio
import click
from anyio import to_thread

from rag.access.rule import narrower, same_access, valid_name
from rag.access.tenants import tenant_of
from rag.admin.access_command import access_json, access_options, requested_access
from rag.admin.audit_command import ActName, access_act, log_act
from rag.admin.chosen_embedder import (
    ChosenEmbedder,
    chosen_embedder,
    foreign_documents_notes,
    with_bill,
    with_cache,
)
from rag.admin.command_line import (
    NamedPath,
    collection_option,
    command,
    keep_overview,
    language_option,
    write_page,
)
from rag.admin.connect.connect_command import how_to_connect
from rag.admin.dry_run import DryRun, dry_run_json, make_dry_run, print_dry_run, run_estimate
from rag.admin.ingest_output import ingestion_report, print_summary
from rag.admin.orphaned_documents import note_folders, orphaned_by_command
from rag.admin.progress_bar import log_line, shown_progress
from rag.admin.runs_command import count_known_failures, keep_in_history
from rag.admin.sharing import exposures, first_visibility, usual_visibility
from rag.admin.terminal import echo, print_json
from rag.admin.watch_folders import watch
from rag.config.origin_settings import FolderOrigin, OriginSettings
from rag.config.settings import DEFAULT_COLLECTION, Settings
from rag.corpus import Access, Collection, LanguageChoice, Visibility
from rag.errors import ConfigurationError
from rag.home import look_once
from rag.ingest.admission import open_moderation, unasked
from rag.ingest.ingest_run import Executor, GentleExecutor, Instructions, ingest
from rag.ingest.report import InterruptedRunError, Progress, Report
from rag.ingest.requested_access import RequestedAccess, Rights
from rag.models.embed import Embedder, open_embedder
from rag.runtime import be_gentle
from rag.store.write.access_writer import Pairs
from rag.store.write.change_collection import drop_if_empty, open_writer
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.desk_folder import origins_folder
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from rag.ingest.origins.origin_run import OriginRun
    from rag.ingest.ray_cluster import Connection

PARTLY_FAILED = 3


def end_with_starter(_context: click.Context, _option: click.Parameter, is_tied: bool) -> None:  # noqa: FBT001 click's
    """A click callback: end this process when its standard input ends, on every platform and for any reason.

    Completed work is kept, as when a command is killed.
    """
    if not is_tied:
        return
    starter, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)  # processes that parse files don't wait for it, too
    os.close(empty)
    threading.Thread(target=_end_after, args=[starter], daemon=True).start()


def _end_after(pipe: int) -> None:
    while os.read(pipe, 1):
        pass
    os._exit(1)


def _tell_battery(event: Literal["paused", "resumed"], *, as_log: bool) -> None:
    if as_log:
        log_line(event, reason="battery")
    else:
        echo("Paused: this machine runs on battery." if event == "paused" else "Going on.", err=True)


known_ok_option = click.option(
    "--known-ok",
    is_flag=True,
    help="Exit with 0 if nothing failed but files that failed in an earlier run, too, and haven't changed.",
)


@command("ingest", on_bucket=True, changes=True)
@click.argument("paths", nargs=-1, required=True, type=NamedPath())
@click.option("--include", multiple=True, metavar="GLOB", help="Only files that match. Repeatable.")
@click.option(
    "--exclude", multiple=True, metavar="GLOB", help="Skip files and folders that match. Repeatable."
)
@click.option("--hidden", is_flag=True, help="Also ingest hidden files and folders.")
@click.option("--archives", is_flag=True, help="Also ingest the documents in ZIP and tar archives.")
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
@click.option("--set-access", is_flag=True, help="Also apply the access options to existing sources.")
@click.option("--yes", is_flag=True, help="Remove sources even if most files of a folder are missing.")
@known_ok_option
@click.option(
    "--estimate",
    is_flag=True,
    help="Only print what there is to embed, and what that costs and takes. Nothing is stored or sent.",
)
@click.option("--dry-run", is_flag=True, help="Write nothing; show what would change, and who could see it.")
@click.option("--watch", "watches", is_flag=True, help="Run again whenever something changes, until Ctrl-C.")
@click.option(
    "--gentle",
    is_flag=True,
    help="Use one processor at the lowest priority, and begin no file while the machine runs on battery.",
)
@click.option(
    "--on",
    default="",
    metavar="ADDRESS",
    help="Parse, cut and embed on a Ray cluster: ray://HOST:PORT, or local for one of this machine.",
)
@click.option("--verbose", is_flag=True, help="List every file, also unchanged ones and those not read.")
@click.option("--log", "as_log", is_flag=True, help="Write the progress to standard error as JSON lines.")
@click.option(
    "--tied",
    is_flag=True,
    hidden=True,  # for server.intake
    expose_value=False,
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
    hidden: bool,
    archives: bool,
    collection: str,
    language: LanguageChoice | None,
    embedder_name: str,
    visibility: Visibility | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    set_access: bool,
    yes: bool,
    known_ok: bool,
    estimate: bool,
    dry_run: bool,
    watches: bool,
    gentle: bool,
    on: str,
    verbose: bool,
    as_log: bool,
    page: Path | None,
    as_json: bool,
) -> int:
    """Ingest files and folders into a collection.

    Run it again at any time: unchanged files are skipped, changed files replaced, moved files keep their
    ids and access, and sources whose files are missing from a folder are removed. GLOB patterns like "*.md"
    or "drafts/*" match a file's name or its path below the folder.

    --visibility, --allow and --deny set who may see new sources, now and in later runs on these folders.
    Existing sources keep their access unless you add --set-access.

    Empty files and files of other formats are not failures: a summary counts them. Exits with 0 on success, 1
    if all files failed, 2 for usage errors, and 3 if some files failed or too many are missing. For a
    scheduler: with --known-ok, what failed before in the same way, and hasn't changed, doesn't count.
    """
    settings = _with_files(settings, include, exclude, hidden=hidden, archives=archives)
    rights = rights_of(settings, requested_access(visibility, allow, deny), set_access=set_access)
    if estimate and (page or verbose or as_log):
        raise click.UsageError("--estimate can't be combined with --report, --verbose or --log.")
    if sum((estimate, dry_run, watches, bool(page))) > 1:
        raise click.UsageError("Give only one of --estimate, --dry-run, --watch and --report.")
    _check_cluster(settings, on, alone=not (estimate or dry_run or watches or gentle))
    if gentle:
        be_gentle()
    target = settings, paths, collection, rights
    if estimate:
        return exit_code(await run_estimate(*target, embedder_name=embedder_name, as_json=as_json))
    if dry_run:
        rehearsed = await make_dry_run(*target, removes=yes, embedder_name=embedder_name)
        return show_dry_run(rehearsed, as_json=as_json)
    if page:
        _check_page(page, paths)
    options = RunOptions(
        language=language,
        embedder_name=embedder_name,
        rights=rights,
        removes=yes,
        verbose=verbose,
        as_log=as_log,
        quiet=as_json,
        on=on,
        executor=GentleExecutor(tell=partial(_tell_battery, as_log=as_log)) if gentle else None,
    )
    once = partial(run_ingest, settings, paths, collection, options)
    if watches:
        await watch_paths(paths, once, without=settings.data, as_json=as_json)
        return 0
    return exit_code(await _ingest_once(once, collection, page, as_json=as_json), known_ok=known_ok)


def _with_files(
    settings: Settings, include: tuple[str, ...], exclude: tuple[str, ...], *, hidden: bool, archives: bool
) -> Settings:
    """The settings with the choice of files that the options make; what they leave out stays."""
    chosen: dict[str, object] = {"include": include, "exclude": settings.ingest.exclude + exclude}
    chosen |= {"hidden": hidden, "archives": archives}
    options = settings.ingest.model_copy(update={key: value for key, value in chosen.items() if value})
    return settings.model_copy(update={"ingest": options})


async def _ingest_once(
    once: Callable[[], Awaitable[Report]], collection: str, page: Path | None, *, as_json: bool
) -> Report:
    """Ingest, and print or write the report, even if the run ends early."""
    failure = None
    try:
        report = await once()
    except InterruptedRunError as error:
        failure, report = error, error.report
    if page:
        await write_page(page, ingestion_report(report, collection))
    if as_json:
        print_json(report_json(report))
    if failure:
        raise failure
    _tell_next_step(report, as_json=as_json)
    return report


def _tell_next_step(report: Report, *, as_json: bool) -> None:
    """Tell a person at a terminal how to connect an assistant, unless a host has an entry already."""
    is_interactive = sys.stderr.isatty() and not as_json and not report.fruitless
    if is_interactive and (connecting := how_to_connect()):
        echo(f"Connect an assistant: {connecting}", err=True)


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


async def watch_paths(
    paths: Iterable[Path], once: Callable[[], Awaitable[Report]], *, without: Path, as_json: bool
) -> None:
    """Ingest once, and again whenever something changes at these paths."""

    async def run(_names: list[str]) -> None:
        report = await once()
        if as_json:
            print_json(report_json(report))

    # A file is watched through its folder: editors replace it.
    folders = {path if path.is_dir() or not path.exists() else path.parent: "" for path in paths}
    await watch(folders, run, without=without)


def show_dry_run(rehearsed: DryRun, *, as_json: bool) -> int:
    """Print what a run would do. Returns its exit code."""
    if as_json:
        print_json(dry_run_json(rehearsed, report_json(rehearsed.report)))
    else:
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
    try:
        page.open("a").close()  # an earlier report stays until this run has ended
    except OSError as error:
        raise ConfigurationError(f"Cannot write the report {page}: {error.strerror}.") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an ingestion runs, and what it shows.

    Without an `embedder_name`, a new collection gets the embedder that fits the documents. Without `rights`,
    the settings and the collection decide. `removes` allows removing most of a folder's sources. `verbose`
    lists every file, and `as_log` writes the progress as JSON lines; the summary goes to standard error if
    `quiet`. `origin` is the name of the origin to ingest. With `only_news`, a run in which nothing happened
    prints nothing, and the lines of any other run begin with the origin; with `known_ok`, failures of an
    earlier run don't count as news. `on` is the address of a Ray cluster to work on, and `executor` what
    prepares documents instead of the usual one.
    """

    quiet: bool
    language: LanguageChoice | None = None
    embedder_name: str = ""
    rights: Rights | None = None
    removes: bool = False
    verbose: bool = False
    as_log: bool = False
    origin: str = ""
    only_news: bool = False
    known_ok: bool = False
    on: str = ""
    executor: Executor | None = None

    @property
    def line_start(self) -> str:
        """What each printed line begins with."""
        return f"{self.origin}: " if self.only_news else ""

    @property
    def act(self) -> Literal["sync", "ingest"]:
        """The run's name in the history and in the audit log."""
        return "sync" if self.origin else "ingest"


async def run_ingest(
    settings: Settings, paths: tuple[Path, ...], collection: str, options: RunOptions
) -> Report:
    """Run an ingestion with progress and a summary. Only an origin that is no folder goes without paths.

    Raises:
        InterruptedRunError: the run ended early. Its summary has been printed.
    """
    name, tenant, began = valid_name(collection), tenant_of(settings), datetime.now(UTC)
    async with AsyncExitStack() as stack:
        stack.callback(look_once, settings.common_home, settings.home)  # the next run asks again
        connection = await stack.enter_async_context(_connection(options.on))
        make = partial(
            ensure_collection, settings.home, tenant, name, language=options.language, created_at=began
        )
        make = partial(make, visibility=first_visibility(settings))
        choose = partial(chosen_embedder, settings, tenant, name, paths, options.embedder_name)
        choice, embedder, target = await _target(settings, stack, choose, make)
        usual = usual_visibility(settings, target)
        rights = replace(options.rights or rights_of(settings), usual=usual)
        options = replace(options, rights=rights, embedder_name=choice.name)
        summary = partial(
            print_summary, collection=name, usual=usual, quiet=options.quiet, before=options.line_start
        )
        try:
            async with _no_leftover(settings, target, began):
                report = await _ingest_into(target, settings, paths, embedder, connection, options)
        except InterruptedRunError as error:
            summary(error.report)
            raise
    report = replace(report, embedder=choice.reason)
    if report.fruitless and target.created_at == began:
        await drop_if_empty(settings.home, target)
    await keep_overview(settings.home, tenant)  # a watch, or the console, goes on after it
    if not options.only_news or report.has_news(known_ok=options.known_ok):
        summary(report)
    return report


async def _ingest_into(
    target: Collection,
    settings: Settings,
    paths: tuple[Path, ...],
    embedder: Embedder,
    connection: Connection | None,
    options: RunOptions,
) -> Report:
    """Ingest into an open collection, and keep the run in its history.

    Raises:
        InterruptedRunError: the run ended early. What it committed counts, and was paid for.
    """
    assert options.rights  # noqa: S101 run_ingest has set them
    model = settings.embedder_named(options.embedder_name)
    around = partial(_log_changed_access, settings.data, options.act, target.tenant)
    async with (
        open_moderation(settings.moderation, os.environ) as moderator,
        open_writer(settings.home, target, around=around) as writer,
    ):
        instructions = Instructions.of(settings, options.rights, removes=options.removes, moderator=moderator)
        cluster = None
        if connection:
            cluster = await connection.cluster(model, embedder, writer.collection, options.rights)
        if executor := cluster or options.executor:
            instructions = replace(instructions, executor=executor)
        working = cluster.embedder(embedder) if cluster else embedder
        async with with_cache(settings, target, working) as cached:
            run = None if paths else origin_run(settings, options.origin, target)
            inputs = [options.origin] if options.origin else paths
            note_folders(settings.home, target, paths, options.origin)
            with keep_in_history(settings.home, target, options.act, inputs) as entry:
                try:
                    with _progress(options) as progress:
                        report = await ingest(writer, cached, run or paths, instructions, progress)
                except InterruptedRunError as error:
                    error.report = entry.report = with_bill(error.report, cached, model)
                    raise
                report = await _with_notes(settings, writer, report, by_command=not options.origin)
                entry.report = report = with_bill(report, cached, model)
            if run:  # the origin's state follows the commit: a crash before it only repeats work
                await to_thread.run_sync(run.keep, await writer.known_sources(), report.outcomes)
    return report


def _progress(options: RunOptions) -> AbstractContextManager[Progress]:
    return shown_progress(verbose=options.verbose, as_log=options.as_log, quiet=options.only_news)


async def _target(
    settings: Settings,
    stack: AsyncExitStack,
    choose: Callable[[], Awaitable[ChosenEmbedder]],
    make: Callable[..., Awaitable[Collection]],
) -> tuple[ChosenEmbedder, Embedder, Collection]:
    """The embedder to work with, open as long as the stack, and the collection, made if it is new.

    Another run may make the collection while this one chooses. Then the collection's embedder counts.

    Raises:
        ConfigurationError: the embedder can't be loaded, or isn't that of the collection.
    """
    choice = await choose()
    while True:
        opening = open_embedder(settings.embedder_named(choice.name), os.environ)
        embedder = await stack.enter_async_context(opening)
        try:
            target = await make(embedder.identity, embedder_name=choice.name, known=choice.collection)
        except ConfigurationError:
            if choice.collection:
                raise
            choice = await choose()
            if not choice.collection:
                raise
        else:
            return choice, embedder, target


def _log_changed_access(data: Path, name: ActName, tenant: str, pairs: Pairs) -> AbstractContextManager[None]:
    """The logging of the access records that an ingestion changes."""
    changed = {
        id_: (before, after)
        for id_, (before, after) in pairs.items()
        if before is None or not same_access(before.access, after.access)
    }
    return log_act(data, access_act(name, tenant, changed)) if changed else nullcontext()


async def _with_notes(
    settings: Settings, writer: CollectionWriter, report: Report, *, by_command: bool
) -> Report:
    """The report with notes on the model and on what is open to others, and the number of known failures.

    `by_command`: no origin was read, so the report tells of folders that no run reads any more.
    """
    collection = writer.collection
    former = await orphaned_by_command(settings, writer) if by_command else []
    foreign = await foreign_documents_notes(settings, writer, report)
    exposed = [str(exposure) for exposure in await exposures(settings, collection.tenant, collection.name)]
    known_failures = count_known_failures(settings.home, collection, report)
    notes = (*report.notes, *foreign, *map(str, former), *exposed)
    return replace(report, notes=notes, known_failures=known_failures)


@asynccontextmanager
async def _connection(address: str) -> AsyncIterator[Connection | None]:
    """The Ray cluster at an address; None without an address, and then Ray isn't imported."""
    if not address:
        yield None
        return
    from rag.ingest.ray_cluster import connect  # noqa: PLC0415 most runs are on one machine

    echo("Connecting to Ray …", err=True)
    async with connect(address) as connection:
        yield connection


def origin_run(
    settings: Settings, name: str, collection: Collection, scratch: Path | None = None
) -> OriginRun:
    """The run over an origin. With `scratch`, it keeps its files there and not in the data folder."""
    from rag.ingest.origins.guarded_http import user_agent  # noqa: PLC0415 no command needs it without origins
    from rag.ingest.origins.origin_run import OriginRun  # noqa: PLC0415 the same

    return OriginRun(
        name,
        settings.origins[name],
        settings.ingest,
        origins_folder(settings.home, collection.tenant, collection.name),
        agent=user_agent(settings.server.name),
        environment=os.environ,
        stdin=sys.stdin.buffer,
        scratch=scratch,
    )


@asynccontextmanager
async def _no_leftover(settings: Settings, collection: Collection, began: datetime) -> AsyncIterator[None]:
    """Drop a collection that this run made if it fails before anything is stored.

    Otherwise the collection would keep an embedder that may have been a mistake, and block the next run.
    """
    try:
        yield
    except BaseException:  # also Ctrl-C
        if collection.created_at == began:
            with anyio.CancelScope(shield=True):
                await drop_if_empty(settings.home, collection)
        raise


def rights_of(
    settings: Settings, requested: RequestedAccess | None = None, *, set_access: bool = False
) -> Rights:
    """The access of ingested sources, by the options and the settings.

    With `set_access`, the options go before what the settings state for folders, too.
    """
    access = settings.access
    return Rights(
        "tenant",
        requested,
        access.rules,
        of_documents=access.of_documents,
        set_access=set_access,
        stated={} if requested and set_access else stated_access(settings, settings.principal.tenant),
    )


def stated_access(settings: Settings, tenant: str | None) -> dict[str, Access]:
    """What the folder origins of a tenant state for their folders, by the URIs of all names of these.

    Where it isn't known whose run or whose origin it is, the origin counts.
    """
    stated: dict[str, Access] = {}
    for origin in settings.origins.values():
        requested = access_of_origin(origin)
        if not (isinstance(origin, FolderOrigin) and requested):
            continue
        if len({tenant, origin.tenant or settings.principal.tenant} - {None}) > 1:
            continue
        access = requested.record("tenant")
        for uri in {path.as_uri() for path in (origin.path, Path(os.path.realpath(origin.path)))}:
            stated[uri] = narrower(stated.get(uri, access), access) or access
    return stated


def access_of_origin(origin: OriginSettings) -> RequestedAccess | None:
    """What an origin states for its new documents."""
    if origin.visibility or origin.allow or origin.deny:
        return RequestedAccess(origin.visibility, origin.allow, origin.deny)
    return None


def exit_code(report: Report, *, known_ok: bool = False) -> int:
    """0 on success, 1 if all files failed, 3 if some failed or too many are missing.

    With `known_ok`, failures of an earlier run don't count.
    """
    if known_ok and report.is_as_before:
        return 0
    if report.fruitless:
        return 1
    return 0 if report.complete else PARTLY_FAILED
