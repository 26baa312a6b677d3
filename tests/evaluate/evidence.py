"""How often evidence is called weak, for developers: `python -m tests.evaluate.evidence SET OTHER_SET…`.

Asks the questions of a set as an assistant does: of all its documents (answerable), without those that
answer, and without all that have a title of theirs. Then asks it the other sets' questions. Prints how many
have the note, of two halves of the questions: a rule is chosen on A and judged on B. A question is always in
the same half.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import click

from rag.answers import SearchRequest
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.evaluate.evaluation import prepare_fresh
from rag.evaluate.judged_sets import read_set
from rag.ingest.report import Progress
from rag.search.desk import Desk
from rag.search.stages.thresholds import UNGROUNDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.evaluate.evaluation import PreparedSet

ME = Principal("default")
ALL_SOURCES = 100_000
T = TypeVar("T")


@click.command(help=__doc__)
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("other_paths", type=click.Path(path_type=Path), nargs=-1)
@click.option("--most", default=300, help="Questions of the set.")
@click.option("--of-others", default=60, help="Questions of each other set.")
def evidence(path: Path, other_paths: tuple[Path, ...], most: int, of_others: int) -> None:
    """Measure and print."""
    anyio.run(_measured, path, other_paths, most, of_others)


async def _measured(path: Path, other_paths: tuple[Path, ...], most: int, of_others: int) -> None:
    async with (
        prepare_fresh(read_set(path), Settings(), {}, language=None, progress=Progress()) as room,
        Desk.open(room.settings) as desk,
    ):
        by_kind = await _of_the_set(desk, room, most)
        questions = [
            question
            for other_path in other_paths
            for question in _some(read_set(other_path).questions, of_others)
        ]
        by_kind["other sets"] = [SearchRequest(question.text, joined=True) for question in questions]
        for kind, requests in by_kind.items():
            counts: Counter[str] = Counter(_half(request) for request in requests)
            noted: Counter[str] = Counter()
            for request in requests:
                noted[_half(request)] += UNGROUNDED in (await desk.search(ME, request)).notes
            shares = [f"{half} {noted[half]} of {count}" for half, count in sorted(counts.items())]
            click.echo(f"{path.name}, {kind}: {', '.join(shares)}")


def _half(request: SearchRequest) -> str:
    return "AB"[hashlib.sha256(request.query.encode()).digest()[0] % 2]


async def _of_the_set(desk: Desk, room: PreparedSet, most: int) -> dict[str, list[SearchRequest]]:
    """The set's questions, of all its documents and of some."""
    titles = {source.id: source.title for source in await desk.sources(ME, after=("", ""), limit=ALL_SOURCES)}
    by_set: dict[str, list[SearchRequest]] = {
        "answerable": [],
        "without its documents": [],
        "without its titles": [],
    }
    for question in _some(room.questions, most):
        answering = {id_ for target in question.targets for id_ in target.sources}
        answering |= {stretch.source_id for target in question.targets for stretch in target.stretches}
        topic = {titles[id_] for id_ in answering}
        alike = [id_ for id_, title in titles.items() if title in topic]
        for requests, left_out in zip(by_set.values(), ([], answering, alike), strict=True):
            requests.append(
                SearchRequest(question.question.text, exclude_sources=tuple(left_out), joined=True)
            )
    return by_set


def _some(items: Iterable[T], most: int) -> list[T]:
    items = list(items)
    return random.Random(1).sample(items, min(most, len(items)))  # noqa: S311 a sample, the same each time


if __name__ == "__main__":
    evidence()
