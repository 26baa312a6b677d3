"""Word (DOCX): headings by style, lists with their numbers, tables, forms; without deleted text.

Parse only in the sandbox: the XML of a small file can be large.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, groupby, pairwise, takewhile
from xml.etree.ElementTree import Element

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse import html_page, text_and_settings
from rag.ingest.parse.decode import decode
from rag.ingest.parse.document_draft import Draft, core_properties, document_of_draft
from rag.ingest.parse.formulas import omml_text
from rag.ingest.parse.office import drawings_and_forms, xlsx
from rag.ingest.parse.office.docx_styles import Numbering, Styles, is_code
from rag.ingest.parse.typefaces import HEIGHTS, as_read, as_script, as_struck, with_scripts, with_symbols
from rag.ingest.parse.zip_package import ZIP, Package, as_link, child, descendants, is_on, value, whole_number
from rag.text.table_heads import ABOVE, COVERED, PAGE_BREAK

SUFFIXES = (".docx", ".docm", ".dotx", ".dotm")
MIME_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"

_TRANSPARENT = frozenset(
    {"sdtContent", "customXml", "ins", "moveTo", "smartTag", "fldSimple", "hyperlink", "dir", "bdo"}
)
_IN_PARAGRAPH = _TRANSPARENT | {"rubyBase", "ruby"}
_CHARACTERS = {
    "tab": "\t",
    "ptab": "\t",
    "br": "\n",
    "cr": "\n",
    "noBreakHyphen": "-",
    "lastRenderedPageBreak": PAGE_BREAK,
}
_CONTENTS = ("toc ", "table of figures", "table of authorities")
_LARGE = 40  # half points: the least size of the title on a cover
_DRAWN = frozenset({"drawing", "pict", "object"})


def parse(data: bytes, _name: str) -> Document:
    """The document of a Word file, without comments and table of contents.

    Headers and footers are written once, at the end. Pages come from Word's last layout, if it has as many
    as Word noted.
    """
    package = Package(data)
    main = package.related_as("", "officeDocument") or "word/document.xml"
    reader = _Reader(package, main)
    body = child(reader.with_addresses(package.xml(main), main), "body")
    if body is not None:
        reader.draft.left_out["deletion"] = sum(_has_deleted_text(part) for part in body.iter("del"))
        drawings_and_forms.fill_controls(body)
        _join_paragraphs(body)  # before any is written: the style of the second holds for both
        reader.blocks(body)
        reader.margins(body)
    draft = reader.draft
    noted = package.xml_if_there("docProps/app.xml").findtext("Pages", "")
    is_whole = 1 < whole_number(noted, max_digits=5) == len(draft.pages) + 1
    draft.pages = [0, *draft.pages] if is_whole else []
    draft.left_out["comment"] = len([*reader.part("comments").iter("comment")])
    title = reader.title or reader.cover()
    return document_of_draft(draft, MIME_TYPE, core_properties(package), title=title)


def _has_deleted_text(change: Element) -> bool:
    # Of its own runs: to look into each of many changes in one another takes quadratic time.
    return any((text.text or "").strip() for text in change.iterfind("r/delText"))


def _font(about: Element | None) -> str:
    fonts = child(about, "rFonts")
    return (fonts.get("ascii") or fonts.get("hAnsi") or "") if fonts is not None else ""


def _fonts(paragraph: Element) -> set[str]:
    """The fonts of a paragraph's text; "" is the font of its style."""
    return {_font(child(run, "rPr")) for run in paragraph.iter("r") if child(run, "t") is not None}


def _is_bold(paragraph: Element, bold: bool) -> bool:  # noqa: FBT001 what its style says
    runs = [run for run in paragraph.iter("r") if any((text.text or "").strip() for text in run.iter("t"))]
    stated = (is_on(run, "rPr", "b") if child(run, "rPr", "b") is not None else bold for run in runs)
    return bool(runs) and all(stated)


class _Reader:
    def __init__(self, package: Package, main: str) -> None:
        self.draft = Draft()
        self.title = ""
        self._cover: list[tuple[int, str]] = []
        self._first_page_ended = False
        self._package = package
        self._main = main
        self._styles = Styles(self.part("styles"))
        self._numbering = Numbering(self.part("numbering"), self._styles)
        self._notes = {kind: _by_id(self.part(f"{kind}s"), kind) for kind in ("footnote", "endnote")}
        self._drawn: list[Element] = []
        self._in_control = False

    def part(self, kind: str) -> Element:
        """The part of a kind that the document has one of; an empty element if it is missing."""
        path = self._package.related_as(self._main, kind)
        return self.with_addresses(self._package.xml_if_there(path), path)

    def with_addresses(self, root: Element, path: str) -> Element:
        """The root of a part, with the web addresses of its links in these."""
        addresses = self._package.addresses(path)
        for link in root.iter("hyperlink") if addresses else ():
            link.set("address", addresses.get(link.get("r:id", ""), ""))
        return root

    def cover(self) -> str:
        """The largest words on a first page without headings, or "" if none are large."""
        if not self._first_page_ended:
            return ""
        largest = max((size for size, _ in self._cover), default=0)
        lines = dropwhile(lambda line: line[0] < largest, self._cover)
        return " ".join(text for _, text in takewhile(lambda line: line[0] == largest, lines))

    def blocks(self, parent: Element) -> None:
        """Write the paragraphs and tables of a body, a cell or a text box."""
        for block in _blocks(parent):
            if block.tag == "p":
                self._paragraph(block)
            elif block.tag == "tbl":
                self._table(block)
            elif block.tag == "altChunk":
                self._imported_file(block.get("r:id", ""))
            self.draft.write_notes()

    def _imported_file(self, id_: str) -> None:
        """Write a file that is imported as text of the document (altChunk)."""
        try:
            data = self._package.read(self._path(id_))
            read = html_page.parse if data.lstrip()[:1] == b"<" else text_and_settings.parse
            document = parse(data, "") if data.startswith(ZIP) else read(decode(data)[0], "")
        except ParseError:
            self.draft.left_out["object"] += 1
            return
        if data.startswith(b"{\\rtf") or not document.blocks:
            self.draft.left_out["object"] += 1
        else:
            self.draft.document(document)

    def _path(self, id_: str) -> str:
        return self._package.target(self._main, id_)

    def margins(self, body: Element) -> None:
        """Write each header and footer once, except those that only number pages."""
        # Word keeps headers of even pages, and of first ones, that a setting no longer shows.
        even = is_on(self.part("settings"), "evenAndOddHeaders")
        sections = body.iter("sectPr")
        references = [
            reference for section in sections for reference in self._margin_references(section, even=even)
        ]
        self.draft.margins(
            *(self._margin_lines(references, f"{kind}Reference") for kind in ("header", "footer"))
        )

    def _margin_references(self, section: Element, *, even: bool) -> Iterator[Element]:
        """The references to the visible headers and footers of a section."""
        is_shown = {"default": True, "first": is_on(section, "titlePg"), "even": even}
        for reference in section:
            is_margin = reference.tag in {"headerReference", "footerReference"}
            if is_margin and is_shown.get(reference.get("type", "default")):
                yield reference

    def _margin_lines(self, references: Sequence[Element], tag: str) -> Iterator[str]:
        for path in dict.fromkeys(self._path(part.get("r:id", "")) for part in references if part.tag == tag):
            for paragraph in self.with_addresses(self._package.xml_if_there(path), path).iter("p"):
                yield self._inline(paragraph).replace(PAGE_BREAK, " ")

    def _paragraph(self, paragraph: Element) -> None:
        about = child(paragraph, "pPr")
        style = self._styles[value(about, "pStyle")]
        if style.name.startswith(_CONTENTS):  # it repeats the headings, and would be found in their place
            return
        level = _level(about, style.level)
        bold = _is_bold(paragraph, style.bold)
        is_heading = level or bold or style.name == "title"  # a bold line may become one
        text = self._inline(paragraph, with_links=not is_heading)
        mark, depth = self._mark(paragraph, text)
        if style.name == "title" and not self.title:
            self.title = " ".join(with_scripts(text).split())
        self._collect_cover(paragraph, text, level)
        if level:
            self.draft.heading(f"{mark} {text}" if mark and mark != "-" else text, level)
        elif mark:
            self.draft.item(text, depth, mark, bold=bold)
        elif is_code(style, _fonts(paragraph), is_indented=text[:1].isspace()):
            self.draft.code(text)
        else:
            self.draft.paragraph(text, bold=bold)
        # What is anchored in a paragraph follows it: amid its words, a figure would cut a sentence.
        drawn, self._drawn = self._drawn, []
        for drawing in drawn:
            self._figure(drawing)

    def _mark(self, paragraph: Element, text: str) -> tuple[str, int]:
        about = child(paragraph, "pPr")
        return self._numbering.mark(about, self._styles[value(about, "pStyle")]) if text.strip() else ("", 0)

    def _figure(self, drawn: Element) -> None:
        """Write the text of a frame, chart, diagram, embedded sheet or picture; other objects are counted."""
        for box in _outermost_elements(drawn, "txbxContent"):
            self.blocks(box)
        for text in drawings_and_forms.picture_words(drawn):
            self.draft.paragraph(text)
        for element in drawn.iter():
            drawings_and_forms.write_figure(self.draft, element, self._package, self._main)
            if element.tag == "OLEObject" and not element.get("ProgID", "").startswith("Equation"):
                path = self._path(element.get("r:id", ""))
                self.draft.left_out["object"] += not xlsx.write_embedded(self.draft, self._package, path)

    def _figure_texts(self, drawn: Element) -> Iterator[str]:
        draft, self.draft = self.draft, Draft()
        self._figure(drawn)
        draft, self.draft = self.draft, draft
        self.draft.left_out += draft.left_out
        yield from filter(None, draft.text.split("\n"))

    def _collect_cover(self, paragraph: Element, text: str, level: int) -> None:
        """Collect the large words on the first page, until a heading is found."""
        if self._first_page_ended:
            return
        if level:
            self._cover, self._first_page_ended = [], True
            return
        if (size := _common_size(paragraph)) >= _LARGE and text.strip():
            self._cover.append((size, " ".join(text.split())))
        self._first_page_ended = any(map(_ends_page, paragraph.iter()))

    def _inline(self, parent: Element, *, with_links: bool = True) -> str:
        """The text of a paragraph, with insertions and without deletions; links lead to web addresses."""
        texts = []
        for address, elements in groupby(parent, key=lambda element: element.get("address", "")):
            # A link may be in parts, one for each run.
            text = "".join(self._inline_texts(elements, with_links=with_links))
            texts.append(as_link(text, address if with_links else ""))
        return "".join(texts)

    def _inline_texts(self, elements: Iterable[Element], *, with_links: bool) -> Iterator[str]:
        for element in elements:
            if element.tag == "r":
                yield self._run(element)
            elif element.tag in _IN_PARAGRAPH:
                yield self._inline(element, with_links=with_links)
            elif element.tag == "sdt":
                content = child(element, "sdtContent")
                yield self._inline(content, with_links=with_links) if content is not None else ""
            elif element.tag in {"oMath", "oMathPara"}:
                yield f" {omml_text(element)} "

    def _run(self, run: Element) -> str:
        about = child(run, "rPr")
        vanish = child(about, "vanish")  # stated at all, it overrides the style
        hidden = is_on(about, "vanish") if vanish is not None else self._styles[value(about, "rStyle")].hidden
        is_tiny = 0 < whole_number(value(about, "sz")) <= 2  # noqa: PLR2004 half points, which nobody can read
        if hidden or is_tiny:
            self.draft.left_out["text"] += any((text.text or "").strip() for text in run.iter("t"))
            return ""
        height = HEIGHTS.get(value(about, "vertAlign"), 0)
        font = _font(about)
        text = "".join(self._character(part, font) for part in run)
        is_struck = is_on(about, "strike") or is_on(about, "dstrike")
        return as_struck(as_script(text, height), is_struck=is_struck)

    def _character(self, part: Element, font: str) -> str:  # noqa: PLR0911 a table
        if part.tag == "fldChar":
            return self._field(part)
        if self._in_control:  # some programs repeat there what the control shows
            return ""
        if part.tag == "t":
            return with_symbols(part.text or "", font)
        if part.tag == "sym":
            return drawings_and_forms.symbol(part)
        if part.tag in _CHARACTERS:
            return _CHARACTERS[part.tag]
        if part.tag in {"footnoteReference", "endnoteReference"}:
            return self._note(part)
        if part.tag == "ruby":
            parts = (child(part, name) for name in ("rubyBase", "rt"))
            return as_read(*("" if text is None else self._inline(text) for text in parts))
        if part.tag in _DRAWN:
            self._drawn.append(part)
        return ""

    def _field(self, mark: Element) -> str:
        """The value of a checkbox or list of a form, at its beginning."""
        kind = mark.get("fldCharType")
        field_text = drawings_and_forms.field_value(mark)
        if kind != "separate":
            self._in_control = kind == "begin" and field_text is not None
        return field_text or ""

    def _note(self, reference: Element) -> str:
        note = self._notes[reference.tag.removesuffix("Reference")].get(reference.get("id", ""))
        return self.draft.note(lambda: self._note_text(note)) if note is not None else ""

    def _note_text(self, note: Element) -> str:
        return "\n".join(filter(None, (self._inline(paragraph).strip() for paragraph in note.iter("p"))))

    def _table(self, table: Element) -> None:
        rows = [self._row(row) for row in _blocks(table) if row.tag == "tr"]
        # A row that is wholly merged with the one above only repeats it.
        rows = [row for row in rows if not all(_is_merged(cell) for cell, _ in row)]
        if all(len(row) == 1 for row in rows):  # a frame around text
            for row in rows:
                for cell, _ in row:
                    self.blocks(cell)
            return
        self.draft.table([*map(self._cells, rows)])

    def _row(self, row: Element) -> list[tuple[Element, int]]:
        skipped = value(row, "trPr", "gridBefore")
        cells = [
            (cell, _number(value(cell, "tcPr", "gridSpan"))) for cell in _blocks(row) if cell.tag == "tc"
        ]
        return [*([(row.makeelement("tc", {}), _number(skipped))] if skipped else []), *cells]

    def _cells(self, row: list[tuple[Element, int]]) -> list[str]:
        texts: list[str] = []
        for cell, span in row:
            texts += [ABOVE if _is_merged(cell) else self._cell(cell), *[COVERED] * (span - 1)]
        return texts

    def _cell(self, cell: Element) -> str:
        """The text of a cell on one line; a table in it becomes words."""
        texts = []
        for block in _blocks(cell):
            if block.tag == "p":
                text = self._inline(block)
                mark, _ = self._mark(block, text)
                texts.append(f"{mark} {text}" if mark else text)
                drawn, self._drawn = self._drawn, []
                texts += [text for figure in drawn for text in self._figure_texts(figure)]
            elif block.tag == "tbl":
                texts += [
                    self._cell(inner) for row in _blocks(block) for inner in _blocks(row) if inner.tag == "tc"
                ]
        return " ".join(text.strip(" \t\n") for text in texts if text.strip(" \t\n"))


def _is_merged(cell: Element) -> bool:
    merged = child(cell, "tcPr", "vMerge")
    return merged is not None and merged.get("val") != "restart"


def _blocks(parent: Element) -> Iterator[Element]:
    """The paragraphs, tables, rows or cells of an element, also those in content controls."""
    for element in parent:
        if element.tag == "sdt":
            if value(element, "sdtPr", "docPartObj", "docPartGallery") != "Table of Contents":
                for content in descendants(element, "sdtContent"):
                    yield from _blocks(content)
        elif element.tag in _TRANSPARENT:
            yield from _blocks(element)
        elif element.tag == "tr" and child(element, "trPr", "del") is not None:
            continue
        else:
            yield element


def _join_paragraphs(body: Element) -> None:
    """Put each paragraph whose end is deleted at the beginning of the next one, whose style both have."""
    for parent in [*body.iter()]:
        carried: list[Element] = []  # moved once: from paragraph to paragraph, a long run took quadratic time
        for paragraph, following in pairwise([*parent, body]):  # a last pair, whose second isn't a paragraph
            are_both = paragraph.tag == following.tag == "p"
            if are_both and child(paragraph, "pPr", "rPr", "del") is not None:
                carried += [part for part in paragraph if part.tag != "pPr"]
                paragraph[:] = [part for part in paragraph if part.tag == "pPr"]
            elif carried:
                at = int(child(paragraph, "pPr") is not None)
                paragraph[at:at] = carried
                carried = []


def _outermost_elements(parent: Element, tag: str) -> Iterator[Element]:
    for element in parent:
        if element.tag == tag:
            yield element
        else:
            yield from _outermost_elements(element, tag)


def _by_id(root: Element, kind: str) -> dict[str, Element]:
    """The notes of a part by their ids, without the lines that separate them from the text."""
    return {note.get("id", ""): note for note in root.iter(kind) if note.get("type", "normal") == "normal"}


def _level(about: Element | None, styled: int) -> int:
    """The level of a heading, 0 for other paragraphs. Its own level overrides its style's."""
    level = value(about, "outlineLvl")
    if len(level) != 1 or not level.isdecimal():
        return styled
    return int(level) + 1 if level < "9" else 0


def _ends_page(element: Element) -> bool:
    is_break = element.tag == "br" and element.get("type") == "page"
    return is_break or element.tag in {"sectPr", "pageBreakBefore", "lastRenderedPageBreak"}


def _common_size(paragraph: Element) -> int:
    """The font size of all runs, in half points; 0 if they state none or differ."""
    sizes = {value(run, "rPr", "sz") for run in paragraph.iter("r") if child(run, "t") is not None}
    size = sizes.pop() if len(sizes) == 1 else ""
    return whole_number(size, max_digits=3)


def _number(digits: str) -> int:
    return min(whole_number(digits) or 1, 99)
