"""What all pages of the console share: the desk, its settings, and how a page is made."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from starlette.responses import RedirectResponse

from rag.access.names import DEFAULT_TENANT
from rag.access.tenants import tenants
from rag.admin.sources import readable, tables_of
from rag.admin.web.jobs import Jobs
from rag.admin.web.pages import page_of
from rag.admin.web.shelves import Shelves
from rag.errors import BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.home import data_folder_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from starlette.responses import HTMLResponse, Response

    from rag.admin.web.guard import Door
    from rag.admin.web.health import Health
    from rag.config.settings import Settings
    from rag.corpus import Collection
    from rag.search.desk import Desk
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.desk_reader import Reader

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
    shelves: Shelves = field(default_factory=Shelves)
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
        return readable(await tables_of(self.reader, self.tenant, name))

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


def seen_other(address: str) -> Response:
    """The reply to a change: the browser shows another page, which it can show again without harm."""
    return RedirectResponse(address, 303)
