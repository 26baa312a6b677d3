"""Tables of a page that are no data: those that lay it out, and those that number the lines of code.

A layout table becomes plain blocks, in which headings, lists and code are what they are; in a table of
Markdown each cell is one line. Code loses what is no part of it: line numbers and links.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_TABLE = re.compile(r"<(/?)table\b[^<>]*>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b", re.IGNORECASE)
_CELL = re.compile(r"<t[dh]\b[^<>]*>((?:[^<]|<(?!/?t[dhr]\b))*+)", re.IGNORECASE)
_UNSEEN = re.compile(r"<[^<>]*>|&nbsp;|\s")
_PART = re.compile(r"<(/?)(table|thead|tbody|tfoot|tr|t[dh])\b[^<>]*>", re.IGNORECASE)
_ROWS, _CELLS = 2, 2  # a table of data in a mail has that many
_LONG = 300  # characters: a cell with more holds a text

_PRESENTATION = re.compile(r"""<table\b[^<>]*\brole\s?=\s?["']?(?:presentation|none)\b""", re.IGNORECASE)
_HEADER = re.compile(r"<th\b", re.IGNORECASE)
_BLOCKS = re.compile(
    r"<(?:h[1-6]|pre)\b|<p\b(?:[^<]|<(?!/?(?:p|t[dhr])\b))*+(?:</p\s*>)?\s*<p\b", re.IGNORECASE
)

_PRE = re.compile(r"<pre\b[^<>]*>((?:[^<]|<(?!/?pre\b))*+)</pre\s*>", re.IGNORECASE)
_PRE_AROUND = re.compile(r"<pre\b[^<>]*>\s*<code\b[^<>]*>\s*(?=<pre>)", re.IGNORECASE)
_PRE_TWICE = re.compile(r"</pre>\s*</code\s*>\s*</pre\s*>", re.IGNORECASE)
_NO_CODE = re.compile(
    r"</?a\b[^<>]*>|<span\b[^<>]*\bclass\s?=\s?[\"']?(?:linenos?|lineno|lnt?|line-numbers?)\b[^<>]*>\s*\d*\s*</span\s*>",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"\d*")
_CODE_LINE = re.compile(
    r"<td\b[^<>]*\bclass\s?=\s?[\"'][^\"'<>]*\b(?:blob-code|ln-code|lines-code)", re.IGNORECASE
)


def with_code_and_layout(page: str) -> str:
    """A page whose layout tables are plain blocks, and whose code is code alone."""
    page = _changed_tables(page, _code_of)
    page = _PRE_TWICE.sub("</pre>", _PRE_AROUND.sub("", page)) if "<pre>" in page else page
    page = _PRE.sub(lambda code: _NO_CODE.sub("", code[0]), page)
    return without_layout_tables(page, _lays_out)


def without_layout_tables(page: str, lays_out: Callable[[str], bool]) -> str:
    """The page with tables that `lays_out` names, and those with tables inside, turned into plain blocks."""
    data = {start for start, end in _innermost_tables(page) if not lays_out(page[start:end])}
    parts, at, is_data = [], 0, False
    for tag in _PART.finditer(page):
        is_data = is_data or tag.start() in data
        if not is_data:
            parts += [page[at : tag.start()], f"<{tag[1]}div>"]
            at = tag.end()
        is_data = is_data and not (tag[1] and tag[2].casefold() == "table")
    return "".join([*parts, page[at:]])


def is_no_data(table: str) -> bool:
    """Whether a table of a mail is layout: one of data has at least two rows with two short texts each."""
    full = 0
    for row in _ROW.split(table)[1:]:
        texts = [text for cell in _CELL.findall(row) if (text := _UNSEEN.sub("", cell))]
        if any(len(text) > _LONG for text in texts):
            return True
        full += len(texts) >= _CELLS
    return full < _ROWS


def _lays_out(table: str) -> bool:
    """Whether a table of a page is layout: it says so, or it has blocks in its cells, and no header cells."""
    return bool(_PRESENTATION.match(table)) or (not _HEADER.search(table) and bool(_BLOCKS.search(table)))


def _innermost_tables(page: str) -> Iterator[tuple[int, int]]:
    """The spans of tables without tables inside, in order."""
    opened = -1
    for tag in _TABLE.finditer(page):
        if not tag[1]:
            opened = tag.start()
        elif opened >= 0:
            yield opened, tag.end()
            opened = -1


def _changed_tables(page: str, change: Callable[[str], str]) -> str:
    """The page with its innermost tables as `change` returns them."""
    parts, at = [], 0
    for start, end in _innermost_tables(page):
        parts += [page[at:start], change(page[start:end])]
        at = end
    return "".join([*parts, page[at:]])


def _code_of(table: str) -> str:
    """The code in a table that numbers its lines; any other table as it is."""
    cells = _CELL.findall(table)
    code = [cell for cell in cells if not _NUMBERS.fullmatch(_UNSEEN.sub("", cell))]
    if len(code) == 1 and len(cells) > 1 and (pre := _PRE.search(code[0])):
        return f"<pre>{pre[1]}</pre>"
    rows = _ROW.split(table)[1:]
    if rows and all(map(_CODE_LINE.search, rows)):
        lines = "\n".join((_CELL.findall(row) or [""])[-1].strip("\n") for row in rows)
        return f"<pre>{lines}</pre>"
    return table
