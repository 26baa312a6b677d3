"""The words of XML elements, as a reader sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.ingest.parse.blocks import clean
from rag.ingest.parse.xml.tree import plain_name
from rag.text.segments import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from xml.etree.ElementTree import Element

NOTES = frozenset({"fn", "footnote", "note"})
_BREAKS = frozenset({"lb", "br", "break"})
_UNSEEN = frozenset({"indexterm", "graphic", "inline-graphic", "object-id", "annotation"})


def names(written: str) -> frozenset[str]:
    """Names of elements, separated by white space."""
    return frozenset(written.split())


def name_of(element: Element) -> str:
    """The name of an element in lower case."""
    return element.tag.lower()


def words(element: Element, without: frozenset[str] = frozenset()) -> str:
    """All text in an element on one line, except in elements of these names.

    A note is in brackets. Of a formula that is written in two ways one is read.

    Elements that hold only elements are separated by spaces, others follow each other as they stand:
    <name><given>Ann</given><sur>Lee</sur></name> -> "Ann Lee"; <p>H<sub>2</sub>O</p> -> "H2O".
    """
    return one_line(clean("".join(_pieces(element, without))))


def raw_text(element: Element) -> str:
    """All text in an element as it stands, as in a listing."""
    return clean("".join(element.itertext())).strip("\n")


def _pieces(element: Element, without: frozenset[str]) -> Iterator[str]:
    yield element.text or ""
    gap = "" if is_mixed(element) else " "
    for child in _read(element):
        name = name_of(child)
        if name in _BREAKS:
            yield " "
        elif name in NOTES:
            yield f" [{words(child)}]"
        elif name and name not in _UNSEEN | without:
            yield from _pieces(child, without)
        yield (child.tail or "") + gap


def _read(element: Element) -> list[Element]:
    """The elements inside that are read; of alternatives only the best."""
    inside = list(element)
    if name_of(element) in {"alternatives", "inlineequation"} and inside:
        best = [one for one in inside if name_of(one) in {"tex-math", "textual-form", "mathphrase"}]
        return (best or inside)[:1]
    return inside


def is_mixed(element: Element) -> bool:
    """Whether an element has text of its own beside elements."""
    own = [element.text, *(child.tail for child in element)]
    return any(text and not text.isspace() for text in own)


def attribute(element: Element, name: str) -> str:
    """An attribute, whatever its namespace; "" without it."""
    return next((value for key, value in element.attrib.items() if plain_name(key).lower() == name), "")
