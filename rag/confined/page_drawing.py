"""Draws a page of a file in a confined process, and makes a PNG of its pixels.

`rag.confined.page_process` is that process. It draws one page and ends, so that a hostile file can't affect
the next one. Parsers are confined in the same way (`rag.confined.confinement`). A hostile file may control
the answer, so only numbers and pixels are taken from it. The PNG is written here, after unpacking the lines
to check their number and length.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rag.errors import ParseError

if TYPE_CHECKING:
    from anyio.abc import Process

MEMORY_BYTES = 1 << 29
SECONDS = 10.0
AT_ONCE = 2  # pages drawn at once; others wait
MOST_ANSWER_BYTES = 200_000  # pixels and marks
MOST_PIXELS = 1_600  # of a side
PROGRAM = "import sys; sys.path[:] = sys.argv[3:]; from rag.confined.page_process import main; main()"
KEPT = ("LD_LIBRARY_PATH", "PATH", "SYSTEMROOT")  # variables that Python needs; others may hold keys
REQUEST, LENGTH = struct.Struct("!III"), struct.Struct("!I")
GREY, RED_GREEN_BLUE = 0, 2  # the kinds of colour of a PNG
MOST_AHEAD = 5  # pages after the one on which a passage begins; slides have few words each
FAILED = "the page can't be drawn."

Kind: TypeAlias = Literal["pdf", "pictures"]
"""The content of a file: pages to draw, or pictures as pages."""

Side = Annotated[int, Field(ge=1, le=MOST_PIXELS)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class _Facts(BaseModel):
    """The JSON of the process's answer; without a size the page wasn't drawn."""

    model_config = ConfigDict(extra="forbid", strict=True)

    pages: Annotated[int, Field(ge=0, le=1 << 31)]
    width: Side | None = None
    height: Side | None = None
    channels: Literal[1, 3] = 1
    ahead: Annotated[int, Field(ge=0, le=MOST_AHEAD)] = 0
    marks: Annotated[list[tuple[Share, Share, Share, Share]], Field(max_length=200)] = []


@dataclass(frozen=True, slots=True)
class Picture:
    """A page as a PNG, and the marks of the passage: left, top, width and height, as shares of the page.

    `ahead` counts the pages from the requested one to this one; `pages` are all of the file.
    """

    png: bytes
    width: int
    height: int
    pages: int
    ahead: int
    marks: tuple[tuple[float, float, float, float], ...]


_drawing: RunVar[anyio.CapacityLimiter] = RunVar("pages that are drawn")


async def picture(data: bytes, number: int, passage: str, kind: Kind = "pdf", *, ahead: int = 0) -> Picture:
    """A page of a file, by its number from 1. In a PDF the words of the passage are marked.

    From this page to the one `ahead` pages later, the page with most of the passage is drawn. In a file of
    pictures, each picture is a page, and words aren't marked.

    Raises:
        ParseError: it can't be drawn within the limits; the message is for callers.
    """
    try:
        limiter = _drawing.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(AT_ONCE)
        _drawing.set(limiter)
    async with limiter:
        try:
            with anyio.fail_after(SECONDS):
                answer = await _ask_process(
                    REQUEST.pack(number, ahead, len(passage.encode())) + passage.encode() + data, kind
                )
        except (OSError, TimeoutError, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise ParseError(FAILED, "crashed") from error
    return await to_thread.run_sync(checked_picture, answer)


async def _ask_process(request: bytes, kind: Kind) -> bytes:
    where = [path for path in sys.path if Path(path).is_absolute()]
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, kind, str(MEMORY_BYTES), *where]
    process = await anyio.open_process(command, stderr=subprocess.DEVNULL, cwd="/", env=environment)
    try:
        assert process.stdin  # noqa: S101 for the type checker: it was started with a pipe
        await process.stdin.send(request)
        await process.stdin.aclose()
        return await _read_answer(process)
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def _read_answer(process: Process) -> bytes:
    """The output of the process until it ends, or until it is too long."""
    answer = b""
    assert process.stdout  # noqa: S101 the same
    async for part in process.stdout:
        answer += part
        if len(answer) > MOST_ANSWER_BYTES:
            return answer
    await process.wait()  # asyncio warns of a process that is killed just as it ends
    return answer


def checked_picture(answer: bytes) -> Picture:
    """The picture in an answer.

    Raises:
        ParseError: the page wasn't drawn, or the answer is malformed.
    """
    size = LENGTH.unpack(answer[:4])[0] if len(answer) > LENGTH.size else 0
    header, packed = answer[LENGTH.size : LENGTH.size + size], answer[LENGTH.size + size :]
    try:
        facts = _Facts.model_validate_json(header)
    except ValidationError as error:
        raise ParseError(FAILED, "crashed") from error
    if not facts.width or not facts.height:
        raise ParseError(FAILED)
    line = 1 + facts.width * facts.channels
    if not _is_packed(packed, line, facts.height):
        raise ParseError(FAILED, "crashed")
    png = _png(facts.width, facts.height, facts.channels, packed)
    return Picture(png, facts.width, facts.height, facts.pages, facts.ahead, tuple(facts.marks))


def _is_packed(packed: bytes, line: int, height: int) -> bool:
    """Whether this is exactly `height` compressed scanlines of `line` bytes, all with filter 0."""
    unpacking = zlib.decompressobj()
    try:
        lines = unpacking.decompress(packed, line * height + 1)
    except zlib.error:
        return False
    whole = unpacking.eof and not unpacking.unused_data and len(lines) == line * height
    return whole and not any(lines[::line])


def _png(width: int, height: int, channels: int, packed: bytes) -> bytes:
    colour = GREY if channels == 1 else RED_GREEN_BLUE
    header = struct.pack("!IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack("!I", len(data)) + kind + data + struct.pack("!I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
