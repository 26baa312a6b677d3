"""The report of an ingestion run: the outcome of every file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from rag.access.rule import in_words, visible_to_nobody
from rag.corpus import Access
from rag.errors import Cause, ProviderError
from rag.ingest.parse.document_parts import title_line
from rag.report.text_and_html import counted
from rag.text.flags import FLAGS, IN_WORDS, Flag
from rag.text.languages import primary

NOT_THERE = "no such file or folder"
LeftOut = Literal["", "unsupported", "empty", "policy", "expired"]
NAMED_FLAGS: tuple[Flag, ...] = ("instructions", "secret")
"""Flags whose documents somebody should look at; of personal data, the number is enough."""
NAMED = 5  # documents in a note
_STORED = frozenset({"added", "replaced", "moved"})
OutcomeKind = Literal["added", "replaced", "moved", "unchanged", "removed", "missing", "skipped", "ignored"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one file.

    `skipped` means that it failed, for `reason`; `ignored`, that it holds nothing to ingest (`kind` says
    why); `missing`, that it is gone, but too many others are, too, so that nothing was removed. `access` is
    who may see the source, if this run decided it. `without_vector` counts chunks without a valid vector.
    `flags` are set only if this run read the text. `cause` classifies the reason of a skipped file. `masked`
    counts the masked values by kind. `language` is the tag of the document's language, empty if unknown.
    """

    path: str
    outcome: OutcomeKind
    reason: str = ""
    source_id: str | None = None
    chunks: int = 0
    access: Access | None = None
    without_vector: int = 0
    flags: tuple[Flag, ...] = ()
    kind: LeftOut = ""
    cause: Cause | None = None
    masked: Mapping[Flag, int] = field(default_factory=dict)
    language: str = ""


@dataclass(frozen=True, slots=True)
class Bill:
    """What a run sent to a remote embedder: texts, and the tokens that the provider reported for them.

    The vectors of `cached` texts came from the cache. For `unreported` texts the provider reported no number
    of tokens. `price` is per million tokens, 0 if unknown.
    """

    texts: int
    tokens: int
    cached: int = 0
    unreported: int = 0
    price: float = 0.0

    @property
    def cost(self) -> float | None:
        """The cost in the currency of the price; None if a price or a number of tokens is missing."""
        return None if self.unreported or not self.price else self.tokens * self.price / 1e6


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of a run, in the order in which files were finished, and notes on the run as a whole.

    `bill` is None if the embedder is not remote. `known_failures` counts failures that an earlier run
    reported for the same unchanged files. `embedder` says which model a new collection got, and why, unless
    somebody had chosen it.
    """

    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    bill: Bill | None = None
    known_failures: int = 0
    embedder: str = ""

    @property
    def counts(self) -> dict[OutcomeKind, int]:
        """The number of files with each outcome, zeros included."""
        counted = Counter(outcome.outcome for outcome in self.outcomes)
        return {kind: counted[kind] for kind in get_args(OutcomeKind)}

    @property
    def languages(self) -> dict[str, int]:
        """The number of documents that are stored in each language, most frequent first; "" is unknown."""
        kinds = _STORED | {"unchanged"}
        counted = Counter(primary(outcome.language) for outcome in self.outcomes if outcome.outcome in kinds)
        return dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))

    @property
    def visibility(self) -> str:
        """Who may see the added sources: "3 added: 2 restricted to group:hr, 1 open to the tenant", or ""."""
        added = [outcome.access for outcome in self.outcomes if outcome.outcome == "added"]
        counted = Counter(map(in_words, added)).most_common()
        listed = ", ".join(f"{number} {words}" for words, number in counted)
        return f"{len(added)} added: {listed}" if added else ""

    @property
    def for_nobody(self) -> int:
        """The number of added sources that nobody may see."""
        return sum(
            1 for outcome in self.outcomes if outcome.outcome == "added" and visible_to_nobody(outcome.access)
        )

    @property
    def complete(self) -> bool:
        """Whether no file failed, and no missing file's source was kept."""
        return not (self.counts["skipped"] or self.counts["missing"])

    @property
    def is_as_before(self) -> bool:
        """Whether all failures are known, and nothing is missing."""
        return self.counts["skipped"] == self.known_failures and not self.counts["missing"]

    @property
    def has_news(self) -> bool:
        """Whether anything changed or failed."""
        return any(
            outcome.outcome not in {"unchanged", "ignored"} or (outcome.reason and outcome.access)
            for outcome in self.outcomes
        )

    @property
    def fruitless(self) -> bool:
        """Whether files failed and no other file had a result."""
        done = ("added", "replaced", "moved", "unchanged", "removed", "missing")
        return not self.complete and not any(outcome.outcome in done for outcome in self.outcomes)


class InterruptedRunError(ProviderError):
    """The embedder failed during a run. What it had embedded is stored; `report` has what was done."""

    def __init__(self, error: ProviderError, report: Report, unfinished: int) -> None:
        done = counted(sum(1 for outcome in report.outcomes if outcome.outcome in _STORED), "document")
        super().__init__(
            f"{error} This run stored {done}; {counted(unfinished, 'file')} are left. Run the same command "
            "again: it goes on there.",
            for_caller=error.for_caller,
        )
        self.report = report


def flag_notes(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Notes on flagged texts among those that this run read.

    Instructions to a model and secrets are listed by document, personal data only by number.
    Example: "2 documents contain text that looks like instructions to a model: a.md, b.md."
    """
    flagged: dict[Flag, list[str]] = {flag: [] for flag in FLAGS}
    for outcome in outcomes:
        for flag in outcome.flags:
            flagged[flag].append(outcome.path)
    for flag in NAMED_FLAGS:
        if paths := flagged.pop(flag):
            verb = "contains" if len(paths) == 1 else "contain"
            examples = ", ".join(paths[:NAMED]) + (
                f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
            )
            yield f"{counted(len(paths), 'document')} {verb} {IN_WORDS[flag]}: {examples}."
    if personal := [f"{IN_WORDS[flag]} in {len(paths)}" for flag, paths in flagged.items() if paths]:
        yield f"Personal data, by number of documents: {', '.join(personal)}."


def field_notes(undeclared: Counter[str], collection: str) -> Iterator[str]:
    """A note on metadata without a declared field, with the number of documents that have it.

    Example: "No field is declared for this metadata: status (3 documents). To filter by it: …"
    """
    names = [
        f"{title_line(name)} ({counted(count, 'document')})" for name, count in undeclared.most_common(NAMED)
    ]
    if names:
        and_more = f" and {len(undeclared) - NAMED} more" if len(undeclared) > NAMED else ""
        yield (
            f"No field is declared for this metadata: {', '.join(names)}{and_more}. To filter by it, "
            f"declare it: refdesk-admin collection set {collection} --field NAME=TYPE"
        )


def policy_notes(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Notes on documents that were masked, kept out by policy, or expired.

    Example: "Masked in 2 documents: 3 e-mail addresses, 1 IBAN."
    """
    outcomes = list(outcomes)
    total: Counter[Flag] = Counter()
    for outcome in outcomes:
        total.update(outcome.masked)
    if total:
        documents = sum(1 for outcome in outcomes if outcome.masked)
        yield f"Masked in {counted(documents, 'document')}: {in_numbers(total)}."
    if kept_out := [outcome for outcome in outcomes if outcome.kind == "policy"]:
        examples = "; ".join(f"{outcome.path}: {outcome.reason}" for outcome in kept_out[:NAMED])
        and_more = f"; and {len(kept_out) - NAMED} more" if len(kept_out) > NAMED else ""
        yield f"{counted(len(kept_out), 'document')} not stored, by policy. {examples}{and_more}."
    if expired := [outcome for outcome in outcomes if outcome.kind == "expired"]:
        removed = sum(1 for outcome in expired if outcome.outcome == "removed")
        yield f"{counted(len(expired), 'document')} expired: {removed} removed, the others not stored."


def in_numbers(numbers: Mapping[Flag, int]) -> str:
    """Numbers of values for people: {"email": 2, "iban": 1} -> "2 e-mail addresses, 1 IBAN"."""
    return ", ".join(f"{number} {_NOUNS[flag][number > 1]}" for flag, number in numbers.items())


_NOUNS: Mapping[Flag, tuple[str, str]] = {
    "secret": ("secret", "secrets"),
    "card": ("payment card number", "payment card numbers"),
    "iban": ("IBAN", "IBANs"),
    "national_id": ("national identity number", "national identity numbers"),
    "phone": ("phone number", "phone numbers"),
    "email": ("e-mail address", "e-mail addresses"),
}
