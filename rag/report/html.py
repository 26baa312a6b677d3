"""HTML from values: what is not markup already is text, and escaped on its way in, with nothing hidden.

The frame that reports share: one HTML file that needs nothing else.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from rag.hidden import without_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable


class Html(str):
    """Markup. Any other `str` is text."""

    __slots__ = ()


def tag(name: str, *content: str, **attributes: str | float | None) -> Html:
    """An element. Text within it and its attributes are escaped; an attribute that is None is left out.

    Underscores in an attribute's name are hyphens; a last one only keeps off Python's own words.
    Example: tag("p", "a < b", class_="note") -> <p class="note">a &lt; b</p>
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(without_hidden(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{shown}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """The parts after each other, their text escaped."""
    return Html("".join(part if isinstance(part, Html) else escape(without_hidden(part)) for part in parts))


def note(text: str) -> Html:
    """A remark in small print."""
    return tag("p", text, class_="note")


PAGE = Path(__file__).with_name("page.html")
STYLE = Path(__file__).with_name("page.css")


def page(title: str, header: Html, sections: Iterable[Html], *, style: str = "") -> str:
    """An HTML page that has no script and refers to nothing. `style` is added to the common one as it is."""
    frame = Template(PAGE.read_text(encoding="utf-8"))
    common = STYLE.read_text(encoding="utf-8")
    return frame.substitute(
        title=joined([title]), header=header, sections=joined(sections), common=common, style=style
    )


def section(title: str, *content: Html) -> Html:
    """A part of the page under its heading; nothing where there is nothing to show."""
    return tag("section", tag("h2", title), *content) if content else Html()


def folded(title: str, content: Html) -> Html:
    """What is shown on demand."""
    return tag("details", tag("summary", title), content)
