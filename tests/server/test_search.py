"""Searches with mode exact, and with strict statistics."""

from __future__ import annotations

import re
import shutil
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, Any, get_args

import pytest
from mcp.types import TextContent

from rag.answers import Mode
from rag.search.search_plan import ONLY_EXACT
from tests.server.conftest import UNSHARED

if TYPE_CHECKING:
    from pathlib import Path

    from mcp import Client

    from tests.server.conftest import Admin, Start, Wire

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


HOSTILE = [
    r"(a+)+$",
    r"(\w+\s?)*!",
    r"(.*)(.*)(.*)(.*)x{90}",
    r"(\pL?\pN?.?){30}zX",
    "(" * 400 + "a" + ")" * 400,
]


async def exact(client: Client, query: str, **arguments: Any) -> dict[str, Any]:  # noqa: ANN401 any JSON
    result = await client.call_tool("search", {"query": query, "mode": "exact", **arguments})
    (block,) = result.content
    assert isinstance(block, TextContent)
    assert not result.is_error, block.text
    structured: dict[str, Any] = result.structured_content
    return structured


async def test_matches_stand_in_the_document_where_the_reply_says(client: Client) -> None:
    for arguments in ({"query": "pendulum clock"}, {"query": r"\b1\d{3}s?\b", "match": "regex"}):
        reply = await exact(client, **arguments)
        assert reply["results"]
        for hit in reply["results"]:
            assert 0 < len(hit["matches"]) <= hit["match_count"]
            assert "similarity" not in hit
            first = hit["matches"][0]
            opened = await client.call_tool("get_source", {"id": hit["id"], "start": first["start"]})
            assert opened.structured_content["text"][: first["end"] - first["start"]] in hit["text"]
            lines = {"id": hit["id"].partition("/")[0], "lines": str(first["line"])}
            line = (await client.call_tool("get_source", lines)).structured_content["text"]
            assert line.partition("\t")[2].strip()[:20] in hit["text"]


async def test_what_is_no_expression_is_refused_with_what_to_write(client: Client) -> None:
    for query, says in [("(?=a)b", "RE2's syntax"), ("a*", "an empty text"), (r"(.?){1000}", "too large")]:
        result = await client.call_tool("search", {"query": query, "mode": "exact", "match": "regex"})
        (block,) = result.content
        assert isinstance(block, TextContent)
        assert result.is_error
        assert says in block.text
    result = await client.call_tool("search", {"query": "clock", "case": True})
    assert ONLY_EXACT in str(result.content)


async def test_an_expression_made_to_take_long_does_not(client: Client) -> None:
    for query in HOSTILE:
        await exact(client, query, match="regex")  # the client gives up after a minute


async def _by_phrase(client: Client, query: str, **arguments: Any) -> tuple[list[bool], list[str]]:  # noqa: ANN401
    """Whether each result has the phrase that begins the query, and the notes."""
    _, quoted, _ = query.split('"')
    phrase = re.compile(rf"\b{quoted}\b")
    result = await client.call_tool("search", {"query": query, **arguments})
    texts = [" ".join(hit["text"].lower().split()) for hit in result.structured_content["results"]]
    return [bool(phrase.search(text)) for text in texts], result.structured_content["notes"]


async def test_a_phrase_is_preferred_beside_words_and_required_alone(client: Client) -> None:
    having, notes = await _by_phrase(client, '"pendulum clock" inventor', limit=20, max_chars=100_000)
    assert having[0]
    ranks = [[rank for rank, has in enumerate(having) if has is kind] for kind in (True, False)]
    assert fmean(ranks[0]) < fmean(ranks[1])
    lacking = len(ranks[1])
    noun = "passage" if lacking == 1 else "passages"
    assert f'{lacking} {noun} of {len(having)} don\'t contain "pendulum clock".' in " ".join(notes)
    having, notes = await _by_phrase(client, '"clock pendulum of quokkas" inventor')
    assert having
    assert not any(having)
    assert 'No passage contains "clock pendulum of quokkas"' in notes[0]
    having, notes = await _by_phrase(client, '"pendulum clock"', limit=20, max_chars=100_000)
    assert having
    assert all(having)
    having, notes = await _by_phrase(client, '"clock pendulum of quokkas"')
    assert having == []
    assert 'No passage contains "clock pendulum of quokkas"' in notes[0]


QUERIES = ("who sold the time in London?", "leap second", "clock", "nothing that anybody wrote")
TIMES = re.compile(rb'(\\?"ms\\?":)[0-9.]+')


@pytest.fixture(scope="module")
def rooms(admin: Admin, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A desk with half of the demo corpus, and a copy of it that also holds the rest, for the board alone."""
    folder = tmp_path_factory.mktemp("rooms")
    alone, crowded = folder / "alone", folder / "crowded"
    files = sorted(corpus.iterdir())
    admin("ingest", *files[::2], "--data", alone)
    shutil.copytree(alone, crowded)
    board = ("--visibility", "restricted", "--allow", "group:board")
    admin("ingest", *files[1::2], *board, "--data", crowded)
    copies = shutil.copytree(corpus, folder / "copies")  # what is visible, again: equals everywhere
    admin("ingest", copies, *board, "--data", crowded)
    admin("ingest", files[1], "--collection", "vault", *board, "--data", crowded)
    return alone, crowded


def _said(server: Wire) -> list[bytes]:
    """What a server answers to searches of all modes, without the times that their stages took."""
    server.begin()
    lines = []
    for query, mode, limit in product(QUERIES, get_args(Mode), (3, 100)):
        arguments = {"query": query, "mode": mode, "limit": limit, "explain": True, "max_chars": 100_000}
        server.send(1, "tools/call", {"name": "search", "arguments": arguments})
        lines.append(TIMES.sub(rb"\1", server.line()))
    return lines


@UNSHARED  # results have the addresses of pages, whose ports differ
@pytest.mark.parametrize("statistics", ["strict", "collection"])
def test_answers_tell_of_hidden_documents_by_no_byte_if_statistics_are_strict_and_else_they_do(
    rooms: tuple[Path, Path], start: Start, statistics: str
) -> None:
    env = {"REFDESK_SEARCH_STATISTICS": statistics, "REFDESK_SERVER_EXPLAIN": "true"}
    alone, crowded = (_said(start(room, env=env)) for room in rooms)
    assert all(b'"isError":true' not in line for line in alone)
    assert (alone == crowded) is (statistics == "strict")
