"""A panic of the engine is an error of the storage, not the end of the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import resource, sys
from pathlib import Path
import anyio
from rag.errors import StoreError
from rag.store.read.connection import connect

async def main():
    few = len([*Path("/proc/self/fd").iterdir()]) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, few))
    try:
        await connect(Path(sys.argv[1]))
    except StoreError as error:
        print(error, type(error.__cause__).__name__)

anyio.run(main)
"""


def test_an_engine_that_may_open_no_files_ends_in_one_sentence(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ran.stdout.startswith("The storage engine failed while opening the tables."), ran.stderr
    assert ran.stdout.endswith(" PanicException\n")
