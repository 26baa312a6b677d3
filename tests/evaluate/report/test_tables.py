from __future__ import annotations

import pytest

from rag.evaluate.report_page import signed


@pytest.mark.parametrize(
    ("value", "shown"), [(0.05, "+0.0500"), (-0.05, "−0.0500"), (0.0, "0.0000"), (-0.00001, "0.0000")]
)
def test_a_difference_has_its_sign_unless_it_is_too_small_to_see(value: float, shown: str) -> None:
    assert signed(value) == shown
