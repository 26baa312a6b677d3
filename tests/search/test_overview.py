"""What a desk says that it holds: counted over what the principal may read, and over nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from rag.corpus import Access, Binding, Principal
from rag.search.readable_overview import MAX_VALUES, OverviewCache, overview_text
from rag.store.write.change_collection import change_collection

if TYPE_CHECKING:
    from collections.abc import Callable

    from rag.search.readable_overview import CollectionOverview
    from tests.search.conftest import Shelf

pytestmark = pytest.mark.anyio

ANYBODY = Principal("default")
BOB = Principal("default", "bob")
ONLY_BOB = Access("restricted", frozenset({"user:bob"}))


@pytest.fixture
async def shelf(shelf: Shelf) -> Shelf:
    """A handbook with a public and a secret source, and a collection of Bob's alone."""
    await shelf.declare("handbook", status="string", year="integer", tags="string list")
    public: dict[str, Any] = {"status": "final", "year": 2020, "tags": ("law", "hr")}
    await shelf.put("a", "x", collection="handbook", fields=public, date=datetime(2020, 5, 1, tzinfo=UTC))
    secret: dict[str, Any] = {"status": "secret", "year": 1999, "tags": ("law", "secret")}
    date = datetime(1999, 1, 1, tzinfo=UTC)
    await shelf.put("b", "x", collection="handbook", fields=secret, date=date, access=ONLY_BOB)
    await shelf.declare("bobs", owner="string")
    await shelf.put("c", "x", collection="bobs", access=ONLY_BOB)
    return shelf


def values(holding: CollectionOverview) -> dict[str, dict[object, int]]:
    return {name: dict(one.frequent) for name, one in holding.fields.items()}


async def test_what_is_counted_is_what_may_be_read(shelf: Shelf) -> None:
    desk = shelf.desk()
    (holding,) = await desk.overview(ANYBODY)
    assert (holding.collection.name, holding.sources) == ("handbook", 1)
    assert holding.first == holding.last == datetime(2020, 5, 1, tzinfo=UTC)
    assert values(holding) == {"status": {"final": 1}, "year": {2020: 1}, "tags": {"law": 1, "hr": 1}}
    assert (holding.fields["year"].least, holding.fields["year"].greatest) == (2020, 2020)
    assert "secret" not in str(holding)

    bobs, holding = await desk.overview(BOB)
    assert (bobs.collection.name, bobs.sources, values(bobs)) == ("bobs", 1, {"owner": {}})
    assert holding.sources == 2
    assert holding.first == datetime(1999, 1, 1, tzinfo=UTC)
    assert values(holding)["tags"] == {"law": 2, "hr": 1, "secret": 1}
    assert (holding.fields["year"].least, holding.fields["year"].greatest) == (1999, 2020)
    assert desk.alarms == 0


async def test_a_binding_is_a_wall_for_counts_and_values(shelf: Shelf) -> None:
    desk = shelf.desk()
    final = Binding(filter={"status": "final"})
    (holding,) = await desk.overview(Principal("default", "bob", bindings=(final,)))
    assert (holding.collection.name, holding.sources) == ("handbook", 1)
    assert "secret" not in str(values(holding))
    other = Binding(filter={"status": "secret"})
    (holding,) = await desk.overview(Principal("default", "bob", bindings=(other,)))
    assert values(holding)["status"] == {"secret": 1}
    assert await desk.overview(Principal("default", bindings=(other,))) == ()
    (holding,) = await desk.overview(Principal("default", "bob", bindings=(Binding(collections=("bobs",)),)))
    assert holding.collection.name == "bobs"
    assert desk.alarms == 0


async def test_the_gate_alone_keeps_the_count_right(shelf: Shelf, blind: Callable[[], None]) -> None:
    blind()
    (holding,) = await shelf.desk().overview(ANYBODY)
    assert (holding.sources, values(holding)["status"]) == (1, {"final": 1})


async def test_of_more_sources_than_are_counted_nothing_is_said_that_may_be_wrong(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.search.readable_overview.MAX_COUNTED", 1)
    (holding,) = await shelf.desk().overview(ANYBODY)
    assert (holding.sources, holding.has_more) == (1, False)
    _, holding = await shelf.desk().overview(BOB)
    assert (holding.sources, holding.has_more, holding.first) == (1, True, None)
    assert values(holding) == {"status": {}, "year": {}, "tags": {}}
    assert "over 1 document" in overview_text([holding], 500)


async def test_another_tenant_holds_nothing_of_it(shelf: Shelf) -> None:
    async with await shelf.small.writing(shelf.data, "other", "notes") as writer:
        await writer.replace([shelf.small.new_source(writer, "n", "x")])
    (holding,) = await shelf.desk().overview(Principal("other"))
    assert (holding.collection.name, holding.sources) == ("notes", 1)


async def test_a_change_of_a_source_a_right_or_a_description_shows_at_once(shelf: Shelf) -> None:
    desk = shelf.desk()
    first = await desk.overview(ANYBODY)
    assert await desk.overview(ANYBODY) is first
    async with await shelf.small.writing(shelf.data, collection="handbook") as writer:
        await writer.replace([shelf.small.new_source(writer, "d", "x", fields={"status": "new"})])
        secret = writer.source_id("b")
    (holding,) = await desk.overview(ANYBODY)
    assert values(holding)["status"] == {"final": 1, "new": 1}
    await shelf.small.recorded(shelf.data, secret, Access("tenant"))
    (holding,) = await desk.overview(ANYBODY)
    assert values(holding)["status"] == {"final": 1, "new": 1, "secret": 1}
    await shelf.small.recorded(shelf.data, secret, ONLY_BOB)
    (holding,) = await desk.overview(ANYBODY)
    assert holding.sources == 2
    change = partial(replace, description="Rules", link="https://example.org")
    await change_collection(shelf.data, "default", "handbook", change)
    (holding,) = await desk.overview(ANYBODY)
    assert (holding.collection.description, holding.collection.link) == ("Rules", "https://example.org")


async def test_a_walk_finds_beginnings_of_ids_titles_and_paths_whatever_their_case(shelf: Shelf) -> None:
    await shelf.put("Ünder", "x", collection="handbook", metadata={"path": 'Dir/"Q".md', "note": "dir/z"})
    desk = shelf.desk()
    (view,) = [one for one in await desk._views(ANYBODY) if one.table.collection.name == "handbook"]  # noqa: SLF001

    async def found(beginning: str) -> set[str]:
        return {one.source.title async for some in view.walk(beginning) for one in some}

    assert await found("ü") == await found('dir/"q') == {"Ünder"}
    assert await found("dir/z") == await found('"q') == set()
    assert "b" not in await found("b")
    (id_,) = {one.source.id async for some in view.walk("a") for one in some if one.source.title == "a"}
    assert "a" in await found(id_[:9])
    assert await found("") == {"a", "Ünder"}


def test_only_so_many_overviews_are_kept_and_the_latest() -> None:
    cache = OverviewCache()
    for number in range(1_001):
        cache.put(Principal(str(number)), (number,), ())
    assert cache.get(Principal("0"), (0,)) is None
    assert cache.get(Principal("1"), (1,)) == ()
    assert cache.get(Principal("1"), (2,)) is None
    bound = Principal("1", bindings=(Binding(filter={"a": 1}),))
    assert cache.get(bound, (1,)) is None
    assert MAX_VALUES == 1_000
