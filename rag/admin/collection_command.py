"""`refdesk-admin collection`: attach, tag, list, show and remove collections.

`attach` makes somebody's LanceDB table a read-only collection. `create` and `set` are in
collection_changes.py, `rebuild` is in collection_rebuild.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from rag.access.rule import valid_name
from rag.access.tenants import tenant_of
from rag.admin import collection_changes
from rag.admin.audit_command import Act, log_act, log_now
from rag.admin.collection_rebuild import rebuild_command
from rag.admin.command_line import command, confirmed_option, language_option, nothing_yet, repeatable
from rag.admin.runs_command import forget_runs
from rag.admin.sources_command import open_collections
from rag.admin.terminal import Group, print_json, print_result, print_table
from rag.config.settings import Settings
from rag.corpus import NO_VECTORS, USUAL_LANGUAGE, Attachment, Collection, FieldType, Language
from rag.errors import ConfigurationError, NotFoundError
from rag.report import counted
from rag.store.read.attached.attached_reader import AttachedReader, AttachedTables, absolute_address
from rag.store.read.collection_reader import CollectionReader
from rag.store.write.change_collection import drop_collection, finish_drop
from rag.store.write.desk_folder import prepare, spending_reserve
from rag.store.write.make_collection import ensure_collection, tag_collection

ATTACHED_FIELD = "NAME=TYPE[:COLUMN]"


@click.group("collection", cls=Group)
def collection_command() -> None:
    """Create, attach, tag, describe, show and remove collections."""


for subcommand in (collection_changes.create_command, collection_changes.set_command, rebuild_command):
    collection_command.add_command(subcommand)


def _fields(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> tuple[dict[str, FieldType], dict[str, str]]:
    """The declared fields, and the column of each: by default the one of the same name."""
    pairs = [value.partition(":") for value in values]
    columns = {declared.partition("=")[0]: column for declared, _, column in pairs}
    return collection_changes.fields_of([declared for declared, _, _ in pairs]), {
        name: column or name for name, column in columns.items()
    }


def column_option(name: str, text: str, *, required: bool = False) -> Callable[[Any], Any]:
    """An option that names a column."""
    return click.option(f"--{name}", name, metavar="COLUMN", required=required, help=text)


@command("attach", collection_command, changes=True)
@click.argument("name")
@click.option(
    "--table",
    required=True,
    metavar="PATH|URI",
    help="The LanceDB table: a folder NAME.lance, or db://DATABASE/NAME.",
)
@column_option("id", "The ids of its rows: text or whole numbers.", required=True)
@column_option("text", "The texts.", required=True)
@column_option("vector", "The vectors of the texts. Without, a search goes by words alone.")
@column_option("title", "Titles. Default: the ids.")
@column_option("url", "Addresses where a person can open a row.")
@column_option("date", "Dates: timestamps, dates, or text like 2026-11-23.")
@repeatable(
    "--field",
    "declared",
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
@collection_changes.embedder_option
@collection_changes.description_option(default="")
@collection_changes.link_option(default="")
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
    await collection_changes.check_is_new(settings, name)
    fields, field_columns = declared
    attachment = Attachment(absolute_address(table), fields=field_columns, **columns)  # type: ignore[arg-type]
    tenant = tenant_of(settings)
    embedder = (
        NO_VECTORS
        if attachment.vector is None
        else await collection_changes.identity_of(settings, embedder_name)
    )
    logged: dict[str, Any] = {"visibility": "restricted" if attachment.allow else "tenant", "fields": fields}
    properties = logged | {
        "language": language or USUAL_LANGUAGE,
        "created_at": datetime.now(UTC),
        "description": description,
        "link": link,
        "embedder_name": embedder_name,
        "attached": attachment,
        "visibility_is_set": True,
    }
    reader = await open_checked(Collection(tenant, name, embedder, distance="cosine", **properties), settings)
    remarks, rows = await attachment_remarks(reader), (await reader.survey()).rows
    prepare(settings.home)
    act = Act("collection attach", tenant, {name: (None, logged | {"table": attachment.table})}, name)
    with log_act(settings.data, act):
        await ensure_collection(settings.home, tenant, name, embedder, **properties)
    print_result(
        {"name": name, "table": attachment.table, "rows": rows, "remarks": remarks},
        f"Attached {attachment.table} as the collection {name}, with {counted(rows, 'row')}.",
        *remarks,
    )


async def open_checked(collection: Collection, settings: Settings) -> AttachedReader:
    """The opened attached table, after checking that searches can use it.

    Raises:
        StoreError: the table is missing or can't be read.
        ConfigurationError: columns or vectors don't fit, or it has neither vectors nor a full-text index.
    """
    reader = await AttachedTables(settings.search.timeout_seconds).opened(collection)
    attachment, dimension = collection.attached, reader.collection.embedder.dimension
    if attachment and attachment.vector and dimension != collection.embedder.dimension:
        raise ConfigurationError(
            f"The vectors in the column {attachment.vector!r} have {dimension} dimensions; the embedding "
            f"model {collection.embedder.model} makes vectors with {collection.embedder.dimension}. Name the "
            "model that made them (--embedder NAME), or leave out --vector to search by words."
        )
    if attachment and not attachment.vector and not reader.by_words:
        raise ConfigurationError(
            f"Without --vector, a search goes by words, but the column {attachment.text!r} has no full-text "
            "index. Name the column of the vectors, or ask the owner of the table for such an index."
        )
    return reader


async def attachment_remarks(table: CollectionReader) -> list[str]:
    """Notes on an attached table for its operator: why it can't be read, or what it lacks."""
    if not isinstance(table, AttachedReader):
        return []
    if table.failure:
        return [f"It can't be read: {table.failure}"]
    survey = await table.survey()
    unread, repeated, hidden = (
        counted(rows, "row") for rows in (survey.unusable, survey.repeated, survey.hidden)
    )
    remarks = {
        "It has no full-text index, so searches find its rows by meaning only.": not table.by_words,
        "It has no vector index, so each search by meaning reads all vectors.": table.reads_all_vectors,
        f"Without an id or a text, {unread} can't be found.": survey.unusable,
        f"The same id as another row: {repeated}, which can't be found.": survey.repeated,
        f"Nobody sees {hidden}: the list of who may is missing or malformed.": survey.hidden,
    }
    return [remark for remark, applies in remarks.items() if applies]


@command("tag", collection_command, changes=True)
@click.argument("name")
@click.argument("tag")
@collection_changes.description_option()
async def tag_command(settings: Settings, *, name: str, tag: str, description: str | None) -> None:
    """Keep a collection as it is now, under another name.

    TAG is a copy of NAME with its passages and vectors. Nothing is ingested into it, and it is searched only
    where a request, a key or the settings name it. A document in it is shown only to those who could see it
    when the tag was made and still could in NAME, even if it was removed there. purge takes out what was
    removed from NAME; collection remove TAG --yes removes the tag.
    """
    (table,) = await open_collections(settings, name)
    await collection_changes.check_is_new(settings, tag)
    if description is None:
        described = f" {table.collection.description}" if table.collection.description else ""
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        description = f"{name} as it was on {today}, searched only if it is named.{described}"
    tenant, state = tenant_of(settings), {"tag_of": name, "sources": await table.source_count()}
    with log_act(settings.data, Act("collection tag", tenant, {valid_name(tag): (None, state)}, tag)):
        tagged = await tag_collection(settings.home, table.collection, tag, description)
    done = f"Kept the collection {name} as {tag}. Searches find it where they name it."
    print_result(collection_changes.collection_json(tagged), done)


@command("list", collection_command)
async def list_command(settings: Settings) -> None:
    """List the collections."""
    collections = [table.collection for table in await open_collections(settings, None)]
    rows = [
        (
            collection.name,
            collection_changes.language_in_words(collection),
            collection.visibility,
            _embedder_in_words(collection, settings),
            ", ".join(collection.fields) or "-",
        )
        for collection in collections
    ]
    titles = ("COLLECTION", "LANGUAGE", "VISIBILITY", "EMBEDDER", "FIELDS")
    print_json({"collections": [*map(collection_changes.collection_json, collections)]})
    print_table([titles, *rows], empty=nothing_yet("collections"))


@command("show", collection_command)
@click.argument("name")
async def show_command(settings: Settings, *, name: str) -> None:
    """Show a collection's fields and settings.

    Of an attached table it also says what is missing.
    """
    (table,) = await open_collections(settings, name)
    details, remarks = collection_changes.collection_json(table.collection), await attachment_remarks(table)
    lines = (
        f"{f'{key} {part}'.strip():24} {detail}"
        for key, value in details.items()
        for part, detail in (value.items() if isinstance(value, dict) else [("", value)])
    )
    of_table = {"remarks": remarks} if table.collection.attached else {}
    print_result(details | of_table, *lines, *remarks)


@command("remove", collection_command, changes=True)
@click.argument("name")
@confirmed_option("Delete the collection and everything in it.")
async def remove_command(settings: Settings, *, name: str) -> None:
    """Remove a collection and everything in it. Of an attached table, nothing is deleted."""
    try:
        (table,) = await open_collections(settings, name)
    except NotFoundError:
        tenant = tenant_of(settings)
        was_left = await finish_drop(settings.home, tenant, valid_name(name))  # by a run that was killed
        if not (forget_runs(settings.home, tenant, name) or was_left):  # or that failed before it made one
            raise
        log_now(settings.data, Act("collection remove", tenant, {name: ({}, None)}, name, gives=False))
        attached = None
    else:
        attached = table.collection.attached
        await _remove(settings, table)
    tags = [tag.name for tag in await collection_changes.tags_of(settings, name)]
    still_there = (
        f"What it held is still in {', '.join(tags)}. Remove these, too, or run refdesk-admin purge, which "
        "empties them."
    )
    print_result(
        {"removed": name} | ({"tags": tags} if tags else {}),
        f"Removed the collection {name}.{f' The table {attached.table} is as it was.' if attached else ''}",
        *([still_there] if tags else []),
    )


async def _remove(settings: Settings, table: CollectionReader) -> None:
    collection = table.collection
    state: dict[str, object] = {"visibility": collection.visibility, "fields": collection.fields}
    if collection.attached:
        state["table"] = collection.attached.table
    else:
        state["sources"] = len(await table.listing())
    gone = {collection.name: (state, None)}
    act = Act("collection remove", collection.tenant, gone, collection.name, gives=False)
    with log_act(settings.data, act):
        for attempt in spending_reserve(settings.home):
            with attempt:
                await drop_collection(settings.home, collection)
    forget_runs(settings.home, collection.tenant, collection.name)


def _embedder_in_words(collection: Collection, settings: Settings) -> str:
    name = collection.embedder_name
    return name if settings.has_embedder(name) else f"{name} (not in the settings)"
