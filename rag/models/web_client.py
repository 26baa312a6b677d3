"""Clients of other servers, with the proxies and certificates that the usual environment variables name.

The library's own client can't even be made while one of these variables is unusable, also if its addresses
don't concern it. Ours is always made: a request that needs the variable fails, as one to a dead server does.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from socket import gaierror
from typing import Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2

from rag.errors import ConfigurationError

MAX_ANSWER_BYTES = 64 * 1024**2
"""Of an answer: a thousand vectors of 3,000 numbers as text."""
PLAIN = {"", "identity"}
MAX_RATIO = 1_100
"""How much larger gzip can make an answer, for each time that it is packed (https://zlib.net/zlib_tech.html).

The clients ask for none, so few answers are packed."""
LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
EXCEPT = "or add {} to NO_PROXY"
OWN_AUTHORITY = "; if your organization's own authority signed it, set SSL_CERT_FILE to that authority's file"
OTHER_FAULTS = frozenset({9, 10, 62, 63, 64})
"""Codes of OpenSSL: a certificate isn't valid yet, has expired, or is for another host or address."""
UNKNOWN_NAME = "its host name can't be resolved; check the address, and the network"
UNUSABLE = (ImportError, ValueError, OSError, httpx2.InvalidURL)


class UnreachableError(httpx2.ConnectError):
    """There is no connection, for a reason in our own words. If that is `lasting`, don't try again."""

    def __init__(self, reason: str, *, lasting: bool = True) -> None:
        super().__init__(reason)
        self.lasting = lasting


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and the variable that names it."""

    url: str
    variable: str

    def __str__(self) -> str:
        """Without the password: "HTTP_PROXY (http://127.0.0.1:3128)"."""
        # A password may have "://" itself, or a line break.
        scheme = re.match(r"[\w+.-]+(?=://)", self.url)
        host = self.url.rpartition("://")[2].rpartition("@")[2]
        return f"{self.variable} ({scheme[0] if scheme else 'http'}://{host})"


def proxy_for(url: str) -> Proxy | None:
    """The proxy through which requests to `url` go, if any."""
    proxies, parts = getproxies(), urlsplit(url)
    kind = parts.scheme if proxies.get(parts.scheme) else "all"
    address = proxies.get(kind)
    if not address or _is_excepted(parts.hostname or "", parts.port, proxies.get("no", "")):
        return None
    names = (f"{kind}_proxy", f"{kind}_proxy".upper())
    variable = next((name for name in names if os.environ.get(name)), "the system's settings")
    return Proxy(address if "://" in address else f"http://{address}", variable)


def _is_excepted(host: str, port: int | None, exceptions: str) -> bool:
    """Whether NO_PROXY has the host: its name, a domain of it, its address, or a network around that."""
    for entry in exceptions.lower().split(","):
        name = entry.strip().rpartition("://")[2]
        domain = name.lstrip("*.")
        if name == "*" or (domain and (f"{host}:{port}" == name or f".{host}".endswith(f".{domain}"))):
            return True
        with suppress(ValueError):
            if ip_address(host) in ip_network(name.replace("[", "").replace("]", ""), strict=False):
                return True
    return False


class ByVariables(httpx2.AsyncBaseTransport):
    """Sends each request through the proxy that the variables name for its address.

    Raises UnreachableError where the reason of a failure is known, and for an answer above `max_bytes`.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._transports: dict[tuple[str, str, int | None], httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        url, proxy = request.url, proxy_for(str(request.url))
        origin = url.scheme, url.host, url.port
        if origin not in self._transports:
            self._transports[origin] = _transport(url, proxy)
        request.headers["Accept-Encoding"] = "identity"
        try:
            answer = await self._transports[origin].handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            if reason := _known_reason(error, url.host, proxy):
                raise reason from error
            raise
        codings = answer.headers.get_list("Content-Encoding", split_commas=True)
        most = self._max_bytes // MAX_RATIO ** sum(coding.lower() not in PLAIN for coding in codings)
        return httpx2.Response(
            answer.status_code,
            headers=answer.headers,
            stream=_Limited(cast("httpx2.AsyncByteStream", answer.stream), most),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.aclose()


@dataclass(frozen=True, slots=True)
class _Limited(httpx2.AsyncByteStream):
    """The bytes of an answer; UnreachableError if they are more than `most`."""

    stream: httpx2.AsyncByteStream
    most: int

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for part in self.stream:
            count += len(part)
            if count > self.most:
                raise UnreachableError("its answer is too large")
            yield part

    async def aclose(self) -> None:
        await self.stream.aclose()


def client(*, max_bytes: int = MAX_ANSWER_BYTES, **options: Any) -> httpx2.AsyncClient:  # noqa: ANN401 the library's
    """A client, which follows no redirects unless the options say so."""
    return httpx2.AsyncClient(transport=ByVariables(max_bytes), **options)


def blocking_client(**options: Any) -> httpx2.Client:  # noqa: ANN401 those of the library's client
    """A client for code that isn't asynchronous.

    Raises:
        ConfigurationError: a variable is unusable, also if the addresses don't concern it.
    """
    try:
        return httpx2.Client(**options)
    except UNUSABLE as error:
        raise ConfigurationError(
            "The proxy or the certificates that the environment names can't be used. Check HTTPS_PROXY, "
            "HTTP_PROXY, ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR. A SOCKS proxy needs the Python package "
            "socksio beside refdesk."
        ) from error


def _transport(url: httpx2.URL, proxy: Proxy | None) -> httpx2.AsyncHTTPTransport:
    try:
        # Without encryption no certificate is needed, so an unusable SSL_CERT_FILE doesn't matter.
        trusted = url.scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        certificates = httpx2.create_ssl_context(trusted)
    except OSError as error:
        name = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
        problem = f"{name} ({os.environ.get(name)}) can't be read as certificates; correct or unset it"
        raise UnreachableError(problem) from error
    address = proxy.url if proxy else None
    try:
        return httpx2.AsyncHTTPTransport(verify=certificates, limits=LIMITS, proxy=address)
    except ImportError as error:
        problem = f"{proxy} needs the Python package socksio; install it beside refdesk"
        raise UnreachableError(f"{problem}, {EXCEPT.format(url.host)}") from error
    except (ValueError, httpx2.InvalidURL) as error:
        problem = f"{proxy} is not the address of an http, https or socks5 proxy; correct or unset it"
        raise UnreachableError(f"{problem}, {EXCEPT.format(url.host)}") from error


def _known_reason(error: Exception, host: str, proxy: Proxy | None) -> UnreachableError | None:
    """The reason of a failed connection, if it is known."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            advice = "" if getattr(cause, "verify_code", 0) in OTHER_FAULTS else OWN_AUTHORITY
            problem = getattr(cause, "verify_message", "this machine doesn't trust who signed it")
            return UnreachableError(f"its certificate is not accepted: {problem.rstrip('.')}{advice}")
        if isinstance(cause, gaierror) and not proxy:
            return UnreachableError(UNKNOWN_NAME, lasting=False)
        cause = cause.__cause__ or cause.__context__
    if not proxy:
        return None
    if isinstance(error, httpx2.ProxyError):
        status = re.match(r"\d{3}\b", str(error))  # the rest is the proxy's own text
        refusal = f"refuses the connection{f' (HTTP {status[0]})' if status else ''}"
        return UnreachableError(f"the proxy of {proxy} {refusal}; correct it, {EXCEPT.format(host)}")
    problem = f"no connection to the proxy of {proxy}; correct it, {EXCEPT.format(host)}"
    return UnreachableError(problem, lasting=False)
