"""Opening a source: by its id, by a chunk's, from a position, with what stands around."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Extract, Part
from rag.corpus import Binding, Principal, Source
from rag.errors import BusyError, InvalidRequestError, NotFoundError
from rag.search.reply.source_reply import source_reply
from rag.search.source_window import AT_CAPTION, TOO_FEW, between_words, centered_window
from rag.store.read.collection_reader import CollectionReader
from rag.text.plain_text import Span
from tests.search.conftest import ME, Shelf

PARAGRAPHS = [f"Paragraph {n} says something of number {n} in a few words." for n in range(9)]
TEXT = "\n\n".join(PARAGRAPHS)


async def _opened(
    shelf: Shelf,
    id_: str,
    *,
    max_chars: int = 10_000,
    **options: Any,  # noqa: ANN401 those of a part
) -> Extract:
    return await shelf.desk().extract(ME, id_, max_chars=max_chars, part=Part(**options))


@pytest.fixture
async def source(shelf: Shelf) -> Source:
    await shelf.put("other", "Nothing of it.", collection="a-first")
    return await shelf.put("numbers", *PARAGRAPHS)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_source_is_opened_whole_where_it_fits(shelf: Shelf, source: Source) -> None:
    extract = await _opened(shelf, source.id)
    assert (extract.source, extract.text, extract.start, extract.end) == (source, TEXT, 0, len(TEXT))
    assert [chunk.text for chunk in extract.chunks] == PARAGRAPHS
    assert [heading.title for heading in extract.outline] == PARAGRAPHS[:1]


@pytest.mark.anyio
async def test_windows_one_after_the_other_are_the_whole_text(shelf: Shelf, source: Source) -> None:
    parts, start = [], 0
    while start < len(TEXT):
        extract = await _opened(shelf, source.id, max_chars=100, start=start)
        assert extract.start == start
        assert 0 < len(extract.text) <= 100
        assert extract.text == TEXT[extract.start : extract.end]
        parts.append(extract.text)
        start = extract.end
    assert "".join(parts) == TEXT


@pytest.mark.anyio
async def test_the_chunks_of_a_window_are_those_that_touch_it(shelf: Shelf, source: Source) -> None:
    whole = (await _opened(shelf, source.id)).chunks
    extract = await _opened(shelf, source.id, max_chars=90, start=100)
    assert extract.chunks == tuple(
        chunk for chunk in whole if chunk.start < extract.end and chunk.end > extract.start
    )


@pytest.mark.anyio
async def test_a_chunk_is_opened_in_the_middle_of_its_source(shelf: Shelf, source: Source) -> None:
    extract = await _opened(shelf, f"{source.id}/4", max_chars=200)
    assert PARAGRAPHS[4] in extract.text
    before, after = extract.text.split(PARAGRAPHS[4])
    assert 30 < len(before) < 100
    assert 30 < len(after) < 100
    assert len(extract.text) <= 200


@pytest.mark.anyio
@pytest.mark.parametrize("seq", [0, 8])
async def test_at_an_end_of_the_source_the_window_uses_what_the_other_side_leaves(
    shelf: Shelf, source: Source, seq: int
) -> None:
    extract = await _opened(shelf, f"{source.id}/{seq}", max_chars=200)
    assert PARAGRAPHS[seq] in extract.text
    assert 160 <= len(extract.text) <= 200


@pytest.mark.anyio
@pytest.mark.parametrize("options", [{}, {"around": 0}, {"section": PARAGRAPHS[0]}], ids=str)
async def test_white_space_at_the_end_is_nothing_to_read_on_for(
    shelf: Shelf, options: dict[str, Any]
) -> None:
    blank = await shelf.put("blank", *PARAGRAPHS, " \n\n ")
    extract = await _opened(shelf, f"{blank.id}/8", max_chars=len(TEXT), **options)
    assert (extract.until > len(TEXT)) == ("around" not in options)
    reply = source_reply(replace(extract, end=len(TEXT), text=TEXT[extract.start :]), 10_000)
    assert (reply.next_start, reply.notes) == (None, [])
    earlier = source_reply(replace(extract, end=extract.start + 9, text=extract.text[:9]), 10_000)
    assert earlier.next_start == extract.start + 9


@pytest.mark.anyio
async def test_around_takes_so_many_chunks_on_both_sides(shelf: Shelf, source: Source) -> None:
    for seq, around, expected in (
        (4, 0, [4]),
        (4, 2, [2, 3, 4, 5, 6]),
        (0, 1, [0, 1]),
        (8, 50, list(range(9))),
    ):
        extract = await _opened(shelf, f"{source.id}/{seq}", around=around)
        assert extract.text == "\n\n".join(PARAGRAPHS[n] for n in expected)
        assert [chunk.seq for chunk in extract.chunks] == expected


@pytest.mark.anyio
async def test_around_too_much_to_fit_keeps_the_chunk_in_the_middle(shelf: Shelf, source: Source) -> None:
    extract = await _opened(shelf, f"{source.id}/4", around=3, max_chars=150)
    assert PARAGRAPHS[4] in extract.text
    assert len(extract.text) <= 150


@pytest.mark.anyio
@pytest.mark.parametrize("id_", ["unknown", "unknown/0", "{}/x", "x' OR 'a'='a", ""])
async def test_what_is_not_there_is_not_found(shelf: Shelf, source: Source, id_: str) -> None:
    with pytest.raises(NotFoundError, match="Nothing readable has this id"):
        await _opened(shelf, id_.format(source.id))


@pytest.mark.anyio
@pytest.mark.parametrize("seqs", ["9", "999999999", "3-9"])
async def test_of_a_number_that_is_too_high_the_last_one_is_told_to_who_may_read_the_document(
    shelf: Shelf, source: Source, seqs: str
) -> None:
    with pytest.raises(NotFoundError, match=TOO_FEW.format(source.id, 8)):
        await _opened(shelf, f"{source.id}/{seqs}")
    if "-" not in seqs:
        with pytest.raises(NotFoundError, match=TOO_FEW.format(source.id, 8)):
            await shelf.search("", related=f"{source.id}/{seqs}")
    elsewhere = Principal("default", bindings=(Binding(collections=("a-first",)),))
    with pytest.raises(NotFoundError, match="Nothing readable"):
        await shelf.desk().extract(elsewhere, f"{source.id}/{seqs}", max_chars=99)


@pytest.mark.anyio
async def test_another_tenants_source_is_not_found(shelf: Shelf, source: Source) -> None:
    await shelf.small.ensure_collection(shelf.data, "acme", "documents", shelf.small.BagOfWords().identity)
    with pytest.raises(NotFoundError):
        await shelf.desk().extract(Principal("acme"), source.id, max_chars=100)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("id_", "options"),
    [
        ("{}", {"start": len(TEXT)}),
        ("{}", {"start": -1}),
        ("{}", {"around": 1}),
        ("{}/1", {"around": 1, "start": 0}),
        ("{}/1", {"around": -1}),
    ],
)
async def test_what_can_not_be_meant_is_told_what_can(
    shelf: Shelf, source: Source, id_: str, options: dict[str, int]
) -> None:
    with pytest.raises(InvalidRequestError, match=rf"from 0 to {len(TEXT) - 1}|around"):
        await _opened(shelf, id_.format(source.id), **options)


@pytest.mark.slow
@pytest.mark.anyio
async def test_lines_are_those_of_the_stored_text(shelf: Shelf) -> None:
    source = await shelf.put("log", "first\nsecond\x0cstill", "\u2028third", "last")
    for lines, text in (
        ((1, 1), "first"),
        ((2, 2), "second\x0cstill"),
        ((2, 5), "second\x0cstill\n\n\u2028third\n"),
    ):
        extract = await _opened(shelf, source.id, lines=lines)
        assert (extract.text, extract.first_line, extract.line_count) == (text, lines[0], 6)
    assert (await _opened(shelf, f"{source.id}/2", lines=(5, 999))).text == "\nlast"
    with pytest.raises(InvalidRequestError, match="lines must be from 1 to 6 in this source"):
        await _opened(shelf, source.id, lines=(7, 8))
    for wrong in ((0, 1), (3, 2)):
        with pytest.raises(InvalidRequestError, match="counted from 1, such as 120-180"):
            await _opened(shelf, source.id, lines=wrong)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_section_and_an_outline_are_of_the_source_of_a_chunk_too(
    shelf: Shelf, source: Source
) -> None:
    for id_ in (source.id, f"{source.id}/4"):
        section = await _opened(shelf, id_, section="paragraph 0", start=10)
        assert (section.start, section.until, section.text) == (10, len(TEXT), TEXT[10:])
        whole = await _opened(shelf, id_, section="paragraph 0")
        assert [heading.title for heading in whole.outline] == PARAGRAPHS[:1]
        assert (await _opened(shelf, id_, lines=(2, 9))).outline == section.outline == ()
        outline = await _opened(shelf, id_, outline=True)
        assert [heading.title for heading in outline.outline] == PARAGRAPHS[:1]
        assert (outline.text, outline.chunks) == ("", ())
        assert (await _opened(shelf, id_, outline=True, start=1)).outline == ()


@pytest.mark.anyio
@pytest.mark.parametrize(
    "options",
    [
        {"section": "x", "lines": (1, 2)},
        {"section": "x", "outline": True},
        {"around": 0, "lines": (1, 2)},
        {"around": 0, "section": "x"},
        {"start": 0, "lines": (1, 2)},
    ],
)
async def test_two_parts_at_once_are_refused(shelf: Shelf, source: Source, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="can't be combined"):
        await _opened(shelf, f"{source.id}/1", **options)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_source_that_is_replaced_while_it_is_read_is_read_anew(
    shelf: Shelf, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = _replace_while_reading(shelf, monkeypatch, most=2)
    extract = await _opened(shelf, f"{source.id}/1", around=1)
    assert extract.text == "version 2\n\nof numbers"
    assert [chunk.text for chunk in extract.chunks] == ["version 2", "of numbers"]
    assert times == [1, 2]


@pytest.mark.anyio
async def test_a_source_that_is_replaced_each_time_it_is_read_is_busy(
    shelf: Shelf, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    _replace_while_reading(shelf, monkeypatch, most=99)
    with pytest.raises(BusyError):
        await _opened(shelf, f"{source.id}/1", around=1)


def _replace_while_reading(shelf: Shelf, monkeypatch: pytest.MonkeyPatch, *, most: int) -> list[int]:
    """Make another writer commit right after a reader has the source and before it has the chunks."""
    text = CollectionReader.text
    times: list[int] = []

    async def overtaken(table: CollectionReader, source_id: str) -> object:
        stored_text = await text(table, source_id)
        if len(times) < most:
            times.append(len(times) + 1)
            await shelf.put("numbers", f"version {len(times)}", "of numbers")
        return stored_text

    monkeypatch.setattr(CollectionReader, "text", overtaken)
    return times


SPANS = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: Span(min(pair), max(pair)))


@st.composite
def _windows(draw: st.DrawFn) -> tuple[Span, Span]:
    """A span, and one inside it."""
    whole = draw(SPANS)
    start = draw(st.integers(whole.start, whole.end))
    return whole, Span(start, draw(st.integers(start, whole.end)))


@given(_windows(), st.integers(1, 80))
def test_a_centred_window_is_inside_and_as_long_as_there_is_room(
    spans: tuple[Span, Span], max_chars: int
) -> None:
    whole, middle = spans
    window = centered_window(whole, middle, max_chars)
    assert whole.start <= window.start <= window.end <= whole.end
    assert window.end - window.start == min(max_chars, whole.end - whole.start)


@given(_windows(), st.integers(1, 80))
def test_a_centred_window_holds_the_middle_or_its_beginning(spans: tuple[Span, Span], max_chars: int) -> None:
    whole, middle = spans
    window = centered_window(whole, middle, max_chars)
    if middle.end - middle.start <= max_chars:
        assert window.start <= middle.start
        assert middle.end <= window.end
    elif middle.start + max_chars <= whole.end:
        assert window.start == middle.start


TEXTS = st.text("ab \n", max_size=60)


@st.composite
def _cuts(draw: st.DrawFn) -> tuple[str, Span, Span]:
    """A text, a window of it, and the span that the window cuts."""
    text = draw(TEXTS)
    edges = sorted(draw(st.lists(st.integers(0, len(text)), min_size=4, max_size=4)))
    return text, Span(edges[1], edges[2]), Span(edges[0], edges[3])


@given(_cuts())
def test_edges_move_inwards_by_a_fifth_at_most_and_only_where_they_cut(cuts: tuple[str, Span, Span]) -> None:
    text, window, whole = cuts
    snapped = between_words(text, window, whole)
    reach = max(1, (window.end - window.start) // 5)
    assert window.start <= snapped.start <= window.start + reach
    assert window.end - reach <= snapped.end <= window.end
    assert snapped.start <= snapped.end
    if window.start == whole.start:
        assert snapped.start == window.start
    if window.end == whole.end:
        assert snapped.end == window.end


@given(_cuts())
def test_a_moved_edge_stands_between_words(cuts: tuple[str, Span, Span]) -> None:
    text, window, whole = cuts
    snapped = between_words(text, window, whole)
    if snapped.start > window.start:
        assert text[snapped.start - 1].isspace()
    if snapped.end < window.end:
        assert text[snapped.end].isspace()


@given(TEXTS.filter(bool), st.integers(1, 30))
def test_reading_on_from_the_end_of_a_window_always_gets_on(text: str, max_chars: int) -> None:
    start, characters = 0, ""
    while start < len(text):
        whole = Span(start, len(text))
        window = between_words(text, centered_window(whole, Span(start, start), max_chars), whole)
        assert window.start == start < window.end
        characters += text[window.start : window.end]
        start = window.end
    assert characters == text


def test_worked_examples() -> None:
    assert centered_window(Span(0, 100), Span(40, 50), 30) == Span(30, 60)
    assert between_words("one two three four five", Span(2, 20), Span(0, 23)) == Span(4, 18)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_caption_opens_its_passage_and_those_beside_it(shelf: Shelf) -> None:
    paragraphs = ["List", "Table 3. Cats . . . . . 9", *PARAGRAPHS[:2], "Table 3: Cats", *PARAGRAPHS[2:]]
    source = await shelf.put("cats", *paragraphs)
    extract = await _opened(shelf, source.id, section="tab. 3")
    assert (extract.text, extract.notes) == ("\n\n".join(paragraphs[3:6]), (AT_CAPTION,))
    with pytest.raises(InvalidRequestError):
        await _opened(shelf, source.id, section="Table 4")
