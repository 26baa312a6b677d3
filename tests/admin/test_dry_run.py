"""--dry-run: what a run would do, who would gain or lose access, and no byte of the data folder changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rag.store.care.rehearsal import Rehearsal
from rag.store.write.collection_writer import CollectionWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

READS = {"source_id", "known_sources", "records", "access", "without_vector", "writes"}
READS |= {"source_rows", "whole_sources", "sample"}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and its time."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files} | {
        str(one): (b"", 0) for one in folder.rglob("*") if one.is_dir()
    }


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.md").write_text(f"# {name}\n\nThe pendulum of {name}.\n")
    return folder


def test_it_tells_what_a_run_then_does_and_writes_nothing(inside: Desk, notes: Path, tmp_path: Path) -> None:
    before = contents(tmp_path)
    first = inside.json("ingest", notes, "--dry-run")
    assert contents(tmp_path) == before  # not even a data folder
    assert first["counts"]["added"] == 3
    everybody = first["access_changes"]["everybody in the tenant"]
    assert everybody == {"gains": sorted(str(notes / f"{name}.md") for name in "abc"), "loses": []}

    inside.run("ingest", notes)
    (notes / "a.md").rename(notes / "d.md")
    (notes / "b.md").write_text("# b\n\nAnother text.\n")
    (notes / "c.md").unlink()
    (notes / "e.md").write_text("# e\n\nNew.\n")
    before = contents(inside.data)
    told = inside.json("ingest", notes, "--dry-run")
    assert contents(inside.data) == before
    done = inside.json("ingest", notes)
    assert contents(inside.data) != before  # the control
    assert told["counts"] == done["counts"]
    assert {kind: told["counts"][kind] for kind in ("added", "moved", "replaced", "removed")} == {
        "added": 1,
        "moved": 1,
        "replaced": 1,
        "removed": 1,
    }
    assert [entry["outcome"] for entry in told["files"]] == [entry["outcome"] for entry in done["files"]]
    changes = told["access_changes"]["everybody in the tenant"]
    assert (changes["gains"], changes["loses"]) == ([str(notes / "e.md")], [str(notes / "c.md")])


def test_it_names_who_gains_and_who_loses(inside: Desk, notes: Path) -> None:
    inside.run("ingest", notes, "--visibility", "restricted", "--allow", "group:hr")
    options = ("--visibility", "restricted", "--allow", "group:it", "--set-access")
    before = contents(inside.data)
    shown = inside.run("ingest", notes, *options, "--dry-run").stdout
    assert contents(inside.data) == before
    a, b, c = (str(notes / f"{name}.md") for name in "abc")
    assert f"group:hr would lose 3 documents: {a}, {b}, {c}\n" in shown
    assert f"group:it would gain 3 documents: {a}, {b}, {c}\n" in shown
    assert "Nothing was written." in shown
    same = inside.json("ingest", notes, "--dry-run")
    assert same["access_changes"] == {}


def test_it_rehearses_records_too(inside: Desk, tmp_path: Path) -> None:
    stream, config = tmp_path / "r.jsonl", tmp_path / "config.toml"
    config.write_text(f'[origins.tickets]\ntype = "records"\nfile = "{stream}"\n')

    def write(*allow: str) -> None:
        access = {"visibility": "restricted", "allow": list(allow)}
        record = {"id": "t/1", "text": "The pendulum.", "access": access}
        head = {"refdesk": "records", "version": 1, "sync": "full"}
        lines = (head, record, {"end": True, "count": 1})
        stream.write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    write("group:hr", "user:ann")
    inside.run("sync", "--config", config)
    write("group:hr", "user:bob")
    before = contents(inside.data)
    (told,) = inside.json("sync", "--dry-run", "--config", config)["origins"].values()
    assert contents(inside.data) == before
    assert told["access_changes"] == {
        "user:ann": {"gains": [], "loses": ["origin:tickets/t/1"]},
        "user:bob": {"gains": ["origin:tickets/t/1"], "loses": []},
    }


def test_a_rehearsal_overrides_all_that_a_writer_writes() -> None:
    """A method that somebody adds to the writer must not write from a rehearsal."""
    public = {name for name in vars(CollectionWriter) if not name.startswith("_")}
    assert public - READS <= vars(Rehearsal).keys()
