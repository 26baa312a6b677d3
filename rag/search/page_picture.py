"""A page of a document as a picture, with a passage marked that the caller may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from rag.answers import Extract
from rag.confined.page_drawing import MOST_AHEAD, Kind, Picture, picture
from rag.corpus import Source
from rag.errors import ParseError
from rag.originals import no_picture, original_bytes

KINDS: Mapping[str, Kind] = {
    "application/pdf": "pdf",
    **dict.fromkeys(("image/png", "image/jpeg", "image/tiff", "image/webp", "image/bmp"), "pictures"),
}
"""What can be drawn, by the type of a source."""
READING = 4  # files at once; a dead network drive holds one of these for good
NO_PAGES = (
    "only PDFs and picture files can be drawn, and the document is neither. To see slides and other Office "
    "files, ingest them as PDFs."
)
NO_DECODER = "drawing picture files needs refdesk[ocr], which is not installed on the server."
NO_PAGE = "the page of the passage is unknown."


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a source, by its number from 1."""

    source: Source
    number: int
    picture: Picture


_reading: RunVar[anyio.CapacityLimiter] = RunVar("files that are read for pictures")


def may_have_pages(source: Source) -> bool:
    """Whether a source may have pictures of its pages, judged by its type alone."""
    return source.mime_type in KINDS and source.uri.startswith("file:") and "#" not in source.uri


async def page_of(extract: Extract, number: int | None = None) -> Page:
    """A page of a source that the caller may read, by default the one that has most of its `passage`.

    Raises:
        InvalidRequestError: the page can't be drawn; the message says why.
    """
    source = extract.source
    kind = KINDS.get(source.mime_type)
    if kind is None:
        raise no_picture(NO_PAGES)
    if kind == "pictures" and not find_spec("PIL"):
        raise no_picture(NO_DECODER)
    first = number or extract.page
    if first is None:
        raise no_picture(NO_PAGE)
    data = await to_thread.run_sync(original_bytes, source, limiter=_limiter(), abandon_on_cancel=True)
    try:
        drawn = await picture(data, first, extract.passage, kind, ahead=0 if number else MOST_AHEAD)
    except ParseError as error:
        raise no_picture(str(error)) from error
    return Page(source, first + drawn.ahead, drawn)


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _reading.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(READING)
        _reading.set(limiter)
        return limiter
