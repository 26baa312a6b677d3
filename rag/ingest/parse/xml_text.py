"""Parses XML, and reads the text of documents in JATS, DocBook, TEI, DITA and similar vocabularies."""

from __future__ import annotations

import html.entities
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from textwrap import indent
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from rag.errors import ParseError
from rag.ingest.parse.document_parts import (
    MAX_REPEATED,
    MAX_SPAN,
    MergedCells,
    Part,
    clean,
    heading,
    listed_names,
    listed_pairs,
    listing,
    numeral,
    toml_beside,
)
from rag.ingest.parse.formulas import mathml_text
from rag.ingest.parse.typefaces import STRUCK, STRUCK_END, SUB, SUB_END, SUP, SUP_END, with_scripts
from rag.ingest.parse.zip_package import whole_number
from rag.text.plain_text import one_line
from rag.text.table_heads import pipe_table

_DECLARATION = re.compile(r"^\s*<\?xml\b[^>]{0,300}\?>")
_DOCTYPE = re.compile(
    r"""(?:\s|<!--.*?-->|<\?.*?\?>)*+<!DOCTYPE(?:[^\[>"']|"[^"]*"|'[^']*')*+(?P<subset>\[?)""", re.DOTALL
)
_REFERENCE = re.compile(r"&([A-Za-z_:][\w:.-]*);", re.ASCII)
_DECLARED = re.compile(r"<!ENTITY\s+([\w:.-]+)\s+[\"']")
_OF_XML = frozenset({"amp", "lt", "gt", "quot", "apos"})
_CHARACTERS = {name.rstrip(";"): value for name, value in html.entities.html5.items()}


def xml_tree(text: str) -> Element:
    """The root of a document, its elements without namespaces; comments and instructions are left out.

    HTML's named characters need no DTD; other entities that the text doesn't declare stay as they are called.

    Raises:
        ParseError: the XML is not well-formed; the message has the line.
    """
    parser = ET.XMLParser()  # noqa: S314 expat limits the growth of entities, and fetches nothing
    try:
        # The text is decoded already: the encoding that it declares would be wrong now.
        parser.feed(_with_entities(_DECLARATION.sub("", text, count=1)))
        root = parser.close()
    except ET.ParseError as error:
        raise ParseError(f"line {error.position[0]} is not valid XML") from error
    for element in root.iter():
        element.tag = plain_name(element.tag)
    return root


def unknown_entities(text: str, body: str) -> list[str]:
    """The entities in the `body` of a text that it doesn't declare, without HTML's characters."""
    called = {*_REFERENCE.findall(body)}  # in one pass: looking for each name took seconds
    return [name for name in _undeclared(text) if name in called and name not in _CHARACTERS]


def _undeclared(text: str) -> dict[str, None]:
    declared = {*_DECLARED.findall(text)} | _OF_XML
    return {name: None for name in _REFERENCE.findall(text) if name not in declared}


def _with_entities(text: str) -> str:
    """The text with a declaration for each entity that it calls and doesn't declare."""
    values = ((name, _CHARACTERS.get(name, f"&{name};")) for name in _undeclared(text))
    declarations = "".join(  # a value is parsed where it is declared and where it is called
        f'<!ENTITY {name} "{"".join(f"&#38;#{ord(character)};" for character in value)}">'
        for name, value in values
    )
    if not declarations:
        return text
    doctype = _DOCTYPE.match(text)
    if not doctype:
        return f"<!DOCTYPE x [{declarations}]>{text}"
    before, after = text[: doctype.end()], text[doctype.end() :]
    return f"{before}{declarations}{after}" if doctype["subset"] else f"{before} [{declarations}]{after}"


def plain_name(name: str) -> str:
    """The name of an element or attribute without its namespace."""
    return name.rpartition("}")[2]


NOTES = frozenset({"fn", "footnote", "note"})
_BREAKS = frozenset({"lb", "br", "break"})
_SCRIPTS = {
    **dict.fromkeys(("sup", "superscript"), (SUP, SUP_END)),
    **dict.fromkeys(("sub", "subscript"), (SUB, SUB_END)),
}
"""The marks of scripts, by the names of elements, and by the `rend` of TEI."""
_UNSEEN = frozenset({"indexterm", "graphic", "inline-graphic", "object-id", "annotation"})


def name_of(element: Element) -> str:
    """The name of an element in lower case."""
    return element.tag.lower()


def named(elements: Iterable[Element], names: Collection[str]) -> Iterator[Element]:
    """The elements with one of these names, in lower case."""
    return (element for element in elements if name_of(element) in names)


def words(element: Element) -> str:
    """All text in an element on one line. Notes are in brackets.

    Children are separated by spaces, unless the element has text of its own:
    <name><given>Ann</given><sur>Lee</sur></name> -> "Ann Lee"; <p>H<sub>2</sub>O</p> -> "H2O".
    """
    return _line("".join(_pieces(element)))


def _line(text: str) -> str:
    return one_line(with_scripts(clean(text)))


def _pieces(element: Element) -> Iterator[str]:
    yield element.text or ""
    gap = "" if is_mixed(element) else " "
    for child in _read_children(element):
        yield from _inline(child)
        yield (child.tail or "") + gap


def _inline(element: Element) -> Iterator[str]:
    name = name_of(element)
    if name in _BREAKS:
        yield " "
    elif name in NOTES:
        yield f" [{words(element)}]"
    elif name == "math":
        yield mathml_text(element)
    elif name not in _UNSEEN:
        around = (" ", " ") if name in _APART else ("", "")
        start, end = _SCRIPTS.get(attribute(element, "rend") or name, around)
        yield start
        yield from _pieces(element)
        yield end


def _read_children(element: Element) -> list[Element]:
    """The children to read; of alternative versions of a formula only the best."""
    inside = list(element)
    if name_of(element) in {"alternatives", "inlineequation"} and inside:
        return ([*named(inside, {"tex-math", "textual-form", "mathphrase"})] or inside)[:1]
    return inside


def is_mixed(element: Element) -> bool:
    """Whether an element has text directly inside."""
    texts = [element.text, *(child.tail for child in element)]
    return any(text and not text.isspace() for text in texts)


def attribute(element: Element, name: str) -> str:
    """An attribute, whatever its namespace; "" without it."""
    return next((value for key, value in element.attrib.items() if plain_name(key).lower() == name), "")


_DATA = toml_beside(__file__)
ELEMENTS: dict[str, frozenset[str]] = {
    kind: listed_names(_DATA[kind]) for kind in _DATA if kind != "numerals"
}
"""The names of elements, in lower case, by what they are."""
SECTIONS, HEADS, PARAGRAPHS = (ELEMENTS[kind] for kind in ("sections", "heads", "paragraphs"))
_HEADINGS, _ABSTRACTS = ELEMENTS["headings"], ELEMENTS["abstracts"]
_ABOVE_TITLES = SECTIONS | HEADS | _ABSTRACTS | {"title-group", "titlestmt", "book-title-group", "refnamediv"}
_LISTS, _ITEMS, _TERMS = (ELEMENTS[kind] for kind in ("lists", "items", "terms"))
_NUMBER = re.compile(r"\(?(?:\d{1,4}[a-z]{0,2}|[a-z]{1,4})[.)]{1,2}|[-–•]")  # of an item: "11b.", "aa)"
_CODE, _TABLES, _ROWS, _CELLS = (ELEMENTS[kind] for kind in ("code", "tables", "rows", "cells"))
_Columns = dict[str, tuple[int, int]]
"""By the name of a column, or of several in a row, the first and the end of the last."""
_REFERENCES, _TARGETS = ELEMENTS["references"], ("linkend", "rid", "target", "href")
_CALLS = ("conref", "conkeyref", "keyref", "linkend")  # attributes that name what is to stand here
_NUMERALS = listed_pairs(_DATA["numerals"])
_APART = _LISTS | _CODE | _TABLES | {"p", "para", "simpara"}
"""Elements that don't run on from the words before them, where they are read on one line."""
_BLOCKS = SECTIONS | PARAGRAPHS | _HEADINGS | _LISTS | _CODE | _TABLES | HEADS


def parts_of(root: Element) -> Iterator[Part]:
    """The parts of a document, in order."""
    return _Body(root).parts(root, root, 0)


def fill_references(root: Element) -> list[str]:
    """Give each reference without words the title, or the words, of what it refers to.

    If that is in another file, its name stays in brackets. Returns these names.
    """
    targets = {id_: element for element in root.iter() if (id_ := attribute(element, "id"))}
    room, names = MAX_REPEATED, dict[str, None]()
    for reference in root.iter():
        called = next(filter(None, (attribute(reference, name) for name in _CALLS)), "")
        tag = name_of(reference)
        if not (called or tag in _REFERENCES) or tag in ELEMENTS["without words"]:
            continue
        if "".join(reference.itertext()).strip():
            continue
        ids = (
            attribute(reference, name).rpartition("#")[2].rpartition("/")[2] for name in (*_TARGETS, *_CALLS)
        )
        target = next((targets[id_] for id_ in ids if id_ in targets), None)
        text = ""
        if target is not None and room > 0:
            titles = [target] if attribute(reference, "conref") else named(target, _HEADINGS)
            text = next(map(words, titles), "")  # all of it where it is to be repeated
        room -= len(text)  # a small file may repeat a large text endlessly
        name = re.split("[#/]", called)[-1]
        if not text and name:
            names[name] = None
            text = f"[{name}]"
        reference.text = text
    return list(names)


_PARTS_OF_NORM = ("gliederungsbez", "gliederungstitel", "enbez", "titel")


def as_sections(root: Element) -> None:
    """Give each norm of a German statute (gesetze-im-internet.de) its title, and the statute its own.

    Example: "<norm><metadaten><enbez>§ 1</enbez><titel>Ziel</titel>…" -> "<section><title>§ 1 Ziel</title>…".
    """
    name = next(map(words, root.iter("langue")), "")
    for norm in root.iter("norm"):
        facts = norm.find("metadaten")
        norm.tag = "section"
        if facts is not None:
            title = ET.Element("title")
            lines = (words(line) for tag in _PARTS_OF_NORM for line in facts.iter(tag))
            title.text = " ".join(filter(None, lines))
            norm[[*norm].index(facts)] = title
    if name:
        title = ET.Element("title")
        title.text = name
        root.insert(0, title)


_OTHER_NAMES = {"front": "prefatory", "ref": "link"}  # in JATS, facts and an entry of a list
_OTHER_WORDS = {"fw": "", "gap": "[…]"}  # running heads, and what nobody can read


def keep_one_reading(root: Element) -> None:
    """Leave what people read of a text in TEI: one of two readings, and deleted words as struck out."""
    for element in root.iter():
        name = name_of(element)
        element.tag = _OTHER_NAMES.get(name, element.tag)
        if name in _OTHER_WORDS:
            element[:], element.text = [], _OTHER_WORDS[name]
        elif name in {"choice", "app"} and len(element):
            reading = next(named(element, ELEMENTS["readings"]), element[0])
            element[:], element.text, reading.tail = [reading], "", ""
        elif name == "subst":
            for deleted in named(element, {"del"}):
                deleted.tail = deleted.tail or " "
        elif name == "del":
            end = ET.SubElement(element, "seg")
            element.text, end.text = STRUCK + (element.text or ""), STRUCK_END
        elif name == "lb" and attribute(element, "break") == "no":
            element.tag, element.tail = "seg", (element.tail or "").lstrip()


def looks_like_text(root: Element) -> bool:
    """Whether a document of an unknown vocabulary is prose: it has paragraphs, or text around elements."""
    paragraphs = [*named(root.iter(), PARAGRAPHS)]
    return len(paragraphs) > 1 or any(len(element) and is_mixed(element) for element in root.iter())


class _Body:
    """Reads a document; `_nested` are the elements with blocks inside, by `id`."""

    def __init__(self, root: Element) -> None:
        self._nested: set[int] = set()
        self._merged = MergedCells()
        self._ends: dict[str, int] = {}  # the last numbers of lists, by the ids of those that others continue
        self._note_nested(root)

    def _note_nested(self, element: Element) -> bool:
        inside = [self._note_nested(child) or name_of(child) in _BLOCKS for child in element]
        if any(inside):
            self._nested.add(id(element))
        return any(inside)

    def parts(self, element: Element, above: Element, depth: int) -> Iterator[Part]:
        """The parts in an element, `depth` sections deep; a warning begins with its kind."""
        label = _label(element)
        for part in self._parts(element, above, depth):
            if label and part.kind == "paragraph" and part.text.strip():
                yield part._replace(text=f"{label}: {part.text}")
                label = ""
            else:
                yield part

    def _parts(self, element: Element, above: Element, depth: int) -> Iterator[Part]:
        name = name_of(element)
        if name in ELEMENTS["left out"]:
            return
        if name in HEADS and name_of(above) not in _ITEMS:  # the info of a step is text
            yield from self._head(element, depth)
        elif name in _HEADINGS and (name_of(above) in _ABOVE_TITLES or depth == 0):
            yield heading(words(element), depth + 1)
        elif name in _CODE:
            yield listing(clean("".join(element.itertext())))
        elif name in _TABLES and [*named(element.iter(), _ROWS)]:
            yield from self._table(element)
        elif name in _LISTS:
            yield from self._list(element, depth)
        elif id(element) in self._nested:
            yield from self._inside(element, depth + (name in SECTIONS and element is not above))
        else:
            yield Part("paragraph", words(element))

    def _inside(self, element: Element, depth: int) -> Iterator[Part]:
        """The parts of an element with blocks inside; text and inline elements between are paragraphs."""
        line = element.text or ""
        mixed = is_mixed(element)
        for child in element:
            name = name_of(child)
            is_note = name in NOTES and name_of(element) in PARAGRAPHS
            is_block = name in _BLOCKS | ELEMENTS["left out"] or id(child) in self._nested or not mixed
            if is_block and not is_note:
                yield Part("paragraph", _line(line))
                line = child.tail or ""
                yield from self.parts(child, element, depth)
            else:
                line += "".join(_inline(child)).rstrip() + (child.tail or "")
        yield Part("paragraph", _line(line))

    def _list(self, element: Element, depth: int) -> Iterator[Part]:
        """A list; the code and tables in its items are parts of their own."""
        for kind, parts in groupby(self._items(element, depth), lambda part: part.kind):
            group = [*parts]
            yield from [Part(kind, "\n".join(part.text for part in group))] if kind == "list" else group

    def _items(self, element: Element, depth: int) -> Iterator[Part]:
        """The parts of the items, below their labels, numbers or dashes, as in Markdown."""
        kind = _numbering(element)
        continued = attribute(element, "continued-from") or attribute(element, "continuation")
        start = attribute(element, "startingnumber") or attribute(element, "start")
        number = whole_number(start, 1 + self._ends.get(continued, 0)) - 1
        above = ""  # the number that an element before the item states, as in German statutes
        for item in element:
            if name_of(item) == "dt" and _NUMBER.fullmatch(text := words(item)):
                above = text
                continue
            is_item = name_of(item) in _ITEMS
            parts = [part for part in self._item(item, depth) if part.text.strip()]
            if is_item:
                stated = (attribute(item, name) for name in ("override", "value", "n"))
                number = next(filter(None, map(whole_number, stated)), number + 1)
            sign = f"{above or _mark(item, number, kind)} " if is_item else ""
            above = ""
            if parts and parts[0].kind in {"code", "table"}:
                parts.insert(0, Part("paragraph", ""))
            for at, part in enumerate(parts):
                text = indent(part.title or part.text, " " * len(sign))
                if at == 0 and part.kind != "list":
                    text = f"{sign}{text.strip()}".rstrip()
                yield Part(part.kind if part.kind in {"code", "table"} else "list", text)
        self._ends |= dict.fromkeys((attribute(element, "id") or "continues", "continues"), number)

    def _item(self, item: Element, depth: int) -> Iterator[Part]:
        """The parts of an item; the terms that it defines are in the line of their definition."""
        label = _label_of(item)
        children = [child for child in item if name_of(child) not in _TERMS and child is not label]
        if len(children) == len(item):
            yield from self.parts(item, item, depth)
            return
        parts = chain.from_iterable(self.parts(child, item, depth) for child in children)
        definition = [part for part in parts if part.text.strip()]
        terms = ", ".join(map(words, named(item, _TERMS)))
        if terms and definition and definition[0].kind == "paragraph":
            terms = f"{terms}: {definition.pop(0).text}"
        yield Part("paragraph", terms)
        yield from definition

    def _table(self, table: Element) -> Iterator[Part]:
        for child in named(table, _HEADINGS | {"caption", "label"}):
            yield Part("paragraph", words(child))
        groups = _row_groups(table, {})
        rows = [*chain.from_iterable(self._rows(group, columns) for group, columns in groups)]
        yield Part("table", pipe_table(rows, columns=len(rows[0]) if rows else 0))

    def _rows(self, rows: Sequence[Element], columns: _Columns) -> Iterator[list[str]]:
        """The texts of the cells of a group of rows, without rows that have no text of their own."""
        merged = self._merged
        merged.begin()
        for row in rows:
            texts: list[str] = []
            cells = [(cell, words(cell)) for cell in named(row, _CELLS)]
            for cell, text in cells:
                start, across, down = _place(cell, columns)
                texts += merged.repeated(start)
                texts.append(merged.place(text, down, across))
            texts += merged.rest()
            merged.next_row()
            if any(text for _, text in cells):
                yield texts

    def _head(self, element: Element, depth: int) -> Iterator[Part]:
        for title in islice(named(element.iter(), _HEADINGS), 1):
            yield heading(words(title), depth + 1)
        for abstract in named(element.iter(), _ABSTRACTS):
            if not [*named(abstract, _HEADINGS)]:
                yield heading("Abstract", depth + 2)
            yield from self.parts(abstract, element, depth + 1)


def _numbering(element: Element) -> str:
    """How a list counts, as `numeral` names it; "" for a list with dashes."""
    stated = (attribute(element, name) for name in ("numeration", "list-type", "type", "rend"))
    kinds = (_NUMERALS.get(text.removeprefix("ordered:"), "") for text in stated)
    return next(filter(None, kinds), "1" if name_of(element) in ELEMENTS["numbered lists"] else "")


def _mark(item: Element, number: int, kind: str) -> str:
    """What stands before an item: its own label, its number, or a dash."""
    element = _label_of(item)
    label = words(element) if element is not None else ""
    if any(map(str.isalnum, label)):
        return f"{label}." if label.isalnum() else label
    return f"{numeral(number, kind)}." if kind else "-"


def _label_of(item: Element) -> Element | None:
    """The element with the label of an item in JATS."""
    return item.find("label") if name_of(item) == "list-item" and not is_mixed(item) else None


def _row_groups(element: Element, columns: _Columns) -> Iterator[tuple[list[Element], _Columns]]:
    """The rows of a table in groups that no cell leaves, without the rows of tables in its cells."""
    columns = _named_columns(element) or columns
    for are_rows, children in groupby(element, lambda child: name_of(child) in _ROWS):
        if are_rows:
            yield [*children], columns
        else:
            yield from chain.from_iterable(_row_groups(child, columns) for child in children)


def _named_columns(element: Element) -> _Columns:
    """The columns that a table of CALS (DocBook, DITA) names, and its names for several."""
    columns: _Columns = {}
    end = 0
    for column in named(element, {"colspec"}):
        end = whole_number(attribute(column, "colnum"), end + 1)
        if end <= MAX_SPAN:
            columns[attribute(column, "colname")] = end - 1, end
    spans = {attribute(span, "spanname"): _columns_of(span, columns) for span in named(element, {"spanspec"})}
    return columns | spans


def _columns_of(cell: Element, columns: _Columns) -> tuple[int, int]:
    """The first column of a cell that names its columns, and the end of its last; (0, 0) without names."""
    names = (attribute(cell, name) for name in ("colname", "spanname", "namest", "nameend"))
    places = [columns[name] for name in names if name and name in columns] or [(0, 0)]
    return min(start for start, _ in places), max(end for _, end in places)


def _place(cell: Element, columns: _Columns) -> tuple[int | None, int, int]:
    """The column in which a cell begins, if it names one, and over how many columns and rows it goes."""
    start, end = _columns_of(cell, columns)
    across = whole_number(attribute(cell, "colspan") or attribute(cell, "cols"), end - start)
    down = whole_number(attribute(cell, "rowspan") or attribute(cell, "rows"), 1)
    return start if end else None, across, down + whole_number(attribute(cell, "morerows"))


def _label(element: Element) -> str:
    """The kind of a warning or note that stands alone: "Caution"; "" for other elements."""
    name, kind = name_of(element), attribute(element, "type")
    if name == "note" and (kind or not element.attrib):
        return (kind or name).capitalize()
    return name.capitalize() if name in ELEMENTS["warnings"] else ""
