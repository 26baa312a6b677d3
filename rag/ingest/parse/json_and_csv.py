"""JSON, JSON lines, CSV, TSV and lists of references: records become readable lines, one block each.

Every row of a CSV table is written with the names of its columns.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, pairwise
from pathlib import PurePath
from typing import Any, NamedTuple

from rag.corpus import Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse import json_exports
from rag.ingest.parse.document_parts import clean, date, with_letters, with_whole_letters
from rag.ingest.parse.records import DECIMAL, reads_as_sections, record_facts, record_lines, records_document
from rag.ingest.parse.text_and_settings import json_blocks
from rag.text import plain_text
from rag.text.table_heads import grouped, is_header, named_figures, with_units

JSON_SUFFIXES = (".json", ".jsonc", ".canvas", ".avsc")
LINES_SUFFIXES = (".jsonl", ".ndjson")

_DEEPEST = 4  # objects around a list of records
_READABLE = 200  # characters per line on average; JSON with longer lines was not written to be read


def parse_json(text: str, name: str) -> Document:
    """The document of a JSON file; exports of chats and notes are recognized.

    The name may have the file's folder before it: that is the channel of a day in Slack.

    A list of objects is read as records, also inside an object that is little else, if they have titles and
    texts. Other JSON stays as it is, or becomes records if its lines are too long to read. A single record
    states the document's title and `url`.

    Raises:
        EmptyFileError: it has no values, or is a note that was thrown away.
    """
    path, text = PurePath(name), with_whole_letters(text)
    value, name = _lenient_value(text), path.name
    if export := json_exports.export_document(value, name, path.parent.name):
        return export
    if value in ([], {}, "", None):
        raise EmptyFileError("it has no values")
    records, _ = _listed(value)
    is_readable = len(letters := with_letters(text)) <= _READABLE * (1 + text.count("\n"))
    is_list = records and (records is value or (records[1:] and reads_as_sections(records)))
    if is_readable and not is_list:
        title, metadata = record_facts([value])
        return Document(letters, title or name, "application/json", json_blocks(letters), metadata=metadata)
    spelled = _lenient_value(text, as_spelled=True)
    records, others = _listed(spelled)
    if not records:
        return records_document([_record(spelled)], name, "application/json")
    title, metadata = record_facts([others])
    document = records_document(records, title or name, "application/json", above=record_lines(others))
    return replace(document, metadata={**document.metadata, **metadata})


def _listed(value: Any) -> tuple[list[Mapping[str, object]], Mapping[str, object]]:  # noqa: ANN401 what JSON holds
    """The objects in a list, or in the one that most of an object is, as APIs reply; and its other values.

    Example: {"tickets": [{"id": 1}, {"id": 2}], "count": 2} -> [{"id": 1}, {"id": 2}] and {"count": 2}.
    """
    others, path = dict[str, object](), ""
    while isinstance(value, dict) and path.count(" ") < _DEEPEST and value:
        sizes = {key: len(json.dumps(inner)) for key, inner in value.items()}
        largest = max(sizes, key=lambda key: sizes[key])
        if 2 * sizes[largest] < sum(sizes.values()):
            break
        others |= {f"{path}{key}": inner for key, inner in value.items() if key != largest}
        path, value = f"{path}{largest} ", value[largest]
    is_list = isinstance(value, list) and all(isinstance(item, dict) for item in value)
    return (value, others) if is_list else ([], {})


def _lenient_value(text: str, *, as_spelled: bool = False) -> Any:  # noqa: ANN401 what JSON holds
    """The value of JSON, which may have comments and trailing commas; decimals `as_spelled`."""
    try:
        return _value(text, "", as_spelled=as_spelled)
    except ParseError:
        return _value(
            plain_text.without_trailing_commas(plain_text.without_json_comments(text)),
            "",
            as_spelled=as_spelled,
        )


def parse_json_lines(text: str, name: str) -> Document:
    """The document of a file with a JSON value on each line: a block for each."""
    lines = ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
    values = (_value(line, f"line {number}: ", as_spelled=True) for number, line in lines)
    return records_document(map(_record, values), name, "application/jsonl")


def _value(text: str, where: str, *, as_spelled: bool) -> object:
    try:
        return json.loads(text, parse_float=f"{DECIMAL}{{}}".format if as_spelled else None)
    except RecursionError as error:
        raise ParseError(f"{where}JSON nested too deeply") from error
    except json.JSONDecodeError as error:
        where = where or f"line {error.lineno}: "
        raise ParseError(f"{where}invalid JSON ({error.msg}, column {error.colno})") from error
    except ValueError as error:
        raise ParseError(f"{where}a number is too large") from error


def _record(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {"value": value}


CSV_SUFFIXES = (".csv", ".tsv", ".tab")

_DELIMITERS = "\t;|,"
_PAIR = 2  # cells
_LOOKED_AT = 200  # rows that tell how a table is written; an instrument writes a hundred above its figures
_SEPARATOR = re.compile(r"\"?sep=(.)\"?[ \t]*(?:\n|\Z)", re.IGNORECASE)  # as Excel takes it in the first line
NO_HEADER = "no row names the columns of the table, so they are numbered"
_AMOUNT = re.compile(r"[-+]?[ ]?(?:\d{1,3}(?:[., '\u00a0]\d{3})*|\d+)[.,]\d{2,4}|[-+]\d+")
"""Such as -850.00 and 1.234,56."""
_DECIMALS = re.compile(r"[\d.]+(?: ?[^\W\d_]{1,3}| ?[€$£%])?\"?(?:[;\t]|\Z)")
"""What is behind the comma of an amount, up to the next delimiter."""
_LONGEST_DATE = 40  # characters
_COMMENT = re.compile(r"(?:#{2}|//|#\s)")
_SIGN = re.compile(r"(#|%|//)\1*\s*(?=\S)")  # of a comment, before its words


class _Row(NamedTuple):
    """The cells of a row that isn't blank, and the number of its last line."""

    cells: list[str]
    line: int


def parse_csv(text: str, name: str) -> Document:
    """The document of a table: a block for each row, with `column: value` lines, readable on its own.

    The row above figures names the columns, else the first row with about as many cells as the others, unless
    it is a record like them. Rows above it (a title, comments, the date of the export) are a paragraph. So
    are notes below the table, and all of a file without records.
    """
    text = plain_text.without_note_ids(text.lstrip("\n\ufeff "))
    stated = _SEPARATOR.match(text)
    text = text[stated.end() :] if stated else text
    delimiter = stated[1] if stated else max(_DELIMITERS, key=lambda sign: _delimiter_evidence(text, sign))
    above, names, records, remarks = _table(text, delimiter)
    mime_type = "text/tab-separated-values" if delimiter == "\t" else "text/csv"
    rows = [*records]
    end = _first_note(rows, len(names))
    notes = clean("\n".join(" ".join(filter(None, row)) for row in rows[end:]))
    table = records_document(_records(names, rows[:end]), name, mime_type, above=above, below=notes)
    return replace(table, remarks=remarks)


def _rows(text: str, delimiter: str) -> Iterator[_Row]:
    """The rows that aren't blank.

    Raises:
        ParseError: a cell is too large, for example because its quotation mark is never closed.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=delimiter != "\t")
    try:
        for row in rows:
            if any(cells := [cell.strip() for cell in row]):
                yield _Row(cells, rows.line_num)
    except csv.Error as error:
        raise ParseError(f"line {rows.line_num}: {error}") from error


def _delimiter_evidence(text: str, delimiter: str) -> tuple[float, int]:
    """The evidence for a delimiter: the share of rows with the usual number of cells, and that number."""
    try:
        rows = [row.cells for row in islice(_rows(text, delimiter), _LOOKED_AT)]
    except ParseError:
        return 0.0, text.partition("\n")[0].count(delimiter)
    if delimiter == ",":
        rows = [[",".join(row)] if _cuts_within_cells(row) else row for row in rows]
    width = _usual_width(rows)
    alike = sum(len(row) == width for row in rows)
    return (alike / len(rows) if width > 1 else 0.0), width


def _cuts_within_cells(pieces: Sequence[str]) -> bool:
    """Whether commas cut a row with another delimiter within its cells: "Rent;-850,00", "1;Kiel, Stadt;8"."""
    return any(
        any(sign in piece for piece in pieces)
        and all(
            (sign in piece and sign in following) or (piece[-1:].isdigit() and _DECIMALS.match(following))
            for piece, following in pairwise(pieces)
        )
        for sign in ";\t"
    )


def _usual_width(rows: Sequence[Sequence[str]]) -> int:
    """The usual number of cells, of rows with more than one cell if there are any."""
    widths = Counter(len(row) for row in rows if len(row) > 1)
    return max(widths, key=lambda width: (widths[width], width)) if widths else 1


def _table(text: str, delimiter: str) -> tuple[str, Sequence[str], Iterator[list[str]], tuple[str, ...]]:
    """The text above a table, the names of its columns, if a row has them, its records, and remarks."""
    rows = _rows(text, delimiter)
    sample = [*islice(rows, _LOOKED_AT)]
    if not sample or not text.strip(f'{_DELIMITERS}" \n'):
        return "", (), iter(()), ()
    cells = [row.cells for row in sample]
    raw_rows = [*_as_written(text, sample, delimiter)]
    # An instrument writes names and values above its figures: these would name the columns.
    at = named_figures(cells, {at for at, raw in enumerate(raw_rows) if raw.startswith("\n")})
    is_record, of_figures = False, at is not None
    if at is None:
        at = _first_wide_row(cells)
        is_record = _is_record(cells[at], cells[at + 1 :])  # a bank statement may begin with its first record
    names, below = cells[at], cells[at + 1 :]
    if not below:
        return clean("\n".join(map(str.strip, raw_rows))), (), iter(()), ()
    if at and sum(map(bool, cells[at - 1])) > 1 and (columns := grouped(cells[at - 1], names)):
        names, at, of_figures = columns, at - 1, True
    above = clean("\n".join(map(str.strip, raw_rows[:at])))
    records = chain(below, (row.cells for row in rows))
    if is_record:
        return above, (), chain([names], records), (NO_HEADER,)
    names = _without_sign(names, above)
    if columns := with_units(names, below[0], below[1:]):
        names, records = columns, chain(below[1:], (row.cells for row in rows))
    return above, [*_names(names, apart=of_figures)], records, ()


def _as_written(text: str, rows: Sequence[_Row], delimiter: str) -> Iterator[str]:
    """The lines of each row without the delimiters at their ends, with a blank line if there is one above."""
    ends = [0, *(row.line for row in rows)]
    lines = [line.strip(f" {delimiter}") for line in text.split("\n", ends[-1])]
    for row, (start, end) in zip(rows, pairwise(ends), strict=True):
        raw = "\n".join(lines[start:end]).strip()
        texts = [cell for cell in row.cells if cell]
        is_plain = '"' not in raw and raw.count(delimiter) < len(texts)
        yield ("" if lines[start] else "\n") + (raw if is_plain else " ".join(texts))


def _without_sign(names: list[str], above: str) -> list[str]:
    """The names of columns without the sign of a comment, as numpy writes them: "# time"."""
    sign = _SIGN.match(names[0])
    is_comment = sign and (sign[1] == "#" or f"\n{sign[1]}" in f"\n{above}")
    return [names[0][sign.end() :], *names[1:]] if sign and is_comment else names


def _first_wide_row(rows: Sequence[Sequence[str]]) -> int:
    """The index of the first row with about as many cells as the others, unless that is a comment.

    Shorter rows can be above the table: at a bank, pairs such as "Balance" and "2.104,55", in any number.
    """
    width = _usual_width(rows)
    pairs = pairwise([*rows, ()])
    first = next((at for at, (row, next_) in enumerate(pairs) if _names_columns(row, next_, width)), 0)
    wide = next(at for at, row in enumerate(rows) if len(row) >= width)
    below_pairs = next((at for at, row in enumerate(rows) if sum(map(bool, row)) > _PAIR), first)
    heads = (at for at in (wide, below_pairs) if at > first and len(rows[at]) > len(rows[first]))
    return next((at for at in heads if _are_above_record(*rows[at : at + 2])), first)


def _are_above_record(names: Sequence[str], record: Sequence[str] = ()) -> bool:
    return is_header(names) and len(record) == len(names) and not is_header(record)


def _names_columns(row: Sequence[str], next_: Sequence[str], width: int) -> bool:
    """Whether a row can name the columns of a table, and the row below isn't a better candidate."""
    filled = sum(map(bool, row))
    if _COMMENT.match(row[0]) or (width > 1 and (filled == 1 or 2 * filled < width)):
        return False
    return len(row) >= width or len(next_) < width or not is_header(next_)


def _is_record(row: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a row has a date or an amount in a column in which all rows below have one.

    Whole numbers tell nothing: years, weeks and numbers of questions name columns.
    """
    for at, cell in enumerate(row):
        if kind := _value_kind(cell):
            column = [cells[at] for cells in below if len(cells) > at and cells[at].strip()]
            if column and all(_value_kind(value) == kind for value in column):
                return True
    return False


def _value_kind(cell: str) -> str:
    cell = cell.strip()
    if _AMOUNT.fullmatch(cell):
        return "amount"
    return "date" if len(cell) <= _LONGEST_DATE and not cell.isdigit() and date(cell) else ""


def _first_note(rows: Sequence[Sequence[str]], width: int) -> int:
    """The index of the first note below a table of this width; the number of rows without notes.

    A note is a single cell that has no delimiters, begins with a sign, or has a colon. No whole record is
    below it.
    """
    first = len(rows)
    for at in range(len(rows) - 1, 0, -1):
        cell, *cells = rows[at]
        if len(rows[at]) >= width and any(cells):
            break
        is_text = not cells or not cell[:1].isalnum() or ":" in cell
        first = at if is_text and cell and not any(cells) else first
    return first if width > 1 else len(rows)


def _records(names: Sequence[str], rows: Iterable[list[str]]) -> Iterator[dict[str, object]]:
    for row in rows:
        cells: dict[str, list[str]] = {}
        for number, cell in enumerate(row):
            name = names[number] if number < len(names) else f"column {number + 1}"
            cells.setdefault(name, []).append(cell)
        yield {name: values if len(values) > 1 else values[0] for name, values in cells.items()}


def _names(header: Iterable[str], *, apart: bool) -> Iterator[str]:
    """The names of the columns. A missing one is the number of its column, a repeated one is numbered.

    Columns of one name side by side hold several values of one thing, as the labels in an export of Jira, and
    keep their name, unless each is a column of figures `apart`.
    """
    counts = Counter[str]()
    above = ("", "")  # the name of the last column, and what it is called here
    for number, cell in enumerate(header, 1):
        name = plain_text.one_line(cell) or f"column {number}"
        if apart or name != above[0]:
            counts[name] += 1
            above = (name, f"{name} {counts[name]}" if counts[name] > 1 else name)
        yield above[1]


REFERENCE_SUFFIXES = (".ris", ".nbib", ".enw")

_TAGGED = re.compile(r"(?:([A-Z][A-Z0-9][A-Z0-9 ]{2})-|(%\S))(?: (.*)|$)")
_BEGINS_REFERENCE = ("TY", "PMID", "%0")
_TAGS = {
    **dict.fromkeys(("TI", "T1", "%T"), "title"),
    **dict.fromkeys(("AU", "A1", "FAU", "%A"), "author"),
    **dict.fromkeys(("JO", "JF", "T2", "JT", "%J"), "journal"),
    **dict.fromkeys(("PY", "Y1", "DP", "%D"), "date"),
    **dict.fromkeys(("DO", "LID", "%R"), "doi"),
    **dict.fromkeys(("AB", "N2", "%X"), "abstract"),
    **dict.fromkeys(("KW", "OT", "%K"), "keywords"),
    **dict.fromkeys(("UR", "%U"), "url"),
    **dict.fromkeys(("PB", "%I"), "publisher"),
    **dict.fromkeys(("N1", "%Z"), "notes"),
}
"""What tags of RIS, PubMed and EndNote mean; others stay as they are."""


def parse_references(text: str, name: str) -> Document:
    """The document of a list of references with tags ("AU  - Lee, Ann", "%A Lee, Ann"): a block for each."""
    records: list[dict[str, list[str]]] = []
    values: list[str] = []
    for line in text.split("\n"):
        if tagged := _TAGGED.match(line):
            tag, value = (tagged[1] or tagged[2]).strip(), (tagged[3] or "").strip()
            if tag in _BEGINS_REFERENCE or not records:
                records.append({"title": [], "author": []})
            values = records[-1].setdefault(_TAGS.get(tag, tag), [])
            values += [value] if value else []
        elif values and line.strip():
            values[-1] += f" {line.strip()}"
    joined = ({key: "; ".join(dict.fromkeys(values)) for key, values in record.items()} for record in records)
    return records_document(joined, name, "text/plain")
