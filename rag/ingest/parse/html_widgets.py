"""What tags of a page show, written into the page before its conversion.

These are ticked boxes, choices, pictures, cells over several rows, labels; and tables that hold blocks, or
number lines. Tags are found by regular expressions; everything else stays as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from rag.errors import ParseError
from rag.ingest.parse.document_parts import ORDERS, MergedCells, alternative_text, numeral
from rag.ingest.parse.formulas import mathml_text, tex_of
from rag.ingest.parse.typefaces import SUB, SUB_END, SUP, SUP_END, ticked
from rag.ingest.parse.xml_text import xml_tree
from rag.ingest.parse.zip_package import whole_number
from rag.text.plain_text import with_replacements

MAX_GROWTH = 4  # times the length of a page: the most that repeated cells may add
MAX_TERM = 1_000  # characters of an answer that fits into a passage with its term: no heading is needed
LABEL, LABEL_END = "\ufdd0", "\ufdd1"
"""Noncharacters that mark where the label of a collapsible piece begins, and where the piece ends."""
NO_MARK = "\ufdd6"
"""A noncharacter in what the converter would escape otherwise: labels of items, and texts that look so."""

_LIKE_MARKS = re.compile(
    r"(?<=>)(?:\s|&nbsp;)*(?:\d{1,9}(?=[.)])|(?=[-+*][\s&]|&gt;))|(?<=\\)(?![^<>]{0,500}>)"
)
"""Where a text begins as an item or a quote does ("1. The board"), and behind a backslash outside of tags."""
_MARKS = re.compile("[\ufdd0-\ufddf]")
_SEEN = re.compile(r"<(input|option|select|img)\b([^<>]{0,4000})>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([\w-]+)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+)))?""")
_VALUELESS = frozenset({"hidden", "password", "submit", "button", "image", "reset", "file"})
_TICKS = re.compile(
    r"<(?!input\b)(?P<tag>[a-z][\w-]*+)(?P<attributes>[^<>]{0,2000}?(?:\bcheckbox-(?:on|off)\b|\baria-checked\b"
    r"|\bdata-(?:inline-task-id|checked|list|task-state|tag)\b)[^<>]{0,2000})>(?P<end>\s*</(?P=tag)\s*>)?",
    re.IGNORECASE,
)
_TICKED_ROLES = frozenset({"checkbox", "switch", "radio", "menuitemcheckbox", "menuitemradio"})
_STATES = {
    **dict.fromkeys(("true", "checked", "done", "to-do:completed"), True),
    **dict.fromkeys(("false", "unchecked", "todo", "to-do"), False),
}
_HAS_INPUT = re.compile(r"(?:\s|<(?!input\b)[^<>]{1,500}>){0,10}<input\b", re.IGNORECASE)
_CHIP = r"(?:[\w-]*(?:selected-value|badge|chip|label|lozenge|pill)|tag)(?![\w-])"
_CHIPS = re.compile(
    rf"(<(?P<tag>span|a)\b[^<>]{{0,500}}?\bclass\s?=\s?[\"'](?P<chip>{_CHIP})[^<>]{{0,500}}>[^<>]{{1,200}}</(?P=tag)>)"
    r"(?=<(?P=tag)\b[^<>]{0,500}?\bclass\s?=\s?[\"'](?P=chip)(?![\w-]))",
    re.IGNORECASE,
)
_CELLS = re.compile(r"<(/?)(table|tr|td|th)\b([^<>]{0,2000})>", re.IGNORECASE)
_SPANS = re.compile(r"\browspan\s*=\s*[\"']?\d{1,9}[\"']?", re.IGNORECASE)
_SUMMARY = re.compile(r"(<summary\b[^<>]{0,2000}>\s*)(?:<h[1-6]\b[^<>]{0,2000}>)?", re.IGNORECASE)
_DETAILS_END = re.compile(r"</details\s*>", re.IGNORECASE)
_DIV = re.compile(r"<(/?)div\b([^<>]{0,2000})>", re.IGNORECASE)
_EXPANDER = re.compile(r"""\bclass\s?=\s?["'](?:[^"'<>]*\s)?expand-con(?:(?P<box>tainer)|trol)(?![\w-])""")
_PAGE_SECTION = re.compile(
    r"""<h2(\b[^<>]{0,500}\bclass\s?=\s?["']pageSectionTitle["'][^<>]{0,500}>[^<>]{0,500}</)h2>"""
)
_BUTTON = re.compile(r"<button\b[^<>]{0,2000}>([^<>]{1,300}\?)\s*</button\s*>", re.IGNORECASE)
_TERMS = re.compile(r"<(/?)(dl|dt|dd)\b[^<>]{0,2000}>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{1,2000}>")
_MATH = re.compile(
    r"<(?P<prefix>(?:\w+:)?)math\b[^<>]*>(?:[^<]|<(?!/?(?:\w+:)?math\b))*+</(?P=prefix)math\s*>",
    re.IGNORECASE,
)
_PREFIX = re.compile(r"(</?)\w+:(?=\w)")
_PREFIXED_ATTRIBUTE = re.compile(r"""\s[\w-]+:[\w-]+\s?=\s?(?:"[^"<>]*"|'[^'<>]*')""")
_ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)[A-Za-z]\w*;")
_SCRIPTS = re.compile(r"<(/?)(sup|sub)\b[^<>]{0,2000}>", re.IGNORECASE)
_RAISED = re.compile(
    r"(<span\b[^<>]{0,2000}?\bvertical-align\s?:\s?(super|sub)\b[^<>]{0,2000}>)([^<>]{1,300})(?=</span)",
    re.IGNORECASE,
)
_STRUCK_SPAN = re.compile(
    r"(<span\b[^<>]{0,2000}?\btext-decoration(?:-line)?\s?:\s?line-through\b[^<>]{0,2000}>)([^<>]{1,300})(?=</span)",
    re.IGNORECASE,
)
_SCRIPT_MARKS = {"sup": (SUP, SUP_END), "super": (SUP, SUP_END), "sub": (SUB, SUB_END)}
_FORMULA = re.compile(r"(?:^|\s)(?:mwe-math-fallback-image|math|latex|tex)(?:-\w+)?(?:\s|$)")
_AROUND = 500  # characters before a picture
_INLINE = r"(?:\s|</?(?:a|span|b|strong|picture|source|noscript)\b[^<>]{0,300}>)*"
_BLOCK = r"</?(?:div|p|figure|section|article|header|body|main|aside|h[1-6]|ul|ol|table)\b[^<>]{0,300}"
_BLOCK_BEFORE = re.compile(rf"(?:^|{_BLOCK}>){_INLINE}\Z", re.IGNORECASE)
_BLOCK_BEHIND = re.compile(rf"{_INLINE}+(?:\Z|{_BLOCK})", re.IGNORECASE)
_LIST_TAGS = re.compile(r"<(/?)(ol|ul|li)\b([^<>]{0,2000})>", re.IGNORECASE)
_SPECIAL = re.compile(r"\breversed\b|\btype\s?=\s?[\"']?[aAiI]\b")
_SPECIAL_LIST = re.compile(
    rf"<ol\b[^<>]{{0,2000}}?(?:{_SPECIAL.pattern})|<li\b[^<>]{{0,2000}}?\bvalue\s?=", re.IGNORECASE
)
_HEADED = re.compile(r"(?:\s|<(?!h[1-6]\b|/li\b)[^<>]{0,2000}>){0,40}<h[1-6]\b[^<>]{0,2000}>", re.IGNORECASE)
_HEADED_ITEM = re.compile(rf"<li\b[^<>]{{0,2000}}>{_HEADED.pattern}", re.IGNORECASE)
_MULTIPLE, _SELECTED = (re.compile(rf"\b{word}\b", re.IGNORECASE) for word in ("multiple", "selected"))


def with_widgets_as_text(page: str) -> str:
    """The page with its forms and pictures as text, and cells over several rows repeated in each row.

    Labels of collapsible pieces, and questions in lists of terms, have marks (`LABEL`), and so have
    superscripts and subscripts.
    Example: '<input type="checkbox" checked> Yes' -> '[x]  Yes'.
    """
    page = _TICKS.sub(_tick, _CHIPS.sub(r"\1, ", page))
    page = _with_repeated_cells(page) if _SPANS.search(page) else page
    page = with_list_labels(_with_labels(_with_script_marks(_MARKS.sub("", page))))
    return _LIKE_MARKS.sub(rf"\g<0>{NO_MARK}", _SEEN.sub(_TagTexts().text, page))


def _tick(tag: re.Match[str]) -> str:
    """A tag with a checkbox behind it if it is ticked or not; an empty one as a checkbox."""
    state = _state(_attributes(tag["attributes"]))
    if state is None or _HAS_INPUT.match(tag.string, tag.end()):
        return tag[0]
    is_shown = tag["end"] and tag["tag"].casefold() not in {"li", "td"}
    opening, end = ("", "") if is_shown else (tag[0].removesuffix(tag["end"] or ""), tag["end"] or "")
    return f"{opening}{ticked(state)} {end}"


def _state(attributes: dict[str, str]) -> bool | None:
    """Whether an element is ticked, as it states for Notion, Confluence, ARIA, Quill or OneNote."""
    classes = attributes.get("class", "").split()
    if "checkbox-on" in classes or "checkbox-off" in classes:
        return "checkbox-on" in classes
    if "data-inline-task-id" in attributes:
        return "checked" in classes
    if attributes.get("role") in _TICKED_ROLES:
        return attributes.get("aria-checked") == "true"
    stated = (
        attributes.get(key, "").casefold()
        for key in ("data-checked", "data-list", "data-task-state", "data-tag")
    )
    return next((_STATES[state] for state in stated if state in _STATES), None)


def with_formulas(page: str) -> str:
    """The page with its MathML as text; what isn't well-formed stays."""
    return _MATH.sub(_formula, page) if "math" in page else page


def _formula(match: re.Match[str]) -> str:
    try:
        markup = _PREFIXED_ATTRIBUTE.sub("", _PREFIX.sub(r"\1", match[0]))
        text = mathml_text(xml_tree(_ENTITY.sub(lambda entity: html.unescape(entity[0]), markup)))
    except ParseError:
        return match[0]
    return html.escape(text, quote=False)


def _with_script_marks(page: str) -> str:
    """The page with marks inside its superscripts and subscripts, and with <s> where a style strikes out."""

    def marked(tag: re.Match[str]) -> str:
        start, end = _SCRIPT_MARKS[tag[2].casefold()]
        return end + tag[0] if tag[1] else tag[0] + start

    def marked_span(span: re.Match[str]) -> str:
        start, end = _SCRIPT_MARKS[span[2].casefold()]
        return f"{span[1]}{start}{span[3]}{end}"

    page = _STRUCK_SPAN.sub(r"\1<s>\2</s>", page) if "line-through" in page else page
    return _RAISED.sub(marked_span, _SCRIPTS.sub(marked, page))


def with_list_labels(page: str) -> str:
    """The page with the labels of lists that Markdown can't number: letters, set numbers, reversed ones.

    A list whose items all begin with headings becomes sections, with its numbers.
    Example: '<ol type="a"><li>x</ol>' -> '<ul><li>a. x</ul>'; '<ol><li><h2>x</h2></ol>' -> '<h2>1. x</h2>'.
    """
    if not _SPECIAL_LIST.search(page) and not _HEADED_ITEM.search(page):
        return page
    texts: dict[tuple[int, int], str] = {}
    for tags in _lists(page):
        texts |= _list_texts(tags, page)
    return with_replacements(page, ((*span, text) for span, text in sorted(texts.items())))


def _list_texts(tags: Sequence[re.Match[str]], page: str) -> dict[tuple[int, int], str]:
    """What stands in the place of the tags of a list, and its labels, where it is one of those."""
    texts: dict[tuple[int, int], str] = {}
    opening, items = tags[0], [tag for tag in tags if tag[2].casefold() == "li" and not tag[1]]
    about = [_attributes(item[3]) for item in items]
    is_special = _SPECIAL.search(opening[3]) or any("value" in attributes for attributes in about)
    is_numbered = opening[2].casefold() == "ol"
    ends = [heading.end() for item in items if (heading := _HEADED.match(page, item.end()))]
    if has_sections := bool(items) and len(ends) == len(items):
        texts |= {tag.span(): "" for tag in tags}
    elif is_special and is_numbered:
        texts |= {tag.span(): f"<{tag[1]}ul>" for tag in tags if tag[2].casefold() != "li"}
        ends = [item.end() for item in items]
    if is_numbered and (has_sections or is_special):
        labels = _item_labels(_attributes(opening[3]), about)
        texts |= {(end, end): f"{label} " for end, label in zip(ends, labels, strict=True)}
    return texts


def _lists(page: str) -> list[list[re.Match[str]]]:
    """The lists of a page, each as the tags that open and close it and its items, if there are such."""
    lists: list[list[re.Match[str]]] = []
    opened: list[list[re.Match[str]]] = []
    for tag in _LIST_TAGS.finditer(page):
        is_item, is_end = tag[2].casefold() == "li", bool(tag[1])
        if not is_item and not is_end:
            lists.append([tag])
            opened.append(lists[-1])
        elif opened:
            opened[-1].append(tag)
            if is_end and not is_item:
                opened.pop()
    return lists


def _item_labels(attributes: dict[str, str], items: Sequence[dict[str, str]]) -> Iterator[str]:
    is_reversed = "reversed" in attributes
    number = whole_number(attributes.get("start", ""), len(items) if is_reversed else 1)
    for item in items:
        number = whole_number(item.get("value", ""), number)
        yield f"{numeral(number, attributes.get('type', ''))}."
        number += -1 if is_reversed else 1


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
    page = _SUMMARY.sub(rf"\1{LABEL}", _with_tags_of_html(page))
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
    return with_replacements(page, ((at, at, mark) for at, mark in sorted(marks)))


def _with_tags_of_html(page: str) -> str:
    """The page of Confluence with its expanders as <details>, and what is below its text as sections of it.

    Example: '<div class="expand-container"><div class="expand-control">A</div>b</div>' ->
    '<details><summary>A</summary>b</details>'.
    """
    page = _PAGE_SECTION.sub(r"<h1\1h1>", page)
    if "expand-container" not in page:
        return page
    tags: list[tuple[int, int, str]] = []
    opened: list[str] = []  # the name that each open <div> has now
    for tag in _DIV.finditer(page):
        if tag[1]:
            name = opened.pop() if opened else ""
        else:
            expander = _EXPANDER.search(tag[2])
            name = "" if not expander else "details" if expander["box"] else "summary"
            opened.append(name)
        if name:
            tags.append((*tag.span(), f"<{tag[1]}{name}>"))
    return with_replacements(page, tags)


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


@dataclass(slots=True)
class _TagTexts:
    """Replaces the tags of forms and pictures, in their order.

    A list without a selected option shows its first one.
    """

    in_open_list: bool = False
    pictures: set[str] = field(default_factory=set)

    def text(self, tag: re.Match[str]) -> str:
        """The text that a tag shows."""
        match tag[1].casefold():
            case "select":
                self.in_open_list = not _MULTIPLE.search(tag[2]) and not _has_selected(tag)
                return tag[0]
            case "option":
                is_shown = self.in_open_list or bool(_SELECTED.search(tag[2]))
                self.in_open_list = False
                return f"{tag[0]} {ticked(is_shown)} "
            case "input":
                return html.escape(_input_text(_attributes(tag[2])))
        return html.escape(self._picture(tag, _attributes(tag[2]))) or tag[0]

    def _picture(self, tag: re.Match[str], attributes: dict[str, str]) -> str:
        """The alternative text of a picture; of one alone in its block only once: ornaments repeat."""
        alternative = attributes.get("alt", "")
        words = alternative_text(alternative)
        if words != ORDERS and _FORMULA.search(attributes.get("class", "")):
            return tex_of(alternative)
        if words in self.pictures and _is_alone(tag):
            return ""
        self.pictures.add(words)
        return words


def _has_selected(opening: re.Match[str]) -> bool:
    """Whether an option of the list that this tag opens is selected."""
    tags = _SEEN.finditer(opening.string, opening.end())
    inside = takewhile(lambda tag: tag[1].casefold() != "select", tags)
    return any(tag[1].casefold() == "option" and _SELECTED.search(tag[2]) for tag in inside)


def _is_alone(tag: re.Match[str]) -> bool:
    """Whether a picture stands alone: not in a sentence, a list item or a cell."""
    before = tag.string[max(0, tag.start() - _AROUND) : tag.start()]
    return bool(_BLOCK_BEFORE.search(before)) and bool(_BLOCK_BEHIND.match(tag.string, tag.end()))


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


@dataclass(slots=True)
class _Table:
    """A table that is being read, and its cell whose tag is open."""

    cells: MergedCells = field(default_factory=MergedCells)
    opened: re.Match[str] | None = None


def _with_repeated_cells(page: str) -> str:
    """The page with the content of a cell over several rows repeated in each of these rows."""
    replacements: list[tuple[int, int, str]] = []
    room = MAX_GROWTH * len(page)
    tables: list[_Table] = []
    for tag in _CELLS.finditer(page):
        repeated = "".join(f"<td>{content}</td>" for content in _repeated_cells(tag, tables))
        room -= len(repeated)
        if room < 0:
            return page
        if repeated or _SPANS.search(tag[3]):
            replacements.append((*tag.span(), repeated + _SPANS.sub("", tag[0])))
    return with_replacements(page, replacements)


def _repeated_cells(tag: re.Match[str], tables: list[_Table]) -> Iterator[str]:
    """The contents of the repeated cells to write before a tag."""
    is_end, name = bool(tag[1]), tag[2].casefold()
    if name == "table":
        if is_end and tables:
            yield from _end_row(tables.pop(), tag)
        elif not is_end:
            tables.append(_Table())
    elif tables and name == "tr":
        yield from _end_row(tables[-1], tag)
        if not is_end:
            tables[-1].cells.next_row()
    elif tables:
        _end_cell(tables[-1], tag)
        if not is_end:
            yield from tables[-1].cells.repeated()
            tables[-1].opened = tag


def _end_row(table: _Table, tag: re.Match[str]) -> Iterator[str]:
    _end_cell(table, tag)
    return table.cells.rest()


def _end_cell(table: _Table, tag: re.Match[str]) -> None:
    """End the open cell, and place its content, also in the rows that repeat it."""
    if (opened := table.opened) is None:
        return
    table.opened = None
    content = tag.string[opened.end() : tag.start()]
    table.cells.place(content, _span(opened[3], "rowspan"), _span(opened[3], "colspan"))


def _span(attributes: str, name: str) -> int:
    match = re.search(rf"\b{name}\s*=\s*[\"']?(\d{{1,4}})", attributes, re.IGNORECASE)
    return int(match[1]) if match else 1


# A layout table becomes plain blocks, in which headings, lists and code are what they are; in a table of
# Markdown each cell is one line. Code loses line numbers and links.
_TABLE = re.compile(r"<(/?)table\b[^<>]*>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b", re.IGNORECASE)
_CELL = re.compile(r"<t[dh]\b[^<>]*>((?:[^<]|<(?!/?t[dhr]\b))*+)", re.IGNORECASE)
_BLANK = re.compile(r"<[^<>]*>|&nbsp;|\s")
_ROWS = re.compile(r"<(/?)(table|tr)\b", re.IGNORECASE)
_POINT = re.compile(
    r"(<table\b[^<>]*>(?:\s|</?(?:col|colgroup|tbody)\b[^<>]*>)*<tr\b[^<>]*>\s*)<td\b[^<>]*>"
    r"(?:\s|&nbsp;|<(?:p|span|div)\b[^<>]*>)*"
    r"([‘“\"'(\[]{0,2}(?:(?:\d{1,4}[a-z]?\.)+|(?:\d{1,4}[a-z]{0,2}|[a-z]{1,2}|[ivxlc]{1,6})[.)\]]{1,2})|[—–•·-])"
    r"(?:\s|&nbsp;|</(?:p|span|div)\s*>)*</td\s*>\s*(<td\b[^<>]*>(?:\s*<p\b[^<>]*>)?)",
    re.IGNORECASE,
)
"""A table up to the text in its second cell, with a mark like (a) or 1. in its first one."""
_PART = re.compile(r"<(/?)(?:table|thead|tbody|tfoot|tr|t[dh])\b[^<>]*>", re.IGNORECASE)
_FULL_ROWS, _FULL_CELLS = 2, 2  # a table of data in a mail has that many
_LONG = 300  # characters: a cell with more holds a text
_DIVIDED = -1
_INNER = "\ufdd7"
"""A noncharacter in the place of a table in a cell."""
_NO_BORDER = re.compile(r"""(<table\b[^<>]*?)\sborder\s?=\s?["']?0["']?(?=[\s>])""", re.IGNORECASE)

_PRESENTATION = re.compile(r"""<table\b[^<>]*\brole\s?=\s?["']?(?:presentation|none)\b""", re.IGNORECASE)
_HEADER = re.compile(r"<th\b", re.IGNORECASE)
_BLOCKS = re.compile(
    r"<(?:h[1-6]|pre)\b|<p\b(?:[^<]|<(?!/?(?:p|t[dhr])\b))*+(?:</p\s*>)?\s*<p\b", re.IGNORECASE
)

_PRE = re.compile(r"<pre\b[^<>]*>((?:[^<]|<(?!/?pre\b))*+)</pre\s*>", re.IGNORECASE)
_PRE_AROUND = re.compile(r"<pre\b[^<>]*>\s*<code\b[^<>]*>\s*(?=<pre>)", re.IGNORECASE)
_PRE_TWICE = re.compile(r"</pre>\s*</code\s*>\s*</pre\s*>", re.IGNORECASE)
_NO_CODE = re.compile(
    r"</?a\b[^<>]*>|<span\b[^<>]*\bclass\s?=\s?[\"']?(?:linenos?|lineno|lnt?|line-numbers?)\b[^<>]*>\s*\d*\s*</span\s*>",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"\d*")
_CODE_LINE = re.compile(
    r"<td\b[^<>]*\bclass\s?=\s?[\"'][^\"'<>]*\b(?:blob-code|ln-code|lines-code)", re.IGNORECASE
)


def with_code_and_layout(page: str) -> str:
    """A page whose layout tables are plain blocks, and whose code is code alone."""
    page = _changed_tables(_with_points(page), _code_of)
    page = _PRE_TWICE.sub("</pre>", _PRE_AROUND.sub("", page)) if "<pre>" in page else page
    page = _PRE.sub(lambda code: _NO_CODE.sub("", code[0]), page)
    return without_layout_tables(page, _lays_out)


def without_layout_tables(page: str, lays_out: Callable[[str], bool]) -> str:
    """The page with tables that `lays_out` names, and those around others, turned into plain blocks.

    A table of data around a short one stays: the converter writes this as words of its cell.
    """

    def blocks(part: str) -> str:
        return _PART.sub(r"<\1div>", part)

    def changed(table: str) -> str:
        return blocks(table) if lays_out(table) else _with_columns(table)

    return _changed_tables(page, changed, blocks)


def _with_points(page: str) -> str:
    """The page with the marks of points in front of their texts: a table of one row with both is no table.

    Example: "<table><tr><td>(a)</td><td>we</td></tr></table>" -> "<table><tr><td>(a) we</td></tr></table>".
    """
    starts: list[int] = []  # of tables with one row
    opened: list[list[int]] = []  # where a table begins, and how many rows it has
    for tag in _ROWS.finditer(page):
        if tag[2].casefold() == "tr":
            if opened:
                opened[-1][1] += not tag[1]
        elif not tag[1]:
            opened.append([tag.start(), 0])
        elif opened and opened[-1][1] == 1:
            starts.append(opened.pop()[0])
        elif opened:
            opened.pop()
    of_one_row = {*starts}
    return _POINT.sub(
        lambda point: f"{point[1]}{point[3]}{point[2]} " if point.start() in of_one_row else point[0], page
    )


def is_no_data(table: str) -> bool:
    """Whether a table of a mail is layout: one of data has at least two rows with two short texts each."""
    rows = [*_row_lengths(table)]
    has_long = any(length > _LONG for row in rows for length in row)
    return has_long or sum(len(row) >= _FULL_CELLS for row in rows) < _FULL_ROWS


def _row_lengths(table: str) -> Iterator[list[int]]:
    """The lengths of the texts in each row of a table, without blank cells."""
    return map(_cell_lengths, _ROW.split(table)[1:])


def _cell_lengths(row: str) -> list[int]:
    lengths = (len(_BLANK.sub("", cell)) for cell in _CELL.findall(row))
    return [length for length in lengths if length]


def _with_columns(table: str) -> str:
    """A table whose rows keep their columns: the converter takes one without a border, but with spans, apart.

    Excel, Outlook and Word write so. A table is left to the converter if few of its rows can be data.
    """
    rows = [row for row in _row_lengths(table) if len(row) >= _FULL_CELLS and max(row) <= _LONG]
    return _NO_BORDER.sub(r"\1", table) if len(rows) >= _FULL_ROWS else table


def _lays_out(table: str) -> bool:
    """Whether a table of a page is layout: it says so, or it has no header cells, and one cell or blocks."""
    has_blocks = bool(_BLOCKS.search(table)) or len(_CELL.findall(table)) == 1
    return bool(_PRESENTATION.match(table)) or (not _HEADER.search(table) and has_blocks)


def _whole_tables(page: str) -> list[tuple[int, int]]:
    """The spans of tables that stay in one piece, in order; no one is inside another.

    A table around one that is divided is layout.
    """
    spans: list[tuple[int, int]] = []
    opened: list[tuple[int, int]] = []  # where a table begins, and how many of the spans are before it
    for tag in _TABLE.finditer(page):
        if not tag[1]:
            opened.append((tag.start(), len(spans)))
        elif opened:
            start, before = opened.pop()
            if before != _DIVIDED and _is_whole(page, start, tag.end(), spans[before:]):
                spans[before:] = [(start, tag.end())]
            elif opened:
                opened[-1] = opened[-1][0], _DIVIDED
    return spans


def _is_whole(page: str, start: int, end: int, inner: Sequence[tuple[int, int]]) -> bool:
    """Whether a table has none inside, or has data, with short tables beside other cells."""
    if not inner or any(len(_BLANK.sub("", page[slice(*span)])) > _LONG for span in inner):
        return not inner
    table = page[start:end]
    outer = with_replacements(table, ((first - start, last - start, _INNER) for first, last in inner))
    around = [row for row in _ROW.split(outer) if _INNER in row]
    are_beside = all(len(row) >= _FULL_CELLS for row in map(_cell_lengths, around))
    return are_beside and not _lays_out(table) and not is_no_data(outer)


def _changed_tables(page: str, change: Callable[[str], str], outside: Callable[[str], str] = str) -> str:
    """The page with its tables as `change` returns them, and what is around as `outside` does."""
    parts, at = [], 0
    for start, end in _whole_tables(page):
        parts += [outside(page[at:start]), change(page[start:end])]
        at = end
    return "".join([*parts, outside(page[at:])])


def _code_of(table: str) -> str:
    """The code in a table that numbers its lines; any other table as it is."""
    cells = _CELL.findall(table)
    code = [cell for cell in cells if not _NUMBERS.fullmatch(_BLANK.sub("", cell))]
    if len(code) == 1 and len(cells) > 1 and (pre := _PRE.search(code[0])):
        return f"<pre>{pre[1]}</pre>"
    rows = _ROW.split(table)[1:]
    if rows and all(map(_CODE_LINE.search, rows)):
        lines = "\n".join((_CELL.findall(row) or [""])[-1].strip("\n") for row in rows)
        return f"<pre>{lines}</pre>"
    return table
