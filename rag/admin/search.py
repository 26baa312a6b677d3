"""`refdesk-admin search`: what an assistant would find, as a person reads it."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import anyio
import click

from rag.access.tenants import local_principal
from rag.admin.console import collection_option, command, echo, print_json
from rag.admin.explain_output import explanation
from rag.admin.search_report import search_report
from rag.answers import MAX_LIMIT, Mode, SearchRequest
from rag.errors import ConfigurationError
from rag.search.desk import Desk
from rag.search.reply.records import search_reply
from rag.search.reply.trace import with_trace
from rag.uris import parse_id

if TYPE_CHECKING:
    from rag.config.settings import Settings
    from rag.search.explain.why_not import Fate
    from rag.search.reply.records import HitRecord, SearchReply

WIDTH = 100  # of passages; longer lines are hard to read


def _json_object(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> dict[str, object] | None:
    if value is None:
        return None
    try:
        read = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter("it is not valid JSON.") from error
    if not isinstance(read, dict):
        raise click.BadParameter('it is not an object, such as {"year": 2024}.')
    return read


@command("search", of_asker=True)
@click.argument("query")
@click.option("--mode", type=click.Choice(get_args(Mode)), help="How to search.")
@click.option("--profile", metavar="NAME", help="The retrieval plan: a profile of the settings.")
@click.option("--limit", type=click.IntRange(0, MAX_LIMIT), metavar="N", help="Most results.")
@click.option("--filter", "filter_", callback=_json_object, metavar="JSON", help="Only sources that fit.")
@click.option("--context", is_flag=True, help="Print one text of all passages, for a prompt.")
@click.option("--explain", is_flag=True, help="Also print how the search went, stage by stage.")
@click.option("--expect", metavar="ID", help="Also say at which step this source fell out.")
@click.option(
    "--report",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write how the search went as an HTML page.",
)
@collection_option(None)
async def search_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    query: str,
    mode: Mode | None,
    profile: str | None,
    limit: int | None,
    filter_: dict[str, object] | None,
    context: bool,
    explain: bool,
    expect: str | None,
    report: Path | None,
    collection: str | None,
    as_json: bool,
) -> None:
    """Search as an assistant would, and print the passages found.

    Mode and limit are as in the settings by default. A filter is on fields that the collection declares:
    {"year": {"$gte": 2020}, "status": {"$in": ["final", "draft"]}}.
    """
    request = SearchRequest(
        query,
        profile=profile,
        limit=limit,
        mode=mode,
        collections=(collection,) if collection else None,
        filter=filter_,
        context=context,
    )
    principal = local_principal(settings)
    fates: list[Fate] = []
    async with Desk.open(settings, os.environ) as desk:
        if expect is not None:
            answer, fate = await desk.why_not(principal, request, parse_id(expect))
            fates.append(fate)
        else:
            answer = await desk.search(principal, request, trace=explain or report is not None)
    reply = search_reply(answer, max_chars=None)
    if report:
        await _write(report, search_report(query, answer, fates))
    if explain or fates:
        reply = with_trace(reply, answer, None)
    if as_json:
        expected = {"expected": _fate_json(fates[0])} if fates else {}
        print_json(reply.model_dump(exclude_none=True) | expected)
        return
    print_results(reply)
    if explain or fates:
        echo("\n".join(["", *explanation(answer, fates)]))
    if report:
        echo(f"Wrote {report}.", err=True)


async def _write(report: Path, page: str) -> None:
    try:
        await anyio.Path(report).write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"The report {report} can't be written: {error.strerror}.") from error


def _fate_json(fate: Fate) -> dict[str, Any]:
    ranks = [{"stage": stage, "rank": rank} for stage, rank in fate.ranks]
    said = {"id": fate.source.id, "title": fate.source.title, "step": fate.step, "reason": fate.reason}
    return said | {"chunk_id": fate.chunk_id or None, "ranks": ranks}


def print_results(reply: SearchReply) -> None:
    """A reply for people: each passage under where it stands, or all as one text."""
    if reply.context:
        echo(f"{reply.context}\n")
    for number, result in enumerate(reply.results, 1):
        echo(f"{number}. {_place(result)}", bold=True)
        echo(f"   {result.citation}  score {result.score:.2f}  similarity {result.similarity:.3f}")
        for line in (result.text or "").splitlines():
            wrapped = textwrap.fill(line, WIDTH, initial_indent="   ", subsequent_indent="   ")
            echo(wrapped if line.strip() else "")
        echo()
    for note in reply.notes:
        echo(f"Note: {note}")


def _place(result: HitRecord) -> str:
    page = f"p. {result.page}" if result.page else None
    return ", ".join(part for part in (result.title, result.section, page) if part)
