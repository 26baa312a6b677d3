"""Checks an answer against its documents: whether its citations are readable and its quotes verbatim.

checked = await check_answer(desk, Principal("default"), 'It "swings" [mfzq2k7d/3].')
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, TypeAlias

from rag.errors import NotFoundError
from rag.search.cite.parse import holds, parse_answer
from rag.search.cite.uncited import uncited
from rag.uris import parse_id, split_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rag.answers import Extract
    from rag.corpus import Chunk, Principal, Source
    from rag.search.cite.parse import Quote
    from rag.search.desk import Desk

Verdict: TypeAlias = Literal["verbatim", "elsewhere", "not found", "unchecked"]
BETWEEN = "\0"  # separates passages that don't follow each other; no text contains it


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A citation, and the passages that it names if the principal can read all of them."""

    id: str
    source: Source | None = None
    chunks: tuple[Chunk, ...] = ()

    @property
    def readable(self) -> bool:
        """False for an id that is unknown, another tenant's, denied or deleted: they look the same."""
        return bool(self.chunks)


@dataclass(frozen=True, slots=True)
class CheckedQuote:
    """A quote: `verbatim` in the passages that it cites, taken together, or `elsewhere` in their sources.

    If it is elsewhere, `found` has the ids of the passages that contain it, or of the source if they are more
    than two. A quote without a citation is `unchecked`.
    """

    text: str
    cited: tuple[str, ...]
    verdict: Verdict
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """The results for each citation and each quote, and the paragraphs without a citation, in order."""

    citations: tuple[CheckedCitation, ...]
    quotes: tuple[CheckedQuote, ...]
    uncited: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether all citations are readable, and all quotes that cite something are verbatim."""
        return all(one.readable for one in self.citations) and all(
            one.verdict in {"verbatim", "unchecked"} for one in self.quotes
        )

    @property
    def grounded(self) -> bool:
        """Whether it holds, and every paragraph and every quote has a citation; not true without any."""
        all_quotes = all(one.verdict == "verbatim" for one in self.quotes)
        return self.holds and bool(self.citations) and not self.uncited and all_quotes


async def check_answer(desk: Desk, principal: Principal, text: str) -> CheckedAnswer:
    """Check the citations and quotes of an answer with the access rights of this principal.

    `rag.search.cite.parse` defines what is a citation and what is a quote, and `rag.search.cite.uncited`
    which paragraphs need one.

    Raises:
        BusyError: a source was replaced during each attempt to read it.
        StoreError: the storage failed.
    """
    parsed = parse_answer(text)
    ids = dict.fromkeys(map(_source_id, parsed.citations))
    opened = {id_: extract for id_ in ids if (extract := await _opened(desk, principal, id_))}
    return CheckedAnswer(
        tuple(_citation(id_, opened.get(_source_id(id_))) for id_ in parsed.citations),
        tuple(_quote(quote, opened) for quote in parsed.quotes),
        uncited(text),
    )


def _source_id(id_: str) -> str:
    return id_.partition("/")[0]


async def _opened(desk: Desk, principal: Principal, source_id: str) -> Extract | None:
    """The whole source, None if it is not readable."""
    try:
        return await desk.extract(principal, parse_id(source_id), max_chars=sys.maxsize)
    except NotFoundError:
        return None


def _citation(id_: str, extract: Extract | None) -> CheckedCitation:
    chunks = _named(extract, id_) if extract else ()
    return CheckedCitation(id_, extract.source, chunks) if extract and chunks else CheckedCitation(id_)


def _named(extract: Extract, id_: str) -> tuple[Chunk, ...]:
    """The chunks of the source that an id names; none if it is not the source's, or one is not there."""
    with suppress(NotFoundError):
        source_id, seqs = split_id(id_)
        chunks = tuple(one for one in extract.chunks if one.seq in seqs)
        if source_id == extract.source.id and len(chunks) == len(seqs):
            return chunks
    return ()


def _quote(quote: Quote, opened: Mapping[str, Extract]) -> CheckedQuote:
    if not quote.cited:
        return CheckedQuote(quote.text, (), "unchecked")
    sources = [opened[id_] for id_ in dict.fromkeys(map(_source_id, quote.cited)) if id_ in opened]
    passages = [passage for extract in sources for passage in _passages(extract, quote.cited)]
    if holds(BETWEEN.join(passages), quote.text):
        return CheckedQuote(quote.text, quote.cited, "verbatim")
    for extract in sources:
        if holds(extract.text, quote.text):
            return CheckedQuote(quote.text, quote.cited, "elsewhere", _where(extract, quote.text))
    return CheckedQuote(quote.text, quote.cited, "not found")


def _passages(extract: Extract, cited: Sequence[str]) -> Iterator[str]:
    """The cited passages of a source. Passages that follow each other are one, as a quote may span them."""
    named = {chunk.seq for id_ in cited for chunk in _named(extract, id_)}
    for is_cited, chunks in groupby(extract.chunks, lambda chunk: chunk.seq in named):
        if is_cited:
            yield _text_of(extract, list(chunks))


def _where(extract: Extract, quote: str) -> tuple[str, ...]:
    """The ids of the first passage that contains the quote, else of the first two, else of the source."""
    for size in (1, 2):
        for first in range(len(extract.chunks) - size + 1):
            chunks = extract.chunks[first : first + size]
            if holds(_text_of(extract, chunks), quote):
                return tuple(chunk.id for chunk in chunks)
    return (extract.source.id,)


def _text_of(extract: Extract, chunks: Sequence[Chunk]) -> str:
    """The text from the first chunk to the last."""
    return extract.text[chunks[0].start : chunks[-1].end]
