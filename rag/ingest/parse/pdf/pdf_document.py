"""PDF: its pages as text in reading order, with tables, and sections by its outline or by font size.

Parse only in the sandbox: a hostile PDF can take endless time and memory, and pdfium is written in C++. The
dates in a PDF are ignored: they belong to the file, which may be years younger than the document.

pdfium reads the pages. pypdf reads the properties, the language and the embedded files, because pdfium
doesn't read XMP, where newer programs write title and author.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from rag.corpus import Block, BlockKind, Document
from rag.errors import ParseError
from rag.ingest.parse.document_parts import GAP, Member, block, clean, facts, title_line
from rag.ingest.parse.pdf.drawn_tables import with_drawn_cells
from rag.ingest.parse.pdf.page_layout import (
    Row,
    dehyphenator,
    ends_sentence,
    has_list_mark,
    rows_of,
    with_initials,
)
from rag.ingest.parse.pdf.page_parts import PagePart, parts_of, with_headers_of_tables
from rag.ingest.parse.pdf.page_tables import with_headers
from rag.ingest.parse.pdf.pdf_words import Line, PageLines, most_letters
from rag.ingest.parse.pdf.readable_pages import DAMAGED, sheets_of
from rag.ingest.parse.pdf.running_lines import bodies_of, printed_numbers, without_line_numbers
from rag.ingest.parse.pdf.text_page import HYPHEN, Pdfium
from rag.ingest.parse.titles_and_questions import MADE_UP_AUTHOR, MADE_UP_TITLE
from rag.text.plain_text import Span, trimmed
from rag.uris import PAGE_LABELS_KEY, labels_text

if TYPE_CHECKING:
    from pypdf import PdfReader

    from rag.ingest.parse.ocr import OcrReader


SUFFIXES = (".pdf",)
LIBRARIES = ("pypdfium2", "pypdf.*")
ENCRYPTED = "the PDF is encrypted with a password"

for library in ("pypdfium2", "pypdf"):
    logging.getLogger(library).setLevel(logging.CRITICAL)  # their warnings quote the file

_NOTE = 0.95  # times the size of most letters: larger ones are no note
_NOTE_MARK = re.compile(r"(?:\d{1,3}|[*†‡§¶]{1,3}|\[\d{1,3}\]|\(\d{1,3}\))[.)]? ?[^\W\d]")
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"})


def parse(data: bytes, name: str, reader: OcrReader | None = None) -> Document:
    """The document of a PDF. Remarks name the pages that can't be read.

    With `reader`, OCR reads pages that have only images or noise.

    Raises:
        ParseError: it needs a password, is damaged, contains images only, or its text is noise.
    """
    with closing(_open(data)) as pdf:
        sheets, missing = sheets_of(pdf, pypdf_texts(data), reader)
        about = pdf_properties(data)
        pages = parts_on(sheets)
        if not any(pages):
            raise missing.error()
        outline, labels = [*_entries(pdf)], labels_text(_labels(pdf) or printed_numbers(sheets))
    text, blocks, starts = text_of_pages(pages)
    if outline:  # it says more surely than letters do what is a heading
        plain = [Block("paragraph", part.start, part.end) if part.level else part for part in blocks]
        blocks = with_outline(text, plain, starts, outline)
    return Document(
        text=text,
        title=about.title or _title(outline, pages) or name,
        mime_type="application/pdf",
        blocks=tuple(blocks),
        pages=tuple(starts),
        metadata={**about.metadata, **({PAGE_LABELS_KEY: labels} if labels else {})},
        remarks=(*missing.remarks(), *about.remarks),
    )


def _open(data: bytes) -> Pdfium:
    import pypdfium2  # noqa: PLC0415 needed in the child process only

    try:
        pdf = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if error.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
            raise ParseError(ENCRYPTED, "encrypted") from error
        raise ParseError(DAMAGED) from error
    if pdf.get_formtype() != pypdfium2.raw.FORMTYPE_NONE:
        pdf.init_forms()  # otherwise the pages lack what is filled in
    return pdf


def _labels(pdf: Pdfium) -> list[str]:
    """The page labels, as printed on the pages; none if the file has none."""
    return [title_line(pdf.get_page_label(page)) for page in range(len(pdf))] if pdf.get_page_label(0) else []


def parts_on(sheets: Sequence[PageLines]) -> list[list[PagePart]]:
    """The parts of each page, without numbers of lines.

    A running header or footer is where it first stands only, or behind the paragraph that it interrupts.
    """
    if _are_mostly_even(sheets):  # a typescript, or what a printer of lines wrote
        sheets = [
            sheet._replace(lines=[line._replace(even=False) for line in sheet.lines]) for sheet in sheets
        ]
    sheets = [sheet._replace(lines=with_initials(sheet.lines)) for sheet in sheets]
    sheets = without_line_numbers(sheets)  # before running lines: a column of numbers reaches into both edges
    bodies = bodies_of(sheets)
    pages = [list(_parts(sheet, body.lines)) for sheet, body in zip(sheets, bodies, strict=True)]
    with_headers_of_tables(pages)  # while the table still is the last part of its page
    size, _ = body_of(chain.from_iterable(pages))
    marked = (
        (number, part, is_beside)
        for number, (page, body) in enumerate(zip(pages, bodies, strict=True))
        for part, is_beside in chain(
            ((part, True) for part in _no_headings(body.head)),
            _marked_notes(page, size),
            ((part, True) for part in _no_headings(body.foot)),
        )
    )
    return _in_reading_order(marked, len(pages))


def _marked_notes(parts: Sequence[PagePart], size: float) -> Iterator[tuple[PagePart, bool]]:
    """Each part of a page, and whether it is a note to the text, whose letters have this size."""
    is_note = False
    for part in parts:
        is_small = part.size < _NOTE * size and not (part.is_table or part.is_code)
        is_note = is_small and (is_note or bool(_NOTE_MARK.match(part.text)))
        yield part, is_note


def _in_reading_order(marked: Iterable[tuple[int, PagePart, bool]], pages: int) -> list[list[PagePart]]:
    """The parts of each page, of parts with their page, and whether they stand beside the text.

    What does, as running lines and notes, comes behind the paragraph that it interrupts: amid a sentence, it
    would keep this from being found or quoted.
    """
    ordered: list[list[PagePart]] = [[] for _ in range(pages)]
    waiting, beside = list[PagePart](), list[tuple[int, PagePart]]()
    last: PagePart | None = None
    end = 0
    for page, part, is_beside in chain(marked, [(0, None, False)]):
        if part and is_beside:
            beside.append((page, part))
            continue
        if last and part and (beside or page != end) and _goes_on(last, part):
            waiting += (interrupting for _, interrupting in beside)
        else:
            ordered[end] += waiting
            for place, interrupting in beside:
                ordered[place].append(interrupting)
            waiting = []
        if part:
            ordered[page].append(part)
        last, end, beside = part, page, []
    return ordered


def _goes_on(last: PagePart, first: PagePart) -> bool:
    """Whether a paragraph ends amid a sentence, and the next one has its letters."""
    is_text = not (last.is_table or first.is_table or last.is_code or first.is_code)
    is_alike = (last.size, last.bold) == (first.size, first.bold)
    return is_text and is_alike and not ends_sentence(last.text) and not has_list_mark(first.text)


def _are_mostly_even(sheets: Sequence[PageLines]) -> bool:
    """Whether most letters of a document have one width, so that this doesn't mark code."""
    lines = (line for sheet in sheets for line in sheet.lines)
    return sum(len(line.text) * (1 if line.even else -1) for line in lines) > 0


def _parts(sheet: PageLines, lines: Sequence[Line]) -> Iterator[PagePart]:
    """The parts of a page in reading order; vertical text comes last, unless it heads columns."""
    lines = with_headers(lines, sheet.rules)
    level = with_drawn_cells([line for line in lines if not line.turned], sheet.rules)
    for rows in rows_of(level, sheet.rules):
        yield from parts_of(rows, sheet.rules)
    yield from _no_headings([[line] for line in lines if line.turned])


def _no_headings(rows: Sequence[Row]) -> Iterator[PagePart]:
    """The parts of stamps and running lines, which head nothing, however large they are."""
    return (part._replace(size=0.0) for part in parts_of(rows, ()))


def text_of_pages(pages: Sequence[Sequence[PagePart]]) -> tuple[str, list[Block], list[int]]:
    """The parts of pages as one text, its blocks with headings by font size, and where the pages start."""
    # The words of all pages: what a line cuts on one page may stand whole on another.
    join = dehyphenator("\n".join(part.text for parts in pages for part in parts))
    levels = iter(levels_of([part for parts in pages for part in parts]))  # one a part, in the same order
    pieces: list[str] = []
    blocks: list[Block] = []
    starts: list[int] = []
    at = 0
    for number, parts in enumerate(pages):
        if number:
            pieces.append(GAP)
            at += len(GAP)
        starts.append(at)
        for index, part in enumerate(parts):
            level, text = next(levels), _readable(part, join)
            if not text:
                continue
            kind: BlockKind = "heading" if level else "paragraph"
            kind = "table" if part.is_table else "code" if part.is_code else kind
            gap = GAP if index else ""
            start = at + len(gap)
            at = start + len(text)
            blocks.append(Block(kind, start, at, level, title_line(text) if level else ""))
            pieces += [gap, text]
    return "".join(pieces), blocks, starts


def _readable(part: PagePart, join: Callable[[str], str]) -> str:
    if part.is_code:  # ends of lines cut no words, and spaces before a line belong to it
        return clean(part.text.replace(HYPHEN, "-")).strip("\n")
    return clean(join(part.text).translate(_LIGATURES)).strip()


def _title(outline: Sequence[OutlineEntry], pages: Sequence[Sequence[PagePart]]) -> str:
    body, _ = body_of(part for parts in pages for part in parts)
    words = largest_words(pages, body)
    return title_in(outline) or (words if may_be_title(words) else "")


class PdfProperties(NamedTuple):
    """The title of a PDF, "" if a program made it up, and its metadata."""

    title: str = ""
    metadata: Mapping[str, str] = {}
    remarks: tuple[str, ...] = ()


def pdf_properties(data: bytes) -> PdfProperties:
    """The properties of a PDF. If they can't be read, a remark says so: its pages may be readable."""
    try:
        return _properties(_open_with_pypdf(data))
    except RecursionError:
        raise
    except Exception:  # noqa: BLE001 pypdf raises all kinds of errors on damaged files
        return PdfProperties(remarks=("its title and author can't be read",))


def pypdf_texts(data: bytes) -> Callable[[int], str]:
    """A function from page number (from 0) to pypdf's text, "" on failure. Its first call opens the file."""
    opened = cache(lambda: _open_with_pypdf(data))

    def text(page: int) -> str:
        try:
            return opened().pages[page].extract_text()
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
        attached = list(_open_with_pypdf(data).attachment_list)
    except RecursionError:
        raise
    except Exception as error:
        raise ParseError("the PDF is encrypted with a password, or damaged") from error
    for number, attachment in enumerate(attached, 1):
        name = f"attachment {number}"
        try:
            name = attachment.name or name
            yield Member(name, attachment.content)
        except Exception:  # noqa: BLE001 see above
            yield Member(name, refused="it can't be taken out of its PDF", cause="damaged")


def may_have_members(data: bytes) -> bool:
    """Whether a PDF may have embedded files, judged by the type of such streams."""
    return b"/EmbeddedFile" in data


def _open_with_pypdf(data: bytes) -> PdfReader:
    from pypdf import PdfReader  # noqa: PLC0415 needed in the child process only

    return PdfReader(io.BytesIO(data))


def _properties(reader: PdfReader) -> PdfProperties:
    stated, xmp = reader.metadata, reader.xmp_metadata
    author = _joined_names(re.split(r"\s*;\s*", (stated and stated.author) or ""))
    author = author or _joined_names((xmp and xmp.dc_creator) or ())  # newer programs write XMP only
    title = _line(stated and stated.title) or _line(next(iter(((xmp and xmp.dc_title) or {}).values()), ""))
    subject = _line(stated and stated.subject)
    metadata = facts(
        author="" if MADE_UP_AUTHOR.fullmatch(author) else author,
        keywords=_line(stated and stated.keywords) or _joined_names((xmp and xmp.dc_subject) or ()),
        subject="" if MADE_UP_TITLE.fullmatch(subject) else subject,
        language=str(reader.root_object.get("/Lang", "")),
    )
    return PdfProperties("" if MADE_UP_TITLE.fullmatch(title) else title, metadata)


def _line(value: object) -> str:
    return title_line(str(value or "")).strip("\ufffd ")


def _joined_names(names: Iterable[object]) -> str:
    return ", ".join(filter(None, map(_line, names)))


MAX_ENTRIES = 2_000  # of an outline: a hostile one is endless
_MAX_LEVEL = 6
_WRAPPED = 3  # lines that a heading may take
_LINE = re.compile(r"[^\n]*\S[^\n]*")
_NUMBER = re.compile(  # before a title, as in "Chapter 3: ", "IV. " and "1.2 "; the outline may lack it
    r"\A((chapter|part|section|appendix)\s+)?(\d[\d.]*|[ivxlc]+|[a-z])[.):]*\s+", re.IGNORECASE
)
_PART = r"(table of )?contents|abstract|introduction|summary|preface|cover|index|title( page)?"
_NOT_A_TITLE = re.compile(rf"{_PART}|(page|slide|chapter)? ?\d*", re.IGNORECASE)


class OutlineEntry(NamedTuple):
    """An entry of an outline: its title, its level from 1, and the page that it leads to, from 0."""

    title: str
    level: int
    page: int


def _entries(pdf: Pdfium) -> Iterator[OutlineEntry]:
    for bookmark in islice(pdf.get_toc(max_depth=_MAX_LEVEL), MAX_ENTRIES):
        target = bookmark.get_dest()
        page = target.get_index() if target else None
        if page is not None and page >= 0 and (title := title_line(bookmark.get_title())):
            yield OutlineEntry(title, bookmark.level + 1, page)


def title_in(outline: Sequence[OutlineEntry]) -> str:
    """The title of the only level 1 entry of an outline that has others below it, or ""."""
    outermost = [entry.title for entry in outline if entry.level == 1]
    return outermost[0] if len(outermost) == 1 < len(outline) and may_be_title(outermost[0]) else ""


def may_be_title(words: str) -> bool:
    """Whether words can name a document, rather than one of its usual parts."""
    return not _NOT_A_TITLE.fullmatch(words)


def with_outline(
    text: str, blocks: Sequence[Block], starts: Sequence[int], outline: Sequence[OutlineEntry]
) -> list[Block]:
    """The blocks of the pages that begin at `starts`, with a heading for each entry of the outline.

    A heading is the line of its page that has the title, else the first line of the page.
    """
    cut: list[Block] = []
    waiting = list(reversed(blocks))
    for heading in _headings(text, starts, outline):
        while waiting and waiting[-1].end <= heading.start:
            cut.append(waiting.pop())
        while waiting and waiting[-1].start < heading.end:
            below = waiting.pop()
            cut += block(text, below.kind, below.start, min(below.end, heading.start))
            waiting += block(text, below.kind, max(below.start, heading.end), below.end)
        cut.append(heading)
    return [*cut, *reversed(waiting)]


def _headings(text: str, starts: Sequence[int], outline: Sequence[OutlineEntry]) -> Iterator[Block]:
    at = 0
    ends = [*starts[1:], len(text)]
    for entry in outline:
        if entry.page >= len(starts):
            continue
        start, end = max(at, starts[entry.page]), ends[entry.page]  # entries are in the order of the text
        span = _line_of(text, start, end, entry.title)
        if span is None and start == starts[entry.page]:  # of several such entries, the first has the page
            first = _LINE.search(text, start, end)
            span = trimmed(text, *first.span()) if first else None
        if span:
            yield Block("heading", *span, entry.level, entry.title)
            at = span.end


def _line_of(text: str, start: int, end: int, title: str) -> Span | None:
    """The line or lines of `text[start:end]` with this title, with or without its number."""
    titles = {_letters(title), _letters(_NUMBER.sub("", title))}
    lines = [match.span() for match in _LINE.finditer(text, start, end)]
    for last, (_, stop) in enumerate(lines):
        # The shortest match first: one line, then this line and those above.
        for begin, _ in reversed(lines[max(0, last + 1 - _WRAPPED) : last + 1]):
            words = text[begin:stop].strip()
            if not titles.isdisjoint({_letters(words), _letters(_NUMBER.sub("", words))}):
                return trimmed(text, begin, stop)
    return None


def _letters(words: str) -> str:
    """Letters and digits only, because outlines and pages differ in spaces, hyphens and dots."""
    return "".join(filter(str.isalnum, clean(words[:500]).casefold()))


LEVELS = 6
_LARGER = 1.15  # times the size of most letters: what a heading has at least
_TITLE = 1.2  # the same, of a title
_SMALLER = 0.97  # the same: smaller bold words are labels
_ROWS, _LENGTH, _BOLD_LENGTH = 3, 200, 120  # of a heading at most
_WORDS = re.compile(r"[^\W\d_]{2}|[\u3400-\u9fff\u3040-\u30ff\uac00-\ud7af]")
_NO_HEADING = re.compile(r"[•▪◦●–—*-]\s|.*[,;]\Z", re.DOTALL)
_SENTENCE = re.compile(r".*[.!]\Z", re.DOTALL)
_SECTION = re.compile(r"(?:§ ?)?\d{1,2}(?:\.\d+)*[.)]?\s")


def body_of(parts: Iterable[PagePart]) -> tuple[float, bool]:
    """The font size of most characters, and whether most are bold; code doesn't count."""
    texts = [(part, part.text) for part in parts if not part.is_code]
    bold = sum(len(text) * (1 if part.bold else -1) for part, text in texts) > 0
    return most_letters(((part.size, text) for part, text in texts), 0.0), bold


def levels_of(parts: Sequence[PagePart]) -> list[int]:
    """The heading level of each part, 0 if it isn't a heading. The largest font size is level 1."""
    body, bold = body_of(parts)
    looks = [
        # Files have 11.9 and 12.1 where one size is meant: such headings are of one level.
        (round(part.size * 2) / 2, part.bold) if _is_heading(part, body, bold=bold) else None
        for part in parts
    ]
    ranks = sorted({look for look in looks if look}, reverse=True)
    return [min(ranks.index(look) + 1, LEVELS) if look else 0 for look in looks]


def _is_heading(part: PagePart, body: float, *, bold: bool) -> bool:
    text = part.text
    if part.is_table or part.is_code or len(part.rows) > _ROWS or len(text) > _LENGTH:
        return False
    if not _WORDS.search(text) or _NO_HEADING.match(text):
        return False
    if part.size >= _LARGER * body:
        return True
    return (
        part.bold
        and not bold
        and part.size >= _SMALLER * body
        and len(text) <= _BOLD_LENGTH
        and not _SENTENCE.fullmatch(text)
    )


def largest_words(pages: Sequence[Sequence[PagePart]], body: float) -> str:
    """The words in the largest font size of page 1, or "" if the text is hardly smaller.

    They are the heading of a section, and no title, if others of their size follow apart from them, and they
    are numbered, or stand below other text while the others aren't numbered.
    """
    texts = [part for part in pages[0] if part.size and not part.is_table and _WORDS.search(part.text)]
    largest = max((part.size for part in texts), default=0.0)
    if largest < _TITLE * body:
        return ""
    first = next(at for at, part in enumerate(texts) if part.size == largest)
    title = [texts[first]]
    for part in texts[first + 1 :]:
        is_apart = part.size != largest or part.box.top - title[-1].box.bottom > 2 * largest
        if is_apart or _SECTION.match(part.text):
            break
        title.append(part)
    later = [*texts[first + len(title) :], *chain(*pages[1:])]
    as_large = [part.text for part in later if part.size == largest and _WORDS.search(part.text)]
    words = title_line(" ".join(part.text for part in title))
    is_below = first > 0 and not all(map(_SECTION.match, as_large))
    return "" if as_large and (is_below or _SECTION.match(words)) else words
