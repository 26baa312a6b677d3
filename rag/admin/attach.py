"""`refdesk-admin collection attach`, and what other commands say of an attached table."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

import click

from rag.access.names import valid_name
from rag.access.tenants import tenant_of
from rag.admin.acts import Act, recorded
from rag.admin.collection_options import description_option, embedder_option, fields_of, link_option
from rag.admin.console import command, echo, language_option, print_json
from rag.admin.sources import open_reader
from rag.corpus import NO_VECTORS, USUAL_LANGUAGE, Attachment, Collection
from rag.errors import ConfigurationError
from rag.models.embed import open_embedder
from rag.report.tables import counted
from rag.store.read.attached.attached_reader import AttachedReader
from rag.store.read.attached.open_attached import AttachedTables, located
from rag.store.write.desk_folder import prepare
from rag.store.write.make_collection import ensure_collection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rag.config.settings import Settings
    from rag.corpus import EmbedderIdentity, FieldType, Language
    from rag.store.read.collection_reader import CollectionReader

FC = TypeVar("FC", bound="Callable[..., object] | click.Command")
ATTACHED_FIELD = "NAME=TYPE[:COLUMN]"


def _fields(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> tuple[dict[str, FieldType], dict[str, str]]:
    """The declared fields, and the column of each: by default the one of the same name."""
    pairs = [value.partition(":") for value in values]
    columns = {declared.partition("=")[0]: column for declared, _, column in pairs}
    return fields_of([declared for declared, _, _ in pairs]), {
        name: column or name for name, column in columns.items()
    }


def column_option(name: str, text: str, *, required: bool = False) -> Callable[[FC], FC]:
    """An option that names a column."""
    return click.option(f"--{name}", name, metavar="COLUMN", required=required, help=text)


@command("attach")
@click.argument("name")
@click.option("--table", required=True, metavar="PATH|URI", help="The LanceDB table: a folder NAME.lance.")
@column_option("id", "The ids of its rows: text or whole numbers.", required=True)
@column_option("text", "The texts.", required=True)
@column_option("vector", "The vectors of the texts. Without, a search goes by words alone.")
@column_option("title", "Titles. Default: the ids.")
@column_option("url", "Addresses where a person can open a row.")
@column_option("date", "Dates: timestamps, dates, or text like 2026-11-23.")
@click.option(
    "--field",
    "declared",
    multiple=True,
    callback=_fields,
    metavar=ATTACHED_FIELD,
    help="Metadata field to filter by, of a type as in collection create. Repeatable.",
)
@column_option(
    "allow", "Who may see a row: lists of user:NAME and group:NAME. A row without a list is hidden."
)
@click.option(
    "--visibility",
    type=click.Choice(["tenant"]),
    help="Instead of --allow: everybody in the tenant may see all rows.",
)
@embedder_option
@description_option(default="")
@link_option(default="")
@language_option("the texts", auto=False, default=USUAL_LANGUAGE)
async def attach_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    name: str,
    table: str,
    declared: tuple[dict[str, FieldType], dict[str, str]],
    visibility: str | None,
    embedder_name: str,
    description: str,
    link: str,
    language: Language | None,
    as_json: bool,
    **columns: str | None,
) -> None:
    """Search a LanceDB table that others write, as a collection.

    refdesk only reads it: it copies nothing, makes no index, and changes no file there. Each row is a
    document of one passage. What others change there counts with the next request.

    Name a part of a column as in metadata.title. Say who may see the rows: --allow COLUMN or --visibility
    tenant.
    """
    if (columns["allow"] is None) == (visibility is None):
        raise click.UsageError(
            "Say who may see the rows: either --allow COLUMN, a column with lists of user:NAME and "
            "group:NAME, or --visibility tenant for everybody in the tenant."
        )
    if valid_name(name) in {one.name for one in await open_reader(settings).collections(tenant_of(settings))}:
        raise ConfigurationError(f"The collection {name!r} already exists.")
    fields, field_columns = declared
    attachment = Attachment(located(table), fields=field_columns, **columns)  # type: ignore[arg-type]
    wanted = Collection(
        tenant_of(settings),
        name,
        await _embedder(settings, attachment, embedder_name),
        language or USUAL_LANGUAGE,
        "cosine",
        datetime.now(UTC),
        fields,
        "restricted" if attachment.allow else "tenant",
        description,
        link,
        embedder_name,
        attachment,
    )
    reader = await checked(wanted, settings)
    remarks, rows = await remarks_on(reader), (await reader.survey()).rows
    prepare(settings.data)
    state = {"visibility": wanted.visibility, "fields": fields, "table": attachment.table}
    with recorded(settings.data, Act("collection attach", wanted.tenant, {name: (None, state)}, name)):
        await ensure_collection(
            settings.data,
            wanted.tenant,
            name,
            wanted.embedder,
            language=wanted.language,
            fields=fields,
            visibility=wanted.visibility,
            description=description,
            link=link,
            embedder_name=embedder_name,
            created_at=wanted.created_at,
            attached=attachment,
            visibility_is_set=True,
        )
    if as_json:
        print_json({"name": name, "table": attachment.table, "rows": rows, "remarks": remarks})
        return
    echo(f"Attached {attachment.table} as the collection {name}, with {counted(rows, 'row')}.")
    for remark in remarks:
        echo(remark)


async def _embedder(settings: Settings, attachment: Attachment, name: str) -> EmbedderIdentity:
    if attachment.vector is None:
        return NO_VECTORS
    async with open_embedder(settings.embedder_named(name), os.environ) as embedder:
        return embedder.identity


async def checked(wanted: Collection, settings: Settings) -> AttachedReader:
    """The attached table, opened, if searches can use it.

    Raises:
        StoreError: it is not there, or can't be read.
        ConfigurationError: its columns or vectors don't fit, or it can be searched neither by meaning nor by
            words.
    """
    reader = await AttachedTables(settings.search.timeout_seconds).opened(wanted)
    attachment = wanted.attached
    found = reader.collection.embedder.dimension
    if attachment and attachment.vector and found != wanted.embedder.dimension:
        raise ConfigurationError(
            f"The vectors in the column {attachment.vector!r} have {found} dimensions; those of the "
            f"embedding model {wanted.embedder.model} have {wanted.embedder.dimension}. Name the model that "
            "made them (--embedder NAME), or leave out --vector to search by words."
        )
    if attachment and not attachment.vector and not reader.by_words:
        raise ConfigurationError(
            f"Without --vector, a search goes by words, but the column {attachment.text!r} has no full-text "
            "index. Name the column of the vectors, or ask the owner of the table for such an index."
        )
    return reader


async def remarks_on(table: CollectionReader) -> list[str]:
    """What an operator must know of an attached table: why it can't be read, and what it lacks."""
    if not isinstance(table, AttachedReader):
        return []
    if table.failure:
        return [f"It can't be read: {table.failure}"]
    survey = await table.survey()
    unread, repeated, hidden = (
        counted(one, "row") for one in (survey.unusable, survey.repeated, survey.hidden)
    )
    remarks = {
        "It has no full-text index, so searches find its rows by meaning only.": not table.by_words,
        "It has no vector index, so each search by meaning reads all vectors.": table.reads_all_vectors,
        f"Without an id or a text, {unread} can't be found.": survey.unusable,
        f"The same id as another row: {repeated}, which can't be found.": survey.repeated,
        f"Nobody sees {hidden}: the list of who may is missing or malformed.": survey.hidden,
    }
    return [remark for remark, applies in remarks.items() if applies]
