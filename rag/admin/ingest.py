"""`refdesk-admin ingest`."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.admin.access import access_options, said
from rag.admin.console import collection_option, command, language_option, print_json
from rag.admin.progress import shown_progress
from rag.embed.open import open_embedder
from rag.ingest.rights import Rights, Said
from rag.ingest.run import Instructions, ingest
from rag.settings import DEFAULT_COLLECTION, valid_name
from rag.store.writer import ensure_collection, open_writer
from rag.tenants import tenant_of

if TYPE_CHECKING:
    from rag.ingest.report import Report
    from rag.records import Language, Visibility
    from rag.settings import Settings

PARTLY_FAILED = 3


@command("ingest")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--include", multiple=True, metavar="GLOB", help="Only matching files; repeatable.")
@click.option("--exclude", multiple=True, metavar="GLOB", help="Not matching files and folders; repeatable.")
@click.option("--hidden", is_flag=True, help="Hidden files and folders, too.")
@collection_option(DEFAULT_COLLECTION)
@language_option("a new collection")
@access_options
@click.option("--set-access", is_flag=True, help="Also of sources that are there already.")
async def ingest_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    paths: tuple[Path, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    hidden: bool,
    collection: str,
    language: Language | None,
    visibility: Visibility | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    set_access: bool,
    as_json: bool,
) -> int:
    """Bring files and folders into a collection.

    Run it again at any time: unchanged files cost nothing, changed ones are replaced, and those that
    vanished from a folder are removed. A pattern like "*.md" or "drafts/*" is held against a file's path
    below the folder, and against its name.

    Exits with 0, with 3 if some files failed, with 1 if all did, and with 2 for misuse.
    """
    given = {"include": include, "exclude": settings.ingest.exclude + exclude, "hidden": hidden}
    options = settings.ingest.model_copy(update={key: value for key, value in given.items() if value})
    report = await run_ingest(
        settings.model_copy(update={"ingest": options}),
        paths,
        collection,
        language=language,
        rights=rights_of(settings, said(visibility, allow, deny), set_access=set_access),
        quiet=as_json,
    )
    if as_json:
        print_json({"counts": report.counts, "files": [asdict(one) for one in report.outcomes]})
    return _exit_code(report)


async def run_ingest(
    settings: Settings,
    paths: tuple[Path, ...],
    collection: str,
    *,
    language: Language | None = None,
    rights: Rights | None = None,
    quiet: bool,
) -> Report:
    """An ingestion run as the settings say, with what people see of it; `quiet` on standard output.

    `rights` None means: as the settings and the collection say.
    """
    name = valid_name(collection)
    async with open_embedder(settings.embedder, os.environ) as embedder:
        made = await ensure_collection(
            settings.data, tenant_of(settings), name, embedder.identity, language=language
        )
        rights = replace(rights or rights_of(settings), usual=made.visibility)
        async with open_writer(settings.data, made) as writer:
            with shown_progress() as progress:
                instructions = Instructions(settings.ingest, settings.chunking.max_tokens, rights)
                report = await ingest(writer, embedder, paths, instructions, progress)
    click.echo(", ".join(f"{count} {kind}" for kind, count in report.counts.items()), err=quiet)
    return report


def rights_of(settings: Settings, asked: Said | None = None, *, set_access: bool = False) -> Rights:
    """Who may see what is ingested, as was asked for and as the settings say."""
    of_documents = settings.access.of_documents
    return Rights("tenant", asked, settings.access.rules, of_documents=of_documents, set_access=set_access)


def _exit_code(report: Report) -> int:
    if report.fruitless:
        return 1
    return 0 if report.complete else PARTLY_FAILED
