"""What an office document says of itself, as far as a person said it and not a program."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.ingest.parse.blocks import date, first_heading, title_line
from rag.ingest.parse.questions import with_questions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from xml.etree.ElementTree import Element

    from rag.ingest.parse.draft import Draft
    from rag.ingest.parse.zipped import Package

_NO_TITLE = re.compile(
    r"(?i)untitled.*|microsoft (?:word|powerpoint|excel) ?-? .*|(?:new )?microsoft .* document"
    r"|powerpoint[- ](?:presentation|präsentation|presentatie)|презентация powerpoint|powerpoint 演示文稿"
    r"|(?:présentation|presentación|apresentação|presentazione)(?: de| do| di)? powerpoint"
    r"|(?:document|dokument|slide|folie|book|mappe|presentation|präsentation|spreadsheet|title|titel|template"
    r"|vorlage|pptx?|docx?|xlsx?|excel|word)[ _-]?\d*"
    r"|.*\.(?:docx?|docm|dotx?|pptx?|potx?|xlsx?|xltx?|od[tsp]|ot[tsp]|rtf|pdf)|[a-z]:\\.*|file:.*"
)
_NOBODY = re.compile(
    r"(?i)python-docx|python-pptx|openpyxl|apache poi|microsoft office[ -](?:user|anwender)|author|users?|win"
    r"|pc|admin|administrator|unknown|root|owner|default|none|-|windows[ -]user|windows-benutzer"
    r"|utilisateur.*|usuario.*"
)
_GENERATED = re.compile(r"(?i)generated (?:by|using) .*")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{2,8}){0,3}")
_TEMPLATES = frozenset({"2013-12-23T23:15:00+00:00", "2013-01-27T09:14:16+00:00"})
"""When the templates of python-docx and python-pptx were saved: every document made with them says so."""
_OLDEST = datetime(1990, 1, 1, tzinfo=UTC)  # earlier moments are a clock at its start, as 1601 or 1980 are
_YOUNGEST = datetime(2100, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a document, as it states them; "" where it states none."""

    title: str = ""
    author: str = ""
    keywords: str = ""
    subject: str = ""
    description: str = ""
    language: str = ""
    modified: str = ""


def core_properties(package: Package) -> Properties:
    """The properties of an Office Open XML package."""
    path = package.related_as("", "core-properties") or "docProps/core.xml"
    found = _texts(package.xml_if_there(path))
    return Properties(
        title=found.get("title", ""),
        author=found.get("creator", ""),
        keywords=found.get("keywords", ""),
        subject=found.get("subject", ""),
        description=found.get("description", ""),
        language=found.get("language", ""),
        modified=found.get("modified", ""),
    )


def open_document_properties(meta: Element | None) -> Properties:
    """Those of an OpenDocument file, in its part meta.xml or in the flat file itself."""
    found = _texts(meta)
    return Properties(
        title=found.get("title", ""),
        author=found.get("initial-creator", "") or found.get("creator", ""),
        keywords=found.get("keyword", ""),
        subject=found.get("subject", ""),
        description=found.get("description", ""),
        language=found.get("language", ""),
        modified=found.get("date", ""),
    )


def _texts(root: Element | None) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    for one in root.iter() if root is not None else ():
        if one.text and one.text.strip():
            texts.setdefault(one.tag, []).append(one.text.strip())
    return {tag: ", ".join(found) if tag == "keyword" else found[0] for tag, found in texts.items()}


def written_document(
    draft: Draft,
    name: str,
    mime_type: str,
    properties: Properties,
    *,
    remarks: Iterable[str] = (),
    title: str = "",
) -> Document:
    """The document of a draft. Its title is that of its properties, else `title`, else its first heading.

    Its date is when it was last saved by its program: nobody else writes this property. When it was created
    isn't used, because a copy keeps that of its template.
    """
    draft.promote()
    text = draft.text
    blocks = with_questions(text, draft.blocks, bold=draft.bold)
    keywords = [word for part in re.split(r"[;,]", properties.keywords) if (word := title_line(part))]
    said = {
        "author": _author(properties.author),
        "keywords": ", ".join(dict.fromkeys(keywords)),
        "subject": title_line(properties.subject),
        "description": ""
        if _GENERATED.fullmatch(properties.description)
        else title_line(properties.description),
        "language": properties.language if _LANGUAGE.fullmatch(properties.language) else "",
    }
    own = title_line(properties.title)
    own = "" if _NO_TITLE.fullmatch(own) else own
    return Document(
        text=text,
        title=("" if _NO_TITLE.fullmatch(own) else own) or title_line(title) or first_heading(blocks) or name,
        mime_type=mime_type,
        blocks=blocks,
        pages=tuple(min(at, len(text)) for at in draft.pages),
        date=_saved(properties.modified),
        metadata={key: value for key, value in said.items() if value},
        remarks=tuple(remarks),
    )


def _author(written: str) -> str:
    people = [person for part in written.split(";") if (person := title_line(part))]
    return ", ".join(person for person in people if not _NOBODY.fullmatch(person))


def _saved(written: str) -> datetime | None:
    moment = date(written) if written else None
    if moment is None or moment.isoformat() in _TEMPLATES or not _OLDEST <= moment < _YOUNGEST:
        return None
    return moment


def left_out(count: int, thing: str, things: str = "") -> list[str]:
    """The remark that something was left out: 2, "hidden slide" -> "2 hidden slides were left out"."""
    if not count:
        return []
    return [
        f"{count} {thing} was left out" if count == 1 else f"{count} {things or f'{thing}s'} were left out"
    ]
