"""XML as text and as a tree, in any encoding, however strange its entities; nothing is fetched for it."""

from __future__ import annotations

import codecs
import html.entities
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from rag.errors import ParseError
from rag.ingest.parse.decode import decode

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_DECLARED = re.compile(rb"^\s*<\?xml\s[^>]{0,200}?\bencoding\s*=\s*[\"']([\w.:-]{1,40})[\"']")
_DECLARATION = re.compile(r"^\s*<\?xml\b[^>]{0,300}\?>")
_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DEPTH = 200  # elements within elements: documents have some twenty


def xml_text(data: bytes) -> str:
    """The characters of an XML or XHTML file, in the encoding that it declares if that fits.

    Raises:
        ParseError: it is in no encoding that can be told.
    """
    declared = None if data.startswith(_MARKS) else _DECLARED.match(data[:300])
    if declared and declared[1].lower() not in {b"utf-8", b"utf8", b"us-ascii", b"ascii"}:
        try:
            return data.decode(declared[1].decode())
        except (LookupError, ValueError, OSError):  # OSError: no file can be opened to look for a codec
            pass
    return decode(data)[0]


def xml_tree(text: str) -> Element:
    """The root of a document, its elements without namespaces.

    Its own entities are limited by the parser (expat), and none is fetched. Named characters of HTML are
    known even where a DTD elsewhere declares them.

    Raises:
        ParseError: it is not valid; the message says in which line.
    """
    parser = ET.XMLParser()  # noqa: S314 expat limits the growth of entities, and fetches nothing
    parser.entity.update({name.rstrip(";"): value for name, value in html.entities.html5.items()})
    try:
        parser.feed(_DECLARATION.sub("", text, count=1))
        root = parser.close()
    except ET.ParseError as error:
        raise ParseError(f"line {error.position[0]} is not valid XML") from error
    _check_depth(root)
    for element in root.iter():
        element.tag = plain_name(element.tag)
    return root


def _check_depth(root: Element) -> None:
    level = [root]
    for _ in range(_DEPTH):
        level = [child for one in level for child in one]
        if not level:
            return
    raise ParseError("nested too deeply")


def plain_name(name: object) -> str:
    """The name of an element or an attribute without its namespace; "" of comments and instructions."""
    return name.rpartition("}")[2] if isinstance(name, str) else ""
