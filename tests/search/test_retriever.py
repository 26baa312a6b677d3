"""Retrievers of the operator's: what they find passes everything; what they do wrong is noted."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

import anyio
import pytest

from rag.answers import SearchRequest
from rag.config.settings import RetrieverSettings, SearchSettings
from rag.corpus import Binding, Principal, Retrieved
from rag.errors import ConfigurationError, NotFoundError, StoreError
from rag.models.embed import Embedders
from rag.search.browse import UNLISTED, Folder
from rag.search.desk import Desk
from rag.search.retrievers import Retrievers, load_retrievers, retriever_collection
from rag.search.search_state import UNREAD
from rag.store.read.desk_reader import DeskReader
from tests.search.conftest import Shelf, titles

pytestmark = pytest.mark.anyio

ANN, BOB = Principal("default", "ann"), Principal("default", "bob")
TICKETS = [
    ("T-1/a", "Printer jams", "The printer in the hall jams when a pendulum swings.", "user:ann", 2024),
    ("T-2 ü", "Secret printer", "The printer of the board prints salaries.", "user:bob", 2025),
    ("T-3", "Coffee", "The coffee machine leaks.", "user:ann user:bob", 2025),
]


class Tickets:
    """The example of rag/search/README.md: a full-text table of SQLite, ranked by BM25."""

    def __init__(self, file: str) -> None:
        self.database = sqlite3.connect(file, check_same_thread=False)

    async def retrieve(self, query: str, *, limit: int, principal: Principal) -> list[Retrieved]:  # noqa: ARG002
        words = " OR ".join('"' + word.replace('"', '""') + '"' for word in query.split())
        sql = "SELECT *, bm25(tickets) FROM tickets WHERE tickets MATCH ? ORDER BY bm25(tickets) LIMIT ?"
        rows = await anyio.to_thread.run_sync(lambda: self.database.execute(sql, (words, limit)).fetchall())
        return [self._passage(row, score=1 / (1 + rank)) for rank, row in enumerate(rows)]

    async def passage(self, id_: str, *, principal: Principal) -> Retrieved | None:  # noqa: ARG002
        row = self.database.execute("SELECT * FROM tickets WHERE id = ?", (id_,)).fetchone()
        return row and self._passage(row)

    def _passage(self, row: Sequence[Any], score: float = 1.0) -> Retrieved:
        id_, title, text, readers, year = row[:5]
        url = f"https://tickets.example/{id_}"
        date = datetime(year, 1, 1, tzinfo=UTC)
        return Retrieved(
            id_, text, score, tuple(readers.split()), title=title, url=url, date=date, fields={"year": year}
        )


@pytest.fixture
def tickets(tmp_path: Path) -> Tickets:
    file = tmp_path / "tickets.db"
    with sqlite3.connect(file) as database:
        database.execute(
            "CREATE VIRTUAL TABLE tickets "
            "USING fts5(id UNINDEXED, title, text, readers UNINDEXED, year UNINDEXED)"
        )
        database.executemany("INSERT INTO tickets VALUES (?, ?, ?, ?, ?)", TICKETS)
    return Tickets(str(file))


@dataclass(slots=True)
class Scripted:
    """A retriever that answers what a test wants, and remembers what it was asked."""

    answer: Any
    calls: list[tuple[str, int, Principal]] = field(default_factory=list)

    async def retrieve(self, query: str, *, limit: int, principal: Principal) -> Any:  # noqa: ANN401 also garbage
        self.calls.append((query, limit, principal))
        return await self.answer() if callable(self.answer) else self.answer


@pytest.fixture
async def desk_with(shelf: Shelf) -> Callable[..., Desk]:
    """A desk with one ingested document and retrievers."""
    await shelf.put("ours", "a pendulum of our own")

    def make(retriever: Any, *, tenant: str = "default", seconds: float = 5.0, **settings: object) -> Desk:  # noqa: ANN401
        collection = retriever_collection(
            retriever, tenant, "tickets", fields={"year": "integer"}, seconds=seconds
        )
        embedder = shelf.small.BagOfWords()
        reader = DeskReader(shelf.data, timeout_seconds=15)
        search = SearchSettings.model_validate(settings)
        return Desk(reader, Embedders({"default": embedder}), search, retrievers=Retrievers([collection]))

    return make


@pytest.mark.slow
async def test_what_a_retriever_finds_is_ranked_cited_opened_and_filtered_like_anything(
    desk_with: Callable[..., Desk], tickets: Tickets
) -> None:
    desk = desk_with(tickets)
    answer = await desk.search(ANN, SearchRequest("printer pendulum", limit=10), trace=True)
    assert {*titles(answer)} == {"Printer jams", "ours"}
    assert (answer.notes, answer.degraded) == ((), ())
    hit = next(hit for hit in answer.hits if hit.source.collection == "tickets")
    assert (hit.text, hit.source.url) == (TICKETS[0][2], "https://tickets.example/T-1/a")
    assert (hit.source.metadata["id"], hit.fields) == ("T-1/a", {"year": 2024})
    assert hit.source.date == datetime(2024, 1, 1, tzinfo=UTC)
    assert answer.trace
    assert answer.trace.listings[hit.chunk.id][0].list == "sparse"
    opened = await desk.extract(ANN, hit.chunk.id, max_chars=999)
    assert (opened.text, opened.chunks[0].id) == (hit.text, hit.chunk.id)
    for filter_, expected in (({"year": 2025}, {"Coffee"}), ({"year": {"$lt": 2025}}, {"Printer jams"})):
        request = SearchRequest("printer coffee", filter=filter_)
        assert {*titles(await desk.search(ANN, request))} == expected
        bound = replace(ANN, bindings=(Binding(filter=filter_),))
        assert {*titles(await desk.search(bound, SearchRequest("printer coffee")))} == expected
    by_attributes: list[tuple[dict[str, Any], set[str]]] = [
        ({"title": {"$contains": "COFFEE"}}, {"Coffee"}),
        ({"date": {"$lt": "2025-01-01"}}, {"Printer jams"}),
        ({"$not": {"title": "Coffee"}}, {"Printer jams"}),
        ({"section": {"$exists": True}}, set()),
    ]
    for filter_, expected in by_attributes:
        request = SearchRequest("printer coffee", collections=("tickets",), mode="sparse", filter=filter_)
        assert {*titles(await desk.search(ANN, request))} == expected
    folder = await desk.at(ANN, "tickets/")
    assert isinstance(folder, Folder)
    assert (folder.path, folder.entries, folder.notes) == ("tickets", (), (UNLISTED.format("tickets"),))
    assert desk.alarms == 0
    only = await desk.search(ANN, SearchRequest("pendulum", collections=("tickets",), mode="sparse"))
    assert titles(only) == ["Printer jams"]
    elsewhere = replace(ANN, bindings=(Binding(collections=("documents",)),))
    assert titles(await desk.search(elsewhere, SearchRequest("printer pendulum"))) == ["ours"]
    assert "tickets" in {collection.name for collection in await desk.collections(ANN)}
    assert desk.alarms == 0


@pytest.mark.slow
async def test_its_passages_are_seen_by_those_whom_they_name_and_opened_by_their_rights_now(
    desk_with: Callable[..., Desk], tickets: Tickets
) -> None:
    desk = desk_with(tickets)
    assert "Secret printer" not in titles(await desk.search(ANN, SearchRequest("printer")))
    (hit,) = [
        hit
        for hit in (await desk.search(BOB, SearchRequest("printer"))).hits
        if hit.source.collection == "tickets"
    ]
    assert hit.source.title == "Secret printer"
    assert (await desk.extract(BOB, hit.chunk.id, max_chars=999)).text == hit.text
    for refused in (ANN, Principal("default")):
        with pytest.raises(NotFoundError):
            await desk.extract(refused, hit.chunk.id, max_chars=999)
    tickets.database.execute("UPDATE tickets SET readers = 'user:ann' WHERE id = 'T-2 ü'")
    with pytest.raises(NotFoundError):
        await desk.extract(BOB, hit.chunk.id, max_chars=999)
    assert (await desk.extract(ANN, hit.chunk.id, max_chars=999)).text == hit.text
    tickets.database.execute("DELETE FROM tickets WHERE id = 'T-2 ü'")
    with pytest.raises(NotFoundError):
        await desk.extract(ANN, hit.chunk.id, max_chars=999)
    assert desk.alarms == 0


@pytest.mark.slow
async def test_a_retriever_is_of_one_tenant_and_asked_on_behalf_of_the_principal(
    desk_with: Callable[..., Desk], shelf: Shelf
) -> None:
    retriever = Scripted([Retrieved("a", "pendulum", 1.0, visibility="tenant")])
    desk = desk_with(retriever, candidates=10)
    assert "a" in titles(await desk.search(ANN, SearchRequest("pendulum", limit=3)))
    assert retriever.calls == [("pendulum", 10, ANN)]
    desk = desk_with(retriever, tenant="other")
    assert titles(await desk.search(ANN, SearchRequest("pendulum"))) == ["ours"]
    await shelf.put("stored", "a pendulum", collection="tickets")
    assert "a" not in titles(await desk.search(ANN, SearchRequest("pendulum")))  # a collection has its name


@pytest.mark.parametrize("allow", [(), ("*",), ("ann",), ("user:ann", "*"), ("user:ann", "-user:bob")])
async def test_a_passage_without_a_valid_list_is_seen_by_nobody(
    desk_with: Callable[..., Desk], allow: tuple[str, ...]
) -> None:
    desk = desk_with(
        Scripted([Retrieved("a", "pendulum", 1.0, allow), Retrieved("b", "pendulum", 0.5, ("user:ann",))])
    )
    assert [
        title for title in titles(await desk.search(ANN, SearchRequest("pendulum"))) if title != "ours"
    ] == ["b"]
    open_to_all = Retrieved("a", "pendulum", 1.0, ("user:bob",), visibility="tenant")
    assert titles(await desk_with(Scripted([open_to_all])).search(ANN, SearchRequest("pendulum"))) == ["ours"]
    assert desk.alarms == 0


async def _raise(error: type[BaseException] = RuntimeError) -> object:
    raise error("the text of a document")


GOOD = Retrieved("a", "pendulum", 1.0, visibility="tenant")


@pytest.mark.parametrize(
    ("passages", "reason"),
    [
        (_raise, "raised RuntimeError"),
        (partial(_raise, SystemExit), "raised SystemExit"),
        (partial(_raise, asyncio.CancelledError), "raised CancelledError"),
        (lambda: anyio.sleep(60), "no answer within 0.05 seconds"),
        (None, "other than a list"),
        ("pendulum", "other than a list"),
        ([GOOD, {"id": "b"}], "isn't a passage"),
        ([replace(GOOD, score=nan)], "isn't a passage"),
        ([replace(GOOD, score=7.0)], "isn't a passage"),
        ([replace(GOOD, id="")], "isn't a passage"),
        ([replace(GOOD, text=None)], "isn't a passage"),  # type: ignore[arg-type]
        ([replace(GOOD, visibility="public")], "isn't a passage"),  # type: ignore[arg-type]
        ([replace(GOOD, date=datetime(2020, 1, 1))], "isn't a passage"),  # noqa: DTZ001
        ([replace(GOOD, fields={"other": 1})], "isn't a passage"),
        ([replace(GOOD, fields={"year": "soon"})], "holding what a retriever found"),
    ],
)
async def test_the_search_goes_on_without_a_retriever_whatever_it_does_wrong(
    desk_with: Callable[..., Desk], passages: object, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    desk = desk_with(Scripted(passages), seconds=0.05)
    answer = await desk.search(ANN, SearchRequest("pendulum"))
    assert titles(answer) == ["ours"]
    assert (answer.notes, answer.degraded) == ((UNREAD,), ("collections",))
    assert reason in caplog.text
    assert "text of a document" not in caplog.text


async def test_passages_beyond_the_number_asked_for_are_cut_and_one_id_is_one_document(
    desk_with: Callable[..., Desk],
) -> None:
    many = [
        Retrieved(f"{number}", f"pendulum {number}", 1 / (1 + number), visibility="tenant")
        for number in range(40)
    ]
    desk = desk_with(Scripted(many), candidates=10)
    answer = await desk.search(ANN, SearchRequest("pendulum", limit=10, collections=("tickets",)))
    assert [hit.source.metadata["id"] for hit in answer.hits] == [str(number) for number in range(10)]
    twice = desk_with(Scripted([GOOD, replace(GOOD, text="another pendulum")]))
    for _ in range(3):  # whichever of the two the engine gives first
        answer = await twice.search(ANN, SearchRequest("pendulum", collections=("tickets",)))
        assert len(answer.hits) == 1


async def test_where_it_can_not_be_held_to_the_plan_it_is_left_out_with_a_note(
    desk_with: Callable[..., Desk],
) -> None:
    retriever = Scripted([GOOD])
    desk = desk_with(retriever)
    exact = await desk.search(ANN, SearchRequest("pendulum", mode="exact"))
    assert titles(exact) == ["ours"]
    assert exact.notes[0] == "Not searched, because retrievers can't search for exact text: tickets."
    dense = await desk.search(ANN, SearchRequest("pendulum", mode="dense"))
    assert titles(dense) == ["ours"]
    assert dense.notes[0].startswith("Not searched, because they have no vectors: tickets.")
    strict = await desk_with(retriever, statistics="strict").search(ANN, SearchRequest("pendulum"))
    assert titles(strict) == ["ours"]
    assert "could reveal what you may not read: tickets" in strict.notes[0]
    assert retriever.calls == []


async def test_one_that_can_not_open_gives_passages_that_are_not_found_again(
    desk_with: Callable[..., Desk],
) -> None:
    desk = desk_with(Scripted([GOOD]))
    (hit,) = (await desk.search(ANN, SearchRequest("pendulum", collections=("tickets",)))).hits
    with pytest.raises(NotFoundError):
        await desk.extract(ANN, hit.chunk.id, max_chars=99)


async def test_one_that_fails_to_open_is_an_error_and_not_a_missing_document(
    desk_with: Callable[..., Desk], tickets: Tickets
) -> None:
    desk = desk_with(tickets)
    (hit,) = (await desk.search(ANN, SearchRequest("coffee", collections=("tickets",)))).hits
    tickets.database.close()
    with pytest.raises(StoreError, match="is failing"):
        await desk.extract(ANN, hit.chunk.id, max_chars=99)


def test_the_settings_name_its_class_or_the_error_says_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_retrievers.py").write_text(
        "class Good:\n    def __init__(self, file):\n        self.file = file\n"
        "    async def retrieve(self, query, *, limit, principal):\n        return []\n"
        "class Bad:\n    def retrieve(self, query):\n        return []\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def load(call: str, **options: object) -> Any:  # noqa: ANN401 a retriever
        (loaded,) = load_retrievers({"tickets": RetrieverSettings(call=call, options=options)})
        return loaded.retriever

    assert load("my_retrievers:Good", file="x").file == "x"
    for call, reason in (
        ("my_retrievers:Good", "raised TypeError"),
        ("my_retrievers:Bad", "no async def retrieve"),
        ("my_retrievers:Missing", "that module has no Missing"),
        ("no_such_module:Good", "there is no module no_such_module"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            load(call)
