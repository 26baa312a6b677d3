"""Where a desk keeps its documents, keys and rights, if not in its data folder.

Credentials have no place here: they come from the environment, or from the machine's role.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from rag.config.profiles import Section, matching
from rag.home import Bucket


class StorageOptions(Section):
    """How an object store is reached. `account_name` is for `az://`."""

    endpoint: Annotated[
        str, matching(r"(https?://[^\s/@?#]+(/[^\s@?#]*)?)?", "a URL like https://s3.example.com:9000")
    ] = ""
    region: str = ""
    account_name: str = ""
    virtual_hosted_style_request: bool = False
    skip_signature: bool = False
    allow_http: bool = False

    @model_validator(mode="after")
    def _encrypted(self) -> StorageOptions:
        if self.endpoint.startswith("http://") and not self.allow_http:
            raise ValueError("endpoint is not encrypted; begin it with https://, or set allow_http = true")
        return self


def _not_a_service(uri: object) -> object:
    """LanceDB Enterprise has no files that can be listed, copied or maintained, on which the store relies."""
    if isinstance(uri, str) and uri.strip().lower().startswith("db://"):
        raise ValueError(
            "db:// is LanceDB Enterprise or Cloud, which refdesk can't use; "
            "write a bucket that holds a desk, like s3://bucket/desk"
        )
    return uri


class StorageSettings(Section):
    """The bucket of a desk, and the delay after which servers know what others have changed in it."""

    uri: Annotated[
        str,
        BeforeValidator(_not_a_service),
        matching(
            r"((s3|az|gs)://[A-Za-z0-9][A-Za-z0-9._-]+(/[A-Za-z0-9][A-Za-z0-9._-]*)*/?)?",
            "a bucket and a prefix like s3://bucket/desk",
        ),
    ] = ""
    consistency_seconds: Annotated[float, Field(ge=0, le=3600)] = 5.0
    options: StorageOptions = StorageOptions()

    @property
    def bucket(self) -> Bucket | None:
        """The bucket, None if there is none. The same settings always give the same object."""
        return bucket_at(self.uri, self.options, self.consistency_seconds) if self.uri else None


@lru_cache(maxsize=16)
def bucket_at(uri: str, options: StorageOptions, consistency_seconds: float = 0) -> Bucket:
    """The bucket at an address."""
    given = options.model_dump(exclude_defaults=True)
    texts = {name: str(value).lower() if value is True else str(value) for name, value in given.items()}
    return Bucket(uri, texts, consistency_seconds=consistency_seconds)
