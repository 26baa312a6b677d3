"""The argument `filter` as a host sees it: what every document has, and the fields that collections declare.

As a typed schema where there is room for it, otherwise in words. Property names beginning with $ are not
declared in either, because some model providers refuse them, so the operators stand in the description.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rag.search.reply.overview import shown_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rag.corpus import FieldType
    from rag.search.overview import FieldValues, Holding

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


def filter_schema(overview: Sequence[Holding], room: int, *, values: bool) -> dict[str, Any]:
    """The argument's schema, within `room` bytes of compact JSON if it has types, which is better.

    With `values`, the schema enumerates those of a field if they are few and all of them can be shown.
    """
    fields = _typed(overview, values=values)
    if not fields:
        return {"type": "object", "description": FILTER_DESCRIPTION}
    typed = {"type": "object", "description": FILTER_DESCRIPTION, "properties": fields}
    if len(json.dumps(typed, separators=(",", ":"))) <= room:
        return typed
    return {"type": "object", "description": f"{FILTER_DESCRIPTION}; {_in_words(overview)}"}


def _typed(overview: Sequence[Holding], *, values: bool) -> dict[str, Any]:
    """Each field: a value of its type in some collection, or an object of operators."""
    declared: dict[str, list[dict[str, Any]]] = {}
    for holding in overview:
        for name, kind in holding.collection.fields.items():
            one = dict(_JSON_TYPES[kind])
            alternatives = declared.setdefault(name, [])
            if one not in alternatives:
                alternatives.append(one)
    for name, alternatives in declared.items():
        found = [one.fields[name] for one in overview if name in one.fields]
        if values and len(alternatives) == 1 and (few := _all_of(found)):
            alternatives[0]["enum"] = few
    return {name: {"anyOf": [*alternatives, {"type": "object"}]} for name, alternatives in declared.items()}


def _all_of(found: Sequence[FieldValues]) -> list[str | float]:
    """All values of a field, sorted, if each one can be shown; none if there are more. Not those of dates."""
    shown = [[value for value, _ in shown_values(one)] for one in found]
    if any(len(few) != one.distinct for few, one in zip(shown, found, strict=True)):
        return []
    return sorted({value for few in shown for value in few if not isinstance(value, bool | datetime)})


def _in_words(overview: Sequence[Holding]) -> str:
    """The fields with their types: once if all collections share them, otherwise by collection."""
    declared = {
        one.collection.name: _listed(one.collection.fields) for one in overview if one.collection.fields
    }
    if len(declared) == len(overview) and len(set(declared.values())) == 1:
        return _shortened(declared.popitem()[1])
    return _shortened("; ".join(f"in {name}: {fields}" for name, fields in declared.items()))


def _listed(fields: Mapping[str, FieldType]) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in fields.items())


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_FIELDS_CHARS else f"{text[:MAX_FIELDS_CHARS].rpartition(', ')[0]}, …"
