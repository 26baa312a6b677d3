"""What Prometheus can ask a server: how many calls, how long they and their stages took, what was refused.

It listens on a port and in threads of its own, so that it and the probes beside it answer in any flood.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from prometheus_client.core import Metric

    from server.admission import Admission
    from server.lazy_desk import OpeningDesk
    from server.telemetry.audit import Call

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LOOPBACK = "127.0.0.1"
IDLE_SECONDS = 5

log = logging.getLogger(__name__)


class Metrics:
    """The measurements of one server. No label holds what a caller can make up."""

    def __init__(self, admission: Admission, opening: OpeningDesk) -> None:
        self._opening = opening
        self.registry = CollectorRegistry()
        self.registry.register(_State(admission, opening))
        ProcessCollector(registry=self.registry)
        self._calls = Histogram(
            "refdesk_call_seconds",
            "How long calls took, by tool or method and by what became of them.",
            ["call", "outcome"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._stages = Histogram(
            "refdesk_stage_seconds",
            "How long the stages of searches took.",
            ["stage"],
            buckets=SECONDS,
            registry=self.registry,
        )
        self._searches = Counter(
            "refdesk_searches", "Searches that were answered.", ["found"], registry=self.registry
        )
        self._failed = Counter(
            "refdesk_failed_stages",
            "Stages that failed, so that the search went on without them.",
            ["stage"],
            registry=self.registry,
        )
        self._tokens = Counter(
            "refdesk_model_tokens",
            "Tokens that stages took of the chat model.",
            ["stage", "kind"],
            registry=self.registry,
        )
        self._cost = Counter(
            "refdesk_model_cost",
            "What these tokens cost, by the settings' prices.",
            ["stage"],
            registry=self.registry,
        )
        self._refused = Counter(
            "refdesk_refused_requests",
            "HTTP requests that were refused before they were calls.",
            ["status"],
            registry=self.registry,
        )

    def measure(self, call: Call) -> None:
        """Count a call."""
        self._calls.labels(call.name, call.outcome).observe(call.seconds)
        for stage in call.stages:
            self._stages.labels(stage.name).observe(stage.seconds)
            if stage.status == "failed":
                self._failed.labels(stage.name).inc()
            if stage.usage:
                self._tokens.labels(stage.name, "input").inc(stage.usage.input_tokens)
                self._tokens.labels(stage.name, "output").inc(stage.usage.output_tokens)
                self._cost.labels(stage.name).inc(stage.usage.cost)
        if call.stages:
            self._searches.labels("something" if call.ids else "nothing").inc()

    def refused(self, status: int) -> None:
        """Count a request that came to no call."""
        self._refused.labels(str(status)).inc()

    def listen(self, port: int) -> None:
        """Answer at /metrics, /healthz and /readyz, on the loopback address alone.

        Raises:
            ConfigurationError: the port is taken.
        """
        try:
            server = _Listener((LOOPBACK, port), _Handler)
        except OSError as error:
            raise ConfigurationError(
                f"http.metrics_port = {port} can't be listened on ({error.strerror}); "
                "set another, or 0 for no metrics."
            ) from error
        server.set_app(self._answers({f"{name}:{port}" for name in (LOOPBACK, "localhost")}))
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def _answers(self, hosts: set[str]) -> WSGIApplication:
        """What is answered at each path, to requests that name one of these hosts: no web page's can."""
        metrics: WSGIApplication = make_wsgi_app(self.registry)

        def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
            if environ.get("HTTP_HOST") not in hosts:
                return _plain(start, "421 Misdirected Request")
            match environ["PATH_INFO"]:
                case "/metrics":
                    return metrics(environ, _unkept(start))
                case "/healthz":
                    return _plain(start, "200 OK", b"ok")
                case "/readyz" if self._opening.ready:
                    return _plain(start, "200 OK", b"ready")
                case "/readyz":
                    return _plain(start, "503 Service Unavailable", b"not ready")
            return _plain(start, "404 Not Found")

        return answer


def _plain(start: StartResponse, status: str, body: bytes = b"") -> Iterable[bytes]:
    _unkept(start)(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [body or status[4:].encode()]


def _unkept(start: StartResponse) -> StartResponse:
    return lambda status, headers, *more: start(status, [*headers, ("Cache-Control", "no-store")], *more)


class _Listener(ThreadingMixIn, WSGIServer):
    """A thread for each connection, none of which keeps the process alive."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Listen, without asking anybody for this machine's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002 socketserver's signature
        """A line of the log, where the standard library would print a traceback."""
        log.exception("A request for metrics crashed")  # noqa: LOG004 it is called in one


class _Handler(WSGIRequestHandler):
    """Waits a few seconds for a request, and says nothing of it."""

    timeout = IDLE_SECONDS

    def handle(self) -> None:
        """Answer one request; who is gone or dawdles gets no answer."""
        with suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 the library's signature
        """Say nothing."""


class _State(Collector):
    """What is kept elsewhere and read when somebody asks."""

    def __init__(self, admission: Admission, opening: OpeningDesk) -> None:
        self._admission = admission
        self._opening = opening

    def collect(self) -> Iterable[Metric]:
        """The state of this moment."""
        yield GaugeMetricFamily("refdesk_active", "Requests that have a slot.", self._admission.active)
        yield GaugeMetricFamily("refdesk_ready", "Whether the desk is open.", float(self._opening.ready))
        yield CounterMetricFamily(
            "refdesk_rejected", "Requests for which there was no room.", value=self._admission.rejected
        )
        yield CounterMetricFamily(
            "refdesk_gate_alarms",
            "Sources that the gate kept back, which the engine should not have let through.",
            value=self._opening.alarms,
        )
