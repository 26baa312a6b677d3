"""The arguments of a tool as hosts and models send them, read by the types that the tool states.

Hosts and models deviate from the schema: numbers, lists and objects as JSON in a string, integers with a
point, an empty value for each argument that they don't need. A value with only one possible meaning, by the
argument's type, is accepted.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from copy import deepcopy
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import from_json

from rag.errors import InvalidRequestError

if TYPE_CHECKING:
    from pydantic import ValidationError

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
    if isinstance(decoded, list | tuple):  # a program may pass a tuple
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
