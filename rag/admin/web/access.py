"""Who may see a document and why, and what a change would change before anybody makes it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast, get_args
from urllib.parse import urlencode

from rag.access.names import check_access
from rag.access.rule import access_changes, in_words, same_access, visible
from rag.admin.access import change_held, granting, held_among, labels_copied, remarks_on, revoking, why
from rag.admin.web.asker import Asker
from rag.admin.web.console import seen_other
from rag.corpus import Access, Visibility
from rag.errors import BusyError, InvalidRequestError, RefdeskError
from rag.ingest.rights.requested_rights import RequestedAccess
from rag.report.tables import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from rag.admin.access import Held
    from rag.admin.acts import ActName
    from rag.admin.web.console import Console
    from rag.config.settings import Settings

SHOWN = 50  # documents in a list
NAMED = 8  # documents of a line
ACTS = {"grant": "Let them see it", "revoke": "Keep them out", "set": "Replace the record"}
FIELDS = ("name", "act", "entries", "visibility", "deny")


@dataclass(frozen=True, slots=True)
class Row:
    """A document with its record, whether the reader sees it and why, and the record that it would have."""

    held: Held
    before: str
    seen: bool
    why: str
    after: str = ""
    would_see: bool = False


async def access(console: Console, request: Request) -> Response:
    """The page: the documents of a name, the reasons for a reader, and what a change would change."""
    given, settings = request.query_params, console.settings
    asker, problem = Asker.of(given, settings), ""
    held: list[Held] = []
    changed: Callable[[Access | None], Access] | None = None
    rows: list[Row] = []
    try:
        held = await _held(console, given)
        changed = changed_by(settings, given) if given.get("act") else None
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
        seen=digest(held),
        problem=problem,
    )


async def change_access(console: Console, _request: Request, form: FormData) -> Response:
    """Make a change that was looked at before, if nothing has changed since."""
    given = {key: str(form.get(key, "")) for key in FIELDS}
    settings = console.settings
    held, changed = await _held(console, given), changed_by(settings, given)
    if not held:
        raise InvalidRequestError("Name the documents.")
    if digest(held) != form.get("seen"):
        raise BusyError("These documents or their rights have changed since you looked. Look at it again.")
    act = cast("ActName", f"access {given['act']}")
    pairs = await change_held(settings, act, held, changed, as_seen=True)
    granted = _entries(given.get("entries", "")) if given["act"] == "grant" else ()
    for remark in (*remarks_on(pairs, changed, granted), *await labels_copied(settings, held)):
        console.say(remark)
    console.say(f"Changed who may see {counted(len(held), 'document')}.")
    return seen_other(f"/access?{urlencode({'name': given['name']})}")


async def _held(console: Console, given: Mapping[str, str]) -> list[Held]:
    """The sources that the form names; none if it names nothing."""
    name = given.get("name", "").strip()
    if not name:
        return []
    stored = [
        (table, [book.stored for book in (await console.shelves.of(table)).books])
        for table in await console.tables()
    ]
    return held_among(stored, await console.reader.gone(console.tenant), (name,))


def changed_by(settings: Settings, given: Mapping[str, str]) -> Callable[[Access | None], Access]:
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
        return granting(settings, entries)
    if act == "revoke":
        return revoking(settings, entries)
    visibility = given.get("visibility")
    if act != "set" or visibility not in get_args(Visibility):
        raise InvalidRequestError("Choose what to change.")
    check_access(cast("Visibility", visibility), entries, denied)
    asked = RequestedAccess(cast("Visibility", visibility), entries, denied)
    return lambda _before: asked.record("restricted")


def digest(held: Sequence[Held]) -> str:
    """What was looked at: these documents with these revisions of their records."""
    lines = sorted(f"{one.id} {one.access.revision if one.access else None}" for one in held)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _rows(
    console: Console,
    asker: Asker,
    held: Sequence[Held],
    changed: Callable[[Access | None], Access] | None,
) -> list[Row]:
    case, principal = console.settings.access.letter_case, asker.principal(console.tenant)
    rows = []
    for one in held:
        seen, reason = visible(principal, one.access, case), why(principal, one.access, case)
        if one.table is None:
            seen, reason = False, f"it was removed. Its record would apply again: {reason}"
        after = changed(one.access) if changed else None
        would = after is not None and one.table is not None and visible(principal, after, case)
        rows.append(Row(one, in_words(one.access), seen, reason, in_words(after) if after else "", would))
    return rows


def _entries(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())
