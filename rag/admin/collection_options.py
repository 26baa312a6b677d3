"""The options of the commands that make and change collections."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, get_args

import click

from rag.corpus import DEFAULT_EMBEDDER, FieldType
from rag.ingest.declare import MAX_FIELDS
from rag.report.tables import one_line
from rag.web_addresses import web_address

if TYPE_CHECKING:
    from collections.abc import Sequence

FIELD_NAME = r"[a-z][a-z0-9_]{0,47}"
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


embedder_option = click.option(
    "--embedder",
    "embedder_name",
    default=DEFAULT_EMBEDDER,
    metavar="NAME",
    help="Embedding model: the NAME of a table [embedders.NAME]. Default: [embedder].",
)


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
    """The fields that are declared as year=integer.

    Raises:
        click.BadParameter: one is not declared so, or twice, or there are too many.
    """
    fields: dict[str, FieldType] = {}
    for value in values:
        name, _, named = value.partition("=")
        kind = next((one for one in get_args(FieldType) if one == named), None)
        if kind is None or not re.fullmatch(FIELD_NAME, name):
            kinds = ", ".join(get_args(FieldType))
            raise click.BadParameter(f"{value!r} is not like year=integer. Types: {kinds}.")
        if name in fields:
            raise click.BadParameter(f"the field {name} is declared twice.")
        fields[name] = kind
    if len(fields) > MAX_FIELDS:
        raise click.BadParameter(f"a collection has at most {MAX_FIELDS} fields.")
    return fields
