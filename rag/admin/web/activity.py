"""What goes on: calls and health of the server, by its metrics, and what administrators did."""

from __future__ import annotations

import ssl
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from rag.admin.acts import read_log
from rag.admin.audit import change_in_words, who

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prometheus_client.samples import Sample
    from starlette.requests import Request
    from starlette.responses import Response

    from rag.admin.web.console import Console

ACTS = 100  # that are shown
PATIENCE_SECONDS = 2.0
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # loading the usual certificates takes 50 ms, for nothing
NO_METRICS = "The settings turn its metrics off (http.metrics_port = 0)."
MAX_BYTES = 4_000_000  # of metrics
CALLS = "refdesk_call_seconds"
COUNTED: Mapping[str, str] = {
    "refdesk_searches_total": "Searches",
    "refdesk_degraded_searches_total": "Searches that lacked something",
    "refdesk_refused_requests_total": "Requests refused before they became calls",
    "refdesk_rejected_total": "Requests rejected because there were too many",
    "refdesk_failed_steps_total": "Steps that failed",
    "refdesk_gate_alarms_total": "Alarms of the gate (should stay at 0)",
    "refdesk_endpoint_failing": "Endpoints that fail now",
    "refdesk_active": "Requests that run now",
}


@dataclass(slots=True)
class Calls:
    """The calls of one kind with one outcome."""

    call: str
    outcome: str
    count: int = 0
    seconds: float = 0.0

    @property
    def milliseconds(self) -> float:
        """The mean."""
        return 1000 * self.seconds / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class Server:
    """What a running server says of itself; `problem` if it says nothing."""

    problem: str = ""
    ready: bool = False
    calls: list[Calls] = field(default_factory=list)
    counts: list[tuple[str, str, float]] = field(default_factory=list)


async def activity(console: Console, _request: Request) -> Response:
    """The page."""
    acts = deque(((number, line) for number, line in read_log(console.settings.data)), maxlen=ACTS)
    port = console.settings.http.metrics_port
    return console.page(
        "activity.html",
        port=port,
        server=await server_at(port) if port else Server(NO_METRICS),
        acts=[line for _, line in reversed(acts) if line and line.tenant == console.tenant],
        unreadable=sum(line is None for _, line in acts),
        who=who,
        change_in_words=change_in_words,
    )


async def server_at(port: int) -> Server:
    """What the server with this port for its metrics says."""
    try:
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, trust_env=False, verify=NO_TLS
        ) as client:
            ready = (await client.get("/readyz")).is_success
            async with client.stream("GET", "/metrics") as reply:
                text = b""
                async for part in reply.aiter_bytes():
                    text += part
                    if len(text) > MAX_BYTES:
                        break
        families = list(text_string_to_metric_families(text.decode("utf-8", "replace")))
    except (httpx2.HTTPError, ValueError):
        return Server(f"No server answers on port {port} of this machine. refdesk --http starts one.")
    samples = [sample for family in families for sample in family.samples]
    return Server("", ready, _calls(samples), list(_counts(samples)))


def _calls(samples: list[Sample]) -> list[Calls]:
    found: dict[tuple[str, str], Calls] = {}
    for sample in samples:
        if sample.name in {f"{CALLS}_count", f"{CALLS}_sum"}:
            key = sample.labels.get("call", ""), sample.labels.get("outcome", "")
            calls = found.setdefault(key, Calls(*key))
            if sample.name.endswith("_count"):
                calls.count = int(sample.value)
            else:
                calls.seconds = sample.value
    return sorted(found.values(), key=lambda one: -one.count)


def _counts(samples: list[Sample]) -> Iterator[tuple[str, str, float]]:
    for sample in samples:
        if title := COUNTED.get(sample.name):
            yield title, ", ".join(f"{key} {value}" for key, value in sample.labels.items()), sample.value
