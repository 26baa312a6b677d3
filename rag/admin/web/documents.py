"""The documents with filters, and the passages of one."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from rag.access.rule import in_words
from rag.admin.web.asker import Asker
from rag.admin.web.shelves import Wanted, found
from rag.errors import InvalidRequestError, NotFoundError
from rag.report.html import drawn
from rag.uris import split_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from rag.admin.web.console import Console
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.stored_rows import StoredSource

LISTED = 50  # documents a page
PASSAGES = 20  # a page
EVERY_CHUNK = "(true)"  # the administrator's view
MAX_PAGE = 10**9


KINDS = {
    "application/pdf": "PDF",
    "application/msword": "Word",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "Word",
    "application/vnd.ms-excel": "Excel",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "Excel",
    "application/vnd.ms-powerpoint": "PowerPoint",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "PowerPoint",
    "application/vnd.oasis.opendocument.text": "OpenDocument text",
    "application/vnd.oasis.opendocument.spreadsheet": "OpenDocument sheet",
    "application/vnd.oasis.opendocument.presentation": "OpenDocument slides",
    "application/vnd.ms-outlook": "Mail",
    "application/epub+zip": "E-book",
    "application/x-ipynb+json": "Notebook",
    "application/rtf": "RTF",
    "application/json": "JSON",
    "application/xml": "XML",
    "message/rfc822": "Mail",
    "text/calendar": "Calendar",
    "text/csv": "CSV",
    "text/html": "Web page",
    "text/markdown": "Markdown",
    "text/plain": "Text",
}
"""What people call a media type. Others go by the name in them: "text/x-python" -> "Python"."""


def kind_of(mime_type: str) -> str:
    """What people call this kind of document."""
    name = mime_type.partition("/")[2].removeprefix("x-").removeprefix("vnd.").partition("+")[0]
    return KINDS.get(mime_type) or name.replace("-", " ").capitalize() or "Other"


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
        kinds=sorted(
            ((kind, kind_of(kind)) for kind in frozenset[str]().union(*(shelf.kinds for shelf in shelves))),
            key=lambda pair: (pair[1].casefold(), pair[0]),
        ),
        kind_of=kind_of,
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
        kind_of=kind_of,
        drawn=drawn,
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
