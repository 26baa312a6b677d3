"""The characters of a PDF page, from pdfium: their text, boxes, fonts and angles.

Boxes are in points. Those of the file grow upwards; `as_read` turns them into reading direction, in which x
grows along a line, and y from line to line, whichever way the page is rotated.
"""

from __future__ import annotations

import ctypes
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

MAX_CHARACTERS = 400_000  # of a page; nobody reads a page with more
HYPHEN = "\ufffe"  # what pdfium calls a hyphen at the end of a line
QUARTERS = 4  # turns to a whole

_LEVEL = 0.5  # share of the height of the lower of two words that they have in common on one line
_AROUND = 8.0  # points: how far from a point a letter is looked for
_BOLD = re.compile(
    r"bold|black|heavy|demi|-(?:bd|blk|hv)"
    r"|nimbus\w+-medi"  # Times and Helvetica of LaTeX
    r"|cm(?:b(?:x|sy|\d)|ssbx|ssdc|mib)|sf(?:b[xil]|rb|s[xo]|xc)\d"  # Computer Modern and cm-super
    r"|\Aadv\w+\.b",  # of a typesetter of journals
    re.IGNORECASE,
)
_EVEN = re.compile(r"courier|mono|consol|menlo|typewriter|cmtt|fixed", re.IGNORECASE)
_FIXED_PITCH, _FORCED_BOLD = 1, 1 << 18  # flags of the font descriptor, PDF 32000-1, table 123
NAME_BYTES = 128  # of a font

Pdfium: TypeAlias = Any
"""A document, a page, a pointer or the bindings of pypdfium2, which has no types."""


class Box(NamedTuple):
    """A rectangle: `left` < `right`, and `top` < `bottom`."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """Its horizontal extent."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """Its vertical extent."""
        return self.bottom - self.top

    @property
    def middle(self) -> float:
        """Its vertical middle."""
        return (self.top + self.bottom) / 2

    @property
    def across(self) -> float:
        """Its horizontal middle."""
        return (self.left + self.right) / 2

    def gap(self, box: Box) -> float:
        """The horizontal distance of a box from this one; below 0 if one is above the other."""
        return max(box.left - self.right, self.left - box.right)

    def around(self, box: Box) -> Box:
        """The smallest box that contains both."""
        return Box(
            min(self.left, box.left),
            min(self.top, box.top),
            max(self.right, box.right),
            max(self.bottom, box.bottom),
        )

    def grown(self, reach: float) -> Box:
        """A box around this one whose edges are `reach` further out."""
        return Box(self.left - reach, self.top - reach, self.right + reach, self.bottom + reach)

    def touches(self, box: Box) -> bool:
        """Whether the boxes overlap."""
        return self.gap(box) <= 0 and self.bottom >= box.top and self.top <= box.bottom

    def is_inside(self, box: Box) -> bool:
        """Whether its middle is in another box."""
        return box.left < self.across < box.right and box.top < self.middle < box.bottom

    def is_level_with(self, box: Box) -> bool:
        """Whether both boxes are on one line."""
        shared = min(self.bottom, box.bottom) - max(self.top, box.top)
        return shared > _LEVEL * min(self.height, box.height)


def box_around(boxes: Iterable[Box]) -> Box:
    """The smallest box that contains all of these."""
    return reduce(Box.around, boxes)


def as_read(box: Box, quarter: int) -> Box:
    """A box of the file in the reading direction of letters turned by `quarter`."""
    left, bottom, right, top = box.left, box.top, box.right, box.bottom
    match quarter:
        case 1:
            return Box(-top, -right, -bottom, -left)
        case 2:
            return Box(-right, bottom, -left, top)
        case 3:
            return Box(bottom, left, top, right)
    return Box(left, -top, right, -bottom)


class Word(NamedTuple):
    """A word or a letter: its text, its box in the file, and its place in the text of the page."""

    text: str
    box: Box
    at: int


class Font(NamedTuple):
    """The looks of letters; `even` ones have one width."""

    bold: bool
    even: bool


class TextPage:
    """The characters of a page by their place in its `text`, which has one for each UTF-16 unit.

    Raises:
        ValueError: the page has too many characters.
    """

    def __init__(self, page: Pdfium) -> None:
        import pypdfium2.raw as pdfium  # noqa: PLC0415 in the child only

        self._pdfium, self._page = pdfium, page
        count = pdfium.FPDFText_CountChars(page)
        if count > MAX_CHARACTERS:
            raise ValueError(f"{count} characters on a page")
        self._rectangle = pdfium.FS_RECTF()
        self._matrix = pdfium.FS_MATRIX()
        self._name, self._flags = ctypes.create_string_buffer(NAME_BYTES), ctypes.c_int()
        units = (ctypes.c_ushort * (count * 4 + 1))()
        length = pdfium.FPDFText_GetText(page, 0, count, units) if count > 0 else 1
        self.text = "".join(map(chr, units[: max(length - 1, 0)]))
        self._is_mapped = length - 1 != count  # places of text and of characters differ
        self._characters = self.text
        self._places: list[int] = [*range(len(self.text))]

    def show(self, replacements: Sequence[str]) -> None:
        """Replace each character of its text by others, none or more."""
        self._places = [self._places[at] for at, characters in enumerate(replacements) for _ in characters]
        self.text = "".join(replacements)

    def box_at(self, at: int) -> Box | None:
        """The box of a character, if it has one."""
        if not self._pdfium.FPDFText_GetLooseCharBox(self._page, self._index(at), self._rectangle):
            return None
        bottom, top = sorted((self._rectangle.bottom, self._rectangle.top))
        box = Box(self._rectangle.left, bottom, self._rectangle.right, top)
        return box if all(map(math.isfinite, box)) else None

    def character_near(self, x: float, y: float) -> int:
        """The character at a point of the page or near it; below 0 without one."""
        index = int(self._pdfium.FPDFText_GetCharIndexAtPos(self._page, x, y, _AROUND, _AROUND))
        if index >= 0 and self._is_mapped:
            index = int(self._pdfium.FPDFText_GetTextIndexFromCharIndex(self._page, index))
        return bisect_left(self._places, index) if index >= 0 else index

    def object_at(self, at: int) -> int:
        """The address of the text object that a character belongs to."""
        text_object = self._pdfium.FPDFText_GetTextObject(self._page, self._index(at))
        return ctypes.addressof(text_object.contents) if text_object else 0

    def is_noise(self, at: int) -> bool:
        """Whether the font has no character for a glyph: pdfium then gives its number."""
        if self.text[at] != self._characters[self._places[at]]:
            return False  # what a page shows is known
        return bool(self._pdfium.FPDFText_HasUnicodeMapError(self._page, self._index(at)) == 1)

    def quarter_at(self, at: int) -> int:
        """The quarter turns of a character, clockwise."""
        index, matrix = self._index(at), self._matrix
        angle = self._pdfium.FPDFText_GetCharAngle(self._page, index)
        quarter = round(angle / (math.pi / 2)) % QUARTERS if math.isfinite(angle) else 0
        is_half = quarter == QUARTERS / 2
        if is_half and self._pdfium.FPDFText_GetMatrix(self._page, index, matrix) and matrix.d > 0:
            return 0  # a mirrored letter, as an arrow in a formula
        return quarter

    def size_at(self, at: int) -> float:
        """The font size of a character; 0 if it is unknown."""
        index, matrix = self._index(at), self._matrix
        size = self._pdfium.FPDFText_GetFontSize(self._page, index)
        # The size alone may be 1, with a matrix that enlarges the letters.
        if self._pdfium.FPDFText_GetMatrix(self._page, index, matrix):
            size *= math.hypot(matrix.c, matrix.d)
        return round(size, 1) if math.isfinite(size) else 0.0

    def foot_at(self, at: int, quarter: int) -> float:
        """How far down the page, as one reads it, the line is on which a character stands."""
        x, y = ctypes.c_double(), ctypes.c_double()
        self._pdfium.FPDFText_GetCharOrigin(self._page, self._index(at), x, y)
        return as_read(Box(x.value, y.value, x.value, y.value), quarter).bottom

    def font_at(self, at: int) -> Font:
        """The looks of a character."""
        name, flags = self.font_name_at(at), self._flags.value
        return Font(
            bool(flags & _FORCED_BOLD or _BOLD.search(name)),
            bool(flags & _FIXED_PITCH or _EVEN.search(name)),
        )

    def font_name_at(self, at: int) -> str:
        """The name of the font of a character."""
        self._pdfium.FPDFText_GetFontInfo(self._page, self._index(at), self._name, NAME_BYTES, self._flags)
        return self._name.value.decode("latin-1")

    def _index(self, at: int) -> int:
        place = self._places[at]
        if not self._is_mapped:
            return place
        return int(self._pdfium.FPDFText_GetCharIndexFromTextIndex(self._page, place))
