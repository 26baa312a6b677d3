"""The size of a regular expression with its repetitions written out, which bounds the time that it takes."""

from __future__ import annotations

import pytest

from rag.errors import InvalidRequestError
from rag.needles.needle import MAX_SIZE, check_regex, pattern_size


@pytest.mark.parametrize(
    ("pattern", "steps"),
    [
        ("ab{3}", 4),
        ("(a.){5}", 55),
        (r"\pL{0,7}", 70),
        (r"\p{Greek}{2}", 20),
        ("x{2,}", 3),
        ("[]a]{3}b", 31),
        (r"[\]]{3}", 30),
        ("((a{3}){3}){3}", 27),
        (r"\{3}", 3),
        ("a+b*c?", 3),
        ("a){3}", 4),
        ("", 0),
    ],
)
def test_a_pattern_counts_with_its_repetitions_written_out(pattern: str, steps: int) -> None:
    assert pattern_size(pattern) == steps


@pytest.mark.parametrize("pattern", [r"(\pL?\pN?.?){60}a.{300}X", "(.?){1000}X", r"(((\w.){10}){10}){10}"])
def test_a_pattern_that_takes_too_long_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"too large.*maximum is {MAX_SIZE}"):
        check_regex(pattern)


@pytest.mark.parametrize(("pattern", "instead"), [(r"\Ax", r"\^"), (r"x\z", r"\$"), (r"\Cx", r"\.")])
def test_escapes_that_would_not_mean_what_they_say_are_refused(pattern: str, instead: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"use {instead}"):
        check_regex(pattern)


def test_an_escaped_backslash_is_no_escape() -> None:
    check_regex(r"\\Ax\\z")
