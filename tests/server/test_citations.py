"""What is shown is what is cited: with its neighbours, with its section, in a context, in every tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.text.segments import sentences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Message, Start, Wire

pytestmark = pytest.mark.slow

QUESTIONS = ("Who invented the pendulum clock?", "leap seconds", "when did Britain drop eleven days?")
SETTINGS = '[server]\nopenai_compat = true\n[[search.stages]]\nstage = "{}"\n'


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


def found(wire: Wire, **more: object) -> list[Message]:
    arguments = {"max_chars": 100_000} | more
    return [
        hit
        for query in QUESTIONS
        for hit in wire.tool("search", arguments | {"query": query})["structuredContent"]["results"]
    ]


def shown(hits: list[Message]) -> str:
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
    hits = found(opened(stage))
    wide = [hit for hit in hits if "-" in hit["id"]]
    assert len(wide) > len(hits) / 4
    (tmp_path / "answer.md").write_text(shown(hits))
    narrowed = [hit | {"id": hit["id"].rpartition("-")[0]} for hit in wide]
    (tmp_path / "narrow.md").write_text(shown(narrowed))
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
    hits, sizes = found(wire, detail=detail), []
    for hit in hits:
        assert hit["uri"] == f"refdesk://documents/{hit['id']}"
        (exact,) = wire.result("resources/read", {"uri": hit["uri"]})["contents"]
        assert hit["text"] in exact["text"]
        window = wire.tool("get_source", {"id": hit["id"].partition("/")[0], "start": hit["start"]})
        assert window["structuredContent"]["text"].startswith(hit["text"][:500])
        assert 0 < hit["tokens"] <= hit["end"] - hit["start"]
        sizes.append((len(hit["text"]), len(exact["text"])))
    (tmp_path / "answer.md").write_text(shown(hits))
    checked = scripts.admin("cite", "check", tmp_path / "answer.md", "--data", clock_room)
    assert checked.returncode == 0, checked.stdout
    assert all(size == cited for size, cited in sizes) == (detail != "snippet")
    assert (sum(size for size, _ in sizes) < sum(cited for _, cited in sizes) / 2) == (detail == "snippet")
    assert any("-" in hit["id"] for hit in hits) == (detail != "snippet")


@pytest.mark.parametrize("stage", ["neighbors", "parent"])
def test_a_wide_citation_opens_in_every_tool(opened: Callable[..., Wire], stage: str) -> None:
    wire = opened(stage)
    (hit, *_) = [hit for hit in found(wire) if "-" in hit["id"]]
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
    for wrong in (f"{last}-{first}", f"{first}-{last + 1000}"):
        assert "Nothing readable" in wire.tool_error("get_source", {"id": f"{source_id}/{wrong}"})


def test_a_context_has_each_passage_under_what_is_shown_of_it(opened: Callable[..., Wire]) -> None:
    wire = opened("neighbors")
    arguments = {"query": QUESTIONS[0], "context": True, "max_chars": 100_000}
    reply = wire.tool("search", arguments)["structuredContent"]
    assert reply["results"]
    assert all(f"[{hit['id']}]\n" in reply["context"] for hit in reply["results"])
    assert any("-" in hit["id"] for hit in reply["results"])


def test_a_range_that_is_longer_than_a_reply_says_how_much_is_missing(opened: Callable[..., Wire]) -> None:
    wire = opened("neighbors")
    source_id = found(wire)[0]["id"].partition("/")[0]
    source = wire.tool("get_source", {"id": source_id, "max_chars": 100_000})["structuredContent"]
    whole = f"{source_id}/0-{len(source['chunks']) - 1}"
    reply = wire.tool("get_source", {"id": whole, "around": 0, "max_chars": 2000})["structuredContent"]
    assert reply["start"] == 0
    assert reply["next_start"]
