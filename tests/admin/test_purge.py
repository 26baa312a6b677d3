"""refdesk-admin purge: what was removed is off the disk, and the rest is still found."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk


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


def _files_with(data: Path, word: bytes) -> list[Path]:
    return [file for file in data.rglob("*") if file.is_file() and word in file.read_bytes()]
