"""`refdesk`: flags, settings, logging, desk, transport."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from rag.access.tenants import local_principal
from rag.config.load import asker_flags, config_path, load_settings
from rag.config.permissions import loose_permissions
from rag.errors import ConfigurationError
from rag.hidden import for_people
from server import stdio
from server.admission import Admission
from server.app import create_server
from server.http.identity import bearer_principal
from server.lazy_desk import OpeningDesk
from server.telemetry import logs
from server.telemetry import spans as tracing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from rag.config.settings import Settings

MISUSE = 2

log = logging.getLogger(__name__)


def main() -> None:
    """Serve MCP over stdio, or with --http over HTTP."""
    flags = _flags().parse_args()
    given = {"data": flags.data, "http.host": flags.host, "http.port": flags.port}
    asker = {"principal.tenant": flags.tenant, **asker_flags(flags.user, flags.group)}
    try:
        settings = load_settings(flags.config, os.environ, given | asker)
        if flags.http and settings.http.authentication:
            _check_unnamed(asker)
        if settings.server.traces:
            tracing.export_spans()
        serve = _remote(settings) if flags.http else _local(settings)
    except ConfigurationError as error:
        print(for_people(str(error)), file=sys.stderr)  # noqa: T201 the log is not set up yet, and the host shows stderr
        sys.exit(MISUSE)
    logs.set_up(settings.server.log_level, audit=flags.http)
    for told in loose_permissions(config_path(flags.config, os.environ)[0], settings.data):
        log.warning(told)
    anyio.run(serve)


def _check_unnamed(asker: Mapping[str, object]) -> None:
    """Refuse flags that would do nothing.

    Raises:
        ConfigurationError: they say who asks.
    """
    if any(one is not None for one in asker.values()):
        raise ConfigurationError(
            "--tenant, --user and --group say who asks where nobody is asked for credentials. Over HTTP the "
            "key or token of each request says it: leave them out."
        )


def _local(settings: Settings) -> Callable[[], Awaitable[None]]:
    """One host over standard input and output."""
    principal = local_principal(settings)
    opening = OpeningDesk(settings)
    admission = Admission(settings.limits, patience=True)
    server = create_server(opening, settings, admission, lambda _context: principal)
    return partial(stdio.serve, server, opening, admission)


def _remote(settings: Settings) -> Callable[[], Awaitable[None]]:
    """Any number of clients over HTTP."""
    from server.http import (  # noqa: PLC0415 a local server starts without
        addresses,
        credentials,
        refusals,
    )
    from server.http import app as http  # noqa: PLC0415 the same
    from server.telemetry import metrics  # noqa: PLC0415 a local server starts without

    addresses.check_exposure(settings.http, settings.oauth)
    opening = OpeningDesk(settings)
    backend = credentials.backend_of(settings, credentials.groups_matter_by(settings, opening))
    listener = addresses.listen(settings.http)
    admission = Admission(settings.limits)
    measured = metrics.Metrics(admission, opening)
    if settings.http.metrics_port:
        measured.listen(settings.http.metrics_port)
    server = create_server(opening, settings, admission, bearer_principal, measured.measure)
    refused = refusals.Refusals(measured.refused)
    app = http.http_app(server, opening, settings, backend, admission, refused)
    return partial(http.serve, app, listener, settings, admission, refused)


def _flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="refdesk",
        description="Serve ingested documents to an AI assistant over the Model Context Protocol (stdio). "
        "Hosts start this program; documents come in with refdesk-admin ingest.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (or REFDESK_CONFIG)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder (or REFDESK_DATA)")
    parser.add_argument("--tenant", metavar="NAME", help="whose documents (or tenant in [principal])")
    parser.add_argument("--user", metavar="NAME", help="the user who asks, instead of [principal]")
    parser.add_argument(
        "--group", metavar="NAME", action="append", default=[], help="a group of who asks; repeatable"
    )
    parser.add_argument("--http", action="store_true", help="serve remote clients over HTTP (see [http])")
    parser.add_argument("--host", metavar="HOST", help="with --http: the address to listen on")
    parser.add_argument("--port", type=int, metavar="PORT", help="with --http: the port")
    parser.add_argument("--version", action="version", version=f"refdesk {version('refdesk')}")
    return parser
