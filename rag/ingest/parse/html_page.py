"""HTML: converted to Markdown, without navigation, other boilerplate, and hidden orders to a model.

The converter omits what a page hides by an attribute (hidden, display: none), unless a button or a tab opens
it. Pages hide other parts for good reasons, so these stay. But hidden orders to a model are prompt injection:
they are omitted however they are hidden, and the report counts them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from html import escape, unescape
from html.parser import HTMLParser
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import html_to_markdown
from html_to_markdown import ConversionError, ConversionOptions, PreprocessingOptions, WarningKind

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse import html_widgets
from rag.ingest.parse.document_draft import omission_remarks, with_unmarked_headings
from rag.ingest.parse.document_parts import clean, date, facts, listed_names
from rag.ingest.parse.html_exports import classes_with, in_plain_html, plain_chat, style_sheets
from rag.ingest.parse.html_tables import with_code_and_layout, with_spanned_cells
from rag.ingest.parse.markdown import markdown_blocks
from rag.ingest.parse.titles_and_questions import MADE_UP_TITLE, with_questions
from rag.ingest.parse.typefaces import with_scripts
from rag.text.flags import flags_in
from rag.text.plain_text import one_line, with_replacements, without_note_ids
from rag.uris import web_address

if TYPE_CHECKING:
    from html_to_markdown import ConversionResult

SUFFIXES = (".html", ".htm", ".xhtml")

HIDDEN_ORDERS = (
    "hidden piece of text that looks like instructions to a model",
    "hidden pieces of text that look like instructions to a model",
)
HIDDEN_TEXT = ("hidden piece of text", "hidden pieces of text")
_NOISE = ["nav", "script", "style", "template", "noscript", "[role=navigation]", "[role=contentinfo]"]
_OF_CONFLUENCE = ["#breadcrumb-section", ".toc-macro", ".expand-control-icon", ".collapse-source"]
_ANCHORS = ["a.headerlink", "a.anchor-link", "a.hash-link", ".mw-editsection"]  # "¶" and "[edit]" at headings
_OF_RUSTDOC = listed_names(
    "a.src a.srclink a.test-arrow #copy-path #render-detail #toggle-all-docs summary.hideme"
)
_AS_IT_IS = PreprocessingOptions(enabled=False)
_PAGE = ConversionOptions(preprocessing=_AS_IT_IS)


def _options(*unread: str) -> ConversionOptions:
    return ConversionOptions(
        extract_metadata=False,
        exclude_selectors=[*_NOISE, *_OF_CONFLUENCE, *_OF_RUSTDOC, *_ANCHORS, *unread],
        preprocessing=_AS_IT_IS,
        compact_tables=True,
        autolinks=False,
        skip_images=True,
    )


_CONTENT = _options()
_MATHML_TWIN = re.compile("katex-mathml|MJX_Assistive_MathML")
_WITH_TWINS = _options(*(f"{drawn}[aria-hidden=true]" for drawn in (".katex-html", "nobr", ".mjx-chtml")))
"""For pages of KaTeX and MathJax, which have each formula twice: as MathML, and as it is drawn."""
_SCRIPT_LINK = re.compile(
    r"""\b(?:href|src)\s?=\s?(?:"(?:javascript|data):[^"]*"|'(?:javascript|data):[^']*')""", re.IGNORECASE
)
_MAIL_LINK = re.compile(r"\[([^\[\]\s@]+@[^\[\]\s@]+)\]\(mailto:([^()\s?]+)(?:\?[^()\s]*)?\)", re.IGNORECASE)
_DATES = ("article-published_time", "article:published_time", "date", "dc.date", "dcterms.created")
_JSON_DATE = re.compile(r'"datePublished"\s{0,3}:\s{0,3}"([^"<>\\]{4,40})"')
_CHANGED = re.compile(
    r"""\bclass\s?=\s?["']page-metadata["'][^<>]{0,200}>((?:[^<]|<(?!/div\b)){1,1000}+)</div"""
)
"""Who has changed a page of Confluence, and when: "… last modified by <span>Ann</span> on Mar 12, 2024"."""
_TIME = re.compile(r"<time\b[^<>]{0,500}>", re.IGNORECASE)
_MOMENT = re.compile(r"\bdatetime\s?=\s?[\"']?([^\"'<>]{4,40})", re.IGNORECASE)
_PUBLISHED = re.compile(
    r"\bpubdate\b|\b(?:itemprop|class)\s?=[^=]{0,200}?(?:publi|posted|(?<![\w-])(?:entry-|post-)?date(?![\w-]))",
    re.IGNORECASE,
)
_BYLINE = re.compile(
    r"class\s?=\s?[\"'][^\"'<>]{0,100}\b(?:byline|publi|posted|(?:post|entry|article)-(?:meta|info|date))[^<>]{0,200}>"
    r"(?:[^<]|<(?!/(?:p|div|ul|section)\b)){0,200}\Z",
    re.IGNORECASE,
)
_AROUND, _NEAR = 2_000, 400  # characters before a <time> in which a header, or a byline, begins


def parse(text: str, _name: str, *, is_site: bool = True) -> Document:
    """The document of a page: its main part if it marks one, otherwise all of it except boilerplate.

    Mails and other pages that no site made (not `is_site`) have no boilerplate of one.
    """
    text, orders, hidden = as_opened(plain_chat(text))  # before the conversion, which drops what a page hides
    page = _convert(text, _PAGE)  # for its head alone: the text follows from its changed form
    head = page.metadata.document
    text, title, comments = in_plain_html(text)
    text = without_site_boxes(text, is_site=is_site)
    content, labels, ends = html_widgets.without_marks(
        html_widgets.without_pages(_marked_content(main_part(text)) or _marked_content(text))[0]
    )
    blocks = with_unmarked_headings(content, tuple(markdown_blocks(content)))
    blocks = with_questions(content, blocks, labels=labels, ends=ends)
    # A title that its program made up says less than the heading that people see.
    stated = head.title or ""
    return Document(
        text=content,
        title=("" if MADE_UP_TITLE.fullmatch(stated.strip()) else stated)
        or head.open_graph.get("title")
        or title,
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
        remarks=(
            *omission_remarks(orders, *HIDDEN_ORDERS),
            *omission_remarks(hidden, *HIDDEN_TEXT),
            *omission_remarks(comments, "comment"),
        ),
    )


def content_of(html: str) -> str:
    """The Markdown of a part of a page, without navigation.

    Raises:
        ParseError: the HTML can't be parsed.
    """
    return html_widgets.without_pages(content_with_pages(html))[0]


def content_with_pages(html: str) -> str:
    """The same with the marks of printed pages.

    Raises:
        ParseError: as above.
    """
    return html_widgets.without_marks(_marked_content(without_site_boxes(html, is_site=False)))[0]


def _marked_content(html: str) -> str:
    """The Markdown of a page, with the marks of `with_widgets_as_text`."""
    options = _WITH_TWINS if _MATHML_TWIN.search(html) else _CONTENT
    html = _SCRIPT_LINK.sub("", html)  # a frame or a link that leads nowhere
    page = html_widgets.with_widgets_as_text(with_code_and_layout(html_widgets.with_formulas(html)))
    content = (_convert(page, options).content or "").replace(html_widgets.NO_MARK, "")
    content = with_spanned_cells(_MAIL_LINK.sub(_mail_address, clean(content)))
    return without_note_ids(with_scripts(content).strip())


def _mail_address(link: re.Match[str]) -> str:
    """An address without the link to itself: "[a@x.org](mailto:a@x.org)" -> "a@x.org"."""
    is_same = unquote(link[2]).casefold() == link[1].replace("\\", "").casefold()
    return link[1] if is_same else link[0]


def _convert(html: str, options: ConversionOptions) -> ConversionResult:
    try:
        result = html_to_markdown.convert(html, options)
    except ConversionError as error:
        raise ParseError("the HTML can't be parsed") from error
    # The converter leaves out what is nested deeper, and only warns.
    if any(warning.kind == WarningKind.DEPTH_LIMIT_EXCEEDED for warning in result.warnings):
        raise ParseError("nested too deeply")
    return result


def _published_at(meta: dict[str, str], html: str) -> datetime | None:
    """When a page was published, or one of Confluence was changed; a time in its text can be of anything."""
    changed = _CHANGED.search(html)
    words = changed[1].rpartition(">")[2].split() if changed else []
    in_json = (match[1] for match in _JSON_DATE.finditer(html))
    in_text = (match[1] for tag in _TIME.finditer(html) if (match := _MOMENT.search(tag[0])) and _is_own(tag))
    # Statements for programs come first: a <time> in the text may be when people landed on the moon.
    stated = (*(meta.get(key, "") for key in _DATES), next(in_json, ""), " ".join(words[-3:]), *words[-1:])
    return next(filter(None, map(date, (*stated, next(in_text, "")))), None)


def _is_own(time: re.Match[str]) -> bool:
    """Whether a <time> says when its page was published: by its attributes, or what is around it."""
    before = time.string[max(0, time.start() - _AROUND) : time.start()]
    opened = before.rfind("<header") > before.rfind("</header")
    return bool(_PUBLISHED.search(time[0])) or opened or bool(_BYLINE.search(before[-_NEAR:]))


# A header, footer or aside inside an article, a section or the main part belongs to the content, as HTML
# says: it has the headline, corrections, notes. There it is only left out if it consists of links. Outside,
# it is the site's, unless it says otherwise: by its role, or by having the only main heading of the page.
_IN_CONTENT = frozenset({"main", "article", "section", "dialog", "blockquote", "td"})
_BOXES = frozenset({"header", "footer", "aside"})
_TAG = re.compile(
    rf"<(/?)({'|'.join(sorted(_IN_CONTENT | _BOXES))})(?![\w-])([^<>]{{0,2000}})>", re.IGNORECASE
)
_OWN_ROLE = re.compile(r"""\brole\s?=\s?["']?(?:doc-|note\b|alert\b)""", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-6][\s>]", re.IGNORECASE)
_MAIN_HEADING = re.compile(r"<h1[\s>]", re.IGNORECASE)
_LINK = re.compile(r"<(a|button|nav)\b(?:[^<]|<(?!/?(?:a|button|nav)\b))*</\1", re.IGNORECASE)
_NO_PROSE = re.compile(
    r"<(script|style|svg|noscript|template|head)\b(?:[^<]|<(?!/?\1\b))*</\1|<!--(?:[^<-]|-(?!->)|<(?!!--))*-->",
    re.IGNORECASE,
)
_ANY_TAG = re.compile(r"<[^<>]*>")
_MARKUP = re.compile(r"<[^<>]*>|[^\w<]+|<|_")
_WITH_HEADING, _BELOW_HEADING = 0.25, 1.0
"""The least length of articles that are the content, as a multiple of the text around them."""
_DEEPEST = 4  # boxes within boxes that are judged; people stop earlier
_PERMALINK = re.compile(
    r"<a\b(?=[^<>]{0,1000}\bclass\s?=\s?[\"'][^\"'<>]{0,300}(?:anchor|permalink))[^<>]{0,1000}>"
    r"(?:[^<\w]|<(?!/a\b)[^<>]{0,2000}>){0,30}</a\s*>",
    re.IGNORECASE,
)


class _Box(NamedTuple):
    """A header, footer or aside: its tag's name and attributes, and where it is on the page."""

    name: str
    attributes: str
    start: int
    end: int
    is_inside: bool


def without_site_boxes(page: str, *, is_site: bool = True) -> str:
    """The page without headers, footers and asides of its site; one without `is_site` has none.

    Example: "<header>Logo</header><main><header><h1>A</h1></header></main>" -> "<main><header>…</main>".
    """
    page = _PERMALINK.sub("", page)  # the link of a heading to itself is no navigation
    heading = _MAIN_HEADING.search(page)
    main_heading = heading.start() if heading else -1
    boxes = sorted(_boxes(page, is_inside=not is_site), key=lambda box: box.start)
    foreign = ((box.start, box.end, "") for box in boxes if not _belongs(page, box, main_heading))
    return with_replacements(page, foreign)


def main_part(page: str) -> str:
    """From the first <main> to the last </main>; else the articles, if they are not a small part; else all.

    A main heading above articles without one belongs to them, with what is between.
    """
    if main := _span(page, "main"):
        return page[main.start : main.stop]
    articles = _span(page, "article")
    if not articles:
        return page
    inside = page[articles.start : articles.stop]
    heading = None if _MAIN_HEADING.search(inside) else _MAIN_HEADING.search(page, 0, articles.start)
    start = heading.start() if heading else articles.start  # the headline may stand above the article
    outside = _prose(page[:start] + page[articles.stop :])
    # The articles of a page may be reviews below what it is about, which would be lost.
    is_small = _prose(inside) < outside * (_BELOW_HEADING if heading else _WITH_HEADING)
    return page if is_small else page[start : articles.stop]


def _span(page: str, tag: str) -> range | None:
    opening = re.search(rf"<{tag}[\s>]", page, re.IGNORECASE)
    *_, closing = None, *re.finditer(rf"</{tag}\s*>", page, re.IGNORECASE)
    return range(opening.start(), closing.end()) or None if opening and closing else None


def _prose(content: str) -> int:
    """How many letters and digits a part of a page has outside of links and buttons."""
    return len(_MARKUP.sub("", _LINK.sub("", _NO_PROSE.sub("", content))))


def _boxes(page: str, *, is_inside: bool) -> Iterator[_Box]:
    """The boxes with an end tag, by their ends; those deep inside others are left out."""
    stack: list[re.Match[str]] = []
    names: Counter[str] = Counter()
    for tag in _TAG.finditer(page):
        name = tag[2].casefold()
        if not tag[1]:
            stack.append(tag)
            names[name] += 1
            continue
        while names[name] and stack:
            opened = stack.pop()
            names[opened[2].casefold()] -= 1
            if opened[2].casefold() == name:
                break
        else:
            continue
        if name in _BOXES and sum(names[box] for box in _BOXES) < _DEEPEST:
            inside = is_inside or any(names[part] for part in _IN_CONTENT)
            yield _Box(name, opened[3], opened.start(), tag.end(), inside)


def _belongs(page: str, box: _Box, main_heading: int) -> bool:
    if _OWN_ROLE.search(box.attributes):
        return True
    content = page[box.start : box.end]
    if not box.is_inside:
        return box.name == "header" and box.start < main_heading < box.end
    return (box.name == "header" and bool(_HEADING.search(content))) or not _is_links(content)


def _is_links(content: str) -> bool:
    return len(_MARKUP.sub("", content)) > 2 * _prose(content)


DEPTH = 1000  # nested elements; deeper ones are ignored
_UNSEEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|(?<![-\w])opacity\s*:\s*0*\.?0*(?![.\d])"
    r"|font(?:-size)?\s*:\s*(?:0|0?\.\d{1,3}|1)(?:px|pt|em|rem|%)?\s*(?:;|$)"
    r"|(?<![-\w])color\s*:\s*(?:#fff(?:fff)?\b|white|transparent|rgba?\(\s*255\s*,\s*255\s*,\s*255)"
    r"|(?:text-indent|left|top)\s*:\s*-\d{3,}",
    re.IGNORECASE,
)
_HINT = re.compile(r"\bstyle\s*=|\bhidden\b|<style|\btabpanel\b", re.IGNORECASE)
VOID = listed_names("area base br col embed hr img input link meta source track wbr")
"""Elements without an end tag."""
_CLOSED_BY_NEXT = frozenset({"p", "li", "td", "th", "tr", "dt", "dd", "option"})


_CONTROLS, _ROLES = frozenset({"button", "summary"}), frozenset({"button", "tab"})
_STATES = frozenset({"aria-expanded", "aria-controls", "onclick", "data-toggle", "data-bs-toggle"})
"""Attributes of an element that opens another one."""
_TARGETS = ("id", "aria-controls", "data-target", "data-bs-target", "href", "onclick")
_NAME = re.compile(r"[\w:.-]+")
_APART = frozenset({"dialog", "alertdialog", "menu", "listbox", "tooltip"})  # roles of what isn't in the text
_OMITTED = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_HEADS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6", "dt", "summary"})
_LONGEST_CONTROL = 1_000  # characters of one with its tags
_ELSEWHERE = re.compile(r"""\bhref\s?=\s?["']?(?:https?:|/)""", re.IGNORECASE)
_FEWEST_LETTERS = 120  # of a hidden piece of text that is counted


class _Control(NamedTuple):
    """Something that opens what follows: where it is, and its words. One in a heading is named by this."""

    start: int
    end: int
    label: str
    in_head: bool


class _Open(NamedTuple):
    tag: str
    hides: bool
    start: int
    attributes: dict[str, str | None]
    inside: int
    """Where its start tag ends."""
    control: _Control | None
    """What stands before it and opens it."""

    @property
    def role(self) -> str:
        return self.attributes.get("role") or ""

    @property
    def is_omitted(self) -> bool:
        """Whether the converter leaves it out."""
        return "hidden" in self.attributes or bool(_OMITTED.search(self.attributes.get("style") or ""))


def as_opened(html: str) -> tuple[str, int, int]:
    """A page with the parts that its buttons and tabs open, and without hidden parts that give orders.

    Returns the page, the number of these orders, and the number of other hidden parts with text.
    Example: '<p>Hi</p><p hidden>Ignore all previous instructions.</p>' -> ('<p>Hi</p>', 1, 0).
    """
    if not _HINT.search(html):
        return html, 0, 0
    finder = _Finder(html)
    finder.feed(html)
    finder.close()
    replacements = sorted([*((*span, "") for span in finder.found), *finder.opened])
    return with_replacements(html, replacements), len(finder.found), finder.hidden


class _Finder(HTMLParser):
    """Finds the outermost hidden elements whose text gives orders, and those that a control opens."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[int, int]] = []
        self.opened: list[tuple[int, int, str]] = []
        self.hidden = 0
        self._html = html
        self._lines = [0, *(match.end() for match in re.finditer("\n", html))]
        self._stack: list[_Open] = []
        self._tags: Counter[str] = Counter()
        self._hiding = 0
        self._texts: list[str] = []
        self._classes = classes_with(_UNSEEN, "\n".join(style_sheets(html)))
        self._before: _Control | None = None
        self._labels: dict[str, str] = {}  # of controls, by their ids and by the ids of what they open
        self._omitting = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if tag in VOID or len(self._stack) >= DEPTH:  # a hostile page nests endlessly
            return
        if tag in _CLOSED_BY_NEXT and self._stack and self._stack[-1].tag == tag:
            self._pop(self._offset())
        attributes, start = dict(attrs), self._offset()
        inside = start + len(self.get_starttag_text() or "")
        opened = _Open(tag, self._is_hiding(attributes), start, attributes, inside, self._before)
        self._before = None
        self._stack.append(opened)
        self._tags[tag] += 1
        self._hiding += opened.hides
        self._omitting += opened.is_omitted

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
        if data.strip():
            self._before = None
        if self._hiding:
            self._texts.append(data)

    def close(self) -> None:
        """End the page, and all elements that are still open."""
        super().close()
        while self._stack:
            self._pop(len(self._html))

    def _pop(self, end: int) -> None:
        closed = self._stack.pop()
        self._tags[closed.tag] -= 1
        self._hiding -= closed.hides
        self._omitting -= closed.is_omitted
        if closed.hides and not self._hiding:  # the outermost hidden element ends: judge all text in it
            if "instructions" in flags_in(" ".join("".join(self._texts).split())):
                self.found.append((closed.start, end))
            self._texts.clear()
        self._note(closed, end)
        self._before = self._control(closed, end)

    def _control(self, closed: _Open, end: int) -> _Control | None:
        """The control that an element is, or that is alone in it or in a heading."""
        if end - closed.start > _LONGEST_CONTROL:
            return None
        in_head, before = closed.tag in _HEADS, self._before
        is_control = closed.role in _ROLES or not _STATES.isdisjoint(closed.attributes)
        if is_control or (closed.tag in _CONTROLS and not self._tags["form"]):  # else it sends the form
            label = one_line(unescape(_ANY_TAG.sub(" ", self._html[closed.start : end])))
            for attribute in _TARGETS:
                for name in _NAME.findall(closed.attributes.get(attribute) or ""):
                    self._labels.setdefault(name, label)
            return _Control(closed.start, end, label, in_head)
        if before and (in_head or not _MARKUP.sub("", self._html[closed.start : before.start])):
            return _Control(closed.start, end, before.label, in_head or before.in_head)
        return None

    def _note(self, closed: _Open, end: int) -> None:
        """Note a part that a control opens, with its label, or count a hidden one."""
        control, is_tab = closed.control, closed.role == "tabpanel"
        if closed.role in _APART or not (is_tab or closed.is_omitted):
            return
        is_outermost = closed.is_omitted and not self._omitting
        content = self._html[closed.start : end] if is_outermost else ""
        letters = _prose(content)
        if is_outermost and (not letters or _is_links(content)):
            return
        of_tab = closed.attributes.get("aria-labelledby") if is_tab else None
        names = (of_tab, closed.attributes.get("id"))
        label = next((self._labels[name] for name in names if name and name in self._labels), None)
        if is_tab or control or label is not None:
            self._open(closed, label or "", end)
        elif not any(self._tags[part] for part in (*_BOXES, "nav")) and "<math" not in content:
            self.hidden += letters >= _FEWEST_LETTERS

    def _open(self, closed: _Open, label: str, end: int) -> None:
        """Show a part below its label, which a button right before it has itself."""
        if closed.is_omitted:
            self.opened.append((closed.start, closed.inside, f"<{closed.tag}>"))
        start, stop, control = closed.start, closed.start, closed.control
        if control and closed.role != "tabpanel":
            start, stop = control.start, control.end
            label = "" if control.in_head or _ELSEWHERE.search(self._html[start:stop]) else control.label
        if any(map(str.isalnum, label)):
            opening = f"<details><summary>{escape(label)}</summary>"
            self.opened += [(start, stop, opening), (end, end, "</details>")]

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
