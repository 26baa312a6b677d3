"""refdesk --tenant, --user and --group: who asks on standard input, and where such flags would do nothing."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Scripts
    from tests.server.conftest import Start, World

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("flags", "titles"),
    [
        ((), {"open"}),
        (("--user", "bob"), {"open"}),
        (("--user", "ann", "--group", "it", "--group", "hr"), {"open", "secret"}),
    ],
)
def test_the_flags_principal_asks_on_standard_input(
    start: Start, world: World, flags: tuple[str, ...], titles: set[str]
) -> None:
    wire = start(world.data, flags=("--tenant", "acorn", *flags))
    wire.begin()
    found = wire.tool("search", {"query": "pendulum"})["structuredContent"]["results"]
    assert {hit["title"] for hit in found} == titles


@pytest.mark.parametrize(
    "flags", [["--user", "ann"], ["--group", "hr"], ["--tenant", "acorn"], ["--user", ""]]
)
def test_where_each_request_says_who_asks_such_flags_are_refused(
    scripts: Scripts, world: World, flags: list[str]
) -> None:
    said = _refusal(scripts, world.data, "--http", *flags)
    assert "Leave them out" in said


def test_an_entry_where_a_name_is_wanted_is_refused(scripts: Scripts, world: World) -> None:
    assert "without a prefix: hr, not group:hr" in _refusal(scripts, world.data, "--group", "group:hr")


def _refusal(scripts: Scripts, data: Path, *flags: str) -> str:
    """What the server says when it does not start."""
    run = subprocess.run(
        [scripts.server, "--data", data, *flags],
        env=scripts.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (2, "", 1), run.stderr
    return run.stderr
