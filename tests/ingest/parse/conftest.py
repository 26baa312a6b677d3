"""What the tests of the parsers share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from rag.ingest.parse.parsers import parse
from tests.ingest.parse.document_shape import blocks_of

Shape: TypeAlias = Callable[[str, str], list[tuple[str, str]]]


@pytest.fixture
def shape() -> Shape:
    """(content, file name) to the blocks of the document, each as its kind and its text."""

    def blocks(content: str, name: str) -> list[tuple[str, str]]:
        document = parse(content.encode(), name)
        return blocks_of(document)

    return blocks
