"""The language of a query, and its words that say nothing about its subject."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from rag.corpus import USUAL_LANGUAGE, Collection, Language
from rag.text.name_forms import ACRONYMS

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
