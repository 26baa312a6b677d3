"""The one analysis of words, for the full-text index of chunks and for the queries that search it.

Words are segmented, in lower case, folded and stemmed. `rag.text.scripts` normalizes spellings that vary.

Names have several forms: PD-1, parseJsonFile, C++, WHO, and numbers with a sign, § 5. In the index, the
pieces of a name stand in its place; the whole name and the words inside of it are appended to the text, each
once and only if the text lacks it, so that they hardly lengthen it. A query is searched for in all forms. So
a name is found by the whole and by its parts, however text and query write it. An acronym that is another
word in small letters ("WHO", "IT") has a separate form for capitals.

A date has its day and its month as one number each, 20250308 and 202503, in any notation. A number is the
same with any separator of thousands.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, islice, product
from pathlib import Path
from typing import Literal, TypeAlias
from unicodedata import normalize

from lancedb import tokenize

from rag.corpus import USUAL_LANGUAGE, Collection, Language, Source
from rag.text import scripts
from rag.text.dates import WrittenDate, dates_in
from rag.text.number_forms import iban_forms, ibans_in

TOKENIZER = "icu/split"  # segments Chinese, Japanese and Korean, too

KEPT_QUERIES = 64  # a search analyses its query five times, for 0.05 ms each

JOINED = 2
"""The words that may be one name in code; names of three are in the index with their parts."""

MAX_TERMS = 64
"""Of a query; each costs about 0.3 ms."""

ALIAS_COUNTS = 3
"""How often a document's alias counts as one of its words.

The note whose alias is k8s then comes before most others that mention k8s. For 20 notes among 60 short logs
with two mentions of their names, keyword search has an nDCG@10 of .635 with 1, .793 with 2 and .862 with 3.
File names and tags count once: counting meaningless ones (IMG_1234) three times costs .003 on anthropic_docs.
"""

_STEMLESS: frozenset[Language] = frozenset({"Vietnamese", "none"})
_ACCENTED: frozenset[Language] = frozenset({"Danish", "Finnish", "Norwegian", "Swedish", "Vietnamese"})
"""Languages in which a letter with a mark is another letter, so that without it a word is often another word.

Their words keep the marks. For people who don't type marks, the words without them are appended to a text.
"""
VIETNAMESE = re.compile("[\u01a0\u01a1\u01af\u01b0\u1ea0-\u1ef9]")  # letters of no other language
_IDENTIFIER = re.compile("[0-9_]|[a-z][A-Z]|[A-Z]{2}[a-z]")  # in a word of several parts
_APART = "|"  # no term
_INVISIBLE = str.maketrans("", "", "\u00ad\u2060")  # inside of words
MOST_SPELLINGS = 16  # of a name in Chinese characters: two characters with four forms each
_PLAIN_WORD = re.compile("[a-z]{3,}")
_NAME_BEFORE, _NAME_BEHIND = re.compile("[A-Za-z0-9_][-./_]?$"), re.compile("[-./_]?[A-Za-z0-9_]")
_VERSION = re.compile(r"[vV](?P<number>[0-9]+(?:\.[0-9]+)+)")
VERSION = re.compile(
    r"v?[0-9]{1,4}(?:\.[0-9]+)+(?:[-._]?(?:a|b|rc|alpha|beta|dev|pre|preview|post|snapshot)[-.]?[0-9]*)?",
    re.IGNORECASE,
)
"""A version, or another number whose parts say nothing without each other."""

Form: TypeAlias = tuple[str, ...]
"""One or several terms, all of which must occur."""

ASKED_LANGUAGES = 4
"""The most frequent languages of a collection in which a query is analysed: each adds words to look up."""

PLAINLY = 2  # stop words of a language tell that a query is in it
PLAIN_SHARE = 0.25
"""The share of stop words in a query that tells its language without the documents. Other languages share
some stop words by accident: Dutch "die" and "was", Danish "for" and "at"."""

_PUNCTUATION = ".,;:?!\"'()[]„“”‚‘’«»…"

_LISTS = tomllib.loads(Path(__file__).with_name("query_words.toml").read_text("utf-8"))
STOP_WORDS: dict[Language, frozenset[str]] = {
    language: frozenset(words.split()) for language, words in _LISTS["stop_words"].items()
}
"""Words that say nothing about the subject of a query.

They stay in the index, so that a query of stop words alone still finds them. Leaving them out of queries
gains .008 nDCG@10 on xquad_de and .013 on anthropic_docs, and loses .002 on xquad_en. Question words are left
out, too: that gains up to .017 (sparse, anthropic_docs).
"""
ANY_STOP_WORDS = frozenset[str]().union(*STOP_WORDS.values())
_ASKING_WHERE = {
    "where": frozenset({"declared", "defined", "implemented", "located"}),
    "wo": frozenset({"definiert", "deklariert", "implementiert"}),
}
"""Words that only ask beside another: "where is AddCommand defined". Texts have them for other reasons."""
DEFINED_IN_CODE = frozenset(
    """
    class const def enum func function interface method module namespace object record struct trait type
    """.split()  # noqa: SIM905 easier to read
)
"""Words before a name in code, and in queries for its definition."""
QUESTION_WORDS: dict[Language | Literal["others"], frozenset[str]] = {
    language: frozenset(words.split()) for language, words in _LISTS["question_words"].items()
}
"""Words of questions that an answer needn't contain."""


def query_languages(collection: Collection) -> tuple[Language, ...]:
    """The languages in which a collection's index is asked, most frequent first; at least one."""
    if collection.language != "auto":
        return (collection.language,)
    return collection.languages[:ASKED_LANGUAGES] or (USUAL_LANGUAGE,)


def stop_languages(collection: Collection) -> tuple[Language, ...]:
    """The languages whose stop words are dropped from queries, whatever documents the collection has."""
    return tuple(STOP_WORDS) if collection.language == "auto" else (collection.language,)


def query_terms(query: str, languages: Iterable[Language]) -> list[str]:
    """The words of `query` without stop words, unless it has no others.

    With several languages, only the stop words of the one that the query has most of are left out: a stop
    word of another language may be the subject ("war"). A query may be in another language than the
    documents' `languages`: then it has two stop words that these lack. An acronym doesn't count as a stop
    word, unless the whole query is in capitals.
    Example: "What is a leap second?" -> ["leap", "second?"]; "to be or not to be" -> all of it; "what does
    WHO say" -> ["does", "WHO", "say"].
    """
    words = query.split()
    bare = [word.strip(_PUNCTUATION) for word in words]
    acronyms = frozenset[str]() if query.isupper() else ACRONYMS
    plain = ["" if word in acronyms else word.casefold() for word in bare]
    stop_words = _stop_words_spoken(plain, list(languages)).union(
        *(words for asking, words in _ASKING_WHERE.items() if asking in plain)
    )
    return [word for word, small in zip(words, plain, strict=True) if small not in stop_words] or words


def _stop_words_spoken(plain: Sequence[str], languages: Sequence[Language]) -> frozenset[str]:
    def most(lists: Iterable[frozenset[str]]) -> frozenset[str]:
        return max(lists, key=lambda listed: sum(word in listed for word in plain), default=frozenset())

    own = most(STOP_WORDS.get(language, frozenset()) for language in languages)
    if not set(languages) - {"none"}:  # one document in such a language doesn't speak for the others
        return own
    foreign = most(listed for language, listed in STOP_WORDS.items() if language not in languages)
    spoken = sum(word in foreign and word not in own for word in plain)
    is_foreign = spoken >= PLAINLY and spoken > sum(word in own and word not in foreign for word in plain)
    return foreign if is_foreign else own


def spoken_language(query: str) -> Language | None:
    """The language of a query, by stop words that only this language has.

    None if the query has few of them, and for languages without a list of stop words.
    Example: "who is the king of the island" -> English; "python sort list" -> None.
    """
    words = [word.strip(_PUNCTUATION).casefold() for word in query.split()]
    having = ([language for language, listed in STOP_WORDS.items() if word in listed] for word in words)
    counts = Counter(languages[0] for languages in having if len(languages) == 1)
    most = max(counts.values(), default=0)
    spoken = [language for language, count in counts.items() if count == most]
    return spoken[0] if most >= max(PLAINLY, PLAIN_SHARE * len(words)) and len(spoken) == 1 else None


@cache
def question_words(languages: frozenset[Language]) -> frozenset[str]:
    """Words that only ask, in these languages: a few documents may well lack them ("do I get")."""
    return frozenset[str]().union(*(QUESTION_WORDS.get(language, ()) for language in languages))


_OTHER = re.compile("[\u0590-\u1dff\u2e80-\ud7ff\uf900-\ufdff\ufe70-\uffef]")
_APOSTROPHES = "\u02bc\u02bb\u2018\u201b\u2032\uff07`´"
_APOSTROPHE = re.compile(f"[{_APOSTROPHES}](?<=[^\\W\\d_].)(?=[^\\W\\d_])")
"""What keyboards and programs write for the apostrophe inside a word: обовʼязки, l`école, n´est, O‘Neill."""


def has_other_letters(text: str) -> bool:
    """Whether a text has letters beyond Latin, Greek and Cyrillic, which `scripts` normalizes."""
    return not text.isascii() and bool(_OTHER.search(text))


def _normalized(text: str) -> str:
    """A text with one character for all variants of the same character: in NFKC, with `plain_letters`.

    An apostrophe between letters is ’, however it was typed: "обовʼязки", "обов`язки" -> "обов’язки".
    """
    if any(map(text.__contains__, _APOSTROPHES)):  # looking for the pattern takes longer
        text = _APOSTROPHE.sub("’", text)
    text = normalize("NFKC", text)
    return scripts.plain_letters(text) if has_other_letters(text) else text


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
    "(?P<whole>(?!0)[0-9]{1,3}(?P<by>[.,'’ ])[0-9]{3}(?:(?P=by)[0-9]{3})*"
    "|(?P<indian>[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}))(?:(?!(?P=by))[.,](?P<decimals>[0-9]+))?"
)
"""A number whose thousands are separated: 1,234.56; German 1.234,56, French 1 234,56. 0.200 is none."""
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
    text, end = _normalized(text), 0
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
        is_elided = len(pieces[0]) <= 2 and pieces[0].islower() and pieces[0].isascii()  # noqa: PLR2004 l', qu', not п’ять
        is_plain = pieces[1] in _ENDINGS or is_elided
        whole = "" if is_plain else whole
    return whole if len(whole) <= LONGEST else ""


@dataclass(frozen=True, slots=True)
class Word:
    """A word or a name of a query: as written, and the forms that it has in the index.

    A word `is_of_date` if it is one of several that are a date: 8, March, or 2025.
    """

    text: str
    forms: tuple[Form, ...]
    is_of_date: bool = False

    @property
    def is_identifier(self) -> bool:
        """Whether it is a name that stands for one thing: f3outside, TPL-0042, getUserName; not e-mail."""
        return len(self.forms) > 1 and not self.is_of_date and bool(_IDENTIFIER.search(self.text))

    @property
    def is_version(self) -> bool:
        """Whether it is a version or another number of several parts, but no date in numbers."""
        return len(self.forms[0]) > 1 and bool(VERSION.fullmatch(self.text))

    @property
    def is_acronym(self) -> bool:
        """Whether it is in capitals, and a stop word in small letters: WHO."""
        return any(term.endswith(CAPITALS) for form in self.forms for term in form)


def version_pattern(version: str) -> re.Pattern[str]:
    """What finds a version, or a longer one, in a text: 2.19 as v2_19, 2.19.1 or 2:19, but not 1.2.19."""
    first, *others = re.findall("[0-9]+|[a-z]+", version.lower().removeprefix("v"))
    between = r"(?:[\W_]{1,2}|(?<=[a-z]))"
    rest = (f"{between if part.isdecimal() else '[^a-z0-9]?'}{part}" for part in others)
    written = rf"(?<![0-9])(?<![0-9]\.){first}{''.join(rest)}(?!(?<=[0-9])[0-9])"
    return re.compile(written, re.IGNORECASE)


def query_words(query: str, languages: Sequence[Language], *, names: bool = True) -> list[Word]:
    """The words of `query` without stop words, in their order, each in the forms of these languages.

    A query in Vietnamese letters has only Vietnamese forms: those without marks would be other words.
    An index that the engine made itself has no other forms of `names`.
    Example: "Which PD-1s were running?" -> PD-1s (pd + 1 + s, pd1s), were, running (run).
    """
    return [*_query_words(query, tuple(languages), names)]


@lru_cache(KEPT_QUERIES)
def _query_words(query: str, languages: tuple[Language, ...], names: bool) -> tuple[Word, ...]:  # noqa: FBT001 for the cache
    words: list[Word] = []
    if "Vietnamese" in languages and VIETNAMESE.search(normalize("NFC", query)):
        languages = ("Vietnamese",)
    counted = " ".join(query_terms(query, languages))
    if not names:
        return tuple(_plain_words(counted, languages))
    counted, query, end = _normalized(counted), _normalized(" ".join(query.split())), 0
    for date in dates_in(counted):
        if _NAME_BEFORE.search(counted[: date.start][-2:]) or _NAME_BEHIND.match(counted, date.end):
            continue  # log-2025-03-08.txt
        words += _named_words(counted[end : date.start], query, languages)
        words += _words_of_date(date, counted, languages)
        end = date.end
    words += _named_words(counted[end:], query, languages)
    return (*_with_joined(words, query, languages),)


def _with_joined(words: list[Word], query: str, languages: Sequence[Language]) -> list[Word]:
    """The words of a query; if it has two in all, each also in the form of both as one: orderitem.

    So code writes them: OrderItem. In longer queries, such words are mostly there by accident.
    """
    if not (pair := joinable_pair(words, query)):
        return words
    whole = "".join(word.text for word in pair)
    joined = [(term,) for language in languages for term in _ready([whole], language)]
    return [
        replace(word, forms=tuple(dict.fromkeys((*word.forms, *joined)))) if word in pair else word
        for word in words
    ]


def joinable_pair(words: Sequence[Word], query: str) -> list[Word]:
    """The two words of a query beside those for things that code defines: "order item class" -> order, item.

    None if there are others, one isn't plain or has less than three letters, or something is between them.
    """
    pair = [word for word in words if word.text not in DEFINED_IN_CODE]
    are_plain = len(pair) == JOINED and all(_PLAIN_WORD.fullmatch(word.text) for word in pair)
    return pair if are_plain and " ".join(word.text for word in pair) in query.casefold() else []


def _words_of_date(date: WrittenDate, query: str, languages: Sequence[Language]) -> Iterator[Word]:
    """The words of a date in a query, each also in the form that the index has for every notation.

    Texts with the month or the year are found, too. A date in numbers is one word: 8 and 03 say little.
    Example: "8 March 2025" -> 8, March, 2025, each also as 20250308, or as that with 202503 and 2025.
    """
    text = query[date.start : date.end]
    days = [(day.digits,) for day in date.readings]
    near = [(day.digits, day.month_digits, str(day.year)) for day in date.readings]
    if not re.search(r"[^\W\d_]", text):
        yield Word(text, (*days, *near))
        return
    for word in _named_words(text, text, languages):
        yield Word(word.text, (*word.forms, *days, *near), is_of_date=True)


def _named_words(text: str, query: str, languages: Sequence[Language]) -> list[Word]:
    """The words of a part of a query that has no dates. An IBAN is one, grouped or not."""
    words: list[Word] = []
    end = 0
    for iban in ibans_in(text):
        words += _words_and_names(text[end : iban.start()], query, languages)
        whole, grouped = iban_forms(iban[0])
        forms = _words_in_place_of(whole), (whole,), _words_in_place_of(grouped)
        words.append(Word(iban[0], tuple(tuple(_ready(form, languages[0])) for form in forms)))
        end = iban.end()
    return words + _words_and_names(text[end:], query, languages)


def _words_in_place_of(text: str) -> Form:
    """The words that stand in the index for a name or several."""
    return tuple(chain.from_iterable(name.run if name else part.split() for part, name in names_in(text)))


def _words_and_names(text: str, query: str, languages: Sequence[Language]) -> list[Word]:
    words: list[Word] = []
    for part, name in names_in(text):
        if name is None or (" " in part and part not in query):  # "from 10 to 200", without the stop words
            words += _plain_words(part, languages)
            continue
        runs = [*name.forms, *_last_members(part)]
        if version := _VERSION.fullmatch(part):  # v4.1.2, which a text may have as 4.1.2
            runs = [form for _, inner in names_in(version["number"]) if inner for form in inner.forms]
            runs.append((name.whole,))
        forms = [tuple(_ready(run, language)) for language in languages for run in runs]
        words.append(Word(part, tuple(dict.fromkeys(forms))))
    return words


def _last_members(name: str) -> Iterator[Form]:
    """The last parts of a dotted name: a definition doesn't repeat its module or object.

    A single word at the end says too little: "md" of README.md.
    Example: app.Client.getJson -> ("Client", "getJson"), ("getJson",).
    """
    members = name.split(".")
    are_names = all(len(member) > 1 and member[0].isalpha() for member in members)  # not 1.2.3, e.g., U.S.
    if not are_names or len(members) > MOST_PARTS:
        return
    for first in range(1, len(members)):
        ending = ".".join(members[first:])
        if len(members) - first > 1 or _IDENTIFIER.search(ending):
            yield _words_in_place_of(ending)


def _plain_words(text: str, languages: Sequence[Language]) -> list[Word]:
    by_language = [_terms(text, language) for language in languages]
    plain_terms = _terms(text, "none", as_written=True)
    if len(plain_terms) != len(by_language[0]):
        plain_terms = by_language[0]
    forms = zip(*([(term,) for term in terms] for terms in by_language), strict=True)
    words = [
        Word(word, tuple(dict.fromkeys(of_word))) for word, of_word in zip(plain_terms, forms, strict=True)
    ]
    if not has_other_letters(text):
        return words
    in_one_script = scripts.simplified(text)
    if in_one_script == text and scripts.JAPANESE_FORM.search(text):
        in_one_script = text.translate(scripts.USUAL_FORM)
    if in_one_script != text:
        terms = _terms(in_one_script, languages[0])
        is_alike = len("".join(terms)) == len("".join(word.forms[0][0] for word in words))
        words = [*_cut_twice(words, terms)] if is_alike else words
    # In Chinese, other forms would only cut words: by .0014 nDCG@10 of keyword search (xquad_zh).
    if not scripts.may_name_in_japanese(text):
        return words
    return [_in_forms_of_names(word, languages[0]) for word in words]


def _in_forms_of_names(word: Word, language: Language) -> Word:
    """A word of Chinese characters that has the other forms of a name, too: 渡辺 and 渡邉."""
    forms = [scripts.FORMS_OF_NAMES.get(character, character) for character in word.text]
    if max(map(len, forms), default=1) == 1:
        return word
    spellings = map("".join, islice(product(*forms), MOST_SPELLINGS))
    terms = (tuple(_terms(spelling, language)) for spelling in spellings)
    return replace(word, forms=tuple(dict.fromkeys([*word.forms, *terms])))


def _cut_twice(words: Sequence[Word], terms: Sequence[str]) -> Iterator[Word]:
    """Chinese words, with the segmentation of their simplified characters (these terms) as another form.

    Where the two segmentations differ, the text between two common borders is one word with both as its
    forms. Together, the words are as long as the terms.
    """
    remaining, run, terms_of_run = iter(terms), list[Word](), list[str]()
    ahead = 0  # characters by which the words are ahead of the terms
    for word in words:
        run.append(word)
        ahead += len("".join(word.forms[0]))
        while ahead > 0:
            terms_of_run.append(next(remaining))
            ahead -= len(terms_of_run[-1])
        if not ahead:
            as_cut = tuple(term for of_word in run for term in of_word.forms[0])
            text = "".join(of_word.text for of_word in run)
            yield run[0] if as_cut == (*terms_of_run,) else Word(text, ((*terms_of_run,), as_cut))
            run, terms_of_run = [], []


def search_terms(words: Sequence[Word]) -> list[str]:
    """The terms to search the index for: of the words, with repetitions, then of their other forms.

    At most `MAX_TERMS` words, and at most as many terms of other forms.
    """
    first = [term for word in words[:MAX_TERMS] for term in word.forms[0]]
    alternatives = dict.fromkeys(term for word in words for form in word.forms[1:] for term in form)
    extra = [term for term in alternatives if term not in frozenset(first)]
    return first + extra[: max(0, MAX_TERMS - len(first))]


def terms_of_forms(words: Iterable[Word]) -> frozenset[str]:
    """Every term of every form of these words."""
    return frozenset(term for word in words for form in word.forms for term in form)


def terms_of(body: str, language: Language, source: Source | None = None) -> str:
    """The words of a text in this language as the full-text index has them: the column `terms` of a chunk.

    They are segmented, in lower case, without accents, and stemmed. They are separated by one space, where
    the engine splits them. Other forms of names are at the end.
    Example: "The clocks' PD-1", English -> "the clock pd 1 pd1".

    After these come the words of the `source`'s own names that the text lacks, and the words of its aliases
    again, until they occur `ALIAS_COUNTS` times in all.
    Example: "it drains", title "Nodes", alias "k8s" -> "it drain node k 8 s k8s k 8 s k8s k 8 s k8s".
    """
    words = stems(body, language)
    if source:
        there = frozenset(words)
        words += [word for word in dict.fromkeys(stems(source.names, language)) if word not in there]
        words += (ALIAS_COUNTS - 1) * [*dict.fromkeys(stems(source.aliases, language))]
    return " ".join(words)


def stems(text: str, language: Language, *, names: bool = True) -> list[str]:
    """The stems of a text as in the full-text index, with repetitions; see `query_words`."""
    run, cut = _run(text) if names else (text, [])
    terms = _terms(run, language)
    alternatives = _ready([word for name in cut for word in name.added], language)
    if names and not run.isascii():
        alternatives += _other_terms(run, language)
    there = frozenset(terms)
    return terms + [term for term in dict.fromkeys(alternatives) if term not in there]


def plain_terms(text: str, language: Language) -> frozenset[str]:
    """The stems of a text, stop words included; none if it lacks the letters that this language alone has."""
    if language == "Vietnamese" and not VIETNAMESE.search(normalize("NFC", text)):
        return frozenset()
    return frozenset(stems(text, language, names=False))


def _other_terms(run: str, language: Language) -> list[str]:
    """Other terms that queries may use for a run of words: without accents, or single syllables."""
    folded = _terms(run, language, fold=True) if language in _ACCENTED else []
    return folded + (scripts.syllables(run) if has_other_letters(run) else [])


def _run(text: str) -> tuple[str, list[Name]]:
    """A text with the run of each name in its place, and its names."""
    run: list[str] = []
    names: list[Name] = []
    text = _normalized(text)
    for part, name in names_in(text):
        if name is None:
            run.append(part)
        else:
            run.append(" ".join(("", *name.run, "")))
            names.append(name)
    days = (day for date in dates_in(text) for day in date.readings)
    names += [Name((), day.digits, (), (day.month_digits,)) for day in days]  # in addition to its words
    text = "".join(run)
    return scripts.simplified(text) if has_other_letters(text) else text, names


_KEYS = re.compile(r"[^\W\d]{2,}(?:\.[^\W\d]{2,}){2,}")  # not README.md


def words_in_text(words: Iterable[Word], text: str, language: Language) -> frozenset[Word]:
    """The words that `text` contains in any form, compared as in the full-text index.

    A name occurs as a whole, or with its parts in sequence: "outside, on floor 3" has no f3outside. Two words
    with an apostrophe in between have no whole form; they may be anywhere, and so may the keys of a setting,
    which stand below each other: server.volume.size.
    Example: the words of "Who built the pendulum clocks?", "A pendulum clock ticks." -> pendulum, clocks.
    """
    terms = _terms_in_rows(text, language)
    in_rows, anywhere = f" {' '.join(terms)} ", frozenset(terms)

    def has(word: Word) -> bool:
        if len(word.forms) == 1:
            return anywhere.issuperset(word.forms[0])
        if any(f" {' '.join(form)} " in in_rows for form in word.forms):
            return True
        with_all_keys = (form for form in word.forms if len(form) > word.text.count("."))
        return bool(_KEYS.fullmatch(word.text)) and any(map(anywhere.issuperset, with_all_keys))

    return frozenset(word for word in words if has(word))


def _terms_in_rows(text: str, language: Language) -> list[str]:
    """The stems of a text in order, then the stems of each other form of its names, `_APART` in between.

    Example: "parseJsonFile reads" -> parsejsonfil read | parsejsonfil | | pars json file |.
    """
    run, names = _run(text)
    rows = _terms(run, language)
    forms = [part for name in names for form in name.forms for part in (_APART, *form)]
    rows += _ready(forms, language)
    return [*rows, _APART, *_other_terms(run, language)]


def _ready(words: Iterable[str], language: Language) -> list[str]:
    """Words that are cut already, folded and stemmed."""
    joined = " ".join(words)
    return _terms(joined, language, base="whitespace") if joined else []


def _terms(
    text: str,
    language: Language,
    *,
    as_written: bool = False,
    fold: bool | None = None,
    base: str = TOKENIZER,
) -> list[str]:
    """The words of a text in lower case, and unless `as_written` folded and stemmed."""
    if not text.isascii():
        text = text.translate(_INVISIBLE).replace("İ", "i")
    if not has_other_letters(text):
        return _tokens(text, language, as_written, fold, base)
    if not as_written:
        text = scripts.comparable_text(text)
        text = scripts.with_teh_marbuta(text) if language == "Arabic" else text
    terms: list[str] = []
    for at, part in enumerate(scripts.UNSPACED_RUN.split(text)):
        if at % 2:  # a run without spaces
            terms += scripts.pairs_of_syllables(part)
        else:
            terms += _tokens(part, language, as_written, fold, base)
    return terms if as_written else [scripts.comparable_word(term) for term in terms]


def _tokens(text: str, language: Language, as_written: bool, fold: bool | None, base: str) -> list[str]:  # noqa: FBT001 for speed
    if language == "Turkish":
        text = text.replace("I", "ı")
    stemless = language in _STEMLESS
    folding = language not in _ACCENTED if fold is None else fold
    tokens = tokenize(
        text,
        base_tokenizer=base,
        language="English" if stemless else language,  # it requires a known language
        stem=not (stemless or as_written),
        remove_stop_words=False,  # with this tokenizer it would drop digits and single letters
        ascii_folding=folding and not as_written,
        max_token_length=LONGEST,
    )
    return [token.text for token in tokens]
