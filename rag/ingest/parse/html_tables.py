"""The tables of a page, changed before its conversion: layout, numbered code, and cells over several rows.

A layout table becomes plain blocks, in which headings, lists and code are what they are; in a table of
Markdown each cell is one line. Code loses line numbers and links. Tags are found by regular expressions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rag.ingest.parse.document_parts import MergedCells
from rag.text.plain_text import with_replacements
from rag.text.table_heads import COVERED, pipe_table

MAX_GROWTH = 4  # times the length of a page: the most that repeated cells may add

_CELLS = re.compile(r"<(/?)(table|tr|td|th)\b([^<>]{0,2000})>", re.IGNORECASE)
_SPANS = re.compile(r"\b(?:row|col)span\s*=\s*[\"']?\d{1,9}[\"']?", re.IGNORECASE)
_HIDDEN_CELL = re.compile(r"\bdisplay\s*:\s*none", re.IGNORECASE)
_ROWS_OF_TABLE = re.compile(r"(?m)^([ >]*)\|[^\n]*(?:\n\1\|[^\n]*)+(\n*)")
_BAR = re.compile(r"(?<!\\)\|")
_TABLE = re.compile(r"<(/?)table\b[^<>]*>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b", re.IGNORECASE)
_CELL = re.compile(r"<t[dh]\b[^<>]*>((?:[^<]|<(?!/?t[dhr]\b))*+)", re.IGNORECASE)
_BLANK = re.compile(r"<[^<>]*>|&nbsp;|\s")
_ROWS = re.compile(r"<(/?)(table|tr)\b", re.IGNORECASE)
_POINT = re.compile(
    r"(<table\b[^<>]*>(?:\s|</?(?:col|colgroup|tbody)\b[^<>]*>)*<tr\b[^<>]*>\s*)<td\b[^<>]*>"
    r"(?:\s|&nbsp;|<(?:p|span|div)\b[^<>]*>)*"
    r"([‘“\"'(\[]{0,2}(?:(?:\d{1,4}[a-z]?\.)+|(?:\d{1,4}[a-z]{0,2}|[a-z]{1,2}|[ivxlc]{1,6})[.)\]]{1,2})|[—–•·-])"
    r"(?:\s|&nbsp;|</(?:p|span|div)\s*>)*</td\s*>\s*(<td\b[^<>]*>(?:\s*<p\b[^<>]*>)?)",
    re.IGNORECASE,
)
"""A table up to the text in its second cell, with a mark like (a) or 1. in its first one."""
_PART = re.compile(r"<(/?)(?:table|thead|tbody|tfoot|tr|t[dh])\b[^<>]*>", re.IGNORECASE)
_FULL_ROWS, _FULL_CELLS = 2, 2  # a table of data in a mail has that many
_LONG = 300  # characters: a cell with more holds a text
_DIVIDED = -1
_INNER = "\ufddc"
"""A noncharacter in the place of a table in a cell."""
_WIDTHS = re.compile(
    r"(\A<table\b[^<>]*>(?:\s|</?(?:col|colgroup|tbody)\b[^<>]*>)*)"
    r"(?:<tr\b[^<>]*>(?:\s|&nbsp;|&#160;|<(?!td\b[^<>]*\browspan)/?(?:td|p|div|span|font)\b[^<>]*>)*</tr\s*>\s*)+",
    re.IGNORECASE,
)
"""The beginning of a table, and blank rows: reports in inline XBRL set the widths of columns in one."""
_NO_BORDER = re.compile(r"""(<table\b[^<>]*?)\sborder\s?=\s?["']?0["']?(?=[\s>])""", re.IGNORECASE)

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
_CODE_IN_LINE = re.compile(
    r"(?P<start><(?:code\b|(?P<heading>h[1-6]\b[^<>]{0,500}\bcode-header\b))[^<>]*>)"
    r"(?P<words>(?:[^<]|<(?!/?(?:code|h[1-6])\b))*+)(?P<end></(?:code|h[1-6])\s*>)",
    re.IGNORECASE,
)
"""Code in a line, or a heading that is a signature, as rustdoc has them."""
_LINK = re.compile(r"<a\b[^<>]*>(?:[^<]|<(?!/?a\b))*+</a\s*>", re.IGNORECASE)
_IN_WORDS = re.compile(r"</?(?!br\b|div\b|span\b[^<>]{0,200}\bwhere\b)[a-z][^<>]*>", re.IGNORECASE)
_NUMBERS = re.compile(r"\d*")
_CODE_LINE = re.compile(
    r"<td\b[^<>]*\bclass\s?=\s?[\"'][^\"'<>]*\b(?:blob-code|ln-code|lines-code)", re.IGNORECASE
)


def with_code_and_layout(page: str) -> str:
    """A page whose layout tables are plain blocks, and whose code is code alone."""
    page = _changed_tables(_with_points(page), _code_of)  # a point is one cell then, so layout
    page = _PRE_TWICE.sub("</pre>", _PRE_AROUND.sub("", page)) if "<pre>" in page else page
    page = _CODE_IN_LINE.sub(_code_in_line, _PRE.sub(lambda code: _NO_CODE.sub("", code[0]), page))
    return without_layout_tables(page, _lays_out)


def _code_in_line(code: re.Match[str]) -> str:
    """Code in one piece: the converter divides it at its links. Code that is a link stays one."""
    outside = _LINK.sub("", code["words"])
    if not code["heading"] and (outside == code["words"] or not _BLANK.sub("", outside)):
        return code[0]
    words = " ".join(_BLANK.sub(" ", _IN_WORDS.sub("", code["words"])).split())
    return code["start"] + (f"<code>{words}</code>" if code["heading"] else words) + code["end"]


def without_layout_tables(page: str, lays_out: Callable[[str], bool]) -> str:
    """The page with tables that `lays_out` names, and those around others, turned into plain blocks.

    A table of data around a short one stays: the converter writes this as words of its cell.
    """

    def blocks(part: str) -> str:
        return _PART.sub(r"<\1div>", part)

    def changed(table: str) -> str:
        return blocks(table) if lays_out(table) else _with_columns(_WIDTHS.sub(r"\1", table))

    return _changed_tables(page, changed, blocks)


def _with_points(page: str) -> str:
    """The page with the marks of points in front of their texts: a table of one row with both is no table.

    Example: "<table><tr><td>(a)</td><td>we</td></tr></table>" -> "<table><tr><td>(a) we</td></tr></table>".
    """
    starts: list[int] = []  # of tables with one row
    opened: list[list[int]] = []  # where a table begins, and how many rows it has
    for tag in _ROWS.finditer(page):
        if tag[2].casefold() == "tr":
            if opened:
                opened[-1][1] += not tag[1]
        elif not tag[1]:
            opened.append([tag.start(), 0])
        elif opened and opened[-1][1] == 1:
            starts.append(opened.pop()[0])
        elif opened:
            opened.pop()
    of_one_row = {*starts}
    return _POINT.sub(
        lambda point: f"{point[1]}{point[3]}{point[2]} " if point.start() in of_one_row else point[0], page
    )


def is_no_data(table: str) -> bool:
    """Whether a table of a mail is layout: one of data has at least two rows with two short texts each."""
    rows = [*_row_lengths(table)]
    has_long = any(length > _LONG for row in rows for length in row)
    return has_long or sum(len(row) >= _FULL_CELLS for row in rows) < _FULL_ROWS


def _row_lengths(table: str) -> Iterator[list[int]]:
    return map(_cell_lengths, _ROW.split(table)[1:])


def _cell_lengths(row: str) -> list[int]:
    lengths = (len(_BLANK.sub("", cell)) for cell in _CELL.findall(row))
    return [length for length in lengths if length]


def _with_columns(table: str) -> str:
    """A table whose rows keep their columns: the converter takes one without a border, but with spans, apart.

    Excel, Outlook and Word write so. A table is left to the converter if few of its rows can be data.
    """
    rows = [row for row in _row_lengths(table) if len(row) >= _FULL_CELLS and max(row) <= _LONG]
    return _NO_BORDER.sub(r"\1", table) if len(rows) >= _FULL_ROWS else table


def _lays_out(table: str) -> bool:
    """Whether a table of a page is layout: it says so, or it has no header cells, and one cell or blocks."""
    has_blocks = bool(_BLOCKS.search(table)) or len(_CELL.findall(table)) == 1
    return bool(_PRESENTATION.match(table)) or (not _HEADER.search(table) and has_blocks)


def _whole_tables(page: str) -> list[tuple[int, int]]:
    """The spans of tables that stay in one piece, in order; no one is inside another.

    A table around one that is divided is layout.
    """
    spans: list[tuple[int, int]] = []
    opened: list[tuple[int, int]] = []  # where a table begins, and how many of the spans are before it
    for tag in _TABLE.finditer(page):
        if not tag[1]:
            opened.append((tag.start(), len(spans)))
        elif opened:
            start, before = opened.pop()
            if before != _DIVIDED and _is_whole(page, start, tag.end(), spans[before:]):
                spans[before:] = [(start, tag.end())]
            elif opened:
                opened[-1] = opened[-1][0], _DIVIDED
    return spans


def _is_whole(page: str, start: int, end: int, inner: Sequence[tuple[int, int]]) -> bool:
    """Whether a table has no other one inside, or has data, with short tables next to other cells."""
    if not inner or any(len(_BLANK.sub("", page[slice(*span)])) > _LONG for span in inner):
        return not inner
    table = page[start:end]
    outer = with_replacements(table, ((first - start, last - start, _INNER) for first, last in inner))
    around = [row for row in _ROW.split(outer) if _INNER in row]
    are_beside = all(len(row) >= _FULL_CELLS for row in map(_cell_lengths, around))
    return are_beside and not _lays_out(table) and not is_no_data(outer)


def _changed_tables(page: str, change: Callable[[str], str], outside: Callable[[str], str] = str) -> str:
    """The page with its tables as `change` returns them, and what is around as `outside` does."""
    parts, at = [], 0
    for start, end in _whole_tables(page):
        parts += [outside(page[at:start]), change(page[start:end])]
        at = end
    return "".join([*parts, outside(page[at:])])


def _code_of(table: str) -> str:
    """The code in a table that numbers its lines; any other table as it is."""
    cells = _CELL.findall(table)
    code = [cell for cell in cells if not _NUMBERS.fullmatch(_BLANK.sub("", cell))]
    if len(code) == 1 and len(cells) > 1 and (pre := _PRE.search(code[0])):
        return f"<pre>{pre[1]}</pre>"
    rows = _ROW.split(table)[1:]
    if rows and all(map(_CODE_LINE.search, rows)):
        lines = "\n".join((_CELL.findall(row) or [""])[-1].strip("\n") for row in rows)
        return f"<pre>{lines}</pre>"
    return table


@dataclass(slots=True)
class _Table:
    """A table that is being read, and its cell whose tag is open."""

    cells: MergedCells = field(default_factory=MergedCells)
    opened: re.Match[str] | None = None


def with_repeated_cells(page: str) -> str:
    """The page with the content of a cell over several rows repeated in each of these rows.

    One over several columns has cells with `COVERED` behind it, which `with_spanned_cells` resolves.
    """
    if not _SPANS.search(page):
        return page
    replacements: list[tuple[int, int, str]] = []
    room = MAX_GROWTH * len(page)
    tables: list[_Table] = []
    for tag in _CELLS.finditer(page):
        repeated = "".join(f"<td>{content}" for content in _repeated_cells(tag, tables))
        room -= len(repeated)
        if room < 0:
            return page
        if repeated or _SPANS.search(tag[3]):
            replacements.append((*tag.span(), repeated + _SPANS.sub("", tag[0])))
    return with_replacements(page, replacements)


def with_spanned_cells(text: str) -> str:
    """A text in Markdown with words over several columns in each of these, and without `COVERED`."""
    return _ROWS_OF_TABLE.sub(_spanned_table, text).replace(COVERED, "") if COVERED in text else text


def _spanned_table(table: re.Match[str]) -> str:
    """A table without `COVERED`, and without columns that have no texts."""
    if COVERED not in table[0]:
        return table[0]
    indent, end = table.groups()
    lines = table[0].removesuffix(end).split(f"\n{indent}")
    rows = [[cell.strip().replace("\\|", "|") for cell in _BAR.split(line)[1:-1]] for line in lines]
    del rows[1]  # the rule
    used = sorted({at for row in rows for at, cell in enumerate(row) if cell.strip(COVERED)})
    grid = ([row[at] if at < len(row) else "" for at in used] for row in rows)
    return indent + pipe_table(grid, len(used)).replace("\n", f"\n{indent}") + end if used else ""


def _repeated_cells(tag: re.Match[str], tables: list[_Table]) -> Iterator[str]:
    is_end, name = bool(tag[1]), tag[2].casefold()
    if name == "table":
        if is_end and tables:
            yield from _end_row(tables.pop(), tag)
        elif not is_end:
            tables.append(_Table())
    elif tables and name == "tr":
        yield from _end_row(tables[-1], tag)
        if not is_end:
            tables[-1].cells.next_row()
    elif tables:
        _end_cell(tables[-1], tag)
        if not is_end:
            yield from tables[-1].cells.repeated()
            tables[-1].opened = tag


def _end_row(table: _Table, tag: re.Match[str]) -> Iterator[str]:
    _end_cell(table, tag)
    return table.cells.rest()


def _end_cell(table: _Table, tag: re.Match[str]) -> None:
    """End the open cell, and place its content, also in the rows that repeat it."""
    if (opened := table.opened) is None:
        return
    table.opened = None
    if _HIDDEN_CELL.search(opened[3]):  # the converter leaves it out
        return
    content = tag.string[opened.end() : tag.start()]
    table.cells.place(content, _span(opened[3], "rowspan"), _span(opened[3], "colspan"))


def _span(attributes: str, name: str) -> int:
    match = re.search(rf"\b{name}\s*=\s*[\"']?(\d{{1,4}})", attributes, re.IGNORECASE)
    return int(match[1]) if match else 1
