"""Evaluation runs in the data folder: their ids, whose they are, and that reading makes nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from filelock import FileLock

from rag.errors import BusyError, NotFoundError
from rag.store.write import evaluation_runs
from rag.store.write.evaluation_runs import StoredRun, run_summaries, save_runs, stored_run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.anyio


def run(name: str) -> StoredRun:
    return StoredRun(f'"summary of {name}"', f'"questions of {name}"')


async def test_ids_count_from_1_across_calls_and_tenants(tmp_path: Path) -> None:
    assert await save_runs(tmp_path, "default", [run("a"), run("b")]) == [1, 2]
    assert await save_runs(tmp_path, "acme", [run("c")]) == [3]
    assert await save_runs(tmp_path, "default", []) == []
    assert await save_runs(tmp_path, "default", [run("d")]) == [4]


async def test_a_tenant_s_runs_come_back_oldest_first(tmp_path: Path) -> None:
    for name in "abc":
        await save_runs(tmp_path, "default", [run(name), run(name.upper())])
    summaries = await run_summaries(tmp_path, "default")
    assert list(summaries.items()) == [(id_, run(name).summary) for id_, name in enumerate("aAbBcC", 1)]
    assert await stored_run(tmp_path, "default", 4) == run("B")


async def test_a_tenant_sees_its_own_runs_only(tmp_path: Path) -> None:
    await save_runs(tmp_path, "default", [run("mine")])
    await save_runs(tmp_path, "acme", [run("theirs")])
    for tenant, id_, name in (("default", 1, "mine"), ("acme", 2, "theirs")):
        assert await run_summaries(tmp_path, tenant) == {id_: run(name).summary}
        assert await stored_run(tmp_path, tenant, id_) == run(name)
        with pytest.raises(NotFoundError):
            await stored_run(tmp_path, tenant, 3 - id_)


async def test_a_run_that_isn_t_there_is_not_found(tmp_path: Path) -> None:
    await save_runs(tmp_path, "default", [run("a")])
    with pytest.raises(NotFoundError, match=r"There is no run 2. refdesk-admin eval runs lists all runs"):
        await stored_run(tmp_path, "default", 2)


@pytest.mark.parametrize("there", [True, False])
async def test_reading_makes_nothing(tmp_path: Path, *, there: bool) -> None:
    data = tmp_path if there else tmp_path / "data"
    assert await run_summaries(data, "default") == {}
    with pytest.raises(NotFoundError):
        await stored_run(data, "default", 1)
    assert not list(tmp_path.iterdir())  # noqa: ASYNC240 nothing else runs


async def test_runs_that_are_kept_at_once_get_ids_of_their_own(tmp_path: Path) -> None:
    ids: list[int] = []

    def keep() -> None:
        ids.extend(anyio.run(save_runs, tmp_path, "default", [run("x"), run("y")]))

    writers = [threading.Thread(target=keep) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(ids) == list(range(1, 9))
    assert list(await run_summaries(tmp_path, "default")) == list(range(1, 9))


async def test_keeping_waits_for_another_writer_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation_runs, "WAIT_SECONDS", 0)
    (tmp_path / "locks").mkdir()
    with FileLock(tmp_path / "locks" / "eval_runs.lock"), pytest.raises(BusyError, match="'eval_runs'"):
        await save_runs(tmp_path, "default", [run("a")])
