"""The head of a table: its caption, and the row that names its columns.

A caption describes the figures: the name of the table, the period, the unit. It is a line above the table, a
row with few filled cells ("In millions of CHF", "", "January to June 2023"), or a few pairs of words
("Period", "January to June 2023").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from rag.text.plain_text import TABLE_RULE, one_line, sentences

CAPTION_PARTS = 3  # a name, a period ("Years ended June 30"), and a unit
MAX_CAPTION_CHARS = 160  # of the lines above a table
MAX_PARAGRAPH = 1_000  # characters of a paragraph that are looked at
SENTENCE_ENDS = (".", "!", "?", "…", "。", "！", "？", "।")
LABEL = re.compile(r"\W*[^\W\d_]{2,12}\.?\s?\d{1,3}(?:\.\d{1,3})*\s?[.:)–—]")
"""The beginning of a numbered caption: "Table 1:", "Tab. 2.3 –"."""
PAGE_BREAK = "\x0c"
"""A new page begins here, within the text of a block."""
ABOVE, COVERED = "\ufdde", "\ufddd"
"""Noncharacters in place of a cell that the one above it, or to its left, goes over."""
MAX_VALUE = 100  # characters of a cell that is a value of all columns that it goes over; more are a text
MAX_GROWTH = 8  # times the length of a table: the most that values in further columns make of it

_NUMBER = re.compile(r"[\s(+\-−–]*[$€£¥]?\s?[\d.,'\u00a0\u202f ]*\d[\d.,'\u00a0\u202f]*\s?[%€$£¥)]{0,2}\s*")
_YEAR = re.compile(r"(?:19|20)\d\d")
_DAY = re.compile(r"\d{1,2}\. ?\d{1,2}\.(?: ?(?:19|20)?\d\d)?")
_COUNT = re.compile(r"\d{1,2}\.?")
_FEWEST_COUNTED = 4  # columns with the names 1, 2, 3 and so on: the days of a month, or weeks
_FIGURE = re.compile(
    r"\W*\d[\d\W]*(?:[eEdDT][-+−]?\d[\d\W]*)?(?:Z|\s?[AaPp]\.?[Mm]\.?)?|\d{1,2}[-. ][^\W\d_]{3}[-. ]\d{2,4}"
    r"|(?i:nan|#?n/?a|null|none|[-+−]?inf|[-–—?]+)"
)
"""A number, or a day or time in figures, or a sign for a missing value."""
_MAX_FIGURE = 40  # characters
_MAX_NAME = 40  # characters of the name of a column in two rows; more are a text
_UNIT = (
    r"(?:[YZEPTGMkhdcmµμunpf]?(?:m|g|s|A|K|mol|cd|Hz|N|Pa|J|Wh?|C|VA?|F|Ω|[oO]hm|S|T|H|lm|lx|Bq|Gy|Sv|eV|bar"
    r"|L|l|cal|rad|B|bit|M)|sec|min|hr?|d|a|yr|°[CFK]?|deg ?[CFK]?|[%‰]|rpm|pp[mb]|dB[a-zA-Z]?|psi|pH|in|ft"
    r"|lbf?|px|counts?|a\.u\.|€|EUR|\$|USD|CHF|GBP)"
)
_POWER = r"(?:\^?[-+−]?\d|[⁻⁺]?[¹²³⁴])?"
_UNITS = re.compile(rf"[\[(]?(?:1 ?/ ?)?{_UNIT}{_POWER}(?: ?[/·*⋅×. ] ?\(?{_UNIT}{_POWER}\)?)*[\])]?")
_MAX_UNIT = 20  # characters
_NO_UNIT = frozenset({"", "-", "–", "—", "1", "(-)", "[-]", "(1)", "[1]"})
_COMMENT = ("# ", "##", "%", "//")
_RECORD = re.compile(r"[^\n:|]{1,60}: \S[^\n]*\n[^\n:|]{1,300}: \S")
_NO_CAPTION = re.compile(r"\A(?:#|>|[-*+•]\s|```)|\n[=-]{2,}\s*\Z")
"""Headings, quotations, items of lists and code."""


class TableHead(NamedTuple):
    """The lines of a caption, the outermost first, and the header row; `rows_below` of it are part of it."""

    captions: tuple[str, ...]
    header: str
    rows_below: int = 0


def pipe_row(cells: Iterable[str]) -> str:
    """A row of a table on one line: "| Ann | 3 |"."""
    lines = (PAGE_BREAK * cell.count(PAGE_BREAK) + one_line(cell) for cell in cells)
    return f"| {' | '.join(line.replace('|', chr(92) + '|') for line in lines)} |"


def rule(columns: int) -> str:
    """The line below a header row."""
    return f"|{' --- |' * columns}"


def pipe_table(rows: Iterable[Iterable[str]], columns: int) -> str:
    """The rows of a table, with a rule of this many `columns` (0 for none) below the first of several.

    They can have `COVERED` cells.
    """
    lines = [pipe_row(row) for row in with_spanned([*map(list, rows)])]
    lines[1:1] = [rule(columns)] if columns and len(lines) > 1 else []
    return "\n".join(lines)


def with_cells_above(rows: Iterable[Sequence[str]]) -> list[Sequence[str]]:
    """The rows with the text of a cell over several rows in each of these, in place of `ABOVE`."""
    whole: list[Sequence[str]] = []
    for row in rows:
        above = [*(whole[-1] if whole else ()), *[""] * len(row)]
        whole.append([over if cell == ABOVE else cell for cell, over in zip(row, above, strict=False)])
    return whole


def with_spanned(rows: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """The rows of a table, with words in each column that they go over and that has a head of its own.

    The first words of a row are its label and stand once; so do heads, and figures, which may be sums.
    Example: ["", "Mo", "Tu"] and ["9:00", "Trip", COVERED] -> ["", "Mo", "Tu"], ["9:00", "Trip", "Trip"].
    """
    if not any(COVERED in row for row in rows):
        return rows
    begin = next((at for at, row in enumerate(rows) if any(cell.strip(COVERED) for cell in row[1:])), 0)
    end = begin
    while end < len(rows) and _names_columns(rows[end], rows[end - 1] if end > begin else ()):
        end += 1
    heads = {at for row in rows[begin:end] for at, cell in enumerate(row) if cell.strip(COVERED)}
    plain = [_with_values(row, frozenset()) for row in rows]
    spread = [*plain[:end], *(_with_values(row, heads) for row in rows[end:])]
    # A hostile table has a long cell over a thousand columns.
    return spread if _length(spread) <= MAX_GROWTH * _length(rows) else plain


def _length(rows: Iterable[Sequence[str]]) -> int:
    return sum(len(cell) for row in rows for cell in row)


def _names_columns(row: Sequence[str], groups: Sequence[str]) -> bool:
    """Whether a row has no cells of signs alone; below `groups` of columns, whether it has their names."""
    cells = [cell for cell in row if cell.strip(COVERED)]
    are_words = all(any(map(str.isalnum, cell)) for cell in cells)
    if not groups:
        return are_words
    are_parted = any(
        group == COVERED and cell.strip(COVERED) for group, cell in zip(groups, row, strict=False)
    )
    return are_words and are_parted and not has_figures(cells)


def _with_values(row: Sequence[str], heads: Collection[int]) -> list[str]:
    """The row without `COVERED`: there are the words to the left, if these are below two of the `heads`."""
    cells: list[str] = []
    value, has_label, has_head = "", False, False
    for at, cell in enumerate(row):
        if cell != COVERED:
            # A figure over several columns may be their sum, and a long text is layout.
            value = cell if has_label and _is_value(cell) else ""
            has_label, has_head = has_label or bool(cell), False
        is_below = at in heads
        cells.append(cell if cell != COVERED else value if is_below and has_head else "")
        has_head = has_head or is_below
    return cells


def _is_value(cell: str) -> bool:
    return len(cell) <= MAX_VALUE and not cell.endswith(":") and not _NUMBER.fullmatch(cell)


def is_header(row: Sequence[str], below: Sequence[Sequence[str]] = ()) -> bool:
    """Whether a row can name columns: it has words, and no numbers except years; or days or a count.

    These are above cells of another kind, as in a roster: "Name", "03.06.", "04.06."; "Name", "1", "2", "3".
    """
    filled = [cell for cell in row if cell]
    enough = len(filled) > 1 or (len(row) == 2 and not row[0])  # noqa: PLR2004 names of rows, and one column
    return enough and (_has_words(filled) or _names_days(row, below))


def _has_words(cells: Sequence[str]) -> bool:
    return not has_figures(cells) and not all(map(_NUMBER.fullmatch, cells))


def has_figures(cells: Iterable[str]) -> bool:
    """Whether cells have a number that isn't a year."""
    return any(_NUMBER.fullmatch(cell) and not _YEAR.fullmatch(cell) for cell in cells)


def _names_days(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a row, with words or a blank at its beginning, has days or numbers in order."""
    numbers = {column: cell for column, cell in enumerate(row) if column and _NUMBER.fullmatch(cell)}
    values = [cells[column] for cells in below for column in numbers if column < len(cells) and cells[column]]
    if _NUMBER.fullmatch(row[0]) or not values:
        return False
    if all(map(_DAY.fullmatch, numbers.values())):
        return len(numbers) > 1 and not any(map(_DAY.fullmatch, values))
    counted = [int(cell.rstrip(".")) if _COUNT.fullmatch(cell) else -1 for cell in numbers.values()]
    in_order = all(number >= 0 and next_ in {number + 1, 1} for number, next_ in pairwise(counted))
    return len(counted) >= _FEWEST_COUNTED and in_order


def named_figures(rows: Sequence[Sequence[str]], starts: Collection[int] = ()) -> int | None:
    """The index of the row that names columns of figures; None if no row clearly does.

    Rows above it can be names and values, such as "Instrument" and "Keithley 2400". In the rows below are
    figures in all columns that it names; or in some, if it has more cells than the rows above, or is at one
    of the `starts`, the rows after a blank one.
    """
    filled, figures = Counter[int](), Counter[int]()
    for at in range(len(rows) - 1, -1, -1):  # from below: what is above the figures may be anything
        row, is_comment = rows[at], rows[at][0].startswith(_COMMENT)
        if are_units(row):  # they are read with the names above them
            continue
        names = [column for column, cell in enumerate(row) if cell]
        values = [column for column in names if is_figure(row[column])]
        over = [column for column in names if filled[column] and figures[column] == filled[column]]
        if len(over) == len(names):
            is_header = len(filled) <= len(names) + (len(names) > 1 and not is_comment)
        else:
            is_header = bool(over) and not is_comment and at > 0 and _begins_table(rows, at, starts)
        if is_header and values:  # of sensors, named above their units
            is_header = len(values) < len(names) and are_units(rows[at + 1])
        if is_header and (at == 0 or 2 * at < len(rows) - 1):  # most rows are records, whatever stands above
            return at
        if not is_comment:
            filled.update(names)
            figures.update(values)
    return None


def _begins_table(rows: Sequence[Sequence[str]], at: int, starts: Collection[int]) -> bool:
    """Whether a row is below a blank one, or has more cells than the rows above."""
    above = (_end(row) for row in rows[:at] if not row[0].startswith(_COMMENT))
    return at in starts or max(above, default=0) < _end(rows[at])


def _end(row: Sequence[str]) -> int:
    return max((column for column, cell in enumerate(row) if cell), default=-1)


def is_figure(cell: str) -> bool:
    """Whether a cell is a number, a day or time in figures, or a sign for a missing value."""
    return len(cell) <= _MAX_FIGURE and bool(_FIGURE.fullmatch(cell))


def are_units(row: Sequence[str]) -> bool:
    """Whether a row has the units of columns: "s", "N/mm²", "(°C)"."""
    units = [cell for cell in row if cell not in _NO_UNIT]
    return bool(units) and all(len(cell) <= _MAX_UNIT and _UNITS.fullmatch(cell) for cell in units)


def with_units(names: Sequence[str], row: Sequence[str], below: Sequence[Sequence[str]]) -> list[str] | None:
    """The names of columns with their units if the row below them has these, and figures are `below` it.

    Example: ["Time", "No."] and ["s", "-"] -> ["Time (s)", "No."].
    """
    units = {at: cell for at, cell in enumerate(row) if cell not in _NO_UNIT}
    values = [cells[at] for cells in below for at in units if at < len(cells) and cells[at]]
    if not are_units(row) or len(row) > len(names) or not values or not all(map(is_figure, values)):
        return None
    brackets = {at: unit if unit[0] in "([" else f"({unit})" for at, unit in units.items()}
    return [f"{name} {brackets[at]}".strip() if at in brackets else name for at, name in enumerate(names)]


def table_head(above: Sequence[str], header: str, below: Sequence[str]) -> TableHead:
    """The head of a table below the parts `above` whose header row has the rows `below` under its rule.

    Rows that name groups of columns are read together with the columns, above the header or from it on.
    Example: "| | Sales | |" above "| Zone | 2022 | 2023 |" -> "| Zone | Sales 2022 | Sales 2023 |".
    """
    names, first, second, third = _cells(header), *map(_cells, [*below[:3], "", "", ""][:3])
    lower = grouped(first, second) if any(third) and not is_header(third) else None  # third is a record
    columns = (grouped(names, lower) if lower else None) or grouped(names, first)
    columns = columns or with_units(names, first, [second])
    while above and "\n" not in above[-1] and (upper := grouped(_cells(above[-1]), columns or names)):
        columns, above = upper, above[:-1]
    if columns:
        return TableHead(caption_lines(above), pipe_row(columns))
    is_caption = names[0] and not any(names[1:]) and len(names) == len(first) > 1
    if is_caption and is_header(first) and any(second) and not is_header(second):
        return TableHead((*caption_lines(above), names[0]), below[0].strip(), 1)
    return TableHead(caption_lines(above), header)


def grouped(groups: Sequence[str], names: Sequence[str]) -> list[str] | None:
    """The names of columns, each below the name of its group; None if the upper row doesn't name groups.

    A group that isn't repeated goes on until the next one. Names can also go on in the lower row.
    Example: ["Zone", "Sales", ""] and ["", "2022", "2023"] -> ["Zone", "Sales 2022", "Sales 2023"].
    """
    if len(groups) != len(names) or not any(groups[1:]) or not is_header(names):
        return None
    if not _are_groups(groups, names):
        return None
    if not any(group and group == following for group, following in pairwise(groups)):
        first = 1 if names[0] in {"", groups[0]} else 0  # the first column has a name of its own
        spread: Iterable[str] = accumulate(groups[first:], lambda current, group: group or current)
        groups = [*groups[:first], *spread]
    return [
        group if name in {"", group} else f"{group} {name}".strip()
        for group, name in zip(groups, names, strict=True)
    ]


def _are_groups(groups: Sequence[str], names: Sequence[str]) -> bool:
    goes_on = bool(not names[0] and groups[0] and groups[1] and max(map(len, names)) <= _MAX_NAME)
    is_whole = all(groups) and all(names[1:]) and len(names) > 2  # noqa: PLR2004 a single one can be a value
    if goes_on and is_whole:
        return True
    spans = any(group and following in {"", group} for group, following in pairwise(groups))
    has_common_name = any(group and group == name for group, name in zip(groups, names, strict=True))
    return spans and (not groups[0] or has_common_name or goes_on)


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def caption_lines(above: Sequence[str]) -> tuple[str, ...]:
    """The caption in the last parts above a table, each on one line; none if they are ordinary text.

    Together they are short enough for replies.

    Example: "Sales grew.", "Balance sheets" and "(in millions)" -> "Balance sheets", "(in millions)".
    """
    lines: list[str] = []
    for part in reversed(above[-CAPTION_PARTS:]):
        line = caption_line(part)
        if not line or len(" ".join((line, *lines))) > MAX_CAPTION_CHARS:  # the nearest is mostly the period
            break
        lines.insert(0, line)
    return tuple(lines)


def caption_line(part: str) -> str:
    """A paragraph that is numbered or doesn't end like a sentence, or its last sentence before a colon.

    Of rows, the cells if all rows have words; "" if a rule below them names columns, except for pairs.
    """
    if part.startswith("|"):
        line = _line_of_rows(part.split("\n"))
    else:
        line = one_line(part[-MAX_PARAGRAPH:])
        if line.endswith((":", "：")):
            line = [line[start:end] for start, end in sentences(line)][-1]
        elif line.endswith(SENTENCE_ENDS) and not LABEL.match(line):
            line = ""
    return line if len(line) <= MAX_CAPTION_CHARS else ""


def _line_of_rows(rows: Sequence[str]) -> str:
    is_pairs = all(len(_cells(row)) == 2 for row in rows)  # noqa: PLR2004 a name and a value
    rows = [row for row in rows if not (is_pairs and TABLE_RULE.fullmatch(row))]
    cells = [[cell for cell in _cells(row) if cell] for row in rows]
    # Years alone may name groups of columns.
    if len(rows) > CAPTION_PARTS or any(map(TABLE_RULE.fullmatch, rows)) or any(map(has_figures, cells)):
        return ""
    return " ".join(cell for row in cells for cell in row)


def head_of_row(passed: str, row: str, inherited: str, headings: Collection[str]) -> str:
    """The head of a table's row that is shown without the text before it in its passage, `passed`.

    `inherited` is the head at the beginning of the passage; the `headings` above that aren't captions.
    """
    *parts, block = _parts(passed)
    header, _, following = block.partition("\n")
    rule = TABLE_RULE.match(following) if header.startswith("|") else None
    if not parts and inherited and not rule:
        return inherited
    above = _above(parts, inherited, headings)
    if not rule:
        return " ".join(caption_lines(above))
    head = table_head(above, header, [*following[rule.end() :].splitlines(), row])
    captions = (inherited,) if not parts and inherited else head.captions
    return " ".join((*captions, head.header))


def head_of_record(passed: str, record: str, inherited: str, headings: Collection[str]) -> str:
    """The caption of a record, a line for each column, that is shown without the text before it; as above."""
    parts = [*_parts(passed)][:-1]
    key = f"{record.partition(': ')[0]}: "
    while parts and is_record(parts[-1]):
        parts.pop()
    if parts:
        return " ".join(caption_lines(_above(parts, inherited, headings)))
    if passed.startswith(key) or not passed:
        return inherited
    return inherited.rpartition(key)[0].strip()  # without the first line of the record that was cut


def is_record(part: str) -> bool:
    """Whether a part has a line for each of several columns: "Zone: North" and "Sales: 5"."""
    return bool(_RECORD.match(part))


def _parts(passed: str) -> Iterator[str]:
    """The parts between blank lines and beginnings of tables."""
    for part in passed.split("\n\n"):
        above, _, rows = part.partition("\n|") if not part.startswith("|") else ("", "", part)
        yield from (above, f"|{rows}") if above and rows else (part,)


def _above(parts: Iterable[str], inherited: str, headings: Collection[str]) -> list[str]:
    """The parts of a passage that can be a caption of the table below them.

    A line between two tables can belong to the upper one: it is left out unless that one has a caption.
    """
    caption = inherited.partition("|")[0].strip()
    above: list[str] = []
    is_below_table = False
    for number, part in enumerate(parts):
        is_caption = bool(caption_line(part)) and (number > 0 or not inherited)
        if part.startswith("|") and not is_caption:
            if number:
                caption = " ".join(caption_lines(_unclaimed(above, caption) if is_below_table else above))
            above, is_below_table = [], True
        elif part.strip() in headings or _NO_CAPTION.search(part):
            above, is_below_table = [], False
        else:
            above.append(part)
    return _unclaimed(above, caption) if is_below_table else above


def _unclaimed(below: list[str], caption: str) -> list[str]:
    """The parts below a table with this caption, without the first one if that can be its caption."""
    return below[1:] if below and (not caption or caption_line(below[0]) in caption) else below
