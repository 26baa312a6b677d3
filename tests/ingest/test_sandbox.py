"""Parsing within limits of time and memory, whatever the file does."""

from __future__ import annotations

import resource
import zlib
from functools import partial
from typing import TYPE_CHECKING

import anyio
import psutil
import pytest

from rag.errors import ParseError
from rag.ingest import sandbox
from rag.ingest.sandbox import LARGE_BYTES, parse_safely

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.anyio

HELLO = b"BT /F 1 Tf (Hello) Tj ET\n"
MEGABYTE = 1 << 20


def _pdf(contents: Sequence[bytes]) -> bytes:
    """A PDF with these page contents, compressed: what is large and monotonous takes no room."""
    first = 4  # the number of the first page's object; contents follow the pages
    pages = range(first, first + len(contents))
    return _numbered(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[%s]/Count %d>>"
            % (b" ".join(b"%d 0 R" % page for page in pages), len(pages)),
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            *(
                b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents %d 0 R"
                b"/Resources<</Font<</F 3 0 R>>>>>>" % (page + len(pages))
                for page in pages
            ),
            *map(_stream, contents),
        ]
    )


def _stream(content: bytes) -> bytes:
    packed = zlib.compress(content)
    return b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(packed), packed)


def _numbered(objects: Sequence[bytes]) -> bytes:
    data, starts = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        starts.append(b"%010d 00000 n \n" % len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    size = len(objects) + 1
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, b"".join(starts))
    return data + table + b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, len(data))


SLOW = _pdf([HELLO * 1_000_000])
GREEDY = _pdf([HELLO + b"BI /W 1 /H 1 /CS /G /BPC 8 ID " + b"a" * 60_000_000 + b"\nEI\n"] * 8)


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


async def test_a_pdf_is_parsed_outside_this_process_and_comes_back_whole() -> None:
    before = _children()
    document = await parse_safely(_pdf([HELLO, HELLO]), "a.PDF", timeout_seconds=60)
    assert (document.text, document.pages) == ("Hello\n\nHello", (0, 7))
    assert len(_children() - before) == 1
    await parse_safely(_pdf([HELLO]), "b.pdf", timeout_seconds=60)
    assert len(_children() - before) == 1


async def test_small_texts_are_parsed_here() -> None:
    before = _children()
    assert (await parse_safely(b"# Title", "a.md", timeout_seconds=60)).title == "Title"
    assert _children() == before
    large = b"word " * (LARGE_BYTES // 5)
    assert len((await parse_safely(large, "a.txt", timeout_seconds=60)).text) == len(large)
    assert len(_children() - before) == 1


async def test_what_takes_too_long_is_given_up_and_its_process_ended() -> None:
    before = _children()
    with pytest.raises(ParseError, match=r"over 0\.5 s \(ingest\.parse_timeout_seconds\)"):
        await parse_safely(SLOW, "a.pdf", timeout_seconds=0.5)
    assert _children() == before
    assert (await parse_safely(_pdf([HELLO]), "b.pdf", timeout_seconds=60)).text == "Hello"


async def test_a_slow_file_does_not_hold_up_what_else_is_to_do() -> None:
    await parse_safely(_pdf([HELLO]), "a.pdf", timeout_seconds=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(parse_safely, SLOW, "a.pdf", timeout_seconds=60))
        assert (await parse_safely(b"text", "a.txt", timeout_seconds=60)).text == "text"
        tasks.cancel_scope.cancel()
    assert tasks.cancel_scope.cancelled_caught


async def test_what_eats_memory_is_stopped_and_the_next_file_is_parsed() -> None:
    with pytest.raises(ParseError, match=r"damaged|needed over 400 MB"):
        await parse_safely(GREEDY, "a.pdf", timeout_seconds=60, memory_bytes=400 * MEGABYTE)
    assert (await parse_safely(_pdf([HELLO]), "b.pdf", timeout_seconds=60)).text == "Hello"


async def test_what_is_wrong_with_a_file_is_told_through_the_process_too() -> None:
    for data in (b"", b"no PDF at all", _pdf([HELLO])[:200]):
        with pytest.raises(ParseError, match="damaged"):
            await parse_safely(data, "a.pdf", timeout_seconds=60)
    with pytest.raises(ParseError, match="only pictures"):
        await parse_safely(_pdf([b"q Q"]), "a.pdf", timeout_seconds=60)


async def test_a_parser_that_is_killed_is_a_file_that_crashed_it() -> None:
    before = _children()
    await parse_safely(_pdf([HELLO]), "a.pdf", timeout_seconds=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_kill_when_busy, before)
        with pytest.raises(ParseError, match="crashed"):
            await parse_safely(SLOW, "a.pdf", timeout_seconds=60)


async def _kill_when_busy(before: set[int]) -> None:
    child = psutil.Process(*(_children() - before))
    idle = child.cpu_times().user
    while child.cpu_times().user < idle + 0.1:
        await anyio.lowlevel.checkpoint()
    child.kill()


async def test_where_the_system_knows_no_such_limit_files_are_parsed_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert sandbox._parse_limited(_pdf([HELLO]), "a.pdf", MEGABYTE).text == "Hello"  # noqa: SLF001 not for a process
