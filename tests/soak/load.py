"""A mixed load: requests drawn at random, the answers that they must get, and a document that changes."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from rag.answers import Mode
from rag.config.settings import DEFAULT_COLLECTION
from rag.corpus import Access
from rag.store.read.desk_reader import DeskReader
from rag.store.write.access_claim import Claim
from rag.store.write.change_collection import open_writer
from rag.uris import resource_uri
from tests.bench.corpus import QUESTIONS
from tests.bench.engine import TENANT
from tests.bench.index import SHARES, keeping
from tests.bench.remote import ERAS, tool_call
from tests.bench.stock import SOURCE_CHUNKS, new_source, paragraphs
from tests.small_desk import set_access

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from rag.store.write.collection_writer import CollectionWriter
    from rag.store.write.table_rows import NewSource
    from tests.bench.remote import Answer, Remote
    from tests.bench.stock import Bench


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


READER = "cat"
READABLE = Access("restricted", allow=frozenset({f"user:{READER}"}))
WITHDRAWN = Access("restricted", deny=READABLE.allow)
TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class State:
    """A document, a word that only it contains, and whether its reader may see it."""

    id: str
    word: str
    visible: bool


@dataclass(slots=True)
class Canary:
    """The changing document. It has no state while a change is under way."""

    state: State | None = None
    changes: int = 0


async def change(
    bench: Bench, data: Path, canary: Canary, word: str, look: Callable[[], Awaitable[None]]
) -> None:
    """Make the changes in order. `look` is called when each is in force, and again after the clean-up."""
    (collection,) = await DeskReader(data, timeout_seconds=TIMEOUT_SECONDS).collections(TENANT)
    for visible, make in CHANGES:
        async with open_writer(data, collection) as writer:
            document = _document(bench, writer, word)
            canary.state = None
            await make(writer, document)
            canary.state = State(document.source.id, word, visible)
            canary.changes += 1
            await look()
            await writer.finish()
        await look()


def _document(bench: Bench, writer: CollectionWriter, word: str) -> NewSource:
    texts = [f"{sentence} {word}." for sentence in bench.sentences[:3]]
    new = new_source(writer, word, "\n\n".join(texts), paragraphs(texts), bench.vectors[:3])
    return replace(new, claim=Claim(READABLE))


async def _add(writer: CollectionWriter, document: NewSource) -> None:
    await writer.replace([document])


async def _withdraw(writer: CollectionWriter, document: NewSource) -> None:
    await set_access(writer, {document.source.id: WITHDRAWN})


async def _give_back(writer: CollectionWriter, document: NewSource) -> None:
    await set_access(writer, {document.source.id: READABLE})


async def _remove(writer: CollectionWriter, document: NewSource) -> None:
    await writer.remove([document.source.id])


CHANGES = ((True, _add), (False, _withdraw), (True, _give_back), (False, _remove))
"""Each change, and whether the reader may see the document after it."""
