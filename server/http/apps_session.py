"""Gives clients that show MCP Apps the id of a session, by which they say so again in each request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import MutableHeaders

from server.apps import DECLARED, SESSION, SESSION_HEADER

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


class AppsSession:
    """Adds the header to the answer to a greeting that declared the extension. See `server.apps.SESSION`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start" and DECLARED in scope:
                MutableHeaders(scope=message)[SESSION_HEADER] = SESSION
            await send(message)

        await self._app(scope, receive, marked)
