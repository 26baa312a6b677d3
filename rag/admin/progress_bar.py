"""Progress of runs: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from tqdm import tqdm

from rag.admin.ingest_output import is_notable, outcome_line
from rag.admin.terminal import echo, log_line
from rag.ingest.report import Outcome, Progress
from rag.report import counted

if TYPE_CHECKING:
    from rag.evaluate.ask_questions import Contender

WORK = "{percentage:3.0f}%|{bar}| {n_fmt}B of {total_fmt}B, {rate_fmt}, {remaining} left{postfix}"


@contextmanager
def shown_progress(*, verbose: bool = False, as_log: bool = False, quiet: bool = False) -> Iterator[Progress]:
    """An observer that shows an ingestion's progress on standard error; a bar disappears at the end.

    `verbose` lists every file. `as_log` writes JSON lines. `quiet` shows nothing.
    """
    if quiet:
        yield Progress()
    elif as_log:
        yield Log(verbose=verbose)
    elif not sys.stderr.isatty():
        yield Lines(verbose=verbose)
    else:
        with closing(Bar(verbose=verbose)) as bar:
            yield bar


@dataclass(frozen=True, slots=True)
class Lines(Progress):
    """Prints a line per file, except for unchanged and unread files without a note, unless `verbose`."""

    verbose: bool

    def started(self, files: int, work: int) -> None:  # noqa: ARG002 as it is called
        """Print the number of files."""
        echo(counted(files, "file"), err=True)

    def finished(self, outcome: Outcome) -> None:
        """Print a file's result."""
        if self._has_news(outcome):
            echo(outcome_line(outcome), err=True)

    def _has_news(self, outcome: Outcome) -> bool:
        return self.verbose or outcome.outcome in {"added", "replaced"} or is_notable(outcome)


class Log(Lines):
    """Prints JSON lines for a log collector: the number of files, then each file with news."""

    def started(self, files: int, work: int) -> None:
        """Log the number of files and their bytes."""
        log_line("started", files=files, bytes=work)

    def finished(self, outcome: Outcome) -> None:
        """Log a file's result; a failure as an error."""
        if not self._has_news(outcome):
            return
        level = "error" if outcome.outcome == "skipped" else "info"
        fields = {"outcome": outcome.outcome, "path": outcome.path, "source": outcome.source_id}
        details = {"chunks": outcome.chunks, "reason": outcome.reason, "cause": outcome.cause}
        log_line("file", level=level, **fields, **{key: value for key, value in details.items() if value})


class Bar(Progress):
    """A bar over the bytes of files, with rate and remaining time; files with news are listed above it."""

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        self._bar = _byte_bar(0, WORK)
        self._chunks = self._files = self._finished = 0

    def started(self, files: int, work: int) -> None:
        """Set the bar's length."""
        self._files = files
        self._bar.reset(total=work)
        self._show()

    def worked(self, work: int) -> None:
        """Advance by this number of bytes."""
        self._bar.update(work)

    def embedded(self, chunks: int) -> None:
        """Count chunks."""
        self._chunks += chunks
        self._show()
        self._bar.refresh()

    def finished(self, outcome: Outcome) -> None:
        """Count a file, and list it if there is something to say about it."""
        if self._verbose or is_notable(outcome):
            _write_above(outcome_line(outcome))
        if outcome.outcome != "removed":  # not part of the total
            self._finished += 1
            self._show()

    def _show(self) -> None:
        files = f"{self._finished} of {counted(self._files, 'file')}"
        self._bar.set_postfix_str(f"{files}, {counted(self._chunks, 'chunk')}", refresh=False)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


class EvaluationProgress(Progress):
    """A bar over the documents, then one over the questions of each run; without a terminal, a line each.

    `closing` it removes the bar.
    """

    def __init__(self) -> None:
        self._bar: tqdm[NoReturn] | None = None

    def started(self, files: int, work: int) -> None:  # noqa: ARG002 as it is called
        """Show the ingestion of the set's documents."""
        self._begin(f"Ingesting {counted(files, 'document')}", files, "documents")

    def finished(self, outcome: Outcome) -> None:
        """Print a document that was not ingested."""
        if outcome.outcome in {"skipped", "ignored"}:
            _write_above(outcome_line(outcome))
        self.question_done()

    def run_started(self, contender: Contender, questions: int) -> None:
        """Show the questions of a run."""
        contender_name = f"profile {contender.profile}, mode {contender.mode}"
        self._begin(f"Asking {counted(questions, 'question')}: {contender_name}", questions, "questions")

    def question_done(self) -> None:
        """Advance by a question or document."""
        if self._bar is not None:
            self._bar.update()

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()

    def _begin(self, title: str, total: int, unit: str) -> None:
        self.close()
        echo(title, err=True)
        form = f"{{percentage:3.0f}}%|{{bar}}| {{n_fmt}} of {{total_fmt}} {unit}"
        self._bar = tqdm(total=total, file=sys.stderr, leave=False, disable=None, bar_format=form)


@contextmanager
def download_progress(title: str, size: int) -> Iterator[Callable[[int], None]]:
    """A bar over this number of bytes (0: unknown), which disappears at the end; only on a terminal."""
    form = f"{title}  {WORK}" if size else f"{title}  {{n_fmt}}B, {{rate_fmt}}"
    with _byte_bar(size or None, form, disable=None) as bar:

        def came(size: int) -> None:
            bar.update(size)

        yield came


def _byte_bar(total: int | None, form: str, *, disable: bool | None = False) -> tqdm[NoReturn]:
    """A bar over bytes; with `disable` None only on a terminal."""
    return tqdm(
        total=total,
        file=sys.stderr,
        leave=False,
        disable=disable,
        unit="B",
        unit_scale=True,
        bar_format=form,
    )


def _write_above(line: str) -> None:
    with tqdm.external_write_mode(file=sys.stderr):
        echo(line, err=True)
