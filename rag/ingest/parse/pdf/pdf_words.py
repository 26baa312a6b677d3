"""The words of a PDF page and their positions, from pdfium.

Coordinates are points in reading direction: x grows along a line, y grows from line to line, whichever way
the page is rotated.
"""

from __future__ import annotations

import ctypes
import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, groupby, pairwise
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple, TypeAlias, TypeVar

from rag.ingest.parse.document_parts import join_surrogates

MAX_CHARACTERS = 400_000  # of a page; nobody reads a page with more
SEAM = "\u2060"  # between two words that touch without a space, as those of two cells may
HYPHEN = "\ufffe"  # what pdfium calls a hyphen at the end of a line

_QUARTERS = 4  # turns to a whole
_WIDE = 0.9  # times the height of a line: a wider gap parts two columns or two cells
_BACK = 0.5  # the same: how far a word may begin before the end of the one before it
_LEVEL = 0.5  # share of the height of the lower of two words that they have in common on one line
_BOLD = re.compile(r"bold|black|heavy|cmbx|-bd\b|demi", re.IGNORECASE)
_EVEN = re.compile(r"courier|mono|consol|menlo|typewriter|cmtt|fixed", re.IGNORECASE)
_FIXED_PITCH, _FORCED_BOLD = 1, 1 << 18  # flags of the font descriptor, PDF 32000-1, table 123
_NAME_BYTES = 128
_MOST_OBJECTS = 20_000  # of a page: more of them are a drawing
_FEW_WORDS = 12  # of cells side by side
_SIZE = 10.0  # points, of letters on a page without any
_LONG = 8.0  # points: shorter strokes rule nothing
_SHORT = 3.0  # points: what strikes a letter out is longer
_MOST_STROKES = 1_000  # of a page that may strike letters out; more of them are a drawing
_INWARD, _AROUND = 2.0, 8.0  # points: how far from the end of a stroke its last letter is, and how exactly
_MOST_STRUCK = 500  # characters that a stroke strikes out
_THIRD = 1 / 3  # of the height of a letter, in the middle, where a stroke strikes it out
_THIN = 2.0  # points
_UPRIGHT = 5.0  # points: the width of an upright rule, with half its stroke on either side
_LOOSE = 0.62  # times its height: how wide the letters of a word are on average, unless they stand apart
_APART = 0.35  # the same: a gap between two words
_SLIGHT, _SPACE = 0.1, 0.6  # the same: next to nothing, and a space
_SEAMED = 4  # characters of two words that touch at least
_SEAM, _OVER = 0.05, 0.2  # times the height of a line: least gap between them, and least overlap
_PDFIUM_LINE, _WORDS = re.compile(r"[^\r\n]+"), re.compile(rf"[^\s{HYPHEN}]+{HYPHEN}?|{HYPHEN}")
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_OPENING, _CLOSING = str.maketrans(")]}", "([{"), str.maketrans("([{", ")]}")
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")
_LATIN_RUN = re.compile(r"(?:[LN][LNS]*)?L")  # of kinds of words from right to left
_MIXED = re.compile(r"(?=.*R)(?=.*[LN])(?!L.*L\Z).*")  # kinds of words: not only Hebrew, and no Latin line
_ARABIC = re.compile(r"[\u0620-\u06d3]")
_SIGN_ENDS = re.compile(
    r"(?P<left>[.,:;!?()\[\]{}\"'«»،]*)(?P<words>.*?)(?P<right>[.,:;!?()\[\]{}\"'«»،]*)", re.DOTALL
)
_ARABIC_GROUP = re.compile(r"(?<!\d)[+-]?\d(?:[\d.,:/]*\d)?")  # what keeps its order in a number
_GROUP = re.compile(r"(?<!\d)[+-]?[$€£₪]?\d(?:[\d.,:/+-]*\d)?[%$€£₪]?")
_LETTER = re.compile(r"[^\W\d_]")
STRUCK = "~~"  # around words that are struck out, as in Markdown


Pdfium: TypeAlias = Any
"""A document, a page, a pointer or the bindings of pypdfium2, which has no types."""


class Box(NamedTuple):
    """A rectangle: `left` < `right`, and `top` < `bottom`."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        """Its vertical extent."""
        return self.bottom - self.top

    @property
    def middle(self) -> float:
        """Its vertical middle."""
        return (self.top + self.bottom) / 2

    def gap(self, box: Box) -> float:
        """How far a box stands beside this one; below 0 if one is above the other."""
        return max(box.left - self.right, self.left - box.right)

    def around(self, box: Box) -> Box:
        """The smallest box that contains both."""
        return Box(
            min(self.left, box.left),
            min(self.top, box.top),
            max(self.right, box.right),
            max(self.bottom, box.bottom),
        )

    def touches(self, box: Box) -> bool:
        """Whether the boxes overlap."""
        return self.gap(box) <= 0 and self.bottom >= box.top and self.top <= box.bottom

    def is_level_with(self, box: Box) -> bool:
        """Whether both boxes are on one line."""
        shared = min(self.bottom, box.bottom) - max(self.top, box.top)
        return shared > _LEVEL * min(self.height, box.height)


def box_around(boxes: Iterable[Box]) -> Box:
    """The smallest box that contains all of these."""
    return reduce(Box.around, boxes)


T = TypeVar("T")


def most_letters(texts: Iterable[tuple[T, str]], default: T) -> T:
    """The value that most letters have, of values and their texts."""
    letters = Counter[T]()
    for value, text in texts:
        letters[value] += len(text)
    return max(letters, key=lambda value: letters[value], default=default)  # most_common() imports too late


class Line(NamedTuple):
    """Words side by side, without a wide gap.

    `size` is the font size. `turned` counts quarter turns, clockwise, relative to most letters of the page.
    `order` is the position of the line in the file. `words` are the start and end of each word; empty where
    words can't be cells, because the line is long or runs from right to left. Letters are `even` if they have
    one width. `table` is the number of the table on the page whose rules draw a cell around it; 0 without.
    """

    text: str
    box: Box
    size: float
    bold: bool = False
    turned: int = 0
    order: int = 0
    words: tuple[tuple[float, float], ...] = ()
    even: bool = False
    table: int = 0

    @property
    def runs_left(self) -> bool:
        """Whether it is read from right to left."""
        return runs_left(self.text)


def runs_left(text: str) -> bool:
    """Whether most letters are Hebrew or Arabic."""
    return 2 * len(_RIGHT_TO_LEFT.findall(text)) > len(_LETTER.findall(text)) > 0


class PageLines(NamedTuple):
    """A page: its lines in the order of the file, turned ones last, and the rules drawn on it."""

    lines: list[Line]
    rules: list[Box]


class Addition(NamedTuple):
    """Words to add to a page, at a box in the coordinates of the file.

    With `replaces` they replace the page's text in the box; otherwise they count only if the box is empty.
    With `is_note` they are read last, whatever their box. With `strikes` they strike out what is in the box.
    """

    text: str
    box: Box
    replaces: bool = False
    is_note: bool = False
    strikes: bool = False


def sheet_of(page: Pdfium, additions: Sequence[Addition]) -> PageLines:
    """The lines and rules of a page, without words beyond its edges unless all words are there.

    Raises:
        ValueError: the page has too many characters.
    """
    strokes = _strokes(page.raw)
    text_page = page.get_textpage()
    try:
        reader = _PageReader(text_page.raw, strokes, [a.box for a in additions if a.strikes])
        lines = list(reader.lines(Box(*page.get_bbox()))) or list(reader.lines())
    finally:
        text_page.close()
    quarter = most_letters(((line.turned, line.text) for line in lines), 0)
    lines = [
        line._replace(box=as_read(line.box, quarter), turned=(line.turned - quarter) % _QUARTERS, order=order)
        for order, line in enumerate(lines)
    ]
    for addition in (addition for addition in additions if not addition.strikes):
        lines = _with_addition(lines, addition, as_read(addition.box, quarter))
    lines.sort(key=lambda line: bool(line.turned))
    return PageLines(lines, [as_read(rule, quarter) for rule in reader.rules])


def _with_addition(lines: list[Line], addition: Addition, box: Box) -> list[Line]:
    """The lines and an addition, in the font size of the line next to it, else in the usual size."""
    inside = [] if addition.is_note else [line for line in lines if _is_inside(line.box, box)]
    if addition.replaces:
        lines = [line for line in lines if line not in inside]
    elif inside:
        return lines
    if not addition.text:
        return lines
    beside = min(
        (line for line in lines if line.box.is_level_with(box)),
        key=lambda line: line.box.gap(box),
        default=None,
    )
    size = beside.size if beside else median(line.size for line in lines) if lines else _SIZE
    order = beside.order if beside else max((line.order for line in lines), default=0)
    if addition.is_note:
        end = max((line.box.bottom for line in lines), default=box.bottom) + 2 * size
        box, order = Box(box.left, end, box.left + size * len(addition.text) / 2, end + size), order + 1
    elif beside:
        box = box._replace(top=beside.box.top, bottom=beside.box.bottom)
    return [*lines, Line(addition.text, box, size, order=order)]


def _is_inside(inner: Box, outer: Box) -> bool:
    """Whether the middle of a box is in another one."""
    across = (inner.left + inner.right) / 2
    return outer.left <= across <= outer.right and outer.top <= inner.middle <= outer.bottom


def _strokes(page: Pdfium) -> list[Box]:
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
        width, height = right - left, top - bottom
        if min(width, height) >= _LONG:
            strokes += [Box(left, bottom, right, bottom), Box(left, top, right, top)]
            strokes += [Box(left, bottom, left, top), Box(right, bottom, right, top)]
        elif max(width, height) >= _SHORT:
            strokes.append(Box(left, bottom, right, top))
    return strokes


def _sides(box: Box) -> tuple[float, float]:
    return box.right - box.left, box.height


class _Word(NamedTuple):
    text: str
    box: Box
    at: int


def _word(letters: Sequence[_Word], struck: Collection[int] = ()) -> _Word:
    """The letters as one word, with a mark around those of `struck`."""
    text = ""
    for is_struck, run in groupby(letters, key=lambda letter: letter.at in struck):
        mark = STRUCK if is_struck else ""
        text += f"{mark}{_joined([*run])}{mark}"
    return _Word(text, box_around(letter.box for letter in letters), letters[0].at)


def _joined(letters: Sequence[_Word]) -> str:
    glyphs = [
        "".join(letter.text for letter in glyph)
        for _, glyph in groupby(letters, key=lambda letter: letter.box)
    ]
    if runs_left("".join(glyphs)):
        glyphs = [glyph[::-1] for glyph in glyphs]  # pdfium turns the letters of a glyph round with its word
    return join_surrogates("".join(glyphs))


def as_read(box: Box, quarter: int) -> Box:
    """A box of the file, whose y grows upwards, in the reading direction of letters turned by `quarter`."""
    left, bottom, right, top = box.left, box.top, box.right, box.bottom
    match quarter:
        case 1:
            return Box(-top, -right, -bottom, -left)
        case 2:
            return Box(-right, bottom, -left, top)
        case 3:
            return Box(bottom, left, top, right)
    return Box(left, -top, right, -bottom)


class _Font(NamedTuple):
    bold: bool
    even: bool  # all letters have one width


class _PageReader:
    """Reads one text page. Calls of pdfium take most of the time: one or two per word, four per line.

    Its `rules` are the strokes that strike nothing out.
    """

    def __init__(self, page: Pdfium, strokes: Sequence[Box], strikes: Sequence[Box]) -> None:
        import pypdfium2.raw as pdfium  # noqa: PLC0415 in the child only

        self._pdfium, self._page = pdfium, page
        self._count = pdfium.FPDFText_CountChars(page)
        if self._count > MAX_CHARACTERS:
            raise ValueError(f"{self._count} characters on a page")
        self._rectangle = pdfium.FS_RECTF()
        self._matrix = pdfium.FS_MATRIX()
        self._text = self._units()
        self._runs_left = _page_runs_left(self._text)
        self._number = _ARABIC_GROUP if _ARABIC.search(self._text) else _GROUP
        thin = [stroke for stroke in strokes if 0 < min(_sides(stroke)) < _UPRIGHT]  # no edges of frames
        struck = {stroke: self._struck_by(stroke) for stroke in thin[:_MOST_STROKES]}
        struck = {stroke: letters for stroke, letters in struck.items() if self._is_as_wide(stroke, letters)}
        self._struck = {*chain(*struck.values(), *map(self._struck_by, strikes))}
        self.rules = [stroke for stroke in strokes if max(_sides(stroke)) >= _LONG and stroke not in struck]
        self._uprights = [_uprights(self.rules, quarter) for quarter in range(_QUARTERS)]

    def _units(self) -> str:
        """The text, one character per UTF-16 unit, because pdfium counts in these."""
        units = (ctypes.c_ushort * (self._count * 4 + 1))()
        length = self._pdfium.FPDFText_GetText(self._page, 0, self._count, units) if self._count > 0 else 1
        self._is_mapped = length - 1 != self._count
        return "".join(map(chr, units[: max(length - 1, 0)]))

    def lines(self, within: Box | None = None) -> Iterator[Line]:
        """The lines in the coordinates of the file, each with its own quarter turns.

        With `within`, they have only words that overlap this box.
        """
        for quarter, run in self._whole_lines() if self._runs_left else self._runs():
            words = [word for word in run if not within or word.box.touches(within)]
            placed = sorted(words, key=lambda word: as_read(word.box, quarter).left, reverse=True)
            kinds = "".join(map(_kind, placed))
            backwards = self._runs_left and _MIXED.fullmatch(kinds) is not None
            if backwards:  # pdfium orders the words of a line with many Latin letters as if it ran right
                words = [self._in_order(word, quarter) for word in words]
                words.sort(key=lambda word: as_read(word.box, quarter).left, reverse=True)
            for part in _split_line(words, quarter, self._uprights[quarter]) if words else ():
                at = max(part, key=lambda word: len(word.text)).at
                fonts = [self._font(at)]
                if any(fonts[0]):  # else the others don't matter
                    fonts += [self._font(part[0].at), self._font(part[-1].at)]
                bold = all(font.bold for font in fonts)
                line = _line(part, self._size(at), quarter, bold=bold, backwards=backwards)
                yield line._replace(even=all(font.even for font in fonts), turned=quarter)

    def _whole_lines(self) -> Iterator[tuple[int, list[_Word]]]:
        """The runs of a right-to-left page, joined where they are level: pdfium parts the words of a line."""
        quarter, line = 0, list[_Word]()
        for turned, words in self._runs():
            is_level = (
                line and words and as_read(words[0].box, turned).is_level_with(as_read(line[0].box, turned))
            )
            if turned == quarter and is_level:
                line += words
            else:
                yield quarter, line
                quarter, line = turned, words
        yield quarter, line

    def _runs(self) -> Iterator[tuple[int, list[_Word]]]:
        """The words of pdfium's lines, divided where the letters turn, and their quarter turns.

        pdfium has a sideways table in one line with the upright header above it.
        """
        for line in _PDFIUM_LINE.finditer(self._text):
            quarter, words, before = 0, list[_Word](), None
            for match in _WORDS.finditer(self._text, *line.span()):
                first = self._box_at(match.start())
                if not first:
                    continue
                if not before or not _is_beside(before, first, quarter):  # asking at each word takes long
                    turned = self._quarter(match.start())
                    if words and turned != quarter:
                        yield quarter, words
                        words = []
                    quarter = turned
                words += self._words(match, first, quarter)
                before = words[-1].box if words else None
            yield quarter, words

    def _words(self, match: re.Match[str], first: Box, quarter: int) -> Iterator[_Word]:
        """The words in one of pdfium's words, whose first letter is in the box `first`."""
        begin, stop = match.span()
        last: Box | None = first
        if stop - begin - match[0].endswith(HYPHEN) > 1:
            last = self._box_at(stop - 1 - match[0].endswith(HYPHEN))
        if not last:
            return
        # Calls of pdfium cost most: a dense word in a single line needs the boxes of two letters only.
        is_plain = match[0].isascii() or not any(map(self._is_noise, range(begin, stop)))
        box, height = first.around(last), as_read(first, quarter).height
        level_box = as_read(box, quarter)
        is_dense = level_box.right - level_box.left <= _LOOSE * height * (stop - begin)
        is_left = not runs_left(match[0])
        is_plain = is_plain and self._struck.isdisjoint(range(begin, stop))
        seamed = self._split_at_seam(begin, stop, quarter) if is_plain and is_left else []
        if seamed:
            yield from seamed
        elif is_plain and is_dense and level_box.height < 2 * height and is_left:
            yield _Word(join_surrogates(match[0]), box, begin)
        else:
            yield from self._split_word(begin, stop, quarter)

    def _split_at_seam(self, start: int, end: int, quarter: int) -> list[_Word]:
        """The two words that pdfium joined although they are separate text objects; else none."""
        first, last = self._object(start), self._object(end - 1)
        if end - start < _SEAMED or first == last or not self._text[start:end].isalnum():
            return []
        seam = next(at for at in range(start + 1, end) if self._object(at) != first)
        boxes = [self._box_at(at) for at in (start, seam - 1, seam, end - 1)]
        if None in boxes or self._object(seam) != last:
            return []
        begin, before, after, stop = (box for box in boxes if box)
        gap = as_read(after, quarter).left - as_read(before, quarter).right
        if -_OVER < gap / as_read(after, quarter).height < _SEAM:
            return []
        first_text, last_text = (
            join_surrogates(self._text[at:to]) for at, to in ((start, seam), (seam, end))
        )
        return [
            _Word(first_text + SEAM, begin.around(before), start),
            _Word(last_text, after.around(stop), seam),
        ]

    def _object(self, at: int) -> int:
        """The address of the text object that a character belongs to."""
        text_object = self._pdfium.FPDFText_GetTextObject(self._page, self._index(at))
        return ctypes.addressof(text_object.contents) if text_object else 0

    def _is_noise(self, at: int) -> bool:
        """Whether the font has no character for a glyph: pdfium then gives its number."""
        return bool(self._pdfium.FPDFText_HasUnicodeMapError(self._page, self._index(at)) == 1)

    def _split_word(self, start: int, end: int, quarter: int) -> Iterator[_Word]:
        """The words in one of pdfium's words, split where letters are apart; without noise."""
        letters = [
            _Word(self._text[at], box, at)
            for at in range(start, end)
            if (self._text[at].isascii() or not self._is_noise(at)) and (box := self._box_at(at))
        ]
        begin = 0
        for at, (previous, letter) in enumerate(pairwise(letters), 1):
            first, second = as_read(previous.box, quarter), as_read(letter.box, quarter)
            is_apart = first.gap(second) > _APART * first.height or not second.is_level_with(first)
            if letter.text != HYPHEN and is_apart:
                yield _word(letters[begin:at], self._struck)
                begin = at
        if letters[begin:]:
            yield _word(letters[begin:], self._struck)

    def _in_order(self, word: _Word, quarter: int) -> _Word:
        """A word of a right-to-left line in its order; pdfium mixes those up that have no such letters."""
        if _kind(word) == "R" or word.text.isalpha():
            return word
        places = range(word.at, min(word.at + len(word.text), len(self._text)))
        letters = [_Word(self._text[at], box, at) for at in places if (box := self._box_at(at))]
        letters.sort(key=lambda letter: as_read(letter.box, quarter).left)
        text = "".join(letter.text for letter in letters)
        if sorted(text) != sorted(word.text):
            return word
        if not _LATIN.search(text):
            text = self._number.sub(lambda match: match[0][::-1], text)[::-1]
        return word._replace(text=text, box=box_around(letter.box for letter in letters))

    def _struck_by(self, stroke: Box) -> list[int]:
        """The letters near the ends of a stroke and between them, if it runs through most of them."""
        inward = min(_INWARD, max(_sides(stroke)) / 3)
        across = (stroke.left + stroke.right) / 2
        if stroke.right - stroke.left > stroke.height:
            ends = (stroke.left + inward, stroke.middle), (stroke.right - inward, stroke.middle)
        else:
            ends = (across, stroke.top + inward), (across, stroke.bottom - inward)
        first, last = sorted(self._at_point(*end) for end in ends)
        between = self._text[first : min(last, first + _MOST_STRUCK) + 1] if first >= 0 else ""
        letters = [at for at, letter in enumerate(between, first) if letter not in f" {HYPHEN}"]
        struck = [at for at in letters if self._is_struck(at, stroke, 1.0)]  # also those above the line
        in_middle = [at for at in struck if self._is_struck(at, stroke, _THIRD / 2)]
        return struck if 2 * len(in_middle) > len(letters) else []

    def _is_as_wide(self, stroke: Box, letters: Sequence[int]) -> bool:
        """Whether a stroke is as wide as these letters, perhaps with the spaces around them."""
        boxes = [box for at in (*letters[:1], *letters[-1:]) if (box := self._box_at(at))]
        if not boxes:
            return False
        quarter = self._quarter(letters[0])
        words, line = as_read(box_around(boxes), quarter), as_read(stroke, quarter)
        slack = line.height + _SLIGHT * words.height
        beyond = words.left - line.left, line.right - words.right
        return -slack < min(beyond) and max(beyond) < slack + _SPACE * words.height

    def _is_struck(self, at: int, stroke: Box, reach: float) -> bool:
        """Whether a stroke runs over a letter, no further from its middle than `reach` times its height."""
        box, quarter = self._box_at(at), self._quarter(at)
        if not box:
            return False
        letter, line = as_read(box, quarter), as_read(stroke, quarter)
        is_thin = line.height < _THIRD * letter.height
        is_over = line.left <= (letter.left + letter.right) / 2 <= line.right
        return is_thin and is_over and abs(line.middle - letter.middle) <= reach * letter.height

    def _at_point(self, x: float, y: float) -> int:
        """The place in the text of the letter at a point of the page or near it; below 0 without one."""
        index = self._pdfium.FPDFText_GetCharIndexAtPos(self._page, x, y, _AROUND, _AROUND)
        if index < 0 or not self._is_mapped:
            return int(index)
        return int(self._pdfium.FPDFText_GetTextIndexFromCharIndex(self._page, index))

    def _box_at(self, at: int) -> Box | None:
        if not self._pdfium.FPDFText_GetLooseCharBox(self._page, self._index(at), self._rectangle):
            return None
        bottom, top = sorted((self._rectangle.bottom, self._rectangle.top))
        box = Box(self._rectangle.left, bottom, self._rectangle.right, top)
        return box if all(map(math.isfinite, box)) else None

    def _index(self, at: int) -> int:
        if not self._is_mapped:
            return at
        return int(self._pdfium.FPDFText_GetCharIndexFromTextIndex(self._page, at))

    def _quarter(self, at: int) -> int:
        index, matrix = self._index(at), self._matrix
        angle = self._pdfium.FPDFText_GetCharAngle(self._page, index)
        quarter = round(angle / (math.pi / 2)) % _QUARTERS if math.isfinite(angle) else 0
        is_half = quarter == _QUARTERS / 2
        if is_half and self._pdfium.FPDFText_GetMatrix(self._page, index, matrix) and matrix.d > 0:
            return 0  # a mirrored letter, as an arrow in a formula
        return quarter

    def _size(self, at: int) -> float:
        index, matrix = self._index(at), self._matrix
        size = self._pdfium.FPDFText_GetFontSize(self._page, index)
        if self._pdfium.FPDFText_GetMatrix(self._page, index, matrix):
            size *= math.hypot(matrix.c, matrix.d)
        return round(size, 1) if math.isfinite(size) else 0.0

    def _font(self, at: int) -> _Font:
        buffer, flags = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_int()
        self._pdfium.FPDFText_GetFontInfo(self._page, self._index(at), buffer, _NAME_BYTES, flags)
        name = buffer.value.decode("latin-1")
        return _Font(
            bool(flags.value & _FORCED_BOLD or _BOLD.search(name)),
            bool(flags.value & _FIXED_PITCH or _EVEN.search(name)),
        )


def _page_runs_left(text: str) -> bool:
    """Whether a page is Hebrew or Arabic: most lines have such letters, and these are a fourth of all."""
    lines = [bool(_RIGHT_TO_LEFT.search(line)) for line in _PDFIUM_LINE.findall(text)]
    return 2 * sum(lines) > len(lines) and 4 * len(_RIGHT_TO_LEFT.findall(text)) > len(_LETTER.findall(text))


def _uprights(rules: Sequence[Box], quarter: int) -> list[Box]:
    """The rules that are upright for letters turned by `quarter`, from left to right as one reads them."""
    as_seen = (as_read(rule, quarter) for rule in rules)
    return sorted(rule for rule in as_seen if rule.right - rule.left < _UPRIGHT)


def _split_line(words: Sequence[_Word], quarter: int, uprights: Sequence[Box]) -> Iterator[Sequence[_Word]]:
    """The words of one of pdfium's lines, split at wide gaps, at rules, and where another line begins."""
    begin = 0
    boxes = [as_read(word.box, quarter) for word in words]
    for at, (previous, word) in enumerate(pairwise(words), 1):
        is_apart = previous.text.endswith(HYPHEN) or not _is_beside(previous.box, word.box, quarter)
        if is_apart or rules_between(boxes[at - 1], boxes[at], uprights):
            yield words[begin:at]
            begin = at
    yield words[begin:]


def _is_beside(before: Box, box: Box, quarter: int) -> bool:
    """Whether a word goes on in the line of the one before, without a wide gap."""
    first, second = as_read(before, quarter), as_read(box, quarter)
    return -_BACK * first.height <= first.gap(second) <= _WIDE * first.height and second.is_level_with(first)


def rules_between(first: Box, second: Box, uprights: Sequence[Box]) -> list[Box]:
    """The rules that separate two words, of upright ones from left to right: a drawing has thousands."""
    start = bisect_left(uprights, min(first.right, second.right) - _THIN, key=itemgetter(0))
    end = bisect_right(uprights, max(first.left, second.left) + _THIN, key=itemgetter(0))
    return [rule for rule in uprights[start:end] if rule.top <= first.middle <= rule.bottom]


def _line(words: Sequence[_Word], size: float, quarter: int, *, bold: bool, backwards: bool) -> Line:
    box = box_around(word.box for word in words)
    text = " ".join(word.text for word in words).replace(f"{SEAM} ", SEAM).strip(SEAM)
    if backwards or runs_left(text):
        return Line(" ".join(_logical_order(words)), box, size or box.height, bold)
    boxes = [as_read(word.box, quarter) for word in words] if len(words) <= _FEW_WORDS else []
    return Line(text, box, size or box.height, bold, words=tuple((box.left, box.right) for box in boxes))


def _logical_order(words: Sequence[_Word]) -> Iterator[str]:
    """The words of a right-to-left line in logical order.

    pdfium leaves brackets as they look. Latin words run to the right, with the numbers behind them.
    """
    kinds = "".join(map(_kind, words))
    at = 0
    for run in _LATIN_RUN.finditer(kinds):
        yield from (word.text.translate(_MIRRORED) for word in words[at : run.start()])
        latin = words[run.start() : run.end()]
        texts = " ".join(word.text for word in sorted(latin, key=lambda word: word.box.left))
        if match := _SIGN_ENDS.fullmatch(texts):  # signs at its ends belong to the line
            begin, end = match["right"][::-1].translate(_OPENING), match["left"][::-1].translate(_CLOSING)
            yield begin + match["words"] + end
        at = run.end()
    yield from (word.text.translate(_MIRRORED) for word in words[at:])


def _kind(word: _Word) -> str:
    """The kind of a word: right to left, Latin, a number, or signs."""
    if any(map(str.isalpha, _RIGHT_TO_LEFT.findall(word.text))):
        return "R"
    return "L" if _LATIN.search(word.text) else "N" if any(map(str.isdigit, word.text)) else "S"
