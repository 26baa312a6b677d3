"""`refdesk-admin`: its commands, error messages and exit codes."""

from __future__ import annotations

import importlib
import os
import sys
from io import StringIO, TextIOWrapper
from typing import cast

import click
from click.shell_completion import CompletionItem

from rag.admin.terminal import BUSY, FAILED, INTERRUPTED, MISUSE, Group, echo
from rag.errors import BusyError, ConfigurationError, InvalidRequestError, RefdeskError

COMMANDS = {
    "demo": ("demo_command", "Run an end-to-end demo, from files to search results."),
    "init": ("init_command", "Ask six questions, and write a settings file with comments."),
    "connect": ("connect.connect_command", "Connect an assistant to this desk."),
    "ingest": ("ingest_command", "Ingest files and folders into a collection."),
    "sync": ("sync_command", "Bring collections to the state of their origins."),
    "records": ("sync_command", "Check the records of a connector."),
    "runs": ("runs_command", "List the last ingestions, or show one with its failures."),
    "search": ("search_command", "Search like an assistant and print the passages."),
    "sources": ("sources_command", "List the sources of all collections, or of one."),
    "source": ("sources_command", "Show a source: its metadata, outline and text."),
    "remove": ("remove_command", "Remove sources by id, file, folder, path, title, or pattern."),
    "purge": ("remove_command", "Delete the text of removed documents from the disk."),
    "backup": ("backup_command", "Back up a tenant to a file."),
    "restore": ("backup_command", "Restore a tenant from a backup."),
    "tenant": ("tenant_command", "Create, list and remove tenants."),
    "collection": ("collection_command", "Create, attach, tag, describe, show and remove collections."),
    "model": ("model_command", "Bring embedding models and rerankers to this machine."),
    "access": ("access_command", "Show and change who may see which sources."),
    "audit": ("audit_command", "Read the log of administrative acts."),
    "key": ("key_command", "Create and revoke API keys for remote assistants."),
    "status": ("status_command", "Show the data folder and the size of each collection."),
    "doctor": ("doctor_command", "Diagnose a desk and repair it."),
    "console": ("web.console_command", "Show and administer this desk in a browser."),
    "storage": ("backup_command", "Move a desk to a bucket of an object store, or back."),
    "cite": ("cite_command", "Check the citations and quotes of an answer; print its schema."),
    "eval": ("eval_command", "Measure retrieval quality on judged questions."),
    "bench": ("demo_command", "Measure the time of a start and of searches in your documents."),
    "plan": ("plan_command", "Compute what a desk of a given size needs."),
    "config": ("config_command", "Check the settings."),
}
"""Commands with their modules and the first line of their help.

A module is imported when its command is used: all of them take two seconds.
"""


class _Commands(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 the same
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"rag.admin.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 the same
        """Click's method, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Click's method, without importing the commands."""
        completions = [
            CompletionItem(name, help=click.Command(name, help=help_line).get_short_help_str())
            for name, (_, help_line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*completions, *click.Command.shell_complete(self, ctx, incomplete)]


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
    for stream in ("stdin", "stdout", "stderr"):
        if getattr(sys, stream) is None:  # a scheduler closed it; the null device gets its descriptor
            setattr(sys, stream, open(os.devnull, "r+", encoding="utf-8"))  # noqa: PTH123, SIM115 it stays open
    # A pipe on Windows can't encode every letter.
    cast("TextIOWrapper", sys.stdout).reconfigure(errors="replace")
    try:
        sys.exit(commands(standalone_mode=False))
    except click.ClickException as error:
        message = StringIO()
        error.show(message)
        echo(message.getvalue().removesuffix("\n"), err=True)
        if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.parent is None:
            echo(f"Options come after the command: refdesk-admin COMMAND {error.option_name} …", err=True)
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
    try:
        sys.stdout.flush()
    except OSError:  # standard output is broken, and would fail again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    subject = repr(str(error.filename)) if error.filename else "Reading or writing failed"
    return f"{subject}: {error.strerror or error or type(error).__name__}."
