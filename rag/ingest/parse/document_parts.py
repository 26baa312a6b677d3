"""What the parsers share: blocks, cells over several rows, titles, dates, clean characters, facts, members.

A fact is what a document states about itself, under a name that all formats share: `author`, `keywords`,
`language` (BCP 47), `subject` and `description`; for mails also `from`, `to` and `cc`. A member is a document
inside another file.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeVar
from unicodedata import normalize

from rag.corpus import Block, BlockKind
from rag.errors import Cause
from rag.text.dates import dates_in, in_common_years
from rag.text.flags import flags_in
from rag.text.plain_text import one_line, trimmed, without_hidden
from rag.text.table_heads import COVERED
from rag.uris import roman

T = TypeVar("T")
GAP = "\n\n"  # between two parts of a text that is put together
TITLE_LENGTH = 200  # characters: a title is one line of a list, and a hostile one is endless
NAMED = 5  # names in a remark
MAX_LEVEL = 20  # of a heading: each passage is stored with all headings that it is under
MAX_SPAN = 100  # rows or columns that a cell spans; beyond, cells stay blank
MAX_REPEATED = 1_000_000  # characters of a document that are repeated; likewise

ORDERS = "(picture whose text gives orders to a model)"
"""Replaces an alternative text that gives orders to a model (prompt injection)."""
MAX_ALTERNATIVE = 1_000  # characters of an alternative text
_NO_WORDS = re.compile(
    r"(?i)(?:picture|image|img|photo|grafik|bild|abbildung|figure|imagen|afbeelding|object|logo|icon|shape)?"
    r"[\s_#-]*\d*|https?:.*|.{0,200}\.(?:png|jpe?g|gif|svg|webp|bmp|tiff?|emf|wmf)"
)
_ASIDE = re.compile(r"(?:AI-generated content may be incorrect|Description automatically generated[^.]*)\.?$")
_BLANK_LINES = re.compile(r"\n[^\S\n]*+\n\s*+")
_UNFIT = re.compile(r"[\x00\ud800-\udfff]")  # engines and encoders refuse them
_ESCAPES = re.compile(r"(?<!\\)((?:\\\\)*+)((?:\\u[0-9a-fA-F]{4})++)")
_COLORS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")  # as terminals take them


def toml_beside(module: str) -> dict[str, Any]:
    """The TOML file beside a module, to read while that is imported: later, a parser can't open files."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text("utf-8"))


def listed_names(listing: str) -> frozenset[str]:
    """Names that are separated by white space."""
    return frozenset(listing.split())


def listed_pairs(listing: str) -> dict[str, str]:
    """Names, each with what it stands for, between bars or on lines: "metre m|gram g" -> "m" and "g"."""
    entries = (entry.split() for line in listing.split("\n") for entry in line.split("|") if entry.strip())
    return dict(entries)


SUFFIXES_OF_TYPES = listed_pairs("""
    text/plain .txt|text/markdown .md|text/html .html|application/xhtml+xml .html|application/pdf .pdf
    application/json .json|text/csv .csv|text/calendar .ics|text/vcard .vcf|text/x-vcard .vcf
    message/rfc822 .eml
""")
"""What names a document that only states its type, as of a mail or a web server."""


class Lines(NamedTuple):
    """A block by its lines: from line `first` (from 0) to before line `last`."""

    kind: BlockKind
    first: int
    last: int
    level: int = 0
    title: str = ""


class Part(NamedTuple):
    """A block by its text; `title` is a heading's title if it differs from the text."""

    kind: BlockKind
    text: str
    level: int = 0
    title: str = ""


def heading(title: str, level: int) -> Part:
    """A heading as Markdown writes it, of level 6 at most; an empty part if it has no title."""
    level = min(level, 6)
    return Part("heading", f"{'#' * level} {title}" if title else "", level, title)


def listing(code: str, language: str = "") -> Part:
    """A fenced code block; an empty part of blank code."""
    code = code.strip("\n")
    return Part("code", f"```{language}\n{code}\n```" if code.strip() else "")


def compose(parts: Iterable[Part]) -> tuple[str, tuple[Block, ...]]:
    """The text of the parts with a blank line between them, and their blocks. Empty parts are left out."""
    texts: list[str] = []
    blocks: list[Block] = []
    at = 0
    for part in parts:
        text = part.text.strip("\n").rstrip()
        if inside := trimmed(text, 0, len(text)):
            title = title_line(part.title or text) if part.kind == "heading" else ""
            blocks.append(Block(part.kind, at + inside.start, at + inside.end, part.level, title))
            texts.append(text)
            at += len(text) + len(GAP)
    return GAP.join(texts), tuple(blocks)


def shifted(blocks: Iterable[Block], by: int) -> Iterator[Block]:
    """The blocks of a text that now begins at position `by` of another."""
    return (replace(block, start=block.start + by, end=block.end + by) for block in blocks)


def line_blocks(text: str, parts: Iterable[Lines], start: int = 0, end: int | None = None) -> Iterator[Block]:
    """The blocks of the parts of `text[start:end]`, whose first line is line 0."""
    lines = text[start:end].split("\n")
    starts = list(accumulate((len(line) + 1 for line in lines), initial=start))
    for part in parts:
        yield from block(
            text, part.kind, starts[part.first], starts[part.last] - 1, level=part.level, title=part.title
        )


def block(
    text: str, kind: BlockKind, start: int, end: int, *, level: int = 0, title: str = ""
) -> Iterator[Block]:
    """The block at `text[start:end]` without outer white space; nothing if that is all."""
    if span := trimmed(text, start, end):
        yield Block(kind, *span, level, title_line(title))


def paragraphs(
    text: str,
    start: int = 0,
    end: int | None = None,
    *,
    kind: BlockKind = "paragraph",
    gap: re.Pattern[str] = _BLANK_LINES,
) -> Iterator[Block]:
    """A block for each part of `text[start:end]` between gaps, which are blank lines by default."""
    end = len(text) if end is None else end
    for match in gap.finditer(text, start, end):
        yield from block(text, kind, start, match.start())
        start = match.end()
    yield from block(text, kind, start, end)


class MergedCells:
    """The merged cells of tables whose rows are read from left to right.

    A cell over several rows stands in each of them, and one over several columns has `COVERED` cells behind
    it. `_above` and `_below` hold, by column, what stands in this row and in the next ones, and in how many.

    Example: "a" over 2 rows and "b" over 2 columns -> "a", "b", COVERED; `next_row`, `repeated` -> "a".
    """

    def __init__(self) -> None:
        self._room = MAX_REPEATED
        self.begin()

    def begin(self) -> None:
        """Begin a table, or a part of one that no cell leaves."""
        self.column = 0
        self._above: dict[int, tuple[str, int]] = {}
        self._below: dict[int, tuple[str, int]] = {}

    def next_row(self) -> None:
        """Begin a row."""
        self._above, self._below, self.column = self._below, {}, 0

    def place(self, text: str, rows: int, columns: int) -> str:
        """Place a cell at the current column; `repeated` has the columns that it covers."""
        rows, columns = (min(max(span, 1), MAX_SPAN) for span in (rows, columns))
        covered = range(self.column + 1, self.column + columns)
        self._above.pop(self.column, None)
        self._above |= dict.fromkeys(covered, (COVERED, rows))
        self._fill(text, rows - 1)
        return text

    def repeated(self, column: int | None = None) -> Iterator[str]:
        """The cells from above up to the next free column; with `column`, and blank ones, up to this one."""
        while self.column in self._above if column is None else self.column < column:
            text, rows = self._above.pop(self.column, ("", 0))
            self._fill(text, rows - 1)
            self._room -= len(text)
            yield text if self._room > 0 else ""

    def rest(self) -> Iterator[str]:
        """The cells from above at the end of a row."""
        return self.repeated(max(self._above, default=-1) + 1)

    def _fill(self, text: str, rows_below: int) -> None:
        if rows_below > 0:
            self._below[self.column] = text, rows_below
        self.column += 1


def runs(items: Iterable[T], goes_on: Callable[[list[T], T], bool]) -> Iterator[list[T]]:
    """The items in runs: one that doesn't go on with the run so far begins the next."""
    run: list[T] = []
    for item in items:
        if run and not goes_on(run, item):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def with_capped_levels(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks, with heading levels capped at `MAX_LEVEL`."""
    return tuple(replace(block, level=MAX_LEVEL) if block.level > MAX_LEVEL else block for block in blocks)


def title_line(words: str) -> str:
    """A title for display: one line, without hidden characters, at most `TITLE_LENGTH` characters."""
    return one_line(clean(words[: 2 * TITLE_LENGTH]))[:TITLE_LENGTH].rstrip()


def clean(text: str) -> str:
    """The visible characters of a text: NUL and lone surrogates become U+FFFD, line ends LF.

    Unicode's own line separators stay until the text is parsed: JSON strings may contain them.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\x1b" in text:
        text = _COLORS.sub("", text)
    return without_hidden(_UNFIT.sub("\ufffd", text))


def numeral(number: int, kind: str) -> str:
    """A number as a list of this kind counts: "a", "A", "i" or "I"; any other kind counts in digits.

    Example: (3, "a") -> "c", (14, "i") -> "xiv". After z comes a again. What has no numeral is in digits.
    """
    if kind in {"a", "A"} and number > 0:
        return chr(ord(kind) + (number - 1) % 26)
    if kind not in {"i", "I"} or not 0 < number < 4000:  # noqa: PLR2004 there is no numeral for 5,000
        return str(number)
    return roman(number).upper() if kind == "I" else roman(number)


def alternative_text(description: str) -> str:
    """An alternative text as the document has it, "" if it is only a file name or a number.

    Example: "Plan of the clock room" -> "(picture: Plan of the clock room)"; "Bild 3" and "scan.png" -> "".
    """
    text = _ASIDE.sub("", one_line(description)[:MAX_ALTERNATIVE]).strip()
    if not any(map(str.isalpha, text)) or _NO_WORDS.fullmatch(text):
        return ""
    return ORDERS if "instructions" in flags_in(text) else f"(picture: {text})"


def with_letters(text: str) -> str:
    r"""A text of JSON or of settings with letters for their escapes: M\u00fcller -> Müller.

    Quotation marks, control characters and invisible ones stay escaped, so the text stays valid.
    """
    return _ESCAPES.sub(_letters, text) if "\\u" in text else text


def with_whole_letters(text: str) -> str:
    r"""JSON with an escape for a letter where Facebook and Instagram have one for each byte of it in UTF-8.

    Example: M\u00c3\u00bcller -> M\u00fcller. If any escapes are no such bytes, all of them mean letters.
    """
    try:
        return _ESCAPES.sub(_of_bytes, text) if "\\u" in text else text
    except ValueError:
        return text


def _of_bytes(escapes: re.Match[str]) -> str:
    letters = bytes.fromhex(escapes[2].replace("\\u00", "")).decode()
    return escapes[0] if letters.isascii() else escapes[1] + json.dumps(letters)[1:-1]


def _letters(escapes: re.Match[str]) -> str:
    try:
        letters = bytes.fromhex(escapes[2].replace("\\u", "")).decode("utf-16-be")
    except UnicodeDecodeError:  # a lone surrogate
        return escapes[0]
    if without_hidden(letters) != letters or not letters.isprintable() or '"' in letters or "\\" in letters:
        return escapes[0]
    return f"{escapes[1]}{letters}"


def join_surrogates(text: str) -> str:
    """A text whose surrogate pairs are joined, as RTF and pdfium need; lone surrogates become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


_WEEKDAY = re.compile(r"(?:[^\W\d_]{2,12}\.?,? )?")
_BEHIND_DATE = re.compile(r" ?(?:г(?:ода?)?|р(?:оку)?|r(?:oku)?|م|\([^\W\d_]{1,3}\))$")  # 2024 г., 31日(金)


def date(text: str) -> datetime | None:
    """A date in ISO 8601 or RFC 5322 format, or as people write it, in UTC; None if it isn't clear.

    05/06/2024 isn't: in some countries it is in May, in others in June.
    Example: "2024-05-01", "1 May 2024", "1. Mai 2024" and "May 1st, 2024" -> 2024-05-01 00:00 UTC.
    """
    stated = moment(text)
    return utc(stated) if stated else None


def moment(text: str) -> datetime | None:
    """A date as `date` reads it, in the zone that it states; UTC if it states none."""
    for read in (datetime.fromisoformat, parsedate_to_datetime, _written_date):
        try:
            stated = read(text.strip())
            return stated if stated.tzinfo and utc(stated) else utc(stated)
        except (ValueError, OverflowError):
            continue
    return None


def _written_date(text: str) -> datetime:
    text = _BEHIND_DATE.sub("", in_common_years(normalize("NFKC", text)).rstrip(" ."))
    dates = [
        date for date in dates_in(text) if date.end == len(text) and _WEEKDAY.fullmatch(text[: date.start])
    ]
    (day,) = dates[0].readings if dates else ()
    return datetime(*day)  # noqa: DTZ001 `utc` adds the zone


def utc(moment: datetime) -> datetime:
    """The same moment in UTC; without a time zone it is UTC already.

    Raises:
        OverflowError: the moment is at the first or last day of the calendar.
    """
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


FACT_LENGTH = 1000  # characters: a fact is shown with each hit

_ALIASES = {
    "author": ("author", "authors", "authors.name", "author.name", "creator", "by"),
    "keywords": ("keywords", "keyword"),
    "language": ("language", "lang", "locale"),
    "subject": ("subject",),
    "description": ("description", "summary", "abstract", "excerpt"),
}
SHARED = frozenset(_ALIASES)
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]{2,8})*")


def facts(**stated: str | Iterable[str | None] | None) -> dict[str, str]:
    """The facts that aren't empty, each on one line. Distinct values are joined by commas.

    A language that isn't a BCP 47 tag is left out.
    Example: author=["A", "B", "A"], language="en_GB", subject=" " -> {"author": "A, B", "language": "en-GB"}.
    """
    lines = {name: _line(value) for name, value in stated.items()}
    language = lines.get("language", "")
    lines["language"] = language.replace("_", "-") if _LANGUAGE.fullmatch(language) else ""
    return {name: line for name, line in lines.items() if line}


def with_facts(entries: Mapping[str, str]) -> dict[str, str]:
    """The entries, and those with a synonym of a shared name also under that name.

    Example: {"Authors": "A, B", "lang": "de"} -> the same, and "author": "A, B", "language": "de".
    """
    values = {key.casefold(): value for key, value in entries.items()}
    shared = {
        name: next((values[alias] for alias in aliases if values.get(alias)), "")
        for name, aliases in _ALIASES.items()
    }
    return {**facts(**shared), **entries}


def _line(value: str | Iterable[str | None] | None) -> str:
    values = [value] if value is None or isinstance(value, str) else value
    words = dict.fromkeys(one_line(clean(str(value)[: 2 * FACT_LENGTH])) for value in values if value)
    return ", ".join(filter(None, words))[:FACT_LENGTH].rstrip()


@dataclass(frozen=True, slots=True)
class Member:
    """A document inside another file. `name` is its path there, with "/".

    `stated` is what the container says about it, in the keys of a sidecar: title, date, url, from. `refused`
    is the reason, for people, why it can't be extracted; then it has no data, and `cause` is the same for
    statistics.
    """

    name: str
    data: bytes = b""
    stated: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    cause: Cause = "unsupported"


@dataclass(slots=True)
class UniqueNames:
    """Unique names.

    It remembers the last number of each name: to count from 2 again for each of ten thousand members with
    one name would take minutes.
    """

    _taken: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)

    def add(self, names: Iterable[str]) -> None:
        """Reserve names."""
        self._taken.update(names)

    def take(self, name: str) -> str:
        """Reserve a name, with a number if it is taken: a/b.md -> a/b (2).md."""
        path, unused, number = PurePosixPath(name), name, self._numbers.get(name, 1)
        while unused in self._taken:
            number += 1
            unused = str(path.with_name(f"{path.stem} ({number}){path.suffix}"))
        self._numbers[name] = number
        self._taken.add(unused)
        return unused
