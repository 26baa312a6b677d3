"""Finds the citations and quotes of an answer, and checks them against its documents.

checked = await check_answer(desk, Principal("default"), 'It "swings" [mfzq2k7d/3].')

A citation is [source_id/seq], as assistants are told to write it, or [source_id/seq-seq] for consecutive
passages. Several can share a pair of brackets, as in [a/1, a/2] and [a/1; b/2-4], and URIs of passages are
citations, too. So is anything of this form, even with an invalid id: [notes.md/3] is a citation that names
nothing. Numbers alone, as [3/4], are not.

A citation with a revision, as [source_id@revision/seq], lasts: its passage is found again after the document
was edited, and the check says whether it still stands word for word.

A quote is a block quote of Markdown, or in quotation marks: "…", “…”, ”…”, „…“, «…», »…«, ‘…’, ‚…‘, ‹…›,
›…‹, ``…'', 「…」, 『…』, and '…' around two or more words. An apostrophe is no mark. A quote cites the first
citation after its opening mark in the same paragraph, list item or table row, and those that follow this one
with only punctuation in between. A block quote without a citation of its own cites the first one of the next
paragraph. Without either it cites nothing.

A paragraph that states something without a citation is reported, too. One citation anywhere in a paragraph,
list item or table row is enough. A citation alone in the next paragraph counts for the one before, and one in
the introduction of a list ("As [a/1] says:") for its items. What states nothing needs none: headings,
introductions that end with a colon, questions, table heads, rules and code. Quotes are checked separately.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from rag.answers import Extract, Part
from rag.corpus import Chunk, Principal, Source
from rag.errors import InvalidRequestError, NotFoundError
from rag.filters.seen_text import seen_text
from rag.search.desk import Desk
from rag.text.plain_text import TABLE_RULE, bare
from rag.text.revisions import Verdict
from rag.uris import NOT_FOUND, parse_id, range_id, split_citation, without_revision

AS_CITED = Part(around=0)
_BRACKETS = re.compile(r"[\[\u3010]([^\[\]\u3010\u3011]*)[\]\u3011]")  # the latter as GPT writes them
_RANGE = re.compile(r"(?<=\d)\s?[-\u2010-\u2013]\s?(?=\d)")  # with a hyphen or a dash
_SEPARATORS = re.compile(r"[\s,;]+")
_SHORTENED = r"(?!\d\ds\b|tis\b|twas\b|til\b|em\b|cause\b|n\b)"  # the '90s, 'tis: an apostrophe before a word
_MARKED = re.compile(
    r'(?<!\w)"([^"]*)"|“([^“”]*)”|(?<!\w)”([^“”]*)”|„([^„“”]*)[“”]|«([^«»]*)»|»([^«»]*)«|「([^「」]*)」|『([^『』]*)』'
    rf"|‚((?:[^‚‘’]|’(?=\w))*)[‘’]|(?<!\w)‘{_SHORTENED}((?:[^‘’]|’(?=\w))*)’|‹([^‹›]*)›|›([^‹›]*)‹|``([^`']*)''"
    rf"|(?<![\w'])'{_SHORTENED}(?=\w)((?:[^'\s]|(?<=\w)'(?=\w))+\s(?:[^']|(?<=\w)'(?=\w))*)(?<!\s)'(?![\w'])",
    re.IGNORECASE,
)
_MARKS = ' \t\n"“”„«»‘’‚‹›「」『』—–-'
_BLOCK = re.compile(r"[ \t]*>")
_BLOCK_MARKS = re.compile(r"^(?:[ \t]*>(?!>>))+[ \t]*")  # not Python's prompt ">>>" in a quote
_ITEM = re.compile(r"[ \t]*(?:[-*+•][ \t]|\d+[.)][ \t]|[#|])")
_ELLIPSIS = re.compile(r"\[\s*(?:…|\.{3,})\s*\]|…|\.{3,}")
_SPOILED = re.compile(r"(?<=<) (?=[A-Za-z/!?])|(?<=!)[ \\](?=\[)|(?<=\]) (?=:)")
"""What `rag.search.reply.untrusted` inserts into markup, now or in an earlier version: answers can be old."""
_WORD = re.compile(r"\w")
_NO_BRACKETS = str.maketrans("[]\u3010\u3011", "    ")


@dataclass(frozen=True, slots=True)
class Quote:
    """Words that an answer presents as verbatim, and the ids of the passages that it cites for them."""

    text: str
    cited: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """The ids that an answer cites, without repetitions, and its quotes, both in the order of the text."""

    citations: tuple[str, ...]
    quotes: tuple[Quote, ...]


class Statement(BaseModel):
    """What an answer says, and the passages that say so."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1, description="One or a few sentences, without citations.")
    citations: list[str] = Field(
        description="The ids of the passages that say so: source_id/seq, source_id/seq-seq for several in a "
        "row, or source_id@revision/seq."
    )
    quotes: list[str] = Field(description="Words of these passages, verbatim; empty without any.")


class CitedAnswer(BaseModel):
    """An answer as statements, each with its citations and quotes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    statements: list[Statement]

    @property
    def parsed(self) -> ParsedAnswer:
        """Its citations and quotes, with those within its texts. A quote cites all ids of its statement."""
        citations: list[str] = []
        quotes: list[Quote] = []
        for statement in self.statements:
            in_text = parse_answer(statement.text)
            cited = (*_ids_in(" ".join(statement.citations)), *in_text.citations)
            citations += cited
            quotes += [Quote(words, cited) for words in statement.quotes]
            quotes += [replace(quote, cited=quote.cited or cited) for quote in in_text.quotes]
        return ParsedAnswer(tuple(dict.fromkeys(citations)), tuple(quotes))

    @property
    def uncited(self) -> tuple[str, ...]:
        """The texts of the statements that have no citation."""
        return tuple(
            statement.text
            for statement in self.statements
            if not (statement.citations or parse_answer(statement.text).citations)
        )


@dataclass(frozen=True, slots=True)
class _Paragraph:
    """A paragraph without its citations. `cited` has these in groups, each with its position in `text`.

    A group is consecutive citations with only punctuation in between.
    """

    text: str
    is_block: bool
    cited: Sequence[tuple[int, Sequence[str]]]

    def cited_after(self, start: int) -> tuple[str, ...]:
        """The first group of citations after a position."""
        group = bisect_right(self.cited, start, key=itemgetter(0))
        return tuple(self.cited[group][1]) if group < len(self.cited) else ()

    def quotes(self) -> list[tuple[int, str]]:
        """The quotes, each with its position."""
        if self.is_block:
            lines = (_BLOCK_MARKS.sub("", line, count=1) for line in self.text.split("\n"))
            quotes = [(0, "\n".join(lines).strip(_MARKS))]
        else:
            matches = _MARKED.finditer(self.text)
            quotes = [(match.start(), match[match.lastindex or 0].strip()) for match in matches]
        return [(at, words) for at, words in quotes if _WORD.search(words)]


_NOTHING = _Paragraph("", is_block=False, cited=())


def parse_answer(text: str) -> ParsedAnswer:
    """The citations and quotes of an answer.

    Example: 'It "swings" [ab/1].' -> ParsedAnswer(("ab/1",), (Quote("swings", ("ab/1",)),)).
    """
    paragraphs = [_paragraph(lines) for lines in _paragraph_lines(text)]
    quotes = [
        Quote(words, paragraph.cited_after(at) or (following.cited_after(-1) if paragraph.is_block else ()))
        for paragraph, following in pairwise([*paragraphs, _NOTHING])
        for at, words in paragraph.quotes()
    ]
    cited = (id_ for paragraph in paragraphs for _, ids in paragraph.cited for id_ in ids)
    return ParsedAnswer(tuple(dict.fromkeys(cited)), tuple(quotes))


def contains_quote(passage: str, quote: str) -> bool:
    r"""Whether the passage contains the quote verbatim, as it is stored or as its reader sees it.

    White space and hidden characters don't count. An ellipsis stands for any text. Markup may contain the
    spaces that the tools insert.
    Example: "It *swings*,\nslowly, to and fro." holds "It swings, […] to and fro".
    """
    if _contains(_plain(passage), quote):
        return True
    seen = _seen(quote)
    return bool(_WORD.search(seen)) and _contains(_plain(_seen(passage)), seen)


def _seen(text: str) -> str:
    return seen_text(_SPOILED.sub("", text)).text


def _contains(text: str, quote: str) -> bool:
    at = 0
    for part in map(_plain, _ELLIPSIS.split(quote)):
        start = text.find(part, at)
        if start < 0:
            return False
        at = start + len(part)
    return True


def _plain(text: str) -> str:
    """The visible text with single spaces, and markup as in the document."""
    text = bare(text).replace("&lt;", "<")  # so an earlier version showed the "<" of images
    return _SPOILED.sub("", " ".join(text.split()))


def _paragraph_lines(text: str) -> list[list[str]]:
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines():
        last = paragraphs[-1]
        if not line.strip() or _ITEM.match(line) or (last and _is_block(line) != _is_block(last[0])):
            paragraphs.append([])
        if line.strip():
            paragraphs[-1].append(line)
    return [lines for lines in paragraphs if lines]


def _is_block(line: str) -> bool:
    return bool(_BLOCK.match(line))


def _paragraph(lines: list[str]) -> _Paragraph:
    joined = "\n".join(lines)
    text, end = "", 0
    cited: list[tuple[int, list[str]]] = []
    # The positions are in the text without citations, in which quotes are looked for.
    for match in _BRACKETS.finditer(joined):
        if ids := [_id(word) for word in _SEPARATORS.split(_RANGE.sub("-", match[1])) if _is_citation(word)]:
            between = joined[end : match.start()].rstrip()
            text += between
            end = match.end()
            if not cited or _WORD.search(between):
                cited.append((len(text), []))
            cited[-1][1].extend(ids)
    return _Paragraph(text + joined[end:], _is_block(lines[0]), cited)


def _is_citation(word: str) -> bool:
    name, _, seqs = word.rpartition("/")  # also of "notes.md/3": a wrong citation must not count as prose
    numbers = all(number.isascii() and number.isdecimal() for number in seqs.split("-"))
    return numbers and any(map(str.isalpha, name))


def _ids_in(text: str) -> list[str]:
    """The ids in a list of citations, with their brackets or without; other words stay as they are."""
    return [_id(word) for word in _SEPARATORS.split(_RANGE.sub("-", text.translate(_NO_BRACKETS))) if word]


def _id(word: str) -> str:
    """The id that a citation names; text that can't be an id stays as it is."""
    try:
        return parse_id(word)
    except NotFoundError:
        return word


_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)


_LIST_ITEM = re.compile(r"\A[ \t]*(?:[-*+•]|\d+[.)])[ \t]")
_HEADING = re.compile(r"[ \t]*(?:#|(\*\*|__)[^\n]*\1[ \t]*\Z|[^\n]+\n[ \t]*(?:=+|-+)[ \t]*\Z)")
_CLOSING = " \t\n*_)]\"'”»"


def uncited_paragraphs(answer: str) -> tuple[str, ...]:
    r"""The paragraphs that lack a citation, in order, without the marks of lists.

    Example: "It swings [ab/1].\n\nIt stops." -> ("It stops.",)
    """
    paragraphs = map(_paragraph, _paragraph_lines(_FENCED.sub("", answer)))
    texts = [*((paragraph.text, bool(paragraph.cited)) for paragraph in paragraphs), ("", False)]
    covered = {*_items_of_cited_introductions(texts)}
    return tuple(
        _LIST_ITEM.sub("", text, count=1).strip()
        for at, ((text, is_cited), (following, follows_cited)) in enumerate(pairwise(texts))
        if not is_cited
        and at not in covered
        and not (follows_cited and not _WORD.search(following))  # a citation alone, for this paragraph
        and _states(text, following)
    )


def _states(text: str, following: str) -> bool:
    if not _WORD.search(text) or text.lstrip().startswith(">") or _HEADING.match(text):
        return False
    if text.lstrip().startswith("|") and TABLE_RULE.match(following):
        return False
    return not text.rstrip(_CLOSING).endswith((":", "?", "：", "？"))


def _items_of_cited_introductions(texts: list[tuple[str, bool]]) -> Iterator[int]:
    """The positions of the list items under a cited paragraph that ends with a colon."""
    is_covering = False
    for at, (text, is_cited) in enumerate(texts):
        if not _LIST_ITEM.match(text):
            is_covering = is_cited and text.rstrip(_CLOSING).endswith((":", "："))
        elif is_covering:
            yield at


QuoteVerdict: TypeAlias = Literal["verbatim", "elsewhere", "not found", "unchecked"]
BETWEEN = "\0"  # separates passages that don't follow each other; no text contains it


@dataclass(frozen=True, slots=True)
class CheckedCitation:
    """A citation, and the passages that it names if the principal can read all of them.

    With a revision, these are the passages that now stand in place of the cited ones. `standing` says what
    became of the cited ones; "unknown" if they can't be found, as when the revision is no longer recorded.
    `cited_text` is the text as it was cited, if a tag or a backup has it; `cited_text_id` is its id in a tag.
    """

    id: str
    source: Source | None = None
    chunks: tuple[Chunk, ...] = ()
    standing: Verdict | Literal["unknown"] | None = None
    cited_text_id: str | None = None
    cited_text: str | None = None

    @property
    def readable(self) -> bool:
        """False if the id is unknown, another tenant's, denied or deleted, which are all answered alike."""
        return bool(self.chunks) or self.standing == "unknown"

    @property
    def holds(self) -> bool:
        """Whether it is readable, and, if it has a revision, stands word for word."""
        return self.readable and self.standing in {None, "stands"}

    @property
    def now(self) -> str | None:
        """The present id of its passages, if it cites a recorded revision."""
        if self.source is None or self.standing is None or not self.chunks:
            return None
        return range_id(self.source.id, self.chunks[0].seq, self.chunks[-1].seq)


@dataclass(frozen=True, slots=True)
class CheckedQuote:
    """A quote: `verbatim` in the passages that it cites, taken together, or `elsewhere` in their sources.

    For a quote that is elsewhere, `found` has the ids of up to two passages that contain it, or the source's
    id. A quote without a citation is `unchecked`.
    """

    text: str
    cited: tuple[str, ...]
    verdict: QuoteVerdict
    found: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedAnswer:
    """The results for each citation and each quote, and the paragraphs without a citation, in order."""

    citations: tuple[CheckedCitation, ...]
    quotes: tuple[CheckedQuote, ...]
    uncited: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether all citations are readable and stand, and all quotes that cite something are verbatim."""
        return all(citation.holds for citation in self.citations) and all(
            quote.verdict in {"verbatim", "unchecked"} for quote in self.quotes
        )

    @property
    def grounded(self) -> bool:
        """Whether it holds, has citations, and every paragraph and quote has one."""
        all_quotes = all(quote.verdict == "verbatim" for quote in self.quotes)
        return self.holds and bool(self.citations) and not self.uncited and all_quotes


async def check_answer(desk: Desk, principal: Principal, answer: str | CitedAnswer) -> CheckedAnswer:
    """Check the citations and quotes of an answer with the access rights of this principal.

    This module defines what is a citation, what is a quote, and which paragraphs need a citation.

    Raises:
        BusyError: a source was replaced during each attempt to read it.
        StoreError: the storage failed.
    """
    parsed = parse_answer(answer) if isinstance(answer, str) else answer.parsed
    uncited = uncited_paragraphs(answer) if isinstance(answer, str) else answer.uncited
    ids = dict.fromkeys(map(_source_id, parsed.citations))
    opened = {id_: extract for id_ in ids if (extract := await _open_source(desk, principal, id_))}
    citations = {
        id_: await _citation(desk, principal, id_, opened.get(_source_id(id_))) for id_ in parsed.citations
    }
    return CheckedAnswer(
        tuple(citations.values()),
        tuple(_quote(quote, opened, citations) for quote in parsed.quotes),
        uncited,
    )


def _source_id(id_: str) -> str:
    return without_revision(id_).partition("/")[0]


async def _open_source(desk: Desk, principal: Principal, source_id: str) -> Extract | None:
    """The whole source, None if it is not readable."""
    try:
        return await desk.extract(principal, parse_id(source_id), max_chars=sys.maxsize)
    except NotFoundError:
        return None


async def _citation(desk: Desk, principal: Principal, id_: str, extract: Extract | None) -> CheckedCitation:
    with suppress(NotFoundError):
        _, revision, seqs = split_citation(id_)
        if extract is None:
            return await _removed_citation(desk, principal, id_) if revision else CheckedCitation(id_)
        if revision and seqs:
            return await _lasting_citation(desk, principal, id_, extract)
        if chunks := _chunks(extract, seqs):
            return CheckedCitation(id_, extract.source, chunks)
    return CheckedCitation(id_)


async def _removed_citation(desk: Desk, principal: Principal, id_: str) -> CheckedCitation:
    """A citation of a document that is not readable, with its text if a tag has it for this principal."""
    if not (tagged_id := await desk.tagged_id(principal, id_)):
        return CheckedCitation(id_)
    cited = await desk.extract(principal, tagged_id, max_chars=sys.maxsize, part=AS_CITED)
    return CheckedCitation(id_, standing="gone", cited_text_id=tagged_id, cited_text=cited.text)


async def _lasting_citation(desk: Desk, principal: Principal, id_: str, extract: Extract) -> CheckedCitation:
    try:
        now = await desk.extract(principal, id_, max_chars=sys.maxsize, part=AS_CITED)
    except InvalidRequestError:
        return CheckedCitation(id_, extract.source, standing="unknown")
    if now.standing is None:
        raise NotFoundError(NOT_FOUND)
    cited = now.cited_text and await desk.extract(
        principal, now.cited_text, max_chars=sys.maxsize, part=AS_CITED
    )
    return CheckedCitation(
        id_,
        extract.source,
        _chunks(now, now.standing.seqs),
        now.standing.verdict,
        now.cited_text,
        cited.text if cited else None,
    )


def _chunks(extract: Extract, seqs: range) -> tuple[Chunk, ...]:
    """The chunks with these numbers; none if one is missing."""
    chunks = tuple(chunk for chunk in extract.chunks if chunk.seq in seqs)
    return chunks if len(chunks) == len(seqs) else ()


def _quote(
    quote: Quote, opened: Mapping[str, Extract], citations: Mapping[str, CheckedCitation]
) -> CheckedQuote:
    if not quote.cited:
        return CheckedQuote(quote.text, (), "unchecked")
    sources = [opened[id_] for id_ in dict.fromkeys(map(_source_id, quote.cited)) if id_ in opened]
    cited = [citations[id_] for id_ in quote.cited]
    passages = [passage for extract in sources for passage in _passages(extract, cited)]
    # A quote with an ellipsis may go from one cited passage to another, but not into what is between them.
    if contains_quote(BETWEEN.join(passages), quote.text):
        return CheckedQuote(quote.text, quote.cited, "verbatim")
    for extract in sources:
        if contains_quote(extract.text, quote.text):
            return CheckedQuote(quote.text, quote.cited, "elsewhere", _where(extract, quote.text))
    return CheckedQuote(quote.text, quote.cited, "not found")


def _passages(extract: Extract, cited: Sequence[CheckedCitation]) -> Iterator[str]:
    """The cited passages of a source; consecutive ones as one text, because a quote may span them."""
    cited_seqs = {
        chunk.seq for citation in cited for chunk in citation.chunks if chunk.source_id == extract.source.id
    }
    for is_cited, chunks in groupby(extract.chunks, lambda chunk: chunk.seq in cited_seqs):
        if is_cited:
            yield _text_of(extract, list(chunks))


def _where(extract: Extract, quote: str) -> tuple[str, ...]:
    """The ids of the first passage that contains the quote, else of the first two, else of the source."""
    for size in (1, 2):
        for first in range(len(extract.chunks) - size + 1):
            chunks = extract.chunks[first : first + size]
            if contains_quote(_text_of(extract, chunks), quote):
                return tuple(chunk.id for chunk in chunks)
    return (extract.source.id,)


def _text_of(extract: Extract, chunks: Sequence[Chunk]) -> str:
    return extract.text[chunks[0].start : chunks[-1].end]
