"""HTML mails are laid out with tables; what is read of them are their texts."""

from __future__ import annotations

import re

_TABLE = re.compile(r"<(/?)table\b[^<>]*>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b", re.IGNORECASE)
_CELL = re.compile(r"<t[dh]\b[^<>]*>(.*?)(?=<t[dhr]\b|</t)", re.IGNORECASE | re.DOTALL)
_UNSEEN = re.compile(r"<[^<>]*>|&nbsp;|\s")
_PART = re.compile(r"<(/?)(?:table|thead|tbody|tfoot|tr|t[dh])\b[^<>]*>", re.IGNORECASE)
_ROWS, _CELLS = 2, 2  # a table of data has that many
_LONG = 300  # characters: a cell with more holds a text


def without_layout(html: str) -> str:
    """The HTML with tables that only place things turned into plain blocks.

    A table of data has no table inside, and at least two rows with two short texts each.
    """
    done: list[str] = []
    at = 0
    for start, end in _innermost(html):
        if _is_data(html[start:end]):
            done += [_plain(html[at:start]), html[start:end]]
            at = end
    return "".join([*done, _plain(html[at:])])


def _innermost(html: str) -> list[tuple[int, int]]:
    """Where the tables without tables inside start and end, in order."""
    spans: list[tuple[int, int]] = []
    opened = -1
    for tag in _TABLE.finditer(html):
        if not tag[1]:
            opened = tag.start()
        elif opened >= 0:
            spans.append((opened, tag.end()))
            opened = -1
    return spans


def _is_data(table: str) -> bool:
    full = 0
    for row in _ROW.split(table)[1:]:
        texts = [text for cell in _CELL.findall(row) if (text := _UNSEEN.sub("", cell))]
        if any(len(text) > _LONG for text in texts):
            return False
        full += len(texts) >= _CELLS
    return full >= _ROWS


def _plain(html: str) -> str:
    return _PART.sub(r"<\1div>", html)
