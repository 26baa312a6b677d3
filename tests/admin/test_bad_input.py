"""Everything that a folder can hold besides good documents, in one run beside good ones."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pypdf import PdfWriter

from rag.access.rule import in_words
from rag.corpus import Access
from rag.ingest.discover import LINK_INSIDE, LINK_OUTSIDE
from rag.ingest.parse import parsers
from rag.ingest.parse.decode import BINARY, decode
from rag.ingest.parse.pdf.pdf_document import ENCRYPTED
from rag.ingest.parse.pdf.readable_pages import DAMAGED, WITHOUT_TEXT
from rag.ingest.report import NOT_THERE
from rag.ingest.source_files import NOT_REGULAR, over_limit
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.admin.conftest import Desk, Run

pytestmark = pytest.mark.slow

UNDECODABLE = bytes(range(0x80, 0x100)) * 20
ODD_NAMES = {
    "'single' \"double\".md": "quokka",
    "two\nlines.md": "axolotl",
    "🦔 emoji.md": "hedgehog",
    "-rf.md": "wombat",
}
if sys.platform == "linux":  # elsewhere names are text
    ODD_NAMES[os.fsdecode(b"\xff\xfe.md")] = "pangolin"
SHOWN = {"two\nlines.md": "two�lines.md", os.fsdecode(b"\xff\xfe.md"): "��.md"}

SKIPPED = {
    "missing.md": NOT_THERE,
    "binary.txt": BINARY,
    "undecodable.txt": refusal(decode, UNDECODABLE),
    "encrypted.pdf": ENCRYPTED,
    "truncated.pdf": DAMAGED,
    "picture.pdf": WITHOUT_TEXT,
    "no.pdf": DAMAGED,
    "huge.txt": str(over_limit(50_000_000, 20_000_000)),
    "pipe.md": NOT_REGULAR,
    "socket.md": f"it can't be read: {os.strerror(errno.ENXIO)}",
}


CAUSES = {
    "binary.txt": "unsupported",
    "undecodable.txt": "damaged",
    "encrypted.pdf": "encrypted",
    "truncated.pdf": "damaged",
    "picture.pdf": "no text",
    "no.pdf": "damaged",
    "huge.txt": "too large",
    "missing.md": "unreachable",
}
EMPTY = ("empty.md", "blank.md")
READS_EVERYTHING = os.geteuid() == 0  # modes don't hold root off
if not READS_EVERYTHING:
    SKIPPED |= {
        "locked.md": "it can't be read: Permission denied",
        "shut": "the folder can't be read: Permission denied",
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """The one run, as people saw it and as a script does."""

    desk: Desk
    folder: Path
    run: Run
    files: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def outcome(
    desk_at: Callable[[Path], Desk], corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Outcome:
    top = tmp_path_factory.mktemp("bad-input")
    folder, desk = top / "folder", desk_at(top / "data")
    folder.mkdir()
    for file, animal in ODD_NAMES.items():
        (folder / file).write_text(f"# Notes\n\nA {animal} was seen.\n")
    _write_bad(folder, corpus)
    with _unreadable(folder):
        run = desk.run("ingest", folder, folder / "missing.md", "--json", code=3)
    entries = json.loads(run.stdout)["files"]
    files = {entry["path"].removeprefix(f"{folder}/"): entry for entry in entries}
    assert len(files) == len(entries)
    return Outcome(desk, folder, run, files)


@pytest.mark.parametrize("file", SKIPPED)
def test_a_file_that_can_t_be_read_is_skipped_with_its_reason(outcome: Outcome, file: str) -> None:
    assert outcome.files[file] == {
        "path": f"{outcome.folder}/{file}",
        "outcome": "skipped",
        "reason": SKIPPED[file],
        "source_id": None,
        "chunks": 0,
        "access": None,
        "without_vector": 0,
        "kind": "",
        "flags": [],
        "cause": CAUSES.get(file, "unreadable"),
        "masked": {},
        "language": "",
    }
    assert f"\nskipped   {outcome.folder}/{file}: {SKIPPED[file]}\n" in outcome.run.stderr


@pytest.mark.parametrize("file", EMPTY)
def test_an_empty_file_is_no_failure(outcome: Outcome, file: str) -> None:
    entry = outcome.files[file]
    assert (entry["outcome"], entry["kind"], entry["reason"]) == ("ignored", "empty", parsers.EMPTY)


@pytest.mark.parametrize("file", ODD_NAMES)
def test_a_good_file_beside_them_is_brought_in_whatever_its_name(outcome: Outcome, file: str) -> None:
    entry = outcome.files[SHOWN.get(file, file)]
    assert (entry["outcome"], entry["chunks"]) == ("added", 1)
    assert f"\nadded     {entry['path']} (1 chunk)" in outcome.run.stderr


def test_the_good_files_are_found_afterwards_and_nothing_else(outcome: Outcome) -> None:
    words = " ".join([*ODD_NAMES.values(), "ocelot", "work", "longitude"])
    results = outcome.desk.hits(words, "--mode", "sparse", "--limit", "50")
    texts = {(result["metadata"]["path"], result["text"].split()[-3]) for result in results}
    (twins,) = [result for result in results if "also_in" in result]  # equal passages are one result
    assert (twins["metadata"]["path"], len(twins["also_in"])) in {("twin.md", 1), ("🦔 emoji.md", 1)}
    expected = {(SHOWN.get(file, file), animal) for file, animal in ODD_NAMES.items()}
    assert texts | {("🦔 emoji.md", ODD_NAMES["🦔 emoji.md"])} == expected | (
        texts & {("twin.md", "hedgehog")}
    )


def test_a_duplicate_is_brought_in_and_said(outcome: Outcome) -> None:
    twins = ["twin.md", "🦔 emoji.md"]
    first, second = (outcome.files[name] for name in sorted(twins))
    assert (first["outcome"], first["reason"]) == ("added", "")
    assert (second["outcome"], second["reason"]) == ("added", f"same content as {first['path']}")
    assert first["source_id"] != second["source_id"]


@pytest.mark.parametrize(
    ("file", "reason", "kind"),
    [("in.md", LINK_INSIDE, ""), ("out.md", LINK_OUTSIDE, "link"), ("dangling.md", LINK_OUTSIDE, "link")],
)
def test_a_link_is_no_failure_and_one_that_leads_out_is_counted(
    outcome: Outcome, file: str, reason: str, kind: str
) -> None:
    entry = outcome.files[file]
    assert (entry["outcome"], entry["reason"], entry["kind"]) == ("ignored", reason, kind)


def test_every_file_has_one_line_and_one_outcome(outcome: Outcome) -> None:
    good = len(ODD_NAMES) + 1
    counts = json.loads(outcome.run.stdout)["counts"]
    assert counts == {
        "added": good,
        "replaced": 0,
        "moved": 0,
        "unchanged": 0,
        "removed": 0,
        "missing": 0,
        "skipped": len(SKIPPED),
        "ignored": 3 + len(EMPTY),
    }
    first, *lines, counted, missing, failed, unread, visible = outcome.run.stderr.splitlines()
    assert first == f"{good + len(SKIPPED) + len(EMPTY) + 3} files"
    assert missing == f"Not found: {outcome.folder / 'missing.md'}"
    assert len(lines) == good + len(SKIPPED)
    assert failed.startswith("Failed: ")
    assert unread == "Not read: 2 empty files; 2 symbolic links"
    assert counted.startswith(f"{good} added, ")
    assert visible == f"{good} added: {good} {in_words(Access('tenant'))}"


@contextmanager
def _unreadable(folder: Path) -> Iterator[None]:
    """Files and folders that nobody can open, for a while."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(folder / "socket.md"))  # a socket's name must be short
        if not READS_EVERYTHING:
            (folder / "locked.md").touch(mode=0)
            (folder / "shut").mkdir(mode=0)
        yield
        if not READS_EVERYTHING:
            (folder / "shut").chmod(0o700)


def _write_bad(folder: Path, corpus: Path) -> None:
    (folder / "empty.md").touch()
    (folder / "blank.md").write_text(" \n\n\t\n")
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 40)
    (folder / "undecodable.txt").write_bytes(UNDECODABLE)
    (folder / "encrypted.pdf").write_bytes(_encrypted(corpus))
    (folder / "truncated.pdf").write_bytes((corpus / "the-longitude-problem.pdf").read_bytes()[:10_000])
    (folder / "picture.pdf").write_bytes(_without_text())
    (folder / "no.pdf").write_text("This is no PDF.\n")
    (folder / "huge.txt").write_bytes(b"All work and no play makes a dull desk.\n" * 1_250_000)
    (folder.parent / "outside.md").write_text("# Outside\n\nA secret ocelot.\n")
    (folder / "out.md").symlink_to(folder.parent / "outside.md")
    (folder / "dangling.md").symlink_to(folder.parent / "nothing.md")
    (folder / "in.md").symlink_to(folder / "🦔 emoji.md")
    (folder / "twin.md").write_bytes((folder / "🦔 emoji.md").read_bytes())
    os.mkfifo(folder / "pipe.md")


def _encrypted(corpus: Path) -> bytes:
    writer = PdfWriter(clone_from=corpus / "the-longitude-problem.pdf")
    writer.encrypt("a password", algorithm="RC4-128")
    return _bytes(writer)


def _without_text() -> bytes:
    writer = PdfWriter()
    writer.add_blank_page(width=200, height=200)
    return _bytes(writer)


def _bytes(writer: PdfWriter) -> bytes:
    file = io.BytesIO()
    writer.write(file)
    return file.getvalue()
