"""The harness that kills commands notices what it is for, and a few trials; see `tests.ingest.kills`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.kills import differences, torn_or_wider

ROOT = Path(__file__).resolve().parents[2]


def state(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 any JSON
    source = {"id": "i", "title": "t", "digest": "d", "text": "old", "seen": [False, False, True]}
    empty: dict[str, Any] = {
        "torn": [],
        "unreadable": [],
        "locks": [],
        "collections": ["c"],
        "keys": [],
        "rows": {"chunks": 3},
    }
    return empty | {"sources": {"file:///a": source | changes.pop("source", {})}} | changes


OLD, NEW = state(), state(source={"text": "new", "seen": [True, True, True]})


def test_the_old_and_the_new_state_are_fine() -> None:
    assert torn_or_wider(OLD, OLD, NEW) == torn_or_wider(NEW, OLD, NEW) == []
    assert differences(NEW, NEW) == []


@pytest.mark.parametrize(
    ("now", "wrong"),
    [
        (state(torn=["file:///a"]), "torn"),
        (state(locks=["default.documents"]), "locked"),
        (state(unreadable=["c"]), "unreadable"),
        (state(sources={}), "lost"),
        (state(source={"text": "half"}), "neither old nor new"),
        (state(source={"seen": [True, False, True]}), "wider"),
        (state(keys=["k"]), "key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_kill_must_not_leave_is_noticed(now: dict[str, Any], wrong: str) -> None:
    (kind,) = {problem.partition(":")[0] for problem in torn_or_wider(now, OLD, NEW)} - {"wider"} or {"wider"}
    assert kind == wrong


def test_a_row_that_is_left_is_noticed() -> None:
    assert differences(state(rows={"chunks": 4}), OLD)


@pytest.mark.slow
def test_a_killed_grant_is_wholly_done_or_not_at_all() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.ingest.kills", "--trials", "4", "--scene", "access grant"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.endswith("0 wrong\n")
