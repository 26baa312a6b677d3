"""A document's metadata as the fields that its collection declares."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

from rag.filters.parse import MAX_CHARS, MAX_INTEGER
from rag.ingest.parse.blocks import date

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rag.records import FieldType, Value

_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def declared_fields(
    metadata: Mapping[str, str], declared: Mapping[str, FieldType]
) -> tuple[dict[str, Value], list[str]]:
    """The declared fields that the metadata holds, and what is wrong with those that it holds wrongly.

    Example: {"year": "2024", "pages": "many"}, declared integer -> {"year": 2024}, ["pages is no integer"].
    """
    fields: dict[str, Value] = {}
    complaints = []
    for name, kind in declared.items():
        written = metadata.get(name, "").strip()
        if not written:
            continue
        value = _CONVERSIONS[kind](written)
        if value is None:
            complaints.append(f"{name} is no {kind}")
        else:
            fields[name] = value
    return fields, complaints


def _string(written: str) -> str | None:
    value = unicodedata.normalize("NFC", written)
    return value if len(value) <= MAX_CHARS else None


def _integer(written: str) -> int | None:
    try:
        value = int(written)
    except ValueError:
        return None
    return value if abs(value) <= MAX_INTEGER else None


def _number(written: str) -> float | None:
    try:
        value = float(written) + 0.0  # -0.0 is 0.0
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _boolean(written: str) -> bool | None:
    word = written.casefold()
    return True if word in _TRUE else False if word in _FALSE else None


def _strings(written: str) -> tuple[str, ...] | None:
    items = tuple(_string(item.strip()) for item in written.split(",") if item.strip())
    return None if None in items or not items else tuple(item for item in items if item)


_CONVERSIONS: dict[FieldType, Callable[[str], Value | None]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "datetime": date,
    "string list": _strings,
}
