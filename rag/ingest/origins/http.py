"""Requests to web servers and buckets: to allowed addresses, and no answer larger or later than allowed."""

from __future__ import annotations

import re
import ssl
import zlib
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

import anyio
import httpcore2

from rag.ingest.origins.addresses import GuardedNetwork, Resolve, resolved
from rag.ingest.origins.errors import FetchError, RefusedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from datetime import datetime

PART_BYTES = 1 << 16
RETRIED = frozenset({429, 500, 502, 503, 504})  # perhaps another time
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
        """The media type that it states, in lower case, without parameters; "" if none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str:
        """The label of the encoding that it states; "" if none."""
        stated = _CHARSET.search(self.headers.get("content-type", ""))
        return stated[1] if stated else ""


def user_agent(desk: str) -> str:
    """How refdesk introduces itself: the desk's name in ASCII, and the program."""
    name = "".join(one if one.isascii() and (one.isalnum() or one in " ._-") else "-" for one in desk)
    return f"{name.strip() or 'refdesk'} (refdesk/{version('refdesk')})"


class Client:
    """A connection pool that goes to allowed addresses only, without proxies, cookies or redirects.

    `timeout_seconds` is the time of a whole request, until the last byte.
    """

    def __init__(
        self,
        *,
        agent: str,
        timeout_seconds: float,
        networks: Iterable[str] = (),
        resolve: Resolve = resolved,
    ) -> None:
        self._agent = agent
        self._seconds = timeout_seconds
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=ssl.create_default_context(),
            network_backend=GuardedNetwork(networks, resolve),
            max_connections=1,
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


async def _body(parts: AsyncIterator[bytes], headers: Mapping[str, str], most: int) -> bytes:
    """The decompressed body.

    Raises:
        RefusedError: it is larger than `most`, before or after decompression, or of an unknown encoding.
        FetchError: it is damaged or incomplete.
    """
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"identity", "gzip", "x-gzip", ""}:
        raise RefusedError(f"its Content-Encoding {encoding[:20]!r} is not supported")
    if headers.get("content-length", "").isdecimal() and int(headers["content-length"]) > most:
        raise too_large(most)
    inflate = zlib.decompressobj(wbits=31) if "gzip" in encoding else None
    body = bytearray()
    async for part in parts:
        body += inflated(inflate, part, most - len(body)) if inflate else part
        if len(body) > most:
            raise too_large(most)
    if inflate and not inflate.eof and body:
        raise FetchError("its compressed content is incomplete")
    return bytes(body)


def inflated(inflate: zlib._Decompress, part: bytes, room: int) -> bytes:
    """A part decompressed, one byte more than `room` at most.

    Raises:
        FetchError: it is damaged.
    """
    try:
        return inflate.decompress(part, room + 1)
    except zlib.error as error:
        raise FetchError("its compressed content is damaged") from error


def too_large(most: int) -> RefusedError:
    """The refusal of a document that is larger than `most` bytes."""
    return RefusedError(f"it is over the limit of {most / 1e6:,.1f} MB (ingest.max_file_bytes)")


def _why(error: BaseException) -> str:
    """A failed connection in our own words: the text of a library never reaches a person."""
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


def seconds_to_wait(headers: Mapping[str, str], now: datetime) -> float:
    """What Retry-After asks for, in seconds from `now`; 0 if it says nothing readable."""
    written = headers.get("retry-after", "").strip()
    if written.isdecimal():
        return float(written[:6])
    try:
        return max(0.0, (parsedate_to_datetime(written) - now).total_seconds())
    except (TypeError, ValueError):
        return 0.0
