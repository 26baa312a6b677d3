"""The one sentence of a passage that answers a query, by the words that they share."""

from __future__ import annotations

from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from rag.rank.excerpts import forms
from rag.text import Span, sentences, words

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNSPACED = "\u3040"  # words of Chinese and Japanese are single characters from here on
_CLOSERS = "\"'”’»)]*_"


def statements(text: str) -> list[Span]:
    """The sentences of `text`, where a heading, a question or an introduction has the next sentence with it.

    Such a sentence has the words of a query, but the answer is behind it.
    Example: "Intro. Where to park? Behind the house." -> "Intro.", "Where to park? Behind the house."
    """
    joined: list[Span] = []
    introduces = False
    for start, end in sentences(text):
        joined.append(Span(joined.pop().start if introduces else start, end))
        introduces = _introduces(text[start:end])
    return joined


def _introduces(sentence: str) -> bool:
    return sentence.startswith("#") or sentence.rstrip(_CLOSERS).endswith(("?", "？", ":", "："))


def shared_rarity(parts: Sequence[str], terms: Sequence[str]) -> list[float]:
    """For each of `parts` how many words of `terms` it shares; a word counts more the fewer parts have it.

    Words match in any form, as in `rag.rank.excerpts`. Chinese and Japanese match by pairs of characters.
    Example: ["Clocks err.", "Cats err."], ["clock", "err"] -> [log 3 + log 2, log 2].
    """
    has = [_units(part) for part in parts]
    vocabulary = frozenset[str]().union(*has)
    wanted = {unit for term in terms for unit in _units(term)}
    found = [_forms(unit, vocabulary) for unit in sorted(wanted)]
    holding = [[not one.isdisjoint(units) for units in has] for one in found]
    weights = [log(1 + len(parts) / sum(one)) if any(one) else 0.0 for one in holding]
    return [
        sum(weight for weight, one in zip(weights, holding, strict=True) if one[index])
        for index in range(len(parts))
    ]


def _units(text: str) -> set[str]:
    """The words of a text, and of Chinese and Japanese the pairs of adjacent characters."""
    found = words(text)
    spaced = {word for word in found if word < _UNSPACED or len(word) > 1}
    return spaced | {a + b for a, b in pairwise(found) if len(a) == len(b) == 1 and min(a, b) >= _UNSPACED}


def _forms(unit: str, vocabulary: frozenset[str]) -> set[str]:
    return {unit} & vocabulary if unit >= _UNSPACED else forms(unit, vocabulary)
