"""The page that a citation opens: a passage, marked, in its document, as the person may read it.

The `url` of a hit leads here if its document has none on the web. The page needs a sign-in: over HTTP that of
the identity provider (`server.http.page_signin`), beside a shared desk that of the console (`LocalPages`). It
is one self-contained file without scripts, and it escapes whatever a document says.
"""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from rag.access.page_pass import holds_pass
from rag.answers import WHOLE, Extract, Part
from rag.corpus import Principal
from rag.errors import BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.report.text_and_html import Html, joined, note, one_line, page, shortened, tag, with_tables
from rag.search.agents import open_document
from rag.search.reply.reply_parts import shown_date
from rag.text.segments import Span
from rag.uris import CITED, NOT_FOUND, PASSAGE_PAGES, split_citation
from server.handlers import message_for
from server.telemetry import call_audit
from server.tools import callable_tools, principal_through_any

if TYPE_CHECKING:
    from starlette.requests import Request

    from rag.config.settings import Settings
    from server.admission import Admission
    from server.lazy_desk import LazyDesk

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
AROUND, WIDER, MOST_AROUND = 2, 5, 1250  # passages around the cited one, and by how much a link shows more
MOST_CHARS = 400_000  # of a document on a page
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
CHANGED_FILE = {
    "changed": "The file has changed since it was read in.",
    "missing": "The file is gone since it was read in.",
}
log = logging.getLogger(__name__)


class PassagePages:
    """Shows passages to principals, within the limits that hold for calls of tools."""

    def __init__(
        self,
        lazy_desk: LazyDesk,
        settings: Settings,
        admission: Admission,
        measure: call_audit.Measure | None = None,
        *,
        remote: bool,
    ) -> None:
        self._lazy_desk = lazy_desk
        self._settings = settings
        self._admission = admission
        self._measure = measure
        self._remote = remote

    async def show(self, request: Request, principals: Sequence[Principal]) -> HTMLResponse:
        """The page of the passage that the request names, if one of the principals may read it."""
        id_, around = request.path_params["id"], _around(request.query_params.get("around", ""))
        try:
            with anyio.fail_after(self._settings.limits.request_seconds):
                for principal in principals:
                    with suppress(NotFoundError):
                        return _response(await self._page(request, principal, id_, around))
            raise NotFoundError(NOT_FOUND)
        except RefdeskError as error:
            status = STATUS.get(type(error), HTTPStatus.SERVICE_UNAVAILABLE)
            if status == HTTPStatus.SERVICE_UNAVAILABLE:
                log.warning("A page failed: %s", error)
            return refusal(status, message_for(error, remote=self._remote))
        except TimeoutError:
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, LATE)

    async def _page(self, request: Request, principal: Principal, id_: str, around: int) -> str:
        call = call_audit.Call("page", principal, request.client.host if request.client else None)
        with call_audit.recorded(call, partial(call_audit.loggable_id, id_), self._measure):
            async with self._admission.slot(principal):
                tools = callable_tools(self._settings.server, principal)
                reader = principal_through_any(principal, tools)
                _, _, seqs = split_citation(id_)
                part = Part(around=around) if seqs else WHOLE
                desk = await self._lazy_desk.desk()
                extract = await open_document(desk, reader, id_, MOST_CHARS, part)
            call.ids = (extract.source.id,)
            return await to_thread.run_sync(_document_page, extract, seqs, around)


def refusal(status: HTTPStatus, reason: str) -> HTMLResponse:
    """A page that shows nothing of the desk."""
    header = tag("p", "Reference desk", class_="kicker") + tag("h1", status.phrase)
    return _response(page(status.phrase, Html(header + tag("p", reason, class_="lede")), ()), status)


def _response(content: str, status: HTTPStatus = HTTPStatus.OK) -> HTMLResponse:
    """A page as a response. Lone surrogates, which UTF-8 can't encode, become question marks."""
    return HTMLResponse(content.encode("utf-8", "replace"), status, HEADERS)


def _around(text: str) -> int:
    """How many passages to show before and after the cited one."""
    return min(int(text), MOST_AROUND) if re.fullmatch("[0-9]{1,6}", text) else AROUND


def _document_page(extract: Extract, seqs: range, around: int) -> str:
    source = extract.source
    title = shortened(one_line(source.title), LINE_CHARS) or source.id
    remarks = [*extract.notes, *([CHANGED_FILE[extract.stale]] if extract.stale in CHANGED_FILE else [])]
    header = joined(
        [
            tag("p", "Cited passage" if seqs else "Document", class_="kicker"),
            tag("h1", title),
            tag("p", " · ".join(_facts(extract)), class_="lede"),
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
    is_whole = not start and extract.end >= extract.source.length
    if is_whole or not seqs or around >= MOST_AROUND:
        return tag("section", document)
    link = tag("a", "Show more of the document", href=f"?around={around * WIDER}#{CITED}")
    return tag("section", document, tag("p", link))


def _cited(extract: Extract, seqs: range) -> Span | None:
    """The span of the cited passages, or of those in their place now; None if they are gone."""
    if extract.standing:
        seqs = range(0) if extract.standing.verdict == "gone" else extract.standing.seqs
    chunks = [chunk for chunk in extract.chunks if chunk.seq in seqs]
    if not chunks:
        return None
    return Span(max(chunks[0].start, extract.start), min(chunks[-1].end, extract.end))


LOCAL = "127.0.0.1"
MOST_CONNECTIONS = 32
SIGN_IN = (
    "Your browser isn't signed in to this desk, or has been for a week. Run refdesk-admin console --open for "
    "this desk, and open this address again."
)
WRONG_HOST = "Documents are shown at {} only. Open the address that the citation has."


class LocalPages:
    """Pages on the loopback address, for the person whose hosts share a desk.

    `principals` are those on whose behalf the hosts ask: the person sees what any of them may read. The
    address lasts as long as the port is free, which the file `remembered` has from the last time.
    """

    def __init__(
        self,
        pages: PassagePages,
        settings: Settings,
        principals: Callable[[], Sequence[Principal]],
        remembered: Path,
    ) -> None:
        """Listen.

        Raises:
            OSError: this machine has no free port.
        """
        self._pages = pages
        self._home = settings.home
        self._principals = principals
        self._listener = _listener(remembered)
        self._host = f"{LOCAL}:{self._listener.getsockname()[1]}"
        self.address = f"http://{self._host}"

    async def serve(self) -> None:
        """Serve whoever comes. What that needs is imported for the first. A fault ends the pages alone."""
        try:
            await anyio.wait_readable(self._listener)
            await self._serve()
        except Exception:
            log.exception("The pages of citations crashed")

    async def _serve(self) -> None:
        await to_thread.run_sync(_import_uvicorn)
        import uvicorn  # noqa: PLC0415 most desks never show a page

        class Server(uvicorn.Server):
            def capture_signals(self) -> nullcontext[None]:  # type: ignore[override]  # a signal ends the desk
                return nullcontext()

        app = Starlette(routes=[Route(ROUTE, self._reply, methods=["GET"])])
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
        )
        await Server(config).serve([self._listener])

    async def _reply(self, request: Request) -> HTMLResponse:
        if request.headers.getlist("host") != [self._host]:  # else another site's name could lead here
            return refusal(HTTPStatus.MISDIRECTED_REQUEST, WRONG_HOST.format(self.address))
        cookies, now = request.headers.getlist("cookie"), datetime.now(UTC)
        try:
            signed_in = await to_thread.run_sync(holds_pass, self._home, cookies, now)
        except (RefdeskError, OSError) as error:
            log.warning("No pass can be checked: %s", error)
            signed_in = False
        if not signed_in:
            return refusal(HTTPStatus.UNAUTHORIZED, SIGN_IN)
        return await self._pages.show(request, self._principals())


def _import_uvicorn() -> None:
    import uvicorn.protocols.http.h11_impl  # noqa: F401, PLC0415 as above


def _listener(remembered: Path) -> socket.socket:
    """A socket at the remembered port if it is free, or else at another one.

    Raises:
        OSError: no port is free.
    """
    port = 0
    with suppress(OSError, ValueError):
        port = int(remembered.read_text(encoding="ascii"))
    try:
        listener = socket.create_server((LOCAL, port))
    except (OSError, OverflowError):
        listener = socket.create_server((LOCAL, 0))
    listener.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
    )  # connections inherit it: no page waits 40 ms
    with suppress(OSError):
        remembered.write_text(str(listener.getsockname()[1]), encoding="ascii")
    return listener
