"""The console's routes. A page only reads. A change is a form, with the secret that our pages put into it."""

from __future__ import annotations

import traceback
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rag.admin import search_report
from rag.admin.console import echo
from rag.admin.web import access, activity, documents, holdings, ingestion, judged, overview, search
from rag.admin.web.console import EntryError
from rag.admin.web.guard import SIGN_IN, Guard
from rag.admin.web.pages import page_of
from rag.errors import BusyError, ConfigurationError, InvalidRequestError, NotFoundError, RefdeskError
from rag.report import html

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.datastructures import FormData
    from starlette.requests import Request

    from rag.admin.web.console import Console
    from rag.admin.web.guard import Door

Page: TypeAlias = "Callable[[Console, Request], Awaitable[Response]]"
Change: TypeAlias = "Callable[[Console, Request, FormData], Awaitable[Response]]"
Endpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"

STATIC = Path(__file__).with_name("static")
STYLES = (html.STYLE, search_report.STYLE, STATIC / "console.css")
STATUS: dict[type[RefdeskError], int] = {
    NotFoundError: 404,
    InvalidRequestError: 400,
    EntryError: 400,
    BusyError: 409,
}
MAX_FILES, MAX_FIELDS = 1000, 1000  # of a form
FORM_FIELD, TENANT_FIELD = "form", "of"  # with the secret, and with the tenant that the page showed

PAGES: dict[str, Page] = {
    "/": overview.overview,
    "/search": search.search,
    "/documents": documents.documents,
    "/documents/{id}": documents.document,
    "/access": access.access,
    "/ingestion": ingestion.ingestion,
    "/ingestion/events": ingestion.events,
    "/ingestion/runs/{id}": ingestion.run,
    "/collections": holdings.collections,
    "/keys": holdings.keys,
    "/judged": judged.sets,
    "/judged/{name}": judged.judged,
    "/activity": activity.activity,
}
CHANGES: dict[str, Change] = {
    "/health": overview.look_again,
    "/tenant": overview.choose_tenant,
    "/access": access.change_access,
    "/ingestion": ingestion.upload,
    "/ingestion/stop": ingestion.stop,
    "/collections": holdings.create_collection,
    "/keys": holdings.create_key,
    "/keys/revoke": holdings.revoke_key,
    "/judged": judged.new_set,
    "/judged/{name}": judged.judge,
    "/judged/{name}/forget": judged.forget,
    "/judged/{name}/measure": judged.measure,
}


FORMS: dict[Change, Page] = {
    ingestion.upload: ingestion.ingestion,
    holdings.create_collection: holdings.collections,
    holdings.create_key: holdings.keys,
}
"""The pages with forms that people write into: they show a mistake beside its field, and nothing is lost."""


def console_app(console: Console) -> Starlette:
    """The routes, behind the door."""
    shown = [Route(path, _page(console, one), methods=["GET"]) for path, one in PAGES.items()]
    changes = [Route(path, _change(console, one), methods=["POST"]) for path, one in CHANGES.items()]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            console.jobs.tasks = tasks
            tasks.start_soon(console.health.look)
            yield
            tasks.cancel_scope.cancel()

    return Starlette(
        routes=[
            Route(SIGN_IN, _sign_in(console.door), methods=["GET"]),
            *(Route(f"/{name}", _file(type_, *files), methods=["GET"]) for name, type_, files in _files()),
            *shown,
            *changes,
        ],
        middleware=[Middleware(Guard, console.door, _refused)],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )


def _files() -> list[tuple[str, str, tuple[Path, ...]]]:
    return [
        ("console.css", "text/css", STYLES),
        ("console.js", "text/javascript", (STATIC / "console.js",)),
        ("icon.svg", "image/svg+xml", (STATIC / "icon.svg",)),
    ]


def _file(media_type: str, *files: Path) -> Endpoint:
    content = "\n".join(file.read_text(encoding="utf-8") for file in files)

    async def serve(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return serve


def _sign_in(door: Door) -> Endpoint:
    async def sign_in(request: Request) -> Response:
        """Give the cookie to whoever brings the token first.

        The reply is a page and no redirect: after a link from elsewhere, a browser would follow a redirect
        without a strict cookie. A HEAD request, as for a preview, uses nothing up.
        """
        if request.method == "HEAD":
            return Response()
        cookie = door.let_in(request.query_params.get("token", ""))
        if cookie is None:
            if door.is_known(request.headers):
                return page_of("signed_in.html")
            return _refused(403, "This address was used already, or is not the one that was printed.")
        reply = page_of("signed_in.html")
        reply.set_cookie(door.cookie, cookie, httponly=True, samesite="strict")
        return reply

    return sign_in


def _page(console: Console, page: Page) -> Endpoint:
    async def show(request: Request) -> Response:
        return await _answered(console, page(console.for_one_request(), request))

    return show


def _change(console: Console, change: Change) -> Endpoint:
    async def apply(request: Request) -> Response:
        async with request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS) as form:
            if not console.door.is_form_of_ours(form.get(FORM_FIELD)):
                return _refused(403, "This form is not from this console as it runs now. Nothing was done.")
            return await _answered(console, checked(request, form))

    async def checked(request: Request, form: FormData) -> Response:
        if change is overview.choose_tenant:
            return await change(console, request, form)
        looking = console.for_one_request()
        looking.check_shown(form.get(TENANT_FIELD))
        try:
            return await change(looking, request, form)
        except (InvalidRequestError, ConfigurationError) as error:
            if change not in FORMS:
                raise
            entries = {name: value for name, value in form.items() if isinstance(value, str)}
            reply = await FORMS[change](looking.with_mistake(entries, error), request)
            reply.status_code = STATUS.get(type(error), 422)
            return reply

    return apply


async def _answered(console: Console, reply: Awaitable[Response]) -> Response:
    """The reply, or a page that says why there is none."""
    try:
        return await reply
    except RefdeskError as error:
        status = STATUS.get(type(error), 422)
        return console.page("error.html", status=status, title=HTTPStatus(status).phrase, reason=str(error))
    except Exception as error:  # noqa: BLE001 a fault of ours must not leave a page without the door's headers
        echo("".join(traceback.format_exception(error)), err=True)
        reason = f"{type(error).__name__}. The terminal in which the console runs says more."
        return console.page("error.html", status=500, title="This is a fault", reason=reason)


async def _http_error(_request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        return _refused(500, "Not possible.")
    match error.status_code:
        case HTTPStatus.NOT_FOUND:
            reason = "There is no such page."
        case HTTPStatus.BAD_REQUEST:  # a form that can't be read
            reason = f"{error.detail} For whole folders, run refdesk-admin ingest FOLDER."
        case _:
            reason = "Not possible."
    return _refused(error.status_code, reason)


def _refused(status: int, reason: str) -> HTMLResponse:
    """A page without anything of the desk."""
    return page_of("refused.html", status=status, title=HTTPStatus(status).phrase, reason=reason)
