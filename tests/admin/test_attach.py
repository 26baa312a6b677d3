"""refdesk-admin and attached tables: attached, shown, searched, refused what would write, and detached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pyarrow as pa
import pytest

from tests.admin.test_collection import NO_FIELD

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

WHO = "Say who may see the rows: either --allow COLUMN"
TEXTS = ["The pendulum clock of Huygens", "Payroll of the office", "A cuckoo clock"]
COLUMNS: dict[str, Any] = {
    "key": [1, 2, 3],
    "text": TEXTS,
    "acl": pa.array([["user:ann"], ["group:hr"], None], pa.list_(pa.string())),
    "meta": [{"year": 1656}, {"year": 2020}, {"year": None}],
    "flags": [True, False, None],
}
WORDS = ("--id", "key", "--text", "text")


@pytest.fixture
def table(foreign: ModuleType, tmp_path: Path) -> Path:
    table_folder: Path = anyio.run(foreign.written, tmp_path / "others", "notes", COLUMNS)
    return table_folder


def test_a_table_is_attached_searched_shown_and_detached_and_nothing_in_it_changes(
    desk: Desk, inside: Desk, foreign: ModuleType, table: Path
) -> None:
    before = foreign.contents(table.parent)
    options = ["--allow", "acl", "--field", "year=integer:meta.year", "--field", "flags=boolean"]
    attached = desk.json("collection", "attach", "notes", "--table", table, *WORDS, *options)
    hidden = "Nobody sees 1 row: the list of who may is missing or malformed."
    assert attached == {"name": "notes", "table": str(table), "rows": 3, "remarks": [hidden]}
    search = ("search", "clock", "--filter", '{"year": 1656}')
    (hit,) = inside.json(*search, "--user", "ann")["results"]
    assert hit["text"] == TEXTS[0]
    assert inside.hits("clock") == []
    assert inside.hits("clock", "--user", "bob") == []
    description = inside.json("collection", "show", "notes")
    assert description["attached"]["table"] == str(table)
    assert (description["visibility"], description["remarks"]) == ("restricted", [hidden])
    assert hidden in inside.run("collection", "show", "notes").stdout
    assert f"ok     collection notes: {table}" in inside.run("config", "check").stdout
    config = table.parent.parent / "config.toml"
    config.write_text('[retrievers.notes]\ncall = "json:JSONDecoder"\n')
    checks = inside.run("config", "check", "--config", config, code=1).stdout
    assert "wrong  retriever notes: it is not searched" in checks
    (status,) = inside.json("status")["collections"]
    assert (status["sources"], status["indexes"]) == (3, ["text (FTS)"])
    assert f"notes is the attached table {table}." in inside.run("status").stdout
    listed = inside.sources()
    assert sorted(source["metadata"]["id"] for source in listed) == ["1", "2", "3"]
    assert inside.json("source", listed[0]["id"])["length"] > 0
    assert inside.json("access", "show", listed[0]["id"])["id"] == listed[0]["id"]
    assert inside.json("purge") == {"collections": []}
    questions = table.parent.parent / "questions.toml"
    inside.run("eval", "new", questions, "--questions", "3")
    questions.write_text(questions.read_text().replace('text = ""', 'text = "pendulum clock"', 1))
    assert inside.run("eval", questions, "--user", "ann").stdout
    run = inside.run("collection", "remove", "notes", "--yes")
    assert run.stdout == f"Removed the collection notes. The table {table} is as it was.\n"
    assert inside.json("collection", "list") == {"collections": []}
    assert foreign.contents(table.parent) == before


def test_what_would_write_to_an_attached_table_is_refused_with_the_reason(
    inside: Desk, foreign: ModuleType, table: Path, tmp_path: Path
) -> None:
    inside.run("collection", "attach", "notes", "--table", table, *WORDS, "--visibility", "tenant")
    before = foreign.contents(table.parent)
    (tmp_path / "new.md").write_text("A new clock\n")
    source = inside.sources()[0]["id"]
    for command in (
        ("ingest", tmp_path / "new.md", "--collection", "notes"),
        ("remove", source, "--collection", "notes"),
        ("purge", "--collection", "notes"),
    ):
        refused = inside.misuse(*command)
        assert f"'notes' is the attached table {table}, which refdesk only reads." in refused
        assert "refdesk-admin collection remove notes --yes" in refused
    refused = inside.misuse("access", "grant", source, "--to", "user:bob")
    assert "is a row of the attached table notes." in refused
    assert "already exists" in inside.misuse("collection", "create", "notes")
    assert foreign.contents(table.parent) == before


def test_an_attachment_that_can_not_work_is_refused_with_what_to_give(
    inside: Desk, foreign: ModuleType, table: Path, tmp_path: Path
) -> None:
    everybody = ("--visibility", "tenant")
    of_table = ("--table", table)
    vectors = {"v": foreign.column_of(np.ones((3, 8), np.float32)), "list": [[1.0]] * 3}
    anyio.run(foreign.written, tmp_path / "others", "other", COLUMNS | vectors)
    with_vectors = ("--table", tmp_path / "others" / "other.lance")
    plain = foreign.written
    anyio.run(lambda: plain(tmp_path / "others", "wordless", COLUMNS, full_text=()))
    wordless = ("--table", tmp_path / "others" / "wordless.lance")
    refusals: list[tuple[tuple[object, ...], str]] = [
        ((*of_table, *WORDS), WHO),
        ((*of_table, *WORDS, *everybody, "--allow", "acl"), WHO),
        ((*of_table, *WORDS, "--allow", "text"), "--allow needs lists of text"),
        ((*of_table, *WORDS, "--allow", "rights"), "no column 'rights' for --allow. Its columns: key, text"),
        ((*of_table, "--id", "meta", "--text", "text", *everybody), "--id needs text or whole numbers"),
        ((*of_table, "--id", "key", "--text", "meta.year", *everybody), "--text needs text"),
        ((*of_table, "--id", "key", "--text", "te`xt", *everybody), "no column 'te`xt'"),
        ((*of_table, *WORDS, *everybody, "--date", "flags"), "--date needs timestamps, dates, or text"),
        (
            (*of_table, *WORDS, *everybody, "--field", "text=integer"),
            "--field text=integer needs whole numbers",
        ),
        ((*of_table, *WORDS, *everybody, "--field", "text"), f"'text' {NO_FIELD}"),
        ((*with_vectors, *WORDS, *everybody, "--vector", "v"), "have 8 dimensions; the embedding model"),
        ((*with_vectors, *WORDS, *everybody, "--vector", "list"), "--vector needs vectors of a fixed size"),
        ((*wordless, *WORDS, *everybody), "has no full-text index. Name the column of the vectors"),
        (("--table", tmp_path / "nowhere.lance", *WORDS, *everybody), "There is no LanceDB table"),
        (("--table", tmp_path / "others", *WORDS, *everybody), f"Name one of them: {table}"),
        (("--table", "db://cloud", *WORDS, *everybody), "is not the URI of a LanceDB table"),
    ]
    for options, reason in refusals:
        assert reason in inside.misuse("collection", "attach", "notes", *map(str, options)), options
    assert not (tmp_path / "nowhere.lance").exists()
    assert inside.misuse("collection", "list")  # there is no data folder yet


def test_a_table_that_moved_away_is_named_and_everything_else_goes_on(
    inside: Desk, table: Path, tmp_path: Path
) -> None:
    (tmp_path / "new.md").write_text("A new clock\n")
    inside.run("ingest", tmp_path / "new.md")
    inside.run("collection", "attach", "notes", "--table", table, *WORDS, "--visibility", "tenant")
    table.rename(tmp_path / "moved.lance")
    answer = inside.json("search", "clock")
    assert (len(answer["results"]), answer["degraded"]) == (1, ["collections"])
    for command in ("status", "sources"):
        run = inside.run(command)
        assert (
            "The attached table of notes can't be read; see refdesk-admin collection show notes."
            in run.stderr
        )
        assert "documents" in run.stdout
    checked = inside.run("config", "check", code=1).stdout
    assert "wrong  collection notes: it can't be read; see refdesk-admin collection show notes" in checked
    assert "It can't be read: The attached table" in inside.run("collection", "show", "notes").stdout
    assert inside.run("collection", "list").stdout.count("notes") == 1
    inside.run("collection", "remove", "notes", "--yes")
    assert inside.json("search", "clock").get("degraded") is None
