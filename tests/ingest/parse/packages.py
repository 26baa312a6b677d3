"""Small office documents, written part by part: what a test doesn't name is left out."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAMESPACES = " ".join(
    f'xmlns:{prefix}="http://schemas.openxmlformats.org/{space}"'
    for prefix, space in {
        "w": "wordprocessingml/2006/main",
        "p": "presentationml/2006/main",
        "a": "drawingml/2006/main",
        "s": "spreadsheetml/2006/main",
        "r": "officeDocument/2006/relationships",
        "mc": "markup-compatibility/2006",
        "m": "officeDocument/2006/math",
        "dc": "dc",
        "cp": "cp",
        "dcterms": "dcterms",
    }.items()
)
_TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"


def package(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive of these parts."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return written.getvalue()


def xml(tag: str, content: str) -> str:
    """A part with the root `tag`, in which the usual prefixes are declared."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{tag} {_NAMESPACES}>{content}</{tag}>'


def relations(**targets: str) -> str:
    """What a part refers to: its ids, each "KIND TARGET"."""
    lines = (
        f'<Relationship Id="{id_}" Type="{_TYPES}{kind}" Target="{target}"/>'
        for id_, (kind, target) in ((id_, target.split()) for id_, target in targets.items())
    )
    return f"<Relationships>{''.join(lines)}</Relationships>"


def core(**properties: str) -> str:
    """The properties of a document."""
    prefixes = {"keywords": "cp", "modified": "dcterms", "created": "dcterms"}
    texts = (
        f"<{prefixes.get(key, 'dc')}:{key}>{text}</{prefixes.get(key, 'dc')}:{key}>"
        for key, text in properties.items()
    )
    return xml("cp:coreProperties", "".join(texts))


def word(
    body: str,
    *,
    related: Mapping[str, str] | None = None,
    more: Mapping[str, str | bytes] | None = None,
    **parts: str,
) -> bytes:
    """A Word document with this body, and other parts by name: styles, numbering, footnotes, core, app.

    `related` are further relations of the body ("KIND TARGET" by id), `more` the parts that they mean.
    """
    names = {"core": "docProps/core.xml", "app": "docProps/app.xml"}
    related_parts = {name: f"{name} {name}.xml" for name in parts if name not in names} | {**(related or {})}
    return package(
        {
            "_rels/.rels": relations(
                a="officeDocument word/document.xml", b="core-properties docProps/core.xml"
            ),
            "word/document.xml": xml("w:document", f"<w:body>{body}</w:body>"),
            "word/_rels/document.xml.rels": relations(**related_parts),
            **{names.get(name, f"word/{name}.xml"): content for name, content in parts.items()},
            **(more or {}),
        }
    )


def p(text: str, about: str = "", run: str = "") -> str:
    """A paragraph of Word with one run."""
    return f"<w:p><w:pPr>{about}</w:pPr><w:r><w:rPr>{run}</w:rPr><w:t>{text}</w:t></w:r></w:p>"


def heading(text: str, level: int = 1) -> str:
    """A heading of Word by its outline level."""
    return p(text, f'<w:outlineLvl w:val="{level - 1}"/>')


def table(*rows: str) -> str:
    """A table of Word: its rows, with "|" between cells."""
    cells = ("".join(f"<w:tc>{p(cell)}</w:tc>" for cell in row.split("|")) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def slides(*slides: str, notes: str = "", hidden: int = 0, **parts: str) -> bytes:
    """A presentation: the shapes of each slide, the notes of the first, and which of them is hidden."""
    ids = range(1, len(slides) + 1)
    named = {f"r{n}": f"slide slides/slide{n}.xml" for n in ids}
    list_ = "".join(f'<p:sldId id="{255 + n}" r:id="r{n}"/>' for n in ids)
    package_parts = {
        "_rels/.rels": relations(
            a="officeDocument ppt/presentation.xml", b="core-properties docProps/core.xml"
        ),
        "ppt/presentation.xml": xml("p:presentation", f"<p:sldIdLst>{list_}</p:sldIdLst>"),
        "ppt/_rels/presentation.xml.rels": relations(**named),
    }
    for n, shapes in enumerate(slides, 1):
        tree = f"<p:cSld><p:spTree>{shapes}</p:spTree></p:cSld>"
        content = tree if n != hidden else tree + "<p:hidden/>"
        part = xml("p:sld", content)
        package_parts[f"ppt/slides/slide{n}.xml"] = (
            part.replace("<p:sld ", '<p:sld show="0" ', 1) if n == hidden else part
        )
    if notes:
        package_parts["ppt/slides/_rels/slide1.xml.rels"] = relations(n="notesSlide ../notesSlides/n1.xml")
        tree = f"<p:cSld><p:spTree>{shape(notes, 'body')}{shape('7', 'sldNum')}</p:spTree></p:cSld>"
        package_parts["ppt/notesSlides/n1.xml"] = xml("p:notes", tree)
    return package({**package_parts, **parts})


def shape(text: str, kind: str = "", *, at: tuple[int, int, int, int] | None = None, more: str = "") -> str:
    """A shape with a text, perhaps a placeholder; `at` is its left, top, width and height."""
    placeholder = f'<p:ph type="{kind}"/>' if kind else ""
    place = ""
    if at:
        left, top, width, height = at
        place = f'<a:xfrm><a:off x="{left}" y="{top}"/><a:ext cx="{width}" cy="{height}"/></a:xfrm>'
    paragraphs = "".join(f"<a:p><a:r><a:t>{line}</a:t></a:r></a:p>" for line in text.split("\n"))
    return (
        f"<p:sp><p:nvSpPr><p:cNvPr id='1' name='x' {more}/><p:nvPr>{placeholder}</p:nvPr></p:nvSpPr>"
        f"<p:spPr>{place}</p:spPr><p:txBody>{paragraphs}</p:txBody></p:sp>"
    )


def workbook(*sheets: str, names: str = "", formats: str = "", states: str = "", **parts: str) -> bytes:
    """A workbook: the XML of each sheet, their names and states with "|" between, and formats with ";;"."""
    called = names.split("|") if names else [f"Sheet{n}" for n in range(1, len(sheets) + 1)]
    visibilities = states.split("|") if states else ["visible"] * len(sheets)
    list_ = "".join(
        f'<s:sheet name="{name}" sheetId="{n}" state="{state}" r:id="r{n}"/>'
        for n, (name, state) in enumerate(zip(called, visibilities, strict=True), 1)
    )
    codes = formats.split(";;") if formats else []
    styles = "".join(f'<s:numFmt numFmtId="{164 + n}" formatCode="{code}"/>' for n, code in enumerate(codes))
    used = "".join(f'<s:xf numFmtId="{164 + n}"/>' for n in range(len(codes)))
    named = {f"r{n}": f"worksheet worksheets/sheet{n}.xml" for n in range(1, len(sheets) + 1)}
    return package(
        {
            "_rels/.rels": relations(
                a="officeDocument xl/workbook.xml", b="core-properties docProps/core.xml"
            ),
            "xl/workbook.xml": xml("s:workbook", f"<s:sheets>{list_}</s:sheets>"),
            "xl/_rels/workbook.xml.rels": relations(**named, st="styles styles.xml"),
            "xl/styles.xml": xml(
                "s:styleSheet",
                f"<s:numFmts>{styles}</s:numFmts><s:cellXfs><s:xf numFmtId='0'/>{used}</s:cellXfs>",
            ),
            **{f"xl/worksheets/sheet{n}.xml": content for n, content in enumerate(sheets, 1)},
            **parts,
        }
    )


def sheet(*rows: str, more: str = "", columns: str = "", hidden: tuple[int, ...] = ()) -> str:
    """A sheet: its rows, with "|" between cells and "" for blank rows; numbers are numbers."""
    written = []
    for number, row in enumerate(rows, 1):
        cells = "".join(_cell(text, number, at) for at, text in enumerate(row.split("|")) if text)
        is_hidden = ' hidden="1"' if number in hidden else ""
        if cells:
            written.append(f'<s:row r="{number}"{is_hidden}>{cells}</s:row>')
    data = f"<s:cols>{columns}</s:cols><s:sheetData>{''.join(written)}</s:sheetData>{more}"
    return xml("s:worksheet", data)


def _cell(text: str, row: int, column: int) -> str:
    reference = f"{chr(ord('A') + column)}{row}"
    value, _, style = text.partition("#")
    try:
        float(value)
    except ValueError:
        text, styled = (value, f' s="{style}"') if style.isdecimal() else (text, "")
        return f'<s:c r="{reference}"{styled} t="inlineStr"><s:is><s:t>{text}</s:t></s:is></s:c>'
    return f'<s:c r="{reference}" s="{style or 0}"><s:v>{value}</s:v></s:c>'
