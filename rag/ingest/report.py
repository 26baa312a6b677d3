"""What became of every file of a run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from rag.access.rule import in_words, visible_to_nobody

if TYPE_CHECKING:
    from rag.corpus import Access

OutcomeKind = Literal["added", "replaced", "moved", "unchanged", "removed", "missing", "skipped", "ignored"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one file.

    `skipped` failed, for `reason`; `ignored` was met in a folder and is no kind of document; `missing` is
    gone, and so is so much else that nothing was removed. `access` is who may see the source, where the run
    had a say in it.
    """

    path: str
    outcome: OutcomeKind
    reason: str = ""
    source_id: str | None = None
    chunks: int = 0
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What became of every file of a run, in the order in which it was known, and what else must be known."""

    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[OutcomeKind, int]:
        """How many files had each outcome; every outcome is named."""
        counted = Counter(one.outcome for one in self.outcomes)
        return {kind: counted[kind] for kind in get_args(OutcomeKind)}

    @property
    def visibility(self) -> str:
        """Who may see what came in: "3 added: 2 restricted to group:hr, 1 open to the tenant"; else empty."""
        added = [one.access for one in self.outcomes if one.outcome == "added"]
        counted = Counter(map(in_words, added)).most_common()
        listed = ", ".join(f"{number} {words}" for words, number in counted)
        return f"{len(added)} added: {listed}" if added else ""

    @property
    def for_nobody(self) -> int:
        """How many of the sources that came in nobody may see."""
        return sum(1 for one in self.outcomes if one.outcome == "added" and visible_to_nobody(one.access))

    @property
    def complete(self) -> bool:
        """Whether no file failed, and nothing that should have been removed stays."""
        return not (self.counts["skipped"] or self.counts["missing"])

    @property
    def fruitless(self) -> bool:
        """Whether files failed and nothing else came of the run."""
        done = ("added", "replaced", "moved", "unchanged", "removed", "missing")
        return not self.complete and not any(one.outcome in done for one in self.outcomes)
