"""Where the console scripts start: whatever PYTHONPATH names comes after what is installed.

Python searches the folders of PYTHONPATH first, so a `server.py` or `rag.py` in one of them would be
imported in place of our packages. Hosts start servers in environments that we don't control.
"""

from __future__ import annotations

import os
import sys


def refdesk() -> None:
    """Run the server."""
    _search_pythonpath_last()
    from server.main import main  # noqa: PLC0415 found once the path is in order

    main()


def refdesk_admin() -> None:
    """Run the administrator's commands."""
    _search_pythonpath_last()
    from rag.admin.main import main  # noqa: PLC0415 the same

    main()


def _search_pythonpath_last() -> None:
    """Move the folders of PYTHONPATH to the end of the path; processes that parse files inherit the order."""
    if named := os.environ.get("PYTHONPATH"):
        folders = {os.path.abspath(folder) for folder in named.split(os.pathsep)}  # noqa: PTH100 as Python does it
        sys.path.sort(key=lambda entry: os.path.abspath(entry) in folders)  # noqa: PTH100 the same
