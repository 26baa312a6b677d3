"""Where texts are split: tables with their header rows, languages that the embedder doesn't know."""

from __future__ import annotations

import re
import time

import pytest

from rag.corpus import Block, Chunking, Document, Passage
from rag.errors import ParseError
from rag.ingest import chunk
from rag.ingest.chunk import passages
from rag.ingest.document_languages import foreign_parts, is_within, words_in
from rag.ingest.parse.parsers import parse
from rag.ingest.split_text import Measure, Reading, tables_of, within
from rag.models.text_encoder import BUILTIN_MODEL, Tokens
from rag.store.read.schema import header_in
from rag.store.write.table_rows import body
from rag.text.table_heads import pipe_row
from tests.ingest.parse.document_shape import word_spans
from tests.ingest.parse.packages import sheet, workbook

# A part of a table is read with the table's header row, wherever the table is cut.

HEADER = "| Team | City | Wins |"
RULE = "|---|---|---|"
ROWS = [f"| Team {n} | City {n} | {n} |" for n in range(40)]


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
    cuts = passages(document, token_spans=word_spans, limit=64)
    rows = [passage for passage in cuts if document.text[passage.start : passage.end].startswith("| Team ")][
        1:
    ]
    assert len(rows) > 3
    assert {passage.context.split("\n")[-1] for passage in rows} == {HEADER}
    assert all(len(word_spans(passage.context)) + passage.tokens <= 64 for passage in cuts)


def test_the_passage_with_the_header_and_the_text_after_the_table_have_no_other_header() -> None:
    document = _markdown()
    cuts = passages(document, token_spans=word_spans, limit=64)
    assert HEADER not in cuts[0].context
    (table,) = tables_of(document)
    assert document.text[table.rows :].startswith(ROWS[0])
    assert table.end == document.text.index("\n\nThe end")


STATEMENT = "Consolidated statements of income"
UNIT = "(in millions, except per share data)"


@pytest.mark.parametrize(
    ("above", "caption"),
    [
        (f"{STATEMENT}\n\n{UNIT}", f"{STATEMENT} {UNIT}"),
        (f"Sales grew. We are glad.\n\n{STATEMENT}", STATEMENT),
        ("Sales grew. The table below has them (in millions):", "The table below has them (in millions):"),
        ("Sales grew, as the table below shows.", ""),
        ("Table 1. Sales of 2022.", "Table 1. Sales of 2022."),
        (f"{STATEMENT}\n\nSales grew.", ""),
        ("A line that goes on and on " * 9, ""),
        ("- Item", ""),
    ],
    ids=[
        "name and unit",
        "below text",
        "ends in a colon",
        "text",
        "numbered",
        "not right above",
        "too long",
        "list",
    ],
)
def test_a_passage_within_a_table_has_what_stands_right_above_the_table(above: str, caption: str) -> None:
    text = "\n".join(["# Report", "", above, "", HEADER, RULE, *ROWS, "", "The end of it."])
    document = parse(text.encode(), "a.md")
    cut = passages(document, token_spans=word_spans, limit=64)
    within = [passage for passage in cut if passage.start > document.text.index("City 0")][:-1]
    assert len(within) > 3
    assert {passage.context.partition("\n")[2] for passage in within} == {f"{caption} {HEADER}".strip()}
    assert all(len(word_spans(passage.context)) + passage.tokens <= 64 for passage in cut)
    assert {header_in(body(passage.context, "text"), 4) for passage in within} == {
        passage.context.partition("\n")[2] for passage in within
    }


def test_a_caption_stays_with_the_first_row_of_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk, "MIN_TOKENS", 0)
    prose = "It was a year of many sales in all parts of the country and abroad, and nobody complained. " * 3
    text = "\n".join([prose, "", STATEMENT, "", UNIT, "", HEADER, RULE, *ROWS])
    document = parse(text.encode(), "a.md")
    cut = passages(document, token_spans=word_spans, limit=64)
    (captioned,) = [passage for passage in cut if document.text.startswith(STATEMENT, passage.start)]
    assert ROWS[0] in document.text[captioned.start : captioned.end]


def _contexts(document: Document, row: str, *, limit: int = 64) -> set[str]:
    """What heads the passages that begin with such a row."""
    cut = passages(document, token_spans=word_spans, limit=limit)
    return {
        passage.context.partition("\n")[2]
        for passage in cut
        if re.match(row, document.text[passage.start : passage.end])
    }


PERIODS = ("January to June 2023", "January to June 2022")
ZONES = [f"Zone {number}|{number * 7}|{number * 9}|{number * 11}" for number in range(30)]


@pytest.mark.parametrize(
    "above",
    [
        ("In CHF|||{}", "Zone|Sales|Profit|Costs"),
        ("In CHF|||{}", "", "Zone|Sales|Profit|Costs"),
        ("In CHF {}", "Zone|Sales|Profit|Costs"),
        ("|In CHF {}", "", "Zone|Sales|Profit|Costs"),
    ],
    ids=["row of two cells", "before a blank row", "cell", "cell on the right"],
)
def test_a_row_above_the_header_row_of_a_sheet_is_a_caption(above: tuple[str, ...]) -> None:
    rows = [row for period in PERIODS for row in (*(line.format(period) for line in above), *ZONES, "", "")]
    document = parse(workbook(sheet(*rows)), "a.xlsx")
    header = "| Zone | Sales | Profit | Costs |"
    assert _contexts(document, r"\| Zone \d") == {f"In CHF {period} {header}" for period in PERIODS}
    cut = passages(document, token_spans=word_spans, limit=64)
    assert not [
        passage for passage in cut if document.text[: passage.end].endswith((*PERIODS, f"{PERIODS[1]} |"))
    ]


def test_rows_without_a_header_have_the_caption_above_them() -> None:
    rows = [row for period in PERIODS for row in (period, *ZONES, "", "")]
    document = parse(workbook(sheet(*rows)), "a.xlsx")
    assert _contexts(document, r"\| Zone \d") == {*PERIODS}
    as_rows = passages(document, token_spans=word_spans, limit=64, chunking=Chunking(strategy="row"))
    assert len(as_rows) < len(ZONES)  # nothing says that each of them can be read alone


def test_records_have_the_caption_above_the_first_of_them() -> None:
    table = "\n".join(["Zone,Sales,Profit,Costs", *(row.replace("|", ",") for row in ZONES)])
    document = parse(f"Results\n{PERIODS[0]}\n{table}\n".encode(), "a.csv")
    assert _contexts(document, r"Zone: Zone [1-9]") == {f"Results {PERIODS[0]}"}


def test_a_first_row_of_one_cell_is_a_caption() -> None:
    cells = "".join(f"<tr><td>{row.replace('|', '<td>')}" for row in ["Zone|Sales|Profit|Costs", *ZONES])
    page = "".join(f"<table><tr><th colspan=4>{period}{cells}</table>" for period in PERIODS)
    header = "| Zone | Sales | Profit | Costs |"
    contexts = _contexts(parse(page.encode(), "a.html"), r"\| Zone \d")
    assert contexts == {f"{period} {header}" for period in PERIODS}
    words_only = parse(b"| Likes | | |\n|--|--|--|\n| Tea | Milk | Jam |\n| Pie | Ham | Egg |\n", "a.md")
    assert [table.header for table in tables_of(words_only)] == ["| Likes | | |"]


@pytest.mark.parametrize(
    ("first", "captions"),
    [
        ("# Zones", ["Table 1: {}", "Table 2: {}"]),
        ("Zones of the group", ["Table 1. All zones in {}.", "Table 2. All zones in {}."]),
        ("# Zones", ["{}", "{}"]),
    ],
    ids=["numbered", "below a line", "alike"],
)
def test_captions_can_stand_below_their_tables(first: str, captions: list[str]) -> None:
    lines = [caption.format(period) for caption, period in zip(captions, PERIODS, strict=True)]
    table = "\n".join([HEADER, RULE, *ROWS])
    document = parse("\n\n".join([first, table, lines[0], table, lines[1]]).encode(), "a.md")
    assert [table.captions[-1] for table in tables_of(document)] == lines
    cut = passages(document, token_spans=word_spans, limit=64)
    for line in lines:  # the last row is there, too, and nothing of the next table
        (holder,) = [passage for passage in cut if line in document.text[passage.start : passage.end]]
        assert document.text[holder.start : holder.end].endswith(f"{ROWS[-1]}\n\n{line}")


@pytest.mark.parametrize(
    ("parts", "captions"),
    [
        (["A", "{}", "B", "{}", "Source: us"], [("A",), ("B",)]),
        (["{}", "Source: us", "B", "{}", "Source: us"], [("Source: us",), ("B", "Source: us")]),
        (["{}", "B", "{}"], [(), ("B",)]),
        (["{}", "Sales of 2022"], [()]),
        (["{}", "Table 1: Sales"], [("Table 1: Sales",)]),
    ],
)
def test_a_line_between_tables_is_the_caption_of_the_one_below_unless_all_have_theirs_below(
    parts: list[str], captions: list[tuple[str, ...]]
) -> None:
    table = "\n".join([HEADER, RULE, *ROWS[:2]])
    text = "\n\n".join(["# Zones", *(part.format(table) for part in parts), "This is the end."])
    assert [table.captions for table in tables_of(parse(text.encode(), "a.md"))] == captions


def test_the_outermost_line_of_a_long_caption_is_left_out_first() -> None:
    text = "\n".join(["The results of all " * 4, "", STATEMENT, "", HEADER, RULE, *ROWS])
    assert _contexts(parse(text.encode(), "a.md"), r"\| Team [1-9]") == {f"{STATEMENT} {HEADER}"}


def test_a_caption_that_leaves_no_room_is_left_out_before_the_header() -> None:
    text = "\n".join(["A long name of a table " * 6, "", HEADER, RULE, *ROWS])
    cut = passages(parse(text.encode(), "a.md"), token_spans=word_spans, limit=64)
    assert {passage.context.partition("\n")[2] for passage in cut[2:]} == {HEADER}


def test_a_passage_of_a_sheet_says_its_cells() -> None:
    document = _sheet()
    cuts = passages(document, token_spans=word_spans, limit=64)
    assert cuts[0].section == ("A1:C7",)
    assert cuts[-1].section[-1].endswith(":C41")
    firsts = [int(passage.section[-1].split(":")[0][1:]) for passage in cuts]
    lasts = [int(passage.section[-1].split(":")[1][1:]) for passage in cuts]
    assert firsts[1:] == [last + 1 for last in lasts[:-1]]


def test_a_header_row_that_takes_over_a_third_is_left_out() -> None:
    wide = "| " + " | ".join(f"column{n}" for n in range(30)) + " |"
    rule = "|" + "---|" * 30
    text = "\n".join([wide, rule, *["| " + " | ".join(["7"] * 30) + " |"] * 4])
    cuts = passages(parse(text.encode(), "a.md"), token_spans=word_spans, limit=64)
    assert not any("column1" in passage.context for passage in cuts)


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
    cut = passages(document, token_spans=word_spans, limit=64)
    within = [passage for passage in cut if passage.start > document.text.index("City 0")]
    assert len(within) > 3
    assert {passage.context.split("\n")[-1] for passage in within[:-1]} == {HEADER}


SPANNED = """<table><tr><td rowspan=2>Zone</td><td colspan=2>Sales</td><td colspan=2>Costs</td></tr>
<tr><td>2022</td><td>2023</td><td>2022</td><td>2023</td></tr>
<tr><td rowspan=2>North</td><td colspan=2 rowspan=2>closed</td><td>3</td><td>4</td></tr>
<tr><td>5</td><td>6</td></tr></table>"""
MERGED = "".join(f"<s:mergeCell ref='{cells}'/>" for cells in ("A1:A2", "B1:C1", "D1:E1", "A3:A4", "B3:C4"))
MERGED_ROWS = ("Zone|Sales||Costs|", "|2022|2023|2022|2023", "North|closed||3|4", "|||5|6")


@pytest.mark.parametrize(
    ("data", "name", "last"),
    [
        (SPANNED.encode(), "a.html", "North|closed|closed|5|6"),
        (
            workbook(sheet(*MERGED_ROWS, more=f"<s:mergeCells>{MERGED}</s:mergeCells>")),
            "a.xlsx",
            "North|closed|closed|5|6",
        ),
        (
            workbook(sheet("|Sales||Costs|", "Zone|2022|2023|2022|2023", "N|0|0|1|2", "North|closed||5|6")),
            "b.xlsx",
            "North|closed||5|6",
        ),
    ],
)
def test_columns_are_called_by_their_groups_too_and_stay_below_them(
    data: bytes, name: str, last: str
) -> None:
    document = parse(data, name)
    (table,) = tables_of(document)
    assert table.header == "| Zone | Sales 2022 | Sales 2023 | Costs 2022 | Costs 2023 |"
    assert document.text.split("\n")[-1] == pipe_row(last.split("|"))


LEVELS = ("Zone|2022||||2023", "Zone|Shops||Web||Shops||Web", "Zone|Plan|Real|Plan|Real|Plan|Real|Plan|Real")
FIGURES = ("North|1|2|3|4|5|6|7|8", "South|2|3|4|5|6|7|8|9", "West|3|4|5|6|7|8|9|10")
OVER = "".join(
    f"<s:mergeCell ref='{cells}'/>" for cells in ("B1:E1", "F1:I1", "B2:C2", "D2:E2", "F2:G2", "H2:I2")
)
THREE_HIGH = (
    "<table><tr><td rowspan=3>Zone<td colspan=4>2022<td colspan=4>2023"
    f"<tr>{'<td colspan=2>Shops<td colspan=2>Web' * 2}<tr>{'<td>Plan<td>Real' * 4}"
    f"{''.join('<tr><td>' + row.replace('|', '<td>') for row in FIGURES)}</table>"
)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (THREE_HIGH.encode(), "a.html"),
        (
            workbook(
                sheet(
                    *LEVELS, *FIGURES, more=f"<s:mergeCells>{OVER}<s:mergeCell ref='A1:A3'/></s:mergeCells>"
                )
            ),
            "corner.xlsx",
        ),
        (
            workbook(
                sheet(
                    *(row.removeprefix("Zone") for row in LEVELS[:2]),
                    LEVELS[2],
                    *FIGURES,
                    more=f"<s:mergeCells>{OVER}</s:mergeCells>",
                )
            ),
            "merged.xlsx",
        ),
        (
            workbook(sheet(*(row.removeprefix("Zone") for row in LEVELS[:2]), LEVELS[2], *FIGURES)),
            "plain.xlsx",
        ),
    ],
)
def test_columns_are_called_by_three_levels_of_names(data: bytes, name: str) -> None:
    names = [
        f"{year} {where} {what}"
        for year in (2022, 2023)
        for where in ("Shops", "Web")
        for what in ("Plan", "Real")
    ]
    assert tables_of(parse(data, name))[-1].header == pipe_row(["Zone", *names])


def test_a_first_row_below_a_header_with_a_blank_is_no_second_header() -> None:
    (table,) = tables_of(parse(b"| Name | | Notes |\n|--|--|--|\n| Ann | Smith | x |\n", "a.md"))
    assert table.header == "| Name | | Notes |"


@pytest.mark.usefixtures("in_linear_time")
def test_a_line_of_blanks_below_a_stroke_is_looked_at_once() -> None:
    text = "| a |\n" + " " * 120_000 + "x"
    assert tables_of(Document(text, "T", "text/plain", (Block("table", 0, len(text)),))) == []


def test_a_header_row_with_a_colon_begins_a_table_and_no_record() -> None:
    text = "Size: mm | Weight: g\n---|---\n" + "\n".join(f"{number} | 1" for number in range(9))
    (table,) = tables_of(parse(text.encode(), "a.md"))
    assert (table.header, table.is_record) == ("Size: mm | Weight: g", False)
    assert text[table.rows :].startswith("0 | 1")


@pytest.mark.parametrize("article", ["Bolt M6", "Bolt | M6"])
def test_a_part_of_a_long_record_has_the_records_first_line(article: str) -> None:
    notes = " ".join(f"Check {number} was passed." for number in range(40))
    document = parse(f"Article,Price,Notes\n{article},0.12,{notes}\nNut M6,0.10,Small.\n".encode(), "a.csv")
    cuts = passages(document, token_spans=word_spans, limit=64)
    within = [passage for passage in cuts if document.text[passage.start :].startswith("Check ")]
    assert len(within) > 1
    assert {passage.context.split("\n")[-1] for passage in within} == {f"Article: {article}"}
    assert "Article" not in cuts[0].context
    assert document.text[cuts[-1].start : cuts[-1].end].endswith(
        "Article: Nut M6\nPrice: 0.10\nNotes: Small."
    )


# Chunks of languages that the embedder doesn't know: as large as a reader needs them.

SPANS = Tokens(BUILTIN_MODEL / "tokenizer.json").spans
LIMIT = 254  # tokens, as by default
ENGLISH = "The keeper of the lighthouse counts the ships that pass in the night and writes them down. "
TRANSLATED = {
    "Russian": "Смотритель маяка считает корабли, проходящие ночью, и записывает их в свою книгу. ",
    "Greek": "Ο φύλακας του φάρου μετρά τα πλοία που περνούν τη νύχτα και τα καταγράφει. ",
    "Arabic": "يحصي حارس المنارة السفن التي تمر في الليل ويسجلها في دفتره الكبير كل مساء. ",
    "Hindi": "प्रकाशस्तंभ का रखवाला रात में गुजरने वाले जहाजों को गिनता है और उन्हें लिखता है। ",
}


def ascii_share(text: str) -> float:
    """As an English model: the share of characters that are ASCII."""
    return sum(map(str.isascii, text)) / len(text)


def document(text: str) -> Document:
    return parse(text.encode(), "a.md")


def cut(text: str, limit: int = LIMIT, slack: int = 0) -> list[Passage]:
    parsed = document(text)
    reading = Reading(foreign_parts(parsed, ascii_share), slack)
    return passages(parsed, token_spans=SPANS, limit=limit, reading=reading)


def average(cuts: list[Passage]) -> float:
    return sum(passage.end - passage.start for passage in cuts) / len(cuts)


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_passage_has_as_much_text_in_any_language(language: str) -> None:
    """Without that, it would have 250 to 450 characters, as many as the English model has tokens for."""
    text = TRANSLATED[language] * 60
    by_tokens = passages(document(text), token_spans=SPANS, limit=LIMIT)
    assert average(cut(text)) > 0.6 * average(cut(ENGLISH * 60))
    assert average(by_tokens) < 0.5 * average(cut(ENGLISH * 60))


def test_a_text_in_english_is_cut_as_before() -> None:
    text = "# Light\n\n" + ENGLISH * 30 + "\n\nA naïve café on the quay. " + ENGLISH * 30
    assert cut(text) == passages(document(text), token_spans=SPANS, limit=LIMIT)


def test_a_chapter_in_another_language_has_passages_of_its_size_and_the_others_fit_the_window() -> None:
    text = (
        f"# Manual\n\n{ENGLISH * 20}\n\n# Глава\n\n{TRANSLATED['Russian'] * 20}\n\n# Index\n\n{ENGLISH * 20}"
    )
    parsed, cuts = document(text), cut(text)
    foreign = foreign_parts(parsed, ascii_share)
    english = [passage for passage in cuts if not is_within(foreign, (passage.start, passage.end))]
    russian = [passage for passage in cuts if passage not in english]
    assert [passage.section for passage in russian] == [("Глава",)] * len(russian)
    assert max(passage.tokens for passage in english) <= LIMIT < max(passage.tokens for passage in russian)


def test_a_passage_in_both_languages_fits_the_window() -> None:
    text = "\n\n".join([ENGLISH * 2, TRANSLATED["Russian"] * 2] * 6)
    foreign = foreign_parts(document(text), ascii_share)
    mixed = [passage for passage in cut(text) if not is_within(foreign, (passage.start, passage.end))]
    assert mixed
    assert max(passage.tokens for passage in mixed) <= LIMIT


def test_a_model_that_knows_the_language_reads_all_of_its_passages() -> None:
    text = TRANSLATED["Russian"] * 60
    cuts = passages(document(text), token_spans=SPANS, limit=128, reading=Reading((), slack=384))
    assert 256 < max(passage.tokens for passage in cuts) <= 512
    assert average(cuts) > average(passages(document(text), token_spans=SPANS, limit=128))


def test_a_long_run_without_spaces_is_not_one_token() -> None:
    """The tokenizer takes a sentence in Thai for a single unknown token."""
    text = "ผู้ดูแลประภาคารนับเรือที่แล่นผ่านในเวลากลางคืนและจดบันทึกไว้ในสมุด" * 30
    assert max(passage.end - passage.start for passage in cut(text)) <= 4 * LIMIT


def test_code_counts_as_before_and_few_words_are_like_their_neighbours() -> None:
    code = "```\n" + "величина = посчитай_корабли()\n" * 20 + "```"
    text = f"{TRANSLATED['Russian'] * 4}\n\n{code}\n\nOK.\n\n{TRANSLATED['Russian'] * 4}"
    first, second = foreign_parts(document(text), ascii_share)
    assert text[first.end :].strip().startswith("```")
    assert text[second.start :].startswith("OK.")


def test_words_are_told_from_numbers_names_and_addresses() -> None:
    assert words_in("Restart nginx_2 (see https://a.b): теперь 5 раз") == "Restart (see теперь раз"


def test_hostile_words_are_measured_in_linear_time() -> None:
    text = "я" * 90_000 + " " + "x" * 90_000 + "я"
    measure = Measure(text, SPANS, Reading())
    assert measure.units(0, 90_000) == 90_000 // 4


# The limit on cutting.


def test_only_time_in_which_a_text_is_cut_counts() -> None:
    spans = within(0.05, lambda text: [(0, len(text))])
    time.sleep(0.2)
    assert spans("word") == [(0, 4)]
    began = time.thread_time()
    while time.thread_time() - began < 0.06:
        pass
    with pytest.raises(ParseError, match="takes too long to be cut"):
        spans("word")
