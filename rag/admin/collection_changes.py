"""`refdesk-admin collection create` and `set`: make a collection, and change its properties.

Also how a collection is described in words and as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, get_args

import click

from rag.access.rule import valid_name
from rag.access.tenants import tenant_of
from rag.admin.audit_command import Act, State, log_act
from rag.admin.collection_options import (
    chunking_option,
    chunking_words,
    declared_fields,
    description_option,
    embedder_option,
    keep_days_option,
    link_option,
    merge_policies,
    personal_data_option,
)
from rag.admin.command_line import command, language_option, same_desk
from rag.admin.sharing import first_visibility
from rag.admin.sources_command import open_collections, open_reader
from rag.admin.terminal import echo, print_json
from rag.config.settings import Settings
from rag.corpus import (
    DEFAULT_EMBEDDER,
    Chunking,
    Collection,
    Distance,
    EmbedderIdentity,
    FieldType,
    LanguageChoice,
    Policy,
    Visibility,
)
from rag.errors import ConfigurationError
from rag.ingest.rework_stored import Declared, change_language, check_fields, declare
from rag.models.embed import open_embedder
from rag.report.text_and_html import counted
from rag.store.read.catalog import check_embedder, check_ingestible, check_writable
from rag.store.read.collection_reader import CollectionReader
from rag.store.write.change_collection import change_collection, open_writer
from rag.store.write.desk_folder import prepare
from rag.store.write.make_collection import ensure_collection
from rag.text.flags import Flag

CALLED = {
    "embedder_name": "embedder",
    "personal_data": "policies for personal data",
    "keep_days": "retention",
}
"""What messages call a collection's properties."""


NO_FIELDS: Mapping[str, FieldType] = MappingProxyType({})
OF_INGESTION = frozenset({"chunking", "personal_data", "keep_days"})
"""Properties that only matter to ingestions."""


@command("create", on_bucket=True, changes=True)
@click.argument("name")
@click.option(
    "--field",
    "fields",
    multiple=True,
    callback=declared_fields,
    metavar="NAME=TYPE",
    help=f"Metadata field to filter by. TYPE: {', '.join(get_args(FieldType))}. Repeatable.",
)
@click.option(
    "--visibility",
    type=click.Choice(get_args(Visibility)),
    help="Who may see new sources: everybody in the tenant, or only those allowed. Default: tenant, or "
    "restricted if there are keys, OAuth or groups.",
)
@click.option(
    "--distance",
    type=click.Choice(get_args(Distance)),
    default="cosine",
    help="Metric of max_distance. The order of hits is the same with all.",
)
@embedder_option
@chunking_option
@description_option(default="")
@link_option(default="")
@personal_data_option
@keep_days_option(default=0)
@language_option("the collection")
async def create_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    name: str,
    fields: dict[str, FieldType],
    visibility: Visibility | None,
    distance: Distance,
    embedder_name: str,
    chunking: tuple[Chunking, ...] | None,
    description: str,
    link: str,
    policies: dict[Flag, Policy],
    keep_days: int,
    language: LanguageChoice | None,
    as_json: bool,
) -> None:
    """Create a collection with metadata fields to filter by.

    ingest creates a collection without fields automatically. Fields are filled from the front matter of
    Markdown files and from sidecar files (report.pdf.meta.toml); title and date also from the document's own
    metadata.
    """
    collection = await create_collection(
        settings,
        name,
        fields=fields,
        visibility=visibility,
        embedder_name=embedder_name,
        language=language,
        distance=distance,
        description=description,
        link=link,
        chunking=chunking or (),
        personal_data=merge_policies({}, policies),
        keep_days=keep_days,
    )
    if as_json:
        print_json(collection_json(collection))
    else:
        echo(
            f"Created the collection {name} with {counted(len(fields), 'field')}. New sources in it are "
            f"{'visible to the whole tenant' if collection.visibility == 'tenant' else 'restricted'}."
        )


async def create_collection(
    settings: Settings,
    name: str,
    *,
    fields: Mapping[str, FieldType] = NO_FIELDS,
    visibility: Visibility | None = None,
    embedder_name: str = DEFAULT_EMBEDDER,
    **others: Any,  # noqa: ANN401 of `ensure_collection`
) -> Collection:
    """Create a collection of the tenant, and log it. `visibility` None means the desk's default.

    Raises:
        ConfigurationError: it exists already, or the name is not valid.
    """
    await check_is_new(settings, name)
    is_set, visibility = visibility is not None, visibility or first_visibility(settings)
    tenant, state = tenant_of(settings), {"visibility": visibility, "fields": dict(fields)}
    async with open_embedder(settings.embedder_named(embedder_name), os.environ) as embedder:
        prepare(settings.home)
        with log_act(settings.data, Act("collection create", tenant, {name: (None, state)}, name)):
            return await ensure_collection(
                settings.home,
                tenant,
                name,
                embedder.identity,
                fields=fields,
                visibility=visibility,
                visibility_is_set=is_set,
                embedder_name=embedder_name,
                **others,
            )


async def check_is_new(settings: Settings, name: str) -> None:
    """Raise ConfigurationError if the tenant has a collection of this name, or the name is not valid."""
    collections = await open_reader(settings).collections(tenant_of(settings))
    if valid_name(name) in {collection.name for collection in collections}:
        raise ConfigurationError(f"The collection {name!r} already exists.")


PROPERTIES = ("description", "link", "embedder_name", "chunking", "keep_days", "visibility")
"""The options of `set` that are stored as they are."""


@command("set", on_bucket=True, changes=True)
@click.argument("name")
@description_option()
@link_option()
@click.option(
    "--embedder",
    "embedder_name",
    metavar="NAME",
    help="Another name for the same embedding model: of a table [embedders.NAME], or default for [embedder].",
)
@click.option(
    "--field",
    "fields",
    multiple=True,
    callback=declared_fields,
    metavar="NAME=TYPE",
    help="Also declare this metadata field, filled from what the documents state. Repeatable.",
)
@click.option("--no-field", multiple=True, metavar="NAME", help="No longer declare this field. Repeatable.")
@chunking_option
@language_option("the collection", default=None)
@personal_data_option
@keep_days_option()
@click.option(
    "--visibility",
    type=click.Choice(get_args(Visibility)),
    help="Who may see new sources: everybody in the tenant, or only those allowed. Sources that are there "
    "stay as they are; access set changes them.",
)
async def set_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    name: str,
    fields: dict[str, FieldType],
    no_field: tuple[str, ...],
    language: LanguageChoice | None,
    policies: dict[Flag, Policy],
    as_json: bool,
    **properties: Any,  # noqa: ANN401 click's
) -> None:
    """Change how a collection is described, cut, searched and seen.

    An empty description or link is removed. The embedder must be the model that made the collection's
    vectors: use --embedder after you renamed its table in the settings. Nothing is embedded again. Another
    chunking and other policies apply to each file at the next ingest of it. Another language applies at once
    to all that is stored.
    """
    after: dict[str, Any] = {key: properties[key] for key in PROPERTIES if properties[key] is not None}
    visibility = after.get("visibility")
    after |= {"visibility_is_set": True} if visibility else {}
    if not after and not fields and not no_field and not policies and not language:
        raise click.UsageError(
            "Give --description, --link, --embedder, --chunking, --language, --field, --no-field, "
            "--personal-data, --keep-days or --visibility."
        )
    (table,) = await open_collections(settings, name)
    stored = table.collection
    if policies:
        after["personal_data"] = merge_policies(stored.personal_data, policies)
    check_fields(stored, fields, no_field)
    _check_changeable(stored, after, language)
    identity = await _identity_of(settings, after.get("embedder_name"))

    def changed(collection: Collection) -> Collection:
        updated = replace(collection, **after)
        if identity is not None:
            check_embedder(updated, identity)
        return updated

    declared = None
    shortened = await _shortened_tags(settings, stored, after.get("keep_days", stored.keep_days))
    states = {name: _planned_states(stored, after, fields, no_field, language), **_tag_states(shortened)}
    with log_act(settings.data, Act("collection set", stored.tenant, states, name)):
        collection = await change_collection(settings.home, stored.tenant, name, changed)
        await _shorten(settings, shortened)
        if fields or no_field:
            declared = await declare(settings.home, collection, fields, no_field)
            collection = declared.collection
        collection = await _with_language(settings, collection, language)
    if as_json:
        changed_tags = {"shortened_tags": sorted(shortened)}
        print_json(
            collection_json(collection) | (_declared_json(declared) if declared else {}) | changed_tags
        )
        return
    if declared:
        _print_declared(declared, no_field)
    after.pop("visibility_is_set", None)
    after |= {"language": language_in_words(collection)} if language else {}
    set_lines = (_set_line(name, key, value) for key, value in after.items())
    for line in (*set_lines, *map(_shortened_line, shortened.values())):
        echo(line)
    if visibility and (staying := await _unchanged_note(table, visibility)):
        echo(staying)


def _planned_states(
    stored: Collection,
    after: Mapping[str, Any],
    fields: dict[str, FieldType],
    no_field: Container[str],
    language: LanguageChoice | None,
) -> tuple[State, State]:
    """What a change of these properties changes, before and after it, for the audit log."""
    remaining = {key: kind for key, kind in stored.fields.items() if key not in no_field}
    planned = replace(stored, **after, fields=remaining | fields, language=language or stored.language)
    keys = [*after, *(["fields"] if fields or no_field else ()), *(["language"] if language else ())]
    return _logged_state(stored, keys), _logged_state(planned, keys)


async def _unchanged_note(table: CollectionReader, visibility: Visibility) -> str:
    """A note on the existing documents, which keep their access when the visibility of new ones changes."""
    name, total, opened = table.collection.name, await table.source_count(), await table.open_documents()
    if visibility == "restricted" and opened:
        change = f"access set --collection {name} --if-open --allow group:NAME"
        now = f"{opened} of them open to everybody in the tenant"
    elif visibility == "tenant" and total > opened:
        change, now = "access set ID --visibility tenant", f"{total - opened} of them restricted"
    else:
        return ""
    return (
        f"Its {counted(total, 'document')} stay as they are, {now}. To change that: refdesk-admin "
        f"{change}{same_desk()}"
    )


async def _identity_of(settings: Settings, embedder_name: str | None) -> EmbedderIdentity | None:
    if embedder_name is None:
        return None
    async with open_embedder(settings.embedder_named(embedder_name), os.environ) as embedder:
        return embedder.identity


def _set_line(name: str, key: str, value: Any) -> str:  # noqa: ANN401 of any property
    if key == "chunking":
        return f"New chunking of the collection {name}, from the next ingest on: {chunking_words(value)}."
    if key == "visibility":
        whom = "open to everybody in the tenant" if value == "tenant" else "restricted to those allowed"
        return f"New documents of the collection {name} are {whom}, unless their folder or a rule differs."
    if key == "language":
        return f"The collection {name} is now stemmed as {value}."
    done = f"{'Set' if value else 'Removed'} the {CALLED.get(key, key)} of the collection {name}."
    return f"{done} The next ingest applies them." if key == "personal_data" else done


def _logged_state(collection: Collection, keys: Iterable[str]) -> dict[str, object]:
    """These properties of a collection as the audit log records them."""
    values = {key: getattr(collection, key) for key in keys}
    return values | ({"chunking": chunking_words(collection.chunking)} if "chunking" in values else {})


def _check_changeable(collection: Collection, keys: Iterable[str], language: LanguageChoice | None) -> None:
    """Check that this kind of collection has these properties: attached tables and tags lack some."""
    if OF_INGESTION.intersection(keys) or language:
        check_writable(collection)
    if {"chunking", "personal_data", "visibility"}.intersection(keys):
        check_ingestible(collection)


async def tags_of(settings: Settings, name: str) -> list[Collection]:
    """The tags of a collection, which may itself have been removed."""
    return [
        collection
        for collection in await open_reader(settings).collections(tenant_of(settings))
        if collection.tag_of == name
    ]


@dataclass(frozen=True, slots=True)
class ShortenedTag:
    """A tag whose documents are kept for fewer `days` from now on, as those of its collection."""

    tag: Collection
    days: int


async def _shortened_tags(settings: Settings, collection: Collection, days: int) -> dict[str, ShortenedTag]:
    """The tags, by name, that would be kept longer than their collection, which is for these days."""
    tags = await tags_of(settings, collection.name) if days else []
    return {tag.name: ShortenedTag(tag, days) for tag in tags if not 0 < tag.keep_days <= days}


def _tag_states(shortened: Mapping[str, ShortenedTag]) -> dict[str, tuple[State, State]]:
    """The changes of tags, for the audit log."""
    return {
        name: ({"keep_days": change.tag.keep_days}, {"keep_days": change.days})
        for name, change in shortened.items()
    }


async def _shorten(settings: Settings, shortened: Mapping[str, ShortenedTag]) -> None:
    for name, change in shortened.items():
        keep = partial(replace, keep_days=change.days)
        await change_collection(settings.home, change.tag.tenant, name, keep)


def _shortened_line(change: ShortenedTag) -> str:
    name, before = change.tag.name, change.tag.keep_days
    earlier = counted(before, "day") if before else "without end"
    return (
        f"Its tag {name} keeps documents {counted(change.days, 'day')}, too; before: {earlier}. To undo it: "
        f"refdesk-admin collection set {name} --keep-days {before}{same_desk()}"
    )


async def _with_language(
    settings: Settings, collection: Collection, language: LanguageChoice | None
) -> Collection:
    """The collection with its words analysed in this language; unchanged without one."""
    if language is None:
        return collection
    async with open_writer(settings.home, collection) as writer:
        updated = await change_language(writer, language)
        await writer.finish()
    return updated


def _declared_json(declared: Declared) -> dict[str, Any]:
    complaints = [{"path": path, "reason": reason} for path, reason in declared.complaints]
    return {"filled": dict(declared.filled), "complaints": complaints}


def _print_declared(declared: Declared, removed: Sequence[str]) -> None:
    name = declared.collection.name
    for field in removed:
        if field not in declared.filled:
            echo(f"The collection {name} no longer declares the field {field}.")
    for field, number in declared.filled.items():
        echo(f"Declared the field {field} of the collection {name}: {number} of its documents have a value.")
    for path, reason in declared.complaints:
        echo(f"{path}: {reason}")


def language_in_words(collection: Collection) -> str:
    """A collection's language: "German", or with the detected ones "auto (German, English)"."""
    languages = ", ".join("others" if language == "none" else language for language in collection.languages)
    return f"{collection.language} ({languages})" if languages else collection.language


def collection_json(collection: Collection) -> dict[str, Any]:
    """A collection as the commands print it with --json."""
    details = asdict(collection)
    details["chunking"] = chunking_words(collection.chunking)
    del details["build"]
    for name, build in (("former", collection.former), ("coming", collection.coming)):
        details[name] = build and {
            "embedder": build.embedder.model,
            "chunking": chunking_words(build.chunking),
        }
    details["created_at"] = collection.created_at.isoformat(timespec="seconds")
    optional = ("attached", "calibration", "personal_data", "keep_days", "expiring", "languages", "tag_of")
    for name in ("former", "coming", *optional, "visibility_is_set"):
        if not details[name]:
            del details[name]
    return details
