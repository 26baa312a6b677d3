"""Looking at the files of hits: never for long, whatever the file server does."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio
import pytest

from rag.corpus import FileState, Source
from rag.originals import MAX_HANGING, FileWatch

if TYPE_CHECKING:
    from pathlib import Path

    from rag.originals import Staleness

pytestmark = pytest.mark.anyio
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


OLD = FileState(0, 1)


def _source(uri: str, *, file: FileState | None = OLD, path: str = "a.md") -> Source:
    metadata = {"path": path} if path else {}
    return Source(uri[-9:], "c", uri, "T", "text/plain", "d", 1, 1, MOMENT, metadata=metadata, file=file)


async def test_only_files_with_a_recorded_state_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text("longer")
    uri = (tmp_path / "one.md").as_uri()
    watch = FileWatch()
    assert await watch.stale([_source(uri)]) == {uri[-9:]: "changed"}
    assert await watch.stale([_source(uri, file=None), _source(uri, path=""), _source("s3://b/one.md")]) == {}
    assert await watch.stale([]) == {}


async def test_a_dead_file_server_costs_a_moment_and_soon_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    back = threading.Event()

    def hanging(uri: str, _name: str, _ingested: FileState) -> Staleness | None:
        if "dead" in uri:
            back.wait()
        return "gone"

    monkeypatch.setattr("rag.originals.staleness", hanging)
    watch = FileWatch(0.02)
    near, dead = _source("file:///near/a.md"), _source("file:///dead/a.md")
    try:
        for _ in range(MAX_HANGING):
            assert await watch.stale([near, dead, near]) == {near.id: "gone"}
        threads = threading.active_count()
        monkeypatch.setattr(watch, "_seconds", 3600)
        with anyio.fail_after(60):
            assert await watch.stale([near, dead]) == {}
        assert threading.active_count() == threads
    finally:
        back.set()
    for thread in threading.enumerate():
        if thread.name == "refdesk files":
            thread.join(5)
    assert await watch.stale([near]) == {near.id: "gone"}
