"""What a release is made of: every version that it runs with, by its hashes."""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = (ROOT / ".github" / "requirements.lock").read_text()
CONTRIBUTING = (ROOT / ".github" / "CONTRIBUTING.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUNS_WITH = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["otel"]]

PIN = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+)(?: ; [^\\\n]+?)?(?P<hashes>(?: \\\n +--hash=\S+)*)$",
    re.MULTILINE,
)


def pinned() -> dict[str, list[str]]:
    """The versions that are locked of each distribution; more than one where it depends on the platform."""
    versions = defaultdict(list)
    for pin in PIN.finditer(LOCK):
        versions[pin["name"]].append(pin["version"])
    return versions


@pytest.mark.parametrize("line", RUNS_WITH)
def test_what_the_project_asks_for_is_locked_within_its_bounds(line: str) -> None:
    asked = Requirement(line)
    versions = pinned()[canonicalize_name(asked.name)]
    assert versions, f"{line} is not locked; CONTRIBUTING.md says how, under Releasing"
    assert all(asked.specifier.contains(version) for version in versions)


def test_every_line_of_the_lock_is_a_version_with_its_hashes_and_where_it_is_from_is_not_said() -> None:
    lines = [line for line in PIN.sub("", LOCK).splitlines() if line.strip()]
    assert [line for line in lines if not line.lstrip().startswith("#")] == []
    hashes = [re.findall(r"--hash=(\S+)", pin["hashes"]) for pin in PIN.finditer(LOCK)]
    assert len(hashes) > len(RUNS_WITH)
    for of_one in hashes:
        assert of_one
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in of_one)
    assert "://" not in LOCK


def test_the_lock_holds_nothing_that_only_development_needs() -> None:
    assert pinned().keys() & {"mcp", "lancedb"}
    assert not pinned().keys() & {"pytest", "mypy", "ruff", "hatchling"}


def test_the_lock_was_made_by_the_command_that_is_documented() -> None:
    (made,) = re.findall(r"^# +(uv .*)$", LOCK, re.MULTILINE)
    (told,) = re.findall(r"^ +(uv pip compile .*)$", CONTRIBUTING, re.MULTILINE)
    assert made.replace(" --upgrade", "") == told.replace(" --upgrade", "")
