"""Sidecars and names that would end a run, or take all memory of it, are refused."""

from __future__ import annotations

import pytest

from rag.errors import ParseError
from rag.ingest import metadata
from rag.ingest.containers import MAX_NAME_CHARS, inner_path


@pytest.mark.parametrize(
    "hostile", [b"year = " + b"1" * 5000, b"year = 0x" + b"f" * 60_000, b"a." * 31_000 + b"a = 1"]
)
def test_a_sidecar_that_would_end_the_run_is_refused(hostile: bytes) -> None:
    with pytest.raises(ParseError, match=r"its \.meta\.toml file"):
        metadata._entries(hostile)  # noqa: SLF001 where it is read
    assert metadata._entries(b"year = 2024") == {"year": "2024"}  # noqa: SLF001 the control


def test_a_member_s_path_has_a_length() -> None:
    assert inner_path("a/" * 400 + "x.md") == "a/" * 400 + "x.md"
    assert inner_path("a/" * MAX_NAME_CHARS + "x.md") is None
