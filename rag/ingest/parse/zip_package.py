"""The parts of a file that is a ZIP archive of XML, as office documents and e-books are.

Nothing is unpacked before its size is known: a part says how large it is, and no more than that is read.
"""

from __future__ import annotations

import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from urllib.parse import unquote
from xml.etree import ElementTree as ET

from rag.errors import ParseError

MAX_XML_BYTES = 64 << 20  # of a part that is read as a tree, which takes ten times its size in memory
MAX_ROWS_BYTES = 512 << 20  # of a sheet, whose rows are read one after the other
_ENCRYPTED = 0x1  # a flag of an entry
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")  # the stream of an OLE container that replaces it
_DIRECTORY = 1 << 20  # bytes at either end of such a container that hold the names of its streams

ENCRYPTED = "the file is encrypted with a password; store a copy without one"
ZIP = b"PK\x03\x04"
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
        self.entries = {one.filename.lstrip("/"): one for one in self._archive.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def read(self, name: str, most: int = MAX_XML_BYTES) -> bytes:
        """The content of a part.

        Raises:
            ParseError: it is missing, damaged, encrypted or larger than `most` bytes.
        """
        with self.opened(name, most) as part:
            try:
                return part.read(most)
            except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
                raise ParseError(f"the file is damaged: its part {name} can't be unpacked") from error

    def opened(self, name: str, most: int) -> zipfile.ZipExtFile:
        """A part, to be read bit by bit; errors as in `read`."""
        entry = self.entries.get(name)
        if entry is None:
            raise ParseError(f"the file is damaged: it has no part {name}")
        if entry.flag_bits & _ENCRYPTED:
            raise ParseError(ENCRYPTED, "encrypted")
        if entry.file_size > most:
            raise ParseError(
                f"its part {name} would take {entry.file_size >> 20} MB of memory; at most {most >> 20} MB"
                " are unpacked",
                "too large",
            )
        try:
            opened = self._archive.open(entry)
        except (zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError) as error:
            raise ParseError(f"the file is damaged: its part {name} can't be unpacked") from error
        assert isinstance(opened, zipfile.ZipExtFile)  # noqa: S101 for the type checker: it is read
        return opened

    def xml(self, name: str) -> ET.Element:
        """The root of a part, with plain names; see `xml_root`."""
        return xml_root(self.read(name), name)

    def xml_if_there(self, name: str) -> ET.Element | None:
        """The same of a part that may be missing or damaged: the document can be read without it."""
        if name not in self:
            return None
        try:
            return self.xml(name)
        except ParseError:
            return None

    def related(self, name: str) -> dict[str, tuple[str, str]]:
        """What a part of an Office Open XML package refers to: id to kind and part.

        Example: "rId2" -> ("slide", "ppt/slides/slide1.xml"). Links out of the package are left out.
        """
        folder, file = posixpath.split(name)
        root = self.xml_if_there(posixpath.join(folder, "_rels", f"{file}.rels"))
        related = {}
        for one in root.iter("Relationship") if root is not None else ():
            if one.get("TargetMode") == "External":
                continue
            target = unquote(one.get("Target", ""))
            path = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            related[one.get("Id", "")] = (one.get("Type", "").rpartition("/")[2], path)
        return related

    def related_as(self, name: str, kind: str) -> str:
        """The first part of a kind that a part refers to, "" if there is none."""
        return next((path for one, path in self.related(name).values() if one == kind), "")


def xml_root(data: bytes, name: str) -> ET.Element:
    """The root of an XML document, whose elements and attributes have names without a namespace.

    An attribute keeps the prefix `r:` if it refers to another part. Entities of the document's own are
    limited by the parser (expat), and none is fetched from elsewhere.

    Raises:
        ParseError: it is no XML.
    """
    try:
        root = ET.fromstring(data)  # noqa: S314 expat limits the growth of entities, and fetches nothing
    except (ET.ParseError, ValueError, LookupError) as error:
        raise ParseError(f"the file is damaged: its part {name} is not valid XML") from error
    for element in root.iter():
        simplify(element)
    return root


def simplify(element: ET.Element) -> None:
    """Remove the namespaces from the names of an element and of its attributes."""
    element.tag = element.tag.rpartition("}")[2]
    for name in [name for name in element.attrib if name[0] == "{"]:
        value = element.attrib.pop(name)
        space, _, plain = name.rpartition("}")
        element.attrib.setdefault(f"r:{plain}" if space.endswith("/relationships") else plain, value)


def descendants(element: ET.Element, *path: str) -> Iterator[ET.Element]:
    """The elements at a path of names below an element: ("sldIdLst", "sldId")."""
    found = [element]
    for name in path:
        found = [child for one in found for child in one if child.tag == name]
    return iter(found)


def child(element: ET.Element | None, *path: str) -> ET.Element | None:
    """The first of these, None if there is none."""
    return next(descendants(element, *path), None) if element is not None else None


def value(element: ET.Element | None, *path: str) -> str:
    """The attribute `val` of the first of these, "" if there is none."""
    found = child(element, *path)
    return found.get("val", "") if found is not None else ""


def is_on(element: ET.Element | None, *path: str) -> bool:
    """Whether a switch is there and not turned off, as <w:vanish/> is on and <w:vanish w:val="0"/> is off."""
    found = child(element, *path)
    return found is not None and found.get("val", "1") not in {"0", "false", "off"}
