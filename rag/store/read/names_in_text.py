"""What the words of a text are compared by: the letters of all scripts, and the forms of names.

First, scripts in which a word is usually written in several ways get one form of it.

Then names: PD-1, parseJsonFile, C++, WHO, and numbers with a sign, § 5. A name has several forms: "PD-1" is
written "PD1", too, and "parseJsonFile" consists of words. In a text, its pieces stand where the name does.
What it is as a whole, and the words inside of it, are added at the end, each once and only if the text
doesn't have it anyway, so that they hardly lengthen it. A query is searched for in all forms. So a name is
found by the whole and by its parts, however it is written here or there.

An acronym that is another word in small letters ("WHO", "IT") has a form of its own, for one in capitals.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from unicodedata import normalize

from rag.text.chinese import SIMPLIFIED

_ZEROS = (  # of decimal digits, each followed by nine more: Arabic, Persian, Indic, Thai, Lao, Burmese, Khmer
    "\u0660\u06f0\u0966\u09e6\u0a66\u0ae6\u0b66\u0be6\u0c66\u0ce6\u0d66\u0e50\u0ed0\u0f20\u1040\u17e0"
)
_DIGITS = {ord(zero) + digit: str(digit) for zero in _ZEROS for digit in range(10)}
_POINTS = (  # of Hebrew and of Arabic: vowels, cantillation, and the line that stretches a word
    *(set(range(0x0591, 0x05C8)) - {0x05BE, 0x05C0, 0x05C3, 0x05C6}),
    *(*range(0x0610, 0x061B), 0x0640, *range(0x064B, 0x0660), 0x0670, *range(0x06D6, 0x06DD)),
)
_PLAIN = _DIGITS | dict.fromkeys(_POINTS) | str.maketrans("٫٬٪", ".,%")
_MARK_IN_HEBREW = re.compile("(?<=[א-ת])[\"'’”״׳](?=[א-ת])")  # in צה״ל and ג׳ירפה, also as on a keyboard
_OF_PERSIAN = {"ي": "ىیې", "ك": "کڪ", "ه": "ۀەہھۃ"}  # and the letters of Arabic for them
_ARABIC = {ord(letter): arabic for arabic, letters in _OF_PERSIAN.items() for letter in letters}
_ENDS_AND_ALEFS = str.maketrans("أإآٱة", "اااا" + "ه")  # after stemming: the stemmer of Arabic needs them
_KATAKANA = {code: code + 0x60 for code in (*range(0x3041, 0x3097), 0x309D, 0x309E)}  # by their hiragana
_LONG = re.compile("[ァ-ヺー]{3,}ー")
_ONE_LETTER = {**SIMPLIFIED, **_KATAKANA, **_ENDS_AND_ALEFS}

_VOWEL_AM = re.compile("([\u0e4d\u0ecd])([\u0e48-\u0e4b\u0ec8-\u0ecb]?)([\u0e32\u0eb2])")  # น้ํา
_AM = {"\u0e32": "\u0e33", "\u0eb2": "\u0eb3"}
_BEFORE = "\u0e40-\u0e44\u0ec0-\u0ec4"  # vowels of Thai and Lao that are written before their consonant
_CONSONANTS = "\u0e01-\u0e2e\u0e81-\u0eae\u0edc-\u0edf\u1000-\u102a\u103f\u1050-\u1055\u1780-\u17b3"
_MARKS = (
    "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u1038\u103a-\u103e\u1056-\u1059"
    "\u17b4-\u17d1\u17d3\u17dd"
)
_BELOW = "\u1039\u17d2"  # a consonant under another one follows
_BEHIND = "\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3"
_SYLLABLE = f"[{_BEFORE}]?[{_CONSONANTS}](?:[{_BELOW}][{_CONSONANTS}]|[{_MARKS}])*[{_BEHIND}]?"
_SYLLABLES = re.compile(_SYLLABLE)
_UNSPACED_RUN = re.compile(f"((?:{_SYLLABLE})+)")
_OTHER = re.compile("[\u0590-\u1dff\u2e80-\ud7ff\uf900-\ufdff\ufe70-\uffef]")
_KOREAN = re.compile("(?<![가-힣])[가-힣]{3,80}(?![가-힣])")  # longer is not a word, and would take seconds
_PARTICLE = re.compile(
    "(?<=[가-힣][가-힣])(?:은|는|이|가|을|를|의|에|로|으로|와|과|도|만|에서|에게|에게서|께|께서|한테|한테서|까지|부터"
    "|처럼|보다|마다|조차|마저|밖에|이나|이라|라는|이라는|이란|하고|으로서|로서|으로써|로써|대로|만큼|뿐|이며|이고|들"
    "|입니다|이다|입니까|합니다|합니까|하다|하는|하여|해서|했다|했습니다|됩니다|되다|되는|되어|된|할|한)$"
)


def has_other_letters(text: str) -> bool:
    """Whether a text has letters beyond Latin, Greek and Cyrillic, and may need one of these forms."""
    return not text.isascii() and bool(_OTHER.search(text))


def plain_letters(text: str) -> str:
    """A text as most people type it: with digits from 0 to 9, and without the points of Hebrew and Arabic.

    The vowel am of Thai and Lao is one letter again, which Unicode's compatible form takes to pieces.
    Example: "שָׁלוֹם" -> "שלום"; "צה״ל" -> "צהל"; "كتــابٌ ۱۲" -> "كتاب 12".
    """
    text = _MARK_IN_HEBREW.sub("", text.translate(_PLAIN))
    return _VOWEL_AM.sub(lambda match: match[2] + _AM[match[3]], text)


def unspaced_parts(text: str) -> list[str]:
    """The parts of a text: every second one is a run of Thai, Lao, Burmese or Khmer, without any spaces.

    Example: "see ตัวอย่าง 2" -> ["see ", "ตัวอย่าง", " 2"].
    """
    return _UNSPACED_RUN.split(text)


def syllables(run: str) -> list[str]:
    """The syllables of a run: each a consonant with what is written around it.

    Example: "น้ำดื่ม" -> ["น้ำ", "ดื่", "ม"].
    """
    return _SYLLABLES.findall(run)


def pairs_of_syllables(run: str) -> list[str]:
    """What counts as the words of a run: each syllable with the next one, or the only one.

    Example: "น้ำดื่ม" -> ["น้ำดื่", "ดื่ม"].
    """
    single = syllables(run)
    return [first + second for first, second in pairwise(single)] or single


def comparable_text(text: str) -> str:
    """A text before its words are stemmed: Persian with Arabic letters, Korean words `without_particles`.

    Example: "کتاب" -> "كتاب".
    """
    return _KOREAN.sub(lambda word: without_particles(word[0]), text.translate(_ARABIC))


def comparable_word(word: str) -> str:
    """A stemmed word with one letter for each that is written in several.

    Chinese is in simplified characters, Japanese in katakana without the mark of a long vowel at the end, and
    Arabic with bare alefs and without teh marbuta.
    Example: "用戶" -> "用户"; "りんご" -> "リンゴ"; "サーバー" -> "サーバ"; "أحمد" -> "احمد".

    Source for Arabic and Persian: their normalization in Apache Lucene.
    """
    word = word.translate(_ONE_LETTER)
    return word[:-1] if _LONG.fullmatch(word) else word


def without_particles(word: str) -> str:
    """A Korean word without the particles and endings behind it, as long as two syllables are left.

    They are written together with a noun, which without this would be another word with each of them. Words
    that only look as if they had one lose it in texts and queries alike.
    Example: "경비실에서는" -> "경비실"; "회의" -> "회의".
    """
    while (stem := _PARTICLE.sub("", word)) != word:
        word = stem
    return word


_AROUND = 80  # characters of a line on each side that tell whether it is in capitals
MOST_PARTS = 8  # of a name: what has more is a digest or an encoded picture
LONGEST = 80  # characters of a word; a SHA-256 has 64

_LETTERS = "A-Za-z\u00b5\u00c0-\u052f\u1e00-\u1fff"  # Latin, Greek and Cyrillic, with their accents
_NAME = re.compile(
    r"(?<!\w)(?P<sign>[A-Za-z]{1,2}(?:\+\+|#)|\.[A-Z]{2,})(?![\w+#])"
    rf"|[0-9{_LETTERS}]+(?:(?:[-_.'’\u2010\u2011·&]|__|,(?=[0-9]))[0-9{_LETTERS}]+)*"
    "|[\u0620-\u06d3]+(?:\u200c[\u0620-\u06d3]+)+"  # Persian: می‌خواهم
)
_JOINT = re.compile(r"[-_.,'’\u2010\u2011·&\u200c]+")
_CASE = re.compile("(?<=[a-z])(?=[A-Z][A-Za-z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")  # not APIs, CoT, IPv6
_BRAND = re.compile("[A-Z][a-z]+[A-Z][a-z]+")  # TypeScript is one word, unless it is called or indexed
_DIGIT = re.compile(f"(?<=[0-9])(?=[{_LETTERS}])|(?<=[{_LETTERS}])(?=[0-9])")
_GROUPED = re.compile(r"[0-9]{1,3}(?:[.,][0-9]{3})+")  # 1,000; in German 1.000
_NUMBER = re.compile("[0-9]+(?:[.,][0-9]+)*[a-z]?")  # § 5a has a letter
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
"""What stands for something in capitals, and in small letters is a stop word.

Words that people only emphasize are none of them: "which are NOT allowed", "cats OR dogs".
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
    text, end = normalize("NFKC", text), 0
    text = plain_letters(text) if has_other_letters(text) else text
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
    """The forms of a name. `run` is what stands in its place, and `inside` the words in its pieces.

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
        return Name(("".join(pieces),), "", ())
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
    """The forms of a number beside a sign: as it is without, and with the sign first, wherever that stands.

    Example: 5 in "5 %" or "5 percent" -> ("5",), "%5"; in "Art. 5" or "Article 5" -> ("5",), "art.5".
    """
    text = match[0]
    if not (sign := _sign(match)) or not _NUMBER.fullmatch(text):
        return None
    pieces = tuple(_JOINT.split(text))
    if _GROUPED.fullmatch(text):
        pieces = ("".join(pieces),)
    value = ".".join(pieces)
    run = tuple(part for piece in pieces for part in _DIGIT.split(piece))
    return Name(run, sign + value, (), (value,) if len(run) > 1 else ())


def _sign(match: re.Match[str]) -> str:
    """The sign of a number, in one way to write it; empty if it has none."""
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
