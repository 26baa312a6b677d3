"""Questions with answers: a question heads all passages of its answer, as a heading does.

People write them as bold lines, as "Q:" and "A:", or as labels that open a piece of a page.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rag.corpus import Block
from rag.ingest.parse.blocks import block as trimmed_block
from rag.ingest.parse.blocks import title_line
from rag.ingest.parse.titles import heading_words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

MAX_QUESTION = 300  # characters: what is longer is a text that asks something

_KINDS = frozenset({"paragraph", "list", "table"})
_ASKS = re.compile(r"[?\uff1f\u061f][\"'\u201c\u201d\u00bb)*_:]{0,4}\s*\Z")
_WORD = r"[Qq]uestion|[Ff]rage|[Pp]regunta|[Pp]ergunta|[Dd]omanda|[Vv]raag|Вопрос|问题?|問題?|質問"
_MARK = rf"(?:(?P<sure>(?:Q|{_WORD})[ \t]?\d{{0,3}})[ \t]?[:\uff1a]|Q\d{{0,3}}\.|[FPDVВ]\d{{0,3}}[ \t]?:)"
_ANSWERED = (
    r"[Aa]nswer|[Aa]ntwort|[Rr]espuesta|[Rr]esposta|[Rr]isposta|[Rr][eé]ponse|[Aa]ntwoord|Ответ|答案?|回答"
)
_ANSWER = (
    r"[ \t]*(?:[-*+][ \t]+)?(?:\*\*|__)?"
    rf"(?:(?:[ARО]|{_ANSWERED})[ \t]?\d{{0,3}}(?:\*\*|__)?[ \t]?[:\uff1a]|A\d{{0,3}}\.)"
)
_LINE = re.compile(
    r"^[ \t]{0,6}(?P<item>(?:[-*+]|\d{1,3}[.)])[ \t]+)?"
    rf"(?:(?:\*\*|__)?{_MARK}(?:\*\*|__)?[ \t]*(?P<asked>(?:(?!{_ANSWER})[^?\n]{{1,200}}\n){{0,2}}"
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
_TAG = re.compile(r"<[^<>\n]{1,300}>")
_HINT = re.compile(
    rf"\*\*|__|<b>|<strong>|<summary|\?(?:::|\n[ \t:])|^[-*+\d.) \t]{{0,9}}{_MARK}",
    re.MULTILINE | re.IGNORECASE,
)


class _Question(NamedTuple):
    """A question in a text; a `label` opens a piece of a page, which has an end."""

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
    r"""The blocks; questions that an answer follows are headings, one level below the heading above them.

    `bold` holds the starts of bold paragraphs, where the text doesn't show that they are. At `labels` lines
    begin that open a piece of a page, whatever they say, and at `ends` these pieces end. Where one ends, an
    empty heading ends its section.
    Example: "**Which key?**\n\nThe red one." -> a heading with the title "Which key?" and a paragraph.
    """
    if not (bold or labels or _HINT.search(text)):
        return (*blocks,)
    finder = _Finder(text, frozenset(bold), labels)
    parts = [part for block in blocks for part in finder.parted(block)]
    return tuple(_levelled(parts, sorted([*ends, *(tag.end() for tag in _DETAILS_END.finditer(text))])))


def starred(text: str, blocks: Iterable[Block]) -> frozenset[int]:
    """Where paragraphs begin that AsciiDoc and Org show in bold letters: "*Which key?*"."""
    lines = (block.start for block in blocks if _STARRED.fullmatch(text[block.start : block.end]))
    return frozenset(lines)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds questions in the blocks of a text."""

    text: str
    bold: frozenset[int]
    labels: Sequence[int]

    def parted(self, block: Block) -> Iterator[Block | _Question]:
        """A block, or the questions in it and what is between them."""
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
        lines = self._marked(block, part)
        if block.kind == "table":  # a record: what stands above its question belongs to it
            first = next((line for line in lines if line.start - block.start < MAX_QUESTION), None)
            is_record = first and not part.startswith("|")
            return [first._replace(start=block.start)] if first and is_record else []
        return sorted([*self._labelled(block), *lines], key=lambda line: (line.start, not line.is_label))

    def _labelled(self, block: Block) -> Iterator[_Question]:
        """The labels in a block: those of `labels`, and the summaries of Markdown."""
        inside = slice(bisect_left(self.labels, block.start), bisect_left(self.labels, block.end))
        for label in self.labels[inside]:
            start = max(self.text.rfind("\n", 0, label) + 1, block.start)
            end = self.text.find("\n", label, block.end)
            end = block.end if end < 0 else end
            yield _Question(start, end, _title(self.text[start:end]), is_label=True)
        for summary in _SUMMARY.finditer(self.text, block.start, block.end):
            start = max(self.text.rfind("\n", 0, summary.start()) + 1, block.start)
            words = _TAG.sub(" ", summary[1])
            yield _Question(start, summary.end(), _title(words.strip()), is_label=True)

    def _marked(self, block: Block, part: str) -> Iterator[_Question]:
        """The lines of a block that are marked as a question: by bold letters, or by "Q:"."""
        is_tight = False
        for line in _LINE.finditer(part):
            start, end = block.start + line.start(), block.start + line.end()
            words = line["asked"] or line["bold"] or line["html"] or line["term"]
            asks = bool(_ASKS.search(words))
            if line["asked"]:
                is_question = (asks and bool(line["sure"])) or bool(_REPLY.match(self.text, end))
            elif line["item"]:
                is_question = asks and bool(_INDENTED.match(part, line.end()))
            else:
                is_alone = not line.start() or part.endswith("\n\n", 0, line.start())
                is_question = asks and (is_alone or is_tight)
            if is_question and "\n\n" not in words:
                is_tight = is_tight or not line["item"]
                yield _Question(start, end, _title(line[0].strip()))


def _title(line: str) -> str:
    """What a question says, without its marks: "**Q: Which key?**" -> "Which key?"."""
    return heading_words(_PREFIX.sub("", line, count=1)).strip(" \t\n*_:\\")


def _levelled(parts: Sequence[Block | _Question], ends: Iterable[int]) -> Iterator[Block]:
    """The blocks, with a heading for each question that an answer follows."""
    outer, waiting, opened = 0, deque(ends), list[int]()
    for part, below in zip(parts, [*parts[1:], None], strict=True):
        closed = 0
        while waiting and waiting[0] <= part.start:
            waiting.popleft()
            closed = opened.pop() if opened else closed
        if closed:
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
