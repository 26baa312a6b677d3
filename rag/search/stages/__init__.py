"""The stages of a profile. Query stages add queries; hit stages reorder, drop or expand hits.

To add a hit stage, write a function here, its settings in `rag.config.profiles`, and a line in `HIT_STAGES`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from rag.answers import Hit
from rag.config import profiles
from rag.search.recall import Query
from rag.search.search_state import SearchState
from rag.search.stages.custom import custom_stage
from rag.search.stages.detail import compress, neighbors, parent, with_detail
from rag.search.stages.query_stages import more_queries
from rag.search.stages.related import graph, with_related
from rag.search.stages.reorder import diversify_hits, drop_duplicates, order_by_recency, rerank

__all__ = ["apply_hit_stages", "more_queries", "with_detail"]

HitStageFunction: TypeAlias = "Callable[..., Awaitable[list[Hit]]]"
"""Called with (hits, the stage's settings, the caller's query, the search's state, the open step)."""

HIT_STAGES: Mapping[type[Any], HitStageFunction] = {
    profiles.RerankStage: rerank,
    profiles.RecencyStage: order_by_recency,
    profiles.DiversifyStage: diversify_hits,
    profiles.DedupeStage: drop_duplicates,
    profiles.GraphStage: graph,
    profiles.NeighborsStage: neighbors,
    profiles.ParentStage: parent,
    profiles.CompressStage: compress,
    profiles.CustomStage: custom_stage,
}

LEFT_OUT: Mapping[type[Any], str] = {
    profiles.DiversifyStage: "from documents of which enough is shown",
    profiles.DedupeStage: "repeating a better one",
    profiles.CompressStage: "without a sentence that answers the query",
    profiles.CustomStage: "that a stage of the operator dropped",
}
"""Why a stage drops hits, for `SearchState.count_left_out`."""


async def apply_hit_stages(hits: Sequence[Hit], query: Query, state: SearchState) -> list[Hit]:
    """The hits after the plan's hit stages, best first, with documents related to its seed in front.

    Dropped hits are counted in the state.

    Raises:
        ConfigurationError: a stage needs something that a hit lacks, and its settings make that an error.
        BusyError, StoreError: the text that a stage adds couldn't be read.
    """
    hits = await with_related(hits, query, state)
    for stage in state.plan.hit_stages:
        # Display stages read and embed text, so they get only the hits that will be shown.
        if isinstance(stage, profiles.DISPLAY_STAGES):
            hits = state.joined(hits)
        before = hits
        with state.steps.step(stage.stage) as step:
            hits = await HIT_STAGES[type(stage)](before, stage, query, state, step)
            step.record_hits(hits, of=len(before))
        state.note(step.record.warnings)
        if type(stage) in LEFT_OUT:
            state.count_left_out(LEFT_OUT[type(stage)], before, hits)
    return hits
