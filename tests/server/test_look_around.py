"""A client that knows nothing looks around: collections, a folder, a document, lines, a citation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.conftest import Scripts

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ODD = "50% [x](y) & Caf\u00e9.md"


@pytest.fixture(scope="module")
def shelves(admin: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    secret, rest = folder / "files" / "secret", [folder / "files" / "handbook", folder / "files" / "log.txt"]
    admin("ingest", *rest, "--collection", "handbook", "--data", data)
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
    assert [(one["name"], one["documents"]) for one in top["entries"]] == [("handbook/", 4)]
    shelf = await ask(id="handbook/")
    assert shelf["documents"] == 4
    assert [one["name"] for one in shelf["entries"]] == ["leave/", ODD, "log.txt"]
    folder = await ask(id=shelf["path"] + shelf["entries"][0]["name"])
    parental, sick = folder["entries"]
    assert (parental["name"], parental["title"]) == ("parental.md", "Parental leave")
    assert parental["date"].startswith("2026-01-02")
    assert folder["uris"] == "refdesk://handbook/{id}"
    outline = await ask(id="handbook/leave/sick.md", outline=True)
    assert [one["title"] for one in outline["outline"]] == ["Sick leave", "Doctor", "Pay"]
    assert (outline["id"], outline["length"]) == (sick["id"], sick["length"])
    section = await ask(id=sick["id"], section="pay")
    assert section["text"] == "## Pay\n\nSix weeks.\n"[: len(section["text"])]
    (first, _, last) = section["lines"].partition("-")
    lines = await ask(id="leave/sick.md", lines=f"{first}-{last}")
    assert lines["text"].startswith(f"{first}\t## Pay\n")
    (chunk,) = [one for one in lines["chunks"] if one["lines"].endswith(f"-{last}") or one["lines"] == last]
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
        names = [one["name"] for one in result.structured_content["entries"]]
        assert names == ["leave/", "salaries/", ODD, "log.txt"]
        result = await client.call_tool("get_source", {"id": "handbook/salaries/2026.md"})
        assert result.structured_content
        assert "Quite a lot." in result.structured_content["text"]
