"""Finds a section of a source by its heading, as a reader or a model writes it."""

from __future__ import annotations

import re
import unicodedata
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rag.errors import InvalidRequestError
from rag.search.reply.untrusted import label
from rag.text import Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rag.corpus import Heading

MOST_NAMED = 8  # headings in an error, or positions in a note
MOST_COMPARED = 2_000  # headings that an error is compared with to name the nearest; some 50 ms
MOST_WORDS = 8  # of what is wanted that are compared
NEAR = 0.75  # of `difflib`, from 0 to 1: "parentl" and "parental" have 0.93, "maternity" and "policy" 0.4
_WORD = re.compile(r"\w{3,}")  # shorter ones stand in every other heading
_BETWEEN = re.compile(r"\s+[>›]\s+")  # the headings of a path, as search results show it
_MARKS = re.compile(r"#{1,6}\s+")


def section_span(
    title: str, outline: Sequence[Heading], length: int, wanted: str, start: int | None = None
) -> tuple[Span, tuple[str, ...]]:
    """The section whose heading is `wanted`, its subsections included, and notes on others of this name.

    `wanted` is a heading or a path of headings ("Leave > Parental leave"), which may begin with the source's
    `title`. Exact matches go first, then those without letter case, then the only heading that begins with
    it or contains it. Of several sections with one heading it is the first, or the one that contains
    `start`. `length` is that of the text.

    Raises:
        InvalidRequestError: no heading matches, or several different ones do, or `start` is in none of them.
    """
    spans = [_section(one, outline, length) for one in headed(title, outline, wanted)]
    if start is None:
        chosen = spans[0]
    elif inside := [span for span in spans if span.start <= start < span.end]:
        chosen = inside[-1]
    else:
        raise InvalidRequestError(
            f"start must be from {spans[0].start} to {spans[0].end - 1} in this section."
        )
    others = [span.start for span in spans if span != chosen]
    return chosen, (_others_note(others),) if others else ()


def headed(title: str, outline: Sequence[Heading], wanted: str) -> list[Heading]:
    """The headings that `wanted` names, in order, all of the same title; see `section_span`."""
    if not outline:
        raise InvalidRequestError("This document has no headings; open it without section.")
    titles = [_shown(heading.title) for heading in outline]
    folded = [one.casefold() for one in titles]
    written = _shown(wanted)
    names = dict.fromkeys([written, _MARKS.sub("", written, count=1)])
    for name in names:
        same = _where(titles, name.__eq__) or _where(folded, name.casefold().__eq__)
        if found := same or _by_path(title, outline, folded, name):
            return [outline[index] for index in found]
    *_, name = names
    found = _alike(titles, folded, name.casefold()) if name else []
    if not found:
        raise InvalidRequestError(_nothing(titles, folded, name.casefold()))
    return [outline[index] for index in found]


def _alike(titles: Sequence[str], folded: Sequence[str], name: str) -> list[int]:
    """The headings that begin with a name, or else contain it; all of the same title."""
    found = _where(folded, lambda one: one.startswith(name)) or _where(folded, lambda one: name in one)
    if len({folded[index] for index in found}) > 1:
        raise InvalidRequestError(f"Several headings match section: {_listed(titles[i] for i in found)}.")
    return found


def _shown(title: str) -> str:
    """A heading as replies show it, which is how it comes back, in one Unicode normal form."""
    return unicodedata.normalize("NFC", label(title))


def _where(titles: Sequence[str], matches: Callable[[str], object]) -> list[int]:
    return [index for index, title in enumerate(titles) if matches(title) is True]


def _by_path(title: str, outline: Sequence[Heading], folded: Sequence[str], wanted: str) -> list[int]:
    """The headings at the end of a path; the headings above may leave some out."""
    *above, last = _BETWEEN.split(wanted.casefold())
    if not above:
        return []
    found = []
    path: list[tuple[int, str]] = [(0, _shown(title).casefold())]
    for index, heading in enumerate(outline):
        while path[1:] and path[-1][0] >= heading.level:
            path.pop()
        if folded[index] == last and _is_within(above, [name for _, name in path]):
            found.append(index)
        path.append((heading.level, folded[index]))
    return found


def _is_within(some: Sequence[str], names: Iterable[str]) -> bool:
    """Whether `some` are among `names`, in their order."""
    rest = iter(names)
    return all(one in rest for one in some)


def _section(heading: Heading, outline: Sequence[Heading], length: int) -> Span:
    """From a heading to the next of its level or a higher one."""
    ends = (one.start for one in outline if one.start > heading.start and one.level <= heading.level)
    return Span(heading.start, next(ends, length))


def _others_note(starts: Sequence[int]) -> str:
    listed = ", ".join(map(str, starts[:MOST_NAMED]))
    more = f" and {len(starts) - MOST_NAMED} more" if len(starts) > MOST_NAMED else ""
    return f"Other sections have this heading, at {listed}{more}: add start to open one of them."


def _nothing(titles: Sequence[str], folded: Sequence[str], wanted: str) -> str:
    near = _with_words_of(wanted, folded[:MOST_COMPARED])
    if near:
        return f"No heading matches section. Near ones: {_listed(titles[index] for index in near)}."
    return f"No heading matches section. The first ones: {_listed(titles)}."


def _with_words_of(wanted: str, folded: Sequence[str]) -> list[int]:
    """The headings that share words with what is wanted, or have ones spelt nearly so, most of them first."""
    words = [{*_WORD.findall(heading)} for heading in folded]
    every = sorted(set().union(*words))
    alike = [
        {*get_close_matches(word, every, n=MOST_NAMED, cutoff=NEAR)}
        for word in dict.fromkeys(_WORD.findall(wanted)[:MOST_WORDS])
    ]
    shared = [sum(not near.isdisjoint(of_heading) for near in alike) for of_heading in words]
    return sorted((index for index, count in enumerate(shared) if count), key=lambda index: -shared[index])


def _listed(titles: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(titles))
    more = f" and {len(distinct) - MOST_NAMED} more" if len(distinct) > MOST_NAMED else ""
    return "; ".join(distinct[:MOST_NAMED]) + more
