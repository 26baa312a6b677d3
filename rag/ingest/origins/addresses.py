"""Connects to addresses that anybody may reach, or that the settings allow, and to no others.

A name can lead anywhere: to this machine, to the network behind it, to a cloud's metadata service, and to
another address a moment later. So the name is resolved here, every address is judged, and the connection goes
to a judged address, never to the name.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

import anyio
import httpcore2

from rag.ingest.origins.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

Resolve: TypeAlias = "Callable[[str, int], Awaitable[list[str]]]"
"""The addresses of a host, in the order in which to try them."""
_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of a host by the system's resolver.

    Raises:
        OSError: it has none.
    """
    found = await anyio.getaddrinfo(host, port, type=1)  # SOCK_STREAM
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Whether an address is reachable by anybody: global, and not the disguise of one that isn't.

    Example: "93.184.216.34" -> True; "127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1" -> False.
    """
    parsed = ip_address(address.partition("%")[0])
    if any(not is_public(str(inner)) for inner in _inside(parsed)):
        return False
    return parsed.is_global and not (parsed.is_multicast or parsed.is_reserved or parsed.is_unspecified)


def _inside(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to by translation or a tunnel."""
    if isinstance(address, IPv4Address):
        return []
    teredo = address.teredo or ()
    nat64 = [IPv4Address(int(address) & 0xFFFFFFFF)] if address in _NAT64 else []
    return [one for one in (address.ipv4_mapped, address.sixtofour, *teredo, *nat64) if one is not None]


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to public addresses, and to those in `networks`.

    Raises:
        RefusedError: the host has an address that is neither.
    """

    def __init__(self, networks: Iterable[str] = (), resolve: Resolve = resolved) -> None:
        self._networks = [ip_network(one) for one in networks]
        self._resolve = resolve
        self._connect = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 the protocol's
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """A connection to one of the host's addresses, all of which must be allowed."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise httpcore2.ConnectError("there is no such host") from error
        for address in addresses:
            if not self._is_allowed(address):
                raise RefusedError(
                    f"{host} has the address {address}, which is not public; private_networks can allow it"
                )
        failed: Exception = httpcore2.ConnectError("the host has no address")
        for address in addresses:
            try:
                return await self._connect.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failed = error
        raise failed

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await anyio.sleep(seconds)

    def _is_allowed(self, address: str) -> bool:
        parsed = ip_address(address.partition("%")[0])
        return is_public(address) or any(parsed in network for network in self._networks)
