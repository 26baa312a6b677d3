"""What every request passes: the one place where errors become the protocol's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mcp import MCPError, types
from pydantic import ValidationError

from rag.errors import InvalidRequestError, NotFoundError, RefdeskError

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

    from server.opening import OpeningDesk

log = logging.getLogger(__name__)


class Guard:
    """Middleware: no exception leaves but as a protocol error with a text that is ours."""

    def __init__(self, opening: OpeningDesk) -> None:
        self._opening = opening

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of the chain."""
        try:
            return await call_next(ctx)
        except NotFoundError as error:
            uri = (ctx.params or {}).get("uri")
            raise MCPError(types.INVALID_PARAMS, str(error), None if uri is None else {"uri": uri}) from None
        except InvalidRequestError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        except RefdeskError as error:
            log.warning("%s failed: %s", ctx.method, type(error).__name__)
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None
        except (MCPError, ValidationError):  # the SDK words these itself, without the values
            raise
        except Exception:
            log.exception("%s crashed", ctx.method)
            raise MCPError(types.INTERNAL_ERROR, "Internal server error") from None
        finally:
            self._opening.answered.set()
