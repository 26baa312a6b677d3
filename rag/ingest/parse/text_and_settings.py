"""Plain text and logs, headers at the top of a text, subtitles, and settings files as they stand.

Headers are written as in RFC 822 (letters, PEPs) or as fields of reStructuredText. In YAML, TOML and INI
files, each top-level key or table is a section. Subtitles are read as sentences below their time.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise, zip_longest
from typing import NamedTuple

from rag.corpus import Block, Document
from rag.errors import ParseError
from rag.ingest.parse.document_parts import (
    Lines,
    Part,
    compose,
    facts,
    heading,
    line_blocks,
    paragraphs,
    with_letters,
)
from rag.ingest.parse.front_matter import split_date
from rag.ingest.parse.internet_standards import standard_document
from rag.ingest.parse.source_code import code_blocks
from rag.ingest.parse.titles_and_questions import numbered_title
from rag.text.plain_text import NUMBER_WORDS, OF_STORIES, PARTS, one_line

SUFFIXES = (
    *(".txt", ".text", ".log", "readme", "license", "licence", "copying", "changelog", "changes", "news"),
    *("authors", "contributors", "contributing", "notice", "todo"),
    *("install", "maintainers", "hacking", "faq", ".pod", ".texi", ".texinfo", ".info"),
    *(".qif", ".ofx", ".sta", ".ged"),
)
_OF_LINES = (".log", ".qif", ".ofx", ".sta", ".ged")
"""Suffixes of texts that are records of short lines: logs, accounts and family trees."""

MAX_WRITERS = 4  # of a chat that its title names

_TITLES = (
    re.compile(r"\s*#{1,6}[ \t]+(\S[^\n]{0,98})(?:\n|\Z)"),
    re.compile(r"\s*(?:[=*#~-]{3,}[ \t]*\n[ \t]*)?(\S[^\n]{0,98})\n[ \t]*[=*#~-]{3,}[ \t]*(?:\n|\Z)"),
    re.compile(r"\s*+(?![^\n]{0,98}(?:://|www\.|\w@\w))(\S[^\n]{0,98}[^\n.,;])\n\s*\n"),
)
"""A first line that is marked as a heading, is underlined, or stands alone and is no sentence or address."""


_MESSAGE = re.compile(
    r"^\[?(?P<first>\d{1,4})(?P<joint>[./-]) ?(?P<second>\d{1,2})[./-] ?(?P<third>\d{1,4})\.?(?: г\.)?[,،]? "
    r"(?:[^\W\d_]{1,3}\.? ?)?\d{1,2}(?:[:.]| h )\d\d(?:[:.]\d\d)?"
    r"(?:[ \xa0\u202f][^\W\d_]{1,3}\.?(?:[ \xa0\u202f]?[^\W\d_]\.?)?)?(?:\]| -) (?P<who>[^\n:]{1,80}): ",
    re.MULTILINE,
)
"""A line that begins a message of a chat, as WhatsApp exports it: "[12.03.23, 14:05:33] Ann: Hello".

Before the time can be a word ("klo", "kl.", "à") or half of the day ("오후 8:15:02"); this or a word can be
behind it, too ("8:15:02 p. m.", "18:20 Uhr"). The time can be 18.20 or 18 h 20.
"""
_MONTH_FIRST = ("third", "first", "second")
_ORDERS = (("third", "second", "first"), _MONTH_FIRST, ("first", "second", "third"))
"""Where year, month and day stand: 31/12/2024, 12/31/2024, 2024-12-31."""
_BEGINNING = 2009  # the first year of WhatsApp
_FEWEST = 2  # messages that make a text a chat, if they begin at a quarter of its lines


def _messages(text: str) -> list[re.Match[str]]:
    """The first lines of the messages of a chat, with their writers; none for other texts."""
    begins = [*_MESSAGE.finditer(text)]
    return begins if len(begins) >= _FEWEST and 4 * len(begins) >= text.count("\n") else []


def _chat(text: str, messages: list[re.Match[str]], name: str) -> Document:
    """The document of a chat: a paragraph for each message, and a section for each day if days are clear.

    Phones call every chat "_chat.txt", so such a file is named after its writers.
    """
    days = _days(messages)
    ends = [*(message.start() for message in messages[1:]), len(text)]
    parts, last = [Part("paragraph", text[: messages[0].start()])], None
    for message, end, day in zip_longest(messages, ends, days):
        parts += [heading(f"{day:%Y-%m-%d}", 1)] if day != last else []
        parts.append(Part("paragraph", text[message.start() : end]))
        last = day
    body, blocks = compose(parts)
    writers = [*dict.fromkeys(message["who"].strip(" ~") for message in messages)]
    title = f"Chat: {', '.join(writers[:MAX_WRITERS])}" if name == "_chat.txt" else name
    return Document(body, title, "text/plain", blocks, date=last)


def _days(messages: Sequence[re.Match[str]]) -> list[datetime]:
    """The days of messages; none if the file doesn't tell which numbers are months: 03/04/24 alone doesn't.

    It does if the other reading has a month 13, or doesn't run forward, as a chat does.
    """
    readings = {days for order in _ORDERS if (days := _days_in(messages, *order))}
    if len(readings) > 1:
        readings = {days for days in readings if [*days] == sorted(days)}  # a chat runs forward in time
    return [*readings.pop()] if len(readings) == 1 else []


def _days_in(messages: Sequence[re.Match[str]], *order: str) -> tuple[datetime, ...]:
    """The days of messages whose numbers are year, month and day in this order; none if they can't be."""
    if order == _MONTH_FIRST and any(message["joint"] == "." for message in messages):
        return ()  # nobody writes 12.31.2024
    century = 2000 if order[0] == "third" and len(messages[0]["third"]) == 2 else 0  # noqa: PLR2004 digits
    dates = (map(int, message.group(*order)) for message in messages)
    try:
        days = tuple(datetime(century + year, month, day, tzinfo=UTC) for year, month, day in dates)
    except ValueError:
        return ()
    return days if min(days).year >= _BEGINNING else ()


_BOOK = re.compile(
    r"(?P<about>.{0,20000}?)^\*\*\* ?START OF TH(?:E|IS) PROJECT GUTENBERG[^\n]*\n(?P<text>.*?)"
    r"(?:^(?:\*\*\* ?)?END OF (?:TH(?:E|IS) )?PROJECT GUTENBERG.*)?\Z",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
"""A book of Project Gutenberg, between what it says of the book and its licence."""
_ABOUT_BOOK = re.compile(
    r"^(title|author):[ \t]*(\S[^\n]*(?:\n[ \t]+\S[^\n]*)*)", re.MULTILINE | re.IGNORECASE
)
_ACTS = {"act", "akt", "aufzug", "acte", "acto", "atto"}
_OUTER = "|".join(sorted(PARTS.difference(OF_STORIES, {"section", "abschnitt"}) | _ACTS))
_INNER = "|".join(sorted({*OF_STORIES} - _ACTS))
_CHAPTER = re.compile(
    rf"(?:(?:(?P<outer>{_OUTER})|{_INNER}) (?:the )?(?:[ivxlc]+|\d{{1,3}}|last|{NUMBER_WORDS})\b"
    rf"|(?:erst|zweit|dritt|[a-zäöüß]{{2,14}}t)e[rs]? (?:(?P<part>{_OUTER})|{_INNER})\b)"
    r"(?:[.:—–-][^\n]{0,100}|[^\n]{0,80}[^\n.!?;,:])?(?![^\n])",
    re.IGNORECASE,
)
"""The line of a chapter, a part of a book or a scene, which stands alone."""


def _book(text: str, name: str) -> Document | None:
    """The document of a book of Project Gutenberg, without what transcribers wrote around it."""
    if not (book := _BOOK.match(text)):
        return None
    about = {key.casefold(): one_line(value) for key, value in _ABOUT_BOOK.findall(book["about"])}
    blocks = _with_chapters(book["text"], [*paragraphs(book["text"])])
    author = facts(author=about.get("author"))
    return Document(book["text"], about.get("title", name), "text/plain", blocks, metadata=author)


def _with_chapters(text: str, blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks with headings where chapters begin, but for those in a table of contents."""
    lines = [_CHAPTER.match(text, block.start, block.end) for block in blocks]
    parts = list[Block]()
    for block, line, following in zip(blocks, lines, [*lines[1:], None], strict=False):
        is_outer = bool(line and any(line.groups()))
        if line and line.end() == block.end and (is_outer or not following):
            parts.append(Block("heading", block.start, block.end, 1 if is_outer else 2, line[0]))
        else:
            parts.append(block)
    return (*parts,)


def parse(text: str, name: str) -> Document:
    """The document of a plain text: a paragraph ends at a blank line, records of lines at any line."""
    if name.lower().endswith(_OF_LINES):
        return Document(text, name, "text/plain", tuple(paragraphs(text, kind="code")))
    if messages := _messages(text):
        return _chat(text, messages, name)
    if document := _book(text, name) or standard_document(text, name):
        return document
    headers = rfc822_headers(text)
    first_line = next((match[1] for pattern in _TITLES if (match := pattern.match(text))), "")
    title = headers.title or first_line or name
    blocks = _with_chapters(text, [*paragraphs(text)])
    return Document(text, title, "text/plain", blocks, date=headers.date, metadata=headers.metadata)


_MAX_CHARS = 8_000  # of all headers
_HEADER = re.compile(r"([A-Za-z][\w-]{0,40}):(?:[ \t]+(\S.*))?$")
_FIELD = re.compile(r":([A-Za-z][\w -]{0,40}):(?:[ \t]+(\S.*))?$")
_HEADER_TITLES = ("title", "subject")


class Headers(NamedTuple):
    """The title and date in the headers of a document, and the other headers as metadata."""

    title: str = ""
    date: datetime | None = None
    metadata: Mapping[str, str] = {}


def rfc822_headers(text: str) -> Headers:
    r"""The headers at the top of a text, by name in lower case; empty without a title or subject.

    Example: "PEP: 8\nTitle: Style\n Guide\n\nText" -> title "PEP 8 – Style Guide", metadata {"pep": "8"}.
    """
    entries = _entries(text, _HEADER)
    return _headers(entries) if any(entries.get(name) for name in _HEADER_TITLES) else Headers()


def field_list(text: str) -> Headers:
    r"""The fields at the top of reStructuredText: ":Author: Ann\n\nText" -> metadata {"author": "Ann"}."""
    return _headers(_entries(text, _FIELD))


def _headers(entries: dict[str, str]) -> Headers:
    titled = next((name for name in _HEADER_TITLES if entries.get(name)), "")
    day, others = split_date(entries)
    metadata = {name: value for name, value in others.items() if value and name != titled}
    return Headers(numbered_title(entries.get(titled, ""), metadata), day, metadata)


def _entries(text: str, pattern: re.Pattern[str]) -> dict[str, str]:
    """The entries up to the first blank line; none if a line neither is an entry nor continues one."""
    entries: dict[str, str] = {}
    name = ""
    for line in text.lstrip("\n")[:_MAX_CHARS].split("\n"):
        if not line.strip():
            return entries
        if name and line[0].isspace():
            entries[name] = one_line(f"{entries[name]} {line}")
        elif match := pattern.match(line.rstrip()):
            name = match[1].casefold()
            entries[name] = ", ".join(filter(None, (entries.get(name), match[2])))
        else:
            return {}
    return {}


SUBTITLE_SUFFIXES = (".srt", ".vtt", ".sbv")

_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{2})[.,]\d{1,3}"
_CUE = re.compile(rf"^[ \t]*{_TIME}[ \t]*(?:-->|,)[ \t]*(?:\d+:)*\d+[:.,]\d[^\n]*$", re.MULTILINE)
_VOICE = re.compile(r"<v(?:\.[^ \t>]+)?[ \t]+([^>]+)>")
_TURN = re.compile(r"(?P<speaker>[^\W\d_][\w .,'’()-]{0,60}): ")
_OTHER = "- "  # before the words of somebody else, as in captions of films
_NEW_TURN = re.compile(r"(?:^|(?<=[^\s>])\s)[ \t]*>>+[ \t]*|^[ \t]*[-‐–—][ \t]+", re.MULTILINE)
_NAMED_TURN = re.compile(rf"^{_OTHER}(?={_TURN.pattern})", re.MULTILINE)
_MARKUP = re.compile(r"<[^<>\n]{0,200}>|\{\\[^{}\n]*\}")
_SPEECH_TITLE = re.compile(r"\s*WEBVTT[ \t]+(?:-[ \t]*)?([^\n]+)")
_NUMBER = re.compile(r"\n[ \t]*\d+[ \t]*\Z")
_SECTION = 60  # seconds of speech under one time: some 150 words, one passage
_SPOKEN = re.compile(r"[.!?…。！？]['\"”»]?\Z")


class _Cue(NamedTuple):
    second: int
    text: str


def parse_subtitles(text: str, name: str) -> Document:
    """The document of subtitles: a section for each minute, with the time of its first word as heading.

    A section ends at the end of a sentence.

    Raises:
        ParseError: no line has a time.
    """
    cues = [*_without_repeats(_cues(text))]
    if not cues:
        raise ParseError("it has no subtitles: no line has a time")
    speakers = [turn["speaker"] if (turn := _TURN.match(cue.text)) else "" for cue in cues]
    # Who is named first and speaks again is a person: "Translator: Ann Lee" isn't whose talk follows.
    are_named = bool(speakers[0]) and speakers.count(speakers[0]) > 1 and not _VOICE.search(text)
    body, blocks = compose(_sections(cues, are_named=are_named))
    title, is_web = _SPEECH_TITLE.match(text), "WEBVTT" in text[:20]
    return Document(body, title[1] if title else name, "text/vtt" if is_web else "text/srt", blocks)


def _cues(text: str) -> Iterator[_Cue]:
    marks = [*_CUE.finditer(text)]
    for mark, end in zip(marks, [*(mark.start() for mark in marks), len(text)][1:], strict=True):
        speech = text[mark.end() : end]
        speech = _NUMBER.sub("", speech.rstrip()) if end < len(text) else speech
        speech = speech.strip("\n").partition("\n\n")[0]  # after a blank line comes the name of the next cue
        yield _Cue(_seconds(*mark.groups()), _spoken_words(speech))


def _without_repeats(cues: Iterable[_Cue]) -> Iterator[_Cue]:
    """The cues without lines that the cue before has shown already, as roll-up captions repeat them."""
    before: list[str] = []
    for cue in cues:
        lines = [line for line in cue.text.split("\n") if line]
        new = [line for line in lines if line not in before]
        before = lines or before
        yield from (_Cue(cue.second, one_line(line)) for line in new)


def _sections(cues: list[_Cue], *, are_named: bool) -> Iterator[Part]:
    """The speech of each minute, a line for each turn; behind a dash if nobody names its speaker.

    Where speakers are named in the text from the first one on (`are_named`), a turn that goes on has the name
    in each minute, too. Elsewhere, it may be stated for people alone who aren't seen.
    """
    start, speech, speaker = cues[0].second, "", ""
    for cue in cues:
        full = cue.second - start >= _SECTION
        if full and (_SPOKEN.search(speech) or cue.second - start >= 2 * _SECTION):
            yield from _section_at(start, speech)
            start, speech, speaker = cue.second, "", speaker if are_named else ""
        turn, is_other = _TURN.match(cue.text), cue.text.startswith(_OTHER)
        # Else one is taken for the words of another.
        goes_on = not is_other and (not turn or turn["speaker"] == speaker)
        words = cue.text[turn.end() :] if turn else cue.text
        speaker = turn["speaker"] if turn else "" if is_other else speaker
        name = f"{speaker}: " if speaker and not (goes_on and speech) else ""
        speech = f"{speech}{' ' if goes_on else chr(10)}{name}{words}".strip()
    yield from _section_at(start, speech)


def _section_at(start: int, speech: str) -> Iterator[Part]:
    time = f"{start // 3600:02}:{start // 60 % 60:02}:{start % 60:02}"
    yield Part("heading", time, 1)
    yield Part("paragraph", speech)


def _spoken_words(speech: str) -> str:
    """Speech without markup, a line for each turn, after the name of the speaker if it is stated."""
    words = html.unescape(_MARKUP.sub("", _VOICE.sub(r"\1: ", speech)))
    return _NAMED_TURN.sub("", _NEW_TURN.sub(f"\n{_OTHER}", words))


def _seconds(hours: str | None, minutes: str, seconds: str) -> int:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)


YAML_SUFFIXES = (".yaml", ".yml")
TABLE_SUFFIXES = (".toml", ".ini", ".cfg", ".conf")

_KEY = re.compile(
    r"(?P<indent> *)(?P<key>\"[^\"\n]{1,80}\"|'[^'\n]{1,80}'|(?!- )[^\s#\"'{}\[\]&*|>%@`][^\n]{0,120}?)"
    r"[ \t]*:(?P<value>[ \t].*)?$"
)
_CONTENT = re.compile(r"(?P<indent> *)(?![ #]|\{\{|$)(?P<item>- )?")
_TEXT_BELOW = re.compile(r"[ \t]+[|>]")
_BORDER = re.compile(r"---(?:\s|$)")
_LONG = 40  # lines of a section whose own keys are sections, too: about a passage
_MOST_LEVELS = 4
_LONGEST_COMMENT = 10  # lines; longer ones are mostly settings that are switched off
_TABLE = re.compile(r"\[{1,2}[ \t]*+(?P<name>[^\[\]\n]{1,120})\]{1,2}\s*(?:[#;].*)?$")
_QUOTED = re.compile(r'"(?:[^"\\\n]|(?s:\\.))*+"?')  # where \u is an escape
_SHORT = re.compile(r"(?<!\\)((?:\\\\)*+)\\x([0-9a-fA-F]{2})")  # as PyYAML writes letters below U+0100
_TITLE = re.compile(
    r"^(?:title|name)[ \t]*[:=][ \t]*(?:\"([^\"\n]+)\"|'([^'\n]+)'|([^\s\"'#{\[&*|>][^\n#]*))", re.MULTILINE
)
_EMPTY = re.compile(r"[ \t]*(?:[{\[]|[|>&!#].*)?$")


def parse_yaml(text: str, name: str) -> Document:
    """The document of a YAML file; each of its documents is a section, and keys with their value below.

    These are the top-level keys, and those in long sections, as the paths and schemas of an OpenAPI file. An
    object of Kubernetes is named after its kind and name: "Deployment checkout".
    """
    text = _QUOTED.sub(lambda quoted: _SHORT.sub(r"\1\\u00\2", quoted[0]), text)
    return _document(text, name, "application/yaml", _keys(text.split("\n")))


def parse_tables(text: str, name: str) -> Document:
    """The document of a TOML or INI file; tables are sections, nested as their names are."""
    return _document(text, name, "text/plain", _tables(text.split("\n")))


def _document(text: str, name: str, mime_type: str, marks: Iterator[tuple[int, int, str]]) -> Document:
    """The document with headings at `marks`: line, level and title."""
    text = _QUOTED.sub(lambda quoted: with_letters(quoted[0]), text)
    blocks = _blocks(text, list(marks))
    title = _TITLE.search(text)
    stated = next(filter(None, title.groups()), "").strip() if title else ""
    return Document(text, stated or name, mime_type, blocks)


def json_blocks(text: str) -> tuple[Block, ...]:
    """The blocks of JSON that stays as it is: a section for each key with its value below, if it is long."""
    lines = text.split("\n")
    return _blocks(text, [*_keys_if_long(lines, range(1, len(lines)), 1)])


def _blocks(text: str, headings: list[tuple[int, int, str]]) -> tuple[Block, ...]:
    if not headings:
        return tuple(code_blocks(text))
    return tuple(line_blocks(text, _parts(headings, text.split("\n"))))


def _keys(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    borders = [number for number, line in enumerate(lines) if _BORDER.match(line)]
    documents = [*pairwise(dict.fromkeys([0, *borders, len(lines)]))]
    for start, end in documents:
        title = _object_name(lines[start:end])
        if title or (len(documents) > 1 and start):
            yield start, 1, title
        if not title or end - start > _LONG:
            yield from _keys_below(lines, range(start, end), "", 2 if title else 1)


def _object_name(lines: Sequence[str]) -> str:
    """The kind and name of an object of Kubernetes, as "Deployment checkout"; empty for other documents.

    A name that a template computes is left out.
    """
    kind = name = parent = indent = ""
    for match in filter(None, map(_KEY.match, lines)):
        value = (match["value"] or "").strip(" \t\"'")
        if not match["indent"]:
            parent, indent = match["key"], ""
            kind = value if parent == "kind" else kind
        else:
            indent = indent or match["indent"]
            is_name = (parent, match["key"], match["indent"]) == ("metadata", "name", indent)
            name = value if is_name else name
    return f"{kind} {'' if '{{' in name else name}".strip() if kind and name else ""


def _keys_below(lines: Sequence[str], span: range, indent: str, level: int) -> Iterator[tuple[int, int, str]]:
    """Keys of this indent with values below them. The first other key after such a value ends the section."""
    matches = ((number, _KEY.match(lines[number])) for number in span)
    keys = [(number, key) for number, key in matches if key and key["indent"] == indent]
    ends = [*(number for number, _ in keys[1:]), span.stop]
    within = False
    for (number, key), end in zip(keys, ends, strict=False):  # no keys have one end
        value = key["value"] or ""
        if _EMPTY.fullmatch(value):
            within = True
            yield number, level, key["key"].strip("\"'")
            if level < _MOST_LEVELS and not _TEXT_BELOW.match(value):
                yield from _keys_if_long(lines, range(number + 1, end), level + 1)
        elif within:
            within = False
            yield number, level, ""


def _keys_if_long(lines: Sequence[str], span: range, level: int) -> Iterator[tuple[int, int, str]]:
    if len(span) <= _LONG:
        return
    first = next(filter(None, (_CONTENT.match(lines[number]) for number in span)), None)
    if first and first["indent"] and not first["item"]:
        yield from _keys_below(lines, span, first["indent"], level)


def _tables(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    for number, line in enumerate(lines):
        if match := _TABLE.match(line):
            yield number, 1 + match["name"].count("."), match["name"].rstrip()


def _parts(marks: list[tuple[int, int, str]], lines: Sequence[str]) -> Iterator[Lines]:
    """The blocks of settings with these headings, to which comments right above them belong."""
    begins = [_comment_above(lines, mark[0]) for mark in marks]
    if begins[0]:
        yield Lines("code", 0, begins[0])
    for (at, level, title), begin, end in zip(marks, begins, [*begins[1:], len(lines)], strict=True):
        yield Lines("heading", begin, at + 1, level, title)
        if end > at + 1:
            yield Lines("code", at + 1, end)


def _comment_above(lines: Sequence[str], number: int) -> int:
    """The first line of the comment that ends right above a line, or that line if it is too long for one."""
    line, begin = lines[number], number
    comments = (
        () if _BORDER.match(line) else tuple(line[: len(line) - len(line.lstrip())] + sign for sign in "#;")
    )
    while begin and number - begin <= _LONGEST_COMMENT and lines[begin - 1].startswith(comments):
        begin -= 1
    return begin if number - begin <= _LONGEST_COMMENT else number
