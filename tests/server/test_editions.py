"""Two editions of a handbook, as a host sees them: which answers first, and what tells when each is from."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from rag.search.pipeline import BY_FILES, DIFFERING, NEWER_EDITIONS, NEWEST, OF_VERSION, OF_YEARS
from rag.search.stages.reorder import UNDATED

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start, Wire

pytestmark = pytest.mark.slow

LEAVE = "# Leave\n\nEveryone has {} days of paid vacation a year. Tell your team before you are away.\n"
EXPENSES = "# Expenses\n\nExpenses up to {} pounds need no receipt. Send all others to the office.\n"
FEES = "# Tarifs\n\nEn vigueur du 1er mai {}\n\nUne entrée pour la piscine coûte {} euros par adulte.\n"
NOTES = "# Visitors\n\n{}Visitors sign in at the desk, and get badge {}.\n"


@pytest.fixture
def desk(scripts: Scripts, start: Start, tmp_path: Path) -> Wire:
    """Editions told apart by the year of their folder, by their own date, and by the times of their files."""
    docs = tmp_path / "docs"
    for year, days in ((2018, 15), (2023, 20)):
        folder = docs / f"handbook-{year}"
        folder.mkdir(parents=True)
        (folder / "leave.md").write_text(LEAVE.format(days))
    for name, day, pounds in (("a", "2018-04-01", 15), ("b", "2023-04-01", 75)):
        (docs / f"expenses-{name}.md").write_text(f"---\ndate: {day}\n---\n{EXPENSES.format(pounds)}")
    for name, year, badge in (("old", 2018, 7), ("new", 2023, 9)):
        (docs / name).mkdir()
        (docs / name / "visitors.md").write_text(NOTES.format("", badge))
        changed = datetime(year, 6, 1, tzinfo=UTC).timestamp()
        os.utime(docs / name / "visitors.md", (changed, changed))
    for name, validity, euros, saved in (
        ("Tarifs", "2018 au 30 avril 2023", 4, 2024),
        ("Tarifs (1)", "2023", 5, 2022),
    ):
        (docs / f"{name}.md").write_text(FEES.format(validity, euros))
        changed = datetime(saved, 6, 1, tzinfo=UTC).timestamp()  # the older edition was saved again
        os.utime(docs / f"{name}.md", (changed, changed))
    data = tmp_path / "data"
    scripts.admin("ingest", docs, "--data", data)
    return start(data, env={"REFDESK_SERVER_PROFILES": "default, fresh, precise"}).begun()


def _reply(desk: Wire, query: str, **arguments: object) -> dict[str, Any]:
    reply: dict[str, Any] = desk.tool("search", {"query": query, **arguments})["structuredContent"]
    return reply


QUESTIONS = {
    "How many days of paid vacation {}?": ("15 days", "20 days", "path"),
    "Up to how many pounds do expenses need no receipt {}?": ("15 pounds", "75 pounds", None),
    "Which badge do visitors get {}?": ("badge 7", "badge 9", "file"),
    "Entrée piscine, euros par adulte {}?": ("4 euros", "5 euros", "text"),
}


def test_the_edition_comes_first_that_a_question_asks_for(desk: Wire) -> None:
    for question, (old, new, told_by) in QUESTIONS.items():
        for time, answer, year, note in (
            ("now", new, "2023", NEWEST),
            ("in 2018", old, "2018", OF_YEARS.format(2018)),
            ("in 2020", old, "2018", OF_YEARS.format(2020)),
            ("in 2023", new, "2023", OF_YEARS.format(2023)),
        ):
            reply = _reply(desk, question.format(time))
            first = reply["results"][0]
            assert answer in first["text"], (question, time)
            assert first["date"][:4] == year
            assert first.get("date_from") == told_by
            notes = {f"{note} {BY_FILES}", *([] if told_by == "file" else [note])}
            assert set(reply["notes"]) <= notes  # visitors are among the others' hits
            for profile in ("fresh", "precise"):
                reply = _reply(desk, question.format(time), profile=profile)
                assert answer in reply["results"][0]["text"], (question, time, profile)
        replies = [_reply(desk, question.format(time)) for time in ("now", "in 2018")]
        assert any(reply["notes"] for reply in replies)  # one of both orders is not that of relevance
        plain = _reply(desk, question.format(""))  # they differ, so the newer one comes first
        assert new in plain["results"][0]["text"], question
        note = DIFFERING.format(NEWER_EDITIONS)
        assert set(plain["notes"]) <= {f"{note} {BY_FILES}", *([] if told_by == "file" else [note])}
        assert all(("date_from" in hit) == bool(told_by and plain["notes"]) for hit in plain["results"][:2])


def test_the_times_of_files_tell_nothing_of_a_version_that_a_question_names(
    scripts: Scripts, start: Start, tmp_path: Path
) -> None:
    for version in (1, 2):
        folder = tmp_path / "docs" / f"v{version}"
        folder.mkdir(parents=True)
        # The later version answers in fewer words, so it is the more relevant one.
        (folder / "leave.md").write_text(LEAVE.format(10 * version) + (2 - version) * "It is as it was. " * 9)
    data = tmp_path / "data"
    scripts.admin("ingest", tmp_path / "docs", "--data", data)
    reply = _reply(start(data).begun(), "days of paid vacation in version 1")
    assert "10 days" in reply["results"][0]["text"]
    assert reply["notes"] == [OF_VERSION]


def test_a_source_says_what_its_date_is_taken_from(desk: Wire) -> None:
    dates = {}
    for path in ("handbook-2018/leave.md", "expenses-a.md", "old/visitors.md", "Tarifs (1).md"):
        source = desk.tool("get_source", {"id": f"documents/{path}"})["structuredContent"]
        dates[path] = source["date"][:10], source.get("date_from")
    assert dates == {
        "handbook-2018/leave.md": ("2018", "path"),
        "expenses-a.md": ("2018-04-01", None),
        "old/visitors.md": ("2018-06-01", "file"),
        "Tarifs (1).md": ("2023-05-01", "text"),
    }


def test_profile_fresh_notes_that_no_date_tells_what_is_newer(
    scripts: Scripts, start: Start, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("a", "b"):
        (docs / f"{name}.md").write_text(NOTES.format(f"{name}: ", name))
        os.utime(docs / f"{name}.md", (1_700_000_000, 1_700_000_000))
    scripts.admin("ingest", docs, "--data", tmp_path / "data")
    wire = start(tmp_path / "data", env={"REFDESK_SERVER_PROFILES": "default, fresh"}).begun()
    assert _reply(wire, "visitors", profile="fresh")["notes"] == [UNDATED]
    assert not _reply(wire, "visitors", profile="default")["notes"]
