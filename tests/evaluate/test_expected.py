"""Judgements tied to the sources that are there: names, quotes, what a ranking finds, and leaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rag.answers import Hit
from rag.config.settings import Settings
from rag.corpus import Access, Chunk, Principal
from rag.errors import ConfigurationError
from rag.evaluate.evaluation import prepare_existing
from rag.evaluate.judged_sets import Asking, Excerpt, JudgedSet, Question
from rag.evaluate.judgements import load_catalog, resolve_question
from rag.evaluate.ranking_metrics import Stretch
from rag.store.read.desk_reader import DeskReader
from rag.uris import resource_uri

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from types import ModuleType

    from rag.corpus import Source
    from rag.evaluate.judgements import ResolvedQuestion
    from tests.snapshots import Snapshots

    Put = Callable[..., Awaitable[Source]]
    Tie = Callable[..., Awaitable[ResolvedQuestion]]

pytestmark = pytest.mark.anyio

ME, FOR_ALL = Principal("default"), Access("tenant")


@pytest.fixture
def put(small_desk: ModuleType, snapshots: Snapshots, tmp_path: Path) -> Put:
    """Put a source with these paragraphs on the shelf."""

    async def source(
        name: str,
        *paragraphs: str,
        shelf: tuple[str, str] = ("default", "documents"),
        access: Access = FOR_ALL,
    ) -> Source:
        async def store() -> Source:
            details = {
                "url": f"https://example.org/{name}",
                "metadata": {"path": f"notes/{name}.md"},
                "access": access,
            }
            async with await small_desk.writing(tmp_path, *shelf) as writer:
                new = small_desk.new_source(writer, f"file:///notes/{name}.md", *paragraphs, **details)
                await writer.replace([new])
            source: Source = new.source
            return source

        return await snapshots.changed(tmp_path, f"note {(name, paragraphs, shelf, access)}", store)

    return source


@pytest.fixture
def tie(tmp_path: Path) -> Tie:
    """Tie a question of these judgements to what is on the shelf."""

    async def tied(
        *,
        names: dict[str, str] | None = None,
        absent: frozenset[str] = frozenset(),
        **judgements: Any,  # noqa: ANN401 a question's
    ) -> ResolvedQuestion:
        shelves = await load_catalog(DeskReader(tmp_path, timeout_seconds=15), ME.tenant, names=names or {})
        return await resolve_question(Question("q", "?", **judgements), ME, shelves, absent)

    return tied


def hit(source: Source, start: int = 0, end: int = 10, seq: int = 0) -> Hit:
    return Hit(Chunk(f"{source.id}/{seq}", source.id, seq, start, end, ""), source, 1, 1)


@pytest.mark.slow
async def test_a_source_is_named_by_its_id_uri_url_path_or_as_the_set_names_it(put: Put, tie: Tie) -> None:
    first, _ = await put("one", "first"), await put("two", "second")
    called = [
        first.id,
        first.uri,
        str(first.url),
        first.metadata["path"],
        resource_uri(first.collection, first.id),
        "a1",
    ]
    for name in called:
        resolved = await tie(documents={name: 2}, names={"notes/one.md": "a1"})
        assert [(target.name, target.grade, target.sources) for target in resolved.targets] == [
            (name, 2, frozenset({first.id}))
        ]
        assert resolved.grades == {name: 2}


async def test_a_path_that_two_collections_have_is_found_by_either(put: Put, tie: Tie) -> None:
    here, elsewhere = await put("one", "first"), await put("one", "first", shelf=("default", "other"))
    (target,) = (await tie(documents={"notes/one.md": 1})).targets
    assert target.sources == {here.id, elsewhere.id}


@pytest.mark.parametrize(
    "judgements",
    [
        {"documents": {"notes/ome.md": 1}},
        {"excerpts": (Excerpt("first", ("notes/ome.md",)),)},
        {"documents": {"notes/one.md": 1}, "asking": Asking(sources=("notes/ome.md",))},
        {"documents": {"notes/one.md": 1}, "asking": Asking(exclude_sources=("notes/ome.md",))},
    ],
)
async def test_an_unknown_source_is_an_error_that_names_the_nearest(
    put: Put, tie: Tie, judgements: dict[str, Any]
) -> None:
    await put("one", "first")
    with pytest.raises(ConfigurationError) as error:
        await tie(**judgements)
    assert str(error.value) == (
        "Question q names the source 'notes/ome.md', but no source has this id, URI, URL or path. "
        "Did you mean notes/one.md?"
    )


async def test_another_tenant_s_source_is_unknown(put: Put, tie: Tie) -> None:
    await put("one", "first")
    theirs = await put("theirs", "first", shelf=("acme", "documents"))
    with pytest.raises(ConfigurationError, match="no source has this id"):
        await tie(documents={theirs.id: 1})


@pytest.mark.parametrize(
    "quote", ["swings to and fro", " swings  to\nand\tfro\n", "swings (to) $1.50 [sic] .*"]
)
async def test_a_quote_is_found_whatever_white_space_is_between_its_words(
    put: Put, tie: Tie, quote: str
) -> None:
    text = "the bob " + "\n  ".join(quote.split()) + " all day"
    source = await put("one", text)
    (target,) = (await tie(excerpts=(Excerpt(quote, ("notes/one.md",)),))).targets
    assert target.stretches == (Stretch(source.id, 8, len(text) - 8),)
    assert (target.name, target.grade, target.sources) == ("passage 1", 1, frozenset())


@pytest.mark.slow
async def test_a_quote_without_a_source_counts_wherever_it_stands(put: Put, tie: Tie) -> None:
    first, second = await put("one", "it swings"), await put("two", "now it swings and it swings")
    still = await put("other", "it stands still")
    resolved = await tie(excerpts=(Excerpt("it swings"),))
    (target,) = resolved.targets
    places = {Stretch(first.id, 0, 9), Stretch(second.id, 4, 13), Stretch(second.id, 18, 27)}
    assert set(target.stretches) == places
    assert resolved.expected_stretches([]) == [target.stretches[0]]
    assert resolved.expected_stretches([Stretch(second.id, 16, 27)]) == [Stretch(second.id, 18, 27)]
    assert resolved.ranking([hit(still), hit(second, 16, 27)]) == [f"{still.id}/0", "passage 1"]
    (only,) = (await tie(excerpts=(Excerpt("it swings", (first.id,)),))).targets
    assert only.stretches == (Stretch(first.id, 0, 9),)


async def test_a_quote_with_a_position_is_the_one_nearest_to_it(put: Put, tie: Tie) -> None:
    second = await put("two", "now it swings and it swings")
    (target,) = (await tie(excerpts=(Excerpt("it swings", start=20),))).targets
    assert target.stretches == (Stretch(second.id, 18, 27),)


async def test_a_quote_that_doesn_t_stand_there_is_an_error(put: Put, tie: Tie) -> None:
    await put("one", "it swings")
    await put("two", "it stands")
    with pytest.raises(ConfigurationError) as error:
        await tie(excerpts=(Excerpt("it stands", ("notes/one.md",)),))
    assert str(error.value) == (
        "Question q quotes 'it stands', but none of its expected sources contains this text. "
        "Copy the words exactly; line breaks and spaces don't matter."
    )


async def test_nothing_finds_what_could_not_be_ingested(put: Put, tie: Tie) -> None:
    source = await put("one", "it swings")
    absent = frozenset({"gone"})
    resolved = await tie(documents={"gone": 1, source.id: 1}, absent=absent)
    assert resolved.grades == {"gone": 1, source.id: 1}
    assert resolved.ranking([hit(source)]) == [source.id]
    quoted = await tie(excerpts=(Excerpt("it stood", ("gone",)), Excerpt("swings")), absent=absent)
    assert quoted.grades == {"passage 1": 1, "passage 2": 1}
    assert quoted.ranking([hit(source)]) == ["passage 2"]
    assert quoted.expected_stretches([]) == [Stretch(source.id, 3, 9)]


@pytest.mark.slow
async def test_where_sources_are_expected_each_counts_once_at_its_first_hit(put: Put, tie: Tie) -> None:
    first, second, third = [await put(name, "text") for name in ("one", "two", "other")]
    resolved = await tie(documents={"notes/one.md": 1, "notes/two.md": 1})
    hits = [hit(first), hit(third), hit(first, seq=1), hit(third, seq=1), hit(second)]
    assert resolved.ranking(hits) == ["notes/one.md", third.id, "notes/two.md"]


async def test_where_passages_are_expected_each_hit_that_brings_none_counts(put: Put, tie: Tie) -> None:
    source = await put("one", "It swings. " * 9, "The end is near. It is here.")
    resolved = await tie(excerpts=(Excerpt("The end is near."), Excerpt("It is here.")))
    hits = [
        hit(source, 0, 40),
        hit(source, 40, 80, seq=1),
        hit(source, 90, 130, seq=2),
        hit(source, 95, 131, seq=3),
    ]
    assert resolved.ranking(hits) == [f"{source.id}/0", f"{source.id}/1", "passage 1", "passage 2"]


@pytest.mark.parametrize(
    ("start", "end", "finds"),
    [
        (0, 15, True),  # half of the passage
        (0, 14, False),
        (10, 20, True),  # all of it, and no more
        (12, 14, True),  # less, but wholly within
        (18, 22, True),  # half of the hit lies within
        (18, 23, False),
        (20, 30, False),
    ],
)
async def test_a_passage_is_found_by_half_of_it_or_by_a_hit_half_within(
    put: Put, tie: Tie, start: int, end: int, *, finds: bool
) -> None:
    first, second = await put("one", "before it the passage at last"), await put("two", "nothing of it")
    (target,) = (await tie(excerpts=(Excerpt("the passag"),))).targets
    assert target.stretches == (Stretch(first.id, 10, 20),)
    assert target.is_found_by(hit(first, start, end)) is finds
    assert not target.is_found_by(hit(second, start, end))


async def test_hits_that_the_asker_may_see_are_no_leaks(put: Put, tie: Tie) -> None:
    first, second = await put("one", "first"), await put("two", "second", shelf=("default", "other"))
    resolved = await tie(documents={first.id: 1})
    assert resolved.leaks([hit(first), hit(second)]) == []


@pytest.mark.parametrize(("case", "leaks"), [("never", [1]), ("allow", [0, 1]), ("always", [0])])
async def test_letter_case_matters_for_leaks_as_it_does_for_searches(
    put: Put, tmp_path: Path, case: str, leaks: list[int]
) -> None:
    sources = [
        await put("allowed", "first", access=Access("restricted", frozenset({"group:HR"}))),
        await put("denied", "first", access=Access("tenant", deny=frozenset({"user:Bob"}))),
    ]
    asker = {"user": "bob", "groups": ["hr"]}
    settings = Settings.model_validate(
        {"data": tmp_path, "access": {"letter_case": case}, "principal": asker}
    )
    judged = JudgedSet("mine", (Question("q", "?", {sources[0].id: 1}),))
    async with prepare_existing(judged, settings, None) as prepared:
        (resolved,) = prepared.questions
    assert resolved.leaks(map(hit, sources)) == [f"{sources[index].id}/0" for index in leaks]


async def test_a_hit_of_another_tenant_is_a_leak(put: Put, tie: Tie) -> None:
    source = await put("one", "first")
    theirs = await put("theirs", "first", shelf=("acme", "documents"))
    resolved = await tie(documents={source.id: 1})
    assert resolved.leaks([hit(source), hit(theirs, seq=3)]) == [f"{theirs.id}/3"]


@pytest.mark.parametrize(
    "asking",
    [
        Asking(collections=("documents",)),
        Asking(sources=("notes/one.md", "notes/more.md")),
        Asking(exclude_sources=("notes/two.md",)),
    ],
    ids=["collections", "sources", "exclude_sources"],
)
async def test_a_hit_that_the_question_s_restriction_doesn_t_allow_is_a_leak(
    put: Put, tie: Tie, asking: Asking
) -> None:
    first, more = await put("one", "first"), await put("more", "first")
    second = await put("two", "second", shelf=("default", "other"))
    resolved = await tie(documents={first.id: 1}, asking=asking)
    assert resolved.leaks([hit(first), hit(second), hit(more)]) == [f"{second.id}/0"]
