"""What `.gitignore` and `.refdeskignore` leave out of a folder.

Both have git's patterns, count for the folder that they lie in and below, and a deeper one goes before those
above it. In one folder, `.refdeskignore` goes before `.gitignore`. As with git, nothing in an ignored folder
can be brought back. Ignore files above the ingested folder don't count.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rag.errors import ParseError
from rag.ingest.parse.decode import unicode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pathspec import GitIgnoreSpec

IGNORE_FILES = (".gitignore", ".refdeskignore")
MAX_BYTES = 1_000_000
MAX_PATTERN = 1000  # characters
MAX_STARS = 3  # in a pattern: with more, a hostile one takes minutes to match a name
MAX_DEEP = 2  # "**/" in a pattern: with 3, one takes 26 seconds to match 2,000 folders in each other
MAX_COST = 20_000
"""Of all patterns of a file: each is matched with each path, and each star takes ten times as long."""
_STARS = re.compile(r"\*+")


@dataclass(slots=True)
class Ignoring:
    """The patterns of the folders that were entered, and the paths that these leave out."""

    paths: set[str] = field(default_factory=set)
    _specs: dict[Path, tuple[tuple[Path, GitIgnoreSpec], ...]] = field(default_factory=dict)

    def enter(self, folder: Path, names: Iterable[str], read: Callable[[Path], bytes | None]) -> None:
        """Learn the patterns of a folder with files of these names, after those of the folder above it.

        Raises:
            ParseError: one of its ignore files can't be read: nobody knows what it means to leave out.
        """
        own = [*self._specs.get(folder.parent, ())]
        written = set(names)
        if lines := [
            line for name in IGNORE_FILES if name in written for line in _lines(folder / name, read)
        ]:
            own.append((folder, _spec(lines)))
        self._specs[folder] = tuple(own)

    def leaves_out(self, path: Path, *, is_folder: bool) -> bool:
        """Whether an entry of a folder that was entered is ignored. Then it is noted."""
        for base, spec in reversed(self._specs.get(path.parent, ())):
            name = path.relative_to(base).as_posix()
            included = spec.check_file(f"{name}/" if is_folder else name).include
            if included is not None:
                if included:
                    self.paths.add(str(path))
                return included
        return False

    def covers(self, path: Path) -> bool:
        """Whether a path was left out, or a folder that it lies in."""
        return bool(self.paths) and any(str(one) in self.paths for one in (path, *path.parents))


def _lines(file: Path, read: Callable[[Path], bytes | None]) -> list[str]:
    try:
        lines = unicode_text(read(file) or b"", "surrogateescape").splitlines()  # names can be any bytes
    except ParseError as error:
        raise ParseError(f"its {file.name}: {error}", error.cause) from error
    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    if any(len(one) > MAX_PATTERN or _stars(one) > MAX_STARS or _deep(one) > MAX_DEEP for one in patterns):
        raise ParseError(f"its {file.name} has a pattern that is too long or has too many stars", "too large")
    if sum(10 ** max(1, _stars(one)) for one in patterns) > MAX_COST:
        reason = "has too many patterns, or too many with several stars: leave some out"
        raise ParseError(f"its {file.name} {reason}", "too large")
    return patterns


def _stars(pattern: str) -> int:
    """The stars that take time; what a pattern begins with means nothing in most."""
    return len(_STARS.findall(pattern.removeprefix("!").removeprefix("**/")))


def _deep(pattern: str) -> int:
    return pattern.count("**/")


def _spec(lines: list[str]) -> GitIgnoreSpec:
    """The patterns. One that git would pass over as invalid is passed over here, too."""
    from pathspec import GitIgnoreSpec  # noqa: PLC0415 only where there is an ignore file

    valid = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue
        valid.append(line)
    return GitIgnoreSpec.from_lines(valid)
