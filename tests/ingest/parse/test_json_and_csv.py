"""Tables in CSV, and data in JSON."""

from __future__ import annotations

import json

import pytest

from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.json_and_csv import NO_HEADER
from rag.ingest.parse.parsers import parse
from rag.ingest.prepare import with_stated_metadata
from tests.ingest.parse.conftest import Shape


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
    assert shape("a,,a\n1,2,3,4", "a.csv") == [("table", "a: 1\ncolumn 2: 2\na 2: 3\ncolumn 4: 4")]
    assert shape("t,y,y\n1,2,\n2,,3", "a.csv") == [("table", "t: 1\ny: 2"), ("table", "t: 2\ny 2: 3")]


def test_columns_of_a_group_stay_apart(shape: Shape) -> None:
    rows = "Name,Desk,Town,Team,Gain,Gain\nAnn,d,e,f,,w\nBob,d,e,f,x,"
    records = shape(f",,,,Pay,Pay\n{rows}", "a.csv")
    assert [text.rpartition("\n")[2] for _, text in records] == ["Pay Gain 2: w", "Pay Gain: x"]


def test_words_in_columns_of_one_name_are_its_values(shape: Shape) -> None:
    comment = "Could reproduce it with the nightly build of the second of June."
    rows = f"Issue key,Label,Label,Label,Note,Note,By\nA-1,web,,api,{comment},{comment},Ann\nA-2,,,,x,y,Bob"
    assert shape(rows, "a.csv") == [
        ("table", f"Issue key: A-1\nLabel: web, api\nNote 1: {comment}\nNote 2: {comment}\nBy: Ann"),
        ("table", "Issue key: A-2\nNote: x, y\nBy: Bob"),
    ]


ARTICLE_ROWS = "Schraube M6;0,12;4000\nMutter M6;0,08;3500"
ARTICLES = [
    ("table", "Artikel: Schraube M6\nPreis: 0,12\nLager: 4000"),
    ("table", "Artikel: Mutter M6\nPreis: 0,08\nLager: 3500"),
]


@pytest.mark.parametrize(
    ("above", "caption"),
    [
        ("sep=;\n", ""),
        ('"sep=;"\n', ""),
        ("\n\n;;\n", ""),
        ("Preisliste 2024\n\n", "Preisliste 2024"),
        ("Preisliste 2024;;\n;;\n", "Preisliste 2024"),
        ("# exported on 1 May; by Ann\n", "# exported on 1 May; by Ann"),
        ("sep=;\nPreise; netto\n", "Preise; netto"),
        ('"Preise";"netto"\n', "Preise netto"),
    ],
)
def test_what_stands_above_the_header_names_no_column(above: str, caption: str, shape: Shape) -> None:
    captions = [("paragraph", caption)] if caption else []
    assert shape(f"{above}Artikel;Preis;Lager\n{ARTICLE_ROWS}", "a.csv") == captions + ARTICLES


@pytest.mark.parametrize(
    "above",
    [
        "Instrument,Keithley 2400\nDate,2024-05-14",
        "Sample:,S7\nRate:,5 mm/min",
        "Report: tensile test, sample 7",
        "Model,DPO2014,\nRecord Length,200,",
        "[Header]\nFILEOPENTIME,5/14/2024\n[Data]",
        "Instrument,Keithley\nNotes,a,b,c,d\n",
    ],
)
@pytest.mark.parametrize("columns", ["Time (s),CH1", "Time (s),CH1,Sample", "Time (s),CH1,Force (N),CH4,OK"])
def test_the_row_above_figures_names_them_below_any_lines_of_an_instrument(
    above: str, columns: str, shape: Shape
) -> None:
    names = columns.split(",")
    values = [["0.5e-3", "7", "8", "9", "x"][: len(names)] for _ in range(9)]
    if names[-1] == "Sample":
        values = [[*row[:2], "S7"] for row in values]
        above = above.removesuffix("\nNotes,a,b,c,d\n")  # has more cells, above words
    rows = "\n".join(map(",".join, values))
    records = ["\n".join(map(": ".join, zip(names, row, strict=True))) for row in values]
    ((kind, lines), *tables) = shape(f"{above}\n{columns}\n{rows}", "a.csv")
    assert (kind, tables) == ("paragraph", [("table", record) for record in records])
    assert lines.split("\n") == [line.rstrip(",") for line in above.split("\n") if line]


@pytest.mark.parametrize(
    ("text", "above", "record"),
    [
        ("# time,force\n1.5,2.5\n2.5,3.5", "", "time: 1.5\nforce: 2.5"),
        ("#time;force\n1,5;2,5\n2,5;3,5", "", "time: 1,5\nforce: 2,5"),
        (
            "# Scan 12, May 14, 2024\n# t\tF\n1\t2\n2\t3\n3\t4",
            "# Scan 12, May 14, 2024",
            "t: 1\nF: 2",
        ),
        (
            "% Model: heat.mph\n% x (m);T (K)\n0;300\n1;310\n2;320",
            "% Model: heat.mph",
            "x (m): 0\nT (K): 300",
        ),
        ("% left,rest\n1.5,2.5\n2.5,3.5", "", "% left: 1.5\nrest: 2.5"),
    ],
)
def test_a_comment_above_figures_names_them_without_its_sign(
    text: str, above: str, record: str, shape: Shape
) -> None:
    blocks = shape(text, "a.csv")
    assert blocks[: 1 + bool(above)] == [*([("paragraph", above)] if above else []), ("table", record)]


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("Time,Force,No.\ns,N,-", "Time (s)|Force (N)|No."),
        ("Time,Stress,Temp\n[s],[N/mm²],(°C)", "Time [s]|Stress [N/mm²]|Temp (°C)"),
        ("Test,Tensile\nOperator,Ann\n\nTime,Work,Flow\nms,kN m,m^3/h", "Time (ms)|Work (kN m)|Flow (m^3/h)"),
        ("Datum:,18.7.2000\nTime,Sensor,2157\nd,kN,mm", "Time (d)|Sensor (kN)|2157 (mm)"),
        ("Zone,Sales,\n,2022 net,2023 net", "Zone|Sales 2022 net|Sales 2023 net"),
        ("Job,Share,Count\n,of Hires,of Offers", "Job|Share of Hires|Count of Offers"),
    ],
)
def test_a_second_row_of_the_header_belongs_to_the_names(head: str, names: str, shape: Shape) -> None:
    rows = "\n".join(f"{number},{number}.5,{number}" for number in range(1, 9))
    record = "\n".join(map(": ".join, zip(names.split("|"), ("1", "1.5", "1"), strict=True)))
    assert ("table", record) in shape(f"{head}\n{rows}", "a.csv")[:2]


@pytest.mark.parametrize(
    "text",
    [
        "Country,Population\nKosovo,n/a\nPeru,5\nMali,6\nChad,7",
        "Key,Value\na,b\nc,3\nd,4\ne,5\nf,6",
        "Class,Grade\nA,B\nC,D",
        "Name,City,\nAnn,Rome,x\nBob,Bern,y",
    ],
)
def test_a_first_record_of_words_is_no_header(text: str, shape: Shape) -> None:
    header, first, *_ = (row.split(",") for row in text.split("\n"))
    names = (name or "column 3" for name in header)
    assert shape(text, "a.csv")[0] == ("table", "\n".join(map(": ".join, zip(names, first, strict=True))))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2025-01-02;Rent;-850.00", "2025-01-03;Salary;3000.00"),
        ("pear;2,20", "fig;3,50"),
        ("3. Mai 2024;a", "4. Mai 2024;b"),
    ],
)
def test_a_table_without_a_header_keeps_its_first_record(first: str, second: str) -> None:
    document = parse(f"{first}\n{second}".encode(), "a.csv")
    rows = [
        "\n".join(f"column {number}: {cell}" for number, cell in enumerate(row.split(";"), 1))
        for row in (first, second)
    ]
    assert (document.text, document.remarks) == ("\n\n".join(rows), (NO_HEADER,))


@pytest.mark.parametrize(
    "header", ["Land,2019,2020", "Land,2024-01-01,2024-02-01", "Land,1.0,2.0", "Land,1,2", "Land,Anteil,+1"]
)
def test_years_days_and_numbers_can_name_columns(header: str) -> None:
    document = parse(f"{header}\nPeru,1.50,2.50\nChile,3.75,x".encode(), "a.csv")
    assert document.text.startswith("Land: Peru\n")
    assert document.remarks == ()


@pytest.mark.parametrize("content", ["#,Name\n1,Bolt", "#\tName\n1\tBolt"])
def test_a_header_may_begin_with_a_number_sign(content: str, shape: Shape) -> None:
    assert shape(content, "a.csv") == [("table", "#: 1\nName: Bolt")]


def test_a_delimiter_is_what_cuts_all_rows_alike(shape: Shape) -> None:
    assert shape("name, born; note\nAda; x, y, z\nBob; u", "a.csv") == [
        ("table", "name, born: Ada\nnote: x, y, z"),
        ("table", "name, born: Bob\nnote: u"),
    ]
    assert shape('"a|b", "c\nd"\n"1|2", "3, 4"', "a.csv") == [("table", "a|b: 1|2\nc d: 3, 4")]


@pytest.mark.parametrize("sign", [";", "\t"])
def test_a_comma_within_the_names_of_a_table_with_another_delimiter_cuts_nothing(
    sign: str, shape: Shape
) -> None:
    """As in tables of the German statistical offices."""
    table = "Key;Town;2021;Share\n1;Kiel, Stadt;24;5\n2;Plön, Kreis;13;2".replace(";", sign)
    content = f"Towns, 31 December\nAll\n{table}\nBerlin, 2024\n"
    assert shape(content, "a.csv")[1] == ("table", "Key: 1\nTown: Kiel, Stadt\n2021: 24\nShare: 5")


@pytest.mark.parametrize(
    ("below", "notes"),
    [
        (
            'Footnotes:\n"1","Figures are rounded, so sums differ."',
            "Footnotes:\n1 Figures are rounded, so sums differ.",
        ),
        ("____,,\nx too few cases,,\n(C) Office,,", "____\nx too few cases\n(C) Office"),
        ("Source: Office,,", "Source: Office"),
        ("South", "South"),
    ],
)
def test_notes_below_a_table_stand_below_it(below: str, notes: str, shape: Shape) -> None:
    text = f"Zone,2021,2022\n(North),1,2\n\n{below}\n"
    assert shape(text, "a.csv") == [("table", "Zone: (North)\n2021: 1\n2022: 2"), ("paragraph", notes)]


@pytest.mark.parametrize("last", ["South,,", "South,3", "(South),,\nWest,1,2"])
def test_a_record_with_a_name_alone_is_no_note(last: str, shape: Shape) -> None:
    blocks = shape(f"Zone,2021,2022\nNorth,1,2\n{last}\n", "a.csv")
    assert {kind for kind, _ in blocks} == {"table"}


def test_a_table_of_one_column_has_a_header(shape: Shape) -> None:
    assert shape("Name\nAnn\nBob", "a.csv") == [("table", "Name: Ann"), ("table", "Name: Bob")]


def test_a_cell_without_end_is_refused_with_its_line() -> None:
    with pytest.raises(ParseError, match=r"^line 2: field larger"):
        parse(b'a,b\n"' + b"x" * 200_000, "a.csv")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a,b\n", "a,b"),
        ('"Balance";"1.234,00"\n', "Balance 1.234,00"),
        ("One sentence", "One sentence"),
        ("Bookings of March\n;;\nDay;Text;Amount\n", "Bookings of March\nDay;Text;Amount"),
    ],
)
def test_rows_without_records_below_are_a_text(content: str, text: str, shape: Shape) -> None:
    assert shape(content, "a.csv") == [("paragraph", text)]


@pytest.mark.parametrize("content", [";;;\n;;\n", '"",""\n', "\n", "\x0c"])
def test_a_table_without_a_word_is_empty(content: str) -> None:
    with pytest.raises(EmptyFileError):
        parse(content.encode(), "a.csv")


SPANISH = "Movimientos de la cuenta;ES91 2100\nSaldo;2.104,55\n"
POSTBANK = """\
Umsätze;
Konto;Filialnummer;Unterkonto;IBAN;Währung
1234567;100;00;DE44;EUR
Letzter Kontostand;;;;2.104,55;EUR
"""
COMDIRECT = '"Umsätze";"Zeitraum: 01.03.2026 - 31.03.2026";\n"Neuer Kontostand";"2.104,55 EUR";\n\n'


@pytest.mark.parametrize("bookings", [1, 2, 3, 9])
@pytest.mark.parametrize(
    ("above", "names", "booking", "below"),
    [
        (SPANISH, "Fecha;Concepto;Importe;Saldo", "27/03/2026;Fontanero;-348,67;2.104,55", ""),
        (
            POSTBANK,
            "Buchungstag;Wert;Art;Empfänger;Zweck;IBAN;Soll;Haben;Währung",
            "27.3.2026;27.3.2026;SEPA;Huber;RG 2026-118;DE893;-348,67;;EUR",
            "Kontostand;31.3.2026;;;2.104,55;EUR",
        ),
        (
            COMDIRECT,
            '"Buchungstag";"Valuta";"Vorgang";"Buchungstext";"Umsatz in EUR";',
            '"27.03.2026";"27.03.2026";"Übertrag";"An: Müller, Anna";"-348,67";',
            '"Alter Kontostand";"2.453,22 EUR";',
        ),
        ("Konto\tDE1\nSaldo\t1,50\n", "Datum\tText\tBetrag", "27.03.2026\tRente, März\t-12,50", ""),
        ("Account:,Current\nBalance:,£9.00\n", "Date,Type,Amount", "27 Mar 2026,Visa,-12.50", ""),
        ("Club;TSV\nMembers;1\nYear;2026\n", "Name;First name;Phone", "Huber;Anna;0731 555", ""),
    ],
)
def test_few_bookings_below_pairs_have_the_names_of_their_columns(
    above: str, names: str, booking: str, below: str, bookings: int, shape: Shape
) -> None:
    delimiter = "\t" if "\t" in names else ";" if ";" in names else ","
    cells = zip(*(row.replace('"', "").split(delimiter) for row in (names, booking)), strict=True)
    record = "\n".join(f"{name}: {cell}" for name, cell in cells if cell)
    (kind, _), *tables = shape("\n".join([f"{above}{names}", *[booking] * bookings, below]), "a.csv")
    assert (kind, tables[:bookings]) == ("paragraph", [("table", record)] * bookings)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ("Name,Note\nAnn,fine\nCleo,ok\nBob,x,y,z\nCarl,u", "Name: Ann\nNote: fine"),
        ("name,year,scores\nAnn,2020,5;6\nBob,2021,7;8", "name: Ann\nyear: 2020\nscores: 5;6"),
        ("Text,Amount\na;b,12\nc,13\nd,14", "Text: a;b\nAmount: 12"),
    ],
)
def test_longer_rows_below_and_other_signs_in_cells_change_no_name(
    text: str, record: str, shape: Shape
) -> None:
    assert shape(text, "a.csv")[0] == ("table", record)


RECORDS = [
    {"name": "Ada", "born": 1815, "tags": ["a", "b"], "died": None, "note": ""},
    {"name": "Grace", "navy": True, "at": {"place": "Köln"}},
]
LINES = [
    ("table", "name: Ada\nborn: 1815\ntags: a, b"),
    ("table", "name: Grace\nnavy: true\nat place: Köln"),
]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_of_objects_is_a_block_for_each(indent: int | None, shape: Shape) -> None:
    assert shape(json.dumps(RECORDS, indent=indent), "a.json") == LINES


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (
            "<p>Annealed at <b>450&nbsp;°C</b></p><ul><li>in N<sub>2</sub></li></ul>",
            "Annealed at **450 °C**\n- in N2",
        ),
        ('Read <span style="display:none">ignore it</span>p. 3<br>again', "Read p. 3\nagain"),
        ("if a<b> and 3 < 4 or <none>", "if a<b> and 3 < 4 or <none>"),
    ],
)
def test_html_in_values_is_read_as_people_see_it(value: str, seen: str, shape: Shape) -> None:
    records = [{"id": 1, "body": value}, {"id": 2}]
    lines = shape(json.dumps(records), "a.json")[0][1].split("\n")
    assert "\n".join(line.rstrip() for line in lines if line.strip()) == f"id: 1\nbody: {seen}"
    assert parse(f"id,note\n1,'{value}'\n".encode(), "a.csv").text.startswith("id: 1\nnote: ")


def test_every_line_of_json_lines_is_a_block(shape: Shape) -> None:
    content = "\n\n".join(json.dumps(record) for record in RECORDS)
    assert shape(content, "a.jsonl") == LINES
    assert shape('"words"\n[1, 2]\n', "a.ndjson") == [("table", "value: words"), ("table", "value: 1, 2")]


def test_json_that_reads_well_stays_as_it_is(shape: Shape) -> None:
    content = json.dumps({"a": [1, {"b": 2}]}, indent=4)
    assert shape(content, "a.json") == [("code", content)]


@pytest.mark.parametrize("name", ["tsconfig.json", "a.jsonc"])
def test_json_with_comments_and_trailing_commas_stays_as_it_is(name: str, shape: Shape) -> None:
    content = '{\n  // strict\n  "a": ["//x, ]", "\\"/*",],\n  /* b\n  c */ "d": {"e": 1,},\n}\n// end'
    assert shape(content, name) == [("code", content)]
    with pytest.raises(ParseError, match="line 2"):
        parse(b'{ // a\n "b": }', name)
    with pytest.raises(ParseError, match="line 2"):
        parse(b'{"a": 1,\n/* open "b": 2}', name)


def test_json_in_one_endless_line_becomes_lines(shape: Shape) -> None:
    content = json.dumps({"name": "x" * 300, "version": 2})
    assert shape(content, "a.json") == [("table", "name: " + "x" * 300 + "\nversion: 2")]


def test_a_bad_line_is_named() -> None:
    with pytest.raises(ParseError, match=r"^line 3: invalid JSON \(Expecting value, column 7\)$"):
        parse(b'{"a": 1}\n\n{"a": }\n', "a.jsonl")


def test_json_that_is_none_is_refused_with_the_place() -> None:
    with pytest.raises(ParseError, match=r"^line 2: invalid JSON"):
        parse(b'{"a":\n oops}', "a.json")


def test_a_feed_is_a_section_for_each_entry(shape: Shape) -> None:
    author = [{"name": "Ann", "url": "https://a.org/ann"}]
    entries = [
        {
            "title": "Tides",
            "date_published": "2024-05-01",
            "content_html": "<h1>High</h1><p>Water &amp; wind.</p>",
        }
        | {"content_html": "<h1>High</h1><p>Water &amp; wind.</p>", "authors": author},
        {"title": "Plain", "content_text": "Plain words."},
    ]
    feed = {"version": "https://jsonfeed.org/version/1.1", "title": "Harbour", "items": entries}
    assert shape(json.dumps(feed), "feed.json") == [
        ("paragraph", "version: https://jsonfeed.org/version/1.1\ntitle: Harbour"),
        ("heading", "## Tides"),
        ("table", "date_published: 2024-05-01\nauthors: Ann (url: https://a.org/ann)"),
        ("paragraph", "content_html:"),
        ("heading", "# High"),
        ("paragraph", "Water & wind."),
        ("heading", "## Plain"),
        ("table", "content_text: Plain words."),
    ]
    assert parse(json.dumps(feed).encode(), "feed.json").title == "Harbour"


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_nesting_at_the_limit_of_the_interpreter_is_a_document_or_a_parse_error(name: str) -> None:
    for depth in range(800, 1000):
        content = '{"a": ' + "[" * depth + "]" * depth + "}"
        try:
            assert parse(content.encode(), name).blocks
        except ParseError as error:
            assert "nested too deeply" in str(error)  # noqa: PT017 either end is fine


def test_a_number_without_end_is_refused() -> None:
    with pytest.raises(ParseError, match="number is too large"):
        parse(b"1" * 5000, "a.json")


def test_half_a_character_and_nul_become_the_replacement_character(shape: Shape) -> None:
    assert shape('{"a": "x\\ud800y\\u0000z"}', "a.jsonl") == [("table", "a: x\ufffdy\ufffdz")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"title": "Clocks", "url": "https://example.org/1", "text": "swings"}'),
        ("a.json", '[{"title": "Clocks", "url": "https://example.org/1"}]'),
        ("a.jsonl", '{"title": "Clocks", "url": "https://example.org/1"}'),
        ("a.json", '{"title": "Clocks", "url": "https://example.org/1", "text": "' + "x " * 300 + '"}'),
    ],
)
def test_a_single_record_tells_its_title_and_where_it_can_be_opened(name: str, text: str) -> None:
    document = with_stated_metadata(parse(text.encode(), name), b"")
    assert (document.title, document.url) == ("Clocks", "https://example.org/1")
    assert "https://example.org/1" in document.text


@pytest.mark.parametrize(
    "text", ['[{"url": "https://a.org"}, {"url": "https://b.org"}]', '{"url": 1}', '["https://a.org"]']
)
def test_several_records_have_no_url_in_common(text: str) -> None:
    assert with_stated_metadata(parse(text.encode(), "a.json"), b"").url is None


@pytest.mark.parametrize(
    ("name", "written", "expected"),
    [
        (
            "a.json",
            r'{"text": "M\u00fcller\n\u041f\u0440\u0438 \ud83d\ude00"}',
            '{"text": "Müller\\nПри 😀"}',
        ),
        ("a.json", r'{"path": "C:\\u00fcben", "q": "\u0022\u200b\ud83d \u003c"}', None),
        (
            "a.yaml",
            'title: "M\\u00fcller"\nplain: [\\u00e4-\\u00fc]',
            'title: "Müller"\nplain: [\\u00e4-\\u00fc]',
        ),
        ("a.json", json.dumps({"text": "и" * 100}), json.dumps({"text": "и" * 100}, ensure_ascii=False)),
        ("a.yaml", r'a: "M\xFCller \\xFC" # \xFC', r'a: "Müller \\xFC" # \xFC'),
        ("a.yaml", 'a: "an\\\n  \\ \\xC4pfel"', 'a: "an\\\n  \\ Äpfel"'),
        ("a.toml", r'name = "Gr\u00fc\u00dfe"', 'name = "Grüße"'),
        ("a.properties", r"hi = Gr\u00fc\u00dfe", "hi = Grüße"),
        ("a.java", r'String hi = "Gr\u00fc\u00dfe";', None),
    ],
)
def test_escaped_letters_are_letters(name: str, written: str, expected: str | None) -> None:
    decoded = written.replace(r"\u003c", "<")
    assert parse(written.encode(), name).text == (decoded if expected is None else expected)


def test_a_title_has_no_escapes() -> None:
    assert parse(b'title: "M\\u00fcller"\n', "a.yaml").title == "Müller"


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("part", ["\\", "\\u", '"', '\\"', "\\ud83d", "\\\\u00fc"])
def test_hostile_escapes_cost_no_more_than_their_length(part: str) -> None:
    parse((part * 20_000 + "\nx: 1").encode(), "a.yaml")
    parse((part * 20_000).encode(), "a.properties")


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_decimals_stay_as_they_are_spelled(name: str) -> None:
    record = '{"version": 1.10, "price": -5.00, "e": 1E400, "n": 7, "in": {"v": [2.0, "2.0"]}, "l": [0.50]}'
    text = parse((f"[{record}]" if name == "a.json" else record).encode(), name).text
    assert text == "version: 1.10\nprice: -5.00\ne: 1E400\nn: 7\nin v: 2.0, 2.0\nl: 0.50"
    nested = parse(b'{"xy": [[1.10, 2], [3, "a"]]}\n', "a.jsonl").text
    assert nested == 'xy: [[1.10, 2], [3, "a"]]'


@pytest.mark.parametrize(
    ("value", "name", "title"),
    [
        ('{\n  "name": "shop",\n  "version": "1.0.0"\n}', "package.json", "package.json"),
        ('{\n  "title": "Shop",\n  "version": "1.0.0"\n}', "package.json", "Shop"),
        ('[{"id": 1}, {"id": 2}]', "all-customers.json", "all customers"),
    ],
)
def test_settings_in_json_are_called_by_their_file(value: str, name: str, title: str) -> None:
    assert parse(value.encode(), name).title == title


RIS = """TY  - JOUR
AU  - Padhi, A. K.
AU  - Lee, J. B.
TI  - On DFT
T2  - J. Chem.
PY  - 2019
N1  - see p. 3
AB  - One.
Two - or three.
ER  -
TY  - THES
TI  - B
PB  - ETH"""
ARTICLE = """title: On DFT
author: Padhi, A. K.; Lee, J. B.
TY: JOUR
journal: J. Chem.
date: 2019
notes: see p. 3
abstract: One. Two - or three."""


@pytest.mark.parametrize(
    ("name", "text", "records"),
    [
        ("a.ris", RIS, [ARTICLE, "title: B\nTY: THES\npublisher: ETH"]),
        (
            "a.nbib",
            "PMID- 12\nTI  - Sleep and\n      caffeine.\nFAU - Lee, Ann\n\nPMID- 13\nTI  - B",
            ["title: Sleep and caffeine.\nauthor: Lee, Ann\nPMID: 12", "title: B\nPMID: 13"],
        ),
        (
            "a.enw",
            "%0 Book\n%A Lee, Ann\n%T Tea\n%Z new",
            ["title: Tea\nauthor: Lee, Ann\n%0: Book\nnotes: new"],
        ),
    ],
)
def test_a_list_of_references_is_a_block_for_each_with_all_that_it_says(
    name: str, text: str, records: list[str], shape: Shape
) -> None:
    assert shape(text, name) == [("table", record) for record in records]
