"""The words of chunks: how they are searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.store.read.desk_reader import DeskReader
from rag.store.read.strict_reader import readable_only

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from rag.store.read.collection_reader import CollectionReader

pytestmark = pytest.mark.anyio

EVERYTHING = "(true)"


async def _reader(data: Path) -> CollectionReader:
    reader = DeskReader(data, timeout_seconds=10)
    (collection,) = await reader.collections("default")
    return await reader.open(collection)


async def _found(reader: CollectionReader, text: str) -> list[tuple[str, float]]:
    return [(one.stored.body, round(one.score, 4)) for one in await reader.sparse(text, 9, EVERYTHING)]


async def _stored(small_desk: ModuleType, data: Path) -> Path:
    async with await small_desk.writing(data) as writer:
        texts = ["the clocks tick", "a pendulum swings", "clock towers, a clock"]
        await writer.replace([small_desk.new_source(writer, str(at), text) for at, text in enumerate(texts)])
        await writer.finish()
    return data


async def test_strict_lists_are_those_of_the_index(tmp_path: Path, small_desk: ModuleType) -> None:
    reader = await _reader(await _stored(small_desk, tmp_path))
    strict = await readable_only(reader, EVERYTHING, lambda _: True)
    listed = await strict.sparse("clocks that swing", 9, EVERYTHING)
    assert len(listed) == 3
    in_engine = await _found(reader, "clocks that swing")
    assert [scored.stored.body for scored in listed] == [body for body, _ in in_engine]


async def test_names_are_found_in_all_forms_with_collection_statistics_and_strict_ones(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        texts = ["an inhibitor of PD-1", "PD1 is a protein", "parseJsonFile reads it", "parse a file", "else"]
        await writer.replace([small_desk.new_source(writer, text, text) for text in texts])
        await writer.finish()
    reader = await _reader(tmp_path)
    strict = await readable_only(reader, EVERYTHING, lambda _: True)
    for query, every, expected in (
        ("PD1", False, texts[:2]),
        ("pd-1", True, texts[:2]),
        ("PD-1 protein", True, texts[1:2]),
        ("parse_json_file", False, texts[2:4]),
        ("parse_json_file", True, texts[2:3]),
        ("the json file", False, texts[2:4]),
    ):
        for lists in (reader, strict):
            found = await lists.sparse(query, 9, EVERYTHING, every=every)
            assert sorted(one.stored.chunk.text for one in found) == sorted(expected), (query, every)
