"""`refdesk-admin collection create` and `set`: make a collection, and change its properties.

First come their options, last how a collection is described in words and as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any, cast, get_args

import click

from rag.access.rule import valid_name
from rag.access.tenants import has_tenant, tenant_of
from rag.admin.audit_command import Act, log_act
from rag.admin.command_line import command, language_option, repeatable, same_desk
from rag.admin.sharing import UNLESS, first_visibility
from rag.admin.sources_command import open_collections
from rag.admin.terminal import print_result
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
    Strategy,
    Visibility,
)
from rag.errors import ConfigurationError
from rag.ingest.prepare import FIELD_NAME, field_name
from rag.ingest.rework_stored import MAX_FIELDS, Declared, change_language, check_fields, declare
from rag.models.embed import open_embedder
from rag.report import counted, one_line
from rag.store.read.catalog import check_embedder, check_ingestible, check_writable
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import change_collection, open_writer
from rag.store.write.desk_folder import prepare
from rag.store.write.make_collection import ensure_collection
from rag.text.flags import PERSONAL, Flag
from rag.uris import web_address

NO_NAME = "a field can't be called {!r}: its name has small letters, digits and _, at most 48."
TAKES = " {} takes the entries that documents call so."
FIELD_TYPES = ", ".join(get_args(FieldType))
AS_USUAL = "default"
_SIZES = {
    "max": ("max_tokens", range(32, 8193)),
    "overlap": ("overlap", range(4097)),
}
MAX_DESCRIPTION = 500  # characters
MAX_LINK = 200  # characters; assistants read it in each conversation


def _at_most(length: int, text: str) -> str:
    if len(text) > length:
        raise click.BadParameter(f"it has {len(text)} characters; at most {length} are allowed.")
    return text


def _description(value: str) -> str:
    return _at_most(MAX_DESCRIPTION, one_line(value))


description_option = partial(
    click.option,
    "--description",
    type=_description,
    metavar="TEXT",
    help="What the collection holds. Assistants and the search stage planner read it.",
)


def _policies(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[Flag, Policy]:
    """The policies in the options --personal-data; the last one of a kind wins."""
    policies: dict[Flag, Policy] = {}
    for value in values:
        kind, _, policy_name = value.rpartition("=")
        kinds = [personal_kind for personal_kind in PERSONAL if kind in {personal_kind, ""}]
        if policy_name not in get_args(Policy) or not kinds:
            raise click.BadParameter(
                f"{value!r} is not like redact or email=redact. Policies: {', '.join(get_args(Policy))}. "
                f"Kinds: {', '.join(PERSONAL)}."
            )
        policies |= dict.fromkeys(kinds, cast("Policy", policy_name))
    return policies


def merge_policies(before: Mapping[Flag, Policy], changes: Mapping[Flag, Policy]) -> dict[Flag, Policy]:
    """The policies with these changes, without the default "allow"."""
    return {kind: policy for kind, policy in {**before, **changes}.items() if policy != "allow"}


personal_data_option = repeatable(
    "--personal-data",
    "policies",
    callback=_policies,
    metavar="[KIND=]POLICY",
    help="What happens to documents with personal data or secrets: allow (default), redact (they are masked "
    "in what is stored) or skip (they aren't stored). KIND: "
    f"{', '.join(PERSONAL)}; without it, all. Repeatable.",
)


keep_days_option = partial(
    click.option,
    "--keep-days",
    type=click.IntRange(0, 36500),
    metavar="N",
    help="Documents expire N days after their date, or else after the last change of their files: nobody "
    "finds them from then on, and the next ingest removes them. 0: never.",
)


embedder_option = click.option(
    "--embedder",
    "embedder_name",
    default=DEFAULT_EMBEDDER,
    metavar="NAME",
    help="Embedding model: all-minilm-l6-v2 (English), multilingual-e5-small, an installed model, or the "
    "NAME of a table [embedders.NAME]. Default: [embedder].",
)


def _chunking(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> tuple[Chunking, ...] | None:
    if not values:
        return None
    return () if tuple(values) == (AS_USUAL,) else tuple(map(chunking_from, values))


chunking_option = repeatable(
    "--chunking",
    callback=_chunking,
    metavar="[GLOB:]STRATEGY[,KEY=VALUE…]",
    help=f"How documents are cut: {', '.join(get_args(Strategy))}; with max= and overlap= in tokens, "
    "and headers=no to embed no title and headings. Repeatable, for other files: the first GLOB that matches "
    f"counts. Default: {AS_USUAL}, which is structure.",
)


def chunking_from(text: str) -> Chunking:
    """The chunking that an option describes, like "*.log:tokens,max=200,overlap=20".

    Raises:
        click.BadParameter: the text has another form, or a size is out of range.
    """
    pattern, separator, definition = text.rpartition(":")
    strategy, *options = definition.split(",")
    if strategy not in get_args(Strategy) or (separator and not pattern):
        raise click.BadParameter(
            f"{text!r} is not like sentence,max=200 or '*.log:tokens,overlap=20'. Strategies: "
            f"{', '.join(get_args(Strategy))}."
        )
    values: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key == "headers" and value in {"yes", "no"}:
            values["headers"] = value == "yes"
        elif key in _SIZES and value.isdecimal() and int(value) in _SIZES[key][1]:
            values[_SIZES[key][0]] = int(value)
        else:
            ranges = ", ".join(f"{name} from {span[0]} to {span[-1]}" for name, (_, span) in _SIZES.items())
            raise click.BadParameter(f"{option!r} in {text!r} is none of: {ranges}, headers yes or no.")
    chunking = Chunking(strategy=cast("Strategy", strategy), match=pattern or "*", **values)
    if chunking.max_tokens and chunking.overlap > chunking.max_tokens // 2:
        raise click.BadParameter(f"the overlap in {text!r} is more than half of max.")
    return chunking


def chunking_words(chunking: Sequence[Chunking]) -> str:
    """A chunking as the option takes it."""
    return "; ".join(map(_words, chunking)) or AS_USUAL


def _words(chunking: Chunking) -> str:
    sizes = {key: (getattr(chunking, name), getattr(Chunking(), name)) for key, (name, _) in _SIZES.items()}
    parts = [
        chunking.strategy,
        *(f"{key}={value}" for key, (value, usual) in sizes.items() if value != usual),
    ]
    pattern = "" if chunking.match == "*" else f"{chunking.match}:"
    return pattern + ",".join([*parts, *([] if chunking.headers else ["headers=no"])])


def _link(value: str) -> str:
    address = web_address(value) if value else ""
    if address is None:
        raise click.BadParameter(f"{value!r} is not an http or https address.")
    return _at_most(MAX_LINK, address)


link_option = partial(
    click.option,
    "--link",
    type=_link,
    metavar="URL",
    help="Where a person finds more about the collection. Assistants read it.",
)


def fields_of(values: Sequence[str]) -> dict[str, FieldType]:
    """The declared fields, from options like year=integer.

    Raises:
        click.BadParameter: an option has another form, a field is declared twice, or there are too many.
    """
    fields: dict[str, FieldType] = {}
    for value in values:
        name, _, type_name = value.partition("=")
        if type_name not in get_args(FieldType):
            raise click.BadParameter(f"{value!r} is not like year=integer. Types: {FIELD_TYPES}.")
        if not FIELD_NAME.fullmatch(name):
            takes = TAKES.format(field_name(name)) if field_name(name) else ""
            raise click.BadParameter(NO_NAME.format(name) + takes)
        if name in fields:
            raise click.BadParameter(f"the field {name} is declared twice.")
        fields[name] = cast("FieldType", type_name)
    if len(fields) > MAX_FIELDS:
        raise click.BadParameter(f"a collection has at most {MAX_FIELDS} fields.")
    return fields


field_option = partial(
    repeatable,
    "--field",
    "fields",
    callback=lambda _context, _option, values: fields_of(values),
    metavar="NAME=TYPE",
)
visibility_option = partial(click.option, "--visibility", type=click.Choice(get_args(Visibility)))


CALLED = {
    "embedder_name": "embedder",
    "personal_data": "policies for personal data",
    "keep_days": "retention",
}
"""What messages call a collection's properties."""


NO_FIELDS: Mapping[str, FieldType] = MappingProxyType({})


@command("create", changes=True)
@click.argument("name")
@field_option(help=f"Metadata field to filter by. TYPE: {FIELD_TYPES}. Repeatable.")
@visibility_option(
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
async def create_command(
    settings: Settings,
    *,
    name: str,
    chunking: tuple[Chunking, ...] | None,
    policies: dict[Flag, Policy],
    **properties: Any,  # noqa: ANN401 click's
) -> None:
    """Create a collection with metadata fields to filter by.

    ingest creates a collection without fields automatically. Fields are filled from the front matter of
    Markdown files and from sidecar files (report.pdf.meta.toml); title and date also from the document's own
    metadata.
    """
    personal_data = merge_policies({}, policies)
    collection = await create_collection(
        settings, name, chunking=chunking or (), personal_data=personal_data, **properties
    )
    visibility = "visible to the whole tenant" if collection.visibility == "tenant" else "restricted"
    print_result(
        collection_json(collection),
        f"Created the collection {name} with {counted(len(collection.fields), 'field')}. New sources in it "
        f"are {visibility}, {UNLESS}.",
    )


async def create_collection(
    settings: Settings,
    name: str,
    *,
    fields: Mapping[str, FieldType] = NO_FIELDS,
    visibility: Visibility | None = None,
    embedder_name: str = DEFAULT_EMBEDDER,
    **properties: Any,  # noqa: ANN401 of `ensure_collection`
) -> Collection:
    """Create a collection of the tenant, and log it. `visibility` None means the desk's default.

    Raises:
        ConfigurationError: it exists already, or the name is not valid.
    """
    await check_is_new(settings, name)
    properties |= {
        "fields": dict(fields),
        "embedder_name": embedder_name,
        "visibility": visibility or first_visibility(settings),
        "visibility_is_set": visibility is not None,
    }
    tenant, state = tenant_of(settings), {key: properties[key] for key in ("visibility", "fields")}
    properties["tenant_is_there"] = has_tenant(settings.home, tenant)
    identity = await identity_of(settings, embedder_name)
    prepare(settings.home)
    properties["created_at"] = began = datetime.now(UTC)
    with log_act(settings.data, Act("collection create", tenant, {name: (None, state)}, name)):
        collection = await ensure_collection(settings.home, tenant, name, identity, **properties)
        if collection.created_at != began:  # another command has made it since the check, by its own options
            raise ConfigurationError(EXISTS.format(name))
    return collection


EXISTS = "The collection {!r} already exists."


async def check_is_new(settings: Settings, name: str) -> None:
    """Raise ConfigurationError if the tenant has a collection of this name, or the name is not valid."""
    collections = await DeskReader.of(settings).collections(tenant_of(settings))
    if valid_name(name) in {collection.name for collection in collections}:
        raise ConfigurationError(EXISTS.format(name))


def _merged_properties(
    stored: Collection,
    fields: Mapping[str, FieldType],
    no_field: tuple[str, ...],
    policies: Mapping[Flag, Policy],
) -> dict[str, Any]:
    """The properties that a command changes in part: declared fields, and policies for personal data."""
    merged: dict[str, Any] = {}
    if policies:
        merged["personal_data"] = merge_policies(stored.personal_data, policies)
    if fields or no_field:
        remaining = {key: kind for key, kind in stored.fields.items() if key not in no_field}
        merged["fields"] = remaining | dict(fields)
    return merged


TOLD_OTHERWISE = {"visibility_is_set", "fields"}  # by other lines of `set` than those for each property
PROPERTIES = ("description", "link", "embedder_name", "chunking", "keep_days", "visibility")
"""The options of `set` that are stored as they are."""


@command("set", changes=True)
@click.argument("name")
@description_option()
@link_option()
@click.option(
    "--embedder",
    "embedder_name",
    metavar="NAME",
    help="Another name for the same embedding model: of a table [embedders.NAME], or default for [embedder].",
)
@field_option(help="Also declare this metadata field, filled from what the documents state. Repeatable.")
@repeatable("--no-field", metavar="NAME", help="No longer declare this field. Repeatable.")
@chunking_option
@language_option("the collection", default=None)
@personal_data_option
@keep_days_option()
@visibility_option(
    help="Who may see new sources: everybody in the tenant, or only those allowed. Sources that are there "
    "stay as they are; access set changes them."
)
async def set_command(
    settings: Settings,
    *,
    name: str,
    fields: dict[str, FieldType],
    no_field: tuple[str, ...],
    language: LanguageChoice | None,
    policies: dict[Flag, Policy],
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
    if not any((after, fields, no_field, policies, language)):
        raise click.UsageError(
            "Give --description, --link, --embedder, --chunking, --language, --field, --no-field, "
            "--personal-data, --keep-days or --visibility."
        )
    (table,) = await open_collections(settings, name)
    stored = table.collection
    planned = after | _merged_properties(stored, fields, no_field, policies)
    planned |= {"language": language} if language else {}
    check_fields(stored, fields, no_field)
    _check_changeable(stored, planned.keys())
    identity = await identity_of(settings, after["embedder_name"]) if "embedder_name" in after else None

    def changed(collection: Collection) -> Collection:
        # Merged under the lock: since `stored` was read, another command may have set some policies.
        merged = merge_policies(collection.personal_data, policies)
        updated = replace(collection, **after, personal_data=merged)
        if identity is not None:
            check_embedder(updated, identity)
        return updated

    declared = None
    days = after.get("keep_days", stored.keep_days)
    shortened = await _longer_tags(settings, stored, days)
    states = {name: (_logged_state(stored, planned), _logged_state(replace(stored, **planned), planned))}
    states |= {
        tag: ({"keep_days": before.keep_days}, {"keep_days": days}) for tag, before in shortened.items()
    }
    with log_act(settings.data, Act("collection set", stored.tenant, states, name)):
        collection = await change_collection(settings.home, stored.tenant, name, changed)
        for tag in shortened:
            await change_collection(settings.home, stored.tenant, tag, partial(replace, keep_days=days))
        if fields or no_field:
            declared = await declare(settings.home, collection, fields, no_field)
            collection = declared.collection
        if language:
            async with open_writer(settings.home, collection) as writer:
                collection = await change_language(writer, language)
                await writer.finish()
    of_fields = _declared_json(declared) if declared else {}
    print_result(
        collection_json(collection) | of_fields | {"shortened_tags": sorted(shortened)},
        *(_declared_lines(declared, no_field) if declared else ()),
        *(_set_line(collection, key, value) for key, value in planned.items() if key not in TOLD_OTHERWISE),
        *(_shortened_line(tag, days) for tag in shortened.values()),
        *(await _unchanged_notes(table, visibility) if visibility else ()),
    )


async def _unchanged_notes(table: CollectionReader, visibility: Visibility) -> list[str]:
    """Notes on the existing documents, which keep their access when the visibility of new ones changes."""
    name, total, opened = table.collection.name, await table.source_count(), await table.open_documents()
    if visibility == "restricted" and opened:
        change = f"access set --collection {name} --if-open --allow group:NAME"
        now = f"{opened} of them open to everybody in the tenant"
    elif visibility == "tenant" and total > opened:
        change, now = "access set ID --visibility tenant", f"{total - opened} of them restricted"
    else:
        return []
    staying = f"Its {counted(total, 'document')} stay as they are, {now}."
    return [f"{staying} To change that: refdesk-admin {change}{same_desk()}"]


async def identity_of(settings: Settings, embedder_name: str) -> EmbedderIdentity:
    """The identity of an embedder of the settings, which is opened for it."""
    async with open_embedder(settings.embedder_named(embedder_name), os.environ) as embedder:
        return embedder.identity


def _set_line(collection: Collection, key: str, value: Any) -> str:  # noqa: ANN401 of any property
    name = collection.name
    if key == "chunking":
        return f"New chunking of the collection {name}, from the next ingest on: {chunking_words(value)}."
    if key == "visibility":
        whom = "open to everybody in the tenant" if value == "tenant" else "restricted to those allowed"
        return f"New documents of the collection {name} are {whom}, {UNLESS}."
    if key == "language":
        return f"The collection {name} is now stemmed as {language_in_words(collection)}."
    done = f"{'Set' if value else 'Removed'} the {CALLED.get(key, key)} of the collection {name}."
    return f"{done} The next ingest applies them." if key == "personal_data" else done


def _logged_state(collection: Collection, keys: Iterable[str]) -> dict[str, object]:
    values = {key: getattr(collection, key) for key in keys}
    return values | ({"chunking": chunking_words(collection.chunking)} if "chunking" in values else {})


def _check_changeable(collection: Collection, keys: Iterable[str]) -> None:
    """Check that this kind of collection has these properties: attached tables and tags lack some."""
    if {"chunking", "personal_data", "keep_days", "language"}.intersection(keys):
        check_writable(collection)
    if {"chunking", "personal_data", "visibility"}.intersection(keys):
        check_ingestible(collection)


async def tags_of(settings: Settings, name: str) -> list[Collection]:
    """The tags of a collection, which may itself have been removed."""
    return [
        collection
        for collection in await DeskReader.of(settings).collections(tenant_of(settings))
        if collection.tag_of == name
    ]


async def _longer_tags(settings: Settings, collection: Collection, days: int) -> dict[str, Collection]:
    """The tags, by name, that would be kept longer than their collection, which is for these days."""
    tags = await tags_of(settings, collection.name) if days else []
    return {tag.name: tag for tag in tags if not 0 < tag.keep_days <= days}


def _shortened_line(tag: Collection, days: int) -> str:
    earlier = counted(tag.keep_days, "day") if tag.keep_days else "without end"
    return (
        f"Its tag {tag.name} keeps documents {counted(days, 'day')}, too; before: {earlier}. To undo it: "
        f"refdesk-admin collection set {tag.name} --keep-days {tag.keep_days}{same_desk()}"
    )


def _declared_json(declared: Declared) -> dict[str, Any]:
    complaints = [{"path": path, "reason": reason} for path, reason in declared.complaints]
    return {"filled": dict(declared.filled), "complaints": complaints}


def _declared_lines(declared: Declared, removed: Sequence[str]) -> Iterator[str]:
    name = declared.collection.name
    for field in removed:
        if field not in declared.filled:
            yield f"The collection {name} no longer declares the field {field}."
    for field, number in declared.filled.items():
        yield f"Declared the field {field} of the collection {name}: {number} of its documents have a value."
    yield from (f"{path}: {reason}" for path, reason in declared.complaints)


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
        words = build and {"embedder": build.embedder.model, "chunking": chunking_words(build.chunking)}
        details[name] = words
    details["created_at"] = collection.created_at.isoformat(timespec="seconds")
    optional = {"former", "coming", "attached", "calibration", "personal_data", "keep_days", "expiring"}
    optional |= {"languages", "tag_of", "visibility_is_set"}
    return {name: value for name, value in details.items() if value or name not in optional}
