"""The log, and in it the audit: one line, one span and one measurement for every call, whatever its outcome.

The log has one JSON object per line on standard error, each with the id of the request that caused it. Above
level debug, no line quotes a caller or a document: long messages are cut, and only the type and the stack
frames of an exception are logged. The audit names methods and tools if they exist, and requested ids if they
look like ids; everything else is ids of results, counts and times.

Spans are exported if the operator has a collector. Requests that were refused before they became calls are
logged and counted by `RefusalLog`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import uuid4

import anyio
from mcp import MCPError, types
from opentelemetry import propagate, trace
from pydantic import ValidationError

from rag import errors
from rag.answers import Step
from rag.config.server_settings import ServerSettings, opener_names, search_names
from rag.corpus import Principal
from rag.runtime import extra_needed
from rag.search.tool_arguments import decode_json
from rag.uris import REVISION_PATTERN, SCHEME
from server.host_log import HostLog

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
    from opentelemetry.context import Context


MAX_MESSAGE_CHARS = 512
MAX_FRAMES = 12  # of an exception, the innermost ones


@dataclass(slots=True)
class RequestInfo:
    """The id of a request in the log, and what the audit adds to its line.

    `audited` is whether a call has written its line. `caller` identifies who sent the request, and `reason`
    says why it was refused, in our own words.
    """

    id: str
    audited: bool = False
    caller: Mapping[str, object] = field(default_factory=dict)
    reason: str | None = None


current_request: ContextVar[RequestInfo | None] = ContextVar("request", default=None)


def note_caller(caller: Mapping[str, object]) -> None:
    """Have the audit name who sent this request."""
    if request := current_request.get():
        request.caller = caller


def note_refusal(reason: str) -> None:
    """Have the audit say why this request was refused. The first reason counts."""
    if (request := current_request.get()) and not request.reason:
        request.reason = reason


def refusal_fields() -> dict[str, object]:
    """The caller, if known, and the reason, for a request that was refused before it became a call."""
    request = current_request.get()
    return {**request.caller, "why": request.reason} if request else {}


class JsonLines(logging.Formatter):
    """Formats log records as JSON objects. A record's `fields` become further keys."""

    def format(self, record: logging.LogRecord) -> str:
        """The record on one line."""
        request = current_request.get()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "request": request.id if request else None,
            "message": _message(record)[:MAX_MESSAGE_CHARS],
        }
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1]:
            line |= _error_fields(record.exc_info[1])
        return json.dumps({key: value for key, value in line.items() if value is not None})


def _message(record: logging.LogRecord) -> str:
    """The message, without its values if they don't fit: a library's slip must not end what it logs about."""
    try:
        return record.getMessage()
    except (TypeError, ValueError, LookupError):
        return str(record.msg)


def _error_fields(error: BaseException) -> dict[str, Any]:
    """An exception without its message, which may quote a query or a document; with it at level debug."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return {"error": "".join(traceback.format_exception(error))}
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    return {
        "error": type(error).__name__,
        "at": [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames],
    }


class HostHandler(logging.Handler):
    """Logs to a host, which may never read it."""

    def __init__(self) -> None:
        super().__init__()
        self._log = HostLog()

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop it."""
        with suppress(OSError):  # the host is gone
            self._log.write(self.format(record))


def set_up_log(level: str, *, audit: bool, handler: logging.Handler | None = None) -> None:
    """Log from `level` on. With `audit`, always log the audit and the startup messages, and wait for room."""
    handler = handler or (logging.StreamHandler(sys.stderr) if audit else HostHandler())
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    for name in ("refdesk.audit", "refdesk.start") if audit else ():
        logging.getLogger(name).setLevel(logging.INFO)


Outcome = Literal["answered", "invalid", "not found", "denied", "busy", "late", "cancelled", "failed"]
METHODS = frozenset(
    """
    initialize server/discover ping tools/list tools/call resources/list resources/templates/list
    resources/read prompts/list prompts/get skills/list skills/get completion/complete
    """.split()  # noqa: SIM905 as a list, it would be three times as long
)
OUTCOMES: dict[type[Exception], Outcome] = {
    errors.NotFoundError: "not found",
    errors.InvalidRequestError: "invalid",
    ValidationError: "invalid",
    errors.AccessError: "denied",
    errors.BusyError: "busy",
    TimeoutError: "late",
}
ID_OR_URI = re.compile(
    rf"(?:{SCHEME}[a-z0-9_-]+/)?([a-z2-7]{{16}})(?:{REVISION_PATTERN})?((?:/[0-9]{{1,9}}(?:-[0-9]{{1,9}})?)?)"
)
"""An id, or a URI that ends in one. Only the id is logged: other parts could be any words."""
OTHER = "other"  # a method or tool that does not exist

audit_log = logging.getLogger("refdesk.audit")


@dataclass(slots=True)
class Call:
    """A request while it is being answered; handlers fill in the fields.

    `ids` are the returned ids, `missing_id` is a requested id that was not found. `why` says, in our own
    words, why there is no answer. `degraded` names the parts of a search that failed.
    """

    name: str
    principal: Principal | None = None
    client: str | None = None
    outcome: Outcome = "answered"
    why: str | None = None
    ids: tuple[str, ...] = ()
    missing_id: str | None = None
    steps: tuple[Step, ...] = ()
    degraded: tuple[str, ...] = ()
    seconds: float = 0.0


Measure: TypeAlias = "Callable[[Call], None]"
_current_call: ContextVar[Call | None] = ContextVar("call", default=None)


def current_call() -> Call:
    """The call that is being answered; otherwise a dummy, which is not recorded."""
    return _current_call.get() or Call(OTHER)


class CallRecorder:
    """Middleware that writes every call's audit line, span and measurement."""

    def __init__(
        self, principal_of: Callable[[Any], Principal], measure: Measure | None, server: ServerSettings
    ) -> None:
        self._principal_of = principal_of
        self._measure = measure
        self._openers = opener_names(server)
        self._tools = self._openers | search_names(server)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Run the rest of the chain and record how it ended."""
        if ctx.request_id is None:  # a notification
            return await call_next(ctx)
        call = Call(self._name(ctx), client=_client(ctx))
        record = recorded(call, partial(self._requested_id, ctx), self._measure)
        with record, call_span(ctx, call, _method(ctx)):
            # In here, because it raises for a request without credentials, which is recorded, too.
            call.principal = self._principal_of(ctx)
            result = await call_next(ctx)
            call.ids = _returned_ids(ctx, result)
            return result

    def _name(self, ctx: ServerRequestContext[Any, Any]) -> str:
        if ctx.method != "tools/call":
            return _method(ctx)
        tool = (ctx.params or {}).get("name")
        return tool if isinstance(tool, str) and tool in self._tools else OTHER

    def _requested_id(self, ctx: ServerRequestContext[Any, Any]) -> str | None:
        """The requested id, if it looks like one. Anything else could be a caller's words."""
        params = ctx.params or {}
        if ctx.method == "resources/read":
            return loggable_id(params["uri"])
        if self._name(ctx) in self._openers:
            arguments = decode_json(params.get("arguments"))  # in here they are still as the host sent them
            return loggable_id(arguments.get("id")) if isinstance(arguments, dict) else None
        return None


def loggable_id(requested: object) -> str | None:
    """The requested id without its revision; None if it doesn't look like an id."""
    match = ID_OR_URI.fullmatch(requested) if isinstance(requested, str) else None
    return match[1] + match[3] if match else None


@contextmanager
def recorded(
    call: Call, requested_id: Callable[[], str | None], measure: Measure | None = None
) -> Iterator[None]:
    """Write the audit line and the measurement of a call when it ends, also by an exception."""
    with _request_info():
        started, token = time.perf_counter(), _current_call.set(call)
        try:
            yield
        except BaseException as error:  # a cancelled call is recorded, too
            _set_outcome(call, error)
            raise
        finally:
            _current_call.reset(token)
            call.seconds = time.perf_counter() - started
            call.missing_id = requested_id() if call.outcome == "not found" else None
            audit_log.info("call", extra={"fields": _line(call)})
            if measure:
                measure(call)


def outcome_of(error: BaseException) -> Outcome:
    """The outcome, for the caller, of a call that raised `error`."""
    if isinstance(error, anyio.get_cancelled_exc_class()):
        return "cancelled"
    if isinstance(error, MCPError):
        return "failed" if error.error.code == types.INTERNAL_ERROR else "invalid"
    return next((outcome for kind, outcome in OUTCOMES.items() if isinstance(error, kind)), "failed")


def record_failure(error: errors.RefdeskError) -> None:
    """Record that the current call is answered with a tool error, which is not raised."""
    _set_outcome(current_call(), error)


def _set_outcome(call: Call, error: BaseException) -> None:
    """Set the outcome and the reason. Of errors that may quote the caller, only the type is kept."""
    call.outcome = outcome_of(error)
    call.why = (
        str(error) if isinstance(error, errors.AccessError | errors.BusyError) else type(error).__name__
    )


def _method(ctx: ServerRequestContext[Any, Any]) -> str:
    return ctx.method if ctx.method in METHODS else OTHER


def _returned_ids(ctx: ServerRequestContext[Any, Any], result: HandlerResult) -> tuple[str, ...]:
    """The ids in a reply: the chunks of a search, a source, those in a folder, or the resources read."""
    reply: Mapping[str, Any] = result if isinstance(result, dict) else {}
    if ctx.method == "resources/read":
        return tuple(str(content["uri"]) for content in reply.get("contents", ()))
    if ctx.method == "resources/list":
        return tuple(str(resource["uri"]) for resource in reply.get("resources", ()))
    content = reply.get("structuredContent") or {}
    results = content.get("results") or content.get("entries") or [content]
    return tuple(str(result["id"]) for result in results if "id" in result)


def _client(ctx: ServerRequestContext[Any, Any]) -> str | None:
    address = ctx.request.client if ctx.request is not None else None
    return address.host if address else None


def _line(call: Call) -> dict[str, Any]:
    principal, request = call.principal, current_request.get()
    return {
        "call": call.name,
        "outcome": call.outcome,
        "why": call.why,
        "client": call.client,
        **(request.caller if request else {}),
        "tenant": principal.tenant if principal else None,
        "user": principal.user if principal else None,
        "groups": sorted(principal.groups) if principal else None,
        "asked": call.missing_id,
        "ids": list(call.ids),
        "degraded": list(call.degraded) or None,
        "milliseconds": round(1000 * call.seconds, 1),
    }


@contextmanager
def _request_info() -> Iterator[None]:
    """Log under the request id that HTTP assigned; over standard input, assign one here."""
    request = current_request.get()
    if request:
        request.audited = True
        yield
        return
    token = current_request.set(RequestInfo(uuid4().hex, audited=True))
    try:
        yield
    finally:
        current_request.reset(token)


SPANS_MILLISECONDS = 1000  # hosts kill a server that takes longer to exit

_tracer = trace.get_tracer("refdesk")


def export_spans() -> None:
    """Export every span from now on, to the collector that the standard OTEL_ variables name.

    Raises:
        ConfigurationError: the exporter is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 of the extra otel
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 the same
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 the same
    except ImportError as error:
        raise errors.ConfigurationError(extra_needed("otel", "server.traces = true")) from error
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush_spans() -> None:
    """Send pending spans, if spans are exported."""
    if force_flush := getattr(trace.get_tracer_provider(), "force_flush", None):
        force_flush(SPANS_MILLISECONDS)


@contextmanager
def call_span(ctx: ServerRequestContext[Any, Any], call: Call, method: str) -> Iterator[None]:
    """A span around a call. Its parent is the caller's span, named in `_meta` or in the HTTP headers."""
    with _tracer.start_as_current_span(
        call.name,
        context=_parent_span(ctx),
        kind=trace.SpanKind.SERVER,
        attributes={"mcp.method.name": method},
        record_exception=False,  # its message may quote the caller
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        finally:
            span.set_attribute("refdesk.outcome", call.outcome)
            span.set_attribute("refdesk.returned", len(call.ids))
            if call.outcome != "answered":
                span.set_status(trace.StatusCode.ERROR)


def _parent_span(ctx: ServerRequestContext[Any, Any]) -> Context | None:
    headers = ctx.request.headers if ctx.request is not None else {}
    # A caller may write any JSON there, and the library takes texts only: a trace must not end a call.
    meta = {name: value for name, value in (ctx.meta or {}).items() if isinstance(value, str)}
    for carrier in (meta, headers):
        if "traceparent" in carrier:
            return propagate.extract(carrier)
    return None


REFUSALS_SECONDS = 1.0
MAX_REFUSAL_KINDS = 20  # per second; further kinds are counted together
OTHER_CLIENTS = "others"
RefusalKind: TypeAlias = "tuple[int, str, str]"
"""Status, client address, and the caller and reason as JSON."""


class RefusalLog:
    """Logs the first refusal of a kind at once, and then the number of further ones once a second.

    Otherwise a flood of requests would become a flood of log lines.
    """

    def __init__(self, count: Callable[[int], None]) -> None:
        self._count = count
        self._unlogged: dict[RefusalKind, int] = {}

    def record(self, status: int, address: str, fields: Mapping[str, object]) -> None:
        """Log or count a refusal; `fields` are those of `refusal_fields`."""
        self._count(status)
        kind: RefusalKind = (status, address, json.dumps(fields))
        if kind not in self._unlogged and len(self._unlogged) >= MAX_REFUSAL_KINDS:
            kind = (status, OTHER_CLIENTS, "{}")
        if kind in self._unlogged:
            self._unlogged[kind] += 1
        else:
            self._unlogged[kind] = 0
            _log_refusals(*kind, 1)

    async def flush_every_second(self) -> None:
        """Log what has been counted, once a second until cancelled, and then once more."""
        try:
            while True:
                await anyio.sleep(REFUSALS_SECONDS)
                self._flush()
        finally:
            self._flush()

    def _flush(self) -> None:
        counted = {kind: count for kind, count in self._unlogged.items() if count}
        self._unlogged = dict.fromkeys(counted, 0)
        for kind, count in counted.items():
            _log_refusals(*kind, count)


def _log_refusals(status: int, address: str, fields: str, count: int) -> None:
    line = {"status": status, "client": address, **json.loads(fields), "count": count}
    audit_log.info("refused", extra={"fields": line})
