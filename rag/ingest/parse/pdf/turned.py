"""Words that run across a PDF page: where they stand side by side over columns, they are their headers."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING

from rag.ingest.parse.pdf.hyphens import with_next_line
from rag.ingest.parse.pdf.layout import level_rows
from rag.ingest.parse.pdf.words import Box, as_read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.ingest.parse.pdf.layout import Row
    from rag.ingest.parse.pdf.words import Line

_FEWEST = 2  # headers beside each other, and cells below them
_MOST = 400  # turned lines of a page; more of them are no headers
_LEADING = 0.4  # times the size of the letters: how far apart the lines of one header are
_WITHIN = 0.1  # the same: a gap within a word
_OVER = 3.0  # the same: how far above the row of its column a header ends


def with_headers(lines: Sequence[Line]) -> list[Line]:
    """The lines of a page, with turned headers of columns as level lines, one for each header.

    What else is turned stays as it is: axes of charts, stamps at the margin.
    """
    level = [line for line in lines if not line.turned]
    turned = [line for line in lines if line.turned]
    if not _FEWEST <= len(turned) <= _MOST:
        return list(lines)
    parts = {(header := _header(group)).place: (header, group) for group in _near(turned)}
    rows = level_rows(level)
    for band in level_rows([header for header, _ in parts.values()]):
        if _are_over_columns(band, rows):
            level += band
            turned = [line for line in turned if not any(line in parts[one.place][1] for one in band)]
    return level + turned


def _near(lines: Sequence[Line]) -> list[list[Line]]:
    """The lines in groups of those that stand close to each other and are turned the same way."""
    groups: list[list[Line]] = []
    for line in lines:
        near = [group for group in groups if any(_are_near(line, one) for one in group)]
        apart = [group for group in groups if group not in near]
        groups = [*apart, [line, *chain.from_iterable(near)]]
    return groups


def _are_near(one: Line, other: Line) -> bool:
    reach = _LEADING * max(one.size, other.size)
    box = one.box
    around = Box(box.left - reach, box.top - reach, box.right + reach, box.bottom + reach)
    return one.turned == other.turned and around.touches(other.box)


def _header(lines: Sequence[Line]) -> Line:
    """Turned lines as a level one, which stands where they do."""
    first, box, text = lines[0], lines[0].box, ""
    for line in lines:
        box = box.around(line.box)
    for row in level_rows([line._replace(box=_levelled(line)) for line in lines]):
        words = row[0].text
        for before, line in pairwise(row):
            apart = line.box.left - before.box.right > _WITHIN * line.size
            words += f" {line.text}" if apart else line.text
        text = with_next_line(text, words) if text else words
    return first._replace(text=text, box=box, turned=0, words=())


def _levelled(line: Line) -> Box:
    """Where a turned line stands for those who turn their head."""
    box = line.box
    return as_read(Box(box.left, -box.bottom, box.right, -box.top), line.turned)


def _are_over_columns(headers: Row, rows: Sequence[Row]) -> bool:
    """Whether headers stand over the cells of the row below them, and nothing stands between them."""
    band = headers[0].box
    for header in headers:
        band = band.around(header.box)
    below = next((row for row in rows if row[0].box.top + row[0].box.bottom > 2 * band.bottom), [])
    if min(len(headers), len(below)) < _FEWEST:
        return False
    reach = max(header.size for header in headers)
    over = [
        any(cell.box.left < one.box.right + reach and cell.box.right > one.box.left - reach for cell in below)
        for one in headers
    ]
    return (
        below[0].box.top - band.bottom < _OVER * reach
        and 2 * sum(over) >= len(headers)
        and not any(_is_between(line.box, band) for row in rows for line in row)
    )


def _is_between(box: Box, band: Box) -> bool:
    middle = (box.top + box.bottom) / 2
    return band.left <= box.left and box.right <= band.right and band.top < middle < band.bottom
