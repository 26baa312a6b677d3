"""The text of OpenDocument files: headings, lists, tables, notes and frames."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple
from xml.etree.ElementTree import Element

from rag.ingest.parse.document_draft import Draft
from rag.ingest.parse.office.docx_styles import roman
from rag.ingest.parse.office.drawings_and_forms import alternative_text
from rag.ingest.parse.typefaces import HEIGHTS, as_script, as_struck, with_scripts
from rag.ingest.parse.zip_package import descendants, whole_number
from rag.text.plain_text import one_line
from rag.text.table_heads import PAGE_BREAK

MAX_REPEATED = 1_000  # times that a filled cell or row is repeated; blank ones are only counted

_SHEET_OF_CELLS = re.compile(r"\$?(?:'([^']+)'|([^\s'.:$]+))\.\$?[A-Z]")
_SPACE = re.compile(r"[ \t\r\n]+")
_LEFT_OUT = frozenset(
    {
        *("tracked-changes", "table-of-content", "illustration-index", "table-index", "alphabetical-index"),
        *("forms", "sequence-decls", "variable-decls", "user-field-decls", "ruby-text"),
        *("event-listeners", "image", "notes", "settings", "glue-point", "annotation-end"),
    }
)
_ALTERNATIVES = frozenset({"title", "desc"})  # of frames: their alternative texts
_FIGURES = _ALTERNATIVES | {"object", "control"}
_ROWS = frozenset({"table-header-rows", "table-rows", "table-row-group"})


class Style(NamedTuple):
    """The properties of a style that matter for reading."""

    name: str = ""
    hidden: bool = False
    bold: bool = False
    height: int = 0
    struck: bool = False
    marks: Mapping[int, str] = {}
    """The number format of a list by level: "1", "a", "i", or "" for bullets."""


_PLAIN = Style()


def styles_of(roots: Iterable[Element]) -> dict[str, Style]:
    """The styles of a document by name; names of list styles get the prefix "list "."""
    elements = {element.get("name", ""): element for root in roots for element in root.iter("style")}
    styles = {name: _style(name, elements) for name in elements}
    for root in roots:
        for list_style in root.iter("list-style"):
            marks = {
                int(level.get("level", "1")[:2]): level.get("num-format", "")
                for level in list_style
                if level.get("level")
            }
            styles[f"list {list_style.get('name', '')}"] = Style(marks=marks)
    return styles


def _style(name: str, elements: Mapping[str, Element]) -> Style:
    hidden = bold = position = line = None
    display, at = elements[name].get("display-name", name), name
    for _ in range(20):  # a loop of styles ends here
        element = elements.get(at)
        if element is None:
            break
        for properties in element:
            display_value = properties.get("display", properties.get("visibility"))
            weight = properties.get("font-weight")
            if hidden is None and display_value:
                hidden = display_value in {"none", "false", "hidden"}
            if bold is None and weight:
                bold = weight == "bold"
            position = position or properties.get("text-position")
            line = line or properties.get("text-line-through-style")
        display = at if at in {"Title", "Subtitle"} else display
        at = element.get("parent-style-name", "")
    return Style(display, bool(hidden), bool(bold), _height(position or ""), (line or "none") != "none")


def _height(position: str) -> int:
    """How much a text is set higher than its line (lower below 0): "super 58%" -> 1; "-33% 58%" -> -33."""
    height = position.split(" ", 1)[0].rstrip("%")
    number = whole_number(height.removeprefix("-"), max_digits=3)
    return HEIGHTS.get(height, -number if height.startswith("-") else number)


class OdfReader:
    """Reads the body of a document into a draft, and counts in `hidden` what it omits."""

    def __init__(
        self,
        styles: Mapping[str, Style],
        opened: Callable[[str], Element],
        controls: Mapping[str, str],
    ) -> None:
        """`opened` returns the root of an embedded object by its name; `controls` are form values by id."""
        self.draft = Draft()
        self.hidden: Counter[str] = Counter()
        self.title = ""
        self._styles = styles
        self._opened = opened
        self._controls = controls
        self._notes: list[Element] = []
        self._written_notes = 0
        self._frames: list[Element] = []
        self._counts: dict[str, int] = {}

    def style(self, element: Element) -> Style:
        """The style of an element."""
        return self._styles.get(element.get("style-name", ""), _PLAIN)

    def blocks(self, parent: Element, depth: int = 0, mark: str = "") -> None:
        """Write the paragraphs, lists, tables and frames of a body, or of a list item with its `mark`."""
        for element in parent:
            if element.tag in {"p", "h"}:
                self._paragraph(element, depth, mark)
                mark = " " if mark else ""
            elif element.tag == "list":
                self._list(element, depth + bool(mark))
            elif element.tag == "table":
                self.draft.table(self._table_rows(element))
            elif element.tag == "soft-page-break":
                self.draft.page()
            elif element.tag == "annotation":
                self.hidden["comment"] += 1
            elif element.get("display") in {"none", "condition"} and element.tag == "section":
                self.hidden["text"] += 1
            elif element.tag in _FIGURES:
                self._figure(element)
            elif element.tag not in _LEFT_OUT:
                self.blocks(element, depth)
            self._write_notes()

    def _control(self, control: Element) -> str:
        """The value of a form control."""
        return self._controls.get(control.get("control", ""), "")

    def _table_rows(self, table: Element) -> list[list[str]]:
        """The texts of a table; a cell that spans several rows is repeated in each."""
        rows: list[list[str]] = []
        rows_left: dict[int, int] = {}
        for row in _rows(table):
            texts: list[str] = []
            for at, cell in enumerate(_cells(row)):
                rows_left[at] = rows_left.get(at, 0) - 1
                if cell.tag == "covered-table-cell" and rows_left[at] >= 0 and at < len(rows[-1]):
                    texts.append(rows[-1][at])
                else:
                    rows_left[at] = repeat_count(cell, "number-rows-spanned") - 1
                    texts.append(self.cell_text(cell))
            rows.append(texts)
        return rows

    def _figure(self, figure: Element) -> None:
        """Write the text of a figure or control, the numbers of a chart, a worksheet or a formula."""
        if figure.tag != "object":
            is_control = figure.tag == "control"
            text = self._control(figure) if is_control else alternative_text("".join(figure.itertext()))
            self.draft.paragraph(text)
            return
        for text, rows in self.figures(figure):
            self.draft.paragraph(text)
            self.draft.table(rows)

    def figures(
        self, object_: Element, sheets: Collection[str] = ()
    ) -> Iterator[tuple[str, list[list[str]]]]:
        """Pairs of text and table in an object; either may be empty. Other objects are counted.

        Of a chart whose numbers are in the cells of `sheets`, only the title is written.
        """
        linked = object_.get("href")
        root = self._opened(linked) if linked else next(descendants(object_, "document"), Element(""))
        formulas, tables = [*root.iter("annotation")], [*root.iter("table")]
        self.hidden["object"] += not (tables or formulas)
        titles = [self.cell_text(title) for title in root.iter("title")] if tables else []
        plot = next(root.iter("plot-area"), root)
        sources = _SHEET_OF_CELLS.findall(plot.get("cell-range-address", ""))
        if sources and {quoted or plain for quoted, plain in sources} <= {*sheets}:
            yield f"(chart: {one_line(', '.join(filter(None, titles))) or 'untitled'})", []
            return
        yield from ((title, []) for title in titles)
        yield from (("", self._table_rows(table)) for table in tables)
        yield from (("".join(formula.itertext()), []) for formula in formulas)

    def _paragraph(self, paragraph: Element, depth: int, mark: str) -> None:
        style = self.style(paragraph)
        text = as_struck(self.inline(paragraph), is_struck=style.struck)
        level = paragraph.get("outline-level", "1")
        if style.hidden:
            self.hidden["text"] += bool(text.strip())
        elif paragraph.tag == "h" and text.strip():
            self.draft.heading(text, int(level) if level in set("123456789") else 1)
        elif style.name == "Title" and text.strip():
            self.title = self.title or " ".join(with_scripts(text).split())
            self.draft.heading(text, 1)
        elif mark:
            self.draft.item(text, depth, mark)
        else:
            self.draft.paragraph(text, bold=self._is_bold(paragraph, bold=style.bold))
        frames, self._frames = self._frames, []
        for frame in frames:
            self.blocks(frame)

    def _is_bold(self, paragraph: Element, *, bold: bool) -> bool:
        loose = [paragraph.text or "", *(child_.tail or "" for child_ in paragraph)]
        spans = [
            child_ for child_ in paragraph if child_.tag == "span" and "".join(child_.itertext()).strip()
        ]
        return (
            (bold or not any(text.strip() for text in loose))
            and all(bold or self.style(span).bold for span in spans)
            and bool(spans or bold)
        )

    def inline(self, parent: Element) -> str:
        """The text of a paragraph."""
        texts = [_SPACE.sub(" ", parent.text or "")]
        for child_ in parent:
            texts += [self._inline_part(child_), _SPACE.sub(" ", child_.tail or "")]
        return "".join(texts)

    def _inline_part(self, element: Element) -> str:  # noqa: PLR0911 a table
        match element.tag:
            case "s":
                return " " * min(int(element.get("c", "1")[:3]), 99)
            case "tab":
                return "\t"
            case "line-break":
                return "\n"
            case "soft-page-break":
                return PAGE_BREAK
            case "note":
                self._notes.append(element)
                return f"[^{self._written_notes + len(self._notes)}]"
            case "annotation" | "hidden-text" | "hidden-paragraph":
                self.hidden["comment" if element.tag == "annotation" else "text"] += 1
                return ""
            case "control":
                return self._control(element)
            case "frame" | "custom-shape" | "g" | "text-box":
                self._frames.append(element)
                return ""
            case "span" if self.style(element).hidden:
                self.hidden["text"] += 1
                return ""
            case _:
                text = "" if element.tag in _LEFT_OUT else self.inline(element)
                style = self.style(element)
                return as_struck(as_script(text, style.height), is_struck=style.struck)

    def _write_notes(self) -> None:
        while self._notes:
            note = self._notes.pop(0)
            self._written_notes += 1
            lines = (
                self.inline(paragraph).strip()
                for body in note
                if body.tag == "note-body"
                for paragraph in body.iter("p")
            )
            if text := "\n".join(filter(None, lines)):
                self.draft.paragraph(f"[^{self._written_notes}]: {text}")

    def _list(self, element: Element, depth: int, style_name: str = "") -> None:
        name = element.get("style-name", style_name)
        kind = self._styles.get(f"list {name}", _PLAIN).marks.get(depth + 1, "")
        key = f"{name} {depth}"
        if element.get("continue-numbering") != "true" and not element.get("continue-list"):
            self._counts[key] = 0
        for item in element:
            if item.tag == "list-header":
                self.blocks(item, depth, " ")
            if item.tag != "list-item":
                continue
            start = item.get("start-value", "")
            self._counts[key] = int(start) if start.isdecimal() else self._counts.get(key, 0) + 1
            mark = _number(self._counts[key], kind) if kind else "-"
            for block in item:
                if block.tag == "list":
                    self._list(block, depth + 1, name)
                    continue
                holder = item.makeelement("list-item", {})
                holder.append(block)
                self.blocks(holder, depth, mark)
                mark = " "

    def cell_text(self, cell: Element) -> str:
        """The text of a cell on one line."""
        texts = []
        for element in cell:
            if element.tag in {"p", "h"}:
                style = self.style(element)
                text = as_struck(self.inline(element), is_struck=style.struck)
                texts.append("" if style.hidden else text)
            elif element.tag == "annotation":
                self.hidden["comment"] += 1
            elif element.tag in _ALTERNATIVES:
                texts.append(alternative_text("".join(element.itertext())))
            elif element.tag == "control":
                texts.append(self._control(element))
            elif element.tag not in _LEFT_OUT:
                texts.append(self.cell_text(element))
        frames, self._frames = self._frames, []
        texts += [self.cell_text(frame) for frame in frames]
        return " ".join(text.strip(" \t\n") for text in texts if text.strip(" \t\n"))


def _rows(table: Element) -> Iterator[Element]:
    for element in table:
        if element.tag == "table-row":
            yield element
        elif element.tag in _ROWS:
            yield from _rows(element)


def _cells(row: Element) -> Iterator[Element]:
    for cell in row:
        if cell.tag in {"table-cell", "covered-table-cell"}:
            for _ in range(capped_repeat_count(cell, "number-columns-repeated") if len(cell) else 1):
                yield cell


def capped_repeat_count(element: Element, attribute: str) -> int:
    """The repeat count of a filled row or cell, at most `MAX_REPEATED`."""
    return min(repeat_count(element, attribute), MAX_REPEATED)


def repeat_count(element: Element, attribute: str) -> int:
    """The repeat count of a row or cell."""
    return whole_number(element.get(attribute, "1"), 1)


def _number(count: int, kind: str) -> str:
    match kind:
        case "a" | "A":
            letters = chr(ord(kind) + (count - 1) % 26)
            return f"{letters}."
        case "i" | "I":
            return f"{roman(count) if kind == 'i' else roman(count).upper()}."
        case _:
            return f"{count}."
