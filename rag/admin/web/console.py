"""What all pages of the console share: the desk, its settings, the asker, and templates.

Whatever a document, a file name or a person wrote is text, with nothing hidden. The console looks at the desk
on behalf of anybody whom its administrator names.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse

from rag.access.names import DEFAULT_TENANT, bare_name
from rag.access.tenants import tenants
from rag.admin.sources_command import open_tables, readable_tables
from rag.admin.web.console_state import Health, Jobs, SourceLists
from rag.corpus import Collection, Principal
from rag.errors import BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.home import data_folder_problem
from rag.report.text_and_html import Html, counted, one_line, shortened
from rag.text.invisible import without_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from starlette.responses import Response

    from rag.admin.web.browser_guard import Door
    from rag.config.settings import Settings
    from rag.search.desk import Desk
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.desk_reader import Reader

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


PLACES = (
    ("/", "Overview"),
    ("/search", "Search"),
    ("/documents", "Documents"),
    ("/access", "Access"),
    ("/ingestion", "Ingestion"),
    ("/collections", "Collections"),
    ("/keys", "Keys"),
    ("/judged", "Judged questions"),
    ("/activity", "Activity"),
)
"""The pages of the menu, with their names."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A form that could not be accepted: its entries, which it shows again, and what is wrong at which field.

    `field` is empty if it isn't one field that is wrong.
    """

    entries: Mapping[str, str]
    field: str
    reason: str


class EntryError(InvalidRequestError):
    """What somebody wrote into a field of a form can't be accepted."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


@contextmanager
def entry(field: str) -> Iterator[None]:
    """Say of what fails in this block that it is the entry of this field."""
    try:
        yield
    except RefdeskError as error:
        raise EntryError(field, str(error)) from error


@dataclass(slots=True)
class Console:
    """The console of one desk. `chosen` is the tenant that its administrator looks at, if there are several.

    For one request it is `held`, whatever another tab chooses meanwhile, and the page says what is the
    `mistake` in a form that was sent.

    `given` are the settings as the command line has them, `config` their file, whether it exists or not.
    Files that a browser sends go to folders in `uploads`.
    """

    given: Settings
    config: Path
    door: Door
    desk: Desk
    reader: Reader
    health: Health
    uploads: Path
    shelves: SourceLists = field(default_factory=SourceLists)
    jobs: Jobs = field(default_factory=Jobs)
    chosen: str = ""
    held: str = ""
    mistake: Mistake | None = None
    said: list[str] = field(default_factory=list)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants that can be looked at."""
        named = self.given.principal.tenant
        return (named,) if named else tenants(self.given.home)

    @property
    def tenant(self) -> str:
        """The tenant that is looked at."""
        if self.held:
            return self.held
        known = self.tenants
        return self.chosen if self.chosen in known else known[0] if known else DEFAULT_TENANT

    @property
    def settings(self) -> Settings:
        """The settings of a command with this tenant."""
        principal = self.given.principal.model_copy(update={"tenant": self.tenant})
        return self.given.model_copy(update={"principal": principal})

    @property
    def same_desk(self) -> list[str]:
        """The options of a command on this desk."""
        named = [f"--config={self.config}"] if self.config.exists() else []
        return [*named, f"--data={self.given.data}", f"--tenant={self.tenant}"]

    def for_one_request(self) -> Console:
        """The same console, which looks at the present tenant from beginning to end."""
        return replace(self, held=self.tenant)

    def with_mistake(self, entries: Mapping[str, str], error: RefdeskError) -> Console:
        """The same console, whose page shows a form again with its entries, and what is wrong with them."""
        field = error.field if isinstance(error, EntryError) else ""
        return replace(self, mistake=Mistake(entries, field, str(error)))

    def entered(self, field: str, default: object = "") -> object:
        """What a field shows: what was entered into it, or else its default."""
        return self.mistake.entries.get(field, default) if self.mistake else default

    def choose(self, tenant: str) -> None:
        """Look at another tenant.

        Raises:
            NotFoundError: there is none of this name.
        """
        if tenant not in self.tenants:
            raise NotFoundError(f"There is no tenant {tenant!r}.")
        self.chosen = tenant

    def check_shown(self, tenant: object) -> None:
        """Check that a form is of a page that showed the tenant that is looked at now.

        Raises:
            BusyError: another tab has chosen another one since, or it was removed.
        """
        if tenant != self.tenant:
            raise BusyError(
                f"That page was of another tenant: the console looks at {self.tenant} now. Nothing was done. "
                "Choose the tenant at the top, and do it again there."
            )

    async def collections(self) -> tuple[Collection, ...]:
        """The tenant's collections, ordered by name."""
        return await self.reader.collections(self.tenant)

    async def tables(self, name: str | None = None) -> list[CollectionReader]:
        """The tenant's collections that can be read, or the one of this name; none in an empty data folder.

        Raises:
            NotFoundError: there is none of that name.
            ConfigurationError: the data folder is something else.
        """
        if name is None and not await self.collections() and self.is_new:
            return []
        return readable_tables(await open_tables(self.reader, self.tenant, name))

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever ingested: the data folder is missing or empty."""
        data = self.given.data
        return bool(data_folder_problem(data)) and not (data.is_dir() and any(data.iterdir()))

    def say(self, message: str) -> None:
        """Say something on the next page."""
        self.said.append(message)

    def page(self, template: str, /, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401 what a template shows
        """A page with the menu, and with what is to be said."""
        said = [*self.said]
        self.said.clear()  # shared with what was made `for_one_request`
        return page_of(template, status=status, console=self, places=PLACES, said=said, **values)


def number_in(text: str, least: int, most: int) -> int | None:
    """The number that somebody has typed, None unless it is one of these."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most))):
        return None
    return int(text) if least <= int(text) <= most else None


def see_other(address: str) -> Response:
    """The reply to a change: the browser shows another page, which it can show again without harm."""
    return RedirectResponse(address, 303)


@dataclass(frozen=True, slots=True)
class Asker:
    """A user and groups as a person typed them; groups have commas between."""

    user: str = ""
    groups: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, object], settings: Settings) -> Asker:
        """The asker that a form names; that of the settings if it has no fields for one."""
        if "user" not in fields and "groups" not in fields:
            named = settings.principal
            return cls(named.user or "", ", ".join(named.groups))
        return cls(str(fields.get("user", "")).strip(), str(fields.get("groups", "")).strip())

    def principal(self, tenant: str) -> Principal:
        """As a principal of a tenant.

        Raises:
            EntryError: a name is not valid.
        """
        groups = [group.strip() for group in self.groups.split(",") if group.strip()]
        with entry("user"):
            user = bare_name("user", self.user) if self.user else None
        with entry("groups"):
            return Principal(tenant, user, frozenset(bare_name("group", group) for group in groups))

    @property
    def parameters(self) -> dict[str, str]:
        """The fields of a form that name the asker."""
        return {"user": self.user, "groups": self.groups}
