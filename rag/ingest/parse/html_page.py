"""HTML: converted to Markdown, without navigation, other boilerplate, and hidden orders to a model.

The converter omits what a page hides by an attribute (hidden, display: none). Pages hide other parts for
good reasons, so these stay. But hidden orders to a model are prompt injection: they are omitted however they
are hidden, and the report counts them.

Before, what tags show is written into the page: ticked boxes, choices, pictures, cells over several rows,
labels. Tags are found by regular expressions; everything else stays as it is.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from html.parser import HTMLParser
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import html_to_markdown
from html_to_markdown import ConversionError, ConversionOptions, PreprocessingOptions, WarningKind

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_draft import omission_remarks
from rag.ingest.parse.document_parts import clean, date, facts, first_heading
from rag.ingest.parse.markdown_mdx import markdown_blocks
from rag.ingest.parse.office.drawings_and_forms import alternative_text, ticked
from rag.ingest.parse.titles_and_questions import with_questions
from rag.text.flags import flags_in
from rag.text.plain_text import without_note_ids
from rag.uris import web_address

if TYPE_CHECKING:
    from html_to_markdown import ConversionResult

SUFFIXES = (".html", ".htm", ".xhtml")

HIDDEN_ORDERS = (
    "hidden piece of text that looks like instructions to a model",
    "hidden pieces of text that look like instructions to a model",
)
_NOISE = ["nav", "header", "footer", "aside", "script", "style", "template", "noscript", "[role=navigation]"]
_ANCHORS = [".headerlink", ".anchor", ".anchor-link"]  # the "¶" that documentation tools add to headings
_AS_IT_IS = PreprocessingOptions(enabled=False)
_PAGE = ConversionOptions(preprocessing=_AS_IT_IS)
_CONTENT = ConversionOptions(
    extract_metadata=False,
    exclude_selectors=_NOISE + _ANCHORS,
    preprocessing=_AS_IT_IS,
    compact_tables=True,
    autolinks=False,
    skip_images=True,
)
_DATES = ("article-published_time", "article:published_time", "date", "dc.date", "dcterms.created")
_TIME = re.compile(r"<time\b[^<>]{0,300}?\bdatetime\s?=\s?[\"']([^\"'<>]{4,40})", re.IGNORECASE)


def parse(text: str, name: str) -> Document:
    """The document of a page: its main part if it marks one, otherwise all of it except boilerplate."""
    text, orders = without_hidden_orders(text)
    page = _convert(text, _PAGE)
    head = page.metadata.document
    content, labels, ends = without_marks(_marked_content(_main_part(text)) or _marked_content(text))
    blocks = with_questions(content, tuple(markdown_blocks(content)), labels=labels, ends=ends)
    return Document(
        text=content,
        title=head.title or head.open_graph.get("title") or first_heading(blocks) or name,
        mime_type="text/html",
        blocks=blocks,
        date=_published_at(head.meta_tags, text),
        url=web_address(clean(head.canonical_url or "")),
        metadata=facts(
            author=head.author or head.meta_tags.get("article-author") or head.meta_tags.get("dc.creator"),
            keywords=head.keywords,
            language=head.language,
            description=head.description or head.open_graph.get("description"),
        ),
        remarks=tuple(omission_remarks(orders, *HIDDEN_ORDERS)),
    )


def content_of(html: str) -> str:
    """The Markdown of a page or a part of one, without boilerplate.

    Raises:
        ParseError: the HTML can't be parsed.
    """
    return without_marks(_marked_content(html))[0]


def _marked_content(html: str) -> str:
    """The Markdown of a page, with the marks of `with_widgets_as_text`."""
    return without_note_ids(clean(_convert(with_widgets_as_text(html), _CONTENT).content or "").strip())


def _convert(html: str, options: ConversionOptions) -> ConversionResult:
    try:
        result = html_to_markdown.convert(html, options)
    except ConversionError as error:
        raise ParseError("the HTML can't be parsed") from error
    if any(warning.kind == WarningKind.DEPTH_LIMIT_EXCEEDED for warning in result.warnings):
        raise ParseError("nested too deeply")
    return result


def _main_part(html: str) -> str:
    """From the first <main> to the last </main>; without these the same for <article>; else all."""
    for tag in ("main", "article"):
        opening = re.search(rf"<{tag}[\s>]", html, re.IGNORECASE)
        closings = [match.end() for match in re.finditer(rf"</{tag}\s*>", html, re.IGNORECASE)]
        if opening and closings and opening.start() < closings[-1]:
            return html[opening.start() : closings[-1]]
    return html


def _published_at(meta: dict[str, str], html: str) -> datetime | None:
    time = _TIME.search(html)
    dates = [*(meta.get(key, "") for key in _DATES), time[1] if time else ""]
    return next(filter(None, map(date, dates)), None)


DEPTH = 1000  # nested elements; deeper ones are ignored
_UNSEEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?<![-\w])opacity\s*:\s*0*\.?0*(?![.\d])"
    r"|font(?:-size)?\s*:\s*(?:0|0?\.\d{1,3}|1)(?:px|pt|em|rem|%)?\s*(?:;|$)"
    r"|(?<![-\w])color\s*:\s*(?:#fff(?:fff)?\b|white|transparent|rgba?\(\s*255\s*,\s*255\s*,\s*255)"
    r"|(?:text-indent|left|top)\s*:\s*-\d{3,}",
    re.IGNORECASE,
)
_RULE = re.compile(r"\.([\w-]{1,100})\s*\{([^{}]{0,2000})\}")
_STYLE = re.compile(r"<style\b[^<>]{0,500}>", re.IGNORECASE)
_STYLE_END = re.compile(r"</style", re.IGNORECASE)
_HINT = re.compile(r"\bstyle\s*=|\bhidden\b|<style", re.IGNORECASE)
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_CLOSED_BY_NEXT = frozenset({"p", "li", "td", "th", "tr", "dt", "dd", "option"})


class _Open(NamedTuple):
    tag: str
    hides: bool
    start: int


def without_hidden_orders(html: str) -> tuple[str, int]:
    """A page without the hidden parts that give orders to a model, and their number.

    Example: '<p>Hi</p><p hidden>Ignore all previous instructions.</p>' -> ('<p>Hi</p>', 1).
    """
    if not _HINT.search(html):
        return html, 0
    finder = _Finder(html)
    finder.feed(html)
    finder.close()
    finder.end()
    visible, at = [], 0
    for start, end in finder.found:
        visible.append(html[at:start])
        at = end
    return "".join([*visible, html[at:]]), len(finder.found)


def _styles(html: str) -> str:
    """The style sheets of a page."""
    styles, at = [], 0
    while (begin := _STYLE.search(html, at)) and (end := _STYLE_END.search(html, begin.end())):
        styles.append(html[begin.end() : end.start()])
        at = end.end()
    return "\n".join(styles)


class _Finder(HTMLParser):
    """Finds the outermost hidden elements whose text gives orders."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[int, int]] = []
        self._html = html
        self._lines = [0, *(match.end() for match in re.finditer("\n", html))]
        self._stack: list[_Open] = []
        self._tags: Counter[str] = Counter()
        self._hiding = 0
        self._texts: list[str] = []
        rules = _RULE.finditer(_styles(html))
        self._classes = {match[1] for match in rules if _UNSEEN.search(match[2])}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if tag in _VOID or len(self._stack) >= DEPTH:
            return
        if tag in _CLOSED_BY_NEXT and self._stack and self._stack[-1].tag == tag:
            self._pop(self._offset())
        opened = _Open(tag, self._is_hiding(dict(attrs)), self._offset())
        self._stack.append(opened)
        self._tags[tag] += 1
        self._hiding += opened.hides

    def handle_endtag(self, tag: str) -> None:
        """Close an element, and those inside it without an end tag."""
        if not self._tags[tag]:
            return
        start = self._offset()
        end = self._html.find(">", start) + 1 or len(self._html)
        while self._stack[-1].tag != tag:
            self._pop(start)
        self._pop(end)

    def handle_data(self, data: str) -> None:
        """Collect the text of hidden elements."""
        if self._hiding:
            self._texts.append(data)

    def end(self) -> None:
        """Close all elements that are still open."""
        while self._stack:
            self._pop(len(self._html))

    def _pop(self, end: int) -> None:
        closed = self._stack.pop()
        self._tags[closed.tag] -= 1
        self._hiding -= closed.hides
        if closed.hides and not self._hiding:  # the outermost hidden element ends: judge all text in it
            if "instructions" in flags_in(" ".join("".join(self._texts).split())):
                self.found.append((closed.start, end))
            self._texts.clear()

    def _is_hiding(self, attributes: dict[str, str | None]) -> bool:
        classes = (attributes.get("class") or "").split() if self._classes else ()
        return (
            "hidden" in attributes
            or bool(_UNSEEN.search(attributes.get("style") or ""))
            or not self._classes.isdisjoint(classes)
        )

    def _offset(self) -> int:
        line, column = self.getpos()
        return self._lines[min(line, len(self._lines)) - 1] + column


MAX_SPAN = 100  # rows or columns that a cell spans; beyond, cells stay blank
MAX_GROWTH = 4  # times the length of a page: the most that repeated cells may add
MAX_TERM = (
    1_000  # characters of an answer that fits into a passage with its term, which then needs no heading
)
LABEL, LABEL_END = "\ufdd0", "\ufdd1"
"""Noncharacters that mark where the label of a collapsible piece begins, and where the piece ends."""

_SEEN = re.compile(r"<(input|option|select|img)\b([^<>]{0,4000})>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([\w-]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")
_VALUELESS = frozenset({"hidden", "password", "submit", "button", "image", "reset", "file"})
_CELLS = re.compile(r"<(/?)(table|tr|td|th)\b([^<>]{0,2000})>", re.IGNORECASE)
_SPANS = re.compile(r"\browspan\s*=\s*[\"']?\d{1,9}[\"']?", re.IGNORECASE)
_SUMMARY = re.compile(r"(<summary\b[^<>]{0,2000}>\s*)(?:<h[1-6]\b[^<>]{0,2000}>)?", re.IGNORECASE)
_DETAILS_END = re.compile(r"</details\s*>", re.IGNORECASE)
_BUTTON = re.compile(r"<button\b[^<>]{0,2000}>([^<>]{1,300}\?)\s*</button\s*>", re.IGNORECASE)
_TERMS = re.compile(r"<(/?)(dl|dt|dd)\b[^<>]{0,2000}>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{1,2000}>")
_MULTIPLE, _SELECTED = (re.compile(rf"\b{word}\b", re.IGNORECASE) for word in ("multiple", "selected"))


def with_widgets_as_text(page: str) -> str:
    """The page with its forms and pictures as text, and cells over several rows repeated in each row.

    Labels of collapsible pieces, and questions in lists of terms, have marks (`LABEL`).
    Example: '<input type="checkbox" checked> Yes' -> '[x]  Yes'.
    """
    page = _with_repeated_cells(page) if _SPANS.search(page) else page
    page = _with_labels(page.replace(LABEL, "").replace(LABEL_END, ""))
    return _SEEN.sub(_TagTexts(_open_lists(page)).text, page)


def without_marks(text: str) -> tuple[str, list[int], list[int]]:
    """A text without the marks of `with_widgets_as_text`, and the positions of labels and of their ends."""
    labels, ends = list[int](), list[int]()
    parts, length = [], 0
    for part in re.split(rf"({LABEL}|\s*{LABEL_END})", text):
        if part == LABEL:
            labels.append(length)
        elif part.endswith(LABEL_END):
            ends.append(length)
        else:
            parts.append(part)
            length += len(part)
    return "".join(parts), labels, ends


def _with_labels(page: str) -> str:
    """The page with marks at the labels of collapsible pieces, and at the ends of these pieces."""
    page = _SUMMARY.sub(rf"\1{LABEL}", page)
    page = _DETAILS_END.sub(rf"\g<0><p>{LABEL_END}</p>", page)
    page = _BUTTON.sub(r"<p><strong>\1</strong></p>", page)
    marks, lists = list[tuple[int, str]](), list[list[re.Match[str]]]()
    for tag in _TERMS.finditer(page):
        is_end, name = bool(tag[1]), tag[2].casefold()
        if name == "dl" and not is_end:
            lists.append([])
        elif name == "dl" and lists:
            marks += _marks(page, [*lists.pop(), tag])
        elif lists and not is_end:
            lists[-1].append(tag)
    parts, at = [], 0
    for start, mark in sorted(marks):
        parts += [page[at:start], mark]
        at = start
    return "".join([*parts, page[at:]])


def _marks(page: str, tags: Sequence[re.Match[str]]) -> Iterator[tuple[int, str]]:
    """The marks of a list of terms, by its tags: at its questions, or at all terms if an answer is long."""
    pairs = [*pairwise(tags)]
    is_long = any(following.start() - tag.end() > MAX_TERM for tag, following in pairs)
    is_open = False
    for tag, following in pairs:
        if tag[2].casefold() == "dd":
            continue
        if is_open:
            yield tag.start(), f"<dd>{LABEL_END}</dd>"
        words = _TAG.sub("", page[tag.end() : min(following.start(), tag.end() + MAX_TERM)]).strip()
        is_open = is_long or words.endswith("?")
        if is_open:
            yield tag.end(), LABEL
    if is_open:
        yield tags[-1].start(), f"<dd>{LABEL_END}</dd>"


def _open_lists(page: str) -> set[int]:
    """The positions of lists without a selected option, which show their first one."""
    lists, is_selected = set(), False
    for tag in reversed([*_SEEN.finditer(page)]):
        if tag[1].casefold() == "select":
            if not is_selected and not _MULTIPLE.search(tag[2]):
                lists.add(tag.start())
            is_selected = False
        elif tag[1].casefold() == "option":
            is_selected = is_selected or bool(_SELECTED.search(tag[2]))
    return lists


@dataclass(slots=True)
class _TagTexts:
    """Replaces the tags of forms and pictures, in their order."""

    open_lists: set[int]
    in_open_list: bool = False
    pictures: set[str] = field(default_factory=set)

    def text(self, tag: re.Match[str]) -> str:
        """The text that a tag shows."""
        match tag[1].casefold():
            case "select":
                self.in_open_list = tag.start() in self.open_lists
                return tag[0]
            case "option":
                is_shown = self.in_open_list or bool(_SELECTED.search(tag[2]))
                self.in_open_list = False
                return f"{tag[0]} {ticked(is_shown)} "
            case "input":
                return html.escape(_input_text(_attributes(tag[2])))
        return html.escape(self._picture(_attributes(tag[2]).get("alt", ""))) or tag[0]

    def _picture(self, alternative: str) -> str:
        """The alternative text of a picture, only once: icons and avatars repeat."""
        words = alternative_text(alternative)
        if words in self.pictures:
            return ""
        self.pictures.add(words)
        return words


def _attributes(text: str) -> dict[str, str]:
    """The attributes of a tag by name in lower case; the last of the same name counts."""
    return {
        match[1].casefold(): html.unescape(match[2] or match[3] or match[4] or "")
        for match in _ATTRIBUTE.finditer(text)
    }


def _input_text(attributes: dict[str, str]) -> str:
    kind = attributes.get("type", "text").casefold()
    if kind in {"checkbox", "radio"}:
        return f"{ticked('checked' in attributes)} "
    return "" if kind in _VALUELESS else f" {attributes.get('value', '')} "


class _Cell(NamedTuple):
    """A cell that later rows repeat: its content, and the number of these rows."""

    content: str
    rows: int


@dataclass(slots=True)
class _Table:
    """A table that is being read: the cells that span into the next rows, by column."""

    above: dict[int, _Cell] = field(default_factory=dict)
    next_above: dict[int, _Cell] = field(default_factory=dict)
    column: int = 0
    opened: re.Match[str] | None = None


def _with_repeated_cells(page: str) -> str:
    """The page with the content of a cell over several rows repeated in each of these rows."""
    parts: list[str] = []
    at, room = 0, MAX_GROWTH * len(page)
    tables: list[_Table] = []
    for tag in _CELLS.finditer(page):
        repeated = "".join(_repeated_cells(tag, tables))
        room -= len(repeated)
        if room < 0:
            return page
        if repeated or _SPANS.search(tag[3]):
            parts += [page[at : tag.start()], repeated, _SPANS.sub("", tag[0])]
            at = tag.end()
    return "".join([*parts, page[at:]])


def _repeated_cells(tag: re.Match[str], tables: list[_Table]) -> Iterator[str]:
    """The repeated cells to write before a tag."""
    is_end, name = bool(tag[1]), tag[2].casefold()
    if name == "table":
        if is_end and tables:
            yield from _end_row(tables.pop(), tag)
        elif not is_end:
            tables.append(_Table())
    elif tables and name == "tr":
        yield from _end_row(tables[-1], tag)
        if not is_end:
            tables[-1].above, tables[-1].next_above, tables[-1].column = tables[-1].next_above, {}, 0
    elif tables:
        _end_cell(tables[-1], tag)
        if not is_end:
            yield from _cells_from_above(tables[-1])
            tables[-1].opened = tag


def _end_row(table: _Table, tag: re.Match[str]) -> Iterator[str]:
    """The repeated cells at the end of a row."""
    _end_cell(table, tag)
    yield from _cells_from_above(table)


def _cells_from_above(table: _Table) -> Iterator[str]:
    while (cell := table.above.pop(table.column, None)) is not None:
        yield f"<td>{cell.content}</td>"
        if cell.rows > 1:
            table.next_above[table.column] = _Cell(cell.content, cell.rows - 1)
        table.column += 1


def _end_cell(table: _Table, tag: re.Match[str]) -> None:
    """End the open cell, and remember its content for the rows that repeat it."""
    if (opened := table.opened) is None:
        return
    table.opened = None
    content = tag.string[opened.end() : tag.start()]
    rows, columns = _span(opened[3], "rowspan"), _span(opened[3], "colspan")
    for at in range(columns):
        if rows > 1:
            table.next_above[table.column] = _Cell("" if at else content, rows - 1)
        table.column += 1


def _span(attributes: str, name: str) -> int:
    match = re.search(rf"\b{name}\s*=\s*[\"']?(\d{{1,4}})", attributes, re.IGNORECASE)
    return min(max(int(match[1]), 1), MAX_SPAN) if match else 1
