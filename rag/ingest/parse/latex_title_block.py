r"""What a LaTeX file states about itself, and how \maketitle prints it: title, people, places, date."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from rag.ingest.parse.latex_tables import DEEP_TEXT
from rag.text.plain_text import one_line

_STATED = re.compile(
    r"\\(?P<what>title|subtitle|author|affil|affiliation|institute|address|email|date)(?![a-zA-Z@])\*?"
    rf"(?:\s*\[(?P<mark>[^\[\]]*)\])?\s*\{{(?P<text>{DEEP_TEXT})\}}"
)
_MAKETITLE = re.compile(r"\\(?:maketitle|titlepage)(?![a-zA-Z@])")
_PEOPLE, _DATE = 2, 3
_ORDER = {"title": 0, "subtitle": 1, "date": _DATE}
_AND = re.compile(r"\s*\\(?:and|And|AND)(?![a-zA-Z@])\s*")
_LINE_END = re.compile(r"\s*(?:\\\\\*?(?:\[[^\[\]]*\])?|\\(?:newline|IEEEauthorblockA)(?![a-zA-Z@]))\s*")
_NEXT_PLACE = re.compile(
    r"\}\s*(?=\\(?:department|institution|streetaddress|city|state|postcode|country)\s*\{)"
)
_MARK = r"(?:\d{1,2}|[a-z*†‡])"  # of a footnote; other options are short forms for running heads
_MARKS = re.compile(rf"{_MARK}(?:,\s?{_MARK})*")
_NOTE = re.compile(
    r"\\(?:thanks|footnote|footnotemark|inst|orcidID|IEEEauthorrefmark|corref|fnref)(?![a-zA-Z@])"
    rf"\s*(?:\[[^\[\]]*\])?\{{{DEEP_TEXT}\}}"
)
_TODAY = r"\today"


class Statements(NamedTuple):
    """What a file states about itself, in LaTeX without notes; `authors` may have their places among them."""

    title: str
    authors: list[str]
    date: str


def statements(text: str) -> Statements:
    """What a file states about itself; "" for what it doesn't."""
    texts: dict[str, list[str]] = {}
    for stated in _STATED.finditer(text):
        texts.setdefault(stated["what"], []).append(one_line(_NOTE.sub("", stated["text"])))
    title, date = (texts.get(what, [""])[0] for what in ("title", "date"))
    people = (part for listed in texts.get("author", []) for part in _AND.split(listed))
    authors = [line for part in people for line in _LINE_END.split(part)]
    return Statements(title, authors, "" if _TODAY in date else date)


def with_title_block(preamble: str, body: str) -> str:
    r"""The body of a file with the title block that \maketitle prints, without the commands that state it."""
    command = _MAKETITLE.search(body)
    if not command:
        return body
    in_body = [*_STATED.finditer(body, 0, command.start())]
    start = in_body[0].start() if in_body else command.start()  # an abstract may precede \maketitle
    block = _title_block([*_STATED.finditer(preamble), *in_body])
    below = _STATED.sub("", body[start : command.start()])
    return "\n\n".join((body[:start], block, below, body[command.end() :]))


def _title_block(stated: Iterable[re.Match[str]]) -> str:
    """Title, people with their places, and date; entries of one line each stand below each other."""
    stated = sorted(stated, key=_order)
    is_numbered = any(r"\inst" in match["text"] for match in stated if match["what"] == "author")
    groups: dict[int, list[str]] = {}
    for match in stated:
        if not (match["what"] == "date" and _TODAY in match["text"]):
            groups.setdefault(_order(match), []).extend(_entries(match, is_numbered=is_numbered))
    gaps = ("\n\n" if any("\n" in entry for entry in entries) else "\n" for entries in groups.values())
    return "\n\n".join(gap.join(entries) for gap, entries in zip(gaps, groups.values(), strict=True))


def _order(stated: re.Match[str]) -> int:
    return _ORDER.get(stated["what"], _PEOPLE)


def _entries(stated: re.Match[str], *, is_numbered: bool) -> list[str]:
    """The entries of a command, with the marks that lead from people to places: "Ann [1]", "[1] Graz"."""
    parts = [
        _LINE_END.sub("\n", _NEXT_PLACE.sub("}, ", part)).strip()
        for part in _AND.split(one_line(stated["text"]))
    ]
    mark = stated["mark"] or ""
    if stated["what"] == "institute" and is_numbered and len(parts) > 1:
        return [part if r"\inst" in part else f"[{at}] {part}" for at, part in enumerate(parts, 1)]
    if _order(stated) != _PEOPLE or not _MARKS.fullmatch(mark):
        return parts
    return [f"{part} [{mark}]" if stated["what"] == "author" else f"[{mark}] {part}" for part in parts]
