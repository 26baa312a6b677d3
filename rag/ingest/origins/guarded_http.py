"""Requests to web servers and buckets: only to allowed addresses, with limits on size and time of answers.

Allowed are public addresses and those in the settings. A name can lead anywhere: to this machine, to the
network behind it, to a cloud's metadata service, and to another address a moment later (SSRF, DNS rebinding).
So the name is resolved here, every address is checked, and the connection goes to a checked address, never to
the name.
"""

from __future__ import annotations

import re
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

import anyio
import httpcore2

from rag.ingest.origins.origin_look import FetchError, RefusedError

Resolve: TypeAlias = "Callable[[str, int], Awaitable[list[str]]]"
"""The addresses of a host, in the order in which to try them."""
_NAT64 = ip_network("64:ff9b::/96")  # RFC 6052: the last 32 bits are an IPv4 address
_LOCAL_NAT64 = ip_network("64:ff9b:1::/48")  # RFC 8215: their place is the network's own choice


async def resolved(host: str, port: int) -> list[str]:
    """The addresses of a host by the system's resolver.

    Raises:
        OSError: the name can't be resolved.
    """
    answers = await anyio.getaddrinfo(host, port, type=1)  # SOCK_STREAM
    return list(dict.fromkeys(str(entry[4][0]) for entry in answers))


def is_public(address: str) -> bool:
    """Whether an address is public: global, and not an embedding of an address that isn't.

    Example: "93.184.216.34" -> True; "127.0.0.1", "10.0.0.1", "169.254.169.254", "::ffff:10.0.0.1" -> False.
    """
    parsed = ip_address(address.partition("%")[0])
    if any(not is_public(str(inner)) for inner in _inside(parsed)):  # such a one leads into a private network
        return False
    if parsed in _LOCAL_NAT64:
        return False
    return parsed.is_global and not (parsed.is_multicast or parsed.is_reserved or parsed.is_unspecified)


def _inside(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to by translation or a tunnel."""
    if isinstance(address, IPv4Address):
        return []
    teredo = address.teredo or ()
    nat64 = [IPv4Address(int(address) & 0xFFFFFFFF)] if address in _NAT64 else []
    return [*filter(None, (address.ipv4_mapped, address.sixtofour, *teredo, *nat64))]


class GuardedNetwork(httpcore2.AsyncNetworkBackend):
    """Connects to public addresses, and to those in `networks`.

    Raises:
        RefusedError: the host has an address that is neither.
    """

    def __init__(self, networks: Iterable[str] = (), resolve: Resolve = resolved) -> None:
        self._networks = [ip_network(network) for network in networks]
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
        """A connection to one of the host's addresses; all of them must be allowed."""
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
                # To the checked address, never to the name: that may lead elsewhere by now.
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


PART_BYTES = 1 << 16
REQUEST_SECONDS = 30.0  # for a page or an object (20 MB at most by default), until its last byte
RETRIED = frozenset({429, 500, 502, 503, 504})  # statuses that may go away
MAX_REDIRECTS = 5
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer: its status, its headers with lower-case names, and its body, decompressed."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """The media type in lower case, without parameters; "" if missing."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The label of the encoding that it states; "" if none."""
        stated = _CHARSET.search(self.headers.get("content-type", ""))
        return stated[1] if stated else ""


def user_agent(desk: str) -> str:
    """The User-Agent of refdesk: the desk's name in ASCII, and the program."""
    name = "".join(
        character if character.isascii() and (character.isalnum() or character in " ._-") else "-"
        for character in desk
    )
    return f"{name.strip() or 'refdesk'} (refdesk/{version('refdesk')})"


class Client:
    """A connection pool that goes to allowed addresses only, without proxies, cookies or redirects.

    `timeout_seconds` is the time of a whole request, until the last byte.
    """

    def __init__(
        self,
        *,
        agent: str,
        timeout_seconds: float = REQUEST_SECONDS,
        networks: Iterable[str] = (),
        resolve: Resolve = resolved,
    ) -> None:
        self._agent = agent
        self._seconds = timeout_seconds
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(),
            network_backend=GuardedNetwork(networks, resolve),
            max_connections=1,  # polite: one request at a time
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._pool.aclose()

    async def get(self, url: str, headers: Mapping[str, str], *, max_bytes: int) -> Reply:
        """The answer to one GET request.

        Raises:
            RefusedError: the address is not allowed, or the body is too large or of an unknown encoding.
            FetchError: there was no valid answer in time.
        """
        sent = {"User-Agent": self._agent, "Accept": "*/*", "Accept-Encoding": "gzip", **headers}
        try:
            with anyio.fail_after(self._seconds):
                async with self._pool.stream("GET", url, headers=list(sent.items())) as reply:
                    received = {
                        name.decode("latin-1").lower(): value.decode("latin-1")
                        for name, value in reply.headers
                    }
                    body = await _body(reply.aiter_stream(), received, max_bytes)
                    return Reply(reply.status, received, body)
        except (TimeoutError, httpcore2.TimeoutException) as error:
            raise FetchError(f"no answer within {self._seconds:g} seconds") from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
            raise FetchError(_why(error)) from error


async def _body(parts: AsyncIterator[bytes], headers: Mapping[str, str], max_bytes: int) -> bytes:
    """The decompressed body.

    Raises:
        RefusedError: it is larger than `max_bytes`, before or after decompression, or of an unknown encoding.
        FetchError: it is damaged or incomplete.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip", "x-gzip", ""}:
        raise RefusedError(f"its Content-Encoding {encoding[:20]!r} is not supported")
    if headers.get("content-length", "").isdecimal() and int(headers["content-length"]) > max_bytes:
        raise too_large(max_bytes)
    inflate = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
    body = bytearray()
    async for part in parts:
        body += inflated(inflate, part, max_bytes - len(body)) if inflate else part
        if len(body) > max_bytes:
            raise too_large(max_bytes)
    if inflate and not inflate.eof and body:
        raise FetchError("its compressed content is incomplete")
    return bytes(body)


def inflated(inflate: zlib._Decompress, part: bytes, room: int) -> bytes:
    """A part decompressed, up to one byte more than `room`.

    Raises:
        FetchError: it is damaged.
    """
    try:
        return inflate.decompress(part, room + 1)
    except zlib.error as error:
        raise FetchError("its compressed content is damaged") from error


def too_large(max_bytes: int) -> RefusedError:
    """The refusal of a document that is larger than `max_bytes`."""
    return RefusedError(f"it is over the limit of {max_bytes / 1e6:,.1f} MB (ingest.max_file_bytes)")


def _why(error: BaseException) -> str:
    """The reason of a failed connection in our own words, never in the words of a library."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return "its certificate is not valid for this host, or no known authority signed it"
        if isinstance(cause, ssl.SSLError):
            return "no secure connection could be made"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore2.ConnectError):
        return "no connection could be made"
    return "the connection broke, or the answer was not valid HTTP"
