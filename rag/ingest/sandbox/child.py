"""The parser process, started by `rag.ingest.sandbox.pool`: requests on stdin, answers on stdout.

A request is a header (`REQUEST`: what is asked for, the lengths of name and content, and the CPU seconds it
may take), the name and the content. To `PARSE`, and to `SCAN`, which is the same with OCR, there is one
answer, the document or an error. To `MEMBERS`
there are two for each member, what is known of it and its content, and at the end one that is empty or an
error. An answer is its length (`LENGTH`) and JSON, except for the content of a member. The first answer is
`READY`.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from rag.confinement import allow_cpu, confine
from rag.errors import EmptyFileError, ParseError
from rag.ingest import parse as parsers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from rag.corpus import Document

REQUEST = struct.Struct("!cIIQ")
PARSE, SCAN, MEMBERS = b"p", b"s", b"m"
LENGTH = struct.Struct("!I")
READY = b"ready"
_OCR_SHARE = 0.8  # of the time of a file; the rest is for what else is to do with it
TOO_MUCH_MEMORY = "parsing needed too much memory"
MAX_ANSWER_BYTES = 1 << 27
"""No useful text is longer. The pool rejects an answer that announces more."""


def main() -> None:
    """Answer requests until stdin ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a parser prints is not an answer
    import_lazy_modules(sys.argv[2])
    parsers.prepare(sys.argv[2])
    confine(int(sys.argv[1]))
    answers.write(LENGTH.pack(len(READY)) + READY)
    answers.flush()
    while head := requests.read(REQUEST.size):
        asked, name_size, size, seconds = REQUEST.unpack(head)
        name = requests.read(name_size).decode()
        allow_cpu(seconds)
        data = requests.read(size)
        ocr_seconds = _OCR_SHARE * seconds if asked == SCAN else 0.0
        for answer in _members(data, name) if asked == MEMBERS else [_answer(data, name, ocr_seconds)]:
            answers.write(LENGTH.pack(len(answer)))
            answers.write(answer)
        answers.flush()


def import_lazy_modules(family: str) -> None:
    """Import what the functions of a parser module import: after `confine` no file can be opened."""
    for name in ("_strptime", "encodings.*", *parsers.libraries_of(family)):
        with suppress(ImportError):  # of an extra that isn't installed
            package = importlib.import_module(name.removesuffix(".*"))
            if name.endswith(".*"):
                _import_all_of(package)


def _import_all_of(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        with suppress(ImportError):  # for another platform, or with missing dependencies
            importlib.import_module(module.name)


def _members(data: bytes, name: str) -> Iterator[bytes]:
    try:
        for one in parsers.members(data, name):
            yield _written(
                {"name": one.name, "stated": one.stated, "refused": one.refused, "cause": one.cause}
            )
            yield one.data
    except ParseError as error:
        yield _written({"error": str(error), "cause": error.cause})
    except RecursionError:
        yield _written({"error": "nested too deeply"})
    except MemoryError:
        yield _written({"error": TOO_MUCH_MEMORY, "cause": "crashed"})
    else:
        yield b""


def _answer(data: bytes, name: str, ocr_seconds: float = 0.0) -> bytes:
    try:
        answer = _written({"document": _values(parsers.parse(data, name, ocr_seconds=ocr_seconds))})
    except ParseError as error:
        return _written(
            {"error": str(error), "cause": error.cause, "empty": isinstance(error, EmptyFileError)}
        )
    except MemoryError:
        return _written({"error": TOO_MUCH_MEMORY, "cause": "crashed"})
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
