"""Other spellings: what is near, what is not, and what may be offered to whom."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.corpus import Language
from rag.store.read.spelling import (
    MOST_SPELLINGS,
    Spelling,
    as_written,
    edit_distances,
    edits,
    first_row_with,
    nearest_spellings,
    written_form,
)
from rag.store.read.word_analysis import query_words, terms_of
from rag.store.read.words_in_memory import (
    RESPELT,
    CountedRows,
    WordsInMemory,
    counted_rows,
    score_rows,
    score_with_spellings,
    unknown_words,
    words_of,
)

TEXTS = (
    "Bereavement leave is paid. Management approves annual leave.",
    "The government accommodates elephants in the environment.",
    "Frequent elections; the calendar of the committee. Occurrence of pneumonia.",
    "A café in Zürich, a naïve résumé. Hippopotamus.",
)
Asked = tuple[WordsInMemory, CountedRows]


def _asked(*texts: str, language: Language = "English") -> Asked:
    words = words_of(pa.array([terms_of(text, language) for text in texts], pa.string()))
    return words, counted_rows(words)


def _spelt(word: str, *texts: str, language: Language = "English") -> list[str]:
    """The other spellings of a word, as the texts write them."""
    texts = texts or TEXTS
    spellings = nearest_spellings(word, [language], *_asked(*texts, language=language))
    return [
        near.written for near in as_written(word, spellings, [" ".join(texts)] * len(spellings), [language])
    ]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("berevement", "bereavement"),  # a letter is missing
        ("xovernment", "government"),  # the first is wrong
        ("overnment", "government"),  # or missing
        ("ogvernment", "government"),  # or swapped
        ("calenddar", "calendar"),  # doubled
        ("calender", "calendar"),  # replaced
        ("goverment", "government"),
        ("managment", "management"),  # stems that are four letters apart
        ("managements's", ""),  # no word of letters
        ("acommodates", "accommodates"),
        ("ocurrance", "occurrence"),  # two errors, one of them in an ending
        ("pnuemonai", "pneumonia"),  # two errors
        ("hipoppotamus", "hippopotamus"),
        ("xipoppotamus", ""),  # the first letter is wrong, and another
        ("annualleave", "annual leave"),  # a space is missing
        ("elephantcommittee", ""),  # two words that no row has together
        ("zurrich", "zürich"),  # accents count for nothing
        ("resumé", "résumé"),
        ("cafee", "café"),
        ("caef", ""),  # too short
        ("leve", ""),
        ("kubernetes", ""),  # nothing is near
    ],
)
def test_a_misspelt_word_is_near_to_the_right_one(typed: str, meant: str) -> None:
    assert _spelt(typed) == ([meant] if meant else [])


@pytest.mark.parametrize(
    ("language", "text", "typed", "meant"),
    [
        ("German", "Der Urlaubsanspruch verfällt.", "urlaubsansruch", "urlaubsanspruch"),
        ("German", "Die Arbeitszeit und ein Konto", "arbeitszeitkonto", "arbeitszeit konto"),
        ("Russian", "Ежегодный отпуск сотрудников", "отпукс", "отпуск"),
        ("Russian", "Ежегодный отпуск сотрудников", "сотруднеков", "сотрудников"),
        ("French", "Le télétravail est accordé.", "telétravaille", "télétravail"),
        ("Italian", "La fattura del fornitore", "fatura", "fattura"),
        ("Spanish", "Los pagos por kilómetro", "kilometraje", "kilómetro"),
        ("French", "La licence du logiciel", "licenciement", ""),  # one stem, two words
        ("Italian", "La persona e i trovati", "pensione", ""),
        ("Italian", "È necessaria la materia", "decesso", ""),
        ("Spanish", "Es desde el patrón", "despido", ""),
        ("Swedish", "Semesterlön för anställda", "semesterlonn", "semesterlön"),
        ("English", "时钟和机器学习", "机器学系机器", ""),
    ],
)
def test_words_of_other_languages_and_scripts_have_neighbours_too(
    language: Language, text: str, typed: str, meant: str
) -> None:
    assert _spelt(typed, text, language=language) == ([meant] if meant else [])


def test_the_stem_of_what_is_no_word_is_no_other_spelling() -> None:
    """Stemmed as German, "ender" is "end", "usder" is "usd", and "datest" is "dat"."""
    words_and_counts = _asked("EUR 40 or USD 44 at the end of the lab date, and the VAT")
    for word in ("gender", "under", "during", "latest"):
        assert not nearest_spellings(word, ["English", "German"], *words_and_counts), word
    assert [near.terms for near in nearest_spellings("daate", ["English", "German"], *words_and_counts)] == [
        ("date",)
    ]


def test_two_words_are_words_by_themselves() -> None:
    assert _spelt("overtime", "the time is over") == ["over time"]
    assert not _spelt("overtime", "Full-time work, over 40 hours")


COMPOUNDS = """
versicherung | Krankenversicherung
versicherungen | Die Krankenversicherungen zahlen
krankenversicherungsbeitrag | Krankenversicherung
krankenversicherungsbeitrag | Beitrag, Versicherung
krankenversicherungsbeiträge | ein Beitrag
urlaub | Urlaubsregelung
regelung | Urlaubsregelung
urlaubsregelungen | Die Regelung des Urlaubs
vertrag | Mietvertrag
mietvertrag | Der Vertrag
vertragsende | Das Ende des Vertrags
stadion | Fußballstadion
fußballstadien | Fußball im Fernsehen
arbeitszeitkonto | Die Arbeitszeit
kündigungsfrist | Die Frist der Kündigung
kündigung | Kündigungsfrist
reisekostenabrechnung | Reisekosten
abrechnung | Reisekostenabrechnungen
gehaltserhöhung | Erhöhungen
datenschutzbeauftragter | Datenschutz
dienstwagen | Dienstwagenregelung
"""


@pytest.mark.parametrize("pair", COMPOUNDS.strip().splitlines())
def test_a_german_compound_is_found_by_its_parts_and_they_by_it(pair: str) -> None:
    word, text = (cell.strip() for cell in pair.split("|"))
    assert _spelt(word, text, "Etwas anderes.", language="German")


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("stellung", "Vorstellung, Bestellung"),
        ("ordnung", "Unterordnung"),
        ("leitung", "Begleiter"),
        ("rat", "Apparat"),
        ("krankenversicherung", "Unfallversicherung"),
        ("abteilung", "Verteilung"),
    ],
)
def test_other_words_are_no_parts(word: str, text: str) -> None:
    assert _spelt(word, text, language="German") == []


def test_only_german_words_have_parts_so() -> None:
    assert _spelt("versicherung", "Krankenversicherung", language="English") == []


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("PD-10", "PD-11"),
        ("parseJsonFile", "parseJsonFiles"),
        ("parseJsonFile", "parsejsonfil"),
        ("user_idea", "user_ideal"),
        ("TPL-0042", "TPL-0043"),
        ("123456", "123457"),
        ("v1beta2x", "v1beta3x"),
    ],
)
def test_names_and_numbers_stand_for_one_thing_each(name: str, near: str) -> None:
    assert _spelt(query_words(name, ["English"])[0].text, near) == []


def test_a_plain_word_may_stand_for_a_name() -> None:
    assert _spelt("parsejsonfilles", "parseJsonFiles") == ["parseJsonFiles"]


def test_a_word_is_unknown_if_no_counted_row_has_any_form_of_it() -> None:
    words, over = _asked(*TEXTS)
    query = query_words("BEREAVEMENTS managing elections Zurich quartz PD-1 leave", ["English"])
    assert unknown_words(query, words, over) == ["quartz", "PD-1"]
    without_first = counted_rows(words, np.array([False, True, True, False]))
    assert unknown_words(query, words, without_first) == [
        "bereavements",
        "managing",
        "zurich",
        "quartz",
        "PD-1",
        "leave",
    ]


def test_only_words_of_counted_rows_are_offered() -> None:
    words, over = _asked(*TEXTS)
    for row, word in ((0, "berevement"), (0, "annualleave"), (2, "pnuemonai")):
        without_row = counted_rows(words, np.arange(4) != row)
        assert nearest_spellings(word, ["English"], words, over)
        assert not nearest_spellings(word, ["English"], words, without_row)


def test_nearer_words_come_first_then_frequent_ones_and_there_are_few() -> None:
    texts = ["house", "mouse", "mouse blouse", "hose"]
    assert _spelt("rouse", *texts) == ["mouse", "house"]
    assert len(_spelt("rouse", *texts, "douse louse")) == MOST_SPELLINGS
    # What is two edits away counts only if nothing is nearer.
    assert _spelt("regulatoin", "regulation", "regulating") == ["regulation"]
    assert _spelt("paragprah", "paragraphs", "parachute") == ["paragraphs"]


def test_another_spelling_weighs_less_than_a_word_that_is_right() -> None:
    words, over = _asked("clock pendulum", "clock escapement")
    query = query_words("clock pendullum", ["English"])
    also = nearest_spellings("pendullum", ["English"], words, over)
    alone, plain = score_rows(words, query, over), score_rows(words, [near.word for near in also], over)
    scores = score_with_spellings(words, query, [near.word for near in also], over, every=False)
    assert scores == pytest.approx(alone + RESPELT * plain)
    assert scores[0] > scores[1] == alone[1]
    right = score_rows(words, query_words("clock pendulum", ["English"]), over)
    assert alone[0] < scores[0] < right[0]


def test_what_shows_a_word_is_the_counted_row_with_the_first_id() -> None:
    words, over = _asked("leave", "annual leaves", "annual leave", "annual")
    ids = pa.chunked_array([["a", "d", "c", "b"]])
    assert first_row_with(("leav",), words, over, ids) == 0
    assert first_row_with(("annual", "leav"), words, over, ids) == 2
    assert (
        first_row_with(("annual",), words, counted_rows(words, np.array([True, True, True, False])), ids) == 2
    )


def test_terms_are_shown_as_a_text_writes_them() -> None:
    assert written_form(("bereav",), TEXTS[0], ["English"]) == "bereavement"
    assert written_form(("annual", "leav"), TEXTS[0], ["English"]) == "annual leave"
    assert written_form(("bereav",), TEXTS[1], ["English"]) is None
    assert written_form(("bereav",), TEXTS[0], ["none"]) is None


@given(word=st.text("abc", min_size=1, max_size=6))
def test_words_that_one_edit_makes_are_one_edit_away(word: str) -> None:
    near = sorted(edits(word, "abc"))
    assert set(edit_distances(word, near)) <= {1}
    assert word not in near


@given(word=st.text("abc", min_size=1, max_size=6), words=st.lists(st.text("abcd", max_size=8), max_size=9))
def test_distances_are_those_of_the_usual_table(word: str, words: list[str]) -> None:
    assert edit_distances(word, words).tolist() == [_distance(word, listed) for listed in words]


def _distance(word: str, second: str) -> int:
    """Written letter by letter."""
    table = {(i, 0): i for i in range(len(word) + 1)} | {(0, j): j for j in range(len(second) + 1)}
    for i in range(1, len(word) + 1):
        for j in range(1, len(second) + 1):
            table[i, j] = min(
                table[i - 1, j] + 1,
                table[i, j - 1] + 1,
                table[i - 1, j - 1] + (word[i - 1] != second[j - 1]),
            )
            if i > 1 and j > 1 and word[i - 1] == second[j - 2] and word[i - 2] == second[j - 1]:
                table[i, j] = min(table[i, j], table[i - 2, j - 2] + 1)
    return table[len(word), len(second)]


def test_spellings_are_ordered_by_distance_then_by_rows() -> None:
    near, frequent, far = Spelling(("b",), 1, 1), Spelling(("a",), 1, 2), Spelling(("c",), 2, 9)
    assert sorted([far, near, frequent], key=lambda spelling: spelling.rank) == [frequent, near, far]
