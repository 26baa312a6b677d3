"""Where requests come from: the address that the audit names and that limits count for."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Scope

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
NETWORK_BITS = 64  # of an IPv6 address; the rest a client chooses by itself
NOWHERE = "unknown"


@dataclass(frozen=True, slots=True)
class Sender:
    """An address. Behind a `shared` one there may be many clients who have nothing to do with each other.

    `block` is what belongs to one client: an IPv4 address, or a network of IPv6.
    """

    address: str
    block: str
    shared: bool


class Senders:
    """Tells who sends. Of the proxies that the settings name, it believes whom they pass on.

    Shared are the addresses of these proxies where they don't tell, and this machine's own: there may be a
    proxy on it that the settings don't name.
    """

    def __init__(self, proxies: Sequence[str]) -> None:
        self._proxies = [ipaddress.ip_network(one) for one in proxies]

    def of_connection(self, peer: str, own: str) -> Sender:
        """Who is at the other end of a connection to one of our addresses."""
        address = _address(peer)
        return _sender(address, shared=peer == own or address is None or self._trusts(address))

    def of_request(self, scope: Scope) -> Sender:
        """Who sent a request: the last one in X-Forwarded-For who is no trusted proxy, if the peer is one."""
        peer, own = (scope.get("client") or [""])[0], (scope.get("server") or [""])[0]
        address = _address(peer)
        if address is None or not self._trusts(address):
            return self.of_connection(peer, own)
        told = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        for one in reversed(",".join(told).split(",")):
            passed_on = _address(one)
            if passed_on is None:
                break
            if not self._trusts(passed_on):
                return _sender(passed_on, shared=False)
        return _sender(address, shared=True)

    def _trusts(self, address: IPAddress) -> bool:
        return any(address in one for one in self._proxies)


def _sender(address: IPAddress | None, *, shared: bool) -> Sender:
    if address is None:
        return Sender(NOWHERE, NOWHERE, shared)
    own = 128 - NETWORK_BITS if address.version == 6 else 0  # noqa: PLR2004 the version's name
    block = type(address)(int(address) >> own << own)
    return Sender(str(address), str(block), shared)


def _address(written: str) -> IPAddress | None:
    """The address in "192.0.2.1", "192.0.2.1:80", "2001:db8::1" or "[2001:db8::1]:80"; None in all else."""
    written = written.strip()
    if written.startswith("["):
        written = written[1:].partition("]")[0]
    elif written.count(":") == 1:
        written = written.partition(":")[0]
    try:
        address = ipaddress.ip_address(written.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
