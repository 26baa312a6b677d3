"""What is shown around a hit: the chunks beside it, or its section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Excerpt, Hit
from rag.config.profiles import ParentStage
from rag.corpus import Access, Chunk, Heading, Principal, Source
from rag.search.source_window import merge_spans
from rag.search.stages.detail import in_sections, section_around, with_neighbors
from rag.search.view import View
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.text.plain_text import Span, trimmed
from rag.uris import split_id
from tests.search.conftest import Shelf
from tests.small_desk import set_access

BOB = Principal("default", "bob")
NOT_BOB = Access("tenant", frozenset(), frozenset({"user:bob"}))
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six"]
BOOK = [
    *("preface", "# Time", "about time", "## Clocks", "of clocks", "### Towers", "in towers"),
    *("## Dials", "of dials", "# Space", "about space"),
]
LEVELS = {1: 1, 3: 2, 5: 3, 7: 2, 9: 1}
"""Which paragraphs of the book are headings, and of which level."""

either = pytest.mark.parametrize("stage", ["neighbors", "parent"])


async def _put(
    shelf: Shelf,
    name: str,
    paragraphs: Sequence[str],
    levels: Mapping[int, int] | None = None,
    **details: object,
) -> Source:
    """Store a source with these paragraphs as its chunks, and as headings those that have a level."""

    async def store() -> Source:
        async with await shelf.small.writing(shelf.data) as writer:
            item = shelf.small.new_source(writer, name, *paragraphs, **details)
            outline = [
                Heading(paragraphs[place], level, item.passages[place].start)
                for place, level in (levels or {}).items()
            ]
            await writer.replace([replace(item, outline=tuple(outline))])
            source: Source = item.source
            return source

    return await shelf.snapshots.changed(shelf.data, f"outlined {(name, paragraphs, levels, details)}", store)


async def _views(shelf: Shelf, principal: Principal = BOB) -> dict[str, View]:
    reader = DeskReader(shelf.data, timeout_seconds=15)
    collections = await reader.collections(principal.tenant)
    return {collection.name: View(await reader.open(collection), principal) for collection in collections}


async def _hits(views: Mapping[str, View], *places: tuple[Source, int]) -> list[Hit]:
    """The chunks with these numbers as hits, the best first."""
    hits = []
    for place, (source, seq) in enumerate(places):
        view = views[source.collection]
        stored = (await view.table.sources([source.id]))[source.id]
        (chunk,) = await view.table.chunks_between(stored, seq, seq, view.where)
        hits.append(Hit(chunk, stored.source, 1 - place / 100, 0.5))
    return hits


async def _expanded(
    hits: Sequence[Hit],
    views: Mapping[str, View],
    stage: str = "neighbors",
    *,
    count: int = 1,
    max_chars: int = 4000,
) -> list[Hit]:
    """What the stage makes of the hits; all excerpts are word for word what stands there."""
    if stage == "neighbors":
        expanded = await with_neighbors(hits, count, views)
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ParentStage, "max_chars", max_chars)
            expanded, _ = await in_sections(hits, ParentStage(stage="parent"), views)
    for hit in expanded:
        stored_text = await views[hit.source.collection].table.text(hit.source.id)
        assert stored_text
        assert all(stored_text[2][excerpt.start : excerpt.end] == excerpt.text for excerpt in hit.excerpts)
        await _check_cited(hit, views[hit.source.collection])
    return expanded


async def _check_cited(hit: Hit, view: View) -> None:
    """Its citation names the chunks that hold all of what is shown, and no others."""
    stored = (await view.table.sources([hit.source.id]))[hit.source.id]
    source_id, seqs = split_id(hit.cited)
    assert source_id == hit.source.id
    cited = await view.table.chunks_between(stored, seqs[0], seqs[-1], view.where)
    for excerpt in hit.excerpts:
        trimmed_ = trimmed(excerpt.text, 0, len(excerpt.text))
        assert trimmed_
        assert cited[0].start <= excerpt.start + trimmed_.start < cited[0].end
        assert cited[-1].start < excerpt.start + trimmed_.end <= cited[-1].end
    assert hit.excerpts or hit.cited == hit.chunk.id


def _texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.text.replace("\n\n", " ") for hit in hits]


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_hit_is_shown_with_as_many_chunks_before_and_after_as_are_asked_for(shelf: Shelf) -> None:
    source = await _put(shelf, "a", NUMBERS)
    views = await _views(shelf)
    for seq, count, text in [
        (3, 0, "three"),
        (3, 1, "two three four"),
        (3, 2, "one two three four five"),
        (0, 2, "zero one two"),
        (6, 1, "five six"),
        (3, 5, " ".join(NUMBERS)),
    ]:
        hits = await _hits(views, (source, seq))
        expanded = await _expanded(hits, views, count=count)
        assert _texts(expanded) == [text]
        assert [replace(hit, excerpts=()) for hit in expanded] == hits


@pytest.mark.slow
@pytest.mark.anyio
async def test_each_run_of_chunks_that_are_shown_is_one_hit_the_best_of_those_in_it(shelf: Shelf) -> None:
    source = await _put(shelf, "a", NUMBERS)
    views = await _views(shelf)
    all_ = await _hits(views, *((source, seq) for seq in range(7)))
    for chosen, count in product(combinations(all_, 3), (0, 1)):
        near = [any(abs(seq - hit.chunk.seq) <= count for hit in chosen) for seq in range(7)]
        words = [word if is_shown else "|" for word, is_shown in zip(NUMBERS, near, strict=True)]
        expanded = await _expanded(chosen[::-1], views, count=count)
        runs = [run.strip() for run in " ".join(words).split("|")]
        assert sorted(_texts(expanded)) == sorted(filter(None, runs))
        for run in expanded:
            best = [hit for hit in chosen if hit.chunk.text in run.text.split()][-1]
            assert (run.chunk, run.score) == (best.chunk, best.score)


@pytest.mark.anyio
async def test_the_order_stays_and_hits_of_two_sources_never_become_one(shelf: Shelf) -> None:
    a, b = await _put(shelf, "a", NUMBERS), await _put(shelf, "b", NUMBERS)
    views = await _views(shelf)
    hits = await _hits(views, (a, 6), (b, 1), (a, 0), (a, 5), (b, 2))
    expanded = await _expanded(hits, views)
    assert _texts(expanded) == ["four five six", "zero one two three", "zero one"]
    assert [hit.chunk for hit in expanded] == [hit.chunk for hit in hits[:3]]
    assert await _expanded([], views) == []


@pytest.mark.anyio
async def test_a_source_is_read_once_however_many_hits_it_has(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await _put(shelf, "a", NUMBERS), await _put(shelf, "b", NUMBERS)
    views = await _views(shelf)
    hits = await _hits(views, (a, 0), (b, 0), (a, 6))
    text, ids_read = CollectionReader.text, list[str]()

    async def counted(table: CollectionReader, source_id: str) -> object:
        ids_read.append(source_id)
        return await text(table, source_id)

    monkeypatch.setattr(CollectionReader, "text", counted)
    assert len(await with_neighbors(hits, 1, views)) == 3
    assert sorted(ids_read) == sorted([a.id, b.id])


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("seq", "parts"),
    [
        (2, BOOK[1:9]),
        (3, BOOK[3:7]),
        (4, BOOK[3:7]),
        (6, BOOK[5:7]),
        (8, BOOK[7:9]),
        (9, BOOK[9:]),
        (10, BOOK[9:]),
    ],
)
async def test_a_hit_is_shown_in_the_section_of_the_last_heading_before_it(
    shelf: Shelf, seq: int, parts: list[str]
) -> None:
    views = {"documents": await _book(shelf)}
    hits = await _hits(views, (await _source(views), seq))
    assert _texts(await _expanded(hits, views, "parent")) == [" ".join(parts)]


async def _book(shelf: Shelf) -> View:
    await _put(shelf, "book", BOOK, LEVELS)
    return (await _views(shelf))["documents"]


async def _source(views: Mapping[str, View]) -> Source:
    (source,) = await views["documents"].table.listing()
    return source


@pytest.mark.anyio
async def test_hits_in_sections_that_hold_one_another_become_one_and_others_do_not(shelf: Shelf) -> None:
    views = {"documents": await _book(shelf)}
    source = await _source(views)
    hits = await _hits(views, (source, 6), (source, 8), (source, 4), (source, 10))
    expanded = await _expanded(hits, views, "parent")
    assert [hit.chunk.text for hit in expanded] == ["in towers", "of dials", "about space"]
    assert _texts(expanded) == [" ".join(BOOK[3:7]), " ".join(BOOK[7:9]), " ".join(BOOK[9:])]


@pytest.mark.slow
@pytest.mark.anyio
async def test_of_a_long_section_so_much_is_shown_around_the_chunk_as_may_be(shelf: Shelf) -> None:
    words = [f"word{number}" for number in range(300)]
    source = await _put(shelf, "a", words, {0: 1})
    views = await _views(shelf)
    for seq in (0, 1, 150, 299):
        (hit,) = await _expanded(await _hits(views, (source, seq)), views, "parent", max_chars=200)
        (excerpt,) = hit.excerpts
        assert 160 <= len(excerpt.text) <= 200
        assert set(excerpt.text.split()) <= set(words)
        assert excerpt.start <= hit.chunk.start < hit.chunk.end <= excerpt.end
        if seq == 150:
            assert abs((hit.chunk.start - excerpt.start) - (excerpt.end - hit.chunk.end)) < 20
    hits = await _hits(views, (source, 200), (source, 150), (source, 155), (source, 160))
    expanded = await _expanded(hits, views, "parent", max_chars=200)
    assert [hit.chunk.text for hit in expanded] == ["word200", "word150"]
    assert {"word150", "word155", "word160"} <= set(expanded[1].text.split())


@pytest.mark.anyio
async def test_of_a_chunk_longer_than_may_be_shown_the_beginning_is(shelf: Shelf) -> None:
    long = " ".join(f"word{number}" for number in range(100))
    source = await _put(shelf, "a", ["head", long, "tail"], {0: 1})
    views = await _views(shelf)
    (hit,) = await _expanded(await _hits(views, (source, 1)), views, "parent", max_chars=200)
    assert long.startswith(hit.text)
    assert 160 <= len(hit.text) <= 200


@pytest.mark.anyio
async def test_a_hit_before_every_heading_stays_as_it_is_and_one_warning_says_for_how_many(
    shelf: Shelf,
) -> None:
    await _book(shelf)
    bare = await _put(shelf, "bare", NUMBERS)
    views = await _views(shelf)
    (book,) = [source for source in await views["documents"].table.listing() if source.id != bare.id]
    hits = await _hits(views, (bare, 3), (book, 0), (book, 8), (bare, 4))
    hits[0] = (await with_neighbors(hits[:1], 1, views))[0]
    expanded, warnings = await in_sections(hits, ParentStage(stage="parent"), views)
    assert [*expanded[:2], expanded[3]] == [*hits[:2], hits[3]]
    assert _texts(expanded) == ["two three four", "preface", "## Dials of dials", "four"]
    assert warnings == ["3 passages have no heading above them and are shown without their section."]
    assert (await in_sections(hits[2:3], ParentStage(stage="parent"), views)) == (expanded[2:3], [])


@pytest.mark.anyio
async def test_what_is_left_of_surroundings_is_cited_and_no_more(shelf: Shelf) -> None:
    source = await _put(shelf, "a", NUMBERS)
    views = await _views(shelf)
    (wide,) = await _expanded(await _hits(views, (source, 3)), views, count=2)
    assert wide.cited == f"{source.id}/1-5"
    parts = [Excerpt(chunk.start, chunk.end, chunk.text) for chunk in wide.around]
    for excerpts, cited in [(parts[3:4], "4"), (parts[1:2] + parts[3:4], "2-4"), (parts[2:3], "3")]:
        assert replace(wide, excerpts=tuple(excerpts)).cited == f"{source.id}/{cited}"


@pytest.mark.anyio
async def test_excerpts_of_a_stage_before_are_replaced(shelf: Shelf) -> None:
    views = {"documents": await _book(shelf)}
    hits = await _hits(views, (await _source(views), 8))
    near = await _expanded(hits, views, count=3)
    assert _texts(near) == [" ".join(BOOK[5:])]
    assert _texts(await _expanded(near, views, "parent")) == ["## Dials of dials"]
    assert await _expanded(await _expanded(hits, views, "parent"), views, count=3) == near


@pytest.mark.slow
@either
@pytest.mark.anyio
async def test_a_hit_is_dropped_if_its_source_is_denied_or_removed_after_it_was_found(
    shelf: Shelf, stage: str
) -> None:
    denied, removed, open_ = [await _put(shelf, name, NUMBERS, {0: 1}) for name in ("a", "b", "c")]
    views = await _views(shelf)
    hits = await _hits(views, (denied, 3), (removed, 3), (open_, 3))
    assert len(await _expanded(hits, views, stage)) == 3
    async with await shelf.small.writing(shelf.data) as writer:
        await set_access(writer, {denied.id: NOT_BOB})
        await writer.remove([removed.id])
    expanded = await _expanded(hits, views, stage)
    assert [hit.chunk.id for hit in expanded] == [f"{open_.id}/3"]
    assert expanded[0].excerpts
    anybody = await _views(shelf, Principal("default"))
    assert [hit.source.id for hit in await _expanded(hits, anybody, stage)] == [denied.id, open_.id]


@either
@pytest.mark.anyio
async def test_a_hit_is_dropped_if_the_request_leaves_its_source_out(shelf: Shelf, stage: str) -> None:
    out, in_ = [await _put(shelf, name, NUMBERS, {0: 1}) for name in ("a", "b")]
    views = await _views(shelf)
    hits = await _hits(views, (out, 3), (in_, 3))
    for narrower in ({"sources": (in_.id,)}, {"exclude_sources": (out.id,)}):
        narrow = {name: replace(view, **narrower) for name, view in views.items()}  # type: ignore[arg-type]  # one of two
        expanded = await _expanded(hits, narrow, stage)
        assert [hit.source.id for hit in expanded] == [in_.id]
        assert expanded[0].excerpts


@either
@pytest.mark.anyio
async def test_nothing_of_another_tenant_is_shown_even_under_the_same_id(shelf: Shelf, stage: str) -> None:
    ours = await _put(shelf, "a", NUMBERS, {0: 1})
    async with await shelf.small.writing(shelf.data, "elsewhere") as writer:
        same = shelf.small.new_source(writer, "a", *(f"their {word}" for word in NUMBERS), id_=ours.id)
        alone = shelf.small.new_source(writer, "b", *NUMBERS)
        await writer.replace([same, alone])
    views, theirs = await _views(shelf), await _views(shelf, Principal("elsewhere"))
    hits = await _hits(views, (ours, 3))
    foreign = await _hits(theirs, (same.source, 3), (alone.source, 3))
    (mine,) = await _expanded([*hits, foreign[1]], views, stage)
    assert mine.chunk.id == hits[0].chunk.id
    assert "their" not in mine.text
    assert mine.excerpts
    assert all(hit.excerpts for hit in await _expanded(foreign, theirs, stage))
    assert await _expanded(foreign, views, stage) == foreign[:1]  # as if its source had been replaced


@either
@pytest.mark.anyio
async def test_a_hit_stays_as_it_is_where_its_source_has_another_text_by_now(
    shelf: Shelf, stage: str
) -> None:
    old, same = [await _put(shelf, name, NUMBERS, {0: 1}) for name in ("a", "b")]
    views = await _views(shelf)
    hits = await _hits(views, (old, 3), (same, 3), (old, 4))
    await _put(shelf, "a", ["longer than before", *NUMBERS], {0: 1})
    expanded = await _expanded(hits, views, stage)
    assert [hit.chunk for hit in expanded] == [hit.chunk for hit in hits]
    assert [expanded[0], expanded[2]] == [hits[0], hits[2]]
    assert expanded[1].excerpts


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_hit_stays_as_it_is_where_the_same_text_is_cut_in_other_chunks_by_now(shelf: Shelf) -> None:
    source = await _put(shelf, "a", [*NUMBERS[:4], "four\n\nfive", "six"])
    views = await _views(shelf)
    hits = await _hits(views, (source, 5), (source, 4), (source, 0))
    await _put(shelf, "a", NUMBERS)
    expanded = await _expanded(hits, views)
    assert expanded[:2] == hits[:2]
    assert _texts(expanded) == ["six", "four five", "zero one"]


@pytest.mark.anyio
async def test_a_hit_stays_as_it_is_where_its_source_is_replaced_between_two_reads(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, same = await _put(shelf, "a", NUMBERS), await _put(shelf, "b", NUMBERS)
    views = await _views(shelf)
    hits = await _hits(views, (old, 3), (same, 3))
    text = CollectionReader.text

    async def overtaken(table: CollectionReader, source_id: str) -> object:
        stored_text = await text(table, source_id)
        if source_id == old.id:
            await _put(shelf, "a", NUMBERS)
        return stored_text

    monkeypatch.setattr(CollectionReader, "text", overtaken)
    expanded = await with_neighbors(hits, 1, views)
    assert expanded[0] == hits[0]
    assert _texts(expanded) == ["three", "two three four"]


@pytest.mark.slow
@either
@pytest.mark.anyio
async def test_nothing_is_added_to_a_hit_whose_source_is_denied_between_two_reads(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    denied, open_ = [await _put(shelf, name, NUMBERS, {2: 1, 5: 1}) for name in ("a", "b")]
    views = await _views(shelf)
    hits = await _hits(views, (denied, 3), (open_, 3))
    text = CollectionReader.text

    async def overtaken(table: CollectionReader, source_id: str) -> object:
        stored_text = await text(table, source_id)
        if source_id == denied.id:
            async with await shelf.small.writing(shelf.data) as writer:
                await set_access(writer, {denied.id: NOT_BOB})
        return stored_text

    async def texts_and_citations() -> list[tuple[str, str]]:
        parent = ParentStage(stage="parent")
        around = with_neighbors(hits, 1, views) if stage == "neighbors" else in_sections(hits, parent, views)
        result = await around
        expanded = result[0] if isinstance(result, tuple) else result
        return [(text, hit.cited) for text, hit in zip(_texts(expanded), expanded, strict=True)]

    monkeypatch.setattr(CollectionReader, "text", overtaken)
    wide = ("two three four", f"{open_.id}/2-4")
    assert await texts_and_citations() == [("three", f"{denied.id}/3"), wide]
    assert await texts_and_citations() == [wide]


def _chunk(start: int, end: int) -> Chunk:
    return Chunk("a/0", "a", 0, start, end, "")


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ((5, 10), (0, 100)),
        ((20, 25), (20, 60)),
        ((30, 40), (20, 60)),
        ((45, 50), (40, 60)),
        ((70, 80), (60, 100)),
    ],
)
def test_a_section_ends_at_the_next_heading_of_its_level_or_a_higher_one(
    chunk: tuple[int, int], expected: tuple[int, int]
) -> None:
    outline = [Heading("A", level, start) for start, level in [(0, 1), (20, 2), (40, 3), (60, 2)]]
    assert section_around(_chunk(*chunk), outline, 100) == Span(*expected)
    assert section_around(_chunk(*chunk), [], 100) is None


@pytest.mark.parametrize(
    ("level", "chunk", "expected"),
    [(2, (25, 30), (20, 60)), (2, (65, 70), (0, 100)), (1, (65, 70), None), (3, (65, 70), (20, 100))],
)
def test_a_heading_without_a_title_ends_the_section_above(
    level: int, chunk: tuple[int, int], expected: tuple[int, int] | None
) -> None:
    outline = [Heading("A", 1, 0), Heading("B", 2, 20), Heading("", level, 60)]
    assert section_around(_chunk(*chunk), outline, 100) == (Span(*expected) if expected else None)


def test_a_section_holds_all_of_a_chunk_that_reaches_over_headings() -> None:
    outline = [Heading("A", 2, start) for start in (0, 20, 40, 60)]
    assert section_around(_chunk(10, 45), outline, 100) == Span(0, 60)
    assert section_around(_chunk(10, 40), outline, 100) == Span(0, 40)


def test_a_higher_heading_ends_a_section() -> None:
    outline = [Heading("A", 3, 0), Heading("B", 1, 20)]
    assert section_around(_chunk(0, 10), outline, 100) == Span(0, 20)


SPANS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 9)).map(lambda at: Span(at[0], at[0] + at[1])), max_size=12
)


@given(SPANS)
def test_united_spans_hold_the_same_places_and_stand_apart(spans: list[Span]) -> None:
    whole = merge_spans(spans)
    assert _places(whole) == _places(spans)
    assert all(before.end < after.start for before, after in pairwise(whole))
    assert merge_spans(reversed(spans)) == whole


def _places(spans: Sequence[Span]) -> set[int]:
    return {place for span in spans for place in range(span.start, span.end)}
