"""OpenTelemetry spans: one for each call, exported if the operator has a collector."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import propagate, trace

from rag.errors import ConfigurationError
from rag.installation import install_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp.server.context import ServerRequestContext
    from opentelemetry.context import Context

    from server.telemetry.audit import Call

FLUSH_MILLISECONDS = 1000  # hosts kill a server that takes longer to exit

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
        raise ConfigurationError(
            f"server.traces = true needs packages that are not installed: {install_command('otel')}"
        ) from error
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush() -> None:
    """Send the spans that are waiting, if spans are exported."""
    if force_flush := getattr(trace.get_tracer_provider(), "force_flush", None):
        force_flush(FLUSH_MILLISECONDS)


@contextmanager
def call_span(ctx: ServerRequestContext[Any, Any], call: Call, method: str) -> Iterator[None]:
    """A span around a call. Its parent is the caller's span, named in `_meta` or in the HTTP headers."""
    with _tracer.start_as_current_span(
        call.name,
        context=_parent(ctx),
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


def _parent(ctx: ServerRequestContext[Any, Any]) -> Context | None:
    headers = ctx.request.headers if ctx.request is not None else {}
    for carrier in (ctx.meta or {}, headers):
        if "traceparent" in carrier:
            return propagate.extract(carrier)
    return None
