"""Rich Text (RTF): headings by style, lists, tables and notes, decoded by the code page of each font.

Outlook wraps the HTML of a mail in it. Source: [MS-OXRTFEX].
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.decode import codec_of, decode_part, is_utf8
from rag.ingest.parse.document_draft import Draft, Properties, document_of_draft
from rag.ingest.parse.document_parts import MAX_SPAN, join_surrogates, listed_names, listed_pairs
from rag.ingest.parse.typefaces import HEIGHTS, as_script, as_struck
from rag.text.table_heads import ABOVE, COVERED

SUFFIXES = (".rtf",)
MIME_TYPE = "application/rtf"
PLAIN_LEVEL = 9  # outline level of plain text
_MERGED = {"clvmrg": ABOVE, "clmrg": COVERED}
SAME_EDGE = 60  # twips between the edges of cells in one column at most

_TOKEN = re.compile(
    rb"\\'([0-9a-fA-F]{2})|\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\([^a-zA-Z])|([{}])|[\r\n]+|([^\\{}\r\n]+)"
)
_SKIPPED = listed_names("""
    fonttbl colortbl pict object fldinst themedata datastore listtable xe tc listoverridetable sp pn pntxta
    pntxtb nonshppict shprslt revtbl rsidtbl generator xmlnstbl mmathPr do annotation atnid atnauthor
    atndate bkmkstart bkmkend userprops latentstyles
""")
_PROPERTIES = {name: name for name in ("title", "author", "subject", "keywords")} | {"doccomm": "description"}
_OWN = {*_PROPERTIES, "info", "stylesheet", "revtim", "listtext", "footnote", "htmltag"}
_MARGINS = {f"{margin}{pages}" for margin in ("header", "footer") for pages in ("", "l", "r", "f")}
_CHARACTERS = {
    "tab": "\t",
    "line": "\n",
    "column": "\n",
    **dict.fromkeys(("emspace", "enspace", "qmspace"), " "),
}
_CHARACTERS |= listed_pairs("emdash —|endash –|bullet •|lquote ‘|rquote ’|ldblquote “|rdblquote ”")
_SWITCHES = {"v": "hidden", "deleted": "hidden", "b": "bold", "strike": "struck", "striked": "struck"}
_SYMBOLS = {"~": "\u00a0", "_": "\u2011", "\n": "\n", "\r": "\n"}
_SYMBOL_BULLET = 0xF0B7  # in the font Symbol
_CODE_PAGES = {"mac": "mac-roman", "pc": "cp437", "pca": "cp850"}
_CODECS = """
    77 mac-roman|128 cp932|129 cp949|130 johab|134 gbk|136 big5|161 cp1253|162 cp1254|163 cp1258|177 cp1255
    178 cp1256|186 cp1257|204 cp1251|222 cp874|238 cp1250|254 cp437|255 cp850
"""
_CHARSETS = {int(number): codec for number, codec in listed_pairs(_CODECS).items()}
"""The codecs of fonts by their charsets. Others are in the code page of the file."""
_HEADING = re.compile(
    r"(?:heading|überschrift|titre|título|titolo|заголовок) ?([1-9])|title;?$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class _State:
    """What holds within a group."""

    into: str = "body"
    hidden: bool = False
    beside_html: bool = False
    """Whether it stands for programs that don't read the HTML around it."""
    bold: bool = False
    height: int = 0
    struck: bool = False
    codec: str = ""
    unicode_skip: int = 1
    around: str = ""
    """Where its form in Unicode belongs, in a group that has an older one first."""


@dataclass(slots=True)
class _Paragraph:
    """What holds until the next paragraph."""

    style: int = 0
    level: int = 0
    depth: int = 0
    in_table: bool = False
    mark: str = ""
    bold: bool = True
    texts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Row:
    """The cells of a row; and where the row begins, where each cell ends, and what merges it, as stated."""

    texts: list[str] = field(default_factory=list)
    start: int = 0
    ends: list[int] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)

    def read(self, word: str, number: int) -> None:
        """Read a word about the row; those about a cell stand before its end."""
        match word:
            case "trowd":
                self.start, self.ends, self.merged = 0, [], [""]
            case "trleft":
                self.start = number
            case "clvmrg" | "clmrg":
                self.merged[-1:] = [word]
            case "cellx":
                self.ends.append(number)
                self.merged.append("")


def parse(data: bytes, _name: str) -> Document:
    """The document of a Rich Text file; remarks count hidden text and comments."""
    if not data.startswith(b"{\\rtf"):
        raise ParseError("not an RTF file")
    reader = _Reader()
    reader.read(data)
    about = {name: "".join(reader.own.get(word, ())).strip() for word, name in _PROPERTIES.items()}
    properties = Properties(modified=reader.saved, **about)
    return document_of_draft(reader.draft, MIME_TYPE, properties)


def wrapped_html(data: bytes) -> str:
    """The HTML that a rich text wraps: its tags are in groups of their own, between texts."""
    reader = _Reader(into="html")
    reader.read(data)
    return join_surrogates("".join(reader.own.get("html", ())))


class _Reader:
    def __init__(self, into: str = "body") -> None:
        self.draft = Draft()
        self.own: dict[str, list[str]] = {}
        self.saved = ""
        self._codec = "cp1252"
        self._fonts: dict[int, str] = {}
        self._default_font = 0
        self._is_utf8 = False
        self._styles: dict[int, int] = {}
        self._style = self._font = 0
        self._in_fonts = False
        self._state = _State(into)
        self._stack: list[_State] = []
        self._paragraph = _Paragraph()
        self._bytes: list[bytes] = []
        self._skip = 0
        self._cell: list[str] = []
        self._row = _Row()
        self._rows: list[_Row] = []
        self._moment: dict[str, int] = {}

    def read(self, data: bytes) -> None:
        self._is_utf8 = not data.isascii() and is_utf8(data)  # RTF is ASCII; some programs write UTF-8 in it
        starred, at = False, 0
        while match := _TOKEN.search(data, at):
            at = match.end()
            code, word, number, symbol, brace, text = match.groups()
            if code:
                self._byte(bytes([int(code, 16)]))
            elif text:
                self._plain(text)
            elif brace:
                self._flush()
                self._skip = 0  # the fallback for a Unicode character ends with its group
                self._group(opens=brace == b"{")
            elif symbol == b"*":
                starred = True
                continue
            elif symbol and symbol in b"\\{}":
                self._byte(symbol)  # perhaps the second byte of a character
            elif symbol:
                self._character(_SYMBOLS.get(symbol.decode("latin-1"), ""))
            elif word == b"bin":  # bytes of a picture, which may look like words
                at += max(0, int(number or 0))
            elif word:
                self._word(word.decode(), int(number) if number else None, starred=starred)
            starred = False
        self._flush()
        self._end_paragraph()
        self._end_table()
        self.draft.margins(
            *(join_surrogates("".join(self.own.get(kind, ()))).splitlines() for kind in ("header", "footer"))
        )

    def _group(self, *, opens: bool) -> None:
        if opens:
            self._stack.append(self._state)
        elif self._stack:
            closed, self._state = self._state.into, self._stack.pop()
            if closed != self._state.into:
                self._close(closed)

    def _close(self, destination: str) -> None:
        """Use the text of a destination that ends: a list mark, a footnote, or the revision date."""
        if destination == "listtext":
            mark = "".join(self.own.pop("listtext", [])).strip()
            self._paragraph.mark = mark if any(map(str.isalnum, mark)) else "-"
        elif destination == "footnote" and (note := "".join(self.own.pop("footnote", [])).strip()):
            self._write(self.draft.note(lambda: join_surrogates(note)))
        elif destination == "revtim" and (year := self._moment.get("yr")):
            month, day = (self._moment.get(part, 1) for part in ("mo", "dy"))
            hour, minute = (self._moment.get(part, 0) for part in ("hr", "min"))
            self.saved = f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:00"

    def _word(self, word: str, number: int | None, *, starred: bool) -> None:
        self._flush()
        if word == "u" and number is not None:
            self._write("•" if number % 0x10000 == _SYMBOL_BULLET else chr(number % 0x10000))
            self._skip = self._state.unicode_skip
        elif self._state.into == "skipped":
            self._word_of_skipped(word, number or 0)
        elif word in _CHARACTERS:
            self._character(_CHARACTERS[word])
        elif not (self._opens(word, starred=starred) or self._ends(word)):
            if self._state.into in {"body", "stylesheet"}:
                self._of_paragraph(word, number or 0)
            self._of_text(word, number)
            if self._state.into == "revtim":
                self._moment[word] = number or 0

    def _word_of_skipped(self, word: str, number: int) -> None:
        """Collect the code pages of fonts, and read the Unicode form of a text in two forms."""
        if word == "ud" and self._state.around:
            self._state = replace(self._state, into=self._state.around, around="")
        elif self._in_fonts and word == "f":
            self._font = number
        elif self._in_fonts and word in {"fcharset", "cpg"}:
            self._fonts[self._font] = (
                _CHARSETS.get(number, "") if word == "fcharset" else _codec_of_page(number)
            )

    def _opens(self, word: str, *, starred: bool) -> bool:
        """Set the destination of a group; False if the word isn't one."""
        if word == "upr":
            # The older form, without Unicode, comes first; `ud` begins the one that is read.
            self._state = replace(self._state, into="skipped", around=self._state.into)
        elif word in _OWN or word in _MARGINS or word == "pntext":  # some write \* also before these
            name = "listtext" if word == "pntext" else word[:6] if word in _MARGINS else word
            self._state = replace(self._state, into=name, beside_html=False)
        elif word in _SKIPPED or (starred and word != "shpinst"):
            self._in_fonts = word == "fonttbl"
            self.draft.left_out["comment"] += word == "annotation"
            self._state = replace(self._state, into="skipped")
        else:
            return False
        return True

    def _ends(self, word: str) -> bool:
        """End a paragraph, a cell or a row; False if the word doesn't."""
        in_body = self._state.into == "body"
        match word:
            case "par" | "sect" | "page" if in_body:
                self._end_paragraph()
            case "par" | "sect" | "row" if not in_body:
                self._write("\n")
            case "cell" | "nestcell" if not in_body:
                self._write(" ")
            case "shptxt":  # a box anchored in a line
                self._write("\n")
            case "nestcell":
                self._end_nested()
            case "cell":
                self._end_cell()
            case "row":
                self._rows.append(self._row)
                self._row = replace(self._row, texts=[])  # the next one has the same cells unless it says so
            case _:
                return False
        return True

    def _of_paragraph(self, word: str, number: int) -> None:
        paragraph = self._paragraph
        match word:
            case "pard":
                # Only the looks are reset: the word may stand amid the words of a paragraph.
                self._paragraph = _Paragraph(texts=paragraph.texts, bold=paragraph.bold, mark=paragraph.mark)
            case "intbl":
                paragraph.in_table = True
            case "s":
                paragraph.style = self._style = number
            case "outlinelevel":
                paragraph.level = number + 1
                if self._state.into == "stylesheet" and number < PLAIN_LEVEL:
                    self._styles[self._style] = paragraph.level
            case "ilvl":
                paragraph.depth = number
            case _ if self._state.into == "body":
                self._row.read(word, number)

    def _of_text(self, word: str, number: int | None) -> None:
        state = self._state
        match word:
            case _ if word in _SWITCHES:
                switched: dict[str, Any] = {_SWITCHES[word]: number != 0}
                self._state = replace(state, **switched)
            case "super" | "sub" | "nosupersub" | "up" | "dn":
                self._state = replace(state, height=_height(word, number))
            case "plain":
                self._state = replace(state, hidden=False, bold=False, height=0, struck=False, codec="")
            case "f":
                self._state = replace(state, codec=self._fonts.get(number or 0) or self._codec)
            case "htmlrtf":
                self._state = replace(state, beside_html=number != 0)
            case "uc":
                self._state = replace(state, unicode_skip=min(number or 0, 9))
            case "deff":
                self._default_font = number or 0
            case "ansicpg" if number:
                self._codec = _codec_of_page(number)
            case "mac" | "pc" | "pca":
                self._codec = _CODE_PAGES[word]

    def _character(self, text: str) -> None:
        """Write a character that has a name, unless it is the fallback for a Unicode character."""
        self._flush()
        if self._skip:
            self._skip -= 1
        else:
            self._write(text)

    def _byte(self, byte: bytes) -> None:
        if self._skip:
            self._skip -= 1
        else:
            self._bytes.append(byte)

    def _plain(self, text: bytes) -> None:
        skipped, self._skip = min(self._skip, len(text)), self._skip - min(self._skip, len(text))
        if self._state.into == "skipped":  # a picture can be millions of digits
            return
        if self._is_utf8 and not text.isascii():
            self._flush()
            self._write(text[skipped:].decode("utf-8", "replace"))
        else:
            self._bytes.append(text[skipped:])

    def _flush(self) -> None:
        """Write the bytes so far in the code page of their font."""
        if not self._bytes:
            return
        pending, self._bytes = b"".join(self._bytes), []
        codec, usual = self._state.codec, self._fonts.get(self._default_font)
        if self._state.into in _PROPERTIES:  # without a font; some state a code page that isn't theirs
            self._write(decode_part(pending, codec or self._codec).text)
        else:
            self._write(pending.decode(codec or usual or self._codec, "replace"))

    def _write(self, text: str) -> None:
        state = self._state
        if not text or state.into == "skipped":
            return
        if state.into == "stylesheet":
            if match := _HEADING.match(text.strip()):
                self._styles[self._style] = int(match[1] or 1)
        elif state.hidden and state.into in {"body", "footnote", "header", "footer"}:
            self.draft.left_out["text"] += bool(text.strip())
        elif state.into in {"html", "htmltag"}:
            words = text if state.into == "htmltag" else escape(text, quote=False)
            self.own.setdefault("html", []).extend([] if state.beside_html else [words])
        elif state.into != "body":
            self.own.setdefault(state.into, []).append(text)
        else:
            text = as_struck(as_script(text, state.height), is_struck=state.struck)
            self._paragraph.texts.append(text)
            self._paragraph.bold &= state.bold or not text.strip()

    def _end_paragraph(self) -> None:
        paragraph = self._paragraph
        text = join_surrogates("".join(paragraph.texts))
        self._paragraph = replace(paragraph, texts=[], bold=True, mark="")
        if paragraph.in_table:
            self._cell.append(f"{paragraph.mark} {text}" if paragraph.mark else text)
            return
        self._end_table()
        level = paragraph.level if 0 < paragraph.level < 10 else self._styles.get(paragraph.style, 0)  # noqa: PLR2004 9 is plain
        if level and text.strip():
            self.draft.heading(f"{paragraph.mark} {text}" if paragraph.mark not in {"", "-"} else text, level)
        elif paragraph.mark:
            self.draft.item(text, paragraph.depth, paragraph.mark, bold=paragraph.bold)
        else:
            self.draft.paragraph(text, bold=paragraph.bold)
        self.draft.write_notes()

    def _end_cell(self) -> None:
        self._end_nested()
        self._row.texts.append(" ".join(filter(None, self._cell)))
        self._cell = []

    def _end_nested(self) -> None:
        self._cell.append(join_surrogates("".join(self._paragraph.texts)))
        self._paragraph = replace(self._paragraph, texts=[], bold=True, mark="")

    def _end_table(self) -> None:
        if rows := [*self._rows, *([self._row] if self._row.texts else [])]:
            self.draft.table(_by_column(rows))
            self._rows, self._row = [], _Row()


def _by_column(rows: Sequence[_Row]) -> list[list[str]]:
    """The texts of rows in the columns between all edges of cells; in turn where rows don't state these."""
    edges: list[int] = []
    for edge in sorted({edge for row in rows for edge in (row.start, *row.ends)}):
        if not edges or edge - edges[-1] > SAME_EDGE:
            edges.append(edge)
    # Without the ends of its cells, a row says nothing of its columns.
    if len(edges) > MAX_SPAN or any(len(row.texts) != len(row.ends) for row in rows):
        return [row.texts for row in rows]
    table: list[list[str]] = []
    for row in rows:
        begin = bisect_right(edges, row.start) - 1
        texts = [""] * begin
        for text, edge, merged in zip(row.texts, row.ends, row.merged, strict=False):
            span = max(bisect_right(edges, edge) - 1 - len(texts), 0)
            texts += [_MERGED.get(merged, text), *[COVERED] * (span - 1)][:span]
        table.append(texts)
    return table


def _height(word: str, number: int | None) -> int:
    """How much a text is set higher than its line (lower below 0), by a word that says so."""
    if word in {"up", "dn"}:
        half_points = 6 if number is None else number
        return half_points if word == "up" else -half_points
    return HEIGHTS.get(word, 0)


def _codec_of_page(number: int) -> str:
    return codec_of(f"cp{number}") or "cp1252"
