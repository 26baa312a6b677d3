from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from rag.store.read.desk_reader import DeskReader
from tests.bench.engine import add_tenants, open_engine
from tests.bench.stock import stocked

if TYPE_CHECKING:
    from pathlib import Path

    from rag.store.read.collection_reader import CollectionReader
    from tests.bench.stock import Bench

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


async def opened(data: Path, tenant: str = "default") -> CollectionReader:
    reader = DeskReader(data, timeout_seconds=15)
    (collection,) = await reader.collections(tenant)
    return await reader.open(collection)


async def test_exact_search_finds_the_nearest_of_those_that_the_filter_keeps(bench: Bench) -> None:
    data = await stocked(bench, 40)
    engine, table = await open_engine(data, bench.embedder), await opened(data)
    vector = bench.vectors[3]
    all_ids = [f"{source.id}/{seq}" for source in await table.listing() for seq in range(10)]
    chunks = {one.id: one.vector for one in await table.chunks(all_ids, "(true)")}
    nearest = sorted(chunks, key=lambda id_: -float(np.dot(chunks[id_], vector)))
    assert await engine.exact(vector, 5, None) == nearest[:5]
    assert await engine.exact(vector, 5, "seq < 5") == [id_ for id_ in nearest if int(id_[-1]) < 5][:5]


async def test_a_window_is_the_text_and_the_chunks_that_the_desk_would_show(bench: Bench) -> None:
    data = await stocked(bench, 20)
    engine, table = await open_engine(data, bench.embedder), await opened(data)
    for source in await table.listing():
        found = await table.text(source.id)
        assert found
        text, chunks = await engine.window(source.id, 30, 290)
        assert text == found[2][30:290]
        assert sorted(chunks) == [
            chunk.id for chunk in await table.chunks_touching(found[0], 30, 290, "(true)")
        ]
        assert 1 < len(chunks) < 10


async def test_every_added_tenant_has_a_collection_of_its_own_that_can_be_searched(bench: Bench) -> None:
    data = await stocked(bench, 20)
    await add_tenants(data, 2)
    for tenant in ("default", "default-0", "default-1"):
        table = await opened(data, tenant)
        assert table.collection.tenant == tenant
        assert len(await table.dense(bench.vectors[0], 5, "(true)")) == 5
        assert len(await table.sparse("clock", 5, "(true)")) == 5
    assert await DeskReader(data, timeout_seconds=15).collections("default-2") == ()
