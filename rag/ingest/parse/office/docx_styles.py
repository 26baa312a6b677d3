"""The styles and the numbering of a Word document."""

from __future__ import annotations

import re
from typing import NamedTuple
from xml.etree.ElementTree import Element

from rag.ingest.parse.document_parts import numeral
from rag.ingest.parse.zip_package import child, descendants, is_on, value, whole_number

_HEADING = re.compile(r"heading ([1-9])")
_MAX_INHERITED = 20  # styles above a style; a loop of them ends here
_LEVELS = 9
_BULLET = "-"
_COUNTS_IN = {"lowerLetter": "a", "upperLetter": "A", "lowerRoman": "i", "upperRoman": "I"}


class Style(NamedTuple):
    """A style: its name in small letters, the level of a heading or 0, and its list, if it has one."""

    name: str = ""
    level: int = 0
    hidden: bool = False
    bold: bool = False
    list_id: str = ""
    list_level: str = ""


class Styles:
    """The styles of a document by their ids, with what they inherit."""

    def __init__(self, root: Element) -> None:
        elements = {element.get("styleId", ""): element for element in root.iter("style")}
        self._styles = {id_: _style(id_, elements) for id_ in elements}
        defaults = (
            self._styles[id_]._replace(name="")
            for id_, element in elements.items()
            if element.get("type") == "paragraph" and element.get("default") in {"1", "true"}
        )
        self._default = next(defaults, Style())

    def __getitem__(self, id_: str) -> Style:
        """The style of an id; the default style for "" and unknown ids."""
        return self._styles.get(id_, self._default)


def _style(id_: str, elements: dict[str, Element]) -> Style:
    style = Style((value(elements[id_], "name")).lower())
    for _ in range(_MAX_INHERITED):
        element = elements.get(id_)
        if element is None:
            break
        style = _with_base_style(style, element)
        id_ = value(element, "basedOn")
    return style


def _with_base_style(style: Style, above: Element) -> Style:
    heading = _HEADING.fullmatch(value(above, "name").lower())
    outline = value(above, "pPr", "outlineLvl")
    level = int(outline) + 1 if outline.isdecimal() and int(outline) < _LEVELS else 0
    level = level or (int(heading[1]) if heading else int(value(above, "name").lower() == "title"))
    return style._replace(
        level=style.level or level,
        hidden=style.hidden or is_on(above, "rPr", "vanish"),
        bold=style.bold or is_on(above, "rPr", "b"),
        list_id=style.list_id or value(above, "pPr", "numPr", "numId"),
        list_level=style.list_level or value(above, "pPr", "numPr", "ilvl"),
    )


_CODE_STYLE = re.compile(r"\bcode\b|quellcode|verbatim|html (?:preformatted|vorformatiert)|listing")
_TYPEWRITERS = frozenset({"courier", "courier new", "liberation mono"})
_CODE_FONTS = frozenset(
    {
        *("consolas", "menlo", "monaco", "lucida console", "source code pro", "cascadia code"),
        *("cascadia mono", "dejavu sans mono", "jetbrains mono", "fira code", "fira mono", "roboto mono"),
        "ubuntu mono",
    }
)


def is_code(style: Style, fonts: set[str], *, is_indented: bool) -> bool:
    """Whether a paragraph is a line of code: by its style, or by the fonts of its text.

    Whole letters are in Courier, so that counts only where a line is indented.
    """
    code_fonts = _CODE_FONTS | (_TYPEWRITERS if is_indented else frozenset())
    return bool(_CODE_STYLE.search(style.name)) or (bool(fonts) and {*map(str.casefold, fonts)} <= code_fonts)


class _Level(NamedTuple):
    kind: str
    text: str
    start: int
    is_legal: bool = False
    """Whether letters and Roman numbers in its text are digits: "Article I" and below it "Section 1.01"."""


class Numbering:
    """The lists of a document and their counters."""

    def __init__(self, root: Element, styles: Styles) -> None:
        self._abstract: dict[str, dict[int, _Level]] = {}
        self._lists: dict[str, str] = {}
        self._restarts: dict[str, dict[int, int]] = {}
        self._counts: dict[str, list[int]] = {}
        self._started_lists: set[str] = set()
        linked = {}
        for definition in descendants(root, "abstractNum"):
            id_ = definition.get("abstractNumId", "")
            self._abstract[id_] = {
                whole_number(level.get("ilvl", "")): _level(level) for level in descendants(definition, "lvl")
            }
            if link := value(definition, "numStyleLink"):
                linked[id_] = styles[link].list_id
        for instance in descendants(root, "num"):
            id_ = instance.get("numId", "")
            self._lists[id_] = value(instance, "abstractNumId")
            self._restarts[id_] = {
                whole_number(level.get("ilvl", "")): whole_number(value(level, "startOverride"))
                for level in descendants(instance, "lvlOverride")
                if child(level, "startOverride") is not None
            }
        for id_, list_id in linked.items():
            if list_id in self._lists:
                self._abstract[id_] = self._abstract.get(self._lists[list_id], {})

    def mark(self, about: Element | None, style: Style) -> tuple[str, int]:
        """The mark and the depth of a list paragraph: ("-", 0), ("2.1.", 1); ("", 0) outside of lists."""
        direct_id = value(about, "numPr", "numId")
        list_id = direct_id or style.list_id
        depth = whole_number(value(about, "numPr", "ilvl") or ("" if direct_id else style.list_level))
        abstract = self._lists.get(list_id, "")
        levels = self._abstract.get(abstract, {})
        if list_id in {"", "0"} or not levels:
            return "", 0
        depth = min(depth, _LEVELS - 1)
        level = levels.get(depth, _Level("bullet", "", 1))
        counts = self._advanced_counts(list_id, abstract, levels, depth)
        if level.kind == "bullet":
            return _BULLET, depth
        numbers = [_level_number(counts, levels, at, is_legal=level.is_legal) for at in range(_LEVELS)]
        return re.sub(r"%([1-9])", lambda match: numbers[int(match[1]) - 1], level.text).strip(), depth

    def _advanced_counts(
        self, list_id: str, abstract: str, levels: dict[int, _Level], depth: int
    ) -> list[int]:
        counts = self._counts.setdefault(abstract, [0] * _LEVELS)  # lists of one definition count on together
        if list_id not in self._started_lists:  # an override restarts a list only where it is first used
            self._started_lists.add(list_id)
            for at, start in self._restarts.get(list_id, {}).items():
                if at < _LEVELS:
                    counts[at] = start - 1
        for at in range(depth + 1):
            start = levels[at].start if at in levels else 1
            if counts[at] == 0 and at < depth:  # a level above that has no item yet counts as begun
                counts[at] = start
            elif at == depth:
                counts[at] = max(counts[at] + 1, start)
        counts[depth + 1 :] = [0] * (_LEVELS - depth - 1)  # deeper lists start again below each item
        return counts


def _level(element: Element) -> _Level:
    start = value(element, "start")
    kind = value(element, "numFmt") or "decimal"
    first = whole_number(start) if start else 1
    return _Level(kind, value(element, "lvlText"), first, is_on(element, "isLgl"))


def _level_number(counts: list[int], levels: dict[int, _Level], at: int, *, is_legal: bool) -> str:
    number, kind = counts[at], levels[at].kind if at in levels else "decimal"
    if kind in {"none", "bullet"}:
        return ""
    if kind == "decimalZero":
        return f"{number:02}"
    if is_legal:
        return str(number)
    times = min(1 + (number - 1) // 26, 9) if kind.endswith("Letter") and number > 0 else 1  # z, aa, bb
    return numeral(number, _COUNTS_IN.get(kind, "")) * times
