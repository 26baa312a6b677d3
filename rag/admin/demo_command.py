"""`refdesk-admin demo`: an end-to-end run, from files to search results over MCP."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from rag.admin.command_line import NamedPath, command, same_desk, settings_file
from rag.admin.connect.known_hosts import Launch, environment, launch, secret_names
from rag.admin.ingestion import RunOptions, run_ingest
from rag.admin.search_output import print_results
from rag.admin.sources_command import open_collections
from rag.admin.terminal import arguments, echo, print_json
from rag.config.settings import DEFAULT_COLLECTION, Settings, default_data
from rag.errors import RefdeskError
from rag.ingest.report import Report
from rag.search.reply.search_reply import SearchReply
from rag.store.write.change_collection import open_writer
from rag.text.plain_text import escape_hidden

CORPUS = Path(__file__).parent / "demo_corpus"
QUESTIONS = (
    "Who earned her living by telling people the time?",
    "How slow was Harrison's watch when it reached Jamaica?",
    "Why does a public clock in Bristol have an extra hand?",
    "What does _TIME_BITS=64 do?",
)
"""Answered by a paraphrase, a page of a PDF, a web page, and an exact term."""
RESULTS = 2  # passages per question


@command("demo", of_tenant=False)
@click.argument("paths", nargs=-1, type=NamedPath())
@click.option("--ask", "questions", multiple=True, metavar="QUESTION", help="Question to ask. Repeatable.")
async def demo_command(
    settings: Settings, *, paths: tuple[Path, ...], questions: tuple[str, ...], as_json: bool
) -> int:
    """Run an end-to-end demo, from files to search results.

    Ingests documents, starts the server, searches like an assistant, and prints the passages. At the end it
    prints the configuration for Claude Desktop and VS Code.

    Without PATHS it uses a small collection about timekeeping, in a data folder of its own. With PATHS it
    ingests these files and folders into your data folder and asks the questions given with --ask.
    """
    if paths and not questions:
        raise click.UsageError('Give a question about these files: --ask "…"')
    own_folder = not paths and settings.data == default_data()
    if own_folder:
        settings = settings.model_copy(update={"data": default_data().with_name("refdesk-demo")})
    echo(f"Ingesting into {settings.data}", err=True)
    report = await run_ingest(settings, paths or (CORPUS,), DEFAULT_COLLECTION, RunOptions(quiet=True))
    if report.fruitless:
        return 1
    if own_folder:
        await _keep_only(settings, report)
    server = server_parameters(settings)
    answers = await _ask(server, questions or QUESTIONS)
    if as_json:
        replies = [
            {"question": question} | reply.model_dump(exclude_none=True, exclude_unset=True)
            for question, reply in answers
        ]
        print_json({"counts": report.counts, "answers": replies, "configuration": snippets(server)})
        return 0
    for question, reply in answers:
        echo(f"\n? {question}\n", fg="cyan", bold=True)
        print_results(reply)
    _print_snippets(server, settings)
    return 0


async def _keep_only(settings: Settings, report: Report) -> None:
    """Remove documents that an earlier installation's demo left: the same ones, from another folder."""
    ingested = {outcome.source_id for outcome in report.outcomes}
    (table,) = await open_collections(settings, DEFAULT_COLLECTION)
    outdated = [source.id for source in await table.listing() if source.id not in ingested]
    if outdated:
        async with open_writer(settings.data, table.collection) as writer:
            await writer.remove(outdated)
            await writer.finish()


async def _ask(server: StdioServerParameters, questions: tuple[str, ...]) -> list[tuple[str, SearchReply]]:
    """The server's reply to each question, over stdio; it ends with the last."""
    alone = server.model_copy(update={"args": [*server.args, "--alone"]})
    async with Client(alone) as client:
        echo(f"Started {server.command} (MCP {client.protocol_version})", err=True)
        usual = {"limit": RESULTS, "collections": [DEFAULT_COLLECTION]}
        results = [await client.call_tool("search", {"query": question} | usual) for question in questions]
    return [(question, _reply(question, result)) for question, result in zip(questions, results, strict=True)]


def _reply(question: str, result: CallToolResult) -> SearchReply:
    if result.is_error:
        words = " ".join(block.text for block in result.content if isinstance(block, TextContent))
        raise RefdeskError(f"The server answered {question!r} with an error: {words}")
    return SearchReply.model_validate(result.structured_content)


def server_parameters(settings: Settings, asker: Sequence[str] = ()) -> StdioServerParameters:
    """How a host starts this installation's server for this desk and asker, with the models' keys."""
    started = launch(settings, settings_file(), asker)
    keys = {name: os.environ[name] for name in secret_names(settings) if name in os.environ}
    return StdioServerParameters(command=started.command, args=[*started.args], env={**started.env, **keys})


def snippets(server: StdioServerParameters) -> dict[str, dict[str, Any]]:
    """The configuration of each host by its file; without secrets."""
    entry = Launch(server.command, server.args, environment()).entry
    return {
        "claude_desktop_config.json": {"mcpServers": {"refdesk": entry}},
        ".vscode/mcp.json": {"servers": {"refdesk": {"type": "stdio", **entry}}},
    }


def _print_snippets(server: StdioServerParameters, settings: Settings) -> None:
    data = same_desk("config") + arguments("--data", str(settings.data))
    echo("\nTo use refdesk from an assistant, add this to its configuration,", bold=True)
    echo(f"or let refdesk-admin connect do it: refdesk-admin connect HOST{data}", bold=True)
    hosts = {
        "claude_desktop_config.json": "Claude Desktop (Settings, Developer, Edit Config)",
        ".vscode/mcp.json": "VS Code",
    }
    for file, content in snippets(server).items():
        entry = escape_hidden(json.dumps(content, indent=2, ensure_ascii=False))
        echo(f"\n{hosts[file]}: {file}\n{entry}")
    if settings.embedder.provider == "openai":
        names = [settings.embedder.api_key_env, *settings.embedder.options.headers_env.values()]
        echo(f"\nThe host must also set {', '.join(names)} for the server.")
