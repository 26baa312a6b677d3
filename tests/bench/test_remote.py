from __future__ import annotations

import stat
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio.abc import SocketAttribute

from rag.access.keys import holder_of, keys_file, read_keys
from rag.corpus import Principal
from rag.errors import RefdeskError
from rag.store.write.desk_folder import prepare
from tests.bench.remote import HOST, Answer, connected, listening, make_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from anyio.abc import SocketStream

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: "


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[int]:
    """The port of a server that gives each connection these answers, one after the other, and hangs up."""

    async def serve(stream: SocketStream) -> None:
        async with stream:
            for answer in answers:
                await stream.receive()
                await stream.send(answer)

    async with (
        await anyio.create_tcp_listener(local_host=HOST) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, serve)
        yield listener.extra(SocketAttribute.local_port)  # noqa: S610 anyio's, not Django's
        tasks.cancel_scope.cancel()


async def test_answers_come_one_after_the_other_over_one_connection() -> None:
    refused = b"HTTP/1.1 401 Unauthorized\r\nX: y\r\nContent-Length: 0\r\n\r\n"
    async with (
        answering(HEAD + b"4\r\n\r\nbody", refused, HEAD + b"2\r\n\r\nok") as port,
        connected(port) as one,
    ):
        assert [await one.ask(b"ask") for _ in range(3)] == [
            Answer(200, b"body"),
            Answer(401, b""),
            Answer(200, b"ok"),
        ]


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n",
        HEAD + b"9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\n\r\ndata: stream",
        b"nonsense\r\n\r\n",
    ],
)
async def test_what_is_no_whole_answer_is_an_error(answer: bytes) -> None:
    async with answering(answer) as port, connected(port) as connection:
        with pytest.raises(RefdeskError, match="no complete answer"):
            await connection.ask(b"ask")


async def test_keys_are_their_holders_and_nobody_else_reads_them(tmp_path: Path) -> None:
    prepare(tmp_path)
    shown = make_keys(tmp_path, {"ann": frozenset({"hr"}), "bob": frozenset()})
    keys = read_keys(keys_file(tmp_path)).keys
    holders = [holder_of(shown[user], keys) for user in ("ann", "bob")]
    assert [one and one.principal for one in holders] == [
        Principal("default", "ann", frozenset({"hr"})),
        Principal("default", "bob"),
    ]
    assert stat.S_IMODE(keys_file(tmp_path).stat().st_mode) == 0o600


async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("nonsense = 1\n")
    with pytest.raises(RefdeskError, match=r"did not start\. .*nonsense"):
        async with listening(tmp_path / "data"):
            pass
