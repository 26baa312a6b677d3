# ruff: noqa: E501 lines of XML
"""OpenDocument files, written flat: the packed ones have the same XML in parts."""

from __future__ import annotations

import pytest

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse
from tests.ingest.parse.document_shape import blocks_of
from tests.ingest.parse.packages import package

SPACES = " ".join(
    f'xmlns:{space}="urn:oasis:names:tc:opendocument:xmlns:{space}:1.0"'
    for space in ("office", "style", "text", "table", "draw", "presentation", "svg", "fo", "meta", "form")
)
STYLES = (
    '<style:style style:name="ghost"><style:text-properties text:display="none"/></style:style>'
    '<style:style style:name="off"><style:table-properties table:display="false"/></style:style>'
    '<style:style style:name="away"><style:drawing-page-properties presentation:visibility="hidden"/></style:style>'
    '<text:list-style style:name="L"><text:list-level-style-number text:level="1" style:num-format="1"/>'
    '<text:list-level-style-bullet text:level="2"/></text:list-style>'
    '<text:list-style style:name="L4"><text:list-level-style-number text:level="1" style:num-format="a" '
    'text:start-value="4"/></text:list-style>'
)


def flat(body: str, meta: str = "") -> bytes:
    about = f'<office:meta xmlns:dc="dc">{meta}</office:meta>'
    styles = f"<office:automatic-styles>{STYLES}</office:automatic-styles>"
    return f"<office:document {SPACES}>{about}{styles}<office:body>{body}</office:body></office:document>".encode()


def shape_of(data: bytes, name: str) -> list[tuple[str, str]]:
    document = parse(data, name)
    return blocks_of(document)


def test_a_text_has_headings_lists_tables_and_notes() -> None:
    body = (
        "<office:text><text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>"
        '<text:h text:outline-level="2">Duties</text:h><text:p>Two<text:s text:c="2"/>spaces'
        "<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>In euros.</text:p>"
        '</text:note-body></text:note></text:p><text:list text:style-name="L"><text:list-item><text:p>one</text:p>'
        "<text:list><text:list-item><text:p>deep</text:p></text:list-item></text:list></text:list-item>"
        "<text:list-item><text:p>two</text:p></text:list-item></text:list><table:table><table:table-row>"
        "<table:table-cell><text:p>a</text:p></table:table-cell><table:table-cell><text:p>b</text:p></table:table-cell>"
        '</table:table-row><table:table-row><table:table-cell table:number-columns-repeated="2"><text:p>x</text:p>'
        "</table:table-cell></table:table-row></table:table></office:text>"
    )
    assert shape_of(flat(body), "a.fodt") == [
        ("heading", "Duties"),
        ("paragraph", "Two  spaces[^1]"),
        ("paragraph", "[^1]: In euros."),
        ("list", "1. one\n  - deep\n2. two"),
        ("table", "| a | b |\n| --- | --- |\n| x | x |"),
    ]


_CLAUSES = (
    '<text:list-style style:name="C">'
    '<text:list-level-style-number text:level="1" style:num-format="1" style:num-suffix="."/>'
    '<text:list-level-style-number text:level="2" style:num-format="1" text:display-levels="2"/>'
    '<text:list-level-style-number text:level="3" style:num-format="a" style:num-prefix="(" style:num-suffix=")"/>'
    '<text:list-level-style-number text:level="4" style:num-format="i" style:num-list-format="%3%-%4%"/>'
    "</text:list-style>"
)


def _clause(text: str, level: int, about: str = 'text:continue-numbering="true"') -> str:
    """A list for each clause, with lists without items around it, as LibreOffice writes them."""
    inner = f"<text:p>{text}</text:p>"
    for _ in range(level - 1):
        inner = f"<text:list><text:list-item>{inner}</text:list-item></text:list>"
    return f'<text:list text:style-name="C" {about}><text:list-item>{inner}</text:list-item></text:list>'


def test_clauses_have_the_numbers_that_people_see() -> None:
    levels = (1, 2, 2, 1, 2, 3, 3, 4, 3, 2)
    clauses = [
        _clause("x", level, "" if not at else 'text:continue-numbering="true"')
        for at, level in enumerate(levels)
    ]
    body = f"<office:text>{''.join(clauses)}{_clause('new', 1, '')}{_clause('deep', 3)}</office:text>"
    ((_, text),) = shape_of(flat(_CLAUSES + body), "a.fodt")
    assert text.replace(" x", "").split("\n") == [
        *("1.", "  1.1", "  1.2", "2.", "  2.1", "    (a)", "    (b)", "      b-i", "    (c)", "  2.2"),
        *("1. new", "    (a) deep"),
    ]


def test_headings_have_their_numbers() -> None:
    outline = (
        '<text:outline-style style:name="Outline">'
        '<text:outline-level-style text:level="1" style:num-format="I" style:num-suffix="."/>'
        '<text:outline-level-style text:level="2" style:num-format="1" text:display-levels="2"/>'
        '<text:outline-level-style text:level="3" style:num-format=""/></text:outline-style>'
    )
    heads = "".join(
        f'<text:h text:outline-level="{level}" {about}>{title}</text:h>'
        for level, title, about in (
            (1, "Scope", ""),
            (2, "Who", ""),
            (1, "Preface", 'text:is-list-header="true"'),
            (1, "Pay", ""),
            (2, "When", ""),
            (3, "How", ""),
        )
    )
    in_list = _clause("x", 1, "").replace("<text:p>x</text:p>", "<text:h>Law</text:h>")
    text = f"<office:text>{heads}{in_list}<text:p>English.</text:p></office:text>"
    titles = [
        title for kind, title in shape_of(flat(_CLAUSES + outline + text), "a.fodt") if kind == "heading"
    ]
    assert titles == ["I. Scope", "I.1 Who", "Preface", "II. Pay", "II.1 When", "How", "1. Law"]


def test_a_list_begins_where_its_style_says() -> None:
    items = "".join(f"<text:list-item><text:p>{step}</text:p></text:list-item>" for step in ("x", "y"))
    body = f'<office:text><text:list text:style-name="L4">{items}</text:list></office:text>'
    assert shape_of(flat(body), "a.fodt") == [("list", "d. x\ne. y")]


def test_deleted_words_that_stand_between_marks_are_left_out() -> None:
    def mark(kind: str, change: str) -> str:
        return f'<text:change-{kind} text:change-id="{change}"/>'

    regions = "".join(
        f'<text:changed-region text:id="{change}"><text:{kind}/></text:changed-region>'
        for change, kind in (("a", "insertion"), ("b", "deletion"), ("c", "deletion"))
    )
    words = f"One {mark('start', 'a')}new{mark('end', 'a')} {mark('start', 'b')}old<text:span>er</text:span>"
    body = (
        f"<text:tracked-changes>{regions}</text:tracked-changes><text:p>{words}</text:p>"
        f"<text:p>gone{mark('end', 'b')}two {mark('start', 'c')}without an end</text:p>"
    )
    assert shape_of(flat(f"<office:text>{body}</office:text>"), "a.fodt") == [
        ("paragraph", "One new"),
        ("paragraph", "two without an end"),
    ]
    (remark,) = parse(flat(f"<office:text>{body}</office:text>"), "a.fodt").remarks
    assert remark.startswith("2 deleted")


def test_headers_and_footers_of_pages_in_use_stand_once_at_the_end() -> None:
    def page(name: str, *margins: str, more: str = "") -> str:
        return f'<style:master-page style:name="{name}" {more}>{"".join(margins)}</style:master-page>'

    number = (
        "<text:p>Page <text:page-number>3</text:page-number> of <text:page-count>9</text:page-count></text:p>"
    )
    header = "<style:header><text:p>Secret</text:p></style:header>"
    pages = [
        page("Standard", header, f"<style:footer>{number}</style:footer>"),
        page("First", header, more='style:next-style-name="Next"'),
        page("Next", "<style:footer><text:p>May</text:p></style:footer>"),
        page("Next2", '<style:header style:display="false"><text:p>Off</text:p></style:header>'),
        page("Unused", "<style:footer><text:p>Other</text:p></style:footer>"),
    ]
    style = '<style:style style:name="{0}" style:master-page-name="{0}"/>'
    styles = f"{''.join(map(style.format, ('First', 'Next2')))}{''.join(pages)}</office:automatic-styles>"
    data = flat("<office:text><text:p>Text.</text:p></office:text>").decode()
    text = parse(data.replace("</office:automatic-styles>", styles).encode(), "a.fodt").text
    assert text.startswith("Text.\n\n")
    assert text.endswith(":\n\nSecret\n\nMay")


def test_a_formula_without_a_source_is_read_by_its_signs() -> None:
    math = "<math xmlns='m'><mfrac><mn>1</mn><mrow><mn>2</mn><mi>a</mi></mrow></mfrac><mi>b</mi></math>"
    body = f"<text:p>Dose<draw:frame><draw:object>{math}</draw:object></draw:frame></text:p>"
    assert shape_of(flat(f"<office:text>{body}</office:text>"), "a.fodt") == [
        ("paragraph", "Dose"),
        ("paragraph", "1/(2a) b"),
    ]


def test_hidden_text_and_comments_are_left_out_and_said() -> None:
    body = (
        '<office:text><text:p>Seen<text:span text:style-name="ghost"> Ignore</text:span>.'
        "<office:annotation><text:p>Really?</text:p></office:annotation></text:p>"
        '<text:p text:style-name="ghost">all rules</text:p></office:text>'
    )
    document = parse(flat(body), "a.fodt")
    assert document.text == "Seen."
    assert document.remarks == ("2 hidden pieces of text were left out", "1 comment was left out")


def test_sheets_have_the_texts_that_were_shown_and_hidden_ones_are_left_out() -> None:
    def row(*cells: str, about: str = "") -> str:
        written = "".join(f"<table:table-cell><text:p>{cell}</text:p></table:table-cell>" for cell in cells)
        return f"<table:table-row {about}>{written}</table:table-row>"

    many = (
        row("B", "5", about='table:visibility="collapse"')
        + '<table:table-row table:number-rows-repeated="1048576"/>'
    )
    body = (
        f'<office:spreadsheet><table:table table:name="Cups">{row("Team", "Share")}{row("A", "25 %")}{many}</table:table>'
        f'<table:table table:name="Old" table:style-name="off">{row("x", "y")}</table:table></office:spreadsheet>'
    )
    document = parse(flat(body), "a.fods")
    assert document.text == "Cups\n\n| Team | Share |\n| --- | --- |\n| A | 25 % |"
    assert [block.title for block in document.blocks] == ["Cups", "A1:B1", "A2:B2"]
    assert document.remarks == ("1 hidden sheet was left out", "1 hidden row or column was left out")


def test_cells_that_are_struck_out_are_marked() -> None:
    style = '<style:style style:name="gone"><style:text-properties style:text-line-through-style="solid"/></style:style>'
    cells = "".join(
        f"<table:table-cell {about}><text:p>{text}</text:p></table:table-cell>"
        for text, about in (("Bolt", 'table:style-name="gone"'), ("Nut", ""))
    )
    table = f'<table:table table:name="S"><table:table-row>{cells}</table:table-row></table:table>'
    text = parse(flat(f"{style}<office:spreadsheet>{table}</office:spreadsheet>"), "a.fods").text
    assert "| ~~Bolt~~ | Nut |" in text


def test_slides_are_pages_with_their_notes() -> None:
    def frame(text: str, kind: str = "", at: int = 0) -> str:
        place = f'svg:x="0cm" svg:y="{at}cm" svg:width="9cm" svg:height="1cm"'
        box = f"<draw:text-box><text:p>{text}</text:p></draw:text-box>"
        return f'<draw:frame presentation:class="{kind}" {place}>{box}</draw:frame>'

    first = (
        frame("below", at=9) + frame("above", at=5) + frame("Goals", "title", 1) + frame("7", "page-number")
    )
    notes = f"<presentation:notes>{frame('Say hello.', 'notes')}</presentation:notes>"
    body = (
        f"<office:presentation><draw:page>{first}{notes}</draw:page>"
        f'<draw:page draw:style-name="away">{frame("Backup", "title")}</draw:page>'
        f"<draw:page>{frame('End', 'title')}</draw:page></office:presentation>"
    )
    document = parse(flat(body), "a.fodp")
    assert document.text == "Goals\n\nabove\n\nbelow\n\nSpeaker notes:\nSay hello.\n\nEnd"
    assert (len(document.pages), document.text[document.pages[-1] :]) == (3, "End")
    assert document.remarks == ("1 hidden slide was left out",)


def test_a_packed_file_has_its_properties_and_an_encrypted_one_says_so() -> None:
    content = flat("<office:text><text:p>Text.</text:p></office:text>").decode()
    meta = (
        f'<office:document-meta {SPACES} xmlns:dc="dc"><office:meta><dc:title>Rules</dc:title><dc:creator>Ann</dc:creator>'
        "<meta:keyword>tide</meta:keyword><meta:keyword>sea</meta:keyword><dc:date>2024-05-01T10:00:00</dc:date>"
        "</office:meta></office:document-meta>"
    )
    parts = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content, "meta.xml": meta}
    document = parse(package(parts), "a.odt")
    assert (document.title, dict(document.metadata)) == ("Rules", {"author": "Ann", "keywords": "tide, sea"})
    assert document.date is not None
    locked = "<manifest><file-entry><encryption-data/></file-entry></manifest>"
    with pytest.raises(ParseError) as error:
        parse(package({**parts, "META-INF/manifest.xml": locked}), "a.odt")
    assert error.value.cause == "encrypted"


def packed(body: str, **objects: str) -> bytes:
    """The same in a package, with objects by name."""
    roots = {"content.xml": body} | {f"{name}/content.xml": held for name, held in objects.items()}
    contents = {
        path: f"<office:document-content {SPACES}><office:body>{held}</office:body></office:document-content>"
        for path, held in roots.items()
    }
    return package({"mimetype": "application/vnd.oasis.opendocument.text", **contents})


def rows(*lines: str) -> str:
    cells = [
        "".join(f"<table:table-cell><text:p>{c}</text:p></table:table-cell>" for c in line.split("|"))
        for line in lines
    ]
    return (
        f"<table:table>{''.join(f'<table:table-row>{row}</table:table-row>' for row in cells)}</table:table>"
    )


def test_charts_worksheets_and_pictures_in_frames_are_read_and_other_objects_are_counted() -> None:
    link = 'xmlns:xlink="xlink" xlink:href="./{}"'
    frames = "".join(
        f"<draw:frame><draw:object {link.format(name)}/></draw:frame>" for name in ("C", "S", "X")
    )
    picture = (
        "<draw:frame><draw:image/><svg:title>Picture 1</svg:title><svg:desc>A clock</svg:desc></draw:frame>"
    )
    chart = f"<office:chart><text:title><text:p>Sales</text:p></text:title>{rows('|Clocks', 'May|7')}</office:chart>"
    held = {"C": chart, "S": f"<office:spreadsheet>{rows('Part|Price', 'Spring|12')}</office:spreadsheet>"}
    body = f"<office:text><text:p>Above.{frames}{picture}</text:p></office:text>"
    document = parse(packed(body, **held), "a.odt")
    assert document.text.split("\n\n") == [
        "Above.",
        "Sales",
        "|  | Clocks |\n| --- | --- |\n| May | 7 |",
        "| Part | Price |\n| --- | --- |\n| Spring | 12 |",
        "(picture: A clock)",
    ]
    assert document.metadata == {"left_out": "1 embedded object"}
    slide = f"<office:presentation><draw:page><draw:frame><draw:object {link.format('C')}/></draw:frame></draw:page></office:presentation>"
    assert "| May | 7 |" in parse(packed(slide, **held), "a.odp").text


def test_a_cell_that_goes_over_rows_or_columns_is_in_each_of_them() -> None:
    cell = "<table:table-cell {}><text:p>{}</text:p></table:table-cell>"
    covered = "<table:covered-table-cell/>"
    first = cell.format("", "Day") + cell.format("", "nine") + cell.format("", "ten")
    second = (
        cell.format('table:number-rows-spanned="2"', "Monday") + cell.format("", "A") + cell.format("", "B")
    )
    third = covered + cell.format('table:number-columns-spanned="2"', "Trip") + covered
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in (first, second, third))
    text = parse(flat(f"<office:text><table:table>{body}</table:table></office:text>"), "a.fodt").text
    assert text.endswith("| Monday | A | B |\n| Monday | Trip | Trip |")
    sheet = f"<office:spreadsheet><table:table>{body}</table:table></office:spreadsheet>"
    assert parse(flat(sheet), "a.fods").text.endswith("| Monday | A | B |\n| Monday | Trip | Trip |")


FORM = """<office:forms><form:form form:name="F">
<form:checkbox form:id="a" form:label="yes" form:current-state="checked"/>
<form:checkbox form:id="b" form:label="no" form:state="unchecked"/>
<form:radio form:id="c" form:label="Gas" form:current-selected="true"/>
<form:listbox form:id="d"><form:option form:label="Oak"/><form:option form:label="Elm" form:selected="true"/></form:listbox>
<form:text form:id="e" form:value="" form:current-value="KX-7741"/>
<form:password form:id="f" form:current-value="secret"/></form:form></office:forms>"""


def control(id_: str) -> str:
    return f'<draw:control draw:control="{id_}"/>'


def test_forms_are_read_as_they_look() -> None:
    line = f"<text:p>Doors: {control('a')} {control('b')}, {control('c')}, {control('d')}</text:p>"
    text = parse(flat(f"<office:text>{FORM}{line}{control('e')}{control('f')}</office:text>"), "a.fodt").text
    assert text == "Doors: [x] yes [ ] no, [x] Gas, Elm\n\nKX-7741"


def test_controls_of_a_sheet_stand_in_their_cells() -> None:
    cells = [
        "".join(f"<table:table-cell>{cell}</table:table-cell>" for cell in row)
        for row in (
            ("<text:p>Item</text:p>", "<text:p>State</text:p>"),
            ("<text:p>Doors</text:p>", control("a")),
        )
    ]
    table = "".join(f"<table:table-row>{row}</table:table-row>" for row in cells)
    body = f'<office:spreadsheet><table:table table:name="Audit">{FORM}{table}</table:table></office:spreadsheet>'
    assert parse(flat(body), "a.fods").text.endswith("| Doors | [x] yes |")


def test_a_control_on_a_slide_is_read() -> None:
    page = f"<draw:page>{FORM}<draw:frame><text:p>Title</text:p></draw:frame>{control('b')}</draw:page>"
    assert (
        parse(flat(f"<office:presentation>{page}</office:presentation>"), "a.fodp").text == "Title\n\n[ ] no"
    )


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    ("source", "is_read"), [("Cups", False), ("'Old cups'", True), ("a" * 50_000 + " ", True)]
)
def test_a_chart_of_a_sheet_is_named_or_read_if_its_numbers_are_hidden(source: str, *, is_read: bool) -> None:
    frame = '<draw:frame><draw:object xmlns:xlink="xlink" xlink:href="./C"/></draw:frame>'
    area = f'<chart:plot-area xmlns:chart="chart" table:cell-range-address="${source}.$A$1:${source}.$B$2"/>'
    chart = f"<office:chart><text:title><text:p>Wins</text:p></text:title>{area}{rows('|Wins', 'A|3')}</office:chart>"
    tables = rows("Team|Wins", "A|3").replace(
        "<table:table>", f'<table:table table:name="Cups"><table:shapes>{frame}</table:shapes>'
    )
    text = parse(packed(f"<office:spreadsheet>{tables}</office:spreadsheet>", C=chart), "a.ods").text
    end = "Wins\n\n|  | Wins |\n| --- | --- |\n| A | 3 |" if is_read else "(chart: Wins)"
    assert text == f"Cups\n\n| Team | Wins |\n| --- | --- |\n| A | 3 |\n\n{end}"
