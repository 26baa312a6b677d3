"""`refdesk-admin eval new`, `runs`, `show` and `compare`: question files and kept runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.access.tenants import tenant_of
from rag.admin.console import collection_option, command, echo, print_json, same_desk
from rag.admin.eval_output import (
    comparison_json,
    metric_text,
    print_comparison,
    print_question,
    print_runs,
    run_json,
    write_report,
)
from rag.admin.sources import open_collections
from rag.errors import ConfigurationError, NotFoundError, NotReadyError
from rag.evaluate.ask import METRICS
from rag.evaluate.compare import compare
from rag.evaluate.runs import kept_run, kept_summaries
from rag.evaluate.sets.handwritten import new_file, skeletons
from rag.report.tables import counted

if TYPE_CHECKING:
    from rag.config.settings import Settings
    from rag.evaluate.runs import QuestionResult, Run

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
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write an HTML report of the runs side by side.",
)
question_option = click.option("--question", metavar="ID", help="Show the hits of this question.")


@command("new")
@click.argument("file", type=click.Path(path_type=Path), default="questions.toml")
@click.option(
    "--questions",
    type=click.IntRange(1, 1000),
    default=QUESTIONS,
    metavar="N",
    help="Number of questions. Default: 20.",
)
@collection_option(None)
async def new_command(
    settings: Settings, *, file: Path, questions: int, collection: str | None, as_json: bool
) -> None:
    """Create a file for questions about your documents.

    FILE (default: questions.toml) gets passages from all over the collection, each with an empty question for
    you to fill in. An existing file is not overwritten.
    """
    if file.suffix.lower() != ".toml":
        raise click.BadParameter(f"{str(file)!r} must end in .toml.")
    found = await skeletons(await open_collections(settings, collection), questions)
    if not found:
        raise NotReadyError(
            f"There are no documents yet. Add some with refdesk-admin ingest PATH{same_desk()}"
        )
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(new_file(file.name, found))
    except OSError as error:
        raise ConfigurationError(f"Cannot create the file {file}: {error.strerror}.") from error
    if as_json:
        print_json({"file": str(file), "questions": len(found)})
    else:
        echo(
            f"Created {file} for {counted(len(found), 'question')}. "
            f"Fill them in, then run: refdesk-admin eval {shlex.quote(str(file))}"
        )


@command("runs")
async def runs_command(settings: Settings, *, as_json: bool) -> None:
    """List the kept runs."""
    summaries = await kept_summaries(settings.data, tenant_of(settings))
    readable = [(id_, summary) for id_, summary in summaries.items() if summary]
    if as_json:
        print_json({"runs": [run_json(*pair) for pair in readable]})
    elif readable:
        print_runs(readable)
    elif not summaries:
        echo("There are no runs yet. Make one with refdesk-admin eval PATH.")
    if others := len(summaries) - len(readable):
        echo(f"Left out: {counted(others, 'run')} made by another version of refdesk.", err=True)


@command("show")
@click.argument("run", type=RUN_ID)
@question_option
@metric_option
@report_option
async def show_command(
    settings: Settings,
    *,
    run: int,
    question: str | None,
    metric: str,
    report: Path | None,
    as_json: bool,
) -> None:
    """Show a run, or the hits of one of its questions."""
    kept = await kept_run(settings.data, tenant_of(settings), run)
    if report:
        write_report(report, [kept], metric)
    chosen = [_question(kept, question)] if question else kept.questions
    if as_json:
        questions = [one.model_dump(mode="json") for one in chosen]
        print_json(run_json(kept.id, kept.summary) | {"questions": questions})
    elif question:
        print_question(kept, chosen[0])
    else:
        _print_run(kept)


@command("compare")
@click.argument("one", type=RUN_ID, metavar="A")
@click.argument("other", type=RUN_ID, metavar="B")
@metric_option
@question_option
@report_option
async def compare_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    one: int,
    other: int,
    metric: str,
    question: str | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Compare run B with run A, question by question.

    p is the p-value of a paired randomisation test: the probability of a difference at least as large if both
    runs were equally good.
    """
    tenant = tenant_of(settings)
    first, second = [await kept_run(settings.data, tenant, id_) for id_ in (one, other)]
    comparison = compare(first, second, metric)
    if report:
        write_report(report, [first, second], metric)
    if question:
        found = [(run, _question(run, question)) for run in (first, second)]
        if as_json:
            print_json({"runs": [{"id": run.id} | one.model_dump(mode="json") for run, one in found]})
            return
        for pair in found:
            print_question(*pair)
    elif as_json:
        print_json(comparison_json(first, second, comparison))
    else:
        print_runs([(run.id, run.summary) for run in (first, second)])
        print_comparison(first, second, comparison, listed=True)


def _question(run: Run, id_: str) -> QuestionResult:
    for one in run.questions:
        if one.id == id_:
            return one
    raise NotFoundError(
        f"Run {run.id} has no question {id_!r}. List them with refdesk-admin eval show {run.id} --json."
    )


def _print_run(run: Run) -> None:
    summary = run.summary
    echo(f"Run {run.id}: {summary.set}, profile {summary.profile}, mode {summary.mode}")
    for name, value in summary.model_dump(mode="json", exclude={"set", "profile", "mode", "metrics"}).items():
        for key, one in value.items() if isinstance(value, dict) else [("", value)]:
            echo(f"  {f'{name} {key}'.strip():24} {one}")
    for name, value in summary.metrics.items():
        echo(f"  {name:24} {metric_text(name, value)}")
