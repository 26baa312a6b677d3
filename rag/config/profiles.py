"""Retrieval profiles as an operator writes them: fusion, thresholds, and the stages in their order."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeGuard

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator

from rag.access.rule import BoundFilter
from rag.answers import MAX_LIMIT, Detail, Mode

DEFAULT_PROFILE = "default"
CALL_PATTERN = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"


def matching(pattern: str, description: str) -> AfterValidator:
    """A validator for strings that match `pattern` as a whole; its error says `description` instead.

    Pydantic's own `pattern` would show the regular expression.
    """

    def validator(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"write {description}")
        return value

    return AfterValidator(validator)


_CONTROL = re.compile(r"[\0-\x1f\x7f]")  # names may have joiners, and spaces of other scripts
WINDOWS_PATH = "write a Windows path in single quotes: 'C:\\Users\\ann'"


def _named(path: object) -> object:
    if isinstance(path, str | Path) and not str(path).strip():
        raise ValueError("an empty path would mean the current folder; write a path, or leave it out")
    if isinstance(path, str) and _CONTROL.search(path):  # "D:\temp" has a tab in TOML
        raise ValueError(f"a path can't have control characters; {WINDOWS_PATH}")
    return path


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"{path} begins with the home folder of a user who doesn't exist") from error


def _network(address: str) -> str:
    try:
        ip_network(address)
    except ValueError as error:
        raise ValueError(
            f"{address!r} is not an IP address or network; write an address (192.0.2.1) or a network "
            "(192.0.2.0/24, with no bits set after the prefix)"
        ) from error
    return address


Network = Annotated[str, AfterValidator(_network)]
Seconds = Annotated[float, Field(gt=0, le=600)]
AbsolutePath = Annotated[Path, BeforeValidator(_named), AfterValidator(_absolute)]
ContextTokens = Annotated[int, Field(ge=100, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Limit = Annotated[int, Field(ge=0, le=MAX_LIMIT)]
Candidates = Annotated[int, Field(ge=10, le=1000)]
FusionMethod = Literal["calibrated", "rrf", "dbsf", "convex"]
Texts = tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...]
Neighbors = Annotated[int, Field(ge=0, le=5)]


class Section(BaseModel):
    """A table of the settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FusionSettings(Section):
    """How mode hybrid combines the dense and the sparse list into one ranking."""

    method: FusionMethod = "calibrated"
    alpha: Share = 0.5


class ThresholdSettings(Section):
    """Which hits are not similar enough to the query, and when all together are weak evidence.

    None sets no limit; for `min_evidence`, the one that was measured for the embedding model, if any.
    """

    min_similarity: Annotated[float, Field(ge=-1, le=1)] | None = None
    max_distance: Annotated[float, Field(ge=0, le=2)] | None = None
    percentage_distance: Annotated[float, Field(ge=0, le=1000)] | None = None
    min_evidence: Share | None = None
    weak_evidence: Literal["note", "no hits"] = "note"


class EngineSettings(Section):
    """Whether a passage of the keyword list needs every word of the query."""

    operator: Literal["or", "and"] = "or"


# The `model` of a stage is another one behind the same endpoint than [chat] or [reranker] names; empty: that.


ONE_MODEL = frozenset({"onnx", "tei"})  # providers of rerankers
NO_OTHER_MODEL = (
    "the stage rerank names the model {}, but a reranker of the provider onnx or tei has only one. "
    "Leave it out."
)


class MultiQueryStage(Section):
    """Adds paraphrases of the query, written by the chat model."""

    queries: ClassVar[int] = 3  # more in other words seldom find more, and each is a search of its own
    stage: Literal["multi_query"]
    model: str = ""


class PlannerStage(Section):
    """Splits the query into subqueries by the chat model, each with collections and a filter of its own."""

    queries: ClassVar[int] = 4  # a question hardly has more parts, and each is a search of its own
    stage: Literal["planner"]
    model: str = ""


class RerankStage(Section):
    """Scores the first hits again with the reranker or the chat model."""

    stage: Literal["rerank"]
    by: Literal["reranker", "chat"] = "reranker"
    model: str = ""
    candidates: Annotated[int, Field(ge=1, le=1000)] = 30
    limit: Annotated[int, Field(ge=1, le=1000)] | None = None


class NeighborsStage(Section):
    """Extends each hit by the chunks before and after it."""

    stage: Literal["neighbors"]
    count: Neighbors = 1


class ParentStage(Section):
    """Extends each hit to the section around it."""

    max_chars: ClassVar[int] = 4000  # as much as the detail section shows, a quarter of a reply
    stage: Literal["parent"]


Counting = Literal["auto", "collection", "strict"]
"""The passages over which words are counted: those that the user may see, or all of the collection.

"auto" counts the former where rows are in memory, or will soon be.
"""
MissingDate = Literal["ignore", "penalize", "error"]
"""A hit without a date: keeps its score, counts as infinitely old, or is an error."""


class RecencyStage(Section):
    """Scores decay with age, by the document's own date or by a declared field."""

    stage: Literal["recency"]
    half_life_days: Annotated[float, Field(gt=0)] = 90.0
    field: str = ""
    missing: MissingDate = "ignore"


class DiversifyStage(Section):
    """Prefers hits that differ from those before them (MMR), and limits how many one source may have."""

    stage: Literal["diversify"]
    lambda_: Annotated[float, Field(ge=0, le=1, alias="lambda")] = 0.7
    by: Literal["vectors", "words"] = "vectors"
    per_source: Annotated[int, Field(ge=1)] | None = None


class DedupeStage(Section):
    """Drops near-duplicates of better hits."""

    stage: Literal["dedupe"]


class GraphStage(Section):
    """Follows the references of the best hits: documents that they name by title or link to."""

    stage: Literal["graph"]


class CompressStage(Section):
    """Keeps only the relevant sentences of each hit, verbatim; drops hits that have none."""

    stage: Literal["compress"]


def _function(value: object) -> object:
    if callable(value) or (isinstance(value, str) and re.fullmatch(CALL_PATTERN, value)):
        return value
    raise ValueError("write module:function, like our_search.stages:by_popularity")


class CustomStage(Section):
    """Calls a function of the operator's own, given as module:function; in a program, as the function."""

    stage: Literal["custom"]
    call: Annotated[str | Callable[..., Awaitable[object]], PlainValidator(_function)]
    takes: Literal["query", "hits"]
    options: dict[str, Any] = {}
    timeout_seconds: Seconds = 10.0

    @property
    def called(self) -> str:
        """The function's name, as module:function."""
        if isinstance(self.call, str):
            return self.call
        return ":".join(getattr(self.call, name, "?") for name in ("__module__", "__qualname__"))


QueryStage: TypeAlias = MultiQueryStage | PlannerStage | CustomStage
HitStage: TypeAlias = (
    RerankStage
    | NeighborsStage
    | ParentStage
    | RecencyStage
    | DiversifyStage
    | DedupeStage
    | GraphStage
    | CompressStage
    | CustomStage
)
DISPLAY_STAGES = (NeighborsStage, ParentStage, CompressStage)
"""Stages that only change what is shown of a hit."""
Stages: TypeAlias = tuple[Annotated[QueryStage | HitStage, Field(discriminator="stage")], ...]


def makes_queries(stage: QueryStage | HitStage) -> TypeGuard[QueryStage]:
    """Whether this is a query stage: it makes queries. All others are hit stages: they map hits to hits."""
    if isinstance(stage, CustomStage):
        return stage.takes == "query"
    return isinstance(stage, MultiQueryStage | PlannerStage)


def takes_hits(stage: QueryStage | HitStage) -> TypeGuard[HitStage]:
    """Whether this is a hit stage."""
    return not makes_queries(stage)


def applies(stage: HitStage, mode: Mode) -> bool:
    """Whether a hit stage applies in a mode. In mode exact the query isn't a question for a model."""
    return mode != "exact" or not isinstance(stage, RerankStage | GraphStage | CompressStage)


class StageChoice(Section):
    """The stages that a request runs: those `of` another profile, or of its own, `without` some of them.

    `neighbors` is the number of chunks to show before and after each hit.
    """

    of: str | None = None
    without: tuple[str, ...] = ()
    neighbors: Neighbors | None = None


Overridable = Literal[
    "mode", "limit", "fusion", "alpha", "candidates", "thresholds", "stages", "vectors", "distance"
]
LOOSENING: frozenset[Overridable] = frozenset({"thresholds", "distance", "stages"})
"""Overrides that could show more than a profile does. They are ruled out where the profile is bound."""


class ProfileSettings(Section):
    """A named retrieval profile; whatever it leaves out comes from [search].

    `overrides` only takes away: a request may override what [search], its profile and its tenant all allow.
    """

    mode: Mode | None = None
    limit: Limit | None = None
    fusion: FusionSettings | None = None
    thresholds: ThresholdSettings | None = None
    engine: EngineSettings | None = None
    candidates: Candidates | None = None
    overrides: tuple[Overridable, ...] | None = None
    detail: Detail | None = None
    relax: bool | None = None
    degrade: bool | None = None
    context_tokens: ContextTokens | None = None
    stages: Stages | None = None
    must_contain: Texts | None = None
    filter: BoundFilter | None = None


SHIPPED = {
    "fast": ProfileSettings(candidates=20),
    "precise": ProfileSettings(stages=(DedupeStage(stage="dedupe"),)),
    "fresh": ProfileSettings(stages=(RecencyStage(stage="recency"),)),
}
"""Built-in profiles; the operator can replace each by another one of the same name."""
