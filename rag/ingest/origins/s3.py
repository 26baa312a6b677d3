"""Looks through the objects below a prefix of an S3-compatible bucket.

The listing has each object's ETag, so an unchanged one costs no request. Requests are signed with version 4
of AWS's signature; without credentials in the environment they are anonymous.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit
from xml.parsers import expat

from rag.ingest.origins.errors import FetchError, GoneError, RefusedError
from rag.ingest.origins.http import Client, too_large
from rag.ingest.origins.look import Desk, Look
from rag.originals import SIDECAR_BYTES, SIDECAR_SUFFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.config.origins import S3Origin

USUAL_REGION = "us-east-1"
EMPTY = hashlib.sha256(b"").hexdigest()
LISTING_BYTES = 20_000_000  # of 1,000 keys with 1,024 bytes each, escaped
ALL_NETWORKS = ("0.0.0.0/0", "::/0")  # the operator names the endpoint, and redirects are not followed
_WHY = {
    301: "the bucket is in another region; set region",
    400: "the request is not valid: check region and endpoint",
    403: "the credentials in the environment don't allow it",
    404: "there is no such bucket",
}


class _Object(NamedTuple):
    etag: str
    size: int


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key for S3, from the environment. An empty one makes anonymous requests."""

    key: str = ""
    secret: str = ""
    token: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Credentials:
        """The key in the variables that all tools for S3 read."""
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        return cls(*(environment.get(name, "") for name in names))


async def look_through_bucket(origin: S3Origin, desk: Desk, environment: Mapping[str, str]) -> Look:
    """What an S3 origin has now.

    Raises:
        FetchError: it can't be listed.
    """
    region = origin.region or environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
    client = Client(agent=desk.agent, timeout_seconds=origin.timeout_seconds, networks=ALL_NETWORKS)
    endpoint = origin.endpoint or f"https://s3.{region or USUAL_REGION}.amazonaws.com"
    bucket = _Bucket(
        client, f"{endpoint}/{origin.bucket}", region or USUAL_REGION, Credentials.of(environment)
    )
    try:
        return await _look(bucket, origin, desk)
    finally:
        await client.aclose()


async def _look(bucket: _Bucket, origin: S3Origin, desk: Desk) -> Look:
    look = Look()
    look.discovery.whole.add(desk.prefix)
    prefix = origin.prefix.rstrip("/") + "/" if origin.prefix else ""
    objects = {key.removeprefix(prefix): one for key, one in (await bucket.objects(prefix)).items()}
    fetched = 0
    for path, one in objects.items():
        if path.endswith((SIDECAR_SUFFIX, "/")) or not path or not desk.is_wanted(path):
            continue
        uri, sidecar = desk.uri(path), objects.get(path + SIDECAR_SUFFIX)
        if not desk.may_read(path):
            look.ignored(path, uri)
            continue
        token = f"{one.etag} {sidecar.etag if sidecar else ''}".strip()
        look.state[path] = {"uri": uri, "token": token}
        if one.etag and _is_unchanged(desk.before.get(path, {}), path, look, desk):
            continue
        try:
            _check_size(one.size, desk.most_bytes(path), origin.max_bytes - fetched, origin.max_bytes)
            data = await bucket.read(prefix + path, desk.most_bytes(path))
            beside = await bucket.read(prefix + path + SIDECAR_SUFFIX, SIDECAR_BYTES) if sidecar else b""
        except GoneError:
            del look.state[path]  # somebody deleted it meanwhile
        except FetchError as error:
            look.failed(path, str(error))
            look.discovery.kept.add(uri)
            del look.state[path]
        else:
            fetched += len(data)
            if desk.reads(path, data):
                look.discovery.found[uri] = desk.found(path, data, sidecar=beside)
            else:
                look.ignored(path, uri)
                look.state[path]["other"] = True  # no document: it isn't fetched again while it is the same
    return look


def _is_unchanged(before: Mapping[str, Any], path: str, look: Look, desk: Desk) -> bool:
    """Whether an object is what it was `before`: a document that is stored, or none."""
    now = look.state[path]
    if before.get("token") != now["token"]:
        return False
    if before.get("other"):
        look.ignored(path, now["uri"])
        now["other"] = True
        return True
    if not desk.is_current(now["uri"]):
        return False
    look.discovery.unchanged.add(now["uri"])
    return True


def _check_size(size: int, most: int, left: int, in_all: int) -> None:
    """Check that an object may be fetched.

    Raises:
        RefusedError: it is over a limit.
    """
    if size > left:
        raise RefusedError(f"the limit of {in_all / 1e6:,.0f} MB a run is reached (max_bytes)")
    if size > most:
        raise too_large(most)


@dataclass(frozen=True, slots=True)
class _Bucket:
    client: Client
    url: str
    region: str
    credentials: Credentials

    async def objects(self, prefix: str) -> dict[str, _Object]:
        """All objects whose keys begin with the prefix, by key, in the order of keys.

        Raises:
            FetchError: they can't be listed as a whole.
        """
        found: dict[str, _Object] = {}
        after = ""
        while True:
            query = {"list-type": "2", "max-keys": "1000", "prefix": prefix}
            query |= {"continuation-token": after} if after else {}
            page = _listed(await self._get("", query, LISTING_BYTES))
            found |= page.objects
            if not page.is_truncated:
                return dict(sorted(found.items()))
            if not page.after or page.after == after:
                raise FetchError("the bucket's listing does not continue")
            after = page.after

    async def read(self, key: str, most: int) -> bytes:
        """The content of an object.

        Raises:
            GoneError: there is none.
            FetchError: it can't be read.
        """
        return await self._get(f"/{quote(key, safe='/-._~')}", {}, most)

    async def _get(self, path: str, query: Mapping[str, str], most: int) -> bytes:
        written = "&".join(
            f"{quote(name, safe='-._~')}={quote(query[name], safe='-._~')}" for name in sorted(query)
        )
        url = f"{self.url}{path}" + (f"?{written}" if written else "")
        headers = {"Accept-Encoding": "identity"}
        if self.credentials.key:
            headers |= signed(url, self.region, self.credentials, datetime.now(UTC))
        reply = await self.client.get(url, headers, max_bytes=most)
        if reply.status == 404 and path:  # noqa: PLR2004 HTTP's
            raise GoneError("it is gone")
        if reply.status != 200:  # noqa: PLR2004 the same
            raise FetchError(_WHY.get(reply.status, f"the endpoint answers with status {reply.status}"))
        return reply.body


def signed(url: str, region: str, credentials: Credentials, now: datetime) -> dict[str, str]:
    """The headers that sign a GET request for a URL that is percent-encoded, with its query in order.

    Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """
    parts, time = urlsplit(url), now.strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-content-sha256": EMPTY, "x-amz-date": time}
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    names = ";".join(headers)
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = "\n".join(("GET", parts.path or "/", parts.query, lines, names, EMPTY))
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{time}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{credentials.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    by = f"Credential={credentials.key}/{scope},SignedHeaders={names},Signature={signature}"
    return {name: value for name, value in headers.items() if name != "host"} | {
        "Authorization": f"AWS4-HMAC-SHA256 {by}"
    }


class _Listed(NamedTuple):
    objects: dict[str, _Object]
    is_truncated: bool
    after: str


@dataclass(slots=True)
class _Reader:
    """What a listing says, element by element."""

    objects: dict[str, _Object] = field(default_factory=dict)
    top: dict[str, str] = field(default_factory=dict)
    _item: dict[str, str] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)

    def start(self, name: str, _attributes: object) -> None:
        self._open.append(name.rpartition(" ")[2])
        if self._open[1:] == ["Contents"]:
            self._item = {}

    def text(self, part: str) -> None:
        match self._open:
            case [_, "Contents", name]:
                self._item[name] = self._item.get(name, "") + part
            case [_, name]:
                self.top[name] = self.top.get(name, "") + part

    def end(self, _name: str) -> None:
        if self._open[1:] == ["Contents"]:
            etag = self._item.get("ETag", "").strip('"')
            self.objects[self._item["Key"]] = _Object(etag, int(self._item["Size"]))
        self._open.pop()

    def refuse(self, *_declared: object) -> None:
        raise ValueError


def _listed(body: bytes) -> _Listed:
    """The content of a listing.

    Raises:
        FetchError: it is damaged, or no listing.
    """
    reader = _Reader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = reader.text, reader.refuse
    try:
        parser.Parse(body, True)  # noqa: FBT003 expat's own
    except (expat.ExpatError, ValueError, KeyError) as error:
        raise FetchError("the bucket's listing can't be read") from error
    top = reader.top
    if "IsTruncated" not in top:
        raise FetchError("the endpoint's answer is not the listing of a bucket")
    return _Listed(reader.objects, top["IsTruncated"].strip() == "true", top.get("NextContinuationToken", ""))
