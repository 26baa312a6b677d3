"""The tools as they are called: who may call which, what each can reach, and what arguments it takes.

A tool's binding becomes one of the caller's bindings, so nothing behind the tool can escape it. Resources and
completions belong to no tool: there a caller reaches what any of its tools may show.

Hosts and models deviate from the schema: numbers, lists and objects as JSON in a string, integers with a
point, an empty value for each argument that they don't need. A value with only one possible meaning, by the
argument's type, is accepted.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import from_json

from rag import answers
from rag.access.rule import bounds
from rag.config.profiles import Candidates, FusionMethod, Overridable, Share
from rag.config.server_settings import ServerSettings, ToolSettings
from rag.config.settings import Settings
from rag.corpus import Binding, Distance, Principal
from rag.errors import ConfigurationError, InvalidRequestError
from rag.search.agents import SEARCH, SOURCE, Listing, line_range
from rag.search.browse import Sort
from rag.search.search_plan import LIMITS, SearchPlan, make_plan

if TYPE_CHECKING:
    from pydantic import ValidationError


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


MOST_PROBLEMS = 10  # in the error about a call's arguments, in which a caller could make thousands
_WORDS_FOR_NOTHING = {"", "null", "none", "undefined"}
"""Strings that mean no value for a number, a boolean or an enum."""
_ENCODED = 3  # levels of JSON in a string that are decoded; some hosts encode twice


class Arguments(BaseModel):
    """The arguments of a tool. Empty values count as left out, unless the argument is required."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _as_meant(cls, sent: dict[str, Any]) -> dict[str, Any]:
        schema = _cached_schema(cls)
        types, needed = schema["properties"], schema.get("required", ())
        read = {name: _meant(value, types.get(name, {})) for name, value in sent.items()}
        return {
            name: value
            for name, value in read.items()
            if name in needed or name not in types or not _says_nothing(value)
        }


def _meant(value: object, schema: Mapping[str, Any]) -> object:
    """A value converted to the type of its schema if its meaning is clear, otherwise unchanged.

    Example: "8.0" as an integer -> 8; "[5]" or 5 as a list of strings -> ["5"]; "Exact" as a mode -> "exact".
    """
    match schema:
        case {"enum": names}:
            folded = value.strip().lower() if isinstance(value, str) else value
            return folded if folded in names else _unless_nothing(value)
        case {"type": "integer" | "number"}:
            number = _unless_nothing(value)
            return int(number) if isinstance(number, float) and number.is_integer() else number
        case {"type": "boolean"}:
            return _unless_nothing(value.lower() if isinstance(value, str) else value)
        case {"type": "array"}:
            return _string_list(value)
        case {"type": "object"}:
            return decode_json(value)
    return value


def _unless_nothing(value: object) -> object:
    """The value of a JSON text; None for a word for nothing."""
    if isinstance(value, str) and value.strip().lower() in _WORDS_FOR_NOTHING:
        return None
    return decode_json(value)


def _string_list(value: object) -> object:
    """A list of strings, also from a single string, and from integers, because a name may look like one."""
    decoded = decode_json(value)
    if isinstance(value, str) and isinstance(decoded, bool | int | float):  # a name that looks like JSON
        decoded = value
    if isinstance(decoded, list):
        return [str(item) if type(item) is int else item for item in decoded]
    if type(decoded) is int:
        return [str(decoded)]
    return [decoded] if isinstance(decoded, str) and decoded.strip() else decoded


def decode_json(value: object) -> object:
    """The value of a JSON text, also if it was encoded twice; any other value unchanged."""
    for _ in range(_ENCODED):
        if not isinstance(value, str):
            break
        try:
            value = from_json(value, allow_inf_nan=False)
        except (ValueError, TypeError):  # TypeError for a lone surrogate
            break
    return value


def _says_nothing(value: object) -> bool:
    """Whether a value is empty: null, an empty list or object, a blank string, a list of blank strings."""
    if isinstance(value, str):
        return not value.strip()
    blank_items = isinstance(value, list) and all(
        isinstance(item, str) and not item.strip() for item in value
    )
    return value is None or value == {} or blank_items


def compact_schema(model: type[BaseModel]) -> dict[str, Any]:
    """A copy of a model's schema, without what its names already say."""
    return deepcopy(_cached_schema(model))


@cache
def _cached_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Cached: generating a schema takes longer than the rest of `tools/list`."""
    schema: dict[str, Any] = _compact(model.model_json_schema())
    return schema


def _compact(schema: Any) -> Any:  # noqa: ANN401 any JSON
    """A schema without titles, null branches and null defaults."""
    if isinstance(schema, list):
        return [_compact(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "anyOf" in schema:  # T or null: leaving the argument out means null already
        (schema,) = [schema | branch for branch in schema["anyOf"] if branch != {"type": "null"}]
    dropped = {"title", "anyOf"} | ({"description"} if "properties" in schema else set())
    dropped |= {"default"} if schema.get("default", "") is None or "const" in schema else set()
    keywords = {key: value for key, value in schema.items() if key not in dropped}
    return {key: _compact_properties(key, value) for key, value in keywords.items()}


def _compact_properties(key: str, value: Any) -> Any:  # noqa: ANN401 any JSON
    if key in {"properties", "$defs"}:  # their keys are names, not keywords
        return {name: _compact(schema) for name, schema in value.items()}
    return _compact(value)


THRESHOLDS_DESCRIPTION = "Leave out passages that are too far: " + ", ".join(LIMITS) + "."
STAGES_DESCRIPTION = """\
Other stages than the profile's, for example {"of": "fresh", "without": ["dedupe"], "neighbors": 2}: those \
of another profile, or all but some, with this number of chunks before and after each result.\
"""
PICTURE = "Also the page, as an image."
MAX_PATH_CHARS = 4_096  # as long as file systems allow
MAX_HEADING_CHARS = 500  # of a path of headings

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
        list[str] | None, Field(min_length=1, max_length=50, description=SEARCH["collections"])
    ] = None
    exclude_collections: Annotated[
        list[str] | None, Field(max_length=50, description=SEARCH["exclude_collections"])
    ] = None
    sources: Annotated[
        list[str] | None, Field(min_length=1, max_length=100, description=SEARCH["sources"])
    ] = None
    exclude_sources: Annotated[
        list[str] | None, Field(max_length=100, description=SEARCH["exclude_sources"])
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
    lines: Annotated[str | None, Field(min_length=1, max_length=30, description=SOURCE["lines"])] = None
    outline: Annotated[bool | None, Field(description=SOURCE["outline"])] = None
    filter: Annotated[dict[str, Any] | None, Field(description=SOURCE["filter"])] = None
    sort: Annotated[Sort | None, Field(description=SOURCE["sort"])] = None
    after: Annotated[
        str | None, Field(min_length=1, max_length=MAX_PATH_CHARS, description=SOURCE["after"])
    ] = None
    picture: Annotated[bool | None, Field(description=PICTURE)] = None
    max_chars: MaxChars = None

    @field_validator("lines", mode="before")
    @classmethod
    def _one_line(cls, value: object) -> object:
        """Accept 137 for "137": some models write a single line as a number."""
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

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


def arguments_not_offered(settings: Settings, tool: ToolSettings, principal: Principal) -> set[str]:
    """The arguments of a search tool that the operator fixed, withheld or didn't enable, and void ones."""
    bound = bounds(principal.bindings)
    offered = {
        "profile": bool(settings.server.profiles) and not bound.profiles,
        "explain": settings.server.explain,
        "collections": bound.collections is None or len(bound.collections) > 1,
    }
    return (
        fixed_arguments(settings, tool, principal)
        | withheld_arguments(tool)
        | {name for name, is_offered in offered.items() if not is_offered}
    )


def fixed_arguments(settings: Settings, tool: ToolSettings, principal: Principal) -> set[str]:
    """The arguments whose values no request may choose."""
    usual = usual_plan(settings, tool, principal)
    names = {*get_args(Overridable)} - {*usual.overrides}
    return names | OF_EXACT if "mode" in names and usual.mode != "exact" else names


def withheld_arguments(tool: ToolSettings) -> set[str]:
    """The arguments that the tool doesn't offer, although the other settings allow them."""
    if tool.arguments is None:
        return set()
    return {*SearchArguments.model_fields} - {"query", *tool.arguments}


def argument_error(
    error: ValidationError, model: type[BaseModel], hidden: Container[str] = ()
) -> InvalidRequestError:
    """An error that says what is wrong with a tool's arguments and what is valid. It never echoes a value.

    `hidden` are arguments that are not offered, so they aren't suggested.
    """
    properties = {
        name: property_schema
        for name, property_schema in compact_schema(model)["properties"].items()
        if name not in hidden
    }
    faults = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_PROBLEMS]
    problems = [_problem(str(details["loc"][0]), details["type"], properties) for details in faults]
    return InvalidRequestError(" ".join(dict.fromkeys(problems)))


def _problem(name: str, kind: str, properties: Mapping[str, Any]) -> str:
    if name not in properties:
        near = get_close_matches(name[:64].lower(), properties, n=1, cutoff=0.7)
        suggestion = f" Did you mean {near[0]}?" if near else ""
        return f"Unknown argument {name[:64]!r}.{suggestion} Valid arguments: {', '.join(properties)}."
    if kind == "missing":
        return f"The argument {name} is missing. It must be {_allowed_words(properties[name])}."
    return f"{name} must be {_allowed_words(properties[name])}."


def _allowed_words(schema: Mapping[str, Any]) -> str:
    """A property's schema in words: {"type": "integer", "minimum": 0} -> "an integer of at least 0"."""
    match schema:
        case {"enum": values}:
            return f"one of {', '.join(values)}"
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer" | "number"}:
            return _number(schema)
        case {"type": "array", "maxItems": high}:
            return f"a list of {'1 to' if 'minItems' in schema else 'at most'} {high} strings"
        case {"minLength": low, "maxLength": high}:
            return f"a string of {low} to {high} characters"
    return f"{'an' if schema['type'][0] in 'aeiou' else 'a'} {schema['type']}"


def _number(schema: Mapping[str, Any]) -> str:
    kind = "an integer" if schema["type"] == "integer" else "a number"
    if "maximum" in schema:
        return f"{kind} from {schema['minimum']} to {schema['maximum']}"
    return f"{kind} of at least {schema['minimum']}"
