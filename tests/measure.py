"""Measure what the README's "Measured" section states: python tests/measure.py [NAME…].

Prints a line per figure with its target. Ratios compare two things in the same run, because
absolute times on a shared machine say little. Needs refdesk installed with the dev extra.
"""

from __future__ import annotations

import os
import random
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import psutil
from lancedb.query import FullTextOperator, MatchQuery
from mcp import Client, StdioServerParameters

import rag.admin
from rag.embed.open import open_embedder
from rag.ingest.chunk import passages
from rag.ingest.parse import parse
from rag.records import Principal, SearchRequest
from rag.search.desk import open_desk
from rag.settings import DEFAULT_COLLECTION, EmbedderSettings, Settings
from rag.store.connection import connect
from rag.store.reader import CHUNK_COLUMNS
from rag.store.schema import body, chunks_table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

SCRIPTS = Path(sysconfig.get_path("scripts"))
CORPUS = Path(rag.admin.__file__).parent / "demo_corpus"
FILES, SENTENCES = 500, 140  # about 10,000 chunks
QUESTIONS = [
    "who sold the time in London?",
    "leap second 2016",
    "how do quartz oscillators drift",
    "what does a falseticker do",
    "the date line and the missing day",
    "Harrison's fourth timekeeper",
    "why ten days were dropped",
    "GPS week rollover",
]
BARE = """
import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
TOOLS = [types.Tool(name=name, description="x", input_schema={"type": "object"}) for name in "ab"]
async def list_tools(ctx, params): return types.ListToolsResult(tools=TOOLS)
async def call_tool(ctx, params): return types.CallToolResult(content=[])
server = Server("bare", on_list_tools=list_tools, on_call_tool=call_tool)
async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
anyio.run(main)
"""
INITIALIZE = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",'
    '"capabilities":{},"clientInfo":{"name":"measure","version":"1"}}}\n'
)


def report(name: str, value: float, unit: str, target: str) -> None:
    print(f"{name:58} {value:10.2f} {unit:14} target {target}", flush=True)


def corpus(folder: Path) -> Path:
    """Files of shuffled sentences from the demo corpus: real words, repeatable, as many as needed."""
    texts = [path.read_text() for path in sorted(CORPUS.glob("*.md"))]
    sentences = [one.strip() for text in texts for one in re.split(r"(?<=[.!?])\s+", text) if len(one) > 40]
    chance = random.Random(7)
    folder.mkdir()
    for number in range(FILES):
        chosen = [chance.choice(sentences) for _ in range(SENTENCES)]
        sections = [
            f"## Part {at // 20}\n\n" + " ".join(chosen[at : at + 20]) for at in range(0, SENTENCES, 20)
        ]
        (folder / f"{number:04}.md").write_text(f"# Document {number}\n\n" + "\n\n".join(sections))
    return folder


def start_to_first_answer(command: Sequence[str]) -> float:
    began = time.perf_counter()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        process.stdin.write(INITIALIZE)
        process.stdin.flush()
        assert process.stdout.readline()
        took = time.perf_counter() - began
        process.stdin.close()
    return took


def cold_start(data: Path) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".py") as bare:
        bare.write(BARE)
        bare.flush()
        pairs = [
            (
                start_to_first_answer([str(SCRIPTS / "refdesk"), "--data", str(data)]),
                start_to_first_answer([sys.executable, bare.name]),
            )
            for _ in range(11)
        ][1:]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    report("cold start to the first answer", ours * 1000, "ms", f"(bare server: {theirs * 1000:.0f} ms)")
    report("cold start / a bare server's", ratio, "x", "<= 1.3")


async def first_search(data: Path) -> None:
    took = []
    for _ in range(5):
        async with Client(
            StdioServerParameters(command=str(SCRIPTS / "refdesk"), args=["--data", str(data)])
        ) as client:
            began = time.perf_counter()
            await client.call_tool("search", {"query": QUESTIONS[0]})
            took.append(time.perf_counter() - began)
    report("first search after the first answer", statistics.median(took), "s", "<= 1.5")


async def median_ms(runs: int, call: Callable[[str], Awaitable[object]]) -> float:
    took = []
    for at in range(runs):
        began = time.perf_counter()
        await call(QUESTIONS[at % len(QUESTIONS)] + f" {at}")
        took.append(time.perf_counter() - began)
    return statistics.median(took[runs // 5 :]) * 1000


async def warm_search(data: Path) -> None:
    """A search against its parts: the query's embedding, then the two lists at once.

    A search asks the lists for ids and reads the rows of its few hits afterwards. The parts are
    measured both as the search runs them and with lists that bring what a hit needs themselves.
    """
    settings = Settings(data=data)
    async with (
        open_desk(settings, os.environ) as desk,
        open_embedder(EmbedderSettings(), os.environ) as embedder,
    ):
        database = await connect(data)
        chunks = await database.open_table(chunks_table("default", DEFAULT_COLLECTION))

        async def search(query: str) -> None:
            await desk.search(Principal("default"), SearchRequest(query))

        async def parts(columns: list[str], query: str) -> None:
            (vector,) = await embedder.embed([query], "query")
            match = MatchQuery(query, "body", operator=FullTextOperator.OR)  # type: ignore[call-arg]
            dense = chunks.query().nearest_to(vector).distance_type("cosine")
            dense = (
                dense.minimum_nprobes(20).maximum_nprobes(0).refine_factor(1).select([*columns, "_distance"])
            )
            sparse = chunks.query().nearest_to_text(match).select([*columns, "_score"])
            async with anyio.create_task_group() as tasks:
                for one in (dense, sparse):
                    tasks.start_soon(one.limit(settings.search.candidates).to_arrow)

        calls: dict[str, Callable[[str], Awaitable[object]]] = {
            "search": search,
            "ids": partial(parts, ["id"]),
            "columns": partial(parts, [*CHUNK_COLUMNS, "vector"]),
        }
        took: dict[str, list[float]] = {name: [] for name in calls}
        for at in range(400):  # in turn, so that what the machine does else falls on all alike
            query = f"{QUESTIONS[at % len(QUESTIONS)]} {at % 50}"
            for name, call in calls.items():
                began = time.perf_counter()
                await call(query)
                took[name].append((time.perf_counter() - began) * 1000)
    ms = {name: statistics.median(times[100:]) for name, times in took.items()}
    report("warm hybrid search", ms["search"], "ms", "")
    for name, what in (("ids", "ids"), ("columns", "the hits' columns")):
        ratio = ms["search"] / ms[name]
        report(f"  / embed + two lists of {what}", ratio, "x", f"<= 1.3 ({ms[name]:.1f} ms)")


def ingestion(data: Path, folder: Path) -> None:
    limit = 254
    began = time.perf_counter()
    process = psutil.Popen(
        [SCRIPTS / "refdesk-admin", "ingest", folder, "--data", data], stderr=subprocess.DEVNULL
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(one.memory_info().rss for one in [process, *process.children(recursive=True)]))
        time.sleep(0.05)
    took = time.perf_counter() - began
    rate, chunks = anyio.run(_embedder_alone, folder, limit)
    report("ingestion", chunks / took, "chunks/s", f"(embedder alone: {rate:.0f})")
    report("ingestion / embedder alone, start and indexes included", chunks / took / rate, "x", ">= 0.85")
    report("ingestion's peak memory", peak / 1e6, "MB", "< 800")


async def _embedder_alone(folder: Path, limit: int) -> tuple[float, int]:
    async with open_embedder(EmbedderSettings(), os.environ) as embedder:
        texts = []
        for path in sorted(folder.iterdir()):
            document = parse(path.read_bytes(), path.name)
            for one in passages(document, token_spans=embedder.token_spans, limit=limit):
                texts.append(body(one.context, document.text[one.start : one.end]))
        sample = texts[:: max(1, len(texts) // 2000)]
        await embedder.embed(sample[:50], "document")
        began = time.perf_counter()
        await embedder.embed(sample, "document")
        return len(sample) / (time.perf_counter() - began), len(texts)


def unchanged(data: Path, folder: Path) -> None:
    took = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run(
            [SCRIPTS / "refdesk-admin", "ingest", folder, "--data", data], capture_output=True, check=True
        )
        took.append(time.perf_counter() - began)
    report(f"ingesting {FILES} unchanged files again", statistics.median(took), "s", "< 2")


async def server_memory(data: Path) -> None:
    async with Client(
        StdioServerParameters(command=str(SCRIPTS / "refdesk"), args=["--data", str(data)])
    ) as client:
        for at in range(100):
            await client.call_tool("search", {"query": f"{QUESTIONS[at % len(QUESTIONS)]} {at}"})
        (server,) = psutil.Process().children()
        report("server memory after 100 searches", server.memory_info().rss / 1e6, "MB", "< 320")


async def large_source(scratch: Path) -> None:
    data = scratch / "large-data"
    text = "\n\n".join(f"Paragraph {at}. " + "The caesium clock keeps time. " * 40 for at in range(4200))
    (scratch / "large.txt").write_text(text)
    subprocess.run(
        [SCRIPTS / "refdesk-admin", "ingest", scratch / "large.txt", "--data", data],
        capture_output=True,
        check=True,
    )
    async with Client(
        StdioServerParameters(command=str(SCRIPTS / "refdesk"), args=["--data", str(data)])
    ) as client:
        hit = (await client.call_tool("search", {"query": "caesium", "limit": 1})).structured_content[
            "results"
        ][0]

        async def window(_query: str) -> None:
            await client.call_tool("get_source", {"id": hit["source_id"], "start": len(text) // 2})

        took = await median_ms(30, window)
    report(f"get_source, a window of {len(text) / 1e6:.1f} MB", took, "ms", "< 50")


async def chunking() -> None:
    async with open_embedder(EmbedderSettings(), os.environ) as embedder:
        files = [(path.read_bytes(), path.name) for path in sorted(CORPUS.glob("*.md"))] * 20
        began = time.process_time()
        for data, name in files:
            passages(parse(data, name), token_spans=embedder.token_spans, limit=254)
        took = time.process_time() - began
    report(
        "parsing and chunking Markdown",
        sum(len(data) for data, _ in files) / 1e6 / took,
        "MB per CPU s",
        ">= 2",
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        data, folder = Path(scratch, "data"), corpus(Path(scratch, "corpus"))
        measures: dict[str, Callable[[], object]] = {
            "ingestion": partial(ingestion, data, folder),
            "unchanged": partial(unchanged, data, folder),
            "start": partial(cold_start, data),
            "first": partial(anyio.run, first_search, data),
            "search": partial(anyio.run, warm_search, data),
            "memory": partial(anyio.run, server_memory, data),
            "window": partial(anyio.run, large_source, Path(scratch)),
            "chunking": partial(anyio.run, chunking),
        }
        for name in sys.argv[1:] or measures:
            measures[name]()


if __name__ == "__main__":
    main()
