"""What Prometheus can ask a server: how many calls, how long they and their stages took, what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric

    from server.admission import Admission
    from server.calls import Call
    from server.opening import OpeningDesk

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
LOOPBACK = "127.0.0.1"


class Metrics:
    """The measurements of one server. No label holds what a caller can make up."""

    def __init__(self, admission: Admission, opening: OpeningDesk) -> None:
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
        """Answer Prometheus at /metrics, on the loopback address alone.

        Raises:
            ConfigurationError: the port is taken.
        """
        try:
            start_http_server(port, LOOPBACK, self.registry)
        except OSError as error:
            raise ConfigurationError(
                f"http.metrics_port = {port} can't be listened on ({error.strerror}); "
                "set another, or 0 for no metrics."
            ) from error


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
