"""A file beside a document that says what the document itself can't: `report.pdf.meta.toml`.

Its keys are metadata, as in the front matter of Markdown, and go before what the document says.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest import discover
from rag.ingest.parse import blocks
from rag.ingest.parse.front_matter import ACCESS_KEYS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.ingest.discover import Found
    from rag.records import Document

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
