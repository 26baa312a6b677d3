from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = Callable[[str, str], list[tuple[str, str]]]


def test_blocks_are_whole_functions(shape: Shape) -> None:
    one = "import os\nimport re"
    two = "@cached\ndef two():\n    a = 1\n\n    return a"
    three = "class Three:\n    x = (\n\n)\n\n    def method(self): ..."
    assert shape(f"\n{one}\n\n\n{two}\n\n\n{three}\n", "a.py") == [
        ("code", one),
        ("code", two),
        ("code", three),
    ]


def test_a_closing_brace_belongs_to_what_it_closes(shape: Shape) -> None:
    body = "int main() {\n  return 0;\n\n}"
    assert shape(f"{body}\n\nint other;", "a.c") == [("code", body), ("code", "int other;")]
