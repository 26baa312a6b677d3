"""Similarity thresholds: which hits are near enough to the query, and whether they are evidence at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, ValuesView
from dataclasses import replace
from math import inf, sqrt
from typing import TYPE_CHECKING

from rag.answers import Hit
from rag.config.model_settings import ENGLISH_MODEL
from rag.config.profiles import ThresholdSettings
from rag.corpus import Collection, Distance, Language
from rag.search.recall import Query
from rag.store.read.word_analysis import MAX_TERMS, Word, query_words, words_in_text
from rag.text.languages import analysed_in

if TYPE_CHECKING:
    from rag.search.search_plan import SearchPlan
    from rag.store.read.spelling import Spelling

MEASURED_EVIDENCE = 0.294
"""The least evidence with all-MiniLM-L6-v2: at most 2 % of the questions that most judged sets answer have
less, and some 90 % of those that they don't (rag/evaluate/measuring.md). Similarities of other models have
other scales, so these have no default."""
BY_MEANING = 0.7
"""The weight of the similarity in the evidence; the rest is that of the words."""
MISSING = 3
"""The weight of a query word that no hit contains, relative to others: it tells most."""
JUDGED = 10  # hits whose words are compared, best first
WEAK_SHOWN = 2  # hits that are shown beside the note
UNGROUNDED = "Nothing was found that seems to answer this."
FRAME = frozenset(
    """
    a about am an and another any anybody anyone anything are as at be been but by can could describe
    did do does doing done ever explain for from get gets give got had has have he here her him his how
    i i'd i'm i've if in is it its just know long many may me might mine much must my need no not of
    often on one only or other our please shall she should show so some somebody someone something tell
    than that the their them then there these they this those to too us very want was we were what when
    where which who whom whose why will with without would you your
    """.split()  # noqa: SIM905 as a list, it would be a page long
)
"""English words of questions that an answer needn't contain, so they don't count as evidence."""
DISTANT = "less similar to the query than the thresholds require"


def distance(similarity: float, metric: Distance) -> float:
    """The distance between a passage and the query in the metric of the passage's collection.

    Vectors have unit length, so all metrics order alike: cosine and dot are 1 - similarity, euclidean is
    sqrt(2 - 2 * similarity).
    """
    away = max(0.0, 1.0 - similarity)
    return sqrt(2 * away) if metric == "euclidean" else away


def hits_within_thresholds(
    hits: Sequence[Hit], thresholds: ThresholdSettings, metrics: Mapping[str, Distance]
) -> list[Hit]:
    """The hits that meet all thresholds, in their order. `metrics` maps collections to their metrics.

    Hits without a similarity stay: no threshold can be applied to them.

    `percentage_distance` is relative to the nearest hit of all collections: 20 keeps hits up to 20 % farther
    away, each in the metric of its own collection. If `max_distance` is stricter, it applies.
    """
    similarities = [hit.similarity for hit in hits if hit.similarity is not None]
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


def _are_identifiers(words: ValuesView[Word]) -> bool:
    """Whether there are words, and all of them are identifiers."""
    return bool(words) and all(word.is_identifier for word in words)


def lacks_evidence(
    hits: Sequence[Hit], query: Query, plan: SearchPlan, spellings: Mapping[str, Sequence[Spelling]]
) -> bool:
    """Whether none of the first hits is sufficient evidence for an answer. False without hits.

    A hit's evidence is `BY_MEANING` times its similarity plus the rest times the share of the query's words
    that it contains, or of their other `spellings`. Words in `FRAME` don't count, and words that no hit
    contains count `MISSING` times. All of that depends only on what the principal may read. Without countable
    words, the evidence is the similarity. If a query consists of identifiers, like TPL-0042, one of them must
    occur: models can't compare them. False if a hit has no similarity, or the model knows no word of the
    query.
    """
    first, views = hits[:JUDGED], query.views_by_collection
    collections = {name: view.table.collection for name, view in views.items()}
    leasts = [_least_evidence(collections[hit.source.collection], plan) for hit in first]
    similarities = [hit.similarity for hit in first if not query.unknown_in(views[hit.source.collection])]
    measured = [similarity for similarity in similarities if similarity is not None]
    if not first or not all(leasts) or len(measured) < len(first):
        return False
    languages = [analysed_in(collections[hit.source.collection], hit.source.metadata) for hit in first]
    words_by_language = {language: _words(plan.query, language, spellings) for language in languages}
    identify = all(map(_are_identifiers, words_by_language.values()))
    near = any(BY_MEANING * similarity >= least for similarity, least in zip(measured, leasts, strict=True))
    if near and not identify:
        return False  # comparing words takes longer
    had = [
        words_in_text(words_by_language[language], _hit_text(hit, plan), language)
        for hit, language in zip(first, languages, strict=True)
    ]
    there = {word.text for words in had for word in words}
    if identify and not there:
        return True
    return all(
        _evidence(similarity, _share(words_by_language[language], words, there)) < least
        for similarity, language, words, least in zip(measured, languages, had, leasts, strict=True)
    )


def _least_evidence(collection: Collection, plan: SearchPlan) -> float:
    """The sufficient evidence in a collection; 0 if there is no threshold."""
    if plan.thresholds.min_evidence is not None:
        return plan.thresholds.min_evidence
    embedder = collection.embedder
    is_measured = embedder.provider == "builtin" and embedder.model == ENGLISH_MODEL
    return MEASURED_EVIDENCE if is_measured and not plan.request_vector else 0.0


def _evidence(similarity: float, share: float | None) -> float:
    return similarity if share is None else BY_MEANING * similarity + (1 - BY_MEANING) * share


def _words(query: str, language: Language, spellings: Mapping[str, Sequence[Spelling]]) -> ValuesView[Word]:
    """The distinct words of the query that count as evidence, each in all its spellings."""
    return {
        word.forms: replace(word, forms=(*word.forms, *(near.terms for near in spellings.get(word.text, ()))))
        for word in query_words(query, [language])[:MAX_TERMS]
        if word.is_acronym or word.text.casefold().replace("’", "'") not in FRAME
    }.values()


def _hit_text(hit: Hit, plan: SearchPlan) -> str:
    """The names of a hit's document, its headings and shown chunks."""
    texts = [chunk.text for chunk in hit.around] if plan.joins and hit.around else [hit.chunk.text]
    return "\n".join([hit.source.names, *hit.chunk.section, *texts])


def _share(words: ValuesView[Word], had: frozenset[Word], there: set[str]) -> float | None:
    """The weighted share of the query's words that a hit contains; None without words.

    Example: "dress code", where this hit has code and no hit has dress -> 1/4.
    """
    missing = sum(word.text not in there for word in words)
    return len(had) / (len(words) + (MISSING - 1) * missing) if words else None
