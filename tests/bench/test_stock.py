from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rag.store.read.desk_reader import DeskReader
from tests.bench.stock import paragraphs, stocked

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from rag.store.read.collection_reader import CollectionReader
    from tests.bench.stock import Bench

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def opened(data: Path) -> CollectionReader:
    reader = DeskReader(data, timeout_seconds=15)
    (collection,) = await reader.collections("default")
    return await reader.open(collection)


async def test_a_collection_has_the_chunks_and_the_indexes_that_were_asked_for(bench: Bench) -> None:
    table = await opened(await stocked(bench, 60))
    statistics = await table.statistics()
    assert (statistics.sources, statistics.chunks, statistics.unindexed) == (6, 60, 0)
    assert statistics.indexes == ("id (BTree)", "source_id (BTree)", "terms (FTS)")


async def test_a_chunk_is_three_to_five_sentences_and_its_vector_their_mean(
    bench: Bench, small_desk: ModuleType
) -> None:
    table = await opened(await stocked(bench, 20))
    for source in await table.listing():
        found = await table.text(source.id)
        assert found
        stored, _, text = found
        chunks = await table.chunks_touching(stored, 0, source.length, "(true)")
        assert len(chunks) == 10
        for chunk in chunks:
            assert text[chunk.start : chunk.end] == chunk.text
            sentences = [f"{part}." for part in chunk.text.rstrip(".").split(". ")]
            assert 3 <= len(sentences) <= 5
            mean = small_desk.vectors(sentences).mean(axis=0)
            (stored_chunk,) = await table.chunks([chunk.id], "(true)")
            np.testing.assert_allclose(stored_chunk.vector, mean / np.linalg.norm(mean), atol=1e-6)


async def test_it_is_made_once(bench: Bench, progress: list[str]) -> None:
    assert await stocked(bench, 20) == await stocked(bench, 20)
    assert progress == ["making a collection of 20 chunks"]


def test_passages_are_where_their_texts_stand() -> None:
    texts = ["one", "two two", "three"]
    text = "\n\n".join(texts)
    assert [text[one.start : one.end] for one in paragraphs(texts)] == texts
    assert [one.seq for one in paragraphs(texts)] == [0, 1, 2]
