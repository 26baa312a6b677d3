"""The parser process, started by `rag.ingest.sandbox.parser_pool`: requests on stdin, answers on stdout.

A request is a header (`REQUEST`: the command, the lengths of name and content, and the limit of CPU seconds),
the name and the content. An answer is a header (`ANSWER`: the lengths of its two parts, and the milliseconds
of CPU time that the request has taken so far), JSON about the content, and the content.

`PARSE` and `SCAN` (with OCR) have one answer: the document and its text. `MEMBERS` has one answer for each
member, and an empty one at the end. An error is an answer without content. The first answer is `READY`.
"""

from __future__ import annotations

import codecs
import encodings
import importlib
import json
import pkgutil
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from operator import attrgetter
from types import ModuleType

from rag.confined.confinement import allow_cpu, confine
from rag.corpus import Document
from rag.errors import Cause, EmptyFileError, ParseError
from rag.ingest.parse import parsers

REQUEST = struct.Struct("!cIIQ")
PARSE, SCAN, MEMBERS = b"p", b"s", b"m"
ANSWER = struct.Struct("!III")
READY = b"ready"
_OCR_SHARE = 0.8  # of a file's time limit; other steps have the remainder
TOO_MUCH_MEMORY = "parsing needed too much memory"
MAX_ABOUT_BYTES, MAX_CONTENT_BYTES = 1 << 24, 1 << 26
"""Useful answers are shorter, and the pool rejects longer ones.

The JSON can have a million blocks, which take 350 MB to validate.
"""
MAX_TEXT_CHARS = 32_000_000
"""Of a document. Chunking takes up to 16 bytes per character, and 1.3 CPU seconds per million."""
_BLOCK_VALUES = attrgetter("kind", "start", "end", "level", "title")


def main() -> None:
    """Answer requests until stdin ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # output of a parser is not an answer
    import_lazy_modules(sys.argv[2])
    parsers.prepare(sys.argv[2])
    confine(int(sys.argv[1]))
    answers.write(ANSWER.pack(len(READY), 0, 0) + READY)
    answers.flush()
    while head := requests.read(REQUEST.size):
        request, name_size, size, seconds = REQUEST.unpack(head)
        name = requests.read(name_size).decode()
        allow_cpu(seconds)
        began = time.process_time()
        data = requests.read(size)
        ocr_seconds = _OCR_SHARE * seconds if request == SCAN else 0.0
        parsed = _members(data, name) if request == MEMBERS else [_answer(data, name, ocr_seconds)]
        for about, content in parsed:
            milliseconds = int(1000 * (time.process_time() - began))
            answers.writelines((ANSWER.pack(len(about), len(content), milliseconds), about, content))
        answers.flush()


def import_lazy_modules(family: str) -> None:
    """Import the lazy imports of a parser module now: after `confine` no file can be opened."""
    codecs.unregister(encodings.search_function)
    codecs.register(_codec_without_search)
    for name in ("_strptime", "encodings.*", *parsers.libraries_of(family)):
        with suppress(ImportError):  # of an extra that isn't installed
            package = importlib.import_module(name.removesuffix(".*"))
            if name.endswith(".*"):
                _import_all_of(package)


def _codec_without_search(name: str) -> codecs.CodecInfo | None:
    """A codec; None for an unknown one, so that no search opens files, and codecs raises LookupError."""
    try:
        return encodings.search_function(name)
    except OSError:
        return None


def _import_all_of(package: ModuleType) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        with suppress(ImportError):  # for another platform, or with missing dependencies
            importlib.import_module(module.name)


def _members(data: bytes, name: str) -> Iterator[tuple[bytes, bytes]]:
    try:
        for member in parsers.members(data, name):
            about = {key: getattr(member, key) for key in ("name", "stated", "refused", "cause")}
            yield _json_bytes(about), member.data
    except ParseError as error:
        yield _error(str(error), error.cause)
    except RecursionError:
        yield _error("nested too deeply")
    except MemoryError:
        yield _error(TOO_MUCH_MEMORY, "crashed")
    else:
        yield b"", b""


def _answer(data: bytes, name: str, ocr_seconds: float = 0.0) -> tuple[bytes, bytes]:
    try:
        document = parsers.parse(data, name, ocr_seconds=ocr_seconds)
        about = _json_bytes({"document": _document_values(document)})
        text = document.text.encode("utf-8", "replace")
    except ParseError as error:
        return _error(str(error), error.cause, empty=isinstance(error, EmptyFileError))
    except MemoryError:
        return _error(TOO_MUCH_MEMORY, "crashed")
    if len(document.text) > MAX_TEXT_CHARS:
        return _error(f"its text has over {MAX_TEXT_CHARS // 1_000_000} million characters", "too large")
    if len(text) > MAX_CONTENT_BYTES:
        return _error(f"its text takes over {MAX_CONTENT_BYTES >> 20} MB", "too large")
    if len(about) > MAX_ABOUT_BYTES:
        return _error("it has too many parts", "too large")
    return about, text


def _error(reason: str, cause: Cause = "damaged", *, empty: bool = False) -> tuple[bytes, bytes]:
    return _json_bytes({"error": reason, "cause": cause, "empty": empty}), b""


def _json_bytes(answer: object) -> bytes:
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def _document_values(document: Document) -> dict[str, object]:
    return {
        "title": document.title,
        "mime_type": document.mime_type,
        "blocks": [*map(_BLOCK_VALUES, document.blocks)],
        "pages": document.pages,
        "date": document.date.isoformat() if document.date else None,
        "url": document.url,
        "metadata": dict(document.metadata),
        "remarks": document.remarks,
        "has_lines": document.has_lines,
    }
