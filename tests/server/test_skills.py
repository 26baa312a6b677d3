"""The skill over MCP (SEP-2640): what clients that know the extension get, and that others notice nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from server.resources import NO_SKILL, ONE_PAGE, SKILLS
from tests.server.conftest import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Era, Message, Remote, Start, Wire

pytestmark = pytest.mark.slow

URI = "skill://refdesk/SKILL.md"
INVALID_PARAMS, NO_METHOD = -32602, -32601
TWO_TOOLS = """
[server]
name = "HR Desk"

[[server.tools]]
name = "search_rules"
opener = { name = "open_rule" }

[[server.tools]]
name = "search_letters"
opener = { name = "open_letter" }
"""


def verified(entry: Message, contents: list[Message]) -> str:
    """The text of a skill, checked as a host must check it before it loads a skill."""
    (content,) = contents
    (file,) = entry["resources"]
    assert (content["uri"], content["mimeType"]) == (entry["uri"], "text/markdown")
    assert file.keys() == {"uri", "digest", "size"}
    raw = content["text"].encode()
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    assert (file["uri"], file["digest"], file["size"]) == (entry["uri"], digest, len(raw))
    _, front, body = content["text"].split("---\n", 2)
    assert yaml.safe_load(front) == entry["frontmatter"]
    name = entry["frontmatter"]["name"]
    assert entry["uri"] == f"skill://{name}/SKILL.md"
    assert 0 < len(entry["frontmatter"]["description"]) <= 1024
    assert body
    return str(content["text"])


@pytest.fixture
def fresh(start: Start, tmp_path: Path) -> Callable[..., Wire]:
    def opened(era: Era, settings: str = "") -> Wire:
        config = tmp_path / "config.toml"
        config.write_text(settings)
        return start(tmp_path / "data", era=era, env={"REFDESK_CONFIG": str(config)}).begun()

    return opened


def test_clients_of_the_protocol_that_has_extensions_are_told_of_it(start: Start, tmp_path: Path) -> None:
    modern, legacy = (start(tmp_path, era=era).begin()["capabilities"] for era in ("modern", "legacy"))
    assert modern["extensions"] == {SKILLS: {}}
    assert "extensions" not in legacy
    assert "resources" in modern


def test_the_skill_is_listed_got_and_read_and_is_what_its_entry_says(wire: Wire) -> None:
    listed, document = wire.result("skills/list"), wire.result("skills/get", {"uri": URI})
    (entry,) = listed["skills"]
    assert document["skill"] == entry
    text = verified(entry, wire.result("resources/read", {"uri": URI})["contents"])
    assert "`search`" in text
    assert "`get_source`" in text
    caching = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    for result in (listed, document):
        assert "nextCursor" not in result
        assert {name: result[name] for name in caching if name in result} == (
            caching if wire.era == "modern" else {}
        )


@pytest.mark.parametrize("settings", ["", TWO_TOOLS])
def test_the_skill_is_the_text_that_the_command_prints(
    fresh: Callable[..., Wire], scripts: Scripts, tmp_path: Path, settings: str
) -> None:
    wire = fresh("modern", settings)
    (entry,) = wire.result("skills/list")["skills"]
    text = verified(entry, wire.result("resources/read", {"uri": entry["uri"]})["contents"])
    config = {"REFDESK_CONFIG": str(tmp_path / "config.toml")}
    name = "HR-Desk" if settings else "refdesk"
    printed = scripts.admin("connect", "--skill", "--name", name, env=config)
    assert printed.returncode == 0, printed.stderr
    assert text.replace("HR Desk", "HR-Desk") == printed.stdout
    assert entry["frontmatter"]["name"] == name.lower()


def test_the_skill_stands_in_no_list_of_resources_and_no_other_is_served(wire: Wire) -> None:
    for method in ("resources/list", "resources/templates/list"):
        assert "skill://" not in json.dumps(wire.result(method))
    for uri in ("skill://refdesk", "skill://refdesk/other.md", "skill://other/SKILL.md", f"{URI}/", "", "x"):
        error = wire.error("skills/get", {"uri": uri})
        assert (error["code"], error["message"]) == (INVALID_PARAMS, NO_SKILL)
        if uri:
            assert wire.error("resources/read", {"uri": uri})["code"] == INVALID_PARAMS
    assert wire.error("skills/get", {"uri": 5})["code"] == INVALID_PARAMS
    assert wire.error("skills/get")["code"] == INVALID_PARAMS
    assert wire.error("resources/directory/read", {"uri": "skill://refdesk"})["code"] == NO_METHOD
    assert wire.error("skills/list", {"cursor": "2"})["message"] == ONE_PAGE
    assert wire.result("skills/get", {"uri": URI})["skill"]


def post(remote: Remote, key: str, method: str, **params: object) -> Message:
    answer = remote.post(key, message(method, **params)).json()
    return dict(answer.get("result") or answer["error"])


def test_each_caller_is_taught_the_tools_that_it_may_call(
    admin: Admin, listen: Callable[..., Remote], tmp_path: Path
) -> None:
    config, earlier, data = tmp_path / "config.toml", tmp_path / "earlier.toml", tmp_path / "data"
    config.write_text(TWO_TOOLS)
    earlier.write_text('[[server.tools]]\nname = "search_gone"\n')
    (tmp_path / "a.md").write_text("# A\n\npendulum\n")
    admin("ingest", tmp_path / "a.md", "--data", data)

    def key(*options: str | Path) -> str:
        return str(admin("key", "create", "--user", "ann", *options, "--data", data)["key"])

    key_of_both = key()
    letters = key("--tool", "search_letters", "--config", config)
    none = key("--tool", "search_gone", "--config", earlier)
    remote = listen(data, more={"REFDESK_CONFIG": str(config)})
    texts = {}
    for name, bearer in (("both", key_of_both), ("letters", letters)):
        (entry,) = post(remote, bearer, "skills/list")["skills"]
        assert post(remote, bearer, "skills/get", uri=entry["uri"])["skill"] == entry
        texts[name] = verified(entry, post(remote, bearer, "resources/read", uri=entry["uri"])["contents"])
    assert [tool in texts["both"] for tool in ("search_rules", "open_letter")] == [True, True]
    assert [tool in texts["letters"] for tool in ("search_rules", "open_letter")] == [False, True]
    assert post(remote, none, "skills/list")["skills"] == []
    uri = "skill://hr-desk/SKILL.md"
    for method in ("skills/get", "resources/read"):
        assert post(remote, none, method, uri=uri)["message"] == NO_SKILL
    lines = [line for line in remote.log() if str(line.get("call")).startswith("skills/")]
    assert {(line["call"], line["outcome"]) for line in lines} == {
        ("skills/list", "answered"),
        ("skills/get", "answered"),
        ("skills/get", "not found"),
    }
