"""OpenDocument (LibreOffice and others): texts, sheets and slides, packed or as one flat XML file.

A cell's text is what the program showed when it was saved. Slides are read as those of PowerPoint.
`opendocument_text` reads texts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_draft import document_of_draft, omission_remarks, open_document_properties
from rag.ingest.parse.office.drawings_and_forms import Box, in_reading_order, open_controls
from rag.ingest.parse.office.opendocument_text import OdfReader, capped_repeat_count, repeat_count, styles_of
from rag.ingest.parse.office.sheets import Sheet, write_sheet
from rag.ingest.parse.zip_package import ENCRYPTED, ZIP, Package, child, descendants, xml_root

SUFFIXES = (".odt", ".ott", ".fodt", ".ods", ".ots", ".fods", ".odp", ".otp", ".fodp")
_MIME_TYPE = "application/vnd.oasis.opendocument."


@dataclass(frozen=True, slots=True)
class _Parts:
    body: Element
    styles: list[Element]
    meta: Element
    package: Package | None = None

    def opened(self, name: str) -> Element:
        """The content of an embedded object; an empty element if it is missing or isn't XML."""
        path = f"{posixpath.normpath(name)}/content.xml"
        return self.package.xml_if_there(path) if self.package else Element("")


def parse(data: bytes, name: str) -> Document:
    """The document of an OpenDocument file, without hidden and deleted content and comments.

    The pages of a text come from the program that saved it, if it noted them.
    """
    parts = _parts(data)
    styles = styles_of(parts.styles)
    reader = OdfReader(styles, parts.opened, open_controls(parts.body))
    title = ""
    if (sheets := child(parts.body, "spreadsheet")) is not None:
        kind, title = "spreadsheet", name
        read_sheets(reader, sheets)
    elif (slides := child(parts.body, "presentation")) is not None:
        kind = "presentation"
        read_slides(reader, slides)
    elif (text := child(parts.body, "text")) is not None:
        kind = "text"
        reader.blocks(text)
        title = reader.title
        reader.draft.pages = [0, *reader.draft.pages] if reader.draft.pages else []
    else:
        raise ParseError("it isn't a text, spreadsheet or presentation", "unsupported")
    remarks = [
        *omission_remarks(reader.hidden["slide"], "hidden slide"),
        *omission_remarks(reader.hidden["sheet"], "hidden sheet"),
        *omission_remarks(reader.hidden["row"], "hidden row or column", "hidden rows or columns"),
        *omission_remarks(reader.hidden["text"], "hidden piece of text", "hidden pieces of text"),
        *omission_remarks(reader.hidden["comment"], "comment"),
        *omission_remarks(reader.hidden["object"], "embedded object"),
    ]
    properties = open_document_properties(parts.meta)
    return document_of_draft(reader.draft, name, _MIME_TYPE + kind, properties, remarks=remarks, title=title)


def _parts(data: bytes) -> _Parts:
    if not data.startswith(ZIP):
        root = xml_root(data, "content")
        body = child(root, "body")
        if body is None:
            raise ParseError("it isn't an OpenDocument file")
        return _Parts(body, [root], next(descendants(root, "meta"), Element("")))
    package = Package(data)
    if package.xml_if_there("META-INF/manifest.xml").find(".//encryption-data") is not None:
        raise ParseError(ENCRYPTED, "encrypted")
    content = package.xml("content.xml")
    body = child(content, "body")
    if body is None:
        raise ParseError("the file is damaged: its part content.xml has no body")
    styles = package.xml_if_there("styles.xml")
    return _Parts(body, [content, styles], package.xml_if_there("meta.xml"), package)


MAX_COLUMNS = 16_384  # of a sheet
_SHAPES = frozenset({"frame", "custom-shape", "g", "rect", "ellipse"})
_GROUPS = frozenset({"table-header-rows", "table-rows", "table-row-group"})
_COLUMN_GROUPS = frozenset({"table-columns", "table-header-columns", "table-column-group"})


def read_sheets(reader: OdfReader, spreadsheet: Element) -> None:
    """Write the sheets that aren't hidden."""
    tables = [table for table in spreadsheet if table.tag == "table"]
    visible = [table for table in tables if not reader.style(table).hidden]
    reader.hidden["sheet"] += len(tables) - len(visible)
    names = {table.get("name", "") for table in visible}
    for table in visible:
        reader.hidden["row"] += write_sheet(reader.draft, _sheet(reader, table, names))


def _sheet(reader: OdfReader, table: Element, names: Collection[str]) -> Sheet:
    """A sheet; `names` are the names of the visible sheets."""
    objects = [
        child_ for shape in table.iter() if shape.tag in _SHAPES for child_ in shape if child_.tag == "object"
    ]
    sheet = Sheet(table.get("name", ""))
    sheet.charts = [figure for object_ in objects for figure in reader.figures(object_, names)]
    column = 1
    for column_element in _elements_in_groups(table, "table-column", _COLUMN_GROUPS):
        count = min(repeat_count(column_element, "number-columns-repeated"), MAX_COLUMNS)
        if column_element.get("visibility", "visible") != "visible":
            sheet.hidden_columns.update(range(column, min(column + count, MAX_COLUMNS)))
        column += count
    sheet.boxes = [
        (1, 1, text) for child_ in table if child_.tag == "shapes" if (text := reader.cell_text(child_))
    ]
    number = 1
    for row in _elements_in_groups(table, "table-row", _GROUPS):
        cells = _cells(reader, sheet, row, number)
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


def _cells(reader: OdfReader, sheet: Sheet, row: Element, number: int) -> dict[int, str]:
    cells: dict[int, str] = {}
    column = 1
    for cell in row:
        if cell.tag not in {"table-cell", "covered-table-cell"}:
            continue
        boxes = [shape for shape in cell if shape.tag in _SHAPES]
        sheet.boxes += [(number, column, text) for shape in boxes if (text := reader.cell_text(shape))]
        for shape in boxes:
            cell.remove(shape)
        if cell.tag == "table-cell" and len(cell) and (text := reader.cell_text(cell)):
            for at in range(
                column, min(column + capped_repeat_count(cell, "number-columns-repeated"), MAX_COLUMNS)
            ):
                cells[at] = text
            if (down := repeat_count(cell, "number-rows-spanned")) > 1:
                across = repeat_count(cell, "number-columns-spanned")
                sheet.merged.append((number, column, number + down - 1, column + across - 1))
        column += repeat_count(cell, "number-columns-repeated")
    return cells


MAX_TITLE = 80  # characters of a first line that stands for the title of a slide
_FURNITURE = frozenset({"footer", "header", "date-time", "page-number"})
_LENGTH = re.compile(r"(-?\d{0,9}(?:\.\d{1,9})?)(cm|mm|in|pt)")
_CENTIMETRES = {"cm": 1.0, "mm": 0.1, "in": 2.54, "pt": 2.54 / 72}


def read_slides(reader: OdfReader, presentation: Element) -> None:
    """Write the slides that aren't hidden: title, shapes in reading order, notes."""
    for number, page in enumerate((element for element in presentation if element.tag == "page"), 1):
        reader.draft.page()
        if reader.style(page).hidden:
            reader.hidden["slide"] += 1
            continue
        _slide(reader, page, number)


def _slide(reader: OdfReader, page: Element, number: int) -> None:
    shapes = [
        shape for shape in _shapes_in_order(page) if shape.get("class") not in _FURNITURE and _has_text(shape)
    ]
    title = next((shape for shape in shapes if shape.get("class") == "title"), None)
    body_shapes = [shape for shape in shapes if shape is not title]
    if title is not None:
        reader.draft.heading(reader.cell_text(title), 1)
    elif body_shapes:
        first = reader.cell_text(body_shapes[0])
        is_figure = body_shapes[0].tag == "control" or any(
            body_shapes[0].find(f".//{tag}") is not None for tag in ("table", "object", "desc")
        )
        is_title = len(first) <= MAX_TITLE and not is_figure
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
        if not boxes:
            return None
        lefts, tops, rights, bottoms = zip(*boxes, strict=True)
        return Box(min(lefts), min(tops), max(rights), max(bottoms))
    names = ("x", "y", "width", "height")
    sizes = [size for name in names if (size := _length(shape.get(name, ""))) is not None]
    if shape.get("class") == "title" or len(sizes) < len(names):
        return None
    left, top, width, height = sizes
    return Box(left, top, left + width, top + height)


def _length(text: str) -> float | None:
    match = _LENGTH.fullmatch(text)
    return float(match[1]) * _CENTIMETRES[match[2]] if match and match[1] not in {"", "-"} else None
