"""What became of every file of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

OutcomeKind = Literal["added", "replaced", "unchanged", "removed", "skipped", "ignored"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file.

    `skipped` failed, for `reason`; `ignored` was met in a folder and is no kind of document.
    """

    path: str
    outcome: OutcomeKind
    reason: str = ""
    source_id: str | None = None
    chunks: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """What became of every file of a run, in the order in which it was known."""

    outcomes: tuple[Outcome, ...]

    @property
    def counts(self) -> dict[OutcomeKind, int]:
        """How many files had each outcome; every outcome is named."""
        counted = Counter(one.outcome for one in self.outcomes)
        return {kind: counted[kind] for kind in get_args(OutcomeKind)}

    @property
    def complete(self) -> bool:
        """Whether no file failed."""
        return not self.counts["skipped"]

    @property
    def fruitless(self) -> bool:
        """Whether files failed and nothing else came of the run."""
        done = ("added", "replaced", "unchanged", "removed")
        return not self.complete and not any(one.outcome in done for one in self.outcomes)
