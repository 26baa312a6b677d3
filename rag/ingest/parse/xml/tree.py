"""XML as a tree, however strange its entities; nothing is fetched for it."""

from __future__ import annotations

import html.entities
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from rag.errors import ParseError

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

_DECLARATION = re.compile(r"^\s*<\?xml\b[^>]{0,300}\?>")
_DEPTH = 200  # elements within elements: documents have some twenty


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
