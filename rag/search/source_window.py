"""Cuts a window out of a source's text: a section by its heading, lines, or the surroundings of a chunk.

`get_source` shows such windows, and sections around hits are trimmed by them. Headings are matched as a
reader or a model writes them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from rag.answers import Excerpt, Extract, Part
from rag.corpus import Chunk, Heading
from rag.errors import InvalidRequestError, NotFoundError
from rag.filters.folded_text import folded
from rag.report import names_briefly
from rag.search.reply.untrusted import display_name
from rag.text.plain_text import ADDED, PARTS, Span, line_at, line_count, lines_span, with_section_numbers
from rag.uris import NOT_FOUND, range_id, split_citation

if TYPE_CHECKING:
    from rag.search.view import View
    from rag.store.read.schema import StoredSource
    from rag.text.revisions import Standing

BEGINNING_CHARS = 300  # of a part, to find its page: a few lines
NO_REVISION = (
    "No revision of this document is recorded yet; the next refdesk-admin ingest records one. Open {} for "
    "its present text."
)
UNKNOWN_REVISION = (
    "The revision {} of this document is not known any more, so what was cited can't be found again. Open {} "
    "for its present text."
)
TOO_FEW = "The document {0} has fewer passages: its last one is {0}/{1}."
NO_PASSAGES = "The document {} has no passages. Open it by this id."
TOO_MANY = "At most {} passages of a former revision can be found again at once. Name fewer."
DOCUMENT_CHANGED = "The document has changed since it was cited."
STANDS = "The cited passage stands word for word."
STANDS_ELSEWHERE = "The cited passage stands word for word, now [{}]."
CHANGED = "The cited passage has changed since it was cited. In its place stands [{}]."
GONE = "The cited passage is gone from the document. It stood near [{}]."
AT_CAPTION = "This is no section, but the passage with this caption and the ones beside it."
MOST_NAMED = 8  # headings in an error, or positions in a note
MOST_COMPARED = 2_000  # headings that an error is compared with to name the nearest; some 50 ms
MOST_WORDS = 8  # of a requested heading that are compared
NEAR = 0.75  # of `difflib`, from 0 to 1: "parentl" and "parental" have 0.93, "maternity" and "policy" 0.4
_WORD = re.compile(r"\w{3,}")  # shorter ones stand in every other heading
_BETWEEN = re.compile(rf"\s+[>›]\s+|(?<=\bkap\.)\s+(?=\d)|,\s+(?=(?:{'|'.join(sorted(PARTS))})\b)")
"""Between the headings of a path, in results, Swedish laws (4 kap. 5 §) and plays (act 3, scene 4)."""
_MARKS = re.compile(r"#{1,6}\s+")
_NUMBERED = re.compile(
    rf"(?P<sign>§+|[^\W\d_]+\.?(?=\s*\d))?\s*(?P<number>\d+(?:\.\d+)*(?:[a-z]|{ADDED})?)(?![\w.]*\d|\w)"
)
_NUMBER = re.compile(r"(?:§+ ?|[^\W\d_]+\.? )?\d+(?:\.\d+)*[^\W\d_]{0,12}(?: (?:§|kap\b))?")
_PARAGRAPH = dict.fromkeys(("§", "§§", "paragraph", "para"), "section")
_SECTION_WORDS = frozenset(
    """
    section sec s clause cl article art rule regulation point item no number chapter ch step artikel
    abschnitt ziffer ziff punkt nr kapitel klausel chapitre artículo sección capítulo articolo sezione artigo
    seção artykuł rozdział článek čl статья ст пункт п глава madde
""".split()  # noqa: SIM905 as a list, it would be three times as long
)
"""Words before the number of a section, which its heading may lack: unlike a schedule's and a table's."""
_KEYWORDS = re.compile(
    r"^(?:(?:async|export|public|static|abstract|final|data|sealed|def|func|function|fun|fn|class|struct|interface"
    r"|trait|enum|type|impl|object|module|namespace|method|record|protocol)\s+)+"
)
_RECEIVER = re.compile(r"\((?:\w+\s+)?\*?(\w+)[^)]*\)[\s.]*")
_DEFINED = re.compile(
    r"(?P<names>[^\W\d]\w*(?:(?:\.|::|#)[^\W\d]\w*)*)"
    r"(?:\s*[(<:\[{].*|\s+(?:extends|implements|struct|interface|where|with)\b.*)?"
)


def section_span(
    title: str, outline: Sequence[Heading], length: int, heading: str, start: int | None = None
) -> tuple[Span, tuple[str, ...]]:
    """The section under `heading`, with its subsections, and notes on other sections of this name.

    `heading` may be a path of headings ("Leave > Parental leave") and may begin with the source's `title`.
    Exact matches win, then those in another letter case or width, then a unique heading that begins with it
    or contains it, has its number ("Clause 4.2") or defines its name ("Cart.add"). Of several sections with
    the same heading it is the first, or the one that contains `start`. `length` is the length of the text.

    Raises:
        InvalidRequestError: no heading matches, or several different ones do, or `start` is in none of them.
    """
    named = [entry for entry in outline if entry.title]
    spans = [_section(match, outline, length) for match in headings_named(title, named, heading)]
    if start is None:
        chosen = spans[0]
    elif inside := [span for span in spans if span.start <= start < span.end]:
        chosen = inside[-1]
    else:
        raise InvalidRequestError(
            f"start must be from {spans[0].start} to {spans[0].end - 1} in this section."
        )
    other_starts = [span.start for span in spans if span != chosen]
    if not other_starts:
        return chosen, ()
    listed = names_briefly([*map(str, other_starts)], MOST_NAMED)
    return chosen, (f"Other sections have this heading, at {listed}: add start to open one of them.",)


def headings_named(title: str, outline: Sequence[Heading], heading: str) -> list[Heading]:
    """The headings that `heading` names, in order, all of the same title; see `section_span`."""
    if not outline:
        raise InvalidRequestError("This document has no headings; open it without section.")
    titles = [display_name(heading.title) for heading in outline]
    forms = [*map(folded, titles)]
    as_shown = display_name(heading)
    names = dict.fromkeys([as_shown, _MARKS.sub("", as_shown, count=1)])
    for name in names:  # as it is first: "# Setup" may be a heading itself, not Markdown
        path = _BETWEEN.split(folded(name))
        exact = _matching_indexes(titles, name.__eq__) or _matching_indexes(forms, folded(name).__eq__)
        if indexes := exact or (path[1:] and _by_path(title, outline, [(form,) for form in forms], path)):
            return [outline[index] for index in indexes]
    *_, name = map(folded, names)
    for indexes in _indexes_of_numbers(title, outline, forms, name) if name else ():
        # None of several different headings is guessed: a wrong section would be read as the right one.
        if len({forms[index] for index in indexes}) > 1:
            several = _title_list(titles[index] for index in indexes)
            raise InvalidRequestError(f"Several headings match section: {several}.")
        if indexes:
            return [outline[index] for index in indexes]
    near = [titles[index] for index in _with_words_of(name, forms[:MOST_COMPARED])]
    listed = f"Near ones: {_title_list(near)}" if near else f"The first ones: {_title_list(titles)}"
    raise InvalidRequestError(f"No heading matches section. {listed}.")


def _indexes_of_numbers(
    title: str, outline: Sequence[Heading], forms: Sequence[str], name: str
) -> Iterator[list[int]]:
    """As `_indexes_alike`, first with whole numbers of sections: "§ 5 a" is "§ 5a" and no "§ 5", III is 3."""
    whole, *whole_forms = map(with_section_numbers, (name, *forms))
    path = [_number_or_all(part) for part in _BETWEEN.split(whole)]
    yield (
        _by_path(title, outline, [(_number_or_all(form),) for form in whole_forms], path) if path[1:] else []
    )
    yield from _indexes_alike(title, outline, whole_forms, whole)
    yield from _indexes_alike(title, outline, forms, name)


def _number_or_all(form: str) -> str:
    """The number that begins a heading, with the word or sign beside it: "4 kap. Hundar" -> "4 kap"."""
    number = _NUMBER.match(form)
    return number[0] if number else form


def _indexes_alike(
    title: str, outline: Sequence[Heading], forms: Sequence[str], name: str
) -> Iterator[list[int]]:
    """The indexes of the headings that are like `name`, for each way of being so, the surest first.

    A number is no part of a longer one, so that § 1 is not § 10.
    """
    before = r"(?<![\d.])" if name[0].isdecimal() else ""
    after = r"(?!\d|\.\d)" if name[-1].isdecimal() else ""
    words = re.compile(before + re.escape(name) + after)
    yield _matching_indexes(forms, re.compile(rf"{words.pattern}(?!\w)").match)
    yield _matching_indexes(forms, words.match)
    yield _matching_indexes(forms, words.search)
    yield _numbered_alike(forms, name)
    path = _definition_names(name)
    yield _by_path(title, outline, [*map(_definition_names, forms)], path) if path else []


def _numbered_alike(forms: Sequence[str], name: str) -> list[int]:
    """The indexes of the headings with the number in `name`, whatever the words behind it.

    The word before it may be missing in the heading if it is one for a section, or abbreviated.
    Example: "§622 BGB" and "Section 622" mean "§ 622 Notice"; "Clause 4.2(b)" means "4.2 Termination".
    """
    numbered = _NUMBERED.match(name)
    if not numbered or not numbered["sign"]:
        return []
    matches = [(index, match) for index, form in enumerate(forms) if (match := _NUMBERED.match(form))]
    return [
        index
        for index, match in matches
        if match["number"] == numbered["number"] and _are_alike(match["sign"] or "", numbered["sign"])
    ]


def _are_alike(heading_sign: str, name_sign: str) -> bool:
    signs = (sign.strip(".") for sign in (heading_sign, name_sign))
    of_heading, of_name = (_PARAGRAPH.get(sign, sign) for sign in signs)
    if not of_heading:
        return of_name in _SECTION_WORDS
    return of_heading.startswith(of_name) or of_name.startswith(of_heading)


def _definition_names(name: str) -> tuple[str, ...]:
    """The names that a definition's name consists of, outermost first; none for other texts.

    Example: "class cart(base)" -> cart; "cart.add_line(self)" and "(c *cart) add_line" -> cart, add_line.
    """
    bare = _KEYWORDS.sub("", name, count=1)
    receiver = _RECEIVER.match(bare)
    match = _DEFINED.fullmatch(bare, receiver.end() if receiver else 0)
    owner = [receiver[1]] if receiver else []
    return (*owner, *re.split(r"\.|::|#", match["names"])) if match else ()


def _matching_indexes(titles: Sequence[str], matches: Callable[[str], object]) -> list[int]:
    return [index for index, title in enumerate(titles) if matches(title)]


def _by_path(
    title: str, outline: Sequence[Heading], names: Sequence[Sequence[str]], wanted: Sequence[str]
) -> list[int]:
    """The indexes of the headings at the end of a path; if none is an exact chain, headings may be skipped.

    A heading may have several `names`: those that a definition's own name begins with are above it.
    """
    *above, last = wanted
    chains, others = list[int](), list[int]()
    path: list[tuple[int, Sequence[str]]] = [(0, (folded(display_name(title)),))]
    for index, (heading, of_heading) in enumerate(zip(outline, names, strict=True)):
        while path[1:] and path[-1][0] >= heading.level:
            path.pop()
        path.append((heading.level, of_heading))
        if of_heading[-1:] == (last,):
            *names_above, _ = chain.from_iterable(names for _, names in path)
            if _is_within(above, names_above):
                is_chain = names_above[len(names_above) - len(above) :] == above
                (chains if is_chain else others).append(index)
    return chains or others


def _is_within(parts: Sequence[str], names: Iterable[str]) -> bool:
    """Whether `parts` is a subsequence of `names`."""
    remaining = iter(names)
    return all(part in remaining for part in parts)


def _section(heading: Heading, outline: Sequence[Heading], length: int) -> Span:
    """From a heading to the next one of its level or higher."""
    # From there on, not from the start: a changelog has thousands of sections of one name.
    behind = range(bisect_right(outline, heading.start, key=attrgetter("start")), len(outline))
    ends = (outline[index].start for index in behind if outline[index].level <= heading.level)
    return Span(heading.start, next(ends, length))


def _with_words_of(name: str, forms: Sequence[str]) -> list[int]:
    """The indexes of the headings with the same or similarly spelt words, the most similar first."""
    words = [{*_WORD.findall(heading)} for heading in forms]
    every = sorted(set().union(*words))
    alike = [
        {*get_close_matches(word, every, n=MOST_NAMED, cutoff=NEAR)}
        for word in dict.fromkeys(_WORD.findall(name)[:MOST_WORDS])
    ]
    shared = [sum(not near.isdisjoint(of_heading) for near in alike) for of_heading in words]
    return sorted((index for index, count in enumerate(shared) if count), key=lambda index: -shared[index])


def _title_list(titles: Iterable[str]) -> str:
    return names_briefly([*dict.fromkeys(titles)], MOST_NAMED, "; ")


LINES = "lines must be a line or a range of lines, counted from 1, such as 120-180."
SNAP_SHARE = 5  # an edge moves inwards by up to 1/5 of the window, so that it doesn't cut a word


def centered_window(whole: Span, middle: Span, max_chars: int) -> Span:
    """Up to `max_chars` of `whole`, centred on `middle`; starts with `middle` if that is longer.

    Example: whole (0, 100), middle (40, 50), max_chars 30 -> (30, 60).
    """
    spare = max(0, max_chars - (middle.end - middle.start))
    start = max(whole.start, min(middle.start - spare // 2, whole.end - max_chars))
    return Span(start, min(start + max_chars, whole.end))


def between_words(text: str, window: Span, whole: Span) -> Span:
    """`window` with its edges moved inwards to the nearest white space, except at the edges of `whole`.

    Example: "one two three four five", window (2, 20) of whole (0, 23) -> (4, 18), "two three four".
    """
    reach = max(1, (window.end - window.start) // SNAP_SHARE)
    start, end = window.start, window.end
    if start > whole.start and not text[start - 1].isspace():
        start = next((at + 1 for at in range(start, min(start + reach, end)) if text[at].isspace()), start)
    if end < whole.end and not text[end].isspace():
        end = next((at for at in range(end - 1, max(end - reach, start), -1) if text[at].isspace()), end)
    return Span(start, end)


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, with those that touch or overlap joined.

    Example: (8, 9), (0, 3), (2, 5), (5, 6) -> (0, 6), (8, 9).
    """
    joined: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start):
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def merged_excerpts(text: str, spans: Iterable[Span]) -> tuple[Excerpt, ...]:
    """The spans as excerpts, merged where they touch or have only white space in between."""
    merged: list[Span] = []
    for span in merge_spans(spans):
        if merged and not text[merged[-1].end : span.start].strip():
            merged[-1] = Span(merged[-1].start, span.end)
        else:
            merged.append(span)
    return tuple(Excerpt(*span, text[slice(*span)]) for span in merged)


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A readable source: its record, outline and text, all of one version."""

    view: View
    stored: StoredSource
    outline: tuple[Heading, ...]
    text: str

    async def named(self, seqs: range) -> Sequence[Chunk]:
        """The chunks with these numbers.

        Raises:
            NotFoundError: one of them doesn't exist or isn't readable.
        """
        check_passages(self.stored.source.id, seqs, self.stored.source.chunk_count)
        chunks = await self.between(seqs[0], seqs[-1])
        if len(chunks) == len(seqs):
            return chunks
        raise NotFoundError(NOT_FOUND)

    async def between(self, first: int, last: int) -> tuple[Chunk, ...]:
        """The readable chunks with the numbers from `first` to `last`."""
        return await self.view.table.chunks_between(self.stored, first, last, self.view.where)

    async def standing(self, revision: str, seqs: range) -> Standing | None:
        """What became of these passages of a revision; None without passages (the whole source).

        Raises:
            InvalidRequestError: the revision isn't known.
            NotFoundError: it has no such passages.
        """
        # Imported here, because the server must not wait for numpy before its first answer.
        from rag.text.revisions import MOST_CITED, Edited, Standing  # noqa: PLC0415

        source = self.stored.source
        if source.revision is None:
            raise InvalidRequestError(NO_REVISION.format(source.id))
        is_present = revision == source.revision
        marks = None if is_present else (await self.view.table.former(self.stored)).get(revision)
        if not (is_present or marks):
            raise InvalidRequestError(UNKNOWN_REVISION.format(revision, source.id))
        if not seqs:
            return None
        chunks = await self.between(0, source.chunk_count)  # all: a passage can have moved anywhere
        spans = [Span(chunk.start, chunk.end) for chunk in chunks]
        check_passages(f"{source.id}@{revision}", seqs, len(spans if marks is None else marks))
        if not spans or len(spans) < source.chunk_count:
            raise NotFoundError(NOT_FOUND)
        if marks is None:
            return Standing("stands", Span(spans[seqs[0]].start, spans[seqs[-1]].end), seqs)
        if len(seqs) > MOST_CITED:
            raise InvalidRequestError(TOO_MANY.format(MOST_CITED))
        return await to_thread.run_sync(Edited(self.text, spans, marks).standing, seqs)

    async def touching(self, start: int, end: int) -> tuple[Chunk, ...]:
        """The readable chunks that overlap `text[start:end]`."""
        return await self.view.table.chunks_touching(self.stored, start, end, self.view.where)


def check_passages(id_: str, seqs: range, count: int) -> None:
    """Check that a readable document has passages with these numbers.

    Raises:
        NotFoundError: it has fewer.
    """
    if seqs[-1] >= count:
        raise NotFoundError(TOO_FEW.format(id_, count - 1) if count else NO_PASSAGES.format(id_))


async def open_source(view: View, source_id: str) -> OpenSource | None:
    """A source as it is now, without a filter on sections; None if the view doesn't admit it."""
    outlined = await view.table.text(source_id)
    return OpenSource(view.of_all_sections, *outlined) if outlined and view.admits(outlined[0]) else None


async def extract(view: View, id_: str, part: Part, max_chars: int) -> Extract:
    """A window on a source of the view; see `Desk.extract`."""
    source_id, revision, seqs = split_citation(id_)
    _check(part, seqs)
    opened = await open_source(view, source_id)
    if opened is None:
        raise NotFoundError(NOT_FOUND)
    standing = await opened.standing(revision, seqs) if revision else None
    notes: tuple[str, ...] = ()
    if standing:
        notes, seqs = (standing_note(standing, source_id, seqs),), standing.seqs
    elif revision and revision != opened.stored.source.revision:
        notes = (DOCUMENT_CHANGED,)
    named_chunks = await opened.named(seqs) if seqs else None
    target = await _target(opened, named_chunks, part)
    window = _window(opened.text, target, part, max_chars)
    where = window.start, window.end
    chunks = () if part.outline else await opened.touching(*where)
    readable_end = len(opened.text) if part.section is None else target.whole.end
    return Extract(
        source=opened.stored.source,
        outline=tuple(_headings(opened, target.whole, part)),
        start=window.start,
        end=window.end,
        text=opened.text[window.start : window.end],
        chunks=chunks,
        until=target.whole.end,
        more_until=len(opened.text[:readable_end].rstrip()),
        fields=opened.stored.fields,
        part=part,
        first_line=line_at(opened.text, window.start),
        line_count=line_count(opened.text),
        notes=(*notes, *target.notes),
        standing=standing,
        passage=opened.text[
            target.middle.start : max(target.middle.end, target.middle.start + BEGINNING_CHARS)
        ],
        page=_page_at(target.middle.start, chunks),
    )


def _page_at(start: int, chunks: Sequence[Chunk]) -> int | None:
    """The page of the last chunk that has begun by `start`, or else of the first one."""
    on_pages = [chunk for chunk in chunks if chunk.page]
    begun = [chunk for chunk in on_pages if chunk.start <= start]
    return next((chunk.page for chunk in begun[-1:] or on_pages), None)


def standing_note(standing: Standing, source_id: str, cited: range) -> str:
    """What became of the cited passages, for the reader."""
    now = range_id(source_id, standing.seqs[0], standing.seqs[-1])
    match standing.verdict:
        case "stands":
            return STANDS if standing.seqs == cited else STANDS_ELSEWHERE.format(now)
        case "changed":
            return CHANGED.format(now)
        case "gone":
            return GONE.format(now)


def _headings(opened: OpenSource, whole: Span, part: Part) -> Iterable[Heading]:
    """The headings within the requested part, or all without a part."""
    is_whole = not part.outline and part.section is None and not part.lines
    return (
        heading
        for heading in opened.outline
        if heading.title and (is_whole or whole.start <= heading.start < whole.end)
    )


class _Target(NamedTuple):
    """The requested span, the part of it to centre on if it is too long, and notes for the reader."""

    whole: Span
    middle: Span
    notes: tuple[str, ...] = ()


def _check(part: Part, seqs: range) -> None:
    """Check what needs no source: which arguments can be combined, and their ranges."""
    exclusive = {"around": part.around, "section": part.section, "lines": part.lines, "outline": part.outline}
    parts = [name for name, value in exclusive.items() if value is not None and value is not False]
    if len(parts) > 1:
        raise InvalidRequestError(f"{' and '.join(parts)} can't be combined; give one of them.")
    if part.around is not None and (not seqs or part.start is not None):
        raise InvalidRequestError(
            "around needs the id of a chunk (source_id/seq) and can't be combined with start."
        )
    if part.around is not None and part.around < 0:
        raise InvalidRequestError(f"around must be at least 0, not {part.around}.")
    if part.lines and part.start is not None:
        raise InvalidRequestError("lines and start can't be combined; give one of them.")
    if part.lines and not 1 <= part.lines[0] <= part.lines[1]:
        raise InvalidRequestError(LINES)


async def _target(opened: OpenSource, named_chunks: Sequence[Chunk] | None, part: Part) -> _Target:
    """The requested span. Without a part it is the whole source, from its beginning or around the chunks."""
    length, start = opened.stored.source.length, part.start
    if start is not None and not 0 <= start < length:
        raise InvalidRequestError(f"start must be from 0 to {length - 1} in this source.")
    if part.section is not None:
        title = opened.stored.source.title
        try:
            section, notes = section_span(title, opened.outline, length, part.section, start)
        except InvalidRequestError:  # no heading, but perhaps the caption of a table
            if start is None and (around := await _around_caption(opened, part.section)):
                return around
            raise
        return _target_from(section, start, notes)
    if part.lines:
        lines = lines_span(opened.text, *part.lines)
        if lines is None:
            raise InvalidRequestError(f"lines must be from 1 to {line_count(opened.text)} in this source.")
        return _target_from(lines, None)
    if part.outline or start is not None or named_chunks is None:
        return _target_from(Span(0, length), start)
    middle = Span(named_chunks[0].start, named_chunks[-1].end)
    if part.around is None:
        return _Target(Span(0, length), middle)
    neighbors = await opened.between(named_chunks[0].seq - part.around, named_chunks[-1].seq + part.around)
    if not neighbors:  # access was revoked since the text was read
        raise NotFoundError(NOT_FOUND)
    return _Target(Span(neighbors[0].start, neighbors[-1].end), middle)


async def _around_caption(opened: OpenSource, name: str) -> _Target | None:
    """The passage with the named caption, and its neighbors, as the table may be above or below."""
    # Imported here, because the server must not wait for the engine before its first answer.
    from rag.search.named_sections import has_caption, named_captions  # noqa: PLC0415

    named = named_captions(name)
    chunks = await opened.touching(0, len(opened.text)) if named else ()
    for index, chunk in enumerate(chunks):
        if has_caption(chunk.text, named):
            beside = chunks[max(index - 1, 0) : index + 2]
            return _Target(Span(beside[0].start, beside[-1].end), Span(chunk.start, chunk.end), (AT_CAPTION,))
    return None


def _target_from(whole: Span, start: int | None, notes: tuple[str, ...] = ()) -> _Target:
    """All of a span from `start` on, or from its beginning."""
    first = whole.start if start is None else start
    return _Target(Span(first, whole.end), Span(first, first), notes)


def _window(text: str, target: _Target, part: Part, max_chars: int) -> Span:
    if part.outline:
        return Span(target.whole.start, target.whole.start)
    return between_words(text, centered_window(target.whole, target.middle, max_chars), target.whole)
