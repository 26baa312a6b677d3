"""`refdesk-admin bench`: how long the server takes to start and to search this desk's documents."""

from __future__ import annotations

import os
import re
import statistics
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import click

from rag.access.tenants import local_principal
from rag.admin.command_line import asker_arguments, command, same_desk
from rag.admin.connect.connect_check import check_server
from rag.admin.demo_command import server_parameters
from rag.admin.terminal import echo, print_json, print_table
from rag.answers import Part, SearchRequest
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.errors import NotReadyError
from rag.report.text_and_html import counted
from rag.runtime import concurrently
from rag.search.desk import Desk

STARTS = 3
ROUNDS = 3  # of each question alone, and as many with others at once, after one with empty caches
AT_ONCE = 8  # searches
MOST_SOURCES = 1_000  # that questions are taken from
QUESTIONS = 32
PASSAGE_CHARS, SHORTEST, LONGEST = 600, 40, 100  # of the text that a question is taken from; of a question


@dataclass(frozen=True, slots=True)
class Timing:
    """The median, the least and the 95th percentile of repeated measurements."""

    name: str
    median: float
    least: float
    p95: float
    unit: str


@command("bench", of_asker=True, on_bucket=True)
@click.argument("questions", nargs=-1, metavar="[QUESTION]...")
async def bench_command(settings: Settings, *, questions: tuple[str, ...], as_json: bool) -> None:
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
    if as_json:
        print_json({"questions": len(asked_questions), "timings": [asdict(timing) for timing in timings]})
        return
    rows = [
        (timing.name, *(f"{value:,.4g}" for value in (timing.median, timing.least, timing.p95)), timing.unit)
        for timing in timings
    ]
    print_table([("WHAT", "MEDIAN", "LEAST", "95TH PERCENTILE", "UNIT"), *rows])


async def questions_about(desk: Desk, principal: Principal) -> tuple[str, ...]:
    """Distinct questions about documents that this principal may read: three sentences to each title."""
    sources = await desk.sources(principal, after=("", ""), limit=MOST_SOURCES)
    count = min(QUESTIONS, len(sources))
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
    await _ask(desk, principal, iter(questions))  # the caches are empty
    alone = [
        milliseconds for _ in range(ROUNDS) for milliseconds in await _ask(desk, principal, iter(questions))
    ]
    rates = []
    for _ in range(ROUNDS):
        waiting, began = iter(questions), time.perf_counter()
        await concurrently([partial(_ask, desk, principal, waiting)] * AT_ONCE)
        rates.append(len(questions) / (time.perf_counter() - began))
    return [timing("search", alone, "ms"), timing(f"{AT_ONCE} searches at once", rates, "searches/s")]


async def _ask(desk: Desk, principal: Principal, questions: Iterator[str]) -> list[float]:
    """The milliseconds of each search, one after another."""
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
