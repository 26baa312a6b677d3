"""A document's metadata as the fields that its collection declares.

A file beside a document that says what the document itself can't: `report.pdf.meta.toml`.

Its keys are metadata, as in the front matter of Markdown, and go before what the document says.
"""

from __future__ import annotations

import tomllib
import unicodedata
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.filters.parse import MAX_CHARS, MAX_INTEGER
from rag.ingest import discover
from rag.ingest.parse import blocks
from rag.ingest.parse.front_matter import ACCESS_KEYS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rag.corpus import Document, FieldType, Value
    from rag.ingest.discover import Found


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
    "datetime": blocks.date,
    "string list": _strings,
}


MAX_BYTES = 64_000


def read_sidecar(found: Found) -> bytes:
    """What is in the file beside it, empty where there is none.

    Raises:
        ParseError: there is one that can't be read; it may have meant to hide the document.
    """
    path = Path(f"{found.path}{discover.SIDECAR_SUFFIX}")
    try:
        return discover.read_if_there(path, MAX_BYTES) or b""
    except ParseError as error:
        raise ParseError(f"its {path.name}: {error}") from error


def described(document: Document, sidecar: bytes) -> Document:
    """The document with what its sidecar says of it.

    Raises:
        ParseError: the sidecar can't be understood.
    """
    if not sidecar:
        return document
    said = _entries(sidecar)
    day = blocks.date(said.get("date", ""))
    known = {"title", "date"} if day else {"title"}
    # Who may see it is said in one place: the two are not mixed.
    replaced = ACCESS_KEYS if not ACCESS_KEYS.isdisjoint(map(str.casefold, said)) else frozenset[str]()
    before = {key: value for key, value in document.metadata.items() if key.casefold() not in replaced}
    return replace(
        document,
        title=blocks.one_line(said.get("title", "")) or document.title,
        date=day or document.date,
        metadata=before | {key: value for key, value in said.items() if key not in known},
    )


def _entries(sidecar: bytes) -> Mapping[str, str]:
    try:
        said = tomllib.loads(sidecar.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ParseError(f"its {discover.SIDECAR_SUFFIX} file is not valid TOML: {error}") from error
    entries = {blocks.clean(key): blocks.clean(_written(key, value)) for key, value in said.items()}
    if len(entries) < len(said):
        raise ParseError(f"its {discover.SIDECAR_SUFFIX} file: two of its keys look the same")
    return entries


def _written(key: str, value: object) -> str:
    """A value as front matter would have it."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value.strip()
        case int() | float():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case list() if not any(isinstance(one, list | dict) or "," in str(one) for one in value):
            return ", ".join(_written(key, one) for one in value)
    raise ParseError(
        f"its {discover.SIDECAR_SUFFIX} file: {key} is no plain value, nor a list without commas"
    )
