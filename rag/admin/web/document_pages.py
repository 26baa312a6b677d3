"""The pages of documents: their list, one document's passages, and who may see them.

A change of access is previewed before it is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, get_args
from urllib.parse import urlencode

from rag.access.rule import access_changes, check_access, in_words, same_access, visible
from rag.admin import access_command
from rag.admin.access_command import SourceAccess
from rag.admin.audit_command import ActName
from rag.admin.web.console import Asker, Console, comma_parts, number_in, see_other
from rag.admin.web.console_state import matching_documents
from rag.config.settings import Settings
from rag.corpus import Access, Visibility
from rag.errors import BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.ingest.requested_access import RequestedAccess
from rag.report import counted, with_tables
from rag.store.read.collection_reader import CollectionReader
from rag.store.read.schema import StoredSource
from rag.uris import split_id

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response


LISTED = 50  # documents a page
PASSAGES = 20  # a page
EVERY_CHUNK = "(true)"  # the administrator's view
MAX_PAGE = 10**9 - 1


KINDS = {
    "application/pdf": "PDF",
    "application/msword": "Word",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "Word",
    "application/vnd.ms-excel": "Excel",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "Excel",
    "application/vnd.ms-powerpoint": "PowerPoint",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "PowerPoint",
    "application/vnd.oasis.opendocument.text": "OpenDocument text",
    "application/vnd.oasis.opendocument.spreadsheet": "OpenDocument sheet",
    "application/vnd.oasis.opendocument.presentation": "OpenDocument slides",
    "application/vnd.ms-outlook": "Mail",
    "application/epub+zip": "E-book",
    "application/x-ipynb+json": "Notebook",
    "application/rtf": "RTF",
    "application/json": "JSON",
    "application/xml": "XML",
    "message/rfc822": "Mail",
    "text/csv": "CSV",
    "text/html": "Web page",
    "text/plain": "Text",
    "text/x-opml": "OPML",
    "text/x-rst": "reStructuredText",
    "text/x-tex": "TeX",
    "text/x-vcard": "vCard",
}
"""What people call a media type. Others go by the name in them: "text/x-python" -> "Python"."""


def kind_of(mime_type: str) -> str:
    """What people call this kind of document."""
    name = mime_type.partition("/")[2].removeprefix("x-").removeprefix("vnd.").partition("+")[0]
    return KINDS.get(mime_type) or name.replace("-", " ").capitalize() or "Other"


async def documents(console: Console, request: Request) -> Response:
    """One page of the filtered list of documents."""
    parameters = request.query_params
    asker = Asker.of(parameters, console.settings)
    reader = asker.principal(console.tenant) if parameters.get("who") == "one" else None
    lists = [
        await console.source_lists.of(table)
        for table in await console.tables(parameters.get("collection") or None)
    ]
    text, kind = parameters.get("text", "").strip(), parameters.get("kind", "")
    listed = matching_documents(lists, text, kind, reader, console.settings.access.letter_case)
    page, pages = _page(parameters, len(listed), LISTED)
    kept_parameters = {key: value for key, value in parameters.items() if key != "page"}
    return console.page(
        "documents.html",
        parameters=parameters,
        asker=asker,
        collections=await console.collections(),
        kinds=sorted(
            ((kind, kind_of(kind)) for kind in frozenset[str]().union(*(sources.kinds for sources in lists))),
            key=lambda pair: (pair[1].casefold(), pair[0]),
        ),
        kind_of=kind_of,
        documents=listed[(page - 1) * LISTED : page * LISTED],
        total=len(listed),
        number=page,
        pages=pages,
        address=f"/documents?{urlencode(kept_parameters)}{'&' if kept_parameters else ''}page=",
        in_words=in_words,
    )


async def document(console: Console, request: Request) -> Response:
    """A document with one page of its passages. The parameter `passage` chooses the page that contains it."""
    stored, table = await find_document(console, request.path_params["id"])
    parameters: dict[str, str] = dict(request.query_params)
    if "passage" in parameters:
        parameters["page"] = str(_number(parameters["passage"]) // PASSAGES + 1)
    page, pages = _page(parameters, stored.source.chunk_count, PASSAGES)
    first = (page - 1) * PASSAGES
    return console.page(
        "document.html",
        stored=stored,
        source=stored.source,
        rights=in_words(stored.access),
        kind_of=kind_of,
        drawn=with_tables,
        passages=await table.chunks_between(stored, first, first + PASSAGES - 1, EVERY_CHUNK),
        number=page,
        pages=pages,
        address=f"/documents/{stored.id}?page=",
    )


async def find_document(console: Console, name: str) -> tuple[StoredSource, CollectionReader]:
    """A document of the tenant, and its collection; raises NotFoundError if no document has this id."""
    source_id, _ = split_id(name)
    for table in await console.tables():
        if stored := (await table.sources([source_id])).get(source_id):
            return stored, table
    raise NotFoundError("There is no document with this id. It may have been removed.")


def _page(parameters: Mapping[str, str], total: int, page_size: int) -> tuple[int, int]:
    """The requested page, from 1 to the last one, and the number of pages."""
    pages = max(1, -(-total // page_size))
    return min(max(1, _number(parameters.get("page", "1"))), pages), pages


def _number(text: str) -> int:
    """The number of a page or passage; raises InvalidRequestError for any other text."""
    if (number := number_in(text, 0, MAX_PAGE)) is None:
        raise InvalidRequestError("A page has a number.")
    return number


SHOWN = 50  # documents in a list
NAMED = 8  # documents of a line
ACTS = {"grant": "Let them see it", "revoke": "Keep them out", "set": "Replace the record"}
FIELDS = ("name", "act", "entries", "visibility", "deny")


@dataclass(frozen=True, slots=True)
class AccessRow:
    """A document with its record, whether the reader sees it and why, and its record after the change."""

    source: SourceAccess
    before: str
    sees_it: bool
    why: str
    after: str = ""
    would_see: bool = False


async def access(console: Console, request: Request) -> Response:
    """The page: the documents that a name matches, who sees them and why, and the preview of a change."""
    parameters, settings = request.query_params, console.settings
    asker, problem = Asker.of(parameters, settings), ""
    sources: list[SourceAccess] = []
    changed: Callable[[Access | None], Access] | None = None
    rows: list[AccessRow] = []
    try:
        sources = await _named_sources(console, parameters)
        changed = requested_change(settings, parameters) if parameters.get("act") else None
        rows = _rows(console, asker, sources, changed)
    except RefdeskError as error:
        problem = str(error)
    after = {source.id: changed(source.access) if changed else source.access for source in sources}
    gained = access_changes((source.title, source.access, after[source.id]) for source in sources)
    return console.page(
        "access.html",
        status=400 if problem else 200,
        parameters=parameters,
        asker=asker,
        acts=ACTS,
        visibilities=get_args(Visibility),
        rows=rows[:SHOWN],
        total=len(rows),
        preview=changed is not None and not problem,
        gained=sorted(gained.items()),
        differs=any(not same_access(source.access, after[source.id]) for source in sources),
        max_listed=NAMED,
        fields={key: parameters.get(key, "") for key in FIELDS},
        seen=records_digest(sources),
        problem=problem,
    )


async def change_access(console: Console, _request: Request, form: FormData) -> Response:
    """Make a change that was previewed, if nothing has changed since."""
    entered = {key: str(form.get(key, "")) for key in FIELDS}
    settings = console.settings
    sources, changed = await _named_sources(console, entered), requested_change(settings, entered)
    if not sources:
        raise InvalidRequestError("Name the documents.")
    if records_digest(sources) != form.get("seen"):
        raise BusyError("These documents or their rights have changed since you looked. Look at it again.")
    act = cast("ActName", f"access {entered['act']}")
    pairs = await access_command.change_sources(settings, act, sources, changed, as_seen=True)
    granted = comma_parts(entered["entries"]) if entered["act"] == "grant" else ()
    for remark in (
        *access_command.change_remarks(pairs, changed, granted),
        *await access_command.copy_changed_labels(settings, sources),
    ):
        console.say(remark)
    console.say(f"Changed who may see {counted(len(sources), 'document')}.")
    return see_other(f"/access?{urlencode({'name': entered['name']})}")


async def _named_sources(console: Console, parameters: Mapping[str, str]) -> list[SourceAccess]:
    """The sources that the form names; none if it names nothing."""
    name = parameters.get("name", "").strip()
    if not name:
        return []
    stored = [
        (table, [source.stored for source in (await console.source_lists.of(table)).sources])
        for table in await console.tables()
    ]
    return access_command.select_sources(
        stored, await console.reader.removed_records(console.tenant), (name,)
    )


def requested_change(settings: Settings, parameters: Mapping[str, str]) -> Callable[[Access | None], Access]:
    """The change of access that the form asks for, as the command of the same name makes it.

    Raises:
        InvalidRequestError: the form is incomplete.
        ConfigurationError: an entry is not valid.
    """
    entries, denied = (comma_parts(parameters.get(key, "")) for key in ("entries", "deny"))
    act = parameters.get("act")
    if denied and act != "set":
        raise InvalidRequestError("“But never” is for replacing the record. Choose that, or leave it out.")
    if act in {"grant", "revoke"} and not entries:
        raise InvalidRequestError("Name whom: user:NAME or group:NAME, with commas between.")
    if act == "grant":
        return access_command.grant_change(settings, entries)
    if act == "revoke":
        return access_command.revoke_change(settings, entries)
    visibility = parameters.get("visibility")
    if act != "set" or visibility not in get_args(Visibility):
        raise InvalidRequestError("Choose what to change.")
    check_access(cast("Visibility", visibility), entries, denied)
    requested = RequestedAccess(cast("Visibility", visibility), entries, denied)
    return lambda _before: requested.record("restricted")


def records_digest(sources: Sequence[SourceAccess]) -> str:
    """A digest of these documents and the revisions of their access records."""
    lines = sorted(f"{source.id} {source.access.revision if source.access else None}" for source in sources)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _rows(
    console: Console,
    asker: Asker,
    sources: Sequence[SourceAccess],
    changed: Callable[[Access | None], Access] | None,
) -> list[AccessRow]:
    case, principal = console.settings.access.letter_case, asker.principal(console.tenant)
    rows = []
    for source in sources:
        is_there, why = source.table is not None, access_command.access_reason(principal, source.access, case)
        after = changed(source.access) if changed else None
        rows.append(
            AccessRow(
                source,
                in_words(source.access),
                is_there and visible(principal, source.access, case),
                why if is_there else f"it was removed. Its record would apply again: {why}",
                in_words(after) if after else "",
                is_there and after is not None and visible(principal, after, case),
            )
        )
    return rows
