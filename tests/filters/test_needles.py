"""Words, phrases and regular expressions that a text is searched for."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rag.answers import MAX_QUERY_CHARS, Match
from rag.errors import InvalidRequestError
from rag.filters.folded_text import folded_text, literal_pattern
from rag.filters.needles import (
    MAX_NEEDLE_CHARS,
    MAX_SIZE,
    QUOTES,
    check_regex,
    cleaned_text,
    needle,
    otherwise_written,
    pattern_size,
    phrases,
    without_marks_of_code,
    without_quotes,
)
from rag.filters.seen_text import seen_text

# Words are found as people mean them: in any case, Unicode form, width and white space.

WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf", "Co", "Cn"]), min_size=1, max_size=12)


def is_found(pattern: str, text: str) -> bool:
    """Whether Python and RE2 both find it; they must agree."""
    column = pa.array([text])
    findings = {bool(re.search(pattern, text)), pc.match_substring_regex(column, pattern)[0].as_py()}
    assert len(findings) == 1
    return findings.pop()


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("straße", "STRASSE"),
        ("strasse", "Straße"),
        ("STRASSE", "straẞe"),
        ("istanbul", "İSTANBUL"),
        ("İstanbul", "istanbul"),
        ("ışık", "IŞIK"),
        ("IŞIK", "ışık"),
        ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
        ("café", "CAFE\u0301"),
        ("cafe\u0301", "CAFÉ"),
        ("office", "oﬃce"),
        ("office", "ofﬁce"),
        ("ﬁle", "FILE"),
        ("Aeneid", "ÆNEID"),
        ("œuvre", "Oeuvre"),
        ("Aesthetik", "æſthetik"),
        ("schädlich", "ſcha\u0364dlich"),
        ("SCHA\u0364DLICH", "schädlich"),
        ("sss", "sß"),
        ("ＡＢＣ", "abc"),
        ("abc", "ＡｂＣ"),
        ("ﾎｯﾁｷｽ", "ホッチキス"),
        ("パソコン", "ﾊﾟｿｺﾝ"),
        ("18 दिन", "१८ दिन"),
        ("٢١", "21"),
        ("ｅｒｒ－１", "ERR-1"),
        ("don't", "don’t"),
        ('בע"מ', "בע״מ"),
        ("דוא״ל", 'דוא"ל'),
        ("צ'ק", "צ׳ק"),
        ("תל-אביב", "תל־אביב"),
        ("高橋", "髙橋"),
        ("渡邉", "渡辺"),
        ("渡邊", "渡邉"),
        ("吉田", "𠮷田"),
        ("co-op", "co‑op"),
        ("-1.234,56", "−1.234,56"),
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
    [
        ("cafe", "café"),
        ("e", "e\u0301"),
        ("a", "a\u0364"),
        ("Müller", "Mu\u0366ller"),
        ("1.5", "1x5"),
        ("a b", "ab"),
        ("ハ", "ﾊﾟ"),
        ("a+", "aa"),
    ],
)
def test_other_characters_are_not(written: str, text: str) -> None:
    assert not is_found(needle(written).pattern, text)
    assert not [*needle(written).spans(text)]


def test_letter_case_counts_where_it_is_asked_to() -> None:
    assert is_found(literal_pattern("Max É", case=True), "Max E\u0301")
    assert not is_found(literal_pattern("Max", case=True), "max")


@pytest.mark.slow
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
        leave = needle("leave", "words")
        column = pa.array([text])
        assert pc.match_substring_regex(column, leave.pattern)[0].as_py() == any(leave.spans(text)), text


ALIKE = st.text(
    "sSßẞæÆu\u0364fiıIİﬁﬃtﬅﾊﾟパハ3٣\u0307e\u0301éα\u0345ᾷＡaA'’-‐ \n\u3000한\u1112\u1161", max_size=14
)


@pytest.mark.parametrize("case", [True, False])
@given(written=ALIKE, before=ALIKE, after=ALIKE)
@example(written="I", before="\ufb01\u0307", after="")
def test_what_the_pattern_finds_is_located(*, case: bool, written: str, before: str, after: str) -> None:
    if not cleaned_text(written):
        return
    searched = needle(written, case=case)
    text = unicodedata.normalize("NFC", f"{before}{written.swapcase()}{after} {written}")
    spans = [*searched.spans(text)]
    assert not is_found(searched.pattern, text) or spans
    for start, end in spans:
        seen = folded_text(seen_text(text[start:end]).text, case=case).text
        assert folded_text(text[start:end], case=case).text == searched.words or seen == searched.seen


@pytest.mark.parametrize(
    ("written", "match", "text", "form"),
    [
        ("zoe bronte", "words", "of Zoë\n Brontë.", "Zoë Brontë"),
        ("Zoé Brontê", "text", "ZOË BRONTË", "ZOË BRONTË"),
        ("nunez", "text", "Núñezes", "Núñez"),
        ("nunez", "words", "Núñezes", None),
        ("nguyen", "words", "Nguyễn", "Nguyễn"),
        ("Lodz", "words", "Łódź", "Łódź"),
        ("Łódź", "words", "Lodz", "Lodz"),
        ("strasse", "words", "Straße", "Straße"),
        ("zurich", "words", "Zuerich", None),
        ("か", "text", "が", None),
        ("zo.", "regex", "Zoë", None),
    ],
)
def test_a_text_is_found_with_other_accents(written: str, match: Match, text: str, form: str | None) -> None:
    assert otherwise_written(needle(written, match), text) == form


@pytest.mark.parametrize(
    ("written", "text", "form"),
    [
        ("DE02500105175407324931", "IBAN: DE02 5001 0517\n5407 3249 31.", "DE02 5001 0517 5407 3249 31"),
        ("de02 5001 0517 5407 3249 31", "DE02500105175407324931", "DE02500105175407324931"),
        ("1250000", "₹12,50,000 and more", "12,50,000"),
        ("1,250,000", "EUR 1.250.000,00", "1.250.000"),
        ("1,250,000", "1\u202f250\u202f000", "1 250 000"),
        ("+49 30 1234567", "030/1234567 or +49 (30) 123-4567", "49 (30) 123-4567"),
        ("1250000", "91,250,000", None),
        ("1250000", "1250001", None),
        ("annual leave 202412", "annual leave 20 24 12", None),
        ("12345", "12 345", None),
        ("№ 1234567", "№ 1 234 567", None),
    ],
)
def test_a_number_is_found_with_other_spaces_and_signs(written: str, text: str, form: str | None) -> None:
    assert otherwise_written(needle(written), text) == form


@pytest.mark.parametrize(
    ("written", "text", "form"),
    [
        ("CO2", "The CO₂ content", "CO₂"),
        ("H₂O", "of H2O.", "H2O"),
        ("LiFePO4", "LiFePO<sub>4</sub>", "LiFePO<sub>4"),
        ("Na2SO4", "Na~2~SO~4~", "Na~2~SO~4"),
        ("10^-3", "about 10⁻³ m", "10⁻³"),
        ("m2/g", "1630 m²/g", "m²/g"),
        ("4.7kΩ", "R1 is 4.7 kΩ.", "4.7 kΩ"),
        ("10 uF", "C1 is 10 µF", "10 µF"),
        ("M8x25", "a bolt M8×25", "M8×25"),
        ("0.5%", "± 0.5 % of", "0.5 %"),
        ("≤80 °C", "at ≤ 80 °C", "≤ 80 °C"),
        ("kΩ", "k Ω", None),
        ("CO2", "CO₂₃", None),
        ("C12H22", "C₁₂H₂₂", "C₁₂H₂₂"),
        ("10^23", "10²³", "10²³"),
        ("102", "10²", None),
    ],
)
def test_a_formula_is_found_as_others_type_it(written: str, text: str, form: str | None) -> None:
    assert otherwise_written(needle(written), text) == form


def test_letter_case_counts_with_other_accents_too_where_it_is_asked_to() -> None:
    assert otherwise_written(needle("zoe", case=True), "Zoë") is None
    assert otherwise_written(needle("Zoe", case=True), "Zoë") == "Zoë"


def test_hostile_needles_have_patterns_in_proportion_to_them() -> None:
    for letters in ("ß", "ﬃ", "ΐ", "ᾷ", "i", "é", "s ", "sst", "a\u0301", "한", "㍿", "(", '"'):
        written = (letters * 1000)[:MAX_NEEDLE_CHARS]
        assert len(needle(written, "words").pattern) < 80 * MAX_NEEDLE_CHARS, letters


def test_what_cannot_be_searched_for_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no visible character"):
        needle("\u200b \u00ad")
    with pytest.raises(InvalidRequestError, match=f"at most {MAX_NEEDLE_CHARS} characters, not 1001"):
        needle("x" * 1001)
    with pytest.raises(InvalidRequestError, match="text, words, regex, not 'glob'"):
        needle("x", "glob")  # type: ignore[arg-type]


# What of a query is a phrase, and what is ordinary text.


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"leave of absence" policy', ["leave of absence"]),
        ("“leave of absence” and “form A”", ["leave of absence", "form A"]),
        ("„Sonderurlaub“ Antrag »Formular A« «B»", ["Sonderurlaub", "Formular A", "B"]),
        ("« la loi » de 1901", ["la loi"]),
        ("「機械学習」とは", ["機械学習"]),
        ("＂ａｂｃ＂ x", ["ａｂｃ"]),
        ('is it ("a b"), or "c"?', ["a b", "c"]),
        ('"a b" "a b"', ["a b"]),
        ('"it\'s 5.5"', ["it's 5.5"]),
        ('x="a b"', ["a b"]),
    ],
)
def test_quoted_words_are_phrases(query: str, expected: list[str]) -> None:
    assert [*phrases(query)] == expected


@pytest.mark.parametrize(
    "query",
    [
        '5" pipe',
        '5" or 6" pipe',
        '"unbalanced',
        'unbalanced"',
        '""',
        '" "',
        '"""',
        "don't 'quote' this",
        "”x”y",
    ],
)
def test_inches_and_lone_marks_are_ordinary_text(query: str) -> None:
    assert phrases(query) == ()


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ('"leave of absence" policy', "leave of absence  policy"),
        ("policy on „leave of absence“?", "policy on  leave of absence ?"),
        ("「機械学習」とは", "機械学習 とは"),
        ('"leave of absence"', None),
        ("(“leave of absence”, «form A»)", None),
        ('5" pipe', None),
        ("", None),
    ],
)
def test_without_its_marks_a_query_has_the_same_words(query: str, words: str | None) -> None:
    assert without_quotes(query) == words


@pytest.mark.parametrize("unit", ['"a ', "“a ", "「a", "„a "])
def test_a_long_query_of_marks_that_are_never_closed_takes_no_time(
    unit: str, lines_run: Callable[[Callable[[], object]], int]
) -> None:
    query = (unit * MAX_QUERY_CHARS)[:MAX_QUERY_CHARS]
    assert phrases(f"{query} «b c»") == ("b c",)
    assert lines_run(lambda: phrases(unit * 400)) < 3 * lines_run(lambda: phrases(unit * 200))


@pytest.mark.parametrize(
    "pasted",
    [
        '  File "/usr/lib/celery/bootsteps.py", line 116, in start\n    step.start(parent)',
        'The push returns {"status":"error","error":"entry too far behind"}',
        '{\n  "errors": [\n    "entry too far behind"\n  ]\n}',
        "{'code': \"E12\"}",
        'level=error msg="final error sending batch" status=400',
        'name = "refdesk"\nversion = "1.0"',
        'services:\n  web:\n    image: "nginx:1.25"',
        """SELECT "id" FROM "orders" WHERE "status" = 'open'""",
        'select o."id" from "shop"."orders" o',
        'curl -X POST "https://a.test/" -H "Authorization: Token abc" returns 400.',
        '$ grep "exact words" app.log',
        'print("exact words") prints nothing.',
        'const a = "b";\nimport x from "y";',
        'resource "aws_s3_bucket" "b" {\n}',
        'java.lang.NullPointerException: Cannot invoke "String.length()" because "<local1>" is null at Main.',
        'psycopg2.errors.UndefinedTable: relation "users" does not exist',
        'Error from server (NotFound): deployments.apps "x" not found',
        '10.0.0.1 - - [12/Jun/2024:10:00:00 +0000] "GET / HTTP/1.1" 502 "-"',
        "FEHLER: Die Datei „a.txt“ wurde nicht gefunden.",
        "Erreur : le fichier « a.txt » est introuvable.",
    ],
)
def test_the_quotation_marks_of_pasted_code_are_ordinary_text_and_those_of_a_question_behind_it_are_not(
    pasted: str,
) -> None:
    assert phrases(pasted)
    without = without_marks_of_code(f'{pasted}\nWhat does "exact words" mean?')
    assert phrases(without) == ("exact words",)
    assert without_marks_of_code(pasted).translate(NO_MARKS).split() == pasted.translate(NO_MARKS).split()
    assert phrases(without_marks_of_code(pasted)) == ()


NO_MARKS = dict.fromkeys(map(ord, QUOTES), " ")


@pytest.mark.parametrize(
    "query",
    [
        '"leave of absence" policy',
        "„Sonderurlaub“ Antrag »Formular A« «B»",
        'What does "too many outstanding requests" mean?',
        'the error: "connection refused" in the docs',
        '"ConnectionRefusedError: [Errno 111] Connection refused"',
        '"x=1 {a}" or "12:00:00: File" postgres',
        'title:"leave of absence" -"sick leave"',
        'Find: "leave of absence"\nand "sick leave"',
        'is it ("a b"), or "c"?',
    ],
)
def test_what_people_quote_stays_a_phrase(query: str) -> None:
    assert without_marks_of_code(query) == query


@pytest.mark.usefixtures("in_linear_time")
def test_signs_of_code_are_told_in_linear_time() -> None:
    for unit in ('"a= ', '"  ', "Error ", "a.A", 'a:\n"', '?"a" b? '):
        without_marks_of_code(unit * 50_000 + '"x"')


# The size of a regular expression with its repetitions written out, which bounds the time that it
# takes.


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("ab{3}", 4),
        ("(a.){5}", 55),
        (r"\pL{0,7}", 70),
        (r"\p{Greek}{2}", 20),
        ("x{2,}", 3),
        ("[]a]{3}b", 31),
        (r"[\]]{3}", 30),
        ("((a{3}){3}){3}", 27),
        (r"\{3}", 3),
        ("a+b*c?", 3),
        ("a){3}", 4),
        ("", 0),
    ],
)
def test_a_pattern_counts_with_its_repetitions_written_out(pattern: str, steps: int) -> None:
    assert pattern_size(pattern) == steps


@pytest.mark.parametrize("pattern", [r"(\pL?\pN?.?){60}a.{300}X", "(.?){1000}X", r"(((\w.){10}){10}){10}"])
def test_a_pattern_that_takes_too_long_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"too large.*maximum is {MAX_SIZE}"):
        check_regex(pattern)


@pytest.mark.parametrize(("pattern", "instead"), [(r"\Ax", r"\^"), (r"x\z", r"\$"), (r"\Cx", r"\.")])
def test_escapes_that_would_not_mean_what_they_say_are_refused(pattern: str, instead: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"use {instead}"):
        check_regex(pattern)


def test_an_escaped_backslash_is_no_escape() -> None:
    check_regex(r"\\Ax\\z")
