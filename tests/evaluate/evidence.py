"""How often evidence is called weak, for developers: `python -m tests.evaluate.evidence SET OTHER_SET…`.

Asks the questions of a set: of all its documents (answerable), without those that answer,
and without all that have a title of theirs. Then asks it the other sets' questions. Prints the shares noted.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, get_args

import anyio
import click

from rag.answers import SearchRequest
from rag.config.settings import Settings
from rag.corpus import Language, Principal
from rag.evaluate.evaluation import on_fresh
from rag.evaluate.sets import read_set
from rag.ingest.progress import Silent
from rag.search.desk import Desk
from rag.search.stages.thresholds import UNGROUNDED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rag.evaluate.ask import Contender
    from rag.evaluate.evaluation import Prepared

ME = Principal("default")
ALL_SOURCES = 100_000
T = TypeVar("T")


class Quiet(Silent):
    """Watches an evaluation, and its ingestion, and says nothing."""

    @property
    def ingesting(self) -> Silent:
        return self

    def began(self, contender: Contender, questions: int) -> None:
        pass

    def asked(self) -> None:
        pass


@click.command(help=__doc__)
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("others", type=click.Path(path_type=Path), nargs=-1)
@click.option("--language", type=click.Choice(get_args(Language)), default="English")
@click.option("--most", default=200, help="Questions of each set.")
def evidence(path: Path, others: tuple[Path, ...], language: Language, most: int) -> None:
    """Measure and print."""
    anyio.run(_measured, path, others, language, most)


async def _measured(path: Path, others: tuple[Path, ...], language: Language, most: int) -> None:
    async with (
        on_fresh(read_set(path), Settings(), {}, language=language, progress=Quiet()) as room,
        Desk.open(room.settings) as desk,
    ):
        asked = await _of_the_set(desk, room, most)
        for other in others:
            questions = read_set(other).questions
            asked[other.name] = [SearchRequest(one.text) for one in _some(questions, most)]
        for name, requests in asked.items():
            noted = [UNGROUNDED in (await desk.search(ME, one)).notes for one in requests]
            click.echo(f"{path.name}, {name}: {sum(noted) / len(noted):.1%} of {len(noted)}")


async def _of_the_set(desk: Desk, room: Prepared, most: int) -> dict[str, list[SearchRequest]]:
    """The set's questions, of all its documents and of some."""
    titles = {one.id: one.title for one in await desk.sources(ME, after=("", ""), limit=ALL_SOURCES)}
    asked: dict[str, list[SearchRequest]] = {
        "answerable": [],
        "without its documents": [],
        "without its titles": [],
    }
    for one in _some(room.questions, most):
        answering = {id_ for target in one.targets for id_ in target.sources}
        topic = {titles[id_] for id_ in answering}
        alike = [id_ for id_, title in titles.items() if title in topic]
        for requests, left_out in zip(asked.values(), ([], answering, alike), strict=True):
            requests.append(SearchRequest(one.question.text, exclude_sources=tuple(left_out)))
    return asked


def _some(items: Iterable[T], most: int) -> list[T]:
    items = list(items)
    return random.Random(1).sample(items, min(most, len(items)))  # noqa: S311 a sample, the same each time


if __name__ == "__main__":
    evidence()
