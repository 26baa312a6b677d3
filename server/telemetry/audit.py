"""What became of each call: a line for the audit, a span and a measurement, whatever happened.

None of them holds what a caller or a document wrote: methods and tools are named if we know them, ids that
were asked for if they have the form of one, and the rest is ids, counts and times.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

import anyio
from mcp import MCPError, types
from opentelemetry import propagate, trace
from pydantic import ValidationError

from rag.errors import AccessError, BusyError, InvalidRequestError, NotFoundError, RefdeskError
from rag.uris import SCHEME
from server.telemetry.logs import Trail, trail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from opentelemetry.context import Context

    from rag.answers import Stage
    from rag.corpus import Principal

Outcome = Literal["answered", "invalid", "not found", "denied", "busy", "late", "cancelled", "failed"]
METHODS = frozenset(
    {
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "prompts/list",
        "prompts/get",
        "completion/complete",
    }
)
OPENING = frozenset({"get_source", "fetch"})
TOOLS = OPENING | {"search"}
OUTCOMES: dict[type[Exception], Outcome] = {
    NotFoundError: "not found",
    InvalidRequestError: "invalid",
    ValidationError: "invalid",
    AccessError: "denied",
    BusyError: "busy",
    TimeoutError: "late",
}
ASKED = re.compile(rf"(?:{SCHEME}[a-z0-9_-]+/)?([a-z2-7]{{16}}(?:/[0-9]{{1,9}})?)")
"""An id, or a URI that ends in one; a collection's name in it could be any word."""
OTHER = "other"  # a method or tool that there is not

audit = logging.getLogger("refdesk.audit")
_tracer = trace.get_tracer("refdesk")


@dataclass(slots=True)
class Call:
    """A request while it is being answered; who answers it adds what only they know.

    `asked` is the id that was asked for and not found; `why`, in words of ours, says why there is no answer.
    """

    name: str
    principal: Principal | None = None
    client: str | None = None
    outcome: Outcome = "answered"
    why: str | None = None
    ids: tuple[str, ...] = ()
    asked: str | None = None
    stages: tuple[Stage, ...] = ()
    seconds: float = 0.0


Measure: TypeAlias = "Callable[[Call], None]"
_current: ContextVar[Call | None] = ContextVar("call", default=None)


def current() -> Call:
    """The call that is being answered; where there is none, one that nobody reads."""
    return _current.get() or Call(OTHER)


class Recorder:
    """Middleware: lets every call leave its line, its span and its measurement."""

    def __init__(self, principal_of: Callable[[Any], Principal], measure: Measure | None) -> None:
        self._principal_of = principal_of
        self._measure = measure

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of the chain."""
        if ctx.request_id is None:  # a notification
            return await call_next(ctx)
        call = Call(_name(ctx), client=_client(ctx))
        with _followed(), _spanned(ctx, call), self._recorded(ctx, call):
            call.principal = self._principal_of(ctx)
            result = await call_next(ctx)
            call.ids = _ids(ctx, result)
            return result

    @contextmanager
    def _recorded(self, ctx: ServerRequestContext[Any, Any], call: Call) -> Iterator[None]:
        began, token = time.perf_counter(), _current.set(call)
        try:
            yield
        except BaseException as error:
            _ended(call, error)
            raise
        finally:
            _current.reset(token)
            call.seconds = time.perf_counter() - began
            call.asked = _asked(ctx) if call.outcome == "not found" else None
            audit.info("call", extra={"fields": _line(call)})
            if self._measure:
                self._measure(call)


def outcome_of(error: BaseException) -> Outcome:
    """What an error means to who asked."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "cancelled"
    if isinstance(error, MCPError):
        return "failed" if error.error.code == types.INTERNAL_ERROR else "invalid"
    return next((outcome for kind, outcome in OUTCOMES.items() if isinstance(error, kind)), "failed")


def failed(error: RefdeskError) -> None:
    """Record that a tool answers with an error in words."""
    _ended(current(), error)


def _ended(call: Call, error: BaseException) -> None:
    """What became of a call, and why: of errors whose words may be the caller's, only what kind they are."""
    call.outcome = outcome_of(error)
    call.why = str(error) if isinstance(error, AccessError | BusyError) else type(error).__name__


def _name(ctx: ServerRequestContext[Any, Any]) -> str:
    if ctx.method != "tools/call":
        return ctx.method if ctx.method in METHODS else OTHER
    tool = (ctx.params or {}).get("name")
    return tool if isinstance(tool, str) and tool in TOOLS else OTHER


def _ids(ctx: ServerRequestContext[Any, Any], result: HandlerResult) -> tuple[str, ...]:
    """The ids of what is handed out: chunks of a search, a source, the resources that were read."""
    reply: Mapping[str, Any] = result if isinstance(result, dict) else {}
    if ctx.method == "resources/read":
        return tuple(str(one["uri"]) for one in reply.get("contents", ()))
    if ctx.method == "resources/list":
        return tuple(str(one["uri"]) for one in reply.get("resources", ()))
    content = reply.get("structuredContent") or {}
    handed_out = content.get("results", [content])
    return tuple(str(one["id"]) for one in handed_out if "id" in one)


def _client(ctx: ServerRequestContext[Any, Any]) -> str | None:
    """The address that a request comes from; on standard input there is none."""
    address = ctx.request.client if ctx.request is not None else None
    return address.host if address else None


def _asked(ctx: ServerRequestContext[Any, Any]) -> str | None:
    """The id that was asked for, if it could be one: all else is a caller's words."""
    params = ctx.params or {}
    if ctx.method == "resources/read":
        named = params["uri"]
    elif _name(ctx) in OPENING:
        named = params["arguments"]["id"]
    else:
        return None
    match = ASKED.fullmatch(named)
    return match[1] if match else None


def _line(call: Call) -> dict[str, Any]:
    who, followed = call.principal, trail.get()
    return {
        "call": call.name,
        "outcome": call.outcome,
        "why": call.why,
        "client": call.client,
        **(followed.who if followed else {}),
        "tenant": who.tenant if who else None,
        "user": who.user if who else None,
        "groups": sorted(who.groups) if who else None,
        "asked": call.asked,
        "ids": list(call.ids),
        "milliseconds": round(1000 * call.seconds, 1),
    }


@contextmanager
def _followed() -> Iterator[None]:
    """Under the name that the transport gave the request, or one of its own."""
    followed = trail.get()
    if followed:
        followed.recorded = True
        yield
        return
    token = trail.set(Trail(uuid4().hex, recorded=True))
    try:
        yield
    finally:
        trail.reset(token)


@contextmanager
def _spanned(ctx: ServerRequestContext[Any, Any], call: Call) -> Iterator[None]:
    """In a span whose parent is the caller's, as named in `_meta` or in the HTTP headers."""
    with _tracer.start_as_current_span(
        call.name,
        context=_parent(ctx),
        kind=trace.SpanKind.SERVER,
        attributes={"mcp.method.name": ctx.method if ctx.method in METHODS else OTHER},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        finally:
            span.set_attribute("refdesk.outcome", call.outcome)
            span.set_attribute("refdesk.returned", len(call.ids))
            if call.outcome != "answered":
                span.set_status(trace.StatusCode.ERROR)


def _parent(ctx: ServerRequestContext[Any, Any]) -> Context | None:
    headers = ctx.request.headers if ctx.request is not None else {}
    for carrier in (ctx.meta or {}, headers):
        if "traceparent" in carrier:
            return propagate.extract(carrier)
    return None
