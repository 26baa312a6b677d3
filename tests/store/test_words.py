"""The words of chunks: how texts are split into them, found by them, and ranked by BM25."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from unicodedata import normalize

import pytest

from rag.corpus import Language
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.strict_reader import Asker, strict_reader
from rag.store.read.word_analysis import (
    MAX_TERMS,
    names_in,
    query_terms,
    query_words,
    search_terms,
    spoken_language,
    stems,
    terms_of,
    version_pattern,
    words_in_text,
)
from rag.store.read.words_in_memory import rarity
from rag.text.scripts import without_particles
from tests.tables import table_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What is a leap second?", "leap second?"),
        ("Is it THE pendulum, or not?", "pendulum,"),
        ("to be or not to be", "to be or not to be"),
        ("the (and)", "the (and)"),
        ("user_id if v1.0.21", "user_id v1.0.21"),
        ("", ""),
    ],
)
def test_stop_words_do_not_count_unless_there_is_nothing_else(query: str, expected: str) -> None:
    assert query_terms(query, ["English"]) == expected.split()


@pytest.mark.parametrize(
    ("version", "having", "lacking"),
    [
        ("2.19", "2.19,2.19.1,v2_19,core-2.19,<2.19,2:19,2. 19", "1.2.19,12.19,2.190,219"),
        ("v3.5", "3.5,V3.5,3/5", "3.50,13.5"),
        ("2.15.0-rc1", "2.15.0rc1,2.15.0-rc.1", "2.15.0,2.15.0-rc12,2.15.0-beta1"),
        ("2.15.0", "2.15.0-beta", "2.15"),
    ],
)
def test_a_version_is_found_however_it_is_written(version: str, having: str, lacking: str) -> None:
    pattern = version_pattern(version)
    assert [text for text in having.split(",") if not pattern.search(text)] == []
    assert [text for text in lacking.split(",") if pattern.search(text)] == []


def test_each_language_has_its_own_stop_words_and_some_have_none() -> None:
    assert query_terms("was ist die Uhr in", ["German"]) == ["Uhr"]
    assert query_terms("wann und wem hat wer die Uhr warum", ["German"]) == ["Uhr"]
    assert query_terms("was ist die Uhr", ["German", "Russian"]) == ["Uhr"]
    assert query_terms("was ist die Uhr in", ["none"]) == ["was", "ist", "die", "Uhr", "in"]


@pytest.mark.parametrize(
    ("query", "languages", "expected"),
    [
        ("was ist die Uhr in", ["English"], "Uhr"),
        ("what is the time of it", ["German"], "time"),
        ("what is the time", ["Russian"], "time"),
        ("what is the time of it", ["German", "none"], "time"),
        ("die hard", ["English"], "die hard"),
        ("is it true that man also died in war", ["English"], "true man also died war"),
        ("was ist die Uhr in", ["none"], "was ist die Uhr in"),
    ],
)
def test_the_stop_words_of_another_language_than_the_documents_are_left_out_where_it_is_plainly_spoken(
    query: str, languages: Sequence[Language], expected: str
) -> None:
    assert query_terms(query, languages) == expected.split()


@pytest.mark.parametrize(
    ("query", "language"),
    [
        ("Who is the king of the island?", "English"),
        ("Wer ist der König der Insel?", "German"),
        ("python sort list", None),
        ("in was", None),  # both languages have them
        ("the king der König", None),
        ("Hvad skal man gøre for at komme ind på det for første gang?", None),
        ("Wat is de naam van de man die als eerste koning of keizer was?", None),
        ("Кто король этого острова?", None),
        ("", None),
    ],
)
def test_the_language_of_a_query_is_told_by_stop_words_that_no_other_has(
    query: str, language: Language | None
) -> None:
    assert spoken_language(query) == language


@pytest.mark.parametrize("languages", [["English", "German"], ["German", "English", "none"]])
def test_of_several_languages_the_stop_words_of_the_one_that_is_spoken_are_left_out(
    languages: Sequence[Language],
) -> None:
    assert query_terms("was ist die Uhr", languages) == ["Uhr"]
    assert query_terms("how did the war end", languages) == ["did", "war", "end"]


@pytest.mark.parametrize(
    ("query", "language", "expected"),
    [
        ("Which clocks were running?", "English", "clocks=clock were=were running=run"),
        ("run, running", "English", "run=run running=run"),
        ("Größere Häuser", "German", "größere=gross häuser=haus"),
        ("Häuser", "none", "häuser=hauser"),
        ("PD-1", "none", "PD-1=pd+1/pd1"),
        ("PD1s", "none", "PD1s=pd+1+s/pd1s"),
        ("PRC1-bound", "none", "PRC1-bound=prc+1+bound/prc1bound/prc1+bound"),
        ("parseJsonFile", "none", "parseJsonFile=parsejsonfile/parse+json+file"),
        ("user_ids", "English", "user_ids=user+id/userid"),
        ("机器学习", "none", "机器=机器 学习=学习"),
        ("", "English", ""),
    ],
)
def test_words_of_a_query_have_all_forms_that_the_index_may_have_of_them(
    query: str, language: Language, expected: str
) -> None:
    words = query_words(query, [language])
    forms = [f"{word.text}={'/'.join('+'.join(form) for form in word.forms)}" for word in words]
    assert forms == expected.split()


DATES = [
    "8 March 2025",
    "March 8th, 2025",
    "8. März 2025",
    "le 8 mars 2025",
    "8 de marzo de 2025",
    "8 de março de 2025",
    "8 marzo 2025",
    "8 maart 2025",
    "8 mars 2025",
    "8. maaliskuuta 2025",
    "8 marca 2025 r.",
    "8. března 2025",
    "8 березня 2025 року",
    "8 марта 2025 года",
    "8 Mart 2025",
    "8 martie 2025",
    "2025. március 8.",
    "8 Μαρτίου 2025",
    "8 مارس 2025",
    "٨ مارس ٢٠٢٥",
    "8 במרץ 2025",
    "8 मार्च 2025",
    "2025年3月8日",
    "令和7年3月8日",
    "民國114年3月8日",
    "8 มีนาคม 2568",
    "2025년 3월 8일",
    "ngày 8 tháng 3 năm 2025",
    "2025-03-08",
    "2025/3/8",
    "2025.03.08",
    "08.03.2025",
    "8. 3. 2025",
    "08/03/2025",
    "3/8/2025",
    "8-Mar-2025",
]


@pytest.mark.parametrize("written", DATES)
def test_a_day_is_there_however_it_is_written_here_and_there(written: str) -> None:
    for text in DATES:
        assert _share(written, f"On {text}, it was decided") >= 0.75, text  # le, ngày, года
        assert set(search_terms(query_words(written, ["English"]))) & set(stems(text, "English"))
    for text in ("9 March 2025", "2025-03-18", "8 April 2025", "08.03.2024"):
        assert _share("2025-03-08", f"On {text}, it was decided") == 0


@pytest.mark.parametrize(
    "month", ["March 2025", "März 2025", "marca 2025", "2025年3月", "2025-03", "03/2025", "03.2025"]
)
def test_a_month_is_there_in_its_days(month: str) -> None:
    for day in DATES:
        assert _share(month, f"On {day}, it was decided") == 1, day
    assert _share("2025-04", f"In {month}, it was decided") == 0


def test_a_day_that_could_be_two_is_found_as_either() -> None:
    for text in ("3 April 2025", "4 March 2025", "2025-04-03"):
        assert _share("03/04/2025", text) == 1
        assert _share(text, "03/04/2025") == 1
    assert _share("03.04.2025", "4 March 2025") == 0


@pytest.mark.parametrize("query", ["Marketing 2024", "the march of 5 people", "May I go?", "Mayor 2025"])
def test_other_words_are_no_months(query: str) -> None:
    assert all(len(word.forms) == 1 for word in query_words(query, ["English"]))


def test_a_version_is_found_without_its_v() -> None:
    (word,) = query_words("v4.1.2", ["English"])
    assert ("4.1.2",) in word.forms
    assert ("4.1.2",) in query_words("4.1.2", ["English"])[0].forms


def test_in_several_languages_a_word_is_one_word_with_the_stems_of_each() -> None:
    words = query_words("running Häuser", ["English", "German"])
    assert [word.forms for word in words] == [(("run",), ("running",)), (("hauser",), ("haus",))]
    assert search_terms(words) == ["run", "hauser", "running", "haus"]


SAME = [
    ["PD-1", "PD1", "pd1", "PD‑1"],
    ["parseJsonFile", "parse_json_file", "parse-json-file", "parsejsonfile", "ParseJSONFile"],
    ["HTTPServer", "HttpServer", "http_server", "HTTP-server"],
    ["sha256", "SHA-256", "Sha256"],
    ["1,000", "1000", "1.000"],
    ["12,345,678", "12345678", "12 345 678", "12'345'678"],
    ["450,000", "450000", "450 000", "450\u00a0000", "450\u202f000", "450.000"],
    ["1234.56", "1234,56", "1,234.56", "1.234,56", "1 234,56", "1\u202f234,56", "1'234.56"],
    ["U.S.", "US", "u.s"],
    ["AB-1234", "AB1234", "ab_1234"],
    ["AB-1234/56", "AB1234/56"],
    ["node.js", "nodejs", "NodeJS"],
    ["e-mail", "email", "E‐Mail"],
    ["O'Neil", "ONeil", "O’Neil"],
    ["3.14", "3,14"],
    ["1.2.3", "1.2.3"],
    ["H2O", "H₂O"],
    ["C++", "c++"],
    ["ASP.NET", "AspNet"],
]


def test_the_keys_of_a_setting_may_stand_below_each_other() -> None:
    chart = "server:\n  volume:\n    mode: RW\n    size: 8Gi"
    assert _share("server.volume.size", chart) == 1
    assert _share("server.volume.path", chart) == 0
    assert _share("worker.volume.size", chart) == 0


def _share(query: str, text: str) -> float:
    """The share of the query's words, each counted once, that a text has."""
    words = {word.forms: word for word in query_words(query, ["English"])}.values()
    return len(words_in_text(words, text, "English")) / max(1, len(words))


@pytest.mark.parametrize("written", SAME, ids=lambda forms: forms[0])
def test_a_name_is_found_as_a_whole_however_it_is_written_here_and_there(written: list[str]) -> None:
    for query in written:
        for text in written:
            assert _share(query, f"all of {text}, and more") == 1, (query, text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f3outside", "Stand outside the hall. Floor 3, wing F."),
        ("f3outside", "press f3"),
        ("abc-123x", "abc 123 and 123x and abc-123"),
        ("getUserName", "get the user a name"),
        ("getUserName", "UserName"),
        ("TPL-0042", "The template TPL, and form 0042"),
        ("user_name", "a user without a name"),
        ("README.md", "the readme, and files in md"),
        ("v1.2.3", "of 2.3"),
        ("app.Client.get_json", "an app with a client"),
    ],
)
def test_a_name_is_not_there_by_one_of_its_parts_or_by_parts_in_different_places(
    name: str, text: str
) -> None:
    assert _share(name, text) == 0
    assert _share(name, f"{text} {name}") == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("f3outside", "press F3 outside"),
        ("abc-123x", "abc 123x"),
        ("TPL-0042", "TPL: 0042"),
        ("get_user_name", "get user names"),
        ("user_name", "getUserName"),
        ("getUserName", "getUserNameById"),
        ("app.Client.get_json", "def get_json(self)"),
        ("numpy.linalg.norm", "linalg.norm(x)"),
        ("torch.nn.CrossEntropyLoss", "class CrossEntropyLoss:"),
        ("l'avion", "des avions, l'eau"),
        ("the clock's", "clocks of Albert's"),
    ],
)
def test_a_name_is_there_with_its_parts_together_and_two_words_anywhere(name: str, text: str) -> None:
    assert _share(name, text) == 1


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("parseJsonFile", "json"),
        ("HTTPServer", "server"),
        ("sha256", "sha"),
        ("PD-1", "PD"),
        ("AB-1234/56", "1234"),
        ("AB-1234/56", "AB-1234"),
        ("v1.2.3", "1.2.3"),
        ("src/main/app.py", "app.py"),
        ("src/main/app.py", "main"),
        ("ann.smith@example.co.uk", "smith"),
        ("ann.smith@example.co.uk", "example"),
        ("l'avion", "avion"),
        ("l’avion", "avion"),
        ("don't", "don"),
        ("the clock's hands", "clock"),
        ("state-of-the-art", "art"),
        ("snake_case", "snake"),
        ("__init__", "init"),
    ],
)
def test_a_name_is_found_by_its_parts_and_its_parts_by_the_name(text: str, part: str) -> None:
    assert _share(part, f"see {text}.") == 1
    assert set(search_terms(query_words(text, ["English"]))) & set(stems(part, "English"))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("C++", "C#"),
        ("C#", "vitamin C"),
        ("3.14", "314"),
        ("1000", "1, 000 of 10,000"),
        ("PD-1", "PD-2 in 1 of 9"),
        ("PD1", "PD-12"),
        ("sha256", "sha512 and 256 of them"),
    ],
)
def test_names_that_differ_are_not_taken_for_each_other(query: str, text: str) -> None:
    whole = query_words(query, ["English"])[0].forms[-1]
    assert not set(whole) <= set(stems(text, "English"))
    assert set(whole) <= set(stems(f"It is {query}.", "English"))


def test_other_forms_stand_at_the_end_and_lengthen_a_text_only_once() -> None:
    assert terms_of("PD-1, PD-1 and the pd of getPd", "none") == "pd 1 pd 1 and the pd of getpd pd1 get"
    assert terms_of("plain words", "none") == "plain words"


@pytest.mark.parametrize("written", ["APIs", "LLMs", "CoT", "PhD", "plain", "GmbH"])
def test_abbreviations_are_words(written: str) -> None:
    assert stems(written, "none") == [written.lower()]


def test_brands_are_words_and_names_in_code_have_parts() -> None:
    assert stems("TypeScript, GitHub.", "none") == ["typescript", "github"]
    assert stems("new JsonParser(x)", "none") == ["new", "jsonparser", "x", "json", "parser"]
    assert stems("JsonParser.parse", "none") == ["jsonparser", "parse", "jsonparserparse", "json", "parser"]


def test_digests_and_encoded_pictures_are_not_taken_to_pieces() -> None:
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    assert stems(digest, "none") == [digest]
    assert len(stems("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ", "none")) == 1


def test_accents_are_the_same_however_they_are_encoded_and_invisible_characters_do_not_count() -> None:
    assert stems("e\u0301tude", "none") == stems("étude", "none") == ["etude"]
    assert stems("co\u00adoperate", "none") == ["cooperate"]
    assert stems("ＰＤ－１ ﬁle", "none") == ["pd", "1", "file", "pd1"]
    assert stems("İSTANBUL ISI", "Turkish") == stems("istanbul ısı", "Turkish")


def test_of_long_queries_the_first_words_count_and_other_forms_only_where_there_is_room() -> None:
    words = [f"w{chr(97 + at // 26)}{chr(97 + at % 26)}" for at in range(MAX_TERMS)]
    assert search_terms(query_words(" ".join(["PD-1", *words]), ["none"]))[-2:] == words[-3:-1]
    assert search_terms(query_words(" ".join(["PD-1", *words[:9]]), ["none"]))[-1] == "pd1"


def test_stems_are_all_words_of_a_text_in_their_order() -> None:
    assert stems("The clocks, the Clock!", "English") == ["the", "clock", "the", "clock"]


@pytest.mark.parametrize(
    ("query", "share"),
    [
        ("Which pendulums were swinging?", 2 / 3),  # "were" is no stop word
        ("the clock in a tower", 1),
        ("a clock, the Clocks and penguins", 1 / 2),
        ("penguins", 0),
        ("the", 0),
        ("?!", 0),
        ("swing-towers", 1),
        ("swing-penguins", 0),
    ],
)
def test_the_share_of_words_counts_each_word_of_the_query_once_whatever_its_form(
    query: str, share: float
) -> None:
    text = "A pendulum swings.\n\nTower clocks of a tower clock."
    assert _share(query, text) == pytest.approx(share)


def test_where_a_mark_makes_another_letter_words_keep_it_and_are_found_without_it_too() -> None:
    assert stems("thủ đô Việt Nam", "Vietnamese") == ["thủ", "đô", "việt", "nam", "thu", "do", "viet"]
    assert search_terms(query_words("thủ đô", ["Vietnamese"])) == ["thủ", "đô"]
    assert search_terms(query_words("thu do", ["Vietnamese"])) == ["thu", "do"]
    languages: list[Language] = ["English", "Vietnamese"]
    assert search_terms(query_words("thủ đô", languages)) == ["thủ", "đô"]
    assert search_terms(query_words("naïve", languages)) == ["naiv", "naïve"]
    assert set(stems("år", "Swedish")) == {"år", "ar"}
    assert stems("ar", "Swedish") == ["ar"]
    assert stems("thủ đô", "none") == ["thu", "do"]


EVERYTHING = "(true)"


async def _found(reader: CollectionReader, text: str) -> list[tuple[str, float]]:
    return [(hit.stored.body, round(hit.score, 4)) for hit in await reader.sparse(text, 9, EVERYTHING)]


async def _stored(small_desk: ModuleType, data: Path) -> Path:
    async with await small_desk.writing(data) as writer:
        texts = ["the clocks tick", "a pendulum swings", "clock towers, a clock"]
        await writer.replace([small_desk.new_source(writer, str(at), text) for at, text in enumerate(texts)])
        await writer.finish()
    return data


async def test_strict_lists_are_those_of_the_index(tmp_path: Path, small_desk: ModuleType) -> None:
    reader = await table_of(await _stored(small_desk, tmp_path))
    strict = await strict_reader(reader, Asker(EVERYTHING, lambda _: True, "", "anybody"))
    listed = await strict.sparse("clocks that swing", 9, EVERYTHING)
    assert len(listed) == 3
    in_engine = await _found(reader, "clocks that swing")
    assert [(scored.stored.body, round(scored.score, 4)) for scored in listed] == in_engine


@pytest.mark.slow
async def test_names_are_found_in_all_forms_with_collection_statistics_and_strict_ones(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        texts = ["an inhibitor of PD-1", "PD1 is a protein", "parseJsonFile reads it", "parse a file", "else"]
        await writer.replace([small_desk.new_source(writer, text, text) for text in texts])
        await writer.finish()
    reader = await table_of(tmp_path)
    strict = await strict_reader(reader, Asker(EVERYTHING, lambda _: True, "", "anybody"))
    for query, every, expected in (
        ("PD1", False, texts[:2]),
        ("pd-1", True, texts[:2]),
        ("PD-1 protein", True, texts[1:2]),
        ("parse_json_file", False, texts[2:4]),
        ("parse_json_file", True, texts[2:3]),
        ("the json file", False, texts[2:4]),
    ):
        for lists in (reader, strict):
            ranking = await lists.sparse(query, 9, EVERYTHING, every=every)
            assert sorted(hit.stored.chunk.text for hit in ranking) == sorted(expected), (query, every)


def test_the_rarer_a_word_the_more_it_counts_and_none_counts_less_than_nothing() -> None:
    assert [round(rarity(1000, holding), 4) for holding in (1, 500, 1000)] == [6.5033, 0.6931, 0.0005]


KOREAN = """
점심을 점심|점심은 점심|점심부터 점심|식권은 식권|식권을 식권|경비실에서 경비실
경비실에서는 경비실|구내식당에서는 구내식당|회사의 회사|회의는 회의|휴가를 휴가
직원들에게 직원|직원들은 직원|규정에 규정|규정에는 규정|서울까지 서울|서울에서 서울
문서입니다 문서|안내합니다 안내|신청하는 신청
"""


@pytest.mark.usefixtures("in_linear_time")
def test_a_long_run_of_persian_letters_is_one_word_found_in_linear_time() -> None:
    for letters in ("\u0633" * 100_000, "\ufdfc" * 25_000):  # rial, one letter for four
        assert [*names_in(letters)] == [(normalize("NFKC", letters), None)]


@pytest.mark.parametrize("pair", KOREAN.replace("\n", "|").strip("|").split("|"))
def test_a_korean_noun_is_found_with_and_without_particles(pair: str) -> None:
    written, noun = pair.split()
    assert stems(written, "none") == stems(noun, "none") == [noun]
    assert stems(f"{noun}이 아니다", "none")[0] == noun


@pytest.mark.parametrize(
    "word", ["회의", "사과", "고가", "도로", "하나", "서울", "나는", "Müller는", "東京は"]
)
def test_a_word_of_two_syllables_is_left_whole(word: str) -> None:
    assert without_particles(word) == word
