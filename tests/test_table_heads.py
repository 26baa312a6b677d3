"""What heads a row that is shown alone: the caption and the names of the columns, of its own table only."""

from __future__ import annotations

import pytest

from rag.text.table_heads import (
    COVERED,
    are_units,
    head_of_record,
    head_of_row,
    pipe_row,
    table_head,
    with_spanned,
)

COLUMNS = "| Zone | Sales |"
ROWS = f"{COLUMNS}\n|---|---|\n| North | 5 |\n| South | 6 |"
ROW = "| West | 7 |"


@pytest.mark.parametrize(
    ("above", "head"),
    [
        ("January to June 2022\n\n", f"January to June 2022 {COLUMNS}"),
        ("January to June 2022\n", f"January to June 2022 {COLUMNS}"),
        ("**2022**\n\n(in CHF)\n\n", f"**2022** (in CHF) {COLUMNS}"),
        ("| In CHF |  | 2022 |\n\n", f"In CHF 2022 {COLUMNS}"),
        (f"{'A long name ' * 12}\n\nJanuary to June 2022\n\n", f"January to June 2022 {COLUMNS}"),
        ("| Period | May 2022 |\n|---|---|\n| Unit | CHF |\n\n", f"Period May 2022 Unit CHF {COLUMNS}"),
        ("| Period | May 2022 |\n|---|---|\n| Pages | 9 |\n\n", COLUMNS),
        ("Sales grew.\n\n", COLUMNS),
        ("- 2022\n\n", COLUMNS),
        ("## Sales\n\n", COLUMNS),
        ("Sales\n=====\n\n", COLUMNS),
        ("Fees\n\n", COLUMNS),
        ("Fees\n\n2022\n\n", f"2022 {COLUMNS}"),
        ("", COLUMNS),
    ],
    ids=[
        "line",
        "adjacent",
        "two",
        "row",
        "long",
        "pairs",
        "figures",
        "text",
        "item",
        "heading",
        "underlined",
        "section",
        "below it",
        "none",
    ],
)
def test_a_row_has_the_caption_and_the_header_of_its_table(above: str, head: str) -> None:
    assert head_of_row(f"{above}{ROWS}\n", ROW, "", ("Fees",)) == head


@pytest.mark.parametrize(
    ("rows", "head"),
    [
        ("| Time | Load |\n|---|---|\n| h | kN/mm² |\n| 1 | 2.5 |", "| Time (h) | Load (kN/mm²) |"),
        ("| Time | Load |\n|---|---|\n| [h] | - |\n| 01:30 | 2.5e-3 |", "| Time [h] | Load |"),
        ("| Name | Mark |\n|---|---|\n| A | B |\n| C | D |", "| Name | Mark |"),
        (
            "| Job | Share | Count |\n|---|---|---|\n| | of Hires | of Offers |",
            "| Job | Share of Hires | Count of Offers |",
        ),
    ],
)
def test_the_head_of_a_row_has_units_and_words_from_the_row_below_the_names(rows: str, head: str) -> None:
    assert head_of_row(f"{rows}\n| 3 | 4 |\n", "| 5 | 6 |", "", ()) == head


def test_a_long_text_of_units_is_none_and_is_not_searched_for_them() -> None:
    assert are_units(["1/s", "kN m", "-"])
    assert not are_units(["m  " * 40 + "?"])


def test_the_second_of_two_tables_has_its_own_caption() -> None:
    passed = f"2023\n\n{ROWS}\n\n2022\n\n{ROWS}\n"
    assert head_of_row(passed, ROW, "", ()) == f"2022 {COLUMNS}"
    assert head_of_row(f"| North | 5 |\n| Total | 5 |\n\n2022\n\n{ROWS}\n", ROW, f"2023 {COLUMNS}", ()) == (
        f"2022 {COLUMNS}"
    )


@pytest.mark.parametrize(
    ("first", "inherited"),
    [
        (ROWS, ""),
        ("| North | 5 |\n| Total | 5 |", f"2023 {COLUMNS}"),
        ("| North | 5 |\n| Total | 5 |", COLUMNS),
    ],
    ids=["no caption above", "known as its caption", "caption unknown"],
)
def test_a_line_between_tables_that_can_belong_to_the_upper_one_heads_no_row(
    first: str, inherited: str
) -> None:
    assert head_of_row(f"{first}\n\n2023\n\n{ROWS}\n", ROW, inherited, ()) == COLUMNS
    assert head_of_row(f"{first}\n\n2023\n\n2022\n\n{ROWS}\n", ROW, inherited, ()) == f"2022 {COLUMNS}"


def test_a_row_of_a_table_at_the_beginning_of_a_passage_has_what_heads_the_passage() -> None:
    assert head_of_row("", ROW, f"2022 {COLUMNS}", ()) == f"2022 {COLUMNS}"
    assert head_of_row("| North | 5 |\n", ROW, f"2022 {COLUMNS}", ()) == f"2022 {COLUMNS}"
    assert head_of_row(f"{ROWS}\n", ROW, "2022", ()) == f"2022 {COLUMNS}"  # the passage begins with the table


def test_a_row_has_the_groups_of_its_columns() -> None:
    names = "| Zone | 2022 | 2023 |\n|---|---|---|\n"
    grouped = "| Zone | Sales 2022 | Sales 2023 |"
    assert (
        head_of_row(f"In CHF\n\n|  | Sales |  |\n\n{names}", "| N | 1 | 2 |", "", ()) == f"In CHF {grouped}"
    )
    below = "|  | Sales |  |\n|---|---|---|\n| Zone | 2022 | 2023 |\n"
    assert head_of_row(below, "| N | 1 | 2 |", "", ()) == grouped


@pytest.mark.parametrize(
    ("rows", "header"),
    [
        ("|A||B; Zone|||C; Zone|x|y|z", "Zone|A x|A y|B C z"),
        ("No. 1|No. 2|No. 3|; |Value|Votes|; Name|Kind|Sole|None", "No. 1|No. 2 Value|No. 3 Votes|No. 3"),
    ],
)
def test_a_name_of_the_first_column_is_no_group_and_rows_that_are_none_take_no_group(
    rows: str, header: str
) -> None:
    lines = [pipe_row(row.split("|")) for row in (*rows.split("; "), "N|1|2|3")]
    assert table_head([], lines[0], lines[1:]).header == pipe_row(header.split("|"))


def test_rows_that_nothing_names_have_their_caption() -> None:
    assert head_of_row("2022\n\n| North | 5 |\n| South | 6 |\n", ROW, "", ()) == "2022"
    assert head_of_row("| North | 5 |\n", ROW, "", ()) == ""


RECORD = "Zone: West\nSales: 7"


@pytest.mark.parametrize(
    ("passed", "inherited", "head"),
    [
        ("Results of 2022\n\nZone: North\nSales: 5\n\n", "", "Results of 2022"),
        ("Results of 2022\n\n", "", "Results of 2022"),
        ("Zone: North\nSales: 5\n\n", "Results of 2022", "Results of 2022"),
        ("Sales: 5\nCosts: 4\n\n", "Results of 2022 Zone: North", "Results of 2022"),
        ("Sales: 5\nCosts: 4\n\n", "Zone: North", ""),
        ("", "Results of 2022", "Results of 2022"),
        ("It was a year of sales.\n\n", "", ""),
    ],
)
def test_a_record_has_the_caption_above_the_first_one(passed: str, inherited: str, head: str) -> None:
    assert head_of_record(passed, RECORD, inherited, ()) == head


def cells(row: str) -> list[str]:
    """The cells of a row; "^" is covered by the one to its left."""
    return [COVERED if cell == "^" else cell for cell in row.split("|")]


@pytest.mark.parametrize(
    ("rows", "seen"),
    [
        (
            "Time|Mon|Tue|Wed; 8:00|Maths|Trip|^; 9:00|Leave|^|^",
            "8:00|Maths|Trip|Trip; 9:00|Leave|Leave|Leave",
        ),
        ("Mon|8 to 12|14 to 18; Wed|closed|^", "Wed|closed|closed"),
        ("Timetable|^|^; Time|Mon|Tue; 8:00|Trip|^", "Time|Mon|Tue; 8:00|Trip|Trip"),
        (
            "Zone|Sales|^|Costs|^; |2022|2023|2022|2023; North|none|^|3|4",
            "|2022|2023|2022|2023; North|none|none|3|4",
        ),
        ("Day|Hours|^; Mon|8 to 12|14 to 18; Wed|closed|^", "Mon|8 to 12|14 to 18; Wed|closed|closed"),
        ("Room|Mon|^|Tue|^; 1|Ann|^|Bob|^; 2|Ann|^|^|^", "1|Ann||Bob|; 2|Ann||Ann|"),
        ("Item|Size|Price; Sum|^|9", "Sum||9"),
        ("Item|Size|Price; |Sum|^", "|Sum|"),
        ("Item|Size|Price; Drinks|^|^", "Drinks||"),
        ("Item|Size|Price; Tea|" + "Served hot. " * 9 + "|^", "Tea|" + "Served hot. " * 9 + "|"),
        ("|2023|^|^|2022|^|^; Sales|$|9|)|$|8|; Costs|7|^|^|6|^|^", "Sales|$|9|)|$|8|; Costs|7|||6||"),
        ("||2023|^||2022|^; Sales|9|^|^|8|^|^", "Sales|9|||8||"),
        ("|2023|^|^; Cash|$|9|; Tax|none|^|^", "Cash|$|9|; Tax|none||"),
        ("Cash|$|9|; Tax|none|^|^", "Tax|none||"),
        ("May|1|2|3; Ann|late|leave|^", "Ann|late|leave|leave"),
        ("Item|2022|2023; Both years|8|^", "Both years|8|"),
        ("No.|Part|Price; 1|Outside:|^; 2|Oak|9", "1|Outside:|; 2|Oak|9"),
    ],
)
def test_a_value_stands_in_each_named_column_that_it_goes_over(rows: str, seen: str) -> None:
    _, *body = with_spanned([*map(cells, rows.split("; "))])
    assert body == [*map(cells, seen.split("; "))]


def test_repeated_values_do_not_make_a_table_much_longer() -> None:
    table = [["", *"a" * 99], *([["x", "b" * 90, *[COVERED] * 98]] * 9)]
    assert max(sum(map(bool, row)) for row in with_spanned(table)[1:]) == 2
