"""The audit log: who changed what and when, with the state before and after; and `refdesk-admin audit`.

The log is `audit.jsonl` in the data folder: JSON Lines, append-only, readable by its owner only.
`with log_act(data, Act(…)):` encloses the change, inside the lock, so that the state before is certain. It
fails closed:

- An act that grants is logged first, then done. If it can't be logged, it is not done.
- An act that only revokes is done first, then logged. A failing log doesn't stop it; the act is then reported
  on standard error.
- An act that fails is logged as failed: a part of it may have been done.

So no right is granted without a line, even if the process is killed at any moment. A logged grant that never
took effect is harmless.

A state holds names, ids, dates and rights; never text of documents, queries, keys or their digests.
"""

from __future__ import annotations

import errno
import getpass
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import click
from pydantic import AwareDatetime, BaseModel, ValidationError
from pydantic_core import from_json

from rag.admin.command_line import command
from rag.admin.terminal import Group, echo, print_json, print_table
from rag.config.settings import Settings
from rag.corpus import Access, AccessRecord
from rag.errors import ConfigurationError, RefdeskError
from rag.report import one_line
from rag.store.write.desk_folder import flush_folder, make_private, spending_reserve, writable

ActName = Literal[
    "access grant",
    "access revoke",
    "access set",
    "collection attach",
    "collection create",
    "collection rebuild",
    "collection remove",
    "collection set",
    "collection tag",
    "ingest",
    "key create",
    "key revoke",
    "key rotate",
    "purge",
    "remove",
    "restore",
    "sync",
    "tenant create",
    "tenant remove",
]
State: TypeAlias = "Mapping[str, object] | None"
"""The state of an object; None if it doesn't exist."""
BEGINNING = b'{"at":'  # of each line that is written
MAX_CHANGES = 100  # per line; a larger act takes several lines


@dataclass(frozen=True, slots=True)
class Act:
    """An act of an administrator: its command and tenant, and states of objects before and after, by id.

    `gives` is False if the act only revokes; then a failing log doesn't stop it.
    """

    name: ActName
    tenant: str
    changes: Mapping[str, tuple[State, State]]
    collection: str | None = None
    gives: bool = True


class AuditChange(BaseModel):
    """A logged object before and after."""

    id: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditLine(BaseModel):
    """A line of the log. Later versions may add fields."""

    at: AwareDatetime
    user: str
    uid: int | None
    sudo_user: str | None
    act: str
    tenant: str
    collection: str | None
    changes: tuple[AuditChange, ...]
    failed: str | None


def log_file(data: Path) -> Path:
    """The path of a data folder's log."""
    return data / "audit.jsonl"


@contextmanager
def log_act(data: Path, act: Act) -> Iterator[None]:
    """Log the enclosed act: a grant before it is done, a revocation after, a failure in any case.

    Raises:
        ConfigurationError, StoreError: a grant can't be logged; the block doesn't run then.
    """
    if act.gives:
        log_now(data, act)
    try:
        yield
    except BaseException as error:
        _record_or_say(data, act, type(error).__name__)
        raise
    if not act.gives:
        log_now(data, act)


def log_now(data: Path, act: Act) -> None:
    """Log an act now. Call it before an act that grants, and after one that revokes.

    Raises:
        ConfigurationError, StoreError: a grant can't be logged.
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
        echo(f"Not logged: {act.name} {' '.join(act.changes)}. {error}", err=True)


def _lines(act: Act, failed: str | None = None) -> bytes:
    changes = [AuditChange.model_construct(id=id_, before=b, after=a) for id_, (b, a) in act.changes.items()]
    (user, uid), sudo_user = _user(), os.environ.get("SUDO_USER")
    lines = [
        AuditLine(
            at=datetime.now(UTC),
            user=user,
            uid=uid,
            sudo_user=sudo_user and sudo_user.encode("utf-8", "replace").decode(),
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
    """The name and uid of the running user, by the operating system: environment variables can be forged."""
    if sys.platform == "win32":
        return getpass.getuser(), None
    import pwd  # noqa: PLC0415 there is none on Windows

    uid = os.getuid()
    try:
        return pwd.getpwuid(uid).pw_name, uid
    except KeyError:  # as in containers
        return "", uid


def _append(file: Path, content: bytes) -> None:
    """Append lines in one write, flushed to disk."""
    with writable(f"Cannot write the audit log {file}"):
        make_private(file.parent)  # a machine on which nothing was done yet, if the desk is in a bucket
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(file, flags, 0o600), "ab+", buffering=0) as opened:
            size = opened.seek(0, os.SEEK_END)
            if size and _last_byte(opened) != b"\n":  # a full disk cut the last line short
                content = b"\n" + content
            if opened.write(content) < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(opened.fileno())
        if not size:
            flush_folder(file.parent)


def _last_byte(opened: FileIO) -> bytes:
    opened.seek(-1, os.SEEK_END)
    return opened.read(1)


def read_log(data: Path) -> Iterator[tuple[int, AuditLine | None]]:
    """The lines of the log with their numbers from 1, oldest first; None for an unreadable line.

    Raises:
        ConfigurationError: the file can't be read.
    """
    return ((number, _parsed_line(line)) for number, line in _numbered_lines(data))


def cut_lines(data: Path) -> list[int]:
    """The numbers of lines that a power failure or a full disk cut short.

    The next act begins a new line, so a truncated line needn't be the last.

    Raises:
        ConfigurationError: the file can't be read.
    """
    return [
        number for number, line in _numbered_lines(data) if _parsed_line(line) is None and _is_truncated(line)
    ]


def _is_truncated(line: bytes) -> bool:
    """Whether this is only the beginning of a line, or zeros that the file system had reserved for one."""
    text = line.rstrip(b"\0\r\n")
    if not text.startswith(BEGINNING):
        return BEGINNING.startswith(text)
    text = text.decode(errors="ignore").encode()  # without the half of a letter
    return _is_json(text, allow_partial=True) and not _is_json(text, allow_partial=False)


def _is_json(text: bytes, *, allow_partial: bool) -> bool:
    try:
        from_json(text, allow_partial=allow_partial)
    except ValueError:
        return False
    return True


def _numbered_lines(data: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of the log that aren't blank, with their numbers from 1."""
    try:
        with log_file(data).open("rb") as opened:
            for number, line in enumerate(opened, 1):
                if line.strip():
                    yield number, line
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(f"Cannot read the audit log {log_file(data)}: {error.strerror}.") from error


def _parsed_line(line: bytes) -> AuditLine | None:
    try:
        return AuditLine.model_validate_json(line)
    except ValidationError:
        return None


def access_state(access: Access | None) -> State:
    """The logged state of an access record; None for no record."""
    if access is None:
        return None
    return {"visibility": access.visibility, "allow": sorted(access.allow), "deny": sorted(access.deny)}


def logged_access(state: State) -> Access | None:
    """The access record of a logged state; None for no record."""
    match state:
        case {"visibility": "tenant" | "restricted" as visibility, "allow": list(allow), "deny": list(deny)}:
            return Access(visibility, frozenset(map(str, allow)), frozenset(map(str, deny)))
        case _:
            return None


def access_act(
    name: ActName, tenant: str, pairs: Mapping[str, tuple[AccessRecord | None, AccessRecord]]
) -> Act:
    """The act of changing these access records, given before and after by id."""
    accesses = {
        id_: (before.access if before else None, after.access) for id_, (before, after) in pairs.items()
    }
    changes = {id_: (access_state(before), access_state(after)) for id_, (before, after) in accesses.items()}
    return Act(name, tenant, changes, gives=any(widens(*pair) for pair in accesses.values()))


def widens(before: Access | None, after: Access | None) -> bool:
    """Whether a change of a record can show anybody something new.

    Example: from (tenant, deny group:it) to (restricted, allow user:ann, deny group:it) only revokes.
    """
    if after is None:
        return False
    if before is None:
        return True
    is_wider = after.visibility == "tenant" or not after.allow <= before.allow
    return (before.visibility != "tenant" and is_wider) or not before.deny <= after.deny


ACTS = sorted({part for name in get_args(ActName) for part in (name, name.partition(" ")[0])})
"""All acts, and their first words, which select groups of acts: "key" is "key create", "key revoke" …"""


@click.group("audit", cls=Group)
def audit_command() -> None:
    """Read the log of administrative acts."""


def _moment(value: str) -> datetime:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a date like 2026-11-22 or 2026-11-22T15:00.") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@command("show", audit_command, of_tenant=False)
@click.option(
    "--since",
    type=_moment,
    metavar="DATE",
    help="Only acts since then (UTC): 2026-11-22 or 2026-11-22T15:00.",
)
@click.option(
    "--act", type=click.Choice(ACTS), metavar="ACT", help="Only this act or group of acts: key, key revoke, …"
)
@click.option("--tenant", "tenant_name", metavar="NAME", help="Only acts on this tenant.")
@click.option("--id", "id_", metavar="ID", help="Only acts on this source, key, collection or tenant.")
async def show_command(
    settings: Settings, *, since: datetime | None, act: str | None, tenant_name: str | None, id_: str | None
) -> None:
    """Show who changed what and when, with the state before and after.

    Lists changes of access, keys, tenants and collections, removals and purges, oldest first, in UTC.
    Grants are logged before they are done; a grant that then failed has a second line, FAILED. Lines that
    are damaged are reported as unreadable or cut short.
    """
    acts, unreadable = [], []
    for number, line in read_log(settings.data):
        if line is None:
            unreadable.append(number)
        elif _matches(line, since, act, tenant_name, id_):
            acts.append(line)
    print_json({"acts": [act.model_dump(mode="json") for act in acts], "unreadable_lines": unreadable})
    rows = [row for line in acts for row in _rows(line, id_)]
    none = "No act in the log matches." if any((since, act, tenant_name, id_)) else "The log is empty."
    print_table([("WHEN", "WHO", "ACT", "TENANT", "ID", "BEFORE → AFTER"), *rows], empty=none)
    cut = cut_lines(settings.data) if unreadable else []
    for number in unreadable:
        why = "was cut short by a power failure or a full disk" if number in cut else "is unreadable"
        echo(f"Line {number} of {log_file(settings.data)} {why}.", err=True)


def _matches(
    line: AuditLine, since: datetime | None, act: str | None, tenant: str | None, id_: str | None
) -> bool:
    return (
        (since is None or line.at >= since)
        and (act is None or line.act == act or line.act.startswith(f"{act} "))
        and tenant in {None, line.tenant}
        and id_ in {None, *(change.id for change in line.changes)}
    )


def _rows(line: AuditLine, id_: str | None) -> Iterator[tuple[str, ...]]:
    """A row per changed object, without control characters."""
    act = f"{line.act} FAILED ({line.failed})" if line.failed else line.act
    head = [line.at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"), actor_name(line), act, line.tenant]
    changes = [(change.id, change_in_words(change)) for change in line.changes if id_ in {None, change.id}]
    for changed, how in changes or [(line.collection or "-", "")]:
        yield tuple(one_line(cell) for cell in (*head, changed, how))


def actor_name(line: AuditLine) -> str:
    """Example: root (0) for ann."""
    name = line.user or "-"
    user = name if line.uid is None else f"{name} ({line.uid})"
    return f"{user} for {line.sudo_user}" if line.sudo_user else user


def change_in_words(change: AuditChange) -> str:
    """The difference between before and after."""
    before, after = change.before, change.after
    if before is not None and after is not None:
        unchanged = {key for key in before if key in after and before[key] == after[key]}
        if unchanged == before.keys() | after.keys():
            return "unchanged"
        before, after = (
            {key: state[key] for key in state if key not in unchanged} for state in (before, after)
        )
    return f"{_state(before)} → {_state(after)}"


def _state(state: dict[str, Any] | None) -> str:
    """Example: visibility restricted, allow group:hr user:ann."""
    if state is None:
        return "-"
    return ", ".join(f"{key} {_value(value)}" for key, value in state.items())


def _value(value: object) -> str:
    match value:
        case dict():
            return " ".join(f"{key}={part}" for key, part in value.items()) or "-"
        case list():
            return " ".join(map(str, value)) or "-"
        case _:
            return str(value) or "-"
