"""The options that commands share, and the reports that they write."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import anyio
import click

from rag.access.rule import one_group_notes
from rag.access.tenants import at_tenant, storage_of, tenant_file, tenant_of
from rag.admin.terminal import arguments, echo
from rag.config.load import asker_flags, config_path, load_env_file, load_settings
from rag.config.mistakes import loose_permissions
from rag.config.settings import Settings
from rag.corpus import Language
from rag.errors import ConfigurationError, RefdeskError, if_system_refuses
from rag.home import Bucket, Home, for_owner, local_folder, look_once, overview_file
from rag.search.overview import is_current, overview_content

OVERVIEW_SECONDS = 10  # for a read, as the default of a search


class NamedPath(click.Path):
    """A path as an argument or option.

    An empty one, of a variable that is not set, is refused, and so is -, which elsewhere means a pipe.
    """

    def __init__(self, *, exists: bool = False, file_okay: bool = True, dir_okay: bool = True) -> None:
        # What can't be read is said by who reads it, with what helps.
        super().__init__(
            exists=exists, file_okay=file_okay, dir_okay=dir_okay, readable=False, path_type=Path
        )

    def convert(  # noqa: D102 as click's
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        if not os.fspath(value):
            self.fail("the path is empty. Write . for the current folder.", param, ctx)
        if os.fspath(value) == "-":
            self.fail("a pipe can't be used here. Name a file; one called - is ./-.", param, ctx)
        return super().convert(value, param, ctx)


def options(*decorators: Callable[..., Any]) -> Callable[..., Any]:
    """Options and arguments as one decorator, in this order in the help."""
    return lambda function: functools.reduce(
        lambda decorated, decorator: decorator(decorated), reversed(decorators), function
    )


flag = functools.partial(click.option, is_flag=True)
"""An option without a value."""
repeatable = functools.partial(click.option, multiple=True)
"""An option that may be given several times."""


def _noted_groups(
    _context: click.Context, _option: click.Parameter, groups: tuple[str, ...]
) -> tuple[str, ...]:
    for note in one_group_notes(groups):
        echo(f"Note: {note}", err=True)
    return groups


_TENANT = click.option(
    "--tenant", metavar="NAME", help="Tenant. Default: tenant in the settings, or the only tenant."
)
_ASKER = (
    click.option(
        "--user", "asker", metavar="NAME", help="Act as this user instead of [principal] in the settings."
    ),
    repeatable(
        "--group",
        "asker_groups",
        metavar="NAME",
        callback=_noted_groups,
        help="Act as a member of this group instead of [principal]. Repeatable.",
    ),
)
_OPTIONS = (
    click.option(
        "--env-file",
        type=NamedPath(),
        metavar="FILE",
        help="Also take environment variables, such as keys of models, from this file of lines NAME=value.",
    ),
    click.option(
        "--config",
        type=NamedPath(),
        metavar="FILE",
        help="Settings file. Overrides REFDESK_CONFIG.",
    ),
    click.option(
        "--data",
        type=NamedPath(),
        metavar="DIR",
        help="Data folder. Overrides REFDESK_DATA and data in the settings.",
    ),
    flag("--json", "as_json", help="Print JSON."),
)


def command(  # noqa: PLR0913 the properties of a command
    name: str,
    group: click.Group | None = None,
    *,
    of_tenant: bool = True,
    of_desk: bool = False,
    of_asker: bool = False,
    changes: bool = False,
    makes_settings: bool = False,
) -> Callable[[Callable[..., Awaitable[int | None]]], click.Command]:
    """Turn a coroutine into a command, of a group or alone, with --json, --data, --config and --env-file.

    The coroutine gets the settings and its own options, and returns the exit code. What it prints knows of
    --json (`rag.admin.terminal`). `of_tenant` adds --tenant, `of_asker` adds --user and --group. The settings
    point to the home of the tenant's documents; with `of_desk`, to that of the desk. `changes` tells whether
    it changes the desk. With `makes_settings`, the file of --config needn't exist.
    """

    def wrap(function: Callable[..., Awaitable[int | None]]) -> click.Command:
        @functools.wraps(function)
        def run(
            config: Path | None,
            data: Path | None,
            env_file: Path | None,
            tenant: str | None = None,
            asker: str | None = None,
            asker_groups: tuple[str, ...] = (),
            **own_options: Any,  # noqa: ANN401 click's
        ) -> int:
            del own_options["as_json"]  # `terminal.wants_json` asks the context for it
            if env_file:
                load_env_file(env_file)
            flags = {"data": data, "principal.tenant": tenant} | asker_flags(asker, asker_groups)
            without = {"REFDESK_CONFIG"} if makes_settings else set[str]()
            environment = {key: value for key, value in os.environ.items() if key not in without}
            settings = load_settings(None if makes_settings else config, environment, flags)
            if changes:  # what it changes in a bucket, it must see at once
                settings = never_stale(settings)
                look_once(settings.common_home)
            if of_tenant and not of_desk:
                settings = at_tenant(settings)
            if changes and settings.home != settings.common_home:
                look_once(settings.home)
            for warning in loose_permissions(settings_file(), settings.data, env_file):
                echo(f"refdesk-admin: {warning}", err=True)
            with for_owner(settings.data), for_owner(local_folder(settings.home)):
                return anyio.run(functools.partial(_run, function, settings, own_options, changes=changes))

        common = (*((_TENANT,) if of_tenant else ()), *(_ASKER if of_asker else ()), *_OPTIONS)
        return (group or click).command(name)(options(*common)(run))

    return wrap


def never_stale(settings: Settings) -> Settings:
    """The settings for a process that must see each change in a bucket at once."""
    storage = settings.storage.model_copy(update={"consistency_seconds": 0.0})
    return settings.model_copy(update={"storage": storage})


async def _run(
    function: Callable[..., Awaitable[int | None]],
    settings: Settings,
    options: Mapping[str, object],
    *,
    changes: bool,
) -> int:
    code = await function(settings, **options)
    # The servers of a bucket ask the engine.
    if changes and not isinstance(settings.home, Bucket):
        with suppress(ConfigurationError):  # nobody has named one of several tenants
            await keep_overview(settings.home, tenant_of(settings))
    return code or 0


async def keep_overview(data: Home, tenant: str) -> None:
    """Write the overview of a tenant's documents, which servers show before they open the engine."""
    if isinstance(data, Bucket):
        return  # its servers ask the engine
    file = overview_file(data, tenant)
    if not tenant_file(data, tenant).exists() or storage_of(data, tenant) or is_current(data, tenant):
        return
    # Imported here, because only a command that has changed something gets here, with the engine imported.
    from rag.store.read.desk_reader import DeskReader  # noqa: PLC0415
    from rag.store.write.desk_folder import make_private, write_whole  # noqa: PLC0415

    with suppress(RefdeskError, OSError):  # servers ask the engine then
        reader = DeskReader(data, timeout_seconds=OVERVIEW_SECONDS)
        if content := await overview_content(reader, data, tenant):
            make_private(file.parent)
            write_whole(file, content)
        else:
            file.unlink(missing_ok=True)


def nothing_yet(nouns: str) -> str:
    """The message of a command that lists these, when there are none."""
    return f"There are no {nouns} yet. Add documents with refdesk-admin ingest PATH{same_desk()}"


def confirmed_option(text: str) -> Callable[[Any], Any]:
    """--yes, without which the command does nothing."""
    return flag("--yes", required=True, expose_value=False, help=text)


def collection_option(default: str | None) -> Callable[[Any], Any]:
    """--collection; a default of None means all collections."""
    text = f"Collection. Default: {default or 'all'}."
    return click.option("--collection", default=default, metavar="NAME", help=text)


def language_option(of: str, *, auto: bool = True, default: str | None = "auto") -> Callable[[Any], Any]:
    """--language, None if it isn't given. `auto` is a choice only if allowed; the help names `default`."""
    automatic = "auto for each document's own, or " if auto else ""
    usual = f" Default: {default}." if default else ""
    return click.option(
        "--language",
        type=click.Choice([*(["auto"] if auto else []), *get_args(Language)], case_sensitive=False),
        metavar="NAME",
        help=f"Language whose rules stem the words of {of}: {automatic}German, French, …, none.{usual}",
    )


def json_object(value: str) -> dict[str, object]:
    """The type of an option that takes a JSON object."""
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
    """The arguments with which a server has the environment file, tenant and asker of the running command."""
    parameters = click.get_current_context().params
    env_file = parameters["env_file"]
    options = [("--env-file", str(env_file.absolute()) if env_file else None)]
    options += [("--tenant", parameters["tenant"]), ("--user", parameters["asker"])]
    options += [("--group", group) for group in parameters["asker_groups"]]
    return [part for name, value in options if value is not None for part in (name, value)]


def same_desk(*names: str) -> str:
    """The options of the running command that select its desk, for a suggested command.

    `names` limits them to these options. Example: " --data /srv/desk --tenant acme".
    """
    context = click.get_current_context(silent=True)  # a program has none
    parameters = context.params if context else {}
    names = names or ("config", "data", "env-file", "tenant")
    options = ((f"--{name}", parameters.get(name.replace("-", "_"))) for name in names)
    return arguments(*(str(part) for name, value in options if value is not None for part in (name, value)))


async def write_page(path: Path, page: str) -> None:
    """Write a report, and say so on standard error.

    Raises:
        ConfigurationError: the file can't be written.
    """
    with if_system_refuses(ConfigurationError, f"Cannot write the report {path}"):
        await anyio.Path(path).write_text(page, encoding="utf-8")
    echo(f"Wrote {path}.", err=True)
