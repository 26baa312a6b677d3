"""A command in the data folder of another user: root in that of a service, and the service after that."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rag
from rag import home
from rag.store.write.desk_folder import write_whole

if TYPE_CHECKING:
    from tests.admin.conftest import Inside

NOBODY = 65534
DOCUMENTS = {
    "pump.md": "# Pump\n\nThe pump delivers 40 litres a minute.\n",
    "valve.md": "# Valve\n\nIt shuts.\n",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else"),
]


@contextmanager
def nobody() -> Iterator[None]:
    """Be the user nobody in this process."""
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, 0)
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


@pytest.fixture
def service(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inside]:
    """A desk of the user nobody with a document, in a folder that all may enter."""
    place = Path(tempfile.mkdtemp(dir="/tmp"))  # pytest's own folder is closed to others
    place.chmod(0o755)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(place))
    with nobody():
        readable = os.access(rag.__file__, os.R_OK)
    if not readable:
        pytest.skip("nobody but root may read refdesk here")
    for name, text in DOCUMENTS.items():
        (place / name).write_text(text)
    desk = replace(inside, data=place / "data")
    desk.run("ingest", place / "pump.md")
    for path in (desk.data, *desk.data.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    yield desk
    shutil.rmtree(place)


def of_root(data: Path) -> list[str]:
    return [str(path.relative_to(data)) for path in data.rglob("*") if path.lstat().st_uid == 0]


@pytest.mark.parametrize("mode", [0o077, 0o022])
def test_what_root_makes_in_the_folder_of_a_service_belongs_to_the_service(
    service: Inside, mode: int
) -> None:
    umask = os.umask(mode)
    try:
        service.run("ingest", service.data.parent / "valve.md")
        key = service.json("key", "create", "--user", "ann")
        service.run("tenant", "create", "acme")
        service.run("purge", "--tenant", "default")
        service.run("nonsense", code=2)
    finally:
        assert os.umask(umask) == mode
    assert of_root(service.data) == []
    with nobody():
        assert service.titles("pump valve", "--tenant", "default") == ["Pump", "Valve"]
        assert [listed["id"] for listed in service.json("key", "list")["keys"]] == [key["id"]]
        service.run("key", "revoke", key["id"])


def test_a_tenants_own_storage_that_root_makes_is_the_services(service: Inside) -> None:
    storage = service.data.parent / "storage"
    service.run("tenant", "create", "acme", "--storage", storage)
    service.run("ingest", service.data.parent / "valve.md", "--tenant", "acme")
    assert (of_root(storage), storage.stat().st_uid) == ([], NOBODY)
    with nobody():
        assert service.titles("valve", "--tenant", "acme") == ["Valve"]


def test_a_file_that_servers_read_is_the_services_at_once(service: Inside) -> None:
    """A key file that a server can't read lets nobody in, and a command may go on for a while."""
    write_whole(service.data / "keys.json", b"{}")
    assert (service.data / "keys.json").stat().st_uid == NOBODY


def test_root_gives_only_what_its_command_made_in_the_folder(
    service: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home, "CLOCK_STEP", 0)
    secret, settings = service.data.parent / "secret", service.data / "config.toml"
    settings.write_text("")
    secret.write_text("")
    (service.data / "link").symlink_to(secret)
    (service.data / "second").hardlink_to(secret)
    service.run("ingest", service.data.parent / "valve.md")
    assert sorted(of_root(service.data)) == ["config.toml", "link", "second"]


def test_a_desk_of_root_stays_root_s(service: Inside) -> None:
    os.chown(service.data / "tenants", 0, 0)  # as in a container that works as root in a user's folder
    service.run("ingest", service.data.parent / "valve.md")
    assert any(path.endswith(".lance") for path in of_root(service.data))


@pytest.mark.parametrize("closed", ["tables/chunks*/_versions/*", "tables/access*/data", "runs", "keys.json"])
def test_what_a_killed_command_of_root_left_is_no_damage(service: Inside, closed: str) -> None:
    service.run("key", "create", "--user", "ann")
    paths = [*service.data.glob(closed)]
    for path in paths:
        os.chown(path, 0, 0)
        path.chmod(0o700 if path.is_dir() else 0o600)
    before = {path: path.stat().st_ino for path in service.data.rglob("*")}
    with nobody():
        told = service.run("doctor", "--fix", "--yes", code=1)
    assert f"sudo chown -R nobody: {service.data}" in told.stdout
    assert "amaged" not in told.stdout
    assert {path: path.stat().st_ino for path in service.data.rglob("*")} == before
    for path in paths:
        os.chown(path, NOBODY, NOBODY)
    with nobody():
        assert service.titles("pump") == ["Pump"]


def test_a_refused_table_is_not_called_damaged_and_leads_to_doctor(service: Inside) -> None:
    (manifest, *_) = service.data.glob("tables/chunks*/_versions/*.manifest")
    os.chown(manifest, 0, 0)
    manifest.chmod(0o600)
    with nobody():
        assert "This user may not read" in service.failure("search", "pump")


def test_a_key_file_of_root_is_given_back_and_of_a_third_user_is_not_trusted(service: Inside) -> None:
    service.run("key", "create", "--user", "ann")
    file = service.data / "keys.json"
    service.run("key", "list")  # root may read the service's
    os.chown(file, 0, 0)
    with nobody():
        refused = service.misuse("key", "list")
    assert f"sudo chown -R nobody: {service.data}" in refused
    assert "delete" not in refused
    os.chown(file, 12345, 12345)
    assert f"chown {NOBODY} {file}" in service.misuse("key", "list")


def test_root_that_may_not_enter_a_folder_is_told_so(
    service: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root without capabilities in a container, of which this has the outcome alone."""
    service.data.chmod(0o700)
    with nobody(), monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: 0)
        service.data.chmod(0o000)
        assert "can't be read: Permission denied" in service.misuse("status")
    service.data.chmod(0o700)


def test_the_folder_of_another_user_names_that_user(service: Inside) -> None:
    for path in (service.data, *service.data.rglob("*")):
        os.chown(path, 0, 0)
    with nobody():
        assert f"{service.data} belongs to root. Run the command as that user" in service.misuse("status")
