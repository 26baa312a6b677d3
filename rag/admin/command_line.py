"""The options that commands share, and how commands print."""

from __future__ import annotations

import functools
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

import anyio
import click

from rag.config.load import asker_flags, config_path, load_settings
from rag.config.settings_checks import loose_permissions
from rag.corpus import Language
from rag.errors import ConfigurationError
from rag.report.text_and_html import table
from rag.text.invisible import escape_hidden, for_people

NEAR = 0.6  # as similar as a typo makes two commands: serach and search are .83, shwo and show .75
_TENANT = click.option(
    "--tenant", metavar="NAME", help="Tenant. Default: tenant in the settings, or the only tenant."
)
_ASKER = (
    click.option(
        "--group",
        "asker_groups",
        multiple=True,
        metavar="NAME",
        help="Act as a member of this group instead of [principal]. Repeatable.",
    ),
    click.option(
        "--user", "asker", metavar="NAME", help="Act as this user instead of [principal] in the settings."
    ),
)
_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option(
        "--data",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Data folder. Overrides REFDESK_DATA and data in the settings.",
    ),
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Settings file. Overrides REFDESK_CONFIG.",
    ),
)


class Group(click.Group):
    """A group of commands that suggests a similar command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Click's method, with a suggestion in the error message."""
        if args and not args[0].startswith("-") and args[0] not in (names := self.list_commands(ctx)):
            near = get_close_matches(args[0], names, n=1, cutoff=NEAR)
            hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(names)}."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


def command(
    name: str,
    *,
    of_tenant: bool = True,
    of_asker: bool = False,
    on_bucket: bool = False,
    makes_settings: bool = False,
) -> Callable[[Callable[..., Awaitable[int | None]]], click.Command]:
    """Turn a coroutine into a command with --json, --data and --config.

    The coroutine gets the settings, `as_json` and its own options, and returns the exit code. `of_tenant`
    adds --tenant, `of_asker` adds --user and --group. A command runs on a desk in a bucket only if it says
    `on_bucket`: it must not change the desk. With `makes_settings`, the file of --config needn't exist.
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
            without = {"REFDESK_CONFIG"} if makes_settings else set[str]()
            environment = {key: value for key, value in os.environ.items() if key not in without}
            settings = load_settings(None if makes_settings else config, environment, flags)
            if settings.storage.uri and not on_bucket:
                raise _only_reads(settings.storage.uri)
            for warning in loose_permissions(settings_file(), settings.data):
                echo(f"refdesk-admin: {warning}", err=True)
            return anyio.run(functools.partial(function, settings, **options)) or 0

        options = (*_OPTIONS, *(_ASKER if of_asker else ()), *((_TENANT,) if of_tenant else ()))
        return click.command(name)(functools.reduce(lambda made, option: option(made), options, run))

    return wrap


def _only_reads(uri: str) -> ConfigurationError:
    return ConfigurationError(
        f"{click.get_current_context().command_path} works on a data folder, and storage.uri names {uri}, "
        "which this version only reads. Change the desk in its data folder, without storage.uri "
        f"(REFDESK_STORAGE_URI=), and then run refdesk-admin storage copy --to {uri}."
    )


def collection_option(default: str | None) -> Callable[[Any], Any]:
    """--collection; a default of None means all collections."""
    text = f"Collection. Default: {default or 'all'}."
    return click.option("--collection", default=default, metavar="NAME", help=text)


def language_option(of: str, *, auto: bool = True, default: str | None = "auto") -> Callable[[Any], Any]:
    """--language, None if it isn't given. `auto` is a choice only if allowed; the help names `default`."""
    each = "auto for each document's own, or " if auto else ""
    usual = f" Default: {default}." if default else ""
    return click.option(
        "--language",
        type=click.Choice([*(["auto"] if auto else []), *get_args(Language)], case_sensitive=False),
        metavar="NAME",
        help=f"Language whose rules stem the words of {of}: {each}German, French, …, none.{usual}",
    )


def json_object(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> dict[str, object] | None:
    """A click callback for an option that takes a JSON object."""
    if value is None:
        return None
    try:
        read = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter("not valid JSON.") from error
    if not isinstance(read, dict):
        raise click.BadParameter('not a JSON object like {"year": 2024}.')
    return read


def settings_file() -> Path:
    """The settings file of the running command, whether it exists or not."""
    path, _ = config_path(click.get_current_context().params["config"], os.environ)
    return path.absolute()


def has_asker_options() -> bool:
    """Whether the running command got --user or --group."""
    parameters = click.get_current_context().params
    return bool(asker_flags(parameters["asker"], parameters["asker_groups"]))


def asker_arguments() -> list[str]:
    """The arguments with which a server serves the tenant and the asker of the running command."""
    parameters = click.get_current_context().params
    options = [("--tenant", parameters["tenant"]), ("--user", parameters["asker"])]
    options += [("--group", group) for group in parameters["asker_groups"]]
    return [part for name, value in options if value is not None for part in (name, value)]


def same_desk(*names: str) -> str:
    """The options of the running command that select its desk, for a suggested command.

    `names` limits them to these options. Example: " --data /srv/desk --tenant acme".
    """
    context = click.get_current_context(silent=True)  # a program has none
    parameters = context.params if context else {}
    options = ((f"--{name}", parameters.get(name)) for name in names or ("config", "data", "tenant"))
    return arguments(*(str(part) for name, value in options if value is not None for part in (name, value)))


def arguments(*words: str) -> str:
    """Words quoted for the shell: ("--data", "my desk") -> " --data 'my desk'"."""
    quoted = subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
    return f" {quoted}" if words else ""


def echo(text: object = "", *, err: bool = False, **style: Any) -> None:  # noqa: ANN401 click's
    """Print text for people, on standard error if `err`. Commands print text with this function only.

    Control characters, which could come from documents, are escaped: they could drive the terminal.
    """
    safe_text = for_people(str(text))
    click.echo(click.style(safe_text, **style) if style else safe_text, err=err)


def confirm(question: str) -> bool:
    """Ask a yes-or-no question on standard error. Enter alone means yes."""
    with interruptible():
        return click.confirm(for_people(question), default=True, err=True)


def ask(question: str, usual: str) -> str:
    """A person's answer to a question on standard error, or a pipe's next line; `usual` if that is empty."""
    if sys.stdin.isatty():
        safe_question = for_people(question)
        with interruptible():
            return str(click.prompt(safe_question, default=usual, show_default=bool(usual), err=True)).strip()
    return sys.stdin.readline().strip() or usual


def ask_secretly(question: str) -> str:
    """A person's hidden answer to a question on standard error."""
    with interruptible():
        return str(click.prompt(for_people(question), hide_input=True, err=True))


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt a blocking call in the event loop at once: a question, a download.

    The event loop only notes an interruption and acts on it at its next turn: a question would stay on the
    screen, and Enter would answer it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def print_json(value: object) -> None:
    """Print a JSON object on standard output, in UTF-8 on every platform, with hidden characters escaped."""
    click.echo(escape_hidden(json.dumps(value, ensure_ascii=False, default=str)).encode())


async def write_page(path: Path, page: str) -> None:
    """Write a report.

    Raises:
        ConfigurationError: the file can't be written.
    """
    try:
        await anyio.Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"Cannot write the report {path}: {error.strerror}.") from error


def print_table(rows: list[tuple[object, ...]]) -> None:
    """Print rows in columns; the first row holds the headings."""
    for line in table(rows):
        echo(line)
