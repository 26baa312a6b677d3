"""Ingests a folder after the first answer, by `refdesk-admin ingest` in a process of its own.

The server itself can't write. It starts the administrator's command on the folder that its user named; no
client and no document can start or change it. The process ends with the server, however that ends.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sysconfig
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from rag.errors import ConfigurationError
from rag.text.invisible import in_one_line

if TYPE_CHECKING:
    from anyio.abc import ByteReceiveStream

    from rag.config.settings import Settings

FIRST_PAUSE_SECONDS = 30.0  # before another attempt: a drive gets mounted, another process finishes
LONGEST_PAUSE_SECONDS = 3_600.0
SUCCEEDED = {0, 3}  # exit codes of the command; 3: some files failed, or many are missing and were kept
WRONG_SETTINGS = 2  # exit code: another attempt would fail the same way
BUSY, BUSY_PAUSE_SECONDS = 4, 5.0  # exit code: another process, such as another host's server, is ingesting
STORED = ("added", "replaced", "moved", "unchanged")
NOT_COUNTED = {"removed", "missing"}  # outcomes of files that don't exist
NAME_CHARS = 40
SHOWN_CHARS = 200  # of the folder's path
REASON_CHARS = 300
ADMIN = "refdesk-admin: "  # begins the command's messages for people

log = logging.getLogger(__name__)


@dataclass(slots=True)
class CommandProgress:
    """The log of one run of the command so far. `files` is None until the folder has been listed."""

    files: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    reason: str = ""
    exit_code: int | None = None


class Intake:
    """Ingests the documents of a folder. `note` reports its progress."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        """For `refdesk-admin ingest` with these arguments.

        Raises:
            ConfigurationError: the command is not installed.
        """
        scripts = sysconfig.get_path("scripts")
        command = shutil.which("refdesk-admin", path=scripts)
        if command is None:
            raise ConfigurationError(
                f"The command refdesk-admin is missing from {scripts}. Install refdesk again."
            )
        self._folder = folder
        path = in_one_line(str(folder))
        self._shown = path if len(path) <= SHOWN_CHARS else f"…{path[1 - SHOWN_CHARS :]}"
        self._command = [command, "ingest", str(folder), "--log", "--verbose", "--tied", *arguments]
        self._run = CommandProgress()

    @property
    def note(self) -> str | None:
        """What callers must know; None once everything readable has been read."""
        run = self._run
        if run.exit_code is None:
            return (
                f"{self._progress()} What isn't read yet isn't found. Tell the user, and search again later."
            )
        if run.exit_code == BUSY:
            return (
                f"Another program is reading the documents in {self._shown} just now. What isn't read yet "
                "isn't found. Tell the user, and search again later."
            )
        if run.exit_code not in SUCCEEDED:
            return (
                f"The documents in {self._shown} can't be read: {self._failure()} Only what was read earlier "
                "is found. Tell the user: correct this, or choose another folder, and restart refdesk."
            )
        if not any(run.outcomes[outcome] for outcome in STORED):
            return (
                f"refdesk found no document that it can read in {self._shown}. Tell the user: put documents "
                "there, or choose another folder, and restart refdesk."
            )
        return None

    async def run(self) -> None:
        """Run the command until it succeeds, with growing pauses."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._once()
            if self._run.exit_code in SUCCEEDED | {WRONG_SETTINGS}:
                return
            if self._run.exit_code == BUSY:
                await anyio.sleep(BUSY_PAUSE_SECONDS)
                continue
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _once(self) -> None:
        run = self._run = CommandProgress()
        try:
            process = await anyio.open_process(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        except OSError as error:
            run.reason, run.exit_code = f"{error.strerror}.", -1
            return
        async with process:
            assert process.stderr is not None  # noqa: S101 it was asked for
            async for line in _lines(process.stderr):
                self._hear(run, line)
            run.exit_code = await process.wait()
        if run.exit_code or run.causes:
            log.warning(
                "Reading %s ended with exit code %s: %s", self._folder, run.exit_code, self._failure()
            )

    def _hear(self, run: CommandProgress, line: str) -> None:
        """Evaluate a line of the command's log."""
        try:
            record: dict[str, Any] = json.loads(line)
        except ValueError:
            log.warning("%s", line)
            if line.startswith(ADMIN):
                run.reason = in_one_line(line.removeprefix(ADMIN))[:REASON_CHARS]
            return
        if record.get("event") == "started":
            run.files = record["files"]
        elif record.get("event") == "file":
            run.outcomes[record["outcome"]] += 1
            if record["outcome"] == "skipped":
                run.causes[record.get("cause", "damaged")] += 1
                if record["path"] == str(self._folder):
                    run.reason = f"{record['reason']}."

    def _progress(self) -> str:
        run = self._run
        if run.files is None:
            return f"refdesk is looking through {self._shown} for documents."
        done = sum(count for outcome, count in run.outcomes.items() if outcome not in NOT_COUNTED)
        return f"refdesk is reading the documents in {self._shown}: {done:,} of {run.files:,} files so far."

    def _failure(self) -> str:
        """Why the run failed, without names of files, which are untrusted text."""
        run = self._run
        if run.reason:
            return run.reason
        if run.causes:
            return (
                f"files failed: {', '.join(f'{count} {cause}' for cause, count in run.causes.most_common())}."
            )
        return f"refdesk-admin ended with exit code {run.exit_code}; the log of the server has the reason."


def data_of(folder: Path, settings: Settings) -> Path:
    """The data folder for a folder of documents, next to the data folder of the settings.

    Each folder of documents has its own, so a search never finds documents of a former one.
    Example: ~/.local/share/refdesk and /home/ann/Handbook -> ~/.local/share/refdesk-folders/Handbook-4c2f0a91
    """
    digest = hashlib.sha256(os.path.normcase(folder).encode(errors="surrogateescape")).hexdigest()[:8]
    name = re.sub(r"[^\w-]+", "-", folder.name)[:NAME_CHARS]
    return settings.data.with_name(f"{settings.data.name}-folders") / f"{name}-{digest}".lstrip("-")


async def _lines(stream: ByteReceiveStream) -> AsyncIterator[str]:
    """The lines of a stream, without their ends."""
    incomplete = b""
    async for part in stream:
        *whole, incomplete = (incomplete + part).split(b"\n")
        for line in whole:
            yield line.decode(errors="replace").rstrip("\r")
    if incomplete:
        yield incomplete.decode(errors="replace")
