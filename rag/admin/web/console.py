"""What all pages of the console share: the desk, its settings, the asker, and templates.

Templates escape all text of documents, file names and people, and remove its hidden characters. The console
shows the desk as any user would see it; the administrator names the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rag.access.keys import ApiKey
from rag.access.rule import DEFAULT_TENANT, bare_name
from rag.access.tenants import at_tenant, tenants
from rag.admin.sources_command import open_tables, readable_tables
from rag.admin.web.browser_guard import Door
from rag.admin.web.console_state import Health, Jobs, SourceLists
from rag.config.settings import Settings
from rag.corpus import Collection, Principal
from rag.errors import BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.home import Bucket, data_folder_problem, names
from rag.report import Html, counted, one_line, shortened
from rag.search.desk import Desk
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.desk_reader import DeskReader
from rag.text.plain_text import without_hidden

FOLDER = Path(__file__).with_name("templates")
LINE_CHARS = 160  # of a name or a title


def page_of(template: str, /, *, status: int = 200, **values: object) -> HTMLResponse:
    """A page as a response. Lone surrogates, which UTF-8 can't encode, become question marks."""
    text = _TEMPLATES.get_template(template).render(values)
    return HTMLResponse(text.encode("utf-8", "replace"), status)


def _template_value(value: Any) -> Any:  # noqa: ANN401 of any expression in a template
    """The value as a template shows it: `Html` is markup already; hidden characters of text are removed."""
    if isinstance(value, Html):
        return Markup(value)  # noqa: S704 made of escaped parts
    return without_hidden(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _line(text: object, chars: int = LINE_CHARS) -> str:
    """A name or a title on one line of limited length."""
    return shortened(one_line(str(text)), chars)


_TEMPLATES = Environment(
    loader=FileSystemLoader(FOLDER),
    autoescape=True,
    finalize=_template_value,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {
    "line": _line,
    "moment": lambda at: f"{at:%Y-%m-%d %H:%M}" if at else "–",
    "day": lambda at: f"{at:%Y-%m-%d}" if at else "–",
    "number": lambda value: f"{value:,}",  # 12345 -> "12,345"
    "joined": lambda values: ", ".join(map(str, values)) or "–",
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
    """A rejected form: its entries, which the page shows again, and what is wrong.

    `field` is empty if the mistake isn't in a single field.
    """

    entries: Mapping[str, str]
    field: str
    reason: str


class EntryError(InvalidRequestError):
    """An entry in a field of a form is not valid."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field


@contextmanager
def entry(field: str) -> Iterator[None]:
    """Attribute errors in this block to a field of the form."""
    try:
        yield
    except RefdeskError as error:
        raise EntryError(field, str(error)) from error


@dataclass(slots=True)
class Console:
    """The console of one desk.

    `base_settings` come from the command line; `config` is their file, which may be missing. `chosen` is the
    tenant that the administrator selected; `request_tenant` fixes it during a request. `mistake` is the one
    in a form that was sent. `made_keys` have their secrets until a page has shown them.
    """

    base_settings: Settings
    config: Path
    door: Door
    desk: Desk
    reader: DeskReader
    health: Health
    source_lists: SourceLists = field(default_factory=SourceLists)
    jobs: Jobs = field(default_factory=Jobs)
    chosen: str = ""
    request_tenant: str = ""
    mistake: Mistake | None = None
    messages: list[str] = field(default_factory=list)
    made_keys: list[tuple[ApiKey, str]] = field(default_factory=list)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants that the administrator can choose from."""
        tenant = self.base_settings.principal.tenant
        return (tenant,) if tenant else tenants(self.base_settings.home)

    @property
    def tenant(self) -> str:
        """The chosen tenant; within a request, the one that was chosen when it began."""
        if self.request_tenant:
            return self.request_tenant
        names = self.tenants
        return self.chosen if self.chosen in names else names[0] if names else DEFAULT_TENANT

    @property
    def settings(self) -> Settings:
        """The settings with the chosen tenant and the home of its documents."""
        principal = self.base_settings.principal.model_copy(update={"tenant": self.tenant})
        return at_tenant(self.base_settings.model_copy(update={"principal": principal}), self.tenant)

    @property
    def same_desk(self) -> list[str]:
        """The options that make a command work on this desk and tenant."""
        options = [f"--config={self.config}"] if self.config.exists() else []
        return [*options, f"--data={self.base_settings.data}", f"--tenant={self.tenant}"]

    def for_one_request(self) -> Console:
        """A copy for one request, which keeps the present tenant whatever another tab chooses."""
        return replace(self, request_tenant=self.tenant)

    def with_mistake(self, entries: Mapping[str, str], error: RefdeskError) -> Console:
        """A copy whose page shows the form again, with its entries and the mistake."""
        field = error.field if isinstance(error, EntryError) else ""
        return replace(self, mistake=Mistake(entries, field, str(error)))

    def entered(self, field: str, default: object = "") -> object:
        """The content of a field: the rejected entry, or else its default."""
        return self.mistake.entries.get(field, default) if self.mistake else default

    def choose(self, tenant: str) -> None:
        """Switch to another tenant; raises NotFoundError if no tenant has this name."""
        if tenant not in self.tenants:
            raise NotFoundError(f"There is no tenant {tenant!r}.")
        self.chosen = tenant

    def check_shown(self, tenant: object) -> None:
        """Raise BusyError if a form comes from a page of another tenant than the chosen one."""
        if tenant != self.tenant:
            raise BusyError(
                f"That page was of another tenant: the console looks at {self.tenant} now. Nothing was done. "
                "Choose the tenant at the top, and do it again there."
            )

    async def collections(self) -> tuple[Collection, ...]:
        """The tenant's collections, ordered by name."""
        return await self.reader.collections(self.tenant)

    async def tables(self, name: str | None = None) -> list[CollectionReader]:
        """The tenant's readable collections, or only the named one; none in an empty data folder.

        Raises:
            NotFoundError: no collection has this name.
            ConfigurationError: the folder isn't a data folder of refdesk.
        """
        if name is None and not await self.collections() and self.is_new:
            return []
        return readable_tables(await open_tables(self.reader, self.tenant, name))

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever ingested: the folder is missing or empty, or the bucket has no desk."""
        desk = self.base_settings.home
        if isinstance(desk, Bucket):
            return not names(desk, "tenants")
        return bool(data_folder_problem(desk)) and not (desk.is_dir() and any(desk.iterdir()))

    def say(self, message: str) -> None:
        """Show a message on the next page."""
        self.messages.append(message)

    def page(self, template: str, /, *, status: int = 200, **values: Any) -> HTMLResponse:  # noqa: ANN401 what a template shows
        """A page with the menu and the waiting messages."""
        messages = [*self.messages]
        self.messages.clear()  # in place: copies made by `for_one_request` share this list
        return page_of(template, status=status, console=self, places=PLACES, messages=messages, **values)


def number_in(text: str, lowest: int, highest: int) -> int | None:
    """The number that somebody typed; None unless it is a number from `lowest` to `highest`."""
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(highest))):
        return None
    return int(text) if lowest <= int(text) <= highest else None


def comma_parts(text: str) -> tuple[str, ...]:
    """The parts that somebody typed with commas between."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def see_other(address: str) -> Response:
    """The reply to a change, HTTP 303: a reload then repeats the page, not the change."""
    return RedirectResponse(address, 303)


@dataclass(frozen=True, slots=True)
class Asker:
    """A user and groups as a person typed them; groups have commas between."""

    user: str = ""
    groups: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, object], settings: Settings) -> Asker:
        """The asker that a form names; without such fields, the principal of the settings."""
        if "user" not in fields and "groups" not in fields:
            configured = settings.principal
            return cls(configured.user or "", ", ".join(configured.groups))
        return cls(str(fields.get("user", "")).strip(), str(fields.get("groups", "")).strip())

    def principal(self, tenant: str) -> Principal:
        """The asker as a principal of a tenant.

        Raises:
            EntryError: a name is not valid.
        """
        with entry("user"):
            user = bare_name("user", self.user) if self.user else None
        with entry("groups"):
            groups = frozenset(bare_name("group", group) for group in comma_parts(self.groups))
        return Principal(tenant, user, groups)
