"""Builds a document block by block, for the parsers of office formats, and reads office properties.

Of the properties, only what a person wrote counts, not what a program filled in.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate, chain
from typing import TYPE_CHECKING

from rag.corpus import Block, BlockKind, Document
from rag.ingest.parse.document_parts import NAMED, clean, date, facts, shifted, title_line
from rag.ingest.parse.document_parts import block as trimmed_block
from rag.ingest.parse.titles_and_questions import (
    BOLD,
    MADE_UP_AUTHOR,
    MADE_UP_TITLE,
    heading_words,
    with_questions,
)
from rag.ingest.parse.typefaces import with_scripts
from rag.ingest.parse.zip_package import Package
from rag.report import names_briefly
from rag.text.plain_text import Span, one_line
from rag.text.table_heads import PAGE_BREAK, is_header, pipe_table, with_cells_above, with_spanned

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


MAX_BOLD_HEADING = 80  # characters of a bold line that stands for a heading

_INDENT = "  "
_COUNTS_PAGES = re.compile(r"(?i)[\W\d_]*(?:(?:page|seite|of|von|de|p|s)[\W\d_]+)*(?:page|seite|of|von|de)?")
_SENTENCE_END = tuple(".,;:!?…。")


HEADERS = "Headers and footers of the pages:"
"""Stands above a paragraph of the headers, and one of the footers if there are any."""


def page_headers(text: str) -> str:
    """The headers of the pages in the text of a draft that has `HEADERS`."""
    return text.rpartition(f"\n\n{HEADERS}\n\n")[2].partition("\n\n")[0]


def _distinct_lines(lines: Iterable[str], seen: set[str]) -> list[str]:
    distinct = dict.fromkeys(" ".join(line.split()) for line in lines)
    new = [line for line in distinct if line not in seen and not _COUNTS_PAGES.fullmatch(line)]
    seen.update(new)
    return new


class Draft:
    """A document that is being written: blocks in order, a blank line between them."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.pages: list[int] = []
        self.left_out = Counter[str]()  # by the kinds of `_LEFT_OUT`
        self._parts: list[str] = []
        self._length = 0
        self._bold: list[int] = []
        self._capitals: list[int] = []
        self._bold_items: list[int] = []  # where they begin
        self._notes = deque[Callable[[], str]]()
        self._note_count = 0  # of those that are written

    @property
    def text(self) -> str:
        """The text of all blocks."""
        return "".join(self._parts)

    @property
    def bold(self) -> frozenset[int]:
        """The start offsets of bold paragraphs."""
        return frozenset(self.blocks[at].start for at in self._bold)

    @property
    def first_title(self) -> str:
        """The title of the first heading, which on slides is the title of the first slide."""
        return next((block.title for block in self.blocks if block.kind == "heading" and block.title), "")

    def heading(self, text: str, level: int, *, title: str | None = None) -> None:
        """Add a heading on one line. An empty `title` ends the section above without naming a new one."""
        line = " ".join(with_scripts(text).split("\n"))
        self._add("heading", line, level=level, title=one_line(line) if title is None else title)

    def margins(self, headers: Iterable[str], footers: Iterable[str]) -> None:
        """Add the lines of headers and those of footers, each once, except those that only number pages."""
        seen = set[str]()
        parts = [_distinct_lines(lines, seen) for lines in (headers, footers)]
        if any(parts):
            self.heading(HEADERS if parts[0] else "Footers of the pages:", 1, title="")
        for lines in parts:
            self.paragraph("\n".join(lines))

    def paragraph(self, text: str, *, cells: str = "", bold: bool = False) -> None:
        """Add a paragraph. A short `bold` one becomes a heading if the document has no headings.

        Beside such items, one in capitals does, too: the schedules of a contract.
        """
        if self._add("paragraph", text, title=cells) and (bold or text.isupper()):
            (self._bold if bold else self._capitals).append(len(self.blocks) - 1)

    def code(self, line: str) -> None:
        """Add a line of code, with its indentation; consecutive lines are one block."""
        self._add("code", line, joined=True)

    def item(self, text: str, depth: int = 0, mark: str = "-", *, bold: bool = False) -> None:
        """Add a list item; consecutive items are one list.

        A short numbered one that is `bold` or in capitals becomes a heading if the document has no headings.
        """
        first, *following = with_scripts(clean(text)).strip("\n ").split("\n")
        if not any(line.strip() for line in (first, *following)):
            return
        indent = _INDENT * min(depth, 9)
        lines = [f"{indent}{mark} {first}".rstrip(), *(f"{indent}{_INDENT}{line}" for line in following)]
        self._add("list", "\n".join(lines), joined=True)
        if (bold or first.isupper()) and not depth and not following and mark.strip("- "):
            self._bold_items.append(self._length - len(_without_breaks(lines[0])[1]))

    def note(self, text: Callable[[], str]) -> str:
        """The mark of a footnote or endnote, whose text `write_notes` takes below the block that it is in."""
        self._notes.append(text)
        return f"[^{self._note_count + len(self._notes)}]"

    def write_notes(self) -> None:
        """Add a paragraph for each note that is marked so far; a note can mark further ones."""
        while self._notes:
            note = self._notes.popleft()
            self._note_count += 1
            if text := note():
                self.paragraph(f"[^{self._note_count}]: {text}")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table. A single cell above its columns, or each cell of a single column, is a paragraph.

        Rows can have `ABOVE` and `COVERED` cells.
        """
        rows = with_spanned(with_cells_above([cell.strip() for cell in row] for row in rows))
        used = sorted({at for row in rows for at, cell in enumerate(row) if cell.strip(PAGE_BREAK)})
        grid = [[row[at] if at < len(row) else "" for at in used] for row in rows]
        grid = [row for row in grid if any(cell.strip(PAGE_BREAK) for cell in row)]
        # A title over all columns would be taken for the names of these.
        while grid and (len(used) == 1 or (grid[0][0] and sum(map(bool, grid[0])) == 1)):
            self.paragraph("".join(grid.pop(0)))
        if not grid:
            return
        self._add("table", pipe_table(grid, len(used) if is_header(grid[0], grid[1:]) else 0))

    def row(self, line: str, cells: str, *, continues: bool) -> None:
        """Add a row of a sheet as a block of its own; it `continues` a table, or begins one."""
        self._add("table", line, title=cells, joined=continues, apart=True)

    def document(self, document: Document, *, sections: bool = True) -> None:
        """Add all blocks of another document; without `sections`, its headings become paragraphs."""
        gap = "\n\n" if self.blocks else ""
        start = self._length + len(gap)
        self._parts += [gap, document.text]
        self._length = start + len(document.text)
        for block in shifted(document.blocks, start):
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
        joined: bool = False,
        apart: bool = False,
    ) -> bool:
        """Append a block. If `joined`, extend the last one of this kind; with `apart`, only follow it."""
        text = with_scripts(clean(text))
        breaks, text = _without_breaks(text.strip("\n") if kind in {"list", "code"} else text.strip(" \t\n"))
        if not text.strip():
            if breaks:
                self.page()
            return False
        below = joined and bool(self.blocks) and self.blocks[-1].kind == kind
        gap = "" if not self.blocks else "\n" if below else "\n\n"
        start = self._length + len(gap)
        self._parts += [gap, text]
        self._length = start + len(text)
        self.pages += [start + at for at in breaks]
        start = self.blocks.pop().start if below and not apart else start + len(text) - len(text.lstrip())
        end = self._length - (len(text) - len(text.rstrip()))
        self.blocks.append(Block(kind, start, end, level, title_line(title)))
        return True

    def promote(self, title: str) -> None:
        """Turn short bold paragraphs and items into headings if the document has none but its `title`."""
        stated = {block.title for block in self.blocks if block.kind == "heading" and block.title}
        if stated - {title}:  # who has headings marks bold words for other reasons
            return
        text, level = self.text, 1 + len(stated)
        items = self._item_headings(text)
        bold = {*self._bold, *(self._capitals if items else ())}
        for at in bold:
            block = self.blocks[at]
            above_text = at + 1 < len(self.blocks) and at + 1 not in bold
            if above_text and _is_short(line := text[block.start : block.end]):
                self.blocks[at] = Block("heading", block.start, block.end, level, title_line(line))
        self.blocks = [*chain.from_iterable(_divided(text, block, items, level) for block in self.blocks)]

    def _item_headings(self, text: str) -> list[Span]:
        """The bold items that head what follows; none if most are in a row, as names are."""
        ends = (text.find("\n", start) for start in self._bold_items)
        pairs = zip(self._bold_items, ends, strict=True)
        lines = {start: Span(start, end if end > 0 else len(text)) for start, end in pairs}
        headings = [
            line
            for line in lines.values()
            if line.end + 1 not in lines and line.end < len(text) and _is_short(text[slice(*line)])
        ]
        return headings if 2 * len(headings) > len(lines) else []


def _is_short(line: str) -> bool:
    is_line = len(line) <= MAX_BOLD_HEADING and "\n" not in line and not line.endswith(_SENTENCE_END)
    return is_line and any(map(str.isalpha, line))


def with_unmarked_headings(text: str, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks of a Markdown text, with headings that are written as paragraphs.

    These are short bold ones above others if the text has no headings, and the numbers of articles, with a
    title in the line below or without, if it has none of an article.
    """
    headings = [block.title for block in blocks if block.kind == "heading"]
    if any(map(_ARTICLE.match, headings)):
        return (*blocks,)
    lines = ["" if headings else _bold_words(text[block.start : block.end]) for block in blocks]

    def titled(block: Block, words: str, below: str) -> Block:
        article = _ARTICLE.fullmatch(text, block.start, block.end)
        if block.kind != "paragraph" or not (article or (_is_short(words) and not below)):
            return block
        title = heading_words(text[block.start : block.end])
        return replace(
            block, kind="heading", level=_LEVEL_OF_ARTICLES if article else 1, title=title_line(title)
        )

    # The last block heads nothing, as one above another bold line.
    return (*map(titled, blocks, lines, [*lines[1:], "the end"]),)


_LEVEL_OF_ARTICLES = 3  # below chapters, as in the pages of EUR-Lex that mark them
_ARTICLE = re.compile(
    r"[*_]{0,3}(?:arti(?:cle|kel|colo|culo|go|kla|kkel|col(?:ul)?)|artículo|artykuł|článe?k|článok|člen|članak"
    r"|член|άρθρο|стаття|статья)[ \u00a0][0-9]{1,4}[a-z]?[*_]{0,3}(?:\s*\n[^\n]{1,150})?",
    re.IGNORECASE,
)


def _bold_words(paragraph: str) -> str:
    """The words of a paragraph that is bold as a whole; none of others, and of a remark: "(in millions)"."""
    line = BOLD.fullmatch(paragraph)
    return heading_words(paragraph) if line and not line[2].startswith("(") else ""


def _divided(text: str, block: Block, headings: Sequence[Span], level: int) -> Iterator[Block]:
    """A block, or the lists and the headings that a list is made of."""
    inside = headings[bisect_left(headings, (block.start,)) : bisect_left(headings, (block.end,))]
    if not inside:
        yield block
        return
    start = block.start
    for heading in inside:
        yield from trimmed_block(text, "list", start, heading.start)
        yield Block("heading", *heading, level, title_line(text[slice(*heading)]))
        start = heading.end
    yield from trimmed_block(text, "list", start, block.end)


def _without_breaks(text: str) -> tuple[list[int], str]:
    """The positions of page breaks in a text, and the text without them."""
    parts = text.split(PAGE_BREAK)
    return [*accumulate(map(len, parts[:-1]))], "".join(parts)


_GENERATED = re.compile(r"(?i)\Agenerated (?:by|using) .*\Z")
_TEMPLATES = frozenset({"2013-12-23T23:15:00+00:00", "2013-01-27T09:14:16+00:00"})
"""When the templates of python-docx and python-pptx were saved: every document made with them says so."""
_OLDEST = datetime(1990, 1, 1, tzinfo=UTC)  # earlier moments are a clock at its start, as 1601 or 1980 are
_YOUNGEST = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a document, as it states them; "" where it states none."""

    title: str = ""
    author: str = ""
    keywords: str = ""
    subject: str = ""
    description: str = ""
    language: str = ""
    modified: str = ""


def core_properties(package: Package) -> Properties:
    """The properties of an Office Open XML package."""
    path = package.related_as("", "core-properties") or "docProps/core.xml"
    return properties_in(package.xml_if_there(path))


def properties_in(meta: Element) -> Properties:
    """The properties in a part of a document for them, as Office Open XML or OpenDocument writes them."""
    texts = _texts(meta)
    return Properties(
        author=texts.get("initial-creator", "") or texts.get("creator", ""),
        keywords=texts.get("keywords", "") or texts.get("keyword", ""),
        modified=texts.get("modified", "") or texts.get("date", ""),
        **{name: texts.get(name, "") for name in ("title", "subject", "description", "language")},
    )


def _texts(root: Element) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    for element in root.iter():
        if element.text and element.text.strip():
            texts.setdefault(element.tag, []).append(element.text.strip())
    return {tag: ", ".join(values) if tag == "keyword" else values[0] for tag, values in texts.items()}


_LEFT_OUT = {
    "slide": ("hidden slide",),
    "sheet": ("hidden sheet",),
    "row": ("hidden row or column", "hidden rows or columns"),
    "text": ("hidden piece of text", "hidden pieces of text"),
    "deletion": ("deleted piece of text", "deleted pieces of text"),
    "shape": ("hidden shape",),
    "comment": ("comment",),
    "chart": ("chart",),
    "control": ("control of a form", "controls of forms"),
    "object": ("embedded object",),
    "formula": ("formula without a value", "formulas without values"),
}
"""What readers leave out, as remarks call it: in the singular, and in the plural unless that ends in s."""


def document_of_draft(
    draft: Draft,
    mime_type: str,
    properties: Properties,
    *,
    remarks: Iterable[str] = (),
    title: str = "",
) -> Document:
    """The document of a draft. Its title is in its properties, else `title`.

    Its date is when it was last saved. The creation date isn't used, because it can be the template's.
    """
    draft.promote(title_line(title))
    text = draft.text
    blocks = with_questions(text, draft.blocks, bold=draft.bold)
    stated_title = title_line(properties.title)
    stated_title = "" if MADE_UP_TITLE.fullmatch(stated_title) else stated_title
    omissions = (omission_remarks(draft.left_out[kind], *nouns) for kind, nouns in _LEFT_OUT.items())
    return Document(
        text=text,
        title=stated_title or title_line(title),
        mime_type=mime_type,
        blocks=blocks,
        pages=tuple(min(at, len(text)) for at in draft.pages),
        date=_saved_at(properties.modified),
        metadata=facts(
            author=_authors(properties.author),
            keywords=map(title_line, re.split(r"[;,]", properties.keywords)),
            subject=title_line(properties.subject),
            description=title_line(_GENERATED.sub("", properties.description)),
            language=properties.language,
        ),
        remarks=(*chain.from_iterable(omissions), *remarks),
    )


def _authors(text: str) -> Iterator[str]:
    return (person for person in map(title_line, text.split(";")) if not MADE_UP_AUTHOR.fullmatch(person))


def _saved_at(text: str) -> datetime | None:
    moment = date(text) if text else None
    is_plausible = moment and moment.isoformat() not in _TEMPLATES and _OLDEST <= moment < _YOUNGEST
    return moment if is_plausible else None


def unread_files(names: Iterable[str]) -> list[str]:
    """A remark on the files that a markup includes by their names, or none: a chapter may have fifty."""
    files = [*dict.fromkeys(names)]
    were = "was" if len(files) == 1 else "were"
    return [f"it includes {names_briefly(files, NAMED)}, which {were} not read with it"] if files else []


def omission_remarks(count: int, noun: str, plural: str = "") -> list[str]:
    """A remark on omitted content, or none: 2, "hidden slide" -> "2 hidden slides were left out"."""
    nouns = f"{noun} was" if count == 1 else f"{plural or f'{noun}s'} were"
    return [f"{count} {nouns} left out"] if count else []
