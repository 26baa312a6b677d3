"""Progress of runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from tqdm import tqdm

from rag.admin.console import echo
from rag.hidden import in_one_line
from rag.report.tables import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.evaluate.ask import Contender
    from rag.ingest.report import Outcome
    from rag.ingest.run import Progress


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """An observer that shows an ingestion's progress on standard error; a bar disappears at the end."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    bar = Bar()
    try:
        yield bar
    finally:
        bar.close()


class Lines:
    """A line per file, except for unchanged ones."""

    def started(self, files: int) -> None:
        """Print the number of files."""
        echo(counted(files, "file"), err=True)

    def embedded(self, chunks: int) -> None:
        """Print nothing: the file's own line follows."""

    def finished(self, outcome: Outcome) -> None:
        """Print a file's result."""
        if outcome.outcome != "unchanged":
            echo(outcome_line(outcome), err=True)


class Bar:
    """A bar over the files with the embedded chunks; files that need attention are listed above it."""

    def __init__(self) -> None:
        self._bar: tqdm[NoReturn] = tqdm(
            total=0,
            file=sys.stderr,
            leave=False,
            bar_format="{percentage:3.0f}%|{bar}| {n_fmt} of {total_fmt} files{postfix}",
        )
        self._chunks = 0

    def started(self, files: int) -> None:
        """Set the bar's length."""
        self._bar.reset(total=files)

    def embedded(self, chunks: int) -> None:
        """Count chunks, so that a large file shows progress, too."""
        self._chunks += chunks
        self._bar.set_postfix_str(counted(self._chunks, "chunk"))

    def finished(self, outcome: Outcome) -> None:
        """Advance by a file."""
        if outcome.outcome not in {"added", "replaced", "unchanged"}:
            _write_above(outcome_line(outcome))
        if outcome.outcome != "removed":  # not part of the total
            self._bar.update()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class EvaluationProgress:
    """A bar over the documents, then one over the questions of each run; without a terminal, a line each."""

    def __init__(self) -> None:
        self._bar: tqdm[NoReturn] | None = None

    @property
    def ingesting(self) -> Progress:
        """This object observes the ingestion, too."""
        return self

    def started(self, files: int) -> None:
        """Show the ingestion of the set's documents."""
        self._begin(f"Ingesting {counted(files, 'document')}", files, "documents")

    def embedded(self, chunks: int) -> None:
        """Print nothing: documents of judged sets are small."""

    def finished(self, outcome: Outcome) -> None:
        """Print a document that was not ingested."""
        if outcome.outcome == "skipped":
            _write_above(outcome_line(outcome))
        self._step()

    def began(self, contender: Contender, questions: int) -> None:
        """Show the questions of a run."""
        what = f"profile {contender.profile}, mode {contender.mode}"
        self._begin(f"Asking {counted(questions, 'question')}: {what}", questions, "questions")

    def asked(self) -> None:
        """Advance by a question."""
        self._step()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def _begin(self, what: str, total: int, things: str) -> None:
        self.close()
        echo(what, err=True)
        self._bar = _bar(total, things)

    def _step(self) -> None:
        if self._bar is not None:
            self._bar.update()


@contextmanager
def evaluation_progress() -> Iterator[EvaluationProgress]:
    """An observer that shows an evaluation's progress on standard error; bars disappear at the end."""
    progress = EvaluationProgress()
    try:
        yield progress
    finally:
        progress.close()


def _bar(total: int, things: str) -> tqdm[NoReturn]:
    """A bar on standard error; none if that is not a terminal."""
    form = f"{{percentage:3.0f}}%|{{bar}}| {{n_fmt}} of {{total_fmt}} {things}"
    return tqdm(total=total, file=sys.stderr, leave=False, disable=None, bar_format=form)


def _write_above(line: str) -> None:
    """Print a line on standard error above the current bar."""
    with tqdm.external_write_mode(file=sys.stderr):
        echo(line, err=True)


def outcome_line(outcome: Outcome) -> str:
    """A file's result on one line."""
    stored = outcome.outcome in {"added", "replaced"}
    chunks = f" ({counted(outcome.chunks, 'chunk')})" if stored else ""
    reason = f": {outcome.reason}" if outcome.reason else ""
    return in_one_line(f"{outcome.outcome:9} {outcome.path}{chunks}{reason}")
