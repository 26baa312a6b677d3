"""What tests look for in documents: their blocks, and words as tokens that a reader can count."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag.corpus import Document


def blocks_of(document: Document) -> list[tuple[str, str]]:
    """The blocks of a document, each as its kind and its text."""
    return [(block.kind, document.text[block.start : block.end]) for block in document.blocks]


def texts_of(document: Document) -> list[str]:
    """The texts of its blocks."""
    return [text for _, text in blocks_of(document)]


def headings_of(document: Document) -> list[tuple[int, str]]:
    """The levels and titles of its headings."""
    return [(block.level, block.title) for block in document.blocks if block.kind == "heading"]


def titles_of(document: Document) -> list[str]:
    """The titles of its headings."""
    return [title for _, title in headings_of(document)]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text stand: a tokenizer that a reader can count with."""
    return [match.span() for match in re.finditer(r"\S+", text)]
