"""Whether a document still holds: its expiry, and the state of its file, whatever the file server does."""

from __future__ import annotations

import gc
import os
import shutil
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import anyio
import pytest

from rag.corpus import COARSE_NS, Document, FileState, Source
from rag.errors import ParseError
from rag.ingest.document_admission import with_expiry
from rag.originals import MAX_HANGING, NEVER, Clock, FileWatch, expiry, staleness, state_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rag.originals import Staleness

pytestmark = pytest.mark.anyio

DAY_NS = 86_400_000_000_000


def _touched(file: Path, ns: int) -> None:
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + ns))


def _written(file: Path) -> None:
    file.write_text("Thirty-one days of leave.\n")


def _same_size_within_the_clock(file: Path) -> None:
    status = file.stat()
    file.write_text("Thirty daYs of leave.\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + COARSE_NS // 2))


def _older_copy_from_a_backup(file: Path) -> None:
    file.write_text("Twenty days of leave..\n")
    _touched(file, -365 * DAY_NS)


def _replaced_by_a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _replaced_by_a_link(file: Path) -> None:
    file.rename(file.with_name("else.md"))
    file.symlink_to(file.with_name("else.md"))


def _emptied(file: Path) -> None:
    for folder in (file.parent, file.parent.parent / "b"):
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("happens", "state"),
    [
        (state_of, None),
        (_written, "changed"),
        (_older_copy_from_a_backup, "changed"),
        (lambda file: _touched(file, DAY_NS), "changed"),  # only reading it could tell otherwise
        (lambda file: _touched(file, COARSE_NS - 1), None),
        (_same_size_within_the_clock, None),  # the price of coarse file systems
        (lambda file: file.unlink(), "gone"),
        (lambda file: file.rename(file.with_name("new.md")), "gone"),
        (_replaced_by_a_folder, "gone"),
        (_replaced_by_a_link, "gone"),
        (lambda file: shutil.rmtree(file.parent), "gone"),
        (lambda file: shutil.rmtree(file.parent.parent), None),  # the folder that was ingested
        (_emptied, None),  # as an unmounted share is
    ],
)
def test_what_became_of_a_file_is_told_where_its_folder_is_at_hand(
    tmp_path: Path, happens: Callable[[Path], object], state: str | None
) -> None:
    file = tmp_path / "docs" / "a" / "rüde name%20.md"
    for folder in (file.parent, tmp_path / "docs" / "b"):
        folder.mkdir(parents=True)
    file.write_text("Thirty days of leave.\n")
    ingested = state_of(file)
    happens(file)
    assert staleness(file.as_uri(), "a/rüde name%20.md", ingested) == state


def test_a_name_of_any_bytes_and_one_that_is_too_long_are_no_trouble(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"caf\xe9.md")
    file.write_text("x")
    assert staleness(file.as_uri(), "caf\ufffd.md", state_of(file)) is None
    assert staleness(file.as_uri(), "caf\ufffd.md", FileState(0, 1)) == "changed"
    assert staleness((tmp_path / ("x" * 5000)).as_uri(), "x" * 5000, FileState(0, 1)) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_folder_that_the_server_may_not_enter_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.md"
    file.parent.mkdir()
    file.write_text("x")
    file.parent.chmod(0)
    try:
        assert staleness(file.as_uri(), "a/b.md", FileState(0, 9)) is None
    finally:
        file.parent.chmod(0o700)


MOMENT = datetime(2026, 1, 1, tzinfo=UTC)

OLD = FileState(0, 1)


def _source(uri: str, *, file: FileState | None = OLD, path: str = "a.md") -> Source:
    metadata = {"path": path} if path else {}
    return Source(uri[-9:], "c", uri, "T", "text/plain", "d", 1, 1, MOMENT, metadata=metadata, file=file)


async def test_only_files_with_a_recorded_state_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "one.md").write_text("longer")
    uri = (tmp_path / "one.md").as_uri()
    watch = FileWatch()
    assert await watch.stale([_source(uri)]) == {uri[-9:]: "changed"}
    assert await watch.stale([_source(uri, file=None), _source(uri, path=""), _source("s3://b/one.md")]) == {}
    assert await watch.stale([]) == {}


async def test_one_thread_looks_at_all_files_and_ends_with_the_watch() -> None:
    def looking() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "refdesk files"]

    before, watch = looking(), FileWatch()
    for _ in range(3):
        assert await watch.stale([_source("file:///nowhere/a.md")]) == {}
    (thread,) = [thread for thread in looking() if thread not in before]
    del watch
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


async def test_a_dead_file_server_costs_a_moment_and_soon_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    back = threading.Event()

    def hanging(uri: str, _name: str, _ingested: FileState) -> Staleness | None:
        if "dead" in uri:
            back.wait()
        return "gone"

    monkeypatch.setattr("rag.originals.staleness", hanging)
    watch = FileWatch(0.02)
    near, dead = _source("file:///near/a.md"), _source("file:///dead/a.md")
    try:
        for _ in range(MAX_HANGING):
            assert await watch.stale([near, dead, near]) == {near.id: "gone"}
        threads = threading.active_count()
        monkeypatch.setattr(watch, "_seconds", 3600)
        with anyio.fail_after(60):
            assert await watch.stale([near, dead]) == {}
        assert threading.active_count() == threads
    finally:
        back.set()
    for thread in threading.enumerate():
        if thread.name == "refdesk files":
            thread.join(5)
    assert await watch.stale([near]) == {near.id: "gone"}


DAY = timedelta(days=1)
INGESTED = datetime(2026, 6, 1, tzinfo=UTC)


def stated(written: str, key: str = "expires") -> str:
    document = Document("text", "title", "text/plain", (), metadata={key: written, "author": "Ann"})
    return with_expiry(document).metadata["expires"]


@pytest.mark.parametrize(
    ("written", "moment"),
    [
        ("2027-03-31", "2027-03-31T00:00:00+00:00"),
        ("2027-03-31T18:00:00+02:00", "2027-03-31T16:00:00+00:00"),
        ("2027-03-31T18:00:00", "2027-03-31T18:00:00+00:00"),
        ("2028-02-29", "2028-02-29T00:00:00+00:00"),
        ("Wed, 31 Mar 2027 18:00:00 -0500", "2027-03-31T23:00:00+00:00"),
    ],
)
def test_a_date_is_its_first_moment_and_a_zone_counts(written: str, moment: str) -> None:
    assert stated(written) == moment
    assert stated(written, key="Expires") == moment


@pytest.mark.parametrize("written", ["soon", "2027-02-29", "2027-13-01", "03/04/2027", "", "never"])
def test_a_document_whose_expiry_nobody_understands_is_not_stored(written: str) -> None:
    with pytest.raises(ParseError, match="nobody knows how long it may be kept, it isn't stored"):
        stated(written)


def test_of_two_statements_the_earlier_counts() -> None:
    document = Document("", "", "", (), metadata={"expires": "2028-01-01", "EXPIRES": "2027-01-01"})
    assert with_expiry(document).metadata == {"expires": "2027-01-01T00:00:00+00:00"}


def of(
    days: int, *, says: str = "", date: datetime | None = None, file: datetime | None = None
) -> datetime | None:
    state = FileState(int(file.timestamp() * 1e9), 1) if file else None
    metadata = {"expires": says} if says else {}
    return expiry(metadata, days, date=date, file=state, ingested_at=INGESTED)


def test_days_count_from_the_date_else_from_the_file_else_from_the_ingestion() -> None:
    date, file = datetime(2024, 2, 29, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
    assert of(366, date=date, file=file) == datetime(2025, 3, 1, tzinfo=UTC)
    assert of(30, file=file) == datetime(2025, 1, 31, tzinfo=UTC)
    assert of(30) == INGESTED + 30 * DAY


def test_a_date_in_the_future_prolongs_nothing() -> None:
    assert of(30, date=datetime(2099, 1, 1, tzinfo=UTC)) == INGESTED + 30 * DAY
    assert of(30, file=datetime(2099, 1, 1, tzinfo=UTC)) == INGESTED + 30 * DAY


def test_the_earlier_of_statement_and_days_counts_and_without_both_nothing_expires() -> None:
    early, late = (stated(written) for written in ("2026-06-10", "2036-06-10"))
    assert of(30, says=early) == datetime(2026, 6, 10, tzinfo=UTC)
    assert of(30, says=late) == INGESTED + 30 * DAY
    assert of(0, says=late) == datetime(2036, 6, 10, tzinfo=UTC)
    assert of(0) is None
    assert of(36500 * 100) == NEVER


def test_a_damaged_expiry_doesn_t_keep_a_document_for_ever() -> None:
    with pytest.raises(ValueError, match="soon"):
        of(0, says="soon")


def test_a_clock_that_is_set_back_goes_on_from_where_it_was() -> None:
    times = {"wall": 1000.0, "steady": 50.0}
    clock = Clock(lambda: times["wall"], lambda: times["steady"])
    assert clock.now().timestamp() == 1000
    times |= {"wall": 400.0, "steady": 60.0}
    assert clock.now().timestamp() == 1010
    times |= {"wall": 5000.0, "steady": 61.0}
    assert clock.now().timestamp() == 5000
