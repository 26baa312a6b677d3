"""A document's metadata: from a sidecar file, and as the fields that its collection declares.

The sidecar `report.pdf.meta.toml` describes `report.pdf`, which can't hold metadata like the front matter of
Markdown. Its keys override the document's.

When a collection with documents declares new fields, their values come from each source's stored metadata,
converted as in an ingestion.
"""

from __future__ import annotations

import tomllib
import unicodedata
from collections.abc import Callable, Mapping
from collections.abc import Collection as Names
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from pathlib import Path
from types import MappingProxyType

from rag.corpus import Collection, Document, FieldType, Source, Value
from rag.errors import ConfigurationError, ParseError
from rag.filters.grammar import MAX_CHARS, MAX_INTEGER
from rag.home import Home
from rag.ingest.parse import document_parts
from rag.ingest.parse.decode import unicode_text
from rag.ingest.parse.document_parts import SHARED
from rag.ingest.parse.front_matter import ACCESS_KEYS, items_of, listed
from rag.ingest.parse.markdown import MIME_TYPE as MARKDOWN
from rag.ingest.parse.parsers import LEFT_OUT
from rag.ingest.source_files import LocalFile, read_if_there
from rag.originals import EXPIRES, SIDECAR_BYTES, SIDECAR_SUFFIX
from rag.store.write.change_collection import change_collection, open_writer
from rag.uris import web_address

_EXPECTED: dict[FieldType, str] = {
    "string": f"a string of at most {MAX_CHARS} characters",
    "integer": "an integer",
    "number": "a number",
    "boolean": "a boolean",
    "datetime": "a date",
    "string list": f"a list of strings of at most {MAX_CHARS} characters",
}
_OF_OUR_OWN = ACCESS_KEYS | {EXPIRES, LEFT_OUT, "title", "date", "url", "language", "encoding", "path"}
"""Names with a meaning of their own, which needs no declaration."""
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def declared_fields(
    metadata: Mapping[str, str], declared: Mapping[str, FieldType]
) -> tuple[dict[str, Value], list[str]]:
    """The declared fields in the metadata, and complaints about values that don't have the declared type.

    Example: {"year": "2024", "pages": "a"}, both integer -> {"year": 2024}, ["pages is not an integer"].
    """
    fields: dict[str, Value] = {}
    complaints = []
    for name, kind in declared.items():
        text = metadata.get(name, "").strip()
        if not text:
            if any(key.startswith(f"{name}.") for key in metadata):
                complaints.append(f"{name} is a mapping, not {_EXPECTED[kind]}")
            continue
        value = _CONVERSIONS[kind](text)
        if value is None:
            complaints.append(f"{name} is not {_EXPECTED[kind]}")
        else:
            fields[name] = value
    return fields, complaints


def undeclared_names(
    document: Document, sidecar: bytes, declared: Mapping[str, FieldType]
) -> tuple[str, ...]:
    """The names in front matter and sidecar that searches can't filter by, because no field is declared.

    Raises:
        ParseError: the sidecar is not valid.
    """
    names = {*(_entries(sidecar) if sidecar else ())}
    if document.mime_type == MARKDOWN:
        names |= document.metadata.keys() - SHARED  # those come with every format
    return tuple(sorted(name for name in names - declared.keys() if name.casefold() not in _OF_OUR_OWN))


def _string(text: str) -> str | None:
    value = unicodedata.normalize("NFC", text)
    return value if len(value) <= MAX_CHARS else None


def _integer(text: str) -> int | None:
    try:
        value = int(text)
    except ValueError:
        return None
    return value if abs(value) <= MAX_INTEGER else None


def _number(text: str) -> float | None:
    try:
        value = float(text) + 0.0  # -0.0 is 0.0
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


def _boolean(text: str) -> bool | None:
    word = text.casefold()
    return True if word in _TRUE else False if word in _FALSE else None


def _strings(text: str) -> tuple[str, ...] | None:
    items = tuple(map(_string, items_of(text)))
    return None if None in items or not items else tuple(item for item in items if item)


_CONVERSIONS: dict[FieldType, Callable[[str], Value | None]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "datetime": document_parts.date,
    "string list": _strings,
}


_NOTHING: Mapping[str, str] = MappingProxyType({})
MAX_DOTS = 1_000  # in a line of a sidecar: a key with 31,000 parts took 4 GB
NO_ADDRESS = "its url is not an http or https address"
UNCLEAR_DATE = "its date isn't clear: {}; write it like 2024-05-31"


def read_sidecar(file: LocalFile) -> bytes:
    """The content of a document's sidecar, empty if it has none.

    Raises:
        ParseError: it has one that can't be read. It may restrict the document, so the document is skipped.
    """
    path = Path(f"{file.read_from}{SIDECAR_SUFFIX}")
    try:
        return read_if_there(path, SIDECAR_BYTES) or b""
    except ParseError as error:
        reason = f"its {file.path.name}{SIDECAR_SUFFIX}: {error}"
        raise ParseError(reason, error.cause) from error


def access_requested(file: LocalFile) -> dict[str, str]:
    """What a sidecar, or else the container or origin, requests for a document and its parts.

    That is their access, and when they expire.

    Raises:
        ParseError: the sidecar can't be read.
    """
    sidecar = read_sidecar(file)
    stated = (_entries(sidecar) if sidecar else _NOTHING, file.stated)
    requested: dict[str, str] = {}
    for keys in (ACCESS_KEYS, {EXPIRES}):
        requests = (
            {key: text for key, text in entries.items() if key.casefold() in keys} for entries in stated
        )
        requested |= next(filter(None, requests), {})
    return requested


def with_stated_metadata(
    document: Document, sidecar: bytes, stated: Mapping[str, str] = _NOTHING
) -> Document:
    """The document with the metadata of its sidecar and container, and with the address in its `url` key.

    Its sidecar goes before what its container or origin states (`LocalFile.stated`), and that before its own
    metadata.

    Raises:
        ParseError: the sidecar is not valid.
    """
    for entries in (stated, _entries(sidecar) if sidecar else _NOTHING):
        document = _with_entries(document, entries) if entries else document
    stated_date = document.metadata.get("date", "")
    if stated_date and document.date is None:
        unclear = UNCLEAR_DATE.format(document_parts.title_line(stated_date))
        document = replace(document, remarks=(*document.remarks, unclear))
    return _with_address(document)


def _with_address(document: Document) -> Document:
    address = document.metadata.get("url", "")
    if not address:
        return document
    if (url := web_address(address)) is None:
        return replace(document, remarks=(*document.remarks, NO_ADDRESS))
    return replace(
        document, url=url, metadata={key: value for key, value in document.metadata.items() if key != "url"}
    )


def _with_entries(document: Document, entries: Mapping[str, str]) -> Document:
    day = document_parts.date(entries.get("date", ""))
    built_in = {"title", "date"} if day else {"title"}
    # The access comes from one of both as a whole: two halves of it could add up to more than either.
    replaced = ACCESS_KEYS if not ACCESS_KEYS.isdisjoint(map(str.casefold, entries)) else frozenset[str]()
    before = {key: value for key, value in document.metadata.items() if key.casefold() not in replaced}
    return replace(
        document,
        title=document_parts.title_line(entries.get("title", "")) or document.title,
        date=day or document.date,
        metadata=before | {key: value for key, value in entries.items() if key not in built_in},
    )


def _entries(sidecar: bytes) -> Mapping[str, str]:
    try:
        text = unicode_text(sidecar)
    except ParseError as error:
        raise ParseError(f"its {SIDECAR_SUFFIX} file: {error}", error.cause) from error
    if any(line.count(".") > MAX_DOTS for line in text.split("\n")):
        raise ParseError(f"its {SIDECAR_SUFFIX} file has over {MAX_DOTS} dots in a line")
    try:
        parsed = tomllib.loads(text)
        texts = {key: plain_text(value) for key, value in parsed.items()}
    except (ValueError, RecursionError) as error:  # also of a number with thousands of digits
        raise ParseError(f"its {SIDECAR_SUFFIX} file is not valid TOML: {error}") from error
    for key, value in texts.items():
        if value is None:
            reason = f"{key} must be a plain value, or a list of plain values"
            raise ParseError(f"its {SIDECAR_SUFFIX} file: {reason}")
    entries = {document_parts.clean(key): document_parts.clean(value or "") for key, value in texts.items()}
    if len(entries) < len(parsed):
        raise ParseError(f"its {SIDECAR_SUFFIX} file: two of its keys look the same")
    return entries


def plain_text(value: object) -> str | None:
    """A value of TOML or JSON as front matter writes it; None for a mapping or a nested list."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str() | int() | float():
            return str(value).strip()
        case datetime() | date() | time():
            return value.isoformat()
        case list() if not any(isinstance(member, list | dict) for member in value):
            return listed(plain_text(member) or "" for member in value)
    return None


MAX_FIELDS = 32  # of a collection


@dataclass(frozen=True, slots=True)
class Declared:
    """The changed collection. `filled` counts the sources with a value, for each new field.

    `complaints` are pairs of a source's path and a value that doesn't have the declared type.
    """

    collection: Collection
    filled: Mapping[str, int]
    complaints: tuple[tuple[str, str], ...]


async def declare(
    data: Home, collection: Collection, fields: Mapping[str, FieldType], removed: Names[str] = ()
) -> Declared:
    """Declare new fields of a collection, and drop the `removed` ones.

    Raises:
        BusyError: another process is writing to the collection.
        ConfigurationError: a new field is already declared, or a removed one is not.
        StoreError: the storage failed. The fields declared before are still declared.
    """
    filled = dict.fromkeys(fields, 0)
    complaints: list[tuple[str, str]] = []

    def values(source: Source) -> Mapping[str, Value]:
        values, wrong = declared_fields(_metadata(source), fields)
        for name in values:
            filled[name] += 1
        path = source.metadata.get("path", source.uri)
        complaints.extend((path, complaint) for complaint in wrong)
        return values

    async with open_writer(data, collection) as writer:
        check_fields(writer.collection, fields, removed)  # again: another command may have declared one
        remaining_fields = {
            name: kind for name, kind in writer.collection.fields.items() if name not in removed
        }
        # Filters use declared fields alone, so a field is dropped before its column and declared after it.
        changed_collection = await _changed(data, collection, remaining_fields)
        await writer.drop_fields(removed)
        if fields:
            await writer.add_fields(fields, values)
        await writer.finish()
        if fields:
            changed_collection = await _changed(data, collection, remaining_fields | dict(fields))
    return Declared(changed_collection, filled, tuple(sorted(complaints)))


def check_fields(collection: Collection, fields: Mapping[str, FieldType], removed: Names[str]) -> None:
    """Check a change of declared fields.

    Raises:
        ConfigurationError: the collection declares a new field, lacks a removed one, or has too many.
    """
    unknown = next((name for name in removed if name not in collection.fields), None)
    if unknown is not None:
        declared = ", ".join(collection.fields) or "none"
        raise ConfigurationError(
            f"The collection {collection.name!r} declares no field {unknown!r}; it declares: {declared}."
        )
    for name in fields:
        if name in collection.fields and name not in removed:
            raise ConfigurationError(
                f"The collection {collection.name!r} declares {name} already, as {collection.fields[name]}. "
                f"To change its type, add --no-field {name}."
            )
    if len(collection.fields) - len({*removed}) + len(fields) > MAX_FIELDS:
        raise ConfigurationError(f"A collection has at most {MAX_FIELDS} fields.")


async def _changed(data: Home, collection: Collection, fields: Mapping[str, FieldType]) -> Collection:
    def changed(current: Collection) -> Collection:
        return replace(current, fields=dict(fields))

    return await change_collection(data, collection.tenant, collection.name, changed)


def _metadata(source: Source) -> dict[str, str]:
    """The metadata as an ingestion sees it, without the path that refdesk adds."""
    stored = {key: value for key, value in source.metadata.items() if key != "path"}
    stated = {"url": source.url, "date": source.date and source.date.isoformat()}
    return {"title": source.title, **stored, **{key: value for key, value in stated.items() if value}}
