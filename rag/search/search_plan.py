"""The plan of a search, and how it is made: a request, checked and completed from profile and settings.

A request overrides settings of its profile as far as the operator allows it (`search.overrides`), within the
limits of the settings' own models. A value that is not allowed, or has no effect on this search, is an error:
nothing in a request is silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import ValidationError

from rag.access.rule import UNBOUND, Bounds, bounds
from rag.answers import MAX_QUERY_CHARS, NOTHING_ASKED, Detail, Hit, Mode, RequestValues, SearchRequest
from rag.config.mistakes import describe_mistake
from rag.config.profiles import (
    DEFAULT_PROFILE,
    DISPLAY_STAGES,
    LOOSENING,
    CompressStage,
    Counting,
    CustomStage,
    EngineSettings,
    FusionSettings,
    HitStage,
    NeighborsStage,
    Overridable,
    ParentStage,
    ProfileSettings,
    QueryStage,
    RerankStage,
    StageChoice,
    Stages,
    ThresholdSettings,
    applies,
    makes_queries,
    takes_hits,
)
from rag.config.settings import SearchSettings
from rag.corpus import Distance, EmbedderIdentity, Principal
from rag.errors import ConfigurationError, InvalidRequestError
from rag.filters.needles import (
    MAX_NEEDLE_CHARS,
    QUOTES,
    Needle,
    cleaned_text,
    needle,
    phrases,
    without_marks_of_code,
    without_quotes,
)
from rag.text.plain_text import is_encodable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from pydantic import BaseModel


JOIN_OVERSAMPLING = 3  # times the limit: usually enough hits once adjacent ones are joined
JUDGED = 8  # hits judged as evidence and for editions, whatever the limit; about a usual limit


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What a search does, from the request, its profile and the settings.

    Each ranking has up to `candidates` chunks, of which up to `limit` become hits. `statistics` says over
    which passages words are counted. If `relax`, conditions of a filter without results may be dropped. If
    `degrade`, mode hybrid may fall back to words while the embedding model fails. `detail` is how much of a
    hit is shown, in addition to what hit stages show. `context_tokens` is the token budget of a context, 0
    for none. `overrides` are the values that a request may set. `distance` is the metric of the thresholds,
    None for each collection's.

    Mode exact has a `needle` and uses no model. Every hit contains all of `contains`, which the request or
    the operator demands; `demanded` are the operator's. Hits with the `phrases` of the query come first.
    `unquoted`, the query without quotation marks, finds hits that lack a phrase; None if no hit may lack one:
    in a query of phrases only, and where every word must occur. A search with a `seed` is for passages
    related to it.

    If the plan `unites`, a passage that several documents share word for word is one hit. If it `joins`,
    adjacent chunks become one hit; in mode exact, chunks whose excerpts touch. If it also `selects`, hits
    that add little about a source give way to other sources, as requests without a limit want it.

    Nothing is found that doesn't meet the `profile_filter`, even if the request's own filter is relaxed.
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
    distance: Distance | None = None
    request_vector: RequestVector | None = None
    needle: Needle | None = None
    contains: tuple[Needle, ...] = ()
    demanded: tuple[Needle, ...] = ()
    seed: Hit | None = None
    phrases: tuple[Needle, ...] = ()
    unquoted: str | None = None
    unites: bool = False
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
    """The unit vector that a request brings, and the names of the stages that can't run with it.

    `model` made it, if it is the vector of a stored passage.
    """

    vector: npt.NDArray[np.float32]
    skipped: tuple[str, ...] = ()
    model: EmbedderIdentity | None = None


MAX_PHRASES = 16  # of a query: the engine scans each passage for each of them


OVERRIDES = ("fusion", "alpha", "candidates", "thresholds", "stages", "distance")
"""The fields of a request that override settings."""


_LISTS = {field.name for field in fields(SearchRequest) if str(field.type).startswith("tuple[str, ...]")}
"""The fields of a request that are lists of names."""


def request_with(query: SearchRequest | str, values: RequestValues) -> SearchRequest:
    """The request for a query, or the given request, with these values.

    Raises:
        InvalidRequestError: a list of names is a single string.
    """
    request = SearchRequest(query) if isinstance(query, str) else query
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name in _LISTS and isinstance(value, str):
            raise InvalidRequestError(f"{name} must be a list, like [{value!r}].")
        changes[name] = tuple(value) if name in _LISTS and isinstance(value, Iterable) else value
    return replace(request, **changes)


def _check_values(request: SearchRequest, max_limit: int) -> None:
    """Check the values that depend on no setting but `max_limit`.

    Raises:
        InvalidRequestError: a value is out of range.
    """
    if request.limit is not None and not 0 <= request.limit <= max_limit:
        raise InvalidRequestError(f"limit must be from 0 to {max_limit}, not {request.limit}.")
    if request.detail and request.detail not in get_args(Detail):
        details = ", ".join(get_args(Detail))
        raise InvalidRequestError(f"detail must be one of {details}, not {request.detail!r}.")
    if () in {request.collections, request.sources}:
        raise InvalidRequestError(
            "collections and sources must each name at least one; leave them out to search all."
        )
    for id_ in (*(request.sources or ()), *request.exclude_sources):
        _check_encodable("A source's id", id_)


def make_plan(request: SearchRequest, settings: SearchSettings, principal: Principal) -> SearchPlan:
    """The checked request, completed from its tenant's settings, then its profile, then `settings`.

    The principal's bindings fix the profile and cap the limit.

    Raises:
        InvalidRequestError: a value is out of range, or fixed by the operator. The message says what is
            allowed.
        ConfigurationError: the principal is bound to several profiles, or to one that is not defined.
    """
    bound = bounds(principal.bindings) if principal.bindings else UNBOUND
    settings, mode, limit = _requested_settings(request, settings, bound, principal.tenant)
    detail = request.detail or settings.detail
    may_lack_phrases = mode != "exact" and settings.engine.operator == "or"
    query = _checked_query(request.query, may_be_empty=request.vector is not None)
    query = query if mode == "exact" else _with_marks_of_phrases(query)
    needles = () if mode == "exact" else _phrases(query)
    plan = SearchPlan(
        query=query,
        mode=mode,
        fusion=settings.fusion,
        thresholds=settings.thresholds,
        engine=settings.engine,
        limit=limit,
        candidates=max(settings.candidates, limit),  # fewer could never fill the limit
        statistics=settings.statistics,
        collections=request.collections or (),
        exclude_collections=request.exclude_collections,
        sources=request.sources,
        exclude_sources=request.exclude_sources,
        filter=request.filter,
        relax=settings.relax,
        detail="passage" if mode == "exact" and detail == "snippet" else detail,  # lines are snippets
        context_tokens=settings.context_tokens if request.context else 0,
        query_stages=() if mode == "exact" else tuple(filter(makes_queries, settings.stages)),
        hit_stages=_hit_stages(settings, mode, without_display=request.detail is not None),
        degrade=settings.degrade,
        overrides=settings.overrides,
        distance=request.distance,
        needle=_needle(request, settings, mode, is_bound=bool(bound.profiles)),
        contains=_contains((*settings.must_contain, *request.must_contain)),
        demanded=_contains(settings.must_contain),
        phrases=needles,
        unquoted=without_quotes(query) if may_lack_phrases and needles else None,
        profile_filter=settings.filter or None,
    )
    plan = _joining(plan, request)
    return plan if request.vector is None else _with_vector(plan, request.vector)


def _requested_settings(
    request: SearchRequest, settings: SearchSettings, bound: Bounds, tenant: str
) -> tuple[SearchSettings, Mode, int]:
    """The settings of the request's profile with its overrides; its mode and its limit."""
    configured = settings
    settings = _profile_settings(configured, _profile(request, configured, bound), tenant)
    settings = settings.model_copy(update={"limit": min(settings.limit, bound.limit)})
    if bound.profiles:  # the binding's profile is a limit, so no override may loosen it
        narrowing = tuple(name for name in settings.overrides if name not in LOOSENING)
        settings = settings.model_copy(update={"overrides": narrowing})
    _check_values(request, bound.limit)
    limit = settings.limit if request.limit is None else request.limit
    mode = _mode(request, settings.mode)
    check_allowed(settings, "limit", limit, settings.limit)
    check_allowed(settings, "mode", mode, settings.mode)
    if any(getattr(request, name) is not None for name in OVERRIDES):
        settings = with_overrides(
            settings, request, mode, lambda name: _profile_settings(configured, name, tenant).stages
        )
    return settings, mode, limit


def _with_vector(plan: SearchPlan, numbers: Sequence[float]) -> SearchPlan:
    """The plan of a request that brings a vector, without the stages that can't run with it.

    Raises:
        InvalidRequestError: the mode compares no vectors, or as `unit_vector`.
    """
    if plan.mode not in {"dense", "sparse", "hybrid"}:
        raise InvalidRequestError(f"mode {plan.mode} doesn't use a vector. Leave the vector out.")
    need_text = (CompressStage,) if plan.query else (CompressStage, RerankStage)
    stages = tuple(stage for stage in plan.hit_stages if not isinstance(stage, need_text))
    # Query stages make texts, which can't be compared without the model of the vector.
    skipped = [stage.stage for stage in (*plan.query_stages, *plan.hit_stages) if stage not in stages]
    request_vector = RequestVector(unit_vector(numbers), tuple(dict.fromkeys(skipped)))
    return replace(plan, request_vector=request_vector, query_stages=(), hit_stages=stages)


MAX_DIMENSION = 8192  # as of embedder.dimensions


def unit_vector(numbers: Sequence[float]) -> npt.NDArray[np.float32]:
    """A vector scaled to unit length. Example: [3, 4] -> [0.6, 0.8].

    Raises:
        InvalidRequestError: this is not a list of 1 to 8192 finite numbers, or all are 0.
    """
    import numpy as np  # noqa: PLC0415 a starting server does without

    try:
        vector = np.asarray(numbers)
    except ValueError as error:  # lists of different lengths
        raise InvalidRequestError("vector must be a list of numbers.") from error
    if vector.ndim != 1 or vector.dtype.kind not in "iuf":
        raise InvalidRequestError("vector must be a list of numbers.")
    if not 1 <= len(vector) <= MAX_DIMENSION:
        raise InvalidRequestError(f"vector must have from 1 to {MAX_DIMENSION} numbers, not {len(vector)}.")
    vector = vector.astype(np.float64)
    largest = np.abs(vector).max()
    if not np.isfinite(largest):
        raise InvalidRequestError("vector must have finite numbers only, no nan or inf.")
    if not largest:
        raise InvalidRequestError("vector must not be all zeros: it points nowhere.")
    vector /= largest  # squares must not overflow or vanish
    unit: npt.NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return unit


def _joining(plan: SearchPlan, request: SearchRequest) -> SearchPlan:
    """The plan with `unites` and `joins` if the request wants it and the plan can.

    To fill a limit that a request states, joining needs more candidates, unless it also states their number.
    """
    plan = replace(plan, unites=request.joined and plan.mode != "exact")
    # The stages for sections and neighbours join hits themselves; sections and snippets replace texts.
    shows_more = any(isinstance(stage, NeighborsStage | ParentStage) for stage in plan.hit_stages)
    if not request.joined or plan.detail != "passage" or shows_more:
        return plan
    if plan.mode == "exact":
        return replace(plan, joins=True)
    if request.limit is None:
        # The rule of `selects` was not measured for other scores than ours.
        rescores = any(isinstance(stage, RerankStage | CustomStage) for stage in plan.hit_stages)
        return replace(plan, joins=True, selects=request.related is None and not rescores)
    enough = plan.candidates if request.candidates is not None else plan.limit * JOIN_OVERSAMPLING
    return replace(plan, joins=True, candidates=max(plan.candidates, enough))


NEEDS_QUERY = "mode {} needs a query beside related or vector. Add a query, or search in mode dense."


def _mode(request: SearchRequest, usual: Mode) -> Mode:
    """The request's mode, or the usual one; dense for a vector without a query."""
    mode = request.mode or usual
    if request.vector is not None and not request.query.strip():
        if request.mode not in {None, "dense"}:
            raise InvalidRequestError(NEEDS_QUERY.format(mode))
        mode = "dense"
    if mode not in get_args(Mode):
        raise InvalidRequestError(f"mode must be one of {', '.join(get_args(Mode))}, not {mode!r}.")
    return mode


def _hit_stages(settings: SearchSettings, mode: Mode, *, without_display: bool) -> tuple[HitStage, ...]:
    stages = (stage for stage in settings.stages if takes_hits(stage) and applies(stage, mode))
    return tuple(stage for stage in stages if not (without_display and isinstance(stage, DISPLAY_STAGES)))


ONLY_EXACT = "match and case are for mode exact; set mode to exact, or leave them out."


def _needle(request: SearchRequest, settings: SearchSettings, mode: Mode, *, is_bound: bool) -> Needle | None:
    """What mode exact searches for; None in other modes."""
    if mode != "exact":
        if request.match not in {None, "text"} or request.case:  # the defaults ask for nothing
            raise InvalidRequestError(ONLY_EXACT)
        return None
    if request.vector is not None:
        raise InvalidRequestError(
            "mode exact compares no vectors. Leave vector and related out, or choose another mode."
        )
    # A change of mode must not shed the thresholds of a binding's profile.
    if is_bound and settings.mode != "exact" and drops_distant_hits(settings.thresholds):
        raise InvalidRequestError(
            "mode exact has no similarities, which the operator requires; use another mode."
        )
    _checked_query(request.query, may_be_empty=False)
    return needle(request.query, request.match or "text", case=bool(request.case))


def _contains(texts: Sequence[str]) -> tuple[Needle, ...]:
    """What each hit must contain. Quotation marks are taken literally."""
    for text in texts:
        _check_encodable("must_contain", text)
    return tuple(map(needle, texts))


def _with_marks_of_phrases(query: str) -> str:
    """The query without the quotation marks of pasted code, nor those of too many phrases beside words."""
    if QUOTES.isdisjoint(query):
        return query
    query = without_marks_of_code(query)
    are_many = len(phrase_needles(query)) > MAX_PHRASES
    return (without_quotes(query) if are_many else None) or query


def _phrases(query: str) -> tuple[Needle, ...]:
    """The phrases of a request's query; an error if there are more than `MAX_PHRASES`."""
    needles = phrase_needles(query)
    if len(needles) > MAX_PHRASES:
        raise InvalidRequestError(
            f"query has more than {MAX_PHRASES} phrases in quotation marks. Quote fewer."
        )
    return needles


def phrase_needles(query: str) -> tuple[Needle, ...]:
    """The phrases of a query as needles, without blank ones; at most one more than `MAX_PHRASES`."""
    quoted = () if QUOTES.isdisjoint(query) else phrases(query)
    visible = (phrase[:MAX_NEEDLE_CHARS] for phrase in quoted if cleaned_text(phrase))
    return tuple(needle(phrase, "words", is_phrase=True) for phrase in islice(visible, MAX_PHRASES + 1))


def _profile(request: SearchRequest, settings: SearchSettings, bound: Bounds) -> str:
    """The profile of a binding or the request, or the one that all named collections share."""
    if bound.profiles:
        return _bound_profile(request, settings, bound.profiles)
    if request.profile is not None:
        return request.profile
    names = request.collections or bound.collections or ()
    theirs = {settings.of_collections.get(name, DEFAULT_PROFILE) for name in names}
    # A search has one profile. That of one of several collections was not meant for the others.
    return theirs.pop() if len(theirs) == 1 else DEFAULT_PROFILE


def _bound_profile(request: SearchRequest, settings: SearchSettings, names: Sequence[str]) -> str:
    """The profile that bindings fix. Several are an error, because none is narrower than the others."""
    if len(names) > 1:
        raise ConfigurationError(
            f"This request is bound to several profiles ({', '.join(names)}), by its tool, its API key "
            "or its token's scopes. Bind it to one of them."
        )
    (name,) = names
    if request.profile not in {None, name}:
        raise InvalidRequestError("profile is fixed by the operator; leave it out.")
    if name != DEFAULT_PROFILE and name not in settings.profiles:
        raise ConfigurationError(
            f"This request is bound to the profile {name!r}, which is not defined. Define it in "
            f"[search.profiles.{name}], or change the binding."
        )
    return name


def _profile_settings(settings: SearchSettings, profile: str, tenant: str) -> SearchSettings:
    """A profile's settings with the tenant's own on top. Each may only take away what a request overrides."""
    if profile != DEFAULT_PROFILE and profile not in settings.profiles:
        names = ", ".join([DEFAULT_PROFILE, *sorted(settings.profiles)])
        raise InvalidRequestError(f"There is no profile {profile!r}. Profiles: {names}.")
    of_profile = None if profile == DEFAULT_PROFILE else settings.profiles[profile]
    for overlay in filter(None, (of_profile, settings.of_tenants.get(tenant))):
        changed = {key: getattr(overlay, key) for key in overlay.model_fields_set}
        stated = settings.overrides if overlay.overrides is None else overlay.overrides
        changed["overrides"] = tuple(name for name in settings.overrides if name in stated)
        settings = settings.model_copy(update=changed)
    return settings


def _checked_query(query: str, *, may_be_empty: bool) -> str:
    query = query.strip()
    if not query and not may_be_empty:
        raise InvalidRequestError(NOTHING_ASKED)
    if len(query) > MAX_QUERY_CHARS:
        raise InvalidRequestError(
            f"query must have at most {MAX_QUERY_CHARS} characters, not {len(query)}. Shorten it."
        )
    _check_encodable("query", query)
    return query


def _check_encodable(name: str, text: str) -> None:
    if not is_encodable(text):
        raise InvalidRequestError(f"{name} contains a lone surrogate, which is half a character.")


Model = TypeVar("Model", bound="BaseModel")
LIMITS = tuple(name for name in ThresholdSettings.model_fields if name != "weak_evidence")
"""The thresholds that a request may set. Only the operator decides whether weak evidence is shown."""


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
        # The description ends in ", not " and the caller's value, which no message repeats.
        raise InvalidRequestError(f"{describe_mistake(name, details).rpartition(', not ')[0]}.") from None
