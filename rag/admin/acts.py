"""The log of administrative acts: who changed what, when, and how it was before and after.

It is `audit.jsonl` in the data folder, for its owner alone: one JSON object a line, to which lines are only
ever appended. `with recorded(data, Act(…)):` goes around what changes something, where the state before is
certain, so inside of the lock. The order is the one that errs on the safe side:

- An act that gives rights is written down, then done. What can't be written down is not done.
- An act that only takes is done, then written down. Nothing about the log stops it; what can't be written
  down is said on standard error.
- An act that fails is written down as failed: a part of it may have been done.

So no right is given without a line, whenever a process is killed; what stands there and didn't come to be
gave nobody anything.

A state is what rights and lists say: names, ids, dates. Text of documents, queries, keys and their digests
never go into one.
"""

from __future__ import annotations

import errno
import getpass
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import AwareDatetime, BaseModel, ValidationError

from rag.admin.console import echo
from rag.errors import ConfigurationError, RefdeskError
from rag.store.folder import cannot, flush_folder, spending_reserve

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from io import FileIO
    from pathlib import Path

    from rag.corpus import Access, AccessRecord

ActName = Literal[
    "access grant",
    "access revoke",
    "access set",
    "collection create",
    "collection remove",
    "ingest",
    "key create",
    "key revoke",
    "key rotate",
    "purge",
    "remove",
    "tenant create",
    "tenant remove",
]
State: TypeAlias = "Mapping[str, object] | None"
"""What there is to say of a thing; None where there is no such thing."""
MAX_CHANGES = 100  # of a line; an act that changes more takes several


@dataclass(frozen=True, slots=True)
class Act:
    """What is done: its command, whose, and each thing by its id as it is before and after.

    `gives` is False if it only takes away: then nothing about the log stops it.
    """

    name: ActName
    tenant: str
    changes: Mapping[str, tuple[State, State]]
    collection: str | None = None
    gives: bool = True


class Change(BaseModel):
    """A thing before and after, as the log has it."""

    id: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Line(BaseModel):
    """A line of the log. Later versions may have more to say in one."""

    at: AwareDatetime
    user: str
    uid: int | None
    sudo_user: str | None
    act: str
    tenant: str
    collection: str | None
    changes: tuple[Change, ...]
    failed: str | None


def log_file(data: Path) -> Path:
    """Where the log of a data folder is."""
    return data / "audit.jsonl"


@contextmanager
def recorded(data: Path, act: Act) -> Iterator[None]:
    """Write an act down that is done in here, before or after, as the module says.

    Raises:
        ConfigurationError, StoreError: it would give rights and can't be written down. Nothing is done then.
    """
    if act.gives:
        record(data, act)
    try:
        yield
    except BaseException as error:
        _record_or_say(data, act, type(error).__name__)
        raise
    if not act.gives:
        _record_or_say(data, act)


def record(data: Path, act: Act) -> None:
    """Write an act down, now: if it gives, do it afterwards, and else before.

    Raises:
        ConfigurationError, StoreError: it gives rights and can't be written down.
    """
    if act.gives:
        _append(log_file(data), _lines(act))
    else:
        _record_or_say(data, act)


def _record_or_say(data: Path, act: Act, failed: str | None = None) -> None:
    try:
        for attempt in spending_reserve(data):
            with attempt:
                _append(log_file(data), _lines(act, failed))
    except RefdeskError as error:
        echo(f"Not in the log of acts: {act.name} {' '.join(act.changes)}. {error}", err=True)


def _lines(act: Act, failed: str | None = None) -> bytes:
    """An act as the log has it, in as many lines as it takes."""
    changes = [Change.model_construct(id=id_, before=b, after=a) for id_, (b, a) in act.changes.items()]
    user, uid = _user()
    lines = [
        Line(
            at=datetime.now(UTC),
            user=user,
            uid=uid,
            sudo_user=_readable(os.environ.get("SUDO_USER")),
            act=act.name,
            tenant=act.tenant,
            collection=act.collection,
            changes=tuple(changes[start : start + MAX_CHANGES]),
            failed=failed,
        )
        for start in range(0, max(1, len(changes)), MAX_CHANGES)
    ]
    return "".join(f"{line.model_dump_json()}\n" for line in lines).encode()


def _user() -> tuple[str, int | None]:
    """Who runs this, by the operating system and not by the environment, which anybody can set."""
    if sys.platform == "win32":
        return getpass.getuser(), None
    import pwd  # noqa: PLC0415 there is none on Windows

    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name, uid
    except KeyError:  # as in containers
        return "", uid


def _readable(name: str | None) -> str | None:
    return name and name.encode("utf-8", "replace").decode()


def _append(file: Path, content: bytes) -> None:
    """Append lines in one write, on the disk when this returns.

    Raises:
        ConfigurationError: the file can't be written.
        StoreError: the disk is full.
    """
    try:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(file, flags, 0o600), "ab+", buffering=0) as opened:
            size = opened.seek(0, os.SEEK_END)
            if size and _last_byte(opened) != b"\n":  # what a full disk cut short stays by itself
                content = b"\n" + content
            _write_all(opened, content)
        if not size:
            flush_folder(file.parent)
    except OSError as error:
        raise cannot(f"The log of acts, {file}, can't be written", error) from error


def _write_all(opened: FileIO, content: bytes) -> None:
    if opened.write(content) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(opened.fileno())


def _last_byte(opened: FileIO) -> bytes:
    opened.seek(-1, os.SEEK_END)
    return opened.read(1)


def read_log(data: Path) -> Iterator[tuple[int, Line | None]]:
    """The lines of the log with their numbers from 1, oldest first; None is a line that is none of ours.

    Raises:
        ConfigurationError: the file can't be read.
    """
    try:
        with log_file(data).open("rb") as opened:
            for number, line in enumerate(opened, 1):
                if line.strip():
                    yield number, _read(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(
            f"The log of acts, {log_file(data)}, can't be read: {error.strerror}."
        ) from error


def _read(line: bytes) -> Line | None:
    try:
        return Line.model_validate_json(line)
    except ValidationError:
        return None


def access_state(access: Access | None) -> State:
    """An access record as the log has it; None for no record."""
    if access is None:
        return None
    return {"visibility": access.visibility, "allow": sorted(access.allow), "deny": sorted(access.deny)}


def access_act(
    name: ActName, tenant: str, pairs: Mapping[str, tuple[AccessRecord | None, AccessRecord]]
) -> Act:
    """A change of access records, given before and after by id."""
    accesses = {
        id_: (before.access if before else None, after.access) for id_, (before, after) in pairs.items()
    }
    changes = {id_: (access_state(before), access_state(after)) for id_, (before, after) in accesses.items()}
    gives = any(widens(before, after) for before, after in accesses.values())
    return Act(name, tenant, changes, gives=gives)


def widens(before: Access | None, after: Access | None) -> bool:
    """Whether the change of a record can let anybody see what they didn't: what an act gives.

    Example: tenant, deny group:it -> restricted, allow user:ann, deny group:it takes only.
    """
    if after is None:
        return False
    if before is None:
        return True
    if before.visibility == "tenant":
        allowed = False
    else:
        allowed = after.visibility == "tenant" or not after.allow <= before.allow
    return allowed or not before.deny <= after.deny
