"""Documents in files, in parts of files and of other origins: their places and their state."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from rag.corpus import AccessRecord, FileState, Source
from rag.ingest import known_sources
from rag.ingest.containers import spooling
from rag.ingest.discover import Discovery
from rag.ingest.known_sources import moved_sources, perhaps_unmounted
from rag.ingest.parse.parsers import parse
from rag.ingest.prepare import read_sidecar, with_stated_metadata
from rag.ingest.report import Report
from rag.ingest.source_files import LocalFile, folder_of, name_of, part_uri, path_of, place_of
from rag.originals import staleness, state_of
from rag.store.read.connection import connect
from rag.store.read.schema import sources_table
from rag.store.write.table_rows import KnownSource
from tests.small_desk import ingested
from tests.tables import table_of

pytestmark = pytest.mark.anyio


# What a run finds: documents in files, parts of files and documents of other origins, by their
# URIs.

DOCUMENT = parse(b"---\nyear: 1999\nAllow: group:everyone\n---\n# Plans\n\ntext\n", "plans.md")


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///d/a%20b.md", "/d/a b.md"),
        ("file:///d/x.zip#june/a%23b.eml", "/d/x.zip/june/a#b.eml"),
        ("file:///d/x%23y.zip#a.eml/r%C3%A9sum%C3%A9.pdf", "/d/x#y.zip/a.eml/résumé.pdf"),
        ("file:///d/%FF.md", os.fsdecode(b"/d/\xff.md")),
        ("origin:wiki/hr/pay%3F.md", "/origin:wiki/hr/pay?.md"),
    ],
)
def test_every_uri_has_a_place(uri: str, path: str) -> None:
    assert place_of(uri) == Path(path)
    assert path_of(uri) == path.replace("\udcff", "�").replace("/origin:", "origin:")
    assert name_of(uri) == path.rpartition("/")[2].casefold()
    assert folder_of(uri) == path.rpartition("/")[0].casefold()


def test_a_part_of_a_part_lies_deeper_in_the_same_file() -> None:
    mail = part_uri("file:///d/x.zip", "june/a #1.eml")
    assert mail == "file:///d/x.zip#june/a%20%231.eml"
    assert part_uri(mail, "report.pdf") == "file:///d/x.zip#june/a%20%231.eml/report.pdf"


def test_a_part_is_gone_with_its_file_or_when_its_container_was_looked_through_without_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "x.zip").touch()
    here, gone = (tmp_path / "x.zip").as_uri(), (tmp_path / "y.zip").as_uri()
    folder = f"{tmp_path.as_uri()}/"
    discovery = Discovery(whole={folder, f"{here}#"}, partly={f"{here}#b.eml/"})
    discovery.files[f"{here}#a.md"] = LocalFile(
        f"{here}#a.md", tmp_path / "x.zip/a.md", "x.zip/a.md", tmp_path / "0"
    )
    assert not discovery.is_gone(f"{here}#a.md")
    assert discovery.is_gone(f"{here}#c.md")
    assert discovery.is_gone(f"{here}#c.eml/report.pdf")
    assert not discovery.is_gone(f"{here}#b.eml/report.pdf"), "the mail could not be opened"
    assert discovery.is_gone(f"{gone}#a.md")
    unopened = Discovery(whole={folder})
    assert not unopened.is_gone(f"{here}#c.md"), "nobody looked into the archive"


def test_what_is_gone_is_told_without_looking_at_all_opened_containers(
    tmp_path: Path, lines_run: Callable[[Callable[[], object]], int]
) -> None:
    (tmp_path / "x.mbox").touch()
    here = (tmp_path / "x.mbox").as_uri()

    def lines(containers: int) -> int:
        discovery = Discovery(whole={f"{here}#", *(f"{here}#{number}.eml/" for number in range(containers))})
        return lines_run(lambda: discovery.is_gone(f"{here}#old.eml"))

    assert lines(3_000) < 2 * lines(3)


def test_what_an_origin_has_is_known_only_if_it_was_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where there is no file wiki/a.md either
    assert not Discovery(whole={"file:///d/"}).is_gone("origin:wiki/a.md")
    looked = Discovery(whole={"origin:wiki/"}, partly={"origin:wiki/hr/"})
    assert looked.is_gone("origin:wiki/a.md")
    assert looked.is_gone("origin:wiki/a.zip#a.md")
    assert not looked.is_gone("origin:wiki/hr/a.md")
    assert not looked.is_gone("origin:wikis/a.md")


def test_too_much_missing_from_a_container_or_an_origin_is_noticed_like_in_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored_uris = [
        f"{place}{number}.md" for place in ("file:///d/x.mbox#", "origin:w/") for number in range(5)
    ]
    monkeypatch.setattr(known_sources, "FEW_GONE", 3)
    for whole in ("file:///d/x.mbox#", "origin:w/"):
        missing = [_stored(uri) for uri in stored_uris if uri.startswith(whole)]
        assert perhaps_unmounted(missing, stored_uris, Discovery(whole={whole})) == {
            whole: {source.id for source in missing}
        }
        assert not perhaps_unmounted(missing[:3], stored_uris, Discovery(whole={whole}))


def _stored(uri: str, content: str = "") -> KnownSource:
    return KnownSource(uri, uri, "", 1, "", {}, AccessRecord(uri, "documents", uri, None, content), 0)


def test_sources_of_one_content_move_to_where_the_end_of_their_path_is_the_same() -> None:
    gone = ("a/x/1.md", "a/y/1.md", "a/2.md", "a/3.md")
    stored = {source.uri: source for source in (_stored(f"file:///gone/{path}", "same") for path in gone)}
    new = [f"file:///d/{path}" for path in ("b/y/1.md", "b/5.md", "b/1.md", "a/2.md", "c/4.md")]
    moved = moved_sources({**dict.fromkeys(new, "same"), "file:///d/z.md": "other"}, stored, Discovery())
    ends = {
        new.removeprefix("file:///d/"): source.uri.removeprefix("file:///gone/")
        for new, source in moved.items()
    }
    assert ends == {"a/2.md": "a/2.md", "b/y/1.md": "a/y/1.md", "b/1.md": "a/x/1.md", "b/5.md": "a/3.md"}


def test_many_sources_of_one_content_can_move_without_comparing_each_with_each(
    lines_run: Callable[[Callable[[], object]], int],
) -> None:
    def lines(number: int) -> int:
        paths = [f"#{place % 7}/{place}.md" for place in range(number)]
        stored = {f"file:///gone.zip{path}": _stored(f"file:///gone.zip{path}", "same") for path in paths}
        moved: dict[str, KnownSource] = {}
        new = {f"file:///d.zip{path}": "same" for path in paths}
        run = lines_run(lambda: moved.update(moved_sources(new, stored, Discovery())))
        assert all(source.uri.removeprefix("file:///gone.zip") in uri for uri, source in moved.items())
        assert len(moved) == len(paths)
        return run

    assert lines(400) < 3 * lines(200)


def test_what_is_stated_goes_before_the_document_and_a_sidecar_before_both() -> None:
    stated = {"title": "Stated", "date": "2024-05-01", "from": "ann@example.org", "year": "1"}
    document = with_stated_metadata(DOCUMENT, b"year = 2\n", stated)
    assert (document.title, document.metadata["from"], document.metadata["year"]) == (
        "Stated",
        "ann@example.org",
        "2",
    )
    assert document.date
    assert document.date.year == 2024
    hidden = {"visibility": "restricted", "allow": "group:hr"}
    assert with_stated_metadata(DOCUMENT, b'visibility = "tenant"\n', hidden).metadata.get("allow") is None


def test_a_part_is_stale_as_its_file_is_and_unknown_while_its_folder_is_not_mounted(tmp_path: Path) -> None:
    (folder := tmp_path / "mounted").mkdir()
    (tmp_path / "other.md").touch()
    (archive := folder / "x.zip").write_bytes(b"PK")
    uri, state = f"{archive.as_uri()}#june/a.md", FileState(0, 99)
    assert staleness(uri, "x.zip/june/a.md", state) == "changed"
    archive.unlink()
    assert staleness(uri, "x.zip/june/a.md", state) is None, "an empty folder may be unmounted"
    (folder / "b.md").touch()
    assert staleness(uri, "x.zip/june/a.md", state) == "gone"


@pytest.mark.slow
@pytest.mark.anyio
async def test_the_spool_is_private_and_removed_after_a_run_and_a_killed_one_is_swept(
    tmp_path: Path, small_desk: ModuleType
) -> None:
    async with await small_desk.writing(tmp_path) as writer:
        with spooling(tmp_path, writer.collection) as spool:
            file = spool.add(b"text", b"year = 1\n")
            local_file = LocalFile("origin:w/a.md", Path("/origin:w/a.md"), "a.md", file)
            assert (file.read_bytes(), read_sidecar(local_file)) == (b"text", b"year = 1\n")
            assert {file.stat().st_mode & 0o77, spool.folder.stat().st_mode & 0o77} == {0}
        assert not (tmp_path / "spool").exists()
        leftover = spool.add(b"left by a killed run")
    assert leftover.exists()
    async with await small_desk.writing(tmp_path, collection="others"):
        assert leftover.exists(), "it may belong to a run on the other collection"
    async with await small_desk.writing(tmp_path):
        assert not (tmp_path / "spool").exists()


# A run records in which state it read each file, so that a search can tell later that it has
# changed.


async def _sources_by_name(data: Path) -> dict[str, Source]:
    return {source.name: source for source in await (await table_of(data)).listing()}


async def _run(data: Path, docs: Path) -> Report:
    report = await ingested(data, docs)
    recorded = {name: source.file for name, source in (await _sources_by_name(data)).items()}
    assert recorded == {name: state_of(docs / name) for name in recorded}
    return report


@pytest.mark.slow
async def test_the_state_of_each_file_is_recorded_also_if_only_its_time_is_new(tmp_path: Path) -> None:
    """Added, changed, touched, moved, replaced by a copy: after each run, the record is that of the file."""
    docs, data = tmp_path / "docs", tmp_path / "data"
    docs.mkdir()
    for name in ("a.md", "b.md", "c.md"):
        (docs / name).write_text(f"The text of {name}.\n")
    assert (await _run(data, docs)).counts["added"] == 3
    before = (await _sources_by_name(data))["b.md"]
    os.utime(docs / "a.md", (1, 1))
    (docs / "b.md").write_text("Another text.\n")
    (docs / "c.md").rename(docs / "d.md")
    os.utime(docs / "d.md", (2, 2))
    counts = (await _run(data, docs)).counts
    assert (counts["unchanged"], counts["replaced"], counts["moved"]) == (1, 1, 1)
    after = await _sources_by_name(data)
    assert after["b.md"].file != before.file
    assert {"a.md", "b.md", "d.md"} == after.keys()


@pytest.mark.slow
async def test_rows_of_a_version_that_did_not_record_it_get_it_at_the_next_run(tmp_path: Path) -> None:
    docs, data = tmp_path / "docs", tmp_path / "data"
    docs.mkdir()
    (docs / "a.md").write_text("A text.\n")
    await _run(data, docs)
    table = await (await connect(data)).open_table(sources_table("default", "documents"))
    await table.update({"fields": "{}"})
    assert (await _sources_by_name(data))["a.md"].file is None
    assert (await _run(data, docs)).counts["unchanged"] == 1
    version = await (await (await connect(data)).open_table(sources_table("default", "documents"))).version()
    await _run(data, docs)
    again = await (await (await connect(data)).open_table(sources_table("default", "documents"))).version()
    assert again == version  # a run that finds nothing new writes nothing
