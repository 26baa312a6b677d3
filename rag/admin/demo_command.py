"""`refdesk-admin demo` and `bench`: they start the server of a desk as a host does, and ask it.

`demo` is an end-to-end run, from files to search results over MCP. `bench` measures how long the server takes
to start and to search this desk's documents.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from rag.access.tenants import local_principal
from rag.admin.command_line import NamedPath, asker_arguments, command, repeatable, same_desk, settings_file
from rag.admin.connect.connect_check import check_server
from rag.admin.connect.known_hosts import HOSTS, Launch, environment, launch, other_variables
from rag.admin.ingestion import RunOptions, run_ingest
from rag.admin.search_output import print_results
from rag.admin.sources_command import open_collections
from rag.admin.terminal import arguments, echo, print_json, print_table
from rag.answers import Part, SearchRequest
from rag.config.settings import DEFAULT_COLLECTION, Settings, StorageSettings, default_data
from rag.corpus import Principal
from rag.errors import NotReadyError, RefdeskError
from rag.ingest.report import Report
from rag.report import counted
from rag.runtime import concurrently
from rag.search.desk import Desk
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


@command("demo", of_tenant=False, changes=True)
@click.argument("paths", nargs=-1, type=NamedPath())
@repeatable("--ask", "questions", metavar="QUESTION", help="Question to ask. Repeatable.")
async def demo_command(settings: Settings, *, paths: tuple[Path, ...], questions: tuple[str, ...]) -> int:
    """Run an end-to-end demo, from files to search results.

    Ingests documents, starts the server, searches like an assistant, and prints the passages. At the end it
    prints the configuration for Claude Desktop and VS Code.

    Without PATHS it uses a small collection about timekeeping, in a data folder of its own, or in that of
    --data. With PATHS it ingests these files and folders into your data folder and asks the questions given
    with --ask.
    """
    if paths and not questions:
        raise click.UsageError('Give a question about these files: --ask "…"')
    if not paths and settings.storage.uri:  # the bucket has the user's documents
        os.environ["REFDESK_STORAGE_URI"] = ""  # also for the server, and in the printed configuration
        settings = settings.model_copy(update={"storage": StorageSettings()})
    # A folder that the settings or the environment name has the user's documents.
    own_folder = not paths and click.get_current_context().params["data"] is None
    if own_folder:
        settings = settings.model_copy(update={"data": default_data().with_name("refdesk-demo")})
    echo(f"Ingesting into {settings.home}", err=True)
    report = await run_ingest(settings, paths or (CORPUS,), DEFAULT_COLLECTION, RunOptions(quiet=True))
    if report.fruitless:
        return 1
    if own_folder:
        await _keep_only(settings, report)
    server = server_parameters(settings)
    answers = await _ask(server, questions or QUESTIONS)
    replies = [
        {"question": question} | reply.model_dump(exclude_none=True, exclude_unset=True)
        for question, reply in answers
    ]
    print_json({"counts": report.counts, "answers": replies, "configuration": snippets(server)})
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
    """How a host starts this installation's server for this desk and asker, with keys and credentials."""
    started = launch(settings, settings_file(), asker)
    env = {**started.env, **other_variables(settings)}
    return StdioServerParameters(command=started.command, args=[*started.args], env=env)


def snippets(server: StdioServerParameters) -> dict[str, dict[str, Any]]:
    """The configuration of each host by its file; without secrets."""
    started = Launch(server.command, server.args, environment())
    hosts = {"claude_desktop_config.json": HOSTS["claude-desktop"], ".vscode/mcp.json": HOSTS["vscode"]}
    return {file: {host.section: {"refdesk": host.local("refdesk", started)}} for file, host in hosts.items()}


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
    if names := other_variables(settings):
        echo(f"\nThe host must also set {', '.join(names)} for the server.")


STARTS = 3
ROUNDS = 3  # of each question alone, and as many with others at once, after one with empty caches
AT_ONCE = 8  # searches
MOST_SOURCES = 1_000  # that questions are taken from
MOST_QUESTIONS = 32
PASSAGE_CHARS, SHORTEST, LONGEST = 600, 40, 100  # of the text that a question is taken from; of a question


@dataclass(frozen=True, slots=True)
class Timing:
    """The median, the least and the 95th percentile of repeated measurements."""

    name: str
    median: float
    least: float
    p95: float
    unit: str


@command("bench", of_asker=True)
@click.argument("questions", nargs=-1, metavar="[QUESTION]...")
async def bench_command(settings: Settings, *, questions: tuple[str, ...]) -> None:
    """Measure the time of a start and of searches in your documents.

    It starts the server as an assistant's host does, but with --alone, and asks each QUESTION as the
    principal of the settings, or as --user and --group. Without a QUESTION, it asks sentences and titles of
    your documents. Nothing is changed. Each question is asked seven times: a remote model may cost money.
    """
    principal = local_principal(settings)
    async with Desk.open(settings, os.environ) as desk:
        asked_questions = questions or await questions_about(desk, principal)
        if not asked_questions:
            raise NotReadyError(
                "There are no documents to search. Add some with refdesk-admin ingest PATH"
                f"{same_desk()}, or ask as somebody who may see them: --user, --group."
            )
        count = counted(len(asked_questions), "question")
        echo(f"Searching with {count}, {1 + 2 * ROUNDS} times each", err=True)
        searches = await _searches(desk, principal, asked_questions)
    timings = [*await _starts(settings), *searches]
    rows = [
        (timing.name, *(f"{value:,.4g}" for value in (timing.median, timing.least, timing.p95)), timing.unit)
        for timing in timings
    ]
    print_json({"questions": len(asked_questions), "timings": [asdict(timing) for timing in timings]})
    print_table([("WHAT", "MEDIAN", "LEAST", "95TH PERCENTILE", "UNIT"), *rows])


async def questions_about(desk: Desk, principal: Principal) -> tuple[str, ...]:
    """Distinct questions about documents that this principal may read: three sentences to each title."""
    sources = await desk.sources(principal, after=("", ""), limit=MOST_SOURCES)
    count = min(MOST_QUESTIONS, len(sources))
    questions = []
    for number in range(count):
        source = sources[number * len(sources) // count]
        if number % 4 == 3:  # noqa: PLR2004 every fourth
            questions.append(source.title)
            continue
        middle = Part(source.length // 2)  # beginnings are often the same in all documents
        extract = await desk.extract(principal, source.id, max_chars=PASSAGE_CHARS, part=middle)
        questions.append(sentence(extract.text))
    return tuple(dict.fromkeys(filter(re.compile(r"\w").search, questions)))


def sentence(text: str) -> str:
    """The first long sentence of a text, or else the whole text, cut after a word.

    Example: "Oh! The clock of the tower was slow by a minute. So?" -> "The clock of the tower was slow by
    a minute."
    """
    whole = " ".join(text.split())
    sentences = re.split(r"(?<=[.!?])\s+|(?<=[。！？])", whole)
    first = next((sentence for sentence in sentences if len(sentence) >= SHORTEST), whole)
    return textwrap.shorten(first, LONGEST, placeholder="") or first[:LONGEST]


async def _starts(settings: Settings) -> list[Timing]:
    """How long a start takes until the list of tools, and from there until the first hits."""
    server = server_parameters(settings, asker_arguments())
    entry = {"command": server.command, "args": [*server.args, "--alone"], "env": server.env}
    echo(f"Starting the server {STARTS} times", err=True)
    sessions = [await check_server(entry, str, sys.stderr) for _ in range(STARTS)]
    return [
        timing("start to the list of tools", [start.ready_seconds * 1000 for start in sessions], "ms"),
        timing("first search", [start.search_seconds * 1000 for start in sessions], "ms"),
    ]


async def _searches(desk: Desk, principal: Principal, questions: Sequence[str]) -> list[Timing]:
    await _timed(desk, principal, iter(questions))  # the caches are empty
    alone = [took for _ in range(ROUNDS) for took in await _timed(desk, principal, iter(questions))]
    rates = []
    for _ in range(ROUNDS):
        waiting, began = iter(questions), time.perf_counter()
        await concurrently([partial(_timed, desk, principal, waiting)] * AT_ONCE)
        rates.append(len(questions) / (time.perf_counter() - began))
    return [timing("search", alone, "ms"), timing(f"{AT_ONCE} searches at once", rates, "searches/s")]


async def _timed(desk: Desk, principal: Principal, questions: Iterator[str]) -> list[float]:
    took = []
    for question in questions:
        began = time.perf_counter()
        await desk.search(principal, SearchRequest(question, joined=True))
        took.append((time.perf_counter() - began) * 1000)
    return took


def timing(name: str, values: Sequence[float], unit: str) -> Timing:
    """The statistics of repeated values. Example: [3, 1, 2] -> median 2, least 1, 95th percentile 3."""
    ordered = sorted(values)
    p95 = ordered[-(-len(ordered) * 95 // 100) - 1]  # by nearest rank
    return Timing(name, statistics.median(ordered), ordered[0], p95, unit)
