"""refdesk-admin search: for scripts the same records as the tool's, for people a page to read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from mcp import Client, StdioServerParameters

if TYPE_CHECKING:
    from tests.admin.conftest import Desk

KEYS = {"id", "uri", "source_id", "title", "collection", "indexed_at", "text", "score", "similarity"}
QUESTION = "How long was the year in which the calendar was reformed?"


@pytest.mark.anyio
async def test_scripts_get_the_same_records_as_assistants_in_every_mode(clock_desk: Desk) -> None:
    server = StdioServerParameters(
        command=clock_desk.scripts.server,
        args=["--data", str(clock_desk.data)],
        env=clock_desk.scripts.environment,
    )
    async with Client(server) as client:
        for mode in ("hybrid", "dense", "sparse"):
            asked = {"query": QUESTION, "mode": mode, "limit": 3, "max_chars": 100_000}
            result = await client.call_tool("search", asked)
            reply = clock_desk.json("search", QUESTION, "--mode", mode, "--limit", "3")
            assert reply == result.structured_content
            assert len(reply["results"]) == 3
            assert reply["notes"] == []


def test_a_record_says_what_was_found_and_where(clock_desk: Desk) -> None:
    (result,) = clock_desk.json("search", "5.1 seconds slow at Jamaica", "--limit", "1")["results"]
    assert set(result) > KEYS
    assert result["title"] == "The Longitude Problem: a short history of the marine chronometer"
    assert result["page"] == 4
    assert "5.1 seconds slow" in result["text"]
    assert result["id"].startswith(f"{result['source_id']}/")
    assert result["uri"] == f"refdesk://documents/{result['id']}"
    assert result["citation"] == f"[{result['id']}]"
    assert 0 < result["similarity"] <= 1
    assert 0 < result["score"] <= 1


def test_people_read_each_passage_under_its_place_and_citation(clock_desk: Desk) -> None:
    lines = clock_desk.run("search", "5.1 seconds slow at Jamaica", "--limit", "2").stdout.splitlines()
    assert lines[0] == "1. The Longitude Problem: a short history of the marine chronometer, p. 4"
    assert re.fullmatch(r"   \[[a-z2-7]{16}/\d+\]  score [01]\.\d{2}  similarity 0\.\d{3}", lines[1])
    assert any("5.1 seconds slow" in line for line in lines)
    assert sum(bool(re.match(r"\d\. ", line)) for line in lines) == 2
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in "".join(lines)


def test_a_context_is_one_text_for_a_prompt_with_its_citations(clock_desk: Desk) -> None:
    reply = clock_desk.json("search", QUESTION, "--limit", "3", "--context")
    assert all("text" not in result for result in reply["results"])
    cited = re.findall(r"^\[[a-z2-7]{16}/\d+\]$", reply["context"], re.MULTILINE)
    assert cited == [result["citation"] for result in reply["results"]]
    assert len(cited) == 3
    printed = clock_desk.run("search", QUESTION, "--limit", "3", "--context").stdout
    assert printed.startswith(f"{reply['context']}\n")


def test_an_empty_desk_says_so(desk: Desk) -> None:
    reply = desk.json("search", "anything")
    assert reply["results"] == []
    assert "no documents yet" in reply["notes"][0]
    assert not desk.data.exists()


def test_nothing_found_is_said_and_no_failure_and_the_settings_say_how_to_search(clock_desk: Desk) -> None:
    environment = {"REFDESK_DATA": str(clock_desk.data), "REFDESK_SEARCH_MODE": "sparse"}
    run = clock_desk.scripts.admin("search", "xyzzyplugh", env=environment)
    assert run.returncode == 0
    assert run.stdout.startswith("Note: No passage holds a word of the query")
    assert run.stderr == ""
