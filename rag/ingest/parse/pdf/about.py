"""What a PDF says of itself: its properties, its language, and the files embedded in it, read by pypdf.

pdfium, which reads the pages, knows no XMP, where newer programs write title and author.
"""

from __future__ import annotations

import io
import logging
import re
from typing import TYPE_CHECKING, NamedTuple

from rag.errors import ParseError
from rag.ingest.parse.blocks import title_line
from rag.ingest.parse.member import Member

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pypdf import PdfReader

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # its warnings quote the file

_FILE = r"([a-z]:|file:)?[\\/].*|.*\.(docx?|xlsx?|pptx?|od[tsp]|indd|tex|dvi|pdf|html?)"
_PROGRAM = (
    r"microsoft (word|powerpoint|excel) - .*|powerpoint presentation|(document|slide|book|presentation) ?\d*"
)
_NAMELESS = r"[(\[]?(untitled|unnamed|anonymous|unspecified|unknown|no ?title|title|none|null)\b[)\]]? ?\d*"
_NO_TITLE = re.compile(rf"{_PROGRAM}|{_NAMELESS}|{_FILE}|untitled.*|[\W_]*", re.IGNORECASE)
_NO_SUBJECT = re.compile(_NAMELESS, re.IGNORECASE)
_NO_AUTHOR = re.compile(
    r"(microsoft office )?user|admin(istrator)?|\(?(unknown|anonymous)\)?|root|\W*", re.IGNORECASE
)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")


class About(NamedTuple):
    """The title of a PDF, "" if it has none but a program's, and its metadata. `remarks` say what is lost."""

    title: str = ""
    metadata: Mapping[str, str] = {}
    remarks: tuple[str, ...] = ()


def about_of(data: bytes) -> About:
    """What a PDF says of itself. Text that pdfium can read stays readable if this can't be."""
    try:
        return _about(_opened(data))
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001 pypdf raises all kinds of errors on damaged files
        return About(remarks=("its title and author can't be read",))


def texts_of(data: bytes) -> Callable[[int], str]:
    """What pypdf reads on a page, by its number from 0; "" where it fails. The first call opens the file."""
    readers: list[PdfReader] = []

    def text(page: int) -> str:
        try:
            if not readers:
                readers.append(_opened(data))
            return readers[0].pages[page].extract_text()
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001 see above
            return ""

    return text


def members(data: bytes, _name: str) -> Iterator[Member]:
    """The files that are embedded in a PDF.

    Raises:
        ParseError: it needs a password, or is damaged.
    """
    try:
        attached = list(_opened(data).attachment_list)
    except RecursionError:
        raise
    except Exception as error:
        raise ParseError("the PDF is encrypted with a password, or damaged") from error
    for number, one in enumerate(attached, 1):
        name = f"attachment {number}"
        try:
            name = one.name or name
            yield Member(name, one.content)
        except Exception:  # noqa: BLE001 see above
            yield Member(name, refused="it can't be taken out of its PDF", cause="damaged")


def may_have_members(data: bytes) -> bool:
    """Whether a PDF may have embedded files, by its bytes: their streams say what they are."""
    return b"/EmbeddedFile" in data


def _opened(data: bytes) -> PdfReader:
    from pypdf import PdfReader  # noqa: PLC0415 needed in the child process only

    return PdfReader(io.BytesIO(data))


def _about(reader: PdfReader) -> About:
    """The properties, and what only the XMP states."""
    stated, xmp = reader.metadata, reader.xmp_metadata
    author = _joined(re.split(r"\s*;\s*", (stated and stated.author) or ""))
    author = author or _joined((xmp and xmp.dc_creator) or ())
    title = _line(stated and stated.title) or _line(next(iter(((xmp and xmp.dc_title) or {}).values()), ""))
    subject = _line(stated and stated.subject)
    language = str(reader.root_object.get("/Lang", ""))
    found = {
        "author": "" if _NO_AUTHOR.fullmatch(author) else author,
        "keywords": _line(stated and stated.keywords) or _joined((xmp and xmp.dc_subject) or ()),
        "subject": "" if _NO_SUBJECT.fullmatch(subject) else subject,
        "language": language if _LANGUAGE.fullmatch(language) else "",
    }
    shown = "" if _NO_TITLE.fullmatch(title) else title
    return About(shown, {key: value for key, value in found.items() if value})


def _line(written: object) -> str:
    return title_line(str(written or "")).strip("\ufffd ")


def _joined(names: Iterable[object]) -> str:
    return ", ".join(filter(None, map(_line, names)))
