"""Text that says something else by its typeface: struck-out text."""

from __future__ import annotations

import pytest

from rag.ingest.parse.parsers import parse
from rag.ingest.parse.typefaces import STRUCK, STRUCK_END, with_scripts
from tests.ingest.parse.packages import slides, word, workbook, xml


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


@pytest.mark.parametrize(
    ("written", "seen"),
    [
        ("<500>< EUR> 700", "~~500 EUR~~ 700"),
        ("a< b >c", "a ~~b~~ c"),
        ("< >a<b", " ab"),
        ("x <a<b>c>", "x a~~b~~c"),
    ],
)
def test_struck_out_text_is_between_tildes(written: str, seen: str) -> None:
    assert with_scripts(written.replace("<", STRUCK).replace(">", STRUCK_END)) == seen


_SPACES = " ".join(
    f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"' for name in ("office", "style", "text")
)
_LINE = (
    f"<office:document {_SPACES}><office:automatic-styles><style:style style:name='out'>"
    "<style:text-properties style:text-line-through-style='solid'/></style:style></office:automatic-styles>"
    "<office:body><office:text>{}</office:text></office:body></office:document>"
)
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
        (_LINE.format(f"<text:p>Fee {_OUT.format('500')} 700 EUR</text:p>").encode(), "a.fodt"),
        (rb"{\rtf1 Fee {\strike 500} 700 EUR\par}", "a.rtf"),
        (rb"{\rtf1 Fee \striked1 500 \striked0 700 EUR\par}", "a.rtf"),
    ],
)
def test_struck_out_text_of_other_formats(data: bytes, name: str) -> None:
    assert "Fee ~~500~~ 700 EUR" in parse(data, name).text


def test_a_cell_and_a_paragraph_are_struck_out_as_a_whole() -> None:
    row = '<s:row r="1"><s:c r="A1" s="1"><s:v>500</s:v></s:c><s:c r="B1"><s:v>700</s:v></s:c></s:row>'
    sheet = xml("s:worksheet", f"<s:sheetData>{row}</s:sheetData>")
    book = workbook(sheet, **{"xl/styles.xml": _STRUCK_STYLES})
    assert "| ~~500~~ | 700 |" in parse(book, "a.xlsx").text
    paragraph = _LINE.format(f"<text:p text:style-name='out'>a {_OUT.format('b')} c</text:p>")
    assert parse(paragraph.encode(), "a.fodt").text == "~~a b c~~"
