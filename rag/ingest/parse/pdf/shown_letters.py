"""The letters that a PDF page shows where its characters say something else.

LaTeX draws an accent as a glyph of its own over its letter, and pdfium has it before the letter, or some
words later. A font of symbols has codes where the file has no map to characters, or one to private ones.

And superscripts: 10 to the 11th is not 1011. What is set smaller and higher is marked for `typefaces`. What
is set lower stays a part of its word, as in CO2 and VCC, which people search for like this.

A stroke strikes letters out if it runs through the middle of most letters between its ends, and is as wide as
they are. Such strokes don't count as rules.
"""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, reduce
from itertools import chain, islice, product

from rag.ingest.parse.pdf.text_page import (
    HYPHEN,
    NAME_BYTES,
    Box,
    Pdfium,
    TextPage,
    Word,
    as_read,
    box_around,
)
from rag.ingest.parse.typefaces import SUP_END, as_script, shown_by, symbol_font

_ACCENTS = dict(
    zip(
        "`´ˆ˜¯˘˙¨˚˝ˇ¸˛",
        "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327\u0328",
        strict=True,
    )
)
"""Accents that stand alone, and the same behind a letter."""
_ACCENT = re.compile(f"[{''.join(_ACCENTS)}]")
_RUN = re.compile(rf"(?<! ) *{_ACCENT.pattern}(?: *{_ACCENT.pattern})* *")
_DOTTED = str.maketrans("ıȷ", "ij")  # letters that an accent gives their dot
_MOST = 1_000  # accents of a page
_REACH = 200  # characters between an accent and its letter
_ALIKE = 0.6  # times the height of the other: an accent, and its letter
_MOST_OBJECTS = 20_000  # of a page: more of them are a drawing
_DEEPEST = 10  # forms in each other
_VISIBLE, _PRIVATE = re.compile(r"\S"), re.compile("[\ue000-\uf8ff]")
_SPACE = 0.12  # times the height of a line: a gap between two words


def show_letters(page: TextPage, raw: Pdfium) -> TextPage:
    """The page, with the letters of symbol fonts, and with accents as parts of their letters."""
    _show_symbols(page, raw)
    _show_accents(page)
    return page


def _show_symbols(page: TextPage, raw: Pdfium) -> None:
    # Where no font has symbols in place of letters, only characters for private use may show something else.
    pattern = _VISIBLE if any(map(symbol_font, _fonts_on(raw))) else _PRIVATE
    letters = [*page.text]
    for match in pattern.finditer(page.text):
        letters[match.start()] = shown_by(match[0], page.font_name_at(match.start()))
    page.show(letters)


def _fonts_on(page: Pdfium) -> Iterator[str]:
    import pypdfium2.raw as pdfium  # noqa: PLC0415 in the child only

    fonts: dict[int, Pdfium] = {}
    for drawn, _ in _objects_on(page):
        is_text = pdfium.FPDFPageObj_GetType(drawn) == pdfium.FPDF_PAGEOBJ_TEXT
        if is_text and (font := pdfium.FPDFTextObj_GetFont(drawn)):
            fonts[ctypes.addressof(font.contents)] = font
    name = ctypes.create_string_buffer(NAME_BYTES)
    for font in fonts.values():
        pdfium.FPDFFont_GetBaseFontName(font, name, NAME_BYTES)
        yield name.value.decode("latin-1")


def _objects_on(page: Pdfium) -> Iterator[tuple[Pdfium, Sequence[Pdfium]]]:
    """The objects of a page, then those of its forms, each with the matrices of its forms, the inner first.

    Cairo has all that is on a page in a form. Where there are too many objects, the last forms are left out.
    """
    import pypdfium2.raw as pdfium  # noqa: PLC0415 as above

    count = pdfium.FPDFPage_CountObjects(page)
    objects: list[tuple[Pdfium, Sequence[Pdfium]]]
    objects = [(pdfium.FPDFPage_GetObject(page, at), ()) for at in range(count)]
    for drawn, matrices in objects:  # which become more by this loop
        yield drawn, matrices
        if pdfium.FPDFPageObj_GetType(drawn) != pdfium.FPDF_PAGEOBJ_FORM or len(matrices) == _DEEPEST:
            continue
        matrix, count = pdfium.FS_MATRIX(), pdfium.FPDFFormObj_CountObjects(drawn)
        if len(objects) + count <= _MOST_OBJECTS and pdfium.FPDFPageObj_GetMatrix(drawn, matrix):
            inner = [matrix, *matrices]
            objects += ((pdfium.FPDFFormObj_GetObject(drawn, at), inner) for at in range(count))


def _show_accents(page: TextPage) -> None:
    box_at = cache(page.box_at)  # accents have their letters in common that may be theirs
    characters = [*page.text]
    for match in islice(_ACCENT.finditer(page.text), _MOST):
        letter = _letter_at(page, match.start(), box_at)
        if letter is not None:
            # LaTeX sets an accent over an i without its dot.
            accented = characters[letter].translate(_DOTTED) + _ACCENTS[match[0]]
            characters[letter], characters[match.start()] = unicodedata.normalize("NFC", accented), ""
    for run in _RUN.finditer(page.text):
        if not "".join(characters[run.start() : run.end()]).strip(" "):  # pdfium puts spaces around an accent
            characters[run.start() : run.end()] = [""] * len(run[0])
            characters[run.start()] = _space_between(page, run.start() - 1, run.end())
    page.show(characters)


def _letter_at(page: TextPage, at: int, box_at: Callable[[int], Box | None]) -> int | None:
    quarter = page.quarter_at(at)
    if not (box := box_at(at)) or not (accent := as_read(box, quarter)).height:
        return None
    for near in _places_around(at, len(page.text)):
        if not page.text[near].isalpha() or page.text[near] in _ACCENTS or not (box := box_at(near)):
            continue
        letter = as_read(box, quarter)
        is_level = letter.is_level_with(accent) and _ALIKE < letter.height / accent.height < 1 / _ALIKE
        if is_level and letter.left <= accent.across <= letter.right:
            return near
    return None


def _places_around(at: int, end: int) -> Iterator[int]:
    for distance in range(1, _REACH):
        if at + distance < end:
            yield at + distance
        if at >= distance:
            yield at - distance


def _space_between(page: TextPage, before: int, behind: int) -> str:
    if before < 0 or behind >= len(page.text):
        return ""
    quarter = page.quarter_at(before)
    boxes = [as_read(box, quarter) for at in (before, behind) if (box := page.box_at(at))]
    return " " if len(boxes) > 1 and boxes[0].gap(boxes[1]) > _SPACE * boxes[0].height else ""


# Superscripts, and words that are scripts of the word before them.

_SMALL, _LEAST = 0.9, 0.5  # times the size of their base: letters of a script; less is next to an initial
_RAISED = 0.2  # times the size of its base: how far the foot of a superscript is above the line at least
_TOUCHING = 0.1  # times the height of a line: the most between a word and its script
_SHARED = 0.25  # times the height of the lower of two words: what a script has in common with its base
_SLASHES = "/\u2044\u2215"


def are_of_two_sizes(boxes: Iterable[Box]) -> bool:
    """Whether of some letters, given by their boxes as one reads them, some may be scripts."""
    heights = [box.height for box in boxes]
    return min(heights) < _SMALL * max(heights)


def is_script(page: TextPage, at: int, base: int) -> bool:
    """Whether a character is as small as a script of another one."""
    size = page.size_at(base)
    return _LEAST * size < page.size_at(at) < _SMALL * size


def is_raised(page: TextPage, at: int, base: int, quarter: int) -> bool:
    """Whether a character stands higher than the line of another one."""
    return page.foot_at(base, quarter) - page.foot_at(at, quarter) > _RAISED * page.size_at(base)


def begins_with_script(page: TextPage, first: Word, letter: Word, quarter: int) -> bool:
    """Whether letters begin with the superscript of a word before them, and one of their own follows."""
    if letter.text in _SLASHES or as_read(first.box, quarter).height >= as_read(letter.box, quarter).height:
        return False
    return is_script(page, first.at, letter.at) and is_raised(page, first.at, letter.at, quarter)


def script_heights(page: TextPage, letters: Sequence[Word], quarter: int) -> dict[int, int]:
    """The letters of a word that are raised (1), and the denominators of fractions (-1), by their places."""
    heights: dict[int, int] = {}
    base, last = letters[0], letters[0]
    for letter in letters:
        if not is_script(page, letter.at, base.at):
            base = letter
        elif is_raised(page, letter.at, base.at, quarter):
            heights[letter.at] = 1
        elif heights and (last.text in _SLASHES or heights.get(last.at) == -1):
            heights[letter.at] = -1
        last = letter
    return heights


def touch(before: Word, word: Word, quarter: int) -> bool:
    """Whether a word goes on with the word before it, without a space, on one line or a little off it."""
    box, following = as_read(before.box, quarter), as_read(word.box, quarter)
    shared = min(box.bottom, following.bottom) - max(box.top, following.top)
    is_beside = shared > _SHARED * min(box.height, following.height)
    return is_beside and abs(following.left - box.right) < _TOUCHING * box.height


def parted_by_script(page: TextPage, before: Word, word: Word, quarter: int) -> bool:
    """Whether words are one that pdfium parts because one of them is, or ends with, a script."""
    if not touch(before, word, quarter):
        return False
    end = min(before.at + len(before.text), len(page.text)) - 1
    is_small = is_script(page, word.at, before.at) or is_script(page, end, before.at)
    return is_small or before.text.endswith(SUP_END)


def as_one(page: TextPage, before: Word, word: Word, quarter: int) -> Word:
    """Two words as one; the second is marked if it is a superscript of the first."""
    raised = is_script(page, word.at, before.at) and is_raised(page, word.at, before.at, quarter)
    return Word(before.text + as_script(word.text, raised), before.box.around(word.box), before.at)


def with_scripts_joined(page: TextPage, words: Iterable[Word], quarter: int) -> list[Word]:
    """The words of a line, with those that are scripts, and what touches these, in the word before them."""
    joined: list[Word] = []
    goes_on = False
    for word in words:
        touches = bool(joined) and touch(joined[-1], word, quarter)
        is_small = touches and is_script(page, word.at, joined[-1].at)
        if touches and (is_small or goes_on or joined[-1].text.endswith(SUP_END)):
            joined[-1] = as_one(page, joined[-1], word, quarter)
        else:
            joined.append(word)
        goes_on = is_small
    return joined


# Strokes that strike letters out, and those that rule something.

STRUCK = "~~"  # around words that are struck out, as in Markdown
RULE_WIDTH = 5.0  # points: of an upright rule, with half its stroke on either side

_LONG = 8.0  # points: shorter strokes rule nothing
_SHORT = 3.0  # points: what strikes a letter out is longer
_MOST_STROKES = 1_000  # of a page that may strike letters out; more of them are a drawing
_INWARD = 2.0  # points: how far from the end of a stroke its last letter is
_MOST_STRUCK = 500  # characters that a stroke strikes out
_THIRD = 1 / 3  # of the height of a letter, in the middle, where a stroke strikes it out
_SLIGHT, _AROUND = 0.1, 0.6  # times the height of a line: next to nothing, and a space


def strokes_of(page: Pdfium) -> list[Box]:
    """The strokes on a page, such as the rules of a table and what strikes words out, and edges of frames."""
    import pypdfium2.raw as pdfium  # noqa: PLC0415 as above

    if pdfium.FPDFPage_CountObjects(page) > _MOST_OBJECTS:
        return []
    edges = [ctypes.c_float() for _ in range(4)]
    strokes = []
    around: Box | None = None
    ground: tuple[int, ...] = ()
    for drawn, matrices in _objects_on(page):
        if pdfium.FPDFPageObj_GetType(drawn) != pdfium.FPDF_PAGEOBJ_PATH:
            continue
        if not pdfium.FPDFPageObj_GetBounds(drawn, *edges):
            continue
        stroke = reduce(_placed, matrices, Box(*(edge.value for edge in edges)))
        if not all(map(math.isfinite, stroke)):
            continue
        left, bottom, right, top = stroke
        if min(stroke.width, stroke.height) >= _LONG:  # a frame: its edges may be rules of a table
            paint = _paint(pdfium, drawn)
            if around and paint and paint == ground and around.around(stroke) == around:
                continue  # Word shades a cell, then its paragraphs in the same colour
            around, ground = stroke, paint
            strokes += [Box(left, bottom, right, bottom), Box(left, top, right, top)]
            strokes += [Box(left, bottom, left, top), Box(right, bottom, right, top)]
        elif max(stroke.width, stroke.height) >= _SHORT:
            strokes.append(stroke)
    return strokes


def _paint(pdfium: Pdfium, drawn: Pdfium) -> tuple[int, ...]:
    """The colour of a path that is filled and has no edge; none for others."""
    mode, stroke = ctypes.c_int(), ctypes.c_int()
    colour = [ctypes.c_uint() for _ in range(4)]
    is_read = pdfium.FPDFPath_GetDrawMode(drawn, mode, stroke) and pdfium.FPDFPageObj_GetFillColor(
        drawn, *colour
    )
    return tuple(part.value for part in colour) if is_read and mode.value and not stroke.value else ()


def _placed(box: Box, matrix: Pdfium) -> Box:
    """Where a form with this matrix shows a box."""
    corners = product((box.left, box.right), (box.top, box.bottom))
    places = [
        (matrix.a * x + matrix.c * y + matrix.e, matrix.b * x + matrix.d * y + matrix.f) for x, y in corners
    ]
    return box_around(Box(x, y, x, y) for x, y in places)


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
    return -slack < min(beyond) and max(beyond) < slack + _AROUND * words.height
