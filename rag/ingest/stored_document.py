"""Reconstructs a document from its stored text, to chunk it again without its file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from rag.corpus import Block, BlockKind, Document, Heading, Source
from rag.ingest.parse import markdown, source_code
from rag.ingest.parse.document_parts import block

_GAP = re.compile(r"\n[^\S\n]*\n\s*")
_KINDS: tuple[tuple[BlockKind, re.Pattern[str]], ...] = (
    ("table", re.compile(r"[^\n]*\|[^\n]*\n[^\S\n]*\|?[^\S\n]*:?-[-:| \t]*(?:\n|$)")),
    ("list", re.compile(r"\s*(?:[-*+•]|\d{1,9}[.)])[ \t]")),
    ("code", re.compile(r"```|~~~|    \S")),
)


def document_of(source: Source, outline: Sequence[Heading], text: str) -> Document:
    """The document with the blocks of its parser if the text can be parsed again, else with guessed blocks.

    Title, headings and metadata are the stored ones. Pages are unknown.
    """
    name = PurePath(source.name).name or source.title
    likely = Document(text, source.title, source.mime_type, tuple(_likely(text, outline)))
    document = next(
        (candidate for candidate in _candidates(text, name) if _agrees(candidate, text, outline)), likely
    )
    return replace(document, title=source.title, metadata=source.metadata)


def _candidates(text: str, name: str) -> Iterator[Document]:
    suffix = PurePath(name.lower()).suffix
    if suffix in source_code.SUFFIXES:
        yield source_code.parse(text, name)
    elif suffix in markdown.SUFFIXES:
        yield markdown.parse(text, name)


def _agrees(document: Document, text: str, outline: Sequence[Heading]) -> bool:
    """Whether parsing the stored text gave the same text and headings as parsing the file."""
    return document.text == text and document.outline == tuple(outline)


def _likely(text: str, outline: Sequence[Heading]) -> Iterator[Block]:
    """The stored headings, and between them a block for each paragraph."""
    at = 0
    for heading in outline:
        yield from _gap_blocks(text, at, heading.start)
        line = text.find("\n", heading.start)
        at = len(text) if line < 0 else line
        heading_blocks = block(text, "heading", heading.start, at, level=heading.level)
        yield from (replace(heading_block, title=heading.title) for heading_block in heading_blocks)
    yield from _gap_blocks(text, at, len(text))


def _gap_blocks(text: str, start: int, end: int) -> Iterator[Block]:
    for gap in _GAP.finditer(text, start, end):
        yield from _block(text, start, gap.start())
        start = gap.end()
    yield from _block(text, start, end)


def _block(text: str, start: int, end: int) -> Iterator[Block]:
    for paragraph in block(text, "paragraph", start, end):
        kind = next(
            (kind for kind, form in _KINDS if form.match(text, paragraph.start, paragraph.end)),
            paragraph.kind,
        )
        yield replace(paragraph, kind=kind)
