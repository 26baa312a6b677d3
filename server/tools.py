"""The tools as they are called: who may call which, what each can reach, and what arguments it takes.

A tool's binding becomes one of the caller's bindings, so nothing behind the tool can escape it. Resources and
completions belong to no tool: there a caller reaches what any of its tools may show.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, get_args

from pydantic import Field

from rag import answers
from rag.access.rule import bounds
from rag.config.profiles import Candidates, FusionMethod, Overridable, Share
from rag.config.server_settings import ServerSettings, ToolSettings
from rag.config.settings import Settings
from rag.corpus import Binding, Distance, Principal
from rag.errors import ConfigurationError
from rag.search.agents import SEARCH, SOURCE, LinesText, Listing, line_range
from rag.search.browse import Sort
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


def offers_pictures(server: ServerSettings, *, remote: bool) -> bool:
    """Whether the opener can return pages as images, over HTTP if `remote`."""
    return server.pictures == "always" or (server.pictures == "auto" and not remote)


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
MAX_PATH_CHARS = 4_096  # as long as file systems allow
MAX_HEADING_CHARS = 500  # of a path of headings
Name = Annotated[str, Field(max_length=MAX_PATH_CHARS)]

OF_EXACT = frozenset({"match", "case"})
"""Arguments of mode exact."""


MaxChars = Annotated[
    int | None,
    Field(ge=answers.MIN_REPLY_CHARS, le=answers.MAX_REPLY_CHARS, description="Maximum reply length."),
]


class SearchArguments(Arguments):
    """The arguments of `search`: `query`, `related` or both. None means the operator's default."""

    query: Annotated[
        str | None, Field(min_length=1, max_length=answers.MAX_QUERY_CHARS, description=SEARCH["query"])
    ] = None
    limit: Annotated[int | None, Field(ge=0, le=answers.MAX_LIMIT, description=SEARCH["limit"])] = None
    mode: Annotated[
        answers.Mode | None,
        Field(description=SEARCH["mode"]),
    ] = None
    match: Annotated[answers.Match | None, Field(description=SEARCH["match"])] = None
    case: Annotated[bool | None, Field(description=SEARCH["case"])] = None
    profile: str | None = None
    collections: Annotated[
        list[Name] | None, Field(min_length=1, max_length=50, description=SEARCH["collections"])
    ] = None
    exclude_collections: Annotated[
        list[Name] | None, Field(max_length=50, description=SEARCH["exclude_collections"])
    ] = None
    sources: Annotated[
        list[Name] | None, Field(min_length=1, max_length=100, description=SEARCH["sources"])
    ] = None
    exclude_sources: Annotated[
        list[Name] | None, Field(max_length=100, description=SEARCH["exclude_sources"])
    ] = None
    filter: dict[str, Any] | None = None
    detail: Annotated[
        answers.Detail | None,
        Field(description=SEARCH["detail"]),
    ] = None
    related: Annotated[str | None, Field(max_length=MAX_PATH_CHARS, description=SEARCH["related"])] = None
    context: Annotated[bool | None, Field(description=SEARCH["context"])] = None
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

    def request(self) -> answers.SearchRequest:
        """The library's request: the arguments of the same names, and joined hits."""
        values: dict[str, Any] = {"joined": True}
        for field in fields(answers.SearchRequest):
            if (value := getattr(self, field.name, None)) is not None:  # some fields are for programs only
                values[field.name] = tuple(value) if isinstance(value, list) else value
        return answers.SearchRequest(**values)


class GetSourceArguments(Arguments):
    """The arguments of `get_source`."""

    id: Annotated[str | None, Field(min_length=1, max_length=MAX_PATH_CHARS, description=SOURCE["id"])] = None
    start: Annotated[int | None, Field(ge=0, description=SOURCE["start"])] = None
    around: Annotated[
        int | None,
        Field(ge=0, le=50, description=SOURCE["around"]),
    ] = None
    section: Annotated[
        str | None, Field(min_length=1, max_length=MAX_HEADING_CHARS, description=SOURCE["section"])
    ] = None
    lines: Annotated[LinesText | None, Field(min_length=1, max_length=30, description=SOURCE["lines"])] = None
    outline: Annotated[bool | None, Field(description=SOURCE["outline"])] = None
    filter: Annotated[dict[str, Any] | None, Field(description=SOURCE["filter"])] = None
    sort: Annotated[Sort | None, Field(description=SOURCE["sort"])] = None
    after: Annotated[
        str | None, Field(min_length=1, max_length=MAX_PATH_CHARS, description=SOURCE["after"])
    ] = None
    picture: Annotated[bool | None, Field(description=PICTURE)] = None
    max_chars: MaxChars = None

    def part(self) -> answers.Part:
        """The requested part of the source.

        Raises:
            InvalidRequestError: `lines` is not a range of lines.
        """
        lines = line_range(self.lines) if self.lines is not None else None
        return answers.Part(self.start, self.around, self.section, lines, outline=bool(self.outline))

    def listing(self) -> Listing:
        """The list to return if the request isn't for a document."""
        return Listing(self.filter, self.sort, self.after)


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
