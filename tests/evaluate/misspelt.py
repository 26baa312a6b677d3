"""What a misspelt word costs, for developers: `python -m tests.evaluate.misspelt SET [--asked-in OTHER_SET]`.

Asks the questions of a set as they are, with one word misspelt, and their two longest words alone, as they
are and with one misspelt: each without other spellings and with them. `--asked-in` asks the questions of
another set with the same numbers, in another language. Prints nDCG@10 in modes sparse and hybrid, how many
questions have a note on spellings, and how many the note that nothing seems to answer.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import anyio
import click

from rag.answers import Mode, SearchRequest
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.evaluate.evaluation import prepare_fresh
from rag.evaluate.judged_sets import read_set
from rag.evaluate.ranking_metrics import ndcg
from rag.ingest.report import Progress
from rag.search.desk import Desk
from rag.search.stages.thresholds import UNGROUNDED
from rag.store.read import strict_reader
from rag.store.read.spelling import MOST_UNKNOWN, SHORTEST
from rag.store.read.word_analysis import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.evaluate.judgements import ResolvedQuestion

ME = Principal("default")
MODES: tuple[Mode, ...] = ("sparse", "hybrid")
LETTERS, VOWELS = "abcdefghijklmnopqrstuvwxyz", "aeiou"
ANY_STOP_WORDS = frozenset[str]().union(*STOP_WORDS.values())
RESPELLING = "searched for"  # in the note


@click.command(help=__doc__)
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--asked-in", type=click.Path(path_type=Path), help="A set with the same questions.")
@click.option("--model", default="", help="A built-in model; by default the one that fits the documents.")
@click.option("--most", default=2000, help="Questions of the set.")
def misspelt(path: Path, asked_in: Path | None, model: str, most: int) -> None:
    """Measure and print."""
    anyio.run(_measured, path, asked_in, model, most)


async def _measured(path: Path, asked_in: Path | None, model: str, most: int) -> None:
    settings = Settings.model_validate({"embedder": {"model": model}} if model else {})
    texts = {question.id: question.text for question in read_set(asked_in or path).questions}
    async with (
        prepare_fresh(read_set(path), settings, {}, language=None, progress=Progress()) as room,
        Desk.open(room.settings) as desk,
    ):
        questions = random.Random(1).sample(room.questions, min(most, len(room.questions)))  # noqa: S311 the same
        await desk.search(ME, SearchRequest("first", mode="sparse"))
        await anyio.sleep(5)  # until rows are in memory
        for kind, queries in _kinds(
            {question.question.id: texts[question.question.id] for question in questions}
        ).items():
            for mode in MODES:
                for most_unknown in (-1, MOST_UNKNOWN):
                    vars(strict_reader)["MOST_UNKNOWN"] = most_unknown
                    click.echo(
                        f"{kind}, {mode}, {most_unknown}: {await _asked(desk, questions, queries, mode)}"
                    )


def _kinds(texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    draw = random.Random(11)  # noqa: S311 the same each time
    short = {id_: " ".join(sorted(_long_words(text), key=len)[-2:]) for id_, text in texts.items()}
    return {
        "questions": {**texts},
        "misspelt": {id_: misspell(text, draw) for id_, text in texts.items()},
        "two words": short,
        "one of two misspelt": {id_: misspell(text, draw) for id_, text in short.items()},
    }


def _long_words(text: str) -> list[str]:
    words = re.findall(r"[^\W\d_]+", text)
    return [word for word in words if len(word) >= SHORTEST and word.casefold() not in ANY_STOP_WORDS]


def misspell(text: str, draw: random.Random) -> str:
    """The text with one of its longer words misspelt, if it has any."""
    words = _long_words(text)
    if not words:
        return text
    word = draw.choice(words)
    return text.replace(word, _misspelt(word.casefold(), draw), 1)


def _misspelt(word: str, draw: random.Random) -> str:
    """A word with two letters swapped, or one dropped, doubled or changed, often a vowel or the first."""
    at = draw.randrange(1, len(word) - 1)
    before, letter, after = word[:at], word[at], word[at + 1 :]
    vowels = [place for place, sign in enumerate(word) if place and sign in VOWELS] or [at]
    vowel = draw.choice(vowels)
    edits: list[str] = [
        before + after[0] + letter + after[1:],
        before + after,
        before + letter * 2 + after,
        before + draw.choice(LETTERS) + after,
        word[:vowel] + draw.choice(["", *VOWELS]) + word[vowel + 1 :],
        draw.choice(LETTERS) + word[1:],
    ]
    return draw.choice(edits)


async def _asked(
    desk: Desk, questions: Sequence[ResolvedQuestion], queries: Mapping[str, str], mode: Mode
) -> str:
    scores, respelt, weak = [], 0, 0
    for question in questions:
        answer = await desk.search(
            ME, SearchRequest(queries[question.question.id] or "the", mode=mode, limit=10)
        )
        scores.append(ndcg(question.ranking(answer.hits), question.grades, 10))
        respelt += any(RESPELLING in note for note in answer.notes)
        weak += UNGROUNDED in answer.notes
    return f"{fmean(scores):.4f}, {respelt} respelt, {weak} weak of {len(scores)}"


if __name__ == "__main__":
    misspelt()
