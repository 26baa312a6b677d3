"""Ingests a folder after the first answer and follows its changes, by running `refdesk-admin ingest`.

The server itself can't write. It starts the administrator's command on the folder that its user named, and
again after each change in it; no client can start or change it. The process ends with the server, even if
that is killed. The server itself watches the folder: a waiting command would keep 200 MB for nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import subprocess
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from rag.config.settings import Settings
from rag.originals import LOOK_MS, changes_in, identity
from rag.runtime import installed_command, lines_of
from rag.text.plain_text import in_one_line

FIRST_PAUSE_SECONDS = 30.0  # before another attempt, for a drive to be mounted or another process to finish
LONGEST_PAUSE_SECONDS = 3_600.0
SUCCEEDED = {0, 3}  # exit codes of the command; 3: some files failed, or many are missing and were kept
WRONG_SETTINGS = 2  # exit code: another attempt would fail the same way
BUSY, BUSY_PAUSE_SECONDS = 4, 5.0  # exit code: another process, such as another host's server, is ingesting
STORED = ("added", "replaced", "moved", "unchanged")
NOT_COUNTED = {"removed", "missing"}  # outcomes of files that don't exist
WORTH_A_NOTE = 5  # changed documents; fewer are ingested without a note in replies
NAME_CHARS = 40
SHOWN_CHARS = 200  # of the folder's path
REASON_CHARS = 300
ADMIN = "refdesk-admin: "  # begins the command's messages for people

log = logging.getLogger(__name__)


@dataclass(slots=True)
class CommandProgress:
    """The log of one run of the command so far. `files` is None until the folder has been listed.

    While the machine runs on battery, a gentle run `waits`.
    """

    files: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    reason: str = ""
    exit_code: int | None = None
    waits: bool = False


class Intake:
    """Ingests the documents of a folder and their changes. `note` reports the progress."""

    def __init__(self, folder: Path, data: Path, arguments: Sequence[str] = ()) -> None:
        """Prepare `refdesk-admin ingest` into this data folder, with these arguments.

        Raises:
            ConfigurationError: the command is not installed.
        """
        self._folder, self._data = folder, os.path.realpath(data)
        path = in_one_line(str(folder))
        self._shown = path if len(path) <= SHOWN_CHARS else f"…{path[1 - SHOWN_CHARS :]}"
        self._command = [installed_command("refdesk-admin"), "ingest", str(folder), "--data", str(data)]
        self._command += ["--log", "--verbose", "--tied", *arguments]
        self._run = CommandProgress()
        self._has_read = False
        self._told_causes: Counter[str] = Counter()  # of failures, as callers know them

    @property
    def note(self) -> str | None:
        """The note for callers; None once everything readable has been read."""
        run = self._run
        if run.exit_code is None:
            changed = run.outcomes["added"] + run.outcomes["replaced"]
            if self._has_read and changed < WORTH_A_NOTE and not run.waits:
                return None
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
        if not any(run.outcomes[outcome] for outcome in (*STORED, "missing")):
            return (
                f"refdesk found no document that it can read in {self._shown}. Tell the user: put documents "
                "there, or choose another folder, and restart refdesk."
            )
        return None

    def remark(self) -> str | None:
        """What callers should know besides about the last reading: once, unless documents are missing."""
        run = self._run
        if run.exit_code not in SUCCEEDED:
            return None
        if run.outcomes["missing"]:
            return self._about_missing()
        if run.causes == self._told_causes:
            return None
        self._told_causes = run.causes
        if not run.causes:
            return None
        return (
            f"Some files in {self._shown} can't be read: {self._causes()}. "
            "Tell the user if the answer may be in one of them."
        )

    def _about_missing(self) -> str:
        gone = self._run.outcomes["missing"]
        if gone == self._run.outcomes.total():  # nothing else is there: the command removes nothing, ever
            advice = "If they were deleted, put another document there. Then refdesk removes them in a day."
        else:
            advice = "If they were deleted, refdesk removes them when it next reads the folder after a day."
        return (
            f"{gone:,} documents are gone from {self._shown}, and are still found, because a disk may not be "
            f"connected. Tell the user: if so, connect it. {advice}"
        )

    async def follow(self) -> None:
        """Read the folder, then gently again whenever something in it has changed, until cancelled.

        Ends if the settings are wrong.
        """
        async with aclosing(self._changes()) as changes:
            async for _ in changes:
                await self.run()
                if self._run.exit_code == WRONG_SETTINGS:
                    return
                if self._run.exit_code in SUCCEEDED and not self._has_read:
                    self._has_read = True
                    self._command.append("--gentle")  # somebody waits for the first run only

    async def _changes(self) -> AsyncGenerator[None, None]:
        """Yields once the folder is watched or found missing, and at each change of it or in it."""
        while True:
            if (folder_id := identity(self._folder)) is None:
                yield
                while identity(self._folder) is None:  # noqa: ASYNC110 a missing folder causes no event
                    await anyio.sleep(LOOK_MS / 1000)
                continue
            is_active = False
            try:
                async with aclosing(self._watch()) as changes:
                    async for paths in changes:
                        if identity(self._folder) != folder_id:
                            break
                        if paths or not is_active:
                            yield
                        is_active = True
            except (OSError, RuntimeError) as error:
                if identity(self._folder) == folder_id:
                    log.warning("Changes in %s are noticed within an hour only: %s", self._folder, error)
                    yield
                    await anyio.sleep(LONGEST_PAUSE_SECONDS)

    def _watch(self) -> AsyncGenerator[set[str], None]:
        return changes_in([os.path.realpath(self._folder)], without=self._data)

    async def run(self) -> None:
        """Run the command until it succeeds, with growing pauses, or the folder is gone."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            await self._once()
            if self._run.exit_code in SUCCEEDED | {WRONG_SETTINGS} or not self._folder.exists():
                return
            if self._run.exit_code == BUSY:  # no failure, so the pauses don't grow
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
            assert process.stderr is not None  # noqa: S101 it is a pipe
            async for line in lines_of(process.stderr):
                self._hear(run, line)
            run.exit_code = await process.wait()
        if run.exit_code or run.causes:
            log.warning(
                "Reading %s ended with exit code %s: %s", self._folder, run.exit_code, self._failure()
            )

    def _hear(self, run: CommandProgress, line: str) -> None:
        record: object = None
        with suppress(ValueError):
            record = json.loads(line)
        if not isinstance(record, dict):  # words of a library, such as a bare number, are no record either
            log.warning("%s", line)
            if line.startswith(ADMIN):
                run.reason = in_one_line(line.removeprefix(ADMIN))[:REASON_CHARS]
            return
        if record.get("event") == "started":
            run.files = record["files"]
        elif record.get("event") in {"paused", "resumed"}:
            run.waits = record["event"] == "paused"
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
        if run.waits:
            return f"refdesk reads what has changed in {self._shown} once the computer is plugged in again."
        done = sum(count for outcome, count in run.outcomes.items() if outcome not in NOT_COUNTED)
        return f"refdesk is reading the documents in {self._shown}: {done:,} of {run.files:,} files so far."

    def _failure(self) -> str:
        """Why the run failed, without names of files, which are untrusted text."""
        run = self._run
        if run.reason:
            return run.reason
        if run.outcomes["missing"]:
            return f"{run.outcomes['missing']} documents are gone, and none was removed."
        if run.causes:
            return f"files failed: {self._causes()}."
        return f"refdesk-admin ended with exit code {run.exit_code}; the log of the server has the reason."

    def _causes(self) -> str:
        return ", ".join(f"{count} {cause}" for cause, count in self._run.causes.most_common())


def data_of(folder: Path, settings: Settings) -> Path:
    """The data folder for a folder of documents, next to the data folder of the settings.

    Each folder of documents has its own, so a search never finds documents of another folder.
    Example: ~/.local/share/refdesk and /home/ann/Handbook -> ~/.local/share/refdesk-folders/Handbook-4c2f0a91
    """
    digest = hashlib.sha256(os.path.normcase(folder).encode(errors="surrogateescape")).hexdigest()[:8]
    name = re.sub(r"[^\w-]+", "-", folder.name)[:NAME_CHARS]
    return settings.data.with_name(f"{settings.data.name}-folders") / f"{name}-{digest}".lstrip("-")
