"""A pool of parser processes, and the validation of their answers: a hostile file can control its parser.

It can make it hang, crash or take too much memory. So a process (`rag.ingest.sandbox.parser_child`) gets a
file's content, answers with data, and can do nothing else (`rag.confined`). It is reused for the next file
of its *family*, a parser module with its libraries, until a file breaks it, the pool is full, or ingestion
ends (`end_idle`). Compared with parsing in this process, a file takes half a millisecond more, and each new
process 0.2 s.

The file may control the answer, too, so an invalid answer is refused.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar
from anyio.streams.buffered import BufferedByteReceiveStream
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.corpus import Block, BlockKind, Document
from rag.errors import Cause, EmptyFileError, ParseError
from rag.ingest.parse import ocr
from rag.ingest.parse.document_parts import MAX_LEVEL, Member, clean, title_line, utc
from rag.ingest.parse.parsers import family_of
from rag.ingest.sandbox import parser_child
from rag.ingest.source_files import Budget
from rag.runtime import cores
from rag.uris import web_address

if TYPE_CHECKING:
    from anyio.abc import Process

MEMORY_BYTES = 1 << 30
OCR = ocr.__name__
MOST_IDLE = 3  # processes that wait for the next file of their family; each takes 40 to 60 MB
LARGE_FILE_BYTES = 2_000_000  # a process doesn't return the memory of such a file, so it is ended
PIECE_BYTES = 1 << 18  # of a file sent at once: bytes that the pipe can't take yet are buffered twice
SHORT_ANSWER_BYTES = 8_000  # validated in less than a millisecond, so not in a thread
START_SECONDS = 60.0
END_SECONDS = 5.0  # wall clock, from the end of a process's output until the system has its exit status
PROGRAM = "import sys; sys.path[:] = sys.argv[3:]; from rag.ingest.sandbox.parser_child import main; main()"
KEPT = ("LD_LIBRARY_PATH", "PATH", "SYSTEMROOT")
"""Environment variables that Python may need to start. Others may hold secrets and are not passed on."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Numeric libraries would start threads, which takes memory and is forbidden once confined."""


async def parse_safely(data: bytes, name: str, *, budget: Budget, ocr_seconds: float = 0.0) -> Document:
    """Parse a file in the sandbox, and charge its budget.

    With `ocr_seconds`, a file that may be a scan gets OCR, and a budget of its own of that many seconds.

    Raises:
        ParseError: the file can't be parsed within the limits.
    """
    family = family_of(data, name, with_ocr=bool(ocr_seconds))
    with_ocr = family == OCR
    if with_ocr:
        budget = Budget(max(budget.left, ocr_seconds))
    async with _lend_process(family, budget) as child:
        with anyio.fail_after(budget.patience):
            request = parser_child.SCAN if with_ocr else parser_child.PARSE
            await child.ask(request, data, name, math.ceil(budget.left))
            about, text, seconds = await child.receive()
        budget.spent += seconds
        if max(len(data), len(about), len(text)) > LARGE_FILE_BYTES:  # its memory stays allocated
            await child.end()
        if len(about) + len(text) < SHORT_ANSWER_BYTES:
            return document_of(about, text)
        return await budget.run(document_of, about, text)


async def members_safely(
    data: bytes,
    name: str,
    receive: Callable[[Member], None],
    *,
    budget: Budget,
) -> None:
    """Unpack a container in the sandbox, and charge its budget.

    `receive` gets each member as it comes. It is called in a thread, and may raise `ParseError` to stop.

    Raises:
        ParseError: the file can't be unpacked within the limits. Members may have come before.
    """
    before = budget.spent
    async with _lend_process(family_of(data, name), budget) as child:
        with anyio.fail_after(budget.patience):
            await child.ask(parser_child.MEMBERS, data, name, math.ceil(budget.left))
            while True:
                about, content, seconds = await child.receive()
                budget.spent = before + seconds
                if not about:
                    return
                member = member_of(about)
                try:
                    await to_thread.run_sync(receive, replace(member, data=content))
                except ParseError:
                    await child.end()  # its remaining answers are still in the pipe
                    raise


async def end_idle() -> None:
    """End the idle processes; the next file starts a new one."""
    pool = await _pool()
    while pool.idle:
        await pool.idle.pop().end()


@asynccontextmanager
async def _lend_process(family: str, budget: Budget) -> AsyncIterator[_Child]:
    """Lend a parser process; its crashes and timeouts become ParseErrors and are charged to the budget."""
    try:
        async with _borrow_process(family) as child:
            yield child
    except TimeoutError as error:
        budget.spent = budget.seconds
        reason = f"parsing took over {budget.seconds:g} s (ingest.parse_timeout_seconds)"
        raise ParseError(reason, "timeout") from error
    except NoDocumentError as error:
        raise ParseError("the parser returned an invalid document", "crashed") from error
    except (anyio.IncompleteRead, anyio.BrokenResourceError, OSError) as error:
        raise ParseError(
            f"parsing crashed or needed over {MEMORY_BYTES >> 20} MB of memory", "crashed"
        ) from error


@dataclass(frozen=True, slots=True)
class _Child:
    process: Process
    answers: BufferedByteReceiveStream
    family: str

    async def ask(self, request: bytes, data: bytes, name: str, seconds: int) -> None:
        """Send a request with a limit of CPU seconds; `receive` returns the answers."""
        assert self.process.stdin  # noqa: S101 for the type checker: it was started with a pipe
        name_bytes = name.encode()
        head = parser_child.REQUEST.pack(request, len(name_bytes), len(data), seconds) + name_bytes
        await self.process.stdin.send(head + data[:PIECE_BYTES])
        for at in range(PIECE_BYTES, len(data), PIECE_BYTES):
            await self.process.stdin.send(data[at : at + PIECE_BYTES])

    async def receive(self) -> tuple[bytes, bytes, float]:
        """The next answer: JSON about the content, the content, and the CPU seconds of the request so far.

        Raises:
            NoDocumentError: the process announces an answer that is too long.
        """
        head = await self.answers.receive_exactly(parser_child.ANSWER.size)
        about_size, content_size, milliseconds = parser_child.ANSWER.unpack(head)
        if about_size > parser_child.MAX_ABOUT_BYTES or content_size > parser_child.MAX_CONTENT_BYTES:
            raise NoDocumentError(f"an answer of {about_size} and {content_size} bytes")
        about = await self.answers.receive_exactly(about_size)
        return about, await self.answers.receive_exactly(content_size), milliseconds / 1000

    async def is_out_of_time(self) -> bool:
        """Whether the system killed it at its CPU limit; waits until its status is known."""
        with anyio.move_on_after(END_SECONDS):
            return await self.process.wait() == -signal.SIGXCPU
        return False

    async def end(self) -> None:
        """Kill the process."""
        with anyio.CancelScope(shield=True):
            if self.process.returncode is None:
                self.process.kill()
            await self.process.aclose()


@dataclass(frozen=True, slots=True)
class _Pool:
    """The idle processes of an event loop."""

    idle: list[_Child] = field(default_factory=list)
    limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(cores()))


_pools: RunVar[tuple[_Pool, AsyncGenerator[_Pool]]] = RunVar("parsing processes")


@asynccontextmanager
async def _borrow_process(family: str) -> AsyncIterator[_Child]:
    """A process for this family. It returns to the pool unless the file breaks it."""
    pool = await _pool()
    async with pool.limiter:
        idle = await _take_idle_process(pool, family)
        child = idle or await _start_process(family)
        try:
            yield child
        except ParseError as error:
            if error.cause == "crashed":  # the process may lack memory for the next file
                await child.end()
            else:
                await _return_process(pool, child)
            raise
        except anyio.IncompleteRead as error:  # the process ended: killed at its CPU limit, or crashed
            is_out_of_time = await child.is_out_of_time()
            await child.end()
            if is_out_of_time:
                raise TimeoutError from error
            raise
        except BaseException:
            await child.end()
            raise
        await _return_process(pool, child)


async def _return_process(pool: _Pool, child: _Child) -> None:
    """Return a process to the pool unless it has ended; a full pool ends its least recently used one."""
    if child.process.returncode is None:
        pool.idle.append(child)
    if len(pool.idle) > MOST_IDLE:  # each keeps its libraries in memory
        await pool.idle.pop(0).end()


async def _take_idle_process(pool: _Pool, family: str) -> _Child | None:
    for child in [child for child in pool.idle if child.family == family]:
        pool.idle.remove(child)
        if child.process.returncode is None:
            return child
        await child.end()
    return None


async def _start_process(family: str) -> _Child:
    """A new process that is ready. It imports from the same folders, but never from the working folder.

    Raises:
        ParseError: the process doesn't start.
    """
    where = [path for path in sys.path if Path(path).is_absolute()]
    command = [sys.executable, "-I", "-c", PROGRAM, str(MEMORY_BYTES), family, *where]
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | ONE_THREAD
    try:
        process = await anyio.open_process(command, stderr=subprocess.DEVNULL, cwd="/", env=environment)
    except OSError as error:
        raise ParseError(f"the parser process can't be started: {error.strerror}", "crashed") from error
    assert process.stdout  # noqa: S101 for the type checker: it is a pipe by default
    child = _Child(process, BufferedByteReceiveStream(process.stdout), family)
    try:
        with anyio.fail_after(START_SECONDS):
            ready = (await child.receive())[:2] == (parser_child.READY, b"")
    except (anyio.IncompleteRead, NoDocumentError, OSError):
        ready = False
    except BaseException:
        await child.end()
        raise
    if not ready:
        await child.end()
        raise ParseError("the parser process doesn't start; is refdesk installed completely?", "crashed")
    return child


async def _pool() -> _Pool:
    try:
        return _pools.get()[0]
    except LookupError:
        pools = _pool_of_the_loop()
        pool = await anext(pools)
        _pools.set((pool, pools))
        return pool


async def _pool_of_the_loop() -> AsyncGenerator[_Pool]:
    """Yields one pool. At its end, an event loop closes its generators, which ends the processes."""
    pool = _Pool()
    try:
        yield pool
    finally:
        while pool.idle:
            await pool.idle.pop().end()


Position = Annotated[int, Field(ge=0)]
Level = Annotated[int, Field(ge=0, le=MAX_LEVEL)]


class NoDocumentError(ValueError):
    """The answer is neither a document nor an error."""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Document(_Data):
    title: str
    mime_type: Annotated[str, Field(pattern=r"^[a-z]+/[a-z0-9.+-]{1,80}$")]
    blocks: tuple[tuple[BlockKind, Position, Position, Level, str], ...]
    pages: tuple[Position, ...]
    date: datetime | None
    url: Annotated[str, Field(pattern=r"^(?i:https?)://", max_length=2100)] | None
    metadata: dict[str, str]
    remarks: tuple[str, ...] = ()
    has_lines: bool = False


class _Answer(_Data):
    error: str | None = None
    cause: Cause = "damaged"
    empty: bool = False


class _MemberAnswer(_Answer):
    name: str = ""
    stated: dict[str, str] = {}
    refused: str = ""


class _DocumentAnswer(_Answer):
    document: _Document | None = None


NO_REASON = "the parser gave no reason"


def document_of(about: bytes, text: bytes) -> Document:
    """The document in an answer: `about` is JSON, `text` its text.

    Raises:
        EmptyFileError: the parser reports an empty file.
        ParseError: the parser reports an error of the file.
        NoDocumentError: the answer is invalid, or its positions don't fit its text.
    """
    try:
        parsed, decoded = _DocumentAnswer.model_validate_json(about), text.decode()
    except ValidationError as error:
        raise NoDocumentError(f"{error.error_count()} errors") from error
    except UnicodeDecodeError as error:
        raise NoDocumentError("a text that is not UTF-8") from error
    if parsed.document is None:
        kind = EmptyFileError if parsed.empty else ParseError
        raise kind(title_line(parsed.error or "") or NO_REASON, parsed.cause)
    return _valid_document(parsed.document, decoded)


def member_of(answer: bytes) -> Member:
    """The member in an answer, without its content. Its name is not sanitized.

    Raises:
        ParseError: the parser reports an error of the file.
        NoDocumentError: the answer is invalid.
    """
    try:
        parsed = _MemberAnswer.model_validate_json(answer)
    except ValidationError as error:
        raise NoDocumentError(f"{error.error_count()} errors") from error
    if parsed.error is not None:
        raise ParseError(title_line(parsed.error) or NO_REASON, parsed.cause)
    stated = {clean(key): clean(value) for key, value in parsed.stated.items()}
    return Member(parsed.name, stated=stated, refused=title_line(parsed.refused), cause=parsed.cause)


def _valid_document(document: _Document, text: str) -> Document:
    ends = [0]
    for _, start, end, _, _ in document.blocks:
        ends += [start, end]
    for positions in (ends, document.pages):  # the file may have written this answer itself
        if list(positions) != sorted(positions) or (positions and positions[-1] > len(text)):
            raise NoDocumentError("positions outside of the text, or out of order")
    if not document.blocks:
        raise NoDocumentError("no blocks")
    if len(text) > parser_child.MAX_TEXT_CHARS:
        raise NoDocumentError(f"a text of {len(text)} characters")
    return Document(
        text=text,
        title=title_line(document.title),
        mime_type=document.mime_type,
        blocks=tuple(
            Block(kind, start, end, level, title_line(title))
            for kind, start, end, level, title in document.blocks
        ),
        pages=document.pages,
        date=utc(document.date) if document.date else None,
        url=web_address(document.url or ""),
        metadata=document.metadata,
        remarks=tuple(map(title_line, document.remarks)),
        has_lines=document.has_lines,
    )
