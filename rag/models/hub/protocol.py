"""The HTTP protocol of the Hugging Face hub and its mirrors: what a repository holds, and its files' bytes.

A file is asked for at /REPOSITORY/resolve/COMMIT/PATH. The hub redirects to the servers that hold large
files, and states their SHA-256 beforehand. The token goes to the hub alone, never to where it redirects.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from ssl import SSLError
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import httpx2

from rag.errors import ConfigurationError, ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

HUB = "https://huggingface.co"
MAX_REDIRECTS = 5
TIMEOUT = httpx2.Timeout(60, connect=15)  # seconds; of silence, not of the whole download
LATER = frozenset({408, 429, 500, 502, 503, 504})  # perhaps another time
YES = frozenset({"1", "on", "true", "yes"})
LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})


class LaterError(ProviderError):
    """The hub can't answer now, or the connection broke; what came is kept."""

    def __init__(self, message: str, *, after_seconds: float = 0) -> None:
        super().__init__(message)
        self.after_seconds = after_seconds


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository, its bytes, and what the hub states of its content, in hexadecimal digits.

    Large files have a SHA-256. The others have `blob`, the SHA-1 of git, which covers a header, too.
    """

    path: str
    size: int
    sha256: str = ""
    blob: str = ""


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository at one commit, with its licence as the publisher names it."""

    name: str
    commit: str
    licence: str
    files: tuple[RemoteFile, ...]


@dataclass(frozen=True, slots=True)
class Hub:
    """A hub or its mirror. `token` is sent to `endpoint` only, and only where nobody can listen."""

    client: httpx2.AsyncClient
    endpoint: str = HUB
    token: str = field(default="", repr=False)

    def page(self, repository: str) -> str:
        """Where people read about a repository and its licence."""
        return f"{self.endpoint}/{repository}"

    async def repository(self, name: str, revision: str = "main") -> Repository:
        """What a repository holds at a revision: a branch, a tag or a commit.

        Raises:
            ConfigurationError: there is no such repository or revision, or it wants a token.
            LaterError: the hub can't answer now.
            ProviderError: the hub's answer makes no sense.
        """
        url = f"{self.endpoint}/api/models/{quote(name)}/revision/{quote(revision, safe='')}?blobs=true"
        async with self.answer(url, name) as reply:
            try:
                await reply.aread()
                return _repository(name, reply.json())
            except httpx2.TransportError as error:
                raise LaterError(f"The hub {self.endpoint} broke its answer off.") from error
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise ProviderError(
                    f"The answer of {self.endpoint} on {name} is not that of a model hub. "
                    "Check the environment variable HF_ENDPOINT."
                ) from error

    def file_url(self, repository: str, commit: str, path: str) -> str:
        """The address of a file."""
        return f"{self.endpoint}/{quote(repository)}/resolve/{commit}/{quote(path)}"

    @asynccontextmanager
    async def answer(
        self, url: str, repository: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx2.Response]:
        """A successful answer to a GET request, followed to where the hub redirects; its body isn't read yet.

        Raises:
            ConfigurationError: the hub refuses the request, or there is nothing; another try is no use.
            LaterError: the hub can't answer now, or can't be reached.
        """
        home = target = httpx2.URL(url)
        for _ in range(MAX_REDIRECTS + 1):
            request = self.client.build_request("GET", target, headers=dict(headers or {}))
            request.headers["Accept-Encoding"] = "identity"
            if self.token and _origin(target) == _origin(home) and _confidential(target):
                request.headers["Authorization"] = f"Bearer {self.token}"
            try:
                reply = await self.client.send(request, stream=True)
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                raise self._unreached(target, error) from error
            try:
                if not reply.has_redirect_location:
                    self._check(reply, repository)
                    yield reply
                    return
                target = _redirected(target, reply)
            finally:
                await reply.aclose()
        raise ConfigurationError(f"The hub {self.endpoint} redirects in circles. Check HF_ENDPOINT.")

    def _check(self, reply: httpx2.Response, repository: str) -> None:
        """Turn a refusal into our own words: those of a server never reach a person."""
        status, code = reply.status_code, reply.headers.get("x-error-code", "")
        if reply.is_success or status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            return
        if status in LATER:
            after = reply.headers.get("retry-after", "")
            raise LaterError(
                f"{reply.url.host} can't answer now (HTTP {status}).",
                after_seconds=float(after[:4]) if after.isdecimal() else 0,
            )
        page = self.page(repository)
        match status, code:
            case (_, "GatedRepo") | (403, _):
                self._gated(repository, page)
            case (401, "RepoNotFound") | (404, "RepoNotFound"):
                raise ConfigurationError(
                    f"The hub {self.endpoint} has no model {repository}, or it is private. Check the name. "
                    "For a private model, set HF_TOKEN to a token that may read it."
                )
            case (401, _):
                self._gated(repository, page)
            case (404, "RevisionNotFound"):
                raise ConfigurationError(f"The model {repository} has no such revision. See {page}/commits.")
            case (404, _):
                raise ConfigurationError(
                    f"{self.endpoint} has no file {reply.url.path}. If HF_ENDPOINT names a mirror, it may "
                    "lack this model."
                )
        raise ConfigurationError(f"{reply.url.host} refuses the request (HTTP {status}): {reply.url.path}.")

    def _gated(self, repository: str, page: str) -> NoReturn:
        done = "The token in HF_TOKEN may not read it" if self.token else "HF_TOKEN is not set"
        raise ConfigurationError(
            f"The model {repository} is given only to people who have accepted its licence. {done}. Accept "
            f"the licence on {page}, make a token there that may read the model, and set HF_TOKEN to it."
        )

    def _unreached(self, url: httpx2.URL, error: Exception) -> LaterError | ConfigurationError:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, SSLError):
                return ConfigurationError(
                    f"{url.host} can't be trusted: no authority that this machine knows signed its "
                    "certificate. If your proxy signs, set SSL_CERT_FILE to a file with its certificate."
                )
            cause = cause.__cause__ or cause.__context__
        return LaterError(
            f"{url.host} can't be reached. Without a network, copy the files here and run refdesk-admin "
            "model pull with --from FOLDER. A proxy is taken from HTTPS_PROXY, a mirror from HF_ENDPOINT."
        )


@asynccontextmanager
async def open_hub(environment: Mapping[str, str]) -> AsyncIterator[Hub]:
    """The hub that `environment` names: HF_ENDPOINT for a mirror, HF_TOKEN for a token.

    Proxies and certificates are those of the usual variables (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE).

    Raises:
        ConfigurationError: HF_ENDPOINT is no URL, or HF_HUB_OFFLINE forbids connections.
    """
    if environment.get("HF_HUB_OFFLINE", "").lower() in YES:
        raise ConfigurationError(
            "HF_HUB_OFFLINE is set, so nothing is fetched from the hub. Unset it, or copy the files here and "
            "use --from FOLDER."
        )
    endpoint = environment.get("HF_ENDPOINT", "").strip().rstrip("/") or HUB
    if not endpoint.startswith(("https://", "http://")):
        raise ConfigurationError(f"HF_ENDPOINT is {endpoint!r}. Set it to a URL like {HUB}, or unset it.")
    agent = {"User-Agent": f"refdesk/{version('refdesk')}"}
    try:
        client = httpx2.AsyncClient(headers=agent, timeout=TIMEOUT)
    except (ValueError, OSError) as error:
        raise ConfigurationError(
            "The proxy or the certificates that the environment names can't be used. Check HTTPS_PROXY, "
            "ALL_PROXY, SSL_CERT_FILE and SSL_CERT_DIR."
        ) from error
    async with client:
        yield Hub(client, endpoint, environment.get("HF_TOKEN", "").strip())


def _repository(name: str, body: dict[str, Any]) -> Repository:
    """The hub's answer on a repository."""
    files = tuple(
        RemoteFile(
            str(one["rfilename"]),
            int(one.get("size") or 0),
            str((one.get("lfs") or {}).get("sha256") or ""),
            "" if one.get("lfs") else str(one.get("blobId") or ""),
        )
        for one in body["siblings"]
    )
    licence = (body.get("cardData") or {}).get("license") or ""
    return Repository(
        name, str(body["sha"]), ", ".join(licence) if isinstance(licence, list) else licence, files
    )


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _confidential(url: httpx2.URL) -> bool:
    """Whether a token may go there: encrypted, or on this machine."""
    return url.scheme == "https" or url.host in LOCAL


def _redirected(url: httpx2.URL, reply: httpx2.Response) -> httpx2.URL:
    """Where a reply redirects to.

    Raises:
        ConfigurationError: it leaves encryption.
    """
    target = url.join(reply.headers["location"])
    if url.scheme == "https" and target.scheme != "https":
        raise ConfigurationError(
            f"{url.host} redirects to {target.host} without encryption, which is refused."
        )
    return target
