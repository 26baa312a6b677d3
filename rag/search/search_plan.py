"""The plan of a search: a checked request with every value filled in. `planning` makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.answers import Detail, Hit, Mode
from rag.config.profiles import (
    Counting,
    EngineSettings,
    FusionSettings,
    HitStage,
    Overridable,
    QueryStage,
    ThresholdSettings,
)
from rag.corpus import Distance
from rag.needles import Needle

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


JOIN_OVERSAMPLING = 3  # times the limit: usually enough hits once adjacent ones are joined


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """Everything that a search needs to know. Filled in from the request, its profile and the settings.

    Each ranking has up to `candidates` chunks, of which up to `limit` become hits. `statistics` says over
    which passages words are counted. If `relax`, conditions of a filter without results may be dropped. If
    `degrade`, mode hybrid may fall back to words while the embedding model fails.

    `detail` is how much of a hit is shown, in addition to what hit stages show. `context_tokens` is the token
    budget of a context, 0 for none. `overrides` are the values that a request may set. `names_collections` is
    whether the request names its collections. `distance` is the metric of the thresholds, None for each
    collection's own.

    Mode exact has a `needle` and uses no model. Every hit contains all of `contains`, which the request or
    the operator demands. Hits with the `phrases` of the query come first. `unquoted`, the query without
    quotation marks, finds hits that lack a phrase; it is None if no hit may lack one: in a query of phrases
    only, and where every word must occur. With a `seed`, the search is for passages related to it.

    If the plan `joins`, adjacent chunks become one hit; in mode exact, chunks whose excerpts touch. If it
    also `selects`, hits that add little about a source give way to other sources. That is only the default
    for requests without a limit.

    Nothing is found that doesn't meet the `profile_filter`, whatever the request's own filter is and even if
    that is relaxed.
    """

    query: str
    mode: Mode
    fusion: FusionSettings
    thresholds: ThresholdSettings
    engine: EngineSettings
    limit: int
    candidates: int
    statistics: Counting
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
    request_vector: RequestVector | None = None
    needle: Needle | None = None
    contains: tuple[Needle, ...] = ()
    seed: Hit | None = None
    phrases: tuple[Needle, ...] = ()
    unquoted: str | None = None
    joins: bool = False
    selects: bool = False
    profile_filter: Mapping[str, object] | None = None

    @property
    def strict(self) -> bool:
        """Whether nothing may depend on rows that the principal can't read, whatever it costs."""
        return self.statistics == "strict"

    @property
    def required(self) -> tuple[Needle, ...]:
        """The texts that every hit must contain."""
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
    """The unit vector that a request brings, and the names of the stages that can't run with it."""

    vector: npt.NDArray[np.float32]
    skipped: tuple[str, ...] = ()
