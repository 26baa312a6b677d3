"""API keys: what the file of keys holds, and whose a key is. `refdesk-admin key` writes it.

A key reads `rdk_{id}_{secret}`. The secret is 256 random bits, so the file keeps a plain SHA-256 of it;
slow hashes are for what people choose.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from rag.corpus import Principal
from rag.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PREFIX = "rdk"
SECRET_BYTES = 32
OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NO_DIGEST = hashlib.sha256(b"").hexdigest()


class ApiKey(BaseModel):
    """A key without its secret: who holds it, what for, and until when."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    digest: str
    tenant: str
    user: str
    groups: tuple[str, ...]
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime

    @property
    def principal(self) -> Principal:
        """Who asks with this key."""
        return Principal(self.tenant, self.user or None, frozenset(self.groups))


class Keys(BaseModel):
    """The file of keys. A key that is revoked is in it no more."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: tuple[ApiKey, ...] = ()


def keys_file(data: Path) -> Path:
    """Where the keys of a data folder are."""
    return data / "keys.json"


def read_keys(file: Path) -> Keys:
    """The keys of a file; none where there is no file.

    Raises:
        ConfigurationError: others than its owner can read it, or it isn't what `refdesk-admin key` wrote.
    """
    try:
        with file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if os.name != "nt" and (status.st_mode & OTHERS or status.st_uid != os.geteuid()):
                raise ConfigurationError(
                    f"Others can read or write {file}, which holds the keys. Keep them out: chmod 600 {file}."
                )
            return Keys.model_validate_json(opened.read())
    except FileNotFoundError:
        return Keys()
    except (OSError, ValidationError) as error:
        raise ConfigurationError(
            f"The keys in {file} can't be read; refdesk-admin key makes new ones."
        ) from error


def new_secret() -> tuple[str, str]:
    """A new secret and its digest."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    return secret, _digest(secret)


def written(key: ApiKey, secret: str) -> str:
    """A key as its holder has it."""
    return f"{PREFIX}_{key.id}_{secret}"


def holder_of(token: str, keys: Iterable[ApiKey], now: datetime | None = None) -> ApiKey | None:
    """The key that a token is, None if it is none or no longer.

    Takes as long for a wrong id as for a wrong secret.
    """
    prefix, _, rest = token.partition("_")
    id_, _, secret = rest.partition("_")
    key = next((one for one in keys if one.id == id_), None)
    same = hmac.compare_digest(_digest(secret), key.digest if key else _NO_DIGEST)
    valid = same and prefix == PREFIX and key is not None and key.expires_at > (now or datetime.now(UTC))
    return key if valid else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
