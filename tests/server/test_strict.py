"""With strict statistics the installed server says the same bytes, whatever there is that one may not see."""

from __future__ import annotations

import re
import shutil
from itertools import product
from typing import TYPE_CHECKING, get_args

import pytest

from rag.answers import Mode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start, Wire

pytestmark = pytest.mark.slow

QUERIES = (
    "who sold the time in London?",
    "leap second",
    "clock",
    "nothing that anybody wrote",
)
TIMES = re.compile(rb'(\\?"ms\\?":)[0-9.]+')


@pytest.fixture(scope="module")
def rooms(scripts: Scripts, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A desk with half of the demo corpus, and a copy of it that also holds the rest, for the board alone."""
    folder = tmp_path_factory.mktemp("rooms")
    alone, crowded = folder / "alone", folder / "crowded"
    files = sorted(corpus.iterdir())
    _run(scripts, alone, *files[::2])
    shutil.copytree(alone, crowded)
    board = ("--visibility", "restricted", "--allow", "group:board")
    _run(scripts, crowded, *files[1::2], *board)
    copies = shutil.copytree(corpus, folder / "copies")  # what is visible, again: equals everywhere
    _run(scripts, crowded, copies, *board)
    _run(scripts, crowded, files[1], "--collection", "vault", *board)
    return alone, crowded


def _run(scripts: Scripts, data: Path, *arguments: str | Path) -> None:
    done = scripts.admin("ingest", *arguments, "--data", data)
    assert done.returncode == 0, done.stderr


def _said(server: Wire) -> list[bytes]:
    """What a server answers to searches of all modes, without the times that their stages took."""
    server.begin()
    said = []
    for query, mode, limit in product(QUERIES, get_args(Mode), (3, 100)):
        asked = {"query": query, "mode": mode, "limit": limit, "explain": True, "max_chars": 100_000}
        server.send(1, "tools/call", {"name": "search", "arguments": asked})
        said.append(TIMES.sub(rb"\1", server.line()))
    return said


@pytest.mark.parametrize("statistics", ["strict", "collection"])
def test_answers_tell_of_hidden_documents_by_no_byte_if_statistics_are_strict_and_else_they_do(
    rooms: tuple[Path, Path], start: Start, statistics: str
) -> None:
    env = {"REFDESK_SEARCH_STATISTICS": statistics, "REFDESK_SERVER_EXPLAIN": "true"}
    alone, crowded = (_said(start(room, env=env)) for room in rooms)
    assert all(b'"isError":true' not in line for line in alone)
    assert (alone == crowded) is (statistics == "strict")
