"""What an OpenAI-compatible chat model says, what it was asked, and the settings by which it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rag.config.model_settings import ChatSettings

if TYPE_CHECKING:
    from tests.endpoint import Behaviour, Endpoint


def settings(server: Endpoint, **changes: object) -> ChatSettings:
    """Settings by which this server is asked."""
    return ChatSettings.model_validate({"model": "tiny", "base_url": server.url} | changes)


def contents(server: Endpoint) -> list[Any]:
    """What the user's messages held, read as JSON."""
    return [json.loads(request["messages"][-1]["content"]) for request in server.requests]


def saying(value: object, *, tokens: tuple[int, int] | None = (100, 10)) -> Behaviour:
    """A good reply, whose content is `value` as JSON, with the numbers of tokens sent and got."""
    return replying({"message": {"content": json.dumps(value)}, "finish_reason": "stop"}, tokens=tokens)


def replying(choice: object, *, tokens: tuple[int, int] | None = (100, 10)) -> Behaviour:
    """A reply with one choice, as the wire has it."""
    body: dict[str, object] = {"choices": [choice]}
    if tokens:
        body["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return lambda _request: (200, {}, json.dumps(body).encode())
