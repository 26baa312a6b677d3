"""Whose the files of a data folder are.

Root may read and write everything, so its commands work in the data folder of another user, such as a
service's. But what they make there belongs to root, and the service may not read it. So `for_owner` gives it
to the folder's owner. `refusal` says why a user may not read something, and what helps: nothing is damaged.
"""

from __future__ import annotations

import os
import shlex
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = 0
OTHERS = stat.S_IRWXG | stat.S_IRWXO
FOR_READERS = 0o022  # the umask whose files everybody may read who may enter their folder
CLOCK_STEP = 1.0  # seconds by which the time of a new file can lag behind the clock
PARTS = (
    *("tenants", "tables", "locks", "runs", "overviews", "origins"),
    *("reserve", "key", "keys.json", "owner", "audit.jsonl", "embeddings.sqlite"),
)
"""The entries of a data folder that all commands need. Others can be of the system, like `lost+found`."""


@contextmanager
def for_owner(data: Path, *others: Path) -> Iterator[None]:
    """As root, give what the block makes in a data folder of another user to that user, even if it fails.

    So is what it makes in `others`, which belong to the desk.
    Until then a server of that user may read it: the mode lets everybody who may enter the data folder, where
    that is nobody else.
    """
    owner = _owner_but_root(data)
    if owner is None:
        yield
        return
    began, umask = time.time() - CLOCK_STEP, os.umask(FOR_READERS)
    if data.stat().st_mode & OTHERS:
        os.umask(umask)
    try:
        yield
    finally:
        os.umask(umask)
        for folder in (data, *others):
            with suppress(OSError):  # as in a container whose root may not enter it
                _give_new(folder, owner, began)


def give(descriptor: int, folder: Path) -> None:
    """As root, give a new file to the owner of its folder, who may need it before the command ends."""
    owner = _owner_but_root(folder)
    if owner:
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _owner_but_root(data: Path) -> os.stat_result | None:
    """The status with the owner: of `tenants`, which the first command made, or of the folder itself."""
    if os.name == "nt" or os.geteuid() != ROOT:
        return None
    for path in (data / "tenants", data):
        with suppress(OSError):
            status = path.stat()
            return status if status.st_uid != ROOT else None
    return None


def _give_new(top: Path, owner: os.stat_result, began: float) -> None:
    """Give root's files and folders that are new since `began`. No link leads out of the folder."""
    for _, _, names, folder in os.fwalk(top.resolve()):
        _give_if_new(folder, owner, began)
        for name in names:
            with suppress(OSError):
                file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
                try:
                    _give_if_new(file, owner, began)
                finally:
                    os.close(file)


def _give_if_new(descriptor: int, owner: os.stat_result, began: float) -> None:
    status = os.fstat(descriptor)
    is_new = status.st_uid == ROOT and status.st_ctime >= began
    # With a second link, it could also be a file outside of the folder.
    if is_new and (stat.S_ISDIR(status.st_mode) or status.st_nlink == 1):
        with suppress(OSError):  # a file system without owners, or one of another machine
            os.fchown(descriptor, owner.st_uid, owner.st_gid)


def closed_part(data: Path) -> Path | None:
    """A file or folder of a data folder that this user may not read; None if there is none.

    If this user may write the data folder, also a folder or a lock that it may not write.
    """
    writes = os.W_OK if os.access(data, os.W_OK) else 0
    for path in _parts(data):
        needed = os.R_OK | (writes if path.suffix == ".lock" else 0)
        if path.is_dir():
            needed = os.R_OK | os.X_OK | writes
        if not os.access(path, needed) and os.path.lexists(path):
            return path
    return None


def _parts(data: Path) -> Iterator[Path]:
    for part in PARTS:
        yield data / part
        for parent, folders, names in os.walk(data / part):
            yield from (Path(parent, name) for name in (*folders, *names))


def refusal(path: Path, data: Path) -> str:
    """Why this user may not read or write a file or folder of a data folder, and what helps, as sentences."""
    if os.name == "nt":
        return "Make it readable for this user."
    shut = next((folder for folder in (*reversed(path.parents), path) if not _enterable(folder)), path)
    user, owner = os.geteuid(), shut.lstat().st_uid
    if owner == user:
        return f"The mode of {shut} shuts out its owner. Run: chmod -R u+rwX {shlex.quote(str(data))}"
    if shut not in (data, *data.parents) and data.stat().st_uid == user:
        return (
            f"{shut} belongs to {_name(owner)}. Nothing in it is lost. Run: "
            f"sudo chown -R {_name(user)}: {shlex.quote(str(data))}"
        )
    return (
        f"{shut} belongs to {_name(owner)}. Run the command as that user (sudo -u {_name(owner)} …), or let "
        f"{_name(user)} in."
    )


def _enterable(path: Path) -> bool:
    return os.access(path, os.X_OK if path.is_dir() else os.R_OK, effective_ids=True)


def _name(user: int) -> str:
    import pwd  # noqa: PLC0415 not on Windows

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # as in containers
        return f"user {user}"
