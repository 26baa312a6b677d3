"""Pages from templates. Whatever a document, a file name or a person wrote is text, with nothing hidden."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from rag.report.html import Html
from rag.report.tables import counted, one_line, shortened
from rag.text.invisible import without_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

FOLDER = Path(__file__).with_name("templates")
LINE_CHARS = 160  # of a name or a title


def rendered(template: str, /, **values: object) -> str:
    """A template with its values filled in."""
    return _TEMPLATES.get_template(template).render(values)


def page_of(template: str, /, *, status: int = 200, **values: object) -> HTMLResponse:
    """A page. A half of a surrogate pair, which no encoding has, becomes a question mark."""
    return HTMLResponse(rendered(template, **values).encode("utf-8", "replace"), status)


def _shown(value: Any) -> Any:  # noqa: ANN401 of any expression in a template
    """What a template shows of a value; `Html` is markup already."""
    if isinstance(value, Html):
        return Markup(value)  # noqa: S704 made of escaped parts
    return without_hidden(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _line(text: object, chars: int = LINE_CHARS) -> str:
    """A name or a title on one line of limited length."""
    return shortened(one_line(str(text)), chars)


def _moment(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d %H:%M}" if at else "–"


def _day(at: datetime | None) -> str:
    return f"{at:%Y-%m-%d}" if at else "–"


def _number(value: float) -> str:
    """Example: 12345 -> "12,345"."""
    return f"{value:,}"


def _joined(values: Iterable[object]) -> str:
    return ", ".join(map(str, values)) or "–"


_TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "line": _line,
    "moment": _moment,
    "day": _day,
    "number": _number,
    "joined": _joined,
    "counted": counted,
}
