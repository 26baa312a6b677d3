"""Transcripts: each part of a long turn has its speaker."""

from __future__ import annotations

import pytest

from rag.ingest.parse.parsers import parse

LONG = "The engineers told me that the pillar had moved. " * 20


def sections(text: str, name: str) -> list[tuple[int, str]]:
    blocks = parse(text.encode(), name).blocks
    return [(block.level, block.title) for block in blocks if block.kind == "heading"]


def test_a_long_turn_of_a_transcript_is_a_section_with_its_speaker() -> None:
    question, bye = "**Ann Lee:** Why?", "**Ann Lee:** Thanks.\n\n**Bob O'Neil:** Bye."
    turns = f"{question}\n\n**Bob O'Neil:** {LONG}\n\n{LONG}\n\n{bye}"
    assert sections(f"# Show 12\n\n{turns}", "show.md") == [
        (1, "Show 12"),
        (2, ""),
        (3, "Bob O'Neil"),  # below the question
        (2, ""),
    ]
    other = turns.replace(":**", "**:").replace("**Bob O'Neil**: Bye.", "")
    assert (2, "Bob O'Neil") in sections(other, "show.md")


@pytest.mark.parametrize("form", ["{}  {}", "{} ({}):", "[{}] {}"])
def test_turns_with_a_time_are_cited_by_it(form: str) -> None:
    said = (
        ("Ann", "00:00", "Why?"),
        ("Bob", "00:06", LONG),
        ("Ann", "05:10", "And?"),
        ("Bob", "05:20", "No."),
    )
    later = ("Ann", "1:06:40", "Thanks.")
    text = "\n\n".join(f"{form.format(who, time)}\n{words}" for who, time, words in (*said, later))
    assert sections(text, "otter.txt") == [(1, "00:00"), (2, "Bob 00:06"), (1, "05:10"), (1, "1:06:40")]


@pytest.mark.parametrize(
    "labels", [("Note", "Example", "Warning"), ("Note", "Note", "Note", "Tip", "Tip"), ("Note", "Tip")]
)
def test_labels_of_other_texts_are_no_speakers(labels: tuple[str, ...]) -> None:
    text = "\n\n".join(f"**{label}:** {LONG}" for label in labels)
    assert sections(f"# Guide\n\n{text}", "guide.md") == [(1, "Guide")]


def test_labels_below_many_headings_are_no_speakers() -> None:
    steps = "\n\n".join(f"## Step {n}\n\n**Note:** {LONG}\n\n**Tip:** {LONG}" for n in range(4))
    assert sections(steps, "guide.md") == [(2, f"Step {n}") for n in range(4)]


def test_a_turn_of_subtitles_that_goes_on_has_its_speaker_in_each_minute() -> None:
    cues = "\n\n".join(
        f"00:{minute:02}:00,000 --> 00:{minute:02}:40,000\nIt moved." for minute in range(1, 4)
    )
    first = "00:00:00,000 --> 00:00:40,000\n{}\n\n"
    last = "\n\n00:05:00,000 --> 00:05:40,000\nBOB: It stood."
    named = parse((first.format("BOB: It stood.") + cues + last).encode(), "a.srt").text
    assert named.split("\n\n")[3] == "BOB: It moved."
    unseen = first.format("It stood.") + cues.replace("It moved.", "BOB: It moved.", 1)
    assert parse(unseen.encode(), "a.srt").text.split("\n\n")[5] == "It moved."
    translated = first.format("Translator: Ann Lee\nReviewer: Bob Ray") + cues
    assert "Reviewer: It" not in parse(translated.encode(), "a.srt").text
