"""What npm installs for a test, without its install scripts."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

INSTALL = (
    *("install", "--ignore-scripts", "--no-package-lock", "--no-audit", "--no-fund"),
    *("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=2000"),
    *("--prefer-offline", "--loglevel=error"),
)
INSTALL_SECONDS = 120  # with npm's cache it takes ten, without it half a minute


def install(folder: Path, *packages: str) -> None:
    """Install packages into a folder, or those of its package.json. Without npm the test is skipped."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm can't install what this needs: there is no npm; install Node.js with npm")
    try:
        run = subprocess.run(
            [npm, *INSTALL, *packages],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm can't install what this needs: it took over {INSTALL_SECONDS} s")
    if run.returncode:
        pytest.skip(f"npm can't install what this needs: {next(iter(run.stderr.splitlines()), 'it fails')}")
