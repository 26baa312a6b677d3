"""Buckets: who signs requests, listings in pages, and what is fetched of them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from datetime import UTC, datetime
from email.message import Message
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape
from zlib import crc32

import httpx2
import pytest

from rag.config.origin_settings import S3Origin
from rag.config.settings import IngestSettings
from rag.errors import ConfigurationError
from rag.home import MISBEHAVES
from rag.ingest.containers import Spool
from rag.ingest.origins.origin_look import FetchError, OriginContext, OriginFindings
from rag.ingest.origins.s3_bucket import look_through_bucket
from tests.bucket import ObjectStore
from tests.endpoint import Reply, Site

KEY = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}
SIGNED = {"Authorization": "AWS4-HMAC-SHA256 Credential=AKIATESTER/20260101/us-east-1/s3/aws4_request"}
PAGE = 2  # objects in a page of a listing


class Bucket:
    """A small S3 endpoint: lists in pages, and answers only requests that are signed with the key."""

    def __init__(self, site: Site, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.site = site
        self.status = 200
        self.is_open = False
        self.key = KEY["AWS_ACCESS_KEY_ID"]
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
            if key in self.objects:
                return 200, {}, self.objects[key]
            return 404, {}, b"<Error><Code>NoSuchKey</Code><Message>The specified key ...</Message></Error>"
        query = parse_qs(parts.query)
        start = int(query.get("continuation-token", ["0"])[0])
        keys = sorted(key for key in self.objects if key.startswith(query.get("prefix", [""])[0]))
        listed = "".join(
            f"<Contents><Key>{escape(key)}</Key><ETag>&quot;{crc32(self.objects[key])}&quot;</ETag>"
            f"<Size>{len(self.objects[key])}</Size><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys[start : start + PAGE]
        )
        more = start + PAGE < len(keys)
        after = f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>" if more else ""
        xmlns = "http://s3.amazonaws.com/doc/2006-03-01/"
        flag = f"<IsTruncated>{str(more).lower()}</IsTruncated>{after}"
        return 200, {}, f'<ListBucketResult xmlns="{xmlns}">{flag}{listed}</ListBucketResult>'.encode()

    def _is_signed(self, path: str, headers: Message) -> bool:
        """Whether a request has a signature by this key: a listing in a header, an object in its address."""
        scope = f"{self.key}/{datetime.now(UTC):%Y%m%d}/eu-x/s3/aws4_request"
        stated = f"{headers['Authorization'] or ''} {unquote(path)}"
        return f"Credential={scope}" in stated and "Signature=" in stated


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the environment, and no metadata service of a cloud."""
    for name, value in (KEY | {"AWS_METADATA_ENDPOINT": "http://127.0.0.1:9"}).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch, key: None) -> None:  # noqa: ARG001 which it takes away
    for name in KEY:
        monkeypatch.delenv(name)


@pytest.fixture
def desk(tmp_path: Path) -> OriginContext:
    return OriginContext("archive", Spool(tmp_path), IngestSettings(), {}, frozenset(), lambda _uri: True)


async def looked(site: Site, desk: OriginContext, prefix: str = "") -> OriginFindings:
    settings = {"bucket": "archive", "endpoint": site.url, "region": "eu-x", "prefix": prefix}
    return await look_through_bucket(S3Origin.model_validate({"type": "s3"} | settings), desk, os.environ)


def names(look: OriginFindings) -> list[str]:
    return sorted(document.name for document in look.discovery.files.values())


@pytest.mark.anyio
async def test_only_what_changed_is_fetched(site: Site, desk: OriginContext) -> None:
    bucket = Bucket(
        site, {"r/a b&ü.md": b"# A", "r/b.md": b"# B", "r/c.png": b"c", "r/d/": b"", "x.md": b"# X"}
    )
    look = await looked(site, desk, prefix="r")
    assert names(look) == ["a b&ü.md", "b.md"]
    (file, _) = look.discovery.files.values()
    assert (file.uri, file.read_from.read_bytes()) == (f"origin:archive/{quote('a b&ü.md')}", b"# A")
    bucket.objects |= {"r/b.md": b"# B2", "r/b.md.meta.toml": b"title = 'Beta'"}
    site.paths.clear()
    later = await looked(
        site, replace(desk, before=look.state, stored=frozenset(look.discovery.files)), prefix="r"
    )
    assert (names(later), len(later.discovery.unchanged)) == (["b.md"], 1)
    assert [path.partition("?")[0] for path in site.paths if "list-type" not in path] == [
        "/archive/r/b.md",
        "/archive/r/b.md.meta.toml",
        "/archive/r/d",  # the listing names the mark of a folder like a file, and then there is none
    ]


@pytest.mark.anyio
async def test_hidden_objects_are_read_only_if_hidden_files_are(site: Site, desk: OriginContext) -> None:
    keys = ("a.md", ".obsidian/notes.md", "a/.draft.md", "a/..md/c.md")
    Bucket(site, {f".r/{key}": b"# A" for key in keys})
    assert names(await looked(site, desk, prefix=".r")) == ["a.md"]
    all_files = replace(desk, settings=IngestSettings(hidden=True))
    assert names(await looked(site, all_files, prefix=".r")) == sorted(keys)


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_bucket_that_cannot_be_listed_as_a_whole_is_not_taken_for_an_empty_one(
    site: Site, desk: OriginContext
) -> None:
    bucket = Bucket(site, {f"{n}.md": b"# N" for n in range(5)})
    bucket.key = "another"
    with pytest.raises(FetchError, match="don't allow it"):
        await looked(site, desk)
    bucket.key = KEY["AWS_ACCESS_KEY_ID"]
    look = await looked(site, desk)
    assert len(names(look)) == 5  # the control
    bucket.status = 503
    with pytest.raises(FetchError, match=MISBEHAVES):
        await looked(site, desk)
    stored = replace(desk, before=look.state, stored=frozenset(look.discovery.files))
    bucket.status = 200
    del bucket.objects["3.md"]
    later = await looked(site, stored)  # the control: what is gone is not kept
    assert (later.discovery.retained, len(later.discovery.unchanged)) == (set(), 4)


@pytest.mark.anyio
@pytest.mark.usefixtures("no_key")
async def test_without_a_key_only_who_says_so_asks_anonymously(
    site: Site, desk: OriginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(site, {"a.md": b"# A"})
    bucket.is_open = True
    with pytest.raises(FetchError, match=r"no credentials.*AWS_SKIP_SIGNATURE"):
        await looked(site, desk)
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    assert names(await looked(site, desk)) == ["a.md"]
    assert not [path for path in site.paths if "Signature" in path or "none" in path]


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_store_of_its_own_answers_as_expected(
    object_store: ObjectStore, desk: OriginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"{object_store.endpoint}/{object_store.bucket}"
    for name in ("a b&ü.md", "c.md"):
        httpx2.put(f"{address}/r/{quote(name)}", content=b"# Title", headers=SIGNED).raise_for_status()
    settings = {"type": "s3", "bucket": object_store.bucket, "endpoint": object_store.endpoint, "prefix": "r"}
    origin = S3Origin.model_validate(settings)
    first = await look_through_bucket(origin, desk, os.environ)
    assert names(first) == ["a b&ü.md", "c.md"]
    httpx2.delete(f"{address}/r/c.md", headers=SIGNED).raise_for_status()
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "true")
    stored = replace(desk, before=first.state, stored=frozenset(first.discovery.files))
    object_store.open_to_all()
    later = (await look_through_bucket(origin, stored, os.environ)).discovery
    assert (later.unchanged, later.retained) == ({f"origin:archive/{quote('a b&ü.md')}"}, set())


@pytest.mark.anyio
@pytest.mark.usefixtures("no_key")
async def test_a_machine_reads_with_its_own_role(
    site: Site, stranger: Site, desk: OriginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata service of a cloud names a role, and the role's key for some hours."""
    bucket = Bucket(site, {"a.md": b"# A"})
    bucket.key = "ASIAOFROLE"
    key = {
        "AccessKeyId": bucket.key,
        "SecretAccessKey": "s",
        "Token": "t",
        "Expiration": "2099-01-01T00:00:00Z",
    }
    roles = "/latest/meta-data/iam/security-credentials/"
    pages = {"/latest/api/token": b"t", roles: b"reader", f"{roles}reader": json.dumps(key).encode()}
    stranger.answer = lambda path, *_: (200, {}, pages[path])  # type: ignore[method-assign]
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", stranger.url.removesuffix("/v1"))
    assert names(await looked(site, desk)) == ["a.md"]


@pytest.mark.anyio
async def test_a_key_that_the_library_cannot_read_is_named_and_nothing_counts_as_removed(
    site: Site, desk: OriginContext
) -> None:
    Bucket(site, {"a.md": b"# A", "b//c.md": b"# C"})
    with pytest.raises(FetchError, match="a key in it has an empty part"):
        await looked(site, desk)


@pytest.mark.anyio
async def test_an_object_that_redirects_is_not_followed(
    site: Site, stranger: Site, desk: OriginContext
) -> None:
    bucket = Bucket(site, {"a.md": b"# A", "b.md": b"# B"})
    answer = bucket.answer

    def redirecting(path: str, headers: Message, request: object) -> Reply:
        if path.startswith("/archive/b.md"):
            return 302, {"Location": f"{stranger.url}/secret"}, b""
        return answer(path, headers, request)

    site.answer = redirecting  # type: ignore[method-assign]
    look = await looked(site, desk)
    assert names(look) == ["a.md"]
    assert (look.discovery.retained, stranger.requests) == ({"origin:archive/b.md"}, [])


@pytest.mark.anyio
async def test_without_the_extra_the_command_that_installs_it_is_said(
    site: Site, desk: OriginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigurationError, match=r"origins.archive .*extra cloud.*install.*\[cloud\]"):
        await looked(site, desk)


@pytest.mark.anyio
async def test_an_object_that_is_too_large_stays_as_it_is(site: Site, desk: OriginContext) -> None:
    Bucket(site, {"a.md": b"# A", "b.md": b"# B" * 1000})
    look = await looked(site, replace(desk, settings=IngestSettings(max_file_bytes=1000)))
    assert names(look) == ["a.md"]
    assert look.discovery.retained == {"origin:archive/b.md"}
    assert not [path for path in site.paths if "b.md" in path]


@pytest.mark.anyio
async def test_a_document_whose_sidecar_goes_while_the_bucket_is_read_stays_as_it_is(
    site: Site, desk: OriginContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(site, {"a.md": b"# A", "a.md.meta.toml": b"visibility = 'restricted'", "b.md": b"# B"})
    answer = bucket.answer

    def lose_the_sidecar(path: str, headers: Message, request: object) -> Reply:
        reply = answer(path, headers, request)
        if "/a.md?" in path:
            bucket.objects.pop("a.md.meta.toml", None)
        return reply

    monkeypatch.setattr(site, "answer", lose_the_sidecar)
    look = await looked(site, desk)
    assert names(look) == ["b.md"]
    assert look.discovery.retained == {"origin:archive/a.md"}
    later = await looked(site, replace(desk, before=look.state, stored=frozenset({"origin:archive/a.md"})))
    assert names(later) == ["a.md"]  # without a sidecar now, as the bucket has it
