"""Thousands of records that could be a document's own: a few of them say what all of them say."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from rag.access.rule import narrower, same_access
from rag.corpus import Access, AccessRecord
from rag.ingest.rights import access_history
from rag.ingest.rights.access_history import Recorded
from rag.ingest.source_paths import folder_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag.ingest.rights.access_history import Narrowing

OPEN = Access("tenant")
ACCESSES = (
    OPEN,
    Access("tenant", deny=frozenset({"user:bob"})),
    Access("restricted", frozenset({"group:hr"})),
    Access("restricted", frozenset({"group:hr", "group:it"})),
    Access("restricted"),
    None,
)


def records(number: int, accesses: Sequence[Access | None], seed: int = 1) -> dict[str, AccessRecord]:
    """So many records of one content in three folders, half of them gone."""
    chance = random.Random(seed)  # noqa: S311 no secret
    made = [
        AccessRecord(
            f"id{one}",
            chance.choice(("documents", "copies")),
            f"file:///d{chance.randrange(3)}/{one // 2}.md",
            chance.choice(accesses),
            "same",
            present=chance.random() < 0.5,
        )
        for one in range(number)
    ]
    return {one.id: one for one in made}


def effect(known: Recorded, narrowing: Narrowing, access: Access | None) -> Access | None:
    return narrower(access, *(known.by_id[one].access for one in sorted(narrowing.ids)))


@pytest.mark.parametrize("seed", range(8))
def test_what_stands_for_many_records_narrows_as_all_of_them_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accesses = random.Random(seed).sample(ACCESSES, 3)  # noqa: S311 no secret
    held = records(200, accesses, seed)
    few, every = Recorded(held), Recorded(held)
    for known in (few, every):
        known.note_missing([one for one in held if int(one[2:]) % 7 == 0])
    for id_, access in itertools.product([*held][:60], ACCESSES):
        uri = held[id_].uri
        asked: list[tuple[Narrowing, ...]] = []
        for known, most in ((few, access_history.FEW), (every, 10**6)):
            monkeypatch.setattr(access_history, "FEW", most)
            asked.append(
                (
                    known.same_content(id_, "same", access, folder_of),
                    known.could_be(uri, access),
                    known.could_be(f"{folder_of(uri)}/new.md", access),
                )
            )
        for one, other in zip(*asked, strict=True):
            assert bool(one.ids) == bool(other.ids)
            assert same_access(effect(few, one, access), effect(every, other, access))
            assert bool(one.gone) == bool(other.gone)
        places = [{folder_of(held[one].uri) for one in some[0].ids} for some in asked]
        assert places[0] == places[1]
        assert len(asked[0][0].ids) <= 2 * 3 * 3 < len(asked[1][0].ids)


def test_of_many_records_few_are_kept_for_each_new_document() -> None:
    known = Recorded(records(10_000, [ACCESSES[2]]))
    narrowings = [
        narrowing
        for one in range(2_000)
        for narrowing in (
            known.same_content(f"new{one}", "same", OPEN, folder_of),
            known.could_be(f"file:///d1/new{one}.md", OPEN),
        )
    ]
    assert all(narrowing.ids for narrowing in narrowings)
    assert sum(len(one.ids) for one in narrowings) <= 2_000 * (6 + 2)
