"""Mode exact through the SDK's own client, in both eras: what it finds, how it refuses, what it costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from mcp.types import TextContent

if TYPE_CHECKING:
    from mcp import Client

pytestmark = pytest.mark.anyio
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
        found = await exact(client, **arguments)
        assert found["results"]
        for hit in found["results"]:
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
    assert "match and case are for mode exact" in str(result.content)


async def test_an_expression_made_to_take_long_does_not(client: Client) -> None:
    for query in HOSTILE:
        began = time.monotonic()
        await exact(client, query, match="regex")
        assert time.monotonic() - began < 10  # some take a second in this little corpus, on a busy machine


async def test_a_phrase_must_occur(client: Client) -> None:
    result = await client.call_tool("search", {"query": '"pendulum clock" inventor'})
    hits = result.structured_content["results"]
    assert hits
    assert all("pendulum clock" in " ".join(hit["text"].lower().split()) for hit in hits)
    result = await client.call_tool("search", {"query": '"clock pendulum of quokkas" inventor'})
    assert result.structured_content["results"] == []
    assert 'No passage contains "clock pendulum of quokkas"' in result.structured_content["notes"][0]
