"""`refdesk-admin console`: the routes of its pages, and the command that listens on this machine.

A page only reads. A change is a form, with the secret that our pages put into it.
"""

from __future__ import annotations

import os
import socket
import tempfile
import traceback
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, TypeAlias

import anyio
import click
import uvicorn
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from rag import errors, report
from rag.access.keys import VALID_DAYS, new_pass
from rag.admin import search_output
from rag.admin.command_line import command, flag, never_stale, settings_file
from rag.admin.terminal import echo, print_result
from rag.admin.web import desk_pages, document_pages, ingestion_pages, search_pages
from rag.admin.web.browser_guard import SIGN_IN, Door, guard
from rag.admin.web.console import Console, EntryError, page_of
from rag.admin.web.console_state import Health
from rag.config.settings import Settings
from rag.search.desk import Desk
from rag.search.search_plan import with_every_override
from rag.store.read.desk_reader import DeskReader
from rag.uris import PASSAGE_PAGES

if TYPE_CHECKING:
    from starlette.datastructures import FormData
    from starlette.requests import Request


Page: TypeAlias = "Callable[[Console, Request], Awaitable[Response]]"
Change: TypeAlias = "Callable[[Console, Request, FormData], Awaitable[Response]]"
Endpoint: TypeAlias = "Callable[[Request], Awaitable[Response]]"

STATIC = Path(__file__).with_name("static")
FILES = (
    ("console.css", "text/css", (report.STYLE, search_output.STYLE, STATIC / "console.css")),
    ("console.js", "text/javascript", (STATIC / "console.js",)),
    ("icon.svg", "image/svg+xml", (STATIC / "icon.svg",)),
)
STATUS: dict[type[errors.RefdeskError], int] = {
    errors.NotFoundError: 404,
    errors.InvalidRequestError: 400,
    EntryError: 400,
    errors.BusyError: 409,
}
MAX_FILES, MAX_FIELDS = 1000, 1000  # of a form
FORM_FIELD, TENANT_FIELD = "form", "of"  # with the secret, and with the tenant that the page showed

PAGES: dict[str, Page] = {
    "/": desk_pages.overview,
    "/search": search_pages.search,
    "/documents": document_pages.documents,
    "/documents/{id}": document_pages.document,
    "/access": document_pages.access,
    "/ingestion": ingestion_pages.ingestion,
    "/ingestion/events": ingestion_pages.events,
    "/ingestion/runs/{id}": ingestion_pages.run,
    "/collections": desk_pages.collections,
    "/keys": desk_pages.keys,
    "/judged": search_pages.sets,
    "/judged/{name}": search_pages.judged_set,
    "/activity": desk_pages.activity,
}
CHANGES: dict[str, Change] = {
    "/health": desk_pages.look_again,
    "/tenant": desk_pages.choose_tenant,
    "/access": document_pages.change_access,
    "/ingestion": ingestion_pages.upload,
    "/ingestion/stop": ingestion_pages.stop,
    "/collections": desk_pages.create_collection,
    "/keys": desk_pages.create_key,
    "/keys/revoke": desk_pages.revoke_key,
    "/judged": search_pages.new_set,
    "/judged/{name}": search_pages.judge,
    "/judged/{name}/forget": search_pages.forget,
    "/judged/{name}/measure": search_pages.measure,
}


FORMS: dict[Change, Page] = {
    ingestion_pages.upload: ingestion_pages.ingestion,
    desk_pages.create_collection: desk_pages.collections,
    desk_pages.create_key: desk_pages.keys,
}
"""The pages with text forms. After a mistake they show the entries again, and the reason at its field."""


def console_app(console: Console) -> Starlette:
    """The application: all routes behind the guard."""
    pages = [Route(path, _page(console, page), methods=["GET"]) for path, page in PAGES.items()]
    changes = [Route(path, _change(console, change), methods=["POST"]) for path, change in CHANGES.items()]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            console.jobs.tasks = tasks
            tasks.start_soon(console.health.look)
            yield
            tasks.cancel_scope.cancel()

    return Starlette(
        routes=[
            Route(SIGN_IN, _sign_in(console), methods=["GET"]),
            *(Route(f"/{name}", _file(type_, *files), methods=["GET"]) for name, type_, files in FILES),
            *pages,
            *changes,
        ],
        middleware=[Middleware(guard, console.door, _error_page)],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )


def _file(media_type: str, *files: Path) -> Endpoint:
    content = "\n".join(file.read_text(encoding="utf-8") for file in files)

    async def serve(_request: Request) -> Response:
        return Response(content, media_type=media_type)

    return serve


def _sign_in(console: Console) -> Endpoint:
    door, home = console.door, console.base_settings.home

    async def sign_in(request: Request) -> Response:
        """Give the cookie to the browser that brings the token, and the pass for pages that citations open.

        The reply is a page and not a redirect: after a link from elsewhere, a browser would follow the
        redirect without a strict cookie. A HEAD request, as for a preview, doesn't use up the token.
        """
        if request.method == "HEAD":
            return Response()
        cookie = door.let_in(request.query_params.get("token", ""))
        if cookie is None:
            if door.has_session(request.headers):
                return page_of("signed_in.html")
            return _error_page(403, "This address was used already, or is not the one that was printed.")
        reply = page_of("signed_in.html")
        reply.set_cookie(door.cookie, cookie, httponly=True, samesite="strict")
        with suppress(OSError, errors.StoreError):  # a person who has signed in can do without
            if pass_ := await to_thread.run_sync(new_pass, home, datetime.now(UTC)):
                age = VALID_DAYS * 86_400
                # "lax", because a citation may stand on a page of another site.
                reply.set_cookie(*pass_, age, path=PASSAGE_PAGES, httponly=True, samesite="lax")
        return reply

    return sign_in


def _page(console: Console, page: Page) -> Endpoint:
    async def show(request: Request) -> Response:
        return await _safe_reply(console, page(console.for_one_request(), request))

    return show


def _change(console: Console, change: Change) -> Endpoint:
    async def apply(request: Request) -> Response:
        async with request.form(max_files=MAX_FILES, max_fields=MAX_FIELDS) as form:
            if not console.door.has_form_secret(form.get(FORM_FIELD)):
                return _error_page(
                    403, "This form is not from this console as it runs now. Nothing was done."
                )
            return await _safe_reply(console, checked(request, form))

    async def checked(request: Request, form: FormData) -> Response:
        if change is desk_pages.choose_tenant:
            return await change(console, request, form)
        looking = console.for_one_request()
        looking.check_shown(form.get(TENANT_FIELD))
        try:
            return await change(looking, request, form)
        except (errors.InvalidRequestError, errors.ConfigurationError) as error:
            if change not in FORMS:
                raise
            entries = {name: value for name, value in form.items() if isinstance(value, str)}
            reply = await FORMS[change](looking.with_mistake(entries, error), request)
            reply.status_code = STATUS.get(type(error), 422)
            return reply

    return apply


async def _safe_reply(console: Console, reply: Awaitable[Response]) -> Response:
    """The reply, or a page with the error."""
    try:
        return await reply
    except errors.RefdeskError as error:
        status = STATUS.get(type(error), 422)
        return console.page("error.html", status=status, title=HTTPStatus(status).phrase, reason=str(error))
    except Exception as error:  # noqa: BLE001 a fault of ours must not leave a page without the door's headers
        echo("".join(traceback.format_exception(error)), err=True)
        reason = f"{type(error).__name__}. The terminal in which the console runs says more."
        return console.page("error.html", status=500, title="This is a fault", reason=reason)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 it is registered for these
    reasons = {
        404: "There is no such page.",
        400: f"{error.detail} For whole folders, run refdesk-admin ingest FOLDER.",  # of an unreadable form
    }
    return _error_page(error.status_code, reasons.get(error.status_code, "Not possible."))


def _error_page(status: int, reason: str) -> HTMLResponse:
    """An error page that shows nothing of the desk."""
    return page_of("refused.html", status=status, title=HTTPStatus(status).phrase, reason=reason)


HOST = "127.0.0.1"
END_SECONDS = 2  # for requests that run when the console ends


@command("console", of_desk=True)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Port. Default: a free one."
)
@flag("--open", "opens", help="Open the browser.")
async def console_command(settings: Settings, *, port: int, opens: bool) -> None:
    """Show and administer this desk in a browser.

    It listens on 127.0.0.1 only, until Ctrl-C. The printed address signs in one browser; after
    that it is used up. From another machine, forward the port by SSH under the same number.
    """
    settings = never_stale(settings)  # it shows what it has changed
    with _listening(port) as listener:
        door = Door(f"{HOST}:{listener.getsockname()[1]}")
        every = settings.model_copy(update={"search": with_every_override(settings.search)})
        async with Desk.open(every, os.environ) as desk:
            console = Console(
                settings,
                settings_file(),
                door,
                desk,
                DeskReader.of(settings),
                Health(settings, settings_file()),
            )
            print_result(
                {"address": door.address},
                f"The console is at {door.address}",
                "The address signs in one browser on this machine. Ctrl-C ends the console.",
            )
            with _browser_open(door.address if opens else ""):
                await _serve(console, listener)


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    """A socket that listens on the loopback address; raises ConfigurationError if the port is in use."""
    problem = f"Can't listen on {HOST}:{port}"
    with errors.if_system_refuses(errors.ConfigurationError, problem, "Try --port 0."):
        listener = socket.create_server((HOST, port))
    # Connections inherit this option. Without it each page waits 40 ms (Nagle's algorithm with delayed
    # acknowledgements): asyncio sets it only on sockets whose `proto` is stated.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listener:
        yield listener


@contextmanager
def _browser_open(address: str) -> Iterator[None]:
    """Open the browser at an address, if one is given.

    The address goes through a file that only we can read: process arguments are visible to every user.
    """
    if not address:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="refdesk-console-") as folder:
        page = Path(folder, "console.html")
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">', encoding="utf-8"
        )
        # In a thread: a text-mode browser blocks until it is closed.
        Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield


class _Server(uvicorn.Server):
    """Shuts down gracefully at the first signal, and at once at the second."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 uvicorn's signature
        """Let running requests finish."""
        self.force_exit = self.should_exit
        self.should_exit = True


async def _serve(console: Console, listener: socket.socket) -> None:
    config = uvicorn.Config(
        await to_thread.run_sync(console_app, console),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=END_SECONDS,
    )
    await _Server(config).serve([listener])
