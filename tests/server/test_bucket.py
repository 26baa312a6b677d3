"""Servers that read a desk in a bucket, which commands change in_bucket: same answers, never wider rights."""

from __future__ import annotations

import re
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from rag.home import Bucket
from rag.store.write.locks import leased
from tests import nginx
from tests.server.conftest import message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.bucket import ObjectStore
    from tests.server.conftest import Admin, Remote, Start, World

pytestmark = pytest.mark.slow


NOWHERE = Path("no-such-folder")
PATIENCE_SECONDS = 60  # far more than any bound here
EACH_REQUEST = {"REFDESK_STORAGE_CONSISTENCY_SECONDS": "0"}


@pytest.fixture(scope="module")
def first_copy(admin: Admin, world: World, buckets: ModuleType) -> dict[str, bytes]:
    """What a copy of the world, as it is before a test changes it, puts into a bucket: 500 requests."""
    with buckets.object_store() as store:
        to = ("storage", "copy", "--to", store.uri, "--data", world.data)
        admin(*to, env=store.environment)
        return dict(store.objects())


@pytest.fixture
def copied(first_copy: dict[str, bytes], object_store: ObjectStore) -> None:
    """The world is in the bucket."""
    object_store.fill(first_copy)


@pytest.fixture
def in_bucket(admin: Admin, object_store: ObjectStore, tmp_path: Path) -> Admin:
    """Run refdesk-admin on the desk in the bucket, from a machine that has nothing of it."""
    return partial(admin, env=object_store.serving | {"REFDESK_DATA": str(tmp_path / "machine")})


def id_of(title: str, listed: dict[str, Any]) -> str:
    (id_,) = [source["id"] for source in listed["sources"] if source["title"] == title]
    return str(id_)


def eventually(true: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_SECONDS
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    return true()


@pytest.mark.anyio
@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_of_both_eras_are_served_from_a_bucket_with_credentials_that_only_read(
    listen: Callable[..., Remote], world: World, object_store: ObjectStore, tmp_path: Path, mode: str
) -> None:
    object_store.requests.clear()
    object_store.read_only = True
    remote = await anyio.to_thread.run_sync(
        lambda: listen(tmp_path / NOWHERE, more=object_store.serving)  # a folder for itself only
    )
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {world.ann}"}) as http,
        Client(streamable_http_client(remote.url, http_client=http), mode=mode) as client,
    ):
        result = await client.call_tool("search", {"query": "pendulum"})
        assert result.structured_content
        hits = result.structured_content["results"]
        assert {hit["cite_as"] for hit in hits} == {"open", "secret"}
        opened = await client.call_tool("get_source", {"id": hits[0]["id"]})
        assert "A pendulum" in str(opened.structured_content)
        listed = (await client.list_resources()).resources
        assert {resource.title or resource.name for resource in listed} >= {"open", "secret"}
        document = await client.read_resource(f"refdesk://documents/{hits[0]['id']}")
        assert "A pendulum" in document.model_dump_json()
    assert object_store.requests["GET"] > 0
    assert set(object_store.requests) <= {"GET", "HEAD"}
    assert all("Credential=AKIATESTER" in signature for signature in object_store.signed_by)
    assert not (tmp_path / NOWHERE).exists()
    assert "very-secret-words" not in remote.noise.read_text()


@pytest.mark.usefixtures("copied")
def test_rights_in_a_bucket_are_those_of_the_folder(
    listen: Callable[..., Remote], world: World, object_store: ObjectStore
) -> None:
    remote = listen(NOWHERE, more=object_store.serving)
    assert remote.titles(world.ann) == {"open", "secret"}
    assert remote.titles(world.bob) == {"open"}
    assert remote.titles(world.eve) == {"theirs"}
    for key in (None, "rdk_00000000_x", world.ann + "x", world.ann[:-1]):
        assert remote.post(key).status_code == 401


@pytest.mark.usefixtures("copied")
def test_a_revoked_key_and_changed_rights_count_from_the_next_request_on(
    listen: Callable[..., Remote],
    world: World,
    object_store: ObjectStore,
    in_bucket: Admin,
    tmp_path: Path,
) -> None:
    of_acorn = ("--tenant", "acorn")
    key = in_bucket("key", "create", *of_acorn, "--user", "cat", "--group", "hr")
    remote = listen(NOWHERE, more=object_store.serving | EACH_REQUEST)
    assert remote.titles(key["key"]) == {"open", "secret"}
    secret = id_of("secret", in_bucket("sources", *of_acorn))
    in_bucket("access", "revoke", secret, "--from", "group:hr", *of_acorn)
    assert remote.titles(key["key"]) == remote.titles(world.ann) == {"open"}
    in_bucket("access", "grant", secret, "--to", "group:hr", *of_acorn)
    late = tmp_path / "late.md"
    late.write_text("# late\n\nA pendulum, late.\n")
    in_bucket("ingest", late, "--visibility", "tenant", *of_acorn)
    assert remote.titles(key["key"]) == {"open", "secret", "late"}
    in_bucket("remove", id_of("late", in_bucket("sources", *of_acorn)), *of_acorn)
    in_bucket("key", "revoke", key["id"])
    assert remote.post(key["key"]).status_code == 401
    assert remote.titles(world.ann) == {"open", "secret"}


@pytest.mark.usefixtures("copied")
def test_consistency_seconds_bounds_how_late_a_revoked_key_and_a_change_of_rights_count(
    listen: Callable[..., Remote],
    world: World,
    object_store: ObjectStore,
    in_bucket: Admin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also while the collection is being written."""
    of_birch = ("--tenant", "birch")
    key = in_bucket("key", "create", *of_birch, "--user", "cat")
    late, soon = (
        listen(NOWHERE, more=object_store.serving | {"REFDESK_STORAGE_CONSISTENCY_SECONDS": seconds})
        for seconds in ("600", "1")
    )
    assert late.titles(key["key"]) == soon.titles(key["key"]) == {"theirs"}
    (theirs,) = in_bucket("sources", *of_birch)["sources"]
    with leased(_bucket(object_store, monkeypatch), "birch.documents", seconds=0):
        in_bucket("access", "set", theirs["id"], "--allow", "user:ann", *of_birch)
        assert eventually(lambda: soon.titles(key["key"]) == set())
        assert late.titles(key["key"]) == {"theirs"}
        assert soon.titles(world.eve) == {"theirs"}
        in_bucket("access", "set", theirs["id"], "--visibility", "tenant", *of_birch)
        in_bucket("key", "revoke", key["id"])
        assert eventually(lambda: soon.post(key["key"]).status_code == 401)
        assert late.post(key["key"]).status_code == 200


def _bucket(store: ObjectStore, patch: pytest.MonkeyPatch) -> Bucket:
    for name, value in store.environment.items():
        patch.setenv(name, value)
    return Bucket(store.uri, {"endpoint": store.endpoint, "region": "us-east-1", "allow_http": "true"})


@pytest.mark.usefixtures("copied")
def test_while_the_store_does_not_answer_no_key_counts_and_nothing_old_is_shown(
    listen: Callable[..., Remote], world: World, object_store: ObjectStore
) -> None:
    remote = listen(NOWHERE, more=object_store.serving | {"REFDESK_STORAGE_CONSISTENCY_SECONDS": "1"})
    assert remote.titles(world.ann) == {"open", "secret"}
    object_store.down = True
    assert eventually(lambda: remote.post(world.ann).status_code == 503)
    refused = remote.post(world.ann)
    assert object_store.bucket not in refused.text
    assert remote.post("rdk_00000000_x").status_code in {401, 503}
    assert f"{object_store.uri} can't be read" in remote.noise.read_text()
    object_store.down = False
    assert eventually(lambda: remote.post(world.ann).status_code == 200)
    assert remote.titles(world.ann) == {"open", "secret"}


@pytest.mark.usefixtures("copied")
def test_while_the_store_is_slow_a_search_says_in_its_own_time_that_there_is_no_answer(
    listen: Callable[..., Remote], start: Start, world: World, object_store: ObjectStore
) -> None:
    limit = {"REFDESK_LIMITS_REQUEST_SECONDS": "5", "REFDESK_PRINCIPAL_TENANT": "acorn"}
    env = object_store.serving | EACH_REQUEST | limit
    remote, wire = listen(NOWHERE, more=env), start(NOWHERE, env=env)
    wire.begin()
    ask = {"name": "search", "arguments": {"query": "pendulum"}}
    request = message("tools/call", **ask)
    assert eventually(lambda: "result" in remote.post(world.ann, request).json())  # which loads the engine
    assert eventually(lambda: "result" in wire.request("tools/call", ask))
    object_store.slow = 3  # each of at least two requests, one after the other
    for refused in (wire.error("tools/call", ask), remote.post(world.ann, request).json()["error"]):
        assert refused["message"].startswith("The request was cancelled after 5 s.")
    assert httpx2.get(f"{remote.base}/healthz").status_code == 200
    object_store.slow = 0
    assert remote.titles(world.ann) == {"open", "secret"}
    assert wire.result("tools/call", ask)["structuredContent"]["results"]


@pytest.mark.usefixtures("copied")
def test_a_replica_starts_while_the_store_does_not_answer_and_is_ready_when_it_does(
    listen: Callable[..., Remote], world: World, object_store: ObjectStore
) -> None:
    object_store.down = True
    remote = listen(NOWHERE, more=object_store.serving, probe="/healthz")
    assert httpx2.get(f"{remote.base}/readyz", timeout=PATIENCE_SECONDS).status_code == 503
    assert f"{object_store.uri} can't be read" in remote.noise.read_text()
    assert "Traceback" not in remote.noise.read_text()
    object_store.down = False
    assert eventually(lambda: httpx2.get(f"{remote.base}/readyz", timeout=PATIENCE_SECONDS).is_success)
    assert remote.titles(world.ann) == {"open", "secret"}


@pytest.mark.usefixtures("copied")
def test_a_replica_that_is_ready_has_read_the_chunks_and_indexes_that_searches_need(
    listen: Callable[..., Remote], world: World, object_store: ObjectStore
) -> None:
    def chunk_paths() -> list[str]:
        parts = re.compile(r"/chunks__.*/(data|_indices)/|/_indices/")  # a small collection has no indexes
        return [path for path in object_store.paths if parts.search(path)]

    object_store.paths.clear()
    remote = listen(NOWHERE, more=object_store.serving)
    assert len(chunk_paths()) > 1
    object_store.paths.clear()
    assert remote.titles(world.ann) == {"open", "secret"}
    assert object_store.paths
    assert len(chunk_paths()) <= 1  # which chunks ann may see


@pytest.mark.usefixtures("copied")
def test_a_local_server_says_why_it_cannot_read_the_bucket_and_answers_when_it_can(
    start: Start, object_store: ObjectStore
) -> None:
    object_store.down = True
    env = object_store.serving | EACH_REQUEST | {"REFDESK_PRINCIPAL_TENANT": "acorn"}
    wire = start(NOWHERE, env=env).begun()
    assert wire.result("tools/list")["tools"]
    words = wire.tool_error("search", {"query": "pendulum"})
    assert "refdesk-admin doctor storage" in words
    assert object_store.uri in words
    assert "503" not in words
    object_store.down = False
    hits = wire.tool("search", {"query": "pendulum"})["structuredContent"]["results"]
    assert [hit["cite_as"] for hit in hits] == ["open"]
    object_store.down = True
    assert "refdesk-admin doctor storage" in wire.tool_error("search", {"query": "pendulum"})
    object_store.down = False
    assert wire.leave() == 0


@pytest.fixture
def cache(object_store: ObjectStore, tmp_path: Path) -> Iterator[str]:
    """The address of nginx."""
    with nginx.in_front_of(object_store, tmp_path) as address:
        yield address


@pytest.mark.nightly
@pytest.mark.usefixtures("copied")
def test_a_second_replica_reads_rows_and_indexes_from_the_cache_and_changes_from_the_bucket(
    cache: str,
    listen: Callable[..., Remote],
    world: World,
    object_store: ObjectStore,
    in_bucket: Admin,
) -> None:
    of_acorn = ("--tenant", "acorn")
    key = in_bucket("key", "create", *of_acorn, "--user", "cat", "--group", "hr")
    through = {
        "REFDESK_STORAGE_URI": object_store.uri,
        "REFDESK_STORAGE_CONSISTENCY_SECONDS": "1",
        "REFDESK_STORAGE_OPTIONS_ENDPOINT": cache,
        "REFDESK_STORAGE_OPTIONS_ALLOW_HTTP": "true",
        "REFDESK_STORAGE_OPTIONS_SKIP_SIGNATURE": "true",
    }
    object_store.paths.clear()
    first = listen(NOWHERE, more=through)
    assert first.titles(key["key"]) == {"open", "secret"}
    assert any(map(is_kept, object_store.paths))
    time.sleep(1)  # the copy of the rows in memory is made
    object_store.paths.clear()
    second = listen(NOWHERE, more=through)
    assert second.titles(key["key"]) == {"open", "secret"}
    assert object_store.paths
    assert not [path for path in object_store.paths if is_kept(path)]
    secret = id_of("secret", in_bucket("sources", *of_acorn))
    in_bucket("access", "revoke", secret, "--from", "group:hr", *of_acorn)
    time.sleep(1)
    assert [remote.titles(key["key"]) for remote in (first, second)] == [{"open"}] * 2
    in_bucket("access", "grant", secret, "--to", "group:hr", *of_acorn)
    in_bucket("key", "revoke", key["id"])
    time.sleep(1)
    assert [remote.post(key["key"]).status_code for remote in (first, second)] == [401] * 2
    assert [remote.titles(world.ann) for remote in (first, second)] == [{"open", "secret"}] * 2
    refused = httpx2.put(f"{cache}/{object_store.bucket}/desks/one/keys.json", content=b"{}")
    assert refused.status_code == 405


def is_kept(path: str) -> bool:
    return "/tables/" in path and ("/data/" in path or "/_indices/" in path)
