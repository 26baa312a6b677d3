"""A run of `ingest` or `sync`: its options, embedder, rights, history and notes."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import anyio
from anyio import to_thread

from rag.access.rule import narrower, same_access, valid_name
from rag.access.tenants import has_tenant, tenant_of
from rag.admin.audit_command import ActName, access_act, log_act
from rag.admin.command_line import keep_overview
from rag.admin.ingest_output import print_summary
from rag.admin.orphaned_documents import note_folders, orphaned_by_command
from rag.admin.progress_bar import shown_progress
from rag.admin.runs_command import count_known_failures, keep_in_history, last_run
from rag.admin.sharing import exposures, first_visibility, usual_visibility
from rag.admin.terminal import arguments, echo
from rag.config.model_settings import ENGLISH_MODEL, MULTILINGUAL_MODEL, EmbedderSettings, model_name
from rag.config.origin_settings import FolderOrigin, OriginSettings
from rag.config.settings import Settings
from rag.corpus import Access, Collection, LanguageChoice, Vectors
from rag.errors import ConfigurationError
from rag.home import local_folder, look_once
from rag.ingest.document_admission import open_moderation
from rag.ingest.document_languages import LanguageSample, fitting_embedder
from rag.ingest.ingest_run import Executor, Instructions, ingest
from rag.ingest.report import Bill, InterruptedRunError, Report, unmatched_notes
from rag.ingest.requested_access import RequestedAccess, Rights
from rag.models.embed import CONTROL, Embedder, open_embedder
from rag.models.embed.embedding_cache import CachedEmbedder, EmbeddingCache, delete, fingerprint
from rag.report import counted
from rag.run_history import runs_of
from rag.store.read.catalog import check_embedder
from rag.store.read.desk_reader import DeskReader
from rag.store.write.access_writer import Pairs
from rag.store.write.change_collection import drop_if_empty, open_writer
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.desk_folder import judged_folder, origins_folder, read_key
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from rag.ingest.origins.origin_run import OriginRun
    from rag.ingest.ray_cluster import Connection


LONG_HELD = timedelta(days=1)  # a disk is connected again by then, or was not just forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an ingestion runs, and what it shows.

    Without an `embedder_name`, a new collection gets the embedder that fits the documents. Without `rights`,
    the settings and the collection decide. `removes` allows removing most of a folder's sources. `verbose`
    lists every file, and `as_log` writes the progress as JSON lines; the summary goes to standard error if
    `quiet`. `origin` is the name of the origin to ingest. With `only_news`, a run in which nothing happened
    prints nothing, and the lines of any other run begin with the origin; with `known_ok`, failures of an
    earlier run don't count as news. A run that `is_tied` to a server has nobody who could confirm a removal:
    what was held back for a day is removed. `on` is the address of a Ray cluster to work on, and `executor`
    what prepares documents instead of the usual one.
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
    is_tied: bool = False
    on: str = ""
    executor: Executor = field(default_factory=Executor)

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
    """Run an ingestion with progress and a summary. `paths` are empty only for an origin other than a folder.

    Raises:
        InterruptedRunError: the run ended early. Its summary has been printed.
    """
    name, tenant, began = valid_name(collection), tenant_of(settings), datetime.now(UTC)
    async with AsyncExitStack() as stack:
        stack.callback(look_once, settings.common_home, settings.home)  # the next run asks again
        connection = await stack.enter_async_context(_connection(options.on))
        make = partial(
            ensure_collection,
            settings.home,
            tenant,
            name,
            language=options.language,
            created_at=began,
            visibility=first_visibility(settings),
            tenant_is_there=has_tenant(settings.home, tenant),
        )
        choose = partial(chosen_embedder, settings, tenant, name, paths, options.embedder_name)
        choice, embedder, target = await _target(settings, stack, choose, make)
        usual = usual_visibility(settings, target)
        rights = replace(options.rights or rights_of(settings), usual=usual)
        options = replace(options, rights=rights, embedder_name=choice.name)
        summary = partial(
            print_summary,
            collection=name,
            usual=usual,
            quiet=options.quiet,
            before=options.line_start,
            as_log=options.as_log,
        )
        try:
            async with _no_leftover(settings, target, began):
                report = await _ingest_into(target, settings, paths, embedder, connection, options)
        except InterruptedRunError as error:
            summary(error.report)
            raise
    report = replace(report, embedder=choice.reason)
    if (report.fruitless or (choice.is_by_default and not options.language)) and target.created_at == began:
        await drop_if_empty(settings.home, target)  # the first run that brings documents chooses their model
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
    showing = shown_progress(verbose=options.verbose, as_log=options.as_log, quiet=options.only_news)
    around = partial(_log_changed_access, settings.data, options.act, target.tenant)
    async with (
        open_moderation(settings.moderation, os.environ) as moderator,
        open_writer(settings.home, target, around=around) as writer,
    ):
        before = last_run(settings.home, target, options.origin) if options.is_tied else None
        is_long = before and before.held_since and datetime.now(UTC) - before.held_since >= LONG_HELD
        cluster = connection and await connection.cluster(model, embedder, writer.collection, options.rights)
        instructions = Instructions(
            settings.ingest,
            options.rights,
            options.removes,
            moderator,
            cluster.executor if cluster else options.executor,
            before.held if before and is_long else "",
        )
        working = cluster.embedder(embedder) if cluster else embedder
        async with with_cache(settings, target, working) as cached:
            run = None if paths else origin_run(settings, options.origin, target)
            inputs = [options.origin] if options.origin else paths
            note_folders(settings.home, target, paths, options.origin)
            with keep_in_history(settings.home, target, options.act, inputs) as entry:
                try:
                    with showing as progress:
                        report = await ingest(writer, cached, run or paths, instructions, progress)
                except InterruptedRunError as error:
                    error.report = entry.report = with_bill(error.report, cached, model)
                    raise
                report = await _with_notes(settings, writer, report, options.origin)
                entry.report = report = with_bill(report, cached, model)
            if run:  # the origin's state follows the commit: a crash before it only repeats work
                await to_thread.run_sync(run.keep, await writer.known_sources(), report.outcomes)
    return report


async def _target(
    settings: Settings,
    stack: AsyncExitStack,
    choose: Callable[[], Awaitable[ChosenEmbedder]],
    make: Callable[..., Awaitable[Collection]],
) -> tuple[ChosenEmbedder, Embedder, Collection]:
    """The embedder, open as long as the stack, and the collection, which is made if it is new.

    Another run may make the collection while this one chooses. Then the collection's embedder counts.

    Raises:
        ConfigurationError: the embedder can't be loaded, or isn't the collection's.
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
    changed = {
        id_: (before, after)
        for id_, (before, after) in pairs.items()
        if before is None or not same_access(before.access, after.access)
    }
    return log_act(data, access_act(name, tenant, changed)) if changed else nullcontext()


async def _with_notes(settings: Settings, writer: CollectionWriter, report: Report, origin: str) -> Report:
    """The report with notes on the model and on what is open to others, and the number of known failures.

    Without an `origin`, notes also name folders that no run reads any more, and rules that applied to
    nothing. In a sync, a rule may be about other origins; `refdesk-admin sync` knows them all.
    """
    collection = writer.collection
    unmatched = unmatched_notes(report.unmatched_rules, settings.access.rules) if not origin else ()
    former = await orphaned_by_command(settings, writer) if not origin else []
    foreign = await foreign_documents_notes(settings, writer, report)
    exposed = [str(exposure) for exposure in await exposures(settings, collection.tenant, collection.name)]
    known_failures = count_known_failures(settings.home, collection, origin, report)
    notes = (*report.notes, *unmatched, *foreign, *map(str, former), *exposed)
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


@asynccontextmanager
async def _no_leftover(settings: Settings, collection: Collection, began: datetime) -> AsyncIterator[None]:
    """Drop the collection that this run made, if the run fails before anything is stored.

    Otherwise the collection would keep an embedder that may have been a mistake, and block the next run.
    """
    try:
        yield
    except BaseException:  # also Ctrl-C
        if collection.created_at == began:
            with anyio.CancelScope(shield=True):
                await drop_if_empty(settings.home, collection)
        raise


@dataclass(frozen=True, slots=True)
class ChosenEmbedder:
    """The name of an embedder; if refdesk chose it for a new collection, also the model and the reason.

    `collection` is None for a new one. It `is_by_default` if the files tell no language, or there are none.
    """

    name: str
    reason: str = ""
    collection: Collection | None = None
    is_by_default: bool = False


async def chosen_embedder(
    settings: Settings, tenant: str, name: str, paths: Sequence[Path], requested: str = ""
) -> ChosenEmbedder:
    """The embedder for documents at these paths: the collection's; for a new collection, `requested`.

    Raises:
        ConfigurationError: the settings lack the embedder, or the collection has another one than requested.
    """
    if requested:
        settings.embedder_named(requested)
    collections = await DeskReader.of(settings, once=True).collections(tenant)
    stored = next((collection for collection in collections if collection.name == name), None)
    if stored:
        _check(settings, stored, requested)
        return ChosenEmbedder(stored.embedder_name, collection=stored)
    if requested:
        return ChosenEmbedder(requested)
    fitting, sample = await fitting_embedder(settings, paths)
    if sample is None or not sample.known:
        return ChosenEmbedder(fitting, is_by_default=sample is not None)
    alternative = model_name(ENGLISH_MODEL if sample.model == MULTILINGUAL_MODEL else MULTILINGUAL_MODEL)
    return ChosenEmbedder(
        fitting, f"{sample.model}, because {sample.reason} (--embedder {alternative} chooses the other one)"
    )


def _check(settings: Settings, collection: Collection, requested: str) -> None:
    if not settings.has_embedder(collection.embedder_name):
        check_embedder(collection, None)
    stored = collection.embedder_name
    if requested and settings.embedder_named(requested) != settings.embedder_named(stored):
        raise ConfigurationError(
            f"The collection {collection.name!r} has the embedder {stored!r}, not {requested!r}. Leave out "
            f"--embedder, or run refdesk-admin collection rebuild {collection.name} --model {requested}."
        )


async def foreign_documents_notes(
    settings: Settings, writer: CollectionWriter, report: Report
) -> tuple[str, ...]:
    """The advice, at the end of a run, to switch the writer's collection to the multilingual model.

    It is given once: to a collection with the English model, if enough of its documents, and some of this
    run, are in other languages.
    """
    collection = writer.collection
    is_english = (collection.embedder.provider, collection.embedder.model) == ("builtin", ENGLISH_MODEL)
    if not is_english or not LanguageSample(report.languages).foreign:
        return ()
    sample = LanguageSample(await writer.language_counts())
    if sample.model == ENGLISH_MODEL:
        return ()
    command = f"refdesk-admin collection rebuild {collection.name} --model {model_name(MULTILINGUAL_MODEL)}"
    earlier = runs_of(settings.home, collection.tenant).values()
    if any(command in note for run in earlier if run.collection == collection.name for note in run.notes):
        return ()
    note = (
        f"{sample.foreign} of {counted(sample.known, 'document')} are not in English, the only language that "
        f"the model of this collection knows. To find them by meaning, and by questions in other languages, "
        f"run {command}. It embeds all documents again, and --undo goes back."
    )
    judged = sorted(judged_folder(settings.data, collection.tenant).glob("*.jsonl"))
    if judged:
        note += (
            f" With{arguments('--questions', str(judged[0]))} it measures both models on your judged "
            "questions, and with --if-better it keeps the better one."
        )
    return (note,)


@asynccontextmanager
async def with_cache(
    settings: Settings, collection: Collection, embedder: Embedder
) -> AsyncIterator[Embedder]:
    """The embedder behind the data folder's cache, unless the settings turn that off.

    A look-up takes 20 µs a text, the built-in model 5 ms and more, so the cache serves that, too.
    """
    if not settings.ingest.embedding_cache_bytes:
        delete(local_folder(settings.home))
        yield embedder
        return
    cache = cache_of(settings, collection)
    await to_thread.run_sync(cache.check_model, await _control(embedder))
    cached = CachedEmbedder(embedder, cache, getattr(embedder, "parts", None))  # of a remote one
    try:
        yield cached
    finally:
        if cached.tokens:
            cache.note_rate(cached.tokens, cached.seconds)
        cache.close()


async def _control(embedder: Embedder) -> Vectors:
    """The vector of a fixed text, which identifies the model to the cache; remote ones have it already."""
    vector: Vectors | None = getattr(embedder, "control", None)
    return await embedder.embed([CONTROL], "document") if vector is None else vector


def cache_of(settings: Settings, collection: Collection) -> EmbeddingCache:
    """The cache for a collection's embedder."""
    model = settings.embedder_named(collection.embedder_name)
    return EmbeddingCache(
        local_folder(settings.home),
        read_key(settings.home),
        collection.tenant,
        collection.name,
        fingerprint(collection.embedder, model.max_tokens, model.dimensions or 0),
        settings.ingest.embedding_cache_bytes,
    )


def with_bill(report: Report, embedder: Embedder, model: EmbedderSettings) -> Report:
    """The report of a run with the bill of a remote embedder, and the notes of the cache."""
    cached = 0
    if isinstance(embedder, CachedEmbedder):
        report = replace(report, notes=(*report.notes, *embedder.cache.notes))
        cached, embedder = embedder.cached, embedder.inner
    if model.provider != "openai":
        return report
    from rag.models.embed.remote_embedder import RemoteEmbedder  # noqa: PLC0415 takes 0.5 s and more

    if not isinstance(embedder, RemoteEmbedder):
        return report
    sent = embedder.model.sent
    bill = Bill(sent.texts, sent.tokens, cached, sent.unreported, model.price)
    return replace(report, bill=bill)


def origin_run(
    settings: Settings, name: str, collection: Collection, scratch: Path | None = None
) -> OriginRun:
    """The run over an origin, with its files in `scratch`, by default in the data folder."""
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


def rights_of(
    settings: Settings, requested: RequestedAccess | None = None, *, set_access: bool = False
) -> Rights:
    """The access of ingested sources, by the options and the settings.

    With `set_access`, the options also replace the access that the settings state for folders.
    """
    return Rights(
        "tenant",
        requested,
        settings.access.rules,
        of_documents=settings.access.of_documents,
        set_access=set_access,
        stated={} if requested and set_access else stated_access(settings, settings.principal.tenant),
    )


def stated_access(settings: Settings, tenant: str | None) -> dict[str, Access]:
    """The access that a tenant's folder origins state for their folders, by each URI of the folder.

    An origin that names no tenant is of the settings' tenant. If it or the run has none, the origin counts.
    """
    stated: dict[str, Access] = {}
    for origin in settings.origins.values():
        requested = access_of_origin(origin)
        is_other = len({tenant, origin.tenant or settings.principal.tenant} - {None}) > 1
        if is_other or not (isinstance(origin, FolderOrigin) and requested):
            continue
        access = requested.record("tenant")
        for uri in {path.as_uri() for path in (origin.path, Path(os.path.realpath(origin.path)))}:
            stated[uri] = narrower(stated.get(uri, access), access) or access
    return stated


def access_of_origin(origin: OriginSettings) -> RequestedAccess | None:
    """The access that an origin states for its new documents."""
    if origin.visibility or origin.allow or origin.deny:
        return RequestedAccess(origin.visibility, origin.allow, origin.deny)
    return None
