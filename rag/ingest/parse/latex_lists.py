"""The lists of LaTeX: their items with the numbers and labels that a reader sees."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag.ingest.parse.document_parts import numeral
from rag.ingest.parse.latex_tables import DEEP_TEXT
from rag.ingest.parse.typefaces import TICKED, UNTICKED

LIST = re.compile(
    r"\\(begin|end)\{(itemize|enumerate|description|compactitem|compactenum|thebibliography)\}"
    r"(\[[^\]]*\]|\{[^{}]*\})?"
)
_NUMBERED = frozenset({"enumerate", "compactenum"})
_ITEM = (
    r"\\(?:item\b|bibitem\b(?=[^{}]*\{(?P<key>[^{}]*)\}))\s*(?:\[(?P<label>[^\[\]]*)\])?(?(key)\{[^{}]*\})"
)
_COUNTER = r"\\(?P<how>set|addto)counter\{enum[iv]{1,3}\}\{(?P<value>-?\d{1,6}|\\value\{[^{}]*\})\}"
_PIECES = re.compile(
    rf"{LIST.pattern}|(?P<item>{_ITEM})|{_COUNTER}|\\labelenum(?P<level>i{{1,3}}|iv)\s*\{{(?P<form>{DEEP_TEXT})\}}"
)
LABEL_DEFINITION = re.compile(r"\\(?:def|renewcommand\*?)\s*\{?\\labelenum(i{1,3}|iv)\}?\s*(?=\{)")
_LABEL_OPTION = re.compile(rf"\blabel\s*=\s*(?:\{{({DEEP_TEXT})\}}|([^,\]]*))|\[([^\],=]*)\]")
_LABEL_FORM = re.compile(
    r"(?P<before>.*?)\\(?P<counts>arabic|alph|Alph|roman|Roman)\s*(?:\*|\{enum[iv]{1,3}\})(?P<behind>.*)"
    r"|(?P<before_short>\W*)(?P<short>[1aAiI])(?P<behind_short>\W*)",
    re.DOTALL,
)
_COUNTS = {"alph": "a", "Alph": "A", "roman": "i", "Roman": "I"}
_LIST_LEVELS = ("i", "ii", "iii", "iv")
_START = re.compile(r"\bstart\s*=\s*(\d{1,6})")
_CHECKED = {"$\\boxtimes$": TICKED, "$\\square$": UNTICKED}
"""Labels that pandoc writes for items with a box."""


@dataclass(slots=True)
class _List:
    """A list that is being read.

    `level` counts the numbered lists around it, `last` is the number of the last item, and `form` is what
    stands before a number, how it is written, and what stands behind: ("(", "a", ")").
    """

    kind: str
    level: int
    last: int
    form: tuple[str, str, str]


class ListReader:
    """Reads the lists of a file in order; `plain` gives the words of a text."""

    def __init__(self, plain: Callable[[str], str]) -> None:
        self._plain = plain
        self._forms: dict[int, tuple[str, str, str]] = {}  # of the labels of numbered lists, by level
        self._ended: dict[int, int] = {}  # the last number of the last list, by level

    def read_preamble(self, text: str) -> None:
        """Note the labels of lists that a preamble sets."""
        for label in _PIECES.finditer(text):
            if label["form"] and (form := self._label_form(label["form"])):
                self._forms[_LIST_LEVELS.index(label["level"])] = form

    def items(self, text: str, begin: re.Match[str]) -> str:
        """The lines of a list by the tag that begins it; nested lists are indented."""
        lines: list[str] = []
        lists, at = [self._list(begin, [])], 0
        marks = [*_PIECES.finditer(text)]
        for mark, end in zip(marks, [*(mark.start() for mark in marks), len(text)][1:], strict=True):
            if mark[1] == "begin":
                lists.append(self._list(mark, lists))
            elif mark[1] and len(lists) > 1:
                self._end(lists.pop())
            else:
                self._count(lists[-1], mark)
            at = mark.end()
            if line := self._item_line(lists[-1], mark, self._plain(text[at:end])):
                lines.append(f"{'  ' * (len(lists) - 1)}{line}")
        for list_ in lists:
            self._end(list_)
        return "\n".join(lines)

    def _list(self, begin: re.Match[str], around: Sequence[_List]) -> _List:
        """A list that begins, by its options and those of its level."""
        level = sum(list_.kind in _NUMBERED for list_ in around)
        option = begin[3] or ""
        stated = _LABEL_OPTION.search(option)
        form = next(filter(None, stated.groups()), "") if stated else ""
        start = _START.search(option)
        last = int(start[1]) - 1 if start else self._ended.get(level, 0) if "resume" in option else 0
        default = self._forms.get(level, ("", "1", "."))
        return _List(begin[2], level, last, self._label_form(form) or default)

    def _end(self, list_: _List) -> None:
        if list_.kind in _NUMBERED:
            self._ended[list_.level] = list_.last

    def _count(self, list_: _List, mark: re.Match[str]) -> None:
        """Set the number of the last item, or the form of labels, if a mark does."""
        if value := mark["value"]:
            number = self._ended.get(list_.level, 0) if value.startswith("\\") else int(value)
            list_.last = number + (list_.last if mark["how"] == "addto" else 0)
        elif mark["form"]:
            list_.form = self._label_form(mark["form"]) or list_.form

    def _label_form(self, text: str) -> tuple[str, str, str] | None:
        r"""How items are labelled: "(\alph*)" and "(a)" -> ("(", "a", ")"); None for what isn't a form."""
        form = _LABEL_FORM.fullmatch(text.strip())
        if not form:
            return None
        counts = form["short"] or _COUNTS.get(form["counts"], "1")
        around = (form["before"] or form["before_short"] or "", form["behind"] or form["behind_short"] or "")
        before, behind = map(self._plain, around)
        return f"{before} " if before[-1:].isalnum() else before, counts, behind

    def _item_line(self, list_: _List, mark: re.Match[str], text: str) -> str:
        """The line of an item, below which the text of a mark goes on that begins none."""
        label, is_numbered = self._plain(mark["label"] or ""), list_.kind in _NUMBERED
        if label in _CHECKED:
            return f"- {_CHECKED[label]} {text}".rstrip()
        if is_numbered and label.endswith((".", ")")):
            return f"{label} {text}".rstrip()
        line = f"{label}: {text}" if label and text else label or text
        line = f"[{mark['key']}] {line}" if mark["key"] else line
        if not line or not mark["item"]:
            return line
        if label or not is_numbered:
            return f"- {line}"
        list_.last += 1
        before, counts, behind = list_.form
        return f"{before}{numeral(list_.last, counts)}{behind} {line}"
