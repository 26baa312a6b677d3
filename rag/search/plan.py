"""What a request asks for, checked and completed from the settings before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from rag.errors import InvalidRequestError
from rag.records import MAX_LIMIT, MAX_QUERY_CHARS, Mode
from rag.settings import DEFAULT_PROFILE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.records import SearchRequest
    from rag.settings import FusionSettings, HitStage, SearchSettings, ThresholdSettings


@dataclass(frozen=True, slots=True)
class Plan:
    """A search with nothing left open.

    `candidates` is how many chunks each list brings. `relax` is whether conditions of a filter that leaves
    nothing may be dropped. `context_tokens` is the budget of a context, 0 for none.
    """

    query: str
    mode: Mode
    fusion: FusionSettings
    thresholds: ThresholdSettings
    limit: int
    candidates: int
    collections: tuple[str, ...]
    sources: tuple[str, ...] | None
    exclude_sources: tuple[str, ...]
    filter: Mapping[str, object] | None
    relax: bool
    context_tokens: int
    stages: tuple[HitStage, ...]


def make_plan(request: SearchRequest, settings: SearchSettings) -> Plan:
    """Check `request` and complete it from its profile, then from `settings`.

    Raises:
        InvalidRequestError: a value is out of its range; the message names the range.
    """
    settings = _with_profile(settings, request.profile)
    limit = settings.limit if request.limit is None else request.limit
    if not 0 <= limit <= MAX_LIMIT:
        raise InvalidRequestError(f"limit must be from 0 to {MAX_LIMIT}, not {limit}.")
    mode = request.mode or settings.mode
    if mode not in get_args(Mode):
        raise InvalidRequestError(f"mode must be one of {', '.join(get_args(Mode))}, not {mode!r}.")
    if () in {request.collections, request.sources}:
        raise InvalidRequestError("collections and sources must name at least one, or be left out for all.")
    for id_ in (*(request.sources or ()), *request.exclude_sources):
        _check_whole("A source's id", id_)
    return Plan(
        query=_checked_query(request.query),
        mode=mode,
        fusion=settings.fusion,
        thresholds=settings.thresholds,
        limit=limit,
        candidates=max(settings.candidates, limit),
        collections=settings.collections if request.collections is None else request.collections,
        sources=request.sources,
        exclude_sources=request.exclude_sources,
        filter=request.filter,
        relax=settings.relax,
        context_tokens=settings.context_tokens if request.context else 0,
        stages=settings.stages,
    )


def _with_profile(settings: SearchSettings, name: str | None) -> SearchSettings:
    if name is None or name == DEFAULT_PROFILE:
        return settings
    if name not in settings.profiles:
        names = ", ".join([DEFAULT_PROFILE, *sorted(settings.profiles)])
        raise InvalidRequestError(f"There is no profile {name!r}; there are: {names}.")
    given = settings.profiles[name]
    return settings.model_copy(update={key: getattr(given, key) for key in given.model_fields_set})


def _checked_query(query: str) -> str:
    query = query.strip()
    if not query:
        raise InvalidRequestError("query must not be empty: ask a question or give some words.")
    if len(query) > MAX_QUERY_CHARS:
        raise InvalidRequestError(
            f"query must have at most {MAX_QUERY_CHARS} characters, not {len(query)}. Ask for its core."
        )
    _check_whole("query", query)
    return query


def _check_whole(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequestError(f"{what} holds half a character (a lone surrogate).") from error
