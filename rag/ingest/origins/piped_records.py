"""Reads records, version 1, from a command, from a file or from standard input.

They are JSON Lines as described in `records.md` beside this module. A record whose access can't be read is
for nobody (fail closed). A line that isn't a record makes the stream incomplete, because it could be any
record.

The origin owns its documents and their rights. A stream that is cut off, or whose command failed, removes
nothing; its complete records are used, above all their access.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal, TypeAlias, cast

from rag.access.rule import check_access, narrower, valid_entries
from rag.config.origin_settings import RecordsOrigin
from rag.corpus import Access, Visibility
from rag.errors import ConfigurationError, ParseError
from rag.ingest.discover import unsupported
from rag.ingest.origins.origin_look import FetchError, OriginContext, OriginFindings
from rag.ingest.parse.front_matter import ACCESS_KEYS
from rag.ingest.prepare import plain_text
from rag.ingest.source_files import LocalFile, over_limit, read_if_there
from rag.originals import SIDECAR_BYTES, SIDECAR_SUFFIX
from rag.text.plain_text import without_hidden
from rag.uris import web_address

VERSION = 1
MAX_ID_CHARS = 1000
MAX_ENTRIES = 100  # of metadata
NOBODY = Access("restricted")
NO_OBJECT = "it is not a JSON object in UTF-8 on one line"
Sync = Literal["full", "changes"]
SUFFIXES: dict[str, str] = {"text": ".txt", "markdown": ".md", "html": ".html"}
"""File name suffixes by the type of a record's text."""
_KEYS = {"id", "title", "text", "path", "type", "url", "date", "metadata", "access"}
_STATED = {"title", "url", "date"}
Fields: TypeAlias = "dict[str, Any]"


def longest_line(text_bytes: int) -> int:
    """The most bytes of a line with a text of `text_bytes`: JSON may need six bytes for one."""
    return 6 * text_bytes + 1_000_000


class StreamError(Exception):
    """The input is not a stream of records, so none of it is used."""


class _InvalidError(Exception):
    """A part of a line breaks the contract."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A violation of the format, and its line number."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Record:
    """A record. `access` is None if the record states none. With `problems`, its text can't be used."""

    line: int
    id: str
    text: str | None = None
    path: str | None = None
    type: str = "text"
    stated: Mapping[str, str] = field(default_factory=dict)
    access: Access | None = None
    deleted: bool = False
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Stream:
    """The records of a file, read one by one. `is_complete` and `problems` are valid after the last one."""

    file: IO[bytes]
    max_line: int
    sync: Sync = "full"
    problems: list[Problem] = field(default_factory=list)
    is_complete: bool = False
    _line: int = 0

    def begin(self) -> None:
        """Read the head.

        Raises:
            StreamError: the head is missing, or has another version.
        """
        try:
            head = _object(self._next() or b"")
        except _InvalidError as error:
            raise StreamError(f"line 1 is not the head of a stream of records: {error}") from error
        if head.get("refdesk") != "records":
            raise StreamError('line 1 is not the head of a stream of records: it lacks "refdesk": "records"')
        if head.get("version") != VERSION or isinstance(head.get("version"), bool):
            raise StreamError(f'its "version" is not {VERSION}, the only one that this refdesk reads')
        if head.get("sync") not in {"full", "changes"}:
            raise StreamError('its "sync" must be "full" (this is everything) or "changes"')
        if strange := sorted(head.keys() - {"refdesk", "version", "sync"}):
            raise StreamError(f"its head has an unknown key: {_short_name(strange[0])}")
        self.sync = cast("Sync", head["sync"])

    def records(self) -> Iterator[Record]:
        """The records and deletions. Read all of them: only the end shows whether the stream is complete."""
        count, readable, record_ids = 0, True, set[str]()
        while (line := self._next()) is not None:
            if not line.strip():
                continue
            try:
                entry = _object(line)
                if "end" in entry:
                    self._end(entry, count, readable=readable)
                    return
                count += 1
                record = _record(entry, self._line, self.sync)
            except _InvalidError as error:
                self._problem(str(error))
                readable = False
                continue
            for problem in record.problems:
                self._problem(f"{_short_name(record.id)}: {problem}")
            if record.id in record_ids:
                self._problem(f"{_short_name(record.id)} is there twice")
            record_ids.add(record.id)
            yield record
        self._problem("the end is missing: the stream is cut off")

    def _end(self, entry: Fields, count: int, *, readable: bool) -> None:
        if entry.keys() - {"end", "count"} or entry["end"] is not True:
            self._problem('the end must be {"end": true, "count": NUMBER}')
        elif entry.get("count") != count or isinstance(entry.get("count"), bool):
            self._problem(f'the end has no "count" of {count}, the number of records and deletions')
        elif (next_line := self._next()) is not None and next_line.strip():
            self._problem("there is something after the end")
        else:
            self.is_complete = readable

    def _problem(self, text: str) -> None:
        self.problems.append(Problem(self._line, text))

    def _next(self) -> bytes | None:
        """The next line; None at the end. A line that is too long comes as an invalid record."""
        line = self.file.readline(self.max_line + 1)
        self._line += bool(line)
        if len(line) <= self.max_line or line.endswith(b"\n"):
            return line or None
        # The remainder of the line is passed over in pieces: it can be endless.
        while (remainder := self.file.readline(self.max_line)) and not remainder.endswith(b"\n"):
            pass
        return b'{"too long": true}'


def _object(line: bytes) -> Fields:
    def once(pairs: list[tuple[str, Any]]) -> Fields:
        if len(pairs) > len({key for key, _ in pairs}):  # which of two accesses counts must be no guess
            raise _InvalidError("a key is there twice")
        return dict(pairs)

    def constant(name: str) -> None:
        raise _InvalidError(f"{name} is not JSON")

    try:
        read = json.loads(line.decode("utf-8-sig"), object_pairs_hook=once, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise _InvalidError(NO_OBJECT) from error
    if not isinstance(read, dict):
        raise _InvalidError(NO_OBJECT)
    if read.keys() == {"too long"}:
        raise _InvalidError("it is longer than ingest.max_file_bytes allows")
    return read


def _record(entry: Fields, line: int, sync: Sync) -> Record:
    """A record, with all errors but a wrong id in its `problems`.

    Raises:
        _InvalidError: it has no valid id.
    """
    id_ = entry.get("id")
    if not isinstance(id_, str) or not 0 < len(id_) <= MAX_ID_CHARS:
        raise _InvalidError(f'its "id" must be a string of 1 to {MAX_ID_CHARS} characters')
    if not id_.isprintable() or without_hidden(id_) != id_ or {"", ".", ".."} & set(id_.split("/")):
        raise _InvalidError('its "id" has invisible characters, or a part that is empty, "." or ".."')
    if "deleted" in entry:
        return _deletion(entry, line, sync)
    problems: list[str] = []
    access: Access | None = None
    try:
        access = _access(entry["access"]) if "access" in entry else None
    except _InvalidError as error:
        problems.append(f"nobody may see it: {error}")
        access = NOBODY
    if strange := sorted(entry.keys() - _KEYS):
        problems.append(f"unknown key {_short_name(strange[0])}")
    text, path, kind = entry.get("text"), entry.get("path"), entry.get("type", "text")
    if (text is None) == (path is None) or not isinstance(text if path is None else path, str):
        problems.append('it needs "text" or "path", one of both, as a string')
        text = path = None
    if kind not in SUFFIXES or ("type" in entry and path is not None):
        problems.append(f'its "type" must be one of {", ".join(SUFFIXES)}, and is for "text" only')
    try:
        stated = _stated_values(entry)
    except _InvalidError as error:
        problems.append(str(error))
        stated = {}
    return Record(line, id_, text, path, str(kind), stated, access, problems=tuple(problems))


def _deletion(entry: Fields, line: int, sync: Sync) -> Record:
    """A deletion. An invalid one hides the document from everybody (fail closed)."""
    if sync == "full":
        problem = "a full stream has no deletions: what it leaves out is deleted"
    elif entry["deleted"] is not True or entry.keys() != {"id", "deleted"}:
        problem = 'a deletion is {"id": ID, "deleted": true} and nothing else'
    else:
        return Record(line, entry["id"], deleted=True)
    return Record(line, entry["id"], access=NOBODY, problems=(f"nobody may see it: {problem}",))


def _access(value: object) -> Access:
    """The access that a record states.

    Raises:
        _InvalidError: it can't be read, so nobody may see the record.
    """
    if not isinstance(value, dict) or not value or value.keys() - ACCESS_KEYS:
        raise _InvalidError('its "access" must be an object with visibility, allow and deny')
    lists = [value.get(name, []) for name in ("allow", "deny")]
    if not all(isinstance(group, list) and all(isinstance(name, str) for name in group) for group in lists):
        raise _InvalidError("allow and deny must be lists of strings like group:hr")
    visibility = value.get("visibility")
    if visibility not in {"tenant", "restricted"}:
        raise _InvalidError("visibility must be tenant or restricted")
    allow, deny = map(tuple, lists)
    try:
        check_access(cast("Visibility", visibility), allow, deny)
        return Access(cast("Visibility", visibility), valid_entries(allow), valid_entries(deny))
    except ConfigurationError as error:
        raise _InvalidError(str(error).rstrip(".")) from error


def _stated_values(entry: Fields) -> dict[str, str]:
    """Title, address, date and metadata, under the keys of a sidecar.

    Raises:
        _InvalidError: a value is of another type.
    """
    stated: dict[str, str] = {}
    metadata = entry.get("metadata", {})
    if not isinstance(metadata, dict) or len(metadata) > MAX_ENTRIES:
        raise _InvalidError(f'its "metadata" must be an object of at most {MAX_ENTRIES} values')
    for key, value in metadata.items():
        if key.casefold() in ACCESS_KEYS | _STATED:
            raise _InvalidError(f"{key} belongs next to metadata, not in it")
        text = plain_text(value)
        if text is None:
            raise _InvalidError(
                f"metadata {_short_name(key)} must be a plain value, or a list of plain values"
            )
        if text:
            stated[key] = text
    for key in _STATED & entry.keys():
        if not isinstance(entry[key], str):
            raise _InvalidError(f'its "{key}" must be a string')
        if key == "url" and web_address(entry[key]) is None:
            raise _InvalidError('its "url" is not an http or https address')
        stated[key] = entry[key]
    return stated


def _short_name(name: str) -> str:
    return repr(name[:60])


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
        findings.unreachable(f"origin:{context.name}", opened.failure)
    is_whole = stream.sync == "full" and stream.is_complete and not opened.failure
    discovery = findings.discovery
    discovery.whole.add(context.prefix)
    if not is_whole:
        discovery.retained |= context.unseen(discovery)
    if stream.sync == "full" and not is_whole:
        discovery.notes.append(
            f"{context.name}: the stream was not complete, so nothing was removed. Its complete "
            "records were ingested."
        )
    return findings


def _discover(stream: Stream, origin: RecordsOrigin, context: OriginContext, usual: Access) -> OriginFindings:
    findings = OriginFindings()
    discovery = findings.discovery
    unstated = NOBODY if origin.access == "required" else usual
    for record in stream.records():
        uri = context.uri(record.id)
        if record.deleted:
            discovery.deleted.add(uri)
            discovery.files.pop(uri, None)
            continue
        access = record.access or unstated
        before = discovery.rights.get(uri)
        # Access counts even where the text can't be used: the stored version may have to be hidden.
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


def _document_of(record: Record, origin: RecordsOrigin, context: OriginContext) -> LocalFile:
    """The document of a record.

    Raises:
        FetchError: its file can't be read.
    """
    if record.text is not None:
        data, suffix, sidecar = record.text.encode("utf-8", "replace"), SUFFIXES[record.type], b""
    else:
        data, suffix, sidecar = _file(record.path or "", origin.folder, context)
    if PurePosixPath(record.id).suffix.lower() == suffix.lower():
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
    """The output of the origin's command, which is killed if it takes too long."""
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
