"""The language of a document, and the parts of it in languages that its embedder doesn't know.

The language is known by the words, or as the document states it where its words don't contradict. Office
programs state the language of their template ("en-US") whatever is written, so a statement alone proves
little. Code has no language, nor has a text of a few words.

An embedder knows the languages that its vocabulary was made for.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rag.ingest.split_text import LINES, parts
from rag.text.languages import LANGUAGE, primary
from rag.text.segments import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy.typing as npt
    from py3langid.langid import LanguageIdentifier

    from rag.corpus import Document

STRETCHES = 7  # read at even distances, so that a preface or a chapter doesn't speak for all; an odd number
STRETCH = 400  # characters of words; 99.6 % of such texts in six languages are recognized correctly
LEAST = 4  # characters; fewer don't even tell the script
SURE, SURE_IF_SHORT = 0.6, 0.85  # probability of a language that is believed, of long and short texts
SHORT = 200  # characters
CREDIBLE, POSSIBLE = 0.2, 0.01  # of the language that a document states, with and without another one told
_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_SAME = {"nb": "no", "nn": "no"}  # which written Norwegian it is, changes with the sentence


def with_language(document: Document) -> Document:
    """The document with its language in its metadata, as a BCP 47 tag; without a tag if it is unknown.

    Example: stated "en-US", written in German -> "de"; stated "de-AT", written in German -> "de-AT".
    """
    stated = document.metadata.get(LANGUAGE, "").strip().replace("_", "-")
    tag = language_of(_prose(document), stated if _TAG.fullmatch(stated) else "")
    metadata = {key: value for key, value in document.metadata.items() if key != LANGUAGE}
    return replace(document, metadata=metadata | ({LANGUAGE: tag} if tag else {}))


def language_of(text: str, stated: str = "") -> str:
    """The tag of a text's language: the stated one if the words are consistent with it; empty if unknown."""
    votes: Counter[str] = Counter()
    total: Counter[str] = Counter()
    stretches = _stretches(text)
    for words in stretches:
        shares = _probabilities(words)
        best = max(shares, key=shares.__getitem__)
        if shares[best] >= (SURE if len(words) >= SHORT else SURE_IF_SHORT):
            votes[best] += len(words)
        total.update(shares)
    detected = votes.most_common(1)[0][0] if votes else ""
    if not stated:
        return detected
    stated_label = _SAME.get(primary(stated), primary(stated))
    is_label = stated_label in _labels()
    if (
        not stretches
        or not is_label
        or total[stated_label] / len(stretches) >= (CREDIBLE if detected else POSSIBLE)
    ):
        return stated
    return detected


def _prose(document: Document) -> str:
    """The text of a document without code; headings count only if there is other text."""
    text = document.text
    kinds = {block.kind for block in document.blocks} - {"code"}
    if kinds <= {"heading"} and len(kinds) < len({block.kind for block in document.blocks}):
        return ""  # the headings of source code are names
    return "\n".join(text[block.start : block.end] for block in document.blocks if block.kind in kinds)


def _stretches(text: str) -> list[str]:
    """Samples of a text at even distances, reduced to words."""
    size = 2 * STRETCH  # numbers and addresses are taken out
    count = min(STRETCHES, max(1, len(text) // size))
    step = len(text) // count
    stretches = [words_in(text[at * step : at * step + size])[:STRETCH] for at in range(count)]
    return [words for words in stretches if len(words) >= LEAST]


def load() -> None:
    """Load the classifier; the first time takes 0.4 s."""
    _identifier()


@lru_cache(1)
def _identifier() -> LanguageIdentifier:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 takes 0.4 s, and 24 MB

    return LanguageIdentifier.from_pickled_model(MODEL_FILE)


@lru_cache(1)
def _labels() -> frozenset[str]:
    return frozenset(_SAME.get(label, label) for label in _identifier().nb_classes)


def _probabilities(words: str) -> Mapping[str, float]:
    """The probability of each language.

    The classifier is overconfident. Its scores are divided by the square root of the text's bytes, as
    py3langid 0.4 does; that release itself takes 2 s and 88 MB to load.
    """
    identifier = _identifier()
    text = words.lower() if words.isupper() else words
    features = identifier.instance2fv(text, datatype="float32")
    present = features.nonzero()[0]  # a product with all 7,480 features takes 30 times as long
    scores: npt.NDArray[np.float32] = features[present] @ identifier.nb_ptc[present] + identifier.nb_pc
    scores = np.exp((scores - scores.max()) / np.sqrt(len(text.encode(errors="surrogatepass"))))
    shares: Counter[str] = Counter()
    for label, share in zip(identifier.nb_classes, (scores / scores.sum()).tolist(), strict=True):
        shares[_SAME.get(label, label)] += share
    return shares


if TYPE_CHECKING:
    Known = Callable[[str], float]

KNOWN = 0.3  # of a text; Latin scripts .4 and more by `Embedder.vocabulary_share`, others .15 and less
REGION = 400  # characters of words that are judged together, so that a chapter is told apart
REGION_LEAST = 40  # characters of words; fewer don't tell the language

_ASCII = re.compile(r"[!-~]+")
_NO_WORD = re.compile(r"[\d_@/\\=<>{}|#$%^*+~\[\]]")


def words_in(text: str) -> str:
    """The words of a text, without numbers, addresses, identifiers and symbols.

    Example: "Restart nginx_2 (see https://a.b): теперь 5 раз" -> "Restart (see теперь раз".
    """
    return " ".join(_ASCII.sub(lambda run: " " if _NO_WORD.search(run[0]) else run[0], text).split())


class _Region(NamedTuple):
    span: Span
    foreign: bool | None
    """None if it has too few words to tell."""


def foreign_parts(document: Document, known_share: Known) -> list[Span]:
    """The parts of a document in a script or language that the embedder hardly knows, in order.

    `known_share` is `Embedder.vocabulary_share`. Code isn't foreign. A region with few words is treated like
    the region after it, or at the end like the one before it.
    """
    if document.text.isascii():
        return []  # in any language written so, the units of a text are its tokens
    regions = [*_regions(document, known_share)]
    following: bool | None = None
    verdicts: list[bool | None] = []
    for region in reversed(regions):
        following = region.foreign if region.foreign is not None else following
        verdicts.append(following)
    verdicts.reverse()
    last = next((verdict for verdict in reversed(verdicts) if verdict is not None), False)
    pairs = zip(regions, verdicts, strict=True)
    runs = groupby(pairs, key=lambda pair: last if pair[1] is None else pair[1])
    return [
        Span(run[0][0].span.start, run[-1][0].span.end)
        for foreign, run in ((foreign, [*group]) for foreign, group in runs)
        if foreign
    ]


def _regions(document: Document, known_share: Known) -> Iterator[_Region]:
    text = document.text
    begun: list[Span] = []
    words: list[str] = []

    def judged() -> Iterator[_Region]:
        if begun:
            joined = " ".join(words)
            foreign = known_share(joined) < KNOWN if len(joined) >= REGION_LEAST else None
            yield _Region(Span(begun[0].start, begun[-1].end), foreign)
            begun.clear()
            words.clear()

    for block in document.blocks:
        span = Span(block.start, block.end)
        if block.kind == "code":
            yield from judged()
            yield _Region(span, foreign=False)
            continue
        for line in parts(text, span, LINES):
            begun.append(line)
            words.append(words_in(text[slice(*line)]))
            if sum(map(len, words)) >= REGION:
                yield from judged()
        if sum(map(len, words)) >= REGION_LEAST:
            yield from judged()
    yield from judged()


def is_within(foreign: Iterable[Span], span: tuple[int, int]) -> bool:
    """Whether a slice lies within one of the foreign parts."""
    start, end = span
    return any(part.start <= start and end <= part.end for part in foreign)
