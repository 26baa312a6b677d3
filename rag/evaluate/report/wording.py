"""How a report says numbers and names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag.evaluate.runs import Run


def run_name(run: Run) -> str:
    """Example: "Run 3"."""
    return f"Run {run.id}"


def counted(number: int) -> str:
    """Example: 1 -> "1 question", 2 -> "2 questions"."""
    return f"{number} question{'' if number == 1 else 's'}"


def signed(value: float) -> str:
    """A difference to four places, with a real minus sign.

    Example: 0.05 -> "+0.0500", -0.05 -> "−0.0500", 0 -> "0.0000".
    """
    shown = f"{value:+.4f}".replace("-", "−")
    return shown[1:] if float(shown[1:]) == 0 else shown


def shortened(text: str, width: int) -> str:
    """The text in one line of so many characters at most."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def listed(names: list[str], most: int) -> str:
    """Example: a, b, c and d, of which 2 at most -> "a, b and 2 more"."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
