"""What a LaTeX file defines and states: macros, acronyms, quantities, and its title block."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rag.ingest.parse.document_parts import listed_names, listed_pairs, toml_beside
from rag.ingest.parse.latex_tables import DEEP_TEXT
from rag.text.plain_text import one_line

MATH = re.compile(
    r"(?<!\\)\$\$.{1,8000}?\$\$|(?<!\\)\$(?:[^$\\\n]|\\.|\n(?!\n))+\$|\\\(.{1,8000}?\\\)|\\\[.{1,8000}?\\\]"
    r"|\\begin\{(equation|align|gather|multline|eqnarray|displaymath|math|alignat|flalign|IEEEeqnarray)(\*?)\}.{0,8000}?\\end\{\1\2\}",
    re.DOTALL,
)
_LISTS = toml_beside(__file__)
_READ = listed_names(_LISTS["read"])
FORMATTING = _READ | listed_names(_LISTS["formatting"])
"""Commands that only format: they can be dropped, or replaced by their arguments."""

_DEFINER = re.compile(
    r"\\(?P<how>(?:new|renew|provide)command|DeclareRobustCommand|DeclareMathOperator|[gex]?def|let)\*?\s*"
    r"(?:\{\s*\\(?P<braced>[a-zA-Z@]+|[^a-zA-Z@])\s*\}|\\(?P<bare>[a-zA-Z@]+|[^a-zA-Z@\s]))"
)
_PARAMETERS = re.compile(r"\s*(?:\[(\d)\]\s*)?(?:\[((?:[^\[\]{}]|\{[^{}]*\}){0,1000})\]\s*)?")
_NUMBERED = re.compile(r"\s*((?:#\d)*)([^{}\n]{0,80})(?=\{)")  # of \def; what is between delimits arguments
_OPTIONAL = re.compile(r"\s*\[((?:[^\[\]{}]|\{[^{}]*\}){0,2000})\]")
_TOKEN = re.compile("\\\\([a-zA-Z@]+)|\\\\.|[^\\\\$]+|.", re.DOTALL)
_LET = re.compile(r"[ \t]*=?[ \t]*(\\[a-zA-Z@]+|\\.|[^\s{}])?")
_BLANKS = re.compile(r"[ \t]*(?:\n[ \t]*)?")
_UNBRACED = re.compile("\\\\[a-zA-Z@]+|\\\\.|\ue000\\d+\ue001|[^\\s{}]")
_ENDS_IN_WORD = re.compile(r"\\[a-zA-Z@]+\Z")
_EACH, _IN_ALL = 5_000, 200_000  # expansions of a command in the text, and of all in a file: 2 s of CPU
_GROWTH, _GROWTH_IN_ALL = 500_000, 5_000_000  # characters, likewise


class _Macro(NamedTuple):
    """A macro: `body`, with #1 to #9 for its arguments; the first may have a default."""

    arguments: int
    default: str | None
    body: str


class _Frame:
    """A text that is being read: a file, or the body of a macro. `closing` has its pairs of braces."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.closing = text, 0, dict[int, int]()
        opened: list[int] = []
        for brace in re.finditer(r"\\.|[{}]", text, re.DOTALL):
            if brace[0] == "{":
                opened.append(brace.start())
            elif brace[0] == "}" and opened:
                self.closing[opened.pop()] = brace.start()

    def skip_blanks(self) -> bool:
        """Skip blanks and one line end, unless nothing follows. Returns whether something follows."""
        blanks = _BLANKS.match(self.text, self.at)
        end = blanks.end() if blanks else self.at
        self.at = end if end < len(self.text) else self.at
        return end < len(self.text)

    def argument(self) -> str | None:
        """The next argument: the content of braces, or a command, formula or character; None at the end."""
        if not self.skip_blanks():
            return None
        end = self.closing.get(self.at)
        if end is not None:
            start, self.at = self.at + 1, end + 1
            return self.text[start:end]
        token = MATH.match(self.text, self.at) or _UNBRACED.match(self.text, self.at)
        self.at = token.end() if token else self.at
        return token[0] if token else None

    def definition(self, header: re.Match[str], macros: dict[str, _Macro]) -> _Macro | None:
        """The definition that begins with `header`, which is skipped; None if it isn't supported."""
        self.at = header.end()
        if header["how"] == "let":
            target = _LET.match(self.text, self.at)
            self.at = target.end() if target else self.at
            name = (target and target[1]) or ""
            return macros.get(name.removeprefix("\\")) or _Macro(0, None, name)
        is_def = header["how"].endswith("def")
        stated = (_NUMBERED if is_def else _PARAMETERS).match(self.text, self.at)
        if stated is None:
            return None
        self.at = stated.end()
        body = self.argument()
        if body is None or (is_def and stated[2].strip()):
            return None
        number = len(stated[1]) // 2 if is_def else int(stated[1] or 0)
        lines = re.sub(r"\s*\n\s*", lambda m: "\n\n" if m[0].count("\n") > 1 else " ", body)
        return _Macro(number, None if is_def else stated[2], lines)


class Expansion:
    """Expands the macros that a text defines, also further below.

    A macro that doesn't end, or grows too large, stays unexpanded, as `mark` returns it, and is in `endless`.
    """

    def __init__(self, text: str, mark: Callable[[str], str]) -> None:
        self._frames = [_Frame(text)]
        self._mark = mark
        self._written: list[str] = []
        self._macros: dict[str, _Macro] = {}
        self._defined: set[str] = set()
        self._expansions = self._growth = 0
        # Of a macro in the file: its name and end; the pieces, expansions and growth before it.
        self._use = "", 0, 0, 0, 0
        self.endless: list[str] = []
        self._collect_definitions()

    def text(self) -> str:
        """The text with macros expanded and definitions removed."""
        while self._frames:
            self._step()
        return "".join(self._written)

    def _collect_definitions(self) -> None:
        frame = self._frames[0]
        while header := _DEFINER.search(frame.text, frame.at):
            macro, name = frame.definition(header, self._macros), header["braced"] or header["bare"]
            if macro and name not in _READ:
                self._macros.setdefault(name, macro)
        frame.at = 0

    def _step(self) -> None:
        frame = self._frames[-1]
        if frame.at == len(frame.text):
            self._end_body()
        elif header := _DEFINER.match(frame.text, frame.at):
            self._define(
                header["braced"] or header["bare"], frame.definition(header, self._macros), header["how"]
            )
        elif token := MATH.match(frame.text, frame.at):
            frame.at = token.end()
            self._written.append(token[0])
        elif token := _TOKEN.match(frame.text, frame.at):
            frame.at = token.end()
            self._read(token[0], token[1] or "")

    def _define(self, name: str, macro: _Macro | None, how: str) -> None:
        if name in _READ or (how in {"newcommand", "providecommand"} and name in self._defined):
            return
        self._defined.add(name)
        if macro:
            self._macros[name] = macro
        else:
            self._macros.pop(name, None)

    def _end_body(self) -> None:
        """Continue after the macro whose body ends here; "{}" separates its last command from a letter."""
        self._frames.pop()
        if self._frames and self._written and _ENDS_IN_WORD.match(self._written[-1]):
            frame = self._frames[-1]
            following = frame.text[frame.at : frame.at + 1]
            self._written += ["{}"] if following.isalpha() or following.isspace() else []

    def _read(self, token: str, name: str) -> None:
        if name in self.endless:
            self._written.append(self._mark(token))
        elif name in self._macros:
            if len(self._frames) == 1:
                spent = len(self._written), self._expansions, self._growth
                self._use = (name, self._frames[0].at, *spent)
            self._expand(self._macros[name])
        elif name != "xspace":  # the space after a command stays in any case
            self._written.append(token)

    def _expand(self, macro: _Macro) -> None:
        arguments = self._arguments(macro)
        sizes = (
            len(arguments[int(at) - 1])
            for at in re.findall("#([1-9])", macro.body)
            if int(at) <= macro.arguments
        )
        self._expansions += 1
        self._growth += len(macro.body) + sum(sizes)
        name, end, pieces, expansions, growth = self._use
        is_endless = self._expansions - expansions > _EACH or self._growth - growth > _GROWTH
        if is_endless or self._expansions > _IN_ALL or self._growth > _GROWTH_IN_ALL:
            del self._frames[1:], self._written[pieces:]
            self._frames[0].at = end
            self._written.append(self._mark(f"\\{name}"))
            self.endless.append(name)
        else:
            self._frames.append(_Frame(_with_arguments(macro.body, arguments)))

    def _arguments(self, macro: _Macro) -> list[str]:
        """The arguments that follow, if need be after the end of the current macro body."""
        values: list[str] = []
        while len(values) < macro.arguments:
            frame = self._frames[-1]
            if not frame.skip_blanks() and len(self._frames) > 1:
                self._frames.pop()
                continue
            option = None if values or macro.default is None else _OPTIONAL.match(frame.text, frame.at)
            frame.at = option.end() if option else frame.at
            if not values and macro.default is not None:
                values.append(option[1] if option else macro.default)
            else:
                values.append(frame.argument() or "")
        return values


def _with_arguments(body: str, arguments: list[str]) -> str:
    """The body of a macro with its arguments: ("#1 and ##", ["x"]) -> "x and #"."""

    def filled(match: re.Match[str]) -> str:
        before, number, following = match.groups(default="")
        if number == "#":
            return f"{before}#"
        value = arguments[int(number) - 1] if int(number) <= len(arguments) else ""
        gap = " " if before and value[:1].isalpha() else ""
        return before + gap + value + ("{}" if following and _ENDS_IN_WORD.search(value) else "")

    return re.sub(r"(\\[a-zA-Z@]+)?#([1-9#])(?=([a-zA-Z@])?)", filled, body)


# Acronyms of the packages glossaries, acro and acronym.
_ARGUMENT = r"\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
_NEW_ACRONYM = re.compile(rf"\\newacronym(?:\s*\[[^\[\]]*\])?{_ARGUMENT * 3}")
_NEW_TERM = re.compile(
    rf"\\(?:newglossaryentry|DeclareAcronym){_ARGUMENT}\s*\{{((?:[^{{}}]|\{{[^{{}}]*\}})*)\}}"
)
_FIELD = re.compile(r"(name|short|long)\s*=\s*(?:\{([^{}]*)\}|([^,{}\n]*))")
_USE = re.compile(
    r"\\(gls|ac|acr)(pl|p|s|l|f|short|long|full)?\*?(?![a-zA-Z@])\s*(?:\[[^\[\]]*\])?\{([^{}]*)\}",
    re.IGNORECASE,
)


def with_acronyms(text: str) -> str:
    """The text with acronyms as people see them: at first "X-ray diffraction (XRD)", then "XRD"."""
    forms: dict[str, tuple[str, str]] = {
        key.strip(): (short, long) for key, short, long in _NEW_ACRONYM.findall(text)
    }
    for key, stated in _NEW_TERM.findall(text):
        fields = {name: braced or plain.strip() for name, braced, plain in _FIELD.findall(stated)}
        forms[key.strip()] = fields.get("short") or fields.get("name") or key, fields.get("long", "")
    used = set[str]()

    def shown(use: re.Match[str]) -> str:
        key, kind = use[3].strip(), (use[2] or "").lower()
        if key not in forms:
            return use[0]
        short, long = forms[key]
        is_first = key not in used and bool(long)
        used.add(key)
        plural = "s" if kind in {"pl", "p"} else ""
        if kind in {"l", "long"}:
            return long or short
        if kind in {"s", "short"} or not (is_first or kind in {"f", "full"}):
            return short + plural
        words = f"{long}{plural} ({short}{plural})"
        return words[0].upper() + words[1:] if use[1][0].isupper() else words

    return _USE.sub(shown, _NEW_TERM.sub("", _NEW_ACRONYM.sub("", text))) if forms else text


# Quantities of siunitx as people see them: \SI{5}{\micro\metre} -> 5 µm.
_BRACED = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_QUANTITY = re.compile(
    rf"\\(?:(?P<range>SIrange|qtyrange)|(?P<one>SI|qty)|(?P<unit>si|unit)|(?P<angle>ang))(?![a-zA-Z@])\*?"
    rf"(?:\[[^\[\]]*\])?\s*{_BRACED}(?:\s*{_BRACED})?(?:\s*{_BRACED})?"
)
_NAME = re.compile(r"\\([a-zA-Z]+)\s*(?:\{([^{}]*)\})?|([^\\]+)")
_PREFIXES, _UNITS = listed_pairs(_LISTS["prefixes"]), listed_pairs(_LISTS["units"])
_POWERS = {"squared": "^2", "cubed": "^3", "square": "^2", "cubic": "^3"}


def with_quantities(text: str) -> str:
    """The text with its quantities as people see them; an unknown unit stays by its name."""
    return _QUANTITY.sub(_quantity, text) if "\\" in text else text


def _quantity(match: re.Match[str]) -> str:
    first, second, third = (group or "" for group in match.groups()[4:])
    if match["range"]:
        return f"{first} to {second} {unit_of(third)}".strip()
    if match["one"]:
        return f"{first} {unit_of(second)}".strip() + (f"{{{third}}}" if third else "")
    groups_behind = "".join(f"{{{group}}}" for group in (second, third) if group)
    if match["angle"]:
        marks = zip(first.split(";"), "°′″", strict=False)
        return "".join(f"{number}{mark}" for number, mark in marks if number.strip()) + groups_behind
    return unit_of(first) + groups_behind


def unit_of(text: str) -> str:
    r"""The signs of a unit: \kilo\gram\per\metre\squared -> kg/m^2."""
    signs: list[str] = []
    before = power = ""
    for name, argument, literal in _NAME.findall(text):
        if literal:
            signs.append(literal.strip())
        elif name in _PREFIXES:
            before += _PREFIXES[name]
        elif name in {"square", "cubic"}:
            power = _POWERS[name]
        elif name in _POWERS or name in {"tothe", "raiseto"}:
            signs.append(_POWERS.get(name) or f"^{argument}")
        elif name == "per":
            signs.append("/")
        else:
            gap = "·" if signs and signs[-1] != "/" else ""
            signs.append(f"{gap}{before}{_UNITS.get(name, name)}{power}")
            before = power = ""
    return "".join(signs)


# What a file states about itself, and how \maketitle prints it: title, people, places, date.
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


def statements(text: str) -> tuple[str, list[str], str]:
    """The title, the authors and the date of a file, in LaTeX without notes; "" for what it doesn't state.

    Places may be among the authors.
    """
    texts: dict[str, list[str]] = {}
    for stated in _STATED.finditer(text):
        texts.setdefault(stated["what"], []).append(one_line(_NOTE.sub("", stated["text"])))
    title, date = (texts.get(what, [""])[0] for what in ("title", "date"))
    people = (part for listed in texts.get("author", []) for part in _AND.split(listed))
    authors = [line for part in people for line in _LINE_END.split(part)]
    return title, authors, "" if _TODAY in date else date


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
