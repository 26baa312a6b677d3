"""The lines of a PDF page: its words, joined where they are one line, with their positions and looks.

Coordinates are points in reading direction, as `text_page` says.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from statistics import median
from typing import NamedTuple, TypeVar

from rag.ingest.parse.document_parts import join_surrogates, runs
from rag.ingest.parse.pdf.shown_letters import (
    RULE_WIDTH,
    STRUCK,
    are_of_two_sizes,
    as_one,
    begins_with_script,
    parted_by_script,
    script_heights,
    show_letters,
    strokes_of,
    struck_and_rules,
    touch,
    with_scripts_joined,
)
from rag.ingest.parse.pdf.text_page import HYPHEN, QUARTERS, Box, Pdfium, TextPage, Word, as_read, box_around
from rag.ingest.parse.typefaces import as_script, with_scripts

SEAM = "\u2060"  # between two words that touch without a space, as the words of two cells may

_WIDE = 0.9  # times the height of a line: a wider gap parts two columns or two cells
_BACK = 0.5  # the same: how far a word may begin before the end of the one before it
_FEW_WORDS = 12  # of cells side by side
_SIZE = 10.0  # points, of letters on a page without any
_THIN = 2.0  # points
_LOOSE = 0.62  # times its height: how wide the letters of a word are on average, unless they stand apart
_APART = 0.35  # the same: a gap between two words
_SEAMED = 4  # characters of two words that touch at least
_SEAM, _OVER = 0.05, 0.2  # times the height of a line: least gap between them, and least overlap
_LINE, _WORDS = re.compile(r"[^\r\n]+"), re.compile(rf"[^\s{HYPHEN}]+{HYPHEN}?|{HYPHEN}")

_MAY_BE_SCRIPT = re.compile(r"\d+|\w(?=\W+\Z)")  # in a word

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
    strikes = [addition.box for addition in additions if addition.strikes]
    strokes = strokes_of(page.raw)
    text_page = page.get_textpage()
    try:
        reader = _PageReader(show_letters(TextPage(text_page.raw), page.raw), strokes, strikes)
        # A sheet that is wider than its page repeats cells on each page, where nobody sees them.
        lines = list(reader.lines(Box(*page.get_bbox()))) or list(reader.lines())
    finally:
        text_page.close()
    quarter = most_letters(((line.turned, line.text) for line in lines), 0)
    lines = [
        line._replace(box=as_read(line.box, quarter), turned=(line.turned - quarter) % QUARTERS, order=order)
        for order, line in enumerate(lines)
    ]
    for addition in (addition for addition in additions if not addition.strikes):
        lines = _with_addition(lines, addition, as_read(addition.box, quarter))
    lines.sort(key=lambda line: bool(line.turned))  # stable: the others keep the order of the file
    return PageLines(lines, [as_read(rule, quarter) for rule in reader.rules])


def _with_addition(lines: list[Line], addition: Addition, box: Box) -> list[Line]:
    """The lines and an addition, in the font size of the line next to it, else in the usual size."""
    inside = [] if addition.is_note else [line for line in lines if line.box.is_inside(box)]
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


def _joined(letters: Sequence[Word]) -> str:
    glyphs = [
        "".join(letter.text for letter in glyph)
        for _, glyph in groupby(letters, key=lambda letter: letter.box)
    ]
    if runs_left("".join(glyphs)):
        glyphs = [glyph[::-1] for glyph in glyphs]  # pdfium turns the letters of a glyph round with its word
    return join_surrogates("".join(glyphs))


class _PageReader:
    """Reads one text page. Calls of pdfium take most of the time: one or two per word, four per line.

    Its `rules` are the strokes that strike nothing out.
    """

    def __init__(self, page: TextPage, strokes: Sequence[Box], strikes: Sequence[Box]) -> None:
        self._page = page
        self._runs_left = _page_runs_left(page.text)
        self._number = _ARABIC_NUMBER if _ARABIC.search(page.text) else _NUMBER
        self._struck, self.rules = struck_and_rules(page, strokes, strikes)
        self._uprights = [_uprights(self.rules, quarter) for quarter in range(QUARTERS)]

    def lines(self, within: Box | None = None) -> Iterator[Line]:
        """The lines in the coordinates of the file, each with its own quarter turns.

        With `within`, they have only words that overlap this box.
        """
        for quarter, run in self._whole_lines():
            words = [word for word in run if not within or word.box.touches(within)]
            kinds = "".join(map(_kind, _from_right(words, quarter))) if self._runs_left else ""
            backwards = bool(_MIXED.fullmatch(kinds))
            if backwards:  # pdfium orders the words of a line with many Latin letters as if it ran right
                in_line = (_in_order(self._page, word, quarter, self._number) for word in words)
                words = _from_right(in_line, quarter)
            elif not self._runs_left:
                words = with_scripts_joined(self._page, words, quarter)
            for part in _split_line(words, quarter, self._uprights[quarter]):
                at = max(part, key=lambda word: len(word.text)).at
                fonts = [self._page.font_at(at)]
                if any(fonts[0]):  # else the others don't matter
                    fonts += [self._page.font_at(part[0].at), self._page.font_at(part[-1].at)]
                bold = all(font.bold for font in fonts)
                line = _line(part, self._page.size_at(at), quarter, bold=bold, backwards=backwards)
                yield line._replace(even=all(font.even for font in fonts), turned=quarter)

    def _whole_lines(self) -> Iterator[tuple[int, list[Word]]]:
        """The runs, joined where pdfium parts the words of a line: before scripts, and where it runs left."""
        quarter, line = 0, list[Word]()
        for turned, words in self._runs():
            if not line or not words or turned != quarter or not self._goes_on(line, words[0], quarter):
                yield quarter, line
                quarter, line = turned, words
            elif self._runs_left:
                line += words
            else:
                line[-1:] = [as_one(self._page, line[-1], words[0], quarter), *words[1:]]
        yield quarter, line

    def _goes_on(self, line: Sequence[Word], word: Word, quarter: int) -> bool:
        """Whether a line goes on with a word in the next one of pdfium."""
        if self._runs_left:
            return as_read(word.box, quarter).is_level_with(as_read(line[0].box, quarter))
        return parted_by_script(self._page, line[-1], word, quarter)

    def _runs(self) -> Iterator[tuple[int, list[Word]]]:
        """The words of pdfium's lines, divided where the letters turn, and their quarter turns.

        pdfium has a sideways table in one line with the upright header above it.
        """
        for line in _LINE.finditer(self._page.text):
            quarter, words, before = 0, list[Word](), None
            for match in _WORDS.finditer(self._page.text, *line.span()):
                first = self._page.box_at(match.start())
                if not first:
                    continue
                if not before or not _is_beside(before, first, quarter):  # asking at each word takes long
                    turned = self._page.quarter_at(match.start())
                    if words and turned != quarter:
                        yield quarter, words
                        words = []
                    quarter = turned
                words += self._words(match, first, quarter)
                before = words[-1].box if words else None
            yield quarter, words

    def _words(self, match: re.Match[str], first: Box, quarter: int) -> Iterator[Word]:
        """The words in one of pdfium's words, whose first letter is in the box `first`."""
        begin, stop = match.span()
        last: Box | None = first
        if stop - begin - match[0].endswith(HYPHEN) > 1:
            last = self._page.box_at(stop - 1 - match[0].endswith(HYPHEN))
        if not last:
            return
        # Calls of pdfium cost most: a dense word in a single line needs the boxes of two letters only.
        is_plain = match[0].isascii() or not any(map(self._page.is_noise, range(begin, stop)))
        box, height = first.around(last), as_read(first, quarter).height
        level_box = as_read(box, quarter)
        # A wide one may be letters that stand apart, or words without a space between them.
        is_dense = level_box.width <= _LOOSE * height * (stop - begin)
        is_left = not runs_left(match[0])
        is_plain = is_plain and self._struck.isdisjoint(range(begin, stop))
        is_plain = is_plain and not self._has_scripts(match, first, last, quarter)
        seamed = self._split_at_seam(begin, stop, quarter) if is_plain and is_left else []
        if seamed:
            yield from seamed
        elif is_plain and is_dense and level_box.height < 2 * height and is_left:
            yield Word(join_surrogates(match[0]), box, begin)
        else:
            yield from self._split_word(begin, stop, quarter)

    def _has_scripts(self, match: re.Match[str], first: Box, last: Box, quarter: int) -> bool:
        """Whether the last letter of a word or a last digit in it has another size than the first one."""
        ends = (part.end() - 1 for part in _MAY_BE_SCRIPT.finditer(self._page.text, *match.span()))
        boxes = (first, last, *(box for at in ends if (box := self._page.box_at(at))))
        return are_of_two_sizes(as_read(box, quarter) for box in boxes)

    def _split_at_seam(self, start: int, end: int, quarter: int) -> list[Word]:
        """The two words that pdfium joined although they are separate text objects; else none."""
        first, last = self._page.object_at(start), self._page.object_at(end - 1)
        if end - start < _SEAMED or first == last or not self._page.text[start:end].isalnum():
            return []
        seam = next(at for at in range(start + 1, end) if self._page.object_at(at) != first)
        boxes = [self._page.box_at(at) for at in (start, seam - 1, seam, end - 1)]
        if None in boxes or self._page.object_at(seam) != last:
            return []
        begin, before, after, stop = (box for box in boxes if box)
        gap = as_read(after, quarter).left - as_read(before, quarter).right
        if -_OVER < gap / as_read(after, quarter).height < _SEAM:
            return []
        first_text, last_text = (
            join_surrogates(self._page.text[at:to]) for at, to in ((start, seam), (seam, end))
        )
        return [
            Word(first_text + SEAM, begin.around(before), start),
            Word(last_text, after.around(stop), seam),
        ]

    def _split_word(self, start: int, end: int, quarter: int) -> Iterator[Word]:
        """The words in one of pdfium's words, split where letters are apart; without noise."""
        letters = [
            Word(self._page.text[at], box, at)
            for at in range(start, end)
            if (self._page.text[at].isascii() or not self._page.is_noise(at))
            and (box := self._page.box_at(at))
        ]

        def goes_on(word: Sequence[Word], letter: Word) -> bool:
            first, second = as_read(word[-1].box, quarter), as_read(letter.box, quarter)
            is_level = second.is_level_with(first) or touch(word[-1], letter, quarter)
            is_beside = first.gap(second) <= _APART * first.height and is_level
            is_beside = is_beside and not begins_with_script(self._page, word[0], letter, quarter)
            return is_beside or letter.text == HYPHEN

        return (self._word(word, quarter) for word in runs(letters, goes_on))

    def _word(self, letters: Sequence[Word], quarter: int) -> Word:
        """The letters as one word, with marks around those that are struck out or superscripts."""
        heights = {} if self._runs_left else script_heights(self._page, letters, quarter)
        text = ""
        for (is_struck, height), run in groupby(
            letters, key=lambda letter: (letter.at in self._struck, heights.get(letter.at, 0))
        ):
            mark = STRUCK if is_struck else ""
            text += f"{mark}{as_script(_joined([*run]), height)}{mark}"
        return Word(text, box_around(letter.box for letter in letters), letters[0].at)


def _from_right(words: Iterable[Word], quarter: int) -> list[Word]:
    return sorted(words, key=lambda word: as_read(word.box, quarter).left, reverse=True)


def _uprights(rules: Sequence[Box], quarter: int) -> list[Box]:
    """The rules that are upright for letters turned by `quarter`, from left to right as one reads them."""
    as_seen = (as_read(rule, quarter) for rule in rules)
    return sorted(rule for rule in as_seen if rule.width < RULE_WIDTH)


def _split_line(words: Sequence[Word], quarter: int, uprights: Sequence[Box]) -> Iterator[Sequence[Word]]:
    """The words of one of pdfium's lines, split at wide gaps, at rules, and where another line begins."""

    def goes_on(part: Sequence[Word], word: Word) -> bool:
        before, box = part[-1].box, word.box
        if part[-1].text.endswith(HYPHEN) or not _is_beside(before, box, quarter):
            return False
        return not rules_between(as_read(before, quarter), as_read(box, quarter), uprights)

    return runs(words, goes_on)


def _is_beside(before: Box, box: Box, quarter: int) -> bool:
    """Whether a word goes on in the line of the one before, without a wide gap."""
    first, second = as_read(before, quarter), as_read(box, quarter)
    return -_BACK * first.height <= first.gap(second) <= _WIDE * first.height and second.is_level_with(first)


def rules_between(first: Box, second: Box, uprights: Sequence[Box]) -> list[Box]:
    """The rules that separate two words, of upright ones from left to right: a drawing has thousands."""
    start = bisect_left(uprights, min(first.right, second.right) - _THIN, key=itemgetter(0))
    end = bisect_right(uprights, max(first.left, second.left) + _THIN, key=itemgetter(0))
    return [rule for rule in uprights[start:end] if rule.top <= first.middle <= rule.bottom]


def _line(words: Sequence[Word], size: float, quarter: int, *, bold: bool, backwards: bool) -> Line:
    box = box_around(word.box for word in words)
    text = with_scripts(" ".join(word.text for word in words).replace(f"{SEAM} ", SEAM).strip(SEAM))
    if backwards or runs_left(text):
        return Line(" ".join(_logical_order(words)), box, size or box.height, bold)
    boxes = [as_read(word.box, quarter) for word in words] if len(words) <= _FEW_WORDS else []
    return Line(text, box, size or box.height, bold, words=tuple((box.left, box.right) for box in boxes))


# The order of words and letters in Hebrew and Arabic lines, as people write and store them.

_LETTERS = re.compile(r"[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_ANY_LETTER = re.compile(r"[^\W\d_]")
_OPENING, _CLOSING = str.maketrans(")]}", "([{"), str.maketrans("([{", ")]}")
_MIRRORED = str.maketrans("()[]{}<>«»", ")(][}{><»«")
_LATIN_RUN = re.compile(r"(?:[LN][LNS]*)?L")  # of kinds of words from right to left
_MIXED = re.compile(r"(?=.*R)(?=.*[LN])(?!L.*L\Z).*")  # kinds of words: not only Hebrew, and no Latin line
_ARABIC = re.compile(r"[\u0620-\u06d3]")
_SIGN = r"[.,:;!?()\[\]{}\"'«»،]*"
_SIGN_ENDS = re.compile(rf"(?P<before>{_SIGN})(?P<words>.*?)(?P<behind>{_SIGN})", re.DOTALL)
_ARABIC_NUMBER = re.compile(r"(?<!\d)[+-]?\d(?:[\d.,:/]*\d)?")  # what keeps its order in a number
_NUMBER = re.compile(r"(?<!\d)[+-]?[$€£₪]?\d(?:[\d.,:/+-]*\d)?[%$€£₪]?")


def runs_left(text: str) -> bool:
    """Whether most letters are Hebrew or Arabic."""
    return 2 * len(_LETTERS.findall(text)) > len(_ANY_LETTER.findall(text)) > 0


def _page_runs_left(text: str) -> bool:
    """Whether a page is Hebrew or Arabic: most lines have such letters, and these are a fourth of all."""
    lines = [bool(_LETTERS.search(line)) for line in _LINE.findall(text)]
    return 2 * sum(lines) > len(lines) and 4 * len(_LETTERS.findall(text)) > len(_ANY_LETTER.findall(text))


def _in_order(page: TextPage, word: Word, quarter: int, number: re.Pattern[str]) -> Word:
    """A word of a right-to-left line in its order; pdfium mixes those up that have no such letters."""
    if _kind(word) == "R" or word.text.isalpha():
        return word
    places = range(word.at, min(word.at + len(word.text), len(page.text)))
    letters = [Word(page.text[at], box, at) for at in places if (box := page.box_at(at))]
    letters.sort(key=lambda letter: as_read(letter.box, quarter).left)
    text = "".join(letter.text for letter in letters)
    if sorted(text) != sorted(word.text):
        return word
    if not _LATIN.search(text):
        text = number.sub(lambda match: match[0][::-1], text)[::-1]
    return word._replace(text=text, box=box_around(letter.box for letter in letters))


def _logical_order(words: Sequence[Word]) -> Iterator[str]:
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
            begin, end = match["behind"][::-1].translate(_OPENING), match["before"][::-1].translate(_CLOSING)
            yield begin + match["words"] + end
        at = run.end()
    yield from (word.text.translate(_MIRRORED) for word in words[at:])


def _kind(word: Word) -> str:
    if any(map(str.isalpha, _LETTERS.findall(word.text))):
        return "R"
    return "L" if _LATIN.search(word.text) else "N" if any(map(str.isdigit, word.text)) else "S"
