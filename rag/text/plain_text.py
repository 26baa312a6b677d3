"""Plain text: removes its invisible characters, and finds its lines, sentences and words.

Models and terminals read invisible characters, which people don't see. Prompt injections can hide in them,
because 256 variation selectors can spell any bytes. Invisible are control characters, all of Unicode's
default ignorable code points, and annotation marks. Characters with a visible effect are kept: joiners within
emoji and within scripts that join letters, and one variation selector after a character that has variants.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise, takewhile
from json import dumps
from typing import NamedTuple

JOINERS = "\u200c\u200d"
FIRST_PRINTED_HIDDEN = "\u034f"
"""The first of the invisible characters that `str.isprintable` takes for visible."""

_CONTROL = r"\x01-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"
_IGNORABLE = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    r"\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_JOINED = (  # scripts whose letters join: Arabic and related, South and Southeast Asian, Mongolian
    r"\u0620-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18aa\u1900-\u1cff"
    r"\ua800-\uabff\ufb50-\ufdff\ufe70-\ufefc"
    r"\U00010a00-\U00010fff\U00011000-\U00011fff\U0001e900-\U0001e95f"
)
_EMOJI = (
    r"\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935\u2b00-\u2bff"
    r"\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_STANDARD = (
    r"\u1000-\u109f\u2200-\u22ff\u2a00-\u2aff\u3001\u3002\ua840-\ua877\uff01-\uff1f\U00013000-\U0001342f"
)
"""Characters with variants in Unicode's own list, which uses only the first selectors."""

_HIDDEN = re.compile(
    rf"[{_CONTROL}{_IGNORABLE}]"
    rf"(?<![{_JOINED}][{JOINERS}])"
    rf"(?<![{_EMOJI}][\ufe0e\ufe0f])"
    rf"(?!(?<=[{_EMOJI}]\u200d)[{_EMOJI}])(?!(?<=[{_EMOJI}]\ufe0f\u200d)[{_EMOJI}])"
    r"(?!(?<=[#*0-9]\ufe0f)\u20e3)"  # keycap emoji
    rf"(?<![{_HAN}][\ufe00-\ufe02\U000e0100-\U000e01ef])"
    rf"(?<![{_STANDARD}][\ufe00-\ufe06])"
    r"(?<![\u1820-\u18aa][\u180b-\u180d\u180f])"  # Mongolian letters
)
_CONTROLS = re.compile(r"[\x01-\x08\x0e-\x1f\x7f]")
_BARE = re.compile(rf"[{_CONTROL}{_IGNORABLE}]")
_ASCII_LINE_ENDS = ("\r\n", "\r")
_LINE_ENDS = (*_ASCII_LINE_ENDS, "\x85", "\u2028", "\u2029")
_UNSAFE = re.compile(rf"{_HIDDEN.pattern}|[\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_COMMANDS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_JSON_STRING = r'("(?:[^"\\\n]|\\.)*+"?)'
_JSON_COMMENT = re.compile(rf"{_JSON_STRING}|//[^\n\r]*|/\*.*?(?:\*/|\Z())", re.DOTALL)
_JSON_TRAILING_COMMA = re.compile(rf"{_JSON_STRING}|,(?=\s*+[}}\]])")


def without_hidden(text: str) -> str:
    r"""`text` without invisible characters; white space stays, and so do joiners and selectors with effect.

    Example: "pass\u200bword" -> "password"; a family emoji, which joiners hold together, stays one.
    """
    if not text.isascii():
        return _HIDDEN.sub("", text)
    # A printable text apart from line ends and tabs has none: this check is ten times as fast as the pattern.
    return text if text.replace("\n", "").replace("\t", "").isprintable() else _CONTROLS.sub("", text)


def is_encodable(text: str) -> bool:
    """Whether UTF-8 can encode a text: not if it has a lone surrogate, which is half a character."""
    return not _SURROGATE.search(text)


_LAST_LATIN = "\u024f"  # Vietnamese letters with tone marks come later: Vietnamese counts as another script


def share_beyond_latin(text: str) -> float:
    """The share, from 0 to 1, of the letters of a text that aren't Latin; 0 for a text without letters."""
    letters = [letter for letter in text if letter.isalpha()]
    return sum(letter > _LAST_LATIN for letter in letters) / max(len(letters), 1)


def hidden_count(text: str) -> int:
    """How many characters `without_hidden` removes, except soft hyphens, which any typesetter uses."""
    return len(text) - len(without_hidden(text)) - text.count("\u00ad")


def bare(text: str) -> str:
    """`text` without any joiners and selectors, for comparing texts that differ in these only."""
    return _BARE.sub("", text)


def with_line_ends(text: str) -> str:
    """`text` with every line and paragraph separator replaced by LF."""
    for end in _ASCII_LINE_ENDS if text.isascii() else _LINE_ENDS:
        text = text.replace(end, "\n")
    return text


def for_people(text: str) -> str:
    """`text` that is safe to print on a terminal: no escape sequences, no invisible characters.

    Control characters except tabs and line ends, and lone surrogates, become U+FFFD.
    """
    lines = with_line_ends(text).replace("\x0b", "\n").replace("\x0c", "\n")
    return without_hidden(_COMMANDS.sub("\ufffd", lines))


def in_one_line(text: str) -> str:
    """The same on one line, so a document can't add lines to a list."""
    return for_people(text).replace("\n", " ").replace("\t", " ")


def escape_hidden(json: str) -> str:
    """JSON with invisible characters escaped, and lone surrogates, which UTF-8 can't encode."""
    return _UNSAFE.sub(lambda match: dumps(match[0])[1:-1], json)


def without_json_comments(json: str) -> str:
    """JSON with spaces in place of its comments, so that positions stay. A comment without an end stays."""
    return _JSON_COMMENT.sub(_blanked, json)


def without_trailing_commas(json: str) -> str:
    """JSON without comments, with spaces in place of the commas before a closing bracket."""
    return _JSON_TRAILING_COMMA.sub(_blanked, json)


def _blanked(match: re.Match[str]) -> str:
    """A match's groups unchanged; spaces for everything else, except line ends."""
    return match[0] if match.lastindex else re.sub(r"[^\r\n]", " ", match[0])


MAX_INDENT = 200  # characters: deeper than any code, and a hostile line of blanks must not fill a reply

_CLOSERS = r"[\"'”’»)\]*_]"
CJK_END, CJK_CLOSERS = "。！？｡", "」』”’）》】"
CJK = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # written without spaces

_SENTENCE = re.compile(
    rf"(?P<end>[.!?…؟।]{_CLOSERS}{{0,3}}+)\s++(?![a-z])"
    rf"|[{CJK_END}][{CJK_CLOSERS}]*+(?![{CJK_END}])"
)
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:[^\W\d_]"  # an initial, or the last letter of "e.g."
    r"|Mr|Mrs|Ms|Dr|Prof|St|No|Nr|Fig|Vol|vs|cf|ca|approx|bzw|vgl|et al)\.\Z"
)
_BEFORE_NUMBER = re.compile(  # "no. 5", "figs. 2 and 3"; "He said no. Then" ends a sentence
    r"(?<!\w)(?:nos?|nr|figs?|vols?|pp|eds?|ch|chap|sec|art|abs|abb|bd|kap|tab|eqs?|tel)\.\Z", re.IGNORECASE
)
_COUNTED = re.compile(r"(?<!\w)(?:vols?|bd)\.\s\d{1,4}\.\Z", re.IGNORECASE)  # "vol. 3." of a journal
_NUMBERED = re.compile(  # an item's number at the start of a line, or a German ordinal after its article
    r"(?:(?:\A|\n)[ \t#>*+•(|-]*(?:\d{1,3}\.)*"
    r"|(?<!\w)(?:am|vom|zum|im|beim|ab|seit|der|die|das|des|dem|den|jeder|jede|jedes|jeden|jedem)\s)"
    r"\d{1,2}\.\Z",
    re.IGNORECASE,
)
_AFTER_ORDINAL = re.compile(
    r"(?:Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember"
    r"|Jahrhunderts?|Jh)\b"
)
_LOOKED_BACK = 40  # characters: longer than any abbreviation, and than the start of a numbered line
_BLOCK = re.compile(
    r"\n[^\S\n]*+\n\s*+"  # a blank line
    r"|(?<![^\n])#{1,6}[ \t][^\n]*+\n"  # the end of a heading
    r"|\n(?=[ \t]*+(?:(?:[-*+•]|\(?\d{1,9}[.)]|#{1,6})[ \t]|\|))"  # before an item, a heading or a row
)
_ROW = re.compile(r"[ \t]*+\|")
_WORD = re.compile(rf"[{CJK}]|[^\W_{CJK}]+")
_NOTE_ID = re.compile(r"%20[0-9a-f]{32}(?=[./)])")  # in a link; in prose, such digits can be a checksum
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_QUESTION_MARKS = frozenset("?\uff1f\u061f\u055e\u037e")  # also full-width, Arabic, Armenian, Greek
TABLE_RULE = re.compile(r"[^\S\n]*+(?:\|[^\S\n]*+)?:?-[-:+| \t]*+(?:\n|$)")
"""The line below the header row of a Markdown table, like "|---|:-:|"; in other lines it means nothing."""
ENDING = 32  # words of a question behind a pasted text


class Span(NamedTuple):
    """The slice `text[start:end]` of a text."""

    start: int
    end: int


def trimmed(text: str, start: int, end: int) -> Span | None:
    """The slice without the white space at its ends, None if none is left. `end` may be beyond the text."""
    part = text[start:end]
    if not (inside := part.strip()):
        return None
    first = start + len(part) - len(part.lstrip())
    return Span(first, first + len(inside))


def with_replacements(text: str, replacements: Iterable[tuple[int, int, str]]) -> str:
    """The text with other text in place of its slices, each (start, end, replacement), by their start.

    A slice that begins inside an earlier one is gone with it.
    Example: ("a-b", [(1, 2, " or ")]) -> "a or b".
    """
    parts, at = [], 0
    for start, end, replacement in replacements:
        if start >= at:
            parts += [text[at:start], replacement]
            at = end
    return "".join([*parts, text[at:]])


def with_indent(text: str, start: int) -> int:
    r"""Where the line of `text[start]` begins, if only white space precedes it there; else `start`.

    White space of more than `MAX_INDENT` characters isn't indentation.
    Example: position 7 of "a:\n    b" -> 3; position 2 of "a b" -> 2.
    """
    line = text.rfind("\n", max(0, start - MAX_INDENT - 1), start) + 1
    is_first = line or start <= MAX_INDENT
    return line if is_first and text[line:start].isspace() else start


def without_note_ids(text: str) -> str:
    """A text without the ids that Notion appends to the names of notes, in its links.

    Example, with an id of 32 digits: "[Visa](Visa%20page%200f1e….md)" -> "[Visa](Visa%20page.md)".
    """
    return _NOTE_ID.sub("", text)


def one_line(text: str) -> str:
    """The text on one line, with single spaces."""
    return " ".join(text.split())


def line_count(text: str) -> int:
    r"""The number of lines. A line ends at LF and nowhere else, as stored texts have it; see `line_at`.

    Example: "a\nb\n" and "a\nb" -> 2; "a\x0cb\u2028c" -> 1; "" -> 0.
    """
    return text.count("\n") + (not text.endswith("\n") and bool(text))


def line_at(text: str, position: int) -> int:
    r"""The number, from 1, of the line that `text[position]` is on; a line end is on the line that it ends.

    Example: position 2 of "a\nb" -> 2; position 1 -> 1.
    """
    return text.count("\n", 0, position) + 1


def lines_at(text: str, positions: Iterable[int]) -> Iterator[int]:
    r"""The number of the line that each of these ascending positions is on; see `line_at`."""
    line, before = 1, 0
    for position in positions:
        line += text.count("\n", before, position)
        before = position
        yield line


def lines_span(text: str, first: int, last: int) -> Span | None:
    r"""The span of the lines from `first` to `last`, both included, without the end of the last one.

    Lines count from 1. There may be fewer than `last`; None if there is no line `first`.
    Example: lines 2 to 3 of "a\nb\nc\nd" -> (2, 5), "b\nc".
    """
    if first > line_count(text):
        return None
    start = _after_lines(text, 0, first - 1)
    end = _after_lines(text, start, last - first + 1)
    return Span(start, end - 1 if text[start:end].endswith("\n") else end)


def _after_lines(text: str, start: int, count: int) -> int:
    """The position after this number of line ends from `start` on; the end of the text if there are fewer."""
    for _ in range(count):
        start = text.find("\n", start) + 1
        if not start:
            return len(text)
    return start


def sentences(text: str) -> list[Span]:
    """The sentences of `text`, in order and trimmed; only white space is left out.

    Headings, list items and table rows are sentences, too. In doubt two sentences stay together: after an
    abbreviation or an initial, and before a small letter.
    Example: "Dr. Who came. He left!" -> [(0, 13), (14, 22)].
    """
    blocks = [0, *(match.end() for match in _BLOCK.finditer(text)), len(text)]
    cuts = set(blocks)
    for start, end in pairwise(blocks):
        # "max. 1 g" and "5.9 | H! |" end no sentence: a part of a row says nothing without the rest.
        after_row = text.find("\n", start, end) if _ROW.match(text, start) else start
        if after_row >= 0:
            cuts.update(sentence_ends(text, after_row, end))
    spans = (trimmed(text, start, end) for start, end in pairwise(sorted(cuts)))
    return [span for span in spans if span]


def questions_in(text: str) -> str:
    """The sentences of a text that end with a question mark, one a line.

    Example: "Error 7. Why? It is new. What now?" -> "Why?" and "What now?".
    """
    return "\n".join(text[start:end] for start, end in question_spans(text))


def question_spans(text: str) -> list[Span]:
    """The sentences of a text that end with a question mark. A line end ends one, too."""
    return [span for span in _sentences_by_line(text) if _asks(text[slice(*span)])]


def _asks(sentence: str) -> bool:
    """Whether a question mark stands behind the last word."""
    end = takewhile(lambda mark: not (mark.isalnum() or mark == "_"), reversed(sentence))
    return not _QUESTION_MARKS.isdisjoint(end)


def ending(text: str) -> str:
    """The last sentences of a text's last paragraph, up to `ENDING` words, but at least one; one a line."""
    paragraph = text.rstrip().rpartition("\n\n")[2]
    parts = [paragraph[start:end] for start, end in _sentences_by_line(paragraph)]
    counts = accumulate(len(part.split()) for part in reversed(parts))
    last = max(1, sum(count <= ENDING for count in counts))
    return "\n".join(parts[-last:])


def _sentences_by_line(text: str) -> Iterator[Span]:
    lines = text.splitlines(keepends=True)
    for line, begin in zip(lines, accumulate(map(len, lines), initial=0), strict=False):
        yield from (Span(begin + start, begin + end) for start, end in sentences(line))


def sentence_ends(text: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """The positions in running text where a sentence ends, its closing marks and white space included.

    Example: "It costs 5. The next, by Dr. Who, costs 7. Am 3. Oktober" -> 12, 43.
    """
    for match in _SENTENCE.finditer(text, start, len(text) if end is None else end):
        if not _is_inside(text, match.end("end"), match.end()):
            yield match.end()


def _is_inside(text: str, end: int, next_: int) -> bool:
    """Whether the mark that ends at `end` is part of an abbreviation or a number, not the end of a sentence.

    `end` is -1 for the marks of Chinese and Japanese, which have no such abbreviations.
    """
    if end < 0:
        return False
    window = max(0, end - _LOOKED_BACK), end
    if text[max(0, end - 2)].isdigit():
        numbers = (_NUMBERED, _COUNTED)
        return any(number.search(text, *window) for number in numbers) or bool(
            _AFTER_ORDINAL.match(text, next_)
        )
    before_number = text[next_ : next_ + 1].isdigit() and _BEFORE_NUMBER.search(text, *window)
    return bool(before_number or _ABBREVIATION.search(text, *window))


def words(text: str) -> list[str]:
    """The words of `text` without case, accents kept; of Chinese and Japanese every character.

    Example: "The Leap-Second 閏秒" -> ["the", "leap", "second", "閏", "秒"].
    """
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.casefold())  # the same, faster


# The numbers of sections in one form, however a heading or a question writes them. Books count their parts in
# Roman numerals or words, and people ask for them in digits: "chapter 3" for CHAPTER III or "Third Chapter".

ADDED = "bis|ter|quater|quinquies|sexies|septies|octies|novies|nonies|decies"
"""What follows the number of a section that was put in between later, if not a letter: Art. 3-bis."""
_NUMBER_OF_SECTION = re.compile(
    rf"(?<![\w.,-])(?P<sign>§ ?)?(?P<number>[0-9]+)(?:\.?[ºª°])?"
    rf"(?:[ -]?(?P<latin>{ADDED})(?!\w| ?[§0-9])|-(?P<letter>[^\W\d_])(?!\w)"
    r"|[ ](?P<apart>[^\W\d_])(?(sign)(?!\w)|(?= ?§|[.:)]?$))|(?<=[ºª°]))",
    re.IGNORECASE,
)
_COUNTING = """
one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth
eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn sechzehn siebzehn
erst zweit dritt viert fünft sechst siebt acht neunt zehnt elft zwölft dreizehnt vierzehnt fünfzehnt
erst zweit dritt viert fünft sechst siebent acht neunt zehnt
premier deuxième troisième quatrième cinquième sixième septième huitième neuvième dixième onzième douzième
première seconde
primero segundo tercero cuarto quinto sexto séptimo octavo noveno décimo
primer segunda tercer cuarta quinta sexta séptima octava novena décima
primo secondo terzo quarto quinto sesto settimo ottavo nono decimo
prima seconda terza quarta quinta sesta settima ottava nona decima
"""
_VALUES = {
    word: value for line in _COUNTING.strip().splitlines() for value, word in enumerate(line.split(), 1)
}
_ROMAN = tuple(
    tens + ones
    for tens in ("", "x", "xx", "xxx", "xl", "l", "lx", "lxx", "lxxx", "xc")
    for ones in ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")
)
NUMBER_WORDS = "|".join(_VALUES)
OF_STORIES = """
    chapter act scene canto stave kapitel akt aufzug auftritt szene gesang chapitre acte scène capítulo
    capitulo acto escena capitolo atto scena hoofdstuk
""".split()  # noqa: SIM905 as a list, it would be three times as long
"""Words for parts that only a book or a play has: "the first part" is mostly something else."""
PARTS = frozenset(
    [*OF_STORIES, *"book part volume section buch teil band abschnitt livre partie tome libro parte".split()]  # noqa: SIM905
)
"""Words for the parts of books and plays, whose numbers may be Roman or words."""
ANNEXES = frozenset("annex annexe anhang anlage appendix bijlage bilaga bilag allegato anexo anexa".split())  # noqa: SIM905
"""Words for what follows a contract or an act; its number may be Roman, too. In a text they head nothing."""
_PART = rf"(?P<part>{'|'.join(sorted(PARTS | ANNEXES))})"
_ENDING = "(?:er|es|en|e)?"
_NUMERAL = rf"(?P<numeral>{NUMBER_WORDS}|[ivxlc]+)"
_BEHIND = re.compile(rf"\b{_PART}\.? (?:the )?{_NUMERAL}{_ENDING}(?![\w'’-])", re.IGNORECASE)
_BEFORE = re.compile(
    rf"(?:\A\W*|\b(?=\S{{1,20}} (?:{'|'.join(OF_STORIES)})\b))"
    rf"(?:(?P<digits>[0-9]+)(?:\.|st|nd|rd|th|e|º|ª)|{_NUMERAL}{_ENDING}) {_PART}\b",
    re.IGNORECASE,
)
_ALONE = re.compile(r"\A(?P<numeral>[ivxlc]+)(?=\.?\Z|[.:] )", re.IGNORECASE)


def with_section_numbers(text: str) -> str:
    """A text with the numbers of its parts in digits behind their words, and with whole numbers of sections.

    Examples: "CHAPTER III. Shadows", "Drittes Kapitel", "the third chapter", "III" alone -> "CHAPTER 3.
    Shadows", "Kapitel 3", "the chapter 3", "3". "I am" and "Appendix C" stay.
    """
    for pattern in (_BEHIND, _BEFORE, _ALONE):
        text = pattern.sub(_in_digits, text)
    return with_whole_section_numbers(text)


def _in_digits(match: re.Match[str]) -> str:
    named = match.groupdict()
    numeral = (named["numeral"] or "").lower()
    digits = (
        named.get("digits") or _VALUES.get(numeral) or (_ROMAN.index(numeral) if numeral in _ROMAN else 0)
    )
    return " ".join(filter(None, (named.get("part"), str(digits)))) if digits else match[0]


def numeral_pattern(number: str) -> str:
    """An expression for the number of a part as headings write it in small letters; "" above ninety-nine.

    Example: "3" -> an expression for iii, three, third, drittes.
    """
    roman = roman_numeral(number)
    words = [word for word, value in _VALUES.items() if str(value) == number]
    return rf"\b(?:{'|'.join([roman, *words])}){_ENDING}\b" if roman else ""


def roman_numeral(number: str) -> str:
    """A number of up to ninety-nine in Roman numerals, or "": "3" -> iii."""
    return _ROMAN[int(number)] if number.isdecimal() and int(number) < len(_ROMAN) else ""


def with_whole_section_numbers(text: str) -> str:
    """A text in which what was added to the number of a section is joined to it, and no mark is between.

    Examples: "§ 5 a", "5 a §", "Artigo 5.º-A" -> "§ 5a", "5a §", "Artigo 5a"; "Art. 3-bis", "Art. 3 bis" ->
    "Art. 3bis"; "Artigo 5.º Quotas" -> "Artigo 5 Quotas"; "§ 5 bis § 7" and "Article 5 A right" stay.
    """
    return _NUMBER_OF_SECTION.sub(
        lambda match: "".join(
            filter(None, match.group("sign", "number", "latin", "letter", "apart"))
        ).lower(),
        text,
    )
