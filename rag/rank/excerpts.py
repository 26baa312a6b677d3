"""The sentences of a passage that answer a query, word for word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.text import Span, sentences, words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from collections.abc import Set as AbstractSet

SHORTEST_STEM = 4  # letters that two forms of a word must share
LONGEST_ENDING = 3  # letters of a form that the stem may lack


def excerpts(
    text: str,
    terms: Sequence[str],
    similarities: Sequence[float],
    *,
    threshold: float = 0.5,
    share: float = 1.0,
    max_chars: int | None = None,
) -> tuple[Span, ...]:
    """The slices of `text` worth keeping for a query, in order; none if no sentence is.

    A sentence is worth it that has one of `terms` (without stop words: that is the caller's) or whose
    similarity is at least `threshold`; `similarities` are cosines to the query, one for each of
    `sentences(text)`. The best come first, by the share of terms that they have plus their similarity,
    as long as all slices together have at most `share` of the text's characters and at most `max_chars`.
    The very best stays whole however long it is. Neighbors become one slice.
    Example: "Clocks err. Cats sleep. A clock ticks.", ["clock"], [0, 0, 0] -> ((0, 11), (24, 38)).

    Raises:
        ValueError: there are not as many similarities as sentences.
    """
    spans = sentences(text)
    carried = _shares_carried(terms, [set(words(text[slice(*span)])) for span in spans])
    worth = {
        place: found + similarity
        for place, (found, similarity) in enumerate(zip(carried, similarities, strict=True))
        if found or similarity >= threshold
    }
    room = int(share * len(text)) if max_chars is None else min(int(share * len(text)), max_chars)
    best_first = sorted(worth, key=lambda place: -worth[place])
    return _merged(spans, _chosen(spans, best_first, room))


def _shares_carried(terms: Iterable[str], said: Sequence[AbstractSet[str]]) -> list[float]:
    """The share of the terms that each sentence has; of a term, all its words in any form."""
    there = frozenset[str]().union(*said)
    wanted = [[_forms(word, there) for word in words(term)] for term in terms if words(term)]
    return [
        sum(not any(forms.isdisjoint(has) for forms in term) for term in wanted) / max(1, len(wanted))
        for has in said
    ]


def _forms(word: str, there: AbstractSet[str]) -> set[str]:
    """Those of the words that are there that can be forms of `word`: alike but for short endings."""
    return {
        one
        for one in there
        if one[:SHORTEST_STEM] == word[:SHORTEST_STEM]
        and one[: (stem := max(len(one), len(word)) - LONGEST_ENDING)] == word[:stem]
    }


def _chosen(spans: Sequence[Span], best_first: Iterable[int], room: int) -> set[int]:
    chosen: set[int] = set()
    for place in best_first:
        needed = _growth(spans, chosen, place)
        if not chosen or needed <= room:
            chosen.add(place)
            room -= needed
    return chosen


def _growth(spans: Sequence[Span], chosen: Collection[int], place: int) -> int:
    """By how many characters the slices grow with one more sentence and the blanks to its neighbors."""
    start = spans[place - 1].end if place - 1 in chosen else spans[place].start
    end = spans[place + 1].start if place + 1 in chosen else spans[place].end
    return end - start


def _merged(spans: Sequence[Span], chosen: Collection[int]) -> tuple[Span, ...]:
    firsts = [place for place in sorted(chosen) if place - 1 not in chosen]
    lasts = [place for place in sorted(chosen) if place + 1 not in chosen]
    return tuple(Span(spans[first].start, spans[last].end) for first, last in zip(firsts, lasts, strict=True))
