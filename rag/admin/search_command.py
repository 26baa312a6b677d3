"""`refdesk-admin search`: search like an assistant, with output for people."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, get_args

import click

from rag.access.tenants import local_principal
from rag.admin.command_line import NamedPath, command, flag, json_object, repeatable, same_desk, write_page
from rag.admin.search_output import explanation, print_results, search_report
from rag.admin.sources_command import open_collections, readable_tables
from rag.admin.terminal import echo, print_json, wants_json
from rag.answers import MAX_LIMIT, Answer, Detail, Match, Mode, SearchRequest
from rag.config.profiles import FusionMethod
from rag.config.settings import Settings
from rag.corpus import Distance, Principal
from rag.errors import InvalidRequestError
from rag.home import Bucket
from rag.report import counted
from rag.search.desk import Desk
from rag.search.pipeline import NO_DOCUMENTS
from rag.search.reply.search_reply import search_reply, with_trace
from rag.search.search_plan import LIMITS, with_every_override
from rag.search.why import SourceTrace

MAX_VECTOR_CHARS = 1_000_000  # 8192 numbers take at most 200,000


def _vector(value: str) -> tuple[float, ...]:
    try:
        with click.open_file(value, encoding="utf-8") as file:
            read = json.loads(file.read(MAX_VECTOR_CHARS))
    except OSError as error:
        raise click.BadParameter(f"{value} can't be read: {error.strerror}.") from error
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, list) or not all(type(number) in {int, float} for number in read):
        raise click.BadParameter(f"{value} is not a JSON array of numbers.")
    try:
        return tuple(map(float, read))
    except OverflowError as error:
        raise click.BadParameter(f"{value} has a number that is too large.") from error


def _thresholds(
    _context: click.Context, _option: click.Parameter, values: tuple[str, ...]
) -> dict[str, float] | None:
    thresholds: dict[str, float] = {}
    for value in values:
        name, _, number = value.partition("=")
        try:
            thresholds[name] = float(number)
        except ValueError as error:
            raise click.BadParameter(f"{value!r} is not like min_similarity=0.3.") from error
    return thresholds or None


def _stages(of: str | None, without: tuple[str, ...], neighbors: int | None) -> dict[str, object] | None:
    choice = {"of": of, "without": without or None, "neighbors": neighbors}
    return {name: value for name, value in choice.items() if value is not None} or None


@command("search", of_asker=True)
@click.argument("query", default="")
@click.option(
    "--vector",
    type=_vector,
    metavar="FILE",
    help="Search by the vector in this file (a JSON array; - is standard input) instead of embedding QUERY. "
    "Then QUERY may be left out.",
)
@click.option(
    "--related",
    metavar="ID",
    help="Find what belongs to the passage or source with this id: documents that it names or links to, "
    "documents that name it, and similar passages. Then QUERY may be left out.",
)
@click.option("--mode", type=click.Choice(get_args(Mode)), help="Search mode.")
@click.option(
    "--match",
    type=click.Choice(get_args(Match)),
    help="In mode exact: a part of the text, whole words, or a regular expression (RE2).",
)
@flag("--case", default=None, help="In mode exact: letter case counts.")
@repeatable("--must-contain", metavar="TEXT", help="Only passages with this text. Repeatable.")
@click.option("--profile", metavar="NAME", help="Retrieval profile.")
@click.option("--limit", type=click.IntRange(0, MAX_LIMIT), metavar="N", help="Maximum number of results.")
@click.option("--filter", type=json_object, metavar="JSON", help="Only sources whose metadata matches.")
@repeatable(
    "--collection",
    "collections",
    metavar="NAME",
    help="Search only this collection. Repeatable. Default: all.",
)
@repeatable(
    "--exclude-collection",
    "exclude_collections",
    metavar="NAME",
    help="Leave out this collection. Repeatable.",
)
@click.option(
    "--fusion", type=click.Choice(get_args(FusionMethod)), help="How mode hybrid joins its two lists."
)
@click.option(
    "--alpha", type=float, metavar="SHARE", help="For the fusion convex: the weight of the similarity."
)
@click.option("--candidates", type=int, metavar="N", help="Chunks that each list brings before fusion.")
@repeatable(
    "--threshold",
    "thresholds",
    callback=_thresholds,
    metavar="NAME=NUMBER",
    help=f"Leave out passages by a threshold: {', '.join(LIMITS)}. Repeatable.",
)
@click.option("--distance", type=click.Choice(get_args(Distance)), help="Metric of the thresholds.")
@click.option("--stages-of", metavar="PROFILE", help="Run the stages of this profile.")
@repeatable("--without-stage", metavar="STAGE", help="Leave out the stages of this kind. Repeatable.")
@click.option(
    "--neighbors", type=int, metavar="N", help="Show this number of chunks before and after each passage."
)
@flag("--vectors", help="With --json: also print the vector of each passage.")
@click.option(
    "--detail",
    type=click.Choice(get_args(Detail)),
    help="Show of each hit the sentence that answers, the passage, or the section around it.",
)
@flag("--context", help="Print all passages as one text with citations, for a prompt.")
@flag("--explain", help="Also print the trace of the search, step by step.")
@click.option("--expect", metavar="ID", help="Also explain at which step this source dropped out.")
@click.option(
    "--report",
    type=NamedPath(dir_okay=False),
    metavar="FILE",
    help="Write the trace of the search as an HTML page.",
)
async def search_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    query: str,
    collections: tuple[str, ...],
    stages_of: str | None,
    without_stage: tuple[str, ...],
    neighbors: int | None,
    vectors: bool,
    explain: bool,
    expect: str | None,
    report: Path | None,
    **refinements: Any,  # noqa: ANN401 click's
) -> None:
    """Search like an assistant and print the passages.

    Options override the profile; search.overrides limits assistants only. A filter uses date, path, title,
    section, and fields that the collection declares: {"year": {"$gte": 2020}, "path": {"$prefix": "hr/"}}.

    A vector must come from the model of the collections to search: only vectors of its length are compared
    with it. No embedding model is called.
    """
    request = SearchRequest(
        query,
        collections=collections or None,
        stages=_stages(stages_of, without_stage, neighbors),
        joined=True,
        **refinements,  # options with the names of the request's other fields
    )
    if not query and request.vector is None and request.related is None:
        raise click.UsageError(
            "Missing argument 'QUERY'. Only with --vector or --related may it be left out."
        )
    if vectors and not wants_json():
        raise InvalidRequestError("--vectors needs --json.")
    settings = settings.model_copy(update={"search": with_every_override(settings.search)})
    principal = local_principal(settings)
    is_traced = explain or wants_json() or report is not None
    async with Desk.open(settings, os.environ) as desk:
        answer, fate = await answer_and_fate(desk, principal, request, expect, is_traced=is_traced)
    reply = search_reply(answer, max_chars=None, vectors=vectors)
    if report:
        await write_page(report, search_report(query, answer, fate))
    if explain or fate:
        reply = with_trace(reply, answer, None)
    expected = {"expected": _fate_json(fate)} if fate else {}
    print_json(reply.model_dump(exclude_none=True) | expected)
    print_results(reply)
    if NO_DOCUMENTS in answer.notes:
        echo(await _explain_no_documents(settings, principal))
    if reply.trace:
        echo("\n".join(["", *explanation(answer, fate)]))


async def answer_and_fate(
    desk: Desk, principal: Principal, request: SearchRequest, expect: str | None, *, is_traced: bool = True
) -> tuple[Answer, SourceTrace | None]:
    """The answer, and the fate of the source that `expect` names, if it is given."""
    fate = None
    if expect is None:
        answer = await desk.search(principal, request, trace=is_traced)
    else:
        answer, fate = await desk.why_not(principal, request, expect)
    return await desk.with_warnings(answer), fate


async def _explain_no_documents(settings: Settings, principal: Principal) -> str:
    """Why a search finds nothing, for the operator: no documents, or all are hidden from this asker."""
    tables = readable_tables(await open_collections(settings, None))
    sources = sum([(await table.statistics()).sources for table in tables])
    where = f"The {'bucket' if isinstance(settings.home, Bucket) else 'data folder'} is {settings.home}."
    if not sources:
        return f"{where} Add documents with refdesk-admin ingest PATH{same_desk()}"
    groups = f" of the groups {', '.join(sorted(principal.groups))}" if principal.groups else ""
    asker = f"the user {principal.user}" if principal.user else "somebody without a name"
    return (
        f"{where} It has {counted(sources, 'document')}, all of them hidden from {asker}{groups} by their "
        "access records, or expired. Name somebody else with --user and --group, or see refdesk-admin access "
        "explain ID."
    )


def _fate_json(fate: SourceTrace) -> dict[str, Any]:
    ranks = [{"stage": stage, "rank": rank} for stage, rank in fate.ranks]
    fields = {"id": fate.source.id, "title": fate.source.title, "step": fate.step, "reason": fate.reason}
    return fields | {"chunk_id": fate.chunk_id or None, "ranks": ranks}
