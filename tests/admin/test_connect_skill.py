"""The skill that connect --skill prints: what it names of the tools is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from rag.admin.connect.connect_output import skill
from rag.config.server_settings import ServerSettings
from rag.search.reply.search_reply import HitRecord, SearchReply
from rag.search.reply.source_reply import SourceReply

if TYPE_CHECKING:
    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "server" / "data" / "tools_list.json"
CODE = re.compile(r"`([^`]+)`")


@pytest.fixture
def tools() -> dict[str, Any]:
    """The tools that hosts see, by their names."""
    listed = json.loads(GOLDEN.read_text())
    return {tool["name"]: tool["inputSchema"]["properties"] for tool in listed}


def test_it_names_tools_arguments_and_parts_of_replies_that_exist(tools: dict[str, Any]) -> None:
    arguments = {name for properties in tools.values() for name in properties}
    replies = {name for reply in (HitRecord, SearchReply, SourceReply) for name in reply.model_fields}
    named = set(CODE.findall(skill("refdesk", ServerSettings())))
    assert {"search", "get_source", "query", "cite_as", "id", "next_start", "exact"} <= named
    assert named - tools.keys() - arguments - replies == {"exact"}
    assert "exact" in tools["search"]["mode"]["enum"]
    assert {"query", "limit", "collections", "sources", "filter", "mode"} <= tools["search"].keys()
    assert {"id", "outline", "section", "start"} <= tools["get_source"].keys()


def test_it_is_a_skill_of_at_most_60_lines(inside: Desk) -> None:
    text = inside.run("connect", "--skill", "--name", "hr-desk").stdout
    assert len(text.splitlines()) <= 60
    _, front, body = text.split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter.keys() == {"name", "description"}
    assert matter["name"] == "hr-desk"
    assert len(matter["description"]) < 1024  # as Claude Code's format has it
    assert body.startswith("\n# ")
    assert inside.json("connect", "--skill", "--name", "hr-desk")["skill"] == text


def test_it_names_the_desk_s_own_tools(inside: Desk, tmp_path: Path) -> None:
    config = tmp_path / "mine.toml"
    config.write_text(
        '[[server.tools]]\nname = "search_handbook"\nopener = { name = "open_handbook" }\n'
        '[[server.tools]]\nname = "search_tickets"\nopener = { name = "open_ticket" }\n'
    )
    text = inside.run("connect", "--skill", "--config", config).stdout
    assert "`search`" not in text
    assert "`get_source`" not in text
    assert "a tool `search_handbook`, which finds" in " ".join(text.split())
    assert text.endswith("In the same way, for other documents: `search_tickets` with `open_ticket`.\n")
