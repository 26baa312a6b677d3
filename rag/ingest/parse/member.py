"""A document inside another file: what a format that contains others yields."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


@dataclass(slots=True)
class Names:
    """Names that are taken, each only once.

    It remembers the last number that a name was given: to count from 2 again for each of ten thousand members
    of one name would take minutes.
    """

    _taken: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict)

    def add(self, names: Iterable[str]) -> None:
        """Names that are taken, too."""
        self._taken.update(names)

    def take(self, name: str) -> str:
        """Take a name, or it with a number if it is taken: a/b.md -> a/b (2).md."""
        path, unused, number = PurePosixPath(name), name, self._numbers.get(name, 1)
        while unused in self._taken:
            number += 1
            unused = str(path.with_name(f"{path.stem} ({number}){path.suffix}"))
        self._numbers[name] = number
        self._taken.add(unused)
        return unused
