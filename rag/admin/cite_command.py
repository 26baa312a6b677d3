"""`refdesk-admin cite`: check an answer's citations and quotes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any

import click

from rag.access.tenants import local_principal
from rag.admin.command_line import command
from rag.admin.sources_command import open_collections
from rag.admin.terminal import Group, echo, print_json
from rag.config.settings import Settings
from rag.errors import NotFoundError
from rag.report.text_and_html import counted, shortened
from rag.search.answer_citations import CheckedAnswer, CheckedCitation, CheckedQuote, check_answer
from rag.search.desk import Desk
from rag.search.reply.reply_parts import page_of
from rag.search.reply.untrusted import label
from rag.uris import split_id

FAILED = 1
WIDTH = 10  # of verdicts
PARAGRAPH_WIDTH = 80  # characters of a paragraph that are shown


@click.group("cite", cls=Group)
def cite_command() -> None:
    """Check the citations and quotes of an assistant's answer."""


@command("check", of_asker=True, on_bucket=True)
@click.argument("answer", type=click.File("rb"), default="-", metavar="[FILE]")
@click.option("--require", is_flag=True, help="Fail if a paragraph or a quote has no citation.")
async def check_command(settings: Settings, *, answer: IO[bytes], require: bool, as_json: bool) -> int:
    """Check that citations are readable and quotes are verbatim.

    FILE holds the answer as text; - or nothing is standard input. A citation is [source_id/seq], or
    [source_id/seq-seq] for several passages in a row. A quote in quotation marks or a block quote belongs to
    the next citation in its paragraph, whose passages must contain it verbatim. White space, invisible
    characters, spaces that the tools insert into markup, and omissions marked by an ellipsis don't count.
    Quotes without a citation are listed but not checked.

    With --require, every paragraph, list item and table row that states something needs a citation, and every
    quote. Headings, introductions that end with a colon, questions and code need none.

    Exits with 1 if the asker may not read a cited passage, if a quote is not in it, or if a citation that
    --require asks for is missing.
    """
    text = _text(answer)
    async with Desk.open(settings, os.environ) as desk:
        checked = await check_answer(desk, local_principal(settings), text)
    hidden = await _existing_ids(
        settings, {citation.id for citation in checked.citations if not citation.readable}
    )
    if as_json:
        print_json(_json(checked, hidden))
    else:
        _print(checked, hidden, require=require)
    return 0 if _passes(checked, require=require) else FAILED


def _passes(checked: CheckedAnswer, *, require: bool) -> bool:
    return checked.grounded if require else checked.holds


def _text(answer: IO[bytes]) -> str:
    try:
        return answer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError("The answer is not UTF-8.") from error


async def _existing_ids(settings: Settings, ids: set[str]) -> set[str]:
    """The ids whose passages exist, regardless of access: for the operator only."""
    tables = await open_collections(settings, None)
    stored = [source for table in tables for source in (await table.sources(map(_source_id, ids))).values()]
    counts = {source.source.id: source.source.chunk_count for source in stored}
    return {id_ for id_ in ids if _exists(id_, counts)}


def _exists(id_: str, counts: Mapping[str, int]) -> bool:
    with suppress(NotFoundError):
        source_id, seqs = split_id(id_)
        return bool(seqs) and seqs[-1] < counts.get(source_id, 0)
    return False


def _source_id(id_: str) -> str:
    return id_.partition("/")[0]


def _json(checked: CheckedAnswer, hidden: set[str]) -> dict[str, Any]:
    return {
        "holds": checked.holds,
        "citations": [
            {
                "id": citation.id,
                "exists": citation.readable or citation.id in hidden,
                "readable": citation.readable,
                "title": citation.source and citation.source.title,
            }
            for citation in checked.citations
        ],
        "quotes": [asdict(quote) for quote in checked.quotes],
        "grounded": checked.grounded,
        "uncited": checked.uncited,
    }


def _print(checked: CheckedAnswer, hidden: set[str], *, require: bool) -> None:
    for citation in checked.citations:
        echo(_citation_line(citation, exists=citation.id in hidden))
    for quote in checked.quotes:
        echo(_quote_line(quote))
    lacking = checked.uncited if require else ()
    for text in lacking:
        echo(f"{'uncited':{WIDTH}}  {shortened(label(text), PARAGRAPH_WIDTH)}")
    readable = sum(citation.readable for citation in checked.citations)
    verbatim = sum(quote.verdict == "verbatim" for quote in checked.quotes)
    echo(
        f"{counted(len(checked.citations), 'citation')}, {readable} readable; "
        f"{counted(len(checked.quotes), 'quote')}, {verbatim} verbatim"
        + (f"; {counted(len(lacking), 'paragraph')} without a citation." if require else ".")
    )


def _citation_line(citation: CheckedCitation, *, exists: bool) -> str:
    if citation.source and citation.chunks:
        first = citation.chunks[0]
        page = f", {page_of(citation.source, first.page, first.page)}" if first.page else ""
        return f"{'readable':{WIDTH}}  [{citation.id}]  {label(citation.source.title)}{page}"
    if exists:
        return f"{'hidden':{WIDTH}}  [{citation.id}]  it exists, but the asker may not read it"
    return f"{'missing':{WIDTH}}  [{label(citation.id)}]  no such passage"


def _quote_line(quote: CheckedQuote) -> str:
    cited, containing = (", ".join(f"[{label(id_)}]" for id_ in ids) for ids in (quote.cited, quote.found))
    match quote.verdict:
        case "verbatim":
            where = f"in {cited}"
        case "elsewhere":
            where = f"not in {cited} but in {containing}"
        case "not found":
            where = f"not in {cited}"
        case "unchecked":
            where = "no citation follows it"
    return f"{quote.verdict:{WIDTH}}  “{label(quote.text)}”  {where}"


cite_command.add_command(check_command)
