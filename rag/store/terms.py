"""The one analysis of words: those of chunks for the full-text index, and those of queries to search it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lancedb import tokenize

if TYPE_CHECKING:
    from lancedb import FtsToken

    from rag.corpus import Language

TOKENIZER = "icu/split"  # segments Chinese, Japanese and Korean too

MAX_TERMS = 64
"""The cost of a full-text query is proportional to its words, about 0.3 ms each."""

_STOP_WORDS: dict[Language, str] = {
    "English": """
    a an and are as at be but by for if in into is it no not of on or such that the their then there
    these they this to was will with
    how what when where which who whom whose why
    """,
    "German": """
    aber alle allem allen aller alles als also am an ander andere anderem anderen anderer anderes anderm
    andern anderr anders auch auf aus bei bin bis bist da damit dann das dasselbe dazu daß dein deine
    deinem deinen deiner deines dem demselben den denn denselben der derer derselbe derselben des
    desselben dessen dich die dies diese dieselbe dieselben diesem diesen dieser dieses dir doch dort du
    durch ein eine einem einen einer eines einig einige einigem einigen einiger einiges einmal er es
    etwas euch euer eure eurem euren eurer eures für gegen gewesen hab habe haben hat hatte hatten hier
    hin hinter ich ihm ihn ihnen ihr ihre ihrem ihren ihrer ihres im in indem ins ist jede jedem jeden
    jeder jedes jene jenem jenen jener jenes jetzt kann kein keine keinem keinen keiner keines können
    könnte machen man manche manchem manchen mancher manches mein meine meinem meinen meiner meines mich
    mir mit muss musste nach nicht nichts noch nun nur ob oder ohne sehr sein seine seinem seinen seiner
    seines selbst sich sie sind so solche solchem solchen solcher solches soll sollte sondern sonst um
    und uns unse unsem unsen unser unses unter viel vom von vor war waren warst was weg weil weiter
    welche welchem welchen welcher welches wenn werde werden wie wieder will wir wird wirst wo wollen
    wollte während würde würden zu zum zur zwar zwischen über
    """,
}
"""Stop words, for the languages in which we could measure their effect.

They stay in the index, so that a query of stop words alone still finds them. Leaving them out of queries
gains .008 nDCG@10 on xquad_de and .013 on anthropic_docs, and loses .002 on xquad_en. Question words are left
out, too: that gains up to .017 (sparse, anthropic_docs).

Source: Apache Lucene's EnglishAnalyzer and question words; Snowball's German list (snowballstem.org).
"""

_BY_LANGUAGE = {language: frozenset(words.split()) for language, words in _STOP_WORDS.items()}
_PUNCTUATION = ".,;:?!\"'()[]„“”‚‘’«»…"


def query_terms(query: str, language: Language) -> list[str]:
    """The words of `query` without stop words, unless it has no others.

    Example: "What is a leap second?" -> ["leap", "second?"]; "to be or not to be" -> all of it.
    """
    words = query.split()
    stop_words = _BY_LANGUAGE.get(language, frozenset())
    return [word for word in words if word.strip(_PUNCTUATION).casefold() not in stop_words] or words


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a query: as written there, and as stemmed by the full-text index."""

    word: str
    stem: str


def index_terms(query: str, language: Language) -> list[Term]:
    """The words of `query` without stop words, split and stemmed as in the index, each stem once.

    Example: "Which user_ids were running?" -> user, ids (id), were, running (run).
    """
    text = " ".join(query_terms(query, language))
    written = {token.position: token.text for token in _tokens(text, language, as_written=True)}
    words: dict[str, str] = {}
    for token in _tokens(text, language):
        words.setdefault(token.text, written.get(token.position, token.text))
    return [Term(word, stem) for stem, word in words.items()]


def terms_of(body: str, language: Language) -> str:
    """The words of a text in this language as the full-text index has them: the column `terms` of a chunk.

    They are segmented, in lower case, without accents, and stemmed. One space separates them, by which alone
    the engine cuts them. Example: "The clocks' hands", English -> "the clock hand".
    """
    return " ".join(stems(body, language))


def stems(text: str, language: Language) -> list[str]:
    """The stems of a text as in the full-text index, with repetitions."""
    return [token.text for token in _tokens(text, language)]


def share_of_words(query: str, text: str, language: Language) -> float:
    """The share of the words of `query` that `text` contains, compared as in the full-text index.

    Example: "Who built the pendulum clocks?", "A pendulum clock ticks." -> 2/3.
    """
    wanted = {term.stem for term in index_terms(query, language)}
    return len(wanted & set(stems(text, language))) / max(1, len(wanted))


def _tokens(text: str, language: Language, *, as_written: bool = False) -> list[FtsToken]:
    stem = language != "none" and not as_written
    return list(
        tokenize(
            text,
            base_tokenizer=TOKENIZER,
            language="English" if language == "none" else language,  # it requires a known language
            stem=stem,
            remove_stop_words=False,
            ascii_folding=not as_written,
        )
    )
