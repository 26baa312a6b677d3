"""A run records in which state it read each file, so that a search can tell later that it has changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from rag.originals import state_of
from rag.store.read.connection import connect
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import sources_table
from tests.small_desk import ingested

if TYPE_CHECKING:
    from pathlib import Path

    from rag.corpus import Source
    from rag.ingest.report import Report

pytestmark = pytest.mark.anyio


async def _stored(data: Path) -> dict[str, Source]:
    reader = DeskReader(data, timeout_seconds=15)
    (collection,) = await reader.collections("default")
    return {one.name: one for one in await (await reader.open(collection)).listing()}


async def _run(data: Path, docs: Path) -> Report:
    report = await ingested(data, docs)
    recorded = {name: one.file for name, one in (await _stored(data)).items()}
    assert recorded == {name: state_of(docs / name) for name in recorded}
    return report


async def test_the_state_of_each_file_is_recorded_also_if_only_its_time_is_new(tmp_path: Path) -> None:
    """Added, changed, touched, moved, replaced by a copy: after each run, the record is that of the file."""
    docs, data = tmp_path / "docs", tmp_path / "data"
    docs.mkdir()
    for name in ("a.md", "b.md", "c.md"):
        (docs / name).write_text(f"The text of {name}.\n")
    assert (await _run(data, docs)).counts["added"] == 3
    before = (await _stored(data))["b.md"]
    os.utime(docs / "a.md", (1, 1))
    (docs / "b.md").write_text("Another text.\n")
    (docs / "c.md").rename(docs / "d.md")
    os.utime(docs / "d.md", (2, 2))
    counts = (await _run(data, docs)).counts
    assert (counts["unchanged"], counts["replaced"], counts["moved"]) == (1, 1, 1)
    after = await _stored(data)
    assert after["b.md"].file != before.file
    assert {"a.md", "b.md", "d.md"} == after.keys()


async def test_rows_of_a_version_that_did_not_record_it_get_it_at_the_next_run(tmp_path: Path) -> None:
    docs, data = tmp_path / "docs", tmp_path / "data"
    docs.mkdir()
    (docs / "a.md").write_text("A text.\n")
    await _run(data, docs)
    table = await (await connect(data)).open_table(sources_table("default", "documents"))
    await table.update({"fields": "{}"})
    assert (await _stored(data))["a.md"].file is None
    assert (await _run(data, docs)).counts["unchanged"] == 1
    version = await (await (await connect(data)).open_table(sources_table("default", "documents"))).version()
    await _run(data, docs)
    again = await (await (await connect(data)).open_table(sources_table("default", "documents"))).version()
    assert again == version  # a run that finds nothing new writes nothing
