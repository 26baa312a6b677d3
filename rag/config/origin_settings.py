"""Where documents come from besides the command line: [origins.NAME], brought in by `refdesk-admin sync`."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from rag.access.rule import Name, check_access
from rag.config.profiles import AbsolutePath, Network, Section, matching
from rag.corpus import Visibility
from rag.errors import as_value_error
from rag.uris import STANDARD_PORTS, web_address


def _page(url: str) -> str:
    address = web_address(url)
    if address is None or urlsplit(address).fragment:
        raise ValueError(f"{url[:80]!r} is not an https:// URL without user name and #")
    return address


_SHORT_SSH = re.compile(r"[A-Za-z0-9][\w.-]*@[A-Za-z0-9][A-Za-z0-9.-]*:[A-Za-z0-9_.~/]\S*", re.ASCII)
"""Git's short form for ssh: git@example.com:group/manual.git. Two colons would make git run a program."""


def _repository(repository: str) -> str:
    if repository.startswith("/") or _SHORT_SSH.fullmatch(repository):
        return repository
    parts = urlsplit(repository)
    if (
        parts.scheme not in {"https", "ssh"}
        or not re.match(r"[a-z0-9]", parts.hostname or "")
        or parts.password
    ):
        raise ValueError(
            "write the absolute path of a checkout, an https:// or ssh:// URL without a password, or "
            "user@host:path"
        )
    if parts.scheme == "https" and parts.username:
        raise ValueError("an https:// URL can't name a user; git's credential helpers know the credentials")
    return repository


PageAddress = Annotated[str, AfterValidator(_page)]
Ref = Annotated[
    str,
    matching(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}", "a branch, a tag or a commit"),
]
Below = Annotated[
    str,
    matching(
        r"(?!(.*/)?\.\.?(/|$))([^/\\\0]+(/[^/\\\0]+)*/?)?", "a path like docs/manual, without a / in front"
    ),
]
Bucket = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", "the name of a bucket")]


class _Origin(Section):
    """The settings of all origins: where their documents go, who may see them, and which are taken.

    `visibility`, `allow` and `deny` are for new documents, like the options of `refdesk-admin ingest`.
    """

    tenant: Name | None = None
    collection: Name = "documents"
    visibility: Visibility | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _valid_access(self) -> _Origin:
        with as_value_error():
            check_access(self.visibility, self.allow, self.deny)
        return self


class FolderOrigin(_Origin):
    """A folder of this machine."""

    type: Literal["folder"]
    path: AbsolutePath


class WebOrigin(_Origin):
    """Pages, sitemaps and feeds, and what pages link to on the same hosts."""

    type: Literal["web"]
    urls: Annotated[tuple[PageAddress, ...], Field(min_length=1, max_length=1000)]
    depth: Annotated[int, Field(ge=0, le=20)] = 0
    max_pages: Annotated[int, Field(ge=1, le=1_000_000)] = 1000
    delay_seconds: Annotated[float, Field(ge=0, le=60)] = 1.0
    private_networks: tuple[Network, ...] = ()

    @property
    def max_bytes(self) -> int:
        """The bytes that a run may fetch: half a megabyte for each page, and at least 500 MB."""
        return max(500_000_000, 500_000 * self.max_pages)

    @property
    def max_seconds(self) -> float:
        """The seconds that a run may take: the delay and 2.6 more for each page, and at least an hour."""
        return max(3600.0, (self.delay_seconds + 2.6) * self.max_pages)

    @model_validator(mode="after")
    def _safe(self) -> WebOrigin:
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme != "https" and not self.private_networks:
                raise ValueError(
                    f"{url[:80]} is not an https:// URL; http:// is only for hosts in private_networks"
                )
            if parts.port not in {None, STANDARD_PORTS[parts.scheme]} and not self.private_networks:
                raise ValueError(f"{url[:80]} names a port; that is only for hosts in private_networks")
        return self


class GitOrigin(_Origin):
    """The files of a git repository at a ref, read from its objects, never from a work tree."""

    type: Literal["git"]
    repository: Annotated[str, AfterValidator(_repository)]
    ref: Ref = "HEAD"
    folder: Below = ""
    dates: bool = False


class S3Origin(_Origin):
    """The objects below a prefix of an S3-compatible bucket. Credentials: the environment's, or a role's."""

    type: Literal["s3"]
    bucket: Bucket
    prefix: Below = ""
    endpoint: Annotated[
        str, matching(r"(https?://[A-Za-z0-9.:\[\]-]+)?", "a URL without a path, like https://s3.example.com")
    ] = ""
    region: Annotated[str, matching(r"[a-z0-9-]{0,40}", "the name of a region, like eu-central-1")] = ""
    max_bytes: Annotated[int, Field(ge=1)] = 10_000_000_000


class RecordsOrigin(_Origin):
    """Records as JSON Lines: from a command, from a file, or else from standard input."""

    type: Literal["records"]
    command: tuple[str, ...] = ()
    file: AbsolutePath | None = None
    folder: AbsolutePath | None = None
    access: Literal["required", "optional"] = "required"
    timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] = 3600.0

    @model_validator(mode="after")
    def _one_of_both(self) -> RecordsOrigin:
        if self.command and self.file:
            raise ValueError("command and file are both set; remove one of them")
        return self


OriginSettings: TypeAlias = Annotated[
    FolderOrigin | WebOrigin | GitOrigin | S3Origin | RecordsOrigin, Field(discriminator="type")
]
ORIGINS: dict[str, type[_Origin]] = {
    "folder": FolderOrigin,
    "web": WebOrigin,
    "git": GitOrigin,
    "s3": S3Origin,
    "records": RecordsOrigin,
}
"""The model of each type."""
