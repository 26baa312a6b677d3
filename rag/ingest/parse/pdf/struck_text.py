"""Which letters of a PDF page are struck out by the strokes on it, and which strokes rule something.

A stroke strikes letters out if it runs through the middle of most letters between its ends, and is as wide as
they are. Such strokes don't count as rules.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
from itertools import chain

from rag.ingest.parse.pdf.text_page import HYPHEN, Box, Pdfium, TextPage, as_read, box_around

STRUCK = "~~"  # around words that are struck out, as in Markdown
RULE_WIDTH = 5.0  # points: of an upright rule, with half its stroke on either side

_MOST_OBJECTS = 20_000  # of a page: more of them are a drawing
_LONG = 8.0  # points: shorter strokes rule nothing
_SHORT = 3.0  # points: what strikes a letter out is longer
_MOST_STROKES = 1_000  # of a page that may strike letters out; more of them are a drawing
_INWARD = 2.0  # points: how far from the end of a stroke its last letter is
_MOST_STRUCK = 500  # characters that a stroke strikes out
_THIRD = 1 / 3  # of the height of a letter, in the middle, where a stroke strikes it out
_SLIGHT, _SPACE = 0.1, 0.6  # times the height of a line: next to nothing, and a space


def strokes_of(page: Pdfium) -> list[Box]:
    """The strokes on a page, such as the rules of a table and what strikes words out, and edges of frames."""
    import pypdfium2.raw as pdfium  # noqa: PLC0415 in the child only

    count = pdfium.FPDFPage_CountObjects(page)
    if count > _MOST_OBJECTS:
        return []
    edges = [ctypes.c_float() for _ in range(4)]
    strokes = []
    for number in range(count):
        drawn = pdfium.FPDFPage_GetObject(page, number)
        if pdfium.FPDFPageObj_GetType(drawn) != pdfium.FPDF_PAGEOBJ_PATH:
            continue
        if not pdfium.FPDFPageObj_GetBounds(drawn, *edges):
            continue
        left, bottom, right, top = (edge.value for edge in edges)
        if not all(map(math.isfinite, (left, bottom, right, top))):
            continue
        stroke = Box(left, bottom, right, top)
        if min(stroke.width, stroke.height) >= _LONG:  # a frame: its edges may be rules of a table
            strokes += [Box(left, bottom, right, bottom), Box(left, top, right, top)]
            strokes += [Box(left, bottom, left, top), Box(right, bottom, right, top)]
        elif max(stroke.width, stroke.height) >= _SHORT:
            strokes.append(stroke)
    return strokes


def struck_and_rules(
    page: TextPage, strokes: Sequence[Box], strikes: Iterable[Box]
) -> tuple[set[int], list[Box]]:
    """The letters that are struck out, also by the marks `strikes`, and the strokes that are rules."""
    thin = [stroke for stroke in strokes if 0 < min(stroke.width, stroke.height) < RULE_WIDTH]  # no frames
    struck = {stroke: _struck_by(page, stroke) for stroke in thin[:_MOST_STROKES]}
    struck = {stroke: letters for stroke, letters in struck.items() if _is_as_wide(page, stroke, letters)}
    long = (stroke for stroke in strokes if max(stroke.width, stroke.height) >= _LONG)
    marked = (_struck_by(page, strike) for strike in strikes)
    return {*chain(*struck.values(), *marked)}, [stroke for stroke in long if stroke not in struck]


def _struck_by(page: TextPage, stroke: Box) -> list[int]:
    """The letters near the ends of a stroke and between them, if it runs through most of them."""
    inward = min(_INWARD, max(stroke.width, stroke.height) / 3)
    if stroke.width > stroke.height:
        ends = (stroke.left + inward, stroke.middle), (stroke.right - inward, stroke.middle)
    else:
        ends = (stroke.across, stroke.top + inward), (stroke.across, stroke.bottom - inward)
    first, last = sorted(page.character_near(*end) for end in ends)  # asking for each letter takes long
    between = page.text[first : min(last, first + _MOST_STRUCK) + 1] if first >= 0 else ""
    letters = [at for at, letter in enumerate(between, first) if letter not in f" {HYPHEN}"]
    struck = [at for at in letters if _is_struck(page, at, stroke, 1.0)]  # also those above the line
    in_middle = [at for at in struck if _is_struck(page, at, stroke, _THIRD / 2)]
    return struck if 2 * len(in_middle) > len(letters) else []


def _is_struck(page: TextPage, at: int, stroke: Box, reach: float) -> bool:
    """Whether a stroke runs over a letter, no further from its middle than `reach` times its height."""
    box, quarter = page.box_at(at), page.quarter_at(at)
    if not box:
        return False
    letter, line = as_read(box, quarter), as_read(stroke, quarter)
    is_thin = line.height < _THIRD * letter.height
    is_over = line.left <= letter.across <= line.right
    return is_thin and is_over and abs(line.middle - letter.middle) <= reach * letter.height


def _is_as_wide(page: TextPage, stroke: Box, letters: Sequence[int]) -> bool:
    """Whether a stroke is as wide as these letters, perhaps with the spaces around them."""
    boxes = [box for at in (*letters[:1], *letters[-1:]) if (box := page.box_at(at))]
    if not boxes:
        return False
    quarter = page.quarter_at(letters[0])
    words, line = as_read(box_around(boxes), quarter), as_read(stroke, quarter)
    slack = line.height + _SLIGHT * words.height
    beyond = words.left - line.left, line.right - words.right
    return -slack < min(beyond) and max(beyond) < slack + _SPACE * words.height
