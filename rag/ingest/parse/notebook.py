"""Jupyter notebooks: texts and code in order, with those outputs that are text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.parse import html_page, markdown
from rag.ingest.parse.blocks import clean
from rag.ingest.parse.facts import facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.corpus import Document

SUFFIXES = (".ipynb",)

_MAX_OUTPUT = 4000  # characters of one output: a training log would drown the rest
_FENCE = re.compile(r"^\s*(`{3,})", re.MULTILINE)
_IMAGE = re.compile(r"!\[([^\]]*)\]\((?:data:|attachment:)[^)]*\)|<img\b[^>]*\bsrc=[\"']data:[^>]*>")


def parse(text: str, name: str) -> Document:
    """The document of a notebook, read as Markdown with fenced code.

    Raises:
        ParseError: it is not a notebook.
    """
    try:
        book = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError("the notebook is damaged: it is not valid JSON") from error
    cells = _cells(book)
    if cells is None:
        raise ParseError("it is not a notebook: it has no cells")
    about = _mapping(book.get("metadata"))
    kernel = _mapping(about.get("kernelspec")) | _mapping(about.get("language_info"))
    language = kernel.get("language") or kernel.get("name")
    parts = [part for cell in cells for part in _parts(cell, language if isinstance(language, str) else "")]
    document = markdown.parse(clean("\n\n".join(parts)), name)
    authors = about.get("authors")
    people = [_mapping(one).get("name") for one in authors] if isinstance(authors, list) else []
    stated = facts(author=[one for one in people if isinstance(one, str)])
    title = about.get("title")
    return replace(
        document,
        title=title if isinstance(title, str) and title else document.title,
        mime_type="application/x-ipynb+json",
        metadata={**stated, **document.metadata},
    )


def _cells(book: object) -> list[dict[str, object]] | None:
    """The cells; those of format 3 are in worksheets."""
    sheets = _mapping(book).get("worksheets")
    books = sheets if isinstance(sheets, list) else [book]
    found = [cells for one in books if isinstance(cells := _mapping(one).get("cells"), list)]
    return [_mapping(cell) for cells in found for cell in cells] if found else None


def _parts(cell: dict[str, object], language: str) -> Iterator[str]:
    text = _joined(cell.get("source", cell.get("input"))).strip("\n")
    match cell.get("cell_type"):
        case "markdown" | "raw":
            yield _IMAGE.sub(r"\1", text)
        case "heading":
            level = cell.get("level")
            yield f"{'#' * (level if isinstance(level, int) else 1)} {text}"
        case "code":
            yield _fenced(text, language)
            outputs = cell.get("outputs")
            for output in outputs if isinstance(outputs, list) else []:
                yield _shown(_mapping(output))


def _shown(output: dict[str, object]) -> str:
    """What a reader sees of an output, if it is text: a table as a table, an error without its trace."""
    if output.get("output_type") in {"error", "pyerr"}:
        return _fenced(f"{_joined(output.get('ename'))}: {_joined(output.get('evalue'))}", "")
    data = _mapping(output.get("data")) or output
    page = _joined(data.get("text/html") or data.get("html"))
    if "<table" in page:
        return html_page.content_of(page[: 10 * _MAX_OUTPUT])[:_MAX_OUTPUT]
    if text := _joined(data.get("text/markdown") or data.get("text/latex")):
        return _IMAGE.sub(r"\1", text)[:_MAX_OUTPUT]
    return _fenced(_cut(_joined(data.get("text/plain") or data.get("text"))), "")


def _cut(text: str) -> str:
    left = len(text) - _MAX_OUTPUT
    return f"{text[:_MAX_OUTPUT]}\n… ({left:,} more characters)" if left > 0 else text


def _fenced(text: str, language: str) -> str:
    text = clean(text).strip("\n")
    longest = max((len(match[1]) for match in _FENCE.finditer(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}" if text.strip() else ""


def _joined(value: object) -> str:
    """A text, which may be written as a list of its lines."""
    if isinstance(value, list):
        return "".join(line for line in value if isinstance(line, str))
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
