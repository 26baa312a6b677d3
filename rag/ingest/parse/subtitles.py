"""Subtitles and transcripts: speech in sentences, below its time."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from rag.corpus import Document
from rag.errors import ParseError
from rag.ingest.parse.document_parts import Part, compose
from rag.text.plain_text import one_line

SUFFIXES = (".srt", ".vtt", ".sbv", ".ass", ".ssa")

_TIME = r"(?:(\d{1,3}):)?(\d{1,2}):(\d{2})[.,]\d{1,3}"
_CUE = re.compile(rf"^[ \t]*{_TIME}[ \t]*(?:-->|,)[ \t]*(?:\d+:)*\d+[:.,]\d[^\n]*$", re.MULTILINE)
_DIALOGUE = re.compile(
    r"^Dialogue:[^,\n]*,(\d+):(\d{2}):(\d{2})[^,\n]*,[^,\n]*,[^,\n]*,(?:[^,\n]*,){5}(.*)$", re.MULTILINE
)
_VOICE = re.compile(r"<v(?:\.[^ \t>]+)?[ \t]+([^>]+)>")
_MARKUP = re.compile(r"<[^<>\n]{0,200}>|\{\\[^{}\n]*\}")
_TITLE = re.compile(r"\A\s*WEBVTT[ \t]+(?:-[ \t]*)?([^\n]+)|^Title:[ \t]*(\S[^\n]*)$", re.MULTILINE)
_NUMBER = re.compile(r"\n[ \t]*\d+[ \t]*\Z")
_SECTION = 60  # seconds of speech under one time: some 150 words, one passage
_SPOKEN = re.compile(r"[.!?…。！？]['\"”»]?\Z")


class _Cue(NamedTuple):
    second: int
    text: str


def parse(text: str, name: str) -> Document:
    """The document of subtitles: a section for each minute, with the time of its first word as heading.

    A section ends at the end of a sentence.

    Raises:
        ParseError: no line has a time.
    """
    cues = [*_without_repeats(_dialogue(text) or _cues(text))]
    if not cues:
        raise ParseError("it has no subtitles: no line has a time")
    body, blocks = compose(_parts(cues))
    title = _TITLE.search(text)
    titled = next(filter(None, title.groups()), "") if title else ""
    return Document(body, titled or name, "text/vtt" if "WEBVTT" in text[:20] else "text/srt", blocks)


def _cues(text: str) -> Iterator[_Cue]:
    marks = [*_CUE.finditer(text)]
    for mark, end in zip(marks, [*(mark.start() for mark in marks), len(text)][1:], strict=True):
        speech = text[mark.end() : end]
        speech = _NUMBER.sub("", speech.rstrip()) if end < len(text) else speech
        speech = speech.strip("\n").partition("\n\n")[0]  # after a blank line comes the name of the next cue
        yield _Cue(_seconds(*mark.groups()), _words(speech))


def _dialogue(text: str) -> list[_Cue]:
    """The cues of an .ass file, sorted by time."""
    cues = [
        _Cue(_seconds(*line.groups()[:3]), _words(line[4].replace("\\N", "\n").replace("\\n", "\n")))
        for line in _DIALOGUE.finditer(text)
    ]
    return sorted(cues, key=lambda cue: cue.second)


def _without_repeats(cues: Iterator[_Cue] | list[_Cue]) -> Iterator[_Cue]:
    """The cues without lines that the cue before has shown already, as roll-up captions repeat them."""
    before: list[str] = []
    for cue in cues:
        lines = [line for line in cue.text.split("\n") if line]
        new = [line for line in lines if line not in before]
        before = lines or before
        if new:
            yield _Cue(cue.second, one_line(" ".join(new)))


def _parts(cues: list[_Cue]) -> Iterator[Part]:
    start, speech = cues[0].second, ""
    for cue in cues:
        full = cue.second - start >= _SECTION
        if full and (_SPOKEN.search(speech) or cue.second - start >= 2 * _SECTION):
            yield from _section(start, speech)
            start, speech = cue.second, ""
        speech = f"{speech} {cue.text}".strip()
    yield from _section(start, speech)


def _section(start: int, speech: str) -> Iterator[Part]:
    time = f"{start // 3600:02}:{start // 60 % 60:02}:{start % 60:02}"
    yield Part("heading", time, 1)
    yield Part("paragraph", speech)


def _words(speech: str) -> str:
    """Speech without markup, after the name of the speaker if it is stated."""
    return html.unescape(_MARKUP.sub("", _VOICE.sub(r"\1: ", speech)))


def _seconds(hours: str | None, minutes: str, seconds: str) -> int:
    return int(hours or 0) * 3600 + int(minutes) * 60 + int(seconds)
