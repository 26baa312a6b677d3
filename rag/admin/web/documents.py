"""The documents with filters, and the passages of one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from rag.access.rule import in_words
from rag.admin.web.asker import Asker
from rag.admin.web.shelves import Wanted, found
from rag.errors import InvalidRequestError, NotFoundError
from rag.uris import split_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from rag.admin.web.console import Console
    from rag.store.reader import CollectionReader, StoredSource

LISTED = 50  # documents a page
PASSAGES = 20  # a page
EVERY_CHUNK = "(true)"  # the administrator's view
MAX_PAGE = 10**9


async def documents(console: Console, request: Request) -> Response:
    """The list, page by page."""
    given = request.query_params
    asker = Asker.of(given, console.settings)
    reader = asker.principal(console.tenant) if given.get("who") == "one" else None
    shelves = [await console.shelves.of(one) for one in await console.tables(given.get("collection") or None)]
    wanted = Wanted(given.get("text", "").strip(), given.get("kind", ""), reader)
    listed = found(shelves, wanted, console.settings.access.letter_case)
    page, pages = _page(given, len(listed), LISTED)
    others = {key: value for key, value in given.items() if key != "page"}
    return console.page(
        "documents.html",
        given=given,
        asker=asker,
        collections=await console.collections(),
        kinds=sorted(frozenset[str]().union(*(shelf.kinds for shelf in shelves))),
        documents=listed[(page - 1) * LISTED : page * LISTED],
        total=len(listed),
        number=page,
        pages=pages,
        address=f"/documents?{urlencode(others)}{'&' if others else ''}page=",
        in_words=in_words,
    )


async def document(console: Console, request: Request) -> Response:
    """A document with its passages, page by page. `passage` chooses the page that has this one."""
    stored, table = await located(console, request.path_params["id"])
    given: dict[str, str] = dict(request.query_params)
    if "passage" in given:
        given["page"] = str(_number(given["passage"]) // PASSAGES + 1)
    page, pages = _page(given, stored.source.chunk_count, PASSAGES)
    first = (page - 1) * PASSAGES
    return console.page(
        "document.html",
        stored=stored,
        source=stored.source,
        rights=in_words(stored.access),
        passages=await table.between(stored, first, first + PASSAGES - 1, EVERY_CHUNK),
        number=page,
        pages=pages,
        address=f"/documents/{stored.id}?page=",
    )


async def located(console: Console, name: str) -> tuple[StoredSource, CollectionReader]:
    """A document of the tenant, and its collection.

    Raises:
        NotFoundError: no document has this id.
    """
    source_id, _ = split_id(name)
    for table in await console.tables():
        if stored := (await table.sources([source_id])).get(source_id):
            return stored, table
    raise NotFoundError("There is no document with this id. It may have been removed.")


def _page(given: Mapping[str, str], things: int, each: int) -> tuple[int, int]:
    """The page that is asked for, from 1, and how many there are."""
    pages = max(1, -(-things // each))
    return min(max(1, _number(given.get("page", "1"))), pages), pages


def _number(text: str) -> int:
    """Raises InvalidRequestError unless the text is a number of a page or a passage."""
    if not (text.isascii() and text.isdigit() and len(text) < len(str(MAX_PAGE))):
        raise InvalidRequestError("A page has a number.")
    return int(text)
