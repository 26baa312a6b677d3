"""Middleware around every request: translates errors (the only place that does), holds a slot and a deadline.

`Introduction` adds an overview of readable collections to the instructions, for hosts over HTTP. Over stdio,
the instructions are the first thing that a host asks for, and it must not wait for the engine
(`server.lazy_desk`). There the description of the search tool has the overview, which hosts ask for next.
Over HTTP the engine is open before the first host connects.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp import MCPError, types
from pydantic import ValidationError

from rag.config.server_settings import LimitSettings, ServerSettings
from rag.corpus import Principal
from rag.errors import AccessError, BusyError, InvalidRequestError, NotFoundError, RefdeskError
from server import tools
from server.telemetry.logs import current_request
from server.tools import callable_tools, principal_through_any

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from server.admission import Admission
    from server.lazy_desk import LazyDesk

log = logging.getLogger(__name__)

BUSY = -32000  # JSON-RPC reserves -32000 to -32099 for servers
UNLIMITED = frozenset({"initialize", "ping", "server/discover"})
"""Methods that cost nothing and must be answered however busy the server is."""


def message_for(error: RefdeskError, *, remote: bool) -> str:
    """The message of an error for the caller.

    A remote caller learns what it can do, and the request id under which the operator's log has the reason. A
    local caller is the operator, or a person at the same machine, and gets the full message.
    """
    if not remote or error.for_caller == str(error):
        return str(error)
    request = current_request.get()
    id_ = request.id if request else "unknown"
    return f"{error.for_caller} The operator's log has the reason under request {id_}."


class ErrorBoundary:
    """Middleware that turns every exception into a protocol error with a safe message."""

    def __init__(self, lazy_desk: LazyDesk, limits: LimitSettings, *, remote: bool) -> None:
        self._lazy_desk = lazy_desk
        self._remote = remote
        self._seconds = limits.request_seconds

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of the chain and translate what it raises."""
        # From the errors that a caller can act on to those that only the operator can: the latter are logged,
        # because their reason must not leave the server.
        try:
            return await call_next(ctx)
        except NotFoundError as error:
            uri = (ctx.params or {}).get("uri")
            raise MCPError(types.INVALID_PARAMS, str(error), None if uri is None else {"uri": uri}) from None
        except InvalidRequestError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        except AccessError as error:
            raise MCPError(types.INVALID_REQUEST, str(error)) from None
        except BusyError as error:
            raise MCPError(BUSY, str(error), {"retryAfterMs": 1000 * error.retry_seconds}) from None
        except RefdeskError as error:
            log.warning("%s failed: %s", ctx.method, error)
            raise MCPError(types.INTERNAL_ERROR, message_for(error, remote=self._remote)) from None
        except TimeoutError:
            log.warning("%s took over %g s", ctx.method, self._seconds)
            message = (
                f"The request was cancelled after {self._seconds:g} s. Ask for less at once, or again later."
            )
            raise MCPError(types.INTERNAL_ERROR, message) from None
        except (MCPError, ValidationError):  # the SDK words these itself, without the caller's values
            raise
        except Exception:
            log.exception("%s crashed", ctx.method)
            raise MCPError(types.INTERNAL_ERROR, "Internal server error") from None
        finally:
            self._lazy_desk.first_reply.set()  # the desk opens only now: see `lazy_desk`


class RequestLimits:
    """Middleware that waits for a slot and cancels a request after `request_seconds`, waiting included.

    Clients cancel in two ways. On a connection that lasts (stdio, HTTP+SSE) they send
    `notifications/cancelled`, and the SDK cancels the handler. Over streamable HTTP each request stands
    alone, in both protocol eras: closing its connection cancels it (`CancelOnDisconnect`). Either way the
    cancellation unwinds through `Admission.slot`, which releases the slot.
    """

    def __init__(
        self, admission: Admission, limits: LimitSettings, principal_of: Callable[[Any], Principal]
    ) -> None:
        self._admission = admission
        self._seconds = limits.request_seconds
        self._principal_of = principal_of

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of the chain in a slot and before the deadline."""
        # The deadline is outside of the slot, so that waiting counts: the client's own timeout runs
        # meanwhile.
        with anyio.fail_after(self._seconds):
            async with self._slot(ctx):
                return await call_next(ctx)

    @asynccontextmanager
    async def _slot(self, ctx: ServerRequestContext[Any, Any]) -> AsyncIterator[None]:
        if ctx.method in UNLIMITED or ctx.method.startswith("notifications/"):
            yield
            return
        async with self._admission.slot(self._principal_of(ctx)):
            yield


INTRODUCING = frozenset({"initialize", "server/discover"})


class Introduction:
    """Middleware that adds the overview to the instructions of a greeting."""

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
            async with self._admission.slot(principal):  # greetings need no slot, but counting documents does
                overview = await self._lazy_desk.overview(principal_through_any(principal, called))
        except BusyError:
            log.info("The server is too busy to say in its instructions what it holds.")
            return result
        return result | {"instructions": tools.instructions(self._server, called, overview)}
