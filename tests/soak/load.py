"""The requests of a mixed load, drawn at random, and the kind of answer that each must get."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from rag.answers import Mode
from rag.config.settings import DEFAULT_COLLECTION
from rag.uris import resource_uri
from tests.bench.corpus import QUESTIONS
from tests.bench.index import SHARES, keeping
from tests.bench.remote import ERAS, tool_call
from tests.bench.stock import SOURCE_CHUNKS

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from tests.bench.remote import Answer, Remote

Kind: TypeAlias = Literal["answered", "tool error", "protocol error", "refused"]
Call: TypeAlias = "tuple[Kind, str, dict[str, object]]"

WEIGHTS = {
    "search": 20,
    "filtered search": 10,
    "get_source": 20,
    "resources/read": 15,
    "tools/list": 5,
    "resources/list": 5,
    "prompts/list": 5,
    "empty query": 4,
    "unknown source": 4,
    "unknown tool": 4,
    "unknown resource": 4,
    "wrong key": 4,
}
UNKNOWN_KEY = "rdk_00000000_x"
REFUSED = 401
MCP_STATUSES = (200, 400, 404)  # whose bodies are JSON-RPC


@dataclass(frozen=True, slots=True)
class Ask:
    """A request, and the kind of answer that it must get."""

    name: str
    request: bytes
    expected: Kind


@dataclass(frozen=True, slots=True)
class Readers:
    """The clients' keys, and the ids of sources that all of them may see; `chunks` is how many there are."""

    keys: Sequence[str]
    ids: Sequence[str]
    chunks: int

    def draw(self, remote: Remote, chance: random.Random) -> Ask:
        """A random request by a random client, in a random protocol era."""
        (name,) = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))
        expected, method, params = self._calls(chance)[name]
        key = UNKNOWN_KEY if name == "wrong key" else chance.choice(self.keys)
        return Ask(name, remote.request(chance.choice(ERAS), key, method, params), expected)

    def _calls(self, chance: random.Random) -> Mapping[str, Call]:
        query, mode, id_ = (chance.choice(some) for some in (QUESTIONS, get_args(Mode), self.ids))
        filter_ = keeping(chance.choice(list(SHARES.values())), self.chunks)
        chunk = f"{id_}/{chance.randrange(SOURCE_CHUNKS)}"
        return {
            "search": ("answered", *tool_call("search", query=query, mode=mode)),
            "filtered search": ("answered", *tool_call("search", query=query, mode=mode, filter=filter_)),
            "get_source": ("answered", *tool_call("get_source", id=chance.choice([id_, chunk]))),
            "resources/read": ("answered", *_read(chance.choice([id_, chunk]))),
            "tools/list": ("answered", "tools/list", {}),
            "resources/list": ("answered", "resources/list", {}),
            "prompts/list": ("answered", "prompts/list", {}),
            "empty query": ("tool error", *tool_call("search", query="")),
            "unknown source": ("tool error", *tool_call("get_source", id="nothing")),
            "unknown tool": ("protocol error", *tool_call("nothing")),
            "unknown resource": ("protocol error", *_read("nothing")),
            "wrong key": ("refused", *tool_call("search", query=query)),
        }


def _read(id_: str) -> tuple[str, dict[str, object]]:
    return "resources/read", {"uri": resource_uri(DEFAULT_COLLECTION, id_)}


def kind_of(answer: Answer) -> Kind | None:
    """The kind of an answer, None if it is none of these: 429 -> None."""
    if answer.status == REFUSED:
        return "refused"
    if answer.status not in MCP_STATUSES:
        return None
    reply = json.loads(answer.body)
    if "error" in reply:
        return "protocol error"
    return "tool error" if reply["result"].get("isError") else "answered"
