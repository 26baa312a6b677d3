"""The sentences of a passage that are relevant to a query, verbatim, and the one that answers it.

Extractive compression keeps the relevant ones. The answering sentence is found by the words that it shares
with the query.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise
from math import log

from rag.text.plain_text import Span, sentences, words

SHORTEST_STEM = 4  # common letters of two forms of a word
LONGEST_ENDING = 3  # letters at the end in which forms may differ
ALIKE = 0.5  # the least similarity to the query of a sentence that shares no word with it


def excerpts(text: str, terms: Sequence[str], similarities: Sequence[float]) -> tuple[Span, ...]:
    """The slices of `text` that are relevant to a query, in order; none if no sentence is relevant.

    A sentence is relevant if it contains one of `terms` (the caller removes stop words) or its similarity is
    at least `ALIKE`. `similarities` are cosines to the query, one for each of `sentences(text)`. Adjacent
    sentences become one slice.
    Example: "Clocks err. Cats sleep. A clock ticks.", ["clock"], [0, 0, 0] -> ((0, 11), (24, 38)).

    Raises:
        ValueError: the numbers of similarities and sentences differ.
    """
    spans = sentences(text)
    has_term = _have_term(terms, [set(words(text[slice(*span)])) for span in spans])
    relevant = {
        index
        for index, (has, similarity) in enumerate(zip(has_term, similarities, strict=True))
        if has or similarity >= ALIKE
    }
    return _merged_spans(spans, relevant)


def _have_term(terms: Iterable[str], sentence_words: Sequence[AbstractSet[str]]) -> list[bool]:
    """Whether each sentence has one of the terms: all its words, in any form."""
    vocabulary = frozenset[str]().union(*sentence_words)
    term_forms = [[forms(word, vocabulary) for word in words(term)] for term in terms if words(term)]
    return [
        any(not any(forms.isdisjoint(has) for forms in term) for term in term_forms) for has in sentence_words
    ]


def forms(word: str, vocabulary: AbstractSet[str]) -> set[str]:
    """The words in the vocabulary that may be forms of `word`: equal except for short endings."""
    return {
        candidate
        for candidate in vocabulary
        if candidate[:SHORTEST_STEM] == word[:SHORTEST_STEM]
        and candidate[: (stem := max(len(candidate), len(word)) - LONGEST_ENDING)] == word[:stem]
    }


def _merged_spans(spans: Sequence[Span], chosen: Collection[int]) -> tuple[Span, ...]:
    firsts = [index for index in sorted(chosen) if index - 1 not in chosen]
    lasts = [index for index in sorted(chosen) if index + 1 not in chosen]
    return tuple(Span(spans[first].start, spans[last].end) for first, last in zip(firsts, lasts, strict=True))


_UNSPACED = "\u3040"  # words of Chinese and Japanese are single characters from here on
_CLOSERS = "\"'”’»)]*_"
HEADING_CHARS = 80
MOST_INTRODUCTIONS = 3  # a chapter's heading, a section's and a question; more are a list of short lines
_HEADING = re.compile(r"(?![-*+•|>\d]*[\s|])[^\n]*[^\n.!。！…;,]")
"""A heading of an office document: not an item or row, and it does not end as sentences do."""
_ALONE = re.compile(r"[^\S\n]*\n[^\S\n]*\n")  # a blank line follows


def statements(text: str) -> list[Span]:
    """The sentences of `text`; a heading, a question or an introduction is one with the next sentence.

    It may have the words of a query, but the answer follows it.
    Example: "Intro. Where to park? Behind the house." -> "Intro.", "Where to park? Behind the house."
    """
    joined: list[Span] = []
    introductions = 0
    for start, end in sentences(text):
        is_introduced = 0 < introductions <= MOST_INTRODUCTIONS
        joined.append(Span(joined.pop().start if is_introduced else start, end))
        introductions = introductions + 1 if _introduces(text, start, end) else 0
    return joined


def _introduces(text: str, start: int, end: int) -> bool:
    sentence = text[start:end]
    return (
        sentence.startswith("#")
        or sentence.rstrip(_CLOSERS).endswith(("?", "？", ":", "："))
        or bool(len(sentence) <= HEADING_CHARS and _HEADING.fullmatch(sentence) and _ALONE.match(text, end))
    )


def shared_rarity(parts: Sequence[str], terms: Sequence[str]) -> list[float]:
    """For each of `parts` how many words of `terms` it shares; a word counts more the fewer parts have it.

    Words match in any form, as in `rag.rank.excerpts`. Chinese and Japanese match by pairs of characters.
    Example: ["Clocks err.", "Cats err."], ["clock", "err"] -> [log 3 + log 2, log 2].
    """
    has = [_units(part) for part in parts]
    vocabulary = frozenset[str]().union(*has)
    units = {unit for term in terms for unit in _units(term)}
    forms_of = [_forms(unit, vocabulary) for unit in sorted(units)]
    holding = [[not unit_forms.isdisjoint(units) for units in has] for unit_forms in forms_of]
    weights = [log(1 + len(parts) / sum(holders)) if any(holders) else 0.0 for holders in holding]
    return [
        sum(weight for weight, holders in zip(weights, holding, strict=True) if holders[index])
        for index in range(len(parts))
    ]


def _units(text: str) -> set[str]:
    """The words of a text, and of Chinese and Japanese the pairs of adjacent characters."""
    tokens = words(text)
    spaced = {word for word in tokens if word < _UNSPACED or len(word) > 1}
    return spaced | {a + b for a, b in pairwise(tokens) if len(a) == len(b) == 1 and min(a, b) >= _UNSPACED}


def _forms(unit: str, vocabulary: frozenset[str]) -> set[str]:
    return {unit} & vocabulary if unit >= _UNSPACED else forms(unit, vocabulary)
