"""Chunks of languages that the embedder doesn't know: as large as a reader needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.ingest.chunk import passages
from rag.ingest.detect_language import foreign_parts, is_within, words_in
from rag.ingest.parse.parsers import parse
from rag.ingest.split_text import Measure, Reading
from rag.models.tokenizer import BUILTIN_MODEL, Tokens

if TYPE_CHECKING:
    from rag.corpus import Document, Passage

SPANS = Tokens(BUILTIN_MODEL / "tokenizer.json").spans
LIMIT = 254  # tokens, as by default
ENGLISH = "The keeper of the lighthouse counts the ships that pass in the night and writes them down. "
TRANSLATED = {
    "Russian": "Смотритель маяка считает корабли, проходящие ночью, и записывает их в свою книгу. ",
    "Greek": "Ο φύλακας του φάρου μετρά τα πλοία που περνούν τη νύχτα και τα καταγράφει. ",
    "Arabic": "يحصي حارس المنارة السفن التي تمر في الليل ويسجلها في دفتره الكبير كل مساء. ",
    "Hindi": "प्रकाशस्तंभ का रखवाला रात में गुजरने वाले जहाजों को गिनता है और उन्हें लिखता है। ",
}


def known(text: str) -> float:
    """As an English model: the share of characters that are ASCII."""
    return sum(map(str.isascii, text)) / len(text)


def document(text: str) -> Document:
    return parse(text.encode(), "a.md")


def cut(text: str, limit: int = LIMIT, slack: int = 0) -> list[Passage]:
    parsed = document(text)
    reading = Reading(foreign_parts(parsed, known), slack)
    return passages(parsed, token_spans=SPANS, limit=limit, reading=reading)


def average(found: list[Passage]) -> float:
    return sum(one.end - one.start for one in found) / len(found)


@pytest.mark.parametrize("language", TRANSLATED)
def test_a_passage_has_as_much_text_in_any_language(language: str) -> None:
    """Without that, it would have 250 to 450 characters, as many as the English model has tokens for."""
    text = TRANSLATED[language] * 60
    by_tokens = passages(document(text), token_spans=SPANS, limit=LIMIT)
    assert average(cut(text)) > 0.6 * average(cut(ENGLISH * 60))
    assert average(by_tokens) < 0.5 * average(cut(ENGLISH * 60))


def test_a_text_in_english_is_cut_as_before() -> None:
    text = "# Light\n\n" + ENGLISH * 30 + "\n\nA naïve café on the quay. " + ENGLISH * 30
    assert cut(text) == passages(document(text), token_spans=SPANS, limit=LIMIT)


def test_a_chapter_in_another_language_has_passages_of_its_size_and_the_others_fit_the_window() -> None:
    text = (
        f"# Manual\n\n{ENGLISH * 20}\n\n# Глава\n\n{TRANSLATED['Russian'] * 20}\n\n# Index\n\n{ENGLISH * 20}"
    )
    parsed, found = document(text), cut(text)
    foreign = foreign_parts(parsed, known)
    english = [one for one in found if not is_within(foreign, (one.start, one.end))]
    russian = [one for one in found if one not in english]
    assert [one.section for one in russian] == [("Глава",)] * len(russian)
    assert max(one.tokens for one in english) <= LIMIT < max(one.tokens for one in russian)


def test_a_passage_in_both_languages_fits_the_window() -> None:
    text = "\n\n".join([ENGLISH * 2, TRANSLATED["Russian"] * 2] * 6)
    foreign = foreign_parts(document(text), known)
    mixed = [one for one in cut(text) if not is_within(foreign, (one.start, one.end))]
    assert mixed
    assert max(one.tokens for one in mixed) <= LIMIT


def test_a_model_that_knows_the_language_reads_all_of_its_passages() -> None:
    text = TRANSLATED["Russian"] * 60
    found = passages(document(text), token_spans=SPANS, limit=128, reading=Reading((), slack=384))
    assert 256 < max(one.tokens for one in found) <= 512
    assert average(found) > average(passages(document(text), token_spans=SPANS, limit=128))


def test_a_long_run_without_spaces_is_not_one_token() -> None:
    """The tokenizer takes a sentence in Thai for a single unknown token."""
    text = "ผู้ดูแลประภาคารนับเรือที่แล่นผ่านในเวลากลางคืนและจดบันทึกไว้ในสมุด" * 30
    assert max(one.end - one.start for one in cut(text)) <= 4 * LIMIT


def test_code_counts_as_before_and_few_words_are_like_their_neighbours() -> None:
    code = "```\n" + "величина = посчитай_корабли()\n" * 20 + "```"
    text = f"{TRANSLATED['Russian'] * 4}\n\n{code}\n\nOK.\n\n{TRANSLATED['Russian'] * 4}"
    first, second = foreign_parts(document(text), known)
    assert text[first.end :].strip().startswith("```")
    assert text[second.start :].startswith("OK.")


def test_words_are_told_from_numbers_names_and_addresses() -> None:
    assert words_in("Restart nginx_2 (see https://a.b): теперь 5 раз") == "Restart (see теперь раз"


def test_hostile_words_are_measured_in_linear_time() -> None:
    text = "я" * 90_000 + " " + "x" * 90_000 + "я"
    measure = Measure(text, SPANS, Reading())
    assert measure.units(0, 90_000) == 90_000 // 4
