"""A document that is added, withdrawn from its reader, given back and removed, as refdesk-admin does it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.corpus import Access
from rag.store.read.desk_reader import DeskReader
from rag.store.write.access_claim import Claim
from rag.store.write.change_collection import open_writer
from tests.bench.engine import TENANT
from tests.bench.stock import new_source, paragraphs

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rag.store.write.collection_writer import CollectionWriter
    from rag.store.write.table_rows import NewSource
    from tests.bench.stock import Bench

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
    await writer.set_access({document.source.id: WITHDRAWN})


async def _give_back(writer: CollectionWriter, document: NewSource) -> None:
    await writer.set_access({document.source.id: READABLE})


async def _remove(writer: CollectionWriter, document: NewSource) -> None:
    await writer.remove([document.source.id])


CHANGES = ((True, _add), (False, _withdraw), (True, _give_back), (False, _remove))
"""Each change, and whether the reader may see the document after it."""
