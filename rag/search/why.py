"""Explains why a search found nothing, or not a certain source; and records its rankings in the trace.

For an empty result: which conditions of the filter cause it, and how to relax the filter. Only the filter is
relaxed. The principal and its access stay the same in every view.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from anyio import to_thread

from rag.answers import Answer, Hit, Listing, Step, SubQuery
from rag.corpus import Source
from rag.filters.grammar import Filter, condition_in_words, conditions, is_on_date, without_conditions
from rag.filters.needles import Needle, needle, otherwise_written, phrases
from rag.report import names_briefly
from rag.runtime import concurrently
from rag.search.browse import MOST_LISTED
from rag.search.exact import find_exact
from rag.search.names import named_documents
from rag.search.recall import Candidate, Query, QueryRankings, admit, recall, shares_of_best, skips_dense
from rag.search.search_plan import SearchPlan
from rag.search.search_state import OpenStep, SearchState
from rag.search.stages.thresholds import UNGROUNDED, is_mostly_english
from rag.search.view import View, path_notes
from rag.store.read.schema import StoredSource
from rag.store.read.text_scan import chunk_places, match_any

OTHER_FORM = 'No passage contains "{}" in this form; searched for "{}".'
EXACT_FORM = 'No document contains "{}" in this form; search for "{}".'
CALLED = "It is in the title or path of: {}. Open one by its id."
LOOKED_THROUGH = 20  # passages with the words of a text, searched for other forms of it
UNKNOWN = "The embedding model knows no word of the query, so there was no search by meaning."


Find: TypeAlias = "Callable[[Sequence[Query], SearchState], Awaitable[list[Hit]]]"
"""As `pipeline.find`: the hits of queries with the state's plan, best first."""
Embed: TypeAlias = "Callable[[SearchState], Awaitable[tuple[SearchState, list[Query]]]]"
"""As `pipeline.embed`: the queries of a state with their meanings and views."""


@dataclass(frozen=True, slots=True)
class Impact:
    """Which conditions of a filter, by position, cause an empty result.

    Each condition in `alone` has results as the only condition. The filter has results without `dropped`.
    """

    alone: frozenset[int]
    dropped: frozenset[int]


async def explain_nothing(query: Query, state: SearchState, find: Find) -> Query | None:
    """The query to try again, with a relaxed filter; None, with a note on the reason, if that can't help.

    The filter is relaxed only if the plan allows it. If only accents, or spaces in numbers, of required texts
    differ, the query gets the passages' forms; in mode exact, a note names them instead.
    """
    plan, views = state.plan, query.views
    if not state.left_out.total() and (respelt := await _in_other_forms(query, state, find)):
        return respelt if plan.needle is None else None
    if state.left_out.total():  # there are hits, but none is near enough
        state.note([UNGROUNDED])
        return None
    impact = await _impact(query, state, find) if plan.filter is not None else None
    if impact is None:
        state.note([_without_filter(query, state), *await _called(query, plan)])
        return None
    if not plan.relax:
        state.note([_advice(views, impact), *path_notes(views)])
        return None
    state.note([f"The filter excludes all results. Conditions dropped: {_names_of(views, impact.dropped)}."])
    return _relaxed(query, impact.dropped)


async def _in_other_forms(query: Query, state: SearchState, find: Find) -> Query | None:
    """The query with its texts as the first passage writes them that has all; None if no passage has them.

    The passage is found by words, whose index ignores accents and spaces in numbers. Adds a note. Texts that
    the operator demands stay as they are.
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
    note = OTHER_FORM if plan.needle is None else EXACT_FORM
    pairs = [*zip(texts, forms, strict=True)]
    state.note(note.format(text.query, form.query) for text, form in pairs if text.words != form.words)
    return replace(query, views=_containing(query.views, (*plan.demanded, *forms)))


def _containing(views: Iterable[View], texts: tuple[Needle, ...]) -> tuple[View, ...]:
    return tuple(replace(view, contains=texts) for view in views)


def _forms_in_passages(texts: Sequence[Needle], passages: Iterable[str]) -> list[Needle] | None:
    """The texts as the first passage writes them that has all of them; None if no passage has."""
    for passage in passages:
        forms = [(text, otherwise_written(text, passage)) for text in texts]
        if all(form for _, form in forms):
            return [
                needle(form, text.match, case=text.case, is_phrase=text.is_phrase)
                for text, form in forms
                if form
            ]
    return None


async def _impact(query: Query, state: SearchState, find: Find) -> Impact | None:
    """Which conditions cause the empty result, and which to drop; None if it is empty without a filter, too.

    Conditions without results of their own are dropped. Of the others as few as possible: the last in the
    filter first, conditions on dates last.
    """
    parts = _conditions(query.views)
    if not await _finds_any(_relaxed(query, range(len(parts))), state, find):
        return None
    single = [partial(_finds_any, _keeping(query, {at}), state, find) for at in range(len(parts))]
    finds_alone = await concurrently(single) if len(parts) > 1 else []
    alone = [at for at, has_hits in enumerate(finds_alone) if has_hits]
    order = sorted(alone, key=lambda at: (not is_on_date(parts[at]), at))
    # Find how many conditions of `order` can stay. Each added condition narrows the filter: if n of them have
    # no results, n + 1 have none, so bisection is exact. It needs log2(n) searches instead of n, and searches
    # with many conditions are slow. One condition always works, because it has results alone.
    low, high = min(1, len(order)), len(order)
    while low < high:
        middle = (low + high + 1) // 2
        works = await _finds_any(_keeping(query, order[:middle]), state, find)
        low, high = (middle, high) if works else (low, middle - 1)
    return Impact(frozenset(alone), frozenset(range(len(parts))) - set(order[:low]))


async def _finds_any(query: Query, state: SearchState, find: Find) -> bool:
    """Whether a query finds anything. Runs inside the step `explain`, so it records no steps."""
    # These searches run only after a search found nothing, several at once, and one hit answers the question:
    # one candidate per ranking is enough. In mode hybrid the dense ranking alone is. It has a chunk if any
    # chunk satisfies the filter, and if its best chunk fails the thresholds, no chunk is nearer. Of a sparse
    # ranking the best chunk may fail them where a later one doesn't. A skipped dense ranking is empty.
    has_both = state.plan.mode == "hybrid" and all(
        view.comparable and not skips_dense(query, view, state.plan) for view in query.views
    )
    plan = replace(state.plan, limit=1, mode="dense" if has_both else state.plan.mode)
    if plan.mode == "dense" or (plan.mode != "exact" and not plan.drops_distant):
        plan = replace(plan, candidates=1)
    return bool(await find([query], state.for_side_search(plan)))


def _relaxed(query: Query, dropped: Collection[int]) -> Query:
    """The query with the conditions at these positions removed from its filter."""
    views = (
        replace(view, filter=view.filter and without_conditions(view.filter, dropped)) for view in query.views
    )
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
            if all(is_mostly_english(view.collection) for view in query.views):
                alternative = "English"
            return f"No {passage} contains {words} of the query. {UNKNOWN} Use {alternative} words."
        by_meaning = "" if "dense" in state.degraded else ", or mode hybrid to search by meaning, too"
        return f"No {passage} contains {words} of the query. Use {alternative} words{by_meaning}."
    return f"Nothing was found in {', '.join(view.name for view in state.views)}."


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


async def _called(query: Query, plan: SearchPlan) -> list[str]:
    """A note on the documents whose title or path has what is in no text: front matter isn't part of it."""
    texts = plan.required if plan.needle is None else (*plan.contains, plan.needle)
    if not texts or plan.sources is not None or plan.exclude_sources:
        return []
    called = [listed for view in query.views for listed in await _called_in(view, texts)]
    return [CALLED.format(names_briefly(sorted(called), MOST_LISTED))] if called else []


async def _called_in(view: View, texts: Sequence[Needle]) -> list[str]:
    """The documents of a view, within its filter, whose title or path has all of the texts."""
    documents = [*named_documents([(view, await view.table.attempt(view.places(), []))])]
    names = [f"{document.title}\n{document.path}" for document in documents]
    matches = [await to_thread.run_sync(match_any, names, text) for text in texts]
    called = [document for document, *holds in zip(documents, *matches, strict=True) if all(holds)]
    if view.filter is not None:  # which places alone don't tell
        stored = await view.table.attempt(view.table.sources([document.id for document in called]), {})
        called = [
            document for document in called if document.id in stored and view.admits(stored[document.id])
        ]
    return [document.listed for document in called]


def _names_of(views: Sequence[View], positions: Collection[int]) -> str:
    parts = _conditions(views)
    return ", ".join(dict.fromkeys(condition_in_words(parts[at]) for at in sorted(positions)))


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


REASONS = {
    "thresholds": "It is less similar to the query than the thresholds require.",
    "rerank": "It was not among the passages that were reranked, or not among those that the stage keeps.",
    "dedupe": "It nearly repeats a better passage.",
    "copies": "Another document has the same passage, word for word, and is shown with its id.",
    "compress": "It contains no sentence that answers the query.",
    "custom": "The operator's own stage dropped it.",
}


@dataclass(frozen=True, slots=True)
class SourceTrace:
    """What happened to a source in a search: the `step` that dropped its last passage, None if one is a hit.

    `reason` says why in a sentence or two. `chunk_id` is its best passage, and `ranks` are the ranks of this
    passage after each step, from 1; None after it was dropped. Both are empty if no ranking had the source.
    """

    source: Source
    step: str | None
    reason: str
    chunk_id: str = ""
    ranks: tuple[tuple[str, int | None], ...] = ()


async def trace_source(stored: StoredSource, answer: Answer, state: SearchState, embed: Embed) -> SourceTrace:
    """What happened to a readable source in a search whose answer has a trace."""
    source, plan = stored.source, state.plan
    view = next((view for view in state.views if view.name == source.collection), None)
    if view is None:
        return SourceTrace(source, "plan", f"The search doesn't cover its collection, {source.collection}.")
    listed = answer.trace.listings if answer.trace else {}
    if any(_of(source, id_) for id_ in listed):
        return _follow(source, answer, plan)
    if not view.admits(stored):
        return SourceTrace(source, *_exclusion(source, plan))
    if not plan.limit:
        return SourceTrace(source, "limit", "The limit is 0.")
    return SourceTrace(source, "recall", await _why_unlisted(source, view, state, embed))


def _of(source: Source, chunk_id: str) -> bool:
    return chunk_id.partition("/")[0] == source.id


def _exclusion(source: Source, plan: SearchPlan) -> tuple[str, str]:
    if source.id in plan.exclude_sources or (plan.sources is not None and source.id not in plan.sources):
        return "sources", "The request excludes this source."
    return "filter", "Its fields don't match the filter."


async def _why_unlisted(source: Source, view: View, state: SearchState, embed: Embed) -> str:
    """Why no ranking has the source, and its best passages, found by searching this source alone."""
    alone = replace(view, sources=(source.id,), contains=state.plan.required)
    if state.plan.needle is not None:
        hits = await find_exact(Query(state.plan.query, {}, (alone,)), state.for_side_search(state.plan))
        return "Other documents come first." if hits else "It doesn't contain what is searched for."
    if state.plan.required and not await chunk_places(view.table, [source.id], alone.where):
        return "None of its passages contains the phrases or texts that are required."
    question = (SubQuery(state.plan.query),)
    _, (query,) = await embed(replace(state.for_side_search(state.plan), views=(alone,), queries=question))
    one_hit = replace(state.plan, candidates=1)
    (lists,) = await recall([query], one_hit)
    sentences = [
        f"By meaning, its best passage is {id_}, with a similarity of {cosine:.2f}."
        for id_, cosine in lists.dense_scores.items()
    ]
    if skips_dense(query, alone, state.plan):
        sentences = [UNKNOWN]
    if state.plan.mode != "dense":
        sentences += [f"By words, its best passage is {id_}." for id_ in lists.sparse_scores] or [
            "It contains no word of the query."
        ]
    if view.is_by_section and not any(lists.chunks):
        return "None of its passages stands in a section that matches the filter."
    count = state.plan.candidates
    return " ".join([f"None of its passages is among the first {count} of a list.", *sentences])


AMONG_HITS = "It is among the hits."


def _follow(source: Source, answer: Answer, plan: SearchPlan) -> SourceTrace:
    steps = [step for step in answer.steps if step.hit_ids]
    last = next((step for step in reversed(steps) if _best(source, step)), steps[0])
    chunk_id = next((hit.chunk.id for hit in answer.hits if _of(source, hit.chunk.id)), _best(source, last))
    ranks = tuple((step.name, _rank(chunk_id, step)) for step in steps)
    if any(hit.chunk.id == chunk_id for hit in answer.hits):
        return SourceTrace(source, None, AMONG_HITS, chunk_id, ranks)
    return SourceTrace(source, *_drop(chunk_id, last, answer.steps, plan), chunk_id, ranks)


def _drop(chunk_id: str, last: Step, steps: Sequence[Step], plan: SearchPlan) -> tuple[str, str]:
    """The step that dropped the passage, and why."""
    following = [step for step in steps[steps.index(last) + 1 :] if step.name != "context"]
    if not following:
        return "evidence", UNGROUNDED
    name = following[0].name
    if name == "limit":
        return name, f"Its best passage has rank {_rank(chunk_id, last)}, and the limit is {plan.limit}."
    return name, REASONS.get(name, "This stage dropped it.")


def _best(source: Source, step: Step) -> str:
    """The id of the source's best passage after a step; empty if none is left."""
    return next((id_ for id_ in step.hit_ids if _of(source, id_)), "")


def _rank(chunk_id: str, step: Step) -> int | None:
    return step.hit_ids.index(chunk_id) + 1 if chunk_id in step.hit_ids else None
