"""Start a server: read the settings, set up the log, and serve over stdio or HTTP.

What HTTP needs, and the reader of a folder, are imported only where they are used: a local server must answer
its host's first message within a fraction of a second.

A local server with wrong settings doesn't exit: hosts show why a call failed, but seldom the last output of a
program. So a substitute server speaks the protocol, lists its tools, and answers every call with the mistake.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
from mcp import MCPError, types
from mcp.server.lowlevel import Server

from rag.access.keys import keys_in
from rag.access.rule import DEFAULT_TENANT, one_group_notes
from rag.access.tenants import LocalAsker, tenants
from rag.config.load import asker_flags, config_path, load_env_file, load_settings
from rag.config.mistakes import loose_permissions
from rag.config.server_settings import LimitSettings, ToolSettings, check_exposure
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.errors import ConfigurationError, StoreError
from rag.home import data_folder_problem
from rag.runtime import allocate_sparingly
from rag.text.plain_text import for_people
from server import call_audit, stdio, tool_listing
from server.admission import Admission
from server.handlers import Context, create_server
from server.lazy_desk import LazyDesk

if TYPE_CHECKING:
    from server.intake import Intake


EXIT_USAGE = 2
WELCOME = """\
refdesk serves your documents to AI assistants over the Model Context Protocol. An assistant's host starts it
and talks to it over standard input. You started it at a terminal, so there is nobody to talk to.

  refdesk-admin                 shows the next step
  refdesk-admin connect         connects a host: Claude, VS Code, Cursor and others
  refdesk-admin search "..."    searches from here, as an assistant would
  refdesk --http                serves assistants over HTTP
"""

log = logging.getLogger(__name__)


def start(flags: argparse.Namespace, mistake: ConfigurationError | None) -> None:
    """Serve as the flags and settings say. `mistake` is the error in the flags, if any.

    If the configuration is wrong, a server over HTTP ends at once. A local one tells its host first.
    """
    stdio.fill_closed()  # first: the next file that is opened would get the number of a closed stream
    allocate_sparingly()  # before threads start
    try:
        if mistake:
            raise mistake
        serve = _configured_server(flags)
    except ConfigurationError as error:
        message = for_people(str(error))
        print(message, file=sys.stderr)  # noqa: T201 the log is not set up yet, and the host shows stderr
        has_host = sys.stdin is not None and not sys.stdin.isatty()
        if flags.http or not has_host:
            sys.exit(EXIT_USAGE)
        call_audit.set_up_log("warning", audit=False)
        refusing = create_misconfigured_server(message)
        serve = partial(stdio.serve, refusing, Admission(LimitSettings()), exit_code=EXIT_USAGE)
    if not flags.http and sys.stdin is not None and sys.stdin.isatty():
        print(WELCOME, file=sys.stderr)  # noqa: T201 for a person, who would wait in vain
        return
    anyio.run(serve)


def _configured_server(flags: argparse.Namespace) -> Callable[[], Awaitable[None]]:
    if flags.env_file:  # first, because its variables can be settings
        load_env_file(flags.env_file)
    if flags.http and flags.alone:
        raise ConfigurationError("--alone is for one host over stdio. Leave it out with --http.")
    overrides = {"data": flags.data, "http.host": flags.host, "http.port": flags.port}
    asker = _asker(flags)
    settings = load_settings(flags.config, os.environ, overrides | asker)
    intake = None
    if flags.documents is not None:
        settings, intake = _with_documents(settings, flags)
    if flags.http and settings.http.authentication:
        _check_no_asker(asker)
    if settings.server.traces:
        call_audit.export_spans()
    serve = _remote(settings) if flags.http else _local(settings, intake)
    call_audit.set_up_log(settings.server.log_level, audit=flags.http)
    config, _ = config_path(flags.config, os.environ)
    warn(settings, config, flags.env_file, fills=intake is not None)
    return serve


def local_settings(
    flags: argparse.Namespace, environment: Mapping[str, str], asker: Mapping[str, object] | None = None
) -> tuple[Settings, Path]:
    """The settings of a local server with these flags, and their file. `asker` replaces the flags' asker.

    Raises:
        ConfigurationError: they are invalid.
    """
    overrides = {"data": flags.data} | dict(_asker(flags) if asker is None else asker)
    config, _ = config_path(flags.config, environment)
    return load_settings(flags.config, environment, overrides), config


def _asker(flags: argparse.Namespace) -> dict[str, object]:
    return {"principal.tenant": flags.tenant, **asker_flags(flags.user, flags.group)}


def warn(settings: Settings, config: Path, env_file: Path | None = None, *, fills: bool = False) -> None:
    """Log who else can change the settings or enter the data folder, and its problem unless it `fills`."""
    for warning in loose_permissions(config, settings.data, env_file):
        log.warning(warning)
    for note in one_group_notes(settings.principal.groups):
        log.warning(note)
    if not fills and (problem := data_folder_problem(settings.home)):
        log.warning(problem)


def _with_documents(settings: Settings, flags: argparse.Namespace) -> tuple[Settings, Intake]:
    """The settings with the data folder of --documents, and the intake that fills it."""
    from server import intake  # noqa: PLC0415 few servers need it

    if flags.http:
        raise ConfigurationError(
            "--documents is for one host over stdio. With --http, ingest by refdesk-admin ingest."
        )
    if settings.storage.uri:
        raise ConfigurationError("--documents needs a data folder, and storage.uri names a bucket.")
    if not flags.documents.strip():
        raise ConfigurationError("--documents is empty. Name the folder of documents.")
    folder = Path(os.path.abspath(flags.documents))  # noqa: PTH100 it needn't exist yet
    data = settings.data if flags.data else intake.data_of(folder, settings)
    values = {"--config": flags.config, "--env-file": flags.env_file, "--tenant": flags.tenant}
    options = [str(part) for name, value in values.items() if value for part in (name, value)]
    settings = settings.model_copy(update={"data": data})
    return settings, intake.Intake(folder, data, options)


def _check_no_asker(asker: Mapping[str, object]) -> None:
    if any(value is not None for value in asker.values()):
        raise ConfigurationError(
            "--tenant, --user and --group have no effect here: http.authentication is set, so the key or "
            "token of each request says who is asking. Leave them out."
        )


def _local(settings: Settings, intake: Intake | None) -> Callable[[], Awaitable[None]]:
    asker = LocalAsker(settings)
    asker.principal()  # fails for a wrong tenant
    lazy_desk = LazyDesk(settings)
    admission = Admission(settings.limits, wait_forever=True)
    server = create_server(lazy_desk, settings, admission, lambda _context: asker.principal(), intake=intake)

    async def warm_up() -> None:
        await lazy_desk.warm_up()
        if intake:
            await intake.follow()

    return partial(stdio.serve, server, admission, warm_up=warm_up)


def _remote(settings: Settings) -> Callable[[], Awaitable[None]]:
    from server.http import application as http  # noqa: PLC0415 a local server starts faster without
    from server.http import auth  # noqa: PLC0415 the same
    from server.http.clients import bearer_principal  # noqa: PLC0415 the same
    from server.metrics import Metrics  # noqa: PLC0415 the same

    check_exposure(settings.http, settings.oauth)  # before anybody can connect
    with suppress(StoreError):  # the bucket may answer later
        tenants(settings.home)  # fails for another user's folder, or keys that others can read
        keys_in(settings.home)
    lazy_desk = LazyDesk(settings)
    backend = auth.auth_backend(settings, auth.groups_matter_check(settings, lazy_desk))
    listener = http.listen(settings.http)  # now: if the address is taken, the start ends with that line alone
    admission = Admission(settings.limits)
    measurements = Metrics(admission, lazy_desk, settings)
    if settings.http.metrics_port:
        measurements.listen(settings.http.metrics_port)
    server = create_server(
        lazy_desk,
        settings,
        admission,
        bearer_principal,
        measurements.measure,
        remote=True,
        pages=settings.http.public_url if settings.oauth.page_client else "",
    )
    refusal_log = call_audit.RefusalLog(measurements.count_refusal)
    app = http.http_app(server, lazy_desk, settings, backend, admission, refusal_log)
    if settings.oauth.page_client:
        from server.http.passage_pages import PassagePages  # noqa: PLC0415 the same

        pages = PassagePages(lazy_desk, settings, admission, measurements.measure, remote=True)
        app.routes.extend(auth.PageSignIn(pages, settings, backend).routes)
    return partial(http.serve, app, listener, settings, admission, refusal_log)


EXPLANATION = "refdesk can't work, because its configuration is wrong. {} Correct that, then restart refdesk."


def create_misconfigured_server(mistake: str) -> Server[Any]:
    """A protocol server whose every answer is the mistake."""
    explanation = EXPLANATION.format(mistake)

    async def list_tools(_context: Context, _params: object) -> types.ListToolsResult:
        listed = tool_listing.tool_pair(Settings(), ToolSettings(), Principal(DEFAULT_TENANT), ())
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Context, _params: object) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(text=explanation)], is_error=True)

    async def list_prompts(_context: Context, _params: object) -> types.ListPromptsResult:
        return types.ListPromptsResult(prompts=[tool_listing.PROMPT])

    async def refuse(_context: Context, _params: object) -> NoReturn:
        raise MCPError(types.INTERNAL_ERROR, explanation)

    return Server(
        "refdesk",
        title="Reference desk",
        version=version("refdesk"),
        instructions=explanation,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=refuse,
        on_list_resources=refuse,
        on_list_resource_templates=refuse,
        on_read_resource=refuse,
        on_completion=refuse,
    )
