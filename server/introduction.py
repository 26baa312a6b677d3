"""Adds to the instructions what the caller may read, for hosts that are connected over HTTP.

Over stdio, the instructions are the first thing that a host asks for, and it must not wait for the engine
(`server.lazy_desk`). So there they never have this: the description of the search tool does, which hosts ask
for next. Over HTTP the engine is open before the first host comes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from rag.errors import BusyError
from server import tools
from server.published import callable_tools, through_any

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from rag.config.published import ServerSettings
    from rag.corpus import Principal
    from server.admission import Admission
    from server.lazy_desk import LazyDesk

INTRODUCING = frozenset({"initialize", "server/discover"})

log = logging.getLogger(__name__)


class Introduction:
    """Middleware that completes the instructions in what the server says of itself."""

    def __init__(
        self,
        lazy_desk: LazyDesk,
        server: ServerSettings,
        admission: Admission,
        principal_of: Callable[[Any], Principal],
    ) -> None:
        self._lazy_desk = lazy_desk
        self._server = server
        self._admission = admission
        self._principal_of = principal_of

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of the chain and complete its result."""
        result = await call_next(ctx)
        if ctx.method not in INTRODUCING or not isinstance(result, dict):
            return result
        principal = self._principal_of(ctx)
        called = callable_tools(self._server, principal)
        try:
            async with self._admission.slot(principal):  # greetings have no limit, but counting costs
                overview = await self._lazy_desk.overview(through_any(principal, called))
        except BusyError:
            log.info("The server is too busy to say in its instructions what it holds.")
            return result
        return result | {"instructions": tools.instructions(self._server, called, overview)}
