"""The original files of sources: their staleness, dates, expiry and bytes.

`changes_in` watches folders of such files. watchfiles gets changes from the operating system. Where that
reports none, as on network drives, the environment variable WATCHFILES_FORCE_POLLING=1 makes it poll.

Staleness is known without reading the file. A document is dated by the first of these: since when it is valid
by the words of its text, its metadata, its path, and the last change of its file. It expires at the moment
that it states, or a number of days after its date. Moments are in UTC. A date without a time is its first
moment, and a time without a zone is in UTC.

A picture of a page is drawn from the present file. It may only show content to which the rights and policies
of the collection were applied. So the file must have the digest of the stored text.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
import weakref
from calendar import monthrange
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Literal, TypeAlias
from unicodedata import normalize
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import url2pathname

from anyio import to_thread

from rag.corpus import FileState, Source
from rag.errors import InvalidRequestError
from rag.text.dates import VALIDITY, Day, dates_in, in_common_years

Staleness: TypeAlias = Literal["changed", "gone"]
"""What became of a source's file since it was ingested."""


LOOK_MS = 2_000  # how often to see whether a folder is still there
CALM_MS, LONGEST_MS = 1_000, 30_000  # debounce (editors write in steps), and the longest wait for calm


def identity(folder: str | os.PathLike[str]) -> tuple[int, int] | None:
    """The device and inode of a folder, which identify it; None if it can't be reached."""
    try:
        status = os.stat(folder)  # noqa: PTH116 a plain string
    except OSError:
        return None
    return status.st_dev, status.st_ino


async def changes_in(folders: Iterable[str], *, without: str) -> AsyncGenerator[set[str], None]:
    """Yields the changed paths in folders, debounced; first an empty set, once the watch is active.

    From time to time it yields an empty set, so that the caller can check that the folders still exist.
    Changes in the folder `without` don't count.

    Raises:
        OSError, RuntimeError: the system watches no more folders, or one of them is gone.
    """
    from watchfiles import awatch  # noqa: PLC0415 only to watch

    batches = awatch(
        *folders,
        watch_filter=lambda _change, path: not is_below(path, without),
        debounce=LONGEST_MS,
        step=CALM_MS,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
        raise_interrupt=False,
        ignore_permission_denied=True,
    )
    async for batch in batches:
        yield {path for _, path in batch}


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it; both are real paths."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def local_path(uri: str) -> str:
    """The path of a file's URI, with any bytes."""
    path = urlsplit(uri).path
    return url2pathname(path) if os.name == "nt" else os.fsdecode(unquote_to_bytes(path))


def state_of(path: str | os.PathLike[str]) -> FileState:
    """The state of a regular file.

    Raises:
        FileNotFoundError: no regular file is there.
        OSError: the file can't be examined.
    """
    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(path)
    return FileState(status.st_mtime_ns, status.st_size)


def staleness(uri: str, name: str, ingested: FileState) -> Staleness | None:
    """The staleness of the file at `uri`, which was `ingested` in this state; None if unchanged or unknown.

    `name` is its path below the ingested folder. If that folder is missing or empty, it isn't mounted here,
    and the state of its files is unknown.
    """
    path = local_path(uri)
    try:
        return None if state_of(path).same_as(ingested) else "changed"
    except (FileNotFoundError, NotADirectoryError):
        # A missing file says little if its whole folder is missing: that may not be mounted here.
        inside = urlsplit(uri).fragment  # the path of a part within its file
        return (
            "gone"
            if _is_mounted(path, len(name.split("/")) - len(inside.split("/")) * bool(inside))
            else None
        )
    except OSError:
        return None


LOOK_SECONDS = 0.3  # a local file takes some 5 µs
MAX_HANGING = 4  # hanging looks, as on a dead network mount, beyond which no more are started


@dataclass(frozen=True, slots=True)
class _Look:
    """Files to check, and their staleness; `done` is set at the end."""

    sources: Iterable[Source]
    stale: dict[str, Staleness] = field(default_factory=dict)
    done: Event = field(default_factory=Event)

    def run(self) -> None:
        try:
            for source in self.sources:
                if source.file and (change := staleness(source.uri, source.name, source.file)):
                    self.stale[source.id] = change
        finally:
            self.done.set()


_Looks: TypeAlias = "SimpleQueue[_Look | None]"


def _look_at(looks: _Looks) -> None:
    """Run the looks in a queue until it holds None."""
    while look := looks.get():
        look.run()


class FileWatch:
    """Compares files with their states at ingestion, within a time limit and without reading them.

    All looks run in one daemon thread, because a call that hangs on a file server can't be cancelled. While
    one hangs, another thread replaces it.
    """

    def __init__(self, seconds: float = LOOK_SECONDS) -> None:
        self._seconds = min(seconds, LOOK_SECONDS)
        self._hanging: list[Thread] = []
        self._turn = Lock()
        self._looking: tuple[Thread, _Looks] | None = None

    async def stale(self, sources: Iterable[Source]) -> Mapping[str, Staleness]:
        """The staleness of these sources' files, by source id.

        Sources are left out if their file is unchanged, their folder isn't mounted here, or the check takes
        too long.
        """
        files = {
            source.id: source
            for source in sources
            if source.file and source.name and source.uri.startswith("file:")
        }
        self._hanging = [thread for thread in self._hanging if thread.is_alive()]
        if not files or len(self._hanging) >= MAX_HANGING:  # each hanging look holds a thread for good
            return {}
        return await to_thread.run_sync(self._look, files.values())

    def _look(self, sources: Iterable[Source]) -> Mapping[str, Staleness]:
        look = _Look(sources)
        with self._turn:
            if self._looking is None or not self._looking[0].is_alive():
                self._looking = self._new_thread()
            looking = self._looking
            looking[1].put(look)
        if not look.done.wait(self._seconds):
            with self._turn:
                if self._looking is looking:  # this task is the first one that waited
                    self._looking = None
                    self._hanging.append(looking[0])
                    looking[1].put(None)
        return look.stale.copy()  # the thread may still add to it

    def _new_thread(self) -> tuple[Thread, _Looks]:
        looks: _Looks = SimpleQueue()
        thread = Thread(target=_look_at, args=[looks], name="refdesk files", daemon=True)
        thread.start()
        weakref.finalize(self, looks.put, None)
        return thread, looks


def _is_mounted(path: str, parts: int) -> bool:
    """Whether the folder `parts` levels above the path's end has any entry."""
    root = path
    for _ in range(parts):
        root = os.path.dirname(root)  # noqa: PTH120 a path of any bytes
    try:
        with os.scandir(root) as entries:
            return any(True for _ in entries)
    except OSError:
        return False


_AGE = "age"  # the kind of the versions "old" and "new"
_DAY = re.compile(r"([1-9]\d{3})(?:-(0[1-9]|1[0-2])(?:-(\d\d))?)?")
UNTOLD = date(1980, 1, 2)  # earlier dates are defaults of archives and build tools: 1970, or 1 January 1980
DATE_IN_NAME = re.compile(
    r"(?:(?<![0-9A-Za-z])|(?<=[A-Za-z]{4})|(?<=FY)|(?<=fy))"
    r"(?P<year>(?:19[5-9]|20[0-9])[0-9]|1[0-9]{3}(?=([-_./])(?:0[1-9]|1[0-2])\2(?:0[1-9]|[12][0-9]|3[01])(?![0-9])))"
    r"(?:(?P<joint>[-_./]?)(?P<month>0[1-9]|1[0-2])(?:(?P=joint)(?P<day>0[1-9]|[12][0-9]|3[01]))?)?(?![0-9])"
)
"""A year in a path or a title, with its month and day if they follow: 2023, 2023-05, 2023/05/12, 20230512.

Letters right before it must be a word (handbook2023, FY2023), so rfc1951 has no year. One before 1950 needs
its day, as in 1798-03-05: alone it is more often another number.
"""
VERSION_IN_NAME = re.compile(
    r"(?<![^\W_])(?:(?:v(?:ersi(?:on|e|ón|one)|ersão)?|версия|версии)[ ._-]?"
    r"(?P<number>[0-9]+(?:\.[0-9]+)*)(?![0-9])"
    r"|(?P<count>[0-9]{1,2})(?:\.|st|nd|rd|th|[aoªº]|er?|ème)?[ _-]"
    r"(?:änderung(?:ssatzung)?|fassung|nachtrag|amendment|r[eé]visi(?:on|one|ón)|revisão|herziening|реда[кц]ція|редакция)"
    r"|(?:rev(?:ision)?|fassung)[ ._-]?(?:(?P<edition>[0-9]+)|(?P<letter>[a-z]))"
    r"|(?P<old>alt|old|ancien(?:ne)?|vecchi[oa]|viej[oa]|antig[oau]+|velh[oa]|oude?|gammal|стар(?:ый|ая|ий|а))"
    r"|(?P<new>neu|new|nouveau|nouvelle|nuov[oa]|nuev[oa]|nov[oa]|nieuwe?|ny|нов(?:ый|ая|ий|а)))(?![^\W_])",
    re.IGNORECASE,
)
"""The sign of a version in a path or a title: v2, version 1.3, 2. Änderung, Rev. B, alt, neu."""


DatedBy: TypeAlias = Literal["document", "text", "path", "file"]
Version: TypeAlias = tuple[str, tuple[int, ...]]
"""The kind of a version, a group of `VERSION_IN_NAME`, and its number."""


@dataclass(frozen=True, slots=True)
class Dating:
    """The date of a document: a day, a month or a year, by its first and its last day.

    `by` is its source: the document's metadata, the words of its text on its validity, the path of its file,
    or the last change of its file. The `version` is the kind and the number of that in its path.
    """

    first: date
    last: date
    by: DatedBy
    version: Version | None = field(default=None, compare=False)

    @property
    def is_called_old(self) -> bool:
        """Whether its path calls it old, and nothing else dates it."""
        return self.version == (_AGE, (0,))

    def __str__(self) -> str:
        """As precise as known: 2023, 2023-05 or 2023-05-12."""
        if self.first == self.last:
            return self.first.isoformat()
        return f"{self.first:%Y-%m}" if self.first.month == self.last.month else f"{self.first:%Y}"


def dating(source: Source) -> Dating | None:
    """The date of a document; None if unknown.

    A year in its path must be at most the one after its ingestion, and a change of its file after its
    ingestion or its last day of validity is ignored: clocks differ, and old files are saved again.
    Examples, without a date of their own: "handbook-2023/05/leave.md" -> May 2023, by its path; "minutes of 8
    March 2025.txt", "議事録_令和7年3月8日.txt" -> that day.
    """
    first, _, last = source.metadata.get(VALIDITY, "").partition("/")
    if valid := _dating_in(first, "text"):
        return valid
    if source.date:
        return Dating(source.date.date(), source.date.date(), "document")
    latest = source.ingested_at.year + 1
    name = in_common_years(normalize("NFKC", source.name))
    matches = [match for match in DATE_IN_NAME.finditer(name) if int(match["year"]) <= latest]
    if matches:
        return _dating_of(_day_in_name(name, matches[-1]), "path")
    changed = _changed_at(source.file) if source.file else None
    if changed is None or changed.date() <= UNTOLD:
        return None
    ended = _dating_in(last, "text")
    # The last change is only an upper limit for when the document was valid.
    day = min(changed.date(), source.ingested_at.date(), ended.last if ended else date.max)
    return Dating(day, day, "file", version_in(name))


def _dating_in(iso: str, by: DatedBy) -> Dating | None:
    """The date in a text like 2024, 2024-03 or 2024-03-08."""
    parts = _DAY.fullmatch(iso)
    return _dating_of(Day(*(int(part or 0) for part in parts.groups())), by) if parts else None


def version_in(name: str) -> Version | None:
    """The last version in a name, or in a question: "a/plan v2.1.md" -> number, (2, 1)."""
    matches = [*VERSION_IN_NAME.finditer(name)]
    kind = matches[-1].lastgroup if matches else None
    match kind:
        case None:
            return None
        case "old" | "new":
            return _AGE, (int(kind == "new"),)
        case "letter":
            return kind, (ord(matches[-1][kind].casefold()),)
    return kind, tuple(map(int, matches[-1][kind].split(".")))


def _day_in_name(name: str, match: re.Match[str]) -> Day:
    """The day, month or year of a match of `DATE_IN_NAME`; around a bare year, a written date counts, too."""
    year, month, day = (int(number or 0) for number in match.group("year", "month", "day"))
    dates = dates_in(name) if not month else ()
    readings = next((date.readings for date in dates if date.start <= match.start() < date.end), ())
    return readings[0] if len(readings) == 1 else Day(year, month, day)


def _dating_of(written: Day, by: DatedBy) -> Dating:
    """A month or day of 0 is unknown; an impossible day is ignored."""
    year, month, day = written
    if not month:
        return Dating(date(year, 1, 1), date(year, 12, 31), by)
    _, days = monthrange(year, month)
    first, last = (day, day) if 0 < day <= days else (1, days)
    return Dating(date(year, month, first), date(year, month, last), by)


EXPIRES = "expires"
"""The key of the metadata by which a document states when it expires, in any letter case."""
NEVER = datetime.max.replace(tzinfo=UTC)


def expiry(
    metadata: Mapping[str, str],
    keep_days: int,
    *,
    date: datetime | None,
    file: FileState | None,
    ingested_at: datetime,
) -> datetime | None:
    """The moment at which a stored document expires; None if it stays.

    `keep_days` count from the document's own date, else from the last change of its file, else
    from its ingestion; a date in the future doesn't count. An earlier expiry in its metadata wins, which
    ingestion has checked and written in UTC.
    """
    stated = datetime.fromisoformat(metadata[EXPIRES]) if EXPIRES in metadata else None
    if not keep_days:
        return stated
    changed = _changed_at(file) if file else None
    since = min(date or changed or ingested_at, ingested_at)  # a future date would put the expiry off
    until = NEVER if keep_days > (NEVER - since).days else since + timedelta(days=keep_days)
    return until if stated is None else min(stated, until)


def _changed_at(file: FileState) -> datetime | None:
    """The last change of a file; None for times that a calendar can't express."""
    try:
        return datetime.fromtimestamp(file.modified / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return None


@dataclass(slots=True)
class Clock:
    """A clock that never goes back: expired documents stay expired if the system's clock is set back.

    `wall` is the system's time and `steady` a monotonic one, both in seconds.
    """

    wall: Callable[[], float] = time.time
    steady: Callable[[], float] = time.monotonic
    _anchor: tuple[float, float] | None = field(default=None, init=False)

    def now(self) -> datetime:
        """The system's time, or what it would be now if it had not been set back since the first call."""
        wall, steady = self.wall(), self.steady()
        if self._anchor is not None:  # a steady clock goes on while the system's is set
            wall = max(wall, self._anchor[0] + steady - self._anchor[1])
        self._anchor = wall, steady
        return datetime.fromtimestamp(wall, UTC)


RECIPE = 20
"""Part of every digest. Raise it when parsers or the chunker change: every source is then stored again."""
SCANNED = "ocr"  # part of the digests of files that OCR may have read
SIDECAR_SUFFIX = ".meta.toml"
"""`report.pdf.meta.toml` holds the metadata of `report.pdf`; see `rag.ingest.prepare`."""
SIDECAR_BYTES = 64_000
FILE_BYTES = 50_000_000  # a run reads larger files, but drawing a single page doesn't
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

ELSEWHERE = "it doesn't lie in a file of its own on the server's machine."
GONE = "its file is not where it was, or the server may not read it."
LARGE = f"its file is larger than {FILE_BYTES // 1_000_000} MB."
OTHER = (
    "its file is not the one that was ingested, or the collection masks or moderates what it stores, "
    "so the page may show what the text doesn't."
)


def digest_of(data: bytes) -> str:
    """A digest of everything that a stored text depends on: the file, its sidecar, and other input."""
    return hashlib.blake2b(data, key=str(RECIPE).encode(), digest_size=16).hexdigest()


def original_bytes(source: Source) -> bytes:
    """The file of a source, if its text is the stored one, without masks.

    The stored digest covers the file, its sidecar and the applied policies. So only bytes that were ingested
    without a policy have it.

    Raises:
        InvalidRequestError: the file is gone, can't be read, or differs; the message is for callers.
    """
    parts = urlsplit(source.uri)
    if parts.scheme != "file" or parts.fragment:
        raise no_picture(ELSEWHERE)
    path = local_path(source.uri)
    try:
        data = _regular_file_bytes(path, FILE_BYTES)
    except OSError as error:
        raise no_picture(GONE) from error
    try:
        sidecar = _regular_file_bytes(path + SIDECAR_SUFFIX, SIDECAR_BYTES)
    except OSError:
        sidecar = b""  # if there was one, the digest differs
    plain = data + sidecar
    if source.digest.partition("/")[0] not in {digest_of(plain), digest_of(plain + SCANNED.encode())}:
        raise no_picture(OTHER)
    return data


def no_picture(why: str) -> InvalidRequestError:
    """The error for a page that can't be shown."""
    return InvalidRequestError(f"There is no picture of this page: {why}")


def _regular_file_bytes(path: str, limit: int) -> bytes:
    """The bytes of a regular file; a pipe doesn't block.

    Raises:
        InvalidRequestError: it is larger than `limit`.
        OSError: it can't be read.
    """
    descriptor = os.open(path, _READ)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileNotFoundError(path)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise no_picture(LARGE)
    return data
