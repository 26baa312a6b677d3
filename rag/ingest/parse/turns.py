"""The turns of a transcript: a long one is a section with the name of its speaker, which all its parts have.

Turns begin as Markdown writes them ("**Ann Lee:** …"), or with a line of a name and a time as in the texts of
Otter, Teams, Zoom and Rev ("Ann Lee  00:06").
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rag.corpus import Block
from rag.ingest.parse.document_parts import block as trimmed_block

_LONG = 800  # characters of a turn that more than one passage may hold
_FEWEST = 3  # turns of a transcript
_SECTION = 60  # seconds of short turns under one time, as in subtitles
_NAME = r"[^\W\d_][\w .,'’()&-]{0,60}?"
_TURN = re.compile(
    rf"\*\*(?P<bold>{_NAME})(?::\*\*|\*\*:)\s*"
    rf"|\[?(?P<name>{_NAME})\]?[ \t]{{1,4}}[(\[]?(?P<time>(?:\d{{1,2}}:)?\d{{1,2}}:\d\d)[)\]]?:?"
    r"[ \t]*(?:\n|\Z)"
)


class _Turn(NamedTuple):
    """A turn: the numbers of its first block and of the one behind it, its speaker and its time."""

    first: int
    end: int
    match: re.Match[str]
    length: int

    @property
    def speaker(self) -> str:
        """The name as it stands."""
        return self.match["bold"] or self.match["name"]

    @property
    def seconds(self) -> int:
        """The time, 0 without one."""
        parts = [int(part) for part in (self.match["time"] or "0").split(":")]
        return sum(part * 60**power for power, part in enumerate(reversed(parts)))


def with_turns(text: str, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks of a transcript with headings where a long turn, or a minute of short ones, begins.

    Other texts stay: in a transcript, speakers take turns, one speaks again, and headings are few.
    """
    turns = [*_turns(text, blocks)]
    speakers = [turn.speaker for turn in turns]
    changes = sum(before != after for before, after in pairwise(speakers))
    is_dialogue = (
        len(turns) >= _FEWEST and 1 < len({*speakers}) < len(turns) and 2 * changes >= len(turns) - 1
    )
    if not is_dialogue or 3 * sum(block.kind == "heading" for block in blocks) > len(turns):
        return (*blocks,)
    return (*_with_headings(text, blocks, dict(_begins(turns))),)


def _turns(text: str, blocks: Sequence[Block]) -> Iterator[_Turn]:
    begins = [
        (number, match)
        for number, block in enumerate(blocks)
        if block.kind == "paragraph" and (match := _TURN.match(text, block.start, block.end))
    ]
    borders = {number for number, _ in begins} | {at for at, block in enumerate(blocks) if block.level}
    ends = sorted({*borders, len(blocks)})
    for number, match in begins:
        end = ends[bisect_right(ends, number)]
        yield _Turn(number, end, match, blocks[end - 1].end - match.end())


class _Begin(NamedTuple):
    """The beginning of a section: where its heading ends, its title, its level below the heading above."""

    end: int
    title: str
    level: int


def _begins(turns: Sequence[_Turn]) -> Iterator[tuple[int, _Begin]]:
    """The sections by the numbers of their first blocks.

    A long turn is below the short ones right before it, so that a question stays with its answer.
    """
    last: _Turn | None = None  # that began a section
    for turn in turns:
        time = turn.match["time"] or ""
        is_below = last is not None and last.length <= _LONG
        if turn.length > _LONG:
            yield turn.first, _Begin(turn.match.end(), f"{turn.speaker} {time}".strip(), 2 if is_below else 1)
        elif last is None or not is_below or turn.seconds - last.seconds >= _SECTION:
            yield turn.first, _Begin(turn.match.end(), time, 1)
        else:
            continue
        last = turn


def _with_headings(text: str, blocks: Sequence[Block], begins: Mapping[int, _Begin]) -> Iterator[Block]:
    above = 0  # the level of the last heading of the document
    for number, block in enumerate(blocks):
        above = block.level or above
        if not (begin := begins.get(number)):
            yield block
            continue
        level = above + begin.level
        yield from trimmed_block(text, "heading", block.start, begin.end, level=level, title=begin.title)
        yield from trimmed_block(text, "paragraph", begin.end, block.end)
