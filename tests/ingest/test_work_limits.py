"""How far preparing may be ahead of writing, and what CPU time a file may take."""

from __future__ import annotations

import io
import sys
import time
import zipfile
from pathlib import Path
from types import ModuleType

import anyio
import pytest
from anyio.lowlevel import RunVar, checkpoint

from rag.config.settings import IngestSettings
from rag.errors import ParseError
from rag.ingest.chunk_vectors import LARGE_CHARACTERS, SMALL_CHARACTERS, BackPressure, lanes
from rag.ingest.discover import Discovery
from rag.ingest.report import Report
from rag.ingest.sandbox import parser_pool
from rag.ingest.sandbox.parser_pool import parse_safely
from rag.ingest.source_files import PATIENCE, Budget

pytestmark = pytest.mark.anyio


# How far preparing may be ahead of writing.

SMALL = SMALL_CHARACTERS // 5  # of these, six are more than there is room for


class Waiting:
    """Lets documents in one after another, and notes which are in."""

    def __init__(self, width: int = 1) -> None:
        self.ahead = BackPressure(width)
        self.entered: list[str] = []

    async def let_in(self, *documents: tuple[str, int]) -> None:
        for uri, size in documents:
            await self.ahead.enter(uri, size)
            self.entered.append(uri)


async def settled() -> None:
    """Let the other tasks go as far as they can."""
    for _ in range(10):
        await checkpoint()


async def test_small_documents_wait_when_together_they_are_too_many() -> None:
    waiting = Waiting()
    assert SMALL < LARGE_CHARACTERS
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.let_in, *[(str(number), SMALL) for number in range(8)])
            await settled()
            assert waiting.entered == ["0", "1", "2", "3", "4", "5"]
            waiting.ahead.leave("3")
            await settled()
            assert waiting.entered[6:] == ["6"]
            waiting.ahead.leave("0")
            await settled()
            assert waiting.entered[7:] == ["7"]


async def test_a_large_document_waits_for_the_one_before_it_and_not_for_small_ones() -> None:
    waiting = Waiting()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                waiting.let_in, ("a", 1), ("b", 10**9), ("c", 1), ("d", LARGE_CHARACTERS), ("e", 1)
            )
            await settled()
            assert waiting.entered == ["a", "b", "c"]
            waiting.ahead.leave("b")
            await settled()
            assert waiting.entered == ["a", "b", "c", "d", "e"]


async def test_a_large_file_with_little_text_makes_room_for_another_one() -> None:
    ahead = BackPressure()
    with anyio.fail_after(30):
        await ahead.enter("scan.pdf", 10**9)
        await ahead.enter("scan.pdf", 100)
        await ahead.enter("other.pdf", 10**9)
        await ahead.enter("other.pdf", 10**8)  # as its text is, too; it doesn't wait for itself


async def test_all_that_wait_are_let_in_when_there_is_room() -> None:
    waiting = Waiting()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.let_in, ("a", 10**9), ("b", 10**9))
            tasks.start_soon(waiting.let_in, *[(str(number), SMALL) for number in range(7)])
            await settled()
            assert waiting.entered == ["a", "0", "1", "2", "3", "4", "5"]
            waiting.ahead.leave("0")
            await settled()
            waiting.ahead.leave("a")
            await settled()
            assert waiting.entered[7:] == ["6", "b"]


def test_large_files_and_their_parts_have_a_lane_of_their_own() -> None:
    sizes = {"a": 1, "b.eml": LARGE_CHARACTERS, "b.eml#x": 1, "c.zip#y": LARGE_CHARACTERS, "d": 2}
    assert lanes(sizes, sizes) == [[["a"], ["c.zip#y"], ["d"]], [["b.eml", "b.eml#x"]]]
    assert lanes([], {}) == []


async def test_with_more_workers_more_documents_are_let_in() -> None:
    waiting = Waiting(width=3)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            large = [(str(number), LARGE_CHARACTERS) for number in range(5)]
            tasks.start_soon(waiting.let_in, *large)
            await settled()
            assert waiting.entered == ["0", "1", "2"]
            waiting.ahead.leave("1")
            await settled()
            assert waiting.entered == ["0", "1", "2", "3"]
            waiting.ahead.open()


async def test_when_nothing_is_written_any_more_nobody_waits() -> None:
    waiting = Waiting()
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(waiting.let_in, ("a", 10**9), ("b", 10**9), ("c", 10**9))
            await settled()
            assert waiting.entered == ["a"]
            waiting.ahead.open()


# The steps of a file spend its CPU seconds together, and parts of a container can't waste them for
# ever.

NEEDS_LIMITS = pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no CPU time")
MAIL = b"From: a@x.org\nSubject: Clock\n\nthe verge and the foliot\n"
SLOW_PARSER = """
import sys; sys.path[:] = sys.argv[3:]
import time
from rag.ingest.sandbox import parser_child as child
def slowed(function, seconds):
    def slow(data, name, **options):
        began = time.process_time()
        while "slow" in name and time.process_time() < began + seconds:
            pass
        if "asleep" in name:
            time.sleep(seconds)
        return function(data, name, **options)
    return slow
child.parsers.parse = slowed(child.parsers.parse, __PARSE__)
child.parsers.members = slowed(child.parsers.members, __MEMBERS__)
child.main()
"""
"""A parser process that computes so many seconds over a file that is called slow, before it parses it."""


def _slow(monkeypatch: pytest.MonkeyPatch, *, parse: float, members: float = 0.0) -> None:
    program = SLOW_PARSER.replace("__PARSE__", str(parse)).replace("__MEMBERS__", str(members))
    monkeypatch.setattr(parser_pool, "PROGRAM", program)
    monkeypatch.setattr(parser_pool, "_pools", RunVar("the test's own"))


def _outcomes(report: Report) -> dict[str, tuple[str, str]]:
    return {outcome.path.rpartition("/")[2]: (outcome.outcome, outcome.reason) for outcome in report.outcomes}


@pytest.mark.slow
@pytest.mark.parametrize(("seconds", "comes_in"), [(0.5, False), (60, True)])
async def test_opening_and_parsing_a_file_spend_the_same_seconds(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, *, comes_in: bool
) -> None:
    """Each takes less than the file may, and both together more."""
    (folder := tmp_path / "mails").mkdir()
    (folder / "slow.eml").write_bytes(MAIL)
    (folder / "good.eml").write_bytes(MAIL + b"of another clock\n")
    monkeypatch.setattr("rag.ingest.source_files.PATIENCE", 1_000)
    _slow(monkeypatch, parse=0.3, members=0.3)
    settings = IngestSettings(parse_timeout_seconds=seconds)
    outcomes = _outcomes(await small_desk.ingested(tmp_path / "data", folder, settings=settings))
    assert outcomes["good.eml"][0] == "added"
    outcome, reason = outcomes["slow.eml"]
    assert (outcome, "parse_timeout_seconds" in reason) == (
        ("added", False) if comes_in else ("skipped", True)
    )


@pytest.mark.slow
@NEEDS_LIMITS
async def test_parts_that_use_up_their_seconds_leave_fewer_to_those_behind_them(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "archives").mkdir()
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in ("slow-1.txt", "slow-2.txt", "z-good.txt"):
            archive.writestr(name, f"the verge and the foliot of {name}")
    (folder / "a.zip").write_bytes(content.getvalue())
    _slow(monkeypatch, parse=600)
    settings = IngestSettings(parse_timeout_seconds=1, archives=True)
    outcomes = _outcomes(await small_desk.ingested(tmp_path / "data", folder, settings=settings))
    reasons = [outcomes[f"slow-{number}.txt"][1] for number in (1, 2)]
    over = [reason.removeprefix("parsing took over ").partition(" ")[0] for reason in reasons]
    assert over == ["1", "0.5"]
    assert outcomes["z-good.txt"][0] == "added"


def test_only_parts_of_the_same_file_get_less_and_only_after_parts_that_cost_too_much() -> None:
    discovery = Discovery(spent={"file:///d/a.zip#b.eml": 7.0})
    discovery.note_broken("file:///d/a.zip#one", ParseError("", "timeout"))
    discovery.note_broken("file:///d/a.zip#two/three", ParseError("", "crashed"))
    discovery.note_broken("file:///d/a.zip#four", ParseError("", "damaged"))
    discovery.note_broken("file:///d/b.zip", ParseError("", "timeout"))
    allowed = {
        uri: discovery.budget(f"file:///d/{uri}", 60).left
        for uri in ("a.zip", "a.zip#five/six", "a.zip#b.eml", "b.zip", "b.zip#one")
    }
    assert allowed == {"a.zip": 60, "a.zip#five/six": 15, "a.zip#b.eml": 8, "b.zip": 60, "b.zip#one": 60}


@pytest.mark.slow
@NEEDS_LIMITS
async def test_a_file_that_waits_for_a_processor_is_not_lost_and_one_that_sleeps_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _slow(monkeypatch, parse=1.5)
    waiting = Budget(1)
    document = await parse_safely(b"the verge", "asleep.txt", budget=waiting)
    assert (document.text, waiting.left > 0) == ("the verge", True)
    _slow(monkeypatch, parse=600)
    asleep = Budget(0.2)
    with pytest.raises(ParseError, match=r"over 0\.2 s"):
        await parse_safely(b"the verge", "asleep.txt", budget=asleep)
    assert asleep.left == 0


@pytest.mark.slow
@NEEDS_LIMITS
async def test_the_system_ends_a_file_that_computes_for_too_long_before_the_clock_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _slow(monkeypatch, parse=600)
    monkeypatch.setattr("rag.ingest.source_files.PATIENCE", 1_000)
    with pytest.raises(ParseError, match="over 1 s") as error:
        await parse_safely(b"the verge", "slow.txt", budget=Budget(1))
    assert error.value.cause == "timeout"


@pytest.mark.slow
async def test_what_this_process_does_for_a_file_counts_even_if_it_fails() -> None:
    def compute() -> None:
        began = time.thread_time()
        while time.thread_time() < began + 0.2:
            pass
        raise ParseError("")

    budget = Budget(1)
    await budget.run(time.sleep, 0.3)
    assert budget.left > 0.9
    with pytest.raises(ParseError):
        await budget.run(compute)
    assert 0.2 <= budget.spent < 1
    assert budget.patience == PATIENCE * budget.left
    budget.spent = 5
    assert budget.left == 0
