"""Finds settings that contradict each other: each is valid alone, but not together."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from rag.config.profiles import (
    DEFAULT_PROFILE,
    MultiQueryStage,
    PlannerStage,
    RerankStage,
    makes_queries,
)
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.config.profiles import FusionSettings, HitStage, QueryStage, Stages
    from rag.config.settings import SearchSettings, Settings

Contradiction: TypeAlias = tuple[tuple[str, ...], str]
"""The keys of the setting that is wrong, and a sentence about it."""


def check_consistent(settings: Settings) -> None:
    """Raise the first contradiction, if there is one.

    Raises:
        ConfigurationError: a profile is not defined, or a stage is in the wrong place or lacks its model.
    """
    for keys, problem in contradictions(settings):
        raise ConfigurationError(f"{'.'.join(key for key in keys if not key.isdecimal())}: {problem}")


def contradictions(settings: Settings) -> Iterator[Contradiction]:
    """All contradictions, in the order of the file."""
    search = settings.search
    for keys, stages in stages_of(search).items():
        yield from _of_stages(keys, stages, settings)
    yield from _of_baselines(settings)
    for name, profile_name in search.of_collections.items():
        yield from _of_profile(("search", "of_collections", name), profile_name, settings)
    for profile_name in settings.server.profiles:
        yield from _of_profile(("server", "profiles"), profile_name, settings)


def stages_of(search: SearchSettings) -> dict[tuple[str, ...], Stages]:
    """All lists of stages, by the keys of the table that holds them."""
    lists: dict[tuple[str, ...], Stages] = {("search",): search.stages}
    for table, profiles in (("profiles", search.profiles), ("of_tenants", search.of_tenants)):
        lists |= {("search", table, name): profile.stages or () for name, profile in profiles.items()}
    return lists


def _of_baselines(settings: Settings) -> Iterator[Contradiction]:
    """A baseline of the default embedder that is subtracted twice."""
    search = settings.search
    fusions: dict[tuple[str, ...], FusionSettings] = {("search",): search.fusion}
    for table, profiles in (("profiles", search.profiles), ("of_tenants", search.of_tenants)):
        fusions |= {("search", table, name): one.fusion for name, one in profiles.items() if one.fusion}
    for above, fusion in fusions.items():
        if fusion.baseline and settings.embedder.baseline:
            problem = "embedder.baseline replaces it; remove one of both."
            yield (*above, "fusion", "baseline"), problem


def _of_profile(keys: tuple[str, ...], name: str, settings: Settings) -> Iterator[Contradiction]:
    known = (DEFAULT_PROFILE, *settings.search.profiles)
    if name not in known:
        yield keys, f"there is no profile {name!r}; use one of: {', '.join(known)}."


def _of_stages(above: tuple[str, ...], stages: Stages, settings: Settings) -> Iterator[Contradiction]:
    after_hits = False
    for index, stage in enumerate(stages):
        keys = (*above, "stages", str(index))
        if makes_queries(stage) and after_hits:
            yield keys, f"the stage {stage.stage} makes queries; move it before the stages that take hits."
        after_hits = after_hits or not makes_queries(stage)
        if missing := _missing_model(stage, settings):
            yield keys, f"the stage {stage.stage} needs {missing}, which is not set."


def _missing_model(stage: QueryStage | HitStage, settings: Settings) -> str | None:
    match stage:
        case MultiQueryStage() | PlannerStage() | RerankStage(by="chat") if not settings.chat.model:
            return "chat.model"
        case RerankStage(by="reranker") if settings.reranker.provider == "none":
            return "reranker.provider"
    return None
