"""The page that a citation opens: the marked passage in its document, as far as the person may read it.

The `url` of a hit leads here if its document has none on the web. The page needs a sign-in: over HTTP with
the identity provider (`server.http.auth`), at a shared desk with the console (`LocalPages`). It is one
self-contained file without scripts, and escapes all text of documents.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse
from starlette.routing import Route

from rag.access.keys import holds_pass
from rag.answers import WHOLE, Extract, Part
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.errors import BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.originals import Staleness
from rag.report import Html, joined, note, one_line, page, shortened, tag, with_tables
from rag.search.reply.reply_parts import shown_date
from rag.text.plain_text import Span
from rag.uris import CITED, NOT_FOUND, PASSAGE_PAGES, split_citation
from server import call_audit
from server.admission import Admission
from server.call_audit import RefusalLog
from server.handlers import message_for
from server.lazy_desk import LazyDesk
from server.tools import callable_tools, principal_through_any

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request


ROUTE = PASSAGE_PAGES + "/{id:path}"
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
AROUND, MOST_AROUND = 2, 1250  # passages before and after the cited one
TIMES_MORE = 5  # as many passages, by the link to more
MOST_CHARS = 300_000  # of a document on a page
LINE_CHARS = 200  # of a title or a path
STYLE = """
body > header {
  position: sticky; top: 0; padding: 0.75rem 0;
  border-bottom: 1px solid var(--line); background: var(--paper);
}
h1 { font-size: 1.3rem; }
body > section { margin-top: 0; border: 0; }
.document { max-width: 46rem; white-space: pre-wrap; }
.document mark {
  display: block; margin: 0.5rem 0; padding: 0.6rem 0.9rem; scroll-margin-top: 10rem;
  border-left: 0.3rem solid var(--found-ink); background: var(--found); color: inherit;
}
"""
STATUS: dict[type[RefdeskError], HTTPStatus] = {
    NotFoundError: HTTPStatus.NOT_FOUND,
    InvalidRequestError: HTTPStatus.BAD_REQUEST,
    BusyError: HTTPStatus.TOO_MANY_REQUESTS,
}
LATE = "The document took too long to open. Try again later."
FAULT = "The page failed. The operator's log has the reason."
CUT = "The document is longer: the page shows {:,} of its {:,} characters."
CHANGED_FILE: Mapping[Staleness, str] = {
    "changed": "The file has changed since it was read in.",
    "gone": "The file is gone since it was read in.",
}
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PassagePages:
    """Shows passages to principals, within the limits for calls of tools."""

    lazy_desk: LazyDesk
    settings: Settings
    admission: Admission
    measure: call_audit.Measure | None = None
    remote: bool = field(kw_only=True)

    async def show(self, request: Request, principals: Sequence[Principal]) -> HTMLResponse:
        """The page of the passage that the request names, if one of the principals may read it."""
        try:
            with anyio.fail_after(self.settings.limits.request_seconds):
                return _response(await self._page(request, principals))
        except RefdeskError as error:
            status = STATUS.get(type(error), HTTPStatus.SERVICE_UNAVAILABLE)
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                log.warning("A page failed: %s", error)
            return refusal(status, message_for(error, remote=self.remote))
        except TimeoutError:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, LATE)
        except Exception:
            log.exception("a page crashed")
            return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, FAULT)

    async def _page(self, request: Request, principals: Sequence[Principal]) -> str:
        id_, asked = request.path_params["id"], request.query_params.get("around", "")
        around = min(int(asked), MOST_AROUND) if re.fullmatch("[0-9]{1,6}", asked) else AROUND
        client = request.client.host if request.client else None
        for principal in principals:
            with suppress(NotFoundError):
                return await self._page_for(principal, client, id_, around)
        raise NotFoundError(NOT_FOUND)

    async def _page_for(self, principal: Principal, client: str | None, id_: str, around: int) -> str:
        call = call_audit.Call("page", principal, client)
        with call_audit.recorded(call, partial(call_audit.loggable_id, id_), self.measure):
            async with self.admission.slot(principal):
                tools = callable_tools(self.settings.server, principal)
                reader = principal_through_any(principal, tools)
                _, _, seqs = split_citation(id_)
                part = Part(around=around) if seqs else WHOLE
                desk = await self.lazy_desk.desk()
                extract = await desk.extract(reader, id_, max_chars=MOST_CHARS, part=part)
                stale = await desk.stale([extract.source])
            call.ids = (extract.source.id,)
            extract = replace(extract, stale=stale.get(extract.source.id))
            return await to_thread.run_sync(_document_page, extract, seqs, around)


def refusal(status: HTTPStatus, reason: str) -> HTMLResponse:
    """A page that shows nothing of the desk."""
    header = tag("p", "Reference desk", class_="kicker") + tag("h1", status.phrase)
    return _response(page(status.phrase, Html(header + tag("p", reason, class_="lede")), ()), status)


def _response(content: str, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    """A page as a response. Lone surrogates, which UTF-8 can't encode, become question marks."""
    return HTMLResponse(content.encode("utf-8", "replace"), status, HEADERS)


def _document_page(extract: Extract, seqs: range, around: int) -> str:
    source = extract.source
    title = shortened(one_line(source.title), LINE_CHARS) or source.id
    remarks = [*extract.notes, *([CHANGED_FILE[extract.stale]] if extract.stale else [])]
    if len(extract.text) >= MOST_CHARS:
        remarks.append(CUT.format(len(extract.text), source.length))
    header = joined(
        [
            tag("p", "Cited passage" if seqs else "Document", class_="kicker"),
            tag("h1", title),
            tag("p", Html(" · ".join(tag("bdi", fact) for fact in _facts(extract))), class_="lede"),
            *(note(remark) for remark in remarks),
        ]
    )
    return page(title, header, [_text(extract, seqs, around)], style=STYLE)


def _facts(extract: Extract) -> Iterator[str]:
    source = extract.source
    yield source.collection
    if path := source.metadata.get("path"):
        yield shortened(one_line(path), LINE_CHARS)
    if extract.page:
        yield f"page {extract.page}"
    if date := shown_date(source):
        yield date[:10]


def _text(extract: Extract, seqs: range, around: int) -> Html:
    """The text with the cited passage marked, and a link to more of it."""
    text, start = extract.text, extract.start
    cited = _cited(extract, seqs)
    parts = [with_tables(text)]
    if cited:
        before, after = text[: cited.start - start], text[cited.end - start :]
        marked = tag("mark", with_tables(text[cited.start - start : cited.end - start]), id=CITED)
        parts = [with_tables(before), marked, with_tables(after)]
    document = tag("div", *parts, class_="document", dir="auto")
    is_whole = not start and extract.end >= extract.more_until
    if is_whole or not seqs or around >= MOST_AROUND:
        return tag("section", document)
    link = tag("a", "Show more of the document", href=f"?around={max(1, around) * TIMES_MORE}#{CITED}")
    return tag("section", document, tag("p", link))


def _cited(extract: Extract, seqs: range) -> Span | None:
    """The span of the cited passages, or of the present ones in their place; None if they are gone."""
    if extract.standing:
        seqs = range(0) if extract.standing.verdict == "gone" else extract.standing.seqs
    chunks = [chunk for chunk in extract.chunks if chunk.seq in seqs]
    if not chunks:
        return None
    return Span(max(chunks[0].start, extract.start), min(chunks[-1].end, extract.end))


HOST = "127.0.0.1"
MOST_CONNECTIONS = 32  # at once
END_SECONDS = 2  # for running requests when another desk takes over
HEADER_SECONDS = 5  # for a browser to send its headers, and to read an answer
SIGN_IN = (
    "Your browser isn't signed in to this desk, or has been for a week. Run refdesk-admin console --open for "
    "this desk, and open this address again."
)
WRONG_HOST = "Documents are shown at {} only. Open the address that the citation has."


class LocalPages:
    """The pages on the loopback address, for the person whose hosts share a desk.

    They show what any of the `principals` of the hosts may read. The port is the last one, from `port_file`,
    if that is free.
    """

    def __init__(
        self,
        pages: PassagePages,
        settings: Settings,
        principals: Callable[[], Sequence[Principal]],
        port_file: Path,
    ) -> None:
        """Listen.

        Raises:
            OSError: this machine has no free port.
        """
        self._pages = pages
        self._home = settings.home
        self._principals = principals
        self._listener = _listener(port_file)
        self._until_first = anyio.CancelScope()
        self._running: uvicorn.Server | None = None
        self._host = f"{HOST}:{self._listener.getsockname()[1]}"
        self.address = f"http://{self._host}"

    async def serve(self) -> None:
        """Serve until `close`. A fault ends only the pages."""
        with self._listener:
            try:
                with self._until_first:
                    await anyio.wait_readable(self._listener)
                    self._running = await to_thread.run_sync(self._server)
                if self._running and not self._until_first.cancel_called:
                    await self._running.serve([self._listener])
            except Exception:
                log.exception("The pages of citations crashed")

    def close(self) -> None:
        """Free the port at once, for the next desk: it takes another port if this one is still in use."""
        self._until_first.cancel()
        if self._running:
            for server in getattr(self._running, "servers", ()):  # empty before the start
                server.close()
            self._running.should_exit = True

    def _server(self) -> uvicorn.Server:
        import uvicorn  # noqa: PLC0415 most desks never show a page

        from server.http.clients import (  # noqa: PLC0415 the same
            AddressResolver,
            ConnectionLimit,
            SlowClientProtocol,
        )

        class Server(uvicorn.Server):
            def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]  # a signal ends the desk
                return nullcontext()

        refusals = RefusalLog(lambda _status: None)
        limit = ConnectionLimit(MOST_CONNECTIONS, MOST_CONNECTIONS, AddressResolver(()), refusals)
        protocol = type("Protocol", (SlowClientProtocol,), {"seconds": HEADER_SECONDS, "limit": limit})
        app = Starlette(
            routes=[Route(ROUTE, self._reply, methods=["GET"])], exception_handlers={HTTPException: _refused}
        )
        app.router.redirect_slashes = False
        config = uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",  # otherwise any program could fill the log with invalid requests
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=END_SECONDS,
        )
        return Server(config)

    async def _reply(self, request: Request) -> HTMLResponse:
        if request.headers.getlist("host") != [self._host]:  # against DNS rebinding
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, WRONG_HOST.format(self.address))
        cookies, now = request.headers.getlist("cookie"), datetime.now(UTC)
        try:
            signed_in = await to_thread.run_sync(holds_pass, self._home, cookies, now)
        except (RefdeskError, OSError) as error:
            log.warning("No pass can be checked: %s", error)
            signed_in = False  # fail closed
        if not signed_in:
            return refusal(HTTPStatus.UNAUTHORIZED, SIGN_IN)
        return await self._pages.show(request, self._principals())


async def _refused(_request: Request, error: Exception) -> HTMLResponse:
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
    return refusal(HTTPStatus(status), "There is no such page.")


def _listener(port_file: Path) -> socket.socket:
    """A socket at the port in the file, or at another one if that is taken."""
    port = 0
    with suppress(OSError, ValueError):
        port = int(port_file.read_text(encoding="ascii"))
    try:
        listener = socket.create_server((HOST, port))
    except (OSError, OverflowError):
        listener = socket.create_server((HOST, 0))
    else:
        with suppress(OSError):
            port_file.write_text(str(listener.getsockname()[1]), encoding="ascii")
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a page would wait 40 ms
    return listener
