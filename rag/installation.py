"""How this refdesk was installed, and so the command that adds an extra to it.

It may come from a checkout, a wheel, a repository or a package index, and be installed by pip, uv or pipx.
`pip install 'refdesk[ocr]'` asks an index, which needn't have it, and the first pip of the path, which may be
that of another environment.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

PACKAGE = "refdesk"


def install_command(extra: str = "") -> str:
    """The command that installs refdesk where it is now from where it came, with an extra.

    Example: /srv/desk/.venv/bin/python -m pip install '/home/ann/refdesk[ocr]'.
    """
    extras = f"[{extra}]" if extra else ""
    words = [*_installer(), *_requirement(extras)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _installer() -> list[str]:
    """The command of what made this environment, up to what is to be installed."""
    prefix = Path(sys.prefix)
    if (prefix / "uv-receipt.toml").exists():
        return ["uv", "tool", "install", "--force"]
    if (prefix / "pipx_metadata.json").exists():
        return ["pipx", "install", "--force"]
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "install"]
    return ["uv", "pip", "install", "--python", sys.executable]


def _requirement(extras: str) -> list[str]:
    """What is to be installed: where this refdesk came from, or its name if that was an index."""
    origin = _origin()
    url = str(origin.get("url", ""))
    if vcs := origin.get("vcs_info"):
        commit = f"@{vcs['commit_id']}" if vcs.get("commit_id") else ""
        return [f"{PACKAGE}{extras} @ {vcs['vcs']}+{url}{commit}"]
    if "dir_info" in origin and url.startswith("file:"):
        folder = url2pathname(urlsplit(url).path) + extras
        return ["--editable", folder] if origin["dir_info"].get("editable") else [folder]
    return [f"{PACKAGE}{extras} @ {url}" if url else PACKAGE + extras]


def _origin() -> dict[str, Any]:
    """Where the package came from, as PEP 610 has it; empty if it was an index or nobody noted it."""
    try:
        noted = metadata.distribution(PACKAGE).read_text("direct_url.json")
        return dict(json.loads(noted or "{}"))
    except (metadata.PackageNotFoundError, ValueError):
        return {}
