"""A desk in a real object store, Ceph's: copied, checked, searched, revoked, and copied by two at once."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from rag.home import WORDS
from tests import ceph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

    from tests.conftest import Scripts
    from tests.server.conftest import Remote, World

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
def copy(store: ceph.Ceph, scripts: Scripts, world: World) -> Callable[..., CompletedProcess[str]]:
    """Copy the world, or another folder, to the bucket."""

    def run(*flags: str, data: Path = world.data) -> CompletedProcess[str]:
        to = ("storage", "copy", "--to", store.uri, *flags)
        return scripts.admin(*to, "--data", data, env=store.environment())

    done = run()
    assert done.returncode == 0, done.stderr
    return run


def findings(scripts: Scripts, env: dict[str, str]) -> dict[str, tuple[str, str]]:
    done = scripts.admin("doctor", "storage", "--json", env=env)
    return {one["check"]: (one["state"], one["text"]) for one in json.loads(done.stdout)["findings"]}


@pytest.mark.usefixtures("copy")
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


def test_what_is_wrong_with_the_credentials_and_the_address_is_said(
    scripts: Scripts, store: ceph.Ceph, copy: Callable[..., CompletedProcess[str]]
) -> None:
    assert copy().returncode == 0
    for said, change in (
        (WORDS["SignatureDoesNotMatch"], {"AWS_SECRET_ACCESS_KEY": "wrong"}),
        (WORDS["InvalidAccessKeyId"], {"AWS_ACCESS_KEY_ID": "NOBODY"}),
        (WORDS["NoSuchBucket"], {"REFDESK_STORAGE_URI": "s3://no-such-bucket/desk"}),
        ("can't be reached", {"REFDESK_STORAGE_OPTIONS_ENDPOINT": "http://127.0.0.1:9"}),
    ):
        ((state, text),) = findings(scripts, store.serving | change).values()
        assert (state, said in text) == ("wrong", True), (said, text)
    refused = scripts.admin("storage", "copy", "--to", store.uri, env=store.environment("server"))
    assert refused.returncode != 0


@pytest.mark.anyio
@pytest.mark.usefixtures("copy")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_of_both_eras_search_it_by_a_server_that_can_only_read(
    listen: Callable[..., Remote], world: World, store: ceph.Ceph, mode: str
) -> None:
    remote = await anyio.to_thread.run_sync(lambda: listen(NOWHERE, more=store.serving))
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {world.ann}"}) as http,
        Client(streamable_http_client(remote.url, http_client=http), mode=mode) as client,
    ):
        for how in ("hybrid", "dense", "sparse", "exact"):
            found = await client.call_tool("search", {"query": "pendulum", "mode": how})
            assert found.structured_content
            hits = found.structured_content["results"]
            assert {hit["cite_as"] for hit in hits} == {"open", "secret"}, how
        opened = await client.call_tool("get_source", {"id": hits[0]["id"]})
        assert "A pendulum" in str(opened.structured_content)
    assert remote.titles(world.bob) == {"open"}
    assert remote.titles(world.eve) == {"theirs"}
    assert "only-for-reading" not in remote.noise.read_text()


def test_changed_documents_and_rights_count_after_a_copy_and_rights_alone_after_one_of_rights(
    listen: Callable[..., Remote],
    world: World,
    store: ceph.Ceph,
    copy: Callable[..., CompletedProcess[str]],
    admin: Callable[..., Any],
    tmp_path: Path,
) -> None:
    of_acorn = ("--tenant", "acorn", "--data", world.data)
    made = admin("key", "create", "--tenant", "acorn", "--user", "cat", "--group", "hr", "--data", world.data)
    late = tmp_path / "late.md"
    late.write_text("# late\n\nA pendulum, late.\n")
    admin("ingest", late, "--visibility", "tenant", *of_acorn)
    assert copy().returncode == 0
    remote = listen(NOWHERE, more=store.serving | EACH_REQUEST)
    assert remote.titles(made["key"]) == {"open", "secret", "late"}
    ids = {one["title"]: one["id"] for one in admin("sources", *of_acorn)["sources"]}
    admin("access", "revoke", ids["secret"], "--from", "group:hr", *of_acorn)
    admin("remove", ids["late"], *of_acorn)
    sent = copy("--access-only")
    assert "Copied the keys and rights" in sent.stdout
    assert "secret" not in remote.titles(made["key"])
    admin("key", "revoke", made["id"], "--data", world.data)
    admin("access", "grant", ids["secret"], "--to", "group:hr", *of_acorn)
    assert copy().returncode == 0
    assert remote.post(made["key"]).status_code == 401
    assert remote.titles(world.ann) == {"open", "secret"}


def test_of_two_machines_that_copy_at_once_the_later_wins_and_no_copy_is_torn(
    listen: Callable[..., Remote],
    world: World,
    store: ceph.Ceph,
    copy: Callable[..., CompletedProcess[str]],
    admin: Callable[..., Any],
    tmp_path: Path,
) -> None:
    other = shutil.copytree(world.data, tmp_path / "other")
    remote = listen(NOWHERE, more=store.serving | EACH_REQUEST)
    for number in range(ROUNDS):
        for data in (world.data, other):
            file = tmp_path / f"{data.name}-{number}.md"
            file.write_text(f"# {data.name}-{number}\n\nA pendulum.\n")
            admin("ingest", file, "--visibility", "tenant", "--tenant", "acorn", "--data", data)
        with ThreadPoolExecutor(2) as threads:
            copies = list(threads.map(lambda data: copy("--replace", data=data), (world.data, other)))
        for ended in copies:
            refused = any(said in ended.stderr for said in ("Another copy to", "anybody else write to it"))
            assert ended.returncode == 0 or refused, ended.stderr
        last = (world.data, other)[number % 2]
        assert copy("--replace", data=last).returncode == 0
        theirs = {f"{last.name}-{earlier}" for earlier in range(number + 1)}
        assert remote.titles(world.bob) == {"open"} | theirs
    assert copy("--replace", data=other).returncode == 0
    assert copy(data=other).stdout.splitlines()[-1].startswith("Sent 0, deleted 0;")
