"""Quoted phrases and required texts, in every mode.

A query of phrases alone finds only what has them. Beside other words, passages with them come first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rag.answers import Mode, SearchRequest
from rag.corpus import Access, Principal
from rag.errors import InvalidRequestError

if TYPE_CHECKING:
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio
ME = Principal("default")
MODES: tuple[Mode, ...] = ("dense", "sparse", "hybrid")
modes = pytest.mark.parametrize("mode", MODES)


async def found(shelf: Shelf, query: str, mode: Mode, **request: Any) -> set[str]:  # noqa: ANN401 a request's own
    return {hit.text for hit in (await shelf.search(query, mode=mode, limit=50, **request)).hits}


@modes
async def test_a_quoted_phrase_must_occur_word_for_word(shelf: Shelf, mode: Mode) -> None:
    texts = ["leave of absence", "absence of leave", "a Leave\nof Absence.", "leave of absences", "O leave"]
    await shelf.put_all({str(at): text for at, text in enumerate(texts)})
    for query in ('"leave of absence"', "“leave of absence”", "(„leave of absence“)", '"leave of" "absence"'):
        assert await found(shelf, query, mode) == {texts[0], texts[2]}
    assert len(await found(shelf, 'leave" of absence', mode)) == len(texts)  # ordinary text


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
        wanted = {texts[0]} if phrase in texts[0] else set()
        assert await found(shelf, f'"{phrase}"', mode) == wanted


@modes
async def test_the_line_above_a_passage_is_not_part_of_it(shelf: Shelf, mode: Mode) -> None:
    await shelf.put("handbook", "first", "second handbook")
    assert await found(shelf, '"handbook"', mode) == {"second handbook"}


@modes
async def test_phrases_are_conditions_besides_rights_and_filters(shelf: Shelf, mode: Mode) -> None:
    await shelf.declare("documents", year="integer")
    await shelf.put("open", "leave of absence, open", fields={"year": 2020})
    await shelf.put("other", "leave of absence, other", fields={"year": 2021})
    await shelf.put("hidden", "leave of absence, hidden", access=Access("restricted"))
    assert await found(shelf, '"leave of absence"', mode, filter={"year": 2020}) == {"leave of absence, open"}
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

    async def shown(**request: Any) -> set[str]:  # noqa: ANN401 a request's own
        answer = await desk.search(ME, SearchRequest("clock", mode=mode, **request))
        return {hit.text for hit in answer.hits}

    assert await shown() == {*texts}
    assert await shown(profile="final") == {texts[0], texts[2]}
    assert await shown(profile="final", must_contain=("2024",)) == {texts[2]}
    assert await shown(must_contain=("202", "CLOCK")) == {texts[2], texts[3]}
    answer = await desk.search(ME, SearchRequest("clock", mode=mode, must_contain=("quokka",)))
    assert answer.hits == ()
    assert 'No passage contains "quokka"' in answer.notes[0]


async def test_exact_matches_in_other_passages_of_a_document_lack_what_is_required(shelf: Shelf) -> None:
    await shelf.put("a", "approved needle", "another needle")
    answer = await shelf.search("needle", mode="exact", must_contain=("approved",))
    assert [hit.chunk.seq for hit in answer.hits] == [0]


async def test_what_is_required_must_be_text(shelf: Shelf) -> None:
    await shelf.put("a", "text")
    for text, says in (("", "no visible character"), ("x" * 1001, "at most 1000"), ("\ud800", "surrogate")):
        with pytest.raises(InvalidRequestError, match=says):
            await shelf.search("text", must_contain=(text,))
