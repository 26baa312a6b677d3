"""What is shown is what is cited, and stands in the files character for character."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters

from rag.answers import BETWEEN_EXCERPTS
from rag.config.profiles import ParentStage
from rag.search.source_window import TOO_FEW
from rag.text.plain_text import sentences, with_indent
from rag.uris import NOT_FOUND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.conftest import Scripts
    from tests.server.conftest import Admin, Message, Start, Wire

pytestmark = [pytest.mark.slow, pytest.mark.anyio]


FULL = {"REFDESK_SERVER_FULL_RESULTS": "true"}
QUESTIONS = ("Who invented the pendulum clock?", "leap seconds", "when did Britain drop eleven days?")
SETTINGS = '[server]\nopenai_compat = true\nfull_results = true\n[[search.stages]]\nstage = "{}"\n'


@pytest.fixture(scope="module")
def opened(
    lasting_start: Start, clock_room: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Wire]:
    """A server on the demo corpus with one stage, by its name."""
    wires: dict[str, Wire] = {}

    def of(stage: str) -> Wire:
        if stage not in wires:
            config = tmp_path_factory.mktemp("config") / "config.toml"
            config.write_text(SETTINGS.format(stage))
            wires[stage] = lasting_start(clock_room, flags=["--config", str(config)])
            wires[stage].begin()
        return wires[stage]

    return of


@pytest.fixture(scope="module")
def wire(lasting_start: Start, clock_room: Path) -> Wire:
    """A server on the demo corpus that says where in its document each result stands."""
    return lasting_start(clock_room, env=FULL).begun()


def hits_of(wire: Wire, **more: object) -> list[Message]:
    arguments = {"max_chars": 100_000} | more
    return [
        hit
        for query in QUESTIONS
        for hit in wire.tool("search", arguments | {"query": query})["structuredContent"]["results"]
    ]


def answer_with(hits: list[Message]) -> str:
    """An answer that quotes every sentence that is shown, each with its citation."""
    lines = []
    for hit in hits:
        for start, end in sentences(hit["text"]):
            if not {*hit["text"][start:end]} & {*'"“”«»`[>'}:
                lines.append(f"“{hit['text'][start:end]}” [{hit['id']}]")
    return "\n\n".join(lines)


@pytest.mark.parametrize("stage", ["neighbors", "parent"])
def test_every_sentence_that_is_shown_passes_the_check_of_its_citation(
    opened: Callable[..., Wire], scripts: Scripts, clock_room: Path, tmp_path: Path, stage: str
) -> None:
    hits = hits_of(opened(stage))
    wide = [hit for hit in hits if "-" in hit["id"]]
    assert len(wide) > len(hits) / 4
    (tmp_path / "answer.md").write_text(answer_with(hits))
    narrowed = [hit | {"id": hit["id"].rpartition("-")[0]} for hit in wide]
    (tmp_path / "narrow.md").write_text(answer_with(narrowed))
    checked, narrow = (
        scripts.admin("cite", "check", tmp_path / name, "--data", clock_room)
        for name in ("answer.md", "narrow.md")
    )
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("\nverbatim ") > 40
    assert narrow.returncode == 1


@pytest.mark.parametrize("detail", ["snippet", "passage", "section"])
def test_whatever_is_shown_of_a_hit_it_stands_at_its_offsets_under_its_citation(
    wire: Wire, scripts: Scripts, clock_room: Path, tmp_path: Path, detail: str
) -> None:
    hits, sizes = hits_of(wire, detail=detail), []
    for hit in hits:
        assert hit["uri"] == f"refdesk://documents/{hit['id']}"
        (exact,) = wire.result("resources/read", {"uri": hit["uri"]})["contents"]
        assert hit["text"] in exact["text"]
        window = wire.tool("get_source", {"id": hit["id"].partition("/")[0], "start": hit["start"]})
        assert window["structuredContent"]["text"].startswith(hit["text"][:500])
        assert 0 < hit["tokens"] <= hit["end"] - hit["start"]
        sizes.append((len(hit["text"]), len(exact["text"])))
    (tmp_path / "answer.md").write_text(answer_with(hits))
    checked = scripts.admin("cite", "check", tmp_path / "answer.md", "--data", clock_room)
    assert checked.returncode == 0, checked.stdout
    whole = [size == cited or size > 0.99 * ParentStage(stage="parent").max_chars for size, cited in sizes]
    assert all(whole) == (detail != "snippet")  # of a section, as much as is shown of one
    assert (sum(size for size, _ in sizes) < sum(cited for _, cited in sizes) / 2) == (detail == "snippet")
    assert any("-" in hit["id"] for hit in hits) == (detail != "snippet")


@pytest.mark.parametrize("stage", ["neighbors", "parent"])
def test_a_wide_citation_opens_in_every_tool(opened: Callable[..., Wire], stage: str) -> None:
    wire = opened(stage)
    (hit, *_) = [hit for hit in hits_of(wire) if "-" in hit["id"]]
    id_, uri = hit["id"], hit["uri"]
    (contents,) = wire.result("resources/read", {"uri": uri})["contents"]
    assert hit["text"] in contents["text"]
    for name in (id_, uri):
        window = wire.tool("get_source", {"id": name, "max_chars": 100_000})["structuredContent"]
        exact = wire.tool("get_source", {"id": name, "around": 0, "max_chars": 100_000})["structuredContent"]
        document = wire.tool("fetch", {"id": name})["structuredContent"]
        assert hit["text"] in window["text"]
        assert hit["text"] in exact["text"]
        assert hit["text"] in document["text"]
        assert (exact["start"], exact["end"]) == (exact["chunks"][0]["start"], exact["chunks"][-1]["end"])
        assert len(exact["chunks"]) <= len(window["chunks"])
    source_id, _, seqs = id_.rpartition("/")
    first, last = map(int, seqs.split("-"))
    calls = {"id": f"{source_id}/{last}-{first}"}, {"id": f"{source_id}/{first}-{last + 1000}"}
    backwards, beyond = (wire.tool_error("get_source", arguments) for arguments in calls)
    assert backwards == NOT_FOUND
    assert TOO_FEW.split("{0}")[1] in beyond


def test_a_context_has_each_passage_under_what_is_shown_of_it(opened: Callable[..., Wire]) -> None:
    wire = opened("neighbors")
    arguments = {"query": QUESTIONS[0], "context": True, "max_chars": 100_000}
    reply = wire.tool("search", arguments)["structuredContent"]
    assert reply["results"]
    assert all(f"[{hit['id']}]\n" in reply["context"] for hit in reply["results"])
    assert any("-" in hit["id"] for hit in reply["results"])


def test_a_range_that_is_longer_than_a_reply_says_how_much_is_missing(opened: Callable[..., Wire]) -> None:
    wire = opened("neighbors")
    source_id = hits_of(wire)[0]["id"].partition("/")[0]
    source = wire.tool("get_source", {"id": source_id, "max_chars": 100_000})["structuredContent"]
    whole = f"{source_id}/0-{len(source['chunks']) - 1}"
    reply = wire.tool("get_source", {"id": whole, "around": 0, "max_chars": 2000})["structuredContent"]
    assert reply["start"] == 0
    assert reply["next_start"]


MODULES = "heapq.py sched.py textwrap.py"
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
    "priority queue event": {"limit": 20},
    "Option<char>": {"mode": "exact"},
    "self": {"mode": "exact"},
    "generic HashMap": {"limit": 3},
    "rate per hour of a type": {},
    "a deeper item of lists": {},
    "rose violet sugar": {},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files with everything whose white space counts; beside it is the data folder that holds them."""
    folder = tmp_path_factory.mktemp("exact") / "files"
    folder.mkdir()
    for module in MODULES.split():
        (folder / module).write_bytes((Path(sysconfig.get_path("stdlib")) / module).read_bytes())
    for name, text in FILES.items():
        (folder / name).write_bytes(text.encode())
    return folder


@pytest.fixture(scope="module")
async def client(admin: Admin, scripts: Scripts, folder: Path) -> AsyncIterator[Client]:
    data = folder.parent / "data"
    admin("ingest", folder, "--data", data)
    server = StdioServerParameters(
        command=scripts.forked_server, args=["--data", str(data)], env=scripts.environment | FULL
    )
    async with Client(server, read_timeout_seconds=60) as client:
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
    checked = scripts.admin("cite", "check", answer, "--data", folder.parent / "data")
    assert checked.returncode == 0, checked.stdout[-2000:]


async def test_a_tag_that_loads_a_picture_is_broken_up_and_a_note_says_so(client: Client) -> None:
    reply = await _called(client, "search", query="hostile picture", mode="sparse")
    (hit,) = [hit for hit in reply["results"] if "hostile" in hit["metadata"]["path"]]
    assert "< img src=" in hit["text"]
    assert any("1 space inserted" in note for note in reply["notes"])
