"""PDF: the text of its pages, and the sections of its outline.

Parse only in the sandbox: a hostile PDF can take endless time and memory. The dates in a PDF are those of the
file, which may be years younger than the document, so they don't count.
"""

from __future__ import annotations

import io
import logging
import re
from itertools import accumulate
from typing import TYPE_CHECKING

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.blocks import clean
from rag.ingest.parse.garbled import is_garbled
from rag.ingest.parse.pdf_outline import blocks_of, outline_of, title_in

if TYPE_CHECKING:
    from pypdf import DocumentInformation

SUFFIXES = (".pdf",)
LIBRARIES = ("pypdf.*",)

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the file

_GAP = "\n\n"  # between two pages
_HYPHENATED = re.compile(r"(?<=[a-zß-ÿ])[-\u00ad\u2010]\n(?=[a-zß-ÿ])")
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"})
_FILE = r"([a-z]:|file:)?[\\/].*|.*\.(docx?|pptx?|indd|tex|dvi|pdf)"
_PROGRAM = r"untitled.*|microsoft (word|powerpoint|excel) - .*|powerpoint presentation|(document|slide) ?\d*"
_NO_TITLE = re.compile(rf"{_PROGRAM}|{_FILE}", re.IGNORECASE)


def parse(data: bytes, name: str) -> Document:
    """The document of a PDF: a paragraph ends at a blank line or with its page.

    Raises:
        ParseError: it needs a password, is damaged, contains images only, or its text is noise.
    """
    from pypdf import PdfReader  # noqa: PLC0415 takes 0.2 s, and is needed in the child process only
    from pypdf.errors import FileNotDecryptedError  # noqa: PLC0415 the same

    try:
        reader = PdfReader(io.BytesIO(data))
        extracted = [page.extract_text() for page in reader.pages]
        outline = outline_of(reader)
        title = _title(reader.metadata) or title_in(outline, reader.pages[0])
    except FileNotDecryptedError as error:
        raise ParseError("the PDF is encrypted with a password", "encrypted") from error
    except RecursionError:
        raise
    except Exception as error:  # pypdf raises all kinds of errors on damaged files
        raise ParseError("the PDF is damaged") from error
    if is_garbled(_GAP.join(extracted)):
        raise ParseError(
            "the PDF has no map from its glyphs to characters, so its text is noise; run OCR on it first",
            "no text",
        )
    pages = [_readable(page) for page in extracted]
    if not any(page.strip() for page in pages):
        raise ParseError("the PDF has no text, only images; run OCR on it first", "no text")
    starts = tuple(accumulate((len(page) + len(_GAP) for page in pages), initial=0))
    text = _GAP.join(pages)
    return Document(
        text=text,
        title=title or name,
        mime_type="application/pdf",
        blocks=tuple(blocks_of(text, starts[:-1], outline)),
        pages=starts[:-1],
    )


def _readable(page: str) -> str:
    return clean(_HYPHENATED.sub("", page.translate(_LIGATURES)))


def _title(about: DocumentInformation | None) -> str:
    title = clean((about and about.title) or "").strip("\ufffd \t\n")
    return "" if _NO_TITLE.fullmatch(title) else title
