"""A server says which files have changed or gone since they were ingested, and nothing of where they are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start, Wire

pytestmark = pytest.mark.slow

TEXTS = {"kept.md": "pendulum kept", "hr/edited.md": "pendulum edited", "hr/removed.md": "pendulum removed"}


def _files(folder: Path) -> Path:
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + " clock\n")
    return folder


def _stale(wire: Wire) -> dict[str, str | None]:
    told = wire.tool("search", {"query": "pendulum", "max_chars": 100_000})
    assert "/docs" not in str(told)
    hits = told["structuredContent"]["results"]
    for hit in hits:
        opened = wire.tool("get_source", {"id": hit["id"]})["structuredContent"]
        assert opened.get("stale") == hit.get("stale")
    return {hit["text"].split()[1]: hit.get("stale") for hit in hits}


def test_edits_and_removals_show_until_the_next_ingestion(
    scripts: Scripts, start: Start, tmp_path: Path
) -> None:
    docs, data = _files(tmp_path / "docs"), tmp_path / "data"
    assert scripts.admin("ingest", docs, "--data", data).returncode == 0
    wire = start(data)
    wire.begin()
    assert _stale(wire) == {"kept": None, "edited": None, "removed": None}
    edited = docs / "hr/edited.md"
    edited.write_text("pendulum edited a moment later\n")  # so soon, only its size can show it
    (docs / "hr/removed.md").unlink()
    os.utime(docs / "kept.md", (0, 0))  # only its time
    assert _stale(wire) == {"kept": "changed", "edited": "changed", "removed": "gone"}
    printed = scripts.admin("search", "pendulum", "--data", data).stdout
    assert printed.count("The file has changed since it was ingested.") == 2
    assert printed.count("The file has gone since it was ingested.") == 1
    assert scripts.admin("ingest", docs, "--data", data).returncode == 0
    assert _stale(wire) == {"kept": None, "edited": None}
    docs.rename(tmp_path / "elsewhere")  # as in a container where the folder is not mounted
    assert _stale(wire) == {"kept": None, "edited": None}
    docs.mkdir()
    assert _stale(wire) == {"kept": None, "edited": None}
