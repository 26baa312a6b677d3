"""Prometheus metrics: calls, their durations and steps, refused requests; and the health probes.

They have a port and threads of their own, so that they answer even while the server is flooded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from rag.access.tenants import home_of, tenants
from rag.config.settings import Settings
from rag.errors import ConfigurationError, StoreError, if_system_refuses
from rag.models.breaker import Breaker
from rag.run_history import IngestionRun, last_runs
from server.admission import Admission
from server.call_audit import Call
from server.lazy_desk import LazyDesk

if TYPE_CHECKING:
    from prometheus_client.core import Metric

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LOOPBACK = "127.0.0.1"
IDLE_SECONDS = 5

log = logging.getLogger(__name__)


class Metrics:
    """The metrics of one server, and of the last ingestion into each collection of the data folder.

    No label has a value that a caller can choose.
    """

    def __init__(self, admission: Admission, lazy_desk: LazyDesk, settings: Settings) -> None:
        self._lazy_desk = lazy_desk
        self.registry = CollectorRegistry()
        self.registry.register(_CurrentState(admission, lazy_desk))
        self.registry.register(LastRuns(settings))
        ProcessCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        histogram = partial(Histogram, buckets=SECONDS, registry=self.registry)
        self._calls = histogram(
            "refdesk_call_seconds",
            "Duration of calls, by tool or method and by outcome.",
            ["call", "outcome"],
        )
        self._steps = histogram("refdesk_step_seconds", "Duration of the steps of searches.", ["step"])
        self._searches = counter(
            "refdesk_searches", "Searches answered, by whether they found anything.", ["found"]
        )
        self._degraded = counter(
            "refdesk_degraded_searches",
            "Searches that lack something because a model failed: the dense list, similarities, a stage.",
            ["lacks"],
        )
        self._failed = counter(
            "refdesk_failed_steps", "Stages that failed; the search went on without them.", ["step"]
        )
        self._tokens = counter("refdesk_model_tokens", "Chat model tokens used by steps.", ["step", "kind"])
        self._cost = counter(
            "refdesk_model_cost", "Cost of these tokens, at the configured prices.", ["step"]
        )
        self._refused = counter(
            "refdesk_refused_requests", "HTTP requests refused before they became calls.", ["status"]
        )

    def measure(self, call: Call) -> None:
        """Count a call."""
        self._calls.labels(call.name, call.outcome).observe(call.seconds)
        for step in call.steps:
            self._steps.labels(step.name).observe(step.seconds)
            if step.status == "failed":
                self._failed.labels(step.name).inc()
            if step.usage:
                self._tokens.labels(step.name, "input").inc(step.usage.input_tokens)
                self._tokens.labels(step.name, "output").inc(step.usage.output_tokens)
                self._cost.labels(step.name).inc(step.usage.cost)
        if call.steps:
            self._searches.labels("something" if call.ids else "nothing").inc()
        for part in call.degraded:
            self._degraded.labels(part).inc()

    def count_refusal(self, status: int) -> None:
        """Count an HTTP request that was refused before it became a call."""
        self._refused.labels(str(status)).inc()

    def listen(self, port: int) -> None:
        """Serve /metrics, /healthz and /readyz, on the loopback address only.

        Raises:
            ConfigurationError: the port is taken.
        """
        problem = f"Cannot bind 127.0.0.1:{port} (http.metrics_port)"
        with if_system_refuses(ConfigurationError, problem, "Set another port, or 0 for no metrics."):
            server = _Listener((LOOPBACK, port), _Handler)
        server.set_app(self._wsgi_app({f"{name}:{port}" for name in (LOOPBACK, "localhost")}))
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _wsgi_app(self, hosts: set[str]) -> WSGIApplication:
        """The routes. Only these Host headers are served, which keeps out web pages (DNS rebinding)."""
        metrics: WSGIApplication = make_wsgi_app(self.registry)

        def app(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            if environ.get("HTTP_HOST") not in hosts:
                return _plain(start, "421 Misdirected Request")
            match environ["PATH_INFO"]:
                case "/metrics":
                    return metrics(environ, _no_store(start))
                case "/healthz":
                    return _plain(start, "200 OK", b"ok")
                case "/readyz" if self._lazy_desk.ready:
                    return _plain(start, "200 OK", b"ready")
                case "/readyz":
                    return _plain(start, "503 Service Unavailable", b"not ready")
            return _plain(start, "404 Not Found")

        return app


def _plain(start: StartResponse, status: str, body: bytes = b"") -> Iterable[bytes]:
    _no_store(start)(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [body or status[4:].encode()]


def _no_store(start: StartResponse) -> StartResponse:
    return lambda status, headers, *more: start(status, [*headers, ("Cache-Control", "no-store")], *more)


class _Listener(ThreadingMixIn, WSGIServer):
    """A thread per connection; none of them keeps the process alive."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without looking up this machine's name, which can take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 socketserver's signature
        """Log it; the standard library would print a traceback."""
        log.exception("A request for metrics crashed")  # noqa: LOG004 called while handling one


class _Handler(WSGIRequestHandler):
    """Waits a few seconds for a request and logs nothing."""

    timeout = IDLE_SECONDS

    def handle(self) -> None:
        """Answer one request. Clients that disconnect or time out get no answer."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the library's signature
        """Log nothing."""


class _CurrentState(Collector):
    """Metrics that other objects keep; they are read at each scrape."""

    def __init__(self, admission: Admission, lazy_desk: LazyDesk) -> None:
        self._admission = admission
        self._lazy_desk = lazy_desk

    def collect(self) -> Iterable[Metric]:
        """The current values."""
        yield GaugeMetricFamily("refdesk_active", "Requests that hold a slot.", self._admission.active)
        yield GaugeMetricFamily(
            "refdesk_ready", "Whether searches can be answered.", float(self._lazy_desk.ready)
        )
        yield CounterMetricFamily(
            "refdesk_rejected", "Requests rejected by admission control.", value=self._admission.rejected
        )
        yield CounterMetricFamily(
            "refdesk_gate_alarms",
            "Sources that the engine let through and the gate held back.",
            value=self._lazy_desk.alarms,
        )
        yield from _endpoint_state(self._lazy_desk.breakers)


class LastRuns(Collector):
    """The last finished ingestion run of each collection, read at each scrape."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def collect(self) -> Iterable[Metric]:
        """The end and outcome of each run, and its files by outcome and by cause of failure."""

        def gauge(name: str, help_: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(name, help_, labels=["tenant", "collection", "origin", *labels])

        ended = gauge(
            "refdesk_ingestion_ended_timestamp_seconds",
            "When the last ingestion run of a collection ended, in seconds since 1970.",
        )
        complete = gauge(
            "refdesk_ingestion_complete", "Whether the last ingestion run of a collection read every file."
        )
        files = gauge("refdesk_ingestion_files", "Files of that run, by outcome.", "outcome")
        failures = gauge("refdesk_ingestion_failures", "Failed files of that run, by cause.", "cause")
        for tenant, run in self._last_runs():
            labels = [tenant, run.collection, run.origin]
            ended.add_metric(labels, run.ended.timestamp() if run.ended else 0.0)
            complete.add_metric(labels, float(run.result == "complete"))
            for outcome, count in run.counts.items():
                files.add_metric([*labels, outcome], count)
            for cause, count in run.causes.items():
                failures.add_metric([*labels, cause], count)
        yield from (ended, complete, files, failures)

    def _last_runs(self) -> Iterator[tuple[str, IngestionRun]]:
        """The runs that can be read just now, each with its tenant."""
        origins = self._settings.origins
        with suppress(ConfigurationError, StoreError):
            for tenant in tenants(self._settings.home):
                with suppress(ConfigurationError, StoreError, OSError):
                    yield from [
                        (tenant, run) for run in last_runs(home_of(self._settings, tenant), tenant, origins)
                    ]


def _endpoint_state(breakers: Mapping[str, Breaker]) -> Iterable[Metric]:
    failing = GaugeMetricFamily(
        "refdesk_endpoint_failing",
        "Whether an endpoint fails or is late, so that calls are held back.",
        labels=["endpoint"],
    )
    failures = CounterMetricFamily(
        "refdesk_endpoint_failures", "Calls of an endpoint without a valid answer.", labels=["endpoint"]
    )
    held_back = CounterMetricFamily(
        "refdesk_endpoint_held_back", "Calls not sent, because the endpoint fails.", labels=["endpoint"]
    )
    for kind, breaker in breakers.items():
        failing.add_metric([kind], float(breaker.fault is not None))
        failures.add_metric([kind], breaker.failures)
        held_back.add_metric([kind], breaker.held_back)
    yield from (failing, failures, held_back)
