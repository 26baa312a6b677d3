"""What is read as a citation and as a quote, and when a passage holds a quote."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.search.answer_citations import ParsedAnswer, Quote, contains_quote, parse_answer
from rag.search.reply.untrusted import disarm

WORDS = [
    *("clock", "swings", "Huygens", "1656,", "«bon»", '"so"', "…", "...", "a.b", "é", "振り子", "[1]", "x<y"),
    *("![map](http://x/y.png)", "<img", "src=z>", r"!\[spoiled](x)", "&lt;image", "vec![1]", "</p>", "<!--"),
    *("[r]:", "!", "[", "<", "/b", "soft\u00adly", "\u200b", "می‌خواهم", "👩‍⚕️", "\ufe01x"),
    *("葛\U000e0100", "\x1b[m"),
]
BLANKS = st.text(" \t\n\r\u00a0\u2003", min_size=1, max_size=3)
passages = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("text", "citations"),
    [
        ("It swings [abc/3].", ["abc/3"]),
        ("It swings [abc/3][abd/0], and stops [abc/3].", ["abc/3", "abd/0"]),
        ("It swings [a/1, a/2] and stops [a/1; b/2].", ["a/1", "a/2", "b/2"]),
        ("It swings [a/1,\na/2].", ["a/1", "a/2"]),
        ("It swings [see a/1, p. 2].", ["a/1"]),
        ("It swings [refdesk://documents/abc/3].", ["abc/3"]),
        ('"It swings [a/1]."', ["a/1"]),
        ("> It swings [a/1].\n- [a/2]\n# [a/3]", ["a/1", "a/2", "a/3"]),
    ],
)
def test_citations_are_read_once_each_and_in_order(text: str, citations: list[str]) -> None:
    assert list(parse_answer(text).citations) == citations


@pytest.mark.parametrize(
    "id_", ["notes.md/3", "docs/notes.md/3", "ABC/3", "abc/03", "a_b/1", "abc/9999999999"]
)
def test_a_citation_that_can_name_nothing_is_one_all_the_same(id_: str) -> None:
    assert parse_answer(f"It swings [{id_}].").citations == (id_,)


@pytest.mark.parametrize(
    "text",
    ["", "a/1", "(a/1)", "[3/4]", "[24/7]", "[and/or]", "[abc]", "[^1]", "[link](http://x/a/1)", "[a/b]"],
)
def test_what_reads_otherwise_is_no_citation(text: str) -> None:
    assert parse_answer(f'"It swings" {text}').citations == ()


@given(before=st.text(), after=st.text())
def test_a_citation_is_found_wherever_it_stands(before: str, after: str) -> None:
    assert "abc/7" in parse_answer(f"{before}[abc/7]{after}").citations


@pytest.mark.parametrize(
    "quoted",
    [
        '"{}"',
        "“{}”",
        "„{}“",
        "„{}”",
        "«{}»",
        "»{}«",
        "« {} »",
        "「{}」",
        "> {}\n\n",
        "> “{}” — ",
        "> {}\n> — ",
    ],
)
def test_a_quote_stands_in_any_quotation_marks_or_is_a_block_quote(quoted: str) -> None:
    text = quoted.format("It swings.") + "[a/1]"
    assert parse_answer(text).quotes == (Quote("It swings.", ("a/1",)),)


def quotes(text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(quote.text, quote.cited) for quote in parse_answer(text).quotes]


def test_a_quote_rests_on_the_next_citations_behind_its_opening_mark() -> None:
    text = 'As [a/1] has it, "one" and “two” stand here [b/2], [b/3] (see [b/4]); "three [c/5]." [d/6] “four”'
    assert quotes(text) == [
        ("one", ("b/2", "b/3")),
        ("two", ("b/2", "b/3")),
        ("three.", ("c/5", "d/6")),
        ("four", ()),
    ]


@pytest.mark.parametrize("end", ["\n\n", "\n \n", "\n- ", "\n  * ", "\n2. ", "\n## ", "\n| ", "\n> "])
def test_a_quote_does_not_rest_on_a_citation_beyond_its_paragraph(end: str) -> None:
    assert quotes(f'It is "so"{end}and else [a/1].')[0] == ("so", ())
    assert quotes('It is "so"\nand else [a/1].') == [("so", ("a/1",))]


def test_a_block_quote_rests_on_its_own_citation_or_else_on_the_next_paragraph_s() -> None:
    text = (
        '"a"\n> one\n> two [a/1]\nelse [a/2]\n\n> three\n\nIn [b/1] and [b/2].\n\n> four\n\nNothing.\n\n[c/1]'
    )
    assert quotes(text) == [("a", ()), ("one\ntwo", ("a/1",)), ("three", ("b/1",)), ("four", ())]


@pytest.mark.parametrize("text", ['5" and 6" [a/1]', '"" [a/1]', '"…" [a/1]', "> \n[a/1]", "it's ‘so’ [a/1]"])
def test_inches_apostrophes_and_marks_without_words_are_no_quotes(text: str) -> None:
    assert quotes(text) == []
    assert quotes(f'{text} "so" [a/2]') == [("so", ("a/2",))]


@given(
    words=st.lists(st.sampled_from(["It", "swings", "5", "»", "to", "…"]), min_size=1).map(" ".join),
    marks=st.sampled_from(['""', "“”", "„“", "「」"]),
)
def test_what_stands_between_marks_is_the_quote(words: str, marks: str) -> None:
    text = f"He says {marks[0]}It {words}{marks[1]} [a/1]."
    assert parse_answer(text) == ParsedAnswer(("a/1",), (Quote(f"It {words}", ("a/1",)),))


def test_a_block_quote_keeps_what_looks_like_its_mark() -> None:
    (quote,) = parse_answer("> Say:\n>\n>     >>> one()\n>> deeper [a/1]").quotes
    assert quote.text.split() == ["Say:", ">>>", "one()", "deeper"]


@given(passage=passages, data=st.data())
def test_a_passage_holds_every_part_of_it_whatever_the_white_space(
    passage: list[str], data: st.DataObject
) -> None:
    begin = data.draw(st.integers(0, len(passage) - 1))
    part = passage[begin : data.draw(st.integers(begin + 1, len(passage)))]
    quote = "".join(word + data.draw(BLANKS) for word in part)
    text = "".join(word + data.draw(BLANKS) for word in passage)
    assert contains_quote(text, quote)
    assert contains_quote(text, disarm(quote))
    assert contains_quote(disarm(text), quote)


@given(passage=passages, data=st.data())
def test_a_passage_does_not_hold_a_part_of_it_with_one_letter_changed(
    passage: list[str], data: st.DataObject
) -> None:
    text = " ".join(["It", *passage])
    at = data.draw(st.sampled_from([match.start() for match in re.finditer(r"\w", text)]))
    assert contains_quote(text, text)
    assert not contains_quote(text, f"{text[:at]}ж{text[at + 1 :]}")


@given(text=st.text(st.one_of(st.sampled_from("<!/[]:?a. \n\u2028\u200d\ufe0f😀می葛\x1f"), st.characters())))
def test_a_text_holds_all_that_is_shown_of_it_and_what_is_shown_holds_the_text(text: str) -> None:
    shown = disarm(text)
    assert contains_quote(text, shown)
    assert contains_quote(shown, text)


@given(passage=passages, data=st.data())
def test_a_text_holds_what_is_copied_from_the_middle_of_what_is_shown(
    passage: list[str], data: st.DataObject
) -> None:
    text = " ".join(word for word in passage if not set("&\\") & set(word))
    shown = disarm(text)
    start = data.draw(st.integers(0, len(shown)))
    assert contains_quote(text, shown[start : data.draw(st.integers(start, len(shown)))])


@pytest.mark.parametrize(
    "quote",
    [
        "See <b>it</b>, ![a](b), [r]: c",
        "See < b>it< /b>, ! [a](b), [r] : c",
        r"See &lt;b>it&lt;/b>, !\[a](b)",
        "See <\u200bb>it\ufe01",
    ],
)
def test_markup_is_quoted_as_the_document_has_it_or_as_it_is_shown(quote: str) -> None:
    passage = "\u200bSee <b>it</b>,\u2028![a](b), [r]: c"
    assert contains_quote(passage, quote)
    assert not contains_quote(passage, quote.replace("it", "its"))


@pytest.mark.parametrize("ellipsis", ["…", "...", "....", "[…]", "[...]", " … ", " [ … ] "])
def test_parts_around_an_ellipsis_must_stand_there_in_their_order(ellipsis: str) -> None:
    passage = "The clock swings, slowly, to and fro, all night."
    assert contains_quote(passage, f"The clock{ellipsis}slowly{ellipsis}night.")
    assert not contains_quote(passage, f"slowly{ellipsis}The clock")
    assert not contains_quote(passage, f"The clock{ellipsis}quickly")


@pytest.mark.parametrize(
    "quote", ["the clock", "The clock’s", "Theclock", "The clock's", "The clocks", "The cl ock"]
)
def test_letters_marks_and_the_ends_of_words_count(quote: str) -> None:
    assert contains_quote('The clock’s "beat"', 'The clock’s "beat"')
    assert contains_quote('The clock’s "beat"', quote) == (quote == "The clock’s")
