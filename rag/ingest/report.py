"""The report of an ingestion run: the outcome of every file, the progress, and notes on the whole run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from shlex import quote
from typing import Literal, get_args

from rag.access.rule import in_words, is_narrowed, same_access, visible_to_nobody
from rag.config.settings import AccessRule, IngestSettings
from rag.corpus import Access, AccessRecord, Source
from rag.errors import Cause, ConfigurationError, EmptyFileError, ParseError, ProviderError
from rag.ingest.parse import ocr, xberg_formats
from rag.ingest.parse.document_parts import title_line
from rag.ingest.parse.parsers import OF_EXTRA
from rag.ingest.requested_access import covered_rules
from rag.ingest.source_files import LocalFile, document_name, path_of
from rag.originals import digest_of
from rag.report import counted, names_briefly
from rag.runtime import extra_needed, has_extra, install_command
from rag.store.write.access_claim import Claim, Policy
from rag.store.write.desk_folder import PURGED
from rag.store.write.table_rows import KnownSource
from rag.text.flags import FLAGS, IN_WORDS, Flag
from rag.text.languages import LANGUAGE, primary

NOT_THERE = "no such file or folder"
LeftOut = Literal["", "unsupported", "empty", "link", "policy", "expired"]
NAMED_FLAGS: tuple[Flag, ...] = ("instructions", "secret")
"""Flags whose documents are listed, for somebody to look at; for personal data, the number is enough."""
NAMED = 5  # documents in a note
_STORED = frozenset({"added", "replaced", "moved"})
OutcomeKind = Literal["added", "replaced", "moved", "unchanged", "removed", "missing", "skipped", "ignored"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one file.

    A `skipped` file failed, for `reason`; an `ignored` one holds nothing to ingest (`kind` says why); a
    `missing` one is gone, but so many others are that nothing was removed. `access` is set if this run
    decided it. `without_vector` counts chunks without a valid vector. `flags` are set only if this run read
    the text. `cause` classifies the reason of a skipped file. `masked` counts the masked values by kind.
    `language` is the tag of the document's language, empty if unknown.
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


@dataclass(slots=True)
class Outcomes:
    """The outcomes so far, in the order in which files were finished; `progress` gets each.

    Remarks on a source are collected by its URI until it is finished. `parts` are the digests of stored
    parts of containers, and `empty` the outcomes of parts without text, by URI. `undeclared` counts documents
    by the names of metadata without a declared field.
    """

    progress: Progress
    finished: list[Outcome] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    empty: dict[str, Outcome] = field(default_factory=dict)
    undeclared: Counter[str] = field(default_factory=Counter)
    _remarks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _flags: dict[str, tuple[Flag, ...]] = field(default_factory=dict)
    _masked: dict[str, Mapping[Flag, int]] = field(default_factory=dict)

    def remark(self, uri: str, *remarks: str) -> None:
        """Add remarks to the outcome of a source."""
        self._remarks[uri] += remarks

    def note_text(self, uri: str, flags: tuple[Flag, ...], masked: Mapping[Flag, int]) -> None:
        """Set the flags of a source's text, and the numbers of values that were masked in it."""
        self._flags[uri], self._masked[uri] = flags, masked

    def finish(self, outcomes: Iterable[Outcome]) -> None:
        """Add the outcomes of finished files."""
        for outcome in outcomes:
            self.finished.append(outcome)
            self.progress.finished(outcome)

    def finish_source(
        self,
        kind: OutcomeKind,
        source: Source | KnownSource,
        remarks: Iterable[str] = (),
        access: Access | None = None,
    ) -> None:
        """Add the outcome of a stored source, with its collected remarks and these."""
        lacking, chunks, uri = source.without_vector, source.chunk_count, source.uri
        about_vectors = [f"{lacking} of {chunks} chunks without a vector"] if lacking else []
        reason = "; ".join([*self._remarks[uri], *remarks, *about_vectors])
        flags, masked = self._flags.get(uri, ()), self._masked.get(uri, {})
        if "#" in uri:  # the next run opens their container again unless all are stored
            self.parts[uri] = source.digest
        path, language = path_of(uri), source.metadata.get(LANGUAGE, "")
        result = (path, kind, reason, source.id, chunks, access, lacking, flags)
        self.finish([Outcome(*result, masked=masked, language=language)])

    def fail(self, file: LocalFile, error: ParseError, *, has_earlier: bool) -> None:
        """Add the outcome of a file that can't be stored. An empty file fails only if it had text before."""
        path = path_of(file.uri)
        if not isinstance(error, EmptyFileError):
            stays = "; the earlier version stays" if has_earlier else ""
            self.finish([Outcome(path, "skipped", f"{error}{stays}", cause=error.cause)])
        elif has_earlier:
            reason = f"{error} any more; the earlier version stays"
            self.finish([Outcome(path, "skipped", reason, cause="no text")])
        else:
            self.empty[file.uri] = Outcome(path, "ignored", str(error), kind="empty")
            self.finish([self.empty[file.uri]])

    def ids(self, *kinds: OutcomeKind) -> set[str | None]:
        """The ids of the sources with one of these outcomes."""
        return {outcome.source_id for outcome in self.finished if outcome.outcome in kinds}

    def notes(self) -> Iterator[str]:
        """Notes on the documents as a whole."""
        yield from vector_notes(self.finished)
        yield from flag_notes(self.finished)
        yield from extra_notes(self.finished)
        yield from policy_notes(self.finished)


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


def digest_of_ids(ids: Iterable[str | None]) -> str:
    """A digest that tells sets of sources apart; empty for none."""
    listed = "\n".join(sorted(filter(None, ids)))
    return digest_of(listed.encode()) if listed else ""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcomes of a run, in the order in which files were finished, and notes on the run as a whole.

    `bill` is None if the embedder is not remote. `known_failures` counts failures that an earlier run
    reported for the same unchanged files. `embedder` says which model a new collection got, and why; empty if
    the operator chose it. `unmatched_rules` are the patterns of the access rules that apply to no document
    of the run, changed or not.
    """

    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    bill: Bill | None = None
    known_failures: int = 0
    embedder: str = ""
    unmatched_rules: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[OutcomeKind, int]:
        """The number of files with each outcome, zeros included."""
        counted = Counter(outcome.outcome for outcome in self.outcomes)
        return {kind: counted[kind] for kind in get_args(OutcomeKind)}

    @property
    def held(self) -> str:
        """Which sources of missing files were kept, as a digest; empty if none was."""
        return digest_of_ids(outcome.source_id for outcome in self.outcomes if outcome.outcome == "missing")

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
        added = (outcome.access for outcome in self.outcomes if outcome.outcome == "added")
        return sum(map(visible_to_nobody, added))

    @property
    def complete(self) -> bool:
        """Whether no file failed, and no missing file's source was kept."""
        return not (self.counts["skipped"] or self.counts["missing"])

    @property
    def is_as_before(self) -> bool:
        """Whether all failures are known, and nothing is missing."""
        return self.counts["skipped"] == self.known_failures and not self.counts["missing"]

    def has_news(self, *, known_ok: bool = False) -> bool:
        """Whether anything changed or failed; with `known_ok`, failures of an earlier run don't count."""
        no_news = {"unchanged", "ignored", *(["skipped"] if known_ok and self.is_as_before else [])}
        return any(
            outcome.outcome not in no_news or (outcome.reason and outcome.access) for outcome in self.outcomes
        )

    @property
    def fruitless(self) -> bool:
        """Whether files failed and no other file had a result."""
        done = ("added", "replaced", "moved", "unchanged", "removed", "missing")
        return not self.complete and not any(outcome.outcome in done for outcome in self.outcomes)


class InterruptedRunError(ProviderError):
    """The embedder failed during a run. Embedded documents are stored; `report` has the outcomes so far."""

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
            examples = names_briefly(paths, NAMED)
            yield f"{counted(len(paths), 'document')} {verb} {IN_WORDS[flag]}: {examples}."
    if personal := [f"{IN_WORDS[flag]} in {len(paths)}" for flag, paths in flagged.items() if paths]:
        yield f"Personal data, by number of documents: {', '.join(personal)}."


def field_notes(undeclared: Counter[str], collection: str) -> Iterator[str]:
    """A note on metadata without a declared field, with the number of documents that have it.

    Example: "No field is declared for this metadata: status (3 documents). To filter by it: …"
    """
    if undeclared:
        names = [f"{title_line(name)} ({counted(n, 'document')})" for name, n in undeclared.most_common()]
        yield (
            f"No field is declared for this metadata: {names_briefly(names, NAMED)}. To filter by it, "
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
        examples = names_briefly([f"{outcome.path}: {outcome.reason}" for outcome in kept_out], NAMED, "; ")
        yield f"{counted(len(kept_out), 'document')} not stored, by policy. {examples}."
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


def vector_notes(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """A note on chunks without a vector."""
    lacking = {outcome.path: outcome.without_vector for outcome in outcomes if outcome.without_vector}
    if not lacking:
        return
    total = sum(lacking.values())
    examples = names_briefly([f"{path} ({count})" for path, count in lacking.items()], NAMED)
    yield (
        f"The embedding model has no valid vector for {counted(total, 'chunk')}: {examples}. Searches find "
        "them by their words only. The next run asks again."
    )


def check_extras(settings: IngestSettings) -> None:
    """Check that the extras that the settings need are installed.

    Raises:
        ConfigurationError: OCR is on and the extra isn't installed.
    """
    if settings.ocr != "off" and not has_extra("ocr"):
        needed = extra_needed("ocr", f'ingest.ocr = "{settings.ocr}"')
        raise ConfigurationError(f'{needed} Or set ingest.ocr to "off".')


def extra_notes(outcomes: Collection[Outcome]) -> Iterator[str]:
    """Notes on the files that could be read after installing an extra, or by OCR.

    Pictures count if half of the files are pictures, as in a folder of scans: others illustrate pages.
    """
    left_out = [outcome for outcome in outcomes if outcome.outcome in {"ignored", "skipped"}]
    of_extra = _suffixes(left_out, OF_EXTRA)
    if of_extra and not xberg_formats.is_installed():
        yield READABLE_AFTER.format(_kinds(of_extra), install_command("formats"))
    unsupported = (outcome for outcome in left_out if "unsupported" in {outcome.kind, outcome.cause})
    pictures = _suffixes(unsupported, ocr.SUFFIXES)
    if pictures and 2 * len(pictures) >= len(outcomes):
        setting = 'setting ocr = "auto" in [ingest], where they show text'
        command = "" if has_extra("ocr") else f", and: {install_command('ocr')}"
        yield READABLE_AFTER.format(_kinds(pictures), f"{setting}{command}")


READABLE_AFTER = "{} can be read after: {}"


def _suffixes(outcomes: Iterable[Outcome], among: Collection[str]) -> list[str]:
    suffixes = (PurePath(outcome.path).suffix.lower() for outcome in outcomes)
    return [suffix for suffix in suffixes if suffix in among]


def _kinds(suffixes: Sequence[str]) -> str:
    return f"{counted(len(suffixes), 'file')} ({', '.join(sorted({*suffixes}))})"


BACK_AS_BEFORE = "it is back, with its earlier rights"
MOST_NAMED = 3  # removed documents in the notes of a run


AS_NEW = "as new documents here are"


class AccessReport:
    """Collects remarks and notes on access while claims are made and settled.

    `records` are the access records at the start of the run, by id. `_successors` counts the documents that
    were narrowed because of a removed one, by its id. `_kept` are pairs of a source's access and the access
    that the run would give it.
    """

    def __init__(self, records: Mapping[str, AccessRecord]) -> None:
        self.narrowed_folders: dict[str, Access] = {}
        self._records = records
        self._successors: Counter[str] = Counter()
        self._kept: list[tuple[Access | None, Access]] = []

    def note_kept(self, access: Access | None, run_access: Access | None, *, by_command: bool) -> None:
        """Note a source that keeps its record although the run or the rules give its path other rights."""
        if run_access and (
            (by_command and not same_access(access, run_access)) or is_narrowed(run_access, access)
        ):
            self._kept.append((access, run_access))

    def remarks(self, claim: Claim, record: AccessRecord) -> Iterator[str]:
        """The remarks on the access that a source got."""
        before, access = self._records.get(record.id), record.access
        is_unchanged = before and same_access(before.access, access)
        if before and not before.present:
            yield BACK_AS_BEFORE if is_unchanged else "it is back"
        if claim.policy.is_sync and is_narrowed(access, claim.access):
            yield f"its origin says {in_words(claim.access)}, but somebody narrowed it by hand"
        if before and not is_unchanged:
            yield f"now {in_words(access)}" + (f": {claim.reason}" if claim.reason else "")
        elif claim.policy.is_sync:
            return
        else:
            yield from self._narrower(claim, access, is_new=before is None)
        requested = claim.requested_access
        new_request = before is None or before.requested != claim.requested
        if requested and not same_access(requested, access) and new_request:
            yield f"it requests to be {in_words(requested)}, which is wider; it is {in_words(access)}"

    def _narrower(self, claim: Claim, access: Access | None, *, is_new: bool) -> Iterator[str]:
        """Why a source is narrower than its claim, or than a document that it could be."""
        is_claimed = same_access(claim.access, access)
        if (is_new and not is_claimed) or self._narrows(claim, access):
            reason = claim.reason or "others have narrower rights"
            yield f"{in_words(access)}: {AS_NEW if is_new and is_claimed else reason}"
            if claim.gone and not (is_new and is_claimed):
                self._successors[claim.gone.id] += 1

    def _narrows(self, claim: Claim, access: Access | None) -> bool:
        """Whether a document of the floor is wider than the access that resulted."""
        floor_records = (self._records.get(id_) for id_ in claim.floor)
        return claim.policy is not Policy.REPLACE and any(
            is_narrowed(access, record.access) for record in floor_records if record
        )

    def notes(self, overruled: Mapping[str, int]) -> Iterator[str]:
        """Notes on the access of the run's documents as a whole.

        `overruled` counts those that the command opened to more than a rule, by the rule's pattern.
        """
        for uri, access in self.narrowed_folders.items():
            yield (
                f"New files in {path_of(uri)} are {in_words(access)}, because it or a folder above it was "
                "ingested that way before. Add --set-access to change that."
            )
        for id_, number in self._successors.most_common(MOST_NAMED):
            gone, new = self._records[id_], counted(number, "new document")
            yield (
                f"{new} restricted like {document_name(gone)}, which is gone: perhaps a new version of it. "
                f"If not, run {_forgetting(gone)}, and then refdesk-admin access set for what is new."
            )
        for pattern, number in overruled.items():
            new = counted(number, "new document")
            yield (
                f"The access rule for {pattern} lets fewer people see {new}, but the command goes before "
                "rules. To change that, run refdesk-admin access set."
            )
        if self._kept:
            wider = sum(1 for access, run_access in self._kept if is_narrowed(run_access, access))
            sources = counted(len(self._kept), "source")
            keep = "keeps its" if len(self._kept) == 1 else "keep their"
            yield (
                f"{sources} {keep} earlier rights, although the command or the rules give others. "
                f"{counted(wider, 'source')} would be less widely visible. Add --set-access to change them."
            )


def unmatched_notes(patterns: Iterable[str], rules: Sequence[AccessRule]) -> tuple[str, ...]:
    """Notes on access rules that applied to nothing: one may be misspelt, or stand too late."""
    covered = covered_rules(rules)
    return tuple(covered.get(pattern) or _unmatched_note(pattern) for pattern in patterns)


def _unmatched_note(pattern: str) -> str:
    of_folder = "" if "*" in pattern else f" For the files of a folder, write {pattern}/*."
    why = "no file matches it, or an earlier rule matches first."
    return f"The access rule for {pattern} applied to no file: {why}{of_folder}"


def _forgetting(gone: AccessRecord) -> str:
    """The command that stops a removed document from narrowing others."""
    name = gone.id if gone.uri.startswith(PURGED) else path_of(gone.uri)
    return f"refdesk-admin remove --forget --collection {gone.collection} {quote(name)}"


class Progress:
    """Follows a run. This class shows nothing."""

    def started(self, files: int, work: int) -> None:
        """The number of files to finish (removed ones come on top), and their bytes to work on."""

    def worked(self, work: int) -> None:
        """`work` more bytes were embedded, or need no embedding."""

    def embedded(self, chunks: int) -> None:
        """`chunks` more chunks were embedded."""

    def finished(self, outcome: Outcome) -> None:
        """A file is finished."""
