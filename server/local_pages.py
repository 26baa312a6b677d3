"""The pages of passages on the loopback address, for the person whose hosts share a desk."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from rag.access.keys import holds_pass
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.errors import RefdeskError
from server.passage_pages import ROUTE, PassagePages, refusal
from server.telemetry.call_audit import RefusalLog

if TYPE_CHECKING:
    import uvicorn
    from starlette.requests import Request
    from starlette.responses import HTMLResponse


HOST = "127.0.0.1"
MOST_CONNECTIONS = 32  # at once
END_SECONDS = 2  # for requests that run when another desk takes over
HEADER_SECONDS = 5  # in which a browser must say what it asks for, and read what is answered
SIGN_IN = (
    "Your browser isn't signed in to this desk, or has been for a week. Run refdesk-admin console --open for "
    "this desk, and open this address again."
)
WRONG_HOST = "Documents are shown at {} only. Open the address that the citation has."
log = logging.getLogger(__name__)


class LocalPages:
    """Shows what any of the `principals` may read, who are those on whose behalf hosts ask.

    The address is that of the last time if its port, which `port_file` has, is free.
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
        """Serve until `close`; then nobody listens at the port. A fault ends the pages alone."""
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
        """Let another process have the port, at once: it takes another one if this is still in use."""
        self._until_first.cancel()
        if self._running:
            for server in getattr(self._running, "servers", ()):  # there are none before it has started
                server.close()
            self._running.should_exit = True

    def _server(self) -> uvicorn.Server:
        import uvicorn  # noqa: PLC0415 most desks never show a page

        from server.http.callers import AddressResolver  # noqa: PLC0415 the same
        from server.http.client_limits import ConnectionLimit, SlowClientProtocol  # noqa: PLC0415 the same

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


async def _refused(_request: Request, error: Exception) -> HTMLResponse:
    status = error.status_code if isinstance(error, HTTPException) else HTTPStatus.NOT_FOUND
    return refusal(HTTPStatus(status), "There is no such page.")


def _listener(port_file: Path) -> socket.socket:
    """A socket at the port in the file if that is free, or else at another one."""
    port = 0
    with suppress(OSError, ValueError):
        port = int(port_file.read_text(encoding="ascii"))
    try:
        listener = socket.create_server((HOST, port))
    except (OSError, OverflowError):
        return _without_delay(socket.create_server((HOST, 0)))
    with suppress(OSError):
        port_file.write_text(str(listener.getsockname()[1]), encoding="ascii")
    return _without_delay(listener)


def _without_delay(listener: socket.socket) -> socket.socket:
    """A listener whose connections send small replies at once. Otherwise a page would wait 40 ms."""
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
