"""How often the right document comes first for what is written in it: `python -m tests.evaluate.exact PATH…`.

A path is a folder of Markdown files, or of a published set (corpus.jsonl). Takes 100 questions from the
texts: flags, codes, names and phrases, each written in one document only. Asks them in mode exact, in mode
hybrid as they are, and in mode hybrid in quotation marks, and prints the recall at 1.
"""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections import defaultdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click

from rag.config.model_settings import EmbedderSettings
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.models.embed import open_embedder
from rag.search.desk import Desk
from tests.small_desk import ingested

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ME = Principal("default")
QUESTIONS = 100  # shared out among the kinds as evenly as the texts allow
MOST = 1_000_000
KINDS = {
    "flags": re.compile(r"(?<![\w-])--[a-z][a-z0-9-]{3,}(?![\w-])"),
    "codes": re.compile(
        r"\b(?:[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|[A-Z][A-Za-z]+(?:Error|Exception)|[a-z]+_error)\b"
    ),
    "names": re.compile(r"\b(?:[a-z]+(?:_[a-z0-9]+)+|[a-z]+[A-Z][A-Za-z0-9]{3,})\b"),
    "phrases": re.compile(r"\b[a-z]{3,} [a-z]{2,} [a-z]{2,} [a-z]{3,}\b"),
}
WAYS: Mapping[str, tuple[str, str]] = {
    "exact": ("exact", "{}"),
    "hybrid": ("hybrid", "{}"),
    "hybrid, quoted": ("hybrid", '"{}"'),
}


@click.command(help=__doc__)
@click.argument("paths", type=click.Path(path_type=Path, exists=True), nargs=-1, required=True)
def exact(paths: tuple[Path, ...]) -> None:
    """Measure and print."""
    anyio.run(_measured, paths)


async def _measured(paths: Iterable[Path]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder, data = Path(scratch, "documents"), Path(scratch, "data")
        _write(folder, (text for path in paths for text in _texts(path)))
        async with open_embedder(EmbedderSettings(), {}) as embedder:
            await ingested(data, folder, embedder=embedder)
        async with Desk.open(Settings(data=data)) as desk:
            questions = await _questions(desk)
            click.echo(f"{'':16}" + "".join(f"{f'{kind} ({len(of)})':>14}" for kind, of in questions.items()))
            for way in WAYS:
                shares = [await _share(desk, of, way) for of in questions.values()]
                click.echo(f"{way:16}" + "".join(f"{share:14.0%}" for share in shares))


def _write(folder: Path, texts: Iterable[str]) -> None:
    folder.mkdir()
    for number, text in enumerate(texts):
        Path(folder, f"{number:05}.md").write_text(text)


def _texts(path: Path) -> Iterable[str]:
    corpus = path / "corpus.jsonl"
    if corpus.exists():
        for line in corpus.read_text().splitlines():
            document = json.loads(line)
            yield f"# {document.get('title', '')}\n\n{document['text']}"
    else:
        yield from (file.read_text() for file in sorted(path.rglob("*.md")))


async def _questions(desk: Desk) -> dict[str, dict[str, str]]:
    """For each kind, what is written in one document only, with that document's id."""
    texts = {}
    for source in await desk.sources(ME, after=("", ""), limit=MOST):
        texts[source.id] = (await desk.extract(ME, source.id, max_chars=MOST)).text
    chance = random.Random(1)  # noqa: S311 the same questions each time
    questions: dict[str, dict[str, str]] = {}
    for number, (kind, pattern) in enumerate(KINDS.items()):
        where: dict[str, set[str]] = defaultdict(set)
        for id_, text in texts.items():
            for written in pattern.findall(text):
                where[written].add(id_)
        rare = sorted(written for written, ids in where.items() if len(ids) == 1)
        chance.shuffle(rare)
        folded = {id_: text.casefold() for id_, text in texts.items()}
        single = (term for term in rare if sum(term.casefold() in text for text in folded.values()) == 1)
        most = (QUESTIONS - sum(map(len, questions.values()))) // (len(KINDS) - number)
        questions[kind] = {term: next(iter(where[term])) for term in islice(single, most)}
    return questions


async def _share(desk: Desk, questions: Mapping[str, str], way: str) -> float:
    """The share of the questions whose document comes first."""
    mode, written = WAYS[way]
    right = 0
    for question, id_ in questions.items():
        answer = await desk.search(ME, written.format(question), mode=mode, limit=1)  # type: ignore[arg-type]
        right += [hit.source.id for hit in answer.hits] == [id_]
    return right / max(1, len(questions))


if __name__ == "__main__":
    exact()
