"""A document that comes, is taken from its reader, given back and removed, as the admin commands do it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rag.bench.engine import TENANT
from rag.bench.stock import new_source, paragraphs
from rag.corpus import Access
from rag.store.reader import Reader
from rag.store.schema import Claim
from rag.store.writer import open_writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rag.bench.stock import Bench
    from rag.store.schema import NewSource
    from rag.store.writer import CollectionWriter

READER = "cat"
THEIRS = Access("restricted", allow=frozenset({f"user:{READER}"}))
TAKEN = Access("restricted", deny=THEIRS.allow)
TIMEOUT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class State:
    """A document, the only word by which it is found, and whether its reader sees it."""

    id: str
    word: str
    visible: bool


@dataclass(slots=True)
class Shelf:
    """Where the document lies. It has no state while it is being changed."""

    state: State | None = None
    changes: int = 0


async def change(
    bench: Bench, data: Path, shelf: Shelf, word: str, look: Callable[[], Awaitable[None]]
) -> None:
    """Make the changes one after the other; `look` is called when each is in force, and when all is tidy."""
    (collection,) = await Reader(data, timeout_seconds=TIMEOUT_SECONDS).collections(TENANT)
    for visible, make in CHANGES:
        async with open_writer(data, collection) as writer:
            note = _note(bench, writer, word)
            shelf.state = None
            await make(writer, note)
            shelf.state = State(note.source.id, word, visible)
            shelf.changes += 1
            await look()
            await writer.finish()
        await look()


def _note(bench: Bench, writer: CollectionWriter, word: str) -> NewSource:
    texts = [f"{sentence} {word}." for sentence in bench.sentences[:3]]
    new = new_source(writer, word, "\n\n".join(texts), paragraphs(texts), bench.vectors[:3])
    return replace(new, claim=Claim(THEIRS))


async def _bring(writer: CollectionWriter, note: NewSource) -> None:
    await writer.replace([note])


async def _take(writer: CollectionWriter, note: NewSource) -> None:
    await writer.set_access({note.source.id: TAKEN})


async def _give_back(writer: CollectionWriter, note: NewSource) -> None:
    await writer.set_access({note.source.id: THEIRS})


async def _remove(writer: CollectionWriter, note: NewSource) -> None:
    await writer.remove([note.source.id])


CHANGES = ((True, _bring), (False, _take), (True, _give_back), (False, _remove))
"""Each change, and whether the reader sees the document after it."""
