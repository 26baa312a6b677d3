"""Takes records from a pipe: from a command, from a file or from standard input.

The origin owns its documents and their rights. A stream that is cut off, or whose command failed, removes
nothing; what it says of the records that came is taken, above all whom it keeps out.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rag.access.rule import narrower
from rag.config.origin_settings import RecordsOrigin
from rag.corpus import Access
from rag.errors import ConfigurationError, ParseError
from rag.ingest.discover import unsupported
from rag.ingest.origins.origin_look import FetchError, OriginContext, OriginFindings, suffix_of
from rag.ingest.origins.records_format import NOBODY, SUFFIXES, Record, Stream, StreamError, longest_line
from rag.ingest.source_files import LocalFile, over_limit, read_if_there
from rag.originals import SIDECAR_BYTES, SIDECAR_SUFFIX


def look_through_records(
    origin: RecordsOrigin,
    context: OriginContext,
    usual: Access,
    stdin: IO[bytes] | None,
    environment: Mapping[str, str],
) -> OriginFindings:
    """Discover the records of a stream. `usual` is the access of records without one, if that is optional.

    Raises:
        ConfigurationError: the file or command doesn't exist, or standard input is empty.
        FetchError: the input is not a stream of records.
    """
    with _open_records(origin, stdin, environment) as opened:
        stream = Stream(opened.file, longest_line(context.settings.max_file_bytes))
        try:
            stream.begin()
            findings = _discover(stream, origin, context, usual)
        except StreamError as error:
            raise FetchError(str(error)) from error
    for problem in stream.problems:
        findings.failed(f"origin:{context.name}", f"line {problem.line}: {problem.text}")
    if opened.failure:
        findings.failed(f"origin:{context.name}", opened.failure)
    is_whole = stream.sync == "full" and stream.is_complete and not opened.failure
    discovery = findings.discovery
    discovery.whole.add(context.prefix)
    if not is_whole:
        discovery.retained |= context.unseen(discovery)
    if stream.sync == "full" and not is_whole:
        discovery.notes.append(
            f"{context.name}: the stream was not complete, so nothing was removed. What it says of the "
            "records that came was taken."
        )
    return findings


def _discover(stream: Stream, origin: RecordsOrigin, context: OriginContext, usual: Access) -> OriginFindings:
    findings = OriginFindings()
    discovery = findings.discovery
    for record in stream.records():
        uri = context.uri(record.id)
        if record.deleted:
            discovery.deleted.add(uri)
            discovery.files.pop(uri, None)
            continue
        access = _access_of(record, origin, usual)
        before = discovery.rights.get(uri)
        discovery.rights[uri] = narrower(before, access) or NOBODY if before else access
        if record.problems or before or uri in discovery.deleted:  # `before`: its id came twice
            discovery.retained.add(uri)
            continue
        try:
            file = _document_of(record, origin, context)
        except FetchError as error:
            findings.failed(record.id, str(error))
            discovery.retained.add(uri)
        else:
            discovery.files[uri] = file
    discovery.retained -= discovery.files.keys() | discovery.deleted
    return findings


def _access_of(record: Record, origin: RecordsOrigin, usual: Access) -> Access:
    if record.access is not None:
        return record.access
    return NOBODY if origin.access == "required" else usual


def _document_of(record: Record, origin: RecordsOrigin, context: OriginContext) -> LocalFile:
    """The document of a record.

    Raises:
        FetchError: its file can't be read.
    """
    if record.text is not None:
        data, suffix, sidecar = record.text.encode("utf-8", "replace"), SUFFIXES[record.type], b""
    else:
        data, suffix, sidecar = _file(record.path or "", origin.folder, context)
    if suffix_of(record.id).lower() == suffix.lower():
        suffix = ""
    return context.local_file(record.id, data, stated=record.stated, suffix=suffix, sidecar=sidecar)


def _file(path: str, folder: Path | None, context: OriginContext) -> tuple[bytes, str, bytes]:
    """The content of a record's file, its suffix, and the content of its sidecar.

    Raises:
        FetchError: the path leads out of the origin's folder, or the file can't be read.
    """
    if folder is None:
        raise FetchError('its "path" is not allowed: the settings of the origin name no folder')
    root = Path(os.path.realpath(folder))
    file = Path(os.path.normpath(root / path))
    if "\0" in path or not file.is_relative_to(root) or file == root:
        raise FetchError('its "path" lies outside of the folder of the origin')
    if not context.may_read(file.name):
        raise FetchError(unsupported(file.name))
    try:
        data = read_if_there(file, context.most_bytes(file.name), over_limit)
        sidecar = read_if_there(Path(f"{file}{SIDECAR_SUFFIX}"), SIDECAR_BYTES) or b""
    except ParseError as error:
        raise FetchError(str(error)) from error
    if data is None:
        raise FetchError("the folder of the origin has no such file")
    if not context.reads(file.name, data):
        raise FetchError(unsupported(file.name))
    return data, file.suffix, sidecar


class _Opened:
    """A stream, and why its command failed, once it was read."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.failure = ""


@contextmanager
def _open_records(
    origin: RecordsOrigin, stdin: IO[bytes] | None, environment: Mapping[str, str]
) -> Iterator[_Opened]:
    if origin.command:
        with _running(origin, environment) as opened:
            yield opened
    elif origin.file:
        try:
            with origin.file.open("rb") as file:
                yield _Opened(file)
        except OSError as error:
            raise ConfigurationError(
                f"The file of records {origin.file} can't be read: {error.strerror}."
            ) from error
    elif stdin is None or stdin.isatty():
        raise ConfigurationError(
            "This origin reads records from standard input, which is a terminal or closed. Run refdesk-admin "
            "sync NAME < FILE, or set command or file in the settings."
        )
    else:
        yield _Opened(stdin)


@contextmanager
def _running(origin: RecordsOrigin, environment: Mapping[str, str]) -> Iterator[_Opened]:
    """The output of the origin's command, which is ended if it takes too long."""
    try:
        process = subprocess.Popen(  # noqa: S603 the operator's own command, without a shell
            origin.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=dict(environment)
        )
    except OSError as error:
        raise ConfigurationError(
            f"The command {origin.command[0]!r} can't be run: {error.strerror}."
        ) from error
    late = threading.Event()

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(origin.timeout_seconds, end)
    timer.start()
    assert process.stdout is not None  # noqa: S101 it is a pipe
    opened = _Opened(process.stdout)
    try:
        with process.stdout:
            yield opened
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
        process.wait()
    if late.is_set():
        opened.failure = f"the command was not done within {origin.timeout_seconds:g} seconds"
    elif code:
        opened.failure = f"the command ended with exit code {code}"
