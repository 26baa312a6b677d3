"""Backups: what comes back, for whom, and what nobody gets back without asking for it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag.store.care import tenant_backup
from tests.admin.three_documents import ingest_documents, titles, write_documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.admin.conftest import Desk
    from tests.conftest import Scripts, SmallDisk

pytestmark = pytest.mark.slow


def records(desk: Desk, *options: str) -> str:
    return desk.run("access", "show", "*", *options).stdout


def beside(desk: Desk, name: str) -> Desk:
    return replace(desk, data=desk.data.parent / name)


@pytest.fixture(scope="module")
def base(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents, a data folder with them and a key, of which one is for a group only, and its backup."""
    folder = tmp_path_factory.mktemp("base")
    ingest_documents(scripts, folder, ("key", "create", "--user", "ann"), ("backup", folder / "desk.tar"))
    return folder


@pytest.fixture
def docs(base: Path) -> Path:
    write_documents(base / "docs")
    return base / "docs"


@pytest.fixture
def backup(inside: Desk, base: Path, tmp_path: Path) -> Path:
    """A backup of the desk of `inside`."""
    shutil.copytree(base / "data", inside.data)
    return Path(shutil.copy2(base / "desk.tar", tmp_path))


def test_a_backup_follows_a_link_and_replaces_no_device(inside: Desk, backup: Path, tmp_path: Path) -> None:
    (tmp_path / "latest.tar").symlink_to(backup)
    backup.write_bytes(b"an older one")
    inside.run("backup", tmp_path / "latest.tar", "--yes")
    assert (tmp_path / "latest.tar").is_symlink()
    assert tarfile.is_tarfile(backup)
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in inside.misuse("backup", tmp_path / "pipe", "--yes")
    assert (tmp_path / "pipe").is_fifo()


def test_a_backup_in_an_empty_folder_is_the_same_desk(inside: Desk, backup: Path, docs: Path) -> None:
    new = beside(inside, "new")
    report = new.json("restore", backup)
    assert report["collections"] == {"documents": 3}
    assert [report[name] for name in ("narrowed", "returned", "purged", "dropped", "others")] == [[]] * 5
    assert new.json("sources") == inside.json("sources")
    assert records(new) == records(inside)
    assert new.json("key", "list") == inside.json("key", "list")
    assert titles(new) == {"leave", "travel"}
    assert titles(new, "--group", "hr") == {"leave", "travel", "wages"}
    assert new.json("ingest", docs)["counts"]["unchanged"] == 3
    (docs / "later.md").write_text("# later\n\nA later pendulum.\n")
    assert new.json("ingest", docs)["counts"]["added"] == 1


def test_a_backup_is_private_and_can_be_read_with_tar_and_json(inside: Desk, backup: Path) -> None:
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    with tarfile.open(backup) as archive:
        names = archive.getnames()
        about = json.load(archive.extractfile("backup.json"))  # type: ignore[arg-type]
    assert about["tenant"] == "default"
    assert [collection["name"] for collection in about["collections"]] == ["documents"]
    assert names[-1] == "checksums.json"
    assert [path for path in backup.parent.iterdir() if path.name.startswith(".desk")] == []
    assert "already exists" in inside.misuse("backup", backup)
    inside.run("backup", backup, "--yes")
    assert "is in the data folder" in inside.misuse("backup", inside.data / "x.tar")


def test_what_was_narrowed_since_stays_narrow_unless_the_backup_is_asked_for_exactly(
    inside: Desk, backup: Path
) -> None:
    inside.run("access", "revoke", "*/leave.md", "--from", "user:bob")
    inside.run("access", "set", "*/wages.md", "--visibility", "tenant")  # wider since
    before = inside.misuse("restore", backup)
    assert "already has the collections of the backup: documents. Add --yes" in before
    report = inside.json("restore", backup, "--yes")
    assert [name.rpartition("/")[2] for name in report["narrowed"]] == ["leave.md"]
    assert titles(inside, "--user", "bob") == {"travel"}
    assert titles(inside, "--user", "ann") == {"leave", "travel"}
    assert titles(inside, "--group", "hr") == {"leave", "travel", "wages"}
    report = inside.json("restore", backup, "--yes", "--exact")
    assert report["narrowed"] == []
    assert titles(inside, "--user", "bob") == {"leave", "travel"}


def test_what_was_removed_comes_back_and_is_named_but_what_was_purged_stays_away(
    inside: Desk, backup: Path, docs: Path
) -> None:
    (docs / "leave.md").unlink()
    inside.run("ingest", docs)
    inside.run("purge")
    (docs / "travel.md").unlink()
    (docs / "new.md").write_text("# new\n\nA new pendulum.\n")
    inside.run("ingest", docs)
    printed = inside.run("restore", backup, "--yes").stdout
    assert f"Removed since the backup, and back: 1 source\n  {docs / 'travel.md'}\n" in printed
    assert f"Purged since the backup, and still away: 1 source\n  {docs / 'leave.md'}\n" in printed
    assert f"Added since the backup, and gone: 1 source\n  {docs / 'new.md'}\n" in printed
    assert titles(inside, "--group", "hr") == {"travel", "wages"}
    assert not inside.files_with(b"leave of a pendulum")
    inside.run("restore", backup, "--yes", "--exact")
    assert titles(inside, "--group", "hr") == {"leave", "travel", "wages"}


def test_what_was_purged_and_forgotten_stays_away_too(inside: Desk, backup: Path, docs: Path) -> None:
    (docs / "leave.md").unlink()
    inside.run("ingest", docs)
    inside.run("purge", "--forget")
    report = inside.json("restore", backup, "--yes")
    assert report["purged"] == [str(docs / "leave.md")]
    assert titles(inside) == {"travel"}


def test_what_was_forgotten_before_or_after_its_purge_stays_away_too(
    inside: Desk, backup: Path, docs: Path
) -> None:
    ids = {source["title"]: source["id"] for source in inside.json("sources")["sources"]}
    inside.run("collection", "create", "other")
    inside.run("remove", docs / "wages.md")
    inside.run("remove", docs / "leave.md", "--forget")
    inside.run("purge", "--collection", "documents")
    inside.run("remove", ids["wages"], "--forget")  # its record names no file any more
    inside.run("remove", docs / "travel.md", "--forget")
    inside.run("purge", "--collection", "other")  # which has no text of it
    made = inside.json("restore", backup, "--yes")
    assert made["purged"] == [str(docs / "leave.md"), str(docs / "wages.md")]
    assert made["returned"] == [str(docs / "travel.md")]
    assert titles(inside, "--group", "hr") == {"travel"}
    inside.run("restore", backup, "--yes", "--exact")
    assert titles(inside, "--group", "hr") == {"leave", "travel", "wages"}


def test_what_was_purged_before_its_collection_was_forgotten_stays_away_too(
    inside: Desk, backup: Path, docs: Path
) -> None:
    (docs / "leave.md").unlink()
    inside.run("ingest", docs)
    inside.run("purge")
    inside.run("remove", "*", "--forget")
    inside.run("collection", "remove", "documents", "--yes")
    made = inside.json("restore", backup)
    assert made["purged"] == [str(docs / "leave.md")]
    assert titles(inside, "--group", "hr") == {"travel", "wages"}


@pytest.mark.parametrize("options", [[], ["--forget"]])
def test_what_was_purged_from_a_tag_stays_away_from_it_and_from_nothing_else(
    inside: Desk, backup: Path, docs: Path, options: list[str]
) -> None:
    inside.run("collection", "tag", "documents", "v1")
    inside.run("backup", backup, "--yes")
    inside.run("remove", docs / "leave.md", "--collection", "v1", *options)
    inside.run("purge")
    made = inside.json("restore", backup, "--yes")
    assert (made["collections"], made["purged"]) == ({"documents": 3, "v1": 2}, [str(docs / "leave.md")])
    assert titles(inside, "--collection", "v1") == {"travel"}
    assert titles(inside, "--collection", "documents") == {"leave", "travel"}


def test_what_was_forgotten_is_named_and_no_wider_than_it_was_last(
    inside: Desk, backup: Path, docs: Path
) -> None:
    inside.run("access", "set", "*/leave.md", "--visibility", "restricted", "--allow", "group:hr")
    inside.run("remove", "--forget", docs / "leave.md", docs / "travel.md")
    report = inside.json("restore", backup, "--yes")
    assert [name.rpartition("/")[2] for name in report["returned"]] == ["leave.md", "travel.md"]
    assert [name.rpartition("/")[2] for name in report["narrowed"]] == ["leave.md"]
    assert titles(inside) == {"travel"}
    assert titles(inside, "--group", "hr") == {"leave", "travel", "wages"}
    report = inside.json("restore", backup, "--yes", "--exact")
    assert (report["returned"], report["narrowed"]) == ([], [])
    assert titles(inside) == {"leave", "travel"}


def test_what_was_restricted_before_its_tenant_was_removed_stays_so(inside: Desk, backup: Path) -> None:
    inside.run("access", "set", "*/leave.md", "--visibility", "restricted", "--allow", "group:hr")
    inside.run("tenant", "remove", "default", "--yes")
    report = inside.json("restore", backup)
    assert [name.rpartition("/")[2] for name in report["narrowed"]] == ["leave.md"]
    assert report["returned"] == []
    assert titles(inside) == {"travel"}
    assert titles(inside, "--group", "hr") == {"leave", "travel", "wages"}


def test_what_a_folder_was_restricted_to_before_it_was_forgotten_stays_so(
    inside: Desk, backup: Path, docs: Path
) -> None:
    inside.run("access", "set", docs, "--visibility", "restricted", "--allow", "group:hr")
    inside.run("backup", backup, "--yes")
    inside.run("access", "revoke", docs, "--from", "user:bob")
    inside.run("remove", "--forget", docs)
    inside.run("restore", backup, "--yes")
    (docs / "later.md").write_text("# later\n\nA later pendulum.\n")
    inside.run("ingest", docs)
    assert titles(inside, "--group", "hr") == {"leave", "travel", "wages", "later"}
    assert titles(inside, "--group", "hr", "--user", "bob") == set()


def test_a_revoked_key_stays_revoked(inside: Desk, backup: Path) -> None:
    (key,) = inside.json("key", "list")["keys"]
    inside.run("key", "revoke", key["id"])
    for options in ([], ["--exact"]):
        report = inside.json("restore", backup, "--yes", *options)
        assert (report["keys"], report["keys_left_out"]) == ([], [key["id"]])
        assert inside.json("key", "list") == {"keys": []}
    (inside.data / "audit.jsonl").unlink()  # even if the log is lost
    assert inside.json("restore", backup, "--yes")["keys"] == []


def test_a_new_folder_gets_the_keys_of_each_tenant_that_is_restored(
    inside: Desk, backup: Path, docs: Path, tmp_path: Path
) -> None:
    inside.run("tenant", "create", "acme")
    inside.run("ingest", docs / "leave.md", "--tenant", "acme")
    theirs = inside.json("key", "create", "--tenant", "acme")
    inside.run("backup", tmp_path / "acme.tar", "--tenant", "acme")
    new = beside(inside, "new")
    assert len(new.json("restore", backup)["keys"]) == 1
    assert new.json("restore", tmp_path / "acme.tar")["keys"] == [theirs["id"]]
    new.run("key", "revoke", theirs["id"])
    (new.data / "audit.jsonl").unlink()  # even if the log is lost
    assert new.json("restore", tmp_path / "acme.tar", "--yes")["keys_left_out"] == [theirs["id"]]


def test_another_tenant_and_a_folder_with_another_key_are_hidden_by_the_same_folder_rights(
    inside: Desk, docs: Path, tmp_path: Path
) -> None:
    closed = docs / "closed"
    closed.mkdir()
    (closed / "pay.md").write_text("# pay\n\nThe pay of a pendulum.\n")
    inside.run("ingest", closed, "--visibility", "restricted", "--allow", "group:hr")
    inside.run("backup", tmp_path / "desk.tar")
    new = beside(inside, "new")
    new.run("ingest", docs / "leave.md", "--tenant", "acme")
    report = new.json("restore", tmp_path / "desk.tar", "--as", "branch")
    assert report["tenant"] == "branch"
    assert new.json("tenant", "list")["tenants"] == [
        {"name": "acme", "collections": ["documents"]},
        {"name": "branch", "collections": ["documents"]},
    ]
    (closed / "bonus.md").write_text("# bonus\n\nThe bonus of a pendulum.\n")
    new.run("ingest", closed, "--tenant", "branch")
    new.run("ingest", closed, "--tenant", "branch", "--visibility", "restricted", "--set-access")
    assert titles(new, "--tenant", "branch") == set()
    assert titles(new, "--tenant", "branch", "--group", "hr") == set()
    assert titles(new, "--tenant", "acme") == {"leave"}


def test_a_damaged_cut_or_foreign_file_is_refused_before_anything_changes(
    inside: Desk, backup: Path, docs: Path
) -> None:
    content = backup.read_bytes()
    with tarfile.open(backup) as archive:
        middles = [part.offset_data + part.size // 2 for part in archive]
        headers = [part.offset + 10 for part in archive]
    for at in middles + headers[1:]:
        damaged = bytearray(content)
        damaged[at] ^= 0xFF
        backup.write_bytes(damaged)
        run = beside(inside, "new").run("restore", backup, code=2)
        assert "backup" in run.stderr, at
        assert run.stderr.count("\n") == 1
    backup.write_bytes(content[: len(content) // 2])
    assert "cut short" in beside(inside, "new").misuse("restore", backup)
    assert "not a backup" in beside(inside, "new").misuse("restore", docs / "leave.md")
    assert not beside(inside, "new").data.exists()
    assert titles(inside) == {"leave", "travel"}


def rewritten(backup: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The backup with other parts, and digests that fit them."""
    parts = {name: change(name, content) for name, content in tenant_backup.archive_parts(backup)}
    del parts[tenant_backup.CHECKSUMS]
    with tenant_backup.writing_archive(backup) as written:
        for name, content in parts.items():
            written.add(name, content)
    return backup


def test_a_backup_that_somebody_changed_brings_no_key_of_another_tenant(inside: Desk, backup: Path) -> None:
    new = beside(inside, "new")
    new.run("tenant", "create", "acme")

    def of_acme(name: str, content: bytes) -> bytes:
        return (
            content.replace(b'"tenant": "default"', b'"tenant": "acme"')
            if name == tenant_backup.KEYS
            else content
        )

    assert new.json("restore", rewritten(backup, lambda _name, content: content))["keys"]
    (new.data / "keys.json").unlink()
    (new.data / "audit.jsonl").unlink()
    run = new.run("restore", rewritten(backup, of_acme), "--yes", "--exact", code=2)
    assert "keys of another tenant" in run.stderr
    assert new.json("key", "list") == {"keys": []}


def test_a_backup_that_somebody_changed_attaches_no_table_of_the_desk(inside: Desk, backup: Path) -> None:
    (table,) = (inside.data / "tables").glob("chunks__tenant_default__src_documents.lance")

    def attached(name: str, content: bytes) -> bytes:
        if name != tenant_backup.ABOUT:
            return content
        about = json.loads(content)
        definition = json.loads(about["collections"][0]["definition"])
        definition["attached"] = {"table": str(table), "id": "id", "text": "text"}
        about["collections"][0]["definition"] = json.dumps(definition)
        return json.dumps(about).encode()

    run = inside.run("restore", rewritten(backup, attached), "--yes", code=2)
    assert str(table) in run.stderr
    assert titles(inside) == {"leave", "travel"}


def test_a_full_disk_ends_a_backup_or_restore_in_one_line_and_leaves_nothing(
    inside: Desk, backup: Path, small_disk: SmallDisk, desk_at: Callable[[Path], Desk]
) -> None:
    small_disk.fill()
    run = inside.run("backup", small_disk.folder / "x.tar", code=1)
    assert "can't be written: No space left on device" in run.stderr
    assert [path.name for path in small_disk.folder.iterdir()] == ["filling"]
    new = desk_at(small_disk.folder / "data")
    assert new.failure("restore", backup).count("\n") == 1
    small_disk.empty()
    new.run("restore", backup)
    assert titles(new) == {"leave", "travel"}
