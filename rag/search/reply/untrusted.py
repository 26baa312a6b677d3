"""Makes document text safe to show: no hidden characters, and no markup that loads or runs something.

Ingestion removes hidden characters, too. They are removed again here, because an earlier version may have
ingested the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING
from unicodedata import normalize

from rag.report import counted
from rag.runtime import grouped
from rag.text.plain_text import FIRST_PRINTED_HIDDEN, JOINERS, Span, with_line_ends, without_hidden

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MAX_LABEL_CHARS = 200  # of a title, a heading, or a metadata key or value
MAX_PARSED = 20_000  # characters of a text whose code is looked for
MAX_TAG = 2_000  # characters of a tag whose quotes are counted
_NEVER = frozenset({"script", "style", "svg", "math", "iframe", "frameset", "img", "applet", "bgsound"})
"""Elements that load or run something even without attributes."""
_LOADING = frozenset(
    """
    animate audio base body button embed feimage form frame html image input link meta object param picture
    portal set source track use video
    """.split()  # noqa: SIM905 as a list, it would be a page long
)
"""Elements that load or run something by attributes. Without any, they are likely types: `List<Object>`."""

_TAG = re.compile(
    r"<(?=/?(?P<name>[A-Za-z][^\s/>]{0,40})|!(?=[-\[A-Za-z])|\?(?=[A-Za-z=]))|(?<![^\n])<(?=\?)"
)
_VERBATIM = frozenset({"pre", "textarea"})
"""Elements up to whose end a Markdown parser takes everything for HTML, also a fence in another text.

Source: CommonMark 0.31.2, HTML blocks of kind 1. The others of this kind are in `_NEVER`.
"""
_VERBATIM_END = re.compile(r"</(pre|textarea)>", re.IGNORECASE)
_ATTRIBUTE = re.compile(
    r"""[\s/"'](?:"""
    r"on(?!(?:ce|e|es|ly|to)\b)[a-z]+|style|src|srcset|srcdoc|imagesrcset|background|poster|ping|action"
    r"|formaction|dynsrc|lowsrc|xlink:href|xml:base"
    r"""|href(?!\s*=\s*(?:(?P<quote>["'])(?:https?://|mailto:|[#./]|[\w-]+[./#?"'])"""
    r"""|(?:https?://|mailto:|[#./]|[\w-]+[./#?>\s])))"""
    r")\s*=",
    re.IGNORECASE,
)
"""Attributes that load or run something in any element; a link counts unless it clearly leads to a page."""
_BLANK_LINE = re.compile(r"\n[ \t]*(?=\n)")
_VALUE = re.compile(r"""=\s*(?:"[^"]*"|'[^']*')""")
_OPEN_VALUE = re.compile(r"""=\s*["']""")
_IMAGE = re.compile(r"!(?=\[)")
_BEFORE_CODE = re.compile(r"[\w#(]")
_PLAIN = r"(?:[^\[\]\\`<]|\\[^\[\]\\`<])"  # can't hide a bracket
_LABEL = re.compile(rf"!\[(?:{_PLAIN}|\[{_PLAIN}*+\])*+\]")
# "[name]: address" at the start of a line, also in a quote or list, is where "![text][name]" is loaded from.
# Some renderers accept brackets in the name, or line ends.
_REFERENCE = re.compile(
    r"^(?:[ \t>*+-]|\d+[.)])*\[(?:[^\n]*|(?:[^\[\]\\]|\\.)*)\]:", re.MULTILINE | re.DOTALL
)
_NEARBY = re.compile(r"^ {0,3}\[[^\[\]\\\n]+\]:[ \t]+(?!/)[\w.#/%-]+[ \t]*$", re.MULTILINE)
"""A definition with a relative target: no other host gets a request."""
_FOOTNOTE = re.compile(r"[ \t>*+\d.)-]*\[\^[^\s\[\]\\]+\](?=:[ \t]+[^\s:/\\&<>\[\]]+(?!\S))")
"""A footnote that begins with a word: also where its sign is unknown, it names no other host."""
_EMBEDDED_NOTE = re.compile(r"!\[\[(?!//)[^\[\]\\:<>&\n]+\]\](?![ \t]*\n?[ \t]*[\[(])")
_FENCE = re.compile(r"[ \t>]*(?:(?:[-*+]|\d+[.)])[ \t]+)?(`{3,}|~{3,})(.*)")
_TICKS = re.compile("`+")

_SEPARATORS = re.compile(r"[\r\x0b\x0c\x85\u2028\u2029]")
_UNCHANGED = re.compile(r"[!-;=?-Z\\^-~]+(?: [!-;=?-Z\\^-~]+)*")  # by `label`


def disarm(text: str, *, from_prose: bool = False) -> str:
    """`text` without hidden characters, and with a space in markup that makes a client load or run something.

    A hostile document can tell the model to put private text into the address of an image, frame or style;
    the client that renders it sends the text to this address. So no "<" begins a tag that loads or runs
    something, no "!" an image, and no line defines a reference to another host, which an image elsewhere in
    the reply could use; nor does a `<pre>` stay open, in which code elsewhere in the reply would be markup.
    `Option<char>`, `<b>` and `vec![1]` do nothing and stay.

    Code spans and fences stay, too, if Markdown parsers see them as code: in this text alone and, unless it
    begins `from_prose`, also after a fence opened before it. Otherwise the text is treated as having no code.
    `rag.search.answer_citations` removes the spaces again.
    Example: "![a map](http://x/y.png) <img src=z>" -> "! [a map](http://x/y.png) < img src=z>".
    """
    visible = without_hidden(with_line_ends(text))
    places = _places(visible)
    outside = _outside_code(visible, places) if places and len(visible) <= MAX_PARSED else places
    if len(outside) < len(places):
        careful = _with_spaces(visible, outside)
        before = ("",) if from_prose else ("", "```\n", "~~~\n")
        if all(_is_inert(opened + careful) for opened in before):
            return careful
    return _with_spaces(visible, places)


def alteration_notes(texts: Iterable[tuple[str, str]]) -> list[str]:
    """A note on how disarmed texts differ from the originals, from (original, disarmed) pairs; or no note."""
    spaces = hidden = ends = 0
    for original, disarmed_text in texts:
        if original != disarmed_text:
            lines = with_line_ends(original)
            visible = without_hidden(lines)
            hidden += len(lines) - len(visible)
            spaces += len(disarmed_text) - len(visible)
            ends += len(_SEPARATORS.findall(original)) - len(_SEPARATORS.findall(disarmed_text))
    changes = []
    if spaces:
        changes.append(f"{counted(spaces, 'space')} inserted in markup that could load or run something")
    if hidden:
        changes.append(f"{counted(hidden, 'hidden character')} removed")
    if ends:
        changes.append(f"{counted(ends, 'other line end')} replaced")
    note = f"Not verbatim: {' and '.join(changes)}. Quotes of this text still pass a citation check."
    return [note] if changes else []


def label(text: str) -> str:
    """A title, heading or metadata value on one line, disarmed and truncated to `MAX_LABEL_CHARS`."""
    if text.isprintable() and len(text) <= MAX_LABEL_CHARS and max(text, default="") < FIRST_PRINTED_HIDDEN:
        visible = text  # most of the dozens of labels in a reply need nothing else
    else:
        visible = without_hidden(with_line_ends(text[: 2 * MAX_LABEL_CHARS]))  # as long as a document, maybe
    if not visible.isprintable():
        visible = without_hidden("".join(c if c.isprintable() or c in JOINERS else " " for c in visible))
    line = " ".join(visible.split())
    line = _with_spaces(line, _places(line))
    return line if len(line) <= MAX_LABEL_CHARS else line[: MAX_LABEL_CHARS - 1] + "…"


def display_name(name: str) -> str:
    """A name, a title or a heading as replies show it, in one Unicode normal form."""
    if len(name) <= MAX_LABEL_CHARS and _UNCHANGED.fullmatch(name):
        return name
    return _cached_label(name[: 2 * MAX_LABEL_CHARS])  # what a label is made of: the cache must stay small


@lru_cache(1 << 14)
def _cached_label(name: str) -> str:
    """Cached: it takes 10 us, and each page is chosen from all names of a folder."""
    return normalize("NFC", label(name))


def one_separator(text: str) -> str:
    r"""`text` with LF as its only line separator, so that no other one adds a line.

    Example: "a\r\nb\u2028c" -> "a\nb c".
    """
    return _SEPARATORS.sub(" ", text.replace("\r\n", "\n"))


def with_line_numbers(text: str, first: int) -> str:
    r"""`text` with its lines' numbers, each before a tab: ("a\nb", 9) -> "9\ta\n10\tb".

    Call it before `disarm`: a number can make prose of a fence, and a tag go on behind a blank line.
    """
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(text.split("\n"), first))


def _with_spaces(text: str, places: Sequence[int]) -> str:
    borders = [0, *places, len(text)]
    return " ".join(text[start:end] for start, end in pairwise(borders))


def _places(text: str) -> list[int]:
    """Where a space breaks markup that loads or runs something, also within code."""
    places: set[int] = set()
    if "<" in text:
        places.update(_tags(text))
    if "![" in text:
        places.update(_images(text))
    if "]:" in text:
        places.update(_references(text))
    return sorted(places)


def _tags(text: str) -> Iterator[int]:
    """Behind each "<" of a tag that loads or runs something, or that could hide a fence from a parser.

    The latter are comments, and elements that this text doesn't end.
    """
    marks = _Marks(text)
    last_end = {end[1].lower(): end.start() for end in _VERBATIM_END.finditer(text)} if "</" in text else {}
    for tag in _TAG.finditer(text):
        name = (tag["name"] or "").lower()
        is_open = name in _VERBATIM and last_end.get(name, -1) < tag.start()
        if not name or name in _NEVER or is_open or marks.loads(tag.start(), name):
            yield tag.end()


class _Marks:
    """The positions of the parts of tags, so that looking at a tag doesn't scan the whole text behind it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.closing = [match.start() for match in re.finditer(">", text)]
        self.equal = [match.start() for match in re.finditer("=", text)]
        self.blank = [match.start() for match in _BLANK_LINE.finditer(text)]
        self.attributes = [match.start() for match in _ATTRIBUTE.finditer(text)]

    def loads(self, start: int, name: str) -> bool:
        """Whether the tag that begins here has an attribute by which it loads or runs something.

        It ends at ">", but not at one in a value, or at a blank line: no paragraph and no HTML goes on there.
        """
        until = self._next(self.blank, start)
        end = min(until, self._next(self.closing, start))
        if end == until and name in _LOADING:  # what stands behind this text may go on with its attributes
            return True
        if self._next(self.equal, start) >= end:
            return False
        if end - start > MAX_TAG or _OPEN_VALUE.search(_VALUE.sub("", self.text[start:end])):
            end = until
        return name in _LOADING or self._next(self.attributes, start) < end

    def _next(self, positions: Sequence[int], start: int) -> int:
        at = bisect_left(positions, start)
        return positions[at] if at < len(positions) else len(self.text)


def _images(text: str) -> Iterator[int]:
    """Behind each "!" of an image. Without an address, it is code behind a word, "#" or "(": `vec![1]`.

    `![[Plan#Risks]]` shows a note in another one, and no address.
    """
    addressed = text.rfind("](")
    for image in _IMAGE.finditer(text):
        if _EMBEDDED_NOTE.match(text, image.start()):
            continue
        name = _LABEL.match(text, image.start(), image.start() + MAX_TAG)
        plain = image.start() > addressed or (name and text[name.end() : name.end() + 1] != "(")
        if not plain or not _BEFORE_CODE.match(text[max(0, image.start() - 1) : image.start()]):
            yield image.end()


def _references(text: str) -> Iterator[int]:
    """Before each ":" of a line that defines a reference to another host."""
    for line in _REFERENCE.finditer(text):
        if not _NEARBY.match(text, line.start()):
            note = _FOOTNOTE.match(text, line.start())
            colons = (line.start() + colon.start() + 1 for colon in re.finditer(r"\]:", line[0]))
            yield from (colon for colon in colons if not note or colon != note.end())


def _outside_code(text: str, places: Sequence[int]) -> list[int]:
    """The places that seem to be outside of fences and code spans."""
    fences = _fences(text) if "```" in text or "~~~" in text else []
    borders = [0, *(at for fence in fences for at in fence), len(text)]
    prose = zip(borders[::2], borders[1::2], strict=True)
    code = sorted([*fences, *(span for start, end in prose for span in _code_spans(text, start, end))])
    starts = [span.start for span in code]
    return [at for at in places if not (before := bisect_left(starts, at)) or code[before - 1].end < at]


def _fences(text: str) -> list[Span]:
    """The spans that seem to be in closed fences, in order."""
    spans: list[Span] = []
    mark, start, at = "", 0, 0
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if fence and not mark and "`" not in fence[2]:
            mark, start = fence[1], at + len(line)
        elif fence and mark and fence[1].startswith(mark) and not fence[2].strip():
            spans.append(Span(start, at))
            mark = ""
        at += len(line) + 1
    return spans


def _code_spans(text: str, start: int, end: int) -> Iterator[Span]:
    """The apparent code spans of `text[start:end]`, in order: between two runs of equally many backticks."""
    breaks = [*(blank.start() for blank in _BLANK_LINE.finditer(text, start, end)), end]
    runs = [*_TICKS.finditer(text, start, end)]
    by_length = grouped((len(run[0]), run.start()) for run in runs)
    at = start
    for run in runs:
        alike = by_length[len(run[0])]
        following = bisect_left(alike, run.end())
        if run.start() < at or following == len(alike):
            continue
        if alike[following] < breaks[bisect_left(breaks, run.end())]:
            yield Span(run.end(), alike[following])
            at = alike[following] + len(run[0])


def _is_inert(text: str) -> bool:
    """Whether no parser of Markdown sees anything in a text that loads or runs something."""
    return all(_loads_nothing(parser, text) for parser in _parsers())


def _loads_nothing(parser: MarkdownIt, text: str) -> bool:
    defined: dict[str, dict[str, dict[str, str]]] = {}
    blocks = parser.parse(text, defined)
    tokens = [token for block in blocks for token in (block, *(block.children or ()))]
    markup = "\n\n".join(token.content for token in tokens if token.type in {"html_block", "html_inline"})
    targets = [target["href"] for target in defined.get("references", {}).values()]
    is_far = any(":" in target or "//" in target for target in targets)
    return not is_far and all(token.type != "image" for token in tokens) and not _places(markup)


@cache
def _parsers() -> tuple[MarkdownIt, ...]:
    """A CommonMark parser, one that ignores HTML, and one that knows tables."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 few replies need it

    standard = MarkdownIt("commonmark"), MarkdownIt("commonmark", {"html": False})
    return *standard, MarkdownIt("js-default", {"html": True})
