"""Text for people: aligned tables, counted things, lines of a limited length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.text.invisible import in_one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


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


def counted(number: int, thing: str) -> str:
    """A number of things: (1, "file") -> "1 file"; (2, "file") -> "2 files"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def one_line(text: str) -> str:
    """The text on one line with single spaces, and without control characters."""
    return " ".join(in_one_line(text).split())


def shortened(text: str, width: int) -> str:
    """The text on one line of at most `width` characters: ("a  long line", 6) -> "a lon…"."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def listed(names: Sequence[str], most: int) -> str:
    """At most so many names: (["a", "b", "c", "d"], 2) -> "a, b and 2 more"."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def decimals(value: float | None) -> str:
    """A similarity with three decimals: 0.43219 -> "0.432"; a dash if it is not known."""
    return "–" if value is None else f"{value:.3f}"
