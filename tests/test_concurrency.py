"""The memory that a process may use, by what Linux says of its control groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rag import runtime

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runtime, "GROUPS", tmp_path / "groups")
    monkeypatch.setattr(runtime, "OWN_GROUPS", tmp_path / "own")
    return tmp_path


def _limit(groups: Path, own: str, limits: dict[str, str]) -> int:
    (groups / "own").write_text(own)
    for name, limit in limits.items():
        file = groups / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(limit)
    return runtime.memory_bytes()


def test_without_groups_it_is_that_of_the_machine(groups: Path) -> None:
    assert not (groups / "own").exists()
    assert runtime.memory_bytes() > 10**8


@pytest.mark.parametrize(
    ("own", "limits"),
    [
        ("0::/\n", {"memory.max": "5000000\n"}),
        ("0::/system.slice/desk.service\n", {"system.slice/desk.service/memory.max": "5000000\n"}),
        (
            "0::/a/b\n",
            {"a/b/memory.max": "max\n", "a/memory.max": "5000000\n", "memory.max": "6000000\n"},
        ),
        ("3:cpu:/\n2:memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": "5000000\n"}),
        ("2:cpu,memory:/unseen\n", {"memory/memory.limit_in_bytes": "5000000\n"}),
    ],
)
def test_the_narrowest_limit_of_a_group_or_of_what_contains_it_counts(
    groups: Path, own: str, limits: dict[str, str]
) -> None:
    assert _limit(groups, own, limits) == 5_000_000


def test_a_group_without_a_limit_has_what_the_machine_has(groups: Path) -> None:
    machine = runtime.memory_bytes()
    assert _limit(groups, "0::/\n", {"memory.max": "max\n"}) == machine
    unlimited = {"memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}
    assert _limit(groups, "1:memory:/\n", unlimited) == machine
