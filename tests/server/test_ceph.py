"""A desk in a real object store, Ceph's: moved there, checked, searched, and written by two at once."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from rag.home import WORDS
from tests import ceph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Remote, World

pytestmark = [pytest.mark.nightly, pytest.mark.slow]

NOWHERE = Path("no-such-folder")
EACH_REQUEST = {"REFDESK_STORAGE_CONSISTENCY_SECONDS": "0"}
ROUNDS = 5


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ceph.Ceph]:
    folder = tmp_path_factory.mktemp("ceph")
    with ceph.running(folder) as running:
        yield running
    shutil.rmtree(folder)  # a third of a gigabyte


@pytest.fixture(scope="module")
def copied(store: ceph.Ceph, admin: Admin, world: World) -> None:
    """The world has moved to the bucket."""
    to = ("storage", "copy", "--to", store.uri, "--verify", "--data", world.data)
    admin(*to, env=store.environment())


@pytest.fixture
def in_bucket(admin: Admin, store: ceph.Ceph, tmp_path: Path) -> Admin:
    """Run refdesk-admin on the desk in the bucket, from a machine that has nothing of it."""
    at = {"REFDESK_STORAGE_URI": store.uri, "REFDESK_DATA": str(tmp_path / "machine")}
    return partial(admin, env=store.environment() | at)


def findings(scripts: Scripts, env: dict[str, str]) -> dict[str, tuple[str, str]]:
    run = scripts.admin("doctor", "storage", "--json", env=env)
    return {
        finding["check"]: (finding["state"], finding["text"])
        for finding in json.loads(run.stdout)["findings"]
    }


@pytest.mark.usefixtures("copied")
def test_doctor_storage_finds_nothing_wrong_and_knows_who_can_write(
    scripts: Scripts, store: ceph.Ceph
) -> None:
    writers = findings(scripts, store.environment() | {"REFDESK_STORAGE_URI": store.uri})
    assert {check: state for check, (state, _) in writers.items()} == {
        "answers": "fine",
        "rights": "note",
        "clock": "fine",
        "read after write": "fine",
        "conditional writes": "fine",
        "desk": "fine",
    }
    readers = findings(scripts, store.serving)
    assert {check: state for check, (state, _) in readers.items()} == dict.fromkeys(
        ("answers", "rights", "desk"), "fine"
    )
    assert "can only read" in readers["rights"][1]


@pytest.mark.usefixtures("copied")
def test_doctor_storage_says_what_is_wrong_with_credentials_and_address(
    scripts: Scripts, store: ceph.Ceph
) -> None:
    for words, change in (
        (WORDS["SignatureDoesNotMatch"], {"AWS_SECRET_ACCESS_KEY": "wrong"}),
        (WORDS["InvalidAccessKeyId"], {"AWS_ACCESS_KEY_ID": "NOBODY"}),
        (WORDS["NoSuchBucket"], {"REFDESK_STORAGE_URI": "s3://no-such-bucket/desk"}),
        ("can't be reached", {"REFDESK_STORAGE_OPTIONS_ENDPOINT": "http://127.0.0.1:9"}),
    ):
        ((state, text),) = findings(scripts, store.serving | change).values()
        assert (state, words in text) == ("wrong", True), (words, text)
    refused = scripts.admin("storage", "copy", "--to", store.uri, env=store.environment("server"))
    assert refused.returncode != 0


@pytest.mark.anyio
@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_of_both_eras_search_a_bucket_by_a_server_that_can_only_read(
    listen: Callable[..., Remote], world: World, store: ceph.Ceph, mode: str
) -> None:
    remote = await anyio.to_thread.run_sync(lambda: listen(NOWHERE, more=store.serving))
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {world.ann}"}) as http,
        Client(streamable_http_client(remote.url, http_client=http), mode=mode) as client,
    ):
        for how in ("hybrid", "dense", "sparse", "exact"):
            result = await client.call_tool("search", {"query": "pendulum", "mode": how})
            assert result.structured_content
            hits = result.structured_content["results"]
            assert {hit["cite_as"] for hit in hits} == {"open", "secret"}, how
        opened = await client.call_tool("get_source", {"id": hits[0]["id"]})
        assert "A pendulum" in str(opened.structured_content)
    assert remote.titles(world.bob) == {"open"}
    assert remote.titles(world.eve) == {"theirs"}
    assert "only-for-reading" not in remote.noise.read_text()


@pytest.mark.usefixtures("copied")
def test_changed_documents_rights_and_keys_count_from_the_next_request_on(
    listen: Callable[..., Remote],
    world: World,
    store: ceph.Ceph,
    in_bucket: Admin,
    tmp_path: Path,
) -> None:
    of_acorn = ("--tenant", "acorn")
    key = in_bucket("key", "create", *of_acorn, "--user", "cat", "--group", "hr")
    late = tmp_path / "late.md"
    late.write_text("# late\n\nA pendulum, late.\n")
    in_bucket("ingest", late, "--visibility", "tenant", *of_acorn)
    remote = listen(NOWHERE, more=store.serving | EACH_REQUEST)
    assert remote.titles(key["key"]) == {"open", "secret", "late"}
    ids = {source["title"]: source["id"] for source in in_bucket("sources", *of_acorn)["sources"]}
    in_bucket("access", "revoke", ids["secret"], "--from", "group:hr", *of_acorn)
    in_bucket("remove", ids["late"], *of_acorn)
    assert remote.titles(key["key"]) == {"open"}
    in_bucket("access", "grant", ids["secret"], "--to", "group:hr", *of_acorn)
    in_bucket("key", "revoke", key["id"])
    assert remote.post(key["key"]).status_code == 401
    assert remote.titles(world.ann) == {"open", "secret"}


@pytest.mark.usefixtures("copied")
def test_of_two_commands_at_once_none_loses_what_the_other_one_did(
    listen: Callable[..., Remote], store: ceph.Ceph, in_bucket: Admin
) -> None:
    remote = listen(NOWHERE, more=store.serving | EACH_REQUEST)
    for number in range(ROUNDS):
        with ThreadPoolExecutor(2) as threads:
            users = [f"user{number}{letter}" for letter in "ab"]
            keys = list(
                threads.map(
                    lambda user: in_bucket("key", "create", "--tenant", "acorn", "--user", user), users
                )
            )
        stored = {key["id"] for key in in_bucket("key", "list")["keys"]}
        assert {key["id"] for key in keys} <= stored
        assert all(remote.titles(key["key"]) == {"open"} for key in keys)
