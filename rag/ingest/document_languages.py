"""The language of a document, parts that its embedder doesn't know, and the languages of a collection.

The language is detected from the words, or taken from the document's metadata if its words are consistent
with that. Office programs state the language of their template ("en-US") regardless of the text, so a
statement alone proves little. Code and very short texts have no language. An embedder knows the languages
that its vocabulary was made for.

With the language `auto` of a collection, the words of a document are analysed in its own language, or in the
most frequent language of the collection if its own is unknown. A query is analysed in all languages of the
definition, so a language is added before its first document is stored, and dropped after its last one is
gone.

Of the built-in models, the small one reads only English, and the multilingual one takes twice as long. So a
sample of the files is parsed before a collection is made, and their languages decide.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from anyio import to_thread

from rag.config.model_settings import ENGLISH_MODEL, MULTILINGUAL_MODEL, EmbedderSettings, model_name
from rag.config.settings import IngestSettings, Settings
from rag.corpus import DEFAULT_EMBEDDER, USUAL_LANGUAGE, Collection, Document, Language, LanguageChoice
from rag.errors import ParseError
from rag.ingest.discover import discover
from rag.ingest.report import Outcome
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import Budget, LocalFile, printable, read
from rag.ingest.split_text import LINES, parts
from rag.report import counted
from rag.store.write.change_collection import redefine
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import NewSource
from rag.text.languages import LANGUAGE, analysed_in, name_of, primary, rules_of
from rag.text.plain_text import Span

if TYPE_CHECKING:
    import numpy.typing as npt
    from py3langid.langid import LanguageIdentifier

STRETCHES = 7  # samples at even distances, so that a preface or a chapter doesn't decide; an odd number
STRETCH = 400  # characters of words; 99.6 % of such texts in six languages are recognized correctly
LEAST = 4  # characters; fewer don't even tell the script
SURE, SURE_IF_SHORT = 0.6, 0.85  # least probability of a detected language, in long and short texts
SHORT = 200  # characters
CREDIBLE, POSSIBLE = 0.2, 0.01  # least probability of a stated language, if another one is detected or not
_TAG = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")


def with_language(document: Document) -> Document:
    """The document with its language in its metadata, as `primary` writes it; without one if it is unknown.

    Example: stated "en-US" or "de-AT", written in German -> "de".
    """
    stated = document.metadata.get(LANGUAGE, "").strip().replace("_", "-")
    tag = language_of(_prose(document), stated if _TAG.fullmatch(stated) else "")
    metadata = {key: value for key, value in document.metadata.items() if key != LANGUAGE}
    return replace(document, metadata=metadata | ({LANGUAGE: tag} if tag else {}))


def language_of(text: str, stated: str = "") -> str:
    """A text's language: that of the stated tag if the words are consistent with it; empty if unknown."""
    stated = primary(stated)
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
    is_label = stated in _labels()  # others can't be checked, and are believed
    if (
        not stretches
        or not is_label
        or total[stated] / len(stretches) >= (CREDIBLE if detected else POSSIBLE)
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


@lru_cache(1)
def language_identifier() -> LanguageIdentifier:
    """The classifier."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # noqa: PLC0415 takes 0.4 s, and 24 MB

    return LanguageIdentifier.from_pickled_model(MODEL_FILE)


@lru_cache(1)
def _labels() -> frozenset[str]:
    return frozenset(map(primary, language_identifier().nb_classes))


def _probabilities(words: str) -> Mapping[str, float]:
    """The probability of each language.

    The classifier is overconfident. Its scores are divided by the square root of the text's bytes, as
    py3langid 0.4 does; that release itself takes 2 s and 88 MB to load.
    """
    identifier = language_identifier()
    text = words.lower() if words.isupper() else words  # the classifier hardly knows capitals
    features = identifier.instance2fv(text, datatype="float32")
    present = features.nonzero()[0]  # a product with all 7,480 features takes 30 times as long
    scores: npt.NDArray[np.float32] = features[present] @ identifier.nb_ptc[present] + identifier.nb_pc
    scores = np.exp((scores - scores.max()) / np.sqrt(len(text.encode(errors="surrogatepass"))))
    shares: Counter[str] = Counter()
    for label, share in zip(identifier.nb_classes, (scores / scores.sum()).tolist(), strict=True):
        shares[primary(label)] += share
    if len(_JAPANESE.findall(words)) > JAPANESE_SHARE * len(_HAN.findall(words)):
        shares["ja"] += shares.pop("zh", 0)
    return shares


Known = Callable[[str], float]

KNOWN = 0.3  # of a text; Latin scripts .4 and more by `Embedder.vocabulary_share`, others .15 and less
REGION = 400  # characters of words that are judged together, so that a chapter is told apart
REGION_LEAST = 40  # characters of words; fewer don't tell the language

JAPANESE_SHARE = 0.03  # per Chinese character: few in Japanese tables, but a Chinese text has at most a name
_JAPANESE = re.compile("[ぁ-ゖァ-ヺｦ-ﾝ円込払済図対売価働県駅経営総権検実様帰変労単収沢浜辺桜広渋発関転験険]")
"""Kana, and the usual characters that only Japanese writes so."""
_HAN = re.compile("[\u3400-\u9fff]")
_ASCII = re.compile(r"[!-~]+")
_NO_WORD = re.compile(r"[\d_@/\\=<>{}|#$%^*+~\[\]]")


def words_in(text: str) -> str:
    """The words of a text, without numbers, addresses, identifiers and symbols.

    Example: "Restart nginx_2 (see https://a.b): теперь 5 раз, 3 €" -> "Restart (see теперь раз,".
    """
    bare = _ASCII.sub(lambda run: " " if _NO_WORD.search(run[0]) else run[0], text)
    return " ".join(word for word in bare.split() if word.isascii() or any(map(str.isalpha, word)))


class _Region(NamedTuple):
    span: Span
    foreign: bool | None
    """None if it has too few words to tell."""


def foreign_parts(document: Document, known_share: Known) -> list[Span]:
    """The parts of a document in a script or language that the embedder hardly knows (foreign), in order.

    `known_share` is `Embedder.vocabulary_share`. Code isn't foreign. A region with few words is treated like
    the region after it, or at the end like the one before it.
    """
    if document.text.isascii():
        return []  # the units of such a text are its tokens in any language
    regions = [*_regions(document, known_share)]
    last_first = (region.foreign for region in reversed(regions))
    following = next((foreign for foreign in last_first if foreign is not None), False)
    verdicts: list[bool] = []
    for region in reversed(regions):
        following = following if region.foreign is None else region.foreign
        verdicts.append(following)
    runs = groupby(zip(regions, reversed(verdicts), strict=True), key=lambda pair: pair[1])
    spans = [[region.span for region, _ in run] for foreign, run in runs if foreign]
    return [Span(run[0].start, run[-1].end) for run in spans]


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


async def note_languages(writer: CollectionWriter, wave: Iterable[NewSource]) -> None:
    """Add the languages of these sources to the definition. Call it before they are stored."""
    collection = writer.collection
    if not writer.writes or collection.language != "auto":
        return
    before = collection.languages or (USUAL_LANGUAGE,)
    new = {analysed_in(collection, new_source.source.metadata) for new_source in wave}
    if added := sorted(new.difference(before)):
        await redefine_languages(writer, languages=(*before, *added))


async def settle_languages(writer: CollectionWriter) -> None:
    """Drop unused languages; re-analyse documents of unknown language if the most frequent one changed."""
    collection = writer.collection
    if not writer.writes or collection.language != "auto":
        return
    languages = languages_by_frequency(await writer.language_counts())
    if languages == collection.languages:
        return
    usual = replace(collection, languages=languages).usual_language
    changes = usual != collection.usual_language
    if changes and (without := [id_ for id_, tag in (await stored_tags(writer)).items() if not tag]):
        await writer.reanalyse(without, usual)
    await redefine_languages(writer, languages=languages)


def language_notes(outcomes: Iterable[Outcome], collection: Collection) -> Iterator[str]:
    """A note if most of the documents aren't in the collection's language.

    Example: "12 of 15 documents are in Russian, but the collection wiki is analysed as English: …".
    """
    tags = Counter(outcome.language for outcome in outcomes if outcome.language)
    if collection.language in {"auto", "none"} or not tags:
        return
    foreign_tags = Counter({tag: n for tag, n in tags.items() if rules_of(tag) != collection.language})
    if 2 * foreign_tags.total() > tags.total():
        tag, _ = foreign_tags.most_common(1)[0]
        number = sum(n for foreign_tag, n in foreign_tags.items() if name_of(foreign_tag) == name_of(tag))
        yield (
            f"{number} of {counted(tags.total(), 'document')} {'is' if number == 1 else 'are'} in "
            f"{name_of(tag)}, but the words of the collection {collection.name} are analysed as "
            f"{collection.language}: other forms of a word are missed. Run refdesk-admin collection set "
            f"{collection.name} --language auto. That embeds nothing."
        )


def languages_by_frequency(tags: Counter[str]) -> tuple[Language, ...]:
    """The languages of documents with these tags, most frequent first."""
    counts: Counter[Language] = Counter()
    for tag, count in tags.items():
        if tag:
            counts[rules_of(tag)] += count
    return tuple(sorted(counts, key=lambda rules: (-counts[rules], rules)))


async def stored_tags(writer: CollectionWriter) -> dict[str, str]:
    """The language tags of all sources by id; empty if unknown."""
    rows = await writer.source_rows()
    return {row["id"]: json.loads(row["metadata"]).get(LANGUAGE, "") for row in rows}


async def redefine_languages(
    writer: CollectionWriter, *, languages: tuple[Language, ...], language: LanguageChoice | None = None
) -> None:
    """Write the languages, and the language setting if it changes, into the collection's definition."""
    collection = writer.collection
    chosen = language or collection.language
    if (chosen, languages) == (collection.language, collection.languages):
        return
    await redefine(writer, language=chosen, languages=languages)


SAMPLED = 24  # files, at even distances in the order of their paths
SAMPLE_SECONDS = 20.0  # of CPU time for the whole sample
FOREIGN = 0.1
"""The share of documents in other languages than English from which the multilingual model fits better. On a
desk with as many German as English documents, it had .868 where the English one had .814 (nDCG@10)."""


@dataclass(frozen=True, slots=True)
class LanguageSample:
    """The number of sampled documents by language tag."""

    counts: Mapping[str, int]

    @property
    def known(self) -> int:
        """The number of documents with a known language. Code and tables of numbers have none."""
        return sum(count for tag, count in self.counts.items() if tag)

    @property
    def foreign(self) -> int:
        """The number of documents in a known language other than English."""
        return sum(count for tag, count in self.counts.items() if tag and primary(tag) != "en")

    @property
    def model(self) -> str:
        """The built-in model for these languages."""
        is_foreign = self.foreign and self.foreign >= FOREIGN * self.known
        return MULTILINGUAL_MODEL if is_foreign else ENGLISH_MODEL

    @property
    def reason(self) -> str:
        """Why that model fits, to follow its name. Example: "3 of 9 files read first are not in English"."""
        if self.foreign:
            only = "only " if self.model == ENGLISH_MODEL else ""
            are = "is" if self.foreign == 1 else "are"
            return f"{only}{self.foreign} of {counted(self.known, 'file')} read first {are} not in English"
        return "no language but English was found in the files read first"


async def fitting_embedder(
    settings: Settings, paths: Sequence[Path]
) -> tuple[str, LanguageSample] | tuple[str, None]:
    """The name of the embedder for a new collection of these documents, and the sample that decided.

    Without a sample it is the default one: the settings choose it, or there are no files to read.
    """
    if settings.embedder != EmbedderSettings() or not paths:
        return DEFAULT_EMBEDDER, None
    sample = await sample_languages(paths, settings.ingest, settings.data)
    is_default = sample.model == ENGLISH_MODEL
    return DEFAULT_EMBEDDER if is_default else model_name(sample.model), sample


async def sample_languages(paths: Sequence[Path], settings: IngestSettings, without: Path) -> LanguageSample:
    """The languages of a sample of the files at these paths, except those in the folder `without`.

    Files that can't be parsed don't count.
    """
    discovery = await to_thread.run_sync(lambda: discover(paths, settings, without=without))
    files = list(discovery.files.values())
    step = max(1.0, len(files) / SAMPLED)
    counts: Counter[str] = Counter()
    budget = Budget(SAMPLE_SECONDS)
    for file in (files[int(at * step)] for at in range(min(SAMPLED, len(files)))):
        tag = await _language(file, settings, budget)
        if not budget.left:
            break
        if tag is not None:
            counts[tag] += 1
    return LanguageSample(counts)


async def _language(file: LocalFile, settings: IngestSettings, budget: Budget) -> str | None:
    """The tag of a file's language, empty if it is unknown; None if the file can't be parsed."""
    try:
        data = await to_thread.run_sync(read, file, settings.max_file_bytes)
        document = await parse_safely(data, printable(file.path.name), budget=budget)
        return (await budget.run(with_language, document)).metadata.get(LANGUAGE, "")
    except ParseError:
        return None
