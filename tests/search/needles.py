"""How long exact searches take, for developers: `python -m tests.search.needles [--chunks 100000]`.

Needles that cost much elsewhere: short ones, which occur everywhere, and patterns made to take long. Prints
the best of three times, the CPU time, the number of results, and whether the deadline ended the search.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
import numpy as np

import rag.admin
from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Principal
from rag.errors import InvalidRequestError
from rag.models.embed import unit_rows
from rag.search.desk import Desk
from rag.store.read.desk_reader import DeskReader
from tests import small_desk
from tests.bench.corpus import sentences

if TYPE_CHECKING:
    from rag.answers import Match

ME = Principal("default")
CHUNKS, WAVE = 10, 500  # of a source; sources in a commit
SECONDS = 2.0  # the deadline
NEEDLES: list[tuple[Match, str]] = [
    ("text", "zzzqqq"),
    ("text", "e"),
    ("text", "th"),
    ("text", "Document 77770 "),
    ("text", "a" * 1000),
    ("words", "leave of absence"),
    ("words", "clock"),
    ("regex", "zzz[qx]+"),
    ("regex", "."),
    ("regex", r"(?s)c.{0,50}k"),
    ("regex", r"^(a+)+$"),
    ("regex", r"(x+x+)+y"),
    ("regex", r"(a|a|a|aa)+z"),
    ("regex", r"(.*)(.*)(.*)(.*)(.*)[^\x00-\x{10ffff}]"),
    ("regex", r".*a.{90}\x{1F600}"),
    ("regex", r"(\pL?\pN?.?){30}zX"),
    ("regex", r"(\pL?\pN?.?){60}a.{300}X"),
    ("regex", r"(((a{10}){10}){10}){10}"),
    ("regex", "(" * 500 + "a" + ")" * 500),
]


@click.command(help=__doc__)
@click.option("--chunks", default=100_000)
def needles(chunks: int) -> None:
    """Measure and print."""
    anyio.run(_measured, chunks)


async def _measured(chunks: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch, "data")
        await _fill(data, chunks)
        desk = Desk(DeskReader(data, timeout_seconds=SECONDS), small_desk.BagOfWords(), SearchSettings())
        for match, needle in NEEDLES:
            request = SearchRequest(needle, mode="exact", match=match)
            runs = [await _timed(desk, request) for _ in range(3)]
            took, used, outcome = min(runs)
            label = needle if len(needle) <= 44 else f"{needle[:40]}… ({len(needle)})"
            click.echo(f"{match:6} {label:46} {took * 1000:6.0f} ms {used * 1000:6.0f} ms CPU  {outcome}")


async def _timed(desk: Desk, request: SearchRequest) -> tuple[float, float, str]:
    began, used = time.perf_counter(), time.process_time()
    try:
        answer = await desk.search(ME, request)
        outcome = (
            f"{len(answer.hits)} results{', deadline' if 'was stopped' in ' '.join(answer.notes) else ''}"
        )
    except InvalidRequestError as error:
        outcome = str(error).partition(".")[0]
    return time.perf_counter() - began, time.process_time() - used, outcome


async def _fill(data: Path, chunks: int) -> None:
    """A collection of sources with ten chunks of five sentences each."""
    chance = random.Random(7)  # noqa: S311 the same every time
    known_sentences = sentences(Path(rag.admin.__file__).parent / "demo_corpus")
    few = unit_rows(
        np.random.default_rng(7).standard_normal((CHUNKS, small_desk.DIMENSION)).astype(np.float32)
    )
    small_desk.vectors = lambda texts: few[: len(texts)]  # exact search has no use for them
    async with await small_desk.writing(data) as writer:
        for first in range(0, chunks, CHUNKS * WAVE):
            wave = range(first, min(chunks, first + CHUNKS * WAVE), CHUNKS)
            texts = {
                number: [" ".join(chance.choices(known_sentences, k=5)) for _ in range(CHUNKS)]
                for number in wave
            }
            await writer.replace(
                [
                    small_desk.new_source(
                        writer, f"d{number}", f"Document {number} {paragraphs[0]}", *paragraphs[1:]
                    )
                    for number, paragraphs in texts.items()
                ]
            )
        await writer.finish()


if __name__ == "__main__":
    needles()
