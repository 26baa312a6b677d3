"""Words are found as people mean them: in any case, Unicode form, width and white space."""

from __future__ import annotations

import re
import unicodedata

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.errors import InvalidRequestError
from rag.needles.needle import MAX_NEEDLE_CHARS, needle
from rag.needles.words_and_phrases import cleaned_text, folded_text, literal_pattern

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Co", "Cn"]), min_size=1, max_size=12)


def is_found(pattern: str, text: str) -> bool:
    """Whether Python and RE2 both find it; they must agree."""
    column = pa.array([text])
    found = {bool(re.search(pattern, text)), pc.match_substring_regex(column, pattern)[0].as_py()}
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("straße", "STRASSE"),
        ("strasse", "Straße"),
        ("STRASSE", "straẞe"),
        ("istanbul", "İSTANBUL"),
        ("İstanbul", "istanbul"),
        ("ışık", "ışık"),
        ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
        ("café", "CAFE\u0301"),
        ("cafe\u0301", "CAFÉ"),
        ("office", "oﬃce"),
        ("office", "ofﬁce"),
        ("ﬁle", "FILE"),
        ("sss", "sß"),
        ("ＡＢＣ", "abc"),
        ("ｅｒｒ－１", "ERR-1"),
        ("don't", "don’t"),
        ("co-op", "co‑op"),
        ("a b", "A\u00a0\r\n\u3000 b"),
        ("한국", unicodedata.normalize("NFD", "한국")),
        ("שלום עולם", "שלום\nעולם"),
        ("👩‍🔬", "👩‍🔬"),
        ("C++ (x[0]|^a$) {2} \\d.*?", "c++ (X[0]|^A$) {2} \\D.*?"),
    ],
)
def test_what_differs_only_in_form_is_found(written: str, text: str) -> None:
    assert is_found(literal_pattern(written, case=False), f"({text})")


@pytest.mark.parametrize(
    ("written", "text"),
    [("cafe", "café"), ("e", "e\u0301"), ("1.5", "1x5"), ("a b", "ab"), ("ı", "i"), ("a+", "aa")],
)
def test_other_characters_are_not(written: str, text: str) -> None:
    assert not is_found(needle(written).pattern, text)
    assert not [*needle(written).spans(text)]


def test_letter_case_counts_where_it_is_asked_to() -> None:
    assert is_found(literal_pattern("Max É", case=True), "Max E\u0301")
    assert not is_found(literal_pattern("Max", case=True), "max")


@given(WORDS)
def test_every_text_finds_itself_in_any_case_and_form(text: str) -> None:
    text = cleaned_text(text)  # as texts are stored
    apart = "".join(unicodedata.normalize("NFD", letter) for letter in text)
    in_order = apart == unicodedata.normalize("NFD", text)  # normalizing doesn't reorder its accents
    if text and in_order:
        pattern = needle(text).core
        for form in ("NFC", "NFD"):
            written = unicodedata.normalize(form, text)
            assert is_found(pattern, written)
            assert is_found(pattern, unicodedata.normalize(form, written.casefold()))


def test_whole_words_stand_alone_in_every_script() -> None:
    text = "leave, leaves; cleave (LEAVE) leave_x über-leave"
    assert [span.start for span in needle("leave", "words").spans(text)] == [0, 23, 43]
    assert [span.start for span in needle("ab ab", "words").spans("xab ab ab")] == [4]
    assert [span.start for span in needle("機械", "words").spans("この機械学習")] == [2]
    assert [span.start for span in needle("API", "words").spans("このAPIは APIs")] == [2]
    assert [span.start for span in needle("हिन्दी", "words").spans("हिन्दी हिन्दीका")] == [0]


def test_the_pattern_of_whole_words_says_the_same_as_their_spans() -> None:
    for text in ("leave", "leaves", "a leave.", "cleave", "leave\u0301", "Überleave", "休leave暇", ""):
        one = needle("leave", "words")
        column = pa.array([text])
        assert pc.match_substring_regex(column, one.pattern)[0].as_py() == any(one.spans(text)), text


ALIKE = st.text("sSßẞfiıIİﬁﬃtﬅ\u0307e\u0301éα\u0345ᾷＡaA'’-‐ \n\u3000한\u1112\u1161", max_size=14)


@pytest.mark.parametrize("case", [True, False])
@given(written=ALIKE, before=ALIKE, after=ALIKE)
def test_what_the_pattern_finds_is_located(*, case: bool, written: str, before: str, after: str) -> None:
    if not cleaned_text(written):
        return
    searched = needle(written, case=case)
    text = unicodedata.normalize("NFC", f"{before}{written.swapcase()}{after} {written}")
    spans = [*searched.spans(text)]
    assert not is_found(searched.pattern, text) or spans
    for start, end in spans:
        assert folded_text(text[start:end], case=case).text == searched.words


def test_hostile_needles_have_patterns_in_proportion_to_them() -> None:
    for letters in ("ß", "ﬃ", "ΐ", "ᾷ", "i", "é", "s ", "sst", "a\u0301", "한", "㍿", "(", '"'):
        written = (letters * 1000)[:MAX_NEEDLE_CHARS]
        assert len(needle(written, "words").pattern) < 60 * MAX_NEEDLE_CHARS, letters


def test_what_cannot_be_searched_for_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no visible character"):
        needle("\u200b \u00ad")
    with pytest.raises(InvalidRequestError, match=f"at most {MAX_NEEDLE_CHARS} characters, not 1001"):
        needle("x" * 1001)
    with pytest.raises(InvalidRequestError, match="text, words, regex, not 'glob'"):
        needle("x", "glob")  # type: ignore[arg-type]
