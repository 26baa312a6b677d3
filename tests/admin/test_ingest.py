"""refdesk-admin ingest: what becomes of every file, what --dry-run tells before, and what files state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, get_args

import anyio
import pytest
from filelock import FileLock

from rag.config.model_settings import EmbedderSettings
from rag.ingest.known_sources import GONE
from rag.ingest.report import NOT_THERE, OutcomeKind
from rag.models.embed.local_embedder import builtin_embedder
from rag.store.care.rehearsal import Rehearsal
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.make_collection import ensure_collection
from tests.ingest.parse.packages import core, p, word
from tests.ingest.parse.test_pdf import pdf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.endpoint import Endpoint


pytestmark = pytest.mark.slow


MORE = ("without_vector", "kind", "flags", "cause", "masked", "language")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder with documents, a picture, and what is left out by default."""
    folder = tmp_path / "notes"
    for name, text in {
        "leave.md": "# Leave\n\nEverybody has thirty days of leave.\n",
        "trips/rail.txt": "Second class, unless it takes longer than four hours.\n",
        "drafts/desks.md": "# Desks\n\nDesks are shared on Fridays.\n",
        "logo.png": "no text",
        ".secret/plans.md": "# Plans\n\nA second office.\n",
        ".git/config": "[core]\n",
        "node_modules/readme.md": "# Somebody else's\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_folder_is_brought_in_once_and_from_then_on_what_changed(desk: Desk, notes: Path) -> None:
    first = desk.json("ingest", notes)
    assert first["counts"] == counts(added=3, ignored=1)
    added = {name(notes, entry): entry for entry in first["files"]}
    assert set(added) == {"leave.md", "trips/rail.txt", "drafts/desks.md", "logo.png"}
    for entry in first["files"]:
        assert set(entry) == {"path", "outcome", "reason", "source_id", "chunks", "access", *MORE}
    assert added["leave.md"]["outcome"] == "added"
    assert added["leave.md"]["chunks"] == 1
    assert added["logo.png"] == {
        "path": str(notes / "logo.png"),
        "outcome": "ignored",
        "reason": "unsupported file type (.png)",
        "source_id": None,
        "chunks": 0,
        "access": None,
        "without_vector": 0,
        "kind": "unsupported",
        "cause": None,
        "flags": [],
        "masked": {},
        "language": "",
    }

    again = desk.json("ingest", notes)
    assert again["counts"] == counts(unchanged=3, ignored=1)
    assert ids(again) == ids(first)

    (notes / "leave.md").write_text("# Leave\n\nEverybody has thirty-one days of leave.\n")
    (notes / "trips" / "rail.txt").unlink()
    (notes / "new.md").write_text("# New\n\nA new note.\n")
    changed = desk.json("ingest", notes)
    assert changed["counts"] == counts(added=1, replaced=1, unchanged=1, removed=1, ignored=1)
    outcomes = {name(notes, entry): entry for entry in changed["files"]}
    assert outcomes["leave.md"]["outcome"] == "replaced"
    assert outcomes["leave.md"]["source_id"] == added["leave.md"]["source_id"]
    assert outcomes["trips/rail.txt"] == {
        "path": str(notes / "trips" / "rail.txt"),
        "outcome": "removed",
        "reason": GONE,
        "source_id": added["trips/rail.txt"]["source_id"],
        "chunks": 0,
        "access": None,
        "without_vector": 0,
        "kind": "",
        "cause": None,
        "flags": [],
        "masked": {},
        "language": "",
    }
    texts = [hit["text"] for hit in desk.hits("days of leave", "--limit", "50")]
    assert len(texts) == 3
    assert "thirty-one" in texts[0]


def test_a_collection_is_made_for_a_language_and_keeps_it(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("viele Häuser am Fluss\n")
    desk.run("ingest", tmp_path / "a.txt", "--language", "german")
    assert desk.hits("Haus", "--mode", "sparse")
    assert desk.json("status")["collections"][0]["language"] == "German"
    desk.run("ingest", tmp_path / "a.txt")
    wrong = desk.run("ingest", tmp_path / "a.txt", "--language", "French", code=2)
    assert "has the language German, not French" in wrong.stderr
    assert "'Klingon' is not one of" in desk.misuse("ingest", tmp_path, "--language", "Klingon")


def test_patterns_say_what_is_brought_in(desk: Desk, notes: Path) -> None:
    options = ["--include", "*.md", "--exclude", "drafts", "--collection", "handbook"]
    report = desk.json("ingest", notes, *options)
    assert {name(notes, entry) for entry in report["files"]} == {"leave.md"}
    assert report["counts"] == counts(added=1)
    assert {source["collection"] for source in desk.sources()} == {"handbook"}


def test_a_run_in_which_nothing_worked_exits_with_1(desk: Desk, notes: Path) -> None:
    report = desk.json("ingest", notes / "logo.png", notes / "leave.mdx", code=1)
    assert report["counts"] == counts(skipped=2)
    assert [entry["reason"] for entry in report["files"]] == ["unsupported file type (.png)", NOT_THERE]


def test_what_is_missing_is_named_and_the_rest_goes_on(desk: Desk, notes: Path) -> None:
    run = desk.run("ingest", notes / "gone", notes, "https://example.com/page", code=3)
    first, second = [line for line in run.stderr.splitlines() if line.startswith("skipped")]
    assert f"{notes / 'gone'}: {NOT_THERE}" in first
    assert "https://example.com/page: an address" in second
    assert "[origins.NAME]" in second
    assert f"Not found: {notes / 'gone'}" in run.stdout
    assert "3 added" in run.stdout


def test_known_failures_of_unchanged_files_are_counted_apart(desk: Desk, inside: Desk, notes: Path) -> None:
    (notes / "scan.pdf").write_bytes(b"%PDF-1.4 damaged")
    desk.run("ingest", notes, "--known-ok", code=3)
    assert inside.json("ingest", notes, code=3)["known_failures"] == 1
    again = desk.run("ingest", notes, "--known-ok")
    assert "Failed: 1 damaged (1 as before, in files that haven't changed)" in again.stdout
    os.mkfifo(notes / "pipe.md")
    inside.run("ingest", notes, "--known-ok", code=3)
    inside.run("ingest", notes, "--known-ok")
    (notes / "pipe.md").unlink()
    inside.run("ingest", notes, notes / "gone", "--known-ok", code=3)
    inside.run("ingest", notes / "gone", "--known-ok", code=1)  # a wrong path is never known
    (notes / "other.pdf").write_bytes(b"%PDF-1.4 damaged, too")
    inside.run("ingest", notes, "--known-ok", code=3)
    later = datetime.now(UTC).timestamp() + 60
    os.utime(notes / "scan.pdf", (later, later))
    assert inside.json("ingest", notes, code=3)["known_failures"] == 1


def test_two_runs_don_t_write_to_one_collection_at_a_time(desk: Desk, notes: Path) -> None:
    (desk.data / "locks").mkdir(parents=True)
    with FileLock(desk.data / "locks" / "default.documents.lock"):
        run = desk.run("ingest", notes, "--json", code=4)
    assert run.stdout == ""
    assert run.stderr == (
        f"refdesk-admin: Another process is writing to 'default.documents' in {desk.data}. "
        "Try again when it has finished.\n"
    )


def test_a_folder_that_holds_the_data_folder_is_brought_in_without_it(
    desk_at: Callable[[Path], Desk], notes: Path
) -> None:
    desk = desk_at(notes / "desk")
    assert desk.json("ingest", notes)["counts"] == counts(added=3, ignored=1)


def counts(**some: int) -> dict[str, int]:
    return dict.fromkeys(get_args(OutcomeKind), 0) | some


def name(folder: Path, entry: dict[str, str]) -> str:
    return entry["path"].removeprefix(f"{folder}/")


def ids(report: dict[str, list[dict[str, str]]]) -> set[tuple[str, str]]:
    return {(entry["path"], entry["source_id"]) for entry in report["files"]}


def of(provider: Endpoint) -> dict[str, str]:
    """Settings that name a remote embedder."""
    embedder = {"provider": "openai", "model": "tiny", "base_url": provider.url}
    return {f"REFDESK_EMBEDDER_{name.upper()}": value for name, value in embedder.items()}


def collections(desk: Desk) -> list[str]:
    return [collection["name"] for collection in desk.json("collection", "list")["collections"]]


def test_a_run_that_fails_before_it_stored_anything_leaves_no_collection_behind(
    desk: Desk, notes: Path, provider: Endpoint
) -> None:
    provider.script = [provider.embedding, provider.failing(401)]
    failed = desk.scripts.admin("ingest", notes, "--data", desk.data, env=of(provider))
    assert failed.returncode == 1
    assert f"{provider.url} (model tiny) failed" in failed.stderr
    assert collections(desk) == []
    assert desk.json("ingest", notes)["counts"] == counts(added=3, ignored=1)  # with another embedder
    assert collections(desk) == ["documents"]


def test_a_run_that_is_interrupted_before_it_stored_anything_leaves_no_collection_behind(
    desk: Desk, notes: Path, provider: Endpoint
) -> None:
    provider.script = [provider.embedding, provider.silent]
    with subprocess.Popen(
        [desk.scripts.forked_admin, "ingest", notes, "--data", desk.data],
        env=desk.scripts.environment | of(provider),
        stderr=subprocess.PIPE,
    ) as process:
        assert provider.asked.wait(60)
        provider.asked.clear()
        if len(provider.requests) == 1:  # the first only asks for the dimension
            assert provider.asked.wait(60)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert collections(desk) == []


def test_a_run_that_fails_leaves_a_collection_that_was_there_before(
    desk: Desk, notes: Path, provider: Endpoint
) -> None:
    provider.script = [provider.embedding, provider.embedding, provider.failing(401)]
    created = desk.scripts.admin("collection", "create", "documents", "--data", desk.data, env=of(provider))
    assert created.returncode == 0, created.stderr
    failed = desk.scripts.admin("ingest", notes, "--data", desk.data, env=of(provider))
    assert failed.returncode == 1
    assert collections(desk) == ["documents"]


def test_a_run_of_which_every_file_failed_leaves_no_collection_behind(desk: Desk, tmp_path: Path) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_text("no PDF")
    assert desk.scripts.admin("ingest", broken, "--data", desk.data).returncode == 1
    assert collections(desk) == []


def test_a_collection_that_a_clock_ahead_of_ours_dated_is_not_taken_for_the_run_s_own(
    desk: Desk, tmp_path: Path
) -> None:
    identity = builtin_embedder(EmbedderSettings()).identity
    ahead = datetime.now(UTC) + timedelta(days=1)
    make = partial(ensure_collection, desk.data, "default", "documents", identity, created_at=ahead)
    anyio.run(partial(make, visibility="restricted"))
    broken = tmp_path / "broken.pdf"
    broken.write_text("no PDF")
    assert desk.scripts.admin("ingest", broken, "--data", desk.data).returncode == 1
    assert collections(desk) == ["documents"]


READS = {"known_sources", "records", "source_rows", "whole_sources", "language_counts", "writes"}


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Every file with its bytes and its time."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in files} | {
        str(path): (b"", 0) for path in folder.rglob("*") if path.is_dir()
    }


@pytest.fixture
def three_notes(tmp_path: Path) -> Path:
    folder = tmp_path / "three_notes"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.md").write_text(f"# {name}\n\nThe pendulum of {name}.\n")
    return folder


def test_a_rehearsal_tells_what_a_run_then_does_and_writes_nothing(
    inside: Desk, three_notes: Path, tmp_path: Path
) -> None:
    before = contents(tmp_path)
    first = inside.json("ingest", three_notes, "--dry-run")
    assert contents(tmp_path) == before  # not even a data folder
    assert first["counts"]["added"] == 3
    everybody = first["access_changes"]["everybody in the tenant"]
    assert everybody == {"gains": sorted(str(three_notes / f"{name}.md") for name in "abc"), "loses": []}

    inside.run("ingest", three_notes)
    (three_notes / "a.md").rename(three_notes / "d.md")
    (three_notes / "b.md").write_text("# b\n\nAnother text.\n")
    (three_notes / "c.md").unlink()
    (three_notes / "e.md").write_text("# e\n\nNew.\n")
    before = contents(inside.data)
    plan = inside.json("ingest", three_notes, "--dry-run")
    assert contents(inside.data) == before
    report = inside.json("ingest", three_notes)
    assert contents(inside.data) != before  # the control
    assert plan["counts"] == report["counts"]
    assert {kind: plan["counts"][kind] for kind in ("added", "moved", "replaced", "removed")} == {
        "added": 1,
        "moved": 1,
        "replaced": 1,
        "removed": 1,
    }
    assert [entry["outcome"] for entry in plan["files"]] == [entry["outcome"] for entry in report["files"]]
    changes = plan["access_changes"]["everybody in the tenant"]
    assert (changes["gains"], changes["loses"]) == ([str(three_notes / "e.md")], [str(three_notes / "c.md")])


def test_a_rehearsal_names_who_gains_and_who_loses_documents(inside: Desk, three_notes: Path) -> None:
    inside.run("ingest", three_notes, "--visibility", "restricted", "--allow", "group:hr")
    options = ("--visibility", "restricted", "--allow", "group:it", "--set-access")
    before = contents(inside.data)
    printed = inside.run("ingest", three_notes, *options, "--dry-run").stdout
    assert contents(inside.data) == before
    a, b, c = (str(three_notes / f"{name}.md") for name in "abc")
    assert f"group:hr would lose 3 documents: {a}, {b}, {c}\n" in printed
    assert f"group:it would gain 3 documents: {a}, {b}, {c}\n" in printed
    assert "Nothing was written." in printed
    same = inside.json("ingest", three_notes, "--dry-run")
    assert same["access_changes"] == {}


def test_a_rehearsal_of_an_origin_tells_what_its_records_change(inside: Desk, tmp_path: Path) -> None:
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
    (plan,) = inside.json("sync", "--dry-run", "--config", config)["origins"].values()
    assert contents(inside.data) == before
    assert plan["access_changes"] == {
        "user:ann": {"gains": [], "loses": ["origin:tickets/t/1"]},
        "user:bob": {"gains": ["origin:tickets/t/1"], "loses": []},
    }


def test_a_rehearsal_overrides_all_that_a_writer_writes() -> None:
    """A method that somebody adds to the writer must not write from a rehearsal."""
    public = {name for name in vars(CollectionWriter) if not name.startswith("_")}
    assert public - READS <= vars(Rehearsal).keys()


HTML = """<html lang="de"><head><title>Web</title><meta name="author" content="Eve"><meta name="keywords"
content="clock, oil"></head><body><p>Das Pendel einer Uhr im Netz
heißt auf Englisch pendulum, und es schwingt immer hin und her.</p></body></html>"""
CZECH = "Kyvadlo hodin v tomto dopise se anglicky jmenuje pendulum a pořád se kývá sem a tam."
FRONT = "---\nauthors: [Ann, Eve]\ntags: [clock]\nlang: de\n---\n# Note\n\nA pendulum in a note.\n"
FIELDS = ("author=string list", "keywords=string list", "language=string")
FOUND = {
    '{"author": "Ann"}': {"Note", "Letter"},
    '{"author": "Eve"}': {"Note", "Web"},
    '{"author": "Bob"}': {"Paper"},
    '{"keywords": "oil"}': {"Web", "Letter", "Paper"},
    '{"language": "de"}': {"Note", "Web"},
    '{"language": "cs"}': {"Letter"},
    '{"author": "Nobody"}': set(),
}


def test_author_keywords_and_language_are_fields_of_all_formats(inside: Desk, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "note.md").write_text(FRONT)
    (docs / "page.html").write_text(HTML)
    about = core(title="Letter", creator="Ann", keywords="oil; gears", language="cs")
    (docs / "letter.docx").write_bytes(word(p(CZECH), core=about))
    (docs / "paper.pdf").write_bytes(
        pdf("A pendulum in a paper.", Title="Paper", Author="Bob", Keywords="oil, brass")
    )
    options = [part for field in FIELDS for part in ("--field", field)]
    inside.run("collection", "create", "documents", *options)
    inside.run("ingest", docs)
    titles = {
        filter_: {hit["title"] for hit in inside.hits("pendulum", "--filter", filter_)} for filter_ in FOUND
    }
    assert titles == FOUND, json.dumps(inside.json("sources"), indent=1)
