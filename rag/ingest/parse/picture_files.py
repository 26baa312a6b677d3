"""Picture files, which need OCR: a page for each picture in the file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.ocr import MAX_PIXELS, OcrReader
from rag.ingest.parse.pdf.pdf_document import parts_on, text_of_pages
from rag.ingest.parse.pdf.pdf_words import PageLines

_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".tif": "image/tiff",
    ".tiff": "image/tiff",
    ".webp": "image/webp",
    ".bmp": "image/bmp",
}
SUFFIXES = tuple(_TYPES)


MAX_PAGES = 2_000  # of a picture file


def pictures(data: bytes) -> Iterator[Any]:
    """The pictures in a file as BGR arrays (height, width, 3), rotated as its EXIF data states.

    Raises:
        ParseError: the file is damaged, or a picture is too large.
    """
    import numpy as np  # noqa: PLC0415 see above
    from PIL import Image, ImageOps  # noqa: PLC0415 of the extra

    Image.MAX_IMAGE_PIXELS = None  # our limit is lower, and has a clear message
    try:
        with Image.open(io.BytesIO(data)) as image:
            for number in range(min(getattr(image, "n_frames", 1), MAX_PAGES)):
                image.seek(number)
                _check_size(image.width, image.height)
                yield np.asarray(ImageOps.exif_transpose(image).convert("RGB"))[:, :, ::-1]
    except ParseError:
        raise
    except Exception as error:  # Pillow raises all kinds of errors on damaged files
        raise ParseError("the picture is damaged") from error


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ParseError(
            f"the picture has {width:,} × {height:,} pixels; at most {MAX_PIXELS:,} are read", "too large"
        )


def parse(data: bytes, name: str, reader: OcrReader) -> Document:
    """The document of a file of pictures.

    Raises:
        ParseError: the file is damaged, a picture is too large, or OCR finds no words.
    """
    sheets = [reader.picture(pixels) for pixels in pictures(data)]
    text, blocks, starts = text_of_pages(parts_on([sheet or PageLines([], []) for sheet in sheets]))
    if not blocks:
        raise ParseError("the picture shows no words that OCR finds", "no text")
    unread = sum(sheet is None for sheet in sheets)
    return Document(
        text=text,
        title=name,
        mime_type=_TYPES[PurePath(name).suffix.lower()],
        blocks=tuple(blocks),
        pages=tuple(starts),
        remarks=("read by OCR", *([f"{unread} pages left out: OCR took too long"] if unread else [])),
    )
