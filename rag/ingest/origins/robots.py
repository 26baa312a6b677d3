"""What a server's robots.txt allows (RFC 9309), and the delay that it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag.ingest.origins.errors import FetchError

if TYPE_CHECKING:
    from protego import Protego

    from rag.ingest.origins.http import Reply

AGENT = "refdesk"
MAX_BYTES = 1_000_000  # RFC 9309 asks for 500 KiB at least
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
        asked = self.rules.crawl_delay(AGENT) if self.rules else None
        return min(float(asked or 0), LONGEST_DELAY)


def robots_of(reply: Reply) -> Robots:
    """The rules in a server's answer. If it has no robots.txt, everything is allowed.

    Raises:
        FetchError: it can't tell its rules now, so nothing is allowed.
    """
    from protego import Protego  # noqa: PLC0415 only for the web

    if 200 <= reply.status < 300:  # noqa: PLR2004 HTTP's
        return Robots(Protego.parse(reply.body.decode("utf-8", "replace")))
    if 400 <= reply.status < 500:  # noqa: PLR2004 the same
        return Robots()
    raise FetchError(
        f"its robots.txt can't be read (status {reply.status}), so nothing is fetched from there"
    )
