"""Documents made of the demo corpus's sentences, and the questions."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

from rag.ingest.parse.parsers import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy as np

SHORTEST = 40  # characters of a sentence that counts
SENTENCES, SECTION = 140, 20  # sentences per document and per section: about 27 chunks a document
SEED = 7

QUESTIONS = (
    "who sold the time in London?",
    "leap second 2016",
    "how do quartz oscillators drift",
    "what does a falseticker do",
    "the date line and the missing day",
    "Harrison's fourth timekeeper",
    "why ten days were dropped",
    "GPS week rollover",
    "who built the first caesium clock?",
    "What is the difference between UTC and TAI?",
    "sand glass on ships",
    "how did monks know when to pray",
    "when did railways agree on one time?",
    "network time protocol offset",
    "gnomon",
    "the error of the Julian calendar",
    "what happens to computers in 2038?",
    "how accurate is an optical lattice clock compared with a caesium fountain?",
    "who invented the pendulum clock",
    "how is the date of Easter computed",
    "why do clocks go forward in spring",
    "how far is a nautical mile of longitude at the equator",
    "ISO 8601 week numbers",
    "what is the equation of time",
    "relativity and satellites",
    "How slow was the watch when it reached Jamaica?",
    "a public clock with an extra hand",
    "smearing a second over a day",
    "does the Earth turn more slowly than it did?",
    "water clocks that ring a bell",
    "anchor escapement",
    "the Board of Longitude and its prize money",
)


def sentences(corpus: Path) -> tuple[str, ...]:
    """The distinct sentences of the files in a folder, in order. Subfolders are skipped.

    An installed copy of the demo corpus has a `__pycache__`: installers compile its Python file.
    """
    files = sorted(path for path in corpus.iterdir() if path.is_file())
    documents = [parse(path.read_bytes(), path.name) for path in files]
    texts = [
        document.text[block.start : block.end]
        for document in documents
        for block in document.blocks
        if block.kind in {"paragraph", "list"}
    ]
    split_sentences = [
        " ".join(sentence.split()) for text in texts for sentence in re.split(r"(?<=[.!?])\s+", text)
    ]
    return tuple(dict.fromkeys(sentence for sentence in split_sentences if len(sentence) >= SHORTEST))


HEAPS_K, HEAPS_B = 44, 0.49
"""Distinct words of a text of n words: K n^B. Of RCV1: Manning, Raghavan & Schütze 2008, section 5.1.1."""
REPEATED = 6  # words of a chunk that are added ones of before
_SYLLABLES = [first + vowel for first in "bcdfghjklmnprstvwyzx" for vowel in "aeiou"]


class GrowingVocabulary:
    """Puts new words into texts, so that the number of distinct words grows as Heaps' law says.

    However many chunks a few thousand sentences are mixed into, they have the same words, and an index of
    these is as small for a million as for ten thousand. An added word comes again the more often, the more
    often it has come (Simon 1955), so about half of them stand in one place.
    """

    def __init__(self, sentences: Iterable[str], chance: np.random.Generator) -> None:
        self._chance = chance
        self._distinct = len({word.strip(".,;:()") for sentence in sentences for word in sentence.split()})
        self._added = 0
        self._uses: list[str] = []
        self._words = 0

    def grown(self, text: str) -> str:
        """The text with some of its plain words replaced; as many words as before."""
        words = text.split(" ")
        self._words += len(words)
        due = max(0, int(HEAPS_K * self._words**HEAPS_B) - self._distinct - self._added)
        new = [made_up_word(self._added + number) for number in range(due)]
        repeats = self._chance.integers(0, len(self._uses), REPEATED).tolist() if self._uses else []
        added = [*new, *(self._uses[at] for at in repeats)]
        plain = [at for at, word in enumerate(words) if word.isalpha()]
        places = self._chance.permutation(plain)[: len(added)]
        for at, word in zip(places.tolist(), added, strict=False):
            words[at] = word
            self._uses.append(word)
        self._added += min(len(new), len(places))
        return " ".join(words)


def made_up_word(number: int) -> str:
    """A word of three syllables or more that no other number has. Example: 0 -> "bebaba", 7 -> "bebaci"."""
    number += len(_SYLLABLES) ** 2
    syllables = []
    while number:
        number, at = divmod(number, len(_SYLLABLES))
        syllables.append(_SYLLABLES[at])
    return "".join(reversed(syllables))


def write_documents(folder: Path, sentences: Sequence[str], count: int) -> None:
    """Write `count` Markdown files of these sentences into a new folder, the same every time."""
    chance = random.Random(SEED)  # noqa: S311 repeatable, not secret
    folder.mkdir()
    for number in range(count):
        parts = [
            f"## Part {part}\n\n" + " ".join(chance.choices(sentences, k=SECTION))
            for part in range(SENTENCES // SECTION)
        ]
        text = f"# Document {number}\n\n" + "\n\n".join(parts)
        (folder / f"{number:04}.md").write_text(text, encoding="utf-8")
