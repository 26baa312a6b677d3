"""`refdesk-admin eval`: retrieval quality on judged questions, the files of questions, and kept runs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast, get_args

import click

from rag.access.tenants import tenant_of
from rag.admin.command_line import (
    NamedPath,
    collection_option,
    command,
    flag,
    has_asker_options,
    language_option,
    repeatable,
    same_desk,
    write_page,
)
from rag.admin.progress_bar import EvaluationProgress
from rag.admin.sources_command import open_collections
from rag.admin.terminal import FAILED, echo, print_json, print_result, print_table
from rag.answers import Mode
from rag.config.profiles import DEFAULT_PROFILE
from rag.config.settings import Settings
from rag.corpus import LanguageChoice
from rag.errors import (
    ConfigurationError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    RefdeskError,
    if_system_refuses,
)
from rag.evaluate import evaluation
from rag.evaluate.ask_questions import FAITHFUL, METRICS, SHOWN, SIZES
from rag.evaluate.compare_runs import (
    Comparison,
    EvaluationRun,
    Pair,
    QuestionResult,
    Summary,
    compare,
    keep_runs,
    load_run,
    load_summaries,
)
from rag.evaluate.judged_sets import JudgedSet, new_file, read_set, skeletons
from rag.evaluate.report_page import report_page
from rag.report import counted, decimals, names_briefly, shortened

RANKED = ("nDCG@10", "MRR@10", "recall@10", "recall@100", "token_recall@5", "token_IoU@5")
COLUMNS = (*RANKED, *SHOWN, *SIZES, *FAITHFUL)
LISTED = 10  # questions won, and questions lost
TITLE_WIDTH = 60
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


def run_json(id_: int, summary: Summary) -> dict[str, Any]:
    """A run as `--json` prints it."""
    return {"id": id_} | summary.model_dump(mode="json")


def comparison_json(baseline: EvaluationRun, run: EvaluationRun, comparison: Comparison) -> dict[str, Any]:
    """A comparison as `--json` prints it."""
    return {
        "one": baseline.id,
        "other": run.id,
        "metric": comparison.metric,
        "difference": comparison.difference,
        "p_value": comparison.p_value,
        "won": [pair.before.id for pair in comparison.won],
        "lost": [pair.before.id for pair in comparison.lost],
    }


def print_runs(runs: Sequence[tuple[int, Summary]]) -> None:
    """Print runs as a table, with the main metrics that any of them has."""
    columns = [name for name in COLUMNS if any(name in summary.metrics for _, summary in runs)]
    rows = [
        (
            id_,
            summary.set,
            summary.profile,
            summary.mode,
            summary.queries,
            *(metric_text(name, summary.metrics.get(name)) for name in columns),
            f"{summary.latency_ms.p50:.1f}",
            f"{summary.latency_ms.p95:.1f}",
        )
        for id_, summary in runs
    ]
    print_table([("RUN", "SET", "PROFILE", "MODE", "QUERIES", *columns, "P50 MS", "P95 MS"), *rows])


def metric_text(name: str, value: float | None) -> str:
    """A metric as it is printed: a score with four decimals, a size as a whole number, None as nothing."""
    return "" if value is None else f"{value:.{0 if name in SIZES else 4}f}"


def print_comparison(
    baseline: EvaluationRun, run: EvaluationRun, comparison: Comparison, *, listed: bool
) -> None:
    """Print a line that compares the run with the baseline; if `listed`, also the questions won and lost."""
    won, lost = comparison.won, comparison.lost
    echo(
        f"{_name(run)} against {_name(baseline)}: {comparison.metric} {comparison.difference:+.4f} "
        f"(p = {comparison.p_value:.4f}); "
        f"{counted(len(won), 'question')} won, {len(lost)} lost, {comparison.alike} alike."
    )
    if listed:
        for verdict, pairs in (("Won", won), ("Lost", lost)):
            _print_pairs(verdict, pairs, comparison.metric)
        if baseline.id and (won or lost):
            example = shlex.quote((won or lost)[0].before.id)
            echo(f"Show one: refdesk-admin eval compare {baseline.id} {run.id} --question {example}")


def _name(run: EvaluationRun) -> str:
    return f"Run {run.id} ({run.summary.profile}, {run.summary.mode})"


def _print_pairs(verdict: str, pairs: Sequence[Pair], metric: str) -> None:
    for pair in pairs[:LISTED]:
        before, after = pair.before.metrics[metric], pair.after.metrics[metric]
        text = shortened(pair.before.text, TITLE_WIDTH)
        echo(f"  {verdict:4}  {before:.3f} -> {after:.3f}  {pair.before.id}  {text}")
    unlisted = len(pairs) - LISTED
    if unlisted > 0:
        echo(f"  {verdict:4}  … and {unlisted} more (--json has all)")


def print_question(run: EvaluationRun, question: QuestionResult) -> None:
    """Print a question's hits in order, and mark the expected ones."""
    echo(f"{_name(run)}: {question.id}  {shortened(question.text, TITLE_WIDTH)}", bold=True)
    grades = ", ".join(f"{name} ({grade})" for name, grade in question.expected.items())
    echo(f"  expected: {grades}")
    metrics = question.metrics.items()
    scores = ", ".join(f"{name} {value:.{0 if name in SIZES else 3}f}" for name, value in metrics)
    echo(f"  {scores}, {question.latency_ms:.1f} ms")
    for rank, hit in enumerate(question.hits, 1):
        mark = f"  finds {', '.join(hit.finds)}" if hit.finds else ""
        leak = "  LEAK" if hit.id in question.leaks else ""
        scored = f"score {hit.score:.3f}  similarity {decimals(hit.similarity)}"
        echo(f"  {rank:2}. {scored}  [{hit.id}]  {shortened(hit.title, TITLE_WIDTH)}{mark}{leak}")


QUESTIONS = 20
RUN_ID = click.IntRange(1, 2**63 - 1)
metric_option = click.option(
    "--metric",
    type=click.Choice(METRICS),
    default="nDCG@10",
    metavar="NAME",
    help="Metric for comparisons and reports. Default: nDCG@10.",
)
report_option = click.option(
    "--report",
    type=NamedPath(dir_okay=False),
    metavar="FILE",
    help="Write an HTML report of the runs side by side.",
)
question_option = click.option("--question", metavar="ID", help="Show the hits of this question.")


@command("new", eval_command)
@click.argument("file", type=NamedPath(), default="questions.toml")
@click.option(
    "--questions",
    type=click.IntRange(1, 1000),
    default=QUESTIONS,
    metavar="N",
    help="Number of questions. Default: 20.",
)
@collection_option(None)
async def new_command(settings: Settings, *, file: Path, questions: int, collection: str | None) -> None:
    """Create a file for questions about your documents.

    FILE (default: questions.toml) gets passages from all over the collection, each with an empty question for
    you to fill in. An existing file is not overwritten.
    """
    if file.suffix.lower() != ".toml":
        raise click.BadParameter(f"{str(file)!r} must end in .toml.")
    passages = await skeletons(await open_collections(settings, collection), questions)
    if not passages:
        raise NotReadyError(
            f"There are no documents yet. Add some with refdesk-admin ingest PATH{same_desk()}"
        )
    with (
        if_system_refuses(ConfigurationError, f"Cannot create the file {file}", "Name another one."),
        file.open("x", encoding="utf-8") as new,
    ):
        new.write(new_file(file.name, passages))
    print_result(
        {"file": str(file), "questions": len(passages)},
        f"Created {file} for {counted(len(passages), 'question')}. Fill them in, then run: refdesk-admin "
        f"eval {shlex.quote(str(file))}",
    )


@command("runs", eval_command)
async def runs_command(settings: Settings) -> None:
    """List the kept runs."""
    summaries = await load_summaries(settings.home, tenant_of(settings))
    readable = [(id_, summary) for id_, summary in summaries.items() if summary]
    print_json({"runs": [run_json(*pair) for pair in readable]})
    if readable:
        print_runs(readable)
    elif not summaries:
        echo("There are no runs yet. Make one with refdesk-admin eval PATH.")
    if unreadable := len(summaries) - len(readable):
        echo(f"Left out: {counted(unreadable, 'run')} made by another version of refdesk.", err=True)


@command("show", eval_command)
@click.argument("run", type=RUN_ID)
@question_option
@metric_option
@report_option
async def show_command(
    settings: Settings, *, run: int, question: str | None, metric: str, report: Path | None
) -> None:
    """Show a run, or the hits of one of its questions."""
    stored_run = await load_run(settings.home, tenant_of(settings), run)
    if report:
        await write_page(report, report_page([stored_run], metric))
    chosen = [_question(stored_run, question)] if question else stored_run.questions
    questions = [result.model_dump(mode="json") for result in chosen]
    print_json(run_json(stored_run.id, stored_run.summary) | {"questions": questions})
    if question:
        print_question(stored_run, chosen[0])
    else:
        _print_run(stored_run)


@command("compare", eval_command)
@click.argument("baseline_id", type=RUN_ID, metavar="A")
@click.argument("run_id", type=RUN_ID, metavar="B")
@metric_option
@question_option
@report_option
async def compare_command(
    settings: Settings,
    *,
    baseline_id: int,
    run_id: int,
    metric: str,
    question: str | None,
    report: Path | None,
) -> None:
    """Compare run B with run A, question by question.

    p is the p-value of a paired randomisation test: the probability of a difference at least as large if both
    runs were equally good.
    """
    tenant = tenant_of(settings)
    first, second = [await load_run(settings.home, tenant, id_) for id_ in (baseline_id, run_id)]
    comparison = compare(first, second, metric)
    if report:
        await write_page(report, report_page([first, second], metric))
    if question:
        results = [(run, _question(run, question)) for run in (first, second)]
        print_json({"runs": [{"id": run.id} | result.model_dump(mode="json") for run, result in results]})
        for pair in results:
            print_question(*pair)
    else:
        print_json(comparison_json(first, second, comparison))
        print_runs([(run.id, run.summary) for run in (first, second)])
        print_comparison(first, second, comparison, listed=True)


def _question(run: EvaluationRun, id_: str) -> QuestionResult:
    for result in run.questions:
        if result.id == id_:
            return result
    raise NotFoundError(
        f"Run {run.id} has no question {id_!r}. List them with refdesk-admin eval show {run.id} --json."
    )


def _print_run(run: EvaluationRun) -> None:
    summary = run.summary
    echo(f"Run {run.id}: {summary.set}, profile {summary.profile}, mode {summary.mode}")
    for name, value in summary.model_dump(mode="json", exclude={"set", "profile", "mode", "metrics"}).items():
        for key, figure in value.items() if isinstance(value, dict) else [("", value)]:
            echo(f"  {f'{name} {key}'.strip():24} {figure}")
    for name, value in summary.metrics.items():
        echo(f"  {name:24} {metric_text(name, value)}")


def _modes(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[Mode | None, ...]:
    names = [name.strip() for name in value.split(",")] if value is not None else []
    for name in names:
        if name not in get_args(Mode):
            raise click.BadParameter(f"{name!r} is not one of {', '.join(map(repr, get_args(Mode)))}.")
    return cast("tuple[Mode, ...]", tuple(dict.fromkeys(names))) or (None,)


def _floor(value: str) -> tuple[str, float]:
    metric, _, number = value.partition("=")
    if metric not in METRICS:
        raise click.BadParameter(f"{metric!r} is not a metric. Metrics: {', '.join(METRICS)}.")
    if not re.fullmatch(r"[01]|[01]?\.\d+", number):
        raise click.BadParameter(f"{value!r} is not like nDCG@10=0.70.")
    return metric, float(number)


@command("run", eval_command, of_asker=True, changes=True)
@click.argument("path", type=NamedPath())
@flag("--fresh", help="Search a temporary collection of the set's own documents.")
@collection_option(None)
@language_option("the set's documents, with --fresh")
@repeatable("--profile", "profiles", metavar="NAME", help="Retrieval profile. Repeatable.")
@click.option(
    "--mode", "modes", callback=_modes, metavar="MODE,…", help="dense, sparse, hybrid, or a list of them."
)
@metric_option
@flag("--diff", help="List the questions on which the runs differ.")
@repeatable(
    "--fail-under",
    "floors",
    type=_floor,
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
    floors: tuple[tuple[str, float], ...],
    report: Path | None,
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
    settings, tenant = evaluation.evaluation_settings(settings), tenant_of(settings)
    judged = read_set(path)
    if has_asker_options() and all(question.asking.principal for question in judged.questions):
        raise click.UsageError("Leave out --user and --group: every question names its own principal.")
    chosen = evaluation.contenders(settings, profiles or (DEFAULT_PROFILE,), modes)
    with closing(EvaluationProgress()) as progress:
        preparation = (
            evaluation.prepare_fresh(judged, settings, os.environ, language=language, progress=progress)
            if fresh
            else evaluation.prepare_existing(judged, settings, collection)
        )
        async with preparation as prepared:
            runs = await evaluation.evaluate(judged, prepared, os.environ, chosen, progress)
    complaints: list[str] = []
    try:
        runs = await keep_runs(settings.home, tenant, runs)
    except RefdeskError as error:  # still show the result of minutes of work
        complaints.append(f"Cannot keep the runs: {error}")
    comparisons, incomparable = _comparisons(runs, metric)
    complaints += incomparable
    compared = [comparison_json(runs[0], *pair) for pair in comparisons]
    print_json({"runs": [run_json(run.id, run.summary) for run in runs], "comparisons": compared})
    print_runs([(run.id, run.summary) for run in runs])
    for pair in comparisons:
        print_comparison(runs[0], *pair, listed=diff)
    if report:
        await write_page(report, report_page(runs, metric))
    _report_omissions(judged, prepared)
    complaints += [complaint for run in runs for complaint in complaints_about(run, dict(floors))]
    for complaint in complaints:
        echo(complaint, err=True)
    return FAILED if complaints else 0


def _comparisons(
    runs: Sequence[EvaluationRun], metric: str
) -> tuple[list[tuple[EvaluationRun, Comparison]], list[str]]:
    """Each further run with its comparison to the first one; or why they can't be compared."""
    try:
        return [(run, compare(runs[0], run, metric)) for run in runs[1:]], []
    except InvalidRequestError as error:
        return [], [str(error)]


def _report_omissions(judged: JudgedSet, prepared: evaluation.PreparedSet) -> None:
    if judged.left_out:
        echo(f"Left out: {judged.left_out} without text or judgement.", err=True)
    if prepared.absent:
        names = names_briefly(sorted(prepared.absent), NAMED)
        echo(f"Documents that failed to ingest, which no search finds: {names}", err=True)


def complaints_about(run: EvaluationRun, floors: Mapping[str, float]) -> list[str]:
    """The reasons why a run fails: leaks, and metrics below their floors."""
    complaints, name = [], _name(run)
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
