"""Records (of JSON, JSON lines, CSV) as lines that read well, one block each."""

from __future__ import annotations

import json
from itertools import accumulate
from typing import TYPE_CHECKING

from rag.ingest.parse.blocks import clean
from rag.records import Block, Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_GAP = "\n\n"  # between two records


def records_document(records: Iterable[Mapping[str, object]], name: str, mime_type: str) -> Document:
    """The document of a sequence of records: each one is a block of `key: value` lines."""
    texts = [text for record in records if (text := record_lines(record))]
    whole = _GAP.join(texts)
    starts = accumulate((len(text) + len(_GAP) for text in texts), initial=0)
    blocks = (Block("table", start, start + len(text)) for start, text in zip(starts, texts, strict=False))
    return Document(whole, name, mime_type, tuple(blocks))


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
