"""`refdesk-admin`: its commands, error messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from io import StringIO, TextIOWrapper
from typing import cast

import click

from rag.admin.command_line import Group, echo
from rag.errors import BusyError, ConfigurationError, InvalidRequestError, RefdeskError

FAILED = 1
MISUSE = 2
BUSY = 4  # another process is at work on what the command needs; 3 is that of an ingestion with failed files
INTERRUPTED = 130

COMMANDS = {
    "demo": "demo_command",
    "init": "init_command",
    "connect": "connect.connect_command",
    "ingest": "ingest_command",
    "sync": "sync_command",
    "records": "records_command",
    "runs": "runs_command",
    "search": "search_command",
    "sources": "sources_command",
    "source": "sources_command",
    "remove": "remove_command",
    "purge": "remove_command",
    "backup": "backup_command",
    "restore": "backup_command",
    "tenant": "tenant_command",
    "collection": "collection_command",
    "model": "model_command",
    "access": "access_command",
    "audit": "audit_command",
    "key": "key_command",
    "status": "status_command",
    "doctor": "doctor_command",
    "console": "web.console_command",
    "storage": "backup_command",
    "cite": "cite_command",
    "eval": "eval_command",
    "bench": "bench_command",
    "plan": "plan_command",
    "config": "config_command",
}
"""Commands and their modules. A module is imported when its command is used."""


class _Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 the same
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"rag.admin.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True
)
@click.version_option(package_name="refdesk", message="refdesk %(version)s")
@click.pass_context
def commands(context: click.Context) -> None:
    """Administer refdesk: ingest documents, manage access, try searches, measure quality.

    Without a command, it shows the state of this desk and what to do next. The MCP server for assistants is
    the command refdesk.
    """
    if context.invoked_subcommand is None:
        from rag.admin.status_command import next_command  # noqa: PLC0415 as with any command

        next_command.main([], standalone_mode=False)


def main() -> None:
    """Run a command. Every expected error ends in one message and an exit code."""
    # A pipe on Windows can't encode every letter.
    cast("TextIOWrapper", sys.stdout).reconfigure(errors="replace")
    try:
        sys.exit(commands(standalone_mode=False))
    except click.ClickException as error:
        message = StringIO()
        error.show(message)
        echo(message.getvalue().removesuffix("\n"), err=True)
        sys.exit(error.exit_code)
    except click.Abort:
        echo("Interrupted. Completed work is kept. Run the same command again to continue.", err=True)
        sys.exit(INTERRUPTED)
    except (ConfigurationError, InvalidRequestError) as error:
        echo(f"refdesk-admin: {error}", err=True)
        sys.exit(MISUSE)
    except RefdeskError as error:
        echo(f"refdesk-admin: {error}", err=True)
        sys.exit(BUSY if isinstance(error, BusyError) else FAILED)
    except OSError as error:
        echo(f"refdesk-admin: {_describe(error)}", err=True)
        sys.exit(FAILED)


def _describe(error: OSError) -> str:
    """The operating system's error, on one line."""
    try:
        sys.stdout.flush()
    except OSError:  # standard output is broken, and would fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    subject = f"{str(error.filename)!r}" if error.filename else "Reading or writing failed"
    return f"{subject}: {error.strerror or error or type(error).__name__}."
