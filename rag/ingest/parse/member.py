"""A document inside another file: what a format that contains others yields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rag.errors import Cause


@dataclass(frozen=True, slots=True)
class Member:
    """A document inside another file. `name` is its path there, with "/".

    `stated` is what the container says of it, in the keys and words of a sidecar: title, date, url, from.
    `refused` is the reason, for people, why it can't be taken out; then it has no data, and `cause` is the
    same for statistics. The container is a failure only if it can't be read at all.
    """

    name: str
    data: bytes = b""
    stated: Mapping[str, str] = field(default_factory=dict)
    refused: str = ""
    cause: Cause = "unsupported"
