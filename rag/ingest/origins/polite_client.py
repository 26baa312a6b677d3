"""Asks the servers of a site politely: one request at a time, with a delay, as robots.txt allows."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio

from rag.ingest.origins.guarded_http import MAX_REDIRECTS, RETRIED, Client, Reply, seconds_to_wait
from rag.ingest.origins.origin_look import FetchError
from rag.ingest.origins.page_links import canonical_url, host_of

if TYPE_CHECKING:
    from protego import Protego

ATTEMPTS = 3
LONGEST_WAIT = 120.0  # seconds; a server that asks for more is asked again in the next run
REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(slots=True)
class Visitor:
    """Requests to the servers `hosts`, at least `delay` seconds apart, with answers of at most `max_bytes`.

    `fetched` and `received` count answers and their bytes.
    """

    client: Client
    hosts: AbstractSet[tuple[str, str]]
    delay: float
    max_bytes: int
    fetched: int = 0
    received: int = 0
    _last: float = -1e9
    _robots: dict[tuple[str, str], Robots | FetchError] = field(default_factory=dict)

    async def robots_of(self, url: str) -> Robots:
        """The rules of an address's server, fetched once.

        Raises:
            FetchError: they can't be read.
        """
        host = host_of(url)
        if host not in self._robots:
            try:
                self._robots[host] = await self._read_robots(canonical_url("/robots.txt", url) or url)
            except FetchError as error:
                self._robots[host] = FetchError(f"its robots.txt: {error}")
        rules = self._robots[host]
        if isinstance(rules, FetchError):
            raise FetchError(str(rules))
        self.delay = max(self.delay, rules.delay)
        return rules

    async def _read_robots(self, url: str) -> Robots:
        for _ in range(MAX_REDIRECTS):
            reply = await self.reply(url, {}, max_bytes=ROBOTS_BYTES)
            if reply.status not in REDIRECTS:
                return robots_of(reply)
            target = canonical_url(reply.headers.get("location", ""), url)
            if target is None or host_of(target) not in self.hosts:
                break
            url = target
        raise FetchError("it redirects to another host, or too often")

    async def reply(self, url: str, headers: Mapping[str, str], max_bytes: int | None = None) -> Reply:
        """The server's answer. Retries when the server is overloaded, after the time that it asks for.

        Raises:
            FetchError: the server doesn't answer.
        """
        for attempt in range(1, ATTEMPTS + 1):
            await anyio.sleep(max(0.0, self._last + self.delay - anyio.current_time()))
            self._last = anyio.current_time()
            reply = await self.client.get(url, headers, max_bytes=max_bytes or self.max_bytes)
            self.fetched += 1
            self.received += len(reply.body)
            wait = max(seconds_to_wait(reply.headers, datetime.now(UTC)), self.delay * 2**attempt)
            if reply.status not in RETRIED or attempt == ATTEMPTS or wait > LONGEST_WAIT:
                break
            await anyio.sleep(wait)
        return reply


# What a server's robots.txt allows (RFC 9309), and the delay that it asks for.

AGENT = "refdesk"
ROBOTS_BYTES = 1_000_000  # RFC 9309 asks for 500 KiB at least
LONGEST_DELAY = 60.0  # seconds; more would make a site unreadable


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules of one server; without rules, everything is allowed."""

    rules: Protego | None = None

    def allow(self, url: str) -> bool:
        """Whether robots may fetch an address."""
        return self.rules is None or self.rules.can_fetch(url, AGENT)

    @property
    def delay(self) -> float:
        """The seconds between two requests that the server asks for."""
        crawl_delay = self.rules.crawl_delay(AGENT) if self.rules else None
        return min(float(crawl_delay or 0), LONGEST_DELAY)


def robots_of(reply: Reply) -> Robots:
    """The rules in a server's answer. Without a robots.txt, everything is allowed.

    Raises:
        FetchError: the server fails to give its rules, so nothing is allowed (fail closed).
    """
    from protego import Protego  # noqa: PLC0415 only for the web

    if 200 <= reply.status < 300:  # noqa: PLR2004 HTTP's
        return Robots(Protego.parse(reply.body.decode("utf-8", "replace")))
    if 400 <= reply.status < 500:  # noqa: PLR2004 the same
        return Robots()
    raise FetchError(
        f"its robots.txt can't be read (status {reply.status}), so nothing is fetched from there"
    )
