"""Credentials: API keys, and the pass of a browser for the pages that citations open.

`refdesk-admin key` writes the file of API keys. A key has the form `rdk_{id}_{secret}`. The file stores only
the SHA-256 digest of the secret. A slow password hash would add nothing: the secret is 256 random bits, which
nobody can guess.

A person who signs in to the console may see the whole desk. So the console also gives the browser a pass: a
cookie with its day of issue, signed with a key that only the desk has. A process that shows pages checks it,
for which it only needs to read the desk.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from rag.access.rule import CredentialBoundTo
from rag.corpus import Principal
from rag.errors import ConfigurationError
from rag.home import OTHERS, Bucket, Home, read, refusal

PREFIX = "rdk"
SECRET_BYTES = 32
SEARCH_SCOPE = "refdesk:search"
"""The scope that an API key or an OAuth token needs."""
KEYS = "keys.json"
_NO_DIGEST = hashlib.sha256(b"").hexdigest()


class ApiKey(BaseModel):
    """A stored key, without its secret: its holder, its scopes, when it expires and what it is bound to.

    `replaced_by` is the id of the key that a rotation has put in its place.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    digest: str
    tenant: str
    user: str
    groups: tuple[str, ...]
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime
    bound_to: CredentialBoundTo | None = None
    replaced_by: str | None = None

    @property
    def principal(self) -> Principal:
        """The principal that authenticates with this key."""
        bindings = (self.bound_to.binding,) if self.bound_to else ()
        return Principal(self.tenant, self.user or None, frozenset(self.groups), bindings)


class Keys(BaseModel):
    """The content of the key file. Revoking a key removes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys: tuple[ApiKey, ...] = ()


def keys_file(data: Path) -> Path:
    """The path of a data folder's key file."""
    return data / KEYS


def keys_in(home: Home) -> Keys:
    """The keys of a desk.

    Raises:
        ConfigurationError: as `read_keys`.
        StoreError: the bucket can't be read.
    """
    if not isinstance(home, Bucket):
        return read_keys(keys_file(home))
    return parsed_keys(home.read(KEYS), f"{home}/{KEYS}")


def read_keys(file: Path) -> Keys:
    """The keys in a file; none if the file doesn't exist.

    Raises:
        ConfigurationError: other users can read or write the file, this one can't, or its content is invalid.
    """
    try:
        with file.open("rb") as opened:
            if os.name != "nt":  # of the opened file, which nobody can exchange any more
                _check_private(file, os.fstat(opened.fileno()))
            return parsed_keys(opened.read(), str(file))
    except FileNotFoundError:
        return Keys()
    except PermissionError as error:
        helps = refusal(file, file.parent)
        raise ConfigurationError(f"This user can't read the key file {file}. {helps}") from error
    except OSError as error:
        raise _unreadable(str(file)) from error


def _check_private(file: Path, status: os.stat_result) -> None:
    """The file belongs to this user, or to the data folder's, who can replace it anyway."""
    folder = file.parent.stat().st_uid
    if status.st_mode & OTHERS:
        raise ConfigurationError(f"Other users can read or write the key file {file}. Run: chmod 600 {file}")
    if status.st_uid not in {os.geteuid(), folder}:
        raise ConfigurationError(
            f"The key file {file} belongs to another user, who can change it. Run: chown {folder} {file}"
        )


def parsed_keys(content: bytes | None, file: str) -> Keys:
    """The keys in the content of a key file; None means that there is no file, and so no keys.

    Raises:
        ConfigurationError: the content is invalid.
    """
    try:
        return Keys() if content is None else Keys.model_validate_json(content)
    except ValidationError as error:
        raise _unreadable(file, f" {_mistake(error)}") from error


def _unreadable(file: str, wrong: str = "") -> ConfigurationError:
    return ConfigurationError(
        f"The key file {file} can't be read.{wrong} Restore it from a backup, or delete it and create "
        "new keys with refdesk-admin key create."
    )


def _mistake(error: ValidationError) -> str:
    """Where the file is wrong, like "keys.0.bound_to.filter: …". The content itself isn't shown."""
    details = error.errors(include_input=False)[0]
    location = ".".join(map(str, details["loc"]))
    message = details["msg"].removeprefix("Value error, ").rstrip(".")
    return f"It is wrong at {location}: {message}." if location else ""


def new_secret() -> tuple[str, str]:
    """A new random secret, and its digest."""
    secret = secrets.token_urlsafe(SECRET_BYTES)
    return secret, _digest(secret)


def token_of(key: ApiKey, secret: str) -> str:
    """The token that a key's holder presents: rdk_{id}_{secret}."""
    return f"{PREFIX}_{key.id}_{secret}"


def id_in(text: str) -> str:
    """The id of a key, from the id or from the whole key, as for a leaked one."""
    prefix, _, remainder = text.partition("_")
    return remainder.partition("_")[0] if prefix == PREFIX else text


def holder_of(token: str, keys: Iterable[ApiKey], now: datetime | None = None) -> ApiKey | None:
    """The stored key that `token` presents; None if it is unknown, wrong or expired."""
    prefix, _, remainder = token.partition("_")
    id_, _, secret = remainder.partition("_")
    key = next((candidate for candidate in keys if candidate.id == id_), None)
    # Constant time, and a comparison for unknown ids, too, so that timing reveals nothing.
    matches = hmac.compare_digest(_digest(secret), key.digest if key else _NO_DIGEST)
    valid = matches and prefix == PREFIX and key is not None and key.expires_at > (now or datetime.now(UTC))
    return key if valid else None


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


COOKIE = "refdesk-pages-"  # plus a digest of the desk: a browser may be signed in to several
DESK_KEY = "key"  # the desk's key file; ids are also derived from it
VALID_DAYS = 7
MOST_PASSES = 4  # of a request that are checked


def new_pass(home: Home, now: datetime) -> tuple[str, str] | None:
    """The name and the value of a cookie with a pass; None for a desk without a key, so without documents.

    Raises:
        OSError, StoreError: the key can't be read.
    """
    key = read(home, DESK_KEY)
    return (_cookie(key), _signed(key, now.astimezone(UTC).toordinal())) if key else None


def holds_pass(home: Home, cookies: Iterable[str], now: datetime) -> bool:
    """Whether a request's cookie headers have a pass that is at most `VALID_DAYS` old.

    Raises:
        OSError, StoreError: the key can't be read.
    """
    key, today = read(home, DESK_KEY), now.astimezone(UTC).toordinal()
    if not key:
        return False
    valid = [_signed(key, today - age) for age in range(VALID_DAYS + 1)]
    presented = islice(cookie_values(cookies, _cookie(key)), MOST_PASSES)  # a header may hold thousands
    return any(are_equal(value, pass_) for value in presented for pass_ in valid)


def _cookie(key: bytes) -> str:
    return COOKIE + _keyed_digest(key, "pages")[:8]


def _signed(key: bytes, day: int) -> str:
    return f"{day}.{_keyed_digest(key, f'pages {day}')}"


def _keyed_digest(key: bytes, purpose: str) -> str:
    return hmac.new(key, f"refdesk {purpose}".encode(), hashlib.sha256).hexdigest()


def cookie_values(headers: Iterable[str], name: str) -> Iterator[str]:
    """The values of a cookie in a request's headers.

    Browsers also send cookies of other servers on this host, in any syntax: a strict parser would fail at
    `prefs={"theme":"dark"}` and miss ours.
    """
    for pair in (pair for header in headers for pair in header.split(";")):
        cookie, _, value = pair.strip().partition("=")
        if cookie == name:
            yield value


def are_equal(presented: str, secret: str) -> bool:
    """Whether two secrets are equal, in constant time."""
    return hmac.compare_digest(presented.encode("utf-8", "replace"), secret.encode())
