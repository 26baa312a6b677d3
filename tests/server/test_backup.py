"""A copy of the data folder is the whole desk of its day: documents, ids, rights and keys."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Remote, World

pytestmark = pytest.mark.slow


def test_a_copy_serves_the_same_people_the_same_documents_whatever_was_revoked_since(
    admin: Callable[..., Any], listen: Callable[..., Remote], world: World, tmp_path: Path
) -> None:
    restored = shutil.copytree(world.data, tmp_path / "restored")
    id_of_bob = world.bob.split("_")[1]
    admin("key", "revoke", id_of_bob, "--data", world.data)
    assert id_of_bob not in (world.data / "keys.json").read_text()
    remote = listen(restored)
    assert remote.titles(world.ann) == {"open", "secret"}
    assert remote.titles(world.bob) == {"open"}
    assert remote.titles(world.eve) == {"theirs"}

    (restored / "keys.json").unlink()
    assert remote.post(world.ann).status_code == 401


def test_a_copy_is_gone_on_with_under_the_same_ids_if_it_has_the_key_to_them(
    admin: Callable[..., Any], scripts: Scripts, world: World, tmp_path: Path
) -> None:
    restored, paper = shutil.copytree(world.data, tmp_path / "restored"), world.data.parent / "open.md"
    before = admin("sources", "--tenant", "acorn", "--data", restored)
    paper.write_text("# open\n\nA pendulum, open to all.\n")
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
