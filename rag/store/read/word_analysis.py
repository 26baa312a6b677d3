"""The one analysis of words, for the full-text index of chunks and for the queries that search it.

Words are segmented, in lower case, folded and stemmed. `rag.text.scripts` normalizes spellings that vary.

A name has several forms (`rag.text.name_forms`). In the index, the pieces of a name stand in its place; the
whole name and the words inside of it are appended to the text, each once and only if the text lacks it, so
that they hardly lengthen it. A query is searched for in all forms.

A date has its day and its month as one number each, 20250308 and 202503, in any notation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice, product
from typing import TypeAlias
from unicodedata import normalize

from lancedb import tokenize

from rag.corpus import Language, Source
from rag.store.read.stop_words import DEFINED_IN_CODE, query_terms
from rag.text import scripts
from rag.text.dates import WrittenDate, dates_in
from rag.text.name_forms import CAPITALS, LONGEST, MOST_PARTS, Name, names_in
from rag.text.number_forms import iban_forms, ibans_in
from rag.text.scripts import has_other_letters, normalized

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

Form: TypeAlias = tuple[str, ...]
"""One or several terms, all of which must occur."""


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
    def is_acronym(self) -> bool:
        """Whether it is in capitals, and a stop word in small letters: WHO."""
        return any(term.endswith(CAPITALS) for form in self.forms for term in form)


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
    counted, query, end = normalized(counted), normalized(" ".join(query.split())), 0
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
    """The terms to search the index for: those of words, with repetitions, then those of their other forms.

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
    text = normalized(text)
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


def words_in_text(words: Iterable[Word], text: str, language: Language) -> frozenset[Word]:
    """The words that `text` contains in any form, compared as in the full-text index.

    A name occurs as a whole, or with its parts in sequence: "outside, on floor 3" has no f3outside. Two words
    with an apostrophe in between have no whole form; they may be anywhere.
    Example: the words of "Who built the pendulum clocks?", "A pendulum clock ticks." -> pendulum, clocks.
    """
    terms = _terms_in_rows(text, language)
    in_rows, anywhere = f" {' '.join(terms)} ", frozenset(terms)

    def has(word: Word) -> bool:
        if len(word.forms) == 1:
            return anywhere.issuperset(word.forms[0])
        return any(f" {' '.join(form)} " in in_rows for form in word.forms)

    return frozenset(word for word in words if has(word))


def _terms_in_rows(text: str, language: Language) -> list[str]:
    """The stems of a text in their order, then those of each other form of its names, `_APART` in between.

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
    for at, part in enumerate(scripts.unspaced_parts(text)):
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
