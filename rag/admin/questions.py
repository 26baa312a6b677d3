"""`refdesk-admin eval new`: a file of questions to be written about one's own documents."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rag.admin.console import collection_option, command, counted, echo, print_json
from rag.admin.sources import open_collections
from rag.errors import ConfigurationError, NotReadyError
from rag.evaluate.sets.handwritten import new_file, skeletons

if TYPE_CHECKING:
    from rag.config.settings import Settings

QUESTIONS = 20


@command("new")
@click.argument("file", type=click.Path(path_type=Path), default="questions.toml")
@click.option(
    "--questions", type=click.IntRange(1, 1000), default=QUESTIONS, metavar="N", help="How many; 20."
)
@collection_option(None)
async def new_command(
    settings: Settings, *, file: Path, questions: int, collection: str | None, as_json: bool
) -> None:
    """Start a file of questions about your documents.

    FILE, questions.toml by default, gets passages from all over the collection, each with room for a
    question that it answers. A file that is there already is left as it is.
    """
    if file.suffix.lower() != ".toml":
        raise click.BadParameter(f"{str(file)!r} must end in .toml: that is what it will be.")
    found = await skeletons(await open_collections(settings, collection), questions)
    if not found:
        raise NotReadyError(
            "There are no documents to ask about; bring some in with refdesk-admin ingest PATH."
        )
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(new_file(file.name, found))
    except OSError as error:
        raise ConfigurationError(f"The file {file} can't be made: {error.strerror}.") from error
    if as_json:
        print_json({"file": str(file), "questions": len(found)})
    else:
        echo(
            f"{file} has room for {counted(len(found), 'question')}. "
            f"Write them, then: refdesk-admin eval {shlex.quote(str(file))}"
        )
