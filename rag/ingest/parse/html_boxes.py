"""What a page has for its site's sake: headers, footers and asides of the site, and links to headings.

A header, footer or aside inside an article, a section or the main part belongs to the content, as HTML says:
it has the headline, corrections, notes. There it is only left out if it consists of links. Outside, it is the
site's, unless it says otherwise: by its role, or by having the only main heading of the page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
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
    closings = [match.end() for match in re.finditer(rf"</{tag}\s*>", page, re.IGNORECASE)]
    return (
        range(opening.start(), closings[-1])
        if opening and closings and opening.start() < closings[-1]
        else None
    )


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
