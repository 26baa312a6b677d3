"""What is too unlike the query to be shown, or to answer from."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import sqrt
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Hit, Mode, SearchRequest
from rag.config.model_settings import ENGLISH_MODEL, MULTILINGUAL_MODEL, EmbedderSettings
from rag.config.profiles import ThresholdSettings
from rag.config.settings import SearchSettings, Settings
from rag.corpus import Access, Binding, Calibration, Chunk, Distance, EmbedderIdentity, Principal, Source
from rag.models.embed import open_embedder
from rag.search import Desk
from rag.search.pipeline import NOT_SHOWN
from rag.search.recall import RELATED
from rag.search.reply.search_reply import search_reply
from rag.search.stages.thresholds import (
    ENGLISH_ONLY,
    UNGROUNDED,
    UNREAD_LANGUAGE,
    distance,
    hits_within_thresholds,
)
from rag.store.read.desk_reader import DeskReader
from rag.store.write.change_collection import change_collection
from tests.conftest import Scripts
from tests.search.conftest import ME, Shelf
from tests.small_desk import ingested

METRICS: tuple[Distance, ...] = get_args(Distance)
SOURCE = Source("s", "cosine", "file:///s", "S", "text/plain", "d", 1, 1, datetime(2026, 1, 1, tzinfo=UTC))
BY_NAME: dict[str, Distance] = {metric: metric for metric in METRICS}
SIMILARITIES = st.lists(st.floats(-1, 1), max_size=8)


def _hits(similarities: Sequence[float], metric: Distance = "cosine") -> list[Hit]:
    source = replace(SOURCE, collection=metric)
    return [
        Hit(Chunk(f"s/{n}", "s", n, 0, 1, "x"), source, 0.5, similarity)
        for n, similarity in enumerate(similarities)
    ]


def _kept(similarities: Sequence[float], metric: Distance = "cosine", **thresholds: float) -> list[float]:
    given_ = ThresholdSettings.model_validate(thresholds)
    remaining = hits_within_thresholds(_hits(similarities, metric), given_, BY_NAME)
    return [hit.similarity for hit in remaining if hit.similarity is not None]


def test_distances_are_what_one_computes_by_hand() -> None:
    assert [distance(similarity, "cosine") for similarity in (1, 0.25, -1)] == [0, 0.75, 2]
    assert [distance(similarity, "dot") for similarity in (1, 0.25, -1)] == [0, 0.75, 2]
    assert [distance(similarity, "euclidean") for similarity in (1, 0.5, -1)] == [0, 1, 2]
    assert distance(1.0000001, "euclidean") == 0


def test_each_threshold_leaves_out_what_is_beyond_it() -> None:
    likes = [0.9, 0.2, 0.8, 0.7]
    assert _kept(likes) == likes
    assert _kept(likes, min_similarity=0.75) == [0.9, 0.8]
    assert _kept(likes, max_distance=0.25) == [0.9, 0.8]
    assert _kept(likes, "euclidean", max_distance=sqrt(2 - 2 * 0.75)) == [0.9, 0.8]
    assert _kept([0.5, 0.45, 0.3], percentage_distance=20) == [0.5, 0.45]


def test_a_percentage_counts_from_the_nearest_of_all_collections_whatever_their_metrics() -> None:
    hits = [hit for metric in METRICS for hit in _hits([0.9 if metric == "dot" else 0.5, 0.4], metric)]
    percentage = ThresholdSettings(percentage_distance=200)
    remaining = hits_within_thresholds(hits, percentage, BY_NAME)
    assert [(hit.source.collection, hit.similarity) for hit in remaining] == [
        ("dot", 0.9),
        ("euclidean", 0.5),  # 1.0 of 0.45 * 3 = 1.34; in the others .5 of .1 * 3
        ("euclidean", 0.4),
    ]


@pytest.mark.parametrize(("most", "remaining"), [(0.45, [0.6, 0.55]), (0.9, [0.6, 0.55, 0.5])])
def test_of_two_distances_the_smaller_counts(most: float, remaining: list[float]) -> None:
    assert _kept([0.6, 0.55, 0.5, 0.2], max_distance=most, percentage_distance=30) == remaining


@given(SIMILARITIES, st.floats(0, 1000), st.sampled_from(METRICS))
def test_the_nearest_is_never_too_far_from_itself(
    similarities: list[float], percentage: float, metric: Distance
) -> None:
    remaining = _kept(similarities, metric, percentage_distance=percentage)
    assert max(remaining, default=None) == max(similarities, default=None)


@given(SIMILARITIES, st.floats(-1, 1), st.floats(0, 2), st.floats(0, 1000), st.sampled_from(METRICS))
def test_thresholds_together_keep_what_each_keeps(
    similarities: list[float], least: float, most: float, percentage: float, metric: Distance
) -> None:
    thresholds = {"min_similarity": least, "max_distance": most, "percentage_distance": percentage}
    kept_by_each = [set(_kept(similarities, metric, **{name: most})) for name, most in thresholds.items()]
    assert _kept(similarities, metric, **thresholds) == [
        similarity for similarity in similarities if all(similarity in passing for passing in kept_by_each)
    ]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["dense", "sparse", "hybrid"])
async def test_what_comes_behind_the_limit_takes_the_place_of_what_is_left_out(
    shelf: Shelf, mode: Mode
) -> None:
    await shelf.put("a", *(f"pendulum and {'other ' * 9}{number}" for number in range(9)))
    await shelf.put("b", "the pendulum clock")
    everything = (await shelf.search("the pendulum clock", mode=mode)).hits
    least = sorted(hit.similarity or 0.0 for hit in everything)[-2]
    desk = shelf.desk(thresholds={"min_similarity": least}, limit=2, mode=mode)
    hits = (await desk.search(ME, SearchRequest("the pendulum clock"))).hits
    assert len(hits) == 2
    assert all(hit.similarity and hit.similarity >= least for hit in hits)


@pytest.mark.anyio
async def test_an_answer_without_what_is_too_unlike_says_so_and_not_that_there_is_nothing(
    shelf: Shelf,
) -> None:
    await shelf.put("a", "the pendulum clock")
    strict = shelf.desk(thresholds={"min_similarity": 0.99})
    answer = await strict.search(ME, SearchRequest("sand in a glass"))
    assert not answer.hits
    left_out = "Left out: 1 passage less similar to the query than the thresholds require."
    assert answer.notes == (UNGROUNDED, left_out)
    elsewhere = await strict.search(ME, SearchRequest("sand", sources=("nowhere",)))
    assert "nowhere" in elsewhere.notes[-1]


@pytest.mark.anyio
@pytest.mark.parametrize(("weak", "count"), [("note", 1), ("no hits", 0)])
async def test_weak_evidence_is_said_with_or_without_the_hits(shelf: Shelf, weak: str, count: int) -> None:
    await shelf.put("a", "the pendulum clock")
    desk = shelf.desk(thresholds={"min_evidence": 0.6, "weak_evidence": weak})
    good = await desk.search(ME, SearchRequest("the pendulum clock"))
    assert len(good.hits) == 1
    assert not good.notes
    poor = await desk.search(ME, SearchRequest("sand in a glass"))
    assert len(poor.hits) == count
    assert UNGROUNDED in poor.notes


@pytest.mark.anyio
async def test_a_passage_with_the_query_s_words_or_of_its_meaning_is_evidence_wherever_it_stands(
    shelf: Shelf,
) -> None:
    await shelf.put("a", "the pendulum clock of the tower", "sand")
    (words,) = (await shelf.search("tower pendulum", limit=1)).hits
    evidence = 0.6 * (words.similarity or 0.0) + 0.4
    assert 0.4 < evidence < 0.95
    for least, weak in [(evidence - 0.01, False), (evidence + 0.01, True)]:
        desk = shelf.desk(thresholds={"min_evidence": least})
        answer = await desk.search(ME, SearchRequest("tower pendulum"))
        assert len(answer.hits) == 2
        assert (UNGROUNDED in answer.notes) == weak


@pytest.mark.anyio
async def test_a_word_that_nothing_found_has_counts_against_all_of_it(shelf: Shelf) -> None:
    """The frame of a question counts neither way."""
    await shelf.put("a", "the pendulum clock of the tower", "sand")
    for query, weak in [
        ("tower pendulum", False),
        ("How do I get my tower pendulum?", False),
        ("tower pendulum canteen", True),
    ]:
        (best, *_) = (await shelf.search(query, limit=1)).hits
        least = (
            0.6 * (best.similarity or 0.0) + 0.4 * 0.7
        )  # the share of the words is 1, 1, and less than 2/5
        answer = await shelf.desk(thresholds={"min_evidence": least}).search(ME, SearchRequest(query))
        assert (UNGROUNDED in answer.notes) == weak, query


@pytest.mark.slow
@pytest.mark.anyio
async def test_an_identifier_that_no_passage_has_is_no_evidence_however_similar(shelf: Shelf) -> None:
    """Their words are near each other for the embedder, as parts of identifiers are for real ones."""
    await shelf.put("a", "f 3 outside, f3, 3 outside", "TPL and 0042", "getUserName(id), and e mails")
    await shelf.put("b", "wing abc 123x", metadata={"path": "docs/plan-7.md"})
    desk = shelf.desk(thresholds={"min_evidence": 0.01})
    for query, weak in [
        ("f3inside", True),
        ("Where is f3inside?", True),
        ("TPL-0042", True),
        ("abc-123y", True),
        ("getUserMail", True),
        ("setUserName or getUserMail", True),
        ("f3outside", False),
        ("Where is F3-outside?", False),
        ("abc-123x", False),
        ("getUserName or getUserMail", False),
        ("get_user_name", False),
        ("shop.Accounts.getUserName", False),
        ("shop.Accounts.getUserMail", True),
        ("plan-7.md", False),
        ("plan-8.md", True),
        ("f3outside TPL-0042", False),
        ("TPL-0042 of the wing", False),  # other words count, too
        ("e-mail", False),  # a word, which the similarity judges
    ]:
        answer = await desk.search(ME, SearchRequest(query))
        assert answer.hits
        assert (answer.notes[:1] == (UNGROUNDED,)) == weak, query


@pytest.mark.anyio
async def test_of_two_versions_each_may_be_in_a_passage_of_its_own(shelf: Shelf) -> None:
    texts = "2.13.4 is old", "2.13.5 is new, with f3outside", "TPL-0042", "Version 3.10"
    await shelf.put_all(dict(zip("abcd", texts, strict=True)))
    desk = shelf.desk(thresholds={"min_evidence": 1.0})
    for query, weak in [
        ("what changed between 2.13.4 and 2.13.5?", False),
        ("2.13.4 or 3.10", False),
        ("what changed between 2.13.4 and 2.13.6?", True),
        ("f3outside of 2.13.5", False),
        ("f3outside of 2.13.4", True),
        ("f3outside TPL-0042", True),
    ]:
        answer = await desk.search(ME, SearchRequest(query))
        assert answer.hits
        assert (answer.notes[:1] == (UNGROUNDED,)) == weak, query


@pytest.mark.slow
@pytest.mark.anyio
async def test_where_nothing_is_evidence_the_first_note_says_so_and_two_passages_are_shown(
    clock_room: Path,
) -> None:
    async with Desk.open(Settings(data=clock_room)) as desk:
        for query in ("How do I bake an apple strudel?", "What is my Netflix password?"):
            answer = await desk.search(ME, SearchRequest(query, collections=None, joined=True))
            assert answer.notes[0] == UNGROUNDED
            assert len(answer.hits) <= 2
            reply = search_reply(answer, None).compact()
            assert reply.startswith(f'{{"notes":["{UNGROUNDED}"')
        assert len((await desk.search(ME, SearchRequest("pendulum clock"))).hits) > 2


@pytest.mark.slow
@pytest.mark.anyio
async def test_by_default_weak_evidence_is_said_with_the_built_in_model(clock_room: Path) -> None:
    async with Desk.open(Settings(data=clock_room)) as desk:
        for query, notes in [
            ("quantum chromodynamics of penguins", (UNGROUNDED,)),
            ("who invented the pendulum clock?", ()),
            ("timekeepers that swing", ()),
            ("Wie lange dauert die Erstattung?", (UNREAD_LANGUAGE.format("German"),)),
            ("Combien pour un remboursement ?", (UNGROUNDED, ENGLISH_ONLY)),
            ("Öffnungszeiten", (UNGROUNDED, ENGLISH_ONLY)),
            ("payroll", (UNGROUNDED,)),
            ("10.3.0.7", (UNGROUNDED, NOT_SHOWN.format("10.3.0.7"))),
        ]:
            answer = await desk.search(ME, SearchRequest(query))
            assert answer.hits
            assert answer.notes == notes


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_few_documents_in_other_languages_hide_no_hint_to_ask_in_english(
    clock_room: Path, tmp_path: Path, scripts: Scripts
) -> None:
    texts = {
        "caesar.md": "Gallia est omnis divisa in partes tres, quarum unam incolunt Belgae, aliam Aquitani.",
        "receta.md": "La receta de la abuela lleva tres huevos, azúcar y mucha paciencia.",
        "часы.md": "Маятниковые часы изобрёл Христиан Гюйгенс, они стояли в башне замка.",
    }
    files, data = tmp_path / "files", tmp_path / "data"
    files.mkdir()
    for name, text in texts.items():
        (files / name).write_text(f"{text}\n", "utf-8")
    shutil.copytree(clock_room, data)
    assert scripts.admin("ingest", files, "--data", data).returncode == 0
    other = UNREAD_LANGUAGE.format("another language")
    async with Desk.open(Settings(data=data)) as desk:
        for query, notes in [
            ("Combien pour un remboursement ?", [UNGROUNDED, ENGLISH_ONLY]),
            ("Hoeveel vakantiedagen heb ik?", [UNGROUNDED, ENGLISH_ONLY]),
            ("如何在 TPL-0042 中上传多个文件", [other]),
            ("Кто изобрёл маятниковые часы?", []),
            ("who invented the pendulum clock?", []),
            ("payroll", [UNGROUNDED]),
        ]:
            assert [*(await desk.search(ME, SearchRequest(query))).notes] == notes, query
        (note,) = (await desk.search(ME, SearchRequest("我有多少天假期"))).notes
        assert note.endswith("Use English words.")


@pytest.mark.anyio
async def test_a_word_that_no_document_has_tells_more_than_one_that_stands_elsewhere(shelf: Shelf) -> None:
    await shelf.put("a", "the pendulum clock of the tower", "sand")
    weak = {}
    for query in ("tower pendulum sand", "tower pendulum canteen"):
        (best, *_) = (await shelf.search(query, limit=1)).hits
        least = 0.6 * (best.similarity or 0.0) + 0.4 * 0.36  # of its words it has 2/3, and .28
        (weak[query],) = await _weak(shelf, query, settings={"thresholds": {"min_evidence": least}})
    assert weak == {"tower pendulum sand": False, "tower pendulum canteen": True}


@pytest.mark.anyio
@pytest.mark.parametrize("memory_bytes", [0, 10_000_000])
async def test_a_word_of_documents_that_the_user_may_not_read_is_one_that_no_document_has(
    shelf: Shelf, memory_bytes: int
) -> None:
    """Where words can't be counted, it is one that nothing found has."""
    await shelf.put("a", "the pendulum clock of the tower", "sand")
    await shelf.put("b", "canteen", access=Access("restricted", frozenset({"user:ann"})))
    query = SearchRequest("tower pendulum canteen")
    (best, *_) = (await shelf.search(query.query, limit=1)).hits
    thresholds = {"min_evidence": 0.6 * (best.similarity or 0.0) + 0.4 * 0.5}
    desk = _desk_with_memory(shelf, {"thresholds": thresholds}, memory_bytes)
    notes = {user: (await desk.search(Principal("default", user), query)).notes for user in ("ann", "bob")}
    assert notes == {"ann": (), "bob": (UNGROUNDED,)}


def _desk_with_memory(
    shelf: Shelf,
    settings: Mapping[str, object],
    memory_bytes: int = 10_000_000,
    identity: EmbedderIdentity | None = None,
) -> Desk:
    reader = DeskReader(shelf.data, timeout_seconds=15, memory_bytes=memory_bytes)
    bag = shelf.small.BagOfWords(identity) if identity else shelf.small.BagOfWords()
    return Desk(reader, bag, SearchSettings.model_validate(settings))


async def _calibrate(shelf: Shelf, elsewhere: float | None = None) -> None:
    """Give the bag of words the scale of the English built-in model, as if that had been measured."""
    scale = Calibration(0.0, RELATED, elsewhere=elsewhere)
    await change_collection(
        shelf.data, "default", "documents", lambda collection: replace(collection, calibration=scale)
    )


async def _weak(shelf: Shelf, *queries: str, settings: Mapping[str, object] | None = None) -> list[bool]:
    desk = _desk_with_memory(shelf, settings or {})
    return [UNGROUNDED in (await desk.search(ME, SearchRequest(query))).notes for query in queries]


CLOCKS = [f"the pendulum clock of the tower was made by {maker}" for maker in ("Ann", "Bob", "Eve", "Joe")]
CANTEEN = "opening hours of our canteen"


@pytest.mark.slow
@pytest.mark.anyio
async def test_evidence_is_judged_with_every_model_whose_scale_was_measured(shelf: Shelf) -> None:
    await shelf.put("a", *CLOCKS)
    queries = (CANTEEN, "the clock of the tower")
    assert await _weak(shelf, *queries) == [False, False]
    await _calibrate(shelf)
    assert await _weak(shelf, *queries) == [True, False]
    assert await _weak(shelf, *queries, settings={"statistics": "strict"}) == [False, False]
    assert await _weak(shelf, *queries, settings={"thresholds": {"min_evidence": 0}}) == [False, False]


@pytest.mark.anyio
async def test_a_question_that_names_the_file_of_a_hit_is_not_told_that_nothing_answers(shelf: Shelf) -> None:
    await shelf.put("a", *CLOCKS, metadata={"path": "towers/clocks.md"})
    await _calibrate(shelf)
    queries = [f"{CANTEEN} in {name}" for name in ("clocks.md", "towers/clocks.md", "clocks.txt", "clocks")]
    assert await _weak(shelf, *queries) == [False, False, True, True]


@pytest.mark.slow
@pytest.mark.anyio
async def test_nothing_is_said_of_a_question_that_may_be_in_another_language_than_the_passages(
    shelf: Shelf,
) -> None:
    await shelf.put("a", *CLOCKS)
    await _calibrate(shelf)
    german = "die Öffnungszeiten unserer Kantine im Turm von Bob"
    assert await _weak(shelf, german, CANTEEN) == [False, True]
    assert await _weak(shelf, german.removesuffix(" von Bob")) == [True]  # nothing is related to it at all
    await shelf.put("b", "the clock of Ann", metadata={"language": "en"})
    assert await _weak(shelf, CANTEEN) == [True]
    await shelf.put("c", "our clock", metadata={"language": "de"})  # in which the answer may stand
    assert await _weak(shelf, CANTEEN) == [False]


@pytest.mark.slow
@pytest.mark.anyio
async def test_whether_documents_answer_does_not_depend_on_the_limit(shelf: Shelf) -> None:
    await shelf.put("a", *CLOCKS)
    await _calibrate(shelf)
    await shelf.put("b", "our clock", metadata={"language": "de"})
    desk = _desk_with_memory(shelf, {})
    for query in (CANTEEN, "the clock of the tower", "canteen"):
        for detail in ("passage", "snippet"):
            notes = {
                UNGROUNDED in (await desk.search(ME, SearchRequest(query, limit=limit, detail=detail))).notes
                for limit in (1, 2, 8)
            }
            assert len(notes) == 1, (query, detail)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_passage_with_the_identifiers_of_a_question_is_evidence_whatever_else_it_lacks(
    shelf: Shelf,
) -> None:
    await shelf.put("a", "part TPL-0042 is a gasket of steel", "part TPL-0043 is a gasket, too")
    await _calibrate(shelf)
    present, absent = "the insurance of TPL-0042 in Rome", "the insurance of TPL-0049 in Rome"
    assert await _weak(shelf, present, absent) == [False, True]
    assert await _weak(shelf, f"{present}, TPL-0049") == [True]


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_guessed_word_needs_a_meaning_that_bears_it_out(shelf: Shelf) -> None:
    """A slip of the pen doesn't: one edit away as they are written."""
    await shelf.put("a", "the office is open for more than ten hours", "hotels need no approval")
    await _calibrate(shelf)
    assert await _weak(shelf, "moving house", "hotles") == [True, False]
    answer = await _desk_with_memory(shelf, {}).search(ME, SearchRequest("moving house"))
    assert any('"hours"' in note for note in answer.notes)


@pytest.mark.slow
@pytest.mark.anyio
async def test_words_that_passages_have_or_stop_words_tell_that_a_query_is_in_their_language(
    shelf: Shelf,
) -> None:
    """No passage has two of these words, and too few have "the"."""
    ends = ("orimal", "etulap", "avosin", "uredok", "irnamel", "omtasip")
    await shelf.put("a", *[" ".join(letter + end for end in ends) for letter in "bcdfghjklmnp"])
    await shelf.put("b", "the hall")
    await _calibrate(shelf, 0.99)
    three_known, two_known = "borimal cetulap davosin carpet?", "borimal cetulap chair carpet?"
    assert await _weak(shelf, three_known, two_known) == [True, False]
    english, german = "Who is in the bath of the borimal?", "Wer ist nicht bei der Wanne des borimal?"
    assert await _weak(shelf, english, german) == [True, False]
    assert await _weak(shelf, f"der die bei {three_known}") == [False]  # words of theirs, but German


@pytest.mark.anyio
async def test_a_question_needs_more_where_passages_are_near_to_everything_and_a_claim_less(
    shelf: Shelf,
) -> None:
    await shelf.put("a", *CLOCKS)
    question, claim = "the pendulum clock of the canteen?", "the pendulum clock of the canteen!"
    for elsewhere, weak in ((None, [False, False]), (0.55, [True, False]), (0.99, [True, False])):
        await _calibrate(shelf, elsewhere)
        assert await _weak(shelf, question, claim) == weak, elsewhere


@pytest.mark.anyio
async def test_what_everybody_may_read_is_no_measure_for_who_may_read_less_nor_for_words_hardly_known(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shelf.put("a", *CLOCKS)
    await _calibrate(shelf, 0.99)
    bound = Principal("default", bindings=(Binding(collections=("documents",)),))
    question = SearchRequest("the pendulum clock of the canteen?")
    desk = _desk_with_memory(shelf, {})
    assert (await desk.search(bound, question)).notes == ()
    assert (await desk.search(ME, question)).notes == (UNGROUNDED,)
    monkeypatch.setattr(shelf.small.BagOfWords, "vocabulary_share", lambda *_: 0.5)
    assert (await desk.search(ME, question)).notes == ()


@pytest.mark.anyio
async def test_where_words_are_not_counted_the_english_model_is_held_to_the_least_evidence(
    shelf: Shelf,
) -> None:
    await shelf.put("a", *CLOCKS)
    english = EmbedderIdentity("builtin", ENGLISH_MODEL, 32)
    scale = Calibration(0.0, elsewhere=0.99)
    await change_collection(
        shelf.data,
        "default",
        "documents",
        lambda collection: replace(collection, embedder=english, calibration=scale),
    )
    requests = [SearchRequest(text) for text in ("the pendulum clock of the canteen?", CANTEEN)]
    weak = {}
    for statistics in ("auto", "strict"):
        desk = _desk_with_memory(shelf, {"statistics": statistics}, identity=english)
        weak[statistics] = [UNGROUNDED in (await desk.search(ME, request)).notes for request in requests]
    assert weak == {"auto": [True, True], "strict": [False, True]}


GERMAN = {
    "pendel.md": "# Pendeluhr\n\nDie Pendeluhr wurde 1656 von Huygens in den Niederlanden erfunden.",
    "turm.md": "# Turmuhr\n\nDie Turmuhr des Rathauses wird jeden Morgen vom Wächter aufgezogen.",
    "sand.md": "# Sanduhr\n\nDie Sanduhr läuft in einer Stunde aus und wird dann von Hand umgedreht.",
    "quarz.md": "# Quarzuhr\n\nDie Quarzuhr geht in einem Jahr um weniger als eine Minute falsch.",
}


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_multilingual_model_says_it_in_the_language_of_the_documents(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data", embedder=EmbedderSettings(model=MULTILINGUAL_MODEL))
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in GERMAN.items():
        (docs / name).write_text(text)
    async with open_embedder(settings.embedder, {}) as embedder:
        await ingested(settings.data, docs, embedder=embedder)
    weak = {
        "Wie wird in der Küche ein Strudel gebacken?": True,
        "Von wem wurde die Pendeluhr erfunden?": False,
        "Who invented the pendulum clock?": False,
        "How do I bake an apple strudel?": False,  # which could stand there in German
    }
    async with Desk.open(settings) as desk:
        answers = {query: await desk.search(ME, SearchRequest(query)) for query in weak}
    assert {query: UNGROUNDED in answer.notes for query, answer in answers.items()} == weak


ITEMS = {
    "Dog tax": "The tax is {} pounds for each dog.",
    "Nursery fees": "The fee rises to {} pounds a month.",
    "Fire brigade": "The purchase of an engine for {} pounds is adjourned.",
    "Lime Avenue": "The contract goes to Tarmac & Sons for {} pounds.",
    "Grants": "The sports club receives {} pounds.",
}


def _minutes(month: int) -> str:
    items = [f"## {item}\n\nResolved: {text.format(month * 110)}\n" for item, text in ITEMS.items()]
    return "\n".join([f"# Minutes of the council\n\nMeeting of 14.{month:02}.2024\n", *items])


@pytest.mark.slow
@pytest.mark.anyio
async def test_in_a_series_of_alike_documents_a_near_passage_is_evidence(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path / "data")
    docs = tmp_path / "docs"
    docs.mkdir()
    for month in range(1, 25):
        (docs / f"minutes {month}.md").write_text(_minutes(month))
    async with open_embedder(settings.embedder, {}) as embedder:
        await ingested(settings.data, docs, embedder=embedder)
    weak = {
        "When was the dog tax last decided?": False,
        "Who decided on the purchase of a fire engine?": False,
        "How steep are the nursery fees?": False,
        "How high is the property tax?": True,
        "How much does the music club get?": True,
        "How long does a pregnancy last?": True,
    }
    async with Desk.open(settings) as desk:
        answers = {query: await desk.search(ME, SearchRequest(query)) for query in weak}
    assert {query: UNGROUNDED in answer.notes for query, answer in answers.items()} == weak


@pytest.mark.anyio
async def test_by_default_nothing_is_claimed_about_evidence_with_a_model_that_was_not_measured(
    shelf: Shelf,
) -> None:
    await shelf.put("a", "the pendulum clock")
    for thresholds, notes in [({}, ()), ({"min_evidence": 0.294}, (UNGROUNDED,))]:
        desk = shelf.desk(thresholds=thresholds)
        answer = await desk.search(ME, SearchRequest("quantum chromodynamics of penguins"))
        assert len(answer.hits) == 1
        assert answer.notes == notes


@pytest.mark.anyio
async def test_a_limit_of_0_shows_nothing_and_says_why(shelf: Shelf) -> None:
    await shelf.put("a", "the pendulum clock")
    assert (await shelf.search("pendulum", limit=1)).hits
    answer = await shelf.search("pendulum", limit=0)
    assert not answer.hits
    assert answer.notes == ("No passages were asked for: the limit is 0.",)
