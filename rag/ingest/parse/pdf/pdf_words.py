"""The words of a PDF page and where they stand, from pdfium.

Places are in points, as one reads the page: x grows along a line, y grows from line to line, whichever way
the page is turned.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from statistics import median
from typing import Any, NamedTuple

MAX_CHARACTERS = 400_000  # of a page: more of them is no page that anybody reads
SEAM = "\u2060"  # between two words that touch, as those of two cells may: no space is there
HYPHEN = "\ufffe"  # what pdfium calls a hyphen at the end of a line

_QUARTERS = 4  # turns to a whole
_WIDE = 0.9  # times the height of a line: a wider gap parts two columns or two cells
_BACK = 0.5  # the same: how far a word may begin before the end of the one before it
_LEVEL = 0.5  # share of the height of the lower of two words that they have in common on one line
_BOLD = re.compile(r"bold|black|heavy|cmbx|-bd\b|demi", re.IGNORECASE)
_FORCED_BOLD = 1 << 18  # a flag of the font descriptor, PDF 32000-1, table 123
_NAME_BYTES = 128
_MOST_OBJECTS = 20_000  # of a page: more of them are a drawing
_FEW_WORDS = 12  # of cells side by side
_SIZE = 10.0  # points, of letters on a page without any
_LONG = 8.0  # points: shorter strokes rule nothing
_THIN = 2.0  # points
_LOOSE = 0.62  # times its height: how wide the letters of a word are on average, unless they stand apart
_APART = 0.35  # the same: a gap between two words
_SEAMED = 4  # characters of two words that touch at least
_SEAM, _OVER = (
    0.05,
    0.2,
)  # times the height of a line: how far they are apart, or one over the other, at least
_PDFIUM_LINE, _WORDS = re.compile(r"[^\r\n]+"), re.compile(rf"[^\s{HYPHEN}]+{HYPHEN}?|{HYPHEN}")
_RIGHT_TO_LEFT = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")
_LETTER = re.compile(r"[^\W\d_]")


class Box(NamedTuple):
    """Where something stands: `left` < `right`, and `top` < `bottom`."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        """How high it is."""
        return self.bottom - self.top

    def around(self, other: Box) -> Box:
        """The smallest box that contains both."""
        return Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )

    def touches(self, other: Box) -> bool:
        """Whether some of it is inside of the other."""
        beside = self.right < other.left or self.left > other.right
        return not beside and self.bottom >= other.top and self.top <= other.bottom

    def is_level_with(self, other: Box) -> bool:
        """Whether both stand on one line."""
        shared = min(self.bottom, other.bottom) - max(self.top, other.top)
        return shared > _LEVEL * min(self.height, other.height)


class Line(NamedTuple):
    """Words side by side, without a wide gap.

    `size` is that of its letters. `turned` is how many quarters they are turned by, clockwise, against most
    letters of the page. `place` is where the file has it: the lines of a page are counted. `words` are
    where its words begin and end, none where these may not be cells: it is long, or read from right to left.
    """

    text: str
    box: Box
    size: float
    bold: bool = False
    turned: int = 0
    place: int = 0
    words: tuple[tuple[float, float], ...] = ()

    @property
    def runs_left(self) -> bool:
        """Whether it is read from right to left."""
        return runs_left(self.text)


def runs_left(text: str) -> bool:
    """Whether most letters are Hebrew or Arabic."""
    return 2 * len(_RIGHT_TO_LEFT.findall(text)) > len(_LETTER.findall(text)) > 0


class Sheet(NamedTuple):
    """What stands on a page: its lines as the file has them, turned ones last, and the rules drawn on it."""

    lines: list[Line]
    rules: list[Box]


class Addition(NamedTuple):
    """Words that belong to a place of a page, in the coordinates of its file.

    `replaces` is whether they stand for what the page has there; else they count where it has nothing.
    `is_note` is whether they have no place in the order of the page, and are read last.
    """

    text: str
    box: Box
    replaces: bool = False
    is_note: bool = False


def sheet_of(page: Any, additions: Sequence[Addition] = ()) -> Sheet:  # noqa: ANN401 a page of pypdfium2, which has no types
    """The lines and rules of a page, without words beyond its edges, unless all of them stand there.

    Raises:
        ValueError: the page has too many characters.
    """
    rules = _rules(page.raw)
    text_page = page.get_textpage()
    try:
        reader = _Reader(text_page.raw, [rule for rule in rules if rule.right - rule.left < _THIN])
        found = list(reader.lines(Box(*page.get_bbox()))) or list(reader.lines())
    finally:
        text_page.close()
    quarter = _most_usual(found)
    lines = [
        one.line._replace(
            box=as_read(one.line.box, quarter),
            turned=(one.quarter - quarter) % _QUARTERS,
            place=place,
        )
        for place, one in enumerate(found)
    ]
    for addition in additions:
        lines = _with(lines, addition, as_read(addition.box, quarter))
    lines.sort(key=lambda line: bool(line.turned))
    return Sheet(lines, [as_read(rule, quarter) for rule in rules])


def _with(lines: list[Line], addition: Addition, box: Box) -> list[Line]:
    """The lines and an addition, which has the size of the line beside it, or of the others."""
    inside = [] if addition.is_note else [line for line in lines if _is_inside(line.box, box)]
    if addition.replaces:
        lines = [line for line in lines if line not in inside]
    elif inside:
        return lines
    if not addition.text:
        return lines
    beside = min(
        (line for line in lines if line.box.is_level_with(box)),
        key=lambda line: max(line.box.left - box.right, box.left - line.box.right),
        default=None,
    )
    size = beside.size if beside else median(line.size for line in lines) if lines else _SIZE
    place = beside.place if beside else max((line.place for line in lines), default=0)
    if addition.is_note:
        end = max((line.box.bottom for line in lines), default=box.bottom) + 2 * size
        box, place = Box(box.left, end, box.left + size * len(addition.text) / 2, end + size), place + 1
    elif beside:
        box = box._replace(top=beside.box.top, bottom=beside.box.bottom)
    return [*lines, Line(addition.text, box, size, place=place)]


def _is_inside(inner: Box, outer: Box) -> bool:
    """Whether the middle of a box is in another one."""
    across, down = (inner.left + inner.right) / 2, (inner.top + inner.bottom) / 2
    return outer.left <= across <= outer.right and outer.top <= down <= outer.bottom


def _rules(page: Any) -> list[Box]:  # noqa: ANN401 a pointer
    """The thin rules on a page, as of a table, and the edges of frames."""
    import pypdfium2.raw as pdfium  # noqa: PLC0415 in the child only

    count = pdfium.FPDFPage_CountObjects(page)
    if count > _MOST_OBJECTS:
        return []
    places = [ctypes.c_float() for _ in range(4)]
    rules = []
    for number in range(count):
        drawn = pdfium.FPDFPage_GetObject(page, number)
        if pdfium.FPDFPageObj_GetType(drawn) != pdfium.FPDF_PAGEOBJ_PATH:
            continue
        if not pdfium.FPDFPageObj_GetBounds(drawn, *places):
            continue
        left, bottom, right, top = (place.value for place in places)
        if not all(map(math.isfinite, (left, bottom, right, top))):
            continue
        wide, high = right - left >= _LONG, top - bottom >= _LONG
        if wide and high:
            rules += [Box(left, bottom, right, bottom), Box(left, top, right, top)]
            rules += [Box(left, bottom, left, top), Box(right, bottom, right, top)]
        elif wide or high:
            rules.append(Box(left, bottom, right, top))
    return rules


class _Word(NamedTuple):
    text: str
    box: Box
    at: int


def _word(letters: Sequence[_Word]) -> _Word:
    box = letters[0].box
    for letter in letters[1:]:
        box = box.around(letter.box)
    glyphs = ["".join(letter.text for letter in glyph) for _, glyph in groupby(letters, key=_place_of)]
    if runs_left("".join(glyphs)):
        glyphs = [glyph[::-1] for glyph in glyphs]  # pdfium turns the letters of a glyph round with its word
    return _Word(_whole("".join(glyphs)), box, letters[0].at)


def _place_of(letter: _Word) -> Box:
    return letter.box


def _whole(text: str) -> str:
    """A text with characters beyond 16 bits put together again, and without controls."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _Turned(NamedTuple):
    line: Line
    quarter: int


def _most_usual(found: Sequence[_Turned]) -> int:
    """The quarter turn that most characters have."""
    letters = Counter[int]()
    for one in found:
        letters[one.quarter] += len(one.line.text)
    return max(letters, key=lambda quarter: letters[quarter], default=0)


def as_read(box: Box, quarter: int) -> Box:
    """A place in the coordinates of a file, whose y grows upwards, for letters turned by so many quarters."""
    left, bottom, right, top = box.left, box.top, box.right, box.bottom
    match quarter:
        case 1:
            return Box(-top, -right, -bottom, -left)
        case 2:
            return Box(-right, bottom, -left, top)
        case 3:
            return Box(bottom, left, top, right)
    return Box(left, -top, right, -bottom)


class _Reader:
    """Reads one text page. Calls of pdfium take most of the time: one or two for a word, four for a line."""

    def __init__(self, page: Any, uprights: Sequence[Box]) -> None:  # noqa: ANN401 a pointer
        import pypdfium2.raw as pdfium  # noqa: PLC0415 in the child only

        self._pdfium, self._page, self._uprights = pdfium, page, uprights
        self._count = pdfium.FPDFText_CountChars(page)
        if self._count > MAX_CHARACTERS:
            raise ValueError(f"{self._count} characters on a page")
        self._rectangle = pdfium.FS_RECTF()
        self._matrix = pdfium.FS_MATRIX()
        self._text = self._units()

    def _units(self) -> str:
        """The text, with a character for each unit of UTF-16: pdfium counts in them."""
        units = (ctypes.c_ushort * (self._count * 4 + 1))()
        written = self._pdfium.FPDFText_GetText(self._page, 0, self._count, units) if self._count > 0 else 1
        self._is_mapped = written - 1 != self._count
        return "".join(map(chr, units[: max(written - 1, 0)]))

    def lines(self, within: Box | None = None) -> Iterator[_Turned]:
        """Its lines, in the coordinates of the file, of words that some of this box shows."""
        for match in _PDFIUM_LINE.finditer(self._text):
            quarter = self._quarter(match.start())
            words = [
                word for word in self._words(*match.span(), quarter) if not within or word.box.touches(within)
            ]
            if not words:
                continue
            for part in _parts(words, quarter, self._uprights):
                at = max(part, key=lambda word: len(word.text)).at
                line = _line(part, self._size(at), quarter, bold=self._are_bold(part, at))
                yield _Turned(line, quarter)

    def _words(self, start: int, end: int, quarter: int) -> Iterator[_Word]:
        """The words of one of pdfium's lines."""
        for match in _WORDS.finditer(self._text, start, end):
            begin, stop = match.span()
            first = last = self._box_at(begin)
            if stop - begin - match[0].endswith(HYPHEN) > 1:
                last = self._box_at(stop - 1 - match[0].endswith(HYPHEN))
            if not first or not last:
                continue
            is_plain = match[0].isascii() or not any(map(self._is_noise, range(begin, stop)))
            box, height = first.around(last), as_read(first, quarter).height
            seen = as_read(box, quarter)
            is_dense = seen.right - seen.left <= _LOOSE * height * (stop - begin)
            is_left = not runs_left(match[0])
            seamed = self._seamed(begin, stop, quarter) if is_plain and is_left else []
            if seamed:
                yield from seamed
            elif is_plain and is_dense and seen.height < 2 * height and is_left:
                yield _Word(_whole(match[0]), box, begin)
            else:
                yield from self._pieces(begin, stop, quarter)

    def _seamed(self, start: int, end: int, quarter: int) -> list[_Word]:
        """The two words in one of pdfium's that are two pieces of text, not side by side; else none."""
        first, last = self._object(start), self._object(end - 1)
        if end - start < _SEAMED or first == last or not self._text[start:end].isalnum():
            return []
        seam = next(at for at in range(start + 1, end) if self._object(at) != first)
        places = [self._box_at(at) for at in (start, seam - 1, seam, end - 1)]
        if None in places or self._object(seam) != last:
            return []
        begin, before, after, stop = (place for place in places if place)
        gap = as_read(after, quarter).left - as_read(before, quarter).right
        if -_OVER < gap / as_read(after, quarter).height < _SEAM:
            return []
        texts = _whole(self._text[start:seam]) + SEAM, _whole(self._text[seam:end])
        return [_Word(texts[0], begin.around(before), start), _Word(texts[1], after.around(stop), seam)]

    def _object(self, at: int) -> int:
        """The address of the piece of text that a character belongs to."""
        found = self._pdfium.FPDFText_GetTextObject(self._page, self._index(at))
        return ctypes.addressof(found.contents) if found else 0

    def _is_noise(self, at: int) -> bool:
        """Whether the font has no character for a glyph: pdfium then gives its number."""
        return bool(self._pdfium.FPDFText_HasUnicodeMapError(self._page, self._index(at)) == 1)

    def _pieces(self, start: int, end: int, quarter: int) -> Iterator[_Word]:
        """The words in a word of pdfium's whose letters stand apart, without noise."""
        letters = [
            _Word(self._text[at], box, at)
            for at in range(start, end)
            if (self._text[at].isascii() or not self._is_noise(at)) and (box := self._box_at(at))
        ]
        begin = 0
        for at, (one, other) in enumerate(pairwise(letters), 1):
            first, second = as_read(one.box, quarter), as_read(other.box, quarter)
            gap = max(second.left - first.right, first.left - second.right)
            if other.text != HYPHEN and (gap > _APART * first.height or not second.is_level_with(first)):
                yield _word(letters[begin:at])
                begin = at
        if letters[begin:]:
            yield _word(letters[begin:])

    def _box_at(self, at: int) -> Box | None:
        if not self._pdfium.FPDFText_GetLooseCharBox(self._page, self._index(at), self._rectangle):
            return None
        one = self._rectangle
        places = (one.left, min(one.bottom, one.top), one.right, max(one.bottom, one.top))
        return Box(*places) if all(map(math.isfinite, places)) else None

    def _index(self, at: int) -> int:
        if not self._is_mapped:
            return at
        return int(self._pdfium.FPDFText_GetCharIndexFromTextIndex(self._page, at))

    def _quarter(self, at: int) -> int:
        angle = self._pdfium.FPDFText_GetCharAngle(self._page, self._index(at))
        return round(angle / (math.pi / 2)) % _QUARTERS if math.isfinite(angle) else 0

    def _size(self, at: int) -> float:
        index, matrix = self._index(at), self._matrix
        size = self._pdfium.FPDFText_GetFontSize(self._page, index)
        if self._pdfium.FPDFText_GetMatrix(self._page, index, matrix):
            size *= math.hypot(matrix.c, matrix.d)
        return round(size, 1) if math.isfinite(size) else 0.0

    def _are_bold(self, words: Sequence[_Word], longest: int) -> bool:
        """Whether a line is bold, by its longest, first and last word."""
        return all(self._is_bold(at) for at in (longest, words[0].at, words[-1].at))

    def _is_bold(self, at: int) -> bool:
        name, flags = ctypes.create_string_buffer(_NAME_BYTES), ctypes.c_int()
        self._pdfium.FPDFText_GetFontInfo(self._page, self._index(at), name, _NAME_BYTES, flags)
        return bool(flags.value & _FORCED_BOLD or _BOLD.search(name.value.decode("latin-1")))


def _parts(words: Sequence[_Word], quarter: int, uprights: Sequence[Box]) -> Iterator[Sequence[_Word]]:
    """The words of one of pdfium's lines, parted at wide gaps, at rules, and where another line begins."""
    begin = 0
    for at, (one, other) in enumerate(pairwise(words), 1):
        first, second = as_read(one.box, quarter), as_read(other.box, quarter)
        gap = max(second.left - first.right, first.left - second.right)
        beside = -_BACK * first.height <= gap <= _WIDE * first.height and second.is_level_with(first)
        ruled = any(_is_between(one.box, other.box, rule) for rule in uprights)
        if one.text.endswith(HYPHEN) or not beside or ruled:
            yield words[begin:at]
            begin = at
    yield words[begin:]


def _is_between(one: Box, other: Box, rule: Box) -> bool:
    """Whether an upright rule parts two words."""
    middle = (one.top + one.bottom) / 2
    inner = min(one.right, other.right) - _THIN <= rule.left <= max(one.left, other.left) + _THIN
    return inner and rule.top <= middle <= rule.bottom


def _line(words: Sequence[_Word], size: float, quarter: int, *, bold: bool) -> Line:
    box = words[0].box
    for word in words[1:]:
        box = box.around(word.box)
    text = " ".join(word.text for word in words).replace(f"{SEAM} ", SEAM).strip(SEAM)
    if runs_left(text):
        return Line(" ".join(_logical(words)), box, size or box.height, bold)
    spans = _spans(words, quarter) if 1 < len(words) <= _FEW_WORDS else ()
    return Line(text, box, size or box.height, bold, words=spans)


def _spans(words: Sequence[_Word], quarter: int) -> tuple[tuple[float, float], ...]:
    boxes = [as_read(word.box, quarter) if quarter else word.box for word in words]
    return tuple((box.left, box.right) for box in boxes)


def _logical(words: Sequence[_Word]) -> Iterator[str]:
    """The words of a line from right to left: brackets face their words, and Latin words follow each other.

    pdfium leaves brackets as they look, and turns the order of all words round.
    """
    for latin, run in groupby(words, key=lambda word: bool(_LATIN.search(word.text))):
        if latin:
            yield from (word.text for word in sorted(run, key=lambda word: word.box.left))
        else:
            yield from (word.text.translate(_MIRRORED) for word in run)
