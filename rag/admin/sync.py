"""`refdesk-admin sync`: brings the origins of the settings in, one after the other, made for a scheduler."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rag.admin.console import command, echo, print_json
from rag.admin.ingest import PARTLY_FAILED, exit_code, report_json, rights_of, run_ingest
from rag.config.origins import FolderOrigin, RecordsOrigin
from rag.errors import ConfigurationError, RefdeskError
from rag.ingest.report import InterruptedRunError
from rag.ingest.rights import RequestedAccess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.config.origins import OriginSettings
    from rag.config.settings import Settings
    from rag.ingest.report import Report
    from rag.ingest.rights import Rights

FAILED = 1


@command("sync", of_tenant=False)
@click.argument("origins", nargs=-1, metavar="[ORIGIN]...")
@click.option("--set-access", is_flag=True, help="Also apply the origin's access to existing sources.")
@click.option("--yes", is_flag=True, help="Remove sources even if most of an origin is missing.")
@click.option("--quiet", is_flag=True, help="Print nothing unless something changed or failed.")
@click.option("--verbose", is_flag=True, help="List every document, also unchanged ones.")
@click.option("--log", "as_log", is_flag=True, help="Write the progress to standard error as JSON lines.")
async def sync_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    origins: tuple[str, ...],
    set_access: bool,
    yes: bool,
    quiet: bool,
    verbose: bool,
    as_log: bool,
    as_json: bool,
) -> int:
    """Bring collections to the state of their origins.

    Origins are tables [origins.NAME] in the settings. Without ORIGIN, all of them are brought in. If one
    fails, the others go on. Run it from a scheduler (cron, a systemd timer) as often as you like: what is
    unchanged is not fetched, and a second run on the same collection says so and ends.

    Exits with 0 on success, 1 if every origin failed, 2 for usage errors, and 3 if some documents or origins
    failed, or too many documents are missing.
    """
    sync = partial(
        run_origin,
        settings,
        set_access=set_access,
        yes=yes,
        verbose=verbose,
        as_log=as_log,
        quiet=quiet,
        as_json=as_json,
    )
    codes: list[int] = []
    results: dict[str, Any] = {}
    for name in chosen(settings, origins, quiet=quiet):
        if not (quiet or as_json):
            echo(f"{name}:")
        try:
            report = await sync(name)
        except InterruptedRunError as error:
            echo(f"refdesk-admin: {name}: {error}", err=True)
            results[name] = report_json(error.report) | {"error": str(error)}
            codes.append(PARTLY_FAILED)
        except RefdeskError as error:
            echo(f"refdesk-admin: {name}: {error}", err=True)
            results[name] = {"error": str(error)}
            codes.append(FAILED)
        else:
            results[name] = report_json(report)
            codes.append(exit_code(report))
    if as_json:
        print_json({"origins": results})
    if codes and all(code == FAILED for code in codes):
        return FAILED
    return PARTLY_FAILED if any(codes) else 0


def chosen(settings: Settings, names: Iterable[str], *, quiet: bool) -> list[str]:
    """The origins to sync, each once: those named, or all that need nothing from standard input.

    Raises:
        ConfigurationError: one is unknown, there are none, or two want standard input.
    """
    if not settings.origins:
        raise ConfigurationError(
            "The settings have no origins. Add a table [origins.NAME] as in config.example.toml."
        )
    named = list(dict.fromkeys(names))
    for name in named:
        if name not in settings.origins:
            raise ConfigurationError(f"There is no origin {name!r}. Origins: {', '.join(settings.origins)}.")
    piped = [name for name in named or settings.origins if takes_stdin(settings.origins[name])]
    if named:
        if len(piped) > 1:
            raise ConfigurationError(f"Only one origin can read standard input, not {', '.join(piped)}.")
        return named
    for name in () if quiet else piped:
        echo(f"{name} takes records from standard input: run refdesk-admin sync {name} < FILE.", err=True)
    return [name for name in settings.origins if name not in piped]


def takes_stdin(origin: OriginSettings) -> bool:
    """Whether an origin reads standard input."""
    return isinstance(origin, RecordsOrigin) and not origin.command and origin.file is None


async def run_origin(  # noqa: PLR0913 the options of a run
    settings: Settings,
    name: str,
    *,
    set_access: bool,
    yes: bool,
    verbose: bool,
    as_log: bool,
    quiet: bool,
    as_json: bool,
) -> Report:
    """Sync one origin.

    Raises:
        RefdeskError: it failed as a whole.
    """
    origin = settings.origins[name]
    return await run_ingest(
        of_origin(settings, origin),
        (origin.path,) if isinstance(origin, FolderOrigin) else (),
        origin.collection,
        rights=rights_of_origin(settings, origin, set_access=set_access),
        removes=yes,
        verbose=verbose,
        as_log=as_log,
        quiet=as_json or quiet,
        origin=name,
        only_news=quiet,
    )


def of_origin(settings: Settings, origin: OriginSettings) -> Settings:
    """The settings with the tenant and the file patterns of an origin."""
    files = settings.ingest.model_copy(
        update={"include": origin.include or settings.ingest.include}
        | {"exclude": settings.ingest.exclude + origin.exclude}
        | ({"hidden": True} if isinstance(origin, FolderOrigin) and origin.hidden else {})
    )
    update: dict[str, object] = {"ingest": files}
    if origin.tenant is not None:
        update["principal"] = settings.principal.model_copy(update={"tenant": origin.tenant})
    return settings.model_copy(update=update)


def rights_of_origin(settings: Settings, origin: OriginSettings, *, set_access: bool) -> Rights:
    """Who may see the documents of an origin, by its own settings and the rules."""
    asked = None
    if origin.visibility or origin.allow or origin.deny:
        asked = RequestedAccess(origin.visibility, origin.allow, origin.deny)
    return replace(rights_of(settings, asked), set_access=set_access)
