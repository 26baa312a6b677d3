"""Subtitles: what is said, under the time when it is said."""

from __future__ import annotations

import pytest

from rag.errors import ParseError
from rag.ingest.parse.parsers import parse

SRT = """1
00:00:01,000 --> 00:00:04,000
<i>The clock</i>
ticks.

2
01:02:04,000 --> 01:02:06,000
{\\an8}42
"""
VTT = """WEBVTT - My talk

NOTE by Ann

1
00:01.000 --> 00:04.000 align:start
<v Ann>Oil &amp; wind

second
00:04.000 --> 00:06.000
the clock.

00:01:10.000 --> 00:01:12.000
Again
"""
SBV = "0:00:01.000,0:00:04.000\nIt\n\n0:00:05.000,0:00:06.000\nticks"
ASS = """[Script Info]
Title: T
[Events]
Dialogue: 0,0:00:03.00,0:00:04.00,D,,0,0,0,,{\\b1}ticks, yes
Dialogue: 0,0:00:01.00,0:00:02.00,D,,0,0,0,,The\\Nclock
"""


@pytest.mark.parametrize(
    ("name", "content", "title", "text"),
    [
        ("a.srt", SRT, "a", "00:00:01\n\nThe clock ticks.\n\n01:02:04\n\n42"),
        (
            "a.srt",
            "\ufeff" + SRT.replace("\n", "\r\n"),
            "a",
            "00:00:01\n\nThe clock ticks.\n\n01:02:04\n\n42",
        ),
        ("a.vtt", VTT, "My talk", "00:00:01\n\nAnn: Oil & wind the clock.\n\n00:01:10\n\nAgain"),
        ("a.sbv", SBV, "a", "00:00:01\n\nIt ticks"),
        ("a.ass", ASS, "T", "00:00:01\n\nThe clock ticks, yes"),
    ],
)
def test_subtitles_are_sentences_under_their_times(name: str, content: str, title: str, text: str) -> None:
    document = parse(content.encode(), name)
    assert (document.title, document.text) == (title, text)
    headings = [one.title for one in document.blocks if one.kind == "heading"]
    assert headings == [line for line in text.split("\n") if line[2:3] == ":"]


def test_a_section_is_a_minute_and_ends_with_a_sentence() -> None:
    said = [f"word {n}{'.' if n % 7 == 0 else ''}" for n in range(200)]
    cues = [f"00:{n // 60:02}:{n % 60:02}.000 --> 00:59:59.000\n{one}\n" for n, one in enumerate(said)]
    document = parse("\n".join(["WEBVTT\n", *cues]).encode(), "a.vtt")
    headings = [one.title for one in document.blocks if one.kind == "heading"]
    assert headings == ["00:00:00", "00:01:04", "00:02:07", "00:03:10"]


def test_captions_that_roll_up_are_said_once() -> None:
    cues = "00:01.000 --> 00:02.000\nThe clock\n\n00:02.000 --> 00:03.000\nThe clock\nticks.\n"
    assert parse(f"WEBVTT\n\n{cues}".encode(), "a.vtt").text == "00:00:01\n\nThe clock ticks."


def test_without_a_time_there_are_no_subtitles() -> None:
    with pytest.raises(ParseError, match="no subtitles"):
        parse(b"WEBVTT\n\nThe clock ticks.", "a.vtt")
