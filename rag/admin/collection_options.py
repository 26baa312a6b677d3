"""The options of the commands that make and change collections."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast, get_args

import click

from rag.corpus import DEFAULT_EMBEDDER, Chunking, FieldType, Policy, Strategy
from rag.ingest.rework_stored import MAX_FIELDS
from rag.report.text_and_html import one_line
from rag.text.flags import PERSONAL, Flag
from rag.uris import web_address

FIELD_NAME = r"[a-z][a-z0-9_]{0,47}"
AS_SETTINGS = "default"
_SIZES = {
    "max": ("max_tokens", range(32, 8193)),
    "min": ("min_tokens", range(8193)),
    "overlap": ("overlap", range(4097)),
}
MAX_DESCRIPTION = 500  # characters
MAX_LINK = 200  # characters; assistants read it in each conversation


def _at_most(length: int, text: str | None) -> str | None:
    if text and len(text) > length:
        raise click.BadParameter(f"it has {len(text)} characters; at most {length} are allowed.")
    return text


def _description(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    return _at_most(MAX_DESCRIPTION, value and one_line(value))


description_option = partial(
    click.option,
    "--description",
    callback=_description,
    metavar="TEXT",
    help="What the collection holds. Assistants and the search stage planner read it.",
)


def _policies(_context: click.Context, _option: click.Parameter, values: Sequence[str]) -> dict[Flag, Policy]:
    """The policies in the options --personal-data; the last one of a kind wins."""
    policies: dict[Flag, Policy] = {}
    for value in values:
        kind, _, policy_name = value.rpartition("=")
        policy = next((policy for policy in get_args(Policy) if policy == policy_name), None)
        kinds = [personal_kind for personal_kind in PERSONAL if kind in {personal_kind, ""}]
        if policy is None or not kinds:
            raise click.BadParameter(
                f"{value!r} is not like redact or email=redact. Policies: {', '.join(get_args(Policy))}. "
                f"Kinds: {', '.join(PERSONAL)}."
            )
        policies |= dict.fromkeys(kinds, policy)
    return policies


def merge_policies(before: Mapping[Flag, Policy], changes: Mapping[Flag, Policy]) -> dict[Flag, Policy]:
    """The policies with these changes, without the default "allow"."""
    return {kind: policy for kind, policy in {**before, **changes}.items() if policy != "allow"}


personal_data_option = click.option(
    "--personal-data",
    "policies",
    multiple=True,
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
    return () if tuple(values) == (AS_SETTINGS,) else tuple(map(chunking_from, values))


chunking_option = click.option(
    "--chunking",
    multiple=True,
    callback=_chunking,
    metavar="[GLOB:]STRATEGY[,KEY=VALUE…]",
    help=f"How documents are cut: {', '.join(get_args(Strategy))}; with max=, min= and overlap= in tokens, "
    "and headers=no to embed no title and headings. Repeatable, for other files: the first GLOB that matches "
    f"counts. Default: {AS_SETTINGS}, as the settings say.",
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
    return "; ".join(map(_words, chunking)) or AS_SETTINGS


def _words(chunking: Chunking) -> str:
    sizes = {key: getattr(chunking, name) for key, (name, _) in _SIZES.items()}
    usual = {key: getattr(Chunking(), name) for key, (name, _) in _SIZES.items()}
    parts = [chunking.strategy, *(f"{key}={value}" for key, value in sizes.items() if value != usual[key])]
    pattern = "" if chunking.match == "*" else f"{chunking.match}:"
    return pattern + ",".join([*parts, *([] if chunking.headers else ["headers=no"])])


def _link(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    address = value and web_address(value)
    if address is None and value:
        raise click.BadParameter(f"{value!r} is not an http or https address.")
    return _at_most(MAX_LINK, address)


link_option = partial(
    click.option,
    "--link",
    callback=_link,
    metavar="URL",
    help="Where a person finds more about the collection. Assistants read it.",
)


def declared_fields(
    _context: click.Context, _option: click.Parameter, values: Sequence[str]
) -> dict[str, FieldType]:
    """The fields that the options --field declare."""
    return fields_of(values)


def fields_of(values: Sequence[str]) -> dict[str, FieldType]:
    """The declared fields, from options like year=integer.

    Raises:
        click.BadParameter: an option has another form, a field is declared twice, or there are too many.
    """
    fields: dict[str, FieldType] = {}
    for value in values:
        name, _, type_name = value.partition("=")
        kind = next((field_type for field_type in get_args(FieldType) if field_type == type_name), None)
        if kind is None or not re.fullmatch(FIELD_NAME, name):
            kinds = ", ".join(get_args(FieldType))
            raise click.BadParameter(f"{value!r} is not like year=integer. Types: {kinds}.")
        if name in fields:
            raise click.BadParameter(f"the field {name} is declared twice.")
        fields[name] = kind
    if len(fields) > MAX_FIELDS:
        raise click.BadParameter(f"a collection has at most {MAX_FIELDS} fields.")
    return fields
