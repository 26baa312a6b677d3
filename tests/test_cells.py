from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.text.locators import cell_range, column_name, column_number, hull, is_cell_range


@given(st.integers(1, 16_384))
def test_a_column_has_one_name(number: int) -> None:
    assert column_number(column_name(number)) == number


@pytest.mark.parametrize(("number", "name"), [(1, "A"), (26, "Z"), (27, "AA"), (702, "ZZ"), (16_384, "XFD")])
def test_columns_are_named_as_in_a_spreadsheet(number: int, name: str) -> None:
    assert column_name(number) == name


def test_a_range_of_one_cell_is_the_cell() -> None:
    assert cell_range((3, 2), (3, 2)) == "B3"
    assert cell_range((2, 1), (9, 6)) == "A2:F9"


@pytest.mark.parametrize(
    ("ranges", "whole"),
    [(["A2:F2", "B9:C9"], "A2:F9"), (["C4"], "C4"), (["B2", "AA1"], "B1:AA2"), ([], ""), (["no cells"], "")],
)
def test_the_hull_holds_all_ranges(ranges: list[str], whole: str) -> None:
    assert hull(ranges) == whole


@pytest.mark.parametrize("name", ["A2:", "a2", "A0", "ABCD1", "A1:B", "A1 B2", ""])
def test_other_names_are_no_cells(name: str) -> None:
    assert not is_cell_range(name)
    assert is_cell_range("A1:B2")
