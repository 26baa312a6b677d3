"""Servers see what refdesk-admin does in another process, without a restart and without waiting."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from rag.search.pipeline import NO_DOCUMENTS
from rag.store.write.desk_folder import prepare

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start, Wire

pytestmark = pytest.mark.slow

COLLECTION = {
    "ref": {"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}"},
    "argument": {"name": "collection", "value": ""},
}


def hits(wire: Wire, query: str) -> list[dict[str, Any]]:
    return list(wire.tool("search", {"query": query})["structuredContent"]["results"])


def test_a_desk_without_documents_says_so(scripts: Scripts, start: Start, tmp_path: Path) -> None:
    assert scripts.admin("tenant", "create", "acorn", "--data", tmp_path).returncode == 0
    wire = start(tmp_path, era="modern")
    wire.begin()
    found = wire.tool("search", {"query": "clock"})["structuredContent"]
    assert found["results"] == []
    assert found["notes"] == [NO_DOCUMENTS]
    assert wire.result("resources/list")["resources"] == []
    assert wire.result("completion/complete", COLLECTION)["completion"]["values"] == []
    assert wire.tool_error("get_source", {"id": "abc"}).startswith("Nothing readable")
    assert wire.leave() == 0
    assert wire.stderr() == ""


def test_documents_come_change_and_go_for_every_server_without_a_restart(
    scripts: Scripts, start: Start, tmp_path: Path
) -> None:
    data, texts = tmp_path / "data", tmp_path / "texts"
    prepare(data)
    texts.mkdir()
    (texts / "one.md").write_text("# Breakfast\n\nMarmalade is made of bitter oranges.\n")
    (texts / "two.md").write_text("# Tea\n\nTea is made of leaves.\n")
    wires = [start(data), start(data, era="modern")]
    for wire in wires:
        wire.begin()
        assert hits(wire, "marmalade") == []

    assert scripts.admin("ingest", texts, "--data", data).returncode == 0
    for wire in wires:
        first = hits(wire, "marmalade")[0]
        assert "bitter oranges" in first["text"]
        assert len(wire.result("resources/list")["resources"]) == 2
        assert wire.result("completion/complete", COLLECTION)["completion"]["values"] == ["documents"]

    (texts / "one.md").write_text("# Breakfast\n\nMarmalade is made of lemons, too.\n")
    (texts / "two.md").unlink()
    with subprocess.Popen(
        [scripts.folder / "refdesk-admin", "ingest", texts, "--data", data],
        env=scripts.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as ingesting:
        while ingesting.poll() is None:
            for wire in wires:
                assert "Marmalade" in hits(wire, "marmalade")[0]["text"]
    assert ingesting.returncode == 0
    for wire in wires:
        (only,) = hits(wire, "marmalade")
        assert "lemons" in only["text"]
        assert only["id"] == first["id"]
        assert len(wire.result("resources/list")["resources"]) == 1

    assert scripts.admin("remove", only["id"].partition("/")[0], "--data", data).returncode == 0
    for wire in wires:
        assert hits(wire, "marmalade") == []
        assert wire.tool_error("get_source", {"id": only["id"]}).startswith("Nothing readable")
        assert wire.error("resources/read", {"uri": f"refdesk://documents/{only['id']}"})["code"] == -32602
        assert wire.leave() == 0
        assert wire.stderr() == ""
