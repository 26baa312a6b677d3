"""JSON and JSON lines. Records, also those of CSV, become readable lines, one block each."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING

from rag.corpus import Block, Document
from rag.errors import ParseError
from rag.ingest.parse import json_feed
from rag.ingest.parse.blocks import clean
from rag.ingest.parse.chats import chat_document
from rag.ingest.parse.source_code import code_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


SUFFIXES = (".json",)
LINES_SUFFIXES = (".jsonl", ".ndjson")

_READABLE = 200  # characters per line on average; JSON with longer lines was not written to be read


def parse(text: str, name: str) -> Document:
    """The document of a JSON file; a feed and the export of a chat are read as what they are.

    A list of objects is read as records, one block each. Anything else stays as it is, unless its lines are
    too long to read: then it is one record. A single record tells the document's title and its `url`.
    """
    value = _value(text, "")
    if json_feed.is_feed(value):
        return json_feed.feed_document(value, name)
    if chat := chat_document(value, name):
        return chat
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return records_document(value, name, "application/json")
    if len(text) <= _READABLE * (1 + text.count("\n")):
        title, metadata = _about([value])
        return Document(text, title or name, "application/json", tuple(code_blocks(text)), metadata=metadata)
    return records_document([_record(value)], name, "application/json")


def parse_lines(text: str, name: str) -> Document:
    """The document of a file with a JSON value on each line: a block for each."""
    return records_document(map(_record, _values(text)), name, "application/jsonl")


def _values(text: str) -> Iterator[object]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _value(line, f"line {number}: ")


def _value(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ParseError(f"{where}JSON nested too deeply") from error
    except json.JSONDecodeError as error:
        where = where or f"line {error.lineno}: "
        raise ParseError(f"{where}invalid JSON ({error.msg}, column {error.colno})") from error
    except ValueError as error:
        raise ParseError(f"{where}a number is too large") from error


def _record(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {"value": value}


_GAP = "\n\n"  # between two records


def records_document(records: Iterable[Mapping[str, object]], name: str, mime_type: str) -> Document:
    """The document of a sequence of records: each one is a block of `key: value` lines."""
    records = list(records)
    title, metadata = _about(records)
    texts = [text for record in records if (text := record_lines(record))]
    whole = _GAP.join(texts)
    starts = accumulate((len(text) + len(_GAP) for text in texts), initial=0)
    blocks = (Block("table", start, start + len(text)) for start, text in zip(starts, texts, strict=False))
    return Document(whole, title or name, mime_type, tuple(blocks), metadata=metadata)


def _about(values: Sequence[object]) -> tuple[str, dict[str, str]]:
    """The title of a single record, and its `url` as metadata. Of several records each has its own."""
    record = values[0] if len(values) == 1 and isinstance(values[0], dict) else {}
    title, url = (value if isinstance(value := record.get(key), str) else "" for key in ("title", "url"))
    return title, {"url": clean(url)} if url else {}


def record_lines(record: Mapping[str, object]) -> str:
    """`key: value` lines, without empty values.

    Example: {"name": "Ada", "born": 1815, "tags": ["a", "b"], "died": None} ->
    "name: Ada", "born: 1815" and "tags: a, b".
    """
    values = ((key.strip(), _readable(value).strip()) for key, value in record.items())
    return clean("\n".join(f"{key}: {value}" for key, value in values if value)).strip()


def _readable(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case list() if not any(isinstance(item, list | dict) for item in value):
            return ", ".join(map(_readable, value))
        case _:
            return json.dumps(value, ensure_ascii=False)
