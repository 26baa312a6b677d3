from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse

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


ROWS = "Schraube M6;0,12;4000\nMutter M6;0,08;3500"
RECORDS = [
    ("table", "Artikel: Schraube M6\nPreis: 0,12\nLager: 4000"),
    ("table", "Artikel: Mutter M6\nPreis: 0,08\nLager: 3500"),
]


@pytest.mark.parametrize(
    ("above", "said"),
    [
        ("sep=;\n", ""),
        ('"sep=;"\n', ""),
        ("\n\n;;\n", ""),
        ("Preisliste 2024\n\n", "Preisliste 2024"),
        ("Preisliste 2024;;\n;;\n", "Preisliste 2024"),
        ("# exported on 1 May; by Ann\n", "# exported on 1 May by Ann"),
        ("sep=;\nPreise; netto\n", "Preise netto"),
    ],
)
def test_what_stands_above_the_header_names_no_column(above: str, said: str, shape: Shape) -> None:
    told = [("paragraph", said)] if said else []
    assert shape(f"{above}Artikel;Preis;Lager\n{ROWS}", "a.csv") == told + RECORDS


@pytest.mark.parametrize("content", ["#,Name\n1,Bolt", "#\tName\n1\tBolt"])
def test_a_header_may_begin_with_a_number_sign(content: str, shape: Shape) -> None:
    assert shape(content, "a.csv") == [("table", "#: 1\nName: Bolt")]


def test_a_delimiter_is_what_cuts_all_rows_alike(shape: Shape) -> None:
    assert shape("name, born; note\nAda; x, y, z\nBob; u", "a.csv") == [
        ("table", "name, born: Ada\nnote: x, y, z"),
        ("table", "name, born: Bob\nnote: u"),
    ]
    assert shape('"a|b", "c\nd"\n"1|2", "3, 4"', "a.csv") == [("table", "a|b: 1|2\nc d: 3, 4")]


def test_a_table_of_one_column_has_a_header(shape: Shape) -> None:
    assert shape("Name\nAnn\nBob", "a.csv") == [("table", "Name: Ann"), ("table", "Name: Bob")]


def test_a_cell_without_end_is_refused_with_its_line() -> None:
    with pytest.raises(ParseError, match=r"^line 2: field larger"):
        parse(b'a,b\n"' + b"x" * 200_000, "a.csv")


def test_a_header_alone_is_empty() -> None:
    with pytest.raises(ParseError, match=r"^the file has no content$"):
        parse(b"a,b\n", "a.csv")
