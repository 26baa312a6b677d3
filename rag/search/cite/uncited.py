"""Finds the paragraphs of an answer that state something and cite nothing.

A citation anywhere in a paragraph, list item or table row is enough for it. One that stands alone in the next
paragraph counts for the one before, and one in the introduction of a list ("As [a/1] says:") for its items.
What states nothing needs none: headings, introductions that end with a colon, questions, the head of a table,
rules and code. Quotes are checked by themselves.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from rag.search.cite.parse import paragraphs

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w")
_ITEM = re.compile(r"\A[ \t]*(?:[-*+•]|\d+[.)])[ \t]")
_HEADING = re.compile(r"[ \t]*(?:#|(\*\*|__)[^\n]*\1[ \t]*\Z|[^\n]+\n[ \t]*(?:=+|-+)[ \t]*\Z)")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+[-:| \t]*\Z")
_CLOSING = " \t\n*_)]\"'”»"


def uncited(answer: str) -> tuple[str, ...]:
    r"""The paragraphs that lack a citation, in order, without the marks of lists.

    Example: "It swings [ab/1].\n\nIt stops." -> ("It stops.",)
    """
    found = [*paragraphs(_FENCED.sub("", answer)), ("", False)]
    covered = {*_items_of_cited_introductions(found)}
    return tuple(
        _ITEM.sub("", text, count=1).strip()
        for at, ((text, is_cited), (following, follows_cited)) in enumerate(pairwise(found))
        if not is_cited
        and at not in covered
        and not (follows_cited and not _WORD.search(following))
        and _states(text, following)
    )


def _states(text: str, following: str) -> bool:
    """Whether a paragraph without citations states something."""
    if not _WORD.search(text) or text.lstrip().startswith(">") or _HEADING.match(text):
        return False
    if text.lstrip().startswith("|") and _TABLE_RULE.match(following):
        return False
    return not text.rstrip(_CLOSING).endswith((":", "?", "：", "？"))


def _items_of_cited_introductions(found: list[tuple[str, bool]]) -> Iterator[int]:
    is_covering = False
    for at, (text, is_cited) in enumerate(found):
        if not _ITEM.match(text):
            is_covering = is_cited and text.rstrip(_CLOSING).endswith((":", "："))
        elif is_covering:
            yield at
