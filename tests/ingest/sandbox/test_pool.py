"""Parsing within limits of time and memory, whatever the file does."""

from __future__ import annotations

import io
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import tracemalloc
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Protocol

import anyio
import psutil
import pytest
from anyio.lowlevel import RunVar
from pypdf import PdfWriter

from rag.config.settings import IngestSettings
from rag.confined.confinement import NOBODY
from rag.errors import EmptyFileError, ParseError
from rag.ingest.parse.mail.calendars import time_zones
from rag.ingest.parse.pdf.readable_pages import WITHOUT_TEXT
from rag.ingest.sandbox import parser_pool as sandbox
from rag.ingest.sandbox.parser_child import PARSE
from rag.ingest.sandbox.parser_pool import NO_REASON, members_safely, parse_safely
from rag.ingest.source_files import Budget

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class Run(Protocol):
    async def __call__(self, lines: Sequence[str], without: str = ...) -> list[str]: ...


PROGRAM = sandbox.PROGRAM  # tests elsewhere put a fork in its place
HELLO = b"BT /F 1 Tf (Hello) Tj ET\n"
MEGABYTE = 1 << 20


@pytest.fixture(autouse=True)
def _real_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PROGRAM", PROGRAM)


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


@cache  # pages of one content are hundreds of MB in all
def _stream(content: bytes) -> bytes:
    packed = zlib.compress(content, level=1)
    return b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(packed), packed)


def _numbered(objects: Sequence[bytes]) -> bytes:
    data, starts = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, 1):
        starts.append(b"%010d 00000 n \n" % len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    size = len(objects) + 1
    table = b"xref\n0 %d\n0000000000 65535 f \n%s" % (size, b"".join(starts))
    return data + table + b"trailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (size, len(data))


def _with_outline() -> bytes:
    large = b"BT 0 5 Td /F 9 Tf 5 TL (Clocks) Tj T* /F 1 Tf (They swing, and they strike.) Tj ET\n"
    writer = PdfWriter(clone_from=io.BytesIO(_pdf([large, HELLO])))
    writer.add_outline_item(title="Hello", page_number=1)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


@cache  # and not at import, which each process of the tests does
def _slow() -> bytes:
    """A PDF that takes over the two CPU seconds that the shortest limit may come to."""
    return _pdf([HELLO * 1_000_000] * 3)


def _children() -> set[int]:
    """The parser processes of this one, which may have children of other tests as well."""
    pids = set()
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if any("rag.ingest.sandbox" in argument for argument in child.cmdline()):
                pids.add(child.pid)
    return pids


async def test_what_a_file_says_of_itself_needs_nothing_that_the_process_may_not_do() -> None:
    paper = await parse_safely(_with_outline(), "a.pdf", budget=Budget(60))
    headings = [(block.title, block.level) for block in paper.blocks if block.kind == "heading"]
    assert (paper.title, headings) == ("Clocks", [("Hello", 1)])
    link = "<head><title>T</title><link rel=canonical href='https://bücher.example/a'></head><p>text</p>"
    page = await parse_safely(link.encode(), "a.html", budget=Budget(60))
    assert page.url == "https://xn--bcher-kva.example/a"


@pytest.mark.skipif(not time_zones(), reason="this machine has no time zones")
async def test_times_of_a_calendar_are_in_its_zone_though_no_file_can_be_opened() -> None:
    """Mails come with other libraries, and without zones."""
    lines = ("VCALENDAR", "X-WR-TIMEZONE:Europe/Berlin", "VEVENT", "DTSTART:20240410T060000Z")
    calendar = "\n".join(line if ":" in line else f"BEGIN:{line}" for line in lines)
    mail = f"Subject: Oil\nContent-Type: text/calendar\n\n{calendar}"
    for name, text, start in (("a.ics", calendar, "08:00 (Europe/Berlin)"), ("a.eml", mail, "06:00 UTC")):
        document = await parse_safely(text.encode(), name, budget=Budget(60))
        assert document.text.endswith(f"Start: 2024-04-10 {start}")


async def test_one_process_parses_all_that_needs_no_library_and_another_what_does() -> None:
    before = _children()
    assert (await parse_safely(b"# Title", "a.md", budget=Budget(60))).title == "Title"
    assert (await parse_safely(b"a,b\n1,2\n", "a.csv", budget=Budget(60))).text
    assert len(_children() - before) == 1
    for name in ("a.PDF", "b.pdf"):
        document = await parse_safely(_pdf([HELLO, HELLO]), name, budget=Budget(60))
        assert (document.text, document.pages) == ("Hello\n\nHello", (0, 7))
        await parse_safely(b"text", "a.txt", budget=Budget(60))
    assert len(_children() - before) == 2


async def test_few_processes_wait_for_files_that_may_never_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_IDLE", 1)
    before = _children()
    await parse_safely(b"text", "a.txt", budget=Budget(60))
    (first,) = _children() - before
    await parse_safely(_pdf([HELLO]), "a.pdf", budget=Budget(60))
    (second,) = _children() - before
    assert second != first
    await sandbox.end_idle()
    assert not _children() - before
    assert (await parse_safely(b"text", "a.txt", budget=Budget(60))).text == "text"


async def test_a_process_that_read_a_large_file_reads_no_other_one() -> None:
    before = _children()
    await parse_safely(b"text", "a.txt", budget=Budget(60))
    assert len(_children() - before) == 1
    large = b"many words " * (sandbox.LARGE_FILE_BYTES // 10)
    assert len((await parse_safely(large, "a.txt", budget=Budget(60))).text) >= sandbox.LARGE_FILE_BYTES
    assert not _children() - before
    assert (await parse_safely(b"text", "a.txt", budget=Budget(60))).text == "text"


async def test_a_large_file_takes_no_memory_here_beside_its_own() -> None:
    data = b"PK\3\4" + bytes(64 * MEGABYTE)
    tracemalloc.start()
    try:
        with pytest.raises(ParseError, match="damaged"):
            await members_safely(data, "a.zip", lambda _: None, budget=Budget(60))
        assert tracemalloc.get_traced_memory()[1] < 16 * MEGABYTE
    finally:
        tracemalloc.stop()


async def test_what_takes_too_long_is_given_up_and_its_process_ended() -> None:
    before = _children()
    with pytest.raises(ParseError, match=r"over 0\.5 s \(ingest\.parse_timeout_seconds\)"):
        await parse_safely(_slow(), "a.pdf", budget=Budget(0.5))
    assert _children() == before
    assert (await parse_safely(_pdf([HELLO]), "b.pdf", budget=Budget(60))).text == "Hello"


async def test_a_slow_file_does_not_hold_up_what_else_is_to_do() -> None:
    await parse_safely(_pdf([HELLO]), "a.pdf", budget=Budget(60))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(parse_safely, _slow(), "a.pdf", budget=Budget(60)))
        assert (await parse_safely(b"text", "a.txt", budget=Budget(60))).text == "text"
        tasks.cancel_scope.cancel()
    assert tasks.cancel_scope.cancelled_caught


async def test_what_eats_memory_is_stopped_and_the_next_file_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 300 * MEGABYTE)
    with pytest.raises(ParseError, match="needed over 300 MB"):
        await parse_safely(_pdf([HELLO + b" " * 250_000_000]), "a.pdf", budget=Budget(60))
    assert (await parse_safely(_pdf([HELLO]), "b.pdf", budget=Budget(60))).text == "Hello"


async def test_the_parser_process_reports_what_is_wrong_with_a_file() -> None:
    for data, name in ((b"", "a.pdf"), (b"<p> ", "a.html")):
        with pytest.raises(EmptyFileError):
            await parse_safely(data, name, budget=Budget(60))
    for data in (b"no PDF at all", _pdf([HELLO])[:200]):
        with pytest.raises(ParseError, match="damaged"):
            await parse_safely(data, "a.pdf", budget=Budget(60))
    with pytest.raises(ParseError, match=WITHOUT_TEXT):
        await parse_safely(_pdf([b"q Q"]), "a.pdf", budget=Budget(60))


async def test_a_parser_that_is_killed_is_a_file_that_crashed_it() -> None:
    before = _children()
    await parse_safely(_pdf([HELLO]), "a.pdf", budget=Budget(60))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_kill_when_busy, before)
        with pytest.raises(ParseError, match="crashed"):
            await parse_safely(_slow(), "a.pdf", budget=Budget(60))


async def _kill_when_busy(before: set[int]) -> None:
    (pid,) = _children() - before
    child = psutil.Process(pid)
    idle = child.cpu_times().user
    while child.cpu_times().user < idle + 0.1:
        await anyio.lowlevel.checkpoint()
    child.kill()


async def test_a_processor_is_lent_for_so_many_seconds_even_if_nobody_watches() -> None:
    child = await sandbox._start_process("rag.ingest.parse.pdf.pdf_document")  # noqa: SLF001 the outer limit would be faster
    await child.ask(PARSE, _pdf([HELLO]), "a.pdf", 0)
    assert (await child.receive())[1] == b"Hello"
    await child.ask(PARSE, _slow(), "a.pdf", 0)
    with pytest.raises(anyio.IncompleteRead):
        await child.receive()
    await child.process.wait()  # before any other signal, whose sender would take the reason of its end
    assert child.process.returncode == -signal.SIGXCPU
    await child.end()


async def test_a_bad_file_is_skipped_with_its_reason_and_the_others_come_in(
    small_desk: ModuleType, tmp_path: Path
) -> None:
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "a.pdf").write_bytes(_pdf([HELLO]))
    (papers / "b.pdf").write_bytes(_pdf([HELLO * 100_000] * 200))
    (papers / "c.html").write_text("<h1>Title</h1>")
    settings = IngestSettings(parse_timeout_seconds=0.5)
    report = await small_desk.ingested(tmp_path / "data", papers, settings=settings)
    assert report.counts["added"] == 2
    (reason,) = [outcome.reason for outcome in report.outcomes if outcome.outcome == "skipped"]
    assert reason == "parsing took over 0.5 s (ingest.parse_timeout_seconds)"


EXPLOITED = """
import sys; sys.path[:] = sys.argv[3:]
import ctypes, os, resource, signal, socket
from pathlib import Path
from rag.confined import confinement
from rag.ingest.sandbox import parser_child as confined
from rag.corpus import Block, Document
def outcome(line):
    try:
        return str(eval(line))
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
def exploited(code, name, **_):
    text = "\\n".join(map(outcome, code.decode().splitlines()))
    return Document(text, name, "text/plain", (Block("paragraph", 0, len(text)),))
confined.parsers.parse = exploited
__WITHOUT__
confined.main()
"""
"""A process whose parser is taken over: it runs each line of a file. A part of what holds it is missing."""

FREE = "confined.confine = lambda memory_bytes: None"
ALL = ""
NO_LANDLOCK = "confinement._CREATE_RULESET = -1"
NO_NAMESPACES = "confinement._NEW_USERS = -1"
NEITHER = f"{NO_LANDLOCK}; {NO_NAMESPACES}"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere only descriptors are limited")
FAILED = re.compile(r"[A-Z]\w+Error: ")


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run lines of code in place of a parser, and tell how each ended."""

    async def run(lines: Sequence[str], without: str = ALL) -> list[str]:
        monkeypatch.setattr(sandbox, "PROGRAM", EXPLOITED.replace("__WITHOUT__", without))
        monkeypatch.setattr(sandbox, "_pools", RunVar("the test's own"))
        document = await parse_safely("\n".join(lines).encode(), "a.pdf", budget=Budget(60))
        return document.text.split("\n")

    return run


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder in which everybody may do everything, with files that are everybody's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o777)
        for file in (folder / letter for letter in "abcdefg"):
            file.write_text("secret")
            file.chmod(0o666)
            if not os.geteuid():
                os.chown(file, NOBODY, NOBODY)
        yield folder


async def test_a_parser_that_is_taken_over_reaches_nobody(run: Run, open_folder: Path) -> None:
    with ExitStack() as stack:
        listeners = [stack.enter_context(listener) for listener in _listeners(open_folder)]
        lines = [
            f"(it := socket.socket({int(listener.family)}, {int(listener.type)}))"
            f".connect({listener.getsockname()!r}) or it.send(b'hello')"
            for listener in listeners
        ]
        for without in (ALL, NO_LANDLOCK, NO_NAMESPACES, NEITHER):
            assert all(map(FAILED.match, await run(lines, without))), without
            assert not any(map(_arrived, listeners)), without
        assert await run(lines, FREE) == ["5"] * 6
        assert all(map(_arrived, listeners))


def _listeners(folder: Path) -> Iterator[socket.socket]:
    """On the loopback address, a path and an abstract name, connected and not."""
    for form in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        path = f"{folder}/{int(form)}"
        for family, place in (
            (socket.AF_INET, ("127.0.0.1", 0)),
            (socket.AF_UNIX, path),
            (socket.AF_UNIX, f"\0{path}"),
        ):
            listener = socket.socket(family, form)
            listener.bind(place)
            if form == socket.SOCK_STREAM:
                listener.listen()
            yield listener
        Path(path).chmod(0o777)


def _arrived(listener: socket.socket) -> bool:
    """Whether somebody came; what was sent has arrived when the sender is done."""
    return bool(select.select([listener], [], [], 0)[0])


OPENING = (
    "Path(FOLDER, 'a').read_text()",
    "Path(FOLDER, 'a').write_text('changed')",
    "Path(FOLDER, 'new').touch()",
    "Path(FOLDER).iterdir().__next__()",
    "os.listdir(FOLDER)",
    "os.pipe()",
)
NAMING = (
    "os.unlink(FOLDER + '/b')",
    "os.rename(FOLDER + '/c', FOLDER + '/moved')",
    "os.mkdir(FOLDER + '/folder')",
    "os.symlink('/', FOLDER + '/link')",
    "os.truncate(FOLDER + '/d', 0)",
)
MINDING = ("os.chmod(FOLDER + '/e', 0o600)", "os.utime(FOLDER + '/f', (1, 1))")


@LINUX
async def test_a_parser_that_is_taken_over_touches_no_file(run: Run, open_folder: Path) -> None:
    def state() -> list[tuple[str, int, int, int]]:
        files = [(path.name, path.lstat()) for path in sorted(open_folder.iterdir())]
        return [(name, status.st_mode, status.st_size, status.st_mtime_ns) for name, status in files]

    before = state()
    lines = [line.replace("FOLDER", repr(str(open_folder))) for line in (*OPENING, *NAMING, *MINDING)]
    for without, forbidden in (
        (ALL, lines),
        (NO_LANDLOCK, lines),
        (NO_NAMESPACES, lines[: -len(MINDING)]),
        (NEITHER, lines[: len(OPENING)]),
    ):
        assert all(map(FAILED.match, await run(forbidden, without))), without
        assert state() == before, without
    assert not any(map(FAILED.match, await run(lines, FREE)))
    assert state() != before


HELPING = (
    "os.fork() or os._exit(0)",
    "os.kill(os.getppid(), signal.SIGCONT)",
    "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))",
    "resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
)


@LINUX
async def test_a_parser_that_is_taken_over_gets_no_more_rights_and_no_help(run: Run) -> None:
    limits = [f"resource.getrlimit(resource.RLIMIT_{name})" for name in ("CORE", "FSIZE", "NPROC")]
    *helped, core, size, processes = await run([*HELPING, *limits])
    assert all(map(FAILED.match, helped))
    assert [core, size, processes] == ["(0, 0)"] * 3
    assert not any(map(FAILED.match, await run(HELPING, FREE)))
    become = "os.execv('/bin/sh', ['sh', '-c', 'exit'])"
    assert FAILED.match((await run([become]))[0])
    with pytest.raises(ParseError, match="crashed"):
        await run([become], FREE)


async def test_it_sees_neither_the_environment_nor_the_folder_nor_the_open_files_of_this_process(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)  # noqa: FBT003 its name says it
        results = await run(["os.environ.get('OPENAI_API_KEY')", "os.environ['PATH']", "os.getcwd()"])
        assert results == ["None", os.environ["PATH"], "/"]
        fine, closed = await run(["os.fstat(1)", f"os.fstat({file.fileno()})"], FREE)
        assert "st_mode" in fine
        assert "Bad file descriptor" in closed


async def test_nothing_in_the_folder_where_the_program_was_started_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rag", "json", "resource"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert (await parse_safely(b"<h1>Title</h1>", "a.html", budget=Budget(60))).title == "Title"


@pytest.mark.parametrize("without", [NO_LANDLOCK, NO_NAMESPACES, NEITHER, "resource.setrlimit = None"])
async def test_files_are_parsed_wherever_less_can_be_forbidden(
    monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    if "setrlimit" in without:
        without = "def refuse(*_): raise ValueError\nresource.setrlimit = refuse"
    program = EXPLOITED.replace("__WITHOUT__", without).replace("confined.parsers.parse = exploited", "")
    monkeypatch.setattr(sandbox, "PROGRAM", program)
    assert (await parse_safely(_pdf([HELLO]), "a.pdf", budget=Budget(60))).text == "Hello"


BABBLING = """
import sys, struct, pickle
out, header = sys.stdout.buffer, struct.Struct("!III")
lengths = lambda known, content: header.pack(known, content, 0)
out.write(lengths(5, 0) + b"ready"); out.flush()
sys.stdin.buffer.read(struct.calcsize("!IIQ"))
__SAYS__
out.flush()
sys.stdin.buffer.read()
"""
NO_DOCUMENT, CRASHED = "the parser returned an invalid document", "parsing crashed"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("out.write(b'Segmentation fault')", NO_DOCUMENT),  # its first bytes are a length of 1.4 GB
        ("out.write(b'\\xff' * 12)", NO_DOCUMENT),
        ("out.write(lengths((1 << 24) + 1, 0))", NO_DOCUMENT),
        ("out.write(lengths(2, (1 << 26) + 1))", NO_DOCUMENT),
        ("out.write(lengths(3, 0) + b'no!')", NO_DOCUMENT),
        ("out.write(lengths(2, 0) + b'{}')", NO_REASON),
        ("out.write(lengths(0, 0))", NO_DOCUMENT),
        ("it = pickle.dumps(print); out.write(lengths(len(it), 0) + it)", NO_DOCUMENT),
        ("it = b'{\"error\":\"%s\"}' % (b'e' * 5000); out.write(lengths(len(it), 0) + it)", "^e{200}$"),
        ("out.write(lengths(500, 0) + b'{'); out.flush(); raise SystemExit", CRASHED),
        ("raise SystemExit", CRASHED),
        ("out.write(lengths(500, 500))", r"over 0\.2 s"),
    ],
)
async def test_a_parser_that_babbles_is_a_file_that_broke_it(
    monkeypatch: pytest.MonkeyPatch, parser: str, says: str, reason: str
) -> None:
    before = _children()
    with monkeypatch.context() as patch:
        patch.setattr(sandbox, "PROGRAM", BABBLING.replace("__SAYS__", says))
        with pytest.raises(ParseError, match=reason):
            await parse_safely(b"", "a.pdf", budget=Budget(0.2))
        if reason in (NO_DOCUMENT, CRASHED):
            assert _children() == before
        monkeypatch.setattr(sandbox, "_pools", RunVar("after it"))
    monkeypatch.setattr(sandbox, "PROGRAM", parser)  # the next file may be read by a fork
    assert (await parse_safely(_pdf([HELLO]), "b.pdf", budget=Budget(60))).text == "Hello"


@pytest.mark.parametrize("program", ["raise SystemExit", "print('Hello')", "import no_such_module"])
async def test_a_process_that_does_not_start_is_a_reason_too(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    before = _children()
    monkeypatch.setattr(sandbox, "PROGRAM", program)
    with pytest.raises(ParseError, match="the parser process doesn't start"):
        await parse_safely(_pdf([HELLO]), "b.pdf", budget=Budget(60))
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ParseError, match="the parser process can't be started: No such file"):
        await parse_safely(_pdf([HELLO]), "b.pdf", budget=Budget(60))
    assert _children() == before


WORKING = """
import anyio, contextlib, sys
from rag.errors import ParseError
from rag.ingest.source_files import Budget
from rag.ingest.sandbox.parser_pool import members_safely, parse_safely
async def main():
    with contextlib.suppress(ParseError):
        await parse_safely(b"no PDF", "a.pdf", budget=Budget(60))
    print("warm", flush=True)
    await parse_safely(sys.stdin.buffer.read(), "a.pdf", budget=Budget(60))
anyio.run(main)
"""


@pytest.mark.parametrize("busy", [True, False])
def test_the_process_ends_with_the_one_that_started_it(*, busy: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin
        assert parent.stdout
        assert parent.stdout.readline() == b"warm\n"
        (child,) = psutil.Process(parent.pid).children()
        if busy:
            parent.stdin.write(_slow())
            parent.stdin.close()
            idle = child.cpu_times().user
            while child.cpu_times().user < idle + 0.1:
                pass
        parent.kill()
    gone, _ = psutil.wait_procs([child], timeout=30)
    assert gone


def test_the_process_ends_with_the_event_loop() -> None:
    before = _children()
    anyio.run(partial(parse_safely, _pdf([HELLO]), "a.pdf", budget=Budget(60)))
    assert _children() == before


FEED = b"<feed><entry><updated>Mon, 1 Jan 2024</updated><content>&lt;p>Tick</content></entry></feed>"
MAIL = b"From: a@x.org\nSubject: =?%s?q?Clocks?=\nContent-Type: text/plain; charset=%s\n\nTick."


OF_EACH_PARSER = (
    ("a.eml", MAIL % (b"utf-8", b"x-none")),
    ("a.eml", MAIL % (b"x-none", b"big5") + b"\xa5\xfa"),
    ("a.mbox", b"From - Wed May  1 10:00:00 2024\n" + MAIL % (b"iso-8859-15", b"koi8-r")),
    ("a.ics", b"BEGIN:VEVENT\nSUMMARY:Tick\nDTSTART:20240501T100000Z\nEND:VEVENT\n"),
    ("a.ipynb", b'{"cells": [{"cell_type": "code", "source": "tick()"}]}'),
    ("a.xml", b'<?xml version="1.0" encoding="x-none"?><a><p>Tick</p><p>&nbsp;tock</p></a>'),
    ("a.xml", b'<?xml version="1.0" encoding="koi8-r"?>' + FEED),
    ("a.tex", rb"\section{Tick} na\"{\i}ve \date{1 May 2024}"),
    ("a.adoc", b"= Tick\nAnn\n2024-05-01\n\nTock."),
    ("a.org", b"#+DATE: 2024-05-01\n* Tick"),
    ("a.toml", b"[tick]\ntock = 1\n"),
    ("a.md", b"+++\ntitle = 'Tick'\ndate = 2024-05-01\n+++\nTock."),
    ("a.srt", b"00:00:01,000 --> 00:00:02,000\nTick.\n"),
)


async def test_no_parser_imports_anything_once_it_is_confined() -> None:
    """A parser that does ends the process, because it can't open a file."""
    for name, data in OF_EACH_PARSER:
        assert (await parse_safely(data, name, budget=Budget(60))).blocks, data
