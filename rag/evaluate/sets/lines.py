"""Lines of JSON, and what the questions of all kinds of sets have in common."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.config.mistakes import described
from rag.config.settings import GroupName, Name, UserName
from rag.corpus import Principal
from rag.errors import ConfigurationError
from rag.evaluate.sets.judged import Asking

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

M = TypeVar("M", bound=BaseModel)
Names = Annotated[tuple[str, ...], Field(min_length=1)]


class PrincipalLine(BaseModel):
    """Who asks, as a judged set writes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tenant: Name
    user: UserName | None = None
    groups: frozenset[GroupName] = frozenset()

    def principal(self) -> Principal:
        """As a record."""
        return Principal(self.tenant, self.user, self.groups)


class AskingLine(BaseModel):
    """Who asks, and how the search is restricted."""

    principal: PrincipalLine | None = None
    collections: Names | None = None
    sources: Names | None = None
    exclude_sources: tuple[str, ...] = ()
    filter: dict[str, Any] | None = None

    def asking(self) -> Asking:
        """As a record."""
        who = self.principal.principal() if self.principal else None
        return Asking(who, self.collections, self.sources, self.exclude_sources, self.filter)


def json_lines(path: Path, model: type[M]) -> Iterator[M]:
    """Every line of a JSON Lines file as `model`; blank lines are skipped.

    Raises:
        ConfigurationError: the file can't be read, or a line is not what it should be.
    """
    for number, line in enumerate(text_of(path).split("\n"), 1):  # not splitlines: texts hold U+2028
        if line.strip():
            try:
                yield model.model_validate_json(line)
            except ValidationError as error:
                raise ConfigurationError(f"{path}, line {number}: {complaint(error)}") from error


def text_of(path: Path) -> str:
    """The file's text.

    Raises:
        ConfigurationError: it can't be read, or is not in UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not in UTF-8"
        raise ConfigurationError(f"{path} can't be read: {reason}.") from error


def complaint(error: ValidationError) -> str:
    """What is wrong, in one sentence."""
    details = error.errors()[0]
    if details["type"] == "json_invalid":
        return "this is not valid JSON."
    return described(".".join(map(str, details["loc"])) or "this", details)


def check_unique(ids: Sequence[str], path: Path) -> None:
    """Hold the ids of a file to being different.

    Raises:
        ConfigurationError: two are the same.
    """
    twice = [id_ for id_, count in Counter(ids).items() if count > 1]
    if twice:
        raise ConfigurationError(f"{path}: the id {twice[0]!r} stands there twice.")
