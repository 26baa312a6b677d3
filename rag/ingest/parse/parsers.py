"""Detects the format of a file, and calls the parser that makes a document of it.

To add a format, write a module with its `SUFFIXES` and a `parse` function that raises `ParseError` for files
that it can't read, and enter it below. `LIBRARIES` names what its functions import, in the process that runs
them; "package.*" is a package with all of its modules.

The content decides where it leaves no doubt, because people rename files and programs use older names.
"""

from __future__ import annotations

import codecs
import dataclasses
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import PurePath

from rag.corpus import LEFT_OUT, Document
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse import (
    archive_files,
    asciidoc,
    epub,
    html_page,
    json_and_csv,
    json_exports,
    latex,
    markdown,
    ocr,
    org_and_rst,
    source_code,
    text_and_settings,
    xberg_formats,
    xml_document,
)
from rag.ingest.parse.decode import decode, without_encoded_data
from rag.ingest.parse.decode import prepare as prepare_detection
from rag.ingest.parse.document_parts import Member, title_line, with_capped_levels
from rag.ingest.parse.mail import calendars, eml_and_mbox, outlook
from rag.ingest.parse.office import docx, opendocument, pptx, rtf, xls, xlsx
from rag.ingest.parse.pdf import pdf_document
from rag.ingest.parse.titles_and_questions import file_title, first_heading, is_title, with_questions
from rag.ingest.parse.turns import with_turns
from rag.ingest.parse.zip_package import OLE, ZIP
from rag.text.plain_text import with_line_ends

_TEXT: dict[str, Callable[[str, str], Document]] = {
    **dict.fromkeys(markdown.SUFFIXES, markdown.parse),
    **dict.fromkeys(html_page.SUFFIXES, html_page.parse),
    **dict.fromkeys(text_and_settings.SUFFIXES, text_and_settings.parse),
    **dict.fromkeys(org_and_rst.RST_SUFFIXES, org_and_rst.parse_rst),
    **dict.fromkeys(source_code.SUFFIXES, source_code.parse),
    **dict.fromkeys(json_and_csv.JSON_SUFFIXES, json_and_csv.parse_json),
    **dict.fromkeys(json_and_csv.LINES_SUFFIXES, json_and_csv.parse_json_lines),
    **dict.fromkeys(json_and_csv.CSV_SUFFIXES, json_and_csv.parse_csv),
    **dict.fromkeys(json_and_csv.REFERENCE_SUFFIXES, json_and_csv.parse_references),
    **dict.fromkeys(calendars.SUFFIXES, calendars.parse),
    **dict.fromkeys(markdown.MDX_SUFFIXES, markdown.parse_mdx),
    **dict.fromkeys(json_exports.NOTEBOOK_SUFFIXES, json_exports.parse_notebook),
    **dict.fromkeys(text_and_settings.SUBTITLE_SUFFIXES, text_and_settings.parse_subtitles),
    **dict.fromkeys(asciidoc.SUFFIXES, asciidoc.parse),
    **dict.fromkeys(latex.SUFFIXES, latex.parse),
    **dict.fromkeys(org_and_rst.ORG_SUFFIXES, org_and_rst.parse_org),
    **dict.fromkeys(text_and_settings.YAML_SUFFIXES, text_and_settings.parse_yaml),
    **dict.fromkeys(text_and_settings.TABLE_SUFFIXES, text_and_settings.parse_tables),
    **dict.fromkeys(xml_document.SUFFIXES, xml_document.parse),
}
"""Formats that are text: (text, file name) to document."""

_OFFICE: dict[str, Callable[[bytes, str], Document]] = {
    **dict.fromkeys(docx.SUFFIXES, docx.parse),
    **dict.fromkeys(opendocument.SUFFIXES, opendocument.parse),
    **dict.fromkeys(pptx.SUFFIXES, pptx.parse),
    **dict.fromkeys(rtf.SUFFIXES, rtf.parse),
    **dict.fromkeys(xls.SUFFIXES, xls.parse),
    **dict.fromkeys(xlsx.SUFFIXES, xlsx.parse),
}
OFFICE = frozenset(_OFFICE)
"""Suffixes of office formats; most are ZIP archives of XML."""

_BINARY: dict[str, Callable[[bytes, str], Document]] = {
    **dict.fromkeys(pdf_document.SUFFIXES, pdf_document.parse),
    **dict.fromkeys(eml_and_mbox.MAIL_SUFFIXES, eml_and_mbox.parse_mail),
    **dict.fromkeys(eml_and_mbox.PAGE_SUFFIXES, eml_and_mbox.parse_page),
    **dict.fromkeys(eml_and_mbox.MAILBOX_SUFFIXES, eml_and_mbox.parse_mailbox),
    **dict.fromkeys(outlook.SUFFIXES, outlook.parse),
    **dict.fromkeys(epub.SUFFIXES, epub.parse),
    **_OFFICE,
}
"""Binary formats: (content, file name) to document."""

_SCANNED: dict[str, Callable[[bytes, str, ocr.OcrReader], Document]] = {
    **dict.fromkeys(pdf_document.SUFFIXES, pdf_document.parse),
    **dict.fromkeys(ocr.SUFFIXES, ocr.parse),
}
"""Formats that OCR reads if it is on."""

_CONTAINERS: dict[str, Callable[[bytes, str], Iterator[Member]]] = {
    **dict.fromkeys(eml_and_mbox.MAIL_SUFFIXES, eml_and_mbox.mail_members),
    **dict.fromkeys(eml_and_mbox.MAILBOX_SUFFIXES, eml_and_mbox.mailbox_members),
    **dict.fromkeys(outlook.SUFFIXES, outlook.members),
    **dict.fromkeys(pdf_document.SUFFIXES, pdf_document.members),
    **dict.fromkeys(archive_files.SUFFIXES, archive_files.members),
}
"""Formats whose files contain documents: (content, file name) to these documents.

A container that is also a document has its suffix in one of the tables above, too.
"""

EMPTY = "the file has no content"
BEGINNING = 1 << 16  # bytes in which a PDF has its first object
OF_EXTRA = frozenset(xberg_formats.SUFFIXES) - frozenset(_TEXT) - frozenset(_BINARY)
"""Suffixes that only the extra `refdesk[formats]` reads."""

if xberg_formats.is_installed():
    _BINARY |= dict.fromkeys(OF_EXTRA, xberg_formats.parse)

SUFFIXES = frozenset(_TEXT) | frozenset(_BINARY)
"""Suffixes of supported files, in lower case; those without a dot are whole file names."""

_SHEETS = (*xls.SUFFIXES, *xlsx.SUFFIXES)
_LEFT_OUT = re.compile(r"([^;:]+?)(?: was| were)? left out\b")


def format_of(data: bytes, name: str) -> str:
    """The suffix that decides how a file is parsed: its name's, unless its content clearly is another.

    The content decides for PDFs, office documents and e-books, for web pages with the name of a text file, a
    table or a server's program, for encoded mails called like text files or mails of Outlook, for files
    without a suffix, and for files with the name of an office document, which may be a web page or a table.
    Example: (b"%PDF-1.7 ...", "scan.txt") -> ".pdf"; (b"<html>...", "report.xls") -> ".html".
    """
    suffix, actual = _suffix(name), sniffed_suffix(data[:BEGINNING])
    if actual == ".pdf":
        return actual
    if suffix in _OF_SERVERS:
        return actual if actual == ".html" and not _PROGRAM.search(data) else suffix
    if suffix in OFFICE or is_unnamed(name):
        office = office_format(data, suffix)
        if office in OFFICE:
            return suffix if suffix in OFFICE and _OFFICE[suffix] is _OFFICE[office] else office
        if suffix in _SHEETS and not (actual or office) and is_table(data[:BEGINNING]):
            return ".csv"
        is_flat = suffix in {".fodt", ".fods", ".fodp"} and actual == ".xml"
        return actual if actual in SUFFIXES and not is_flat else suffix
    return _renamed_format(data, suffix, actual)


def _renamed_format(data: bytes, suffix: str, actual: str) -> str:
    """The format of a file that somebody or a program has given another suffix, or else its suffix."""
    if suffix in outlook.SUFFIXES:
        return actual if actual == ".eml" else suffix
    if suffix not in SUFFIXES or suffix in {*epub.SUFFIXES, *OF_EXTRA}:  # can be packages of other files
        return suffix
    is_text = suffix in text_and_settings.SUFFIXES
    if actual == ".html" and (is_text or suffix in json_and_csv.CSV_SUFFIXES):
        return actual
    if actual == ".eml" and is_text and _ENCODED_MAIL.search(data[:BEGINNING]):
        return actual
    package = actual or office_format(data, suffix)
    return package if package in _PACKAGES & SUFFIXES else suffix


def is_unnamed(name: str) -> bool:
    """Whether the format must be sniffed from the content.

    The name has no suffix and isn't one like README, or it has the suffix of a server's program, or of an
    office format of the extra, which programs also give to RTF, web pages, newer formats and, in add-ins, to
    workbooks. Such a file is read by its content whether or not the extra is installed.
    """
    suffix = _suffix(name)
    if suffix in xberg_formats.OFFICE_SUFFIXES:
        return True
    return suffix not in SUFFIXES and (suffix in _OF_SERVERS or not PurePath(name).suffix)


def is_supported(name: str, *, with_ocr: bool = False) -> bool:
    """Whether `parse` supports files of this name."""
    return _suffix(name) in SUFFIXES or (with_ocr and may_be_scanned(name))


def may_be_scanned(name: str) -> bool:
    """Whether OCR reads files of this name."""
    return _suffix(name) in _SCANNED


def may_contain(name: str, *, archives: bool) -> bool:
    """Whether a file of this name can contain documents; an archive counts only with `archives`."""
    suffix = _suffix(name)
    return suffix in _CONTAINERS and (archives or suffix not in archive_files.SUFFIXES)


def is_container(data: bytes, name: str, *, archives: bool) -> bool:
    """Whether a file with this content may contain documents."""
    suffix = format_of(data, name)
    if suffix in pdf_document.SUFFIXES and not pdf_document.may_have_members(data):
        return False
    return suffix in _CONTAINERS and (archives or suffix not in archive_files.SUFFIXES)


def is_recognized(data: bytes, name: str) -> bool:
    """Whether a file whose name doesn't tell its format has the content of a supported one."""
    return is_unnamed(name) and is_document(data, name)


def is_document(data: bytes, name: str) -> bool:
    """Whether `parse` supports a file with this content."""
    return format_of(data, name) in SUFFIXES


def family_of(data: bytes, name: str, *, with_ocr: bool = False) -> str:
    """The name of the parser module whose `LIBRARIES` this file needs; "" if it needs none."""
    suffix = format_of(data, name)
    if with_ocr and suffix in _SCANNED:
        return ocr.__name__
    functions = [table[suffix].__module__ for table in (_TEXT, _BINARY, _CONTAINERS) if suffix in table]
    return next((module for module in functions if libraries_of(module)), "")


def libraries_of(family: str) -> tuple[str, ...]:
    """The `LIBRARIES` of a parser module."""
    libraries: tuple[str, ...] = getattr(sys.modules[family], "LIBRARIES", ()) if family else ()
    return libraries


def prepare(family: str) -> None:
    """Load what a process for these files needs, before it loses access to files."""
    if family == ocr.__name__:
        ocr.prepare()
    elif family == xberg_formats.__name__:
        xberg_formats.prepare()
    elif family != pdf_document.__name__:  # PDFs have no text to decode, and the detector takes 40 MB
        prepare_detection()
    if family == calendars.__name__:
        calendars.time_zones()


def members(data: bytes, name: str) -> Iterator[Member]:
    """The documents directly inside a file, in order. A member can be a container, too.

    Raises:
        ParseError: the content is damaged, or of another format.
    """
    return _CONTAINERS[format_of(data, name)](data, PurePath(name).name)


def parse(data: bytes, name: str, *, ocr_seconds: float = 0.0) -> Document:
    """The document in a file's content; `format_of` decides how it is parsed.

    The name may have the file's folder before it. `ocr_seconds` is the time limit of OCR; 0 turns it off.

    Raises:
        EmptyFileError: the file is empty, or has no text.
        ParseError: the content is damaged, or of another format.
    """
    if not data:
        raise EmptyFileError(EMPTY)
    suffix, path = format_of(data, name), PurePath(name)
    name = path.name
    # A download that failed is often a page.
    if suffix in pdf_document.SUFFIXES and _BEGINS_AS_PAGE.match(data.lstrip()):
        raise ParseError("it is an HTML page with a PDF's file name")
    try:
        if ocr_seconds and suffix in _SCANNED:
            document = _SCANNED[suffix](data, name, ocr.OcrReader(ocr_seconds))
        else:
            document = _document(data, path, suffix)
    except RecursionError as error:
        raise ParseError("nested too deeply") from error
    if not document.blocks:
        raise EmptyFileError(EMPTY)
    title = title_line(document.title)
    # A parser gives what the document states, or the file's name if no heading counts.
    if not is_title(title):
        title = title_line(first_heading(document.text, document.blocks, name))
    if title == title_line(name) or not is_title(title):  # parsers fall back on the file's name as it is
        is_settings = suffix in json_and_csv.JSON_SUFFIXES and document.blocks[0].kind == "code"
        title = title_line(name if is_settings else named_after(name))
    return dataclasses.replace(
        document,
        title=title,
        metadata=_own_metadata(document),
        text=with_line_ends(document.text),
        blocks=with_capped_levels(with_questions(document.text, with_turns(document.text, document.blocks))),
    )


def _own_metadata(document: Document) -> dict[str, str]:
    """The document's metadata, with what is missing from its text, for its readers.

    Only its parser knows that, not the document, whose front matter could say anything.
    Example: {"left_out": "2 comments, 1 hidden sheet"}.
    """
    omissions = ", ".join(match[1] for remark in document.remarks if (match := _LEFT_OUT.match(remark)))
    stated = {key: value for key, value in document.metadata.items() if key != LEFT_OUT}
    return stated | ({LEFT_OUT: omissions} if omissions else {})


_NAMED_IN_FULL = {
    *source_code.SUFFIXES,
    *text_and_settings.YAML_SUFFIXES,
    *text_and_settings.TABLE_SUFFIXES,
    ".log",
}
"""Suffixes that stay in titles: people know pyproject.toml by its name, not as "pyproject"."""


def named_after(name: str) -> str:
    """The title of a document without one: its file name. Source code, settings and logs keep the suffix."""
    return name if _suffix(name) in _NAMED_IN_FULL else file_title(name)


def _document(data: bytes, path: PurePath, suffix: str) -> Document:
    if suffix in _BINARY:
        return _BINARY[suffix](data, path.name)
    if suffix not in _TEXT:
        raise ParseError(f"no parser for {path.suffix or 'such'} files", "unsupported")
    decoded = decode(data, page=suffix in html_page.SUFFIXES)
    text, left_out = without_encoded_data(decoded.text)
    name = str(path) if suffix in json_and_csv.JSON_SUFFIXES else path.name
    document = decoded.annotated(_TEXT[suffix](text, name), left_out)
    is_verbatim = document.mime_type in _IN_LINES and document.text == decoded.text
    # Editors don't count the ends of lines that Unicode adds, which become line feeds later.
    has_lines = is_verbatim and with_line_ends(text).count("\n") == text.count("\n")
    return dataclasses.replace(document, has_lines=has_lines)


_IN_LINES = frozenset({"text/plain", "application/yaml", "application/json", "application/xml"})
"""The types of files that people open at a line."""
_OF_SERVERS = frozenset(
    {".action", ".asp", ".aspx", ".cfm", ".cgi", ".do", ".jsp", ".jspx", ".php", ".phtml", ".shtml"}
)
"""Suffixes of programs that make web pages. A saved page keeps the name, mostly with its query."""
_PROGRAM = re.compile(rb"<%|<\?(?!xml)|(?i:<cf[a-z]+[\s>])")
_QUERY = re.compile(r"(?<=\.)([a-z]{2,6})\?[^?]*$")
_ROTATED = re.compile(r"(?<=\.log)\.\d{1,8}(?:[-._]\d{1,6}){0,5}$")  # "app.log.1", "app.log.2024-06-12"
_OF_EXAMPLES = frozenset({".example", ".sample", ".dist", ".template", ".tmpl", ".tpl", ".j2"})
"""Suffixes behind the real one, of files that somebody is to fill in: "settings.conf.example"."""
_WITH_VARIANTS = frozenset({"dockerfile", "containerfile"})
_OF_BACKUPS = frozenset({".bak", ".old", ".orig", ".rej", ".save", ".swp"})


def _suffix(name: str) -> str:
    path = PurePath(_ROTATED.sub("", _QUERY.sub(r"\1", name.lower())))
    if path.name in SUFFIXES:
        return path.name
    if path.suffix in _OF_EXAMPLES:
        of_example = ".conf" if path.stem.removeprefix(".") == "env" else _suffix(path.stem)
        if of_example in SUFFIXES:
            return of_example
    if path.stem in _WITH_VARIANTS and path.suffix not in SUFFIXES | _OF_BACKUPS:
        return path.stem
    return path.suffix or path.name


_BEGINS_AS_PAGE = re.compile(rb"(?i)<(!doctype html|html)[\s>]")
_XML = re.compile(rb"<\?xml\s")
_MAILBOX = re.compile(rb"(?>From [^\r\n]+?\d\d:\d\d)[^\r\n]*+\r?\n[A-Za-z-]++:")  # the first time only
_HEADER = re.compile(rb"(?im)^(from|to|subject|date|received|message-id|mime-version|return-path):[ \t]*\S")
_FIELD = re.compile(rb"[A-Za-z-]+:[ \t]")
_NOTEBOOK = re.compile(rb'\{\s*"(cells|metadata|nbformat)"\s*:')
_EPUB = b"mimetypeapplication/epub+zip"
_ENCODED_MAIL = re.compile(rb"(?im)^mime-version:")
_MAIL_HEADERS = 3  # different ones in its first lines; a text may begin with "From:" and "To:"


def sniffed_suffix(beginning: bytes) -> str:
    """The suffix of the format that a file clearly has by its beginning, or "".

    Example: b"%PDF-1.7 ... obj" -> ".pdf"; b"<!DOCTYPE html>..." -> ".html"; b"#!/bin/sh" -> ".sh".
    """
    start = beginning.removeprefix(codecs.BOM_UTF8).lstrip()
    is_xml = bool(_XML.match(start))
    if start.startswith(b"#!") and (script := source_code.script_suffix(start)):
        return script
    signs = {
        ".pdf": start.startswith(b"%PDF-") and b" obj" in start,
        ".epub": _EPUB in beginning[:100],
        ".html": _BEGINS_AS_PAGE.match(start) or (is_xml and _BEGINS_AS_PAGE.search(start[:1000])),
        ".xml": is_xml,
        ".mbox": _MAILBOX.match(start),
        ".po": beginning.count(b'\nmsgid "') > 1,  # a template, ".pot", has PowerPoint's suffix
        ".ipynb": _NOTEBOOK.match(start) and b'"cell_type"' in beginning,
        ".eml": _is_mail(start),
    }
    return next((suffix for suffix, matches in signs.items() if matches), "")


def is_table(beginning: bytes) -> bool:
    """Whether each of the first lines has the same number of tabs, semicolons or commas, at least one."""
    lines = [line for line in beginning.splitlines()[:5] if line.strip()]
    if b"\0" in beginning or not lines:
        return False
    return any(
        lines[0].count(sign) > 0 and len({line.count(sign) for line in lines}) == 1 for sign in b"\t;,"
    )


def _is_mail(start: bytes) -> bool:
    head = re.split(rb"\r?\n\r?\n", start, maxsplit=1)[0]
    names = {match[1].lower() for match in _HEADER.finditer(head)}
    is_sent = names & {b"message-id", b"received", b"mime-version"}  # no text that only quotes a mail
    return bool(_FIELD.match(head)) and len(names) >= _MAIL_HEADERS and bool(is_sent)


_OFFICE_PARTS = {
    ZIP: {".docx": b"word/document", ".pptx": b"ppt/presentation.xml", ".xlsx": b"xl/workbook.xml"},
    OLE: {
        ".doc": "WordDocument".encode("utf-16-le"),
        ".ppt": "PowerPoint Document".encode("utf-16-le"),
        ".xls": "Workbook".encode("utf-16-le"),
    },
}
"""Parts that tell the format, by the beginning of the file."""
_PACKAGES = frozenset({*epub.SUFFIXES, *OFFICE, *_OFFICE_PARTS[OLE]})
_MIME = re.compile(rb"application/vnd\.oasis\.opendocument\.(text|spreadsheet|presentation)")
_OPEN = {b"text": ".odt", b"spreadsheet": ".ods", b"presentation": ".odp"}
_FIRST_ENTRY = 200  # bytes that hold the first entry of an OpenDocument file: its MIME type, not compressed


def office_format(data: bytes, suffix: str) -> str:
    """The suffix of the office format that a file clearly has, or "".

    A file may embed files of other formats. If `suffix` is among them, it wins.
    Example: (the content of a DOCX, ".doc") -> ".docx".
    """
    if data.startswith(b"{\\rtf"):
        return ".rtf"
    if data.startswith(ZIP) and (match := _MIME.search(data[:_FIRST_ENTRY])):
        return _OPEN[match[1]]
    parts = next((parts for start, parts in _OFFICE_PARTS.items() if data.startswith(start)), {})
    positions = {office: at for office, part in parts.items() if (at := data.rfind(part)) >= 0}
    return suffix if suffix in positions else max(positions, key=lambda office: positions[office], default="")
