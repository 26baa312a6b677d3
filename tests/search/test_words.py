"""Search by words: quoted phrases, required texts, and a language that the embedding model doesn't know.

A query of phrases alone finds only what has them. Beside other words, passages with them come first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from rag.answers import Answer, Mode, SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, Principal, Vectors
from rag.errors import InvalidRequestError
from rag.models.embed import Embedder, TextKind, WrappedEmbedder
from rag.models.text_encoder import BUILTIN_MODEL, Tokens
from rag.search import query_vectors
from rag.search.desk import Desk
from rag.search.pipeline import ACCENTED
from rag.search.stages.thresholds import UNGROUNDED
from rag.search.why import EXACT_FORM, OTHER_FORM
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import Ranking
from tests.search.conftest import ME, Shelf
from tests.small_desk import vectors

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
modes = pytest.mark.parametrize("mode", MODES)


async def texts_found(shelf: Shelf, query: str, mode: Mode, **request: Any) -> set[str]:  # noqa: ANN401 a request's own
    return {hit.text for hit in (await shelf.search(query, mode=mode, limit=50, **request)).hits}


@modes
async def test_a_quoted_phrase_must_occur_word_for_word(shelf: Shelf, mode: Mode) -> None:
    texts = ["leave of absence", "absence of leave", "a Leave\nof Absence.", "leave of absences", "O leave"]
    await shelf.put_all({str(at): text for at, text in enumerate(texts)})
    for query in ('"leave of absence"', "“leave of absence”", "(„leave of absence“)", '"leave of" "absence"'):
        assert await texts_found(shelf, query, mode) == {texts[0], texts[2]}
    assert len(await texts_found(shelf, 'leave" of absence', mode)) == len(texts)  # ordinary text


@modes
async def test_no_hit_is_shown_without_the_phrase_and_a_note_says_why(shelf: Shelf, mode: Mode) -> None:
    await shelf.put("a", "leave of someone, absence of another")
    answer = await shelf.search('"leave of absence"', mode=mode)
    assert answer.hits == ()
    (note,) = answer.notes
    assert note.startswith('No passage contains "leave of absence".')


@modes
async def test_beside_other_words_passages_with_the_phrase_come_first_and_a_note_counts_the_others(
    shelf: Shelf, mode: Mode
) -> None:
    texts = {
        "a": "rule on absence, rule on leave",
        "b": "the leave of absence",
        "c": "absence: rule of leave",
    }
    await shelf.put_all(texts)
    for query in ('the "leave of absence" rule', "rule on „leave of absence“"):
        answer = await shelf.search(query, mode=mode)
        assert answer.hits[0].text == texts["b"]
        assert {hit.text for hit in answer.hits} == set(texts.values())
        assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)
        assert answer.notes == ('2 passages of 3 don\'t contain "leave of absence".',)
    (note,) = (await shelf.search('rule on "absent leave"', mode=mode)).notes
    assert note.startswith('No passage contains "absent leave". ')
    assert (await shelf.search('rule "on absence" "on leave"', mode=mode, limit=1)).notes == ()


async def test_where_every_word_must_occur_so_must_each_phrase(shelf: Shelf) -> None:
    await shelf.put_all({"a": "the leave of absence rule", "b": "rule of absence: leave"})
    every = shelf.desk(engine={"operator": "and"})
    query = SearchRequest('"leave of absence" rule', mode="sparse")
    assert [hit.text for hit in (await every.search(ME, query)).hits] == ["the leave of absence rule"]
    assert len((await shelf.desk().search(ME, query)).hits) == 2


@modes
async def test_a_phrase_of_signs_and_quotes_for_the_engine_is_text(shelf: Shelf, mode: Mode) -> None:
    texts = ["it's a 'b' \\d+ (x) [y] {2} ^$ |", "its a b dd xy"]
    await shelf.put_all(dict(zip("ab", texts, strict=True)))
    for phrase in ("it's a 'b'", "\\d+ (x)", "[y] {2} ^$ |", "') OR (true"):
        expected = {texts[0]} if phrase in texts[0] else set()
        assert await texts_found(shelf, f'"{phrase}"', mode) == expected


@modes
async def test_the_line_above_a_passage_is_not_part_of_it(shelf: Shelf, mode: Mode) -> None:
    await shelf.put("handbook", "first", "second handbook")
    assert await texts_found(shelf, '"handbook"', mode) == {"second handbook"}


@modes
async def test_phrases_are_conditions_besides_rights_and_filters(shelf: Shelf, mode: Mode) -> None:
    await shelf.declare("documents", year="integer")
    await shelf.put("open", "leave of absence, open", fields={"year": 2020})
    await shelf.put("other", "leave of absence, other", fields={"year": 2021})
    await shelf.put("hidden", "leave of absence, hidden", access=Access("restricted"))
    assert await texts_found(shelf, '"leave of absence"', mode, filter={"year": 2020}) == {
        "leave of absence, open"
    }
    answer = await shelf.search('"leave of absence"', mode=mode, filter={"year": 1999})
    assert answer.notes == ("The filter excludes all results; without year $eq there are results.",)


@modes
async def test_strict_statistics_know_phrases_too(shelf: Shelf, mode: Mode) -> None:
    await shelf.put_all({"a": "leave of absence", "b": "absence of leave", "c": "leave of absence again"})
    desk = shelf.desk(statistics="strict")
    answer = await desk.search(ME, SearchRequest('"leave of absence"', mode=mode))
    assert {hit.text for hit in answer.hits} == {"leave of absence", "leave of absence again"}


@pytest.mark.parametrize("mode", [*MODES, "exact"])
async def test_every_hit_contains_what_the_operator_and_the_request_require(shelf: Shelf, mode: Mode) -> None:
    texts = ["clock, APPROVED", "clock, draft", "clock, approved in 2024", "clock, 2024"]
    await shelf.put_all({str(at): text for at, text in enumerate(texts)})
    desk = shelf.desk(profiles={"final": {"must_contain": ["approved"]}})

    async def texts_of(**request: Any) -> set[str]:  # noqa: ANN401 a request's own
        answer = await desk.search(ME, SearchRequest("clock", mode=mode, **request))
        return {hit.text for hit in answer.hits}

    assert await texts_of() == {*texts}
    assert await texts_of(profile="final") == {texts[0], texts[2]}
    assert await texts_of(profile="final", must_contain=("2024",)) == {texts[2]}
    assert await texts_of(must_contain=("202", "CLOCK")) == {texts[2], texts[3]}
    answer = await desk.search(ME, SearchRequest("clock", mode=mode, must_contain=("quokka",)))
    assert answer.hits == ()
    assert 'No passage contains "quokka"' in answer.notes[0]


@modes
async def test_a_text_that_no_passage_has_is_searched_for_with_the_accents_that_it_has_there(
    shelf: Shelf, mode: Mode
) -> None:
    texts = ["Zoë\nBrontë wrote the rule", "the rule of Zoé Bronté's heir", "Zoe and Bronte: a rule"]
    await shelf.put_all({str(at): text for at, text in enumerate(texts)})
    for request in ({"query": '"zoe bronte"'}, {"query": "rule", "must_contain": ["Zoe Brontè"]}):
        answer = await shelf.desk().search(ME, SearchRequest(mode=mode, **request))
        (hit,) = answer.hits
        assert hit.text in texts[:2]
        form = "Zoë Brontë" if hit.text == texts[0] else "Zoé Bronté"
        written = str(request.get("must_contain", ["zoe bronte"])[0])
        assert answer.notes == (OTHER_FORM.format(written, form),)
    await shelf.put("strict", "zoe bronte's own rule")
    for request in ({"query": '"zoe bronte"'}, {"query": "rule", "must_contain": ["zoe bronte"]}):
        answer = await shelf.desk().search(ME, SearchRequest(mode=mode, **request))
        assert ([hit.text for hit in answer.hits], answer.notes) == (["zoe bronte's own rule"], ())


@modes
async def test_beside_other_words_a_note_tells_the_accents_of_a_phrase(shelf: Shelf, mode: Mode) -> None:
    await shelf.put_all({"a": "the rule of Zoë Brontë", "b": "the rule of absence"})
    answer = await shelf.search('"zoe bronte" rule', mode=mode)
    assert len(answer.hits) == 2
    assert answer.notes == (
        ACCENTED.format('"Zoë Brontë"'),
        '1 passage of 2 doesn\'t contain "zoe bronte".',
    )


async def test_exact_search_finds_no_other_accents_and_says_which_there_are(shelf: Shelf) -> None:
    await shelf.put_all({"a": "the rule of Zoë Brontë", "b": "the rule of zoe"})
    answer = await shelf.search("zoe bronte", mode="exact")
    assert (answer.hits, answer.notes) == ((), (EXACT_FORM.format("zoe bronte", "Zoë Brontë"),))
    required = await shelf.search("rule", mode="exact", must_contain=("zoe bronte",))
    assert (required.hits, required.notes) == (answer.hits, answer.notes)
    (note,) = (await shelf.search("zo[e] bronte", mode="exact", match="regex")).notes
    assert "Zoë" not in note


GROUPED, WHOLE = "Paid from DE02 5001 0517 5407 3249 31 in May", "Refund to AT611904300234573201 in June"
OTHERS = [
    "DE89 3704 0044 0532 0130 00 was closed in 2024",
    "Invoice 2024-31 for 5001 parts",
    "The office is closed.",
]
SPACED = [
    (GROUPED, "DE02500105175407324931", "DE02 5001 0517 5407 3249 31"),
    (WHOLE, "AT61 1904 3002 3457 3201", "AT611904300234573201"),
]


@modes
@pytest.mark.parametrize(("text", "written", "form"), SPACED)
async def test_a_quoted_number_is_searched_for_with_other_spaces(
    shelf: Shelf, mode: Mode, text: str, written: str, form: str
) -> None:
    await shelf.put_all({str(at): other for at, other in enumerate([GROUPED, WHOLE, *OTHERS])})
    answer = await shelf.search(f'"{written}"', mode=mode)
    assert ([hit.text for hit in answer.hits], answer.notes) == ([text], (OTHER_FORM.format(written, form),))


@pytest.mark.parametrize(("text", "written", "form"), SPACED)
async def test_an_account_is_found_by_words_with_spaces_or_without(
    shelf: Shelf, text: str, written: str, form: str
) -> None:
    await shelf.put_all({str(at): other for at, other in enumerate([GROUPED, WHOLE, *OTHERS])})
    assert (await shelf.search(f"payment {written}", mode="sparse")).hits[0].text == text
    for query in (written, form):
        answer = await shelf.search(query)
        assert answer.hits[0].text == text
        assert UNGROUNDED not in answer.notes


async def test_exact_search_says_with_which_spaces_there_is_a_number(shelf: Shelf) -> None:
    await shelf.put_all({str(at): other for at, other in enumerate([GROUPED, WHOLE, "a sum of 12,50,000"])})
    for written, form in (
        ("DE02500105175407324931", "DE02 5001 0517 5407 3249 31"),
        ("at61 1904 3002 3457 3201", "AT611904300234573201"),
        ("1250000", "12,50,000"),
    ):
        answer = await shelf.search(written, mode="exact")
        assert (answer.hits, answer.notes) == ((), (EXACT_FORM.format(written, form),))
        assert len((await shelf.search(form, mode="exact")).hits) == 1
    hidden = Access("restricted", frozenset({"user:ann"}))
    await shelf.put("hidden", "NL91ABNA0417164300 is hidden", access=hidden)
    assert "NL91" not in str((await shelf.search("NL91 ABNA 0417 1643 00", mode="exact")).notes)


NAMES = {
    "担当は渡邉健一、内線は四一二": "渡辺さんの内線",
    "斎藤花子は総務部": "斉藤",
    "髙橋三郎は営業部": "高橋さん",
    "山﨑次郎は経理部": "山崎",
    "澤村一は開発部": "沢村さん",
    "濱口は広報部": "浜口",
    "櫻田は人事部": "桜田の部署",
    "田辺誠は法務部": "田邊",
    "吉田茂は秘書室": "𠮷田",
    "沢田は倉庫": "澤田",
    "渡部は工場": "渡部",
}


async def test_a_japanese_name_is_found_in_other_forms_of_its_characters(shelf: Shelf) -> None:
    await shelf.put_all({str(at): text for at, text in enumerate(NAMES)})
    for text, query in NAMES.items():
        assert (await shelf.search(query, mode="sparse")).hits[0].text == text, query
    for query, text in (("高橋", "髙橋三郎は営業部"), ("渡辺", "担当は渡邉健一、内線は四一二")):
        (hit,) = (await shelf.search(query, mode="exact")).hits
        assert hit.text == text


@pytest.mark.parametrize("mode", ["hybrid", "exact"])
async def test_other_accents_are_not_told_of_what_is_hidden_or_against_the_operators_demand(
    shelf: Shelf, mode: Mode
) -> None:
    await shelf.put("open", "the rule of absence")
    query = '"zoe bronte"' if mode == "hybrid" else "zoe bronte"
    before = await shelf.search(query, mode=mode)
    hidden = Access("restricted", frozenset({"user:ann"}))
    await shelf.put("hidden", "the rule of Zoë Brontë, approved", access=hidden)
    assert (await shelf.search(query, mode=mode)).notes == before.notes
    ann = Principal("default", "ann")
    assert "Zoë" in str((await shelf.desk().search(ann, SearchRequest(query, mode=mode))).notes)
    for demanded, count in (("approved", 1), ("approvéd", 0), ("zoe", 0)):
        desk = shelf.desk(must_contain=[demanded])
        answer = await desk.search(ann, SearchRequest('"zoe bronte"', mode="hybrid"))
        assert len(answer.hits) == count, demanded


async def test_exact_matches_in_other_passages_of_a_document_lack_what_is_required(shelf: Shelf) -> None:
    await shelf.put("a", "approved needle", "another needle")
    answer = await shelf.search("needle", mode="exact", must_contain=("approved",))
    assert [hit.chunk.seq for hit in answer.hits] == [0]


async def test_what_is_required_must_be_text(shelf: Shelf) -> None:
    await shelf.put("a", "text")
    for text, says in (("", "no visible character"), ("x" * 1001, "at most 1000"), ("\ud800", "surrogate")):
        with pytest.raises(InvalidRequestError, match=says):
            await shelf.search("text", must_contain=(text,))


HINDI = "समय घड़ी"  # "time clock"
TEXTS = {
    "hindi": "घड़ी समय बताती है",
    "dial": "सूर्य की छाया और समय",
    "english": "a pendulum clock",
    "other": "a sundial",
}
TOLD = "Searched by words alone, because the embedding model knows no word of the query: documents."


@cache
def tokens() -> Tokens:
    return Tokens(BUILTIN_MODEL / "tokenizer.json")


class English(WrappedEmbedder):
    """The bag of words with the vocabulary of the built-in model."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner

    def vocabulary_share(self, text: str) -> float:
        return tokens().vocabulary_share(text)

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        return await self.inner.embed(texts, kind)


@pytest.fixture
async def desk(shelf: Shelf) -> Shelf:
    await shelf.put_all(TEXTS)
    return shelf


async def ask(shelf: Shelf, query: str, mode: Mode = "hybrid", **settings: object) -> Answer:
    reader = DeskReader(shelf.data, timeout_seconds=15)
    search = SearchSettings.model_validate(settings)
    return await Desk(reader, English(shelf.small.BagOfWords()), search).search(
        ME, SearchRequest(query, mode=mode), trace=True
    )


def lists(answer: Answer) -> set[str]:
    assert answer.trace
    return {listing.list for listings in answer.trace.listings.values() for listing in listings}


def warnings(answer: Answer) -> list[str]:
    return [warning for step in answer.steps for warning in step.warnings]


async def test_the_engine_is_not_asked_for_a_dense_list_that_would_count_for_nothing(
    desk: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched, dense = [], CollectionReader.dense

    async def noted(self: CollectionReader, *arguments: object, **named: object) -> Ranking:
        searched.append(self.collection.name)
        return await dense(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(CollectionReader, "dense", noted)
    answer = await ask(desk, HINDI)
    assert (searched, lists(answer), warnings(answer)) == ([], {"sparse"}, [TOLD])
    assert (answer.degraded, answer.notes) == ((), ())
    by_words = await ask(desk, HINDI, "sparse")
    assert [hit.chunk.id for hit in answer.hits] == [hit.chunk.id for hit in by_words.hits]
    assert [hit.source.title for hit in answer.hits] == ["hindi", "dial"]
    half_known = await ask(desk, f"clock {HINDI}")
    assert (searched, lists(half_known), warnings(half_known)) == (["documents"], {"dense", "sparse"}, [])


async def test_its_hits_have_similarities_and_thresholds_apply_to_them(desk: Shelf) -> None:
    answer = await ask(desk, HINDI)
    similarities = [hit.similarity for hit in answer.hits]
    assert all(similarities)
    assert similarities == [hit.similarity for hit in (await ask(desk, HINDI, "sparse")).hits]
    near = await ask(desk, HINDI, thresholds={"min_similarity": max(filter(None, similarities)) - 0.01})
    assert [hit.source.title for hit in near.hits] == ["hindi"]


async def test_mode_dense_is_kept_to_and_a_note_says_what_that_is_worth(desk: Shelf) -> None:
    answer = await ask(desk, HINDI, "dense")
    assert len(answer.hits) == len(TEXTS)
    assert "The embedding model knows no word of the query" in answer.notes[0]
    assert (await ask(desk, "clock", "dense")).notes == ()


async def test_the_other_fusions_weigh_the_lists_as_the_settings_say(desk: Shelf) -> None:
    answer = await ask(desk, HINDI, fusion={"method": "rrf"})
    assert (lists(answer), warnings(answer)) == ({"dense", "sparse"}, [])


async def test_where_nothing_is_found_the_note_says_why(desk: Shelf) -> None:
    answer = await ask(desk, "मौसम")  # "weather"
    assert answer.hits == ()
    (note,) = answer.notes
    assert note == (
        "No passage contains a word of the query. The embedding model knows no word of the query, so there "
        "was no search by meaning. Use other words."
    )
    assert (await ask(desk, "weather")).hits


async def test_a_filter_is_to_blame_only_for_what_is_found_by_words_without_it(desk: Shelf) -> None:
    reader = DeskReader(desk.data, timeout_seconds=15)
    filtered = Desk(reader, English(desk.small.BagOfWords()), SearchSettings())
    nowhere = {"path": {"$prefix": "nowhere/"}}
    for query, blamed in ((HINDI, True), ("मौसम", False), ("weather", True)):
        answer = await filtered.search(ME, SearchRequest(query, filter=nowhere))
        assert answer.hits == ()
        assert ("The filter excludes all results" in answer.notes[0]) is blamed


async def test_a_source_is_missed_by_words_alone(desk: Shelf) -> None:
    reader = DeskReader(desk.data, timeout_seconds=15)
    stored = await ask(desk, "english", "dense")
    source = next(hit.source.id for hit in stored.hits if hit.source.title == "english")
    _, fate = await Desk(reader, English(desk.small.BagOfWords()), SearchSettings()).why_not(
        ME, SearchRequest(HINDI), source
    )
    assert fate.reason == (
        "None of its passages is among the first 50 of a list. The embedding model knows no word of the "
        "query, so there was no search by meaning. It contains no word of the query."
    )


DICTIONARY = {
    "pendeluhr": "pendulum clock",
    "öl": "oil",
    "wann": "when",
    "wo": "where",
    "frühling": "spring",
    "delta": "snow melts in spring",
    "museum": "wheels of a pendulum clock",
}
ACROSS = {
    "right": "Every spring, as soon as snow melts, old brass wheels of any pendulum clock call for oil.",
    "accident": "Hinterland, delta, zeitgeist, museum.",
    "other": "A sundial needs the sun.",
    "sheet": "Part 88-4521-B is made of steel.",
    "day": "2024-05-03 Zeitgeist, museum.",
}


class Multilingual(English):
    """The bag of words of a translation into English, as a model has it that knows every language."""

    def vocabulary_share(self, text: str) -> float:  # noqa: ARG002 it knows all
        return 1.0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        words = [re.findall(r"\w+", text.casefold()) for text in texts]
        return await self.inner.embed([" ".join(DICTIONARY.get(w, w) for w in of) for of in words], kind)


@pytest.mark.parametrize(
    ("query", "first", "first_by_words"),
    [
        ("Warum braucht meine alte Pendeluhr jeden Frühling Öl: Hinterland, Zeitgeist?", "right", "accident"),
        ("Is the museum in the delta?", "accident", "accident"),
        ("Braucht 88-4521-B jeden Frühling Öl?", "sheet", "sheet"),  # an identifier is no accident
        ("Warum braucht meine Pendeluhr jeden Frühling Öl: 3 May 2024?", "day", "day"),  # nor is a date
        (
            'Warum braucht meine "alte Pendeluhr" jeden Frühling Öl: Hinterland, Zeitgeist?',
            "right",
            "accident",
        ),
        ("Pendeluhr ở Öl: hìnterland, déltà, zèitgeist, mùseùm?", "right", "accident"),
    ],
)
async def test_words_that_two_languages_share_dont_outvote_the_meaning(
    shelf: Shelf, query: str, first: str, first_by_words: str
) -> None:
    await shelf.put_all(ACROSS)
    desk = Desk(
        DeskReader(shelf.data, timeout_seconds=15), Multilingual(shelf.small.BagOfWords()), SearchSettings()
    )
    expected: dict[Mode, str] = {"hybrid": first, "sparse": first_by_words}
    for mode, title in expected.items():
        answer = await desk.search(ME, SearchRequest(query, mode=mode))
        assert answer.hits[0].source.title == title, mode


async def test_a_passage_near_to_all_questions_comes_later_for_one_in_another_language(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put_all({"right": "brass pendulum", "faq": "when and where"})
    desk = Desk(
        DeskReader(shelf.data, timeout_seconds=15), Multilingual(shelf.small.BagOfWords()), SearchSettings()
    )

    async def hits(query: str, mode: Mode = "hybrid") -> dict[str, float | None]:
        answer = await desk.search(ME, SearchRequest(query, mode=mode))
        return {hit.source.title: hit.similarity for hit in answer.hits}

    german, english = "Wann, wo Pendeluhr?", "When, where pendulum clock?"
    before, in_english = await hits(german), await hits(english)
    assert [*before] == ["faq", "right"]
    (mean,) = vectors(["when where"])
    monkeypatch.setattr(query_vectors, "mean_query", lambda _: mean)
    after = await hits(german)
    assert [*after] == ["right", "faq"]
    assert after == before  # evidence is judged by these
    assert [*(await hits(german, "dense"))] == ["faq", "right"]
    assert [*(await hits(english)).items()] == [*in_english.items()]


@modes
async def test_phrases_and_required_texts_are_found_as_a_reader_sees_them(shelf: Shelf, mode: Mode) -> None:
    texts = [
        "The mayor called it *a disgrace* for [the city](https://x.example/city) and left.",
        "My colleague said 'a disgrace' — for the city — again.",
        "char *a disgrace, *for",
    ]
    await shelf.put_all({str(at): text for at, text in enumerate(texts)})
    assert await texts_found(shelf, '"a disgrace for the city"', mode) == {*texts[:2]}
    assert await texts_found(shelf, "mayor", mode, must_contain=("a disgrace for the city",)) == {texts[0]}
    assert await texts_found(shelf, '"char a disgrace"', mode) == set()
