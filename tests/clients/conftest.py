"""Clients that others wrote, in the versions of package.json, and what the desk must say to each of them.

npm installs them, and the Node that they need, once a process of the tests and without their install scripts.
What only nightly tests need are the `devDependencies`.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests import npm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from tests.conftest import Scripts
    from tests.server.conftest import Message, Remote

HERE = Path(__file__).parent
CLIENT_SECONDS = 60  # no client takes more than three
NOTES = 50  # with the demo corpus more than a page of resources/list


def _server_fixtures() -> ModuleType:
    """tests/server/conftest.py as a module: tests are no packages."""
    spec = importlib.util.spec_from_file_location("server_conftest", HERE.parent / "server" / "conftest.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["server_conftest"] = module
    spec.loader.exec_module(module)
    return module


lasting_listen = _server_fixtures().lasting_listen


@dataclass(frozen=True, slots=True)
class Node:
    """The installed clients, and the Node that runs them, in an environment without the owner's settings."""

    folder: Path
    program: str
    environment: dict[str, str]

    def run(self, script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a script of the folder to its end."""
        return subprocess.run(
            [self.program, self.folder / script, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLIENT_SECONDS,
            check=False,
        )

    def printed(self, script: str, *arguments: str | Path) -> Any:  # noqa: ANN401 any JSON
        """What a client that ends well prints."""
        run = self.run(script, *arguments)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)


@pytest.fixture(scope="session")
def provider(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A certified OpenID provider on the machine's own Node, which npm installs in three seconds."""
    folder = tmp_path_factory.mktemp("provider")
    shutil.copytree(HERE / "issuer", folder, dirs_exist_ok=True)
    npm.install(folder)
    program = shutil.which("node")
    if program is None:
        pytest.skip("there is no node to run the OpenID provider; install Node.js 22 with npm")
    yield Node(folder, program, scripts.environment)
    shutil.rmtree(folder / "node_modules")


@pytest.fixture(scope="session")
def node(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("node")
    for file in (HERE / "package.json", *HERE.glob("*.mjs")):
        shutil.copy(file, folder)
    # Not above: where the command names this folder, pytest imports the file before it reads the profile.
    by_day = settings.default.max_examples < 100  # type: ignore[union-attr]  # there always is one
    npm.install(folder, *(["--omit=dev"] if by_day else []))
    program = shutil.which("node", path=folder / "node_modules" / ".bin")
    if program is None:
        pytest.skip("npm can't install the clients: package.json has no Node for this platform")
    home = str(folder / "home")  # the Inspector writes there, and servers on stdio look there
    yield Node(folder, program, scripts.environment | {"HOME": home, "USERPROFILE": home})
    shutil.rmtree(folder / "node_modules")  # a quarter of a gigabyte


@dataclass(frozen=True, slots=True)
class Doors:
    """The ways into one desk: a command for stdio, and a server that asks for keys."""

    command: str
    data: Path
    remote: Remote
    key: str

    def url(self, transport: str) -> str:
        return f"{self.remote.base}/sse" if transport == "sse" else self.remote.url

    def ask(self, method: str, **params: object) -> Message:
        """The whole answer to a request of 2025-11-25, by hand."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return dict(self.remote.post(self.key, body).json())

    def result(self, method: str, **params: object) -> Message:
        return dict(self.ask(method, **params)["result"])


@pytest.fixture(scope="session")
def data(scripts: Scripts, clock_room: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the demo corpus, and a collection of notes."""
    folder = tmp_path_factory.mktemp("clients")
    data, notes = folder / "data", folder / "notes"
    shutil.copytree(clock_room, data)
    notes.mkdir()
    for number in range(NOTES):
        (notes / f"{number}.md").write_text(f"# Note {number}\n\nThe lighthouse keeper wound it again.\n")
    run = scripts.admin("ingest", notes, "--collection", "notes", "--data", data)
    assert run.returncode == 0, run.stderr
    return data


@pytest.fixture(scope="session")
def doors(scripts: Scripts, data: Path, lasting_listen: Callable[..., Remote]) -> Doors:
    run = scripts.admin("key", "create", "--user", "ann", "--data", data, "--json")
    assert run.returncode == 0, run.stderr
    remote = lasting_listen(data, http_sse="true", server_pictures="always")  # as over stdio
    return Doors(scripts.forked_server, data, remote, json.loads(run.stdout)["key"])


@pytest.fixture(scope="session")
def expected(doors: Doors) -> Message:
    """What every client must get, whatever it speaks: what the desk says to one without any library."""
    client = {"name": "raw", "version": "0"}
    greeting = doors.result("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
    reply = doors.result("tools/call", name="search", arguments={"query": "pendulum", "limit": 2})
    hit = reply["structuredContent"]["results"][0]
    first = doors.result("resources/list")
    second = doors.result("resources/list", cursor=first["nextCursor"])
    uri = f"refdesk://{hit['collection']}/{hit['id']}"
    nowhere = f"{uri}999"
    assert doors.ask("resources/read", uri=nowhere)["error"]["code"] == -32602
    return {
        "server": greeting["serverInfo"],
        "instructions": greeting["instructions"],
        "capabilities": greeting["capabilities"],
        "tools": doors.result("tools/list")["tools"],
        "found": reply,
        "opened": doors.result("tools/call", name="get_source", arguments={"id": hit["id"], "around": 1}),
        "refused": doors.result("tools/call", name="search", arguments={}),
        "contents": doors.result("resources/read", uri=uri)["contents"],
        "missing": {"known": True, "data": {"uri": nowhere}},
        "resources": [*first["resources"], *second["resources"]],
        "completion": {"values": ["notes"], "total": 1, "hasMore": False},
        "prompt": doors.result("prompts/get", name="answer", arguments={"question": "Why?"})["messages"],
    }
