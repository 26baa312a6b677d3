"""How a run's progress looks: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from tqdm import tqdm

from rag.admin.console import counted, echo
from rag.hidden import in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rag.evaluate.ask import Contender
    from rag.ingest.report import Outcome
    from rag.ingest.run import Progress


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """What shows a run's progress on standard error; a bar is gone at the end."""
    if not sys.stderr.isatty():
        yield Lines()
        return
    bar = Bar()
    try:
        yield bar
    finally:
        bar.close()


class Lines:
    """A line per file that isn't unchanged."""

    def started(self, files: int) -> None:
        """Say how many files there are."""
        echo(counted(files, "file"), err=True)

    def embedded(self, chunks: int) -> None:
        """Say nothing: the file's own line follows."""

    def finished(self, outcome: Outcome) -> None:
        """Say what became of a file."""
        if outcome.outcome != "unchanged":
            echo(outcome_line(outcome), err=True)


class Bar:
    """A bar over the files, with the chunks embedded so far; above it the files that need a look."""

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
        """Show that a large file moves, too."""
        self._chunks += chunks
        self._bar.set_postfix_str(counted(self._chunks, "chunk"))

    def finished(self, outcome: Outcome) -> None:
        """Move on by a file."""
        if outcome.outcome not in {"added", "replaced", "unchanged"}:
            _write_above(outcome_line(outcome))
        if outcome.outcome != "removed":  # not counted at the start either
            self._bar.update()

    def close(self) -> None:
        """Take the bar away."""
        self._bar.close()


class EvaluationProgress:
    """A bar over the documents, then one over the questions of each run; elsewhere a line for each."""

    def __init__(self) -> None:
        self._bar: tqdm[NoReturn] | None = None

    @property
    def ingesting(self) -> Progress:
        """It watches the documents as well."""
        return self

    def started(self, files: int) -> None:
        """The set's documents are being ingested."""
        self._begin(f"Ingesting {counted(files, 'document')}", files, "documents")

    def embedded(self, chunks: int) -> None:
        """Say nothing: documents of judged sets are small."""

    def finished(self, outcome: Outcome) -> None:
        """Say what became of a document that was not ingested."""
        if outcome.outcome == "skipped":
            _write_above(outcome_line(outcome))
        self._step()

    def began(self, contender: Contender, questions: int) -> None:
        """A run begins."""
        what = f"profile {contender.profile}, mode {contender.mode}"
        self._begin(f"Asking {counted(questions, 'question')}: {what}", questions, "questions")

    def asked(self) -> None:
        """One more question has its answers."""
        self._step()

    def close(self) -> None:
        """Take the bar away."""
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
    """What shows an evaluation's progress on standard error; a bar is gone at the end."""
    progress = EvaluationProgress()
    try:
        yield progress
    finally:
        progress.close()


def _bar(total: int, things: str) -> tqdm[NoReturn]:
    """A bar on standard error that goes away; none where that is no terminal."""
    form = f"{{percentage:3.0f}}%|{{bar}}| {{n_fmt}} of {{total_fmt}} {things}"
    return tqdm(total=total, file=sys.stderr, leave=False, disable=None, bar_format=form)


def _write_above(line: str) -> None:
    """A line on standard error, where bars that are there go on below it."""
    with tqdm.external_write_mode(file=sys.stderr):
        echo(line, err=True)


def outcome_line(outcome: Outcome) -> str:
    """What became of a file, on one line."""
    stored = outcome.outcome in {"added", "replaced"}
    chunks = f" ({counted(outcome.chunks, 'chunk')})" if stored else ""
    reason = f": {outcome.reason}" if outcome.reason else ""
    return in_one_line(f"{outcome.outcome:9} {outcome.path}{chunks}{reason}")
