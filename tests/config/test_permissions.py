"""Warnings about files that other users can change or read, and the commands that fix them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rag.config.mistakes import loose_permissions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Scripts

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
SOMEBODY = 12345
ACCESS = "access the data folder"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others get as far as to, with settings and data that are the user's alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        (folder / "settings").mkdir(mode=0o755)
        (folder / "settings" / "config.toml").touch(0o644)
        (folder / "it's data").mkdir(mode=0o700)
        yield folder


def _complaints(place: Path) -> list[str]:
    return list(loose_permissions(place / "settings" / "config.toml", place / "it's data"))


def _mended(complaint: str) -> None:
    """Run the command that a sentence ends with."""
    subprocess.run(shlex.split(complaint.rpartition(": ")[2]), check=True)


@pytest.mark.parametrize(
    ("path", "mode", "can"),
    [
        ("settings/config.toml", 0o666, "write the file"),
        ("settings/config.toml", 0o646, "write the file"),
        ("settings", 0o777, "write the folder"),
        (".", 0o777, "write the folder"),
        ("it's data", 0o755, ACCESS),
        ("it's data", 0o701, ACCESS),
        ("it's data", 0o704, ACCESS),
    ],
)
def test_loose_permissions_are_reported_with_the_command_that_fixes_them(
    place: Path, path: str, mode: int, can: str
) -> None:
    assert _complaints(place) == []
    (place / path).chmod(mode)
    (complaint,) = _complaints(place)
    assert complaint.startswith(f"Other users can {can} {place / path}")
    _mended(complaint)
    assert _complaints(place) == []


@pytest.mark.parametrize(
    ("path", "mode"),
    [("settings/config.toml", 0o600), ("settings", 0o1777), (".", 0o1777), ("it's data", 0o500)],
)
def test_harmless_permissions_are_not_reported(place: Path, path: str, mode: int) -> None:
    (place / path).chmod(mode)
    assert _complaints(place) == []


def test_an_open_data_folder_that_nobody_gets_as_far_as_to_is_fine(place: Path) -> None:
    (place / "it's data").chmod(0o755)
    assert _complaints(place)
    place.chmod(0o700)
    assert _complaints(place) == []


def test_nobody_is_told_to_close_what_was_named_by_mistake(place: Path) -> None:
    data = place / "it's data"
    data.chmod(0o755)
    (data / "tenants").mkdir()
    assert _complaints(place)
    (data / "tenants").rename(data / "photos")
    assert _complaints(place) == []
    (data / "photos").rmdir()
    data.rmdir()
    data.touch(0o644)
    assert _complaints(place) == []


def test_a_missing_folder_has_no_loose_permissions(place: Path) -> None:
    assert loose_permissions(place / "none" / "config.toml", place / "none") == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_settings_of_another_user_are_reported_and_those_of_root_are_fine(place: Path) -> None:
    file = place / "settings" / "config.toml"
    os.chown(file, SOMEBODY, SOMEBODY)
    (complaint,) = _complaints(place)
    assert complaint.startswith(f"The file {file} belongs to another user, who can change the settings.")
    _mended(complaint)
    assert _complaints(place) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_group_counts_unless_it_is_the_owners_own(place: Path) -> None:
    """Root's group is its own; another's may hold anybody."""
    file, data = place / "settings" / "config.toml", place / "it's data"
    file.chmod(0o664)
    data.chmod(0o770)
    assert _complaints(place) == []
    os.chown(file, -1, SOMEBODY)
    os.chown(data, -1, SOMEBODY)
    of_file, of_data = _complaints(place)
    assert "write the file" in of_file
    assert ACCESS in of_data


def test_settings_that_are_a_link_are_looked_at_where_they_lie(place: Path) -> None:
    link = place / "it's data" / "config.toml"
    link.symlink_to(place / "settings" / "config.toml")
    assert loose_permissions(link, place / "none") == ()
    (place / "settings").chmod(0o777)
    (complaint,) = loose_permissions(link, place / "none")
    assert f"the folder {place / 'settings'}," in complaint
    _mended(complaint)
    (place / "it's data").chmod(0o777)
    (complaint,) = loose_permissions(link, place / "none")
    assert f"""the folder {place / "it's data"},""" in complaint


@pytest.mark.slow
def test_commands_and_servers_say_it_once_at_their_start(scripts: Scripts, place: Path) -> None:
    file, data = place / "settings" / "config.toml", place / "it's data"
    options = ("--config", file, "--data", data)
    assert scripts.admin("tenant", "create", "acorn", *options).returncode == 0
    commands = (("config", "check"), ("config", "check", "--json"), ("status",))
    for command in commands:
        assert scripts.admin(*command, *options).stderr == ""
    assert _of_server(scripts, file, data) == []
    file.chmod(0o666)
    (complaint,) = _complaints(place)
    for command in commands:
        run = scripts.admin(*command, *options)
        assert run.stderr == f"refdesk-admin: {complaint}\n"
        assert run.returncode == 0
    assert [json.loads(line)["message"] for line in _of_server(scripts, file, data)] == [complaint]


def _of_server(scripts: Scripts, config: Path, data: Path) -> list[str]:
    """What a server says on standard error from its start to the end of its input."""
    run = scripts.serve("--config", config, "--data", data)
    assert run.returncode == 0, run.stderr
    return run.stderr.splitlines()
