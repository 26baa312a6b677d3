"""refdesk-admin tenant: bodies of documents that don't see each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.admin.conftest import Desk

pytestmark = pytest.mark.slow


def _paper(folder: Path, name: str, text: str) -> Path:
    file = folder / f"{name}.md"
    file.write_text(f"# {name}\n\n{text}\n")
    return file


def test_tenants_are_made_filled_listed_and_removed_each_by_itself(desk: Desk, tmp_path: Path) -> None:
    assert "no tenants yet" in desk.run("tenant", "list").stdout
    ours, theirs = _paper(tmp_path, "ours", "pendulum"), _paper(tmp_path, "theirs", "pendulum")
    desk.run("ingest", ours)
    assert desk.json("tenant", "list") == {"tenants": [{"name": "default", "collections": ["documents"]}]}

    assert "no tenant 'acme'" in desk.run("ingest", theirs, "--tenant", "acme", code=2).stderr
    desk.run("tenant", "create", "acme")
    assert "The tenant 'acme' already exists" in desk.run("tenant", "create", "acme", code=2).stderr
    assert "is not a valid name" in desk.run("tenant", "create", "a__b", code=2).stderr
    desk.run("ingest", theirs, "--tenant", "acme")

    assert "Name one" in desk.run("search", "pendulum", code=2).stderr
    for tenant, title in [("default", "ours"), ("acme", "theirs")]:
        found = desk.json("search", "pendulum", "--tenant", tenant)["results"]
        assert [hit["title"] for hit in found] == [title]
        assert [one["title"] for one in desk.json("sources", "--tenant", tenant)["sources"]] == [title]
    assert desk.run("tenant", "list").stdout.splitlines() == [
        "TENANT   COLLECTIONS",
        "acme     documents",
        "default  documents",
    ]

    assert "--yes" in desk.run("tenant", "remove", "acme", code=2).stderr
    assert desk.json("tenant", "remove", "acme", "--yes") == {"removed": "acme", "collections": ["documents"]}
    assert "no tenant 'acme'" in desk.run("tenant", "remove", "acme", "--yes", code=1).stderr
    assert not [path for path in desk.data.rglob("*") if "acme" in path.name and path.suffix != ".lock"]
    assert [hit["title"] for hit in desk.json("search", "pendulum")["results"]] == ["ours"]


def test_the_first_tenant_can_be_named_in_the_settings(desk: Desk, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[principal]\ntenant = "acme"\n')
    desk.run("ingest", _paper(tmp_path, "ours", "pendulum"), "--config", config)
    assert [one["name"] for one in desk.json("tenant", "list")["tenants"]] == ["acme"]
    assert desk.json("search", "pendulum")["results"]
