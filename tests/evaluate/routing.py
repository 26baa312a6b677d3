"""What planning finds, for developers: `python -m tests.evaluate.routing SET…`.

Each set is a collection, and all together are one pile. A scripted model plans as told: it names each
question, and its collection where there are several. Prints nDCG@10 of single questions; and of two
questions in one, from two sets if there are several, the share for which a document that answers each is
among 8 passages, and among 4.
"""

from __future__ import annotations

import json
import random
import tempfile
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import click

from rag.config.settings import SearchSettings, Settings
from rag.corpus import Principal
from rag.evaluate.judged_sets import read_set
from rag.evaluate.ranking_metrics import ndcg
from rag.models.embed import open_embedder
from rag.search.desk import Desk
from tests import chats
from tests.endpoint import running
from tests.small_desk import ingested

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.evaluate.judged_sets import JudgedSet, Question
    from tests.endpoint import Behaviour, Reply

ME = Principal("default")
PLANNER = {"stage": "planner"}
Part: TypeAlias = "tuple[str, Question]"
"""A question, after the collection that answers it."""


@click.command(help=__doc__)
@click.argument("paths", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--most", default=100, help="Questions of each set, and pairs.")
def routing(paths: tuple[Path, ...], most: int) -> None:
    """Measure and print."""
    anyio.run(_measured, [read_set(path) for path in paths], most)


async def _measured(sets: Sequence[JudgedSet], most: int) -> None:
    chance = random.Random(1)  # noqa: S311 a sample, the same each time
    of_each = [
        [
            (judged_set.name, question)
            for question in chance.sample(judged_set.questions, min(most, len(judged_set.questions)))
        ]
        for judged_set in sets
    ]
    single = [(part,) for parts in of_each for part in parts]
    pairs = [_pair(of_each, chance) for _ in range(most)]
    with tempfile.TemporaryDirectory() as scratch, running() as server:
        parts_of = {_text(parts): parts for parts in [*single, *pairs]}
        folder = Path(scratch)
        names = await _stocked(sets, folder)
        for data, planned in product(("pile", "several"), (False, True)):
            name = f"{data}, {'planned' if planned else 'not planned'}"
            search = {"stages": [PLANNER] if planned else []}
            server.script = [_planning(parts_of, names_collections=data == "several")]
            settings = Settings(
                data=folder / data, chat=chats.settings(server), search=SearchSettings.model_validate(search)
            )
            async with Desk.open(settings) as desk:
                hits = {_text(parts): await _found(desk, _text(parts), names) for parts in [*single, *pairs]}
            gains = [ndcg(hits[_text(parts)], _grades(*parts), 10) for parts in single]
            shares = [_share_with_both(pairs, hits, most=places) for places in (8, 4)]
            click.echo(f"{name}: nDCG@10 {fmean(gains):.3f}; pairs {shares[0]:.2f}, {shares[1]:.2f}")


def _pair(of_each: Sequence[Sequence[Part]], chance: random.Random) -> tuple[Part, ...]:
    """Two questions, from two sets if there are several."""
    if len(of_each) == 1:
        return tuple(chance.sample(of_each[0], 2))
    return tuple(map(chance.choice, chance.sample(of_each, 2)))


def _share_with_both(
    pairs: Sequence[tuple[Part, ...]], ids: Mapping[str, Sequence[str]], *, most: int
) -> float:
    """The share of pairs with a document that answers each question among the first ones."""
    return fmean(
        all(not _grades(part).keys().isdisjoint(ids[_text(parts)][:most]) for part in parts)
        for parts in pairs
    )


def _text(parts: Sequence[Part]) -> str:
    return " ".join(question.text.strip() for _, question in parts)


def _grades(part: Part) -> dict[str, int]:
    """The relevant documents of a question, named with their collection."""
    collection, question = part
    return {f"{collection} {name}": grade for name, grade in question.documents.items()}


def _planning(parts_of: Mapping[str, Sequence[Part]], *, names_collections: bool) -> Behaviour:
    """A model that names each question, and perhaps the collection that answers it."""

    def reply(request: dict[str, Any]) -> Reply:
        question = json.loads(request["messages"][-1]["content"])["question"]
        planned = [
            {
                "query": part.text.strip(),
                "collections": [name] if names_collections else [],
                "conditions": [],
                "weight": 1.0,
                "reason": "told",
            }
            for name, part in parts_of[question]
        ]
        return chats.saying({"queries": planned})(request)

    return reply


async def _stocked(sets: Sequence[JudgedSet], folder: Path) -> dict[str, str]:
    """Ingest all sets as one pile and as collections. Returns the documents' names, by their URIs."""
    names = {}
    async with open_embedder(Settings().embedder, {}) as embedder:
        for judged_set in sets:
            files = folder / judged_set.name
            for document in judged_set.documents:
                file = files / document.filename
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(document.content, encoding="utf-8")
                names[file.as_uri()] = f"{judged_set.name} {document.name}"
            await ingested(folder / "pile", files, embedder=embedder)
            await ingested(folder / "several", files, collection=judged_set.name, embedder=embedder)
    return names


async def _found(desk: Desk, text: str, names: Mapping[str, str]) -> list[str]:
    """The names of the documents found, best first, each once."""
    return list(dict.fromkeys(names[hit.source.uri] for hit in (await desk.search(ME, text)).hits))


if __name__ == "__main__":
    routing()
