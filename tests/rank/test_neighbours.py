"""Which hits become one, and which give way to other sources. Chunks are 100 characters, two apart."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag.answers import Excerpt, Hit
from rag.corpus import Chunk, Source
from rag.rank.fusion import FURTHER, MAX_JOINED_CHARS, NEXT, neighbours

LONG = 102
AT_ONCE = (MAX_JOINED_CHARS + 2) // LONG  # chunks in a row that a hit has at most


def _hit(name: str, score: float = 0.9) -> Hit:
    """The hit of a chunk, such as "a/4"."""
    source_id, _, seq = name.partition("/")
    start = int(seq) * LONG
    chunk = Chunk(name, source_id, int(seq), start, start + 100, "x" * 100)
    source = Source(source_id, "notes", source_id, source_id, "text/plain", "", 99, 9_999, datetime.now(UTC))
    return Hit(chunk, source, score, 0.5)


def _names(*names: str, limit: int = 8) -> list[list[str]]:
    return _shown([_hit(name) for name in names], limit, selective=False)


def _shown(hits: list[Hit], limit: int = 8, *, selective: bool = True) -> list[list[str]]:
    groups = neighbours(hits, limit, selective=selective).groups
    return [[hit.chunk.id for hit in group] for group in groups]


def test_the_worked_example() -> None:
    names, poor = ["a/4", "b/0", "a/5", "a/9", "c/1", "c/2"], {"a/9": 0.1}
    hits = [_hit(name, poor.get(name, 0.9)) for name in names]
    assert _shown(hits, 2) == [["a/4", "a/5"], ["b/0"]]
    assert neighbours(hits, 2, selective=True).looked_at == 4
    assert neighbours(hits, 2, selective=False).looked_at == 3


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["a/1", "a/2"], [["a/1", "a/2"]]),
        (["a/2", "a/1"], [["a/2", "a/1"]]),  # the best is first, whatever stands first
        (["a/1", "a/3"], [["a/1"], ["a/3"]]),  # one between them is missing
        (["a/1", "b/2"], [["a/1"], ["b/2"]]),
        (["a/1", "b/0", "a/3", "a/2"], [["a/1", "a/3", "a/2"], ["b/0"]]),  # the last one joins two
    ],
)
def test_chunks_in_a_row_are_one(names: list[str], groups: list[list[str]]) -> None:
    assert _names(*names) == groups


def test_a_place_that_is_free_again_goes_to_another_source() -> None:
    assert _names("a/1", "a/3", "a/2", "b/0", "c/0", limit=2) == [["a/1", "a/3", "a/2"], ["b/0"]]
    assert _names("a/1", "a/3", "b/0", "c/0", limit=2) == [["a/1"], ["a/3"]]


def test_sources_of_two_collections_are_two_even_with_one_id() -> None:
    other = _hit("a/2")
    other = replace(other, source=replace(other.source, collection="letters"))
    assert _shown([_hit("a/1"), other]) == [["a/1"], ["a/2"]]


def test_a_hit_that_shows_something_else_than_its_chunk_stays_alone() -> None:
    lines = replace(_hit("a/2"), excerpts=(Excerpt(210, 220, "x" * 10),))
    assert _shown([_hit("a/1"), lines]) == [["a/1"], ["a/2"]]


def test_a_long_row_is_several_hits() -> None:
    row = [f"a/{seq}" for seq in range(AT_ONCE + 3)]
    first, second = _names(*row)
    assert (first, second) == (row[:AT_ONCE], row[AT_ONCE:])
    assert len(_names(*row[:AT_ONCE])) == 1


@pytest.mark.parametrize(
    ("name", "score", "is_shown"),
    [
        ("a/2", NEXT, True),  # beside it
        ("a/2", NEXT - 0.01, False),
        ("a/9", FURTHER, True),  # elsewhere in the same source
        ("a/9", FURTHER - 0.01, False),
        ("b/0", 0.01, True),  # of another source
    ],
)
def test_what_says_little_more_about_a_source_gives_way(name: str, score: float, *, is_shown: bool) -> None:
    hits = [_hit("a/1", 1.0), _hit(name, score)]
    assert (name in chain.from_iterable(_shown(hits))) is is_shown
    assert name in chain.from_iterable(_shown(hits, selective=False))


def test_without_a_positive_score_nothing_gives_way() -> None:
    assert len(_shown([_hit("a/1", -1.0), _hit("a/5", -7.0)])) == 2
    assert len(_shown([_hit("a/1", 0.0), _hit("a/5", -7.0)])) == 2
    assert _shown([]) == []


@given(
    places=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), unique=True, max_size=60),
    limit=st.integers(1, 9),
    selective=st.booleans(),
)
def test_no_hit_is_shown_twice_and_no_group_has_a_hole(
    places: list[tuple[str, int]], limit: int, *, selective: bool
) -> None:
    hits = [_hit(f"{name}/{seq}", 1 - rank / 60) for rank, (name, seq) in enumerate(places)]
    groups, looked_at = neighbours(hits, limit, selective=selective)
    shown = [hit.chunk.id for group in groups for hit in group]
    assert len(groups) <= limit
    assert len(shown) == len(set(shown)) <= looked_at
    assert [hit.chunk.id for hit in hits[:looked_at] if hit.chunk.id in shown] == [
        hit.chunk.id for hit in hits if hit.chunk.id in shown
    ]
    for group in groups:
        seqs = sorted(hit.chunk.seq for hit in group)
        assert seqs == list(range(seqs[0], seqs[-1] + 1))
        assert len({hit.source.id for hit in group}) == 1
        assert group[0].score == max(hit.score for hit in group)
        assert len(group) <= AT_ONCE
