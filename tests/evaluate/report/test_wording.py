"""Words and numbers of the report."""

from __future__ import annotations

import pytest

from rag.evaluate.report.wording import counted, listed, shortened, signed


@pytest.mark.parametrize(
    ("value", "said"), [(0.05, "+0.0500"), (-0.05, "−0.0500"), (0.0, "0.0000"), (-0.00001, "0.0000")]
)
def test_a_difference_has_its_sign_unless_it_is_too_small_to_see(value: float, said: str) -> None:
    assert signed(value) == said


def test_a_long_text_is_cut_and_lines_are_joined() -> None:
    assert shortened("  what is\n a clock? ", 20) == "what is a clock?"
    assert shortened("what is a clock?", 8) == "what is…"


def test_a_long_list_says_how_much_is_left() -> None:
    assert listed(["a", "b"], 2) == "a, b"
    assert listed(["a", "b", "c", "d"], 2) == "a, b and 2 more"


def test_one_thing_is_not_plural() -> None:
    assert [counted(0), counted(1), counted(2)] == ["0 questions", "1 question", "2 questions"]
