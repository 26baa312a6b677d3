"""Validates the answers of the parser process, which a hostile file may control."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.corpus import Block, BlockKind, Document
from rag.errors import Cause, EmptyFileError, ParseError
from rag.ingest.parse.document_parts import MAX_LEVEL, Member, clean, title_line, utc
from rag.ingest.sandbox.parser_child import MAX_TEXT_CHARS
from rag.uris import web_address

Position = Annotated[int, Field(ge=0)]
Level = Annotated[int, Field(ge=0, le=MAX_LEVEL)]


class NoDocumentError(ValueError):
    """The answer is neither a document nor an error."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Document(_Data):
    title: str
    mime_type: Annotated[str, Field(pattern=r"^[a-z]+/[a-z0-9.+-]{1,80}$")]
    blocks: tuple[tuple[BlockKind, Position, Position, Level, str], ...]
    pages: tuple[Position, ...]
    date: datetime | None
    url: Annotated[str, Field(pattern=r"^(?i:https?)://", max_length=2100)] | None
    metadata: dict[str, str]
    remarks: tuple[str, ...] = ()


class _Member(_Data):
    name: str = ""
    stated: dict[str, str] = {}
    refused: str = ""
    cause: Cause = "damaged"
    error: str | None = None
    empty: bool = False


class _Answer(_Data):
    document: _Document | None = None
    error: str | None = None
    cause: Cause = "damaged"
    empty: bool = False


NO_REASON = "the parser gave no reason"


def document_of(about: bytes, text: bytes) -> Document:
    """The document in an answer: `about` is JSON, `text` its text.

    Raises:
        EmptyFileError: the parser reports an empty file.
        ParseError: the parser reports an error of the file.
        NoDocumentError: the answer is invalid, or its positions don't fit its text.
    """
    try:
        parsed, decoded = _Answer.model_validate_json(about), text.decode()
    except ValidationError as error:
        raise NoDocumentError(f"{error.error_count()} errors") from error
    except UnicodeDecodeError as error:
        raise NoDocumentError("a text that is not UTF-8") from error
    if parsed.document is None:
        kind = EmptyFileError if parsed.empty else ParseError
        raise kind(title_line(parsed.error or "") or NO_REASON, parsed.cause)
    return _valid_document(parsed.document, decoded)


def member_of(answer: bytes) -> Member:
    """The member in an answer, without its content. Its name is not sanitized.

    Raises:
        ParseError: the parser reports an error of the file.
        NoDocumentError: the answer is invalid.
    """
    try:
        parsed = _Member.model_validate_json(answer)
    except ValidationError as error:
        raise NoDocumentError(f"{error.error_count()} errors") from error
    if parsed.error is not None:
        raise ParseError(title_line(parsed.error) or NO_REASON, parsed.cause)
    stated = {clean(key): clean(value) for key, value in parsed.stated.items()}
    return Member(parsed.name, stated=stated, refused=title_line(parsed.refused), cause=parsed.cause)


def _valid_document(document: _Document, text: str) -> Document:
    ends = [0]
    for _, start, end, _, _ in document.blocks:
        ends += [start, end]
    for positions in (ends, document.pages):
        if list(positions) != sorted(positions) or (positions and positions[-1] > len(text)):
            raise NoDocumentError("positions outside of the text, or out of order")
    if not document.blocks:
        raise NoDocumentError("no blocks")
    if len(text) > MAX_TEXT_CHARS:
        raise NoDocumentError(f"a text of {len(text)} characters")
    return Document(
        text=text,
        title=title_line(document.title),
        mime_type=document.mime_type,
        blocks=tuple(
            Block(kind, start, end, level, title_line(title))
            for kind, start, end, level, title in document.blocks
        ),
        pages=document.pages,
        date=utc(document.date) if document.date else None,
        url=web_address(document.url or ""),
        metadata=document.metadata,
        remarks=tuple(map(title_line, document.remarks)),
    )
