"""An answer held against the desk: what can be read, and what stands there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.corpus import Access, Principal
from rag.search.answer_citations import CheckedAnswer, CheckedCitation, CheckedQuote, check_answer
from rag.search.reply.untrusted import disarm

if TYPE_CHECKING:
    from rag.corpus import Source
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
STRANGER = Principal("elsewhere", "ann")
PARAGRAPHS = (
    "Of clocks",
    "The clock swings.",
    "It swings slowly.",
    "See ![a map](http://x/y.png) and <img src=z>. A \u200bvideo\ufe01: <video poster=x></video>",
    "It stops.",
)


@pytest.fixture
async def source(shelf: Shelf) -> Source:
    return await shelf.put("clocks", *PARAGRAPHS)


async def checked(shelf: Shelf, text: str, principal: Principal = ANN) -> CheckedAnswer:
    return await check_answer(shelf.desk(), principal, text)


async def quote(shelf: Shelf, text: str) -> CheckedQuote:
    (one,) = (await checked(shelf, text)).quotes
    return one


async def test_a_citation_that_can_be_read_comes_with_its_passage(shelf: Shelf, source: Source) -> None:
    other = await shelf.put("other", "Of water", collection="more")
    answer = await checked(shelf, f"It swings [{source.id}/1], it drips [refdesk://more/{other.id}/0].")
    assert answer.holds
    assert [(one.id, one.readable, one.source) for one in answer.citations] == [
        (f"{source.id}/1", True, source),
        (f"{other.id}/0", True, other),
    ]
    assert [[chunk.text for chunk in one.chunks] for one in answer.citations] == [
        [PARAGRAPHS[1]],
        ["Of water"],
    ]


async def test_unknown_foreign_denied_and_deleted_are_one_answer(shelf: Shelf) -> None:
    denied = await shelf.put("denied", "Of clocks", access=Access("restricted", frozenset({"user:ann"})))
    deleted = await shelf.put("deleted", "Of clocks")
    text = f'He says "Of clocks" [{denied.id}/0] or "Of clocks" [{deleted.id}/0].'
    before = await checked(shelf, text)
    assert before.holds
    assert len(before.citations) == 2
    async with await shelf.small.writing(shelf.data) as writer:
        await writer.remove([deleted.id])
    async with await shelf.small.writing(shelf.data, "elsewhere") as writer:
        foreign = shelf.small.new_source(writer, "foreign", "Of clocks")
        await writer.replace([foreign])
    assert (await checked(shelf, f'"Of clocks" [{foreign.source.id}/0]', STRANGER)).holds
    for id_ in (denied.id, deleted.id, foreign.source.id, "aaaaaaaaaaaaaaaa"):
        assert await checked(shelf, f'He says "Of clocks" [{id_}/0].', BOB) == CheckedAnswer(
            (CheckedCitation(f"{id_}/0"),), (CheckedQuote("Of clocks", (f"{id_}/0",), "not found"),)
        )


@pytest.mark.parametrize(
    "seq", ["5", "00", "01", "999999999", "9" * 5000, "3-5", "0-999999999", "2-1", "1-02", "1-2-3"]
)
async def test_a_source_s_passage_that_is_not_there_can_t_be_read(
    shelf: Shelf, source: Source, seq: str
) -> None:
    answer = await checked(shelf, f"[{source.id}/0] [{source.id}/{seq}] [notes.md/{seq}]")
    assert [one.readable for one in answer.citations] == [True, False, False]
    assert not answer.holds


async def test_a_quote_is_verbatim_in_any_of_the_passages_that_it_cites(shelf: Shelf, source: Source) -> None:
    for text in ("The clock\nswings.", "clock swings", "swings.", "It stops.", "The … It stops."):
        cited = f"{source.id}/1", f"{source.id}/4"
        found = await quote(shelf, f'"{text}" [{", ".join(cited)}]')
        assert found == CheckedQuote(text, cited, "verbatim")


async def test_passages_that_follow_each_other_are_one_and_others_are_not(
    shelf: Shelf, source: Source
) -> None:
    one, two, three = (f"{source.id}/{seq}" for seq in (1, 2, 4))
    assert (await quote(shelf, f'"swings. It swings" [{two}, {one}]')).verdict == "verbatim"
    assert (await quote(shelf, f'"swings. It stops." [{one}, {three}]')).verdict == "not found"
    assert await quote(shelf, f'"swings. It swings" [{one}]') == CheckedQuote(
        "swings. It swings", (one,), "elsewhere", (one, two)
    )


@pytest.mark.parametrize("dash", ["-", "–", " – ", "\u2011"])
async def test_a_range_of_passages_is_one_citation(shelf: Shelf, source: Source, dash: str) -> None:
    answer = await checked(shelf, f'"swings. It swings slowly" [{source.id}/1{dash}2]')
    (citation,) = answer.citations
    assert answer.holds
    assert (citation.id, [chunk.seq for chunk in citation.chunks]) == (f"{source.id}/1-2", [1, 2])
    for cited, verdict in [
        ("1-2", "elsewhere"),
        ("1-4", "verbatim"),
        ("3-4", "verbatim"),
        ("2-9", "elsewhere"),
    ]:
        assert (await quote(shelf, f'"It stops" [{source.id}/{cited}]')).verdict == verdict
    assert (await quote(shelf, f'"slowly. See" [{source.id}/1-2, {source.id}/3]')).verdict == "verbatim"


async def test_a_range_of_another_s_source_looks_like_one_that_is_not_there(shelf: Shelf) -> None:
    denied = await shelf.put("denied", "One", "Two", access=Access("restricted", frozenset({"user:ann"})))
    text = f'"One" [{denied.id}/0-1]'
    assert (await checked(shelf, text)).holds
    assert (await checked(shelf, text, BOB)) == CheckedAnswer(
        (CheckedCitation(f"{denied.id}/0-1"),), (CheckedQuote("One", (f"{denied.id}/0-1",), "not found"),)
    )


async def test_a_quote_from_another_passage_of_the_source_is_elsewhere(shelf: Shelf, source: Source) -> None:
    other = await shelf.put("other", "Of water")
    first, last = f"{source.id}/1", f"{source.id}/4"
    assert await quote(shelf, f'"It stops" [{first}]') == CheckedQuote(
        "It stops", (first,), "elsewhere", (last,)
    )
    assert (await quote(shelf, f'"clock … stops" [{first}]')).found == (source.id,)
    assert (await quote(shelf, f'"It stops" [{other.id}/0]')).verdict == "not found"
    assert (await quote(shelf, f'"It stops" [{other.id}/0, {last}]')).verdict == "verbatim"


async def test_a_quote_that_is_changed_is_not_found(shelf: Shelf, source: Source) -> None:
    good, bad = [await checked(shelf, f'"{text}" [{source.id}/1]') for text in ("The clock", "the clock")]
    assert (good.holds, bad.holds) == (True, False)
    assert bad.quotes == (CheckedQuote("the clock", (f"{source.id}/1",), "not found"),)


async def test_an_image_is_quoted_as_the_document_has_it_or_as_the_tools_show_it(
    shelf: Shelf, source: Source
) -> None:
    for text in (PARAGRAPHS[3], disarm(PARAGRAPHS[3])):
        assert (await quote(shelf, f"> {text}\n\n[{source.id}/3]")).verdict == "verbatim"
        assert (await quote(shelf, f"> {text}\n\n[{source.id}/1]")).found == (f"{source.id}/3",)


async def test_a_quote_that_cites_nothing_is_unchecked_and_does_no_harm(shelf: Shelf, source: Source) -> None:
    answer = await checked(shelf, f'It swings [{source.id}/1], they "say".')
    assert answer.quotes == (CheckedQuote("say", (), "unchecked"),)
    assert answer.holds


async def test_an_answer_without_citations_holds_even_on_an_empty_desk(shelf: Shelf) -> None:
    await shelf.declare("documents")
    assert await checked(shelf, "") == CheckedAnswer((), ())
    assert not (await checked(shelf, "[abc/1]")).holds
