"""Explains an empty result: which conditions of the filter cause it, and how to relax the filter.

Only the filter is relaxed. The principal and its access stay the same in every view.

`record_lists`, at the end, records for the trace what recall, fusion and the gate returned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from anyio import to_thread

from rag.answers import Hit, Listing
from rag.filters.grammar import Filter, called, conditions, is_on_date, without
from rag.filters.needles import Needle, needle, otherwise_accented, phrases
from rag.runtime import concurrently
from rag.search.gate import admit
from rag.search.recall import Candidate, Query, QueryRankings, shares_of_best, skips_dense
from rag.search.stages.thresholds import UNGROUNDED
from rag.search.view import View, path_notes

if TYPE_CHECKING:
    from rag.search.search_state import OpenStep, SearchState

OTHER_ACCENTS = 'No passage contains "{}" with these accents; searched for "{}".'
EXACT_ACCENTS = 'No document contains "{}" with these accents; search for "{}".'
LOOKED_THROUGH = 20  # passages with the words of a text, to find it with other accents
UNKNOWN = "The embedding model knows no word of the query, so there was no search by meaning."


class FindsAny(Protocol):
    """Whether a query finds anything with the state's plan."""

    async def __call__(self, query: Query, state: SearchState) -> bool:
        """True if at least one hit passes the gate and the thresholds."""


class Find(Protocol):
    """The hits of queries with the state's plan."""

    async def __call__(self, queries: Sequence[Query], state: SearchState) -> list[Hit]:
        """The hits that pass the gate, best first."""


@dataclass(frozen=True, slots=True)
class Impact:
    """Which conditions of a filter, by position, cause an empty result.

    Each condition in `alone` has results as the only condition. The filter has results without `dropped`.
    """

    alone: frozenset[int]
    dropped: frozenset[int]


async def explain_nothing(query: Query, state: SearchState, find: Find, finds_any: FindsAny) -> Query | None:
    """The query with a relaxed filter, to try again; None, with a note on the reason, if that can't help.

    The filter is relaxed only if the plan allows it. Texts that passages must contain get the accents that
    they have there. Mode exact stays exact: a note says with which accents its text is there.
    """
    plan, views = state.plan, query.views
    if not state.left_out.total() and (respelt := await _with_other_accents(query, state, find)):
        return respelt if plan.needle is None else None
    if state.left_out.total():  # there are hits, but none is near enough
        state.note([UNGROUNDED])
        return None
    impact = await _impact(query, state, finds_any) if plan.filter is not None else None
    if impact is None:
        state.note([_without_filter(query, state)])
        return None
    if not plan.relax:
        state.note([_advice(views, impact), *path_notes(views)])
        return None
    state.note([f"The filter excludes all results. Conditions dropped: {_names_of(views, impact.dropped)}."])
    return _relaxed(query, impact.dropped)


async def _with_other_accents(query: Query, state: SearchState, find: Find) -> Query | None:
    """The query for its texts as a passage has all of them but for the accents; None if none has.

    A note says so. Such a passage is looked for by the words of the texts, in whose index accents don't
    count. What the operator demands stays as it is.
    """
    plan = state.plan
    required = plan.required if plan.needle is None else (*plan.contains, plan.needle)
    texts = [text for text in required if text not in plan.demanded]
    if not texts:
        return None
    by_words = replace(plan, mode="sparse", needle=None, phrases=(), unquoted=None, limit=LOOKED_THROUGH)
    words = " ".join(text.query for text in texts)
    views = _containing(query.views, plan.demanded)
    hits = await find([replace(query, text=words, views=views)], state.for_side_search(by_words))
    forms = await to_thread.run_sync(_forms_in_passages, texts, [hit.chunk.text for hit in hits])
    if forms is None:
        return None
    note = OTHER_ACCENTS if plan.needle is None else EXACT_ACCENTS
    pairs = [*zip(texts, forms, strict=True)]
    state.note(note.format(text.query, form.query) for text, form in pairs if text.words != form.words)
    return replace(query, views=_containing(query.views, (*plan.demanded, *forms)))


def _containing(views: Iterable[View], texts: tuple[Needle, ...]) -> tuple[View, ...]:
    return tuple(replace(view, contains=texts) for view in views)


def _forms_in_passages(texts: Sequence[Needle], passages: Iterable[str]) -> list[Needle] | None:
    """The texts as the first passage has them that has all of them, whatever their accents."""
    for passage in passages:
        forms = [(text, otherwise_accented(text, passage)) for text in texts]
        if all(form for _, form in forms):
            return [needle(form, text.match, case=text.case) for text, form in forms if form]
    return None


async def _impact(query: Query, state: SearchState, finds_any: FindsAny) -> Impact | None:
    """Which conditions cause the empty result, and which to drop; None if it is empty without a filter, too.

    Conditions without results of their own are dropped. Of the others as few as possible: the last in the
    filter first, conditions on dates last.
    """
    parts = _conditions(query.views)
    if not await finds_any(_relaxed(query, range(len(parts))), state):
        return None
    single = [partial(finds_any, _keeping(query, {at}), state) for at in range(len(parts))]
    finds_alone = await concurrently(single) if len(parts) > 1 else []
    alone = [at for at, has_hits in enumerate(finds_alone) if has_hits]
    order = sorted(alone, key=lambda at: (not is_on_date(parts[at]), at))
    # Find how many conditions of `order` can stay. Each added condition narrows the filter: if n of them have
    # no results, n + 1 have none, so bisection is exact. It needs log2(n) searches instead of n, and searches
    # with many conditions are slow. One condition always works, because it has results alone.
    low, high = min(1, len(order)), len(order)
    while low < high:
        middle = (low + high + 1) // 2
        works = await finds_any(_keeping(query, order[:middle]), state)
        low, high = (middle, high) if works else (low, middle - 1)
    return Impact(frozenset(alone), frozenset(range(len(parts))) - set(order[:low]))


def _relaxed(query: Query, dropped: Collection[int]) -> Query:
    """The query with the conditions at these positions removed from its filter."""
    views = (replace(view, filter=view.filter and without(view.filter, dropped)) for view in query.views)
    return replace(query, views=tuple(views))


def _keeping(query: Query, positions: Collection[int]) -> Query:
    return _relaxed(query, [at for at in range(len(_conditions(query.views))) if at not in positions])


def _advice(views: Sequence[View], impact: Impact) -> str:
    """A note on which conditions to leave out, and which have results alone."""
    advice = f"The filter excludes all results; without {_names_of(views, impact.dropped)} there are results."
    if len(_conditions(views)) == 1:
        return advice
    return (
        f"{advice} Each of these conditions alone leaves results: {_names_of(views, impact.alone) or 'none'}."
    )


def _without_filter(query: Query, state: SearchState) -> str:
    """A note on why nothing was found if the filter is not the reason."""
    plan = state.plan
    if plan.sources is not None or plan.exclude_sources:
        return (
            "Nothing was found in the sources that the request allows. "
            "Search without sources and exclude_sources."
        )
    if plan.required:
        texts = ", ".join(f'"{needle.query}"' for needle in plan.required)
        return f"No passage contains {texts}. Search without quotation marks, or with fewer of these texts."
    if plan.needle is not None:
        return _without_match(plan.needle)
    moot = all(skips_dense(query, view, plan) for view in query.views)
    if plan.mode == "sparse" or moot:
        passage = "passage that meets the thresholds" if plan.drops_distant else "passage"
        words, alternative = ("all words", "fewer") if plan.engine.operator == "and" else ("a word", "other")
        if moot:
            return f"No {passage} contains {words} of the query. {UNKNOWN} Use {alternative} words."
        by_meaning = "" if "dense" in state.degraded else ", or mode hybrid to search by meaning, too"
        return f"No {passage} contains {words} of the query. Use {alternative} words{by_meaning}."
    return f"Nothing was found in {', '.join(view.table.collection.name for view in state.views)}."


def _without_match(needle: Needle) -> str:
    """A note on what else to search for in mode exact."""
    advice = ["Mode hybrid also finds other words."]
    if needle.match == "words":
        advice.append("Match text finds parts of words.")
    if needle.case:
        advice.append("Without case, the letter case doesn't count.")
    if needle.match != "regex" and phrases(needle.query):
        advice.append("The quotation marks are part of what was searched for: leave them out.")
    return " ".join(["No document contains this.", *advice])


def _names_of(views: Sequence[View], positions: Collection[int]) -> str:
    parts = _conditions(views)
    return ", ".join(dict.fromkeys(called(parts[at]) for at in sorted(positions)))


def _conditions(views: Sequence[View]) -> tuple[Filter, ...]:
    """The filter's conditions. All views have the same ones, each with its collection's field types."""
    return conditions(views[0].filter) if views[0].filter else ()


async def record_lists(
    candidates: Sequence[Candidate],
    lists: Sequence[QueryRankings],
    hits: Sequence[Hit],
    steps: tuple[OpenStep, OpenStep, OpenStep],
    query: Query,
    state: SearchState,
) -> None:
    """Record in the trace what recall, fusion and the gate returned, counting readable chunks only."""
    recalled, fused, gate = steps
    # The gate stopped as soon as it had enough hits. A trace counts and ranks all candidates, and must not
    # even reveal the number of those withheld. So the gate checks all of them here, without an alarm, which
    # would count faults twice.
    admitted = await admit(candidates, query, len(candidates), lambda _sources: None)
    ranked = sorted(admitted, key=lambda hit: -hit.score)
    hit_ids = {hit.chunk.id for hit in hits}
    recalled.record_count(len(admitted))
    fused.record_hits(ranked, of=len(admitted))
    gate.record_hits(hits, beyond=[hit.chunk.id for hit in ranked if hit.chunk.id not in hit_ids])
    state.listings.update(_listings(lists, {hit.chunk.id for hit in admitted}))


def _listings(lists: Sequence[QueryRankings], ids: Iterable[str]) -> Mapping[str, tuple[Listing, ...]]:
    """The rank and score of these chunks in each query's lists, as if the lists held no others."""
    by_id: dict[str, tuple[Listing, ...]] = dict.fromkeys(ids, ())
    for query, of_query in enumerate(lists):
        # Withheld chunks are removed before ranks are counted and scores divided by the best one: a gap in
        # the ranks, or a best score below 1, would reveal them.
        dense = {id_: score for id_, score in of_query.dense_scores.items() if id_ in by_id}
        sparse = {id_: score for id_, score in of_query.sparse_scores.items() if id_ in by_id}
        for rank, (id_, score) in enumerate(dense.items(), 1):
            by_id[id_] = (*by_id[id_], Listing(query, "dense", rank, score))
        for rank, (id_, score) in enumerate(shares_of_best(sparse).items(), 1):
            by_id[id_] = (*by_id[id_], Listing(query, "sparse", rank, score))
    return by_id
