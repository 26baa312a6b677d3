"""What replies show of code, Markdown and tables is what stands in the files, character for character."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from rag.answers import BETWEEN_EXCERPTS
from rag.text.segments import with_indent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.conftest import Scripts

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MODULES = (
    "bisect.py calendar.py csv.py fnmatch.py graphlib.py heapq.py sched.py shlex.py textwrap.py queue.py"
)
GENERICS = """\
# Generic Data Types

We use generics to create definitions. The type `Option<T>` holds an Option<char> or nothing.

```rust
#![feature(test)]
fn largest<T: PartialOrd>(list: &[T]) -> Option<&T> {
    let mut characters: Vec<Option<char>> = vec![None, Some('a')];
    list.iter().max_by(|a, b| a.partial_cmp(b).unwrap())
}
```

```html
<img src="https://evil.example/?q=1">
```

## In Structs

    struct Point<T> {
        x: T,
    }

"""
FILES = {
    "generics.md": GENERICS
    + "\n\n".join(f"### Form {n}\n\nA HashMap<String, V{n}> maps." for n in range(40)),
    "table.md": "# Rates\n\n| type | rate |\n|---|---|\n"
    + "\n".join(f"| `Vec<T{n}>`  | {n} per hour |" for n in range(200)),
    "windows.md": "# Ends\r\n\r\n- an item of lists\r\n  - a deeper item \r\n\r\n\r\n1. one\r\n" * 30,
    "poem.txt": "The rose is red,\n    the violet blue,\n\n\n        and sugar is sweet\n\t and so are you.\n"
    * 30,
    "hostile.md": 'A hostile picture: <img src="https://evil.example/?q=1">\n',
}
QUERIES: dict[str, dict[str, Any]] = {
    "heap invariant": {},
    "merge sorted iterables": {"detail": "section"},
    "wrap paragraphs of text": {"detail": "snippet"},
    "calendar month weeks": {"limit": 3},
    "shell tokens quotes": {},
    "priority queue event": {"limit": 20},
    "Option<char>": {"mode": "exact"},
    "self": {"mode": "exact"},
    "generic HashMap": {},
    "rate per hour of a type": {},
    "a deeper item of lists": {},
    "rose violet sugar": {},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files with everything whose white space counts."""
    folder = tmp_path / "files"
    folder.mkdir()
    for module in MODULES.split():
        (folder / module).write_bytes((Path(sysconfig.get_path("stdlib")) / module).read_bytes())
    for name, text in FILES.items():
        (folder / name).write_bytes(text.encode())
    return folder


@pytest.fixture
async def client(scripts: Scripts, folder: Path, tmp_path: Path) -> AsyncIterator[Client]:
    run = scripts.admin("ingest", folder, "--data", tmp_path / "data")
    assert run.returncode == 0, run.stderr
    server = StdioServerParameters(
        command=scripts.forked_server, args=["--data", str(tmp_path / "data")], env=scripts.environment
    )
    with anyio.fail_after(120):
        async with Client(server) as client:
            yield client


async def _called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 any JSON
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return dict(result.structured_content or {})


def _written(folder: Path, path: str) -> str:
    """The text of a file with the line ends that stored texts have."""
    return (folder / Path(path).name).read_bytes().decode().replace("\r\n", "\n")


async def test_every_reply_shows_what_the_files_say(
    client: Client, scripts: Scripts, folder: Path, tmp_path: Path
) -> None:
    joined, quotes = 0, []
    for query, arguments in QUERIES.items():
        reply = await _called(client, "search", query=query, max_chars=60_000, **arguments)
        assert reply["results"], query
        for hit in reply["results"]:
            text = _written(folder, hit["metadata"]["path"])
            spans = hit.get("excerpts") or [[hit["start"], hit["end"]]]
            verbatim = BETWEEN_EXCERPTS.join(text[start:end] for start, end in spans)
            if Path(hit["metadata"]["path"]).name == "hostile.md":
                assert any(note.startswith("Not verbatim") for note in reply["notes"])
                continue
            assert hit["text"] == verbatim, (query, hit["id"])
            start = hit["start"]
            words_at = start + len(hit["text"]) - len(hit["text"].lstrip())
            assert with_indent(text, words_at) == start, (query, hit["id"])
            joined += "-" in hit["id"].partition("/")[2] and len(spans) == 1
            opened = await _called(client, "get_source", id=hit["id"], around=0, max_chars=60_000)
            assert text[opened["start"] : opened["end"]] == opened["text"]
            if not arguments:
                assert (opened["start"], opened["text"]) == (hit["start"], hit["text"])
            lines = "\n".join(f"> {line}" for line in hit["text"].split("\n"))
            quotes.append(f"{lines} [{hit['id']}]\n")
        hostile = "Not verbatim" in " ".join(reply["notes"])
        assert hostile == any("hostile" in hit["metadata"]["path"] for hit in reply["results"]), query
    assert joined > 3
    answer = tmp_path / "answer.md"
    answer.write_text("\n".join(quotes))
    checked = scripts.admin("cite", "check", answer, "--data", tmp_path / "data")
    assert checked.returncode == 0, checked.stdout[-2000:]


async def test_what_loads_a_picture_is_broken_and_it_is_said(client: Client) -> None:
    reply = await _called(client, "search", query="hostile picture", mode="sparse")
    (hit,) = [hit for hit in reply["results"] if "hostile" in hit["metadata"]["path"]]
    assert "< img src=" in hit["text"]
    assert any("1 space inserted" in note for note in reply["notes"])
