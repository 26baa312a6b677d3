"""What of a page is layout: headers, footers and asides of the site, tables that hold blocks or number lines.

A header, footer or aside inside an article, a section or the main part belongs to the content, as HTML says:
it has the headline, corrections, notes. There it is only left out if it consists of links. Outside, it is the
site's, unless it says otherwise: by its role, or by having the only main heading of the page.

A layout table becomes plain blocks, in which headings, lists and code are what they are; in a table of
Markdown each cell is one line. Code loses line numbers and links.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

_CONTENT = frozenset({"main", "article", "section", "dialog", "blockquote", "td"})
_BOXES = frozenset({"header", "footer", "aside"})
_TAG = re.compile(rf"<(/?)({'|'.join(sorted(_CONTENT | _BOXES))})(?![\w-])([^<>]{{0,2000}})>", re.IGNORECASE)
_OWN_ROLE = re.compile(r"""\brole\s?=\s?["']?(?:doc-|note\b|alert\b)""", re.IGNORECASE)
_HEADING = re.compile(r"<h[1-6][\s>]", re.IGNORECASE)
_MAIN_HEADING = re.compile(r"<h1[\s>]", re.IGNORECASE)
_LINK = re.compile(r"<(a|button|nav)\b(?:[^<]|<(?!/?(?:a|button|nav)\b))*</\1", re.IGNORECASE)
_UNSEEN = re.compile(
    r"<(script|style|svg|noscript|template|head)\b(?:[^<]|<(?!/?\1\b))*</\1|<!--(?:[^<-]|-(?!->)|<(?!!--))*-->",
    re.IGNORECASE,
)
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
    page = _PERMALINK.sub("", page)
    heading = _MAIN_HEADING.search(page)
    parts, at = [], 0
    for box in sorted(_boxes(page, is_inside=not is_site), key=lambda box: box.start):
        if box.start >= at and not _belongs(page, box, heading.start() if heading else -1):
            parts.append(page[at : box.start])
            at = box.end
    return "".join([*parts, page[at:]])


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
    start = heading.start() if heading else articles.start
    outside = _prose(page[:start] + page[articles.stop :])
    is_small = _prose(inside) < outside * (_BELOW_HEADING if heading else _WITH_HEADING)
    return page if is_small else page[start : articles.stop]


def _span(page: str, tag: str) -> range | None:
    opening = re.search(rf"<{tag}[\s>]", page, re.IGNORECASE)
    *_, closing = None, *re.finditer(rf"</{tag}\s*>", page, re.IGNORECASE)
    return range(opening.start(), closing.end()) or None if opening and closing else None


def _prose(content: str) -> int:
    """How many letters and digits a part of a page has outside of links and buttons."""
    return len(_MARKUP.sub("", _LINK.sub("", _UNSEEN.sub("", content))))


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
            inside = is_inside or any(names[part] for part in _CONTENT)
            yield _Box(name, opened[3], opened.start(), tag.end(), inside)


def _belongs(page: str, box: _Box, main_heading: int) -> bool:
    """Whether a box belongs to the content of a page."""
    if _OWN_ROLE.search(box.attributes):
        return True
    content = page[box.start : box.end]
    if not box.is_inside:
        return box.name == "header" and box.start < main_heading < box.end
    return (box.name == "header" and bool(_HEADING.search(content))) or not _is_links(content)


def _is_links(content: str) -> bool:
    """Whether most words of a box are in links and buttons."""
    return len(_MARKUP.sub("", content)) > 2 * _prose(content)


_TABLE = re.compile(r"<(/?)table\b[^<>]*>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b", re.IGNORECASE)
_CELL = re.compile(r"<t[dh]\b[^<>]*>((?:[^<]|<(?!/?t[dhr]\b))*+)", re.IGNORECASE)
_BLANK = re.compile(r"<[^<>]*>|&nbsp;|\s")
_PART = re.compile(r"<(/?)(?:table|thead|tbody|tfoot|tr|t[dh])\b[^<>]*>", re.IGNORECASE)
_ROWS, _CELLS = 2, 2  # a table of data in a mail has that many
_LONG = 300  # characters: a cell with more holds a text

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
    page = _changed_tables(page, _code_of)
    page = _PRE_TWICE.sub("</pre>", _PRE_AROUND.sub("", page)) if "<pre>" in page else page
    page = _PRE.sub(lambda code: _NO_CODE.sub("", code[0]), page)
    return without_layout_tables(page, _lays_out)


def without_layout_tables(page: str, lays_out: Callable[[str], bool]) -> str:
    """The page with tables that `lays_out` names, and those with tables inside, turned into plain blocks."""

    def blocks(part: str) -> str:
        return _PART.sub(r"<\1div>", part)

    return _changed_tables(page, lambda table: blocks(table) if lays_out(table) else table, blocks)


def is_no_data(table: str) -> bool:
    """Whether a table of a mail is layout: one of data has at least two rows with two short texts each."""
    full = 0
    for row in _ROW.split(table)[1:]:
        texts = [text for cell in _CELL.findall(row) if (text := _BLANK.sub("", cell))]
        if any(len(text) > _LONG for text in texts):
            return True
        full += len(texts) >= _CELLS
    return full < _ROWS


def _lays_out(table: str) -> bool:
    """Whether a table of a page is layout: it says so, or it has blocks in its cells, and no header cells."""
    return bool(_PRESENTATION.match(table)) or (not _HEADER.search(table) and bool(_BLOCKS.search(table)))


def _innermost_tables(page: str) -> Iterator[tuple[int, int]]:
    """The spans of tables without tables inside, in order."""
    opened = -1
    for tag in _TABLE.finditer(page):
        if not tag[1]:
            opened = tag.start()
        elif opened >= 0:
            yield opened, tag.end()
            opened = -1


def _changed_tables(page: str, change: Callable[[str], str], outside: Callable[[str], str] = str) -> str:
    """The page with its innermost tables as `change` returns them, and what is around as `outside` does."""
    parts, at = [], 0
    for start, end in _innermost_tables(page):
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
