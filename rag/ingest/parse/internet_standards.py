"""RFCs and Internet-Drafts in plain text: their sections and title, without the lines around page breaks.

Only a text is read so whose first lines say what it is, and whose first page has a title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rag.corpus import Block, Document
from rag.ingest.parse.document_parts import date, facts, paragraphs, title_line
from rag.text.plain_text import one_line

_STANDARD = re.compile(
    r"\s*+(?:[^\n]+\n){0,3}(?:Request for Comments: *(?P<number>\d{1,5})|Internet[- ]Draft)(?= {2}| ?\n)",
    re.IGNORECASE,
)
"""The top of an RFC or Internet-Draft, up to its number: "Request for Comments: 2131"."""
_PAGE_BREAK = re.compile(
    r"^\S[^\n]*\[Page [\divxlc]+\][^\S\n]*(?:\n|\Z)(?:[^\S\n]*\n)*+\f?"
    r"(?:(?:RFC[ -]?\d+|Internet[- ]Draft|draft-\S+)(?: {2}[^\n]*)?\n(?:[^\S\n]*\n)*+)?",
    re.MULTILINE | re.IGNORECASE,
)
"""The last line of a page and the first line of the next: "Droms [Page 2]", "RFC 2131  DHCP  March 1997"."""
_ABOVE_TITLE = re.compile(r"\S[^\n]*:[ \n]|[^\n]*\S {2,}\S|\s*(?:\d+ )?[A-Z][a-z]+ (?:\d+, )?\d{4}\s*$")
_CATEGORY = re.compile(r"^(?:Category|Intended status): *(\S+(?: \S+)*)", re.MULTILINE | re.IGNORECASE)
_RIGHT = re.compile(r"^(?:[^\n]*\S)?[ \t]{2,}(\S+(?: \S+)*)[ \t]*$", re.MULTILINE)
_AUTHOR = re.compile(r"((?:[A-Z]\.[ -]?)+[^\W\d_][\w'’. -]*)(?:, Ed\.| \(ed\))?", re.IGNORECASE)
_DRAFT = re.compile(r"<?(draft-[\w-]+?)(?:\.txt)?>?", re.IGNORECASE)
_FIRST_PAGE = 5_000  # characters
_NEAR = 200  # characters below the title in which a draft is named
_SECTION_LINE = re.compile(
    r"(?:(?P<number>(?:(?i:Appendix) [A-Z]\b|[A-Z]\.(?=[ \d])|\d{1,2}\b)(?:\.?\d{1,2}\b)*)[.:]?[ \t]*"
    r"|(?=[A-Z]))"
    r"(?!\s)(?:(?! {2}|\t|\. ?\. ?\.)[^\n]){1,100}(?<![,;:\s])(?![^\n])"
)
"""The heading of a section at the begin of a line; those of a table of contents have gaps or rows of dots."""
_WRAPPED = 50  # characters of a heading that may go on in the next line


def standard_document(text: str, name: str) -> Document | None:
    """The document of an RFC or Internet-Draft; None for other texts."""
    if not (top := _STANDARD.match(text)):
        return None
    text = _without_page_breaks(text)
    blocks = [*paragraphs(text)]
    titles = (block for block in blocks[1:4] if not _ABOVE_TITLE.match(text, _line_start(text, block)))
    title = next(titles, None)
    if not title or title.start > _FIRST_PAGE:
        return None
    drafts = [match[1] for match in map(_DRAFT.fullmatch, text[: title.end + _NEAR].split()) if match]
    label = f"RFC {top['number']}" if top["number"] else next(iter(drafts), "")
    words = [word for word in text[title.start : title.end].split() if not _DRAFT.fullmatch(word)]
    head = text[: title.start]
    right = _RIGHT.findall(head)
    category = _CATEGORY.search(head)
    return Document(
        text,
        title_line(": ".join(filter(None, (label, " ".join(words))))) or name,
        "text/plain",
        (*_with_sections(text, blocks),),
        date=next(filter(None, (date(cell) or date(f"1 {cell}") for cell in right)), None),
        metadata=facts(
            author=[match[1] for match in map(_AUTHOR.fullmatch, right) if match],
            category=category[1] if category else "",
        ),
    )


def _line_start(text: str, block: Block) -> int:
    return text.rfind("\n", 0, block.start) + 1


def _without_page_breaks(text: str) -> str:
    """The text without what is around page breaks; as it is, if it has no pages."""
    first, *pages = (page.rstrip() for page in _PAGE_BREAK.split(text))
    if not pages:
        return text
    parts = [first]
    for page in filter(None, pages):
        parts += ["\n" if _goes_on(parts[-1], page) else "\n\n", page]
    return "".join(parts)


def _goes_on(page: str, following: str) -> bool:
    """Whether a paragraph or figure goes on after a page break."""
    last, first = page[page.rfind("\n") + 1 :], following.partition("\n")[0]
    words = first.lstrip()
    is_within = last[:1] == " " and len(last) - len(last.lstrip()) == len(first) - len(words)
    is_sentence = words[:1].islower() and not words.startswith("o ")
    return is_sentence or (is_within and last[-1] not in ".:;!?")


def _with_sections(text: str, blocks: Sequence[Block]) -> Iterator[Block]:
    """The blocks with the headings of sections. One without a number is below the last that has one."""
    sections = [_section(text, block) for block in blocks]
    flush = sum(_line_start(text, block) == block.start for block in blocks) - len([*filter(None, sections)])
    if 4 * flush > len(blocks):  # the text isn't indented, so a short line is no heading
        sections = [section if section and section["number"] else None for section in sections]
    last = max((at for at, section in enumerate(sections) if section and section["number"]), default=0)
    level = 0
    for at, (block, section) in enumerate(zip(blocks, sections, strict=True)):
        if not section:
            yield block
            continue
        number = (section["number"] or "").removesuffix(".0").rstrip(".")
        level = 1 + number.count(".") if number else level
        depth = level if number else level + 1 if at < last else 1
        end = block.end if _is_wrapped(text, block, section) else section.end()
        yield Block("heading", block.start, end, depth, one_line(text[block.start : end]))
        yield from paragraphs(text, end, block.end)


def _section(text: str, block: Block) -> re.Match[str] | None:
    """The heading that a block is, or that it begins with above indented text."""
    section = (
        None if _line_start(text, block) < block.start else _SECTION_LINE.match(text, block.start, block.end)
    )
    if not section:
        return None
    is_alone = section.end() == block.end
    if section["number"]:
        return section if is_alone or text[section.end() + 1].isspace() else None
    return section if is_alone and not section[0].endswith(".") else None


def _is_wrapped(text: str, block: Block, section: re.Match[str]) -> bool:
    rest = text[section.end() : block.end].strip()
    return len(section[0]) > _WRAPPED and bool(rest) and "\n" not in rest and rest[-1] != "."
