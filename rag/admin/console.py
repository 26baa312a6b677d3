"""What the commands share: their common options, and how they speak."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import anyio
import click

from rag.config.load import asker_flags, config_path, load_settings
from rag.config.permissions import loose_permissions
from rag.corpus import Language
from rag.hidden import escape_hidden, for_people, in_one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


_TENANT = click.option(
    "--tenant", metavar="NAME", help="Whose documents (or tenant in the settings); else the only tenant's."
)
_ASKER = (
    click.option(
        "--group",
        "asker_groups",
        multiple=True,
        metavar="NAME",
        help="A group of who asks; repeatable. With --user or --group, [principal] names nobody.",
    ),
    click.option(
        "--user", "asker", metavar="NAME", help="The user who asks, instead of [principal] in the settings."
    ),
)
_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object to standard output."),
    click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The data folder (or REFDESK_DATA, or data in the settings).",
    ),
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The settings file (or REFDESK_CONFIG).",
    ),
)


def command(
    name: str, *, of_tenant: bool = True, of_asker: bool = False
) -> Callable[[Callable[..., Awaitable[int | None]]], click.Command]:
    """Make a coroutine a command with --json, --data and --config, and --tenant if it is `of_tenant`.

    One that is `of_asker` has --user and --group, too.

    It is called with the settings, `as_json` and its own options; what it returns is the exit code.
    """

    def wrap(function: Callable[..., Awaitable[int | None]]) -> click.Command:
        @functools.wraps(function)
        def run(
            config: Path | None,
            data: Path | None,
            tenant: str | None = None,
            asker: str | None = None,
            asker_groups: tuple[str, ...] = (),
            **options: Any,  # noqa: ANN401 click's
        ) -> int:
            flags = {"data": data, "principal.tenant": tenant} | asker_flags(asker, asker_groups)
            settings = load_settings(config, os.environ, flags)
            for told in loose_permissions(settings_file(), settings.data):
                echo(f"refdesk-admin: {told}", err=True)
            return anyio.run(functools.partial(function, settings, **options)) or 0

        options = (*_OPTIONS, *(_ASKER if of_asker else ()), *((_TENANT,) if of_tenant else ()))
        return click.command(name)(functools.reduce(lambda made, option: option(made), options, run))

    return wrap


def collection_option(default: str | None) -> Callable[[Any], Any]:
    """--collection; None as the default means all."""
    usual = f"{default} by default" if default else "all by default"
    return click.option("--collection", default=default, metavar="NAME", help=f"The collection; {usual}.")


def language_option(whose: str) -> Callable[[Any], Any]:
    """--language; None where it is not given."""
    return click.option(
        "--language",
        type=click.Choice(get_args(Language), case_sensitive=False),
        metavar="NAME",
        help=f"Whose rules find the stems of words in {whose}: German, French, …, none. English by default.",
    )


def settings_file() -> Path:
    """The settings file of the command that runs, whether it is there or not."""
    path, _ = config_path(click.get_current_context().params["config"], os.environ)
    return path.absolute()


def asker_named() -> bool:
    """Whether the command that runs was told by --user or --group who asks."""
    given = click.get_current_context().params
    return bool(asker_flags(given["asker"], given["asker_groups"]))


def counted(number: int, thing: str) -> str:
    """A number of things: (1, "file") -> "1 file"; (2, "file") -> "2 files"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def echo(text: object = "", *, err: bool = False, **style: Any) -> None:  # noqa: ANN401 click's
    """Print for people, on standard error if `err`, in this style. Whatever documents say, it is only read.

    All commands print with this, and nothing else.
    """
    shown = for_people(str(text))
    click.echo(click.style(shown, **style) if style else shown, err=err)


def print_json(value: object) -> None:
    """One JSON object on standard output, in UTF-8 on every platform; what nobody sees is escaped."""
    click.echo(escape_hidden(json.dumps(value, ensure_ascii=False, default=str)).encode())


def print_table(rows: list[tuple[object, ...]]) -> None:
    """Rows in columns, the first row their headings."""
    cells = [[in_one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    for row in cells:
        echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
