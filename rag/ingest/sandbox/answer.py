"""What a confined parser says, held to being a document before anybody believes it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.corpus import Block, BlockKind, Document
from rag.errors import ParseError
from rag.ingest.parse.blocks import one_line, utc

Place = Annotated[int, Field(ge=0)]


class NoDocumentError(ValueError):
    """The answer is neither a document nor a reason why there is none."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Document(_Data):
    text: str
    title: str
    mime_type: Annotated[str, Field(pattern=r"^[a-z]+/[a-z0-9.+-]{1,80}$")]
    blocks: tuple[tuple[BlockKind, Place, Place, Place, str], ...]
    pages: tuple[Place, ...]
    date: datetime | None
    url: Annotated[str, Field(pattern=r"^(?i:https?)://", max_length=2100)] | None
    metadata: dict[str, str]


class _Answer(_Data):
    document: _Document | None = None
    error: str | None = None


def document_of(answer: bytes) -> Document:
    """The document that an answer holds.

    Raises:
        ParseError: it says what is wrong with the file.
        NoDocumentError: it is no answer, or its places don't fit its text.
    """
    try:
        said = _Answer.model_validate_json(answer)
    except ValidationError as error:
        raise NoDocumentError(f"{error.error_count()} errors") from error
    if said.document is None:
        raise ParseError(one_line(said.error or "") or "no reason is given")
    return _checked(said.document)


def _checked(said: _Document) -> Document:
    ends = [0]
    for _, start, end, _, _ in said.blocks:
        ends += [start, end]
    for places in (ends, said.pages):
        if list(places) != sorted(places) or (places and places[-1] > len(said.text)):
            raise NoDocumentError("places outside of the text, or out of order")
    if not said.blocks:
        raise NoDocumentError("no blocks")
    return Document(
        text=said.text,
        title=one_line(said.title),
        mime_type=said.mime_type,
        blocks=tuple(
            Block(kind, start, end, level, one_line(title)) for kind, start, end, level, title in said.blocks
        ),
        pages=said.pages,
        date=utc(said.date) if said.date else None,
        url=said.url,
        metadata=said.metadata,
    )
