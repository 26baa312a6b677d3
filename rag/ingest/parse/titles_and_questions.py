"""Titles of documents, and questions as headings of their answers.

A title is a heading, a first line, or the name of the file. People write questions as bold lines, as "Q:" and
"A:", or as labels of collapsible pieces of a page.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple

from rag.corpus import Block
from rag.ingest.parse.document_parts import block as trimmed_block
from rag.ingest.parse.document_parts import title_line

LABELS = ("sidebar_label", "linktitle", "nav_title", "navtitle", "short_title", "name")
"""Keys of front matter that site generators show in menus, in lower case, the most telling one first."""

_TITLE_LINE = 98  # characters: a first line that is longer is a sentence
_LINK = re.compile(r"!?\[([^\[\]]*)\](?:\([^()]*\)|\[[^\[\]]*\])")
_ALT = re.compile(r"""<img\b[^<>]{0,600}?\balt\s?=\s?["']([^"'<>]*)["'][^<>]*>""", re.IGNORECASE)
_TITLE_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,600}>")
_MARKUP = re.compile(r"`|\*\*|</\w+>|<\w+\s[^<>]*>|\s*\{:?\s*[#.][^{}]*\}\s*$|\s+#+\s*$")
_SHOWN = re.compile(
    r"(?P<code>(?<!`)(?P<ticks>`+)[^`\n]+(?P=ticks))"
    r"|(?<![A-Za-z0-9_)\]])!?\[\[#?(?:[^\[\]|]*\|)?(?P<note>[^\[\]|]+)\]\](?:\([^()]*\))?"  # [[note|words]]
    r"|(?<!\w)(?P<sign>~~|==)(?=[^\s~=])(?P<marked>[^~=]+)(?P=sign)(?!\w)"
    r"|(?<![\w\\])(?P<line>__(?![a-z\d_]+__)|_)(?=[^\W_])(?P<lined>[^_]+)(?P=line)(?!\w)"  # not __init__
    r"|\[\^[^\[\]\s]+\]"  # the mark of a footnote
    r"|\\(?P<escaped>[*_\[\]#.\-!()&|~+>])|(?P<entity>&(?:amp|nbsp|quot|#39);)"
)
_ASTERISK = "\0"  # one that is no emphasis
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=\S)([^*]+?)\1(?![\w*])")
_H1 = re.compile(r"<h1\b[^<>]{0,600}>(.{1,2000}?)</h1\s*>", re.IGNORECASE | re.DOTALL)
BOLD = re.compile(r"(\*\*|__)(?=\S)([^*_\n]+)\1:?")
_NO_TITLE = re.compile(r"[<|>!\[{]|[-*+=:] |\d+[.)] |https?:|.*[.,;:!?]$", re.DOTALL)
_PROPOSAL = re.compile(r"(?:[bcdefhijknps]|er|dr)[ei]p|erc|rfc|adr")  # as of Python and Bitcoin
_NOTHING = re.compile(
    r"(?i)[\W_]*|\(?(?:anonymous|unspecified|untitled(?:[ -]document)?|no title|unbenannt|null|undefined)\)?"
)
MADE_UP_TITLE = re.compile(
    r"(?i)[\W_]*|untitled.*|microsoft (?:word|powerpoint|excel) ?- .*"
    r"|(?:new )?microsoft .* (?:document|presentation|worksheet)"
    r"|powerpoint[- ](?:presentation|präsentation|presentatie)|презентация powerpoint|powerpoint 演示文稿"
    r"|(?:présentation|presentación|apresentação|presentazione)(?: de| do| di)? powerpoint"
    r"|(?:document|dokument|slide|folie|book|mappe|presentation|präsentation|spreadsheet|title|titel|template"
    r"|vorlage|pptx?|docx?|xlsx?|excel|word)[ _-]?\d*"
    r"|[(\[]?(?:untitled|unnamed|anonymous|unspecified|unknown(?: title)?|no ?title|none|null)[)\]]? ?\d*"
    r"|.*\.(?:docx?|docm|dotx?|pptx?|potx?|xlsx?|xltx?|od[tsp]|ot[tsp]|rtf|pdf|indd|tex|dvi|x?html?|xml)"
    r"|(?:[a-z]:)?[\\/].*|file:.*"
)
"""Titles that programs write into the properties of office documents and PDFs."""
MADE_UP_AUTHOR = re.compile(
    r"(?i)\W*|python-docx|python-pptx|openpyxl|apache poi|(?:microsoft office[ -])?(?:users?|anwender)|author"
    r"|\(?(?:unknown|anonymous)(?: author)?\)?|admin|administrator|root|owner|default|none|win|pc"
    r"|windows[ -]user|windows-benutzer|utilisateur.*|usuario.*"
)
"""Authors that they write there."""
_NOTION = re.compile(r" [0-9a-f]{32}(?:_all)?$")
_JOINED = re.compile(r"[a-z]{2,}(?:-[a-z]{2,})+")
_NAMING = re.compile(r"\d+|[^\W\d_]+")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")
_UNWORDED = re.compile(
    r"<[^<>]*>|!?\[+[^\[\]]*\]+(?:\([^()]*\))?|\(picture[^()]*\)|\{[^{}]*\}|^\([\w-]+\)=$|[\W_]",
    re.MULTILINE,
)
"""Tags, links, pictures, attributes and labels, as they stand above the title of a page."""
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?:\d{4})?(?!\d)")  # 2024, 20240312
_NO_NAME = re.compile(
    r"(?i)(?:default|document|dokument|download|export|file|home|index|main|page|readme(?:[\W_].*)?|scan|text"
    r"|unbenannt|untitled|[a-z])?[\W\d_]*|(?=.*\d)[0-9a-f-]{8,}|(?-i:(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{16,})"
)
"""Names of files that programs give: "README", "export-1", "001", a digest, a random id."""


def heading_words(heading: str) -> str:
    """The words of a Markdown heading without its markup.

    Example: "The [`x`](y) [![Build](b.svg)](z) {#anchor}" -> "The x Build"; "[[Ann Lee|Ann]]" -> "Ann".
    """
    words = _ALT.sub(r"\1", heading[:1000])
    for _ in range(2):  # a badge is an image in a link
        words = _LINK.sub(r"\1", words)
    words = _MARKUP.sub("", _EMPHASIS.sub(r"\2", _SHOWN.sub(_shown, words)))
    return words.replace(_ASTERISK, "*")


def _shown(mark: re.Match[str]) -> str:
    if note := mark["note"]:
        return note.replace("#", " > ")
    if entity := mark["entity"]:
        return html.unescape(entity)
    escaped = (mark["escaped"] or "").replace("*", _ASTERISK)
    return mark["code"] or mark["marked"] or mark["lined"] or escaped


def first_heading(text: str, blocks: Sequence[Block], name: str) -> str:
    """The heading that is the title of a document in a file of this name, "" without one.

    It can only be the first one of level 1, or the first one if none has this level. If others are on its
    level or above it, it heads a section, unless the text begins with it and it shares words with the name of
    the file, and more than the others do. If there are no others, it is the title if the text begins with it,
    or if it shares words with the name. In a file whose name says nothing, it is the title in any case.

    Example: "# Attendees" and "# Notes" in "Meeting Cumulo.md" -> ""; in "attendees-2024.md" -> "Attendees".
    """
    headings = [block for block in blocks if block.kind == "heading" and block.title]
    if not headings:
        return ""
    first = next((block for block in headings if block.level == 1), headings[0])
    words, of_name = _words(first.title), _words(_stem(name))
    if words == of_name or not _says_something(name):
        return first.title
    above = (block for block in takewhile(lambda block: block is not first, blocks) if block.kind != "code")
    begins = not any(_UNWORDED.sub("", text[block.start : block.end]) for block in above)
    shared = len(words & of_name)
    is_about = 0 < min(len(words), len(of_name)) <= 2 * shared
    beside = {block.title for block in headings if block.level <= first.level} - {first.title}
    if beside:
        is_title = begins and is_about and shared > max(len(_words(title) & of_name) for title in beside)
    else:
        is_title = begins or is_about
    return first.title if is_title else ""


def _says_something(name: str) -> bool:
    """Whether a file's name tells what is in it: "Meeting Cumulo.md" and "2024-03-12.md" do."""
    return bool(_YEAR.search(_stem(name)) or not _NO_NAME.fullmatch(_stem(name)))


def _words(text: str) -> set[str]:
    """The words of a title or a name: "ch07_OpenJS" -> {"ch", "7", "open", "js"}."""
    return {word.lstrip("0").casefold() for word in _NAMING.findall(_HUMP.sub(" ", text))}


def markdown_title(text: str, name: str, blocks: tuple[Block, ...], entries: Mapping[str, str]) -> str:
    """The title of a Markdown text in a file of this name, "" if nothing in it looks like one.

    In this order: the front matter's title, or the first heading if it continues that; the first heading of
    level 1 (also in HTML, as in many READMEs), the front matter's label for menus, the first heading, a first
    line that is a paragraph of its own.
    """
    filled = {key.casefold(): value for key, value in entries.items() if value}
    stated = filled.get("title", "")
    outermost = (block for block in blocks if block.kind == "heading" and block.level == 1 and block.title)
    first = next(outermost, None)
    heading = first_heading(text, blocks, name)
    if stated and first and re.match(rf"{re.escape(stated)}\W", heading):
        stated = heading  # which says more, as the abbreviation of a law
    candidates = (
        heading_words(stated) if "[[" in stated else stated,
        _html_heading(text, blocks, before=first.start if first else len(text)),
        heading if first else "",
        next((filled[key] for key in LABELS if filled.get(key)), ""),
        heading,
        _first_line(text, blocks, name),
    )
    return numbered_title(next(filter(None, candidates), ""), filled)


def _html_heading(text: str, blocks: Iterable[Block], before: int) -> str:
    for block in blocks:
        if block.start >= before:
            return ""
        if block.kind == "paragraph" and text[block.start] == "<":
            for match in _H1.finditer(text, block.start, block.end):
                if words := html.unescape(_TITLE_TAG.sub(" ", _ALT.sub(r" \1 ", match[1]))).strip():
                    return words
    return ""


def _first_line(text: str, blocks: tuple[Block, ...], name: str) -> str:
    """The first paragraph if it is one short line that is bold or isn't a sentence, before other text.

    Above headings, or if it isn't bold, it is often a tag or a date. Then a name of the file that says
    something has precedence.
    """
    visible = (block for block in blocks if not text.startswith(("<!--", "[!["), block.start))
    first = next(visible, None)
    if not first or first is blocks[-1] or first.kind != "paragraph" or first.end - first.start > _TITLE_LINE:
        return ""
    line = text[first.start : first.end].lstrip("#")  # "#Title" is how people wrote it before CommonMark
    if bold := BOLD.fullmatch(line):
        title = heading_words(bold[2]).rstrip(":")
        has_precedence = not any(block.kind == "heading" for block in blocks)
    else:
        title = "" if "\n" in line or _NO_TITLE.match(line) else heading_words(line).strip("*_ ")
        has_precedence = False
    return title if has_precedence or not _says_something(name) else ""


def numbered_title(title: str, entries: Mapping[str, str]) -> str:
    """The title of a proposal (PEP, RFC …) with the number that people know it by.

    Example: ("Style Guide", {"pep": "8"}) -> "PEP 8 – Style Guide".
    """
    for key, number in entries.items():
        if _PROPOSAL.fullmatch(key.casefold()) and number.isdecimal() and len(number) < 6:  # noqa: PLR2004
            label = f"{key.upper()} {int(number)}"
            return title if not title or label in title.upper() else f"{label} – {title}"
    return title


def is_title(title: str) -> bool:
    """Whether a title names something, unlike "(anonymous)", "?????" and "***"."""
    letters = title.replace("?", "").strip()
    return len(letters) > title.count("?") and not _NOTHING.fullmatch(title.strip())


def file_title(name: str) -> str:
    """The title of a document without one: the name of its file without suffix, in words.

    Examples: "state_of_the_union.md" -> "state of the union"; "getting-started.md" -> "getting started";
    "ISO-8601 2024-05.txt" -> "ISO-8601 2024-05"; ".profile" -> ".profile". The id that Notion appends is
    removed.
    """
    stem = _stem(name)
    words = stem.replace("_", " ").strip() or stem
    return words.replace("-", " ") if _JOINED.fullmatch(words) else words


def _stem(name: str) -> str:
    return _NOTION.sub("", PurePath(name).stem)


MAX_QUESTION = 300  # characters; a longer question is a text

_KINDS = frozenset({"paragraph", "list", "table"})
_ASKS = re.compile(r"[?\uff1f\u061f][\"'\u201c\u201d\u00bb)*_:]{0,4}\s*\Z")
_WORD = r"[Qq]uestion|[Ff]rage|[Pp]regunta|[Pp]ergunta|[Dd]omanda|[Vv]raag|Вопрос|问题?|問題?|質問"
_MARK = (
    rf"(?:(?P<sure>(?:Q|{_WORD})[ \t]?\d{{0,3}})[ \t]?[:\uff1a]|Q\d{{0,3}}\.|Q\d{{1,3}}[ \t]?[-–—](?=[ \t])"
    r"|[FPDVВ]\d{0,3}[ \t]?:)"
)
_ANSWERED = (
    r"[Aa]nswer|[Aa]ntwort|[Rr]espuesta|[Rr]esposta|[Rr]isposta|[Rr][eé]ponse|[Aa]ntwoord|Ответ|答案?|回答"
)
_ANSWER = (
    r"[ \t]*(?:[-*+][ \t]+)?(?:\*\*|__)?"
    rf"(?:(?:[ARО]|{_ANSWERED})[ \t]?\d{{0,3}}(?:\*\*|__)?[ \t]?[:\uff1a]|A\d{{0,3}}\.)"
)
_QUESTION_LINE = re.compile(
    r"^[ \t]{0,6}(?P<item>(?:[-*+]|\d{1,3}[.)])[ \t]+)?"
    rf"(?:(?P<strong>\*\*|__)?{_MARK}(?:\*\*|__)?[ \t]*(?P<asked>(?:(?!{_ANSWER})[^?\n]{{1,200}}\n){{0,2}}"
    rf"(?!{_ANSWER})[^\n]{{1,{MAX_QUESTION}}}?)(?:\*\*|__)?"
    rf"|(?P<mark>\*{{2,3}}|__)(?=[^\s*])(?P<bold>[^*]{{1,{MAX_QUESTION}}}(?P=mark)[?:]?)"
    rf"|<(?P<tag>b|strong)>(?P<html>[^<>]{{1,{MAX_QUESTION}}})</(?P=tag)>"
    rf"|(?P<term>[^\s:][^\n:]{{1,{MAX_QUESTION}}}\?)(?:::|(?=\n(?: {{2,}}|\t)[ \t]*\S|\n[ \t]{{0,3}}:[ \t]))"
    r")[ \t\\]*$",
    re.MULTILINE,
)
_REPLY = re.compile(rf"\s*{_ANSWER}")
_SUMMARY = re.compile(
    r"(?:<details\b[^<>]{0,300}>\s*)?<summary\b[^<>]{0,300}>(?s:(.{1,1000}?))</summary>", re.IGNORECASE
)
_DETAILS_END = re.compile(r"</details\s*>", re.IGNORECASE)
_INDENTED = re.compile(r"\s*\n(?: {2,}|\t)[ \t]*\S")
_PREFIX = re.compile(rf"(?:[-*+][ \t]+|\d{{1,3}}[.)][ \t]+|\*\*|__)*(?:{_MARK})?")
_STARRED = re.compile(rf"\*[^\s*][^*]{{1,{MAX_QUESTION}}}\*")
_QUESTION_TAG = re.compile(r"<[^<>\n]{1,300}>")
_HINT = re.compile(
    rf"\*\*|__|<b>|<strong>|<summary|\?(?:::|\n[ \t:])|^[-*+\d.) \t]{{0,9}}{_MARK}",
    re.MULTILINE | re.IGNORECASE,
)


class _Question(NamedTuple):
    """A question in a text, or the label of a collapsible piece of a page."""

    start: int
    end: int
    title: str
    is_label: bool = False


def with_questions(
    text: str,
    blocks: Sequence[Block],
    *,
    bold: Collection[int] = (),
    labels: Sequence[int] = (),
    ends: Sequence[int] = (),
) -> tuple[Block, ...]:
    r"""The blocks; questions with an answer below become headings, one level below the heading above.

    `bold` has the starts of bold paragraphs if the text doesn't mark them. `labels` are positions of labels
    of collapsible pieces, `ends` the ends of these pieces, where an empty heading ends the section.
    Example: "**Which key?**\n\nThe red one." -> a heading with the title "Which key?" and a paragraph.
    """
    if not (bold or labels or _HINT.search(text)):  # as most texts ask nothing
        return (*blocks,)
    finder = _Finder(text, frozenset(bold), labels)
    parts = [part for block in blocks for part in finder.parted(block)]
    return tuple(_with_levels(parts, sorted([*ends, *(tag.end() for tag in _DETAILS_END.finditer(text))])))


def starred(text: str, blocks: Iterable[Block]) -> frozenset[int]:
    """The starts of paragraphs that are bold in AsciiDoc and Org: "*Which key?*"."""
    lines = (block.start for block in blocks if _STARRED.fullmatch(text[block.start : block.end]))
    return frozenset(lines)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds questions in the blocks of a text."""

    text: str
    bold: frozenset[int]
    labels: Sequence[int]

    def parted(self, block: Block) -> Iterator[Block | _Question]:
        """A block, or the questions in it and the text between them."""
        at = block.start
        for question in self._questions(block) if block.kind in _KINDS else ():
            if question.start < at:
                continue
            yield from trimmed_block(self.text, block.kind, at, question.start)
            yield question
            at = question.end
        if at == block.start:
            yield block
        else:
            yield from trimmed_block(self.text, block.kind, at, block.end)

    def _questions(self, block: Block) -> list[_Question]:
        part = self.text[block.start : block.end]
        if block.start in self.bold and len(part) <= MAX_QUESTION and _ASKS.search(part):
            return [_Question(block.start, block.end, _title(part))]
        lines = self._marked_questions(block, part)
        if block.kind == "table":  # a record: the lines above its question belong to the question
            first = next((line for line in lines if line.start - block.start < MAX_QUESTION), None)
            is_record = first and not part.startswith("|")
            return [first._replace(start=block.start)] if first and is_record else []
        return sorted([*self._labels(block), *lines], key=lambda line: (line.start, not line.is_label))

    def _labels(self, block: Block) -> Iterator[_Question]:
        """The labels in a block: its part of `labels`, and <summary> in Markdown."""
        inside = slice(bisect_left(self.labels, block.start), bisect_left(self.labels, block.end))
        for label in self.labels[inside]:
            start = max(self.text.rfind("\n", 0, label) + 1, block.start)
            end = self.text.find("\n", label, block.end)
            end = block.end if end < 0 else end
            yield _Question(start, end, _title(self.text[start:end]), is_label=True)
        for summary in _SUMMARY.finditer(self.text, block.start, block.end):
            start = max(self.text.rfind("\n", 0, summary.start()) + 1, block.start)
            words = _QUESTION_TAG.sub(" ", summary[1])
            yield _Question(start, summary.end(), _title(words.strip()), is_label=True)

    def _marked_questions(self, block: Block, part: str) -> Iterator[_Question]:
        """The lines of a block that are bold questions, or marked by "Q:"."""
        is_tight = False
        for line in _QUESTION_LINE.finditer(part):
            start, end = block.start + line.start(), block.start + line.end()
            words = line["asked"] or line["bold"] or line["html"] or line["term"]
            asks = bool(_ASKS.search(words))
            if line["asked"]:
                is_sure = line["sure"] or line["strong"]
                is_question = (asks and bool(is_sure)) or bool(_REPLY.match(self.text, end))
            elif line["item"]:
                is_question = asks and bool(_INDENTED.match(part, line.end()))
            else:
                is_alone = not line.start() or part.endswith("\n\n", 0, line.start())
                is_question = asks and (is_alone or is_tight)
            if is_question and "\n\n" not in words:
                is_tight = is_tight or not line["item"]
                yield _Question(start, end, _title(line[0].strip()))


def _title(line: str) -> str:
    """The words of a question without its marks: "**Q: Which key?**" -> "Which key?"."""
    return heading_words(_PREFIX.sub("", line, count=1)).strip(" \t\n*_:\\")


def _with_levels(parts: Sequence[Block | _Question], ends: Iterable[int]) -> Iterator[Block]:
    """The blocks, with a heading for each question with an answer below."""
    outer, waiting, opened = 0, deque(ends), list[int]()  # level above, ends ahead, levels of open labels
    for part, below in zip(parts, [*parts[1:], None], strict=True):
        closed = 0
        while waiting and waiting[0] <= part.start:
            waiting.popleft()
            closed = opened.pop() if opened else closed
        if closed:  # an empty heading ends the section of a piece, unless a heading of its level follows
            outer = closed - 1
            if isinstance(part, Block) and not 0 < part.level <= closed:
                yield Block("heading", part.start, part.start, closed)
        if isinstance(part, Block):
            outer = part.level if part.kind == "heading" else outer
            yield part
            continue
        if isinstance(below, Block) and below.kind != "heading":
            yield Block("heading", part.start, part.end, outer + 1, title_line(part.title))
        else:
            yield Block("paragraph", part.start, part.end)
        if part.is_label:
            outer += 1
            opened.append(outer)
