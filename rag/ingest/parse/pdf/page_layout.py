"""What lies where on a PDF page: its columns of text, and the rows in each of them.

A gutter is an empty vertical strip in a band of the page. Its sides are columns of text if the file stores
them one after the other, or if their sentences run on from line to line; otherwise they are cells of a table.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, groupby, pairwise
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from rag.ingest.parse.document_parts import runs
from rag.ingest.parse.pdf.pdf_words import Line, rules_between
from rag.ingest.parse.pdf.readable_pages import STOP_WORDS
from rag.ingest.parse.pdf.text_page import HYPHEN, Box, box_around

Row: TypeAlias = "list[Line]"
"""Lines at one height with wide gaps between them, as they are read: a line of text, or cells."""

# Least lines of a column: in a small region, if the file stores it in one go, and otherwise.
_FEW, _BLOCK, _FEWEST = 2, 3, 4
_DEPTH = 6  # columns and bands inside of one another
_GUTTER = 5.0  # points between two columns at least
_NARROW = 4.0  # times the size of the letters: a wider gutter may be a picture amid the lines of one text
_SAME_EDGE = 2.0  # points
MEETING = 0.5  # points between two rules that meet; the frame of a tick box in another one is further off
_PROSE = 8.0  # times the size of its letters: how wide the lines of a column of text are, and no cells
_MOSTLY = 0.6  # share of the characters of a column that stand in such lines
_LINES_A_CHANGE = 4  # lines of a column that the file has in one go on average, of a part of a region
_CROSSING = 0.3  # share of lines across a gutter, as of a caption between two columns
_FLOWS = 0.5  # share of lines that go on with a sentence of the line above
_APART = 0.6  # times the height of a line: an empty strip across the page that parts two bands
_MOST_BANDS = 24  # between such strips; more are rows of a table
_RULES = 3  # horizontal rules across a gutter that frame the rows of a table
_CELL = 3  # lines of a cell between two rules
_ROWS_APART = 14  # times the height of a line: how far the rules of one table are apart at most
_NEAR = 1.0  # times the size of the letters: a gap within a line
_BULLET = re.compile(r"[•●▪▫◦‣⁃∙·■□◆❖✓✔➢➤►\uf000-\uf0ff]")
_NUMBERED = re.compile(r"[–—*-]|\(?(\d{1,2}|[a-z]|[ivx]{1,4})[.)]", re.IGNORECASE)
_MARKED_TEXT = 20  # characters of an item at least, without its number
_MARK_GAP = 4.0  # times the size of the letters: how far the text of an item stands from its mark
_TOP = itemgetter(1)
_SENTENCE_END = re.compile(r"[.!?:;。！？]['\"”’)\]]*\Z")


def rows_of(lines: Sequence[Line], rules: Sequence[Box]) -> Iterator[list[Row]]:
    """The rows of each region of a page: of each column, and of what stands across columns."""
    uprights = sorted(rule for rule in rules if rule.width < _GUTTER < rule.height)
    level = sorted((rule for rule in rules if rule.height < _GUTTER), key=_TOP)
    for region in _regions(sorted(lines, key=lambda line: line.box.top), joined_rules(rules), _DEPTH):
        yield [joined_row(row, uprights, level) for row in level_rows(region)]


def _regions(lines: Sequence[Line], rules: Sequence[Box], depth: int) -> Iterator[Sequence[Line]]:
    bands = _bands(lines, rules) if depth else None
    if bands is None:
        if lines:
            yield lines
        return
    for band in bands:
        if isinstance(band, _Columns):
            for column in _reading_order(band, first=int(_runs_left(lines))):  # the right one, in Hebrew
                yield from _regions(column, rules, depth - 1)
        else:
            yield from _regions(band, rules, depth - 1)


def joined_rules(rules: Sequence[Box]) -> list[Box]:
    """The horizontal rules from top to bottom; those that touch, as the borders of cells do, are one."""
    level = [rule for rule in rules if rule.height < _GUTTER < rule.width]
    level.sort(key=lambda rule: (round(rule.top / _SAME_EDGE), rule.left))
    joined: list[Box] = []
    for rule in level:
        last = joined[-1] if joined else None
        is_same = last and round(last.top / _SAME_EDGE) == round(rule.top / _SAME_EDGE)
        if last and is_same and rule.left <= last.right + _SAME_EDGE:
            joined[-1] = last.around(rule)
        else:
            joined.append(rule)
    return joined


class _Columns(NamedTuple):
    """Lines to the left and to the right of a gutter, from top to bottom."""

    left: list[Line]
    right: list[Line]

    @property
    def fewest(self) -> int:
        return min(len(self.left), len(self.right))


_Band: TypeAlias = "_Columns | list[Line]"


def _reading_order(columns: _Columns, first: int) -> list[list[Line]]:
    """The columns in reading order; they alternate where both go on below, as figures below text."""
    marked = [(line, side) for side in (0, 1) for line in columns[side]]
    marked.sort(key=lambda mark: mark[0].order)
    turns = [
        (side, [line for line, _ in run]) for side, run in groupby(marked, key=lambda mark: mark[1] != first)
    ]
    ends = [-math.inf, -math.inf]
    for side, run in turns:  # each turn must be a block of its own, below the earlier ones of its side
        reach = _reach(run)
        if len(run) < _FEW or reach.top < ends[side] - _APART * run[0].box.height:
            break
        ends[side] = reach.bottom
    else:
        if not turns[0][0]:  # the side read first is where the file begins
            return [sorted(run, key=lambda line: line.box.top) for _, run in turns]
    return [columns[first], columns[1 - first]]


def _bands(lines: Sequence[Line], rules: Sequence[Box]) -> list[_Band] | None:
    """The bands of a region, by the gutter that puts most lines in columns; None without such a gutter."""
    if len(lines) < 2 * _FEW:
        return None
    edges = sorted({round(line.box.left / _SAME_EDGE) for line in lines})
    sides = [((edge - 1) * _SAME_EDGE, _columns_at(lines, (edge - 1) * _SAME_EDGE)) for edge in edges]
    sides.sort(key=lambda side: -side[1].fewest)  # the best first, so that most aren't judged
    best: list[_Band] | None = None
    best_count = _FEW - 1
    for edge, columns in sides:
        if columns.fewest <= best_count:
            break  # no later gutter has as many lines beside it
        are_columns = _are_columns(columns, lines)
        if not are_columns and not _may_be_prose(columns):  # cheaper than dividing the region
            continue
        bands = _bands_at(lines, rules, edge, are_columns=are_columns)
        if (count := sum(band.fewest for band in bands if isinstance(band, _Columns))) > best_count:
            best, best_count = bands, count
    return best


def _columns_at(lines: Sequence[Line], edge: float) -> _Columns:
    """The lines that lie wholly to the left and to the right of a gutter, which ends at `edge`."""
    left = [line for line in lines if line.box.right <= edge - _GUTTER]
    return _Columns(left, [line for line in lines if line.box.left >= edge])


def _bands_at(lines: Sequence[Line], rules: Sequence[Box], edge: float, *, are_columns: bool) -> list[_Band]:
    """The bands of a region: lines and tables across the gutter, and the lines between these."""
    crossing = [rule for rule in rules if rule.left < edge - _GUTTER and rule.right > edge]
    tables = _ruled_tables(lines, crossing, edge)
    bands: list[_Band] = []
    for is_across, lines_of in groupby(lines, key=lambda line: _is_across(line, edge, tables)):
        group = list(lines_of)
        columns = _columns_at(group, edge)
        if is_across or columns.fewest < _FEW:  # a heading or a picture amid both
            parted: list[_Band] = [group]
        elif are_columns or _are_prose(columns):  # the region as a whole, or this band of it
            parted = [columns]
        else:
            parted = _columns_in(group, crossing, edge)
        for band in parted:
            if bands and isinstance(band, list) and isinstance(bands[-1], list):
                bands[-1] += band
            else:
                bands.append(band)
    return bands


def _is_across(line: Line, edge: float, tables: Sequence[Box]) -> bool:
    stands_across = edge - _GUTTER < line.box.right and line.box.left < edge
    return stands_across or any(table.top <= line.box.middle <= table.bottom for table in tables)


def _ruled_tables(lines: Sequence[Line], crossing: Sequence[Box], edge: float) -> list[Box]:
    """The boxes of tables whose rules cross the gutter and frame rows that the file stores one by one."""
    reach = _ROWS_APART * max(line.box.height for line in lines)
    frames = runs(crossing, lambda frame, rule: rule.top - frame[-1].top <= reach)
    return [
        Box(frame[0].left, frame[0].top, frame[-1].right, frame[-1].bottom)
        for frame in frames
        if len(frame) >= _RULES and _are_rows(lines, frame, edge)
    ]


def _are_rows(lines: Sequence[Line], rules: Sequence[Box], edge: float) -> bool:
    """Whether rules divide both sides of a gutter into cells, or into text that is stored row by row."""
    # Sorted once: holding each pair of rules against all lines took seconds on a page of 1,600 ruled rows.
    by_middle = sorted(range(len(lines)), key=lambda at: lines[at].box.middle)
    middles = [lines[at].box.middle for at in by_middle]
    between = (
        by_middle[bisect_left(middles, above.top) : bisect_right(middles, below.top)]
        for above, below in pairwise(rules)
    )
    parts = [_columns_at([lines[at] for at in sorted(part)], edge) for part in between]
    rows = [part for part in parts if part.fewest]
    whole = _Columns(*([line for row in rows for line in row[side]] for side in (0, 1)))
    if len(rows) < _FEW:  # one row may be anything
        return False
    cells = [row for row in rows if max(map(len, row)) <= _CELL]
    return 2 * len(cells) > len(parts) or _side_changes(whole) >= len(rows) or not _are_prose(whole)


def _columns_in(lines: list[Line], crossing: Sequence[Box], edge: float) -> list[_Band]:
    """The longest stretch of lines that is two columns of text, and the bands above and below it."""
    stretches = _stretches(lines, crossing)
    if not 1 < len(stretches) <= _MOST_BANDS or not _may_be_prose(_columns_at(lines, edge)):
        return [lines]
    sides = [_columns_at(stretch, edge) for stretch in stretches]
    best: tuple[int, int, _Columns] | None = None
    best_weight = 0
    for begin, end in combinations(range(len(stretches) + 1), 2):  # at most 24 stretches, so 300 pairs
        columns = _Columns(*(list(chain.from_iterable(part)) for part in zip(*sides[begin:end], strict=True)))
        # The cheap tests come first: of some hundred pairs, few are judged by their sentences.
        weight = len(columns.left) + len(columns.right)
        if (
            weight > best_weight
            and (weight := weight - _LINES_A_CHANGE * _side_changes(columns)) > best_weight
            and _are_prose(columns)
        ):
            best, best_weight = (begin, end, columns), weight
    if best is None:
        return [lines]
    begin, end, columns = best
    above, below = (list(chain.from_iterable(part)) for part in (stretches[:begin], stretches[end:]))
    bands = [_columns_in(part, crossing, edge) if part else [] for part in (above, below)]
    return [*bands[0], columns, *bands[1]]


def _stretches(lines: Sequence[Line], crossing: Sequence[Box]) -> list[list[Line]]:
    """Lines from top to bottom, divided at empty strips and at rules across the gutter."""
    parted: list[list[Line]] = []
    reach = 0.0
    for line in lines:
        is_apart = line.box.top - reach > _APART * line.box.height
        if not parted or is_apart or any(reach - 1 <= rule.top <= line.box.top + 1 for rule in crossing):
            parted.append([])
            reach = line.box.bottom
        parted[-1].append(line)
        reach = max(reach, line.box.bottom)
    return parted


def _are_columns(columns: _Columns, lines: Sequence[Line]) -> bool:
    """Whether a region is two columns of text next to each other, rather than cells of a table."""
    beside = _overlap(columns)
    if beside is None or beside.fewest < _FEW:
        return False
    changes, count = _side_changes(beside), len(beside.left) + len(beside.right)
    is_block = beside.fewest >= _BLOCK or count == len(lines) <= 2 * _FEWEST
    may_be_text = beside.fewest >= _FEWEST and changes <= beside.fewest / 2
    if not (changes == 1 and is_block) and not (may_be_text and all(map(_is_prose, beside))):
        return False
    shared = _shared_reach(columns)  # above and below it, anything may stand across
    across = sum(_is_within(line, shared) for line in lines) - count
    return across <= _CROSSING * count


def _reach(lines: Sequence[Line]) -> Box:
    return box_around(line.box for line in lines)


def _shared_reach(columns: _Columns) -> Box:
    """From the left of one side to the right of the other, where both have lines."""
    left, right = map(_reach, columns)
    return Box(left.left, max(left.top, right.top), right.right, min(left.bottom, right.bottom))


def _overlap(columns: _Columns) -> _Columns | None:
    """The lines of each side that are level with the other side; None if that is less than half of either."""
    if not columns.fewest:
        return None
    shared = _shared_reach(columns)
    if shared.height < min(_reach(side).height for side in columns) / 2:
        return None
    return _Columns(*([line for line in side if _is_within(line, shared)] for side in columns))


def _are_prose(columns: _Columns) -> bool:
    """Whether both sides are text that the file stores in one go, or that runs on across a narrow gutter."""
    beside = _overlap(columns)
    if beside is None:
        return False
    wide = _Columns(*([line for line in side if _is_wide(line)] for side in beside))
    if wide.fewest < _FEWEST or not all(map(_is_prose, beside)):
        return False
    # A line or two of one side may come amid the other, such as a caption.
    is_in_one_go = _side_changes(wide) <= max(1, wide.fewest / _LINES_A_CHANGE)
    if is_in_one_go and _side_changes(beside) <= beside.fewest / 2:
        return True
    # OCR and some programs store both columns line by line: then only sentences tell them from cells.
    gutter = min(line.box.left for line in wide.right) - max(line.box.right for line in wide.left)
    return gutter <= _NARROW * wide.left[0].size and all(map(_flows, wide))


def _may_be_prose(columns: _Columns) -> bool:
    return all(sum(map(_is_wide, side)) >= _FEWEST for side in columns)


def _is_wide(line: Line) -> bool:
    return line.box.width >= _PROSE * (line.size or 1.0)


def _is_prose(lines: Sequence[Line]) -> bool:
    """Whether most characters of a side are in wide lines."""
    wide = sum(len(line.text) for line in lines if _is_wide(line))
    return wide >= _MOSTLY * sum(len(line.text) for line in lines)


def _flows(lines: Sequence[Line]) -> bool:
    """Whether most lines right below others in their letters continue the sentence."""
    pairs = [
        (above, line)
        for above, line in pairwise(lines)
        # Headings side by side and rows of a small table can't go on, and don't count as ends of sentences.
        if above.size == line.size and line.box.top - above.box.bottom < _APART * line.box.height
    ]
    return sum(reads_on(above.text, line.text) for above, line in pairs) >= _FLOWS * max(len(pairs), 1)


def reads_on(above: str, below: str) -> bool:
    """Whether a line continues the sentence above: no sentence ends there, and none begins here."""
    if above.endswith(("-", HYPHEN)):
        return True  # a cut word goes on whatever its first letter below is
    first = next(filter(str.isalpha, below), "")
    # A digit or a sign may begin an item as well as go on.
    begins = first.isupper() or not first or not below[:1].strip("(\"'“‘").isalpha()
    return not begins and not ends_sentence(above)


def ends_sentence(text: str) -> bool:
    """Whether a text ends with a sign that ends a sentence."""
    return _SENTENCE_END.search(text) is not None


def _is_within(line: Line, reach: Box) -> bool:
    return reach.top <= line.box.bottom and line.box.top <= reach.bottom


def _side_changes(columns: _Columns) -> int:
    """How often the file changes from one side to the other, as it does in each row of a table."""
    sides = sorted([(line.order, 0) for line in columns.left] + [(line.order, 1) for line in columns.right])
    return sum(side != next_side for (_, side), (_, next_side) in pairwise(sides))


def level_rows(lines: Sequence[Line]) -> list[Row]:
    """Rows from top to bottom: the lines at one height, from left to right."""
    rows: list[Row] = []
    reach = Box(0, 0, 0, 0)
    for line in sorted(lines, key=lambda line: line.box.middle):  # letters of other sizes have other tops
        if rows and line.box.is_level_with(reach):
            rows[-1].append(line)
            reach = reach if reach.height >= line.box.height else line.box  # a superscript isn't the row
        else:
            rows.append([line])
            reach = line.box
    return [sorted(row, key=lambda line: line.box.left) for row in rows]


def joined_row(row: Row, uprights: Sequence[Box] = (), level: Sequence[Box] = ()) -> Row:
    """A row in reading order, with lines that are close to each other joined, unless they are two cells.

    Two cells have one of the upright rules, which are sorted by `left`, between them, and some of the level
    ones, sorted by `top`, meet it.
    """
    if len(row) == 1 or all(line.table for line in row):  # `page_tables` knows the direction of a drawn table
        return row
    backwards = _runs_left(row)
    if backwards:
        row = row[::-1]
    joined = [row[0]]
    for line in row[1:]:
        last = joined[-1]
        gap = last.box.left - line.box.right if backwards else line.box.left - last.box.right
        reach = _MARK_GAP if _is_list_mark(last, line, row) else _NEAR
        # A word cut by a hyphen goes on in the line below: what stands right of it is another column.
        is_near = gap <= reach * max(last.size, line.size) and not last.text.endswith(HYPHEN)
        if is_near and not line.table and not _are_cells(last.box, line.box, uprights, level):
            largest = max(last, line, key=lambda part: len(part.text))  # its looks count for the line
            joined[-1] = largest._replace(
                text=f"{last.text} {line.text}",
                box=last.box.around(line.box),
                bold=last.bold and line.bold,
                words=() if backwards else last.words + line.words,
            )
        else:
            joined.append(line)
    return joined


def _are_cells(box: Box, following: Box, uprights: Sequence[Box], level: Sequence[Box]) -> bool:
    """Whether an upright rule parts two lines, and level ones meet it from both sides, as in a table."""
    for upright in rules_between(box, following, uprights):
        left, top, right, bottom = upright
        near = Box(left - _SAME_EDGE, top - MEETING, right + _SAME_EDGE, bottom + MEETING)
        first = bisect_left(level, near.top - _GUTTER, key=_TOP)
        last = bisect_right(level, near.bottom, key=_TOP)
        reach = box_around([upright, *(rule for rule in level[first:last] if rule.touches(near))])
        # Level rules on one side only are the frame of a key or of a tick box.
        if reach.left < near.left and near.right < reach.right:
            return True
    return False


def _is_list_mark(mark: Line, line: Line, row: Row) -> bool:
    """Whether `mark` is the bullet or number of a list item, and `line` its text."""
    if _BULLET.fullmatch(mark.text):
        return True
    is_first = mark is row[0] and len(row) == 2  # noqa: PLR2004 a mark and its text
    return is_first and len(line.text) >= _MARKED_TEXT and bool(_NUMBERED.fullmatch(mark.text))


def has_list_mark(text: str) -> bool:
    """Whether a line begins with the bullet or number of a list item."""
    mark, _, words = text.partition(" ")
    return bool(words and (_BULLET.fullmatch(mark) or _NUMBERED.fullmatch(mark)))


def _runs_left(lines: Sequence[Line]) -> bool:
    return 2 * sum(line.runs_left for line in lines) > len(lines)


# Words that lines cut, joined by the vocabulary of the whole document.

_CUT = re.compile(rf"(?P<start>[^\W_]+)[-\u00ad\u2010{HYPHEN}]\n(?P<end>[^\W_]+)")
WRAPPED = "\ufdd0"  # in what may be one word: where a line of a cell ends, and behind a large initial
_FRAGMENT = 3  # letters
_WRAPPED_WORD = re.compile(rf"[^\W_]+(?:{WRAPPED}[^\W_]+)+")
_WORD = re.compile(r"[^\W_]+(?:[-\u2010][^\W_]+)*")
_LONG_LINE = re.compile(r"^.{40}", re.MULTILINE)
_RARE = 40  # long lines for each cut word: text that cuts words does it in every 8th to 20th line


def dehyphenator(text: str) -> Callable[[str], str]:
    """A function that rejoins words that are cut at line ends, by the vocabulary of the document `text`.

    If the document has the word elsewhere, with or without its hyphen, that spelling wins. Otherwise the
    hyphen stays before a capital letter or a digit, in documents that rarely end a line with a hyphen, and
    between two words of the document if no line certainly hyphenates a word. In all other cases it goes.

    A word that may be wider than its cell is whole again if the document has it elsewhere, if it takes three
    lines, or if its rest is too short for a word.
    """
    whole_words = _CUT.sub(" ", _WRAPPED_WORD.sub(" ", text))
    words = frozenset(word.casefold() for word in _WORD.findall(whole_words))
    cuts = sum(_is_cut(match["start"], match["end"]) for match in _CUT.finditer(text))
    is_rare = cuts * _RARE < len(_LONG_LINE.findall(text))
    cuts_words = any(_is_certainly_cut(match, words) for match in _CUT.finditer(text))

    def joined(match: re.Match[str]) -> str:
        start, end = match["start"], match["end"]
        whole = (start + end).casefold()
        if whole in words and f"{start}-{end}".casefold() not in words:
            return start + end
        is_compound = is_rare or (not cuts_words and {start.casefold(), end.casefold()} <= words)
        if is_compound or not _is_cut(start, end) or f"{start}-{end}".casefold() in words:
            return f"{start}-{end}"
        return start + end

    def unwrapped(match: re.Match[str]) -> str:
        start, *rest = parts = match[0].casefold().split(WRAPPED)
        if len(start) == 1:  # an initial
            is_one = start not in _VOWELS or rest[0] not in words or "".join(parts) in words
        else:
            is_fragment = len(rest[-1]) <= _FRAGMENT and rest[-1] not in words.union(*STOP_WORDS)
            is_one = is_fragment or len(rest) > 1 or "".join(parts) in words
        return match[0].replace(WRAPPED, "" if is_one else " ")

    def whole(part: str) -> str:
        part = _WRAPPED_WORD.sub(unwrapped, part)
        while (shorter := _CUT.sub(joined, part)) != part:  # a word may be cut more than once
            part = shorter
        return part.replace(HYPHEN, "-")

    return whole


_INITIAL = re.compile(r"[“‘„«\"']?[^\W\d_]")
_LARGE = 1.8  # times the size of the letters beside it
_MOST_INITIALS = 20  # of a page
_VOWELS = frozenset("aàeéioóuy")  # letters that are words


def with_initials(lines: Sequence[Line]) -> list[Line]:
    """The lines of a page, with a large letter beside several lines as a part of the first word of these."""
    initials = [line for line in lines if _INITIAL.fullmatch(line.text)]
    joined = {id(line): line for line in lines}
    for initial in initials if len(initials) <= _MOST_INITIALS else ():
        box = initial.box
        beside = [
            line
            for line in lines
            if box.top < line.box.middle < box.bottom
            and 0 <= line.box.left - box.right + _SAME_EDGE <= _SAME_EDGE + line.size
            and _LARGE * line.size <= initial.size
        ]
        first = min(beside, key=lambda line: line.box.top, default=initial)
        word = first.text.partition(" ")[0]
        if len(beside) > 1 and (word[0].islower() or (word.isupper() and not first.text.isupper())):
            text = f"{initial.text}{WRAPPED}{first.text}"
            joined[id(first)] = first._replace(text=text, box=first.box._replace(left=box.left), words=())
            del joined[id(initial)]
    return [*joined.values()]


def with_next_line(cell: str, next_line: str) -> str:
    """A cell and its next line, joined by a space, or by a line feed below a hyphenated word."""
    line = f"{cell}\n{next_line}"
    last_word = max(cell.rfind("\n"), cell.rfind(" ")) + 1  # a cell can be all the rows of a page
    return line if _CUT.search(line, last_word) else f"{cell} {next_line}".strip()


def _is_cut(start: str, end: str) -> bool:
    return start[-1].islower() and end[0].islower() and not any(map(str.isdigit, start + end))


def _is_certainly_cut(match: re.Match[str], words: frozenset[str]) -> bool:
    """Whether a line certainly hyphenates a word: a half isn't in the vocabulary, or the whole is."""
    start, end = match["start"].casefold(), match["end"].casefold()
    return _is_cut(match["start"], match["end"]) and (start + end in words or not {start, end} <= words)
