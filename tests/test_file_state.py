"""Whether a file is as it was when it was ingested: what people, file systems and clocks do to it."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from rag.corpus import COARSE_NS, FileState
from rag.originals import staleness, state_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
