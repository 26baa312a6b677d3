"""What belongs to a passage: a search that begins at it, instead of at a question.

The passage's own vector finds similar ones. Documents that it refers to, and those that name its document,
come first: of two passages of which a question needs both, one is among the first five found for the other
in 80 % of the cases, and in 54 % by similarity alone (hotpotqa100; rag/evaluate/measuring.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rag.answers import Hit
from rag.errors import BusyError, InvalidRequestError

if TYPE_CHECKING:
    from rag.answers import SearchRequest
    from rag.search.view import View
    from rag.store.reader import StoredSource

EXCLUSIVE = "A request has related or vector, not both. Leave one out."
NOT_EXACT = (
    "mode exact finds what is written, not what is related. Leave related out, or choose another mode."
)
NO_VECTOR = "This passage has no vector, so nothing can be compared with it. Search for its words instead."


async def seed_of(stored: StoredSource, seq: int, view: View) -> Hit:
    """A passage of a readable source as the beginning of a search.

    Raises:
        BusyError: the source was replaced since it was read, or it has no such passage any more.
        InvalidRequestError: the passage has no vector.
    """
    rows = await view.table.chunks([f"{stored.id}/{seq}"], view.where)
    row = next((row for row in rows if row.generation == stored.generation), None)
    if row is None:
        raise BusyError("There is no such passage, or its document is being replaced. Search again.")
    if not row.vector.any():
        raise InvalidRequestError(NO_VECTOR)
    return Hit(row.chunk, stored.source, 1.0, None, row.vector, stored.fields)


def from_seed(request: SearchRequest, seed: Hit) -> SearchRequest:
    """The request for what is similar to the seed, without its own document.

    Raises:
        InvalidRequestError: the request contradicts that.
    """
    if request.vector is not None:
        raise InvalidRequestError(EXCLUSIVE)
    if request.mode == "exact":
        raise InvalidRequestError(NOT_EXACT)
    vector = None if seed.vector is None else seed.vector.tolist()
    return replace(request, vector=vector, exclude_sources=(*request.exclude_sources, seed.source.id))
