"""Parses files into documents: one module for each format.

To add a format, write a module with its `SUFFIXES` and a `parse` function that raises `ParseError` for files
that it can't read, and enter it below. `LIBRARIES` names what its functions import, in the process that runs
them; "package.*" is a package with all of its modules.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import PurePath
from typing import TYPE_CHECKING

from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse import (
    archive,
    asciidoc,
    csv_table,
    epub,
    formats,
    html_page,
    json_data,
    latex,
    mail,
    markdown,
    mdx,
    notebook,
    ocr,
    org,
    pdf,
    plain_text,
    restructured_text,
    settings_file,
    source_code,
    subtitles,
)
from rag.ingest.parse.blocks import first_heading, title_line, within_levels
from rag.ingest.parse.decode import decode
from rag.ingest.parse.decode import prepare as prepare_detection
from rag.ingest.parse.encoded import without_encoded
from rag.ingest.parse.mail import calendars, mailbox, outlook
from rag.ingest.parse.office import docx, office_format, open_document, pptx, rtf, xls, xlsx
from rag.ingest.parse.pdf import about as pdf_about
from rag.ingest.parse.questions import with_questions
from rag.ingest.parse.sniff import is_table, recognized
from rag.ingest.parse.titles import file_title, is_title
from rag.ingest.parse.xml import document as xml_document
from rag.text.invisible import with_line_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rag.corpus import Document
    from rag.ingest.parse.member import Member

_TEXT: dict[str, Callable[[str, str], Document]] = {
    **dict.fromkeys(markdown.SUFFIXES, markdown.parse),
    **dict.fromkeys(html_page.SUFFIXES, html_page.parse),
    **dict.fromkeys(plain_text.SUFFIXES, plain_text.parse),
    **dict.fromkeys(restructured_text.SUFFIXES, restructured_text.parse),
    **dict.fromkeys(source_code.SUFFIXES, source_code.parse),
    **dict.fromkeys(json_data.SUFFIXES, json_data.parse),
    **dict.fromkeys(json_data.LINES_SUFFIXES, json_data.parse_lines),
    **dict.fromkeys(csv_table.SUFFIXES, csv_table.parse),
    **dict.fromkeys(calendars.SUFFIXES, calendars.parse),
    **dict.fromkeys(mdx.SUFFIXES, mdx.parse),
    **dict.fromkeys(notebook.SUFFIXES, notebook.parse),
    **dict.fromkeys(subtitles.SUFFIXES, subtitles.parse),
    **dict.fromkeys(asciidoc.SUFFIXES, asciidoc.parse),
    **dict.fromkeys(latex.SUFFIXES, latex.parse),
    **dict.fromkeys(org.SUFFIXES, org.parse),
    **dict.fromkeys(settings_file.YAML_SUFFIXES, settings_file.parse_yaml),
    **dict.fromkeys(settings_file.TABLE_SUFFIXES, settings_file.parse_tables),
}
"""Formats that are text: (text, file name) to document."""

_OFFICE: dict[str, Callable[[bytes, str], Document]] = {
    **dict.fromkeys(docx.SUFFIXES, docx.parse),
    **dict.fromkeys(open_document.SUFFIXES, open_document.parse),
    **dict.fromkeys(pptx.SUFFIXES, pptx.parse),
    **dict.fromkeys(rtf.SUFFIXES, rtf.parse),
    **dict.fromkeys(xls.SUFFIXES, xls.parse),
    **dict.fromkeys(xlsx.SUFFIXES, xlsx.parse),
}
OFFICE = frozenset(_OFFICE)
"""Suffixes of office formats, most of which are ZIP archives of XML."""

_BINARY: dict[str, Callable[[bytes, str], Document]] = {
    **dict.fromkeys(pdf.SUFFIXES, pdf.parse),
    **dict.fromkeys(mail.SUFFIXES, mail.parse),
    **dict.fromkeys(mail.PAGE_SUFFIXES, mail.parse_page),
    **dict.fromkeys(mailbox.SUFFIXES, mailbox.parse),
    **dict.fromkeys(outlook.SUFFIXES, outlook.parse),
    **dict.fromkeys(epub.SUFFIXES, epub.parse),
    **dict.fromkeys(xml_document.SUFFIXES, xml_document.parse),
    **_OFFICE,
}
"""Binary formats: (content, file name) to document."""

_SCANNED: dict[str, Callable[[bytes, str, ocr.Reader], Document]] = {
    **dict.fromkeys(pdf.SUFFIXES, pdf.parse),
    **dict.fromkeys(ocr.SUFFIXES, ocr.parse),
}
"""Formats that OCR reads, where it is on."""

_CONTAINERS: dict[str, Callable[[bytes, str], Iterator[Member]]] = {
    **dict.fromkeys(mail.SUFFIXES, mail.members),
    **dict.fromkeys(mailbox.SUFFIXES, mailbox.members),
    **dict.fromkeys(outlook.SUFFIXES, outlook.members),
    **dict.fromkeys(pdf.SUFFIXES, pdf_about.members),
    **dict.fromkeys(archive.SUFFIXES, archive.members),
}
"""Formats whose files contain documents, by suffix: (content, file name) to these documents.

A container can be a document as well: then its suffix is also in one of the tables above.
"""

EMPTY = "the file has no content"
BEGINNING = 1 << 16  # bytes in which a PDF has its first object
OF_EXTRA = frozenset(formats.SUFFIXES) - frozenset(_TEXT) - frozenset(_BINARY)
"""Suffixes that only the extra `refdesk[formats]` reads."""

if formats.is_installed():
    _BINARY |= dict.fromkeys(OF_EXTRA, formats.parse)

SUFFIXES = frozenset(_TEXT) | frozenset(_BINARY)
"""Suffixes of supported files, in lower case; those without a dot are whole file names."""


_OLDER_OFFICE = frozenset({".doc", ".dot", ".ppt", ".pps"})
_SHEETS = (*xls.SUFFIXES, *xlsx.SUFFIXES)
LEFT_OUT = "left_out"
"""The metadata that says what of a document isn't in its text."""
_LEFT_OUT = re.compile(r"([^;:]+?)(?: was| were)? left out\b")
_PAGE = re.compile(rb"(?i)<(!doctype html|html)[\s>]")


def format_of(data: bytes, name: str) -> str:
    """The suffix that decides how a file is parsed: that of its name, or that of what it is beyond doubt.

    A PDF is a PDF whatever its name, a web page among plain text files is a web page, and an office document
    is what it is, whatever other office format it is called. A web page or a table of text that is called
    like an office document, as many programs export them, is what it is, too, and so is a file without a
    suffix.
    Example: (b"%PDF-1.7 ...", "scan.txt") -> ".pdf"; (b"<html>...", "report.xls") -> ".html".
    """
    suffix, actual = _suffix(name), recognized(data[:BEGINNING])
    if actual == ".pdf":
        return actual
    if suffix in OFFICE or is_unnamed(name):
        office = office_format(data, suffix)
        if office in OFFICE:
            return suffix if suffix in OFFICE and _OFFICE[suffix] is _OFFICE[office] else office
        if suffix in _SHEETS and not (actual or office) and is_table(data[:BEGINNING]):
            return ".csv"
        is_flat = suffix in {".fodt", ".fods", ".fodp"} and actual == ".xml"
        return actual if actual in SUFFIXES and not is_flat else suffix
    return ".html" if suffix in plain_text.SUFFIXES and actual == ".html" else suffix


def is_unnamed(name: str) -> bool:
    """Whether a name tells too little of the format, so that only the content can.

    It has no suffix, and isn't one like README. Or it has that of an older office format, which programs also
    give to RTF, web pages and newer formats.
    """
    suffix = _suffix(name)
    return suffix not in SUFFIXES and (not PurePath(name).suffix or suffix in _OLDER_OFFICE)


def is_supported(name: str, *, with_ocr: bool = False) -> bool:
    """Whether `parse` supports files of this name."""
    return _suffix(name) in SUFFIXES or (with_ocr and may_be_scanned(name))


def may_be_scanned(name: str) -> bool:
    """Whether OCR reads files of this name."""
    return _suffix(name) in _SCANNED


def may_contain(name: str, *, archives: bool) -> bool:
    """Whether a file of this name can contain documents; archives do so only if they are wanted."""
    suffix = _suffix(name)
    return suffix in _CONTAINERS and (archives or suffix not in archive.SUFFIXES)


def is_container(data: bytes, name: str, *, archives: bool) -> bool:
    """Whether a file with this content may contain documents."""
    suffix = format_of(data, name)
    if suffix in pdf.SUFFIXES and not pdf_about.may_have_members(data):
        return False
    return suffix in _CONTAINERS and (archives or suffix not in archive.SUFFIXES)


def is_recognized(data: bytes, name: str) -> bool:
    """Whether a file whose name tells nothing holds a document or documents, by its content."""
    return is_unnamed(name) and format_of(data, name) in SUFFIXES


def is_document(data: bytes, name: str) -> bool:
    """Whether `parse` supports a file with this content, whatever else is in it."""
    return format_of(data, name) in SUFFIXES


def family_of(data: bytes, name: str, *, with_ocr: bool = False) -> str:
    """The parser module whose libraries the functions for this file import; "" if they need none."""
    suffix = format_of(data, name)
    if with_ocr and suffix in _SCANNED:
        return ocr.__name__
    functions = [table[suffix].__module__ for table in (_TEXT, _BINARY, _CONTAINERS) if suffix in table]
    return next((one for one in functions if libraries_of(one)), "")


def libraries_of(family: str) -> tuple[str, ...]:
    """The names of the modules that a parser module's functions import."""
    named: tuple[str, ...] = getattr(sys.modules[family], "LIBRARIES", ()) if family else ()
    return named


def prepare(family: str) -> None:
    """What a process for these files does before no file can be opened any more."""
    if family == ocr.__name__:
        ocr.prepare()
    elif family == formats.__name__:
        formats.prepare()
    elif family != pdf.__name__:
        prepare_detection()


def members(data: bytes, name: str) -> Iterator[Member]:
    """The documents inside a file, as they come, and only of this one: a member can be a container, too.

    Raises:
        ParseError: the content is damaged, or of another format.
    """
    return _CONTAINERS[format_of(data, name)](data, PurePath(name).name)


def parse(data: bytes, name: str, *, ocr_seconds: float = 0.0) -> Document:
    """The document in a file's content; `format_of` decides how it is parsed.

    OCR may take so many seconds; 0 is off.

    Raises:
        EmptyFileError: there is no content.
        ParseError: the content is damaged, or of another format.
    """
    if not data:
        raise EmptyFileError(EMPTY)
    suffix, name = format_of(data, name), PurePath(name).name
    if suffix in pdf.SUFFIXES and _PAGE.match(data.lstrip()):
        raise ParseError("it is a web page that is called like a PDF")
    try:
        if ocr_seconds and suffix in _SCANNED:
            document = _SCANNED[suffix](data, name, ocr.Reader(ocr_seconds))
        else:
            document = _document(data, name, suffix)
    except RecursionError as error:
        raise ParseError("nested too deeply") from error
    if not document.blocks:
        raise EmptyFileError(EMPTY)
    title = title_line(document.title)
    if title and not is_title(title):
        title = title_line(first_heading(document.blocks))
    if title == title_line(name) or not is_title(title):
        title = title_line(named_after(name))
    return dataclasses.replace(
        document,
        title=title,
        metadata={**document.metadata, **_left_out(document.remarks)},
        text=with_line_ends(document.text),
        blocks=within_levels(with_questions(document.text, document.blocks)),
    )


def _left_out(remarks: Iterable[str]) -> dict[str, str]:
    """What isn't in a document's text, for its readers: {"left_out": "2 comments, 1 hidden sheet"}."""
    things = ", ".join(match[1] for remark in remarks if (match := _LEFT_OUT.match(remark)))
    return {LEFT_OUT: things} if things else {}


_NAMED_IN_FULL = {
    *source_code.SUFFIXES,
    *settings_file.YAML_SUFFIXES,
    *settings_file.TABLE_SUFFIXES,
    ".log",
}
"""People know these files by their names: pyproject.toml is no document called pyproject."""


def named_after(name: str) -> str:
    """What a document without a title is called. Source code, settings and logs keep their suffix."""
    return name if _suffix(name) in _NAMED_IN_FULL else file_title(name)


def _document(data: bytes, name: str, suffix: str) -> Document:
    if suffix in _BINARY:
        return _BINARY[suffix](data, name)
    if suffix not in _TEXT:
        raise ParseError(f"no parser for {PurePath(name).suffix or 'such'} files", "unsupported")
    decoded = decode(data, page=suffix in html_page.SUFFIXES)
    text, left_out = without_encoded(decoded.text)
    return decoded.told_of(_TEXT[suffix](text, name), left_out)


def _suffix(name: str) -> str:
    path = PurePath(name.lower())
    return path.suffix or path.name
