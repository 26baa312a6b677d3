"""The frame that reports share: one HTML file that needs nothing else."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from rag.evaluate.report.markup import Html, joined, tag

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).with_name("page.html")


def page(title: str, header: Html, sections: Iterable[Html], *, style: str = "") -> str:
    """An HTML page that has no script and refers to nothing. `style` is added to the common one as it is."""
    frame = Template(PAGE.read_text(encoding="utf-8"))
    return frame.substitute(title=joined([title]), header=header, sections=joined(sections), style=style)


def section(title: str, *content: Html) -> Html:
    """A part of the page under its heading; nothing where there is nothing to show."""
    return tag("section", tag("h2", title), *content) if content else Html()


def folded(title: str, content: Html) -> Html:
    """What is shown on demand."""
    return tag("details", tag("summary", title), content)
