"""The sheets of a spreadsheet as text: tables with header rows, and cells as their number formats show them.

A blank row ends a table, unless the next row has the same columns and isn't a header. So do a caption and a
header row below figures. Tables side by side are read one after the other if each has a header row. A row
with a single cell above or between tables is a paragraph. Rows that are too wide for a line become a list of
`column: value`.

A number format shows 0.256 as "25.6%", and 45413 as "2024-05-01".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from rag.ingest.parse.document_draft import Draft
from rag.text.plain_text import one_line
from rag.text.table_heads import is_header, pipe_row, rule
from rag.uris import cell_range, column_name

MAX_HEADER = 300  # characters of a header row that is repeated with every part of its table
MAX_ROW = 900  # characters of a row on average; wider ones are lists
MAX_CELL = 20_000  # characters: a program allows 32,767, and hostile files have more


@dataclass(slots=True)
class Sheet:
    """A sheet: the texts of its cells by row and column, from 1.

    `merged` has the first row and column and the last row and column of merged cells. `boxes` are the row,
    column and text of shapes on the sheet, `charts` the caption and the rows of each chart, without
    rows if its numbers are in visible cells.
    """

    name: str
    rows: dict[int, dict[int, str]] = field(default_factory=dict)
    hidden_rows: set[int] = field(default_factory=set)
    hidden_columns: set[int] = field(default_factory=set)
    merged: list[tuple[int, int, int, int]] = field(default_factory=list)
    boxes: list[tuple[int, int, str]] = field(default_factory=list)
    charts: list[tuple[str, list[list[str]]]] = field(default_factory=list)


class _Row(NamedTuple):
    number: int
    cells: dict[int, str]


def write_sheet(draft: Draft, sheet: Sheet) -> int:
    """Write a sheet unless it is empty. Returns the number of its hidden rows and columns."""
    _repeat_merged(sheet)
    hidden = _remove_hidden(sheet)
    rows = [_Row(number, cells) for number, cells in sorted(sheet.rows.items()) if cells]
    if not (rows or sheet.boxes or sheet.charts):
        return hidden
    draft.heading(sheet.name, 1)
    writer = _Writer(draft)
    for group in _groups(rows, sheet.hidden_rows):
        for columns in _side_by_side(group, sheet.hidden_columns):
            part = [
                _Row(row.number, {at: row.cells[at] for at in columns if at in row.cells}) for row in group
            ]
            for rows_of_table in _stacked([row for row in part if row.cells]):
                writer.table(rows_of_table)
    for row, column, text in sheet.boxes:
        draft.paragraph(text, cells=cell_range((row, column), (row, column)))
    for caption, chart in sheet.charts:
        draft.paragraph(caption)
        draft.table(chart)
    return hidden


def _repeat_merged(sheet: Sheet) -> None:
    """Repeat the text of a vertically merged cell in each of its rows, so that each row can be read alone."""
    for first_row, first, last_row, _ in sheet.merged:
        if text := sheet.rows.get(first_row, {}).get(first, ""):
            for number in range(first_row + 1, min(last_row, first_row + 1000) + 1):
                if number in sheet.rows:
                    sheet.rows[number].setdefault(first, text)


def _remove_hidden(sheet: Sheet) -> int:
    rows = [number for number in sheet.hidden_rows if sheet.rows.pop(number, None)]
    columns = {at for row in sheet.rows.values() for at in row if at in sheet.hidden_columns}
    for row in sheet.rows.values():
        for at in columns & row.keys():
            del row[at]
    return len(rows) + len(columns)


def _groups(rows: Iterable[_Row], hidden: set[int]) -> Iterator[list[_Row]]:
    """Groups of rows without a blank row between them; hidden rows don't count as blank."""
    group: list[_Row] = []
    for row in rows:
        if group and any(number not in hidden for number in _numbers_between(group[-1].number, row.number)):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _numbers_between(first: int, last: int) -> Iterable[int]:
    return range(first + 1, min(last, first + 2_000))


def _side_by_side(group: list[_Row], hidden: set[int]) -> list[list[int]]:
    """The columns of each table in a group of rows."""
    used = sorted({at for row in group for at in row.cells})
    parts = [[used[0]]]
    for column, following in pairwise(used):
        if any(at not in hidden for at in _numbers_between(column, following)):
            parts.append([])
        parts[-1].append(following)
    for part in parts:
        first = [group[0].cells.get(at, "") for at in part]
        if len(part) < 2 or not all(first) or not is_header(first):  # noqa: PLR2004 a table has two columns
            return [used]
    return parts


def _stacked(rows: list[_Row]) -> Iterator[list[_Row]]:
    """The tables in rows without a blank row: a caption and a header between rows of figures begin one."""
    start = 0
    for at in range(1, len(rows) - 2):
        before, caption, header, first = rows[at - 1 : at + 3]
        is_caption = 2 * len(caption.cells) <= len(header.cells) and _names_columns(header)
        if is_caption and not _names_columns(before) and not _names_columns(first):
            yield rows[start:at]
            start = at
    yield rows[start:]


def _names_columns(row: _Row) -> bool:
    return is_header([*row.cells.values()])


class _Writer:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._header: dict[int, str] = {}

    def table(self, rows: list[_Row]) -> None:
        columns = sorted({at for row in rows for at in row.cells})
        while rows and not self._continues(rows[0]) and (len(rows[0].cells) == 1 or _names_groups(rows)):
            upper = rows.pop(0)
            self._caption(upper, columns)
            if len(upper.cells) > 1:  # a column that it alone names has that name; above the first is a title
                names = {at: text for at, text in upper.cells.items() if at != columns[0]}
                rows[0] = rows[0]._replace(cells=names | rows[0].cells)
        if not rows:
            return
        continues = self._continues(rows[0])
        if not continues:
            self._header = _header_of(rows, columns)
        columns = sorted(self._header or columns)
        lines = [pipe_row([row.cells.get(at, "")[:MAX_CELL] for at in columns]) for row in rows]
        if self._header and self._is_wide(lines):
            self._rows_as_lists(rows[0 if continues else 1 :])
            return
        if self._header and not continues:
            lines[0] += f"\n{rule(len(columns))}"
        for row, line in zip(rows, lines, strict=True):
            self._draft.row(line, _cells(row, columns), continues=continues)
            continues = True

    def _continues(self, row: _Row) -> bool:
        """Whether a row after a blank row belongs to the table above."""
        below = bool(self._draft.blocks) and self._draft.blocks[-1].kind == "table"
        if not below or not self._header or not row.cells.keys() <= self._header.keys():
            return False
        return len(row.cells) > 1 and not _names_columns(row)

    def _is_wide(self, lines: list[str]) -> bool:
        header = pipe_row(self._header.values())
        return len(header) > MAX_HEADER or sum(map(len, lines)) > MAX_ROW * len(lines)

    def _caption(self, row: _Row, columns: list[int]) -> None:
        """Write a row above a table: a paragraph, or the names of groups of columns."""
        if len(row.cells) == 1:
            text, (column,) = next(iter(row.cells.values())), row.cells
            self._draft.paragraph(text[:MAX_CELL], cells=_cells(row, [column]))
        else:
            line = pipe_row([row.cells.get(at, "")[:MAX_CELL] for at in columns])
            self._draft.row(line, _cells(row, columns), continues=False)

    def _rows_as_lists(self, rows: list[_Row]) -> None:
        for row in rows:
            lines = [
                f"{self._header.get(at) or f'column {column_name(at)}'}: {one_line(text[:MAX_CELL])}"
                for at, text in sorted(row.cells.items())
            ]
            self._draft.row("\n".join(lines), _cells(row, sorted(row.cells)), continues=False)


def _header_of(rows: list[_Row], columns: list[int]) -> dict[int, str]:
    """The names of the columns if the first row has them, else {}."""
    first = rows[0].cells
    if len(rows) == 1 and len(first) <= 2:  # noqa: PLR2004 a blank row may follow the header
        return {}
    is_named = is_header([first.get(at, "") for at in columns])
    return {at: one_line(first.get(at, "")) for at in columns} if is_named else {}


def _names_groups(rows: list[_Row]) -> bool:
    """Whether the first row names groups of columns, and the second one the columns."""
    if len(rows) < 2 or not _names_columns(rows[1]):  # noqa: PLR2004 both
        return False
    return 2 * len(rows[0].cells) <= len(rows[1].cells)


def _cells(row: _Row, columns: list[int]) -> str:
    return cell_range((row.number, columns[0]), (row.number, columns[-1]))


BUILT_IN = {
    0: "General",
    1: "0",
    2: "0.00",
    3: "#,##0",
    4: "#,##0.00",
    9: "0%",
    10: "0.00%",
    11: "0.00E+00",
    12: "# ?/?",
    13: "# ??/??",
    14: "yyyy-mm-dd",
    15: "d-mmm-yy",
    16: "d-mmm",
    17: "mmm-yy",
    18: "h:mm AM/PM",
    19: "h:mm:ss AM/PM",
    20: "h:mm",
    21: "h:mm:ss",
    22: "yyyy-mm-dd h:mm",
    **dict.fromkeys((*range(27, 32), 36, *range(50, 55), 57, 58), "yyyy-mm-dd"),
    32: "h:mm",
    33: "h:mm:ss",
    37: "#,##0;(#,##0)",
    38: "#,##0;(#,##0)",
    39: "#,##0.00;(#,##0.00)",
    40: "#,##0.00;(#,##0.00)",
    41: "#,##0;(#,##0);-",
    42: "$#,##0;$(#,##0);$-",
    43: "#,##0.00;(#,##0.00);-",
    44: "$#,##0.00;$(#,##0.00);$-",
    45: "mm:ss",
    46: "[h]:mm:ss",
    47: "mm:ss.0",
    48: "##0.0E+0",
    49: "@",
}
"""Formats that files name by number. Excel shows 14 and 22 in the order of the user's country, and 27 to 58
in East Asian calendars; ISO 8601 is clear everywhere."""

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|_.|\*.|\[\$(?P<currency>[^\]-]*)[^\]]*\]'
    r"|\[(?P<elapsed>h+|m+|s+)\]|\[[^\]]*\]|(?P<general>General)|(?P<half>AM/PM|A/P|am/pm|a/p)"
    r"|(?P<scientific>E[+-]0+)|(?P<fraction>[#?0]+\s*[#?0]*/\s*[#?\d]+)|(?P<date>y+|m+|d+|h+|s+)(?P<split>\.0+)?"
    r"|(?P<digits>[0#?][0#?,.]*|\.[0#?]+)|(?P<percent>%)|(?P<text>@)|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
_LAST_DAY = 2_958_465.999_99  # 9999-12-31
_MAX_DECIMALS = 15
_MAX_FORMAT = 255  # characters, as in Excel


class _Token(NamedTuple):
    kind: str
    text: str


def formatted(number: float, form: str, *, since_1904: bool = False) -> str:
    """A number in a format such as "#,##0.00;[Red](#,##0.00)", in English notation.

    A format that can't be parsed has no effect. What isn't a number is "#NUM!", as in Excel.
    """
    if not isfinite(number):
        return "#NUM!"
    sections = _sections(form[:_MAX_FORMAT])
    at = 1 if number < 0 else 2 if number == 0 else 0
    at = at if at < len(sections) else 0
    tokens = sections[at]
    kinds = {token.kind for token in tokens}
    if kinds & {"date", "elapsed"}:
        return _date(number, tokens, since_1904=since_1904)
    size = abs(number) if at == 1 else number
    if "digits" not in kinds and "fraction" not in kinds:
        return "".join(
            _general_format(size) if token.kind in {"general", "text"} else token.text for token in tokens
        ).strip()
    return _number(size, tokens).strip()


def _general_format(number: float) -> str:
    """A number without a format: "12", "0.3", "1.5E+20"."""
    if number == int(number) and abs(number) < 1e15:  # noqa: PLR2004 digits of a float
        return str(int(number))
    return f"{number:.10g}".replace("e", "E")


@lru_cache(maxsize=512)
def _sections(form: str) -> list[list[_Token]]:
    sections: list[list[_Token]] = [[]]
    for match in _TOKEN.finditer(form or "General"):
        kind, text = match.lastgroup or "", match[0]
        if kind == "split":
            sections[-1] += [_Token("date", match["date"].lower()), _Token("split", match["split"])]
        elif kind == "other" and text == ";":
            sections.append([])
        elif kind in {"quoted", "escaped", "currency", "elapsed"}:
            sections[-1].append(_Token("elapsed" if kind == "elapsed" else "literal", match[kind] or ""))
        elif kind == "other":
            sections[-1].append(_Token("literal", text))
        elif kind:
            sections[-1].append(_Token(kind, text.lower() if kind == "date" else text))
    return sections


def _number(number: float, tokens: list[_Token]) -> str:
    percents = sum(token.kind == "percent" for token in tokens)
    digits = [token.text for token in tokens if token.kind == "digits"]
    if len(digits) > 1 and not any("." in digit_group or "," in digit_group for digit_group in digits):
        return _digits_between_marks(number, tokens)
    scientific = any(token.kind == "scientific" for token in tokens)
    texts, first = [], True
    for token in tokens:
        if token.kind == "digits":
            texts.append(_digits(number * 100**percents, token.text, scientific=scientific) if first else "")
            first = False
        elif token.kind == "fraction":
            texts.append(_fraction(number, token.text))
        elif token.kind != "scientific":
            texts.append(token.text)
    return "".join(texts)


def _digits(number: float, pattern: str, *, scientific: bool) -> str:
    whole, point, decimals = pattern.partition(".")
    thousands = len(pattern) - len(pattern.rstrip(","))
    number /= 1000**thousands
    max_decimals, min_decimals = min(len(decimals.rstrip(",")), _MAX_DECIMALS), decimals.count("0")
    if scientific:
        return f"{number:.{max_decimals}E}"
    text = f"{number:{',' if ',' in whole.rstrip(',') else ''}.{max_decimals}f}"
    while max_decimals > min_decimals and text.endswith("0"):
        text, max_decimals = text[:-1], max_decimals - 1
    text = text.removesuffix(".") if not min_decimals else text
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    before, dot, after = text.partition(".")
    zeros = min(whole.count("0"), _MAX_DECIMALS)
    if "," not in before:
        before = before.zfill(zeros)
    if not zeros and before == "0" and dot and point:
        before = ""
    return f"{sign}{before}{dot}{after}"


def _digits_between_marks(number: float, tokens: list[_Token]) -> str:
    """The digits of a number between marks: 5551234 as "000-0000" -> "555-1234"."""
    remaining = f"{abs(number):.0f}"
    texts: list[str] = []
    first = next(at for at, token in enumerate(tokens) if token.kind == "digits")
    for at, token in reversed(list(enumerate(tokens))):
        if token.kind != "digits":
            texts.append(token.text)
            continue
        size = len(remaining) if at == first else len(token.text)
        part, remaining = remaining[-size:] if size else "", remaining[:-size] if size else remaining
        texts.append(part.rjust(token.text.count("0"), "0"))
    return "".join(reversed(texts))


def _fraction(number: float, pattern: str) -> str:
    whole_shown, below = " " in pattern.strip(), pattern.rpartition("/")[2].strip()
    nearest = Fraction(number).limit_denominator(10 ** min(len(below), 4) - 1)
    whole, fraction = divmod(abs(nearest), 1)
    sign = "-" if nearest < 0 else ""
    if not fraction:
        return f"{sign}{whole}"
    return f"{sign}{whole} {fraction}" if whole_shown and whole else f"{sign}{abs(nearest)}"


def _date(number: float, tokens: list[_Token], *, since_1904: bool) -> str:
    if not 0 <= number <= _LAST_DAY:
        return _general_format(number)
    days = number + 1 if not since_1904 and 1 <= number < 60 else number  # noqa: PLR2004 Excel's 1900-02-29
    start = datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30)  # noqa: DTZ001 sheets have no zones
    fine = any(token.kind == "split" for token in tokens)
    seconds = round(days * 86_400, 3 if fine else 0)
    try:
        moment = start + timedelta(seconds=seconds)
    except OverflowError:
        return _general_format(number)
    halves = any(token.kind == "half" for token in tokens)
    texts = []
    for at, token in enumerate(tokens):
        if token.kind == "date":
            minutes = token.text[0] == "m" and _is_minutes(tokens, at)
            texts.append(_part(token.text, moment, halves=halves, minutes=minutes))
        elif token.kind == "split":
            texts.append(f"{moment.microsecond / 1e6:.{min(len(token.text) - 1, 6)}f}"[1:])
        elif token.kind == "elapsed":
            unit = {"h": 3600, "m": 60, "s": 1}[token.text[0].lower()]
            texts.append(str(int(round(number * 86_400) // unit)).zfill(len(token.text)))
        elif token.kind == "half":
            texts.append("AM" if moment.hour < 12 else "PM")  # noqa: PLR2004 noon
        elif token.kind != "text":
            texts.append(token.text)
    return "".join(texts).strip()


def _is_minutes(tokens: list[_Token], at: int) -> bool:
    """Whether an "m" after hours or before seconds is minutes, not months."""
    before, after = (
        next((token.text[0].lower() for token in beside if token.kind in {"date", "elapsed"}), "")
        for beside in (reversed(tokens[:at]), tokens[at + 1 :])
    )
    return len(tokens[at].text) < 3 and (before == "h" or after == "s")  # noqa: PLR2004 "mmm" is a month


def _part(pattern: str, moment: datetime, *, halves: bool, minutes: bool) -> str:
    size = len(pattern)
    match pattern[0]:
        case "y":
            return f"{moment.year:04}" if size > 2 else f"{moment.year % 100:02}"  # noqa: PLR2004 "yy"
        case "d":
            number, names = moment.day, [f"{moment:%a}", f"{moment:%A}"]
        case "m" if not minutes:
            number, names = moment.month, [f"{moment:%b}", f"{moment:%B}", f"{moment:%B}"[0]]
        case letter:
            hour = (moment.hour - 1) % 12 + 1 if halves else moment.hour
            number, names = {"h": hour, "m": moment.minute, "s": moment.second}[letter], []
    return [str(number), f"{number:02}", *names][min(size, 2 + len(names)) - 1]
