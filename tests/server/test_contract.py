"""What the read-only face may not have in its hands, and what it may not wait for."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start

pytestmark = pytest.mark.slow

FORBIDDEN = [
    "rag.ingest",
    "rag.admin",
    "rag.evaluate",
    "rag.store.write.collection_writer",
    "rag.store.write.table_maintenance",
]
HEAVY = ["lancedb", "lance", "numpy", "onnxruntime", "openai", "pyarrow", "tokenizers"]


def imported_with(*modules: str) -> set[str]:
    """All that a fresh interpreter has imported after these."""
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return set(json.loads(run.stdout))


def test_nothing_that_writes_is_imported_even_by_way_of_others() -> None:
    modules = imported_with(
        "server.main",
        "rag.search.desk",
        "rag.models.embed.local_embedder",
        "rag.models.embed.remote_embedder",
    )
    assert "rag.store.read.desk_reader" in modules
    assert not [name for name in modules if name.startswith(tuple(FORBIDDEN))]


def test_the_server_can_speak_before_it_imports_its_engine() -> None:
    modules = imported_with("server.main")
    assert "mcp.server.stdio" in modules
    assert not modules & set(HEAVY)
    assert "rag.search.desk" not in modules


def test_a_session_leaves_every_file_as_it_was_and_has_none_open_for_writing(
    scripts: Scripts, start: Start, clock_room: Path
) -> None:
    before = state(clock_room), state(scripts.home)
    wire = start(clock_room)
    wire.begin()
    for mode in ("dense", "sparse", "hybrid"):
        found = wire.tool("search", {"query": "Who invented the pendulum clock?", "mode": mode, "limit": 50})
        for hit in found["structuredContent"]["results"]:
            wire.tool("get_source", {"id": hit["id"], "max_chars": 100_000})
            wire.result("resources/read", {"uri": f"refdesk://documents/{hit['id']}"})
    wire.result("resources/list")
    opened = psutil.Process(wire.process.pid).open_files()
    assert {file.mode for file in opened if file.path.startswith(str(clock_room))} <= {"r"}
    assert wire.leave() == 0
    assert (state(clock_room), state(scripts.home)) == before


def test_nothing_is_written_into_the_home_of_the_user(start: Start, clock_room: Path, tmp_path: Path) -> None:
    wire = start(clock_room, env={"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    wire.begin()
    assert wire.tool("search", {"query": "clock"})["structuredContent"]["results"]
    assert wire.leave() == 0
    assert list(tmp_path.rglob("*")) == []


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below with its size and time of change."""
    files = {str(path): path.stat() for path in (folder, *folder.rglob("*"))}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in files.items()}
