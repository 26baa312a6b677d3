"""A bucket behind nginx, which keeps files that never change, configured as server/running.md shows it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests import nginx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bucket import ObjectStore
    from tests.conftest import Scripts
    from tests.server.conftest import Remote, World

pytestmark = pytest.mark.slow

NOWHERE = Path("no-such-folder")


@pytest.fixture
def cache(object_store: ObjectStore, tmp_path: Path) -> Iterator[str]:
    """The address of nginx."""
    with nginx.in_front_of(object_store, tmp_path) as address:
        yield address


@pytest.mark.nightly
def test_a_second_replica_reads_rows_and_indexes_from_the_cache_and_changes_from_the_bucket(
    cache: str,
    listen: Callable[..., Remote],
    world: World,
    object_store: ObjectStore,
    scripts: Scripts,
    admin: Callable[..., Any],
) -> None:
    def copied() -> None:
        to = ("storage", "copy", "--to", object_store.uri, "--data", world.data)
        done = scripts.admin(*to, env=object_store.environment)
        assert done.returncode == 0, done.stderr

    made = admin("key", "create", "--tenant", "acorn", "--user", "cat", "--group", "hr", "--data", world.data)
    copied()
    through = {
        "REFDESK_STORAGE_URI": object_store.uri,
        "REFDESK_STORAGE_CONSISTENCY_SECONDS": "1",
        "REFDESK_STORAGE_OPTIONS_ENDPOINT": cache,
        "REFDESK_STORAGE_OPTIONS_ALLOW_HTTP": "true",
        "REFDESK_STORAGE_OPTIONS_SKIP_SIGNATURE": "true",
    }
    object_store.paths.clear()
    first = listen(NOWHERE, more=through)
    assert first.titles(made["key"]) == {"open", "secret"}
    assert any(map(is_kept, object_store.paths))
    time.sleep(1)  # the copy of the rows in memory is made
    object_store.paths.clear()
    second = listen(NOWHERE, more=through)
    assert second.titles(made["key"]) == {"open", "secret"}
    assert object_store.paths
    assert not [path for path in object_store.paths if is_kept(path)]
    of_acorn = ("--tenant", "acorn", "--data", world.data)
    (secret,) = [one["id"] for one in admin("sources", *of_acorn)["sources"] if one["title"] == "secret"]
    admin("access", "revoke", secret, "--from", "group:hr", *of_acorn)
    copied()
    time.sleep(1)
    assert [one.titles(made["key"]) for one in (first, second)] == [{"open"}] * 2
    admin("access", "grant", secret, "--to", "group:hr", *of_acorn)
    admin("key", "revoke", made["id"], "--data", world.data)
    copied()
    time.sleep(1)
    assert [one.post(made["key"]).status_code for one in (first, second)] == [401] * 2
    assert [one.titles(world.ann) for one in (first, second)] == [{"open", "secret"}] * 2
    refused = httpx2.put(f"{cache}/{object_store.bucket}/desks/one/keys.json", content=b"{}")
    assert refused.status_code == 405


def is_kept(path: str) -> bool:
    return "/tables/" in path and ("/data/" in path or "/_indices/" in path)
