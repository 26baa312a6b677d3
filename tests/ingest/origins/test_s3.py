"""Buckets: signed requests, listings in pages, and what is fetched of them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape
from zlib import crc32

import pytest

from rag.config.origins import S3Origin
from rag.config.settings import IngestSettings
from rag.ingest.origins.errors import FetchError
from rag.ingest.origins.look import Desk, Look
from rag.ingest.origins.s3 import Credentials, look_through_bucket, signed
from rag.ingest.spool import Spool

if TYPE_CHECKING:
    from email.message import Message
    from pathlib import Path

    from tests.endpoint import Reply, Site

KEY = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}
PAGE = 2  # objects in a page of a listing


class Bucket:
    """A small S3 endpoint: lists in pages, and answers only requests that are signed with the key."""

    def __init__(self, site: Site, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.site = site
        self.status = 200
        self.is_open = False
        site.answer = self.answer  # type: ignore[method-assign, assignment]

    def answer(self, path: str, headers: Message, _request: object) -> Reply:
        self.site.paths.append(path)
        if not self.is_open and not self._is_signed(path, headers):
            return 403, {}, b""
        parts = urlsplit(path)
        if self.status != 200:
            return self.status, {}, b""
        key = unquote(parts.path.removeprefix("/archive").removeprefix("/"))
        if key:
            return (200, {}, self.objects[key]) if key in self.objects else (404, {}, b"")
        query = parse_qs(parts.query)
        start = int(query.get("continuation-token", ["0"])[0])
        keys = sorted(key for key in self.objects if key.startswith(query.get("prefix", [""])[0]))
        listed = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>&quot;{crc32(self.objects[key])}&quot;</ETag>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in keys[start : start + PAGE]
        )
        more = start + PAGE < len(keys)
        after = f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>" if more else ""
        xmlns = "http://s3.amazonaws.com/doc/2006-03-01/"
        flag = f"<IsTruncated>{str(more).lower()}</IsTruncated>{after}"
        return 200, {}, f'<ListBucketResult xmlns="{xmlns}">{flag}{listed}</ListBucketResult>'.encode()

    def _is_signed(self, path: str, headers: Message) -> bool:
        """Whether the signature is what the key gives for this request, as seen from this side."""
        time = datetime.strptime(headers.get("x-amz-date", "19700101T000000Z") + "+0000", "%Y%m%dT%H%M%SZ%z")
        url = f"http://{headers['Host']}{path}"
        expected = signed(url, "eu-x", Credentials.of(KEY), time)
        return headers["Authorization"] == expected["Authorization"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk("archive", Spool(tmp_path), IngestSettings(), {}, frozenset(), lambda _uri: True)


async def looked(site: Site, desk: Desk, environment: dict[str, str] = KEY, prefix: str = "") -> Look:
    given = {"bucket": "archive", "endpoint": site.url, "region": "eu-x", "prefix": prefix}
    return await look_through_bucket(S3Origin.model_validate({"type": "s3"} | given), desk, environment)


def names(look: Look) -> list[str]:
    return sorted(one.name for one in look.discovery.found.values())


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        ("lifecycle=", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        ("max-keys=2&prefix=J", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_requests_are_signed_as_in_the_examples_of_aws(query: str, signature: str) -> None:
    """Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html"""
    url = f"https://examplebucket.s3.amazonaws.com/?{query}"
    headers = signed(url, "us-east-1", Credentials.of(KEY), datetime(2013, 5, 24, tzinfo=UTC))
    assert re.findall("Signature=(.*)", headers["Authorization"]) == [signature]


@pytest.mark.anyio
async def test_only_what_changed_is_fetched(site: Site, desk: Desk) -> None:
    bucket = Bucket(
        site, {"r/a b&ü.md": b"# A", "r/b.md": b"# B", "r/c.png": b"c", "r/d/": b"", "x.md": b"# X"}
    )
    look = await looked(site, desk, prefix="r")
    assert names(look) == ["a b&ü.md", "b.md"]
    (one, _) = look.discovery.found.values()
    assert (one.uri, one.file.read_bytes()) == (f"origin:archive/{quote('a b&ü.md')}", b"# A")
    bucket.objects |= {"r/b.md": b"# B2", "r/b.md.meta.toml": b"title = 'Beta'"}
    site.paths.clear()
    later = await looked(
        site, replace(desk, before=look.state, stored=frozenset(look.discovery.found)), prefix="r"
    )
    assert (names(later), len(later.discovery.unchanged)) == (["b.md"], 1)
    assert [path for path in site.paths if "list-type" not in path] == [
        "/archive/r/b.md",
        "/archive/r/b.md.meta.toml",
    ]


@pytest.mark.anyio
async def test_a_bucket_that_cannot_be_listed_as_a_whole_is_not_taken_for_an_empty_one(
    site: Site, desk: Desk
) -> None:
    bucket = Bucket(site, {f"{n}.md": b"# N" for n in range(5)})
    with pytest.raises(FetchError, match="the credentials in the environment don't allow it"):
        await looked(site, desk, {})
    bucket.is_open = True
    assert len(names(await looked(site, desk, {}))) == 5  # the control: anonymous
    bucket.status = 503
    with pytest.raises(FetchError, match="the endpoint answers with status 503"):
        await looked(site, desk)
    site.answer = lambda *_: (200, {}, b"<html>a portal</html>")  # type: ignore[method-assign]
    with pytest.raises(FetchError, match="not the listing of a bucket"):
        await looked(site, desk)


@pytest.mark.anyio
async def test_an_object_that_is_too_large_stays_as_it_is(site: Site, desk: Desk) -> None:
    Bucket(site, {"a.md": b"# A", "b.md": b"# B" * 1000})
    look = await looked(site, replace(desk, files=IngestSettings(max_file_bytes=1000)))
    assert names(look) == ["a.md"]
    assert look.discovery.kept == {"origin:archive/b.md"}
    assert "/archive/b.md" not in site.paths
