"""What the read-only face may not have in its hands, and serves without."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import httpx2
import psutil
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Remote, Start

pytestmark = pytest.mark.slow


FORBIDDEN = [
    "rag.ingest",
    "rag.admin",
    "rag.evaluate",
    "rag.store.write.collection_writer",
    "rag.store.write.table_maintenance",
]
HEAVY = ["lancedb", "lance", "numpy", "onnxruntime", "openai", "pyarrow", "tokenizers"]


def imported_with(*modules: str) -> set[str]:
    """All that a fresh interpreter has imported after these."""
    program = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    return set(json.loads(run.stdout))


def test_nothing_that_writes_is_imported_even_by_way_of_others() -> None:
    modules = imported_with(
        "server.start",
        "rag.search.desk",
        "rag.models.embed.local_embedder",
        "rag.models.embed.remote_embedder",
    )
    assert "rag.store.read.desk_reader" in modules
    assert not [name for name in modules if name.startswith(tuple(FORBIDDEN))]


def test_the_server_can_speak_before_it_imports_its_engine() -> None:
    modules = imported_with("server.start")
    assert "mcp.server.stdio" in modules
    assert not modules & set(HEAVY)
    assert "rag.search.desk" not in modules


def test_a_session_leaves_every_file_as_it_was_and_has_none_open_for_writing(
    scripts: Scripts, start: Start, clock_room: Path
) -> None:
    before = state(clock_room), state(scripts.home)
    wire = start(clock_room).begun()
    for mode in ("dense", "sparse", "hybrid"):
        result = wire.tool("search", {"query": "Who invented the pendulum clock?", "mode": mode, "limit": 50})
        for hit in result["structuredContent"]["results"]:
            wire.tool("get_source", {"id": hit["id"], "max_chars": 100_000})
            wire.result("resources/read", {"uri": f"refdesk://documents/{hit['id']}"})
    wire.result("resources/list")
    opened = psutil.Process(wire.process.pid).open_files()
    assert {file.mode for file in opened if file.path.startswith(str(clock_room))} <= {"r"}
    assert wire.leave() == 0
    assert (state(clock_room), state(scripts.home)) == before


def test_nothing_is_written_into_the_home_of_the_user(start: Start, clock_room: Path, tmp_path: Path) -> None:
    wire = start(clock_room, env={"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}).begun()
    assert wire.tool("search", {"query": "clock"})["structuredContent"]["results"]
    assert wire.leave() == 0
    assert list(tmp_path.rglob("*")) == []


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below with its size and time of change."""
    files = {str(path): path.stat() for path in (folder, *folder.rglob("*"))}
    return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in files.items()}


NAMESPACES = (
    ["unshare", "--mount"],  # for root
    ["unshare", "--mount", "--user", "--map-root-user"],  # for others, where the system lets them
)
REMOUNTED = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


@dataclass(frozen=True, slots=True)
class Shelf:
    """A data folder, and what to put before a command that then can't write in it."""

    data: Path
    texts: Path
    before: tuple[str, ...]

    @contextmanager
    def open_for_writing(self) -> Iterator[None]:
        """Commands without `before` may write meanwhile; on a mount of its own they always may."""
        if not self.before:
            permit(self.data, 0o700)
        try:
            yield
        finally:
            if not self.before:
                permit(self.data, 0o500)

    def state(self) -> dict[str, tuple[int, int]]:
        """Every path of the data folder with its size and time of change."""
        files = {str(path): path.stat() for path in (self.data, *self.data.rglob("*"))}
        return {name: (stat.st_size, stat.st_mtime_ns) for name, stat in files.items()}


def permit(folder: Path, mode: int) -> None:
    """Give the owner so much of everything in a folder."""
    folder.chmod(mode)
    for path in folder.rglob("*"):
        path.chmod(mode if path.is_dir() else mode & 0o600)


def mounting(data: Path) -> tuple[str, ...] | None:
    """What gives a command a read-only mount of the folder at its own path; None where the system won't."""
    for namespace in NAMESPACES:
        before = (*namespace, "sh", "-c", REMOUNTED, str(data))
        try:
            if subprocess.run([*before, "true"], capture_output=True, check=False).returncode == 0:
                return before
        except FileNotFoundError:  # no such command, as on macOS
            return None
    return None


@pytest.fixture
def shelf(scripts: Scripts, tmp_path: Path) -> Iterator[Shelf]:
    data, texts = tmp_path / "data", tmp_path / "texts"
    texts.mkdir()
    (texts / "tea.md").write_text("# Tea\n\nTea is made of leaves.\n")
    ingest(scripts, data, texts)
    before = mounting(data)
    if before is None:
        permit(data, 0o500)
    try:
        if (
            subprocess.run(
                [*(before or ()), "touch", data / "new"], capture_output=True, check=False
            ).returncode
            == 0
        ):
            pytest.skip("this user may neither mount a folder read-only nor be kept from writing in one")
        yield Shelf(data, texts, before or ())
    finally:
        permit(data, 0o700)


def ingest(scripts: Scripts, data: Path, texts: Path) -> None:
    run = scripts.admin("ingest", texts, "--data", data, "--visibility", "tenant")
    assert run.returncode == 0, run.stderr


async def texts_found(client: Client, query: str) -> str:
    """All that a search brings, once each hit has been opened in every way there is."""
    reply = cast("dict[str, Any]", (await client.call_tool("search", {"query": query})).structured_content)
    for hit in reply["results"]:
        opened = await client.call_tool("get_source", {"id": hit["id"]})
        assert opened.structured_content
        assert hit["text"] in opened.structured_content["text"]
        assert (
            hit["text"]
            in (await client.read_resource(f"refdesk://documents/{hit['id']}")).model_dump()["contents"][0][
                "text"
            ]
        )
    return "\n".join(hit["text"] for hit in reply["results"])


@pytest.mark.anyio
async def test_over_standard_input_all_is_served_nothing_is_written_and_what_is_new_is_seen(
    scripts: Scripts, shelf: Shelf, tmp_path: Path
) -> None:
    command: list[str] = [*shelf.before, scripts.server, "--data", str(shelf.data)]
    server = StdioServerParameters(command=command[0], args=command[1:], env=scripts.environment)
    before = shelf.state()
    with (tmp_path / "noise").open("w") as errlog:
        async with Client(stdio_client(server, errlog)) as client:
            assert "made of leaves" in await texts_found(client, "tea")
            assert len((await client.list_resources()).resources) == 1
            assert shelf.state() == before

            (shelf.texts / "jam.md").write_text("# Jam\n\nMarmalade is made of bitter oranges.\n")
            with shelf.open_for_writing():
                ingest(scripts, shelf.data, shelf.texts)
            after = shelf.state()
            assert after != before
            assert "bitter oranges" in await texts_found(client, "marmalade")
            assert len((await client.list_resources()).resources) == 2
    assert shelf.state() == after
    assert (tmp_path / "noise").read_text() == ""


@pytest.mark.anyio
async def test_over_http_all_is_served_nothing_is_written_and_what_is_new_or_revoked_is_seen(
    scripts: Scripts, admin: Admin, listen: Callable[..., Remote], shelf: Shelf
) -> None:
    with shelf.open_for_writing():
        key = admin("key", "create", "--user", "ann", "--data", shelf.data)
    before = shelf.state()
    remote = listen(shelf.data, before=shelf.before)
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {key['key']}"}) as http,
        Client(streamable_http_client(remote.url, http_client=http)) as client,
    ):
        assert "made of leaves" in await texts_found(client, "tea")
        assert len((await client.list_resources()).resources) == 1
        assert shelf.state() == before

        (shelf.texts / "jam.md").write_text("# Jam\n\nMarmalade is made of bitter oranges.\n")
        with shelf.open_for_writing():
            ingest(scripts, shelf.data, shelf.texts)
        assert "bitter oranges" in await texts_found(client, "marmalade")

    assert remote.post(key["key"]).status_code == 200
    with shelf.open_for_writing():
        admin("key", "revoke", key["id"], "--data", shelf.data)
    after = shelf.state()
    assert remote.post(key["key"]).status_code == 401
    assert remote.leave() == 0
    assert shelf.state() == after
    assert {line["level"] for line in remote.log()} <= {"info"}


EACH_IN_A_FORK = """
import json, os, runpy, sys
import rag.admin.ingest_command
script, *commands = json.load(sys.stdin)
for command in commands:
    read, write = os.pipe()
    if not os.fork():
        os.dup2(write, 2)
        sys.argv = [script, *command]
        runpy.run_path(script, run_name="__main__")
    os.close(write)
    with open(read, encoding="utf-8") as errors:
        said = errors.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.wait()[1]), said]))
"""


def test_what_would_write_is_refused_in_a_line_and_changes_nothing(scripts: Scripts, shelf: Shelf) -> None:
    (shelf.texts / "jam.md").write_text("# Jam\n\nMarmalade is made of bitter oranges.\n")
    before = shelf.state()
    commands = (
        ["ingest", str(shelf.texts)],
        ["remove", "*"],
        ["purge"],
        ["key", "create", "--user", "ann"],
    )
    script = str(scripts.folder / "refdesk-admin")
    run = subprocess.run(
        [*shelf.before, sys.executable, "-c", EACH_IN_A_FORK],
        env=scripts.environment,
        input=json.dumps([script, *([*words, "--data", str(shelf.data)] for words in commands)]),
        capture_output=True,
        text=True,
        check=True,
    )
    ends = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(ends) == len(commands)
    for code, words in ends:
        assert code != 0
        assert f"{shelf.data} can't be written" in words
        assert "Traceback" not in words
    assert shelf.state() == before
    with shelf.open_for_writing():
        ingest(scripts, shelf.data, shelf.texts)
    assert shelf.state() != before


def test_the_doctor_looks_at_everything_says_that_the_folder_cannot_be_written_and_calls_nothing_left_over(
    scripts: Scripts, shelf: Shelf
) -> None:
    """Locks can't be tried there, so what a running command does is known by what it wrote of itself."""
    with shelf.open_for_writing():
        (shelf.data / "spool" / "default.documents").mkdir(parents=True)
        (shelf.data / "locks" / "default.documents.holder").write_text("refdesk-admin sync (process 1)")
    command: list[str | Path] = [
        *shelf.before,
        scripts.folder / "refdesk-admin",
        "doctor",
        "--json",
        "--data",
        shelf.data,
    ]
    before = shelf.state()
    run = subprocess.run(command, env=scripts.environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "left copies" not in run.stdout
    findings = json.loads(run.stdout)["findings"]
    (folder,) = [finding for finding in findings if finding["check"] == "folder"]
    assert folder["state"] == "note"
    assert f"{shelf.data} can't be written" in folder["text"]
    assert {"catalog", "tables", "leftovers", "stray", "audit log", "client"} <= {
        finding["check"] for finding in findings
    }
    assert shelf.state() == before
