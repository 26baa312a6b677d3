"""Reading what a desk keeps, from a folder and from a bucket; in a bucket never older than is allowed.

A wrong data folder is told from an empty desk, and from one that is right.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from rag.errors import ConfigurationError, StoreError
from rag.home import Bucket, check_data_folder, data_folder_problem, names, newest_version, read
from rag.store.read.connection import connect_to
from rag.store.write.bucket_objects import delete, put
from rag.store.write.desk_folder import prepare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.bucket import ObjectStore


@pytest.fixture
def bucket(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Bucket]:
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    options = {"endpoint": object_store.endpoint, "region": "us-east-1", "allow_http": "true"}
    return lambda seconds: Bucket(object_store.uri, options, consistency_seconds=seconds)


@pytest.mark.slow
def test_a_folder_and_a_bucket_say_the_same_of_what_is_there_and_what_is_not(
    bucket: Callable[[float], Bucket], tmp_path: Path
) -> None:
    in_bucket = bucket(0)
    for name in ("tenants/acorn", "tenants/birch", "tenants/folder/inner", "keys.json"):
        put(in_bucket, name, name.encode())
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    for home in (tmp_path, in_bucket):
        assert read(home, "keys.json") == b"keys.json"
        assert read(home, "nothing") is None
        assert set(names(home, "tenants")) - {"folder"} == {"acorn", "birch"}
        assert names(home, "runs") == ()


@pytest.fixture
def asked_paths() -> Iterator[tuple[str, list[str]]]:
    """The address of a store that has nothing, and the paths that it was asked for."""
    paths: list[str] = []

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path.partition("?")[0])
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{store.server_port}", paths
        store.shutdown()


@pytest.mark.slow
@pytest.mark.anyio
@pytest.mark.parametrize(("virtual_hosted", "path"), [("false", "/bucket"), ("true", "/")])
async def test_both_libraries_of_a_bucket_read_from_the_environment_what_few_stores_need(
    asked_paths: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch, virtual_hosted: str, path: str
) -> None:
    endpoint, paths = asked_paths
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", virtual_hosted)
    bucket = Bucket("s3://bucket/desk", {"endpoint": endpoint, "allow_http": "true"})
    assert bucket.read("keys.json") is None
    assert paths == [f"{path.rstrip('/')}/desk/keys.json"]
    with pytest.raises(ValueError, match="S3"):
        await (await connect_to(bucket.uri, options=bucket.engine_options)).open_table("chunks")
    assert {*paths[1:]} == {path}


def test_an_object_is_asked_for_again_after_the_bound_and_not_before(
    bucket: Callable[[float], Bucket], object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("rag.home.time.monotonic", lambda: now)
    fresh, late = bucket(0), bucket(10)
    put(fresh, "a", b"1")
    assert (fresh.read("a"), late.read("a"), late.read("b")) == (b"1", b"1", None)
    assert late.names("tenants") == ()
    put(fresh, "a", b"2")
    put(fresh, "b", b"new")
    put(fresh, "tenants/acorn", b"")
    before = object_store.requests["GET"]
    assert (late.read("a"), late.read("b"), late.names("tenants")) == (b"1", None, ())
    assert object_store.requests["GET"] == before
    assert fresh.read("a") == b"2"
    now += 10
    assert (late.read("a"), late.read("b"), late.names("tenants")) == (b"2", b"new", ("acorn",))
    delete(fresh, ["a"])
    assert fresh.read("a") is None
    now += 10
    assert late.read("a") is None


def test_who_looks_once_asks_again_for_what_it_has_written_itself(
    bucket: Callable[[float], Bucket], object_store: ObjectStore
) -> None:
    once, writer = bucket(0), bucket(0)
    put(writer, "tenants/acorn", b"")
    once.look_once()
    assert (once.names("tenants"), once.read("a")) == (("acorn",), None)
    before = object_store.requests["GET"]
    assert (once.read("tenants/acorn"), once.read("tenants/birch")) == (b"", None)  # by the list
    put(writer, "tenants/birch", b"")
    assert (once.names("tenants"), once.read("a")) == (("acorn",), None)
    assert object_store.requests["GET"] == before
    put(once, "tenants/cedar", b"c")
    put(once, "a", b"1")
    assert (once.names("tenants"), once.read("a")) == (("acorn", "birch", "cedar"), b"1")
    delete(once, ["a"])
    assert (once.read("tenants/cedar"), once.read("a")) == (b"c", None)
    put(writer, "a", b"2")
    once.look_once()
    assert once.read("a") == b"2"


def test_what_was_read_is_not_shown_when_the_store_fails_after_the_bound(
    bucket: Callable[[float], Bucket], object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.monotonic()
    monkeypatch.setattr("rag.home.time.monotonic", lambda: now)
    fresh, late = bucket(0), bucket(10)
    put(fresh, "a", b"1")
    for store in (fresh, late):
        assert store.read("a") == b"1"
        assert store.names("tenants") == ()
    object_store.down = True
    assert late.read("a") == b"1"
    now += 10
    for store in (fresh, late):
        for reading in (partial(store.read, "a"), partial(store.names, "tenants")):
            with pytest.raises(StoreError, match=r"can't be read: .* Run refdesk-admin doctor") as raised:
                reading()
            assert "503" not in str(raised.value)
    object_store.down = False
    assert late.read("a") == b"1"


def test_the_newest_version_of_a_table_is_told_by_its_files(tmp_path: Path) -> None:
    (versions := tmp_path / "_versions").mkdir()
    with pytest.raises(FileNotFoundError):
        newest_version(tmp_path)
    (versions / "18446744073709551614.manifest").touch()
    first = newest_version(tmp_path)
    assert first == newest_version(tmp_path)
    (versions / "18446744073709551613.manifest").touch()
    assert newest_version(tmp_path)[0] == "18446744073709551613.manifest"
    (versions / "12.manifest").touch()  # whose names don't sort newest first
    with pytest.raises(FileNotFoundError):
        newest_version(tmp_path)


def problem(data: Path) -> str:
    with pytest.raises(ConfigurationError) as error:
        check_data_folder(data)
    return str(error.value)


def test_a_folder_that_was_prepared_is_right_though_it_holds_nothing(tmp_path: Path) -> None:
    prepare(tmp_path)
    assert data_folder_problem(tmp_path) is None
    check_data_folder(tmp_path)


def test_a_folder_that_is_not_there_may_be_on_a_drive_be_misnamed_or_still_to_come(tmp_path: Path) -> None:
    data = tmp_path / "not" / "there"
    words = problem(data)
    assert words.startswith(f"There is no data folder {data}. If its drive is not mounted, mount it.")
    assert "--data, REFDESK_DATA, or data in the settings" in words
    assert "run refdesk-admin ingest PATH to create it" in words
    assert not data.parent.exists()


def test_a_link_to_nowhere_leads_to_no_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert problem(tmp_path / "link").startswith("There is no data folder")


def test_an_empty_folder_may_be_where_a_drive_belongs(tmp_path: Path) -> None:
    words = problem(tmp_path)
    nowhere = problem(tmp_path / "not").partition(". ")[2]
    assert words == f"The data folder {tmp_path} is empty. {nowhere.replace('to create it', 'to fill it')}"


def test_a_file_is_no_folder_and_neither_is_what_is_below_it(tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("# Notes\n")
    for data in (file, file / "data"):
        assert problem(data).startswith(f"The data folder {data} is a file, or below one.")


def test_somebody_elses_folder_is_not_offered_for_filling(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n")
    words = problem(tmp_path)
    assert words.startswith(f"{tmp_path} is not a data folder of refdesk.")
    assert "ingest" not in words


@pytest.mark.parametrize("part", ["", "tenants"])
def test_a_folder_without_permission_says_so(plain_folder: Path, part: str) -> None:
    data = plain_folder / "data"
    prepare(data)
    assert data_folder_problem(data) is None
    (data / part).chmod(0)
    try:
        assert problem(data).startswith(f"The data folder {data} can't be read: Permission denied.")
    finally:
        (data / part).chmod(0o700)
