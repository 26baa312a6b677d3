"""Attached tables: searched and opened like collections, by the rights in their rows, never written to."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

from rag.answers import Answer, Mode, SearchRequest
from rag.corpus import NO_VECTORS, Access, Attachment, Binding, Collection, FieldType, Principal
from rag.errors import ConfigurationError, InvalidRequestError, NotFoundError, NotReadyError, StoreError
from rag.search.desk import Desk
from rag.search.pipeline import DIFFERING, OWN_AND_NEWER
from rag.search.search_state import UNREAD
from rag.store.read.attached.attached_reader import open_table
from rag.store.read.attached.attached_table import AttachedTable, access_of, complete
from rag.store.write.change_collection import drop_collection, open_writer
from rag.store.write.make_collection import ensure_collection
from tests.search.conftest import Shelf

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MODES: tuple[Mode, ...] = get_args(Mode)
ANN, BOB, HR = (
    Principal("default", "ann"),
    Principal("default", "bob"),
    Principal("default", "eve", frozenset({"hr"})),
)
TEXTS = {
    "notes/1": "The pendulum clock of Huygens keeps time",
    "b ü'": "A pendulum in the payroll office",
    "c": "A pendulum that nobody may see",
    "d": "A pendulum with a malformed list",
    "e": "Bread and butter",
}
RIGHTS: list[Any] = [
    ["user:ann", "group:hr"],
    ["group:hr"],
    None,
    ["user:ann", "bob"],
    ["user:ann", "user:bob"],
]
ALL = Attachment(
    "", "Id", "text", "vector", "meta.title", "meta.url", "day", None, {"year": "year", "tags": "tags"}
)
PRECISIONS: dict[str, pa.DataType] = {
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
}
FIELDS: dict[str, FieldType] = {"year": "integer", "tags": "string list"}


@dataclass(slots=True)
class ForeignTable:
    """A table that others write, and the data folder that it is attached to."""

    shelf: Shelf
    foreign: ModuleType
    folder: Path
    table: Path

    def columns(self, **columns: Any) -> dict[str, Any]:  # noqa: ANN401 whatever a table holds
        """The columns of the table, with others in their place."""
        texts = list(TEXTS.values())
        return {
            "Id": list(TEXTS),
            "text": texts,
            "vector": self.foreign.column_of(self.shelf.small.vectors(texts) * 3),
            "meta": [
                {"title": "Huygens", "url": "https://clocks.example/a b"},
                *[{"title": None, "url": "x"}] * 4,
            ],
            "day": ["1656-12-25", "some day", None, None, None],
            "acl": pa.array(RIGHTS, pa.list_(pa.string())),
            "year": [1656, 2020, 2020, 2020, None],
            "tags": [["old", None], [], None, None, None],
            **columns,
        }

    async def write(self, *, full_text: Sequence[str] = ("text",), **columns: Any) -> None:  # noqa: ANN401 as above
        """Write the table anew."""
        self.table = await self.foreign.written(
            self.folder, "notes", self.columns(**columns), full_text=full_text
        )

    async def attach(self, name: str, **changed: Any) -> Collection:  # noqa: ANN401 parts of an attachment
        """Attach the table to the data folder."""
        attachment = replace(ALL, table=str(self.table), **changed)
        return await ensure_collection(
            self.shelf.data,
            "default",
            name,
            self.shelf.small.BagOfWords().identity if attachment.vector else NO_VECTORS,
            fields={key: kind for key, kind in FIELDS.items() if key in attachment.fields},
            visibility="restricted" if attachment.allow else "tenant",
            attached=attachment,
        )


@pytest.fixture
async def attached(shelf: Shelf, foreign: ModuleType, tmp_path: Path) -> ForeignTable:
    table = ForeignTable(shelf, foreign, tmp_path / "others", tmp_path)
    await table.write()
    return table


def ids(answer: Answer) -> list[str]:
    """The others' ids of the hits."""
    return [hit.source.metadata["id"] for hit in answer.hits]


async def found_ids(desk: Desk, who: Principal, query: str = "pendulum", **request: Any) -> set[str]:  # noqa: ANN401 a request's
    return {*ids(await desk.search(who, SearchRequest(query, limit=20, **request)))}


async def test_its_rows_are_found_and_opened_with_what_their_columns_say(attached: ForeignTable) -> None:
    await attached.attach("notes")
    before = attached.foreign.contents(attached.folder)
    desk = attached.shelf.desk()
    for mode in reversed(MODES):
        query = "pendulum clock" if mode == "exact" else "who made the pendulum clock"
        answer = await desk.search(BOB, SearchRequest(query, mode=mode))
        assert ids(answer)[0] == "notes/1"
        assert (answer.notes, answer.degraded) == ((), ())
    hit = answer.hits[0]
    assert (hit.text, hit.source.title) == (TEXTS["notes/1"], "Huygens")
    assert hit.source.url == "https://clocks.example/a%20b"
    assert hit.source.date == datetime(1656, 12, 25, tzinfo=UTC)
    assert hit.fields == {"year": 1656, "tags": ("old",)}
    assert hit.similarity is not None
    assert hit.similarity <= 1.0001  # the vectors are three times as long
    opened = await desk.extract(BOB, hit.chunk.id, max_chars=1000)
    assert (opened.text, opened.chunks) == (hit.text, (hit.chunk,))
    plain = (await desk.search(BOB, SearchRequest("payroll office"))).hits[0].source
    assert (plain.title, plain.url, plain.date) == ("b ü'", None, None)
    listed = await desk.sources(BOB, after=("", ""), limit=50)
    assert [source.id for source in listed] == sorted(source.id for source in listed)
    assert {source.metadata["id"] for source in listed} == {*TEXTS}
    assert [overview.sources for overview in await desk.overview(BOB)] == [len(TEXTS)]
    assert attached.foreign.contents(attached.folder) == before


@pytest.mark.parametrize("statistics", ["collection", "strict"])
@pytest.mark.parametrize(
    ("who", "theirs"),
    [(ANN, {"notes/1", "e"}), (BOB, {"e"}), (HR, {"notes/1", "b ü'"}), (Principal("default"), set())],
)
async def test_a_column_decides_who_finds_opens_and_lists_a_row(
    attached: ForeignTable, statistics: str, who: Principal, theirs: set[str]
) -> None:
    await attached.attach("notes", allow="acl")
    desk = attached.shelf.desk(statistics=statistics)
    everything = {source.metadata["id"]: source.id for source in await _all_sources(attached)}
    for mode in ("dense", "hybrid"):
        assert await found_ids(desk, who, "pendulum bread", mode=mode) == theirs
    assert await found_ids(desk, who, "pendulum bread", mode="sparse") == theirs
    listed = {source.metadata["id"] for source in await desk.sources(who, after=("", ""), limit=50)}
    assert listed == theirs
    assert await _in_folder(desk, who) == theirs
    assert [collection.name for collection in await desk.collections(who)] == (["notes"] if theirs else [])
    assert [overview.sources for overview in await desk.overview(who)] == ([len(theirs)] if theirs else [])
    for id_, source_id in everything.items():
        if id_ in theirs:
            assert (await desk.extract(who, source_id, max_chars=1000)).text == TEXTS[id_]
        else:
            with pytest.raises(NotFoundError):
                await desk.extract(who, f"{source_id}/0", max_chars=1000)
    assert desk.alarms == 0


async def _in_folder(desk: Desk, who: Principal) -> set[str]:
    """The ids of the rows that stand in the collection notes."""
    if not (await desk.listing(who)).entries:
        return set()
    folder = await desk.listing(who, "notes")
    assert folder.documents == len(folder.entries)
    return {entry.source.metadata["id"] for entry in folder.entries if entry.source}


async def _all_sources(attached: ForeignTable) -> list[Any]:
    """The sources of the collection notes, whoever may see them."""
    reader = attached.shelf.desk()._reader  # noqa: SLF001 no principal may see them all
    (collection,) = await reader.collections("default")
    return await (await reader.open(collection)).listing()


async def test_the_gate_alone_keeps_back_what_the_engine_lets_through(
    attached: ForeignTable, blind: Callable[[], None]
) -> None:
    await attached.attach("notes", allow="acl")
    desk = attached.shelf.desk()
    blind()
    assert await found_ids(desk, ANN, "pendulum bread") == {"notes/1", "e"}
    assert (
        desk.alarms == 1
    )  # a list that is null or malformed has no record that the engine could have judged


async def test_the_engine_alone_keeps_back_what_the_gate_would_let_through(
    attached: ForeignTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    await attached.attach("notes", allow="acl")
    monkeypatch.setattr("rag.search.view.View.admits", lambda _view, _source: True)
    assert await found_ids(attached.shelf.desk(), BOB, "pendulum bread") == {"e"}


async def test_a_right_that_is_taken_away_between_list_and_gate_counts(
    attached: ForeignTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    await attached.attach("notes", allow="acl")
    desk = attached.shelf.desk()
    assert await found_ids(desk, BOB, "bread") == {"e"}
    _between_list_and_gate(monkeypatch, partial(attached.write, acl=pa.array([["user:ann"]] * 5)))
    assert await found_ids(desk, BOB, "bread") == set()
    assert desk.alarms == 0


async def test_rows_that_go_between_list_and_gate_are_not_shown_and_changed_ones_as_they_are_now(
    attached: ForeignTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    await attached.attach("notes")
    desk = attached.shelf.desk()

    async def change() -> None:
        table = await attached.foreign.opened(attached.table)
        await table.delete("\"Id\" = 'c'")
        await table.update({"text": "A pendulum that was changed"}, where="`Id` = 'd'")

    _between_list_and_gate(monkeypatch, change)
    answer = await desk.search(BOB, SearchRequest("pendulum", limit=20))
    assert "c" not in ids(answer)
    texts = {hit.source.metadata["id"]: hit.text for hit in answer.hits}
    assert texts["d"] == "A pendulum that was changed"
    assert texts["notes/1"] == TEXTS["notes/1"]


def _between_list_and_gate(monkeypatch: pytest.MonkeyPatch, change: Callable[[], Any]) -> None:
    """Let others change the table when the lists are there."""
    query, changes = AttachedTable.query, [change]

    class Interrupted:
        def __init__(self, table: AttachedTable) -> None:
            self.inner: Any = query(table)

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 the engine's
            return getattr(self.inner, name)

        def where(self, predicate: str) -> Any:  # noqa: ANN401 the engine's
            self.inner = self.inner.where(predicate)
            return self

        def select(self, names: Sequence[str]) -> Any:  # noqa: ANN401 the engine's
            self.inner = self.inner.select(names)
            return self

        def limit(self, limit: int) -> Any:  # noqa: ANN401 the engine's
            self.inner = self.inner.limit(limit)
            return self

        async def to_arrow(self, **options: Any) -> Any:  # noqa: ANN401 the engine's
            while changes:
                await changes.pop()()
            return await self.inner.to_arrow(**options)

    def interrupted(table: AttachedTable) -> Any:  # noqa: ANN401 the engine's
        return Interrupted(table) if table.kind == "sources" else query(table)

    monkeypatch.setattr(AttachedTable, "query", interrupted)


async def test_filters_and_bindings_hold_by_the_mapped_columns(attached: ForeignTable) -> None:
    await attached.attach("notes")
    desk = attached.shelf.desk()
    cases: list[tuple[dict[str, object], set[str]]] = [
        ({"year": {"$lt": 1700}}, {"notes/1"}),
        ({"year": {"$gte": 2020}}, {"b ü'", "c", "d"}),
        ({"year": {"$exists": False}}, {"e"}),
        ({"tags": "old"}, {"notes/1"}),
        ({"tags": {"$exists": True}}, {"notes/1"}),
        ({"tags": {"$exists": False}}, {*TEXTS} - {"notes/1"}),
        ({"$not": {"tags": "old"}}, {*TEXTS} - {"notes/1"}),
    ]
    for filter_, theirs in cases:
        assert await found_ids(desk, BOB, "pendulum bread", filter=filter_) == theirs, filter_
        bound = replace(BOB, bindings=(Binding(filter=filter_),))
        assert await found_ids(desk, bound, "pendulum bread") == theirs, filter_
        assert {
            source.metadata["id"] for source in await desk.sources(bound, after=("", ""), limit=9)
        } == theirs
        assert await _in_folder(desk, bound) == theirs
    of_requests: list[tuple[dict[str, object], set[str]]] = [
        ({"title": {"$contains": "huyg"}}, {"notes/1"}),
        ({"date": {"$lt": "1700-01-01"}}, {"notes/1"}),
        ({"date": {"$exists": False}}, {*TEXTS} - {"notes/1"}),
        ({"$not": {"title": "Huygens"}, "year": 2020}, {"b ü'", "c", "d"}),
        ({"tags": {"$contains": "OL"}}, {"notes/1"}),
        ({"$not": {"tags": {"$prefix": "ol"}}}, {*TEXTS} - {"notes/1"}),
        ({"section": {"$exists": True}}, set()),
    ]
    for filter_, theirs in of_requests:
        assert await found_ids(desk, BOB, "pendulum bread", filter=filter_) == theirs, filter_
    with pytest.raises(InvalidRequestError):
        await found_ids(desk, BOB, filter={"Id": "c"})
    (first,) = (await desk.search(BOB, SearchRequest("Huygens", limit=1))).hits
    assert await found_ids(desk, BOB, sources=(first.source.id,)) == {"notes/1"}
    assert (
        await found_ids(desk, BOB, exclude_sources=(first.source.id,), filter={"year": {"$lt": 1700}})
        == set()
    )
    assert desk.alarms == 0


async def test_a_table_can_be_attached_twice_and_beside_ingested_documents(attached: ForeignTable) -> None:
    await attached.attach("all")
    await attached.attach("some", allow="acl")
    await attached.shelf.put("ours", "a pendulum of our own")
    desk = attached.shelf.desk()
    answer = await desk.search(ANN, SearchRequest("pendulum", limit=20))
    where = {(hit.source.collection, hit.source.title) for hit in answer.hits}
    assert {("all", "Huygens"), ("some", "Huygens"), ("documents", "ours")} <= where
    assert ("some", "c") not in where
    assert len({hit.chunk.id for hit in answer.hits}) == len(answer.hits)
    for hit in answer.hits:
        assert (
            await desk.extract(ANN, hit.chunk.id, max_chars=999)
        ).source.collection == hit.source.collection


async def test_without_a_full_text_index_words_are_not_searched_and_the_answer_says_so(
    attached: ForeignTable,
) -> None:
    await attached.write(full_text=())
    await attached.attach("notes")
    await attached.shelf.put("ours", "a pendulum of our own")
    desk = attached.shelf.desk()
    hybrid = await desk.search(BOB, SearchRequest("pendulum", limit=20))
    assert {*TEXTS} <= {*(hit.source.metadata.get("id") for hit in hybrid.hits)}
    assert hybrid.notes == ("Searched by meaning alone, because they have no full-text index: notes.",)
    assert hybrid.degraded == ("sparse",)
    sparse = await desk.search(BOB, SearchRequest("pendulum", mode="sparse"))
    assert [hit.source.title for hit in sparse.hits] == ["ours"]
    assert sparse.degraded == ("sparse",)
    assert sparse.notes[0].startswith("Not searched, because they have no full-text index: notes.")
    with pytest.raises(NotReadyError, match="no full-text index: notes"):
        await desk.search(BOB, SearchRequest("pendulum", mode="sparse", collections=("notes",)))
    assert (await desk.search(BOB, SearchRequest("pendulum", mode="dense"))).notes == ()


async def test_without_a_full_text_index_meaning_counts_whatever_the_model_knows_of_the_query(
    attached: ForeignTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    await attached.write(full_text=())
    await attached.attach("notes")
    monkeypatch.setattr(attached.shelf.small.BagOfWords, "vocabulary_share", lambda _self, _text: 0.0)
    desk = attached.shelf.desk()
    answer = await desk.search(BOB, SearchRequest("pendulum", limit=20))
    similarities = [hit.similarity for hit in answer.hits if hit.similarity and hit.similarity > 0]
    assert similarities == sorted(similarities, reverse=True)
    assert len(similarities) > 1


async def test_a_table_without_vectors_is_searched_by_words(attached: ForeignTable) -> None:
    await attached.attach("notes", vector=None)
    desk = attached.shelf.desk()
    hybrid = await desk.search(BOB, SearchRequest("pendulum", limit=20))
    assert {*ids(hybrid)} == {*TEXTS} - {"e"}
    assert all(hit.similarity is None for hit in hybrid.hits)
    assert hybrid.notes == ("Searched by words alone, because they have no vectors: notes.",)
    assert hybrid.degraded == ("dense",)
    table = await attached.foreign.opened(attached.table)
    await table.drop_index("text_idx")
    neither = await desk.search(BOB, SearchRequest("pendulum"))
    assert not neither.hits
    assert neither.notes[0].startswith("Not searched, because they have no full-text index, and no vectors")
    assert neither.degraded == ("sparse",)


@pytest.mark.parametrize("kind", PRECISIONS)
async def test_vectors_of_any_float_are_searched_and_missing_or_bad_ones_are_no_hits(
    attached: ForeignTable, kind: str
) -> None:
    vectors = attached.shelf.small.vectors(list(TEXTS.values())).astype(kind)
    vectors[2], vectors[3] = 0, np.inf
    column = attached.foreign.column_of(vectors).to_pylist()
    column[4] = None
    await attached.write(vector=pa.array(column, pa.list_(PRECISIONS[kind], vectors.shape[1])))
    await attached.attach("notes")
    desk = attached.shelf.desk()
    assert {"notes/1", "b ü'"} <= await found_ids(desk, BOB, "pendulum", mode="dense")
    similar = {
        hit.source.metadata["id"]: hit.similarity
        for hit in (await desk.search(BOB, SearchRequest("pendulum bread", limit=20, mode="sparse"))).hits
    }
    assert similar["e"] is similar["c"] is None
    assert similar["notes/1"] == pytest.approx(
        float(vectors[0] @ attached.shelf.small.vectors(["pendulum bread"])[0]), abs=0.01
    )


async def test_vectors_of_another_size_are_those_of_another_model(attached: ForeignTable) -> None:
    await attached.attach("notes")
    desk = attached.shelf.desk()
    assert (await desk.search(BOB, "pendulum")).degraded == ()
    await attached.write(vector=attached.foreign.column_of(np.ones((5, 8), np.float32)))
    answer = await desk.search(BOB, "pendulum")
    assert ids(answer)
    assert answer.notes == (
        "Searched by words alone, because another embedding model made their vectors: notes.",
    )
    assert answer.degraded == ("dense",)


async def test_others_may_compact_overwrite_drop_and_rename_their_table_meanwhile(
    attached: ForeignTable,
) -> None:
    await attached.attach("notes")
    await attached.shelf.put("ours", "a pendulum of our own")
    desk = attached.shelf.desk()
    assert "c" in await found_ids(desk, BOB, collections=("notes",))
    table = await attached.foreign.opened(attached.table)
    await table.delete("`Id` = 'c'")
    assert "c" not in await found_ids(desk, BOB, collections=("notes",))
    await table.optimize()
    assert "notes/1" in await found_ids(desk, BOB, collections=("notes",))
    await attached.write(Id=["n1", "n2", "n3", "n4", "n5"])
    assert await found_ids(desk, BOB, "pendulum bread", collections=("notes",)) == {
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
    }
    attached.table.rename(attached.folder / "elsewhere.lance")
    answer = await desk.search(BOB, SearchRequest("pendulum"))
    assert [hit.source.title for hit in answer.hits] == ["ours"]
    assert (answer.notes, answer.degraded) == ((UNREAD,), ("collections",))
    assert not attached.table.exists()  # the engine makes folders that it doesn't find
    with pytest.raises(StoreError, match="is failing"):
        await desk.search(BOB, SearchRequest("pendulum", collections=("notes",)))
    with pytest.raises(StoreError, match="is failing"):
        await desk.extract(BOB, "abc", max_chars=100)
    await attached.write(acl=pa.array([None] * 5, pa.list_(pa.string())))
    assert "c" in await found_ids(desk, BOB, collections=("notes",))


async def test_a_table_made_anew_with_the_same_version_gives_nobody_the_rights_of_the_old_one(
    attached: ForeignTable,
) -> None:
    await attached.attach("notes", allow="acl")
    desk = attached.shelf.desk()
    assert await found_ids(desk, BOB, "bread") == {"e"}
    assert [overview.sources for overview in await desk.overview(BOB)] == [1]
    version = await (await attached.foreign.opened(attached.table)).version()
    for path in sorted(attached.table.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    await attached.write(acl=pa.array([["user:ann"]] * 5))
    assert await (await attached.foreign.opened(attached.table)).version() == version
    assert await found_ids(desk, BOB, "bread") == set()
    assert await desk.overview(BOB) == ()
    assert await found_ids(desk, ANN, "bread") == {*TEXTS}


async def test_a_table_that_may_not_be_read_is_an_error_that_says_so(
    foreign: ModuleType, plain_folder: Path
) -> None:
    table: Path = await foreign.written(plain_folder, "notes", {"id": ["a"], "text": ["A pendulum"]})
    await open_table(str(table))
    os.chmod(table / "_versions", 0)  # noqa: PTH101 asynchronous tests may not use pathlib
    with pytest.raises(StoreError, match="failed while opening the attached table"):
        await open_table(str(table))
    os.chmod(table / "_versions", 0o700)  # noqa: PTH101 as above
    os.chmod(table, 0)  # noqa: PTH101 as above
    with pytest.raises(StoreError, match="can't be read: Permission denied"):
        await open_table(str(table))
    os.chmod(table, 0o700)  # noqa: PTH101 as above
    await open_table(str(table))


@pytest.mark.parametrize("allow", [None, "acl"])
async def test_a_table_that_lost_a_column_is_left_out_and_only_the_log_says_which(
    attached: ForeignTable, allow: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    await attached.attach("notes", allow=allow)
    await attached.shelf.put("ours", "a pendulum of our own")
    columns = attached.columns()
    del columns["acl"], columns["text"]
    await attached.foreign.written(attached.folder, "notes", columns, full_text=())
    desk = attached.shelf.desk()
    answer = await desk.search(ANN, SearchRequest("pendulum"))
    assert [hit.source.title for hit in answer.hits] == ["ours"]
    assert (answer.notes, answer.degraded) == ((UNREAD,), ("collections",))
    assert "has no column 'text'" in caplog.text
    expected = NotFoundError if allow else StoreError
    with pytest.raises(expected):
        await desk.search(ANN, SearchRequest("pendulum", collections=("notes",)))
    elsewhere = replace(ANN, bindings=(Binding(collections=("documents",)),))
    assert (await desk.search(elsewhere, SearchRequest("pendulum"))).degraded == ()


async def test_a_table_that_loses_its_data_files_keeps_nobody_from_looking_at_the_rest(
    attached: ForeignTable,
) -> None:
    await attached.attach("notes")
    await attached.shelf.put("ours", "a pendulum of our own")
    desk = attached.shelf.desk()
    assert "c" in await found_ids(desk, BOB, collections=("notes",))
    assert {source.collection for source in await desk.sources_beginning_with(BOB, "")} == {
        "documents",
        "notes",
    }
    data = attached.table / "data"
    data.rename(attached.folder / "data")
    assert {source.collection for source in await desk.sources_beginning_with(BOB, "")} == {"documents"}
    assert [overview.collection.name for overview in await desk.overview(BOB)] == ["documents"]
    (attached.folder / "data").rename(data)
    assert [overview.collection.name for overview in await desk.overview(BOB)] == ["documents", "notes"]


async def test_rows_without_text_or_id_and_an_empty_table_are_no_trouble(attached: ForeignTable) -> None:
    texts = [None, "", "A pendulum", "Another pendulum", "pendulum"]
    await attached.write(Id=["a", "b", None, "d", "d"], text=texts, acl=pa.array([["user:bob"]] * 5))
    await attached.attach("notes", allow="acl")
    desk = attached.shelf.desk()
    assert await found_ids(desk, BOB, mode="dense") == {"b", "d"}
    assert await found_ids(desk, BOB, mode="sparse") == {"d"}
    (hit,) = (await desk.search(BOB, SearchRequest("pendulum", mode="sparse"))).hits
    assert (await desk.extract(BOB, hit.chunk.id, max_chars=99)).text == hit.text  # of two rows of one id
    for repeated in ("aaabc", "abbbc", "abccc", "bcaaa"):  # an id takes no place of another one
        await attached.write(Id=[*repeated], acl=pa.array([["user:bob"]] * 5), text=["pendulum"] * 5)
        for mode in ("dense", "sparse", "exact"):
            assert await found_ids(desk, BOB, mode=mode) == {*"abc"}, (repeated, mode)
    await attached.write(
        Id=["a", "b", "c", "d", "d"], acl=pa.array([["user:bob"]] * 4 + [["user:bob", "user:ann"]])
    )
    assert "d" not in await found_ids(desk, BOB)  # two rows of one id don't agree
    assert await found_ids(desk, ANN) == set()
    assert await desk.collections(ANN) == ()
    empty = {name: pa.array([], pa.array(values).type) for name, values in attached.columns().items()}
    await attached.foreign.written(attached.folder, "notes", empty)
    assert await found_ids(desk, BOB) == set()
    assert desk.alarms == 0


def test_rows_without_an_id_or_a_text_are_left_out_whatever_types_the_engine_has() -> None:
    names = pa.array(["a", None, "c"], pa.string_view())
    rows = pa.table({"our_their_id": names, "our_length": pa.array([1, 2, None]), "our_body": names})
    assert complete(rows).to_pylist() == [{"our_their_id": "a", "our_length": 1, "our_body": "a"}]
    assert complete(rows.slice(0, 1)) == rows.slice(0, 1)


async def test_timestamps_numbers_and_dictionaries_are_read_as_what_they_are(attached: ForeignTable) -> None:
    moments = [datetime(2020, 1, day, 12, tzinfo=UTC) for day in range(1, 6)]
    for kind in (
        pa.timestamp("s"),
        pa.timestamp("ms", "Asia/Tokyo"),
        pa.timestamp("us"),
        pa.timestamp("ns", "UTC"),
    ):
        naive = [moment.replace(tzinfo=None) for moment in moments] if kind.tz is None else moments
        await attached.write(day=pa.array(naive, kind), year=pa.array([1, 2, 3, 4, None], pa.int16()))
        if kind == pa.timestamp("s"):
            await attached.attach("notes")
        desk = attached.shelf.desk()
        dates = {
            hit.source.metadata["id"]: hit.source.date for hit in (await desk.search(BOB, "pendulum")).hits
        }
        assert dates["c"] == moments[2], kind
        assert await found_ids(desk, BOB, filter={"year": 3}) == {"c"}
    await attached.write(day=pa.array([2**62, None, 1, 2, 3], pa.timestamp("s")))
    assert (await desk.search(BOB, SearchRequest("Huygens", limit=1))).hits[0].source.date is None


async def test_nothing_can_write_to_it_and_removing_it_deletes_nothing(attached: ForeignTable) -> None:
    collection = await attached.attach("notes")
    before = attached.foreign.contents(attached.folder)
    with pytest.raises(ConfigurationError, match="which refdesk only reads"):
        async with open_writer(attached.shelf.data, collection):
            pass
    with pytest.raises(ConfigurationError, match="which refdesk only reads"):
        await ensure_collection(attached.shelf.data, "default", "notes", collection.embedder)
    with pytest.raises(ConfigurationError, match="already exists"):
        await attached.attach("notes")
    await drop_collection(attached.shelf.data, collection)
    assert attached.foreign.contents(attached.folder) == before
    await attached.attach("notes")
    assert await found_ids(attached.shelf.desk(), BOB)


@pytest.mark.parametrize(
    ("entries", "allowed"),
    [
        (["user:ann", "group:hr"], {"user:ann", "group:hr"}),
        (["user:ann"] * 2, {"user:ann"}),
        ([], None),
        (None, None),
        (["user:ann", None], None),
        (["user:ann", ""], None),
        (["user:ann", "everybody"], None),
        (["user:ann", "-user:bob"], None),
        (["*"], None),
        (["User:ann"], None),
        (["user:"], None),
        (["user:a\x1fuser:b"], None),
        ([f"user:{number}" for number in range(300)], None),
    ],
)
def test_a_malformed_list_of_entries_admits_nobody(
    entries: list[str | None] | None, allowed: set[str] | None
) -> None:
    access = access_of(entries)
    expected = None if allowed is None else Access("restricted", frozenset(allowed))
    assert (access and replace(access, revision=0)) == expected


async def test_of_passages_that_disagree_the_desks_own_stands_before_an_attached_one(
    attached: ForeignTable,
) -> None:
    leave = "Everybody at this house has {} days of paid leave in a year"
    await attached.shelf.put("leave", leave.format("twenty 20"), title="Huygens")
    texts = [leave.format("thirty 30"), *[*TEXTS.values()][1:]]
    await attached.write(text=texts, vector=attached.foreign.column_of(attached.shelf.small.vectors(texts)))
    await attached.attach("notes")
    question = "has everybody at this house thirty days of paid leave in a year"
    answer = await attached.shelf.desk().search(BOB, SearchRequest(question))
    assert [hit.source.collection for hit in answer.hits[:2]] == ["documents", "notes"]
    assert answer.hits[0].score >= answer.hits[1].score
    assert DIFFERING.format(OWN_AND_NEWER) in answer.notes
    alone = await attached.shelf.desk().search(BOB, SearchRequest(question, collections=("notes",)))
    assert DIFFERING.format(OWN_AND_NEWER) not in alone.notes
