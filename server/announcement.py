"""What an operator must know when a server starts: where it listens, and who may come in from where."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from server.http.addresses import LOOPBACK, own_url, resource_url, transport_security

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.config.settings import HttpSettings, Settings

ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 it is told, not listened on
NO_HOST = (
    "Every request will be refused with status 421: no name is known by which clients reach this server. "
    'Set http.public_url = "https://NAME", or http.allowed_hosts = ["NAME:PORT"].'
)
NO_PROXY = (
    "http.public_url means that a proxy stands in front, and http.trusted_proxies doesn't name it. So limits "
    "can't tell its clients apart, and the audit names only the proxy's address. Set http.trusted_proxies."
)

log = logging.getLogger("refdesk.start")


def announce(settings: Settings) -> None:
    """Say it in the log, whatever its level."""
    for warns, words in _sentences(settings):
        log.log(logging.WARNING if warns else logging.INFO, "%s", words)


def _sentences(settings: Settings) -> Iterator[tuple[bool, str]]:
    """Each sentence, and whether it warns."""
    http, hosts = settings.http, transport_security(settings.http).allowed_hosts
    yield False, f"refdesk listens at {own_url(http)}{http.path}, {_reach(http)}."
    yield False, _admitted(settings)
    if hosts:
        named = ", ".join(hosts)
        yield False, f"Clients must name one of these hosts: {named}. Others are refused with status 421."
    else:
        yield True, NO_HOST
    if http.trusted_proxies:
        proxies = ", ".join(http.trusted_proxies)
        yield False, f"Which client a request comes from is believed of the proxies {proxies}."
    elif http.public_url:
        yield True, NO_PROXY
    if http.metrics_port:
        yield False, f"Health and metrics are at http://127.0.0.1:{http.metrics_port}, for this machine only."


def _reach(http: HttpSettings) -> str:
    if http.host in LOOPBACK:
        return "which only programs on this machine can reach"
    if http.host in ANYWHERE:
        return "at every address of this machine, so all its networks can reach it"
    return "which other machines can reach"


def _admitted(settings: Settings) -> str:
    http, who = settings.http, settings.principal
    if not http.authentication:
        user = f"the user {who.user!r}" if who.user else "a user without a name"
        return f"Everybody who reaches it may ask as {user}: http.authentication is empty."
    ways = {
        "keys": "an API key (refdesk-admin key create)",
        "oauth": f"a token of {settings.oauth.issuer} for {settings.oauth.audience or resource_url(http)}",
    }
    return f"Only those may ask who have {' or '.join(ways[one] for one in http.authentication)}."
