"""Building blocks for the output of commands and reports: tables and phrases as text, and HTML.

`Html` is markup. Any other string is text: it is escaped on its way in, without its hidden characters.
`page` is the frame of all reports: one self-contained HTML file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template

from rag.text.plain_text import TABLE_RULE, in_one_line, without_hidden


def table(rows: Sequence[Sequence[object]], *, right: Collection[str] = ()) -> list[str]:
    """Rows as aligned lines. The first row holds the headings; the columns named in `right` align right.

    Hidden characters in cells are made visible, and each cell is one line.
    Example: [("NAME", "MS"), ("embed", 5.2)] with right={"MS"} -> ["NAME    MS", "embed  5.2"].
    """
    cells = [[in_one_line(str(cell)) for cell in row] for row in rows]
    columns = [_aligned(column, right=column[0] in right) for column in zip(*cells, strict=True)]
    return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]


def _aligned(column: Sequence[str], *, right: bool) -> list[str]:
    width = max(map(len, column))
    return [cell.rjust(width) if right else cell.ljust(width) for cell in column]


def counted(number: int, noun: str) -> str:
    """A number of things: (1, "file") -> "1 file"; (2, "file") -> "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def one_line(text: str) -> str:
    """The text on one line with single spaces, and without control characters."""
    return " ".join(in_one_line(text).split())


def shortened(text: str, width: int) -> str:
    """The text on one line of at most `width` characters: ("a  long line", 6) -> "a lon…"."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def names_briefly(names: Sequence[str], limit: int, separator: str = ", ") -> str:
    """At most `limit` names: (["a", "b", "c", "d"], 2) -> "a, b and 2 more"."""
    unnamed = len(names) - limit
    return separator.join(names[:limit]) + (f" and {unnamed} more" if unnamed > 0 else "")


def decimals(value: float | None) -> str:
    """A similarity with three decimals: 0.43219 -> "0.432"; a dash if it is not known."""
    return "–" if value is None else f"{value:.3f}"


class Html(str):
    """Markup. Any other `str` is text."""

    __slots__ = ()


def tag(name: str, *content: str, **attributes: str | float | None) -> Html:
    """An element. Text within it and its attributes are escaped; an attribute that is None is left out.

    Underscores in an attribute's name become hyphens; a trailing one avoids Python's keywords.
    Example: tag("p", "a < b", class_="note") -> <p class="note">a &lt; b</p>
    """
    visible = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(without_hidden(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{visible}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """The parts in a row, their text escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(without_hidden(part)) for part in parts))


def note(text: str) -> Html:
    """A remark in small print."""
    return tag("p", text, class_="note")


PAGE = Path(__file__).with_name("page.html")
STYLE = Path(__file__).with_name("page.css")


def page(title: str, header: Html, sections: Iterable[Html], *, style: str = "") -> str:
    """A self-contained HTML page without scripts. `style` is CSS in addition to the common one."""
    frame = Template(PAGE.read_text(encoding="utf-8"))
    common = STYLE.read_text(encoding="utf-8")
    return frame.substitute(
        title=joined([title]), header=header, sections=joined(sections), common=common, style=style
    )


def section(title: str, *content: Html) -> Html:
    """A part of the page with its heading; empty without content."""
    return tag("section", tag("h2", title), *content) if content else Html()


_ROW = re.compile(r"\|.*\|")
_CELL_BORDER = re.compile(r"(?<!\\)\|")


def with_tables(text: str) -> Html:
    """A text whose Markdown tables are HTML tables; the rest stays text.

    A table is at least two lines that begin and end with a vertical bar. Its first row is the header if the
    second one has only bars, dashes and colons.
    """
    parts: list[str] = []
    for is_table, lines in groupby(text.splitlines(keepends=True), _is_row):
        rows = list(lines)
        parts += [_table(rows)] if is_table and len(rows) > 1 else rows
    return joined(parts)


def _is_row(line: str) -> bool:
    return bool(_ROW.fullmatch(line.strip()))


def _table(rows: Sequence[str]) -> Html:
    has_header = bool(TABLE_RULE.fullmatch(rows[1].strip()))
    head = [_row(rows[0], "th")] if has_header else []
    body = [_row(row, "td") for row in rows[2 if has_header else 0 :]]
    table = tag("table", *([tag("thead", *head)] if head else []), tag("tbody", *body))
    return tag("div", table, class_="drawn", role="region", tabindex=0, aria_label="Table")


def _row(line: str, cell: str) -> Html:
    cells = _CELL_BORDER.split(line.strip()[1:-1])
    return tag("tr", *(tag(cell, text.strip().replace("\\|", "|")) for text in cells))


def collapsible(title: str, content: Html) -> Html:
    """Content that the reader unfolds by its title."""
    return tag("details", tag("summary", title), content)
