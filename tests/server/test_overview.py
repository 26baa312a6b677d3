"""What there is: told to each caller in the search tool's description, and found by one who looks around."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from rag.admin.runs_command import begin_run, end_run
from rag.config.server_settings import LimitSettings
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.run_history import IngestionRun
from server.admission import Admission
from server.handlers import introduction
from server.lazy_desk import LazyDesk
from server.tool_listing import INCOMPLETE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Era, Remote, Start, Wire

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


MAX_TEXT = 2_048  # characters, where hosts cut
ANYBODYS = """\
You can search 122 documents here:
- many: 120 documents. Fields: status.
- handbook: Rules for employees (https://intranet.example/handbook). 2 documents, 2024-05-01, English. \
Fields: status: final (2); year: 2024 (2).\
"""
ANNS = """\
You can search 124 documents here:
- many: 120 documents. Fields: status.
- handbook: Rules for employees (https://intranet.example/handbook). 3 documents, 1999-05-01 to 2024-05-01, \
English and German. Fields: status: final (2), draft (1); year: 2024 (2), 1999 (1).
- secret: 1 document, French.\
"""
"""Only what ann alone may read is in German and French; of the notes in `many`, no language is known."""


@dataclass(frozen=True, slots=True)
class Listening:
    """A server over HTTP, and the keys of ann and bob."""

    remote: Remote
    keys: dict[str, str]


@pytest.fixture(scope="module")
def listening(lasting_listen: Callable[..., Remote], office: Path, admin: Admin) -> Listening:
    keys = {user: admin("key", "create", "--user", user, "--data", office)["key"] for user in ("ann", "bob")}
    return Listening(lasting_listen(office), keys)


def described(wire: Wire) -> str:
    search, _ = wire.result("tools/list")["tools"]
    assert len(search["description"]) <= MAX_TEXT
    return str(search["description"])


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_local_host_reads_in_the_tool_what_its_user_may_read(start: Start, office: Path, era: Era) -> None:
    anybody, ann = start(office, era=era), start(office, era=era, flags=["--user", "ann"])
    greetings = [wire.begin()["instructions"] for wire in (anybody, ann)]
    assert greetings[0] == greetings[1]  # it doesn't wait for the engine
    assert "documents here" not in greetings[0]
    assert described(anybody).endswith(f"\n\n{ANYBODYS}")
    assert described(ann).endswith(f"\n\n{ANNS}")
    nothing = start(office.parent / "nothing", era=era).begun()
    assert "You can search" not in described(nothing)


def test_the_list_of_tools_is_the_same_each_time_and_follows_what_is_ingested(
    admin: Admin, start: Start, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("# A\n\npendulum\n")
    (tmp_path / "b.md").write_text("# B\n\nclock\n")
    data = tmp_path / "data"
    wire = start(data).begun()
    empty = wire.result("tools/list")
    assert "documents here" not in str(empty)
    admin("ingest", tmp_path / "a.md", "--data", data)
    assert "You can search 1 document here:\n- documents: 1 document" in described(wire)
    assert wire.result("tools/list") == wire.result("tools/list")
    admin("ingest", tmp_path / "b.md", "--data", data)
    assert "- documents: 2 documents" in described(wire)


def test_a_local_host_reads_that_the_first_ingestion_has_not_ended(
    admin: Admin, start: Start, tmp_path: Path
) -> None:
    data, began = tmp_path / "data", datetime(2026, 5, 1, 9, 30, tzinfo=UTC)
    run = IngestionRun(collection="documents", command="ingest", began=began)
    (data / "runs").mkdir(parents=True)
    admin("tenant", "create", "default", "--data", data)
    first = begin_run(data, "default", run)
    wire = start(data).begun()
    missing = INCOMPLETE.format(began)
    assert described(wire).endswith(missing)  # nothing can be read yet
    (tmp_path / "a.md").write_text("# A\n\npendulum\n")
    admin("ingest", tmp_path / "a.md", "--collection", "other", "--data", data)
    assert "1 document" in described(wire)
    assert missing not in described(wire)  # the collection that is being read isn't shown
    end_run(data, "default", first, run.model_copy(update={"ended": began, "result": "complete"}))
    begin_run(data, "default", run)
    assert missing not in described(wire)  # it is not the first one of its collection
    for file in (data / "runs" / "default").glob("*.other.json"):
        file.unlink()
    begin_run(data, "default", run.model_copy(update={"collection": "other"}))
    assert f"{missing}\n\nYou can search 1 document" in described(wire)
    for file in (data / "runs" / "default").glob("000001.*.json"):
        file.unlink()
    assert missing not in described(wire)  # the history has lost what would tell


def test_values_of_fields_are_named_unless_the_operator_says_no(start: Start, office: Path) -> None:
    wire = start(office, env={"REFDESK_SERVER_FIELD_VALUES": "false"}).begun()
    assert "Fields: status; year." in described(wire)
    (search, _) = wire.result("tools/list")["tools"]
    assert "final" not in json.dumps(search)


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_over_http_the_instructions_say_at_once_what_each_key_may_read(
    listening: Listening, mode: Literal["legacy", "auto"]
) -> None:
    for user, overview in (("ann", ANNS), ("bob", ANYBODYS)):
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {listening.keys[user]}"}) as http,
            Client(streamable_http_client(listening.remote.url, http_client=http), mode=mode) as client,
        ):
            assert client.instructions
            assert client.instructions.startswith("refdesk searches")
            assert client.instructions.endswith(f"\n\n{overview}")
            assert len(client.instructions) <= MAX_TEXT
            search, _ = (await client.list_tools()).tools
            assert search.description
            assert search.description.endswith(f"\n\n{overview}")


@pytest.mark.anyio
async def test_a_caller_who_may_not_ask_more_is_greeted_all_the_same_without_counting(office: Path) -> None:
    settings, ann = Settings(data=office), Principal("default", "ann")
    admission = Admission(LimitSettings(requests_per_minute=1))
    greet = introduction(LazyDesk(settings), settings.server, admission, lambda _context: ann)

    async def plain(_context: object) -> dict[str, str]:
        return {"instructions": "plain", "kept": "yes"}

    context: Any = SimpleNamespace(method="initialize")
    first, second = [await greet(context, plain) for _ in range(2)]
    assert isinstance(first, dict)
    assert first["instructions"].endswith(ANNS)
    assert first["kept"] == "yes"
    assert second == {"instructions": "plain", "kept": "yes"}
    context.method = "tools/call"
    assert await greet(context, plain) == {"instructions": "plain", "kept": "yes"}


ODD = "50% [x](y) & Caf\u00e9.md"


@pytest.fixture(scope="module")
def shelves(admin: Admin, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two collections with folders; a folder is for ann alone."""
    folder = tmp_path_factory.mktemp("shelves")
    files = {
        "handbook/leave/sick.md": "# Sick leave\n\n## Doctor\n\nBring a note.\n\n## Pay\n\nSix weeks.\n",
        "handbook/leave/parental.md": "---\ndate: 2026-01-02\n---\n\n# Parental leave\n\nTwelve months.\n",
        f"handbook/{ODD.replace(chr(0xE9), 'e' + chr(0x301))}": "# Odd\n\nA name as people give them.\n",
        "secret/salaries/2026.md": "# Salaries\n\nQuite a lot.\n",
        "log.txt": "".join(f"line {n}\n" for n in range(1, 400)),
    }
    for name, text in files.items():
        file = folder / "files" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    data = folder / "data"
    handbook, secret, log = (folder / "files" / name for name in ("handbook", "secret", "log.txt"))
    admin("ingest", handbook, log, "--collection", "handbook", "--data", data)
    admin("ingest", secret, "--collection", "handbook", "--allow", "user:ann", "--data", data)
    return data


@pytest.fixture(scope="module", params=["legacy", "auto"])
async def ask(
    request: pytest.FixtureRequest, scripts: Scripts, shelves: Path
) -> AsyncIterator[Callable[..., Any]]:
    """Asks `get_source` of a server that runs for nobody in particular."""
    server = StdioServerParameters(
        command=scripts.forked_server, args=["--data", str(shelves)], env=scripts.environment
    )
    async with Client(stdio_client(server), mode=request.param) as client:

        async def get_source(**arguments: object) -> Any:  # noqa: ANN401 any JSON
            result = await client.call_tool("get_source", arguments)
            (block,) = result.content
            assert block.type == "text"
            return block.text if result.is_error else result.structured_content

        yield get_source


async def test_from_nothing_to_a_citation(ask: Callable[..., Any]) -> None:
    top = await ask()
    assert [(entry["name"], entry["documents"]) for entry in top["entries"]] == [("handbook/", 4)]
    shelf = await ask(id="handbook/")
    assert shelf["documents"] == 4
    assert [entry["name"] for entry in shelf["entries"]] == ["leave/", ODD, "log.txt"]
    folder = await ask(id=shelf["path"] + shelf["entries"][0]["name"])
    parental, sick = folder["entries"]
    assert (parental["name"], parental["title"]) == ("parental.md", "Parental leave")
    assert parental["date"].startswith("2026-01-02")
    assert folder["uris"] == "refdesk://handbook/{id}"
    outline = await ask(id="handbook/leave/sick.md", outline=True)
    assert [heading["title"] for heading in outline["outline"]] == ["Sick leave", "Doctor", "Pay"]
    assert (outline["id"], outline["length"]) == (sick["id"], sick["length"])
    section = await ask(id=sick["id"], section="pay")
    assert section["text"] == "## Pay\n\nSix weeks.\n"[: len(section["text"])]
    (first, _, last) = section["lines"].partition("-")
    lines = await ask(id="leave/sick.md", lines=f"{first}-{last}")
    assert lines["text"].startswith(f"{first}\t## Pay\n")
    (chunk,) = [chunk for chunk in lines["chunks"] if chunk["lines"].rpartition("-")[2] == last]
    cited = chunk["uri"].removeprefix("refdesk://handbook/")
    assert "Six weeks." in (await ask(id=cited, around=0))["text"]


async def test_a_name_is_opened_as_it_is_shown_or_as_the_file_has_it(ask: Callable[..., Any]) -> None:
    for name in (ODD, ODD.replace("\u00e9", "e\u0301"), ODD.upper()):
        opened = await ask(id=f"handbook/{name}")
        assert opened["title"] == "Odd"


async def test_a_log_is_read_by_lines(ask: Callable[..., Any]) -> None:
    page = await ask(id="log.txt", lines="120-180")
    assert page["text"].split("\n") == [f"{n}\tline {n}" for n in range(120, 181)]
    assert (page["lines"], page["line_count"]) == ("120-180", 399)
    last = await ask(id="handbook/log.txt", lines="398-500")
    assert last["text"].split("\n") == ["398\tline 398", "399\tline 399"]


async def test_what_is_for_another_is_not_there(ask: Callable[..., Any]) -> None:
    words = await ask(id="handbook/nothing")
    assert words.startswith("Nothing readable")
    for path in ("handbook/salaries", "handbook/salaries/", "handbook/salaries/2026.md", "salaries/2026.md"):
        assert await ask(id=path) == words


async def test_the_one_whom_it_is_for_sees_it(scripts: Scripts, shelves: Path) -> None:
    environment = scripts.environment | {"REFDESK_PRINCIPAL_USER": "ann"}
    server = StdioServerParameters(
        command=scripts.forked_server, args=["--data", str(shelves)], env=environment
    )
    async with Client(stdio_client(server)) as client:
        result = await client.call_tool("get_source", {"id": "handbook"})
        assert result.structured_content
        names = [entry["name"] for entry in result.structured_content["entries"]]
        assert names == ["leave/", "salaries/", ODD, "log.txt"]
        result = await client.call_tool("get_source", {"id": "handbook/salaries/2026.md"})
        assert result.structured_content
        assert "Quite a lot." in result.structured_content["text"]
