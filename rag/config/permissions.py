"""Warns of file permissions that let other users of this machine change the settings or read the data."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

WRITE = stat.S_IWGRP | stat.S_IWOTH
ANY = stat.S_IRWXG | stat.S_IRWXO
ENTER = stat.S_IXGRP | stat.S_IXOTH
OF_GROUP = stat.S_IRWXG
ROOT = 0


def loose_permissions(config: Path, data: Path) -> Sequence[str]:
    """One warning for each file or folder whose permissions are too loose, with the command that fixes it.

    Missing files are fine. So is access for root, and for a group whose only member is the owner. Windows
    has no such permissions, so nothing is checked there.
    """
    if os.name == "nt":
        return ()
    return (*_writable_by_others(config), *_accessible_to_others(data))


def _writable_by_others(config: Path) -> Iterator[str]:
    """Checks the file and all folders above it: whoever can write a folder can replace the file in it."""
    file, real = config.absolute(), config.resolve()
    for path in dict.fromkeys((file, *file.parents, real, *real.parents)):
        status = _status(path)
        if status is None:
            continue
        what = "folder" if stat.S_ISDIR(status.st_mode) else "file"
        if status.st_uid not in {os.geteuid(), ROOT}:
            yield (
                f"The {what} {path} belongs to another user, who can change the settings. "
                f"Take it over: chown {os.geteuid()} {_quoted(path)}"
            )
        elif _others_may(status, WRITE) and not (what == "folder" and status.st_mode & stat.S_ISVTX):
            yield (
                f"Other users can write the {what} {path}, and so change the settings. "
                f"Fix it: chmod go-w {_quoted(path)}"
            )


def _accessible_to_others(data: Path) -> Iterator[str]:
    """Checks the data folder. Its mode is harmless if others can't enter one of the folders above it.

    Its group is ignored if this user doesn't own the folder, because then the group may be how they get in.
    A path that was named by mistake is not for us to close: other programs may need it.
    """
    status = _status(data)
    if status is None or not _may_be_ours(data):
        return
    checked = ANY if status.st_uid == os.geteuid() else ANY & ~OF_GROUP
    if _others_may(status, checked) and all(_enterable(folder) for folder in data.resolve().parents):
        yield f"Other users can access the data folder {data}. Fix it: chmod 700 {_quoted(data)}"


def _may_be_ours(data: Path) -> bool:
    """Whether this is a data folder of refdesk, or an empty folder that can become one."""
    try:
        names = os.listdir(data)  # noqa: PTH208 only the names
    except OSError:
        return False
    return not names or "tenants" in names


def _enterable(folder: Path) -> bool:
    status = _status(folder)
    return status is None or _others_may(status, ENTER)


def _others_may(status: os.stat_result, mode: int) -> bool:
    if _is_own_group(status):
        mode &= ~OF_GROUP
    return bool(status.st_mode & mode)


def _is_own_group(status: os.stat_result) -> bool:
    """Whether the group has no member but the owner. Many systems create such a group for each user."""
    import grp  # noqa: PLC0415 not on Windows
    import pwd  # noqa: PLC0415 the same

    try:
        group, owner = grp.getgrgid(status.st_gid), pwd.getpwuid(status.st_uid)
    except KeyError:
        return False
    return owner.pw_gid == status.st_gid and owner.pw_name == group.gr_name and not group.gr_mem


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
