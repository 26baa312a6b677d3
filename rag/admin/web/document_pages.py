"""The documents with filters, the passages of a document, who may see it and why, and changing that.

A change is shown with its effect before anybody makes it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, get_args
from urllib.parse import urlencode

from rag.access.names import check_access
from rag.access.rule import access_changes, in_words, same_access, visible
from rag.admin.access_command import (
    SourceAccess,
    access_reason,
    change_remarks,
    change_sources,
    copy_changed_labels,
    grant_change,
    revoke_change,
    select_sources,
)
from rag.admin.web.console import Asker, Console, see_other
from rag.admin.web.console_state import DocumentFilter, matching_documents
from rag.corpus import Access, Visibility
from rag.errors import BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.ingest.rights.requested_rights import RequestedAccess
from rag.report.text_and_html import counted, drawn
from rag.uris import split_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from rag.admin.audit_command import ActName
    from rag.config.settings import Settings
    from rag.store.read.collection_reader import CollectionReader
    from rag.store.read.stored_rows import StoredSource

LISTED = 50  # documents a page
PASSAGES = 20  # a page
EVERY_CHUNK = "(true)"  # the administrator's view
MAX_PAGE = 10**9


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
    "text/calendar": "Calendar",
    "text/csv": "CSV",
    "text/html": "Web page",
    "text/markdown": "Markdown",
    "text/plain": "Text",
}
"""What people call a media type. Others go by the name in them: "text/x-python" -> "Python"."""


def kind_of(mime_type: str) -> str:
    """What people call this kind of document."""
    name = mime_type.partition("/")[2].removeprefix("x-").removeprefix("vnd.").partition("+")[0]
    return KINDS.get(mime_type) or name.replace("-", " ").capitalize() or "Other"


async def documents(console: Console, request: Request) -> Response:
    """The list, page by page."""
    given = request.query_params
    asker = Asker.of(given, console.settings)
    reader = asker.principal(console.tenant) if given.get("who") == "one" else None
    shelves = [await console.shelves.of(one) for one in await console.tables(given.get("collection") or None)]
    wanted = DocumentFilter(given.get("text", "").strip(), given.get("kind", ""), reader)
    listed = matching_documents(shelves, wanted, console.settings.access.letter_case)
    page, pages = _page(given, len(listed), LISTED)
    others = {key: value for key, value in given.items() if key != "page"}
    return console.page(
        "documents.html",
        given=given,
        asker=asker,
        collections=await console.collections(),
        kinds=sorted(
            ((kind, kind_of(kind)) for kind in frozenset[str]().union(*(shelf.kinds for shelf in shelves))),
            key=lambda pair: (pair[1].casefold(), pair[0]),
        ),
        kind_of=kind_of,
        documents=listed[(page - 1) * LISTED : page * LISTED],
        total=len(listed),
        number=page,
        pages=pages,
        address=f"/documents?{urlencode(others)}{'&' if others else ''}page=",
        in_words=in_words,
    )


async def document(console: Console, request: Request) -> Response:
    """A document with its passages, page by page. `passage` chooses the page that has this one."""
    stored, table = await find_document(console, request.path_params["id"])
    given: dict[str, str] = dict(request.query_params)
    if "passage" in given:
        given["page"] = str(_number(given["passage"]) // PASSAGES + 1)
    page, pages = _page(given, stored.source.chunk_count, PASSAGES)
    first = (page - 1) * PASSAGES
    return console.page(
        "document.html",
        stored=stored,
        source=stored.source,
        rights=in_words(stored.access),
        kind_of=kind_of,
        drawn=drawn,
        passages=await table.between(stored, first, first + PASSAGES - 1, EVERY_CHUNK),
        number=page,
        pages=pages,
        address=f"/documents/{stored.id}?page=",
    )


async def find_document(console: Console, name: str) -> tuple[StoredSource, CollectionReader]:
    """A document of the tenant, and its collection.

    Raises:
        NotFoundError: no document has this id.
    """
    source_id, _ = split_id(name)
    for table in await console.tables():
        if stored := (await table.sources([source_id])).get(source_id):
            return stored, table
    raise NotFoundError("There is no document with this id. It may have been removed.")


def _page(given: Mapping[str, str], things: int, each: int) -> tuple[int, int]:
    """The page that is asked for, from 1, and how many there are."""
    pages = max(1, -(-things // each))
    return min(max(1, _number(given.get("page", "1"))), pages), pages


def _number(text: str) -> int:
    """Raises InvalidRequestError unless the text is a number of a page or a passage."""
    if not (text.isascii() and text.isdigit() and len(text) < len(str(MAX_PAGE))):
        raise InvalidRequestError("A page has a number.")
    return int(text)


SHOWN = 50  # documents in a list
NAMED = 8  # documents of a line
ACTS = {"grant": "Let them see it", "revoke": "Keep them out", "set": "Replace the record"}
FIELDS = ("name", "act", "entries", "visibility", "deny")


@dataclass(frozen=True, slots=True)
class AccessRow:
    """A document with its record, whether the reader sees it and why, and the record that it would have."""

    held: SourceAccess
    before: str
    seen: bool
    access_reason: str
    after: str = ""
    would_see: bool = False


async def access(console: Console, request: Request) -> Response:
    """The page: the documents of a name, the reasons for a reader, and what a change would change."""
    given, settings = request.query_params, console.settings
    asker, problem = Asker.of(given, settings), ""
    held: list[SourceAccess] = []
    changed: Callable[[Access | None], Access] | None = None
    rows: list[AccessRow] = []
    try:
        held = await _held(console, given)
        changed = requested_change(settings, given) if given.get("act") else None
        rows = _rows(console, asker, held, changed)
    except RefdeskError as error:
        problem = str(error)
    after = {one.id: changed(one.access) for one in held} if changed else {}
    gained = access_changes((one.title, one.access, after[one.id]) for one in held) if changed else {}
    return console.page(
        "access.html",
        status=400 if problem else 200,
        given=given,
        asker=asker,
        acts=ACTS,
        visibilities=get_args(Visibility),
        rows=rows[:SHOWN],
        total=len(rows),
        preview=changed is not None and not problem,
        gained=sorted(gained.items()),
        differs=any(not same_access(one.access, after[one.id]) for one in held) if changed else False,
        named=NAMED,
        fields={key: given.get(key, "") for key in FIELDS},
        seen=records_digest(held),
        problem=problem,
    )


async def change_access(console: Console, _request: Request, form: FormData) -> Response:
    """Make a change that was looked at before, if nothing has changed since."""
    given = {key: str(form.get(key, "")) for key in FIELDS}
    settings = console.settings
    held, changed = await _held(console, given), requested_change(settings, given)
    if not held:
        raise InvalidRequestError("Name the documents.")
    if records_digest(held) != form.get("seen"):
        raise BusyError("These documents or their rights have changed since you looked. Look at it again.")
    act = cast("ActName", f"access {given['act']}")
    pairs = await change_sources(settings, act, held, changed, as_seen=True)
    granted = _entries(given.get("entries", "")) if given["act"] == "grant" else ()
    for remark in (*change_remarks(pairs, changed, granted), *await copy_changed_labels(settings, held)):
        console.say(remark)
    console.say(f"Changed who may see {counted(len(held), 'document')}.")
    return see_other(f"/access?{urlencode({'name': given['name']})}")


async def _held(console: Console, given: Mapping[str, str]) -> list[SourceAccess]:
    """The sources that the form names; none if it names nothing."""
    name = given.get("name", "").strip()
    if not name:
        return []
    stored = [
        (table, [book.stored for book in (await console.shelves.of(table)).books])
        for table in await console.tables()
    ]
    return select_sources(stored, await console.reader.gone(console.tenant), (name,))


def requested_change(settings: Settings, given: Mapping[str, str]) -> Callable[[Access | None], Access]:
    """What an act of the form makes of a record, as the command of the same name does.

    Raises:
        InvalidRequestError: the form is incomplete.
        ConfigurationError: an entry is not valid.
    """
    entries, denied = _entries(given.get("entries", "")), _entries(given.get("deny", ""))
    act = given.get("act")
    if denied and act != "set":
        raise InvalidRequestError("“But never” is for replacing the record. Choose that, or leave it out.")
    if act in {"grant", "revoke"} and not entries:
        raise InvalidRequestError("Name whom: user:NAME or group:NAME, with commas between.")
    if act == "grant":
        return grant_change(settings, entries)
    if act == "revoke":
        return revoke_change(settings, entries)
    visibility = given.get("visibility")
    if act != "set" or visibility not in get_args(Visibility):
        raise InvalidRequestError("Choose what to change.")
    check_access(cast("Visibility", visibility), entries, denied)
    asked = RequestedAccess(cast("Visibility", visibility), entries, denied)
    return lambda _before: asked.record("restricted")


def records_digest(held: Sequence[SourceAccess]) -> str:
    """What was looked at: these documents with these revisions of their records."""
    lines = sorted(f"{one.id} {one.access.revision if one.access else None}" for one in held)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _rows(
    console: Console,
    asker: Asker,
    held: Sequence[SourceAccess],
    changed: Callable[[Access | None], Access] | None,
) -> list[AccessRow]:
    case, principal = console.settings.access.letter_case, asker.principal(console.tenant)
    rows = []
    for one in held:
        seen, reason = visible(principal, one.access, case), access_reason(principal, one.access, case)
        if one.table is None:
            seen, reason = False, f"it was removed. Its record would apply again: {reason}"
        after = changed(one.access) if changed else None
        would = after is not None and one.table is not None and visible(principal, after, case)
        rows.append(
            AccessRow(one, in_words(one.access), seen, reason, in_words(after) if after else "", would)
        )
    return rows


def _entries(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())
