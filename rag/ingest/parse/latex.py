"""LaTeX: the text with its sections, lists, tables and listings; mathematics stays in LaTeX.

Macros that a file defines are expanded first (`latex_macros`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rag.corpus import Document
from rag.ingest.parse import document_parts
from rag.ingest.parse.document_draft import unread_files
from rag.ingest.parse.latex_macros import (
    FORMATTING,
    MATH,
    Expansion,
    statements,
    with_acronyms,
    with_quantities,
    with_title_block,
)
from rag.ingest.parse.latex_tables import CAPTION, DEEP_TEXT, TABULAR, table_rows
from rag.ingest.parse.typefaces import HEIGHTS, TICKED, UNTICKED, as_script, with_scripts
from rag.report import counted, names_briefly
from rag.text.plain_text import one_line, sentences, with_replacements
from rag.text.table_heads import pipe_table

SUFFIXES = (".tex", ".latex", ".ltx")

_DATA = document_parts.toml_beside(__file__)
_LEVELS, _THEOREMS = _DATA["levels"], _DATA["theorems"]
_STEPS: dict[str, str] = _DATA["steps"]
_MARKS, _LETTERS = (document_parts.listed_pairs(_DATA[name]) for name in ("accents", "letters"))
_LETTERS |= {"textbar": "|", "quad": " ", "qquad": " "}
_BRACED = r"\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}"
_OPTION = r"(?:\s*\[[^\[\]]*\])?"
_VERBATIM = re.compile(
    r"\\begin\{(?P<name>verbatim\*?|Verbatim|lstlisting|minted|alltt)\}(?:\[[^\]\n]*\])?(?:\{(?P<language>\w+)\})?\n?"
)
_COMMENT = re.compile(
    r"(?<!\\)(?P<before>(?:\\\\)*)%[^\n]*(?:\n[ \t]*(?=\S))?|\\begin\{(?P<name>comment)\}"
    r"|\\iffalse(?![a-zA-Z@])(?:[^\\]|\\(?!fi(?![a-zA-Z@])|iffalse))*+\\fi(?![a-zA-Z@])"
)
_INLINE_CODE = re.compile(r"\\(?:verb|lstinline)\*?(?:\[[^\]\n]*\])?([^\sa-zA-Z*\[{])(.*?)\1")
_ADDRESS = re.compile(r"(\\(?:url|nolinkurl|path|href)\s*)\{((?:[^{}\\\n]|\\[^A-Za-z\n])*)\}")
_HEADING = re.compile(rf"\\({'|'.join(_LEVELS)})\*?{_OPTION}\s*{_BRACED}")
_FRAME = re.compile(rf"\\begin\{{frame\}}(?:<[^<>\n]*>)?(?:\[[^\[\]\n]*\]){{0,2}}[ \t]*{_BRACED}")
_LEFT_OUT = re.compile(r"\\begin\{(?P<name>tikzpicture|filecontents\*?|CCSXML|pgfpicture)\}")
_LIST = re.compile(
    r"\\(begin|end)\{(itemize|enumerate|description|compactitem|compactenum|thebibliography)\}"
    r"(\[[^\]]*\]|\{[^{}]*\})?"
)
_NUMBERED = frozenset({"enumerate", "compactenum"})
_ITEM = (
    r"\\(?:item\b|bibitem\b(?=[^{}]*\{(?P<key>[^{}]*)\}))\s*(?:\[(?P<label>[^\[\]]*)\])?(?(key)\{[^{}]*\})"
)
_PIECES = re.compile(rf"{_LIST.pattern}|(?P<item>{_ITEM})")
_LABEL_OPTION = re.compile(rf"\blabel\s*=\s*(?:\{{({DEEP_TEXT})\}}|([^,\]]*))|\[([^\],=]*)\]")
_LABEL_FORM = re.compile(
    r"(?P<before>.*?)\\(?P<counts>arabic|alph|Alph|roman|Roman)\s*(?:\*|\{enum[iv]{1,3}\})(?P<behind>.*)"
    r"|(?P<before_short>\W*)(?P<short>[1aAiI])(?P<behind_short>\W*)",
    re.DOTALL,
)
_COUNTS = {"alph": "a", "Alph": "A", "roman": "i", "Roman": "I"}
_START = re.compile(r"\bstart\s*=\s*(\d{1,6})")
_CHECKED = {"$\\boxtimes$": TICKED, "$\\square$": UNTICKED}
"""Labels that pandoc writes for items with a box."""
_THEOREM = re.compile(r"\\begin\{([a-zA-Z]+)\*?\}(?:\[([^\[\]]*)\])?")
_STEP = re.compile(rf"\s*\\({'|'.join(_STEPS)})(?![a-zA-Z])(?:\s*{_BRACED}|[ \t]*)", re.IGNORECASE)
_KEYWORDS = re.compile(rf"\\keywords{_OPTION}\s*{_BRACED}")
_NEW_THEOREM = re.compile(r"\\newtheorem\*?\{([a-zA-Z]+)\}(?:\[\w+\])?\{([^{}]+)\}")
_ENVIRONMENT = re.compile(
    r"\\begin\{(?:minipage|columns?|subfigure|multicols\*?|wrapfigure|wraptable|adjustbox|spacing)\}"
    r"(?:\[[^\]\n]{0,300}\])*(?:\{[^{}]*\}){0,2}|\\(?:begin|end)\{[\w*]+\}(?:\[[^\]\n]{0,300}\])?"
)
_GONE = re.compile(
    r"\\(?:(?:label|labelenum[iv]{1,3}|includegraphics|epsfig|vspace|hspace|bibliographystyle|bibliography|pagestyle|thispagestyle"
    r"|column|pagenumbering|usepackage|RequirePackage|documentclass|input|include|graphicspath|vskip|hypersetup|index|nocite"
    rf"|color|theoremstyle|newcounter|newlength|geometry|captionsetup)(?![a-zA-Z@])\*?{_OPTION}{_OPTION}(?:\s*{_BRACED})?"
    r"|(?:setlength|addtolength|setcounter|addtocounter|newcommand|renewcommand|newenvironment|renewenvironment"
    r"|newtheorem|newcolumntype|definecolor|fontsize|titleformat|addcontentsline|rule|specialrule)(?![a-zA-Z@])\*?"
    rf"(?:\s*\[[^\[\]]*\])*(?:\s*{_BRACED})*)"
)
_CITED = re.compile(
    r"\\(?:cite|citep|citet|citealp|autocite|parencite|textcite|eqref|pageref|(?P<titled>ref|autoref|[cC]ref|nameref))"
    r"\*?(?:\[[^\]]*\])*\{(?P<keys>[^{}]*)\}"
)
_LABEL = r"\\label\s*\{[^{}]*\}"
_LABELLED = re.compile(
    rf"\\(?:{'|'.join(_LEVELS)}|caption)\*?{_OPTION}\s*\{{({DEEP_TEXT})\}}((?:\s*{_LABEL})*)"
)
_LONGEST_TITLE = 80  # characters of what stands for a reference; of a longer caption only its label does
_NOTE = re.compile(r"\\(?:footnote|thanks|inst|orcidID|IEEEauthorrefmark)\{([^{}]*)\}")
_LINKED = re.compile(r"\\href\{([^{}]*)\}\{([^{}]*)\}")
_STYLED = re.compile(  # commands whose first one or two arguments aren't text
    r"\\(?:(?:textcolor|colorbox|raisebox|parbox|scalebox|rotatebox|foreignlanguage|hypertarget|hyperlink)(?![a-zA-Z@])\*?"
    rf"{_OPTION}\s*{_BRACED}|(?:fcolorbox|resizebox|multicolumn|multirow)\*?{_OPTION}\s*{_BRACED}{_OPTION}\s*"
    rf"(?:{_BRACED}|[*=])){_OPTION}"
)
_PRINTED = re.compile(rf"\\texorpdfstring\s*{_BRACED}\s*{_BRACED}")  # the second is for bookmarks
_WITHOUT_ARGUMENT = re.compile(r"\\([a-zA-Z@]+)\*?\{\s*\}(?!\s*\{)")
_COMMAND = re.compile(r"\\([a-zA-Z@]+)\*?(?:\[[^\[\]\n]*\])?\{([^{}]*)\}(?=(\{)?)")
_NAME = re.compile(r"\\([a-zA-Z@]+)")
_WORD = re.compile(r"\\([a-zA-Z@]+)\*?[ \t]?")
_ENDS_IN_NAME = re.compile(r"\\[a-zA-Z@]+\Z")
_LONGEST_NAME = 40  # characters of a command's name
_BASE = r"(?:\{\s*(\\?[A-Za-z])\s*\}|(\\?[ij](?![A-Za-z])|[A-Za-z]))"
_ACCENT = re.compile(rf"\\([`'^\"~=.]|[uvHcrkdb](?=\s*\{{|\s+[A-Za-z]\b))\s*{_BASE}")
_ESCAPED = re.compile(r"\\(?:([%&_#${} ])|text(asciitilde|backslash)(?![a-zA-Z])(?:\{\})?)")
_KNOWN = FORMATTING | frozenset(_LETTERS)
_SPACE = re.compile(r"\\[,;:]|\\thinspace(?![a-zA-Z])[ \t]?")
_HYPHENATION = re.compile(r"\\(?:[-/!]|@(?![a-zA-Z@]))")
_INCLUDED = re.compile(r"\\(?:input|include|subfile)\{([^{}]+)\}")
_KEPT = re.compile("\ue000(\\d+)\ue001")  # placeholders of private characters for verbatim text


def parse(text: str, _name: str) -> Document:
    """The document of a LaTeX file: the content of its environment "document", or all of it."""
    reader = _Reader()
    # Code first: in it % begins no comment. Then comments: a macro that is defined in one is none.
    text = reader.keep_code(text.replace("\ue000", ""))
    text = _with_environments(text, _COMMENT, lambda match, _: match["before"] or "")
    text = with_acronyms(reader.expanded(text))
    preamble, begin, body = text.partition(r"\begin{document}")
    preamble, body = (preamble, body.partition(r"\end{document}")[0]) if begin else ("", text)
    title, authors, stated_date = statements(text)
    included = _INCLUDED.findall(body)
    reader.read_labels(body)  # before the parts are read: a reference may come before its title
    body = with_title_block(preamble, body)
    whole, blocks = document_parts.compose(
        reader.parts(with_quantities(_with_theorems(_with_steps(body), text)))
    )
    stated_date = reader.plain(stated_date)
    day = document_parts.date(stated_date)
    keywords = _KEYWORDS.search(text)
    return Document(
        text=whole,
        title=reader.plain(title),
        mime_type="text/x-tex",
        blocks=blocks,
        date=day,
        metadata=document_parts.facts(
            author=[author.strip() for name in authors for author in reader.plain(name).split(";")],
            date="" if day else stated_date,
            keywords=reader.plain(keywords[1]) if keywords else "",
        ),
        remarks=(*unread_files(included), *reader.remarks()),
    )


def _with_environments(
    text: str, begin: re.Pattern[str], replacement: Callable[[re.Match[str], str], str]
) -> str:
    """The text with environments replaced, by their beginnings and contents; those without an end stay.

    A match of `begin` without a name is replaced alone. An end that is missing is searched for once: to do it
    at each of many beginnings takes quadratic time.
    """
    replacements: list[tuple[int, int, str]] = []
    endless, at = set[str](), 0
    while match := begin.search(text, at):
        name, at = match["name"] or "", match.end()
        closing = f"\\end{{{name}}}" if name else ""
        end = text.find(closing, at) if name not in endless else -1
        if end < 0:
            endless.add(name)
            continue
        new = replacement(match, text[at:end])
        at = end + len(closing)
        replacements.append((match.start(), at, new))
    return with_replacements(text, replacements)


def _with_theorems(body: str, text: str) -> str:
    """The body of a file with theorems and the like by name, as people see them: "Theorem (Pythagoras): "."""
    defined = dict(_NEW_THEOREM.findall(text))

    def named(begin: re.Match[str]) -> str:
        name = defined.get(begin[1]) or (begin[1].capitalize() if begin[1] in _THEOREMS else "")
        title = f" ({begin[2]})" if begin[2] else ""
        return f"\n\n{name}{title}: " if name else begin[0]

    return _THEOREM.sub(named, body)


def _with_steps(body: str) -> str:
    """The body of a file with the words of its algorithms, a step on each line: "if $a > b$ then"."""
    if "\\begin{algorithmic}" not in body:
        return body

    def step(command: re.Match[str]) -> str:
        if command[1].islower():
            return command[0]
        form, argument = _STEPS[command[1].lower()], command[2] or ""
        return "\n" + (form.format(argument) if "{}" in form else form + argument)

    return _STEP.sub(step, body)


@dataclass(slots=True)
class _List:
    """A list that is being read, with the number of its last item.

    `form` is what stands before a number, how it is written, and what stands behind: ("(", "a", ")").
    """

    kind: str
    last: int
    form: tuple[str, str, str]


class _Reader:
    """Converts LaTeX to text; `_kept` are listings and formulas, which stay verbatim."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._unknown: dict[str, None] = {}
        self._named: dict[str, None] = {}  # the unknown macros that stay by their names
        self._titles: dict[str, str] = {}  # of sections, figures and tables, by label
        self._endless: list[str] = []
        self._merged = document_parts.MergedCells()

    def read_labels(self, text: str) -> None:
        """Note the titles that references stand for: of sections, and the first sentences of captions."""
        labels = {
            label: match[1]
            for match in _LABELLED.finditer(text)
            for label in re.findall(_LABEL.replace("[^{}]*", "([^{}]*)"), match[1] + match[2])
        }
        titles = {label: self.plain(_CITED.sub("", title)) for label, title in labels.items()}
        for label, title in titles.items():
            first = next((title[span.start : span.end] for span in sentences(title)), "")
            if 0 < len(first) <= _LONGEST_TITLE:
                self._titles[label] = first.rstrip(". ")

    def expanded(self, text: str) -> str:
        """The text with its own macros expanded."""
        expansion = Expansion(text, self._placeholder)
        text = expansion.text()
        self._endless = expansion.endless
        return text

    def remarks(self) -> list[str]:
        """Remarks on macros that are unknown or could not be expanded."""
        remarks = []
        if names := [f"\\{name}" for name in self._named]:
            count = counted(len(names), "unknown macro")
            remarks.append(f"{count} left as \\name: {names_briefly(names, document_parts.NAMED)}")
        if names := [f"\\{name}" for name in self._unknown if name not in self._named]:
            omitted = f"{counted(len(names), 'unknown macro')} left out"
            arguments = "its arguments" if len(names) == 1 else "their arguments"
            remarks.append(
                f"{omitted}, the text of {arguments} stays: {names_briefly(names, document_parts.NAMED)}"
            )
        if names := [f"\\{name}" for name in self._endless]:
            listed = names_briefly(names, document_parts.NAMED)
            remarks.append(f"not expanded, because it calls itself or grows too large: {listed}")
        return remarks

    def keep_code(self, text: str) -> str:
        """The text with a placeholder for each listing and address: nothing in these counts as a command."""

        def listing(begin: re.Match[str], content: str) -> str:
            code = content.strip("\n")
            return self._placeholder(f"```{begin['language'] or ''}\n{code}\n```", apart=True)

        text = _with_environments(text, _VERBATIM, listing)
        text = _INLINE_CODE.sub(lambda m: self._placeholder(f"`{m[2]}`"), text)

        def address(match: re.Match[str]) -> str:  # where % begins no comment, and ~ isn't a space
            literal = re.sub(r"\\(.)", r"\1", match[2])
            return f"{match[1]}{{{self._placeholder(literal)}}}"

        return _ADDRESS.sub(address, text)

    def parts(self, text: str) -> Iterator[document_parts.Part]:
        """The parts of a text."""
        text = _with_environments(text, _LEFT_OUT, lambda *_: "")
        # Formulas before tables: the & and \\ in them part no cells and rows.
        text = MATH.sub(lambda m: self._placeholder(m[0], apart=m[0].startswith(("$$", "\\[", "\\b"))), text)
        text = self._with_tables(text)
        text = text.replace(r"\begin{abstract}", r"\section{Abstract}")
        text = _FRAME.sub(r"\\frametitle{\1}", text)
        used = [level for level in _LEVELS if re.search(rf"\\{level}\*?[\[{{]", text)]
        highest = _LEVELS.index(used[0]) if used else 0  # an article has no chapters, a book often no parts
        levels = {level: _LEVELS.index(level) - highest + 1 for level in used}
        levels["frametitle"] = 1 + max(
            (level for name, level in levels.items() if name != "frametitle"), default=0
        )
        at = 0
        for heading in _HEADING.finditer(text):
            yield from self._body(text[at : heading.start()])
            yield document_parts.heading(self.plain(heading[2]), levels[heading[1]])
            at = heading.end()
        yield from self._body(text[at:])

    def _body(self, text: str) -> Iterator[document_parts.Part]:
        depth, at = 0, 0
        begin: re.Match[str] | None = None
        for mark in _LIST.finditer(text):
            if mark[1] == "begin":
                if not depth:
                    begin = mark
                    yield from self._paragraphs(text[at : mark.start()])
                    at = mark.end()
                depth += 1
            elif depth and begin:
                depth -= 1
                if not depth:
                    yield document_parts.Part("list", self._items(text[at : mark.start()], begin))
                    at = mark.end()
        yield from self._paragraphs(text[at:])

    def _items(self, text: str, begin: re.Match[str]) -> str:
        lines: list[str] = []
        lists = [self._list(begin)]
        marks = [*_PIECES.finditer(text)]
        for mark, end in zip(marks, [*(mark.start() for mark in marks), len(text)][1:], strict=True):
            if mark[1] == "begin":
                lists.append(self._list(mark))
            elif mark[1] and len(lists) > 1:
                lists.pop()
            if line := self._item_line(lists[-1], mark, self.plain(text[mark.end() : end])):
                lines.append(f"{'  ' * (len(lists) - 1)}{line}")
        return "\n".join(lines)

    def _list(self, begin: re.Match[str]) -> _List:
        option = begin[3] or ""
        stated = _LABEL_OPTION.search(option)
        form = next(filter(None, stated.groups()), "") if stated else ""
        start = _START.search(option)
        last = int(start[1]) - 1 if start else 0
        return _List(begin[2], last, self._label_form(form) or ("", "1", "."))

    def _label_form(self, text: str) -> tuple[str, str, str] | None:
        r"""How items are labelled: "(\alph*)" and "(a)" -> ("(", "a", ")"); None for what isn't a form."""
        form = _LABEL_FORM.fullmatch(text.strip())
        if not form:
            return None
        counts = form["short"] or _COUNTS.get(form["counts"], "1")
        around = (form["before"] or form["before_short"] or "", form["behind"] or form["behind_short"] or "")
        before, behind = map(self.plain, around)
        return f"{before} " if before[-1:].isalnum() else before, counts, behind

    def _item_line(self, list_: _List, mark: re.Match[str], text: str) -> str:
        """The line of an item, below which the text of a mark goes on that begins none."""
        label, is_numbered = self.plain(mark["label"] or ""), list_.kind in _NUMBERED
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
        return f"{before}{document_parts.numeral(list_.last, counts)}{behind} {line}"

    def _paragraphs(self, text: str) -> Iterator[document_parts.Part]:
        readable = self._words(text)
        for block in document_parts.paragraphs(readable):
            part = readable[block.start : block.end]
            placeholder = _KEPT.fullmatch(part)
            whole = self._with_verbatim(part)
            is_code, is_table = (bool(placeholder) and whole.startswith(mark) for mark in ("```", "| "))
            yield document_parts.Part("code" if is_code else "table" if is_table else "paragraph", whole)

    def _with_tables(self, text: str) -> str:
        """The text with a placeholder for each table; a table in a cell is words of that cell."""
        texts, at, opened = list[str](), 0, list[re.Match[str]]()
        for tag in TABULAR.finditer(text):
            if not tag["end"]:
                opened.append(tag)
            elif opened:
                begin = opened.pop()
                if not opened:
                    texts += [text[at : begin.start()], self._table(text[begin.end() : tag.start()])]
                    at = tag.end()
        return "".join([*texts, text[at:]])

    def _table(self, text: str) -> str:
        caption = CAPTION.search(text)
        rows = [*table_rows(CAPTION.sub("", text), self.plain, self._merged)]
        table = pipe_table(rows, columns=max(map(len, rows), default=1))
        return (f"\n\n{caption[1]}" if caption else "") + self._placeholder(table, apart=True)

    def plain(self, text: str) -> str:
        """The words of a text on one line, without commands."""
        return one_line(self._with_verbatim(self._words(text, is_line=True)))

    def _words(self, text: str, *, is_line: bool = False) -> str:
        """The words of a text, or of a line, without commands; verbatim text stays a placeholder."""
        text = re.sub(rf"\\ensuremath\s*{_BRACED}", lambda m: self._placeholder(f"${m[1]}$"), text)
        text = MATH.sub(lambda m: self._placeholder(m[0]), _GONE.sub("", text))
        text = re.sub(r"\\\\(?:\[[^\]]*\])?", "\n", text)
        text = _HYPHENATION.sub("", _SPACE.sub(" ", text))
        text = _ESCAPED.sub(
            lambda m: self._placeholder(m[1] or ("~" if m[2] == "asciitilde" else "\\")), text
        )
        text = _ACCENT.sub(
            lambda m: unicodedata.normalize("NFC", (m[2] or m[3]).removeprefix("\\") + _MARKS[m[1]]), text
        )
        text = _STYLED.sub("", _CITED.sub(self._cited, _PRINTED.sub(r"{\1}", text)))
        self._unknown |= dict.fromkeys(name for name in _NAME.findall(text) if name not in _KNOWN)
        # \LaTeX{}: an unknown one stays by its name.
        text = _WITHOUT_ARGUMENT.sub(
            lambda m: _LETTERS.get(m[1], m[0]) if m[1] in _KNOWN else self._name(m[1]), text
        )
        for _ in range(6):  # commands within commands, the innermost first
            before = text
            text = _NOTE.sub(r" [\1]", _LINKED.sub(r"\2 (\1)", text))
            text = _COMMAND.sub(_argument_text, _ENVIRONMENT.sub("", text))
            if text == before:
                break
        text = self._without_commands(text, is_line=is_line).replace("\\", "")
        text = re.sub(r"[{}]", "", text).replace("~", " ")
        text = text.replace("---", "—").replace("--", "–").replace("``", "“").replace("''", "”")
        # Single characters are restored; listings and formulas stay placeholders.
        kept = self._kept
        text = _KEPT.sub(lambda m: kept[int(m[1])] if len(kept[int(m[1])]) == 1 else m[0], text.strip())
        return with_scripts(text)

    def _cited(self, match: re.Match[str]) -> str:
        """What stands for a reference in brackets: keys, or titles that the file has for them."""
        keys = [key.strip() for key in match["keys"].split(",")] if match["titled"] else []
        if not any(key in self._titles for key in keys):
            return f"[{match['keys']}]"
        return self._placeholder(f"[{', '.join(self._titles.get(key, key) for key in keys)}]")

    def _without_commands(self, text: str, *, is_line: bool) -> str:
        """The text without commands; an unknown one stays by its name where its line has words.

        In a text of several lines, one that is alone is more likely a matter of layout than a word.
        """

        def shown(command: re.Match[str]) -> str:
            has_argument = command.string.startswith("{", command.end())
            if command[1] in _KNOWN or has_argument:
                return _LETTERS.get(command[1], "")
            return self._name(command[1]) + (" " if command[0][-1].isspace() else "")

        def read(line: str) -> str:
            words = _WORD.sub(lambda command: _LETTERS.get(command[1], ""), line)
            return _WORD.sub(shown, line) if is_line or any(map(str.isalnum, words)) else words

        return "\n".join(map(read, text.split("\n")))

    def _name(self, name: str) -> str:
        """A placeholder for an unknown macro by its name."""
        self._named[name] = None
        return self._placeholder(f"\\{name}")

    def _placeholder(self, verbatim: str, *, apart: bool = False) -> str:
        self._kept.append(verbatim)
        mark = f"\ue000{len(self._kept) - 1}\ue001"
        return f"\n\n{mark}\n\n" if apart else mark

    def _with_verbatim(self, text: str) -> str:
        for _ in range(3):  # verbatim text can be nested: a formula in a table
            if not _KEPT.search(text):
                break
            text = _KEPT.sub(lambda m: self._kept[int(m[1])], text)
        return text


def _argument_text(command: re.Match[str]) -> str:
    """The argument of a command, apart from a name before it, and behind an unknown command from the next."""
    text = as_script(command[2], HEIGHTS.get(command[1].removeprefix("text"), 0))
    before = command.string[max(0, command.start() - _LONGEST_NAME) : command.start()]
    gap = " " if before[-1:].isalpha() and _ENDS_IN_NAME.search(before) else ""  # \noindent\textbf{Note}
    return gap + text + (" " if command[3] and command[1] not in _KNOWN else "")
