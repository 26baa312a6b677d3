"""The arguments of `search` and `get_source`, read as hosts and models send them, by the types stated here.

Hosts and models deviate from the schema: numbers, lists and objects as JSON in a string, integers with a
point, an empty value for each argument that they don't need. A value with only one possible meaning, by the
argument's type, is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from copy import deepcopy
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import from_json

from rag.answers import MAX_LIMIT, MAX_QUERY_CHARS, Detail, Match, Mode, Part, SearchRequest
from rag.errors import InvalidRequestError
from rag.search.browse import Sort
from rag.search.source_window import LINES
from rag.uris import SCHEME, is_like_id

if TYPE_CHECKING:
    from pydantic import ValidationError

MOST_PROBLEMS = 10  # in the error about a call's arguments, in which a caller could make thousands
_WORDS_FOR_NOTHING = {"", "null", "none", "undefined"}
"""Strings that mean no value for a number, a boolean or an enum."""
_PAIR = re.compile(r"([\w.-]+)\s*=\s*+([\"']?)([^=]*[^=\s])\2")
"""With two equals signs it is several pairs, or a comparison."""
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
            return _object(value)
    # A list of one string for a string.
    values = value if schema.get("type") == "string" and isinstance(value, list) else [value]
    return values[0] if len(values) == 1 else value


def _unless_nothing(value: object) -> object:
    """The value of a JSON text; None for a word for nothing."""
    if isinstance(value, str) and value.strip().lower() in _WORDS_FOR_NOTHING:
        return None
    return decode_json(value)


def _object(value: object) -> object:
    """An object, also from JSON in a string, and from one pair as in the prompt `answer`: status=final."""
    decoded = decode_json(value)
    pair = _PAIR.fullmatch(decoded.strip()) if isinstance(decoded, str) else None
    return {pair[1]: pair[3]} if pair else decoded


def _string_list(value: object) -> object:
    """A list of strings, also from a single string, and from integers, because a name may look like one."""
    decoded = decode_json(value)
    if isinstance(value, str) and isinstance(decoded, bool | int | float):  # a name that looks like JSON
        decoded = value
    if isinstance(decoded, list | tuple):  # a program may pass a tuple
        return [str(item) if type(item) is int else item for item in decoded]
    if type(decoded) is int:
        return [str(decoded)]
    if not isinstance(decoded, str) or not decoded.strip():
        return decoded
    several = re.split(r"[,\n]\s*", decoded)
    return several if len(several) > 1 and all(map(is_like_id, several)) else [decoded]


def decode_json(value: object) -> object:
    """The value of a JSON text, also if it was encoded twice; any other value unchanged."""
    for _ in range(_ENCODED):
        if not isinstance(value, str):
            break
        # One with an apostrophe has the signs of JSON around it, or an escape, which stays as it is.
        as_python_writes = value.startswith(("[", "{")) and '"' not in value and "\\'" not in value
        try:
            value = from_json(value.replace("'", '"') if as_python_writes else value, allow_inf_nan=False)
        except (ValueError, TypeError):  # TypeError for a lone surrogate
            break
    return value


def _says_nothing(value: object) -> bool:
    """Whether a value is empty: null, an empty list or object, a blank string, a list of blank strings."""
    if isinstance(value, list):
        return all(isinstance(item, str) and not item.strip() for item in value)
    return value is None or value == {} or (isinstance(value, str) and not value.strip())


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
        case {"type": "array", "maxItems": high, "items": {"maxLength": longest}}:
            count = f"{'1 to' if 'minItems' in schema else 'at most'} {high}"
            return f"a list of {count} strings of at most {longest} characters"
        case {"minLength": low, "maxLength": high}:
            return f"a string of {low} to {high} characters"
    return f"{'an' if schema['type'][0] in 'aeiou' else 'a'} {schema['type']}"


def _number(schema: Mapping[str, Any]) -> str:
    kind = "an integer" if schema["type"] == "integer" else "a number"
    match schema:
        case {"minimum": low, "maximum": high}:
            return f"{kind} from {low} to {high}"
        case {"minimum": low}:
            return f"{kind} of at least {low}"
    return kind


QUERY = "The question, or words to find. Optional with related."
MODE = "dense: by meaning; sparse: by words; hybrid: both; exact: as written."
FILTER = 'Only what matches, like {"date": {"$gte": "2024-05-01"}, "path": {"$prefix": "hr/"}}.'
DETAIL = "The sentence that answers, the passage, or its section."
ID = "A result's id, source_id, id@revision/seq, path or title. Omit to list collections."
MAX_PATH_CHARS = 4_096  # as long as file systems allow
Name = Annotated[str, Field(max_length=MAX_PATH_CHARS)]
MAX_HEADING_CHARS = 500  # of a path of headings
_LINES = re.compile(r"\[?\s*[Ll]?([0-9]{1,9})(?:\s*[-–,:]\s*[Ll]?([0-9]{1,9}))?\s*\]?")


def _lines_text(value: object) -> object:
    """The text of lines that are numbers: 137 -> "137", [39, 53] -> "[39, 53]"."""
    return str(value) if isinstance(value, int | list) and not isinstance(value, bool) else value


def _collection_names(names: list[str]) -> list[str]:
    """Names as listings show them, and several in one string: ["Handbook/, notes"] -> ["handbook", "notes"].

    A collection's own name has lower-case letters, digits and hyphens only.
    """
    parts = [part for name in names for part in name.split(",") if part.strip()]
    # One that is nothing but such signs stays: an exclusion must not vanish.
    return [part.strip(" /`'\"[]").removeprefix(SCHEME).lower() or part for part in parts]


def _said(value: object) -> object:
    """None for a word for nothing, which some models send for an id that they don't have."""
    return None if isinstance(value, str) and value.strip().lower() in {*_WORDS_FOR_NOTHING, "n/a"} else value


CollectionNames: TypeAlias = Annotated[list[Name], AfterValidator(_collection_names)]
LinesText: TypeAlias = Annotated[str, BeforeValidator(_lines_text)]


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of all documents that match `filter`, sorted; without either, a folder. It begins at `after`."""

    filter: Mapping[str, object] | None = None
    sort: Sort | None = None
    after: str | None = None

    @property
    def is_of_documents(self) -> bool:
        """Whether all documents are listed, not a folder. Hosts send an empty filter when they mean none."""
        return bool(self.filter) or self.sort is not None


class SearchArguments(Arguments):
    """The arguments of `search`: `query`, `related` or both. None means the operator's default."""

    query: Annotated[str | None, Field(min_length=1, max_length=MAX_QUERY_CHARS, description=QUERY)] = None
    limit: Annotated[int | None, Field(ge=0, le=MAX_LIMIT, description="Maximum results.")] = None
    mode: Annotated[Mode | None, Field(description=MODE)] = None
    match: Annotated[Match | None, Field(description="For exact; regex is RE2.")] = None
    case: Annotated[bool | None, Field(description="For exact: letter case counts.")] = None
    profile: Annotated[str | None, Field(description="Retrieval profile.")] = None
    collections: Annotated[
        CollectionNames | None, Field(min_length=1, max_length=50, description="Only these.")
    ] = None
    exclude_collections: Annotated[
        CollectionNames | None, Field(max_length=50, description="All but these.")
    ] = None
    sources: Annotated[
        list[Name] | None,
        Field(min_length=1, max_length=100, description="Only these ids, paths or titles."),
    ] = None
    exclude_sources: Annotated[list[Name] | None, Field(max_length=100, description="All but these.")] = None
    filter: Annotated[dict[str, Any] | None, Field(description=FILTER)] = None
    detail: Annotated[Detail | None, Field(description=DETAIL)] = None
    related: Annotated[
        str | None,
        Field(max_length=MAX_PATH_CHARS, description="A result's id to start from."),
        BeforeValidator(_said),
    ] = None
    context: Annotated[bool | None, Field(description="Passages as one text with citations.")] = None

    def request(self) -> SearchRequest:
        """The library's request: the arguments of the same names, and joined hits."""
        values: dict[str, Any] = {"joined": True}
        for field in fields(SearchRequest):
            if (value := getattr(self, field.name, None)) is not None:  # some fields are for programs only
                values[field.name] = tuple(value) if isinstance(value, list) else value
        return SearchRequest(**values)


class SourceArguments(Arguments):
    """The arguments of `get_source`."""

    id: Annotated[str | None, Field(min_length=1, max_length=MAX_PATH_CHARS, description=ID)] = None
    start: Annotated[int | None, Field(ge=0, description="First character.")] = None
    around: Annotated[int | None, Field(ge=0, le=50, description="Chunks to each side.")] = None
    section: Annotated[
        str | None, Field(min_length=1, max_length=MAX_HEADING_CHARS, description="Its heading.")
    ] = None
    lines: Annotated[
        LinesText | None, Field(min_length=1, max_length=30, description="Lines, as 120-180.")
    ] = None
    outline: Annotated[bool | None, Field(description="Only headings.")] = None
    filter: Annotated[dict[str, Any] | None, Field(description="List what matches, as in search.")] = None
    sort: Annotated[Sort | None, Field(description="By path, title or date (newest first).")] = None
    after: Annotated[
        str | None, Field(min_length=1, max_length=MAX_PATH_CHARS, description="A list's next_after.")
    ] = None

    def part(self) -> Part:
        """The requested part of the source.

        Raises:
            InvalidRequestError: `lines` is not a range of lines.
        """
        lines = line_range(self.lines) if self.lines is not None else None
        return Part(self.start, self.around, self.section, lines, outline=bool(self.outline))

    def listing(self) -> Listing:
        """The list to return if the request isn't for a document."""
        return Listing(self.filter, self.sort, self.after)


def line_range(text: str) -> tuple[int, int]:
    """The first and the last line in what a caller wrote.

    Example: "120-180", "L120-L180", "120,180" and "[120, 180]" -> (120, 180), "7" -> (7, 7).

    Raises:
        InvalidRequestError: the text is not a line or a range of lines.
    """
    match = _LINES.fullmatch(text.strip())
    if not match:
        raise InvalidRequestError(LINES)
    return int(match[1]), int(match[2] or match[1])
