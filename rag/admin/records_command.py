"""`refdesk-admin records`: checks a stream of records, for those who write connectors."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import IO

import click
from anyio import to_thread

from rag.access.rule import in_words
from rag.admin.command_line import command
from rag.admin.terminal import Group, echo, print_json
from rag.config.settings import Settings
from rag.ingest.origins.piped_records import Problem, Stream, StreamError, longest_line
from rag.report import counted

SHOWN = 50  # problems


@click.group("records", cls=Group)
def records_command() -> None:
    """Check the records of a connector.

    A connector writes documents with their rights as JSON Lines: see rag/ingest/origins/records.md.
    """


@command("check", records_command, of_tenant=False)
@click.argument("file", type=click.File("rb"))
async def _check(settings: Settings, *, file: IO[bytes]) -> int:
    """Check a stream of records.

    FILE is a file, or - for standard input. Nothing is ingested.

    Exits with 0 if every line is right, 1 if not.
    """
    summary = await to_thread.run_sync(_summarise, file, settings.ingest.max_file_bytes)
    print_json(asdict(summary))
    for problem in summary.problems[:SHOWN]:
        echo(f"line {problem.line}: {problem.text}")
    if len(summary.problems) > SHOWN:
        echo(f"and {len(summary.problems) - SHOWN} more")
    for words, number in sorted(summary.access.items()):
        echo(f"{counted(number, 'record')} {words}")
    if summary.problems:
        echo(f"{counted(len(summary.problems), 'problem')}: this is not a valid stream of records.")
        return 1
    deleted = f" and {counted(summary.deleted, 'deletion')}" if summary.deleted else ""
    echo(f"Valid: {counted(summary.records, 'record')}{deleted}, sync {summary.sync}.")
    return 0


@dataclass(frozen=True, slots=True)
class _StreamSummary:
    """A stream's kind, its numbers of records and deletions, records by access, and problems."""

    sync: str
    records: int
    deleted: int
    access: dict[str, int]
    problems: list[Problem]


def _summarise(file: IO[bytes], max_bytes: int) -> _StreamSummary:
    """Read a stream. `max_bytes` is the longest text of a record."""
    access = Counter[str]()
    deleted = 0
    stream = Stream(file, longest_line(max_bytes))
    try:
        stream.begin()
    except StreamError as error:
        return _StreamSummary("", 0, 0, {}, [Problem(1, str(error))])
    for record in stream.records():
        if record.deleted:
            deleted += 1
        else:
            access[in_words(record.access) if record.access else "without access"] += 1
    return _StreamSummary(stream.sync, access.total(), deleted, dict(access), stream.problems)
