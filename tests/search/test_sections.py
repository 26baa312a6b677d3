"""A section is found by what a reader would call it, and nothing is guessed where two could be meant."""

from __future__ import annotations

import pytest

from rag.corpus import Heading
from rag.errors import InvalidRequestError
from rag.search.source_window import headings_named, section_span
from rag.text.segments import Span

OUTLINE = [
    Heading("Handbook", 1, 0),
    Heading("Leave", 2, 100),
    Heading("Parental leave", 3, 150),
    Heading("Example", 4, 180),
    Heading("Sick leave", 3, 200),
    Heading("Example", 4, 250),
    Heading("Travel", 2, 300),
    Heading("Cafe\u0301 & C# ![x](y)", 2, 350),
    Heading("Examples of C#", 2, 400),
]
LENGTH = 500


def _found(wanted: str) -> list[int]:
    return [heading.start for heading in headings_named("The handbook", OUTLINE, wanted)]


@pytest.mark.parametrize(
    ("wanted", "starts"),
    [
        ("Leave", [100]),  # exactly, although others contain it
        ("leave", [100]),
        ("  TRAVEL ", [300]),
        ("## Travel", [300]),
        ("Parental", [150]),
        ("sick", [200]),
        ("Example", [180, 250]),
        ("Leave > Parental leave", [150]),
        ("Handbook › Leave › Sick leave › Example", [250]),
        ("The handbook › Sick leave › Example", [250]),
        ("parental leave > example", [180]),
        ("Caf\u00e9 & C# ! [x](y)", [350]),  # as the outline shows it
        ("Caf\u00e9", [350]),
        ("of c#", [400]),
    ],
)
def test_a_heading_is_found_by_its_words_its_beginning_or_its_path(wanted: str, starts: list[int]) -> None:
    assert _found(wanted) == starts


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("exam", "Several headings match section: Example; Examples of C#."),
        ("Parentl leav", "No heading matches section. Near ones: Parental leave; Leave; Sick leave."),
        ("sick pay", "No heading matches section. Near ones: Sick leave."),
        ("maternity", "No heading matches section. The first ones: Handbook; Leave; "),
        ("the a of", "No heading matches section. The first ones: Handbook; "),
        ("zzz", "No heading matches section. The first ones: Handbook; Leave; Parental leave; "),
        ("Travel > Parental leave", "No heading matches section. Near ones: Parental leave"),
        ("\u202e", "No heading matches section. The first ones: Handbook"),
        ("#", "Several headings match section: Café & C# "),
    ],
)
def test_what_is_no_heading_or_several_is_told_which_there_are(wanted: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        _found(wanted)


def test_a_source_without_headings_says_so() -> None:
    with pytest.raises(InvalidRequestError, match="has no headings"):
        headings_named("title", [], "Leave")


def test_an_error_names_a_few_headings_without_what_could_load_something() -> None:
    outline = [Heading(f"![{n}](x) <img src={n}>", 1, n) for n in range(3000)]
    with pytest.raises(InvalidRequestError) as caught:
        headings_named("title", outline, "zzz")
    assert str(caught.value).endswith("and 2992 more.")
    assert "![" not in str(caught.value)
    assert "<img" not in str(caught.value)


def test_a_section_includes_its_subsections_and_ends_at_its_own_level() -> None:
    assert section_span("", OUTLINE, LENGTH, "Leave") == (Span(100, 300), ())
    assert section_span("", OUTLINE, LENGTH, "Handbook") == (Span(0, LENGTH), ())
    assert section_span("", OUTLINE, LENGTH, "Parental leave") == (Span(150, 200), ())


def test_of_several_sections_the_first_is_meant_or_the_one_with_the_start() -> None:
    span, (note,) = section_span("", OUTLINE, LENGTH, "Example")
    assert span == Span(180, 200)
    assert note == "Other sections have this heading, at 250: add start to open one of them."
    assert section_span("", OUTLINE, LENGTH, "Example", 250)[0] == Span(250, 300)
    assert section_span("", OUTLINE, LENGTH, "Example", 299)[0] == Span(250, 300)
    with pytest.raises(InvalidRequestError, match="start must be from 180 to 199 in this section"):
        section_span("", OUTLINE, LENGTH, "Example", 240)


def test_headings_at_one_position_share_a_section() -> None:
    outline = [Heading("One", 1, 0), Heading("Two", 1, 50), Heading("Three", 1, 50), Heading("Four", 1, 90)]
    assert (
        section_span("", outline, 99, "Two")[0] == section_span("", outline, 99, "Three")[0] == Span(50, 90)
    )
