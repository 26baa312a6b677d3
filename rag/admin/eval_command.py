"""`refdesk-admin eval`: retrieval quality on judged questions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast, get_args

import click

from rag.access.tenants import tenant_of
from rag.admin.command_line import collection_option, command, has_asker_options, language_option
from rag.admin.eval_runs import (
    compare_command,
    comparison_json,
    metric_option,
    new_command,
    print_comparison,
    print_runs,
    report_option,
    run_json,
    runs_command,
    show_command,
    write_report,
)
from rag.admin.progress_bar import evaluation_progress
from rag.admin.terminal import echo, print_json
from rag.answers import Mode
from rag.config.profiles import DEFAULT_PROFILE
from rag.config.settings import Settings
from rag.corpus import LanguageChoice
from rag.errors import InvalidRequestError, RefdeskError
from rag.evaluate.ask_questions import METRICS
from rag.evaluate.compare_runs import Comparison, EvaluationRun, compare, keep_runs
from rag.evaluate.evaluation import (
    PreparedSet,
    contenders,
    evaluate,
    evaluation_settings,
    prepare_existing,
    prepare_fresh,
)
from rag.evaluate.judged_sets import JudgedSet, read_set
from rag.report.text_and_html import counted

FAILED = 1
NAMED = 5  # documents listed in a message


class _RunUnlessNamed(click.Group):
    """A group with `run` as its default command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("eval", cls=_RunUnlessNamed)
def eval_command() -> None:
    """Measure retrieval quality on judged questions.

    eval PATH is short for eval run PATH: search for the questions of a judged set and print the metrics. Runs
    are kept in the data folder for runs, show and compare.
    """


def _modes(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[Mode | None, ...]:
    names = [] if value is None else [name.strip() for name in value.split(",")]
    for name in names:
        if name not in get_args(Mode):
            raise click.BadParameter(f"{name!r} is not one of {', '.join(map(repr, get_args(Mode)))}.")
    return cast("tuple[Mode, ...]", tuple(dict.fromkeys(names))) or (None,)


def _floors(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[str, float]:
    floors = {}
    for value in values:
        metric, _, number = value.partition("=")
        if metric not in METRICS:
            raise click.BadParameter(f"{metric!r} is not a metric. Metrics: {', '.join(METRICS)}.")
        if not re.fullmatch(r"[01]|[01]?\.\d+", number):
            raise click.BadParameter(f"{value!r} is not like nDCG@10=0.70.")
        floors[metric] = float(number)
    return floors


@command("run", of_asker=True, on_bucket=True, changes=True)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--fresh", is_flag=True, help="Search a temporary collection of the set's own documents.")
@collection_option(None)
@language_option("the set's documents, with --fresh")
@click.option("--profile", "profiles", multiple=True, metavar="NAME", help="Retrieval profile. Repeatable.")
@click.option(
    "--mode", "modes", callback=_modes, metavar="MODE,…", help="dense, sparse, hybrid, or a list of them."
)
@metric_option
@click.option("--diff", is_flag=True, help="List the questions on which the runs differ.")
@click.option(
    "--fail-under",
    "floors",
    multiple=True,
    callback=_floors,
    metavar="METRIC=VALUE",
    help="Exit with 1 if the metric of a run is lower. Repeatable.",
)
@report_option
async def run_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    path: Path,
    fresh: bool,
    collection: str | None,
    language: LanguageChoice | None,
    profiles: tuple[str, ...],
    modes: tuple[Mode | None, ...],
    metric: str,
    diff: bool,
    floors: dict[str, float],
    report: Path | None,
    as_json: bool,
) -> int:
    """Search for the questions of a judged set; eval PATH is enough.

    PATH is a BEIR folder (corpus.jsonl, queries.jsonl, qrels.tsv), a folder with excerpts (corpora/,
    queries.jsonl), or a file of your own questions, which eval new creates. Questions without a principal are
    asked by --user and --group, or by [principal] in the settings.

    Exits with 1 if a hit leaks (its asker may not see it), or if a metric is below its --fail-under value.
    """
    if collection and fresh:
        raise click.UsageError("Leave out --collection: --fresh uses a temporary collection.")
    if language and not fresh:
        raise click.UsageError("--language needs --fresh: an existing collection has its own language.")
    settings, tenant = evaluation_settings(settings), tenant_of(settings)
    judged = read_set(path)
    if has_asker_options() and all(question.asking.principal for question in judged.questions):
        raise click.UsageError("Leave out --user and --group: every question names its own principal.")
    chosen = contenders(settings, profiles or (DEFAULT_PROFILE,), modes)
    with evaluation_progress() as progress:
        preparation = (
            prepare_fresh(judged, settings, os.environ, language=language, progress=progress.ingesting)
            if fresh
            else prepare_existing(judged, settings, collection)
        )
        async with preparation as prepared:
            runs = await evaluate(judged, prepared, os.environ, chosen, progress)
    complaints: list[str] = []
    try:
        runs = await keep_runs(settings.home, tenant, runs)
    except RefdeskError as error:  # still show the result of minutes of work
        complaints.append(f"Cannot keep the runs: {error}")
    try:
        comparisons = [(run, compare(runs[0], run, metric)) for run in runs[1:]]
    except InvalidRequestError as error:
        comparisons = []
        complaints.append(str(error))
    _print(runs, comparisons, listed=diff, as_json=as_json)
    if report:
        write_report(report, runs, metric)
    _report_omissions(judged, prepared)
    complaints += [complaint for run in runs for complaint in complaints_about(run, floors)]
    for complaint in complaints:
        echo(complaint, err=True)
    return FAILED if complaints else 0


def _print(
    runs: Sequence[EvaluationRun],
    comparisons: Sequence[tuple[EvaluationRun, Comparison]],
    *,
    listed: bool,
    as_json: bool,
) -> None:
    """Print the runs, and compare the others with the first."""
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


def _report_omissions(judged: JudgedSet, prepared: PreparedSet) -> None:
    if judged.left_out:
        echo(f"Left out: {judged.left_out} without text or judgement.", err=True)
    if prepared.absent:
        names = ", ".join(sorted(prepared.absent)[:NAMED]) + (", …" if len(prepared.absent) > NAMED else "")
        echo(f"Documents that failed to ingest, which no search finds: {names}", err=True)


def complaints_about(run: EvaluationRun, floors: Mapping[str, float]) -> list[str]:
    """The reasons why a run fails: leaks, and metrics below their floors."""
    complaints = []
    name = f"Run {run.id} ({run.summary.profile}, {run.summary.mode})"
    if run.summary.leaks:
        question_ids = ", ".join(question.id for question in run.questions if question.leaks)
        complaints.append(
            f"{name} leaks: {counted(run.summary.leaks, 'hit')} that the asker may not see: {question_ids}."
        )
    for metric, floor in floors.items():
        value = run.summary.metrics.get(metric)
        if value is None or value < floor:
            verdict = "was not measured" if value is None else f"is {value:.4f}"
            complaints.append(f"{name}: {metric} {verdict}; --fail-under requires {floor:g}.")
    return complaints


for subcommand in (run_command, new_command, runs_command, show_command, compare_command):
    eval_command.add_command(subcommand)
