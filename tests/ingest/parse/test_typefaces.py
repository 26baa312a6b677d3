"""Superscripts, struck-out text and fonts of symbols, in text and in the formats that mark them."""

from __future__ import annotations

import pytest

from rag.ingest.parse.parsers import parse
from rag.ingest.parse.typefaces import STRUCK, STRUCK_END, SUB, SUB_END, SUP, SUP_END, shown_by, with_scripts
from tests.ingest.parse.packages import relations, sheet, slides, word, workbook, xml

_MARKS = str.maketrans({"<": SUP, ">": SUP_END, "{": SUB, "}": SUB_END})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("9.46 × 10<15> m", "9.46 × 10^15 m"),
        ("10 <15> m, 10<-3>, 10<−3>.", "10 ^15 m, 10^-3, 10^−3."),
        ("10<1><5>m", "10^(15)m"),
        ("10<15 >m and 5<*>", "10^(15) m and 5*"),
        ("x<n+1>, x{i+1}, f<(n)>(x), 2<2<2>>, R<+>y", "x^(n+1), x_(i+1), f^(n)(x), 2^(2^2), R^(+)y"),
        ("*x*<2> + x<*n*>, x{1}<2>, x{1}2", "*x*^2 + x^*n*, x1^2, x_(1)2"),
        ("1010{2}, k{B}T, log{2}(x)", "1010_2, k_(B)T, log2(x)"),
        ("3<1>/{2} or <1>/{2}", "3 1/2 or 1/2"),
        ("2020<3>; end.<3> Next", "2020^3; end.^3 Next"),
        ("2<nd>, 2 <nd>, n<th>, XIX<e>, M<me>, n<o>, Foo<®>", "2nd, 2 nd, nth, XIXe, Mme, no, Foo®"),
        ("H{2}O, Ca(OH){2}, SO{4}<2->, Ca<2+>, (<14>C)", "H2O, Ca(OH)2, SO4^2-, Ca2+, (14C)"),
        ("types).<11,> <12> Of, Muller,<1,*> kg<1)> x<(1)>", "types).^11, 12 Of, Muller,^(1,*) kg^1) x^(1)"),
        ("I<2>C bus, I<2>R losses [BCI<+>10, SBV<+>13]", "I2C bus, I^(2)R losses [BCI+10, SBV+13]"),
        ("Items< (c)>", "Items (c)"),
        ("<1> See\n| <a> Mean | word<[3](#n3)>", "1 See\n| a Mean | word[3](#n3)"),
        ("<open 5 and close> 6", "open 5 and close 6"),
    ],
)
def test_a_script_is_never_glued_to_a_number(written: str, expected: str) -> None:
    assert with_scripts(written.translate(_MARKS)) == expected


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize(
    "part", ["<", ">", ",", "<1", "1<5>", "1 <1>/", "<a,{", "*<x>", "I<e>", "<(", "<a.a.a", "\ufdd8a\ufdd9"]
)
def test_hostile_scripts_cost_no_more_than_their_length(part: str) -> None:
    with_scripts((part * 40_000).translate(_MARKS))


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("10<sup>15</sup> m", "10^15 m"),
        ("10<SUP class='x'>15</SUP > H<sub>2</sub>O", "10^15 H2O"),
        ("<code>O(n<sup>2</sup>)</code>", "`O(n^2)`"),
        ("10<span style='font-size:9px;vertical-align: super'>15</span>", "10^15"),
        ("note<sup><a href='#n3'>[3]</a></sup>", "note[[3]](#n3)"),
        ("10<sup hidden>3</sup>", "10"),
        ("<span style='color:red;text-decoration: line-through'>500</span> 700", "~~500~~ 700"),
    ],
)
def test_scripts_of_web_pages_are_written_with_signs(html: str, expected: str) -> None:
    assert parse(f"<p>{html}</p>".encode(), "a.html").text == expected


def _word(*runs: tuple[str, str]) -> bytes:
    """A file of Word: pairs of properties and text."""
    texts = (
        f'<w:r><w:rPr>{about}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>' for about, text in runs
    )
    return word(f"<w:p>{''.join(texts)}</w:p>")


def _slide(*runs: tuple[str, str]) -> bytes:
    texts = "".join(f"<a:r>{about}<a:t>{text}</a:t></a:r>" for about, text in runs)
    return slides(f"<p:sp><p:txBody><a:p>{texts}</a:p></p:txBody></p:sp>")


def _cell(*runs: tuple[str, str]) -> bytes:
    texts = "".join(f"<s:r><s:rPr>{about}</s:rPr><s:t>{text}</s:t></s:r>" for about, text in runs)
    row = f'<s:row r="1"><s:c r="A1" t="inlineStr"><s:is>{texts}</s:is></s:c></s:row>'
    return workbook(xml("s:worksheet", f"<s:sheetData>{row}</s:sheetData>"))


def _open_text(styles: dict[str, str], body: str) -> bytes:
    """A flat file of OpenDocument with styles by name: the text properties of each."""
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "style", "text")
    )
    listed = "".join(
        f"<style:style style:name='{name}'><style:text-properties {about}/></style:style>"
        for name, about in styles.items()
    )
    return (
        f"<office:document {spaces}><office:automatic-styles>{listed}</office:automatic-styles>"
        f"<office:body><office:text>{body}</office:text></office:body></office:document>"
    ).encode()


_RAISED, _LOWERED = "<w:vertAlign w:val='superscript'/>", "<w:vertAlign w:val='subscript'/>"
_UP, _DOWN = '<a:rPr baseline="30000"/>', '<a:rPr baseline="-25000"/>'
_IN_OPEN_TEXT = {"up": "style:text-position='super 58%'", "down": "style:text-position='-33% 58%'"}
_WATER = (
    "<text:p>10<text:span text:style-name='up'>15</text:span> "
    "H<text:span text:style-name='down'>2</text:span>O</text:p>"
)


def _aligned(kind: str) -> str:
    return f"<s:vertAlign s:val='{kind}'/>"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (
            _word(
                ("<w:vertAlign w:val='baseline'/>", "10"),
                *(
                    (_RAISED, "1"),
                    (_RAISED, "5"),
                    ("<w:vertAlign w:val=''/>", " H"),
                    (_LOWERED, "2"),
                    ("", "O"),
                ),
            ),
            "a.docx",
        ),
        (_slide(("", "10"), (_UP, "15"), ("", " H"), (_DOWN, "2"), ("", "O")), "a.pptx"),
        (_open_text(_IN_OPEN_TEXT, _WATER), "a.fodt"),
        (
            _cell(
                (_aligned(""), "10"),
                *((_aligned("superscript"), "15"), (_aligned(""), " H")),
                *((_aligned("subscript"), "2"), (_aligned(""), "O")),
            ),
            "a.xlsx",
        ),
        (rb"{\rtf1 10{\super 15} H\sub 2\nosupersub O\par}", "a.rtf"),
        (rb"{\rtf1 10{\up6 15} H{\dn6 2}O\par}", "a.rtf"),
        (rb"10\textsuperscript{15} H\textsubscript{2}O", "a.tex"),
        (b"<article><p>10<sup>15</sup> H<sub>2</sub>O</p><p>x</p></article>", "a.xml"),
        (b"<article><p>10<hi rend='sup'>15</hi> H<subscript>2</subscript>O</p><p>x</p></article>", "a.xml"),
    ],
)
def test_scripts_of_other_formats_are_written_with_signs(data: bytes, name: str) -> None:
    assert "10^15 H2O" in parse(data, name).text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("<500>< EUR> 700", "~~500 EUR~~ 700"),
        ("a< b >c", "a ~~b~~ c"),
        ("< >a<b", " ab"),
        ("x <a<b>c>", "x a~~b~~c"),
    ],
)
def test_struck_out_text_is_between_tildes(written: str, expected: str) -> None:
    assert with_scripts(written.replace("<", STRUCK).replace(">", STRUCK_END)) == expected


_LINE = {"out": "style:text-line-through-style='solid'"}
_OUT = "<text:span text:style-name='out'>{}</text:span>"
_STRUCK_FONTS = "<s:fonts><s:font/><s:font><s:strike/></s:font></s:fonts>"
_STRUCK_STYLES = xml("s:styleSheet", f"{_STRUCK_FONTS}<s:cellXfs><s:xf/><s:xf fontId='1'/></s:cellXfs>")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (_word(("", "Fee "), ("<w:strike/>", "50"), ("<w:dstrike/>", "0"), ("", " 700 EUR")), "a.docx"),
        (_word(("", "Fee "), ("<w:strike/>", "500 "), ("<w:strike w:val='0'/>", "700 EUR")), "a.docx"),
        (_slide(("", "Fee "), ('<a:rPr strike="sngStrike"/>', "500"), ("", " 700 EUR")), "a.pptx"),
        (_cell(("", "Fee "), ("<s:strike/>", "500"), ("", " 700 EUR")), "a.xlsx"),
        (_open_text(_LINE, f"<text:p>Fee {_OUT.format('500')} 700 EUR</text:p>"), "a.fodt"),
        (rb"{\rtf1 Fee {\strike 500} 700 EUR\par}", "a.rtf"),
        (rb"{\rtf1 Fee \striked1 500 \striked0 700 EUR\par}", "a.rtf"),
    ],
)
def test_struck_out_text_of_other_formats_is_between_tildes(data: bytes, name: str) -> None:
    assert "Fee ~~500~~ 700 EUR" in parse(data, name).text


def test_a_cell_and_a_paragraph_are_struck_out_as_a_whole() -> None:
    row = '<s:row r="1"><s:c r="A1" s="1"><s:v>500</s:v></s:c><s:c r="B1"><s:v>700</s:v></s:c></s:row>'
    sheet = xml("s:worksheet", f"<s:sheetData>{row}</s:sheetData>")
    book = workbook(sheet, **{"xl/styles.xml": _STRUCK_STYLES})
    assert "| ~~500~~ | 700 |" in parse(book, "a.xlsx").text
    paragraph = _open_text(_LINE, f"<text:p text:style-name='out'>a {_OUT.format('b')} c</text:p>")
    assert parse(paragraph, "a.fodt").text == "~~a b c~~"


def _word_with_reading(base: str, reading: str) -> str:
    parts = (
        f"<w:{tag}><w:r><w:rPr><w:sz w:val='10'/></w:rPr><w:t>{text}</w:t></w:r></w:{tag}>"
        for tag, text in (("rt", reading), ("rubyBase", base))
    )
    return f"<w:r><w:ruby><w:rubyPr/>{''.join(parts)}</w:ruby></w:r>"


def _open_text_with_reading(base: str, reading: str) -> str:
    base, reading = f"<text:ruby-base>{base}</text:ruby-base>", f"<text:ruby-text>{reading}</text:ruby-text>"
    return f"<text:ruby>{base}{reading}</text:ruby>"


def test_a_reading_stands_behind_its_whole_word() -> None:
    words = [*zip("小鳥遊", ("た", "か", "なし"), strict=True), ("A", "")]
    expected = "小鳥遊(たかなし)A、弔慰金(ちょういきん)"
    runs = "".join(_word_with_reading(*pair) for pair in words) + "<w:r><w:t>、</w:t></w:r>"
    document = word(f"<w:p>{runs}{_word_with_reading('弔慰金', 'ちょういきん')}</w:p>")
    assert parse(document, "a.docx").text == expected
    spans = "".join(_open_text_with_reading(*pair) for pair in words) + "、"
    line = f"<text:p>{spans}{_open_text_with_reading('弔慰金', 'ちょういきん')}</text:p>"
    assert parse(_open_text({}, line), "a.fodt").text == expected


@pytest.mark.parametrize(
    ("font", "character", "shown"),
    [
        ("FPLCIK+SymbolMT", "\uf057", "Ω"),
        ("Symbol,Italic", "\uf0a3", "≤"),
        ("Wingdings", "\uf0fc", "✓"),
        ("Times", "\uf057", "\uf057"),
        ("CMEX10", "\uf8eb", ""),
        ("Symbol", "\uf8e8", "®"),
        ("OpenSymbol", "\uf0a3", "≤"),
        ("BAAAAA+OpenSymbol", "\uf06d", "μ"),
        ("OpenSymbol", "\uf0fc", "✓"),
        ("OpenSymbol", "ü", "ü"),
        ("CIDFont+F8", "\uf0b0", "°"),
    ],
)
def test_private_characters_of_a_pdf_are_what_its_font_shows(font: str, character: str, shown: str) -> None:
    assert shown_by(character, font) == shown


_WINGDINGS = "<w:rPr><w:rFonts w:ascii='Wingdings' w:hAnsi='Wingdings'/></w:rPr>"


@pytest.mark.parametrize(
    ("run", "shown"),
    [
        (f"{_WINGDINGS}<w:t>ü à</w:t>", "✓ →"),
        (f"{_WINGDINGS}<w:sym w:font='Wingdings' w:char='00FE'/>", "[x]"),
        ("<w:rPr><w:rFonts w:ascii='Symbol'/></w:rPr><w:t>£ 5 m</w:t>", "≤ 5 μ"),
        ("<w:rPr><w:rFonts w:ascii='Wingdings 2'/></w:rPr><w:t>PO</w:t>", "✓✗"),
        ("<w:rPr><w:rFonts w:ascii='Segoe UI Symbol'/></w:rPr><w:t>ü</w:t>", "ü"),
        ("<w:rPr><w:rFonts w:ascii='Symbol'/></w:rPr><w:t>see mass</w:t>", "see mass"),  # words
        ("<w:rPr><w:rFonts w:ascii='Wingdings'/></w:rPr><w:t>llll</w:t>", "●●●●"),
    ],
)
def test_letters_in_a_font_of_symbols_are_what_people_see(run: str, shown: str) -> None:
    assert parse(word(f"<w:p><w:r>{run}</w:r></w:p>"), "a.docx").text == shown


def test_cells_in_a_font_of_symbols_are_ticks() -> None:
    fonts = "".join(f"<s:font><s:name val='{font}'/></s:font>" for font in ("Calibri", "Wingdings"))
    forms = "<s:numFmts><s:numFmt numFmtId='164' formatCode='[=1]\"ü\";\"û\"'/></s:numFmts>"
    used = "<s:xf/><s:xf fontId='1'/><s:xf fontId='1' numFmtId='164'/>"
    styles = f"{forms}<s:fonts>{fonts}</s:fonts><s:cellXfs>{used}</s:cellXfs>"
    own_font = "<s:r><s:rPr><s:rFont val='{}'/></s:rPr><s:t>{}</s:t></s:r>"
    strings = f"<s:si>{own_font.format('Webdings', 'a')}{own_font.format('Arial', ' für Ei')}</s:si>"
    shared = '<s:row r="3"><s:c r="A3" t="s" s="1"><s:v>0</s:v></s:c></s:row></s:sheetData>'
    book = workbook(
        sheet("Dish|Vegan|Ei", "Müsli|ü#1|0#2").replace("</s:sheetData>", shared),
        **{
            "xl/styles.xml": xml("s:styleSheet", styles),
            "xl/sharedStrings.xml": xml("s:sst", strings),
            "xl/_rels/workbook.xml.rels": relations(
                r1="worksheet worksheets/sheet1.xml",
                s="styles styles.xml",
                t="sharedStrings sharedStrings.xml",
            ),
        },
    )
    assert parse(book, "a.xlsx").text.split("\n")[4:] == ["| Müsli | ✓ | ✗ |", "| ✓ für Ei |  |  |"]


@pytest.mark.parametrize(
    ("font", "text", "shown"),
    [
        ("sym", "à", "→"),
        ("sym", " J", " ☺"),
        ("sym", "à Umsatz für à café", "→ Umsatz für à café"),  # the font goes on, but isn't shown in words
        ("sym", "\uf0e0Umsatz", "→Umsatz"),
        ("sym", "a test", "a test"),
        ("latin", "à è", "→ →"),
    ],
)
def test_signs_of_slides_are_what_people_see(font: str, text: str, shown: str) -> None:
    run = f"<a:rPr><a:{font} typeface='Wingdings'/></a:rPr><a:t>{text}</a:t>"
    body = f"<p:txBody><a:p><a:r><a:t>Leads</a:t></a:r><a:r>{run}</a:r></a:p></p:txBody>"
    assert parse(slides(f"<p:sp>{body}</p:sp>"), "a.pptx").text == f"Leads{shown}"


@pytest.mark.parametrize(
    ("html", "shown"),
    [
        ("<span style='font-size:11pt;font-family:Wingdings'>J</span> ok", "☺ ok"),
        ("<span style=\"font-family:'Wingdings'\">&agrave;<o:p></o:p></span> ok", "→ ok"),
        ('<font face="Symbol" size=2>&#163; m</font>', "≤ μ"),
        ("<span style='mso-fareast-font-family:Wingdings'>J</span>", "J"),
        ("<span style='font-family:\"Segoe UI Symbol\"'>J</span>", "J"),
        ("<span style='font-family:\"Wingdings 3\"'>u</span>", "u"),
    ],
)
def test_signs_of_mails_and_pages_are_what_people_see(html: str, shown: str) -> None:
    assert parse(f"<p>{html}</p>".encode(), "a.html").text == shown
