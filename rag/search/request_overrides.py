"""What a request overrides of its profile's settings, as far as the operator allows it (`search.overrides`).

Its values are validated by the models of the settings, so the same limits apply. A value that is not
allowed, or has no effect on this search, is an error: nothing in a request is silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import ValidationError

from rag.answers import Mode, SearchRequest
from rag.config.mistakes import describe_mistake
from rag.config.profiles import (
    FusionSettings,
    NeighborsStage,
    Overridable,
    ProfileSettings,
    StageChoice,
    Stages,
    ThresholdSettings,
)
from rag.config.settings import SearchSettings
from rag.corpus import Distance
from rag.errors import InvalidRequestError

if TYPE_CHECKING:
    from pydantic import BaseModel


Model = TypeVar("Model", bound="BaseModel")
LIMITS = tuple(name for name in ThresholdSettings.model_fields if name != "weak_evidence")
"""The thresholds that a request may set. Whether weak evidence is shown at all is the operator's to say."""


def allowed_overrides(search: SearchSettings, *given: ProfileSettings | None) -> tuple[Overridable, ...]:
    """What a request may override: what the settings allow, and each profile or tenant that states it."""
    stated = [values.overrides for values in given if values is not None and values.overrides is not None]
    return tuple(name for name in search.overrides if all(name in names for names in stated))


def with_every_override(search: SearchSettings) -> SearchSettings:
    """The settings with every override allowed, in all profiles and for all tenants."""
    open_ = {"overrides": None}
    return search.model_copy(
        update={
            "overrides": get_args(Overridable),
            "profiles": {name: profile.model_copy(update=open_) for name, profile in search.profiles.items()},
            "of_tenants": {
                name: tenant.model_copy(update=open_) for name, tenant in search.of_tenants.items()
            },
        }
    )


def check_allowed(settings: SearchSettings, name: Overridable, requested: object, fixed: object) -> None:
    """Check that a request may override this value, unless it equals the fixed one.

    Raises:
        InvalidRequestError: the operator has fixed another value.
    """
    if requested != fixed and name not in settings.overrides:
        to_value = f" to {fixed}" if isinstance(fixed, str | float | int) else ""
        raise InvalidRequestError(f"{name} is fixed{to_value} by the operator; leave it out.")


def with_overrides(
    settings: SearchSettings, request: SearchRequest, mode: Mode, stages_of: Callable[[str], Stages]
) -> SearchSettings:
    """The settings of the request's profile with what the request itself sets. `mode` is the search's.

    `stages_of` gives the stages of a profile by its name.

    Raises:
        InvalidRequestError: a value is out of range, fixed by the operator, or without effect.
    """
    _check_effective(request, mode)
    changed: dict[str, Any] = {
        "fusion": _fusion(settings, request),
        "thresholds": _thresholds(settings, request.thresholds),
        "stages": _stages(settings, request.stages, stages_of),
    }
    if request.candidates is not None:
        check_allowed(settings, "candidates", request.candidates, settings.candidates)
        changed["candidates"] = _valid(ProfileSettings, {"candidates": request.candidates}).candidates
    _check_distance(settings, request.distance, changed["thresholds"])
    return settings.model_copy(update=changed)


def _check_effective(request: SearchRequest, mode: Mode) -> None:
    without = () if mode == "hybrid" else ("fusion", "alpha")
    if mode == "exact":  # which has neither lists nor similarities
        without = (*without, "thresholds", "distance")
    for name in without:
        if getattr(request, name) is not None:
            raise InvalidRequestError(f"{name} has no effect in mode {mode}; leave it out.")


def _fusion(settings: SearchSettings, request: SearchRequest) -> FusionSettings:
    fusion, requested = settings.fusion, {"method": request.fusion, "alpha": request.alpha}
    requested = {name: value for name, value in requested.items() if value is not None}
    if request.fusion is not None:
        check_allowed(settings, "fusion", request.fusion, fusion.method)
    if request.alpha is not None:
        check_allowed(settings, "alpha", request.alpha, fusion.alpha)
    completed = _valid(FusionSettings, fusion.model_dump() | requested, {"method": "fusion"})
    if request.alpha is not None and completed.method != "convex":
        raise InvalidRequestError(
            f"alpha has no effect with the fusion {completed.method}; it is for convex."
        )
    return completed


def _thresholds(settings: SearchSettings, requested: Mapping[str, float] | None) -> ThresholdSettings:
    if requested is None:
        return settings.thresholds
    unknown = next((name for name in requested if name not in LIMITS), None)
    if unknown is not None or not requested:
        check_allowed(settings, "thresholds", requested, None)
        wrong = "is empty" if unknown is None else f"has no {unknown[:64]!r}"
        raise InvalidRequestError(f"thresholds {wrong}; it has: {', '.join(LIMITS)}.")
    stated = settings.thresholds.model_dump()
    completed = _valid(ThresholdSettings, stated | dict(requested), above="thresholds.")
    check_allowed(settings, "thresholds", completed, settings.thresholds)
    return completed


def _stages(
    settings: SearchSettings, requested: Mapping[str, object] | None, stages_of: Callable[[str], Stages]
) -> Stages:
    if requested is None:
        return settings.stages
    if not requested:
        raise InvalidRequestError(f"stages is empty; it has: {', '.join(StageChoice.model_fields)}.")
    choice = _valid(StageChoice, requested, above="stages.", strict=False)
    stages = settings.stages if choice.of is None else stages_of(choice.of)
    names = {stage.stage for stage in stages}
    if unknown := [name for name in choice.without if name not in names]:
        check_allowed(settings, "stages", unknown, ())  # a caller without overrides doesn't learn the stages
        there = ", ".join(dict.fromkeys(stage.stage for stage in stages)) or "none"
        raise InvalidRequestError(
            f"stages.without: there is no stage {unknown[0][:64]!r}; there are: {there}."
        )
    remaining = tuple(stage for stage in stages if stage.stage not in choice.without)
    if choice.neighbors is not None:
        remaining = _with_neighbors(remaining, choice.neighbors)
    check_allowed(settings, "stages", remaining, settings.stages)
    return remaining


def _with_neighbors(stages: Stages, count: int) -> Stages:
    """The stages with this number of chunks before and after each hit, in the place of the profile's own."""
    remaining = tuple(stage for stage in stages if not isinstance(stage, NeighborsStage))
    at = next((at for at, stage in enumerate(stages) if isinstance(stage, NeighborsStage)), len(remaining))
    neighbors = (NeighborsStage(stage="neighbors", count=count),) if count else ()
    return (*remaining[:at], *neighbors, *remaining[at:])


def _check_distance(
    settings: SearchSettings, distance: Distance | None, thresholds: ThresholdSettings
) -> None:
    if distance is None:
        return
    check_allowed(settings, "distance", distance, None)
    if distance not in get_args(Distance):
        raise InvalidRequestError(f"distance must be one of {', '.join(get_args(Distance))}.")
    if (thresholds.max_distance, thresholds.percentage_distance) == (None, None):
        raise InvalidRequestError(
            "distance has no effect without the threshold max_distance or percentage_distance."
        )


def _valid(
    model: type[Model],
    values: object,
    renamed: Mapping[str, str] | None = None,
    *,
    above: str = "",
    strict: bool = True,
) -> Model:
    """The values, validated by a model of the settings. `renamed` maps its fields to those of the request.

    Raises:
        InvalidRequestError: a value is invalid. The message says what is allowed and never quotes a value.
    """
    try:
        return model.model_validate(values, strict=strict)
    except ValidationError as error:
        details = error.errors()[0]
        key = str(details["loc"][0]) if details["loc"] else ""
        name = f"{above}{(renamed or {}).get(key, key)}"
        if details["type"] == "extra_forbidden":
            fields_of_model: Collection[str] = model.model_fields
            raise InvalidRequestError(
                f"{above.rstrip('.')} has no {key[:64]!r}; it has: {', '.join(fields_of_model)}."
            ) from None
        raise InvalidRequestError(f"{describe_mistake(name, details).rpartition(', not ')[0]}.") from None
