"""A tenant with a database of its own: all commands reach it, and nothing of it is elsewhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from rag.access.tenants import tenant_file
from rag.admin.bug_report import write_report
from rag.config.load import load_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.admin.conftest import Desk
    from tests.bucket import ObjectStore

pytestmark = pytest.mark.slow

WORD = "zanzibar"
TENANT = ("--tenant", "acme")


class KilledError(Exception):
    """Nothing of the command runs after it."""


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "theirs.md").write_text(f"# theirs\n\nThe pendulum of {WORD}.\n")
    return folder


@pytest.fixture
def ours(tmp_path: Path, inside: Desk) -> list[str]:
    """What the other tenant finds, which has its documents in the common database."""
    paper = tmp_path / "ours.md"
    paper.write_text("# ours\n\nOur pendulum.\n")
    inside.run("tenant", "create", "default")
    inside.run("ingest", paper, "--tenant", "default")
    return titles(inside, "default")


@pytest.fixture(params=["folder", "bucket"])
def storage(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: Desk
) -> str:
    """An empty folder or bucket, which the command can reach."""
    assert inside
    if request.param == "folder":
        return str(tmp_path / "storages" / "acme")
    store: ObjectStore = request.getfixturevalue("object_store")
    for name, value in (store.environment | {"REFDESK_STORAGE_CONSISTENCY_SECONDS": "0"}).items():
        monkeypatch.setenv(name, value)  # one process works as several
    return store.uri


def titles(desk: Desk, tenant: str) -> list[str]:
    return desk.titles("pendulum", "--tenant", tenant)


def in_storage(storage: str, request: pytest.FixtureRequest) -> list[str]:
    """The names of what a storage holds."""
    if "://" in storage:
        store: ObjectStore = request.getfixturevalue("object_store")
        return sorted(store.objects())
    return sorted(map(str, Path(storage).rglob("*")))


def test_every_command_reaches_its_documents_which_are_nowhere_else(
    inside: Desk, documents: Path, ours: list[str], storage: str, request: pytest.FixtureRequest
) -> None:
    tenant = inside.json("tenant", "create", "acme", "--storage", storage)
    assert tenant == {"name": "acme", "storage": storage}
    assert "already exists" in inside.misuse("tenant", "create", "acme", "--storage", storage)
    inside.run("ingest", documents, *TENANT)
    inside.run("collection", "set", "documents", *TENANT, "--description", f"About {WORD}")
    key = inside.json("key", "create", *TENANT, "--user", "ann")
    assert titles(inside, "acme") == ["theirs"]
    assert titles(inside, "default") == ours == ["ours"]

    (source,) = inside.sources(*TENANT)
    assert WORD in inside.json("source", source["id"], *TENANT)["text"]
    inside.run("access", "set", source["id"], "--allow", "user:ann", *TENANT)
    assert titles(inside, "acme") == []
    assert inside.hits("pendulum", *TENANT, "--user", "ann")
    inside.run("access", "set", source["id"], "--visibility", "tenant", *TENANT)
    assert [run["collection"] for run in inside.json("runs", *TENANT)["runs"]]
    assert inside.json("collection", "show", "documents", *TENANT)["description"] == f"About {WORD}"
    assert inside.json("status", *TENANT)["data"] == storage
    assert [size["documents"] for size in inside.json("status")["tenants"]] == [1, 1]
    assert inside.json("tenant", "list")["tenants"] == [
        {"name": "acme", "collections": ["documents"], "storage": storage},
        {"name": "default", "collections": ["documents"]},
    ]
    inside.run("config", "check")
    assert f"{storage}." in inside.run("tenant", "list").stdout

    assert not [path for path in (inside.data / "tables").iterdir() if "acme" in path.name]
    assert not inside.files_with(b"acme", "tables")
    assert not [file for file in inside.files_with(WORD.encode()) if file.name != "audit.jsonl"]
    assert any("acme" in name for name in in_storage(storage, request))

    (documents / "theirs.md").unlink()
    inside.run("ingest", documents, *TENANT, "--yes")
    inside.run("purge", *TENANT)
    assert titles(inside, "acme") == []
    assert key["id"] in {listed["id"] for listed in inside.json("key", "list")["keys"]}


def killed_at(
    step: str, monkeypatch: pytest.MonkeyPatch, inside: Desk, *arguments: str, storage: str = ""
) -> None:
    """Run a command on the tenant that is killed when it comes to a step."""

    def killed(*_arguments: object, **_more: object) -> None:
        raise KilledError

    options = ("--storage", storage) if storage else ("--yes",)
    with monkeypatch.context() as patch:
        patch.setattr(step, killed)
        with pytest.raises(KilledError):
            inside.run("tenant", *arguments, "acme", *options)


REMOVING = (
    "rag.store.write.change_collection.collection_tables.drop_tables",
    "rag.admin.tenant_command.forget_runs",
    "rag.store.write.desk_folder._delete_desk",
    "rag.admin.tenant_command.end_tenant",
)
"""The steps of a removal that is repeated by the same command, each time from the first step on."""


def test_a_removal_leaves_nothing_there_also_after_a_kill_and_no_other_tenant_is_touched(
    inside: Desk,
    documents: Path,
    ours: list[str],
    storage: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    inside.run("tenant", "create", "acme", "--storage", storage)
    inside.run("ingest", documents, *TENANT)
    inside.run("key", "create", *TENANT, "--user", "ann")
    for step in REMOVING:
        killed_at(step, monkeypatch, inside, "remove")
        assert titles(inside, "default") == ours, step
        assert {tenant["name"] for tenant in inside.json("tenant", "list")["tenants"]} == {"acme", "default"}
        assert not inside.json("key", "list")["keys"]
    inside.run("tenant", "remove", "acme", "--yes")
    assert in_storage(storage, request) == []
    assert not [file for file in inside.files_with(WORD.encode()) if file.name != "audit.jsonl"]
    inside.run("tenant", "create", "acme", "--storage", storage)  # free again
    killed_at("rag.admin.tenant_command.forget_owner", monkeypatch, inside, "remove")
    assert [tenant["name"] for tenant in inside.json("tenant", "list")["tenants"]] == ["default"]
    inside.run("tenant", "create", "acme", "--storage", storage)  # free, though its owner's note is there
    assert titles(inside, "acme") == []
    assert titles(inside, "default") == ours


CREATING = (
    "rag.store.write.desk_folder.prepare",
    "rag.store.write.desk_folder.note_tenant",
    "rag.store.write.make_collection.note_tenant",
)


def test_a_creation_that_was_killed_is_repeated_by_the_same_command(
    inside: Desk, documents: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in CREATING:
        killed_at(step, monkeypatch, inside, "create", storage=storage)
        refused = inside.run("tenant", "create", "other", "--storage", storage, code=2)
        assert "belongs to another tenant" in refused.stderr, step
    inside.run("tenant", "create", "acme", "--storage", storage)
    inside.run("ingest", documents, *TENANT)
    assert titles(inside, "acme") == ["theirs"]


def test_a_storage_that_isn_t_free_and_apart_is_refused_and_makes_no_tenant(
    inside: Desk, tmp_path: Path, storage: str, desk_at: Callable[[Path], Desk]
) -> None:
    inside.run("tenant", "create", "acme", "--storage", storage)
    second_desk = tmp_path / "other"
    desk_at(second_desk).run("tenant", "create", "theirs")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.md").touch()
    (tmp_path / "link").symlink_to(inside.data)
    refused = {
        storage: "belongs to another tenant",
        f"{storage}/": "belongs to another tenant",
        f"{storage}/inner": "is a desk, and",
        str(inside.data): "is a desk, and",
        str(inside.data / "inner"): "is a desk, and",
        str(tmp_path / "link" / "inner"): "is a desk, and",
        str(tmp_path): "is a desk, and",
        str(second_desk / "inner"): "is a desk, and",
        str(second_desk): "is not empty",
        str(tmp_path / "full"): "is not empty",
        "": "is the path of a folder",
        "db://acme": "is the path of a folder",
        "s3://AKIA:very-secret-words@bucket/acme": "is the path of a folder",
    }
    for address, why in refused.items():
        run = inside.run("tenant", "create", "second", "--storage", address, code=2)
        assert why in run.stderr, address
        assert "very-secret-words" not in run.stderr
    assert [tenant["name"] for tenant in inside.json("tenant", "list")["tenants"]] == ["acme"]
    inside.run("tenant", "create", "second", "--storage", tmp_path / "tenants" / "second")


def test_a_tenant_whose_storage_is_gone_fails_alone_and_comes_back_with_it(
    inside: Desk, documents: Path, ours: list[str], storage: str, request: pytest.FixtureRequest
) -> None:
    inside.run("tenant", "create", "acme", "--storage", storage)
    inside.run("ingest", documents, *TENANT)
    store: ObjectStore | None = request.getfixturevalue("object_store") if "://" in storage else None

    def move(away: bool) -> None:  # noqa: FBT001
        if store:
            store.down = away
        else:
            shutil.move(*((storage, f"{storage}.away") if away else (f"{storage}.away", storage)))

    move(away=True)
    for command in (
        ("search", "pendulum"),
        ("ingest", documents),
        ("sources",),
        ("access", "show", "theirs.md"),
        ("purge",),
    ):
        run = inside.run(*command, *TENANT, code=1)
        assert storage in run.stderr
        assert "very-secret-words" not in run.stderr + run.stdout
    assert storage in inside.failure("tenant", "remove", "acme", "--yes")
    assert titles(inside, "default") == ours
    acme, default = inside.json("status")["tenants"]
    assert (default["documents"], default["failed"]) == (1, [])
    assert storage in acme["failed"][0]
    assert storage in inside.json("tenant", "list")["tenants"][0]["problem"]
    assert storage in inside.run("doctor", code=1).stdout
    move(away=False)
    assert titles(inside, "acme") == ["theirs"]
    assert inside.json("status")["tenants"][0]["failed"] == []

    move(away=True)
    assert "no storage of its own" in inside.misuse(
        "tenant", "remove", "default", "--yes", "--without-storage"
    )
    inside.run("tenant", "remove", "acme", "--yes", "--without-storage")
    assert [tenant["name"] for tenant in inside.json("tenant", "list")["tenants"]] == ["default"]
    move(away=False)
    assert in_storage(storage, request)  # as the option says


def test_a_record_that_names_the_storage_of_another_tenant_opens_nothing(
    inside: Desk, documents: Path, storage: str, tmp_path: Path
) -> None:
    inside.run("tenant", "create", "acme", "--storage", storage)
    inside.run("ingest", documents, *TENANT)
    inside.run("tenant", "create", "eve", "--storage", tmp_path / "eve")
    tenant_file(inside.data, "eve").write_text(storage)
    assert "another owner" in inside.failure("search", "pendulum", "--tenant", "eve")
    assert "another owner" in inside.failure("tenant", "remove", "eve", "--yes")
    assert titles(inside, "acme") == ["theirs"]


def test_a_backup_has_its_keys_and_comes_back_into_its_own_folder(
    inside: Desk, documents: Path, ours: list[str], tmp_path: Path
) -> None:
    folder, file = tmp_path / "acme", tmp_path / "acme.backup"
    inside.run("tenant", "create", "acme", "--storage", folder)
    inside.run("ingest", documents, *TENANT)
    key = inside.json("key", "create", *TENANT, "--user", "ann")["id"]
    assert inside.json("backup", file, *TENANT)["keys"] == 1
    inside.run("collection", "remove", "documents", *TENANT, "--yes")
    assert titles(inside, "acme") == []
    inside.run("restore", file)
    assert titles(inside, "acme") == ["theirs"]
    assert [listed["id"] for listed in inside.json("key", "list")["keys"]] == [key]
    assert titles(inside, "default") == ours
    inside.run("restore", file, "--as", "third")
    assert titles(inside, "third") == ["theirs"]
    assert titles(inside, "acme") == ["theirs"]


def test_the_first_restore_into_the_common_database_leaves_storages_to_their_owners(
    inside: Desk, documents: Path, tmp_path: Path
) -> None:
    inside.run("tenant", "create", "acme", "--storage", tmp_path / "acme")
    inside.run("ingest", documents, *TENANT)
    inside.run("backup", tmp_path / "acme.backup", *TENANT)
    inside.run("restore", tmp_path / "acme.backup", "--as", "copy")
    assert titles(inside, "copy") == titles(inside, "acme") == ["theirs"]


def test_a_tenant_in_a_bucket_is_backed_up_and_restored_there_or_in_the_common_folder(
    inside: Desk, documents: Path, object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    inside.run("tenant", "create", "acme", "--storage", object_store.uri)
    inside.run("ingest", documents, *TENANT)
    inside.run("backup", tmp_path / "acme.backup", *TENANT)
    inside.run("restore", tmp_path / "acme.backup", "--as", "copy")
    assert titles(inside, "copy") == ["theirs"]
    inside.run("remove", documents / "theirs.md", *TENANT)
    assert titles(inside, "acme") == []
    inside.run("restore", tmp_path / "acme.backup", "--yes")
    assert titles(inside, "acme") == ["theirs"]
    assert inside.json("doctor", "storage")["storage"] == object_store.uri


def test_a_desk_moves_to_a_bucket_with_tenants_in_buckets_and_not_with_those_in_folders(
    inside: Desk,
    documents: Path,
    ours: list[str],
    object_store: ObjectStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    inside.run("tenant", "create", "acme", "--storage", object_store.uri)
    inside.run("ingest", documents, *TENANT)
    inside.run("tenant", "create", "local", "--storage", tmp_path / "local")
    to = f"s3://{object_store.bucket}/common"
    assert "tenant remove local --yes" in inside.misuse("storage", "copy", "--to", to)
    inside.run("tenant", "remove", "local", "--yes")
    assert inside.json("storage", "copy", "--to", to)["storages"] == {"acme": object_store.uri}
    monkeypatch.setenv("REFDESK_STORAGE_URI", to)
    assert titles(inside, "acme") == ["theirs"]
    assert titles(inside, "default") == ours
    refused = inside.run("tenant", "create", "local", "--storage", tmp_path / "local", code=2)
    assert "is a folder of this machine" in refused.stderr
    inside.run("tenant", "remove", "acme", "--yes")
    assert not [name for name in object_store.objects() if name.startswith("desks/")]


def test_a_tenant_s_storage_is_no_document_and_no_desk_for_other_tenants(
    inside: Desk, documents: Path, desk_at: Callable[[Path], Desk]
) -> None:
    storage = documents / "storage"
    inside.run("tenant", "create", "acme", "--storage", storage)
    inside.run("ingest", documents, *TENANT)
    inside.run("tenant", "create", "default")
    inside.run("ingest", documents, "--tenant", "default")
    assert titles(inside, "default") == ["theirs"]
    assert len(inside.sources("--tenant", "default")) == 1
    apart = desk_at(storage)
    assert apart.titles("pendulum") == ["theirs"]
    assert "is the storage of a tenant" in apart.misuse("tenant", "create", "second")


def test_a_bug_report_has_the_runs_of_a_tenant_in_its_own_storage(
    inside: Desk, documents: Path, storage: str, tmp_path: Path
) -> None:
    inside.run("tenant", "create", "acme", "--storage", storage)
    inside.run("ingest", documents)
    report = tmp_path / "report.md"
    settings = load_settings(None, os.environ, {"data": inside.data})
    anyio.run(write_report, report, settings, tmp_path / "config.toml", [])
    assert ', complete, {"' in report.read_text().partition("## The last ingestions")[2]
