"""`refdesk-admin cite`: check an answer's citations and quotes, and print the schema of answers in JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import click
from anyio import to_thread
from pydantic import ValidationError

from rag.access.rule import visible
from rag.access.tenants import local_principal
from rag.admin.command_line import NamedPath, command, flag
from rag.admin.sources_command import open_collections
from rag.admin.terminal import FAILED, Group, print_result
from rag.config.settings import Settings
from rag.corpus import AccessRecord, LetterCase, Principal
from rag.errors import NotFoundError
from rag.report import counted, shortened
from rag.search.answer_citations import (
    CheckedAnswer,
    CheckedCitation,
    CheckedQuote,
    CitedAnswer,
    check_answer,
)
from rag.search.desk import Desk
from rag.search.reply.reply_parts import page_of
from rag.search.reply.untrusted import label
from rag.store.care.tenant_backup import checked_archive, cited_texts
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.write.desk_folder import PURGED
from rag.uris import split_citation

WIDTH = 10  # of verdicts
NOW = {"stands": "now", "changed": "in its place stands", "gone": "it stood near"}
UNKNOWN = "what was cited can't be found again"
PARAGRAPH_WIDTH = 80  # characters of a paragraph that are shown
OF_REVISION = ("standing", "now", "cited_text_id", "cited_text")
"""What --json says only of a passage that was cited with a revision."""


@click.group("cite", cls=Group)
def cite_command() -> None:
    """Check the citations and quotes of an answer; print its schema."""


@command("check", cite_command, of_asker=True)
@click.argument("answer", type=click.File("rb"), default="-", metavar="[FILE]")
@flag("--require", help="Fail if a paragraph or a quote has no citation.")
@click.option(
    "--backup",
    type=NamedPath(dir_okay=False),
    metavar="FILE",
    help="Show passages that have changed or gone as they were cited, from this backup of the tenant.",
)
async def check_command(settings: Settings, *, answer: IO[bytes], require: bool, backup: Path | None) -> int:
    """Check that citations are readable and quotes are verbatim.

    FILE holds the answer, as text, or as JSON by the schema that `cite schema` prints; - or nothing is
    standard input. A citation is [source_id/seq], or [source_id/seq-seq] for several passages in a row. A
    quote in quotation marks or a block quote belongs to the next citation in its paragraph, whose passages
    must contain it verbatim. White space, invisible characters, spaces that the tools insert into markup, and
    omissions marked by an ellipsis don't count. Quotes without a citation are listed but not checked.

    A citation with the revision of a result, [source_id@revision/seq], is found again after the document was
    edited: it stands word for word, has changed, or is gone. Quotes are looked for where it stands now. The
    text as it was cited is shown if a tag has it, or the backup that --backup names.

    With --require, every paragraph, list item and table row that states something needs a citation, and every
    quote; of JSON, every statement. Headings, introductions that end with a colon, questions and code need
    none.

    Exits with 1 if the asker may not read a cited passage, if one with a revision has changed, is gone or
    can't be found again, if a quote is not in its passage, or if a citation that --require asks for is
    missing.
    """
    text = _answer(answer)
    principal = local_principal(settings)
    async with Desk.open(settings, os.environ) as desk:
        checked = await check_answer(desk, principal, text)
    if backup:
        removed = await DeskReader.of(settings, once=True).removed_records(principal.tenant)
        checked = await to_thread.run_sync(
            _with_texts_of, backup, checked, removed, principal, settings.access.letter_case
        )
    hidden = await _existing_ids(
        settings, {citation.id for citation in checked.citations if not citation.readable}
    )
    print_result(_json(checked, hidden), *_lines(checked, hidden, require=require))
    return 0 if (checked.grounded if require else checked.holds) else FAILED


def _with_texts_of(
    backup: Path,
    checked: CheckedAnswer,
    removed: Mapping[str, AccessRecord],
    principal: Principal,
    case: LetterCase,
) -> CheckedAnswer:
    """The answer with the cited texts of changed and removed passages, as far as the backup has them.

    The asker must have been allowed to read the document at the time of the backup, and must be allowed to
    read it now. For a removed document, its record in `removed` decides.
    """
    archive = checked_archive(backup)
    edited = [
        citation.id
        for citation in checked.citations
        if citation.cited_text is None
        and (citation.standing in {"changed", "gone"} or _was_removed(citation, removed, principal, case))
    ]
    texts = cited_texts(archive, edited, principal, case)
    citations = tuple(
        replace(citation, cited_text=texts[citation.id], standing=citation.standing or "gone")
        if citation.id in texts
        else citation
        for citation in checked.citations
    )
    return replace(checked, citations=citations)


def _was_removed(
    citation: CheckedCitation, removed: Mapping[str, AccessRecord], principal: Principal, case: LetterCase
) -> bool:
    """Whether a citation with a revision is of a removed document whose access record lets the asker in.

    Purged documents don't count, nor do documents without a record any more.
    """
    if citation.readable:
        return False
    with suppress(NotFoundError):
        source_id, revision, seqs = split_citation(citation.id)
        record = removed.get(source_id)
        if revision and seqs and record and not record.uri.startswith(PURGED):
            return visible(principal, record.access, case)
    return False


def _answer(file: IO[bytes]) -> str | CitedAnswer:
    """The answer, which is text unless it is a JSON object."""
    try:
        text = file.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise click.UsageError("The answer is not UTF-8.") from error
    if not _is_object(text):
        return text
    try:
        return CitedAnswer.model_validate_json(text)
    except ValidationError as error:
        (fault, *_) = error.errors(include_url=False, include_input=False)
        field = ".".join(map(str, fault["loc"])) or "the answer"
        raise click.UsageError(
            f"The answer is JSON, but {label(field)} is wrong: {fault['msg']}. Run refdesk-admin cite schema "
            "for its form."
        ) from error


def _is_object(text: str) -> bool:
    try:
        return text.lstrip().startswith("{") and isinstance(json.loads(text), dict)
    except ValueError:
        return False


async def _existing_ids(settings: Settings, ids: set[str]) -> set[str]:
    """The ids whose passages exist, regardless of access: for the operator only."""
    tables = await open_collections(settings, None)
    return {id_ for id_ in ids for table in tables if await _exists(table, id_)}


async def _exists(table: CollectionReader, id_: str) -> bool:
    """Whether a collection has the passages of an id, or had them in the revision that it names."""
    with suppress(NotFoundError):
        source_id, revision, seqs = split_citation(id_)
        stored = (await table.sources([source_id])).get(source_id)
        if stored and seqs:
            count = stored.source.chunk_count
            if revision and revision != stored.source.revision:
                count = len((await table.former(stored)).get(revision, ()))
            return seqs[-1] < count
    return False


def _json(checked: CheckedAnswer, hidden: set[str]) -> dict[str, Any]:
    return {
        "holds": checked.holds,
        "citations": [
            {
                "id": citation.id,
                "exists": citation.readable or citation.id in hidden,
                "readable": citation.readable,
                "title": citation.source and citation.source.title,
                **({key: getattr(citation, key) for key in OF_REVISION} if citation.standing else {}),
            }
            for citation in checked.citations
        ],
        "quotes": [asdict(quote) for quote in checked.quotes],
        "grounded": checked.grounded,
        "uncited": checked.uncited,
    }


def _lines(checked: CheckedAnswer, hidden: set[str], *, require: bool) -> Iterator[str]:
    for citation in checked.citations:
        yield _citation_line(citation, exists=citation.id in hidden)
        if citation.cited_text is not None:
            cited = shortened(label(citation.cited_text), PARAGRAPH_WIDTH)
            yield f"{'as cited':{WIDTH}}  [{citation.cited_text_id or citation.id}]  “{cited}”"
    yield from map(_quote_line, checked.quotes)
    lacking = checked.uncited if require else ()
    yield from (f"{'uncited':{WIDTH}}  {shortened(label(text), PARAGRAPH_WIDTH)}" for text in lacking)
    readable = sum(citation.readable for citation in checked.citations)
    verbatim = sum(quote.verdict == "verbatim" for quote in checked.quotes)
    yield (
        f"{counted(len(checked.citations), 'citation')}, {readable} readable; "
        f"{counted(len(checked.quotes), 'quote')}, {verbatim} verbatim"
        + (f"; {counted(len(lacking), 'paragraph')} without a citation." if require else ".")
    )


def _citation_line(citation: CheckedCitation, *, exists: bool) -> str:
    if citation.source and citation.chunks:
        first = citation.chunks[0]
        page = f", {page_of(citation.source, first.page, first.page)}" if first.page else ""
        now = f"; {NOW[citation.standing]} [{citation.now}]" if citation.standing in NOW else ""
        verdict = citation.standing or "readable"
        return f"{verdict:{WIDTH}}  [{citation.id}]  {label(citation.source.title)}{page}{now}"
    if citation.source:
        return f"{'unknown':{WIDTH}}  [{citation.id}]  {label(citation.source.title)}; {UNKNOWN}"
    if exists:
        return f"{'hidden':{WIDTH}}  [{citation.id}]  it exists, but the asker may not read it"
    if citation.standing:
        return f"{citation.standing:{WIDTH}}  [{citation.id}]  its document was removed"
    return f"{'missing':{WIDTH}}  [{label(citation.id)}]  no such passage"


def _quote_line(quote: CheckedQuote) -> str:
    cited, containing = (", ".join(f"[{label(id_)}]" for id_ in ids) for ids in (quote.cited, quote.found))
    where = {
        "verbatim": f"in {cited}",
        "elsewhere": f"not in {cited} but in {containing}",
        "not found": f"not in {cited}",
        "unchecked": "no citation follows it",
    }[quote.verdict]
    return f"{quote.verdict:{WIDTH}}  “{label(quote.text)}”  {where}"


@command("schema", cite_command, of_tenant=False)
async def schema_command(_settings: Settings) -> None:
    """Print the JSON schema of answers with citations and quotes.

    Give it to a model that answers in JSON. `cite check` takes such answers.
    """
    schema = CitedAnswer.model_json_schema()
    print_result(schema, json.dumps(schema, indent=2))
