"""What an API key is bound to, from the options of `refdesk-admin key create`, and in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from rag.access.bindings import CredentialBoundTo, walls
from rag.admin.console import echo, json_object
from rag.answers import MAX_LIMIT
from rag.config.profiles import DEFAULT_PROFILE
from rag.errors import ConfigurationError, NotFoundError
from rag.store.read.desk_reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rag.config.settings import Settings
    from rag.corpus import Collection

_OPTIONS = (
    click.option(
        "--tool", "tools", multiple=True, metavar="NAME", help="A search tool that it may call. Repeatable."
    ),
    click.option(
        "--limit", type=click.IntRange(1, MAX_LIMIT), metavar="N", help="Highest limit of its searches."
    ),
    click.option("--profile", metavar="NAME", help="The only retrieval profile of its searches."),
    click.option(
        "--filter", callback=json_object, metavar="JSON", help="Only sources whose declared fields match."
    ),
    click.option(
        "--collection",
        "collections",
        multiple=True,
        metavar="NAME",
        help="A collection that it may read. Repeatable. Default: all.",
    ),
)


def binding_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that `bound_to` takes."""
    for option in _OPTIONS:
        function = option(function)
    return function


async def bound_to(
    settings: Settings, tenant: str, options: Mapping[str, object]
) -> CredentialBoundTo | None:
    """The binding that the options describe; None without any. It must leave something now.

    Raises:
        ConfigurationError: a value is out of range, a profile or tool is not in the settings, or the filter
            suits the fields of none of the collections.
        NotFoundError: a collection doesn't exist.
    """
    given = {name: value for name, value in options.items() if value is not None and value != ()}
    if not given:
        return None
    try:
        bound = CredentialBoundTo.model_validate(given)
    except ValidationError as error:
        details = error.errors()[0]
        raise ConfigurationError(
            f"--{str(details['loc'][0]).removesuffix('s')}: {_sentence(details['msg'])}"
        ) from error
    _check_settings(bound, settings)
    if bound.collections is not None or bound.filter is not None:
        reader = Reader(settings.data, timeout_seconds=settings.search.timeout_seconds)
        _check_collections(bound, await reader.collections(tenant))
    return bound


def _sentence(message: str) -> str:
    return f"{message.removeprefix('Value error, ').rstrip('.')}."


def _check_settings(bound: CredentialBoundTo, settings: Settings) -> None:
    """Check the profile and the tools, also against the profiles that the tools themselves are bound to."""
    profiles = [DEFAULT_PROFILE, *settings.search.profiles]
    if bound.profile is not None and bound.profile not in profiles:
        raise ConfigurationError(
            f"--profile: there is no profile {bound.profile!r}; use one of: {', '.join(profiles)}."
        )
    by_name = {tool.name: tool for tool in settings.server.tools}
    for name in bound.tools or ():
        if name not in by_name:
            raise ConfigurationError(
                f"--tool: there is no search tool {name!r}; use some of: {', '.join(by_name)}."
            )
    for name in bound.tools or by_name:
        fixed = by_name[name].profile
        if bound.profile is not None and fixed not in {None, bound.profile}:
            raise ConfigurationError(
                f"--profile: the tool {name} is bound to the profile {fixed}, so with this key it could not "
                "search. Leave out --profile, or name other tools with --tool."
            )


def _check_collections(bound: CredentialBoundTo, existing: tuple[Collection, ...]) -> None:
    names = [one.name for one in existing]
    for name in bound.collections or ():
        if name not in names:
            raise NotFoundError(
                f"--collection: there is no collection {name!r}; there are: {', '.join(names) or 'none'}."
            )
    wanted = [one for one in existing if bound.collections is None or one.name in bound.collections]
    hidden = [one.name for one in wanted if walls([bound.binding], one) is None]
    if len(hidden) == len(wanted):
        raise ConfigurationError(
            f"--filter: it suits the declared fields of no collection ({', '.join(hidden) or 'none'}), so "
            "the key would show nothing. refdesk-admin collection list shows the fields."
        )
    if hidden:
        echo(f"The key shows nothing of {', '.join(hidden)}: the filter doesn't suit its fields.", err=True)


def in_words(bound: CredentialBoundTo | None) -> str:
    """A binding on one line: "handbook; {"status": "final"}; profile strict; limit 5"; "-" without one."""
    if bound is None:
        return "-"
    parts = [
        ", ".join(bound.collections) if bound.collections is not None else "",
        json.dumps(bound.filter, ensure_ascii=False) if bound.filter is not None else "",
        f"profile {bound.profile}" if bound.profile is not None else "",
        f"limit {bound.limit}" if bound.limit is not None else "",
        f"tools {', '.join(bound.tools)}" if bound.tools is not None else "",
    ]
    return "; ".join(part for part in parts if part) or "-"
