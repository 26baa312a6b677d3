"""Keys, tenants and removals on a disk that is full, and in folders that nobody may write."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag.access.keys import holder_of, keys_file, read_keys
from rag.store.write.desk_folder import reserve_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.admin.conftest import Desk, Run
    from tests.conftest import SmallDisk

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(desk_at: Callable[[Path], Desk], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two documents in docs, and with them and three keys a data folder. Only for copies."""
    folder = tmp_path_factory.mktemp("base")
    desk, docs = desk_at(folder / "data"), folder / "docs"
    for user in ("ann", "bob", "eve"):
        desk.run("key", "create", "--user", user)
    docs.mkdir()
    for name in ("leave", "travel"):
        (docs / f"{name}.md").write_text(f"# {name}\n\nAll about {name}.\n")
    desk.run("ingest", docs, "--visibility", "tenant")
    return folder


@pytest.fixture
def full(desk_at: Callable[[Path], Desk], base: Path, small_disk: SmallDisk) -> Desk:
    """A desk with three keys and two documents on a full disk."""
    shutil.copytree(base / "data", small_disk.folder / "data")
    small_disk.fill()
    return desk_at(small_disk.folder / "data")


@dataclass(frozen=True, slots=True)
class Plain:
    """A desk in a folder in which permissions count, worked on in this process with settings of its own."""

    inside: Desk
    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def run(self, *arguments: str, code: int = 0) -> Run:
        config = self.folder / "config.toml"
        config.touch()
        return self.inside.run(*arguments, "--config", config, code=code)


@pytest.fixture
def plain(inside: Desk, plain_folder: Path) -> Plain:
    return Plain(replace(inside, data=plain_folder / "data"), plain_folder)


def ids(desk: Desk) -> list[str]:
    return [key.id for key in read_keys(keys_file(desk.data)).keys]


def test_each_key_can_be_revoked_on_a_full_disk_and_the_log_has_it(full: Desk, small_disk: SmallDisk) -> None:
    for id_ in ids(full):
        run = full.run("key", "revoke", id_)
        assert id_ in run.stdout
        assert not run.stderr
        assert id_ not in ids(full)
        assert reserve_file(full.data).exists()
        small_disk.fill()
    assert [act["act"] for act in full.json("audit", "show", "--act", "key revoke")["acts"]] == [
        "key revoke"
    ] * 3


def test_rights_can_be_taken_away_on_a_full_disk_again_and_again(full: Desk, small_disk: SmallDisk) -> None:
    assert full.titles("all about leave") == ["leave", "travel"]
    for user in ("ann", "bob"):
        assert full.run("access", "revoke", "*.md", "--from", f"user:{user}").stderr.count("\n") <= 1
        small_disk.fill()
        assert full.titles("all about leave", "--user", user) == []
    assert len(full.titles("all about leave", "--user", "mia")) == 2
    full.run("access", "set", "*/leave.md", "--visibility", "restricted")
    assert full.titles("all about leave", "--user", "mia") == ["travel"]
    acts = [act["act"] for act in full.json("audit", "show", "--act", "access")["acts"]]
    assert sorted(acts) == ["access revoke"] * 2 + ["access set"]


@pytest.mark.parametrize(
    ("act", "wider"),
    [
        (["grant"], ["--to", "user:eve"]),
        (["set"], ["--visibility", "tenant"]),
        (["revoke"], ["--from", "user:mia"]),
    ],
    ids=lambda argument: argument[0],
)
def test_only_a_change_that_lets_somebody_in_waits_for_room(
    full: Desk, small_disk: SmallDisk, act: list[str], wider: list[str]
) -> None:
    full.run("access", "set", "*/leave.md", "--visibility", "restricted", "--allow", "user:mia")
    small_disk.fill()
    refused = act != ["revoke"]
    run = full.run("access", *act, "*/leave.md", *wider, code=int(refused))
    assert ("Free some disk space and try again." in run.stderr) == refused
    assert len(full.hits("all about leave", "--user", "eve")) == 1
    if refused:
        small_disk.empty()
        full.run("access", *act, "*/leave.md", *wider)
        assert len(full.hits("all about leave", "--user", "eve")) == 2


def test_single_documents_can_be_removed_on_a_full_disk_also_after_a_change_of_rights(
    full: Desk, base: Path, small_disk: SmallDisk
) -> None:
    full.run("access", "revoke", "*.md", "--from", "user:ann")
    small_disk.fill()
    for name in ("leave", "travel"):
        run = full.run("remove", f"*/{name}.md")
        assert run.stdout == "Removed 1 source from documents.\n"
        assert "Error" not in run.stderr
        assert "Traceback" not in run.stderr
        small_disk.fill()
        assert name not in full.titles("all about leave")
    small_disk.empty()
    full.run("ingest", base / "docs")
    assert full.hits("all about leave", "--user", "ann") == []
    assert len(full.hits("all about leave", "--user", "mia")) == 2


def test_without_its_reserve_nothing_would_be_revoked(full: Desk, small_disk: SmallDisk) -> None:
    reserve_file(full.data).unlink()
    small_disk.fill()
    run = full.run("key", "revoke", ids(full)[0], code=1)
    assert "keys.json can't be written: No space left on device. Free some disk space" in run.stderr
    assert run.stderr.splitlines()[-1].startswith("refdesk-admin: ")
    assert len(ids(full)) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ["key", "create", "--user", "mia"],
        ["tenant", "create", "acme"],
        ["collection", "create", "handbook"],
        ["ingest", "pyproject.toml"],
    ],
    ids=" ".join,
)
def test_what_would_bring_in_or_give_rights_on_a_full_disk_ends_in_one_line(
    full: Desk, small_disk: SmallDisk, arguments: list[str]
) -> None:
    keys = ids(full)
    reserve_file(full.data).unlink()  # as after a revocation, where others took its room
    small_disk.fill()
    run = full.run(*arguments, code=1)
    assert run.stdout == ""
    assert run.stderr.startswith("refdesk-admin: The data folder's reserve ")
    assert run.stderr.count("\n") == 1
    assert ids(full) == keys
    assert [tenant["name"] for tenant in full.json("tenant", "list")["tenants"]] == ["default"]
    assert [collection["name"] for collection in full.json("collection", "list")["collections"]] == [
        "documents"
    ]
    small_disk.empty()
    assert (
        full.scripts.admin(*arguments[:2], "mia", "--data", full.data).returncode == 2
        or arguments[0] != "key"
    )


def test_a_key_that_can_t_be_made_leaves_those_there_are_and_the_log_says_so(
    full: Desk, small_disk: SmallDisk
) -> None:
    with full.data.joinpath("audit.jsonl").open("rb") as log:
        before = log.read()
    keys = ids(full)
    run = full.run("key", "create", "--user", "x" * 200, *[f"--group={n:0200}" for n in range(30)], code=1)
    assert run.stdout == ""
    assert "No space left on device" in run.stderr
    assert run.stderr.count("\n") <= 2
    assert ids(full) == keys
    assert full.data.joinpath("audit.jsonl").read_bytes().startswith(before)
    small_disk.empty()
    full.run("key", "create", "--user", "mia")
    assert len(ids(full)) == 4


def test_a_tenant_is_removed_on_a_full_disk(full: Desk) -> None:
    full.run("tenant", "remove", "default", "--yes")
    assert ids(full) == []
    assert full.json("tenant", "list") == {"tenants": []}


def test_in_a_folder_that_nobody_may_write_key_commands_end_in_one_line(plain: Plain) -> None:
    key = json.loads(plain.run("key", "create", "--user", "ann", "--json").stdout)
    plain.data.chmod(0o500)
    for command in (["create"], ["revoke", key["id"]], ["rotate", key["id"]]):
        run = plain.run("key", *command, code=2)
        assert run.stdout == ""
        assert run.stderr.splitlines()[-1].startswith(f"refdesk-admin: {plain.data}")
        assert run.stderr.endswith("Permission denied.\n")
    assert holder_of(key["key"], read_keys(keys_file(plain.data)).keys)
    plain.data.chmod(0o700)
    plain.run("key", "revoke", key["id"])
    assert not holder_of(key["key"], read_keys(keys_file(plain.data)).keys)


def test_what_the_system_refuses_otherwise_ends_in_one_line(plain: Plain) -> None:
    plain.run("tenant", "create", "acme")
    (plain.data / "tenants").chmod(0o500)
    refusal = plain.run("tenant", "remove", "acme", "--yes", code=1).stderr
    (plain.data / "tenants").chmod(0o700)
    assert refusal == f"refdesk-admin: {str(plain.data / 'tenants' / 'acme')!r}: Permission denied.\n"
    plain.run("tenant", "remove", "acme", "--yes")


def test_a_command_for_a_key_that_is_not_there_makes_no_folder(inside: Desk) -> None:
    for command in ("revoke", "rotate"):
        assert "no key 'x'" in inside.failure("key", command, "x")
        assert not inside.data.exists()


@pytest.mark.parametrize("place", ["disk", "device"])
def test_an_output_that_can_t_be_written_ends_in_one_line_and_a_key_that_was_not_shown_is_named(
    desk: Desk, small_disk: SmallDisk, place: str
) -> None:
    desk.run("collection", "create", "documents")
    small_disk.fill()
    output = {"disk": small_disk.folder / "filling", "device": Path("/dev/full")}[place]

    def run(*arguments: str) -> str:
        with output.open("a") as full:
            ended = subprocess.run(
                [desk.scripts.folder / "refdesk-admin", *arguments, "--data", desk.data],
                env=desk.scripts.environment,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert ended.returncode == 1
        assert ended.stderr.count("\n") == 1, ended.stderr
        return ended.stderr

    assert run("status") == "refdesk-admin: Reading or writing failed: No space left on device.\n"
    warnings = run("key", "create")
    (id_,) = ids(desk)
    assert f"The key {id_} was created but could not be shown" in warnings
    desk.run("key", "revoke", id_)
