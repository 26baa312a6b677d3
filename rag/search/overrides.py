"""What a request sets of how it is searched, as far as the operator allows it (`search.overrides`).

The limits of every value are those of the settings, and so is their check. What isn't allowed, or has no
effect on this search, is an error: nothing that a request says is ignored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import ValidationError

from rag.config.mistakes import described
from rag.config.profiles import (
    FusionSettings,
    Overridable,
    ProfileSettings,
    StageChoice,
    ThresholdSettings,
)
from rag.corpus import Distance
from rag.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pydantic import BaseModel

    from rag.answers import Mode, SearchRequest
    from rag.config.profiles import Stages
    from rag.config.settings import SearchSettings

Model = TypeVar("Model", bound="BaseModel")

LIMITS = tuple(name for name in ThresholdSettings.model_fields if name != "weak_evidence")
"""The thresholds that a request may set. Whether weak evidence is shown at all is the operator's to say."""


def allowed(search: SearchSettings, *given: ProfileSettings | None) -> tuple[Overridable, ...]:
    """What a request may override: what the settings and each profile or tenant allow that says so."""
    stated = [one.overrides for one in given if one is not None and one.overrides is not None]
    return tuple(name for name in search.overrides if all(name in names for names in stated))


def with_every_override(search: SearchSettings) -> SearchSettings:
    """The settings with every override allowed, in all profiles and for all tenants."""
    open_ = {"overrides": None}
    return search.model_copy(
        update={
            "overrides": get_args(Overridable),
            "profiles": {name: one.model_copy(update=open_) for name, one in search.profiles.items()},
            "of_tenants": {name: one.model_copy(update=open_) for name, one in search.of_tenants.items()},
        }
    )


def check_allowed(settings: SearchSettings, name: Overridable, wanted: object, fixed: object) -> None:
    """Check that a request may set this value, or that it is the one that is fixed.

    Raises:
        InvalidRequestError: the operator has fixed another one.
    """
    if wanted != fixed and name not in settings.overrides:
        value = f" to {fixed}" if isinstance(fixed, str | float | int) else ""
        raise InvalidRequestError(f"{name} is fixed{value} by the operator; leave it out.")


def overridden(
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
    fusion, given = settings.fusion, {"method": request.fusion, "alpha": request.alpha}
    given = {name: value for name, value in given.items() if value is not None}
    if request.fusion is not None:
        check_allowed(settings, "fusion", request.fusion, fusion.method)
    if request.alpha is not None:
        check_allowed(settings, "alpha", request.alpha, fusion.alpha)
    made = _valid(FusionSettings, fusion.model_dump() | given, {"method": "fusion"})
    if request.alpha is not None and made.method != "convex":
        raise InvalidRequestError(f"alpha has no effect with the fusion {made.method}; it is for convex.")
    return made


def _thresholds(settings: SearchSettings, given: Mapping[str, float] | None) -> ThresholdSettings:
    if given is None:
        return settings.thresholds
    unknown = next((name for name in given if name not in LIMITS), None)
    if unknown is not None or not given:
        check_allowed(settings, "thresholds", given, None)
        wrong = "is empty" if unknown is None else f"has no {unknown[:64]!r}"
        raise InvalidRequestError(f"thresholds {wrong}; it has: {', '.join(LIMITS)}.")
    stated = settings.thresholds.model_dump()
    made = _valid(ThresholdSettings, stated | dict(given), above="thresholds.")
    check_allowed(settings, "thresholds", made, settings.thresholds)
    return made


def _stages(
    settings: SearchSettings, given: Mapping[str, object] | None, stages_of: Callable[[str], Stages]
) -> Stages:
    if given is None:
        return settings.stages
    if not given:
        raise InvalidRequestError(f"stages is empty; it has: {', '.join(StageChoice.model_fields)}.")
    choice = _valid(StageChoice, given, above="stages.", strict=False)
    stages = settings.stages if choice.of is None else stages_of(choice.of)
    names = {stage.stage for stage in stages}
    if unknown := [name for name in choice.without if name not in names]:
        check_allowed(settings, "stages", unknown, ())  # what is closed says nothing of what there is
        there = ", ".join(dict.fromkeys(stage.stage for stage in stages)) or "none"
        raise InvalidRequestError(
            f"stages.without: there is no stage {unknown[0][:64]!r}; there are: {there}."
        )
    left = tuple(stage for stage in stages if stage.stage not in choice.without)
    check_allowed(settings, "stages", left, settings.stages)
    return left


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
    """The values as the settings check them; none is quoted in the error.

    Raises:
        InvalidRequestError: one is wrong. The message says what is allowed.
    """
    try:
        return model.model_validate(values, strict=strict)
    except ValidationError as error:
        details = error.errors()[0]
        key = str(details["loc"][0]) if details["loc"] else ""
        name = f"{above}{(renamed or {}).get(key, key)}"
        if details["type"] == "extra_forbidden":
            known: Collection[str] = model.model_fields
            raise InvalidRequestError(
                f"{above.rstrip('.')} has no {key[:64]!r}; it has: {', '.join(known)}."
            ) from None
        raise InvalidRequestError(f"{described(name, details).rpartition(', not ')[0]}.") from None
