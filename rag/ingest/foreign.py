"""The parts of a document that an embedder doesn't know: in languages that its vocabulary wasn't made for."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from rag.ingest.split import LINES, parts
from rag.text.segments import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rag.corpus import Document

    Known = Callable[[str], float]

KNOWN = 0.3  # of a text; Latin scripts .4 and more by `Embedder.known`, others .15 and less
REGION = 400  # characters of words that are judged together, so that a chapter is told apart
LEAST = 40  # characters of words; fewer say nothing of their language

_ASCII = re.compile(r"[!-~]+")
_NO_WORD = re.compile(r"[\d_@/\\=<>{}|#$%^*+~\[\]]")


def words_in(text: str) -> str:
    """The words of a text: without numbers, addresses, identifiers and other signs of no language.

    Example: "Restart nginx_2 (see https://a.b): теперь 5 раз" -> "Restart (see теперь раз".
    """
    return " ".join(_ASCII.sub(lambda run: " " if _NO_WORD.search(run[0]) else run[0], text).split())


class _Region(NamedTuple):
    span: Span
    foreign: bool | None
    """None if it has too few words to tell."""


def foreign_parts(document: Document, known: Known) -> list[Span]:
    """The parts of a document that an embedder doesn't know, in order. `known` is that of the embedder.

    Code isn't foreign. What has few words is like what follows it, and at the end like what is before it.
    """
    if document.text.isascii():
        return []  # in any language written so, the units of a text are its tokens
    regions = [*_regions(document, known)]
    following: bool | None = None
    told: list[bool | None] = []
    for region in reversed(regions):
        following = region.foreign if region.foreign is not None else following
        told.append(following)
    told.reverse()
    last = next((one for one in reversed(told) if one is not None), False)
    pairs = zip(regions, told, strict=True)
    runs = groupby(pairs, key=lambda pair: last if pair[1] is None else pair[1])
    return [
        Span(run[0][0].span.start, run[-1][0].span.end)
        for foreign, run in ((foreign, [*group]) for foreign, group in runs)
        if foreign
    ]


def _regions(document: Document, known: Known) -> Iterator[_Region]:
    text = document.text
    begun: list[Span] = []
    words: list[str] = []

    def judged() -> Iterator[_Region]:
        if begun:
            joined = " ".join(words)
            foreign = known(joined) < KNOWN if len(joined) >= LEAST else None
            yield _Region(Span(begun[0].start, begun[-1].end), foreign)
            begun.clear()
            words.clear()

    for block in document.blocks:
        span = Span(block.start, block.end)
        if block.kind == "code":
            yield from judged()
            yield _Region(span, foreign=False)
            continue
        for line in parts(text, span, LINES):
            begun.append(line)
            words.append(words_in(text[slice(*line)]))
            if sum(map(len, words)) >= REGION:
                yield from judged()
        if sum(map(len, words)) >= LEAST:
            yield from judged()
    yield from judged()


def is_within(foreign: Iterable[Span], span: tuple[int, int]) -> bool:
    """Whether a slice lies within one of these parts."""
    start, end = span
    return any(one.start <= start and end <= one.end for one in foreign)
