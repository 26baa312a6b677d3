"""OpenDocument (LibreOffice and others): texts, sheets and slides, packed or as one flat XML file.

A cell's text is what the program showed when it was saved. Slides are read as in PowerPoint files.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_draft import Draft, document_of_draft, properties_in
from rag.ingest.parse.document_parts import alternative_text, listed_names, numeral
from rag.ingest.parse.formulas import mathml_text
from rag.ingest.parse.office.drawings_and_forms import MAX_SLIDE_TITLE, in_reading_order, open_controls
from rag.ingest.parse.office.sheets import MAX_COLUMNS, Sheet, write_sheet
from rag.ingest.parse.pdf.text_page import Box, box_around
from rag.ingest.parse.typefaces import HEIGHTS, as_read, as_script, as_struck, with_scripts
from rag.ingest.parse.zip_package import ENCRYPTED, ZIP, Package, child, descendants, whole_number, xml_root
from rag.text.plain_text import one_line
from rag.text.table_heads import ABOVE, COVERED, PAGE_BREAK

SUFFIXES = (".odt", ".ott", ".fodt", ".ods", ".ots", ".fods", ".odp", ".otp", ".fodp")
MAX_REPEATED = 1_000  # times that a filled cell or row is repeated; blank ones are only counted

_MIME_TYPE = "application/vnd.oasis.opendocument."
_SHEET_OF_CELLS = re.compile(r"\$?(?:'([^']+)'|([^\s'.:$]{1,300}))\.\$?[A-Z]")
_SPACE = re.compile(r"[ \t\r\n]+")
_LEFT_OUT = listed_names("""
    tracked-changes table-of-content illustration-index table-index alphabetical-index forms sequence-decls
    variable-decls user-field-decls event-listeners image notes settings glue-point annotation-end
""")
_SIGNS = {"tab": "\t", "line-break": "\n", "soft-page-break": PAGE_BREAK}
_WORDS = frozenset({"title", "desc", "control"})  # alternative texts of frames, and form controls
_FIGURES = _WORDS | {"object"}
_ROWS = frozenset({"table-header-rows", "table-rows", "table-row-group"})
_COLUMNS = frozenset({"table-columns", "table-header-columns", "table-column-group"})
_CELLS = frozenset({"table-cell", "covered-table-cell"})
_SHAPES = frozenset({"frame", "custom-shape", "g", "rect", "ellipse"})
_FURNITURE = frozenset({"footer", "header", "date-time", "page-number"})
_HEADINGS = "headings"  # the list that numbers them
_NO_ITEM = frozenset({"list", "soft-page-break"})  # what stands in an item that has no number of its own
_PLACE = re.compile(r"%(\d{1,2})%")
_FIRST_PAGE = "Standard"  # the name of the pages with which a text begins that names none
_PAGE_FIELDS = frozenset({"page-number", "page-count", "page-continuation"})
_LENGTH = re.compile(r"(-?\d{0,9}(?:\.\d{1,9})?)(cm|mm|in|pt)")
_CENTIMETRES = {"cm": 1.0, "mm": 0.1, "in": 2.54, "pt": 2.54 / 72}


def parse(data: bytes, name: str) -> Document:
    """The document of an OpenDocument file, without hidden and deleted content and comments.

    The pages of a text come from the program that saved it, if it noted them.
    """
    package = Package(data) if data.startswith(ZIP) else None
    # Only parts are encrypted: the archive opens, and its XML looks damaged.
    if package and package.xml_if_there("META-INF/manifest.xml").find(".//encryption-data") is not None:
        raise ParseError(ENCRYPTED, "encrypted")
    content = package.xml("content.xml") if package else xml_root(data, "content")
    body = child(content, "body")
    if body is None:
        damage = "the file is damaged: its part content.xml has no body"
        raise ParseError(damage if package else "it isn't an OpenDocument file")
    styles = [content, package.xml_if_there("styles.xml")] if package else [content]
    reader = _Reader(styles_of(styles), open_controls(body), package)
    title = ""
    if (sheets := child(body, "spreadsheet")) is not None:
        kind, title = "spreadsheet", name
        read_sheets(reader, sheets)
    elif (slides := child(body, "presentation")) is not None:
        kind = "presentation"
        read_slides(reader, slides)
        title = reader.draft.first_title
    elif (text := child(body, "text")) is not None:
        kind = "text"
        reader.draft.left_out["deletion"] = _blank_deleted(text)
        reader.blocks(text)
        margins = [*_margins(styles)]
        reader.draft.margins(
            *(
                [reader.cell_text(margin) for margin in margins if margin.tag.startswith(kind)]
                for kind in ("header", "footer")
            )
        )
        title = reader.title
        reader.draft.pages = [0, *reader.draft.pages] if reader.draft.pages else []
    else:
        raise ParseError("it isn't a text, spreadsheet or presentation", "unsupported")
    meta = package.xml_if_there("meta.xml") if package else next(descendants(content, "meta"), Element(""))
    return document_of_draft(reader.draft, _MIME_TYPE + kind, properties_in(meta), title=title)


def _margins(roots: Sequence[Element]) -> Iterator[Element]:
    """The headers and footers of the pages that a text uses, without the numbers of pages."""
    pages = {page.get("name", ""): page for root in roots for page in root.iter("master-page")}
    used = {style.get("master-page-name", "") for style in roots[0].iter("style")} | {_FIRST_PAGE}
    used |= {pages[name].get("next-style-name", "") for name in used & {*pages}}
    for page in (pages[name] for name in pages if name in used):
        for margin in page:
            if margin.tag.startswith(("header", "footer")) and margin.get("display") != "false":
                for field in (part for part in margin.iter() if part.tag in _PAGE_FIELDS):
                    field.text = ""
                yield margin


def _blank_deleted(text: Element) -> int:
    """Blank the deleted words that still stand in a text, between two marks: flat files have some.

    Returns the number of pieces that are marked as deleted, wherever their words stand.
    """
    ends = {end.get("change-id", "") for end in text.iter("change-end")}
    regions = [region for region in text.iter("changed-region") if child(region, "deletion") is not None]
    deletions = {region.get("id", "") for region in regions} & ends
    opened: set[str] = set()

    def blank(element: Element) -> None:
        for inner in element:
            if inner.tag == "change-start":
                opened.update({inner.get("change-id", "")} & deletions)
            elif inner.tag == "change-end":
                opened.discard(inner.get("change-id", ""))
            inner.text = "" if opened else inner.text
            blank(inner)
            inner.tail = "" if opened else inner.tail

    if deletions:
        blank(text)
    return len(regions)


class ListLevel(NamedTuple):
    """How a level of a list is numbered: in "1", "a" or "i", "" for bullets; as in "%1%.%2%)"."""

    kind: str = ""
    form: str = ""
    start: int = 1


class Style(NamedTuple):
    """The properties of a style that matter for reading; a list has levels, the outermost one is 1."""

    name: str = ""
    hidden: bool = False
    bold: bool = False
    height: int = 0
    struck: bool = False
    levels: Mapping[int, ListLevel] = {}


_PLAIN = Style()


def styles_of(roots: Iterable[Element]) -> dict[str, Style]:
    """The styles of a document by name; names of list styles get the prefix "list ", as headings do."""
    elements = {element.get("name", ""): element for root in roots for element in root.iter("style")}
    styles = {name: _style(name, elements) for name in elements}
    for root in roots:
        for list_style in (*root.iter("list-style"), *root.iter("outline-style")):
            name = list_style.get("name", "") if list_style.tag == "list-style" else _HEADINGS
            styles[f"list {name}"] = Style(levels=dict(map(_list_level, list_style)))
    return styles


def _list_level(level: Element) -> tuple[int, ListLevel]:
    at, depth = whole_number(level.get("level", "1"), 1), whole_number(level.get("display-levels", "1"), 1)
    numbers = ".".join(f"%{above}%" for above in range(max(at - depth, 0) + 1, at + 1))
    form = level.get("num-prefix", "") + numbers + level.get("num-suffix", "")
    start = whole_number(level.get("start-value", "1"), 1)
    return at, ListLevel(level.get("num-format", ""), level.get("num-list-format") or form, start)


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


class _Reader:
    """Reads the body of a document into a draft."""

    def __init__(
        self, styles: Mapping[str, Style], controls: Mapping[str, str], package: Package | None
    ) -> None:
        """`controls` are form values by id; embedded objects are in the `package`, if the file isn't flat."""
        self.draft = Draft()
        self.title = ""
        self._styles = styles
        self._controls = controls
        self._package = package
        self._frames: list[Element] = []
        self._counts: dict[str, list[int]] = {}  # of the levels of each list that are open

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
                self.draft.left_out["comment"] += 1
            elif element.get("display") in {"none", "condition"} and element.tag == "section":
                self.draft.left_out["text"] += 1
            elif element.tag in _FIGURES:
                self._figure(element)
            elif element.tag not in _LEFT_OUT:
                self.blocks(element, depth)
            self.draft.write_notes()

    def _words(self, element: Element) -> str:
        if element.tag == "control":
            return self._controls.get(element.get("control", ""), "")
        return alternative_text("".join(element.itertext()))

    def _table_rows(self, table: Element) -> list[list[str]]:
        rows: list[list[str]] = []
        rows_left: dict[int, int] = {}
        for row in _elements_in_groups(table, "table-row", _ROWS):
            texts: list[str] = []
            for at, cell in enumerate(_repeated_cells(row)):
                # A covered cell is below a cell that spans rows, or right of one that spans columns.
                rows_left[at] = rows_left.get(at, 0) - 1
                if cell.tag == "covered-table-cell":
                    texts.append(ABOVE if rows_left[at] >= 0 else COVERED)
                else:
                    rows_left[at] = repeat_count(cell, "number-rows-spanned") - 1
                    texts.append(self.cell_text(cell))
            rows.append(texts)
        return rows

    def _figure(self, figure: Element) -> None:
        if figure.tag in _WORDS:
            self.draft.paragraph(self._words(figure))
        for text, rows in self.figures(figure) if figure.tag == "object" else ():
            self.draft.paragraph(text)
            self.draft.table(rows)

    def figures(
        self, object_: Element, sheets: Collection[str] = ()
    ) -> Iterator[tuple[str, list[list[str]]]]:
        """The texts and tables of a chart, a worksheet or a formula, in pairs; other objects are counted.

        Of a chart whose numbers are in the cells of `sheets`, only the title is written.
        """
        root = next(descendants(object_, "document"), object_)
        if linked := object_.get("href"):
            path = f"{posixpath.normpath(linked)}/content.xml"
            root = self._package.xml_if_there(path) if self._package else Element("")
        tables = [*root.iter("table")]
        formulas = ["".join(source.itertext()) for source in root.iter("annotation")]
        formulas = formulas or [*map(mathml_text, root.iter("math"))]
        self.draft.left_out["object"] += not (tables or formulas)
        titles = [self.cell_text(title) for title in root.iter("title")] if tables else []
        plot = next(root.iter("plot-area"), root)
        sources = _SHEET_OF_CELLS.findall(plot.get("cell-range-address", ""))
        if sources and {quoted or plain for quoted, plain in sources} <= {*sheets}:
            yield f"(chart: {one_line(', '.join(filter(None, titles))) or 'untitled'})", []
            return
        yield from ((title, []) for title in titles)
        yield from (("", self._table_rows(table)) for table in tables)
        yield from ((formula, []) for formula in formulas)

    def _paragraph(self, paragraph: Element, depth: int, mark: str) -> None:
        style = self.style(paragraph)
        text = as_struck(self.inline(paragraph), is_struck=style.struck)
        level = paragraph.get("outline-level", "1")
        if style.hidden:
            self.draft.left_out["text"] += bool(text.strip())
        elif paragraph.tag == "h" and text.strip():
            depth = int(level) if level in set("123456789") else 1
            if not mark and paragraph.get("is-list-header") != "true":
                mark = self._mark(_HEADINGS, depth - 1)
            self.draft.heading(f"{mark} {text}" if mark.strip(" -") else text, depth)
        elif style.name == "Title" and text.strip():
            self.title = self.title or " ".join(with_scripts(text).split())
            self.draft.heading(text, 1)
        elif mark:
            self.draft.item(text, depth, mark, bold=self._is_bold(paragraph, bold=style.bold))
        else:
            self.draft.paragraph(text, bold=self._is_bold(paragraph, bold=style.bold))
        frames, self._frames = self._frames, []
        for frame in frames:
            self.blocks(frame)

    def _is_bold(self, paragraph: Element, *, bold: bool) -> bool:
        loose = [paragraph.text or "", *(child_.tail or "" for child_ in paragraph)]
        spans = [span for span in paragraph.iterfind("span") if "".join(span.itertext()).strip()]
        are_bold = bool(spans) and all(self.style(span).bold for span in spans)
        return bold or (are_bold and not any(text.strip() for text in loose))

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
            case "tab" | "line-break" | "soft-page-break":
                return _SIGNS[element.tag]
            case "note":
                return self.draft.note(lambda: self._note_text(element))
            case "annotation" | "hidden-text" | "hidden-paragraph":
                self.draft.left_out["comment" if element.tag == "annotation" else "text"] += 1
                return ""
            case "control":
                return self._words(element)
            case "ruby":
                texts = [self.inline(part) for part in element]
                return as_read("".join(texts[:1]), "".join(texts[1:]))
            case "frame" | "custom-shape" | "g" | "text-box":
                self._frames.append(element)
                return ""
            case "span" if self.style(element).hidden:
                self.draft.left_out["text"] += 1
                return ""
            case _:
                text = "" if element.tag in _LEFT_OUT else self.inline(element)
                style = self.style(element)
                return as_struck(as_script(text, style.height), is_struck=style.struck)

    def _note_text(self, note: Element) -> str:
        paragraphs = (paragraph for body in note.iterfind("note-body") for paragraph in body.iter("p"))
        return "\n".join(filter(None, (self.inline(paragraph).strip() for paragraph in paragraphs)))

    def _list(self, element: Element, depth: int, style_name: str = "") -> None:
        name = element.get("style-name", style_name)
        continues = element.get("continue-numbering") == "true" or element.get("continue-list")
        if name != style_name and not continues:
            del self._counts.setdefault(name, [])[depth:]  # another list starts again, as people see it
        for item in element:
            if item.tag == "list-header":
                self.blocks(item, depth, " ")
            if item.tag != "list-item":
                continue
            # An item that only holds a deeper list has no number: counting it would shift all later clauses.
            is_counted = any(block.tag not in _NO_ITEM for block in item)
            mark = self._mark(name, depth, item.get("start-value", "")) if is_counted else " "
            for block in item:
                if block.tag == "list":
                    self._list(block, depth + 1, name)
                    continue
                holder = item.makeelement("list-item", {})
                holder.append(block)
                self.blocks(holder, depth, mark)
                mark = " "

    def _mark(self, name: str, depth: int, start: str = "") -> str:
        """The mark of the next item of a list: "-", "1.", "(b)" or "4.2"; levels above are counted, too."""
        levels = self._styles.get(f"list {name}", _PLAIN).levels
        counts = self._counts.setdefault(name, [])
        del counts[depth + 1 :]
        counts += [
            levels.get(at, ListLevel()).start - (at > depth) for at in range(len(counts) + 1, depth + 2)
        ]
        counts[depth] = int(start) if start.isdecimal() else counts[depth] + 1
        level = levels.get(depth + 1, ListLevel())

        def number(place: re.Match[str]) -> str:
            at = whole_number(place[1])
            kind = levels.get(at, ListLevel()).kind
            return numeral(counts[at - 1], kind) if kind and 0 < at <= len(counts) else ""

        mark = _PLACE.sub(number, level.form).strip()
        return (f"{mark}." if mark.isalnum() else mark) if level.kind else "-"

    def cell_text(self, cell: Element) -> str:
        """The text of a cell on one line."""
        texts = []
        for element in cell:
            if element.tag in {"p", "h"}:
                style = self.style(element)
                text = as_struck(self.inline(element), is_struck=style.struck)
                texts.append("" if style.hidden else text)
            elif element.tag == "annotation":
                self.draft.left_out["comment"] += 1
            elif element.tag in _WORDS:
                texts.append(self._words(element))
            elif element.tag not in _LEFT_OUT:
                texts.append(self.cell_text(element))
        frames, self._frames = self._frames, []
        texts += [self.cell_text(frame) for frame in frames]
        return " ".join(text.strip(" \t\n") for text in texts if text.strip(" \t\n"))


def _repeated_cells(row: Element) -> Iterator[Element]:
    for cell in row:
        if cell.tag in _CELLS:
            for _ in range(capped_repeat_count(cell, "number-columns-repeated") if len(cell) else 1):
                yield cell


def capped_repeat_count(element: Element, attribute: str) -> int:
    """The repeat count of a filled row or cell, at most `MAX_REPEATED`."""
    return min(repeat_count(element, attribute), MAX_REPEATED)


def repeat_count(element: Element, attribute: str) -> int:
    """The repeat count of a row or cell."""
    return whole_number(element.get(attribute, "1"), 1)


def read_sheets(reader: _Reader, spreadsheet: Element) -> None:
    """Write the sheets that aren't hidden."""
    tables = spreadsheet.findall("table")
    visible = [table for table in tables if not reader.style(table).hidden]
    reader.draft.left_out["sheet"] += len(tables) - len(visible)
    names = {table.get("name", "") for table in visible}
    for table in visible:
        write_sheet(reader.draft, _sheet(reader, table, names))


def _sheet(reader: _Reader, table: Element, names: Collection[str]) -> Sheet:
    objects = [
        object_ for shape in table.iter() if shape.tag in _SHAPES for object_ in shape.iterfind("object")
    ]
    sheet = Sheet(table.get("name", ""))
    sheet.charts = [figure for object_ in objects for figure in reader.figures(object_, names)]
    column = 1
    for column_element in _elements_in_groups(table, "table-column", _COLUMNS):
        count = min(repeat_count(column_element, "number-columns-repeated"), MAX_COLUMNS)
        if column_element.get("visibility", "visible") != "visible":
            sheet.hidden_columns.update(range(column, min(column + count, MAX_COLUMNS)))
        column += count
    sheet.boxes = [(1, 1, text) for shapes in table.iterfind("shapes") if (text := reader.cell_text(shapes))]
    number = 1
    for row in _elements_in_groups(table, "table-row", _ROWS):
        cells = _cells(reader, sheet, row, number)
        # Blank rows are only counted: with its looks, a sheet may reach down to row 1,048,576.
        for at in range(number, number + capped_repeat_count(row, "number-rows-repeated")) if cells else ():
            sheet.rows[at] = dict(cells)
            if row.get("visibility", "visible") != "visible":
                sheet.hidden_rows.add(at)
        number += repeat_count(row, "number-rows-repeated")
    return sheet


def _elements_in_groups(parent: Element, tag: str, groups: frozenset[str]) -> Iterator[Element]:
    for element in parent:
        if element.tag == tag:
            yield element
        elif element.tag in groups:
            yield from _elements_in_groups(element, tag, groups)


def _cells(reader: _Reader, sheet: Sheet, row: Element, number: int) -> dict[int, str]:
    cells: dict[int, str] = {}
    column = 1
    for cell in row:
        if cell.tag not in _CELLS:
            continue
        boxes = [shape for shape in cell if shape.tag in _SHAPES]
        sheet.boxes += [(number, column, text) for shape in boxes if (text := reader.cell_text(shape))]
        for shape in boxes:
            cell.remove(shape)
        text = reader.cell_text(cell) if cell.tag == "table-cell" and len(cell) else ""
        if text := as_struck(text, is_struck=reader.style(cell).struck):
            end = column + capped_repeat_count(cell, "number-columns-repeated")
            cells |= dict.fromkeys(range(column, min(end, MAX_COLUMNS)), text)
            down, across = (repeat_count(cell, f"number-{lines}-spanned") for lines in ("rows", "columns"))
            if down > 1 or across > 1:
                sheet.merged.append((number, column, number + down - 1, column + across - 1))
        column += repeat_count(cell, "number-columns-repeated")
    return cells


def read_slides(reader: _Reader, presentation: Element) -> None:
    """Write the slides that aren't hidden: title, shapes in reading order, notes."""
    for number, page in enumerate(presentation.iterfind("page"), 1):
        reader.draft.page()
        if reader.style(page).hidden:
            reader.draft.left_out["slide"] += 1
            continue
        _slide(reader, page, number)


def _slide(reader: _Reader, page: Element, number: int) -> None:
    in_order = (shape for shape in _shapes_in_order(page) if shape.get("class") not in _FURNITURE)
    shapes = [*filter(_has_text, in_order)]
    title = next((shape for shape in shapes if shape.get("class") == "title"), None)
    body_shapes = [shape for shape in shapes if shape is not title]
    if title is not None:
        reader.draft.heading(reader.cell_text(title), 1)
    elif body_shapes:
        first = reader.cell_text(body_shapes[0])
        is_figure = body_shapes[0].tag == "control" or any(
            body_shapes[0].find(f".//{tag}") is not None for tag in ("table", "object", "desc")
        )
        is_title = len(first) <= MAX_SLIDE_TITLE and not is_figure
        reader.draft.heading(first if is_title else f"Slide {number}", 1)
        body_shapes = body_shapes[1:] if is_title else body_shapes
    for shape in body_shapes:
        holder = page.makeelement("page", {})
        holder.append(shape)
        reader.blocks(holder)
    for notes in page.findall("notes"):
        texts = [reader.cell_text(shape) for shape in notes if shape.get("class") == "notes"]
        if text := "\n".join(filter(None, texts)):
            reader.draft.paragraph(f"Speaker notes:\n{text}")


def _shapes_in_order(parent: Element) -> Iterator[Element]:
    """The shapes of a page in reading order; the shapes of a group are at its position."""
    for shape in in_reading_order([shape for shape in parent if shape.tag != "notes"], _box_of):
        if shape.tag == "g":
            yield from _shapes_in_order(shape)
        else:
            yield shape


def _has_text(shape: Element) -> bool:
    words = shape.tag == "control" or any(
        "".join(paragraph.itertext()).strip() for tag in ("p", "h") for paragraph in shape.iter(tag)
    )
    return words or any(shape.find(f".//{tag}") is not None for tag in ("object", "desc"))


def _box_of(shape: Element) -> Box | None:
    """The box of a shape; None if it is unknown, and for titles, which go first."""
    if shape.tag == "g":
        boxes = [box for member in shape if (box := _box_of(member))]
        return box_around(boxes) if boxes else None
    names = ("x", "y", "width", "height")
    sizes = [size for name in names if (size := _length(shape.get(name, ""))) is not None]
    if shape.get("class") == "title" or len(sizes) < len(names):
        return None
    left, top, width, height = sizes
    return Box(left, top, left + width, top + height)


def _length(text: str) -> float | None:
    match = _LENGTH.fullmatch(text)
    return float(match[1]) * _CENTIMETRES[match[2]] if match and match[1] not in {"", "-"} else None
