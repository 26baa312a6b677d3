from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio
import psutil
import pytest

from rag.errors import ConfigurationError, RefdeskError
from tests.bench.process import Reply, environment, running, script, served

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ENDLESS = [sys.executable, "-c", "import signal; signal.pause()"]
AT_MOST_SECONDS = 30


def answering(line: str) -> list[str]:
    """A server whose answer to everything is this line."""
    return [sys.executable, "-c", f"input(); print({line!r})"]


async def test_a_process_ends_with_its_block_even_if_it_would_go_on_for_ever() -> None:
    with anyio.fail_after(AT_MOST_SECONDS):
        async with running(ENDLESS) as process:
            pass
    assert not psutil.pid_exists(process.pid)


async def test_a_process_ends_when_something_goes_wrong_in_its_block() -> None:
    async def fail() -> None:
        async with running(ENDLESS) as process:
            pids.append(process.pid)
            raise RefdeskError("on purpose")

    pids: list[int] = []
    with anyio.fail_after(AT_MOST_SECONDS), pytest.raises(RefdeskError, match="on purpose"):
        await fail()
    assert not psutil.pid_exists(pids[0])


async def test_an_answer_is_handed_on() -> None:
    line = '{"jsonrpc": "2.0", "id": 1, "result": {"content": []}}'
    async with served(answering(line)) as server:
        assert await server.ask("tools/call") == Reply({"content": []}, len(line) + 1)


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no disk"}}',
        '{"jsonrpc": "2.0", "id": 1, "result": {"isError": true, "content": "no disk"}}',
    ],
)
async def test_an_error_is_no_measurement(line: str) -> None:
    async with served(answering(line)) as server:
        with pytest.raises(RefdeskError, match=r"answered tools/call with an error: .*no disk"):
            await server.call("search", query="time")


async def test_a_server_that_ends_is_no_measurement() -> None:
    async with served([sys.executable, "-c", ""]) as server:
        with pytest.raises(RefdeskError, match="measured server exited"):
            await server.begin()


async def test_a_script_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"The command refdesk-desk is not in .*\. Install refdesk completely\."
    ):
        script("refdesk-desk", tmp_path / "data")


async def test_nobody_s_settings_reach_what_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFDESK_SEARCH_LIMIT", "3")
    assert "REFDESK_SEARCH_LIMIT" not in environment()
    _, *arguments = script("refdesk", tmp_path / "data")
    assert arguments == ["--config", str(tmp_path / "settings.toml"), "--data", str(tmp_path / "data")]
    assert (tmp_path / "settings.toml").read_text() == ""


async def test_several_requests_at_once_get_one_reply_each() -> None:
    echoes = "import sys\nfor line in sys.stdin: print(line.replace('params', 'result'), end='', flush=True)"
    async with served([sys.executable, "-c", echoes]) as server:
        replies: list[object] = []

        async def ask(number: int) -> None:
            reply = await server.ask("tools/call", number=number)
            replies.append(reply.result["number"])

        with anyio.fail_after(AT_MOST_SECONDS):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(ask, number)
    assert sorted(map(str, replies)) == sorted(map(str, range(20)))
