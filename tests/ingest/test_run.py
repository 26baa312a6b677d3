"""An ingestion run: what becomes of every file, and what a second run finds changed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import anyio
import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

import rag.ingest.chunk_vectors
import rag.ingest.ingest_run
import rag.store.write.collection_writer
import rag.store.write.make_collection
from rag.config.settings import IngestSettings
from rag.corpus import AccessRecord, Source, Vectors
from rag.errors import BusyError, ProviderError, StoreError
from rag.ingest.discover import LINK_OUTSIDE
from rag.ingest.ingest_run import READ_AGAIN_NOTE, Executor, gentle_executor
from rag.ingest.parse.decode import BINARY, decode
from rag.ingest.parse.parsers import EMPTY
from rag.ingest.parse.pdf.pdf_document import ENCRYPTED
from rag.ingest.parse.pdf.readable_pages import DAMAGED, WITHOUT_TEXT
from rag.ingest.prepare import Chunked, FileContent, Preparation
from rag.ingest.report import NOT_THERE, Outcome, Report
from rag.ingest.source_files import Budget, over_limit
from rag.models.embed import TextKind
from rag.store.read import schema
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.connection import database_folder
from rag.store.write import table_rows
from rag.store.write.collection_writer import CollectionWriter
from rag.store.write.table_rows import KnownSource
from tests.refusals import refusal
from tests.small_desk import Counting
from tests.tables import table_of

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

LONG = "\n\n".join(f"Paragraph {n}: " + f"word{n} and more words of it. " * 20 for n in range(12))
UNDECODABLE = bytes(range(0x80, 0x100))


@dataclass(slots=True)
class Watched(Counting):
    """An embedder that counts what it embeds, and fails from some text on; 0 means never."""

    fails_from: int = 0

    async def embed(self, texts: Sequence[str], kind: TextKind) -> Vectors:
        self.texts += texts
        if self.fails_from and len(self.texts) >= self.fails_from:
            raise ProviderError("The provider failed after 5 attempts.")
        return await self.embedder.embed(texts, kind)


@dataclass(slots=True)
class Noted:
    """Watches a run and remembers."""

    files: list[int] = field(default_factory=list)
    work: int = 0
    worked_on: int = 0
    chunks: int = 0
    outcomes: list[Outcome] = field(default_factory=list)

    def started(self, files: int, work: int) -> None:
        self.files.append(files)
        self.work = work

    def worked(self, work: int) -> None:
        self.worked_on += work

    def embedded(self, chunks: int) -> None:
        self.chunks += chunks

    def finished(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


@dataclass(frozen=True, slots=True)
class Library:
    """A folder of documents and the data folder that they are ingested into."""

    small: ModuleType
    folder: Path
    data: Path
    embedder: Watched

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    async def ingest(
        self,
        *paths: Path,
        progress: Noted | None = None,
        executor: Executor = Executor(),  # noqa: B008 frozen
        **settings: object,
    ) -> Report:
        report: Report = await self.small.ingested(
            self.data,
            *(paths or [self.folder]),
            embedder=self.embedder,
            settings=IngestSettings.model_validate(settings),
            progress=progress,
            executor=executor,
        )
        return report

    async def table(self) -> CollectionReader:
        return await table_of(self.data)

    async def sources(self) -> dict[str, Source]:
        return {source.metadata["path"]: source for source in await (await self.table()).listing()}

    async def texts(self, name: str) -> list[str]:
        """The chunks of a source."""
        table, source = await self.table(), (await self.sources())[name]
        stored = (await table.sources([source.id]))[source.id]
        return [chunk.text for chunk in await table.chunks_between(stored, 0, 9999, "(true)")]


@pytest.fixture
def library(small_desk: ModuleType, tmp_path: Path) -> Library:
    (tmp_path / "documents").mkdir()
    return Library(small_desk, tmp_path / "documents", tmp_path / "data", Watched(small_desk.BagOfWords()))


def _pdf(content: bytes = b"", *, locked_with: str = "") -> bytes:
    """A PDF of one page."""
    writer, file = PdfWriter(), BytesIO()
    page, stream = writer.add_blank_page(9, 9), DecodedStreamObject()
    stream.set_data(content)
    page[NameObject("/Contents")] = writer._add_object(stream.flate_encode())  # noqa: SLF001 no public way
    names = {"/Type": "/Font", "/Subtype": "/Type1", "/BaseFont": "/Helvetica"}
    font = DictionaryObject({NameObject(key): NameObject(value) for key, value in names.items()})
    fonts = DictionaryObject({NameObject("/F"): font})
    page[NameObject("/Resources")] = DictionaryObject({NameObject("/Font"): fonts})
    if locked_with:
        writer.encrypt(locked_with)
    writer.write(file)
    return file.getvalue()


def _by_name(report: Report) -> dict[str, tuple[str, str]]:
    return {Path(outcome.path).name: (outcome.outcome, outcome.reason) for outcome in report.outcomes}


def _counts(report: Report) -> dict[str, int]:
    return {kind: count for kind, count in report.counts.items() if count}


async def test_every_file_is_accounted_for_in_a_first_a_second_and_a_later_run(library: Library) -> None:
    for name in ("same.md", "changes.md", "vanishes.md", "breaks.json"):
        library.write(name, f'["{name}"]')
    library.write("photo.jpg", b"\xff\xd8")
    library.write("empty.txt", b"")
    first = await library.ingest()
    assert _counts(first) == {"added": 4, "ignored": 2}
    assert (first.complete, first.fruitless) == (True, False)
    second = await library.ingest()
    assert _counts(second) == {"unchanged": 4, "ignored": 2}
    library.write("changes.md", "changed")
    library.write("breaks.json", "[")
    library.write("new.md", "new")
    (library.folder / "vanishes.md").unlink()
    assert _by_name(await library.ingest()) == {
        "same.md": ("unchanged", ""),
        "changes.md": ("replaced", ""),
        "new.md": ("added", ""),
        "vanishes.md": ("removed", "the file is gone"),
        "breaks.json": (
            "skipped",
            "line 1: invalid JSON (Expecting value, column 2); the earlier version stays",
        ),
        "empty.txt": ("ignored", EMPTY),
        "photo.jpg": ("ignored", "unsupported file type (.jpg)"),
    }
    assert set(await library.sources()) == {"same.md", "changes.md", "new.md", "breaks.json"}
    assert await library.texts("changes.md") == ["changed"]
    assert await library.texts("breaks.json") == ['["breaks.json"]']


async def test_a_run_on_an_unchanged_file_looks_at_no_other_source(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[str] = []
    known_source, stored_record = table_rows.known_source, schema.stored_record

    def noting_source(row: dict[str, Any], **how: object) -> KnownSource:
        looked_at.append(f"source {row['title']}")
        return known_source(row, **cast("Any", how))

    def noting_record(row: Mapping[str, Any]) -> AccessRecord:
        looked_at.append(f"record {Path(row['uri']).name}")
        return stored_record(row)

    same, unlike = library.write("same.md", "# Same"), library.write("other.md", "# Other")
    await library.ingest()
    monkeypatch.setattr("rag.store.write.collection_writer.known_source", noting_source)
    monkeypatch.setattr("rag.store.read.schema.stored_record", noting_record)
    assert _counts(await library.ingest(same)) == {"unchanged": 1}
    assert {*looked_at} == {"source Same", "record same.md"}
    looked_at.clear()
    assert _counts(await library.ingest(same, unlike)) == {"unchanged": 2}
    assert {*looked_at} == {"source Same", "record same.md", "source Other", "record other.md"}


async def test_an_outcome_names_the_source_and_its_chunks(library: Library) -> None:
    library.write("a.md", LONG)
    (added,) = (await library.ingest()).outcomes
    (unchanged,) = (await library.ingest()).outcomes
    (source,) = (await library.sources()).values()
    assert added.path == unchanged.path == str(library.folder / "a.md")
    assert added.source_id == unchanged.source_id == source.id
    assert added.chunks == unchanged.chunks == source.chunk_count > 3


async def test_a_run_on_nothing_new_embeds_nothing_and_writes_nothing(library: Library) -> None:
    for number in range(20):
        library.write(f"{number}.md", f"text {number}")
    await library.ingest()
    before = {path: path.stat().st_mtime_ns for path in database_folder(library.data).rglob("*")}
    library.embedder.texts.clear()
    assert _counts(await library.ingest()) == {"unchanged": 20}
    assert library.embedder.texts == []
    assert {path: path.stat().st_mtime_ns for path in database_folder(library.data).rglob("*")} == before


async def test_only_what_changed_is_embedded_again(library: Library) -> None:
    library.write("a.md", "first a")
    library.write("b.md", "first b")
    await library.ingest()
    library.embedder.texts.clear()
    library.write("b.md", "second b")
    await library.ingest()
    assert library.embedder.texts == ["b\n\nsecond b"]


async def test_a_changed_file_keeps_its_id_and_its_chunks_and_a_shorter_version_leaves_none_of_the_longer(
    library: Library,
) -> None:
    library.write("a.md", LONG)
    await library.ingest()
    before = (await library.sources())["a.md"]
    library.write("a.md", LONG + "\n\nOne more paragraph, long enough to be more. " * 30)
    await library.ingest()
    after = (await library.sources())["a.md"]
    assert before.id == after.id
    assert after.chunk_count > before.chunk_count
    ids = [f"{before.id}/{seq}" for seq in range(before.chunk_count)]
    assert {stored.chunk.id for stored in await (await library.table()).chunks(ids, "(true)")} == set(ids)
    library.write("a.md", "short")
    await library.ingest()
    assert (await (await library.table()).statistics()).chunks == 1


async def test_a_chunk_is_the_text_of_its_source_at_its_place(library: Library) -> None:
    library.write("a.md", f"# Title\n\n{LONG}\n\n## More 😀\n\n- one\n- two\n")
    await library.ingest()
    table, (source,) = await library.table(), (await library.sources()).values()
    stored_text = await table.text(source.id)
    assert stored_text
    stored, outline, text = stored_text
    chunks = await table.chunks_between(stored, 0, 9999, "(true)")
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert [(heading.title, heading.level) for heading in outline] == [("Title", 1), ("More 😀", 2)]
    assert all(text[heading.start :].startswith("#") for heading in outline)
    assert (source.title, source.length, source.mime_type) == ("Title", len(text), "text/markdown")


async def test_a_file_that_is_excluded_now_or_not_in_the_run_stays(library: Library) -> None:
    library.write("a.md", "a")
    library.write("sub/b.md", "b")
    library.write("caf\udce9.md", "c")  # a byte that is no UTF-8
    await library.ingest()
    assert _counts(await library.ingest(exclude=["*.md"])) == {}
    assert _counts(await library.ingest(include=["*.txt"])) == {}
    assert _counts(await library.ingest(library.folder / "sub")) == {"unchanged": 1}
    assert _counts(await library.ingest(library.folder / "a.md")) == {"unchanged": 1}
    assert len(await library.sources()) == 3


async def test_a_file_that_vanished_is_removed_by_a_run_over_its_folder_only(library: Library) -> None:
    library.write("sub/a.md", "a")
    library.write("sub/stays.md", "d")
    library.write("sub-2/b.md", "b")
    library.write("other/c.md", "c")
    await library.ingest()
    for name in ("sub/a.md", "sub-2/b.md"):
        (library.folder / name).unlink()
    assert _counts(await library.ingest(library.folder / "other")) == {"unchanged": 1}
    assert _counts(await library.ingest(library.folder / "sub")) == {"removed": 1, "unchanged": 1}
    assert set(await library.sources()) == {"sub/stays.md", "sub-2/b.md", "other/c.md"}
    (library.folder / "other" / "c.md").unlink()
    (library.folder / "other").rmdir()
    assert _counts(await library.ingest()) == {"removed": 2, "unchanged": 1}
    assert set(await library.sources()) == {"sub/stays.md"}


async def test_a_missing_folder_is_reported_and_removes_no_source(library: Library) -> None:
    library.write("a.md", "a")
    await library.ingest()
    library.folder.rename(library.folder.with_name("elsewhere"))
    report = await library.ingest()
    assert [(outcome.path, outcome.outcome) for outcome in report.outcomes] == [
        (str(library.folder), "skipped")
    ]
    assert report.fruitless
    assert set(await library.sources()) == {"a.md"}


async def test_files_in_a_folder_that_can_not_be_read_are_not_taken_for_vanished(
    small_desk: ModuleType, plain_folder: Path
) -> None:
    library = Library(
        small_desk, plain_folder / "docs", plain_folder / "data", Watched(small_desk.BagOfWords())
    )
    await small_desk.started_parser()
    library.write("a.md", "a")
    library.write("closed/b.md", "b")
    secret = library.write("secret.md", "c")
    await library.ingest()
    secret.chmod(0)
    (library.folder / "closed").chmod(0)
    try:
        report = await library.ingest()
    finally:
        (library.folder / "closed").chmod(0o700)
    assert _by_name(report) == {
        "a.md": ("unchanged", ""),
        "closed": ("skipped", "the folder can't be read: Permission denied"),
        "secret.md": ("skipped", "it can't be read: Permission denied; the earlier version stays"),
    }
    assert set(await library.sources()) == {"a.md", "closed/b.md", "secret.md"}


async def test_files_of_one_content_are_all_kept_and_named(library: Library) -> None:
    for name in ("b.md", "a.md", "c.txt"):
        library.write(name, "the same")
    reason = f"same content as {library.folder / 'a.md'}"
    assert _by_name(await library.ingest()) == {
        "a.md": ("added", ""),
        "b.md": ("added", reason),
        "c.txt": ("added", reason),
    }
    assert _by_name(await library.ingest())["b.md"] == ("unchanged", reason)
    assert len(await library.sources()) == 3


async def test_whatever_is_wrong_with_a_file_ends_in_a_clear_line_and_harms_no_other(
    library: Library, tmp_path: Path
) -> None:
    library.write("good.md", "good")
    for name, content in {
        "binary.txt": b"\x00\x01\x02 PK binary",
        "blank.md": b" \n\t\n",
        "broken.json": b'{"a": ',
        "empty.pdf": b"",
        "huge.txt": b"x" * 3001,
        "truncated.pdf": b"%PDF-1.4\n1 0 obj<</Type/Catalog",
        "pictures.pdf": _pdf(),
        "secret.pdf": _pdf(locked_with="x"),
        "undecodable.txt": UNDECODABLE,
    }.items():
        library.write(name, content)
    os.mkfifo(library.folder / "pipe.txt")
    (library.folder / "out.md").symlink_to(tmp_path)
    (library.folder / "folder.md").mkdir()
    progress = Noted()
    report = await library.ingest(
        library.folder, library.folder / "missing", max_file_bytes=3000, progress=progress
    )
    assert _by_name(report) == {
        "good.md": ("added", ""),
        "binary.txt": ("skipped", BINARY),
        "blank.md": ("ignored", EMPTY),
        "broken.json": ("skipped", "line 1: invalid JSON (Expecting value, column 7)"),
        "empty.pdf": ("ignored", EMPTY),
        "huge.txt": ("skipped", str(over_limit(3001, 3000))),
        "truncated.pdf": ("skipped", DAMAGED),
        "pictures.pdf": ("skipped", WITHOUT_TEXT),
        "secret.pdf": ("skipped", ENCRYPTED),
        "undecodable.txt": ("skipped", refusal(decode, UNDECODABLE)),
        "pipe.txt": ("skipped", "not a regular file"),
        "out.md": ("ignored", LINK_OUTSIDE),
        "missing": ("skipped", NOT_THERE),
    }
    assert (report.complete, report.fruitless) == (False, False)
    assert progress.outcomes == list(report.outcomes)
    assert await library.texts("good.md") == ["good"]


async def test_a_document_is_gone_when_a_folder_or_a_link_is_in_its_place(library: Library) -> None:
    for name in ("folder.md", "link.md", "sub/behind.md", "stays.md"):
        library.write(name, f"text of {name}")
    await library.ingest()
    (library.folder / "folder.md").unlink()
    library.write("folder.md/inside.md", "text inside")
    (library.folder / "link.md").unlink()
    (library.folder / "link.md").symlink_to(library.folder / "stays.md")
    elsewhere = library.folder.with_name("elsewhere")
    (library.folder / "sub").rename(elsewhere)
    (library.folder / "sub").symlink_to(elsewhere)
    report = _by_name(await library.ingest())
    assert {name: kind for name, (kind, _) in report.items()} == {
        "inside.md": "added",
        "folder.md": "removed",
        "behind.md": "removed",
        "link.md": "removed",
        "sub": "ignored",
        "stays.md": "unchanged",
    }
    assert _by_name(await library.ingest(elsewhere))["behind.md"][0] == "added"


async def test_a_run_that_brings_nothing_but_failures_is_fruitless(library: Library) -> None:
    library.write("broken.json", "[")
    library.write("photo.jpg", "")
    assert (await library.ingest()).fruitless
    assert not (await library.ingest(library.folder / "broken.json", exclude=["broken.json"])).complete


async def test_names_of_any_bytes_are_ingested_found_again_and_removed(library: Library) -> None:
    names = [b"it's.md", b'quo"te.md', b"new\nline.md", "😀.md".encode(), b"latin-\xe9.md", b"a?b#c%41.md"]
    for number, name in enumerate(names):
        library.write(os.fsdecode(name), f"text {number}")
    assert _counts(await library.ingest()) == {"added": len(names)}
    assert _counts(await library.ingest()) == {"unchanged": len(names)}
    for source in (await library.sources()).values():
        assert source.title.isprintable()
        assert source.metadata["path"].isprintable()
    (library.folder / os.fsdecode(names[4])).unlink()
    removed = [outcome for outcome in (await library.ingest()).outcomes if outcome.outcome == "removed"]
    assert [outcome.path for outcome in removed] == [str(library.folder / "latin-�.md")]
    assert len(await library.sources()) == len(names) - 1


async def test_a_document_can_hold_any_characters(library: Library) -> None:
    library.write("a.json", '[{"k\\ud800": "lone \\udfff", "nul": "\\u0000"}]')
    library.write("b.md", "---\ntitle: \"it's\"\nk: '\u202e'\n---\n'; DROP TABLE chunks; --")
    library.write("c.txt", "tag\U000e0041 zero\u200bwidth \x1b[31mred " + "\u0301" * 50)
    report = await library.ingest()
    assert _counts(report) == {"added": 3}
    assert len(await library.sources()) == 3


async def test_the_progress_adds_up(library: Library) -> None:
    for number in range(7):
        library.write(f"{number}.md", f"{number} {LONG}")
    library.write("empty.md", "")
    library.write("photo.jpg", "")
    first = Noted()
    report = await library.ingest(progress=first)
    assert first.files == [9]
    assert len(first.outcomes) == 9
    assert first.chunks == sum(outcome.chunks for outcome in report.outcomes) == len(library.embedder.texts)
    (library.folder / "0.md").unlink()
    library.write("1.md", "changed")
    second = Noted()
    report = await library.ingest(progress=second)
    assert second.files == [8]
    assert Counter(outcome.outcome for outcome in second.outcomes) == Counter(_counts(report))
    assert len(second.outcomes) == 8 + report.counts["removed"]
    assert second.chunks == 1
    for progress in (first, second):
        assert progress.work > 0
        assert progress.worked_on == progress.work


async def test_a_file_that_was_emptied_is_a_failure_since_its_earlier_version_is_still_found(
    library: Library,
) -> None:
    library.write("a.md", "text")
    library.write("b.md", "")
    await library.ingest()
    library.write("a.md", "")
    report = await library.ingest()
    assert _by_name(report) == {
        "a.md": ("skipped", "the file has no content any more; the earlier version stays"),
        "b.md": ("ignored", EMPTY),
    }
    assert not report.complete
    assert await library.texts("a.md") == ["text"]


@pytest.mark.parametrize("fails_from", [1, 6])
async def test_a_failing_embedder_is_raised_itself_and_what_was_written_stays(
    library: Library, monkeypatch: pytest.MonkeyPatch, fails_from: int
) -> None:
    monkeypatch.setattr(rag.ingest.ingest_run, "WAVE_CHUNKS", 1)
    for number in range(6):
        library.write(f"{number}.md", f"text {number}")
    library.embedder.fails_from = fails_from
    with pytest.raises(ProviderError, match="after 5 attempts"):
        await library.ingest()
    written = await library.sources()
    assert len(written) < fails_from
    assert all([await library.texts(name) == [f"text {name[0]}"] for name in written])
    library.embedder.fails_from = 0
    assert _counts(await library.ingest()) == {
        kind: count for kind, count in (("unchanged", len(written)), ("added", 6 - len(written))) if count
    }
    assert (await (await library.table()).statistics()).chunks == 6
    assert (await (await library.table()).statistics()).unindexed == 0


async def test_a_failing_embedder_leaves_the_earlier_versions(library: Library) -> None:
    library.write("a.md", "first")
    await library.ingest()
    library.write("a.md", "second")
    library.embedder.fails_from = 1
    with pytest.raises(ProviderError):
        await library.ingest()
    assert await library.texts("a.md") == ["first"]


async def test_a_failing_storage_is_raised_itself(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rag.ingest.ingest_run, "WAVE_CHUNKS", 1)
    for number in range(9):
        library.write(f"{number}.md", f"text {number}")

    async def full(*_: object) -> None:
        raise StoreError("The disk is full.")

    monkeypatch.setattr(CollectionWriter, "replace", full)
    with pytest.raises(StoreError, match="disk is full"):
        await library.ingest()


async def test_a_cancelled_run_leaves_a_collection_that_the_next_one_completes(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rag.ingest.ingest_run, "WAVE_CHUNKS", 1)
    for number in range(9):
        library.write(f"{number}.md", f"text {number}")
    scope = anyio.CancelScope()

    class Impatient(Noted):
        def embedded(self, chunks: int) -> None:
            self.chunks += chunks
            if self.chunks == 5:
                scope.cancel()

    with scope:
        await library.ingest(progress=Impatient())
    assert scope.cancelled_caught
    report = await library.ingest()
    assert report.counts["added"] + report.counts["unchanged"] == 9
    assert (await (await library.table()).statistics()).chunks == 9


async def test_a_collection_that_is_being_written_turns_a_run_away(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rag.store.write.change_collection.WRITER_WAIT_SECONDS", 0.1)
    library.write("a.md", "a")
    async with await library.small.writing(library.data):
        with pytest.raises(BusyError):
            await library.ingest()
    assert _counts(await library.ingest()) == {"added": 1}


async def test_other_chunk_sizes_make_every_source_anew_and_the_report_says_so(library: Library) -> None:
    library.write("a.md", LONG)
    library.write("b.md", "before")
    await library.ingest()
    many = library.small.BagOfWords(window=64)
    assert (await library.sources())["a.md"].chunk_count < 15
    library.embedder.embedder = many
    library.write("b.md", "after")
    report = await library.ingest()
    assert _counts(report) == {"replaced": 2}
    assert report.notes == (READ_AGAIN_NOTE.format("1 file"),)
    assert (await library.sources())["a.md"].chunk_count > 15


async def test_documents_that_fill_the_memory_alone_come_in_one_after_another(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("SMALL_CHARACTERS", "LARGE_CHARACTERS"):
        monkeypatch.setattr(rag.ingest.chunk_vectors, limit, 1)
    monkeypatch.setattr(rag.store.write.collection_writer, "ROWS_AT_ONCE", 3)
    for number in range(9):
        library.write(f"{number}.md", f"{number} {LONG}")
    library.write("empty.md", "")
    with anyio.fail_after(120):
        assert _counts(await library.ingest()) == {"added": 9, "ignored": 1}
    chunks = (await library.sources())["0.md"].chunk_count
    assert chunks > 3
    assert (await (await library.table()).statistics()).chunks == 9 * chunks
    assert (await library.texts("8.md"))[0].startswith("8 ")


@dataclass(slots=True)
class Workers:
    """Work on several documents at the same time; notes which."""

    names: list[str] = field(default_factory=list)
    at_once: set[int] = field(default_factory=set)
    _running: int = 0

    async def chunk(self, preparation: Preparation, content: FileContent, budget: Budget) -> Chunked:
        self.names.append(content.file.name)
        self._running += 1
        self.at_once.add(self._running)
        try:
            return await preparation.chunk(content, budget)
        finally:
            self._running -= 1


async def test_an_executor_prepares_each_new_document_once_and_several_at_the_same_time(
    library: Library,
) -> None:
    for number in range(9):
        library.write(f"{number}.md", f"{number}. {LONG}")
    workers = Workers()
    executor = Executor(3, 3, 5, workers.chunk)
    assert _counts(await library.ingest(executor=executor)) == {"added": 9}
    assert sorted(workers.names) == [f"{number}.md" for number in range(9)]
    assert max(workers.at_once) == 3
    assert (await library.texts("8.md"))[0].startswith("8.")
    assert _counts(await library.ingest(executor=executor)) == {"unchanged": 9}
    assert len(workers.names) == 9


async def test_waves_of_any_size_give_the_same_collection(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        library.write(f"{number}.md", f"{number} {LONG[: 500 * number]}")
    await library.ingest()
    whole = {name: await library.texts(name) for name in await library.sources()}
    monkeypatch.setattr(rag.ingest.ingest_run, "WAVE_CHUNKS", 2)
    for number in range(12):
        library.write(f"{number}.md", f"{number}. {LONG[: 500 * number]}")
    assert _counts(await library.ingest(executor=Executor(texts_at_once=3))) == {"replaced": 12}
    assert {name: len(await library.texts(name)) for name in whole} == {
        name: len(texts) for name, texts in whole.items()
    }


async def test_a_gentle_run_begins_no_document_while_the_machine_runs_on_battery(library: Library) -> None:
    for name in ("a.md", "b.md"):
        library.write(name, f"# {name}\n\nThe pendulum.\n")
    states: list[str] = []
    power = iter([True, True, False, False])
    gentle = gentle_executor(states.append, on_battery=lambda: next(power), look_seconds=0)
    assert _counts(await library.ingest(executor=gentle)) == {"added": 2}
    assert states == ["paused", "resumed"]
