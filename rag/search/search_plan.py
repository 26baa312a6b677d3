"""The plan of a search: a request that was checked, with no value missing. `planning` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from rag.answers import Detail, Hit, Mode
    from rag.config.profiles import (
        EngineSettings,
        FusionSettings,
        HitStage,
        Overridable,
        QueryStage,
        ThresholdSettings,
    )
    from rag.corpus import Distance
    from rag.needles.needle import Needle

JOIN_OVERSAMPLING = 3  # times the limit: so many hits usually make enough, once neighbours are one


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Everything that a search needs to know, with no value missing.

    Each list returns up to `candidates` chunks. If `strict`, scores and order don't depend on rows that the
    principal may not read. If `relax`, conditions of a filter without results may be dropped.
    `detail` is how much of a hit is shown, on top of what the hit stages show.
    `context_tokens` is the token budget of a context, 0 for none. If `degrade`, mode hybrid may go by words
    alone while the embedding model fails. `given` is a vector that the request brings. `overrides` are what a
    request may set, and `names_collections` if this one names its collections. `distance` is the metric of
    the thresholds, None for each collection's.
    In mode exact the plan has a `needle`, and none of what a model does. Each hit has all that `contains`
    names: the texts that the request or the operator demands. Hits with the `phrases` of the query come
    first. Those that lack some are found by `unquoted`, the query without quotation marks. It is None if none
    may lack any: in a query of phrases alone, and where every word must occur.
    With a `seed`, a passage, the search is for what is related to it.
    If the plan `joins`, chunks in a row become one hit, in mode exact chunks whose shown lines touch. If it
    `selects`, too, hits that say little more about a source give way to other sources: only by default, when
    the request has no limit.
    """

    query: str
    mode: Mode
    fusion: FusionSettings
    thresholds: ThresholdSettings
    engine: EngineSettings
    limit: int
    candidates: int
    strict: bool
    collections: tuple[str, ...]
    exclude_collections: tuple[str, ...]
    sources: tuple[str, ...] | None
    exclude_sources: tuple[str, ...]
    filter: Mapping[str, object] | None
    relax: bool
    detail: Detail
    context_tokens: int
    query_stages: tuple[QueryStage, ...]
    hit_stages: tuple[HitStage, ...]
    degrade: bool
    overrides: tuple[Overridable, ...]
    names_collections: bool
    distance: Distance | None = None
    given: RequestVector | None = None
    needle: Needle | None = None
    contains: tuple[Needle, ...] = ()
    seed: Hit | None = None
    phrases: tuple[Needle, ...] = ()
    unquoted: str | None = None
    joins: bool = False
    selects: bool = False

    @property
    def required(self) -> tuple[Needle, ...]:
        """What no hit may lack."""
        return self.contains if self.unquoted else (*self.contains, *self.phrases)

    @property
    def drops_distant(self) -> bool:
        """Whether a threshold applies to single hits, not only to the evidence as a whole."""
        return drops_distant_hits(self.thresholds)

    @property
    def has_thresholds(self) -> bool:
        """Whether a threshold applies to single hits or to the evidence as a whole."""
        return self.drops_distant or self.thresholds.min_evidence is not None


def drops_distant_hits(limits: ThresholdSettings) -> bool:
    """Whether hits that are too far from the question are dropped."""
    return (limits.min_similarity, limits.max_distance, limits.percentage_distance) != (None, None, None)


@dataclass(frozen=True, slots=True)
class RequestVector:
    """A vector of unit length, and the names of the stages that can't run with it."""

    vector: npt.NDArray[np.float32]
    skipped: tuple[str, ...] = ()
