from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.errors import ParseError
from rag.ingest.parse import parse

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = Callable[[str, str], list[tuple[str, str]]]


@pytest.mark.parametrize(
    ("delimiter", "name"), [(",", "a.csv"), (";", "a.csv"), ("\t", "a.tsv"), ("|", "a.csv")]
)
def test_every_row_is_clear_alone(delimiter: str, name: str, shape: Shape) -> None:
    rows = [["name", "born", "note"], ["Ada", "1815", ""], ["Grace", "1906", '"two\nlines"']]
    content = "\n".join(delimiter.join(row) for row in rows)
    assert shape(content, name) == [
        ("table", "name: Ada\nborn: 1815"),
        ("table", "name: Grace\nborn: 1906\nnote: two\nlines"),
    ]


def test_columns_without_a_name_of_their_own_are_numbered(shape: Shape) -> None:
    assert shape("a,,a\n1,2,3,4", "a.csv") == [("table", "a: 1\ncolumn 2: 2\na 3: 3\ncolumn 4: 4")]


def test_a_cell_without_end_is_refused_with_its_line() -> None:
    with pytest.raises(ParseError, match=r"^line 2: field larger"):
        parse(b'a,b\n"' + b"x" * 200_000, "a.csv")


def test_a_header_alone_is_empty() -> None:
    with pytest.raises(ParseError, match=r"^the file has no content$"):
        parse(b"a,b\n", "a.csv")
