"""The MCP Inspector's command line against the installed server, over every transport and in both eras."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.clients.conftest import Doors, Node
    from tests.server.conftest import Message

pytestmark = pytest.mark.slow

INSPECTOR = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
def test_the_inspector_sees_what_everybody_sees_and_portable_schemas(
    node: Node, doors: Doors, expected: Message, transport: str, era: str
) -> None:
    local = ["--", doors.command, "--data", str(doors.data)]
    remote = ["--server-url", doors.url(transport), "--header", f"X-API-Key: {doors.key}"]
    target = local if transport == "stdio" else ["--transport", transport, *remote]

    def result(method: str, *arguments: str) -> Message:
        asked = ["--cli", "--format", "json", "--protocol-era", era, "--method", method, *arguments]
        return dict(node.said(INSPECTOR, *asked, *target)["result"])

    assert result("tools/list", "--strict")["tools"] == expected["tools"]
    call = ("--tool-name", "search", "--tool-args-json", '{"query": "pendulum", "limit": 2}')
    assert expected["found"].items() <= result("tools/call", *call).items()
    uri = expected["contents"][0]["uri"]
    assert result("resources/read", "--uri", uri)["contents"] == expected["contents"]
