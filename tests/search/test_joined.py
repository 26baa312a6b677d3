"""Hits of chunks in a row are one hit, cited as a range that can be opened and checked."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from re import Match
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Answer, Hit, SearchRequest
from rag.corpus import Access, Chunk, Passage, Principal
from rag.ingest.chunk import passages
from rag.ingest.parse.parsers import parse
from rag.rank.fusion import neighbours
from rag.search import tool_functions
from rag.search.answer_citations import check_answer
from rag.search.reply.reply_parts import assemble_context
from rag.search.reply.search_reply import MOST_COPIES, search_reply, trace_record
from rag.search.search_state import joined_hit
from rag.search.why import REASONS
from rag.store.write.table_rows import LONGEST_GAP, gaps_between
from rag.text.plain_text import with_indent
from tests.search.conftest import ME, Shelf

pytestmark = pytest.mark.anyio

ROW = ("pendulum clock one", "pendulum clock two", "pendulum clock three")


async def _joined(shelf: Shelf, query: str = "pendulum clock", **request: Any) -> Answer:  # noqa: ANN401
    return await shelf.search(query, joined=True, **request)


@pytest.mark.slow
async def test_one_hit_shows_a_row_of_chunks_once_and_its_range_is_opened_and_checked(shelf: Shelf) -> None:
    source = await shelf.put("clocks", *ROW, "rowing boats on a lake")
    await shelf.put("other", "a pendulum")
    hits = (await _joined(shelf)).hits
    first, second = hits
    assert (first.cited, first.text) == (f"{source.id}/0-2", "\n\n".join(ROW))
    assert (first.span.start, first.span.end) == (0, len("\n\n".join(ROW)))
    assert second.source.title == "other"
    apart = (await shelf.search("pendulum clock")).hits
    of_row = [hit for hit in apart if hit.source.id == source.id and hit.chunk.seq < 3]
    assert len(of_row) == 3
    assert (first.chunk, first.score) == (of_row[0].chunk, max(hit.score for hit in of_row))
    assert first.similarity == max(hit.similarity or 0 for hit in of_row)
    assert first.shown_tokens == sum(hit.chunk.tokens or 0 for hit in of_row)
    desk = shelf.desk()
    opened = await desk.extract(ME, first.cited, max_chars=60)
    assert opened.text == first.text
    checked = await check_answer(desk, ME, f'It says "pendulum clock two" [{first.cited}].')
    assert [quote.verdict for quote in checked.quotes] == ["verbatim"]


@pytest.mark.parametrize(("mime_type", "groups"), [("text/csv", [[0, 1], [2]]), ("text/plain", [[0, 1, 2]])])
async def test_passages_of_two_records_stay_apart_and_those_of_one_are_joined(
    shelf: Shelf, mime_type: str, groups: list[list[int]]
) -> None:
    await shelf.put("tickets", *ROW, mime_type=mime_type)
    found = [
        replace(hit, chunk=replace(hit.chunk, section=(("A-1", "Text") if hit.chunk.seq < 2 else ("A-2",))))
        for hit in (await shelf.search("pendulum clock")).hits
    ]
    joined = neighbours(found, 8, selective=False).groups
    assert sorted(sorted(hit.chunk.seq for hit in group) for group in joined) == groups


async def test_a_reply_cites_the_range_and_says_nothing_of_joints(shelf: Shelf) -> None:
    source = await shelf.put("clocks", *ROW)
    answer = await _joined(shelf, context=True)
    (record,) = search_reply(replace(answer, context=None), None).results
    assert (record.id, record.uri) == (f"{source.id}/0-2", f"refdesk://documents/{source.id}/0-2")
    assert (record.excerpts, record.page) == (None, 1)
    assert record.cite_as == "clocks › pendulum clock one, pp. 1-3"
    assert (record.text or "").count("two") == 1
    assert answer.context
    assert answer.context.text.startswith(f"[{source.id}/0-2]\npendulum clock one\n\npendulum clock two")
    assert search_reply(answer, None).results[0].text is None


async def test_an_assistant_gets_the_range_as_id_and_opens_it(shelf: Shelf) -> None:
    source = await shelf.put("clocks", *ROW, "rowing boats on a lake")
    search, get_source = tool_functions(shelf.desk(), ME)
    (record,) = json.loads(await search("pendulum clock", mode="sparse"))["results"]
    assert record["id"] == f"{source.id}/0-2"
    opened = json.loads(await get_source(record["id"], around=0))
    assert opened["text"] == record["text"] == "\n\n".join(ROW)


@pytest.mark.slow
async def test_a_chunk_that_was_not_admitted_is_in_no_range(shelf: Shelf, blind: Callable[[], None]) -> None:
    source = await shelf.put("clocks", "pendulum gold", "pendulum lead", "pendulum gold again")
    hidden = await shelf.put(
        "hidden",
        "pendulum gold of ann",
        "pendulum gold for ann",
        access=Access("restricted", frozenset({"user:ann"})),
    )
    blind()
    whole = (await _joined(shelf, "pendulum gold", limit=8)).hits
    assert [hit.cited for hit in whole] == [f"{source.id}/0-2"]
    gold = (await _joined(shelf, "pendulum gold", must_contain=("gold",), limit=8)).hits
    assert sorted(hit.cited for hit in gold) == [f"{source.id}/0", f"{source.id}/2"]
    assert "lead" not in "".join(hit.text for hit in gold)
    ann = await shelf.desk().search(Principal("default", "ann"), "pendulum gold", joined=True)
    assert f"{hidden.id}/0-1" in {hit.cited for hit in ann.hits}


@pytest.mark.slow
async def test_a_limit_is_of_joined_hits_and_freed_places_go_to_others(shelf: Shelf) -> None:
    await shelf.put("clocks", *ROW)
    for name in ("a", "b", "c"):
        await shelf.put(name, f"the pendulum of {name}")
    for limit in (1, 2, 4):
        hits = (await _joined(shelf, limit=limit)).hits
        assert len(hits) == limit
        assert hits[0].cited.endswith("/0-2")
    assert len((await _joined(shelf, limit=100)).hits) == 4


@pytest.mark.parametrize(
    "request_",
    [{"mode": "exact", "joined": False}, {"detail": "snippet"}, {"joined": False}],
    ids=["exact", "snippet", "apart"],
)
async def test_snippets_and_what_programs_ask_for_stay_apart(shelf: Shelf, request_: dict[str, Any]) -> None:
    await shelf.put("clocks", *ROW)
    hits = (await shelf.search("pendulum clock", **{"joined": True} | request_)).hits
    assert [hit.chunk.seq for hit in sorted(hits, key=lambda hit: hit.chunk.seq)] == [0, 1, 2]
    assert hits == (await shelf.search("pendulum clock", **request_ | {"joined": False})).hits


async def test_stages_that_show_more_get_single_chunks_and_others_see_each_chunk(shelf: Shelf) -> None:
    source = await shelf.put("clocks", "a plain beginning", *ROW, "a plain end")
    desk = shelf.desk(stages=[{"stage": "neighbors", "count": 1}])
    (hit,) = (await desk.search(ME, "pendulum two", joined=True, mode="sparse")).hits
    assert hit.cited == f"{source.id}/0-4"
    compressed = shelf.desk(stages=[{"stage": "compress"}])
    (short,) = (await compressed.search(ME, "pendulum clock", joined=True, mode="sparse")).hits
    assert short.cited == f"{source.id}/1-3"
    assert short.shown_tokens == len(short.text.split())


async def test_the_trace_has_the_step_and_the_lists_of_every_chunk(shelf: Shelf) -> None:
    source = await shelf.put("clocks", *ROW)
    await shelf.put("other", "a pendulum")
    desk = shelf.desk()
    request = SearchRequest("pendulum clock", joined=True, limit=1)
    answer, fate = await desk.why_not(ME, request, source.id)
    assert [step.name for step in answer.steps][-2:] == ["join", "limit"]
    join = answer.steps[-2]
    assert (join.before, join.after) == (4, 2)
    assert set(trace_record(answer)["listings"]) == {f"{source.id}/{seq}" for seq in range(3)}
    assert fate.step is None
    (hit,) = [hit for hit in (await shelf.search("pendulum")).hits if hit.source.title == "other"]
    _, fate = await desk.why_not(ME, request, hit.source.id)
    assert (fate.step, fate.reason) == ("limit", "Its best passage has rank 2, and the limit is 1.")


def _chunk(seq: int, start: int, text: str, gap: str | None = None) -> Chunk:
    return Chunk(f"a/{seq}", "a", seq, start, start + len(text), text, tokens=2, gap=gap)


@pytest.mark.parametrize(
    ("chunks", "text"),
    [
        ([_chunk(0, 0, "One two."), _chunk(1, 9, "Three.", "\n")], "One two.\nThree."),
        ([_chunk(0, 0, "One two."), _chunk(1, 12, "Three.", "\n \t\n")], "One two.\n \t\nThree."),
        ([_chunk(0, 0, "One two."), _chunk(1, 4, "two. Three.")], "One two. Three."),  # an overlap
        ([_chunk(0, 0, "One "), _chunk(1, 4, "two.")], "One two."),
        ([_chunk(0, 0, "One two three."), _chunk(1, 4, "two")], "One two three."),
    ],
)
def test_text_is_joined_as_it_stands_without_saying_anything_twice(chunks: list[Chunk], text: str) -> None:
    hits = [Hit(chunk, None, 0.5, None) for chunk in reversed(chunks)]  # type: ignore[arg-type]
    hit = joined_hit(hits)
    assert (hit.text, hit.span, hit.cited) == (text, (0, len(text)), "a/0-1")
    assert hit.chunk == chunks[-1]
    assert hit.similarity is None
    assert hit.shown_tokens == (4 if chunks[-1].gap else None)


@pytest.mark.parametrize(
    "between", ["other text", "\n# \n", " " * (LONGEST_GAP + 1)], ids=["text", "mark", "long"]
)
def test_chunks_with_more_than_some_white_space_between_them_stay_apart(between: str) -> None:
    text = f"One two.{between}Three."
    cuts = [Passage(0, 0, 8, (), "", None, 2), Passage(1, 8 + len(between), len(text), (), "", None, 1)]
    chunks = [
        _chunk(cut.seq, cut.start, text[cut.start : cut.end], gap)
        for cut, gap in zip(cuts, gaps_between(text, cuts), strict=True)
    ]
    joined = joined_hit([Hit(chunk, None, 0.5, None) for chunk in chunks])  # type: ignore[arg-type]
    assert [excerpt.text for excerpt in joined.excerpts] == ["One two.", "Three."]


LINE = st.sampled_from(
    ["def f(a):", "return a", "| a | b |", "|---|---|", "- an item", "1. two", "# Head", "  rose,"]
)
INDENTED = st.tuples(st.sampled_from(["", "  ", "    ", "\t", "        "]), LINE).map("".join)
BREAKS = st.sampled_from(["\n", "\n\n", "\r\n", "\n\n\n", "  \n", "\n \t\n", "\r\n\r\n", " ", "\x0c\n"])
FILES = st.lists(st.tuples(INDENTED, BREAKS), min_size=2, max_size=40)


@given(FILES, st.sampled_from(["a.py", "a.md", "a.txt", "a.rs"]), st.data())
def test_what_is_joined_is_the_text_of_the_file(
    lines: list[tuple[str, str]], name: str, data: st.DataObject
) -> None:
    document = parse("".join(map("".join, lines)).encode(), name)
    cuts = passages(
        document, token_spans=lambda text: [*map(Match.span, re.finditer(r"\S+", text))], limit=12
    )
    first = data.draw(st.integers(0, len(cuts) - 1))
    last = data.draw(st.integers(first, min(first + 4, len(cuts) - 1)))
    gaps = dict(zip((cut.seq for cut in cuts), gaps_between(document.text, cuts), strict=True))
    hits = [
        Hit(_chunk(cut.seq, cut.start, document.text[cut.start : cut.end], gaps[cut.seq]), None, 0.5, None)  # type: ignore[arg-type]
        for cut in data.draw(st.permutations(cuts[first : last + 1]))
    ]
    hit = joined_hit(hits)
    assert hit.text == document.text[slice(*hit.span)]
    assert hit.span == (cuts[first].start, cuts[last].end)
    words_at = hit.span.end - len(hit.text.lstrip())
    assert hit.span.start == with_indent(document.text, words_at)


def test_a_context_that_has_no_room_truncates_a_range_like_any_passage() -> None:
    hits = [Hit(_chunk(0, 0, "One two."), None, 0.5, None), Hit(_chunk(1, 9, "Three."), None, 0.4, None)]  # type: ignore[arg-type]
    context = assemble_context(
        [joined_hit(hits)], budget=16, token_spans=lambda text: [(at, at + 1) for at in range(len(text))]
    )
    assert context.cut
    assert context.text.startswith("[a/0-1]\nOne two.")


async def _copied(shelf: Shelf) -> None:
    """A guide in four places, one of them hidden, and another document."""
    for folder in ("a", "b", "c"):
        metadata = {"path": f"{folder}/guide.md"}
        await shelf.put(folder, *ROW, title="Guide", metadata=metadata, id_=folder * 16)
    access = Access("restricted", frozenset({"user:ann"}))
    await shelf.put("d", *ROW, title="Guide", metadata={"path": "d/guide.md"}, id_="d" * 16, access=access)
    await shelf.put("other", "a pendulum", id_="e" * 16)


@pytest.mark.slow
async def test_a_passage_of_several_documents_is_shown_once_with_the_places_that_the_asker_may_read(
    shelf: Shelf, blind: Callable[[], None]
) -> None:
    await _copied(shelf)
    blind()
    texts: dict[str, list[list[str]]] = {}
    for user in ("ann", "bob"):
        search, get_source = tool_functions(shelf.desk(), Principal("default", user))
        results = json.loads(await search("pendulum clock", limit=2, mode="sparse"))["results"]
        assert [result["id"] for result in results] == [f"{'a' * 16}/0-2", f"{'e' * 16}/0"]
        assert results[0]["cite_as"] == "Guide (a) › pendulum clock one, pp. 1-3"
        texts[user] = [result.get("also_in", []) for result in results]
        for place in texts[user][0]:
            assert json.loads(await get_source(place, around=0))["text"] == results[0]["text"]
    places = [f"Guide ({folder}) [{folder * 16}/0-2]" for folder in "bcd"]
    assert texts == {"ann": [places, []], "bob": [places[:2], []]}


@pytest.mark.parametrize(
    ("request_", "count"),
    [({"detail": "snippet"}, 4), ({}, 2), ({"joined": False}, 10), ({"mode": "exact"}, 4)],
    ids=str,
)
async def test_copies_are_one_for_assistants_but_in_mode_exact_and_not_for_programs(
    shelf: Shelf, request_: dict[str, Any], count: int
) -> None:
    await _copied(shelf)
    hits = (await shelf.search("pendulum", limit=100, **{"joined": True} | request_)).hits
    assert len(hits) == count


async def test_copies_take_no_places_of_other_documents(shelf: Shelf) -> None:
    texts = {f"copy {number}": "the pendulum clock" for number in range(30)}
    unrelated = {f"other {number}": f"a pendulum of number {number}" for number in range(3)}
    await shelf.put_all(texts | unrelated)
    for detail in ("passage", "snippet"):
        answer = await _joined(shelf, "pendulum clock", limit=4, detail=detail)
        assert len({hit.text for hit in answer.hits}) == len(answer.hits) == 4
        (record, *_) = search_reply(answer, None).results
        assert record.also_in
        assert (len(record.also_in), record.also_in[-1]) == (MOST_COPIES + 1, f"{29 - MOST_COPIES} more")


@pytest.mark.slow
async def test_a_copy_below_another_heading_is_cited_with_it(shelf: Shelf) -> None:
    await shelf.put("a", "Open", "the pendulum clock", id_="a" * 16)
    await shelf.put("b", "Shut", "the pendulum clock", id_="b" * 16)
    answer = await _joined(shelf, "pendulum clock", mode="sparse")
    (record,) = search_reply(answer, None).results
    assert record.also_in == [f"b › Shut, p. 2 [{'b' * 16}/1]"]


@pytest.mark.slow
async def test_an_edition_that_has_only_some_of_the_joined_passages_is_no_place_of_them(shelf: Shelf) -> None:
    first_text, *others = ROW
    await shelf.put("a", *ROW, id_="a" * 16)
    await shelf.put("b", f"steel {first_text}", *others, id_="b" * 16)
    record, *_ = search_reply(await _joined(shelf, mode="sparse"), None).results
    assert (record.id, record.also_in) == (f"{'a' * 16}/0-2", None)


async def test_why_not_tells_that_a_copy_is_shown(shelf: Shelf) -> None:
    await _copied(shelf)
    request = SearchRequest("pendulum clock", joined=True, mode="sparse")
    _, fate = await shelf.desk().why_not(ME, request, "b" * 16)
    assert (fate.step, fate.reason) == ("copies", REASONS["copies"])
