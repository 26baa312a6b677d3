"""Spans to an OpenTelemetry collector, for operators who have one."""

from __future__ import annotations

from opentelemetry import trace

from rag.errors import ConfigurationError

FLUSH_MILLISECONDS = 1000  # hosts kill a server that takes longer to leave


def export_spans() -> None:
    """Send every span from now on, to where the standard variables say.

    Raises:
        ConfigurationError: the packages for that are not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 of the extra otel
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 the same
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 the same
    except ImportError as error:
        raise ConfigurationError(
            "server.traces = true needs packages that are not installed: pip install 'refdesk[otel]'."
        ) from error
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)


def flush() -> None:
    """Send the spans that wait to be sent, if spans are sent at all."""
    if send := getattr(trace.get_tracer_provider(), "force_flush", None):
        send(FLUSH_MILLISECONDS)
