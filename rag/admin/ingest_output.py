"""The output of `refdesk-admin ingest`: a summary in a few lines, or a report of every file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from rag.admin.terminal import echo, print_note
from rag.corpus import Visibility
from rag.ingest.report import NOT_THERE, Bill, Outcome, OutcomeKind, Report
from rag.report import Html, counted, names_briefly, note, page, section, tag
from rag.runtime import grouped
from rag.text.languages import name_of
from rag.text.plain_text import in_one_line

UNUSUAL = ("moved", "missing")
SUFFIXES_SHOWN = 8
PATHS_SHOWN = 8
LANGUAGES_SHOWN = 8
_PICTURE = re.compile(r"\.(apng|avif|bmp|cr2|dng|gif|heic|heif|ico|jpe?g|jxl|nef|png|psd|raw|svg|tiff?|webp)")
_RECORDING = re.compile(
    r"\.(aac|aiff?|avi|flac|flv|m4[av]|mid|mkv|mov|mp[34]|mpe?g|ogg|opus|wav|webm|wm[av])"
)
FIRST: tuple[OutcomeKind, ...] = (
    *("skipped", "missing", "removed", "replaced"),
    *("moved", "added", "ignored", "unchanged"),
)
"""The order of outcomes in a report: what needs attention comes first."""


def is_notable(outcome: Outcome) -> bool:
    """Whether a run lists this file: it failed, it was moved or removed, or it has a note.

    An unchanged file is listed only if the run changed its access.
    """
    if outcome.outcome == "unchanged":
        return bool(outcome.reason and outcome.access)
    return outcome.outcome != "ignored" and (
        outcome.outcome not in {"added", "replaced"} or bool(outcome.reason)
    )


def print_summary(
    report: Report, collection: str, usual: Visibility, *, quiet: bool, before: str, as_log: bool = False
) -> None:
    """Print a run's counts, who may see what was added, what was not read, and the notes.

    `usual` is the default visibility of the collection's new documents. The notes go to standard error, with
    `as_log` as lines of the log; with `quiet`, everything. Each line begins with `before`. If there is one,
    the run has shown nothing so far, and its failures come first.
    """
    for outcome in report.outcomes if before else ():
        if outcome.outcome in {"skipped", "missing"}:
            echo(f"{before}{outcome_line(outcome)}", err=True)
    for line in _summary(report, collection, usual):
        echo(f"{before}{line}", err=quiet)
    for text in report.notes:
        print_note(text, as_log=as_log, before=before)


def _summary(report: Report, collection: str, usual: Visibility) -> Iterator[str]:
    counts = {kind: count for kind, count in report.counts.items() if count or kind not in UNUSUAL}
    yield ", ".join(f"{count} {kind}" for kind, count in counts.items())
    if stored := stored_formats(report.outcomes):
        yield f"Stored: {stored}"
    if report.languages.keys() - {""}:
        yield f"Languages: {languages_text(report.languages)}"
    if report.embedder:
        yield f"Embedding model: {report.embedder}"
    if missing := [outcome.path for outcome in report.outcomes if outcome.reason == NOT_THERE]:
        yield f"Not found: {names_briefly(missing, PATHS_SHOWN)}"
    yield from _losses(report)
    if report.visibility:
        yield report.visibility
    if report.for_nobody:
        why = f": new sources of {collection} are restricted unless --visibility says otherwise"
        yield (
            f"Nobody may see {report.for_nobody} of them yet{why if usual == 'restricted' else ''}. Grant a "
            "group access with refdesk-admin access grant PATH --to group:NAME, or everybody with "
            "refdesk-admin access set PATH --visibility tenant."
        )
    if report.bill:
        yield bill_line(report.bill)


def _losses(report: Report) -> Iterator[str]:
    """What the run could not store, and what it did not read."""
    causes = Counter[str](
        outcome.cause or "damaged" for outcome in report.outcomes if outcome.outcome == "skipped"
    )
    if causes:
        old_failures = report.known_failures
        as_before = f" ({old_failures} as before, in files that haven't changed)" if old_failures else ""
        yield f"Failed: {causes_text(causes)}{as_before}"
    if unread := unread_text(report.outcomes):
        yield f"Not read: {unread}"


def languages_text(counts: Mapping[str, int]) -> str:
    """Documents by language: {"de": 12, "": 2} -> "12 German, 2 without one"."""
    parts = [f"{count} {name_of(tag) if tag else 'without one'}" for tag, count in counts.items()]
    return names_briefly(parts, LANGUAGES_SHOWN)


def bill_line(bill: Bill) -> str:
    """What a run sent to a remote embedder.

    Example: "Embedding: 120 texts sent (34,560 tokens, cost 0.0007), 880 taken from the cache".
    """
    tokens = f"{bill.tokens:,} tokens"
    if bill.unreported:
        tokens += f", not counting {counted(bill.unreported, 'text')} that the provider gave no number for"
    cost = f", cost {bill.cost:.4g}" if bill.cost is not None else ""
    cached = f", {bill.cached:,} taken from the cache" if bill.cached else ""
    return f"Embedding: {counted(bill.texts, 'text')} sent ({tokens}{cost}){cached}"


def stored_formats(outcomes: Iterable[Outcome]) -> str:
    """The added and replaced files by format, if there are several: "120 .md, 3 .pdf"."""
    stored = [outcome for outcome in outcomes if outcome.outcome in {"added", "replaced"}]
    formats = Counter(_format(outcome) for outcome in stored)
    parts = [f"{count} {name}" for name, count in formats.most_common()]
    return names_briefly(parts, SUFFIXES_SHOWN) if len(parts) > 1 else ""


def _format(outcome: Outcome) -> str:
    path = outcome.path.partition("?")[0] if outcome.path.startswith("origin:") else outcome.path
    return PurePath(path).suffix.lower() or "without a suffix"


def causes_text(causes: Mapping[str, int]) -> str:
    """Counts by cause, the largest first: {"damaged": 3, "encrypted": 1} -> "3 damaged, 1 encrypted"."""
    ordered = sorted(causes.items(), key=lambda cause_count: (-cause_count[1], cause_count[0]))
    return ", ".join(f"{count} {cause}" for cause, count in ordered)


def unread_text(outcomes: Iterable[Outcome]) -> str:
    """The files of walked folders that refdesk can't read, by kind.

    Example: "117 .docx, 58 .pptx, 42 .eml; 578 pictures; 1 empty file".
    """
    ignored = [outcome for outcome in outcomes if outcome.outcome == "ignored"]
    suffixes = Counter(
        PurePath(outcome.path).suffix.lower() for outcome in ignored if outcome.kind == "unsupported"
    )
    pictures, recordings = (_pop_matching(suffixes, kind) for kind in (_PICTURE, _RECORDING))
    unsupported = [f"{count} {suffix or 'without a suffix'}" for suffix, count in suffixes.most_common()]
    kinds_ignored = Counter(outcome.kind for outcome in ignored)
    empty, links = kinds_ignored["empty"], kinds_ignored["link"]
    counts = {"picture": pictures, "recording": recordings, "empty file": empty, "symbolic link": links}
    kinds = (counted(count, kind) for kind, count in counts.items() if count)
    return "; ".join(filter(None, [names_briefly(unsupported, SUFFIXES_SHOWN), *kinds]))


def _pop_matching(suffixes: Counter[str], kind: re.Pattern[str]) -> int:
    """Remove the suffixes of this kind from the counts. Returns how many files have them."""
    return sum(suffixes.pop(suffix) for suffix in [*suffixes] if kind.fullmatch(suffix))


def outcome_line(outcome: Outcome) -> str:
    """A file's result on one line."""
    stored = outcome.outcome in {"added", "replaced"}
    chunks = f" ({counted(outcome.chunks, 'chunk')})" if stored else ""
    reason = f": {outcome.reason}" if outcome.reason else ""
    return in_one_line(f"{outcome.outcome:9} {outcome.path}{chunks}{reason}")


STYLE = """
.files { width: 100%; table-layout: fixed; margin-top: 0.75rem; }
.files th, .files td { padding: 0.3rem 0.75rem 0.3rem 0; vertical-align: top; text-align: left; }
.files tbody tr { border-top: 1px solid var(--line); }
.files th:nth-child(2) { width: 5rem; }
"""


def ingestion_report(report: Report, collection: str) -> str:
    """An HTML page with the outcome of every file, ordered by the attention that it needs."""
    counts = ", ".join(f"{count} {kind}" for kind, count in report.counts.items() if count)
    about = [counts or "There were no files.", *filter(None, [report.visibility])]
    header = tag("header", tag("h1", f"Ingestion into {collection}"), *map(note, about))
    notes = [*_losses(report), *([bill_line(report.bill)] if report.bill else []), *report.notes]
    sections = [
        section("Notes", *(tag("p", note_text) for note_text in notes)),
        _formats(report),
        *_sections(report),
    ]
    return page(f"Ingestion into {collection}", header, sections, style=STYLE)


def _formats(report: Report) -> Html:
    files = [outcome for outcome in report.outcomes if outcome.outcome != "ignored"]
    kinds = [kind for kind in FIRST if any(outcome.outcome == kind for outcome in files)]
    by_format = grouped((_format(outcome), outcome) for outcome in files)
    rows = []
    for name, outcomes in sorted(by_format.items(), key=lambda pair: (-len(pair[1]), pair[0])):
        counts = Counter(outcome.outcome for outcome in outcomes)
        chunks = sum(outcome.chunks for outcome in outcomes)
        cells = [str(counts[kind] or "") for kind in kinds]
        rows.append(tag("tr", tag("th", name), *(tag("td", cell) for cell in (*cells, f"{chunks:,}"))))
    if not rows:
        return Html()
    head = tag("tr", tag("td"), *(tag("th", title) for title in (*kinds, "chunks")))
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    return section("Formats", tag("div", table, class_="scroll", tabindex=0))


def _sections(report: Report) -> Iterator[Html]:
    head = tag("tr", *(tag("th", title) for title in ("File", "Chunks", "Note")))
    for kind in FIRST:
        files = sorted(
            (outcome.path, str(outcome.chunks) if outcome.source_id else "", outcome.reason)
            for outcome in report.outcomes
            if outcome.outcome == kind
        )
        if files:
            rows = [tag("tr", *(tag("td", cell) for cell in cells)) for cells in files]
            table = tag("table", tag("thead", head), tag("tbody", *rows), class_="files")
            yield section(f"{counted(len(files), 'file')} {kind}", table)
