"""Whether others can search this desk, which collections they can read, and the default access of documents.

A new desk belongs to one person: everything is open, because nobody else can search it. The first API key,
OAuth or groups make it a shared one. From then on, new documents are restricted unless somebody said
otherwise, in existing collections, too. Open documents stay open, and are reported with the command that
restricts them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from rag.access.keys import ApiKey, keys_in
from rag.access.tenants import tenant_of, tenants
from rag.admin.command_line import same_desk
from rag.admin.terminal import arguments
from rag.config.settings import Settings
from rag.corpus import Collection, Visibility
from rag.errors import RefdeskError
from rag.report import counted
from rag.store.read.desk_reader import DeskReader

UNLESS = "unless an origin, a folder, a rule or the document itself says otherwise"
"""What every sentence on the new documents of a collection adds: its visibility is only their default."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """A collection with documents that are open to the whole tenant, and the ways in which others can ask.

    `desk` holds the options that select the desk and the tenant in a command.
    """

    collection: Collection
    documents: int
    askers: tuple[str, ...]
    desk: str

    def __str__(self) -> str:
        """A sentence: which documents are open to whom, and the command that restricts them."""
        collection, readers = self.collection, f"all who ask with {' or '.join(self.askers)}"
        if collection.attached:
            return (
                f"{collection.name}: its rows are open to the whole tenant, so {readers} can read them. To "
                "restrict them, remove the collection, and attach the table again with --allow COLUMN."
            )
        are, them = ("document is", "it") if self.documents == 1 else ("documents are", "them")
        new, opposite = ("restricted", "tenant")
        if collection.visibility_is_set and collection.visibility == "tenant":
            new, opposite = ("open, too", "restricted")
        return (
            f"{collection.name}: {self.documents} {are} open to the whole tenant, so {readers} can read "
            f"{them}. To restrict {them}: refdesk-admin access set --collection {collection.name} --if-open "
            f"--allow group:NAME{self.desk}. New documents of it are {new}, {UNLESS}; to change "
            f"that default: refdesk-admin collection set {collection.name} --visibility {opposite}{self.desk}"
        )


def askers(settings: Settings, tenant: str) -> tuple[str, ...]:
    """The ways in which others can ask, in words; empty on one person's desk.

    Expired keys count until they are revoked: `key rotate` renews them.

    Raises:
        ConfigurationError, StoreError: the keys can't be read.
    """
    return _askers(settings, [key for key in keys_in(settings.common_home).keys if key.tenant == tenant])


def _askers(settings: Settings, keys: Sequence[ApiKey]) -> tuple[str, ...]:
    ways, now = [], datetime.now(UTC)
    if keys:
        expired = sum(1 for key in keys if key.expires_at <= now)
        ended = f", {expired} expired, which key revoke ends" if expired else ""
        ways.append(f"an API key ({counted(len(keys), 'key')}{ended})")
    if "oauth" in settings.http.authentication:
        ways.append("a token of the OAuth issuer")
    if settings.principal.groups:
        ways.append("other groups than those in [principal]")
    return tuple(ways)


def first_visibility(settings: Settings) -> Visibility:
    """The default visibility of documents: restricted if others can ask, else the whole tenant's."""
    return "restricted" if askers(settings, tenant_of(settings)) else "tenant"


def usual_visibility(settings: Settings, collection: Collection) -> Visibility:
    """The visibility of a collection's new documents: as somebody chose, else the narrower of two defaults.

    The defaults are the collection's, from when it was made, and that of a new collection now.
    """
    if collection.visibility_is_set or collection.visibility == "restricted":
        return collection.visibility
    return first_visibility(settings)


async def exposures(
    settings: Settings, tenant: str, name: str | None = None, *, intended: bool = False
) -> list[Exposure]:
    """The collections of a shared desk that are open to others without anybody having chosen that.

    With `intended`, also the collections that somebody made open. Tags are left out: they follow their
    collections.

    Raises:
        RefdeskError: the desk can't be read.
    """
    reader, ways = DeskReader.of(settings, once=True), askers(settings, tenant)
    return await _exposures(settings, reader, tenant, ways, name, intended=intended)


async def unchosen_exposures(settings: Settings) -> AsyncIterator[tuple[str, Exposure]]:
    """The exposures that nobody has chosen, each with its tenant. Unreadable tenants are left out.

    Keys and catalog are read once: a desk can have thousands of tenants.

    Raises:
        RefdeskError: the keys can't be read.
    """
    reader, keys = DeskReader.of(settings), defaultdict[str, list[ApiKey]](list)
    for key in keys_in(settings.common_home).keys:
        keys[key.tenant].append(key)
    for tenant in tenants(settings.common_home):
        with suppress(RefdeskError):
            for exposure in await _exposures(settings, reader, tenant, _askers(settings, keys[tenant])):
                yield tenant, exposure


async def _exposures(
    settings: Settings,
    reader: DeskReader,
    tenant: str,
    ways: tuple[str, ...],
    name: str | None = None,
    *,
    intended: bool = False,
) -> list[Exposure]:
    if not ways:
        return []
    desk = same_desk("config", "data")
    if len(tenants(settings.common_home)) > 1:
        desk += arguments("--tenant", tenant)
    exposed = []
    for collection in await reader.collections(tenant):
        is_undecided = collection.visibility == "tenant" and not collection.visibility_is_set
        if name not in {None, collection.name} or collection.tag_of or not (intended or is_undecided):
            continue
        documents = int(collection.visibility == "tenant")
        if not collection.attached:
            documents = await (await reader.open(collection)).open_documents()
        if documents:
            exposed.append(Exposure(collection, documents, ways, desk))
    return exposed
