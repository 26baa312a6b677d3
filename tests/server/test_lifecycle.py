"""The server starts before its engine, and leaves when nobody needs it any more."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Era, Start, Wire

pytestmark = pytest.mark.slow

HEAVY = ["numpy", "pyarrow", "lancedb", "onnxruntime", "tokenizers", "openai"]

GATE = """
import os, sys

class Gate:
    def find_spec(self, name, path=None, target=None):
        if name in os.environ["GATED"].split():
            sys.meta_path.remove(self)
            os.write(int(os.environ["GATE_REACHED"]), b".")
            os.read(int(os.environ["GATE_OPENED"]), 1)
        return None

sys.meta_path.insert(0, Gate())
"""

PARENT = """
import signal, subprocess, sys

subprocess.Popen(sys.argv[1:], close_fds=False)
signal.pause()
"""


@dataclass(frozen=True, slots=True)
class Gate:
    """Holds up a server where it first imports one of some modules, for as long as a test likes."""

    folder: Path
    reached: int
    opened: int
    fds: tuple[int, int]

    def env(self, *modules: str) -> dict[str, str]:
        reached, opened = self.fds
        return {
            "PYTHONPATH": str(self.folder),
            "GATED": " ".join(modules),
            "GATE_REACHED": str(reached),
            "GATE_OPENED": str(opened),
        }

    def is_reached(self, *, within: float = 0) -> bool:
        return bool(select.select([self.reached], [], [], within)[0])

    def expect_reached(self) -> None:
        assert self.is_reached(within=20), "no gated module was imported"

    def open(self) -> None:
        os.write(self.opened, b".")


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    (tmp_path / "sitecustomize.py").write_text(GATE)
    with ExitStack() as stack:
        reached, reach = os.pipe()
        opening, opened = os.pipe()
        for fd in (reached, reach, opening, opened):
            stack.callback(os.close, fd)
        yield Gate(tmp_path, reached, opened, (reach, opening))


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_what_needs_no_documents_is_answered_before_the_engine_is_imported(
    cold_start: Start, clock_room: Path, gate: Gate, era: Era
) -> None:
    wire = cold_start(clock_room, era=era, env=gate.env(*HEAVY), pass_fds=gate.fds)
    for _ in range(5):
        wire.write("no message, but a sign of life")
        assert wire.read()["error"]
    assert not gate.is_reached()
    wire.begin()
    gate.expect_reached()  # nobody asked for documents: it gets ready by itself
    assert wire.result("prompts/list")["prompts"]
    assert wire.result("resources/templates/list")["resourceTemplates"]
    assert "query" in wire.tool_error("search", {"query": ""})
    ask(wire)
    assert wire.result("prompts/list")["prompts"]
    gate.open()
    assert wire.read()["result"]["structuredContent"]["results"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_list_of_tools_waits_for_the_engine_only_where_there_are_documents(
    cold_start: Start, clock_room: Path, tmp_path: Path, gate: Gate, era: Era
) -> None:
    empty = cold_start(tmp_path / "empty", era=era, env=gate.env(*HEAVY), pass_fds=gate.fds)
    empty.begin()
    assert len(empty.result("tools/list")["tools"]) == 2
    wire = cold_start(clock_room, era=era, env=gate.env(*HEAVY), pass_fds=gate.fds)
    wire.begin()
    wire.send(50, "tools/list")
    assert wire.result("prompts/list")["prompts"]
    gate.open()
    gate.open()
    answer = wire.read()
    assert answer["id"] == 50
    assert "documents here" in answer["result"]["tools"][0]["description"]


def test_input_that_ends_before_the_first_message_ends_the_server(start: Start, clock_room: Path) -> None:
    wire = start(clock_room)
    assert wire.leave(within=20) == 0  # it has to start before it can leave
    assert wire.stderr() == ""


@pytest.mark.parametrize(
    ("signals", "calling"), [([], False), ([], True), ([signal.SIGINT], False), ([signal.SIGTERM], True)]
)
def test_it_leaves_in_the_middle_of_its_warm_up(
    cold_start: Start, clock_room: Path, gate: Gate, signals: list[signal.Signals], *, calling: bool
) -> None:
    wire = cold_start(clock_room, era="modern", env=gate.env(*HEAVY), pass_fds=gate.fds)
    if calling:
        ask(wire)  # as the first message: the call itself begins the warm-up
    else:
        wire.begin()
    gate.expect_reached()
    for each in signals:
        wire.process.send_signal(each)
    if not signals and wire.process.stdin:
        wire.process.stdin.close()
    if calling:
        gate.open()
        assert wire.read()["result"]["structuredContent"]["results"]
    assert wire.exit_code() == 0
    assert wire.stderr() == ""


def test_a_second_signal_ends_it_at_once(cold_start: Start, clock_room: Path, gate: Gate) -> None:
    wire = cold_start(clock_room, era="modern", env=gate.env(*HEAVY), pass_fds=gate.fds)
    ask(wire)
    gate.expect_reached()
    wire.process.send_signal(signal.SIGTERM)
    assert not wire.is_gone(within=0.5)
    wire.process.send_signal(signal.SIGTERM)
    assert wire.exit_code() == 1
    assert wire.gone()


def test_at_a_signal_it_answers_all_that_was_asked_and_leaves(start: Start, clock_room: Path) -> None:
    wire = start(clock_room)
    wire.begin()
    assert wire.tool("search", {"query": "clock"})["structuredContent"]["results"]
    for number in range(30):
        wire.send(number, "tools/call", {"name": "search", "arguments": {"query": "clock"}})
    assert wire.read()["result"]
    wire.process.send_signal(signal.SIGTERM)
    assert {wire.read()["id"] for _ in range(29)} < set(range(30))
    assert wire.exit_code() == 0
    assert wire.gone()


@pytest.mark.parametrize("signals", [[], [signal.SIGTERM]])
def test_it_leaves_when_it_is_warm_with_calls_under_way_and_has_no_children(
    start: Start, clock_room: Path, signals: list[signal.Signals]
) -> None:
    wire = start(clock_room)
    wire.begin()
    assert wire.tool("search", {"query": "clock"})["structuredContent"]["results"]
    assert psutil.Process(wire.process.pid).children(recursive=True) == []
    for _ in range(50):
        ask(wire)
    for each in signals:
        wire.process.send_signal(each)
    assert (wire.exit_code(within=20) if signals else wire.leave(within=20)) == 0
    assert wire.stderr() == ""


def test_it_leaves_when_nobody_reads_what_it_says(scripts: Scripts, clock_room: Path) -> None:
    pipe = subprocess.PIPE
    command = [scripts.server, "--data", str(clock_room)]
    with subprocess.Popen(command, env=scripts.environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        for read in (process.stdout.readline, process.stdout.close):
            process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
            process.stdin.flush()
            read()
        process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
        process.stdin.flush()
        assert process.wait(timeout=2) == 0
        assert process.stderr.read() == b""


@pytest.fixture
def orphan(cold_start: Start, clock_room: Path, gate: Gate) -> Wire:
    """A server whose parent is the process of the wire; the test has the other ends of its pipes."""
    before = [sys.executable, "-c", PARENT]
    return cold_start(clock_room, before=before, env=gate.env("mcp"), pass_fds=gate.fds)


def test_it_leaves_when_its_parent_dies_though_the_pipes_stay_open(orphan: Wire, gate: Gate) -> None:
    gate.open()
    orphan.begin()
    assert orphan.tool("search", {"query": "clock"})["structuredContent"]["results"]
    orphan.process.kill()
    assert orphan.gone()


def test_it_leaves_when_its_parent_died_while_it_started(orphan: Wire, gate: Gate) -> None:
    gate.expect_reached()
    orphan.process.kill()
    orphan.process.wait()
    gate.open()
    assert orphan.gone(within=20)  # it has to start before it can leave


def test_an_embedder_that_cant_be_opened_is_told_to_every_call_and_costs_no_more(
    start: Start, tmp_path: Path
) -> None:
    env = {
        "REFDESK_EMBEDDER_PROVIDER": "openai",
        "REFDESK_EMBEDDER_MODEL": "some-model",
        "REFDESK_EMBEDDER_API_KEY_ENV": "NO_SUCH_KEY",
    }
    wire = start(tmp_path, env=env)
    wire.begin()
    for _ in range(3):  # the first ones on both sides of the warm-up's own attempt
        assert "NO_SUCH_KEY" in wire.tool_error("search", {"query": "clock"})
        assert "NO_SUCH_KEY" in wire.error("resources/list")["message"]
        assert wire.result("tools/list")["tools"]
    assert wire.leave() == 0
    assert "Cannot open the desk: OpenAI needs an API key" in wire.stderr()
