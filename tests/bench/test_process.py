"""What the benchmark measures: processes, the bare engine, remote desks, and a stock of documents."""

from __future__ import annotations

import stat
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
import numpy as np
import psutil
import pytest
from anyio.abc import SocketAttribute

from rag.access.keys import holder_of, keys_file, read_keys
from rag.corpus import Principal
from rag.errors import RefdeskError
from rag.store.read.desk_reader import DeskReader
from rag.store.write.desk_folder import prepare
from tests.bench.engine import add_tenants, open_engine
from tests.bench.process import environment, running, script, served
from tests.bench.remote import HOST, Answer, connected, listening, make_keys
from tests.bench.stock import stocked

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from types import ModuleType

    from anyio.abc import SocketStream

    from rag.store.read.collection_reader import CollectionReader
    from tests.bench.stock import Bench

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
ENDLESS = [sys.executable, "-c", "import signal; signal.pause()"]
AT_MOST_SECONDS = 30


def answering_with(line: str) -> list[str]:
    """A server whose answer to everything is this line."""
    return [sys.executable, "-c", f"input(); print({line!r})"]


async def test_a_process_ends_with_its_block_even_if_it_would_go_on_for_ever() -> None:
    with anyio.fail_after(AT_MOST_SECONDS):
        async with running(ENDLESS) as process:
            pass
    assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "no disk"}}',
        '{"jsonrpc": "2.0", "id": 1, "result": {"isError": true, "content": "no disk"}}',
    ],
)
async def test_an_error_is_no_measurement(line: str) -> None:
    async with served(answering_with(line)) as server:
        with pytest.raises(RefdeskError, match=r"answered tools/call with an error: .*no disk"):
            await server.call("search", query="time")


async def test_a_server_that_ends_is_no_measurement() -> None:
    async with served([sys.executable, "-c", ""]) as server:
        with pytest.raises(RefdeskError, match="measured server exited"):
            await server.begin()


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


async def opened(data: Path, tenant: str = "default") -> CollectionReader:
    reader = DeskReader(data, timeout_seconds=15)
    (collection,) = await reader.collections(tenant)
    return await reader.open(collection)


async def test_exact_search_finds_the_nearest_of_those_that_the_filter_keeps(bench: Bench) -> None:
    data = await stocked(bench, 40)
    engine, table = await open_engine(data, bench.embedder), await opened(data)
    vector = bench.vectors[3]
    all_ids = [f"{source.id}/{seq}" for source in await table.listing() for seq in range(10)]
    chunks = {chunk.id: chunk.vector for chunk in await table.chunks(all_ids, "(true)")}
    nearest = sorted(chunks, key=lambda id_: -float(np.dot(chunks[id_], vector)))
    assert await engine.exact(vector, 5, None) == nearest[:5]
    assert await engine.exact(vector, 5, "seq < 5") == [id_ for id_ in nearest if int(id_[-1]) < 5][:5]


async def test_a_window_is_the_text_and_the_chunks_that_the_desk_would_show(bench: Bench) -> None:
    data = await stocked(bench, 20)
    engine, table = await open_engine(data, bench.embedder), await opened(data)
    for source in await table.listing():
        stored_text = await table.text(source.id)
        assert stored_text
        text, chunks = await engine.window(source.id, 30, 290)
        assert text == stored_text[2][30:290]
        assert sorted(chunks) == [
            chunk.id for chunk in await table.chunks_touching(stored_text[0], 30, 290, "(true)")
        ]
        assert 1 < len(chunks) < 10


async def test_every_added_tenant_has_a_collection_of_its_own_that_can_be_searched(bench: Bench) -> None:
    data = await stocked(bench, 20)
    await add_tenants(data, 2)
    for tenant in ("default", "default-0", "default-1"):
        table = await opened(data, tenant)
        assert table.collection.tenant == tenant
        assert len(await table.dense(bench.vectors[0], 5, "(true)")) == 5
        assert len(await table.sparse("clock", 5, "(true)")) == 5
    assert await DeskReader(data, timeout_seconds=15).collections("default-2") == ()


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
        connected(port) as connection,
    ):
        assert [await connection.ask(b"ask") for _ in range(3)] == [
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
    tokens = make_keys(tmp_path, {"ann": frozenset({"hr"}), "bob": frozenset()})
    keys = read_keys(keys_file(tmp_path)).keys
    holders = [holder_of(tokens[user], keys) for user in ("ann", "bob")]
    assert [holder and holder.principal for holder in holders] == [
        Principal("default", "ann", frozenset({"hr"})),
        Principal("default", "bob"),
    ]
    assert stat.S_IMODE(keys_file(tmp_path).stat().st_mode) == 0o600


async def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("nonsense = 1\n")
    with pytest.raises(RefdeskError, match=r"did not start\. .*nonsense"):
        async with listening(tmp_path / "data"):
            pass


async def test_a_collection_has_the_chunks_and_the_indexes_that_were_asked_for(bench: Bench) -> None:
    table = await opened(await stocked(bench, 60))
    statistics = await table.statistics()
    assert (statistics.sources, statistics.chunks, statistics.unindexed) == (6, 60, 0)
    assert statistics.indexes == ()  # a small table needs none


async def test_a_chunk_is_three_to_five_sentences_and_its_vector_their_mean(
    bench: Bench, small_desk: ModuleType
) -> None:
    table = await opened(await stocked(bench, 20))
    for source in await table.listing():
        stored_text = await table.text(source.id)
        assert stored_text
        stored, _, text = stored_text
        chunks = await table.chunks_touching(stored, 0, source.length, "(true)")
        assert len(chunks) == 10
        for chunk in chunks:
            assert text[chunk.start : chunk.end] == chunk.text
            sentences = [f"{part}." for part in chunk.text.rstrip(".").split(". ")]
            assert 3 <= len(sentences) <= 5
            mean = small_desk.vectors(sentences).mean(axis=0)
            (stored_chunk,) = await table.chunks([chunk.id], "(true)")
            np.testing.assert_allclose(stored_chunk.vector, mean / np.linalg.norm(mean), atol=1e-6)


async def test_a_stocked_collection_is_made_once(bench: Bench, progress: list[str]) -> None:
    assert await stocked(bench, 20) == await stocked(bench, 20)
    assert progress == ["making a collection of 20 chunks"]
