"""Many small ingestions, with texts among them that have no words, and a search after each.

    python -m tests.soak.small --rounds 500

Full-text indexes are merged while a collection grows, and texts without words can break such a merge: nobody
finds them, or the words of others. Each round adds, changes or removes documents, and asks for a word that
only one of them has, for one of an earlier round, and for one that is gone.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Principal
from rag.search.desk import Desk
from rag.store.read.desk_reader import DeskReader
from tests.small_desk import BagOfWords, ingested

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.answers import Mode

WORDLESS = (
    "!!! ??? ...",
    "—",
    "\u200b\u200b x",
    "🙂🙂",
    "| | |\n|---|---|\n| . | . |",
    "* * *",
    "0",
    "\u0301\u0302",
)
MODES: tuple[Mode, ...] = ("sparse", "hybrid")


async def soak(folder: Path, rounds: int, seed: int = 1) -> list[str]:
    """What went wrong."""
    chance, docs, wrong = random.Random(seed), folder / "docs", list[str]()  # noqa: S311 repeatable, not secret
    docs.mkdir()
    words: dict[str, str] = {}
    for number in range(rounds):
        for at, text in enumerate(chance.sample(WORDLESS, chance.randint(0, 3))):
            (docs / f"empty-{number}-{at}.md").write_text(f"{text}\n")
        word, gone = f"astrolabe{number}", ""
        name = chance.choice([*words, f"{number}.md"]) if number % 3 == 0 else f"{number}.md"
        gone = words.get(name, "")
        if number % 5 == 4:
            gone = words.pop(old := chance.choice([*words]))
            (docs / old).unlink()
        words[name] = word
        (docs / name).write_text(
            f"# {word}\n\nThe {word} of round {number}.\n" + "More words. " * (number % 40)
        )
        report = await ingested(folder / "data", docs)
        if not report.complete:
            wrong.append(f"round {number}: {report.counts}")
        wrong += [
            f"round {number}: {fault}" for fault in await _missed(folder / "data", words, word, gone, chance)
        ]
    return wrong


async def _missed(
    data: Path, words: dict[str, str], word: str, gone: str, chance: random.Random
) -> Sequence[str]:
    desk = Desk(DeskReader(data, timeout_seconds=60), BagOfWords(), SearchSettings())
    missed = []
    for mode in MODES:
        for title in {word, chance.choice([*words.values()])}:
            answer = await desk.search(Principal("default"), SearchRequest(title, mode=mode, limit=5))
            if title not in {hit.source.title for hit in answer.hits}:
                missed.append(f"{mode} doesn't find {title}")
        if gone:
            answer = await desk.search(Principal("default"), SearchRequest(gone, mode=mode, limit=5))
            if gone in {hit.source.title for hit in answer.hits}:
                missed.append(f"{mode} finds {gone}, which is gone")
    return missed


def main() -> None:
    """Run it; exit with 1 if anything is wrong."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rounds", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    flags = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        wrong = anyio.run(soak, Path(name), flags.rounds, flags.seed)
    print("\n".join([*wrong, f"{flags.rounds} rounds, {len(wrong)} wrong"]))  # noqa: T201 a command
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
