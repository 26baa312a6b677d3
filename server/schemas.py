"""JSON Schemas of tools, how arguments are read by them, and what is wrong with arguments that don't fit.

Every byte of a schema is part of each conversation. So a reply's schema says which fields there are, and of
what type unless they are strings, and leaves to the descriptions what they mean.

Hosts and models send what the schema doesn't say: numbers, lists and objects as JSON in a string, numbers
with a point, an empty value for each argument that they don't need. Whatever can be meant in one way only is
taken so, by the argument's type.

The schema of the argument `filter` depends on the declared fields of the collections that the caller reads.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from copy import deepcopy
from datetime import datetime
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import from_json

from rag.corpus import FieldType
from rag.errors import InvalidRequestError
from rag.search.readable_overview import CollectionOverview, FieldValues, plain_values

if TYPE_CHECKING:
    from pydantic import ValidationError


MOST_PROBLEMS = 10
"""Told of a call's arguments at once: a caller could make thousands."""
LISTED_RECORDS = {"HitRecord"}
"""The records within replies whose fields a schema lists. Descriptions explain the others."""
_CHECKED_BY_US = {"minLength", "minItems", "maxLength", "maxItems"}
"""What the server checks and its errors say. No model counts characters, and few lists are that long."""

_WORDS_FOR_NOTHING = {"", "null", "none", "undefined"}
"""What stands for no value in a string where a number, true or false, or a name of a few is wanted."""
_ENCODED = 3  # times that a value may be JSON in a string; some hosts encode twice


class Arguments(BaseModel):
    """The arguments of a tool. Those that say nothing count as left out, unless the tool needs them."""

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
    """A value as its schema has it if it can be meant so, else as it is.

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
    """What a JSON text stands for; None for a word for nothing."""
    if isinstance(value, str) and value.strip().lower() in _WORDS_FOR_NOTHING:
        return None
    return decode_json(value)


def _string_list(value: object) -> object:
    """A list of strings: of a single one, too, and of whole numbers, since a name may look like one."""
    read = decode_json(value)
    if isinstance(value, str) and isinstance(read, bool | int | float):  # a name that looks like JSON
        read = value
    if isinstance(read, list):
        return [str(item) if type(item) is int else item for item in read]
    if type(read) is int:
        return [str(read)]
    return [read] if isinstance(read, str) and read.strip() else read


def decode_json(value: object) -> object:
    """What a JSON text stands for, also if it was encoded twice; anything else as it is."""
    for _ in range(_ENCODED):
        if not isinstance(value, str):
            break
        try:
            value = from_json(value, allow_inf_nan=False)
        except (ValueError, TypeError):  # the latter if it has a lone surrogate
            break
    return value


def _says_nothing(value: object) -> bool:
    """Whether a value stands for none: null, an empty list or object, a blank string, a list of these."""
    if isinstance(value, str):
        return not value.strip()
    blank_items = isinstance(value, list) and all(
        isinstance(item, str) and not item.strip() for item in value
    )
    return value is None or value == {} or blank_items


def argument_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's arguments, as a copy that the caller may change."""
    schema = _schema(model)
    for property_schema in schema["properties"].values():
        for keyword in _CHECKED_BY_US & property_schema.keys():
            del property_schema[keyword]
        if property_schema.get("additionalProperties") is True:  # as it is without a word
            del property_schema["additionalProperties"]
    return schema


def reply_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's replies, as a copy that the caller may change.

    It stays valid when fields are added: nothing is required or forbidden.
    """
    schema = _schema(model)
    records = schema.pop("$defs", {})
    opened: dict[str, Any] = _open(schema, {name: records[name] for name in LISTED_RECORDS & records.keys()})
    return opened


def _schema(model: type[BaseModel]) -> dict[str, Any]:
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


def _open(schema: Any, records: Mapping[str, Any]) -> Any:  # noqa: ANN401 any JSON
    """A schema with these records in place of their references, in which nothing is required or forbidden."""
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _open(records.get(schema["$ref"].rpartition("/")[2], {"type": "object"}), records)
    dropped = {"additionalProperties", "required"}
    if schema.get("type") == "string":
        dropped.add("type")
    if "items" in schema and not _is_listed(schema["items"], records):
        dropped.add("items")
    return {key: _open(value, records) for key, value in schema.items() if key not in dropped}


def _is_listed(schema: Mapping[str, Any], records: Mapping[str, Any]) -> bool:
    return schema.get("$ref", "").rpartition("/")[2] in records


def argument_error(
    error: ValidationError, model: type[BaseModel], hidden: Container[str] = ()
) -> InvalidRequestError:
    """What is wrong with a tool's arguments and what is valid. It never echoes a value.

    `hidden` are arguments that are not offered, so that none of them is suggested.
    """
    properties = {
        name: property_schema
        for name, property_schema in _schema(model)["properties"].items()
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


# The argument `filter` as a host sees it: what every document has, and the fields that collections declare.
#
# As a typed schema where there is room for it, otherwise in words. Property names beginning with $ are not
# declared in either, because some model providers refuse them, so the operators stand in the description.

FILTER_DESCRIPTION = """\
Like {"date": {"$gte": "2024-05-01"}}; $eq $ne $gt $gte $lt $lte $in $nin $exists $prefix $contains $and $or \
$not. Fields: date, path, title, section\
"""
MAX_FIELDS_CHARS = 800  # the error for an unknown field lists all of them
_JSON_TYPES: Mapping[FieldType, Mapping[str, str]] = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "datetime": {"type": "string", "description": "a date like 2024-05-01"},
    "string list": {"type": "string", "description": "one of a list"},
}


def filter_schema(overview: Sequence[CollectionOverview], room: int, *, values: bool) -> dict[str, Any]:
    """The argument's schema, within `room` bytes of compact JSON if it has types, which is better.

    With `values`, the schema enumerates a field's values if they are few and all of them can be shown.
    """
    fields = _field_schemas(overview, values=values)
    if not fields:
        return {"type": "object", "description": FILTER_DESCRIPTION}
    typed = {"type": "object", "description": FILTER_DESCRIPTION, "properties": fields}
    if len(json.dumps(typed, separators=(",", ":"))) <= room:
        return typed
    return {"type": "object", "description": f"{FILTER_DESCRIPTION}; {_fields_in_words(overview)}"}


def _field_schemas(overview: Sequence[CollectionOverview], *, values: bool) -> dict[str, Any]:
    """Each field: a value of its type in some collection, or an object of operators."""
    declared: dict[str, list[dict[str, Any]]] = {}
    for summary in overview:
        for name, kind in summary.collection.fields.items():
            type_schema = dict(_JSON_TYPES[kind])
            alternatives = declared.setdefault(name, [])
            if type_schema not in alternatives:
                alternatives.append(type_schema)
    for name, alternatives in declared.items():
        of_field = [summary.fields[name] for summary in overview if name in summary.fields]
        if values and len(alternatives) == 1 and (enum := _all_values(of_field)):
            alternatives[0]["enum"] = enum
    return {name: {"anyOf": [*alternatives, {"type": "object"}]} for name, alternatives in declared.items()}


def _all_values(of_field: Sequence[FieldValues]) -> list[str | float]:
    """All values of a field, sorted; empty if one can't be shown, if there are too many, or for dates."""
    plain = [[value for value, _ in plain_values(field_values)] for field_values in of_field]
    if any(
        len(values) != field_values.distinct for values, field_values in zip(plain, of_field, strict=True)
    ):
        return []
    return sorted({value for values in plain for value in values if not isinstance(value, bool | datetime)})


def _fields_in_words(overview: Sequence[CollectionOverview]) -> str:
    """The fields with their types: once if all collections share them, otherwise by collection."""
    declared = {
        summary.collection.name: _field_list(summary.collection.fields)
        for summary in overview
        if summary.collection.fields
    }
    if len(declared) == len(overview) and len(set(declared.values())) == 1:
        return _short_words(declared.popitem()[1])
    return _short_words("; ".join(f"in {name}: {fields}" for name, fields in declared.items()))


def _field_list(fields: Mapping[str, FieldType]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in fields.items())


def _short_words(text: str) -> str:
    return text if len(text) <= MAX_FIELDS_CHARS else f"{text[:MAX_FIELDS_CHARS].rpartition(', ')[0]}, …"
