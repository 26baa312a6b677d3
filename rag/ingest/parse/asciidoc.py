"""AsciiDoc: headings, lists, tables and code, without attributes, comments and block marks.

What a file calls by the name of an attribute, such as {product}, is replaced by the value that it gives it,
and a reference without a text, such as <<install>>, by the title that it leads to.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from unicodedata import east_asian_width

from rag.corpus import BlockKind, Document
from rag.ingest.parse.document_draft import unread_files
from rag.ingest.parse.document_parts import MAX_SPAN, NAMED, MergedCells, Part, compose, date, facts, listing
from rag.ingest.parse.titles_and_questions import first_heading, heading_words, starred, with_questions
from rag.report import counted, names_briefly
from rag.text.table_heads import pipe_table

SUFFIXES = (".adoc", ".asciidoc", ".asc")

_HEADING = re.compile(r"(?P<marks>={1,6}|#{1,6})[ \t]+(?P<title>\S.*?)(?:[ \t]+(?:=+|#+))?[ \t]*$")
_UNDERLINED = re.compile(r"(?![ \t]|[*.-]+[ \t]|.*::$)\W*+\w")  # a text, but no item of a list
_UNDERLINE = re.compile(r"(?:={3,}|-{3,}|~{3,}|\^{3,}|\+{3,})[ \t]*$")
_LEVELS = {
    "=": "=",
    "-": "==",
    "~": "===",
    "^": "====",
    "+": "=====",
}  # the marks of a title, by its underline
_ATTRIBUTE = re.compile(r":(?P<key>!?[\w-]+!?):(?:[ \t]+(?P<value>.*))?$")
_BLOCK_ATTRIBUTES = re.compile(r"\[(?:\[[^\]]*\]|[^\[\]]*)\][ \t]*$")
_SOURCE = re.compile(r"\[(?:source)?,\s*(\w[\w+-]*)")
_WITH_VALUES = re.compile(r"\bsubs\s*=\s*\"?[^\"\]]*(?<!-)\b(?:attributes|normal)\b")
_ADMONITION = re.compile(r"\[(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\b")
_QUOTED = re.compile(r"\[(?:quote|verse)\b[^\],]*,\s*([^\]]*[^\]\s])\s*\]")
_COLUMNS = re.compile(r"\bcols\s*=\s*\"?([^\"\]]+)")
_TABLE_FORMAT = re.compile(r"\bformat\s*=\s*\"?([a-z]+)")
_SEPARATOR = re.compile(r"\bseparator\s*=\s*\"?(\\t|[^\s\"\]])")
_SEPARATORS = {"csv": ",", "tsv": "\t", "dsv": ":", ",": ",", ":": ":", "!": "!"}  # by format, or by fence
_CONDITION = re.compile(r"(?P<kind>ifdef|ifndef)::(?P<name>[\w-]+)\[(?P<text>.+)\][ \t]*$")
_DIRECTIVE = re.compile(r"(?:ifdef|ifndef|ifeval|endif)::")
_INCLUDE = re.compile(r"include::([^\[\]]+)\[")
_BLOCK_TITLE = re.compile(r"\.([^\s.].*)$")
_FENCE = re.compile(r"(?:-{4,}|\.{4,}|`{3,}\w*|\+{4,}|/{4,})[ \t]*$")
_BOX = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--|\"\")[ \t]*$")
_TABLE = re.compile(r"[|,:!]={3,}[ \t]*$")
_ITEM = re.compile(r"[ \t]*(?:\*{1,6}|\.{1,6}|-|\d+\.)[ \t]+\S|\S.*?:{2,4}(?:[ \t]|$)")
_AUTHOR = re.compile(r"(?P<name>[^\W\d_][^<>:=|]{1,80}?)[ \t]*(?:<[^<>\s]+>)?(?:;.*)?$")
_REVISION = re.compile(r"(?:v[\d.]+,?[ \t]*)?(?P<day>\d{4}-\d\d-\d\d)")
_TARGET = r"[^\s\[\]<>]{1,2000}"
_LINK = re.compile(rf"(?:link:|xref:)?((?:https?://|mailto:){_TARGET})\[([^\[\]]+)\]")
_REFERENCE = re.compile(
    rf"<<[^<>,]+,\s*([^<>]+)>>|(?:xref|link):{_TARGET}\[([^\[\]]+)\]"
    rf"|image::?{_TARGET}\[([^\[\],]*)[^\]]{{0,2000}}\]"
)
_WITHOUT_TEXT = re.compile(
    r"(?<!\\)<<#?(?P<id>[\w/.:][^<>,]{0,200})>>"
    rf"|(?:xref:#?|link:|(?=https?://))(?P<target>{_TARGET})\[\]"
)
_ANCHOR = r"(?:(?<![\\\[])\[\[[^\W\d][\w:.-]*(?:,[^\[\]]*)?\]\](?!\])|\banchor:[\w:.-]+\[[^\[\]]*\])"
_ANCHORS = re.compile(rf"(?<!\S){_ANCHOR}[ \t]*|{_ANCHOR}")
_STATED_ID = re.compile(
    r"\[\[(?P<id>[^\[\],]+)(?:,\s*(?P<label>[^\[\]]+))?\]\]|(?:\[#|\bid=\"?)(?P<of_block>[\w:][\w:-]*)"
)
_STYLED = re.compile(r"\[[#.][^\s\[\]]*\](#{1,2})(?=\S)([^#\n]+)\1")
# fmt: off
_BUILT_IN = {
    "empty": "", "blank": "", "sp": " ", "nbsp": "\u00a0", "amp": "&", "lt": "<", "gt": ">",
    "plus": "+", "vbar": "|", "apos": "'", "quot": '"', "deg": "°", "cpp": "C++", "backslash": "\\",
    "asterisk": "*", "backtick": "`", "caret": "^", "tilde": "~", "startsb": "[", "endsb": "]",
    "two-colons": "::", "two-semicolons": ";;", "brvbar": "¦", "zwsp": "", "wj": "",
}
# fmt: on
_ATTRIBUTE_NAME = re.compile(r"\\?\{(\w[\w-]{0,60})\}")
_MAX_VALUE, _MAX_ADDED = 1_000, 1_000_000  # characters of an attribute, and of all that a file calls for
_CELL = (  # before a cell: how many columns and rows it spans, or how often it comes; its place and style
    r"(?<!\\)(?:(?:^|(?<=[ \t]))(?:(?P<across>\d{1,9})?(?:\.(?P<down>\d{1,9}))?(?P<sign>[+*]))?"
    r"(?:[<^>]|\.[<^>]){0,2}[a-z]?)?"
)


def parse(text: str, name: str) -> Document:
    """The document of an AsciiDoc file; its header states the title, the author and the date."""
    attributes = _Attributes([*_with_one_line_titles(text.split("\n"))])
    lines, stated = attributes.lines, attributes.first_values
    start, author, day = _header(lines)
    body, blocks = compose(_parts(lines, start, author))
    blocks = with_questions(body, blocks, bold=starred(body, blocks))
    included = [match[1] for match in filter(None, map(_INCLUDE.match, lines))]
    return Document(
        text=body,
        title=stated.get("title", "")
        or first_heading(body, blocks, name)
        or stated.get("navtitle", "")
        or name,
        mime_type="text/asciidoc",
        blocks=blocks,
        date=date(stated.get("revdate", "") or day),
        metadata=facts(
            author=stated.get("author") or stated.get("authors") or author,
            keywords=stated.get("keywords") or stated.get("page-tags"),
            language=stated.get("lang"),
            description=stated.get("description"),
        ),
        remarks=(*attributes.remarks, *unread_files(included)),
    )


def _with_one_line_titles(lines: Sequence[str]) -> Iterator[str]:
    """The lines with "== Name" for a title and the line below it that underlines it: "Name", "----"."""
    fence, is_start, at = "", True, 0
    while at < len(lines):
        line = lines[at].rstrip()
        at += 1
        if fence:  # there are no titles inside of blocks, whose end looks like an underline
            fence = "" if line == fence else fence
        elif is_start and at < len(lines) and _is_underlined(line, lines[at].rstrip()):
            yield f"{_LEVELS[lines[at][0]]} {line}"
            at += 1
            continue
        elif any(pattern.match(line) for pattern in (_FENCE, _TABLE, _BOX)):
            fence = _closing(line)
        is_start = not fence and (not line or _is_special(line) or _is_omitted(line))
        yield lines[at - 1]


def _is_underlined(line: str, below: str) -> bool:
    """Whether a text has an underline below it: a line as long as the text, by characters or columns."""
    if not (_UNDERLINE.match(below) and _UNDERLINED.match(line) and _is_text(line)):
        return False
    columns = len(line) + sum(east_asian_width(character) in {"W", "F"} for character in line)
    return len(line) - 2 <= len(below) <= columns + 2


class _Attributes:
    """The lines of an AsciiDoc file with values in place of attributes, and titles in place of references.

    `first_values` are those that it gives first; they count for the lines above, too, such as its title.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._unknown: dict[str, None] = {}
        self._room = _MAX_ADDED
        self._values = dict(_BUILT_IN)
        for match in filter(None, map(_ATTRIBUTE.match, lines)):
            self._define(match, replace=False)  # the title stands above the attributes that it calls for
        self.first_values = dict(self._values)
        self._titles = _titles(lines)  # a reference may come before what it leads to
        self.lines = [*self._expanded(lines)]

    @property
    def remarks(self) -> Sequence[str]:
        """The remark on attributes that the file doesn't define, if there are any."""
        unknown = [*self._unknown]
        count = counted(len(unknown), "unknown attribute")
        return [f"{count} left as {{name}}: {names_briefly(unknown, NAMED)}"] if unknown else []

    def _define(self, match: re.Match[str], *, replace: bool) -> None:
        name = match["key"].casefold()
        if name.strip("!") != name:
            if replace:
                self._values.pop(name.strip("!"), None)
        elif replace or name not in self._values:
            self._values[name] = self._replaced(match["value"] or "")[:_MAX_VALUE]

    def _expanded(self, lines: Sequence[str]) -> Iterator[str]:
        fence, in_code = "", False
        for line in lines:
            if fence:  # code is as it was written, unless its attributes ask for values
                fence = "" if line.rstrip() == fence else fence
                yield self._replaced(line, note_unknown=True) if in_code else line
                continue
            fence = _closing(line) if _FENCE.match(line) else ""
            if match := _ATTRIBUTE.match(line):
                self._define(match, replace=True)
                yield line
            elif match := _CONDITION.match(line):
                is_shown = (match["name"].casefold() in self._values) == (match["kind"] == "ifdef")
                yield self._replaced(match["text"], note_unknown=True) if is_shown else ""
            else:
                if not fence and not _BLOCK_TITLE.match(line):
                    in_code = bool(_BLOCK_ATTRIBUTES.match(line) and _WITH_VALUES.search(line))
                yield self._replaced(_WITHOUT_TEXT.sub(self._title, line), note_unknown=True)

    def _title(self, reference: re.Match[str]) -> str:
        """What a reader sees of a reference without a text."""
        target = reference["id"] or reference["target"]
        unknown = f"[{target}]" if reference["id"] else target
        return self._titles.get(_comparable(target), unknown)

    def _replaced(self, text: str, *, note_unknown: bool = False) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1].casefold()
            if match[0].startswith("\\"):
                return match[0][1:]
            if name not in self._values or self._room < 0:
                self._unknown |= {match[1]: None} if note_unknown else {}
                return match[0]
            self._room -= len(self._values[name])  # a short file may call for a long value again and again
            return self._values[name]

        return _ATTRIBUTE_NAME.sub(value, text) if "{" in text else text


def _titles(lines: Iterable[str]) -> dict[str, str]:
    """The titles of sections and blocks by their ids; titles of sections also by themselves."""
    titles: dict[str, str] = {}
    ids: list[str] = []
    title = ""
    for line in lines:
        heading, block_title = _HEADING.match(line), _BLOCK_TITLE.match(line)
        if not (heading or block_title or _is_omitted(line)):
            ids, title = [], ""
            continue
        for stated in _STATED_ID.finditer(line):
            ids.append(stated["id"] or stated["of_block"])
            if stated["label"]:
                titles.setdefault(_comparable(ids[-1]), stated["label"])
        if heading:
            ids.append(heading["title"])
        if heading or block_title:
            title = _readable(heading["title"] if heading else line[1:])
        if title:
            for id_ in ids:
                titles.setdefault(_comparable(id_), title)
        if title and ids:
            ids, title = [], ""
    return titles


def _comparable(id_: str) -> str:
    """An id as written by hand or made from a title, whatever its prefix and separators."""
    return re.sub(r"[\W_]+", "-", id_.casefold()).strip("-")


def _header(lines: Sequence[str]) -> tuple[int, str, str]:
    """The line after the header, and its author and date; (0, "", "") without a title."""
    at = next((i for i, line in enumerate(lines) if line.strip() and not _is_omitted(line)), 0)
    if not lines[at].startswith("= "):
        return 0, "", ""
    author = day = ""
    for number, line in enumerate(lines[at + 1 : at + 4], at + 1):
        if not line.strip() or _ATTRIBUTE.match(line):
            return number, author, day
        if match := _REVISION.match(line):
            day = match["day"]
        elif not author and (match := _AUTHOR.match(line)):
            author = match["name"]
    return at + 1, author, day


def _parts(lines: Sequence[str], start: int, author: str) -> Iterator[Part]:
    block_lines: list[str] = []
    kind: BlockKind = "paragraph"
    attributes = label = ""
    author_lines = range(1, start if author else 1)
    at = 0
    while at < len(lines):
        line, first = lines[at].rstrip(), at
        at += 1
        if first in author_lines and not _HEADING.match(line):
            continue
        is_text = _is_text(line)
        here: BlockKind = "list" if _ITEM.match(line) else kind if block_lines else "paragraph"
        if not is_text or here != kind:
            yield Part(kind, _readable("\n".join(block_lines)))
            block_lines, kind = [], here
        if label and not _precedes_text(line):
            is_beside = is_text and here == "paragraph"
            yield Part("paragraph", "" if is_beside else label)
            line, label = f"{label} {line}" if is_beside else line, ""
        if block := _marked_block(lines, first, attributes):
            part, at = block
            yield part
        elif is_text:
            block_lines.append("" if line == "+" else line)
        if _BLOCK_ATTRIBUTES.match(line):
            attributes += line
            label = _label(line) or label
        elif not _BLOCK_TITLE.match(line):
            attributes = ""
    yield Part(kind, _readable("\n".join(block_lines)))


def _marked_block(lines: Sequence[str], at: int, attributes: str) -> tuple[Part, int] | None:
    """The block that this line begins by a mark of its own, and the line after it."""
    line = lines[at].rstrip()
    if _FENCE.match(line):
        end = _end(lines, at + 1, line)
        language = _SOURCE.search(attributes)
        is_comment = line.startswith("////")
        code = "" if is_comment else "\n".join(lines[at + 1 : end - 1])
        return listing(code, language[1] if language else ""), end
    if _TABLE.match(line):
        end = _end(lines, at + 1, line)
        return Part("table", _table(lines[at + 1 : end - 1], line, attributes)), end
    if match := _HEADING.match(line):
        title = heading_words(_readable(match["title"]))
        return Part("heading", _readable(line), len(match["marks"]), title), at + 1
    match = _BLOCK_TITLE.match(line)
    return (Part("paragraph", _readable(match[1])), at + 1) if match else None


def _label(attributes: str) -> str:
    """What a reader sees at a block with these attributes: "WARNING:", or whom it quotes."""
    match = _ADMONITION.match(attributes) or _QUOTED.match(attributes)
    return f"{match[1]}:" if match else ""


def _is_text(line: str) -> bool:
    return bool(line) and not _is_special(line) and not _is_omitted(line)


def _precedes_text(line: str) -> bool:
    """Whether a line is none of a block's text but stands before it: blank, a title, a border, attributes."""
    return not line or _is_omitted(line) or bool(_BLOCK_TITLE.match(line) or _BOX.match(line))


def _table(lines: Sequence[str], fence: str, attributes: str) -> str:
    """A table as pipe rows. The attributes state the number of columns, or the first line shows it."""
    stated = _TABLE_FORMAT.search(attributes)
    form = stated[1] if stated else fence[0]
    separator = _SEPARATOR.search(attributes)
    mark = separator[1].replace("\\t", "\t") if separator else _SEPARATORS.get(form, "|")
    if form in {"csv", "tsv", "dsv", ",", ":"}:
        rows = _separated_rows(lines, mark)
        columns = max(map(len, rows), default=0)
    else:
        cells, columns = _cells(lines, mark)
        columns = min(_stated_columns(attributes) or max(columns, 1), MAX_SPAN)
        rows = [*_filled_rows(cells, columns)]
    return pipe_table((map(_readable, map(str.strip, row)) for row in rows), columns)


def _separated_rows(lines: Sequence[str], mark: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=mark) if row]
    except csv.Error:  # a cell is longer than the library reads
        return [[line] for line in lines]


def _stated_columns(attributes: str) -> int:
    """The number of columns by the attributes of a table, 0 without one: "1,2" and "2*" have two."""
    stated = _COLUMNS.search(attributes)
    columns = re.split("[,;]", stated[1]) if stated else []
    times = (re.match(r"\s*(\d{1,3})\*", column) for column in columns)
    return sum(int(match[1]) if match else 1 for match in times)


class _Cell(NamedTuple):
    text: str
    across: int = 1  # columns
    down: int = 1  # rows


def _cells(lines: Sequence[str], mark: str) -> tuple[list[_Cell], int]:
    """The cells of a table, and the columns that its first line with cells has."""
    before = re.compile(_CELL + re.escape(mark))
    cells: list[_Cell] = []
    columns = 0
    for line in lines:
        starts = [*before.finditer(line)]
        ends = [start.start() for start in starts[1:]] + [len(line)]
        above = line[: starts[0].start() if starts else None].strip()
        if cells and above:
            # What stands before the first mark of a line still belongs to the cell of the line above.
            cells[-1] = cells[-1]._replace(text=f"{cells[-1].text} {above}")
        of_line: list[_Cell] = []
        for start, end in zip(starts, ends, strict=False):
            of_line += _repeated(start, line[start.end() : end].replace(f"\\{mark}", mark))
        cells += of_line
        columns = columns or sum(cell.across for cell in of_line)
    return cells, columns


def _repeated(start: re.Match[str], text: str) -> list[_Cell]:
    across, down = (min(max(int(start[name] or 1), 1), MAX_SPAN) for name in ("across", "down"))
    if start["sign"] == "*":
        return [_Cell(text.strip())] * across
    return [_Cell(text.strip(), across, down)]


def _filled_rows(cells: Iterable[_Cell], columns: int) -> Iterator[list[str]]:
    merged = MergedCells()
    row: list[str] = []
    for cell in cells:
        row.append(merged.place(cell.text, cell.down, min(cell.across, columns - len(row))))
        row += merged.repeated()
        while len(row) >= columns:
            yield row
            merged.next_row()
            row = [*merged.repeated()]
    if row:
        yield row


def _end(lines: Sequence[str], at: int, mark: str) -> int:
    """The line after the next line that closes this mark, else the end."""
    closing = _closing(mark)
    return next((i + 1 for i in range(at, len(lines)) if lines[i].rstrip() == closing), len(lines) + 1)


def _closing(mark: str) -> str:
    return "```" if mark.startswith("`") else mark.rstrip()


def _is_special(line: str) -> bool:
    patterns = (_FENCE, _TABLE, _BOX, _HEADING, _BLOCK_TITLE)
    return line[:4] == "////" or any(pattern.match(line) for pattern in patterns)


def _is_omitted(line: str) -> bool:
    is_comment = line.startswith("//") and not line.startswith("////")
    patterns = (_ATTRIBUTE, _BLOCK_ATTRIBUTES, _DIRECTIVE, _INCLUDE)
    return is_comment or line.strip() in {"<<<", "'''"} or any(pattern.match(line) for pattern in patterns)


def _readable(text: str) -> str:
    text = _STYLED.sub(r"\2", _ANCHORS.sub("", text))
    text = _LINK.sub(r"[\2](\1)", text)
    return _REFERENCE.sub(lambda match: next(filter(None, match.groups()), ""), text)
