"""Looks through the objects below a prefix of an S3-compatible bucket.

The listing has each object's ETag, so an unchanged one costs no request. Requests are signed with version 4
of AWS's signature; without credentials in the environment they are anonymous.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from anyio import to_thread

from rag.config.origin_settings import S3Origin
from rag.errors import ConfigurationError
from rag.home import CONNECT_SECONDS, RETRIES, RETRY_SECONDS, reason
from rag.ingest.origins.guarded_http import REQUEST_SECONDS, Client, too_large
from rag.ingest.origins.origin_look import FetchError, GoneError, OriginContext, OriginFindings, RefusedError
from rag.originals import SIDECAR_BYTES, SIDECAR_SUFFIX
from rag.runtime import extra_needed

ALL_NETWORKS = ("0.0.0.0/0", "::/0")  # the operator names the endpoint, and redirects are not followed
ANONYMOUS = "AWS_SKIP_SIGNATURE"  # the library's own variable
_WHY = {
    301: "the bucket is in another region; set region",
    400: "the request is not valid: check region and endpoint",
    403: "the credentials don't allow it",
}
_NO_KEY = (
    "there are no credentials, neither in the environment nor as this machine's role; for a bucket that "
    f"everybody may read, set {ANONYMOUS}=true in the environment"
)
_WORDS = {  # in the text of an error of the library
    "latest/api/token": _NO_KEY,  # before the next ones: the metadata service may refuse, too
    "security-credentials": _NO_KEY,
    "invalid path": "a key in it has an empty part (a//b), a part . or .., or a control character, which "
    "can't be read; rename the object, or set a prefix without it",
    "edirect": _WHY[301],
    "403 Forbidden": _WHY[403],
}


class _Object(NamedTuple):
    etag: str
    size: int


async def look_through_bucket(
    origin: S3Origin, context: OriginContext, environment: Mapping[str, str]
) -> OriginFindings:
    """Discover the objects of an S3 origin. The library itself reads the variables AWS_… of this process.

    Raises:
        ConfigurationError: the library isn't installed, or a variable is not valid.
        FetchError: it can't be listed.
    """
    is_open = environment.get(ANONYMOUS, "").lower() in {"1", "true"}
    client = Client(agent=context.agent, networks=ALL_NETWORKS)
    bucket = _Bucket(client, _store(origin, context.name, is_open=is_open), is_open)
    try:
        return await _discover(bucket, origin, context)
    finally:
        await client.aclose()


def _store(origin: S3Origin, name: str, *, is_open: bool) -> Any:  # noqa: ANN401 its package is only there with the extra
    try:
        from obstore.store import S3Store  # noqa: PLC0415 few desks have such an origin
    except ModuleNotFoundError as error:
        raise ConfigurationError(extra_needed("cloud", f"origins.{name}")) from error
    stated = {"endpoint": origin.endpoint, "region": origin.region}
    options: Any = {option: value for option, value in stated.items() if value}
    if is_open:  # else it asks for credentials to make addresses
        options |= {"skip_signature": True, "access_key_id": "none", "secret_access_key": "none"}
    try:
        return S3Store(
            origin.bucket,
            config=options,
            client_options={
                "allow_http": origin.endpoint.startswith("http://"),
                "timeout": timedelta(seconds=REQUEST_SECONDS),
                "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            },
            retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=RETRY_SECONDS)},
        )
    except Exception as error:
        raise ConfigurationError(
            f"origins.{name} can't be opened: a setting of it or a variable AWS_… of the environment is not "
            "valid."
        ) from error


async def _discover(bucket: _Bucket, origin: S3Origin, context: OriginContext) -> OriginFindings:
    findings = OriginFindings()
    findings.discovery.whole.add(context.prefix)
    prefix = origin.prefix.rstrip("/") + "/" if origin.prefix else ""
    objects = {key.removeprefix(prefix): entry for key, entry in (await bucket.objects(prefix)).items()}
    fetched = 0

    async def contents(path: str) -> tuple[bytes, bytes]:
        nonlocal fetched
        max_bytes = context.most_bytes(path)
        _check_size(objects[path].size, max_bytes, origin.max_bytes - fetched, origin.max_bytes)
        data, sidecar = await bucket.read(prefix + path, max_bytes), path + SIDECAR_SUFFIX
        fetched += len(data)
        return data, await _sidecar(bucket, prefix + sidecar) if sidecar in objects else b""

    for path, entry in objects.items():
        if path.endswith(SIDECAR_SUFFIX) or not path or not context.is_wanted(path):
            continue
        if not context.may_read(path):
            findings.ignored(path, context.uri(path))
            continue
        sidecar = objects.get(path + SIDECAR_SUFFIX)
        token = f"{entry.etag} {sidecar.etag if sidecar else ''}".strip() if entry.etag else ""
        await findings.take(context, path, token, partial(contents, path))
    return findings


async def _sidecar(bucket: _Bucket, key: str) -> bytes:
    """The sidecar of a listed object.

    Raises:
        FetchError: it can't be read, or it is gone. Without it, a document could get too wide access.
    """
    try:
        return await bucket.read(key, SIDECAR_BYTES)
    except GoneError as error:
        raise FetchError(
            "its sidecar was deleted while the bucket was read; the next sync reads it"
        ) from error


def _check_size(size: int, max_bytes: int, bytes_left: int, in_all: int) -> None:
    """Check that an object may be fetched.

    Raises:
        RefusedError: it is over a limit.
    """
    if size > bytes_left:
        raise RefusedError(f"the limit of {in_all / 1e6:,.0f} MB a run is reached (max_bytes)")
    if size > max_bytes:
        raise too_large(max_bytes)


@dataclass(frozen=True, slots=True)
class _Bucket:
    client: Client
    store: Any
    is_open: bool
    """Whether requests are sent without a signature."""

    async def objects(self, prefix: str) -> dict[str, _Object]:
        """All objects whose keys begin with the prefix, by key, in the order of keys.

        Raises:
            FetchError: they can't be listed as a whole.
        """
        return await to_thread.run_sync(self._list_objects, prefix, abandon_on_cancel=True)

    def _list_objects(self, prefix: str) -> dict[str, _Object]:
        try:
            listed = [entry for batch in self.store.list(prefix) for entry in batch]
        except Exception as error:
            raise FetchError(_why(error)) from error
        objects = {
            entry["path"]: _Object((entry["e_tag"] or "").strip('"'), entry["size"]) for entry in listed
        }
        return dict(sorted(objects.items()))

    async def read(self, key: str, max_bytes: int) -> bytes:
        """The content of an object.

        Raises:
            GoneError: the bucket has no object of this key.
            FetchError: it can't be read.
        """
        url = await to_thread.run_sync(self._url, key, abandon_on_cancel=True)
        reply = await self.client.get(url, {"Accept-Encoding": "identity"}, max_bytes=max_bytes)
        if reply.status == 404:  # noqa: PLR2004 HTTP's
            raise GoneError("it is gone")
        if reply.status != 200:  # noqa: PLR2004 the same
            raise FetchError(_WHY.get(reply.status, f"the endpoint answers with status {reply.status}"))
        return reply.body

    def _url(self, key: str) -> str:
        """The address of an object, with a signature that holds for one request."""
        from obstore import sign  # noqa: PLC0415 few desks have such an origin

        try:
            url = sign(self.store, "GET", key, timedelta(seconds=REQUEST_SECONDS + 60))
        except Exception as error:
            raise FetchError(_why(error)) from error
        return url.partition("?")[0] if self.is_open else url


def _why(error: Exception) -> str:
    """Why the library failed, in our own words: its text quotes the endpoint."""
    text = str(error)
    return next((words for part, words in _WORDS.items() if part in text), reason(error))
