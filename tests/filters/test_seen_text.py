"""What is found in texts as their readers see them, and what only looks like it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Match
from rag.filters.needles import MAX_NEEDLE_CHARS, Needle, cleaned_text, needle
from rag.filters.seen_text import seen_text


def has_pattern(searched: Needle, text: str) -> bool:
    return bool(pc.match_substring_regex(pa.array([text]), searched.pattern)[0].as_py())


def found(searched: Needle, text: str) -> list[str]:
    """The matches, each of which the pattern lets through."""
    matches = [text[slice(*span)] for span in searched.spans(text)]
    assert not matches or has_pattern(searched, text)
    return matches


@pytest.mark.parametrize(
    ("text", "quoted", "stored"),
    [
        ("called it *a disgrace* for us", "it a disgrace for", "it *a disgrace* for"),
        ("left the **council** hall at `noon`.", "council hall at noon", "council** hall at `noon"),
        ("***both*** _ways_ and __two words__.", "both ways and two words", "both*** _ways_ and __two words"),
        ("*see [the city](https://x.example/a_(b)) now*", "see the city now", None),
        ("position on [Sudan](https://x.example) and", "on Sudan and", "on [Sudan](https://x.example) and"),
        ('a [page](/a "The title")[](https://x.example) of it', "a page of it", None),
        ("as [the guide][guide] says", "as the guide says", None),
        ("closed[^1] on Monday", "closed on Monday", None),
        ("closed.[[3]](#fn3) Then [12](#p12) men", "closed. Then 12 men", None),
        ("boiled in pans.^1 It was brine.[2] Then", "pans. It was brine. Then", None),
        ("the winter^12 of 1799", "winter of 1799", None),
        ("> The river rose,\n> and the town", "The river rose, and the town", None),
        ("> > It rose,\n> >and fell", "It rose, and fell", None),
        ("**James Snell:** The current", "James Snell: The current", "James Snell:** The current"),
        (r"\[01:05\] In this", "[01:05] In this", r"[01:05\] In this"),
        (r"set my\_own\_name to", "my_own_name", r"my\_own\_name"),
        ("这是**重要**的。", "这是重要的", "这是**重要**的"),
        ("said 'never again' and", "said ‘never again’ and", None),
        ('said "never again" and', "said ‘never again’ and", None),
        ("il a dit « jamais » et", 'dit "jamais" et', None),
        ("er sagte »nie« und", "sagte „nie“ und", None),
        ("—dijo «—Sí, señor», dijo", '"—Sí, señor"', None),
        ("and I agree — fully", "agree - fully", None),
        ("and I agree — fully", "agree--fully", None),
        ("and I agree – fully", "agree—fully", None),
        ("3,000 pounds -- not yet", "pounds — not", None),
        ("in 2019–2020", "2019-2020", None),
        ("a *word* — next", "a word – next", None),
    ],
)
def test_a_text_is_found_as_it_is_read(text: str, quoted: str, stored: str | None) -> None:
    (match,) = found(needle(quoted), text)
    assert stored is None or match == stored
    assert found(needle(quoted.upper()), text) == [match]
    assert found(needle(quoted, case=True), text) == [match]
    assert text in found(needle(text), f"before {text} behind")[0]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("int *p, *q;", "int p, q"),
        ("f(*args, **kwargs)", "f(args, kwargs)"),
        ("x = a * b * c", "x = a b c"),
        ("2*3*4", "234"),
        ("def __init__(self)", "def init(self)"),
        ("if __name__ == x", "if name == x"),
        ("the snake_case_name of", "snakecasename of"),
        ("handlers[key](event)", "handlerskey"),
        ("array[2] = 5", "array = 5"),
        ("y = x^2 + 1", "y = x + 1"),
        ("5 km^2 of land", "5 km of land"),
        ("says `a *b* c` so", "a b c"),
        ("```\na *b* c\n```", "a b c"),
        ("a *b\n\nc* d", "a b"),
        ("I agree.\n> He left.", "I agree. He left."),
        ("> > He left.\n> I agree.", "He left. I agree."),
        (">>> a\n>>> b", "a b"),
        ("for ~~forty~~ sixty", "for forty sixty"),
        ("one\n- two", "one-two"),
        ("run --match x", "run -match x"),
        ("it is -5 now", "it is - 5 now"),
        ("x\n[^1]: The note", "x : The note"),
        ("a ![picture](p.png) of", "a picture of"),
    ],
)
def test_what_no_reader_sees_side_by_side_is_not_found(text: str, other: str) -> None:
    assert not found(needle(other), text)
    assert found(needle(text), text) == [text]


def test_whole_words_are_found_between_marks_of_emphasis() -> None:
    text = "It was _never_ signed, **never**, and nevermore_x."
    assert found(needle("never", "words"), text) == ["never", "never"]
    assert found(needle("was never signed", "words"), text) == ["was _never_ signed"]


def test_positions_are_those_of_the_stored_text_and_each_match_is_found_once() -> None:
    text = "a *b* c, a b c, a [b](https://x.example) c"
    spans = [*needle("a b c").spans(text)]
    assert [text[slice(*span)] for span in spans] == ["a *b* c", "a b c", "a [b](https://x.example) c"]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("said 'never again' and I agree — fully.", "said never again and I agree fully"),
        ("and I agree—fully", "agree fully"),
        ("paid annual leave (unused), if any", "leave unused if any"),
        ("the well-known *house*, too", "well known house too"),
        ("said never again, he", "said ‘never again’, he"),
    ],
)
def test_a_phrase_is_words_in_this_order(text: str, phrase: str) -> None:
    assert found(needle(phrase, "words", is_phrase=True), text)


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("| leave | days |", "leave days"),
        ("annual leaves", "annual leave"),
        ("it is -5 now", "it is 5 now"),
        ("page 1.250 of", "page 1 250 of"),
        ("leave\n\n| of |", "leave of"),
    ],
)
def test_other_words_are_no_phrase(text: str, phrase: str) -> None:
    assert not found(needle(phrase, "words", is_phrase=True), text)


SIGNS = st.text("ab1 \n*_`[]()^\\>\"'‘»«—-.,:#†重ß", max_size=30)


@given(
    before=SIGNS, quoted=SIGNS, after=SIGNS, match=st.sampled_from(["text", "words"]), is_phrase=st.booleans()
)
def test_the_pattern_lets_through_all_that_is_found(
    *, before: str, quoted: str, after: str, match: Match, is_phrase: bool
) -> None:
    if not cleaned_text(quoted):
        return
    for text in (f"{before} {quoted} {after}", before + after):
        for searched in (seen_text(text).text, quoted):
            if cleaned_text(searched):
                found(needle(searched, match, is_phrase=is_phrase), text)


@pytest.mark.parametrize(
    "part", ["[", "](", "[a](", "`", "*", "a* *b ", "__a ", "> ", "\\", "![", " ", "—", "'", "[^"]
)
@pytest.mark.usefixtures("in_linear_time")
def test_any_text_is_read_in_linear_time(part: str) -> None:
    seen_text(part * 200_000, is_phrase=True)


@pytest.mark.usefixtures("in_linear_time")
def test_links_in_one_another_are_read_in_linear_time() -> None:
    seen_text("[x" * 500_000 + "]" * 500_000)


@pytest.mark.parametrize("part", ["a ", ".", "ab, ", "重", "*a* "])
def test_the_longest_needle_is_a_pattern_of_moderate_size(part: str) -> None:
    searched = needle((part * MAX_NEEDLE_CHARS)[:MAX_NEEDLE_CHARS])
    assert len(searched.pattern) < 50_000
    assert found(searched, f"x {searched.query}")
