"""What every request passes: the one place where errors become the protocol's, and a slot with a deadline."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
from mcp import MCPError, types
from pydantic import ValidationError

from rag.errors import AccessError, BusyError, InvalidRequestError, NotFoundError, RefdeskError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from rag.config.settings import LimitSettings
    from rag.corpus import Principal
    from server.admission import Admission
    from server.lazy_desk import OpeningDesk

log = logging.getLogger(__name__)

BUSY = -32000  # JSON-RPC leaves these numbers to servers
FREE = frozenset({"initialize", "ping", "server/discover"})
"""What costs nothing and must be answered to a host however busy the desk is."""


class Worded:
    """Middleware: no exception leaves but as an error in our own words."""

    def __init__(self, opening: OpeningDesk, limits: LimitSettings) -> None:
        self._opening = opening
        self._seconds = limits.request_seconds

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of the chain."""
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
            log.warning("%s failed: %s", ctx.method, type(error).__name__)
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None
        except TimeoutError:
            log.warning("%s took over %g s", ctx.method, self._seconds)
            message = f"The request took over {self._seconds:g} s and was ended. Ask for less at once."
            raise MCPError(types.INTERNAL_ERROR, message) from None
        except (MCPError, ValidationError):  # the SDK words these itself, without the values
            raise
        except Exception:
            log.exception("%s crashed", ctx.method)
            raise MCPError(types.INTERNAL_ERROR, "Internal server error") from None
        finally:
            self._opening.answered.set()


class Guard:
    """Middleware: no request without a slot and an end."""

    def __init__(
        self, admission: Admission, limits: LimitSettings, principal_of: Callable[[Any], Principal]
    ) -> None:
        self._admission = admission
        self._seconds = limits.request_seconds
        self._principal_of = principal_of

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of the chain."""
        with anyio.fail_after(self._seconds):
            async with self._slot(ctx):
                return await call_next(ctx)

    @asynccontextmanager
    async def _slot(self, ctx: ServerRequestContext[Any, Any]) -> AsyncIterator[None]:
        if ctx.method in FREE or ctx.method.startswith("notifications/"):
            yield
            return
        async with self._admission.slot(self._principal_of(ctx)):
            yield
