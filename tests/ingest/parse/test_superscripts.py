"""Superscripts and subscripts, in text and in the formats that mark them."""

from __future__ import annotations

import pytest

from rag.ingest.parse.parsers import parse
from rag.ingest.parse.superscripts import SUB, SUB_END, SUP, SUP_END, with_scripts

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
    ],
)
def test_scripts_of_pages(html: str, seen: str) -> None:
    assert parse(f"<p>{html}</p>".encode(), "a.html").text == seen
