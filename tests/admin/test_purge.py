"""refdesk-admin purge: what was removed is off the disk, and the rest is still found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.admin import remove_command

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow


def test_the_text_of_a_removed_document_is_in_no_file_after_a_purge(desk: Desk, tmp_path: Path) -> None:
    assert "There is no data folder" in desk.run("purge", code=2).stderr
    desk.run("tenant", "create", "default")
    assert "no collections yet" in desk.run("purge").stdout
    papers = tmp_path / "papers"
    papers.mkdir()
    for name, text in [("kept", "pendulum"), ("gone", "zanzibarite")]:
        (papers / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
    desk.run("ingest", papers)
    desk.run("remove", papers / "gone.md")
    assert _files_with(desk.data, b"zanzibarite")

    said = desk.run("purge").stdout
    assert said.startswith("documents: rewrote 1 source and 1 chunk, rebuilt the indexes, ")
    assert _files_with(desk.data, b"zanzibarite") == []
    assert _files_with(desk.data, b"pendulum")
    assert [hit["title"] for hit in desk.json("search", "zanzibarite pendulum")["results"]] == ["kept"]

    (purged,) = desk.json("purge", "--collection", "documents")["collections"]
    assert purged.keys() == {"name", "sources", "chunks", "freed_bytes", "dropped_rebuild"}
    assert (purged["name"], purged["sources"], purged["chunks"]) == ("documents", 1, 1)
    assert "no collection 'other'" in desk.run("purge", "--collection", "other", code=1).stderr


def test_a_purge_that_makes_the_folder_larger_says_that_it_freed_nothing(
    inside: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "kept.md").write_text("# Kept\n\nA pendulum.\n")
    inside.run("ingest", tmp_path / "papers")
    sizes = iter((1_000_000, 1_100_000) * 2)
    monkeypatch.setattr(remove_command, "folder_bytes", lambda _data: next(sizes))
    assert inside.run("purge").stdout.endswith("deleted older versions, no disk space freed.\n")
    assert inside.json("purge")["collections"][0]["freed_bytes"] == 0
    assert [remove_command.freed_text(size) for size in (1, 99_999, 100_000, 2_340_000)] == [
        "less than 0.1 MB freed",
        "less than 0.1 MB freed",
        "0.1 MB freed",
        "2.3 MB freed",
    ]


def _files_with(data: Path, word: bytes) -> list[Path]:
    return [file for file in data.rglob("*") if file.is_file() and word in file.read_bytes()]
