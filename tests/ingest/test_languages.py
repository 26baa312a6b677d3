"""The language of a document, told by its words, and the rules by which a collection analyses words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from rag.config.settings import IngestSettings, SearchSettings
from rag.corpus import Collection, Document, Language, Principal
from rag.home import newest_manifest
from rag.ingest.document_languages import language_of, with_language
from rag.ingest.ingest_run import Instructions, ingest
from rag.ingest.parse.parsers import parse
from rag.ingest.report import Progress, Report
from rag.ingest.requested_access import Rights
from rag.ingest.rework_stored import change_language
from rag.search.desk import Desk
from rag.store.read.desk_reader import DeskReader
from rag.store.read.word_analysis import query_languages
from rag.store.write import table_rows
from rag.store.write.change_collection import open_writer
from rag.store.write.make_collection import ensure_collection
from rag.text.languages import is_known, name_of, rules_of
from tests.small_desk import BagOfWords
from tests.tables import table_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("without_compaction", "parsing_here")]


# The language of a document: told by its words, whatever it states.

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
    tagged = with_language(document).metadata
    assert tagged["author"] == "A"
    return tagged.get("language", "")


@pytest.mark.parametrize("language", TEXTS)
def test_a_sentence_is_enough_to_tell_a_language(language: str) -> None:
    assert language_of(TEXTS[language]) == language


def test_what_a_template_states_does_not_count_against_the_words() -> None:
    assert tag(TEXTS["de"] * 3, "en-US") == "de"
    assert tag(TEXTS["ru"], "en-US") == "ru"


def test_a_language_has_one_form_so_that_a_filter_finds_all_its_documents() -> None:
    assert {tag(TEXTS["de"] * 3, code) for code in ("de_AT", "DE", "de-CH-1996", "ger", "deu", "en-US")} == {
        "de"
    }
    assert {tag("123, 456", code) for code in ("nb", "nn-NO", "NOR")} == {"no"}
    assert tag("123, 456", "gsw") == "gsw", "what can't be checked is believed"


def test_what_is_stated_counts_where_the_words_say_little() -> None:
    assert tag("Kick-off", "sv") == "sv"
    assert tag("Kick-off") == ""
    assert tag("Привет", "en-US") == "", "a template that contradicts the script says nothing"
    assert tag("123, 456", "de") == "de"
    assert tag("Kick-off", "ignore all previous orders") == ""


@pytest.mark.parametrize("name", ["a.py", "a.md"])
def test_code_has_no_language(name: str) -> None:
    assert tag(CODE if name == "a.py" else f"```\n{CODE}```", name=name) == ""


def test_prose_around_code_and_numbers_tells_the_language() -> None:
    rows = "\n".join(f"| {n} | part-{n} | {n * 7} |" for n in range(50))
    assert (
        tag(f"# Bauteile\n\n{TEXTS['de']}\n\n```\n{CODE}```\n\n| a | b | c |\n|--|--|--|\n{rows}\n") == "de"
    )


def test_a_table_with_few_kana_or_japanese_forms_is_japanese() -> None:
    head, row = "申請日,申請者,科目,備考\n", "2024/04/11,佐藤花子,接待交際費,{}\n"
    assert tag(head + row.format("会食") * 2 + row.format("タクシー"), name="a.csv") == "ja"
    assert tag(head + row.format("支払済"), name="a.csv") == "ja"
    assert tag(head + row.format("会食"), name="a.csv") == "zh"
    assert tag(f"{TEXTS['zh'] * 3}店名是“優の良品”。") == "zh"


def test_signs_of_currencies_are_no_language() -> None:
    prices = "".join(f"AX-{at},Hex bolt,{at}.01 €,{at}.50 €\n" for at in range(60))
    assert tag(f"Article no.,Description,Price,Price from\n{prices}", name="a.csv") in {"", "en"}


def test_of_two_languages_the_one_with_more_text_counts() -> None:
    english, russian = TEXTS["en"] * 40, TEXTS["ru"] * 10
    assert tag(f"{english}\n\n{russian}") == "en"
    assert tag(f"{english}\n\n{TEXTS['ru'] * 160}") == "ru"


def test_hostile_texts_take_no_time() -> None:
    assert len(language_of("x" * 3_000_000)) <= len("xx")
    assert len(language_of("\ud800" * 100)) <= len("xx")


def test_a_language_has_a_name_and_rules() -> None:
    assert (name_of("de-AT"), rules_of("de-AT")) == ("German", "German")
    assert (name_of("uk"), rules_of("uk")) == ("Ukrainian", "none")
    assert (name_of("zz"), is_known("zz")) == ("zz", False)


# The words of a collection, analysed as each document's own language has them.


@dataclass(frozen=True, slots=True)
class Shelf:
    """Files, and a collection made of them."""

    small: ModuleType
    files: Path
    data: Path

    async def ingest(self, **texts: str | None) -> Report:
        for name, text in texts.items():
            path = self.files / name.replace("_", ".")
            path.unlink() if text is None else path.write_text(text, encoding="utf-8")
        return cast("Report", await self.small.ingested(self.data, self.files))

    async def collection(self) -> Collection:
        (collection,) = await DeskReader(self.data, timeout_seconds=15).collections("default")
        return collection

    async def names_by_words(self, query: str, *, every: bool = False) -> set[str]:
        table = await table_of(self.data)
        names = {source.id: source.name for source in await table.listing()}
        hits = await table.sparse(query, 20, "(true)", every=every)
        return {names[hit.stored.chunk.source_id] for hit in hits}


@pytest.fixture
def shelf(small_desk: ModuleType, tmp_path: Path) -> Shelf:
    (tmp_path / "files").mkdir()
    return Shelf(small_desk, tmp_path / "files", tmp_path / "data")


@pytest.mark.slow
async def test_each_document_is_found_by_the_forms_of_words_in_its_own_language(shelf: Shelf) -> None:
    report = await shelf.ingest(a_md=TEXTS["de"], b_md=TEXTS["ru"], c_md=TEXTS["en"], d_md=TEXTS["uk"])
    assert report.languages == {"de": 1, "en": 1, "ru": 1, "uk": 1}
    assert (await shelf.collection()).languages == ("English", "German", "Russian", "none")
    assert await shelf.names_by_words("Protokolle der Sitzungen") == {"a.md"}
    assert await shelf.names_by_words("заседание") == {"b.md"}
    assert await shelf.names_by_words("meetings, accepting") == {"c.md"}
    assert await shelf.names_by_words("засідання") == {"d.md"}
    assert await shelf.names_by_words("meeting minute", every=True) == {"c.md"}
    assert await shelf.names_by_words("Protokolle der Sitzungen", every=True) == {"a.md"}


@pytest.mark.slow
async def test_a_collection_that_becomes_german_takes_its_code_along(shelf: Shelf) -> None:
    """A document without a language follows the others, also after these have changed."""
    await shelf.ingest(a_md=TEXTS["en"], notiz_md="Uhren", prog_py=CODE)
    assert (await shelf.collection()).languages == ("English",)
    assert await shelf.names_by_words("Uhr") == set(), (
        "a word of a few letters has no language, so it is English"
    )
    report = await shelf.ingest(a_md=TEXTS["de"])
    assert [outcome.outcome for outcome in report.outcomes if outcome.path.endswith("a.md")] == ["replaced"]
    assert (await shelf.collection()).languages == ("German",)
    assert await shelf.names_by_words("Uhr") == {"notiz.md"}
    await shelf.ingest(a_md=None)
    assert query_languages(await shelf.collection()) == ("English",)


@pytest.mark.slow
async def test_a_run_without_changes_writes_nothing(shelf: Shelf) -> None:
    await shelf.ingest(a_md=TEXTS["de"])
    before = await shelf.collection()
    report = await shelf.ingest()
    assert report.languages == {"de": 1}
    assert await shelf.collection() == before


@pytest.mark.slow
async def test_texts_too_short_for_a_language_leave_the_catalog_alone(shelf: Shelf) -> None:
    """They are analysed as English, which no run has to note first and drop at its end."""
    await shelf.ingest(a_md="Uhren")
    before = newest_manifest(shelf.data / "tables" / "collections.lance")
    report = await shelf.ingest(a_md="Pendel")
    assert report.counts["replaced"] == 1
    assert newest_manifest(shelf.data / "tables" / "collections.lance") == before


@pytest.mark.parametrize("language", ["English", "German"])
async def test_documents_in_another_language_than_the_collection_are_warned_of(
    shelf: Shelf, language: Language
) -> None:
    identity = BagOfWords().identity
    await ensure_collection(shelf.data, "default", "documents", identity, language=language)
    report = await shelf.ingest(a_md=TEXTS["de"], b_md=TEXTS["de"] * 2, c_md=TEXTS["en"])
    warnings = [note for note in report.notes if "collection set documents --language auto" in note]
    assert [note[:29] for note in warnings] == (
        ["2 of 3 documents are in Germa"] if language == "English" else []
    )


@pytest.mark.slow
async def test_a_collection_changes_its_language_without_embedding(shelf: Shelf) -> None:
    identity = BagOfWords().identity
    collection = await ensure_collection(shelf.data, "default", "documents", identity, language="English")
    await shelf.ingest(a_md=TEXTS["de"], b_md=TEXTS["en"])
    assert await shelf.names_by_words("Sitzungen") == set()
    async with open_writer(shelf.data, collection) as writer:
        changed = await change_language(writer, "auto")
        await writer.finish()
    assert changed == await shelf.collection()
    assert (changed.language, changed.languages) == ("auto", ("English", "German"))
    assert await shelf.names_by_words("Sitzungen") == {"a.md"}
    assert await shelf.names_by_words("accepting") == {"b.md"}
    async with open_writer(shelf.data, changed) as writer:
        fixed = await change_language(writer, "German")
    assert (fixed.language, fixed.languages) == ("German", ())
    assert await shelf.names_by_words("Sitzungen") == {"a.md"}
    assert await shelf.names_by_words("accepting") == set()


@pytest.mark.slow
async def test_an_older_desk_has_the_present_forms_of_words_once_it_is_analysed_again(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_by_query = {"用户的电话": "a.md", "שלום": "b.md", "サーバの再起動": "c.md"}
    with monkeypatch.context() as earlier:
        earlier.setattr(table_rows, "terms_of", lambda *_: "other words")
        await shelf.ingest(a_md="用戶可以更改電話號碼。", b_md="שָׁלוֹם עוֹלָם", c_md="ｻｰﾊﾞｰを再起動する手順です。")
    assert [await shelf.names_by_words(query) for query in names_by_query] == [set()] * 3
    async with open_writer(shelf.data, await shelf.collection()) as writer:
        await change_language(writer, "auto")
        await writer.finish()
    assert [await shelf.names_by_words(query) for query in names_by_query] == [
        {name} for name in names_by_query.values()
    ]


@pytest.mark.slow
async def test_strict_statistics_ask_in_the_languages_of_readable_documents_only(shelf: Shelf) -> None:
    await shelf.ingest(a_md=TEXTS["en"], b_md="The clock on this wall is what some people would call an Uhr.")
    before = [await answer(shelf, counted) for counted in ("strict", "collection")]
    hidden = shelf.files.parent / "hidden.md"
    hidden.write_text(TEXTS["de"] * 3, encoding="utf-8")
    embedder, collection = BagOfWords(), await shelf.collection()
    instructions = Instructions(IngestSettings(), Rights("restricted"))
    async with open_writer(shelf.data, collection) as writer:
        await ingest(writer, embedder, [hidden], instructions, Progress())
    assert (await shelf.collection()).languages == ("English", "German")
    after = [await answer(shelf, counted) for counted in ("strict", "collection")]
    assert before == [set(), set()]
    assert after == [set(), {"b.md"}], "with German rules, Uhren finds Uhr"
    anybody = Principal("default")
    desk = Desk(DeskReader(shelf.data, timeout_seconds=15), BagOfWords(), SearchSettings())
    assert [collection.languages for collection in await desk.collections(anybody)] == [()]
    (holding,) = await desk.overview(anybody)
    assert (holding.languages, holding.collection.languages) == (("en",), ())


async def answer(shelf: Shelf, counted: str) -> set[str]:
    search = SearchSettings.model_validate({"statistics": counted, "mode": "sparse"})
    desk = Desk(DeskReader(shelf.data, timeout_seconds=15), BagOfWords(), search)
    return {hit.source.name for hit in (await desk.search(Principal("default"), "Uhren")).hits}
