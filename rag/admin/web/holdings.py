"""The collections and the API keys: what there is, making more, and revoking."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast, get_args

from rag.access.keys import keys_in, token_of
from rag.access.names import valid_name
from rag.admin import collection as admin_collection
from rag.admin import key
from rag.admin.collection_options import MAX_DESCRIPTION
from rag.admin.key_binding import in_words
from rag.admin.sharing import exposures
from rag.admin.status import size_of
from rag.admin.web.asker import Asker
from rag.admin.web.console import EntryError, entry, number_in, seen_other
from rag.config.server_settings import resource_url
from rag.corpus import LanguageChoice, Visibility
from rag.errors import ConfigurationError, InvalidRequestError, NotFoundError
from rag.report.tables import one_line

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request
    from starlette.responses import Response

    from rag.admin.web.console import Console

LANGUAGES = sorted({one for part in get_args(LanguageChoice) for one in (get_args(part) or (part,))})
MAX_DAYS, USUAL_DAYS = 3650, 365


async def collections(console: Console, _request: Request) -> Response:
    """The page of the collections."""
    tables = await console.tables()
    return console.page(
        "collections.html",
        rows=[(table.collection, await size_of(table)) for table in tables],
        languages=LANGUAGES,
        visibilities=get_args(Visibility),
        language_of=admin_collection.language_in_words,
    )


async def create_collection(console: Console, _request: Request, form: FormData) -> Response:
    """Make a collection."""
    language, visibility = str(form.get("language", "auto")), str(form.get("visibility", ""))
    if language not in LANGUAGES or visibility not in {"", *get_args(Visibility)}:
        raise InvalidRequestError("Choose a language and a visibility of the list.")
    description = one_line(str(form.get("description", "")))
    if len(description) > MAX_DESCRIPTION:
        raise EntryError("description", f"A description has at most {MAX_DESCRIPTION} characters.")
    with entry("name"):
        name = valid_name(str(form.get("name", "")).strip())
        if name in {collection.name for collection in await console.collections()}:
            raise ConfigurationError(f"The collection {name!r} already exists.")
    made = await admin_collection.created(
        console.settings,
        name,
        language=cast("LanguageChoice", language),
        visibility=cast("Visibility", visibility) if visibility else None,
        description=description,
    )
    console.say(f"Created the collection {made.name}.")
    return seen_other("/collections")


async def keys(console: Console, _request: Request) -> Response:
    """The page of the keys."""
    return console.page("keys.html", **_keys(console), made=None)


async def create_key(console: Console, _request: Request, form: FormData) -> Response:
    """Make a key, and show it on this page, once."""
    days = number_in(str(form.get("days", USUAL_DAYS)), 1, MAX_DAYS)
    if days is None:
        raise EntryError("days", f"A key lasts from 1 to {MAX_DAYS} days.")
    asked = Asker.of({"user": form.get("user", ""), "groups": form.get("groups", "")}, console.settings)
    holder = asked.principal(console.tenant)
    made, secret = key.created(
        console.settings, user=holder.user or "", groups=sorted(holder.groups), days=days
    )
    for exposure in await exposures(console.settings, console.tenant, intended=True):
        console.say(str(exposure))
    return console.page("keys.html", **_keys(console), made=made, token=token_of(made, secret))


async def revoke_key(console: Console, _request: Request, form: FormData) -> Response:
    """Revoke a key of the tenant."""
    id_ = str(form.get("id", ""))
    if id_ not in {one.id for one in keys_in(console.settings.home).keys if one.tenant == console.tenant}:
        raise NotFoundError("There is no such key. It may have been revoked.")
    key.revoke_key(console.settings.data, id_)
    console.say(f"Revoked the key {id_}. Running servers reject it from the next request on.")
    return seen_other("/keys")


def _keys(console: Console) -> dict[str, Any]:
    held = [one for one in keys_in(console.settings.home).keys if one.tenant == console.tenant]
    return {
        "keys": held,
        "now": datetime.now(UTC),
        "bound": in_words,
        "url": resource_url(console.settings.http),
        "taken": "keys" in console.settings.http.authentication,
        "days": USUAL_DAYS,
        "most": MAX_DAYS,
    }
