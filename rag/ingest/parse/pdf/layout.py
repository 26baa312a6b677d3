"""The order in which a PDF page is read: its columns, and the rows in each of them."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rag.ingest.parse.pdf.words import Box, Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Row: TypeAlias = "list[Line]"
"""Lines at one height with wide gaps between them, as they are read: a line of text, or cells."""

_FEW, _FEWEST = 2, 4  # lines of a column that the file has in one go, and of others
_DEPTH = 4  # columns inside of one another
_GUTTER = 5.0  # points between two columns at least
_SAME_EDGE = 2.0  # points
_PROSE = 8.0  # times the size of its letters: how wide the lines of a column of text are, and no cells
_CROSSING = 0.3  # share of lines across a gutter, as of a caption between two columns
_RULES = 3  # horizontal rules across a gutter, which only a table has
_NEAR = 1.0  # times the size of the letters: a gap within a line


def rows_of(lines: Sequence[Line], rules: Sequence[Box], depth: int = _DEPTH) -> Iterator[list[Row]]:
    """The rows of each region of a page: of each column, and of what stands across columns."""
    split = _split(lines, rules) if depth else None
    if split is None:
        if lines:
            yield _rows(lines)
        return
    for band in _bands(split):
        if isinstance(band, _Split):
            columns = (band.right, band.left) if _runs_left(lines) else (band.left, band.right)
            for column in columns:
                yield from rows_of(column, rules, depth - 1)
        else:
            yield _rows(band)


class _Split(NamedTuple):
    """Lines to the left and to the right of a gutter, and across it."""

    left: list[Line]
    right: list[Line]
    across: list[Line]


def _split(lines: Sequence[Line], rules: Sequence[Box]) -> _Split | None:
    """The two columns that most lines stand in, if there are any."""
    if len(lines) < 2 * _FEW:
        return None
    edges = {round(line.box.left / _SAME_EDGE) for line in lines}
    found = [
        split for edge in sorted(edges) if _are_columns(split := _at(lines, (edge - 1) * _SAME_EDGE), rules)
    ]
    return max(found, key=lambda split: min(len(split.left), len(split.right)), default=None)


def _at(lines: Sequence[Line], edge: float) -> _Split:
    split = _Split([], [], [])
    for line in lines:
        if line.box.left >= edge:
            split.right.append(line)
        elif line.box.right <= edge - _GUTTER:
            split.left.append(line)
        else:
            split.across.append(line)
    return split


def _are_columns(split: _Split, rules: Sequence[Box]) -> bool:
    """Whether both sides are columns of text that stand beside each other, and no cells of a table."""
    if min(len(split.left), len(split.right)) < _FEW:
        return False
    one, other = _extent(split.left), _extent(split.right)
    top, bottom = max(one.top, other.top), min(one.bottom, other.bottom)
    if bottom - top < min(one.height, other.height) / 2:
        return False
    left, right, across = ([line for line in side if _is_within(line, top, bottom)] for side in split)
    fewest = min(len(left), len(right))
    if fewest < _FEW or len(across) > _CROSSING * (len(left) + len(right)):
        return False
    if _crossing(rules, one, other) >= _RULES:
        return False
    changes = _changes(left, right)
    if changes == 1:
        return True
    return fewest >= _FEWEST and changes <= fewest / 2 and _is_prose(left) and _is_prose(right)


def _is_within(line: Line, top: float, bottom: float) -> bool:
    return top <= line.box.bottom and line.box.top <= bottom


def _changes(left: Sequence[Line], right: Sequence[Line]) -> int:
    """How often the file goes over from one side to the other. It does for each row of a table."""
    sides = sorted([(line.place, 0) for line in left] + [(line.place, 1) for line in right])
    return sum(one != other for (_, one), (_, other) in pairwise(sides))


def _crossing(rules: Sequence[Box], one: Box, other: Box) -> int:
    """How many rules run across the gutter between two columns."""
    top, bottom = min(one.top, other.top), max(one.bottom, other.bottom)
    return sum(
        rule.height < _GUTTER
        and rule.left < one.right
        and rule.right > other.left
        and top <= rule.top <= bottom
        for rule in rules
    )


def _is_prose(lines: Sequence[Line]) -> bool:
    return median((line.box.right - line.box.left) / (line.size or 1.0) for line in lines) >= _PROSE


def _extent(lines: Sequence[Line]) -> Box:
    box = lines[0].box
    for line in lines[1:]:
        box = box.around(line.box)
    return box


def _bands(split: _Split) -> Iterator[_Split | list[Line]]:
    """What stands above, between and below lines across the columns; single lines join those."""
    marked = [(line, 0) for line in split.left] + [(line, 1) for line in split.right]
    marked += [(line, 2) for line in split.across]
    marked.sort(key=lambda mark: (mark[0].box.top, mark[1]))
    loose: list[Line] = []
    for is_across, marks in groupby(marked, key=lambda mark: mark[1] == 2):  # noqa: PLR2004 as above
        band = list(marks)
        left = [line for line, side in band if side == 0]
        right = [line for line, side in band if side == 1]
        if is_across or min(len(left), len(right)) < 2:  # noqa: PLR2004 one line is no column
            loose += [line for line, _ in band]
            continue
        if loose:
            yield loose
        loose = []
        yield _Split(left, right, [])
    if loose:
        yield loose


def level_rows(lines: Sequence[Line]) -> list[Row]:
    """The lines from top to bottom, those at one height together, from left to right."""
    rows: list[Row] = []
    reach = Box(0, 0, 0, 0)
    for line in sorted(lines, key=lambda line: line.box.top + line.box.bottom):
        if rows and line.box.is_level_with(reach):
            rows[-1].append(line)
            reach = reach if reach.height >= line.box.height else line.box
        else:
            rows.append([line])
            reach = line.box
    return [sorted(row, key=lambda line: line.box.left) for row in rows]


def body_size(lines: Iterable[Line]) -> float:
    """The size that most characters have."""
    sizes = Counter[float]()
    for line in lines:
        sizes[line.size] += len(line.text)
    return max(sizes, key=lambda size: sizes[size], default=0.0)  # most_common() imports a module: too late


def _rows(lines: Sequence[Line]) -> list[Row]:
    """The same in reading order, joined where they are near."""
    return [_joined(row) for row in level_rows(lines)]


def _joined(row: Row) -> Row:
    if len(row) == 1:
        return row
    backwards = _runs_left(row)
    if backwards:
        row = row[::-1]
    joined = [row[0]]
    for line in row[1:]:
        last = joined[-1]
        gap = last.box.left - line.box.right if backwards else line.box.left - last.box.right
        if gap <= _NEAR * max(last.size, line.size) and not last.text.endswith("\ufffe"):
            largest = max(last, line, key=lambda one: len(one.text))
            joined[-1] = largest._replace(
                text=f"{last.text} {line.text}",
                box=last.box.around(line.box),
                words=() if backwards else last.words + line.words,
            )
        else:
            joined.append(line)
    return joined


def _runs_left(lines: Sequence[Line]) -> bool:
    return 2 * sum(line.runs_left for line in lines) > len(lines)
