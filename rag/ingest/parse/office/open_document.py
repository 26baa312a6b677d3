"""OpenDocument (LibreOffice and others): texts, sheets and slides, packed or as one flat XML file."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.parse.office.forms import open_controls
from rag.ingest.parse.office.open_sheets import read_sheets
from rag.ingest.parse.office.open_slides import read_slides
from rag.ingest.parse.office.open_text import Reader, styles_of
from rag.ingest.parse.office.properties import left_out, open_document_properties, written_document
from rag.ingest.parse.zipped import ENCRYPTED, ZIP, Package, child, xml_root

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from rag.corpus import Document

SUFFIXES = (".odt", ".ott", ".fodt", ".ods", ".ots", ".fods", ".odp", ".otp", ".fodp")
_MIME_TYPE = "application/vnd.oasis.opendocument."


@dataclass(frozen=True, slots=True)
class _Parts:
    body: Element
    styles: list[Element] = field(default_factory=list)
    meta: Element | None = None
    package: Package | None = None

    def opened(self, name: str) -> Element | None:
        """The content of an object of the package, None if it isn't in it or isn't XML."""
        path = f"{posixpath.normpath(name)}/content.xml"
        return self.package.xml_if_there(path) if self.package else None


def parse(data: bytes, name: str) -> Document:
    """The document of an OpenDocument file. What is hidden, deleted or a comment is left out.

    Pages of a text are those that the program that saved it saw, if it noted them.
    """
    parts = _parts(data)
    styles = styles_of(parts.styles)
    reader = Reader(styles, parts.opened, open_controls(parts.body))
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
        raise ParseError("it is no text, spreadsheet or presentation", "unsupported")
    remarks = [
        *left_out(reader.hidden["slide"], "hidden slide"),
        *left_out(reader.hidden["sheet"], "hidden sheet"),
        *left_out(reader.hidden["row"], "hidden row or column", "hidden rows or columns"),
        *left_out(reader.hidden["text"], "hidden piece of text", "hidden pieces of text"),
        *left_out(reader.hidden["comment"], "comment"),
        *left_out(reader.hidden["object"], "embedded object"),
    ]
    properties = open_document_properties(parts.meta)
    return written_document(reader.draft, name, _MIME_TYPE + kind, properties, remarks=remarks, title=title)


def _parts(data: bytes) -> _Parts:
    if not data.startswith(ZIP):
        root = xml_root(data, "content")
        body = child(root, "body")
        if body is None:
            raise ParseError("it is no OpenDocument file")
        return _Parts(body, [root], child(root, "meta"))
    package = Package(data)
    manifest = package.xml_if_there("META-INF/manifest.xml")
    if manifest is not None and next(manifest.iter("encryption-data"), None) is not None:
        raise ParseError(ENCRYPTED, "encrypted")
    content = package.xml("content.xml")
    styles = package.xml_if_there("styles.xml")
    body = child(content, "body")
    if body is None:
        raise ParseError("the file is damaged: its part content.xml has no body")
    return _Parts(
        body,
        [content, *([styles] if styles is not None else [])],
        package.xml_if_there("meta.xml"),
        package,
    )
