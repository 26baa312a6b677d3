"""The parts of office documents and e-books, which are ZIP archives of XML.

A part is unpacked only if its stated size is within a limit, and never beyond that limit.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from rag.errors import ParseError
from rag.uris import web_address

MAX_XML_BYTES = 64 << 20  # of a part that is read as a tree, which takes ten times its size in memory
MAX_ROWS_BYTES = 512 << 20  # of a sheet, whose rows are read one after the other
_ENCRYPTED = 0x1  # a flag of an entry
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")  # the stream of an OLE container that replaces it
_DIRECTORY = 1 << 20  # bytes at either end of an OLE container that hold the names of its streams

ENCRYPTED = "the file is encrypted with a password; store a copy without one"
ZIP = b"PK\x03\x04"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How files of Office before 2007 begin, and newer ones that are encrypted."""
DAMAGED = "the file is damaged: it is not a complete ZIP archive"


class Package:
    """An opened archive.

    Raises:
        ParseError: it is damaged.
    """

    def __init__(self, data: bytes) -> None:
        if _ENCRYPTED_PACKAGE in data[:_DIRECTORY] + data[-_DIRECTORY:] and not data.startswith(ZIP):
            raise ParseError(ENCRYPTED, "encrypted")
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise ParseError(DAMAGED) from error
        self.related = lru_cache(1)(self._related)  # a part is asked for its links one after the other
        self.entries = {entry.filename.lstrip("/"): entry for entry in self._archive.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def read(self, name: str, max_bytes: int = MAX_XML_BYTES) -> bytes:
        """The content of a part.

        Raises:
            ParseError: it is missing, damaged, encrypted or larger than `max_bytes`.
        """
        with self.opened(name, max_bytes) as part:
            try:
                return part.read(max_bytes)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
                raise ParseError(f"the file is damaged: its part {name} can't be unpacked") from error

    def opened(self, name: str, max_bytes: int) -> zipfile.ZipExtFile:
        """A part as a stream; errors as in `read`."""
        entry = self.entries.get(name)
        if entry is None:
            raise ParseError(f"the file is damaged: it has no part {name}")
        if entry.flag_bits & _ENCRYPTED:
            raise ParseError(ENCRYPTED, "encrypted")
        if entry.file_size > max_bytes:  # stated; what is unpacked is bounded, too, whatever is stated
            raise ParseError(
                f"its part {name} would take {entry.file_size >> 20} MB of memory; at most"
                f" {max_bytes >> 20} MB are unpacked",
                "too large",
            )
        try:
            opened = self._archive.open(entry)
        except (zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError) as error:
            raise ParseError(f"the file is damaged: its part {name} can't be unpacked") from error
        assert isinstance(opened, zipfile.ZipExtFile)  # noqa: S101 for the type checker: it is read
        return opened

    def xml(self, name: str) -> ET.Element:
        """The root of a part; see `xml_root`."""
        return xml_root(self.read(name), name)

    def xml_if_there(self, name: str) -> ET.Element:
        """The root of an optional part; an element without a name if it is missing or damaged."""
        try:
            return self.xml(name)
        except ParseError:
            return ET.Element("")

    def _related(self, name: str) -> dict[str, tuple[str, str]]:
        """The internal relationships of a part of an Office Open XML package: id to kind and part.

        Example: "rId2" -> ("slide", "ppt/slides/slide1.xml").
        """
        related = {}
        for relationship in self._links(name, is_external=False):
            target = posixpath.join("/", posixpath.dirname(name), unquote(relationship.get("Target", "")))
            kind = relationship.get("Type", "").rpartition("/")[2]
            related[relationship.get("Id", "")] = kind, posixpath.normpath(target).lstrip("/")
        return related

    def _links(self, name: str, *, is_external: bool) -> Iterator[ET.Element]:
        folder, file = posixpath.split(name)
        root = self.xml_if_there(posixpath.join(folder, "_rels", f"{file}.rels"))
        for relationship in root.iter("Relationship"):
            if (relationship.get("TargetMode") == "External") == is_external:
                yield relationship

    def addresses(self, name: str) -> dict[str, str]:
        """The web addresses that a part refers to, by their ids."""
        return {
            related.get("Id", ""): address
            for related in self._links(name, is_external=True)
            if (address := web_address(related.get("Target", "")))
        }

    def related_as(self, name: str, kind: str) -> str:
        """The first part of a kind that a part refers to, or ""."""
        return next((path for relation, path in self.related(name).values() if relation == kind), "")

    def related_xml(self, name: str, kind: str) -> ET.Element:
        """The root of the first part of a kind that a part refers to, as in `xml_if_there`."""
        return self.xml_if_there(self.related_as(name, kind))

    def target(self, name: str, id_: str) -> str:
        """The part that a part refers to by this id, or ""."""
        return self.related(name).get(id_, ("", ""))[1]

    def target_xml(self, name: str, id_: str) -> ET.Element:
        """The root of the part that a part refers to by this id, as in `xml_if_there`."""
        return self.xml_if_there(self.target(name, id_))


def as_link(words: str, address: str) -> str:
    """Words that link to a web address, as Markdown writes it.

    Without an address, and if they are it or the number of a reference, they stay as they are.
    """
    shown = words.strip()
    bare = address.partition("://")[2].strip("/")
    if not address or not any(map(str.isalpha, shown)) or "](" in shown or "\n" in shown or bare in shown:
        return words
    closed = address.replace("(", "%28").replace(")", "%29")  # a bracket would end the link
    return words.replace(shown, f"[{shown}]({closed})", 1)


def xml_root(data: bytes, name: str) -> ET.Element:
    """The root of an XML document, without namespaces, and with the alternatives that a recent program shows.

    An attribute keeps the prefix `r:` if it refers to another part.

    Raises:
        ParseError: the XML is not well-formed.
    """
    try:
        root = ET.fromstring(data)  # noqa: S314 expat limits the growth of entities, and fetches nothing
    except (ET.ParseError, ValueError, LookupError) as error:
        raise ParseError(f"the file is damaged: its part {name} is not valid XML") from error
    for element in root.iter():
        simplify(element)
    if next(root.iter("AlternateContent"), None) is not None:  # few files have any
        for parent in [*root.iter()]:
            parent[:] = [shown for element in parent for shown in _shown(element)]
    return root


def _shown(element: ET.Element) -> Iterator[ET.Element]:
    """An element; of alternatives the content of the first, which is for the most recent programs.

    A damaged file may have the one for older programs alone.
    """
    if element.tag != "AlternateContent":
        yield element
        return
    choice = child(element, "Choice")
    for inner in child(element, "Fallback") or () if choice is None else choice:
        yield from _shown(inner)


def whole_number(text: str, default: int = 0, *, max_digits: int = 9) -> int:
    """A number in decimal digits; `default` for anything else, and for longer ones."""
    return int(text) if text.isdecimal() and len(text) <= max_digits else default


def simplify(element: ET.Element) -> None:
    """Remove the namespaces from the names of an element and of its attributes."""
    element.tag = element.tag.rpartition("}")[2]
    for name in [name for name in element.attrib if name[0] == "{"]:
        value = element.attrib.pop(name)
        space, _, plain = name.rpartition("}")
        element.attrib.setdefault(f"r:{plain}" if space.endswith("/relationships") else plain, value)


def descendants(element: ET.Element | None, *path: str) -> Iterator[ET.Element]:
    """The elements at a path of names below an element: ("sldIdLst", "sldId"); none below None."""
    elements = [] if element is None else [element]
    for name in path:
        elements = [child for parent in elements for child in parent if child.tag == name]
    return iter(elements)


def child(element: ET.Element | None, *path: str) -> ET.Element | None:
    """The first element at a path below an element, or None."""
    return next(descendants(element, *path), None)


def value(element: ET.Element | None, *path: str) -> str:
    """The attribute `val` of the first element at a path, or ""."""
    target = child(element, *path)
    return target.get("val", "") if target is not None else ""


def is_on(element: ET.Element | None, *path: str) -> bool:
    """Whether a toggle property is set: <w:vanish/> is on, <w:vanish w:val="0"/> is off."""
    switch = child(element, *path)
    return switch is not None and switch.get("val", "1") not in {"0", "false", "off"}
