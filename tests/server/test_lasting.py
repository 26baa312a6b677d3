"""What somebody cited is found again after the document was edited, by a host that asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from anyio import to_thread
from mcp import Client, MCPError, StdioServerParameters

from rag.search import source_window
from rag.uris import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.conftest import Scripts

pytestmark = [pytest.mark.slow, pytest.mark.anyio]

SECTIONS = ["Hours", "Leave", "Travel", "Sickness", "Parking", "Keys"]
PARTS = 10  # sentences of a section: too many for two sections in a passage
SAME = "\n\n## Again\n\n" + " ".join(f"This is said twice, {part} times." for part in range(PARTS * 2))


def _section(name: str) -> str:
    rules = [f"Rule {part} of {name} is that everybody asks {part} days before." for part in range(PARTS)]
    return f"## {name}\n\n{' '.join(rules)}"


def _document(*sections: str) -> str:
    return "# Handbook\n\n" + "\n\n".join(sections) + "\n"


@dataclass(frozen=True, slots=True)
class Office:
    """A folder with a handbook, and a client of the server that searches it."""

    scripts: Scripts
    folder: Path
    client: Client

    async def admin(self, *arguments: str | Path) -> str:
        run = await to_thread.run_sync(
            lambda: self.scripts.admin(*arguments, "--data", self.folder.parent / "data")
        )
        assert run.returncode == 0, run.stderr
        return run.stdout

    async def write(self, *sections: str, name: str = "handbook.md") -> None:
        """Let the folder hold this handbook alone, and ingest it."""
        for file in self.folder.iterdir():
            file.unlink()
        await anyio.Path(self.folder / name).write_text(_document(*sections))
        await self.admin("ingest", self.folder)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 any JSON
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content
        return dict(result.structured_content or {})

    async def cite(self, name: str) -> str:
        """A lasting citation of the passage that has a section."""
        reply = await self.call("search", query=name, mode="sparse", limit=1)
        (hit,) = reply["results"]
        source_id, _, seq = hit["id"].partition("/")
        assert name in hit["cite_as"]
        return f"{source_id}@{hit['revision']}/{seq}"

    async def opened(self, cited: str) -> tuple[str, str, str]:
        """The text at a citation, what is said of it, and the same by its resource."""
        reply = await self.call("get_source", id=f"[{cited}]", around=0)
        uri = f"refdesk://documents/{cited}"
        (contents,) = (await self.client.read_resource(uri)).contents
        (note,) = (note for note in reply["notes"] if note.startswith("The cited"))
        resource = getattr(contents, "text", "")
        assert note in resource
        return reply["text"], note, resource


@pytest.fixture
async def office(scripts: Scripts, tmp_path: Path) -> AsyncIterator[Office]:
    folder = tmp_path / "files"
    folder.mkdir()
    await to_thread.run_sync(
        lambda: scripts.admin("tenant", "create", "default", "--data", tmp_path / "data")
    )
    server = StdioServerParameters(
        command=scripts.forked_server, args=["--data", str(tmp_path / "data")], env=scripts.environment
    )
    async with Client(server, read_timeout_seconds=60) as client:
        yield Office(scripts, folder, client)


async def test_a_cited_passage_is_found_again_whatever_happens_to_its_document(office: Office) -> None:
    sections = [_section(name) for name in SECTIONS]
    await office.write(*sections)
    cited = await office.cite("Travel")
    source_id, _, seq = cited.partition("/")
    source_id = source_id.partition("@")[0]
    first, note, _ = await office.opened(cited)
    assert "of Travel" in first
    assert note == source_window.STANDS

    await office.write(*sections[:1], _section("Bicycles"), *sections[1:])
    text, note, _ = await office.opened(cited)
    assert (text, note) == (first, source_window.STANDS_ELSEWHERE.format(await _now(office, "Travel")))
    assert (await office.call("get_source", id=f"{source_id}/{seq}", around=0))["text"] != first

    await office.write(*sections[:2], _section("Travel").replace("everybody", "nobody"), *sections[3:])
    text, note, _ = await office.opened(cited)
    assert "nobody" in text
    assert note == source_window.CHANGED.format(await _now(office, "Travel"))

    await office.write(*sections[:2], *sections[3:])
    _, note, _ = await office.opened(cited)
    assert note == source_window.GONE.format(await _now(office, "Leave"))

    await office.write(*sections, name="rules.md")  # edited and renamed at once: another document
    with pytest.raises(MCPError) as error:
        await office.client.read_resource(f"refdesk://documents/{cited}")
    assert error.value.error.message == NOT_FOUND


async def _now(office: Office, name: str) -> str:
    """The id of the passage that has a section."""
    cited = await office.cite(name)
    source, _, seq = cited.partition("/")
    return f"{source.partition('@')[0]}/{seq}"


async def test_moving_a_file_and_cutting_it_differently_leave_a_citation_as_it_is(office: Office) -> None:
    sections = [_section(name) for name in SECTIONS]
    await office.write(*sections)
    cited = await office.cite("Travel")
    first, *_ = await office.opened(cited)

    await office.write(*sections, name="moved.txt")  # and read as another format
    assert (await office.opened(cited))[:2] == (first, source_window.STANDS)

    for cut in ("structure,max=40", "document", "sentence,max=60,overlap=20"):
        await office.admin("collection", "rebuild", "documents", "--chunking", cut)
        text, note, resource = await office.opened(cited)
        assert note.startswith(source_window.STANDS_ELSEWHERE.partition(",")[0])
        assert first in text
        assert first in resource
    await office.admin("purge")
    result = await office.client.call_tool("get_source", {"id": cited})
    assert result.is_error
    assert "not known any more" in str(result.content)


async def test_of_a_passage_that_stands_twice_each_is_found_at_its_own_place(office: Office) -> None:
    sections = [_section("Hours") + SAME, _section("Leave") + SAME]
    await office.write(*sections)
    before = await _twice(office)
    await office.write(_section("Keys"), *sections)
    after = await _twice(office)
    source_id = after[0].partition("/")[0]
    revision = (await office.call("get_source", id=source_id))["revision"]
    await office.write(*sections)
    assert before != after
    for was, now in zip(after, before, strict=True):
        _, note, _ = await office.opened(was.replace("/", f"@{revision}/"))
        assert note == source_window.STANDS_ELSEWHERE.format(now)


async def _twice(office: Office) -> list[str]:
    """The ids of the two passages that have the same text, in order."""
    words = f"This is said twice, {PARTS * 2 - 1} times"
    hits = (await office.call("search", query=words, mode="sparse", detail="passage"))["results"]
    ids = [str(hit["id"]) for hit in hits[:2]]
    return sorted(ids, key=lambda id_: int(id_.rpartition("/")[2].split("-")[0]))
