"""A page of a PDF as a picture, with a passage marked that the caller may read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from rag.confined.page_drawing import Picture, picture
from rag.corpus import Source
from rag.errors import ParseError
from rag.originals import no_picture, original_bytes

if TYPE_CHECKING:
    from rag.answers import Extract

PDF = "application/pdf"
READING = 4  # files at once; a dead network drive holds one of these for good
NO_PDF = "the document is not a PDF."
NO_PAGE = "nobody knows on which page the passage stands."


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a source, by its number from 1."""

    source: Source
    number: int
    picture: Picture


_reading: RunVar[anyio.CapacityLimiter] = RunVar("files that are read for pictures")


def may_have_pages(source: Source) -> bool:
    """Whether a source may have pictures of its pages, told without looking at its file."""
    return source.mime_type == PDF and source.uri.startswith("file:") and "#" not in source.uri


async def page_of(extract: Extract, number: int | None) -> Page:
    """A page of a source that the caller may read, by default the first one of the passage in `extract`.

    Raises:
        InvalidRequestError: the page can't be drawn; the message says why.
    """
    source = extract.source
    if source.mime_type != PDF:
        raise no_picture(NO_PDF)
    number = number or next((chunk.page for chunk in extract.chunks if chunk.page), None)
    if number is None:
        raise no_picture(NO_PAGE)
    data = await to_thread.run_sync(original_bytes, source, limiter=_limiter(), abandon_on_cancel=True)
    try:
        return Page(source, number, await picture(data, number, extract.text))
    except ParseError as error:
        raise no_picture(str(error)) from error


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _reading.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(READING)
        _reading.set(limiter)
        return limiter
