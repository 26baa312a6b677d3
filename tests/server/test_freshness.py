"""What changes while servers run: documents, the files that they came from, and a copy that goes on alone."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from rag.search.pipeline import NO_DOCUMENTS
from rag.store.write.desk_folder import prepare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Remote, Start, Wire, World

pytestmark = pytest.mark.slow


COLLECTION = {
    "ref": {"type": "ref/resource", "uri": "refdesk://{collection}/{source_id}"},
    "argument": {"name": "collection", "value": ""},
}


def hits(wire: Wire, query: str) -> list[dict[str, Any]]:
    return list(wire.tool("search", {"query": query})["structuredContent"]["results"])


def test_a_desk_without_documents_says_so(admin: Admin, start: Start, tmp_path: Path) -> None:
    admin("tenant", "create", "acorn", "--data", tmp_path)
    wire = start(tmp_path, era="modern").begun()
    reply = wire.tool("search", {"query": "clock"})["structuredContent"]
    assert reply["results"] == []
    assert reply["notes"] == [NO_DOCUMENTS]
    assert wire.result("resources/list")["resources"] == []
    assert wire.result("completion/complete", COLLECTION)["completion"]["values"] == []
    assert wire.tool_error("get_source", {"id": "abc"}).startswith("Nothing readable")
    assert wire.leave() == 0
    assert wire.stderr() == ""


def test_documents_come_change_and_go_for_every_server_without_a_restart(
    admin: Admin, scripts: Scripts, start: Start, tmp_path: Path
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

    admin("ingest", texts, "--data", data)
    for wire in wires:
        first = hits(wire, "marmalade")[0]
        assert "bitter oranges" in first["text"]
        assert len(wire.result("resources/list")["resources"]) == 2
        assert wire.result("completion/complete", COLLECTION)["completion"]["values"] == ["documents"]

    (texts / "one.md").write_text("# Breakfast\n\nMarmalade is made of lemons, too.\n")
    (texts / "two.md").unlink()
    ingesting = scripts.begin("ingest", texts, "--data", data)
    while ingesting.poll() is None:
        for wire in wires:
            assert "Marmalade" in hits(wire, "marmalade")[0]["text"]
    assert ingesting.returncode == 0
    for wire in wires:
        (only,) = hits(wire, "marmalade")
        assert "lemons" in only["text"]
        assert only["id"] == first["id"]
        assert len(wire.result("resources/list")["resources"]) == 1

    admin("remove", only["id"].partition("/")[0], "--data", data)
    for wire in wires:
        assert hits(wire, "marmalade") == []
        assert wire.tool_error("get_source", {"id": only["id"]}).startswith("Nothing readable")
        assert wire.error("resources/read", {"uri": f"refdesk://documents/{only['id']}"})["code"] == -32602
        assert wire.leave() == 0
        assert wire.stderr() == ""


TEXTS = {"kept.md": "pendulum kept", "hr/edited.md": "pendulum edited", "hr/removed.md": "pendulum removed"}


def _files(folder: Path) -> Path:
    for name, text in TEXTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + " clock\n")
    return folder


def _stale(wire: Wire) -> dict[str, str | None]:
    reply = wire.tool("search", {"query": "pendulum", "max_chars": 100_000})
    assert "/docs" not in str(reply)
    hits = reply["structuredContent"]["results"]
    for hit in hits:
        opened = wire.tool("get_source", {"id": hit["id"]})["structuredContent"]
        assert opened.get("stale") == hit.get("stale")
    return {hit["text"].split()[1]: hit.get("stale") for hit in hits}


def test_edits_and_removals_show_until_the_next_ingestion(
    admin: Admin, scripts: Scripts, start: Start, tmp_path: Path
) -> None:
    docs, data = _files(tmp_path / "docs"), tmp_path / "data"
    admin("ingest", docs, "--data", data)
    wire = start(data).begun()
    assert _stale(wire) == {"kept": None, "edited": None, "removed": None}
    edited = docs / "hr/edited.md"
    edited.write_text("pendulum edited a moment later\n")  # so soon, only its size can show it
    (docs / "hr/removed.md").unlink()
    os.utime(docs / "kept.md", (0, 0))  # only its time
    assert _stale(wire) == {"kept": "changed", "edited": "changed", "removed": "gone"}
    printed = scripts.admin("search", "pendulum", "--data", data).stdout
    assert printed.count("The file has changed since it was ingested.") == 2
    assert printed.count("The file has gone since it was ingested.") == 1
    admin("ingest", docs, "--data", data)
    assert _stale(wire) == {"kept": None, "edited": None}
    docs.rename(tmp_path / "elsewhere")  # as in a container where the folder is not mounted
    assert _stale(wire) == {"kept": None, "edited": None}
    docs.mkdir()
    assert _stale(wire) == {"kept": None, "edited": None}


def test_a_copy_serves_the_same_people_the_same_documents_whatever_was_revoked_since(
    admin: Admin, listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    restored = shutil.copytree(world.data, tmp_path / "restored")
    id_of_bob = world.bob.split("_")[1]
    admin("key", "revoke", id_of_bob, "--data", world.data)
    assert id_of_bob not in (world.data / "keys.json").read_text()
    remote = listen(restored)
    assert remote.titles(world.ann) == {"open", "secret"}
    assert remote.titles(world.bob) == {"open"}
    assert remote.titles(world.eve) == {"theirs"}

    restored.rename(tmp_path / "unmounted")
    assert remote.post(world.ann).status_code == 503  # nobody can tell, so no host asks for another key
    (tmp_path / "unmounted").rename(restored)
    assert remote.titles(world.ann) == {"open", "secret"}

    (restored / "keys.json").unlink()
    assert remote.post(world.ann).status_code == 401


def test_a_copy_is_gone_on_with_under_the_same_ids_if_it_has_the_key_to_them(
    admin: Admin, scripts: Scripts, world: World, tmp_path: Path
) -> None:
    paper = tmp_path / "more.md"
    paper.write_text("# more\n\nA pendulum.\n")
    admin("ingest", paper, "--tenant", "acorn", "--data", world.data)
    restored = shutil.copytree(world.data, tmp_path / "restored")
    before = admin("sources", "--tenant", "acorn", "--data", restored)
    paper.write_text("# more\n\nA pendulum, and more of it.\n")
    admin("ingest", paper, "--tenant", "acorn", "--data", restored)
    after = admin("sources", "--tenant", "acorn", "--data", restored)
    assert after != before
    assert ids(after) == ids(before) == ids(admin("sources", "--tenant", "acorn", "--data", world.data))

    (restored / "key").unlink()
    run = scripts.admin("ingest", paper, "--tenant", "acorn", "--data", restored)
    assert run.returncode == 2
    assert f"{restored / 'key'} can't be read" in run.stderr
    assert "Restore it" in run.stderr


def ids(listed: dict[str, Any]) -> list[str]:
    """The ids of the sources that `sources --json` lists."""
    return [source["id"] for source in listed["sources"]]
