"""A data folder of format 2 gets the present one with every right, also if that is killed in between."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag.answers import SearchRequest
from rag.config.settings import SearchSettings
from rag.corpus import Access, Principal
from rag.errors import ConfigurationError
from rag.search.desk import Desk
from rag.store import upgrade
from rag.store.reader import Reader
from tests.store.format_2 import to_format_2

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

pytestmark = pytest.mark.anyio

RIGHTS = {
    "open": Access("tenant"),
    "denied": Access("tenant", deny=frozenset({"user:bob"})),
    "closed": Access("restricted", frozenset({"group:hr"})),
}


async def _format_2(small_desk: ModuleType, data: Path, number: int = 2) -> None:
    """A data folder as the program wrote it on 21 November 2026, with three documents."""
    async with await small_desk.writing(data) as writer:
        await writer.replace(
            [
                small_desk.new_source(writer, name, f"pendulum {name}", access=access)
                for name, access in RIGHTS.items()
            ]
        )
        ids = {writer.source_id(name): access for name, access in RIGHTS.items()}
    await to_format_2(data, ids, number)


async def _seen(small_desk: ModuleType, data: Path, *people: Principal) -> list[set[str]]:
    desk = Desk(Reader(data, timeout_seconds=15), small_desk.BagOfWords(), SearchSettings())
    answers = [await desk.search(one, SearchRequest("pendulum", limit=20)) for one in people]
    return [{hit.source.title for hit in answer.hits} for answer in answers]


@pytest.mark.parametrize("killed", ["", "drop_columns", "update"])
async def test_every_right_is_carried_over_also_after_a_kill(
    small_desk: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: str
) -> None:
    people = [
        Principal("default"),
        Principal("default", "bob"),
        Principal("default", None, frozenset({"hr"})),
    ]
    await _format_2(small_desk, tmp_path)
    with pytest.raises(ConfigurationError, match="refdesk-admin upgrade"):
        await _seen(small_desk, tmp_path, *people)
    if killed:
        with monkeypatch.context() as patched:

            async def kill(*_: object, **__: object) -> None:
                raise KeyboardInterrupt

            patched.setattr(f"lancedb.table.AsyncTable.{killed}", kill)
            with pytest.raises(KeyboardInterrupt):
                await upgrade.upgrade(tmp_path)
        with pytest.raises(ConfigurationError):
            await _seen(small_desk, tmp_path, *people)
    (done,) = await upgrade.upgrade(tmp_path)
    assert (done.name, done.from_format) == ("documents", 2)
    assert await upgrade.upgrade(tmp_path) == []
    seen = await _seen(small_desk, tmp_path, *people)
    assert seen == [{"open", "denied"}, {"open"}, {"open", "denied", "closed"}]
    async with await small_desk.writing(tmp_path) as writer:  # and it can be written
        await writer.replace([small_desk.new_source(writer, "closed", "pendulum changed")])
        await writer.finish()
    assert await _seen(small_desk, tmp_path, *people) == seen


@pytest.mark.parametrize(("number", "why"), [(1, "can't be upgraded"), (4, "a later version")])
async def test_another_format_is_refused_with_what_to_do(
    small_desk: ModuleType, tmp_path: Path, number: int, why: str
) -> None:
    await _format_2(small_desk, tmp_path, number)
    with pytest.raises(ConfigurationError, match=why):
        await upgrade.upgrade(tmp_path)
