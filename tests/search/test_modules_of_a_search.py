"""How far one must read to follow a default search: the modules that it enters, in their order."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rag
from rag.config.settings import Settings
from rag.corpus import Principal
from rag.search import Desk

if TYPE_CHECKING:
    from types import FrameType, ModuleType

MOST_MODULES = 25
ME = Principal("default")  # made by whoever calls
QUESTION = "Who invented the pendulum clock?"
ROOT = Path(rag.__path__[0])


@pytest.mark.anyio
async def test_a_default_search_enters_few_modules(
    small_desk: ModuleType, clock_room: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entered: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        module = Path(frame.f_code.co_filename)
        if event == "call" and module.is_relative_to(ROOT):
            name = module.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
            if not entered or entered[-1] != name:
                entered.append(name)

    async with Desk.open(Settings(data=clock_room)) as desk:
        await desk.search(ME, "What is a leap second?")  # the first loads models and tables
        await small_desk.rows_in_memory(desk)
        await desk.search(ME, QUESTION)  # evaluates the rights and reads the sources, once until a change
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            answer = await desk.search(ME, QUESTION)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert answer.hits
    modules = list(dict.fromkeys(entered))
    with capsys.disabled():
        print(f"\n{len(modules)} modules, {len(entered)} moves: {' -> '.join(modules)}")  # noqa: T201
    assert len(modules) <= MOST_MODULES
