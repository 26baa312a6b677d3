"""Where the console scripts start: whatever PYTHONPATH names comes after what is installed.

Python searches the folders of PYTHONPATH first, so a `server.py` or `rag.py` in one of them would be
imported in place of our packages. Hosts start servers in environments that we don't control.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED = 130  # exit code, as after an interruption that a command notices itself


def refdesk() -> None:
    """Run the server."""
    with _ended_by_interruption():
        _search_pythonpath_last()
        if os.name == "posix":
            from server.bridge import serve_by_shared_desk  # noqa: PLC0415 found once the path is in order

            serve_by_shared_desk()
        from server.main import main  # noqa: PLC0415 the same

        main()


def shared_desk() -> None:
    """Run the desk that `refdesk` has started for all hosts of a person."""
    _search_pythonpath_last()
    from server.shared_desk import main  # noqa: PLC0415 found once the path is in order

    main()


def refdesk_admin() -> None:
    """Run the administrator's commands."""
    with _ended_by_interruption():
        _search_pythonpath_last()
        from rag.admin.main import main  # noqa: PLC0415 the same

        main()


@contextmanager
def _ended_by_interruption() -> Iterator[None]:
    """End silently at Ctrl-C: it may come while modules are imported, before anything was begun."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _search_pythonpath_last() -> None:
    """Move the folders of PYTHONPATH to the end of the path; processes that parse files inherit the order."""
    if named := os.environ.get("PYTHONPATH"):
        folders = {os.path.abspath(folder) for folder in named.split(os.pathsep)}  # noqa: PTH100 as Python does it
        sys.path.sort(key=lambda entry: os.path.abspath(entry) in folders)  # noqa: PTH100 the same
