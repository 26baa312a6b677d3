"""Similarity thresholds: which hits are near enough to the query, and whether they are evidence at all."""

from __future__ import annotations

import re
from collections.abc import Collection as AbstractCollection
from collections.abc import Iterable, Mapping, Sequence, ValuesView
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from math import inf, sqrt
from statistics import fmean

import numpy as np
from anyio import to_thread

from rag.answers import Hit
from rag.config.model_settings import ENGLISH_MODEL
from rag.config.profiles import ThresholdSettings
from rag.corpus import Collection, Distance, Language
from rag.runtime import concurrently
from rag.search.recall import KNOWN_LITTLE, Query
from rag.search.search_plan import SearchPlan
from rag.search.view import View
from rag.store.read.spelling import Spelling, is_typo
from rag.store.read.strict_reader import counts_of_all
from rag.store.read.word_analysis import (
    MAX_TERMS,
    QUESTION_WORDS,
    STOP_WORDS,
    Form,
    Word,
    plain_terms,
    query_languages,
    query_words,
    spoken_language,
    words_in_text,
)
from rag.store.read.words_in_memory import FormCounts, rarity
from rag.text.languages import LANGUAGE, analysed_in, primary
from rag.text.plain_text import questions_in, share_beyond_latin
from rag.uris import names_file

LEAST = 0.26
"""Threshold of evidence for any query, on the scale of all-MiniLM-L6-v2 (rag/evaluate/measuring.md)."""
LEAST_OF_OTHERS = 0.3
"""The same for other models: similarities of passages that don't answer spread more on that scale."""
OF_QUESTION, NEARNESS, NEAREST = 0.06, 0.65, 0.6
"""The threshold for a question is OF_QUESTION + NEARNESS * the similarity of a sentence of the collection and
the nearest passage elsewhere in it, which counts up to NEAREST. In a collection on one subject every passage
is near to a question, so an answer must be nearer. In a series (minutes, menus, leases) sentences are even
nearer to each other, but not to questions."""
STATED = 0.7
"""Factor of that threshold for claims and lists of words: answers rarely repeat their words."""
UNRELATED = 0.0
"""The similarity of unrelated texts, on every model's scale. It is the only safe threshold where the query
may be in another language than the hits: right answers can have .01 (rag/evaluate/measuring.md)."""
BY_MEANING = 0.6
"""The weight of the similarity in the evidence; the words have the rest."""
UNKNOWN, NOT_FOUND = 2, 3
"""Factors of a query word's weight: if no document has it, because it tells most; and, where documents are
not counted, if no hit has it."""
GUESSED = 0.5
"""Factor of a word's weight if a hit has a similar word instead, which may not be meant."""
COMMON, SPOKEN = 0.1, 0.15
"""A query is in the language of the passages if a share `SPOKEN` of its words is each in a share `COMMON` of
the passages. That holds for 0 to 5 % of questions in another language, and for 77 to 99 % of the others."""
KNOWN = 0.7
"""It is, too, if passages have this share of its words: claims and lists of words have few common words."""
WEAK_SHOWN = 2  # hits that are shown beside the note
UNGROUNDED = "Nothing was found that seems to answer this."
ENGLISH_ONLY = "These documents can be searched in English only."
UNREAD_LANGUAGE = "The query seems to be in {}. " + ENGLISH_ONLY + " Ask in English."
OTHER_SCRIPT = 1 / 3  # of a text's letters; fewer may be names or signs
ASKING = frozenset[str]().union(*QUESTION_WORDS.values())
"""Words of questions that an answer needn't contain, so they don't count as evidence."""
DISTANT = "less similar to the query than the thresholds require"


def distance(similarity: float, metric: Distance) -> float:
    """The distance between a passage and the query in the metric of the passage's collection.

    Vectors have unit length, so all metrics order alike: cosine and dot are 1 - similarity, euclidean is
    sqrt(2 - 2 * similarity).
    """
    away = max(0.0, 1.0 - similarity)
    return sqrt(2 * away) if metric == "euclidean" else away


def near_hits(hits: Sequence[Hit], plan: SearchPlan, views: Iterable[View]) -> list[Hit]:
    """The hits of these views that meet all thresholds of the plan, each by the metric that it has there."""
    collections = [view.collection for view in views]
    metrics = {collection.name: plan.distance or collection.distance for collection in collections}
    return hits_within_thresholds(hits, plan.thresholds, metrics)


def hits_within_thresholds(
    hits: Sequence[Hit], thresholds: ThresholdSettings, metrics: Mapping[str, Distance]
) -> list[Hit]:
    """The hits that meet all thresholds, in their order. `metrics` maps collections to their metrics.

    Hits without a similarity stay: no threshold can be applied to them.

    `percentage_distance` is relative to the nearest hit of all collections: 20 keeps hits up to 20 % farther
    away, each in the metric of its own collection. If `max_distance` is stricter, it applies.
    """
    similarities = [hit.similarity for hit in hits if hit.similarity is not None]
    # By similarity, because the collections of these hits may have different metrics.
    furthest = _furthest(max(similarities, default=0.0), thresholds, set(metrics.values()))
    least = -inf if thresholds.min_similarity is None else thresholds.min_similarity

    def passes(hit: Hit) -> bool:
        if hit.similarity is None:
            return True
        metric = metrics[hit.source.collection]
        return hit.similarity >= least and distance(hit.similarity, metric) <= furthest[metric]

    return [hit for hit in hits if passes(hit)]


def _furthest(
    nearest: float, thresholds: ThresholdSettings, metrics: Iterable[Distance]
) -> dict[Distance, float]:
    """The largest distance by metric; `nearest` is the highest similarity of all hits."""
    furthest = inf if thresholds.max_distance is None else thresholds.max_distance
    percentage = thresholds.percentage_distance
    if percentage is None:
        return dict.fromkeys(metrics, furthest)
    return {metric: min(furthest, distance(nearest, metric) * (1 + percentage / 100)) for metric in metrics}


async def lacks_evidence(
    hits: Sequence[Hit], query: Query, plan: SearchPlan, spellings: Mapping[str, Sequence[Spelling]]
) -> bool:
    """Whether no hit is sufficient evidence for an answer; `hits` are the best ones. False without hits.

    A hit's evidence is `BY_MEANING` times its similarity plus the rest times the share of the query's words
    that it contains, or of their other `spellings`, each weighed by how rare it is in the readable passages.
    Words in `ASKING` don't count. Without countable words, the evidence is the similarity. If a query
    consists of identifiers, like TPL-0042, one of them must occur: models can't compare them.

    False for a question that names the file of a hit, and where too little is known: if a hit has no
    similarity, the model knows no word of the query, or its scale was not measured. For a query that may be
    in another language than the hits, these must all be unrelated.
    """
    if any(names_file(plan.query, hit.source.collection, hit.source.name) for hit in hits):
        return False
    views = query.views_by_collection
    # Ordered by cost: first by similarities alone, then by words, which are analysed and counted.
    judged = [_JudgedHit(hit, views[hit.source.collection]) for hit in hits]
    leasts = [_least_evidence(query, hit, plan, are_counted=True) for hit in judged]
    measured = [similarity for hit in judged if (similarity := hit.similarity_to(query)) is not None]
    if not judged or not all(leasts) or len(measured) < len(judged):
        return False
    words = {hit.language: _words(plan.query, hit.language, spellings) for hit in judged}
    identify = _are_identifiers(words.values())
    near = any(BY_MEANING * similarity >= least for similarity, least in zip(measured, leasts, strict=True))
    if near and not identify:
        return False  # comparing words takes longer
    terms = {language: plain_terms(plan.query, language) for language in words}
    counts = await _count_passages(_all_forms(words, terms), query.views, plan)
    if counts is None:
        leasts = [_least_evidence(query, hit, plan, are_counted=False) for hit in judged]
    elif plan.thresholds.min_evidence is None and not _are_comparable(
        plan.query, judged, words, terms, counts
    ):
        if max(measured) <= UNRELATED:
            return True
        leasts = [0.0] * len(judged)  # words prove nothing here, except identifiers that are missing
    evidence = _Evidence(judged, measured, words, leasts, counts, _guessed(spellings))
    return await to_thread.run_sync(partial(evidence.is_weak, plan, identify=identify))


def _are_identifiers(words: ValuesView[ValuesView[Word]]) -> bool:
    """Whether a query has only identifiers in each language."""
    return all(words) and all(word.is_identifier for word in chain(*words))


def _guessed(spellings: Mapping[str, Sequence[Spelling]]) -> frozenset[str]:
    """The words whose other spellings may be other words."""
    return frozenset(word for word, near in spellings.items() if not any(map(partial(is_typo, word), near)))


def _all_forms(
    words: Mapping[Language, ValuesView[Word]], terms: Mapping[Language, frozenset[str]]
) -> set[Form]:
    """The forms of the words that count as evidence, and the terms of the whole query."""
    of_words = {form for of_query in words.values() for word in of_query for form in word.forms}
    return of_words | {(term,) for of_query in terms.values() for term in of_query}


@dataclass(frozen=True, slots=True)
class _JudgedHit:
    """A hit and its collection's view."""

    hit: Hit
    view: View

    @property
    def language(self) -> Language:
        """The language by whose rules the collection analyses the hit's document."""
        return analysed_in(self.view.collection, self.hit.source.metadata)

    def similarity_to(self, query: Query) -> float | None:
        """The similarity to the query; also None if the model knows no word of it."""
        return None if query.unknown_in(self.view) else self.hit.similarity

    def text(self, plan: SearchPlan, *, with_path: bool) -> str:
        """The names of its document, its headings and shown chunks. A file may be asked for by its path."""
        hit = self.hit
        path = hit.source.name if with_path else ""
        texts = [chunk.text for chunk in hit.around] if plan.joins and hit.around else [hit.chunk.text]
        return "\n".join([path, hit.source.names, *hit.chunk.section, *texts])

    @property
    def is_of_english_model(self) -> bool:
        """As `is_of_english_model`, of its collection."""
        return is_of_english_model(self.view.collection)


async def _count_passages(
    forms: AbstractCollection[Form], views: Sequence[View], plan: SearchPlan
) -> FormCounts | None:
    """The counts over the readable passages of all views.

    None unless all words are in memory, or soon will be. Strict statistics may not depend on that.
    """
    if plan.strict or any(view.collection.attached for view in views):
        return None
    if not all([await view.table.expects_rows_in_memory() for view in views]):
        return None
    return await counts_of_all(forms, await concurrently([view.strict for view in views]))


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Hits with their similarities, and the query's words in their languages.

    `leasts` is the threshold for each hit, 0 if unknown. Without `counts`, words that no hit has weigh more.
    Hits have other spellings of the `guessed` words, which may not be meant.
    """

    hits: Sequence[_JudgedHit]
    similarities: Sequence[float]
    words: Mapping[Language, ValuesView[Word]]
    leasts: Sequence[float]
    counts: FormCounts | None
    guessed: frozenset[str] = frozenset()

    def is_weak(self, plan: SearchPlan, *, identify: bool) -> bool:
        """Whether no hit reaches its threshold. A hit with all identifiers of the query is always enough.

        Of several versions, as of the changes between two, each may be in another hit.

        If all words `identify` something, some hit must have one of them.
        """
        if not all(self.leasts) and not identify:
            return False
        words_of_hits: Iterable[frozenset[Word]] = (
            words_in_text(self.words[hit.language], hit.text(plan, with_path=identify), hit.language)
            for hit in self.hits
        )
        identifiers = {word.text for word in chain(*self.words.values()) if word.is_identifier}
        present: set[str] = set()
        if identifiers or self.counts is None:  # otherwise reading stops at the first hit with evidence
            words_of_hits = [*words_of_hits]
            texts = [{word.text for word in words_of_hit} for words_of_hit in words_of_hits]
            present = set[str]().union(*texts)
            versions = {word.text for word in chain(*self.words.values()) if word.is_version}
            names = identifiers - versions
            if (
                identifiers
                and identifiers <= present
                and any(names <= of_hit and (not versions or versions & of_hit) for of_hit in texts)
            ):
                return False
        if identify and not present:
            return True
        return all(self.leasts) and self._are_all_below(words_of_hits, present)

    def _are_all_below(self, words_of_hits: Iterable[frozenset[Word]], present: set[str]) -> bool:
        weights = {
            language: _weights(of_query, present, self.counts) for language, of_query in self.words.items()
        }
        return all(
            _evidence(similarity, weights[hit.language], words_of_hit, self.guessed) < least
            for hit, similarity, words_of_hit, least in zip(
                self.hits, self.similarities, words_of_hits, self.leasts, strict=True
            )
        )


def evidence_notes(hits: Sequence[Hit], query: Query, *, is_weak: bool) -> list[str]:
    """The notes on weak evidence, and on a query in a language that none of the searched models reads.

    If a collection has documents in that language, words can find them. A script tells that it is another
    language, if no hit is in another script. Where the language of the query isn't plain, and most documents
    are English, it may be another one if it has its question words, or if the model knows little of
    several words, or of a word with an accent. None on hits by exact text.
    """
    if all(hit.similarity is None for hit in hits):
        return []
    collections = [view.collection for view in query.views]
    known = {"English"}.union(*map(query_languages, collections))
    is_in_script_of_none = _is_in_other_script(query.text) and not any(
        _is_in_other_script(hit.chunk.text) for hit in hits
    )
    spoken = spoken_language(query.text) or ("another language" if is_in_script_of_none else None)
    if not all(map(is_of_english_model, collections)) or spoken == "English":
        return [UNGROUNDED] if is_weak else []
    if spoken and spoken not in known:
        return [UNREAD_LANGUAGE.format(spoken)]
    if not is_weak:
        return []
    may_be_foreign = all(map(is_mostly_english, collections)) and _may_be_foreign(query)
    return [UNGROUNDED, ENGLISH_ONLY] if may_be_foreign else [UNGROUNDED]


def _may_be_foreign(query: Query) -> bool:
    words = [word.casefold() for word in re.findall(r"[^\W\d_]+", query.text)]
    if not STOP_WORDS["English"].isdisjoint(words) or (len(words) < 2 and query.text.isascii()):  # noqa: PLR2004
        return False
    meanings = filter(None, map(query.meaning_in, query.views))
    asks_in_another = not (ASKING - QUESTION_WORDS["English"]).isdisjoint(words)
    return asks_in_another or any(meaning.known_share < KNOWN_LITTLE for meaning in meanings)


def _is_in_other_script(text: str) -> bool:
    return share_beyond_latin(text) > OTHER_SCRIPT


def is_of_english_model(collection: Collection) -> bool:
    """Whether a collection's model reads English alone, so that it judges no question in another language."""
    return (collection.embedder.provider, collection.embedder.model) == ("builtin", ENGLISH_MODEL)


def is_mostly_english(collection: Collection) -> bool:
    """Whether a query in English may find what one in another language doesn't."""
    return is_of_english_model(collection) and collection.usual_language == "English"


def _least_evidence(query: Query, hit: _JudgedHit, plan: SearchPlan, *, are_counted: bool) -> float:
    """The threshold of evidence in a hit's collection; 0 if none is known.

    Where passages are not counted by word, only the threshold of the English built-in model was measured.
    """
    if plan.thresholds.min_evidence is not None:
        return plan.thresholds.min_evidence
    meaning, calibration = query.meaning_in(hit.view), hit.view.collection.calibration
    is_known = hit.is_of_english_model or (are_counted and meaning and meaning.scale.related is not None)
    if plan.request_vector or not meaning or not is_known:
        return 0.0
    least = LEAST if hit.is_of_english_model else LEAST_OF_OTHERS
    if not are_counted or calibration is None or calibration.elsewhere is None:
        return least
    if hit.view.principal.bindings:  # `elsewhere` was measured on passages that this principal may not read
        return least
    if meaning.known_share < KNOWN_LITTLE:  # similarities to passages that answer are lower, too
        return least
    # From the model's cosines to the scale of the similarities with which it is compared.
    elsewhere = float(meaning.on_scale(np.array([calibration.elsewhere], np.float32))[0])
    of_question = OF_QUESTION + NEARNESS * min(elsewhere, NEAREST)
    return max(least, of_question if questions_in(plan.query) else STATED * of_question)


def _are_comparable(
    query: str,
    hits: Sequence[_JudgedHit],
    words: Mapping[Language, ValuesView[Word]],
    terms: Mapping[Language, frozenset[str]],
    counts: FormCounts,
) -> bool:
    """Whether shared words are evidence: hits and query are in one language.

    A model of many languages finds answers that have none of the query's words.
    """
    if all(hit.is_of_english_model for hit in hits):
        return True
    if len({primary(hit.hit.source.metadata.get(LANGUAGE, "")) for hit in hits} - {""}) > 1:
        return False  # a query can't be in the language of all of them
    if spoken := spoken_language(query):
        return spoken in words
    least = COMMON * counts.rows
    return all(
        _share_of_true(counts.holding[term,] >= least for term in terms[language]) >= SPOKEN
        or _share_of_true(any(counts.holding[form] for form in word.forms) for word in of_query) >= KNOWN
        for language, of_query in words.items()
    )


def _share_of_true(values: Iterable[bool]) -> float:
    """The share of the values that are true; 0 without values."""
    flags = [*values]
    return fmean(flags) if flags else 0.0


def _weights(words: ValuesView[Word], present: set[str], counts: FormCounts | None) -> dict[Word, float]:
    """The weight of each of the query's words: the rarer, the higher. Hits have the words `present`."""
    if counts is None:
        return {word: 1 if word.text in present else NOT_FOUND for word in words}
    having = {word: max((counts.holding[form] for form in word.forms), default=0) for word in words}
    return {
        word: rarity(counts.rows, passages) * (1 if passages else UNKNOWN)
        for word, passages in having.items()
    }


def _evidence(
    similarity: float, weights: Mapping[Word, float], words_of_hit: frozenset[Word], guessed: frozenset[str]
) -> float:
    """A hit's similarity and the weighted share of the query's words that it contains, as one number.

    Without words, it is the similarity.
    Example: in "dress code", dress weighs 6 and code 2: the share of a hit that has only code is 1/4.
    """
    total = sum(weights.values())
    if not total:  # only question words, or none that counts
        return similarity
    share = sum(weights[word] * (GUESSED if word.text in guessed else 1) for word in words_of_hit) / total
    return BY_MEANING * similarity + (1 - BY_MEANING) * share


def _words(query: str, language: Language, spellings: Mapping[str, Sequence[Spelling]]) -> ValuesView[Word]:
    """The distinct words of the query that count as evidence, each in all its spellings."""
    return {
        word.forms: replace(word, forms=(*word.forms, *(near.terms for near in spellings.get(word.text, ()))))
        for word in query_words(query, [language])[:MAX_TERMS]
        if word.is_acronym or word.text.casefold().replace("’", "'") not in ASKING
    }.values()
