"""What the doctor finds and mends after ordinary disasters, and that it never widens a right."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio import to_thread

from rag.access.keys import keys_file
from rag.admin import doctor_command
from rag.admin.bug_report import without_names
from rag.admin.doctor_command import check_temporary_folder
from rag.home import check_data_folder
from rag.store.read import schema
from rag.store.read.connection import table_folder
from rag.store.read.desk_reader import DeskReader
from rag.store.write import table_maintenance
from tests.admin.three_documents import ingest_documents, titles, write_documents
from tests.ingest.kill_scenes import orphans
from tests.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rag.store.read.collection_reader import CollectionReader
    from tests.admin.conftest import Desk
    from tests.conftest import Scripts

pytestmark = pytest.mark.slow

NEWER_LOST = "a newer record of it was lost. Run refdesk-admin doctor."
CHUNKS = schema.chunks_table("default", "documents")
SOURCES = schema.sources_table("default", "documents")
ACCESS = schema.access_table("default")


@pytest.fixture(scope="module")
def base(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with documents, and a data folder with them, of which one is for a group only."""
    folder = tmp_path_factory.mktemp("base")
    ingest_documents(scripts, folder)
    return folder


@pytest.fixture
def docs(base: Path) -> Path:
    write_documents(base / "docs")
    return base / "docs"


@pytest.fixture
def filled(unconnected: Desk, base: Path) -> Desk:
    shutil.copytree(base / "data", unconnected.data)
    return unconnected


def wrong(desk: Desk, *options: str, code: int = 1) -> list[Any]:
    findings = desk.json("doctor", *options, code=code)["findings"]
    return [finding["check"] for finding in findings if finding["state"] == "wrong"]


def newest(folder: Path, kind: str, suffix: str) -> Path:
    return max((folder / kind).rglob(f"*{suffix}"), key=lambda file: file.stat().st_mtime_ns)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def no_reserve(data: Path) -> None:
    (data / "reserve").unlink()


def no_tenant(data: Path) -> None:
    (data / "tenants" / "default").unlink()


def no_index(data: Path) -> None:
    shutil.rmtree(table_folder(data, CHUNKS) / "_indices")


def cut_index(data: Path) -> None:
    for file in (table_folder(data, CHUNKS) / "_indices").rglob("*.lance"):
        cut(file)


def empty_manifest(table: str) -> Callable[[Path], None]:
    def empty(data: Path) -> None:
        versions = table_folder(data, table) / "_versions"
        os.truncate(min(versions.glob("*.manifest")), 0)

    empty.__name__ = f"empty manifest of {table[:7]}"
    return empty


def spool(data: Path) -> None:
    (data / "spool" / "default.documents").mkdir(parents=True)


def several(data: Path) -> None:
    anyio.run(orphans, data)
    for damage in (no_reserve, no_tenant, cut_index, spool):
        damage(data)


@pytest.mark.parametrize(
    ("damage", "checks"),
    [
        (several, ["folder", "tenant", "indexes", "leftovers", "stray"]),
        (no_index, ["indexes"]),
        (empty_manifest(schema.COLLECTIONS), ["catalog"]),
    ],
    ids=["several", "no index", "catalog"],
)
def test_what_can_be_mended_without_loss_is_mended(
    filled: Desk,
    docs: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
    checks: list[str],
) -> None:
    monkeypatch.setattr(table_maintenance, "LARGE_ROWS", 1)
    filled.run("ingest", docs)  # and index them, as large ones are
    if checks == ["catalog"]:
        filled.run("collection", "set", "documents", "--description", "of pendulums")
    else:
        assert wrong(filled, code=0) == []
    damage(filled.data)
    before = tree(filled.data)
    assert wrong(filled) == checks
    assert tree(filled.data) == before
    assert wrong(filled, "--fix", code=0) == []
    assert wrong(filled, code=0) == []
    assert titles(filled) == {"leave", "travel"}
    assert titles(filled, "--group", "hr") == {"leave", "travel", "wages"}


def tree(data: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in data.rglob("*")}


def test_damaged_rows_go_back_a_version_only_with_yes_and_the_next_ingestion_completes_them(
    filled: Desk, docs: Path
) -> None:
    (docs / "new.md").write_text("# new\n\nA new pendulum.\n")
    filled.run("ingest", docs)
    (docs / "newer.md").write_text("# newer\n\nA newer pendulum.\n")
    filled.run("ingest", docs)
    cut(newest(table_folder(filled.data, CHUNKS), "data", ".lance"))
    assert "tables" in wrong(filled)
    assert "tables" in wrong(filled, "--fix")
    wrong(filled, "--fix", "--yes", code=0)
    filled.run("ingest", docs)
    assert wrong(filled, code=0) == []
    assert titles(filled, "--group", "hr") == {"leave", "travel", "wages", "new", "newer"}
    assert titles(filled) == {"leave", "travel", "new", "newer"}


@pytest.mark.parametrize("table", [CHUNKS, SOURCES])
def test_a_missing_table_is_made_anew_only_with_yes(filled: Desk, docs: Path, table: str) -> None:
    filled.run("collection", "set", "documents", "--description", "of pendulums")
    shutil.rmtree(table_folder(filled.data, table))
    assert wrong(filled)[0] == "tables"
    report = filled.run("doctor", "--fix", code=1).stdout
    assert "is missing. Mending it may lose the texts in the collection's other table. Restore a" in report
    wrong(filled, "--fix", "--yes", code=0)
    assert titles(filled) == set()
    assert filled.json("collection", "show", "documents")["description"] == "of pendulums"
    filled.run("ingest", docs)
    assert wrong(filled, code=0) == []
    assert titles(filled) == {"leave", "travel"}  # the rights outlive the tables


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["cut", "missing"])
async def test_running_servers_open_mended_tables_anew(filled: Desk, how: str) -> None:
    """Versions and addresses of rows come again, so rows in memory could be taken for the new ones."""
    reader = DeskReader(filled.data, timeout_seconds=30)

    async def opened() -> CollectionReader:
        (collection,) = await reader.collections("default")
        return await reader.open(collection)

    before = await opened()
    assert await opened() is before
    folder = table_folder(filled.data, CHUNKS)
    cut(newest(folder, "data", ".lance")) if how == "cut" else shutil.rmtree(folder)
    await to_thread.run_sync(partial(wrong, filled, "--fix", "--yes", code=0))
    assert await opened() is not before


def test_damaged_access_records_are_never_replaced_by_older_ones(filled: Desk) -> None:
    folder = table_folder(filled.data, ACCESS)
    for file in (folder / "data").glob("*.lance"):
        cut(file)
    assert "access records" in wrong(filled)
    assert "access records" in wrong(filled, "--fix", "--yes")
    run = filled.scripts.admin("search", "pendulum", "--data", filled.data)
    assert "Pendulum" not in run.stdout
    assert run.returncode == 1


def lose_versions(folder: Path, count: int) -> None:
    for manifest in sorted((folder / "_versions").glob("*.manifest"))[:count]:  # the newest first
        manifest.unlink()
    (folder / "_versions" / "latest_version_hint.json").unlink(missing_ok=True)


def test_lost_versions_of_access_records_are_named_and_mended_as_searches_took_them(filled: Desk) -> None:
    """A search stayed narrow, while access show and explain said that everybody may see the document."""
    filled.run("access", "set", "*/wages.md", "--visibility", "tenant")
    before = len([*(table_folder(filled.data, ACCESS) / "_versions").glob("*.manifest")])
    filled.run("access", "set", "*/wages.md", "--visibility", "restricted", "--allow", "group:hr")
    after = len([*(table_folder(filled.data, ACCESS) / "_versions").glob("*.manifest")])
    lose_versions(table_folder(filled.data, ACCESS), after - before)
    assert titles(filled, "--group", "hr") == {"leave", "travel"} | {"wages"}
    assert titles(filled) == {"leave", "travel"}
    description = filled.run("access", "show", "*/wages.md").stdout
    assert "visibility tenant" in description
    assert f"searches   restricted to group:hr: {NEWER_LOST}" in description
    explanation = filled.json("access", "explain", "*/wages.md", "--user", "ann")
    assert explanation == {
        "visible": False,
        "why": f"{NEWER_LOST} Its record says: everybody in the tenant may see it.",
    }
    assert filled.json("access", "explain", "*/wages.md", "--group", "hr")["visible"]
    (leave,) = [filled.json("access", "show", "*/leave.md")]
    assert "found_by" not in leave
    assert wrong(filled) == ["rights"]
    assert f"refdesk-admin access show {said_id(filled)}." in filled.run("doctor", code=1).stdout
    assert wrong(filled, "--fix", code=0) == []
    assert wrong(filled, code=0) == []
    mended = filled.json("access", "show", "*/wages.md")
    assert (mended["access"]["visibility"], mended["access"]["allow"]) == ("restricted", ["group:hr"])
    assert titles(filled) == {"leave", "travel"}
    assert titles(filled, "--group", "hr") == {"leave", "travel", "wages"}


def said_id(desk: Desk) -> str:
    description = desk.json("access", "show", "*/wages.md")
    assert isinstance(description["id"], str)
    return description["id"]


def test_lost_versions_of_chunks_get_the_labels_of_the_records_that_are_there(filled: Desk) -> None:
    folder = table_folder(filled.data, CHUNKS)
    before = len([*(folder / "_versions").glob("*.manifest")])
    filled.run("access", "grant", "*/wages.md", "--to", "group:it")
    assert titles(filled, "--group", "it") == {"leave", "travel", "wages"}
    lose_versions(folder, len([*(folder / "_versions").glob("*.manifest")]) - before)
    assert titles(filled, "--group", "it") == {"leave", "travel"}
    assert not filled.json("access", "explain", "*/wages.md", "--group", "it")["visible"]
    assert wrong(filled) == ["rights"]
    assert wrong(filled, "--fix", code=0) == []
    assert titles(filled, "--group", "it") == {"leave", "travel", "wages"}


def test_a_table_without_a_collection_is_deleted_only_with_yes(filled: Desk) -> None:
    stray = table_folder(filled.data, schema.chunks_table("default", "ghost"))
    shutil.copytree(table_folder(filled.data, CHUNKS), stray)
    assert wrong(filled, "--fix") == ["stray"]
    assert stray.exists()
    assert wrong(filled, "--fix", "--yes", code=0) == []
    assert not stray.exists()


def test_a_missing_or_damaged_key_and_key_file_are_named(filled: Desk) -> None:
    (filled.data / "key").write_bytes(b"short")
    (filled.data / "keys.json").write_text("{")
    (filled.data / "keys.json").chmod(0o600)
    assert wrong(filled, "--fix", "--yes") == ["api keys", "key"]


def test_another_embedder_in_the_settings_is_named(filled: Desk, tmp_path: Path) -> None:
    config = tmp_path / "other.toml"
    config.write_text('[embedder]\nprovider = "openai"\nmodel = "m"\nbase_url = "http://127.0.0.1:1/v1"\n')
    assert wrong(filled, "--config", str(config)) == ["embedder"]


def test_there_is_nothing_to_mend_in_a_folder_that_isn_t_there(inside: Desk) -> None:
    assert refusal(check_data_folder, inside.data) in inside.run("doctor", code=1).stdout
    assert not inside.data.exists()
    assert "--yes needs --fix" in inside.misuse("doctor", "--yes")


def test_settings_that_do_not_work_and_loose_permissions_are_named(filled: Desk, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[http]\nhost = "203.0.113.7"\n')
    config.chmod(0o666)
    assert wrong(filled, "--config", str(config)) == ["permissions"]
    assert f"chmod go-w {config}" in filled.run("doctor", "--config", config, code=1).stdout
    config.chmod(0o600)
    assert wrong(filled, "--config", str(config)) == ["settings"]
    report = filled.run("doctor", "--config", config, code=1).stdout
    assert "203.0.113.7:8300 can't be bound" in report


def test_a_temporary_folder_that_the_engine_cannot_write_is_named(
    filled: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine takes TMPDIR as it is. Changes of rights failed, and doctor found nothing wrong."""
    assert wrong(filled, code=0) == []
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "removed"))
    finding = check_temporary_folder()
    assert finding.part == str(tmp_path / "removed")
    assert "Set TMPDIR to a folder that you can write." in finding.remedy
    (tmp_path / "removed").mkdir()
    assert not check_temporary_folder().problem


def test_a_clock_that_is_behind_the_documents_is_named(filled: Desk) -> None:
    assert wrong(filled, code=0) == []
    manifest = newest(table_folder(filled.data, CHUNKS), "_versions", ".manifest")
    soon = time.time() + 3600
    os.utime(manifest, (soon, soon))
    assert wrong(filled) == ["clock"]
    assert "Set the clock of this machine." in filled.run("doctor", code=1).stdout


def test_keys_that_expired_or_will_soon_are_noted(filled: Desk) -> None:
    ids = [filled.json("key", "create", "--user", name, "--days", "7")["id"] for name in ("ann", "bob")]
    filled.json("key", "create", "--user", "cyd", "--days", "90")
    keys = keys_file(filled.data)
    stored = json.loads(keys.read_text())
    stored["keys"][0]["expires_at"] = "2026-01-01T00:00:00Z"
    keys.write_text(json.dumps(stored))
    (note,) = filled.findings("api keys")
    assert note["state"] == "note"
    assert f"{ids[0]} expired." in note["text"]
    assert f"{ids[1]} will expire within 14 days." in note["text"]
    assert note["part"] == "3 in keys.json"
    assert "key rotate" in note["text"]


def test_keys_of_which_none_is_valid_are_wrong_where_clients_need_one(filled: Desk) -> None:
    filled.run("key", "create", "--user", "ann")
    keys = keys_file(filled.data)
    stored = json.loads(keys.read_text())
    stored["keys"][0]["expires_at"] = "2026-01-01T00:00:00Z"
    keys.write_text(json.dumps(stored))
    assert wrong(filled) == ["api keys"]


def test_a_folder_that_is_empty_now_is_wrong_until_somebody_looked(filled: Desk, tmp_path: Path) -> None:
    share = tmp_path / "share"
    share.mkdir()
    for number in range(5):
        (share / f"{number}.md").write_text(f"# {number}\n\nThe paper number {number}.\n")
    filled.run("ingest", share)
    for paper in share.iterdir():
        paper.unlink()
    filled.run("ingest", share, code=3)
    assert wrong(filled) == ["runs"]
    assert "5 missing files" in filled.run("status").stdout
    filled.run("ingest", share, "--yes")
    filled.run("doctor")


def test_packages_of_other_versions_are_named(filled: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.39.1" if name == "lancedb" else installed(name))
    assert wrong(filled) == ["installation"]
    assert "lancedb is 0.39.1, not <0.41,>=0.40. Run" in filled.run("doctor", code=1).stdout


def test_hosts_whose_entries_do_not_work_any_more_are_named_with_the_command_that_mends_them(
    inside: Desk, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(base / "data", inside.data)
    monkeypatch.setenv("HOME", str(tmp_path))
    inside.run("connect", "cursor", "--yes")
    inside.run("connect", "windsurf", "--name", "old", "--yes")
    findings = inside.json("doctor")["findings"]
    fine = [finding for finding in findings if finding["check"] in {"client", "hosts"}]
    assert [(finding["state"], finding["part"].partition(",")[0]) for finding in fine] == [
        ("fine", "refdesk"),
        ("fine", "cursor: refdesk"),
        ("fine", "windsurf: old"),
    ]
    entries = tmp_path / ".codeium" / "windsurf" / "mcp_config.json"
    entries.write_text(entries.read_text().replace(str(inside.data), str(tmp_path / "gone")))
    findings = [entry for entry in inside.json("doctor", code=1)["findings"] if entry["state"] == "wrong"]
    anew = f"Run refdesk-admin connect windsurf --name old --data {tmp_path / 'gone'}"
    assert [(finding["check"], anew in str(finding)) for finding in findings] == [("hosts", True)]
    address = {"mcpServers": {"refdesk": {"serverUrl": "http://127.0.0.1:9/mcp"}}}
    entries.write_text(json.dumps(address))
    report = inside.run("doctor", code=1).stdout
    assert "Start the server at its address, and check the network and the key." in report
    assert "writes the entry" not in report


def test_the_report_names_nothing_that_is_the_operators(filled: Desk, tmp_path: Path) -> None:
    (tmp_path / "zebra.md").write_text("# Zebra\n\nA striped plan.\n")
    filled.run("tenant", "create", "acme")
    filled.run("ingest", tmp_path / "zebra.md", "--collection", "savanna", "--tenant", "acme")
    config, report = tmp_path / "config.toml", tmp_path / "report.md"
    config.write_text(f'data = "{filled.data}"\n[server]\ntitle = "Zebra desk"\n[search]\nlimit = 7\n')
    with config.open("a") as settings:
        settings.write(
            '[embedder]\nprovider = "openai"\nmodel = "zebra-tuned"\nbase_url = "http://127.0.0.1:9/v1"\n'
        )
    shutil.rmtree(table_folder(filled.data, schema.chunks_table("acme", "savanna")))
    gone = table_folder(filled.data, schema.chunks_table("acme", "giraffe-merger"))
    shutil.copytree(table_folder(filled.data, schema.chunks_table("default", "documents")), gone)
    run = filled.run("doctor", "--config", config, "--bundle", report, code=1)
    assert f"Wrote {report}." in run.stderr
    assert "savanna" in run.stdout
    text = report.read_text()
    for line in (
        "- server.title = (set)",
        "- search.limit = 7",
        "- wrong, tables, TENANT-1.COLLECTION-1: The table chunks__tenant_TENANT-1__src_COLLECTION-1",
        "- default.documents: 3 sources, 3 chunks, ",
        "openai MODEL-1",
        ', complete, {"added": 3}',
        "- lancedb 0.40",
    ):
        assert line in text
    for name in ("ebra", "giraffe", "savanna", "acme", str(tmp_path), str(filled.data), "pendulum", "wages"):
        assert name not in text, name
    assert report.stat().st_mode & 0o077 == 0
    assert "exists already" in filled.misuse("doctor", "--bundle", report)


@pytest.mark.parametrize(
    ("line", "anonymous"),
    [
        ("- wrong, /home/ann/clients/Smith-merger: gone", "- wrong, PATH: gone"),
        ("/mnt/My Clients/Smith merger/x.toml can't be read", "PATH can't be read"),
        ("C:\\Users\\Ann\\My docs\\a.md: bad", "PATH: bad"),
        ("/srv/desk is fine, /srv/desk/tables/x isn't", "DATA is fine, PATH isn't"),
        ("read 3/4 of it, and/or more", "read 3/4 of it, and/or more"),
        ("chunks__tenant_acme__src_smith", "TABLE"),
        (
            "chunks__tenant_default__src_documents__build_2 is",
            "chunks__tenant_default__src_documents__build_2 is",
        ),
    ],
)
def test_a_line_of_the_report_keeps_no_name_of_a_folder(line: str, anonymous: str) -> None:
    assert without_names(line, {"/home/ann": "HOME", "/srv/desk": "DATA"}) == anonymous


def no_manifests(table: Path) -> None:
    for manifest in table.glob("_versions/*.manifest"):
        manifest.write_bytes(b"noise" * 20)


def file_instead(table: Path) -> None:
    shutil.rmtree(table)
    table.write_text("noise")


def no_data(table: Path) -> None:
    for file in table.glob("data/*"):
        file.write_bytes(b"noise")


@pytest.mark.parametrize("damage", [no_manifests, file_instead, no_data], ids=lambda damage: damage.__name__)
def test_a_damaged_access_table_is_one_line_for_each_command(
    filled: Desk, damage: Callable[[Path], None]
) -> None:
    path = filled.sources()[0]["id"]
    commands = (
        *(("access", "show", path), ("access", "grant", path, "--to", "user:ann")),
        *(
            ("access", "explain", path, "--user", "ann"),
            ("access", "set", path, "--visibility", "restricted"),
        ),
        *(("search", "pendulum"), ("sources",), ("remove", path)),
    )
    filled.run(*commands[0])
    damage(filled.data / "tables" / f"{schema.access_table('default')}.lance")
    for command in commands:
        run = filled.run(*command, code=1)
        assert run.stderr.startswith("refdesk-admin: The storage engine failed"), command
        assert run.stderr.count("\n") == 1, command


def test_of_many_collections_what_is_alike_is_one_line_and_json_has_each(
    filled: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_command, "MOST_ALIKE", 2)
    for name in ("blue", "red"):
        filled.run("collection", "create", name)
    shutil.rmtree(table_folder(filled.data, schema.chunks_table("default", "blue")))
    lines = [line.split() for line in filled.run("doctor", code=1).stdout.splitlines()]
    tables = [line for line in lines if line[1] == "tables"]
    assert [(line[0], line[2]) for line in tables] == [("wrong", "default.blue:"), ("fine", "2")]
    assert [finding["part"] for finding in filled.findings("tables", code=1)] == [
        "default.blue",
        "default.documents",
        "default.red",
    ]
    for name in ("red", "documents"):
        shutil.rmtree(table_folder(filled.data, schema.chunks_table("default", name)))
    report = filled.run("doctor", code=1).stdout.splitlines()
    (line,) = [line for line in report if line.split()[1] == "tables"]
    assert "wrong  tables          3 (default.blue, default.documents, default.red): The table" in line
