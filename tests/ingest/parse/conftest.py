"""What the tests of the parsers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.ingest.parse.parsers import parse

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def shape() -> Callable[[str, str], list[tuple[str, str]]]:
    """(content, file name) to the blocks of the document, each as its kind and its text."""

    def blocks(content: str, name: str) -> list[tuple[str, str]]:
        document = parse(content.encode(), name)
        return [(block.kind, document.text[block.start : block.end]) for block in document.blocks]

    return blocks
