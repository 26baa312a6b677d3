"""A part of a table is read with the table's header row, wherever the table is cut."""

from __future__ import annotations

import re

import pytest

from rag.corpus import Block, Document
from rag.ingest.chunk import passages
from rag.ingest.parse.parsers import parse
from rag.ingest.split_text import tables_of
from rag.store.read.stored_rows import header_in
from rag.store.write.table_rows import body
from tests.ingest.parse.packages import sheet, workbook

HEADER = "| Team | City | Wins |"
RULE = "|---|---|---|"
ROWS = [f"| Team {n} | City {n} | {n} |" for n in range(40)]


def words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def _markdown() -> Document:
    return parse("\n".join(["# Cups", "", HEADER, RULE, *ROWS, "", "The end of it."]).encode(), "a.md")


def _sheet() -> Document:
    """The same table with a block for each row, as sheets have them."""
    text = "\n".join([HEADER, RULE, *ROWS])
    blocks: list[Block] = []
    start = 0
    for number, row in enumerate([f"{HEADER}\n{RULE}", *ROWS], 1):
        blocks.append(Block("table", start, start + len(row), title=f"A{number}:C{number}"))
        start += len(row) + 1
    return Document(text, "Cups", "text/plain", tuple(blocks))


@pytest.mark.parametrize("document", [_markdown(), _sheet()], ids=["one block", "a block for each row"])
def test_a_passage_within_a_table_has_its_header_row(document: Document) -> None:
    found = passages(document, token_spans=words, limit=64)
    rows = [one for one in found if document.text[one.start : one.end].startswith("| Team ")][1:]
    assert len(rows) > 3
    assert {one.context.split("\n")[-1] for one in rows} == {HEADER}
    assert all(len(words(one.context)) + one.tokens <= 64 for one in found)


def test_the_passage_with_the_header_and_the_text_after_the_table_have_no_other_header() -> None:
    document = _markdown()
    found = passages(document, token_spans=words, limit=64)
    assert HEADER not in found[0].context
    (table,) = tables_of(document)
    assert document.text[table.rows :].startswith(ROWS[0])
    assert table.end == document.text.index("\n\nThe end")


def test_a_passage_of_a_sheet_says_its_cells() -> None:
    document = _sheet()
    found = passages(document, token_spans=words, limit=64)
    assert found[0].section == ("A1:C7",)
    assert found[-1].section[-1].endswith(":C41")
    firsts = [int(one.section[-1].split(":")[0][1:]) for one in found]
    lasts = [int(one.section[-1].split(":")[1][1:]) for one in found]
    assert firsts[1:] == [last + 1 for last in lasts[:-1]]


def test_a_header_row_that_takes_over_a_third_is_left_out() -> None:
    wide = "| " + " | ".join(f"column{n}" for n in range(30)) + " |"
    rule = "|" + "---|" * 30
    text = "\n".join([wide, rule, *["| " + " | ".join(["7"] * 30) + " |"] * 4])
    found = passages(parse(text.encode(), "a.md"), token_spans=words, limit=64)
    assert not any("column1" in one.context for one in found)


def test_rows_without_a_header_have_none() -> None:
    text = "\n".join(ROWS)
    assert tables_of(Document(text, "", "", (Block("table", 0, len(text)),))) == []
    assert tables_of(parse(b"[[1, 2], [3, 4]]", "a.json")) == []


@pytest.mark.parametrize("context", ["", "Title > Heading", f"Title\n{HEADER}", f"\n{HEADER}"])
def test_the_header_comes_back_from_what_is_stored(context: str) -> None:
    assert header_in(body(context, "text\n\nmore"), len("text\n\nmore")) == context.partition("\n")[2]


def test_looking_for_a_header_takes_linear_time() -> None:
    text = "|" * 300_000 + "\n" + "-" * 300_000 + "x"
    assert tables_of(Document(text, "", "", (Block("table", 0, len(text)),))) == []


@pytest.mark.parametrize(
    ("mark", "first", "name"),
    [
        ("  ", "- Cups:\n\n", "a.md"),
        ("> ", "", "a.md"),
        ("> ", "> [!note] Cups\n", "a.md"),
        ("", "* Cups\n", "a.org"),
    ],
    ids=["list", "quotation", "callout", "org"],
)
def test_a_table_within_a_block_keeps_its_header_row(mark: str, first: str, name: str) -> None:
    rule = "|---+---+---|" if name == "a.org" else RULE
    text = first + "\n".join(f"{mark}{line}" for line in (HEADER, rule, *ROWS))
    document = parse(f"{text}\n\nThe end of it.".encode(), name)
    cut = passages(document, token_spans=words, limit=64)
    within = [passage for passage in cut if passage.start > document.text.index("City 0")]
    assert len(within) > 3
    assert {passage.context.split("\n")[-1] for passage in within[:-1]} == {HEADER}


SPANNED = """<table><tr><td rowspan=2>Zone</td><td colspan=2>Sales</td><td colspan=2>Costs</td></tr>
<tr><td>2022</td><td>2023</td><td>2022</td><td>2023</td></tr>
<tr><td rowspan=2>North</td><td colspan=2 rowspan=2>closed</td><td>3</td><td>4</td></tr>
<tr><td>5</td><td>6</td></tr></table>"""
MERGED = "".join(f"<s:mergeCell ref='{cells}'/>" for cells in ("A1:A2", "A3:A4", "B3:C4"))
MERGED_ROWS = ("Zone|Sales||Costs|", "|2022|2023|2022|2023", "North|closed||3|4", "|||5|6")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (SPANNED.encode(), "a.html"),
        (workbook(sheet(*MERGED_ROWS, more=f"<s:mergeCells>{MERGED}</s:mergeCells>")), "a.xlsx"),
        (
            workbook(sheet("|Sales||Costs|", "Zone|2022|2023|2022|2023", "N|0|0|1|2", "North|closed||5|6")),
            "b.xlsx",
        ),
    ],
)
def test_columns_are_called_by_their_groups_too_and_stay_below_them(data: bytes, name: str) -> None:
    document = parse(data, name)
    (table,) = tables_of(document)
    assert table.header == "| Zone | Sales 2022 | Sales 2023 | Costs 2022 | Costs 2023 |"
    last = document.text.split("\n")[-1]
    assert [cell.strip() for cell in last.split("|")[1:-1]] == ["North", "closed", "", "5", "6"]


def test_a_first_row_below_a_header_with_a_blank_is_no_second_header() -> None:
    (table,) = tables_of(parse(b"| Name | | Notes |\n|--|--|--|\n| Ann | Smith | x |\n", "a.md"))
    assert table.header == "| Name | | Notes |"


def test_a_header_row_with_a_colon_begins_a_table_and_no_record() -> None:
    text = "Size: mm | Weight: g\n---|---\n" + "\n".join(f"{number} | 1" for number in range(9))
    (table,) = tables_of(parse(text.encode(), "a.md"))
    assert (table.header, table.is_record) == ("Size: mm | Weight: g", False)
    assert text[table.rows :].startswith("0 | 1")


@pytest.mark.parametrize("article", ["Bolt M6", "Bolt | M6"])
def test_a_part_of_a_long_record_has_the_records_first_line(article: str) -> None:
    notes = " ".join(f"Check {number} was passed." for number in range(40))
    document = parse(f"Article,Price,Notes\n{article},0.12,{notes}\nNut M6,0.10,Small.\n".encode(), "a.csv")
    found = passages(document, token_spans=words, limit=64)
    within = [one for one in found if document.text[one.start :].startswith("Check ")]
    assert len(within) > 1
    assert {one.context.split("\n")[-1] for one in within} == {f"Article: {article}"}
    assert "Article" not in found[0].context
    assert document.text[found[-1].start : found[-1].end].endswith(
        "Article: Nut M6\nPrice: 0.10\nNotes: Small."
    )
