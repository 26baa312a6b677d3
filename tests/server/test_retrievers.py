"""The example of rag/search/README.md: somebody's own search engine, as an assistant sees and asks it."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag.search.overview import RETRIEVED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Scripts
    from tests.server.conftest import Start, Wire

pytestmark = pytest.mark.slow

PAGE = Path(__file__).resolve().parents[2] / "rag" / "search" / "README.md"
TICKETS = [
    ("T-1", "Printer jams", "The printer in the hall jams.", "ann"),
    ("T-2", "Salaries", "The printer of the board prints salaries.", "bob"),
]


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The module and the settings as written there, but for the path of the database, and the database."""
    page = PAGE.read_text(encoding="utf-8")
    section = page.partition("## A retriever of your own")[2]
    code, settings = re.findall(r"```(?:python|toml)\n(.*?)```", section, re.DOTALL)[:2]
    (tmp_path / "my_tickets.py").write_text(code)
    file = tmp_path / "tickets.db"
    with sqlite3.connect(file) as database:
        database.execute(
            "CREATE VIRTUAL TABLE tickets USING fts5(id UNINDEXED, title, text, reader UNINDEXED)"
        )
        database.executemany("INSERT INTO tickets VALUES (?, ?, ?, ?)", TICKETS)
    config = tmp_path / "refdesk.toml"
    described = settings.replace("/srv/tickets.db", str(file)) + 'description = "Open tickets."\n'
    config.write_text(f'[principal]\nuser = "ann"\n{described}')
    return config


@pytest.fixture
def served(example: Path, scripts: Scripts, start: Start, tmp_path: Path) -> Callable[[], Wire]:
    """A server with the example beside a collection of one document."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The printer manual.\n")
    data = tmp_path / "data"
    scripts.admin("ingest", tmp_path / "docs", "--data", data)

    def begun() -> Wire:
        return start(data, env={"PYTHONPATH": str(example.parent), "REFDESK_CONFIG": str(example)}).begun()

    return begun


def test_the_example_of_the_page_answers_within_the_rights_and_is_seen_like_other_collections(
    served: Callable[[], Wire],
) -> None:
    wire = served()
    listed = {tool["name"]: tool for tool in wire.result("tools/list")["tools"]}
    assert f"- tickets: Open tickets. {RETRIEVED}." in listed["search"]["description"]
    reply = wire.tool("search", {"query": "printer"})["structuredContent"]
    assert {hit["collection"] for hit in reply["results"]} == {"documents", "tickets"}
    assert "salaries" not in str(reply)
    assert reply["notes"] == []
    only = wire.tool("search", {"query": "printer", "collections": ["tickets"]})["structuredContent"]
    (hit,) = only["results"]
    assert hit["text"] == TICKETS[0][2]
    entries = wire.tool("get_source", {"id": ""})["structuredContent"]["entries"]
    assert [(entry["name"], entry.get("documents")) for entry in entries] == [
        ("documents/", 1),
        ("tickets/", None),
    ]
    assert wire.leave() == 0
    assert (
        wire.stderr() == ""
    )  # nor does it say that it serves this host alone: code of one's own can share a desk


def test_what_a_retriever_raised_stands_in_the_log_without_the_query(
    example: Path, served: Callable[[], Wire]
) -> None:
    module = example.parent / "my_tickets.py"
    module.write_text(module.read_text().replace("return [", "raise ValueError(query)\n        return ["))
    wire = served()
    reply = wire.tool("search", {"query": "printer xk42"})["structuredContent"]
    assert reply["degraded"] == ["collections"]
    assert wire.leave() == 0
    logged = wire.stderr()
    assert "tickets raised ValueError" in logged
    assert "my_tickets.py" in logged
    assert "xk42" not in logged
