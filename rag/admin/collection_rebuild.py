"""`refdesk-admin collection rebuild`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from rag.access.tenants import tenant_of
from rag.admin.audit_command import Act, log_act
from rag.admin.collection_changes import chunking_option, chunking_words
from rag.admin.command_line import NamedPath, command, flag
from rag.admin.eval_command import comparison_json, print_comparison, print_runs, run_json
from rag.admin.ingestion import with_cache
from rag.admin.progress_bar import EvaluationProgress
from rag.admin.sources_command import open_collections
from rag.admin.terminal import FAILED, confirm, echo, print_result, wants_json
from rag.config.profiles import DEFAULT_PROFILE
from rag.config.settings import Settings
from rag.corpus import Build, Chunking, Collection, EmbedderIdentity
from rag.errors import ConfigurationError, RefdeskError
from rag.evaluate.compare_runs import EvaluationRun, compare, keep_runs
from rag.evaluate.evaluation import contenders, evaluate, evaluation_settings, prepare_existing
from rag.evaluate.judged_sets import JudgedSet, read_set
from rag.ingest.rework_stored import Rebuilt, rebuild
from rag.models.embed import open_embedder
from rag.report import counted, names_briefly
from rag.store.read.catalog import check_writable
from rag.store.write import collection_tables
from rag.store.write.change_collection import open_writer
from rag.store.write.collection_tables import check_space

NAMED = 5  # documents in a message


@command("rebuild", changes=True)
@click.argument("name")
@click.option(
    "--model",
    "--embedder",
    "embedder_name",
    metavar="NAME",
    help="Make the vectors with this model: an installed one (refdesk-admin model list), the name of a "
    "table [embedders.NAME], or default for [embedder].",
)
@chunking_option
@click.option(
    "--questions",
    type=NamedPath(exists=True),
    metavar="FILE",
    help="Search the present and the new tables for these judged questions (eval new makes the file), show "
    "which are better, and on a terminal ask whether to switch.",
)
@flag(
    "--if-better",
    help="With --questions: switch only if nDCG@10 rises; otherwise exit with 1. The new tables wait: the "
    "same command without this option switches to them, and purge drops them.",
)
@flag("--undo", help="Go back to the tables from before the last rebuild.")
async def rebuild_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    name: str,
    embedder_name: str | None,
    chunking: tuple[Chunking, ...] | None,
    questions: Path | None,
    if_better: bool,
    undo: bool,
) -> int:
    """Cut and embed a collection again, from its stored texts.

    Searches use the present tables until the new ones are complete, then the new ones, all at once. Access,
    ids, metadata and fields stay. An interrupted rebuild goes on when you run the command again. Until the
    next rebuild or purge, --undo goes back to the former vectors and their model; what was ingested, changed
    or removed since stays so.

    Servers use an installed model as soon as a collection needs it. One that can't find it searches the
    collection by words, and says so. Nothing can be ingested into the collection meanwhile.
    """
    if undo and (embedder_name is not None or chunking is not None or questions is not None):
        raise click.UsageError(
            "--undo takes neither --model nor --chunking nor --questions: it goes back to the former tables."
        )
    if if_better and questions is None:
        raise click.UsageError("--if-better needs --questions FILE.")
    (table,) = await open_collections(settings, name)
    check_writable(table.collection)
    embedder_in_use = _embedder_name(table.collection, embedder_name, undo=undo)
    quiet = wants_json() or not sys.stderr.isatty()
    trial = Trial(settings, name, questions, if_better=if_better) if questions else None
    if trial:
        await trial.ask_before()
    async with (
        open_embedder(settings.embedder_named(embedder_in_use), os.environ) as embedder,
        open_writer(settings.home, table.collection) as writer,
    ):
        before = writer.collection
        coming = _coming(settings, before, embedder.identity, embedder_in_use, chunking, undo=undo)
        changes = {name: (_state(collection_tables.current_build(before)), _state(coming))}
        check_space(settings.home, before, coming)

        async def approved() -> bool:
            built = writer.collection.coming
            assert built  # noqa: S101 it is complete, and searches don't use it yet
            return trial is None or await trial.ask_after(built)

        async with with_cache(settings, collection_tables.with_build(before, coming), embedder) as cached:
            done = await rebuild(
                writer,
                coming,
                cached,
                progress=(lambda _done, _total: None) if quiet else _print_progress,
                around=log_act(settings.data, Act("collection rebuild", before.tenant, changes, name)),
                approved=approved,
            )
    of_trial = trial.as_json if trial else {}
    print_result(asdict(done) | of_trial, *_lines(name, done, undo=undo))
    return 0 if done.switched else FAILED  # the new tables are not in use


def _embedder_name(collection: Collection, requested: str | None, *, undo: bool) -> str:
    if not undo:
        going_on = collection.coming.embedder_name if collection.coming else None
        return requested or going_on or collection.embedder_name
    if collection.former:
        return collection.former.embedder_name
    raise ConfigurationError(
        f"The collection {collection.name!r} has no earlier tables to go back to: it was not rebuilt, or it "
        "was purged since."
    )


def _coming(
    settings: Settings,
    collection: Collection,
    embedder: EmbedderIdentity,
    name: str,
    chunking: tuple[Chunking, ...] | None,
    *,
    undo: bool,
) -> Build:
    """The build to make: with `undo` the former one, else the unfinished one if it is equal, or a new one."""
    if undo and (former := collection.former):
        if not former.embedder.may_compare(embedder):
            raise ConfigurationError(
                f"The former vectors of {collection.name!r} are of the model {former.embedder.model}; the "
                f"embedder {name} in the settings is {embedder.model}. Set it back, or omit --undo."
            )
        return former
    begun = collection.coming
    # Above all tables on the disk: a killed rebuild may have left some that the catalog doesn't know.
    numbers = collection_tables.build_numbers(settings.home, collection.tenant, collection.name)
    number = collection_tables.new_number(settings.home, 1 + max([collection.build, *numbers]))
    if chunking is None:
        chunking = begun.chunking if begun else collection.chunking
    new_build = Build(number, embedder, name, chunking)
    if embedder == collection.embedder:  # its scale depends on the model alone
        new_build = replace(new_build, calibration=collection.calibration)
    if begun and replace(begun, number=number, calibration=new_build.calibration) == new_build:
        return begun
    return new_build


def _state(build: Build) -> dict[str, object]:
    embedder = f"{build.embedder.provider} {build.embedder.model}".rstrip()
    return {"embedder": embedder, "chunking": chunking_words(build.chunking)}


def _print_progress(done: int, total: int) -> None:
    echo(f"{done} of {counted(total, 'document')}", err=True)


def _lines(name: str, done: Rebuilt, *, undo: bool) -> Iterator[str]:
    if not done.switched:
        yield (
            f"Searches still use the present tables of {name}. To switch, run the same command without "
            f"--if-better; to drop the new tables, run refdesk-admin purge."
        )
        return
    work = f"{counted(done.sources, 'document')}, {done.recut} cut again, {counted(done.chunks, 'chunk')}"
    yield f"{'Went back to the former tables of' if undo else 'Rebuilt'} the collection {name}: {work}."
    if done.without_vector:
        yield f"{counted(done.without_vector, 'chunk')} without a vector. The next ingest asks again."
    if done.kept:
        yield (
            f"Not cut again, because only their files tell where their pages begin: "
            f"{counted(len(done.kept), 'document')} ({names_briefly(done.kept, NAMED)}). The next ingest of "
            "these files does it."
        )
    yield f"To go back, run refdesk-admin collection rebuild {name} --undo. To free the disk, purge it."


# The trial: judged questions are asked before and after a rebuild, to decide whether to use the new tables.

METRIC = "nDCG@10"


class Trial:
    """Searches the present tables, then the new ones, for the questions of a file.

    `as_json` is the result for `--json`. `if_better` keeps the present tables in use unless the new ones have
    a higher `METRIC`.
    """

    def __init__(self, settings: Settings, name: str, file: Path, *, if_better: bool) -> None:
        self._settings = evaluation_settings(settings)
        self._name = name
        self._judged: JudgedSet = read_set(file)
        self._if_better = if_better
        self._before: EvaluationRun | None = None
        self.as_json: dict[str, Any] = {}

    async def ask_before(self) -> None:
        """Measure the present tables. If that fails, the new tables are measured without a comparison."""
        try:
            self._before = await self._evaluate(None)
        except RefdeskError as error:
            echo(f"The present tables can't be compared: {error}", err=True)

    async def ask_after(self, coming: Build) -> bool:
        """Ask the tables of the new build, print the comparison, and return whether to switch.

        Raises:
            RefdeskError: the questions can't be asked.
        """
        after = await self._evaluate(coming)
        runs = [run for run in (self._before, after) if run]
        runs = await keep_runs(self._settings.home, tenant_of(self._settings), runs)
        comparison = compare(runs[0], runs[1], METRIC) if self._before else None
        self.as_json = {"runs": [run_json(run.id, run.summary) for run in runs]}
        print_runs([(run.id, run.summary) for run in runs])
        if comparison:
            self.as_json["comparison"] = comparison_json(runs[0], runs[1], comparison)
            print_comparison(runs[0], runs[1], comparison, listed=True)
        if self._if_better:
            return comparison is not None and comparison.difference > 0
        if wants_json() or not sys.stdin.isatty():
            return True
        return confirm("Use the new tables for searches from now on?")

    async def _evaluate(self, coming: Build | None) -> EvaluationRun:
        def seen_as(collection: Collection) -> Collection:
            is_it = collection.name == self._name and collection.coming == coming
            return collection_tables.with_build(collection, coming) if coming and is_it else collection

        chosen = contenders(self._settings, (DEFAULT_PROFILE,), (None,))
        with closing(EvaluationProgress()) as progress:
            async with prepare_existing(self._judged, self._settings, self._name) as prepared:
                changed = seen_as if coming else None
                (run,) = await evaluate(self._judged, prepared, os.environ, chosen, progress, seen_as=changed)
        return run
