"""Superscripts and subscripts, in text and in the formats that mark them."""

from __future__ import annotations

import pytest

from rag.ingest.parse.parsers import parse
from rag.ingest.parse.typefaces import SUB, SUB_END, SUP, SUP_END, with_scripts
from tests.ingest.parse.packages import slides, word, workbook, xml

_MARKS = str.maketrans({"<": SUP, ">": SUP_END, "{": SUB, "}": SUB_END})


@pytest.mark.parametrize(
    ("written", "seen"),
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
        ("Items< (c)>", "Items (c)"),
        ("<1> See\n| <a> Mean | word<[3](#n3)>", "1 See\n| a Mean | word[3](#n3)"),
        ("<open 5 and close> 6", "open 5 and close 6"),
    ],
)
def test_a_script_is_never_glued_to_a_number(written: str, seen: str) -> None:
    assert with_scripts(written.translate(_MARKS)) == seen


@pytest.mark.usefixtures("within_a_minute")
@pytest.mark.parametrize("part", ["<", ">", "<1", "1<5>", "1 <1>/", "<a,{", "*<x>", "I<e>", "<(", "<a.a.a"])
def test_hostile_scripts_cost_no_more_than_their_length(part: str) -> None:
    with_scripts((part * 100_000).translate(_MARKS))


@pytest.mark.parametrize(
    ("html", "seen"),
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
def test_scripts_of_pages(html: str, seen: str) -> None:
    assert parse(f"<p>{html}</p>".encode(), "a.html").text == seen


def _word() -> bytes:
    runs = "".join(
        f'<w:r><w:rPr><w:vertAlign w:val="{align}"/></w:rPr><w:t>{text}</w:t></w:r>'
        for align, text in (("baseline", "10"), ("superscript", "1"), ("superscript", "5"), ("", " H"))
    )
    low = '<w:r><w:rPr><w:vertAlign w:val="subscript"/></w:rPr><w:t>2</w:t></w:r><w:r><w:t>O</w:t></w:r>'
    return word(f"<w:p>{runs}{low}</w:p>")


def _slide() -> bytes:
    runs = (
        '<a:r><a:t>10</a:t></a:r><a:r><a:rPr baseline="30000"/><a:t>15</a:t></a:r><a:r><a:t> H</a:t></a:r>'
        '<a:r><a:rPr baseline="-25000"/><a:t>2</a:t></a:r><a:r><a:t>O</a:t></a:r>'
    )
    return slides(f"<p:sp><p:txBody><a:p>{runs}</a:p></p:txBody></p:sp>")


def _open_text() -> bytes:
    spaces = " ".join(
        f'xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "style", "text")
    )
    styles = "".join(
        f'<style:style style:name="{name}">'
        f'<style:text-properties style:text-position="{position}"/></style:style>'
        for name, position in (("up", "super 58%"), ("down", "-33% 58%"))
    )
    body = (
        '<text:p>10<text:span text:style-name="up">15</text:span> '
        'H<text:span text:style-name="down">2</text:span>O</text:p>'
    )
    return (
        f"<office:document {spaces}><office:automatic-styles>{styles}</office:automatic-styles>"
        f"<office:body><office:text>{body}</office:text></office:body></office:document>"
    ).encode()


def _cell() -> bytes:
    runs = "".join(
        f'<s:r><s:rPr><s:vertAlign s:val="{align}"/></s:rPr><s:t>{text}</s:t></s:r>'
        for align, text in (("", "10"), ("superscript", "15"), ("", " H"), ("subscript", "2"), ("", "O"))
    )
    row = f'<s:row r="1"><s:c r="A1" t="inlineStr"><s:is>{runs}</s:is></s:c></s:row>'
    return workbook(xml("s:worksheet", f"<s:sheetData>{row}</s:sheetData>"))


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (_word(), "a.docx"),
        (_slide(), "a.pptx"),
        (_open_text(), "a.fodt"),
        (_cell(), "a.xlsx"),
        (rb"{\rtf1 10{\super 15} H\sub 2\nosupersub O\par}", "a.rtf"),
        (rb"{\rtf1 10{\up6 15} H{\dn6 2}O\par}", "a.rtf"),
        (rb"10\textsuperscript{15} H\textsubscript{2}O", "a.tex"),
        (b"<article><p>10<sup>15</sup> H<sub>2</sub>O</p><p>x</p></article>", "a.xml"),
        (b"<article><p>10<hi rend='sup'>15</hi> H<subscript>2</subscript>O</p><p>x</p></article>", "a.xml"),
    ],
)
def test_scripts_of_other_formats(data: bytes, name: str) -> None:
    assert "10^15 H2O" in parse(data, name).text
