"""What may name a tenant, a collection, a user or a group, and what an access list may hold.

The store joins the names of tenants and collections into table names, and access lists name users and
groups as `user:ann` and `group:hr`. Settings, commands and document metadata all check their input here.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Literal

from rag.corpus import Visibility
from rag.errors import ConfigurationError

DEFAULT_TENANT = "default"
NAME_PATTERN = r"^[a-z0-9]+(?:[-_][a-z0-9]+)*$"
"""Tenants and collections. It excludes `__`, which separates the two in table names."""
NAME_LENGTH = 48
MAX_ENTRIES = 256  # of an access list, and groups of a principal; more is an error, never truncated
MAX_ENTRY_CHARS = 256
ENTRY_KINDS = ("user", "group")


def valid_name(name: str) -> str:
    """`name`, unchanged, if it may name a tenant or a collection.

    Raises:
        ConfigurationError: it may not. The message describes valid names.
    """
    if len(name) <= NAME_LENGTH and re.fullmatch(NAME_PATTERN, name):
        return name
    raise ConfigurationError(
        f"{name[:64]!r} is not a valid name: use up to {NAME_LENGTH} lower-case letters and digits, "
        "separated by single - or _."
    )


def bare_name(kind: Literal["user", "group"], name: str) -> str:
    """`name`, unchanged, if it may name a user or a group without the prefix of an access list entry.

    "group:hr" where "hr" is expected would match nobody, so it is an error rather than a group of that name.

    Raises:
        ConfigurationError: no access list can hold the name, or it already has such a prefix.
    """
    try:
        valid_entries([f"{kind}:{name}"])
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{name[:64]!r} is not a valid name of a {kind}: use up to {MAX_ENTRY_CHARS - len(kind) - 1} "
            "printable characters."
        ) from error
    prefix, _, bare = (part.strip() for part in name.partition(":"))
    if prefix.casefold() == kind:
        raise ConfigurationError(f"Give the {kind}'s name without a prefix: {bare or 'NAME'}, not {name}.")
    if prefix.casefold() in ENTRY_KINDS and bare:
        raise ConfigurationError(f"{name} names a {prefix.casefold()}; give the name of a {kind}.")
    return name


def valid_entries(entries: Iterable[str]) -> frozenset[str]:
    """The entries of an access list, in Unicode normal form NFC.

    Raises:
        ConfigurationError: one is neither user:NAME nor group:NAME, or there are more than `MAX_ENTRIES`.
    """
    checked = frozenset(unicodedata.normalize("NFC", entry) for entry in entries)
    if len(checked) > MAX_ENTRIES:
        raise ConfigurationError(
            f"The access list has {len(checked)} entries; the maximum is {MAX_ENTRIES}. Use a group instead."
        )
    for entry in checked:
        kind, _, name = entry.partition(":")
        if (
            kind not in ENTRY_KINDS
            or not name.strip()
            or len(entry) > MAX_ENTRY_CHARS
            or not name.isprintable()
        ):
            raise ConfigurationError(
                f"{entry[:64]!r} is not a valid access list entry; write user:NAME or group:NAME."
            )
    return checked


def check_access(visibility: Visibility | None, allow: Iterable[str], deny: Iterable[str]) -> None:
    """Raise ConfigurationError if an entry is invalid, or `visibility` opens what `allow` restricts."""
    if visibility == "tenant" and any(allow):
        raise ConfigurationError(
            "visibility tenant already lets everybody in the tenant see it; remove allow, or set visibility "
            "to restricted."
        )
    valid_entries(allow)
    valid_entries(deny)
