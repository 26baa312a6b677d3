"""An answer held against the desk: what is a citation or a quote in it, and whether the sources say so."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.corpus import Access, Principal, Source
from rag.search.answer_citations import (
    CheckedAnswer,
    CheckedCitation,
    CheckedQuote,
    ParsedAnswer,
    Quote,
    check_answer,
    contains_quote,
    parse_answer,
    uncited_paragraphs,
)
from rag.search.reply.untrusted import disarm
from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

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
        ("It swings 【a/1】【a/2, a/3】, 【4:0†source】.", ["a/1", "a/2", "a/3"]),
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
        "『{}』",
        "”{}”",
        "‘{}’",
        "‚{}‘",
        "‹{}›",
        "›{}‹",
        "``{}''",
        "(‘{}’)",
        "'{}'",
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


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("so ‘it’s the boy’s own’, he said", "it’s the boy’s own"),
        ("so 'it's the boy's own', he said", "it's the boy's own"),
        ("‘he said “never” again’ so", "he said “never” again"),
        ("“he said ‘never’ again” so", "he said ‘never’ again"),
        ("In the ‘90s it’s the boys’ ‘only\nclock’", "only\nclock"),
        ("It's the boys' 'only clock' of the '90s, ma'am", "only clock"),
    ],
)
def test_an_apostrophe_neither_opens_nor_closes_a_quote(text: str, quote: str) -> None:
    assert quotes(f"{text} [a/1].") == [(quote, ("a/1",))]


@pytest.mark.usefixtures("in_linear_time")
@pytest.mark.parametrize("part", ["‘a ", "'a ", " 'a'b", "‚a", "``a ", "”a ", "a’b "])
def test_marks_without_their_other_half_take_linear_time(part: str) -> None:
    quotes(part * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        *(
            '5" and 6" [a/1]',
            '"" [a/1]',
            '"…" [a/1]',
            "> \n[a/1]",
            "it's so [a/1]",
            "the boys' and girls' [a/1]",
        ),
        *("rock 'n' roll, '90s and boys' [a/1]", "‘Twas the boys’ clock [a/1]", "set mode='a' and 'b' [a/1]"),
        *("it’s the boys’ clock [a/1]", "’Twas the boys’ [a/1]"),
    ],
)
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
    disarmed = disarm(text)
    assert contains_quote(text, disarmed)
    assert contains_quote(disarmed, text)


@given(passage=passages, data=st.data())
def test_a_text_holds_what_is_copied_from_the_middle_of_what_is_shown(
    passage: list[str], data: st.DataObject
) -> None:
    text = " ".join(word for word in passage if not set("&\\") & set(word))
    disarmed = disarm(text)
    start = data.draw(st.integers(0, len(disarmed)))
    assert contains_quote(text, disarmed[start : data.draw(st.integers(start, len(disarmed)))])


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
    "quote",
    ["the clock", "The clock’s", "Theclock", "The clock's", "The clocks", "The cl ock", "The clock s"],
)
def test_letters_marks_and_the_ends_of_words_count(quote: str) -> None:
    assert contains_quote('The clock’s "beat"', 'The clock’s "beat"')
    assert contains_quote('The clock’s "beat"', quote) == (quote in {"The clock’s", "The clock's"})


@pytest.mark.parametrize(
    ("passage", "quote"),
    [
        ("called it *a disgrace* for [the city](https://x.example/city).", "it a disgrace for the city."),
        ("was closed[^1] on Monday", "closed on Monday"),
        ("> The river rose,\n> and the town", "The river rose, and the town"),
        ('I said it was "inspected" – fully', "it was 'inspected' — fully"),
        ("It *swings*, and [to](#a) and fro", "It swings, […] and *fro*"),
    ],
)
def test_a_quote_stands_in_a_passage_as_its_reader_sees_it(passage: str, quote: str) -> None:
    assert contains_quote(passage, quote)
    assert not contains_quote(passage, f"{quote} not")
    assert not contains_quote("A clock.", "a[^1]")


CITED = "It swings [ab/1]."


@pytest.mark.parametrize(
    "answer",
    [
        CITED,
        f"# Clocks\n\n{CITED}",
        f"Clocks\n------\n\n{CITED}",
        f"**Clocks**\n\n{CITED}",
        f"Here is what the documents say:\n\n- {CITED}\n- It stops, too [ab/2].",
        f"What swings?\n\n{CITED}",
        "It swings.\n\n[ab/1]",
        "As [ab/1] says:\n\n1. It swings.\n2. It stops.",
        "**As the handbook says** [ab/1]:\n- It swings.",
        f"| what | where |\n|---|---|\n| swings | [ab/1] |\n\n{CITED}",
        f"{CITED}\n\n```python\nswing()\n\nstop()\n```",
        f"{CITED}\n\n---\n\n{CITED}",
        "> It swings.\n\nSo it is [ab/1].",
        f"它是什么?\n\n{CITED}",
        f"{CITED}\n\n***\n",
        "",
    ],
)
def test_what_states_nothing_or_is_covered_needs_no_citation(answer: str) -> None:
    assert uncited_paragraphs(answer) == ()


@pytest.mark.parametrize(
    ("answer", "lacking"),
    [
        ("It swings.", ("It swings.",)),
        (f"{CITED}\n\nIt stops.", ("It stops.",)),
        (f"It stops.\n\n{CITED}", ("It stops.",)),
        (f"- {CITED}\n- It stops.\n- It ticks.", ("It stops.", "It ticks.")),
        (f"Look:\n\n- {CITED}\n2. It stops.", ("It stops.",)),
        ("As [ab/1] says:\n\n- It swings.\n\nIt stops.\n\n- It ticks.", ("It stops.", "It ticks.")),
        (f"| what | where |\n|---|---|\n| swings | here |\n\n{CITED}", ("| swings | here |",)),
        ("It stops [3/4], see [notes].", ("It stops [3/4], see [notes].",)),
        ("**Note** that it stops.", ("**Note** that it stops.",)),
        (f"```\nswing()\n```\n\nIt stops.\n\n{CITED}", ("It stops.",)),
        ("It\nstops.", ("It\nstops.",)),
    ],
)
def test_what_states_something_without_a_citation_is_found(answer: str, lacking: tuple[str, ...]) -> None:
    assert uncited_paragraphs(answer) == lacking


@given(st.text(alphabet="a [/1]\n-#|:?>`*", max_size=60))
def test_no_answer_breaks_it_and_a_paragraph_is_found_or_holds_a_citation(answer: str) -> None:
    uncited = uncited_paragraphs(answer)
    assert all(text.strip() for text in uncited)
    assert not any(parse_answer(text).citations for text in uncited)


ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
STRANGER = Principal("elsewhere", "ann")
PARAGRAPHS = (
    "Of clocks",
    "The clock swings.",
    "It swings slowly.",
    "See ![a map](http://x/y.png) and <img src=z>. A \u200bvideo\ufe01: <video poster=x></video>",
    "It stops.",
)


@pytest.fixture
async def source(shelf: Shelf) -> Source:
    return await shelf.put("clocks", *PARAGRAPHS)


async def checked(shelf: Shelf, text: str, principal: Principal = ANN) -> CheckedAnswer:
    return await check_answer(shelf.desk(), principal, text)


async def quote(shelf: Shelf, text: str) -> CheckedQuote:
    (quote_,) = (await checked(shelf, text)).quotes
    return quote_


async def test_a_citation_that_can_be_read_comes_with_its_passage(shelf: Shelf, source: Source) -> None:
    second = await shelf.put("other", "Of water", collection="more")
    answer = await checked(shelf, f"It swings [{source.id}/1], it drips [refdesk://more/{second.id}/0].")
    assert answer.holds
    assert [(citation.id, citation.readable, citation.source) for citation in answer.citations] == [
        (f"{source.id}/1", True, source),
        (f"{second.id}/0", True, second),
    ]
    assert [[chunk.text for chunk in citation.chunks] for citation in answer.citations] == [
        [PARAGRAPHS[1]],
        ["Of water"],
    ]


@pytest.mark.slow
async def test_unknown_foreign_denied_and_deleted_are_one_answer(shelf: Shelf) -> None:
    denied = await shelf.put("denied", "Of clocks", access=Access("restricted", frozenset({"user:ann"})))
    deleted = await shelf.put("deleted", "Of clocks")
    text = f'He says "Of clocks" [{denied.id}/0] or "Of clocks" [{deleted.id}/0].'
    before = await checked(shelf, text)
    assert before.holds
    assert len(before.citations) == 2
    async with await shelf.small.writing(shelf.data) as writer:
        await writer.remove([deleted.id])
    async with await shelf.small.writing(shelf.data, "elsewhere") as writer:
        foreign = shelf.small.new_source(writer, "foreign", "Of clocks")
        await writer.replace([foreign])
    assert (await checked(shelf, f'"Of clocks" [{foreign.source.id}/0]', STRANGER)).holds
    for id_ in (denied.id, deleted.id, foreign.source.id, "aaaaaaaaaaaaaaaa"):
        assert await checked(shelf, f'He says "Of clocks" [{id_}/0].', BOB) == CheckedAnswer(
            (CheckedCitation(f"{id_}/0"),), (CheckedQuote("Of clocks", (f"{id_}/0",), "not found"),)
        )


@pytest.mark.parametrize(
    "seq", ["5", "00", "01", "999999999", "9" * 5000, "3-5", "0-999999999", "2-1", "1-02", "1-2-3"]
)
async def test_a_source_s_passage_that_is_not_there_can_t_be_read(
    shelf: Shelf, source: Source, seq: str
) -> None:
    answer = await checked(shelf, f"[{source.id}/0] [{source.id}/{seq}] [notes.md/{seq}]")
    assert [citation.readable for citation in answer.citations] == [True, False, False]
    assert not answer.holds


async def test_a_quote_is_verbatim_in_any_of_the_passages_that_it_cites(shelf: Shelf, source: Source) -> None:
    for text in ("The clock\nswings.", "clock swings", "swings.", "It stops.", "The … It stops."):
        cited = f"{source.id}/1", f"{source.id}/4"
        quote_ = await quote(shelf, f'"{text}" [{", ".join(cited)}]')
        assert quote_ == CheckedQuote(text, cited, "verbatim")


async def test_passages_that_follow_each_other_are_one_and_others_are_not(
    shelf: Shelf, source: Source
) -> None:
    first, second, third = (f"{source.id}/{seq}" for seq in (1, 2, 4))
    assert (await quote(shelf, f'"swings. It swings" [{second}, {first}]')).verdict == "verbatim"
    assert (await quote(shelf, f'"swings. It stops." [{first}, {third}]')).verdict == "not found"
    assert await quote(shelf, f'"swings. It swings" [{first}]') == CheckedQuote(
        "swings. It swings", (first,), "elsewhere", (first, second)
    )


@pytest.mark.parametrize("dash", ["-", "–", " – ", "\u2011"])
async def test_a_range_of_passages_is_one_citation(shelf: Shelf, source: Source, dash: str) -> None:
    answer = await checked(shelf, f'"swings. It swings slowly" [{source.id}/1{dash}2]')
    (citation,) = answer.citations
    assert answer.holds
    assert (citation.id, [chunk.seq for chunk in citation.chunks]) == (f"{source.id}/1-2", [1, 2])
    for cited, verdict in [
        ("1-2", "elsewhere"),
        ("1-4", "verbatim"),
        ("3-4", "verbatim"),
        ("2-9", "elsewhere"),
    ]:
        assert (await quote(shelf, f'"It stops" [{source.id}/{cited}]')).verdict == verdict
    assert (await quote(shelf, f'"slowly. See" [{source.id}/1-2, {source.id}/3]')).verdict == "verbatim"


async def test_a_range_of_another_s_source_looks_like_one_that_is_not_there(shelf: Shelf) -> None:
    denied = await shelf.put("denied", "One", "Two", access=Access("restricted", frozenset({"user:ann"})))
    text = f'"One" [{denied.id}/0-1]'
    assert (await checked(shelf, text)).holds
    assert (await checked(shelf, text, BOB)) == CheckedAnswer(
        (CheckedCitation(f"{denied.id}/0-1"),), (CheckedQuote("One", (f"{denied.id}/0-1",), "not found"),)
    )


async def test_a_quote_from_another_passage_of_the_source_is_elsewhere(shelf: Shelf, source: Source) -> None:
    second = await shelf.put("other", "Of water")
    first, last = f"{source.id}/1", f"{source.id}/4"
    assert await quote(shelf, f'"It stops" [{first}]') == CheckedQuote(
        "It stops", (first,), "elsewhere", (last,)
    )
    assert (await quote(shelf, f'"clock … stops" [{first}]')).found == (source.id,)
    assert (await quote(shelf, f'"It stops" [{second.id}/0]')).verdict == "not found"
    assert (await quote(shelf, f'"It stops" [{second.id}/0, {last}]')).verdict == "verbatim"


async def test_a_quote_that_is_changed_is_not_found(shelf: Shelf, source: Source) -> None:
    good, bad = [await checked(shelf, f'"{text}" [{source.id}/1]') for text in ("The clock", "the clock")]
    assert (good.holds, bad.holds) == (True, False)
    assert bad.quotes == (CheckedQuote("the clock", (f"{source.id}/1",), "not found"),)


async def test_an_image_is_quoted_as_the_document_has_it_or_as_the_tools_show_it(
    shelf: Shelf, source: Source
) -> None:
    for text in (PARAGRAPHS[3], disarm(PARAGRAPHS[3])):
        assert (await quote(shelf, f"> {text}\n\n[{source.id}/3]")).verdict == "verbatim"
        assert (await quote(shelf, f"> {text}\n\n[{source.id}/1]")).found == (f"{source.id}/3",)


async def test_a_quote_that_cites_nothing_is_unchecked_and_does_no_harm(shelf: Shelf, source: Source) -> None:
    answer = await checked(shelf, f'It swings [{source.id}/1], they "say".')
    assert answer.quotes == (CheckedQuote("say", (), "unchecked"),)
    assert answer.holds


async def test_an_answer_without_citations_holds_even_on_an_empty_desk(shelf: Shelf) -> None:
    await shelf.declare("documents")
    assert await checked(shelf, "") == CheckedAnswer((), ())
    assert not (await checked(shelf, "[abc/1]")).holds
