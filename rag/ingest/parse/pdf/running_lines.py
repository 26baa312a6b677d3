"""Running lines of a PDF: headers, footers, and numbers of pages and lines, which pages add to the text."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, count, islice, pairwise
from statistics import median
from typing import NamedTuple

from rag.ingest.parse.document_parts import runs
from rag.ingest.parse.pdf.page_layout import Row, level_rows
from rag.ingest.parse.pdf.pdf_words import Line, PageLines, most_letters
from rag.ingest.parse.pdf.text_page import Box, box_around
from rag.uris import following_labels, label_value

_TOP, _BOTTOM = 2, 3  # rows at the edges of a page that are looked at
_BOX = 4  # the same, of a header in a box: two rows of cells, with a line in which one goes on
_PAGES = 3  # that a line stands on at least
_NUMBERED_PAGES = 2  # the same, if it counts the pages
_SLACK = 10.0  # points that a line may be moved
_LARGEST = 1.15  # times the size of most letters: a larger line is a heading where it first stands
_FACING = 2  # pages: a larger line that comes again further on is another heading
_FROM_TEXT = 0.5  # times the height of a line: how far from the text it stands at least
_NEXT = 2.5  # times the height of a line: how far away the next row of a table is
_HEADED = 2.5  # times the height of a number: words so near to it are a heading that it counts
_LENGTH = 200  # characters
_NUMBERED_LINES = 15  # of a page at least
_EVEN = 1.5  # times the least distance of two numbers
_THIN = 5.0  # points: the height of a level rule
_SIGNS = r"[\s|:•·.()\[\]<>/–—-]"  # around page numbers
_NUMBER = r"(?!(?:19|20)\d\d(?!\d))0*\d{1,4}"  # a larger one counts something else, and so does a year
_TOTAL = rf"(?:\s*(?:/|[^\W\d_]{{1,3}}\b)\s*{_NUMBER}|\s*\({_NUMBER}\))?"  # "/ 5", "of 5", "(5)"
_PAGE = (
    r"(?:p ?a ?g ?e|pg|p|seite|blatt|bladzijde|blz|p[àáa]g(?:ina)?|folio|sidan?|side|sivu|str(?:[ao]na)?"
    r"|oldal|sayfa|стр(?:аница)?|стор(?:інка)?|сторінка|σελ(?:ίδα)?|第|frm)"
)
_NUMBER_ALONE = re.compile(
    rf"{_SIGNS}*(?P<page>{_PAGE}{_SIGNS}*)?(?:(?:(?-i:[A-Z]{{1,2}})|\d{{1,3}})\s?[.–-]\s?)?(?:{_NUMBER}|[ivxlc]+){_TOTAL}"
    rf"(?:{_SIGNS}*(?:{_PAGE}|[页頁]))?{_SIGNS}*",
    re.IGNORECASE,
)
_NUMBER_AMID_WORDS = re.compile(
    rf"(?<!\w){_PAGE}{_SIGNS}*{_NUMBER}{_TOTAL}(?!\w)|\|\s*{_NUMBER}\Z|\A{_NUMBER}\s*\|", re.IGNORECASE
)
_NUMBER_BESIDE_WORDS = re.compile(rf"(?P<left>{_NUMBER}) \D*[^\W\d]\D*|\D*[^\W\d]\D* (?P<right>{_NUMBER})")
_BEFORE, _BEHIND = " |:,•·/–—-([", " |:•·/–—-)],."  # signs between words and a page number
_PREFIX = re.compile(r"(?<!\w)(?:[A-Z]{1,2}|\d{1,3})[.–-](?=#)")  # of page numbers, as in A-3
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"[ivxlc]+", re.IGNORECASE)


def without_line_numbers(sheets: Sequence[PageLines]) -> list[PageLines]:
    """The pages without the numbers of their lines, which start again on each page, as in court papers."""
    columns = [_line_numbers(sheet) for sheet in sheets]
    pages = Counter(map(len, columns))
    # A table may count its rows from 1 on one page; numbers of lines end with the same one on several.
    numbers = {id(line) for column in columns if pages[len(column)] > 1 for line in column}
    return [
        sheet._replace(lines=[line for line in sheet.lines if id(line) not in numbers]) for sheet in sheets
    ]


def _line_numbers(sheet: PageLines) -> list[Line]:
    """A column of the numbers from 1 in even distances, without rules or cells next to them; else none."""
    numbers = sorted((line for line in sheet.lines if line.text.isdecimal()), key=lambda line: line.box.top)
    columns = defaultdict[tuple[str, int], list[Line]](list)
    for line in numbers:
        columns["left", round(line.box.left)].append(line)
        columns["right", round(line.box.right)].append(line)
    column = max(columns.values(), key=len, default=[])
    if len(column) < _NUMBERED_LINES or [int(line.text) for line in column] != [*range(1, len(column) + 1)]:
        return []
    pitches = [below.box.top - above.box.top for above, below in pairwise(column)]
    first, last = column[0].box, column[-1].box
    is_ruled = any(rule.height < _THIN and first.around(last).touches(rule) for rule in sheet.rules)
    rows = [len(row) for row in level_rows(sheet.lines) if any(line in column for line in row)]
    is_even = max(pitches) < _EVEN * min(pitches)
    return column if is_even and not is_ruled and median(rows) <= 2 else []  # noqa: PLR2004 a number and its line


def printed_numbers(sheets: Sequence[PageLines]) -> list[str]:
    """The number printed on each page, or between others that count on; none where few pages have one."""
    series = defaultdict[tuple[str, int], dict[int, str]](dict)
    for edge in _edges_of(sheets):
        for text, first in _numberings(edge):
            label = _label(text, first + edge.page) if text else edge.number.strip(_BEFORE)
            series[text, first].setdefault(edge.page, label)
    labels = [""] * len(sheets)
    for (text, first), numbered in sorted(series.items(), key=lambda item: -len(item[1])):
        begin, end = min(numbered), max(numbered) + 1
        is_sure = len(numbered) >= (_PAGES if text else _NUMBERED_PAGES) and 2 * len(numbered) > end - begin
        if not is_sure or any(labels[begin:end]):
            continue
        if text and first == 1 and not any(labels[:begin]):  # a title page counts, and has no number
            begin, numbered[0] = 0, _label(text, 1)
        labels[begin:end] = islice(following_labels(numbered[begin]), end - begin)
    if 2 * sum(map(bool, labels)) < max(len(labels), 1):
        return []
    last = max(at for at, label in enumerate(labels) if label)
    labels[last:] = islice(following_labels(labels[last]), len(labels) - last)
    unnumbered = count(1)
    return [label or f"unnumbered {next(unnumbered)}" for label in labels]


def _label(text: str, number: int) -> str:
    """A page number with the number of its part, if the text around # has it."""
    prefix = _PREFIX.search(text)
    return f"{prefix[0] if prefix else ''}{number}"


class PageBody(NamedTuple):
    """The lines of a page without running lines, and those above and below it that stand there first."""

    head: list[Row]
    lines: list[Line]
    foot: list[Row]


class _Edge(NamedTuple):
    """A row at the edge of a page: what may be a page number in it, and its lines without that.

    In large letters, or next to a large row, it is a heading where it first stands, but not at a page's foot.
    """

    page: int
    is_head: bool
    is_large: bool
    lines: Row
    number: str
    words: Row
    outer: str = ""
    """The words of rows further out than a large one: below another caption, it isn't the same."""
    side: str = ""
    """Where a number stands in the line of its words: it is the page's only on facing pages."""

    @property
    def height(self) -> int:
        return round(self.lines[0].box.top / _SLACK)


def bodies_of(sheets: Sequence[PageLines]) -> list[PageBody]:
    """Each page without page numbers, and without headers and footers of earlier pages.

    A line that counts something else, as invoices and years, stays in the body. So does the title of a
    slide, and a page with nothing else keeps all of its lines.
    """
    bodies = [PageBody([], [], []) for _ in sheets]
    left_out = set[int]()
    for repeats in _running_edges(_edges_of(sheets)):
        first, body = repeats[0], bodies[repeats[0].page]
        if first.words and first.is_head and first.is_large:  # it may be the heading of a chapter
            body.lines.extend(first.words)
        elif first.words:
            (body.head if first.is_head else body.foot).append(first.words)
        for edge in repeats:
            # An equal line of the same page repeats nothing: both stand where they are.
            if edge is first or edge.page != first.page or not edge.words:
                left_out.update(map(id, edge.lines))
    for sheet, body in zip(sheets, bodies, strict=True):
        body.lines.extend(line for line in sheet.lines if id(line) not in left_out)
        if not any(body):  # better a page of running lines than an empty one
            body.lines[:] = sheet.lines
        body.foot.reverse()
    return bodies


def _edges_of(sheets: Sequence[PageLines]) -> list[_Edge]:
    largest = _LARGEST * most_letters(
        ((line.size, line.text) for sheet in sheets for line in sheet.lines), 0.0
    )
    margins = [edges for page, sheet in enumerate(sheets) for edges in _margins(page, sheet, largest)]
    margins = _with_facing_numbers(margins)
    if not any(margins):
        return []
    are_slides = _are_slides(sheets)
    places = Counter(place for inwards in margins for edge in inwards for place in _places(edge))
    again = frozenset(
        id(edge)
        for edge in chain.from_iterable(margins)
        if max(places[place] for place in _places(edge)) >= _PAGES and not are_slides
    )
    edges = (edge for inwards in margins for edge in _outermost(inwards, again))
    return [edge for edge in edges if not (are_slides and edge.is_large)]


def _are_slides(sheets: Sequence[PageLines]) -> bool:
    """Whether pages are wider than high.

    Their larger lines are titles, and rows of cells at their edge a figure, also where these come again: a
    figure is often built up on several slides.
    """
    reach = box_around(line.box for sheet in sheets for line in sheet.lines)
    return reach.width > reach.height


def _margins(page: int, sheet: PageLines, largest: float) -> Iterator[list[_Edge]]:
    """The rows at the top of a page and those at its foot, inwards, with one more than is looked at."""
    rows = level_rows([line for line in sheet.lines if not line.turned])
    reach = box_around(line.box for line in sheet.lines) if rows else Box(0, 0, 0, 0)
    for is_head, inwards in ((True, rows[: _BOX + 1]), (False, rows[: -_BOX - 2 : -1])):
        yield [_edge(page, row, reach, is_head=is_head, is_large=row[0].size > largest) for row in inwards]


def _with_facing_numbers(margins: Sequence[Sequence[_Edge]]) -> list[list[_Edge]]:
    """The edges, of which a number beside words counts only on facing pages: "12 The Salt Roads", "Brine 13".

    There it counts every other page, and stands on the same side of different words.
    """
    pages = defaultdict[object, set[int]](set)
    for edge in chain.from_iterable(margins):
        if edge.side:
            pages[edge.side, edge.is_head, int(edge.number) - edge.page].add(edge.page)
    facing = {key for key, on in pages.items() if len(on) >= _PAGES and len({page % 2 for page in on}) == 1}
    return [
        [
            edge
            if not edge.side or (edge.side, edge.is_head, int(edge.number) - edge.page) in facing
            else edge._replace(number="", words=edge.lines, side="")
            for edge in inwards
        ]
        for inwards in margins
    ]


def _outermost(inwards: Sequence[_Edge], again: frozenset[int]) -> Iterator[_Edge]:
    """The outermost rows apart from the text, and of those further in what has a number."""
    is_outermost, outer = True, ""
    for group in _groups_apart(inwards, again):
        is_large = any(edge.is_large for edge in group)
        for edge in group:
            if is_outermost or edge.number:
                yield edge._replace(is_large=is_large, outer=outer if is_large else "")
            outer += _text(edge.words)
        is_outermost = False


def _groups_apart(inwards: Sequence[_Edge], again: frozenset[int]) -> Iterator[list[_Edge]]:
    """Edges of a page inwards but for the last, in groups that stand apart from what follows.

    Rows of cells below each other are the text of the page, unless all of them come `again` on other pages.
    """
    group: list[_Edge] = []
    for at, (edge, inner) in enumerate(pairwise(inwards)):
        row, inner_row = edge.lines, inner.lines
        box, inner_box = row[0].box, inner_row[0].box
        is_near = abs(box.top - inner_box.top) < _NEXT * box.height
        is_of_table = is_near and min(len(row), len(inner_row)) > 1
        is_in_box = any(len(outer.lines) > 1 for outer in group) and id(edge) in again
        if is_of_table and not {id(edge), id(inner)} <= again:  # the text of the page has begun
            return
        length = sum(len(line.text) + 1 for line in row)
        if length > _LENGTH or (at >= (_TOP if edge.is_head else _BOTTOM) and not is_in_box):
            return
        group.append(edge)
        is_ruled = not any(map(str.isalnum, _text(inner_row)))
        gap = max(box.top - inner_box.bottom, inner_box.top - box.bottom)
        if is_ruled or (not is_of_table and gap > _FROM_TEXT * box.height):
            yield [*group, inner] if is_ruled else group
            group = []


def _edge(page: int, row: Row, reach: Box, *, is_head: bool, is_large: bool) -> _Edge:
    numbers, words = [], []
    for line in row:
        number = _number_in(line, row, reach)
        before, _, behind = line.text.partition(number) if number else (line.text, "", "")
        numbers.append(number)
        if text := f"{before.rstrip(_BEFORE)} {behind.lstrip(_BEHIND)}".strip() if number else before:
            words.append(line if text == line.text else line._replace(text=text, words=()))
    if len(row) == 1 and not numbers[0] and (match := _NUMBER_BESIDE_WORDS.fullmatch(row[0].text)):
        side = match.lastgroup or ""
        words = [row[0]._replace(text=row[0].text.replace(match[side], "", 1).strip(), words=())]
        return _Edge(page, is_head, is_large, row, match[side], words, side=side)
    return _Edge(page, is_head, is_large, row, " ".join(filter(None, numbers)), words)


def _number_in(line: Line, row: Row, reach: Box) -> str:
    """What may be a page number in a line; a bare number is alone, or apart from the words of its row."""
    match = _NUMBER_ALONE.fullmatch(line.text)
    heads = line is row[0] and row[-1].box.left - line.box.right < _HEADED * line.box.height
    # At a margin, or in the middle of the page.
    margins = line.box.left - reach.left, reach.right - line.box.right, abs(line.box.across - reach.across)
    is_apart = len(row) == 1 or (min(margins) < _SLACK and not heads)
    if match and (match["page"] or is_apart):
        return line.text
    amid = _NUMBER_AMID_WORDS.search(line.text)
    return amid[0] if amid else ""


def _running_edges(edges: Sequence[_Edge]) -> Iterator[list[_Edge]]:
    """The headers and footers, each with its repeats on other pages, which differ in page numbers only."""
    by_count, by_text = defaultdict[object, list[_Edge]](list), defaultdict[object, list[_Edge]](list)
    for edge in edges:
        for text, first in _numberings(edge):
            by_count[edge.height, _text(edge.words), text, first].append(edge)
    # A number is the page's only if it grows with the pages: invoices and years belong to the text.
    series = (edges for edges in by_count.values() if len({edge.page for edge in edges}) >= _NUMBERED_PAGES)
    counting = {id(edge) for edges in series for edge in edges}
    printed = [
        edge if edge.side or id(edge) in counting else edge._replace(number="", words=edge.lines)
        for edge in edges
    ]
    for edge in printed:
        by_text[edge.height, _text(edge.words), edge.outer].append(edge)
    # Large ones in groups of successive or facing pages: the same heading may come again.
    groups = (
        runs(edges, lambda group, edge: not edge.is_large or edge.page - group[-1].page <= _FACING)
        for edges in by_text.values()
    )
    for repeats in chain.from_iterable(groups):
        # Two pages may have a heading in common, but not one that counts them.
        if any(edge.number for edge in repeats) or len({edge.page for edge in repeats}) >= _PAGES:
            yield repeats


def _text(row: Row) -> str:
    """The words of a row, whichever of its ends they are at, as on facing pages."""
    return " ".join(sorted(line.text for line in row))


def _numberings(edge: _Edge) -> Iterator[tuple[str, int]]:
    """For each number that may be the page's: the text around it, and what it is on the first page."""
    roman = edge.number.strip(_BEFORE)
    if _ROMAN.fullmatch(roman):
        yield "", label_value(roman) - edge.page
    for number in _DIGITS.finditer(edge.number):
        yield edge.number[: number.start()] + "#" + edge.number[number.end() :], int(number[0]) - edge.page


def _places(edge: _Edge) -> Iterator[tuple[object, ...]]:
    """What an edge has in common with its repeats: all words, or those beside what may count pages."""
    yield edge.is_head, edge.height, _text(edge.lines)
    for numbering in _numberings(edge):
        yield edge.is_head, edge.height, _text(edge.words), numbering
