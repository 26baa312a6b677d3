"""Three documents, of which one is for a group only, in a data folder: what tests of accidents begin with."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk
    from tests.conftest import Scripts

QUERY = "pendulum"


def titles(desk: Desk, *options: str) -> set[str]:
    """The documents that somebody finds."""
    return set(desk.titles(QUERY, *options))


def write_documents(folder: Path) -> None:
    """The documents, and nothing else, in a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in ("leave", "travel", "wages"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nThe {name} of a pendulum.\n")


def ingest_documents(scripts: Scripts, folder: Path, *more: tuple[str | Path, ...]) -> None:
    """Write them to docs, ingest them into data, restrict one to a group, and run more commands."""
    write_documents(folder / "docs")
    for command in (
        ("ingest", folder / "docs", "--visibility", "tenant"),
        ("access", "set", "*/wages.md", "--visibility", "restricted", "--allow", "group:hr"),
        *more,
    ):
        run = scripts.admin(*command, "--data", folder / "data")
        assert run.returncode == 0, run.stderr
