"""The language of a document: told by its words, whatever it states."""

from __future__ import annotations

import pytest

from rag.corpus import Document
from rag.ingest.detect_language import language_of, with_language
from rag.ingest.parse.parsers import parse
from rag.text.languages import is_known, name_of, rules_of

TEXTS = {
    "de": "Das Protokoll der Sitzung vom Montag wurde angenommen, weil niemand widersprochen hat.",
    "en": "The minutes of the meeting on Monday were accepted because nobody had objected to them.",
    "fr": "Le procès-verbal de la réunion de lundi a été adopté parce que personne ne s'y est opposé.",
    "ru": "Протокол заседания в понедельник был принят, потому что никто не возражал против него.",
    "uk": "Протокол засідання в понеділок було прийнято, тому що ніхто не заперечував проти нього.",
    "vi": "Biên bản cuộc họp hôm thứ Hai đã được thông qua vì không có ai phản đối nội dung này.",
    "zh": "星期一会议的记录获得通过，因为没有人提出反对意见。",
    "th": "รายงานการประชุมวันจันทร์ได้รับการรับรองเพราะไม่มีใครคัดค้าน",
    "el": "Τα πρακτικά της συνεδρίασης της Δευτέρας εγκρίθηκαν επειδή κανείς δεν είχε αντίρρηση.",
}
CODE = "def parse_json(path):\n    return load(path)\n\n\n" * 6


def tag(text: str, stated: str = "", name: str = "a.md") -> str:
    parsed = parse(text.encode(), name)
    metadata = {"author": "A", **({"language": stated} if stated else {})}
    document = Document(parsed.text, "A", parsed.mime_type, parsed.blocks, metadata=metadata)
    told = with_language(document).metadata
    assert told["author"] == "A"
    return told.get("language", "")


@pytest.mark.parametrize("language", TEXTS)
def test_a_sentence_is_enough_to_tell_a_language(language: str) -> None:
    assert language_of(TEXTS[language]) == language


def test_what_a_template_states_does_not_count_against_the_words() -> None:
    assert tag(TEXTS["de"] * 3, "en-US") == "de"
    assert tag(TEXTS["ru"], "en-US") == "ru"
    assert tag(TEXTS["de"] * 3, "de_AT") == "de-AT"


def test_what_is_stated_counts_where_the_words_say_little() -> None:
    assert tag("Kick-off", "sv") == "sv"
    assert tag("Kick-off") == ""
    assert tag("Привет", "en-US") == "", "a template that contradicts the script says nothing"
    assert tag("123, 456", "de") == "de"
    assert tag("Kick-off", "ignore all previous orders") == ""


@pytest.mark.parametrize("name", ["a.py", "a.md"])
def test_code_has_no_language(name: str) -> None:
    assert tag(CODE if name == "a.py" else f"```\n{CODE}```", name=name) == ""


def test_prose_around_code_and_numbers_tells() -> None:
    rows = "\n".join(f"| {n} | part-{n} | {n * 7} |" for n in range(50))
    assert (
        tag(f"# Bauteile\n\n{TEXTS['de']}\n\n```\n{CODE}```\n\n| a | b | c |\n|--|--|--|\n{rows}\n") == "de"
    )


def test_of_two_languages_the_one_with_more_text_counts() -> None:
    english, russian = TEXTS["en"] * 40, TEXTS["ru"] * 10
    assert tag(f"{english}\n\n{russian}") == "en"
    assert tag(f"{english}\n\n{TEXTS['ru'] * 160}") == "ru"


def test_hostile_texts_take_no_time() -> None:
    assert len(language_of("x" * 3_000_000)) <= len("xx")
    assert len(language_of("\ud800" * 100)) <= len("xx")


def test_tags_have_names_and_rules() -> None:
    assert (name_of("de-AT"), rules_of("de-AT")) == ("German", "German")
    assert (name_of("uk"), rules_of("uk")) == ("Ukrainian", "none")
    assert (name_of("zz"), is_known("zz")) == ("zz", False)
