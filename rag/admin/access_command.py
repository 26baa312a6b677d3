"""`refdesk-admin access`: who may see which sources."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, get_args
from unicodedata import normalize

import click
from anyio import to_thread

from rag.access import rule
from rag.access.keys import keys_in
from rag.access.tenants import tenant_of
from rag.admin.audit_command import ActName, access_act, access_state, log_act
from rag.admin.command_line import command, flag, options, repeatable
from rag.admin.sources_command import NameIndex, open_tables, readable_tables, reply_names
from rag.admin.terminal import Group, arguments, echo, print_json, print_result
from rag.config.settings import Settings
from rag.corpus import Access, AccessRecord, Collection, LetterCase, Principal, Visibility
from rag.errors import BusyError, ConfigurationError, InvalidRequestError, NotFoundError, StoreError
from rag.ingest.requested_access import RequestedAccess
from rag.ingest.source_files import document_name, is_local, place_of
from rag.runtime import grouped
from rag.store.care.folder_checks import torn_copies
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.connection import connect
from rag.store.read.desk_reader import DeskReader
from rag.store.read.schema import StoredSource, original_id
from rag.store.write.access_claim import decided_by_origin
from rag.store.write.access_writer import Pairs, change_access
from rag.store.write.change_collection import copy_labels
from rag.store.write.desk_folder import SourceIds, read_key
from rag.text.plain_text import in_one_line

AccessChange: TypeAlias = "Callable[[Access | None], Access]"
"""Maps a source's access record to the changed one. None means that there is no record."""
_TORN = "a newer record of it was lost. Run refdesk-admin doctor."  # see rag.store.care.folder_checks
_entries_option = partial(repeatable, metavar="ENTRY")
access_options = options(
    click.option(
        "--visibility",
        type=click.Choice(get_args(Visibility)),
        help="tenant: everybody in the tenant; restricted: only --allow.",
    ),
    _entries_option("--allow", help="user:NAME or group:NAME that may see it. Repeatable."),
    _entries_option("--deny", help="user:NAME or group:NAME that must not see it. Repeatable."),
)


def requested_access(
    visibility: Visibility | None, allow: tuple[str, ...], deny: tuple[str, ...]
) -> RequestedAccess | None:
    """The access that the options request; None without any option.

    Raises:
        ConfigurationError: an entry is neither user:NAME nor group:NAME, or they contradict each other.
    """
    rule.check_access(visibility, allow, deny)
    return RequestedAccess(visibility, allow, deny) if visibility or allow or deny else None


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """A source and its access record. `table` is None if the source was removed and only its record is left.

    `effective` is the access that searches enforce: narrower than `access` where a newer record was lost.
    """

    id: str
    uri: str
    title: str
    access: Access | None
    table: CollectionReader | None
    effective: Access | None

    @property
    def is_torn(self) -> bool:
        """Whether searches enforce another access than its record states."""
        return not rule.same_access(self.access, self.effective)


_sources_options = options(
    click.argument("names", metavar="[ID|PATH]...", nargs=-1),
    click.option(
        "--collection", metavar="NAME", help="All sources of this collection, or those named that are in it."
    ),
)


@click.group("access", cls=Group)
def access_command() -> None:
    """Show and change who may see which sources.

    Name sources by id or URI, by file or folder, by a path or title that no other source has, by a pattern
    like "hr/*.pdf", or all of a collection by --collection. A change takes effect with the next request.
    What is taken away from a folder also counts for files that come into it later, or into a folder in it.
    Removed sources can be named, too: their access record applies again if they come back.
    """


@command("show", access_command)
@_sources_options
async def show_command(settings: Settings, *, names: tuple[str, ...], collection: str | None) -> None:
    """Show who may see sources."""
    reader = DeskReader.of(settings, once=True)
    sources = await named_sources(settings, names, collection, reader)
    for source in await _with_effective_access(settings, sources):
        _print(source, source.access)
    folders = await to_thread.run_sync(lambda: {Path(os.path.realpath(name)).as_uri() for name in names})
    for record in await reader.folder_records(tenant_of(settings)):
        if record.uri in folders:
            echo(_new_files_line(record), err=True)


def _new_files_line(folder: AccessRecord) -> str:
    return f"New files in {document_name(folder)} will be {rule.in_words(folder.access)}."


@command("set", access_command, changes=True)
@_sources_options
@flag("--if-open", help="Only sources that are open to the tenant. Whom they deny stays denied.")
@access_options
async def set_command(  # noqa: PLR0913 one parameter an option
    settings: Settings,
    *,
    names: tuple[str, ...],
    collection: str | None,
    if_open: bool,
    visibility: Visibility | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
) -> None:
    """Replace the access record of sources."""
    requested = requested_access(visibility, allow, deny)
    if requested is None or not (visibility or allow):
        raise click.UsageError("Give --visibility or --allow. To only take access away, use access revoke.")
    reader, record = DeskReader.of(settings, once=True), requested.record("restricted")
    sources = await named_sources(settings, names, collection, reader)

    def changed(before: Access | None) -> Access:
        if not if_open:
            return record
        if before is None or before.visibility != "tenant":  # somebody else has changed it since it was read
            return before or Access("restricted")
        return replace(record, deny=record.deny | before.deny)

    if if_open:
        sources = [source for source in sources if source.access and source.access.visibility == "tenant"]
    if not sources:
        raise NotFoundError("None of these sources is open to the tenant. Nothing was changed.")
    await _warn_of_unknown_entries(settings, reader, allow, deny)
    folders = await to_thread.run_sync(named_folders, settings, names, sources)
    await _change(settings, "access set", sources, changed, folders)


async def _warn_of_unknown_entries(
    settings: Settings, reader: DeskReader, allow: Iterable[str], deny: Iterable[str]
) -> None:
    """Warn of users and groups that no key, record or setting names yet: they may be misspelt."""
    tenant, case = tenant_of(settings), settings.access.letter_case
    askers = [key.principal for key in keys_in(settings.common_home).keys if key.tenant == tenant]
    askers.append(settings.principal.of_tenant(tenant))
    named_so_far = {entry for principal in askers for entry in rule.entries_of(principal)}
    named_so_far |= {
        entry for folder_rule in settings.access.rules for entry in (*folder_rule.allow, *folder_rule.deny)
    }
    named_so_far |= await reader.entries(tenant)
    is_exact = dict.fromkeys(rule.valid_entries(deny), case == "always")
    is_exact |= dict.fromkeys(rule.valid_entries(allow), case != "never")
    for entry, exact in sorted(is_exact.items()):
        if rule.matching_entries(frozenset(named_so_far), frozenset({entry}), exact=exact):
            continue
        near = get_close_matches(
            entry, [name for name in named_so_far if name[:5] == entry[:5]], n=1, cutoff=0.75
        )
        guess = f" Did you mean {near[0]}?" if near else ""
        if near and rule.folded(near[0]) == rule.folded(entry):
            guess += " Letter case matters here."
        tokens = " Tokens may: what they name isn't kept." if "oauth" in settings.http.authentication else ""
        echo(f"Note: no API key, access record or setting has named {entry} yet.{guess}{tokens}", err=True)


@command("explain", access_command)
@click.argument("name", metavar="ID|PATH")
@click.option("--user", default="", metavar="NAME", help="The user.")
@repeatable("--group", "groups", metavar="NAME", help="A group of the user. Repeatable.")
async def explain_command(settings: Settings, *, name: str, user: str, groups: tuple[str, ...]) -> None:
    """Explain whether a user may see a source."""
    asker = Principal(
        tenant_of(settings),
        rule.bare_name("user", user) if user else None,
        frozenset(rule.bare_name("group", group) for group in groups),
    )
    sources = await named_sources(settings, (name,), None, DeskReader.of(settings, once=True))
    if len(sources) > 1:
        raise InvalidRequestError(f"{name!r} matches {len(sources)} sources. Name one.")
    case = settings.access.letter_case
    (source,) = await _with_effective_access(settings, sources)
    is_visible, reason = (
        rule.visible(asker, source.effective, case),
        access_reason(asker, source.access, case),
    )
    if source.is_torn and is_visible != rule.visible(asker, source.access, case):
        reason = f"{_TORN} Its record says: {reason}"
    if at := await _expiry(source):
        of_tag = source.table is not None and source.table.collection.tag_of
        remover = "purge" if of_tag else "ingestion"  # nothing is ingested into a tag
        reason = f"it expired on {at:%Y-%m-%d}, and the next {remover} removes it. Apart from that: {reason}"
        is_visible = False
    if source.table is None:
        would = "would be" if is_visible else "would not be"
        reason, is_visible = f"it was removed. If it came back, it {would} visible: {reason}", False
    verdict = "Visible" if is_visible else "Not visible"
    print_result({"visible": is_visible, "why": reason}, f"{verdict}: {reason}")


async def _with_effective_access(settings: Settings, sources: Sequence[SourceAccess]) -> list[SourceAccess]:
    """The sources with their effective access: narrower where newer versions of their rows were lost."""
    tables = {source.table for source in sources if source.table and not source.table.collection.attached}
    copies: dict[str, Access | None] = {}
    for table in tables:
        ids = [source.id for source in sources if source.table is table]
        copies |= await torn_copies(await connect(settings.home), table.collection, ids)
    narrowed = {
        source.id: rule.narrower(source.access, copies[source.id])
        for source in sources
        if source.id in copies
    }
    return [replace(source, effective=narrowed.get(source.id, source.effective)) for source in sources]


async def _expiry(source: SourceAccess) -> datetime | None:
    """When a source expired; None if it hasn't."""
    if source.table is None or source.table.collection.attached:
        return None
    at = (await source.table.expiries()).get(source.id)
    return at if at and at <= datetime.now(UTC) else None


def grant_change(settings: Settings, entries: tuple[str, ...]) -> AccessChange:
    """The change that also lets these entries in.

    Raises:
        ConfigurationError: an entry is not valid.
    """
    added, exact = rule.valid_entries(entries), settings.access.letter_case == "always"

    def grant(before: Access | None) -> Access:
        if before is None:
            return Access("restricted", added)
        denied = before.deny - rule.matching_entries(added, before.deny, exact=exact)
        if before.visibility == "tenant":  # it lets them in already; an allow list would narrow it
            return replace(before, deny=denied)
        return Access(before.visibility, rule.valid_entries(before.allow | added), denied)

    return grant


def revoke_change(settings: Settings, entries: tuple[str, ...]) -> AccessChange:
    """The change that keeps these entries out.

    Raises:
        ConfigurationError: an entry is not valid.
    """
    removed, exact = rule.valid_entries(entries), settings.access.letter_case == "always"

    def revoke(before: Access | None) -> Access:
        if before is None:
            return Access("restricted", deny=removed)
        allowed = before.allow - rule.matching_entries(removed, before.allow, exact=exact)
        return Access(before.visibility, allowed, rule.valid_entries(before.deny | removed))

    return revoke


def _entries_command(
    act: ActName, flag: str, change: Callable[[Settings, tuple[str, ...]], AccessChange], help_text: str
) -> None:
    """Make the command that changes the access of sources for the users and groups that `flag` names."""

    @command(act.removeprefix("access "), access_command, changes=True)
    @_sources_options
    @_entries_option(flag, "entries", required=True, help="user:NAME or group:NAME. Repeatable.")
    async def run(
        settings: Settings, *, names: tuple[str, ...], collection: str | None, entries: tuple[str, ...]
    ) -> None:
        reader = DeskReader.of(settings, once=True)
        sources = await named_sources(settings, names, collection, reader)
        granted, revoked = (entries, ()) if act == "access grant" else ((), entries)
        await _warn_of_unknown_entries(settings, reader, granted, revoked)
        changed = change(settings, entries)
        folders = await to_thread.run_sync(named_folders, settings, names, sources)
        await _change(settings, act, sources, changed, folders, grant=granted)

    run.help = help_text


_entries_command(
    "access grant", "--to", grant_change, "Let users or groups see sources, and lift their denials."
)
_entries_command(
    "access revoke",
    "--from",
    revoke_change,
    "Deny sources to users or groups.\n\nRemoves them from the allow list and adds them to the deny list. "
    "Deny always wins.",
)


def access_reason(asker: Principal, access: Access | None, case: LetterCase) -> str:
    """Why the access rule shows a source with this record to somebody, or hides it: a sentence."""
    if access is None:
        return "it has no access record."
    of_asker = rule.entries_of(asker)
    if denied := sorted(rule.matching_entries(of_asker, access.deny, exact=case == "always")):
        return f"{denied[0]} is denied, and deny always wins."
    if access.visibility == "tenant":
        return "everybody in the tenant may see it."
    if allowed := sorted(rule.matching_entries(of_asker, access.allow, exact=case != "never")):
        return f"{allowed[0]} is allowed."
    return "it is restricted, and neither the user nor one of their groups is allowed."


async def named_sources(
    settings: Settings, names: tuple[str, ...], collection: str | None, reader: DeskReader
) -> list[SourceAccess]:
    """The distinct sources that the names match, in one collection or all; without names, all of that one.

    Raises:
        NotFoundError: a name matches no source, or the collection is empty.
        UsageError: neither names nor a collection were given.
    """
    if not (names or collection):
        raise click.UsageError("Name sources by ID or PATH, or all of a collection by --collection NAME.")
    tenant = tenant_of(settings)
    removed = (await reader.removed_records(tenant)).items()
    gone = {id_: record for id_, record in removed if collection in {None, record.collection}}
    tables = readable_tables(await open_tables(reader, tenant, collection))
    stored = [(table, await table.all_sources()) for table in tables]
    if names:
        return select_sources(stored, gone, names)
    if not (sources := _source_accesses(stored, gone)):
        raise NotFoundError(f"The collection {collection} has no sources.")
    return [*sources.values()]


def select_sources(
    stored: Sequence[tuple[CollectionReader, Sequence[StoredSource]]],
    gone: Mapping[str, AccessRecord],
    names: tuple[str, ...],
) -> list[SourceAccess]:
    """The sources that the names match, among these collections and the records of removed sources.

    Raises:
        NotFoundError: a name matches no source.
    """
    by_id = _source_accesses(stored, gone)
    uris = {id_: source.uri for id_, source in by_id.items() if not original_id(id_)}
    index = NameIndex.of(uris, reply_names(row.source for _, sources in stored for row in sources))
    selected: dict[str, SourceAccess] = {}
    for name in names:
        is_of_tag = name in by_id and name not in uris  # documents of tags are matched by id only
        if not (ids := [name] if is_of_tag else index.matching(name)):
            raise NotFoundError(
                f"No source has the id or path {name!r}. List them with refdesk-admin sources."
            )
        selected |= {id_: by_id[id_] for id_ in ids}
    return list(selected.values())


def _source_accesses(
    stored: Iterable[tuple[CollectionReader, Iterable[StoredSource]]], gone: Mapping[str, AccessRecord]
) -> dict[str, SourceAccess]:
    by_id = {
        id_: SourceAccess(id_, record.uri, document_name(record), record.access, None, record.access)
        for id_, record in gone.items()
    }
    for table, sources in stored:
        for source, access in ((row.source, row.access) for row in sources):
            by_id[source.id] = SourceAccess(source.id, source.uri, source.title, access, table, access)
    return by_id


def named_folders(
    settings: Settings, names: Iterable[str], sources: Sequence[SourceAccess]
) -> list[AccessRecord]:
    """The folders of this machine among the names of sources, each as its first record would be.

    A folder that is named by a link gets two records, of the link and of its target: tomorrow the link may
    lead elsewhere. So does one whose accents are stored otherwise. A first record has the narrowest
    visibility that its collections give new documents.
    """
    below: dict[Path, dict[str, Collection]] = defaultdict(dict)  # the collections of what lies there
    for source in sources:
        if source.table and is_local(source.uri):
            for folder in place_of(source.uri).parents:
                below[folder][source.table.collection.name] = source.table.collection
    composed = grouped((normalize("NFC", str(folder)), folder) for folder in below)
    collections: dict[Path, dict[str, Collection]] = defaultdict(dict)  # by folder and name
    for name in names:
        real = Path(os.path.realpath(name))
        for folder in [real] if real in below else composed.get(normalize("NFC", str(real)), ()):
            for path in (folder, real, Path(os.path.abspath(name))):  # noqa: PTH100 links stay
                collections[path] |= below[folder]
    key, records = read_key(settings.home) if collections else b"", []
    for path, inside in collections.items():
        usual = min(collection.visibility for collection in inside.values())  # restricted first
        ids, uri = SourceIds(inside[min(inside)], key), path.as_uri()
        records.append(AccessRecord(ids.of_folder(uri), "", uri, Access(usual, revision=1)))
    return records


async def _change(
    settings: Settings,
    act: ActName,
    sources: Sequence[SourceAccess],
    changed: AccessChange,
    folders: Sequence[AccessRecord],
    *,
    grant: Sequence[str] = (),
) -> None:
    records = await change_sources(settings, act, sources, changed, folders)
    for source in sources:
        _print(source, records[source.id][1].access)
    for remark in (*change_remarks(records, changed, grant), *await copy_changed_labels(settings, sources)):
        echo(remark, err=True)


async def change_sources(
    settings: Settings,
    act: ActName,
    sources: Sequence[SourceAccess],
    changed: AccessChange,
    folders: Sequence[AccessRecord] = (),
    *,
    as_seen: bool = False,
) -> Pairs:
    """Change and log who may see these sources, and files that are added to `folders` later.

    The change is in force on return. With `as_seen`, nothing is changed if somebody else has changed a record
    since it was read.

    Raises:
        ConfigurationError: a source is a row of an attached table, or a document of a tag.
        BusyError: `as_seen`, and a record has changed.
    """
    for source in sources:
        if source.table and source.table.collection.attached:
            raise ConfigurationError(
                f"{source.id} is a row of the attached table {source.table.collection.name}. That table "
                "decides who may see it. Change it where the table is written."
            )
        if original := original_id(source.id):
            raise ConfigurationError(
                f"{source.id} is a document of a tag, shown to those who could see {original} when the tag "
                f"was made and can see it now. Change who may see {original}."
            )
    tenant, accesses = tenant_of(settings), {source.id: source.access for source in sources}

    def around(pairs: Pairs) -> AbstractContextManager[None]:
        # Called under the lock of the records, so the log has the state that really was before.
        now = {id_: before and before.access for id_, (before, _) in pairs.items()}
        if as_seen and now != accesses:
            raise BusyError("Somebody else has changed these rights meanwhile. Look at them again.")
        return log_act(settings.data, access_act(act, tenant, pairs))

    return await change_access(settings.home, tenant, accesses, changed, folders, around=around)


def change_remarks(pairs: Pairs, changed: AccessChange, grant: Sequence[str]) -> Iterator[str]:
    """Notes on a change: that everybody has the access already, or that a container or an origin limits it.

    `grant` holds the entries of a grant; it is empty for other changes.
    """
    for _, after in pairs.values():
        if after.is_folder:
            yield _new_files_line(after)
    of_sources = [(before, after) for before, after in pairs.values() if before and not after.is_folder]
    already = [
        after
        for before, after in of_sources
        if rule.same_access(before.access, after.access) and rule.in_words(after.access).startswith("open")
    ]
    if grant and already:
        alone = len(already) == 1
        document = document_name(already[0]) if alone else f"{len(already)} of these documents"
        allowing = (argument for entry in grant for argument in ("--allow", entry))
        yield (
            f"Everybody in the tenant can see {document} already, so nothing changed. To let in only those: "
            f"refdesk-admin access set {already[0].id if alone else 'ID'} --visibility restricted"
            f"{arguments(*allowing)}"
        )
    for before, after in of_sources:
        if rule.is_narrowed(after.access, changed(before.access)):
            yield (
                f"{document_name(after)} stays narrower than this change says: a part can't be more widely "
                "visible than the file that contains it. Change who may see that file, too."
            )
        if decided_by_origin(before) and rule.is_narrowed(before.access, after.access):
            yield (
                f"The origin of {document_name(after)} decides who may see it: its next sync takes back what "
                "is wider now. Change it where the document comes from."
            )


async def copy_changed_labels(settings: Settings, sources: Sequence[SourceAccess]) -> list[str]:
    """Copy changed rights to the labels of chunks, which speed up searches. Returns what failed."""
    complaints = []
    for table in dict.fromkeys(source.table for source in sources if source.table):
        try:
            await copy_labels(settings.home, table.collection)
        except StoreError as error:
            complaints.append(
                f"The change is in force, but searches of {table.collection.name} are slower until the next "
                f"ingestion: {error}"
            )
    return complaints


def access_json(access: Access | None) -> dict[str, Any] | None:
    """An access record as `--json` prints it."""
    return None if access is None else {**(access_state(access) or {}), "revision": access.revision}


def _print(source: SourceAccess, access: Access | None) -> None:
    torn = {"found_by": rule.in_words(source.effective)} if source.is_torn else {}
    gone = {} if source.table else {"gone": True}
    print_json({"id": source.id, "access": access_json(access)} | torn | gone)
    echo(in_one_line(f"{source.id}  {source.title}{'' if source.table else ' (removed)'}"))
    echo(f"  visibility {access.visibility if access else 'no access record: nobody sees it'}")
    if access:
        echo(f"  allow      {', '.join(sorted(access.allow)) or '-'}")
        echo(f"  deny       {', '.join(sorted(access.deny)) or '-'}")
    if source.is_torn:
        echo(f"  searches   {rule.in_words(source.effective)}: {_TORN}")
