"""Who else on this machine can change the settings, or get at the data."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

WRITE = stat.S_IWGRP | stat.S_IWOTH
OPEN = stat.S_IRWXG | stat.S_IRWXO
ENTER = stat.S_IXGRP | stat.S_IXOTH
OF_GROUP = stat.S_IRWXG
ROOT = 0


def loose_permissions(config: Path, data: Path) -> Sequence[str]:
    """A sentence for each thing that others may do with the settings file or the data folder, and its remedy.

    What isn't there is fine, and so is what root and the owner's own group may do. Systems without such
    permissions (Windows) are not looked at.
    """
    if os.name == "nt":
        return ()
    return (*_writable(config), *_open(data))


def _writable(config: Path) -> Iterator[str]:
    """The file, and the folders in which it could be exchanged."""
    file, real = config.absolute(), config.resolve()
    for path in dict.fromkeys((file, *file.parents, real, *real.parents)):
        status = _status(path)
        if status is None:
            continue
        what = "folder" if stat.S_ISDIR(status.st_mode) else "file"
        if status.st_uid not in {os.geteuid(), ROOT}:
            yield (
                f"The {what} {path} belongs to another user, who can change the settings. "
                f"Make it yours: chown {os.geteuid()} {_quoted(path)}"
            )
        elif _others_may(status, WRITE) and not (what == "folder" and status.st_mode & stat.S_ISVTX):
            yield (
                f"Others can write the {what} {path}, and so the settings. "
                f"Keep them out: chmod go-w {_quoted(path)}"
            )


def _open(data: Path) -> Iterator[str]:
    """The data folder, if others get as far as to it. Who isn't its owner may need its group themselves."""
    status = _status(data)
    if status is None:
        return
    what = OPEN if status.st_uid == os.geteuid() else OPEN & ~OF_GROUP
    if _others_may(status, what) and all(_enterable(folder) for folder in data.resolve().parents):
        yield f"Others can get into the data folder {data}. Keep them out: chmod 700 {_quoted(data)}"


def _enterable(folder: Path) -> bool:
    status = _status(folder)
    return status is None or _others_may(status, ENTER)


def _others_may(status: os.stat_result, what: int) -> bool:
    if _is_own_group(status):
        what &= ~OF_GROUP
    return bool(status.st_mode & what)


def _is_own_group(status: os.stat_result) -> bool:
    """Whether it is of a group that is its owner's alone, as many systems make one for each user."""
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
