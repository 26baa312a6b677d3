"""The tools as they are called: who may call which, what each can reach, and what arguments it takes.

A tool's binding becomes one of the caller's bindings, so nothing behind the tool can escape it. Resources and
completions belong to no tool: there a caller reaches what any of its tools may show.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

from pydantic import Field

from rag import answers
from rag.access.rule import bounds
from rag.config.profiles import Candidates, FusionMethod, Overridable, Share
from rag.config.server_settings import ServerSettings, ToolSettings
from rag.config.settings import Settings
from rag.corpus import Binding, Distance, Principal
from rag.errors import ConfigurationError
from rag.search import tool_arguments
from rag.search.search_plan import LIMITS, SearchPlan, make_plan
from rag.search.tool_arguments import Arguments

log = logging.getLogger(__name__)

OPEN = Binding()


def callable_tools(server: ServerSettings, principal: Principal) -> tuple[ToolSettings, ...]:
    """The search tools that the principal may call, each with its opener, in the order of the settings."""
    bound_to = [binding.tools for binding in principal.bindings if binding.tools is not None]
    return tuple(tool for tool in server.tools if all(tool.name in names for names in bound_to))


def principal_through(principal: Principal, tool: ToolSettings) -> Principal:
    """The principal with the tool's binding added."""
    return _with_binding(principal, tool.binding)


def principal_through_any(principal: Principal, tools: Sequence[ToolSettings]) -> Principal:
    """The principal for resources: it reaches what at least one of the tools may show."""
    bindings = tuple(tool.binding for tool in tools)
    return principal if OPEN in bindings else _with_binding(principal, Binding(any_of=bindings))


def _with_binding(principal: Principal, binding: Binding) -> Principal:
    if binding == OPEN:
        return principal
    return replace(principal, bindings=(*principal.bindings, binding))


THRESHOLDS_DESCRIPTION = "Leave out passages that are too far: " + ", ".join(LIMITS) + "."
STAGES_DESCRIPTION = """\
Other stages than the profile's, for example {"of": "fresh", "without": ["dedupe"], "neighbors": 2}: those \
of another profile, or all but some, with this number of chunks before and after each result.\
"""
PICTURE = "Also the page, as an image."

OF_EXACT = frozenset({"match", "case"})
"""Arguments of mode exact."""


MaxChars = Annotated[
    int | None,
    Field(ge=answers.MIN_REPLY_CHARS, le=answers.MAX_REPLY_CHARS, description="Maximum reply length."),
]


class SearchArguments(tool_arguments.SearchArguments):
    """The arguments of `search`, with those that an operator may offer."""

    fusion: Annotated[
        FusionMethod | None, Field(description="How mode hybrid joins meaning and keywords.")
    ] = None
    alpha: Annotated[
        Share | None, Field(description="For the fusion convex: 0 for keywords only, 1 for meaning only.")
    ] = None
    candidates: Annotated[
        Candidates | None, Field(description="Passages that each list brings before they are joined.")
    ] = None
    thresholds: Annotated[dict[str, Any] | None, Field(description=THRESHOLDS_DESCRIPTION)] = None
    stages: Annotated[dict[str, Any] | None, Field(description=STAGES_DESCRIPTION)] = None
    distance: Annotated[
        Distance | None, Field(description="Metric of the thresholds max_distance and percentage_distance.")
    ] = None
    vectors: Annotated[bool | None, Field(description="Also return the vector of each passage.")] = None
    explain: Annotated[bool | None, Field(description="Also return a trace of the search.")] = None
    max_chars: MaxChars = None


class GetSourceArguments(tool_arguments.SourceArguments):
    """The arguments of `get_source`."""

    picture: Annotated[bool | None, Field(description=PICTURE)] = None
    max_chars: MaxChars = None


class FetchArguments(Arguments):
    """The arguments of `fetch`."""

    id: Annotated[str, Field(min_length=1, max_length=200, description="id of a search result.")]


class PageArguments(Arguments):
    """The arguments of `page_picture`."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
    page: Annotated[int | None, Field(ge=1, le=1_000_000)] = None


def usual_plan(settings: Settings, tool: ToolSettings, principal: Principal) -> SearchPlan:
    """The plan of a search without optional arguments. A tool that can't search is listed: calls say why."""
    try:
        return make_plan(answers.SearchRequest("?"), settings.search, principal)
    except ConfigurationError as error:
        log.warning("The tool %s can't search: %s", tool.name, error)
        return make_plan(answers.SearchRequest("?"), settings.search, replace(principal, bindings=()))


def arguments_not_offered(
    server: ServerSettings, tool: ToolSettings, principal: Principal, usual: SearchPlan
) -> set[str]:
    """The arguments of a search tool that the operator fixed, withheld or didn't enable, and void ones.

    `usual` is the tool's `usual_plan` for the principal.
    """
    bound = bounds(principal.bindings)
    offered = {
        "profile": bool(server.profiles) and not bound.profiles,
        "explain": server.explain,
        "collections": bound.collections is None or len(bound.collections) > 1,
    }
    return (
        fixed_arguments(usual)
        | withheld_arguments(tool)
        | {name for name, is_offered in offered.items() if not is_offered}
    )


def fixed_arguments(usual: SearchPlan) -> set[str]:
    """The arguments whose values no request may choose."""
    names = {*get_args(Overridable)} - {*usual.overrides}
    return names | OF_EXACT if "mode" in names and usual.mode != "exact" else names


def withheld_arguments(tool: ToolSettings) -> set[str]:
    """The arguments that the tool doesn't offer, although the other settings allow them."""
    if tool.arguments is None:
        return set()
    return {*SearchArguments.model_fields} - {"query", *tool.arguments}
