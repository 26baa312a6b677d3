"""`refdesk`: read the flags, then start the server that they ask for.

Nothing here imports the protocol, so that --version and --help are answered at once.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from rag.errors import ConfigurationError

HELP = "Run refdesk --help for its options."


def main() -> None:
    """Serve MCP over stdio, or over HTTP with --http."""
    flags, mistake = argparse.Namespace(http="--http" in sys.argv), None
    try:
        flags = read_flags(sys.argv[1:])
    except ConfigurationError as error:
        mistake = error
    gc.disable()  # objects made by imports stay; looking for garbage among them takes a tenth of a start
    from server.start import start  # noqa: PLC0415 --version and --help end the process before this

    gc.freeze()
    gc.enable()
    start(flags, mistake)


def read_flags(arguments: Sequence[str]) -> argparse.Namespace:
    """The flags of a command line.

    Raises:
        ConfigurationError: one of them is unknown or has an invalid value.
    """
    flags, unparsed = _flags().parse_known_args(arguments)
    if unparsed:  # never quote a value: it could be a password
        unknown = [argument.partition("=")[0] for argument in unparsed if argument.startswith("-")]
        mistake = f"no option {unknown[0]}" if unknown else "no arguments without an option"
        raise ConfigurationError(f"refdesk has {mistake}. {HELP}")
    return flags


class _Flags(argparse.ArgumentParser):
    """A parser that raises its errors instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"{message[:1].upper()}{message[1:]}. {HELP}")


def _flags() -> argparse.ArgumentParser:
    parser = _Flags(
        prog="refdesk",
        description="Serve ingested documents to AI assistants over the Model Context Protocol (MCP). "
        "MCP hosts start this program over stdio. Ingest documents with refdesk-admin ingest.",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration file; or set REFDESK_CONFIG"
    )
    parser.add_argument(
        "--env-file",
        type=Path,
        metavar="FILE",
        help="also take environment variables, such as keys of models, from this file of lines NAME=value",
    )
    parser.add_argument("--data", metavar="DIR", help="data folder; or set REFDESK_DATA")
    parser.add_argument(
        "--documents",
        metavar="DIR",
        help="read the documents of this folder at the start and whenever they change, into a data folder of "
        "its own unless --data names one",
    )
    parser.add_argument(
        "--tenant", metavar="NAME", help="tenant whose documents to serve, instead of [principal]"
    )
    parser.add_argument("--user", metavar="NAME", help="user to serve as, instead of [principal]")
    parser.add_argument(
        "--group", metavar="NAME", action="append", default=[], help="group of that user; repeatable"
    )
    parser.add_argument(
        "--alone",
        action="store_true",
        help="serve this host by a process of its own, instead of the desk that all your hosts share",
    )
    parser.add_argument("--http", action="store_true", help="serve remote clients over HTTP; see [http]")
    parser.add_argument("--host", metavar="HOST", help="address to listen on, with --http")
    parser.add_argument("--port", type=int, metavar="PORT", help="port to listen on, with --http")
    parser.add_argument("--version", action="version", version=f"refdesk {version('refdesk')}")
    return parser
