"""The official TypeScript SDKs against the installed server, over every transport and in both eras."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.clients.conftest import Doors, Node
    from tests.server.conftest import Message

pytestmark = pytest.mark.slow

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK, how it is told to negotiate, and the revision that it must end up with, where it tells."""

    script: str
    mode: str | dict[str, str] = "legacy"
    version: str | None = None


SDKS = {
    "v1": Sdk("v1.mjs"),
    "v2": Sdk("v2.mjs", "legacy", HANDSHAKE),
    "v2-auto": Sdk("v2.mjs", "auto", MODERN),
    "v2-pinned": Sdk("v2.mjs", {"pin": MODERN}, MODERN),
}


@pytest.mark.parametrize("transport", ["stdio", "http", "sse"])
@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS)
def test_the_sdks_get_from_the_desk_what_it_says_to_everybody(
    node: Node, doors: Doors, expected: Message, sdk: Sdk, transport: str
) -> None:
    said = node.said(sdk.script, _wish(doors, sdk, transport, {"Authorization": f"Bearer {doors.key}"}))
    assert said.pop("version", None) == sdk.version
    plain, _, held = expected["instructions"].rpartition("\n\n")
    assert held.startswith("You can search ")
    # Over stdio, the first reply doesn't wait until the desk is open and says what it holds.
    assert said == expected | ({"instructions": plain} if transport == "stdio" else {})


@pytest.mark.parametrize("transport", ["http", "sse"])
@pytest.mark.parametrize("sdk", SDKS.values(), ids=SDKS)
def test_an_sdk_without_a_key_gets_nothing_and_is_told_why(
    node: Node, doors: Doors, sdk: Sdk, transport: str
) -> None:
    run = node.run(sdk.script, _wish(doors, sdk, transport, {}))
    assert run.returncode != 0
    assert run.stdout == ""
    assert "401" in run.stderr


def _wish(doors: Doors, sdk: Sdk, transport: str, headers: dict[str, str]) -> str:
    """How a client is to connect, as the scripts read it."""
    local = {"command": doors.command, "args": ["--data", str(doors.data)]}
    remote = {"url": doors.url(transport), "headers": headers}
    return json.dumps({"transport": transport, "mode": sdk.mode, **local, **remote})
