"""The forms of names: PD-1, parseJsonFile, C++, WHO, 1,234.56, and numbers with a sign, § 5.

A name is found by the whole and by its parts, however a text and a query write it. An acronym that is another
word in small letters ("WHO", "IT") has a separate form for capitals. A number is the same with any separator
of thousands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag.text.scripts import normalized

_AROUND = 80  # characters of a line on each side that tell whether it is in capitals
MOST_PARTS = 8  # of a name; a string with more is a digest or an encoded picture
LONGEST = 80  # characters of a word; a SHA-256 has 64
_LETTERS = "A-Za-z\u00b5\u00c0-\u052f\u1e00-\u1fff"  # Latin, Greek and Cyrillic, with their accents
_NAME = re.compile(
    r"(?<!\w)(?P<sign>[A-Za-z]{1,2}(?:\+\+|#)|\.[A-Z]{2,})(?![\w+#])"
    r"|[1-9](?<![\w.,].)[0-9]{0,2}(?: [0-9]{3})+(?:[.,][0-9]+)?(?!\w)"
    rf"|[0-9{_LETTERS}]+(?:(?:[-_.'’\u2010\u2011·&]|__|,(?=[0-9]))[0-9{_LETTERS}]+)*"
    "|(?<![\u0620-\u06d3])[\u0620-\u06d3]++(?:\u200c[\u0620-\u06d3]++)+"  # Persian: می‌خواهم
)
_JOINT = re.compile(r"[-_.,'’\u2010\u2011·&\u200c ]+")
_CASE = re.compile("(?<=[a-z])(?=[A-Z][A-Za-z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")  # not APIs, CoT, IPv6
_BRAND = re.compile("[A-Z][a-z]+[A-Z][a-z]+")  # TypeScript is one word, unless it is called or indexed
_DIGIT = re.compile(f"(?<=[0-9])(?=[{_LETTERS}])|(?<=[{_LETTERS}])(?=[0-9])")
_GROUPED = re.compile(
    "(?P<whole>[0-9]{1,3}(?P<by>[.,'’ ])[0-9]{3}(?:(?P=by)[0-9]{3})*"
    "|(?P<indian>[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}))(?:(?!(?P=by))[.,](?P<decimals>[0-9]+))?"
)
"""A number whose thousands are separated: 1,234.56; German 1.234,56, French 1 234,56, Indian 1,23,456."""
_NUMBER = re.compile("[0-9]+(?:[.,'’ ][0-9]+)*[a-z]?")  # § 5a has a letter
_SIGN_BEFORE = re.compile(  # not $1, &#12; and #123456 in code
    r"(?:(?P<paragraph>§) ?|(?<!\w)(?P<article>Art)(?:\.|icle|ikel) ?|(?P<money>[€£¥₹]|(?<![a-z0-9_$])\$) ?"
    r"|(?<!\w)(?P<euro>EUR) ?"
    r"|(?<![\w&])(?P<number>\#))$"
)
_SIGN_BEHIND = re.compile(  # not 5 % 3 and 3%20
    r" ?(?:(?P<percent>%(?!\w| [0-9(])|[Pp]er ?cent\b|Prozent)|(?P<euro>€|EUR\b|Euros?\b)"
    r"|(?P<money>[£¥₹$](?!\w))|(?P<degrees>°))"
)
_ONE_SIGN = {"article": "art.", "percent": "%", "euro": "€"}
_LAST_OF_SIGN = {*"§€£¥₹$#.elR"}
_LONGEST_NUMBER = 5  # digits of "#12"; with more it is a colour
_ARTICLE = 9  # characters of "Article" with the spaces around it
_ENDINGS = {"s", "d", "m", "re", "ll", "ve"}  # behind an apostrophe, in English
ACRONYMS = frozenset(
    """
    ALS AM AN AS AT AUS BE BIS BY DA DAS DES ER ES IF IM IN IS IT MAN MIT OB ON SO TO UM US WAR WAS WER WHO WO
    """.split()  # noqa: SIM905 as a list, it would be three times as long
)
"""Acronyms that are stop words in small letters.

Words that people write in capitals for emphasis don't belong here: "which are NOT allowed", "cats OR dogs".
"""
CAPITALS = "^"  # behind an acronym in capitals, which makes it another term


def with_name_forms(text: str) -> str:
    """A text followed by the other forms of its names, for comparisons by other rules.

    Example: "PD-1 blocks it" -> "PD-1 blocks it PD 1 PD1".
    """
    names = [name for _, name in names_in(text) if name]
    forms = dict.fromkeys(part for name in names for part in (*name.run, *name.added) if part)
    return " ".join([text, *forms])


def names_in(text: str) -> Iterator[tuple[str, Name | None]]:
    """The names of a text with their forms, and what is between them."""
    text, end = normalized(text), 0
    for match in _NAME.finditer(text):
        word = match[0]
        if word.isalpha() and (word.islower() or word.istitle()):
            continue  # most words, at a tenth of the time
        if name := _name(match):
            yield text[end : match.start()], None
            yield word, name
            end = match.end()
    yield text[end:], None


@dataclass(frozen=True, slots=True)
class Name:
    """The forms of a name. `run` stands in its place, and `inside` are the words in its pieces.

    Examples: PD-1 -> ("PD", "1"), "PD1", ("PD", "1"). parseJsonFile -> ("parseJsonFile",), "parseJsonFile",
    ("parse", "Json", "File"). l'avion -> ("l", "avion"), "", ("l", "avion").
    """

    run: tuple[str, ...]
    whole: str
    inside: tuple[str, ...]
    pieces: tuple[str, ...] = ()

    @property
    def begun(self) -> tuple[str, ...]:
        """Its run, if that begins with an acronym: WHO-led -> ("WHO^", "led")."""
        begins = len(self.run) > 1 and self.run[0] in ACRONYMS and not self.whole.isupper()
        return (self.run[0] + CAPITALS, *self.run[1:]) if begins else ()

    @property
    def added(self) -> list[str]:
        """The forms that are appended to a text."""
        return [self.whole, *self.pieces, *self.inside, *self.begun[:1]]

    @property
    def forms(self) -> list[tuple[str, ...]]:
        """The ways in which a text may contain it, each once."""
        forms = (self.run, (self.whole,), self.pieces, self.inside, self.begun)
        return [*dict.fromkeys(form for form in forms if any(form))]


def _name(match: re.Match[str]) -> Name | None:
    """The forms of a match of `_NAME`, None if it is a plain word."""
    text = match[0]
    if text[0].isdecimal() and ((name := _signed_number(match)) or text.isdecimal()):
        return name
    if text in ACRONYMS:
        return None if _is_among_capitals(match) else Name((text,), text + CAPITALS, (text,))
    if match["sign"]:  # C++, C#, .NET
        letters = text.strip("+#.")
        return Name((letters,), text, (letters,))
    return _name_of_parts(match)


def _name_of_parts(match: re.Match[str]) -> Name | None:
    """The forms of PD-1, parseJsonFile and the like, None if it has one part."""
    text = match[0]
    pieces = tuple(_JOINT.split(text))
    if _GROUPED.fullmatch(text):
        return _number(text)
    run = tuple(part for piece in pieces for part in _DIGIT.split(piece))
    inside = run
    if not _BRAND.fullmatch(text) or match.string.startswith(("(", "[", "{", "<"), match.end()):
        inside = tuple(part for piece in run for part in _CASE.split(piece))
    if len(inside) == 1:
        return None
    if len(inside) > MOST_PARTS:
        run = inside = pieces
    whole = _whole(text, pieces)
    if whole in ACRONYMS:  # U.S.
        pieces = (whole + CAPITALS,)
    return Name(run, whole, inside, pieces if pieces != run else ())


def _signed_number(match: re.Match[str]) -> Name | None:
    """The forms of a number beside a sign: without the sign, and with the sign in front.

    Example: 5 in "5 %" or "5 percent" -> ("5",), "%5"; in "Art. 5" or "Article 5" -> ("5",), "art.5".
    """
    text, sign = match[0], _sign(match)
    return _number(text, sign) if sign and _NUMBER.fullmatch(text) else None


def _number(text: str, sign: str = "") -> Name:
    """The forms of a number, the same for any separators of thousands and decimals.

    Groups separated by spaces, and those of India, may also be several numbers, so these stay in its place.
    Examples: 1,234.56 and 1.234,56 -> ("1234", "56"), "1234.56"; 1 234,56 -> ("1", "234", "56"), "1234.56".
    """
    pieces = _JOINT.split(text)
    grouped = _GROUPED.fullmatch(text)
    if grouped:
        pieces = ["".join(_JOINT.split(grouped["whole"])), *filter(None, [grouped["decimals"]])]
    value = ".".join(pieces)
    parts = tuple(part for piece in pieces for part in _DIGIT.split(piece))
    run = (*_JOINT.split(text),) if " " in text or (grouped and grouped["indian"]) else parts
    whole = value if len(run) > 1 else ""
    return Name(run, sign + value if sign else whole, parts if parts != run else (), (whole,) if sign else ())


def _sign(match: re.Match[str]) -> str:
    """The normalized sign of a number; empty if it has none."""
    text, (start, end) = match.string, match.span()
    sign = _SIGN_BEHIND.match(text, end)
    if not sign and text[max(0, start - 2) : start].rstrip()[-1:] in _LAST_OF_SIGN:
        sign = _SIGN_BEFORE.search(text[max(0, start - _ARTICLE) : start])
    kind = sign.lastgroup if sign else None
    if sign is None or kind is None:
        return ""
    is_code = (sign[kind] == "$" and end == start + 1) or (
        sign[kind] == "#" and end - start > _LONGEST_NUMBER
    )
    return "" if is_code else _ONE_SIGN.get(kind, sign[kind])


def _is_among_capitals(match: re.Match[str]) -> bool:
    """Whether the rest of a match's line has letters, and all of them are capitals, as in a heading."""
    text, start, end = match.string, match.start(), match.end()
    before = text[max(0, start - _AROUND) : start].rpartition("\n")[2]
    return (before + text[end : end + _AROUND].partition("\n")[0]).isupper()


def _whole(text: str, pieces: Sequence[str]) -> str:
    """The pieces as one word; empty for "don't" and the like, or if it is too long."""
    whole = "".join(pieces)
    if all(map(str.isdecimal, pieces)) and not {*_JOINT.findall(text)} - {".", ","}:
        whole = ".".join(pieces)  # 3.14 is not 314
    elif len(pieces) == 2 and ("'" in text or "’" in text):  # noqa: PLR2004 two
        is_plain = pieces[1] in _ENDINGS or (len(pieces[0]) <= 2 and pieces[0].islower())  # noqa: PLR2004 l', qu'
        whole = "" if is_plain else whole
    return whole if len(whole) <= LONGEST else ""
