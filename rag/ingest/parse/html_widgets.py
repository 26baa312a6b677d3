"""What tags of a page show, written into the page before its conversion.

These are ticked boxes, choices, pictures, scripts, labels of lists and of collapsible pieces. Tags are found
by regular expressions; everything else stays as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from rag.errors import ParseError
from rag.ingest.parse.document_parts import ORDERS, alternative_text, numeral
from rag.ingest.parse.formulas import mathml_text, tex_of
from rag.ingest.parse.html_tables import with_repeated_cells
from rag.ingest.parse.typefaces import SUB, SUB_END, SUP, SUP_END, SYMBOL_FONTS, ticked, with_symbols
from rag.ingest.parse.xml_text import xml_tree
from rag.ingest.parse.zip_package import whole_number
from rag.text.plain_text import with_replacements

MAX_TERM = 1_000  # characters of an answer that fits into a passage with its term: no heading is needed
LABEL, LABEL_END = "\ufdd0", "\ufdd1"
"""Noncharacters that mark where the label of a collapsible piece begins, and where the piece ends."""
NO_MARK = "\ufddb"  # `typefaces` has those before it
"""A noncharacter in what the converter would escape otherwise: labels of items, and texts that look so."""

PAGE = "\ufdde"
"""A noncharacter before and behind the printed number of a page that begins here."""

_LIKE_MARKS = re.compile(
    r"(?<=>)(?:\s|&nbsp;)*(?:\d{1,9}(?=[.)])|(?=[-+*][\s&]|&gt;))|(?<=\\)(?![^<>]{0,500}>)"
)
"""Where a text begins as an item or a quote does ("1. The board"), and behind a backslash outside of tags."""
_MARKS = re.compile("[\ufdd0-\ufddf]")
_PRINTED_NUMBER = re.compile(
    r"<(?P<tag>a|div|hr|p|span)\b(?P<about>[^<>]{0,1000}?\b(?:(?P<page>(?:epub:type|role)\s?=\s?[\"'](?:doc-)?pagebreak"
    r"|class\s?=\s?[\"'](?:[^\"'<>]{0,200}\s)?page-?(?:num|number|no)(?=[\s\"']))"
    r"|class\s?=\s?[\"'](?:[^\"'<>]{0,200}\s)?(?:lnum|line-?num(?:ber)?)(?=[\s\"']))[^<>]{0,1000})>"
    r"(?P<words>(?:[^<>]|</?(?:a|span)\b[^<>]{0,300}>){0,80}?)</(?P=tag)\s*>",
    re.IGNORECASE,
)
"""The number of a page or a verse of the printed book, amid the text."""
_LABEL_OF_PAGE = re.compile(r"(?<![^\W_])(?:\d{1,5}|[ivxlc]{1,9})(?![^\W_])", re.IGNORECASE)
_PAGE = re.compile(
    rf"(?:(?<=\n\n)|\A){PAGE}([^{PAGE}]*){PAGE}\n\n|(?<= ){PAGE}([^{PAGE}]*){PAGE} |{PAGE}([^{PAGE}]*){PAGE}"
)
"""A mark of a page, with the gap behind it that is there twice."""
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
_SUMMARY = re.compile(r"(<summary\b[^<>]{0,2000}>\s*)(?:<h[1-6]\b[^<>]{0,2000}>)?", re.IGNORECASE)
_SECTION_IN_SUMMARY = re.compile(
    r"<summary\b[^<>]*>(\s*<section\b(?:[^<]|<(?!/?summary\b))*+)</summary\s*>", re.IGNORECASE
)
"""What rustdoc lets people collapse: a section with a heading of its own."""
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
_SIGNS = re.compile(
    r"(<(?:span|font)\b[^<>]{0,2000}?(?<![-\w])(?:font-family\s?:|face\s?=)\s?(?:&quot;|[\"'])?"
    rf"({SYMBOL_FONTS})\b(?! ?3)[^<>]{{0,2000}}>)"
    r"([^<>]{1,300})(?=</|<o:p)",
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
_ITEMS = frozenset({"li", "dt", "dd"})
_SPECIAL = re.compile(r"\breversed\b|\btype\s?=\s?[\"']?[aAiI]\b")
_SPECIAL_LIST = re.compile(
    rf"<ol\b[^<>]{{0,2000}}?(?:{_SPECIAL.pattern})|<li\b[^<>]{{0,2000}}?\bvalue\s?=", re.IGNORECASE
)
_HEADED = re.compile(
    r"(?:\s{1,200}+|<(?!h[1-6]\b|/li\b)[^<>]{0,2000}>){0,40}<h[1-6]\b[^<>]{0,2000}>", re.IGNORECASE
)
_HEADED_ITEM = re.compile(rf"<li\b[^<>]{{0,2000}}>{_HEADED.pattern}", re.IGNORECASE)
_MULTIPLE, _SELECTED = (re.compile(rf"\b{word}\b", re.IGNORECASE) for word in ("multiple", "selected"))


def with_widgets_as_text(page: str) -> str:
    """The page with its forms and pictures as text, and cells over several rows repeated in each row.

    Labels of collapsible pieces, and questions in lists of terms, have marks (`LABEL`), and so have
    superscripts and subscripts.
    Example: '<input type="checkbox" checked> Yes' -> '[x]  Yes'.
    """
    # A page may hold the characters of our marks: they go before any is set.
    page = with_repeated_cells(_TICKS.sub(_tick, _CHIPS.sub(r"\1, ", _MARKS.sub("", page))))
    page = _PRINTED_NUMBER.sub(_page_mark, page)
    page = with_list_labels(_with_labels(_with_script_marks(page)))
    return _LIKE_MARKS.sub(rf"\g<0>{NO_MARK}", _SEEN.sub(_TagTexts().text, page))


def _page_mark(number: re.Match[str]) -> str:
    """The mark of a page that begins here; nothing for the number of a verse."""
    if not number["page"]:
        return ""
    about = attributes_of(number["about"])
    stated = (_TAG.sub("", number["words"]), *(about.get(key, "") for key in ("title", "aria-label", "id")))
    label = next(filter(None, map(_LABEL_OF_PAGE.search, stated)), None)
    return f"{PAGE}{label[0]}{PAGE}" if label else ""


def without_pages(text: str) -> tuple[str, list[tuple[int, str]]]:
    """A text without the marks of pages, and where they begin, each with its printed number."""
    pages: list[tuple[int, str]] = []
    parts, length, last = list[str](), 0, 0
    for mark in _PAGE.finditer(text):
        parts.append(text[last : mark.start()])
        length, last = length + mark.start() - last, mark.end()
        pages.append((length, next(filter(None, mark.groups()), "")))
    return "".join((*parts, text[last:])), pages


def _tick(tag: re.Match[str]) -> str:
    """A tag with a checkbox behind it if it is ticked or not; an empty one as a checkbox."""
    state = _state(attributes_of(tag["attributes"]))
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
    """The page with marks inside its scripts, <s> where a style strikes out, and signs of symbol fonts."""

    def marked(tag: re.Match[str]) -> str:
        start, end = _SCRIPT_MARKS[tag[2].casefold()]
        return end + tag[0] if tag[1] else tag[0] + start

    def marked_span(span: re.Match[str]) -> str:
        start, end = _SCRIPT_MARKS[span[2].casefold()]
        return f"{span[1]}{start}{span[3]}{end}"

    def signs(span: re.Match[str]) -> str:
        return span[1] + html.escape(with_symbols(html.unescape(span[3]), span[2]), quote=False)

    page = _STRUCK_SPAN.sub(r"\1<s>\2</s>", page) if "line-through" in page else page
    page = _SIGNS.sub(signs, page)
    return _RAISED.sub(marked_span, _SCRIPTS.sub(marked, page))


def with_list_labels(page: str) -> str:
    """The page with the labels of lists that Markdown can't number: letters, set numbers, reversed ones.

    A list whose items all begin with headings becomes sections, with its numbers.
    Example: '<ol type="a"><li>x</ol>' -> '<ul><li>a. x</ul>'; '<ol><li><h2>x</h2></ol>' -> '<h2>1. x</h2>'.
    """
    if not _SPECIAL_LIST.search(page) and not _HEADED_ITEM.search(page):
        return page
    texts: dict[tuple[int, int], str] = {}
    for tags in _lists(page, _LIST_TAGS):
        texts |= _list_texts(tags, page)
    return with_replacements(page, ((*span, text) for span, text in sorted(texts.items())))


def _list_texts(tags: Sequence[re.Match[str]], page: str) -> dict[tuple[int, int], str]:
    """What stands in the place of the tags of a list, and its labels, where it is one of those."""
    texts: dict[tuple[int, int], str] = {}
    opening, items = tags[0], [tag for tag in tags if tag[2].casefold() == "li" and not tag[1]]
    about = [attributes_of(item[3]) for item in items]
    is_special = _SPECIAL.search(opening[3]) or any("value" in attributes for attributes in about)
    is_numbered = opening[2].casefold() == "ol"
    ends = [heading.end() for item in items if (heading := _HEADED.match(page, item.end()))]
    if has_sections := bool(items) and len(ends) == len(items):
        texts |= {tag.span(): "" for tag in tags}
    elif is_special and is_numbered:
        texts |= {tag.span(): f"<{tag[1]}ul>" for tag in tags if tag[2].casefold() != "li"}
        ends = [item.end() for item in items]
    if is_numbered and (has_sections or is_special):
        labels = _item_labels(attributes_of(opening[3]), about)
        texts |= {(end, end): f"{label} " for end, label in zip(ends, labels, strict=True)}
    return texts


def _lists(page: str, tags: re.Pattern[str]) -> list[list[re.Match[str]]]:
    """The lists of a page, each as the tags that open and close it and its items, if there are such."""
    lists: list[list[re.Match[str]]] = []
    opened: list[list[re.Match[str]]] = []
    for tag in tags.finditer(page):
        is_item, is_end = tag[2].casefold() in _ITEMS, bool(tag[1])
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
    page = _SUMMARY.sub(rf"\1{LABEL}", _SECTION_IN_SUMMARY.sub(r"\1", _with_tags_of_html(page)))
    page = _DETAILS_END.sub(rf"\g<0><p>{LABEL_END}</p>", page)
    page = _BUTTON.sub(r"<p><strong>\1</strong></p>", page)
    marks = list[tuple[int, str]]()
    for _, *tags in _lists(page, _TERMS):
        if tags and tags[-1][2].casefold() not in _ITEMS:  # else nothing closes it
            marks += _marks(page, [tag for tag in tags if not tag[1] or tag is tags[-1]])
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
                return html.escape(_input_text(attributes_of(tag[2])))
        return html.escape(self._picture(tag, attributes_of(tag[2]))) or tag[0]

    def _picture(self, tag: re.Match[str], attributes: dict[str, str]) -> str:
        """The alternative text of a picture; of one alone in its block only once: ornaments repeat."""
        alternative = attributes.get("alt", "")
        words = alternative_text(alternative)
        if words != ORDERS and _FORMULA.search(attributes.get("class", "")):
            return tex_of(alternative)
        if words in self.pictures and _is_alone(tag):  # amid a cell or a sentence, a repeated one counts
            return ""
        self.pictures.add(words)
        return words


def _has_selected(opening: re.Match[str]) -> bool:
    tags = _SEEN.finditer(opening.string, opening.end())
    inside = takewhile(lambda tag: tag[1].casefold() != "select", tags)
    return any(tag[1].casefold() == "option" and _SELECTED.search(tag[2]) for tag in inside)


def _is_alone(tag: re.Match[str]) -> bool:
    """Whether a picture stands alone: not in a sentence, a list item or a cell."""
    before = tag.string[max(0, tag.start() - _AROUND) : tag.start()]
    return bool(_BLOCK_BEFORE.search(before)) and bool(_BLOCK_BEHIND.match(tag.string, tag.end()))


def attributes_of(text: str) -> dict[str, str]:
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
