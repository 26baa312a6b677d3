"""A server and tenants with databases of their own: made while it runs, gone and back, and never mixed up."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.bucket import ObjectStore
    from tests.server.conftest import Admin, Remote, Start, World

pytestmark = pytest.mark.slow

EACH_REQUEST = {"REFDESK_STORAGE_CONSISTENCY_SECONDS": "0"}


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    file = tmp_path / "cedar.md"
    file.write_text("# cedar\n\nThe pendulum of cedar.\n")
    return file


@pytest.fixture(params=["folder", "bucket"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[str, dict[str, str], Callable[[bool], object]]:
    """An address, what a process needs to reach it, and what takes it away and back."""
    if request.param == "folder":
        folder, away = tmp_path / "cedar", tmp_path / "away"
        return str(folder), {}, lambda goes: shutil.move(*((folder, away) if goes else (away, folder)))
    store: ObjectStore = request.getfixturevalue("object_store")
    return store.uri, store.environment | EACH_REQUEST, lambda goes: setattr(store, "down", goes)


def refused(remote: Remote, key: str) -> str:
    """What the holder of a key reads in place of an answer."""
    result = remote.tool(key, "search", query="pendulum")
    assert result["isError"], result
    return str(result["content"][0]["text"])


def test_a_running_server_serves_a_new_tenant_loses_it_alone_and_has_it_back(
    listen: Callable[..., Remote],
    world: World,
    admin: Admin,
    paper: Path,
    storage: tuple[str, dict[str, str], Callable[[bool], object]],
) -> None:
    address, env, move = storage
    remote = listen(world.data, more=env)
    assert remote.titles(world.ann) == {"open", "secret"}
    desk = ("--tenant", "cedar", "--data", world.data)
    admin("tenant", "create", "cedar", "--storage", address, "--data", world.data, env=env)
    try:
        key = admin("key", "create", *desk, "--user", "ann", "--group", "hr", env=env)["key"]
        assert remote.titles(key) == set()
        admin("ingest", paper, *desk, "--visibility", "tenant", env=env)
        assert remote.titles(key) == {"cedar"}
        assert remote.titles(world.ann) == {"open", "secret"}
        assert remote.titles(world.eve) == {"theirs"}
        admin("access", "set", "cedar.md", *desk, "--allow", "user:bob", env=env)
        assert remote.titles(key) == set()
        admin("access", "set", "cedar.md", *desk, "--allow", "group:hr", env=env)
        assert remote.titles(key) == {"cedar"}

        move(True)  # noqa: FBT003
        words = refused(remote, key)
        assert address not in words
        assert "very-secret-words" not in words + remote.noise.read_text()
        assert address in remote.noise.read_text()  # the operator's
        assert remote.titles(world.ann) == {"open", "secret"}
        assert remote.titles(world.eve) == {"theirs"}
        move(False)  # noqa: FBT003
        assert remote.titles(key) == {"cedar"}
    finally:
        admin("tenant", "remove", "cedar", "--yes", "--data", world.data, env=env)
    assert remote.post(key).status_code == 401
    assert remote.titles(world.ann) == {"open", "secret"}


def test_a_name_that_comes_again_elsewhere_shows_only_what_is_there(
    listen: Callable[..., Remote], world: World, admin: Admin, paper: Path, tmp_path: Path
) -> None:
    remote, desk = listen(world.data), ("--tenant", "cedar", "--data", world.data)
    for number, storage in enumerate((("--storage", tmp_path / "one"), ("--storage", tmp_path / "two"), ())):
        admin("tenant", "create", "cedar", *storage, "--data", world.data)
        key = admin("key", "create", *desk, "--user", "ann")["key"]
        assert remote.titles(key) == set()
        paper.write_text(f"# cedar {number}\n\nThe pendulum.\n")
        admin("ingest", paper, *desk, "--visibility", "tenant")
        assert remote.titles(key) == {f"cedar {number}"}
        admin("tenant", "remove", "cedar", "--yes", "--data", world.data)


@pytest.mark.parametrize("with_overview", [True, False])
def test_a_host_on_the_machine_finds_the_documents_and_is_told_of_them(
    start: Start,
    admin: Admin,
    paper: Path,
    tmp_path: Path,
    storage: tuple[str, dict[str, str], Callable[[bool], object]],
    *,
    with_overview: bool,
) -> None:
    address, env, _ = storage
    data = tmp_path / "data"
    admin("tenant", "create", "cedar", "--storage", address, "--data", data, env=env)
    admin("ingest", paper, "--data", data, env=env)
    if not with_overview:
        shutil.rmtree(tmp_path / "cedar" / "overviews", ignore_errors=True)
    wire = start(data, era="modern", env=env).begun()
    tools = {tool["name"]: tool["description"] for tool in wire.result("tools/list")["tools"]}
    assert "documents" in tools["search"]
    hits = wire.tool("search", {"query": "pendulum"})["structuredContent"]["results"]
    assert [hit["cite_as"] for hit in hits] == ["cedar"]
