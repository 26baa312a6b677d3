"""The parser process, started by `rag.ingest.sandbox.pool`: requests on stdin, answers on stdout.

A request is a header (`REQUEST`: the lengths of name and content, and the CPU seconds it may take), the name
and the content. An answer is its length (`LENGTH`) and JSON: the document, or an error. The first answer is
`READY`.
"""

from __future__ import annotations

import encodings
import importlib
import json
import pkgutil
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from rag.errors import EmptyFileError, ParseError
from rag.ingest import parse as parsers
from rag.ingest.parse import syntax
from rag.ingest.sandbox.confinement import allow_cpu, confine

if TYPE_CHECKING:
    from types import ModuleType

    from rag.corpus import Document

REQUEST = struct.Struct("!IIQ")
LENGTH = struct.Struct("!I")
READY = b"ready"
MAX_ANSWER_BYTES = 1 << 27
"""No useful text is longer. The pool rejects an answer that announces more."""


def main() -> None:
    """Answer requests until stdin ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a parser prints is not an answer
    _import_everything()
    confine(int(sys.argv[1]))
    answers.write(LENGTH.pack(len(READY)) + READY)
    answers.flush()
    while head := requests.read(REQUEST.size):
        name_size, size, seconds = REQUEST.unpack(head)
        name = requests.read(name_size).decode()
        allow_cpu(seconds)
        answer = _answer(requests.read(size), name)
        answers.write(LENGTH.pack(len(answer)))
        answers.write(answer)
        answers.flush()


def _import_everything() -> None:
    """Import all lazily imported modules: after `confine` no file can be opened."""
    importlib.import_module("_strptime")

    import pypdf  # noqa: PLC0415 see above

    _import_all_of(pypdf)
    for library in syntax.LIBRARIES:
        with suppress(ImportError):  # a grammar that isn't installed
            importlib.import_module(library)
    _import_all_of(encodings)


def _import_all_of(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        with suppress(ImportError):  # for another platform, or with missing dependencies
            importlib.import_module(module.name)


def _answer(data: bytes, name: str) -> bytes:
    try:
        answer = _written({"document": _values(parsers.parse(data, name))})
    except ParseError as error:
        return _written(
            {"error": str(error), "cause": error.cause, "empty": isinstance(error, EmptyFileError)}
        )
    if len(answer) > MAX_ANSWER_BYTES:
        return _written({"error": f"its text takes over {MAX_ANSWER_BYTES >> 20} MB", "cause": "too large"})
    return answer


def _written(answer: object) -> bytes:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _values(document: Document) -> dict[str, object]:
    return {
        "text": document.text,
        "title": document.title,
        "mime_type": document.mime_type,
        "blocks": [(one.kind, one.start, one.end, one.level, one.title) for one in document.blocks],
        "pages": document.pages,
        "date": document.date.isoformat() if document.date else None,
        "url": document.url,
        "metadata": dict(document.metadata),
        "remarks": document.remarks,
    }
