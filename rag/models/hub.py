"""The Hugging Face hub and its mirrors: the files of a repository, and their download.

Its library `huggingface_hub` handles addresses, redirects, refusals and retries. Its cache, its stored
tokens, its telemetry and its transfers by `hf_xet` are not used. `_client` restricts requests.

A download is resumable, and gets its final name only after its bytes were verified.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.metadata import version
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import httpx2
from huggingface_hub import HfApi, close_session, constants, set_client_factory
from huggingface_hub import errors as hub_errors
from huggingface_hub.file_download import hf_hub_url, http_get
from huggingface_hub.utils.tqdm import silent_tqdm

from rag.errors import ConfigurationError, ProviderError, StoreError
from rag.models.web_client import blocking_client

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo
    from typing_extensions import Buffer

HUB = "https://huggingface.co"
MAX_REDIRECTS = 5
SILENCE_SECONDS = 60  # timeout of a description; of a file it is HF_HUB_DOWNLOAD_TIMEOUT, 10
LATER = frozenset({408, 429, 500, 502, 503, 504})  # statuses that may go away
YES = frozenset({"1", "on", "true", "yes"})
LOCAL = frozenset({"127.0.0.1", "::1", "localhost"})
AGENT = f"refdesk/{version('refdesk')}"

constants.HF_HUB_DISABLE_TELEMETRY = True  # else it asks the hub which assistants there are, and names ours
constants.DOWNLOAD_CHUNK_SIZE = 1 << 14  # bytes; a chunk that isn't full yet is lost when the line breaks
logging.getLogger("huggingface_hub").setLevel(
    logging.ERROR
)  # its warnings quote addresses with signatures, and headers of the server


class LaterError(ProviderError):
    """The hub can't answer now, or the connection broke; received bytes are kept."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a repository: its size, and the checksums that the hub states, in hexadecimal digits.

    Large files have a SHA-256. Others have `blob`, git's SHA-1, which includes a header.
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
    """A hub or its mirror. `token` is sent only to `endpoint`, and only encrypted or on this machine."""

    endpoint: str = HUB
    token: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request for a file."""
        return {"authorization": f"Bearer {self.token}"} if self.token else {}

    def page(self, repository: str) -> str:
        """The web page about a repository and its licence."""
        return f"{self.endpoint}/{repository}"

    def repository(self, name: str, revision: str = "main") -> Repository:
        """A repository at a revision: a branch, a tag or a commit.

        Raises:
            ConfigurationError: the repository or revision doesn't exist, or needs a token.
            LaterError: the hub can't answer now.
            ProviderError: the hub's answer is invalid.
        """
        api = HfApi(endpoint=self.endpoint, token=self.token or False)
        try:
            with self.errors(name):
                model = api.model_info(name, revision=revision, files_metadata=True, timeout=SILENCE_SECONDS)
            return _repository(name, model)
        except hub_errors.HFValidationError as error:
            raise ConfigurationError(
                f"{name} can't be the name of a model on a hub. Check the name."
            ) from error
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise ProviderError(
                f"{self.endpoint} doesn't answer about {name} as a model hub does. Check the environment "
                "variable HF_ENDPOINT."
            ) from error

    @contextmanager
    def errors(self, repository: str) -> Iterator[None]:
        """Turn the library's errors into ours, without text of the server.

        Raises:
            ConfigurationError: the hub refuses, or has no such file; a retry is useless.
            LaterError: the hub can't answer now, or can't be reached.
        """
        try:
            yield
        except hub_errors.HfHubHTTPError as error:
            if error.response.status_code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:  # nothing is missing
                self._refuse(error, repository)
        except httpx2.TooManyRedirects as error:
            raise ConfigurationError(
                f"The hub {self.endpoint} redirects in circles. Check HF_ENDPOINT."
            ) from error
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise self._network_error(error) from error

    def _refuse(self, error: hub_errors.HfHubHTTPError, repository: str) -> NoReturn:
        url, status = error.response.url, error.response.status_code
        refusal = f"{url.host} refuses the request (HTTP {status}): {url.path}."
        if status in LATER:
            raise LaterError(
                f"{url.host} can't answer now (HTTP {status}). Run the same command again."
            ) from error
        if isinstance(error, hub_errors.GatedRepoError) or status == HTTPStatus.FORBIDDEN:
            refusal = self._licence_message(repository)
        elif isinstance(error, hub_errors.RepositoryNotFoundError):
            refusal = (
                f"The hub {self.endpoint} has no model {repository}, or it is private. Check the name. For a "
                "private model, set HF_TOKEN to a token that may read it."
            )
        elif status == HTTPStatus.UNAUTHORIZED:
            refusal = self._licence_message(repository)
        elif isinstance(error, hub_errors.RevisionNotFoundError):
            refusal = f"The model {repository} has no such revision. See {self.page(repository)}/commits."
        elif status == HTTPStatus.NOT_FOUND:
            mirror = "If HF_ENDPOINT names a mirror, it may lack this model."
            refusal = f"{self.endpoint} has no file {url.path}. {mirror}"
        raise ConfigurationError(refusal) from error

    def _licence_message(self, repository: str) -> str:
        token = "The token in HF_TOKEN may not read it" if self.token else "HF_TOKEN is not set"
        return (
            f"The model {repository} is given only to people who have accepted its licence. {token}. Accept "
            f"the licence on {self.page(repository)}, make a token there that may read the model, and set "
            "HF_TOKEN to it."
        )

    def _network_error(self, error: Exception) -> LaterError | ConfigurationError:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return ConfigurationError(
                f"{self.endpoint} can't be trusted: no authority that this machine knows signed its "
                "certificate. If your proxy signs, set SSL_CERT_FILE to a file with its certificate."
            )
        if isinstance(error, (httpx2.ReadError, httpx2.RemoteProtocolError, httpx2.ReadTimeout)):
            return LaterError(
                f"The connection to {self.endpoint} broke. What came is kept: run the same command again."
            )
        return LaterError(
            f"{self.endpoint} can't be reached. Without a network, copy the files here and run refdesk-admin "
            "model pull with --from FOLDER. A proxy is taken from HTTPS_PROXY, a mirror from HF_ENDPOINT."
        )


@contextmanager
def open_hub(environment: Mapping[str, str]) -> Iterator[Hub]:
    """The hub that `environment` names: HF_ENDPOINT for a mirror, HF_TOKEN for a token.

    Proxies and certificates are those of the usual variables (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE).

    Raises:
        ConfigurationError: HF_ENDPOINT isn't a URL, or HF_HUB_OFFLINE forbids connections.
    """
    if environment.get("HF_HUB_OFFLINE", "").lower() in YES:
        raise ConfigurationError(
            "HF_HUB_OFFLINE is set, so nothing is fetched from the hub. Unset it, or copy the files here and "
            "use --from FOLDER."
        )
    endpoint = environment.get("HF_ENDPOINT", "").strip().rstrip("/") or HUB
    if not endpoint.startswith(("https://", "http://")):
        raise ConfigurationError(f"HF_ENDPOINT is {endpoint!r}. Set it to a URL like {HUB}, or unset it.")
    hub = Hub(endpoint, environment.get("HF_TOKEN", "").strip())
    set_client_factory(lambda: _client(hub))
    try:
        yield hub
    finally:
        close_session()


def _client(hub: Hub) -> httpx2.Client:
    home = httpx2.URL(hub.endpoint)

    def restrict(request: httpx2.Request) -> None:
        """Before each request, also a redirected one: require encryption; send the token only to the hub."""
        url = request.url
        if home.scheme == "https" != url.scheme:
            raise ConfigurationError(
                f"{home.host} redirects to {url.host} without encryption, which is refused."
            )
        if _origin(url) != _origin(home) or not (url.scheme == "https" or url.host in LOCAL):
            request.headers.pop("authorization", None)
        request.headers.update({"accept-encoding": "identity", "user-agent": AGENT})

    def bound_wait(response: httpx2.Response) -> None:
        """Limit the wait that a server asks for: above 999 seconds the library decides itself."""
        for name in ("retry-after", "ratelimit"):
            if re.search(r"\d{4}", response.headers.get(name, "")):
                del response.headers[name]

    return blocking_client(
        event_hooks={"request": [restrict], "response": [bound_wait]},
        follow_redirects=True,
        max_redirects=MAX_REDIRECTS,
        timeout=SILENCE_SECONDS,
    )


def _repository(name: str, model: ModelInfo) -> Repository:
    files = tuple(
        RemoteFile(
            file.rfilename,
            int(file.size or 0),
            file.lfs.sha256 if file.lfs else "",
            "" if file.lfs else file.blob_id or "",
        )
        for file in model.siblings or ()
    )
    licence = (model.card_data and model.card_data.get("license")) or ""
    return Repository(
        name, str(model.sha), ", ".join(licence) if isinstance(licence, list) else str(licence), files
    )


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


PART = ".part"
READ_BYTES = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)


class WrongBytesError(ProviderError):
    """A file's bytes don't match its checksum or size. It was deleted."""


@dataclass(frozen=True, slots=True)
class HubCommit:
    """The origin of a file: the hub, the repository and the commit."""

    hub: Hub
    repository: str
    commit: str

    def url(self, file: RemoteFile) -> str:
        """The address of a file."""
        return hf_hub_url(self.repository, file.path, revision=self.commit, endpoint=self.hub.endpoint)


def download(origin: HubCommit, file: RemoteFile, target: Path, came: Callable[[int], None]) -> str:
    """Fetch a file to `target`, and return its SHA-256. `came` is called with the numbers of received bytes.

    It resumes an interrupted download, and reconnects if the connection breaks.

    Raises:
        WrongBytesError: the bytes are not those of `file`; none are kept.
        LaterError: the hub can't be reached, or keeps breaking off; received bytes are kept.
        ConfigurationError: the hub refuses, or the folder can't be written.
        StoreError: the disk is full.
    """
    part = target.with_name(target.name + PART)
    with _writing(part):
        resumed = _size(part)
        came(resumed)
        if not file.size or resumed < file.size:
            _append(origin, file, part, came)
        if sha256 := _checked_digest(part, file):
            part.replace(target)
            return sha256
        came(-_size(part))
        part.unlink()
    if resumed:  # the old part may be of another file: start over once
        return download(origin, file, target, came)
    raise WrongBytesError(
        f"{origin.url(file)} has not the bytes that it must have, so it was deleted. If a mirror or a proxy "
        "stands between, it may have changed the file."
    )


def _append(origin: HubCommit, file: RemoteFile, part: Path, came: Callable[[int], None]) -> None:
    """Fetch the bytes that `part` lacks."""
    try:
        with _Part(part, file.size, came) as opened, origin.hub.errors(origin.repository):
            http_get(
                origin.url(file),
                opened,
                resume_size=opened.tell(),
                headers=origin.hub.headers,
                tqdm_class=silent_tqdm,  # type: ignore[arg-type]  # the library's own stand-in
            )
    except WrongBytesError as error:
        part.unlink()
        raise WrongBytesError(f"{origin.url(file)} {error}") from error
    except (ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise LaterError(f"{origin.hub.endpoint} states no possible size of {file.path}.") from error
    if _size(part) < file.size:
        raise LaterError(
            f"{origin.hub.endpoint} sent only a part of {file.path}. What came is kept: run the same command "
            "again."
        )


class _Part(FileIO):
    """The received part of a file. The library appends, or starts over if a hub ignores the range.

    At most `limit` bytes are accepted, any number if it is 0.
    """

    def __init__(self, path: Path, limit: int, came: Callable[[int], None]) -> None:
        super().__init__(path, "ab")
        self._limit, self._came = limit, came

    def write(self, block: Buffer) -> int:
        """Append a block."""
        if self._limit and self.tell() + memoryview(block).nbytes > self._limit:
            raise WrongBytesError(f"is larger than {self._limit:,} bytes, its size. It was deleted.")
        count = super().write(block)
        self._came(count)
        return count

    def truncate(self, size: int | None = None) -> int:
        """Cut the file."""
        before = os.fstat(self.fileno()).st_size
        after = super().truncate(size)
        self._came(after - before)
        return after


def _checked_digest(path: Path, file: RemoteFile) -> str:
    """The SHA-256 of a file; empty if its bytes don't match `file`."""
    size = _size(path)
    sha256 = hashlib.sha256()
    blob = hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as opened:
        while block := opened.read(READ_BYTES):
            sha256.update(block)
            if file.blob:  # large files have a SHA-256 alone
                blob.update(block)
    digest = sha256.hexdigest()
    is_right = (
        (not file.size or size == file.size)
        and file.sha256 in {"", digest}
        and file.blob in {"", blob.hexdigest()}
    )
    return digest if is_right else ""


def checked_copy(source: Path, file: RemoteFile, target: Path) -> str:
    """Copy a file from a folder, and return its SHA-256; the same check as of a download.

    Raises:
        WrongBytesError: the bytes are not those of `file`; the copy is deleted.
        ConfigurationError: a file can't be read or written.
        StoreError: the disk is full.
    """
    part = target.with_name(target.name + PART)
    with _writing(part):
        shutil.copyfile(source, part)
        if sha256 := _checked_digest(part, file):
            part.replace(target)
            return sha256
        part.unlink()
    raise WrongBytesError(f"{source} has other bytes than it must have. Copy it from the hub again.")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turns the operating system's errors about a file into ours."""
    try:
        yield
    except OSError as error:
        name = error.filename or path
        if error.errno in FULL:
            raise StoreError(
                f"The disk is full: {name}. Make room, and run the same command again."
            ) from error
        raise ConfigurationError(f"{name} can't be read or written: {error.strerror}.") from error
