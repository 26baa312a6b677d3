"""`refdesk`: flags, settings, logging, desk, transport."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path

import anyio

from rag.configuration import load_settings
from rag.errors import ConfigurationError
from server.app import create_server
from server.identity import stdio_principal
from server.opening import OpeningDesk
from server.stdio import serve

MISUSE = 2


def main() -> None:
    """Serve MCP over stdio."""
    flags = _flags().parse_args()
    try:
        settings = load_settings(flags.config, os.environ, {"data": flags.data})
        principal = stdio_principal(settings)
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201 the log is not set up yet, and the host shows stderr
        sys.exit(MISUSE)
    logging.basicConfig(
        level=settings.server.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    opening = OpeningDesk(settings)
    server = create_server(opening, settings, lambda _context: principal)
    anyio.run(partial(serve, server, opening))


def _flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="refdesk",
        description="Serve ingested documents to an AI assistant over the Model Context Protocol (stdio). "
        "Hosts start this program; documents come in with refdesk-admin ingest.",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (or REFDESK_CONFIG)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="data folder (or REFDESK_DATA)")
    parser.add_argument("--version", action="version", version=f"refdesk {version('refdesk')}")
    return parser
