"""`refdesk-admin eval`: how good retrieval is on judged questions."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import click

from rag.access.tenants import tenant_of
from rag.admin.console import asker_named, collection_option, command, echo, language_option, print_json
from rag.admin.eval_output import (
    comparison_json,
    print_comparison,
    print_runs,
    run_json,
    write_report,
)
from rag.admin.eval_runs import compare_command, metric_option, report_option, runs_command, show_command
from rag.admin.progress import evaluation_progress
from rag.admin.questions import new_command
from rag.answers import Mode
from rag.config.profiles import DEFAULT_PROFILE
from rag.errors import InvalidRequestError, RefdeskError
from rag.evaluate.ask import METRICS
from rag.evaluate.compare import compare
from rag.evaluate.evaluation import contenders, evaluate, existing_room, fresh_room, unfixed
from rag.evaluate.runs import keep
from rag.evaluate.sets.reading import read_set

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.config.settings import Settings
    from rag.corpus import Language
    from rag.evaluate.compare import Comparison
    from rag.evaluate.evaluation import Room
    from rag.evaluate.runs import Run
    from rag.evaluate.sets.judged import JudgedSet

FAILED = 1
NAMED = 5  # documents that a message names


class _RunUnlessNamed(click.Group):
    """A group whose command `run` is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("eval", cls=_RunUnlessNamed)
def eval_command() -> None:
    """Measure how good retrieval is on judged questions.

    eval PATH is short for eval run PATH: ask the questions of a judged set, and print what the answers are
    worth. Runs are kept in the data folder; runs, show and compare look at them again.
    """


def _modes(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[Mode | None, ...]:
    named = [] if value is None else [name.strip() for name in value.split(",")]
    for name in named:
        if name not in get_args(Mode):
            raise click.BadParameter(f"{name!r} is not one of {', '.join(map(repr, get_args(Mode)))}.")
    return cast("tuple[Mode, ...]", tuple(dict.fromkeys(named))) or (None,)


def _floors(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[str, float]:
    floors = {}
    for value in values:
        metric, _, number = value.partition("=")
        if metric not in METRICS:
            raise click.BadParameter(f"{metric!r} is no metric; there are: {', '.join(METRICS)}.")
        if not re.fullmatch(r"[01]|[01]?\.\d+", number):
            raise click.BadParameter(f"{value!r} is not like nDCG@10=0.70.")
        floors[metric] = float(number)
    return floors


@command("run", of_asker=True)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--fresh", is_flag=True, help="Ask a temporary collection of the set's own documents.")
@collection_option(None)
@language_option("the set's documents (with --fresh)")
@click.option(
    "--profile", "profiles", multiple=True, metavar="NAME", help="A profile of the settings; repeatable."
)
@click.option("--mode", "modes", callback=_modes, metavar="MODE,…", help="dense, sparse, hybrid, or several.")
@metric_option
@click.option("--diff", is_flag=True, help="List the questions on which runs differ.")
@click.option(
    "--fail-under",
    "floors",
    multiple=True,
    callback=_floors,
    metavar="METRIC=VALUE",
    help="Exit with 1 if a run's metric is lower; repeatable.",
)
@report_option
async def run_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    path: Path,
    fresh: bool,
    collection: str | None,
    language: Language | None,
    profiles: tuple[str, ...],
    modes: tuple[Mode | None, ...],
    metric: str,
    diff: bool,
    floors: dict[str, float],
    report: Path | None,
    as_json: bool,
) -> int:
    """Ask the questions of a judged set (eval PATH is enough).

    PATH is a folder in the form of BEIR (corpus.jsonl, queries.jsonl, qrels.tsv), a folder with excerpts
    (corpora/, queries.jsonl), or a file of your own questions, which eval new starts. A question that
    doesn't say who asks is asked by whom --user and --group name, or [principal] in the settings.

    Exits with 1 if a hit should not have been seen by who asked, or a metric is under its floor.
    """
    if collection and fresh:
        raise click.UsageError("--fresh asks a collection of its own; leave --collection out.")
    if language and not fresh:
        raise click.UsageError("--language goes with --fresh; a collection that exists has its language.")
    settings, tenant = unfixed(settings), tenant_of(settings)
    judged = read_set(path)
    if asker_named() and all(one.asking.principal for one in judged.questions):
        raise click.UsageError("Each question says itself who asks; leave --user and --group out.")
    chosen = contenders(settings, profiles or (DEFAULT_PROFILE,), modes)
    with evaluation_progress() as progress:
        place = (
            fresh_room(judged, settings, os.environ, language=language, progress=progress.ingesting)
            if fresh
            else existing_room(judged, settings, collection)
        )
        async with place as room:
            runs = await evaluate(judged, room, os.environ, chosen, progress)
    complaints: list[str] = []
    try:
        runs = await keep(settings.data, tenant, runs)
    except RefdeskError as error:  # the work of minutes is shown all the same
        complaints.append(f"The runs were not kept: {error}")
    try:
        comparisons = [(run, compare(runs[0], run, metric)) for run in runs[1:]]
    except InvalidRequestError as error:
        comparisons = []
        complaints.append(str(error))
    _print(runs, comparisons, listed=diff, as_json=as_json)
    if report:
        write_report(report, runs, metric)
    _say_what_was_left_out(judged, room)
    complaints += [complaint for run in runs for complaint in complaints_about(run, floors)]
    for complaint in complaints:
        echo(complaint, err=True)
    return FAILED if complaints else 0


def _print(
    runs: Sequence[Run], comparisons: Sequence[tuple[Run, Comparison]], *, listed: bool, as_json: bool
) -> None:
    """The runs, and how others compare with the first."""
    first = runs[0]
    if as_json:
        print_json(
            {
                "runs": [run_json(run.id, run.summary) for run in runs],
                "comparisons": [comparison_json(first, *pair) for pair in comparisons],
            }
        )
        return
    print_runs([(run.id, run.summary) for run in runs])
    for pair in comparisons:
        print_comparison(first, *pair, listed=listed)


def _say_what_was_left_out(judged: JudgedSet, room: Room) -> None:
    if judged.left_out:
        echo(f"Left out: {judged.left_out} without a question or a judgement.", err=True)
    if room.absent:
        names = ", ".join(sorted(room.absent)[:NAMED]) + (", …" if len(room.absent) > NAMED else "")
        echo(f"Documents that could not be ingested, and that nothing finds: {names}", err=True)


def complaints_about(run: Run, floors: Mapping[str, float]) -> list[str]:
    """Why a run fails: hits that were not for who asked, and metrics that are under their floors."""
    complaints = []
    name = f"Run {run.id} ({run.summary.profile}, {run.summary.mode})"
    if run.summary.leaks:
        asked = ", ".join(one.id for one in run.questions if one.leaks)
        complaints.append(f"{name} leaks: {run.summary.leaks} hits were not for who asked: {asked}.")
    for metric, floor in floors.items():
        value = run.summary.metrics.get(metric)
        if value is None or value < floor:
            shown = "was not measured" if value is None else f"is {value:.4f}"
            complaints.append(f"{name}: {metric} {shown}, and should be at least {floor:g}.")
    return complaints


for one in (run_command, new_command, runs_command, show_command, compare_command):
    eval_command.add_command(one)
