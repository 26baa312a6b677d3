from __future__ import annotations

import json
import random

import pytest

from tests.bench.remote import Answer, Remote
from tests.soak.load import WEIGHTS, Ask, Readers, kind_of

pytestmark = pytest.mark.slow

RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


def requests(readers: Readers) -> list[Ask]:
    chance = random.Random(1)  # noqa: S311 repeatable, not secret
    return [readers.draw(Remote(0, 8300), chance) for _ in range(1_000)]


@pytest.mark.parametrize(
    ("status", "reply", "kind"),
    [
        (200, RESULT, "answered"),
        (200, RESULT | {"result": {"isError": False}}, "answered"),
        (200, RESULT | {"result": {"isError": True}}, "tool error"),
        (200, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602}}, "protocol error"),
        (400, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602}}, "protocol error"),
        (404, {"jsonrpc": "2.0", "id": 1, "error": {"code": -32601}}, "protocol error"),
        (401, {"error": "invalid_token"}, "refused"),
        (429, {"error": "busy"}, None),
        (500, RESULT, None),
    ],
)
def test_answers_are_told_apart(status: int, reply: object, kind: str | None) -> None:
    assert kind_of(Answer(status, json.dumps(reply).encode())) == kind


def test_everything_is_asked_in_both_eras_and_by_everybody() -> None:
    drawn = requests(Readers(("key-a", "key-b"), ["s1", "s2"], 100))
    assert {ask.name for ask in drawn} == set(WEIGHTS)
    for part in (b"2025-11-25", b"Mcp-Method", b"Bearer key-a", b"Bearer key-b", b"/s1", b"/s2/", b"$lt"):
        assert any(part in ask.request for ask in drawn)


def test_only_what_is_meant_to_fail_is_expected_to() -> None:
    drawn = requests(Readers(("key",), ["s1"], 100))
    failing = {ask.name for ask in drawn if ask.expected != "answered"}
    assert failing == {"empty query", "unknown source", "unknown tool", "unknown resource", "wrong key"}
    assert all((ask.expected == "refused") == (b"Bearer key" not in ask.request) for ask in drawn)
