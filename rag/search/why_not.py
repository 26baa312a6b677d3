"""Explains why a source is not among the hits of a search: the step that dropped it, and the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.answers import Answer, Step, SubQuery
from rag.corpus import Source
from rag.search.exact import find_exact
from rag.search.pipeline import embed
from rag.search.recall import Query, recall, skips_dense
from rag.search.search_plan import SearchPlan
from rag.search.stages.thresholds import UNGROUNDED
from rag.search.view import View
from rag.search.why_nothing import UNKNOWN
from rag.store.read.schema import StoredSource
from rag.store.read.text_scan import chunk_places

if TYPE_CHECKING:
    from rag.search.search_state import SearchState

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

    `reason` says why in a sentence or two. `chunk_id` is its best passage, with the `ranks` of this passage
    after each step, from 1, None after it was dropped. Both are empty if no ranking had a passage of it.
    """

    source: Source
    step: str | None
    reason: str
    chunk_id: str = ""
    ranks: tuple[tuple[str, int | None], ...] = ()


async def trace_source(stored: StoredSource, answer: Answer, state: SearchState) -> SourceTrace:
    """What happened to a readable source in a search whose answer has a trace."""
    source, plan = stored.source, state.plan
    view = next((view for view in state.views if view.table.collection.name == source.collection), None)
    if view is None:
        return SourceTrace(source, "plan", f"The search doesn't cover its collection, {source.collection}.")
    listed = answer.trace.listings if answer.trace else {}
    if any(_of(source, id_) for id_ in listed):
        return _follow(source, answer, plan)
    if not view.admits(stored):
        return SourceTrace(source, *_exclusion(source, plan))
    if not plan.limit:
        return SourceTrace(source, "limit", "The limit is 0.")
    return SourceTrace(source, "recall", await _why_unlisted(source, view, state))


def _of(source: Source, chunk_id: str) -> bool:
    return chunk_id.partition("/")[0] == source.id


def _exclusion(source: Source, plan: SearchPlan) -> tuple[str, str]:
    if source.id in plan.exclude_sources or (plan.sources is not None and source.id not in plan.sources):
        return "sources", "The request excludes this source."
    return "filter", "Its fields don't match the filter."


async def _why_unlisted(source: Source, view: View, state: SearchState) -> str:
    """Why no ranking has the source, with its best passages, from a search of this source alone."""
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
    """The trace of a source that a ranking has."""
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
