"""Locks: whoever waits in vain is told who holds them and since when, and a killed holder keeps nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from rag.errors import BusyError
from rag.store.write.desk_folder import prepare
from rag.store.write.locks import held_locks, locked

if TYPE_CHECKING:
    from pathlib import Path

HOLD = """
import sys
from pathlib import Path
from rag.store.write.locks import locked
sys.argv = ["/usr/bin/refdesk-admin", "ingest", "/secret/plans"]
with locked(Path(sys.stdin.readline().strip()), "default.documents", seconds=0):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_held_lock_names_its_holder_and_a_killed_holder_frees_it(tmp_path: Path) -> None:
    prepare(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write(f"{tmp_path}\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError) as busy, locked(tmp_path, "default.documents", seconds=0):
            pass
        assert str(busy.value).startswith(f"refdesk-admin ingest (process {holder.pid}, since 20")
        assert "secret" not in str(busy.value)
        assert list(held_locks(tmp_path)) == ["default.documents"]
        holder.kill()
    assert held_locks(tmp_path) == {}
    with locked(tmp_path, "default.documents", seconds=0):
        (who,) = held_locks(tmp_path).values()
        assert who
        assert who.process == os.getpid()
    assert held_locks(tmp_path) == {}


def test_what_a_killed_holder_left_is_not_shown_for_the_next_one(tmp_path: Path) -> None:
    prepare(tmp_path)
    left = tmp_path / "locks" / "default.access.holder"
    left.write_text('{"command": "refdesk-admin purge", "process": 1, "since": "2020-01-01"}')
    with locked(tmp_path, "default.access", seconds=0):
        left.unlink()  # as if the disk had been too full to write it
        with (
            pytest.raises(BusyError, match=r"^Another process is writing to"),
            locked(tmp_path, "default.access", seconds=0),
        ):
            pass
    assert not left.exists()
