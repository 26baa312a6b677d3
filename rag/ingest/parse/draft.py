"""Writes a document block by block, as the parsers of office formats find its parts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag.corpus import Block
from rag.ingest.parse.blocks import clean, moved, title_line
from rag.text.segments import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rag.corpus import BlockKind, Document

PAGE_BREAK = "\x0c"
"""A new page begins here, within the text of a block."""
MAX_BOLD_HEADING = 80  # characters of a bold line that stands for a heading

_INDENT = "  "
_SENTENCE_END = tuple(".,;:!?…。")
_NUMBER = re.compile(r"[\s(+\-−–]*[$€£¥]?\s?[\d.,'\u00a0\u202f ]*\d[\d.,'\u00a0\u202f]*\s?[%€$£¥)]{0,2}\s*")
_YEAR = re.compile(r"(?:19|20)\d\d")


class Draft:
    """A document that is being written: blocks in order, a blank line between them."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.pages: list[int] = []
        self._parts: list[str] = []
        self._length = 0
        self._bold: list[int] = []

    @property
    def text(self) -> str:
        """All that was written."""
        return "".join(self._parts)

    @property
    def bold(self) -> frozenset[int]:
        """Where the bold paragraphs begin."""
        return frozenset(self.blocks[at].start for at in self._bold)

    def heading(self, text: str, level: int, *, title: str | None = None) -> None:
        """A heading on one line. With an empty `title` it ends the section above, and names none."""
        line = " ".join(text.split("\n"))
        self._add("heading", line, level=level, title=one_line(line) if title is None else title)

    def paragraph(self, text: str, *, cells: str = "", bold: bool = False) -> None:
        """A paragraph. A short `bold` one becomes a heading if the document has no others."""
        if self._add("paragraph", text, title=cells) and bold:
            self._bold.append(len(self.blocks) - 1)

    def item(self, text: str, depth: int = 0, mark: str = "-") -> None:
        """An item of a list; those that follow each other are one list."""
        first, *rest = clean(text).strip("\n ").split("\n")
        if not any(line.strip() for line in (first, *rest)):
            return
        indent = _INDENT * min(depth, 9)
        lines = [f"{indent}{mark} {first}".rstrip(), *(f"{indent}{_INDENT}{line}" for line in rest)]
        self._add("list", "\n".join(lines), joined="list")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """A table of pipe rows. What stands alone above its columns or in its only column is a paragraph."""
        rows = [[cell.strip() for cell in row] for row in rows]
        used = sorted({at for row in rows for at, cell in enumerate(row) if cell.strip(PAGE_BREAK)})
        kept = [[row[at] if at < len(row) else "" for at in used] for row in rows]
        kept = [row for row in kept if any(cell.strip(PAGE_BREAK) for cell in row)]
        while kept and (len(used) == 1 or (kept[0][0] and sum(map(bool, kept[0])) == 1)):
            self.paragraph("".join(kept.pop(0)))
        if not kept:
            return
        lines = [pipe_row(row) for row in kept]
        if len(kept) > 1 and is_header(kept[0]):
            lines.insert(1, rule(len(used)))
        self._add("table", "\n".join(lines))

    def row(self, line: str, cells: str, *, continues: bool) -> None:
        """A row of a sheet, a block of its own; it `continues` a table, or begins one."""
        self._add("table", line, title=cells, joined="table" if continues else None, apart=True)

    def document(self, document: Document, *, sections: bool = True) -> None:
        """All that another document says, whose headings are paragraphs here without `sections`."""
        gap = "\n\n" if self.blocks else ""
        start = self._length + len(gap)
        self._parts += [gap, document.text]
        self._length = start + len(document.text)
        for block in moved(document.blocks, start):
            is_text = block.kind == "heading" and not sections
            self.blocks.append(Block("paragraph", block.start, block.end) if is_text else block)

    def page(self) -> None:
        """Begin a page."""
        self.pages.append(self._length + 2 if self._length else 0)

    def _add(
        self,
        kind: BlockKind,
        text: str,
        *,
        level: int = 0,
        title: str = "",
        joined: BlockKind | None = None,
        apart: bool = False,
    ) -> bool:
        """Append a block; with `joined`, below a block of that kind, and in it unless they stay `apart`."""
        breaks, text = _without_breaks(
            clean(text).strip("\n") if kind == "list" else clean(text).strip(" \t\n")
        )
        if not text.strip():
            if breaks:
                self.page()
            return False
        below = bool(joined and self.blocks and self.blocks[-1].kind == joined)
        gap = "" if not self.blocks else "\n" if below else "\n\n"
        start = self._length + len(gap)
        self._parts += [gap, text]
        self._length = start + len(text)
        self.pages += [start + at for at in breaks]
        start = self.blocks.pop().start if below and not apart else start + len(text) - len(text.lstrip())
        end = self._length - (len(text) - len(text.rstrip()))
        self.blocks.append(Block(kind, start, end, level, title_line(title)))
        return True

    def promote(self) -> None:
        """Make headings of short bold paragraphs if there are no headings."""
        if any(one.kind == "heading" and one.title for one in self.blocks):
            return
        text = self.text
        for at in self._bold:
            block = self.blocks[at]
            line = text[block.start : block.end]
            above_text = at + 1 < len(self.blocks) and at + 1 not in self._bold
            short = len(line) <= MAX_BOLD_HEADING and "\n" not in line and not line.endswith(_SENTENCE_END)
            if above_text and short and any(map(str.isalpha, line)):
                self.blocks[at] = Block("heading", block.start, block.end, 1, title_line(line))


def _without_breaks(text: str) -> tuple[list[int], str]:
    """The positions of page breaks in a text, and the text without them."""
    if PAGE_BREAK not in text:
        return [], text
    first, *parts = text.split(PAGE_BREAK)
    breaks, kept = [], first
    for part in parts:
        breaks.append(len(kept))
        kept += part
    return breaks, kept


def pipe_row(cells: Iterable[str]) -> str:
    """A row of a table on one line: "| Ann | 3 |"."""
    return f"| {' | '.join(_flat(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def _flat(cell: str) -> str:
    marks = PAGE_BREAK * cell.count(PAGE_BREAK)
    return marks + one_line(cell)


def rule(columns: int) -> str:
    """The line below a header row."""
    return f"|{' --- |' * columns}"


def is_header(row: Sequence[str]) -> bool:
    """Whether a row can name columns: it has words, and no numbers except years."""
    filled = [cell for cell in row if cell]
    numbers = [cell for cell in filled if _NUMBER.fullmatch(cell)]
    enough = len(filled) > 1 or (len(row) == 2 and not row[0])  # noqa: PLR2004 names of rows, and one column
    return enough and len(numbers) < len(filled) and all(map(_YEAR.fullmatch, numbers))
