"""The golden lists of tools in five configurations: each diff is a change of our public API.

With REGENERATE=1 in the environment, the lists are written instead of compared.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.server.conftest import Start

pytestmark = pytest.mark.slow

DATA = Path(__file__).parent / "data"
TWO_TOOLS = """
[[server.tools]]
name = "search_handbook"
title = "Search the handbook"
description = "Search the rules for employees that are in force."
opener = { name = "open_handbook", title = "Open the handbook", description = "Open a page of the handbook." }
collections = ["handbook"]
filter = { status = "final" }
profile = "precise"
limit = 5
arguments = ["limit", "mode"]

[[server.tools]]
name = "search_letters"
opener = { name = "open_letter" }
collections = ["letters"]
"""
EVERYTHING = """
[search]
overrides = [
  "mode", "limit", "fusion", "alpha", "candidates", "thresholds", "stages", "vectors", "distance"
]

[server]
profiles = ["default", "fast", "precise"]
explain = true
include_vectors = true
openai_compat = true
"""
CONFIGURATIONS: dict[str, tuple[str, bool]] = {
    "tools_list": ("", False),
    "tools_list_openai_compat": ("[server]\nopenai_compat = true\n", False),
    "tools_list_fields": ("", True),
    "tools_list_two_tools": (TWO_TOOLS, True),
    "tools_list_everything": (EVERYTHING, True),
}
"""By the name of the golden list: the settings, and whether there are collections with fields."""


@pytest.fixture(scope="module")
def library(admin: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two collections that declare a field of each type between them."""
    folder = tmp_path_factory.mktemp("library")
    declared = {
        "handbook": ["status=string", "year=integer", "tags=string list"],
        "letters": ["sent=datetime", "price=number", "final=boolean"],
    }
    for name, fields in declared.items():
        options = [part for field in fields for part in ("--field", field)]
        admin("collection", "create", name, *options, "--data", folder / "data")
        paper = folder / f"{name}.md"
        paper.write_text(f"---\nstatus: final\nyear: 2024\nsent: 2024-05-01\n---\n# {name}\n\npendulum\n")
        admin("ingest", paper, "--collection", name, "--data", folder / "data")
    return folder / "data"


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_list_of_tools_is_the_golden_one(start: Start, library: Path, tmp_path: Path, name: str) -> None:
    settings, with_fields = CONFIGURATIONS[name]
    config = tmp_path / "config.toml"
    config.write_text(settings)
    wire = start(library if with_fields else tmp_path / "data", env={"REFDESK_CONFIG": str(config)})
    wire.begin()
    listed = wire.result("tools/list")["tools"]
    golden = DATA / f"{name}.json"
    if os.environ.get("REGENERATE"):
        golden.write_text(json.dumps(listed, indent=2) + "\n")
    assert listed == json.loads(golden.read_text())
