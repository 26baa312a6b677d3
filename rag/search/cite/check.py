"""An answer held against the desk: what it cites that can be read, and what it quotes that stands there.

checked = await check_answer(desk, Principal("default"), 'It "swings" [mfzq2k7d/3].')
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from rag.errors import NotFoundError
from rag.search.cite.parse import holds, parse_answer
from rag.uris import parse_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rag.answers import Extract
    from rag.corpus import Chunk, Principal, Source
    from rag.search.cite.parse import Quote
    from rag.search.desk import Desk

Verdict: TypeAlias = Literal["verbatim", "elsewhere", "not found", "unchecked"]
BETWEEN = "\0"  # passages that are apart; no text holds it


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A citation with the passage that it names, if the principal may read one of this id."""

    id: str
    source: Source | None = None
    chunk: Chunk | None = None

    @property
    def readable(self) -> bool:
        """False for unknown, foreign, denied and deleted alike."""
        return self.chunk is not None


@dataclass(frozen=True, slots=True)
class CheckedQuote:
    """A quote: `verbatim` in the passages that it cites, taken together, or `elsewhere` in their sources.

    `found` has, for the latter, the ids of the passages that hold it; of the source where they are many.
    A quote that cites nothing is `unchecked`.
    """

    text: str
    cited: tuple[str, ...]
    verdict: Verdict
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """What became of each citation and each quote, in the order of the answer."""

    citations: tuple[CheckedCitation, ...]
    quotes: tuple[CheckedQuote, ...]

    @property
    def holds(self) -> bool:
        """Whether all citations are readable, and all quotes that cite something are verbatim."""
        return all(one.readable for one in self.citations) and all(
            one.verdict in {"verbatim", "unchecked"} for one in self.quotes
        )


async def check_answer(desk: Desk, principal: Principal, text: str) -> CheckedAnswer:
    """Check the citations and quotes of an answer as this principal would, who could look them up.

    `rag.search.cite.parse` says what is a citation and what a quote.

    Raises:
        BusyError: a source was replaced as often as it was read.
        StoreError: the storage failed.
    """
    parsed = parse_answer(text)
    ids = dict.fromkeys(map(_source_id, parsed.citations))
    opened = {id_: extract for id_ in ids if (extract := await _opened(desk, principal, id_))}
    return CheckedAnswer(
        tuple(_citation(id_, opened.get(_source_id(id_))) for id_ in parsed.citations),
        tuple(_quote(quote, opened) for quote in parsed.quotes),
    )


def _source_id(id_: str) -> str:
    return id_.partition("/")[0]


async def _opened(desk: Desk, principal: Principal, source_id: str) -> Extract | None:
    """The whole source."""
    try:
        return await desk.extract(principal, parse_id(source_id), max_chars=sys.maxsize)
    except NotFoundError:
        return None


def _citation(id_: str, extract: Extract | None) -> CheckedCitation:
    chunk = next((one for one in extract.chunks if one.id == id_), None) if extract else None
    return CheckedCitation(id_, extract.source, chunk) if extract and chunk else CheckedCitation(id_)


def _quote(quote: Quote, opened: Mapping[str, Extract]) -> CheckedQuote:
    if not quote.cited:
        return CheckedQuote(quote.text, (), "unchecked")
    sources = [opened[id_] for id_ in dict.fromkeys(map(_source_id, quote.cited)) if id_ in opened]
    passages = [passage for extract in sources for passage in _passages(extract, quote.cited)]
    if holds(BETWEEN.join(passages), quote.text):
        return CheckedQuote(quote.text, quote.cited, "verbatim")
    for extract in sources:
        if holds(extract.text, quote.text):
            return CheckedQuote(quote.text, quote.cited, "elsewhere", _place(extract, quote.text))
    return CheckedQuote(quote.text, quote.cited, "not found")


def _passages(extract: Extract, cited: Sequence[str]) -> Iterator[str]:
    """The cited passages of a source; those that follow each other as one."""
    for is_cited, chunks in groupby(extract.chunks, lambda chunk: chunk.id in cited):
        if is_cited:
            yield _stretch(extract, list(chunks))


def _place(extract: Extract, quote: str) -> tuple[str, ...]:
    """The first passage that holds the quote, or else the first two together, or else the source."""
    for size in (1, 2):
        for first in range(len(extract.chunks) - size + 1):
            chunks = extract.chunks[first : first + size]
            if holds(_stretch(extract, chunks), quote):
                return tuple(chunk.id for chunk in chunks)
    return (extract.source.id,)


def _stretch(extract: Extract, chunks: Sequence[Chunk]) -> str:
    """The text from the first chunk to the last."""
    return extract.text[chunks[0].start : chunks[-1].end]
