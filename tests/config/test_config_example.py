"""config.example.toml lists and explains every setting."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

from rag.access.rule import CredentialBoundTo
from rag.config.load import load_settings, setting_keys
from rag.config.origin_settings import ORIGINS
from rag.config.profiles import HitStage, ProfileSettings, QueryStage
from rag.config.server_settings import ClientSettings, ToolSettings
from rag.config.settings import SearchSettings, Settings

EXAMPLE = Path(__file__).resolve().parents[2] / "config.example.toml"


def test_the_example_equals_the_defaults() -> None:
    assert load_settings(EXAMPLE, {}) == Settings()


def test_the_example_names_every_setting_in_the_order_of_the_module() -> None:
    tables = ("filter", "profiles", "of_collections", "of_tenants", "urls")
    of_the_operator = {("search", table) for table in tables} | {("oauth", "scopes"), ("oauth", "clients")}
    keys = [keys for keys in _keys(_uncommented()) if keys[:2] not in of_the_operator]
    keys = [
        keys
        for keys in keys
        if keys[0] not in {"embedders", "origins", "retrievers"}
        and (keys[0] == "storage" or keys[1:2] != ("options",))
    ]
    assert keys == list(setting_keys())


def test_the_example_of_a_profile_is_valid_and_names_all_keys_that_a_profile_may_have() -> None:
    (profile,) = _uncommented()["search"]["profiles"].values()
    assert ProfileSettings.model_validate(profile)
    above = EXAMPLE.read_text().partition("# A profile has these keys of [search]: ")[2].partition(".\n")[0]
    assert set(re.findall(r"\w+", above)) - {"and"} == set(ProfileSettings.model_fields)


def test_the_examples_of_options_are_complete_and_valid() -> None:
    tables = _uncommented()
    settings = Settings.model_validate(
        {
            "embedder": {"provider": "openai", "model": "m", "options": tables["embedder"]["options"]},
            "chat": {"model": "m", "options": tables["chat"]["options"]},
            "reranker": {"provider": "tei", "base_url": "u", "options": tables["reranker"]["options"]},
        }
    )
    for name in ("embedder", "chat", "reranker"):
        options = getattr(settings, name).options
        assert set(type(options).model_fields) == set(tables[name]["options"])


def test_the_examples_of_origins_show_each_type_with_all_that_can_be_set() -> None:
    examples = _uncommented()["origins"].values()
    assert {table["type"] for table in examples} == ORIGINS.keys()
    shared = {"tenant", "collection", "visibility", "allow", "deny", "include", "exclude"}
    for table in examples:
        settings = {key: value for key, value in table.items() if (table["type"], key) != ("records", "file")}
        assert ORIGINS[table["type"]].model_validate_json(
            json.dumps(settings)
        )  # it has a command, so no file
        assert set(table) | shared == set(ORIGINS[table["type"]].model_fields)


def test_the_examples_of_a_tool_a_scope_and_a_client_show_all_that_can_be_set() -> None:
    example = _uncommented()
    (tool,) = example["server"]["tools"]
    settings = ToolSettings.model_validate(tool)
    assert settings.opener
    assert (set(tool), set(tool["opener"])) == (set(settings.model_dump()), set(settings.opener.model_dump()))
    (scope,) = example["oauth"]["scopes"].values()
    assert set(scope) == set(CredentialBoundTo.model_validate(scope).model_dump())
    (client,) = example["oauth"]["clients"].values()
    assert set(client) == set(ClientSettings.model_validate(client).model_dump())


def test_the_example_of_stages_shows_each_with_all_its_options() -> None:
    tables = _uncommented()["search"]["stages"]
    stages = SearchSettings.model_validate({"stages": tables}).stages
    assert [table["stage"] for table in tables] == [stage.stage for stage in stages]
    assert {type(stage) for stage in stages} == set(get_args(HitStage) + get_args(QueryStage))
    assert [set(table) for table in tables] == [set(stage.model_dump(by_alias=True)) for stage in stages]


def test_every_setting_is_explained_by_a_comment_above_it() -> None:
    lines = EXAMPLE.read_text().splitlines()
    for keys in setting_keys():
        at, *_ = [
            n
            for n, line in enumerate(lines)
            if line == f"# [[{'.'.join(keys)}]]"
            or (re.match(rf"(# )?{keys[-1]} = ", line) and _section(lines, n) == keys[:-1])
        ]
        above = lines[:at]
        while re.match(r"(# )?\w+ = ", above[-1]):  # one comment may explain several keys in a row
            above.pop()
        assert above[-1].startswith("#"), keys


def _uncommented() -> dict[str, Any]:
    return tomllib.loads(re.sub(r"^# (\w+ = |\[)", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE))


def _section(lines: list[str], at: int) -> tuple[str, ...]:
    headers = [line.strip("#[] ") for line in lines[:at] if line.startswith(("[", "# ["))]
    return tuple(headers[-1].split(".")) if headers else ()


def _keys(table: dict[str, object], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for key, value in table.items():
        paths += _keys(value, (*above, key)) if isinstance(value, dict) else [(*above, key)]
    return paths
